// A language model trained on text, from files to the folder that is written.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/memory.h"
#include "base/os.h"
#include "base/plain.h"
#include "base/threefry.h"
#include "compile/plan.h"
#include "cotan/hub.h"
#include "data/loader.h"
#include "graph/graph.h"
#include "io/metrics.h"
#include "io/safetensors.h"
#include "io/utf8.h"
#include "io/weights.h"
#include "models/gpt2.h"
#include "models/lm.h"
#include "optim/stage.h"
#include "train/checkpoint.h"

static const char smaller[] = "a smaller --batch, --context, --width or --layers needs less";

enum { STREAM_WINDOWS = 0, STREAM_DROPOUT = 1, SHOWN_TOKENS = 100, FIRST_LOSS_SCALE = 65536 };

typedef struct run {
    ct_lm_train_options o; // with nothing left open
    const char *command;   // "train" or "plan", for errors
    ct_err *err;
    ct_corpus corpus;
    size_t n_train; // tokens; the others validate
    ct_text characters;
    ct_lexis lexis; // what tokens stand for, where the corpus does not say it
    bool beside;    // its files are in the folder
    ct_learner model;
    ct_learner_cache cache;
    ct_optim *optim;
    int64_t parameters, vocab;  // of the model that the run goes on from; 0: none
    char from[CT_RUN_PATH];     // its folder, or the checkpoint's; "": a new model
    ct_lm_rehearsal *rehearsal; // NULL: the run itself
    uint64_t within;            // bytes that devices are to hold at most; 0: any
    ct_lm_part_fn part;         // hears of a rehearsal's plans
    void *part_user;
    ct_text largest;            // tensors, in words
    ct_tensor position, random; // of the loader, and the seed: variables
    ct_loader loader;
    int32_t *x, *y; // (B, T)
    float *rows;    // (B, 1): 1 for a row that counts
    ct_text sample;
    double heard;                 // when the text's reading was told last
    double val_loss;              // NaN: this process has evaluated nothing yet
    bool trained;                 // a step was done before, or has begun
    bool keeps_best;              // in a folder of its own: the run has patience, or had it
    ct_fit_best best, saved_best; // of the whole run; as it stands in the newest checkpoint
    ct_fit_end end;
    ct_lm_resumed resumed;
    int64_t done;                 // steps, of the weights as they are
    int64_t first, saved;         // steps done before; in the newest checkpoint, -1: there is none
    int lock;                     // of the folder; -1: none
    char own_folder[CT_RUN_PATH]; // where none was named
    bool replaces;                // another run, at the first save
    char dir[CT_RUN_PATH];        // where the files lie; until then not in the folder itself
    char metrics_path[CT_RUN_PATH], plot_path[CT_RUN_PATH];
} run;

// ---------------------------------------------------------------------------------------- options

static void fill_in(ct_lm_train_options *o) {
    if (!o->steps) o->steps = 2000;
    if (!o->accumulate) o->accumulate = 1;
    if (!o->precision) o->precision = CT_F32;
    o->patience = CT_F(ct__num_or(o->patience, 0));
    o->min_delta = CT_F(ct__num_or(o->min_delta, 0));
    if (!o->eval_every) o->eval_every = o->steps >= 10 ? o->steps / 10 : 1;
    if (!o->save_every) o->save_every = o->eval_every;
    o->eval_batches = CT_F(ct__num_or(o->eval_batches, 50));
    o->beta1 = CT_F(ct__num_or(o->beta1, 0.9));
    o->beta2 = CT_F(ct__num_or(o->beta2, 0.99));
    o->weight_decay = CT_F(ct__num_or(o->weight_decay, 0.1));
    o->clip = CT_F(ct__num_or(o->clip, 1));
    double tenth = (double)(o->steps / 10);
    o->warmup = CT_F(ct__num_or(o->warmup, tenth < 100 ? tenth : 100));
}

static double default_lr(const ct_lm_train_options *o) {
    return o->from ? 5e-5 : o->width < 512 ? 1e-3 : 6e-4;
}

// What depends on the size of the model.
static void fill_in_rates(ct_lm_train_options *o) {
    if (o->lr == 0) o->lr = default_lr(o);
    o->min_lr = CT_F(ct__num_or(o->min_lr, o->lr / 10));
}

__attribute__((format(printf, 3, 4))) static bool refuse(ct_err *err, const char *command,
                                                         const char *format, ...) {
    va_list args;
    va_start(args, format);
    ct__err_v(err, CT_E_USAGE, CT_NOWHERE, command, format, args);
    va_end(args);
    return false;
}

static bool in_range(const ct_lm_train_options *o) {
    const int64_t counts[] = {o->layers,     o->heads,  o->width,      o->context,
                              o->batch,      o->steps,  o->eval_every, o->save_every,
                              o->accumulate, o->hidden, o->kv_heads};
    const ct_num numbers[] = {o->min_lr,   o->warmup,       o->weight_decay, o->clip,
                              o->beta1,    o->eval_batches, o->beta2,        CT_F(o->lr),
                              o->patience, o->min_delta};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i] < 0) return false;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (ct__num_given(numbers[i]) && !(numbers[i].value >= 0 && isfinite(numbers[i].value)))
            return false;
    return ct__num_or(o->beta1, 0) < 1 && ct__num_or(o->beta2, 0) < 1 && o->dropout >= 0 &&
           o->dropout < 1;
}

// "bpe:8192": 8192; -1: it says something else.
static int64_t bpe_size(const char *tokens) {
    char *end;
    if (!tokens || strncmp(tokens, "bpe:", 4) != 0) return -1;
    const long long n = strtoll(tokens + 4, &end, 10);
    return *end || end == tokens + 4 || n < 0 || n > INT32_MAX ? 0 : n;
}

static bool usable_tokens(const ct_lm_train_options *o, const char *command, ct_err *err) {
    enum { LEAST = 257, MOST = 1 << 24 };
    const int64_t bpe = bpe_size(o->tokens);
    if (o->tokens && o->from)
        return refuse(err, command, "--tokens is not for --from, whose model has its own");
    static const char *const kinds[] = {"bytes", "chars", "bpe:8192", NULL};
    const char *near = o->tokens && bpe < 0 ? ct__nearest(o->tokens, kinds) : NULL;
    const bool kind = near && strcmp(near, o->tokens) == 0;
    if (o->tokens && bpe < 0 && !kind && access(o->tokens, F_OK) != 0)
        return refuse(err, command,
                      "--tokens is bytes, chars, bpe:8192 (or another number) or the path of a "
                      "tokenizer, not \"%.60s\"%s%s%s",
                      o->tokens, near ? "; is " : "", near ? near : "", near ? " meant?" : "");
    if (bpe >= 0 && (bpe < LEAST || bpe >= MOST))
        return refuse(err, command,
                      "--tokens %.40s: a byte-level BPE has %d tokens at least (256 bytes and the "
                      "end of a text), and fewer than %d",
                      o->tokens, LEAST, MOST);
    return true;
}

static bool usable_model(const ct_lm_train_options *o, const char *command, ct_err *err) {
    const struct {
        const char *option;
        bool given;
    } sizes[] = {{"layers", o->layers},     {"heads", o->heads},   {"width", o->width},
                 {"kv-heads", o->kv_heads}, {"hidden", o->hidden}, {"no-bias", o->no_bias},
                 {"arch", o->arch}};
    for (size_t i = 0; o->from && i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].given)
            return refuse(err, command, "--%s is not for --from, whose model has its own",
                          sizes[i].option);
    if (o->arch && !ct__spec_own_rows(err)) return false;
    if (o->arch && !ct__spec_is_known(o->arch)) {
        ct_arena arena = {0};
        const char *near = ct__spec_nearest(o->arch, &arena);
        refuse(err, command, "--arch %.60s is no architecture that is known", o->arch);
        if (near) ct__err_hint(err, "the nearest that is known is %s", near);
        ct__arena_free(&arena);
        return false;
    }
    const bool stack = o->arch && strcmp(o->arch, "gpt2") != 0;
    if ((o->kv_heads || o->hidden) && !stack)
        return refuse(err, command, "--%s needs --arch: a GPT-2 has no such choice",
                      o->kv_heads ? "kv-heads" : "hidden");
    if (o->no_bias && stack)
        return refuse(err, command, "--no-bias is not for --arch %s, which says what has biases",
                      o->arch);
    if (o->kv_heads && !o->heads) return refuse(err, command, "--kv-heads needs --heads");
    return true;
}

static bool usable(const ct_lm_train_options *o, const char *command, ct_err *err) {
    int64_t steps = o->steps ? o->steps : 2000;
    double lr = o->lr > 0 ? o->lr : default_lr(o);
    if (!in_range(o)) return refuse(err, command, "an option is out of its range");
    if (o->precision && !ct__lm_is_precision(o->precision))
        return refuse(err, command, "the precision is %s, it must be f32, bf16 or f16",
                      ct_dtype_name(o->precision));
    if (o->out && !*o->out)
        return refuse(err, command, "--out is empty: it takes the folder to write");
    if (o->resume && o->out)
        return refuse(err, command, "--out is not for --resume, which goes on in its folder");
    if (o->resume && o->overwrite)
        return refuse(err, command, "--overwrite is not for --resume, which goes on in its folder");
    if (o->resume) return true; // the rest is the run's
    if (o->overwrite && !o->out) return refuse(err, command, "--overwrite needs --out");
    if (ct__num_given(o->resume_step)) return refuse(err, command, "--resume-step needs --resume");
    if (ct__num_or(o->min_delta, 0) > 0 && !(ct__num_or(o->patience, 0) > 0))
        return refuse(err, command, "--min-delta needs --patience");
    if (!o->n_data)
        return refuse(err, command, "--data is missing: files, folders or patterns of text");
    if (!usable_tokens(o, command, err) || !usable_model(o, command, err)) return false;
    if (o->width && o->heads && o->width % o->heads)
        return refuse(err, command, "--width %" PRId64 " is not a multiple of --heads %" PRId64,
                      o->width, o->heads);
    if (ct__num_given(o->min_lr) && o->min_lr.value > lr)
        return refuse(err, command, "--min-lr %g is above --lr %g", o->min_lr.value, lr);
    if (ct__num_given(o->warmup) && o->warmup.value >= (double)steps)
        return refuse(err, command, "--warmup %.0f is not below --steps %" PRId64, o->warmup.value,
                      steps);
    return true;
}

// What has an older name keeps it; GPT-2 is what is meant without a name.
static void name_tokens(ct_lm_train_options *o) {
    const bool chars = o->tokens && strcmp(o->tokens, "chars") == 0;
    if (chars || (o->tokens && strcmp(o->tokens, "bytes") == 0)) {
        o->chars = chars;
        o->given |= CT_LM_GIVEN_CHARS;
        o->tokens = NULL;
    } else if (o->tokens) {
        o->chars = false;
    }
    if (o->arch && strcmp(o->arch, "gpt2") == 0) o->arch = NULL;
}

// A run that holds nothing yet; NULL, with an error: there is no memory for it.
static run *make_run(const ct_lm_train_options *options, const char *command, ct_err *err) {
    run *r = ct__malloc(sizeof *r);
    if (!r) {
        ct__err_memory(err, CT_NOWHERE, command, sizeof *r);
        return NULL;
    }
    *r = (run){
        .o = *options, .command = command, .err = err, .val_loss = NAN, .saved = -1, .lock = -1};
    r->lexis.begin = r->lexis.end = -1;
    return r;
}

// `command`: who begins the sentences that refuse, "train" or "plan".
static run *start(const ct_lm_train_options *options, const char *command, ct_ctx *ctx) {
    if (!ctx || !ct__given(ctx, options, CT_NOWHERE, command, "the options") || ctx->err.code ||
        !usable(options, command, &ctx->err))
        return NULL;
    ct_numerics(); // opens the device, which may refuse what the environment asks of it
    if (ctx->err.code) return NULL;
    run *r = make_run(options, command, &ctx->err);
    if (!r) return r;
    name_tokens(&r->o);
    if (r->o.resume) return r;
    fill_in(&r->o);
    r->keeps_best = r->o.patience.value > 0;
    return r;
}

// Is the model one of the stack's, which any architecture is?
static bool is_stack(const ct_lm_train_options *o) { return o->arch || o->from; }

static ct_lm_sizes sizes_of(const run *r, const ct_lm_train_options *o) {
    return (ct_lm_sizes){.arch = o->arch,
                         .vocab = r->corpus.vocab.n,
                         .context = o->context,
                         .layers = o->layers,
                         .heads = o->heads,
                         .width = o->width,
                         .kv_heads = o->kv_heads,
                         .hidden = o->hidden,
                         .begin = r->lexis.begin,
                         .end = r->lexis.end};
}

static ct_gpt2_config config_of(const run *r, const ct_lm_train_options *o) {
    return (ct_gpt2_config){.vocab = r->corpus.vocab.n,
                            .context = o->context,
                            .layers = o->layers,
                            .heads = o->heads,
                            .width = o->width,
                            .no_bias = o->no_bias,
                            .dropout = o->dropout,
                            .tokens = r->lexis.tokenizer ? NULL
                                      : o->chars         ? "chars"
                                                         : "bytes",
                            .characters = r->characters.s,
                            .characters_n = r->characters.n};
}

static int64_t count_parameters(const ct_lm_train_options *o, void *user) {
    const run *r = user;
    if (r->parameters) return r->parameters;
    if (!o->arch) {
        const ct_gpt2_config config = config_of(r, o);
        return ct_gpt2_size(&config);
    }
    const ct_lm_sizes sizes = sizes_of(r, o);
    ct_arena arena = {0};
    ct_spec spec;
    const int64_t n =
        ct__lm_spec_of(&sizes, &arena, &spec, NULL, r->err) ? ct__stack_size(&spec) : -1;
    ct__arena_free(&arena);
    return n;
}

// ------------------------------------------------------------------------------------------ events

static void tell(run *r, ct_lm_event event) {
    if (r->o.event) r->o.event(&event, r->o.user);
}

static void add_grouped(ct_text *text, int64_t n) { // 12,345,678
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRId64, n);
    for (int i = 0; i < length; i++)
        ct__textf(text, "%s%c", i && (length - i) % 3 == 0 ? "," : "", digits[i]);
}

static void add_duration(ct_text *text, double seconds) {
    if (seconds < 90)
        ct__textf(text, "%.0f s", seconds < 1 ? 1 : seconds);
    else if (seconds < 5400)
        ct__textf(text, "%.0f min", seconds / 60);
    else
        ct__textf(text, "%.1f h", seconds / 3600);
}

static const char *unit_of(const run *r) {
    return r->lexis.tokenizer ? "tokens" : r->o.chars ? "characters" : "bytes";
}

static void tell_model(run *r, const ct_lm_size *size) {
    const ct_lm_train_options *o = &r->o;
    ct_text text = {0};
    if (r->lexis.tokenizer) ct__textf(&text, "%zu bytes of text, ", r->corpus.bytes);
    ct__textf(&text,
              r->lexis.tokenizer ? "%zu %s, %zu to train on; "
                                 : "%zu %s of text, %zu to train on; ",
              r->corpus.n, unit_of(r), r->n_train);
    if (r->lexis.tokenizer && !o->from)
        ct__textf(&text, "a vocabulary of %" PRId32 "; ", r->corpus.vocab.n);
    if (o->from)
        ct__textf(&text, "on from %s, ", o->from);
    else if (o->arch)
        ct__textf(&text, "%s, ", o->arch);
    if (size->chosen && !o->from) ct__text_add(&text, "chosen for this machine: ");
    ct__textf(&text,
              "%" PRId64 " layer%s, %" PRId64 " head%s, width %" PRId64 ", context %" PRId64 ", ",
              o->layers, o->layers == 1 ? "" : "s", o->heads, o->heads == 1 ? "" : "s", o->width,
              o->context);
    if (o->precision != CT_F32) ct__textf(&text, "products in %s, ", ct_dtype_name(o->precision));
    if (o->accumulate > 1)
        ct__textf(&text, "%" PRId64 " batches of %" PRId64 " a step: ", o->accumulate, o->batch);
    else
        ct__textf(&text, "batch %" PRId64 ": ", o->batch);
    add_grouped(&text, count_parameters(o, r));
    ct__textf(&text, " parameters, about %.0f MB of memory", ceil((double)size->cost.memory / 1e6));
    if (size->cost.again)
        ct__textf(&text, " with %zu of %zu blocks computed again in gradients", size->cost.again,
                  size->cost.blocks);
    if (size->seconds > 0) {
        ct__textf(&text, ", about ");
        add_duration(&text, size->seconds);
        ct__textf(&text, " for %" PRId64 " steps (%.3g GFLOP/s measured)", o->steps, size->gflops);
    }
    if (size->crowded)
        ct__text_add(&text, "; this machine has memory for a larger one, but others use it now");
    tell(r, (ct_lm_event){.kind = CT_LM_MODEL, .text = text.failed ? "" : text.s});
    ct__text_free(&text);
}

// What was used, beside what was planned. Where the process once used more than now, for something
// else, its own peak says nothing.
static void tell_memory(run *r, const ct_lm_cost *planned, uint64_t peak_before) {
    ct_text text = {0};
    uint64_t peak = ct__account.peak;
    if (peak <= peak_before) return;
    ct__textf(&text, "memory: tensors %s of %s planned, the process %s of %s",
              ct__bytes_text(peak).s, ct__bytes_text(planned->devices).s,
              ct__bytes_text(ct__resident_peak_bytes()).s, ct__bytes_text(planned->memory).s);
    tell(r, (ct_lm_event){.kind = CT_LM_MEMORY, .text = text.failed ? "" : text.s});
    ct__text_free(&text);
}

// Not before the first evaluation, nor where they were lost, until weights are kept again.
static bool has_best(const run *r) {
    return r->keeps_best && r->best.evaluations && r->best.val_loss < INFINITY;
}

// Why no further step is done, and where the weights are that one wants.
static void tell_end(run *r) {
    ct_text text = {0}, folder = {0};
    if (!r->keeps_best || !r->best.evaluations) return;
    ct__textf(&text, "stopped early, after step %" PRId64 " of %" PRId64 ": the validation loss ",
              r->done, r->o.steps);
    if (r->best.val_loss > r->best.counted) // the weights of that one were lost
        ct__textf(&text, "did not fall below %.4f in %" PRId64 " evaluations", r->best.counted,
                  r->best.stale);
    else if (r->best.val_loss < r->best.counted)
        ct__textf(&text, "fell by no more than %g below %.4f in %" PRId64 " evaluations, to %.4f",
                  r->o.min_delta.value, r->best.counted, r->best.stale, r->best.val_loss);
    else
        ct__textf(&text,
                  "did not improve on the %.4f of step %" PRId64 " in %" PRId64 " evaluations",
                  r->best.val_loss, r->best.steps, r->best.stale);
    if (r->end == CT_FIT_PATIENCE)
        tell(r, (ct_lm_event){.kind = CT_LM_ENDED, .text = text.failed ? "" : text.s});
    ct__textf(&folder, "%s/%s", r->o.out, CT_RUN_BEST);
    if (!folder.failed && has_best(r)) tell(r, (ct_lm_event){.kind = CT_LM_BEST, .text = folder.s});
    ct__text_free(&text);
    ct__text_free(&folder);
}

// Bytes of the held-out text.
static bool held_out_bytes(const run *r, double *bytes) {
    const int32_t *tokens = r->corpus.tokens + r->n_train;
    const size_t n = r->corpus.n - r->n_train;
    char one[4];
    if (r->lexis.tokenizer) return ct__lexis_bytes(&r->lexis, tokens, n, bytes, r->err);
    *bytes = 0;
    for (size_t i = 0; i < n; i++)
        *bytes += r->o.chars ? (double)ct__utf8_put(r->corpus.vocab.chars[tokens[i]], one) : 1;
    return true;
}

// The held-out loss, of the best weights where they are kept; in nats a byte whatever a token is.
static bool tell_done(run *r) {
    bool best = has_best(r);
    double loss = best ? r->best.val_loss : r->val_loss;
    ct_text text = {0};
    double bytes, n = (double)(r->corpus.n - r->n_train);
    if (!held_out_bytes(r, &bytes)) return false;
    ct__textf(&text, "held-out loss: %.4f nats a byte", loss * n / (bytes > 0 ? bytes : 1));
    if (r->o.chars) ct__textf(&text, ", %.4f nats a character", loss);
    if (r->lexis.tokenizer) ct__textf(&text, ", %.4f nats a token", loss);
    if (best) ct__textf(&text, ", after step %" PRId64, r->best.steps);
    tell(r, (ct_lm_event){.kind = CT_LM_DONE, .text = text.failed ? "" : text.s});
    ct__text_free(&text);
    return true;
}

// ------------------------------------------------------------------------------------ what it does

// Values of a batch. A rehearsal has none: its device looks at no values, and a batch that would
// not fit is to be refused without being taken.
static ct_tensor given(const run *r, const void *values, ct_dtype dtype, int64_t columns) {
    static const char unread;
    return ct_from(r->rehearsal ? &unread : values, dtype, CT_DIMS(r->o.batch, columns));
}

static ct_tensor record_loss(int64_t batch, void *user) {
    run *r = user;
    r->trained = true;
    r->loader.step = (uint64_t)batch;
    if (!r->rehearsal) ct__loader_next(&r->loader, r->x, r->y);
    ct_tensor x = given(r, r->x, CT_I32, r->o.context), y = given(r, r->y, CT_I32, r->o.context);
    ct_nn_mode mode = {.training = true, .dropout = (float)r->o.dropout};
    if (r->o.dropout > 0) {
        ct_u32x2 seed = {{(uint32_t)r->o.seed, (uint32_t)(r->o.seed >> 32)}};
        ct_u32x2 key = ct__threefry(seed, (ct_u32x2){{STREAM_DROPOUT, 0}});
        key = ct__threefry(key, (ct_u32x2){{(uint32_t)batch, (uint32_t)((uint64_t)batch >> 32)}});
        mode.key = ct_from(key.v, CT_U32, CT_DIMS(2));
    }
    // With the step, so that it is never another one's, and saving needs no plan of its own.
    if ((batch + 1) % r->o.accumulate == 0) {
        r->done = (batch + 1) / r->o.accumulate;
        ct_assign(r->position, ct_scalar((double)r->done, CT_I64));
    }
    CT_AUTOCAST(r->o.precision);
    return ct__learner_loss(&r->model, x, y, &mode, CT_HERE);
}

static bool stop_wanted(const run *r) { return r->o.stop && r->o.stop(r->o.user); }

// The sum over the rows that count, so that the last batch, which may be short, has the shape of
// all others and needs no plan of its own.
static void run_batch(run *r) {
    CT_SCOPE;
    ct_tensor x = given(r, r->x, CT_I32, r->o.context), y = given(r, r->y, CT_I32, r->o.context);
    ct_tensor count = given(r, r->rows, CT_F32, 1);
    CT_AUTOCAST(r->o.precision);
    ct_tensor logits = ct__learner_logits(&r->model, x, NULL, CT_HERE); // (B, T, vocab)
    ct_tensor losses = ct_cross_entropy(logits, y, .per_row = true);    // (B, T)
    ct_metric("val_sum", ct_sum(ct_mul(losses, count)));
}

static bool add_batch(run *r, ct_windows *windows, double *sum) {
    CT_PLAIN;
    size_t rows = ct__windows_next(windows, r->x, r->y);
    for (size_t b = 0; b < (size_t)r->o.batch; b++) r->rows[b] = b < rows ? 1 : 0;
    run_batch(r);
    if (r->err->code) return false;
    *sum += ct_metric_value("val_sum");
    return !r->err->code;
}

static bool collect(const char *text, size_t n, void *user) {
    run *r = user;
    ct__text_bytes(&r->sample, text, n);
    return !r->sample.failed;
}

static bool stop_of_run(void *user) { return stop_wanted(user); }

static bool show_sample(run *r) {
    char first[4];
    if (!r->o.event) return true;
    ct_lm_draw draw = {.prompt = first,
                       .prompt_n = ct__lm_first(&r->corpus.vocab, first),
                       .length = SHOWN_TOKENS,
                       .top_k = 40,
                       .temperature = 0.8,
                       .seed = r->o.seed,
                       .write = collect,
                       .stop = stop_of_run,
                       .user = r};
    ct__text_free(&r->sample);
    if (!ct__lm_write(&r->model, &r->cache, &r->corpus.vocab, &r->lexis, &draw, r->err))
        return false;
    // What untrained weights write is drawn all the same: all plans are made with the first step.
    if (!r->trained) return true;
    tell(r, (ct_lm_event){.kind = CT_LM_SAMPLE,
                          .text = r->sample.s ? r->sample.s : "",
                          .text_n = r->sample.n,
                          .point.done = r->done});
    return true;
}

static bool evaluate(double *val_loss, void *user) {
    run *r = user;
    ct_windows windows = {.tokens = r->corpus.tokens + r->n_train,
                          .n = r->corpus.n - r->n_train,
                          .batch = (size_t)r->o.batch,
                          .context = (size_t)r->o.context};
    size_t count = ct__windows_count(&windows), done = 0;
    // The same windows, whatever number of batches a step is made of.
    double most = r->o.eval_batches.value * (double)r->o.accumulate, sum = 0;
    for (double batch = 0; windows.next < count && (most == 0 || batch < most); batch++) {
        if (stop_wanted(r)) return true;
        if (!add_batch(r, &windows, &sum)) return false;
        done = windows.next;
    }
    {
        CT_PLAIN;
        *val_loss = r->val_loss = sum / ((double)done * (double)r->o.context);
    }
    return isfinite(r->val_loss) ? show_sample(r) : true; // else it is the fit loop's to say
}

static bool add_settings(ct_config *config, void *user, ct_err *err) {
    const run *r = user;
    if (r->model.gpt2 && r->lexis.end >= 0) {
        ct__config_set_int(config, "bos_token_id",
                           r->lexis.begin >= 0 ? r->lexis.begin : r->lexis.end);
        ct__config_set_int(config, "eos_token_id", r->lexis.end);
    }
    return ct__lm_settings_store(config, &r->o, &r->corpus, r->done, &r->best, err);
}

// The best weights first: those that are saved later force their names to disk.
static bool save_model(run *r, const char *folder) {
    return (!has_best(r) || ct__checkpoint_take_best(r->dir, folder, r->err)) &&
           ct__learner_save(&r->model, folder, add_settings, r);
}

static bool fill_checkpoint(run *r, int64_t steps_done) {
    char folder[CT_RUN_PATH], state[CT_RUN_PATH + 32];
    if (!ct__checkpoint_begin(r->dir, steps_done, folder, r->err)) return false;
    snprintf(state, sizeof state, "%s/state.safetensors", folder);
    return save_model(r, folder) &&
           ct_params_save_at(ct_optim_state(r->optim), state, CT_NOWHERE) &&
           ct__checkpoint_commit(r->dir, steps_done, r->err);
}

// The checkpoint that is there, where an evaluation was made up for: file by file, each whole. The
// weights are the same; what is known of them comes last, so that until then it is made up for
// again.
static bool save_again(run *r) {
    char folder[CT_RUN_PATH];
    return ct__checkpoint_path(r->dir, r->saved, NULL, folder, r->err) && save_model(r, folder);
}

static bool place(const run *r, const char *dir, const char *name, char path[CT_RUN_PATH]) {
    int n = snprintf(path, CT_RUN_PATH, "%s/%s", dir, name);
    if (n > 0 && n < CT_RUN_PATH) return true;
    return ct__err(r->err, CT_E_FILE, CT_NOWHERE, "train", "the path of --out is too long");
}

// From here on the run's files lie in `dir`; those that are open moved with it.
static bool write_in(run *r, const char *dir) {
    int n = snprintf(r->dir, sizeof r->dir, "%s", dir);
    if (n >= CT_RUN_PATH)
        return ct__err(r->err, CT_E_FILE, CT_NOWHERE, "train", "the path of --out is too long");
    return place(r, dir, "metrics.jsonl", r->metrics_path) &&
           place(r, dir, "loss.svg", r->plot_path);
}

// The run has a save, which can take another run's place.
static bool replace(run *r) {
    if (!ct__run_replace(r->o.out, r->err) || !write_in(r, r->o.out)) return false;
    r->replaces = false;
    tell(r, (ct_lm_event){.kind = CT_LM_FOLDER, .text = r->o.out});
    return true;
}

// What a failure of the disk or of the device leaves.
static void hint_checkpoint(run *r) {
    if (r->saved >= 0)
        ct__err_hint(r->err,
                     "the checkpoint of step %" PRId64
                     " is whole: --resume goes on from there when this is mended",
                     r->saved);
}

static bool save(int64_t steps_done, void *user) {
    run *r = user;
    if (r->replaces && !steps_done) // nothing to put in the place of anything; a failure is told
        return !stop_wanted(r) ||
               ct__err(r->err, CT_E_INTERRUPTED, CT_NOWHERE, r->command,
                       "stopped before the first step: what is in %s stays", r->o.out);
    bool there = steps_done == r->saved;
    bool known = there && memcmp(&r->best, &r->saved_best, sizeof r->best) == 0;
    if (!known && !(there ? save_again(r) : fill_checkpoint(r, steps_done))) {
        ct__checkpoint_abandon(r->dir, steps_done);
        if (r->err->code == CT_E_FILE) hint_checkpoint(r);
        return false;
    }
    r->saved = steps_done;
    r->saved_best = r->best;
    if (!r->beside && !ct__lexis_save(&r->lexis, r->dir, r->err)) {
        hint_checkpoint(r);
        return false;
    }
    r->beside = true;
    return (!r->replaces || replace(r)) && ct__checkpoint_publish(r->o.out, steps_done, r->err);
}

// Runs that have patience keep the best weights: who waits for them wants them, not those of the
// evaluations that were waited for. Errors are the fit's to tell; an evaluation whose weights could
// not be kept was none, so that a resumed run makes it again.
static ct_fit_answer keep_best(const ct_fit_point *point, void *user) {
    run *r = user;
    char folder[CT_RUN_PATH];
    ct_fit_best before = r->best;
    r->best = point->best;
    if (r->keeps_best && point->improved &&
        !(place(r, r->dir, CT_RUN_BEST, folder) &&
          ct__learner_save(&r->model, folder, add_settings, r) &&
          ct__lexis_save(&r->lexis, folder, r->err)))
        r->best = before;
    return CT_FIT_GO_ON;
}

static ct_fit_answer report(const ct_fit_point *point, void *user) {
    tell(user, (ct_lm_event){.kind = CT_LM_STEP, .point = *point});
    return CT_FIT_GO_ON;
}

static void hear_end(const ct_fit_point *point, void *user) {
    run *r = user;
    r->end = point->end;
    r->done = point->done;
}

// ------------------------------------------------------------------------------------ making ready

// The folder is this process's from here on.
static bool enter_folder(run *r) {
    return ct__run_lock(r->o.out, &r->lock, r->err) && ct__run_settle(r->o.out, r->err);
}

// What is there is replaced by who says so, whoever wrote it. there->names are the caller's to free.
static bool may_begin(const run *r, ct_run_there *there) {
    if (!ct__run_there(r->o.out, there, r->err)) return false;
    if (!there->names.n) return true;
    if (r->o.overwrite) return ct__run_could_replace(r->o.out, r->err);
    if (there->saved) {
        refuse(r->err, r->command, "in %s is a run of %" PRId64 " step%s, which would be lost",
               r->o.out, there->steps, there->steps == 1 ? "" : "s");
        ct__err_hint(r->err, "--resume goes on with it, --overwrite replaces it");
    } else {
        refuse(r->err, r->command, "in %s is what would be lost: %s", r->o.out, there->names.s);
        ct__err_hint(r->err, "--overwrite replaces it, another --out leaves it");
    }
    return false;
}

static bool could_keep_best(const run *r) {
    return (!r->keeps_best && !r->resumed.kept_best) || ct__run_could_keep_best(r->o.out, r->err);
}

static bool could_begin(const run *r) {
    ct_run_there there = {0};
    bool ok = ct__could_be_folder(r->o.out, r->err) && may_begin(r, &there) && could_keep_best(r);
    ct__text_free(&there.names);
    return ok;
}

static void tell_replaced(const run *r, const ct_run_there *there) {
    ct_text text = {0};
    if (there->saved)
        ct__textf(&text, "the run in %s, of %" PRId64 " step%s, is replaced at the first save",
                  r->o.out, there->steps, there->steps == 1 ? "" : "s");
    else
        ct__textf(&text, "what is in %s is replaced at the first save: %s", r->o.out,
                  there->names.s);
    if (!text.failed) ct__log(ct__ctx(), CT_LOG_WARNING, text.s);
    ct__text_free(&text);
}

// What would be replaced stays whole until there is something in its place.
static bool choose_folder(run *r) {
    char next[CT_RUN_PATH];
    ct_run_there there = {0};
    bool ok = may_begin(r, &there); // another may have begun meanwhile
    r->replaces = ok && there.names.n;
    if (ok) ct__run_tidy(r->o.out);
    if (r->replaces) tell_replaced(r, &there);
    ct__text_free(&there.names);
    if (r->replaces) return ct__run_next(r->o.out, next, r->err) && write_in(r, next);
    if (ok) tell(r, (ct_lm_event){.kind = CT_LM_FOLDER, .text = r->o.out});
    return ok && write_in(r, r->o.out);
}

// Of a new run.
static bool make_folder(run *r) {
    bool named = r->o.out != NULL;
    if (!named) r->o.out = r->own_folder;
    return (named ? ct__make_dirs(r->o.out, 0777, r->err)
                  : ct__run_make_free(r->own_folder, r->err)) &&
           enter_folder(r) && choose_folder(r);
}

static bool reopen_folder(run *r) {
    r->o.out = r->o.resume;
    if (!ct__run_is_folder(r->o.out, r->err) || !enter_folder(r) || !write_in(r, r->o.out) ||
        !ct__lm_resume(&r->o, &r->resumed, r->err))
        return false;
    r->first = r->saved = r->done = r->resumed.step;
    r->trained = r->first > 0;
    bool kept = r->resumed.best_in_folder || ct__checkpoint_has_best(r->o.out, r->first);
    bool patient = r->o.patience.value > 0, lost = r->resumed.best.val_loss == INFINITY;
    r->keeps_best = patient || kept || lost;
    // A loss whose weights nobody kept is none to wait for.
    if (kept || lost || !patient) r->best = r->resumed.best;
    r->saved_best = r->best;
    return could_keep_best(r);
}

// Bytes of any kind are taken from a file that is named, but hardly ever meant.
static void warn_of_binary(const run *r) {
    size_t nuls = 0;
    if (r->o.chars) return;
    for (size_t i = 0; i < r->corpus.n; i++) nuls += r->corpus.tokens[i] == 0;
    if (!nuls) return;
    ct_text text = {0};
    ct__textf(&text, "the text holds %zu NUL byte%s: is it a binary file?", nuls,
              nuls == 1 ? "" : "s");
    if (!text.failed) ct__log(ct__ctx(), CT_LOG_WARNING, text.s);
    ct__text_free(&text);
}

// Some times a second.
static bool hear_reading(const char *text, void *user) {
    run *r = user;
    const double now = ct__now();
    if (now - r->heard > 0.2) tell(r, (ct_lm_event){.kind = CT_LM_TEXT, .text = text});
    if (now - r->heard > 0.2) r->heard = now;
    return !stop_wanted(r);
}

// The tokenizer: learnt, or that of a folder: the run's own, or the one of the model that it goes on from.
static bool find_lexis(run *r) {
    const int64_t bpe = bpe_size(r->o.tokens);
    const ct_lexis_heard heard = {hear_reading, r};
    const char *from = r->o.resume ? r->o.resume : r->o.from ? r->from : r->o.tokens;
    if (!(bpe > 0 && !r->o.resume ? ct__lexis_learn(&r->lexis, &r->corpus, bpe, &heard, r->err)
                                  : ct__lexis_load(&r->lexis, from, r->err)))
        return false;
    const int64_t n = ct_tokenizer_size(r->lexis.tokenizer);
    r->corpus.vocab.n = (int32_t)(r->vocab ? r->vocab : n);
    return n <= r->corpus.vocab.n ||
           ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, from,
                   "the tokenizer has %" PRId64 " tokens, the model knows %" PRId64, n, r->vocab);
}

// The text by the tokenizer; of a run that is resumed as it lies in its folder, where it is the same.
static bool read_lexis(run *r) {
    const ct_lexis_heard heard = {hear_reading, r};
    const ct_lm_resumed *was = &r->resumed;
    if (!find_lexis(r)) return false;
    if (r->o.resume && was->text_sum == (int64_t)r->corpus.text_sum &&
        ct__lexis_kept(&r->corpus, r->o.out, was->tokens,
                       (uint32_t)strtoul(was->checksum, NULL, 16)))
        return true;
    return ct__lexis_read(&r->lexis, &r->corpus, &heard, r->err);
}

static bool read_text(run *r) {
    const ct_lm_train_options *o = &r->o;
    const bool later = o->tokens || o->from;
    ct_tokens kind = later ? CT_TOKENS_LATER : o->chars ? CT_TOKENS_CHARS : CT_TOKENS_BYTES;
    // The smallest context that would be chosen, where none is asked for.
    size_t context = o->context ? (size_t)o->context : 32;
    if (!ct__corpus_read(o->data, o->n_data, kind, o->out, &r->corpus, r->err)) {
        if (o->data == r->resumed.data) ct__lm_hint_text(r->err);
        return false;
    }
    if (later && !read_lexis(r)) return false;
    if (!later && !ct__lexis_plain(&r->lexis, &r->corpus.vocab, r->err)) return false;
    if (!ct__corpus_check(&r->corpus, context, r->err)) return false;
    if (!later) warn_of_binary(r);
    r->n_train = ct__split(r->corpus.n);
    ct__vocab_text(&r->corpus.vocab, &r->characters);
    return !r->characters.failed || ct__err_memory(r->err, CT_NOWHERE, r->command, r->corpus.n);
}

// What lies beside the model from the first on: a tokenizer, and the text by it. That of bytes or characters comes with
// the first save, so that a run that fails before it leaves nothing that would be lost.
static bool save_lexis(run *r) {
    if (!r->lexis.tokenizer && !r->o.resume) return true;
    r->beside = ct__lexis_save(&r->lexis, r->dir, r->err);
    return r->beside && (!r->lexis.tokenizer || ct__lexis_keep(&r->corpus, r->dir, r->err));
}

static bool make_batches(run *r) {
    size_t B = (size_t)r->o.batch, T = (size_t)r->o.context;
    r->loader = (ct_loader){.tokens = r->corpus.tokens,
                            .n = r->n_train,
                            .batch = B,
                            .context = T,
                            .seed = r->o.seed,
                            .stream = STREAM_WINDOWS};
    // Zeros: rows of a short batch that no window fills are valid tokens all the same.
    r->x = ct__calloc(B * T, sizeof *r->x);
    r->y = ct__calloc(B * T, sizeof *r->y);
    r->rows = ct__calloc(B, sizeof *r->rows);
    return (r->x && r->y && r->rows) ||
           ct__err_memory(r->err, CT_NOWHERE, r->command, B * T * sizeof *r->x);
}

// What a resumed run needs besides the optimizer's own state, in the same file.
static bool make_state(run *r) {
    uint32_t key[2] = {(uint32_t)r->o.seed, (uint32_t)(r->o.seed >> 32)};
    ct_params *state = ct_optim_state(r->optim);
    r->position = ct_param(state, "loader.position", CT_I64, CT_SCALAR);
    r->random = ct_param(state, "random.key", CT_U32, CT_DIMS(2));
    {
        CT_SCOPE;
        ct_assign(r->position, ct_scalar(0, CT_I64));
        ct_assign(r->random, ct_from(key, CT_U32, CT_DIMS(2)));
    }
    return !r->err->code;
}

// A plan of a rehearsal is told.
static bool part(run *r, const char *name) {
    return !r->rehearsal || ct__rehearsal_part(r->rehearsal, name);
}

// The checkpoint's weights and state in place of the first ones.
static bool load_checkpoint(run *r) {
    char model[CT_RUN_PATH], state[CT_RUN_PATH];
    const char *dir = r->o.out;
    if (!ct__checkpoint_path(dir, r->first, "model.safetensors", model, r->err) ||
        !ct__checkpoint_path(dir, r->first, "state.safetensors", state, r->err) ||
        (r->model.gpt2 && !ct_gpt2_load_weights_at(r->model.gpt2, model, CT_NOWHERE)) ||
        !ct_params_load_at(ct_optim_state(r->optim), state, CT_NOWHERE) ||
        !ct_optim_resume_at(r->optim, CT_NOWHERE))
        return false;
    CT_SCOPE;
    double position = ct_item(r->position);
    const uint32_t *key = ct_data(r->random);
    if (!key) return false;
    if (position != (double)r->first || ct_optim_count(r->optim) != r->first)
        return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, state,
                       "it holds %" PRId64 " steps and loader position %.0f, not step %" PRId64,
                       ct_optim_count(r->optim), position, r->first);
    if (key[0] != (uint32_t)r->o.seed || key[1] != (uint32_t)(r->o.seed >> 32))
        return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, state,
                       "its random key is not that of the run's seed");
    return true;
}

// Other rules of computing give other bits; the run goes on all the same.
static bool compare_numerics(run *r) {
    char path[CT_RUN_PATH];
    ct_st file;
    if (!ct__checkpoint_path(r->o.out, r->first, "state.safetensors", path, r->err) ||
        !ct__st_open(path, &file, r->err))
        return false;
    const char *then = ct__st_metadata(&file, "cotan.numerics"), *now = ct_numerics();
    if (then && strcmp(then, now) != 0) {
        ct_text text = {0};
        char shown[CT_PRINTABLE];
        ct__textf(&text,
                  "the run was computed with \"%s\", this device computes with \"%s\": other bits "
                  "than without the stop",
                  ct__printable(then, strlen(then), shown, sizeof shown), now);
        if (!text.failed) ct__log(ct__ctx(), CT_LOG_WARNING, text.s);
        ct__text_free(&text);
    }
    ct__st_close(&file);
    return true;
}

static bool restore_best(run *r) {
    const char *dir = r->o.out;
    if (!r->resumed.kept_best) return true;
    const ct_err *damage = &r->resumed.damage;
    bool lost = damage->code && !r->resumed.best_in_folder;
    char folder[CT_RUN_PATH];
    if (damage->code) {
        ct_text text = {0};
        ct__textf(&text,
                  lost ? "%s; the run goes on without the best weights so far, " CT_RUN_BEST
                         "/ will keep those of the evaluations to come"
                       : "%s; the same weights in " CT_RUN_BEST "/ are whole",
                  damage->text);
        if (!text.failed) ct__log(ct__ctx(), CT_LOG_WARNING, text.s);
        ct__text_free(&text);
    }
    if (r->resumed.best_in_folder)
        return ct__checkpoint_path(dir, r->first, NULL, folder, r->err) &&
               ct__checkpoint_take_best(dir, folder, r->err);
    if (!ct__checkpoint_give_best(dir, r->first, lost, r->err)) return false;
    return lost || !ct__checkpoint_has_best(dir, r->first) ||
           (place(r, dir, CT_RUN_BEST, folder) && ct__lexis_save(&r->lexis, folder, r->err));
}

// Everything that can be refused has been looked at: the folder becomes that of the checkpoint.
static ct_fit_answer go_on(const ct_fit_point *point, void *user) {
    run *r = user;
    char text[128];
    (void)point;
    ct__run_tidy(r->o.out);
    if (!ct__checkpoint_forget_after(r->o.out, r->first, r->err) || !restore_best(r) ||
        !ct__checkpoint_publish(r->o.out, r->first, r->err))
        return CT_FIT_GO_ON; // the error ends the fit
    int n = snprintf(text, sizeof text, "resuming at step %" PRId64, r->first);
    if (r->first == r->o.steps)
        snprintf(text, sizeof text, "all %" PRId64 " steps are done; --steps N goes further",
                 r->first);
    else if (r->o.steps != r->resumed.steps)
        snprintf(text + n, sizeof text - (size_t)n, ", for %" PRId64 " steps instead of %" PRId64,
                 r->o.steps, r->resumed.steps);
    tell(r, (ct_lm_event){.kind = CT_LM_RESUME, .text = text});
    return CT_FIT_GO_ON;
}

ct_optim *ct__lm_optim(ct_params *params, const ct_lm_train_options *o) {
    return ct_adamw(params,
                    .schedule = {.shape = CT_LR_COSINE,
                                 .lr = o->lr > 0 ? o->lr : default_lr(o),
                                 .min_lr = o->min_lr.value,
                                 .warmup = (int64_t)o->warmup.value,
                                 .steps = o->steps},
                    .clip = o->clip.value, .beta1 = o->beta1, .beta2 = o->beta2,
                    .weight_decay = o->weight_decay,
                    .loss_scale.initial = o->precision == CT_F16 ? FIRST_LOSS_SCALE : 0);
}

// A new one, or the one that the run goes on from.
static bool make_learner(run *r) {
    const ct_lm_train_options *o = &r->o;
    if (!is_stack(o)) {
        const ct_gpt2_config config = config_of(r, o);
        r->model.gpt2 = ct_gpt2_new(&config, o->seed);
    } else if (*r->from) {
        r->model.lm =
            ct_lm_load_with(r->from, (ct_lm_load_options){.trainable = true, .here = CT_NOWHERE});
    } else {
        const ct_lm_sizes sizes = sizes_of(r, o);
        r->model.lm = ct__lm_new(&sizes, o->seed, CT_NOWHERE);
    }
    return r->model.gpt2 || r->model.lm;
}

static bool make_model(run *r) {
    const ct_lm_train_options *o = &r->o;
    // Weights that are read make no plan.
    if (!make_learner(r) || (!*r->from && !part(r, "first weights"))) return false;
    r->optim = ct__lm_optim(ct__learner_params(&r->model), o);
    if (!r->optim || !part(r, "first state")) return false;
    if (r->o.event && !ct__learner_cache_new(&r->model, SHOWN_TOKENS + CT_LM_PROMPT, &r->cache))
        return false;
    return make_state(r);
}

static void free_model(run *r) {
    ct__learner_cache_free(&r->cache);
    ct_optim_free(r->optim);
    ct__learner_free(&r->model);
    ct__free(r->x);
    ct__free(r->y);
    ct__free(r->rows);
}

static void free_run(run *r) {
    free_model(r);
    ct__lm_resumed_free(&r->resumed);
    if (r->replaces) ct__run_abandon_next(r->o.out); // it came to no save
    ct__run_unlock(r->lock);
    ct__corpus_free(&r->corpus);
    ct__lexis_free(&r->lexis);
    ct__text_free(&r->characters);
    ct__text_free(&r->sample);
    ct__text_free(&r->largest);
}

// ---------------------------------------------------------------------------------------- planning

static uint64_t bytes_of(const ct_params *params) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < ct_params_count(params); i++) {
        ct_tensor var = ct_params_get(params, i);
        bytes += (uint64_t)ct_size(var) * ct_dtype_size(ct_dtype_of(var));
    }
    return bytes;
}

// As ct_fit does; of the batches before the last, which are alike, one.
static bool record_step(run *r, bool told) {
    if (r->o.accumulate > 1) {
        {
            CT_SCOPE;
            ct_tensor loss = record_loss(0, r);
            ct_metric("loss", loss);
            ct_optim_accumulate(r->optim, loss);
        }
        if (told && !part(r, "batch")) return false;
    }
    {
        CT_SCOPE;
        ct_tensor loss = record_loss(r->o.accumulate - 1, r);
        ct_metric("loss", loss);
        ct_optim_step(r->optim, loss);
    }
    return !told || part(r, "step");
}

// All that a run records, in its order: making the model, an evaluation, a sample, a step.
static bool record_all(run *r, ct_lm_cost *cost) {
    if (!make_model(r)) return false;
    cost->batches =
        (uint64_t)r->o.batch * (2 * (uint64_t)r->o.context * sizeof *r->x + sizeof *r->rows);
    // Half as much again while the steps' losses are drawn.
    cost->curves =
        ct__series_bytes(r->o.steps) * 3 / 2 + ct__series_bytes(r->o.steps / r->o.eval_every + 2);
    cost->weights = bytes_of(ct__learner_params(&r->model));
    cost->state = bytes_of(ct_optim_state(r->optim));
    if (r->o.accumulate > 1) {
        const ct_params *sums = ct__optim_sums(r->optim, CT_NOWHERE);
        if (!sums || !part(r, "first sums")) return false;
        cost->sums = bytes_of(sums);
    }
    run_batch(r);
    if (!part(r, "evaluation")) return false;
    if (r->o.event &&
        (!ct__lm_rehearse_write(&r->model, &r->cache, 1, SHOWN_TOKENS) || !part(r, "sample")))
        return false;
    if (!record_step(r, true)) return false;
    // Once more, now that the memory of all plans is there; the plans are known.
    run_batch(r);
    if (r->o.event && !ct__lm_rehearse_write(&r->model, &r->cache, 1, SHOWN_TOKENS)) return false;
    return record_step(r, false) && !r->err->code;
}

// Once, keeping to real->within.
static bool rehearse_once(run *real, const ct_lm_train_options *options, ct_lm_cost *cost) {
    run *r = make_run(options, real->command, real->err);
    if (!r) return false;
    ct_lm_rehearsal h = {.part = real->part, .user = real->part_user};
    *cost = (ct_lm_cost){0};
    bool ok = ct__rehearsal_begin(&h, ct__ctx(), real->within, real->err);
    if (ok) {
        r->err = &h.ctx->err;
        r->rehearsal = &h;
        // The text is the run's own.
        r->corpus = real->corpus;
        r->n_train = real->n_train;
        r->characters = real->characters;
        r->lexis = real->lexis;
        memcpy(r->from, real->from, sizeof r->from);
        ok = record_all(r, cost);
        free_model(r);
    }
    ct__free(r);
    ct__rehearsal_end(&h, cost, real->err);
    ct__text_free(&real->largest);
    real->largest = h.largest;
    return ok && !real->err->code;
}

// What does not fit has its blocks computed again in gradients, as few as it takes. What the process
// takes besides the devices is known when all is planned, and is not the same twice, so that once may
// not do, and some is left over.
static bool rehearse(const ct_lm_train_options *options, bool lessens, ct_lm_cost *cost,
                     void *user) {
    enum { MOST_TURNS = 4, SPARE_PART = 32 };
    run *real = user;
    real->within = 0;
    bool ok = rehearse_once(real, options, cost);
    for (int turn = 1; turn <= MOST_TURNS && ok && lessens && cost->again < cost->blocks; turn++) {
        const uint64_t room = ct__lm_room(cost), held = real->within ? real->within : cost->devices;
        if (cost->memory <= room) break;
        const uint64_t over = cost->memory - room + cost->process / SPARE_PART;
        real->within = over < held && turn < MOST_TURNS ? held - over : 1;
        ok = rehearse_once(real, options, cost);
    }
    return ok;
}

// Its sizes are those of the run.
static bool take_sizes(run *r, const ct_lm *lm) {
    enum { USUAL = 256 };
    ct_lm_train_options *o = &r->o;
    const ct_spec *s = &lm->spec;
    if (lm->reader || s->bidirectional)
        return ct__err(r->err, CT_E_USAGE, CT_NOWHERE, r->command,
                       "--from %s: %s does not go on with a text, which is what is trained",
                       o->from, s->type);
    if (lm->files->gguf.version)
        return ct__err(r->err, CT_E_USAGE, CT_NOWHERE, r->command,
                       "--from %s: a GGUF file is none that a run can save: the folder is needed "
                       "that it was made from",
                       o->from);
    if (s->context && o->context > s->context)
        return ct__err(r->err, CT_E_USAGE, CT_NOWHERE, r->command,
                       "--context %" PRId64 " is more than the %" PRId64 " tokens of %s",
                       o->context, s->context, o->from);
    r->parameters = ct__stack_size(s);
    r->vocab = s->vocab;
    o->layers = s->layers;
    o->heads = s->heads;
    o->width = s->width;
    if (!o->context) o->context = s->context && s->context < USUAL ? s->context : USUAL;
    return true;
}

// The folder of the model to go on from: of a run that is resumed its checkpoint.
static bool find_from(run *r) {
    if (r->o.resume) return ct__checkpoint_path(r->o.out, r->first, NULL, r->from, r->err);
    if (ct__is_absent(r->o.from))
        return ct_hub_find_at(r->o.from, NULL, r->from, CT_RUN_PATH, CT_NOWHERE);
    if (snprintf(r->from, CT_RUN_PATH, "%s", r->o.from) < CT_RUN_PATH) return true;
    return ct__err(r->err, CT_E_FILE, CT_NOWHERE, r->command, "the path of --from is too long");
}

// Weights of few bits have no gradients.
static bool has_numbers(run *r) {
    static const char *const keys[] = {"quantization_config", "quantization"};
    char path[CT_RUN_PATH];
    ct_config config;
    ct_err ignored = {0}; // what is wrong with the file is told by who loads it
    bool few = false;
    if (!place(r, r->from, "config.json", path)) return false;
    if (!ct__config_read(path, &config, &ignored)) return true;
    for (int i = 0; i < 2; i++)
        few |= ct__config_has(&config, keys[i]) && !ct__config_null(&config, keys[i]);
    ct__config_close(&config);
    return !few || refuse(r->err, r->command,
                          "--from %s: its weights are of few bits, as its config.json says, and "
                          "such have no gradients",
                          r->o.from);
}

static bool look_at_model(run *r) {
    if (!is_stack(&r->o) || (r->o.arch && !r->o.resume)) return true;
    if (!find_from(r)) return false;
    if (!r->o.from) return true;
    if (!has_numbers(r)) return false;
    ct_lm *lm = ct_lm_load_with(r->from, (ct_lm_load_options){.here = CT_NOWHERE}); // mapped
    bool ok = lm && take_sizes(r, lm);
    ct_lm_free(lm);
    return ok;
}

// The text, the sizes, and what they will take: all that is known before anything is written.
static bool prepare(run *r, ct_lm_size *size) {
    bool resumed = r->o.resume != NULL;
    if (!look_at_model(r) || !read_text(r)) return false;
    if (resumed && !ct__lm_same_text(&r->resumed, &r->corpus, r->o.chars, r->err)) return false;
    if (!ct__lm_choose(&r->o, r->command, &r->corpus, count_parameters, rehearse, r, size, r->err))
        return false;
    fill_in_rates(&r->o);
    tell_model(r, size);
    return true;
}

bool ct_lm_plan(const ct_lm_train_options *options, ct_lm_part_fn heard, void *user,
                ct_lm_cost *cost) {
    ct_ctx *ctx = ct__ctx();
    ct_lm_size size = {0};
    if (!ctx || !ct__given(ctx, options, CT_NOWHERE, "plan", "the options") ||
        !ct__given(ctx, cost, CT_NOWHERE, "plan", "the room for the cost") || ctx->err.code)
        return false;
    if (options->resume || ct__num_given(options->resume_step))
        return refuse(&ctx->err, "plan",
                      "--resume is not for a plan: a run that is resumed takes what it took");
    run *r = start(options, "plan", ctx);
    if (!r) return false;
    bool ok = prepare(r, &size);
    // Choosing tries several sizes; the one that was chosen is told.
    r->part = heard;
    r->part_user = user;
    ok = ok && rehearse_once(r, &r->o, &size.cost);
    size.cost.room = ct__lm_room(&size.cost);
    size.cost.limited = ct__memory_limit_asked() > 0;
    *cost = size.cost;
    free_run(r);
    ct__free(r);
    return ok;
}

// ------------------------------------------------------------------------------------------- train

static bool train(run *r) {
    ct_lm_size size = {0};
    uint64_t peak = ct__account.peak;
    bool resumed = r->o.resume != NULL;
    // A new folder is made when the run is known to fit.
    if (resumed && !reopen_folder(r)) return false;
    if (!resumed && r->o.out && !could_begin(r)) return false;
    if (!prepare(r, &size)) return false;
    if (!ct__lm_fits(&size.cost, r->command, &r->largest, smaller, r->err)) return false;
    if ((!resumed && !make_folder(r)) || !save_lexis(r) || !make_batches(r)) return false;
    ct__ctx_within(ct__ctx(), r->within);
    if (!make_model(r)) return false;
    if (resumed && (!load_checkpoint(r) || !compare_numerics(r))) return false;
    const ct_fit_callback told = {.on_begin = resumed ? go_on : NULL,
                                  .on_evaluate = keep_best,
                                  .on_step = report,
                                  .on_end = hear_end,
                                  .user = r};
    ct_fit_options fit = {.steps = r->o.steps,
                          .first_step = r->first,
                          .accumulate = r->o.accumulate,
                          .patience = (int64_t)r->o.patience.value,
                          .min_delta = r->o.min_delta.value,
                          .best = r->best,
                          .eval_every = r->o.eval_every,
                          .save_every = r->o.save_every,
                          .tokens_per_step = r->o.accumulate * r->o.batch * r->o.context,
                          .optim = r->optim,
                          .loss = record_loss,
                          .evaluate = evaluate,
                          .save = save,
                          .stop = r->o.stop ? stop_of_run : NULL,
                          .user = r,
                          .callbacks = &told,
                          .n_callbacks = 1,
                          .metrics = r->metrics_path,
                          .events = r->dir,
                          .plot = r->plot_path,
                          .title = "loss"};
    if (!ct_fit_at(&fit, CT_NOWHERE)) {
        if (r->err->code == CT_E_DEVICE) {
            r->err->settled = strstr(r->err->text, "\n  hint: "); // whatever failed behind it
            hint_checkpoint(r);
        }
        return false;
    }
    double value; // where all steps were done before, nothing has evaluated
    if (isnan(r->val_loss) && !evaluate(&value, r)) return false;
    if (isnan(r->val_loss)) // it was not to
        return ct__err(r->err, CT_E_INTERRUPTED, CT_NOWHERE, r->command,
                       "stopped after %" PRId64 " of %" PRId64 " steps", r->done, r->o.steps);
    tell_end(r);
    tell_memory(r, &size.cost, peak);
    return tell_done(r);
}

bool ct_lm_train(const ct_lm_train_options *options) {
    run *r = start(options, "train", ct__ctx());
    if (!r) return false;
    bool ok = train(r);
    ct__ctx_within(ct__ctx(), 0);
    free_run(r);
    ct__free(r);
    return ok;
}
