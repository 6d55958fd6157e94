// Records kernels for other machines: plans are made for each instruction set level and number of cores, by
// devices that record kernels and run nothing.
#include "backend/cpu/pack.h"
#include "compile/plan.h"

// What is packed: the plans that `plan` makes, for all levels and numbers of cores.
typedef struct pack_plans {
    bool (*plan)(const void *user);
    const void *user;
    ct_loc here;
} pack_plans;

typedef struct pack_recorder {
    ct_recorder is; // must be the first field
    ct_pack_texts *to;
} pack_recorder;

static bool pack_record_kernel(ct_recorder *self, const ct_kernel *kernel, ct_err *err) {
    return ct__pack_add_text(((pack_recorder *)self)->to, kernel->name, kernel->text, err);
}

static bool pack_plan_target(const pack_plans *p, int level, int cores, ct_pack_texts *sources,
                             ct_err *err) {
    pack_recorder r = {{ct__levels[level].target, pack_record_kernel}, sources};
    ct_ctx *outer = ct__ctx(), *new_ctx = ct_ctx_new();
    if (!new_ctx) return ct__err_memory(err, p->here, "kernels_pack", sizeof *new_ctx);
    r.is.target.cores = cores;
    r.is.target.gflops *= cores;
    ct_ctx_use(new_ctx);
    bool ok = ct_set_device("cpu");
    if (ok) ct__ctx_set_recorder(new_ctx, &r.is);
    ok = ok && p->plan(p->user);
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
static bool pack_plan_all(const pack_plans *p, ct_pack_job *job, ct_err *err) {
    enum { PAIRS = CT_PACK_LEVELS - 1 };
    for (int level = 0; level < CT_PACK_LEVELS; level++) {
        job->pairs = level == PAIRS;
        for (int i = 0; i < 7 && (level < PAIRS || job->pairs); i++) {
            if (!(job->cores >> i & 1)) continue;
            if (!pack_plan_target(p, level, 1 << i, &job->texts[level], err)) return false;
            if (level == PAIRS)
                job->pairs = pack_has_other_kernels(&job->texts[PAIRS], &job->texts[PAIRS - 1]);
        }
    }
    return true;
}

bool ct__pack_kernels(bool (*plan)(const void *user), const void *user, const char *path,
                      const ct_kernels_options *options, ct_kernels_packed *packed, ct_err *err) {
    static const char op[] = "kernels_pack";
    const pack_plans plans = {plan, user, options->here};
    const int64_t cores = options->cores;
    if (cores < 0 || cores > CT_PACK_MOST_CORES)
        return ct__err(err, CT_E_ARGUMENT, options->here, op, "cores is %lld, it must be 1 to %d",
                       (long long)cores, CT_PACK_MOST_CORES);
    ct_pack_job job = {.cores = cores ? (uint64_t)1 << pack_log2_cores(cores) : 127,
                       .progress = options->progress,
                       .user = options->user,
                       .threads = ct_threads()};
    ct_kernels_packed written = {0};
    const bool ok = pack_plan_all(&plans, &job, err) &&
                    ct__pack_write(&job, path, &written.kernels, &written.bytes, err);
    for (int i = 0; i < CT_PACK_LEVELS; i++) ct__pack_texts_free(&job.texts[i]);
    if (packed) *packed = written;
    return ok || ct__err_locate(err, options->here, op);
}

bool ct_kernels_load_at(const char *path, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, path, here, "kernels_load", "the path") || ctx->err.code)
        return false;
    return ct__pack_load(path, &ctx->err) || ct__err_locate(&ctx->err, here, "kernels_load");
}

const char *ct_kernels_isa(void) { return ct__pack_level(); }
