// kernel 0, launched 1 times, first for gather
// CUDA: 128 threads a block, which runs 8 rows; bytes of a block: 0 of shared memory, 0 of scratch
KERNEL(128) k_7fa6a174a2b31fc5ccd0496821ff99cd(GLOBAL u8 *b0, GLOBAL u8 *b1, GLOBAL u8 *b2, i64 o0, i64 o1, i64 o2, i64 begin, i64 end) {
    const i64 lane = THREAD & 15, group = THREAD >> 4;
    const i64 row = begin + BLOCK * 8 + group;
    GLOBAL const f32 *restrict in0 = (GLOBAL const f32 *)(b0 + o0); // f32
    GLOBAL const i32 *restrict in1 = (GLOBAL const i32 *)(b1 + o1); // i32
    GLOBAL f32 *restrict out2 = (GLOBAL f32 *)(b2 + o2); // f32
    const i64 j1 = row; // task
    if (row < end) {
        for (i64 j3 = lane; j3 < 20; j3 += 16) {
            const i32 v4 = in1[j1];
            const i64 v5 = (i64)(v4);
            const u32 v9 = (u32)(v4);
            const bool v10 = v9 < 50u;
            const f32 v14 = v10 ? in0[s_add_i64(j3, s_mul_i64(v5, 20))] : (f32)0;
            const f32 v16 = v10 ? v14 : __builtin_nanf("");
            out2[(j3 + (j1 * 20))] = v16;
        }
    }
}

