// The benchmark `train gpt2`.
#include <cotan/lm.h>
#include <cotan/optim.h>
#include <stdlib.h>
#include <string.h>

#include "rows.h"

enum { WARMUP_STEPS = 3 }; // the first steps, which compile and touch memory for the first time

size_t gpt2_options(bench_settings *s, opt *out) {
    static const char *const names[] = {"fp32", "bf16", NULL};
    size_t n = 0;
    s->batch = 4, s->context = 64, s->steps = 12;
    out[n++] = (opt){"batch", OPT_INT, "N", "texts a step (4)", 1, 1 << 16, .out = &s->batch};
    out[n++] = (opt){"context", OPT_INT, "N", "tokens a text (64)", 1, 1 << 20, .out = &s->context};
    out[n++] = (opt){
        "steps", OPT_INT,         "N", "steps; the first three do not count (12)", WARMUP_STEPS + 1,
        1e6,     .out = &s->steps};
    out[n++] = (opt){"precision",      OPT_CHOICE,
                     "NAME",           "of products: fp32 or bf16; weights stay fp32 (fp32)",
                     .choices = names, .out = &s->precision};
    out[n++] = (opt){"layers", OPT_INT, "N", "layers (12)", 1, 1000, .out = &s->layers};
    out[n++] =
        (opt){"heads", OPT_INT,         "N", "attention heads; they divide the width (12)", 1,
              1000,    .out = &s->heads};
    out[n++] = (opt){"width", OPT_INT, "N", "numbers a token (768)", 1, 65536, .out = &s->width};
    return n;
}

typedef struct training {
    ct_lm_config config;
    ct_lm *model;
    ct_optim *optim;
    int64_t batch, context;
    int32_t *tokens, *targets; // (batch, context)
    uint32_t state;            // of the random tokens
    ct_dtype precision;
} training;

static uint32_t gpt2_random(uint32_t *state) { // xorshift: the tokens only have to vary
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

// Returns the milliseconds of a step, from recording until the weights are updated; negative: it failed.
static double gpt2_step(training *t, double *loss) {
    for (int64_t i = 0; i < t->batch * t->context; i++) {
        t->tokens[i] = (int32_t)(gpt2_random(&t->state) % (uint32_t)t->config.vocab);
        t->targets[i] = (int32_t)(gpt2_random(&t->state) % (uint32_t)t->config.vocab);
    }
    double begin = bench_now();
    {
        CT_SCOPE;
        ct_ints dims = CT_DIMS(t->batch, t->context);
        ct_tensor in = ct_from(t->tokens, CT_I32, dims);  // (B, T)
        ct_tensor to = ct_from(t->targets, CT_I32, dims); // (B, T)
        ct_nn_mode mode = {.training = true};
        ct_tensor value;
        {
            CT_AUTOCAST(t->precision);
            value = ct_lm_loss(t->model, in, to, &mode); // ()
        }
        ct_optim_step(t->optim, value);
        ct_metric("loss", value);
    }
    *loss = ct_metric_value("loss");
    return ct_failed() ? -1 : (bench_now() - begin) * 1e3;
}

// Flops of the products of the model and of its gradient, two per multiply-add: three times 2 per token
// and matrix weight (the embedding counts once, as the output layer), and three times the scores and
// weighted sums of attention, masked or not.
static double gpt2_step_flops(const training *t) {
    double width = (double)t->config.width, layers = (double)t->config.layers,
           tokens = (double)(t->batch * t->context);
    double weights = 12 * layers * width * width + (double)t->config.vocab * width;
    return tokens * (6 * weights + 12 * layers * (double)t->context * width);
}

static ct_lm_config gpt2_config(const bench_settings *s) {
    ct_lm_config config = {
        .vocab = 50257, .context = 1024, .layers = 12, .heads = 12, .width = 768};
    if (s->layers) config.layers = s->layers;
    if (s->heads) config.heads = s->heads;
    if (s->width) config.width = s->width;
    if (s->context > config.context) config.context = s->context;
    return config;
}

static bool gpt2_begin(training *t, const bench_settings *s) {
    t->batch = s->batch, t->context = s->context, t->state = 12345;
    t->precision = s->precision == 1 ? CT_BF16 : CT_F32;
    size_t bytes = (size_t)(t->batch * t->context) * sizeof *t->tokens;
    t->tokens = malloc(bytes);
    t->targets = malloc(bytes);
    t->model = ct_lm_new(&t->config, 1337);
    if (!t->model) return false;
    t->optim = ct_adamw(ct_lm_params(t->model), .lr = 1e-3, .clip = 1.0, .weight_decay = CT_F(0.1));
    return t->optim && t->tokens && t->targets;
}

static void gpt2_end(training *t) {
    ct_optim_free(t->optim);
    ct_lm_free(t->model);
    free(t->tokens);
    free(t->targets);
}

// Runs one step per input line, after the warm-up steps.
static int gpt2_serve_stdin(training *t, const bench_settings *s) {
    char line[64];
    double loss, ms = 0;
    for (int i = 0; i < WARMUP_STEPS && ms >= 0; i++) ms = gpt2_step(t, &loss);
    if (ms < 0) return report_error();
    printf("{\"cases\": [{\"case\": \"step\", \"flops\": %.17g, \"bytes\": 0, "
           "\"random_words\": 0}], \"threads\": %d, \"version\": \"%s\"}\n",
           gpt2_step_flops(t), s->threads, CT_VERSION);
    while (bench_next_line(line, sizeof line)) {
        if (strcmp(line, "limits") == 0) {
            ct_machine_limits limits = {0};
            if (!ct_measure_machine_limits(&limits, s->threads, false)) return EXIT_FAILED;
            printf("{\"limits\": {\"flops_per_s\": %.6g}}\n", limits.flops);
            continue;
        }
        if (strcmp(line, "step") != 0)
            return usage_error("train gpt2: there is no case \"%s\"", printable(line));
        if ((ms = gpt2_step(t, &loss)) < 0) return report_error();
        printf("{\"case\": \"step\", \"ms\": %.6g, \"loss\": %.9g, \"peak_rss_bytes\": %lld}\n", ms,
               loss, (long long)bench_peak_rss());
    }
    return EXIT_DONE;
}

typedef struct results {
    double ms, tokens_per_s, flops, limit_fraction, compile_ms;
    int64_t rss, params;
    const double *all, *losses; // (steps)
} results;

static void gpt2_put_list(const char *name, const char *format, const double *v, int64_t n) {
    printf(", \"%s\": [", name);
    for (int64_t i = 0; i < n; i++) {
        if (i) printf(", ");
        printf(*format == 'm' ? "%.6g" : "%.9g", v[i]);
    }
    printf("]");
}

static void gpt2_put_results(const results *r, const bench_settings *s) {
    printf("{\"row\": \"train gpt2\", \"ms_per_step\": %.6g", r->ms);
    if (!s->summary) gpt2_put_list("ms_steps", "ms", r->all, s->steps);
    printf(", \"tokens_per_s\": %.6g, \"peak_rss_bytes\": %lld, \"flops_per_step\": %.17g, "
           "\"limit_fraction\": %.4f, \"threads\": %d, \"params\": %lld",
           r->tokens_per_s, (long long)r->rss, r->flops, r->limit_fraction, s->threads,
           (long long)r->params);
    if (!s->summary) gpt2_put_list("losses", "loss", r->losses, s->steps);
    printf(", \"compile_ms\": %.6g, \"precision\": \"%s\", \"batch\": %lld, \"context\": %lld, "
           "\"version\": \"%s\"}\n",
           r->compile_ms, s->precision == 1 ? "bf16" : "fp32", (long long)s->batch,
           (long long)s->context, CT_VERSION);
}

static int gpt2_train_alone(training *t, const bench_settings *s) {
    size_t steps = (size_t)s->steps, kept = steps - WARMUP_STEPS;
    double *all = malloc(steps * sizeof *all), *losses = malloc(steps * sizeof *losses),
           *sorted = malloc(kept * sizeof *sorted);
    ct_machine_limits limits = {0};
    bool ok = all && losses && sorted && ct_measure_machine_limits(&limits, s->threads, false);
    int status = ok ? EXIT_DONE : EXIT_FAILED;
    for (size_t i = 0; ok && i < steps; i++) {
        all[i] = gpt2_step(t, &losses[i]);
        ok = all[i] >= 0;
        if (ok)
            fprintf(stderr, "step %zu/%zu: loss %.4f, %.1f ms\n", i + 1, steps, losses[i], all[i]);
        else
            status = report_error();
    }
    if (ok && ct_measure_machine_limits(&limits, s->threads, false)) {
        memcpy(sorted, all + WARMUP_STEPS, kept * sizeof *sorted);
        results r = {.ms = bench_median(sorted, kept),
                     .flops = gpt2_step_flops(t),
                     .rss = bench_peak_rss(),
                     .params = ct_params_size(ct_lm_params(t->model)),
                     .all = all,
                     .losses = losses};
        r.tokens_per_s = (double)(t->batch * t->context) * 1e3 / r.ms;
        r.limit_fraction = r.flops * 1e3 / r.ms / limits.flops;
        r.compile_ms = all[0] > r.ms ? all[0] - r.ms : 0;
        if (s->json)
            gpt2_put_results(&r, s);
        else
            printf("%lld parameters, %d threads: %.1f ms a step, %.0f tokens/s, %.2f of %.0f "
                   "GFLOP/s, %.0f MB at most; the first step %.0f ms longer\n",
                   (long long)r.params, s->threads, r.ms, r.tokens_per_s, r.limit_fraction,
                   limits.flops * 1e-9, (double)r.rss * 1e-6, r.compile_ms);
    }
    free(all);
    free(losses);
    free(sorted);
    return status;
}

int run_gpt2(const bench_settings *s) {
    training t = {.config = gpt2_config(s)};
    if (t.config.width % t.config.heads)
        return usage_error("train gpt2: a width of %lld is no multiple of %lld heads",
                           (long long)t.config.width, (long long)t.config.heads);
    int status = !gpt2_begin(&t, s) ? report_error()
                 : s->from_stdin    ? gpt2_serve_stdin(&t, s)
                                    : gpt2_train_alone(&t, s);
    gpt2_end(&t);
    return status;
}
