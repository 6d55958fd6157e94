// The interpreter's code: interp.c translates a kernel into it, the functions of interp_ops.c
// execute it.
//
// A value is in a slot of the frame: a scalar in 8 bytes, a wide value as CT_GROUPS groups of 16
// lanes. A VECTOR loop processes CT_GROUPS groups at a time, so that 64 elements share an
// instruction's overhead; outside of LANES loops a wide value is one group.
#ifndef COTAN_BACKEND_CPU_INTERP_CODE_H
#define COTAN_BACKEND_CPU_INTERP_CODE_H

#include "kir/kir.h"

enum { CT_GROUPS = 4, CT_STRIP = CT_GROUPS * CT_LANES };

typedef struct ct_iframe {
    int64_t groups;           // the innermost loop processes so many
    unsigned mask[CT_GROUPS]; // active lanes of each group
    const int64_t *args;
    int64_t begin, end; // range of the grid
    void **bufs;        // parameters, then locals
} ct_iframe;

typedef struct ct_iins ct_iins;
// Executes an instruction and returns the next one; NULL at the end.
typedef const ct_iins *(*ct_ifn)(char *frame, const ct_iins *i);
struct ct_iins {
    ct_ifn fn;
    uint32_t d, a, b, c; // slots; 0: none
    int32_t buf;         // buffer; of a loop: offset to its other end
    int32_t flag;
    union {
        int64_t i;
        double f;
        const void *data; // TILE: a ct_itile
    } imm;
};

// Opcodes: those of the kernel IR from NEG on keep their numbers; these follow.
enum {
    CT_I_COPY = CT_K_COUNT, // d = a
    CT_I_CONST,             // d = imm
    CT_I_ARG,               // d = args[imm]
    CT_I_SPLAT,             // all lanes of d = scalar a
    CT_I_RAMP,              // lane l of d = scalar a + l * imm (i64)
    CT_I_SELECT_UNIFORM,    // d = scalar a ? b : c, b and c wide
    CT_I_ROUND,             // d = a, an f32, rounded to the dtype
    CT_I_ZIP_HIGH,          // ZIP is the low half
    // Memory, by storage dtype. c: condition (flag 1: it is wide). imm: stride of the lanes.
    CT_I_LOAD,   // scalar, or one element for all lanes where wide
    CT_I_LOAD_S, // contiguous or strided lanes
    CT_I_LOAD_G, // a: wide index
    CT_I_LOAD_N, // VLOAD, b: count or none
    CT_I_STORE,  // b: value
    CT_I_STORE_S,
    CT_I_STORE_G,
    CT_I_STORE_N, // c: count or none
    CT_I_CLEAR,   // d: a reduction tree, set to empty
    CT_I_FILL,    // imm elements of d = scalar a, in the dtype's slot format
    CT_I_TILE,    // a matmul's register tile over all of k
    // Loops. d: variable, a: extent.
    CT_I_SEQ,
    CT_I_SEQ_NEXT,
    CT_I_VECTOR,
    CT_I_VECTOR_NEXT,
    CT_I_ROWS,
    CT_I_ROWS_NEXT,
    CT_I_BREAK,        // a: condition
    CT_I_SKIP_IF_NONE, // a: condition; if it holds in no lane, jumps by buf
    CT_I_STOP,
    CT_I_CAST_FROM,                              // + dtype of a; indexed by dtype of d
    CT_I_FOLD = CT_I_CAST_FROM + CT_DTYPE_COUNT, // + ct_kred
    // Reductions, + 3 * ct_kred + ct_imode. d: accumulator, a: value, b: loop variable or extent,
    // c: index of the best value (ARGMAX), or tree of block results.
    CT_I_ACCUMULATE = CT_I_FOLD + CT_RED_ARGMIN + 1, // accumulates one value
    CT_I_END_BLOCK =
        CT_I_ACCUMULATE + 3 * (CT_RED_ARGMIN + 1), // at the end of a block of 1024: into the tree
    CT_I_RESULT = CT_I_END_BLOCK + 3 * (CT_RED_ARGMIN + 1),
    CT_I_COUNT = CT_I_RESULT + 3 * (CT_RED_ARGMIN + 1)
};

// Layout of a reduction's accumulators: LANES is 16 lanes of a LANES loop, WIDE is one for each
// lane, SCALAR is one scalar. Reductions whose order changes the bits have 16 accumulators each
// (LANES has them anyway).
typedef enum { CT_I_LANES, CT_I_WIDE, CT_I_SCALAR } ct_imode;

// A register tile: chains of fused multiply-adds acc[r][v] += a[r] * b[v] over k.
typedef struct ct_itile {
    int rows, vectors, buf_a, buf_b;
    const uint32_t *a, *b,
        *acc; // slots: (2, rows) and (2, vectors) of the indices at k = 0 and 1; (rows, vectors)
} ct_itile;

typedef struct ct_itable {
    ct_ifn fn[CT_I_COUNT][CT_DTYPE_COUNT][2]; // [instruction][dtype][wide]
    size_t tree_bytes[CT_DTYPE_COUNT][2];     // of the tree of a sum in blocks: scalar, 16 lanes
} ct_itable;

extern const ct_itable ct__interp_base;
#if defined(__x86_64__)
extern const ct_itable ct__interp_avx2, ct__interp_avx512;
#endif

#endif
