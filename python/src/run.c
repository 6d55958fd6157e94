// Reads, which may run a plan: the GIL is free meanwhile, and Ctrl-C ends it at once.
#include "core.h"
#include "tensor.h"

#include <signal.h>

static ct_ctx *_Atomic running; // of the main thread, while it reads
static bool left;               // a plan failed: what it left can be long, and is not pending
static struct sigaction before;

// Python's own handler only notes the signal until the interpreter goes on.
static void on_interrupt(int signal) {
    ct_cancel(running);
    if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) before.sa_handler(signal);
}

static bool is_main(void) {
    static unsigned long main_thread;
    const unsigned long self = PyThread_get_thread_ident();
    if (!main_thread) {
        PyObject *threading = PyImport_ImportModule("threading");
        PyObject *thread = threading ? PyObject_CallMethod(threading, "main_thread", NULL) : NULL;
        PyObject *ident = thread ? PyObject_GetAttrString(thread, "ident") : NULL;
        if (ident) main_thread = PyLong_AsUnsignedLong(ident);
        Py_XDECREF(ident);
        Py_XDECREF(thread);
        Py_XDECREF(threading);
        PyErr_Clear();
    }
    return self == main_thread;
}

// Nothing is pending: then nothing runs, and no handler is needed, unless a plan left something. A program that handles the signal
// by itself keeps its handler.
static bool watch(void) {
    if ((!ct_rolling_pending() && !left) || !is_main()) return false;
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
    double item;
} reading;
static void read_data(reading *r) { r->data = ct_data_at(*r->t, r->here); }
static void borrow(reading *r) { r->data = ct_borrow_at(*r->t, r->loan, r->here); }
static void read_item_of(reading *r) { r->item = ct_item_at(*r->t, r->here); }
static void read_all(reading *r) {
    if (!ct_eval_at(r->t, r->n, r->here)) return; // the context tells
}

static bool run(reading *r, void (*read)(reading *)) {
    for (;;) {
        const bool watched = watch();
        PyThreadState *state = PyEval_SaveThread();
        read(r);
        PyEval_RestoreThread(state);
        if (watched) unwatch();
        autograd_ran();
        if (!ct_failed()) {
            tensor_ran();
            return true;
        }
        left = true;
        if (ct_error_code() != CT_E_INTERRUPTED) return raise_failure();
        ct_error_clear();
        if (PyErr_CheckSignals() < 0) return false; // KeyboardInterrupt; else once more
    }
}

const void *run_data(ct_tensor t, ct_loc here) {
    reading r = {.t = &t, .here = here};
    if (!run(&r, read_data)) return NULL;
    return r.data ? r.data : raise_failure();
}
const void *run_borrow(ct_tensor t, ct_loan **loan, ct_loc here) {
    reading r = {.t = &t, .here = here, .loan = loan};
    if (!run(&r, borrow)) return NULL;
    return r.data ? r.data : raise_failure();
}
bool run_eval(const ct_tensor *t, size_t n, ct_loc here) {
    reading r = {.t = t, .n = n, .here = here};
    return run(&r, read_all);
}
bool run_item(ct_tensor t, ct_loc here, double *value) {
    reading r = {.t = &t, .here = here};
    if (!run(&r, read_item_of)) return false;
    *value = r.item;
    return true;
}
