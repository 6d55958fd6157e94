// What COTAN_EXPLAIN=1 says: why a plan was made, where a value was computed twice.
#ifndef COTAN_COMPILE_EXPLAIN_H
#define COTAN_COMPILE_EXPLAIN_H

#include "compile/plan.h"

// One line: the plan is the first of its line, or which argument, which dimension of it, changed
// since the one that ran last, or which result is wanted that was not, or no longer.
void ct__explain_new(ct_ctx *ctx, ct_engine *engine, ct_plan *plan, const ct_order *order,
                     double seconds);
// Finds values that an earlier plan computed and did not keep (the user read something in between),
// says both lines once, and lets that plan keep them from now on. Marks what this plan computes.
void ct__note_cuts(ct_ctx *ctx, ct_engine *engine, ct_plan *plan, const ct_order *order);
// After assignments: values kept only because of a cut go if they need an older version, so that
// using them is the error it would be without.
void ct__extras_spent(ct_ctx *ctx);

#endif
