// Ops from outside: a text, a body and a function of C, each recorded, differentiated, batched, compiled and
// written ahead of time; and what is wrong with a definition or a call, in whole sentences.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "../../examples/plugin/window_attention.c"
#include "support/record.h"

static void assert_double_near(double is, double wanted, double off) {
    assert_true(fabs(is - wanted) <= off * (1 + fabs(wanted)));
}
static const ct_op *define_at_3(ct_op_spec spec) {
    spec.struct_size = sizeof spec;
    spec.here = (ct_loc){"user.c", 3};
    return ct_op_define_with(spec);
}
static ct_tensor normal(int64_t seed, ct_ints dims) {
    return ct_random_normal(ct_random_key(seed), dims);
}
static ct_tensor call1(const char *name, const ct_tensor *in, size_t n, ct_ints numbers) {
    ct_tensor out;
    ct_op_call_at(ct_op_find(name), in, n, numbers, &out, 1, (ct_loc){"user.c", 9});
    return out;
}
static double largest_difference(ct_tensor a, ct_tensor b) {
    return ct_item(ct_max(ct_abs(ct_sub(a, b))));
}

// The same by the library's own ops. x, beta: any; q, k (..., T, D), v (..., T, V)
static void swish_by_ops(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_div(in[0], ct_add(ct_f(1), ct_exp(ct_mul(ct_neg(in[1]), in[0]))));
}
static void attend_by_ops(const ct_tensor *in, ct_tensor *out, void *user) {
    const int64_t *window = user;
    const int64_t length = ct_dim(in[0], -2), width = ct_dim(in[0], -1);
    ct_tensor query = ct_iota(CT_I32, CT_DIMS(length, length), 0),
              key = ct_iota(CT_I32, CT_DIMS(length, length), 1);
    ct_tensor seen = ct_and(ct_less_equal(key, query), ct_less(ct_sub(query, key), ct_i(*window)));
    const int rank = ct_rank(in[1]);
    int64_t axes[CT_MAX_RANK];
    for (int i = 0; i < rank; i++) axes[i] = i < rank - 2 ? i : 2 * rank - 3 - i;
    ct_tensor turned = ct_permute(in[1], ((ct_ints){rank, axes}));
    ct_tensor scores = ct_matmul(in[0], turned);
    scores = ct_mul(scores, ct_scalar(1 / sqrt((double)width), ct_dtype_of(in[0])));
    scores = ct_select(seen, scores, ct_scalar(-INFINITY, ct_dtype_of(in[0])));
    out[0] = ct_matmul(ct_softmax(scores), in[2]);
}
static void swish_fn(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = call1("swish", in, 2, CT_SCALAR);
}
static void attend_fn(const ct_tensor *in, ct_tensor *out, void *user) {
    out[0] = call1("window_attention", in, 3, (ct_ints){1, user});
}

static const char *const devices[] = {"ref", "cpu"};
static int64_t window = 3;

typedef struct {
    ct_fn op, by_ops;
    size_t n;
    const int64_t *dims; // (n, 2) of operands without a batch
} outside_case;
static const outside_case cases[] = {
    {swish_fn, swish_by_ops, 2, (int64_t[]){7, 5, 1, 5}},
    {attend_fn, attend_by_ops, 3, (int64_t[]){7, 4, 7, 4, 7, 5}},
};
enum { CASES = sizeof cases / sizeof *cases };

static void make(const outside_case *c, ct_tensor *in, bool batch) {
    for (size_t i = 0; i < c->n; i++) {
        const int64_t rows = c->dims[2 * i], width = c->dims[2 * i + 1];
        in[i] =
            normal((int64_t)i, batch && i != 1 ? CT_DIMS(3, rows, width) : CT_DIMS(rows, width));
    }
}

static void values_gradients_and_batches(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++)
        for (size_t k = 0; k < CASES; k++) {
            const outside_case *c = &cases[k];
            CT_SCOPE;
            ct_tensor in[3], ours[3], theirs[3], y[2], batched = CT_NONE;
            assert_true(ct_set_device(devices[d]));
            for (int batch = 0; batch < 2; batch++) { // which broadcasts
                make(c, in, batch);
                c->op(in, &y[0], &window);
                c->by_ops(in, &y[1], &window);
                assert_true(largest_difference(y[0], y[1]) < 1e-6);
                ct_grad(ct_sum(ct_sin(y[0])), in, c->n, ours);
                ct_grad(ct_sum(ct_sin(y[1])), in, c->n, theirs);
                for (size_t i = 0; i < c->n; i++)
                    assert_true(largest_difference(ours[i], theirs[i]) < 4e-6);
            }
            const int64_t axes[3] = {0, CT_NO_AXIS, 0};
            ct_vmap(.f = c->op, .user = &window, .in = in, .n_in = c->n, .out = &batched,
                    .n_out = 1, .in_axes = {(int64_t)c->n, axes});
            assert_true(largest_difference(batched, y[1]) < 1e-6);
            make(c, in, false);
            assert_true(ct_check_grad(c->op, &window, in, c->n, .order = k == 0 ? 2 : 1));
            assert_ok();
        }
}

static void a_step_is_one_plan(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor q = ct_param(set, "q", CT_F32, CT_DIMS(6, 4));
    assert_true(ct_set_device("cpu"));
    ct_assign(q, normal(5, CT_DIMS(6, 4)));
    uint64_t made = 0;
    for (int step = 0; step < 4; step++) {
        CT_SCOPE;
        const ct_tensor in[3] = {q, normal(1, CT_DIMS(2, 6, 4)), normal(2, CT_DIMS(2, 6, 3))};
        ct_tensor grad, y = call1("window_attention", in, 3, CT_INTS(2));
        y = call1("swish", (ct_tensor[]){y, ct_f(1.5)}, 2, CT_SCALAR);
        ct_grad(ct_mean(ct_square(y)), &q, 1, &grad);
        ct_assign(q, ct_sub(q, grad));
        if (step == 2) made = plans_made();
    }
    assert_ok();
    assert_true(made > 0);
    assert_int_equal(plans_made(), made);
    ct_params_free(set);
}

// A text is compiled as its ops are: the same bits, in one kernel.
static void a_text_fuses(void **state) {
    (void)state;
    CT_SCOPE;
    assert_true(ct_set_device("cpu"));
    const ct_tensor in[2] = {normal(1, CT_DIMS(1000)), ct_f(0.7)};
    ct_tensor y[2];
    swish_fn(in, &y[0], NULL);
    swish_by_ops(in, &y[1], NULL);
    const uint64_t before = ct_get_stats().launches;
    assert_true(ct_eval(y, 1));
    assert_int_equal(ct_get_stats().launches, before + 1);
    assert_memory_equal(ct_data(y[0]), ct_data(y[1]), 1000 * sizeof(float));
}

// ------------------------------------------------------------------------------------------- texts

static ct_tensor of_text(const char *name, const char *operands, const char *text,
                         const ct_tensor *in, size_t n) {
    const ct_op *op = ct_op_define(.name = name, .operands = operands, .expression = text);
    assert_non_null(op);
    ct_tensor out;
    ct_op_call(op, in, n, CT_SCALAR, &out, 1);
    return out;
}
static void texts_mean_what_they_mean_in_c(void **state) {
    (void)state;
    CT_SCOPE;
    const double v[5] = {-2, -0.5, 0, 0.75, 3};
    ct_tensor in[2] = {vec(5, v), ct_mul(vec(5, v), ct_f(-0.5))};
#define SAME(expression)                                                                           \
    do {                                                                                           \
        ct_tensor t = of_text("same", "x y", #expression, in, 2);                                  \
        for (int i = 0; i < 5; i++) {                                                              \
            const double x = v[i], y = -0.5 * v[i];                                                \
            assert_double_near(at(t, i), (double)(expression), 1e-6);                              \
        }                                                                                          \
    } while (0)
    SAME(x - y - 1 + 2 * x / 4 * y);
    SAME(-x * -y + (x - (y - 1)) - -+x);
    SAME(1e-1 * x + .5 * y + 2.f * x * y);
    SAME(x < y ? x + 1 : y > 0.1 ? 2 : x - y);
    SAME((x < y || x == 0) && !(y >= 1) ? 1 + x : -1 + y);
    SAME(x != 0 ? y : 7 + x);
    SAME(exp(x) + sqrt(y * y + 1) + atan2(x, y + 4) + floor(x) / 3 + y);
    ct_tensor t = of_text("parts", "x", "s = 1 / (1 + exp(-x)); x = s * s; x * (1 - s);", in, 1);
    for (int i = 0; i < 5; i++) {
        const double s = 1 / (1 + exp(-v[i]));
        assert_double_near(at(t, i), s * s * (1 - s), 1e-6);
    }
    t = of_text("size", "x", "abs(x) * 2", in, 1);
    for (int i = 0; i < 5; i++) assert_double_near(at(t, i), 2 * fabs(v[i]), 0);
    t = of_text("truth", "x", "x ? 5 : 7", in, 1);
    assert_true(at(t, 1) == 5 && at(t, 2) == 7);
    t = of_text("positive", "x", "x > 0", in, 1);
    assert_int_equal(ct_dtype_of(t), CT_BOOL);
    // 16-bit floats are computed in f32 and rounded once; f64 stays f64, and numbers are exact in it.
    ct_tensor half = ct_cast(in[0], CT_F16), twice[2] = {ct_cast(in[0], CT_F64), in[0]};
    t = of_text("thrice", "x", "x * 3 + 0.1", &half, 1);
    assert_int_equal(ct_dtype_of(t), CT_F16);
    t = of_text("mixed", "x y", "x + 0.1 + y * 0", twice, 2);
    assert_true(ct_dtype_of(t) == CT_F64 && ((const double *)ct_data(t))[4] == 3 + 0.1);
    assert_ok();
}

static void says(const char *operands, const char *text, const char *what) {
    const ct_op *op =
        define_at_3((ct_op_spec){.name = "mine", .operands = operands, .expression = text});
    assert_null(op);
    assert_error(CT_E_ARGUMENT, what);
}
static void what_is_wrong_with_a_text(void **state) {
    (void)state;
    says("x", "x +", "user.c:3: mine: column 4 of its expression: it ends too early");
    says("x", "(x", "user.c:3: mine: column 3 of its expression: \")\" was expected");
    says("x", "x x", "user.c:3: mine: column 3 of its expression: \"x\" was not expected");
    says("x", "x + z", "user.c:3: mine: column 5 of its expression: \"z\" is no operand");
    says("x", "x ? 1", "user.c:3: mine: column 6 of its expression: \":\" was expected");
    says("x", "x > 0 ? x : x > 1",
         "user.c:3: mine: column 18 of its expression: one side of ?: is a comparison, the other a "
         "number");
    says("x", "s = x, s", "user.c:3: mine: column 6 of its expression: \";\" was expected");
    says("x", "exp(x, x)", "user.c:3: mine: column 7 of its expression: exp takes 1 operands");
    says("x", "sum(x)",
         "user.c:3: mine: column 5 of its expression: there is no elementwise op \"sum\" without "
         "attributes\n"
         "  hint: did you mean sub?");
    says("x y", "x * 2", "user.c:3: mine: its expression does not use operand y");
    says(NULL, "x", "user.c:3: mine: an expression needs the names of its operands");
    says("x 2", "x", "user.c:3: mine: operands: \"2\" is no name");
    char deep[402];
    memset(deep, '(', 400), deep[400] = 'x', deep[401] = '\0';
    says("x", deep, "user.c:3: mine: column 33 of its expression: it is nested too deeply");
}

// -------------------------------------------------------------------------------------- signatures

static const char *copies(const ct_op_array *in, const ct_op_array *out, const int64_t *numbers,
                          void *user) {
    (void)in, (void)out, (void)numbers;
    return user;
}
static const ct_op *signed_op(const char *signature, const char *numbers, void *user) {
    return define_at_3((ct_op_spec){.name = "mine",
                                    .operands = "q k",
                                    .signature = signature,
                                    .attributes = numbers,
                                    .compute = copies,
                                    .user = user});
}
static void what_is_wrong_with_a_signature(void **state) {
    (void)state;
    static const struct {
        const char *signature, *what;
    } wrong[] = {
        {"(a), (b)", "column 9 of its signature: \"->\" was expected"},
        {"(a), (b) -> c", "column 13 of its signature: \"(\" was expected"},
        {"(a), (b -> (a)", "column 9 of its signature: \",\" or \")\" was expected"},
        {"(a), (b)f31 -> (a)", "column 9 of its signature: there is no such dtype"},
        {"(a), (2x) -> (a)", "column 7 of its signature: a size is a name or a whole number"},
        {"(a), (b) -> (a), (c)", "size c of its signature is in no operand, and no number"},
        {"(a) -> (a)", "2 operands have names, its signature has 1"},
        {"(a), (b) -> (a) b", "column 17 of its signature: nothing was expected any more"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char whole[200];
        snprintf(whole, sizeof whole, "user.c:3: mine: %s", wrong[i].what);
        assert_null(signed_op(wrong[i].signature, NULL, NULL));
        assert_error(CT_E_ARGUMENT, whole);
    }
    assert_null(define_at_3((ct_op_spec){.name = "mine"}));
    assert_error(
        CT_E_ARGUMENT,
        "user.c:3: mine: exactly one of expression, body and compute must be given, not 0");
    assert_null(ct_op_define_with((ct_op_spec){.name = "mine", .struct_size = 8}));
    assert_error(CT_E_ARGUMENT,
                 "op_define: the definition was compiled with the headers of another "
                 "version of Cotan");
    assert_null(define_at_3((ct_op_spec){.name = "my op", .operands = "x", .expression = "x"}));
    assert_error(CT_E_ARGUMENT, "user.c:3: op_define: \"my op\" is no name for an op");
}

static ct_tensor call2(const ct_op *op, ct_tensor a, ct_tensor b, ct_ints numbers) {
    ct_tensor out;
    ct_op_call_at(op, (ct_tensor[]){a, b}, 2, numbers, &out, 1, (ct_loc){"user.c", 9});
    return out;
}
static void what_is_wrong_with_a_call(void **state) {
    (void)state;
    CT_SCOPE;
    const ct_op *op = signed_op("(t, d), (s, d)i32 -> (t, 4, n)f64", "n", NULL);
    ct_tensor q = ct_zeros(CT_F32, CT_DIMS(2, 3, 5)), k = ct_zeros(CT_I32, CT_DIMS(7, 5));
    ct_tensor y = call2(op, q, k, CT_INTS(6));
    assert_ok();
    assert_true(ct_dtype_of(y) == CT_F64 && ct_rank(y) == 4 && ct_dim(y, 0) == 2 &&
                ct_dim(y, 1) == 3 && ct_dim(y, 2) == 4 && ct_dim(y, 3) == 6);
    call2(op, q, ct_zeros(CT_I32, CT_DIMS(7, 4)), CT_INTS(6));
    assert_error(CT_E_SHAPE, "user.c:9: mine: size d differs: operand 1 (q) is (2, 3, 5) f32, "
                             "operand 2 (k) is (7, 4) i32");
    call2(op, q, ct_zeros(CT_I32, CT_DIMS(5)), CT_INTS(6));
    assert_error(CT_E_SHAPE, "user.c:9: mine: operand 2 (k) is (5,) i32, it needs 2 axes");
    call2(op, q, q, CT_INTS(6));
    assert_error(CT_E_DTYPE, "user.c:9: mine: operand 2 (k) is (2, 3, 5) f32, it must be i32\n"
                             "  hint: cast it");
    call2(op, k, k, CT_INTS(6));
    assert_error(CT_E_DTYPE, "user.c:9: mine: operand 1 (q) is (7, 5) i32, it must be f32 or f64\n"
                             "  hint: cast it");
    call2(op, q, ct_zeros(CT_I32, CT_DIMS(3, 7, 5)), CT_INTS(6));
    assert_error(CT_E_SHAPE, "user.c:9: mine: batch axes do not broadcast: operand 1 is (2, 3, 5) "
                             "f32, operand 2 is (3, 7, 5) i32");
    call2(op, q, k, CT_INTS(-1));
    assert_error(CT_E_ARGUMENT, "user.c:9: mine: n is -1, and a size");
    call2(op, q, k, CT_SCALAR);
    assert_error(CT_E_ARGUMENT, "user.c:9: mine: it has 2 operands, 1 results and 1 numbers, not "
                                "2, 1 and 0");
    ct_tensor grad;
    ct_grad(ct_sum(y), &q, 1, &grad);
    assert_false(ct_eval(&grad, 1));
    assert_error(CT_E_GRAD, "user.c:9: mine: it was defined without a vjp or jvp");
}

static void its_own_sentence_is_the_plans_error(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) {
        CT_SCOPE;
        assert_true(ct_set_device(devices[d]));
        const ct_op *op = signed_op("(t, d), (s, d) -> (t, s)", NULL, "the moon is full");
        ct_tensor y = call2(op, ct_zeros(CT_F32, CT_DIMS(3, 1, 2, 4)),
                            ct_zeros(CT_F32, CT_DIMS(5, 4)), CT_SCALAR);
        assert_false(ct_eval(&y, 1));
        assert_error(CT_E_CUSTOM_OP,
                     "user.c:9: mine: element (0, 0) of the batch: the moon is full");
        y = call2(op, ct_zeros(CT_F32, CT_DIMS(2, 4)), ct_zeros(CT_F32, CT_DIMS(5, 4)), CT_SCALAR);
        assert_false(ct_eval(&y, 1));
        assert_error(CT_E_CUSTOM_OP, "user.c:9: mine: the moon is full");
    }
}

// ------------------------------------------------------------------------------------------- rules

// x^3 with rules: the right ones times `user`, so that one sees which was used.
static void cube_body(const ct_op_rule *r) {
    r->outputs[0] = ct_mul(r->in[0], ct_square(r->in[0]));
}
static void cube_jvp(const ct_op_rule *r) {
    r->outputs[0] = ct_mul(ct_mul(r->tangents[0], ct_square(r->in[0])), ct_f(*(double *)r->user));
}
static void cube_vjp(const ct_op_rule *r) {
    r->outputs[0] = ct_mul(ct_mul(r->tangents[0], ct_square(r->in[0])), ct_f(-*(double *)r->user));
}
static void bad_shape(const ct_op_rule *r) { r->outputs[0] = ct_sum(r->in[0]); }
static void cube(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_op_call(user, in, 1, CT_SCALAR, out, 1);
}
static void rules_override_the_body(void **state) {
    (void)state;
    CT_SCOPE;
    double three = 3;
    ct_op_spec spec = {.struct_size = sizeof spec,
                       .name = "cube",
                       .signature = "(n) -> (n)",
                       .body = cube_body,
                       .user = &three};
    ct_tensor x = line_of(3), y, grad, tangent = ct_ones(CT_F32, CT_DIMS(3)), moved;
    const double wanted[3] = {3, 3, -3}; // by the body, the jvp, the vjp
    for (int i = 0; i < 3; i++) {
        spec.jvp = i ? cube_jvp : NULL;
        spec.vjp = i == 2 ? cube_vjp : NULL;
        void *op = (void *)(uintptr_t)ct_op_define_with(spec);
        cube(&x, &y, op);
        ct_grad(ct_sum(y), &x, 1, &grad);
        ct_jvp(cube, op, &x, 1, &y, 1, &tangent, &moved);
        assert_double_near(at(grad, 1), 4 * wanted[i], 1e-6);
        assert_double_near(at(moved, 1), 12, 1e-6);
        ct_grad(ct_sum(grad), &x, 1, &grad); // of the rule
        assert_double_near(at(grad, 1), 4 * wanted[i], 1e-6);
    }
    assert_ok();
    spec.vjp = bad_shape;
    ct_op_call_at(ct_op_define_with(spec), &x, 1, CT_SCALAR, &y, 1, (ct_loc){"user.c", 9});
    ct_grad(ct_sum(y), &x, 1, &grad);
    assert_false(ct_eval(&grad, 1));
    assert_error(CT_E_SHAPE, "user.c:9: cube: its vjp made the cotangent of operand 1 () f32, it "
                             "should be (3,) f32");
    spec.body = bad_shape;
    ct_op_call_at(ct_op_define_with(spec), &x, 1, CT_SCALAR, &y, 1, (ct_loc){"user.c", 9});
    assert_false(ct_eval(&y, 1));
    assert_error(CT_E_SHAPE,
                 "user.c:9: cube: its body made result 1 () f32, it should be (3,) f32");
}

// What a function or a rule of an op does with the library, while the plan that needs it runs or is made.
typedef struct {
    ct_tensor pending, variable, value;
    int way;
    bool got;
} caller;
static void call_library(caller *c, ct_loc here) {
    const float one = 1;
    switch (c->way) {
    case 0: c->got = !isnan(ct_item_at(c->pending, here)); break;
    case 1: c->got = ct_eval_at(&c->pending, 1, here); break;
    case 2: c->got = ct_data_at(c->variable, here) != NULL; break;
    case 3: c->got = !isnan(ct_metric_value("of the plan")); break;
    case 4: c->got = ct_ok(ct_from(&one, CT_F32, CT_SCALAR)); break;
    case 5: {
        ct_ctx *ctx = ct_ctx_new(), *before = ct_ctx_use(ctx);
        c->got = ctx != NULL;
        ct_ctx_use(before);
        break;
    }
    case 6: {
        CT_SCOPE;
        ct_assign(c->variable, ct_add(c->variable, c->pending));
        c->got = !ct_failed();
        break;
    }
    case 7: c->got = ct_shutdown(); break;
    default: c->got = ct_data_at(c->value, here) != NULL; // evaluated, and no variable
    }
}
static const char *calling(const ct_op_array *in, const ct_op_array *out, const int64_t *numbers,
                           void *user) {
    (void)numbers;
    memcpy(out->data, in->data, 4 * (size_t)in->dim[0]);
    call_library(user, (ct_loc){"op.c", 5});
    return NULL;
}
static void identity_vjp(const ct_op_rule *r) { r->outputs[0] = r->tangents[0]; }
static void calling_vjp(const ct_op_rule *r) {
    r->outputs[0] = r->tangents[0];
    call_library(r->user, (ct_loc){"op.c", 7});
}

// What the step says that fails, and that neither it nor a later one has changed more than it should.
static void expect_refused(const ct_op_spec *spec, caller *c, ct_code code, const char *text) {
    const ct_op *ops[] = {ct_op_define_with(*spec), ct_op_find("harmless")};
    for (int turn = 0; turn < 2; turn++) {
        CT_SCOPE;
        ct_tensor y, slope;
        c->pending = ct_sum(ct_square(c->variable));
        ct_op_call_at(ops[turn], &c->variable, 1, CT_SCALAR, &y, 1, (ct_loc){"user.c", 9});
        ct_metric("of the plan", ct_sum(y));
        ct_grad(ct_sum(y), &c->variable, 1, &slope);
        ct_assign(c->variable, ct_sub(c->variable, slope));
        c->got = true;
        assert_int_equal(ct_eval(&y, 1), turn);
        if (turn) continue;
        assert_false(c->got);
        assert_error(code, text);
        assert_double_near(at(c->variable, 1), 2, 0);
    }
    assert_double_near(at(c->variable, 1), 1, 0);
    ct_assign(c->variable, line_of(3));
    assert_double_near(at(c->variable, 1), 2, 0);
}
static void nothing_is_read_on(const char *device) {
    CT_SCOPE;
    assert_true(ct_set_device(device));
    ct_params *set = ct_params_new();
    caller c = {.variable = ct_param(set, "w", CT_F32, CT_DIMS(3)), .value = line_of(2)};
    double one = 1;
    ct_op_spec spec = {.struct_size = sizeof spec, .signature = "(n) -> (n)"};
    assert_true(ct_eval(&c.value, 1));
    ct_assign(c.variable, line_of(3));
    assert_double_near(at(c.variable, 1), 2, 0);
    spec.name = "harmless", spec.user = &one, spec.body = cube_body, spec.vjp = identity_vjp;
    assert_non_null(ct_op_define_with(spec));
    spec.name = "calling", spec.user = &c, spec.body = NULL;
    spec.compute = calling, spec.vjp = identity_vjp;
    for (c.way = 0; c.way < 9; c.way++)
        expect_refused(&spec, &c, CT_E_CUSTOM_OP,
                       "user.c:9: calling: its function calls the library, which is running the "
                       "plan\n  hint: it has its operands as memory: what else it needs is an "
                       "operand, and what is made of other ops a body or a rule");
    spec.compute = NULL, spec.body = cube_body, spec.vjp = calling_vjp;
    const char *const said[] = {"op.c:7: item", "op.c:7: eval", "op.c:7: data"};
    for (c.way = 0; c.way < 3; c.way++) {
        char text[200];
        snprintf(text, sizeof text,
                 "%s: a value is read inside a traced function\n  hint: return it as a result of "
                 "the function, and read it outside",
                 said[c.way]);
        expect_refused(&spec, &c, CT_E_TRACE, text);
    }
    ct_params_free(set);
}
static void nothing_is_read_within_a_plan(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) nothing_is_read_on(devices[d]);
}
// Elements of a batch are computed by several threads, which have contexts of their own.
static void nor_by_other_threads(void **state) {
    (void)state;
    CT_SCOPE;
    caller c = {.way = 0};
    assert_true(ct_set_device("cpu"));
    ct_tensor y, x = ct_ones(CT_F32, CT_DIMS(64, 3000));
    const ct_op *op =
        ct_op_define(.name = "calling", .signature = "(n) -> (n)", .compute = calling, .user = &c);
    c.pending = ct_sum(ct_square(x));
    ct_op_call_at(op, &x, 1, CT_SCALAR, &y, 1, (ct_loc){"user.c", 9});
    assert_false(ct_eval(&y, 1));
    assert_error(CT_E_CUSTOM_OP,
                 "user.c:9: calling: element (0,) of the batch: its function calls the library, "
                 "which is running the plan\n  hint: it has its operands as memory: what else it "
                 "needs is an operand, and what is made of other ops a body or a rule");
    assert_double_near(ct_item(ct_sum(x)), 192000, 0);
}

// A name that is defined anew is another op, of which no plan is known.
static void a_name_may_be_defined_anew(void **state) {
    (void)state;
    CT_SCOPE;
    assert_true(ct_set_device("cpu"));
    ct_tensor x = line_of(4);
    const ct_op *old = ct_op_define(.name = "f", .operands = "x", .expression = "x + 1");
    for (int turn = 0; turn < 2; turn++) {
        assert_double_near(at(call1("f", &x, 1, CT_SCALAR), 0), turn ? 10 : 2, 0);
        ct_op_define(.name = "f", .operands = "x", .expression = "x * 10");
    }
    ct_tensor y;
    ct_op_call(old, &x, 1, CT_SCALAR, &y, 1);
    assert_double_near(at(y, 0), 2, 0);
    assert_string_equal(ct_op_info(old)->name, "f");
    assert_true(ct_op_find("f") != old && !ct_op_find("nothing") && ct_op_next(NULL));
}

// ------------------------------------------------------------------------------------ ahead of time

static void run_command(const char *command, const char *folder) {
    assert_int_equal(setenv("FOLDER", folder, 1), 0);
    assert_int_equal(system(command), 0);
}
static void written_ahead_it_calls_the_function(void **state) {
    (void)state;
    char folder[] = "/tmp/cotan-outside-XXXXXX", path[100], text[4000] = "";
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/step", folder);
    float wanted[2 * 5 * 3];
    {
        CT_SCOPE;
        assert_true(ct_set_device("cpu"));
        ct_tensor q = ct_from(((float[40]){0.5, 1, -1, 2}), CT_F32, CT_DIMS(2, 5, 4)),
                  k = ct_from(((float[20]){1, 2, 3, 4, 5}), CT_F32, CT_DIMS(5, 4)),
                  v = ct_from(((float[15]){1, 2, 3, 4, 5, 6, 7}), CT_F32, CT_DIMS(5, 3));
        ct_tensor in[3] = {q, k, v}, y = call1("window_attention", in, 3, CT_INTS(2));
        y = ct_keep(call1("swish", (ct_tensor[]){y, ct_f(2)}, 2, CT_SCALAR));
        assert_true(ct_compile(.path = path,
                               .names = CT_NAMED_LIST({"q", q}, {"k", k}, {"v", v}, {"y", y})));
        const float *values = ct_data(y);
        assert_non_null(values);
        memcpy(wanted, values, sizeof wanted);
    }
    snprintf(path, sizeof path, "%s/main.c", folder);
    FILE *f = fopen(path, "w");
    fputs("#include <stdio.h>\n#include \"step.h\"\n"
          "static unsigned char arena[STEP_ARENA_BYTES] __attribute__((aligned(64)));\n"
          "static float q[40] = {0.5, 1, -1, 2}, k[20] = {1, 2, 3, 4, 5}, v[15] = {1, 2, 3, 4, 5, "
          "6, 7}, y[30];\n"
          "int main(void) {\n    struct step s;\n    step_init(&s);\n    s.arena = arena;\n"
          "    s.q = q; s.k = k; s.v = v; s.y = y;\n    if (step(&s)) return 1;\n"
          "    return fwrite(y, 1, sizeof y, stdout) != sizeof y;\n}\n",
          f);
    fclose(f);
    // Of the op's own file only its functions are needed: none of the library is linked.
    run_command("cd $FOLDER && cc -O2 -fmax-errors=3 -ffunction-sections -I$OLDPWD/include "
                "-I$OLDPWD/build/derived -o program main.c step.c "
                "$OLDPWD/examples/plugin/window_attention.c "
                "-Wl,--gc-sections -lm && ./program >values",
                folder);
    snprintf(path, sizeof path, "%s/values", folder);
    f = fopen(path, "r");
    assert_int_equal(fread(text, 1, sizeof text, f), sizeof wanted);
    fclose(f);
    assert_memory_equal(text, wanted, sizeof wanted);
    run_command("rm -r $FOLDER", folder);
    CT_SCOPE;
    ct_tensor y =
        call2(signed_op("(t), (s) -> (t)", NULL, NULL), line_of(3), line_of(2), CT_SCALAR);
    ct_keep(y);
    assert_false(ct_compile_with((ct_compile_args){.path = "/tmp/none", .here = {"user.c", 7}}));
    assert_error(CT_E_UNSUPPORTED, "user.c:7: compile: mine of user.c:9 calls a library, which the "
                                   "C that is written cannot do");
}

static int begin(void **state) {
    const int failed = record_begin(state);
    cotan_ops();
    return failed;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(values_gradients_and_batches, begin, record_end),
        cmocka_unit_test_setup_teardown(a_step_is_one_plan, begin, record_end),
        cmocka_unit_test_setup_teardown(a_text_fuses, begin, record_end),
        cmocka_unit_test_setup_teardown(texts_mean_what_they_mean_in_c, begin, record_end),
        cmocka_unit_test_setup_teardown(what_is_wrong_with_a_text, begin, record_end),
        cmocka_unit_test_setup_teardown(what_is_wrong_with_a_signature, begin, record_end),
        cmocka_unit_test_setup_teardown(what_is_wrong_with_a_call, begin, record_end),
        cmocka_unit_test_setup_teardown(its_own_sentence_is_the_plans_error, begin, record_end),
        cmocka_unit_test_setup_teardown(rules_override_the_body, begin, record_end),
        cmocka_unit_test_setup_teardown(nothing_is_read_within_a_plan, begin, record_end),
        cmocka_unit_test_setup_teardown(nor_by_other_threads, begin, record_end),
        cmocka_unit_test_setup_teardown(a_name_may_be_defined_anew, begin, record_end),
        cmocka_unit_test_setup_teardown(written_ahead_it_calls_the_function, begin, record_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
