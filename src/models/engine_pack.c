// Packs the kernels of a model's engine for other machines: its steps are planned for each of them.
#include "graph/plans.h"
#include "models/engine.h"

typedef struct pack_steps {
    const ct_pretrained *model;
    const ct_kernels_options *options;
} pack_steps;

// Makes the plans of all steps, and discards them.
static bool pack_plan_steps(const void *user) {
    const pack_steps *steps = user;
    const ct_kernels_options *o = steps->options;
    ct_engine *e =
        ct_engine_new_with(steps->model->lm, (ct_engine_options){.max_sequences = 2,
                                                                 .context = o->context,
                                                                 .cache_dtype = o->cache_dtype,
                                                                 .max_draft_tokens = 1,
                                                                 .here = o->here});
    const bool ok = e && ct_engine_warm_up_at(e, o->here);
    ct_engine_free(e);
    return ok;
}

bool ct_kernels_pack_with(const ct_pretrained *model, const char *path, ct_kernels_packed *info,
                          ct_kernels_options options) {
    static const char op[] = "kernels_pack";
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, model, options.here, op, "the model") ||
        !ct__given(ctx, path, options.here, op, "the path") || ctx->err.code)
        return false;
    if (!model->is_generative)
        return ct__err(&ctx->err, CT_E_UNSUPPORTED, options.here, op,
                       "%s is an encoder: kernels are packed of models that write", model->type);
    const pack_steps steps = {model, &options};
    return ct__pack_kernels(pack_plan_steps, &steps, path, &options, info, &ctx->err);
}
