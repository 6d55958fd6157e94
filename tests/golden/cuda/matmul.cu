// kernel 0, launched 1 times, first for matmul
// CUDA: 16 threads a block, which runs 1 rows; bytes of a block: 1280 of shared memory, 65536 of scratch
KERNEL(16) k_648b2159a1a2313e1d2ee073e07c6508(GLOBAL u8 *b0, GLOBAL u8 *b1, GLOBAL u8 *b2, i64 o0, i64 o1, i64 o2, i64 begin, i64 end, GLOBAL u8 *scratch) {
    const i64 lane = THREAD & 15, group = THREAD >> 4;
    const i64 row = begin + BLOCK * 1 + group;
    const u32 mask = 0xffffu << (THREAD & 16);
    GLOBAL f32 *local0 = (GLOBAL f32 *)(scratch + (BLOCK * 1 + group) * 65536 + 0); // [16384]
    SHARED f32 s1[320]; LOCAL f32 *local1 = s1 + group * 320;
    GLOBAL const f32 *restrict in2 = (GLOBAL const f32 *)(b0 + o0); // f32
    GLOBAL const f32 *restrict in3 = (GLOBAL const f32 *)(b1 + o1); // f32
    GLOBAL f32 *restrict out4 = (GLOBAL f32 *)(b2 + o2); // f32
    const i64 j9 = row; // block
    {
        for (i64 j14 = 0; j14 < 1; j14++) { // chunk of k
            const bool v16 = j14 == 0;
            const i64 v17 = j14 * 256;
            const i64 v19 = s_min_i64((40 - v17), 256);
            for (i64 j20 = 0; j20 < 1; j20++) { // panels of b
                const i64 v21 = j20 * 64;
                const i64 v23 = s_min_i64((50 - v21), 64);
                for (i64 j24 = 0; j24 < v19; j24++) { // pack part of a row of b
                    SYNC;
                    for (i64 j25 = lane; j25 < v23; j25 += 16) { // column
                        const f32 v30 = in2[((v21 + j25) + ((v17 + j24) * 50))];
                        local0[((j25 % 32) + ((j24 + ((j25 / 32) * 256)) * 32))] = v30;
                    }
                }
                const i64 v44 = (v23 + 31) / 32;
                const i64 v46 = (v44 * 32) - v23;
                const bool v47 = 0 < v46;
                const i64 v48 = v47 ? 1 : 0;
                for (i64 j49 = 0; j49 < v48; j49++) {
                    for (i64 j50 = 0; j50 < v19; j50++) { // columns to the edge of the panel
                        SYNC;
                        for (i64 j57 = lane; j57 < v46; j57 += 16) { // column
                            const i64 v59 = ((v23 % 32) + ((j50 + ((v23 / 32) * 256)) * 32)) + j57;
                            local0[v59] = 0.0f;
                        }
                    }
                }
                for (i64 j68 = 0; j68 < 3; j68++) { // tile
                    for (i64 j69 = 0; j69 < v44; j69++) { // panel of b
                        const i64 v70 = j69 * 32;
                        const i64 v71 = v21 + v70;
                        const i64 v73 = s_min_i64((50 - v71), 32);
                        const i64 v74 = j68 * 10;
                        f32 r77 = 0.0f;
                        f32 r78 = 0.0f;
                        f32 r79 = 0.0f;
                        f32 r80 = 0.0f;
                        f32 r81 = 0.0f;
                        f32 r82 = 0.0f;
                        f32 r83 = 0.0f;
                        f32 r84 = 0.0f;
                        f32 r85 = 0.0f;
                        f32 r86 = 0.0f;
                        f32 r87 = 0.0f;
                        f32 r88 = 0.0f;
                        f32 r89 = 0.0f;
                        f32 r90 = 0.0f;
                        f32 r91 = 0.0f;
                        f32 r92 = 0.0f;
                        f32 r93 = 0.0f;
                        f32 r94 = 0.0f;
                        f32 r95 = 0.0f;
                        f32 r96 = 0.0f;
                        for (i64 j99 = 0; j99 < v19; j99++) { // k
                            const i64 v100 = v17 + j99;
                            const i64 v102 = v70 / 32;
                            const i64 v103 = v102 * 256;
                            const i64 v108 = (j99 * 32) + ((v70 % 32) + (v102 * 8192));
                            SYNC;
                            const f32 v109 = local0[v108 + lane];
                            const f32 v112 = local0[(v108 + 16) + lane];
                            const i64 v113 = (j68 * 2560) + j99;
                            const i64 v116 = s_min_i64(v74, 20);
                            const f32 v119 = in3[(v100 + (v116 * 40))];
                            const f32 v121 = r77;
                            const f32 v122 = s_fma_f32(v119, v109, v121);
                            r77 = v122;
                            const f32 v124 = r78;
                            const f32 v125 = s_fma_f32(v119, v112, v124);
                            r78 = v125;
                            const f32 v130 = in3[(v100 + ((v116 + 1) * 40))];
                            const f32 v132 = r79;
                            const f32 v133 = s_fma_f32(v130, v109, v132);
                            r79 = v133;
                            const f32 v135 = r80;
                            const f32 v136 = s_fma_f32(v130, v112, v135);
                            r80 = v136;
                            const f32 v142 = in3[(v100 + ((v116 + 2) * 40))];
                            const f32 v144 = r81;
                            const f32 v145 = s_fma_f32(v142, v109, v144);
                            r81 = v145;
                            const f32 v147 = r82;
                            const f32 v148 = s_fma_f32(v142, v112, v147);
                            r82 = v148;
                            const f32 v153 = in3[(v100 + ((v116 + 3) * 40))];
                            const f32 v155 = r83;
                            const f32 v156 = s_fma_f32(v153, v109, v155);
                            r83 = v156;
                            const f32 v158 = r84;
                            const f32 v159 = s_fma_f32(v153, v112, v158);
                            r84 = v159;
                            const f32 v165 = in3[(v100 + ((v116 + 4) * 40))];
                            const f32 v167 = r85;
                            const f32 v168 = s_fma_f32(v165, v109, v167);
                            r85 = v168;
                            const f32 v170 = r86;
                            const f32 v171 = s_fma_f32(v165, v112, v170);
                            r86 = v171;
                            const f32 v177 = in3[(v100 + ((v116 + 5) * 40))];
                            const f32 v179 = r87;
                            const f32 v180 = s_fma_f32(v177, v109, v179);
                            r87 = v180;
                            const f32 v182 = r88;
                            const f32 v183 = s_fma_f32(v177, v112, v182);
                            r88 = v183;
                            const f32 v189 = in3[(v100 + ((v116 + 6) * 40))];
                            const f32 v191 = r89;
                            const f32 v192 = s_fma_f32(v189, v109, v191);
                            r89 = v192;
                            const f32 v194 = r90;
                            const f32 v195 = s_fma_f32(v189, v112, v194);
                            r90 = v195;
                            const f32 v201 = in3[(v100 + ((v116 + 7) * 40))];
                            const f32 v203 = r91;
                            const f32 v204 = s_fma_f32(v201, v109, v203);
                            r91 = v204;
                            const f32 v206 = r92;
                            const f32 v207 = s_fma_f32(v201, v112, v206);
                            r92 = v207;
                            const f32 v213 = in3[(v100 + ((v116 + 8) * 40))];
                            const f32 v215 = r93;
                            const f32 v216 = s_fma_f32(v213, v109, v215);
                            r93 = v216;
                            const f32 v218 = r94;
                            const f32 v219 = s_fma_f32(v213, v112, v218);
                            r94 = v219;
                            const f32 v224 = in3[(v100 + ((v116 + 9) * 40))];
                            const f32 v226 = r95;
                            const f32 v227 = s_fma_f32(v224, v109, v226);
                            r95 = v227;
                            const f32 v229 = r96;
                            const f32 v230 = s_fma_f32(v224, v112, v229);
                            r96 = v230;
                        }
                        const f32 v233 = r77;
                        SYNC;
                        local1[0 + lane] = v233;
                        const f32 v235 = r78;
                        local1[16 + lane] = v235;
                        const f32 v238 = r79;
                        local1[32 + lane] = v238;
                        const f32 v240 = r80;
                        local1[48 + lane] = v240;
                        const f32 v243 = r81;
                        local1[64 + lane] = v243;
                        const f32 v245 = r82;
                        local1[80 + lane] = v245;
                        const f32 v249 = r83;
                        local1[96 + lane] = v249;
                        const f32 v251 = r84;
                        local1[112 + lane] = v251;
                        const f32 v255 = r85;
                        local1[128 + lane] = v255;
                        const f32 v257 = r86;
                        local1[144 + lane] = v257;
                        const f32 v261 = r87;
                        local1[160 + lane] = v261;
                        const f32 v263 = r88;
                        local1[176 + lane] = v263;
                        const f32 v267 = r89;
                        local1[192 + lane] = v267;
                        const f32 v269 = r90;
                        local1[208 + lane] = v269;
                        const f32 v273 = r91;
                        local1[224 + lane] = v273;
                        const f32 v275 = r92;
                        local1[240 + lane] = v275;
                        const f32 v278 = r93;
                        local1[256 + lane] = v278;
                        const f32 v280 = r94;
                        local1[272 + lane] = v280;
                        const f32 v284 = r95;
                        local1[288 + lane] = v284;
                        const f32 v286 = r96;
                        local1[304 + lane] = v286;
                        const i64 v290 = s_min_i64((30 - v74), 10);
                        for (i64 j291 = 0; j291 < v290; j291++) { // row of the result
                            SYNC;
                            for (i64 j292 = lane; j292 < v73; j292 += 16) { // column
                                const f32 v301 = local1[(j292 + ((j291 + (v74 - s_min_i64(v74, 20))) * 32))];
                                out4[((v71 + j292) + ((v74 + j291) * 50))] = v301;
                            }
                        }
                    }
                }
            }
        }
    }
}

