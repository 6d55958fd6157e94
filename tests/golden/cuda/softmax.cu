// kernel 0, launched 1 times, first for max
// CUDA: 128 threads a block, which runs 8 rows; bytes of a block: 2560 of shared memory, 0 of scratch
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
KERNEL(128) k_4077e3105ef0ae380a758bdf45dac07a(GLOBAL u8 *b0, GLOBAL u8 *b1, i64 o0, i64 o1, i64 begin, i64 end) {
    const i64 lane = THREAD & 15, group = THREAD >> 4;
    const i64 row = begin + BLOCK * 8 + group;
    const u32 mask = 0xffffu << (THREAD & 16);
    SHARED f32 s0[560]; LOCAL f32 *local0 = s0 + group * 70;
    GLOBAL const f32 *restrict in1 = (GLOBAL const f32 *)(b0 + o0); // f32
    GLOBAL f32 *restrict out2 = (GLOBAL f32 *)(b1 + o1); // f32
    const i64 j1 = row; // task
    if (row < end) {
        f32 a8 = -__builtin_inff();
        for (i64 j3 = lane; j3 < 70; j3 += 16) {
            const f32 v7 = in1[(j3 + (j1 * 70))];
            a8 = s_max_f32(a8, v7);
        }
        const f32 v8 = fold_max_f32(SELF, a8);
        f32 a18 = 0.0f;
        for (i64 j10 = lane; j10 < 70; j10 += 16) {
            const f32 v14 = in1[(j10 + (j1 * 70))];
            const f32 v15 = v14 - v8;
            const f32 v16 = s_exp_f32(v15);
            local0[j10] = v16;
            a18 = s_add_f32(a18, v16);
        }
        const f32 v18 = fold_add_f32(SELF, a18);
        SYNC;
        for (i64 j20 = lane; j20 < 70; j20 += 16) {
            const f32 v21 = local0[j20];
            const f32 v22 = v21 / v18;
            out2[(j20 + (j1 * 70))] = v22;
        }
    }
}

