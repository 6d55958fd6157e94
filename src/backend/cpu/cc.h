// The system's C compiler: finding it, and running it without a shell.
#ifndef COTAN_BACKEND_CPU_CC_H
#define COTAN_BACKEND_CPU_CC_H

#include "base/error.h"
#include "base/text.h"

typedef struct ct_cc {
    char path[4096]; // absolute
    ct_hash id;      // of path, size, time of change, flags and this CPU's features
} ct_cc;

// Why kernels are to be interpreted: "" where COTAN_CC asks for it ("none"), a sentence where no
// compiler is found; NULL: there is one, or COTAN_CC names another.
const char *ct__cc_missing(void);

// COTAN_CC, else cc, gcc, clang on PATH (a setuid program looks in /usr/bin and /bin alone).
bool ct__cc_find(ct_cc *cc, ct_err *err);

// Compiles folder/g0.c ... into folder/g0.so ..., all at once, each with its messages in
// folder/g0.err.
bool ct__cc_run(const ct_cc *cc, const char *folder, int count, ct_err *err);

#endif
