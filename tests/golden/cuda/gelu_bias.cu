// kernel 0, launched 1 times, first for mul
// CUDA: 128 threads a block, which runs 8 rows; bytes of a block: 0 of shared memory, 0 of scratch
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
KERNEL(128) k_901e014a0c130e48b73826ba2d18997d(GLOBAL u8 *b0, GLOBAL u8 *b1, GLOBAL u8 *b2, i64 o0, i64 o1, i64 o2, i64 begin, i64 end) {
    const i64 lane = THREAD & 15, group = THREAD >> 4;
    const i64 row = begin + BLOCK * 8 + group;
    GLOBAL const f32 *restrict in0 = (GLOBAL const f32 *)(b0 + o0); // f32
    GLOBAL const f32 *restrict in1 = (GLOBAL const f32 *)(b1 + o1); // f32
    GLOBAL f32 *restrict out2 = (GLOBAL f32 *)(b2 + o2); // f32
    const i64 j1 = row; // task
    if (row < end) {
        for (i64 j3 = lane; j3 < 100; j3 += 16) {
            const i64 v6 = j3 + (j1 * 100);
            const f32 v7 = in0[v6];
            const f32 v8 = in1[j3];
            const f32 v9 = v7 + v8;
            const f32 v11 = v9 * v9;
            const f32 v13 = v11 * -0.0713548139f;
            const f32 v15 = v13 + -1.59576917f;
            const f32 v16 = v9 * v15;
            const f32 v17 = s_exp_f32(v16);
            const f32 v18 = v17 + 1.0f;
            const f32 v19 = 1.0f / v18;
            const f32 v20 = v9 * v19;
            out2[v6] = v20;
        }
    }
}

