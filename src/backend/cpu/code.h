// The code of kernels: one entry a kernel for the whole process, found by the hash of what it is
// compiled from. The lock covers the table alone: nobody holds it while a compiler runs or a file
// is read.
//
// A thread that needs an entry that is not ready claims it, makes its code, and publishes or
// abandons it; a thread that finds it claimed waits for that one entry. A thread publishes or
// abandons all its claims before it waits, so that no two threads wait for each other.
//
// Until its code is ready a kernel may be interpreted. Plans hold the entry, not the function:
// every launch of every plan uses the function as soon as it is published.
#ifndef COTAN_BACKEND_CPU_CODE_H
#define COTAN_BACKEND_CPU_CODE_H

#include <stdatomic.h>

#include "backend/cpu/build.h"
#include "base/text.h"

struct ct_cpu_code {
    ct_hash key;
    _Atomic(ct__kernel_fn) fn;          // NULL until it is compiled or loaded
    _Atomic(struct ct_interp *) interp; // NULL if not needed; freed once `fn` is set
    atomic_int interpreting;            // launches that may be using `interp`
    _Atomic(char *) failure;            // why it could not be compiled; NULL: no failure
    _Atomic uint64_t ready_by;          // on ct__now's clock, in ns; 0: nobody compiles it now
    atomic_bool pending;                // counted in kernels_pending
    bool claimed;                       // guarded by the table's lock
    bool queued, urgent;                // guarded by the queue's lock, as is
    int taken;                          // by how many threads that took it from the queue
    ct_cpu_code *next;                  // in its bucket, or in the list of forgotten entries
};

// Returns the entry of a key, which is added if absent; it is valid until ct__codes_end. NULL: no
// memory.
ct_cpu_code *ct__code_find(ct_hash key, ct_err *err);

static inline ct__kernel_fn ct__code_fn(const ct_cpu_code *code) {
    return atomic_load_explicit(&code->fn, memory_order_acquire);
}

// Returns true if the caller has claimed the entry and must publish or abandon it; false if it is
// ready or claimed by another thread.
bool ct__code_claim(ct_cpu_code *code);
void ct__code_publish(ct_cpu_code *code, ct__kernel_fn fn);
void ct__code_abandon(ct_cpu_code *code);
// Records that it could not be compiled, so that it is not tried again; the first reason is kept.
void ct__code_fail(ct_cpu_code *code, const ct_err *why);
// A kernel is pending until it is published, has failed, or nobody is to compile it any more. Each
// is counted once, in a counter that is read without a lock.
void ct__code_mark_pending(ct_cpu_code *code);
void ct__code_clear_pending(ct_cpu_code *code);
bool ct__code_await(ct_cpu_code *code); // waits until it is not claimed; returns true if it was

// Returns the interpreted kernel, which is valid until the matching ct__code_release_interp. NULL
// if its code is ready, or ct__code_prepare_interp was not called for it.
const struct ct_interp *ct__code_acquire_interp(ct_cpu_code *code);
void ct__code_release_interp(ct_cpu_code *code);
// Prepares the kernel for the interpreter. *frame: the bytes of scratch that this takes, 0 if its
// code is ready by now. Returns false with the error set.
bool ct__code_prepare_interp(ct_cpu_code *code, const struct ct_kir *ir, size_t *frame,
                             ct_err *err);

void ct__codes_forget(void); // entries stay valid and are not found any more
void ct__codes_end(void);    // frees all entries, forgotten ones too

#endif
