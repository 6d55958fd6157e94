// Devices from outside: one C file, loaded at run time, brings a device of its own. It gives memory, copies, and
// what runs a kernel; plans, gradients, fusion and checks are the library's.
#ifndef COTAN_DEVICE_H
#define COTAN_DEVICE_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

// Functions that may fail return NULL, or a sentence, which is the error of the plan and lives as long as the device.
typedef const char *ct_device_why;

// A place in the device's memory: what its `alloc` returned, and bytes from there.
typedef struct ct_device_place {
    void *buffer;
    size_t offset;
} ct_device_place;

// What kernels are written in.
typedef enum {
    // C with GCC's vector extensions, as gcc and clang take it with -ffp-contract=off -fno-math-errno -fwrapv
    // -fno-strict-aliasing -std=gnu17, which keeps the bits of device cpu. A function
    //     void NAME(void *const *buffers, const int64_t *numbers, int64_t begin, int64_t end, void *scratch)
    // runs rows [begin, end) of the grid, in any order; `scratch` is a thread's own, aligned to 64 bytes.
    CT_DEVICE_C,
    // OpenCL C 1.2. A function
    //     kernel void NAME(global uchar *b0, ..., long offset0, ..., long number0, ..., long begin, long end,
    //                      long room, global uchar *scratch)
    // of which work-item i runs row begin + i, with `room` bytes of scratch each.
    CT_DEVICE_OPENCL_C,
} ct_device_language;

typedef struct ct_device_kernel {
    const char *name;   // of the function: k_ and 32 hexadecimal digits, which stand for the source
    const char *source; // all of it: types, what they can do, and the function
    size_t scratch;     // bytes that a thread, or a work-item, needs
} ct_device_kernel;

// Rows [0, grid) of a kernel.
typedef struct ct_device_launch {
    void *code;                     // of `compile`
    const ct_device_place *buffers; // (n_buffers)
    const int64_t *numbers;         // (n_numbers)
    uint32_t n_buffers, n_numbers;
    int64_t grid;
    size_t scratch; // as in ct_device_kernel
} ct_device_launch;

// All that is handed over runs in order; copy_in, copy_out and wait return when it has, copy and launch may before.
// Calls of one device come from one thread at a time.
typedef struct ct_device_spec {
    size_t bytes;     // of this struct, as the caller knows it
    const char *name; // as ct_set_device takes it: lower-case letters and digits
    const char *doc;  // what it is, for `cotan devices`; may be NULL
    ct_device_language language;
    // What it does otherwise than the rules of docs/design/bits.md, in a word: "ftz"; NULL: nothing.
    const char *numerics;
    uint64_t memory;    // bytes; 0: the host's
    int (*count)(void); // how many there are: NAME:0, NAME:1 ...; NULL: one
    ct_device_why (*open)(int ordinal, void **state);
    void (*close)(void *state);
    void *(*alloc)(void *state, size_t bytes); // aligned to 64 bytes; NULL: there is no memory
    void (*free)(void *state, void *buffer);
    ct_device_why (*copy_in)(void *state, ct_device_place to, const void *host, size_t bytes);
    ct_device_why (*copy_out)(void *state, ct_device_place from, void *host, size_t bytes);
    // Both may be one buffer, and overlap.
    ct_device_why (*copy)(void *state, ct_device_place from, ct_device_place to, size_t bytes);
    // The code stays until the device is closed: equal names are compiled once.
    ct_device_why (*compile)(void *state, const ct_device_kernel *kernel, void **code);
    ct_device_why (*launch)(void *state, const ct_device_launch *launch);
    ct_device_why (*wait)(void *state);
} ct_device_spec;

// From here on there is such a device, as long as the process lasts; what the spec points to must stay as long.
// False: see ct_error_text.
CT_API CT_MUST_USE bool ct_device_define_at(const ct_device_spec *spec, ct_loc here);
#define ct_device_define(spec) ct_device_define_at((spec), CT_HERE)

// Loads a shared library, which stays, and defines the device that its `const ct_device_spec *cotan_device(void)`
// returns. It is compiled with -shared -fPIC and linked with nothing of Cotan. Programs that know nothing of it get
// it by COTAN_DEVICE_LIBRARY, paths with colons between them. False: see ct_error_text.
CT_API CT_MUST_USE bool ct_device_load_at(const char *path, ct_loc here);
#define ct_device_load(path) ct_device_load_at((path), CT_HERE)

#ifdef __cplusplus
}
#endif

#endif
