// IDX files, MNIST's: two zero bytes, a code of the element type, the number of axes, each axis'
// size in four bytes, and the elements, all with the most significant byte first.
#ifndef COTAN_DATA_IDX_H
#define COTAN_DATA_IDX_H

#include "base/error.h"

typedef struct ct_idx {
    ct_dtype dtype;
    int64_t rank, dims[CT_MAX_RANK];
    size_t elements, begin; // how many, and where the first one is
} ct_idx;

// Could a file that begins with these bytes be one? For files that may be of any kind: one without
// axes is not known so.
bool ct__idx_begins(const void *bytes, size_t n);
// What a file of these n bytes holds; `path` is for messages.
bool ct__idx_parse(const char *path, const void *bytes, size_t n, ct_idx *out, ct_err *err);
// The elements at `data` in the machine's byte order, in place.
void ct__idx_to_host(const ct_idx *array, unsigned char *data);

#endif
