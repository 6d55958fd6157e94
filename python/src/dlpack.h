// DLPack 1.x, the protocol by which libraries exchange arrays. The layout is that of its public
// specification.
#ifndef COTAN_PYTHON_DLPACK_H
#define COTAN_PYTHON_DLPACK_H

#include <stdint.h>

enum { DLPACK_MAJOR = 1, DLPACK_MINOR = 1 }; // minor version 1 added the floats of 8 bits
enum { DLPACK_CPU = 1 };                     // device types
enum {                                       // type codes of elements
    DLPACK_INT = 0,
    DLPACK_UINT = 1,
    DLPACK_FLOAT = 2,
    DLPACK_BFLOAT = 4,
    DLPACK_COMPLEX = 5,
    DLPACK_BOOL = 6,
    DLPACK_F8E4M3FN = 10,
    DLPACK_F8E5M2 = 12,
};
enum { DLPACK_READ_ONLY = 1, DLPACK_IS_COPIED = 2 }; // flags

typedef struct dlpack_array {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t rank;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *sizes, *strides; // (rank); strides in elements, NULL: row-major
    uint64_t byte_offset;     // offset of the first element from `data`
} dlpack_array;

// In capsules named "dltensor", which are renamed "used_dltensor" when a consumer has taken the array.
typedef struct dlpack_unversioned {
    dlpack_array array;
    void *owner;
    void (*end)(struct dlpack_unversioned *self); // the deleter; NULL: none is needed
} dlpack_unversioned;

// In capsules named "dltensor_versioned", which are renamed "used_dltensor_versioned".
typedef struct dlpack_versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *owner;
    void (*end)(struct dlpack_versioned *self);
    uint64_t flags;
    dlpack_array array;
} dlpack_versioned;

#endif
