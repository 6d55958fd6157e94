// The OpenCL library, loaded at first use: the functions and constants that are needed, declared as
// in the specification of version 1.2, so that the build needs no OpenCL header.
#ifndef COTAN_BACKEND_OPENCL_API_H
#define COTAN_BACKEND_OPENCL_API_H

#include "base/error.h"
#include "base/text.h"

typedef struct cl_platform_s *cl_platform;
typedef struct cl_device_s *cl_device;
typedef struct cl_context_s *cl_context;
typedef struct cl_queue_s *cl_queue;
typedef struct cl_memory_s *cl_memory;
typedef struct cl_program_s *cl_program;
typedef struct cl_kernel_s *cl_kernel;
typedef struct cl_event_s *cl_event;

// X(result, name, parameters)
// clang-format off
#define CL_FUNCTIONS(X)                                                                            \
    X(int32_t, clGetPlatformIDs, (uint32_t, cl_platform *, uint32_t *))                            \
    X(int32_t, clGetPlatformInfo, (cl_platform, uint32_t, size_t, void *, size_t *))               \
    X(int32_t, clGetDeviceIDs, (cl_platform, uint64_t, uint32_t, cl_device *, uint32_t *))         \
    X(int32_t, clGetDeviceInfo, (cl_device, uint32_t, size_t, void *, size_t *))                   \
    X(cl_context, clCreateContext, (const intptr_t *, uint32_t, const cl_device *,                 \
        void (*)(const char *, const void *, size_t, void *), void *, int32_t *))                  \
    X(int32_t, clReleaseContext, (cl_context))                                                     \
    X(cl_queue, clCreateCommandQueue, (cl_context, cl_device, uint64_t, int32_t *))                \
    X(int32_t, clReleaseCommandQueue, (cl_queue))                                                  \
    X(cl_memory, clCreateBuffer, (cl_context, uint64_t, size_t, void *, int32_t *))                \
    X(int32_t, clReleaseMemObject, (cl_memory))                                                    \
    X(int32_t, clEnqueueReadBuffer, (cl_queue, cl_memory, uint32_t, size_t, size_t, void *,        \
        uint32_t, const cl_event *, cl_event *))                                                   \
    X(int32_t, clEnqueueWriteBuffer, (cl_queue, cl_memory, uint32_t, size_t, size_t, const void *, \
        uint32_t, const cl_event *, cl_event *))                                                   \
    X(int32_t, clEnqueueCopyBuffer, (cl_queue, cl_memory, cl_memory, size_t, size_t, size_t,       \
        uint32_t, const cl_event *, cl_event *))                                                   \
    X(int32_t, clEnqueueNDRangeKernel, (cl_queue, cl_kernel, uint32_t, const size_t *,             \
        const size_t *, const size_t *, uint32_t, const cl_event *, cl_event *))                   \
    X(int32_t, clFinish, (cl_queue))                                                               \
    X(cl_program, clCreateProgramWithSource, (cl_context, uint32_t, const char **, const size_t *, int32_t *)) \
    X(cl_program, clCreateProgramWithBinary, (cl_context, uint32_t, const cl_device *,             \
        const size_t *, const unsigned char **, int32_t *, int32_t *))                             \
    X(int32_t, clBuildProgram, (cl_program, uint32_t, const cl_device *, const char *,             \
        void (*)(cl_program, void *), void *))                                                     \
    X(int32_t, clGetProgramBuildInfo, (cl_program, cl_device, uint32_t, size_t, void *, size_t *)) \
    X(int32_t, clGetProgramInfo, (cl_program, uint32_t, size_t, void *, size_t *))                 \
    X(int32_t, clReleaseProgram, (cl_program))                                                     \
    X(cl_kernel, clCreateKernel, (cl_program, const char *, int32_t *))                            \
    X(int32_t, clReleaseKernel, (cl_kernel))                                                       \
    X(int32_t, clSetKernelArg, (cl_kernel, uint32_t, size_t, const void *))
// clang-format on

typedef struct ct_cl {
#define X(result, name, parameters) result(*name) parameters;
    CL_FUNCTIONS(X)
#undef X
} ct_cl;

enum {
    CL_DEVICE_TYPE_ALL_BUT_CUSTOM = 0xf,
    CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
    CL_DEVICE_MAX_CLOCK_FREQUENCY = 0x100c,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
    CL_DEVICE_MAX_PARAMETER_SIZE = 0x1017,
    CL_DEVICE_SINGLE_FP_CONFIG = 0x101b,
    CL_DEVICE_GLOBAL_MEM_SIZE = 0x101f,
    CL_DEVICE_NAME = 0x102b,
    CL_DRIVER_VERSION = 0x102d,
    CL_DEVICE_VERSION = 0x102f,
    CL_DEVICE_EXTENSIONS = 0x1030,
    CL_PLATFORM_NAME = 0x0902,
    CL_FP_DENORM = 1,
    CL_FP_CORRECTLY_ROUNDED = 1 << 7,
    CL_MEM_READ_WRITE = 1,
    CL_PROGRAM_BINARY_SIZES = 0x1165,
    CL_PROGRAM_BINARIES = 0x1166,
    CL_PROGRAM_BUILD_LOG = 0x1183,
};

// Loads COTAN_OPENCL_LIBRARY, else libOpenCL.so.1; it stays loaded. Returns NULL with the error set
// if there is none, or it lacks a function.
const ct_cl *ct__cl(ct_err *err);
// Records CT_E_DEVICE for a failed function, e.g. "opencl: clFinish failed: out of resources (-5)".
// Returns false.
bool ct__cl_failed(ct_err *err, const char *function, int32_t code);

// A device as its driver describes it. Devices are ordered by platform, then as in the platform's
// list.
typedef struct ct_cl_device {
    cl_device id;
    char name[128], platform[128], driver[128], version[128]; // version: "OpenCL 3.0 ..."
    uint64_t bytes, max_buffer_bytes;                         // of its memory; of one buffer
    uint64_t units, megahertz, parameter_bytes;
    bool f64, f16;    // has this arithmetic
    bool denormals;   // keeps subnormal f32
    bool rounded;     // divides and takes square roots correctly rounded
    int major, minor; // of the version
} ct_cl_device;
// Returns the number of devices; the first `most` are written to `list`. -1 with the error set: the
// library failed.
int ct__cl_devices(const ct_cl *cl, ct_cl_device *list, int most, ct_err *err);

#endif
