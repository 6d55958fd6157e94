// Renders kernel IR as C with GCC's vector extensions and as OpenCL C, each on top of its prelude
// (src/backend/cpu/prelude.inc, src/backend/opencl/prelude.inc).
#ifndef COTAN_COMPILE_RENDER_C_H
#define COTAN_COMPILE_RENDER_C_H

#include "kir/kir.h"

// Verifies k and appends its C source: the math functions it needs (each guarded, so that many kernels fit
// one file) and one function
//     void k_HASH(void *const *bufs, const int64_t *args, int64_t begin, int64_t end, void *scratch)
// whose name (at most 34 characters) is written to `name`. HASH is computed from the text, so that equal
// kernels have equal names. The output is deterministic and contains no strings of the user's.
bool ct__render_c(const ct_kir *k, ct_text *out, char name[40], ct_err *err);

// The same as OpenCL C 1.2, one function
//     kernel void k_HASH(global u8 *b0, .., i64 o0, .., i64 n0, .., i64 begin, i64 end, i64 scratch_bytes,
//                        global u8 *scratch)
// whose parameters are each buffer, the byte offset at which each begins, the args, and the range
// [begin, end) of the grid, of which work-item i runs row begin + i. scratch: `scratch_bytes` bytes per work-item, at
// least ct__kir_scratch.
bool ct__render_opencl(const ct_kir *k, ct_text *out, char name[40], ct_err *err);

#endif
