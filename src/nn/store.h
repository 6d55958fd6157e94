// Parameter sets in safetensors files.
#ifndef COTAN_NN_STORE_H
#define COTAN_NN_STORE_H

#include "io/safetensors.h"

// What a file is to hold, gathered from parameter sets and other tensors.
typedef struct ct_store {
    ct_st_out *out; // (n)
    size_t n, cap;
    ct_arena arena; // names and shapes
} ct_store;
// Adds every variable of the set as prefix + name. The values are host copies that live until the
// scope that the caller has open ends.
bool ct__store_add(ct_store *store, const ct_params *params, const char *prefix, ct_err *err,
                   ct_loc here);
// Adds n elements at `data`, which the caller keeps; prefix and name are copied.
bool ct__store_put(ct_store *store, const char *prefix, const char *name, ct_dtype dtype,
                   ct_ints dims, const void *data, ct_err *err);
void ct__store_free(ct_store *store);

// How names in a file relate to those of a set.
typedef struct ct_store_rules {
    const char *path;   // of the file, for messages
    const char *prefix; // before each name that belongs to the set; NULL: none
    bool prefix_optional;
    bool (*ignored)(const char *name, void *user); // names (without prefix) that may be there too;
                                                   // NULL: none
    bool others;                                   // names without the prefix may be there too
    bool (*absent)(const char *name, void *user);  // variables that the file need not have, which
                                                   // keep their value; NULL: none
    void *user;
} ct_store_rules;
// Has the file what the set wants, and nothing else? Else a sentence in err.
bool ct__store_fits(const ct_params *params, const ct_st *file, const ct_store_rules *rules,
                    ct_err *err);
// Gives the variables their values. Nothing is assigned unless the whole file fits.
bool ct__store_load(ct_params *params, const ct_st *file, const ct_store_rules *rules, ct_err *err);
// The sentence for a tensor that the file has not; always false.
bool ct__store_missing(const ct_st *file, const char *path, const char *name, ct_err *err);
const ct_st_entry *ct__store_find(const ct_st *file, const ct_store_rules *rules, const char *name);

#endif
