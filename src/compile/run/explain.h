// Messages of COTAN_EXPLAIN=1: why a plan was made, where a value was computed twice.
#ifndef COTAN_COMPILE_EXPLAIN_H
#define COTAN_COMPILE_EXPLAIN_H

#include "compile/plan.h"

// Logs one line: the plan is the first of its source line; or which dimension of which argument changed
// since the latest plan of this line; or which result is requested that was not before, or no longer.
void ct__explain_new(ct_ctx *ctx, ct_executor *engine, ct_plan *plan, const ct_order *order,
                     double seconds);
// Logs one line: `op` needs a node that an earlier plan computed.
void ct__explain_recomputed(ct_ctx *ctx, ct_loc here, const char *op, const ct_node *node);

#endif
