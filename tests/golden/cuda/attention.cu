// kernel 0, launched 1 times, first for attention
// CUDA: 32 threads a block, which runs 2 rows; bytes of a block: 35456 of shared memory, 0 of scratch
#ifndef HAVE_exp_f32
#define HAVE_exp_f32
FN f32 s_exp_f32(f32 x0) {
    const bool v2 = 89.0f < x0;
    const f32 v3 = v2 ? 89.0f : x0;
    const bool v5 = v3 < -104.0f;
    const f32 v6 = v5 ? -104.0f : v3;
    const f32 v10 = s_fma_f32(v6, 1.44269502f, 12582912.0f);
    const f32 v11 = v10 - 12582912.0f;
    const f32 v13 = s_fma_f32(v11, -0.693115234f, v6);
    const f32 v15 = s_fma_f32(v11, -3.19461833e-05f, v13);
    const f32 v18 = s_fma_f32(0.00139262504f, v15, 0.00836323295f);
    const f32 v20 = s_fma_f32(v18, v15, 0.0416665524f);
    const f32 v22 = s_fma_f32(v20, v15, 0.166665763f);
    const f32 v24 = s_fma_f32(v22, v15, 0.5f);
    const f32 v25 = s_fma_f32(v24, v15, 1.0f);
    const f32 v26 = s_fma_f32(v25, v15, 1.0f);
    const f32 v27 = s_scale_f32(v26, v11);
    return v27;
}
#endif
#ifndef HAVE_log_any_f32
#define HAVE_log_any_f32
SLOW f32 s_log_any_f32(f32 x0) {
    const bool v2 = x0 < 1.17549435e-38f;
    const f32 v4 = x0 * 8388608.0f;
    const f32 v5 = v2 ? v4 : x0;
    const f32 v8 = v2 ? -23.0f : 0.0f;
    const i32 v9 = s_bits_f32(v5);
    const i32 v12 = s_sub_i32(v9, 1060439283);
    const i32 v13 = s_shr_i32(v12, 23);
    const i32 v14 = s_shl_i32(v13, 23);
    const i32 v15 = s_sub_i32(v9, v14);
    const f32 v17 = s_from_i32_f32(v15);
    const f32 v18 = v17 - 1.0f;
    const f32 v19 = (f32)(v13);
    const f32 v20 = v19 + v8;
    const f32 v21 = v18 * v18;
    const f32 v24 = s_fma_f32(-0.0767365098f, v18, 0.127226889f);
    const f32 v26 = s_fma_f32(v24, v18, -0.131275594f);
    const f32 v28 = s_fma_f32(v26, v18, 0.142048538f);
    const f32 v30 = s_fma_f32(v28, v18, -0.166266456f);
    const f32 v32 = s_fma_f32(v30, v18, 0.200012341f);
    const f32 v34 = s_fma_f32(v32, v18, -0.250007808f);
    const f32 v36 = s_fma_f32(v34, v18, 0.333333313f);
    const f32 v38 = s_fma_f32(v36, v18, -0.49999997f);
    const f32 v39 = s_fma_f32(v21, v38, v18);
    const f32 v41 = s_fma_f32(v20, 0.693147182f, v39);
    const bool v43 = x0 < __builtin_inff();
    const f32 v44 = v43 ? v41 : x0;
    const bool v46 = x0 < 0.0f;
    const f32 v47 = v46 ? __builtin_nanf("") : v44;
    const bool v48 = x0 == 0.0f;
    const f32 v50 = v48 ? -__builtin_inff() : v47;
    return v50;
}
#endif
#ifndef HAVE_log_f32
#define HAVE_log_f32
FN f32 s_log_f32(f32 x0) {
    const u32 v3 = s_bits_f32(x0);
    const u32 v4 = v3 - 8388608u;
    const bool v5 = 2130706432u <= v4;
    const i32 v6 = s_bits_f32(x0);
    const i32 v9 = s_sub_i32(v6, 1060439283);
    const i32 v10 = s_shr_i32(v9, 23);
    const i32 v11 = s_shl_i32(v10, 23);
    const i32 v12 = s_sub_i32(v6, v11);
    const f32 v14 = s_from_i32_f32(v12);
    const f32 v15 = v14 - 1.0f;
    const f32 v16 = (f32)(v10);
    const f32 v17 = v15 * v15;
    const f32 v20 = s_fma_f32(-0.0767365098f, v15, 0.127226889f);
    const f32 v22 = s_fma_f32(v20, v15, -0.131275594f);
    const f32 v24 = s_fma_f32(v22, v15, 0.142048538f);
    const f32 v26 = s_fma_f32(v24, v15, -0.166266456f);
    const f32 v28 = s_fma_f32(v26, v15, 0.200012341f);
    const f32 v30 = s_fma_f32(v28, v15, -0.250007808f);
    const f32 v32 = s_fma_f32(v30, v15, 0.333333313f);
    const f32 v34 = s_fma_f32(v32, v15, -0.49999997f);
    const f32 v35 = s_fma_f32(v17, v34, v15);
    const f32 v37 = s_fma_f32(v16, 0.693147182f, v35);
    const f32 v38 = __builtin_expect((v5), 0) ? s_log_any_f32(x0) : v37;
    return v38;
}
#endif
KERNEL(32) k_b87d571bd4cb585b3d7e447889c38ec2(GLOBAL u8 *b0, GLOBAL u8 *b1, GLOBAL u8 *b2, GLOBAL u8 *b3, GLOBAL u8 *b4, i64 o0, i64 o1, i64 o2, i64 o3, i64 o4, i64 begin, i64 end) {
    const i64 lane = THREAD & 15, group = THREAD >> 4;
    const i64 row = begin + BLOCK * 2 + group;
    const u32 mask = 0xffffu << (THREAD & 16);
    SHARED f32 s0[512]; LOCAL f32 *local0 = s0 + group * 256;
    SHARED f32 s1[512]; LOCAL f32 *local1 = s1 + group * 256;
    SHARED f32 s2[2048]; LOCAL f32 *local2 = s2 + group * 1024;
    SHARED f32 s3[2048]; LOCAL f32 *local3 = s3 + group * 1024;
    SHARED f32 s4[2048]; LOCAL f32 *local4 = s4 + group * 1024;
    SHARED i32 s5[32]; LOCAL i32 *local5 = s5 + group * 16;
    SHARED f32 s6[32]; LOCAL f32 *local6 = s6 + group * 16;
    SHARED f32 s7[32]; LOCAL f32 *local7 = s7 + group * 16;
    SHARED f32 s8[32]; LOCAL f32 *local8 = s8 + group * 16;
    SHARED f32 s9[32]; LOCAL f32 *local9 = s9 + group * 16;
    SHARED f32 s10[512]; LOCAL f32 *local10 = s10 + group * 256;
    SHARED f32 s11[512]; LOCAL f32 *local11 = s11 + group * 256;
    SHARED f32 s12[512]; LOCAL f32 *local12 = s12 + group * 256;
    GLOBAL const f32 *restrict in13 = (GLOBAL const f32 *)(b0 + o0); // f32
    GLOBAL const f32 *restrict in14 = (GLOBAL const f32 *)(b1 + o1); // f32
    GLOBAL const f32 *restrict in15 = (GLOBAL const f32 *)(b2 + o2); // f32
    GLOBAL f32 *restrict out16 = (GLOBAL f32 *)(b3 + o3); // f32
    GLOBAL f32 *restrict out17 = (GLOBAL f32 *)(b4 + o4); // f32
    const i64 j7 = row; // block of rows
    if (row < end) {
        for (i64 j11 = lane; j11 < 256; j11 += 16) { // fill
            local0[j11] = 0.0f;
        }
        for (i64 j16 = lane; j16 < 1024; j16 += 16) { // fill
            local2[j16] = 0.0f;
        }
        for (i64 j20 = lane; j20 < 1024; j20 += 16) { // fill
            local3[j20] = 0.0f;
        }
        for (i64 j24 = 0; j24 < 16; j24++) { // row
            const i64 v27 = s_min_i64(j24, 8);
            const i64 v28 = v27 / 9;
            const i32 v34 = (i32)(s_min_i64(s_max_i64((v27 % 9), -1073741824), 1073741824));
            if (lane == 0) local5[j24] = v34;
        }
        for (i64 j37 = 0; j37 < 9; j37++) { // row
            SYNC;
            for (i64 j42 = lane; j42 < 8; j42 += 16) { // number of a row
                const f32 v50 = in13[(j42 + (((j7 * 72) + ((j37 / 9) * 72)) + ((j37 % 9) * 8)))];
                local0[((j37 * 16) + j42)] = v50;
            }
        }
        for (i64 j56 = 0; j56 < 7; j56++) { // row beyond the last
            SYNC;
            for (i64 j59 = lane; j59 < 16; j59 += 16) { // number of a row
                local0[(((j56 + 9) * 16) + j59)] = 0.0f;
            }
        }
        for (i64 j65 = 0; j65 < 1; j65++) { // 16 rows
            for (i64 j67 = 0; j67 < 1; j67++) { // 16 columns
                const i64 v70 = (j67 * 16) + (j65 * 256);
                SYNC;
                const f32 v71 = local0[v70 + lane];
                const f32 v73 = local0[(v70 + 16) + lane];
                const f32 v76 = local0[(v70 + 32) + lane];
                const f32 v79 = local0[(v70 + 48) + lane];
                const f32 v82 = local0[(v70 + 64) + lane];
                const f32 v85 = local0[(v70 + 80) + lane];
                const f32 v88 = local0[(v70 + 96) + lane];
                const f32 v91 = local0[(v70 + 112) + lane];
                const f32 v94 = local0[(v70 + 128) + lane];
                const f32 v97 = local0[(v70 + 144) + lane];
                const f32 v100 = local0[(v70 + 160) + lane];
                const f32 v103 = local0[(v70 + 176) + lane];
                const f32 v106 = local0[(v70 + 192) + lane];
                const f32 v109 = local0[(v70 + 208) + lane];
                const f32 v112 = local0[(v70 + 224) + lane];
                const f32 v115 = local0[(v70 + 240) + lane];
                const f32 v116 = zip_f32(SELF, v71, v94, 0);
                const f32 v117 = zip_f32(SELF, v71, v94, 8);
                const f32 v118 = zip_f32(SELF, v73, v97, 0);
                const f32 v119 = zip_f32(SELF, v73, v97, 8);
                const f32 v120 = zip_f32(SELF, v76, v100, 0);
                const f32 v121 = zip_f32(SELF, v76, v100, 8);
                const f32 v122 = zip_f32(SELF, v79, v103, 0);
                const f32 v123 = zip_f32(SELF, v79, v103, 8);
                const f32 v124 = zip_f32(SELF, v82, v106, 0);
                const f32 v125 = zip_f32(SELF, v82, v106, 8);
                const f32 v126 = zip_f32(SELF, v85, v109, 0);
                const f32 v127 = zip_f32(SELF, v85, v109, 8);
                const f32 v128 = zip_f32(SELF, v88, v112, 0);
                const f32 v129 = zip_f32(SELF, v88, v112, 8);
                const f32 v130 = zip_f32(SELF, v91, v115, 0);
                const f32 v131 = zip_f32(SELF, v91, v115, 8);
                const f32 v132 = zip_f32(SELF, v116, v124, 0);
                const f32 v133 = zip_f32(SELF, v116, v124, 8);
                const f32 v134 = zip_f32(SELF, v117, v125, 0);
                const f32 v135 = zip_f32(SELF, v117, v125, 8);
                const f32 v136 = zip_f32(SELF, v118, v126, 0);
                const f32 v137 = zip_f32(SELF, v118, v126, 8);
                const f32 v138 = zip_f32(SELF, v119, v127, 0);
                const f32 v139 = zip_f32(SELF, v119, v127, 8);
                const f32 v140 = zip_f32(SELF, v120, v128, 0);
                const f32 v141 = zip_f32(SELF, v120, v128, 8);
                const f32 v142 = zip_f32(SELF, v121, v129, 0);
                const f32 v143 = zip_f32(SELF, v121, v129, 8);
                const f32 v144 = zip_f32(SELF, v122, v130, 0);
                const f32 v145 = zip_f32(SELF, v122, v130, 8);
                const f32 v146 = zip_f32(SELF, v123, v131, 0);
                const f32 v147 = zip_f32(SELF, v123, v131, 8);
                const f32 v148 = zip_f32(SELF, v132, v140, 0);
                const f32 v149 = zip_f32(SELF, v132, v140, 8);
                const f32 v150 = zip_f32(SELF, v133, v141, 0);
                const f32 v151 = zip_f32(SELF, v133, v141, 8);
                const f32 v152 = zip_f32(SELF, v134, v142, 0);
                const f32 v153 = zip_f32(SELF, v134, v142, 8);
                const f32 v154 = zip_f32(SELF, v135, v143, 0);
                const f32 v155 = zip_f32(SELF, v135, v143, 8);
                const f32 v156 = zip_f32(SELF, v136, v144, 0);
                const f32 v157 = zip_f32(SELF, v136, v144, 8);
                const f32 v158 = zip_f32(SELF, v137, v145, 0);
                const f32 v159 = zip_f32(SELF, v137, v145, 8);
                const f32 v160 = zip_f32(SELF, v138, v146, 0);
                const f32 v161 = zip_f32(SELF, v138, v146, 8);
                const f32 v162 = zip_f32(SELF, v139, v147, 0);
                const f32 v163 = zip_f32(SELF, v139, v147, 8);
                const f32 v164 = zip_f32(SELF, v148, v156, 0);
                const f32 v165 = zip_f32(SELF, v148, v156, 8);
                const f32 v166 = zip_f32(SELF, v149, v157, 0);
                const f32 v167 = zip_f32(SELF, v149, v157, 8);
                const f32 v168 = zip_f32(SELF, v150, v158, 0);
                const f32 v169 = zip_f32(SELF, v150, v158, 8);
                const f32 v170 = zip_f32(SELF, v151, v159, 0);
                const f32 v171 = zip_f32(SELF, v151, v159, 8);
                const f32 v172 = zip_f32(SELF, v152, v160, 0);
                const f32 v173 = zip_f32(SELF, v152, v160, 8);
                const f32 v174 = zip_f32(SELF, v153, v161, 0);
                const f32 v175 = zip_f32(SELF, v153, v161, 8);
                const f32 v176 = zip_f32(SELF, v154, v162, 0);
                const f32 v177 = zip_f32(SELF, v154, v162, 8);
                const f32 v178 = zip_f32(SELF, v155, v163, 0);
                const f32 v179 = zip_f32(SELF, v155, v163, 8);
                const i64 v191 = (j65 * 16) + (j67 * 256);
                local1[v191 + lane] = v164;
                local1[(v191 + 16) + lane] = v165;
                local1[(v191 + 32) + lane] = v166;
                local1[(v191 + 48) + lane] = v167;
                local1[(v191 + 64) + lane] = v168;
                local1[(v191 + 80) + lane] = v169;
                local1[(v191 + 96) + lane] = v170;
                local1[(v191 + 112) + lane] = v171;
                local1[(v191 + 128) + lane] = v172;
                local1[(v191 + 144) + lane] = v173;
                local1[(v191 + 160) + lane] = v174;
                local1[(v191 + 176) + lane] = v175;
                local1[(v191 + 192) + lane] = v176;
                local1[(v191 + 208) + lane] = v177;
                local1[(v191 + 224) + lane] = v178;
                local1[(v191 + 240) + lane] = v179;
            }
        }
        for (i64 j225 = lane; j225 < 256; j225 += 16) { // fill
            local11[j225] = 0.0f;
        }
        for (i64 j229 = lane; j229 < 16; j229 += 16) { // fill
            local6[j229] = -__builtin_inff();
        }
        for (i64 j232 = lane; j232 < 16; j232 += 16) { // fill
            local7[j232] = -__builtin_inff();
        }
        for (i64 j235 = lane; j235 < 16; j235 += 16) { // fill
            local8[j235] = 0.0f;
        }
        for (i64 j245 = 0; j245 < 1; j245++) { // block of keys
            const i64 v246 = j245 * 64;
            const i64 v248 = s_min_i64((9 - v246), 64);
            for (i64 j249 = 0; j249 < v248; j249++) { // key
                SYNC;
                for (i64 j251 = lane; j251 < 8; j251 += 16) { // number of a key
                    const f32 v258 = in14[(j251 + ((j7 * 560) + ((v246 + j249) * 8)))];
                    local2[((j249 * 16) + j251)] = v258;
                }
            }
            const i64 v263 = 64 - v248;
            for (i64 j264 = 0; j264 < v263; j264++) { // row beyond the last
                SYNC;
                for (i64 j267 = lane; j267 < 16; j267 += 16) { // number of a row
                    local2[(((v248 + j264) * 16) + j267)] = 0.0f;
                }
            }
            for (i64 j273 = 0; j273 < v248; j273++) { // key
                SYNC;
                for (i64 j275 = lane; j275 < 8; j275 += 16) { // number of a key
                    const f32 v282 = in15[(j275 + ((j7 * 560) + ((v246 + j273) * 8)))];
                    local3[((j273 * 16) + j275)] = v282;
                }
            }
            for (i64 j287 = 0; j287 < v263; j287++) { // row beyond the last
                SYNC;
                for (i64 j290 = lane; j290 < 16; j290 += 16) { // number of a row
                    local3[(((v248 + j287) * 16) + j290)] = 0.0f;
                }
            }
            for (i64 j296 = 0; j296 < 8; j296++) { // keys
                const i64 v297 = j296 * 8;
                for (i64 j298 = 0; j298 < 1; j298++) { // lanes
                    const i64 v299 = j298 * 16;
                    const i64 v301 = j296 * 128;
                    f32 r304 = 0.0f;
                    f32 r305 = 0.0f;
                    f32 r306 = 0.0f;
                    f32 r307 = 0.0f;
                    f32 r308 = 0.0f;
                    f32 r309 = 0.0f;
                    f32 r310 = 0.0f;
                    f32 r311 = 0.0f;
                    for (i64 j312 = 0; j312 < 8; j312++) { // step
                        SYNC;
                        const f32 v315 = local1[(v299 + (j312 * 16)) + lane];
                        const i64 v316 = v301 + j312;
                        const f32 v317 = local2[v316];
                        const f32 v319 = r304;
                        const f32 v320 = s_fma_f32(v317, v315, v319);
                        r304 = v320;
                        const f32 v323 = local2[(v316 + 16)];
                        const f32 v325 = r305;
                        const f32 v326 = s_fma_f32(v323, v315, v325);
                        r305 = v326;
                        const f32 v330 = local2[(v316 + 32)];
                        const f32 v332 = r306;
                        const f32 v333 = s_fma_f32(v330, v315, v332);
                        r306 = v333;
                        const f32 v337 = local2[(v316 + 48)];
                        const f32 v339 = r307;
                        const f32 v340 = s_fma_f32(v337, v315, v339);
                        r307 = v340;
                        const f32 v343 = local2[(v316 + 64)];
                        const f32 v345 = r308;
                        const f32 v346 = s_fma_f32(v343, v315, v345);
                        r308 = v346;
                        const f32 v350 = local2[(v316 + 80)];
                        const f32 v352 = r309;
                        const f32 v353 = s_fma_f32(v350, v315, v352);
                        r309 = v353;
                        const f32 v357 = local2[(v316 + 96)];
                        const f32 v359 = r310;
                        const f32 v360 = s_fma_f32(v357, v315, v359);
                        r310 = v360;
                        const f32 v364 = local2[(v316 + 112)];
                        const f32 v366 = r311;
                        const f32 v367 = s_fma_f32(v364, v315, v366);
                        r311 = v367;
                    }
                    SYNC;
                    const i32 v370 = local5[v299 + lane];
                    const i32 v373 = (i32)((v246 + v297));
                    const bool v374 = v297 < v248;
                    const i64 v375 = v297 + 1;
                    const i32 v376 = local5[v299 + lane];
                    const i32 v378 = (i32)((v246 + v375));
                    const bool v379 = v375 < v248;
                    const i64 v380 = v297 + 2;
                    const i32 v381 = local5[v299 + lane];
                    const i32 v383 = (i32)((v246 + v380));
                    const bool v384 = v380 < v248;
                    const i64 v386 = v297 + 3;
                    const i32 v387 = local5[v299 + lane];
                    const i32 v389 = (i32)((v246 + v386));
                    const bool v390 = v386 < v248;
                    const i64 v392 = v297 + 4;
                    const i32 v393 = local5[v299 + lane];
                    const i32 v395 = (i32)((v246 + v392));
                    const bool v396 = v392 < v248;
                    const i64 v398 = v297 + 5;
                    const i32 v399 = local5[v299 + lane];
                    const i32 v401 = (i32)((v246 + v398));
                    const bool v402 = v398 < v248;
                    const i64 v404 = v297 + 6;
                    const i32 v405 = local5[v299 + lane];
                    const i32 v407 = (i32)((v246 + v404));
                    const bool v408 = v404 < v248;
                    const i64 v409 = v297 + 7;
                    const i32 v410 = local5[v299 + lane];
                    const i32 v412 = (i32)((v246 + v409));
                    const bool v413 = v409 < v248;
                    const f32 v414 = local6[v299 + lane];
                    const bool v417 = v373 <= v370;
                    const f32 v418 = r304;
                    const f32 v420 = v418 * 0.353553385f;
                    const f32 v422 = v417 ? v420 : -__builtin_inff();
                    const f32 v423 = v374 ? v422 : -__builtin_inff();
                    local4[(v299 + v301) + lane] = v423;
                    const bool v429 = v378 <= v376;
                    const f32 v430 = r305;
                    const f32 v431 = v430 * 0.353553385f;
                    const f32 v432 = v429 ? v431 : -__builtin_inff();
                    const f32 v433 = v379 ? v432 : -__builtin_inff();
                    local4[(v299 + (v375 * 16)) + lane] = v433;
                    const bool v439 = v383 <= v381;
                    const f32 v440 = r306;
                    const f32 v441 = v440 * 0.353553385f;
                    const f32 v442 = v439 ? v441 : -__builtin_inff();
                    const f32 v443 = v384 ? v442 : -__builtin_inff();
                    local4[(v299 + (v380 * 16)) + lane] = v443;
                    const bool v449 = v389 <= v387;
                    const f32 v450 = r307;
                    const f32 v451 = v450 * 0.353553385f;
                    const f32 v452 = v449 ? v451 : -__builtin_inff();
                    const f32 v453 = v390 ? v452 : -__builtin_inff();
                    local4[(v299 + (v386 * 16)) + lane] = v453;
                    const bool v459 = v395 <= v393;
                    const f32 v460 = r308;
                    const f32 v461 = v460 * 0.353553385f;
                    const f32 v462 = v459 ? v461 : -__builtin_inff();
                    const f32 v463 = v396 ? v462 : -__builtin_inff();
                    local4[(v299 + (v392 * 16)) + lane] = v463;
                    const bool v469 = v401 <= v399;
                    const f32 v470 = r309;
                    const f32 v471 = v470 * 0.353553385f;
                    const f32 v472 = v469 ? v471 : -__builtin_inff();
                    const f32 v473 = v402 ? v472 : -__builtin_inff();
                    local4[(v299 + (v398 * 16)) + lane] = v473;
                    const bool v479 = v407 <= v405;
                    const f32 v480 = r310;
                    const f32 v481 = v480 * 0.353553385f;
                    const f32 v482 = v479 ? v481 : -__builtin_inff();
                    const f32 v483 = v408 ? v482 : -__builtin_inff();
                    local4[(v299 + (v404 * 16)) + lane] = v483;
                    const bool v489 = v412 <= v410;
                    const f32 v490 = r311;
                    const f32 v491 = v490 * 0.353553385f;
                    const f32 v492 = v489 ? v491 : -__builtin_inff();
                    const f32 v493 = v413 ? v492 : -__builtin_inff();
                    local4[(v299 + (v409 * 16)) + lane] = v493;
                    const f32 v496 = s_max_f32(v414, v423);
                    const f32 v497 = s_max_f32(v496, v433);
                    const f32 v498 = s_max_f32(v497, v443);
                    const f32 v499 = s_max_f32(v498, v453);
                    const f32 v500 = s_max_f32(v499, v463);
                    const f32 v501 = s_max_f32(v500, v473);
                    const f32 v502 = s_max_f32(v501, v483);
                    const f32 v503 = s_max_f32(v502, v493);
                    SYNC;
                    local6[v299 + lane] = v503;
                }
            }
            SYNC;
            for (i64 j508 = lane; j508 < 16; j508 += 16) { // row
                const f32 v509 = local6[j508];
                const f32 v510 = local7[j508];
                const bool v511 = v509 == -__builtin_inff();
                const f32 v512 = v511 ? 0.0f : v509;
                const f32 v513 = v510 - v512;
                const f32 v514 = s_exp_f32(v513);
                local7[j508] = v509;
                local9[j508] = v514;
                for (i64 j517 = 0; j517 < 16; j517++) { // key mod 16
                    const i64 v519 = j508 + (j517 * 16);
                    const f32 v520 = local4[v519];
                    const f32 v521 = v520 - v512;
                    const f32 v522 = s_exp_f32(v521);
                    local4[v519] = v522;
                    const i64 v526 = j508 + ((j517 + 16) * 16);
                    const f32 v527 = local4[v526];
                    const f32 v528 = v527 - v512;
                    const f32 v529 = s_exp_f32(v528);
                    const f32 v530 = v522 + v529;
                    local4[v526] = v529;
                    const i64 v535 = j508 + ((j517 + 32) * 16);
                    const f32 v536 = local4[v535];
                    const f32 v537 = v536 - v512;
                    const f32 v538 = s_exp_f32(v537);
                    const f32 v539 = v530 + v538;
                    local4[v535] = v538;
                    const i64 v544 = j508 + ((j517 + 48) * 16);
                    const f32 v545 = local4[v544];
                    const f32 v546 = v545 - v512;
                    const f32 v547 = s_exp_f32(v546);
                    const f32 v548 = v539 + v547;
                    local4[v544] = v547;
                    local10[v519] = v548;
                }
                const f32 v552 = local10[j508];
                const f32 v554 = local10[(j508 + 16)];
                const f32 v557 = local10[(j508 + 32)];
                const f32 v560 = local10[(j508 + 48)];
                const f32 v562 = local10[(j508 + 64)];
                const f32 v565 = local10[(j508 + 80)];
                const f32 v568 = local10[(j508 + 96)];
                const f32 v571 = local10[(j508 + 112)];
                const f32 v574 = local10[(j508 + 128)];
                const f32 v577 = local10[(j508 + 144)];
                const f32 v580 = local10[(j508 + 160)];
                const f32 v583 = local10[(j508 + 176)];
                const f32 v586 = local10[(j508 + 192)];
                const f32 v589 = local10[(j508 + 208)];
                const f32 v592 = local10[(j508 + 224)];
                const f32 v595 = local10[(j508 + 240)];
                const f32 v596 = v552 + v574;
                const f32 v597 = v554 + v577;
                const f32 v598 = v557 + v580;
                const f32 v599 = v560 + v583;
                const f32 v600 = v562 + v586;
                const f32 v601 = v565 + v589;
                const f32 v602 = v568 + v592;
                const f32 v603 = v571 + v595;
                const f32 v604 = v596 + v600;
                const f32 v605 = v597 + v601;
                const f32 v606 = v598 + v602;
                const f32 v607 = v599 + v603;
                const f32 v608 = v604 + v606;
                const f32 v609 = v605 + v607;
                const f32 v610 = v608 + v609;
                const f32 v611 = local8[j508];
                const f32 v612 = v611 * v514;
                const f32 v613 = v612 + v610;
                local8[j508] = v613;
            }
            for (i64 j616 = 0; j616 < 1; j616++) { // numbers of a value
                const i64 v617 = j616 * 8;
                for (i64 j618 = 0; j618 < 1; j618++) { // lanes
                    const i64 v619 = j618 * 16;
                    SYNC;
                    const f32 v620 = local9[v619 + lane];
                    f32 r622 = 0.0f;
                    f32 r623 = 0.0f;
                    f32 r624 = 0.0f;
                    f32 r625 = 0.0f;
                    f32 r626 = 0.0f;
                    f32 r627 = 0.0f;
                    f32 r628 = 0.0f;
                    f32 r629 = 0.0f;
                    for (i64 j630 = 0; j630 < 64; j630++) { // step
                        const i64 v631 = j630 * 16;
                        const f32 v633 = local4[(v619 + v631) + lane];
                        const i64 v634 = v617 + v631;
                        const f32 v635 = local3[v634];
                        const f32 v637 = r622;
                        const f32 v638 = s_fma_f32(v635, v633, v637);
                        r622 = v638;
                        const f32 v641 = local3[(v634 + 1)];
                        const f32 v643 = r623;
                        const f32 v644 = s_fma_f32(v641, v633, v643);
                        r623 = v644;
                        const f32 v647 = local3[(v634 + 2)];
                        const f32 v649 = r624;
                        const f32 v650 = s_fma_f32(v647, v633, v649);
                        r624 = v650;
                        const f32 v654 = local3[(v634 + 3)];
                        const f32 v656 = r625;
                        const f32 v657 = s_fma_f32(v654, v633, v656);
                        r625 = v657;
                        const f32 v661 = local3[(v634 + 4)];
                        const f32 v663 = r626;
                        const f32 v664 = s_fma_f32(v661, v633, v663);
                        r626 = v664;
                        const f32 v668 = local3[(v634 + 5)];
                        const f32 v670 = r627;
                        const f32 v671 = s_fma_f32(v668, v633, v670);
                        r627 = v671;
                        const f32 v675 = local3[(v634 + 6)];
                        const f32 v677 = r628;
                        const f32 v678 = s_fma_f32(v675, v633, v677);
                        r628 = v678;
                        const f32 v681 = local3[(v634 + 7)];
                        const f32 v683 = r629;
                        const f32 v684 = s_fma_f32(v681, v633, v683);
                        r629 = v684;
                    }
                    const i64 v689 = v619 + (j616 * 128);
                    const f32 v690 = local11[v689 + lane];
                    const f32 v691 = v690 * v620;
                    const f32 v692 = r622;
                    const f32 v693 = v691 + v692;
                    SYNC;
                    local11[v689 + lane] = v693;
                    const i64 v697 = v619 + ((v617 + 1) * 16);
                    SYNC;
                    const f32 v698 = local11[v697 + lane];
                    const f32 v699 = v698 * v620;
                    const f32 v700 = r623;
                    const f32 v701 = v699 + v700;
                    SYNC;
                    local11[v697 + lane] = v701;
                    const i64 v705 = v619 + ((v617 + 2) * 16);
                    SYNC;
                    const f32 v706 = local11[v705 + lane];
                    const f32 v707 = v706 * v620;
                    const f32 v708 = r624;
                    const f32 v709 = v707 + v708;
                    SYNC;
                    local11[v705 + lane] = v709;
                    const i64 v714 = v619 + ((v617 + 3) * 16);
                    SYNC;
                    const f32 v715 = local11[v714 + lane];
                    const f32 v716 = v715 * v620;
                    const f32 v717 = r625;
                    const f32 v718 = v716 + v717;
                    SYNC;
                    local11[v714 + lane] = v718;
                    const i64 v723 = v619 + ((v617 + 4) * 16);
                    SYNC;
                    const f32 v724 = local11[v723 + lane];
                    const f32 v725 = v724 * v620;
                    const f32 v726 = r626;
                    const f32 v727 = v725 + v726;
                    SYNC;
                    local11[v723 + lane] = v727;
                    const i64 v732 = v619 + ((v617 + 5) * 16);
                    SYNC;
                    const f32 v733 = local11[v732 + lane];
                    const f32 v734 = v733 * v620;
                    const f32 v735 = r627;
                    const f32 v736 = v734 + v735;
                    SYNC;
                    local11[v732 + lane] = v736;
                    const i64 v741 = v619 + ((v617 + 6) * 16);
                    SYNC;
                    const f32 v742 = local11[v741 + lane];
                    const f32 v743 = v742 * v620;
                    const f32 v744 = r628;
                    const f32 v745 = v743 + v744;
                    SYNC;
                    local11[v741 + lane] = v745;
                    const i64 v749 = v619 + ((v617 + 7) * 16);
                    SYNC;
                    const f32 v750 = local11[v749 + lane];
                    const f32 v751 = v750 * v620;
                    const f32 v752 = r629;
                    const f32 v753 = v751 + v752;
                    SYNC;
                    local11[v749 + lane] = v753;
                }
            }
        }
        for (i64 j759 = 0; j759 < 1; j759++) { // 16 rows
            for (i64 j761 = 0; j761 < 1; j761++) { // 16 columns
                const i64 v764 = (j761 * 16) + (j759 * 256);
                SYNC;
                const f32 v765 = local11[v764 + lane];
                const f32 v767 = local11[(v764 + 16) + lane];
                const f32 v770 = local11[(v764 + 32) + lane];
                const f32 v773 = local11[(v764 + 48) + lane];
                const f32 v775 = local11[(v764 + 64) + lane];
                const f32 v778 = local11[(v764 + 80) + lane];
                const f32 v781 = local11[(v764 + 96) + lane];
                const f32 v784 = local11[(v764 + 112) + lane];
                const f32 v787 = local11[(v764 + 128) + lane];
                const f32 v790 = local11[(v764 + 144) + lane];
                const f32 v793 = local11[(v764 + 160) + lane];
                const f32 v796 = local11[(v764 + 176) + lane];
                const f32 v799 = local11[(v764 + 192) + lane];
                const f32 v802 = local11[(v764 + 208) + lane];
                const f32 v805 = local11[(v764 + 224) + lane];
                const f32 v808 = local11[(v764 + 240) + lane];
                const f32 v809 = zip_f32(SELF, v765, v787, 0);
                const f32 v810 = zip_f32(SELF, v765, v787, 8);
                const f32 v811 = zip_f32(SELF, v767, v790, 0);
                const f32 v812 = zip_f32(SELF, v767, v790, 8);
                const f32 v813 = zip_f32(SELF, v770, v793, 0);
                const f32 v814 = zip_f32(SELF, v770, v793, 8);
                const f32 v815 = zip_f32(SELF, v773, v796, 0);
                const f32 v816 = zip_f32(SELF, v773, v796, 8);
                const f32 v817 = zip_f32(SELF, v775, v799, 0);
                const f32 v818 = zip_f32(SELF, v775, v799, 8);
                const f32 v819 = zip_f32(SELF, v778, v802, 0);
                const f32 v820 = zip_f32(SELF, v778, v802, 8);
                const f32 v821 = zip_f32(SELF, v781, v805, 0);
                const f32 v822 = zip_f32(SELF, v781, v805, 8);
                const f32 v823 = zip_f32(SELF, v784, v808, 0);
                const f32 v824 = zip_f32(SELF, v784, v808, 8);
                const f32 v825 = zip_f32(SELF, v809, v817, 0);
                const f32 v826 = zip_f32(SELF, v809, v817, 8);
                const f32 v827 = zip_f32(SELF, v810, v818, 0);
                const f32 v828 = zip_f32(SELF, v810, v818, 8);
                const f32 v829 = zip_f32(SELF, v811, v819, 0);
                const f32 v830 = zip_f32(SELF, v811, v819, 8);
                const f32 v831 = zip_f32(SELF, v812, v820, 0);
                const f32 v832 = zip_f32(SELF, v812, v820, 8);
                const f32 v833 = zip_f32(SELF, v813, v821, 0);
                const f32 v834 = zip_f32(SELF, v813, v821, 8);
                const f32 v835 = zip_f32(SELF, v814, v822, 0);
                const f32 v836 = zip_f32(SELF, v814, v822, 8);
                const f32 v837 = zip_f32(SELF, v815, v823, 0);
                const f32 v838 = zip_f32(SELF, v815, v823, 8);
                const f32 v839 = zip_f32(SELF, v816, v824, 0);
                const f32 v840 = zip_f32(SELF, v816, v824, 8);
                const f32 v841 = zip_f32(SELF, v825, v833, 0);
                const f32 v842 = zip_f32(SELF, v825, v833, 8);
                const f32 v843 = zip_f32(SELF, v826, v834, 0);
                const f32 v844 = zip_f32(SELF, v826, v834, 8);
                const f32 v845 = zip_f32(SELF, v827, v835, 0);
                const f32 v846 = zip_f32(SELF, v827, v835, 8);
                const f32 v847 = zip_f32(SELF, v828, v836, 0);
                const f32 v848 = zip_f32(SELF, v828, v836, 8);
                const f32 v849 = zip_f32(SELF, v829, v837, 0);
                const f32 v850 = zip_f32(SELF, v829, v837, 8);
                const f32 v851 = zip_f32(SELF, v830, v838, 0);
                const f32 v852 = zip_f32(SELF, v830, v838, 8);
                const f32 v853 = zip_f32(SELF, v831, v839, 0);
                const f32 v854 = zip_f32(SELF, v831, v839, 8);
                const f32 v855 = zip_f32(SELF, v832, v840, 0);
                const f32 v856 = zip_f32(SELF, v832, v840, 8);
                const f32 v857 = zip_f32(SELF, v841, v849, 0);
                const f32 v858 = zip_f32(SELF, v841, v849, 8);
                const f32 v859 = zip_f32(SELF, v842, v850, 0);
                const f32 v860 = zip_f32(SELF, v842, v850, 8);
                const f32 v861 = zip_f32(SELF, v843, v851, 0);
                const f32 v862 = zip_f32(SELF, v843, v851, 8);
                const f32 v863 = zip_f32(SELF, v844, v852, 0);
                const f32 v864 = zip_f32(SELF, v844, v852, 8);
                const f32 v865 = zip_f32(SELF, v845, v853, 0);
                const f32 v866 = zip_f32(SELF, v845, v853, 8);
                const f32 v867 = zip_f32(SELF, v846, v854, 0);
                const f32 v868 = zip_f32(SELF, v846, v854, 8);
                const f32 v869 = zip_f32(SELF, v847, v855, 0);
                const f32 v870 = zip_f32(SELF, v847, v855, 8);
                const f32 v871 = zip_f32(SELF, v848, v856, 0);
                const f32 v872 = zip_f32(SELF, v848, v856, 8);
                const i64 v883 = (j759 * 16) + (j761 * 256);
                local12[v883 + lane] = v857;
                local12[(v883 + 16) + lane] = v858;
                local12[(v883 + 32) + lane] = v859;
                local12[(v883 + 48) + lane] = v860;
                local12[(v883 + 64) + lane] = v861;
                local12[(v883 + 80) + lane] = v862;
                local12[(v883 + 96) + lane] = v863;
                local12[(v883 + 112) + lane] = v864;
                local12[(v883 + 128) + lane] = v865;
                local12[(v883 + 144) + lane] = v866;
                local12[(v883 + 160) + lane] = v867;
                local12[(v883 + 176) + lane] = v868;
                local12[(v883 + 192) + lane] = v869;
                local12[(v883 + 208) + lane] = v870;
                local12[(v883 + 224) + lane] = v871;
                local12[(v883 + 240) + lane] = v872;
            }
        }
        for (i64 j917 = 0; j917 < 9; j917++) { // row of the result
            const i64 v918 = j917 / 9;
            const i64 v919 = j917 % 9;
            SYNC;
            const f32 v920 = local8[j917];
            const f32 v921 = local6[j917];
            const bool v922 = v920 == 0.0f;
            const bool v924 = v921 == -__builtin_inff();
            const f32 v925 = v924 ? 0.0f : v921;
            const f32 v926 = s_log_f32(v920);
            const f32 v927 = v925 + v926;
            if (lane == 0) out16[(v919 + ((j7 * 9) + (v918 * 9)))] = v927;
            for (i64 j933 = lane; j933 < 8; j933 += 16) { // number of a value
                const f32 v935 = local12[((j917 * 16) + j933)];
                const f32 v936 = v935 + 0.0f;
                const f32 v937 = v936 / v920;
                const f32 v938 = v922 ? 0.0f : v937;
                out17[(j933 + (((j7 * 72) + (v918 * 72)) + (v919 * 8)))] = v938;
            }
        }
    }
}

