// What models and training ask of plans and of the devices that run them, beside the public functions.
// src/backend and src/compile, which they do not include, define it.
#ifndef COTAN_GRAPH_PLANS_H
#define COTAN_GRAPH_PLANS_H

#include "base/text.h"
#include "cotan/engine.h"
#include "graph/graph.h"

// Bytes of the devices of the process, or of the context's own if that one only plans (a dry run).
typedef struct ct_ctx_memory {
    bool is_planned;
    uint64_t arenas, constants, workspaces; // now
    uint64_t peak;                          // of all kinds
} ct_ctx_memory;
ct_ctx_memory ct__ctx_memory(ct_ctx *ctx);
// Returns freed memory to the system, with that which the device keeps for reuse.
void ct__ctx_release_unused(ct_ctx *ctx);
// Plans made from here on should keep devices within this many bytes, by recomputing values for gradients;
// it is no error if they cannot. 0: no limit.
void ct__ctx_limit_memory(ct_ctx *ctx, uint64_t bytes);
const char *ct__ctx_device(ct_ctx *ctx); // the one that computes or, in a dry run, would compute
double ct__ctx_gflops(ct_ctx *ctx);      // estimated, of its device in a matrix product

// Writes "a, b and c", each with its size and line: the first few of the tensors.
void ct__write_tensors(ct_text *text, const ct_plan_tensor *tensors, size_t n);

// Checks the name of the C function that ct_compile would write to `path`.
bool ct__check_function_name(const char *path, ct_code code, ct_loc here, ct_err *err);

// Writes the kernels of the plans that `plan` makes to a file (ct_kernels_pack). It is called for each level
// of processors and number of cores, in a context whose device runs nothing.
bool ct__pack_kernels(bool (*plan)(const void *user), const void *user, const char *path,
                      const ct_kernels_options *options, ct_kernels_packed *packed, ct_err *err);

// Runs fn over [0, count) in chunks of `grain` (base/pool.h) on `threads` of the threads that run kernels
// (at most ct_threads). Not within a kernel.
void ct__parallel_for(void (*fn)(void *arg, int64_t begin, int64_t end, int worker), void *arg,
                      int64_t count, int64_t grain, int threads);

#endif
