// kernel 0, launched 1 times, first for sum
// CUDA: 128 threads a block, which runs 8 rows; bytes of a block: 0 of shared memory, 0 of scratch
#ifndef TREE_add_f32
#define TREE_add_f32
TREE(add_f32, f32, s_add_f32)
#endif
KERNEL(128) k_cdae9c9a18c506a3b6be90148d03ddca(GLOBAL u8 *b0, GLOBAL u8 *b1, i64 o0, i64 o1, i64 begin, i64 end) {
    const i64 lane = THREAD & 15, group = THREAD >> 4;
    const i64 row = begin + BLOCK * 8 + group;
    const u32 mask = 0xffffu << (THREAD & 16);
    GLOBAL const f32 *restrict in0 = (GLOBAL const f32 *)(b0 + o0); // f32
    GLOBAL f32 *restrict out1 = (GLOBAL f32 *)(b1 + o1); // f32
    if (row < end) {
        tree_add_f32 t3; CLEAR(t3);
        for (i64 h1 = 0; h1 < 3000; h1 += 1024) {
            const i64 e1 = s_min_i64(h1 + 1024, 3000);
            f32 a3 = 0.0f;
            for (i64 j1 = h1 + lane; j1 < e1; j1 += 16) {
                const f32 v2 = in0[j1];
                a3 = s_add_f32(a3, v2);
            }
            push_add_f32(&t3, 0, fold_add_f32(SELF, a3), 0.0f);
        }
        const f32 v3 = total_add_f32(&t3, 0.0f);
        if (lane == 0) out1[0] = v3;
    }
}

