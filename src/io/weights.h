// A model's weights as they are stored in files, mapped and not copied: from one file, or from the
// several files that a folder's index names.
//
// ct__weights_open checks all names, sizes and offsets. The bytes are read when they are accessed:
// if another process truncates the file then, the access faults, as for any mapping.
#ifndef COTAN_IO_WEIGHTS_H
#define COTAN_IO_WEIGHTS_H

#include "base/error.h"
#include "base/mem.h"
#include "io/gguf.h"

typedef struct ct_weight {
    const char *name; // UTF-8 if the file's format guarantees it
    ct_dtype dtype;   // CT_DEFAULT: quantised blocks, or a type that Cotan lacks
    int block;        // a ggml type id; -1: not in blocks
    size_t rank;
    int64_t dim[CT_MAX_RANK]; // outermost first, for every format
    // Points into the mapping, aligned to 1 only; data that the file has strided or compressed are
    // a copy.
    const void *data;
    uint64_t bytes;
    const char *path; // of the file, as it was given
    uint64_t at;      // offset in the file
    const char *kind; // the element type's name in the file: "BF16", "Q4_K"
} ct_weight;

typedef struct ct_weights_file {
    const char *path;
    const void *map;
    size_t n;
} ct_weights_file;

typedef struct ct_weights {
    ct_weight *entries; // in the order of the files, and in each file's order
    size_t n;
    ct_weights_file *files;
    size_t n_files;
    const char *format; // format of the last file: "GGUF", "safetensors", "PyTorch" or "npz"
    ct_gguf gguf;       // metadata of the first GGUF file; version 0: there is none
    // Private:
    const ct_weight **by_name;
    size_t cap, files_cap;
    uint64_t n_parts; // number of GGUF files of the model
    ct_arena arena;
} ct_weights;

// Opens a file of safetensors, GGUF (the first of several), PyTorch (.bin, .pt, .pth) or npz, or a
// folder. A folder has model.safetensors or pytorch_model.bin, or the shards that their index
// names, or weights.npz, or one model in GGUF. A shard is in the folder or, if that is a snapshot
// of the Hugging Face hub's cache, may be a link to a file of the same repository.
bool ct__weights_open(const char *path, ct_weights *w, ct_err *err);
bool ct__weights_are_in(
    const char *folder); // true if it has a file that ct__weights_open looks for
// Returns true with an error if the folder has no such file, but an adapter, or a model for another
// program.
bool ct__weights_are_foreign(const char *folder, ct_err *err);
// Finds a model in GGUF: `path` itself, by its name or its first bytes, or the one in the folder
// `path`, if it has no weights of another kind; of several parts the first. `found` is "" if there
// is none. Returns false with an error, also if the folder has several.
bool ct__weights_find_gguf(const char *path, char *found, size_t cap, ct_err *err);
const ct_weight *ct__weights_find(const ct_weights *w, const char *name); // NULL: absent
// Gives the mapped pages of a weight back to the system; its bytes are not expected to be read
// again soon.
void ct__weights_release_pages(const ct_weights *w, const ct_weight *weight);
void ct__weights_close(ct_weights *w); // also after a failure

#endif
