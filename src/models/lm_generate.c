// Generates a continuation of a prompt: an engine with one request.
#include "cotan/engine.h"
#include "models/engine.h"

typedef struct generate_state {
    const ct_lm_generate_args *args;
    ct_err error; // the error that the request ended with
} generate_state;

static bool generate_on_token(const ct_engine_token *t, void *user) {
    const generate_state *h = user;
    const ct_lm_generate_args *a = h->args;
    return !a->on_token || a->on_token(t->token, t->logprob, a->user);
}

static void generate_on_finish(const ct_engine_result *result, void *user) {
    generate_state *h = user;
    if (result->finish_reason == CT_ENGINE_FAILED)
        ct__err(&h->error, CT_E_DATA, h->args->here, "lm_generate", "%s", result->error);
}

// Makes an engine with the capacity for one sequence.
static ct_engine *generate_make_engine(const ct_lm_generate_args *a, int64_t max_tokens) {
    const int64_t max_context = a->lm->spec.context ? a->lm->spec.context : INT32_MAX,
                  total =
                      (int64_t)a->n_prompt + (max_tokens < max_context ? max_tokens : max_context);
    return ct__engine_new(a->lm,
                          (ct_engine_options){.max_sequences = 1,
                                              .context = total < max_context ? total : max_context,
                                              .prefill_chunk = 128,
                                              .here = a->here},
                          "lm_generate");
}

static bool generate_run(const ct_lm_generate_args *a, ct_engine *e, ct_ctx *ctx) {
    generate_state h = {.args = a};
    ct_engine_request request = {.prompt = a->prompt,
                                 .n_prompt = a->n_prompt,
                                 .max_tokens = a->max_tokens ? a->max_tokens : 256,
                                 .eos_ids = a->eos_ids,
                                 .n_eos_ids = a->n_eos_ids,
                                 .sampling = a->sampling,
                                 .logprobs = a->on_token != NULL,
                                 .on_token = generate_on_token,
                                 .on_finish = generate_on_finish,
                                 .user = &h,
                                 .here = a->here};
    if (!ct__engine_add(e, &request, "lm_generate")) return false;
    while (!(a->should_stop && a->should_stop(a->user)) && ct_engine_step_at(e, a->here)) continue;
    if (h.error.code && !ctx->err.code) ctx->err = h.error;
    return !ctx->err.code;
}

bool ct_lm_generate_with(ct_lm_generate_args args) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, args.lm, args.here, "lm_generate", "the model") ||
        !ct__given(ctx, args.prompt, args.here, "lm_generate", "the prompt") || ctx->err.code)
        return false;
    if (args.lm->reader || args.beams > 1 || args.beams < 0) return ct__lm_search(&args);
    ct_engine *e = generate_make_engine(&args, args.max_tokens > 0 ? args.max_tokens : 256);
    const bool ok = e && generate_run(&args, e, ctx);
    ct_engine_free(e);
    return ok;
}
