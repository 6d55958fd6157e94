// Tensors that hold memory of a device, each with what is known of it: what a snapshot of the memory lists.
#ifndef COTAN_GRAPH_LIVE_H
#define COTAN_GRAPH_LIVE_H

#include "graph/graph.h"

typedef struct ct_alloc_info {
    ct_loc here, wanted; // lines that recorded it, and that asked for its value
    const char *op;      // stays; NULL: a variable
    ct_type type;
    const char *name; // of a variable or metric, "" without one
} ct_alloc_info;

ct_storage *ct__registry_add(ct_storage what); // listed. NULL: no memory
void ct__registry_remove(ct_storage *storage);
// What such a storage holds, said once; sizes and name are copied. Without memory for that nothing is known of it.
void ct__registry_describe(ct_storage *storage, ct_alloc_info what);
// Calls `visit` for all that are listed, by each thread and on each device; `note`: NULL where nothing is known. It must not
// make or free any. False: a visit was false.
typedef bool (*ct_registry_fn)(const ct_storage *storage, const ct_alloc_info *note, void *user);
bool ct__registry_each(ct_registry_fn visit, void *user);

#endif
