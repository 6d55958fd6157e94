// The code of kernels: one entry a kernel for the whole process, found by what it is compiled from.
// The lock covers the table alone: nobody holds it while a compiler runs or a file is read.
//
// Whoever needs an entry that is not ready claims it, makes its code, and publishes or abandons it;
// who finds it claimed waits for that one entry. A thread publishes or abandons all that it claimed
// before it waits, so that no two wait for each other.
#ifndef COTAN_BACKEND_CPU_CODE_H
#define COTAN_BACKEND_CPU_CODE_H

#include <stdatomic.h>

#include "backend/cpu/build.h"
#include "base/text.h"

struct ct_cpu_code {
    ct_hash key;
    _Atomic(ct__kernel_fn) fn; // NULL until it is compiled or loaded
    _Atomic(struct ct_interp *) interp;
    bool claimed;      // under the table's lock
    ct_cpu_code *next; // in its bucket; of the forgotten
};

// The entry of a key, made where there is none; it stays until ct__codes_end. NULL: no memory.
ct_cpu_code *ct__code_of(ct_hash key, ct_err *err);

static inline ct__kernel_fn ct__code_fn(const ct_cpu_code *code) {
    return atomic_load_explicit(&code->fn, memory_order_acquire);
}

// True: it is the caller's to make, who publishes or abandons it. False: it is ready, or claimed.
bool ct__code_claim(ct_cpu_code *code);
void ct__code_publish(ct_cpu_code *code, ct__kernel_fn fn);
void ct__code_abandon(ct_cpu_code *code);
void ct__code_await(ct_cpu_code *code); // returns when it is not claimed

void ct__codes_forget(void); // entries stay valid and are not found any more
void ct__codes_end(void);    // frees all entries, forgotten ones too

#endif
