// Differential fuzzing: random graphs on the generated kernels against the reference, element by
// element; and the same bits however they are computed (fused or not, by any number of threads, in
// memory that the host cannot touch). A third of the graphs have gradients.
//
//   COTAN_FUZZ_SEED=n    another seed        COTAN_FUZZ_COUNT=n   more or fewer graphs
//   COTAN_FUZZ_ONLY=n    graph n alone, in plans of its own
//
// How near is near enough is measured, not guessed: the reference runs each graph three times more
// with its roundings disturbed by some 60 units in the last place (support/graph_gen.h); a result
// may differ by a few times what that moves it. What is exact must be equal.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/graph_gen.h"

enum { BATCH = 10, DISTURBED = 3, MOST_GRAPHS = 100000, MOST_SHOWN = 500 };

typedef struct {
    int n;
    ct_dtype dtype[GEN_RESULTS];
    int64_t count[GEN_RESULTS];
    void *data[GEN_RESULTS];
} results;

typedef struct {
    gen_graph *graph;
    ct_hash hash;
    bool run; // not left out by COTAN_FUZZ_ONLY
    results ref, moved[DISTURBED], cpu;
} one_graph;

static uint64_t seed = 20261120;
static int n_graphs = 300, only = -1, failures, busy = -1;
static one_graph *all;
static ct_ctx *reference, *fused, *unfused, *async;
static struct { int64_t elements, exact, nan, undecided; } seen; // how strict the comparison was

static void results_free(results *r) {
    for (int i = 0; i < r->n; i++) free(r->data[i]);
    *r = (results){0};
}

// ------------------------------------------------------------------------------------------------
// reports

static void show(int number, const char *what) {
    one_graph *o = &all[number];
    if (++failures > MOST_SHOWN) return;
    ct_ctx *before = ct_ctx_use(reference);
    {
        CT_SCOPE;
        ct_tensor t[GEN_RESULTS];
        ct_root roots[GEN_RESULTS] = {{0}};
        ct_order order = {0};
        ct_text text = {0};
        int n = gen_record(o->graph, 0, t);
        for (int i = 0; i < n; i++) {
            roots[i] = (ct_root){.kind = CT_ROOT_READ};
            roots[i].val.node = ct__peek(t[i], &roots[i].val.out);
        }
        if (ct__order(ct__ctx(), &order, roots, (size_t)n))
            ct__print_nodes(&text, order.nodes, order.n);
        fprintf(stderr, "graph %d: %s\n%sroots:", number, what, text.s ? text.s : "");
        for (int i = 0; i < n; i++)
            fprintf(stderr, " %%%u.%u", roots[i].val.node->index, roots[i].val.out);
        fprintf(stderr, "\nrepeat: COTAN_FUZZ_SEED=%llu COTAN_FUZZ_ONLY=%d %s\n\n",
                (unsigned long long)seed, number, "build/tests/fuzz/test_random_graphs_slow");
        ct__text_free(&text);
        ct__order_free(&order);
    }
    ct_ctx_use(before);
}

// ------------------------------------------------------------------------------------------------
// running

static void take(results *r, int n, const ct_tensor *t) {
    r->n = n;
    for (int i = 0; i < n; i++) {
        r->dtype[i] = ct_dtype_of(t[i]);
        r->count[i] = ct_size(t[i]);
        size_t bytes = (size_t)r->count[i] * ct_dtype_size(r->dtype[i]);
        const void *data = ct_data(t[i]);
        r->data[i] = malloc(bytes + 1);
        assert_true(r->data[i] && (data || !bytes));
        if (bytes) memcpy(r->data[i], data, bytes);
    }
}

// Graphs from `at` to `end` in one plan; false: it failed. `into` says where their results go.
static bool run(ct_ctx *ctx, int at, int end, uint64_t noise, results **into) {
    ct_ctx *before = ct_ctx_use(ctx);
    bool ok;
    {
        CT_SCOPE;
        static ct_tensor t[BATCH * GEN_RESULTS];
        int n[BATCH], total = 0;
        for (int i = at; i < end; i++) {
            n[i - at] = all[i].run ? gen_record(all[i].graph, noise, t + total) : 0;
            total += n[i - at];
        }
        ok = !ct_failed() && (total == 0 || ct_eval(t, (size_t)total));
        total = 0;
        for (int i = at; i < end && ok; total += n[i - at], i++)
            if (all[i].run) take(into[i - at], n[i - at], t + total);
        if (!ok && end - at == 1) {
            show(at, ct_error_text());
            all[at].run = false;
        }
        if (!ok) ct_error_clear();
    }
    ct_ctx_use(before);
    return ok;
}

// As one plan; where that fails, a graph at a time, to learn which it is.
static void run_batch(ct_ctx *ctx, int at, int end, uint64_t noise, results **into) {
    if (run(ctx, at, end, noise, into)) return;
    int known = failures;
    for (int i = at; i < end; i++)
        if (all[i].run) run(ctx, i, i + 1, noise, into + (i - at));
    if (failures == known) {
        failures++;
        fprintf(stderr, "graphs %d to %d fail together, none of them alone\n", at, end - 1);
    }
}

// ------------------------------------------------------------------------------------------------
// comparing

static double far(const one_graph *o, int k, int64_t i, double want) {
    double most = 0;
    for (int m = 0; m < DISTURBED; m++) {
        double moved = ct__load_f64(o->ref.dtype[k], o->moved[m].data[k], i);
        if (isnan(moved) != isnan(want)) return (double)INFINITY;
        if (moved != want && !isnan(want)) most = fmax(most, fabs(moved - want));
    }
    return most;
}

// A gradient may cancel where no disturbance of the operands shows it: it is near in the measure of
// the largest one of its graph.
static double largest(const one_graph *o, int k) {
    double most = 0;
    for (int g = o->graph->n_roots; k >= o->graph->n_roots && g < o->ref.n; g++)
        for (int64_t i = 0; i < o->ref.count[g]; i++) {
            double x = fabs(ct__load_f64(o->ref.dtype[g], o->ref.data[g], i));
            if (isfinite(x) && x > most) most = x;
        }
    return most;
}

static bool near(const one_graph *o, int k, int64_t i, double want, double got, double slack) {
    double moved = far(o, k, i, want), unit = o->ref.dtype[k] == CT_F64 ? 0x1p-49 : 0x1p-20;
    bool exact = gen_exact(o->graph, k), undecided = !exact && isinf(moved);
    seen.elements++;
    seen.exact += exact;
    seen.nan += isnan(want);
    seen.undecided += undecided;
    if (undecided || want == got || (isnan(want) && isnan(got))) return true;
    if (exact) return false;
    return fabs(want - got) <= 4 * moved + slack + unit * fabs(want);
}

static void compare_with_ref(int number) {
    one_graph *o = &all[number];
    const results *ref = &o->ref, *cpu = &o->cpu;
    assert_int_equal(ref->n, cpu->n);
    for (int k = 0; k < ref->n; k++) {
        ct_dtype d = ref->dtype[k];
        double mean = 0;
        assert_int_equal(ref->count[k], cpu->count[k]);
        if (!ct__is_float(d)) {
            if (memcmp(ref->data[k], cpu->data[k], (size_t)ref->count[k] * ct_dtype_size(d)) != 0) {
                char what[80];
                snprintf(what, sizeof what, "root %d, %s: cpu and ref differ", k, ct_dtype_name(d));
                show(number, what);
                return;
            }
            continue;
        }
        for (int64_t i = 0; i < ref->count[k]; i++) {
            double by = far(o, k, i, ct__load_f64(d, ref->data[k], i));
            if (isfinite(by)) mean += by / (double)ref->count[k];
        }
        double slack = 4 * mean + largest(o, k) * (d == CT_F64 ? 0x1p-49 : 0x1p-20);
        for (int64_t i = 0; i < ref->count[k]; i++) {
            double want = ct__load_f64(d, ref->data[k], i), got = ct__load_f64(d, cpu->data[k], i);
            if (near(o, k, i, want, got, slack)) continue;
            char what[160];
            snprintf(what, sizeof what,
                     "root %d, element %lld: cpu has %.17g, ref %.17g (disturbed: by %.3g)%s", k,
                     (long long)i, got, want, far(o, k, i, want),
                     gen_exact(o->graph, k) ? "; it is exact" : "");
            show(number, what);
            return;
        }
    }
}

static void same_bits(int number, const results *a, const results *b, const char *what) {
    for (int k = 0; k < a->n; k++) {
        size_t size = ct_dtype_size(a->dtype[k]);
        for (int64_t i = 0; i < a->count[k]; i++) {
            const char *x = (const char *)a->data[k] + (size_t)i * size,
                       *y = (const char *)b->data[k] + (size_t)i * size;
            if (memcmp(x, y, size) == 0) continue;
            bool is_float = ct__is_float(a->dtype[k]); // of a NaN the bits mean nothing
            if (is_float && isnan(ct__load_f64(a->dtype[k], x, 0)) &&
                isnan(ct__load_f64(a->dtype[k], y, 0)))
                continue;
            char text[200];
            snprintf(text, sizeof text, "%s: bits differ: root %d, element %lld: %.17g and %.17g",
                     what, k, (long long)i, ct__load_f64(a->dtype[k], x, 0),
                     ct__load_f64(a->dtype[k], y, 0));
            show(number, text);
            return;
        }
    }
}

// ------------------------------------------------------------------------------------------------
// the graphs

static ct_hash hash_of(const gen_graph *g) {
    CT_SCOPE;
    ct_tensor t[GEN_RESULTS];
    ct_root roots[GEN_RESULTS] = {{0}};
    ct_order order = {0};
    int n = gen_record(g, 0, t);
    for (int i = 0; i < n; i++) {
        roots[i] = (ct_root){.kind = CT_ROOT_READ};
        roots[i].val.node = ct__peek(t[i], &roots[i].val.out);
    }
    if (n == 0 || !ct__order(ct__ctx(), &order, roots, (size_t)n)) fail_msg("%s", ct_error_text());
    ct_hash hash = order.hash;
    ct__order_free(&order);
    return hash;
}

static bool is_new(int number) {
    for (int i = 0; i < number; i++)
        if (ct__hash_equal(all[i].hash, all[number].hash)) return false;
    return true;
}

static int make_graphs(void **state) {
    (void)state;
    ct_ctx_use(reference);
    all = calloc((size_t)n_graphs, sizeof *all);
    if (!all) return -1;
    for (int i = 0; i < n_graphs; i++) {
        gen_graph *g = all[i].graph = malloc(sizeof *g);
        if (!g) return -1;
        for (uint64_t again = 0;; again++) { // until it is like none before
            gen_make(g, seed, (uint64_t)i + again * 3 * MOST_GRAPHS);
            if (g->n_steps >= 5 && g->n_roots) {
                all[i].hash = hash_of(g);
                if (is_new(i)) break;
            }
            gen_free(g);
        }
        all[i].run = only < 0 || only == i;
    }
    return 0;
}

static void covers_the_table(void **state) {
    (void)state;
    int times[CT_OP_COUNT] = {0}, missing = 0, graphs_with_gradients = 0, dynamic = 0;
    for (int i = 0; i < n_graphs; i++) {
        const gen_graph *g = all[i].graph;
        graphs_with_gradients += g->loss >= 0;
        for (int s = 0; s < g->n_steps; s++) {
            if (g->step[s].kind == GEN_OP) times[g->step[s].op->id]++;
            if (g->step[s].kind == GEN_LOOP) times[CT_OP_SCAN]++;
        }
        for (int v = 0; v < g->n_values; v++) dynamic += g->value[v].type.dyn != 0;
    }
    for (int i = 0; i < CT_OP_COUNT; i++) {
        ct_kind kind = ct__ops[i]->kind;
        bool traced = i == CT_OP_CALL || i == CT_OP_CUSTOM;
        if (times[i] || kind == CT_KIND_LEAF || kind == CT_KIND_TRANSFORM || traced) continue;
        fprintf(stderr, "no graph has the op %s\n", ct__ops[i]->name);
        missing++;
    }
    print_message("%d graphs, %d with gradients, %d values with dynamic sizes; seed %llu\n",
                  n_graphs, graphs_with_gradients, dynamic, (unsigned long long)seed);
    if (n_graphs < 300 || only >= 0) return;
    assert_int_equal(missing, 0);
    assert_true(graphs_with_gradients * 4 >= n_graphs && dynamic > 0);
}

static void compare_batch(int at, int end) {
    results *ref[BATCH], *cpu[BATCH], other[BATCH] = {{0}}, *others[BATCH];
    static const int threads[] = {1, 2, 4};
    for (int i = at; i < end; i++) {
        ref[i - at] = &all[i].ref;
        cpu[i - at] = &all[i].cpu;
        others[i - at] = &other[i - at];
    }
    for (int i = at; i < end; i++) { // alone: quick there, and a graph's noise is its own
        if (all[i].run) run_batch(reference, i, i + 1, 0, ref + (i - at));
        for (int m = 0; m < DISTURBED && all[i].run; m++)
            run_batch(reference, i, i + 1, (uint64_t)m + 1, (results *[]){&all[i].moved[m]});
    }
    ct_set_threads(1);
    setenv("COTAN_FUSE", "0", 1);
    run_batch(unfused, at, end, 0, cpu);
    setenv("COTAN_FUSE", "1", 1);
    for (int i = at; i < end; i++)
        if (all[i].run) compare_with_ref(i);
    for (int way = 0; way < 4; way++) {
        char what[64];
        snprintf(what, sizeof what, way < 3 ? "unfused and fused, %d threads" : "async",
                 threads[way % 3]);
        ct_set_threads(threads[way % 3]);
        run_batch(way < 3 ? fused : async, at, end, 0, others);
        for (int i = at; i < end; i++) {
            if (all[i].run) same_bits(i, cpu[i - at], &other[i - at], what);
            results_free(&other[i - at]);
        }
    }
    for (int i = at; i < end; i++) {
        results_free(&all[i].ref);
        results_free(&all[i].cpu);
        for (int m = 0; m < DISTURBED; m++) results_free(&all[i].moved[m]);
    }
}

static void cpu_equals_ref(void **state) {
    (void)state;
    for (int at = 0; at < n_graphs; at += BATCH) {
        busy = at;
        compare_batch(at, at + BATCH < n_graphs ? at + BATCH : n_graphs);
    }
    busy = -1;
    ct_set_threads(0);
    if (failures) fail_msg("%d comparisons failed", failures);
    ct_stats stats = ct_get_stats();
    // Were most values numbers, and did the disturbed runs agree on which?
    print_message("%lld floats compared, %lld of them exactly; %lld NaN, %lld undecided\n",
                  (long long)seen.elements, (long long)seen.exact, (long long)seen.nan,
                  (long long)seen.undecided);
    if (only < 0)
        assert_true(seen.nan * 20 < seen.elements && seen.undecided * 200 < seen.elements);
    print_message("%llu kernels compiled, %llu loaded; %llu launches\n",
                  (unsigned long long)stats.kernels_compiled,
                  (unsigned long long)stats.kernels_loaded, (unsigned long long)stats.launches);
}

static int free_graphs(void **state) {
    (void)state;
    if (busy >= 0)
        fprintf(stderr, "a crash among graphs %d to %d: COTAN_FUZZ_SEED=%llu COTAN_FUZZ_ONLY=...\n",
                busy, busy + BATCH - 1, (unsigned long long)seed);
    for (int i = 0; all && i < n_graphs; i++) {
        if (all[i].graph) gen_free(all[i].graph);
        free(all[i].graph);
    }
    free(all);
    ct_ctx_use(NULL);
    ct_ctx *contexts[] = {reference, fused, unfused, async};
    for (int i = 0; i < 4; i++) ct_ctx_free(contexts[i]);
    return 0;
}

static ct_ctx *context(const char *device) {
    ct_ctx *ctx = ct_ctx_new();
    ct_ctx_use(ctx);
    ct_set_log(NULL, NULL);
    if (!ctx || !ct_set_device(device)) {
        fprintf(stderr, "test_random_graphs_slow: %s\n", ct_error_text());
        exit(2);
    }
    return ctx;
}

int main(void) {
    const char *text;
    if ((text = getenv("COTAN_FUZZ_SEED"))) seed = strtoull(text, NULL, 10);
    if ((text = getenv("COTAN_FUZZ_COUNT"))) n_graphs = atoi(text);
    if ((text = getenv("COTAN_FUZZ_ONLY"))) only = atoi(text);
    if (only >= n_graphs) n_graphs = only + 1;
    if (n_graphs < 1 || n_graphs > MOST_GRAPHS) return 2;
    reference = context("ref");
    fused = context("cpu");
    unfused = context("cpu");
    async = context("async:cpu");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(covers_the_table),
        cmocka_unit_test(cpu_equals_ref),
    };
    return cmocka_run_group_tests_name("graphs", tests, make_graphs, free_graphs);
}
