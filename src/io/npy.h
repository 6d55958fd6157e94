// npy: one array in NumPy's file format, versions 1.0, 2.0 and 3.0.
//
// The header is a literal of Python's and is read as one by a scanner for the single shape that the
// format gives it; nothing is evaluated. Every size is checked against the file before it is used.
#ifndef COTAN_IO_NPY_H
#define COTAN_IO_NPY_H

#include "base/error.h"
#include "base/mem.h"
#include "base/text.h"

enum {
    CT_NPY_FIXED = 12,       // magic, version and the length of the header take at most this
    CT_NPY_HEADER = 1 << 20, // longest header that is read
    CT_NPY_DESCR = 32,
};

typedef struct ct_npy {
    ct_dtype dtype;           // CT_DEFAULT where Cotan has no such type
    char descr[CT_NPY_DESCR]; // as the file writes it: "<f4"
    size_t size;              // bytes an element
    int version;              // 1, 2 or 3
    bool swapped;             // the bytes of an element come in the other order
    bool fortran;             // the first axis runs fastest
    int rank;
    int64_t shape[CT_MAX_RANK];
    uint64_t count, begin, bytes; // elements; place of the data in the file, and its length
} ct_npy;

// What messages call the file: "LABEL: PART: what is wrong".
typedef struct ct_npy_name {
    const char *label, *part;
} ct_npy_name;

// From the first CT_NPY_FIXED bytes of a file (fewer where it is shorter): bytes up to the data.
bool ct__npy_prefix(ct_npy_name name, const void *bytes, size_t n, size_t *prefix, ct_err *err);
// From these `prefix` bytes and the length of the file: the array. The data fill the rest exactly.
bool ct__npy_parse(ct_npy_name name, const void *bytes, size_t prefix, uint64_t file_n, ct_npy *npy,
                   ct_err *err);
// False, with a sentence that names the dtype, where Cotan has none for it.
bool ct__npy_usable(ct_npy_name name, const ct_npy *npy, ct_err *err);
// Are the elements what Cotan holds, so that they can be taken as they lie?
bool ct__npy_plain(const ct_npy *npy, const void *data);
// Elements from the file into row-major order, native bytes and bools of 0 and 1. to: npy->bytes.
void ct__npy_convert(const ct_npy *npy, const void *from, void *to);
// "(2, 3) f32", or "(2, 3) <c32" for what Cotan lacks. Returns out.
const char *ct__npy_describe(const ct_npy *npy, char *out, size_t cap);

// Appends everything that stands before the data of a row-major array, as NumPy writes it. False:
// NumPy has no such dtype, or no memory.
bool ct__npy_header(ct_npy_name name, ct_dtype dtype, int rank, const int64_t *shape, ct_text *out,
                    ct_err *err);

#endif
