// What the memory of devices is taken by: the tensors that are alive, by the lines that made them.
//
//     ct_memory_snapshot *before = ct_memory_snapshot_take();
//     for (int step = 0; step < 10; step++) train(step);
//     ct_memory_snapshot *after = ct_memory_snapshot_take(), *grown = ct_memory_grown(before, after);
//     fputs(ct_memory_table(grown), stderr); // what a loop leaves behind, largest first
#ifndef COTAN_MEMORY_H
#define COTAN_MEMORY_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

// Tensors of one op, type and pair of lines.
typedef struct ct_memory_row {
    ct_loc here;      // that recorded them; without a file where it is unknown
    ct_loc wanted;    // that kept or read them, or where the plan of their scope ran
    const char *what; // the op, "variable", or "" where nothing is known
    const char *name; // of one of them, where they have names; else ""
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

// Of all devices of the process, in all threads and contexts, at this moment. What is only recorded holds nothing yet;
// memory that was adopted is its owner's and not counted. NULL: no memory; see ct_error_text.
CT_API ct_memory_snapshot *ct_memory_snapshot_take(void);
// The rows that hold more in `after` than in `before`, with the bytes and tensors that came. What grows from step to step is a
// leak, or state that the first step makes: compare two steps that are not the first. NULL: as above.
CT_API ct_memory_snapshot *ct_memory_grown(const ct_memory_snapshot *before,
                                           const ct_memory_snapshot *after);
// For people, at most 20 rows; valid until the snapshot is freed. "": no memory, or no snapshot (NULL).
CT_API const char *ct_memory_table(ct_memory_snapshot *snapshot);
CT_API void ct_memory_snapshot_free(ct_memory_snapshot *snapshot); // NULL: nothing

#ifdef __cplusplus
}
#endif

#endif
