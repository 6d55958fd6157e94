// What kernels are compiled with, as the environment was at some time: the compiler, its own
// environment, the cache and the folders to work in. Background threads get one with each kernel,
// since the host program may be changing the environment while they run.
#ifndef COTAN_BACKEND_CPU_TOOLCHAIN_H
#define COTAN_BACKEND_CPU_TOOLCHAIN_H

#include "backend/cpu/cache.h"
#include "backend/cpu/cc.h"

typedef struct ct_toolchain {
    struct ct_toolchain *next; // in the list of interned ones
    ct_cc cc;
    ct_cache cache; // each job locks entries through its own copy
    ct_hash key;    // of all that a kernel's code depends on except its text
} ct_toolchain;

// Reads the environment. `toolchain` is valid as long as the environment does not change.
bool ct__toolchain_find(ct_toolchain *toolchain, ct_err *err);
// Returns an equal copy that is valid until ct__toolchains_end; NULL if there is no memory.
const ct_toolchain *ct__toolchain_intern(const ct_toolchain *toolchain, ct_err *err);
void ct__toolchains_end(void);

#endif
