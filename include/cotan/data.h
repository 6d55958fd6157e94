// Data: files as tensors. Each is read once, as a leaf; batches are picked from it by ops
// (ct_gather at random rows), so that they are part of the step's plan.
#ifndef COTAN_DATA_H
#define COTAN_DATA_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------------------- files

// The bytes of a file: (N,) u8. Poisoned where it cannot be read; so are the others.
CT_API ct_tensor ct_load_bytes_at(const char *path, ct_loc here);
#define ct_load_bytes(path) ct_load_bytes_at((path), CT_HERE)
// An array in the IDX format, in which MNIST is published, with the file's sizes and dtype: u8,
// i8, i16, i32, f32 or f64.
CT_API ct_tensor ct_load_idx_at(const char *path, ct_loc here);
#define ct_load_idx(path) ct_load_idx_at((path), CT_HERE)

#ifdef __cplusplus
}
#endif

#endif
