// kernel 0, launched 1 times, first for mul
// CUDA: 128 threads a block, which runs 8 rows; bytes of a block: 0 of shared memory, 0 of scratch
KERNEL(128) k_8aa1ef1e10e3022ce449248f6f5bcf74(GLOBAL u8 *b0, GLOBAL u8 *b1, GLOBAL u8 *b2, GLOBAL u8 *b3, i64 o0, i64 o1, i64 o2, i64 o3, i64 begin, i64 end) {
    const i64 lane = THREAD & 15, group = THREAD >> 4;
    const i64 row = begin + BLOCK * 8 + group;
    GLOBAL const u16 *restrict in0 = (GLOBAL const u16 *)(b0 + o0); // f16
    GLOBAL const f32 *restrict in1 = (GLOBAL const f32 *)(b1 + o1); // f32
    GLOBAL const u16 *restrict in2 = (GLOBAL const u16 *)(b2 + o2); // f16
    GLOBAL u16 *restrict out3 = (GLOBAL u16 *)(b3 + o3); // f16
    if (row < end) {
        const f32 v1 = in1[0];
        const f32 v2 = s_round_to_f16(v1);
        for (i64 j4 = lane; j4 < 50; j4 += 16) {
            const f32 v5 = s_up_f16(in0[j4]);
            const f32 v6 = v5 + v2;
            const f32 v7 = s_round_to_f16(v6);
            const f32 v8 = s_up_f16(in2[j4]);
            const f32 v9 = v7 * v8;
            const f32 v10 = s_round_to_f16(v9);
            out3[j4] = s_down_f16(v10);
        }
    }
}

