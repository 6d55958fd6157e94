// Comparisons, bits, choice between values, and changes of dtype.
#include <math.h>

#include "ops/rules.h"

#define COMPARISON_EVAL(op, sign)                                                                  \
    static double op##_f64(const double *x) { return x[0] sign x[1]; }                             \
    static int64_t op##_i64(const int64_t *x, ct_dtype d) {                                        \
        return d == CT_U64 ? (uint64_t)x[0] sign(uint64_t) x[1] : x[0] sign x[1];                  \
    }
#define COMPARISON(ID, op, by, emitter)                                                            \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_elementwise, .n_in = 2, .n_out = 1,           \
    .infer = ct__infer_elementwise_bool, .eval_f64 = op##_f64, .eval_i64 = op##_i64,               \
    .jvp = CT_NO_GRAD, .emit = emitter, .instruction = CT_K_##by

// bools are compared as i32, since the IR has no order for bools.
static ct_kval compare_values(const ct_elem *e, ct_kval a, ct_kval b) {
    if (e->dtype == CT_BOOL) a = ct__kir_cast(e->k, a, CT_I32), b = ct__kir_cast(e->k, b, CT_I32);
    return ct__kir_bin(e->k, (ct_kop)e->node->op->instruction, a, b);
}
static ct_kval compare_emit(const ct_elem *e) { return compare_values(e, e->x[0], e->x[1]); }
static ct_kval compare_swapped_emit(const ct_elem *e) { // compares b with a
    return compare_values(e, e->x[1], e->x[0]);
}
COMPARISON_EVAL(equal, ==)
COMPARISON_EVAL(not_equal, !=)
COMPARISON_EVAL(less, <)
COMPARISON_EVAL(less_equal, <=)
COMPARISON_EVAL(greater, >)
COMPARISON_EVAL(greater_equal, >=)

const ct_opdef ct__op_equal = {
    COMPARISON(EQUAL, equal, EQ, compare_emit),
    .accepts = CT_NUMBERS | CT_MASK(CT_BOOL) | CT_COMPLEX,
    .split = ct__split_equal,
    .doc = "Where a equals b, as bool.",
    .onnx = "Equal",
    .stablehlo = "compare EQ",
};
const ct_opdef ct__op_not_equal = {
    COMPARISON(NOT_EQUAL, not_equal, NE, compare_emit),
    .accepts = CT_NUMBERS | CT_MASK(CT_BOOL) | CT_COMPLEX,
    .split = ct__split_not_equal,
    .doc = "Where a differs from b, as bool.",
    .stablehlo = "compare NE",
};
const ct_opdef ct__op_less = {
    COMPARISON(LESS, less, LT, compare_emit),
    .accepts = CT_NUMBERS | CT_MASK(CT_BOOL),
    .doc = "Where a is less than b, as bool.",
    .onnx = "Less",
    .stablehlo = "compare LT",
};
const ct_opdef ct__op_less_equal = {
    COMPARISON(LESS_EQUAL, less_equal, LE, compare_emit),
    .accepts = CT_NUMBERS | CT_MASK(CT_BOOL),
    .doc = "Where a is at most b, as bool.",
    .onnx = "LessOrEqual",
    .stablehlo = "compare LE",
};
const ct_opdef ct__op_greater = {
    COMPARISON(GREATER, greater, LT, compare_swapped_emit),
    .accepts = CT_NUMBERS | CT_MASK(CT_BOOL),
    .doc = "Where a is greater than b, as bool.",
    .onnx = "Greater",
    .stablehlo = "compare GT",
};
const ct_opdef ct__op_greater_equal = {
    COMPARISON(GREATER_EQUAL, greater_equal, LE, compare_swapped_emit),
    .accepts = CT_NUMBERS | CT_MASK(CT_BOOL),
    .doc = "Where a is at least b, as bool.",
    .onnx = "GreaterOrEqual",
    .stablehlo = "compare GE",
};

#define BITWISE(ID, op)                                                                            \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_elementwise, .n_in = 2, .n_out = 1,           \
    .accepts = CT_BITS, .infer = ct__infer_elementwise, .eval_i64 = op##_i64, .jvp = CT_NO_GRAD,   \
    .emit = ct__elem_bin, .instruction = CT_K_##ID, .stablehlo = #op

static int64_t and_i64(const int64_t *x, ct_dtype d) { return (void)d, x[0] & x[1]; }
const ct_opdef ct__op_and = {
    BITWISE(AND, and),
    .doc = "Bits that are set in a and in b; of bool: both.",
};
static int64_t or_i64(const int64_t *x, ct_dtype d) { return (void)d, x[0] | x[1]; }
const ct_opdef ct__op_or = {
    BITWISE(OR, or),
    .doc = "Bits that are set in a or in b; of bool: either.",
};
static int64_t xor_i64(const int64_t *x, ct_dtype d) { return (void)d, x[0] ^ x[1]; }
const ct_opdef ct__op_xor = {
    BITWISE(XOR, xor),
    .doc = "Bits that are set in one of a and b; of bool: they differ.",
};

static int64_t not_i64(const int64_t *x, ct_dtype d) { return d == CT_BOOL ? !x[0] : ~x[0]; }
const ct_opdef ct__op_not = {
    CT_OP(NOT, not, elementwise, 1, 1),
    .doc = "Bits that are not set in x; of bool: its opposite.",
    .accepts = CT_BITS,
    .infer = ct__infer_elementwise,
    .eval_i64 = not_i64,
    .jvp = CT_NO_GRAD,
    .emit = ct__elem_un,
    .instruction = CT_K_NOT,
    .onnx = "Not",
    .stablehlo = "not",
};

static int64_t shift_width(ct_dtype d) { return ct__dtype(d)->bits; }
static int64_t shift_left_i64(const int64_t *x, ct_dtype d) {
    return x[1] < 0 || x[1] >= shift_width(d) ? 0 : (int64_t)((uint64_t)x[0] << x[1]);
}
// Returns 0 where the shift count is not below the width, since the IR takes the count modulo the width.
static ct_kval shift_within_width(const ct_elem *e, ct_kval shifted) {
    ct_kir *k = e->k;
    ct_kval zero = ct__kir_const_int(k, e->dtype, 0);
    ct_kval ok = ct__kir_lt(k, e->x[1], ct__kir_const_int(k, e->dtype, shift_width(e->dtype)));
    if (ct__kir_compute_dtype(e->dtype) == CT_I32 || e->dtype == CT_I64)
        ok = ct__kir_bin(k, CT_K_AND, ok, ct__kir_bin(k, CT_K_LE, zero, e->x[1]));
    return ct__kir_select(k, ok, shifted, zero);
}
static ct_kval shift_left_emit(const ct_elem *e) {
    return shift_within_width(e, ct__kir_bin(e->k, CT_K_SHL, e->x[0], e->x[1]));
}
const ct_opdef ct__op_shift_left = {
    CT_OP(SHIFT_LEFT, shift_left, elementwise, 2, 1),
    .doc = "a shifted left by b bits; 0 where b is not 0 to width - 1.",
    .accepts = CT_INTEGERS,
    .infer = ct__infer_elementwise,
    .eval_i64 = shift_left_i64,
    .jvp = CT_NO_GRAD,
    .emit = shift_left_emit,
    .stablehlo = "shift_left",
    .samples = {.lo = 0, .hi = 7, .integers = true},
};
static int64_t shift_right_i64(const int64_t *x, ct_dtype d) {
    uint64_t mask = shift_width(d) == 64 ? UINT64_MAX : (1ull << shift_width(d)) - 1;
    return x[1] < 0 || x[1] >= shift_width(d) ? 0 : (int64_t)(((uint64_t)x[0] & mask) >> x[1]);
}
static ct_kval shift_right_emit(const ct_elem *e) { // shifts in zeros
    ct_kir *k = e->k;
    ct_kval r;
    if (e->dtype == CT_I32) {
        ct_kval a = ct__kir_cast(k, e->x[0], CT_U32), n = ct__kir_cast(k, e->x[1], CT_U32);
        r = ct__kir_cast(k, ct__kir_bin(k, CT_K_SHR, a, n), CT_I32);
    } else if (e->dtype == CT_I64) { // masks copies of the sign away: ((max >> n) << 1) + 1
        ct_kval max = ct__kir_const_int(k, CT_I64, INT64_MAX);
        ct_kval one = ct__kir_const_int(k, CT_I64, 1);
        ct_kval mask = ct__kir_bin(k, CT_K_SHR, max, e->x[1]);
        mask = ct__kir_bin(k, CT_K_OR, ct__kir_bin(k, CT_K_SHL, mask, one), one);
        r = ct__kir_bin(k, CT_K_AND, ct__kir_bin(k, CT_K_SHR, e->x[0], e->x[1]), mask);
    } else if (ct__kir_compute_dtype(e->dtype) !=
               e->dtype) { // computed in i32: without copies of its sign
        int64_t all = ((int64_t)1 << shift_width(e->dtype)) - 1;
        ct_kval bits = ct__kir_bin(k, CT_K_AND, e->x[0], ct__kir_const_int(k, CT_I32, all));
        r = ct__kir_bin(k, CT_K_SHR, bits, e->x[1]);
    } else {
        r = ct__kir_bin(k, CT_K_SHR, e->x[0], e->x[1]);
    }
    return shift_within_width(e, r);
}
const ct_opdef ct__op_shift_right = {
    CT_OP(SHIFT_RIGHT, shift_right, elementwise, 2, 1),
    .doc = "a shifted right by b bits, zeros coming in; 0 where b is not 0 to width - 1.",
    .accepts = CT_INTEGERS,
    .infer = ct__infer_elementwise,
    .eval_i64 = shift_right_i64,
    .jvp = CT_NO_GRAD,
    .emit = shift_right_emit,
    .stablehlo = "shift_right_logical",
    .samples = {.lo = 0, .hi = 7, .integers = true},
};

static double select_f64(const double *x) { return x[0] != 0 ? x[1] : x[2]; }
static int64_t select_i64(const int64_t *x, ct_dtype d) { return (void)d, x[0] ? x[1] : x[2]; }
static bool select_jvp(ct_rule *r) {
    ct_tensor a = r->t_in[1], b = r->t_in[2], zero = ct_f(0);
    return ct__set_tangent(
        r, ct_select(r->in[0], ct__is_none(a) ? zero : a, ct__is_none(b) ? zero : b));
}
static bool select_transpose(ct_rule *r) {
    if (r->linear[1]) r->c_in[1] = ct_select(r->in[0], r->c_out[0], ct_f(0));
    if (r->linear[2]) r->c_in[2] = ct_select(r->in[0], ct_f(0), r->c_out[0]);
    return true;
}
static ct_kval select_emit(const ct_elem *e) {
    return ct__kir_select(e->k, e->x[0], e->x[1], e->x[2]);
}
const ct_opdef ct__op_select = {
    CT_OP(SELECT, select, elementwise, 3, 1),
    .doc = "a where the condition (bool) holds, else b.",
    .accepts = CT_NUMBERS | CT_MASK(CT_BOOL) | CT_COMPLEX,
    .split = ct__split_each,
    .data = 6,
    .infer = ct__infer_elementwise,
    .condition = true,
    .eval_f64 = select_f64,
    .eval_i64 = select_i64,
    .jvp = select_jvp,
    .transpose = select_transpose,
    .emit = select_emit,
    .onnx = "Where",
    .stablehlo = "select",
};

// ------------------------------------------------------------------------------------------ dtypes

#define CAST_ATTRS(F, op) F(op, dtype, dtype)
CT_ATTRS(cast, CAST_ATTRS);

static bool cast_infer(ct_call *call) {
    const cast_attrs *attrs = call->attrs;
    if (!ct__is_dtype(attrs->dtype))
        return ct__call_err(call, CT_E_DTYPE, "%d is not a dtype", (int)attrs->dtype);
    const ct_dtype from = (ct_dtype)call->in[0]->dtype;
    if (ct__is_complex(from) && !ct__is_complex(attrs->dtype)) {
        ct__call_err(call, CT_E_DTYPE, "x is %s, and there is no place for complex numbers in %s",
                     ct__type_text(call->in[0]).s, ct_dtype_name(attrs->dtype));
        return ct__call_hint(call, "ct_real, ct_imag and ct_abs make floats of complex numbers");
    }
    *call->out = *call->in[0];
    call->out->dtype = (uint8_t)attrs->dtype;
    call->out->weak = false;
    return true;
}
static double cast_f64(const double *x) { return x[0]; }
static int64_t cast_i64(const int64_t *x, ct_dtype d) { return (void)d, x[0]; }
static bool cast_jvp(ct_rule *r) {
    ct_dtype to = ((const cast_attrs *)r->attrs)->dtype;
    return ct__set_tangent(r, ct__is_differentiable(to) &&
                                      ct__is_differentiable((ct_dtype)ct__type_of(r->in[0])->dtype)
                                  ? ct_cast(r->t_in[0], to)
                                  : CT_NONE);
}
static bool cast_transpose(ct_rule *r) {
    return ct__set_cotangent(
        r, ct__cotangent_like(r->c_out[0], (ct_dtype)ct__type_of(r->in[0])->dtype));
}
static ct_kval cast_emit(const ct_elem *e) {
    ct_dtype to = (ct_dtype)e->node->out->dtype;
    return to == e->dtype ? e->x[0] : ct__kir_cast(e->k, e->x[0], to);
}
const ct_opdef ct__op_cast = {
    CT_OP(CAST, cast, elementwise, 1, 1),
    .doc = "x in another dtype. Floats round to the nearest even; float to integer goes towards "
           "zero, saturates, and "
           "makes NaN 0; integers wrap; to bool: not equal to 0.",
    CT_FIELDS(cast),
    .accepts = CT_ANY,
    .converts = true,
    .split = ct__split_cast,
    .infer = cast_infer,
    .eval_f64 = cast_f64,
    .eval_i64 = cast_i64,
    .jvp = cast_jvp,
    .transpose = cast_transpose,
    .emit = cast_emit,
    .onnx = "Cast",
    .stablehlo = "convert",
    .unchanged = ct__always_unchanged,
};

CT_ATTRS(bitcast, CAST_ATTRS);

static bool bitcast_infer(ct_call *call) {
    const bitcast_attrs *attrs = call->attrs;
    ct_dtype from = call->in[0]->dtype;
    if (ct__is_complex(from) || ct__is_complex(attrs->dtype))
        return ct__call_err(call, CT_E_DTYPE,
                            "%s to %s: complex numbers have the bits of two floats",
                            ct_dtype_name(from), ct_dtype_name(attrs->dtype)) ||
               ct__call_hint(call, "bitcast their ct_real and ct_imag");
    if (ct_dtype_bits(attrs->dtype) != ct_dtype_bits(from))
        return ct__call_err(call, CT_E_DTYPE, "%s and %s differ in size", ct_dtype_name(from),
                            ct_dtype_name(attrs->dtype));
    *call->out = *call->in[0];
    call->out->dtype = (uint8_t)attrs->dtype;
    call->out->weak = false;
    return true;
}
static bool bitcast_eval(const ct_ref *ref) {
    size_t bytes = ct__type_bytes(ref->out_type);
    if (bytes) __builtin_memcpy(ref->out[0], ref->in[0], bytes);
    return true;
}
// 16-bit floats do not occur here: the scheduler reads their memory as the other dtype.
static ct_kval bitcast_emit(const ct_elem *e) {
    ct_dtype to = (ct_dtype)e->node->out->dtype;
    if (to == e->dtype) return e->x[0];
    bool is_float = ct__is_float(to) || ct__is_float(e->dtype);
    return is_float ? ct__kir_bitcast(e->k, e->x[0], to) : ct__kir_cast(e->k, e->x[0], to);
}
const ct_opdef ct__op_bitcast = {
    CT_OP(BITCAST, bitcast, elementwise, 1, 1),
    .doc = "The bits of x read as another dtype of the same size.",
    CT_FIELDS(bitcast),
    .accepts = CT_NUMBERS | CT_MASK(CT_BOOL) | CT_PACKED,
    .split = ct__split_bitcast,
    .infer = bitcast_infer,
    .eval = bitcast_eval,
    .jvp = CT_NO_GRAD,
    .emit = bitcast_emit,
    .reinterprets = true,
    .stablehlo = "bitcast_convert",
};
