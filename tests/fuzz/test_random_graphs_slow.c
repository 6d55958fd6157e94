// Differential fuzzing: random graphs of distinct structure, of 5 to 60 nodes, on the generated
// kernels against the reference, element by element; and the same bits however they are computed:
// fused or not, by any number of threads, in memory that the host cannot touch, interpreted or
// compiled. A third of the graphs have gradients, a quarter of these gradients of gradients. And
// that a miscompiled kernel would be found.
//
//   COTAN_FUZZ_SEED=n    another seed        COTAN_FUZZ_COUNT=n     more or fewer graphs
//   COTAN_FUZZ_ONLY=n    graph n alone       COTAN_FUZZ_COMPILED=n  compile so many (none;
//   COTAN_FUZZ_BATCH=n   batch n alone                              all with COTAN_TEST_ALL=1, and
//                                                                   with ONLY or BATCH)
//   COTAN_FUZZ_DEVICE=x  what is compiled runs there (cpu)
//   COTAN_FUZZ_EMPTY=1   the graphs of many empty and dynamic axes, of which else 200 come last
//
// A failure ends with the command that repeats it, and so does a crash. Exit status 100: it could
// not be tried, for want of memory or of a device.
//
// Interpreting a kernel costs nothing beforehand and gives a compiled one's bits, so that is how
// graphs run in all these ways; once they are compiled, a hundred of them in one or two calls of
// the compiler.
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

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/pool.h"
#include "compile/plan.h"
#include "support/graph_build.h"

enum {
    BATCH = 100,
    DISTURBED = 3,
    MOST_SHOWN = 100,
    GRAPHS = 1200,
    ALL_GRAPHS = 2000,
    EMPTY = 200
};
enum { EXIT_UNTRIED = 100, TOGETHER = 8 };
enum { LEAST_NODES = 5, MOST_NODES = 60, PRIMITIVE_IN = 4, DTYPE_IN = 60 };

typedef struct {
    int n;
    ct_dtype dtype[GEN_RESULTS];
    int64_t count[GEN_RESULTS];
    void *data[GEN_RESULTS];
} results;

typedef struct {
    gen_graph *graph;
    uint64_t number; // of the generator, which makes it again
    bool run;        // false: it failed
    results ref, moved[DISTURBED], cpu;
} one_graph;

static const char *program;                          // as it was called
static uint64_t seed = 20261120, only, first_number; // of the generator's
static int n_graphs = GRAPHS, n_compiled, only_batch = -1, failures;
static FILE *report;         // where failures are shown
static bool only_one, quiet; // quiet: failures are counted, not shown
static const char *compiler; // COTAN_CC as it was
static ct_ctx *reference, *fused, *unfused, *async, *compiled, *planted;
static struct { int64_t elements, exact, nan, undecided; } seen; // how strict the comparison was
static struct {
    int op[GEN_OPS], dtype[CT_DTYPE_COUNT];                      // graphs with it
    int graphs, gradients, second, dynamic, empty, nodes, large; // empty: a dynamic axis
} covered;

static void results_free(results *r) {
    for (int i = 0; i < r->n; i++) free(r->data[i]);
    *r = (results){0};
}

// ------------------------------------------------------------------------------------------------
// reports

// What the graph records, in the order in which it would be computed. False: nothing, or an error.
static bool order_of(const gen_graph *g, ct_order *order, ct_root *roots, int *n) {
    ct_tensor t[GEN_RESULTS];
    *n = gen_record(g, 0, t);
    for (int i = 0; i < *n; i++) {
        roots[i] = (ct_root){.kind = CT_ROOT_READ};
        roots[i].val.node = ct__peek(t[i], &roots[i].val.out);
    }
    return *n && ct__order(ct__ctx(), order, roots, (size_t)*n);
}

// What repeats a failure: with the verifier, as scripts/run-tests has it.
enum { COMMAND = 400 };
static void graph_command(char *text, uint64_t number) {
    snprintf(text, COMMAND,
             "repeat: COTAN_VERIFY=1 COTAN_FUZZ_SEED=%llu COTAN_FUZZ_ONLY=%llu %s\n\n",
             (unsigned long long)seed, (unsigned long long)number, program);
}
// Of the batch at the end of a run of so many graphs.
static void batch_command(char *text, int end) {
    snprintf(
        text, COMMAND,
        "repeat: COTAN_VERIFY=1 %sCOTAN_FUZZ_SEED=%llu COTAN_FUZZ_COUNT=%d COTAN_FUZZ_BATCH=%d "
        "%s\n\n",
        first_number ? "COTAN_FUZZ_EMPTY=1 " : "", (unsigned long long)seed, end, (end - 1) / BATCH,
        program);
}

static void show(const one_graph *o, const char *what) {
    if (++failures > MOST_SHOWN || quiet) return;
    ct_ctx *before = ct_ctx_use(reference);
    {
        CT_SCOPE;
        ct_root roots[GEN_RESULTS] = {{0}};
        ct_order order = {0};
        ct_text text = {0};
        int n = 0;
        if (order_of(o->graph, &order, roots, &n)) ct__print_nodes(&text, order.nodes, order.n);
        fprintf(report, "graph %llu: %s\n%sroots:", (unsigned long long)o->number, what,
                text.s ? text.s : "");
        for (int i = 0; i < n; i++)
            fprintf(report, " %%%u.%u", roots[i].val.node->index, roots[i].val.out);
        char command[COMMAND];
        graph_command(command, o->number);
        fprintf(report, "\n%s", command);
        ct__text_free(&text);
        ct__order_free(&order);
    }
    ct_ctx_use(before);
}

// ------------------------------------------------------------------------------------------------
// crashes

// What a handler says of a signal, written before the work that might raise it.
static char at_work[COMMAND + 100];
static int batch_end; // graphs up to the end of the batch at work

static void work_on(uint64_t first, uint64_t last, const char *what) {
    char command[COMMAND];
    if (first == last)
        graph_command(command, first);
    else
        batch_command(command, batch_end);
    snprintf(at_work, sizeof at_work, "\na crash while graphs %llu to %llu %s\n%s",
             (unsigned long long)first, (unsigned long long)last, what, command);
}

static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
enum { FAULTS = sizeof faults / sizeof *faults };
static struct sigaction before_cmocka[FAULTS]; // the default, or a sanitizer's

// Hands the signal on to what was there before cmocka, whose own handler would go on with the next
// test, by a jump that another thread may not make.
static void tell_crash(int number) {
    if (write(STDERR_FILENO, at_work, strlen(at_work)) < 0) _exit(1);
    for (int i = 0; i < FAULTS; i++)
        if (faults[i] == number) sigaction(number, &before_cmocka[i], NULL);
    raise(number);
}

// In each test, since cmocka has just put its own handlers.
static void watch_for_crashes(void) {
    static char stack[1 << 16]; // the thread's own may be what ran out
    const struct sigaction act = {.sa_handler = tell_crash, .sa_flags = SA_ONSTACK};
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    for (int i = 0; i < FAULTS; i++) sigaction(faults[i], &act, NULL);
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

// A planted bug that shows only where several graphs are one plan.
static bool spoil_together;
static int spoiled; // graphs of the last plan that it changed

// Changes each number, but no NaN, whose bits mean nothing.
static bool spoil_numbers(ct_dtype dtype, void *data, int64_t n) {
    bool any = false;
    for (int64_t i = 0; i < n; i++) {
        if (ct__is_float(dtype) && isnan(ct__load_f64(dtype, data, i))) continue;
        ((char *)data)[(size_t)i * ct_dtype_size(dtype)] ^= 1;
        any = true;
    }
    return any;
}

static void spoil_results(results **of, int n) {
    spoiled = 0;
    for (int i = 0; i < n; i++) {
        bool any = false;
        for (int k = 0; k < of[i]->n; k++)
            any |= spoil_numbers(of[i]->dtype[k], of[i]->data[k], of[i]->count[k]);
        spoiled += any;
    }
}

// Graphs in one plan; false: it failed. `into` says where their results go.
static bool run(ct_ctx *ctx, one_graph *all, int n, uint64_t noise, results **into) {
    ct_ctx *before = ct_ctx_use(ctx);
    bool ok;
    work_on(all[0].number, all[n - 1].number, "ran");
    {
        CT_SCOPE;
        static ct_tensor t[BATCH * GEN_RESULTS];
        int each[BATCH], total = 0;
        for (int i = 0; i < n; i++) {
            each[i] = all[i].run ? gen_record(all[i].graph, noise, t + total) : 0;
            total += each[i];
        }
        ok = !ct_failed() && (total == 0 || ct_eval(t, (size_t)total));
        total = 0;
        for (int i = 0; i < n && ok; total += each[i], i++)
            if (all[i].run) take(into[i], each[i], t + total);
        if (spoil_together && ctx == fused && n > 1) spoil_results(into, n);
        if (!ok && ct_error_code() == CT_E_MEMORY) {
            fprintf(report, "%s\n", ct_error_text());
            exit(EXIT_UNTRIED);
        }
        if (!ok && n == 1) {
            show(all, ct_error_text());
            all->run = false;
        }
        if (!ok) ct_error_clear();
    }
    ct_ctx_use(before);
    return ok;
}

// As one plan; where that fails, a graph at a time, to learn which it is.
static void run_batch(ct_ctx *ctx, one_graph *all, int n, uint64_t noise, results **into) {
    if (run(ctx, all, n, noise, into) || n == 1) return;
    int known = failures;
    for (int i = 0; i < n; i++)
        if (all[i].run) run(ctx, all + i, 1, noise, into + i);
    if (failures == known) failures++; // compare_batch tells
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
// the largest one of its graph. One that is no number could have been of any size: 1 is taken.
static double largest(const one_graph *o, int k) {
    double most = 0;
    for (int g = o->graph->n_roots; k >= o->graph->n_roots && g < o->ref.n; g++)
        for (int64_t i = 0; i < o->ref.count[g]; i++) {
            double x = fabs(ct__load_f64(o->ref.dtype[g], o->ref.data[g], i));
            most = fmax(most, isfinite(x) ? x : 1);
        }
    return most;
}

static bool near(const one_graph *o, int k, int64_t i, double want, double got, double slack) {
    double moved = far(o, k, i, want), unit = gen_noise(o->ref.dtype[k]) / 4;
    double tiny = gen_tiny(o->ref.dtype[k]); // below it the last place stays where it is
    bool exact = gen_exact(o->graph, k), undecided = !exact && isinf(moved);
    seen.elements++;
    seen.exact += exact;
    seen.nan += isnan(want);
    seen.undecided += undecided;
    if (undecided || (isnan(want) && isnan(got))) return true;
    if (exact) return want == got && signbit(want) == signbit(got);
    if (want == got) return true;
    return fabs(want - got) <= 4 * moved + slack + unit * fmax(fabs(want), tiny);
}

static void compare_with_ref(const one_graph *o) {
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
                show(o, what);
                return;
            }
            continue;
        }
        for (int64_t i = 0; i < ref->count[k]; i++) {
            double by = far(o, k, i, ct__load_f64(d, ref->data[k], i));
            if (isfinite(by)) mean += by / (double)ref->count[k];
        }
        double slack = 4 * mean + largest(o, k) * gen_noise(d);
        for (int64_t i = 0; i < ref->count[k]; i++) {
            double want = ct__load_f64(d, ref->data[k], i), got = ct__load_f64(d, cpu->data[k], i);
            if (near(o, k, i, want, got, slack)) continue;
            char what[160];
            snprintf(what, sizeof what,
                     "root %d, element %lld: cpu has %.17g, ref %.17g (disturbed: by %.3g)%s", k,
                     (long long)i, got, want, far(o, k, i, want),
                     gen_exact(o->graph, k) ? "; it is exact" : "");
            show(o, what);
            return;
        }
    }
}

static void same_bits(const one_graph *o, const results *b, const char *what) {
    const results *a = &o->cpu;
    if (!o->run) return;
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
            show(o, text);
            return;
        }
    }
}

// ------------------------------------------------------------------------------------------------
// one batch

static void use_compiler(bool yes) {
    if (!yes)
        setenv("COTAN_CC", "none", 1);
    else if (compiler)
        setenv("COTAN_CC", compiler, 1);
    else
        unsetenv("COTAN_CC");
}

static void equal_bits(ct_ctx *ctx, one_graph *all, int n, int threads, const char *what) {
    results other[BATCH] = {{0}}, *others[BATCH];
    for (int i = 0; i < n; i++) others[i] = &other[i];
    ct_set_threads(threads);
    run_batch(ctx, all, n, 0, others);
    for (int i = 0; i < n; i++) {
        same_bits(&all[i], &other[i], what);
        results_free(&other[i]);
    }
}

static void run_unfused(one_graph *all, int n) {
    results *cpu[BATCH];
    for (int i = 0; i < n; i++) cpu[i] = &all[i].cpu;
    ct_set_threads(1);
    setenv("COTAN_FUSE", "0", 1);
    run_batch(unfused, all, n, 0, cpu);
    setenv("COTAN_FUSE", "1", 1);
}

static void forget(one_graph *all, int n) {
    for (int i = 0; i < n; i++) {
        results_free(&all[i].ref);
        results_free(&all[i].cpu);
        for (int m = 0; m < DISTURBED; m++) results_free(&all[i].moved[m]);
    }
}

static void compare(one_graph *all, int n, bool compile) {
    for (int i = 0; i < n; i++) { // alone: quick there, and a graph's noise is its own
        run_batch(reference, all + i, 1, 0, (results *[]){&all[i].ref});
        for (int m = 0; m < DISTURBED && all[i].run; m++)
            run_batch(reference, all + i, 1, (uint64_t)m + 1, (results *[]){&all[i].moved[m]});
    }
    use_compiler(false);
    run_unfused(all, n);
    for (int i = 0; i < n; i++)
        if (all[i].run) compare_with_ref(&all[i]);
    equal_bits(fused, all, n, 1, "unfused and fused, 1 thread");
    equal_bits(fused, all, n, 2, "unfused and fused, 2 threads");
    equal_bits(fused, all, n, 4, "unfused and fused, 4 threads");
    equal_bits(async, all, n, 1, "async");
    use_compiler(true);
    if (compile) equal_bits(compiled, all, n, 2, "interpreted and compiled");
    forget(all, n);
}

// ------------------------------------------------------------------------------------------------
// a smaller graph that fails as well

static bool fails(const one_graph *o, gen_graph *g, bool compile) {
    one_graph alone = {.graph = g, .number = o->number, .run = true};
    int before = failures;
    quiet = true;
    compare(&alone, 1, compile);
    quiet = false;
    bool failed = failures > before;
    failures = before;
    return failed;
}

// The value of an op as a leaf, so that what made it is not needed.
static bool cut(gen_graph *g, gen_step *s) {
    const gen_value *v = &g->value[s->first];
    gen_graph alone = *g;
    if (s->kind < GEN_OP || s->n_out != 1 || v->type.weak) return false;
    alone.root[0] = s->first, alone.n_roots = 1, alone.loss = -1;
    ct_ctx *before = ct_ctx_use(reference);
    bool ok;
    {
        CT_SCOPE;
        ct_tensor t[GEN_RESULTS];
        gen_record(&alone, 0, t);
        size_t bytes = (size_t)ct_size(t[0]) * ct_dtype_size(ct_dtype_of(t[0]));
        const void *data = ct_data(t[0]);
        void *copy = ct__arena_zero(&g->arena, bytes + 1);
        ok = copy && (data || !bytes);
        if (ok && bytes) memcpy(copy, data, bytes);
        if (ok)
            *s = (gen_step){.kind = GEN_DATA,
                            .dtype = (ct_dtype)v->type.dtype,
                            .dims = v->dims,
                            .data = copy,
                            .first = s->first,
                            .n_out = 1};
        ct_error_clear();
    }
    ct_ctx_use(before);
    return ok;
}

// Leaves one result alone that fails: the earliest value, or else a gradient.
static bool single_out(const one_graph *o, gen_graph *g, bool compile) {
    gen_graph whole = *g;
    for (int v = 0; v < g->n_values; v++) {
        if (g->step[g->value[v].step].kind < GEN_OP) continue;
        g->root[0] = v, g->n_roots = 1, g->loss = -1, g->n_wrt = 0;
        if (fails(o, g, compile)) return true;
    }
    for (int w = 0; w < whole.n_wrt; w++) {
        g->n_roots = 0, g->loss = whole.loss, g->wrt[0] = whole.wrt[w], g->n_wrt = 1;
        if (fails(o, g, compile)) return true;
    }
    *g = whole;
    return false;
}

// False also where a gradient no longer reaches its operand, which is another failure.
static bool runs_on_ref(const one_graph *o, gen_graph *g) {
    one_graph alone = {.graph = g, .number = o->number, .run = true};
    results r = {0};
    int before = failures;
    quiet = true;
    bool ok = run(reference, &alone, 1, 0, (results *[]){&r});
    quiet = false;
    failures = before;
    results_free(&r);
    return ok;
}

// Then as few ops before it as will do.
static void shrink(const one_graph *o, bool compile) {
    gen_graph *g = o->graph;
    if (!single_out(o, g, compile)) return;
    int last = g->value[g->n_roots ? g->root[0] : g->loss].step;
    for (int i = last - 1; i >= 0; i--) {
        gen_step step = g->step[i];
        if (cut(g, &g->step[i]) && !(runs_on_ref(o, g) && fails(o, g, compile))) g->step[i] = step;
    }
    show(o, "the same, made smaller");
}

// `end`: how many graphs there are up to the end of this batch, the last of a run with so many.
static void compare_batch(one_graph *all, int n, int end, bool compile) {
    static int shrunk;
    int before = failures, alone = 0;
    batch_end = end;
    compare(all, n, compile);
    if (failures == before || shrunk >= 3) return;
    for (int i = 0; i < n && shrunk < 3; i++) {
        if (!fails(&all[i], all[i].graph, compile)) continue;
        shrink(&all[i], compile);
        alone++, shrunk++;
    }
    if (alone || n == 1) return;
    fprintf(report, "graphs %llu to %llu fail together, none of them alone\n",
            (unsigned long long)all->number, (unsigned long long)all[n - 1].number);
    char command[COMMAND];
    batch_command(command, end);
    fprintf(report, "%s", command);
}

// ------------------------------------------------------------------------------------------------
// the graphs

// Of a size that is wanted and of a structure that was not yet?
static bool accept(const gen_graph *g, ct_hash *hashes, int n_hashes) {
    CT_SCOPE;
    ct_root roots[GEN_RESULTS] = {{0}};
    ct_order order = {0};
    int n = 0;
    if (!g->n_roots || !order_of(g, &order, roots, &n)) return false;
    bool good = order.n >= LEAST_NODES && order.n <= MOST_NODES;
    for (int i = 0; i < n_hashes && good; i++) good = !ct__hash_equal(hashes[i], order.hash);
    if (good) {
        bool op[GEN_OPS] = {0}, dtype[CT_DTYPE_COUNT] = {0}, dynamic = false, empty = false;
        for (size_t i = 0; i < order.n; i++) {
            const ct_node *node = order.nodes[i];
            op[gen_place(node->op)] = true;
            for (uint32_t k = 0; k < node->n_out; k++) {
                dtype[node->out[k].dtype] = true;
                dynamic |= node->out[k].dyn != 0;
                for (int a = 0; a < node->out[k].rank; a++)
                    empty |= node->out[k].dim[a] == 0 && ct__is_dyn(&node->out[k], a);
            }
        }
        for (uint32_t i = 0; i < ct__n_ops; i++) covered.op[i] += op[i];
        for (int i = 0; i < CT_DTYPE_COUNT; i++) covered.dtype[i] += dtype[i];
        covered.graphs++;
        covered.gradients += g->loss >= 0;
        covered.second += g->loss >= 0 && g->second;
        covered.dynamic += dynamic;
        covered.empty += empty;
        covered.nodes += (int)order.n;
        covered.large += order.n >= 40;
        hashes[n_hashes] = order.hash;
    }
    ct__order_free(&order);
    return good;
}

// Makes the graphs of the seed one after another; the next that is accepted, or the one asked for.
typedef struct {
    ct_hash *hashes;
    int n;
    uint64_t number;
} maker;

static void next_graph(maker *m, one_graph *o) {
    gen_graph *g = malloc(sizeof *g);
    assert_non_null(g);
    ct_ctx *before = ct_ctx_use(reference);
    for (;; gen_free(g)) {
        uint64_t number = only_one ? only : m->number++;
        work_on(number, number, "was made");
        gen_make(g, seed, number);
        *o = (one_graph){.graph = g, .number = number, .run = true};
        if (only_one || accept(g, m->hashes, m->n)) break;
    }
    m->n++;
    ct_ctx_use(before);
}

static int next_batch(maker *m, one_graph *all, int most) {
    int n = 0;
    for (; n < BATCH && m->n < most; n++) next_graph(m, &all[n]);
    return n;
}

static void free_batch(one_graph *all, int n) {
    for (int i = 0; i < n; i++) {
        gen_free(all[i].graph);
        free(all[i].graph);
    }
}

static void maker_begin(maker *m) {
    assert_true(ct__n_ops <= GEN_OPS);
    *m = (maker){.hashes = calloc((size_t)n_graphs, sizeof(ct_hash)), .number = first_number};
    assert_non_null(m->hashes);
    memset(&covered, 0, sizeof covered);
}

static void compare_graphs(void) {
    maker m;
    watch_for_crashes();
    maker_begin(&m);
    while (m.n < n_graphs) {
        one_graph all[BATCH];
        int from = m.n, n = next_batch(&m, all, n_graphs);
        if (only_batch < 0 || only_batch == from / BATCH)
            compare_batch(all, n, m.n, from < n_compiled);
        free_batch(all, n);
    }
    free(m.hashes);
    ct_set_threads(0);
    if (failures) fail_msg("%d comparisons failed", failures);
}

static void cpu_equals_ref(void **state) {
    (void)state;
    compare_graphs();
    ct_stats stats = ct_get_stats();
    // Were most values numbers, and did the disturbed runs agree on which?
    print_message("%lld floats compared, %lld of them exactly; %lld NaN, %lld undecided\n",
                  (long long)seen.elements, (long long)seen.exact, (long long)seen.nan,
                  (long long)seen.undecided);
    if (!only_one && only_batch < 0 && !first_number) // means of nothing are no numbers
        assert_true(seen.nan * 20 < seen.elements && seen.undecided * 200 < seen.elements);
    print_message("%llu kernels compiled, %llu loaded; %llu launches\n",
                  (unsigned long long)stats.kernels_compiled,
                  (unsigned long long)stats.kernels_loaded, (unsigned long long)stats.launches);
}

static void covers_the_table(void **state) {
    (void)state;
    int missing = 0, rarest = INT32_MAX, rare_dtype = INT32_MAX;
    if (only_one) return;
    for (uint32_t i = 0; i < ct__n_ops; i++) {
        if (!gen_wants(ct__ops[i])) continue;
        if (covered.op[i] < rarest) rarest = covered.op[i];
        if (covered.op[i] >= PRIMITIVE_IN) continue;
        fprintf(stderr, "%d graphs have the op %s\n", covered.op[i], ct__ops[i]->name);
        missing++;
    }
    for (int d = CT_DEFAULT + 1; d < CT_DTYPE_COUNT; d++) {
        if (!((CT_NUMBERS | CT_MASK(CT_BOOL)) & CT_MASK(d)))
            continue; // those of parts have no values
        if (covered.dtype[d] < rare_dtype) rare_dtype = covered.dtype[d];
        if (covered.dtype[d] >= DTYPE_IN) continue;
        fprintf(stderr, "%d graphs have the dtype %s\n", covered.dtype[d],
                ct_dtype_name((ct_dtype)d));
        missing++;
    }
    print_message("%d graphs of %.1f nodes, %d of 40 or more; %d with gradients, %d with those of "
                  "gradients, %d with dynamic "
                  "sizes; each op in %d or more, each dtype in %d or more; seed %llu\n",
                  covered.graphs, (double)covered.nodes / covered.graphs, covered.large,
                  covered.gradients, covered.second, covered.dynamic, rarest, rare_dtype,
                  (unsigned long long)seed);
    if (n_graphs < GRAPHS || first_number) return;
    assert_int_equal(missing, 0);
    assert_true(covered.gradients * 4 >= n_graphs && covered.dynamic * 20 >= n_graphs &&
                covered.large * 20 >= n_graphs && covered.second * 20 >= n_graphs);
}

// Of all sizes 0 is the one that no loop runs for; what is dynamic learns it late.
static void empty_and_dynamic_axes(void **state) {
    (void)state;
    if (only_one || only_batch >= 0 || first_number) return;
    const int graphs = n_graphs, compile = n_compiled;
    n_graphs = graphs < EMPTY ? graphs : EMPTY;
    if (n_compiled < graphs) n_compiled = 0;
    first_number = GEN_EMPTY;
    compare_graphs();
    first_number = 0;
    print_message("%d graphs of %.1f nodes, %d with dynamic sizes, %d with a dynamic size of 0\n",
                  covered.graphs, (double)covered.nodes / covered.graphs, covered.dynamic,
                  covered.empty);
    assert_true(covered.dynamic * 10 >= n_graphs * 8 && covered.empty * 10 >= n_graphs * 3);
    n_graphs = graphs, n_compiled = compile;
}

// ------------------------------------------------------------------------------------------------
// planted bugs

static int plant;

static const char *const plants[] = {"a difference turned round", "a choice turned round",
                                     "a factor taken for the other"};

// Spoils the first place of its kind that reads what the kernel itself computed, as only a fused
// one does.
static bool spoil(ct_kir *k) {
    for (size_t i = 0; i < k->n; i++) {
        ct_kins *ins = &k->ins[i];
        ct_kval *a = plant == 1 ? &ins->b : &ins->a, *b = plant == 1 ? &ins->c : &ins->b;
        static const int op[] = {CT_K_SUB, CT_K_SELECT, CT_K_MUL};
        if (ins->op != op[plant] || !(CT_FLOATS & CT_MASK(ins->dtype)) || *a == *b) continue;
        if (k->ins[*a].op < CT_K_NEG || k->ins[*a].lanes != k->ins[*b].lanes) continue;
        ct_kval first = *a;
        *a = *b;
        if (plant != 2) *b = first;
        return true;
    }
    return false;
}

static bool planted_build(ct_device *device, ct_kernel *const *kernels, size_t n, ct_err *err) {
    for (size_t i = 0; i < n; i++) {
        if (!spoil((ct_kir *)(uintptr_t)kernels[i]->ir)) continue;
        size_t room = strlen(kernels[i]->text) + 32;
        char *text = ct__malloc(room); // by which the process knows kernels
        assert_non_null(text);
        (void)snprintf(text, room, "%s// spoiled %d\n", kernels[i]->text, plant);
        ct__free((char *)(uintptr_t)kernels[i]->text);
        kernels[i]->text = text;
    }
    return ct__backend_cpu.build(device, kernels, n, err);
}

static ct_ctx *context(const char *device) {
    ct_ctx *ctx = ct_ctx_new();
    ct_ctx_use(ctx);
    ct_set_log(NULL, NULL);
    if (!ctx || !ct_set_device(device)) {
        fprintf(stderr, "test_random_graphs_slow: %s\n", ct_error_text());
        exit(EXIT_UNTRIED);
    }
    return ctx;
}

static bool finds(one_graph *all, int n) {
    int before = failures;
    run_unfused(all, n);
    equal_bits(planted, all, n, 1, plants[plant]);
    forget(all, n);
    bool found = failures > before;
    failures = before;
    return found;
}

static void finds_planted_bugs(void **state) {
    (void)state;
    ct_backend spoiling = ct__backend_cpu;
    spoiling.build = planted_build;
    if (only_one || only_batch >= 0 || first_number) return;
    watch_for_crashes();
    use_compiler(false);
    for (plant = 0; plant < 3; plant++) {
        maker m;
        maker_begin(&m);
        planted = context("cpu");
        ((ct_executor *)ct__ctx()->device)->device->backend = &spoiling;
        bool found = false;
        quiet = true;
        while (m.n < n_graphs && !found) {
            one_graph one;
            next_graph(&m, &one);
            found = finds(&one, 1);
            free_batch(&one, 1);
        }
        quiet = false;
        free(m.hashes);
        ct_ctx_use(NULL);
        ct_ctx_free(planted);
        if (!found) fail_msg("%s: %d graphs do not show it", plants[plant], m.n);
        print_message("%s: found with graph %d\n", plants[plant], m.n);
    }
    use_compiler(true);
    ct_set_threads(0);
}

// Sums in order of equal numbers err to one side at every step, far more than what their operands
// are disturbed by.
static void long_chains_are_near(void **state) {
    (void)state;
    int64_t n = 4020;
    ct_dtype dtypes[] = {CT_F32, CT_F16, CT_BF16, CT_F64};
    if (only_one || only_batch >= 0 || first_number) return;
    watch_for_crashes();
    for (int i = 0; i < 4; i++) {
        gen_graph g;
        ct_ctx *before = ct_ctx_use(reference);
        {
            CT_SCOPE;
            gen_begin(&g, seed + (uint64_t)i);
            gen_leaf(&g, dtypes[i], gen_dims(&g, 0, &n), 0.07, 0.1);
            gen_step expand = {.kind = GEN_OP, .op = &ct__op_expand, .n_in = 1};
            gen_step sum = {.kind = GEN_OP, .op = &ct__op_cumsum, .n_in = 1, .in = {1}};
            *(ct_ints *)(void *)expand.attrs = gen_dims(&g, 1, &n);
            assert_true(gen_commit(&g, &expand) == 1 && gen_commit(&g, &sum) == 2);
            gen_end(&g);
        }
        ct_ctx_use(before);
        one_graph one = {.graph = &g, .number = (uint64_t)i, .run = true};
        int known = failures;
        compare(&one, 1, false);
        assert_int_equal(failures, known);
        gen_free(&g);
    }
    ct_set_threads(0);
}

// A bug that shows only where many graphs are one plan is told with the command for all of them.
static void what_fails_together_is_told(void **state) {
    (void)state;
    if (only_one || only_batch >= 0 || first_number) return;
    char *said = NULL, want[500];
    size_t size = 0;
    FILE *to = report;
    one_graph all[BATCH];
    maker m;
    if (n_graphs < TOGETHER) return;
    watch_for_crashes();
    maker_begin(&m);
    int before = failures, n = next_batch(&m, all, TOGETHER);
    report = open_memstream(&said, &size);
    spoil_together = true;
    compare_batch(all, n, n, false);
    spoil_together = false;
    fclose(report);
    report = to;
    assert_true(spoiled > 0);                         // some may have no elements, or NaN alone
    assert_int_equal(failures, before + 3 * spoiled); // by three numbers of threads
    failures = before;
    snprintf(want, sizeof want,
             "graphs %llu to %llu fail together, none of them alone\nrepeat: COTAN_VERIFY=1 "
             "COTAN_FUZZ_SEED=%llu COTAN_FUZZ_COUNT=%d COTAN_FUZZ_BATCH=0 %s\n\n",
             (unsigned long long)all->number, (unsigned long long)all[n - 1].number,
             (unsigned long long)seed, TOGETHER, program);
    const char *last = strstr(said, "graphs ");
    assert_non_null(last);
    assert_string_equal(last, want);
    snprintf(want, sizeof want, "\nrepeat: COTAN_VERIFY=1 COTAN_FUZZ_SEED=%llu COTAN_FUZZ_ONLY=",
             (unsigned long long)seed);
    assert_non_null(strstr(said, want));
    free_batch(all, n);
    free(m.hashes);
    free(said);
    ct_set_threads(0);
}

// ------------------------------------------------------------------------------------------------
// what a crash says

static void *fault(void *unused) {
    static volatile uintptr_t nowhere =
        64; // a sanitizer would look for NULL before the processor does
    (void)unused;
    *(volatile char *)nowhere = 1;
    return NULL;
}
static void *use_up_stack(void *unused) {
    volatile char block[1 << 16];
    block[0] = 1;
    if (block[0]) use_up_stack(unused);
    return (void *)(uintptr_t)block[0];
}
static void *abort_at_once(void *unused) {
    (void)unused;
    abort();
}

// What a child says that crashes so, in its first thread or in one like the library's.
static void say_crash(void *(*crash)(void *), bool in_thread, char *said, size_t most,
                      int *status) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        pthread_t id;
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]), close(ends[1]);
        work_on(7, 7, "ran");
        if (!in_thread)
            crash(NULL);
        else if (ct__thread_start(&id, crash, NULL) == 0)
            pthread_join(id, NULL);
        _exit(0);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t r; n + 1 < most && (r = read(ends[0], said + n, most - n - 1)) > 0;)
        n += (size_t)r;
    said[n] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(child, status, 0), child);
}

static void a_crash_tells_its_graph(void **state) {
    (void)state;
    static const struct {
        void *(*crash)(void *);
        bool in_thread;
        int number;
    } cases[] = {{fault, false, SIGSEGV},
                 {fault, true, SIGSEGV},
                 {use_up_stack, false, SIGSEGV},
                 {abort_at_once, false, SIGABRT},
                 {abort_at_once, true, SIGABRT}};
    char want[COMMAND + 100], said[8192];
    snprintf(want, sizeof want,
             "\na crash while graphs 7 to 7 ran\n"
             "repeat: COTAN_VERIFY=1 COTAN_FUZZ_SEED=%llu COTAN_FUZZ_ONLY=7 %s\n\n",
             (unsigned long long)seed, program);
    watch_for_crashes();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status;
        say_crash(cases[i].crash, cases[i].in_thread, said, sizeof said, &status);
        assert_non_null(strstr(said, want)); // a sanitizer has more to say, before and behind it
        assert_true(before_cmocka[0].sa_handler != SIG_DFL ||
                    (WIFSIGNALED(status) && WTERMSIG(status) == cases[i].number));
    }
}

static int free_contexts(void **state) {
    (void)state;
    ct_ctx_use(NULL);
    ct_ctx *contexts[] = {reference, fused, unfused, async, compiled};
    for (int i = 0; i < 5; i++) ct_ctx_free(contexts[i]);
    return 0;
}

int main(int argc, char **argv) {
    const char *text;
    (void)argc;
    program = argv[0], report = stderr;
    if ((text = getenv("COTAN_FUZZ_SEED"))) seed = strtoull(text, NULL, 10);
    if (getenv("COTAN_FUZZ_EMPTY")) first_number = GEN_EMPTY;
    if (getenv("COTAN_TEST_ALL")) n_graphs = ALL_GRAPHS, n_compiled = INT32_MAX;
    if ((text = getenv("COTAN_FUZZ_COUNT"))) n_graphs = atoi(text);
    if ((only_one = (text = getenv("COTAN_FUZZ_ONLY")))) only = strtoull(text, NULL, 10);
    if ((text = getenv("COTAN_FUZZ_BATCH"))) only_batch = atoi(text);
    if (only_one || only_batch >= 0) n_compiled = INT32_MAX;
    if ((text = getenv("COTAN_FUZZ_COMPILED"))) n_compiled = atoi(text);
    if (only_one) n_graphs = 1;
    for (int i = 0; i < FAULTS; i++) sigaction(faults[i], NULL, &before_cmocka[i]);
    if (n_graphs < 1) return 2;
    if ((text = getenv("COTAN_CC")) && !(compiler = strdup(text))) return 2;
    reference = context("ref");
    fused = context("cpu");
    async = context("async:cpu");
    setenv("COTAN_CHECK", "bounds", 1); // nothing is written behind any buffer
    unfused = context("cpu");
    compiled = context((text = getenv("COTAN_FUZZ_DEVICE")) ? text : "cpu");
    unsetenv("COTAN_CHECK");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_equals_ref),
        cmocka_unit_test(covers_the_table),
        cmocka_unit_test(empty_and_dynamic_axes),
        cmocka_unit_test(finds_planted_bugs),
        cmocka_unit_test(what_fails_together_is_told),
        cmocka_unit_test(long_chains_are_near),
        cmocka_unit_test(a_crash_tells_its_graph),
    };
    return cmocka_run_group_tests_name("graphs", tests, NULL, free_contexts);
}
