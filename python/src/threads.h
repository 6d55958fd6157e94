// Threads: each records and runs in a context of its own.
#ifndef COTAN_PYTHON_THREADS_H
#define COTAN_PYTHON_THREADS_H

#include "core.h"

// A thread's context and its state. A new thread takes the context of one that has ended, so that what that
// one made stays valid, and its plans are known already. All fields need the GIL; only the thread itself uses
// the context without it, while `busy` is set. Other threads may read it meanwhile, and evaluate in it when
// it is not busy (run.c).
typedef struct thread {
    ct_ctx *ctx;
    int busy;        // > 0 while it runs something without the GIL
    int trace_depth; // the number of traced functions that it is inside of
    // Traced functions that may still be called: no Tensor holds what they captured.
    int n_traced_functions;
    bool no_grad;          // records without histories
    bool backward_pending; // a backward was recorded and has not run
    // Others ran something in its context: its next call frees what no Tensor holds.
    bool ran_for_others;
    bool ended, is_main;        // ended: its context is free for the next thread
    bool has_own_settings;      // has settings of its own, which a next thread must not get
    int n_waiting;              // threads that wait until it is not busy
    uint64_t reads;             // the number of reads of values or gradients
    ct_tensor *deferred_unpins; // (n_deferred_unpins) handles dropped while it was busy
    // (n_deferred_frees) variables without a Tensor that pending work, or a history, may still read.
    struct deferred_free *deferred_free;
    size_t n_deferred_unpins, deferred_unpins_capacity, n_deferred_frees, deferred_frees_capacity;
    struct thread *next; // in the list of free contexts
} thread;

#pragma GCC visibility push(hidden)
extern _Thread_local thread *thread_current; // NULL before the thread's first call
extern bool thread_has_others;               // there have been several threads
#pragma GCC visibility pop
thread *thread_attach(void);
static inline thread *thread_get(void) { return thread_current ? thread_current : thread_attach(); }

// To be called when a call begins, if ran_for_others or deferred_unpins is set.
void thread_run_deferred(thread *self);
// Enclose what runs without the GIL. Threads that wait for its end get a turn before it continues.
void thread_run_begin(thread *self);
void thread_run_end(thread *self);
// Waits until the other thread neither runs nor, if `until_traced`, traces; without the GIL. False with the
// exception of Ctrl-C set.
bool thread_wait(thread *other, bool until_traced);
void thread_notify(void); // wakes the threads that wait

void thread_unpin(thread *owner, ct_tensor t); // may be called by another thread
void thread_free_params(thread *owner, ct_params *set);
// The same for an object that owns the variables: calls give(what) once nothing reads them.
void thread_free_when_unread(thread *owner, ct_params *set, void (*give)(void *what), void *what);
void thread_free_ready(thread *self); // frees what waited for the thread's pending work

// Returns the value of `t`, which its owner has evaluated, for all threads: pinned in a context in which
// nothing ever runs. CT_NONE with an exception set.
ct_tensor thread_share(ct_tensor t, ct_loc here);
void thread_unshare(ct_tensor t);

#endif
