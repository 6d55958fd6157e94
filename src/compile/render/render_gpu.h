// Renders kernel IR as GPU source: OpenCL C 1.2 and CUDA, on top of one prelude (prelude_gpu.inc).
//
// A group of 16 threads is the vector of the IR: a 16-lane value is one scalar per thread, an iteration of a
// LANES loop runs in the thread of its lane, and every thread computes the values that are uniform. The bits
// of results equal those of CPU kernels (docs/design/gpu.md). A kernel without lanes has groups of one thread.
#ifndef COTAN_COMPILE_RENDER_GPU_H
#define COTAN_COMPILE_RENDER_GPU_H

#include "kir/kir.h"

typedef enum { CT_GPU_OPENCL, CT_GPU_CUDA } ct_gpu_language;

// The properties of a device.
typedef struct ct_gpu_caps {
    bool f64;            // double precision
    int64_t local_bytes; // shared memory of a block, at least 1,024
    int max_threads;     // per block, at least 16
} ct_gpu_caps;

// The launch parameters of a kernel.
typedef struct ct_gpu_launch {
    int threads;         // per block
    int64_t rows;        // of the grid, per block
    int64_t local_bytes; // shared memory per block, which the kernel declares
    int64_t scratch;     // global memory per block, a multiple of 64; 0: none
} ct_gpu_launch;

// Appends the text that precedes kernels.
void ct__render_gpu_prelude(const ct_gpu_caps *caps, ct_text *out);

// Verifies k, which ct__kir_lower_tiles has bound, and appends its source: the math functions it needs, each
// guarded so that many kernels fit one program, and one kernel, named by a hash of its body. Its parameters
// are, in this order: the address of each buffer; for each buffer the bytes from there to its first element
// (64-bit); the i64 args; the begin and end of the grid's rows, of which block b runs `rows` from begin + b
// * rows on, so that ceil((end - begin) / rows) blocks are needed; and, if launch->scratch is not 0, global
// memory of that many bytes per block. The source must be compiled without contraction (--fmad=false), with
// correctly rounded division and square root, and with subnormal numbers. An error if the device lacks a
// property that the kernel needs.
bool ct__render_gpu(const ct_kir *k, ct_gpu_language language, const ct_gpu_caps *caps,
                    ct_text *out, char name[40], ct_gpu_launch *launch, ct_err *err);

#endif
