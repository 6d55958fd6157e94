// Functions that are traced in two halves: see include/cotan/binding.h.
#include <string.h>

#include "cotan/binding.h"
#include "ops/rules.h"
#include "transform/trace.h"

// in the arena of the frame in which it was begun, or, if persistent, on the heap
struct ct_function {
    ct_ctx *ctx;
    ct_body *body;
    size_t depth; // number of scopes around it
    bool ended, persistent;
    ct_arena own;      // if persistent
    ct_tensor *pinned; // (body->n_captured) if persistent
};

static ct_function *function_begin(const ct_dtype *dtypes, const ct_ints *dims, size_t n_in,
                                   ct_tensor *params, bool persistent, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__possible(ctx, n_in, here, "function", "the parameters") ||
        (n_in && (!ct__given(ctx, dtypes, here, "function", "the list of dtypes") ||
                  !ct__given(ctx, dims, here, "function", "the list of shapes") ||
                  !ct__given(ctx, params, here, "function", "the array for the parameters"))))
        return NULL;
    const size_t depth = ctx->depth;
    ct_function *function = persistent ? ct__calloc(1, sizeof *function)
                                       : ct__arena_zero(ct__top(ctx)->arena, sizeof *function);
    if (!function) return ct__null_memory(&ctx->err, here, "function", sizeof *function);
    ct_arena *arena = persistent ? &function->own : ct__top(ctx)->arena;
    ct_type *types = ct__arena_zero(arena, (n_in + 1) * sizeof *types);
    const ct_type **in = ct__arena_zero(arena, (n_in + 1) * sizeof *in);
    bool ok = types && in;
    for (size_t i = 0; i < n_in && ok; i++) {
        in[i] = &types[i];
        ok = ct__type_from_dims(arena, dtypes[i], dims[i], &types[i], &ctx->err, here, "function");
    }
    ct_body *body = ok ? ct__trace_begin_in(ctx, arena, in, n_in, here) : NULL;
    if (!body) {
        while (ctx->depth > depth) ct__frame_pop(ctx, here);
        ct__err_memory(&ctx->err, here, "function", n_in * sizeof *types);
        if (persistent) ct__arena_free(&function->own);
        if (persistent) ct__free(function);
        return NULL;
    }
    function->ctx = ctx;
    function->body = body;
    function->depth = depth;
    function->persistent = persistent;
    for (size_t i = 0; i < n_in; i++) params[i] = ct__handle(body->params[i], 0);
    return function;
}

ct_function *ct_function_begin_at(const ct_dtype *dtypes, const ct_ints *dims, size_t n_in,
                                  ct_tensor *params, ct_loc here) {
    return function_begin(dtypes, dims, n_in, params, false, here);
}
ct_function *ct_function_begin_persistent_at(const ct_dtype *dtypes, const ct_ints *dims,
                                             size_t n_in, ct_tensor *params, ct_loc here) {
    return function_begin(dtypes, dims, n_in, params, true, here);
}

// Pins everything that a persistent function captured, each as a value of its own that no user unpins.
static bool function_pin_captured(ct_ctx *ctx, ct_function *f, ct_loc here) {
    const size_t n = f->body->n_captured;
    f->pinned = ct__arena_zero(&f->own, (n + 1) * sizeof *f->pinned);
    if (!f->pinned) return ct__err_memory(&ctx->err, here, "function", n * sizeof *f->pinned);
    for (size_t i = 0; i < n; i++) {
        const ct_node *from = f->body->captured_from[i].node;
        ct_tensor t = ct__handle_of(f->body->captured_from[i]);
        if (from->n_in || from->var || from->op == &ct__op_param) {
            ct__fail(ctx, CT_E_TRACE, here, "function", "the function uses a tensor from outside");
            return ct__err_hint(&ctx->err, "pass it as an operand");
        }
        if (!ct__is_number(from)) t = ct__record(&ct__op_same, NULL, &t, 1, here);
        f->pinned[i] = ct_pin_at(t, here);
        if (ctx->err.code) return false;
    }
    return true;
}

// True if nodes of the function own functions, which would point into freed memory.
static bool function_is_referenced(const ct_function *f) {
    for (size_t i = 0; f->body && i < f->body->n_nodes; i++) {
        const ct_opdef *op = f->body->nodes[i]->op;
        for (size_t k = 0; k < op->n_fields; k++)
            if (op->fields[k].kind == CT_FIELD_body || op->fields[k].kind == CT_FIELD_bodies)
                return true;
    }
    return false;
}

bool ct_function_free(ct_function *f) {
    if (!f || !f->persistent || function_is_referenced(f)) return false;
    if (f->pinned && f->ctx == ct__ctx())
        for (size_t i = 0; i < f->body->n_captured; i++) ct_unpin_at(f->pinned[i], CT_NOWHERE);
    ct__arena_free(&f->own);
    ct__free(f);
    return true;
}

bool ct_function_end_at(ct_function *f, const ct_tensor *out, size_t n_out, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, f, here, "function", "the function")) return false;
    if (f->ctx != ctx || f->ended || ctx->depth <= f->depth)
        return ct__err(&ctx->err, CT_E_ARGUMENT, here, "function",
                       f->ended ? "the function has ended" : "the function is another context's");
    f->ended = true;
    const bool given = !n_out || ct__given(ctx, out, here, "function", "the list of results");
    f->body = ct__trace_end(ctx, f->body, "function", out, given ? n_out : 0, f->depth);
    return f->body && (!f->persistent || ctx->err.code || function_pin_captured(ctx, f, here));
}

void ct_function_call(const ct_tensor *in, ct_tensor *out, void *function) {
    ct_ctx *ctx = ct__ctx();
    const ct_function *f = function;
    if (!ctx || !ct__given(ctx, f, CT_NOWHERE, "function", "the function")) return;
    if (!f->ended || !f->body) return; // the caller reports that outputs are missing
    const size_t n = f->body->n_params, captured = f->body->n_captured;
    if ((n && !ct__given(ctx, in, f->body->here, "function", "the list of operands")) ||
        (f->body->n_outs &&
         !ct__given(ctx, out, f->body->here, "function", "the array for results")))
        return;
    ct_tensor *args = ct__arena(ct__top(ctx)->arena, (n + captured + 1) * sizeof *args);
    if (!args) {
        ct__err_memory(&ctx->err, f->body->here, "function", (n + captured) * sizeof *args);
        return;
    }
    if (n) memcpy(args, in, n * sizeof *args);
    for (size_t i = 0; i < captured; i++)
        args[n + i] = f->persistent ? f->pinned[i] : ct__handle_of(f->body->captured_from[i]);
    ct__inline(ctx, f->body, args, out);
}
