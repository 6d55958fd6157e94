// What the files of fuse and schedule share. Start reading at lower.c, then fuse.c, schedule.c.
// Each calls only those before it: sizes.c, repeats.c, sched.c, emit.c, done.c, nest.c, again.c, loop.c, then the two
// passes.
#ifndef COTAN_COMPILE_SCHED_H
#define COTAN_COMPILE_SCHED_H

#include "compile/schedule/schedule.h"
#include "kinds/emit.h"

// A size: coef times dynamic sizes.
enum { CT_SIZE_SYMS = 8 };
typedef struct ct_extent {
    int64_t coef;
    int n;
    int sym[CT_SIZE_SYMS];
} ct_extent;

// One value (output of a node) of the graph.
typedef struct ct_sval {
    uint32_t buf;          // where it lies; UINT32_MAX: not placed (yet)
    size_t offset;         // in bytes
    int32_t group;         // that computes and stores it, or -1: leaf, or inlined where it is used
    int32_t root;          // that its buffer belongs to, or -1
    bool stored;           // a group computes it and gives it a buffer
    uint32_t readers;      // groups that read it and have not run, while they are put in order
    uint32_t last_readers; // their numbers, all in one xor: of one, which it is
    ct_extent *size;       // (rank) where it has dynamic axes, else NULL
} ct_sval;

// What a kernel computes: a reduction's result, or an elementwise or moved value; or both stores.
typedef struct ct_unit {
    ct_val v;
    bool reduce;
    bool store;  // it has a buffer
    ct_val axes; // loops go over the axes of this value, of as many elements in the same order
    int8_t row[CT_MAX_RANK]; // of each such axis: its row axis, or -1: runs inside of the row
    int level;               // reductions that must be ready before
    bool across; // a sum over the group's rows: each row adds its part, row[] are all -1
    bool late;   // computed behind the sums over rows, whose axes it has
} ct_unit;

enum { CT_MOST_UNITS = 200 }; // of a group that does not gather

// One launch, or two where a long reduction is split; or a template's launches. Its row space (the
// axes that all its reductions keep) is spread over threads; reductions and whole rows are loops
// inside. Without reductions there are no row axes: all axes run inside, spread by chunks.
typedef struct ct_group {
    int32_t id;
    ct_node *only;  // a template's node, else NULL; units then are computed behind it
    ct_unit *units; // (n_units) in graph order
    size_t n_units, units_cap;
    ct_unit *kept; // (n_kept) of a row: values without a buffer that cost much
    int n_kept;
    int n_rows;
    struct {
        ct_val v; // whose axis `axis` has the row axis' size
        int axis;
    } rows[CT_MAX_RANK];
    bool has_reduce;
    bool has_across;
    bool dead;    // merged into another
    bool sealed;  // takes no other units
    bool gathers; // single numbers of many others
    bool torn;    // takes no reductions: its loops have to be cut
    int order;    // among the launches
} ct_group;

typedef struct ct_again ct_again;
struct ct_sched {
    const ct_graph *graph;
    ct_program *program;
    ct_err *err;
    ct_arena arena;     // scratch
    ct_sval **vals;     // (graph->n) of each node its outputs
    uint32_t *leaf_buf; // (n_leaves) by leaf number
    uint32_t scalars_buf;
    bool fuse;
    bool conflict;   // the kernel just written would overwrite a variable before it is read
    uint32_t *dying; // (n_dying) buffers of values that nobody reads behind the group being emitted
    size_t n_dying, dying_cap;
    ct_group **groups; // (n_groups)
    size_t n_groups, groups_cap;
    ct_again *again;    // groups whose kernels are written; NULL: none yet
    int64_t *sym_value; // (n_syms) of the dynamic sizes that kernels may have as arguments
    int32_t *sym_atom;  // (n_syms) which atom of the plan's symbols each is
    size_t n_syms, sym_value_cap, sym_atom_cap;
    uint32_t *stamp; // (graph->n) scratch of walks
    uint32_t stamp_now;
    ct_node **stack; // scratch of walks
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
    size_t bytes; // into the buffer, from where `offset` counts elements of `dtype`
    ct_dtype dtype;
    uint32_t
        behind; // which of a template's elements it belongs to, that are stored once each; 0: none
} ct_seen;

// A value of a row's elements that several loops of the row want: kept in scratch memory from the first
// one on.
enum { CT_MOST_KEPT = 8 };
typedef struct ct_kept {
    const ct_unit *unit;
    int number, buf;      // among the group's; scratch memory, -1: none, it is only counted
    int stage;            // the first loop that wanted it; 0: none yet
    bool wanted;          // by a second one
    bool filling, filled; // in the loop that is open, by one that has ended
} ct_kept;

// A kernel being written: what kinds see of it, and what stands behind index variables and values.
typedef struct ct_draft {
    ct_emit emit;
    ct_sched *sched;
    ct_bind *binds; // (n_binds) index variable -> KIR value
    size_t n_binds, binds_cap;
    ct_memo *memo; // (n_memo) values made in loops that are still open
    size_t n_memo, memo_cap;
    size_t *marks; // (n_marks) length of the memo at each open loop
    size_t n_marks, marks_cap;
    ct_arg *args;       // (n_args) a kernel parameter each
    int *arg_ids;       // (n_args) KIR buffer
    int64_t *arg_bases; // (n_args) the element of the value that it begins at
    ct_dtype *arg_types;
    size_t n_args, args_cap, arg_ids_cap, arg_bases_cap, arg_types_cap;
    int *syms; // (n_syms) dynamic size behind each i64 argument
    ct_kval *sym_values;
    size_t n_syms, syms_cap, sym_values_cap;
    ct_seen *seen; // (n_seen) every access, for the choice of loops
    size_t n_seen, seen_cap;
    uint32_t behind, n_behind;  // for `seen`
    int32_t group;              // whose values are computed here, not loaded; -1: none
    int depth;                  // of nested inlining
    size_t guarded;             // how often a value was used that hangs on a condition
    ct_kept kept[CT_MOST_KEPT]; // (n_kept)
    int n_kept, stage;          // loop of a row, from 1 on
} ct_draft;

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

// repeats.c: elements over the axes of the mask, 64 along one of a dynamic size; true if each element of the operand is
// wanted again and again, in loops that do not keep it
int64_t ct__guess(const ct_type *t, uint32_t mask);
bool ct__repeats_operand(const ct_node *node, int operand);

// sched.c: buffers, places of leaves, walks
uint32_t ct__sched_buf(ct_sched *s, ct_buf buf);
bool ct__sched_place_leaf(ct_sched *s, ct_node *node);
// Calls visit for every node that computing `v` in group `group` involves and that is computed
// there (not loaded), operands after users, each once; and what is loaded, leaves too. False: visit said so.
typedef bool (*ct_visit)(void *env, ct_val v, bool loaded);
bool ct__sched_walk(ct_sched *s, int32_t group, const ct_val *from, size_t n, ct_visit visit,
                    void *env);

// done.c: does nobody read the buffer behind the group being emitted?
bool ct__sched_dies(const ct_sched *s, uint32_t buf);

// emit.c
bool ct__emit_restart(ct_emit *e); // an empty kernel again
void ct__emit_free(ct_emit *e);
ct_ix ct__emit_sized(ct_emit *e, ct_extent size);
// A loop whose variable exists already (so that equal indices of several loops are equal numbers).
void ct__emit_open(ct_emit *e, ct_kbind bind, ct_ix extent, const char *name, ct_ix var);
void ct__emit_bind_to(ct_emit *e, ct_ix var, ct_kval value);
ct_ix ct__emit_offset(ct_emit *e, ct_val v, const ct_ix *at); // of an element in its buffer
// The index of a value's element where another one, of as many elements in the same order, has it.
void ct__emit_index_as(ct_emit *e, ct_val v, const ct_ix *at, ct_val other, ct_ix *own);
void ct__emit_remember(ct_emit *e, ct_val v, const ct_ix *at, ct_kval value);
bool ct__emit_recalls(const ct_emit *e, ct_val v, const ct_ix *at);
ct_kval ct__emit_load_at(ct_emit *e, uint32_t buf, size_t bytes, ct_dtype dtype, ct_ix offset);
void ct__emit_store_at(ct_emit *e, uint32_t buf, size_t bytes, ct_dtype dtype, ct_ix offset,
                       ct_kval value);

// cuts.c: how the loop over an axis of an elementwise kernel is cut.
enum { CT_MOST_RANGES = 32 };
typedef struct ct_cut {
    int n;                             // ranges with loops of their own; 0: one loop
    int64_t start[CT_MOST_RANGES + 1]; // of each; then the axis' size
    int64_t elements; // that one iteration of the first computes, one behind the other
} ct_cut;
// How often loops run whose extents are no numbers, once their outer loop has begun.
typedef struct ct_shares {
    int n;
    ct_kval loop[4 * CT_MAX_RANK];
    double times[4 * CT_MAX_RANK];
} ct_shares;
void ct__share(ct_shares *shares, const ct_kir *k, double times); // of the loop just opened
// The work of the kernel, in about a cycle of a core. Where there is no memory the emit has the error.
double ct__work(ct_emit *e, const ct_shares *shares);
// What the conditions and quotients of a kernel written on trial, in which `var` goes over an axis of
// `size` elements, ask for: ranges in which conditions do not change, and cells of as many elements
// as quotients divide by, or of all of a short last axis.
void ct__find_cuts(ct_emit *e, ct_ix var, int64_t size, bool last, ct_cut *ranges, ct_cut *cells);

// nest.c
bool ct__emit_group(ct_sched *s, ct_group *g);

// again.c
// Launches of a group that is as an earlier one; done: there was one. False: the error is recorded.
bool ct__sched_again(ct_sched *s, ct_group *g, bool *done);
bool ct__sched_emit_first(ct_sched *s, ct_group *g); // and remembers them for groups to come
void ct__sched_again_free(ct_again *all);

// schedule.c: the kernels of a group
bool ct__sched_emit(ct_sched *s, ct_group *g);

// loop.c
bool ct__sched_loop(ct_sched *s, ct_node *node);
bool ct__sched_call(ct_sched *s, ct_node *node);

#endif
