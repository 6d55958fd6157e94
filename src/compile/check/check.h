// COTAN_CHECK: compares a plan with the reference, finds the first op that makes NaN, and finds accesses
// beyond the ends of buffers.
//
// The first two evaluate a plan's graph op by op on the plan's own device, each op as a program of its own
// whose operands and results are copied to the host. So each op is checked alone, on the operands that it
// had: errors do not accumulate along a graph, and the first wrong op is named, not the last.
#ifndef COTAN_COMPILE_CHECK_H
#define COTAN_COMPILE_CHECK_H

#include "compile/plan.h"

enum {
    CT_CHECK_REF = 1,
    CT_CHECK_NAN = 2,
    CT_CHECK_BOUNDS = 4,
    CT_CHECK_OPS = CT_CHECK_REF | CT_CHECK_NAN, // evaluate a plan op by op
};
// Reads the checks that COTAN_CHECK names. False, with a message: it names something else.
bool ct__check_parse_env(unsigned *what, ct_err *err);

// -------------------------------------------------------------------------- around a run (check.c)

// Saves what the plan will overwrite; REF: checks all ops, one by one. False: one differs.
bool ct__check_before(ct_ctx *ctx, ct_executor *engine, ct_plan *plan, size_t n_roots);
// Checks the plan's own results. False: they are wrong, and variables have their old values again.
bool ct__check_after(ct_executor *engine, ct_plan *plan);
void ct__check_done(ct_executor *engine); // frees what the two functions saved

// ----------------------------------------------------------------- ends of buffers (check_bounds.c)

// Runs commands of a plan, from `first` on, one at a time, and checks the guard bytes after each of their
// buffers. False: a kernel wrote there, or the device failed.
bool ct__check_bounds(ct_ctx *ctx, ct_executor *engine, const ct_plan *plan, size_t first,
                      size_t n);

// -------------------------------------------------------------------------- op by op (check_ops.c)

// The expanded graph, before any pass changed it. It lives in the plan's arena. NULL: out of memory.
ct_check_graph *ct__check_graph(ct_arena *arena, const ct_graph *graph);
void ct__check_resolve_sizes(ct_check_graph *graph, const struct ct_symbols *symbols);
void ct__check_graph_free(ct_executor *engine, ct_check_graph *graph);
// Returns the index of a root's value in the order of the ops.
uint32_t ct__check_value_index(const ct_check_graph *graph, size_t root);

typedef struct ct_check_event { // an op that made NaN or infinity, or an input that holds NaN
    ct_loc here;
    const char *op, *text;
} ct_check_event;
typedef struct ct_check_run {
    ct_ctx *ctx;
    ct_executor *engine;
    unsigned checks;
    size_t n_leaves, n_roots;
    void **saved_leaves; // (n_leaves) bytes of leaves that the plan overwrites, else NULL
    // (n_roots) bytes of the variable before; NULL: it had no value, or the root is no variable
    void **old_values;
    // Results: the bytes of each root, and the number of the event that made its first NaN or infinity
    // (from 1; 0: none).
    void **root_bytes;
    uint32_t *origin;
    ct_arena arena; // of events
    ct_check_event *events;
    size_t n_events, events_cap;
    const struct ct_check_loop *loop; // the innermost loop that runs
} ct_check_run;
bool ct__check_ops(ct_check_run *run, ct_plan *plan);
// Records the error `text`, which is freed, for a node. Returns false.
bool ct__check_report(ct_check_run *run, const ct_node *node, ct_text *text);

// -------------------------------------------------------------------------- values (check_value.c)

typedef struct ct_check_nonfinite { // of a float value
    // number of NaN and infinite elements; index of the first NaN, else of the first infinity
    int64_t nan, infinite, at;
} ct_check_nonfinite;
ct_check_nonfinite ct__check_count_nonfinite(const ct_type *type, const void *bytes);
static inline bool ct__has_nonfinite(ct_check_nonfinite b) { return b.nan || b.infinite; }

// How an op's result differs from the reference: the number of elements, the index of the first, and the
// tolerance there.
typedef struct ct_check_difference {
    int64_t count, at;
    double allowed;
} ct_check_difference;
// `most` is NULL or the sums of the magnitudes that each element adds up, which rounding errors are
// relative to.
ct_check_difference ct__check_compare(const ct_node *node, uint32_t out, void *const *in,
                                      const void *got, const void *want, const void *most);
// Compares bits; all NaN are equal.
ct_check_difference ct__check_same(const ct_type *type, const void *got, const void *want);
bool ct__check_accumulates(const ct_node *node); // it accumulates, so that `most` is needed

// "1.5"; "inputs (64, 10) f32 in [-0.2, 4.1] with 2 NaN and (10) f32 = 3".
void ct__check_write_value(ct_text *text, const ct_type *type, const void *bytes, int64_t at);
// "(2, 7): 1.5 instead of 1.25"
void ct__check_write_difference(ct_text *text, const ct_type *type, int64_t at, const void *got,
                                const void *want);
void ct__check_write_nonfinite(ct_text *text, const ct_type *type, ct_check_nonfinite bad);
void ct__check_write_inputs(ct_text *text, const ct_node *node, void *const *in);
// Writes "; index 9 at (3,) is outside 0 to 7" for a node whose kind has positions, if one is out of
// range.
void ct__check_write_out_of_range(ct_text *text, const ct_node *node, void *const *in);

#endif
