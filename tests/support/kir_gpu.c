#include "support/kir_gpu.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "compile/render/render_gpu.h"

// What is needed of CL/cl.h, which few machines have.
enum { CL_DEVICE_TYPE_CPU = 2, CL_PROGRAM_BUILD_LOG = 0x1183 };
typedef void *cl; // any of its objects
static struct {
    int (*clGetPlatformIDs)(unsigned, cl *, unsigned *);
    int (*clGetDeviceIDs)(cl, uint64_t, unsigned, cl *, unsigned *);
    cl (*clCreateContext)(const intptr_t *, unsigned, const cl *, void *, void *, int *);
    cl (*clCreateCommandQueue)(cl, cl, uint64_t, int *);
    cl (*clCreateProgramWithSource)(cl, unsigned, const char **, const size_t *, int *);
    int (*clBuildProgram)(cl, unsigned, const cl *, const char *, void *, void *);
    int (*clGetProgramBuildInfo)(cl, cl, unsigned, size_t, void *, size_t *);
    cl (*clCreateKernel)(cl, const char *, int *);
    int (*clSetKernelArg)(cl, unsigned, size_t, const void *);
    int (*clSetKernelArgSVMPointer)(cl, unsigned, const void *);
    int (*clEnqueueNDRangeKernel)(cl, cl, unsigned, const size_t *, const size_t *, const size_t *,
                                  unsigned, const cl *, cl *);
    int (*clFinish)(cl);
    int (*clReleaseKernel)(cl);
    int (*clReleaseProgram)(cl);
} api;
static cl device, context, queue;

static bool load(void) {
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    bool all = true;
#define FUNCTION(name) all = all && (*(void **)&api.name = dlsym(library, #name)) != NULL
    FUNCTION(clGetPlatformIDs);
    FUNCTION(clGetDeviceIDs);
    FUNCTION(clCreateContext);
    FUNCTION(clCreateCommandQueue);
    FUNCTION(clCreateProgramWithSource);
    FUNCTION(clBuildProgram);
    FUNCTION(clGetProgramBuildInfo);
    FUNCTION(clCreateKernel);
    FUNCTION(clSetKernelArg);
    FUNCTION(clSetKernelArgSVMPointer);
    FUNCTION(clEnqueueNDRangeKernel);
    FUNCTION(clFinish);
    FUNCTION(clReleaseKernel);
    FUNCTION(clReleaseProgram);
    return all;
}

bool kir_gpu_present(void) {
    static int known; // 1: yes, -1: no
    if (known) return known > 0;
    known = -1;
    cl platform = NULL;
    if (!load() || api.clGetPlatformIDs(1, &platform, NULL) || !platform ||
        api.clGetDeviceIDs(platform, CL_DEVICE_TYPE_CPU, 1, &device, NULL))
        return false;
    int code = 0;
    context = api.clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    queue = code ? NULL : api.clCreateCommandQueue(context, device, 0, &code);
    if (queue) known = 1;
    return known > 0;
}

static cl build(const char *text, const char *options) {
    int code = 0;
    cl program = api.clCreateProgramWithSource(context, 1, &text, NULL, &code);
    if (code) fail_msg("clCreateProgramWithSource: %d", code);
    if (api.clBuildProgram(program, 1, &device, options, NULL, NULL)) {
        static char log[1 << 16];
        (void)api.clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log,
                                        NULL);
        print_error("%s\n", text);
        fail_msg("the kernel does not build: %s", log);
    }
    return program;
}

// The arguments but for begin, end and scratch; how many.
static unsigned set_arguments(cl kernel, const ct_kir *k, void *const *bufs, const int64_t *args) {
    unsigned at = 0;
    int bad = 0;
    const int64_t nothing = 0;
    for (int i = 0; i < k->nparams; i++) bad |= api.clSetKernelArgSVMPointer(kernel, at++, bufs[i]);
    for (int i = 0; i < k->nparams; i++) bad |= api.clSetKernelArg(kernel, at++, 8, &nothing);
    for (int i = 0; i < k->nargs; i++) bad |= api.clSetKernelArg(kernel, at++, 8, &args[i]);
    if (bad) fail_msg("clSetKernelArg: %d", bad);
    return at;
}

void kir_gpu_run(const ct_kir *k, void *const *bufs, const int64_t *args, int pieces) {
    const ct_gpu_caps caps = {.f64 = true, .local_bytes = 16384, .max_threads = 64};
    ct_text text = {0};
    ct_gpu_launch launch;
    ct_err err = {0};
    ct__render_gpu_prelude(&caps, &text);
    char name[40];
    if (!ct__render_gpu(k, CT_GPU_OPENCL, &caps, &text, name, &launch, &err)) {
        ct__kir_print(k, &text);
        print_error("%s\n", text.s ? text.s : "");
        fail_msg("%s", err.text);
    }
    // PoCL 3.1 optimises wrongly where threads of a group run loops of their own with arrays in them (the
    // sums of test_kir_reduce), and crashes on products.
    cl program = build(text.s, "-cl-opt-disable -cl-fp32-correctly-rounded-divide-sqrt");
    int code = 0;
    cl kernel = api.clCreateKernel(program, name, &code);
    if (code) fail_msg("clCreateKernel: %d", code);
    const unsigned at = set_arguments(kernel, k, bufs, args);
    const int64_t grid = ct__kir_grid(k, args);
    for (int p = 0; p < pieces; p++) {
        const int64_t begin = grid * p / pieces, end = grid * (p + 1) / pieces,
                      blocks = (end - begin + launch.rows - 1) / launch.rows;
        void *scratch = launch.scratch ? ct__aligned(64, (size_t)(blocks * launch.scratch)) : NULL;
        const size_t threads = (size_t)launch.threads, all = (size_t)blocks * threads;
        (void)api.clSetKernelArg(kernel, at, 8, &begin);
        (void)api.clSetKernelArg(kernel, at + 1, 8, &end);
        if (scratch) (void)api.clSetKernelArgSVMPointer(kernel, at + 2, scratch);
        code =
            all ? api.clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &all, &threads, 0, NULL, NULL)
                : 0;
        if (code || api.clFinish(queue)) fail_msg("clEnqueueNDRangeKernel: %d", code);
        ct__free(scratch);
    }
    (void)api.clReleaseKernel(kernel);
    (void)api.clReleaseProgram(program);
    ct__text_free(&text);
}
