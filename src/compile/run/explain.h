// What COTAN_EXPLAIN=1 says: why a plan was made, where a value was computed twice.
#ifndef COTAN_COMPILE_EXPLAIN_H
#define COTAN_COMPILE_EXPLAIN_H

#include "compile/plan.h"

// One line: the plan is the first of its line, or which argument, which dimension of it, changed
// since the one that ran last, or which result is wanted that was not, or no longer.
void ct__explain_new(ct_ctx *ctx, ct_executor *engine, ct_plan *plan, const ct_order *order,
                     double seconds);
// One line: `op` of a line needs a node that an earlier plan computed.
void ct__explain_again(ct_ctx *ctx, ct_loc here, const char *op, const ct_node *node);

#endif
