// A run starts at once if possible: if interpreting the uncompiled kernels would take longer than
// compiling them, the run waits for the compiler; else they are interpreted, in chunks, and
// replaced when a compiler in the background is done. All waiting happens here, before the run
// takes any lock.
#include "backend/cpu/start.h"

#include "backend/cpu/build.h"
#include "backend/cpu/code.h"
#include "backend/cpu/interp.h"
#include "backend/cpu/queue.h"

typedef struct {
    const ct_kernel *kernel;
    const struct ct_kir *ir;
    const int64_t *numbers; // of the launch added last, which takes `each` ns;
    double each, ns;        // `ns`: all launches of the kernel
    bool await;
} unfinished;

typedef struct {
    unfinished *of; // (n)
    size_t n, cap;
} list;

static ct_cpu_code *start_code_of(const unfinished *u) { return u->kernel->code; }
static bool start_is_unready(const ct_cpu_code *code) {
    return !ct__code_fn(code) && !atomic_load(&code->failure);
}

static unfinished *start_find_or_add(list *l, const ct_command *c) {
    for (size_t i = 0; i < l->n; i++)
        if (l->of[i].kernel == c->kernel) return &l->of[i];
    if (!CT_GROW(l->of, l->cap, l->n + 1)) return NULL;
    l->of[l->n] = (unfinished){.kernel = c->kernel, .ir = c->ir};
    return &l->of[l->n++];
}

static bool start_add_launch(list *l, const ct_command *c, double times) {
    if (ct__code_fn(c->kernel->code)) return true;
    unfinished *u = start_find_or_add(l, c);
    if (!u) return false;
    if (u->numbers != c->numbers || u->ns == 0) u->each = ct__interp_ns(c->ir, c->numbers);
    u->numbers = c->numbers;
    u->ns += u->each * times;
    return true;
}

// A while loop, whose number of iterations is unknown, counts as one of a few: its kernels are
// replaced while it runs.
static double start_estimate_iterations(const ct_command *c) {
    enum { FEW_ITERATIONS = 100 };
    if (c->kind != CT_COMMAND_LOOP) return 1;
    return c->n_args && c->count > FEW_ITERATIONS ? FEW_ITERATIONS : (double)c->count;
}

static bool start_list_unfinished(list *l, const ct_command *commands, size_t n, size_t *at,
                                  double times) {
    for (; *at < n && commands[*at].kind != CT_COMMAND_END; ++*at) {
        const ct_command *c = &commands[*at];
        bool opens = c->kind == CT_COMMAND_LOOP || c->kind == CT_COMMAND_SWITCH ||
                     c->kind == CT_COMMAND_BATCH;
        if (c->kind == CT_COMMAND_KERNEL && !start_add_launch(l, c, times)) return false;
        if (opens && (++*at, !start_list_unfinished(l, commands, n, at,
                                                    times * start_estimate_iterations(c))))
            return false;
    }
    return true;
}

// A kernel is worth waiting for if its launches take longer interpreted than it takes to compile,
// and all such kernels together if that saves more than a compiler's start. Then the run waits for
// the others as well: compiled next to a run that keeps all cores busy, they would cost it what
// they save. Both compilation of many kernels and interpretation of a launch use all threads.
static void start_choose_awaited(list *l, int threads) {
    double compile = (double)ct__cpu_compile_ns() / threads, gain = 0;
    for (size_t i = 0; i < l->n; i++) {
        double ns = l->of[i].ns / threads;
        if (start_is_unready(start_code_of(&l->of[i])) && ns > compile) gain += ns - compile;
    }
    bool worth = gain > CT_CC_START * (double)ct__cpu_compile_ns();
    for (size_t i = 0; i < l->n; i++) l->of[i].await |= worth;
}

// Returns the first kernel to wait for; NULL: none.
static ct_cpu_code *start_first_awaited(const list *l) {
    for (size_t i = 0; i < l->n; i++)
        if (l->of[i].await && start_is_unready(start_code_of(&l->of[i])))
            return start_code_of(&l->of[i]);
    return NULL;
}

// Compiles on this thread while there is something to compile, else waits for other threads.
static bool start_await(const list *l, int threads, const atomic_bool *stop, ct_err *err) {
    for (size_t i = 0; i < l->n; i++)
        if (l->of[i].await) ct__queue_prioritize(start_code_of(&l->of[i]));
    if (!start_first_awaited(l)) return true;
    ct__queue_start(threads, true);
    for (ct_cpu_code *code; (code = start_first_awaited(l));) {
        if (stop && atomic_load(stop))
            return ct__err(err, CT_E_INTERRUPTED, CT_NOWHERE, "run", CT_CANCELLED);
        bool waited = ct__queue_compile_some() || ct__queue_await(code) || ct__code_await(code);
        if (!waited && start_is_unready(code)) break;
    }
    return true;
}

// Prepares the other kernels for the interpreter. *again: some do not fit the scratch memory, so
// the run must wait for them.
static bool start_prepare_interp(list *l, bool *again, ct_err *err) {
    *again = false;
    for (size_t i = 0; i < l->n; i++) {
        unfinished *u = &l->of[i];
        size_t frame = 0;
        if (ct__code_fn(start_code_of(u))) continue;
        if (!ct__code_prepare_interp(start_code_of(u), u->ir, &frame, err)) return false;
        bool fits = frame <= u->kernel->scratch || !start_is_unready(start_code_of(u));
        *again |= !fits && !u->await;
        u->await |= !fits;
    }
    return true;
}

bool ct__cpu_start(const ct_command *commands, size_t n, int threads, const atomic_bool *stop,
                   bool *finished, ct_err *err) {
    list l = {0};
    size_t at = 0;
    bool again = true, ok = start_list_unfinished(&l, commands, n, &at, 1);
    if (!ok) ct__err_memory(err, CT_NOWHERE, "cpu", (l.n + 1) * sizeof *l.of);
    if (ok) start_choose_awaited(&l, threads);
    while (ok && again)
        ok = start_await(&l, threads, stop, err) && start_prepare_interp(&l, &again, err);
    *finished = true;
    for (size_t i = 0; i < l.n; i++) *finished &= !start_is_unready(start_code_of(&l.of[i]));
    ct__queue_start(threads > 1 ? threads - 1 : 1, false);
    ct__free(l.of);
    return ok;
}
