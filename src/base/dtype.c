#include "base/dtype.h"

#include <math.h>
#include <string.h>

#define NONE CT_CLASS_NONE
#define BOOL CT_CLASS_BOOL
#define UINT CT_CLASS_UINT
#define INT CT_CLASS_INT
#define FLOAT CT_CLASS_FLOAT
#define COMPLEX CT_CLASS_COMPLEX
// clang-format off
const ct_dtype_info ct__dtypes[CT_DTYPE_COUNT] = {
    // name, class, bits, exponent and mantissa, special codes, compute dtype, component, NumPy's
    // letter, safetensors' name
    [CT_DEFAULT] = {"?",      NONE,   0,  0, 0,  0,          CT_DEFAULT, 0, 0, NULL},
    [CT_BOOL]    = {"bool",   BOOL,   8,  0, 0,  0,          CT_BOOL, 0,     'b', "BOOL"},
    [CT_U8]      = {"u8",     UINT,   8,  0, 0,  0,          CT_U8,   0,     'u', "U8"},
    [CT_U16]     = {"u16",    UINT,  16,  0, 0,  0,          CT_I32,  0,     'u', "U16"},
    [CT_U32]     = {"u32",    UINT,  32,  0, 0,  0,          CT_U32,  0,     'u', "U32"},
    [CT_U64]     = {"u64",    UINT,  64,  0, 0,  0,          CT_U64,  0,     'u', "U64"},
    [CT_I8]      = {"i8",     INT,    8,  0, 0,  0,          CT_I32,  0,     'i', "I8"},
    [CT_I16]     = {"i16",    INT,   16,  0, 0,  0,          CT_I32,  0,     'i', "I16"},
    [CT_I32]     = {"i32",    INT,   32,  0, 0,  0,          CT_I32,  0,     'i', "I32"},
    [CT_I64]     = {"i64",    INT,   64,  0, 0,  0,          CT_I64,  0,     'i', "I64"},
    [CT_F16]     = {"f16",    FLOAT, 16,  5, 10, CT_IEEE,    CT_F32,  0,     'f', "F16"},
    [CT_BF16]    = {"bf16",   FLOAT, 16,  8, 7,  CT_IEEE,    CT_F32,  0,     0,   "BF16"},
    [CT_F32]     = {"f32",    FLOAT, 32,  8, 23, CT_IEEE,    CT_F32,  0,     'f', "F32"},
    [CT_F64]     = {"f64",    FLOAT, 64, 11, 52, CT_IEEE,    CT_F64,  0,     'f', "F64"},
    [CT_F8E4M3]  = {"f8e4m3", FLOAT,  8,  4, 3,  CT_ONE_NAN, CT_F32,  0,     0,   "F8_E4M3"},
    [CT_F8E5M2]  = {"f8e5m2", FLOAT,  8,  5, 2,  CT_IEEE,    CT_F32,  0,     0,   "F8_E5M2"},
    [CT_U4]      = {"u4",     UINT,   4,  0, 0,  0,          CT_U8,   CT_U8, 0,   NULL},
    [CT_I4]      = {"i4",     INT,    4,  0, 0,  0,          CT_U8,   CT_U8, 0,   NULL},
    [CT_F4]      = {"f4",     FLOAT,  4,  2, 1,  CT_FINITE,  CT_U8,   CT_U8, 0,   "F4"},
    [CT_C64]     = {"c64",  COMPLEX, 64,  0, 0,  0,          CT_F32, CT_F32, 'c', "C64"},
    [CT_C128]    = {"c128", COMPLEX, 128, 0, 0,  0,          CT_F64, CT_F64, 'c', NULL},
};
// clang-format on

const char *ct_dtype_name(ct_dtype dtype) { return ct__dtype(dtype)->name; }
int ct_dtype_bits(ct_dtype dtype) { return ct__dtype(dtype)->bits; }
size_t ct_dtype_size(ct_dtype dtype) { return ct__dtype(dtype)->bits / 8u; }

// -------------------------------------------------------------------------------------- conversions

static int dtype_exponent_bias(const ct_dtype_info *f) { return (1 << (f->exponent - 1)) - 1; }
static uint32_t
dtype_infinity_code(const ct_dtype_info *f) { // the code it would have, for dtypes without one
    return ((1u << f->exponent) - 1) << f->mantissa;
}
static uint32_t dtype_largest_code(const ct_dtype_info *f) {
    const uint32_t all = (1u << (f->exponent + f->mantissa)) - 1;
    return f->special == CT_IEEE      ? dtype_infinity_code(f) - 1
           : f->special == CT_ONE_NAN ? all - 1
                                      : all;
}

uint32_t ct__encode_float(ct_dtype d, double value) {
    const ct_dtype_info *f = ct__dtype(d);
    const int bits = f->exponent + f->mantissa, least = 1 - dtype_exponent_bias(f);
    uint64_t v, code = 0;
    memcpy(&v, &value, sizeof v);
    const uint32_t sign = (uint32_t)(v >> 63) << bits;
    const int exponent = (int)(v >> 52 & 0x7ff) - 1023;
    const uint64_t fraction = v & 0xfffffffffffffu;
    if (exponent == 1024 && fraction) {
        if (f->special == CT_FINITE) return sign ^ 1u << bits;
        if (f->special == CT_ONE_NAN) return sign | (dtype_largest_code(f) + 1);
        const uint32_t payload = f->bits == 8 ? 0 : (uint32_t)(fraction >> (52 - f->mantissa));
        return sign | dtype_infinity_code(f) | 1u << (f->mantissa - 1) | payload;
    }
    // The last `drop` of 53 bits are rounded off; more if the result is subnormal.
    const int drop = 52 - f->mantissa + (exponent < least ? least - exponent : 0);
    if (drop <= 54) {
        const uint64_t whole = fraction | 1ull << 52, rest = whole & ((1ull << drop) - 1);
        const uint64_t half = 1ull << (drop - 1);
        code = whole >> drop;
        code += rest > half || (rest == half && (code & 1)); // may carry into the exponent
        if (exponent > least) code += (uint64_t)(exponent - least) << f->mantissa;
    }
    const uint32_t most = dtype_largest_code(f);
    if (code > most) code = most + (f->special != CT_FINITE); // the next code is infinity or NaN
    return sign | (uint32_t)code;
}

double ct__decode_float(ct_dtype d, uint32_t code) {
    const ct_dtype_info *f = ct__dtype(d);
    const int bits = f->exponent + f->mantissa;
    const bool negative = code >> bits & 1;
    code &= (1u << bits) - 1;
    const int exponent = (int)(code >> f->mantissa);
    const uint32_t mantissa = code & ((1u << f->mantissa) - 1);
    double value;
    if (code > dtype_largest_code(f)) {
        uint64_t v = 0x7ffull << 52 | (uint64_t)mantissa << (52 - f->mantissa);
        if (f->bits == 8 && (f->special == CT_ONE_NAN || mantissa)) v = 0x7ff8ull << 48;
        memcpy(&value, &v, sizeof value);
    } else if (exponent) {
        value = ldexp((double)(mantissa | 1u << f->mantissa),
                      exponent - dtype_exponent_bias(f) - f->mantissa);
    } else {
        value = ldexp((double)mantissa, 1 - dtype_exponent_bias(f) - f->mantissa);
    }
    return negative ? -value : value;
}

double ct__float_max(ct_dtype d) {
    return d == CT_F64 ? 0x1.fffffffffffffp1023
                       : ct__decode_float(d, dtype_largest_code(ct__dtype(d)));
}
double ct__float_min_normal(ct_dtype d) { return ldexp(1, 1 - dtype_exponent_bias(ct__dtype(d))); }

// ----------------------------------------------------------------------------------------- promotion
//
// JAX's lattice. A node is a dtype or a weak type; UP_ of it is the set of nodes that it may
// become: itself and all nodes reachable upwards. The result of several operands is their least
// upper bound.

enum {
    WEAK_I32 = CT_DTYPE_COUNT,
    WEAK_I64,
    FLOAT_OF_INTS, // of u64 and a signed integer, which no integer dtype holds: JAX's default float
    WEAK_FLOAT,
    WEAK_COMPLEX,
    NODES
};
_Static_assert(NODES < 64, "a set of nodes has a bit for each");
#define NODE(n) ((uint64_t)1 << (n))
#define UP_C128 NODE(CT_C128)
#define UP_C64 (NODE(CT_C64) | UP_C128)
#define UP_WEAK_COMPLEX (NODE(WEAK_COMPLEX) | UP_C64)
#define UP_F64 (NODE(CT_F64) | UP_C128)
#define UP_F32 (NODE(CT_F32) | UP_F64 | UP_C64)
#define UP_BF16 (NODE(CT_BF16) | UP_F32)
#define UP_F16 (NODE(CT_F16) | UP_F32)
#define UP_F4 NODE(CT_F4)
#define UP_F8E4M3 NODE(CT_F8E4M3)
#define UP_F8E5M2 NODE(CT_F8E5M2)
#define UP_WEAK_FLOAT                                                                              \
    (NODE(WEAK_FLOAT) | UP_F4 | UP_F8E4M3 | UP_F8E5M2 | UP_F16 | UP_BF16 | UP_WEAK_COMPLEX)
#define UP_FLOAT_OF_INTS (NODE(FLOAT_OF_INTS) | UP_WEAK_FLOAT)
#define UP_I64 (NODE(CT_I64) | UP_FLOAT_OF_INTS)
#define UP_I32 (NODE(CT_I32) | UP_I64)
#define UP_I16 (NODE(CT_I16) | UP_I32)
#define UP_I8 (NODE(CT_I8) | UP_I16)
#define UP_U64 (NODE(CT_U64) | UP_FLOAT_OF_INTS)
#define UP_U32 (NODE(CT_U32) | UP_U64 | UP_I64)
#define UP_U16 (NODE(CT_U16) | UP_U32 | UP_I32)
#define UP_U8 (NODE(CT_U8) | UP_U16 | UP_I16)
#define UP_U4 NODE(CT_U4)
#define UP_I4 NODE(CT_I4)
#define UP_WEAK_I64 (NODE(WEAK_I64) | UP_U4 | UP_I4 | UP_U8 | UP_I8)
#define UP_WEAK_I32 (NODE(WEAK_I32) | UP_WEAK_I64)
#define UP_BOOL (NODE(CT_BOOL) | UP_WEAK_I32)

static const struct {
    uint64_t up;
    ct_dtype dtype; // of the result
} promotion_nodes[NODES] = {
#define DTYPE(dtype) [CT_##dtype] = {UP_##dtype, CT_##dtype}
    // clang-format off
    DTYPE(BOOL), DTYPE(U4), DTYPE(U8), DTYPE(U16), DTYPE(U32), DTYPE(U64), DTYPE(I4), DTYPE(I8), DTYPE(I16), DTYPE(I32),
    DTYPE(I64), DTYPE(F4), DTYPE(F8E4M3), DTYPE(F8E5M2), DTYPE(F16), DTYPE(BF16), DTYPE(F32), DTYPE(F64),
    DTYPE(C64), DTYPE(C128),
    // clang-format on
    [WEAK_I32] = {UP_WEAK_I32, CT_I32},
    [WEAK_I64] = {UP_WEAK_I64, CT_I64},
    [WEAK_FLOAT] = {UP_WEAK_FLOAT, CT_F32},
    [WEAK_COMPLEX] = {UP_WEAK_COMPLEX, CT_C64},
    [FLOAT_OF_INTS] = {UP_FLOAT_OF_INTS, CT_F64},
};

static int dtype_promotion_node(ct_dtype d, bool weak) {
    if (!weak || d == CT_BOOL) return (int)d;
    if (ct__is_complex(d)) return WEAK_COMPLEX;
    return ct__is_float(d) ? WEAK_FLOAT : d == CT_I64 ? WEAK_I64 : WEAK_I32;
}

ct_promotion ct__promotion_add(ct_promotion others, ct_dtype d, bool weak) {
    return (ct_promotion){others.above & promotion_nodes[dtype_promotion_node(d, weak)].up};
}
ct_dtype ct__promotion_result(ct_promotion all) {
    const uint64_t above = all.above & (NODE(NODES) - 1);
    for (uint64_t rest = above; rest; rest &= rest - 1) {
        const int node = __builtin_ctzll(rest);
        if (!(above & ~promotion_nodes[node].up)) return promotion_nodes[node].dtype;
    }
    return CT_DEFAULT;
}
ct_dtype ct__promote(ct_dtype a, bool a_weak, ct_dtype b, bool b_weak) {
    if (a == b && a_weak == b_weak) return a;
    return ct__promotion_result(
        ct__promotion_add(ct__promotion_add(CT_PROMOTION_START, a, a_weak), b, b_weak));
}
