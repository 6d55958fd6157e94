// Tracing of C functions into bodies, and inlining of bodies.
#include "transform/trace.h"

#include <string.h>

#include "graph/symbols.h"
#include "ops/rules.h"

const ct_node *ct__moves(const ct_node *node) {
    const bool goes = node->op->moves && node->out->device != ct__type(node->in[0])->device;
    const ct_node *moves = goes ? node : NULL;
    for (size_t i = 0; i < node->op->n_fields && !moves; i++) {
        if (node->op->fields[i].kind != CT_FIELD_body) continue; // loops have none
        const void *at = (const char *)node->attrs + node->op->fields[i].offset;
        const ct_body *inner = *(ct_body *const *)at;
        if (inner) moves = inner->moves;
    }
    return moves;
}

bool ct__stays_in_place(ct_ctx *ctx, const char *op, const ct_body *body) {
    const ct_node *node = body->moves;
    if (!node) return true;
    const ct_type *from = ct__type(node->in[0]);
    ct__fail(ctx, CT_E_DEVICE, node->here, op,
             "the body brings %s from %s to %s: a loop or a branch runs on one device",
             ct__type_text(from).s, ct__hooks.device_name(ctx, from->device),
             ct__hooks.device_name(ctx, node->out->device));
    return ct__err_hint(&ctx->err, "ct_to before or after it");
}

// Makes the body's canonical record: two bodies with equal words are the same function.
static bool trace_canonicalise(ct_ctx *ctx, ct_body *body, ct_arena *arena) {
    ct_order order = {0};
    ct_root *roots = ct__malloc((body->n_outs + 1) * sizeof *roots);
    bool ok = roots != NULL;
    for (size_t i = 0; i < body->n_outs && ok; i++)
        roots[i] = (ct_root){.kind = CT_ROOT_READ, .val = body->outs[i]};
    ok = ok && ct__order(ctx, &order, roots, body->n_outs);
    body->words = ok ? ct__arena(arena, (order.n_words + 1) * sizeof *body->words) : NULL;
    if (body->words) {
        if (order.n_words) memcpy(body->words, order.words, order.n_words * sizeof *body->words);
        body->n_words = order.n_words;
        body->hash = order.hash;
        body->transforms = order.n_transforms > 0;
        body->nodes = ct__arena(arena, (order.n + 1) * sizeof *body->nodes);
        if (body->nodes && order.n) memcpy(body->nodes, order.nodes, order.n * sizeof *body->nodes);
        body->n_nodes = order.n;
    }
    for (size_t i = 0; i < order.n && !body->moves; i++) body->moves = ct__moves(order.nodes[i]);
    ct__free(roots);
    ct__order_free(&order);
    return body->words && body->nodes;
}

ct_body *ct__trace_begin(ct_ctx *ctx, const ct_type *const *in, size_t n_in, ct_loc here) {
    return ct__trace_begin_in(ctx, ct__top(ctx)->arena, in, n_in, here);
}
ct_body *ct__trace_begin_in(ct_ctx *ctx, ct_arena *arena, const ct_type *const *in, size_t n_in,
                            ct_loc here) {
    ct_body *body = ct__arena_zero(arena, sizeof *body);
    if (!body || !(body->params = ct__arena_zero(arena, (n_in + 1) * sizeof *body->params)))
        return NULL;
    ct_frame *frame = ct__frame_push(ctx, CT_FRAME_BODY, arena, here);
    if (!frame) return NULL;
    frame->body = body;
    body->here = here;
    body->n_params = n_in;
    for (size_t i = 0; i < n_in; i++) {
        body->params[i] = ct__leaf(ctx, &ct__op_param, NULL, *in[i], here);
        if (!body->params[i]) return NULL;
        body->params[i]->number = i;
    }
    return body;
}

ct_body *ct__trace_end(ct_ctx *ctx, ct_body *body, const char *op, const ct_tensor *out,
                       size_t n_out, size_t depth) {
    ct_arena *arena = ct__top(ctx)->arena;
    bool ok = !ctx->err.code;
    body->outs = ct__arena(arena, (n_out + 1) * sizeof *body->outs);
    body->n_outs = n_out;
    for (size_t i = 0; i < n_out && ok; i++)
        ok = body->outs &&
             ct__resolve(ctx, out[i], &body->outs[i], op, CT_OUTPUT((int)i), body->here);
    ok = ok && trace_canonicalise(ctx, body, arena);
    size_t n = body->n_captured;
    ct_node **captured = ct__arena(arena, (n + 1) * sizeof *captured);
    ct_val *from = ct__arena(arena, (n + 1) * sizeof *from);
    if (captured && from && n) {
        memcpy(captured, body->captured, n * sizeof *captured);
        memcpy(from, body->captured_from, n * sizeof *from);
    }
    ct__free(body->captured);
    ct__free(body->captured_from);
    body->captured = captured;
    body->captured_from = from;
    while (ctx->depth > depth) ct__frame_pop(ctx, body->here);
    if (!ok || !captured || !from)
        return ct__null_memory(&ctx->err, body->here, op, n * sizeof *from);
    return body;
}

ct_body *ct__trace(ct_ctx *ctx, const ct_traced *function, const ct_type *const *in, size_t n_in,
                   size_t n_out, ct_loc here) {
    size_t depth = ctx->depth;
    ct_tensor *args = ct__arena(ct__top(ctx)->arena, (n_in + 1) * sizeof *args);
    ct_tensor *out = ct__arena_zero(ct__top(ctx)->arena, (n_out + 1) * sizeof *out);
    ct_body *body = args && out ? ct__trace_begin(ctx, in, n_in, here) : NULL;
    if (!body) {
        while (ctx->depth > depth) ct__frame_pop(ctx, here);
        return ct__null_memory(&ctx->err, here, function->op, n_in * sizeof *args);
    }
    body->operands = function->operands;
    body->n_operands = function->n_operands;
    for (size_t i = 0; i < n_in; i++) args[i] = ct__handle(body->params[i], 0);
    function->f(args, out, function->user);
    for (size_t i = 0; i < n_out && !ctx->err.code; i++)
        if (!out[i].bits)
            ct__fail(ctx, CT_E_ARGUMENT, here, function->op, "%s %zu", function->unset, i + 1);
    return ct__trace_end(ctx, body, function->op, out, n_out, depth);
}

bool ct__plan_ones(ct_ctx *ctx, const ct_node *node, const ct_val *to) {
    for (int k = 0; k < node->n_out; k++) {
        const ct_type *recorded = &node->out[k];
        ct_type *is = &to[k].node->out[to[k].out];
        uint32_t ones = 0;
        for (int a = 0; a < is->rank && is->mark && recorded->rank == is->rank; a++)
            if (recorded->dim[a] == 1 && !ct__is_dyn(recorded, a)) ones |= is->dyn & 1u << a;
        if (!ones) continue;
        int64_t *mark = ct__arena(ct__top(ctx)->arena, is->rank * sizeof *mark);
        if (!mark) return false;
        for (int a = 0; a < is->rank; a++) {
            mark[a] = ones >> a & 1 ? 1 : is->mark[a];
            ct__size_equal(is->mark[a], mark[a]);
        }
        is->dyn &= ~ones;
        is->mark = is->dyn ? mark : NULL;
    }
    return true;
}

static bool trace_keep_ones(ct_ctx *ctx, const ct_node *node, const ct_tensor *to,
                            ct_arena *scratch) {
    ct_val *vals = ct__arena(scratch, node->n_out * sizeof *vals);
    bool ok = vals != NULL;
    for (int k = 0; k < node->n_out && ok; k++)
        ok = ct__resolve(ctx, to[k], &vals[k], node->op->name, k, node->here);
    return ok && ct__plan_ones(ctx, node, vals);
}

// Records one node of the body once more. With `transforms`, transforms are expanded, which requires that
// `args` are parameters, as they were when the function was traced.
static bool trace_inline_node(ct_ctx *ctx, const ct_node *node, ct_tensor *const *map,
                              ct_tensor *to, bool transforms, size_t word) {
    CT_ARENA scratch = {0};
    ct_tensor *in = ct__arena(&scratch, (node->n_in + 1u) * sizeof *in);
    ct_val *vals = ct__arena(&scratch, (node->n_in + 1u) * sizeof *vals);
    const void *attrs = node->attrs;
    bool ok = in && vals;
    if (word && node->op->n_fields && ok) {
        void *own = ct__symbol_attrs(ctx->symbols, &scratch, node->op, attrs, word);
        ok = own && (node->op->expand || ct__plan_bodies(ctx, node->op, own));
        attrs = own;
    }
    for (int k = 0; k < node->n_in && ok; k++)
        in[k] = map[node->in[k].node->index][node->in[k].out];
    if (ok && transforms && node->op->expand) {
        for (int k = 0; k < node->n_in && ok; k++)
            ok = ct__resolve(ctx, in[k], &vals[k], node->op->name, k, node->here);
        ok = ok && ct__expand_transform(ctx, node, vals, to);
    } else if (ok) {
        ct__outputs(ct__record(node->op, attrs, in, node->n_in, node->here), to, node->n_out);
    }
    if (word) ok = ok && !ctx->err.code && trace_keep_ones(ctx, node, to, &scratch);
    return ok && !ctx->err.code;
}

static bool trace_inline_nodes(ct_ctx *ctx, const ct_body *body, const ct_tensor *args,
                               ct_tensor *out, bool transforms) {
    CT_ARENA scratch = {0};
    ct_tensor **map = ct__arena_zero(&scratch, (body->n_nodes + 1) * sizeof *map);
    bool ok = map != NULL;
    // no other walk visits them
    for (size_t i = 0; i < body->n_nodes; i++) body->nodes[i]->index = (uint32_t)i;
    size_t word = ctx->symbols ? body->word : 0, before = 0;
    for (size_t i = 0; i < body->n_nodes && ok; i++) {
        ct_node *node = body->nodes[i];
        const size_t part = word, words = ct__node_words(node, &before);
        if (word) word += words;
        ct_tensor *to = map[i] = ct__arena(&scratch, node->n_out * sizeof *to);
        ok = to != NULL;
        if (!ok) break;
        if (node->op == &ct__op_param) {
            to[0] = args[node->number];
            continue;
        }
        if (node->op->kind == &ct__kind_leaf) {
            ct_node *leaf = ct__leaf(ctx, node->op, node->attrs, *node->out, node->here);
            ok = leaf != NULL;
            if (ok) to[0] = ct__handle(leaf, 0);
            continue;
        }
        ok = trace_inline_node(ctx, node, map, to, transforms, part ? part + before : 0);
    }
    for (size_t i = 0; i < body->n_outs && ok; i++)
        out[i] = map[body->outs[i].node->index][body->outs[i].out];
    return ok || ct__err_memory(&ctx->err, body->here, "inline", body->n_nodes * sizeof *map);
}

// Names the dynamic sizes of the parameters, which are words of the body's record.
static bool trace_symbol_parameters(ct_ctx *ctx, const ct_body *body, ct_body *clone) {
    size_t word = ctx->symbols ? body->word : 0, before;
    bool ok = true;
    for (size_t i = 0; i < body->n_nodes && word && ok; i++) {
        const ct_node *node = body->nodes[i];
        const size_t part = word;
        word += ct__node_words(node, &before);
        if (node->op != &ct__op_param) continue;
        ct_type *type = clone->params[node->number]->out;
        ok = ct__symbol_type(ctx->symbols, ct__top(ctx)->arena, type, part + 2);
    }
    return ok;
}

// Returns a copy of the body on parameters of its own in the innermost frame's arena, without transforms;
// `expand`: also without compositions.
static ct_body *trace_clone_body(ct_ctx *ctx, const ct_body *body, bool expand) {
    size_t depth = ctx->depth, n = body->n_params + body->n_captured;
    CT_ARENA scratch = {0};
    const ct_type **types = ct__arena(&scratch, (n + 1) * sizeof *types);
    ct_tensor *args = ct__arena(&scratch, (n + 1) * sizeof *args);
    ct_tensor *out = ct__arena_zero(&scratch, (body->n_outs + 1) * sizeof *out);
    ct_val *vals = ct__arena(&scratch, (body->n_outs + 1) * sizeof *vals);
    bool ok = types && args && out && vals;
    for (size_t i = 0; i < n && ok; i++)
        types[i] = (i < body->n_params ? body->params[i] : body->captured[i - body->n_params])->out;
    ct_body *clone = ok ? ct__trace_begin(ctx, types, n, body->here) : NULL;
    ok = clone != NULL;
    ok = ok && trace_symbol_parameters(ctx, body, clone);
    for (size_t i = 0; i < n && ok; i++) args[i] = ct__handle(clone->params[i], 0);
    ok = ok && trace_inline_nodes(ctx, body, args, out, true);
    ok = ok && ct__resolve_all(ctx, out, body->n_outs, vals, "body", body->here);
    if (expand) ok = ok && ct__expand_bodies(ctx, vals, body->n_outs, 0, NULL);
    for (size_t i = 0; i < body->n_outs && ok; i++) out[i] = ct__handle_of(vals[i]);
    if (ok)
        clone = ct__trace_end(ctx, clone, "body", out, body->n_outs, depth);
    else
        ct__err_memory(&ctx->err, body->here, "body", n * sizeof *types);
    while (ctx->depth > depth) ct__frame_pop(ctx, body->here);
    return ok ? clone : NULL;
}

ct_body *ct__body_clone(ct_ctx *ctx, const ct_body *body) {
    return trace_clone_body(ctx, body, true);
}
ct_body *ct__body_without_transforms(ct_ctx *ctx, const ct_body *body) {
    return trace_clone_body(ctx, body, false);
}

static bool trace_plan_body(ct_ctx *ctx, ct_body **at) {
    const ct_body *body = *at;
    if (!body || !body->word) return true;
    ct_body *own = ct__body_without_transforms(ctx, body);
    if (!own) return false;
    own->captured_from =
        ct__arena_zero(ct__top(ctx)->arena, (body->n_captured + 1) * sizeof *own->captured_from);
    if (!own->captured_from)
        return ct__err_memory(&ctx->err, body->here, "body", body->n_captured * sizeof(ct_val));
    own->n_params = body->n_params;
    own->captured = own->params + body->n_params;
    own->n_captured = body->n_captured;
    *at = own;
    return true;
}

bool ct__plan_bodies(ct_ctx *ctx, const ct_opdef *op, void *attrs) {
    bool ok = true;
    for (size_t f = 0; f < op->n_fields && ct__symbols_has_dynamic(ctx->symbols); f++) {
        void *at = (char *)attrs + op->fields[f].offset;
        if (op->fields[f].kind == CT_FIELD_body) ok = ok && trace_plan_body(ctx, at);
        const ct_bodies *bodies = op->fields[f].kind == CT_FIELD_bodies ? at : NULL;
        for (size_t i = 0; bodies && i < bodies->n; i++)
            ok = ok && trace_plan_body(ctx, &bodies->v[i]);
    }
    return ok;
}

// A gradient inside the function is a gradient of the function with respect to its parameters, whatever the
// relation between the arguments. So transforms are expanded before the arguments replace the parameters.
bool ct__inline(ct_ctx *ctx, const ct_body *body, const ct_tensor *args, ct_tensor *out) {
    if (!body->transforms) return trace_inline_nodes(ctx, body, args, out, false);
    const ct_body *clone = trace_clone_body(ctx, body, false);
    if (!clone) return false;
    // Numbers that derivatives introduce are captured from outside, as new operands.
    CT_ARENA scratch = {0};
    const size_t n = clone->n_params, more = clone->n_captured;
    ct_tensor *all = ct__arena(&scratch, (n + more + 1) * sizeof *all);
    for (size_t i = 0; i < n && all; i++) all[i] = args[i];
    for (size_t i = 0; i < more && all; i++) all[n + i] = ct__handle_of(clone->captured_from[i]);
    return all ? trace_inline_nodes(ctx, clone, all, out, false)
               : ct__err_memory(&ctx->err, body->here, "inline", n * sizeof *all);
}
