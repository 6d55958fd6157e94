#include "base/dtype.h"

const ct_dtype_info ct__dtypes[CT_DTYPE_COUNT] = {
    [CT_DEFAULT] = {"?", CT_CLASS_NONE, 0, 0, 0, CT_DEFAULT, 0, NULL},
    [CT_BOOL] = {"bool", CT_CLASS_BOOL, 8, 0, 0, CT_BOOL, 'b', "BOOL"},
    [CT_U8] = {"u8", CT_CLASS_UINT, 8, 0, 0, CT_U8, 'u', "U8"},
    [CT_U16] = {"u16", CT_CLASS_UINT, 16, 0, 0, CT_I32, 'u', "U16"},
    [CT_U32] = {"u32", CT_CLASS_UINT, 32, 0, 0, CT_U32, 'u', "U32"},
    [CT_U64] = {"u64", CT_CLASS_UINT, 64, 0, 0, CT_U64, 'u', "U64"},
    [CT_I8] = {"i8", CT_CLASS_INT, 8, 0, 0, CT_I32, 'i', "I8"},
    [CT_I16] = {"i16", CT_CLASS_INT, 16, 0, 0, CT_I32, 'i', "I16"},
    [CT_I32] = {"i32", CT_CLASS_INT, 32, 0, 0, CT_I32, 'i', "I32"},
    [CT_I64] = {"i64", CT_CLASS_INT, 64, 0, 0, CT_I64, 'i', "I64"},
    [CT_F16] = {"f16", CT_CLASS_FLOAT, 16, 5, 10, CT_F32, 'f', "F16"},
    [CT_BF16] = {"bf16", CT_CLASS_FLOAT, 16, 8, 7, CT_F32, 0, "BF16"},
    [CT_F32] = {"f32", CT_CLASS_FLOAT, 32, 8, 23, CT_F32, 'f', "F32"},
    [CT_F64] = {"f64", CT_CLASS_FLOAT, 64, 11, 52, CT_F64, 'f', "F64"},
};

// ----------------------------------------------------------------------------------------- promotion
//
// JAX's lattice. A node is a dtype or a bare number, and UP_ of it is what it may become: itself, and
// all that those next above it may. Operands meet in the node above all of them that everything else
// above all of them is above, too.

enum {
    BARE_I32 = CT_DTYPE_COUNT,
    BARE_I64,
    FLOAT_OF_INTS, // of u64 and signed integers, which no integer holds: the float of JAX's default
    BARE_FLOAT,
    NODES
};
_Static_assert(NODES < 64, "a set of nodes has a bit for each");
#define NODE(n) ((uint64_t)1 << (n))
#define UP_F64 NODE(CT_F64)
#define UP_F32 (NODE(CT_F32) | UP_F64)
#define UP_BF16 (NODE(CT_BF16) | UP_F32)
#define UP_F16 (NODE(CT_F16) | UP_F32)
#define UP_BARE_FLOAT (NODE(BARE_FLOAT) | UP_F16 | UP_BF16)
#define UP_FLOAT_OF_INTS (NODE(FLOAT_OF_INTS) | UP_BARE_FLOAT)
#define UP_I64 (NODE(CT_I64) | UP_FLOAT_OF_INTS)
#define UP_I32 (NODE(CT_I32) | UP_I64)
#define UP_I16 (NODE(CT_I16) | UP_I32)
#define UP_I8 (NODE(CT_I8) | UP_I16)
#define UP_U64 (NODE(CT_U64) | UP_FLOAT_OF_INTS)
#define UP_U32 (NODE(CT_U32) | UP_U64 | UP_I64)
#define UP_U16 (NODE(CT_U16) | UP_U32 | UP_I32)
#define UP_U8 (NODE(CT_U8) | UP_U16 | UP_I16)
#define UP_BARE_I64 (NODE(BARE_I64) | UP_U8 | UP_I8)
#define UP_BARE_I32 (NODE(BARE_I32) | UP_BARE_I64)
#define UP_BOOL (NODE(CT_BOOL) | UP_BARE_I32)

static const struct {
    uint64_t up;
    ct_dtype dtype; // of a result
} nodes[NODES] = {
#define DTYPE(dtype) [CT_##dtype] = {UP_##dtype, CT_##dtype}
    DTYPE(BOOL),
    DTYPE(U8),
    DTYPE(U16),
    DTYPE(U32),
    DTYPE(U64),
    DTYPE(I8),
    DTYPE(I16),
    DTYPE(I32),
    DTYPE(I64),
    DTYPE(F16),
    DTYPE(BF16),
    DTYPE(F32),
    DTYPE(F64),
    [BARE_I32] = {UP_BARE_I32, CT_I32},
    [BARE_I64] = {UP_BARE_I64, CT_I64},
    [BARE_FLOAT] = {UP_BARE_FLOAT, CT_F32},
    [FLOAT_OF_INTS] = {UP_FLOAT_OF_INTS, CT_F64},
};

static int node_of(ct_dtype d, bool bare) {
    if (!bare || d == CT_BOOL) return (int)d;
    return ct__is_float(d) ? BARE_FLOAT : d == CT_I64 ? BARE_I64 : BARE_I32;
}

ct_meeting ct__meet(ct_meeting others, ct_dtype d, bool bare) {
    return (ct_meeting){others.above & nodes[node_of(d, bare)].up};
}
ct_dtype ct__met(ct_meeting all) {
    const uint64_t above = all.above & (NODE(NODES) - 1);
    for (uint64_t rest = above; rest; rest &= rest - 1) {
        const int node = __builtin_ctzll(rest);
        if (!(above & ~nodes[node].up)) return nodes[node].dtype;
    }
    return CT_DEFAULT;
}
ct_dtype ct__promote(ct_dtype a, bool a_bare, ct_dtype b, bool b_bare) {
    if (a == b && a_bare == b_bare) return a;
    return ct__met(ct__meet(ct__meet(CT_NOBODY_YET, a, a_bare), b, b_bare));
}

const char *ct_dtype_name(ct_dtype dtype) { return ct__dtype(dtype)->name; }
size_t ct_dtype_size(ct_dtype dtype) { return ct__dtype(dtype)->bits / 8u; }
