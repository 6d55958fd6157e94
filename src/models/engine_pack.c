// The kernels of a model's engine, for other machines: its steps are planned, for each level of processors and number
// of cores, by devices that record kernels and run nothing.
#include <string.h>

#include "backend/cpu/pack.h"
#include "base/os.h"
#include "compile/plan.h"
#include "models/engine.h"
#include "ops/rules.h"

typedef struct recorder {
    ct_recorder is; // first
    ct_pack_texts *to;
} recorder;

static bool record(ct_recorder *self, const ct_kernel *kernel, ct_err *err) {
    return ct__pack_note(((recorder *)self)->to, kernel->name, kernel->text, err);
}

// Makes the plans of all steps, in a context of its own, and forgets them.
static bool plan_steps(const ct_pretrained *m, const ct_kernels_options *o) {
    ct_engine *e = ct_engine_new_with(
        m->lm,
        (ct_engine_options){
            .texts = 2, .context = o->context, .dtype = o->dtype, .guesses = 1, .here = o->here});
    const bool ok = e && ct_engine_warm_at(e, o->here);
    ct_engine_free(e);
    return ok;
}

static bool plan_for(const ct_pretrained *m, const ct_kernels_options *o, int level, int cores,
                     ct_pack_texts *texts, ct_err *err) {
    recorder r = {{ct__levels[level].target, record}, texts};
    ct_ctx *outer = ct__ctx(), *own = ct_ctx_new();
    if (!own) return ct__err_memory(err, o->here, "kernels_pack", sizeof *own);
    r.is.target.cores = cores;
    r.is.target.gflops *= cores;
    ct_ctx_use(own);
    bool ok = ct_set_device("cpu");
    if (ok) ct__ctx_record(own, &r.is);
    ok = ok && plan_steps(m, o);
    if (!ok) *err = own->err;
    own->err.code = CT_OK;
    ct_ctx_use(outer);
    ct_ctx_free(own);
    return ok;
}

// The power of two that is not below.
static int exponent_of(int64_t cores) {
    int i = 0;
    while (i < 6 && (int64_t)1 << i < cores) i++;
    return i;
}

static bool has_others(const ct_pack_texts *texts, const ct_pack_texts *than) {
    for (size_t i = 0, at = 0; i < texts->n; i++) {
        for (at = 0; at < than->n && !ct__hash_equal(than->v[at].key, texts->v[i].key); at++)
            continue;
        if (at == than->n) return true;
    }
    return false;
}

// One number of cores shows whether the model multiplies pairs of bf16.
static bool plan_all(const ct_pretrained *m, const ct_kernels_options *o, ct_pack_job *job,
                     ct_err *err) {
    enum { PAIRS = CT_PACK_LEVELS - 1 };
    for (int level = 0; level < CT_PACK_LEVELS; level++) {
        job->pairs = level == PAIRS;
        for (int i = 0; i < 7 && (level < PAIRS || job->pairs); i++) {
            if (!(job->cores >> i & 1)) continue;
            if (!plan_for(m, o, level, 1 << i, &job->texts[level], err)) return false;
            if (level == PAIRS) job->pairs = has_others(&job->texts[PAIRS], &job->texts[PAIRS - 1]);
        }
    }
    return true;
}

bool ct_kernels_pack_with(const ct_pretrained *model, const char *path, ct_kernels_packed *packed,
                          ct_kernels_options options) {
    static const char op[] = "kernels_pack";
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, model, options.here, op, "the model") ||
        !ct__given(ctx, path, options.here, op, "the path") || ctx->err.code)
        return false;
    if (!model->writes)
        return ct__err(&ctx->err, CT_E_UNSUPPORTED, options.here, op,
                       "%s is an encoder: kernels are packed of models that write", model->type);
    if (options.cores < 0 || options.cores > CT_PACK_MOST_CORES)
        return ct__err(&ctx->err, CT_E_ARGUMENT, options.here, op,
                       "cores is %lld, it must be 1 to %d", (long long)options.cores,
                       CT_PACK_MOST_CORES);
    ct_pack_job job = {.cores = options.cores ? (uint64_t)1 << exponent_of(options.cores) : 127,
                       .progress = options.progress,
                       .user = options.user,
                       .threads = ct__cpu_threads()};
    size_t kernels = 0, bytes = 0;
    const bool ok = plan_all(model, &options, &job, &ctx->err) &&
                    ct__pack_write(&job, path, &kernels, &bytes, &ctx->err);
    for (int i = 0; i < CT_PACK_LEVELS; i++) ct__pack_texts_free(&job.texts[i]);
    if (packed) *packed = (ct_kernels_packed){kernels, bytes};
    if (!ok) ct__err_place(&ctx->err, options.here, op);
    return ok;
}

bool ct_kernels_load_at(const char *path, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, path, here, "kernels_load", "the path") || ctx->err.code)
        return false;
    return ct__pack_load(path, &ctx->err) || ct__err_place(&ctx->err, here, "kernels_load");
}

const char *ct_kernels_level(void) { return ct__pack_level(); }
