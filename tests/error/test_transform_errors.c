// What is wrong with functions of functions is said whole: line, transform, what, values, hint.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "support/record.h"

#define TEST(name) cmocka_unit_test_setup_teardown(name, record_begin, record_end)
static const ct_loc here = {"user.c", 7};
#define SAYS(code, text) assert_error(code, "user.c:7: " text)

static ct_tensor f32(ct_ints dims) { return ct_ones(CT_F32, dims); }
static ct_tensor i32(ct_ints dims) { return ct_ones(CT_I32, dims); }

static void product(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_mul(in[0], in[1]);
}
static void sum_of(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_sum(in[0]);
}
static void itself(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = in[0];
}
static void rounds(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_cast(in[0], CT_I32);
}

static void slopes_that_do_not_fit(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor in[] = {f32(CT_DIMS(2, 3)), i32(CT_DIMS(3))}, out[1], slopes[2];
    ct_tensor tangents[] = {f32(CT_DIMS(3)), CT_NONE};
    ct_jvp_at(product, NULL, in, 2, out, 1, tangents, slopes, here);
    SAYS(CT_E_SHAPE, "jvp: tangent 1 is (3,) f32, operand 1 is (2, 3) f32\n"
                     "  hint: a tangent has the shape and the dtype of its operand");
    assert_false(ct_ok(out[0]) || ct_ok(slopes[0]));
    tangents[0] = CT_NONE;
    tangents[1] = f32(CT_DIMS(3));
    ct_jvp_at(product, NULL, in, 2, out, 1, tangents, slopes, here);
    SAYS(CT_E_GRAD, "jvp: tangent 2 is given, but operand 2 is (3,) i32\n"
                    "  hint: only floats have derivatives: give CT_NONE");
    ct_tensor cotangent = ct_ones(CT_F64, CT_DIMS(2, 3));
    ct_vjp_at(product, NULL, in, 2, out, 1, &cotangent, slopes, here);
    SAYS(CT_E_SHAPE, "vjp: cotangent 1 is (2, 3) f64, result 1 is (2, 3) f32\n"
                     "  hint: a cotangent has the shape and the dtype of its result");
    cotangent = f32(CT_DIMS(2, 3));
    ct_vjp_at(rounds, NULL, in, 1, out, 1, &cotangent, slopes, here);
    SAYS(CT_E_GRAD, "vjp: cotangent 1 is given, but result 1 is (2, 3) i32\n"
                    "  hint: only floats have derivatives: give CT_NONE");
    ct_hvp_at(sum_of, NULL, in, 1, &tangents[1], slopes, here);
    SAYS(CT_E_SHAPE, "hvp: vector 1 is (3,) f32, operand 1 is (2, 3) f32\n"
                     "  hint: a vector has the shape and the dtype of its operand");
    ct_hvp_at(sum_of, NULL, in, 1, NULL, slopes, here);
    SAYS(CT_E_ARGUMENT, "hvp: the list of vectors must not be NULL");
}

static void what_is_no_loss(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor in[] = {f32(CT_DIMS(2)), f32(CT_DIMS(2))}, out[1], grads[4];
    ct_value_and_grad_at(product, NULL, in, 2, out, 1, grads, here);
    SAYS(CT_E_SHAPE, "value_and_grad: the first result must be one float, it is (2,) f32\n"
                     "  hint: ct_mean or ct_sum makes it one number");
    ct_value_and_grad_at(rounds, NULL, in, 1, out, 1, grads, here);
    SAYS(CT_E_DTYPE, "value_and_grad: the first result must be one float, it is (2,) i32\n"
                     "  hint: only what is computed in floats has gradients");
    ct_value_and_grad_at(product, NULL, in, 2, out, 0, grads, here);
    SAYS(CT_E_ARGUMENT, "value_and_grad: the function has no results");
    ct_hvp_at(itself, NULL, in, 1, &in[1], grads, here);
    SAYS(CT_E_SHAPE, "hvp: the first result must be one float, it is (2,) f32\n"
                     "  hint: ct_mean or ct_sum makes it one number");
    ct_jacrev_at(rounds, NULL, in, 1, out, 1, grads, here);
    SAYS(CT_E_DTYPE, "jacrev: result 1 is (2,) i32, only floats have derivatives");
    ct_jacfwd_at(rounds, NULL, in, 1, out, 1, grads, here);
    SAYS(CT_E_DTYPE, "jacfwd: result 1 is (2,) i32, only floats have derivatives");
    ct_hessian_at(rounds, NULL, in, 1, out, 1, grads, here);
    SAYS(CT_E_DTYPE, "hessian: result 1 is (2,) i32, only floats have derivatives");
}

static void batch(const ct_tensor *in, size_t n, ct_ints in_axes, ct_ints out_axes, int64_t size) {
    ct_tensor out[1];
    ct_vmap_with((ct_vmap_args){.f = n > 1 ? product : itself,
                                .in = in,
                                .n_in = n,
                                .out = out,
                                .n_out = 1,
                                .in_axes = in_axes,
                                .out_axes = out_axes,
                                .size = size,
                                .here = here});
    assert_true(!ct_ok(out[0]) || !ct_eval(out, 1));
}

static void batches_that_do_not_fit(void **state) {
    (void)state;
    CT_SCOPE;
    const ct_ints none = {0, NULL};
    ct_tensor in[] = {f32(CT_DIMS(3, 4)), f32(CT_DIMS(5, 4)), ct_f(1)};
    batch(in, 2, none, none, 0);
    SAYS(CT_E_SHAPE, "vmap: sizes disagree: axis 0 of operand 1 is 3, axis 0 of operand 2 is 5: it "
                     "is (5, 4) f32");
    batch(in, 2, CT_AXES(-2, CT_NO_AXIS), none, 4);
    SAYS(CT_E_SHAPE, "vmap: .size is 4, but axis 0 of operand 1 is 3: it is (3, 4) f32");
    batch(in, 2, CT_AXES(CT_NO_AXIS, CT_NO_AXIS), none, 0);
    SAYS(CT_E_ARGUMENT, "vmap: no operand has a batch\n"
                        "  hint: name an axis in .in_axes, or give the size of the batch in .size");
    batch(in, 2, CT_AXES(CT_NO_AXIS, CT_NO_AXIS), none, -2);
    SAYS(CT_E_ARGUMENT, "vmap: .size is -2");
    batch(in, 2, CT_AXES(2, 0), none, 0);
    SAYS(CT_E_ARGUMENT, "vmap: axis 2 is out of range for operand 1, (3, 4) f32\n"
                        "  hint: axes are -2 to 1; CT_NO_AXIS: it is the same for all elements");
    batch(&in[2], 1, none, none, 0);
    SAYS(CT_E_ARGUMENT, "vmap: axis 0 is out of range for operand 1, () f32\n"
                        "  hint: CT_NO_AXIS: it is the same for all elements");
    batch(in, 1, none, CT_AXES(2), 0);
    SAYS(CT_E_ARGUMENT, "vmap: axis 2 is out of range for result 1, whose elements are (4,) f32\n"
                        "  hint: axes of the whole are -2 to 1");
    batch(in, 2, CT_AXES(0), none, 0);
    SAYS(CT_E_ARGUMENT, "vmap: in_axes has 1 entries for 2 operands\n"
                        "  hint: one each, CT_NO_AXIS for what has no batch; none: axis 0 of all");
    batch(in, 1, none, CT_AXES(0, 0), 0);
    SAYS(CT_E_ARGUMENT, "vmap: out_axes has 2 entries for 1 results\n"
                        "  hint: one each, CT_NO_AXIS for what has no batch; none: axis 0 of all");
    batch(in, 1, (ct_ints){1, NULL}, none, 0);
    SAYS(CT_E_ARGUMENT, "vmap: in_axes must not be NULL");
    batch(in, 1, none, CT_AXES(CT_NO_AXIS), 0);
    SAYS(CT_E_ARGUMENT, "vmap: result 1 has no axis, but is not the same for all elements\n"
                        "  hint: give it one in .out_axes");
}

static ct_tensor variable;
static void assigns(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    ct_assign_at(variable, in[0], here);
    out[0] = in[0];
}
static void keeps(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_keep_at(in[0], here);
}
static void reads(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_item_at(in[0], here) > 0 ? in[0] : ct_neg(in[0]);
}

static void what_a_function_must_not_do(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    variable = ct_param(set, "v", CT_F32, CT_DIMS(3));
    {
        CT_SCOPE;
        ct_tensor x = f32(CT_DIMS(2, 3)), out;
        ct_vmap(assigns, NULL, &x, 1, &out, 1);
        SAYS(CT_E_TRACE, "assign: variable \"v\" is assigned inside a traced function\n"
                         "  hint: return the value as a result of the function, and assign it "
                         "outside");
        ct_vmap(keeps, NULL, &x, 1, &out, 1);
        SAYS(CT_E_TRACE, "keep: a traced function returns its results; it cannot keep a tensor");
        ct_vmap(reads, NULL, &x, 1, &out, 1);
        SAYS(CT_E_TRACE, "item: a value is read inside a traced function\n"
                         "  hint: return it as a result of the function, and read it outside");
    }
    ct_params_free(set);
}

static void sets_nothing(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)in, (void)out, (void)user;
}
static void tangent_of_sum(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_sum(in[2]);
}
static void squares_the_tangent(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_mul(in[2], in[2]);
}
static void stops_the_tangent(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_stop_gradient(in[2]);
}
static ct_tensor outside;
static void uses_another(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_mul(in[0], outside);
}

static void rules_of_users(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = f32(CT_DIMS(2)), out, slope;
    outside = f32(CT_DIMS(2));
    ct_custom_jvp_at(itself, sets_nothing, NULL, &x, 1, &out, 1, here);
    SAYS(CT_E_ARGUMENT, "custom_jvp: the rule did not set the tangent of result 1");
    ct_custom_jvp_at(itself, tangent_of_sum, NULL, &x, 1, &out, 1, here);
    SAYS(CT_E_SHAPE, "custom_jvp: the tangent of result 1 is () f32, the result is (2,) f32");
    ct_custom_jvp_at(uses_another, squares_the_tangent, NULL, &x, 1, &out, 1, here);
    SAYS(CT_E_TRACE, "custom_jvp: the functions use a tensor from outside\n"
                     "  hint: pass it as an operand");
    ct_custom_jvp_at(itself, NULL, NULL, &x, 1, &out, 1, here);
    SAYS(CT_E_ARGUMENT, "custom_jvp: the rule must not be NULL");
    const ct_fn bent[] = {squares_the_tangent, stops_the_tangent};
    for (int i = 0; i < 2; i++) {
        ct_custom_jvp_at(itself, bent[i], NULL, &x, 1, &out, 1, here);
        assert_true(ct_eval(&out, 1)); // the value needs no rule
        ct_grad(ct_sum(out), &x, 1, &slope);
        assert_false(ct_eval(&slope, 1));
        SAYS(CT_E_GRAD, "custom_jvp: the rule's results are not linear in the tangents\n"
                        "  hint: a tangent may be multiplied by what the operands give, and added");
    }
}

static void missing_arguments(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = f32(CT_DIMS(2)), out, slope, *room = NULL;
    ct_jvp_at(NULL, NULL, &x, 1, &out, 1, &x, &slope, here);
    SAYS(CT_E_ARGUMENT, "jvp: the function must not be NULL");
    ct_jvp_at(itself, NULL, &x, 1, &out, 1, room, &slope, here);
    SAYS(CT_E_ARGUMENT, "jvp: the list of tangents must not be NULL");
    ct_jvp_at(itself, NULL, &x, 1, &out, 1, &x, room, here);
    SAYS(CT_E_ARGUMENT, "jvp: the array for the tangents must not be NULL");
    ct_vjp_at(itself, NULL, &x, 1, &out, 1, room, &slope, here);
    SAYS(CT_E_ARGUMENT, "vjp: the list of cotangents must not be NULL");
    ct_vjp_at(itself, NULL, &x, 1, &out, 1, &x, room, here);
    SAYS(CT_E_ARGUMENT, "vjp: the array for the gradients must not be NULL");
    ct_jacfwd_at(itself, NULL, &x, 1, &out, 1, room, here);
    SAYS(CT_E_ARGUMENT, "jacfwd: the array for the derivatives must not be NULL");
    ct_hvp_at(NULL, NULL, &x, 1, &x, &slope, here);
    SAYS(CT_E_ARGUMENT, "hvp: the function must not be NULL");
    ct_vmap_with((ct_vmap_args){.in = &x, .n_in = 1, .out = &out, .n_out = 1, .here = here});
    SAYS(CT_E_ARGUMENT, "vmap: the function must not be NULL");
}

static void regions_that_are_computed_again(void **state) {
    (void)state;
    CT_SCOPE;
    static const char *const names[] = {"a"}, *const none[] = {NULL};
    ct_tensor x = f32(CT_DIMS(2)), out;
    ct_remat_args args = {.in = &x, .n_in = 1, .out = &out, .n_out = 1, .here = here};
    ct_remat_with(args);
    SAYS(CT_E_ARGUMENT, "remat: the function must not be NULL");
    assert_false(ct_ok(out));
    args.f = itself;
    args.policy = (ct_remat_policy)9;
    ct_remat_with(args);
    SAYS(CT_E_ARGUMENT,
         "remat: there is no policy 9\n"
         "  hint: CT_REMAT_SAVE_NOTHING, _EVERYTHING, _PRODUCTS, _NAMED and _NEEDED are "
         "the policies");
    args.policy = CT_REMAT_SAVE_NAMED;
    ct_remat_with(args);
    SAYS(CT_E_ARGUMENT, "remat: the policy is CT_REMAT_SAVE_NAMED, but no names are given\n"
                        "  hint: list in .names what ct_remat_name calls values that are saved");
    args.n_names = 1;
    ct_remat_with(args);
    SAYS(CT_E_ARGUMENT, "remat: .names must not be NULL");
    args.names = none;
    ct_remat_with(args);
    SAYS(CT_E_ARGUMENT, "remat: a name must not be NULL");
    args.names = names;
    args.policy = CT_REMAT_SAVE_MATMULS;
    ct_remat_with(args);
    SAYS(CT_E_ARGUMENT, "remat: names are given, but the policy is not CT_REMAT_SAVE_NAMED\n"
                        "  hint: list in .names what ct_remat_name calls values that are saved");
    assert_false(ct_ok(ct_remat_name_at(x, NULL, here)));
    SAYS(CT_E_ARGUMENT, "name: the name must not be NULL");
}

static void linear_maps(void **state) {
    (void)state;
    ct_linear_map map;
    ct_tensor *none = NULL;
    {
        CT_SCOPE;
        ct_tensor x = f32(CT_DIMS(2)), out, slope, wide = f32(CT_DIMS(3));
        map = ct_linearize_at(NULL, NULL, &x, 1, &out, 1, here);
        SAYS(CT_E_ARGUMENT, "linearize: the function must not be NULL");
        ct_linearize_at(itself, NULL, &x, 1, &out, 0, here);
        SAYS(CT_E_ARGUMENT, "linearize: the function has no results");
        ct_linear_apply_at((ct_linear_map){x, 1, 1}, &x, &slope, here);
        SAYS(CT_E_ARGUMENT, "linear_apply: it is not what ct_linearize gave");
        map = ct_linearize_at(itself, NULL, &x, 1, &out, 1, here);
        ct_linear_apply_at(map, none, &slope, here);
        SAYS(CT_E_ARGUMENT, "linear_apply: the list of tangents must not be NULL");
        ct_linear_apply_at(map, &x, none, here);
        SAYS(CT_E_ARGUMENT, "linear_apply: the array for the tangents must not be NULL");
        ct_linear_transpose_at(map, none, &slope, here);
        SAYS(CT_E_ARGUMENT, "linear_transpose: the list of cotangents must not be NULL");
        ct_linear_transpose_at(map, &x, none, here);
        SAYS(CT_E_ARGUMENT, "linear_transpose: the array for the gradients must not be NULL");
        ct_linear_apply_at(map, &wide, &slope, here);
        SAYS(CT_E_SHAPE, "linear_apply: tangent 1 is (3,) f32, operand 1 is (2,) f32\n"
                         "  hint: a tangent has the shape and the dtype of its operand");
    }
    ct_tensor x = f32(CT_DIMS(2)), slope;
    ct_linear_apply_at(map, &x, &slope, here);
    assert_int_equal(ct_error_code(), CT_E_STALE);
    assert_false(ct_ok(slope));
    ct_error_clear();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(slopes_that_do_not_fit),          TEST(what_is_no_loss), TEST(batches_that_do_not_fit),
        TEST(what_a_function_must_not_do),     TEST(rules_of_users),  TEST(missing_arguments),
        TEST(regions_that_are_computed_again), TEST(linear_maps),
    };
    return cmocka_run_group_tests_name("transform_errors", tests, NULL, NULL);
}
