// It starts at once: where interpreting the kernels that are not compiled yet would take longer than
// compiling them, they are waited for; else they are interpreted, by pieces, and a compiler that runs in
// the background replaces them when it is done. All waiting is done here, before the run takes any lock.
#include "backend/cpu/start.h"

#include "backend/cpu/build.h"
#include "backend/cpu/code.h"
#include "backend/cpu/interp.h"
#include "backend/cpu/queue.h"
#include "base/os.h"

typedef struct {
    const ct_kernel *kernel;
    const struct ct_kir *ir;
    const int64_t *numbers; // of the launch that was looked at last, which took so many ns:
    double each, ns;        // and all launches of the kernel
    bool wanted;
} unfinished;

typedef struct {
    unfinished *of; // (n)
    size_t n, cap;
} list;

static ct_cpu_code *code_of(const unfinished *u) { return u->kernel->code; }
static bool is_open(const ct_cpu_code *code) {
    return !ct__code_fn(code) && !atomic_load(&code->failure);
}

static unfinished *find_or_add(list *l, const ct_command *c) {
    for (size_t i = 0; i < l->n; i++)
        if (l->of[i].kernel == c->kernel) return &l->of[i];
    if (!CT_GROW(l->of, l->cap, l->n + 1)) return NULL;
    l->of[l->n] = (unfinished){.kernel = c->kernel, .ir = c->ir};
    return &l->of[l->n++];
}

static bool add_launch(list *l, const ct_command *c, double times) {
    if (ct__code_fn(c->kernel->code)) return true;
    unfinished *u = find_or_add(l, c);
    if (!u) return false;
    if (u->numbers != c->numbers || u->ns == 0) u->each = ct__interp_ns(c->ir, c->numbers);
    u->numbers = c->numbers;
    u->ns += u->each * times;
    return true;
}

// A loop that ends by a value, of which nothing is known, counts as one of a few turns: its kernels
// are replaced while it runs.
static double turns_of(const ct_command *c) {
    enum { FEW = 100 };
    if (c->kind != CT_COMMAND_LOOP) return 1;
    return c->n_args && c->count > FEW ? FEW : (double)c->count;
}

static bool list_unfinished(list *l, const ct_command *commands, size_t n, size_t *at,
                            double times) {
    for (; *at < n && commands[*at].kind != CT_COMMAND_END; ++*at) {
        const ct_command *c = &commands[*at];
        bool opens = c->kind == CT_COMMAND_LOOP || c->kind == CT_COMMAND_SWITCH ||
                     c->kind == CT_COMMAND_BATCH;
        if (c->kind == CT_COMMAND_KERNEL && !add_launch(l, c, times)) return false;
        if (opens && (++*at, !list_unfinished(l, commands, n, at, times * turns_of(c))))
            return false;
    }
    return true;
}

// A kernel is worth waiting for if its launches take longer interpreted than it takes to compile, and
// all such together if that saves more than a compiler's start. Then the others are waited for as well:
// compiled behind a run that keeps all cores busy, they would take from it what they save. Many kernels
// are compiled, and a launch is interpreted, on all threads.
static void choose(list *l, int threads) {
    double compile = (double)ct__cpu_compile_ns() / threads, gain = 0;
    for (size_t i = 0; i < l->n; i++) {
        double ns = l->of[i].ns / threads;
        if (is_open(code_of(&l->of[i])) && ns > compile) gain += ns - compile;
    }
    bool worth = gain > CT_CC_START * (double)ct__cpu_compile_ns();
    for (size_t i = 0; i < l->n; i++) l->of[i].wanted |= worth;
}

// The first that is waited for; NULL: none is.
static ct_cpu_code *awaited(const list *l) {
    for (size_t i = 0; i < l->n; i++)
        if (l->of[i].wanted && is_open(code_of(&l->of[i]))) return code_of(&l->of[i]);
    return NULL;
}

// Compiles itself while there is something to compile, else waits for who does.
static bool await(const list *l, int threads, const atomic_bool *stop, ct_err *err) {
    for (size_t i = 0; i < l->n; i++)
        if (l->of[i].wanted) ct__queue_prioritize(code_of(&l->of[i]));
    if (!awaited(l)) return true;
    ct__queue_start(threads, true);
    for (ct_cpu_code *code; (code = awaited(l));) {
        if (stop && atomic_load(stop))
            return ct__err(err, CT_E_INTERRUPTED, CT_NOWHERE, "run", CT_CANCELLED);
        if (!ct__queue_compile_some() && !ct__code_await(code) && is_open(code)) break;
    }
    return true;
}

// Makes the others ready. *again: some do not fit the scratch memory and are wanted now.
static bool make_interpretable(list *l, bool *again, ct_err *err) {
    *again = false;
    for (size_t i = 0; i < l->n; i++) {
        unfinished *u = &l->of[i];
        size_t frame = 0;
        if (ct__code_fn(code_of(u))) continue;
        if (!ct__code_prepare_interp(code_of(u), u->ir, &frame, err)) return false;
        bool fits = frame <= u->kernel->scratch || !is_open(code_of(u));
        *again |= !fits && !u->wanted;
        u->wanted |= !fits;
    }
    return true;
}

bool ct__cpu_start(const ct_command *commands, size_t n, int threads, const atomic_bool *stop,
                   bool *finished, ct_err *err) {
    list l = {0};
    size_t at = 0;
    bool again = true, ok = list_unfinished(&l, commands, n, &at, 1);
    if (!ok) ct__err_memory(err, CT_NOWHERE, "cpu", (l.n + 1) * sizeof *l.of);
    if (ok) choose(&l, threads);
    while (ok && again) ok = await(&l, threads, stop, err) && make_interpretable(&l, &again, err);
    *finished = true;
    for (size_t i = 0; i < l.n; i++) *finished &= !is_open(code_of(&l.of[i]));
    ct__queue_start(threads > 1 ? threads - 1 : 1, false);
    ct__free(l.of);
    return ok;
}
