// npz: named arrays, each an npy file in one zip archive, stored or deflated. The archive is read
// and written by minizip; what it reports is checked here against the file before it is used.
#ifndef COTAN_IO_NPZ_H
#define COTAN_IO_NPZ_H

#include "base/atomic.h"
#include "io/npy.h"

typedef struct ct_npz_entry {
    const char *name;           // without ".npy"; UTF-8, '\0'-terminated, no '\0' inside
    const char *part;           // for messages: npz: array "name"
    uint64_t bytes, packed;     // of the npy file; as they lie in the archive
    uint64_t begin;             // where they lie
    uint64_t directory, number; // minizip's position in the archive's directory
    bool deflated;
} ct_npz_entry;

typedef struct ct_zip_memory { // the file, as minizip reads it
    const unsigned char *bytes;
    uint64_t n, at;
} ct_zip_memory;

struct ct_npz {
    char *label;
    ct_npz_entry *entries; // in the archive's order
    size_t n;
    // Private:
    const ct_npz_entry **by_name;
    ct_zip_memory memory;
    void *zip; // minizip's
    const void *map;
    size_t map_n;
    ct_arena arena;
};

// Checks the archive's directory: the arrays themselves are checked when they are asked for.
// Nothing is kept after a failure.
bool ct__npz_open(const char *path, struct ct_npz *npz, ct_err *err);
// The same over n bytes in memory, which the caller keeps; `label` stands for the path in messages.
bool ct__npz_parse(const char *label, const void *bytes, size_t n, struct ct_npz *npz, ct_err *err);
void ct__npz_close(struct ct_npz *npz);
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
