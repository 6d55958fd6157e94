// Chooses the size of a model that a machine of this kind trains in some minutes: the largest of a list of
// sizes whose time and memory fit, and which has not too many parameters for the text. A matmul is timed to
// estimate the duration under the current load; the choice does not depend on it, so that it is
// reproducible.
#include <math.h>

#include "base/os.h"
#include "data/loader.h"
#include "graph/plans.h"
#include "models/lm.h"

typedef struct model_size {
    int64_t layers, heads, width, context, batch;
} model_size;

static const model_size model_sizes[] = {
    {12, 12, 768, 512, 8}, {8, 8, 512, 256, 16}, {6, 6, 384, 256, 16}, {6, 6, 192, 128, 16},
    {4, 4, 128, 128, 16},  {4, 4, 128, 64, 12},  {2, 2, 64, 64, 8},    {2, 2, 32, 32, 8},
};
enum { N_MODEL_SIZES = sizeof model_sizes / sizeof *model_sizes };

// The intended duration of a training run, in seconds.
static const double size_target_seconds = 300;
// The fraction of a matmul's speed that a step reaches: small operands and elementwise operations cost more
// than their operations count.
static const double size_step_efficiency = 0.2;
// Seconds that are waited for the compiler of the measured matmul.
static const double size_measure_seconds = 3;
// Parameters per token of text beyond which a model only memorises it.
static const double size_max_params_per_token = 8;

// --------------------------------------------------------------------------------------------- costs

// Returns the operations of a batch: forward and backward are three matmuls per weight, and attention adds
// its own two.
static double size_batch_flops(const model_size *r, double parameters) {
    double tokens = (double)(r->batch * r->context);
    return tokens * (6 * parameters + 12 * (double)(r->layers * r->width * r->context));
}

// Returns the GFLOP/s of a square matmul.
static double size_measure_gflops(int64_t n, const char *command, double *seconds, ct_err *err) {
    size_t count = (size_t)(n * n);
    float *values = ct__malloc(count * sizeof *values);
    double best = INFINITY;
    if (!values) {
        ct__err_memory(err, CT_NOWHERE, command, count * sizeof *values);
        return NAN;
    }
    for (size_t i = 0; i < count; i++) values[i] = 1.0f / (float)(i % 31 + 1);
    // Rounds while the kernel is being compiled, in which it is interpreted, do not count.
    double end = ct__now() + size_measure_seconds;
    for (int round = 0; round < 3;) {
        CT_SCOPE;
        ct_tensor a = ct_from(values, CT_F32, CT_DIMS(n, n));
        double begin = ct__now();
        ct_tensor product = ct_matmul(a, a);
        if (!ct_eval(&product, 1)) break;
        double elapsed = ct__now() - begin;
        if (elapsed < best) best = elapsed;
        round += !ct_get_stats().kernels_pending || ct__now() > end;
    }
    ct__free(values);
    *seconds = best;
    return 2 * (double)n * (double)n * (double)n / best * 1e-9;
}

// Times a matmul. The result is 0 if the memory limit is too small for it: the duration is not reported
// then, and the run itself is refused.
static bool size_time_matmul(const char *command, double *gflops, ct_err *err) {
    double seconds = 0;
    *gflops = size_measure_gflops(128, command, &seconds, err);
    // Fast machines need more work to be measured.
    if (!err->code && seconds < 5e-3) *gflops = size_measure_gflops(512, command, &seconds, err);
    if (!err->code) return true;
    *gflops = 0;
    if (err->code != CT_E_LIMIT) return false;
    ct_error_clear();
    return true;
}

// -------------------------------------------------------------------------------------------- choice

static int64_t
size_choose_heads(int64_t width) { // as many as divide the width, with a head of at least 32
    for (int64_t heads = width / 32; heads > 1; heads--)
        if (width % heads == 0) return heads;
    return 1;
}

// Returns the size with the options in place of its own values.
static model_size size_apply_options(model_size r, const ct_lm_train_options *o) {
    if (o->layers) r.layers = o->layers;
    if (o->context) r.context = o->context;
    if (o->batch) r.batch = o->batch;
    if (o->width) r.width = o->width;
    if (o->heads) r.heads = o->heads;
    if (!o->width && o->heads) r.width = (r.width + r.heads - 1) / r.heads * r.heads;
    if (o->width && !o->heads) r.heads = size_choose_heads(r.width);
    return r;
}

// Checks a size as if a step were one batch: with more batches per step the model is the same.
static bool size_is_fast_enough(const model_size *r, const ct_lm_train_options *o,
                                const ct_corpus *corpus, double parameters, double gflops) {
    return (size_t)r->context < corpus->n - ct__split(corpus->n) &&
           parameters <= size_max_params_per_token * (double)corpus->n &&
           size_batch_flops(r, parameters) * (double)o->steps <=
               size_target_seconds * gflops * 1e9 * size_step_efficiency;
}

static void size_store_options(const model_size *r, ct_lm_train_options *o) {
    o->layers = r->layers;
    o->heads = r->heads;
    o->width = r->width;
    o->context = r->context;
    o->batch = r->batch;
}

// True if the cost is at most half of the machine's memory, unless there is a memory limit, and not more
// than is available.
static bool size_fits_memory(const ct_lm_cost *cost, bool *is_short) {
    uint64_t half = ct_memory_limit() ? 0 : ct__memory_bytes() / 2;
    bool is_moderate = !half || cost->total <= half, fits = cost->total <= ct__lm_room(cost);
    *is_short |= is_moderate && !fits && !ct_memory_limit();
    return is_moderate && fits;
}

bool ct__lm_choose(ct_lm_train_options *o, const char *command, const ct_corpus *corpus,
                   ct_lm_count_fn count, ct_lm_dry_run_fn dry_run, void *user, ct_lm_size *size,
                   ct_err *err) {
    const ct_lm_train_options requested = *o;
    *size = (ct_lm_size){.is_chosen = !o->layers || !o->width || !o->context || !o->batch};
    if (size->is_chosen && !size_time_matmul(command, &size->gflops, err)) return false;
    const double gflops = ct__ctx_gflops(ct__ctx());
    model_size r = {0};
    double parameters = 0;
    for (size_t i = size->is_chosen ? 0 : N_MODEL_SIZES - 1; i < N_MODEL_SIZES; i++) {
        r = size_apply_options(model_sizes[i], &requested);
        bool last = i == N_MODEL_SIZES - 1; // which is taken in any case
        size_store_options(&r, o);
        parameters = (double)count(o, user);
        if (parameters < 0) return false;
        if (!last && !size_is_fast_enough(&r, &requested, corpus, parameters, gflops)) continue;
        // A lack of available memory is no reason to choose a size that recomputes.
        if (!dry_run(o, last || ct_memory_limit(), &size->cost, user)) return false;
        if (last || size_fits_memory(&size->cost, &size->memory_is_short)) break;
    }
    if (size->gflops > 0)
        size->seconds = size_batch_flops(&r, parameters) * (double)o->steps *
                        (double)o->accumulate / (size->gflops * 1e9 * size_step_efficiency);
    // The forward pass is a third of a step.
    if (size->cost.recomputed_blocks)
        size->seconds *= 1 + (double)size->cost.recomputed_blocks / (double)size->cost.blocks / 3;
    return true;
}
