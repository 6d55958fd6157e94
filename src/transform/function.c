// Functions that are traced in two halves: see include/cotan/binding.h.
#include <string.h>

#include "cotan/binding.h"
#include "ops/rules.h"
#include "transform/trace.h"

struct ct_function { // in the arena of the frame in which it was begun
    ct_ctx *ctx;
    ct_body *body;
    size_t depth; // of the scopes around it
    bool ended;
};

ct_function *ct_function_begin_at(const ct_dtype *dtypes, const ct_ints *dims, size_t n_in,
                                  ct_tensor *params, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__possible(ctx, n_in, here, "function", "the parameters") ||
        (n_in && (!ct__given(ctx, dtypes, here, "function", "the list of dtypes") ||
                  !ct__given(ctx, dims, here, "function", "the list of shapes") ||
                  !ct__given(ctx, params, here, "function", "the room for the parameters"))))
        return NULL;
    ct_arena *arena = ct__top(ctx)->arena;
    const size_t depth = ctx->depth;
    ct_function *function = ct__arena_zero(arena, sizeof *function);
    ct_type *types = ct__arena_zero(arena, (n_in + 1) * sizeof *types);
    const ct_type **in = ct__arena_zero(arena, (n_in + 1) * sizeof *in);
    bool ok = function && types && in;
    for (size_t i = 0; i < n_in && ok; i++) {
        in[i] = &types[i];
        if (!ct__type_from_dims(arena, dtypes[i], dims[i], &types[i], &ctx->err, here, "function"))
            return NULL;
    }
    ct_body *body = ok ? ct__trace_begin(ctx, in, n_in, here) : NULL;
    if (!body) {
        while (ctx->depth > depth) ct__frame_pop(ctx, here);
        ct__err_memory(&ctx->err, here, "function", n_in * sizeof *types);
        return NULL;
    }
    *function = (ct_function){.ctx = ctx, .body = body, .depth = depth};
    for (size_t i = 0; i < n_in; i++) params[i] = ct__handle(body->params[i], 0);
    return function;
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
    return f->body != NULL;
}

void ct_function_call(const ct_tensor *in, ct_tensor *out, void *function) {
    ct_ctx *ctx = ct__ctx();
    const ct_function *f = function;
    if (!ctx || !ct__given(ctx, f, CT_NOWHERE, "function", "the function")) return;
    if (!f->ended || !f->body) return; // the caller misses its outputs
    const size_t n = f->body->n_params, captured = f->body->n_captured;
    if ((n && !ct__given(ctx, in, f->body->here, "function", "the list of operands")) ||
        (f->body->n_outs &&
         !ct__given(ctx, out, f->body->here, "function", "the room for results")))
        return;
    ct_tensor *args = ct__arena(ct__top(ctx)->arena, (n + captured + 1) * sizeof *args);
    if (!args) {
        ct__err_memory(&ctx->err, f->body->here, "function", (n + captured) * sizeof *args);
        return;
    }
    if (n) memcpy(args, in, n * sizeof *args);
    for (size_t i = 0; i < captured; i++) args[n + i] = ct__handle_of(f->body->captured_from[i]);
    ct__inline(ctx, f->body, args, out);
}
