// kernel 0, launched 1 times, first for scatter_add
// CUDA: 128 threads a block, which runs 8 rows; bytes of a block: 0 of shared memory, 0 of scratch
KERNEL(128) k_0814f6f18a7b45f2bb608118fba69331(GLOBAL u8 *b0, GLOBAL u8 *b1, GLOBAL u8 *b2, GLOBAL u8 *b3, i64 o0, i64 o1, i64 o2, i64 o3, i64 begin, i64 end) {
    const i64 lane = THREAD & 15, group = THREAD >> 4;
    const i64 row = begin + BLOCK * 8 + group;
    const u32 mask = 0xffffu << (THREAD & 16);
    GLOBAL f32 *restrict io0 = (GLOBAL f32 *)(b0 + o0); // f32
    GLOBAL const f32 *restrict in1 = (GLOBAL const f32 *)(b1 + o1); // f32
    GLOBAL const i32 *restrict in2 = (GLOBAL const i32 *)(b2 + o2); // i32
    GLOBAL const f32 *restrict in3 = (GLOBAL const f32 *)(b3 + o3); // f32
    const i64 j7 = row; // block
    if (row < end) {
        for (i64 j9 = 0; j9 < 50; j9++) { // row of x
            SYNC;
            for (i64 j10 = lane; j10 < 20; j10 += 16) { // tail
                const f32 v17 = in1[(j10 + (j9 * 20))];
                io0[(j10 + ((j9 + (j7 * 50)) * 20))] = v17;
            }
        }
        for (i64 j21 = 0; j21 < 7; j21++) { // pick
            const i32 v22 = in2[j21];
            const i64 v23 = (i64)(v22);
            const bool v25 = v22 < 50;
            const bool v27 = 0 <= v22;
            const bool v28 = v25 & v27;
            const i64 v29 = v28 ? 1 : 0;
            for (i64 j30 = 0; j30 < v29; j30++) {
                SYNC;
                for (i64 j31 = lane; j31 < 20; j31 += 16) { // tail
                    const i64 v35 = s_add_i64(j31, s_mul_i64(s_add_i64(v23, (j7 * 50)), 20));
                    const f32 v38 = in3[(j31 + (j21 * 20))];
                    const f32 v39 = io0[v35];
                    const f32 v40 = v39 + v38;
                    io0[v35] = v40;
                }
            }
        }
    }
}

