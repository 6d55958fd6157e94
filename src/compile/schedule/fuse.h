// Fusion: what fuse.c, which makes the groups, and fuse_finish.c, which finishes them, share.
#ifndef COTAN_COMPILE_FUSE_H
#define COTAN_COMPILE_FUSE_H

#include "compile/schedule/sched.h"

enum {
    CT_FUSE_MAX_OPS = 160,             // ops inlined into one value
    CT_FUSE_MAX_LOADS = 48,            // of these, loads
    CT_FUSE_MAX_DEPTH = 96,            // of nested inlining in a unit
    CT_FUSE_MAX_GROUP_DEPTH = 256,     // of nested inlining through the units of a group
    CT_FUSE_MAX_READS = 160,           // loads of a group (a kernel takes 1,280 buffers)
    CT_FUSE_MIN_REMAT_BYTES = 1 << 16, // smallest value that is recomputed
};

typedef struct ct_fuse_cost { // of a node
    uint32_t users;
    int ops, loads, depth;
    bool unit, expensive;
    bool expensive_per_lane; // expensive, and different for each element along the last axis
    bool runs_early;         // has a kernel of its own, which runs as early as possible
    // moved so that a step along the last axis is a quotient of offsets, and no step in memory
    bool torn;
    // stored, since a reduction's index over several axes would be divided to index it
    bool avoids_division;
    // a loop of a reduction reads it, perhaps through elementwise and moved values
    bool feeds_reduction;
    size_t newest_edge; // the newest edge to a reader of it, plus one; 0: none
} ct_fuse_cost;

// An element of another unit, a template's result or a leaf that a unit reads.
typedef struct ct_fuse_read {
    ct_val v;
    const ct_ix *at;
    bool aligned; // at the same position as the unit's own element, in the order of both
} ct_fuse_read;

typedef struct ct_fuser {
    ct_sched *s;
    ct_fuse_cost *costs; // (graph->n)
    ct_emit *e;          // expressions of the current unit
    ct_fuse_read *reads; // (n_reads) of the current unit
    size_t n_reads, reads_cap;
    ct_ix axis[CT_MAX_RANK];   // variables of the current unit's axes; of a reduction: of its
    bool reduced[CT_MAX_RANK]; // operand's axes
    int rank;
    struct edge {
        ct_node *from;
        int32_t unit; // reader, by node index
        size_t older; // the next older edge of the same node, plus one; 0: none
        bool aligned;
    } * edges; // (n_edges) all reads of units, which tell what must be stored
    size_t n_edges, edges_cap;
    struct deps {
        int32_t *v; // (n) groups that it reads
        size_t n, cap;
        int32_t *readers; // (n_readers) groups that read it
        size_t n_readers, readers_cap;
        uint64_t *ancestors; // (words) a bit for each group that must run before
        size_t words, words_cap;
        int depth;
        size_t reads; // upper bound of its buffers
    } * deps;         // (n_groups)
    size_t deps_cap;
    int32_t *worklist;
    size_t worklist_cap;
} ct_fuser;

// fuse.c
bool ct__fuse_add_edge(ct_fuser *f, ct_node *from, int32_t unit, bool aligned);
int64_t ct__fuse_bytes(ct_val v);
const ct_unit *ct__fuse_find_unit(const ct_group *g, ct_val v);
bool ct__fuse_is_loaded(const ct_fuser *f, const ct_node *node);
bool ct__fuse_no_memory(ct_sched *s);

// fuse_finish.c
bool ct__fuse_finish_groups(ct_fuser *f);

#endif
