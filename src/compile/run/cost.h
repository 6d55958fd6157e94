// What a plan costs, known before it runs: memory, launches with their bytes and operations, the
// largest tensors; and whether it fits.
#ifndef COTAN_COMPILE_COST_H
#define COTAN_COMPILE_COST_H

#include "compile/plan.h"

// The leaves and roots that reports name; before the plan's memory is judged.
bool ct__plan_name(ct_ctx *ctx, ct_plan *plan, const ct_order *order, const ct_root *roots,
                   size_t n_roots);
// Is there room for what the plan will take? False: a sentence that lists its largest tensors.
bool ct__plan_fits(ct_ctx *ctx, ct_executor *engine, ct_plan *plan);
// The report, made when it is first asked for; it lives as long as the plan. NULL: no memory.
const ct_plan_cost *ct__plan_cost(ct_ctx *ctx, ct_executor *engine, ct_plan *plan);
// "a, b and c", each with its size and line: the first few of the tensors.
void ct__say_tensors(ct_text *text, const ct_plan_tensor *tensors, size_t n);

#endif
