// Kernel IR to C with GCC's vector extensions, on top of the prelude of src/backend/cpu/prelude.c.
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

#endif
