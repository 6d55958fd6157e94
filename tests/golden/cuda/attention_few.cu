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
KERNEL(64) k_eda66f07373d02ef4d468687e3ed3764(GLOBAL u8 *b0, GLOBAL u8 *b1, GLOBAL u8 *b2, GLOBAL u8 *b3, GLOBAL u8 *b4, i64 o0, i64 o1, i64 o2, i64 o3, i64 o4, i64 begin, i64 end) {
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
            for (i64 j105 = 0; j105 < 2; j105++) { // keys
                const i64 v106 = j105 * 32;
                f32 r108 = 0.0f;
                f32 r109 = 0.0f;
                f32 r110 = 0.0f;
                f32 r111 = 0.0f;
                const i64 v114 = j105 * 512;
                SYNC;
                const f32 v115 = local1[v114 + lane];
                const f32 v117 = local1[(v114 + 16) + lane];
                const f32 v119 = local1[(v114 + 32) + lane];
                const f32 v122 = local1[(v114 + 48) + lane];
                const f32 v124 = local1[(v114 + 64) + lane];
                const f32 v127 = local1[(v114 + 80) + lane];
                const f32 v130 = local1[(v114 + 96) + lane];
                const f32 v133 = local1[(v114 + 112) + lane];
                const f32 v136 = local1[(v114 + 128) + lane];
                const f32 v139 = local1[(v114 + 144) + lane];
                const f32 v142 = local1[(v114 + 160) + lane];
                const f32 v145 = local1[(v114 + 176) + lane];
                const f32 v148 = local1[(v114 + 192) + lane];
                const f32 v151 = local1[(v114 + 208) + lane];
                const f32 v154 = local1[(v114 + 224) + lane];
                const f32 v157 = local1[(v114 + 240) + lane];
                const f32 v158 = zip_f32(SELF, v115, v136, 0);
                const f32 v159 = zip_f32(SELF, v115, v136, 8);
                const f32 v160 = zip_f32(SELF, v117, v139, 0);
                const f32 v161 = zip_f32(SELF, v117, v139, 8);
                const f32 v162 = zip_f32(SELF, v119, v142, 0);
                const f32 v163 = zip_f32(SELF, v119, v142, 8);
                const f32 v164 = zip_f32(SELF, v122, v145, 0);
                const f32 v165 = zip_f32(SELF, v122, v145, 8);
                const f32 v166 = zip_f32(SELF, v124, v148, 0);
                const f32 v167 = zip_f32(SELF, v124, v148, 8);
                const f32 v168 = zip_f32(SELF, v127, v151, 0);
                const f32 v169 = zip_f32(SELF, v127, v151, 8);
                const f32 v170 = zip_f32(SELF, v130, v154, 0);
                const f32 v171 = zip_f32(SELF, v130, v154, 8);
                const f32 v172 = zip_f32(SELF, v133, v157, 0);
                const f32 v173 = zip_f32(SELF, v133, v157, 8);
                const f32 v174 = zip_f32(SELF, v158, v166, 0);
                const f32 v175 = zip_f32(SELF, v158, v166, 8);
                const f32 v176 = zip_f32(SELF, v159, v167, 0);
                const f32 v177 = zip_f32(SELF, v159, v167, 8);
                const f32 v178 = zip_f32(SELF, v160, v168, 0);
                const f32 v179 = zip_f32(SELF, v160, v168, 8);
                const f32 v180 = zip_f32(SELF, v161, v169, 0);
                const f32 v181 = zip_f32(SELF, v161, v169, 8);
                const f32 v182 = zip_f32(SELF, v162, v170, 0);
                const f32 v183 = zip_f32(SELF, v162, v170, 8);
                const f32 v184 = zip_f32(SELF, v163, v171, 0);
                const f32 v185 = zip_f32(SELF, v163, v171, 8);
                const f32 v186 = zip_f32(SELF, v164, v172, 0);
                const f32 v187 = zip_f32(SELF, v164, v172, 8);
                const f32 v188 = zip_f32(SELF, v165, v173, 0);
                const f32 v189 = zip_f32(SELF, v165, v173, 8);
                const f32 v190 = zip_f32(SELF, v174, v182, 0);
                const f32 v191 = zip_f32(SELF, v174, v182, 8);
                const f32 v192 = zip_f32(SELF, v175, v183, 0);
                const f32 v193 = zip_f32(SELF, v175, v183, 8);
                const f32 v194 = zip_f32(SELF, v176, v184, 0);
                const f32 v195 = zip_f32(SELF, v176, v184, 8);
                const f32 v196 = zip_f32(SELF, v177, v185, 0);
                const f32 v197 = zip_f32(SELF, v177, v185, 8);
                const f32 v198 = zip_f32(SELF, v178, v186, 0);
                const f32 v199 = zip_f32(SELF, v178, v186, 8);
                const f32 v200 = zip_f32(SELF, v179, v187, 0);
                const f32 v201 = zip_f32(SELF, v179, v187, 8);
                const f32 v202 = zip_f32(SELF, v180, v188, 0);
                const f32 v203 = zip_f32(SELF, v180, v188, 8);
                const f32 v204 = zip_f32(SELF, v181, v189, 0);
                const f32 v205 = zip_f32(SELF, v181, v189, 8);
                const f32 v206 = zip_f32(SELF, v190, v198, 0);
                const f32 v207 = zip_f32(SELF, v190, v198, 8);
                const f32 v208 = zip_f32(SELF, v191, v199, 0);
                const f32 v209 = zip_f32(SELF, v191, v199, 8);
                const f32 v210 = zip_f32(SELF, v192, v200, 0);
                const f32 v211 = zip_f32(SELF, v192, v200, 8);
                const f32 v212 = zip_f32(SELF, v193, v201, 0);
                const f32 v213 = zip_f32(SELF, v193, v201, 8);
                const f32 v214 = zip_f32(SELF, v194, v202, 0);
                const f32 v215 = zip_f32(SELF, v194, v202, 8);
                const f32 v216 = zip_f32(SELF, v195, v203, 0);
                const f32 v217 = zip_f32(SELF, v195, v203, 8);
                const f32 v218 = zip_f32(SELF, v196, v204, 0);
                const f32 v219 = zip_f32(SELF, v196, v204, 8);
                const f32 v220 = zip_f32(SELF, v197, v205, 0);
                const f32 v221 = zip_f32(SELF, v197, v205, 8);
                const f32 v224 = local1[(v114 + 256) + lane];
                const f32 v227 = local1[(v114 + 272) + lane];
                const f32 v230 = local1[(v114 + 288) + lane];
                const f32 v233 = local1[(v114 + 304) + lane];
                const f32 v236 = local1[(v114 + 320) + lane];
                const f32 v239 = local1[(v114 + 336) + lane];
                const f32 v242 = local1[(v114 + 352) + lane];
                const f32 v245 = local1[(v114 + 368) + lane];
                const f32 v248 = local1[(v114 + 384) + lane];
                const f32 v251 = local1[(v114 + 400) + lane];
                const f32 v254 = local1[(v114 + 416) + lane];
                const f32 v257 = local1[(v114 + 432) + lane];
                const f32 v260 = local1[(v114 + 448) + lane];
                const f32 v263 = local1[(v114 + 464) + lane];
                const f32 v266 = local1[(v114 + 480) + lane];
                const f32 v269 = local1[(v114 + 496) + lane];
                const f32 v270 = zip_f32(SELF, v224, v248, 0);
                const f32 v271 = zip_f32(SELF, v224, v248, 8);
                const f32 v272 = zip_f32(SELF, v227, v251, 0);
                const f32 v273 = zip_f32(SELF, v227, v251, 8);
                const f32 v274 = zip_f32(SELF, v230, v254, 0);
                const f32 v275 = zip_f32(SELF, v230, v254, 8);
                const f32 v276 = zip_f32(SELF, v233, v257, 0);
                const f32 v277 = zip_f32(SELF, v233, v257, 8);
                const f32 v278 = zip_f32(SELF, v236, v260, 0);
                const f32 v279 = zip_f32(SELF, v236, v260, 8);
                const f32 v280 = zip_f32(SELF, v239, v263, 0);
                const f32 v281 = zip_f32(SELF, v239, v263, 8);
                const f32 v282 = zip_f32(SELF, v242, v266, 0);
                const f32 v283 = zip_f32(SELF, v242, v266, 8);
                const f32 v284 = zip_f32(SELF, v245, v269, 0);
                const f32 v285 = zip_f32(SELF, v245, v269, 8);
                const f32 v286 = zip_f32(SELF, v270, v278, 0);
                const f32 v287 = zip_f32(SELF, v270, v278, 8);
                const f32 v288 = zip_f32(SELF, v271, v279, 0);
                const f32 v289 = zip_f32(SELF, v271, v279, 8);
                const f32 v290 = zip_f32(SELF, v272, v280, 0);
                const f32 v291 = zip_f32(SELF, v272, v280, 8);
                const f32 v292 = zip_f32(SELF, v273, v281, 0);
                const f32 v293 = zip_f32(SELF, v273, v281, 8);
                const f32 v294 = zip_f32(SELF, v274, v282, 0);
                const f32 v295 = zip_f32(SELF, v274, v282, 8);
                const f32 v296 = zip_f32(SELF, v275, v283, 0);
                const f32 v297 = zip_f32(SELF, v275, v283, 8);
                const f32 v298 = zip_f32(SELF, v276, v284, 0);
                const f32 v299 = zip_f32(SELF, v276, v284, 8);
                const f32 v300 = zip_f32(SELF, v277, v285, 0);
                const f32 v301 = zip_f32(SELF, v277, v285, 8);
                const f32 v302 = zip_f32(SELF, v286, v294, 0);
                const f32 v303 = zip_f32(SELF, v286, v294, 8);
                const f32 v304 = zip_f32(SELF, v287, v295, 0);
                const f32 v305 = zip_f32(SELF, v287, v295, 8);
                const f32 v306 = zip_f32(SELF, v288, v296, 0);
                const f32 v307 = zip_f32(SELF, v288, v296, 8);
                const f32 v308 = zip_f32(SELF, v289, v297, 0);
                const f32 v309 = zip_f32(SELF, v289, v297, 8);
                const f32 v310 = zip_f32(SELF, v290, v298, 0);
                const f32 v311 = zip_f32(SELF, v290, v298, 8);
                const f32 v312 = zip_f32(SELF, v291, v299, 0);
                const f32 v313 = zip_f32(SELF, v291, v299, 8);
                const f32 v314 = zip_f32(SELF, v292, v300, 0);
                const f32 v315 = zip_f32(SELF, v292, v300, 8);
                const f32 v316 = zip_f32(SELF, v293, v301, 0);
                const f32 v317 = zip_f32(SELF, v293, v301, 8);
                const f32 v318 = zip_f32(SELF, v302, v310, 0);
                const f32 v319 = zip_f32(SELF, v302, v310, 8);
                const f32 v320 = zip_f32(SELF, v303, v311, 0);
                const f32 v321 = zip_f32(SELF, v303, v311, 8);
                const f32 v322 = zip_f32(SELF, v304, v312, 0);
                const f32 v323 = zip_f32(SELF, v304, v312, 8);
                const f32 v324 = zip_f32(SELF, v305, v313, 0);
                const f32 v325 = zip_f32(SELF, v305, v313, 8);
                const f32 v326 = zip_f32(SELF, v306, v314, 0);
                const f32 v327 = zip_f32(SELF, v306, v314, 8);
                const f32 v328 = zip_f32(SELF, v307, v315, 0);
                const f32 v329 = zip_f32(SELF, v307, v315, 8);
                const f32 v330 = zip_f32(SELF, v308, v316, 0);
                const f32 v331 = zip_f32(SELF, v308, v316, 8);
                const f32 v332 = zip_f32(SELF, v309, v317, 0);
                const f32 v333 = zip_f32(SELF, v309, v317, 8);
                const f32 v347 = local0[0];
                const f32 v349 = r108;
                const f32 v350 = s_fma_f32(v206, v347, v349);
                r108 = v350;
                const f32 v352 = r109;
                const f32 v353 = s_fma_f32(v318, v347, v352);
                r109 = v353;
                const f32 v355 = local0[16];
                const f32 v357 = r110;
                const f32 v358 = s_fma_f32(v206, v355, v357);
                r110 = v358;
                const f32 v360 = r111;
                const f32 v361 = s_fma_f32(v318, v355, v360);
                r111 = v361;
                const f32 v363 = local0[1];
                const f32 v365 = r108;
                const f32 v366 = s_fma_f32(v207, v363, v365);
                r108 = v366;
                const f32 v368 = r109;
                const f32 v369 = s_fma_f32(v319, v363, v368);
                r109 = v369;
                const f32 v372 = local0[17];
                const f32 v374 = r110;
                const f32 v375 = s_fma_f32(v207, v372, v374);
                r110 = v375;
                const f32 v377 = r111;
                const f32 v378 = s_fma_f32(v319, v372, v377);
                r111 = v378;
                const f32 v380 = local0[2];
                const f32 v382 = r108;
                const f32 v383 = s_fma_f32(v208, v380, v382);
                r108 = v383;
                const f32 v385 = r109;
                const f32 v386 = s_fma_f32(v320, v380, v385);
                r109 = v386;
                const f32 v389 = local0[18];
                const f32 v391 = r110;
                const f32 v392 = s_fma_f32(v208, v389, v391);
                r110 = v392;
                const f32 v394 = r111;
                const f32 v395 = s_fma_f32(v320, v389, v394);
                r111 = v395;
                const f32 v397 = local0[3];
                const f32 v399 = r108;
                const f32 v400 = s_fma_f32(v209, v397, v399);
                r108 = v400;
                const f32 v402 = r109;
                const f32 v403 = s_fma_f32(v321, v397, v402);
                r109 = v403;
                const f32 v406 = local0[19];
                const f32 v408 = r110;
                const f32 v409 = s_fma_f32(v209, v406, v408);
                r110 = v409;
                const f32 v411 = r111;
                const f32 v412 = s_fma_f32(v321, v406, v411);
                r111 = v412;
                const f32 v414 = local0[4];
                const f32 v416 = r108;
                const f32 v417 = s_fma_f32(v210, v414, v416);
                r108 = v417;
                const f32 v419 = r109;
                const f32 v420 = s_fma_f32(v322, v414, v419);
                r109 = v420;
                const f32 v423 = local0[20];
                const f32 v425 = r110;
                const f32 v426 = s_fma_f32(v210, v423, v425);
                r110 = v426;
                const f32 v428 = r111;
                const f32 v429 = s_fma_f32(v322, v423, v428);
                r111 = v429;
                const f32 v431 = local0[5];
                const f32 v433 = r108;
                const f32 v434 = s_fma_f32(v211, v431, v433);
                r108 = v434;
                const f32 v436 = r109;
                const f32 v437 = s_fma_f32(v323, v431, v436);
                r109 = v437;
                const f32 v440 = local0[21];
                const f32 v442 = r110;
                const f32 v443 = s_fma_f32(v211, v440, v442);
                r110 = v443;
                const f32 v445 = r111;
                const f32 v446 = s_fma_f32(v323, v440, v445);
                r111 = v446;
                const f32 v448 = local0[6];
                const f32 v450 = r108;
                const f32 v451 = s_fma_f32(v212, v448, v450);
                r108 = v451;
                const f32 v453 = r109;
                const f32 v454 = s_fma_f32(v324, v448, v453);
                r109 = v454;
                const f32 v457 = local0[22];
                const f32 v459 = r110;
                const f32 v460 = s_fma_f32(v212, v457, v459);
                r110 = v460;
                const f32 v462 = r111;
                const f32 v463 = s_fma_f32(v324, v457, v462);
                r111 = v463;
                const f32 v465 = local0[7];
                const f32 v467 = r108;
                const f32 v468 = s_fma_f32(v213, v465, v467);
                r108 = v468;
                const f32 v470 = r109;
                const f32 v471 = s_fma_f32(v325, v465, v470);
                r109 = v471;
                const f32 v474 = local0[23];
                const f32 v476 = r110;
                const f32 v477 = s_fma_f32(v213, v474, v476);
                r110 = v477;
                const f32 v479 = r111;
                const f32 v480 = s_fma_f32(v325, v474, v479);
                r111 = v480;
                const i32 v482 = local4[0];
                const i64 v485 = lane * 1;
                const i64 v487 = v485 + v106;
                const bool v489 = v487 < v77;
                const i64 v490 = v75 + v106;
                const i64 v492 = v485 + v490;
                const i32 v493 = (i32)(v492);
                const bool v495 = v493 <= v482;
                const f32 v496 = r108;
                const f32 v498 = v496 * 0.353553385f;
                const f32 v500 = v495 ? v498 : -__builtin_inff();
                const f32 v501 = v489 ? v500 : -__builtin_inff();
                local3[v106 + lane] = v501;
                const i64 v503 = v106 + 16;
                const i64 v505 = v485 + v503;
                const bool v506 = v505 < v77;
                const i64 v509 = v485 + (v490 + 16);
                const i32 v510 = (i32)(v509);
                const bool v511 = v510 <= v482;
                const f32 v512 = r109;
                const f32 v513 = v512 * 0.353553385f;
                const f32 v514 = v511 ? v513 : -__builtin_inff();
                const f32 v515 = v506 ? v514 : -__builtin_inff();
                local3[v503 + lane] = v515;
                const i32 v517 = local4[1];
                const bool v519 = v493 <= v517;
                const f32 v520 = r110;
                const f32 v521 = v520 * 0.353553385f;
                const f32 v522 = v519 ? v521 : -__builtin_inff();
                const f32 v523 = v489 ? v522 : -__builtin_inff();
                local3[(v106 + 64) + lane] = v523;
                const bool v526 = v510 <= v517;
                const f32 v527 = r111;
                const f32 v528 = v527 * 0.353553385f;
                const f32 v529 = v526 ? v528 : -__builtin_inff();
                const f32 v530 = v506 ? v529 : -__builtin_inff();
                local3[(v106 + 80) + lane] = v530;
            }
            SYNC;
            f32 a536 = -__builtin_inff();
            for (i64 j534 = lane; j534 < 64; j534 += 16) { // key
                const f32 v535 = local3[j534];
                a536 = s_max_f32(a536, v535);
            }
            const f32 v536 = fold_max_f32(SELF, a536);
            const f32 v538 = local5[0];
            const f32 v539 = s_max_f32(v538, v536);
            const bool v540 = v539 == -__builtin_inff();
            const f32 v541 = v540 ? 0.0f : v539;
            const f32 v542 = v538 - v541;
            const f32 v543 = s_exp_f32(v542);
            SYNC;
            if (lane == 0) local5[0] = v539;
            if (lane == 0) local7[0] = v543;
            f32 a550 = 0.0f;
            for (i64 j546 = lane; j546 < 64; j546 += 16) { // key
                const f32 v547 = local3[j546];
                const f32 v548 = v547 - v541;
                const f32 v549 = s_exp_f32(v548);
                a550 = s_add_f32(a550, v549);
                local3[j546] = v549;
            }
            const f32 v550 = fold_add_f32(SELF, a550);
            const f32 v553 = local6[0];
            const f32 v554 = v553 * v543;
            const f32 v555 = v554 + v550;
            SYNC;
            if (lane == 0) local6[0] = v555;
            f32 a560 = -__builtin_inff();
            for (i64 j557 = lane; j557 < 64; j557 += 16) { // key
                const f32 v559 = local3[(j557 + 64)];
                a560 = s_max_f32(a560, v559);
            }
            const f32 v560 = fold_max_f32(SELF, a560);
            const f32 v562 = local5[1];
            const f32 v563 = s_max_f32(v562, v560);
            const bool v564 = v563 == -__builtin_inff();
            const f32 v565 = v564 ? 0.0f : v563;
            const f32 v566 = v562 - v565;
            const f32 v567 = s_exp_f32(v566);
            SYNC;
            if (lane == 0) local5[1] = v563;
            if (lane == 0) local7[1] = v567;
            f32 a575 = 0.0f;
            for (i64 j570 = lane; j570 < 64; j570 += 16) { // key
                const i64 v571 = j570 + 64;
                const f32 v572 = local3[v571];
                const f32 v573 = v572 - v565;
                const f32 v574 = s_exp_f32(v573);
                a575 = s_add_f32(a575, v574);
                local3[v571] = v574;
            }
            const f32 v575 = fold_add_f32(SELF, a575);
            const f32 v578 = local6[1];
            const f32 v579 = v578 * v567;
            const f32 v580 = v579 + v575;
            SYNC;
            if (lane == 0) local6[1] = v580;
            for (i64 j582 = 0; j582 < v77; j582++) { // key
                SYNC;
                for (i64 j586 = lane; j586 < 8; j586 += 16) { // number of a key
                    const f32 v593 = in11[(j586 + ((j3 * 560) + ((v75 + j582) * 8)))];
                    local2[((j582 * 16) + j586)] = v593;
                }
            }
            for (i64 j598 = 0; j598 < v95; j598++) { // row beyond the last
                SYNC;
                for (i64 j602 = lane; j602 < 16; j602 += 16) { // number of a row
                    local2[(((v77 + j598) * 16) + j602)] = 0.0f;
                }
            }
            f32 r609 = 0.0f;
            f32 r610 = 0.0f;
            for (i64 j611 = 0; j611 < v77; j611++) { // key
                SYNC;
                const f32 v613 = local2[(j611 * 16) + lane];
                const f32 v614 = local3[j611];
                const f32 v616 = r609;
                const f32 v617 = s_fma_f32(v614, v613, v616);
                r609 = v617;
                const f32 v620 = local3[(j611 + 64)];
                const f32 v622 = r610;
                const f32 v623 = s_fma_f32(v620, v613, v622);
                r610 = v623;
            }
            const f32 v626 = local7[0];
            const f32 v627 = local8[0 + lane];
            const f32 v629 = v627 * v626;
            const f32 v630 = r609;
            const f32 v631 = v629 + v630;
            SYNC;
            local8[0 + lane] = v631;
            const f32 v633 = local7[1];
            SYNC;
            const f32 v634 = local8[16 + lane];
            const f32 v636 = v634 * v633;
            const f32 v637 = r610;
            const f32 v638 = v636 + v637;
            SYNC;
            local8[16 + lane] = v638;
        }
        SYNC;
        const f32 v641 = local6[0];
        const f32 v642 = local5[0];
        const bool v643 = v641 == 0.0f;
        const bool v644 = v642 == -__builtin_inff();
        const f32 v645 = v644 ? 0.0f : v642;
        const f32 v646 = s_log_f32(v641);
        const f32 v647 = v645 + v646;
        const i64 v648 = j3 * 2;
        if (lane == 0) out12[v648] = v647;
        for (i64 j651 = lane; j651 < 8; j651 += 16) { // number of a value
            const f32 v652 = local8[j651];
            const f32 v653 = v652 + 0.0f;
            const f32 v654 = v653 / v641;
            const f32 v655 = v643 ? 0.0f : v654;
            out13[(j651 + (j3 * 16))] = v655;
        }
        const f32 v661 = local6[1];
        const f32 v662 = local5[1];
        const bool v663 = v661 == 0.0f;
        const bool v664 = v662 == -__builtin_inff();
        const f32 v665 = v664 ? 0.0f : v662;
        const f32 v666 = s_log_f32(v661);
        const f32 v667 = v665 + v666;
        if (lane == 0) out12[(v648 + 1)] = v667;
        for (i64 j670 = lane; j670 < 8; j670 += 16) { // number of a value
            const f32 v673 = local8[(j670 + 16)];
            const f32 v674 = v673 + 0.0f;
            const f32 v675 = v674 / v661;
            const f32 v676 = v663 ? 0.0f : v675;
            out13[(j670 + ((j3 * 16) + 8))] = v676;
        }
    }
}

