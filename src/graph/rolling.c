// Rolling scopes, for languages in which a value lives as long as it is referenced.
//
// A rolling scope never ends. A node is freed when neither a pin nor another node references it; pinned nodes
// are roots of the next plan. The scope is a list of frames: after each run a new frame begins, and evaluated
// nodes move to the context's own frame, as leaves, unless their history is tracked. So a frame becomes
// empty, and its memory is freed, when its last tracked history is freed.
#include "cotan/binding.h"
#include "graph/handle.h"

bool ct_rolling_begin_at(ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return false;
    if (ctx->depth != 1)
        return ct__err(&ctx->err, CT_E_ARGUMENT, here, "rolling", "the context has scopes already");
    ct_frame *frame = ct__frame_push(ctx, CT_FRAME_SCOPE, NULL, here);
    if (!frame) return ct__err_memory(&ctx->err, here, "rolling", sizeof *frame);
    frame->rolling = ctx->rolling = true;
    return true;
}

// ----------------------------------------------------------------------------------- freeing nodes

static bool node_is_referenced(const ct_node *node) {
    return node->users || node->flags & (CT_NODE_PINNED | CT_NODE_KEPT);
}

// Sets whether later reads of the variable find this node.
static void rolling_carry_version(ct_ctx *ctx, const ct_node *node, bool carried) {
    ct_current *now = node->var ? ct__current(ctx, node->var) : NULL;
    if (!now || now->node != node) return;
    now->carried = carried;
    if (!carried) now->node = NULL;
}

// A version becomes a leaf once the variable has its value, unless tracked history leads through the assigned
// value: the value would hold the previous version, and that one its own.
static void rolling_version_to_leaf(ct_node *node) {
    if (!node->var || !(node->flags & CT_NODE_STORED) || !node->n_in) return;
    if (node->in[0].node->flags & CT_NODE_TRACKED) return;
    const uint64_t version = ct__version_of(node);
    ct__unuse(node->in[0].node);
    node->op = &ct__op_read;
    node->n_in = 0;
    node->number = version;
    ct__unflag(node, CT_NODE_STORED);
}

static void rolling_free_node(ct_ctx *ctx, ct_node *node) {
    ct_frame *frame = node->frame;
    if (ct__is_mark(node)) ct__mark_ended(ctx, node);
    rolling_carry_version(ctx, node, false);
    ct__slot_release(ctx, node, CT_PAST_DROP, CT_NOWHERE);
    for (int i = 0; i < node->n_in; i++) ct__unuse(node->in[i].node);
    node->n_in = 0;
    if (node->value || node->var) ct__release_values(ctx, node);
    node->flags = (node->flags & CT_NODE_QUEUED) | CT_NODE_FREED;
    if (frame != ctx->frames[frame->depth]) frame->n_referenced--;
}

void ct__rolling_unused(ct_node *node) {
    ct_ctx *ctx = node->ctx;
    if (!node->frame->rolling || node->flags & (CT_NODE_QUEUED | CT_NODE_FREED)) return;
    if (!CT_GROW(ctx->unused, ctx->unused_cap, ctx->n_unused + 1)) return; // the next turn finds it
    ctx->unused[ctx->n_unused++] = node;
    ct__flag(node, CT_NODE_QUEUED);
}

// Reads of variables stay until the frame's turn ends, since later reads may find them.
static bool rolling_must_stay(const ct_ctx *ctx, const ct_node *node) {
    return node_is_referenced(node) ||
           (node->var && node->frame == ctx->frames[node->frame->depth]);
}

static void rolling_free_unused(ct_ctx *ctx) {
    while (ctx->n_unused) {
        ct_node *node = ctx->unused[--ctx->n_unused];
        ct__unflag(node, CT_NODE_QUEUED);
        if (!(node->flags & CT_NODE_FREED) && !rolling_must_stay(ctx, node))
            rolling_free_node(ctx, node);
    }
}

// ------------------------------------------------------------------------------------------- turns

// True if the node can be replaced by a leaf.
static bool rolling_can_be_leaf(const ct_node *node) {
    if (!(node->flags & (CT_NODE_PINNED | CT_NODE_KEPT))) return false;
    if (node->flags & (CT_NODE_POISON | CT_NODE_TRACKED)) return node->flags & CT_NODE_POISON;
    return node->value || node->op == &ct__op_scalar;
}

// True if it is referenced but has no value.
static bool rolling_lacks_value(const ct_node *node) {
    return node->flags & (CT_NODE_PINNED | CT_NODE_KEPT) && !node->value &&
           !(node->flags & (CT_NODE_POISON | CT_NODE_FREED)) && node->op != &ct__op_scalar;
}

// Newest first: users of a node come before it.
static void rolling_sweep_frame(ct_ctx *ctx, ct_frame *frame) {
    uint32_t live = 0;
    frame->unsettled = frame->has_pending = false;
    for (ct_node *node = frame->nodes; node; node = node->next) {
        if (node->flags & CT_NODE_FREED) continue;
        if (rolling_can_be_leaf(node)) {
            const unsigned flags =
                node->flags & (CT_NODE_FROM_LEAF | CT_NODE_KEPT | CT_NODE_PINNED);
            if (ct__replace_by_leaf(ctx, ctx->frames[0], node, flags))
                ct__unflag(node, CT_NODE_PINNED | CT_NODE_KEPT);
        }
        if (node_is_referenced(node)) {
            live++;
            rolling_carry_version(ctx, node, true);
            rolling_version_to_leaf(node);
            frame->has_pending |= rolling_lacks_value(node) && !ctx->given_up;
        } else {
            frame->n_referenced++; // rolling_free_node subtracts it again
            rolling_free_node(ctx, node);
        }
    }
    frame->n_referenced = live;
}

static void rolling_free_empty_frames(ct_ctx *ctx, ct_frame *youngest) {
    for (ct_frame *at = youngest; at->older;) {
        ct_frame *frame = at->older;
        if (frame->n_referenced) {
            at = frame;
            continue;
        }
        at->older = frame->older;
        ct__frame_spare(ctx, frame);
    }
}

void ct__rolling_turn(ct_ctx *ctx) {
    ct_frame *frame = ct__top(ctx);
    if (!frame->rolling) return;
    ctx->turn_due = false;
    if (atomic_load_explicit(&ctx->deferred_vars, memory_order_relaxed))
        ct__vars_free_deferred(ctx);
    ct_loc here = frame->here;
    ct_frame *older = frame;
    ctx->depth--;
    ct_frame *next = ct__frame_push(ctx, CT_FRAME_SCOPE, NULL, here);
    if (!next) { // out of memory: the frame is kept, and grows
        ctx->depth++;
        return;
    }
    next->rolling = true;
    next->older = older;
    frame->unsettled = true;
    for (ct_frame *f = older; f; f = f->older)
        if (f->unsettled) rolling_sweep_frame(ctx, f);
    rolling_free_unused(ctx);
    rolling_free_empty_frames(ctx, next);
    ctx->given_up = false;
}

// -------------------------------------------------------------------------------------------- pins

ct_tensor ct__rolling_pin(ct_ctx *ctx, ct_tensor t, ct_loc here) {
    ct_peeked at;
    if (!ct__peek_lock(t, &at)) return t;
    const bool variable = ct__flags(&at) & CT_NODE_VARIABLE, own = !at.lock;
    ct__peek_unlock(&at);
    if (variable) return t;
    ct_node *node = at.node;
    uint32_t out;
    if (!own) { // replaced by a value of this context
        ct_val v;
        if (!ct__resolve(ctx, t, &v, "pin", 0, here)) return ct__poison(ctx, here);
        node = v.node;
        t = ct__handle_of(v);
    }
    if ((node->frame->rolling || ctx->tracing) && node->n_out > 1) { // a pin is a node's
        t = ct__record(&ct__op_same, NULL, &t, 1, here);
        node = ct__peek_fast(ctx, t, &out);
        if (!node) return t;
    }
    if (node->frame->rolling || node->frame == ctx->frames[0]) ct__flag(node, CT_NODE_PINNED);
    if (!ctx->turn_due) rolling_free_unused(ctx);
    return t;
}

void ct__rolling_unpin(ct_ctx *ctx, ct_node *node) {
    if (!node->users) ct__rolling_unused(node);
    if (!ctx->turn_due) rolling_free_unused(ctx);
}

bool ct__rolling_roots(ct_ctx *ctx) {
    const size_t before = ctx->n_roots;
    for (ct_frame *frame = ct__top(ctx); frame; frame = frame->older) {
        if (frame != ct__top(ctx) && !frame->has_pending) continue;
        for (ct_node *node = frame->nodes; node; node = node->next)
            if (rolling_lacks_value(node) &&
                !ct__root_add(
                    ctx, (ct_root){.kind = CT_ROOT_KEEP, .val = {node, 0}, .here = node->here}))
                return false;
        frame->unsettled = frame->has_pending;
    }
    for (size_t i = before, k = ctx->n_roots; i + 1 < k; i++, k--) { // in recording order
        const ct_root root = ctx->roots[i];
        ctx->roots[i] = ctx->roots[k - 1];
        ctx->roots[k - 1] = root;
    }
    return true;
}

void ct_rolling_free_deferred(void) {
    ct_ctx *ctx = ct__ctx();
    if (ctx && ctx->turn_due) ct__rolling_turn(ctx);
}

void ct_rolling_discard_pending(void) {
    ct_ctx *ctx = ct__ctx();
    if (ctx && ctx->rolling) (void)ct__roots_keep_first(ctx);
}

size_t ct_rolling_pending(void) {
    ct_ctx *ctx = ct__ctx();
    return ctx && ct__top(ctx)->rolling ? ct__top(ctx)->n_nodes : 0;
}
