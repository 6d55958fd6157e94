// From C source to functions: known to the process, else loaded from the disk, else compiled.
#ifndef COTAN_BACKEND_CPU_BUILD_H
#define COTAN_BACKEND_CPU_BUILD_H

#include <stdatomic.h>

#include "base/error.h"

// Runs [begin, end) of the kernel's grid. scratch: at least what ct__kir_scratch says, 64-byte
// aligned, one a thread.
typedef void (*ct__kernel_fn)(void *const *bufs, const int64_t *args, int64_t begin, int64_t end,
                              void *scratch);

typedef struct ct_cpu_code ct_cpu_code; // code.h

typedef struct ct__kernel_source {
    const char *name; // of the function
    const char *text; // its source, to stand behind the prelude
    const struct ct_kir
        *ir; // the same as kernel IR, for the interpreter; NULL: it must be compiled
    // Filled by ct__cpu_build: what the process knows of the kernel, and of it, one of fn and
    // interp. All stay valid as long as the process runs.
    ct_cpu_code *code;
    ct__kernel_fn fn;
    const struct ct_interp *interp;
    bool compiled;    // this request had to compile it
    const char *why;  // it is interpreted, in words that stay; "": as COTAN_CC asks
    const char *hint; // what to do about it; NULL: nothing
    const char *failure;
} ct__kernel_source;

// Builds all kernels of a request. Without a compiler (COTAN_CC is "none", or there is none and no
// COTAN_CC either), or a folder to compile in, kernels that come with their IR are interpreted;
// those that must be compiled are spread over at most `threads` compilers run side by side. May be
// called from any thread: requests do not wait for each other but for a kernel that both need.
bool ct__cpu_build(ct__kernel_source *kernels, size_t n, int threads, ct_err *err);

// The same without a wait for any compiler: of a kernel that is neither known nor on disk, `fn` and
// `interp` are NULL, and it waits in the queue (queue.h). `failure` says of one that a compiler was
// tried in vain; it does not wait again.
bool ct__cpu_build_later(ct__kernel_source *kernels, size_t n, ct_err *err);

// Loads or compiles kernels that have their entries, each unless another thread does, with at most
// one compiler. *stop: it waits for no other process any more. False: one was not made; none of them
// is claimed.
struct ct_toolchain;
bool ct__cpu_make(ct__kernel_source *kernels, size_t n, const struct ct_toolchain *toolchain,
                  const atomic_bool *stop, ct_err *err);
// About how long one more kernel takes one compiler, in nanoseconds, and how many times as long a
// compiler's start takes: by those that ran.
uint64_t ct__cpu_compile_ns(void);
enum { CT_CC_START = 2 };

// Has the kernel compiled, whatever is known of it, and enters it in no cache: does the compiler
// work now?
bool ct__cpu_build_anew(ct__kernel_source *kernel, ct_err *err);

typedef struct ct__build_counts {
    uint64_t compiled, loaded, known; // kernels: by a compiler, from the disk, from memory
    uint64_t runs;                    // of the compiler
    uint64_t interpreted;             // kernels made ready without it
} ct__build_counts;
ct__build_counts ct__cpu_build_counts(void); // since the start of the process

// Forgets all kernels and unloads them: no function is valid any more.
void ct__cpu_build_end(void);
// Tests: forget what the process knows, so that the disk is asked again. Functions stay valid.
void ct__cpu_build_forget(void);

#endif
