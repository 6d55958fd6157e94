// Memory snapshots of devices: the live tensors, by the source lines that made them.
//
//     ct_memory_snapshot *before = ct_memory_snapshot_take();
//     for (int step = 0; step < 10; step++) train(step);
//     ct_memory_snapshot *after = ct_memory_snapshot_take(), *grown = ct_memory_snapshot_diff(before, after);
//     fputs(ct_memory_table(grown), stderr); // what a loop leaks, largest first
#ifndef COTAN_MEMORY_H
#define COTAN_MEMORY_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

// Tensors with the same op, type and pair of lines.
typedef struct ct_memory_row {
    ct_loc here;      // line that recorded them; without a file if unknown
    ct_loc used_at;   // line that kept or read them, or at which the plan of their scope ran
    const char *op;   // the op, "variable", or "" if unknown
    const char *name; // name of one of them if they have names; else ""
    const char *type; // "(64, 784) f32"
    uint64_t bytes, count;
} ct_memory_row;

typedef struct ct_memory_snapshot {
    const ct_memory_row *rows; // (n_rows) most bytes first
    size_t n_rows;
    uint64_t values; // bytes of all rows
    // Bytes of plans: temporaries, constants, packed operands.
    uint64_t arenas, constants, workspaces;
} ct_memory_snapshot;

// Takes a snapshot of all devices of the process, in all threads and contexts. Tensors that are
// only recorded hold no memory yet; adopted memory belongs to its owner and is not counted. NULL:
// out of memory; see ct_error_text.
CT_API ct_memory_snapshot *ct_memory_snapshot_take(void);
// Returns the rows that hold more in `after` than in `before`, with the differences of bytes and
// tensors. What grows from step to step is a leak, or state that the first step creates: compare
// two steps after the first. It does not need `before` and `after` any longer. NULL: as
// above.
CT_API ct_memory_snapshot *ct_memory_snapshot_diff(const ct_memory_snapshot *before,
                                                   const ct_memory_snapshot *after);
// Returns a table for people: at most 20 rows, and a line with the sum of the others; valid until the snapshot is freed. "": out of
// memory, or no snapshot (NULL).
CT_API const char *ct_memory_table(ct_memory_snapshot *snapshot);
CT_API void ct_memory_snapshot_free(ct_memory_snapshot *snapshot); // NULL is ignored

#ifdef __cplusplus
}
#endif

#endif
