// Functions from graph to graph that stand on the rules of the ops.
#ifndef COTAN_TRANSFORM_TRANSFORM_H
#define COTAN_TRANSFORM_TRANSFORM_H

#include "ops/opcode.h"

typedef bool (*ct_stops_fn)(const ct_node *node, const void *user);

// A list of values that grows; nodes in the order of a walk.
typedef struct ct_nodes {
    ct_node **v;
    size_t n, cap;
    struct ct_visit {
        ct_node *node;
        uint32_t next;
    } * stack;
    size_t stack_cap;
    ct_val *ends; // scratch of a walk with ends
    size_t ends_cap;
    ct_stops_fn stops; // NULL, but in a walk that stops
    const void *user;
    size_t n_ends; // of v, from the first: nodes behind which the walk did not go
    uint64_t epoch;
} ct_nodes;
// Everything behind roots, operands first, each with node->index its place and node->epoch the
// list's.
bool ct__reach(ct_nodes *list, const ct_val *roots, size_t n_roots, ct_err *err);
// The same without what is reached through `ends` alone. Their nodes are listed, met or not: first
// those of which no other output was met.
bool ct__reach_to(ct_nodes *list, const ct_val *roots, size_t n_roots, const ct_val *ends,
                  size_t n_ends, ct_err *err);
// The same without what lies behind the nodes that stop the walk, but these themselves.
bool ct__reach_before(ct_nodes *list, const ct_val *roots, size_t n_roots, ct_stops_fn stops,
                      const void *user, ct_err *err);
void ct__nodes_free(ct_nodes *list);

// Replaces compositions behind vals by their bodies, and without `keep` ops of dtypes that have
// parts by ops of these, all the way down, or to the ends, which are
// the n_ends vals behind the n first; `keep` says which stay (NULL: none): then it is for a gradient,
// and outputs stay apart that are one value. vals are updated. Records in the innermost trace.
bool ct__expand_bodies(ct_ctx *ctx, ct_val *vals, size_t n, size_t n_ends,
                       bool (*keep)(const ct_node *));

// Regions that a plan may compute again if it must, in an order which is the same each time the plan
// is made: first those that were recorded as such (graph.h), then those of ct_remat as gradients come
// to them.
typedef struct ct_regions {
    struct ct_region {
        double bytes, work; // what it saves, in about how many operations
        bool again;
    } * v; // (n)
    size_t n, cap;
    size_t at;     // how many of them were met
    bool counted;  // all of them have been met once
    bool only_try; // the plan is not wanted, but whether it fits
    bool fits;
    bool least; // nothing is left to be computed again
} ct_regions;
// The next one: is it computed again in the plan that is being made? Where that is not known yet it
// is what the nodes make, and is not.
bool ct__region_again(ct_regions *regions, ct_node *const *nodes, size_t n);

// Records what a transform of the operands `in` stands for, each of its outputs as a node of its own.
bool ct__expand_transform(ct_ctx *ctx, const ct_node *node, const ct_val *in, ct_tensor *out);

// Gradients of a scalar with respect to values behind it, recorded in the innermost trace. grads[i]
// is a zero of the right shape only where `loss` depends on wrt[i] through paths that carry none;
// no path at all is an error, unless ct__grad was told `zeros`.
bool ct__grad_expand(ct_ctx *ctx, const ct_node *grad, ct_val loss, const ct_val *wrt, size_t n,
                     ct_tensor *grads);
// ct_grad, where `zeros` says that what the loss does not depend on has zeros.
void ct__grad(ct_tensor loss, const ct_tensor *wrt, size_t n, ct_tensor *grads, bool zeros,
              ct_loc here);
// What `outs` are of `wrt`, linearised where they stand: `out` are their tangents, recorded in the
// innermost trace as functions of the placeholders `holder`. To begin with, ctx and here are set.
typedef struct ct_linear {
    ct_ctx *ctx;
    ct_loc here;
    ct_arena scratch;
    size_t n_outs, n, n_all; // n: wrt; n_all: these, and their copies behind them
    const ct_val *wrt;       // (n)
    ct_tensor *out;          // (n_outs) CT_NONE: depends on no wrt
    ct_node **holder;        // (n_all) NULL: no output depends on it
    ct_val *at;              // (n_all) the values whose tangents these are
    size_t *origin;          // (n_all) behind n: of which wrt it is a copy
    bool *reached;           // (n_all) is it behind the outputs at all, be it through another wrt
    ct_nodes forward, backward;
    ct_tensor **tangent; // of each node of `forward`, an array of its outputs; NULL: none
} ct_linear;
bool ct__linearise(ct_linear *l, const ct_val *outs, size_t n_outs, const ct_val *wrt, size_t n);
// Cotangents of wrt from those of the outputs (CT_NONE: zero).
bool ct__transpose(ct_linear *l, const ct_tensor *cotangents, ct_tensor *grads);
void ct__linear_free(ct_linear *l);
// Both, one after the other.
bool ct__vjp_expand(ct_ctx *ctx, ct_loc here, const ct_val *outs, const ct_tensor *cotangents,
                    size_t n_outs, const ct_val *wrt, size_t n, ct_tensor *grads);

// Tangents of `outs` as each of wrt moves along its tangent, recorded in the innermost trace. CT_NONE
// of what none of them moves.
bool ct__jvp_expand(ct_ctx *ctx, ct_loc here, const ct_val *outs, size_t n_outs, const ct_val *wrt,
                    const ct_tensor *tangents, size_t n, ct_tensor *out_tangents);
// A tangent in the shape and dtype of the result: that of a + b where b has none is a's own.
ct_tensor ct__tangent_like(ct_tensor t, const ct_type *type);

// What rules and bodies recorded in the innermost frame behind the node `before` is the work of the
// user's line that made them necessary.
void ct__give_line(ct_ctx *ctx, const ct_node *before, ct_loc here);
// Is it of a dtype that has parts, of which an op that computes makes ops of the parts?
bool ct__is_split(const ct_node *node);
// Does a composition compute its narrow floats in f32? Its body is itself, of operands so cast.
bool ct__is_widened(const ct_node *node);
// Calls an op's body for a composition node with the given operands. out: (n_out).
bool ct__call_body(ct_ctx *ctx, const ct_node *node, const ct_tensor *in, ct_tensor *out);

#endif
