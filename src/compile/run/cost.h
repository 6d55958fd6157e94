// The cost of a plan, known before it runs: memory, launches with their bytes and operations, the largest
// tensors; and whether it fits the memory.
#ifndef COTAN_COMPILE_COST_H
#define COTAN_COMPILE_COST_H

#include "compile/plan.h"

// Sets the names of leaves and roots for reports. Call it before ct__plan_fits.
bool ct__plan_name(ct_ctx *ctx, ct_plan *plan, const ct_order *order, const ct_root *roots,
                   size_t n_roots);
// True if the memory that the plan needs is available. False: the error lists its largest tensors.
bool ct__plan_fits(ct_ctx *ctx, ct_executor *engine, ct_plan *plan);
// Returns the report, made at the first call; it lives as long as the plan. NULL: out of memory.
const ct_plan_cost *ct__plan_cost(ct_ctx *ctx, ct_executor *engine, ct_plan *plan);

#endif
