// npy: one array in NumPy's file format, versions 1.0, 2.0 and 3.0.
//
// The header is a Python literal. A scanner reads the one form that the format allows; nothing is
// evaluated. Every size is checked against the file before it is used.
#ifndef COTAN_IO_NPY_H
#define COTAN_IO_NPY_H

#include "base/error.h"
#include "base/mem.h"
#include "base/text.h"

enum {
    CT_NPY_FIXED = 12,       // maximum size of magic, version and header length
    CT_NPY_HEADER = 1 << 20, // the longest header that is read
    CT_NPY_DESCR = 32,
};

typedef struct ct_npy {
    ct_dtype dtype;           // CT_DEFAULT if Cotan has no such type
    char descr[CT_NPY_DESCR]; // as in the file: "<f4"
    size_t size;              // bytes of an element
    int version;              // 1, 2 or 3
    bool swapped;             // the elements have the other byte order
    bool fortran;             // column-major: the first axis varies fastest
    int rank;
    int64_t shape[CT_MAX_RANK];
    uint64_t count, begin, bytes; // elements; offset and length of the data in the file
} ct_npy;

// The name of the file in messages: "LABEL: PART: what is wrong".
typedef struct ct_npy_name {
    const char *label, *part;
} ct_npy_name;

// Computes the number of bytes before the data from the first CT_NPY_FIXED bytes of a file (all
// bytes of a shorter file).
bool ct__npy_prefix(ct_npy_name name, const void *bytes, size_t n, size_t *prefix, ct_err *err);
// Parses these `prefix` bytes. The data must fill the rest of the `file_n` bytes exactly.
bool ct__npy_parse(ct_npy_name name, const void *bytes, size_t prefix, uint64_t file_n, ct_npy *npy,
                   ct_err *err);
// Returns false with an error if Cotan has no dtype for the elements.
bool ct__npy_check_dtype(ct_npy_name name, const ct_npy *npy, ct_err *err);
// True if the elements have the layout that Cotan uses, so that they need no conversion.
bool ct__npy_is_native(const ct_npy *npy, const void *data);
// Converts elements from the file to row-major order, native byte order and bools of 0 and 1. `to`
// has npy->bytes bytes.
void ct__npy_convert(const ct_npy *npy, const void *from, void *to);
// Formats "(2, 3) f32", or "(2, 3) <c32" for a dtype that Cotan lacks. Returns out.
const char *ct__npy_describe(const ct_npy *npy, char *out, size_t cap);

// Appends everything before the data of a row-major array, as NumPy writes it. Returns false if
// NumPy has no such dtype, or without memory.
bool ct__npy_header(ct_npy_name name, ct_dtype dtype, int rank, const int64_t *shape, ct_text *out,
                    ct_err *err);

#endif
