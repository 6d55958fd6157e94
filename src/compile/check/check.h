// COTAN_CHECK: a plan beside the reference, the first op that makes NaN, and writes behind buffers.
//
// The first two look at a plan's graph op by op on the plan's own device, each op as a program of
// its own whose operands and results come back to the host. So an op is judged alone, on the
// operands that it had: errors do not add up along a graph, and the first wrong op is named, not
// the last.
#ifndef COTAN_COMPILE_CHECK_H
#define COTAN_COMPILE_CHECK_H

#include "compile/plan.h"

enum {
    CT_CHECK_REF = 1,
    CT_CHECK_NAN = 2,
    CT_CHECK_BOUNDS = 4,
    CT_CHECK_OPS = CT_CHECK_REF | CT_CHECK_NAN, // look at a plan op by op
};
// What COTAN_CHECK asks for. False, with a sentence: it names something else.
bool ct__check_wanted(unsigned *what, ct_err *err);

// -------------------------------------------------------------------------- around a run (check.c)

// Keeps what the plan will overwrite; REF: all ops, one by one. False: one differs.
bool ct__check_before(ct_ctx *ctx, ct_executor *engine, ct_plan *plan, size_t n_roots);
// The plan's own results. False: they are wrong, and variables have their values of before.
bool ct__check_after(ct_executor *engine, ct_plan *plan);
void ct__check_done(ct_executor *engine); // frees what the two kept

// ----------------------------------------------------------------- behind buffers (check_bounds.c)

// Runs commands of a plan, from `first` on, one at a time, and looks at the guards behind their
// buffers after each. False: a kernel wrote there, or the device failed.
bool ct__check_bounds(ct_ctx *ctx, ct_executor *engine, const ct_plan *plan, size_t first,
                      size_t n);

// -------------------------------------------------------------------------- op by op (check_ops.c)

// The expanded graph, as it was before any pass changed it; lives in the plan's arena. NULL: no
// memory.
ct_check_graph *ct__check_graph(ct_arena *arena, const ct_graph *graph);
void ct__check_settle(ct_check_graph *graph, const struct ct_symbols *symbols);
void ct__check_graph_free(ct_executor *engine, ct_check_graph *graph);
// Where a root's value stands in the order of the ops.
uint32_t ct__check_place(const ct_check_graph *graph, size_t root);

typedef struct ct_check_event { // an op that made NaN or infinity, or an input that holds NaN
    ct_loc here;
    const char *op, *text;
} ct_check_event;
typedef struct ct_check_run {
    ct_ctx *ctx;
    ct_executor *engine;
    unsigned what;
    size_t n_leaves, n_roots;
    void **saved; // (n_leaves) bytes of leaves that the plan overwrites; else NULL
    void **old;   // (n_roots) bytes of the variable before; NULL: it had no value, or is none
    // Filled: of each root, its bytes and the event behind its first NaN or infinity (from 1; 0:
    // none).
    void **root;
    uint32_t *origin;
    ct_arena arena; // of events
    ct_check_event *events;
    size_t n_events, events_cap;
    const struct ct_check_loop *loop; // innermost one that runs
} ct_check_run;
bool ct__check_ops(ct_check_run *run, ct_plan *plan);
// The verdict `text`, which is freed, on a node. Always false.
bool ct__check_verdict(ct_check_run *run, const ct_node *node, ct_text *text);

// -------------------------------------------------------------------------- values (check_value.c)

typedef struct ct_check_bad {  // of a float value
    int64_t nan, infinite, at; // how many; the first NaN, else the first infinity
} ct_check_bad;
ct_check_bad ct__check_bad(const ct_type *type, const void *bytes);
static inline bool ct__is_bad(ct_check_bad b) { return b.nan || b.infinite; }

// How an op's result differs from the reference's: how many elements, the first of them, and by how
// much it might have.
typedef struct ct_check_difference {
    int64_t count, at;
    double allowed;
} ct_check_difference;
// `most` is NULL, or bounds of the sums behind each element: what rounding errors are measured by.
ct_check_difference ct__check_compare(const ct_node *node, uint32_t out, void *const *in,
                                      const void *got, const void *want, const void *most);
// The same bits, but for those of a NaN?
ct_check_difference ct__check_same(const ct_type *type, const void *got, const void *want);
bool ct__check_rounds(const ct_node *node); // does it add up, so that `most` is needed?

// "1.5"; "inputs (64, 10) f32 in [-0.2, 4.1] with 2 NaN and (10) f32 = 3".
void ct__check_say_value(ct_text *text, const ct_type *type, const void *bytes, int64_t at);
// "(2, 7): 1.5 instead of 1.25"
void ct__check_say_difference(ct_text *text, const ct_type *type, int64_t at, const void *got,
                              const void *want);
void ct__check_say_bad(ct_text *text, const ct_type *type, ct_check_bad bad);
void ct__check_say_inputs(ct_text *text, const ct_node *node, void *const *in);
// "; index 9 at (3,) lies outside 0 to 7" of a node whose kind has positions, and such a one.
void ct__check_say_outside(ct_text *text, const ct_node *node, void *const *in);

#endif
