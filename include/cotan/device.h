// Device plugins: a C file, loaded at run time, adds a device. It provides memory, copies and the
// execution of kernels; plans, gradients, fusion and checks are the library's.
#ifndef COTAN_DEVICE_H
#define COTAN_DEVICE_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

// An error: functions that may fail return NULL or a sentence, which becomes the plan's error and
// lives as long as the device.
typedef const char *ct_device_error;

// An address in the device's memory: what its `alloc` returned, and an offset in bytes.
typedef struct ct_device_address {
    void *buffer;
    size_t offset;
} ct_device_address;

// The language of kernels.
typedef enum {
    // C with GCC's vector extensions, for gcc and clang with -ffp-contract=off -fno-math-errno
    // -fwrapv -fno-strict-aliasing -std=gnu17, which gives the bits of device cpu. A function
    //     void NAME(void *const *buffers, const int64_t *numbers, int64_t begin, int64_t end, void *scratch)
    // runs rows [begin, end) of the grid, in any order; `scratch` is private to a thread and
    // aligned to 64 bytes.
    CT_DEVICE_C,
    // OpenCL C 1.2. In a function
    //     kernel void NAME(global uchar *b0, ..., long offset0, ..., long number0, ..., long begin, long end,
    //                      long room, global uchar *scratch)
    // work-item i runs row begin + i, with `room` bytes of scratch each.
    CT_DEVICE_OPENCL_C,
} ct_device_language;

typedef struct ct_device_kernel {
    const char *name;   // name of the function: k_ and 32 hexadecimal digits, a hash of the source
    const char *source; // the whole source: types, helpers and the function
    size_t scratch;     // bytes that a thread, or a work-item, needs
} ct_device_kernel;

// Rows [0, grid) of a kernel.
typedef struct ct_device_launch {
    void *code;                       // the result of `compile`
    const ct_device_address *buffers; // (n_buffers)
    const int64_t *scalars;           // (n_scalars)
    uint32_t n_buffers, n_scalars;
    int64_t grid;
    size_t scratch; // as in ct_device_kernel
} ct_device_launch;

// The functions of a device. Operations run in the order of the calls. copy_in, copy_out and wait
// return when they are complete; copy and launch may return earlier. Only one thread at a time
// calls the functions of a device.
typedef struct ct_device_spec {
    size_t struct_size; // sizeof this struct, as the caller was compiled
    const char *name;   // name for ct_set_device: lower-case letters and digits
    const char *doc;    // description for `cotan devices`; may be NULL
    ct_device_language language;
    // How its arithmetic deviates from the rules of docs/design/bits.md, in one word: "ftz"; NULL:
    // not at all.
    const char *numerics;
    uint64_t memory;    // bytes; 0: the memory of the host
    int (*count)(void); // number of devices: NAME:0, NAME:1 ...; NULL: one
    ct_device_error (*open)(int ordinal, void **state);
    void (*close)(void *state);
    void *(*alloc)(void *state, size_t bytes); // aligned to 64 bytes; NULL: out of memory
    void (*free)(void *state, void *buffer);
    ct_device_error (*copy_in)(void *state, ct_device_address to, const void *host, size_t bytes);
    ct_device_error (*copy_out)(void *state, ct_device_address from, void *host, size_t bytes);
    // Both may be in the same buffer and overlap.
    ct_device_error (*copy)(void *state, ct_device_address from, ct_device_address to,
                            size_t bytes);
    // The code stays valid until the device is closed: kernels with equal names are compiled once.
    ct_device_error (*compile)(void *state, const ct_device_kernel *kernel, void **code);
    ct_device_error (*launch)(void *state, const ct_device_launch *launch);
    ct_device_error (*wait)(void *state);
} ct_device_spec;

// Registers the device until the process ends; what the spec points to must stay valid as long.
// False: see ct_error_text.
CT_API CT_MUST_USE bool ct_device_define_at(const ct_device_spec *spec, ct_loc here);
#define ct_device_define(spec) ct_device_define_at((spec), CT_HERE)

// Loads a shared library, which stays loaded, and registers the device that its `const
// ct_device_spec *cotan_device(void)` returns. The library is compiled with -shared -fPIC and
// linked with nothing of Cotan. For programs that do not call this, COTAN_DEVICE_LIBRARY lists
// paths, separated by colons. False: see ct_error_text.
CT_API CT_MUST_USE bool ct_device_load_at(const char *path, ct_loc here);
#define ct_device_load(path) ct_device_load_at((path), CT_HERE)

#ifdef __cplusplus
}
#endif

#endif
