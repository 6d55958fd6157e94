// Reads, which may run a plan: the GIL is released meanwhile, and Ctrl-C interrupts the plan at once.
#include "core.h"
#include "threads.h"
#include "whole.h"

#include <signal.h>

static ct_ctx *_Atomic interrupt_context; // the main thread's context, while it reads
// A plan failed: the work that it left can be long, and is not pending.
static bool run_has_leftovers;
static struct sigaction interrupt_previous;

// Python's own handler only notes the signal until the interpreter continues.
static void py_interrupt_handler(int signal) {
    ct_cancel(interrupt_context);
    if (interrupt_previous.sa_handler != SIG_DFL && interrupt_previous.sa_handler != SIG_IGN)
        interrupt_previous.sa_handler(signal);
}

// Installs a SIGINT handler while a plan runs. None is needed if nothing is pending, unless a plan left
// something. A program that handles the signal by itself keeps its handler.
static bool py_interrupt_watch(void) {
    if ((!ct_rolling_pending() && !run_has_leftovers) || !thread_get()->is_main ||
        !critical_can_cancel())
        return false;
    sigaction(SIGINT, NULL, &interrupt_previous);
    if (interrupt_previous.sa_handler == SIG_DFL || interrupt_previous.sa_handler == SIG_IGN ||
        interrupt_previous.sa_flags & SA_SIGINFO)
        return false;
    interrupt_context = ct_ctx_current();
    struct sigaction ours = {.sa_handler = py_interrupt_handler,
                             .sa_flags = interrupt_previous.sa_flags};
    ours.sa_mask = interrupt_previous.sa_mask;
    return sigaction(SIGINT, &ours, NULL) == 0;
}
static void py_interrupt_unwatch(void) {
    sigaction(SIGINT, &interrupt_previous, NULL);
    interrupt_context = NULL;
}

typedef struct run_request {
    const ct_tensor *t;
    size_t n;
    ct_loc here;
    const void *data;
    ct_borrowed **borrowed;
} run_request;
static void py_run_borrow_now(run_request *r) {
    r->data = ct_borrow_at(*r->t, r->borrowed, r->here);
}
static void py_run_eval_now(run_request *r) {
    if (!ct_eval_at(r->t, r->n, r->here)) return; // the context has the error
}
static void py_run_visit_now(run_request *r) {
    if (!ct_rolling_eval_at(r->t, r->n, r->here)) return;
}

// True if the run is to be repeated; false with an exception set. It is repeated after a handler that raises
// nothing, such as one that only sets a flag: the recorded work is unchanged.
static bool py_run_should_retry(const library_error *error, ct_ctx *run_ctx) {
    if (error->code != CT_E_INTERRUPTED) return raise_message(error->code, error->text);
    if (PyErr_CheckSignals() == 0 && critical_deliver_signals()) return true;
    ct_ctx *mine = ct_ctx_use(run_ctx);
    ct_rolling_discard_pending();
    ct_ctx_use(mine);
    return false; // KeyboardInterrupt
}

static bool py_run_read(run_request *r, void (*read)(run_request *)) {
    thread *self = thread_get();
    for (;;) {
        const bool watched = py_interrupt_watch();
        thread_run_begin(self);
        PyThreadState *state = PyEval_SaveThread();
        read(r);
        PyEval_RestoreThread(state);
        if (watched) py_interrupt_unwatch();
        self->backward_pending = false;
        const bool ok = !ct_failed();
        library_error error;
        if (!ok) take_error(&error);
        run_has_leftovers = run_has_leftovers || !ok;
        thread_run_end(self);
        if (ok) {
            thread_free_ready(self);
            critical_plan_ran();
        }
        if (ok || !py_run_should_retry(&error, self->ctx)) return ok;
    }
}

// The GIL is held throughout, so the other thread does not continue; it may be in the middle of a call.
bool run_eval_in_thread(thread *owner, const ct_tensor *t, size_t n, ct_loc here) {
    run_request r = {.t = t, .n = n, .here = here};
    for (;;) {
        ct_ctx *mine = ct_ctx_use(owner->ctx);
        const bool watched = py_interrupt_watch();
        errors_log_defer();
        py_run_visit_now(&r);
        if (watched) py_interrupt_unwatch();
        owner->backward_pending = false;
        owner->ran_for_others = true;
        const bool ok = !ct_failed();
        library_error error;
        if (!ok) take_error(&error);
        if (owner->ended) thread_run_deferred(owner);
        ct_ctx_use(mine);
        errors_log_flush();
        if (ok || !py_run_should_retry(&error, owner->ctx)) return ok;
    }
}

// Without the GIL another thread could write to a tensor that all threads share, so a value of this thread is
// pinned instead.
const void *run_borrow(ct_tensor t, ct_borrowed **borrowed, ct_loc here) {
    thread_get()->reads++;
    const ct_tensor own = thread_has_others ? ct_pin_at(t, here) : t;
    run_request r = {.t = &own, .here = here, .borrowed = borrowed};
    const bool ok = py_run_read(&r, py_run_borrow_now);
    if (own.bits != t.bits) ct_unpin(own);
    return ok && !r.data ? raise_error() : r.data;
}
bool run_eval(const ct_tensor *t, size_t n, ct_loc here) {
    run_request r = {.t = t, .n = n, .here = here};
    return py_run_read(&r, py_run_eval_now);
}
