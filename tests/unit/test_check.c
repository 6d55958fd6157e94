// COTAN_CHECK: a wrong kernel is named, and the first op that makes NaN; nothing right is.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "compile/check/check.h"
#include "compile/plan.h"
#include "ops/rules.h"
#include "support/record.h"

static ct_ctx *own;
static const char *device;

static int with(const char *what) {
    if (what)
        setenv("COTAN_CHECK", what, 1);
    else
        unsetenv("COTAN_CHECK");
    own = ct_ctx_new();
    if (!own) return -1;
    ct_ctx_use(own);
    return ct_set_device(device ? device : "cpu") ? 0 : -1;
}
static int with_ref(void **state) { return (void)state, with("ref"); }
static int with_nan(void **state) { return (void)state, with("nan"); }
static int with_both(void **state) { return (void)state, with("nan,ref"); }
static int end(void **state) {
    (void)state;
    ct_error_clear();
    ct_ctx_use(NULL);
    ct_ctx_free(own);
    unsetenv("COTAN_CHECK");
    return 0;
}

// ------------------------------------------------------------------------------------------------
// planted faults

static ct_kval twice(const ct_elem *e) { return ct__kir_bin(e->k, CT_K_ADD, e->x[0], e->x[0]); }
// Wrong the first time that a kernel is written for it: that of the plan, not that of the op alone.
static int kernels_written;
static ct_kval once_twice(const ct_elem *e) {
    return kernels_written++ ? ct__elem_un(e) : twice(e);
}

static ct_opdef wrong_op(const ct_opdef *of, ct_kval (*emit)(const ct_elem *e)) {
    ct_opdef op = *of;
    op.emit = emit;
    return op;
}
static ct_tensor neg(const ct_opdef *op, ct_tensor x, uint32_t line) {
    return ct__record(op, NULL, &x, 1, (ct_loc){"t.c", line});
}

static void ref_names_the_wrong_kernel(void **state) {
    (void)state;
    ct_opdef wrong = wrong_op(&ct__op_neg, twice);
    CT_SCOPE;
    ct_tensor x = ct_reshape(line_of(6), CT_DIMS(2, 3));
    // Under a sum and an exp, of which neither is wrong.
    ct_tensor y = ct_sum(ct_exp(neg(&wrong, ct_sub(x, ct_f(1)), 12)));
    double value = ct_item(y);
    assert_true(isnan(value));
    assert_error(CT_E_CHECK,
                 "t.c:12: neg: device cpu differs from ref in 6 of 6 elements, first at (0, 0): 0 "
                 "instead of -0: input (2, 3) f32 in [0, 5]");
}

static const ct_opdef *in_loop;
static void body(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_add(in[0], in[1]);
    out[1] = neg(in_loop, in[1], 30);
}
static void ref_names_it_in_a_loop(void **state) {
    (void)state;
    ct_opdef wrong = wrong_op(&ct__op_neg, twice);
    in_loop = &wrong;
    CT_SCOPE;
    ct_tensor xs = ct_from(((float[]){NAN, NAN, 3, 4}), CT_F32, CT_DIMS(4));
    ct_tensor carry = ct_scalar(0, CT_F32), last, ys;
    ct_scan_with((ct_scan_args){.body = body,
                                .carry = &carry,
                                .n_carry = 1,
                                .xs = &xs,
                                .n_xs = 1,
                                .n_ys = 1,
                                .here = {"t.c", 40}},
                 &last, &ys);
    assert_null(ct_data(ys));
    assert_error(CT_E_CHECK,
                 "t.c:30: neg: device cpu differs from ref in 1 of 1 elements, first at (): 6 "
                 "instead of -3: input () f32 = 3, in iteration 2 of the scan of t.c:40");
}

static void ref_finds_a_fault_of_the_plan(void **state) {
    (void)state;
    ct_opdef wrong = wrong_op(&ct__op_neg, once_twice);
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 3);
    kernels_written = 0;
    {
        CT_SCOPE;
        assert_true(at(w, 0) == 3);
    }
    {
        CT_SCOPE;
        ct_assign(w, neg(&wrong, ct_add(w, ct_f(1)), 50));
    }
    assert_true(ct_failed());
    assert_error(CT_E_CHECK,
                 "t.c:50: neg: the new value of variable \"w\" differs between the plan and the "
                 "same ops one by one in 2 of 2 elements, first at (0,): 8 instead of -4\n"
                 "  hint: one op at a time is right: COTAN_FUSE=0 goes around the fault");
    {
        CT_SCOPE; // what the plan did to the variable was taken back
        assert_true(at(w, 0) == 3 && at(w, 1) == 3);
        ct_assign(w, ct_mul(ct_add(w, ct_f(1)), ct_f(-1)));
    }
    CT_SCOPE;
    assert_true(at(w, 0) == -4);
    assert_ok();
    ct_params_free(set);
}

// Two results are wrong, the later op's first among the roots: the earlier op is named.
static void ref_names_the_first_of_a_plan(void **state) {
    (void)state;
    ct_opdef wrong = wrong_op(&ct__op_neg, once_twice);
    kernels_written = 0;
    CT_SCOPE;
    ct_tensor x = line_of(2), y = neg(&wrong, x, 60);
    ct_tensor both[] = {ct_exp_at(y, (ct_loc){"t.c", 61}), y};
    assert_false(ct_eval(both, 2));
    assert_error(CT_E_CHECK,
                 "t.c:60: neg: its value differs between the plan and the same ops one by one in 2 "
                 "of 2 elements, first at (0,): 2 instead of -1\n"
                 "  hint: one op at a time is right: COTAN_FUSE=0 goes around the fault");
}

static void ref_without_the_check_is_not_asked(void **state) {
    (void)state;
    assert_int_equal(with(NULL), 0);
    ct_opdef wrong = wrong_op(&ct__op_neg, twice);
    {
        CT_SCOPE;
        assert_true(at(neg(&wrong, line_of(2), 12), 1) == 4);
    }
    assert_ok();
    end(NULL);
}

// A step of all there is: updates in place, random numbers, a loop, dynamic sizes.
static void step(ct_params *set, int64_t n) {
    CT_SCOPE;
    ct_tensor w = ct_params_get(set, 0), v = ct_params_get(set, 1);
    float data[24];
    for (int i = 0; i < 24; i++) data[i] = (float)i / 12 - 1;
    ct_tensor x = ct_from(data, CT_F32, CT_DIMS(CT_DYN(n), 4));
    ct_tensor h = ct_softmax(ct_matmul(x, w), .axes = CT_AXES(-1));
    h = ct_dropout(h, ct_random_key(n), ct_f(0.25));
    ct_tensor loss = ct_add(ct_mean(ct_square(ct_matmul(h, v))), ct_f(0.5)), wrt[] = {w, v}, g[2];
    ct_grad(loss, wrt, 2, g);
    ct_tensor key = ct_random_normal(ct_random_key(1), CT_DIMS(4, 4));
    ct_assign(w, ct_add(ct_sub(w, g[0]), ct_mul(key, ct_f(0.01))));
    ct_assign(v, ct_sub(v, g[1]));
    ct_metric("loss", loss);
}
static void right_steps_pass(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_param(set, "w", CT_F32, CT_DIMS(4, 4));
    ct_param(set, "v", CT_F32, CT_DIMS(4, 2));
    {
        CT_SCOPE;
        float data[16];
        for (int i = 0; i < 16; i++) data[i] = (float)(i * 7 % 5) - 2;
        ct_assign(ct_params_get(set, 0), ct_from(data, CT_F32, CT_DIMS(4, 4)));
        ct_assign(ct_params_get(set, 1), ct_from(data, CT_F32, CT_DIMS(4, 2)));
    }
    for (int64_t n = 3; n < 7; n++) {
        step(set, n);
        if (ct_failed()) fail_msg("%s", ct_error_text());
    }
    double loss = ct_metric_value("loss");
    assert_true(loss > 0.5 && loss < 2);
    ct_params_free(set);
}

// ------------------------------------------------------------------------------------------------
// NaN

static void nan_names_op_and_inputs(void **state) {
    (void)state;
    CT_SCOPE;
    float data[6] = {4, 1, 2, -0.25f, 3, 0.5f};
    ct_tensor x = ct_from(data, CT_F32, CT_DIMS(2, 3));
    ct_tensor y = ct_log_at(x, (ct_loc){"t.c", 31});
    double value = ct_item(ct_mean(ct_square(y)));
    assert_true(isnan(value));
    assert_error(CT_E_CHECK, "t.c:31: log: made 1 NaN of 6 (first at (1, 0)): input (2, 3) f32 in "
                             "[-0.25, 4]");
}

static void nan_names_the_overflow_behind_it(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = ct_from(((float[]){1, 100, 2}), CT_F32, CT_DIMS(3));
    ct_tensor e = ct_exp_at(x, (ct_loc){"t.c", 61});
    ct_tensor y = ct_div(e, ct_sum(e));
    assert_null(ct_data(y));
    assert_error(CT_E_CHECK,
                 "t.c:61: exp: made 1 infinite of 3 (first at (1,)): input (3,) f32 in [1, 100]");
}

static void nan_names_the_index_behind_it(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor logits = ct_from(((float[]){1, 2, 3, 4, 5, 6}), CT_F32, CT_DIMS(2, 3));
    ct_tensor target = ct_from(((int32_t[]){2, 3}), CT_I32, CT_DIMS(2));
    assert_true(isnan(ct_item(ct_cross_entropy_with(
        (ct_cross_entropy_args){.logits = logits, .targets = target, .here = {"t.c", 66}}))));
    assert_error(CT_E_CHECK, "t.c:66: gather: made 1 NaN of 2 (first at (1,)): inputs (2, 3) f32 "
                             "in [1, 6] and (2,) i32 in [2, 3]; index 3 at (1,) is outside 0 to 2");
    ct_tensor row = ct_from(((uint8_t[]){255}), CT_U8, CT_DIMS(1));
    assert_null(ct_data(ct_gather_with(
        (ct_gather_args){.x = logits, .indices = row, .axis = 0, .here = {"t.c", 67}})));
    assert_error(CT_E_CHECK, "t.c:67: gather: made 3 NaN of 3 (first at (0, 0)): inputs (2, 3) f32 "
                             "in [1, 6] and (1,) u8 = 255; index 255 at (0,) is outside 0 to 1");
}

static void nan_in_what_was_given(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = ct_from_at(((float[]){1, NAN, 2}), CT_F32, CT_DIMS(3), (ct_loc){"t.c", 71});
    assert_null(ct_data(ct_exp(x)));
    assert_error(CT_E_CHECK, "t.c:71: data: (3,) f32 holds 1 NaN of 3 (first at (1,))");
}

static void nan_leaves_variables(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 2);
    for (int i = 0; i < 3; i++) {
        CT_SCOPE;
        ct_tensor d = ct_sqrt_at(ct_sub(w, ct_f(1)), (ct_loc){"t.c", 81});
        ct_assign(w, ct_sub(w, ct_add(d, ct_f(0.5)))); // 2, 0.5, and then it has no root
    }
    assert_true(ct_failed());
    assert_error(CT_E_CHECK,
                 "t.c:81: sqrt: made 2 NaN of 2 (first at (0,)): input (2,) f32 in [-0.5, -0.5]");
    CT_SCOPE;
    assert_true(at(w, 0) == 0.5);
    ct_params_free(set);
}

static void nan_in_a_loop(void **state) {
    (void)state;
    in_loop = &ct__op_log;
    CT_SCOPE;
    ct_tensor xs = ct_from(((float[]){1, 2, -3, 4}), CT_F32, CT_DIMS(4));
    ct_tensor carry = ct_scalar(0, CT_F32), last, ys;
    ct_scan_with((ct_scan_args){.body = body,
                                .carry = &carry,
                                .n_carry = 1,
                                .xs = &xs,
                                .n_xs = 1,
                                .n_ys = 1,
                                .reverse = true,
                                .here = {"t.c", 90}},
                 &last, &ys);
    assert_null(ct_data(ys));
    assert_error(CT_E_CHECK, "t.c:30: log: made 1 NaN of 1 (first at ()): input () f32 = -3, in "
                             "iteration 2 of the scan of t.c:90");
}

// NaN and infinities that are wanted: masks, what a select leaves out, what the user gave.
static void wanted_infinities_pass(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = ct_from(((float[]){-1, 0, 2, 3}), CT_F32, CT_DIMS(2, 2));
    ct_tensor safe = ct_select(ct_greater(x, ct_f(0)), ct_log(x), ct_f(0));
    ct_tensor mask = ct_from(((float[]){0, -INFINITY, 0, 0}), CT_F32, CT_DIMS(2, 2));
    ct_tensor p = ct_softmax(ct_add(x, mask), .axes = CT_AXES(-1));
    ct_tensor most = ct_max(ct_add(x, mask), .axes = CT_AXES(0));
    ct_tensor all[] = {safe, mask, p, most, ct_mul(mask, ct_f(2))};
    assert_true(ct_eval(all, 5));
    assert_ok();
    // But what they make may be wrong.
    ct_tensor d = ct_sub_at(mask, mask, (ct_loc){"t.c", 104});
    assert_null(ct_data(d));
    assert_error(CT_E_CHECK,
                 "t.c:104: sub: made 1 NaN of 4 (first at (0, 1)): inputs (2, 2) f32 in "
                 "[0, 0] with 1 infinite and (2, 2) f32 in [0, 0] with 1 infinite");
}

// ------------------------------------------------------------------------------------------------
// the variable

// A device that writes an element too many of whatever it computes.
static bool write_too_much(ct_device *d, const ct_command *commands, size_t n, ct_err *err) {
    if (!ct__backend_ref.submit(d, commands, n, err)) return false;
    for (size_t i = 0; i < n; i++) {
        const ct_operand *to = &commands[i].args[commands[i].n_args - 1];
        if (commands[i].kind == CT_COMMAND_NODE)
            memset((char *)to->buffer + to->offset + ct__type_bytes(commands[i].node->out), 1, 4);
    }
    return true;
}

static void bounds_name_who_writes_behind_a_buffer(void **state) {
    (void)state;
    const char *before = device;
    device = "ref";
    assert_int_equal(with("bounds"), 0);
    device = before;
    ct_device *ref = ((ct_executor *)ct__ctx()->device)->device;
    ct_backend wrong = ct__backend_ref;
    CT_SCOPE;
    assert_true(at(ct_neg(line_of(3)), 1) == -2);
    wrong.submit = write_too_much;
    ref->backend = &wrong;
    ct_tensor y = neg(&ct__op_neg, line_of(5), 12);
    assert_false(ct_eval(&y, 1));
    ref->backend = &ct__backend_ref;
    assert_error(CT_E_CHECK, "t.c:12: neg: the device writes beyond the end of its argument 1, a "
                             "buffer of 20 bytes, at byte 20");
    end(NULL);
}

// A device whose kernels compute with the byte behind their first buffer.
static size_t too_far;
static char reader[64];
static bool read_too_much(ct_device *d, const ct_command *commands, size_t n, ct_err *err) {
    if (!ct__backend_cpu.submit(d, commands, n, err)) return false;
    for (size_t i = 0; i < n; i++) {
        const ct_operand *from = commands[i].args, *to = from + commands[i].n_args - 1;
        if (commands[i].kind != CT_COMMAND_KERNEL) continue;
        snprintf(reader, sizeof reader, "%s", commands[i].kernel->name);
        memcpy((char *)to->buffer + to->offset, (char *)from->buffer + from->offset + too_far, 1);
    }
    return true;
}

static void bounds_name_who_reads_behind_a_buffer(void **state) {
    (void)state;
    assert_int_equal(with("bounds"), 0);
    ct_device *cpu = ((ct_executor *)ct__ctx()->device)->device;
    ct_backend wrong = ct__backend_cpu;
    CT_SCOPE;
    assert_true(at(ct_neg(line_of(3)), 1) == -2);
    wrong.submit = read_too_much;
    cpu->backend = &wrong;
    too_far = 19; // within it
    ct_tensor y = neg(&ct__op_neg, line_of(5), 12);
    assert_true(ct_eval(&y, 1));
    too_far = 20;
    y = neg(&ct__op_neg, line_of(5), 12);
    assert_false(ct_eval(&y, 1));
    cpu->backend = &ct__backend_cpu;
    char want[200];
    snprintf(want, sizeof want,
             "t.c:12: neg: %s reads beyond the end of its argument 0, a buffer of 20 bytes",
             reader);
    assert_error(CT_E_CHECK, want);
    end(NULL);
}

// Sums of f16 are made in f32: large ones are compared like small ones.
static void large_sums_of_halves_are_compared(void **state) {
    (void)state;
    static const double sums[] = {1200, 12800, 19200, 64000};
    CT_SCOPE;
    ct_tensor sum = ct_sum(ct_ones(CT_F16, CT_DIMS(64)));
    uint32_t out;
    const ct_node *node = ct__peek(sum, &out);
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        uint16_t want = (uint16_t)ct__encode_float(CT_F16, sums[i]),
                 got = (uint16_t)ct__encode_float(CT_F16, 3);
        assert_int_equal(ct__check_compare(node, out, NULL, &want, &want, &want).count, 0);
        assert_int_equal(ct__check_compare(node, out, NULL, &got, &want, &want).count, 1);
    }
}

// How many units of the last place of 1 a result of ones may be off by.
static double allowed_units(ct_tensor t) {
    uint32_t out;
    const ct_node *node = ct__peek(t, &out);
    ct_dtype dtype = ct_dtype_of(t);
    int64_t n = ct_size(t);
    double eps = dtype == CT_F64 ? 0x1p-52 : 0x1p-23;
    void *want = calloc((size_t)n, 8), *got = calloc((size_t)n, 8);
    assert_true(want && got);
    for (int64_t i = 0; i < n; i++) {
        ct__store_f64(dtype, want, i, 1);
        ct__store_f64(dtype, got, i, 1);
    }
    ct__store_f64(dtype, got, 0, 1.5);
    ct_check_difference d = ct__check_compare(node, out, NULL, got, want, want);
    assert_int_equal(d.count, 1);
    free(want);
    free(got);
    return d.allowed / eps;
}

// Half a unit for each addition behind an element, and two; in f64 the reference's own too.
static void bounds_grow_with_the_chain(void **state) {
    (void)state;
    static const struct {
        ct_dtype dtype;
        double running, product, sum;
    } want[] = {{CT_F32, 2 + 514, 2 + 136, 2 + 68},
                {CT_F64, 2 + 514 + 2010, 2 + 136 + 2048, 2 + 68 + 2048}};
    for (int i = 0; i < 2; i++) {
        CT_SCOPE;
        ct_dtype d = want[i].dtype;
        ct_tensor many = ct_ones(d, CT_DIMS(3, 4020)), row = ct_ones(d, CT_DIMS(4096));
        ct_tensor a = ct_ones(d, CT_DIMS(2, 4096)), b = ct_ones(d, CT_DIMS(4096, 5));
        assert_float_equal(allowed_units(ct_cumsum(many, .axis = 1)), want[i].running, 0);
        assert_float_equal(allowed_units(ct_cumsum(many, .axis = 0)), (i ? 5.0F : 3.5F), 0);
        assert_float_equal(allowed_units(ct_matmul(a, b)), want[i].product, 0);
        assert_float_equal(allowed_units(ct_sum(row)), want[i].sum, 0);
    }
}

// Equal numbers err to one side at every addition.
static void long_running_sums_pass(void **state) {
    (void)state;
    static const ct_dtype dtypes[] = {CT_F32, CT_F16, CT_BF16, CT_F64};
    for (int i = 0; i < 4; i++) {
        CT_SCOPE;
        ct_tensor x = ct_cast(ct_f(0.073), dtypes[i]);
        ct_tensor t = ct_cumsum(ct_expand(x, CT_DIMS(100000)));
        assert_true(ct_eval(&t, 1));
        assert_ok();
    }
}

// Where sin and cos promise nothing they are not called wrong; to there they are right.
static void large_angles_are_not_compared(void **state) {
    (void)state;
    static const double angles[] = {1e300, -0x1.8p60,        0x1.fffffffffffffp51,
                                    3e15,  -0x1.91eb851ep45, 7};
    CT_SCOPE;
    ct_tensor x = ct_from(angles, CT_F64, CT_DIMS(6));
    ct_tensor y[] = {ct_sin(x), ct_cos(x), ct_sin(ct_cast(x, CT_F32)), ct_cos(ct_cast(x, CT_F32))};
    assert_true(ct_eval(y, 4));
    assert_ok();
}

static void a_step_stays_in_its_bounds(void **state) {
    (void)state;
    assert_int_equal(with("bounds,nan"), 0);
    ct_params *set = ct_params_new();
    ct_tensor w = ct_param(set, "w", CT_F32, CT_DIMS(7, 5)), g;
    for (int step = 0; step < 3; step++) {
        CT_SCOPE;
        if (step == 0) ct_assign(w, ct_random_normal(ct_random_key(1), CT_DIMS(7, 5)));
        ct_tensor y = ct_softmax(ct_matmul(ct_ones(CT_F32, CT_DIMS(3, 7)), w));
        ct_grad(ct_sum(ct_square(y)), &w, 1, &g);
        ct_assign(w, ct_sub(w, ct_mul(g, ct_f(0.1))));
        assert_ok();
    }
    assert_ok();
    ct_params_free(set);
    end(NULL);
}

static void nonsense_is_refused(void **state) {
    (void)state;
    assert_int_equal(with("nam"), -1);
    assert_error(CT_E_USAGE, "COTAN_CHECK: there is no check \"nam\": the variable is a list "
                             "of ref, nan and bounds\n  hint: did you mean nan?");
    end(NULL);
    assert_int_equal(with("ref,"), -1);
    assert_error(
        CT_E_USAGE,
        "COTAN_CHECK: nothing follows the comma: the variable is a list of ref, nan and bounds");
    end(NULL);
    assert_int_equal(with(""), 0);
    end(NULL);
}

static void dry_devices_check_nothing(void **state) {
    (void)state;
    device = "dry:cpu";
    assert_int_equal(with("ref,nan"), 0);
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 2);
    {
        CT_SCOPE;
        ct_assign(w, ct_log(ct_sub(w, ct_f(3))));
    }
    assert_ok();
    ct_params_free(set);
    end(NULL);
    device = NULL;
}

#define ALL(name, begin) cmocka_unit_test_setup_teardown(name, begin, end)
static const struct CMUnitTest tests[] = {ALL(large_sums_of_halves_are_compared, with_ref),
                                          ALL(bounds_grow_with_the_chain, with_ref),
                                          ALL(long_running_sums_pass, with_ref),
                                          ALL(large_angles_are_not_compared, with_ref),
                                          ALL(ref_names_the_wrong_kernel, with_ref),
                                          ALL(ref_names_it_in_a_loop, with_ref),
                                          ALL(ref_finds_a_fault_of_the_plan, with_ref),
                                          ALL(ref_names_the_first_of_a_plan, with_ref),
                                          ALL(right_steps_pass, with_ref),
                                          ALL(right_steps_pass, with_nan),
                                          ALL(nan_names_op_and_inputs, with_nan),
                                          ALL(nan_names_the_overflow_behind_it, with_nan),
                                          ALL(nan_names_the_index_behind_it, with_nan),
                                          ALL(nan_in_what_was_given, with_nan),
                                          ALL(nan_leaves_variables, with_nan),
                                          ALL(nan_in_a_loop, with_nan),
                                          ALL(wanted_infinities_pass, with_nan),
                                          ALL(ref_names_the_wrong_kernel, with_both),
                                          ALL(nan_names_op_and_inputs, with_both),
                                          ALL(nan_leaves_variables, with_both),
                                          ALL(wanted_infinities_pass, with_both)};

int main(void) {
    static const struct CMUnitTest plain[] = {
        cmocka_unit_test(ref_without_the_check_is_not_asked),
        cmocka_unit_test(bounds_name_who_writes_behind_a_buffer),
        cmocka_unit_test(bounds_name_who_reads_behind_a_buffer),
        cmocka_unit_test(a_step_stays_in_its_bounds),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(dry_devices_check_nothing)};
    int failed = cmocka_run_group_tests(plain, NULL, NULL);
    static const char *const devices[] = {"cpu", "async:cpu"};
    for (int i = 0; i < 2; i++) {
        device = devices[i];
        failed += cmocka_run_group_tests(tests, NULL, NULL);
    }
    return failed;
}
