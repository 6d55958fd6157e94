// Reads pickles that torch.save writes as data: plain values, and tensors as storage, offset, sizes
// and strides.
//
// No Python code is called or imported. A pickle may name only a fixed list of globals (storages,
// dtypes, the functions that rebuild tensors), each of which is a case of this reader; every other
// global is an error.
#ifndef COTAN_IO_PICKLE_H
#define COTAN_IO_PICKLE_H

#include "base/error.h"
#include "base/mem.h"

typedef enum ct_pickle_kind {
    CT_PICKLE_NONE,
    CT_PICKLE_BOOL,
    CT_PICKLE_INT,
    CT_PICKLE_BIGINT, // an integer of more than 64 bits: its bytes, little-endian, in `s` and `n`
    CT_PICKLE_REAL,
    CT_PICKLE_TEXT,
    CT_PICKLE_TUPLE, // also torch.Size
    CT_PICKLE_LIST,
    CT_PICKLE_DICT, // also OrderedDict
    CT_PICKLE_GLOBAL,
    CT_PICKLE_STORAGE,
    CT_PICKLE_TENSOR,
} ct_pickle_kind;

typedef struct ct_pickle_value ct_pickle_value;

typedef struct ct_pickle_type {
    const char *name; // "float32"
    ct_dtype dtype;   // CT_DEFAULT: untyped bytes; each tensor has the dtype
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
    int64_t offset; // in elements
    size_t rank;
    const int64_t *dim, *stride; // not negative
} ct_pickle_tensor;

struct ct_pickle_value {
    uint8_t kind; // a ct_pickle_kind
    bool visited; // for walks over dicts
    union {
        int64_t integer; // an int or a bool
        double real;
        struct { // a string in UTF-8, pointing into the pickle's bytes
            const char *s;
            size_t n;
        };
        struct { // a tuple, list or dict; in a dict, each key is followed by its value
            ct_pickle_value **items;
            size_t count, cap;
        };
        const struct ct_pickle_global *global;
        const ct_pickle_storage *storage;
        const ct_pickle_tensor *tensor;
    };
};

typedef struct ct_pickle {
    const char *label, *part; // owned by the caller: messages begin with "LABEL: PART: "
    const ct_pickle_storage
        *storages;  // all that were named, the last one first; a key may come twice
    ct_arena arena; // memory of the values
} ct_pickle;

// Larger pickles are an error: a byte of a pickle takes at most about 50 bytes of memory, except
// storages and tensors, of which there are at most 524,288, about 700 bytes each.
enum { CT_PICKLE_MAX_BYTES = 1 << 25 };
// Reads the pickle at the start of the n bytes, which the caller keeps as long as the value. *used
// is the number of bytes that it takes. Containers may contain themselves.
bool ct__pickle_read(ct_pickle *pickle, const void *bytes, size_t n, ct_pickle_value **value,
                     size_t *used, ct_err *err);

#endif
