// Loops of small launches as one kernel: the same bits as launches have, one kernel for all lengths,
// no launch an iteration, and a way to stop.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/record.h"

static uint64_t random_state;
static float random_float(void) { // in [-2, 2)
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(random_state >> 32) * 0x1p-30f;
}
static ct_tensor random_tensor(ct_dtype dtype, ct_ints dims) {
    float v[4096];
    int64_t n = 1;
    for (int64_t i = 0; i < dims.n; i++) n *= dims.v[i];
    assert_true(n <= 4096);
    for (int64_t i = 0; i < n; i++) v[i] = random_float();
    return ct_cast(ct_from(v, CT_F32, dims), dtype);
}

// ---------------------------------------------------------------------------------- bodies of loops

enum { LENGTH = 37, WIDTH = 5 };

static void leaky(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = out[1] = ct_tanh(ct_add(in[0], in[1]));
}
// Reductions, and a captured matrix.
static void attends(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_tensor w = *(ct_tensor *)user; // (WIDTH, WIDTH)
    ct_tensor row = ct_matmul(ct_reshape(in[0], CT_DIMS(1, WIDTH)), w);
    ct_tensor h = ct_tanh(ct_add(ct_reshape(row, CT_DIMS(WIDTH)), in[1]));
    out[0] = ct_sub(h, ct_mean(h));
    out[1] = ct_mul(ct_softmax(h, .axes = CT_AXES(-1)), in[1]);
}
static void halves(const ct_tensor *in, ct_tensor *out, void *user) { // the next: the one before
    (void)user;
    out[0] = ct_mul(in[0], ct_cast(ct_f(0.5), CT_F32));
    out[1] = ct_sum(in[0], .keepdims = true);
}
static void adds(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_add(in[0], in[1]);
    out[1] = ct_max(out[0], .keepdims = true);
}
static void chooses(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_cond(out, .pred = ct_greater(ct_sum(in[1]), ct_f(0)), .then = halves, .otherwise = adds,
            .user = user, .in = in, .n_in = 2, .n_out = 2);
}
// A loop in the loop, backwards, over the elements of x.
static void inner(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_add(ct_mul(in[0], ct_cast(ct_f(0.75), ct_dtype_of(in[0]))), in[1]);
    out[1] = ct_sin(out[0]);
}
static void nests(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    ct_tensor last, ys, sum = ct_sum(in[0]);
    ct_scan(&last, &ys, .body = inner, .carry = &sum, .n_carry = 1, .xs = &in[1], .n_xs = 1,
            .n_ys = 1, .reverse = true);
    out[0] = ct_mul(ct_add(in[0], last), ct_cast(ct_f(0.125), ct_dtype_of(in[0])));
    out[1] = ys; // (WIDTH,)
}

typedef struct {
    const char *name;
    ct_fn body;
    ct_dtype dtype;
    bool reverse;
    int64_t width_y;
} loop_case;
static const loop_case cases[] = {
    {"leaky", leaky, CT_F32, false, WIDTH},    {"leaky", leaky, CT_BF16, true, WIDTH},
    {"leaky", leaky, CT_F64, true, WIDTH},     {"attends", attends, CT_F32, false, WIDTH},
    {"attends", attends, CT_F32, true, WIDTH}, {"chooses", chooses, CT_F32, false, 1},
    {"nests", nests, CT_F32, false, WIDTH},    {"nests", nests, CT_F16, true, WIDTH},
};
enum { CASES = sizeof cases / sizeof *cases, MOST = 8192 };

// The bytes of all results and gradients of a case.
static size_t run_case(const loop_case *c, unsigned char *bytes) {
    CT_SCOPE;
    random_state = 20261123;
    ct_tensor w = random_tensor(c->dtype, CT_DIMS(WIDTH, WIDTH)),
              h = random_tensor(c->dtype, CT_DIMS(WIDTH)),
              xs = random_tensor(c->dtype, CT_DIMS(LENGTH, WIDTH)), all[5], wrt[3] = {h, xs, w};
    ct_scan(&all[0], &all[1], .body = c->body, .user = &w, .carry = &h, .n_carry = 1, .xs = &xs,
            .n_xs = 1, .n_ys = 1, .reverse = c->reverse);
    ct_tensor loss = ct_add(ct_sum(all[0]), ct_sum(ct_mul(all[1], all[1])));
    int n_wrt = c->body == attends ? 3 : 2;
    ct_grad(loss, wrt, (size_t)n_wrt, &all[2]);
    size_t n = 2 + (size_t)n_wrt, at = 0;
    if (!ct_eval(all, n)) fail_msg("%s: %s", c->name, ct_error_text());
    for (size_t i = 0; i < n; i++) {
        size_t size = ct_dtype_size(ct_dtype_of(all[i]));
        for (int a = 0; a < ct_rank(all[i]); a++) size *= (size_t)ct_dim(all[i], a);
        assert_true(at + size <= MOST);
        memcpy(bytes + at, ct_data(all[i]), size);
        at += size;
    }
    return at;
}

// Launches as they are without fusion, one kernel compiled, and one interpreted.
static void one_kernel_has_the_bits_of_launches(void **state) {
    (void)state;
    static unsigned char want[CASES][MOST], got[MOST];
    size_t n[CASES];
    ct_ctx *before = ct_ctx_current();
    const struct {
        const char *variable, *value;
    } ways[] = {{"COTAN_FUSE", "0"}, {"COTAN_COMPILE", "wait"}, {"COTAN_CC", "none"}};
    for (int way = 0; way < 3; way++) {
        setenv(ways[way].variable, ways[way].value, 1);
        ct_ctx *ctx = ct_ctx_new();
        assert_non_null(ctx);
        ct_ctx_use(ctx);
        assert_true(ct_set_device("cpu"));
        for (int i = 0; i < CASES; i++) {
            size_t size = run_case(&cases[i], way ? got : want[i]);
            if (!way) n[i] = size;
            assert_int_equal(size, n[i]);
            for (size_t k = 0; k < size && way; k++)
                if (got[k] != want[i][k])
                    fail_msg("case %d (%s) with %s=%s: byte %zu differs", i, cases[i].name,
                             ways[way].variable, ways[way].value, k);
        }
        unsetenv(ways[way].variable);
        ct_ctx_use(before);
        ct_ctx_free(ctx);
    }
}

// --------------------------------------------------------------------------------------- how often

// length: marked by CT_DYN or not.
static void launch_leaky(int64_t length, bool gradient, const ct_plan_cost **cost) {
    static float x[WIDTH];
    ct_tensor h = ct_from(x, CT_F32, CT_DIMS(WIDTH)), xs = ct_expand(h, CT_DIMS(length, WIDTH)),
              all[3], wrt[2] = {h, xs};
    ct_scan(&all[0], &all[1], .body = leaky, .carry = &h, .n_carry = 1, .xs = &xs, .n_xs = 1,
            .n_ys = 1);
    if (gradient) ct_grad(ct_sum(all[0]), wrt, 2, &all[1]);
    if (!ct_eval(all, gradient ? 3 : 2)) fail_msg("%s", ct_error_text());
    *cost = ct_latest_plan();
    assert_non_null(*cost);
}

// Ten steps and ten thousand: as many plans and launches written down, the same kernels of loops.
static void all_lengths_have_the_same_kernels(void **state) {
    (void)state;
    if (!ct_set_device("cpu")) fail_msg("%s", ct_error_text());
    for (int gradient = 0; gradient < 2; gradient++) {
        char names[2][8][40];
        size_t n[2] = {0}, launches[2], kernels[2];
        for (int k = 0; k < 2; k++) {
            CT_SCOPE;
            const ct_plan_cost *c;
            uint64_t plans = plans_made();
            launch_leaky(k ? 10000 : 10, gradient, &c);
            assert_int_equal(plans_made() - plans, 1);
            launches[k] = c->n_launches;
            kernels[k] = c->n_kernels;
            for (size_t i = 0; i < c->n_launches; i++) {
                const ct_plan_launch *l = &c->launches[i];
                if (strcmp(l->op, "scan") != 0 || strcmp(l->kernel, "copy") == 0) continue;
                assert_int_equal(l->executions, k ? 10 : 1);
                snprintf(names[k][n[k]++], sizeof names[k][0], "%s", l->kernel);
            }
        }
        assert_int_equal(n[0], gradient ? 3 : 1);
        assert_int_equal(n[0], n[1]);
        // What is small shares a launch with others.
        assert_true(launches[0] <= launches[1]);
        assert_int_equal(kernels[0], kernels[1]);
        for (size_t i = 0; i < n[0]; i++) assert_string_equal(names[0][i], names[1][i]);
    }
}

// With a dynamic length ten steps and ten thousand have one plan, and nothing is compiled anew.
static void a_dynamic_length_has_one_plan(void **state) {
    (void)state;
    if (!ct_set_device("cpu")) fail_msg("%s", ct_error_text());
    for (int gradient = 0; gradient < 2; gradient++) {
        const int64_t length[] = {10, 10000, 1024};
        size_t n_kernels = 0;
        for (int k = 0; k < 3; k++) {
            CT_SCOPE;
            const ct_plan_cost *c;
            ct_stats before = ct_get_stats();
            launch_leaky(CT_DYN(length[k]), gradient, &c);
            ct_stats after = ct_get_stats();
            assert_int_equal(after.plans_made - before.plans_made, k == 0);
            if (k == 0) n_kernels = c->n_kernels;
            assert_int_equal(c->n_kernels, n_kernels);
        }
    }
}

static void below(const ct_tensor *in, ct_tensor *out, void *user) {
    out[0] = ct_less(in[0], *(ct_tensor *)user);
}
static void counts(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_add(in[0], ct_i(1));
}

// A loop that a predicate ends takes as many launches for 1,000 iterations as for one, and one more
// for each 1,024 further ones; the host program hears nothing of it.
static void count_launches(uint64_t launches[4]) {
    if (!ct_set_device("cpu")) fail_msg("%s", ct_error_text());
    uint64_t plans = plans_made();
    for (int i = 0; i < 4; i++) {
        CT_SCOPE;
        int32_t n = (int32_t[]){1, 1000, 1025, 102401}[i], zero = 0;
        ct_tensor limit = ct_from(&n, CT_I32, CT_SCALAR), out;
        ct_tensor start = ct_from(&zero, CT_I32, CT_SCALAR);
        ct_while(&out, .cond = below, .body = counts, .user = &limit, .carry = &start,
                 .n_carry = 1);
        uint64_t before = ct_get_stats().launches;
        assert_int_equal(ct_item(out), n);
        launches[i] = ct_get_stats().launches - before;
    }
    assert_int_equal(plans_made() - plans, 1);
}

static void a_while_loop_is_one_kernel(void **state) {
    (void)state;
    ct_ctx *before = ct_ctx_current();
    const char *const ways[][2] = {{"COTAN_COMPILE", "wait"}, {"COTAN_CC", "none"}};
    for (int way = 0; way < 2; way++) {
        setenv(ways[way][0], ways[way][1], 1);
        ct_ctx *ctx = ct_ctx_new();
        assert_non_null(ctx);
        ct_ctx_use(ctx);
        uint64_t launches[4] = {0};
        count_launches(launches);
        unsetenv(ways[way][0]);
        ct_ctx_use(before);
        ct_ctx_free(ctx);
        assert_int_equal(launches[1], launches[0]);
        assert_int_equal(launches[2], launches[0] + 1);
        assert_int_equal(launches[3], launches[0] + 100);
    }
}

static void *cancel_soon(void *ctx) {
    const struct timespec wait = {.tv_nsec = 30000000};
    nanosleep(&wait, NULL);
    ct_cancel(ctx);
    return NULL;
}
static void accumulates(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_add(in[0], ct_f(1));
}

static void a_long_loop_stops_on_cancel(void **state) {
    (void)state;
    const char *const ways[] = {NULL, "none"};
    for (int i = 0; i < 2; i++) { // compiled, interpreted
        if (ways[i]) setenv("COTAN_CC", ways[i], 1);
        ct_ctx *ctx = ct_ctx_new(), *before = ct_ctx_current();
        assert_non_null(ctx);
        ct_ctx_use(ctx);
        if (!ct_set_device("cpu")) fail_msg("%s", ct_error_text());
        {
            CT_SCOPE;
            pthread_t thread;
            double zero = 0;
            ct_tensor x = ct_from(&zero, CT_F64, CT_SCALAR), out;
            ct_scan(&out, NULL, .body = accumulates, .carry = &x, .n_carry = 1,
                    .length = (int64_t)1 << 45); // years
            assert_int_equal(pthread_create(&thread, NULL, cancel_soon, ctx), 0);
            assert_true(isnan(ct_item(out)));
            pthread_join(thread, NULL);
            assert_error(CT_E_INTERRUPTED, "run: cancelled: no variable has changed");
        }
        ct_ctx_use(before);
        ct_ctx_free(ctx);
        unsetenv("COTAN_CC");
    }
}

// A small loop in a large one: a kernel in a loop of launches, each of which has many iterations.
enum { OUTER = 3, INNER = 2500, WIDE = 1 << 17 };
static void decays(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = out[1] = ct_add(ct_mul(in[0], ct_f(0.875)), in[1]);
}
static void large(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user; // in: (WIDE,) and a number carried, (INNER,)
    out[0] = ct_add(in[0], ct_f(1));
    ct_scan(&out[1], &out[2], .body = decays, .carry = &in[1], .n_carry = 1, .xs = &in[2],
            .n_xs = 1, .n_ys = 1, .reverse = true);
}
static void a_small_loop_in_a_large_one(void **state) {
    (void)state;
    if (!ct_set_device("cpu")) fail_msg("%s", ct_error_text());
    CT_SCOPE;
    static double x[OUTER * INNER];
    for (int i = 0; i < OUTER * INNER; i++) x[i] = (double)random_float();
    double zero = 0, s = 0;
    ct_tensor start[2] = {ct_zeros(CT_F32, CT_DIMS(WIDE)), ct_from(&zero, CT_F64, CT_SCALAR)};
    ct_tensor xs = ct_from(x, CT_F64, CT_DIMS(OUTER, INNER)), last[2], ys;
    ct_scan(last, &ys, .body = large, .carry = start, .n_carry = 2, .xs = &xs, .n_xs = 1,
            .n_ys = 1);
    const double *got = ct_data(ys); // (OUTER, INNER)
    assert_ok();
    for (int i = 0; i < OUTER; i++)
        for (int k = INNER - 1; k >= 0; k--) {
            s = s * 0.875 + x[i * INNER + k];
            assert_true(got[i * INNER + k] == s);
        }
    const ct_plan_cost *c = ct_latest_plan();
    int64_t times = 0;
    for (size_t i = 0; i < c->n_launches; i++)
        if (strcmp(c->launches[i].op, "scan") == 0 && c->launches[i].executions > times)
            times = c->launches[i].executions;
    assert_int_equal(times, OUTER * 3);
}

// Large bodies stay launches, which threads share.
static void large_bodies_stay_launches(void **state) {
    (void)state;
    assert_true(ct_set_device("dry:cpu"));
    CT_SCOPE;
    enum { wide = 1 << 20 };
    ct_tensor h = ct_zeros(CT_F32, CT_DIMS(wide)), out;
    ct_scan(&out, NULL, .body = accumulates, .carry = &h, .n_carry = 1, .length = 7);
    if (!ct_eval(&out, 1)) fail_msg("%s", ct_error_text());
    const ct_plan_cost *c = ct_latest_plan();
    int64_t times = 0;
    for (size_t i = 0; i < c->n_launches; i++)
        if (strcmp(c->launches[i].op, "add") == 0) times += c->launches[i].executions;
    assert_int_equal(times, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, record_begin, record_end)
        T(one_kernel_has_the_bits_of_launches), T(all_lengths_have_the_same_kernels),
        T(a_dynamic_length_has_one_plan),       T(a_while_loop_is_one_kernel),
        T(a_long_loop_stops_on_cancel),         T(a_small_loop_in_a_large_one),
        T(large_bodies_stay_launches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
