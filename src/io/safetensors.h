// safetensors: named tensors in one file, read in pieces and written whole.
//
// The reader checks the header completely before it answers: an entry's bytes lie inside the file,
// whatever the header says. They are read when they are asked for and never mapped, so that a file
// that others shorten meanwhile is an error and no fault. It accepts what the format's reference
// reader accepts, but holds to the format's text where that reader is looser: the header begins
// with '{', no key comes twice, and a tensor's description is an object whose dtype is a string.
#ifndef COTAN_IO_SAFETENSORS_H
#define COTAN_IO_SAFETENSORS_H

#include "base/error.h"
#include "base/mem.h"
#include "base/os.h"

typedef struct ct_st_entry {
    const char *name; // '\0'-terminated; may hold '\0' before name_n
    size_t name_n;
    const char *kind; // the format's name of the element type: "F32", "F8_E4M3" ...
    ct_dtype dtype;   // CT_DEFAULT where Cotan has no such type
    int kind_rank;    // position in the format's list, by which writers order tensors
    int bits;         // an element's, 4 and 6 possible
    size_t rank;
    const uint64_t *shape; // a dimension may exceed int64_t where another one is 0
    uint64_t begin, bytes; // place behind the header, and length
    const void *data;      // of ct__st_parse: the bytes, aligned to 1 only; of a file NULL
} ct_st_entry;

typedef struct ct_st_pair {
    const char *key, *value; // '\0'-terminated; may hold '\0' before key_n, value_n
    size_t key_n, value_n;
} ct_st_pair;

typedef struct ct_st {
    ct_st_entry *entries; // in the order of their bytes
    size_t n;
    ct_st_pair *metadata; // sorted by key
    size_t n_metadata;
    // Private:
    ct_st_entry **by_name;
    ct_file file;       // path NULL: read from memory
    const char *header; // header_n bytes of JSON
    size_t header_n;
    ct_arena arena;
} ct_st;

// Opens and checks the file at `path`, a text that stays the caller's and is kept until
// ct__st_close.
bool ct__st_open(const char *path, ct_st *st, ct_err *err);
// The same over n bytes in memory, which the caller keeps; `label` stands for the path in messages.
bool ct__st_parse(const char *label, const void *bytes, size_t n, ct_st *st, ct_err *err);
const ct_st_entry *ct__st_find(const ct_st *st, const char *name); // NULL: absent
// The tensor's bytes in their order, a piece a call, from {0} on; n 0: that was all. However large
// the tensor is, of an opened file only the piece is in memory. False: they could not be read.
typedef struct ct_st_piece {
    const void *bytes;
    size_t n;
    uint64_t at; // of the tensor's bytes
    char room[1 << 15];
} ct_st_piece;
bool ct__st_next(const ct_st *st, const ct_st_entry *entry, ct_st_piece *piece, ct_err *err);
const char *ct__st_metadata(const ct_st *st, const char *key); // NULL: absent
void ct__st_close(ct_st *st);                                  // also after a failure
// "(2, 3) f32" for messages; dimensions beyond the cap end in "...". Returns out.
const char *ct__st_describe(const ct_st_entry *entry, char *out, size_t cap);

typedef struct ct_st_out {
    const char *name; // UTF-8
    ct_dtype dtype;
    size_t rank;
    const int64_t *shape;
    const void *data; // dense, row-major; may be NULL when there are no elements
} ct_st_out;

// Writes the file, replacing it at once or not at all. The bytes depend on the arguments alone, not
// on the order of entries or metadata: tensors are ordered as the reference writer orders them (by
// dtype, wide ones first, then by name), metadata by key, and the header is padded to 8 bytes.
bool ct__st_write(const char *path, const ct_st_out *entries, size_t n, const ct_st_pair *metadata,
                  size_t n_metadata, ct_err *err);

// The same with checksums in the metadata, eight hexadecimal digits each: "cotan.crc32c.NAME" over
// the tensor's bytes, and "cotan.crc32c" over the header with zeros for these digits. Other readers
// see metadata.
bool ct__st_write_checked(const char *path, const ct_st_out *entries, size_t n,
                          const ct_st_pair *metadata, size_t n_metadata, ct_err *err);
// Compares header and tensors with their checksums. A file without any passes unless they are
// `required`.
bool ct__st_verify(const ct_st *st, const char *label, bool required, ct_err *err);
bool ct__st_is_checksum(const ct_st_pair *pair); // one of these, and no key of somebody else

#endif
