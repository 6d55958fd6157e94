// What kernels are compiled with, as the environment said at some moment: the compiler, its own
// environment, the cache and the folders to work in. Threads in the background get one with their
// work: they read no environment, which the host program may be changing.
#ifndef COTAN_BACKEND_CPU_TOOLCHAIN_H
#define COTAN_BACKEND_CPU_TOOLCHAIN_H

#include "backend/cpu/cache.h"
#include "backend/cpu/cc.h"

typedef struct ct_toolchain {
    struct ct_toolchain *next; // of those that are kept
    ct_cc cc;
    ct_cache cache; // a copy of it is what a job locks entries through
    ct_hash key;    // of all that a kernel's code follows from beside its text
} ct_toolchain;

// As the environment says now. `toolchain` is filled for as long as the environment stays.
bool ct__toolchain_find(ct_toolchain *toolchain, ct_err *err);
// One that is equal and stays until ct__toolchains_end. NULL: no memory.
const ct_toolchain *ct__toolchain_keep(const ct_toolchain *toolchain, ct_err *err);
void ct__toolchains_end(void);

#endif
