// Records the kernels of a model's engine for other machines: its steps are planned for each instruction
// set level and number of cores, by devices that record kernels and run nothing.
#include <string.h>

#include "backend/cpu/pack.h"
#include "base/os.h"
#include "compile/plan.h"
#include "models/engine.h"
#include "ops/rules.h"

typedef struct pack_recorder {
    ct_recorder is; // must be the first field
    ct_pack_texts *to;
} pack_recorder;

static bool pack_record_kernel(ct_recorder *self, const ct_kernel *kernel, ct_err *err) {
    return ct__pack_add_text(((pack_recorder *)self)->to, kernel->name, kernel->text, err);
}

// Makes the plans of all steps in a context of its own, and discards them.
static bool pack_plan_steps(const ct_pretrained *m, const ct_kernels_options *o) {
    ct_engine *e = ct_engine_new_with(m->lm, (ct_engine_options){.max_sequences = 2,
                                                                 .context = o->context,
                                                                 .cache_dtype = o->cache_dtype,
                                                                 .max_draft_tokens = 1,
                                                                 .here = o->here});
    const bool ok = e && ct_engine_warm_up_at(e, o->here);
    ct_engine_free(e);
    return ok;
}

static bool pack_plan_target(const ct_pretrained *m, const ct_kernels_options *o, int level,
                             int cores, ct_pack_texts *sources, ct_err *err) {
    pack_recorder r = {{ct__levels[level].target, pack_record_kernel}, sources};
    ct_ctx *outer = ct__ctx(), *new_ctx = ct_ctx_new();
    if (!new_ctx) return ct__err_memory(err, o->here, "kernels_pack", sizeof *new_ctx);
    r.is.target.cores = cores;
    r.is.target.gflops *= cores;
    ct_ctx_use(new_ctx);
    bool ok = ct_set_device("cpu");
    if (ok) ct__ctx_set_recorder(new_ctx, &r.is);
    ok = ok && pack_plan_steps(m, o);
    if (!ok) *err = new_ctx->err;
    new_ctx->err.code = CT_OK;
    ct_ctx_use(outer);
    ct_ctx_free(new_ctx);
    return ok;
}

// Returns the exponent of the smallest power of two that is not below `cores`.
static int pack_log2_cores(int64_t cores) {
    int i = 0;
    while (i < 6 && (int64_t)1 << i < cores) i++;
    return i;
}

static bool pack_has_other_kernels(const ct_pack_texts *sources, const ct_pack_texts *base) {
    for (size_t i = 0, at = 0; i < sources->n; i++) {
        for (at = 0; at < base->n && !ct__hash_equal(base->v[at].key, sources->v[i].key); at++)
            continue;
        if (at == base->n) return true;
    }
    return false;
}

// A single core count shows whether the model has kernels with bf16 pair products (the last level).
static bool pack_plan_all(const ct_pretrained *m, const ct_kernels_options *o, ct_pack_job *job,
                          ct_err *err) {
    enum { PAIRS = CT_PACK_LEVELS - 1 };
    for (int level = 0; level < CT_PACK_LEVELS; level++) {
        job->pairs = level == PAIRS;
        for (int i = 0; i < 7 && (level < PAIRS || job->pairs); i++) {
            if (!(job->cores >> i & 1)) continue;
            if (!pack_plan_target(m, o, level, 1 << i, &job->texts[level], err)) return false;
            if (level == PAIRS)
                job->pairs = pack_has_other_kernels(&job->texts[PAIRS], &job->texts[PAIRS - 1]);
        }
    }
    return true;
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
    if (options.cores < 0 || options.cores > CT_PACK_MOST_CORES)
        return ct__err(&ctx->err, CT_E_ARGUMENT, options.here, op,
                       "cores is %lld, it must be 1 to %d", (long long)options.cores,
                       CT_PACK_MOST_CORES);
    ct_pack_job job = {.cores = options.cores ? (uint64_t)1 << pack_log2_cores(options.cores) : 127,
                       .progress = options.progress,
                       .user = options.user,
                       .threads = ct__cpu_threads()};
    size_t kernels = 0, bytes = 0;
    const bool ok = pack_plan_all(model, &options, &job, &ctx->err) &&
                    ct__pack_write(&job, path, &kernels, &bytes, &ctx->err);
    for (int i = 0; i < CT_PACK_LEVELS; i++) ct__pack_texts_free(&job.texts[i]);
    if (info) *info = (ct_kernels_packed){kernels, bytes};
    if (!ok) ct__err_place(&ctx->err, options.here, op);
    return ok;
}

bool ct_kernels_load_at(const char *path, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, path, here, "kernels_load", "the path") || ctx->err.code)
        return false;
    return ct__pack_load(path, &ctx->err) || ct__err_place(&ctx->err, here, "kernels_load");
}

const char *ct_kernels_isa(void) { return ct__pack_level(); }
