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

// kernel 1, launched 1 times, first for sum
// CUDA: 128 threads a block, which runs 8 rows; bytes of a block: 0 of shared memory, 0 of scratch
KERNEL(128) k_acce25f7b494e439e6314a59f66d64f0(GLOBAL u8 *b0, GLOBAL u8 *b1, i64 o0, i64 o1, i64 begin, i64 end) {
    const i64 lane = THREAD & 15, group = THREAD >> 4;
    const i64 row = begin + BLOCK * 8 + group;
    GLOBAL const f32 *restrict in0 = (GLOBAL const f32 *)(b0 + o0); // f32
    GLOBAL f32 *restrict out1 = (GLOBAL f32 *)(b1 + o1); // f32
    if (row < end) {
        for (i64 j1 = lane; j1 < 18; j1 += 16) {
            const i64 v3 = j1 * 8;
            const f32 v4 = in0[v3];
            const f32 v7 = in0[(v3 + 1)];
            const f32 v10 = in0[(v3 + 2)];
            const f32 v13 = in0[(v3 + 3)];
            const f32 v16 = in0[(v3 + 4)];
            const f32 v19 = in0[(v3 + 5)];
            const f32 v22 = in0[(v3 + 6)];
            const f32 v25 = in0[(v3 + 7)];
            const f32 v27 = v4 + v16;
            const f32 v28 = v7 + v19;
            const f32 v29 = v10 + v22;
            const f32 v30 = v13 + v25;
            const f32 v31 = v27 + v29;
            const f32 v32 = v28 + v30;
            const f32 v33 = v31 + v32;
            const f32 v34 = 0.0f + v33;
            out1[j1] = v34;
        }
    }
}

// kernel 2, launched 1 times, first for attention_backward
// CUDA: 16 threads a block, which runs 1 rows; bytes of a block: 45824 of shared memory, 24576 of scratch
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
KERNEL(16) k_b4571ff81e950ce4f8d99cc7cf11819b(GLOBAL u8 *b0, GLOBAL u8 *b1, GLOBAL u8 *b2, GLOBAL u8 *b3, GLOBAL u8 *b4, GLOBAL u8 *b5, GLOBAL u8 *b6, GLOBAL u8 *b7, i64 o0, i64 o1, i64 o2, i64 o3, i64 o4, i64 o5, i64 o6, i64 o7, i64 begin, i64 end, GLOBAL u8 *scratch) {
    const i64 lane = THREAD & 15, group = THREAD >> 4;
    const i64 row = begin + BLOCK * 1 + group;
    const u32 mask = 0xffffu << (THREAD & 16);
    GLOBAL f32 *restrict io0 = (GLOBAL f32 *)(b0 + o0); // f32
    SHARED f32 s1[1024]; LOCAL f32 *local1 = s1 + group * 1024;
    SHARED f32 s2[1024]; LOCAL f32 *local2 = s2 + group * 1024;
    SHARED f32 s3[1024]; LOCAL f32 *local3 = s3 + group * 1024;
    SHARED f32 s4[1024]; LOCAL f32 *local4 = s4 + group * 1024;
    SHARED f32 s5[4096]; LOCAL f32 *local5 = s5 + group * 4096;
    SHARED i32 s6[64]; LOCAL i32 *local6 = s6 + group * 64;
    SHARED f32 s7[1024]; LOCAL f32 *local7 = s7 + group * 1024;
    SHARED f32 s8[1024]; LOCAL f32 *local8 = s8 + group * 1024;
    GLOBAL f32 *local9 = (GLOBAL f32 *)(scratch + (BLOCK * 1 + group) * 24576 + 0); // [4096]
    SHARED f32 s10[64]; LOCAL f32 *local10 = s10 + group * 64;
    SHARED f32 s11[64]; LOCAL f32 *local11 = s11 + group * 64;
    SHARED f32 s12[1024]; LOCAL f32 *local12 = s12 + group * 1024;
    GLOBAL f32 *local13 = (GLOBAL f32 *)(scratch + (BLOCK * 1 + group) * 24576 + 16384); // [1024]
    GLOBAL f32 *local14 = (GLOBAL f32 *)(scratch + (BLOCK * 1 + group) * 24576 + 20480); // [1024]
    GLOBAL const f32 *restrict in15 = (GLOBAL const f32 *)(b1 + o1); // f32
    GLOBAL const f32 *restrict in16 = (GLOBAL const f32 *)(b2 + o2); // f32
    GLOBAL const f32 *restrict in17 = (GLOBAL const f32 *)(b3 + o3); // f32
    GLOBAL const f32 *restrict in18 = (GLOBAL const f32 *)(b4 + o4); // f32
    GLOBAL const f32 *restrict in19 = (GLOBAL const f32 *)(b5 + o5); // f32
    GLOBAL f32 *restrict out20 = (GLOBAL f32 *)(b6 + o6); // f32
    GLOBAL f32 *restrict out21 = (GLOBAL f32 *)(b7 + o7); // f32
    const i64 j7 = row; // block
    {
        for (i64 j9 = lane; j9 < 1024; j9 += 16) { // fill
            local7[j9] = 0.0f;
        }
        for (i64 j15 = lane; j15 < 1024; j15 += 16) { // fill
            local1[j15] = 0.0f;
        }
        for (i64 j19 = lane; j19 < 1024; j19 += 16) { // fill
            local3[j19] = 0.0f;
        }
        for (i64 j23 = lane; j23 < 1024; j23 += 16) { // fill
            local4[j23] = 0.0f;
        }
        for (i64 j29 = lane; j29 < 72; j29 += 16) { // number of a query
            io0[(j29 + (j7 * 72))] = 0.0f;
        }
        for (i64 j35 = 0; j35 < 2; j35++) { // block of keys
            const i64 v36 = j35 * 64;
            const i64 v38 = s_min_i64((70 - v36), 64);
            for (i64 j39 = 0; j39 < v38; j39++) { // key
                SYNC;
                for (i64 j42 = lane; j42 < 8; j42 += 16) { // number of a key
                    const f32 v49 = in15[(j42 + ((j7 * 560) + ((v36 + j39) * 8)))];
                    local3[((j39 * 16) + j42)] = v49;
                }
            }
            const i64 v54 = 64 - v38;
            for (i64 j55 = 0; j55 < v54; j55++) { // row beyond the last
                SYNC;
                for (i64 j59 = lane; j59 < 16; j59 += 16) { // number of a row
                    local3[(((v38 + j55) * 16) + j59)] = 0.0f;
                }
            }
            for (i64 j65 = 0; j65 < v38; j65++) { // key
                SYNC;
                for (i64 j68 = lane; j68 < 8; j68 += 16) { // number of a key
                    const f32 v75 = in16[(j68 + ((j7 * 560) + ((v36 + j65) * 8)))];
                    local4[((j65 * 16) + j68)] = v75;
                }
            }
            for (i64 j80 = 0; j80 < v54; j80++) { // row beyond the last
                SYNC;
                for (i64 j84 = lane; j84 < 16; j84 += 16) { // number of a row
                    local4[(((v38 + j80) * 16) + j84)] = 0.0f;
                }
            }
            SYNC;
            for (i64 j90 = lane; j90 < 1024; j90 += 16) { // fill
                local13[j90] = 0.0f;
            }
            for (i64 j94 = lane; j94 < 1024; j94 += 16) { // fill
                local14[j94] = 0.0f;
            }
            for (i64 j98 = 0; j98 < 1; j98++) { // block of rows
                const i64 v99 = j98 * 64;
                const i64 v101 = s_min_i64((9 - v99), 64);
                const i64 v104 = (v99 + v101) + -1;
                const bool v107 = (v104 / 9) == (v99 / 9);
                const i64 v109 = v107 ? (v99 % 9) : 0;
                const i64 v111 = v107 ? (v104 % 9) : 8;
                const bool v117 = 0 <= j35;
                const bool v118 = j35 < (s_add_i64(s_max_i64(s_min_i64(s_add_i64(v111, 1), 70), 0), 63) / 64);
                const bool v119 = v117 & v118;
                const i64 v120 = v119 ? 1 : 0;
                for (i64 j121 = 0; j121 < v120; j121++) {
                    for (i64 j122 = 0; j122 < 64; j122++) { // row
                        const i64 v124 = s_min_i64((v99 + j122), 8);
                        const i64 v125 = v124 / 9;
                        const i32 v131 = (i32)(s_min_i64(s_max_i64((v124 % 9), -1073741824), 1073741824));
                        SYNC;
                        if (lane == 0) local6[j122] = v131;
                    }
                    for (i64 j134 = 0; j134 < v101; j134++) { // row
                        const i64 v135 = v99 + j134;
                        SYNC;
                        for (i64 j140 = lane; j140 < 8; j140 += 16) { // number of a row
                            const f32 v147 = in17[(j140 + (((j7 * 72) + ((v135 / 9) * 72)) + ((v135 % 9) * 8)))];
                            local1[((j134 * 16) + j140)] = v147;
                        }
                    }
                    const i64 v152 = 64 - v101;
                    for (i64 j153 = 0; j153 < v152; j153++) { // row beyond the last
                        SYNC;
                        for (i64 j157 = lane; j157 < 16; j157 += 16) { // number of a row
                            local1[(((v101 + j153) * 16) + j157)] = 0.0f;
                        }
                    }
                    for (i64 j164 = 0; j164 < 4; j164++) { // 16 rows
                        for (i64 j167 = 0; j167 < 1; j167++) { // 16 columns
                            const i64 v171 = (j167 * 16) + (j164 * 256);
                            SYNC;
                            const f32 v172 = local1[v171 + lane];
                            const f32 v174 = local1[(v171 + 16) + lane];
                            const f32 v177 = local1[(v171 + 32) + lane];
                            const f32 v180 = local1[(v171 + 48) + lane];
                            const f32 v182 = local1[(v171 + 64) + lane];
                            const f32 v185 = local1[(v171 + 80) + lane];
                            const f32 v188 = local1[(v171 + 96) + lane];
                            const f32 v191 = local1[(v171 + 112) + lane];
                            const f32 v194 = local1[(v171 + 128) + lane];
                            const f32 v197 = local1[(v171 + 144) + lane];
                            const f32 v200 = local1[(v171 + 160) + lane];
                            const f32 v203 = local1[(v171 + 176) + lane];
                            const f32 v206 = local1[(v171 + 192) + lane];
                            const f32 v209 = local1[(v171 + 208) + lane];
                            const f32 v212 = local1[(v171 + 224) + lane];
                            const f32 v215 = local1[(v171 + 240) + lane];
                            const f32 v216 = zip_f32(SELF, v172, v194, 0);
                            const f32 v217 = zip_f32(SELF, v172, v194, 8);
                            const f32 v218 = zip_f32(SELF, v174, v197, 0);
                            const f32 v219 = zip_f32(SELF, v174, v197, 8);
                            const f32 v220 = zip_f32(SELF, v177, v200, 0);
                            const f32 v221 = zip_f32(SELF, v177, v200, 8);
                            const f32 v222 = zip_f32(SELF, v180, v203, 0);
                            const f32 v223 = zip_f32(SELF, v180, v203, 8);
                            const f32 v224 = zip_f32(SELF, v182, v206, 0);
                            const f32 v225 = zip_f32(SELF, v182, v206, 8);
                            const f32 v226 = zip_f32(SELF, v185, v209, 0);
                            const f32 v227 = zip_f32(SELF, v185, v209, 8);
                            const f32 v228 = zip_f32(SELF, v188, v212, 0);
                            const f32 v229 = zip_f32(SELF, v188, v212, 8);
                            const f32 v230 = zip_f32(SELF, v191, v215, 0);
                            const f32 v231 = zip_f32(SELF, v191, v215, 8);
                            const f32 v232 = zip_f32(SELF, v216, v224, 0);
                            const f32 v233 = zip_f32(SELF, v216, v224, 8);
                            const f32 v234 = zip_f32(SELF, v217, v225, 0);
                            const f32 v235 = zip_f32(SELF, v217, v225, 8);
                            const f32 v236 = zip_f32(SELF, v218, v226, 0);
                            const f32 v237 = zip_f32(SELF, v218, v226, 8);
                            const f32 v238 = zip_f32(SELF, v219, v227, 0);
                            const f32 v239 = zip_f32(SELF, v219, v227, 8);
                            const f32 v240 = zip_f32(SELF, v220, v228, 0);
                            const f32 v241 = zip_f32(SELF, v220, v228, 8);
                            const f32 v242 = zip_f32(SELF, v221, v229, 0);
                            const f32 v243 = zip_f32(SELF, v221, v229, 8);
                            const f32 v244 = zip_f32(SELF, v222, v230, 0);
                            const f32 v245 = zip_f32(SELF, v222, v230, 8);
                            const f32 v246 = zip_f32(SELF, v223, v231, 0);
                            const f32 v247 = zip_f32(SELF, v223, v231, 8);
                            const f32 v248 = zip_f32(SELF, v232, v240, 0);
                            const f32 v249 = zip_f32(SELF, v232, v240, 8);
                            const f32 v250 = zip_f32(SELF, v233, v241, 0);
                            const f32 v251 = zip_f32(SELF, v233, v241, 8);
                            const f32 v252 = zip_f32(SELF, v234, v242, 0);
                            const f32 v253 = zip_f32(SELF, v234, v242, 8);
                            const f32 v254 = zip_f32(SELF, v235, v243, 0);
                            const f32 v255 = zip_f32(SELF, v235, v243, 8);
                            const f32 v256 = zip_f32(SELF, v236, v244, 0);
                            const f32 v257 = zip_f32(SELF, v236, v244, 8);
                            const f32 v258 = zip_f32(SELF, v237, v245, 0);
                            const f32 v259 = zip_f32(SELF, v237, v245, 8);
                            const f32 v260 = zip_f32(SELF, v238, v246, 0);
                            const f32 v261 = zip_f32(SELF, v238, v246, 8);
                            const f32 v262 = zip_f32(SELF, v239, v247, 0);
                            const f32 v263 = zip_f32(SELF, v239, v247, 8);
                            const f32 v264 = zip_f32(SELF, v248, v256, 0);
                            const f32 v265 = zip_f32(SELF, v248, v256, 8);
                            const f32 v266 = zip_f32(SELF, v249, v257, 0);
                            const f32 v267 = zip_f32(SELF, v249, v257, 8);
                            const f32 v268 = zip_f32(SELF, v250, v258, 0);
                            const f32 v269 = zip_f32(SELF, v250, v258, 8);
                            const f32 v270 = zip_f32(SELF, v251, v259, 0);
                            const f32 v271 = zip_f32(SELF, v251, v259, 8);
                            const f32 v272 = zip_f32(SELF, v252, v260, 0);
                            const f32 v273 = zip_f32(SELF, v252, v260, 8);
                            const f32 v274 = zip_f32(SELF, v253, v261, 0);
                            const f32 v275 = zip_f32(SELF, v253, v261, 8);
                            const f32 v276 = zip_f32(SELF, v254, v262, 0);
                            const f32 v277 = zip_f32(SELF, v254, v262, 8);
                            const f32 v278 = zip_f32(SELF, v255, v263, 0);
                            const f32 v279 = zip_f32(SELF, v255, v263, 8);
                            const i64 v291 = (j164 * 16) + (j167 * 1024);
                            local2[v291 + lane] = v264;
                            local2[(v291 + 64) + lane] = v265;
                            local2[(v291 + 128) + lane] = v266;
                            local2[(v291 + 192) + lane] = v267;
                            local2[(v291 + 256) + lane] = v268;
                            local2[(v291 + 320) + lane] = v269;
                            local2[(v291 + 384) + lane] = v270;
                            local2[(v291 + 448) + lane] = v271;
                            local2[(v291 + 512) + lane] = v272;
                            local2[(v291 + 576) + lane] = v273;
                            local2[(v291 + 640) + lane] = v274;
                            local2[(v291 + 704) + lane] = v275;
                            local2[(v291 + 768) + lane] = v276;
                            local2[(v291 + 832) + lane] = v277;
                            local2[(v291 + 896) + lane] = v278;
                            local2[(v291 + 960) + lane] = v279;
                        }
                    }
                    for (i64 j336 = 0; j336 < v101; j336++) { // row
                        const i64 v337 = v99 + j336;
                        const i64 v338 = v337 / 9;
                        const i64 v339 = v337 % 9;
                        SYNC;
                        for (i64 j342 = lane; j342 < 8; j342 += 16) { // number of a row
                            local7[((j336 * 16) + j342)] = 1.0f;
                        }
                    }
                    for (i64 j348 = 0; j348 < v152; j348++) { // row beyond the last
                        SYNC;
                        for (i64 j352 = lane; j352 < 16; j352 += 16) { // number of a row
                            local7[(((v101 + j348) * 16) + j352)] = 0.0f;
                        }
                    }
                    for (i64 j358 = 0; j358 < 4; j358++) { // 16 rows
                        for (i64 j361 = 0; j361 < 1; j361++) { // 16 columns
                            const i64 v365 = (j361 * 16) + (j358 * 256);
                            SYNC;
                            const f32 v366 = local7[v365 + lane];
                            const f32 v368 = local7[(v365 + 16) + lane];
                            const f32 v371 = local7[(v365 + 32) + lane];
                            const f32 v374 = local7[(v365 + 48) + lane];
                            const f32 v376 = local7[(v365 + 64) + lane];
                            const f32 v379 = local7[(v365 + 80) + lane];
                            const f32 v382 = local7[(v365 + 96) + lane];
                            const f32 v385 = local7[(v365 + 112) + lane];
                            const f32 v388 = local7[(v365 + 128) + lane];
                            const f32 v391 = local7[(v365 + 144) + lane];
                            const f32 v394 = local7[(v365 + 160) + lane];
                            const f32 v397 = local7[(v365 + 176) + lane];
                            const f32 v400 = local7[(v365 + 192) + lane];
                            const f32 v403 = local7[(v365 + 208) + lane];
                            const f32 v406 = local7[(v365 + 224) + lane];
                            const f32 v409 = local7[(v365 + 240) + lane];
                            const f32 v410 = zip_f32(SELF, v366, v388, 0);
                            const f32 v411 = zip_f32(SELF, v366, v388, 8);
                            const f32 v412 = zip_f32(SELF, v368, v391, 0);
                            const f32 v413 = zip_f32(SELF, v368, v391, 8);
                            const f32 v414 = zip_f32(SELF, v371, v394, 0);
                            const f32 v415 = zip_f32(SELF, v371, v394, 8);
                            const f32 v416 = zip_f32(SELF, v374, v397, 0);
                            const f32 v417 = zip_f32(SELF, v374, v397, 8);
                            const f32 v418 = zip_f32(SELF, v376, v400, 0);
                            const f32 v419 = zip_f32(SELF, v376, v400, 8);
                            const f32 v420 = zip_f32(SELF, v379, v403, 0);
                            const f32 v421 = zip_f32(SELF, v379, v403, 8);
                            const f32 v422 = zip_f32(SELF, v382, v406, 0);
                            const f32 v423 = zip_f32(SELF, v382, v406, 8);
                            const f32 v424 = zip_f32(SELF, v385, v409, 0);
                            const f32 v425 = zip_f32(SELF, v385, v409, 8);
                            const f32 v426 = zip_f32(SELF, v410, v418, 0);
                            const f32 v427 = zip_f32(SELF, v410, v418, 8);
                            const f32 v428 = zip_f32(SELF, v411, v419, 0);
                            const f32 v429 = zip_f32(SELF, v411, v419, 8);
                            const f32 v430 = zip_f32(SELF, v412, v420, 0);
                            const f32 v431 = zip_f32(SELF, v412, v420, 8);
                            const f32 v432 = zip_f32(SELF, v413, v421, 0);
                            const f32 v433 = zip_f32(SELF, v413, v421, 8);
                            const f32 v434 = zip_f32(SELF, v414, v422, 0);
                            const f32 v435 = zip_f32(SELF, v414, v422, 8);
                            const f32 v436 = zip_f32(SELF, v415, v423, 0);
                            const f32 v437 = zip_f32(SELF, v415, v423, 8);
                            const f32 v438 = zip_f32(SELF, v416, v424, 0);
                            const f32 v439 = zip_f32(SELF, v416, v424, 8);
                            const f32 v440 = zip_f32(SELF, v417, v425, 0);
                            const f32 v441 = zip_f32(SELF, v417, v425, 8);
                            const f32 v442 = zip_f32(SELF, v426, v434, 0);
                            const f32 v443 = zip_f32(SELF, v426, v434, 8);
                            const f32 v444 = zip_f32(SELF, v427, v435, 0);
                            const f32 v445 = zip_f32(SELF, v427, v435, 8);
                            const f32 v446 = zip_f32(SELF, v428, v436, 0);
                            const f32 v447 = zip_f32(SELF, v428, v436, 8);
                            const f32 v448 = zip_f32(SELF, v429, v437, 0);
                            const f32 v449 = zip_f32(SELF, v429, v437, 8);
                            const f32 v450 = zip_f32(SELF, v430, v438, 0);
                            const f32 v451 = zip_f32(SELF, v430, v438, 8);
                            const f32 v452 = zip_f32(SELF, v431, v439, 0);
                            const f32 v453 = zip_f32(SELF, v431, v439, 8);
                            const f32 v454 = zip_f32(SELF, v432, v440, 0);
                            const f32 v455 = zip_f32(SELF, v432, v440, 8);
                            const f32 v456 = zip_f32(SELF, v433, v441, 0);
                            const f32 v457 = zip_f32(SELF, v433, v441, 8);
                            const f32 v458 = zip_f32(SELF, v442, v450, 0);
                            const f32 v459 = zip_f32(SELF, v442, v450, 8);
                            const f32 v460 = zip_f32(SELF, v443, v451, 0);
                            const f32 v461 = zip_f32(SELF, v443, v451, 8);
                            const f32 v462 = zip_f32(SELF, v444, v452, 0);
                            const f32 v463 = zip_f32(SELF, v444, v452, 8);
                            const f32 v464 = zip_f32(SELF, v445, v453, 0);
                            const f32 v465 = zip_f32(SELF, v445, v453, 8);
                            const f32 v466 = zip_f32(SELF, v446, v454, 0);
                            const f32 v467 = zip_f32(SELF, v446, v454, 8);
                            const f32 v468 = zip_f32(SELF, v447, v455, 0);
                            const f32 v469 = zip_f32(SELF, v447, v455, 8);
                            const f32 v470 = zip_f32(SELF, v448, v456, 0);
                            const f32 v471 = zip_f32(SELF, v448, v456, 8);
                            const f32 v472 = zip_f32(SELF, v449, v457, 0);
                            const f32 v473 = zip_f32(SELF, v449, v457, 8);
                            const i64 v485 = (j358 * 16) + (j361 * 1024);
                            local8[v485 + lane] = v458;
                            local8[(v485 + 64) + lane] = v459;
                            local8[(v485 + 128) + lane] = v460;
                            local8[(v485 + 192) + lane] = v461;
                            local8[(v485 + 256) + lane] = v462;
                            local8[(v485 + 320) + lane] = v463;
                            local8[(v485 + 384) + lane] = v464;
                            local8[(v485 + 448) + lane] = v465;
                            local8[(v485 + 512) + lane] = v466;
                            local8[(v485 + 576) + lane] = v467;
                            local8[(v485 + 640) + lane] = v468;
                            local8[(v485 + 704) + lane] = v469;
                            local8[(v485 + 768) + lane] = v470;
                            local8[(v485 + 832) + lane] = v471;
                            local8[(v485 + 896) + lane] = v472;
                            local8[(v485 + 960) + lane] = v473;
                        }
                    }
                    SYNC;
                    for (i64 j531 = lane; j531 < 64; j531 += 16) { // fill
                        local10[j531] = __builtin_inff();
                    }
                    for (i64 j535 = lane; j535 < 64; j535 += 16) { // fill
                        local11[j535] = 0.0f;
                    }
                    for (i64 j538 = 0; j538 < v101; j538++) { // row
                        const i64 v539 = v99 + j538;
                        const i64 v545 = (v539 % 9) + ((j7 * 9) + ((v539 / 9) * 9));
                        const f32 v546 = in18[v545];
                        const bool v547 = v546 == -__builtin_inff();
                        const f32 v548 = v547 ? 0.0f : v546;
                        SYNC;
                        if (lane == 0) local10[j538] = v548;
                        const f32 v550 = in19[v545];
                        if (lane == 0) local11[j538] = v550;
                    }
                    for (i64 j553 = 0; j553 < 8; j553++) { // keys
                        const i64 v554 = j553 * 8;
                        for (i64 j555 = 0; j555 < 2; j555++) { // lanes
                            const i64 v557 = j555 * 32;
                            SYNC;
                            const f32 v558 = local10[v557 + lane];
                            const i64 v560 = v557 + 16;
                            const f32 v561 = local10[v560 + lane];
                            const i64 v563 = j553 * 128;
                            f32 r565 = 0.0f;
                            f32 r566 = 0.0f;
                            f32 r567 = 0.0f;
                            f32 r568 = 0.0f;
                            f32 r569 = 0.0f;
                            f32 r570 = 0.0f;
                            f32 r571 = 0.0f;
                            f32 r572 = 0.0f;
                            f32 r573 = 0.0f;
                            f32 r574 = 0.0f;
                            f32 r575 = 0.0f;
                            f32 r576 = 0.0f;
                            f32 r577 = 0.0f;
                            f32 r578 = 0.0f;
                            f32 r579 = 0.0f;
                            f32 r580 = 0.0f;
                            for (i64 j581 = 0; j581 < 8; j581++) { // step
                                const i64 v583 = v557 + (j581 * 64);
                                const f32 v584 = local2[v583 + lane];
                                const f32 v586 = local2[(v583 + 16) + lane];
                                const i64 v587 = v563 + j581;
                                const f32 v588 = local3[v587];
                                const f32 v590 = r565;
                                const f32 v591 = s_fma_f32(v588, v584, v590);
                                r565 = v591;
                                const f32 v593 = r566;
                                const f32 v594 = s_fma_f32(v588, v586, v593);
                                r566 = v594;
                                const f32 v597 = local3[(v587 + 16)];
                                const f32 v599 = r567;
                                const f32 v600 = s_fma_f32(v597, v584, v599);
                                r567 = v600;
                                const f32 v602 = r568;
                                const f32 v603 = s_fma_f32(v597, v586, v602);
                                r568 = v603;
                                const f32 v606 = local3[(v587 + 32)];
                                const f32 v608 = r569;
                                const f32 v609 = s_fma_f32(v606, v584, v608);
                                r569 = v609;
                                const f32 v611 = r570;
                                const f32 v612 = s_fma_f32(v606, v586, v611);
                                r570 = v612;
                                const f32 v616 = local3[(v587 + 48)];
                                const f32 v618 = r571;
                                const f32 v619 = s_fma_f32(v616, v584, v618);
                                r571 = v619;
                                const f32 v621 = r572;
                                const f32 v622 = s_fma_f32(v616, v586, v621);
                                r572 = v622;
                                const f32 v625 = local3[(v587 + 64)];
                                const f32 v627 = r573;
                                const f32 v628 = s_fma_f32(v625, v584, v627);
                                r573 = v628;
                                const f32 v630 = r574;
                                const f32 v631 = s_fma_f32(v625, v586, v630);
                                r574 = v631;
                                const f32 v635 = local3[(v587 + 80)];
                                const f32 v637 = r575;
                                const f32 v638 = s_fma_f32(v635, v584, v637);
                                r575 = v638;
                                const f32 v640 = r576;
                                const f32 v641 = s_fma_f32(v635, v586, v640);
                                r576 = v641;
                                const f32 v645 = local3[(v587 + 96)];
                                const f32 v647 = r577;
                                const f32 v648 = s_fma_f32(v645, v584, v647);
                                r577 = v648;
                                const f32 v650 = r578;
                                const f32 v651 = s_fma_f32(v645, v586, v650);
                                r578 = v651;
                                const f32 v655 = local3[(v587 + 112)];
                                const f32 v657 = r579;
                                const f32 v658 = s_fma_f32(v655, v584, v657);
                                r579 = v658;
                                const f32 v660 = r580;
                                const f32 v661 = s_fma_f32(v655, v586, v660);
                                r580 = v661;
                            }
                            const i32 v664 = local6[v557 + lane];
                            const i32 v665 = local6[v560 + lane];
                            const i32 v668 = (i32)((v36 + v554));
                            const bool v669 = v554 < v38;
                            const i64 v670 = v554 + 1;
                            const i32 v671 = local6[v557 + lane];
                            const i32 v672 = local6[v560 + lane];
                            const i32 v674 = (i32)((v36 + v670));
                            const bool v675 = v670 < v38;
                            const i64 v676 = v554 + 2;
                            const i32 v677 = local6[v557 + lane];
                            const i32 v678 = local6[v560 + lane];
                            const i32 v680 = (i32)((v36 + v676));
                            const bool v681 = v676 < v38;
                            const i64 v683 = v554 + 3;
                            const i32 v684 = local6[v557 + lane];
                            const i32 v685 = local6[v560 + lane];
                            const i32 v687 = (i32)((v36 + v683));
                            const bool v688 = v683 < v38;
                            const i64 v689 = v554 + 4;
                            const i32 v690 = local6[v557 + lane];
                            const i32 v691 = local6[v560 + lane];
                            const i32 v693 = (i32)((v36 + v689));
                            const bool v694 = v689 < v38;
                            const i64 v696 = v554 + 5;
                            const i32 v697 = local6[v557 + lane];
                            const i32 v698 = local6[v560 + lane];
                            const i32 v700 = (i32)((v36 + v696));
                            const bool v701 = v696 < v38;
                            const i64 v703 = v554 + 6;
                            const i32 v704 = local6[v557 + lane];
                            const i32 v705 = local6[v560 + lane];
                            const i32 v707 = (i32)((v36 + v703));
                            const bool v708 = v703 < v38;
                            const i64 v710 = v554 + 7;
                            const i32 v711 = local6[v557 + lane];
                            const i32 v712 = local6[v560 + lane];
                            const i32 v714 = (i32)((v36 + v710));
                            const bool v715 = v710 < v38;
                            const bool v720 = v668 <= v664;
                            const f32 v721 = r565;
                            const f32 v723 = v721 * 0.353553385f;
                            const f32 v725 = v720 ? v723 : -__builtin_inff();
                            const f32 v726 = v669 ? v725 : -__builtin_inff();
                            const f32 v727 = v726 - v558;
                            const f32 v728 = s_exp_f32(v727);
                            const i64 v729 = v557 + (j553 * 512);
                            local5[v729 + lane] = v728;
                            const bool v731 = v668 <= v665;
                            const f32 v732 = r566;
                            const f32 v733 = v732 * 0.353553385f;
                            const f32 v734 = v731 ? v733 : -__builtin_inff();
                            const f32 v735 = v669 ? v734 : -__builtin_inff();
                            const f32 v736 = v735 - v561;
                            const f32 v737 = s_exp_f32(v736);
                            const i64 v738 = v729 + 16;
                            local5[v738 + lane] = v737;
                            const bool v743 = v674 <= v671;
                            const f32 v744 = r567;
                            const f32 v745 = v744 * 0.353553385f;
                            const f32 v746 = v743 ? v745 : -__builtin_inff();
                            const f32 v747 = v675 ? v746 : -__builtin_inff();
                            const f32 v748 = v747 - v558;
                            const f32 v749 = s_exp_f32(v748);
                            const i64 v750 = v557 + (v670 * 64);
                            local5[v750 + lane] = v749;
                            const bool v752 = v674 <= v672;
                            const f32 v753 = r568;
                            const f32 v754 = v753 * 0.353553385f;
                            const f32 v755 = v752 ? v754 : -__builtin_inff();
                            const f32 v756 = v675 ? v755 : -__builtin_inff();
                            const f32 v757 = v756 - v561;
                            const f32 v758 = s_exp_f32(v757);
                            const i64 v759 = v750 + 16;
                            local5[v759 + lane] = v758;
                            const bool v764 = v680 <= v677;
                            const f32 v765 = r569;
                            const f32 v766 = v765 * 0.353553385f;
                            const f32 v767 = v764 ? v766 : -__builtin_inff();
                            const f32 v768 = v681 ? v767 : -__builtin_inff();
                            const f32 v769 = v768 - v558;
                            const f32 v770 = s_exp_f32(v769);
                            const i64 v771 = v557 + (v676 * 64);
                            local5[v771 + lane] = v770;
                            const bool v773 = v680 <= v678;
                            const f32 v774 = r570;
                            const f32 v775 = v774 * 0.353553385f;
                            const f32 v776 = v773 ? v775 : -__builtin_inff();
                            const f32 v777 = v681 ? v776 : -__builtin_inff();
                            const f32 v778 = v777 - v561;
                            const f32 v779 = s_exp_f32(v778);
                            const i64 v780 = v771 + 16;
                            local5[v780 + lane] = v779;
                            const bool v785 = v687 <= v684;
                            const f32 v786 = r571;
                            const f32 v787 = v786 * 0.353553385f;
                            const f32 v788 = v785 ? v787 : -__builtin_inff();
                            const f32 v789 = v688 ? v788 : -__builtin_inff();
                            const f32 v790 = v789 - v558;
                            const f32 v791 = s_exp_f32(v790);
                            const i64 v792 = v557 + (v683 * 64);
                            local5[v792 + lane] = v791;
                            const bool v794 = v687 <= v685;
                            const f32 v795 = r572;
                            const f32 v796 = v795 * 0.353553385f;
                            const f32 v797 = v794 ? v796 : -__builtin_inff();
                            const f32 v798 = v688 ? v797 : -__builtin_inff();
                            const f32 v799 = v798 - v561;
                            const f32 v800 = s_exp_f32(v799);
                            const i64 v801 = v792 + 16;
                            local5[v801 + lane] = v800;
                            const bool v806 = v693 <= v690;
                            const f32 v807 = r573;
                            const f32 v808 = v807 * 0.353553385f;
                            const f32 v809 = v806 ? v808 : -__builtin_inff();
                            const f32 v810 = v694 ? v809 : -__builtin_inff();
                            const f32 v811 = v810 - v558;
                            const f32 v812 = s_exp_f32(v811);
                            const i64 v813 = v557 + (v689 * 64);
                            local5[v813 + lane] = v812;
                            const bool v815 = v693 <= v691;
                            const f32 v816 = r574;
                            const f32 v817 = v816 * 0.353553385f;
                            const f32 v818 = v815 ? v817 : -__builtin_inff();
                            const f32 v819 = v694 ? v818 : -__builtin_inff();
                            const f32 v820 = v819 - v561;
                            const f32 v821 = s_exp_f32(v820);
                            const i64 v822 = v813 + 16;
                            local5[v822 + lane] = v821;
                            const bool v827 = v700 <= v697;
                            const f32 v828 = r575;
                            const f32 v829 = v828 * 0.353553385f;
                            const f32 v830 = v827 ? v829 : -__builtin_inff();
                            const f32 v831 = v701 ? v830 : -__builtin_inff();
                            const f32 v832 = v831 - v558;
                            const f32 v833 = s_exp_f32(v832);
                            const i64 v834 = v557 + (v696 * 64);
                            local5[v834 + lane] = v833;
                            const bool v836 = v700 <= v698;
                            const f32 v837 = r576;
                            const f32 v838 = v837 * 0.353553385f;
                            const f32 v839 = v836 ? v838 : -__builtin_inff();
                            const f32 v840 = v701 ? v839 : -__builtin_inff();
                            const f32 v841 = v840 - v561;
                            const f32 v842 = s_exp_f32(v841);
                            const i64 v843 = v834 + 16;
                            local5[v843 + lane] = v842;
                            const bool v848 = v707 <= v704;
                            const f32 v849 = r577;
                            const f32 v850 = v849 * 0.353553385f;
                            const f32 v851 = v848 ? v850 : -__builtin_inff();
                            const f32 v852 = v708 ? v851 : -__builtin_inff();
                            const f32 v853 = v852 - v558;
                            const f32 v854 = s_exp_f32(v853);
                            const i64 v855 = v557 + (v703 * 64);
                            local5[v855 + lane] = v854;
                            const bool v857 = v707 <= v705;
                            const f32 v858 = r578;
                            const f32 v859 = v858 * 0.353553385f;
                            const f32 v860 = v857 ? v859 : -__builtin_inff();
                            const f32 v861 = v708 ? v860 : -__builtin_inff();
                            const f32 v862 = v861 - v561;
                            const f32 v863 = s_exp_f32(v862);
                            const i64 v864 = v855 + 16;
                            local5[v864 + lane] = v863;
                            const bool v869 = v714 <= v711;
                            const f32 v870 = r579;
                            const f32 v871 = v870 * 0.353553385f;
                            const f32 v872 = v869 ? v871 : -__builtin_inff();
                            const f32 v873 = v715 ? v872 : -__builtin_inff();
                            const f32 v874 = v873 - v558;
                            const f32 v875 = s_exp_f32(v874);
                            const i64 v876 = v557 + (v710 * 64);
                            local5[v876 + lane] = v875;
                            const bool v878 = v714 <= v712;
                            const f32 v879 = r580;
                            const f32 v880 = v879 * 0.353553385f;
                            const f32 v881 = v878 ? v880 : -__builtin_inff();
                            const f32 v882 = v715 ? v881 : -__builtin_inff();
                            const f32 v883 = v882 - v561;
                            const f32 v884 = s_exp_f32(v883);
                            const i64 v885 = v876 + 16;
                            local5[v885 + lane] = v884;
                            f32 r887 = 0.0f;
                            f32 r888 = 0.0f;
                            f32 r889 = 0.0f;
                            f32 r890 = 0.0f;
                            f32 r891 = 0.0f;
                            f32 r892 = 0.0f;
                            f32 r893 = 0.0f;
                            f32 r894 = 0.0f;
                            f32 r895 = 0.0f;
                            f32 r896 = 0.0f;
                            f32 r897 = 0.0f;
                            f32 r898 = 0.0f;
                            f32 r899 = 0.0f;
                            f32 r900 = 0.0f;
                            f32 r901 = 0.0f;
                            f32 r902 = 0.0f;
                            for (i64 j903 = 0; j903 < 8; j903++) { // step
                                const i64 v905 = v557 + (j903 * 64);
                                const f32 v906 = local8[v905 + lane];
                                const f32 v908 = local8[(v905 + 16) + lane];
                                const i64 v909 = v563 + j903;
                                const f32 v910 = local4[v909];
                                const f32 v912 = r887;
                                const f32 v913 = s_fma_f32(v910, v906, v912);
                                r887 = v913;
                                const f32 v915 = r888;
                                const f32 v916 = s_fma_f32(v910, v908, v915);
                                r888 = v916;
                                const f32 v919 = local4[(v909 + 16)];
                                const f32 v921 = r889;
                                const f32 v922 = s_fma_f32(v919, v906, v921);
                                r889 = v922;
                                const f32 v924 = r890;
                                const f32 v925 = s_fma_f32(v919, v908, v924);
                                r890 = v925;
                                const f32 v928 = local4[(v909 + 32)];
                                const f32 v930 = r891;
                                const f32 v931 = s_fma_f32(v928, v906, v930);
                                r891 = v931;
                                const f32 v933 = r892;
                                const f32 v934 = s_fma_f32(v928, v908, v933);
                                r892 = v934;
                                const f32 v938 = local4[(v909 + 48)];
                                const f32 v940 = r893;
                                const f32 v941 = s_fma_f32(v938, v906, v940);
                                r893 = v941;
                                const f32 v943 = r894;
                                const f32 v944 = s_fma_f32(v938, v908, v943);
                                r894 = v944;
                                const f32 v947 = local4[(v909 + 64)];
                                const f32 v949 = r895;
                                const f32 v950 = s_fma_f32(v947, v906, v949);
                                r895 = v950;
                                const f32 v952 = r896;
                                const f32 v953 = s_fma_f32(v947, v908, v952);
                                r896 = v953;
                                const f32 v957 = local4[(v909 + 80)];
                                const f32 v959 = r897;
                                const f32 v960 = s_fma_f32(v957, v906, v959);
                                r897 = v960;
                                const f32 v962 = r898;
                                const f32 v963 = s_fma_f32(v957, v908, v962);
                                r898 = v963;
                                const f32 v967 = local4[(v909 + 96)];
                                const f32 v969 = r899;
                                const f32 v970 = s_fma_f32(v967, v906, v969);
                                r899 = v970;
                                const f32 v972 = r900;
                                const f32 v973 = s_fma_f32(v967, v908, v972);
                                r900 = v973;
                                const f32 v977 = local4[(v909 + 112)];
                                const f32 v979 = r901;
                                const f32 v980 = s_fma_f32(v977, v906, v979);
                                r901 = v980;
                                const f32 v982 = r902;
                                const f32 v983 = s_fma_f32(v977, v908, v982);
                                r902 = v983;
                            }
                            const f32 v986 = local11[v557 + lane];
                            const f32 v987 = local11[v560 + lane];
                            const f32 v989 = r887;
                            const f32 v990 = v989 - v986;
                            const f32 v991 = v728 * v990;
                            const f32 v992 = v991 * 0.353553385f;
                            local9[v729 + lane] = v992;
                            const f32 v994 = r888;
                            const f32 v995 = v994 - v987;
                            const f32 v996 = v737 * v995;
                            const f32 v997 = v996 * 0.353553385f;
                            local9[v738 + lane] = v997;
                            const f32 v999 = r889;
                            const f32 v1000 = v999 - v986;
                            const f32 v1001 = v749 * v1000;
                            const f32 v1002 = v1001 * 0.353553385f;
                            local9[v750 + lane] = v1002;
                            const f32 v1004 = r890;
                            const f32 v1005 = v1004 - v987;
                            const f32 v1006 = v758 * v1005;
                            const f32 v1007 = v1006 * 0.353553385f;
                            local9[v759 + lane] = v1007;
                            const f32 v1009 = r891;
                            const f32 v1010 = v1009 - v986;
                            const f32 v1011 = v770 * v1010;
                            const f32 v1012 = v1011 * 0.353553385f;
                            local9[v771 + lane] = v1012;
                            const f32 v1014 = r892;
                            const f32 v1015 = v1014 - v987;
                            const f32 v1016 = v779 * v1015;
                            const f32 v1017 = v1016 * 0.353553385f;
                            local9[v780 + lane] = v1017;
                            const f32 v1019 = r893;
                            const f32 v1020 = v1019 - v986;
                            const f32 v1021 = v791 * v1020;
                            const f32 v1022 = v1021 * 0.353553385f;
                            local9[v792 + lane] = v1022;
                            const f32 v1024 = r894;
                            const f32 v1025 = v1024 - v987;
                            const f32 v1026 = v800 * v1025;
                            const f32 v1027 = v1026 * 0.353553385f;
                            local9[v801 + lane] = v1027;
                            const f32 v1029 = r895;
                            const f32 v1030 = v1029 - v986;
                            const f32 v1031 = v812 * v1030;
                            const f32 v1032 = v1031 * 0.353553385f;
                            local9[v813 + lane] = v1032;
                            const f32 v1034 = r896;
                            const f32 v1035 = v1034 - v987;
                            const f32 v1036 = v821 * v1035;
                            const f32 v1037 = v1036 * 0.353553385f;
                            local9[v822 + lane] = v1037;
                            const f32 v1039 = r897;
                            const f32 v1040 = v1039 - v986;
                            const f32 v1041 = v833 * v1040;
                            const f32 v1042 = v1041 * 0.353553385f;
                            local9[v834 + lane] = v1042;
                            const f32 v1044 = r898;
                            const f32 v1045 = v1044 - v987;
                            const f32 v1046 = v842 * v1045;
                            const f32 v1047 = v1046 * 0.353553385f;
                            local9[v843 + lane] = v1047;
                            const f32 v1049 = r899;
                            const f32 v1050 = v1049 - v986;
                            const f32 v1051 = v854 * v1050;
                            const f32 v1052 = v1051 * 0.353553385f;
                            local9[v855 + lane] = v1052;
                            const f32 v1054 = r900;
                            const f32 v1055 = v1054 - v987;
                            const f32 v1056 = v863 * v1055;
                            const f32 v1057 = v1056 * 0.353553385f;
                            local9[v864 + lane] = v1057;
                            const f32 v1059 = r901;
                            const f32 v1060 = v1059 - v986;
                            const f32 v1061 = v875 * v1060;
                            const f32 v1062 = v1061 * 0.353553385f;
                            local9[v876 + lane] = v1062;
                            const f32 v1064 = r902;
                            const f32 v1065 = v1064 - v987;
                            const f32 v1066 = v884 * v1065;
                            const f32 v1067 = v1066 * 0.353553385f;
                            local9[v885 + lane] = v1067;
                        }
                    }
                    for (i64 j1071 = 0; j1071 < 8; j1071++) { // rows
                        const i64 v1072 = j1071 * 8;
                        f32 r1077 = 0.0f;
                        f32 r1078 = 0.0f;
                        f32 r1079 = 0.0f;
                        f32 r1080 = 0.0f;
                        f32 r1081 = 0.0f;
                        f32 r1082 = 0.0f;
                        f32 r1083 = 0.0f;
                        f32 r1084 = 0.0f;
                        for (i64 j1085 = 0; j1085 < 64; j1085++) { // step
                            SYNC;
                            const f32 v1087 = local7[(j1085 * 16) + lane];
                            const i64 v1088 = (j1071 * 512) + j1085;
                            const f32 v1089 = local5[v1088];
                            const f32 v1091 = r1077;
                            const f32 v1092 = s_fma_f32(v1089, v1087, v1091);
                            r1077 = v1092;
                            const f32 v1095 = local5[(v1088 + 64)];
                            const f32 v1097 = r1078;
                            const f32 v1098 = s_fma_f32(v1095, v1087, v1097);
                            r1078 = v1098;
                            const f32 v1102 = local5[(v1088 + 128)];
                            const f32 v1104 = r1079;
                            const f32 v1105 = s_fma_f32(v1102, v1087, v1104);
                            r1079 = v1105;
                            const f32 v1109 = local5[(v1088 + 192)];
                            const f32 v1111 = r1080;
                            const f32 v1112 = s_fma_f32(v1109, v1087, v1111);
                            r1080 = v1112;
                            const f32 v1116 = local5[(v1088 + 256)];
                            const f32 v1118 = r1081;
                            const f32 v1119 = s_fma_f32(v1116, v1087, v1118);
                            r1081 = v1119;
                            const f32 v1123 = local5[(v1088 + 320)];
                            const f32 v1125 = r1082;
                            const f32 v1126 = s_fma_f32(v1123, v1087, v1125);
                            r1082 = v1126;
                            const f32 v1130 = local5[(v1088 + 384)];
                            const f32 v1132 = r1083;
                            const f32 v1133 = s_fma_f32(v1130, v1087, v1132);
                            r1083 = v1133;
                            const f32 v1137 = local5[(v1088 + 448)];
                            const f32 v1139 = r1084;
                            const f32 v1140 = s_fma_f32(v1137, v1087, v1139);
                            r1084 = v1140;
                        }
                        const i64 v1144 = j1071 * 128;
                        SYNC;
                        const f32 v1145 = local14[v1144 + lane];
                        const f32 v1146 = r1077;
                        const f32 v1147 = v1145 + v1146;
                        SYNC;
                        local14[v1144 + lane] = v1147;
                        const i64 v1150 = (v1072 + 1) * 16;
                        SYNC;
                        const f32 v1151 = local14[v1150 + lane];
                        const f32 v1152 = r1078;
                        const f32 v1153 = v1151 + v1152;
                        SYNC;
                        local14[v1150 + lane] = v1153;
                        const i64 v1156 = (v1072 + 2) * 16;
                        SYNC;
                        const f32 v1157 = local14[v1156 + lane];
                        const f32 v1158 = r1079;
                        const f32 v1159 = v1157 + v1158;
                        SYNC;
                        local14[v1156 + lane] = v1159;
                        const i64 v1163 = (v1072 + 3) * 16;
                        SYNC;
                        const f32 v1164 = local14[v1163 + lane];
                        const f32 v1165 = r1080;
                        const f32 v1166 = v1164 + v1165;
                        SYNC;
                        local14[v1163 + lane] = v1166;
                        const i64 v1169 = (v1072 + 4) * 16;
                        SYNC;
                        const f32 v1170 = local14[v1169 + lane];
                        const f32 v1171 = r1081;
                        const f32 v1172 = v1170 + v1171;
                        SYNC;
                        local14[v1169 + lane] = v1172;
                        const i64 v1176 = (v1072 + 5) * 16;
                        SYNC;
                        const f32 v1177 = local14[v1176 + lane];
                        const f32 v1178 = r1082;
                        const f32 v1179 = v1177 + v1178;
                        SYNC;
                        local14[v1176 + lane] = v1179;
                        const i64 v1183 = (v1072 + 6) * 16;
                        SYNC;
                        const f32 v1184 = local14[v1183 + lane];
                        const f32 v1185 = r1083;
                        const f32 v1186 = v1184 + v1185;
                        SYNC;
                        local14[v1183 + lane] = v1186;
                        const i64 v1190 = (v1072 + 7) * 16;
                        SYNC;
                        const f32 v1191 = local14[v1190 + lane];
                        const f32 v1192 = r1084;
                        const f32 v1193 = v1191 + v1192;
                        SYNC;
                        local14[v1190 + lane] = v1193;
                    }
                    for (i64 j1196 = 0; j1196 < 8; j1196++) { // rows
                        const i64 v1197 = j1196 * 8;
                        f32 r1202 = 0.0f;
                        f32 r1203 = 0.0f;
                        f32 r1204 = 0.0f;
                        f32 r1205 = 0.0f;
                        f32 r1206 = 0.0f;
                        f32 r1207 = 0.0f;
                        f32 r1208 = 0.0f;
                        f32 r1209 = 0.0f;
                        for (i64 j1210 = 0; j1210 < 64; j1210++) { // step
                            SYNC;
                            const f32 v1212 = local1[(j1210 * 16) + lane];
                            const i64 v1213 = (j1196 * 512) + j1210;
                            const f32 v1214 = local9[v1213];
                            const f32 v1216 = r1202;
                            const f32 v1217 = s_fma_f32(v1214, v1212, v1216);
                            r1202 = v1217;
                            const f32 v1220 = local9[(v1213 + 64)];
                            const f32 v1222 = r1203;
                            const f32 v1223 = s_fma_f32(v1220, v1212, v1222);
                            r1203 = v1223;
                            const f32 v1227 = local9[(v1213 + 128)];
                            const f32 v1229 = r1204;
                            const f32 v1230 = s_fma_f32(v1227, v1212, v1229);
                            r1204 = v1230;
                            const f32 v1234 = local9[(v1213 + 192)];
                            const f32 v1236 = r1205;
                            const f32 v1237 = s_fma_f32(v1234, v1212, v1236);
                            r1205 = v1237;
                            const f32 v1241 = local9[(v1213 + 256)];
                            const f32 v1243 = r1206;
                            const f32 v1244 = s_fma_f32(v1241, v1212, v1243);
                            r1206 = v1244;
                            const f32 v1248 = local9[(v1213 + 320)];
                            const f32 v1250 = r1207;
                            const f32 v1251 = s_fma_f32(v1248, v1212, v1250);
                            r1207 = v1251;
                            const f32 v1255 = local9[(v1213 + 384)];
                            const f32 v1257 = r1208;
                            const f32 v1258 = s_fma_f32(v1255, v1212, v1257);
                            r1208 = v1258;
                            const f32 v1262 = local9[(v1213 + 448)];
                            const f32 v1264 = r1209;
                            const f32 v1265 = s_fma_f32(v1262, v1212, v1264);
                            r1209 = v1265;
                        }
                        const i64 v1269 = j1196 * 128;
                        SYNC;
                        const f32 v1270 = local13[v1269 + lane];
                        const f32 v1271 = r1202;
                        const f32 v1272 = v1270 + v1271;
                        SYNC;
                        local13[v1269 + lane] = v1272;
                        const i64 v1275 = (v1197 + 1) * 16;
                        SYNC;
                        const f32 v1276 = local13[v1275 + lane];
                        const f32 v1277 = r1203;
                        const f32 v1278 = v1276 + v1277;
                        SYNC;
                        local13[v1275 + lane] = v1278;
                        const i64 v1281 = (v1197 + 2) * 16;
                        SYNC;
                        const f32 v1282 = local13[v1281 + lane];
                        const f32 v1283 = r1204;
                        const f32 v1284 = v1282 + v1283;
                        SYNC;
                        local13[v1281 + lane] = v1284;
                        const i64 v1288 = (v1197 + 3) * 16;
                        SYNC;
                        const f32 v1289 = local13[v1288 + lane];
                        const f32 v1290 = r1205;
                        const f32 v1291 = v1289 + v1290;
                        SYNC;
                        local13[v1288 + lane] = v1291;
                        const i64 v1294 = (v1197 + 4) * 16;
                        SYNC;
                        const f32 v1295 = local13[v1294 + lane];
                        const f32 v1296 = r1206;
                        const f32 v1297 = v1295 + v1296;
                        SYNC;
                        local13[v1294 + lane] = v1297;
                        const i64 v1301 = (v1197 + 5) * 16;
                        SYNC;
                        const f32 v1302 = local13[v1301 + lane];
                        const f32 v1303 = r1207;
                        const f32 v1304 = v1302 + v1303;
                        SYNC;
                        local13[v1301 + lane] = v1304;
                        const i64 v1308 = (v1197 + 6) * 16;
                        SYNC;
                        const f32 v1309 = local13[v1308 + lane];
                        const f32 v1310 = r1208;
                        const f32 v1311 = v1309 + v1310;
                        SYNC;
                        local13[v1308 + lane] = v1311;
                        const i64 v1315 = (v1197 + 7) * 16;
                        SYNC;
                        const f32 v1316 = local13[v1315 + lane];
                        const f32 v1317 = r1209;
                        const f32 v1318 = v1316 + v1317;
                        SYNC;
                        local13[v1315 + lane] = v1318;
                    }
                    for (i64 j1321 = lane; j1321 < 1024; j1321 += 16) { // fill
                        local12[j1321] = 0.0f;
                    }
                    for (i64 j1324 = 0; j1324 < 8; j1324++) { // rows
                        const i64 v1325 = j1324 * 8;
                        f32 r1328 = 0.0f;
                        f32 r1329 = 0.0f;
                        f32 r1330 = 0.0f;
                        f32 r1331 = 0.0f;
                        f32 r1332 = 0.0f;
                        f32 r1333 = 0.0f;
                        f32 r1334 = 0.0f;
                        f32 r1335 = 0.0f;
                        for (i64 j1336 = 0; j1336 < 64; j1336++) { // step
                            SYNC;
                            const f32 v1338 = local3[(j1336 * 16) + lane];
                            const i64 v1340 = v1325 + (j1336 * 64);
                            const f32 v1341 = local9[v1340];
                            const f32 v1343 = r1328;
                            const f32 v1344 = s_fma_f32(v1341, v1338, v1343);
                            r1328 = v1344;
                            const f32 v1347 = local9[(v1340 + 1)];
                            const f32 v1349 = r1329;
                            const f32 v1350 = s_fma_f32(v1347, v1338, v1349);
                            r1329 = v1350;
                            const f32 v1353 = local9[(v1340 + 2)];
                            const f32 v1355 = r1330;
                            const f32 v1356 = s_fma_f32(v1353, v1338, v1355);
                            r1330 = v1356;
                            const f32 v1360 = local9[(v1340 + 3)];
                            const f32 v1362 = r1331;
                            const f32 v1363 = s_fma_f32(v1360, v1338, v1362);
                            r1331 = v1363;
                            const f32 v1366 = local9[(v1340 + 4)];
                            const f32 v1368 = r1332;
                            const f32 v1369 = s_fma_f32(v1366, v1338, v1368);
                            r1332 = v1369;
                            const f32 v1373 = local9[(v1340 + 5)];
                            const f32 v1375 = r1333;
                            const f32 v1376 = s_fma_f32(v1373, v1338, v1375);
                            r1333 = v1376;
                            const f32 v1380 = local9[(v1340 + 6)];
                            const f32 v1382 = r1334;
                            const f32 v1383 = s_fma_f32(v1380, v1338, v1382);
                            r1334 = v1383;
                            const f32 v1387 = local9[(v1340 + 7)];
                            const f32 v1389 = r1335;
                            const f32 v1390 = s_fma_f32(v1387, v1338, v1389);
                            r1335 = v1390;
                        }
                        const i64 v1394 = j1324 * 128;
                        SYNC;
                        const f32 v1395 = local12[v1394 + lane];
                        const f32 v1396 = r1328;
                        const f32 v1397 = v1395 + v1396;
                        SYNC;
                        local12[v1394 + lane] = v1397;
                        const i64 v1400 = (v1325 + 1) * 16;
                        SYNC;
                        const f32 v1401 = local12[v1400 + lane];
                        const f32 v1402 = r1329;
                        const f32 v1403 = v1401 + v1402;
                        SYNC;
                        local12[v1400 + lane] = v1403;
                        const i64 v1406 = (v1325 + 2) * 16;
                        SYNC;
                        const f32 v1407 = local12[v1406 + lane];
                        const f32 v1408 = r1330;
                        const f32 v1409 = v1407 + v1408;
                        SYNC;
                        local12[v1406 + lane] = v1409;
                        const i64 v1413 = (v1325 + 3) * 16;
                        SYNC;
                        const f32 v1414 = local12[v1413 + lane];
                        const f32 v1415 = r1331;
                        const f32 v1416 = v1414 + v1415;
                        SYNC;
                        local12[v1413 + lane] = v1416;
                        const i64 v1419 = (v1325 + 4) * 16;
                        SYNC;
                        const f32 v1420 = local12[v1419 + lane];
                        const f32 v1421 = r1332;
                        const f32 v1422 = v1420 + v1421;
                        SYNC;
                        local12[v1419 + lane] = v1422;
                        const i64 v1426 = (v1325 + 5) * 16;
                        SYNC;
                        const f32 v1427 = local12[v1426 + lane];
                        const f32 v1428 = r1333;
                        const f32 v1429 = v1427 + v1428;
                        SYNC;
                        local12[v1426 + lane] = v1429;
                        const i64 v1433 = (v1325 + 6) * 16;
                        SYNC;
                        const f32 v1434 = local12[v1433 + lane];
                        const f32 v1435 = r1334;
                        const f32 v1436 = v1434 + v1435;
                        SYNC;
                        local12[v1433 + lane] = v1436;
                        const i64 v1440 = (v1325 + 7) * 16;
                        SYNC;
                        const f32 v1441 = local12[v1440 + lane];
                        const f32 v1442 = r1335;
                        const f32 v1443 = v1441 + v1442;
                        SYNC;
                        local12[v1440 + lane] = v1443;
                    }
                    for (i64 j1446 = 0; j1446 < v101; j1446++) { // row of what queries get
                        SYNC;
                        for (i64 j1451 = lane; j1451 < 8; j1451 += 16) { // number of a query
                            const f32 v1455 = local12[(j1451 + (j1446 * 16))];
                            const i64 v1456 = (((v99 + j1446) + (j7 * 9)) * 8) + j1451;
                            const f32 v1457 = io0[v1456];
                            const f32 v1458 = v1457 + v1455;
                            io0[v1456] = v1458;
                        }
                    }
                }
            }
            for (i64 j1464 = 0; j1464 < v38; j1464++) { // key
                SYNC;
                for (i64 j1467 = lane; j1467 < 8; j1467 += 16) { // number of a key
                    const f32 v1470 = local13[((j1464 * 16) + j1467)];
                    out20[(j1467 + ((j7 * 560) + ((v36 + j1464) * 8)))] = v1470;
                }
            }
            for (i64 j1479 = 0; j1479 < v38; j1479++) { // key
                SYNC;
                for (i64 j1482 = lane; j1482 < 8; j1482 += 16) { // number of a key
                    const f32 v1485 = local14[((j1479 * 16) + j1482)];
                    out21[(j1482 + ((j7 * 560) + ((v36 + j1479) * 8)))] = v1485;
                }
            }
        }
    }
}

