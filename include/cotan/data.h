// Data: files as tensors. A file is read once, as a leaf; ops (ct_gather at random rows) select
// batches from it, so that they are part of the step's plan.
#ifndef COTAN_DATA_H
#define COTAN_DATA_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------------------- files

// Returns the bytes of a file: (N,) u8. The result is poisoned if the file cannot be read; the same
// holds for the others.
CT_API ct_tensor ct_load_bytes_at(const char *path, ct_loc here);
#define ct_load_bytes(path) ct_load_bytes_at((path), CT_HERE)
// Returns an array in the IDX format, in which MNIST is published, with the sizes and dtype of the
// file: u8, i8, i16, i32, f32 or f64.
CT_API ct_tensor ct_load_idx_at(const char *path, ct_loc here);
#define ct_load_idx(path) ct_load_idx_at((path), CT_HERE)

#ifdef __cplusplus
}
#endif

#endif
