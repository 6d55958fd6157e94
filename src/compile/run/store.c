#include "compile/run/store.h"

#include "compile/run/explain.h"
#include "transform/transform.h"

bool ct__add_root(ct_ctx *ctx, ct_executor *e, size_t *n, ct_root root) {
    if (!CT_GROW(e->roots, e->roots_cap, *n + 1))
        return ct__err_memory(&ctx->err, root.here, "run", sizeof root);
    e->roots[(*n)++] = root;
    return true;
}

bool ct__add_outputs(ct_ctx *ctx, ct_executor *e, size_t *n, ct_node *node, ct_root_kind kind) {
    for (uint32_t k = 0; k < node->n_out; k++)
        if (!ct__add_root(ctx, e, n, (ct_root){.kind = kind, .val = {node, k}, .here = node->here}))
            return false;
    return true;
}

static bool store_is_root(const ct_executor *e, size_t n, const ct_node *node) {
    for (size_t i = 0; i < n; i++)
        if (e->roots[i].val.node == node && e->roots[i].kind != CT_ROOT_ASSIGN &&
            e->roots[i].kind != CT_ROOT_METRIC)
            return true;
    return false;
}

static void store_mark_extra(ct_executor *e, const ct_node *node) {
    for (size_t b = 0; b < e->n_buckets; b++)
        for (ct_plan *p = e->buckets[b]; p; p = p->next) {
            if (p->number != node->ran_plan) continue;
            for (size_t i = 0; i < p->n_extra; i++)
                if (p->extra[i] == node->ran_index) return;
            if (CT_GROW(p->extra, p->extra_cap, p->n_extra + 1))
                p->extra[p->n_extra++] = node->ran_index;
            return;
        }
}

// Stores a node for a user of it that is in the innermost scope, or whose value a gradient is taken
// through. Values that a gradient is taken through are computed again, so they are not used as stored
// values.
static bool store_add_use(ct_ctx *ctx, ct_executor *e, size_t *n, ct_node *node,
                          uint32_t user_depth, bool is_new, ct_loc here, const char *op) {
    const bool outer = node->frame->depth < e->order.inner && node->frame->depth < user_depth;
    if (outer && node->value) ct__request_value(ctx, node); // as if it were stored now
    if (!node->n_in || node->var || ct__is_order_leaf(node) || node->flags & CT_NODE_OPEN)
        return true;
    const bool recomputed = !outer && is_new && node->flags & CT_NODE_RAN;
    if ((!outer && !recomputed) || store_is_root(e, *n, node)) return true;
    if (recomputed) {
        ct__explain_recomputed(ctx, here, op, node);
        store_mark_extra(e, node);
    }
    return ct__add_outputs(ctx, e, n, node, recomputed ? CT_ROOT_EXTRA : CT_ROOT_STORE);
}

bool ct__add_stores(ct_ctx *ctx, ct_executor *e, size_t *n) {
    const ct_order *o = &e->order;
    const size_t n_roots = *n;
    bool ok = true;
    for (size_t i = 0; i < o->n && o->known && ok; i++) {
        const ct_node *user = o->nodes[i];
        const bool reopened = user->flags & CT_NODE_OPEN;
        for (int k = 0; k < user->n_in && !ct__is_order_leaf(user) && ok; k++)
            ok =
                store_add_use(ctx, e, n, user->in[k].node, reopened ? o->inner : user->frame->depth,
                              reopened || !(user->flags & CT_NODE_RAN), user->here, user->op->name);
    }
    for (size_t i = 0; i < n_roots && o->known && ok; i++) {
        const ct_root r = e->roots[i];
        if (r.kind == CT_ROOT_ASSIGN || r.kind == CT_ROOT_METRIC)
            ok = store_add_use(ctx, e, n, r.val.node, r.depth, true, r.here,
                               r.kind == CT_ROOT_ASSIGN ? "assign" : "metric");
    }
    return ok;
}

void ct__mark_computed(const ct_plan *plan, const ct_order *o) {
    // a value that exists now may be a read of a variable another time
    for (size_t i = 0; i < o->n; i++) {
        if (!o->nodes[i]->n_in || o->nodes[i]->var || ct__is_order_leaf(o->nodes[i])) continue;
        ct__flag(o->nodes[i], CT_NODE_RAN);
        o->nodes[i]->ran_plan = (uint32_t)plan->number;
        o->nodes[i]->ran_index = (uint32_t)i;
    }
}

bool ct__add_extras(ct_ctx *ctx, ct_executor *e, size_t *n, const ct_plan *p) {
    bool ok = true;
    for (size_t i = 0; i < p->n_extra && ok; i++) {
        ct_node *node = e->order.nodes[p->extra[i]];
        ok = store_is_root(e, *n, node) || ct__add_outputs(ctx, e, n, node, CT_ROOT_EXTRA);
    }
    return ok;
}

static bool store_needs_old_version(const ct_nodes *list) {
    for (size_t i = 0; i < list->n; i++)
        if (ct__reads_var(list->v[i]) && ct__is_version_lost(list->v[i])) return true;
    return false;
}

// True if the value is available without what an earlier plan stored as an extra. An assigned version is in
// its variable.
static bool store_is_available(const ct_node *node, const void *user) {
    return (void)user,
           (node->value || node->flags & CT_NODE_STORED) && !(node->flags & CT_NODE_EXTRA);
}
static void store_drop_extra(ct_ctx *ctx, ct_node *node, ct_nodes *list) {
    if (!ct__reach_before(list, &(ct_val){node, 0}, 1, store_is_available, NULL, &ctx->err) ||
        !store_needs_old_version(list))
        return;
    ct__forget_values(ctx, node);
    ct__unflag(node, CT_NODE_EXTRA);
    ctx->n_extras--;
}

void ct__drop_extras(ct_ctx *ctx) {
    ct_nodes list = {0};
    for (size_t d = 0; d < ctx->depth; d++)
        for (const ct_frame *frame = ctx->frames[d]; frame; frame = frame->older)
            for (ct_node *node = frame->nodes; node && ctx->n_extras; node = node->next)
                if (node->flags & CT_NODE_EXTRA && node->value) store_drop_extra(ctx, node, &list);
    ct__nodes_free(&list);
}
