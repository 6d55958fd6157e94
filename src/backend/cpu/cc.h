// The system's C compiler: finding it, and running it without a shell.
#ifndef COTAN_BACKEND_CPU_CC_H
#define COTAN_BACKEND_CPU_CC_H

#include "base/error.h"
#include "base/text.h"

typedef struct ct_cc {
    char path[4096];            // absolute
    char machine[80];           // the option that names the machine to compile for
    const char *const *options; // instead of it, of code that is packed; NULL behind the last
    char *const *environment;   // that it is started with: this process's
    ct_hash id;                 // of path, size, time of change, flags and this CPU's features
    bool identified; // false: some of that cannot be seen now, so that id may be another's
} ct_cc;

// Why kernels are to be interpreted: "" where COTAN_CC asks for it ("none"), a sentence where no
// compiler is found, or none may be started; NULL: there is one, or COTAN_CC names another.
const char *ct__cc_missing(void);
const char *ct__cc_missing_hint(void); // what to do about it; NULL: nothing

// Are kernels compiled for this very machine? COTAN_MARCH asks for another: the name of an
// architecture as the compiler's -march takes it (x86-64-v3, armv8-a). A setuid program ignores it.
bool ct__cc_native(void);
bool ct__cc_check(ct_err *err); // false: it is no name; before there is anything to build

// COTAN_CC, else cc, gcc, clang on PATH. None for a setuid program: compilers obey the environment
// (COMPILER_PATH names the programs that they start), which is not its owner's.
bool ct__cc_find(ct_cc *cc, ct_err *err);

// Compiles folder/g0.c ... into folder/g0.so ..., all at once, each with its messages in
// folder/g0.err.
bool ct__cc_run(const ct_cc *cc, const char *folder, int count, ct_err *err);

#endif
