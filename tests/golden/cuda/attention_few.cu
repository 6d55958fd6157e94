// kernel 0, launched 1 times, first for attention
// CUDA: 64 threads a block, which runs 4 rows; bytes of a block: 36864 of shared memory, 0 of scratch
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
KERNEL(64) k_0dc5f5d68f3814b1efe992b0cfbbff51(GLOBAL u8 *b0, GLOBAL u8 *b1, GLOBAL u8 *b2, GLOBAL u8 *b3, GLOBAL u8 *b4, i64 o0, i64 o1, i64 o2, i64 o3, i64 o4, i64 begin, i64 end) {
    const i64 lane = THREAD & 15, group = THREAD >> 4;
    const i64 row = begin + BLOCK * 4 + group;
    const u32 mask = 0xffffu << (THREAD & 16);
    SHARED f32 s0[128]; LOCAL f32 *local0 = s0 + group * 32;
    SHARED f32 s1[4096]; LOCAL f32 *local1 = s1 + group * 1024;
    SHARED f32 s2[4096]; LOCAL f32 *local2 = s2 + group * 1024;
    SHARED f32 s3[512]; LOCAL f32 *local3 = s3 + group * 128;
    SHARED i32 s4[8]; LOCAL i32 *local4 = s4 + group * 2;
    SHARED f32 s5[8]; LOCAL f32 *local5 = s5 + group * 2;
    SHARED f32 s6[8]; LOCAL f32 *local6 = s6 + group * 2;
    SHARED f32 s7[8]; LOCAL f32 *local7 = s7 + group * 2;
    SHARED f32 s8[128]; LOCAL f32 *local8 = s8 + group * 32;
    GLOBAL const f32 *restrict in9 = (GLOBAL const f32 *)(b0 + o0); // f32
    GLOBAL const f32 *restrict in10 = (GLOBAL const f32 *)(b1 + o1); // f32
    GLOBAL const f32 *restrict in11 = (GLOBAL const f32 *)(b2 + o2); // f32
    GLOBAL f32 *restrict out12 = (GLOBAL f32 *)(b3 + o3); // f32
    GLOBAL f32 *restrict out13 = (GLOBAL f32 *)(b4 + o4); // f32
    const i64 j3 = row; // heads
    if (row < end) {
        for (i64 j7 = lane; j7 < 32; j7 += 16) { // fill
            local0[j7] = 0.0f;
        }
        for (i64 j12 = lane; j12 < 1024; j12 += 16) { // fill
            local1[j12] = 0.0f;
        }
        for (i64 j16 = lane; j16 < 1024; j16 += 16) { // fill
            local2[j16] = 0.0f;
        }
        for (i64 j20 = 0; j20 < 2; j20++) { // row
            const i64 v22 = s_min_i64(j20, 1);
            const i64 v23 = v22 / 2;
            const i32 v29 = (i32)(s_min_i64(s_max_i64((v22 % 2), -1073741824), 1073741824));
            if (lane == 0) local4[j20] = v29;
        }
        for (i64 j32 = 0; j32 < 2; j32++) { // row
            SYNC;
            for (i64 j38 = lane; j38 < 8; j38 += 16) { // number of a row
                const f32 v45 = in9[(j38 + (((j3 * 16) + ((j32 / 2) * 16)) + ((j32 % 2) * 8)))];
                local0[((j32 * 16) + j38)] = v45;
            }
        }
        for (i64 j50 = 0; j50 < 0; j50++) { // row beyond the last
            SYNC;
            for (i64 j54 = lane; j54 < 16; j54 += 16) { // number of a row
                local0[(((j50 + 2) * 16) + j54)] = 0.0f;
            }
        }
        for (i64 j60 = lane; j60 < 32; j60 += 16) { // fill
            local8[j60] = 0.0f;
        }
        if (lane == 0) local5[0] = -__builtin_inff();
        if (lane == 0) local6[0] = 0.0f;
        if (lane == 0) local5[1] = -__builtin_inff();
        if (lane == 0) local6[1] = 0.0f;
        for (i64 j74 = 0; j74 < 1; j74++) { // block of keys
            const i64 v75 = j74 * 64;
            const i64 v77 = s_min_i64((2 - v75), 64);
            const bool v78 = v77 == 64;
            for (i64 j79 = 0; j79 < v77; j79++) { // key
                SYNC;
                for (i64 j83 = lane; j83 < 8; j83 += 16) { // number of a key
                    const f32 v90 = in10[(j83 + ((j3 * 560) + ((v75 + j79) * 8)))];
                    local1[((j79 * 16) + j83)] = v90;
                }
            }
            const i64 v95 = 64 - v77;
            for (i64 j96 = 0; j96 < v95; j96++) { // row beyond the last
                SYNC;
                for (i64 j100 = lane; j100 < 16; j100 += 16) { // number of a row
                    local1[(((v77 + j96) * 16) + j100)] = 0.0f;
                }
            }
            for (i64 j106 = 0; j106 < 4; j106++) { // 16 keys
                const i64 v108 = j106 * 16;
                f32 r110 = 0.0f;
                f32 r111 = 0.0f;
                const i64 v113 = j106 * 256;
                SYNC;
                const f32 v114 = local1[v113 + lane];
                const f32 v116 = local1[(v113 + 16) + lane];
                const f32 v118 = local1[(v113 + 32) + lane];
                const f32 v121 = local1[(v113 + 48) + lane];
                const f32 v123 = local1[(v113 + 64) + lane];
                const f32 v126 = local1[(v113 + 80) + lane];
                const f32 v129 = local1[(v113 + 96) + lane];
                const f32 v132 = local1[(v113 + 112) + lane];
                const f32 v135 = local1[(v113 + 128) + lane];
                const f32 v138 = local1[(v113 + 144) + lane];
                const f32 v141 = local1[(v113 + 160) + lane];
                const f32 v144 = local1[(v113 + 176) + lane];
                const f32 v147 = local1[(v113 + 192) + lane];
                const f32 v150 = local1[(v113 + 208) + lane];
                const f32 v153 = local1[(v113 + 224) + lane];
                const f32 v156 = local1[(v113 + 240) + lane];
                const f32 v157 = zip_f32(SELF, v114, v135, 0);
                const f32 v158 = zip_f32(SELF, v114, v135, 8);
                const f32 v159 = zip_f32(SELF, v116, v138, 0);
                const f32 v160 = zip_f32(SELF, v116, v138, 8);
                const f32 v161 = zip_f32(SELF, v118, v141, 0);
                const f32 v162 = zip_f32(SELF, v118, v141, 8);
                const f32 v163 = zip_f32(SELF, v121, v144, 0);
                const f32 v164 = zip_f32(SELF, v121, v144, 8);
                const f32 v165 = zip_f32(SELF, v123, v147, 0);
                const f32 v166 = zip_f32(SELF, v123, v147, 8);
                const f32 v167 = zip_f32(SELF, v126, v150, 0);
                const f32 v168 = zip_f32(SELF, v126, v150, 8);
                const f32 v169 = zip_f32(SELF, v129, v153, 0);
                const f32 v170 = zip_f32(SELF, v129, v153, 8);
                const f32 v171 = zip_f32(SELF, v132, v156, 0);
                const f32 v172 = zip_f32(SELF, v132, v156, 8);
                const f32 v173 = zip_f32(SELF, v157, v165, 0);
                const f32 v174 = zip_f32(SELF, v157, v165, 8);
                const f32 v175 = zip_f32(SELF, v158, v166, 0);
                const f32 v176 = zip_f32(SELF, v158, v166, 8);
                const f32 v177 = zip_f32(SELF, v159, v167, 0);
                const f32 v178 = zip_f32(SELF, v159, v167, 8);
                const f32 v179 = zip_f32(SELF, v160, v168, 0);
                const f32 v180 = zip_f32(SELF, v160, v168, 8);
                const f32 v181 = zip_f32(SELF, v161, v169, 0);
                const f32 v182 = zip_f32(SELF, v161, v169, 8);
                const f32 v183 = zip_f32(SELF, v162, v170, 0);
                const f32 v184 = zip_f32(SELF, v162, v170, 8);
                const f32 v185 = zip_f32(SELF, v163, v171, 0);
                const f32 v186 = zip_f32(SELF, v163, v171, 8);
                const f32 v187 = zip_f32(SELF, v164, v172, 0);
                const f32 v188 = zip_f32(SELF, v164, v172, 8);
                const f32 v189 = zip_f32(SELF, v173, v181, 0);
                const f32 v190 = zip_f32(SELF, v173, v181, 8);
                const f32 v191 = zip_f32(SELF, v174, v182, 0);
                const f32 v192 = zip_f32(SELF, v174, v182, 8);
                const f32 v193 = zip_f32(SELF, v175, v183, 0);
                const f32 v194 = zip_f32(SELF, v175, v183, 8);
                const f32 v195 = zip_f32(SELF, v176, v184, 0);
                const f32 v196 = zip_f32(SELF, v176, v184, 8);
                const f32 v197 = zip_f32(SELF, v177, v185, 0);
                const f32 v198 = zip_f32(SELF, v177, v185, 8);
                const f32 v199 = zip_f32(SELF, v178, v186, 0);
                const f32 v200 = zip_f32(SELF, v178, v186, 8);
                const f32 v201 = zip_f32(SELF, v179, v187, 0);
                const f32 v202 = zip_f32(SELF, v179, v187, 8);
                const f32 v203 = zip_f32(SELF, v180, v188, 0);
                const f32 v204 = zip_f32(SELF, v180, v188, 8);
                const f32 v205 = zip_f32(SELF, v189, v197, 0);
                const f32 v206 = zip_f32(SELF, v189, v197, 8);
                const f32 v207 = zip_f32(SELF, v190, v198, 0);
                const f32 v208 = zip_f32(SELF, v190, v198, 8);
                const f32 v209 = zip_f32(SELF, v191, v199, 0);
                const f32 v210 = zip_f32(SELF, v191, v199, 8);
                const f32 v211 = zip_f32(SELF, v192, v200, 0);
                const f32 v212 = zip_f32(SELF, v192, v200, 8);
                const f32 v213 = zip_f32(SELF, v193, v201, 0);
                const f32 v214 = zip_f32(SELF, v193, v201, 8);
                const f32 v215 = zip_f32(SELF, v194, v202, 0);
                const f32 v216 = zip_f32(SELF, v194, v202, 8);
                const f32 v217 = zip_f32(SELF, v195, v203, 0);
                const f32 v218 = zip_f32(SELF, v195, v203, 8);
                const f32 v219 = zip_f32(SELF, v196, v204, 0);
                const f32 v220 = zip_f32(SELF, v196, v204, 8);
                const f32 v233 = local0[0];
                const f32 v235 = r110;
                const f32 v236 = s_fma_f32(v205, v233, v235);
                r110 = v236;
                const f32 v238 = local0[16];
                const f32 v240 = r111;
                const f32 v241 = s_fma_f32(v205, v238, v240);
                r111 = v241;
                const f32 v243 = local0[1];
                const f32 v245 = r110;
                const f32 v246 = s_fma_f32(v206, v243, v245);
                r110 = v246;
                const f32 v249 = local0[17];
                const f32 v251 = r111;
                const f32 v252 = s_fma_f32(v206, v249, v251);
                r111 = v252;
                const f32 v254 = local0[2];
                const f32 v256 = r110;
                const f32 v257 = s_fma_f32(v207, v254, v256);
                r110 = v257;
                const f32 v260 = local0[18];
                const f32 v262 = r111;
                const f32 v263 = s_fma_f32(v207, v260, v262);
                r111 = v263;
                const f32 v265 = local0[3];
                const f32 v267 = r110;
                const f32 v268 = s_fma_f32(v208, v265, v267);
                r110 = v268;
                const f32 v271 = local0[19];
                const f32 v273 = r111;
                const f32 v274 = s_fma_f32(v208, v271, v273);
                r111 = v274;
                const f32 v276 = local0[4];
                const f32 v278 = r110;
                const f32 v279 = s_fma_f32(v209, v276, v278);
                r110 = v279;
                const f32 v282 = local0[20];
                const f32 v284 = r111;
                const f32 v285 = s_fma_f32(v209, v282, v284);
                r111 = v285;
                const f32 v287 = local0[5];
                const f32 v289 = r110;
                const f32 v290 = s_fma_f32(v210, v287, v289);
                r110 = v290;
                const f32 v293 = local0[21];
                const f32 v295 = r111;
                const f32 v296 = s_fma_f32(v210, v293, v295);
                r111 = v296;
                const f32 v298 = local0[6];
                const f32 v300 = r110;
                const f32 v301 = s_fma_f32(v211, v298, v300);
                r110 = v301;
                const f32 v304 = local0[22];
                const f32 v306 = r111;
                const f32 v307 = s_fma_f32(v211, v304, v306);
                r111 = v307;
                const f32 v309 = local0[7];
                const f32 v311 = r110;
                const f32 v312 = s_fma_f32(v212, v309, v311);
                r110 = v312;
                const f32 v315 = local0[23];
                const f32 v317 = r111;
                const f32 v318 = s_fma_f32(v212, v315, v317);
                r111 = v318;
                const i32 v320 = local4[0];
                const i64 v323 = lane * 1;
                const i64 v325 = v323 + v108;
                const bool v327 = v325 < v77;
                const i64 v330 = v323 + (v75 + v108);
                const i32 v331 = (i32)(v330);
                const bool v333 = v331 <= v320;
                const f32 v334 = r110;
                const f32 v336 = v334 * 0.353553385f;
                const f32 v338 = v333 ? v336 : -__builtin_inff();
                const f32 v339 = v327 ? v338 : -__builtin_inff();
                local3[v108 + lane] = v339;
                const i32 v341 = local4[1];
                const bool v343 = v331 <= v341;
                const f32 v344 = r111;
                const f32 v345 = v344 * 0.353553385f;
                const f32 v346 = v343 ? v345 : -__builtin_inff();
                const f32 v347 = v327 ? v346 : -__builtin_inff();
                local3[(v108 + 64) + lane] = v347;
            }
            SYNC;
            f32 a353 = -__builtin_inff();
            for (i64 j351 = lane; j351 < 64; j351 += 16) { // key
                const f32 v352 = local3[j351];
                a353 = s_max_f32(a353, v352);
            }
            const f32 v353 = fold_max_f32(SELF, a353);
            const f32 v355 = local5[0];
            const f32 v356 = s_max_f32(v355, v353);
            const bool v357 = v356 == -__builtin_inff();
            const f32 v358 = v357 ? 0.0f : v356;
            const f32 v359 = v355 - v358;
            const f32 v360 = s_exp_f32(v359);
            SYNC;
            if (lane == 0) local5[0] = v356;
            if (lane == 0) local7[0] = v360;
            f32 a367 = 0.0f;
            for (i64 j363 = lane; j363 < 64; j363 += 16) { // key
                const f32 v364 = local3[j363];
                const f32 v365 = v364 - v358;
                const f32 v366 = s_exp_f32(v365);
                a367 = s_add_f32(a367, v366);
                local3[j363] = v366;
            }
            const f32 v367 = fold_add_f32(SELF, a367);
            const f32 v370 = local6[0];
            const f32 v371 = v370 * v360;
            const f32 v372 = v371 + v367;
            SYNC;
            if (lane == 0) local6[0] = v372;
            f32 a377 = -__builtin_inff();
            for (i64 j374 = lane; j374 < 64; j374 += 16) { // key
                const f32 v376 = local3[(j374 + 64)];
                a377 = s_max_f32(a377, v376);
            }
            const f32 v377 = fold_max_f32(SELF, a377);
            const f32 v379 = local5[1];
            const f32 v380 = s_max_f32(v379, v377);
            const bool v381 = v380 == -__builtin_inff();
            const f32 v382 = v381 ? 0.0f : v380;
            const f32 v383 = v379 - v382;
            const f32 v384 = s_exp_f32(v383);
            SYNC;
            if (lane == 0) local5[1] = v380;
            if (lane == 0) local7[1] = v384;
            f32 a392 = 0.0f;
            for (i64 j387 = lane; j387 < 64; j387 += 16) { // key
                const i64 v388 = j387 + 64;
                const f32 v389 = local3[v388];
                const f32 v390 = v389 - v382;
                const f32 v391 = s_exp_f32(v390);
                a392 = s_add_f32(a392, v391);
                local3[v388] = v391;
            }
            const f32 v392 = fold_add_f32(SELF, a392);
            const f32 v395 = local6[1];
            const f32 v396 = v395 * v384;
            const f32 v397 = v396 + v392;
            SYNC;
            if (lane == 0) local6[1] = v397;
            for (i64 j399 = 0; j399 < v77; j399++) { // key
                SYNC;
                for (i64 j403 = lane; j403 < 8; j403 += 16) { // number of a key
                    const f32 v410 = in11[(j403 + ((j3 * 560) + ((v75 + j399) * 8)))];
                    local2[((j399 * 16) + j403)] = v410;
                }
            }
            for (i64 j415 = 0; j415 < v95; j415++) { // row beyond the last
                SYNC;
                for (i64 j419 = lane; j419 < 16; j419 += 16) { // number of a row
                    local2[(((v77 + j415) * 16) + j419)] = 0.0f;
                }
            }
            f32 r426 = 0.0f;
            f32 r427 = 0.0f;
            for (i64 j428 = 0; j428 < v77; j428++) { // key
                SYNC;
                const f32 v430 = local2[(j428 * 16) + lane];
                const f32 v431 = local3[j428];
                const f32 v433 = r426;
                const f32 v434 = s_fma_f32(v431, v430, v433);
                r426 = v434;
                const f32 v437 = local3[(j428 + 64)];
                const f32 v439 = r427;
                const f32 v440 = s_fma_f32(v437, v430, v439);
                r427 = v440;
            }
            const f32 v443 = local7[0];
            const f32 v444 = local8[0 + lane];
            const f32 v446 = v444 * v443;
            const f32 v447 = r426;
            const f32 v448 = v446 + v447;
            SYNC;
            local8[0 + lane] = v448;
            const f32 v450 = local7[1];
            SYNC;
            const f32 v451 = local8[16 + lane];
            const f32 v453 = v451 * v450;
            const f32 v454 = r427;
            const f32 v455 = v453 + v454;
            SYNC;
            local8[16 + lane] = v455;
        }
        SYNC;
        const f32 v458 = local6[0];
        const f32 v459 = local5[0];
        const bool v460 = v458 == 0.0f;
        const bool v461 = v459 == -__builtin_inff();
        const f32 v462 = v461 ? 0.0f : v459;
        const f32 v463 = s_log_f32(v458);
        const f32 v464 = v462 + v463;
        const i64 v465 = j3 * 2;
        if (lane == 0) out12[v465] = v464;
        for (i64 j468 = lane; j468 < 8; j468 += 16) { // number of a value
            const f32 v469 = local8[j468];
            const f32 v470 = v469 + 0.0f;
            const f32 v471 = v470 / v458;
            const f32 v472 = v460 ? 0.0f : v471;
            out13[(j468 + (j3 * 16))] = v472;
        }
        const f32 v478 = local6[1];
        const f32 v479 = local5[1];
        const bool v480 = v478 == 0.0f;
        const bool v481 = v479 == -__builtin_inff();
        const f32 v482 = v481 ? 0.0f : v479;
        const f32 v483 = s_log_f32(v478);
        const f32 v484 = v482 + v483;
        if (lane == 0) out12[(v465 + 1)] = v484;
        for (i64 j487 = lane; j487 < 8; j487 += 16) { // number of a value
            const f32 v490 = local8[(j487 + 16)];
            const f32 v491 = v490 + 0.0f;
            const f32 v492 = v491 / v478;
            const f32 v493 = v480 ? 0.0f : v492;
            out13[(j487 + ((j3 * 16) + 8))] = v493;
        }
    }
}

