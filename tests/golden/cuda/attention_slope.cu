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
KERNEL(16) k_b1854d76aeffc2fb41bbb3e19c1889d5(GLOBAL u8 *b0, GLOBAL u8 *b1, GLOBAL u8 *b2, GLOBAL u8 *b3, GLOBAL u8 *b4, GLOBAL u8 *b5, GLOBAL u8 *b6, GLOBAL u8 *b7, i64 o0, i64 o1, i64 o2, i64 o3, i64 o4, i64 o5, i64 o6, i64 o7, i64 begin, i64 end, GLOBAL u8 *scratch) {
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
                    for (i64 j163 = 0; j163 < v101; j163++) { // row
                        const i64 v164 = v99 + j163;
                        const i64 v165 = v164 / 9;
                        const i64 v166 = v164 % 9;
                        SYNC;
                        for (i64 j169 = lane; j169 < 8; j169 += 16) { // number of a row
                            local7[((j163 * 16) + j169)] = 1.0f;
                        }
                    }
                    for (i64 j175 = 0; j175 < v152; j175++) { // row beyond the last
                        SYNC;
                        for (i64 j179 = lane; j179 < 16; j179 += 16) { // number of a row
                            local7[(((v101 + j175) * 16) + j179)] = 0.0f;
                        }
                    }
                    SYNC;
                    for (i64 j186 = lane; j186 < 64; j186 += 16) { // fill
                        local10[j186] = __builtin_inff();
                    }
                    for (i64 j190 = lane; j190 < 64; j190 += 16) { // fill
                        local11[j190] = 0.0f;
                    }
                    for (i64 j193 = 0; j193 < v101; j193++) { // row
                        const i64 v194 = v99 + j193;
                        const i64 v200 = (v194 % 9) + ((j7 * 9) + ((v194 / 9) * 9));
                        const f32 v201 = in18[v200];
                        const f32 v202 = in19[v200];
                        const bool v203 = v201 == -__builtin_inff();
                        const f32 v204 = v203 ? 0.0f : v201;
                        const f32 v205 = v203 ? 0.0f : v202;
                        const i64 v206 = v203 ? 1 : 0;
                        for (i64 j207 = 0; j207 < v206; j207++) {
                            SYNC;
                            for (i64 j209 = lane; j209 < 16; j209 += 16) { // number of a row that sees nothing
                                local1[(j209 + (j193 * 16))] = 0.0f;
                            }
                            for (i64 j214 = lane; j214 < 16; j214 += 16) { // number of a row that sees nothing
                                local7[(j214 + (j193 * 16))] = 0.0f;
                            }
                        }
                        SYNC;
                        if (lane == 0) local10[j193] = v204;
                        if (lane == 0) local11[j193] = v205;
                    }
                    for (i64 j224 = 0; j224 < 4; j224++) { // 16 rows
                        for (i64 j227 = 0; j227 < 1; j227++) { // 16 columns
                            const i64 v231 = (j227 * 16) + (j224 * 256);
                            SYNC;
                            const f32 v232 = local1[v231 + lane];
                            const f32 v234 = local1[(v231 + 16) + lane];
                            const f32 v237 = local1[(v231 + 32) + lane];
                            const f32 v240 = local1[(v231 + 48) + lane];
                            const f32 v242 = local1[(v231 + 64) + lane];
                            const f32 v245 = local1[(v231 + 80) + lane];
                            const f32 v248 = local1[(v231 + 96) + lane];
                            const f32 v251 = local1[(v231 + 112) + lane];
                            const f32 v254 = local1[(v231 + 128) + lane];
                            const f32 v257 = local1[(v231 + 144) + lane];
                            const f32 v260 = local1[(v231 + 160) + lane];
                            const f32 v263 = local1[(v231 + 176) + lane];
                            const f32 v266 = local1[(v231 + 192) + lane];
                            const f32 v269 = local1[(v231 + 208) + lane];
                            const f32 v272 = local1[(v231 + 224) + lane];
                            const f32 v275 = local1[(v231 + 240) + lane];
                            const f32 v276 = zip_f32(SELF, v232, v254, 0);
                            const f32 v277 = zip_f32(SELF, v232, v254, 8);
                            const f32 v278 = zip_f32(SELF, v234, v257, 0);
                            const f32 v279 = zip_f32(SELF, v234, v257, 8);
                            const f32 v280 = zip_f32(SELF, v237, v260, 0);
                            const f32 v281 = zip_f32(SELF, v237, v260, 8);
                            const f32 v282 = zip_f32(SELF, v240, v263, 0);
                            const f32 v283 = zip_f32(SELF, v240, v263, 8);
                            const f32 v284 = zip_f32(SELF, v242, v266, 0);
                            const f32 v285 = zip_f32(SELF, v242, v266, 8);
                            const f32 v286 = zip_f32(SELF, v245, v269, 0);
                            const f32 v287 = zip_f32(SELF, v245, v269, 8);
                            const f32 v288 = zip_f32(SELF, v248, v272, 0);
                            const f32 v289 = zip_f32(SELF, v248, v272, 8);
                            const f32 v290 = zip_f32(SELF, v251, v275, 0);
                            const f32 v291 = zip_f32(SELF, v251, v275, 8);
                            const f32 v292 = zip_f32(SELF, v276, v284, 0);
                            const f32 v293 = zip_f32(SELF, v276, v284, 8);
                            const f32 v294 = zip_f32(SELF, v277, v285, 0);
                            const f32 v295 = zip_f32(SELF, v277, v285, 8);
                            const f32 v296 = zip_f32(SELF, v278, v286, 0);
                            const f32 v297 = zip_f32(SELF, v278, v286, 8);
                            const f32 v298 = zip_f32(SELF, v279, v287, 0);
                            const f32 v299 = zip_f32(SELF, v279, v287, 8);
                            const f32 v300 = zip_f32(SELF, v280, v288, 0);
                            const f32 v301 = zip_f32(SELF, v280, v288, 8);
                            const f32 v302 = zip_f32(SELF, v281, v289, 0);
                            const f32 v303 = zip_f32(SELF, v281, v289, 8);
                            const f32 v304 = zip_f32(SELF, v282, v290, 0);
                            const f32 v305 = zip_f32(SELF, v282, v290, 8);
                            const f32 v306 = zip_f32(SELF, v283, v291, 0);
                            const f32 v307 = zip_f32(SELF, v283, v291, 8);
                            const f32 v308 = zip_f32(SELF, v292, v300, 0);
                            const f32 v309 = zip_f32(SELF, v292, v300, 8);
                            const f32 v310 = zip_f32(SELF, v293, v301, 0);
                            const f32 v311 = zip_f32(SELF, v293, v301, 8);
                            const f32 v312 = zip_f32(SELF, v294, v302, 0);
                            const f32 v313 = zip_f32(SELF, v294, v302, 8);
                            const f32 v314 = zip_f32(SELF, v295, v303, 0);
                            const f32 v315 = zip_f32(SELF, v295, v303, 8);
                            const f32 v316 = zip_f32(SELF, v296, v304, 0);
                            const f32 v317 = zip_f32(SELF, v296, v304, 8);
                            const f32 v318 = zip_f32(SELF, v297, v305, 0);
                            const f32 v319 = zip_f32(SELF, v297, v305, 8);
                            const f32 v320 = zip_f32(SELF, v298, v306, 0);
                            const f32 v321 = zip_f32(SELF, v298, v306, 8);
                            const f32 v322 = zip_f32(SELF, v299, v307, 0);
                            const f32 v323 = zip_f32(SELF, v299, v307, 8);
                            const f32 v324 = zip_f32(SELF, v308, v316, 0);
                            const f32 v325 = zip_f32(SELF, v308, v316, 8);
                            const f32 v326 = zip_f32(SELF, v309, v317, 0);
                            const f32 v327 = zip_f32(SELF, v309, v317, 8);
                            const f32 v328 = zip_f32(SELF, v310, v318, 0);
                            const f32 v329 = zip_f32(SELF, v310, v318, 8);
                            const f32 v330 = zip_f32(SELF, v311, v319, 0);
                            const f32 v331 = zip_f32(SELF, v311, v319, 8);
                            const f32 v332 = zip_f32(SELF, v312, v320, 0);
                            const f32 v333 = zip_f32(SELF, v312, v320, 8);
                            const f32 v334 = zip_f32(SELF, v313, v321, 0);
                            const f32 v335 = zip_f32(SELF, v313, v321, 8);
                            const f32 v336 = zip_f32(SELF, v314, v322, 0);
                            const f32 v337 = zip_f32(SELF, v314, v322, 8);
                            const f32 v338 = zip_f32(SELF, v315, v323, 0);
                            const f32 v339 = zip_f32(SELF, v315, v323, 8);
                            const i64 v351 = (j224 * 16) + (j227 * 1024);
                            local2[v351 + lane] = v324;
                            local2[(v351 + 64) + lane] = v325;
                            local2[(v351 + 128) + lane] = v326;
                            local2[(v351 + 192) + lane] = v327;
                            local2[(v351 + 256) + lane] = v328;
                            local2[(v351 + 320) + lane] = v329;
                            local2[(v351 + 384) + lane] = v330;
                            local2[(v351 + 448) + lane] = v331;
                            local2[(v351 + 512) + lane] = v332;
                            local2[(v351 + 576) + lane] = v333;
                            local2[(v351 + 640) + lane] = v334;
                            local2[(v351 + 704) + lane] = v335;
                            local2[(v351 + 768) + lane] = v336;
                            local2[(v351 + 832) + lane] = v337;
                            local2[(v351 + 896) + lane] = v338;
                            local2[(v351 + 960) + lane] = v339;
                        }
                    }
                    for (i64 j396 = 0; j396 < 4; j396++) { // 16 rows
                        for (i64 j399 = 0; j399 < 1; j399++) { // 16 columns
                            const i64 v403 = (j399 * 16) + (j396 * 256);
                            SYNC;
                            const f32 v404 = local7[v403 + lane];
                            const f32 v406 = local7[(v403 + 16) + lane];
                            const f32 v409 = local7[(v403 + 32) + lane];
                            const f32 v412 = local7[(v403 + 48) + lane];
                            const f32 v414 = local7[(v403 + 64) + lane];
                            const f32 v417 = local7[(v403 + 80) + lane];
                            const f32 v420 = local7[(v403 + 96) + lane];
                            const f32 v423 = local7[(v403 + 112) + lane];
                            const f32 v426 = local7[(v403 + 128) + lane];
                            const f32 v429 = local7[(v403 + 144) + lane];
                            const f32 v432 = local7[(v403 + 160) + lane];
                            const f32 v435 = local7[(v403 + 176) + lane];
                            const f32 v438 = local7[(v403 + 192) + lane];
                            const f32 v441 = local7[(v403 + 208) + lane];
                            const f32 v444 = local7[(v403 + 224) + lane];
                            const f32 v447 = local7[(v403 + 240) + lane];
                            const f32 v448 = zip_f32(SELF, v404, v426, 0);
                            const f32 v449 = zip_f32(SELF, v404, v426, 8);
                            const f32 v450 = zip_f32(SELF, v406, v429, 0);
                            const f32 v451 = zip_f32(SELF, v406, v429, 8);
                            const f32 v452 = zip_f32(SELF, v409, v432, 0);
                            const f32 v453 = zip_f32(SELF, v409, v432, 8);
                            const f32 v454 = zip_f32(SELF, v412, v435, 0);
                            const f32 v455 = zip_f32(SELF, v412, v435, 8);
                            const f32 v456 = zip_f32(SELF, v414, v438, 0);
                            const f32 v457 = zip_f32(SELF, v414, v438, 8);
                            const f32 v458 = zip_f32(SELF, v417, v441, 0);
                            const f32 v459 = zip_f32(SELF, v417, v441, 8);
                            const f32 v460 = zip_f32(SELF, v420, v444, 0);
                            const f32 v461 = zip_f32(SELF, v420, v444, 8);
                            const f32 v462 = zip_f32(SELF, v423, v447, 0);
                            const f32 v463 = zip_f32(SELF, v423, v447, 8);
                            const f32 v464 = zip_f32(SELF, v448, v456, 0);
                            const f32 v465 = zip_f32(SELF, v448, v456, 8);
                            const f32 v466 = zip_f32(SELF, v449, v457, 0);
                            const f32 v467 = zip_f32(SELF, v449, v457, 8);
                            const f32 v468 = zip_f32(SELF, v450, v458, 0);
                            const f32 v469 = zip_f32(SELF, v450, v458, 8);
                            const f32 v470 = zip_f32(SELF, v451, v459, 0);
                            const f32 v471 = zip_f32(SELF, v451, v459, 8);
                            const f32 v472 = zip_f32(SELF, v452, v460, 0);
                            const f32 v473 = zip_f32(SELF, v452, v460, 8);
                            const f32 v474 = zip_f32(SELF, v453, v461, 0);
                            const f32 v475 = zip_f32(SELF, v453, v461, 8);
                            const f32 v476 = zip_f32(SELF, v454, v462, 0);
                            const f32 v477 = zip_f32(SELF, v454, v462, 8);
                            const f32 v478 = zip_f32(SELF, v455, v463, 0);
                            const f32 v479 = zip_f32(SELF, v455, v463, 8);
                            const f32 v480 = zip_f32(SELF, v464, v472, 0);
                            const f32 v481 = zip_f32(SELF, v464, v472, 8);
                            const f32 v482 = zip_f32(SELF, v465, v473, 0);
                            const f32 v483 = zip_f32(SELF, v465, v473, 8);
                            const f32 v484 = zip_f32(SELF, v466, v474, 0);
                            const f32 v485 = zip_f32(SELF, v466, v474, 8);
                            const f32 v486 = zip_f32(SELF, v467, v475, 0);
                            const f32 v487 = zip_f32(SELF, v467, v475, 8);
                            const f32 v488 = zip_f32(SELF, v468, v476, 0);
                            const f32 v489 = zip_f32(SELF, v468, v476, 8);
                            const f32 v490 = zip_f32(SELF, v469, v477, 0);
                            const f32 v491 = zip_f32(SELF, v469, v477, 8);
                            const f32 v492 = zip_f32(SELF, v470, v478, 0);
                            const f32 v493 = zip_f32(SELF, v470, v478, 8);
                            const f32 v494 = zip_f32(SELF, v471, v479, 0);
                            const f32 v495 = zip_f32(SELF, v471, v479, 8);
                            const f32 v496 = zip_f32(SELF, v480, v488, 0);
                            const f32 v497 = zip_f32(SELF, v480, v488, 8);
                            const f32 v498 = zip_f32(SELF, v481, v489, 0);
                            const f32 v499 = zip_f32(SELF, v481, v489, 8);
                            const f32 v500 = zip_f32(SELF, v482, v490, 0);
                            const f32 v501 = zip_f32(SELF, v482, v490, 8);
                            const f32 v502 = zip_f32(SELF, v483, v491, 0);
                            const f32 v503 = zip_f32(SELF, v483, v491, 8);
                            const f32 v504 = zip_f32(SELF, v484, v492, 0);
                            const f32 v505 = zip_f32(SELF, v484, v492, 8);
                            const f32 v506 = zip_f32(SELF, v485, v493, 0);
                            const f32 v507 = zip_f32(SELF, v485, v493, 8);
                            const f32 v508 = zip_f32(SELF, v486, v494, 0);
                            const f32 v509 = zip_f32(SELF, v486, v494, 8);
                            const f32 v510 = zip_f32(SELF, v487, v495, 0);
                            const f32 v511 = zip_f32(SELF, v487, v495, 8);
                            const i64 v523 = (j396 * 16) + (j399 * 1024);
                            local8[v523 + lane] = v496;
                            local8[(v523 + 64) + lane] = v497;
                            local8[(v523 + 128) + lane] = v498;
                            local8[(v523 + 192) + lane] = v499;
                            local8[(v523 + 256) + lane] = v500;
                            local8[(v523 + 320) + lane] = v501;
                            local8[(v523 + 384) + lane] = v502;
                            local8[(v523 + 448) + lane] = v503;
                            local8[(v523 + 512) + lane] = v504;
                            local8[(v523 + 576) + lane] = v505;
                            local8[(v523 + 640) + lane] = v506;
                            local8[(v523 + 704) + lane] = v507;
                            local8[(v523 + 768) + lane] = v508;
                            local8[(v523 + 832) + lane] = v509;
                            local8[(v523 + 896) + lane] = v510;
                            local8[(v523 + 960) + lane] = v511;
                        }
                    }
                    for (i64 j568 = 0; j568 < 8; j568++) { // keys
                        const i64 v569 = j568 * 8;
                        for (i64 j570 = 0; j570 < 2; j570++) { // lanes
                            const i64 v572 = j570 * 32;
                            SYNC;
                            const f32 v573 = local10[v572 + lane];
                            const i64 v575 = v572 + 16;
                            const f32 v576 = local10[v575 + lane];
                            const i64 v578 = j568 * 128;
                            f32 r580 = 0.0f;
                            f32 r581 = 0.0f;
                            f32 r582 = 0.0f;
                            f32 r583 = 0.0f;
                            f32 r584 = 0.0f;
                            f32 r585 = 0.0f;
                            f32 r586 = 0.0f;
                            f32 r587 = 0.0f;
                            f32 r588 = 0.0f;
                            f32 r589 = 0.0f;
                            f32 r590 = 0.0f;
                            f32 r591 = 0.0f;
                            f32 r592 = 0.0f;
                            f32 r593 = 0.0f;
                            f32 r594 = 0.0f;
                            f32 r595 = 0.0f;
                            for (i64 j596 = 0; j596 < 8; j596++) { // step
                                const i64 v598 = v572 + (j596 * 64);
                                const f32 v599 = local2[v598 + lane];
                                const f32 v601 = local2[(v598 + 16) + lane];
                                const i64 v602 = v578 + j596;
                                const f32 v603 = local3[v602];
                                const f32 v605 = r580;
                                const f32 v606 = s_fma_f32(v603, v599, v605);
                                r580 = v606;
                                const f32 v608 = r581;
                                const f32 v609 = s_fma_f32(v603, v601, v608);
                                r581 = v609;
                                const f32 v612 = local3[(v602 + 16)];
                                const f32 v614 = r582;
                                const f32 v615 = s_fma_f32(v612, v599, v614);
                                r582 = v615;
                                const f32 v617 = r583;
                                const f32 v618 = s_fma_f32(v612, v601, v617);
                                r583 = v618;
                                const f32 v621 = local3[(v602 + 32)];
                                const f32 v623 = r584;
                                const f32 v624 = s_fma_f32(v621, v599, v623);
                                r584 = v624;
                                const f32 v626 = r585;
                                const f32 v627 = s_fma_f32(v621, v601, v626);
                                r585 = v627;
                                const f32 v631 = local3[(v602 + 48)];
                                const f32 v633 = r586;
                                const f32 v634 = s_fma_f32(v631, v599, v633);
                                r586 = v634;
                                const f32 v636 = r587;
                                const f32 v637 = s_fma_f32(v631, v601, v636);
                                r587 = v637;
                                const f32 v640 = local3[(v602 + 64)];
                                const f32 v642 = r588;
                                const f32 v643 = s_fma_f32(v640, v599, v642);
                                r588 = v643;
                                const f32 v645 = r589;
                                const f32 v646 = s_fma_f32(v640, v601, v645);
                                r589 = v646;
                                const f32 v650 = local3[(v602 + 80)];
                                const f32 v652 = r590;
                                const f32 v653 = s_fma_f32(v650, v599, v652);
                                r590 = v653;
                                const f32 v655 = r591;
                                const f32 v656 = s_fma_f32(v650, v601, v655);
                                r591 = v656;
                                const f32 v660 = local3[(v602 + 96)];
                                const f32 v662 = r592;
                                const f32 v663 = s_fma_f32(v660, v599, v662);
                                r592 = v663;
                                const f32 v665 = r593;
                                const f32 v666 = s_fma_f32(v660, v601, v665);
                                r593 = v666;
                                const f32 v670 = local3[(v602 + 112)];
                                const f32 v672 = r594;
                                const f32 v673 = s_fma_f32(v670, v599, v672);
                                r594 = v673;
                                const f32 v675 = r595;
                                const f32 v676 = s_fma_f32(v670, v601, v675);
                                r595 = v676;
                            }
                            const i32 v679 = local6[v572 + lane];
                            const i32 v680 = local6[v575 + lane];
                            const i32 v683 = (i32)((v36 + v569));
                            const bool v684 = v569 < v38;
                            const i64 v685 = v569 + 1;
                            const i32 v686 = local6[v572 + lane];
                            const i32 v687 = local6[v575 + lane];
                            const i32 v689 = (i32)((v36 + v685));
                            const bool v690 = v685 < v38;
                            const i64 v691 = v569 + 2;
                            const i32 v692 = local6[v572 + lane];
                            const i32 v693 = local6[v575 + lane];
                            const i32 v695 = (i32)((v36 + v691));
                            const bool v696 = v691 < v38;
                            const i64 v698 = v569 + 3;
                            const i32 v699 = local6[v572 + lane];
                            const i32 v700 = local6[v575 + lane];
                            const i32 v702 = (i32)((v36 + v698));
                            const bool v703 = v698 < v38;
                            const i64 v704 = v569 + 4;
                            const i32 v705 = local6[v572 + lane];
                            const i32 v706 = local6[v575 + lane];
                            const i32 v708 = (i32)((v36 + v704));
                            const bool v709 = v704 < v38;
                            const i64 v711 = v569 + 5;
                            const i32 v712 = local6[v572 + lane];
                            const i32 v713 = local6[v575 + lane];
                            const i32 v715 = (i32)((v36 + v711));
                            const bool v716 = v711 < v38;
                            const i64 v718 = v569 + 6;
                            const i32 v719 = local6[v572 + lane];
                            const i32 v720 = local6[v575 + lane];
                            const i32 v722 = (i32)((v36 + v718));
                            const bool v723 = v718 < v38;
                            const i64 v725 = v569 + 7;
                            const i32 v726 = local6[v572 + lane];
                            const i32 v727 = local6[v575 + lane];
                            const i32 v729 = (i32)((v36 + v725));
                            const bool v730 = v725 < v38;
                            const bool v735 = v683 <= v679;
                            const f32 v736 = r580;
                            const f32 v738 = v736 * 0.353553385f;
                            const f32 v740 = v735 ? v738 : -__builtin_inff();
                            const f32 v741 = v684 ? v740 : -__builtin_inff();
                            const f32 v742 = v741 - v573;
                            const f32 v743 = s_exp_f32(v742);
                            const i64 v744 = v572 + (j568 * 512);
                            local5[v744 + lane] = v743;
                            const bool v746 = v683 <= v680;
                            const f32 v747 = r581;
                            const f32 v748 = v747 * 0.353553385f;
                            const f32 v749 = v746 ? v748 : -__builtin_inff();
                            const f32 v750 = v684 ? v749 : -__builtin_inff();
                            const f32 v751 = v750 - v576;
                            const f32 v752 = s_exp_f32(v751);
                            const i64 v753 = v744 + 16;
                            local5[v753 + lane] = v752;
                            const bool v758 = v689 <= v686;
                            const f32 v759 = r582;
                            const f32 v760 = v759 * 0.353553385f;
                            const f32 v761 = v758 ? v760 : -__builtin_inff();
                            const f32 v762 = v690 ? v761 : -__builtin_inff();
                            const f32 v763 = v762 - v573;
                            const f32 v764 = s_exp_f32(v763);
                            const i64 v765 = v572 + (v685 * 64);
                            local5[v765 + lane] = v764;
                            const bool v767 = v689 <= v687;
                            const f32 v768 = r583;
                            const f32 v769 = v768 * 0.353553385f;
                            const f32 v770 = v767 ? v769 : -__builtin_inff();
                            const f32 v771 = v690 ? v770 : -__builtin_inff();
                            const f32 v772 = v771 - v576;
                            const f32 v773 = s_exp_f32(v772);
                            const i64 v774 = v765 + 16;
                            local5[v774 + lane] = v773;
                            const bool v779 = v695 <= v692;
                            const f32 v780 = r584;
                            const f32 v781 = v780 * 0.353553385f;
                            const f32 v782 = v779 ? v781 : -__builtin_inff();
                            const f32 v783 = v696 ? v782 : -__builtin_inff();
                            const f32 v784 = v783 - v573;
                            const f32 v785 = s_exp_f32(v784);
                            const i64 v786 = v572 + (v691 * 64);
                            local5[v786 + lane] = v785;
                            const bool v788 = v695 <= v693;
                            const f32 v789 = r585;
                            const f32 v790 = v789 * 0.353553385f;
                            const f32 v791 = v788 ? v790 : -__builtin_inff();
                            const f32 v792 = v696 ? v791 : -__builtin_inff();
                            const f32 v793 = v792 - v576;
                            const f32 v794 = s_exp_f32(v793);
                            const i64 v795 = v786 + 16;
                            local5[v795 + lane] = v794;
                            const bool v800 = v702 <= v699;
                            const f32 v801 = r586;
                            const f32 v802 = v801 * 0.353553385f;
                            const f32 v803 = v800 ? v802 : -__builtin_inff();
                            const f32 v804 = v703 ? v803 : -__builtin_inff();
                            const f32 v805 = v804 - v573;
                            const f32 v806 = s_exp_f32(v805);
                            const i64 v807 = v572 + (v698 * 64);
                            local5[v807 + lane] = v806;
                            const bool v809 = v702 <= v700;
                            const f32 v810 = r587;
                            const f32 v811 = v810 * 0.353553385f;
                            const f32 v812 = v809 ? v811 : -__builtin_inff();
                            const f32 v813 = v703 ? v812 : -__builtin_inff();
                            const f32 v814 = v813 - v576;
                            const f32 v815 = s_exp_f32(v814);
                            const i64 v816 = v807 + 16;
                            local5[v816 + lane] = v815;
                            const bool v821 = v708 <= v705;
                            const f32 v822 = r588;
                            const f32 v823 = v822 * 0.353553385f;
                            const f32 v824 = v821 ? v823 : -__builtin_inff();
                            const f32 v825 = v709 ? v824 : -__builtin_inff();
                            const f32 v826 = v825 - v573;
                            const f32 v827 = s_exp_f32(v826);
                            const i64 v828 = v572 + (v704 * 64);
                            local5[v828 + lane] = v827;
                            const bool v830 = v708 <= v706;
                            const f32 v831 = r589;
                            const f32 v832 = v831 * 0.353553385f;
                            const f32 v833 = v830 ? v832 : -__builtin_inff();
                            const f32 v834 = v709 ? v833 : -__builtin_inff();
                            const f32 v835 = v834 - v576;
                            const f32 v836 = s_exp_f32(v835);
                            const i64 v837 = v828 + 16;
                            local5[v837 + lane] = v836;
                            const bool v842 = v715 <= v712;
                            const f32 v843 = r590;
                            const f32 v844 = v843 * 0.353553385f;
                            const f32 v845 = v842 ? v844 : -__builtin_inff();
                            const f32 v846 = v716 ? v845 : -__builtin_inff();
                            const f32 v847 = v846 - v573;
                            const f32 v848 = s_exp_f32(v847);
                            const i64 v849 = v572 + (v711 * 64);
                            local5[v849 + lane] = v848;
                            const bool v851 = v715 <= v713;
                            const f32 v852 = r591;
                            const f32 v853 = v852 * 0.353553385f;
                            const f32 v854 = v851 ? v853 : -__builtin_inff();
                            const f32 v855 = v716 ? v854 : -__builtin_inff();
                            const f32 v856 = v855 - v576;
                            const f32 v857 = s_exp_f32(v856);
                            const i64 v858 = v849 + 16;
                            local5[v858 + lane] = v857;
                            const bool v863 = v722 <= v719;
                            const f32 v864 = r592;
                            const f32 v865 = v864 * 0.353553385f;
                            const f32 v866 = v863 ? v865 : -__builtin_inff();
                            const f32 v867 = v723 ? v866 : -__builtin_inff();
                            const f32 v868 = v867 - v573;
                            const f32 v869 = s_exp_f32(v868);
                            const i64 v870 = v572 + (v718 * 64);
                            local5[v870 + lane] = v869;
                            const bool v872 = v722 <= v720;
                            const f32 v873 = r593;
                            const f32 v874 = v873 * 0.353553385f;
                            const f32 v875 = v872 ? v874 : -__builtin_inff();
                            const f32 v876 = v723 ? v875 : -__builtin_inff();
                            const f32 v877 = v876 - v576;
                            const f32 v878 = s_exp_f32(v877);
                            const i64 v879 = v870 + 16;
                            local5[v879 + lane] = v878;
                            const bool v884 = v729 <= v726;
                            const f32 v885 = r594;
                            const f32 v886 = v885 * 0.353553385f;
                            const f32 v887 = v884 ? v886 : -__builtin_inff();
                            const f32 v888 = v730 ? v887 : -__builtin_inff();
                            const f32 v889 = v888 - v573;
                            const f32 v890 = s_exp_f32(v889);
                            const i64 v891 = v572 + (v725 * 64);
                            local5[v891 + lane] = v890;
                            const bool v893 = v729 <= v727;
                            const f32 v894 = r595;
                            const f32 v895 = v894 * 0.353553385f;
                            const f32 v896 = v893 ? v895 : -__builtin_inff();
                            const f32 v897 = v730 ? v896 : -__builtin_inff();
                            const f32 v898 = v897 - v576;
                            const f32 v899 = s_exp_f32(v898);
                            const i64 v900 = v891 + 16;
                            local5[v900 + lane] = v899;
                            f32 r902 = 0.0f;
                            f32 r903 = 0.0f;
                            f32 r904 = 0.0f;
                            f32 r905 = 0.0f;
                            f32 r906 = 0.0f;
                            f32 r907 = 0.0f;
                            f32 r908 = 0.0f;
                            f32 r909 = 0.0f;
                            f32 r910 = 0.0f;
                            f32 r911 = 0.0f;
                            f32 r912 = 0.0f;
                            f32 r913 = 0.0f;
                            f32 r914 = 0.0f;
                            f32 r915 = 0.0f;
                            f32 r916 = 0.0f;
                            f32 r917 = 0.0f;
                            for (i64 j918 = 0; j918 < 8; j918++) { // step
                                const i64 v920 = v572 + (j918 * 64);
                                const f32 v921 = local8[v920 + lane];
                                const f32 v923 = local8[(v920 + 16) + lane];
                                const i64 v924 = v578 + j918;
                                const f32 v925 = local4[v924];
                                const f32 v927 = r902;
                                const f32 v928 = s_fma_f32(v925, v921, v927);
                                r902 = v928;
                                const f32 v930 = r903;
                                const f32 v931 = s_fma_f32(v925, v923, v930);
                                r903 = v931;
                                const f32 v934 = local4[(v924 + 16)];
                                const f32 v936 = r904;
                                const f32 v937 = s_fma_f32(v934, v921, v936);
                                r904 = v937;
                                const f32 v939 = r905;
                                const f32 v940 = s_fma_f32(v934, v923, v939);
                                r905 = v940;
                                const f32 v943 = local4[(v924 + 32)];
                                const f32 v945 = r906;
                                const f32 v946 = s_fma_f32(v943, v921, v945);
                                r906 = v946;
                                const f32 v948 = r907;
                                const f32 v949 = s_fma_f32(v943, v923, v948);
                                r907 = v949;
                                const f32 v953 = local4[(v924 + 48)];
                                const f32 v955 = r908;
                                const f32 v956 = s_fma_f32(v953, v921, v955);
                                r908 = v956;
                                const f32 v958 = r909;
                                const f32 v959 = s_fma_f32(v953, v923, v958);
                                r909 = v959;
                                const f32 v962 = local4[(v924 + 64)];
                                const f32 v964 = r910;
                                const f32 v965 = s_fma_f32(v962, v921, v964);
                                r910 = v965;
                                const f32 v967 = r911;
                                const f32 v968 = s_fma_f32(v962, v923, v967);
                                r911 = v968;
                                const f32 v972 = local4[(v924 + 80)];
                                const f32 v974 = r912;
                                const f32 v975 = s_fma_f32(v972, v921, v974);
                                r912 = v975;
                                const f32 v977 = r913;
                                const f32 v978 = s_fma_f32(v972, v923, v977);
                                r913 = v978;
                                const f32 v982 = local4[(v924 + 96)];
                                const f32 v984 = r914;
                                const f32 v985 = s_fma_f32(v982, v921, v984);
                                r914 = v985;
                                const f32 v987 = r915;
                                const f32 v988 = s_fma_f32(v982, v923, v987);
                                r915 = v988;
                                const f32 v992 = local4[(v924 + 112)];
                                const f32 v994 = r916;
                                const f32 v995 = s_fma_f32(v992, v921, v994);
                                r916 = v995;
                                const f32 v997 = r917;
                                const f32 v998 = s_fma_f32(v992, v923, v997);
                                r917 = v998;
                            }
                            const f32 v1001 = local11[v572 + lane];
                            const f32 v1002 = local11[v575 + lane];
                            const f32 v1004 = r902;
                            const f32 v1005 = v1004 - v1001;
                            const f32 v1006 = v743 * v1005;
                            const f32 v1007 = v1006 * 0.353553385f;
                            local9[v744 + lane] = v1007;
                            const f32 v1009 = r903;
                            const f32 v1010 = v1009 - v1002;
                            const f32 v1011 = v752 * v1010;
                            const f32 v1012 = v1011 * 0.353553385f;
                            local9[v753 + lane] = v1012;
                            const f32 v1014 = r904;
                            const f32 v1015 = v1014 - v1001;
                            const f32 v1016 = v764 * v1015;
                            const f32 v1017 = v1016 * 0.353553385f;
                            local9[v765 + lane] = v1017;
                            const f32 v1019 = r905;
                            const f32 v1020 = v1019 - v1002;
                            const f32 v1021 = v773 * v1020;
                            const f32 v1022 = v1021 * 0.353553385f;
                            local9[v774 + lane] = v1022;
                            const f32 v1024 = r906;
                            const f32 v1025 = v1024 - v1001;
                            const f32 v1026 = v785 * v1025;
                            const f32 v1027 = v1026 * 0.353553385f;
                            local9[v786 + lane] = v1027;
                            const f32 v1029 = r907;
                            const f32 v1030 = v1029 - v1002;
                            const f32 v1031 = v794 * v1030;
                            const f32 v1032 = v1031 * 0.353553385f;
                            local9[v795 + lane] = v1032;
                            const f32 v1034 = r908;
                            const f32 v1035 = v1034 - v1001;
                            const f32 v1036 = v806 * v1035;
                            const f32 v1037 = v1036 * 0.353553385f;
                            local9[v807 + lane] = v1037;
                            const f32 v1039 = r909;
                            const f32 v1040 = v1039 - v1002;
                            const f32 v1041 = v815 * v1040;
                            const f32 v1042 = v1041 * 0.353553385f;
                            local9[v816 + lane] = v1042;
                            const f32 v1044 = r910;
                            const f32 v1045 = v1044 - v1001;
                            const f32 v1046 = v827 * v1045;
                            const f32 v1047 = v1046 * 0.353553385f;
                            local9[v828 + lane] = v1047;
                            const f32 v1049 = r911;
                            const f32 v1050 = v1049 - v1002;
                            const f32 v1051 = v836 * v1050;
                            const f32 v1052 = v1051 * 0.353553385f;
                            local9[v837 + lane] = v1052;
                            const f32 v1054 = r912;
                            const f32 v1055 = v1054 - v1001;
                            const f32 v1056 = v848 * v1055;
                            const f32 v1057 = v1056 * 0.353553385f;
                            local9[v849 + lane] = v1057;
                            const f32 v1059 = r913;
                            const f32 v1060 = v1059 - v1002;
                            const f32 v1061 = v857 * v1060;
                            const f32 v1062 = v1061 * 0.353553385f;
                            local9[v858 + lane] = v1062;
                            const f32 v1064 = r914;
                            const f32 v1065 = v1064 - v1001;
                            const f32 v1066 = v869 * v1065;
                            const f32 v1067 = v1066 * 0.353553385f;
                            local9[v870 + lane] = v1067;
                            const f32 v1069 = r915;
                            const f32 v1070 = v1069 - v1002;
                            const f32 v1071 = v878 * v1070;
                            const f32 v1072 = v1071 * 0.353553385f;
                            local9[v879 + lane] = v1072;
                            const f32 v1074 = r916;
                            const f32 v1075 = v1074 - v1001;
                            const f32 v1076 = v890 * v1075;
                            const f32 v1077 = v1076 * 0.353553385f;
                            local9[v891 + lane] = v1077;
                            const f32 v1079 = r917;
                            const f32 v1080 = v1079 - v1002;
                            const f32 v1081 = v899 * v1080;
                            const f32 v1082 = v1081 * 0.353553385f;
                            local9[v900 + lane] = v1082;
                        }
                    }
                    for (i64 j1086 = 0; j1086 < 8; j1086++) { // rows
                        const i64 v1087 = j1086 * 8;
                        f32 r1092 = 0.0f;
                        f32 r1093 = 0.0f;
                        f32 r1094 = 0.0f;
                        f32 r1095 = 0.0f;
                        f32 r1096 = 0.0f;
                        f32 r1097 = 0.0f;
                        f32 r1098 = 0.0f;
                        f32 r1099 = 0.0f;
                        for (i64 j1100 = 0; j1100 < 64; j1100++) { // step
                            SYNC;
                            const f32 v1102 = local7[(j1100 * 16) + lane];
                            const i64 v1103 = (j1086 * 512) + j1100;
                            const f32 v1104 = local5[v1103];
                            const f32 v1106 = r1092;
                            const f32 v1107 = s_fma_f32(v1104, v1102, v1106);
                            r1092 = v1107;
                            const f32 v1110 = local5[(v1103 + 64)];
                            const f32 v1112 = r1093;
                            const f32 v1113 = s_fma_f32(v1110, v1102, v1112);
                            r1093 = v1113;
                            const f32 v1117 = local5[(v1103 + 128)];
                            const f32 v1119 = r1094;
                            const f32 v1120 = s_fma_f32(v1117, v1102, v1119);
                            r1094 = v1120;
                            const f32 v1124 = local5[(v1103 + 192)];
                            const f32 v1126 = r1095;
                            const f32 v1127 = s_fma_f32(v1124, v1102, v1126);
                            r1095 = v1127;
                            const f32 v1131 = local5[(v1103 + 256)];
                            const f32 v1133 = r1096;
                            const f32 v1134 = s_fma_f32(v1131, v1102, v1133);
                            r1096 = v1134;
                            const f32 v1138 = local5[(v1103 + 320)];
                            const f32 v1140 = r1097;
                            const f32 v1141 = s_fma_f32(v1138, v1102, v1140);
                            r1097 = v1141;
                            const f32 v1145 = local5[(v1103 + 384)];
                            const f32 v1147 = r1098;
                            const f32 v1148 = s_fma_f32(v1145, v1102, v1147);
                            r1098 = v1148;
                            const f32 v1152 = local5[(v1103 + 448)];
                            const f32 v1154 = r1099;
                            const f32 v1155 = s_fma_f32(v1152, v1102, v1154);
                            r1099 = v1155;
                        }
                        const i64 v1159 = j1086 * 128;
                        SYNC;
                        const f32 v1160 = local14[v1159 + lane];
                        const f32 v1161 = r1092;
                        const f32 v1162 = v1160 + v1161;
                        SYNC;
                        local14[v1159 + lane] = v1162;
                        const i64 v1165 = (v1087 + 1) * 16;
                        SYNC;
                        const f32 v1166 = local14[v1165 + lane];
                        const f32 v1167 = r1093;
                        const f32 v1168 = v1166 + v1167;
                        SYNC;
                        local14[v1165 + lane] = v1168;
                        const i64 v1171 = (v1087 + 2) * 16;
                        SYNC;
                        const f32 v1172 = local14[v1171 + lane];
                        const f32 v1173 = r1094;
                        const f32 v1174 = v1172 + v1173;
                        SYNC;
                        local14[v1171 + lane] = v1174;
                        const i64 v1178 = (v1087 + 3) * 16;
                        SYNC;
                        const f32 v1179 = local14[v1178 + lane];
                        const f32 v1180 = r1095;
                        const f32 v1181 = v1179 + v1180;
                        SYNC;
                        local14[v1178 + lane] = v1181;
                        const i64 v1184 = (v1087 + 4) * 16;
                        SYNC;
                        const f32 v1185 = local14[v1184 + lane];
                        const f32 v1186 = r1096;
                        const f32 v1187 = v1185 + v1186;
                        SYNC;
                        local14[v1184 + lane] = v1187;
                        const i64 v1191 = (v1087 + 5) * 16;
                        SYNC;
                        const f32 v1192 = local14[v1191 + lane];
                        const f32 v1193 = r1097;
                        const f32 v1194 = v1192 + v1193;
                        SYNC;
                        local14[v1191 + lane] = v1194;
                        const i64 v1198 = (v1087 + 6) * 16;
                        SYNC;
                        const f32 v1199 = local14[v1198 + lane];
                        const f32 v1200 = r1098;
                        const f32 v1201 = v1199 + v1200;
                        SYNC;
                        local14[v1198 + lane] = v1201;
                        const i64 v1205 = (v1087 + 7) * 16;
                        SYNC;
                        const f32 v1206 = local14[v1205 + lane];
                        const f32 v1207 = r1099;
                        const f32 v1208 = v1206 + v1207;
                        SYNC;
                        local14[v1205 + lane] = v1208;
                    }
                    for (i64 j1211 = 0; j1211 < 8; j1211++) { // rows
                        const i64 v1212 = j1211 * 8;
                        f32 r1217 = 0.0f;
                        f32 r1218 = 0.0f;
                        f32 r1219 = 0.0f;
                        f32 r1220 = 0.0f;
                        f32 r1221 = 0.0f;
                        f32 r1222 = 0.0f;
                        f32 r1223 = 0.0f;
                        f32 r1224 = 0.0f;
                        for (i64 j1225 = 0; j1225 < 64; j1225++) { // step
                            SYNC;
                            const f32 v1227 = local1[(j1225 * 16) + lane];
                            const i64 v1228 = (j1211 * 512) + j1225;
                            const f32 v1229 = local9[v1228];
                            const f32 v1231 = r1217;
                            const f32 v1232 = s_fma_f32(v1229, v1227, v1231);
                            r1217 = v1232;
                            const f32 v1235 = local9[(v1228 + 64)];
                            const f32 v1237 = r1218;
                            const f32 v1238 = s_fma_f32(v1235, v1227, v1237);
                            r1218 = v1238;
                            const f32 v1242 = local9[(v1228 + 128)];
                            const f32 v1244 = r1219;
                            const f32 v1245 = s_fma_f32(v1242, v1227, v1244);
                            r1219 = v1245;
                            const f32 v1249 = local9[(v1228 + 192)];
                            const f32 v1251 = r1220;
                            const f32 v1252 = s_fma_f32(v1249, v1227, v1251);
                            r1220 = v1252;
                            const f32 v1256 = local9[(v1228 + 256)];
                            const f32 v1258 = r1221;
                            const f32 v1259 = s_fma_f32(v1256, v1227, v1258);
                            r1221 = v1259;
                            const f32 v1263 = local9[(v1228 + 320)];
                            const f32 v1265 = r1222;
                            const f32 v1266 = s_fma_f32(v1263, v1227, v1265);
                            r1222 = v1266;
                            const f32 v1270 = local9[(v1228 + 384)];
                            const f32 v1272 = r1223;
                            const f32 v1273 = s_fma_f32(v1270, v1227, v1272);
                            r1223 = v1273;
                            const f32 v1277 = local9[(v1228 + 448)];
                            const f32 v1279 = r1224;
                            const f32 v1280 = s_fma_f32(v1277, v1227, v1279);
                            r1224 = v1280;
                        }
                        const i64 v1284 = j1211 * 128;
                        SYNC;
                        const f32 v1285 = local13[v1284 + lane];
                        const f32 v1286 = r1217;
                        const f32 v1287 = v1285 + v1286;
                        SYNC;
                        local13[v1284 + lane] = v1287;
                        const i64 v1290 = (v1212 + 1) * 16;
                        SYNC;
                        const f32 v1291 = local13[v1290 + lane];
                        const f32 v1292 = r1218;
                        const f32 v1293 = v1291 + v1292;
                        SYNC;
                        local13[v1290 + lane] = v1293;
                        const i64 v1296 = (v1212 + 2) * 16;
                        SYNC;
                        const f32 v1297 = local13[v1296 + lane];
                        const f32 v1298 = r1219;
                        const f32 v1299 = v1297 + v1298;
                        SYNC;
                        local13[v1296 + lane] = v1299;
                        const i64 v1303 = (v1212 + 3) * 16;
                        SYNC;
                        const f32 v1304 = local13[v1303 + lane];
                        const f32 v1305 = r1220;
                        const f32 v1306 = v1304 + v1305;
                        SYNC;
                        local13[v1303 + lane] = v1306;
                        const i64 v1309 = (v1212 + 4) * 16;
                        SYNC;
                        const f32 v1310 = local13[v1309 + lane];
                        const f32 v1311 = r1221;
                        const f32 v1312 = v1310 + v1311;
                        SYNC;
                        local13[v1309 + lane] = v1312;
                        const i64 v1316 = (v1212 + 5) * 16;
                        SYNC;
                        const f32 v1317 = local13[v1316 + lane];
                        const f32 v1318 = r1222;
                        const f32 v1319 = v1317 + v1318;
                        SYNC;
                        local13[v1316 + lane] = v1319;
                        const i64 v1323 = (v1212 + 6) * 16;
                        SYNC;
                        const f32 v1324 = local13[v1323 + lane];
                        const f32 v1325 = r1223;
                        const f32 v1326 = v1324 + v1325;
                        SYNC;
                        local13[v1323 + lane] = v1326;
                        const i64 v1330 = (v1212 + 7) * 16;
                        SYNC;
                        const f32 v1331 = local13[v1330 + lane];
                        const f32 v1332 = r1224;
                        const f32 v1333 = v1331 + v1332;
                        SYNC;
                        local13[v1330 + lane] = v1333;
                    }
                    for (i64 j1336 = lane; j1336 < 1024; j1336 += 16) { // fill
                        local12[j1336] = 0.0f;
                    }
                    for (i64 j1339 = 0; j1339 < 8; j1339++) { // rows
                        const i64 v1340 = j1339 * 8;
                        f32 r1343 = 0.0f;
                        f32 r1344 = 0.0f;
                        f32 r1345 = 0.0f;
                        f32 r1346 = 0.0f;
                        f32 r1347 = 0.0f;
                        f32 r1348 = 0.0f;
                        f32 r1349 = 0.0f;
                        f32 r1350 = 0.0f;
                        for (i64 j1351 = 0; j1351 < 64; j1351++) { // step
                            SYNC;
                            const f32 v1353 = local3[(j1351 * 16) + lane];
                            const i64 v1355 = v1340 + (j1351 * 64);
                            const f32 v1356 = local9[v1355];
                            const f32 v1358 = r1343;
                            const f32 v1359 = s_fma_f32(v1356, v1353, v1358);
                            r1343 = v1359;
                            const f32 v1362 = local9[(v1355 + 1)];
                            const f32 v1364 = r1344;
                            const f32 v1365 = s_fma_f32(v1362, v1353, v1364);
                            r1344 = v1365;
                            const f32 v1368 = local9[(v1355 + 2)];
                            const f32 v1370 = r1345;
                            const f32 v1371 = s_fma_f32(v1368, v1353, v1370);
                            r1345 = v1371;
                            const f32 v1375 = local9[(v1355 + 3)];
                            const f32 v1377 = r1346;
                            const f32 v1378 = s_fma_f32(v1375, v1353, v1377);
                            r1346 = v1378;
                            const f32 v1381 = local9[(v1355 + 4)];
                            const f32 v1383 = r1347;
                            const f32 v1384 = s_fma_f32(v1381, v1353, v1383);
                            r1347 = v1384;
                            const f32 v1388 = local9[(v1355 + 5)];
                            const f32 v1390 = r1348;
                            const f32 v1391 = s_fma_f32(v1388, v1353, v1390);
                            r1348 = v1391;
                            const f32 v1395 = local9[(v1355 + 6)];
                            const f32 v1397 = r1349;
                            const f32 v1398 = s_fma_f32(v1395, v1353, v1397);
                            r1349 = v1398;
                            const f32 v1402 = local9[(v1355 + 7)];
                            const f32 v1404 = r1350;
                            const f32 v1405 = s_fma_f32(v1402, v1353, v1404);
                            r1350 = v1405;
                        }
                        const i64 v1409 = j1339 * 128;
                        SYNC;
                        const f32 v1410 = local12[v1409 + lane];
                        const f32 v1411 = r1343;
                        const f32 v1412 = v1410 + v1411;
                        SYNC;
                        local12[v1409 + lane] = v1412;
                        const i64 v1415 = (v1340 + 1) * 16;
                        SYNC;
                        const f32 v1416 = local12[v1415 + lane];
                        const f32 v1417 = r1344;
                        const f32 v1418 = v1416 + v1417;
                        SYNC;
                        local12[v1415 + lane] = v1418;
                        const i64 v1421 = (v1340 + 2) * 16;
                        SYNC;
                        const f32 v1422 = local12[v1421 + lane];
                        const f32 v1423 = r1345;
                        const f32 v1424 = v1422 + v1423;
                        SYNC;
                        local12[v1421 + lane] = v1424;
                        const i64 v1428 = (v1340 + 3) * 16;
                        SYNC;
                        const f32 v1429 = local12[v1428 + lane];
                        const f32 v1430 = r1346;
                        const f32 v1431 = v1429 + v1430;
                        SYNC;
                        local12[v1428 + lane] = v1431;
                        const i64 v1434 = (v1340 + 4) * 16;
                        SYNC;
                        const f32 v1435 = local12[v1434 + lane];
                        const f32 v1436 = r1347;
                        const f32 v1437 = v1435 + v1436;
                        SYNC;
                        local12[v1434 + lane] = v1437;
                        const i64 v1441 = (v1340 + 5) * 16;
                        SYNC;
                        const f32 v1442 = local12[v1441 + lane];
                        const f32 v1443 = r1348;
                        const f32 v1444 = v1442 + v1443;
                        SYNC;
                        local12[v1441 + lane] = v1444;
                        const i64 v1448 = (v1340 + 6) * 16;
                        SYNC;
                        const f32 v1449 = local12[v1448 + lane];
                        const f32 v1450 = r1349;
                        const f32 v1451 = v1449 + v1450;
                        SYNC;
                        local12[v1448 + lane] = v1451;
                        const i64 v1455 = (v1340 + 7) * 16;
                        SYNC;
                        const f32 v1456 = local12[v1455 + lane];
                        const f32 v1457 = r1350;
                        const f32 v1458 = v1456 + v1457;
                        SYNC;
                        local12[v1455 + lane] = v1458;
                    }
                    for (i64 j1461 = 0; j1461 < v101; j1461++) { // row of what queries get
                        SYNC;
                        for (i64 j1466 = lane; j1466 < 8; j1466 += 16) { // number of a query
                            const f32 v1470 = local12[(j1466 + (j1461 * 16))];
                            const i64 v1471 = (((v99 + j1461) + (j7 * 9)) * 8) + j1466;
                            const f32 v1472 = io0[v1471];
                            const f32 v1473 = v1472 + v1470;
                            io0[v1471] = v1473;
                        }
                    }
                }
            }
            for (i64 j1479 = 0; j1479 < v38; j1479++) { // key
                SYNC;
                for (i64 j1482 = lane; j1482 < 8; j1482 += 16) { // number of a key
                    const f32 v1485 = local13[((j1479 * 16) + j1482)];
                    out20[(j1482 + ((j7 * 560) + ((v36 + j1479) * 8)))] = v1485;
                }
            }
            for (i64 j1494 = 0; j1494 < v38; j1494++) { // key
                SYNC;
                for (i64 j1497 = lane; j1497 < 8; j1497 += 16) { // number of a key
                    const f32 v1500 = local14[((j1494 * 16) + j1497)];
                    out21[(j1497 + ((j7 * 560) + ((v36 + j1494) * 8)))] = v1500;
                }
            }
        }
    }
}

