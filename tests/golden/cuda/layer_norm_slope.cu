// kernel 0, launched 1 times, first for sum
// CUDA: 128 threads a block, which runs 8 rows; bytes of a block: 0 of shared memory, 0 of scratch
KERNEL(128) k_2fcd8f56d9db6a68e4f493ef4c1712d4(GLOBAL u8 *b0, GLOBAL u8 *b1, GLOBAL u8 *b2, GLOBAL u8 *b3, GLOBAL u8 *b4, GLOBAL u8 *b5, i64 o0, i64 o1, i64 o2, i64 o3, i64 o4, i64 o5, i64 begin, i64 end) {
    const i64 lane = THREAD & 15, group = THREAD >> 4;
    const i64 row = begin + BLOCK * 8 + group;
    const u32 mask = 0xffffu << (THREAD & 16);
    GLOBAL const f32 *restrict in0 = (GLOBAL const f32 *)(b0 + o0); // f32
    GLOBAL const f32 *restrict in1 = (GLOBAL const f32 *)(b1 + o1); // f32
    GLOBAL const f32 *restrict in2 = (GLOBAL const f32 *)(b2 + o2); // f32
    GLOBAL const f32 *restrict in3 = (GLOBAL const f32 *)(b3 + o3); // f32
    GLOBAL f32 *restrict out4 = (GLOBAL f32 *)(b4 + o4); // f32
    GLOBAL f32 *restrict out5 = (GLOBAL f32 *)(b5 + o5); // f32
    const i64 j1 = row; // task
    if (row < end) {
        f32 a11 = 0.0f;
        f32 a12 = 0.0f;
        for (i64 j3 = lane; j3 < 70; j3 += 16) {
            const i64 v6 = j3 + (j1 * 70);
            const f32 v7 = in0[v6];
            const f32 v8 = in1[v6];
            const f32 v9 = in2[j3];
            const f32 v10 = v8 * v9;
            a11 = s_add_f32(a11, v7);
            a12 = s_add_f32(a12, v10);
        }
        const f32 v11 = fold_add_f32(SELF, a11);
        const f32 v12 = fold_add_f32(SELF, a12);
        f32 a23 = 0.0f;
        for (i64 j14 = lane; j14 < 70; j14 += 16) {
            const f32 v18 = in0[(j14 + (j1 * 70))];
            const f32 v20 = v11 / 70.0f;
            const f32 v21 = v18 - v20;
            const f32 v22 = v21 * v21;
            a23 = s_add_f32(a23, v22);
        }
        const f32 v23 = fold_add_f32(SELF, a23);
        f32 a49 = 0.0f;
        for (i64 j25 = lane; j25 < 70; j25 += 16) {
            const i64 v28 = j25 + (j1 * 70);
            const f32 v29 = in0[v28];
            const f32 v31 = v11 / 70.0f;
            const f32 v32 = v29 - v31;
            const f32 v34 = v23 / 70.0f;
            const f32 v36 = v34 + 9.99999975e-06f;
            const f32 v37 = s_sqrt_f32(v36);
            const f32 v38 = 1.0f / v37;
            const f32 v39 = v32 * v38;
            const f32 v40 = in2[j25];
            const f32 v41 = v39 * v40;
            const f32 v42 = in3[j25];
            const f32 v43 = v41 + v42;
            const f32 v44 = in1[v28];
            const f32 v45 = v43 * v44;
            out4[v28] = v45;
            const f32 v47 = v44 * v40;
            const f32 v48 = v47 * v39;
            a49 = s_add_f32(a49, v48);
        }
        const f32 v49 = fold_add_f32(SELF, a49);
        for (i64 j51 = lane; j51 < 70; j51 += 16) {
            const i64 v54 = j51 + (j1 * 70);
            const f32 v55 = in1[v54];
            const f32 v56 = in2[j51];
            const f32 v57 = v55 * v56;
            const f32 v59 = v12 / 70.0f;
            const f32 v60 = v57 - v59;
            const f32 v61 = in0[v54];
            const f32 v62 = v11 / 70.0f;
            const f32 v63 = v61 - v62;
            const f32 v65 = v23 / 70.0f;
            const f32 v67 = v65 + 9.99999975e-06f;
            const f32 v68 = s_sqrt_f32(v67);
            const f32 v69 = 1.0f / v68;
            const f32 v70 = v63 * v69;
            const f32 v71 = v49 / 70.0f;
            const f32 v72 = v70 * v71;
            const f32 v73 = v60 - v72;
            const f32 v74 = v73 * v69;
            out5[v54] = v74;
        }
    }
}

