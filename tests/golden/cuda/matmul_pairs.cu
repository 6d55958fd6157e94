// kernel 0, launched 1 times, first for matmul
// CUDA: 16 threads a block, which runs 1 rows; bytes of a block: 48128 of shared memory, 1280 of scratch
KERNEL(16) k_8013f934e09ccaaf9eb7390c3ab306dd(GLOBAL u8 *b0, GLOBAL u8 *b1, GLOBAL u8 *b2, i64 o0, i64 o1, i64 o2, i64 begin, i64 end, GLOBAL u8 *scratch) {
    const i64 lane = THREAD & 15, group = THREAD >> 4;
    const i64 row = begin + BLOCK * 1 + group;
    const u32 mask = 0xffffu << (THREAD & 16);
    SHARED u32 s0[3840]; LOCAL u32 *local0 = s0 + group * 3840;
    SHARED u32 s1[8192]; LOCAL u32 *local1 = s1 + group * 8192;
    GLOBAL f32 *local2 = (GLOBAL f32 *)(scratch + (BLOCK * 1 + group) * 1280 + 0); // [320]
    GLOBAL const u32 *restrict in3 = (GLOBAL const u32 *)(b0 + o0); // u32
    GLOBAL const u16 *restrict in4 = (GLOBAL const u16 *)(b1 + o1); // bf16
    GLOBAL u16 *restrict out5 = (GLOBAL u16 *)(b2 + o2); // bf16
    const i64 j10 = row; // block
    {
        for (i64 j15 = 0; j15 < 1; j15++) { // chunk of k
            const bool v17 = j15 == 0;
            const i64 v18 = j15 * 128;
            const i64 v20 = s_min_i64((32 - v18), 128);
            for (i64 j21 = 0; j21 < 30; j21++) { // pack row of a
                SYNC;
                for (i64 j22 = lane; j22 < v20; j22 += 16) { // k
                    const u32 v27 = in3[((v18 + j22) + (j21 * 32))];
                    const u32 v28 = s_shr_u32(v27, 16u);
                    const u32 v29 = s_shl_u32(v27, 16u);
                    const u32 v30 = v28 | v29;
                    local0[(j22 + (j21 * 128))] = v30;
                }
            }
            for (i64 j40 = 0; j40 < 0; j40++) { // rows to the edge of the tile
                SYNC;
                for (i64 j42 = lane; j42 < v20; j42 += 16) { // k
                    local0[(j42 + ((j40 + 30) * 128))] = 0u;
                }
            }
            for (i64 j49 = 0; j49 < 1; j49++) { // panels of b
                const i64 v50 = j49 * 64;
                const i64 v52 = s_min_i64((50 - v50), 64);
                for (i64 j53 = 0; j53 < v20; j53++) { // pack part of a row of b
                    SYNC;
                    for (i64 j54 = lane; j54 < v52; j54 += 16) { // column
                        const i64 v55 = v50 + j54;
                        const i64 v56 = v18 + j53;
                        const f32 v62 = s_up_bf16(in4[(v55 + (v56 * 100))]);
                        const u32 v63 = s_bits_f32(v62);
                        const f32 v67 = s_up_bf16(in4[(v55 + (((v56 * 2) + 1) * 50))]);
                        const u32 v68 = s_bits_f32(v67);
                        const u32 v69 = s_shr_u32(v68, 16u);
                        const u32 v70 = v63 | v69;
                        local1[((j54 % 32) + ((j53 + ((j54 / 32) * 128)) * 32))] = v70;
                    }
                }
                const i64 v82 = (v52 + 31) / 32;
                const i64 v84 = (v82 * 32) - v52;
                const bool v85 = 0 < v84;
                const i64 v86 = v85 ? 1 : 0;
                for (i64 j87 = 0; j87 < v86; j87++) {
                    for (i64 j88 = 0; j88 < v20; j88++) { // columns to the edge of the panel
                        SYNC;
                        for (i64 j95 = lane; j95 < v84; j95 += 16) { // column
                            const i64 v97 = ((v52 % 32) + ((j88 + ((v52 / 32) * 128)) * 32)) + j95;
                            local1[v97] = 0u;
                        }
                    }
                }
                for (i64 j102 = 0; j102 < 3; j102++) { // tile
                    for (i64 j103 = 0; j103 < v82; j103++) { // panel of b
                        const i64 v104 = j103 * 32;
                        const i64 v105 = v50 + v104;
                        const i64 v107 = s_min_i64((50 - v105), 32);
                        const i64 v108 = j102 * 10;
                        f32 r111 = 0.0f;
                        f32 r112 = 0.0f;
                        f32 r113 = 0.0f;
                        f32 r114 = 0.0f;
                        f32 r115 = 0.0f;
                        f32 r116 = 0.0f;
                        f32 r117 = 0.0f;
                        f32 r118 = 0.0f;
                        f32 r119 = 0.0f;
                        f32 r120 = 0.0f;
                        f32 r121 = 0.0f;
                        f32 r122 = 0.0f;
                        f32 r123 = 0.0f;
                        f32 r124 = 0.0f;
                        f32 r125 = 0.0f;
                        f32 r126 = 0.0f;
                        f32 r127 = 0.0f;
                        f32 r128 = 0.0f;
                        f32 r129 = 0.0f;
                        f32 r130 = 0.0f;
                        for (i64 j133 = 0; j133 < v20; j133++) { // k
                            const i64 v134 = v18 + j133;
                            const i64 v136 = v104 / 32;
                            const i64 v137 = v136 * 128;
                            const i64 v142 = (j133 * 32) + ((v104 % 32) + (v136 * 4096));
                            SYNC;
                            const u32 v143 = local1[v142 + lane];
                            const u32 v146 = local1[(v142 + 16) + lane];
                            const i64 v147 = (j102 * 1280) + j133;
                            const u32 v148 = local0[v147];
                            const f32 v150 = r111;
                            const f32 v151 = s_dot2_u32(v148, v143, v150);
                            r111 = v151;
                            const f32 v153 = r112;
                            const f32 v154 = s_dot2_u32(v148, v146, v153);
                            r112 = v154;
                            const u32 v157 = local0[(v147 + 128)];
                            const f32 v159 = r113;
                            const f32 v160 = s_dot2_u32(v157, v143, v159);
                            r113 = v160;
                            const f32 v162 = r114;
                            const f32 v163 = s_dot2_u32(v157, v146, v162);
                            r114 = v163;
                            const u32 v167 = local0[(v147 + 256)];
                            const f32 v169 = r115;
                            const f32 v170 = s_dot2_u32(v167, v143, v169);
                            r115 = v170;
                            const f32 v172 = r116;
                            const f32 v173 = s_dot2_u32(v167, v146, v172);
                            r116 = v173;
                            const u32 v177 = local0[(v147 + 384)];
                            const f32 v179 = r117;
                            const f32 v180 = s_dot2_u32(v177, v143, v179);
                            r117 = v180;
                            const f32 v182 = r118;
                            const f32 v183 = s_dot2_u32(v177, v146, v182);
                            r118 = v183;
                            const u32 v187 = local0[(v147 + 512)];
                            const f32 v189 = r119;
                            const f32 v190 = s_dot2_u32(v187, v143, v189);
                            r119 = v190;
                            const f32 v192 = r120;
                            const f32 v193 = s_dot2_u32(v187, v146, v192);
                            r120 = v193;
                            const u32 v197 = local0[(v147 + 640)];
                            const f32 v199 = r121;
                            const f32 v200 = s_dot2_u32(v197, v143, v199);
                            r121 = v200;
                            const f32 v202 = r122;
                            const f32 v203 = s_dot2_u32(v197, v146, v202);
                            r122 = v203;
                            const u32 v207 = local0[(v147 + 768)];
                            const f32 v209 = r123;
                            const f32 v210 = s_dot2_u32(v207, v143, v209);
                            r123 = v210;
                            const f32 v212 = r124;
                            const f32 v213 = s_dot2_u32(v207, v146, v212);
                            r124 = v213;
                            const u32 v217 = local0[(v147 + 896)];
                            const f32 v219 = r125;
                            const f32 v220 = s_dot2_u32(v217, v143, v219);
                            r125 = v220;
                            const f32 v222 = r126;
                            const f32 v223 = s_dot2_u32(v217, v146, v222);
                            r126 = v223;
                            const u32 v227 = local0[(v147 + 1024)];
                            const f32 v229 = r127;
                            const f32 v230 = s_dot2_u32(v227, v143, v229);
                            r127 = v230;
                            const f32 v232 = r128;
                            const f32 v233 = s_dot2_u32(v227, v146, v232);
                            r128 = v233;
                            const u32 v237 = local0[(v147 + 1152)];
                            const f32 v239 = r129;
                            const f32 v240 = s_dot2_u32(v237, v143, v239);
                            r129 = v240;
                            const f32 v242 = r130;
                            const f32 v243 = s_dot2_u32(v237, v146, v242);
                            r130 = v243;
                        }
                        const f32 v246 = r111;
                        SYNC;
                        local2[0 + lane] = v246;
                        const f32 v248 = r112;
                        local2[16 + lane] = v248;
                        const f32 v251 = r113;
                        local2[32 + lane] = v251;
                        const f32 v253 = r114;
                        local2[48 + lane] = v253;
                        const f32 v256 = r115;
                        local2[64 + lane] = v256;
                        const f32 v258 = r116;
                        local2[80 + lane] = v258;
                        const f32 v262 = r117;
                        local2[96 + lane] = v262;
                        const f32 v264 = r118;
                        local2[112 + lane] = v264;
                        const f32 v267 = r119;
                        local2[128 + lane] = v267;
                        const f32 v269 = r120;
                        local2[144 + lane] = v269;
                        const f32 v273 = r121;
                        local2[160 + lane] = v273;
                        const f32 v275 = r122;
                        local2[176 + lane] = v275;
                        const f32 v279 = r123;
                        local2[192 + lane] = v279;
                        const f32 v281 = r124;
                        local2[208 + lane] = v281;
                        const f32 v285 = r125;
                        local2[224 + lane] = v285;
                        const f32 v287 = r126;
                        local2[240 + lane] = v287;
                        const f32 v291 = r127;
                        local2[256 + lane] = v291;
                        const f32 v293 = r128;
                        local2[272 + lane] = v293;
                        const f32 v297 = r129;
                        local2[288 + lane] = v297;
                        const f32 v299 = r130;
                        local2[304 + lane] = v299;
                        const i64 v303 = s_min_i64((30 - v108), 10);
                        for (i64 j304 = 0; j304 < v303; j304++) { // row of the result
                            SYNC;
                            for (i64 j305 = lane; j305 < v107; j305 += 16) { // column
                                const f32 v311 = local2[(j305 + ((j304 + (v108 - v108)) * 32))];
                                out5[((v105 + j305) + ((v108 + j304) * 50))] = s_down_bf16(v311);
                            }
                        }
                    }
                }
            }
        }
    }
}

