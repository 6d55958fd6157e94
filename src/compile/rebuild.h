// Passes rebuild a graph: they walk it in order and record each node anew in the plan's trace,
// changed or not.
#ifndef COTAN_COMPILE_REBUILD_H
#define COTAN_COMPILE_REBUILD_H

#include "compile/program.h"
#include "transform/transform.h"

// Order -> graph: the user's pending nodes recorded into the trace (a frame of kind TRACE must be
// the innermost one), with leaves numbered as in `order`, and transforms (grad) expanded.
bool ct__expand(ct_ctx *ctx, const ct_order *order, const ct_root *roots, size_t n_roots,
                ct_graph *graph);
// Fills graph->nodes with what the roots need, operands first.
bool ct__list_graph(ct_ctx *ctx, ct_graph *graph);
// Equal nodes become one; what is not needed goes; only algebra that keeps every bit.
bool ct__simplify(ct_ctx *ctx, ct_graph *graph);

#endif
