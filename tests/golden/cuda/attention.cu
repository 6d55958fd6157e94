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
KERNEL(32) k_258ac063ef3d4751bb668f78469074ef(GLOBAL u8 *b0, GLOBAL u8 *b1, GLOBAL u8 *b2, GLOBAL u8 *b3, GLOBAL u8 *b4, i64 o0, i64 o1, i64 o2, i64 o3, i64 o4, i64 begin, i64 end) {
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
                    const i32 v377 = (i32)((v246 + v375));
                    const bool v378 = v375 < v248;
                    const i64 v379 = v297 + 2;
                    const i32 v381 = (i32)((v246 + v379));
                    const bool v382 = v379 < v248;
                    const i64 v384 = v297 + 3;
                    const i32 v386 = (i32)((v246 + v384));
                    const bool v387 = v384 < v248;
                    const i64 v389 = v297 + 4;
                    const i32 v391 = (i32)((v246 + v389));
                    const bool v392 = v389 < v248;
                    const i64 v394 = v297 + 5;
                    const i32 v396 = (i32)((v246 + v394));
                    const bool v397 = v394 < v248;
                    const i64 v399 = v297 + 6;
                    const i32 v401 = (i32)((v246 + v399));
                    const bool v402 = v399 < v248;
                    const i64 v403 = v297 + 7;
                    const i32 v405 = (i32)((v246 + v403));
                    const bool v406 = v403 < v248;
                    const f32 v407 = local6[v299 + lane];
                    const bool v410 = v373 <= v370;
                    const f32 v411 = r304;
                    const f32 v413 = v411 * 0.353553385f;
                    const f32 v415 = v410 ? v413 : -__builtin_inff();
                    const f32 v416 = v374 ? v415 : -__builtin_inff();
                    local4[(v299 + v301) + lane] = v416;
                    const bool v422 = v377 <= v370;
                    const f32 v423 = r305;
                    const f32 v424 = v423 * 0.353553385f;
                    const f32 v425 = v422 ? v424 : -__builtin_inff();
                    const f32 v426 = v378 ? v425 : -__builtin_inff();
                    local4[(v299 + (v375 * 16)) + lane] = v426;
                    const bool v432 = v381 <= v370;
                    const f32 v433 = r306;
                    const f32 v434 = v433 * 0.353553385f;
                    const f32 v435 = v432 ? v434 : -__builtin_inff();
                    const f32 v436 = v382 ? v435 : -__builtin_inff();
                    local4[(v299 + (v379 * 16)) + lane] = v436;
                    const bool v442 = v386 <= v370;
                    const f32 v443 = r307;
                    const f32 v444 = v443 * 0.353553385f;
                    const f32 v445 = v442 ? v444 : -__builtin_inff();
                    const f32 v446 = v387 ? v445 : -__builtin_inff();
                    local4[(v299 + (v384 * 16)) + lane] = v446;
                    const bool v452 = v391 <= v370;
                    const f32 v453 = r308;
                    const f32 v454 = v453 * 0.353553385f;
                    const f32 v455 = v452 ? v454 : -__builtin_inff();
                    const f32 v456 = v392 ? v455 : -__builtin_inff();
                    local4[(v299 + (v389 * 16)) + lane] = v456;
                    const bool v462 = v396 <= v370;
                    const f32 v463 = r309;
                    const f32 v464 = v463 * 0.353553385f;
                    const f32 v465 = v462 ? v464 : -__builtin_inff();
                    const f32 v466 = v397 ? v465 : -__builtin_inff();
                    local4[(v299 + (v394 * 16)) + lane] = v466;
                    const bool v472 = v401 <= v370;
                    const f32 v473 = r310;
                    const f32 v474 = v473 * 0.353553385f;
                    const f32 v475 = v472 ? v474 : -__builtin_inff();
                    const f32 v476 = v402 ? v475 : -__builtin_inff();
                    local4[(v299 + (v399 * 16)) + lane] = v476;
                    const bool v482 = v405 <= v370;
                    const f32 v483 = r311;
                    const f32 v484 = v483 * 0.353553385f;
                    const f32 v485 = v482 ? v484 : -__builtin_inff();
                    const f32 v486 = v406 ? v485 : -__builtin_inff();
                    local4[(v299 + (v403 * 16)) + lane] = v486;
                    const f32 v489 = s_max_f32(v407, v416);
                    const f32 v490 = s_max_f32(v489, v426);
                    const f32 v491 = s_max_f32(v490, v436);
                    const f32 v492 = s_max_f32(v491, v446);
                    const f32 v493 = s_max_f32(v492, v456);
                    const f32 v494 = s_max_f32(v493, v466);
                    const f32 v495 = s_max_f32(v494, v476);
                    const f32 v496 = s_max_f32(v495, v486);
                    SYNC;
                    local6[v299 + lane] = v496;
                }
            }
            SYNC;
            for (i64 j501 = lane; j501 < 16; j501 += 16) { // row
                const f32 v502 = local6[j501];
                const f32 v503 = local7[j501];
                const bool v504 = v502 == -__builtin_inff();
                const f32 v505 = v504 ? 0.0f : v502;
                const f32 v506 = v503 - v505;
                const f32 v507 = s_exp_f32(v506);
                local7[j501] = v502;
                local9[j501] = v507;
                for (i64 j510 = 0; j510 < 16; j510++) { // key mod 16
                    const i64 v512 = j501 + (j510 * 16);
                    const f32 v513 = local4[v512];
                    const f32 v514 = v513 - v505;
                    const f32 v515 = s_exp_f32(v514);
                    local4[v512] = v515;
                    const i64 v519 = j501 + ((j510 + 16) * 16);
                    const f32 v520 = local4[v519];
                    const f32 v521 = v520 - v505;
                    const f32 v522 = s_exp_f32(v521);
                    const f32 v523 = v515 + v522;
                    local4[v519] = v522;
                    const i64 v528 = j501 + ((j510 + 32) * 16);
                    const f32 v529 = local4[v528];
                    const f32 v530 = v529 - v505;
                    const f32 v531 = s_exp_f32(v530);
                    const f32 v532 = v523 + v531;
                    local4[v528] = v531;
                    const i64 v537 = j501 + ((j510 + 48) * 16);
                    const f32 v538 = local4[v537];
                    const f32 v539 = v538 - v505;
                    const f32 v540 = s_exp_f32(v539);
                    const f32 v541 = v532 + v540;
                    local4[v537] = v540;
                    local10[v512] = v541;
                }
                const f32 v545 = local10[j501];
                const f32 v547 = local10[(j501 + 16)];
                const f32 v550 = local10[(j501 + 32)];
                const f32 v553 = local10[(j501 + 48)];
                const f32 v555 = local10[(j501 + 64)];
                const f32 v558 = local10[(j501 + 80)];
                const f32 v561 = local10[(j501 + 96)];
                const f32 v564 = local10[(j501 + 112)];
                const f32 v567 = local10[(j501 + 128)];
                const f32 v570 = local10[(j501 + 144)];
                const f32 v573 = local10[(j501 + 160)];
                const f32 v576 = local10[(j501 + 176)];
                const f32 v579 = local10[(j501 + 192)];
                const f32 v582 = local10[(j501 + 208)];
                const f32 v585 = local10[(j501 + 224)];
                const f32 v588 = local10[(j501 + 240)];
                const f32 v589 = v545 + v567;
                const f32 v590 = v547 + v570;
                const f32 v591 = v550 + v573;
                const f32 v592 = v553 + v576;
                const f32 v593 = v555 + v579;
                const f32 v594 = v558 + v582;
                const f32 v595 = v561 + v585;
                const f32 v596 = v564 + v588;
                const f32 v597 = v589 + v593;
                const f32 v598 = v590 + v594;
                const f32 v599 = v591 + v595;
                const f32 v600 = v592 + v596;
                const f32 v601 = v597 + v599;
                const f32 v602 = v598 + v600;
                const f32 v603 = v601 + v602;
                const f32 v604 = local8[j501];
                const f32 v605 = v604 * v507;
                const f32 v606 = v605 + v603;
                local8[j501] = v606;
            }
            for (i64 j609 = 0; j609 < 1; j609++) { // numbers of a value
                const i64 v610 = j609 * 8;
                for (i64 j611 = 0; j611 < 1; j611++) { // lanes
                    const i64 v612 = j611 * 16;
                    SYNC;
                    const f32 v613 = local9[v612 + lane];
                    f32 r615 = 0.0f;
                    f32 r616 = 0.0f;
                    f32 r617 = 0.0f;
                    f32 r618 = 0.0f;
                    f32 r619 = 0.0f;
                    f32 r620 = 0.0f;
                    f32 r621 = 0.0f;
                    f32 r622 = 0.0f;
                    for (i64 j623 = 0; j623 < 64; j623++) { // step
                        const i64 v624 = j623 * 16;
                        const f32 v626 = local4[(v612 + v624) + lane];
                        const i64 v627 = v610 + v624;
                        const f32 v628 = local3[v627];
                        const f32 v630 = r615;
                        const f32 v631 = s_fma_f32(v628, v626, v630);
                        r615 = v631;
                        const f32 v634 = local3[(v627 + 1)];
                        const f32 v636 = r616;
                        const f32 v637 = s_fma_f32(v634, v626, v636);
                        r616 = v637;
                        const f32 v640 = local3[(v627 + 2)];
                        const f32 v642 = r617;
                        const f32 v643 = s_fma_f32(v640, v626, v642);
                        r617 = v643;
                        const f32 v647 = local3[(v627 + 3)];
                        const f32 v649 = r618;
                        const f32 v650 = s_fma_f32(v647, v626, v649);
                        r618 = v650;
                        const f32 v654 = local3[(v627 + 4)];
                        const f32 v656 = r619;
                        const f32 v657 = s_fma_f32(v654, v626, v656);
                        r619 = v657;
                        const f32 v661 = local3[(v627 + 5)];
                        const f32 v663 = r620;
                        const f32 v664 = s_fma_f32(v661, v626, v663);
                        r620 = v664;
                        const f32 v668 = local3[(v627 + 6)];
                        const f32 v670 = r621;
                        const f32 v671 = s_fma_f32(v668, v626, v670);
                        r621 = v671;
                        const f32 v674 = local3[(v627 + 7)];
                        const f32 v676 = r622;
                        const f32 v677 = s_fma_f32(v674, v626, v676);
                        r622 = v677;
                    }
                    const i64 v682 = v612 + (j609 * 128);
                    const f32 v683 = local11[v682 + lane];
                    const f32 v684 = v683 * v613;
                    const f32 v685 = r615;
                    const f32 v686 = v684 + v685;
                    SYNC;
                    local11[v682 + lane] = v686;
                    const i64 v690 = v612 + ((v610 + 1) * 16);
                    SYNC;
                    const f32 v691 = local11[v690 + lane];
                    const f32 v692 = v691 * v613;
                    const f32 v693 = r616;
                    const f32 v694 = v692 + v693;
                    SYNC;
                    local11[v690 + lane] = v694;
                    const i64 v698 = v612 + ((v610 + 2) * 16);
                    SYNC;
                    const f32 v699 = local11[v698 + lane];
                    const f32 v700 = v699 * v613;
                    const f32 v701 = r617;
                    const f32 v702 = v700 + v701;
                    SYNC;
                    local11[v698 + lane] = v702;
                    const i64 v707 = v612 + ((v610 + 3) * 16);
                    SYNC;
                    const f32 v708 = local11[v707 + lane];
                    const f32 v709 = v708 * v613;
                    const f32 v710 = r618;
                    const f32 v711 = v709 + v710;
                    SYNC;
                    local11[v707 + lane] = v711;
                    const i64 v716 = v612 + ((v610 + 4) * 16);
                    SYNC;
                    const f32 v717 = local11[v716 + lane];
                    const f32 v718 = v717 * v613;
                    const f32 v719 = r619;
                    const f32 v720 = v718 + v719;
                    SYNC;
                    local11[v716 + lane] = v720;
                    const i64 v725 = v612 + ((v610 + 5) * 16);
                    SYNC;
                    const f32 v726 = local11[v725 + lane];
                    const f32 v727 = v726 * v613;
                    const f32 v728 = r620;
                    const f32 v729 = v727 + v728;
                    SYNC;
                    local11[v725 + lane] = v729;
                    const i64 v734 = v612 + ((v610 + 6) * 16);
                    SYNC;
                    const f32 v735 = local11[v734 + lane];
                    const f32 v736 = v735 * v613;
                    const f32 v737 = r621;
                    const f32 v738 = v736 + v737;
                    SYNC;
                    local11[v734 + lane] = v738;
                    const i64 v742 = v612 + ((v610 + 7) * 16);
                    SYNC;
                    const f32 v743 = local11[v742 + lane];
                    const f32 v744 = v743 * v613;
                    const f32 v745 = r622;
                    const f32 v746 = v744 + v745;
                    SYNC;
                    local11[v742 + lane] = v746;
                }
            }
        }
        for (i64 j752 = 0; j752 < 1; j752++) { // 16 rows
            for (i64 j754 = 0; j754 < 1; j754++) { // 16 columns
                const i64 v757 = (j754 * 16) + (j752 * 256);
                SYNC;
                const f32 v758 = local11[v757 + lane];
                const f32 v760 = local11[(v757 + 16) + lane];
                const f32 v763 = local11[(v757 + 32) + lane];
                const f32 v766 = local11[(v757 + 48) + lane];
                const f32 v768 = local11[(v757 + 64) + lane];
                const f32 v771 = local11[(v757 + 80) + lane];
                const f32 v774 = local11[(v757 + 96) + lane];
                const f32 v777 = local11[(v757 + 112) + lane];
                const f32 v780 = local11[(v757 + 128) + lane];
                const f32 v783 = local11[(v757 + 144) + lane];
                const f32 v786 = local11[(v757 + 160) + lane];
                const f32 v789 = local11[(v757 + 176) + lane];
                const f32 v792 = local11[(v757 + 192) + lane];
                const f32 v795 = local11[(v757 + 208) + lane];
                const f32 v798 = local11[(v757 + 224) + lane];
                const f32 v801 = local11[(v757 + 240) + lane];
                const f32 v802 = zip_f32(SELF, v758, v780, 0);
                const f32 v803 = zip_f32(SELF, v758, v780, 8);
                const f32 v804 = zip_f32(SELF, v760, v783, 0);
                const f32 v805 = zip_f32(SELF, v760, v783, 8);
                const f32 v806 = zip_f32(SELF, v763, v786, 0);
                const f32 v807 = zip_f32(SELF, v763, v786, 8);
                const f32 v808 = zip_f32(SELF, v766, v789, 0);
                const f32 v809 = zip_f32(SELF, v766, v789, 8);
                const f32 v810 = zip_f32(SELF, v768, v792, 0);
                const f32 v811 = zip_f32(SELF, v768, v792, 8);
                const f32 v812 = zip_f32(SELF, v771, v795, 0);
                const f32 v813 = zip_f32(SELF, v771, v795, 8);
                const f32 v814 = zip_f32(SELF, v774, v798, 0);
                const f32 v815 = zip_f32(SELF, v774, v798, 8);
                const f32 v816 = zip_f32(SELF, v777, v801, 0);
                const f32 v817 = zip_f32(SELF, v777, v801, 8);
                const f32 v818 = zip_f32(SELF, v802, v810, 0);
                const f32 v819 = zip_f32(SELF, v802, v810, 8);
                const f32 v820 = zip_f32(SELF, v803, v811, 0);
                const f32 v821 = zip_f32(SELF, v803, v811, 8);
                const f32 v822 = zip_f32(SELF, v804, v812, 0);
                const f32 v823 = zip_f32(SELF, v804, v812, 8);
                const f32 v824 = zip_f32(SELF, v805, v813, 0);
                const f32 v825 = zip_f32(SELF, v805, v813, 8);
                const f32 v826 = zip_f32(SELF, v806, v814, 0);
                const f32 v827 = zip_f32(SELF, v806, v814, 8);
                const f32 v828 = zip_f32(SELF, v807, v815, 0);
                const f32 v829 = zip_f32(SELF, v807, v815, 8);
                const f32 v830 = zip_f32(SELF, v808, v816, 0);
                const f32 v831 = zip_f32(SELF, v808, v816, 8);
                const f32 v832 = zip_f32(SELF, v809, v817, 0);
                const f32 v833 = zip_f32(SELF, v809, v817, 8);
                const f32 v834 = zip_f32(SELF, v818, v826, 0);
                const f32 v835 = zip_f32(SELF, v818, v826, 8);
                const f32 v836 = zip_f32(SELF, v819, v827, 0);
                const f32 v837 = zip_f32(SELF, v819, v827, 8);
                const f32 v838 = zip_f32(SELF, v820, v828, 0);
                const f32 v839 = zip_f32(SELF, v820, v828, 8);
                const f32 v840 = zip_f32(SELF, v821, v829, 0);
                const f32 v841 = zip_f32(SELF, v821, v829, 8);
                const f32 v842 = zip_f32(SELF, v822, v830, 0);
                const f32 v843 = zip_f32(SELF, v822, v830, 8);
                const f32 v844 = zip_f32(SELF, v823, v831, 0);
                const f32 v845 = zip_f32(SELF, v823, v831, 8);
                const f32 v846 = zip_f32(SELF, v824, v832, 0);
                const f32 v847 = zip_f32(SELF, v824, v832, 8);
                const f32 v848 = zip_f32(SELF, v825, v833, 0);
                const f32 v849 = zip_f32(SELF, v825, v833, 8);
                const f32 v850 = zip_f32(SELF, v834, v842, 0);
                const f32 v851 = zip_f32(SELF, v834, v842, 8);
                const f32 v852 = zip_f32(SELF, v835, v843, 0);
                const f32 v853 = zip_f32(SELF, v835, v843, 8);
                const f32 v854 = zip_f32(SELF, v836, v844, 0);
                const f32 v855 = zip_f32(SELF, v836, v844, 8);
                const f32 v856 = zip_f32(SELF, v837, v845, 0);
                const f32 v857 = zip_f32(SELF, v837, v845, 8);
                const f32 v858 = zip_f32(SELF, v838, v846, 0);
                const f32 v859 = zip_f32(SELF, v838, v846, 8);
                const f32 v860 = zip_f32(SELF, v839, v847, 0);
                const f32 v861 = zip_f32(SELF, v839, v847, 8);
                const f32 v862 = zip_f32(SELF, v840, v848, 0);
                const f32 v863 = zip_f32(SELF, v840, v848, 8);
                const f32 v864 = zip_f32(SELF, v841, v849, 0);
                const f32 v865 = zip_f32(SELF, v841, v849, 8);
                const i64 v876 = (j752 * 16) + (j754 * 256);
                local12[v876 + lane] = v850;
                local12[(v876 + 16) + lane] = v851;
                local12[(v876 + 32) + lane] = v852;
                local12[(v876 + 48) + lane] = v853;
                local12[(v876 + 64) + lane] = v854;
                local12[(v876 + 80) + lane] = v855;
                local12[(v876 + 96) + lane] = v856;
                local12[(v876 + 112) + lane] = v857;
                local12[(v876 + 128) + lane] = v858;
                local12[(v876 + 144) + lane] = v859;
                local12[(v876 + 160) + lane] = v860;
                local12[(v876 + 176) + lane] = v861;
                local12[(v876 + 192) + lane] = v862;
                local12[(v876 + 208) + lane] = v863;
                local12[(v876 + 224) + lane] = v864;
                local12[(v876 + 240) + lane] = v865;
            }
        }
        for (i64 j910 = 0; j910 < 9; j910++) { // row of the result
            const i64 v911 = j910 / 9;
            const i64 v912 = j910 % 9;
            SYNC;
            const f32 v913 = local8[j910];
            const f32 v914 = local6[j910];
            const bool v915 = v913 == 0.0f;
            const bool v917 = v914 == -__builtin_inff();
            const f32 v918 = v917 ? 0.0f : v914;
            const f32 v919 = s_log_f32(v913);
            const f32 v920 = v918 + v919;
            if (lane == 0) out16[(v912 + ((j7 * 9) + (v911 * 9)))] = v920;
            for (i64 j926 = lane; j926 < 8; j926 += 16) { // number of a value
                const f32 v928 = local12[((j910 * 16) + j926)];
                const f32 v929 = v928 + 0.0f;
                const f32 v930 = v929 / v913;
                const f32 v931 = v915 ? 0.0f : v930;
                out17[(j926 + (((j7 * 72) + (v911 * 72)) + (v912 * 8)))] = v931;
            }
        }
    }
}

