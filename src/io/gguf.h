// GGUF: metadata by key and named tensors in one file, versions 2 and 3, little-endian.
//
// The file is in memory, usually mapped, and ct__gguf_parse checks all of it: each length and count
// is compared with the remaining bytes before it is used. Strings and arrays point into these
// bytes.
#ifndef COTAN_IO_GGUF_H
#define COTAN_IO_GGUF_H

#include "base/error.h"
#include "base/mem.h"

typedef enum ct_gguf_type { // the values are the format's
    CT_GGUF_U8,
    CT_GGUF_I8,
    CT_GGUF_U16,
    CT_GGUF_I16,
    CT_GGUF_U32,
    CT_GGUF_I32,
    CT_GGUF_F32,
    CT_GGUF_BOOL,
    CT_GGUF_STRING,
    CT_GGUF_ARRAY,
    CT_GGUF_U64,
    CT_GGUF_I64,
    CT_GGUF_F64,
    CT_GGUF_TYPES
} ct_gguf_type;

typedef struct ct_gguf_text { // n bytes of any value, not '\0'-terminated
    const char *s;
    uint64_t n;
} ct_gguf_text;

typedef struct ct_gguf_list { // an array, or a single value
    ct_gguf_type type;        // the type of an element
    uint64_t n;
    const unsigned char *at, *end; // of strings: each a length, then its bytes
} ct_gguf_list;

typedef struct ct_gguf_pair {
    ct_gguf_text key;
    ct_gguf_type type;
    ct_gguf_list value; // n is 1 if `type` is not an array
} ct_gguf_pair;

enum { CT_GGUF_RANK = 4 };
typedef struct ct_gguf_tensor {
    const char *name; // '\0'-terminated, no '\0' inside
    const struct ct_ggml_type *type;
    int rank;
    int64_t dim[CT_GGUF_RANK]; // outermost first; the file has the innermost first
    uint64_t at, bytes;        // offset in the file, and length
} ct_gguf_tensor;

typedef struct ct_gguf {
    const char *label; // owned by the caller
    unsigned version;
    uint64_t alignment;
    ct_gguf_pair *pairs; // sorted by key
    size_t n_pairs;
    ct_gguf_tensor *tensors; // in file order
    size_t n;
    ct_arena arena;
} ct_gguf;

// Parses n bytes. The caller keeps them and `label`, which replaces the path in messages.
bool ct__gguf_parse(const char *label, const void *bytes, size_t n, ct_gguf *gguf, ct_err *err);
void ct__gguf_close(ct_gguf *gguf); // also after a failure

// Does the same for a file, which is mapped; the caller keeps `path`.
typedef struct ct_gguf_file {
    ct_gguf gguf;
    const void *map;
    size_t n;
} ct_gguf_file;
bool ct__gguf_open(const char *path, ct_gguf_file *file, ct_err *err);
void ct__gguf_file_close(ct_gguf_file *file); // also after a failure

const ct_gguf_pair *ct__gguf_find(const ct_gguf *gguf, const char *key); // NULL: absent
// Each of these fails if the key is missing or its value is of another type or out of range.
bool ct__gguf_int(const ct_gguf *gguf, const char *key, int64_t low, int64_t high, int64_t *value,
                  ct_err *err); // any integer type
bool ct__gguf_real(const ct_gguf *gguf, const char *key, double *value,
                   ct_err *err); // any number type
bool ct__gguf_bool(const ct_gguf *gguf, const char *key, bool *value, ct_err *err);
bool ct__gguf_text(const ct_gguf *gguf, const char *key, ct_gguf_text *value, ct_err *err);
// Gets an array of elements of one type. ct__gguf_next reads strings in order; ct__gguf_list_int
// and _real read the i-th number. _int saturates values that do not fit.
bool ct__gguf_list(const ct_gguf *gguf, const char *key, ct_gguf_type type, ct_gguf_list *value,
                   ct_err *err);
bool ct__gguf_next(ct_gguf_list *list,
                   ct_gguf_text *text); // strings only; false after the last one
int64_t ct__gguf_list_int(const ct_gguf_list *list, uint64_t i);
double ct__gguf_list_real(const ct_gguf_list *list, uint64_t i);
const char *ct__gguf_type_name(ct_gguf_type type); // "u32"

#endif
