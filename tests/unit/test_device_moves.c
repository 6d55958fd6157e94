// Tensors on several devices of one context.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cotan/optim.h"
#include "cotan/profile.h"
#include "support/record.h"

#define TEST(name) cmocka_unit_test_setup_teardown(name, cpu_begin, record_end)

static int cpu_begin(void **state) { return record_begin(state) || !ct_set_device("cpu"); }

static const char *const others[] = {"ref", "cpu:1", "async:ref", "async:cpu"};
enum { N_OTHERS = sizeof others / sizeof *others };

// Element i of t.
static ct_tensor values(int rows, int columns) { // of no pattern
    float v[64];
    for (int i = 0; i < rows * columns; i++) v[i] = (float)((i * 37 + 11) % 19 - 9) / 8;
    return ct_from(v, CT_F32, CT_DIMS(rows, columns));
}
static ct_tensor sent(ct_tensor t, const char *device) { return device ? ct_to(t, device) : t; }

static size_t copy(ct_tensor t, float *to) {
    const float *v = ct_data(t);
    assert_ok();
    assert_non_null(v);
    memcpy(to, v, (size_t)ct_size(t) * sizeof *to);
    return (size_t)ct_size(t);
}

// -------------------------------------------------------------------------------------- equal bits

// Half of it on another device; the gradients of both halves.
static void half_elsewhere(const char *device, float *out) {
    CT_SCOPE;
    ct_tensor x = values(2, 3), w = values(3, 2);
    ct_tensor h = ct_matmul(x, w), there = sent(h, device);
    ct_tensor y = ct_mul(ct_add(there, ct_f(1)), there);
    ct_tensor wrt[2] = {x, w}, g[2], back = sent(y, device ? "cpu" : NULL);
    ct_grad(ct_sum(back), wrt, 2, g);
    ct_tensor all[3] = {back, g[0], g[1]};
    assert_true(ct_eval(all, 3));
    for (int i = 0; i < 3; i++) out += copy(all[i], out);
}

static void a_half_on_another_device_has_equal_bits(void **state) {
    (void)state;
    float here[16] = {0}, there[16];
    half_elsewhere(NULL, here);
    for (size_t d = 0; d < N_OTHERS; d++) {
        memset(there, 0, sizeof there);
        half_elsewhere(others[d], there);
        assert_memory_equal(here, there, sizeof here);
    }
}

// The same half, within transforms: x is sent there and back.
static void there_and_back(const ct_tensor *in, ct_tensor *out, void *user) {
    const char *device = user;
    ct_tensor y = sent(ct_sin(in[0]), device);
    y = ct_softmax(ct_mul(y, ct_add(y, ct_f(2))), .axes = CT_AXES(-1));
    out[0] = sent(y, device ? "cpu" : NULL);
}
static void squares(const ct_tensor *in, ct_tensor *out, void *user) {
    there_and_back(in, out, user);
    out[0] = ct_sum(ct_mul(out[0], out[0]));
}

static void transformed(const char *device, float *out) {
    CT_SCOPE;
    void *user = (void *)(uintptr_t)device;
    ct_tensor x = values(4, 3), t = values(4, 3), v, tangent, loss, g, mapped, kept, again;
    ct_jvp(there_and_back, user, &x, 1, &v, 1, &t, &tangent);
    ct_value_and_grad(squares, user, &x, 1, &loss, 1, &g);
    ct_vmap(.f = there_and_back, .user = user, .in = &x, .n_in = 1, .out = &mapped, .n_out = 1);
    ct_remat(.f = squares, .user = user, .in = &x, .n_in = 1, .out = &kept, .n_out = 1);
    ct_grad(kept, &x, 1, &again);
    ct_tensor all[7] = {v, tangent, loss, g, mapped, kept, again};
    for (int i = 0; i < 7; i++) assert_string_equal(ct_device_of(all[i]), "cpu");
    assert_true(ct_eval(all, 7));
    for (int i = 0; i < 7; i++) out += copy(all[i], out);
}

static void transforms_go_through_a_transfer(void **state) {
    (void)state;
    float here[80] = {0}, there[80];
    transformed(NULL, here);
    for (size_t d = 0; d < N_OTHERS; d++) {
        memset(there, 0, sizeof there);
        transformed(others[d], there);
        assert_ok();
        // Device ref computes in double: its bits are its own.
        for (int i = 0; i < 80 && strstr(others[d], "ref"); i++)
            assert_true(fabsf(here[i] - there[i]) <= 1e-5f);
        if (!strstr(others[d], "ref")) assert_memory_equal(here, there, sizeof here);
    }
}

// ---------------------------------------------------------------------------------------- training

enum { STEPS = 4, N_PARAMS = 4 };

// A network whose second half lies on another device, if one is given; what it learned, then its losses.
static void train(const char *device, bool moves, float *out) {
    ct_params *set = ct_params_new();
    ct_tensor p[N_PARAMS];
    const char *const names[N_PARAMS] = {"w0", "b0", "w1", "b1"};
    {
        CT_SCOPE;
        const ct_tensor first[N_PARAMS] = {values(3, 5), values(1, 5), values(5, 2), values(1, 2)};
        const int64_t dims[N_PARAMS][2] = {{3, 5}, {1, 5}, {5, 2}, {1, 2}};
        for (int i = 0; i < N_PARAMS; i++) {
            p[i] = ct_param(set, names[i], CT_F32, CT_DIMS(dims[i][0], dims[i][1]));
            ct_assign(p[i], i < 2 || moves ? first[i] : sent(first[i], device));
        }
    }
    assert_ok();
    ct_optim *adam = ct_adam(set, .lr = 0.1);
    assert_non_null(adam);
    for (int i = 2; i < N_PARAMS && moves; i++) ct_move(p[i], device);
    for (int step = 0; step < STEPS; step++) {
        CT_SCOPE;
        ct_tensor h = ct_relu(ct_add(ct_matmul(values(4 + step % 2, 3), p[0]), p[1]));
        ct_tensor y = ct_add(ct_matmul(sent(h, device), p[2]), p[3]);
        ct_tensor loss = ct_mean(ct_mul(y, y));
        ct_optim_step(adam, loss);
        *out++ = (float)ct_item(loss);
        assert_ok();
    }
    for (int i = 0; i < N_PARAMS; i++) {
        if (device && i >= 2) assert_string_equal(ct_device_of(p[i]), device);
        out += copy(p[i], out);
    }
    ct_optim_free(adam);
    ct_params_free(set);
}

static void half_a_network_learns_the_same_elsewhere(void **state) {
    (void)state;
    enum { N = STEPS + 15 + 5 + 10 + 2 };
    float here[N], there[N];
    train(NULL, false, here);
    assert_true(here[STEPS - 1] < here[0]);
    for (int moves = 0; moves < 2; moves++) {
        train("async:cpu", moves, there);
        assert_memory_equal(here, there, sizeof here);
        train("cpu:1", moves, there);
        assert_memory_equal(here, there, sizeof here);
        train("ref", moves, there);
        for (int i = 0; i < N; i++) assert_true(fabsf(here[i] - there[i]) <= 1e-4f);
    }
}

// ----------------------------------------------------------------------------------------- devices

static void results_lie_where_operands_lie(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = ct_zeros(CT_F32, CT_DIMS(3)), y = ct_to(x, "async:ref");
    assert_string_equal(ct_device_of(x), "cpu");
    assert_string_equal(ct_device_of(ct_exp(ct_mul(y, ct_f(2)))), "async:ref");
    assert_string_equal(ct_device_of(ct_softmax(y)), "async:ref");
    assert_string_equal(ct_device_of(ct_topk(y, 2).values), "async:ref");
    assert_string_equal(ct_device_of(ct_to(y, "cpu")), "cpu");
    assert_true(ct_to(y, "async:ref").bits == y.bits);
    assert_null(ct_device_of(CT_NONE));
}

// Of complex numbers, packed integers and bools.
static void any_dtype_goes_there_and_back(void **state) {
    (void)state;
    static const ct_dtype dtypes[] = {CT_C64, CT_C128, CT_BOOL, CT_I4,
                                      CT_U64, CT_F64,  CT_BF16, CT_F8E4M3};
    CT_SCOPE;
    for (size_t d = 0; d < N_OTHERS; d++)
        for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
            ct_tensor x = ct_cast(ct_abs(values(3, 4)), dtypes[i]), there = ct_to(x, others[d]);
            const char *back = ct_data(ct_to(ct_reshape(there, CT_DIMS(4, 3)), "cpu")),
                       *as = ct_data(x);
            assert_ok();
            assert_int_equal(ct_dtype_of(there), dtypes[i]);
            assert_memory_equal(back, as, 12 * ct_dtype_bits(dtypes[i]) / 8);
        }
}

static void values_are_read_kept_and_metered(void **state) {
    (void)state;
    for (size_t d = 0; d < N_OTHERS; d++) {
        ct_tensor kept, later;
        {
            CT_SCOPE;
            kept = ct_keep(ct_mul(ct_to(line_of(3), others[d]), ct_f(2)));
            ct_metric("sum", ct_sum(kept));
        }
        assert_ok();
        assert_string_equal(ct_device_of(kept), others[d]);
        assert_true(at(kept, 2) == 6 && ct_metric_value("sum") == 12);
        {
            CT_SCOPE;
            later = ct_sum(ct_mul(kept, kept));
            assert_string_equal(ct_device_of(later), others[d]);
            assert_true(ct_item(later) == 56);
            // A scalar goes anywhere.
            assert_true(at(ct_add(line_of(3), later), 0) == 57);
        }
        ct_drop(kept);
        assert_ok();
    }
}

static void another_context_reads_what_lies_elsewhere(void **state) {
    (void)state;
    ct_tensor kept;
    {
        CT_SCOPE;
        kept = ct_keep(ct_to(line_of(3), "async:cpu"));
    }
    ct_ctx *own = ct_ctx_new(), *before = ct_ctx_use(own);
    {
        CT_SCOPE;
        assert_string_equal(ct_device_of(kept), "async:cpu");
        assert_true(at(ct_mul(kept, ct_f(3)), 1) == 6);
        assert_ok();
    }
    ct_ctx_use(before);
    ct_ctx_free(own);
}

static void variables_lie_where_their_first_value_lies(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = ct_param(set, "w", CT_F32, CT_DIMS(3));
    ct_tensor n = ct_param(set, "n", CT_F32, CT_DIMS(3));
    {
        CT_SCOPE;
        ct_assign(w, ct_to(line_of(3), "ref"));
        ct_assign(n, line_of(3));
    }
    assert_string_equal(ct_device_of(w), "ref");
    {
        CT_SCOPE;
        ct_tensor moved = ct_to(n, "ref"); // a value, which the variable is not
        ct_assign(w, ct_add(w, moved));
        assert_string_equal(ct_device_of(n), "cpu");
    }
    assert_true(at(w, 2) == 6);
    {
        CT_SCOPE;
        ct_tensor old = ct_keep(ct_mul(w, ct_f(2)));
        ct_move(w, "cpu:1"); // what is pending runs before
        assert_string_equal(ct_device_of(w), "cpu:1");
        assert_string_equal(ct_device_of(old), "ref");
        assert_true(at(old, 2) == 12 && at(ct_add(w, ct_f(1)), 2) == 7);
    }
    ct_params_move(set, "async:cpu");
    for (int i = 0; i < 2; i++)
        assert_string_equal(ct_device_of(ct_params_get(set, (size_t)i)), "async:cpu");
    {
        CT_SCOPE;
        const float ones[3] = {1, 1, 1};
        ct_assign(w, ct_add(w, n));
        ct_assign(n, ct_const(ones, CT_F32, CT_DIMS(3)));
    }
    assert_true(at(w, 2) == 9 && at(n, 2) == 1);
    assert_ok();
    ct_params_free(set);
}

// Sums of a step's parts go where the parameters went; a loss that was recorded before they went reads what is
// not there any more.
static void what_an_optimizer_adds_up_follows(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = ct_param(set, "w", CT_F32, CT_DIMS(3));
    {
        CT_SCOPE;
        ct_assign(w, line_of(3));
    }
    ct_optim *sgd = ct_sgd(set, .lr = 0.5);
    for (int k = 0; k < 4; k++) {
        CT_SCOPE;
        if (k == 2) ct_params_move(set, "cpu:1");
        ct_tensor loss = ct_sum(ct_mul(w, w));
        if (k % 2)
            ct_optim_step(sgd, loss);
        else
            ct_optim_accumulate(sgd, loss);
    }
    assert_ok();
    assert_string_equal(ct_device_of(w), "cpu:1");
    assert_true(at(w, 2) == 0);
    {
        CT_SCOPE;
        ct_tensor before = ct_mul(w, ct_f(2));
        ct_move(w, "cpu");
        assert_true(isnan(ct_item(ct_sum(before))));
        assert_non_null(strstr(ct_error_text(), "w"));
        ct_error_clear();
        assert_true(ct_item(ct_sum(ct_mul(w, ct_f(2)))) == 0);
    }
    ct_optim_free(sgd);
    ct_params_free(set);
}

static uint64_t launches_of_attention(int64_t T) {
    CT_SCOPE;
    const uint64_t before = ct_get_stats().launches;
    ct_tensor x = ct_ones(CT_F32, CT_DIMS(1, 2, T, 8));
    ct_tensor y = ct_attention(x, x, x, .causal = true); // (1, 2, T, 8)
    assert_false(isnan(ct_item(ct_sum(y))));
    assert_ok();
    return ct_get_stats().launches - before;
}

// A device that evaluates op by op, and was of use once, changes no plan of others: attention stays one kernel,
// not one or more a block of keys. A size that has become dynamic may take a launch more.
static void plans_of_one_device_are_as_ever(void **state) {
    (void)state;
    const uint64_t launches = launches_of_attention(200);
    {
        CT_SCOPE;
        assert_true(ct_item(ct_sum(ct_to(line_of(3), "ref"))) == 6);
    }
    assert_in_range(launches_of_attention(201), launches, launches + 1);
}

// ------------------------------------------------------------------------------------------ errors

static void a_device_that_tensors_were_sent_to_is_not_made_the_own_one(void **state) {
    (void)state;
    {
        CT_SCOPE;
        assert_true(ct_item(ct_sum(ct_to(line_of(3), "cpu:1"))) == 6);
    }
    assert_false(ct_set_device("cpu:1"));
    assert_string_equal(
        ct_error_text(),
        "set_device: tensors of this context were sent to cpu:1, which was not its own device\n"
        "  hint: set the device before anything is sent there");
    ct_error_clear();
    assert_true(ct_set_device("ref"));
    assert_true(ct_set_device("cpu"));
}

static char text[900];
__attribute__((format(printf, 1, 2))) static const char *said(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return text;
}
#define FILE_ "tests/unit/test_device_moves.c"

static void tensors_of_two_devices_do_not_mix(void **state) {
    (void)state;
    CT_SCOPE;
    float v[2] = {1, 2};
    ct_tensor x = ct_from(v, CT_F32, CT_DIMS(2));
    const int made = __LINE__ - 1;
    ct_tensor y = ct_to(x, "ref");
    assert_true(ct_ok(ct_add(y, ct_const(v, CT_F32, CT_DIMS(2)))));
    assert_true(ct_ok(ct_add(y, ct_sum(x))));
    assert_false(ct_ok(ct_add(x, y)));
    assert_error(CT_E_DEVICE,
                 said(FILE_ ":%d: add: operands are on two devices: operand 1 is (2,) f32 on cpu "
                            "(" FILE_ ":%d), operand 2 is (2,) f32 on ref (" FILE_ ":%d)\n"
                            "  hint: ct_to brings a tensor to another device",
                      made + 5, made, made + 2));
}

static void a_device_that_is_not_there_is_named(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = line_of(2);
#define KNOWN "known are cpu, ref, opencl (or opencl:1), and async: or dry: before them"
    assert_false(ct_ok(ct_to(x, "cuda")));
    assert_error(CT_E_DEVICE, said(FILE_ ":%d: to: device: there is no device \"cuda\": " KNOWN
                                         "\n  hint: programs for GPUs "
                                         "run on \"cpu\", or by OpenCL on \"opencl\"",
                                   __LINE__ - 4));
    assert_false(ct_ok(ct_to(x, NULL)));
    assert_error(CT_E_ARGUMENT,
                 said(FILE_ ":%d: to: the device's name must not be NULL", __LINE__ - 2));
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 1);
    ct_move(w, "abacus");
    assert_error(CT_E_DEVICE, said(FILE_ ":%d: move: device: there is no device \"abacus\": " KNOWN,
                                   __LINE__ - 2));
    ct_move(x, "ref");
    assert_error(CT_E_ARGUMENT,
                 said(FILE_ ":%d: move: the first operand is no variable", __LINE__ - 2));
    ct_params_free(set);
}

static void a_value_of_another_device_is_not_assigned(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 1);
    assert_true(at(w, 0) == 1);
    CT_SCOPE;
    ct_assign(w, ct_to(line_of(2), "ref"));
    assert_error(CT_E_DEVICE,
                 said(FILE_ ":%d: assign: variable \"w\" is (2,) f32 on cpu, the value is (2,) f32 "
                            "on ref\n  hint: ct_to brings the value there, ct_move the variable",
                      __LINE__ - 4));
    assert_true(at(w, 0) == 1);
    ct_params_free(set);
}

static void moves(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_to(ct_neg(ct_to(in[0], "ref")), "cpu");
    out[1] = in[1];
}
static void moves_one(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_tensor both[2];
    moves((ct_tensor[]){in[0], in[0]}, both, user);
    ct_call(moves, user, both, 2, both, 2);
    out[0] = both[0];
}

static void loops_run_on_one_device(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = values(4, 3), first = line_of(3), out, ys;
    ct_scan(&out, &ys, .body = moves, .carry = &first, .n_carry = 1, .xs = &x, .n_xs = 1,
            .n_ys = 1);
    assert_non_null(strstr(
        ct_error_text(),
        ": scan: the body brings (3,) f32 from cpu to ref: a loop or a branch runs on one device\n"
        "  hint: ct_to before or after it"));
    ct_error_clear();
    ct_cond(&out, .pred = ct_scalar(1, CT_BOOL), .then = moves_one, .otherwise = moves_one,
            .in = &first, .n_in = 1, .n_out = 1);
    assert_non_null(strstr(ct_error_text(), ": cond: the body brings (3,) f32 from cpu to ref: "));
    ct_error_clear();
}

// -------------------------------------------------------------------------- checks, explanations

static void checks_look_into_each_piece(void **state) {
    (void)state;
    static const char *const checks[] = {"ref", "nan", "bounds", "ref,nan,bounds"};
    for (size_t c = 0; c < 4; c++) {
        setenv("COTAN_CHECK", checks[c], 1);
        ct_ctx *own = ct_ctx_new(), *before = ct_ctx_use(own);
        float out[16], losses[64];
        half_elsewhere("async:cpu", out);
        half_elsewhere("ref", out);
        train("cpu:1", false, losses);
        assert_ok();
        if (strstr(checks[c], "nan")) {
            CT_SCOPE;
            ct_tensor bad = ct_log(ct_neg(ct_to(line_of(2), "cpu:1")));
            const int line = __LINE__ - 1;
            assert_false(ct_eval(&bad, 1));
            assert_non_null(strstr(ct_error_text(), said(FILE_ ":%d: log: made 2 NaN", line)));
            ct_error_clear();
        }
        ct_ctx_use(before);
        ct_ctx_free(own);
    }
    unsetenv("COTAN_CHECK");
}

static void plans_say_their_devices(void **state) {
    (void)state;
    float out[16];
    setenv("COTAN_EXPLAIN", "1", 1);
    record_forget();
    half_elsewhere("cpu:1", out);
    unsetenv("COTAN_EXPLAIN");
    assert_non_null(strstr(record_log, ", 3 subplans on cpu, cpu:1): the first of this line"));
    const ct_plan_cost *cost = ct_latest_plan();
    size_t here = 0, there = 0;
    for (size_t i = 0; i < cost->n_launches; i++) {
        here += !strcmp(cost->launches[i].device, "cpu");
        there += !strcmp(cost->launches[i].device, "cpu:1");
    }
    assert_true(here && there && here + there == cost->n_launches);
}

static void profiles_say_devices_and_transfers(void **state) {
    (void)state;
    float out[16];
    half_elsewhere("async:ref", out); // its plan is made
    assert_true(ct_profile_begin());
    half_elsewhere("async:ref", out);
    assert_true(ct_profile_end(NULL, false));
    const ct_profile *p = ct_profile_result();
    double to = 0, from = 0;
    bool here = false, there = false;
    for (size_t i = 0; i < p->n_rows; i++) {
        const ct_profile_row *r = &p->rows[i];
        if (!strcmp(r->name, "transfer from cpu") && !strcmp(r->device, "async:ref"))
            to += r->bytes;
        if (!strcmp(r->name, "transfer from async:ref") && !strcmp(r->device, "cpu"))
            from += r->bytes;
        here |= r->kind == CT_PROFILE_KERNEL && !strcmp(r->device, "cpu");
        there |= r->kind == CT_PROFILE_OP && !strcmp(r->device, "async:ref");
    }
    assert_true(here && there);
    assert_true(to >= 4 * sizeof(float) && from >= 4 * sizeof(float));
    assert_non_null(strstr(ct_profile_table(), "  device\n"));
    assert_non_null(strstr(ct_profile_table(), "  async:ref\n"));
}

static void what_is_written_runs_on_one_device(void **state) {
    (void)state;
    CT_SCOPE;
    ct_keep(ct_neg(ct_to(line_of(3), "cpu:1")));
    const int line = __LINE__ + 1;
    assert_false(ct_compile(.path = "/tmp/never_written"));
    assert_error(
        CT_E_DEVICE,
        said(FILE_
             ":%d: compile: tensors are on several devices: the exported function runs on one",
             line));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_half_on_another_device_has_equal_bits),
        TEST(transforms_go_through_a_transfer),
        TEST(half_a_network_learns_the_same_elsewhere),
        TEST(results_lie_where_operands_lie),
        TEST(any_dtype_goes_there_and_back),
        TEST(values_are_read_kept_and_metered),
        TEST(another_context_reads_what_lies_elsewhere),
        TEST(variables_lie_where_their_first_value_lies),
        TEST(what_an_optimizer_adds_up_follows),
        TEST(plans_of_one_device_are_as_ever),
        TEST(a_device_that_tensors_were_sent_to_is_not_made_the_own_one),
        TEST(tensors_of_two_devices_do_not_mix),
        TEST(a_device_that_is_not_there_is_named),
        TEST(a_value_of_another_device_is_not_assigned),
        TEST(loops_run_on_one_device),
        TEST(checks_look_into_each_piece),
        TEST(plans_say_their_devices),
        TEST(profiles_say_devices_and_transfers),
        TEST(what_is_written_runs_on_one_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
