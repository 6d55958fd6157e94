// Plans of several devices: runs the subplans of one device after another, and copies values between
// devices.
#include <stdio.h>

#include "base/trace_events.h"
#include "compile/check/check.h"
#include "compile/plan.h"

bool ct__is_foreign(const ct_executor *e, const ct_storage *s) {
    const ct_device *d = s->owner;
    return d != e->device && !(d->backend->on_host && e->device->backend->on_host);
}

static void subplan_record_transfer(const ct_executor *e, const ct_storage *from, ct_loc here,
                                    int64_t begin) {
    char name[16 + CT_DEVICE_NAME];
    snprintf(name, sizeof name, "transfer from %s", ((const ct_device *)from->owner)->name);
    const ct_trace_event_key what = {CT_TRACE_COPY, name, e->device->name, here.file, here.line};
    ct__trace_event_add(&what, begin, (double)from->bytes, 0);
}

ct_storage *ct__copy_to_device(ct_ctx *ctx, ct_executor *e, ct_storage *from, ct_loc here) {
    const int64_t begin = ct__trace_enabled() ? ct__trace_event_now() : 0;
    void *bytes = ct__malloc(from->bytes);
    ct_storage *to = bytes ? ct__storage_new(e->device, from->bytes, &ctx->err) : NULL;
    bool ok = to && ct__hooks.download(ctx, from, bytes, from->bytes) &&
              e->device->backend->copy_in(e->device, (ct_operand){to->buffer, 0}, bytes,
                                          from->bytes, &ctx->err);
    if (!ok) ct__err_memory(&ctx->err, CT_NOWHERE, "run", from->bytes);
    ct__free(bytes);
    if (begin && ok) subplan_record_transfer(e, from, here, begin);
    if (ok) return to;
    ct__storage_unref(to);
    return NULL;
}

// COTAN_CHECK inspects a run through its executor, whose order and roots are replaced by the subplan's for
// this time.
static bool subplan_run_checked(ct_ctx *ctx, const ct_subplan *piece, const ct_order *order,
                                ct_root *roots, size_t n_roots, ct_storage **fresh) {
    ct_executor *e = piece->engine;
    const ct_order whole = e->order;
    ct_root *whole_roots = e->roots;
    ct_storage **whole_fresh = e->fresh;
    e->order = *order;
    e->roots = roots;
    e->fresh = fresh;
    bool ok = ct__check_before(ctx, e, piece->plan, n_roots) &&
              ct__plan_run(ctx, e, piece->plan, order, fresh) && ct__check_after(e, piece->plan);
    ct__check_done(e);
    e->order = whole;
    e->roots = whole_roots;
    e->fresh = whole_fresh;
    return ok;
}

// The operands of a subplan.
typedef struct {
    ct_arena arena;
    ct_storage **leaves, **fresh;
    ct_node **leaf_nodes;
    ct_root *roots;
} subplan_operands;

static bool subplan_alloc_operands(subplan_operands *o, size_t n_leaves, size_t n_roots) {
    o->leaves = ct__arena_zero(&o->arena, (n_leaves + 1) * sizeof(ct_storage *));
    o->fresh = ct__arena_zero(&o->arena, (n_roots + 1) * sizeof(ct_storage *));
    o->leaf_nodes = ct__arena(&o->arena, (n_leaves + 1) * sizeof(ct_node *));
    o->roots = ct__arena(&o->arena, (n_roots + 1) * sizeof *o->roots);
    return o->leaves && o->fresh && o->leaf_nodes && o->roots;
}

// A value between subplans is an EXTRA root, so that COTAN_CHECK does not report it as a result if it is
// not finite.
static ct_root subplan_root(const ct_part *part, size_t i, size_t n) {
    const ct_val val = part->graph.roots[i].val;
    const ct_root_kind kind = part->root[i] < n ? CT_ROOT_READ : CT_ROOT_EXTRA;
    return (ct_root){.kind = kind, .val = val, .here = val.node->here};
}

bool ct__subplan_run(ct_ctx *ctx, const ct_executor *whole, const ct_subplan *piece, size_t n,
                     ct_storage **made) {
    const ct_part *part = piece->part;
    const size_t n_leaves = part->graph.n_leaves, n_roots = part->graph.n_roots;
    ct_executor *e = piece->engine;
    subplan_operands o = {0};
    bool ok = subplan_alloc_operands(&o, n_leaves, n_roots);
    for (size_t i = 0; i < n_leaves && ok; i++) {
        const size_t at = part->leaf[i], n_inputs = whole->order.n_leaves;
        ct_storage *from = at < n_inputs ? whole->order.leaves[at] : made[n + at - n_inputs];
        o.leaf_nodes[i] = at < n_inputs ? whole->order.leaf_nodes[at] : part->leaf_nodes[i];
        o.leaves[i] = ct__is_foreign(e, from)
                          ? ct__copy_to_device(ctx, e, from, o.leaf_nodes[i]->here)
                          : ct__storage_ref(from);
        ok = o.leaves[i] != NULL;
    }
    const uint64_t begin = ct__device_event(e->device);
    for (size_t i = 0; i < n_roots && ok; i++) {
        o.roots[i] = subplan_root(part, i, n);
        const size_t bytes = ct__type_bytes(ct__type(o.roots[i].val));
        o.fresh[i] = made[part->root[i]] = ct__storage_new(e->device, bytes, &ctx->err);
        ok = o.fresh[i] != NULL;
    }
    const ct_order order = {.leaves = o.leaves,
                            .leaf_nodes = o.leaf_nodes,
                            .n_leaves = n_leaves,
                            .scalars = whole->order.scalars,
                            .n_scalars = whole->order.n_scalars};
    ok = ok && subplan_run_checked(ctx, piece, &order, o.roots, n_roots, o.fresh);
    const uint64_t end = ct__device_event(e->device);
    for (size_t i = 0; i < n_roots && ok; i++) o.fresh[i]->begin = begin, o.fresh[i]->end = end;
    for (size_t i = 0; i < n_leaves && o.leaves; i++) ct__storage_unref(o.leaves[i]);
    ct__arena_free(&o.arena);
    return ok;
}
