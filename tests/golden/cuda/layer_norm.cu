// kernel 0, launched 1 times, first for sum
// CUDA: 128 threads a block, which runs 8 rows; bytes of a block: 0 of shared memory, 0 of scratch
KERNEL(128) k_33361dd98f77aedfb16a707dbd5a1152(GLOBAL u8 *b0, GLOBAL u8 *b1, GLOBAL u8 *b2, GLOBAL u8 *b3, i64 o0, i64 o1, i64 o2, i64 o3, i64 begin, i64 end) {
    const i64 lane = THREAD & 15, group = THREAD >> 4;
    const i64 row = begin + BLOCK * 8 + group;
    const u32 mask = 0xffffu << (THREAD & 16);
    GLOBAL const f32 *restrict in0 = (GLOBAL const f32 *)(b0 + o0); // f32
    GLOBAL const f32 *restrict in1 = (GLOBAL const f32 *)(b1 + o1); // f32
    GLOBAL const f32 *restrict in2 = (GLOBAL const f32 *)(b2 + o2); // f32
    GLOBAL f32 *restrict out3 = (GLOBAL f32 *)(b3 + o3); // f32
    const i64 j1 = row; // task
    if (row < end) {
        f32 a8 = 0.0f;
        for (i64 j3 = lane; j3 < 70; j3 += 16) {
            const f32 v7 = in0[(j3 + (j1 * 70))];
            a8 = s_add_f32(a8, v7);
        }
        const f32 v8 = fold_add_f32(SELF, a8);
        f32 a19 = 0.0f;
        for (i64 j10 = lane; j10 < 70; j10 += 16) {
            const f32 v14 = in0[(j10 + (j1 * 70))];
            const f32 v16 = v8 / 70.0f;
            const f32 v17 = v14 - v16;
            const f32 v18 = v17 * v17;
            a19 = s_add_f32(a19, v18);
        }
        const f32 v19 = fold_add_f32(SELF, a19);
        for (i64 j21 = lane; j21 < 70; j21 += 16) {
            const i64 v24 = j21 + (j1 * 70);
            const f32 v25 = in0[v24];
            const f32 v27 = v8 / 70.0f;
            const f32 v28 = v25 - v27;
            const f32 v30 = v19 / 70.0f;
            const f32 v32 = v30 + 9.99999975e-06f;
            const f32 v33 = s_sqrt_f32(v32);
            const f32 v34 = 1.0f / v33;
            const f32 v35 = v28 * v34;
            const f32 v36 = in1[j21];
            const f32 v37 = v35 * v36;
            const f32 v38 = in2[j21];
            const f32 v39 = v37 + v38;
            out3[v24] = v39;
        }
    }
}

