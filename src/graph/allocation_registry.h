// Allocation registry: the tensors that use device memory, with a description of each, for memory snapshots.
#ifndef COTAN_GRAPH_ALLOCATION_REGISTRY_H
#define COTAN_GRAPH_ALLOCATION_REGISTRY_H

#include "graph/graph.h"

typedef struct ct_alloc_info {
    ct_loc here, wanted; // lines that recorded it, and that requested its value
    const char *op;      // static string; NULL: a variable
    ct_type type;
    const char *name; // of a variable or metric, "" if it has none
} ct_alloc_info;

ct_storage *ct__registry_add(ct_storage what); // registers a storage; NULL: out of memory
void ct__registry_remove(ct_storage *storage);
// Describes such a storage, once; sizes and name are copied. If out of memory, it stays without a
// description.
void ct__registry_describe(ct_storage *storage, ct_alloc_info what);
// Calls `visit` for all registered storages, of all threads and devices; `note` is NULL if there is no
// description. It must not allocate or free storages. False: a visit returned false.
typedef bool (*ct_registry_fn)(const ct_storage *storage, const ct_alloc_info *note, void *user);
bool ct__registry_each(ct_registry_fn visit, void *user);

#endif
