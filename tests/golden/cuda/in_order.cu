// kernel 0, launched 1 times, first for argsort
// CUDA: 128 threads a block, which runs 8 rows; bytes of a block: 0 of shared memory, 0 of scratch
KERNEL(128) k_197fbd6f64c9389005a217fb4fde4a8e(GLOBAL u8 *b0, GLOBAL u8 *b1, GLOBAL u8 *b2, GLOBAL u8 *b3, i64 o0, i64 o1, i64 o2, i64 o3, i64 begin, i64 end) {
    const i64 lane = THREAD & 15, group = THREAD >> 4;
    const i64 row = begin + BLOCK * 8 + group;
    const u32 mask = 0xffffu << (THREAD & 16);
    GLOBAL f32 *restrict io0 = (GLOBAL f32 *)(b0 + o0); // f32
    GLOBAL i32 *restrict io1 = (GLOBAL i32 *)(b1 + o1); // i32
    GLOBAL const f32 *restrict in2 = (GLOBAL const f32 *)(b2 + o2); // f32
    GLOBAL i32 *restrict out3 = (GLOBAL i32 *)(b3 + o3); // i32
    const i64 j7 = row; // block
    if (row < end) {
        const i64 v8 = j7 * 58;
        const i64 v10 = s_min_i64((3 - v8), 58);
        for (i64 j11 = 0; j11 < v10; j11++) { // line
            const i64 v14 = (v8 + j11) * 70;
            for (i64 j19 = 0; j19 < 5; j19++) { // run
                const i64 v20 = j19 * 16;
                const i64 v22 = s_min_i64((70 - v20), 16);
                SYNC;
                for (i64 j23 = lane; j23 < v22; j23 += 16) { // element
                    const i64 v24 = v20 + j23;
                    const f32 v26 = in2[(v14 + v24)];
                    i64 r27 = 0;
                    for (i64 j28 = 0; j28 < v22; j28++) { // other
                        const f32 v31 = in2[(v14 + (v20 + j28))];
                        const bool v32 = j28 < j23;
                        const bool v33 = v31 < v26;
                        const bool v34 = v26 != v26;
                        const bool v35 = v31 == v31;
                        const bool v36 = v34 & v35;
                        const bool v37 = v33 | v36;
                        const bool v38 = v26 < v31;
                        const bool v39 = v31 != v31;
                        const bool v40 = v26 == v26;
                        const bool v41 = v39 & v40;
                        const bool v42 = v38 | v41;
                        const bool v43 = !(v42);
                        const bool v44 = v32 & v43;
                        const bool v45 = v37 | v44;
                        const i64 v46 = v45 ? 1 : 0;
                        const i64 v47 = r27;
                        r27 = s_add_i64(v46, v47);
                    }
                    const i64 v51 = r27;
                    const i64 v53 = s_add_i64(v14, s_add_i64(v20, v51));
                    io0[v53] = v26;
                    const i32 v55 = (i32)(v24);
                    io1[v53] = v55;
                }
            }
            i64 r59 = 0;
            i64 r60 = 16;
            for (i64 j61 = 0; j61 < 3; j61++) { // pass
                const i64 v62 = r60;
                const i64 v63 = r59;
                const i64 v64 = s_sub_i64(210, v63);
                const i64 v66 = s_mul_i64(v62, 2);
                const bool v67 = v62 < 70;
                const i64 v68 = v67 ? 1 : 0;
                for (i64 j69 = 0; j69 < v68; j69++) {
                    const i64 v70 = s_add_i64(v66, 70);
                    const i64 v74 = s_div_i64(s_add_i64(v66, 69), v66);
                    for (i64 j75 = 0; j75 < v74; j75++) { // pair of runs
                        const i64 v76 = s_mul_i64(v66, j75);
                        const i64 v78 = s_min_i64(s_add_i64(v62, v76), 70);
                        const i64 v80 = s_min_i64(s_add_i64(v62, v78), 70);
                        i64 r81 = v76;
                        i64 r82 = v78;
                        const i64 v83 = s_add_i64(v14, v63);
                        const i64 v86 = s_sub_i64(v80, v76);
                        for (i64 j87 = 0; j87 < v86; j87++) { // element
                            const i64 v88 = r81;
                            const i64 v89 = r82;
                            const bool v90 = v78 <= v88;
                            const bool v91 = v89 < v80;
                            const i64 v93 = s_add_i64(v83, s_min_i64(v88, 69));
                            const i64 v95 = s_add_i64(v83, s_min_i64(v89, 69));
                            SYNC;
                            const f32 v96 = io0[v93];
                            const f32 v97 = io0[v95];
                            const bool v98 = v97 < v96;
                            const bool v99 = v96 != v96;
                            const bool v100 = v97 == v97;
                            const bool v101 = v99 & v100;
                            const bool v102 = v98 | v101;
                            const bool v103 = v96 < v97;
                            const bool v104 = v97 != v97;
                            const bool v105 = v96 == v96;
                            const bool v106 = v104 & v105;
                            const bool v107 = v103 | v106;
                            const bool v108 = v90 | v102;
                            const bool v109 = v91 & v108;
                            const i64 v110 = s_add_i64(s_add_i64(v64, s_add_i64(v14, v76)), j87);
                            const f32 v111 = v109 ? v97 : v96;
                            SYNC;
                            if (lane == 0) io0[v110] = v111;
                            const i64 v113 = v109 ? v95 : v93;
                            const i32 v114 = io1[v113];
                            SYNC;
                            if (lane == 0) io1[v110] = v114;
                            const i64 v116 = v109 ? 0 : 1;
                            r81 = s_add_i64(v88, v116);
                            const i64 v119 = v109 ? 1 : 0;
                            r82 = s_add_i64(v89, v119);
                        }
                    }
                    r59 = v64;
                    r60 = v66;
                }
            }
            const i64 v128 = r59;
            for (i64 j130 = 0; j130 < 70; j130++) { // result
                SYNC;
                const i32 v132 = io1[s_add_i64(s_add_i64(v14, v128), j130)];
                if (lane == 0) out3[(v14 + j130)] = v132;
            }
        }
    }
}

// kernel 1, launched 1 times, first for gather
// CUDA: 128 threads a block, which runs 8 rows; bytes of a block: 0 of shared memory, 0 of scratch
KERNEL(128) k_0d0c328b92c63b3cc1d41dc3a9e45ca5(GLOBAL u8 *b0, GLOBAL u8 *b1, GLOBAL u8 *b2, i64 o0, i64 o1, i64 o2, i64 begin, i64 end) {
    const i64 lane = THREAD & 15, group = THREAD >> 4;
    const i64 row = begin + BLOCK * 8 + group;
    GLOBAL const f32 *restrict in0 = (GLOBAL const f32 *)(b0 + o0); // f32
    GLOBAL const i32 *restrict in1 = (GLOBAL const i32 *)(b1 + o1); // i32
    GLOBAL f32 *restrict out2 = (GLOBAL f32 *)(b2 + o2); // f32
    const i64 j1 = row; // task
    if (row < end) {
        for (i64 j3 = lane; j3 < 70; j3 += 16) {
            const i64 v4 = j1 * 70;
            const i64 v6 = j3 + v4;
            const i32 v7 = in1[v6];
            const i64 v8 = (i64)(v7);
            const u32 v11 = (u32)(v7);
            const bool v12 = v11 < 70u;
            const f32 v14 = v12 ? in0[s_add_i64(v4, v8)] : (f32)0;
            const f32 v16 = v12 ? v14 : __builtin_nanf("");
            out2[v6] = v16;
        }
    }
}

