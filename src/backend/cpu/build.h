// Turns a kernel's C source into a function: found in this process, else loaded from the disk, else
// compiled.
#ifndef COTAN_BACKEND_CPU_BUILD_H
#define COTAN_BACKEND_CPU_BUILD_H

#include <stdatomic.h>

#include "base/error.h"

// Runs [begin, end) of the kernel's grid. scratch: at least ct__kir_scratch bytes, 64-byte aligned,
// one a thread.
typedef void (*ct__kernel_fn)(void *const *bufs, const int64_t *args, int64_t begin, int64_t end,
                              void *scratch);

typedef struct ct_cpu_code ct_cpu_code; // code.h

typedef struct ct__kernel_source {
    const char *name; // of the function
    const char *text; // its source, without the prelude
    const struct ct_kir
        *ir; // the same as kernel IR, for the interpreter; NULL: it must be compiled
    // Set by ct__cpu_build: the process's entry of the kernel, and one of fn and interp. All stay
    // valid until ct__cpu_build_end.
    ct_cpu_code *code;
    ct__kernel_fn fn;
    const struct ct_interp *interp;
    bool compiled;    // by this request
    const char *why;  // why it is interpreted, a text that stays valid; "": COTAN_CC asks for it
    const char *hint; // how to avoid that; NULL: no way
    const char *failure;
} ct__kernel_source;

// Builds all kernels of a request. If there is no compiler (COTAN_CC is "none", or it is unset and
// none is found) or no folder to compile in, kernels that come with their IR are interpreted. The
// kernels to compile are distributed over at most `threads` concurrent compilers. May be called
// from any thread: two requests wait for each other only for a kernel that both need.
bool ct__cpu_build(ct__kernel_source *kernels, size_t n, int threads, ct_err *err);

// Does the same without waiting for a compiler: if a kernel is neither known nor on the disk, its
// `fn` and `interp` are NULL and it is in the queue (queue.h). If its compilation failed before,
// `failure` has the reason and it is not queued again.
bool ct__cpu_build_async(ct__kernel_source *kernels, size_t n, ct_err *err);

// Loads or compiles kernels that have their entries, except those that another thread makes, with
// at most one compiler at a time. If *stop becomes true it does not wait for other processes any
// longer. Returns false if a kernel was not made; then none of them is claimed.
struct ct_toolchain;
bool ct__cpu_build_entries(ct__kernel_source *kernels, size_t n,
                           const struct ct_toolchain *toolchain, const atomic_bool *stop,
                           ct_err *err);
// Estimates how long one more kernel takes one compiler, in nanoseconds, from the latest runs; a
// compiler's start takes CT_CC_START times as long.
uint64_t ct__cpu_compile_ns(void);
enum { CT_CC_START = 2 };

// Compiles the kernel even if it is known, and adds it to no cache: tests whether the compiler
// works now.
bool ct__cpu_build_uncached(ct__kernel_source *kernel, ct_err *err);

typedef struct ct__build_counts {
    uint64_t compiled, loaded, known; // kernels: by a compiler, from the disk, from memory
    uint64_t runs;                    // compilers started
    uint64_t interpreted;             // kernels prepared for the interpreter
} ct__build_counts;
ct__build_counts ct__cpu_build_counts(void); // since the start of the process

// Forgets all kernels and unloads them: no function is valid after that.
void ct__cpu_build_end(void);
// For tests: forgets the entries, so that the disk is read again. Functions stay valid.
void ct__cpu_build_forget(void);

#endif
