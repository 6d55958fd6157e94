// Random graphs whose ops lie on several devices, at random: the bits of the same graph on one. A third of them have
// gradients, which go back through each change of device. What a gradient has of a value's uses is added up where the
// value lies, so that behind a change of device (a + b) + c may be a + (b + c): gradients are near, and most are equal.
//
//   COTAN_FUZZ_SEED=n    another seed        COTAN_FUZZ_COUNT=n    more or fewer graphs
//   COTAN_FUZZ_ONLY=n    graph n alone
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/graph_gen.h"

enum { FEW = 120, MANY = 1500 };

typedef struct {
    int n;
    size_t bytes[GEN_RESULTS];
    ct_dtype dtype[GEN_RESULTS];
    void *data[GEN_RESULTS];
} results;

static uint64_t seed = 20261126;

static void results_free(results *r) {
    for (int i = 0; i < r->n; i++) free(r->data[i]);
    *r = (results){0};
}

// False: it failed, which is told.
static bool run(ct_ctx *ctx, const gen_graph *g, uint64_t number, results *to) {
    ct_ctx *before = ct_ctx_use(ctx);
    bool ok;
    {
        CT_SCOPE;
        ct_tensor t[GEN_RESULTS];
        to->n = 0;
        const int n = gen_record(g, 0, t);
        ok = !ct_failed() && (!n || ct_eval(t, (size_t)n));
        for (int i = 0; i < n && ok; i++) {
            to->dtype[i] = ct_dtype_of(t[i]);
            to->bytes[i] = (size_t)ct_size(t[i]) * ct_dtype_size(to->dtype[i]);
            const void *data = ct_data(t[i]);
            to->data[to->n++] = malloc(to->bytes[i] + 1);
            assert_non_null(to->data[i]);
            if (to->bytes[i]) memcpy(to->data[i], data, to->bytes[i]);
        }
        if (!ok) print_message("graph %llu: %s\n", (unsigned long long)number, ct_error_text());
        if (!ok) ct_error_clear();
    }
    ct_ctx_use(before);
    return ok;
}

// In the measure of the largest gradient of the graph, since parts may cancel.
static bool near(const results *a, const results *b, int first, int i) {
    const ct_dtype d = a->dtype[i];
    double most = 1;
    for (int k = first; k < a->n; k++)
        for (size_t e = 0; e < a->bytes[k] / ct_dtype_size(a->dtype[k]); e++) {
            const double x = fabs(ct__load_f64(a->dtype[k], a->data[k], (int64_t)e));
            if (isfinite(x) && x > most) most = x;
        }
    for (size_t e = 0; e < a->bytes[i] / ct_dtype_size(d); e++) {
        const double x = ct__load_f64(d, a->data[i], (int64_t)e),
                     y = ct__load_f64(d, b->data[i], (int64_t)e);
        if (x != y && isfinite(x) && fabs(x - y) > 4 * gen_noise(d) * most) return false;
        if (isnan(x) != isnan(y)) return false;
    }
    return true;
}

// first: the first gradient. *exact: all bits are equal.
static bool same(const results *a, const results *b, int first, uint64_t number, bool *exact) {
    bool ok = a->n == b->n;
    *exact = true;
    for (int i = 0; i < a->n && ok; i++) {
        const bool equal =
            a->bytes[i] == b->bytes[i] && !memcmp(a->data[i], b->data[i], a->bytes[i]);
        *exact &= equal;
        ok = equal || (i >= first && a->bytes[i] == b->bytes[i] && near(a, b, first, i));
        if (!ok) print_message("graph %llu: root %d differs\n", (unsigned long long)number, i);
    }
    return ok;
}

static ct_ctx *context(const char *device) {
    ct_ctx *ctx = ct_ctx_new(), *before = ct_ctx_use(ctx);
    if (!getenv("COTAN_DUMP")) ct_set_log(NULL, NULL);
    assert_true(ct_set_device(device));
    ct_ctx_use(before);
    return ctx;
}

static void devices_change_no_bit(void **state) {
    const char *const *devices = *state;
    const char *count = getenv("COTAN_FUZZ_COUNT"), *only = getenv("COTAN_FUZZ_ONLY");
    const int n = count ? atoi(count) : getenv("COTAN_TEST_ALL") ? MANY : FEW;
    gen_graph *g = malloc(sizeof *g);
    ct_ctx *maker = context("ref"), *one = context(devices[0]), *several = context(devices[0]);
    int failed = 0, gradients = 0, exact = 0;
    assert_non_null(g);
    for (int i = 0; i < n; i++) {
        const uint64_t number = only ? strtoull(only, NULL, 10) : (uint64_t)i;
        results want = {0}, got = {0};
        ct_ctx *before = ct_ctx_use(maker);
        gen_make(g, seed, number);
        ct_ctx_use(before);
        gradients += g->loss >= 0;
        bool equal = false;
        g->n_devices = 0;
        bool ok = run(one, g, number, &want);
        g->devices = devices;
        g->n_devices = 3;
        g->placed = seed ^ number << 20;
        ok = ok && run(several, g, number, &got) &&
             same(&want, &got, g->n_roots + 1, number, &equal);
        failed += !ok;
        exact += equal;
        results_free(&want);
        results_free(&got);
        gen_free(g);
        if (only) break;
    }
    free(g);
    ct_ctx_free(several);
    ct_ctx_free(one);
    ct_ctx_free(maker);
    if (failed)
        fail_msg("%d graphs; repeat one: COTAN_VERIFY=1 COTAN_FUZZ_SEED=%llu COTAN_FUZZ_ONLY=n "
                 "build/tests/fuzz/test_random_devices",
                 failed, (unsigned long long)seed);
    print_message("%d graphs, %d with gradients, %d equal in every bit\n", n, gradients, exact);
    assert_true(only || n < 100 || (gradients > n / 5 && exact > n - n / 20));
}

int main(void) {
    static const char *const of_cpu[] = {"cpu", "cpu:1", "async:cpu"}, *const of_ref[] = {
                                                                           "ref", "async:ref",
                                                                           "async:ref:1"};
    const char *text = getenv("COTAN_FUZZ_SEED");
    if (text) seed = strtoull(text, NULL, 10);
    setenv("COTAN_CC", "none",
           1); // kernels are interpreted: the same bits, and nothing to wait for
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(devices_change_no_bit, (void *)(uintptr_t)of_cpu),
        cmocka_unit_test_prestate(devices_change_no_bit, (void *)(uintptr_t)of_ref),
    };
    return cmocka_run_group_tests_name("devices", tests, NULL, NULL);
}
