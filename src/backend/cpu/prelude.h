// The text before every generated kernel: prelude.inc as a string, made by the build.
#ifndef COTAN_BACKEND_CPU_PRELUDE_H
#define COTAN_BACKEND_CPU_PRELUDE_H

#include <stddef.h>

#include "base/text.h"

extern const char ct__cpu_prelude[];

// Appends what these kernels use of it: all types, and the macros and functions that they reach.
// Appends all of it if there is no memory for that.
void ct__prelude_add(ct_text *out, const char *const *kernels, size_t n);

#endif
