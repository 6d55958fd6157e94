// PyTorch's files of weights (.bin, .pt, .pth), as torch.save writes them: a zip archive of a pickle and
// storages or, before version 1.6, pickles and storages one behind the other.
#ifndef COTAN_IO_TORCH_H
#define COTAN_IO_TORCH_H

#include "io/weights.h"

// The tensors of a mapped file, a dict of tensors or of more dicts, whose keys are joined by points; what is
// no tensor in it is passed over. Those that are dense are taken in the mapping, views in another order copied.
// Names, copies and the list come from `arena`.
bool ct__torch_read(const ct_weights_file *file, ct_arena *arena, ct_weight **entries, size_t *n,
                    ct_err *err);

#endif
