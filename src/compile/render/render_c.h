// Kernel IR to C with GCC's vector extensions, and to OpenCL C, each on top of its prelude
// (src/backend/cpu/prelude.inc, src/backend/opencl/prelude.inc).
#ifndef COTAN_COMPILE_RENDER_C_H
#define COTAN_COMPILE_RENDER_C_H

#include "kir/kir.h"

// Verifies k and appends its C source: the math functions it needs (each guarded, so that many
// kernels fit one file) and one function
//     void k_HASH(void *const *bufs, const int64_t *args, int64_t begin, int64_t end, void
//     *scratch)
// whose name (at most 34 characters) goes to `name`; HASH is taken from the text, so equal kernels
// have equal names. Deterministic; contains no text from outside.
bool ct__render_c(const ct_kir *k, ct_text *out, char name[40], ct_err *err);

// The same as OpenCL C 1.2, one function
//     kernel void k_HASH(global u8 *b0, .., i64 o0, .., i64 n0, .., i64 begin, i64 end, i64 room, global u8 *scratch)
// of a buffer each and the bytes in it where it begins, the args, and [begin, end) of the grid, of
// which work-item i runs row begin + i. scratch: `room` bytes a work-item, at least what ct__kir_scratch says.
bool ct__render_opencl(const ct_kir *k, ct_text *out, char name[40], ct_err *err);

#endif
