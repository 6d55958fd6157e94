// Passes from the recorded nodes to a graph of primitives that is ready to be scheduled.
//
// In: an order of pending nodes (graph/graph.h) and the roots to compute. Out: a ct_graph. Each pass rebuilds
// the graph: it walks the graph in order and records each node again in the plan's trace, changed or not.
#ifndef COTAN_COMPILE_PASSES_H
#define COTAN_COMPILE_PASSES_H

#include "transform/transform.h"

// A graph ready to be lowered: compositions and transforms are expanded, operands precede their users, and
// nodes that no root needs are dropped. Elementwise operands may still broadcast and promote implicitly
// (ct__compute_dtype): lowering broadcasts by index and casts on load.
typedef struct ct_graph {
    ct_arena *arena;
    ct_node **nodes; // in order; node->index is its position, unless another walk runs
    size_t n;
    // Leaves of the graph are op "data" without values, in the order of the plan's leaves: `number` is the
    // leaf's index; op "scalar": `number` is its index among the scalars; op "const" carries its bytes.
    size_t n_leaves, n_scalars;
    bool is_body; // the body of a loop node: it assigns carried tensors, not variables
    struct ct_graph_root {
        ct_root_kind kind;
        ct_val val;
        // ASSIGN: index of the leaf that is the variable's old value; -1: the plan never reads it
        int32_t leaf;
    } * roots; // (n_roots)
    size_t n_roots;
} ct_graph;

// Order -> graph: records the user's pending nodes into the trace (the innermost frame must be of kind
// TRACE), with leaves numbered as in `order`, and with transforms (grad) expanded.
bool ct__expand(ct_ctx *ctx, const ct_order *order, const ct_root *roots, size_t n_roots,
                ct_graph *graph);
// Fills graph->nodes with the nodes that the roots need, operands first.
bool ct__list_graph(ct_ctx *ctx, ct_graph *graph);
// Merges equal nodes, drops unused ones, and applies algebra that keeps every bit.
bool ct__simplify(ct_ctx *ctx, ct_graph *graph);
// For lowerings to kernels: drops initial values of scans that are never used. It changes nodes in place,
// so it must not run if COTAN_CHECK has recorded them.
bool ct__prune(ct_ctx *ctx, ct_graph *graph);

#endif
