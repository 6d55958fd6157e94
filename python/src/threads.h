// Threads: each records and runs in a context of its own.
#ifndef COTAN_PYTHON_THREADS_H
#define COTAN_PYTHON_THREADS_H

#include "core.h"

// A thread's context, and what belongs to it. The next thread gets that of one that has ended, so
// what that one made lives on, and plans are known already. Touched with the GIL held alone; only
// the thread itself uses the context without, while it is `busy`. In between others may look at it,
// and visit it (run.c).
typedef struct thread {
    ct_ctx *ctx;
    int busy;            // runs something, without the GIL
    int tracing;         // is inside of so many traced functions
    int functions;       // that were traced and may be called yet: what they captured has no name
    bool no_grad;        // nothing that it records has a history
    bool backward_waits; // a backward was recorded and has not run
    bool visited;        // others ran something: what nobody names goes with its next call
    bool ended, is_main; // ended: waits for the next thread
    bool altered;        // has settings of its own, which a next thread must not find
    int visitors;        // wait until it is not busy
    uint64_t reads;      // how often values or gradients were asked for
    ct_tensor *left;     // (n_left) collected while it was busy
    struct late
        *late; // (n_late) variables that nobody names, but what is pending, or a history, may read
    size_t n_left, left_room, n_late, late_room;
    struct thread *next; // among those that wait
} thread;

#pragma GCC visibility push(hidden)
extern _Thread_local thread *thread_mine; // NULL before the thread's first call
extern bool thread_others;                // there have been several
#pragma GCC visibility pop
thread *thread_begin(void);
static inline thread *thread_here(void) { return thread_mine ? thread_mine : thread_begin(); }

void thread_call(thread *self); // a call begins, and `visited` or `left` is set
// Around what runs without the GIL. Who waited for its end has a turn before it goes on.
void thread_run_begin(thread *self);
void thread_run_end(thread *self);
// Until it neither runs nor, if `whole`, traces; without the GIL. False: an exception, of Ctrl-C.
bool thread_wait(thread *other, bool whole);
void thread_changed(void); // wakes who waits

void thread_unpin(thread *owner, ct_tensor t); // by another thread
void thread_free(thread *owner, ct_params *set);
// The same of what has the variables: give(what), once nothing reads them.
void thread_give_back(thread *owner, ct_params *set, void (*give)(void *what), void *what);
void thread_ran(thread *self); // what waited for its pending work goes

// The value of `t`, which owner has evaluated, for all threads: pinned in a context in which nothing ever
// runs. CT_NONE: an exception.
ct_tensor thread_share(ct_tensor t, ct_loc here);
void thread_unshare(ct_tensor t);

#endif
