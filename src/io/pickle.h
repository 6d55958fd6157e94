// Reads pickles that torch.save writes as data: plain values, and tensors as storage, offset, sizes
// and strides. Python's cotan.load checks with it that a pickle is nothing else.
//
// No Python code is called or imported. A pickle may name only a fixed list of globals (storages,
// dtypes, the functions that rebuild tensors, types of containers), each of which is a case of this
// reader; every other global is an error.
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
    CT_PICKLE_DICT, // also OrderedDict and Counter
    CT_PICKLE_SET,
    CT_PICKLE_CALL, // another value that a call of `global` makes: bytes, a complex number, a device
    CT_PICKLE_GLOBAL,
    CT_PICKLE_STORAGE,
    CT_PICKLE_TENSOR, // also a Parameter
} ct_pickle_kind;

typedef struct ct_pickle_value ct_pickle_value;

typedef struct ct_pickle_type {
    const char *name; // "float32"
    ct_dtype dtype;
} ct_pickle_type;

typedef struct ct_pickle_storage {
    const char *key; // decimal digits
    const ct_pickle_type *type;
    int64_t elements;
    const struct ct_pickle_storage *next;
} ct_pickle_storage;

typedef struct ct_pickle_tensor {
    const ct_pickle_storage *storage;
    const ct_pickle_type *type;
    int64_t offset, elements; // in elements; the product of `dim`
    bool negated;             // or conjugated: what is stored are not the values
    size_t rank;
    const int64_t *dim, *stride; // from 0 to 2^60, inside of the storage
} ct_pickle_tensor;

struct ct_pickle_value {
    uint8_t kind;    // a ct_pickle_kind
    bool visited;    // for walks over dicts
    bool has_global; // a tuple with a global or a storage in it, which can only be arguments
    const struct ct_pickle_global *global; // that made it, or that it is
    union {
        int64_t integer; // an int or a bool
        double real;
        struct { // a string in UTF-8 (with surrogates), pointing into the pickle's bytes
            const char *s;
            size_t n;
        };
        struct { // a tuple, list or dict; in a dict, each key is followed by its value
            ct_pickle_value **items;
            uint32_t count, cap;
        };
        const ct_pickle_storage *storage;
        const ct_pickle_tensor *tensor;
    };
};

typedef struct ct_pickle {
    const char *label; // owned by the caller: messages begin with "LABEL, byte N: "
    bool strict;       // protocol 2 only, and no attributes but the _metadata of state dicts
    uint64_t budget;   // bytes that copies and tensors may take in all
    // Returns the number of bytes of a storage's record; < 0: there is none. NULL: not known yet.
    int64_t (*record_bytes)(void *user, const char *key);
    void *user;
    const ct_pickle_storage
        *storages;  // all that were named, the last one first; a key may come twice
    ct_arena arena; // memory of the values
} ct_pickle;

// The budget of a file of n bytes.
#define CT_PICKLE_BUDGET(n) (16 * (uint64_t)(n) + (1 << 26))
// Reads the pickle at offset *at of the n bytes, which the caller keeps as long as the value, and
// sets *at to the pickle's end. Containers may contain themselves. Besides the budget, a byte of a
// pickle takes at most about 50 bytes of memory.
bool ct__pickle_read(ct_pickle *pickle, const void *bytes, size_t n, size_t *at,
                     ct_pickle_value **value, ct_err *err);

#endif
