// The interpreter runs kernels without a compiler: it translates kernel IR into a list of function
// pointers, each of which does one operation for up to 64 elements. The operations are those of
// compiled kernels (prelude.inc), so that results are equal bit for bit.
#ifndef COTAN_BACKEND_CPU_INTERP_H
#define COTAN_BACKEND_CPU_INTERP_H

#include <stdatomic.h>

#include "kir/kir.h"

typedef struct ct_interp ct_interp;

// Returns NULL, with the error recorded, if the kernel is not legal or there is no memory. `k` is
// not kept.
ct_interp *ct__interp_make(const ct_kir *k, ct_err *err);
void ct__interp_free(ct_interp *interp);
// Returns the bytes of scratch that each thread must pass to ct__interp_run, 64-byte aligned.
size_t ct__interp_scratch(const ct_interp *interp);
// Runs [begin, end) of the kernel's grid. Returns false if `stop` (may be NULL) became true and a
// part was not run.
bool ct__interp_run(const ct_interp *interp, void *const *bufs, const int64_t *args, int64_t begin,
                    int64_t end, void *scratch, const atomic_bool *stop);
// Estimates the nanoseconds that one thread takes for the whole grid; INFINITY if there is no
// memory for the estimate.
double ct__interp_ns(const ct_kir *k, const int64_t *args);

#endif
