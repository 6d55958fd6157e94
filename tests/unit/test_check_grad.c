// ct_check_grad: right gradients pass, to second order; a wrong one is named with both numbers;
// kinks are no faults.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/record.h"

#define at_g7(...) ct_check_grad_with((ct_check_grad_args){__VA_ARGS__, .here = {"g.c", 7}})

static ct_tensor normal(int64_t seed, ct_ints dims) {
    return ct_random_normal(ct_random_key(seed), dims);
}

static void attend(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_attention(in[0], in[1], in[2], .causal = true);
}
static void gathers(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user; // an operand of indices, two outputs, one of them of no floats
    out[0] = ct_tanh(ct_gather(in[0], in[1], .axis = 0));
    out[1] = ct_greater(in[0], ct_f(0));
}
static void linear(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_matmul(in[0], in[1]);
}
static void kinked(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_mul(ct_relu(in[0]), in[0]);
    out[0] = ct_add(out[0], ct_abs(in[0]));
}

static void right_ones_pass(void **state) {
    (void)state;
    for (int order = 1; order <= 2; order++) {
        CT_SCOPE;
        ct_tensor qkv[3];
        for (int i = 0; i < 3; i++) qkv[i] = normal(i, CT_DIMS(1, 2, 5, 4));
        assert_true(ct_check_grad(attend, NULL, qkv, 3, .order = order));
        ct_tensor rows[2] = {normal(9, CT_DIMS(4, 3)),
                             ct_from(((int32_t[]){3, 0, 3}), CT_I32, CT_DIMS(3))};
        assert_true(ct_check_grad(gathers, NULL, rows, 2, .n_out = 2, .order = order));
        ct_tensor ab[2] = {normal(5, CT_DIMS(CT_DYN(3), 4)), normal(6, CT_DIMS(4, 2))};
        assert_true(ct_check_grad(linear, NULL, ab, 2, .order = order, .seed = 3));
    }
    assert_ok();
}

static void kinks_are_left_out(void **state) {
    (void)state;
    CT_SCOPE;
    // On the kink, within a step of it on either side, and away from it.
    ct_tensor x = ct_from(((double[]){0, 3e-5, -7e-5, 1e-5, 1, -2}), CT_F64, CT_DIMS(6));
    assert_true(ct_check_grad(kinked, NULL, &x, 1));
    assert_ok();
    ct_tensor zero = ct_zeros(CT_F32, CT_DIMS(3));
    assert_false(at_g7(kinked, NULL, &zero, 1));
    assert_error(CT_E_CHECK, "g.c:7: check_grad: f is not smooth at any of the 3 elements of "
                             "operand 1 that were tried: its gradient cannot be checked there");
}

// x y, with a rule that is wrong by `user` for y.
static void product(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_mul(in[0], in[1]);
}
static void product_vjp(const ct_tensor *in, ct_tensor *out, void *user) {
    out[0] = ct_mul(in[3], in[1]);
    out[1] = ct_mul(in[3], ct_mul(in[0], ct_f(*(double *)user)));
}
static void with_rule(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_custom_vjp(product, product_vjp, user, in, 2, out, 1);
}
static void wrong_ones_are_named(void **state) {
    (void)state;
    CT_SCOPE;
    double factor = 1;
    ct_tensor in[2] = {ct_from(((double[]){2, 3, 4, 5}), CT_F64, CT_DIMS(2, 2)),
                       ct_from(((double[]){5, 6, 7, 8}), CT_F64, CT_DIMS(2, 2))};
    assert_true(ct_check_grad(with_rule, &factor, in, 2));
    factor = 1.00001;
    assert_false(at_g7(with_rule, &factor, in, 2));
    assert_error(CT_E_CHECK,
                 "g.c:7: check_grad: the first derivative with respect to operand 2 (2, 2) f64 at "
                 "(0, 0) is -1.2629458, finite differences give -1.2629332");
    assert_true(ct_check_grad(with_rule, &factor, in, 2, .tolerance = 1e-4));
}

static void log_of(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_log(in[0]);
}
// x x, of which the first derivative is right and the second 0.
static void half_right(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    ct_tensor still = ct_stop_gradient(in[0]);
    out[0] = ct_sub(ct_mul(ct_mul(in[0], still), ct_f(2)), ct_mul(still, still));
}
static void the_second_order_is_looked_at(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = ct_from(((double[]){0.5, 2}), CT_F64, CT_DIMS(2));
    assert_true(ct_check_grad(log_of, NULL, &x, 1, .order = 2));
    assert_true(ct_check_grad(half_right, NULL, &x, 1));
    assert_false(at_g7(half_right, NULL, &x, 1, .order = 2));
    assert_error(CT_E_CHECK, "g.c:7: check_grad: the second derivative with respect to operand 1 "
                             "(2,) f64 at (0,) is -0.79225576, finite differences give -2.7728952");
}

// log, with a rule that gives a tenth of the slope below 0.002.
static void tenth_vjp(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    ct_tensor g = ct_div(in[2], in[0]);
    out[0] = ct_select(ct_less(in[0], ct_f(0.002)), ct_mul(g, ct_f(0.1)), g);
}
static void tenth(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_custom_vjp(log_of, tenth_vjp, user, in, 1, out, 1);
}
static void steep_places_are_looked_at(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = ct_from(((double[]){0.0015, 0.001, 0.0012, 1, 2, 3}), CT_F64, CT_DIMS(6));
    assert_true(ct_check_grad(log_of, NULL, &x, 1, .order = 2));
    assert_false(at_g7(tenth, NULL, &x, 1));
    assert_error(CT_E_CHECK, "g.c:7: check_grad: the first derivative with respect to operand 1 "
                             "(6,) f64 at (0,) is -49.27988, finite differences give -492.7988");
    // Steps of 1e-4 and a 16th of it leave where the logarithm is.
    ct_tensor close = ct_from(((double[]){1e-6}), CT_F64, CT_DIMS(1));
    assert_true(ct_check_grad(log_of, NULL, &close, 1));
    assert_false(at_g7(tenth, NULL, &close, 1));
    assert_error(CT_E_CHECK, "g.c:7: check_grad: the first derivative with respect to operand 1 "
                             "(1,) f64 at (0,) is -35270.8, finite differences give -352708");
    assert_ok();
}

// x x, with a rule that gives 20 x, but where x is above 2 the value in `user`.
static void square(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_square(in[0]);
}
static void endless_vjp(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_tensor g = ct_mul(in[2], ct_mul(in[0], ct_f(20)));
    out[0] = ct_select(ct_greater(in[0], ct_f(2)), ct_f(*(double *)user), g);
}
static void endless(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_custom_vjp(square, endless_vjp, user, in, 1, out, 1);
}
static void length(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_sqrt(ct_square(in[0])); // at 0 a kink, and NaN
}
static void gradients_that_are_not_finite_are_wrong(void **state) {
    (void)state;
    CT_SCOPE;
    double value = INFINITY;
    ct_tensor x = ct_from(((double[]){1, 3, 1.5, 2}), CT_F64, CT_DIMS(4));
    assert_false(at_g7(endless, &value, &x, 1)); // no other is excused by the one that is infinite
    assert_error(CT_E_CHECK, "g.c:7: check_grad: the first derivative with respect to operand 1 "
                             "(4,) f64 at (0,) is -16.809599, finite differences give -1.6809599");
    ct_tensor large = ct_from(((double[]){3}), CT_F64, CT_DIMS(1));
    assert_false(at_g7(endless, &value, &large, 1));
    assert_error(CT_E_CHECK, "g.c:7: check_grad: the first derivative with respect to operand 1 "
                             "(1,) f64 at (0,) is inf, finite differences give -2.116248");
    value = -NAN;
    assert_false(at_g7(endless, &value, &large, 1));
    assert_error(CT_E_CHECK, "g.c:7: check_grad: the first derivative with respect to operand 1 "
                             "(1,) f64 at (0,) is nan, finite differences give -2.116248");
    ct_tensor zero = ct_zeros(CT_F64, CT_DIMS(1));
    assert_false(at_g7(length, NULL, &zero, 1));
    assert_error(CT_E_CHECK, "g.c:7: check_grad: the first derivative with respect to operand 1 "
                             "(1,) f64 at (0,) is nan, finite differences give 0");
}

static void one_among_many_is_found(void **state) {
    (void)state;
    CT_SCOPE;
    double many[1000];
    for (int i = 0; i < 1000; i++) many[i] = i == 777 ? 0 : i + 1;
    ct_tensor x = ct_from(many, CT_F64, CT_DIMS(10, 100));
    assert_false(at_g7(length, NULL, &x, 1));
    assert_error(CT_E_CHECK, "g.c:7: check_grad: the first derivative with respect to operand 1 "
                             "(10, 100) f64 at (7, 77) is nan, finite differences give 0");
}

static void root(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user; // of the absolute value, with its sign: as steep as one likes at 0
    out[0] = ct_mul(ct_sign(in[0]), ct_sqrt(ct_abs(in[0])));
}
static void root_vjp(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_div(in[2], ct_mul(ct_f(2), ct_sqrt(ct_abs(in[0]))));
}
static void root_with_rule(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_custom_vjp(root, root_vjp, user, in, 1, out, 1);
}
static void infinite_slopes_are_left_out(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = ct_from(((double[]){0, 1, 2, -3}), CT_F64, CT_DIMS(4));
    assert_true(ct_check_grad(root_with_rule, NULL, &x, 1));
    assert_ok();
    assert_false(at_g7(root_with_rule, NULL, &x, 1, .order = 2));
    assert_error(CT_E_CHECK, "g.c:7: check_grad: the gradient of f is not finite at its operands");
}

static void rounds(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_exp(ct_cast(in[0], CT_F32));
}
static void nothing(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_greater(in[0], ct_f(0));
}
static void checks_inside(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    assert_false(at_g7(log_of, NULL, in, 1));
    out[0] = in[0];
}
static void refusals(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = line_of(3), y, i = ct_cast(x, CT_I32);
    assert_false(at_g7(rounds, NULL, &x, 1));
    assert_error(CT_E_DTYPE, "g.c:7: check_grad: output 1 is f32 where the operands are f64: "
                             "differences need all digits");
    assert_false(at_g7(nothing, NULL, &x, 1));
    assert_error(CT_E_DTYPE, "g.c:7: check_grad: no output is of floats");
    assert_false(at_g7(nothing, NULL, &i, 1));
    assert_error(CT_E_DTYPE, "g.c:7: check_grad: none of the 1 operands is of floats");
    assert_false(at_g7(log_of, NULL, &x, 1, .order = 3));
    assert_error(CT_E_ARGUMENT, "g.c:7: check_grad: order is 1 or 2, samples and tolerance are not "
                                "negative: 3, 0, 0");
    ct_tensor zero = ct_zeros(CT_F32, CT_DIMS(1));
    assert_false(at_g7(log_of, NULL, &zero, 1));
    assert_error(CT_E_CHECK, "g.c:7: check_grad: f is not finite at its operands");
    ct_call(checks_inside, NULL, &x, 1, &y, 1);
    assert_error(CT_E_TRACE, "g.c:7: check_grad: a value is read inside a traced function\n  hint: "
                             "check the gradient outside of the function");
    assert_false(at_g7(log_of, NULL, &x, 1, .n_out = 2));
    assert_error(CT_E_ARGUMENT, "g.c:7: check_grad: f did not set output 2");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, record_begin, record_end)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(right_ones_pass),
        TEST(kinks_are_left_out),
        TEST(wrong_ones_are_named),
        TEST(the_second_order_is_looked_at),
        TEST(steep_places_are_looked_at),
        TEST(gradients_that_are_not_finite_are_wrong),
        TEST(one_among_many_is_found),
        TEST(infinite_slopes_are_left_out),
        TEST(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
