// The text in front of every generated kernel: prelude.inc as a string, made by the build.
#ifndef COTAN_BACKEND_CPU_PRELUDE_H
#define COTAN_BACKEND_CPU_PRELUDE_H

#include <stddef.h>

#include "base/text.h"

extern const char ct__cpu_prelude[];

// Adds what these kernels use of it: all types, and the macros and functions that their names lead to. Where there is no
// memory to find them, all of it.
void ct__prelude_add(ct_text *out, const char *const *kernels, size_t n);

#endif
