// Declarations shared by opencl.c (the device) and program.c (its kernels).
#ifndef COTAN_BACKEND_OPENCL_OPENCL_H
#define COTAN_BACKEND_OPENCL_OPENCL_H

#include "backend/backend.h"
#include "backend/opencl/api.h"

enum { CT_CL_TOGETHER = 16 }; // at most so many kernels a program

typedef struct ct_cl_code { // a built kernel, found by the hash of its text
    struct ct_cl_code *next;
    ct_hash text;
    cl_kernel kernel;
} ct_cl_code;

typedef struct ct_cl_state { // of an open device
    const ct_cl *cl;
    ct_cl_device about;
    cl_context context;
    cl_queue queue;
    ct_cl_code *codes;
    cl_memory scratch; // of the concurrent work-items; NULL when scratch_bytes is 0
    size_t scratch_bytes;
} ct_cl_state;

// Finds or builds the kernels; false with the first error of the compiler's log.
bool ct__cl_build(ct_cl_state *s, ct_kernel *const *kernels, size_t n, ct_err *err);
void ct__cl_codes_free(ct_cl_state *s);

#endif
