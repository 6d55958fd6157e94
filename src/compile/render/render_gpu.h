// Kernel IR to the C of GPUs: OpenCL C 1.2 and CUDA, on top of one prelude (prelude_gpu.inc).
//
// A group of 16 threads is the vector of the IR: a value of 16 lanes is one scalar a thread, an iteration of
// a LANES loop belongs to the thread of its lane, and what all lanes see alike each thread computes. Bits are
// those of the CPU's kernels (docs/design/gpu.md). Where nothing goes by lanes, a group is one thread.
#ifndef COTAN_COMPILE_RENDER_GPU_H
#define COTAN_COMPILE_RENDER_GPU_H

#include "kir/kir.h"

typedef enum { CT_GPU_OPENCL, CT_GPU_CUDA } ct_gpu_language;

// What a device has.
typedef struct ct_gpu_caps {
    bool f64;            // double precision
    int64_t local_bytes; // memory that the threads of a block share, at least 1,024
    int max_threads;     // of a block, at least 16
} ct_gpu_caps;

// How a kernel is launched.
typedef struct ct_gpu_launch {
    int threads;         // of a block
    int64_t rows;        // of the grid, that a block runs
    int64_t local_bytes; // of the shared memory that a block takes; the kernel declares it
    int64_t scratch;     // bytes of global memory that a block takes, a multiple of 64; 0: none
} ct_gpu_launch;

// The text in front of kernels.
void ct__render_gpu_prelude(const ct_gpu_caps *caps, ct_text *out);

// Verifies k, which ct__kir_bind has bound, and appends its source: the math functions it needs, each guarded,
// so that many kernels fit one program, and one kernel, named by a hash of its
// body, whose parameters are, in this order: the address of each buffer; for each the bytes from there to its first element (64-bit); the i64 args; begin and
// end of the grid's rows, of which block b runs `rows` from begin + b * rows on, so that there are as many blocks as that takes; and, if launch->scratch is not 0,
// global memory of so many bytes a block. The text must be compiled without contraction (--fmad=false), with
// division and square root that are rounded correctly, and with subnormal numbers. An error if the device
// lacks what the kernel needs.
bool ct__render_gpu(const ct_kir *k, ct_gpu_language language, const ct_gpu_caps *caps,
                    ct_text *out, char name[40], ct_gpu_launch *launch, ct_err *err);

#endif
