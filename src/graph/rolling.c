// Rolling scopes: for languages whose values live as long as they are named.
//
// A rolling scope never ends. Its nodes are given back when neither a pin nor another node needs
// them; what is pinned is a root of the next plan. It is a row of frames: behind each run the next
// one begins, and what was evaluated moves to the context's own frame, as a leaf, if its history is
// not tracked. So a frame is empty, and its memory free, when its last history has gone.
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

// ------------------------------------------------------------------------------------- giving back

static bool is_named(const ct_node *node) {
    return node->users || node->flags & (CT_NODE_PINNED | CT_NODE_KEPT);
}

// Later reads of the variable find the node, or do not find it any more.
static void carry(ct_ctx *ctx, const ct_node *node, bool carried) {
    ct_current *now = node->var ? ct__current(ctx, node->var) : NULL;
    if (!now || now->node != node) return;
    now->carried = carried;
    if (!carried) now->node = NULL;
}

// A version becomes a leaf once the variable holds it, if no history leads through what was assigned: the value
// would hold the version before, and that its own.
static void become_leaf(ct_node *node) {
    if (!node->var || !(node->flags & CT_NODE_STORED) || !node->n_in) return;
    if (node->in[0].node->flags & CT_NODE_TRACKED) return;
    const uint64_t version = ct__version_of(node);
    ct__unuse(node->in[0].node);
    node->op = &ct__op_read;
    node->n_in = 0;
    node->number = version;
    ct__unflag(node, CT_NODE_STORED);
}

static void give_back(ct_ctx *ctx, ct_node *node) {
    ct_frame *frame = node->frame;
    if (ct__is_mark(node)) ct__mark_ended(ctx, node);
    carry(ctx, node, false);
    ct__slot_release(ctx, node, CT_PAST_DROP, CT_NOWHERE);
    for (int i = 0; i < node->n_in; i++) ct__unuse(node->in[i].node);
    node->n_in = 0;
    if (node->value || node->var) ct__release_values(ctx, node);
    node->flags = (node->flags & CT_NODE_QUEUED) | CT_NODE_FREED;
    if (frame != ctx->frames[frame->depth]) frame->live--;
}

void ct__rolling_unused(ct_node *node) {
    ct_ctx *ctx = node->ctx;
    if (!node->frame->rolling || node->flags & (CT_NODE_QUEUED | CT_NODE_FREED)) return;
    if (!CT_GROW(ctx->unused, ctx->unused_cap, ctx->n_unused + 1)) return; // the next turn finds it
    ctx->unused[ctx->n_unused++] = node;
    ct__flag(node, CT_NODE_QUEUED);
}

// Reads of variables stay while later ones may find them, until the frame's turn.
static bool stays(const ct_ctx *ctx, const ct_node *node) {
    return is_named(node) || (node->var && node->frame == ctx->frames[node->frame->depth]);
}

static void give_unused_back(ct_ctx *ctx) {
    while (ctx->n_unused) {
        ct_node *node = ctx->unused[--ctx->n_unused];
        ct__unflag(node, CT_NODE_QUEUED);
        if (!(node->flags & CT_NODE_FREED) && !stays(ctx, node)) give_back(ctx, node);
    }
}

// ------------------------------------------------------------------------------------------- turns

// May it be a leaf from now on?
static bool is_settled(const ct_node *node) {
    if (!(node->flags & (CT_NODE_PINNED | CT_NODE_KEPT))) return false;
    if (node->flags & (CT_NODE_POISON | CT_NODE_TRACKED)) return node->flags & CT_NODE_POISON;
    return node->value || node->op == &ct__op_scalar;
}

// Is it named, and without a value?
static bool waits(const ct_node *node) {
    return node->flags & (CT_NODE_PINNED | CT_NODE_KEPT) && !node->value &&
           !(node->flags & (CT_NODE_POISON | CT_NODE_FREED)) && node->op != &ct__op_scalar;
}

// Newest first: what uses a node comes before it.
static void settle(ct_ctx *ctx, ct_frame *frame) {
    uint32_t live = 0;
    frame->unsettled = frame->waits = false;
    for (ct_node *node = frame->nodes; node; node = node->next) {
        if (node->flags & CT_NODE_FREED) continue;
        if (is_settled(node)) {
            const unsigned flags =
                node->flags & (CT_NODE_FROM_LEAF | CT_NODE_KEPT | CT_NODE_PINNED);
            if (ct__replace_by_leaf(ctx, ctx->frames[0], node, flags))
                ct__unflag(node, CT_NODE_PINNED | CT_NODE_KEPT);
        }
        if (is_named(node)) {
            live++;
            carry(ctx, node, true);
            become_leaf(node);
            frame->waits |= waits(node) && !ctx->given_up;
        } else {
            frame->live++; // which giving back takes off again
            give_back(ctx, node);
        }
    }
    frame->live = live;
}

static void free_empty(ct_ctx *ctx, ct_frame *youngest) {
    for (ct_frame *at = youngest; at->older;) {
        ct_frame *frame = at->older;
        if (frame->live) {
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
    if (atomic_load_explicit(&ctx->deferred_vars, memory_order_relaxed)) ct__vars_free_deferred(ctx);
    ct_loc here = frame->here;
    ct_frame *older = frame;
    ctx->depth--;
    ct_frame *next = ct__frame_push(ctx, CT_FRAME_SCOPE, NULL, here);
    if (!next) { // no memory: the frame goes on, and grows
        ctx->depth++;
        return;
    }
    next->rolling = true;
    next->older = older;
    frame->unsettled = true;
    for (ct_frame *f = older; f; f = f->older)
        if (f->unsettled) settle(ctx, f);
    give_unused_back(ctx);
    free_empty(ctx, next);
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
    if (!own) { // a value of this context stands for it
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
    if (!ctx->turn_due) give_unused_back(ctx);
    return t;
}

void ct__rolling_unpin(ct_ctx *ctx, ct_node *node) {
    if (!node->users) ct__rolling_unused(node);
    if (!ctx->turn_due) give_unused_back(ctx);
}

bool ct__rolling_roots(ct_ctx *ctx) {
    const size_t before = ctx->n_roots;
    for (ct_frame *frame = ct__top(ctx); frame; frame = frame->older) {
        if (frame != ct__top(ctx) && !frame->waits) continue;
        for (ct_node *node = frame->nodes; node; node = node->next)
            if (waits(node) &&
                !ct__root_add(
                    ctx, (ct_root){.kind = CT_ROOT_KEEP, .val = {node, 0}, .here = node->here}))
                return false;
        frame->unsettled = frame->waits;
    }
    for (size_t i = before, k = ctx->n_roots; i + 1 < k; i++, k--) { // in the order of recording
        const ct_root root = ctx->roots[i];
        ctx->roots[i] = ctx->roots[k - 1];
        ctx->roots[k - 1] = root;
    }
    return true;
}

void ct_rolling_turn(void) {
    ct_ctx *ctx = ct__ctx();
    if (ctx && ctx->turn_due) ct__rolling_turn(ctx);
}

void ct_rolling_give_up(void) {
    ct_ctx *ctx = ct__ctx();
    if (ctx && ctx->rolling) (void)ct__roots_keep_first(ctx);
}

size_t ct_rolling_pending(void) {
    ct_ctx *ctx = ct__ctx();
    return ctx && ct__top(ctx)->rolling ? ct__top(ctx)->n_nodes : 0;
}
