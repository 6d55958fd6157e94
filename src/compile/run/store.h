// Decides which values a plan stores besides those that roots ask for: values that are used after it.
#ifndef COTAN_COMPILE_STORE_H
#define COTAN_COMPILE_STORE_H

#include "compile/plan.h"

// Adds roots after the executor's first *n, for values of its order that outer scopes computed and this one
// uses, and for those that an earlier plan computed without storing them; that plan stores them from its
// next run on. False: out of memory, the error is in the context.
bool ct__add_stores(ct_ctx *ctx, ct_executor *engine, size_t *n);
// Adds roots for the values that were used after the plan had run and are no roots yet.
bool ct__add_extras(ct_ctx *ctx, ct_executor *e, size_t *n, const ct_plan *p);
bool ct__add_root(ct_ctx *ctx, ct_executor *engine, size_t *n, ct_root root);
// Adds all outputs of a node, which is a leaf once it has a value.
bool ct__add_outputs(ct_ctx *ctx, ct_executor *engine, size_t *n, ct_node *node, ct_root_kind kind);
// Marks the nodes that this plan computes.
void ct__mark_computed(const ct_plan *plan, const ct_order *order);
// After assignments: drops values that are stored only because an earlier iteration used them again, if
// they need an older version of a variable. Then a use of them is the same error as without the stored
// value.
void ct__drop_extras(ct_ctx *ctx);

#endif
