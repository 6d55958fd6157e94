// The size of a model that a machine of this kind trains in some minutes: the largest of a ladder
// of sizes whose time, memory and appetite for text fit. A matmul is timed to tell how long it will
// take as things are; the choice does not depend on it, so that it is the same tomorrow.
#include <inttypes.h>
#include <math.h>

#include "backend/memory.h"
#include "base/os.h"
#include "compile/plan.h"
#include "data/loader.h"
#include "graph/graph.h"
#include "models/lm.h"

typedef struct rung {
    int64_t layers, heads, width, context, batch;
} rung;

static const rung ladder[] = {
    {12, 12, 768, 512, 8}, {8, 8, 512, 256, 16}, {6, 6, 384, 256, 16}, {6, 6, 192, 128, 16},
    {4, 4, 128, 128, 16},  {4, 4, 128, 64, 12},  {2, 2, 64, 64, 8},    {2, 2, 32, 32, 8},
};
enum { RUNGS = sizeof ladder / sizeof *ladder };

// A training run should end in about this time, ...
static const double some_minutes = 300;
// ... and its step reaches about this part of a matmul's speed: small operands and the elementwise
// rest cost more than their operations count.
static const double step_efficiency = 0.2;
// Parameters a token of text beyond which a model only learns it by heart.
static const double most_parameters_a_token = 8;

// ------------------------------------------------------------------------------------------- costs

// Of a batch. Forward and backward are three matmuls a weight; attention adds its own two.
static double batch_flops(const rung *r, double parameters) {
    double tokens = (double)(r->batch * r->context);
    return tokens * (6 * parameters + 12 * (double)(r->layers * r->width * r->context));
}

// GFLOP/s of a square matmul.
static double measure(int64_t n, const char *command, double *seconds, ct_err *err) {
    size_t count = (size_t)(n * n);
    float *values = ct__malloc(count * sizeof *values);
    double best = INFINITY;
    if (!values) {
        ct__err_memory(err, CT_NOWHERE, command, count * sizeof *values);
        return NAN;
    }
    for (size_t i = 0; i < count; i++) values[i] = 1.0f / (float)(i % 31 + 1);
    for (int turn = 0; turn < 3; turn++) { // the first one compiles
        CT_SCOPE;
        ct_tensor a = ct_from(values, CT_F32, CT_DIMS(n, n));
        double begin = ct__now();
        ct_tensor product = ct_matmul(a, a);
        if (!ct_eval(&product, 1)) break;
        double took = ct__now() - begin;
        if (turn && took < best) best = took;
    }
    ct__free(values);
    *seconds = best;
    return 2 * (double)n * (double)n * (double)n / best * 1e-9;
}

// 0 where a limit has no room for the product: the duration is not told then, and what is refused
// is the run.
static bool time_a_product(const char *command, double *gflops, ct_err *err) {
    double seconds = 0;
    *gflops = measure(128, command, &seconds, err);
    // Fast machines need more work to show it.
    if (!err->code && seconds < 5e-3) *gflops = measure(512, command, &seconds, err);
    if (!err->code) return true;
    *gflops = 0;
    if (err->code != CT_E_LIMIT) return false;
    ct_error_clear();
    return true;
}

// ------------------------------------------------------------------------------------------ choice

static int64_t heads_for(int64_t width) { // of 32 or more each, as many as divide the width
    for (int64_t heads = width / 32; heads > 1; heads--)
        if (width % heads == 0) return heads;
    return 1;
}

// The rung with what the options say in place of its own.
static rung with_options(rung r, const ct_lm_train_options *o) {
    if (o->layers) r.layers = o->layers;
    if (o->context) r.context = o->context;
    if (o->batch) r.batch = o->batch;
    if (o->width) r.width = o->width;
    if (o->heads) r.heads = o->heads;
    if (!o->width && o->heads) r.width = (r.width + r.heads - 1) / r.heads * r.heads;
    if (o->width && !o->heads) r.heads = heads_for(r.width);
    return r;
}

// As if a step were one batch: who asks for more of them wants the same model with larger steps.
static bool quick_enough(const rung *r, const ct_lm_train_options *o, const ct_corpus *corpus,
                         double parameters, double gflops) {
    return (size_t)r->context < corpus->n - ct__split(corpus->n) &&
           parameters <= most_parameters_a_token * (double)corpus->n &&
           batch_flops(r, parameters) * (double)o->steps <=
               some_minutes * gflops * 1e9 * step_efficiency;
}

static void put_sizes(const rung *r, ct_lm_train_options *o) {
    o->layers = r->layers;
    o->heads = r->heads;
    o->width = r->width;
    o->context = r->context;
    o->batch = r->batch;
}

// Half of the machine's memory, where nobody said how much to use, and never more than is left.
static bool small_enough(const ct_lm_cost *cost, bool *crowded) {
    uint64_t half = ct__memory_limit_asked() ? 0 : ct__memory_bytes() / 2;
    bool suits = !half || cost->memory <= half, fits = cost->memory <= ct__lm_room(cost);
    *crowded |= suits && !fits && !ct__memory_limit_asked();
    return suits && fits;
}

bool ct__lm_choose(ct_lm_train_options *o, const char *command, const ct_corpus *corpus,
                   ct_lm_count_fn count, ct_lm_rehearse_fn rehearse, void *user, ct_lm_size *size,
                   ct_err *err) {
    const ct_lm_train_options asked = *o;
    *size = (ct_lm_size){.chosen = !o->layers || !o->width || !o->context || !o->batch};
    if (size->chosen && !time_a_product(command, &size->gflops, err)) return false;
    const double gflops = ct__ctx_gflops(ct__ctx());
    rung r = {0};
    double parameters = 0;
    for (size_t i = size->chosen ? 0 : RUNGS - 1; i < RUNGS; i++) {
        r = with_options(ladder[i], &asked);
        bool last = i == RUNGS - 1; // which is taken in any case
        put_sizes(&r, o);
        parameters = (double)count(o, user);
        if (parameters < 0) return false;
        if (!last && !quick_enough(&r, &asked, corpus, parameters, gflops)) continue;
        // What is left now is no reason to choose a size that computes more.
        if (!rehearse(o, last || ct__memory_limit_asked(), &size->cost, user)) return false;
        if (last || small_enough(&size->cost, &size->crowded)) break;
    }
    if (size->gflops > 0)
        size->seconds = batch_flops(&r, parameters) * (double)o->steps * (double)o->accumulate /
                        (size->gflops * 1e9 * step_efficiency);
    // A third of a step is the forward pass.
    if (size->cost.again)
        size->seconds *= 1 + (double)size->cost.again / (double)size->cost.blocks / 3;
    return true;
}
