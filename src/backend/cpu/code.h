// The code of kernels: one entry a kernel for the whole process, found by what it is compiled from.
// The lock covers the table alone: nobody holds it while a compiler runs or a file is read.
//
// Whoever needs an entry that is not ready claims it, makes its code, and publishes or abandons it;
// who finds it claimed waits for that one entry. A thread publishes or abandons all that it claimed
// before it waits, so that no two wait for each other.
//
// Until its code is there a kernel may be interpreted. Plans hold the entry, not the function: from
// the moment of publication every launch of every plan takes the function.
#ifndef COTAN_BACKEND_CPU_CODE_H
#define COTAN_BACKEND_CPU_CODE_H

#include <stdatomic.h>

#include "backend/cpu/build.h"
#include "base/text.h"

struct ct_cpu_code {
    ct_hash key;
    _Atomic(ct__kernel_fn) fn;          // NULL until it is compiled or loaded
    _Atomic(struct ct_interp *) interp; // NULL where nobody needed it; given up for `fn`
    atomic_int interpreting;            // launches that may be using `interp`
    _Atomic(char *) failure;            // why it could not be compiled; NULL: nothing failed
    _Atomic uint64_t ready_by;          // on ct__now's clock, in ns; 0: nobody compiles it now
    atomic_bool pending;                // counted among kernels_pending
    bool claimed;                       // under the table's lock
    bool queued, wanted;                // under the queue's
    ct_cpu_code *next;                  // in its bucket; of the forgotten
};

// The entry of a key, made where there is none; it stays until ct__codes_end. NULL: no memory.
ct_cpu_code *ct__code_find(ct_hash key, ct_err *err);

static inline ct__kernel_fn ct__code_fn(const ct_cpu_code *code) {
    return atomic_load_explicit(&code->fn, memory_order_acquire);
}

// True: it is the caller's to make, who publishes or abandons it. False: it is ready, or claimed.
bool ct__code_claim(ct_cpu_code *code);
void ct__code_publish(ct_cpu_code *code, ct__kernel_fn fn);
void ct__code_abandon(ct_cpu_code *code);
// It could not be compiled, and is not tried again; the reason is kept as it was first.
void ct__code_fail(ct_cpu_code *code, const ct_err *why);
// It is to be compiled, until it is published, has failed, or nobody is to compile it any more:
// counted once, by a counter that is read without a lock.
void ct__code_mark_pending(ct_cpu_code *code);
void ct__code_clear_pending(ct_cpu_code *code);
bool ct__code_await(ct_cpu_code *code); // returns when it is not claimed; was it?

// The kernel to be interpreted, which stays until the matching ct__code_release_interp. NULL: its code
// is there, or nobody has called ct__code_prepare_interp for it.
const struct ct_interp *ct__code_acquire_interp(ct_cpu_code *code);
void ct__code_release_interp(ct_cpu_code *code);
// Makes it ready to be interpreted; *frame: the bytes of scratch that this takes, 0 where its code
// is there by now. False: the error says why not.
bool ct__code_prepare_interp(ct_cpu_code *code, const struct ct_kir *ir, size_t *frame,
                             ct_err *err);

void ct__codes_forget(void); // entries stay valid and are not found any more
void ct__codes_end(void);    // frees all entries, forgotten ones too

#endif
