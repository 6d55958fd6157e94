// Declarations that the passes fuse and schedule share. Start reading at lower.c, then fuse.c, schedule.c.
//
// Each file calls only those before it: sizes.c, repeats.c, sched.c, emit.c, program.c, split_points.c,
// nest.c with nest_pointwise.c, dedup.c, loop.c, then the two passes, fuse.c with fuse_finish.c and schedule.c.
#ifndef COTAN_COMPILE_SCHED_H
#define COTAN_COMPILE_SCHED_H

#include "compile/schedule/schedule.h"
#include "kinds/emit.h"

// A size: coef times the product of n dynamic sizes.
enum { CT_SIZE_SYMS = 8 };
typedef struct ct_extent {
    int64_t coef;
    int n;
    int sym[CT_SIZE_SYMS];
} ct_extent;

// The state of one value (output of a node) of the graph.
typedef struct ct_sval {
    uint32_t buf;  // the buffer that holds it; UINT32_MAX: none (yet)
    size_t offset; // in bytes
    // the group that computes and stores it, or -1: a leaf, or inlined into its users
    int32_t group;
    int32_t root; // the root whose buffer it has, or -1
    bool stored;  // a group computes it and gives it a buffer
    // number of groups that read it and have not run yet, while groups are ordered
    uint32_t readers;
    uint32_t last_readers; // XOR of the numbers of those groups: the number itself once one is left
    ct_extent *size;       // (rank) where it has dynamic axes, else NULL
} ct_sval;

// A value that a kernel computes: a reduction's result, or an elementwise or moved value. Both may be
// stored.
typedef struct ct_unit {
    ct_val v;
    bool reduce;
    bool store; // it has a buffer
    // the value whose axes the loops run over: it has as many elements in the same order
    ct_val axes;
    // (rank of axes) the row axis of each axis, or -1: the axis is a loop inside of the row
    int8_t row[CT_MAX_RANK];
    int level;   // number of reduction levels that must be computed before it
    bool across; // a reduction over the group's rows: each row adds its part; row[] are all -1
    bool late;   // computed after the reductions over rows, whose axes it has
} ct_unit;

enum { CT_MOST_UNITS = 200 }; // of a group that does not gather scalars

// One launch, or two where a long reduction is split; or the launches of a template.
//
// The row space (the axes that all reductions of the group keep) is spread over threads; reductions and
// whole rows are loops inside of a row. A group without reductions has no row axes: all its axes are loops
// inside, which are spread over threads in chunks.
typedef struct ct_group {
    int32_t id;
    ct_node *only;  // a template's node, else NULL; its units are epilogues of the template
    ct_unit *units; // (n_units) in graph order
    size_t n_units, units_cap;
    ct_unit *kept; // (n_kept) expensive values of a row that have no buffer
    int n_kept;
    int n_rows;
    struct {
        ct_val v; // a value whose axis `axis` has the size of the row axis
        int axis;
    } rows[CT_MAX_RANK];
    bool has_reduce;
    bool has_across;
    bool dead;    // merged into another group
    bool sealed;  // no other units may join
    bool gathers; // computes single numbers from many others
    bool torn;    // no reduction may join, since its loops have to be split
    int order;    // its position among the launches
} ct_group;

typedef struct ct_again ct_again;
struct ct_sched {
    const ct_graph *graph;
    ct_program *program;
    ct_err *err;
    ct_arena arena;     // scratch
    ct_sval **vals;     // (graph->n) the outputs of each node
    uint32_t *leaf_buf; // (n_leaves) by leaf number
    uint32_t scalars_buf;
    bool fuse;
    bool conflict; // the last kernel would overwrite a variable before it is read
    // (n_dying) buffers of values that no group reads after the group being emitted
    uint32_t *dying;
    size_t n_dying, dying_cap;
    ct_group **groups; // (n_groups)
    size_t n_groups, groups_cap;
    ct_again *again;    // groups whose kernels are written; NULL: none yet
    int64_t *sym_value; // (n_syms) the dynamic sizes that kernels may take as arguments
    int32_t *sym_atom;  // (n_syms) the atom of the plan's symbols that each one is
    size_t n_syms, sym_value_cap, sym_atom_cap;
    uint32_t *stamp; // (graph->n) scratch of graph walks
    uint32_t stamp_now;
    ct_node **stack; // scratch of graph walks
    size_t stack_cap;
};

typedef struct ct_bind {
    ct_ix var;
    ct_kval value;
} ct_bind;
typedef struct ct_memo {
    ct_val v;
    ct_ix guard;
    const ct_ix *at;
    ct_kval value;
} ct_memo;
typedef struct ct_seen {
    ct_ix offset, guard;
    bool write;
    uint32_t buf;
    size_t bytes; // offset into the buffer, from which `offset` counts elements of `dtype`
    ct_dtype dtype;
    // number of the template's element whose epilogue makes the access (each is stored once); 0: none
    uint32_t epilogue;
} ct_seen;

// A value of a row's elements that several loops of the row use. The first of these loops stores it in
// scratch memory.
enum { CT_MOST_KEPT = 8 };
typedef struct ct_kept {
    const ct_unit *unit;
    // its number among the group's; its scratch memory, -1: none, its uses are only counted
    int number, buf;
    int stage;            // the first loop that used it; 0: none yet
    bool wanted;          // a second loop uses it
    bool filling, filled; // filled by the open loop; filled by a loop that has ended
} ct_kept;

// A kernel being written: the part that kinds see, and the KIR values and buffers of index variables and
// graph values.
typedef struct ct_kernel_builder {
    ct_emit emit;
    ct_sched *sched;
    ct_bind *binds; // (n_binds) index variable -> KIR value
    size_t n_binds, binds_cap;
    ct_memo *memo; // (n_memo) values computed in loops that are still open
    size_t n_memo, memo_cap;
    size_t *marks; // (n_marks) length of the memo when each open loop began
    size_t n_marks, marks_cap;
    ct_arg *args;       // (n_args) the kernel's parameters
    int *arg_ids;       // (n_args) the KIR buffer of each
    int64_t *arg_bases; // (n_args) the element of the value at which each begins
    ct_dtype *arg_types;
    size_t n_args, args_cap, arg_ids_cap, arg_bases_cap, arg_types_cap;
    int *syms; // (n_syms) the dynamic size that each i64 argument is
    ct_kval *sym_values;
    size_t n_syms, syms_cap, sym_values_cap;
    ct_seen *seen; // (n_seen) all accesses, from which loops are chosen
    size_t n_seen, seen_cap;
    uint32_t epilogue, n_epilogues; // number of the current epilogue (0: none), and of all so far
    // the group whose values are computed here instead of loaded; -1: none
    int32_t group;
    int depth;                  // of nested inlining
    size_t guarded;             // number of uses of a value under a condition
    ct_kept kept[CT_MOST_KEPT]; // (n_kept)
    int n_kept, stage;          // stage: number of the row's current loop, from 1 on
} ct_kernel_builder;

static inline bool ct__is_leaf(const ct_node *n) { return n->op->kind == &ct__kind_leaf; }
static inline bool ct__is_loop(const ct_node *n) { return n->op->kind == &ct__kind_loop; }
static inline bool ct__is_called(const ct_node *n) { return n->op->kind->scheduled == CT_CALLED; }
static inline bool ct__is_reduced(const ct_node *n) { return n->op->kind->scheduled == CT_REDUCED; }
static inline bool ct__is_pointwise(const ct_node *n) {
    return n->op->kind->scheduled == CT_POINTWISE;
}

static inline ct_sval *ct__sval(const ct_sched *s, ct_val v) {
    return &s->vals[v.node->index][v.out];
}

// sizes.c
bool ct__sched_sizes(ct_sched *s);
ct_extent ct__sched_size(ct_sched *s, ct_val v, int axis);
ct_ix ct__sched_attr(ct_sched *s, ct_ix_pool *pool, const int64_t *where); // for ct_map.attr

// repeats.c
//
// ct__guess returns the number of elements along the axes of the mask; a dynamic axis counts as 64.
// ct__repeats_operand is true if each element of the operand is read many times, in loops that do not
// keep it.
int64_t ct__guess(const ct_type *t, uint32_t mask);
bool ct__repeats_operand(const ct_node *node, int operand);

// sched.c: buffers, buffers of leaves, graph walks
uint32_t ct__sched_buf(ct_sched *s, ct_buf buf);
bool ct__sched_place_leaf(ct_sched *s, ct_node *node);
// Calls visit once for each node that is computed in group `group` (not loaded) when the values `from` are,
// users before operands, and for each value that is loaded, leaves among them. False: visit returned false.
typedef bool (*ct_visit)(void *env, ct_val v, bool loaded);
bool ct__sched_walk(ct_sched *s, int32_t group, const ct_val *from, size_t n, ct_visit visit,
                    void *env);

// done.c: true if no group reads the buffer after the group being emitted.
bool ct__sched_dies(const ct_sched *s, uint32_t buf);

// emit.c
bool ct__emit_restart(ct_emit *e); // resets it to an empty kernel
void ct__emit_free(ct_emit *e);
ct_ix ct__emit_sized(ct_emit *e, ct_extent size);
// Opens a loop whose variable exists already, so that equal indices of several loops are equal numbers.
void ct__emit_open(ct_emit *e, ct_kbind bind, ct_ix extent, const char *name, ct_ix var);
void ct__emit_bind_to(ct_emit *e, ct_ix var, ct_kval value);
// Returns the offset of an element in its buffer.
ct_ix ct__emit_offset(ct_emit *e, ct_val v, const ct_ix *at);
// Converts an index of `other` to the index of the element of `v` at the same position: both values have as
// many elements in the same order.
void ct__emit_index_as(ct_emit *e, ct_val v, const ct_ix *at, ct_val other, ct_ix *own);
void ct__emit_remember(ct_emit *e, ct_val v, const ct_ix *at, ct_kval value);
bool ct__emit_recalls(const ct_emit *e, ct_val v, const ct_ix *at);
ct_kval ct__emit_load_at(ct_emit *e, uint32_t buf, size_t bytes, ct_dtype dtype, ct_ix offset);
void ct__emit_store_at(ct_emit *e, uint32_t buf, size_t bytes, ct_dtype dtype, ct_ix offset,
                       ct_kval value);

// cuts.c: how the loop over an axis of an elementwise kernel is split.
enum { CT_MOST_RANGES = 32 };
typedef struct ct_cut {
    int n;                             // number of ranges with loops of their own; 0: one loop
    int64_t start[CT_MOST_RANGES + 1]; // the start of each; then the axis' size
    int64_t elements; // consecutive elements that one iteration of the first range computes
} ct_cut;
// Trip counts, for each run of the outer loop, of loops whose extents are no constants.
typedef struct ct_shares {
    int n;
    ct_kval loop[4 * CT_MAX_RANK];
    double times[4 * CT_MAX_RANK];
} ct_shares;
void ct__share(ct_shares *shares, const ct_kir *k, double times); // of the loop just opened
// Returns the estimated work of the kernel, in units of about one cycle of a core. Without memory the error
// is in the emit.
double ct__work(ct_emit *e, const ct_shares *shares);
// Finds the splits that a kernel written on trial asks for, in which `var` runs over an axis of `size`
// elements: ranges in which no condition changes, and cells of as many elements as its quotients divide by,
// or of all elements of a short last axis.
void ct__find_cuts(ct_emit *e, ct_ix var, int64_t size, bool last, ct_cut *ranges, ct_cut *cells);

// nest.c
bool ct__emit_group(ct_sched *s, ct_group *g);

// again.c
//
// Appends the launches of a group that equals an earlier one; done: there was one. False: the error is
// recorded.
bool ct__sched_again(ct_sched *s, ct_group *g, bool *done);
bool ct__sched_emit_first(ct_sched *s, ct_group *g); // and remembers the launches for later groups
void ct__sched_again_free(ct_again *all);

// schedule.c: emits the kernels of a group.
bool ct__sched_emit(ct_sched *s, ct_group *g);

// loop.c
bool ct__sched_loop(ct_sched *s, ct_node *node);
bool ct__sched_call(ct_sched *s, ct_node *node);

#endif
