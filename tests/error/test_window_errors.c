// What is wrong with the operands or options of windows, pools, convolutions and norms by channels is said
// at once, at the caller's line, and whole.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
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
    assert_int_equal(sscanf(whole, "tests/error/test_window_errors.c:%u: %n", &said, &skip), 1);
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

static void windows(void **state) {
    (void)state;
    CT_SCOPE;
    FAILS(ct_windows(F(2, 7)), CT_E_ARGUMENT,
          "windows: size has 0 numbers for (2, 7) f32\n"
          "  hint: it is the size of windows along each of .axes, or along the last axes: .size = "
          "CT_DIMS(3, 3)");
    FAILS(ct_windows(F(7), .size = CT_DIMS(2, 2)), CT_E_ARGUMENT,
          "windows: size has 2 numbers for (7,) f32\n"
          "  hint: it is the size of windows along each of .axes, or along the last axes: .size = "
          "CT_DIMS(3, 3)");
    FAILS(ct_windows(F(2, 7), .size = CT_DIMS(8)), CT_E_SHAPE,
          "windows: no window fits axis 1 of (2, 7) f32: it spans 8 (size 8, dilation 1), with "
          "padding there are 7");
    FAILS(ct_windows(F(2, 7), .size = CT_DIMS(4), .dilation = CT_DIMS(3), .low = CT_DIMS(1)),
          CT_E_SHAPE,
          "windows: no window fits axis 1 of (2, 7) f32: it spans 10 (size 4, dilation 3), with "
          "padding there are 8");
    FAILS(ct_windows(F(2, 7), .size = CT_DIMS(3), .high = CT_DIMS(-5)), CT_E_SHAPE,
          "windows: no window fits axis 1 of (2, 7) f32: it spans 3 (size 3, dilation 1), with "
          "padding there are 2");
    FAILS(ct_windows(F(2, 7), .size = CT_DIMS(0)), CT_E_ARGUMENT,
          "windows: size is 0, it must be at least 1");
    FAILS(ct_windows(F(2, 7), .size = CT_DIMS(2), .stride = CT_DIMS(0)), CT_E_ARGUMENT,
          "windows: stride is 0, it must be at least 1");
    FAILS(ct_windows(F(2, 7), .size = CT_DIMS(2), .dilation = CT_DIMS(-1)), CT_E_ARGUMENT,
          "windows: dilation is -1, it must be at least 1\n"
          "  hint: it may be negative with .counts, the number of windows");
    FAILS(ct_windows(F(2, 7), .size = CT_DIMS(2), .dilation = CT_DIMS(0)), CT_E_ARGUMENT,
          "windows: dilation is 0, it must be at least 1");
    FAILS(ct_windows(F(2, 7), .size = CT_DIMS(CT_DYN(2))), CT_E_ARGUMENT,
          "windows: size is dynamic, it must be static");
    FAILS(ct_windows(F(2, 7), .size = CT_DIMS(2), .base = CT_DIMS(1ll << 40)), CT_E_ARGUMENT,
          "windows: base is 1099511627776, it must be at most 1073741824");
    FAILS(ct_windows(F(3, 4, 7), .size = CT_DIMS(2, 2), .low = CT_DIMS(1, 1, 1)), CT_E_ARGUMENT,
          "windows: low has 3 numbers for 2 axes\n  hint: give one number an axis, or one for all "
          "of them");
    FAILS(ct_windows(F(3, 4, 7), .size = CT_DIMS(2, 2), .axes = CT_AXES(1)), CT_E_ARGUMENT,
          "windows: size has 2 numbers, axes has 1");
    FAILS(ct_windows(F(3, 4), .size = CT_DIMS(2), .axes = CT_AXES(2)), CT_E_ARGUMENT,
          "windows: axis 2 is out of range for (3, 4) f32\n  hint: its axes are 0 to 1, or -2 to "
          "-1 from the last one");
    FAILS(ct_windows(F(3, 4), .size = CT_DIMS(2, 2), .axes = CT_AXES(1, -1)), CT_E_ARGUMENT,
          "windows: axis -1 is named twice for (3, 4) f32\n  hint: name each axis once; 1 and -1 "
          "are the same");
    FAILS(ct_windows(F(3, 4), .size = CT_DIMS(2), .counts = CT_DIMS(2, 2)), CT_E_ARGUMENT,
          "windows: counts has 2 numbers, size has 1");
    FAILS(ct_windows(F(3, 4), .size = CT_DIMS(2), .counts = CT_DIMS(-2)), CT_E_ARGUMENT,
          "windows: counts of axis 1 is -2");
    FAILS(ct_windows(F(3, 4), .size = CT_DIMS(2), .taps = true), CT_E_SHAPE,
          "windows: axis 1 of (3, 4) f32 must be the 2 taps of axis 0");
    FAILS(ct_windows(F(3, 4), .size = CT_DIMS(2, 2), .taps = true), CT_E_ARGUMENT,
          "windows: x is (3, 4) f32: its last 2 axes are taps, windows need 2 others");
    FAILS(ct_windows(of(CT_U8, CT_DIMS(4)), .size = CT_DIMS(2), .fill = CT_F(-1)), CT_E_ARGUMENT,
          "windows: fill is -1, which is no number of u8");
    FAILS(ct_windows(I(4), .size = CT_DIMS(2), .fill = CT_F(0.5)), CT_E_ARGUMENT,
          "windows: fill is 0.5, which is no number of i32");
    FAILS(ct_windows(of(CT_C64, CT_DIMS(4)), .size = CT_DIMS(2), .fill = CT_F(1)), CT_E_ARGUMENT,
          "windows: fill is 1, which is no number of c64");
}

static void pools(void **state) {
    (void)state;
    CT_SCOPE;
    FAILS(ct_max_pool(F(2, 3, 8)), CT_E_ARGUMENT,
          "max_pool: kernel has 0 numbers\n  hint: give the size of a window along each of 1 to 3 "
          "last axes");
    FAILS(ct_max_pool(F(2, 3, 8), .kernel = CT_DIMS(1, 1, 1, 1)), CT_E_ARGUMENT,
          "max_pool: kernel has 4 numbers\n  hint: give the size of a window along each of 1 to 3 "
          "last axes");
    FAILS(ct_max_pool(F(8), .kernel = CT_DIMS(2, 2)), CT_E_SHAPE,
          "max_pool: kernel has 2 numbers for x (8,) f32");
    FAILS(ct_max_pool(F(2, 3, 4), .kernel = CT_DIMS(5)), CT_E_SHAPE,
          "max_pool: no window fits axis 2 of (2, 3, 4) f32: it spans 5 (size 5, dilation 1), with "
          "padding there are 4");
    FAILS(ct_max_pool(F(2, 3, 4), .kernel = CT_DIMS(3), .dilation = CT_DIMS(2),
                      .stride = CT_DIMS(1), .ceil_mode = true),
          CT_E_SHAPE,
          "max_pool: no window fits axis 2 of (2, 3, 4) f32: it spans 5 (size 3, dilation 2), with "
          "padding there are 4");
    FAILS(ct_max_pool(F(2, 3, 4), .kernel = CT_DIMS(0)), CT_E_ARGUMENT,
          "max_pool: kernel is 0, it must be at least 1");
    FAILS(ct_max_pool(F(2, 3, 4), .kernel = CT_DIMS(2), .stride = CT_DIMS(-1)), CT_E_ARGUMENT,
          "max_pool: stride is -1, it must be at least 1");
    FAILS(ct_max_pool(F(2, 3, 4), .kernel = CT_DIMS(2), .padding = CT_DIMS(-1)), CT_E_ARGUMENT,
          "max_pool: padding is -1, it must be at least 0");
    FAILS(ct_max_pool(F(2, 3, 4), .kernel = CT_DIMS(3), .padding = CT_DIMS(0, 2)), CT_E_ARGUMENT,
          "max_pool: padding 2 is more than half of a window of 3 elements\n"
          "  hint: a window must not be entirely outside of x");
    FAILS(ct_max_pool(F(2, 3, 4), .kernel = CT_DIMS(2), .padding = CT_DIMS(1, 1, 1)), CT_E_ARGUMENT,
          "max_pool: padding has 3 numbers for 1 axis\n"
          "  hint: give one for all, one an axis, or one an axis for what is before and then one "
          "an axis for what is after");
    FAILS(ct_max_pool(F(2, 3, 4, 4), .kernel = CT_DIMS(2, 2), .dilation = CT_DIMS(1, 1, 1)),
          CT_E_ARGUMENT,
          "max_pool: dilation has 3 numbers for 2 axes\n  hint: give one number an axis, or one "
          "for all of them");
    FAILS(ct_max_pool(F(2, 0), .kernel = CT_DIMS(1)), CT_E_SHAPE,
          "max_pool: no window fits axis 1 of (2, 0) f32: it spans 1 (size 1, dilation 1), with "
          "padding there are 0");
    FAILS(ct_max_pool(B(2, 3), .kernel = CT_DIMS(1)), CT_E_DTYPE,
          "max_pool: operand 1 is (2, 3) bool, accepted are integers and floats\n  hint: cast it: "
          "ct_cast(x, CT_I32)");
    FAILS(ct_max_pool_indices(F(2, 3), .kernel = CT_DIMS(4)), CT_E_SHAPE,
          "max_pool_indices: no window fits axis 1 of (2, 3) f32: it spans 4 (size 4, dilation 1), "
          "with padding there are 3");
    FAILS(ct_avg_pool(F(2, 3), .kernel = CT_DIMS(4)), CT_E_SHAPE,
          "avg_pool: no window fits axis 1 of (2, 3) f32: it spans 4 (size 4, dilation 1), with "
          "padding there are 3");
    FAILS(ct_avg_pool(F(2, 3), .kernel = CT_DIMS(2), .divisor = CT_F(0)), CT_E_ARGUMENT,
          "avg_pool: divisor is 0");
    FAILS(ct_avg_pool(F(2, 3), .kernel = CT_DIMS(CT_DYN(2))), CT_E_ARGUMENT,
          "avg_pool: kernel is dynamic, it must be static");
    FAILS(ct_max_pool(F(2, 3), .kernel = CT_DIMS(2), .padding = CT_DIMS(CT_DYN(1))), CT_E_ARGUMENT,
          "max_pool: padding is dynamic, it must be static");
    FAILS(ct_avg_pool(I(2, 3), .kernel = CT_DIMS(2)), CT_E_DTYPE,
          "avg_pool: operand 1 is (2, 3) i32, accepted are floats\n  hint: cast it: ct_cast(x, "
          "CT_F32)");
    FAILS(ct_lp_pool(F(2, 3), .kernel = CT_DIMS(4)), CT_E_SHAPE,
          "lp_pool: no window fits axis 1 of (2, 3) f32: it spans 4 (size 4, dilation 1), with "
          "padding there are 3");
    FAILS(ct_lp_pool(F(2, 3), .kernel = CT_DIMS(2), .power = CT_F(-2)), CT_E_ARGUMENT,
          "lp_pool: power is -2, it must be above 0");
}

static void adaptive_pools(void **state) {
    (void)state;
    CT_SCOPE;
    FAILS(ct_adaptive_max_pool(F(2, 3)), CT_E_ARGUMENT,
          "adaptive_max_pool: output has 0 numbers for x (2, 3) f32\n  hint: give the number of "
          "windows along each of 1 to 3 last axes");
    FAILS(ct_adaptive_max_pool(F(3), .output = CT_DIMS(2, 2)), CT_E_ARGUMENT,
          "adaptive_max_pool: output has 2 numbers for x (3,) f32\n  hint: give the number of "
          "windows along each of 1 to 3 last axes");
    FAILS(ct_adaptive_avg_pool(F(2, 3), .output = CT_DIMS(0)), CT_E_ARGUMENT,
          "adaptive_avg_pool: output is 0, it must be at least 1");
    FAILS(ct_adaptive_avg_pool(F(2, 3), .output = CT_DIMS(CT_DYN(3))), CT_E_ARGUMENT,
          "adaptive_avg_pool: output is dynamic, it must be static");
    FAILS(ct_adaptive_avg_pool(F(2, 0), .output = CT_DIMS(2)), CT_E_SHAPE,
          "adaptive_avg_pool: axis 1 of (2, 0) f32 has no elements");
    FAILS(ct_global_avg_pool(F(2, 3)), CT_E_SHAPE,
          "global_avg_pool: x is (2, 3) f32, it must be (N, C, ...) with 1 to 3 more axes");
    FAILS(ct_global_max_pool(F(2, 3, 4, 0)), CT_E_SHAPE,
          "global_max_pool: axis 3 of (2, 3, 4, 0) f32 has no elements");
}

static void convolutions(void **state) {
    (void)state;
    CT_SCOPE;
    FAILS(ct_conv(F(3, 8), F(4, 3, 3), CT_NONE), CT_E_SHAPE,
          "conv: x is (3, 8) f32, it must be (N, C, ...) with 1 to 3 more axes\n  hint: images of "
          "one channel are (N, 1, ...)");
    FAILS(ct_conv(F(1, 2, 3, 4, 5, 6), F(4, 2, 1, 1, 1, 1), CT_NONE), CT_E_SHAPE,
          "conv: x is (1, 2, 3, 4, 5, 6) f32, it must be (N, C, ...) with 1 to 3 more axes\n  "
          "hint: images of one channel are (N, 1, ...)");
    FAILS(ct_conv(I(2, 3, 8), I(4, 3, 3), CT_NONE), CT_E_DTYPE,
          "conv: operand 1 is (2, 3, 8) i32, accepted are floats\n  hint: cast it: ct_cast(x, "
          "CT_F32)");
    FAILS(ct_conv(F(2, 3, 8), D(4, 3, 3), CT_NONE), CT_E_DTYPE,
          "conv: weight is (4, 3, 3) f64, x is (2, 3, 8) f32\n  hint: cast it: ct_cast(weight, "
          "CT_F32)");
    FAILS(ct_conv(F(2, 3, 8), F(4, 3), CT_NONE), CT_E_SHAPE,
          "conv: weight is (4, 3) f32, for x (2, 3, 8) f32 it must be (out, C / groups, ...) with "
          "a size for each of its other axes");
    FAILS(ct_conv(F(2, 3, 8), F(4, 2, 3), CT_NONE), CT_E_SHAPE,
          "conv: weight (4, 2, 3) f32 has 2 channels along axis 1, for x (2, 3, 8) f32 in 1 group "
          "it must have 3");
    FAILS(ct_conv(F(2, 4, 8), F(6, 4, 3), CT_NONE, .groups = 2), CT_E_SHAPE,
          "conv: weight (6, 4, 3) f32 has 4 channels along axis 1, for x (2, 4, 8) f32 in 2 groups "
          "it must have 2");
    FAILS(ct_conv(F(2, 5, 8), F(4, 2, 3), CT_NONE, .groups = 2), CT_E_SHAPE,
          "conv: 2 groups do not divide the 5 channels of x (2, 5, 8) f32");
    FAILS(ct_conv(F(2, 4, 8), F(5, 2, 3), CT_NONE, .groups = 2), CT_E_SHAPE,
          "conv: 2 groups do not divide the 5 channels of weight (5, 2, 3) f32");
    FAILS(ct_conv(F(2, 4, 8), F(4, 4, 3), CT_NONE, .groups = -1), CT_E_ARGUMENT,
          "conv: groups is -1, it must be at least 1");
    FAILS(ct_conv(F(2, 3, 8), F(4, 3, 0), CT_NONE), CT_E_SHAPE,
          "conv: axis 2 of weight (4, 3, 0) f32 must have a static size of 1 to 1073741824");
    FAILS(ct_conv(F(2, 3, 8), F(4, 3, 3), F(3)), CT_E_SHAPE,
          "conv: bias is (3,) f32, it must be (4,): one number a channel");
    FAILS(ct_conv(F(2, 3, 8), F(4, 3, 3), D(4)), CT_E_DTYPE,
          "conv: bias is (4,) f64, x is (2, 3, 8) f32\n  hint: cast it: ct_cast(bias, CT_F32)");
    FAILS(ct_conv(F(2, 3, 4), F(4, 3, 3), CT_NONE, .dilation = CT_DIMS(3), .padding = CT_DIMS(1)),
          CT_E_SHAPE,
          "conv: no window fits axis 2 of (2, 3, 4) f32: it spans 7 (size 3, dilation 3), with "
          "padding there are 6");
    FAILS(ct_conv(F(2, 3, 0), F(4, 3, 1), CT_NONE), CT_E_SHAPE,
          "conv: no window fits axis 2 of (2, 3, 0) f32: it spans 1 (size 1, dilation 1), with "
          "padding there are 0");
    FAILS(ct_conv(F(2, 3, 8), F(4, 3, 3), CT_NONE, .stride = CT_DIMS(0)), CT_E_ARGUMENT,
          "conv: stride is 0, it must be at least 1");
    FAILS(ct_conv(F(2, 3, 8), F(4, 3, 3), CT_NONE, .stride = CT_DIMS(1, 1)), CT_E_ARGUMENT,
          "conv: stride has 2 numbers for 1 axis\n  hint: give one number an axis, or one for all "
          "of them");
    FAILS(ct_conv(F(2, 3, 8), F(4, 3, 3), CT_NONE, .padding = CT_DIMS(1), .same = true),
          CT_E_ARGUMENT, "conv: padding is given, and same too\n  hint: same finds the padding");
    FAILS(ct_conv(F(2, 3, 8), F(4, 3, 3), CT_NONE, .padding = CT_DIMS(-1)), CT_E_ARGUMENT,
          "conv: padding is -1, it must be at least 0");
    FAILS(ct_conv(F(2, 3, 8), F(4, 3, 3), CT_NONE, .output = CT_DIMS(7)), CT_E_ARGUMENT,
          "conv: output of axis 2 is 7, there are 6 windows");
    FAILS(ct_conv(F(2, 3, 8), F(4, 3, 3), CT_NONE, .output = CT_DIMS(6, 6)), CT_E_ARGUMENT,
          "conv: output has 2 numbers for 1 axis");
}

static void transposed_convolutions(void **state) {
    (void)state;
    CT_SCOPE;
    FAILS(ct_conv_transpose(F(2, 3, 8), F(3, 4, 3), CT_NONE, .stride = CT_DIMS(2),
                            .output_padding = CT_DIMS(2)),
          CT_E_ARGUMENT,
          "conv_transpose: output_padding 2 must be smaller than the stride 2 or the dilation 1 of "
          "axis 2");
    FAILS(ct_conv_transpose(F(2, 3, 8), F(3, 4, 3), CT_NONE, .output_padding = CT_DIMS(-1)),
          CT_E_ARGUMENT, "conv_transpose: output_padding is -1, it must be at least 0");
    FAILS(ct_conv_transpose(F(2, 3, 8), F(4, 3, 3), CT_NONE), CT_E_SHAPE,
          "conv_transpose: weight (4, 3, 3) f32 has 4 channels along axis 0, for x (2, 3, 8) f32 "
          "in 1 group it must have 3");
    FAILS(ct_conv_transpose(F(2, 3, 8), F(3, 2, 3), CT_NONE, .groups = 2), CT_E_SHAPE,
          "conv_transpose: 2 groups do not divide the 3 channels of x (2, 3, 8) f32");
    FAILS(ct_conv_transpose(F(2, 3, 8), F(3, 4), CT_NONE), CT_E_SHAPE,
          "conv_transpose: weight is (3, 4) f32, for x (2, 3, 8) f32 it must be (C, out / groups, "
          "...) with a size for each of its other axes");
    FAILS(ct_conv_transpose(F(2, 4, 8), F(4, 3, 3), F(3), .groups = 2), CT_E_SHAPE,
          "conv_transpose: bias is (3,) f32, it must be (6,): one number a channel");
    FAILS(ct_conv_transpose(F(2, 3, 1), F(3, 4, 3), CT_NONE, .padding = CT_DIMS(2)), CT_E_SHAPE,
          "conv_transpose: nothing is left of axis 2: x is (2, 3, 1) f32, weight is (3, 4, 3) f32, "
          "the padding is 2 and 2");
    FAILS(ct_conv_transpose(F(2, 3, 0), F(3, 4, 3), CT_NONE), CT_E_SHAPE,
          "conv_transpose: nothing is left of axis 2: x is (2, 3, 0) f32, weight is (3, 4, 3) f32, "
          "the padding is 0 and 0");
    FAILS(ct_conv_transpose(F(2, 3, 4), F(3, 4, 3), CT_NONE, .stride = CT_DIMS(2),
                            .output = CT_DIMS(11)),
          CT_E_ARGUMENT, "conv_transpose: output of axis 2 is 11, it can be 9 to 10");
    FAILS(ct_conv_transpose(F(2, 3, 5, 5), F(3, 4, 3, 3), CT_NONE, .output = CT_DIMS(11)),
          CT_E_ARGUMENT, "conv_transpose: output has 1 number for 2 axes");
    FAILS(ct_conv_weight_grad(F(2, 3, 8), F(2, 4, 6)), CT_E_ARGUMENT,
          "conv_weight_grad: size is not given\n"
          "  hint: it is the size of the weight along 1 spatial axis");
    FAILS(
        ct_conv_weight_grad(F(2, 3, 8), F(4, 4, 6), .size = CT_DIMS(3)), CT_E_SHAPE,
        "conv_weight_grad: x is (2, 3, 8) f32, y is (4, 4, 6) f32: they must have as many images");
    FAILS(ct_conv_weight_grad(F(2, 3, 8), F(2, 4, 7), .size = CT_DIMS(3)), CT_E_SHAPE,
          "conv_weight_grad: axis 2 of y (2, 4, 7) f32 has 7 elements, x (2, 3, 8) f32 has 6 "
          "windows");
    FAILS(ct_conv_weight_grad(F(2, 3, 8), F(2, 4), .size = CT_DIMS(3)), CT_E_SHAPE,
          "conv_weight_grad: y is (2, 4) f32, for x (2, 3, 8) f32 it must be (N, out, ...), what "
          "ct_conv makes of it");
    FAILS(ct_conv_weight_grad(F(2, 3, 8), F(2, 4, 6), .size = CT_DIMS(3), .groups = 3), CT_E_SHAPE,
          "conv_weight_grad: 3 groups do not divide the 4 channels of y (2, 4, 6) f32");
    FAILS(ct_conv_weight_grad(F(2, 3, 8), F(2, 4, 6), .size = CT_DIMS(0)), CT_E_ARGUMENT,
          "conv_weight_grad: size is 0, it must be at least 1");
}

static void norms_by_channels(void **state) {
    (void)state;
    CT_SCOPE;
    FAILS(ct_group_norm(F(3), CT_NONE, CT_NONE), CT_E_SHAPE,
          "group_norm: x is (3,) f32, it must be (N, C, ...)");
    FAILS(ct_group_norm(F(2, 6, 4), CT_NONE, CT_NONE, .groups = 4), CT_E_SHAPE,
          "group_norm: 4 groups do not divide the 6 channels of x (2, 6, 4) f32");
    FAILS(ct_group_norm(F(2, 6, 4), CT_NONE, CT_NONE, .groups = -1), CT_E_ARGUMENT,
          "group_norm: groups is -1, it must be at least 1");
    FAILS(ct_group_norm(F(2, 6, 4), CT_NONE, CT_NONE, .eps = CT_F(-1e-5)), CT_E_ARGUMENT,
          "group_norm: eps is -1e-05, it must be at least 0");
    FAILS(ct_batch_norm(F(2, 6), F(6), F(6), CT_NONE, CT_NONE, .eps = CT_F(NAN)), CT_E_ARGUMENT,
          "batch_norm: eps is nan, it must be at least 0");
    FAILS(ct_batch_norm_train(F(2, 6), F(6), F(6), CT_NONE, CT_NONE, .momentum = CT_F(1.5)).y,
          CT_E_ARGUMENT, "batch_norm_train: momentum is 1.5, it must be from 0 to 1");
    FAILS(ct_batch_norm_train(F(2, 6), F(6), F(6), CT_NONE, CT_NONE, .momentum = CT_F(-1)).y,
          CT_E_ARGUMENT, "batch_norm_train: momentum is -1, it must be from 0 to 1");
    FAILS(ct_group_norm(F(2, 6, 4), F(4), CT_NONE), CT_E_SHAPE,
          "group_norm: operand 2 is (4,) f32, it must be (6,) for x (2, 6, 4) f32\n  hint: one "
          "number a channel, which axis 1 counts");
    FAILS(ct_instance_norm(F(2, 6), CT_NONE, CT_NONE), CT_E_SHAPE,
          "instance_norm: x is (2, 6) f32, it must be (N, C, ...) with one more axis at least");
    FAILS(ct_instance_norm(F(2, 6, 4), F(6), D(6)), CT_E_DTYPE,
          "instance_norm: operand 3 is (6,) f64, x is (2, 6, 4) f32\n  hint: cast it: "
          "ct_cast(operand, CT_F32)");
    FAILS(ct_batch_norm(F(2, 6, 4), F(6), F(4), CT_NONE, CT_NONE), CT_E_SHAPE,
          "batch_norm: operand 3 is (4,) f32, it must be (6,) for x (2, 6, 4) f32\n  hint: one "
          "number a channel, which axis 1 counts");
    FAILS(ct_batch_norm(I(2, 6, 4), F(6), F(6), CT_NONE, CT_NONE), CT_E_DTYPE,
          "batch_norm: operand 1 is (2, 6, 4) i32, accepted are floats\n  hint: cast it: "
          "ct_cast(x, CT_F32)");
    FAILS(ct_batch_norm_train(F(1, 6), F(6), F(6), CT_NONE, CT_NONE).y, CT_E_SHAPE,
          "batch_norm_train: x is (1, 6) f32: a channel needs more than one element in training");
    FAILS(ct_batch_norm_train(F(6), F(6), F(6), CT_NONE, CT_NONE).y, CT_E_SHAPE,
          "batch_norm_train: x is (6,) f32, it must be (N, C, ...)");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows),
        cmocka_unit_test(pools),
        cmocka_unit_test(adaptive_pools),
        cmocka_unit_test(convolutions),
        cmocka_unit_test(transposed_convolutions),
        cmocka_unit_test(norms_by_channels),
    };
    return cmocka_run_group_tests_name("window errors", tests, NULL, NULL);
}
