// Dtypes and shapes: properties, promotion, broadcasting, text.
#ifndef COTAN_GRAPH_TYPE_H
#define COTAN_GRAPH_TYPE_H

#include "base/dtype.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/text.h"

static inline bool ct__num_given(ct_num number) { return number.given || number.value != 0; }
static inline double ct__num_or(ct_num number, double otherwise) {
    return ct__num_given(number) ? number.value : otherwise;
}

// Sizes and positions in attributes: one marked by CT_DYN is an argument of the kernels.
// If CT_DYN was given a negative number, it is only unmarked, so that the check that rejects it can report
// it.
#define CT_DYN_END ((int64_t)1 << 48)
// While a plan is built, a marked size names a symbol (graph/symbols.h) instead of holding the number.
#define CT_SYMBOL_MARK ((int64_t)((uint64_t)0x5d40 << 48))
static inline bool ct__is_symbol(int64_t size) {
    return size >= CT_SYMBOL_MARK && size < CT_SYMBOL_MARK + ((int64_t)1 << 32);
}
int64_t ct__symbol_value(int64_t size); // in the run for which the plan is built
static inline int64_t ct__unmarked(int64_t size) {
    int64_t n = (int64_t)((uint64_t)size - (uint64_t)CT_DYN(0));
    if (n >= -CT_DYN_END && n < CT_DYN_END) return n;
    return ct__is_symbol(size) ? ct__symbol_value(size) : size;
}
static inline bool ct__marked(int64_t size) {
    int64_t n = ct__unmarked(size);
    return n != size && n >= 0;
}

// The type of one output of a node. `weak`: a bare number (ct_f, ct_i), which takes the dtype of the operands
// it is combined with.
typedef struct ct_type {
    uint8_t dtype; // ct_dtype
    uint8_t rank;
    bool weak;
    uint8_t device;      // index of its device; 0: the context's own
    uint32_t dyn;        // bit i: dim[i] is dynamic, an argument of the kernels
    const int64_t *dim;  // (rank)
    const int64_t *mark; // (rank) in a plan being built: the sizes as in attributes, a symbol for
                         // a dynamic axis; NULL elsewhere
} ct_type;
_Static_assert(CT_DTYPE_COUNT <= UINT8_MAX, "records hold a dtype in 8 bits");
// The size of an axis as in attributes: marked if it is dynamic.
static inline int64_t ct__size_of(const ct_type *type, int axis) {
    if (type->mark) return type->mark[axis];
    return type->dyn >> axis & 1 ? CT_DYN(type->dim[axis]) : type->dim[axis];
}

int64_t ct__count(const ct_type *type); // number of elements; 1 for a scalar
static inline size_t ct__type_bytes(const ct_type *t) {
    return ct__dtype_bytes((ct_dtype)t->dtype, ct__count(t));
}
bool ct__same_shape(const ct_type *a, const ct_type *b); // equal sizes, and the same axes dynamic
// Compares the sizes only. In a plan an axis may be dynamic that was not when the node was recorded, or the
// other way round if it was unified with one that is not.
bool ct__same_sizes(const ct_type *a, const ct_type *b);
bool ct__same_type(const ct_type *a, const ct_type *b); // all fields
bool ct__is_dyn(const ct_type *type, int axis);
// Makes a type from a user's dims (CT_DYN marks dynamic ones); dims are stored in the arena.
bool ct__type_from_dims(ct_arena *arena, ct_dtype dtype, ct_ints dims, ct_type *type, ct_err *err,
                        ct_loc here, const char *op);
// True if a tensor of these sizes is possible. Axes of size 0 count as 1: strides are products too.
bool ct__type_fits(const ct_type *type, ct_err *err, ct_loc here, const char *op);
// Broadcasts n types (NumPy's rule; a dynamic axis never broadcasts, even at 1). False: incompatible.
bool ct__broadcast(ct_arena *arena, const ct_type *const *types, int n, ct_type *out);
void ct__print_index(ct_text *text, const ct_type *type, int64_t i); // "(2, 7)"
// The index of the element of `in`, which broadcasts to `out`, for element i of `out`.
int64_t ct__broadcast_index(const ct_type *out, const ct_type *in, int64_t i);
// Row-major strides in elements.
void ct__strides(const ct_type *type, int64_t *stride);
// Splits the linear index i into one index per axis.
static inline void ct__index_of(const ct_type *type, int64_t i, int64_t *index) {
    for (int a = type->rank - 1; a >= 0; a--) {
        index[a] = i % type->dim[a];
        i /= type->dim[a];
    }
}
// Normalises an axis (negative: from the end) to 0..rank-1; -1 if out of range.
int ct__axis(int64_t axis, int rank);

// "(2, 3) f32", in a buffer returned by value; dynamic sizes as "n=5".
enum { CT_TYPE_TEXT = 160 };
typedef struct {
    char s[CT_TYPE_TEXT];
} ct_type_text;
ct_type_text ct__type_text(const ct_type *type);
// "(2, n=3) f32": the text of a shape and a dtype; sizes beyond the cap end in "...". `dyn` as in ct_type.
// Returns out.
const char *ct__shape_text(char *out, size_t cap, const char *dtype, size_t rank,
                           const uint64_t *dim, uint32_t dyn);
void ct__text_dims(ct_text *text, const ct_type *type);

// Converts one element in memory to double (exact but for i64 and u64 above 2^53) and back (floats are
// rounded to nearest even; integers truncated towards zero and saturated, NaN to 0).
double ct__load_f64(ct_dtype dtype, const void *data, int64_t i);
void ct__store_f64(ct_dtype dtype, void *data, int64_t i, double value);
// Converts one element to i64, a u64 by its bits; back, integers wrap and floats are rounded to nearest even.
int64_t ct__load_i64(ct_dtype dtype, const void *data, int64_t i);
void ct__store_i64(ct_dtype dtype, void *data, int64_t i, int64_t value);
void ct__store_u64(ct_dtype dtype, void *data, int64_t i, uint64_t value);
// An integer as text, from the bits of ct__load_i64.
typedef struct {
    char s[24];
} ct_int_text;
ct_int_text ct__int_text(ct_dtype dtype, int64_t bits);

#endif
