// What the renderers share: render_c.c (structure in C), render_gpu.c (in the C of GPUs), render_expr.c (values).
#ifndef COTAN_COMPILE_RENDER_IMPL_H
#define COTAN_COMPILE_RENDER_IMPL_H

#include "kir/kir.h"

typedef struct ct_render {
    const ct_kir *k;
    const ct_kshape *shape;
    const uint8_t *nested; // depth of the expression that stands in place of its name; 0: named
    const bool *index;     // computed from sizes and counters alone: cannot overflow; NULL: none is
    ct_text *out;
    int depth;
    bool opencl;     // the text is OpenCL C: a thread runs a row; else C
    ct_kval whole;   // the LANES loop of which iterations with all lanes are written; 0: none
    bool thread;     // all values are scalars: those of the thread `lane` of a group
    ct_kval aligned; // a store in it, up to whose next line such an iteration goes; 0: by 16
} ct_render;

// Names: c type "f32", wide type "f32x16", suffix of prelude functions ("b" for bool).
const char *ct__render_type(int dtype);
const char *ct__render_suffix(int dtype);
const char *ct__render_storage(int dtype); // as it lies in memory: "u16" for bf16
void ct__render_wide_type(ct_text *out, int dtype);

void ct__render_literal(ct_text *out, int dtype, const ct_kins *ins);
void ct__render_scalar(const ct_render *r, ct_kval v);   // as a scalar: lane 0 of affine values
void ct__render_wide(const ct_render *r, ct_kval v);     // as a 16-lane vector
void ct__render_value(const ct_render *r, ct_kval v);    // the right side of "v7 = ..." of an op
void ct__render_buffer(const ct_render *r, int64_t buf); // its name
// The prelude's function that turns storage into a value ("up_f16"), or back; "" for none.
typedef struct ct_converter {
    char s[16];
} ct_converter;
ct_converter ct__render_converter(const char *way, ct_dtype dtype);
// The operation of a REDUCE or FOLD itself: argmax compares as max does.
const char *ct__render_red_name(const ct_kins *ins);
// Index arithmetic that is used once stands where it is used, up to a readable depth.
void ct__render_find_nested(const ct_kir *k, const ct_kshape *shape, uint8_t *nested,
                            uint8_t *uses);
// Places in tensors, whose sizes are known to fit i64, and what they are computed from.
void ct__render_find_indices(const ct_kir *k, bool *index);
bool ct__render_nests(const ct_kir *k, ct_kval v, ct_kshape shape); // may v stand in an expression?

// Values of 32 bits that go up evenly from lane to lane, modulo 2^32, become affine.
void ct__render_find_ramps(const ct_kir *k, ct_kshape *shape);
// If an index is a widened i32 plus what is the same for all lanes: that i32; else -1.
ct_kval ct__render_narrow(const ct_kir *k, const ct_kshape *shape, ct_kval index);
// If a load is from a table (ct__kir_lookup): the i32 whose low bits say where; else -1.
ct_kval ct__render_looked_up(const ct_kir *k, const ct_kshape *shape, const ct_kins *load);
// Such indices of loads stand in place of their names.
void ct__render_find_narrow(const ct_kir *k, const ct_kshape *shape, const uint8_t *uses,
                            uint8_t *nested);
void ct__render_uniform_part(const ct_render *r, ct_kval index); // " + 5 + v7" of such an index
// Do the lanes that are loaded at places that are made of the i32 x lie in a row? Where x goes up by
// one it may wrap around between lanes; but no two lanes that are loaded, whose x is not negative,
// stand on different sides of that.
bool ct__render_is_row(const ct_render *r, const ct_kins *load, ct_kval x);

// Appends the math functions that a kernel needs (exp, log ...), each once and behind those that it needs itself. `write`:
// one of them, named ct__kir_math_name(f), of a renderer; shape and nested are room for its body's instructions, zeroed.
typedef void (*ct_math_writer)(const ct_kir *body, ct_kmath f, ct_dtype dtype, ct_kshape *shape,
                               const uint8_t *nested, ct_text *out);
bool ct__render_math(const ct_kir *k, ct_math_writer write, ct_text *out, ct_err *err);

static inline bool ct__render_is_wide(const ct_render *r, ct_kval v) {
    return r->shape[v].vary == CT_VARYING;
}

#endif
