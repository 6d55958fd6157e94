// kernel 0, launched 1 times, first for sum
// CUDA: 128 threads a block, which runs 8 rows; bytes of a block: 0 of shared memory, 0 of scratch
KERNEL(128) k_db2dde9a60459f4e5bf86d169331b0ce(GLOBAL u8 *b0, GLOBAL u8 *b1, i64 o0, i64 o1, i64 begin, i64 end) {
    const i64 lane = THREAD & 15, group = THREAD >> 4;
    const i64 row = begin + BLOCK * 8 + group;
    GLOBAL const f32 *restrict in0 = (GLOBAL const f32 *)(b0 + o0); // f32
    GLOBAL f32 *restrict out1 = (GLOBAL f32 *)(b1 + o1); // f32
    if (row < end) {
        for (i64 j1 = lane; j1 < 30; j1 += 16) { // column
            f32 a8[16]; EACH(a8, 0.0f);
            for (i64 j3 = 0; j3 < 70; j3++) {
                const f32 v7 = in0[(j1 + (j3 * 30))];
                a8[j3 & 15] = s_add_f32(a8[j3 & 15], v7);
            }
            FOLD_ARRAY(a8, s_add_f32);
            const f32 v8 = a8[0];
            out1[j1] = v8;
        }
    }
}

