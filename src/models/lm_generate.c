// A text that a model writes behind a prompt: an engine with one request.
#include "base/mem.h"
#include "cotan/engine.h"
#include "models/engine.h"
#include "models/lm_sampling.h"

typedef struct hearing {
    const ct_lm_generate_args *args;
    ct_err failed; // what the request ended with
} hearing;

static bool hear(const ct_engine_token *t, void *user) {
    const hearing *h = user;
    const ct_lm_generate_args *a = h->args;
    return !a->token || a->token(t->token, t->log_probability, a->user);
}

static void end(const ct_engine_result *result, void *user) {
    hearing *h = user;
    if (result->end == CT_ENGINE_FAILED)
        ct__err(&h->failed, CT_E_DATA, h->args->here, "lm_generate", "%s", result->why);
}

// Room for the one text alone.
static ct_engine *engine_for(const ct_lm_generate_args *a, int64_t most) {
    const int64_t model = a->lm->spec.context ? a->lm->spec.context : INT32_MAX,
                  all = (int64_t)a->n_prompt + (most < model ? most : model);
    return ct__engine_new(
        a->lm,
        (ct_engine_options){
            .texts = 1, .context = all < model ? all : model, .piece = 128, .here = a->here},
        "lm_generate");
}

static bool generate(const ct_lm_generate_args *a, ct_engine *e, ct_ctx *ctx) {
    hearing h = {.args = a};
    ct_engine_request request = {.prompt = a->prompt,
                                 .n_prompt = a->n_prompt,
                                 .most = a->most ? a->most : 256,
                                 .ends = a->ends,
                                 .n_ends = a->n_ends,
                                 .sampling = a->sampling,
                                 .log_probabilities = a->token != NULL,
                                 .token = hear,
                                 .done = end,
                                 .user = &h,
                                 .here = a->here};
    if (!ct__engine_add(e, &request, "lm_generate")) return false;
    while (!(a->stop && a->stop(a->user)) && ct_engine_step_at(e, a->here)) continue;
    if (h.failed.code && !ctx->err.code) ctx->err = h.failed;
    return !ctx->err.code;
}

bool ct_lm_generate_with(ct_lm_generate_args args) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, args.lm, args.here, "lm_generate", "the model") ||
        !ct__given(ctx, args.prompt, args.here, "lm_generate", "the prompt") || ctx->err.code)
        return false;
    if (args.lm->reader || args.beams > 1 || args.beams < 0) return ct__lm_search(&args);
    ct_engine *e = engine_for(&args, args.most > 0 ? args.most : 256);
    const bool ok = e && generate(&args, e, ctx);
    ct_engine_free(e);
    return ok;
}
