// Gradients of first and second order against finite differences in f64, on random small graphs.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cotan/optim.h"
#include "support/record.h"

#define TEST(name) cmocka_unit_test_setup_teardown(name, record_begin, record_end)
#define FILE_NAME "tests/unit/test_grad.c"

enum { ROWS = 2, COLUMNS = 3, N = ROWS * COLUMNS, GRAPHS = 60, OPS = 7 };

static uint64_t seed;
static uint64_t draw(uint64_t below) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}
static double uniform(void) { return (double)draw(1 << 24) * 0x1p-23 - 1; }

// One random smooth op on values of shape (2, 3), which keeps magnitudes near 1.
static ct_tensor random_op(ct_tensor a, ct_tensor b) {
    switch (draw(16)) {
    case 0: return ct_add(a, b);
    case 1: return ct_sub(a, b);
    case 2: return ct_mul(a, b);
    case 3: return ct_div(a, ct_add(ct_mul(b, b), ct_f(1.5)));
    case 4: return ct_tanh(a);
    case 5: return ct_sin(a);
    case 6: return ct_exp(ct_mul(ct_tanh(a), ct_f(0.5)));
    case 7: return ct_log(ct_add(ct_mul(a, a), ct_f(1.25)));
    case 8: return ct_sqrt(ct_add(ct_mul(a, a), ct_f(0.75)));
    case 9: return ct_mul(a, ct_sum(b, .axes = CT_AXES(1), .keepdims = true));
    case 10: return ct_add(b, ct_sum(a, .axes = CT_AXES(0)));
    case 11: return ct_permute(ct_reshape(a, CT_DIMS(COLUMNS, ROWS)), CT_AXES(1, 0));
    case 12:
        return ct_matmul(ct_mul(a, ct_f(0.5)), ct_tanh(ct_matmul(ct_permute(b, CT_AXES(1, 0)), a)));
    case 13:
        return ct_neg(
            ct_expand(ct_slice(a, .axes = CT_AXES(0), .start = CT_INTS(0), .stop = CT_INTS(1)),
                      CT_DIMS(ROWS, COLUMNS)));
    case 14: return ct_softmax(a);
    default: return ct_cumsum(ct_mul(a, ct_f(0.5)), .axis = 1);
    }
}

static ct_tensor leaf(const double *v) { return ct_from(v, CT_F64, CT_DIMS(ROWS, COLUMNS)); }

// The graph of this seed as one number.
static ct_tensor loss_of(uint64_t graph, ct_tensor x, ct_tensor y) {
    seed = graph;
    ct_tensor values[OPS + 2] = {x, y};
    for (int i = 0; i < OPS; i++) {
        uint64_t a = draw((uint64_t)i + 2), b = draw((uint64_t)i + 2);
        values[i + 2] = random_op(values[i % 2 ? a : (uint64_t)i + 1], values[b]);
    }
    ct_tensor all = ct_mul(x, y);
    for (int i = 2; i < OPS + 2; i++) all = ct_add(all, values[i]);
    return ct_sum(ct_mul(all, ct_tanh(all)));
}

// What is compared: the loss, or for second order a fixed combination of the first gradients.
static ct_tensor function(uint64_t graph, int order, ct_tensor x, ct_tensor y) {
    ct_tensor loss = loss_of(graph, x, y), wrt[] = {x, y}, g[2];
    if (order == 0) return loss;
    ct_grad(loss, wrt, 2, g);
    return ct_sum(ct_add(ct_mul(g[0], ct_f(0.75)), ct_mul(g[1], x)));
}

static double value(uint64_t graph, int order, const double *x, const double *y) {
    CT_SCOPE;
    return ct_item(function(graph, order, leaf(x), leaf(y)));
}

static void gradients_of(int order, double bound) {
    for (uint64_t graph = 1; graph <= GRAPHS; graph++) {
        double v[2][N], got[2][N];
        seed = graph * 1000003;
        for (int k = 0; k < 2 * N; k++) v[k / N][k % N] = uniform();
        {
            CT_SCOPE;
            ct_tensor wrt[] = {leaf(v[0]), leaf(v[1])}, g[2];
            ct_grad(function(graph, order, wrt[0], wrt[1]), wrt, 2, g);
            if (!ct_eval(g, 2)) fail_msg("graph %d: %s", (int)graph, ct_error_text());
            for (int k = 0; k < 2; k++) memcpy(got[k], ct_data(g[k]), sizeof got[k]);
        }
        for (int k = 0; k < 2 * N; k++) {
            double *at_k = &v[k / N][k % N], was = *at_k, h = 1e-4, f[4];
            const double steps[] = {-2 * h, -h, h, 2 * h};
            for (int i = 0; i < 4; i++) {
                *at_k = was + steps[i];
                f[i] = value(graph, order, v[0], v[1]);
            }
            *at_k = was;
            double want = (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h); // error of order h^4
            double error = fabs(want - got[k / N][k % N]);
            if (!(error <= bound * (1 + fabs(want))))
                fail_msg("graph %d, order %d, element %d: gradient %.12g, by differences %.12g",
                         (int)graph, order + 1, k, got[k / N][k % N], want);
        }
    }
}

static void first_gradients_of_random_graphs(void **state) {
    (void)state;
    gradients_of(0, 1e-8);
}
static void second_gradients_of_random_graphs(void **state) {
    (void)state;
    gradients_of(1, 1e-7);
}

static void one_tensor_named_twice_gets_its_gradient_twice(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = line_of(2), wrt[] = {x, x}, g[2];
    ct_grad(ct_sum(ct_mul(x, x)), wrt, 2, g);
    assert_true(at(g[0], 1) == 4 && at(g[1], 1) == 4);
}

static void a_gradient_has_the_shape_and_dtype_of_its_operand(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor row = line_of(3), half = ct_cast(vec(1, (double[]){2}), CT_BF16);
    ct_tensor table = ct_reshape(line_of(6), CT_DIMS(2, 3)), wrt[] = {row, half}, g[2];
    ct_tensor all = ct_mul(ct_mul(table, row), ct_cast(half, CT_F32));
    ct_grad(ct_sum(all), wrt, 2, g);
    assert_int_equal(ct_rank(g[0]), 1);
    assert_int_equal(ct_dtype_of(g[1]), CT_BF16);
    assert_true(at(g[0], 0) == 10 && at(g[0], 2) == 18); // (1 + 4) * 2, (3 + 6) * 2
    assert_true(ct_item(g[1]) == 46);                    // 1 + 4 + 9 + 4 + 10 + 18
}

static void no_path_and_a_path_without_slope_differ(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = line_of(2), g;
    ct_grad(ct_sum(ct_add(ct_stop_gradient(x), ct_floor(x))), &x, 1, &g);
    assert_true(at(g, 0) == 0 && at(g, 1) == 0); // it depends on x; the slope is 0
    ct_tensor z = line_of(2);
    int line = __LINE__ + 1;
    ct_grad(ct_sum(x), &z, 1, &g);
    assert_false(ct_eval(&g, 1));
    char want[256];
    snprintf(want, sizeof want,
             FILE_NAME
             ":%d: grad: the loss does not depend on operand 1, (2,) f32\n  hint: a value "
             "that was kept is a leaf: differentiate before its scope ends, or with respect to it",
             line);
    assert_error(CT_E_GRAD, want);
}

static void a_variable_without_a_path_is_named(void **state) {
    (void)state;
    for (int pending = 0; pending < 2; pending++) {
        ct_params *set = ct_params_new();
        {
            CT_SCOPE;
            ct_tensor wrt[] = {set_var(set, "used", 3), set_var(set, "unused", 3)}, g[2];
            if (!pending) assert_true(ct_eval(NULL, 0));
            unsigned line = __LINE__ + 1;
            ct_grad(ct_sum(wrt[0]), wrt, 2, g);
            assert_false(ct_eval(g, 2));
            char want[256];
            snprintf(want, sizeof want,
                     FILE_NAME
                     ":%u: grad: the loss does not depend on variable \"unused\", operand 2, (2,) "
                     "f32\n  hint: use it in the loss, or leave it out: of the list of ct_grad, of "
                     "the parameter set of an optimizer",
                     line);
            assert_error(CT_E_GRAD, want);
        }
        ct_params_free(set);
    }
}

static void what_has_no_gradient_is_refused_when_recorded(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = line_of(2), g, whole = ct_cast(x, CT_I32);
    char want[256];
    int line = __LINE__ + 1;
    ct_grad(ct_mul(x, x), &x, 1, &g);
    snprintf(want, sizeof want,
             FILE_NAME ":%d: grad: the loss must be one float, it is (2,) f32\n  hint: ct_mean or "
                       "ct_sum makes it one number",
             line);
    assert_error(CT_E_SHAPE, want);
    line = __LINE__ + 1;
    ct_grad(ct_sum(whole), &x, 1, &g);
    snprintf(want, sizeof want,
             FILE_NAME ":%d: grad: the loss must be one float, it is () i32\n  hint: only what is "
                       "computed in floats has gradients",
             line);
    assert_error(CT_E_DTYPE, want);
    line = __LINE__ + 1;
    ct_grad(ct_sum(x), &whole, 1, &g);
    snprintf(want, sizeof want,
             FILE_NAME ":%d: grad: operand 1 is (2,) i32; only floats have gradients", line);
    assert_error(CT_E_DTYPE, want);
    line = __LINE__ + 1;
    ct_grad(ct_sum(x), &x, 0, &g);
    snprintf(want, sizeof want,
             FILE_NAME ":%d: grad: 0 tensors are named, 1 to 1048576 are possible", line);
    assert_error(CT_E_ARGUMENT, want);
}

// More tensors than a node has outputs, one of which the loss does not depend on at first.
static void gradients_of_many_tensors(void **state) {
    (void)state;
    enum { MANY = 4200 };
    static ct_tensor w[MANY], g[MANY];
    char want[250];
    CT_SCOPE;
    for (int whole = 0; whole < 2; whole++) {
        ct_tensor sum = ct_f(0);
        for (int i = 0; i < MANY; i++) {
            w[i] = vec(1, (double[]){i});
            if (whole || i != MANY - 2) sum = ct_add(sum, ct_mul(w[i], w[i]));
        }
        const int line = __LINE__ + 1;
        ct_grad(ct_sum(sum), w, MANY, g);
        assert_int_equal(ct_eval(g, MANY), whole);
        snprintf(want, sizeof want,
                 FILE_NAME
                 ":%d: grad: the loss does not depend on operand 4199, (1,) f32\n  hint: a "
                 "value that was kept is a leaf: differentiate before its scope ends, or with "
                 "respect to it",
                 line);
        if (!whole) assert_error(CT_E_GRAD, want);
    }
    for (int i = 0; i < MANY; i++) assert_true(at(g[i], 0) == 2 * i);
    const int line = __LINE__ + 1;
    ct_grad(ct_sum(w[0]), w, (1 << 20) + 1, g);
    snprintf(want, sizeof want,
             FILE_NAME ":%d: grad: 1048577 tensors are named, 1 to 1048576 are possible", line);
    assert_error(CT_E_ARGUMENT, want);
}

// k steps of descent recorded in one scope are one plan, and give what k scopes give.
static void several_steps_in_one_scope(void **state) {
    (void)state;
    double end[2];
    for (int together = 0; together < 2; together++) {
        ct_params *set = ct_params_new();
        ct_tensor w = set_var(set, "w", 3), g;
        assert_true(ct_eval(NULL, 0));
        uint64_t run = plans_run();
        ct_scope outer = ct_scope_begin(CT_HERE);
        for (int step = 0; step < 3; step++) {
            ct_scope inner = together ? (ct_scope){0} : ct_scope_begin(CT_HERE);
            ct_grad(ct_sum(ct_mul(w, ct_mul(w, w))), &w, 1, &g);
            ct_assign(w, ct_sub(w, ct_mul(g, ct_f(0.01))));
            ct_scope_end(inner, CT_HERE);
        }
        ct_scope_end(outer, CT_HERE);
        assert_ok();
        assert_int_equal(plans_run(), run + (together ? 1 : 3));
        end[together] = at(w, 1);
        ct_params_free(set);
    }
    assert_true(end[0] == end[1] && end[0] < 3);
}

// out: x^2 and x^3
static void square_and_cube(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_mul(in[0], in[0]);
    out[1] = ct_mul(in[0], ct_mul(in[0], in[0]));
}
// in: x, x^2, x^3 and the cotangents of both
static void square_and_cube_back(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_add(ct_mul(ct_mul(ct_f(2), in[0]), in[3]), ct_mul(ct_mul(ct_f(3), in[1]), in[4]));
}

static void square_of_the_first(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_mul(in[0], in[0]);
}

// An operand that a function takes and does not use is no path.
static void an_operand_that_is_not_used(void **state) {
    (void)state;
    const float one[] = {3}, other[] = {4};
    CT_SCOPE;
    const ct_tensor in[] = {ct_from(one, CT_F32, CT_DIMS(1)), ct_from(other, CT_F32, CT_DIMS(1))};
    ct_tensor out, g[2];
    ct_call(square_of_the_first, NULL, in, 2, &out, 1);
    ct_grad(ct_sum(out), in, 2, g);
    assert_null(ct_data(g[0]));
    assert_non_null(
        strstr(ct_error_text(), "grad: the loss does not depend on operand 2, (1,) f32"));
    ct_error_clear();
}

// With respect to one output of a node, which stops there, and to what comes through another.
static void one_output_among_several(void **state) {
    (void)state;
    const float three[] = {1, 2, 3};
    for (int custom = 0; custom < 2; custom++) {
        CT_SCOPE;
        ct_tensor x = ct_from(three, CT_F32, CT_DIMS(3)), out[2], both[2], g;
        if (custom)
            ct_custom_vjp(square_and_cube, square_and_cube_back, NULL, &x, 1, out, 2);
        else
            ct_call(square_and_cube, NULL, &x, 1, out, 2);
        ct_tensor loss = ct_add(ct_mul(ct_f(2), ct_sum(out[0])), ct_sum(out[1]));
        const ct_tensor wrt[] = {out[0], x};
        ct_grad(loss, wrt, 2, both);
        ct_grad(loss, &x, 1, &g);
        assert_ok();
        for (int i = 0; i < 3; i++) {
            double v = three[i];
            assert_true(at(both[0], i) == 2);
            assert_true(at(both[1], i) == 3 * v * v); // the square stands still
            assert_true(at(g, i) == 4 * v + 3 * v * v);
        }
        // What lies behind another that is asked for is met, and without slope.
        ct_grad(ct_sum(out[0]), wrt, 2, both);
        assert_ok();
        assert_true(at(both[1], 1) == 0);
    }
}

static ct_tensor as_product(ct_tensor x) { return ct_mul(x, x); }
static ct_tensor as_square(ct_tensor x) { return ct_square(x); }
static ct_tensor as_call(ct_tensor x) {
    ct_tensor out;
    ct_call(square_of_the_first, NULL, &x, 1, &out, 1);
    return out;
}
static ct_tensor as_relu(ct_tensor x) { return ct_relu(x); }

static const float three_halves[] = {1.5f};
static const struct {
    ct_tensor (*f)(ct_tensor);
    double z, slope; // at three halves
} inner[] = {{as_product, 2.25, 3}, {as_square, 2.25, 3}, {as_call, 2.25, 3}, {as_relu, 1.5, 1}};
enum { INNER = sizeof inner / sizeof *inner };

// z = f(x), l = z^2, g = dl/dx = 2 z f'(x): with respect to z, which stands between x and l, and so
// in g as well, g^2 + l has the slope 8 z f'(x)^2 + 2 z.
static void a_gradient_within_another(void **state) {
    (void)state;
    for (size_t i = 0; i < INNER; i++) {
        CT_SCOPE;
        ct_tensor x = ct_from(three_halves, CT_F32, CT_DIMS(1)), g, h;
        ct_tensor z = inner[i].f(x), l = ct_square(z);
        ct_grad(l, &x, 1, &g);
        ct_grad(ct_add(ct_square(g), l), &z, 1, &h);
        double v = inner[i].z, slope = inner[i].slope;
        assert_true(at(h, 0) == 8 * v * slope * slope + 2 * v);
    }
    CT_SCOPE; // one output of two
    ct_tensor x = ct_from(three_halves, CT_F32, CT_DIMS(1)), out[2], g, h;
    ct_call(square_and_cube, NULL, &x, 1, out, 2);
    ct_grad(ct_mul(out[0], out[0]), &x, 1, &g); // 4 x^3, by way of 2 out[0] * 2 x
    ct_grad(ct_add(ct_mul(g, g), out[0]), &out[0], 1, &h);
    assert_true(at(h, 0) == 2 * 13.5 * 2 * 3 + 1);
}

// The same z named twice: each time its gradient is the whole one, whichever copies of z it is of.
static void a_value_within_a_gradient_named_twice(void **state) {
    (void)state;
    for (size_t i = 0; i < INNER; i++) {
        CT_SCOPE;
        ct_tensor x = ct_from(three_halves, CT_F32, CT_DIMS(1)), g, h[4];
        ct_tensor z = inner[i].f(x), l = ct_square(z), wrt[] = {z, z, x, z};
        double v = inner[i].z, slope = inner[i].slope;
        ct_grad(l, &x, 1, &g);
        ct_grad(ct_add(ct_square(g), l), wrt, 4, h);
        for (int k = 0; k < 4; k++)
            if (k != 2) assert_true(at(h[k], 0) == 8 * v * slope * slope + 2 * v);
        ct_grad(g, wrt, 2, h); // of copies alone
        assert_true(at(h[0], 0) == 2 * slope && at(h[1], 0) == 2 * slope);
        assert_ok();
    }
}

// g = z f'(x), where z counts as a constant: it depends on z, with no slope.
static void a_value_within_a_gradient_without_slope(void **state) {
    (void)state;
    for (size_t i = 0; i < INNER; i++) {
        CT_SCOPE;
        ct_tensor x = ct_from(three_halves, CT_F32, CT_DIMS(1)), g, h[2];
        ct_tensor z = inner[i].f(x), wrt[] = {z, z};
        ct_grad(ct_mul(ct_stop_gradient(z), z), &x, 1, &g);
        assert_true(at(g, 0) == inner[i].z * inner[i].slope);
        ct_grad(g, wrt, 2, h);
        assert_true(at(h[0], 0) == 0 && at(h[1], 0) == 0);
        assert_ok();
    }
}

static void itself(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = in[0];
}
static void from_outside(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)in;
    out[0] = *(const ct_tensor *)user;
}
static void always_two(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)in, (void)user;
    out[0] = ct_const((const float[]){2}, CT_F32, CT_DIMS(1));
}
static void itself_and_square(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = in[0];
    out[1] = ct_mul(in[0], in[0]);
}
static void square_twice(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = out[1] = ct_mul(in[0], in[0]);
}
static ct_tensor cube(ct_tensor x) { return ct_mul(x, ct_mul(x, x)); }
static double slope(ct_tensor loss, ct_tensor wrt) {
    ct_tensor g;
    ct_grad(loss, &wrt, 1, &g);
    return at(g, 0);
}

// A function may give what it takes, or one value twice: its results are values of their own.
static void results_that_are_one_value(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = ct_from(three_halves, CT_F32, CT_DIMS(1)), z, out[2], g[2];
    ct_call(itself, NULL, &x, 1, &z, 1);
    ct_tensor wrt[] = {z, x};
    assert_true(slope(ct_add(ct_square(z), cube(x)), z) == 3);
    ct_grad(ct_add(ct_square(z), cube(x)), wrt, 2, g);
    assert_true(at(g[0], 0) == 3 && at(g[1], 0) == 6.75);
    ct_grad(ct_square(z), &x, 1, g);
    assert_true(slope(ct_add(ct_square(g[0]), ct_square(z)), z) == 15); // 8 z + 2 z
    ct_call(from_outside, &x, NULL, 0, &z, 1);
    assert_true(slope(ct_add(ct_square(z), cube(x)), z) == 3);
    ct_call(always_two, NULL, NULL, 0, &z, 1);
    ct_grad(ct_square(ct_mul(x, z)), &x, 1, g); // 2 x z^2
    assert_true(slope(ct_add(ct_square(g[0]), ct_square(ct_mul(x, z))), z) == 2 * 12 * 12 + 9);

    ct_call(itself_and_square, NULL, &x, 1, out, 2);
    ct_tensor loss = ct_add(ct_add(ct_square(out[0]), out[1]), cube(x));
    wrt[0] = out[0];
    assert_true(slope(loss, out[0]) == 3);
    ct_grad(loss, wrt, 2, g);
    assert_true(at(g[0], 0) == 3 && at(g[1], 0) == 3 + 6.75);

    ct_call(square_twice, NULL, &x, 1, out, 2);
    for (int i = 0; i < 2; i++) {
        assert_true(slope(ct_mul(out[0], out[1]), out[i]) == 2.25);
        ct_grad(ct_square(out[i]), &x, 1, g);
        loss = ct_add(ct_square(g[0]), ct_square(out[i]));
        assert_true(slope(loss, out[i]) == 8 * 2.25 * 9 + 4.5);
    }
    ct_grad(ct_mul(out[0], out[1]), out, 2, g);
    assert_true(at(g[0], 0) == 2.25 && at(g[1], 0) == 2.25);
    assert_ok();
}

// in: x, y. out: the slopes of a^2 + 5 b^2 in a and b, which are those of (x + y)^2 in x and y.
static void slopes_of_slopes(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    ct_tensor g[2];
    ct_grad(ct_sum(ct_square(ct_add(in[0], in[1]))), in, 2, g);
    ct_grad(ct_sum(ct_add(ct_square(g[0]), ct_mul(ct_f(5), ct_square(g[1])))), g, 2, out);
}

// The slopes of a sum in its operands are one value, and that of a product the other operand.
static void gradients_that_are_one_value(void **state) {
    (void)state;
    CT_SCOPE;
    const float two[] = {2};
    ct_tensor xy[] = {ct_from(three_halves, CT_F32, CT_DIMS(1)), ct_from(two, CT_F32, CT_DIMS(1))};
    ct_tensor g[2], h[2];
    ct_grad(ct_square(ct_add(xy[0], xy[1])), xy, 2, g);
    ct_tensor loss = ct_add(ct_square(g[0]), ct_mul(ct_f(5), ct_square(g[1])));
    assert_true(slope(loss, g[0]) == 14 && slope(loss, g[1]) == 70);
    ct_grad(loss, g, 2, h);
    assert_true(at(h[0], 0) == 14 && at(h[1], 0) == 70);
    for (int called = 0; called < 2; called++) {
        if (called)
            ct_call(slopes_of_slopes, NULL, xy, 2, h, 2);
        else
            slopes_of_slopes(xy, h, NULL);
        assert_true(at(h[0], 0) == 14 && at(h[1], 0) == 70);
    }
    ct_grad(ct_mul(xy[0], xy[1]), xy, 1, g);
    loss = ct_add(ct_square(g[0]), ct_mul(ct_f(5), ct_square(xy[1])));
    g[1] = xy[1];
    ct_grad(loss, g, 2, h);
    assert_true(at(h[0], 0) == 4 && at(h[1], 0) == 20);
    assert_true(slope(loss, g[0]) == 4 && slope(loss, xy[1]) == 24);
    assert_ok();
}

// What a plan of so many steps in one scope records.
static uint64_t nodes_of_steps(int steps) {
    CT_SCOPE;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 2);
    assert_true(ct_eval(NULL, 0));
    ct_optim *sgd = ct_sgd(set, .lr = 0.1, .momentum = 0.5);
    assert_non_null(sgd);
    for (int step = 0; step < steps; step++) ct_optim_step(sgd, ct_mean(ct_softmax(ct_mul(w, w))));
    uint64_t before = ct_get_stats().nodes;
    assert_true(ct_eval(NULL, 0));
    uint64_t made = ct_get_stats().nodes - before;
    ct_optim_free(sgd);
    ct_params_free(set);
    return made;
}

// A step's gradient does not take up again the steps before it.
static void steps_together_cost_what_they_cost_alone(void **state) {
    (void)state;
    uint64_t few = nodes_of_steps(10), many = nodes_of_steps(40);
    print_message("10 steps: %d nodes, 40 steps: %d\n", (int)few, (int)many);
    assert_true(few > 100 && many < 5 * few);
}

// What is added to something larger that has no gradient counts once for each element of the sum.
static void broadcast_beside_what_has_no_gradient(void **state) {
    (void)state;
    CT_SCOPE;
    const double three[] = {1, 2, 3}, six[] = {1, 2, 3, 4, 5, 6}, two[] = {0, 1};
    ct_tensor x = ct_from(three, CT_F64, CT_DIMS(3)), c = ct_from(six, CT_F64, CT_DIMS(2, 3));
    ct_tensor y = ct_cast(x, CT_F32), g[6];
    ct_tensor yes = ct_equal(ct_from(two, CT_F64, CT_DIMS(2, 1)), ct_f(1));
    const ct_tensor loss[] = {
        ct_sum(ct_add(x, c)),
        ct_sum(ct_sub(c, x)),
        ct_sum(ct_sum(ct_sub(x, c), .axes = CT_AXES(0))), // of an axis that x has not
        ct_sum(ct_select(ct_equal(x, x), x, c)),
        ct_sum(ct_mean(ct_add(c, ct_sum(x)), .axes = CT_AXES(1), .keepdims = true)),
        ct_sum(ct_mul(ct_select(yes, x, c), ct_f(5))),
    };
    const double want[] = {2, -2, 2, 2, 2, 5};
    for (int i = 0; i < 6; i++) {
        ct_grad(loss[i], &x, 1, &g[i]);
        assert_ok();
        for (int k = 0; k < 3; k++)
            assert_float_equal(at(ct_cast(g[i], CT_F32), k), want[i], 1e-12);
    }
    ct_grad(ct_sum(ct_add(y, c)), &y, 1, g); // and in the operand's own dtype
    assert_int_equal(ct_dtype_of(g[0]), CT_F32);
    for (int k = 0; k < 3; k++) assert_float_equal(at(g[0], k), 2, 0);
}

// A loss that was read before its gradient is taken, while the variables' first values were
// pending.
static void a_loss_may_be_read_before_its_gradient(void **state) {
    (void)state;
    ct_params *params = ct_params_new();
    ct_tensor w = ct_param(params, "w", CT_F32, CT_SCALAR), g;
    ct_tensor b = ct_param(params, "b", CT_F32, CT_SCALAR), h;
    ct_assign(w, ct_scalar(3, CT_F32));
    ct_assign(b, ct_add(ct_scalar(1, CT_F32), ct_f(1)));
    CT_SCOPE;
    ct_tensor loss = ct_add(ct_mul(w, w), ct_mul(ct_f(5), b));
    assert_true(ct_item(loss) == 19);
    ct_grad(loss, &w, 1, &g);
    ct_grad(loss, &b, 1, &h);
    assert_true(ct_item(g) == 6);
    assert_true(ct_item(h) == 5);
    ct_grad(ct_mul(w, loss), &w, 1, &g); // reads w anew, too: 3 w^2 + 5 b
    assert_true(ct_item(g) == 37);
    ct_params_free(params);
}

static void whole_numbers_have_a_power_whose_exponent_is_learned(void **state) {
    (void)state;
    CT_SCOPE;
    const int32_t two = 2;
    ct_tensor y = line_of(3), g;
    ct_grad(ct_sum(ct_pow(ct_from(&two, CT_I32, CT_DIMS(1)), y)), &y, 1, &g); // 2^y log(2)
    for (int i = 0; i < 3; i++) assert_float_equal(at(g, i), (float)(log(2) * (2 << i)), 1e-6f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(first_gradients_of_random_graphs),
        TEST(second_gradients_of_random_graphs),
        TEST(one_tensor_named_twice_gets_its_gradient_twice),
        TEST(an_operand_that_is_not_used),
        TEST(one_output_among_several),
        TEST(a_gradient_within_another),
        TEST(a_value_within_a_gradient_named_twice),
        TEST(a_value_within_a_gradient_without_slope),
        TEST(results_that_are_one_value),
        TEST(gradients_that_are_one_value),
        TEST(steps_together_cost_what_they_cost_alone),
        TEST(broadcast_beside_what_has_no_gradient),
        TEST(a_gradient_has_the_shape_and_dtype_of_its_operand),
        TEST(whole_numbers_have_a_power_whose_exponent_is_learned),
        TEST(no_path_and_a_path_without_slope_differ),
        TEST(a_variable_without_a_path_is_named),
        TEST(what_has_no_gradient_is_refused_when_recorded),
        TEST(gradients_of_many_tensors),
        TEST(several_steps_in_one_scope),
        TEST(a_loss_may_be_read_before_its_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
