// PyTorch's files of weights (.bin, .pt, .pth), as torch.save writes them: a zip archive of a
// pickle and storages or, before version 1.6, a sequence of pickles and storages.
#ifndef COTAN_IO_TORCH_H
#define COTAN_IO_TORCH_H

#include "io/weights.h"

// Reads the tensors of a mapped file, which holds a dict of tensors or of nested dicts, whose keys
// are joined by "."; values that are not tensors are skipped. Dense tensors point into the mapping;
// strided views are copied. Names, copies and the list are allocated in `arena`.
bool ct__torch_read(const ct_weights_file *file, ct_arena *arena, ct_weight **entries, size_t *n,
                    ct_err *err);

#endif
