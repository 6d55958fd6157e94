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
KERNEL(16) k_0854ca4d84ce44d66f8159c1447e9361(GLOBAL u8 *b0, GLOBAL u8 *b1, GLOBAL u8 *b2, GLOBAL u8 *b3, GLOBAL u8 *b4, GLOBAL u8 *b5, GLOBAL u8 *b6, GLOBAL u8 *b7, i64 o0, i64 o1, i64 o2, i64 o3, i64 o4, i64 o5, i64 o6, i64 o7, i64 begin, i64 end, GLOBAL u8 *scratch) {
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
                            const i32 v672 = (i32)((v36 + v670));
                            const bool v673 = v670 < v38;
                            const i64 v674 = v554 + 2;
                            const i32 v676 = (i32)((v36 + v674));
                            const bool v677 = v674 < v38;
                            const i64 v679 = v554 + 3;
                            const i32 v681 = (i32)((v36 + v679));
                            const bool v682 = v679 < v38;
                            const i64 v683 = v554 + 4;
                            const i32 v685 = (i32)((v36 + v683));
                            const bool v686 = v683 < v38;
                            const i64 v688 = v554 + 5;
                            const i32 v690 = (i32)((v36 + v688));
                            const bool v691 = v688 < v38;
                            const i64 v693 = v554 + 6;
                            const i32 v695 = (i32)((v36 + v693));
                            const bool v696 = v693 < v38;
                            const i64 v698 = v554 + 7;
                            const i32 v700 = (i32)((v36 + v698));
                            const bool v701 = v698 < v38;
                            const bool v706 = v668 <= v664;
                            const f32 v707 = r565;
                            const f32 v709 = v707 * 0.353553385f;
                            const f32 v711 = v706 ? v709 : -__builtin_inff();
                            const f32 v712 = v669 ? v711 : -__builtin_inff();
                            const f32 v713 = v712 - v558;
                            const f32 v714 = s_exp_f32(v713);
                            const i64 v715 = v557 + (j553 * 512);
                            local5[v715 + lane] = v714;
                            const bool v717 = v668 <= v665;
                            const f32 v718 = r566;
                            const f32 v719 = v718 * 0.353553385f;
                            const f32 v720 = v717 ? v719 : -__builtin_inff();
                            const f32 v721 = v669 ? v720 : -__builtin_inff();
                            const f32 v722 = v721 - v561;
                            const f32 v723 = s_exp_f32(v722);
                            const i64 v724 = v715 + 16;
                            local5[v724 + lane] = v723;
                            const bool v729 = v672 <= v664;
                            const f32 v730 = r567;
                            const f32 v731 = v730 * 0.353553385f;
                            const f32 v732 = v729 ? v731 : -__builtin_inff();
                            const f32 v733 = v673 ? v732 : -__builtin_inff();
                            const f32 v734 = v733 - v558;
                            const f32 v735 = s_exp_f32(v734);
                            const i64 v736 = v557 + (v670 * 64);
                            local5[v736 + lane] = v735;
                            const bool v738 = v672 <= v665;
                            const f32 v739 = r568;
                            const f32 v740 = v739 * 0.353553385f;
                            const f32 v741 = v738 ? v740 : -__builtin_inff();
                            const f32 v742 = v673 ? v741 : -__builtin_inff();
                            const f32 v743 = v742 - v561;
                            const f32 v744 = s_exp_f32(v743);
                            const i64 v745 = v736 + 16;
                            local5[v745 + lane] = v744;
                            const bool v750 = v676 <= v664;
                            const f32 v751 = r569;
                            const f32 v752 = v751 * 0.353553385f;
                            const f32 v753 = v750 ? v752 : -__builtin_inff();
                            const f32 v754 = v677 ? v753 : -__builtin_inff();
                            const f32 v755 = v754 - v558;
                            const f32 v756 = s_exp_f32(v755);
                            const i64 v757 = v557 + (v674 * 64);
                            local5[v757 + lane] = v756;
                            const bool v759 = v676 <= v665;
                            const f32 v760 = r570;
                            const f32 v761 = v760 * 0.353553385f;
                            const f32 v762 = v759 ? v761 : -__builtin_inff();
                            const f32 v763 = v677 ? v762 : -__builtin_inff();
                            const f32 v764 = v763 - v561;
                            const f32 v765 = s_exp_f32(v764);
                            const i64 v766 = v757 + 16;
                            local5[v766 + lane] = v765;
                            const bool v771 = v681 <= v664;
                            const f32 v772 = r571;
                            const f32 v773 = v772 * 0.353553385f;
                            const f32 v774 = v771 ? v773 : -__builtin_inff();
                            const f32 v775 = v682 ? v774 : -__builtin_inff();
                            const f32 v776 = v775 - v558;
                            const f32 v777 = s_exp_f32(v776);
                            const i64 v778 = v557 + (v679 * 64);
                            local5[v778 + lane] = v777;
                            const bool v780 = v681 <= v665;
                            const f32 v781 = r572;
                            const f32 v782 = v781 * 0.353553385f;
                            const f32 v783 = v780 ? v782 : -__builtin_inff();
                            const f32 v784 = v682 ? v783 : -__builtin_inff();
                            const f32 v785 = v784 - v561;
                            const f32 v786 = s_exp_f32(v785);
                            const i64 v787 = v778 + 16;
                            local5[v787 + lane] = v786;
                            const bool v792 = v685 <= v664;
                            const f32 v793 = r573;
                            const f32 v794 = v793 * 0.353553385f;
                            const f32 v795 = v792 ? v794 : -__builtin_inff();
                            const f32 v796 = v686 ? v795 : -__builtin_inff();
                            const f32 v797 = v796 - v558;
                            const f32 v798 = s_exp_f32(v797);
                            const i64 v799 = v557 + (v683 * 64);
                            local5[v799 + lane] = v798;
                            const bool v801 = v685 <= v665;
                            const f32 v802 = r574;
                            const f32 v803 = v802 * 0.353553385f;
                            const f32 v804 = v801 ? v803 : -__builtin_inff();
                            const f32 v805 = v686 ? v804 : -__builtin_inff();
                            const f32 v806 = v805 - v561;
                            const f32 v807 = s_exp_f32(v806);
                            const i64 v808 = v799 + 16;
                            local5[v808 + lane] = v807;
                            const bool v813 = v690 <= v664;
                            const f32 v814 = r575;
                            const f32 v815 = v814 * 0.353553385f;
                            const f32 v816 = v813 ? v815 : -__builtin_inff();
                            const f32 v817 = v691 ? v816 : -__builtin_inff();
                            const f32 v818 = v817 - v558;
                            const f32 v819 = s_exp_f32(v818);
                            const i64 v820 = v557 + (v688 * 64);
                            local5[v820 + lane] = v819;
                            const bool v822 = v690 <= v665;
                            const f32 v823 = r576;
                            const f32 v824 = v823 * 0.353553385f;
                            const f32 v825 = v822 ? v824 : -__builtin_inff();
                            const f32 v826 = v691 ? v825 : -__builtin_inff();
                            const f32 v827 = v826 - v561;
                            const f32 v828 = s_exp_f32(v827);
                            const i64 v829 = v820 + 16;
                            local5[v829 + lane] = v828;
                            const bool v834 = v695 <= v664;
                            const f32 v835 = r577;
                            const f32 v836 = v835 * 0.353553385f;
                            const f32 v837 = v834 ? v836 : -__builtin_inff();
                            const f32 v838 = v696 ? v837 : -__builtin_inff();
                            const f32 v839 = v838 - v558;
                            const f32 v840 = s_exp_f32(v839);
                            const i64 v841 = v557 + (v693 * 64);
                            local5[v841 + lane] = v840;
                            const bool v843 = v695 <= v665;
                            const f32 v844 = r578;
                            const f32 v845 = v844 * 0.353553385f;
                            const f32 v846 = v843 ? v845 : -__builtin_inff();
                            const f32 v847 = v696 ? v846 : -__builtin_inff();
                            const f32 v848 = v847 - v561;
                            const f32 v849 = s_exp_f32(v848);
                            const i64 v850 = v841 + 16;
                            local5[v850 + lane] = v849;
                            const bool v855 = v700 <= v664;
                            const f32 v856 = r579;
                            const f32 v857 = v856 * 0.353553385f;
                            const f32 v858 = v855 ? v857 : -__builtin_inff();
                            const f32 v859 = v701 ? v858 : -__builtin_inff();
                            const f32 v860 = v859 - v558;
                            const f32 v861 = s_exp_f32(v860);
                            const i64 v862 = v557 + (v698 * 64);
                            local5[v862 + lane] = v861;
                            const bool v864 = v700 <= v665;
                            const f32 v865 = r580;
                            const f32 v866 = v865 * 0.353553385f;
                            const f32 v867 = v864 ? v866 : -__builtin_inff();
                            const f32 v868 = v701 ? v867 : -__builtin_inff();
                            const f32 v869 = v868 - v561;
                            const f32 v870 = s_exp_f32(v869);
                            const i64 v871 = v862 + 16;
                            local5[v871 + lane] = v870;
                            f32 r873 = 0.0f;
                            f32 r874 = 0.0f;
                            f32 r875 = 0.0f;
                            f32 r876 = 0.0f;
                            f32 r877 = 0.0f;
                            f32 r878 = 0.0f;
                            f32 r879 = 0.0f;
                            f32 r880 = 0.0f;
                            f32 r881 = 0.0f;
                            f32 r882 = 0.0f;
                            f32 r883 = 0.0f;
                            f32 r884 = 0.0f;
                            f32 r885 = 0.0f;
                            f32 r886 = 0.0f;
                            f32 r887 = 0.0f;
                            f32 r888 = 0.0f;
                            for (i64 j889 = 0; j889 < 8; j889++) { // step
                                const i64 v891 = v557 + (j889 * 64);
                                const f32 v892 = local8[v891 + lane];
                                const f32 v894 = local8[(v891 + 16) + lane];
                                const i64 v895 = v563 + j889;
                                const f32 v896 = local4[v895];
                                const f32 v898 = r873;
                                const f32 v899 = s_fma_f32(v896, v892, v898);
                                r873 = v899;
                                const f32 v901 = r874;
                                const f32 v902 = s_fma_f32(v896, v894, v901);
                                r874 = v902;
                                const f32 v905 = local4[(v895 + 16)];
                                const f32 v907 = r875;
                                const f32 v908 = s_fma_f32(v905, v892, v907);
                                r875 = v908;
                                const f32 v910 = r876;
                                const f32 v911 = s_fma_f32(v905, v894, v910);
                                r876 = v911;
                                const f32 v914 = local4[(v895 + 32)];
                                const f32 v916 = r877;
                                const f32 v917 = s_fma_f32(v914, v892, v916);
                                r877 = v917;
                                const f32 v919 = r878;
                                const f32 v920 = s_fma_f32(v914, v894, v919);
                                r878 = v920;
                                const f32 v924 = local4[(v895 + 48)];
                                const f32 v926 = r879;
                                const f32 v927 = s_fma_f32(v924, v892, v926);
                                r879 = v927;
                                const f32 v929 = r880;
                                const f32 v930 = s_fma_f32(v924, v894, v929);
                                r880 = v930;
                                const f32 v933 = local4[(v895 + 64)];
                                const f32 v935 = r881;
                                const f32 v936 = s_fma_f32(v933, v892, v935);
                                r881 = v936;
                                const f32 v938 = r882;
                                const f32 v939 = s_fma_f32(v933, v894, v938);
                                r882 = v939;
                                const f32 v943 = local4[(v895 + 80)];
                                const f32 v945 = r883;
                                const f32 v946 = s_fma_f32(v943, v892, v945);
                                r883 = v946;
                                const f32 v948 = r884;
                                const f32 v949 = s_fma_f32(v943, v894, v948);
                                r884 = v949;
                                const f32 v953 = local4[(v895 + 96)];
                                const f32 v955 = r885;
                                const f32 v956 = s_fma_f32(v953, v892, v955);
                                r885 = v956;
                                const f32 v958 = r886;
                                const f32 v959 = s_fma_f32(v953, v894, v958);
                                r886 = v959;
                                const f32 v963 = local4[(v895 + 112)];
                                const f32 v965 = r887;
                                const f32 v966 = s_fma_f32(v963, v892, v965);
                                r887 = v966;
                                const f32 v968 = r888;
                                const f32 v969 = s_fma_f32(v963, v894, v968);
                                r888 = v969;
                            }
                            const f32 v972 = local11[v557 + lane];
                            const f32 v973 = local11[v560 + lane];
                            const f32 v975 = r873;
                            const f32 v976 = v975 - v972;
                            const f32 v977 = v714 * v976;
                            const f32 v978 = v977 * 0.353553385f;
                            local9[v715 + lane] = v978;
                            const f32 v980 = r874;
                            const f32 v981 = v980 - v973;
                            const f32 v982 = v723 * v981;
                            const f32 v983 = v982 * 0.353553385f;
                            local9[v724 + lane] = v983;
                            const f32 v985 = r875;
                            const f32 v986 = v985 - v972;
                            const f32 v987 = v735 * v986;
                            const f32 v988 = v987 * 0.353553385f;
                            local9[v736 + lane] = v988;
                            const f32 v990 = r876;
                            const f32 v991 = v990 - v973;
                            const f32 v992 = v744 * v991;
                            const f32 v993 = v992 * 0.353553385f;
                            local9[v745 + lane] = v993;
                            const f32 v995 = r877;
                            const f32 v996 = v995 - v972;
                            const f32 v997 = v756 * v996;
                            const f32 v998 = v997 * 0.353553385f;
                            local9[v757 + lane] = v998;
                            const f32 v1000 = r878;
                            const f32 v1001 = v1000 - v973;
                            const f32 v1002 = v765 * v1001;
                            const f32 v1003 = v1002 * 0.353553385f;
                            local9[v766 + lane] = v1003;
                            const f32 v1005 = r879;
                            const f32 v1006 = v1005 - v972;
                            const f32 v1007 = v777 * v1006;
                            const f32 v1008 = v1007 * 0.353553385f;
                            local9[v778 + lane] = v1008;
                            const f32 v1010 = r880;
                            const f32 v1011 = v1010 - v973;
                            const f32 v1012 = v786 * v1011;
                            const f32 v1013 = v1012 * 0.353553385f;
                            local9[v787 + lane] = v1013;
                            const f32 v1015 = r881;
                            const f32 v1016 = v1015 - v972;
                            const f32 v1017 = v798 * v1016;
                            const f32 v1018 = v1017 * 0.353553385f;
                            local9[v799 + lane] = v1018;
                            const f32 v1020 = r882;
                            const f32 v1021 = v1020 - v973;
                            const f32 v1022 = v807 * v1021;
                            const f32 v1023 = v1022 * 0.353553385f;
                            local9[v808 + lane] = v1023;
                            const f32 v1025 = r883;
                            const f32 v1026 = v1025 - v972;
                            const f32 v1027 = v819 * v1026;
                            const f32 v1028 = v1027 * 0.353553385f;
                            local9[v820 + lane] = v1028;
                            const f32 v1030 = r884;
                            const f32 v1031 = v1030 - v973;
                            const f32 v1032 = v828 * v1031;
                            const f32 v1033 = v1032 * 0.353553385f;
                            local9[v829 + lane] = v1033;
                            const f32 v1035 = r885;
                            const f32 v1036 = v1035 - v972;
                            const f32 v1037 = v840 * v1036;
                            const f32 v1038 = v1037 * 0.353553385f;
                            local9[v841 + lane] = v1038;
                            const f32 v1040 = r886;
                            const f32 v1041 = v1040 - v973;
                            const f32 v1042 = v849 * v1041;
                            const f32 v1043 = v1042 * 0.353553385f;
                            local9[v850 + lane] = v1043;
                            const f32 v1045 = r887;
                            const f32 v1046 = v1045 - v972;
                            const f32 v1047 = v861 * v1046;
                            const f32 v1048 = v1047 * 0.353553385f;
                            local9[v862 + lane] = v1048;
                            const f32 v1050 = r888;
                            const f32 v1051 = v1050 - v973;
                            const f32 v1052 = v870 * v1051;
                            const f32 v1053 = v1052 * 0.353553385f;
                            local9[v871 + lane] = v1053;
                        }
                    }
                    for (i64 j1057 = 0; j1057 < 8; j1057++) { // rows
                        const i64 v1058 = j1057 * 8;
                        f32 r1063 = 0.0f;
                        f32 r1064 = 0.0f;
                        f32 r1065 = 0.0f;
                        f32 r1066 = 0.0f;
                        f32 r1067 = 0.0f;
                        f32 r1068 = 0.0f;
                        f32 r1069 = 0.0f;
                        f32 r1070 = 0.0f;
                        for (i64 j1071 = 0; j1071 < 64; j1071++) { // step
                            SYNC;
                            const f32 v1073 = local7[(j1071 * 16) + lane];
                            const i64 v1074 = (j1057 * 512) + j1071;
                            const f32 v1075 = local5[v1074];
                            const f32 v1077 = r1063;
                            const f32 v1078 = s_fma_f32(v1075, v1073, v1077);
                            r1063 = v1078;
                            const f32 v1081 = local5[(v1074 + 64)];
                            const f32 v1083 = r1064;
                            const f32 v1084 = s_fma_f32(v1081, v1073, v1083);
                            r1064 = v1084;
                            const f32 v1088 = local5[(v1074 + 128)];
                            const f32 v1090 = r1065;
                            const f32 v1091 = s_fma_f32(v1088, v1073, v1090);
                            r1065 = v1091;
                            const f32 v1095 = local5[(v1074 + 192)];
                            const f32 v1097 = r1066;
                            const f32 v1098 = s_fma_f32(v1095, v1073, v1097);
                            r1066 = v1098;
                            const f32 v1102 = local5[(v1074 + 256)];
                            const f32 v1104 = r1067;
                            const f32 v1105 = s_fma_f32(v1102, v1073, v1104);
                            r1067 = v1105;
                            const f32 v1109 = local5[(v1074 + 320)];
                            const f32 v1111 = r1068;
                            const f32 v1112 = s_fma_f32(v1109, v1073, v1111);
                            r1068 = v1112;
                            const f32 v1116 = local5[(v1074 + 384)];
                            const f32 v1118 = r1069;
                            const f32 v1119 = s_fma_f32(v1116, v1073, v1118);
                            r1069 = v1119;
                            const f32 v1123 = local5[(v1074 + 448)];
                            const f32 v1125 = r1070;
                            const f32 v1126 = s_fma_f32(v1123, v1073, v1125);
                            r1070 = v1126;
                        }
                        const i64 v1130 = j1057 * 128;
                        SYNC;
                        const f32 v1131 = local14[v1130 + lane];
                        const f32 v1132 = r1063;
                        const f32 v1133 = v1131 + v1132;
                        SYNC;
                        local14[v1130 + lane] = v1133;
                        const i64 v1136 = (v1058 + 1) * 16;
                        SYNC;
                        const f32 v1137 = local14[v1136 + lane];
                        const f32 v1138 = r1064;
                        const f32 v1139 = v1137 + v1138;
                        SYNC;
                        local14[v1136 + lane] = v1139;
                        const i64 v1142 = (v1058 + 2) * 16;
                        SYNC;
                        const f32 v1143 = local14[v1142 + lane];
                        const f32 v1144 = r1065;
                        const f32 v1145 = v1143 + v1144;
                        SYNC;
                        local14[v1142 + lane] = v1145;
                        const i64 v1149 = (v1058 + 3) * 16;
                        SYNC;
                        const f32 v1150 = local14[v1149 + lane];
                        const f32 v1151 = r1066;
                        const f32 v1152 = v1150 + v1151;
                        SYNC;
                        local14[v1149 + lane] = v1152;
                        const i64 v1155 = (v1058 + 4) * 16;
                        SYNC;
                        const f32 v1156 = local14[v1155 + lane];
                        const f32 v1157 = r1067;
                        const f32 v1158 = v1156 + v1157;
                        SYNC;
                        local14[v1155 + lane] = v1158;
                        const i64 v1162 = (v1058 + 5) * 16;
                        SYNC;
                        const f32 v1163 = local14[v1162 + lane];
                        const f32 v1164 = r1068;
                        const f32 v1165 = v1163 + v1164;
                        SYNC;
                        local14[v1162 + lane] = v1165;
                        const i64 v1169 = (v1058 + 6) * 16;
                        SYNC;
                        const f32 v1170 = local14[v1169 + lane];
                        const f32 v1171 = r1069;
                        const f32 v1172 = v1170 + v1171;
                        SYNC;
                        local14[v1169 + lane] = v1172;
                        const i64 v1176 = (v1058 + 7) * 16;
                        SYNC;
                        const f32 v1177 = local14[v1176 + lane];
                        const f32 v1178 = r1070;
                        const f32 v1179 = v1177 + v1178;
                        SYNC;
                        local14[v1176 + lane] = v1179;
                    }
                    for (i64 j1182 = 0; j1182 < 8; j1182++) { // rows
                        const i64 v1183 = j1182 * 8;
                        f32 r1188 = 0.0f;
                        f32 r1189 = 0.0f;
                        f32 r1190 = 0.0f;
                        f32 r1191 = 0.0f;
                        f32 r1192 = 0.0f;
                        f32 r1193 = 0.0f;
                        f32 r1194 = 0.0f;
                        f32 r1195 = 0.0f;
                        for (i64 j1196 = 0; j1196 < 64; j1196++) { // step
                            SYNC;
                            const f32 v1198 = local1[(j1196 * 16) + lane];
                            const i64 v1199 = (j1182 * 512) + j1196;
                            const f32 v1200 = local9[v1199];
                            const f32 v1202 = r1188;
                            const f32 v1203 = s_fma_f32(v1200, v1198, v1202);
                            r1188 = v1203;
                            const f32 v1206 = local9[(v1199 + 64)];
                            const f32 v1208 = r1189;
                            const f32 v1209 = s_fma_f32(v1206, v1198, v1208);
                            r1189 = v1209;
                            const f32 v1213 = local9[(v1199 + 128)];
                            const f32 v1215 = r1190;
                            const f32 v1216 = s_fma_f32(v1213, v1198, v1215);
                            r1190 = v1216;
                            const f32 v1220 = local9[(v1199 + 192)];
                            const f32 v1222 = r1191;
                            const f32 v1223 = s_fma_f32(v1220, v1198, v1222);
                            r1191 = v1223;
                            const f32 v1227 = local9[(v1199 + 256)];
                            const f32 v1229 = r1192;
                            const f32 v1230 = s_fma_f32(v1227, v1198, v1229);
                            r1192 = v1230;
                            const f32 v1234 = local9[(v1199 + 320)];
                            const f32 v1236 = r1193;
                            const f32 v1237 = s_fma_f32(v1234, v1198, v1236);
                            r1193 = v1237;
                            const f32 v1241 = local9[(v1199 + 384)];
                            const f32 v1243 = r1194;
                            const f32 v1244 = s_fma_f32(v1241, v1198, v1243);
                            r1194 = v1244;
                            const f32 v1248 = local9[(v1199 + 448)];
                            const f32 v1250 = r1195;
                            const f32 v1251 = s_fma_f32(v1248, v1198, v1250);
                            r1195 = v1251;
                        }
                        const i64 v1255 = j1182 * 128;
                        SYNC;
                        const f32 v1256 = local13[v1255 + lane];
                        const f32 v1257 = r1188;
                        const f32 v1258 = v1256 + v1257;
                        SYNC;
                        local13[v1255 + lane] = v1258;
                        const i64 v1261 = (v1183 + 1) * 16;
                        SYNC;
                        const f32 v1262 = local13[v1261 + lane];
                        const f32 v1263 = r1189;
                        const f32 v1264 = v1262 + v1263;
                        SYNC;
                        local13[v1261 + lane] = v1264;
                        const i64 v1267 = (v1183 + 2) * 16;
                        SYNC;
                        const f32 v1268 = local13[v1267 + lane];
                        const f32 v1269 = r1190;
                        const f32 v1270 = v1268 + v1269;
                        SYNC;
                        local13[v1267 + lane] = v1270;
                        const i64 v1274 = (v1183 + 3) * 16;
                        SYNC;
                        const f32 v1275 = local13[v1274 + lane];
                        const f32 v1276 = r1191;
                        const f32 v1277 = v1275 + v1276;
                        SYNC;
                        local13[v1274 + lane] = v1277;
                        const i64 v1280 = (v1183 + 4) * 16;
                        SYNC;
                        const f32 v1281 = local13[v1280 + lane];
                        const f32 v1282 = r1192;
                        const f32 v1283 = v1281 + v1282;
                        SYNC;
                        local13[v1280 + lane] = v1283;
                        const i64 v1287 = (v1183 + 5) * 16;
                        SYNC;
                        const f32 v1288 = local13[v1287 + lane];
                        const f32 v1289 = r1193;
                        const f32 v1290 = v1288 + v1289;
                        SYNC;
                        local13[v1287 + lane] = v1290;
                        const i64 v1294 = (v1183 + 6) * 16;
                        SYNC;
                        const f32 v1295 = local13[v1294 + lane];
                        const f32 v1296 = r1194;
                        const f32 v1297 = v1295 + v1296;
                        SYNC;
                        local13[v1294 + lane] = v1297;
                        const i64 v1301 = (v1183 + 7) * 16;
                        SYNC;
                        const f32 v1302 = local13[v1301 + lane];
                        const f32 v1303 = r1195;
                        const f32 v1304 = v1302 + v1303;
                        SYNC;
                        local13[v1301 + lane] = v1304;
                    }
                    for (i64 j1307 = lane; j1307 < 1024; j1307 += 16) { // fill
                        local12[j1307] = 0.0f;
                    }
                    for (i64 j1310 = 0; j1310 < 8; j1310++) { // rows
                        const i64 v1311 = j1310 * 8;
                        f32 r1314 = 0.0f;
                        f32 r1315 = 0.0f;
                        f32 r1316 = 0.0f;
                        f32 r1317 = 0.0f;
                        f32 r1318 = 0.0f;
                        f32 r1319 = 0.0f;
                        f32 r1320 = 0.0f;
                        f32 r1321 = 0.0f;
                        for (i64 j1322 = 0; j1322 < 64; j1322++) { // step
                            SYNC;
                            const f32 v1324 = local3[(j1322 * 16) + lane];
                            const i64 v1326 = v1311 + (j1322 * 64);
                            const f32 v1327 = local9[v1326];
                            const f32 v1329 = r1314;
                            const f32 v1330 = s_fma_f32(v1327, v1324, v1329);
                            r1314 = v1330;
                            const f32 v1333 = local9[(v1326 + 1)];
                            const f32 v1335 = r1315;
                            const f32 v1336 = s_fma_f32(v1333, v1324, v1335);
                            r1315 = v1336;
                            const f32 v1339 = local9[(v1326 + 2)];
                            const f32 v1341 = r1316;
                            const f32 v1342 = s_fma_f32(v1339, v1324, v1341);
                            r1316 = v1342;
                            const f32 v1346 = local9[(v1326 + 3)];
                            const f32 v1348 = r1317;
                            const f32 v1349 = s_fma_f32(v1346, v1324, v1348);
                            r1317 = v1349;
                            const f32 v1352 = local9[(v1326 + 4)];
                            const f32 v1354 = r1318;
                            const f32 v1355 = s_fma_f32(v1352, v1324, v1354);
                            r1318 = v1355;
                            const f32 v1359 = local9[(v1326 + 5)];
                            const f32 v1361 = r1319;
                            const f32 v1362 = s_fma_f32(v1359, v1324, v1361);
                            r1319 = v1362;
                            const f32 v1366 = local9[(v1326 + 6)];
                            const f32 v1368 = r1320;
                            const f32 v1369 = s_fma_f32(v1366, v1324, v1368);
                            r1320 = v1369;
                            const f32 v1373 = local9[(v1326 + 7)];
                            const f32 v1375 = r1321;
                            const f32 v1376 = s_fma_f32(v1373, v1324, v1375);
                            r1321 = v1376;
                        }
                        const i64 v1380 = j1310 * 128;
                        SYNC;
                        const f32 v1381 = local12[v1380 + lane];
                        const f32 v1382 = r1314;
                        const f32 v1383 = v1381 + v1382;
                        SYNC;
                        local12[v1380 + lane] = v1383;
                        const i64 v1386 = (v1311 + 1) * 16;
                        SYNC;
                        const f32 v1387 = local12[v1386 + lane];
                        const f32 v1388 = r1315;
                        const f32 v1389 = v1387 + v1388;
                        SYNC;
                        local12[v1386 + lane] = v1389;
                        const i64 v1392 = (v1311 + 2) * 16;
                        SYNC;
                        const f32 v1393 = local12[v1392 + lane];
                        const f32 v1394 = r1316;
                        const f32 v1395 = v1393 + v1394;
                        SYNC;
                        local12[v1392 + lane] = v1395;
                        const i64 v1399 = (v1311 + 3) * 16;
                        SYNC;
                        const f32 v1400 = local12[v1399 + lane];
                        const f32 v1401 = r1317;
                        const f32 v1402 = v1400 + v1401;
                        SYNC;
                        local12[v1399 + lane] = v1402;
                        const i64 v1405 = (v1311 + 4) * 16;
                        SYNC;
                        const f32 v1406 = local12[v1405 + lane];
                        const f32 v1407 = r1318;
                        const f32 v1408 = v1406 + v1407;
                        SYNC;
                        local12[v1405 + lane] = v1408;
                        const i64 v1412 = (v1311 + 5) * 16;
                        SYNC;
                        const f32 v1413 = local12[v1412 + lane];
                        const f32 v1414 = r1319;
                        const f32 v1415 = v1413 + v1414;
                        SYNC;
                        local12[v1412 + lane] = v1415;
                        const i64 v1419 = (v1311 + 6) * 16;
                        SYNC;
                        const f32 v1420 = local12[v1419 + lane];
                        const f32 v1421 = r1320;
                        const f32 v1422 = v1420 + v1421;
                        SYNC;
                        local12[v1419 + lane] = v1422;
                        const i64 v1426 = (v1311 + 7) * 16;
                        SYNC;
                        const f32 v1427 = local12[v1426 + lane];
                        const f32 v1428 = r1321;
                        const f32 v1429 = v1427 + v1428;
                        SYNC;
                        local12[v1426 + lane] = v1429;
                    }
                    for (i64 j1432 = 0; j1432 < v101; j1432++) { // row of what queries get
                        SYNC;
                        for (i64 j1437 = lane; j1437 < 8; j1437 += 16) { // number of a query
                            const f32 v1441 = local12[(j1437 + (j1432 * 16))];
                            const i64 v1442 = (((v99 + j1432) + (j7 * 9)) * 8) + j1437;
                            const f32 v1443 = io0[v1442];
                            const f32 v1444 = v1443 + v1441;
                            io0[v1442] = v1444;
                        }
                    }
                }
            }
            for (i64 j1450 = 0; j1450 < v38; j1450++) { // key
                SYNC;
                for (i64 j1453 = lane; j1453 < 8; j1453 += 16) { // number of a key
                    const f32 v1456 = local13[((j1450 * 16) + j1453)];
                    out20[(j1453 + ((j7 * 560) + ((v36 + j1450) * 8)))] = v1456;
                }
            }
            for (i64 j1465 = 0; j1465 < v38; j1465++) { // key
                SYNC;
                for (i64 j1468 = lane; j1468 < 8; j1468 += 16) { // number of a key
                    const f32 v1471 = local14[((j1465 * 16) + j1468)];
                    out21[(j1468 + ((j7 * 560) + ((v36 + j1465) * 8)))] = v1471;
                }
            }
        }
    }
}

