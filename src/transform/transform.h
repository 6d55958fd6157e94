// Transforms of graphs, which use the rules of the ops: expansion of compositions, gradients, forward mode.
#ifndef COTAN_TRANSFORM_TRANSFORM_H
#define COTAN_TRANSFORM_TRANSFORM_H

#include "ops/opcode.h"

typedef bool (*ct_stops_fn)(const ct_node *node, const void *user);

// A growable list of nodes in the order of a graph walk.
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
    ct_stops_fn stops; // NULL except in a walk that stops early
    const void *user;
    size_t n_ends; // number of nodes at the beginning of v whose operands were not visited
    uint64_t epoch;
} ct_nodes;
// Lists all nodes that roots depend on, operands first. Each node->index is the node's position and
// node->epoch is that of the list.
bool ct__reach(ct_nodes *list, const ct_val *roots, size_t n_roots, ct_err *err);
// The same without the nodes that are reached only through `ends`. The nodes of ends are listed first,
// visited or not, unless another output of them is used.
bool ct__reach_to(ct_nodes *list, const ct_val *roots, size_t n_roots, const ct_val *ends,
                  size_t n_ends, ct_err *err);
// The same without the operands of nodes for which `stops` is true; these nodes themselves are listed.
bool ct__reach_before(ct_nodes *list, const ct_val *roots, size_t n_roots, ct_stops_fn stops,
                      const void *user, ct_err *err);
void ct__nodes_free(ct_nodes *list);

// Histories (history.c). Lists the nodes that values depend on, up to and including those that are not
// tracked.
bool ct__history(ct_ctx *ctx, const ct_val *roots, size_t n, ct_nodes *list);
bool ct__history_is_whole(ct_ctx *ctx, const ct_nodes *list, ct_loc here);
bool ct__history_begins(const ct_node *node); // true if the history starts at this node

// Replaces compositions that vals depend on by their bodies, recursively. Without `keep`, ops of dtypes that
// have parts are also replaced by ops of the parts. The expansion stops at the ends, which are the n_ends
// vals after the first n. `keep` returns true for nodes that are not expanded; it means that the expansion is
// for a gradient, so outputs that are one value are kept distinct. vals are updated. Records in the innermost
// trace.
bool ct__expand_bodies(ct_ctx *ctx, ct_val *vals, size_t n, size_t n_ends,
                       bool (*keep)(const ct_node *));

// Regions that a plan may rematerialise to save memory, in an order that is the same each time the plan is
// made: first those that were recorded as such (graph.h), then those of ct_remat in the order in which
// gradients reach them.
typedef struct ct_regions {
    struct ct_region {
        double bytes, work; // bytes that it saves, for about that many operations
        bool again;
    } * v; // (n)
    size_t n, cap;
    size_t at;     // number of regions reached so far
    bool counted;  // all of them have been reached once
    bool only_try; // dry run: the plan is discarded, and only whether it fits is of interest
    bool fits;
    bool least; // no region is left to be rematerialised
} ct_regions;
// Returns true if the next region is recomputed in the plan that is being made. When the region is reached
// for the first time, its cost is measured from the nodes, and it is not recomputed.
bool ct__region_again(ct_regions *regions, ct_node *const *nodes, size_t n);

// Records the expansion of a transform on the operands `in`, with each of its outputs as a node of its own.
bool ct__expand_transform(ct_ctx *ctx, const ct_node *node, const ct_val *in, ct_tensor *out);

// Records gradients of a scalar with respect to values that it depends on in the innermost trace. grads[i] is
// a zero of the right shape only if `loss` depends on wrt[i] through paths without derivatives. No path at
// all is an error, unless ct__grad was called with `zeros`.
bool ct__grad_expand(ct_ctx *ctx, const ct_node *grad, ct_val loss, const ct_val *wrt, size_t n,
                     ct_tensor *grads);
// ct_grad; with `zeros`, tensors that the loss does not depend on get zeros.
void ct__grad(ct_tensor loss, const ct_tensor *wrt, size_t n, ct_tensor *grads, bool zeros,
              ct_loc here);
// Linearisation of `outs` with respect to `wrt` at their values: `out` are the tangents, recorded in the
// innermost trace as functions of the placeholders `holder`. The caller sets ctx and here.
typedef struct ct_linear {
    ct_ctx *ctx;
    ct_loc here;
    ct_arena scratch;
    size_t n_outs, n, n_all; // n: wrt; n_all: these, followed by their copies
    const ct_val *wrt;       // (n)
    ct_tensor *out;          // (n_outs) CT_NONE: depends on no wrt
    ct_node **holder;        // (n_all) NULL: no output depends on it
    ct_val *at;              // (n_all) the values whose tangents these are
    size_t *origin;          // (n_all) for those from n on: the wrt of which it is a copy
    bool *reached; // (n_all) true if the outputs depend on it, possibly through another wrt
    ct_nodes forward, backward;
    ct_tensor **tangent; // for each node of `forward`, an array for its outputs; NULL: none
} ct_linear;
bool ct__linearise(ct_linear *l, const ct_val *outs, size_t n_outs, const ct_val *wrt, size_t n);
// Computes the cotangents of wrt from those of the outputs (CT_NONE: zero).
bool ct__transpose(ct_linear *l, const ct_tensor *cotangents, ct_tensor *grads);
void ct__linear_free(ct_linear *l);
// Linearises and transposes.
bool ct__vjp_expand(ct_ctx *ctx, ct_loc here, const ct_val *outs, const ct_tensor *cotangents,
                    size_t n_outs, const ct_val *wrt, size_t n, ct_tensor *grads);

// Records the tangents of `outs` for the given tangents of wrt in the innermost trace. CT_NONE for outputs
// that depend on none of them.
bool ct__jvp_expand(ct_ctx *ctx, ct_loc here, const ct_val *outs, size_t n_outs, const ct_val *wrt,
                    const ct_tensor *tangents, size_t n, ct_tensor *out_tangents);
// Resolves n tensors, in messages the operands of `op`. Returns false if an error was reported.
static inline bool ct__resolve_all(ct_ctx *ctx, const ct_tensor *t, size_t n, ct_val *vals,
                                   const char *op, ct_loc here) {
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) ok = ct__resolve(ctx, t[i], &vals[i], op, (int)i, here);
    return ok;
}
// A rule's argument: the node with its operands and outputs as tensors, in the arena; .in NULL: out of memory.
ct_rule ct__rule_of(ct_arena *arena, ct_node *node);
// Brings a tangent to the shape and dtype of the result: the tangent of a + b, if b has none, is that of a.
ct_tensor ct__tangent_like(ct_tensor t, const ct_type *type);

// Sets the source line of the nodes that were recorded in the innermost frame after the node `before` by
// rules and bodies: it is the user's line that required them.
void ct__give_line(ct_ctx *ctx, const ct_node *before, ct_loc here);
// True if the node has a dtype with parts, so that its op becomes ops of the parts.
bool ct__is_split(const ct_node *node);
// True if a composition computes narrow floats in f32. Its body is the op itself on operands that are cast
// so.
bool ct__is_widened(const ct_node *node);
// Calls an op's body for a composition node with the given operands. out: (n_out).
bool ct__call_body(ct_ctx *ctx, const ct_node *node, const ct_tensor *in, ct_tensor *out);

#endif
