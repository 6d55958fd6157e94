// Slots behind handles; used inside the graph layer alone.
#ifndef COTAN_GRAPH_HANDLE_H
#define COTAN_GRAPH_HANDLE_H

#include "graph/graph.h"

void ct__slot_release(ct_ctx *ctx, ct_node *node, ct_loc ended);
void ct__slot_move(ct_node *from, ct_node *to);
void ct__slots_return(ct_ctx *ctx);
// Leaves: without an error record; with the types (and kind) of another node, in another frame;
// back to the frame's spares.
ct_node *ct__leaf_quiet(ct_ctx *ctx, const ct_opdef *op, const void *attrs, ct_type type,
                        ct_loc here);
ct_node *ct__leaf_like(ct_ctx *ctx, ct_frame *frame, const ct_node *like);
void ct__leaf_recycle(ct_node *leaf);
void ct__leaf_drop(ct_node *leaf);

bool ct__stale_lines(ct_tensor t, ct_loc *made, ct_loc *ended);

#endif
