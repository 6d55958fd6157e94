// Control flow: nodes that own bodies and run them (scan, while, cond, switch). Declares what their files
// share, and what passes ask about them.
#ifndef COTAN_TRANSFORM_LOOP_H
#define COTAN_TRANSFORM_LOOP_H

#include "transform/trace.h"

typedef enum ct_loop_form {
    CT_LOOP_SCAN, // body 0, once per element
    // body 0 is the predicate for the first iteration; body 1 is the loop body, whose last result is the
    // predicate for the next iteration
    CT_LOOP_WHILE,
    CT_LOOP_SWITCH, // operand 0, an integer or a bool, selects the body
} ct_loop_form;

// Operands: for a switch, the index; those that are the first parameters of all bodies; then, body by body,
// what each captured. Outputs: the last carried tensors and ys; for a switch, the results of the body.
typedef struct ct_loop {
    ct_loop_form form;
    size_t first, n_shared; // operands that are the bodies' first parameters
    // of these: the carried tensors, then the tensors that an iteration gets one element of
    size_t n_carry, n_xs;
    int64_t length; // of a scan
    bool reverse;
    ct_bodies bodies;
} ct_loop;
static inline ct_loop ct__loop_of(const ct_node *node) {
    ct_loop loop = {0};
    node->op->loop(node, &loop);
    return loop;
}
// Returns the type of one element of x along axis 0, as the body of a scan sees it.
static inline ct_type ct__element_type(const ct_type *x) {
    return (ct_type){.dtype = x->dtype,
                     .device = x->device,
                     .rank = (uint8_t)(x->rank - 1),
                     .dyn = x->dyn >> 1,
                     .dim = x->dim + 1,
                     .mark = x->mark && x->dyn >> 1 ? x->mark + 1 : NULL};
}
// Returns the operand that is parameter `param` of a body.
size_t ct__loop_operand(const ct_loop *loop, size_t body, size_t param);

// Computes which nodes of a body the wanted results need (wanted: NULL for all): reached (n_nodes). Sets the
// index of each node to its position.
void ct__body_reach(const ct_body *body, const bool *wanted, bool *reached);
// Extends `wanted` (n_out), the outputs of a loop that are used, by those from which a later iteration
// computes these; all outputs if it is not a scan. Returns false if out of memory.
bool ct__loop_wanted(ct_arena *arena, const ct_node *node, bool *wanted);

// ------------------------------------------------------------------------ shared by the files of loops

#define LOOP_IN(text)                                                                              \
    .doc = text, .kind = &ct__kind_loop, .n_in = -1, .n_out = -1, .accepts = CT_ANY

bool ct__loop_eval(const ct_ref *ref); // reference evaluation
// For shape rules in a plan: records that the dynamic sizes of the bodies' parameters, and of carried
// results, equal those of the operands.
void ct__loop_sizes(const ct_call *call);

// Appended to an error if two types differ only in which axes are dynamic.
#define CT_HINT_DYNAMIC                                                                            \
    "n= is a dynamic size: ct_reshape with CT_DYN in its dims makes that axis of the other "       \
    "dynamic"

// Resolved operands and their types as a body's parameters have them.
typedef struct ct_operands {
    ct_tensor *t;          // (n)
    ct_type *type;         // (n)
    const ct_type **types; // (n) addresses of these
    size_t n;
} ct_operands;
// Resolves carried tensors, followed by others. Carried tensors are results of the body after the first
// iteration, so they are never weak. Returns false with the error in the context.
bool ct__operands(ct_ctx *ctx, ct_operands *o, const char *op, const ct_tensor *carry,
                  size_t n_carry, const ct_tensor *more, size_t n_more, ct_loc here);
// Called inside a function that is being traced. Returns true if the user's body set its results, and the
// first of them, the next carried tensors, have the types of the carried tensors. The error is in the
// context.
bool ct__carries_on(ct_ctx *ctx, const char *op, const ct_type *const *carry, size_t n_carry,
                    const ct_tensor *out, size_t n_out, ct_loc here);
// Records the node with `first`, unless it is CT_NONE, the operands, and what the bodies captured.
ct_tensor ct__record_loop(ct_ctx *ctx, const ct_opdef *op, const void *attrs, ct_tensor first,
                          const ct_operands *o, ct_bodies bodies, ct_loc here);
// Sets `out` to outputs of a node, or to poisoned tensors if ok is false.
void ct__loop_results(ct_ctx *ctx, bool ok, ct_tensor node, uint32_t from, ct_tensor *out, size_t n,
                      ct_loc here);

// ct_scan_with for rules and ct_fori: the length may be 0 without xs.
void ct__scan(ct_scan_args args, ct_tensor *carry_out, ct_tensor *ys);

// A conditional between functions that take the same operands.
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
// Traces the functions and records the node. Returns false with the error in the context.
bool ct__record_choice(ct_ctx *ctx, const ct_choice *choice, ct_tensor *node);

// Rules of the ops: forward mode (loop_jvp.c) and batching (loop_batch.c).
bool ct__loop_jvp(ct_rule *rule);
bool ct__branch_jvp(ct_rule *rule);
bool ct__scan_batch(ct_batching *b);
bool ct__while_batch(ct_batching *b);
bool ct__branch_batch(ct_batching *b);

#endif
