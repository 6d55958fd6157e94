// Nodes that own bodies and run them: scan, while, cond, switch. What their files share, and what
// passes ask.
#ifndef COTAN_TRANSFORM_LOOP_H
#define COTAN_TRANSFORM_LOOP_H

#include "transform/trace.h"

typedef enum ct_loop_form {
    CT_LOOP_SCAN,   // body 0, once an element
    CT_LOOP_WHILE,  // body 0 says whether it begins, body 1, after its results, whether it goes on
    CT_LOOP_SWITCH, // operand 0, a whole number or a bool, says which body
} ct_loop_form;

// Operands: of a switch the index; those that all bodies have as their first parameters; then, body
// by body, what each captured. Outputs: the last carried tensors and ys; of a switch the body's.
typedef struct ct_loop {
    ct_loop_form form;
    size_t first, n_shared; // the operands that are the bodies' first parameters
    size_t n_carry,
        n_xs; // of these: carried tensors, then tensors of which an iteration sees one element
    int64_t length; // scan
    bool reverse;
    ct_bodies bodies;
} ct_loop;
static inline ct_loop ct__loop_of(const ct_node *node) {
    ct_loop loop = {0};
    node->op->loop(node, &loop);
    return loop;
}
// One element of x along axis 0, as the body of a scan sees it.
static inline ct_type ct__element_type(const ct_type *x) {
    return (ct_type){.dtype = x->dtype,
                     .place = x->place,
                     .rank = (uint8_t)(x->rank - 1),
                     .dyn = x->dyn >> 1,
                     .dim = x->dim + 1,
                     .mark = x->mark && x->dyn >> 1 ? x->mark + 1 : NULL};
}
// The operand that is parameter `param` of a body.
size_t ct__loop_operand(const ct_loop *loop, size_t body, size_t param);

// Of a body's nodes those that the wanted results need (wanted: NULL, all), once index is each node's place:
// reached (n_nodes).
void ct__body_reach(const ct_body *body, const bool *wanted, bool *reached);
// Of a loop the outputs that somebody wants, (n_out): marks those too that these are computed from in an
// earlier turn; all, if it is no scan. False: no memory.
bool ct__loop_wanted(ct_arena *arena, const ct_node *node, bool *wanted);

// ---------------------------------------------------------------------------------- for their files

#define LOOP_IN(text)                                                                              \
    .doc = text, .kind = &ct__kind_loop, .n_in = -1, .n_out = -1, .accepts = CT_ANY

bool ct__loop_eval(const ct_ref *ref); // reference evaluation
// For shape rules in a plan: tells that the bodies' parameters, and what is carried on, have the sizes of
// the operands.
void ct__loop_sizes(const ct_call *call);

// Behind an error: two types differ in nothing but which axes are dynamic.
#define CT_HINT_DYNAMIC                                                                            \
    "n= is a dynamic size: ct_reshape with CT_DYN in its dims makes that axis of the other "       \
    "dynamic"

// Resolved operands and their types, as a body's parameters have them.
typedef struct ct_operands {
    ct_tensor *t;          // (n)
    ct_type *type;         // (n)
    const ct_type **types; // (n) addresses of these
    size_t n;
} ct_operands;
// Of carried tensors (which are what the body makes behind the first round, so never weak), and
// others behind them. False: the error stands in the context.
bool ct__operands(ct_ctx *ctx, ct_operands *o, const char *op, const ct_tensor *carry,
                  size_t n_carry, const ct_tensor *more, size_t n_more, ct_loc here);
// Inside a function that is being traced: did the user's body set its results, and have the first of
// them, the next carried tensors, the types of what is carried? The error stands in the context.
bool ct__carries_on(ct_ctx *ctx, const char *op, const ct_type *const *carry, size_t n_carry,
                    const ct_tensor *out, size_t n_out, ct_loc here);
// The node: `first`, if it is one, the operands, and what the bodies captured.
ct_tensor ct__record_loop(ct_ctx *ctx, const ct_opdef *op, const void *attrs, ct_tensor first,
                          const ct_operands *o, ct_bodies bodies, ct_loc here);
// Outputs of a node, or as many poisoned tensors where it is none.
void ct__loop_results(ct_ctx *ctx, bool ok, ct_tensor node, uint32_t from, ct_tensor *out, size_t n,
                      ct_loc here);

// ct_scan_with, for rules and ct_fori: without xs the length may be 0.
void ct__scan(ct_scan_args args, ct_tensor *carry_out, ct_tensor *ys);

// A choice between functions that take the same operands.
typedef struct ct_choice {
    const ct_opdef *op; // cond, switch
    ct_tensor index;
    const ct_fn *branches; // (n_branches)
    void *const *users;    // (n_branches), or NULL: `user` for all
    void *user;
    size_t n_branches;
    const ct_tensor *in;
    size_t n_in, n_out;
    ct_loc here;
} ct_choice;
// Traces the functions and records the node. False: the error stands in the context.
bool ct__record_choice(ct_ctx *ctx, const ct_choice *choice, ct_tensor *node);

// Rules of the ops: forward mode (loop_jvp.c) and batches (loop_batch.c).
bool ct__loop_jvp(ct_rule *rule);
bool ct__branch_jvp(ct_rule *rule);
bool ct__scan_batch(ct_batching *b);
bool ct__while_batch(ct_batching *b);
bool ct__branch_batch(ct_batching *b);

#endif
