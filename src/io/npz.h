// npz: named arrays, each an npy file in one zip archive, stored or deflated.
#ifndef COTAN_IO_NPZ_H
#define COTAN_IO_NPZ_H

#include "io/npy.h"
#include "io/zip.h"

typedef struct ct_npz_entry {
    const char *name; // without ".npy"; UTF-8, '\0'-terminated, no '\0' inside
    const char *part; // prefix of messages: npz: array "name"
    ct_zip_entry zip; // its bytes are an npy file
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

// Checks the archive's directory. The arrays are checked when they are read; the file stays open
// for that. Nothing is kept after a failure.
bool ct__npz_open(const char *path, struct ct_npz *npz, ct_err *err);
void ct__npz_close(struct ct_npz *npz);                                       // may be all zeros
const ct_npz_entry *ct__npz_find(const struct ct_npz *npz, const char *name); // NULL: absent

// Reads an array's dtype and shape; only the bytes before the data are unpacked.
bool ct__npz_read_header(struct ct_npz *npz, const ct_npz_entry *entry, ct_npy *npy, ct_err *err);
// Reads an array, with its elements as in the file; free it with ct__free. The checksum is
// compared.
bool ct__npz_read(struct ct_npz *npz, const ct_npz_entry *entry, ct_npy *npy, void **data,
                  ct_err *err);

typedef struct ct_npz_out {
    const char *name; // UTF-8
    ct_dtype dtype;
    int rank;
    const int64_t *shape;
    const void *data; // dense, row-major
} ct_npz_out;

// Writes the archive atomically. Equal arrays give equal bytes.
bool ct__npz_write(const char *path, const ct_npz_out *entries, size_t n, bool deflate,
                   ct_err *err);

#endif
