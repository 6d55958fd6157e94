// Parameter sets in safetensors files.
#ifndef COTAN_NN_STORE_H
#define COTAN_NN_STORE_H

#include "io/safetensors.h"

// The contents of a file, collected from parameter sets and other tensors.
typedef struct ct_store {
    ct_st_out *out; // (n)
    size_t n, cap;
    ct_arena arena; // names and shapes
} ct_store;
// Adds every variable of the set as prefix + name. The values are host copies that exist until the caller's
// scope ends.
bool ct__store_add(ct_store *store, const ct_params *params, const char *prefix, ct_err *err,
                   ct_loc here);
// Adds the elements at `data`, which the caller keeps; prefix and name are copied.
bool ct__store_put(ct_store *store, const char *prefix, const char *name, ct_dtype dtype,
                   ct_ints dims, const void *data, ct_err *err);
void ct__store_free(ct_store *store);

typedef struct ct_store_rules {
    const char *path; // of the file, for messages
    // names that the file may have besides those of the set; NULL: none
    bool (*ignored)(const char *name, void *user);
    void *user;
} ct_store_rules;
// True if the file has all tensors of the set, and no others; otherwise err names one.
bool ct__store_check(const ct_params *params, const ct_st *file, const ct_store_rules *rules,
                     ct_err *err);
// Loads the variables. Nothing is assigned unless the whole file fits.
bool ct__store_load(ct_params *params, const ct_st *file, const ct_store_rules *rules, ct_err *err);

#endif
