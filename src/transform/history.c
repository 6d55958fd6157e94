// Histories: the tracked nodes that gradients of rolling scopes keep. See include/cotan/binding.h.
#include "cotan/binding.h"
#include "graph/handle.h"
#include "transform/transform.h"

ct_tensor ct_track_at(ct_tensor t, ct_loc here) {
    uint32_t out;
    t = ct__record(&ct__op_same, NULL, &t, 1, here);
    ct_node *node = ct__peek(t, &out);
    if (node && !(node->flags & CT_NODE_POISON))
        node->flags = (uint16_t)((node->flags & ~CT_NODE_FROM_LEAF) | CT_NODE_TRACKED);
    return t;
}

void ct_track_variable(ct_tensor variable, bool tracked) {
    ct_var *var = ct__var_of(variable);
    if (var) var->tracked = tracked;
}

const char *ct_op_name(ct_tensor t) {
    ct_peeked at;
    if (!ct__peek_lock(t, &at)) return NULL;
    const char *name = at.node->op->name;
    ct__peek_unlock(&at);
    return name;
}
bool ct_is_tracked(ct_tensor t) {
    ct_peeked at;
    if (!ct__peek_lock(t, &at)) return false;
    const unsigned flags = ct__flags(&at);
    const bool tracked = flags & CT_NODE_VARIABLE ? at.node->var->tracked
                                                  : flags & (CT_NODE_TRACKED | CT_NODE_FROM_LEAF);
    ct__peek_unlock(&at);
    return tracked;
}

bool ct_is_pending_value_read(ct_tensor variable) {
    ct_ctx *ctx = ct__ctx();
    ct_var *var = ct__var_of(variable);
    if (!ctx || !var || atomic_load_explicit(&var->writer, memory_order_relaxed) != ctx)
        return false;
    const ct_current *now = ct__current(ctx, var);
    return now && now->node;
}

bool ct_has_tracked_dependents(ct_tensor t) {
    ct_ctx *ctx = ct__ctx();
    uint32_t out;
    const ct_node *of = ct__peek(t, &out);
    if (!ctx || !of || !of->users) return false;
    for (const ct_frame *frame = ct__top(ctx); frame; frame = frame->older)
        for (const ct_node *node = frame->nodes; node; node = node->next) {
            if (node->flags & CT_NODE_FREED || !(node->flags & CT_NODE_TRACKED)) continue;
            for (int i = 0; i < node->n_in; i++)
                if (node->in[i].node == of) return true;
        }
    return false;
}

static bool history_is_untracked(const ct_node *node, const void *user) {
    return (void)user, !(node->flags & CT_NODE_TRACKED);
}

bool ct__history_begins(const ct_node *node) {
    if (node->var || !(node->flags & CT_NODE_TRACKED)) return node->flags & CT_NODE_TRACKED;
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i].node->flags & CT_NODE_TRACKED) return false;
    return true;
}

bool ct__history(ct_ctx *ctx, const ct_val *roots, size_t n, ct_nodes *list) {
    return ct__reach_before(list, roots, n, history_is_untracked, NULL, &ctx->err);
}
static bool history_of_tensor(ct_ctx *ctx, ct_tensor loss, ct_nodes *list, ct_loc here) {
    ct_val at;
    return ct__resolve(ctx, loss, &at, "backward", 0, here) && ct__history(ctx, &at, 1, list);
}

bool ct__history_is_whole(ct_ctx *ctx, const ct_nodes *list, ct_loc here) {
    for (size_t i = 0; i < list->n; i++) {
        const ct_node *node = list->v[i];
        if ((node->flags & (CT_NODE_TRACKED | CT_NODE_FROM_LEAF)) != CT_NODE_FROM_LEAF) continue;
        const ct_loc used = ctx->used_history;
        ct__fail(ctx, CT_E_GRAD, here, "backward",
                 "the history of the value of %s:%u was used by an earlier backward, the latest "
                 "one at %s:%u",
                 node->here.file ? node->here.file : "?", node->here.line,
                 used.file ? used.file : "?", used.line);
        return ct__err_hint(&ctx->err,
                            "backward(retain_graph=True) keeps it; detach() makes the value a "
                            "constant, where gradients shall end at it");
    }
    return true;
}

size_t ct_tracked_leaves_at(ct_tensor loss, ct_tensor *leaves, size_t capacity, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    ct_nodes list = {0};
    size_t n = 0;
    if (!ctx || (capacity && !ct__given(ctx, leaves, here, "backward", "the array for the leaves")))
        return 0;
    if (history_of_tensor(ctx, loss, &list, here) && ct__history_is_whole(ctx, &list, here)) {
        for (size_t i = 0; i < list.n; i++) {
            ct_node *node = list.v[i];
            if (!ct__history_begins(node)) continue;
            if (n < capacity) leaves[n] = ct__handle(node->var ? &node->var->node : node, 0);
            n++;
        }
        if (!n) {
            ct__fail(ctx, CT_E_GRAD, here, "backward",
                     "nothing that the value depends on requires gradients");
            ct__err_hint(&ctx->err, "set requires_grad=True before the value is computed");
        }
    }
    ct__nodes_free(&list);
    return n;
}

void ct_history_reaches_at(ct_tensor loss, const ct_tensor *wrt, size_t n, bool *reaches,
                           ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    ct_nodes list = {0};
    if (!ctx || !ct__possible(ctx, n, here, "backward", "the tensors") ||
        (n && (!ct__given(ctx, wrt, here, "backward", "the list of tensors") ||
               !ct__given(ctx, reaches, here, "backward", "the array for the flags"))))
        return;
    const bool ok = history_of_tensor(ctx, loss, &list, here);
    for (size_t i = 0; i < n; i++) {
        uint32_t out;
        const ct_node *node = ct__peek(wrt[i], &out);
        const ct_var *var = ct__var_of(wrt[i]);
        reaches[i] = ok && node && !var && node->epoch == list.epoch;
        for (size_t k = 0; var && k < list.n && !reaches[i]; k++)
            reaches[i] = list.v[k]->var == var;
    }
    ct__nodes_free(&list);
}

void ct_consume_history_at(ct_tensor t, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    ct_nodes list = {0};
    if (!ctx) return;
    if (!history_of_tensor(ctx, t, &list, here)) list.n = 0;
    for (size_t i = list.n;
         i-- > 0;) { // users first: whether a history begins at a node is decided from its operands
        ct_node *node = list.v[i];
        if (!(node->flags & CT_NODE_TRACKED) || ct__history_begins(node)) continue;
        ct__flag(node, CT_NODE_FROM_LEAF);
        ct__unflag(node, CT_NODE_TRACKED);
        node->frame->unsettled = true;
    }
    ctx->used_history = here;
    ct__nodes_free(&list);
}

void ct_backward_at(ct_tensor loss, const ct_tensor *wrt, size_t n, ct_tensor *grads,
                    bool retain_graph, bool create_graph, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    uint32_t out;
    if (!ctx) return;
    ct__grad(loss, wrt, n, grads, true, here);
    ct_node *node = n && grads ? ct__peek(grads[0], &out) : NULL;
    if (!node || node->flags & CT_NODE_POISON) return;
    // gradients of many tensors are outputs of several nodes
    for (size_t i = 0; i < n && !create_graph; i++) {
        ct_node *part = ct__peek(grads[i], &out);
        if (part)
            part->flags &=
                (uint16_t) ~(CT_NODE_TRACKED | CT_NODE_FROM_VARIABLE | CT_NODE_FROM_LEAF);
    }
    if (!retain_graph && !create_graph) ct_consume_history_at(loss, here);
}
