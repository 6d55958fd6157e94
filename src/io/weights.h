// A model's weights as they lie in files, mapped and not copied: of one file, or of the several that
// a folder's index names.
//
// All names, sizes and places are checked before ct__weights_open answers. The bytes are read when
// they are touched: a file that somebody shortens meanwhile is a fault then, as of all that is mapped.
#ifndef COTAN_IO_WEIGHTS_H
#define COTAN_IO_WEIGHTS_H

#include "base/error.h"
#include "base/mem.h"
#include "io/gguf.h"

typedef struct ct_weight {
    const char *name; // UTF-8 as far as the file says so
    ct_dtype dtype;   // CT_DEFAULT: of blocks, or nothing that Cotan has
    int block;        // a ggml type, -1: plain
    size_t rank;
    int64_t dim[CT_MAX_RANK]; // outermost first, whatever the file's order
    // In the mapping, aligned to 1 only; what the file has in another order, or packed, is a copy.
    const void *data;
    uint64_t bytes;
    const char *path; // of the file, as it was named
    uint64_t at;      // of the file
    const char *kind; // the file's name of the element type: "BF16", "Q4_K"
} ct_weight;

typedef struct ct_weights_file {
    const char *path;
    const void *map;
    size_t n;
} ct_weights_file;

typedef struct ct_weights {
    ct_weight *entries; // in the order of the files, and in each as its header has them
    size_t n;
    ct_weights_file *files;
    size_t n_files;
    const char *format; // of the files, the last one's: "GGUF", "safetensors", "PyTorch" or "npz"
    ct_gguf gguf;       // metadata of a GGUF file, the first of several; version 0: there is none
    // Private:
    const ct_weight **by_name;
    size_t cap, files_cap;
    uint64_t parts; // of a model in several GGUF files
    ct_arena arena;
} ct_weights;

// `path` is a file of safetensors, GGUF (the first of several), PyTorch (.bin, .pt, .pth) or npz, or a folder
// with model.safetensors or pytorch_model.bin, or the shards that their index names, with weights.npz, or with
// one model in GGUF. A shard lies in the folder or, where that is a snapshot of the
// Hugging Face hub's cache, may be a link to a file of the same repository.
bool ct__weights_open(const char *path, ct_weights *w, ct_err *err);
bool ct__weights_are_in(const char *folder); // files with the names that ct__weights_open looks for
// True, with an error that says what it is: the folder has no such file, but an adapter, or a model for another program.
bool ct__weights_are_foreign(const char *folder, ct_err *err);
// The model in GGUF that `path` is, by its name or its first bytes, or that the folder has where it has no weights of
// another kind; of several parts the first. "": there is none. False: an error, or the folder has several.
bool ct__weights_gguf(const char *path, char *found, size_t cap, ct_err *err);
const ct_weight *ct__weights_find(const ct_weights *w, const char *name); // NULL: absent
// Its bytes are not looked at again soon: the system gets the pages of the mapping back.
void ct__weights_forget(const ct_weights *w, const ct_weight *weight);
void ct__weights_close(ct_weights *w); // also after a failure

#endif
