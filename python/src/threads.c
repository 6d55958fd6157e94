// Threads and their contexts; see threads.h.
#include "threads.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

_Thread_local thread *thread_current;
bool thread_has_others;
// The threads that have ended, whose contexts are free for the next ones.
static thread *threads_ended;
static thread thread_without_context; // has no context: in a forked child, or without memory
static ct_ctx *shared_ctx;            // the context of values that several threads use
static const char thread_capsule_name[] = "cotan.thread";

static pthread_mutex_t thread_lock = PTHREAD_MUTEX_INITIALIZER;
// Signalled when something changes that others may wait for.
static pthread_cond_t thread_changed = PTHREAD_COND_INITIALIZER;
static uint64_t thread_n_changes; // guarded by the lock
static bool thread_is_forked;     // in a child, where the other threads do not run

static void thread_in_forked_child(void) { // another thread may have held the lock
    thread_is_forked = true;
    pthread_mutex_init(&thread_lock, NULL);
}

// -------------------------------------------------------------------------------------- begin, end

static bool thread_is_main(void) {
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *main = threading ? PyObject_CallMethod(threading, "main_thread", NULL) : NULL;
    PyObject *ident = main ? PyObject_GetAttrString(main, "ident") : NULL;
    const bool is = ident && PyLong_AsUnsignedLong(ident) == PyThread_get_thread_ident();
    release(ident, main, threading);
    PyErr_Clear();
    return is;
}

static thread *thread_new(void) {
    static bool any;
    if (!any && pthread_atfork(NULL, NULL, thread_in_forked_child) != 0)
        return &thread_without_context;
    thread *self = calloc(1, sizeof *self);
    if (self) self->ctx = ct_ctx_new();
    if (!self || !self->ctx) {
        free(self);
        return &thread_without_context;
    }
    ct_ctx_use(self->ctx);
    ct_set_log(errors_log, NULL);
    if (!ct_rolling_begin()) ct_error_clear();
    thread_has_others = any;
    any = true;
    return self;
}

// Computes what is pending and held, so that a thread that got a tensor finds its value.
static void thread_run_pending(thread *self) {
    if (self->is_main || !ct_rolling_pending()) return;
    // A read of what failed raises the error again.
    if (!run_eval(NULL, 0, CT_NOWHERE)) PyErr_Clear();
}

// The destructor of the capsule in the thread's dict. Nothing is done if another thread is closed by this
// one, if the process ends, or in a forked child.
static void thread_end(PyObject *capsule) {
    thread *self = PyCapsule_GetPointer(capsule, thread_capsule_name);
    if (self != thread_current || self->is_main) return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    thread_run_deferred(self);
    thread_run_pending(self);
    PyErr_Restore(type, value, trace);
    ct_ctx_use(NULL);
    thread_current = NULL;
    self->ended = true;
    if (self->has_own_settings) return; // what it made stays valid
    self->next = threads_ended;
    threads_ended = self;
}

thread *thread_attach(void) {
    thread *self = threads_ended;
    if (self) {
        threads_ended = self->next;
        self->ended = self->no_grad = self->backward_pending = false;
        ct_ctx_use(self->ctx);
    } else {
        self = thread_new();
    }
    thread_current = self;
    if (self == &thread_without_context) return self;
    self->is_main = thread_is_main();
    PyObject *dict = PyThreadState_GetDict(); // borrowed
    PyObject *capsule = dict ? PyCapsule_New(self, thread_capsule_name, thread_end) : NULL;
    if (capsule) PyDict_SetItemString(dict, thread_capsule_name, capsule);
    Py_XDECREF(capsule);
    PyErr_Clear();
    return self;
}

void thread_run_deferred(thread *self) {
    while (self->n_deferred_unpins) ct_unpin(self->deferred_unpins[--self->n_deferred_unpins]);
    if (!self->ran_for_others || self->n_traced_functions) return;
    self->ran_for_others = false;
    ct_rolling_free_deferred();
    thread_free_ready(self);
}

// ------------------------------------------------------------------------------------------ waiting

void thread_notify(void) {
    pthread_mutex_lock(&thread_lock);
    thread_n_changes++;
    pthread_cond_broadcast(&thread_changed);
    pthread_mutex_unlock(&thread_lock);
}

// Waits until something changes, or a moment has passed, since a signal wakes no waiting thread.
static void thread_wait_for_change(void) {
    enum { MOMENT = 50000000 }; // nanoseconds
    pthread_mutex_lock(&thread_lock);
    const uint64_t n_before = thread_n_changes;
    pthread_mutex_unlock(&thread_lock);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += MOMENT;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    PyThreadState *state = PyEval_SaveThread();
    pthread_mutex_lock(&thread_lock);
    while (thread_n_changes == n_before &&
           pthread_cond_timedwait(&thread_changed, &thread_lock, &until) == 0) {
    }
    pthread_mutex_unlock(&thread_lock);
    PyEval_RestoreThread(state);
}

bool thread_wait(thread *other, bool until_traced) {
    bool ok = !thread_is_forked || raise_error();
    other->n_waiting++;
    while (ok && (other->busy || (until_traced && other->trace_depth))) {
        thread_wait_for_change();
        ok = PyErr_CheckSignals() == 0;
    }
    if (--other->n_waiting == 0) thread_notify();
    return ok;
}

void thread_run_begin(thread *self) { self->busy++; }
void thread_run_end(thread *self) {
    if (--self->busy || !thread_has_others) return;
    thread_notify();
    while (self->n_waiting && !self->trace_depth && !thread_is_forked) thread_wait_for_change();
}

// ---------------------------------------------------------------------------------- deferred frees

// Grows a list that is full; NULL if memory is out.
static void *py_list_reserve(void *list, size_t n, size_t *capacity, size_t each) {
    if (n < *capacity) return list;
    const size_t more = *capacity ? 2 * *capacity : 64;
    void *grown = realloc(list, more * each);
    if (grown) *capacity = more;
    return grown;
}

void thread_unpin(thread *owner, ct_tensor t) {
    if (owner->busy) {
        ct_tensor *unpins = py_list_reserve(owner->deferred_unpins, owner->n_deferred_unpins,
                                            &owner->deferred_unpins_capacity, sizeof *unpins);
        if (!unpins) return; // leaked
        owner->deferred_unpins = unpins;
        unpins[owner->n_deferred_unpins++] = t;
    } else {
        ct_ctx *before = ct_ctx_use(owner->ctx);
        ct_unpin(t);
        ct_ctx_use(before);
    }
}

struct deferred_free {
    ct_params *params; // the variables that may be read
    void (*free)(void *);
    void *object;
};

void thread_free_when_unread(thread *owner, ct_params *set, void (*give)(void *), void *what) {
    if (!owner->busy) {
        ct_ctx *before = ct_ctx_use(owner->ctx);
        const bool free_now = !ct_rolling_pending() && !ct_params_in_use(set);
        if (free_now) give(what);
        ct_ctx_use(before);
        if (free_now) return;
    }
    struct deferred_free *deferred_free =
        py_list_reserve(owner->deferred_free, owner->n_deferred_frees,
                        &owner->deferred_frees_capacity, sizeof *deferred_free);
    if (!deferred_free) return; // leaked
    owner->deferred_free = deferred_free;
    deferred_free[owner->n_deferred_frees++] = (struct deferred_free){set, give, what};
}

static void py_params_free(void *set) { ct_params_free(set); }
void thread_free_params(thread *owner, ct_params *set) {
    thread_free_when_unread(owner, set, py_params_free, set);
}

void thread_free_ready(thread *self) {
    if (ct_rolling_pending()) return; // the values that were read were computed before
    size_t kept = 0;
    for (size_t i = 0; i < self->n_deferred_frees; i++)
        if (ct_params_in_use(self->deferred_free[i].params))
            self->deferred_free[kept++] = self->deferred_free[i];
        else
            self->deferred_free[i].free(self->deferred_free[i].object);
    self->n_deferred_frees = kept;
}

// -------------------------------------------------------------------------- values for all threads

ct_tensor thread_share(ct_tensor t, ct_loc here) {
    if (!shared_ctx) shared_ctx = ct_ctx_new();
    ct_ctx *before = ct_ctx_use(shared_ctx);
    ct_tensor shared = ct_pin_at(t, here);
    const bool ok = ct_ok(shared);
    library_error why;
    if (!ok) take_error(&why);
    ct_ctx_use(before);
    if (!ok) raise_message(why.code, why.text);
    return ok ? shared : CT_NONE;
}
void thread_unshare(ct_tensor t) {
    ct_ctx *before = ct_ctx_use(shared_ctx);
    ct_unpin(t);
    ct_ctx_use(before);
}
