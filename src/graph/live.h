// Tensors that hold memory of a device, each with what is known of it: what a snapshot of the memory lists.
#ifndef COTAN_GRAPH_LIVE_H
#define COTAN_GRAPH_LIVE_H

#include "graph/graph.h"

typedef struct ct_live_note {
    ct_loc here, wanted; // lines that recorded it, and that asked for its value
    const char *op;      // stays; NULL: a variable
    ct_type type;
    const char *name; // of a variable or metric, "" without one
} ct_live_note;

ct_storage *ct__live_new(ct_storage what); // listed. NULL: no memory
void ct__live_free(ct_storage *storage);
// What such a storage holds, said once; sizes and name are copied. Without memory for that nothing is known of it.
void ct__live_note(ct_storage *storage, ct_live_note what);
// Calls `visit` for all that are listed, by each thread and on each device; `note`: NULL where nothing is known. It must not
// make or free any. False: a visit was false.
typedef bool (*ct_live_fn)(const ct_storage *storage, const ct_live_note *note, void *user);
bool ct__live_each(ct_live_fn visit, void *user);

#endif
