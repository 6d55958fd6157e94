// GGUF: metadata by key and named tensors in one file, versions 2 and 3, the bytes of a number in
// little-endian order.
//
// The file lies in memory, mapped as a rule, and is checked whole before ct__gguf_parse answers: each
// length and count is compared with the bytes that there are before it is used. Texts and lists are
// views of these bytes.
#ifndef COTAN_IO_GGUF_H
#define COTAN_IO_GGUF_H

#include "base/error.h"
#include "base/mem.h"

typedef enum ct_gguf_type { // the numbers are the format's
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

typedef struct ct_gguf_text { // n bytes of any value, without a '\0' behind them
    const char *s;
    uint64_t n;
} ct_gguf_text;

typedef struct ct_gguf_list { // of an array, and of one value
    ct_gguf_type type;        // of an element
    uint64_t n;
    const unsigned char *at, *end; // of strings, lengths and bytes in turn
} ct_gguf_list;

typedef struct ct_gguf_pair {
    ct_gguf_text key;
    ct_gguf_type type;
    ct_gguf_list value; // where `type` is no array, of one
} ct_gguf_pair;

enum { CT_GGUF_RANK = 4 };
typedef struct ct_gguf_tensor {
    const char *name; // '\0'-terminated, no '\0' inside
    const struct ct_ggml_type *type;
    int rank;
    int64_t dim[CT_GGUF_RANK]; // outermost first: the file has the innermost first
    uint64_t at, bytes;        // of the file
} ct_gguf_tensor;

typedef struct ct_gguf {
    const char *label; // the caller's
    unsigned version;
    uint64_t alignment;
    ct_gguf_pair *pairs; // sorted by key
    size_t n_pairs;
    ct_gguf_tensor *tensors; // in the file's order
    size_t n;
    ct_arena arena;
} ct_gguf;

// The n bytes stay the caller's, as does `label`, which stands for the path in messages.
bool ct__gguf_parse(const char *label, const void *bytes, size_t n, ct_gguf *gguf, ct_err *err);
void ct__gguf_close(ct_gguf *gguf); // also after a failure

// The same of a file, which is mapped; `path` stays the caller's.
typedef struct ct_gguf_file {
    ct_gguf gguf;
    const void *map;
    size_t n;
} ct_gguf_file;
bool ct__gguf_open(const char *path, ct_gguf_file *file, ct_err *err);
void ct__gguf_shut(ct_gguf_file *file); // also after a failure

const ct_gguf_pair *ct__gguf_find(const ct_gguf *gguf, const char *key); // NULL: absent
// Each of these fails when the key is missing or its value is of another type or out of range.
bool ct__gguf_int(const ct_gguf *gguf, const char *key, int64_t low, int64_t high, int64_t *value,
                  ct_err *err); // of any type of integers
bool ct__gguf_real(const ct_gguf *gguf, const char *key, double *value,
                   ct_err *err); // of any numbers
bool ct__gguf_bool(const ct_gguf *gguf, const char *key, bool *value, ct_err *err);
bool ct__gguf_text(const ct_gguf *gguf, const char *key, ct_gguf_text *value, ct_err *err);
// An array of elements of one type, which ct__gguf_list_next takes from the first to the last; of
// numbers, ct__gguf_list_int and _real know the i-th. _int saturates what does not fit.
bool ct__gguf_list(const ct_gguf *gguf, const char *key, ct_gguf_type type, ct_gguf_list *value,
                   ct_err *err);
bool ct__gguf_next(ct_gguf_list *list, ct_gguf_text *text); // of strings; false: that was all
int64_t ct__gguf_list_int(const ct_gguf_list *list, uint64_t i);
double ct__gguf_list_real(const ct_gguf_list *list, uint64_t i);
const char *ct__gguf_type_name(ct_gguf_type type); // "u32"

#endif
