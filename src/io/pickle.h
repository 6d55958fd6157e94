// Pickles as torch.save writes them, read as data: plain values, and tensors by what they are made of.
//
// Nothing is ever called or looked up. A pickle may name a closed list of things (storages, dtypes, the
// functions that rebuild tensors), each of which is a case of this reader; all else is refused by its name.
#ifndef COTAN_IO_PICKLE_H
#define COTAN_IO_PICKLE_H

#include "base/error.h"
#include "base/mem.h"

typedef enum ct_pickle_kind {
    CT_PICKLE_NONE,
    CT_PICKLE_BOOL,
    CT_PICKLE_INT,
    CT_PICKLE_BIG, // an integer of more than 64 bits: text, its bytes, the lowest first
    CT_PICKLE_REAL,
    CT_PICKLE_TEXT,
    CT_PICKLE_TUPLE, // and torch.Size
    CT_PICKLE_LIST,
    CT_PICKLE_DICT, // and OrderedDict
    CT_PICKLE_GLOBAL,
    CT_PICKLE_STORAGE,
    CT_PICKLE_TENSOR,
} ct_pickle_kind;

typedef struct ct_pickle_value ct_pickle_value;

typedef struct ct_pickle_type {
    const char *name; // "float32"
    ct_dtype dtype;   // CT_DEFAULT: bytes, of which each tensor says what they are
} ct_pickle_type;

typedef struct ct_pickle_storage {
    const char *key;
    const ct_pickle_type *type;
    int64_t elements;
    const struct ct_pickle_storage *next;
} ct_pickle_storage;

typedef struct ct_pickle_tensor {
    const ct_pickle_storage *storage;
    const ct_pickle_type *type;
    int64_t offset; // elements
    size_t rank;
    const int64_t *dim, *stride; // none negative
} ct_pickle_tensor;

struct ct_pickle_value {
    uint8_t kind; // ct_pickle_kind
    bool seen;    // for who walks over dicts
    union {
        int64_t whole; // of an int, or a bool
        double real;
        struct { // of a text, UTF-8, in the pickle's bytes
            const char *s;
            size_t n;
        };
        struct { // of a tuple, list or dict; a dict has a value behind each key
            ct_pickle_value **items;
            size_t count, cap;
        };
        const struct ct_pickle_global *global;
        const ct_pickle_storage *storage;
        const ct_pickle_tensor *tensor;
    };
};

typedef struct ct_pickle {
    const char *label, *part;          // the caller's: messages begin with "LABEL: PART: "
    const ct_pickle_storage *storages; // all that were named, the last first; a key may come again
    ct_arena arena;                    // of values
} ct_pickle;

// Longer ones are refused: what a byte asks for takes at most some 50 bytes of memory, storages and tensors,
// of which there are at most 524,288, some 700 each.
enum { CT_PICKLE_MOST = 1 << 25 };
// Reads one pickle, which the n bytes begin with; the bytes stay the caller's and are kept as long as the
// value. *used: how many of them it takes. Containers may hold themselves.
bool ct__pickle_read(ct_pickle *pickle, const void *bytes, size_t n, ct_pickle_value **value,
                     size_t *used, ct_err *err);

#endif
