// From C source to functions: known to the process, else loaded from the disk, else compiled.
#ifndef COTAN_BACKEND_CPU_BUILD_H
#define COTAN_BACKEND_CPU_BUILD_H

#include "base/error.h"

// Runs [begin, end) of the kernel's grid. scratch: at least what ct__kir_scratch says, 64-byte
// aligned, one a thread.
typedef void (*ct__kernel_fn)(void *const *bufs, const int64_t *args, int64_t begin, int64_t end,
                              void *scratch);

typedef struct ct__kernel_source {
    const char *name; // of the function
    const char *text; // its source, to stand behind the prelude
    ct__kernel_fn fn; // filled by ct__cpu_build; stays valid as long as the process runs
    bool compiled;    // filled: this request had to compile it
} ct__kernel_source;

// Builds all kernels of a request; those that must be compiled are spread over at most `threads`
// compilers run side by side. May be called from any thread.
bool ct__cpu_build(ct__kernel_source *kernels, size_t n, int threads, ct_err *err);

typedef struct ct__build_counts {
    uint64_t compiled, loaded, known; // kernels: by a compiler, from the disk, from memory
    uint64_t runs;                    // of the compiler
} ct__build_counts;
ct__build_counts ct__cpu_build_counts(void); // since the start of the process

// Forgets all kernels and unloads them: no function is valid any more.
void ct__cpu_build_end(void);
// Tests: forget what the process knows (functions stay valid), so that the disk is asked again.
void ct__cpu_build_forget(void);

#endif
