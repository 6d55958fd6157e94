// From what the user recorded to a graph of primitives that is ready to be scheduled.
//
// In: an order of pending nodes (graph/graph.h) and the roots that are wanted of it. Out: a ct_graph.
// Each pass rebuilds the graph: it walks it in order and records each node anew in the plan's trace,
// changed or not.
#ifndef COTAN_COMPILE_PASSES_H
#define COTAN_COMPILE_PASSES_H

#include "transform/transform.h"

// A graph ready to be lowered: compositions and transforms are gone; operands stand before users;
// what no root needs is dropped. Elementwise operands may still broadcast and promote implicitly
// (ct__compute_dtype): lowering broadcasts by index and casts on load.
typedef struct ct_graph {
    ct_arena *arena;
    ct_node **nodes; // (n) in order; node->index is its place while no other walk runs
    size_t n;
    // Leaves of the graph are op "data" without values, in the order of the plan's leaves: `number`
    // is the leaf's place; op "scalar": `number` is its place among the scalars; op "const" carries
    // its bytes.
    size_t n_leaves, n_scalars;
    bool is_body; // of a node that owns it: what it assigns are carried tensors, not variables
    struct ct_graph_root {
        ct_root_kind kind;
        ct_val val;
        int32_t leaf; // ASSIGN: place of the leaf that the variable's old version is, -1 when the
                      // plan never reads it
    } * roots;        // (n_roots)
    size_t n_roots;
} ct_graph;

// Order -> graph: the user's pending nodes recorded into the trace (a frame of kind TRACE must be
// the innermost one), with leaves numbered as in `order`, and transforms (grad) expanded.
bool ct__expand(ct_ctx *ctx, const ct_order *order, const ct_root *roots, size_t n_roots,
                ct_graph *graph);
// Fills graph->nodes with what the roots need, operands first.
bool ct__list_graph(ct_ctx *ctx, ct_graph *graph);
// Equal nodes become one; what is not needed goes; only algebra that keeps every bit.
bool ct__simplify(ct_ctx *ctx, ct_graph *graph);
// For lowerings to kernels: scans begin with nothing that nobody wants. Changes nodes where they are, which a check
// that remembers them must not meet.
bool ct__prune(ct_ctx *ctx, ct_graph *graph);

#endif
