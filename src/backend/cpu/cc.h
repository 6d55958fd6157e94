// Finds the system's C compiler and runs it without a shell.
#ifndef COTAN_BACKEND_CPU_CC_H
#define COTAN_BACKEND_CPU_CC_H

#include "base/error.h"
#include "base/text.h"

typedef struct ct_cc {
    char path[4096];            // absolute
    char machine[80];           // the option that names the target machine
    const char *const *options; // used instead of `machine` for packed kernels; ends with NULL
    char *const *environment;   // of the compiler's process: this process's own
    ct_hash id;                 // of path, size, modification time, flags and this CPU's features
    bool identified;            // false: a part of these cannot be read now, so id may be another's
} ct_cc;

// Returns why kernels are interpreted: "" if COTAN_CC asks for it ("none"), a sentence if no
// compiler is found or may be started. NULL if there is one, or COTAN_CC names one.
const char *ct__cc_missing(void);
const char *ct__cc_missing_hint(void); // how to get one; NULL: no way

// True if kernels are compiled for this machine. COTAN_MARCH selects another: the name of an
// architecture as the compiler's -march takes it (x86-64-v3, armv8-a). A setuid program ignores it.
bool ct__cc_native(void);
bool ct__cc_check(ct_err *err); // reports an invalid name before anything is built

// Finds COTAN_CC, else cc, gcc or clang on PATH. A setuid program gets none: compilers obey the
// environment (COMPILER_PATH names the programs that they start), which its owner does not control.
bool ct__cc_find(ct_cc *cc, ct_err *err);

// Compiles folder/g0.c ... into folder/g0.so ..., all at once, with messages in folder/g0.err ...
bool ct__cc_run(const ct_cc *cc, const char *folder, int count, ct_err *err);

#endif
