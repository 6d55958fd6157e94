// Traced functions: call, custom_vjp, scan and its gradient.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cotan/cotan.h"

static ct_tensor scalar64(double v) { return ct_from(&v, CT_F64, CT_SCALAR); }

static void square_plus(const ct_tensor *in, ct_tensor *out,
                        void *user) { // x * x + the outer tensor
    out[0] = ct_add(ct_mul(in[0], in[0]), *(ct_tensor *)user);
}

static void call_captures_and_differentiates(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = scalar64(3), y = scalar64(5), out, g[2];
    ct_call(square_plus, &y, &x, 1, &out, 1);
    ct_tensor wrt[] = {x, y};
    ct_grad(out, wrt, 2, g);
    assert_true(ct_item(out) == 14);
    assert_true(ct_item(g[0]) == 6);
    assert_true(ct_item(g[1]) == 1);
    assert_false(ct_failed());
}

static void double_it(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_add(in[0], in[0]);
}
static void wrong_by_intent(const ct_tensor *in, ct_tensor *out,
                            void *user) { // in: x, 2x, cotangent
    (void)user;
    out[0] = ct_mul(in[2], ct_mul(in[0], ct_f(7)));
}
static void custom_rule_is_used_and_differentiable(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = scalar64(3), out, g, gg;
    ct_custom_vjp(double_it, wrong_by_intent, NULL, &x, 1, &out, 1);
    ct_grad(out, &x, 1, &g);
    ct_grad(g, &x, 1, &gg);
    assert_true(ct_item(gg) == 0); // of the function, which is linear
    assert_true(ct_item(g) == 21);
    assert_true(ct_item(out) == 6);
}

static void cube_times(const ct_tensor *in, ct_tensor *out, void *user) { // x^3 y, and its factor
    (void)user;
    out[0] = ct_mul(ct_mul(ct_mul(in[0], in[0]), in[0]), in[1]);
    out[1] = ct_mul(in[1], ct_f(2));
}
static void without_second_order(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user; // in: x, y, outputs, cotangents
    ct_tensor square = ct_mul(in[0], in[0]), slope = ct_mul(ct_mul(ct_f(3), square), in[1]);
    out[0] = ct_mul(in[4], ct_stop_gradient(slope));
    out[1] = ct_add(ct_mul(in[4], ct_stop_gradient(ct_mul(square, in[0]))), ct_mul(ct_f(2), in[5]));
}
static void second_order_of_a_custom_rule_is_the_functions(void **state) {
    (void)state;
    for (int same = 0; same < 2; same++) { // f(x, y), f(x, x)
        CT_SCOPE;
        double at = 2, by = same ? 2 : 5;
        ct_tensor in[] = {scalar64(at), CT_NONE}, y[2], g[2], third;
        in[1] = same ? in[0] : scalar64(by);
        ct_custom_vjp(cube_times, without_second_order, NULL, in, 2, y, 2);
        ct_tensor loss = ct_mul(y[0], y[1]), gg[2]; // 2 x^3 y^2
        ct_grad(loss, in, 2, g);
        ct_grad(g[0], in, 2, gg);
        ct_grad(gg[0], in, 1, &third);
        double first = ct_item(g[0]), xx = ct_item(gg[0]), xy = ct_item(gg[1]),
               xxx = ct_item(third);
        if (ct_failed()) fail_msg("%s", ct_error_text());
        double a = at, b = by; // same: 2 x^5
        assert_true(first == (same ? 10 * a * a * a * a : 6 * a * a * b * b));
        assert_true(xx == (same ? 40 * a * a * a : 12 * a * b * b));
        assert_true(xy == (same ? 40 * a * a * a : 12 * a * a * b));
        assert_true(xxx == (same ? 120 * a * a : 12 * b * b));
    }
}

// A step down the slope of x^2 c; c from outside.
static void descend(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_tensor loss = ct_sum(ct_mul(ct_mul(in[0], in[0]), *(ct_tensor *)user)), g;
    ct_grad(loss, in, 1, &g);
    out[0] = ct_sub(in[0], ct_mul(ct_f(0.25), g)); // x (1 - c / 2)
}
static void passes_on(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    ct_tensor loss = ct_mul(ct_mul(in[0], in[0]), in[0]), slope; // in: x, f(x), cotangent
    ct_grad(loss, in, 1, &slope);
    out[0] = ct_mul(in[2], slope);
}
static void as_gradient(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user; // x^3, by the slope of x^4 / 4
    ct_tensor fourth = ct_mul(ct_mul(in[0], in[0]), ct_mul(in[0], in[0]));
    ct_grad(ct_mul(fourth, ct_f(0.25)), in, 1, out);
}
static void functions_take_gradients(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = scalar64(3), c = scalar64(0.5), once, thrice, cubed, wrt[] = {x, c}, g[2], gg[2];
    ct_call(descend, &c, &x, 1, &once, 1);
    ct_grad(ct_mul(once, once), wrt, 2, g); // x^2 (1 - c / 2)^2
    ct_grad(g[0], wrt, 2, gg);
    double v = ct_item(once), gx = ct_item(g[0]), gc = ct_item(g[1]), gxc = ct_item(gg[1]);
    if (ct_failed()) fail_msg("%s", ct_error_text());
    assert_true(v == 2.25 && gx == 3.375 && gc == -6.75 && gxc == -4.5);
    ct_scan(&thrice, NULL, .body = descend, .user = &c, .carry = &x, .n_carry = 1, .length = 3);
    ct_grad(thrice, wrt, 2, g); // x (1 - c / 2)^3
    ct_grad(g[1], wrt, 2, gg);
    v = ct_item(thrice), gx = ct_item(g[0]), gc = ct_item(g[1]);
    double gcx = ct_item(gg[0]), gcc = ct_item(gg[1]);
    if (ct_failed()) fail_msg("%s", ct_error_text());
    assert_true(v == 1.265625 && gx == 0.421875 && gc == -2.53125);
    assert_true(gcx == -0.84375 && gcc == 3.375);
    ct_custom_vjp(as_gradient, passes_on, NULL, &x, 1, &cubed, 1);
    ct_grad(cubed, &x, 1, g);
    ct_grad(g[0], &x, 1, gg);
    v = ct_item(cubed), gx = ct_item(g[0]);
    double gxx = ct_item(gg[0]);
    if (ct_failed()) fail_msg("%s", ct_error_text());
    assert_true(v == 27 && gx == 27 && gxx == 18);
}

static void slope_of_product(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    ct_grad(ct_mul(in[0], in[1]), in, 1, out);
}
static void slope_twice(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_tensor pair[] = {in[0], in[0]};
    ct_call(slope_of_product, user, pair, 2, out, 1);
}
// With respect to an operand, not to all operands that happen to be one tensor.
static void a_functions_gradient_is_of_its_operands(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = scalar64(3), pair[] = {x, x}, flat, nested, g;
    ct_call(slope_of_product, NULL, pair, 2, &flat, 1);
    ct_scan(&nested, NULL, .body = slope_twice, .carry = &x, .n_carry = 1, .length = 2);
    ct_grad(flat, &x, 1, &g);
    double a = ct_item(flat), b = ct_item(nested), c = ct_item(g);
    if (ct_failed()) fail_msg("%s", ct_error_text());
    assert_true(a == 3 && b == 3 && c == 1);
}

static void read_inside(const ct_tensor *in, ct_tensor *out, void *user) {
    *(double *)user = ct_item(in[0]);
    out[0] = in[0];
}
static void reading_inside_is_an_error(void **state) {
    (void)state;
    CT_SCOPE;
    double seen = 0;
    ct_tensor x = scalar64(3), out;
    ct_call(read_inside, &seen, &x, 1, &out, 1);
    unsigned line = __LINE__ - 9;
    char want[200];
    snprintf(want, sizeof want,
             "tests/unit/test_trace.c:%u: item: a value is read inside a traced function\n"
             "  hint: return it as a result of the function, and read it outside",
             line);
    assert_true(isnan(seen));
    assert_true(ct_failed());
    assert_string_equal(ct_error_text(), want);
    ct_error_clear();
}

// h' = tanh(w h + x), y = h' * h'
static void cell(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_tensor w = *(ct_tensor *)user;
    out[0] = ct_tanh(ct_add(ct_mul(w, in[0]), in[1]));
    out[1] = ct_mul(out[0], out[0]);
}
enum { LENGTH = 5 };
static double plain(double w, double h, const double *x, int reverse) {
    double sum = 0;
    for (int i = 0; i < LENGTH; i++) {
        h = tanh(w * h + x[reverse ? LENGTH - 1 - i : i]);
        sum += h * h;
    }
    return sum + h;
}
static ct_tensor with_scan(ct_tensor *w, ct_tensor h, ct_tensor x, bool reverse) {
    ct_tensor last, ys;
    ct_scan(&last, &ys, .body = cell, .user = w, .carry = &h, .n_carry = 1, .xs = &x, .n_xs = 1,
            .n_ys = 1, .reverse = reverse);
    return ct_add(ct_sum(ys), last);
}

static void scan_and_its_gradient(void **state) {
    (void)state;
    for (int reverse = 0; reverse < 2; reverse++) {
        CT_SCOPE;
        double x[LENGTH] = {0.3, -0.2, 0.5, 0.1, -0.4}, w0 = 0.7, h0 = 0.25, eps = 1e-5;
        ct_tensor w = scalar64(w0), h = scalar64(h0), xs = ct_from(x, CT_F64, CT_DIMS(LENGTH));
        ct_tensor loss = with_scan(&w, h, xs, reverse), g[3], wrt[] = {w, h, xs}, gg;
        ct_grad(loss, wrt, 3, g);
        ct_grad(g[0], &w, 1, &gg);
        assert_true(fabs(ct_item(loss) - plain(w0, h0, x, reverse)) < 1e-12);
        double gw = (plain(w0 + eps, h0, x, reverse) - plain(w0 - eps, h0, x, reverse)) / (2 * eps);
        double gh = (plain(w0, h0 + eps, x, reverse) - plain(w0, h0 - eps, x, reverse)) / (2 * eps);
        double gww = (plain(w0 + 1e-4, h0, x, reverse) - 2 * plain(w0, h0, x, reverse) +
                      plain(w0 - 1e-4, h0, x, reverse)) /
                     1e-8;
        assert_true(fabs(ct_item(g[0]) - gw) < 1e-8);
        assert_true(fabs(ct_item(g[1]) - gh) < 1e-8);
        const double *gx = ct_data(g[2]);
        assert_non_null(gx);
        for (int i = 0; i < LENGTH; i++) {
            double up[LENGTH], down[LENGTH];
            for (int k = 0; k < LENGTH; k++) up[k] = down[k] = x[k];
            up[i] += eps;
            down[i] -= eps;
            assert_true(fabs(gx[i] - (plain(w0, h0, up, reverse) - plain(w0, h0, down, reverse)) /
                                         (2 * eps)) < 1e-8);
        }
        double second = ct_item(gg);
        if (ct_failed()) fail_msg("%s", ct_error_text());
        assert_true(fabs(second - gww) < 1e-5);
    }
}

// What a plan is made of does not depend on how often its loops turn. Of ten turns some launches are so
// small that they are one.
static void a_long_scan_is_planned_like_a_short_one(void **state) {
    (void)state;
    static const int64_t lengths[] = {10, 1000, 10000};
    size_t launches[3], kernels[3];
    for (int i = 0; i < 3; i++) {
        CT_SCOPE;
        ct_tensor w = scalar64(0.5), h = scalar64(0.25), slope;
        ct_tensor xs = ct_mul(ct_iota(CT_F64, CT_DIMS(lengths[i]), 0), scalar64(1e-3));
        ct_tensor loss = with_scan(&w, h, xs, false);
        ct_grad(loss, &w, 1, &slope);
        assert_true(isfinite(ct_item(slope)));
        const ct_plan_cost *cost = ct_latest_plan();
        assert_non_null(cost);
        launches[i] = cost->n_launches;
        kernels[i] = cost->n_kernels;
    }
    assert_true(launches[0] <= launches[1]);
    assert_int_equal(launches[1], launches[2]);
    assert_int_equal(kernels[0], kernels[1]);
    assert_int_equal(kernels[1], kernels[2]);
}

static void add_up(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_add(in[0], in[1]);
}
// The plan of the first round serves the others, long after what it was made from is gone.
static void scan_outlives_its_record(void **state) {
    (void)state;
    enum { ROWS = 4, WIDTH = 300 };
    float x[ROWS * WIDTH], h[WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++) x[i] = (float)(i % 7);
    for (int i = 0; i < WIDTH; i++) h[i] = (float)i;
    for (int round = 0; round < 4; round++) {
        {
            CT_SCOPE;
            ct_tensor carry = ct_from(h, CT_F32, CT_DIMS(WIDTH)), last;
            ct_tensor xs = ct_from(x, CT_F32, CT_DIMS(ROWS, WIDTH));
            ct_scan(&last, NULL, .body = add_up, .carry = &carry, .n_carry = 1, .xs = &xs,
                    .n_xs = 1);
            const float *sum = ct_data(ct_mul(last, ct_f(2)));
            if (!sum) fail_msg("%s", ct_error_text());
            for (int i = 0; i < WIDTH; i++)
                assert_true(sum[i] ==
                            2 * (h[i] + x[i] + x[WIDTH + i] + x[2 * WIDTH + i] + x[3 * WIDTH + i]));
        }
        // What the record's memory was is used by others.
        char *block[400];
        for (int i = 0; i < 400; i++)
            if ((block[i] = malloc(100u << i % 9))) memset(block[i], 0xee, 100u << i % 9);
        for (int i = 0; i < 400; i++) free(block[i]);
    }
}

static void scan_shape_errors(void **state) {
    (void)state;
    CT_SCOPE;
    float data[4] = {0};
    ct_tensor w = scalar64(1), h = ct_from(data, CT_F32, CT_DIMS(2)),
              x = ct_from(data, CT_F32, CT_DIMS(3)), last, ys;
    ct_scan_args args = {.body = cell, .user = &w, .carry = &h, .n_carry = 1, .xs = &x, .n_xs = 1};
    args.n_ys = 1;
    args.here = (ct_loc){"user.c", 7}; // compilers differ over the line of a call of several lines
    ct_scan_with(args, &last, &ys);
    assert_true(ct_failed());
    assert_string_equal(ct_error_text(),
                        "user.c:7: scan: carried tensor 1 is (2,) f32, the body makes it (2,) f64\n"
                        "  hint: ct_cast it in the body, or before the loop");
    assert_int_equal(ct_rank(last), 0);
    ct_error_clear();
}

static void itself(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = in[0];
}

static void sets_the_first(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = in[0];
}
static void sets_none(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)in, (void)out, (void)user;
}
static void product(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_mul(in[0], in[1]);
}
static void says(const char *want) {
    assert_int_equal(ct_error_code(), CT_E_ARGUMENT);
    assert_string_equal(ct_error_text(), want);
    ct_error_clear();
}
static void what_a_function_does_not_set_is_named(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x[2] = {scalar64(3), scalar64(4)}, out[2];
    ct_loc here = {"user.c", 7};
    ct_call_at(sets_the_first, NULL, x, 2, out, 2, here);
    says("user.c:7: call: f did not set output 2");
    assert_false(ct_ok(out[0]) || ct_ok(out[1]));
    ct_custom_vjp_at(sets_none, sets_none, NULL, x, 2, out, 1, here);
    says("user.c:7: custom_vjp: f did not set output 1");
    ct_custom_vjp_at(product, sets_the_first, NULL, x, 2, out, 1, here);
    says("user.c:7: custom_vjp: the rule did not set the cotangent of operand 2");
    ct_scan_with(
        (ct_scan_args){
            .body = sets_the_first, .carry = x, .n_carry = 1, .n_ys = 1, .length = 3, .here = here},
        out, out + 1);
    says("user.c:7: scan: the body did not set output 2");
}

// in: x, y, their product, its cotangent
static void product_back(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_mul(in[3], in[1]);
    out[1] = ct_cast(ct_sum(ct_mul(in[3], in[0])), ct_dtype_of(in[1]));
}
static void of_value(ct_tensor t, ct_dtype dtype, double first, double second) {
    if (ct_failed()) fail_msg("%s", ct_error_text());
    assert_int_equal(ct_dtype_of(t), dtype);
    float values[2];
    ct_tensor wide = ct_cast(t, CT_F32);
    const float *data = ct_data(wide);
    if (!data) fail_msg("%s", ct_error_text());
    memcpy(values, data, sizeof values);
    assert_true(values[0] == (float)first && values[1] == (float)second);
}
// A bare number is one in a traced function too: it takes the dtype of what it meets there.
static void bare_numbers_stay_bare(void **state) {
    (void)state;
    CT_SCOPE;
    const struct {
        ct_dtype dtype;
        ct_tensor number;
    } cases[] = {{CT_U8, ct_i(5)},  {CT_I16, ct_i(5)}, {CT_F16, ct_f(5)}, {CT_BF16, ct_i(5)},
                 {CT_F32, ct_f(5)}, {CT_F64, ct_f(5)}, {CT_I64, ct_i(5)}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const float from[] = {1, 3};
        ct_tensor x = ct_cast(ct_from(from, CT_F32, CT_DIMS(2)), cases[i].dtype), out;
        ct_tensor in[] = {x, cases[i].number};
        ct_call(add_up, NULL, in, 2, &out, 1);
        of_value(out, cases[i].dtype, 6, 8);
        ct_custom_vjp(product, product_back, NULL, in, 2, &out, 1);
        of_value(out, cases[i].dtype, 5, 15);
        if (cases[i].dtype < CT_F16) continue;
        ct_tensor g, square = ct_mul(out, out);
        ct_grad(ct_sum(square), &x, 1, &g);
        of_value(g, cases[i].dtype, 50, 150);
    }
    const double two[] = {1, 2};
    ct_tensor out, wide = ct_from(two, CT_F64, CT_DIMS(2)), numbers[] = {ct_i(2), ct_i(5)},
                   mixed[] = {wide, ct_f(0.1)};
    ct_call(add_up, NULL, numbers, 2, &out, 1);
    of_value(ct_add(ct_cast(wide, CT_U8), out), CT_U8, 8, 9);
    ct_call(add_up, NULL, mixed, 2, &out, 1);
    assert_true(((const double *)ct_data(out))[1] == 2.1); // no f32 on the way
}
// Each of these meets an f64 only in the body, in which the other operand is f32.
static void scaled(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_mul(in[0], in[2]); // f64
    out[1] = ct_mul(in[1], in[2]); // f32
}
static void scaled_back(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_mul(in[5], in[2]);
    out[1] = ct_mul(in[6], in[2]);
    out[2] = ct_cast(ct_sum(ct_add(ct_mul(in[5], in[0]), ct_mul(in[6], in[1]))), CT_F32);
}
static void calls_scaled(const ct_tensor *in, ct_tensor *out, void *user) {
    const ct_tensor inner[] = {ct_cast(in[0], CT_F64), in[1], in[2]};
    ct_call(scaled, user, inner, 3, out, 2);
}
static void tenth(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)in, (void)user;
    out[0] = ct_f(0.1);
}
static void scaled_rows(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_mul(in[0], ct_f(0.1));
    out[1] = ct_add(in[1], ct_f(1));
    out[2] = ct_mul(in[2], ct_f(0.5));
}
static void is_f64(ct_tensor t, double want) {
    const double *got = ct_data(t);
    if (!got) fail_msg("%s", ct_error_text());
    assert_int_equal(ct_dtype_of(t), CT_F64);
    assert_true(*got == want);
}
static void bare_numbers_among_both_widths(void **state) {
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        CT_SCOPE;
        const double three = 3;
        ct_tensor y = ct_ones(CT_F32, CT_SCALAR), x = ct_from(&three, CT_F64, CT_SCALAR), g[2],
                  in[] = {x, y, ct_f(0.1)}, out[2];
        if (kind == 2)
            ct_custom_vjp(scaled, scaled_back, NULL, in, 3, out, 2);
        else
            ct_call(kind ? calls_scaled : scaled, NULL, in, 3, out, 2);
        ct_grad(ct_add(out[0], ct_cast(out[1], CT_F64)), in, 2, g);
        is_f64(out[0], 3 * 0.1);
        assert_int_equal(ct_dtype_of(out[1]), CT_F32);
        assert_true(ct_item(out[1]) == 0.1f);
        is_f64(g[0], 0.1);
        assert_true(ct_item(g[1]) == 0.1f);
    }
    CT_SCOPE;
    const double four = 4;
    const float rows[] = {4, 8};
    ct_tensor x = ct_from(&four, CT_F64, CT_SCALAR), number, last[2], ys, g,
              carry[] = {ct_from(&four, CT_F64, CT_SCALAR), ct_f(0)},
              xs = ct_from(rows, CT_F32, CT_DIMS(2));
    ct_call(tenth, NULL, &x, 1, &number, 1); // behind the function it is the f32 that it was
    is_f64(ct_add(ct_mul(ct_mul(x, ct_f(2)), number), ct_f(7)), 8 * (double)0.1f + 7);
    ct_scan(last, &ys, .body = scaled_rows, .carry = carry, .n_carry = 2, .xs = &xs, .n_xs = 1,
            .n_ys = 1);
    ct_grad(ct_sum(ys), &xs, 1, &g);
    is_f64(last[0], 4 * 0.1 * 0.1);
    assert_true(ct_item(last[1]) == 2);
    of_value(ys, CT_F32, 2, 4);
    of_value(g, CT_F32, 0.5, 0.5);
}
// What stands in its place in f64 is another node, so that a part of the gradient would be missing.
static void takes_its_gradient(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    ct_grad_at(ct_mul(in[0], in[1]), in + 1, 1, out, (ct_loc){"user.c", 7});
}
static void widened_numbers_have_no_gradient(void **state) {
    (void)state;
    static const char want[] = "user.c:7: grad: operand 1 is a bare number that met an f64: it has "
                               "no gradient\n  hint: ct_scalar(value, CT_F64) has one";
    for (int kind = 0; kind < 3; kind++) {
        CT_SCOPE;
        ct_tensor in[] = {scalar64(3), ct_f(2)}, y = ct_ones(CT_F32, CT_SCALAR), g;
        ct_tensor loss = ct_add(ct_cast(ct_mul(in[0], in[1]), CT_F32), ct_mul(y, in[1]));
        ct_grad(loss, &y, 1, &g); // plans do not forget it
        assert_true(ct_item(loss) == 8 && ct_item(g) == 2);
        if (kind == 0)
            ct_grad_at(loss, in + 1, 1, &g, (ct_loc){"user.c", 7});
        else if (kind == 1)
            ct_call(takes_its_gradient, NULL, in, 2, &g, 1);
        else
            in[1] = ct_scalar(2, CT_F64), ct_call(takes_its_gradient, NULL, in, 2, &g, 1);
        if (kind == 2) {
            is_f64(g, 3);
            continue;
        }
        assert_int_equal(ct_error_code(), CT_E_GRAD);
        assert_string_equal(ct_error_text(), want);
        ct_error_clear();
    }
}
static void adds_at(const ct_tensor *in, ct_tensor *out, void *user) {
    *(int *)user = __LINE__ + 1;
    out[0] = ct_add(in[0], ct_expand(in[1], CT_DIMS(2)));
}
static void calls_it(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_call(adds_at, user, in, 2, out, 1);
}
static void bare_numbers_that_do_not_fit(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor in[] = {ct_ones(CT_U8, CT_DIMS(2)), ct_i(300)}, out;
    for (int i = 0; i < 3; i++) {
        int line = 0;
        if (i == 2)
            ct_custom_vjp(adds_at, product_back, &line, in, 2, &out, 1);
        else
            ct_call(i ? calls_it : adds_at, &line, in, 2, &out, 1);
        char want[200];
        snprintf(want, sizeof want,
                 "tests/unit/test_trace.c:%d: add: operand 2 is 300, which does not fit u8 (0 to "
                 "255)\n  hint: ct_cast the tensor to a dtype that holds it, or the number to u8: "
                 "that wraps",
                 line);
        assert_false(ct_ok(out));
        says(want);
    }
}
static void second_alone(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = in[1];
}
static void product_alone(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_mul(in[3], in[0]);
    out[1] = in[3];
}
// The cotangent of a bare number is a tensor, which decides the dtype with others.
static void cotangents_are_not_bare(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor in[] = {ct_cast(ct_f(2), CT_F16), ct_f(3)}, out;
    ct_custom_vjp_at(second_alone, product_alone, NULL, in, 2, &out, 1, (ct_loc){"user.c", 7});
    assert_int_equal(ct_error_code(), CT_E_SHAPE);
    assert_string_equal(ct_error_text(), "user.c:7: custom_vjp: the cotangent of operand 1 is () "
                                         "f32, the operand is () f16");
    ct_error_clear();
}
// What a scan carries is what its body makes, so that no bare number stays one behind the first.
static void carried_numbers_are_tensors(void **state) {
    (void)state;
    CT_SCOPE;
    const uint8_t from[] = {200, 100};
    ct_tensor x = ct_from(from, CT_U8, CT_DIMS(2)), carry = ct_i(0), last;
    ct_scan(&last, NULL, .body = add_up, .carry = &carry, .n_carry = 1, .xs = &x, .n_xs = 1);
    if (ct_failed()) fail_msg("%s", ct_error_text());
    assert_int_equal(ct_dtype_of(last), CT_I32);
    assert_true(ct_item(last) == 300);
}

static void ends_its_scope(const ct_tensor *in, ct_tensor *out, void *user) {
    CT_SCOPE;
    out[0] = ct_neg(in[0]);
    if (*(bool *)user) out[0] = ct_keep(out[0]);
}
static void what_a_function_gives_is_an_output(void **state) {
    (void)state;
    CT_SCOPE;
    bool keeps = false;
    ct_tensor x = scalar64(3), out;
    int line = __LINE__ - 8;
    ct_call_at(ends_its_scope, &keeps, &x, 1, &out, 1, (ct_loc){"user.c", 7});
    char want[300];
    snprintf(want, sizeof want,
             "user.c:7: call: output 1 was used after its scope ended: made at "
             "tests/unit/test_trace.c:%d, the scope of tests/unit/test_trace.c:%d\n"
             "  hint: carry it out of its scope with ct_keep",
             line, line - 1);
    assert_int_equal(ct_error_code(), CT_E_STALE);
    assert_string_equal(ct_error_text(), want);
    ct_error_clear();
    assert_false(ct_check_grad_with((ct_check_grad_args){
        .f = ends_its_scope, .user = &keeps, .in = &x, .n_in = 1, .here = {"user.c", 8}}));
    snprintf(want, sizeof want,
             "user.c:8: check_grad: output 1 was used after its scope ended: made at "
             "tests/unit/test_trace.c:%d, the scope of tests/unit/test_trace.c:%d\n"
             "  hint: carry it out of its scope with ct_keep",
             line, line - 1);
    assert_string_equal(ct_error_text(), want);
    ct_error_clear();
    keeps = true;
    ct_call(ends_its_scope, &keeps, &x, 1, &out, 1);
    assert_true(ct_item(out) == -3);
}

static void assigns(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_assign_at(*(ct_tensor *)user, in[0], (ct_loc){"user.c", 8});
    out[0] = in[0];
}
static void reports(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    ct_metric_at("loss", in[0], (ct_loc){"user.c", 9});
    out[0] = in[0];
}
static void effects_inside_are_errors(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = ct_param(set, "w", CT_F64, CT_SCALAR);
    {
        CT_SCOPE;
        ct_tensor x = scalar64(3), out;
        ct_call(assigns, &w, &x, 1, &out, 1);
        assert_int_equal(ct_error_code(), CT_E_TRACE);
        assert_string_equal(
            ct_error_text(),
            "user.c:8: assign: variable \"w\" is assigned inside a traced function\n"
            "  hint: return the value as a result of the function, and assign it "
            "outside");
        ct_error_clear();
        ct_call(reports, NULL, &x, 1, &out, 1);
        assert_int_equal(ct_error_code(), CT_E_TRACE);
        assert_string_equal(ct_error_text(),
                            "user.c:9: metric: \"loss\" is reported inside a traced function\n"
                            "  hint: return the value as a result of the function, and report it "
                            "outside");
        ct_error_clear();
    }
    ct_params_free(set);
}

static void lists_that_cannot_be_are_not_touched(void **state) {
    (void)state;
    ct_tensor x = ct_from(((float[]){1, 2, 3, 4}), CT_F32, CT_DIMS(4)), out[2] = {x, x};
    size_t most = SIZE_MAX;
    struct {
        const char *op, *what;
    } want[] = {
        {"call", "the operands"}, {"call", "the results"},         {"custom_vjp", "the results"},
        {"grad", "the tensors"},  {"scan", "the carried tensors"}, {"scan", "xs"},
        {"scan", "ys"},           {"check_grad", "the operands"},  {"check_grad", "the outputs"}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        ct_loc here = {"user.c", 7};
        switch (i) {
        case 0: ct_call_at(itself, NULL, &x, most, out, 1, here); break;
        case 1: ct_call_at(itself, NULL, &x, 1, out, most, here); break;
        case 2: ct_custom_vjp_at(itself, itself, NULL, &x, 1, out, most, here); break;
        case 3: ct_grad_at(ct_sum(x), &x, most, out, here); break;
        case 4:
            ct_scan_with((ct_scan_args){.body = itself, .carry = &x, .n_carry = most, .here = here},
                         out, out + 1);
            break;
        case 5:
            ct_scan_with((ct_scan_args){.body = itself, .xs = &x, .n_xs = most, .here = here}, out,
                         out + 1);
            break;
        case 6:
            ct_scan_with((ct_scan_args){.body = itself, .n_ys = most, .length = 3, .here = here},
                         out, out + 1);
            break;
        case 7:
            assert_false(ct_check_grad_with(
                (ct_check_grad_args){.f = itself, .in = &x, .n_in = most, .here = here}));
            break;
        default:
            assert_false(ct_check_grad_with((ct_check_grad_args){
                .f = itself, .in = &x, .n_in = 1, .n_out = most, .here = here}));
        }
        char text[160];
        if (i == 3)
            snprintf(text, sizeof text,
                     "user.c:7: grad: %zu tensors are named, 1 to 1048576 are possible", most);
        else
            snprintf(text, sizeof text, "user.c:7: %s: %s are %zu, at most 65535 are possible",
                     want[i].op, want[i].what, most);
        assert_string_equal(ct_error_text(), text);
        assert_true(out[0].bits == x.bits && out[1].bits == x.bits);
        ct_error_clear();
    }
}

// Rules that differ from the derivative, so that one sees which was taken: 3 and 5 times the slope of x^2.
static void square_of(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_mul(ct_mul(in[0], in[0]), in[1]);
}
static void three_times(const ct_tensor *in, ct_tensor *out,
                        void *user) { // x, y, result, cotangent
    (void)user;
    out[0] = ct_mul(ct_mul(ct_f(6), ct_mul(in[0], in[1])), in[3]);
    out[1] = ct_mul(ct_mul(in[0], in[0]), in[3]);
}
static void five_times(const ct_tensor *in, ct_tensor *out,
                       void *user) { // ..., tangents of x and y
    (void)user;
    ct_tensor by_x = ct_mul(ct_mul(ct_f(10), ct_mul(in[0], in[1])), in[3]);
    out[0] = ct_add(by_x, ct_mul(ct_mul(in[0], in[0]), in[4]));
}
static void ruled(const ct_tensor *in, ct_tensor *out, void *forward) {
    if (forward)
        ct_custom_jvp(square_of, five_times, NULL, in, 2, out, 1);
    else
        ct_custom_vjp(square_of, three_times, NULL, in, 2, out, 1);
}
static void rules_stay_rules_in_batches(void **state) {
    (void)state;
    for (int forward = 0; forward < 2; forward++) {
        CT_SCOPE;
        ct_tensor in[2] = {ct_from(((double[]){1, 2, 3}), CT_F64, CT_DIMS(3)), scalar64(2)}, y,
                  g[2];
        ct_vmap(.f = ruled, .user = forward ? in : NULL, .in = in, .n_in = 2, .out = &y, .n_out = 1,
                .in_axes = CT_AXES(0, CT_NO_AXIS));
        ct_grad(ct_sum(y), in, 2, g);
        const double *slopes = ct_data(g[0]);
        if (ct_failed()) fail_msg("%s", ct_error_text());
        for (int i = 0; i < 3; i++) assert_true(slopes[i] == (forward ? 20 : 12) * (i + 1));
        assert_true(ct_item(g[1]) == 1 + 4 + 9);
    }
}

int main(void) {
    static const char *const devices[] = {"ref", "cpu", "async:cpu"};
    int failed = 0;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        if (!ct_set_device(devices[i])) return 1;
        const struct CMUnitTest tests[] = {
            cmocka_unit_test(call_captures_and_differentiates),
            cmocka_unit_test(custom_rule_is_used_and_differentiable),
            cmocka_unit_test(second_order_of_a_custom_rule_is_the_functions),
            cmocka_unit_test(functions_take_gradients),
            cmocka_unit_test(a_functions_gradient_is_of_its_operands),
            cmocka_unit_test(reading_inside_is_an_error),
            cmocka_unit_test(scan_and_its_gradient),
            cmocka_unit_test(a_long_scan_is_planned_like_a_short_one),
            cmocka_unit_test(scan_outlives_its_record),
            cmocka_unit_test(scan_shape_errors),
            cmocka_unit_test(what_a_function_does_not_set_is_named),
            cmocka_unit_test(bare_numbers_stay_bare),
            cmocka_unit_test(bare_numbers_among_both_widths),
            cmocka_unit_test(widened_numbers_have_no_gradient),
            cmocka_unit_test(bare_numbers_that_do_not_fit),
            cmocka_unit_test(cotangents_are_not_bare),
            cmocka_unit_test(carried_numbers_are_tensors),
            cmocka_unit_test(what_a_function_gives_is_an_output),
            cmocka_unit_test(effects_inside_are_errors),
            cmocka_unit_test(lists_that_cannot_be_are_not_touched),
            cmocka_unit_test(rules_stay_rules_in_batches),
        };
        failed += cmocka_run_group_tests_name(devices[i], tests, NULL, NULL);
    }
    ct_ctx_free(ct_ctx_use(NULL)); // its buffers behind veiled addresses would look leaked
    return failed;
}
