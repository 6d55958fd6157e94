// kernel 0, launched 1 times, first for cumsum
// CUDA: 128 threads a block, which runs 128 rows; bytes of a block: 0 of shared memory, 0 of scratch
KERNEL(128) k_b9abce2f14e3a479498b589fa45731d8(GLOBAL u8 *b0, GLOBAL u8 *b1, i64 o0, i64 o1, i64 begin, i64 end) {
    const i64 group = THREAD;
    const i64 row = begin + BLOCK * 128 + group;
    GLOBAL const f32 *restrict in0 = (GLOBAL const f32 *)(b0 + o0); // f32
    GLOBAL f32 *restrict out1 = (GLOBAL f32 *)(b1 + o1); // f32
    const i64 j8 = row; // block
    if (row < end) {
        const i64 v10 = s_min_i64((2 - j8), 1);
        for (i64 j11 = 0; j11 < v10; j11++) { // line
            f32 r14 = 0.0f;
            for (i64 j15 = 0; j15 < 3; j15++) { // block
                f32 r16 = 0.0f;
                const f32 v17 = r14;
                const i64 v18 = j15 * 1024;
                const i64 v20 = s_min_i64((3000 - v18), 1024);
                for (i64 j21 = 0; j21 < v20; j21++) { // along the axis
                    const i64 v24 = (v18 + j21) + ((j8 + j11) * 3000);
                    const f32 v25 = in0[v24];
                    const f32 v26 = r16;
                    const f32 v27 = v26 + v25;
                    r16 = v27;
                    const f32 v29 = v17 + v27;
                    const bool v30 = j15 == 0;
                    const f32 v31 = v30 ? v27 : v29;
                    out1[v24] = v31;
                }
                const f32 v34 = r16;
                const f32 v35 = v17 + v34;
                const bool v36 = j15 == 0;
                const f32 v37 = v36 ? v34 : v35;
                r14 = v37;
            }
        }
    }
}

