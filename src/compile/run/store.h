// Which values a plan stores besides those that roots ask for: values that are used after it.
#ifndef COTAN_COMPILE_STORE_H
#define COTAN_COMPILE_STORE_H

#include "compile/plan.h"

// Adds roots behind the first *n of the engine's for values of the engine's order that outer scopes
// computed and this one uses, and for those that an earlier plan computed without storing them,
// which stores them from its next run on. False: no memory, the error stands in the context.
bool ct__add_stores(ct_ctx *ctx, ct_executor *engine, size_t *n);
// For what was used after the plan had run, and is no root yet.
bool ct__add_extras(ct_ctx *ctx, ct_executor *e, size_t *n, const ct_plan *p);
bool ct__add_root(ct_ctx *ctx, ct_executor *engine, size_t *n, ct_root root);
// All outputs of a node, which is a leaf once it has a value.
bool ct__add_outputs(ct_ctx *ctx, ct_executor *engine, size_t *n, ct_node *node, ct_root_kind kind);
// Marks what this plan computes.
void ct__note_computed(const ct_plan *plan, const ct_order *order);
// After assignments: values stored only because an earlier turn used them again go if they need an
// older version, so that using them is the error it would be without.
void ct__extras_spent(ct_ctx *ctx);

#endif
