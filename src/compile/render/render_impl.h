// Declarations that the renderers share: render_c.c (structure in C), render_gpu.c (GPU source),
// render_expr.c (values).
#ifndef COTAN_COMPILE_RENDER_IMPL_H
#define COTAN_COMPILE_RENDER_IMPL_H

#include "kir/kir.h"

typedef struct ct_render {
    const ct_kir *k;
    const ct_kshape *shape;
    const uint8_t *nested; // nesting depth of the expression written inline; 0: has a name
    // computed from sizes and counters alone: cannot overflow; NULL: none is
    const bool *no_overflow;
    ct_text *out;
    int depth;
    bool opencl; // the output is OpenCL C, in which a thread runs a row; else C
    // the LANES loop whose full vectors are being written; 0: none
    ct_kval full_loop;
    bool thread; // all values are scalars: those of the thread `lane` of a group
    // a store in it: each iteration ends at the store's next cache line; 0: each does 16 elements
    ct_kval align_store;
} ct_render;

// Names: C type "f32", wide type "f32x16", suffix of prelude functions ("b" for bool).
const char *ct__render_type(int dtype);
const char *ct__render_suffix(int dtype);
const char *ct__render_storage(int dtype); // the type in memory: "u16" for bf16
void ct__render_wide_type(ct_text *out, int dtype);

void ct__render_literal(ct_text *out, int dtype, const ct_kins *ins);
void ct__render_scalar(const ct_render *r, ct_kval v);   // as a scalar: lane 0 of affine values
void ct__render_wide(const ct_render *r, ct_kval v);     // as a 16-lane vector
void ct__render_value(const ct_render *r, ct_kval v);    // the right side of "v7 = ..." of an op
void ct__render_buffer(const ct_render *r, int64_t buf); // its name
// Writes text in which $s is a scalar, $w a 16-lane vector (ct_kval), $d a number (int64_t) and $t a text.
void ct__render_format(const ct_render *r, const char *format, ...);
// The prelude's function that converts storage to a value ("up_f16"), or back; "" for none.
typedef struct ct_converter {
    char s[16];
} ct_converter;
ct_converter ct__render_converter(const char *way, ct_dtype dtype);
// The operation of a REDUCE or FOLD; argmax compares as max does.
const char *ct__render_red_name(const ct_kins *ins);

// The accumulator of a REDUCE has 16 lanes if its loop is the LANES loop (lane j takes the elements
// congruent to j), or if another loop is (each lane is a separate reduction).
typedef struct ct_reduction {
    ct_kval id;
    const ct_kins *ins;
    int dtype;    // of the reduced value
    bool lanes;   // its loop is the LANES loop
    bool wide;    // in C: each lane is a separate reduction
    bool is_arg;  // argmax or argmin: its value is an index
    bool ordered; // its bits depend on the order of operations
    bool array;   // an array of 16 accumulators, indexed by i mod 16
    // in C: four accumulators in rotation: one would be a chain of dependent instructions
    bool interleaved;
    const char *t;  // suffix of the dtype
    const char *s;  // in C: "s_" if its operations are scalar
    const char *op; // "add"
} ct_reduction;
ct_reduction ct__render_reduction(const ct_kir *k, ct_kval id); // without what is only in C
// Finds index arithmetic that is used once, which is written where it is used, up to a readable depth.
void ct__render_find_nested(const ct_kir *k, const ct_kshape *shape, uint8_t *nested,
                            uint8_t *uses);
// Finds indices into tensors, whose sizes are known to fit i64, and the values that they are computed from.
void ct__render_find_indices(const ct_kir *k, bool *index);
// may be written inside an expression
bool ct__render_can_nest(const ct_kir *k, ct_kval v, ct_kshape shape);

// Makes 32-bit values affine that grow by a constant from lane to lane, modulo 2^32.
void ct__render_find_affine(const ct_kir *k, ct_kshape *shape);
// If an index is a widened i32 plus a value that is uniform over lanes: that i32; else -1.
ct_kval ct__render_i32_index(const ct_kir *k, const ct_kshape *shape, ct_kval index);
// If a load reads a table (ct__kir_lookup): the i32 whose low bits are the index; else -1.
ct_kval ct__render_table_index(const ct_kir *k, const ct_kshape *shape, const ct_kins *load);
// Nests such indices of loads in their expressions.
void ct__render_nest_i32_indices(const ct_kir *k, const ct_kshape *shape, const uint8_t *uses,
                                 uint8_t *nested);
// writes " + 5 + v7" of such an index
void ct__render_uniform_part(const ct_render *r, ct_kval index);
// True if the lanes that are loaded at indices computed from the i32 x are contiguous. If x grows by one,
// it may wrap around between lanes; but all lanes that are loaded have an x that is not negative, so they
// are on one side of the wrap.
bool ct__render_is_contiguous(const ct_render *r, const ct_kins *load, ct_kval x);

// Appends the math functions that a kernel needs (exp, log ...), each once and after those that it calls
// itself. `write` writes one of them, named ct__kir_math_name(f), for a renderer; shape and nested are
// zeroed scratch for the instructions of its body.
typedef void (*ct_math_writer)(const ct_kir *body, ct_kmath f, ct_dtype dtype, ct_kshape *shape,
                               const uint8_t *nested, ct_text *out);
bool ct__render_math(const ct_kir *k, ct_math_writer write, ct_text *out, ct_err *err);

static inline bool ct__render_is_wide(const ct_render *r, ct_kval v) {
    return r->shape[v].vary == CT_VARYING;
}

#endif
