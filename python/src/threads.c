// Threads and their contexts: see threads.h.
#include "threads.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

_Thread_local thread *thread_mine;
bool thread_others;
static thread *ended;  // that have ended, and wait for the next ones
static thread nobody;  // of a forked child, or without memory: has no context
static ct_ctx *common; // of what several threads use
static const char name[] = "cotan.thread";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; // something that others may wait for
static uint64_t changes;                                  // how often; under the lock
static bool forked;                                       // a child, where the others run no more

static void in_child(void) { // where another thread may have had the lock
    forked = true;
    pthread_mutex_init(&lock, NULL);
}

// -------------------------------------------------------------------------------------- begin, end

static bool is_main(void) {
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *main = threading ? PyObject_CallMethod(threading, "main_thread", NULL) : NULL;
    PyObject *ident = main ? PyObject_GetAttrString(main, "ident") : NULL;
    const bool is = ident && PyLong_AsUnsignedLong(ident) == PyThread_get_thread_ident();
    Py_XDECREF(ident);
    Py_XDECREF(main);
    Py_XDECREF(threading);
    PyErr_Clear();
    return is;
}

static thread *thread_new(void) {
    static bool any;
    if (!any && pthread_atfork(NULL, NULL, in_child) != 0) return &nobody;
    thread *self = calloc(1, sizeof *self);
    if (self) self->ctx = ct_ctx_new();
    if (!self || !self->ctx) {
        free(self);
        return &nobody;
    }
    ct_ctx_use(self->ctx);
    ct_set_log(errors_log, NULL);
    if (!ct_rolling_begin()) ct_error_clear();
    thread_others = any;
    any = true;
    return self;
}

// What is named and pending is computed, so that who it was handed over to finds values.
static void finish(thread *self) {
    if (self->is_main || !ct_rolling_pending()) return;
    if (!run_eval(NULL, 0, CT_NOWHERE)) PyErr_Clear(); // who reads what failed is told why
}

// Of the capsule in the thread's dict. Where another thread is closed by this one, the process ends, or is a
// forked child.
static void thread_ends(PyObject *capsule) {
    thread *self = PyCapsule_GetPointer(capsule, name);
    if (self != thread_mine || self->is_main) return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    thread_call(self);
    finish(self);
    PyErr_Restore(type, value, trace);
    ct_ctx_use(NULL);
    thread_mine = NULL;
    self->ended = true;
    if (self->altered) return; // what it made lives on
    self->next = ended;
    ended = self;
}

thread *thread_begin(void) {
    thread *self = ended;
    if (self) {
        ended = self->next;
        self->ended = self->no_grad = self->backward_waits = false;
        ct_ctx_use(self->ctx);
    } else {
        self = thread_new();
    }
    thread_mine = self;
    if (self == &nobody) return self;
    self->is_main = is_main();
    PyObject *dict = PyThreadState_GetDict(); // borrowed
    PyObject *capsule = dict ? PyCapsule_New(self, name, thread_ends) : NULL;
    if (capsule) PyDict_SetItemString(dict, name, capsule);
    Py_XDECREF(capsule);
    PyErr_Clear();
    return self;
}

void thread_call(thread *self) {
    while (self->n_left) ct_unpin(self->left[--self->n_left]);
    if (!self->visited || self->functions) return;
    self->visited = false;
    ct_rolling_turn();
    thread_ran(self);
}

// ------------------------------------------------------------------------------------------ waiting

void thread_changed(void) {
    pthread_mutex_lock(&lock);
    changes++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

// Until something changes, or a moment has passed: a signal wakes nobody.
static void wait_for_change(void) {
    enum { MOMENT = 50000000 }; // ns
    pthread_mutex_lock(&lock);
    const uint64_t seen = changes;
    pthread_mutex_unlock(&lock);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += MOMENT;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    PyThreadState *state = PyEval_SaveThread();
    pthread_mutex_lock(&lock);
    while (changes == seen && pthread_cond_timedwait(&changed, &lock, &until) == 0) {
    }
    pthread_mutex_unlock(&lock);
    PyEval_RestoreThread(state);
}

bool thread_wait(thread *other, bool whole) {
    bool ok = !forked || raise_failure();
    other->visitors++;
    while (ok && (other->busy || (whole && other->tracing))) {
        wait_for_change();
        ok = PyErr_CheckSignals() == 0;
    }
    if (--other->visitors == 0) thread_changed();
    return ok;
}

void thread_run_begin(thread *self) { self->busy++; }
void thread_run_end(thread *self) {
    if (--self->busy || !thread_others) return;
    thread_changed();
    while (self->visitors && !self->tracing && !forked) wait_for_change();
}

// ---------------------------------------------------------------------------------------- giving back

static void *room_for(void *list, size_t n, size_t *room, size_t each) { // NULL: no memory
    if (n < *room) return list;
    const size_t more = *room ? 2 * *room : 64;
    void *grown = realloc(list, more * each);
    if (grown) *room = more;
    return grown;
}

void thread_unpin(thread *owner, ct_tensor t) {
    if (owner->busy) {
        ct_tensor *left = room_for(owner->left, owner->n_left, &owner->left_room, sizeof *left);
        if (!left) return; // it stays
        owner->left = left;
        left[owner->n_left++] = t;
    } else {
        ct_ctx *before = ct_ctx_use(owner->ctx);
        ct_unpin(t);
        ct_ctx_use(before);
    }
}

struct late {
    ct_params *set; // that may be read
    void (*give)(void *);
    void *what;
};

void thread_give_back(thread *owner, ct_params *set, void (*give)(void *), void *what) {
    if (!owner->busy) {
        ct_ctx *before = ct_ctx_use(owner->ctx);
        const bool free_now = !ct_rolling_pending() && !ct_params_read(set);
        if (free_now) give(what);
        ct_ctx_use(before);
        if (free_now) return;
    }
    struct late *late = room_for(owner->late, owner->n_late, &owner->late_room, sizeof *late);
    if (!late) return; // it stays
    owner->late = late;
    late[owner->n_late++] = (struct late){set, give, what};
}

static void free_set(void *set) { ct_params_free(set); }
void thread_free(thread *owner, ct_params *set) { thread_give_back(owner, set, free_set, set); }

void thread_ran(thread *self) {
    if (ct_rolling_pending()) return; // what was read was there
    size_t kept = 0;
    for (size_t i = 0; i < self->n_late; i++)
        if (ct_params_read(self->late[i].set))
            self->late[kept++] = self->late[i];
        else
            self->late[i].give(self->late[i].what);
    self->n_late = kept;
}

// ------------------------------------------------------------------------------ values for all threads

ct_tensor thread_share(ct_tensor t, ct_loc here) {
    if (!common) common = ct_ctx_new();
    ct_ctx *before = ct_ctx_use(common);
    ct_tensor shared = ct_pin_at(t, here);
    const bool ok = ct_ok(shared);
    failure why;
    if (!ok) take_failure(&why);
    ct_ctx_use(before);
    if (!ok) raise_text(why.code, why.text);
    return ok ? shared : CT_NONE;
}
void thread_unshare(ct_tensor t) {
    ct_ctx *before = ct_ctx_use(common);
    ct_unpin(t);
    ct_ctx_use(before);
}
