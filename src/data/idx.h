// IDX files, as MNIST's: two zero bytes, a code of the element type, the number of axes, each axis' size in
// four bytes, and the elements, all with the most significant byte first.
#ifndef COTAN_DATA_IDX_H
#define COTAN_DATA_IDX_H

#include "base/error.h"

typedef struct ct_idx {
    ct_dtype dtype;
    int64_t rank, dims[CT_MAX_RANK];
    size_t elements, begin; // number of elements; offset of the first one
} ct_idx;

// True if a file that begins with these bytes can be an IDX file. For files of unknown type: one without axes
// is not recognised.
bool ct__idx_begins(const void *bytes, size_t n);
// Parses the header of a file of n bytes; `path` is for messages.
bool ct__idx_parse(const char *path, const void *bytes, size_t n, ct_idx *out, ct_err *err);
// Converts the elements at `data` to the machine's byte order, in place.
void ct__idx_to_host(const ct_idx *array, unsigned char *data);

#endif
