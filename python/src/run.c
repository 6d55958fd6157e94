// Reads, which may run a plan: the GIL is free meanwhile, and Ctrl-C ends it at once.
#include "core.h"
#include "threads.h"
#include "whole.h"

#include <signal.h>

static ct_ctx *_Atomic running; // of the main thread, while it reads
static bool left;               // a plan failed: what it left can be long, and is not pending
static struct sigaction before;

// Python's own handler only notes the signal until the interpreter goes on.
static void on_interrupt(int signal) {
    ct_cancel(running);
    if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) before.sa_handler(signal);
}

// Nothing is pending: then nothing runs, and no handler is needed, unless a plan left something. A program that handles the signal
// by itself keeps its handler.
static bool watch(void) {
    if ((!ct_rolling_pending() && !left) || !thread_here()->is_main || !whole_may_cancel())
        return false;
    sigaction(SIGINT, NULL, &before);
    if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN ||
        before.sa_flags & SA_SIGINFO)
        return false;
    running = ct_ctx_current();
    struct sigaction ours = {.sa_handler = on_interrupt, .sa_flags = before.sa_flags};
    ours.sa_mask = before.sa_mask;
    return sigaction(SIGINT, &ours, NULL) == 0;
}
static void unwatch(void) {
    sigaction(SIGINT, &before, NULL);
    running = NULL;
}

typedef struct reading {
    const ct_tensor *t;
    size_t n;
    ct_loc here;
    const void *data;
    ct_loan **loan;
} reading;
static void borrow(reading *r) { r->data = ct_borrow_at(*r->t, r->loan, r->here); }
static void read_all(reading *r) {
    if (!ct_eval_at(r->t, r->n, r->here)) return; // the context tells
}
static void visit(reading *r) {
    if (!ct_rolling_visit_at(r->t, r->n, r->here)) return;
}

// True if the run is to be repeated; false with an exception set. A handler that raises nothing, such as one that only sets a flag, costs
// nothing: what was recorded is as it was.
static bool again(const failure *why, ct_ctx *ran) {
    if (why->code != CT_E_INTERRUPTED) return raise_text(why->code, why->text);
    if (PyErr_CheckSignals() == 0 && whole_deliver()) return true;
    ct_ctx *mine = ct_ctx_use(ran);
    ct_rolling_give_up();
    ct_ctx_use(mine);
    return false; // KeyboardInterrupt
}

static bool run(reading *r, void (*read)(reading *)) {
    thread *self = thread_here();
    for (;;) {
        const bool watched = watch();
        thread_run_begin(self);
        PyThreadState *state = PyEval_SaveThread();
        read(r);
        PyEval_RestoreThread(state);
        if (watched) unwatch();
        self->backward_waits = false;
        const bool ok = !ct_failed();
        failure why;
        if (!ok) take_failure(&why);
        left = left || !ok;
        thread_run_end(self);
        if (ok) {
            thread_ran(self);
            whole_ran();
        }
        if (ok || !again(&why, self->ctx)) return ok;
    }
}

// The GIL is held throughout, so the other thread stays where it is: in the middle of a call, maybe.
bool run_there(thread *owner, const ct_tensor *t, size_t n, ct_loc here) {
    reading r = {.t = t, .n = n, .here = here};
    for (;;) {
        ct_ctx *mine = ct_ctx_use(owner->ctx);
        const bool watched = watch();
        errors_log_later();
        visit(&r);
        if (watched) unwatch();
        owner->backward_waits = false;
        owner->visited = true;
        const bool ok = !ct_failed();
        failure why;
        if (!ok) take_failure(&why);
        if (owner->ended) thread_call(owner);
        ct_ctx_use(mine);
        errors_log_now();
        if (ok || !again(&why, owner->ctx)) return ok;
    }
}

// Without the GIL a tensor of all threads could be written: a value of this thread's stands for it.
const void *run_borrow(ct_tensor t, ct_loan **loan, ct_loc here) {
    thread_here()->reads++;
    const ct_tensor own = thread_others ? ct_pin_at(t, here) : t;
    reading r = {.t = &own, .here = here, .loan = loan};
    const bool ok = run(&r, borrow);
    if (own.bits != t.bits) ct_unpin(own);
    return ok && !r.data ? raise_failure() : r.data;
}
bool run_eval(const ct_tensor *t, size_t n, ct_loc here) {
    reading r = {.t = t, .n = n, .here = here};
    return run(&r, read_all);
}
