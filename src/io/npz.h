// npz: named arrays, each an npy file in one zip archive, stored or deflated.
#ifndef COTAN_IO_NPZ_H
#define COTAN_IO_NPZ_H

#include "io/npy.h"
#include "io/zip.h"

typedef struct ct_npz_entry {
    const char *name; // without ".npy"; UTF-8, '\0'-terminated, no '\0' inside
    const char *part; // for messages: npz: array "name"
    ct_zip_entry zip; // its bytes are those of the npy file
} ct_npz_entry;

struct ct_npz {
    char *label;
    ct_npz_entry *entries; // in the archive's order
    size_t n;
    // Private:
    const ct_npz_entry **by_name;
    ct_zip zip;
    ct_arena arena;
};

// Checks the archive's directory: the arrays themselves are checked when they are asked for, and
// the file stays open for that. Nothing is kept after a failure.
bool ct__npz_open(const char *path, struct ct_npz *npz, ct_err *err);
void ct__npz_close(struct ct_npz *npz); // also one that is all zeros
const ct_npz_entry *ct__npz_find(const struct ct_npz *npz, const char *name); // NULL: absent

// What an array is; of its bytes, only those before the data are unpacked.
bool ct__npz_head(struct ct_npz *npz, const ct_npz_entry *entry, ct_npy *npy, ct_err *err);
// The array with its elements as the file has them, freed with ct__free; its checksum is compared.
bool ct__npz_read(struct ct_npz *npz, const ct_npz_entry *entry, ct_npy *npy, void **data,
                  ct_err *err);

typedef struct ct_npz_out {
    const char *name; // UTF-8
    ct_dtype dtype;
    int rank;
    const int64_t *shape;
    const void *data; // dense, row-major
} ct_npz_out;

// Writes the archive, replacing it at once or not at all. Equal arrays give equal bytes.
bool ct__npz_write(const char *path, const ct_npz_out *entries, size_t n, bool deflate,
                   ct_err *err);

#endif
