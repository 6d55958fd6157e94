// safetensors: named tensors in one file, read in chunks and written at once.
//
// The reader checks the whole header before it returns: an entry's bytes are inside the file,
// whatever the header contains. They are read when they are asked for and never mapped, so that a
// file that another process truncates causes an error and not a fault. It accepts what the format's
// reference reader accepts, but follows the format's text where that reader is looser: the header
// begins with '{', no key comes twice, and a tensor's description is an object whose dtype is a
// string.
#ifndef COTAN_IO_SAFETENSORS_H
#define COTAN_IO_SAFETENSORS_H

#include "base/error.h"
#include "base/mem.h"
#include "base/os.h"

typedef struct ct_st_entry {
    const char *name; // '\0'-terminated; may hold '\0' before name_n
    size_t name_n;
    const char *kind; // the format's name of the element type: "F32", "F8_E4M3" ...
    ct_dtype dtype;   // CT_DEFAULT if Cotan has no such type
    int kind_index;   // index in the format's list, by which writers order tensors
    int bits;         // bits of an element; may be 4 or 6
    size_t rank;
    const uint64_t *shape; // a dimension may exceed int64_t if another one is 0
    uint64_t begin, bytes; // offset after the header, and length
    const void *data;      // from ct__st_parse: the bytes, aligned to 1 only; NULL for a file
} ct_st_entry;

typedef struct ct_st_pair {
    const char *key, *value; // '\0'-terminated; may hold '\0' before key_n, value_n
    size_t key_n, value_n;
} ct_st_pair;

typedef struct ct_st {
    ct_st_entry *entries; // by offset
    size_t n;
    ct_st_pair *metadata; // sorted by key
    size_t n_metadata;
    // Private:
    ct_st_entry **by_name;
    ct_file file;       // path is NULL if it was parsed from memory
    const char *header; // header_n bytes of JSON
    size_t header_n;
    ct_arena arena;
} ct_st;

// Opens and checks the file. The caller keeps `path` until ct__st_close.
bool ct__st_open(const char *path, ct_st *st, ct_err *err);
// Does the same for n bytes in memory, which the caller keeps; `label` replaces the path in
// messages.
bool ct__st_parse(const char *label, const void *bytes, size_t n, ct_st *st, ct_err *err);
const ct_st_entry *ct__st_find(const ct_st *st, const char *name); // NULL: absent
// Reads the tensor's bytes in order, one chunk a call, starting from {0}; n is 0 after the last
// one. Only one chunk of an opened file is in memory, however large the tensor is. Returns false if
// reading fails.
typedef struct ct_st_chunk {
    const void *bytes;
    size_t n;
    uint64_t at; // offset within the tensor's bytes
    char buffer[1 << 15];
} ct_st_chunk;
bool ct__st_next_chunk(const ct_st *st, const ct_st_entry *entry, ct_st_chunk *piece, ct_err *err);
const char *ct__st_metadata(const ct_st *st, const char *key); // NULL: absent
void ct__st_close(ct_st *st);                                  // also after a failure
// Formats "(2, 3) f32" for messages; dimensions that do not fit `cap` become "...". Returns out.
const char *ct__st_describe(const ct_st_entry *entry, char *out, size_t cap);

typedef struct ct_st_out {
    const char *name; // UTF-8
    ct_dtype dtype;
    size_t rank;
    const int64_t *shape;
    const void *data; // dense, row-major; may be NULL if there are no elements
} ct_st_out;

// Writes the file atomically. The bytes depend on the arguments alone, not on the order of entries
// or metadata: tensors have the order of the reference writer (by dtype, wide ones first, then by
// name), metadata are sorted by key, and the header is padded to 8 bytes.
bool ct__st_write(const char *path, const ct_st_out *entries, size_t n, const ct_st_pair *metadata,
                  size_t n_metadata, ct_err *err);

// Does the same with checksums in the metadata, eight hexadecimal digits each: "cotan.crc32c.NAME"
// over the tensor's bytes, and "cotan.crc32c" over the header with zeros for these digits. Other
// readers see them as metadata.
bool ct__st_write_checked(const char *path, const ct_st_out *entries, size_t n,
                          const ct_st_pair *metadata, size_t n_metadata, ct_err *err);
// Compares the header and the tensors with their checksums. A file without checksums is an error
// only if they are `required`.
bool ct__st_verify(const ct_st *st, const char *label, bool required, ct_err *err);
bool ct__st_is_checksum(const ct_st_pair *pair); // true if the pair is such a checksum

#endif
