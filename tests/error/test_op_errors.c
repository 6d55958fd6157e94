// What is wrong with the operands or options of an op is said at once, at the caller's line, and
// whole: file, line, op, what, values, hint.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "cotan/cotan.h"

// Compilers differ over which line a macro call of several lines stands on: any of them will do.
static void failed(ct_tensor bad, int line, ct_code code, const char *text) {
    unsigned said = 0;
    int skip = 0;
    assert_false(ct_ok(bad));
    assert_true(ct_failed());
    const char *whole = ct_error_text();
    assert_int_equal(sscanf(whole, "tests/error/test_op_errors.c:%u: %n", &said, &skip), 1);
    assert_in_range(said, line - 6, line + 6);
    assert_string_equal(whole + skip, text);
    assert_int_equal(ct_error_code(), code);
    ct_error_clear();
}
#define FAILS(expr, code, text) failed(expr, __LINE__, code, text)

// Tensors of one dtype and shape; values do not matter here.
static ct_tensor of(ct_dtype dtype, ct_ints dims) { return ct_zeros(dtype, dims); }
#define F(...) of(CT_F32, CT_DIMS(__VA_ARGS__))
#define D(...) of(CT_F64, CT_DIMS(__VA_ARGS__))
#define I(...) of(CT_I32, CT_DIMS(__VA_ARGS__))
#define B(...) of(CT_BOOL, CT_DIMS(__VA_ARGS__))
#define U(...) of(CT_U32, CT_DIMS(__VA_ARGS__))
static ct_tensor one(ct_dtype dtype) { return of(dtype, CT_SCALAR); }

static void sources(void **state) {
    (void)state;
    CT_SCOPE;
    const int64_t many = 1ll << 31;
    FAILS(ct_zeros(CT_F32, CT_DIMS(many, many)), CT_E_SHAPE,
          "zeros: (2147483648, 2147483648) f32 is too large: the sizes multiply to 2^60 or more");
    FAILS(ct_ones(CT_U8, CT_DIMS(0, many, many)), CT_E_SHAPE,
          "ones: (0, 2147483648, 2147483648) u8 is too large: the sizes multiply to 2^60 or more");
    FAILS(ct_zeros(CT_U8, CT_DIMS((1ll << 62) + 5)), CT_E_SHAPE,
          "zeros: (4611686018427387909,) u8 is too large: the sizes multiply to 2^60 or more");
    FAILS(ct_zeros(CT_F32, CT_DIMS(CT_DYN(-1))), CT_E_SHAPE, "zeros: axis 0 has size -1");
    FAILS(ct_reshape(F(CT_DYN(1ll << 30), CT_DYN(1ll << 20)), CT_DIMS(-1)), CT_E_SHAPE,
          "reshape: (n=1125899906842624,) f32 is too large: a dynamic size must be below 2^48");
    FAILS(ct_ones(CT_F32, CT_DIMS(3, -1)), CT_E_SHAPE, "ones: axis 1 has size -1");
    FAILS(ct_ones((ct_dtype)77, CT_DIMS(3)), CT_E_DTYPE, "ones: 77 is not a dtype");
    FAILS(ct_full(F(2, 4), CT_DIMS(2)), CT_E_SHAPE,
          "full: the value is (2, 4) f32, it must be a scalar");
    FAILS(ct_full(ct_i(3), CT_DIMS(-2)), CT_E_SHAPE, "full: axis 0 has size -2");
    FAILS(ct_full(ct_i(3), CT_DIMS(many, many)), CT_E_SHAPE,
          "full: (2147483648, 2147483648) i32 is too large: the sizes multiply to 2^60 or more");
    ct_params *set = ct_params_new();
    FAILS(ct_param(set, "fc.weight", CT_F32, CT_DIMS(many, many)), CT_E_SHAPE,
          "param: \"fc.weight\": (2147483648, 2147483648) f32 is too large: the sizes multiply to "
          "2^60 or more");
    FAILS(ct_param(set, "fc.bias", CT_F32, CT_DIMS(-1)), CT_E_SHAPE,
          "param: \"fc.bias\": axis 0 has size -1");
    assert_int_equal(ct_params_count(set), 0);
    ct_params_free(set);
}

static void elementwise(void **state) {
    (void)state;
    CT_SCOPE;
    FAILS(ct_add(F(2, 3), F(4)), CT_E_SHAPE,
          "add: shapes do not broadcast: (2, 3) f32 and (4,) f32"
          "\n  hint: counted from the last axis, sizes must be equal or 1: here they are 4 and 3");
    FAILS(ct_add(F(64, 10), F(64)), CT_E_SHAPE,
          "add: shapes do not broadcast: (64, 10) f32 and (64,) f32\n  hint: to go along axis 0 of "
          "the other, make (64,) a column: ct_reshape(x, CT_DIMS(-1, 1))");
    FAILS(ct_mul(F(2, 3), F(3, 2)), CT_E_SHAPE,
          "mul: shapes do not broadcast: (2, 3) f32 and (3, 2) f32\n  hint: one is the transpose "
          "of the other's shape: ct_permute(x, CT_AXES(1, 0))");
    FAILS(ct_add(F(CT_DYN(1)), F(4)), CT_E_SHAPE,
          "add: shapes do not broadcast: (n=1,) f32 and (4,) f32"
          "\n  hint: a dynamic size never broadcasts, even where it is 1");
    FAILS(ct_add(B(2), B(2)), CT_E_DTYPE,
          "add: operand 1 is (2,) bool, accepted are integers, floats and complex numbers"
          "\n  hint: cast it: ct_cast(x, CT_I32)");
    FAILS(ct_exp(I(3)), CT_E_DTYPE,
          "exp: operand 1 is (3,) i32, accepted are floats and complex numbers"
          "\n  hint: cast it: ct_cast(x, CT_F32)");
    FAILS(ct_and(of(CT_U64, CT_DIMS(3)), of(CT_I8, CT_DIMS(3))),
          CT_E_DTYPE, // f64: no integer holds both
          "and: (3,) u64 and (3,) i8 become f64, accepted are bool and "
          "integers\n  hint: cast one to the dtype of the other");
    FAILS(ct_add(ct_cast(F(3), CT_F8E4M3), F(3)), CT_E_DTYPE,
          "add: f8e4m3 and f32 do not promote to one dtype\n  hint: cast it: ct_cast(x, CT_F32)");
    FAILS(ct_matmul(ct_cast(F(2, 3), CT_F8E5M2), ct_cast(F(3, 2), CT_F8E4M3)), CT_E_DTYPE,
          "matmul: f8e5m2 and f8e4m3 do not promote to one dtype"
          "\n  hint: cast it: ct_cast(x, CT_F32)");
    FAILS(ct_hypot(I(3), ct_i(2)), CT_E_DTYPE,
          "hypot: operand 1 is (3,) i32, accepted are floats"
          "\n  hint: cast it: ct_cast(x, CT_F32)");
    FAILS(ct_hypot(ct_i(2), I(3)), CT_E_DTYPE,
          "hypot: operand 2 is (3,) i32, accepted are floats"
          "\n  hint: cast it: ct_cast(x, CT_F32)");
    FAILS(ct_hypot(ct_i(2), ct_i(3)), CT_E_DTYPE,
          "hypot: operand 1 is () i32, accepted are floats"
          "\n  hint: cast it: ct_cast(x, CT_F32)");
    FAILS(ct_and(F(3), I(3)), CT_E_DTYPE,
          "and: operand 1 is (3,) f32, accepted are bool and integers"
          "\n  hint: cast it: ct_cast(x, CT_BOOL)");
    FAILS(ct_select(F(3), F(3), F(3)), CT_E_DTYPE,
          "select: the condition is (3,) f32, it must be bool"
          "\n  hint: compare it: ct_not_equal(condition, ct_f(0))");
    FAILS(ct_select(B(2), F(3), F(3)), CT_E_SHAPE,
          "select: shapes do not broadcast: (2,) bool, (3,) f32 and (3,) f32"
          "\n  hint: counted from the last axis, sizes must be equal or 1: here they are 2 and 3");
    FAILS(ct_clamp(F(2), F(3), F(1)), CT_E_SHAPE,
          "clamp: shapes do not broadcast: (2,) f32, (3,) f32 and (1,) f32"
          "\n  hint: counted from the last axis, sizes must be equal or 1: here they are 2 and 3");
    FAILS(ct_one_hot(I(2), CT_DYN(-1), CT_F32), CT_E_ARGUMENT, "one_hot: the new axis has size -1");
    FAILS(ct_cast(F(2), (ct_dtype)77), CT_E_DTYPE, "cast: 77 is not a dtype");
    FAILS(ct_bitcast(F(2), CT_F64), CT_E_DTYPE, "bitcast: f32 and f64 differ in size");
    FAILS(ct_relu(B(2)), CT_E_DTYPE,
          "relu: operand 1 is (2,) bool, accepted are integers and floats"
          "\n  hint: cast it: ct_cast(x, CT_I32)");
    FAILS(ct_is_nan(B(2)), CT_E_DTYPE,
          "is_nan: operand 1 is (2,) bool, accepted are integers, floats and complex numbers"
          "\n  hint: cast it: ct_cast(x, CT_I32)");
    FAILS(ct_tan(I(2)), CT_E_DTYPE,
          "tan: operand 1 is (2,) i32, accepted are floats and complex numbers"
          "\n  hint: cast it: ct_cast(x, CT_F32)");
    FAILS(ct_one_hot(F(2), 3, CT_F32), CT_E_DTYPE,
          "one_hot: operand 1 is (2,) f32, accepted are integers"
          "\n  hint: cast it: ct_cast(x, CT_I32)");
    FAILS(ct_one_hot(I(2), -3, CT_F32), CT_E_ARGUMENT, "one_hot: the new axis has size -3");
}

#define TOO_BIG(op, operand, value, dtype, range)                                                  \
    op ": operand " operand " is " value ", which does not fit " dtype " (" range                  \
       ")\n  hint: ct_cast the tensor to a dtype that holds it, or the number to " dtype           \
       ": that wraps"

#define NOT_COMPARED(op, operand, value, dtype, range, wider)                                      \
    op ": operand " operand " is " value ", which does not fit " dtype " (" range                  \
       ")\n  hint: ct_cast the tensor to a wider dtype: ct_cast(x, CT_" wider ")"

typedef struct {
    bool spread;
    int line;
} comparison;
static void compared(const ct_tensor *in, ct_tensor *out, void *user) {
    comparison *c = user;
    ct_tensor number = c->spread ? ct_full(ct_i(300), CT_DIMS(3)) : ct_i(300);
    c->line = __LINE__ + 1;
    out[0] = ct_less(in[0], number);
}

// A bare integer takes the dtype of the integers that it meets, which must hold it.
static void bare_integers(void **state) {
    (void)state;
    CT_SCOPE;
    const ct_dtype dtypes[] = {CT_U8, CT_U16, CT_U32, CT_I8, CT_I16, CT_I32};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        const ct_dtype dtype = dtypes[d];
        const int64_t bits = 8 * (int64_t)ct_dtype_size(dtype);
        const bool is_signed = dtype >= CT_I8;
        const int64_t least = is_signed ? -(1ll << (bits - 1)) : 0;
        const int64_t most = (1ll << (is_signed ? bits - 1 : bits)) - 1;
        ct_tensor x = of(dtype, CT_DIMS(3));
        assert_int_equal(ct_dtype_of(ct_add(x, ct_i(least))), dtype);
        assert_int_equal(ct_dtype_of(ct_add(ct_i(most), x)), dtype);
        char text[256];
        for (int side = 0; side < 2; side++) {
            const int64_t value = side ? most + 1 : least - 1;
            (void)snprintf(text, sizeof text, TOO_BIG("add", "%d", "%lld", "%s", "%lld to %lld"),
                           2 - side, (long long)value, ct_dtype_name(dtype), (long long)least,
                           (long long)most, ct_dtype_name(dtype));
            FAILS(side ? ct_add(ct_i(value), x) : ct_add(x, ct_i(value)), CT_E_ARGUMENT, text);
        }
    }
    ct_tensor x = of(CT_U8, CT_DIMS(3));
    FAILS(ct_less(x, ct_i(300)), CT_E_ARGUMENT,
          NOT_COMPARED("less", "2", "300", "u8", "0 to 255", "I64"));
    FAILS(ct_clamp(x, ct_i(0), ct_i(256)), CT_E_ARGUMENT,
          TOO_BIG("clamp", "3", "256", "u8", "0 to 255"));
    FAILS(ct_select(B(3), ct_i(-1), x), CT_E_ARGUMENT,
          TOO_BIG("select", "2", "-1", "u8", "0 to 255"));
    FAILS(ct_pad(x, .value = ct_i(256), .low = CT_INTS(1)), CT_E_ARGUMENT,
          TOO_BIG("pad", "2", "256", "u8", "0 to 255"));
    FAILS(ct_add(x, ct_full(ct_i(300), CT_DIMS(2, 3))), CT_E_ARGUMENT,
          TOO_BIG("add", "2", "300", "u8", "0 to 255"));
    FAILS(ct_dynamic_update(x, ct_full(ct_i(-1), CT_DIMS(1)), ct_i(300)), CT_E_ARGUMENT,
          TOO_BIG("dynamic_update", "2", "-1", "u8", "0 to 255"));
    FAILS(ct_scatter_add(x, I(1), ct_full(ct_i(999), CT_DIMS(1))), CT_E_ARGUMENT,
          TOO_BIG("scatter_add", "3", "999", "u8", "0 to 255"));
    FAILS(ct_add(of(CT_U64, CT_DIMS(3)), ct_i(-1)), CT_E_ARGUMENT,
          TOO_BIG("add", "2", "-1", "u64", "0 to 18446744073709551615"));
    FAILS(ct_equal(ct_i(-1), of(CT_U64, CT_DIMS(3))), CT_E_ARGUMENT,
          NOT_COMPARED("equal", "1", "-1", "u64", "0 to 18446744073709551615", "F64"));
    for (int spread = 0; spread < 2; spread++) {
        comparison c = {.spread = spread};
        ct_tensor out;
        ct_call(compared, &c, &x, 1, &out, 1);
        failed(out, c.line, CT_E_ARGUMENT,
               NOT_COMPARED("less", "2", "300", "u8", "0 to 255", "I64"));
    }
    assert_int_equal(ct_dtype_of(ct_gather(x, ct_i(300))), CT_U8); // a position
    assert_int_equal(ct_dtype_of(ct_add(one(CT_I64), ct_i(INT64_MIN))), CT_I64);
    assert_int_equal(ct_dtype_of(ct_add(one(CT_F16), ct_i(1 << 20))), CT_F16); // rounds
    assert_int_equal(ct_dtype_of(ct_clamp(x, ct_i(-1), one(CT_I16))), CT_I16);
    assert_int_equal((int)ct_item(ct_add(one(CT_U8), ct_cast(ct_i(300), CT_U8))), 44);
    assert_int_equal((int)ct_item(ct_scalar(300, CT_U8)), 255);
    assert_false(ct_failed());
}

// What the hints for comparisons and the header say, exactly.
static void numbers_beyond_a_dtype(void **state) {
    (void)state;
    const uint64_t values[] = {1ull << 63, (1ull << 63) + 1, UINT64_MAX - 1, UINT64_MAX};
    for (int i = 0; i < 4; i++) {
        CT_SCOPE;
        ct_tensor all = ct_from(values, CT_U64, CT_DIMS(4)),
                  bare = ct_cast(ct_i((int64_t)values[i]), CT_U64),
                  constant = ct_const(&values[i], CT_U64, CT_SCALAR);
        const ct_tensor made[] = {ct_equal(all, bare), ct_equal(constant, all),
                                  ct_less_equal(ct_cast(all, CT_F64), ct_i(-1))};
        for (int k = 0; k < 3; k++) {
            const uint8_t *is = ct_data(made[k]);
            if (!is) fail_msg("%s", ct_error_text());
            for (int at = 0; at < 4; at++) assert_int_equal(is[at], k < 2 && at == i);
        }
        const uint64_t *sum = ct_data(ct_add(ct_sub(all, bare), constant));
        if (!sum) fail_msg("%s", ct_error_text());
        for (int at = 0; at < 4; at++) assert_true(sum[at] == values[at]);
    }
    CT_SCOPE;
    const uint8_t small[] = {0, 255};
    const uint8_t *less =
        ct_data(ct_less(ct_cast(ct_from(small, CT_U8, CT_DIMS(2)), CT_I64), ct_i(300)));
    if (!less) fail_msg("%s", ct_error_text());
    assert_true(less[0] == 1 && less[1] == 1);
}

// A number is no part of a plan: another one in the same line is looked at as the first was.
static void bare_integers_of_a_plan_that_ran(void **state) {
    (void)state;
    const int64_t values[] = {7, 255, 300, 200};
    for (int i = 0; i < 4; i++) {
        CT_SCOPE;
        const uint8_t data[1] = {250};
        ct_tensor x = ct_from(data, CT_U8, CT_DIMS(1)), below = ct_less(x, ct_i(values[i]));
        if (values[i] == 300)
            failed(below, __LINE__ - 2, CT_E_ARGUMENT,
                   NOT_COMPARED("less", "2", "300", "u8", "0 to 255", "I64"));
        else
            assert_int_equal((int)ct_item(ct_sum(ct_cast(below, CT_I32))), values[i] == 255);
    }
}

static void assigned_bare_integers(void **state) {
    (void)state;
    CT_SCOPE;
    ct_params *set = ct_params_new();
    ct_tensor small = ct_param(set, "small", CT_I8, CT_SCALAR);
    ct_tensor truth = ct_param(set, "truth", CT_BOOL, CT_SCALAR);
    ct_assign(small, ct_i(-128));
    ct_assign(truth, ct_i(300));
    assert_int_equal((int)ct_item(small), -128);
    assert_int_equal((int)ct_item(truth), 1);
    ct_assign(small, ct_i(128));
    failed(CT_NONE, __LINE__ - 1, CT_E_ARGUMENT,
           TOO_BIG("assign", "2", "128", "i8", "-128 to 127"));
    ct_params_free(set);
}

static void reductions(void **state) {
    (void)state;
    CT_SCOPE;
    // What ct_sum(x, 1) says, NumPy's habit, to a compiler that does not warn.
    FAILS(ct_sum(F(2, 3), .axes = {1, NULL}), CT_E_ARGUMENT,
          "sum: the 1 numbers of axes are NULL\n  hint: axes is a list: CT_AXES(1)");
    FAILS(ct_sum(F(2, 3), .axes = {-1, NULL}), CT_E_SHAPE,
          "sum: axes has -1 numbers, at most 32 are possible\n  hint: axes is a list: CT_AXES(-1)");
    FAILS(ct_slice(F(2, 3), .start = {1, NULL}), CT_E_ARGUMENT,
          "slice: the 1 numbers of start are NULL\n  hint: start is a list: CT_INTS(1)");
    FAILS(ct_sum(F(2, 3), .axes = CT_AXES(2)), CT_E_ARGUMENT,
          "sum: axis 2 is out of range for (2, 3) f32"
          "\n  hint: its axes are 0 to 1, or -2 to -1 from the last one");
    FAILS(ct_max(F(2, 3), .axes = CT_AXES(0, -2)), CT_E_ARGUMENT,
          "max: axis -2 is named twice for (2, 3) f32"
          "\n  hint: name each axis once; 0 and -2 are the same");
    FAILS(ct_sum(B(2)), CT_E_DTYPE,
          "sum: operand 1 is (2,) bool, accepted are integers, floats and complex numbers"
          "\n  hint: cast it: ct_cast(x, CT_I32)");
    FAILS(ct_mean(B(2)), CT_E_DTYPE,
          "mean: operand 1 is (2,) bool, accepted are floats and complex numbers"
          "\n  hint: cast it: ct_cast(x, CT_F32)");
    FAILS(ct_argmax(F(2, 0), .axis = 1), CT_E_SHAPE,
          "argmax: axis 1 of (2, 0) f32 has no elements");
    FAILS(ct_argmax(F(2), .axis = 1), CT_E_ARGUMENT,
          "argmax: axis 1 is out of range for (2,) f32"
          "\n  hint: its only axis is 0, from the end -1");
    FAILS(ct_mean(I(2)), CT_E_DTYPE,
          "mean: operand 1 is (2,) i32, accepted are floats and complex numbers"
          "\n  hint: cast it: ct_cast(x, CT_F32)");
    FAILS(ct_any(F(2)), CT_E_DTYPE,
          "any: operand 1 is (2,) f32, accepted are bool"
          "\n  hint: cast it: ct_cast(x, CT_BOOL)");
    FAILS(ct_logsumexp(F(2), .axes = CT_AXES(-2)), CT_E_ARGUMENT,
          "logsumexp: axis -2 is out of range for (2,) f32"
          "\n  hint: its only axis is 0, from the end -1");
    FAILS(ct_cumsum(F(2), .axis = 3), CT_E_ARGUMENT,
          "cumsum: axis 3 is out of range for (2,) f32"
          "\n  hint: its only axis is 0, from the end -1");
    FAILS(ct_topk(F(2, 3), 4).values, CT_E_ARGUMENT,
          "topk: k is 4 for axis 1 of (2, 3) f32"
          "\n  hint: k is 0 to 3");
    FAILS(ct_topk(one(CT_F32), 1).indices, CT_E_SHAPE, "topk: x is () f32, it needs an axis");
}

static void scans(void **state) {
    (void)state;
    CT_SCOPE;
#define OUT_OF_RANGE(op, call)                                                                     \
    FAILS(call, CT_E_ARGUMENT,                                                                     \
          op ": axis -3 is out of range for (2, 3) f32"                                            \
             "\n  hint: its axes are 0 to 1, or -2 to -1 from the last one")
    OUT_OF_RANGE("cumprod", ct_cumprod(F(2, 3), .axis = -3));
    OUT_OF_RANGE("cummax", ct_cummax(F(2, 3), .axis = -3));
    OUT_OF_RANGE("cummin", ct_cummin(F(2, 3), .axis = -3));
    OUT_OF_RANGE("logcumsumexp", ct_logcumsumexp(F(2, 3), .axis = -3));
    OUT_OF_RANGE("linear_recurrence", ct_linear_recurrence(F(2, 3), F(2, 3), .axis = -3));
    FAILS(ct_cumprod(one(CT_F32)), CT_E_ARGUMENT,
          "cumprod: axis 0 is out of range for () f32\n  hint: a scalar has no axes");
    FAILS(ct_cummax(B(2)), CT_E_DTYPE,
          "cummax: operand 1 is (2,) bool, accepted are integers and floats"
          "\n  hint: cast it: ct_cast(x, CT_I32)");
    FAILS(ct_logcumsumexp(I(2)), CT_E_DTYPE,
          "logcumsumexp: operand 1 is (2,) i32, accepted are floats"
          "\n  hint: cast it: ct_cast(x, CT_F32)");
    FAILS(ct_linear_recurrence(F(2, 3), F(3)), CT_E_SHAPE,
          "linear_recurrence: a is (2, 3) f32, b is (3,) f32, they must have one shape"
          "\n  hint: ct_expand brings one to the shape of the other");
}

static void movement(void **state) {
    (void)state;
    CT_SCOPE;
    FAILS(ct_reshape(F(2, 3), CT_DIMS(4)), CT_E_SHAPE,
          "reshape: (2, 3) f32 has 6 elements, the new shape (4,) f32 has 4"
          "\n  hint: one size may be -1: it is computed from the others");
    FAILS(ct_reshape(F(2, 3), CT_DIMS(-1, 4)), CT_E_SHAPE,
          "reshape: (2, 3) f32 does not divide into 4 parts for axis 0"
          "\n  hint: it has 6 elements, which the other sizes must divide");
    FAILS(ct_reshape(F(2, 3), CT_DIMS(-1, -1)), CT_E_ARGUMENT,
          "reshape: axis 1 has size -1"
          "\n  hint: one size may be -1: it is computed from the others");
    FAILS(ct_permute(F(2, 3), CT_AXES(0)), CT_E_ARGUMENT,
          "permute: 1 axes are named for (2, 3) f32"
          "\n  hint: name all 2 axes, each once, in their new order");
    FAILS(ct_permute(F(2, 3), CT_AXES(0, 0)), CT_E_ARGUMENT,
          "permute: axis 0 is named twice for (2, 3) f32"
          "\n  hint: name each axis once; 0 and -2 are the same");
    FAILS(ct_expand(F(2, 3), CT_DIMS(2, 4)), CT_E_SHAPE,
          "expand: (2, 3) f32 does not expand to (2, 4) f32\n"
          "  hint: axes of static size 1 expand, and new axes are in front");
    FAILS(
        ct_reshape(F(2, 3), CT_DIMS(1, 1ll << 33, 1ll << 33, -1)), CT_E_SHAPE,
        "reshape: (2, 3) f32 does not become a shape whose first 3 sizes multiply to 2^63 or more");
}

static void slices(void **state) {
    (void)state;
    CT_SCOPE;
    FAILS(ct_slice(F(7), .start = CT_INTS(2), .stop = CT_INTS(9)), CT_E_ARGUMENT,
          "slice: 2 to 9 is out of bounds of axis 0 of (7,) f32\n"
          "  hint: positions are 0 to 7, negative ones count from the end, and CT_END is the end");
    FAILS(ct_slice(F(7), .start = CT_INTS(5), .stop = CT_INTS(3)), CT_E_ARGUMENT,
          "slice: 5 to 3 is out of bounds of axis 0 of (7,) f32\n"
          "  hint: start must not be after stop");
    FAILS(ct_slice(F(3), .start = CT_INTS(INT64_MIN), .stop = CT_INTS(INT64_MIN)), CT_E_ARGUMENT,
          "slice: -9223372036854775808 to -9223372036854775808 is out of bounds of axis 0 of (3,) "
          "f32\n"
          "  hint: positions are 0 to 3, negative ones count from the end, and CT_END is the end");
    FAILS(ct_slice(F(7), .start = CT_INTS(-9)), CT_E_ARGUMENT,
          "slice: -9 to 7 is out of bounds of axis 0 of (7,) f32\n"
          "  hint: positions are 0 to 7, negative ones count from the end, and CT_END is the end");
    FAILS(ct_slice(F(7), .step = CT_INTS(0)), CT_E_ARGUMENT,
          "slice: the step along axis 0 is 0"
          "\n  hint: steps are 1 or more");
    FAILS(ct_slice(F(7), .start = CT_INTS(0, 0)), CT_E_ARGUMENT,
          "slice: start has 2 numbers for 1 axes of (7,) f32"
          "\n  hint: without .axes the numbers are of axis 0, 1, ...");
    FAILS(ct_slice(F(7), .axes = CT_AXES(1), .start = CT_INTS(0)), CT_E_ARGUMENT,
          "slice: axis 1 is out of range for (7,) f32"
          "\n  hint: its only axis is 0, from the end -1");
    FAILS(ct_pad(F(2, 3), ct_f(0), .low = CT_INTS(1)), CT_E_ARGUMENT,
          "pad: low has 1 numbers for (2, 3) f32"
          "\n  hint: give one number an axis: 2");
    FAILS(ct_pad(F(2), ct_f(0), .high = CT_INTS(-1)), CT_E_ARGUMENT,
          "pad: high of axis 0 is -1"
          "\n  hint: it is 0 or more; ct_slice takes elements away");
    FAILS(ct_pad(F(2), ct_f(0), .low = CT_INTS(CT_DYN(-1))), CT_E_ARGUMENT,
          "pad: low of axis 0 is -1"
          "\n  hint: it is 0 or more; ct_slice takes elements away");
    FAILS(ct_pad(F(1, 2), ct_f(0), .interior = CT_INTS(0, INT64_MAX)), CT_E_SHAPE,
          "pad: axis 1 of (1, 2) f32 would have more than 2^63 elements");
    FAILS(
        ct_pad(F(2), F(1)), CT_E_SHAPE,
        "pad: the fill value is (1,) f32, it must be a scalar"
        "\n  hint: a number is ct_f(0); of a tensor of one element: ct_reshape(value, CT_SCALAR)");
    FAILS(ct_pad(I(2), ct_f(0)), CT_E_DTYPE,
          "pad: the fill value is () f32, x is (2,) i32"
          "\n  hint: cast it: ct_cast(value, CT_I32)");
    FAILS(ct_flip(F(2), CT_AXES(1)), CT_E_ARGUMENT,
          "flip: axis 1 is out of range for (2,) f32"
          "\n  hint: its only axis is 0, from the end -1");
    const ct_tensor mixed[] = {F(2, 3), D(2, 3)}, uneven[] = {F(2, 3), F(3, 3)};
    FAILS(ct_concat(mixed, 2, 0), CT_E_DTYPE,
          "concat: operand 2 is (2, 3) f64, operand 1 is (2, 3) f32"
          "\n  hint: cast it: ct_cast(x, CT_F32)");
    FAILS(ct_concat(uneven, 2, 1), CT_E_SHAPE,
          "concat: operand 2 is (3, 3) f32, operand 1 is (2, 3) f32 (axis 1)"
          "\n  hint: only axis 1 may differ");
    FAILS(ct_concat(uneven, 2, 2), CT_E_ARGUMENT,
          "concat: axis 2 is out of range for (2, 3) f32"
          "\n  hint: its axes are 0 to 1, or -2 to -1 from the last one");
    FAILS(ct_concat(NULL, 0, 0), CT_E_ARGUMENT, "concat: it has no operands");
    FAILS(ct_iota(CT_BOOL, CT_DIMS(2), 0), CT_E_DTYPE, "iota: there is no iota of bool");
    FAILS(ct_iota(CT_I32, CT_DIMS(2), 1), CT_E_ARGUMENT,
          "iota: axis 1 is out of range for (2,) i32"
          "\n  hint: its only axis is 0, from the end -1");
    FAILS(ct_iota(CT_I32, CT_DIMS(-2), 0), CT_E_SHAPE, "iota: axis 0 has size -2");
}

static void indices(void **state) {
    (void)state;
    CT_SCOPE;
    FAILS(ct_gather(F(5), F(2)), CT_E_DTYPE,
          "gather: the indices are (2,) f32, they must be integers"
          "\n  hint: cast them: ct_cast(x, CT_I32)");
    FAILS(ct_gather(F(5), I(2), .axis = 1), CT_E_ARGUMENT,
          "gather: axis 1 is out of range for (5,) f32"
          "\n  hint: its only axis is 0, from the end -1");
    FAILS(ct_gather(F(2, 5), I(3, 1), .axis = 1, .batch_dims = 1), CT_E_SHAPE,
          "gather: batch axis 0 differs: x is (2, 5) f32, indices are (3, 1) i32");
    FAILS(ct_gather(F(2, 5), I(2), .batch_dims = 1), CT_E_ARGUMENT,
          "gather: batch_dims is 1: x is (2, 5) f32, indices are (2,) i32, the axis is 0");
    FAILS(ct_scatter_add(F(5, 2), I(3), F(3)), CT_E_SHAPE,
          "scatter_add: the updates are (3,) f32, x and the indices ask for (3, 2) f32"
          "\n  hint: updates have the shape of ct_gather(x, indices); ct_expand repeats one");
    FAILS(ct_scatter_add(F(5), I(3), D(3)), CT_E_DTYPE,
          "scatter_add: the updates are (3,) f64, x is (5,) f32"
          "\n  hint: cast it: ct_cast(updates, CT_F32)");
    FAILS(ct_scatter_add(F(5), I(3), F(3), .mode = 3), CT_E_ARGUMENT,
          "scatter_add: there is no mode 3"
          "\n  hint: modes are CT_MODE_DROP, CT_MODE_CLIP, CT_MODE_PROMISE_IN_BOUNDS");
    FAILS(ct_dynamic_slice(F(5), F(1), .sizes = CT_INTS(2)), CT_E_DTYPE,
          "dynamic_slice: the start positions are (1,) f32, they must be integers"
          "\n  hint: cast them: ct_cast(x, CT_I32)");
    FAILS(ct_dynamic_slice(F(5, 2), I(1), .sizes = CT_INTS(2, 2)), CT_E_SHAPE,
          "dynamic_slice: the start positions are (1,) i32, they must be (2,)"
          "\n  hint: give one position for each of .axes (without: for all axes)");
    FAILS(ct_dynamic_slice(F(5), I(1), .sizes = CT_INTS(6)), CT_E_SHAPE,
          "dynamic_slice: a window of 6 does not fit axis 0 of (5,) f32"
          "\n  hint: sizes along it are 0 to 5");
    FAILS(ct_dynamic_slice(F(5), I(1)), CT_E_ARGUMENT,
          "dynamic_slice: 0 sizes are given for 1 axes of (5,) f32"
          "\n  hint: give one size for each of .axes (without: for all axes)");
    FAILS(ct_dynamic_slice(F(5), I(1), .axes = CT_AXES(1), .sizes = CT_INTS(1)), CT_E_ARGUMENT,
          "dynamic_slice: axis 1 is out of range for (5,) f32"
          "\n  hint: its only axis is 0, from the end -1");
    FAILS(ct_dynamic_update(F(5), F(6), I(1)), CT_E_SHAPE,
          "dynamic_update: an update (6,) f32 does not fit (5,) f32"
          "\n  hint: it has x's axes, and sizes as large at most (axes that .axes leaves out: as "
          "large)");
    FAILS(ct_dynamic_update(F(5), D(2), I(1)), CT_E_DTYPE,
          "dynamic_update: the update is (2,) f64, x is (5,) f32"
          "\n  hint: cast it: ct_cast(update, CT_F32)");
    FAILS(ct_dynamic_update(of(CT_F16, CT_DIMS(5)), of(CT_BF16, CT_DIMS(2)), I(1)), CT_E_DTYPE,
          "dynamic_update: the update is (2,) bf16, x is (5,) f16"
          "\n  hint: cast it: ct_cast(update, CT_F16)");
    FAILS(ct_scatter_add(of(CT_I8, CT_DIMS(5)), I(2), of(CT_U8, CT_DIMS(2))), CT_E_DTYPE,
          "scatter_add: the updates are (2,) u8, x is (5,) i8"
          "\n  hint: cast it: ct_cast(updates, CT_I8)");
}

static void orders(void **state) {
    (void)state;
    CT_SCOPE;
#define NO_AXIS(op)                                                                                \
    op ": axis 1 is out of range for (3,) f32\n  hint: its only axis is 0, from the end -1"
    FAILS(ct_argsort(F(3), .axis = 1), CT_E_ARGUMENT, NO_AXIS("argsort"));
    FAILS(ct_sort(F(3), .axis = 1), CT_E_ARGUMENT, NO_AXIS("sort"));
    FAILS(ct_sort_pairs(F(3), F(3), .axis = 1).keys, CT_E_ARGUMENT, NO_AXIS("sort_pairs"));
    FAILS(ct_take_along(F(3), I(3), .axis = 1), CT_E_ARGUMENT, NO_AXIS("take_along"));
    FAILS(ct_scatter(F(3), I(2), F(2), .axis = 1), CT_E_ARGUMENT, NO_AXIS("scatter"));
    FAILS(ct_scatter_mul(F(3), I(2), F(2), .axis = 1), CT_E_ARGUMENT, NO_AXIS("scatter_mul"));
    FAILS(ct_scatter_min(F(3), I(2), F(2), .axis = 1), CT_E_ARGUMENT, NO_AXIS("scatter_min"));
    FAILS(ct_scatter_max(F(3), I(2), F(2), .axis = 1), CT_E_ARGUMENT, NO_AXIS("scatter_max"));
    FAILS(ct_scatter(F(3), I(2), F(3)), CT_E_SHAPE,
          "scatter: the updates are (3,) f32, x and the indices ask for (2,) f32"
          "\n  hint: updates have the shape of ct_gather(x, indices); ct_expand repeats one");
#define ONE_SHAPE "\n  hint: they must have one shape: ct_expand brings one to that of another"
    const ct_tensor keys[] = {F(3), F(4)};
    FAILS(ct_lexsort(keys, 1, 1, false), CT_E_ARGUMENT, NO_AXIS("lexsort"));
    FAILS(ct_lexsort(keys, 2, 0, false), CT_E_SHAPE,
          "lexsort: operand 1 is (3,) f32, operand 2 is (4,) f32" ONE_SHAPE);
    FAILS(ct_lexsort(keys, 0, 0, false), CT_E_ARGUMENT,
          "lexsort: there are 0 keys, it takes 1 to 8");
    FAILS(ct_sort_pairs(F(3), F(2)).keys, CT_E_SHAPE,
          "sort_pairs: operand 1 is (3,) f32, operand 2 is (2,) f32" ONE_SHAPE);
    FAILS(ct_take_along(F(3, 2), I(2)), CT_E_SHAPE,
          "take_along: the indices are (2,) i32, x is (3, 2) f32"
          "\n  hint: they have x's sizes, but along axis 0 any");
    FAILS(ct_take_along(F(3), F(2)), CT_E_DTYPE,
          "take_along: the indices are (2,) f32, they must be integers"
          "\n  hint: cast them: ct_cast(x, CT_I32)");
    FAILS(ct_searchsorted(F(3, 2), F(2)), CT_E_SHAPE,
          "searchsorted: x is (3, 2) f32, values are (2,) f32, and batch_dims is 0"
          "\n  hint: x has batch_dims axes, which values share, and one more");
    FAILS(ct_searchsorted(F(3, 2), F(2, 2), .batch_dims = 1), CT_E_SHAPE,
          "searchsorted: batch axis 0 differs: x is (3, 2) f32, values are (2, 2) f32");
    FAILS(ct_unique(F(3), .size = -1).values, CT_E_ARGUMENT,
          "unique: the size is -1\n  hint: it is the number of results, known before; left out, as "
          "many as x has elements");
    FAILS(ct_unique(F(3), .fill = F(2), .size = 2).values, CT_E_SHAPE,
          "unique: the fill is (2,) f32, x is (3,) f32\n  hint: it is a scalar of x's dtype");
}

// What becomes of an index outside, by mode and device.
static void indices_outside(void **state) {
    (void)state;
    const int32_t at[] = {-1, 1, 7};
    const float dropped[] = {0, 1, 0}, clipped[] = {1, 1, 1};
    static const char *const devices[] = {"ref", "cpu"};
    for (int d = 0; d < 2; d++) {
        CT_SCOPE;
        assert_true(ct_set_device(devices[d]));
        for (int64_t mode = CT_MODE_DROP; mode <= CT_MODE_PROMISE_IN_BOUNDS; mode++) {
            ct_tensor y = ct_scatter_add(F(3), ct_from(at, CT_I32, CT_DIMS(3)),
                                         ct_ones(CT_F32, CT_DIMS(3)), .mode = mode);
            const float *v = ct_data(y);
            if (mode == CT_MODE_PROMISE_IN_BOUNDS && d == 0) {
                assert_null(v);
                unsigned line;
                int skip = 0;
                const char *said = ct_error_text();
                assert_int_equal(sscanf(said, "tests/error/test_op_errors.c:%u: %n", &line, &skip),
                                 1);
                assert_string_equal(said + skip,
                                    "scatter_add: index -1 is out of bounds of axis 0 of (3,) f32, "
                                    "which CT_MODE_PROMISE_IN_BOUNDS excludes\n"
                                    "  hint: indices are 0 to 2");
                ct_error_clear();
                continue;
            }
            assert_non_null(v);
            assert_memory_equal(v, mode == CT_MODE_CLIP ? clipped : dropped, sizeof dropped);
        }
    }
}

// A product has a gradient with respect to updates that go to other elements each.
static void products_at_indices(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor updates = ct_add(F(3), ct_f(1)), slope;
    ct_tensor y = ct_sum(ct_scatter_mul(F(5), I(3), updates));
    ct_grad(y, &updates, 1, &slope);
    assert_null(ct_data(slope));
    const char *said = strstr(ct_error_text(), "scatter_mul: ");
    assert_non_null(said);
    assert_string_equal(said, "scatter_mul: the gradient with respect to the updates needs "
                              ".unique: no index occurs twice");
    ct_error_clear();
}

static void contractions(void **state) {
    (void)state;
    CT_SCOPE;
    FAILS(ct_matmul(F(2, 3), F(4, 5)), CT_E_SHAPE,
          "matmul: inner sizes differ: a is (2, 3) f32, b is (4, 5) f32 (axis 1 of a, axis 0 of b)"
          "\n  hint: (..., M, K) times (..., K, N) gives (..., M, N)");
    FAILS(ct_matmul(F(2, 3), F(5, 3)), CT_E_SHAPE,
          "matmul: inner sizes differ: a is (2, 3) f32, b is (5, 3) f32 (axis 1 of a, axis 0 of "
          "b)\n  hint: permute b: its last axis has the size");
    FAILS(ct_matmul(F(3, 2), F(3, 4)), CT_E_SHAPE,
          "matmul: inner sizes differ: a is (3, 2) f32, b is (3, 4) f32 (axis 1 of a, axis 0 of "
          "b)\n  hint: permute a: its axis before the last has the size");
    FAILS(ct_matmul(F(3), F(3, 2)), CT_E_SHAPE,
          "matmul: both operands need two axes: a is (3,) f32, b is (3, 2) f32"
          "\n  hint: make a one row: ct_reshape(a, CT_DIMS(1, -1))");
    FAILS(ct_matmul(F(2, 3), F(3)), CT_E_SHAPE,
          "matmul: both operands need two axes: a is (2, 3) f32, b is (3,) f32"
          "\n  hint: make b one column: ct_reshape(b, CT_DIMS(-1, 1))");
    FAILS(ct_matmul(F(3), F(3)), CT_E_SHAPE,
          "matmul: both operands need two axes: a is (3,) f32, b is (3,) f32"
          "\n  hint: of two lists of numbers: ct_sum(ct_mul(a, b))");
    FAILS(ct_matmul(F(3), one(CT_F32)), CT_E_SHAPE,
          "matmul: both operands need two axes: a is (3,) f32, b is () f32");
    FAILS(ct_matmul(F(2, 4, 3), F(3, 3, 5)), CT_E_SHAPE,
          "matmul: batch axes do not broadcast: a is (2, 4, 3) f32, b is (3, 3, 5) f32"
          "\n  hint: axes before the last two, counted from these, must be equal or 1");
    FAILS(ct_matmul(F(CT_DYN(1), 3, 3), F(2, 3, 3)), CT_E_SHAPE,
          "matmul: batch axes do not broadcast: a is (n=1, 3, 3) f32, b is (2, 3, 3) f32"
          "\n  hint: a dynamic size never broadcasts, even where it is 1");
    FAILS(ct_matmul(F(4, 2, 3, 3), F(CT_DYN(1), 2, 3, 3)), CT_E_SHAPE,
          "matmul: batch axes do not broadcast: a is (4, 2, 3, 3) f32, b is (n=1, 2, 3, 3) f32"
          "\n  hint: a dynamic size never broadcasts, even where it is 1");
    FAILS(ct_matmul(F(2, 3), B(3, 2)), CT_E_DTYPE,
          "matmul: operand 2 is (3, 2) bool, accepted are integers, floats and complex numbers"
          "\n  hint: cast it: ct_cast(x, CT_I32)");
}

static void contractions_of_axes(void **state) {
    (void)state;
    CT_SCOPE;
    FAILS(ct_contract(F(2, 3), F(3, 4), .a_axes = CT_AXES(1)), CT_E_ARGUMENT,
          "contract: axes go in pairs: .a_axes has 1 of them, .b_axes has 0");
    FAILS(ct_contract(F(2, 3), F(3, 4), .b_batch = CT_AXES(0, 1)), CT_E_ARGUMENT,
          "contract: axes go in pairs: .a_batch has 0 of them, .b_batch has 2");
    FAILS(ct_contract(F(2, 3), F(3, 4), .a_axes = CT_AXES(1), .b_axes = CT_AXES(2)), CT_E_ARGUMENT,
          "contract: axis 2 of b, which is (3, 4) f32, is out of range"
          "\n  hint: an axis is summed over, or of the batch, or neither");
    FAILS(ct_contract(F(2, 3), F(3, 2), .a_axes = CT_AXES(1), .b_axes = CT_AXES(0),
                      .a_batch = CT_AXES(-1), .b_batch = CT_AXES(0)),
          CT_E_ARGUMENT,
          "contract: axis 1 of a, which is (2, 3) f32, is named twice"
          "\n  hint: an axis is summed over, or of the batch, or neither");
    FAILS(ct_contract(F(2, 3), F(4, 5), .a_axes = CT_AXES(1), .b_axes = CT_AXES(-2)), CT_E_SHAPE,
          "contract: sizes of a pair differ: a is (2, 3) f32, b is (4, 5) f32 (axis 1 of a, axis 0 "
          "of b)\n  hint: pair 1 of .a_axes and .b_axes: name axes of one size");
    FAILS(ct_contract(B(2), F(2)), CT_E_DTYPE,
          "contract: operand 1 is (2,) bool, accepted are integers, floats and complex numbers"
          "\n  hint: cast it: ct_cast(x, CT_I32)");
    FAILS(ct_contract(ct_cast(F(2), CT_F8E5M2), ct_cast(F(2), CT_F8E4M3)), CT_E_DTYPE,
          "contract: f8e5m2 and f8e4m3 do not promote to one dtype"
          "\n  hint: cast it: ct_cast(x, CT_F32)");
    ct_tensor deep = F(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2);
    FAILS(ct_contract(deep, deep), CT_E_SHAPE,
          "contract: the result has 34 axes, 32 are possible"
          "\n  hint: join axes with ct_reshape, or sum over some of them");
}

static void products_of_groups(void **state) {
    (void)state;
    CT_SCOPE;
    FAILS(ct_ragged_matmul(F(4, 3), F(3, 2), I(2)), CT_E_SHAPE,
          "ragged_matmul: a is (4, 3) f32, b is (3, 2) f32, sizes are (2,) i32"
          "\n  hint: they are (M, K), (G, K, N) and (G,)");
    FAILS(ct_ragged_outer(F(4, 3), F(2, 3, 2), I(2)), CT_E_SHAPE,
          "ragged_outer: a is (4, 3) f32, b is (2, 3, 2) f32, sizes are (2,) i32"
          "\n  hint: they are (M, K), (M, N) and (G,)");
    FAILS(ct_ragged_matmul(F(4, 3), F(2, 5, 2), I(2)), CT_E_SHAPE,
          "ragged_matmul: inner sizes differ: a is (4, 3) f32, b is (2, 5, 2) f32");
    FAILS(ct_ragged_matmul(F(4, 3), F(2, 3, 2), I(3)), CT_E_SHAPE,
          "ragged_matmul: numbers of groups differ: b is (2, 3, 2) f32, sizes are (3,) i32");
    FAILS(ct_ragged_outer(F(4, 3), F(5, 2), I(2)), CT_E_SHAPE,
          "ragged_outer: numbers of rows differ: a is (4, 3) f32, b is (5, 2) f32");
    FAILS(ct_ragged_matmul(F(4, 3), F(0, 3, 2), I(0)), CT_E_SHAPE,
          "ragged_matmul: there is no group: sizes are (0,) i32");
    FAILS(ct_ragged_matmul(F(4, 3), F(2, 3, 2), F(2)), CT_E_DTYPE,
          "ragged_matmul: sizes of groups are (2,) f32, they must be integers"
          "\n  hint: cast them: ct_cast(x, CT_I32)");
    const ct_tensor three_and_two = ct_const(((int32_t[]){3, 2}), CT_I32, CT_DIMS(2));
    FAILS(ct_ragged_matmul(F(4, 3), F(2, 3, 2), three_and_two), CT_E_SHAPE,
          "ragged_matmul: the groups have 5 rows, a (4, 3) f32 has 4");
    FAILS(ct_ragged_outer(F(4, 3), F(4, 2), three_and_two), CT_E_SHAPE,
          "ragged_outer: the groups have 5 rows, a (4, 3) f32 has 4");
    FAILS(ct_ragged_matmul(B(4, 3), F(2, 3, 2), I(2)), CT_E_DTYPE,
          "ragged_matmul: operand 1 is (4, 3) bool, accepted are integers and floats"
          "\n  hint: cast it: ct_cast(x, CT_I32)");
}

static void products_in_letters(void **state) {
    (void)state;
    CT_SCOPE;
    const ct_tensor two[] = {F(2, 3), F(4, 5)}, one_of[] = {F(2, 3)};
    FAILS(ct_einsum("ij,jk->ik", two, 2), CT_E_SHAPE,
          "einsum: 'j' is 3 in operand 1, (2, 3) f32, and 4 in operand 2, (4, 5) f32, of "
          "\"ij,jk->ik\"");
    FAILS(ct_einsum("ii", one_of, 1), CT_E_SHAPE,
          "einsum: 'i' is 2 in operand 1, (2, 3) f32, and 3 in operand 1, (2, 3) f32, of \"ii\"");
    FAILS(ct_einsum("...i,...j", two, 2), CT_E_SHAPE,
          "einsum: '...' is 2 in operand 1, (2, 3) f32, and 4 in operand 2, (4, 5) f32, of "
          "\"...i,...j\"");
    ct_tensor dynamic[2] = {F(CT_DYN(1), 3), F(2, 3)};
    FAILS(ct_einsum("...i,...i->...", dynamic, 2), CT_E_SHAPE,
          "einsum: '...' is 1 in operand 1, (n=1, 3) f32, and 2 in operand 2, (2, 3) f32, of "
          "\"...i,...i->...\"\n  hint: a dynamic size never broadcasts, even where it is 1");
    FAILS(ct_einsum("ij->iz", one_of, 1), CT_E_ARGUMENT,
          "einsum: 'z' of the result is in no operand of \"ij->iz\"");
    FAILS(ct_einsum("ij->iji", one_of, 1), CT_E_ARGUMENT,
          "einsum: 'i' is twice in the result of \"ij->iji\"");
    FAILS(ct_einsum("i...->i", one_of, 1), CT_E_ARGUMENT,
          "einsum: the result of \"i...->i\" lacks the ellipsis of its operands");
    FAILS(ct_einsum("ij,jk,kl->il", two, 2), CT_E_ARGUMENT,
          "einsum: \"ij,jk,kl->il\" has 3 operands, 2 are given");
    FAILS(ct_einsum("ij", two, 2), CT_E_ARGUMENT, "einsum: \"ij\" has 1 operand, 2 are given");
    FAILS(ct_einsum("ij,jk", one_of, 1), CT_E_ARGUMENT,
          "einsum: \"ij,jk\" has 2 operands, 1 is given");
    FAILS(ct_einsum("ij", NULL, 0), CT_E_ARGUMENT, "einsum: \"ij\" has 1 operand, 0 are given");
    FAILS(ct_einsum("ijk->i", one_of, 1), CT_E_SHAPE,
          "einsum: operand 1 of \"ijk->i\" is (2, 3) f32: it has 2 axes for 3 letters");
    FAILS(ct_einsum("i", one_of, 1), CT_E_SHAPE,
          "einsum: operand 1 of \"i\" is (2, 3) f32: it has 2 axes for 1 letter");
    FAILS(ct_einsum("ij...k", one_of, 1), CT_E_SHAPE,
          "einsum: operand 1 of \"ij...k\" is (2, 3) f32: it has 2 axes for at least 3 letters");
    FAILS(ct_einsum("i1->i", one_of, 1), CT_E_ARGUMENT,
          "einsum: \"i1->i\" cannot be read at character 2: it is made of letters, commas, '->', "
          "'...' and spaces");
    FAILS(ct_einsum("ij-i", one_of, 1), CT_E_ARGUMENT,
          "einsum: \"ij-i\" cannot be read at character 3: an arrow is '->'");
    FAILS(ct_einsum("ij->i->j", one_of, 1), CT_E_ARGUMENT,
          "einsum: \"ij->i->j\" cannot be read at character 6: there is one arrow");
    FAILS(ct_einsum("ij->i,j", one_of, 1), CT_E_ARGUMENT,
          "einsum: \"ij->i,j\" cannot be read at character 6: there is one result");
    FAILS(ct_einsum("i..", one_of, 1), CT_E_ARGUMENT,
          "einsum: \"i..\" cannot be read at character 2: an ellipsis is three dots");
    FAILS(ct_einsum("...i...", one_of, 1), CT_E_ARGUMENT,
          "einsum: \"...i...\" cannot be read at character 5: an operand has one ellipsis");
    FAILS(ct_einsum("abcdefghijklmnopqrstuvwxyzABCDEFG", one_of, 1), CT_E_ARGUMENT,
          "einsum: \"abcdefghijklmnopqrstuvwxyzABCDEFG\" cannot be read at character 33: a tensor "
          "has at most 32 axes");
    FAILS(ct_einsum(NULL, one_of, 1), CT_E_ARGUMENT, "einsum: there is no expression");
    FAILS(ct_einsum("ij", NULL, 1), CT_E_ARGUMENT, "einsum: there is no list of operands");
    const ct_tensor eights[] = {ct_cast(F(2), CT_F8E5M2), ct_cast(F(2), CT_F8E4M3)};
    FAILS(ct_einsum("i,i", eights, 2), CT_E_DTYPE,
          "einsum: f8e5m2 and f8e4m3, the dtype of operand 2 of \"i,i\", do not promote to one "
          "dtype");
#define ONES(n) ct_full(ct_f(1), ((ct_ints){n, ones}))
    int64_t ones[CT_MAX_RANK];
    for (int i = 0; i < CT_MAX_RANK; i++) ones[i] = 1;
    const ct_tensor deep[] = {ONES(17), ONES(17), ONES(32)};
    FAILS(ct_einsum("abcdefghijklmnopq,rstuvwxyzABCDEFGH", deep, 2), CT_E_SHAPE,
          "einsum: the result of \"abcdefghijklmnopq,rstuvwxyzABCDEFGH\" has 34 axes, 32 are "
          "possible");
    FAILS(ct_einsum("abcdefghijklmnopq,rstuvwxyzABCDEFGH,abcdefghijklmnoprstuvwxyzABCDEFG->qH",
                    deep, 3),
          CT_E_SHAPE,
          "einsum: a product on the way of \"abcdefghijklmnopq,rstuvwxyzABCDEFGH,"
          "abcdefghijklmnoprstuvwxyzABCDEFG->qH\" has 34 axes, 32 are possible");
}

static void rearranged(void **state) {
    (void)state;
    FAILS(ct_tril(F(3)), CT_E_SHAPE, "tril: x is (3,) f32, it needs two axes");
    FAILS(ct_triu(F()), CT_E_SHAPE, "triu: x is () f32, it needs two axes");
    FAILS(ct_roll(F(2, 3), CT_INTS(1)), CT_E_ARGUMENT,
          "roll: shifts has 1 numbers for (2, 3) f32\n  hint: give one number an axis: 2");
    FAILS(ct_roll(F(CT_DYN(2), 3), CT_INTS(1, 0)), CT_E_SHAPE,
          "roll: axis 0 of (n=2, 3) f32 is dynamic, it cannot be rolled");
    FAILS(ct_diff(F(2, CT_DYN(3)), .axis = 1, .n = 4), CT_E_ARGUMENT,
          "diff: n is 4, differences along axis 1 of (2, n=3) f32 can be taken once or more, of a "
          "dynamic one 3 times at most");
    FAILS(ct_repeat(F(2, 3), -1, 0), CT_E_ARGUMENT, "repeat: there are -1 repetitions");
    FAILS(ct_tile(F(2, 3), CT_INTS(2)), CT_E_ARGUMENT,
          "tile: times has 1 numbers for (2, 3) f32\n  hint: give one number an axis: 2");
    FAILS(ct_tile(F(2, 3), CT_INTS(2, -2)), CT_E_ARGUMENT, "tile: there are -2 repetitions");
    FAILS(ct_bincount(I(2), -3), CT_E_ARGUMENT, "bincount: the counts have size -3");
    FAILS(ct_bincount(F(2), 3), CT_E_DTYPE,
          "bincount: operand 1 is (2,) f32, accepted are integers"
          "\n  hint: cast it: ct_cast(x, CT_I32)");
}

static void networks(void **state) {
    (void)state;
    CT_SCOPE;
    FAILS(ct_softmax(one(CT_F32)), CT_E_SHAPE, "softmax: x is () f32, it needs an axis");
    FAILS(ct_log_softmax(F(2), .axes = CT_AXES(1)), CT_E_ARGUMENT,
          "log_softmax: axis 1 is out of range for (2,) f32"
          "\n  hint: its only axis is 0, from the end -1");
    FAILS(ct_glu(F(2, 5), 1), CT_E_SHAPE,
          "glu: axis 1 of (2, 5) f32 is cut in two halves: its size must be static and even");
    FAILS(ct_quantile(F(2, 5), .q = 1.5), CT_E_ARGUMENT,
          "quantile: q is 1.5, it must be from 0 to 1");
    FAILS(ct_quantile(F(0, 5), .q = 0.5), CT_E_SHAPE,
          "quantile: axis 0 of (0, 5) f32 must have a static size above 0");
    FAILS(ct_trapezoid(F(0, 5)), CT_E_SHAPE, "trapezoid: axis 0 of (0, 5) f32 has no elements");
    FAILS(ct_cross_entropy(F(2, 5), F(2)), CT_E_DTYPE,
          "cross_entropy: the targets are (2,) f32, they must be integers"
          "\n  hint: cast them: ct_cast(x, CT_I32)");
    FAILS(ct_cross_entropy(F(2, 5), I(3)), CT_E_SHAPE,
          "cross_entropy: the targets are (3,) i32, for logits (2, 5) f32 they must have all axes "
          "but the last"
          "\n  hint: targets hold the number of a class for each row of logits");
    FAILS(
        ct_linear_cross_entropy(F(2, 5), F(4, 3), I(2)), CT_E_SHAPE,
        "linear_cross_entropy: shapes do not fit (..., D), (V, D): x is (2, 5) f32, the weight is "
        "(4, 3) f32"
        "\n  hint: a row of the weight is a class, as a linear layer and an embedding have it");
    FAILS(ct_linear_cross_entropy(F(2, 5), D(4, 5), I(2)), CT_E_DTYPE,
          "linear_cross_entropy: dtypes differ: x is (2, 5) f32, the weight is (4, 5) f64"
          "\n  hint: cast it: ct_cast(weight, CT_F32)");
    FAILS(
        ct_linear_cross_entropy(F(2, 5), F(4, 5), I(3)), CT_E_SHAPE,
        "linear_cross_entropy: the targets are (3,) i32, for x (2, 5) f32 they must have all axes "
        "but the last");
    FAILS(ct_linear_cross_entropy(F(2, 5), F(4, 5), F(2)), CT_E_DTYPE,
          "linear_cross_entropy: the targets are (2,) f32, they must be integers"
          "\n  hint: cast them: ct_cast(x, CT_I32)");
    FAILS(ct_linear_cross_entropy(F(2, 5), F(4, 5), I(2), .row_weights = F(3)), CT_E_SHAPE,
          "linear_cross_entropy: the row weights are (3,) f32, for targets (2,) i32 there must be "
          "one a row");
    FAILS(ct_linear_cross_entropy(F(2, 5), F(4, 5), I(2), .bias = F(5)), CT_E_SHAPE,
          "linear_cross_entropy: the bias is (5,) f32, for a weight (4, 5) f32 it must have one "
          "element a class");
    FAILS(ct_linear_cross_entropy(F(2, 5), F(4, 5), I(2), .smoothing = CT_F(1)), CT_E_ARGUMENT,
          "linear_cross_entropy: smoothing is 1, it must be at least 0 and below 1");
    FAILS(ct_linear_cross_entropy(F(2, 5), F(4, 5), I(2), .softcap = CT_F(-2)), CT_E_ARGUMENT,
          "linear_cross_entropy: softcap is -2, it must be 0 (none) or more");
    FAILS(ct_layer_norm(F(2, 5), F(4)), CT_E_SHAPE,
          "layer_norm: operand 2 is (4,) f32, it must be (5,) for x (2, 5) f32"
          "\n  hint: a norm is over the last axis: one weight an element of it");
    FAILS(ct_rms_norm(F(2, 5), .eps = CT_F(-1)), CT_E_ARGUMENT,
          "rms_norm: eps is -1, it must be at least 0");
    FAILS(ct_layer_norm(F(2, 5), F(5), D(5)), CT_E_DTYPE,
          "layer_norm: operand 3 is (5,) f64, x is (2, 5) f32"
          "\n  hint: cast it: ct_cast(operand, CT_F32)");
    FAILS(ct_rms_norm(I(2, 5)), CT_E_DTYPE,
          "rms_norm: operand 1 is (2, 5) i32, accepted are floats"
          "\n  hint: cast it: ct_cast(x, CT_F32)");
}

static void attentions(void **state) {
    (void)state;
    CT_SCOPE;
    FAILS(ct_attention(F(2, 3, 4), F(2, 5, 6), F(2, 5, 4)), CT_E_SHAPE,
          "attention: shapes do not fit (..., T, D), (..., S, D), (..., S, E): q is (2, 3, 4) "
          "f32, k is (2, 5, 6) f32, v is (2, 5, 4) f32"
          "\n  hint: T queries and S keys of size D, S values of size E; heads are an axis before: "
          "(B, H, T, D), of q as many as of k or a multiple");
    FAILS(ct_attention(F(3, 4), D(5, 4), F(5, 4)), CT_E_DTYPE,
          "attention: dtypes differ: q is (3, 4) f32, k is (5, 4) f64, v is (5, 4) f32"
          "\n  hint: cast it: ct_cast(k, CT_F32)");
    FAILS(ct_attention(F(3, 4), F(0, 4), F(0, 4)), CT_E_SHAPE,
          "attention: there are no keys: k is (0, 4) f32");
    FAILS(ct_attention(F(3, 4), F(5, 4), F(5, 4), .causal = true, .window = -1), CT_E_ARGUMENT,
          "attention: window is -1, it must be at least 0"
          "\n  hint: 0 keys, the default, is no limit");
    FAILS(ct_attention(F(3, 4), F(5, 4), F(5, 4), .window = 2), CT_E_ARGUMENT,
          "attention: a window has no meaning without .causal\n"
          "  hint: it is the number of keys that a query attends to, up to its own: add .causal = "
          "true");
    FAILS(ct_attention(F(3, 4), F(5, 4), F(5, 4), .causal = true, .masked_nan = true),
          CT_E_ARGUMENT,
          "attention: masked_nan goes with neither .causal, a length nor sinks"
          "\n  hint: it is the softmax's NaN where a mask hides all keys");
    FAILS(ct_attention(F(3, 4), F(5, 4), F(5, 4), .softcap = CT_F(-1)), CT_E_ARGUMENT,
          "attention: softcap is -1, it must be finite and at least 0"
          "\n  hint: 0, the default, is no cap");
    FAILS(
        ct_attention(F(3, 2, 4), F(2, 5, 4), F(2, 5, 4)), CT_E_SHAPE,
        "attention: shapes do not fit (..., T, D), (..., S, D), (..., S, E): q is (3, 2, 4) f32, k "
        "is (2, 5, 4) f32, v is (2, 5, 4) f32"
        "\n  hint: T queries and S keys of size D, S values of size E; heads are an axis before: "
        "(B, H, T, D), of q as many as of k or a multiple");
    FAILS(ct_attention(F(3, 4), F(5, 4), F(5, 4), .position = ct_i(2)), CT_E_ARGUMENT,
          "attention: a position has no meaning without .causal\n"
          "  hint: it is the position of the first query among the keys: add .causal = true");
    FAILS(ct_attention(F(3, 4), F(5, 4), F(5, 4), .position = ct_f(2), .causal = true), CT_E_DTYPE,
          "attention: the position is () f32, it must be one integer, or some that broadcast to "
          "the axes in front of the keys, k (5, 4) f32\n"
          "  hint: a number is ct_i(10); one for each of B sequences with heads is (B, 1)");
    FAILS(ct_attention(F(2, 3, 4), F(2, 5, 4), F(2, 5, 4), .length = I(3)), CT_E_SHAPE,
          "attention: the length is (3,) i32, it must be one integer, or some that broadcast to "
          "the axes in front of the keys, k (2, 5, 4) f32\n"
          "  hint: a number is ct_i(10); one for each of B sequences with heads is (B, 1)");
    FAILS(ct_attention(F(2, 3, 4), F(2, 5, 4), F(2, 5, 4), .keep = B(3, 5)), CT_E_SHAPE,
          "attention: keep is (3, 5) bool, it must be of the queries' dtype and broadcast to the "
          "queries and "
          "keys of q (2, 3, 4) f32 and k (2, 5, 4) f32");
    FAILS(ct_attention(F(2, 3, 4), F(2, 5, 4), F(2, 5, 4), .alibi = F(3)), CT_E_SHAPE,
          "attention: alibi is (3,) f32, it must be of the queries' dtype and broadcast to the "
          "axes in front "
          "of q (2, 3, 4) f32"
          "\n  hint: a number for each of H heads is (H)");
    FAILS(ct_attention(F(2, 3, 4), F(2, 5, 4), F(2, 5, 4), .sinks = D(2)), CT_E_SHAPE,
          "attention: sinks is (2,) f64, it must be of the queries' dtype and broadcast to the "
          "axes in front "
          "of q (2, 3, 4) f32"
          "\n  hint: a number for each of H heads is (H)");
    FAILS(ct_attention(F(3, 4), F(5, 4), F(5, 4), .mask = B(3, 4)), CT_E_SHAPE,
          "attention: the mask is (3, 4) bool, it must be bool or of the queries' dtype, and "
          "broadcast to the queries and "
          "keys of q (3, 4) f32 and k (5, 4) f32");
}

static void random_numbers(void **state) {
    (void)state;
    CT_SCOPE;
    FAILS(ct_random_bits(U(3), CT_DIMS(2)), CT_E_SHAPE,
          "random_bits: the key is (3,) u32, it must be (2,) u32"
          "\n  hint: a key is ct_random_key(seed), or a row of ct_random_split");
    FAILS(ct_random_uniform(I(2), CT_DIMS(2)), CT_E_SHAPE,
          "random_uniform: the key is (2,) i32, it must be (2,) u32"
          "\n  hint: a key is ct_random_key(seed), or a row of ct_random_split");
    FAILS(ct_random_normal(U(2), CT_DIMS(-2)), CT_E_SHAPE, "random_normal: axis 0 has size -2");
    FAILS(ct_random_bits(U(2), CT_DIMS(65536, 65536)), CT_E_SHAPE,
          "random_bits: (65536, 65536) u32 has more elements than a key has counters, 2^32");
    FAILS(ct_random_split(U(2), -1), CT_E_ARGUMENT, "random_split: -1 keys are asked for");
    FAILS(ct_random_fold_in(U(2), F(2)), CT_E_DTYPE,
          "random_fold_in: the number to fold in is (2,) f32, it must be one integer");
    FAILS(ct_random_bernoulli(U(2), F(2), CT_DIMS(2)), CT_E_DTYPE,
          "random_bernoulli: the probability is (2,) f32, it must be one float"
          "\n  hint: a number is ct_f(0.5)");
    FAILS(ct_random_int(U(2), ct_f(0), ct_i(3), CT_DIMS(2)), CT_E_DTYPE,
          "random_int: bound 1 is () f32, it must be one i32"
          "\n  hint: a number is ct_i(10)");
    FAILS(ct_dropout(F(2), F(2), ct_f(0.1)), CT_E_SHAPE,
          "dropout: the key is (2,) f32, it must be (2,) u32"
          "\n  hint: a key is ct_random_key(seed), or a row of ct_random_split");
    FAILS(ct_dropout(F(2), U(2), ct_i(1)), CT_E_DTYPE,
          "dropout: the rate is () i32, it must be one float"
          "\n  hint: a number is ct_f(0.5)");
}

// The first error stays; what is computed from a poisoned tensor is poisoned and adds nothing.
static void the_first_error_stays(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor bad = ct_add(F(2), F(3));
    char first[1024];
    snprintf(first, sizeof first, "%s", ct_error_text());
    ct_tensor worse = ct_matmul(bad, F(3));
    assert_false(ct_ok(worse));
    assert_string_equal(ct_error_text(), first);
    assert_int_equal(ct_dim(worse, 0), 0);
    ct_error_clear();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rearranged),
        cmocka_unit_test(sources),
        cmocka_unit_test(elementwise),
        cmocka_unit_test(bare_integers),
        cmocka_unit_test(numbers_beyond_a_dtype),
        cmocka_unit_test(bare_integers_of_a_plan_that_ran),
        cmocka_unit_test(assigned_bare_integers),
        cmocka_unit_test(reductions),
        cmocka_unit_test(scans),
        cmocka_unit_test(movement),
        cmocka_unit_test(slices),
        cmocka_unit_test(indices),
        cmocka_unit_test(orders),
        cmocka_unit_test(indices_outside),
        cmocka_unit_test(products_at_indices),
        cmocka_unit_test(contractions),
        cmocka_unit_test(contractions_of_axes),
        cmocka_unit_test(products_of_groups),
        cmocka_unit_test(products_in_letters),
        cmocka_unit_test(networks),
        cmocka_unit_test(attentions),
        cmocka_unit_test(random_numbers),
        cmocka_unit_test(the_first_error_stays),
    };
    return cmocka_run_group_tests_name("op errors", tests, NULL, NULL);
}
