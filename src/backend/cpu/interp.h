// Kernels without a compiler: kernel IR made into a list of function pointers, each of which does
// one operation for up to 64 elements. The operations are those that compiled kernels are made of
// (prelude.inc), so that no bit differs.
#ifndef COTAN_BACKEND_CPU_INTERP_H
#define COTAN_BACKEND_CPU_INTERP_H

#include <stdatomic.h>

#include "kir/kir.h"

typedef struct ct_interp ct_interp;

// NULL, with the error recorded: a kernel that is not legal, or no memory. `k` is not kept.
ct_interp *ct__interp_make(const ct_kir *k, ct_err *err);
void ct__interp_free(ct_interp *interp);
// Bytes of scratch that each thread must pass to ct__interp_run, 64-byte aligned.
size_t ct__interp_scratch(const ct_interp *interp);
// Runs [begin, end) of the kernel's grid. False: it was told by `stop`, which may be NULL, and has left some out.
bool ct__interp_run(const ct_interp *interp, void *const *bufs, const int64_t *args, int64_t begin,
                    int64_t end, void *scratch, const atomic_bool *stop);
// About how many nanoseconds the whole grid takes one thread; INFINITY: no memory to find out.
double ct__interp_ns(const ct_kir *k, const int64_t *args);

#endif
