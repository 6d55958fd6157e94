// Trains a language model on text, from the text files to the folder that is written.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/memory.h"
#include "base/os.h"
#include "base/fp_env.h"
#include "base/threefry.h"
#include "compile/plan.h"
#include "cotan/hub.h"
#include "data/loader.h"
#include "graph/graph.h"
#include "io/metrics.h"
#include "io/safetensors.h"
#include "io/utf8.h"
#include "io/weights.h"
#include "models/lm.h"
#include "optim/stage.h"
#include "train/checkpoint.h"

static const char train_smaller_hint[] = "a smaller .batch, .context, .width or .layers needs less";

enum { STREAM_WINDOWS = 0, STREAM_DROPOUT = 1, SAMPLE_TOKENS = 100, INITIAL_LOSS_SCALE = 65536 };

typedef struct run {
    ct_lm_train_options o; // complete, with all defaults filled in
    const char *command;   // "train" or "plan", for errors
    ct_err *err;
    ct_corpus corpus;
    size_t n_train; // number of tokens to train on; the others validate
    ct_text characters;
    ct_tokenizer_bundle bundle; // the tokenizer bundle, unless the corpus has bytes or characters
    bool tokenizer_saved;       // the tokenizer's files are in the folder
    ct_lm *lm;
    ct_lm_cache *cache;
    ct_optim *optim;
    int64_t n_parameters, vocab; // of the model that .from names; 0: none
    char from[CT_RUN_PATH];      // its folder, or the checkpoint's; "": a new model
    ct_lm_dry_run *dry_run;      // the dry run that records; NULL: the run itself
    uint64_t device_limit;       // maximum of bytes on devices; 0: no limit
    ct_lm_plan_fn part;          // is called with each plan of a dry run
    void *part_user;
    ct_text largest;            // the largest tensors, as text
    ct_tensor position, random; // variables: the loader's step, and the seed
    ct_loader loader;
    int32_t *x, *y;     // (B, T)
    float *row_weights; // (B, 1): 1 for a row that counts
    ct_text sample;
    double last_report; // when tokenization was reported last
    double val_loss;    // NaN: this process has not evaluated yet
    bool trained;       // a step was done before, or has begun
    bool keeps_best;    // in a folder of their own: the run has patience, or had it
    // best of the whole run; saved_best: as it is in the newest checkpoint
    ct_fit_best best, saved_best;
    ct_fit_end_reason end;
    ct_lm_resumed resumed;
    int64_t done; // number of steps done by the current weights
    // first: number of steps done before; saved: step of the newest checkpoint, -1: there is none
    int64_t first, saved;
    int lock;                      // of the folder; -1: none
    char default_dir[CT_RUN_PATH]; // the folder's name if .out is not given
    bool replaces_run;             // true: the first save replaces another run
    // where the files are; until a replacement, a folder beside the final one
    char dir[CT_RUN_PATH];
    char metrics_path[CT_RUN_PATH], plot_path[CT_RUN_PATH];
} run;

// ------------------------------------------------------------------------------------------- options

static void train_fill_defaults(ct_lm_train_options *o) {
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

static double train_default_lr(const ct_lm_train_options *o) {
    return o->from ? 5e-5 : o->width < 512 ? 1e-3 : 6e-4;
}

// Fills in defaults that depend on the size of the model.
static void train_fill_lr(ct_lm_train_options *o) {
    if (o->lr == 0) o->lr = train_default_lr(o);
    o->min_lr = CT_F(ct__num_or(o->min_lr, o->lr / 10));
}

__attribute__((format(printf, 3, 4))) static bool train_refuse(ct_err *err, const char *command,
                                                               const char *format, ...) {
    va_list args;
    va_start(args, format);
    ct__err_v(err, CT_E_USAGE, CT_NOWHERE, command, format, args);
    va_end(args);
    return false;
}

static bool train_options_in_range(const ct_lm_train_options *o) {
    const int64_t counts[] = {
        o->layers,     o->heads,      o->width,      o->context,           o->batch,   o->steps,
        o->eval_every, o->save_every, o->accumulate, o->intermediate_size, o->kv_heads};
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

// Returns 8192 for "bpe:8192", 0 for a bad number, and -1 for anything else.
static int64_t train_bpe_size(const char *tokens) {
    char *end;
    if (!tokens || strncmp(tokens, "bpe:", 4) != 0) return -1;
    const long long n = strtoll(tokens + 4, &end, 10);
    return *end || end == tokens + 4 || n < 0 || n > INT32_MAX ? 0 : n;
}

static bool train_check_tokens(const ct_lm_train_options *o, const char *command, ct_err *err) {
    enum { MIN_TOKENS = 257, MAX_TOKENS = 1 << 24 };
    const int64_t bpe = train_bpe_size(o->tokenizer);
    if (o->tokenizer && o->from)
        return train_refuse(err, command,
                            ".tokenizer is not allowed with .from, whose model has its own");
    static const char *const kinds[] = {"bytes", "chars", "bpe:8192", NULL};
    const char *closest = o->tokenizer && bpe < 0 ? ct__nearest(o->tokenizer, kinds) : NULL;
    const bool is_kind = closest && strcmp(closest, o->tokenizer) == 0;
    if (o->tokenizer && bpe < 0 && !is_kind && access(o->tokenizer, F_OK) != 0)
        return train_refuse(err, command,
                            ".tokenizer is bytes, chars, bpe:8192 (or another number) or the path "
                            "of a tokenizer, not \"%.60s\"%s%s%s",
                            o->tokenizer, closest ? "; is " : "", closest ? closest : "",
                            closest ? " meant?" : "");
    if (bpe >= 0 && (bpe < MIN_TOKENS || bpe >= MAX_TOKENS))
        return train_refuse(err, command,
                            ".tokenizer %.40s: a byte-level BPE has %d tokens at least (256 bytes "
                            "and the end of a text), and fewer than %d",
                            o->tokenizer, MIN_TOKENS, MAX_TOKENS);
    return true;
}

static bool train_check_model(const ct_lm_train_options *o, const char *command, ct_err *err) {
    const struct {
        const char *option;
        bool given;
    } sizes[] = {{"layers", o->layers},
                 {"heads", o->heads},
                 {"width", o->width},
                 {"kv_heads", o->kv_heads},
                 {"intermediate_size", o->intermediate_size},
                 {"no_bias", o->no_bias},
                 {"arch", o->arch}};
    for (size_t i = 0; o->from && i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].given)
            return train_refuse(err, command,
                                ".%s is not allowed with .from, whose model has its own",
                                sizes[i].option);
    if (o->arch && !ct__spec_own_rows(err)) return false;
    if (o->arch && !ct__spec_is_known(o->arch)) {
        ct_arena arena = {0};
        const char *closest = ct__spec_nearest(o->arch, &arena);
        train_refuse(err, command, ".arch %.60s is an unknown architecture", o->arch);
        if (closest) ct__err_hint(err, "the nearest that is known is %s", closest);
        ct__arena_free(&arena);
        return false;
    }
    const bool is_other = o->arch && strcmp(o->arch, "gpt2") != 0;
    if ((o->kv_heads || o->intermediate_size) && !is_other)
        return train_refuse(err, command, ".%s needs .arch (a GPT-2 has no such option)",
                            o->kv_heads ? "kv_heads" : "intermediate_size");
    if (o->no_bias && is_other)
        return train_refuse(err, command,
                            ".no_bias is not allowed with .arch %s, which determines its biases",
                            o->arch);
    if (o->kv_heads && !o->heads) return train_refuse(err, command, ".kv_heads needs .heads");
    return true;
}

static bool train_check_options(const ct_lm_train_options *o, const char *command, ct_err *err) {
    int64_t steps = o->steps ? o->steps : 2000;
    double lr = o->lr > 0 ? o->lr : train_default_lr(o);
    if (!train_options_in_range(o))
        return train_refuse(err, command, "an option is out of its range");
    if (o->precision && !ct__lm_is_precision(o->precision))
        return train_refuse(err, command, "the precision is %s, it must be f32, bf16 or f16",
                            ct_dtype_name(o->precision));
    if (o->out && !*o->out)
        return train_refuse(err, command, ".out is empty: it is the output folder");
    if (o->resume && o->out)
        return train_refuse(err, command,
                            ".out is not allowed with .resume, which continues in its folder");
    if (o->resume && o->overwrite)
        return train_refuse(
            err, command, ".overwrite is not allowed with .resume, which continues in its folder");
    if (o->resume) return true; // all other options are those of the run
    if (o->overwrite && !o->out) return train_refuse(err, command, ".overwrite needs .out");
    if (ct__num_given(o->resume_step))
        return train_refuse(err, command, ".resume_step needs .resume");
    if (ct__num_or(o->min_delta, 0) > 0 && !(ct__num_or(o->patience, 0) > 0))
        return train_refuse(err, command, ".min_delta needs .patience");
    if (!o->n_data)
        return train_refuse(err, command, ".data is missing: files, folders or patterns of text");
    if (!train_check_tokens(o, command, err) || !train_check_model(o, command, err)) return false;
    if (o->width && o->heads && o->width % o->heads)
        return train_refuse(err, command, ".width %" PRId64 " is not a multiple of .heads %" PRId64,
                            o->width, o->heads);
    if (ct__num_given(o->min_lr) && o->min_lr.value > lr)
        return train_refuse(err, command, ".min_lr %g is above .lr %g", o->min_lr.value, lr);
    if (ct__num_given(o->warmup) && o->warmup.value >= (double)steps)
        return train_refuse(err, command, ".warmup %.0f is not below .steps %" PRId64,
                            o->warmup.value, steps);
    return true;
}

// Translates values to older option names: chars and bytes to o->chars, and gpt2 to no architecture.
static void train_rename_options(ct_lm_train_options *o) {
    const bool chars = o->tokenizer && strcmp(o->tokenizer, "chars") == 0;
    if (chars || (o->tokenizer && strcmp(o->tokenizer, "bytes") == 0)) {
        o->chars = chars;
        o->given |= CT_LM_GIVEN_CHARS;
        o->tokenizer = NULL;
    } else if (o->tokenizer) {
        o->chars = false;
    }
    if (o->arch && strcmp(o->arch, "gpt2") == 0) o->arch = NULL;
}

// Makes an empty run. Returns NULL with the error set if out of memory.
static run *train_run_alloc(const ct_lm_train_options *options, const char *command, ct_err *err) {
    run *r = ct__malloc(sizeof *r);
    if (!r) {
        ct__err_memory(err, CT_NOWHERE, command, sizeof *r);
        return NULL;
    }
    *r = (run){
        .o = *options, .command = command, .err = err, .val_loss = NAN, .saved = -1, .lock = -1};
    r->bundle.begin = r->bundle.end = -1;
    return r;
}

// Checks the options and makes a run. `command` is the beginning of error messages: "train" or "plan".
static run *train_run_new(const ct_lm_train_options *options, const char *command, ct_ctx *ctx) {
    if (!ctx || !ct__given(ctx, options, CT_NOWHERE, command, "the options") || ctx->err.code ||
        !train_check_options(options, command, &ctx->err))
        return NULL;
    ct_numerics(); // opens the device, which may refuse a setting of the environment
    if (ctx->err.code) return NULL;
    run *r = train_run_alloc(options, command, &ctx->err);
    if (!r) return r;
    train_rename_options(&r->o);
    if (r->o.resume) return r;
    train_fill_defaults(&r->o);
    r->keeps_best = r->o.patience.value > 0;
    return r;
}

static ct_lm_sizes train_lm_sizes(const run *r, const ct_lm_train_options *o) {
    return (ct_lm_sizes){.op = "train",
                         .arch = o->arch ? o->arch : "gpt2",
                         .vocab = r->corpus.vocab.n,
                         .context = o->context,
                         .layers = o->layers,
                         .heads = o->heads,
                         .width = o->width,
                         .kv_heads = o->kv_heads,
                         .hidden = o->intermediate_size,
                         .begin = r->bundle.begin,
                         .end = r->bundle.end,
                         .no_bias = o->no_bias,
                         .dropout = o->dropout};
}

static int64_t train_count_parameters(const ct_lm_train_options *o, void *user) {
    const run *r = user;
    if (r->n_parameters) return r->n_parameters;
    const ct_lm_sizes sizes = train_lm_sizes(r, o);
    ct_arena arena = {0};
    ct_spec spec;
    const int64_t n =
        ct__lm_spec_of(&sizes, &arena, &spec, NULL, r->err) ? ct__stack_size(&spec) : -1;
    ct__arena_free(&arena);
    return n;
}

// -------------------------------------------------------------------------------------------- events

static void train_report(run *r, ct_lm_event event) {
    if (r->o.on_event) r->o.on_event(&event, r->o.user);
}

static void train_add_grouped(ct_text *text, int64_t n) { // 12,345,678
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRId64, n);
    for (int i = 0; i < length; i++)
        ct__textf(text, "%s%c", i && (length - i) % 3 == 0 ? "," : "", digits[i]);
}

static void train_add_duration(ct_text *text, double seconds) {
    if (seconds < 90)
        ct__textf(text, "%.0f s", seconds < 1 ? 1 : seconds);
    else if (seconds < 5400)
        ct__textf(text, "%.0f min", seconds / 60);
    else
        ct__textf(text, "%.1f h", seconds / 3600);
}

static const char *train_token_unit(const run *r) {
    return r->bundle.tokenizer ? "tokens" : r->o.chars ? "characters" : "bytes";
}

static void train_report_model(run *r, const ct_lm_size *size) {
    const ct_lm_train_options *o = &r->o;
    ct_text text = {0};
    if (r->bundle.tokenizer) ct__textf(&text, "%zu bytes of text, ", r->corpus.bytes);
    ct__textf(&text,
              r->bundle.tokenizer ? "%zu %s, %zu to train on; "
                                  : "%zu %s of text, %zu to train on; ",
              r->corpus.n, train_token_unit(r), r->n_train);
    if (r->bundle.tokenizer && !o->from)
        ct__textf(&text, "a vocabulary of %" PRId32 "; ", r->corpus.vocab.n);
    if (o->from)
        ct__textf(&text, "on from %s, ", o->from);
    else if (o->arch)
        ct__textf(&text, "%s, ", o->arch);
    if (size->is_chosen && !o->from) ct__text_add(&text, "chosen for this machine: ");
    ct__textf(&text,
              "%" PRId64 " layer%s, %" PRId64 " head%s, width %" PRId64 ", context %" PRId64 ", ",
              o->layers, o->layers == 1 ? "" : "s", o->heads, o->heads == 1 ? "" : "s", o->width,
              o->context);
    if (o->precision != CT_F32) ct__textf(&text, "products in %s, ", ct_dtype_name(o->precision));
    if (o->accumulate > 1)
        ct__textf(&text, "%" PRId64 " batches of %" PRId64 " a step: ", o->accumulate, o->batch);
    else
        ct__textf(&text, "batch %" PRId64 ": ", o->batch);
    train_add_grouped(&text, train_count_parameters(o, r));
    ct__textf(&text, " parameters, about %.0f MB of memory", ceil((double)size->cost.total / 1e6));
    if (size->cost.recomputed_blocks)
        ct__textf(&text, " with %zu of %zu blocks computed again in gradients",
                  size->cost.recomputed_blocks, size->cost.blocks);
    if (size->seconds > 0) {
        ct__textf(&text, ", about ");
        train_add_duration(&text, size->seconds);
        ct__textf(&text, " for %" PRId64 " steps (%.3g GFLOP/s measured)", o->steps, size->gflops);
    }
    if (size->memory_is_short)
        ct__text_add(&text, "; this machine has memory for a larger one, but others use it now");
    train_report(r, (ct_lm_event){.kind = CT_LM_MODEL, .text = text.failed ? "" : text.s});
    ct__text_free(&text);
}

// Reports the memory that was used beside what was planned. If the process used more earlier, for something
// else, its peak is meaningless and nothing is reported.
static void train_report_memory(run *r, const ct_lm_cost *planned, uint64_t peak_before) {
    ct_text text = {0};
    uint64_t peak = ct__account.peak;
    if (peak <= peak_before) return;
    ct__textf(&text, "memory: tensors %s of %s planned, the process %s of %s",
              ct__bytes_text(peak).s, ct__bytes_text(planned->devices).s,
              ct__bytes_text(ct__resident_peak_bytes()).s, ct__bytes_text(planned->total).s);
    train_report(r, (ct_lm_event){.kind = CT_LM_MEMORY, .text = text.failed ? "" : text.s});
    ct__text_free(&text);
}

// False before the first evaluation, and after the best weights were lost until others are kept.
static bool train_has_best(const run *r) {
    return r->keeps_best && r->best.evaluations && r->best.val_loss < INFINITY;
}

// Reports why the run ended early, and the folder of the best weights.
static void train_report_early_stop(run *r) {
    ct_text text = {0}, best_dir = {0};
    if (!r->keeps_best || !r->best.evaluations) return;
    ct__textf(&text, "stopped early, after step %" PRId64 " of %" PRId64 ": the validation loss ",
              r->done, r->o.steps);
    if (r->best.val_loss > r->best.reference_loss) // the weights of the lowest loss were lost
        ct__textf(&text, "did not fall below %.4f in %" PRId64 " evaluations",
                  r->best.reference_loss, r->best.stale_evaluations);
    else if (r->best.val_loss < r->best.reference_loss)
        ct__textf(&text, "fell by no more than %g below %.4f in %" PRId64 " evaluations, to %.4f",
                  r->o.min_delta.value, r->best.reference_loss, r->best.stale_evaluations,
                  r->best.val_loss);
    else
        ct__textf(&text,
                  "did not improve on the %.4f of step %" PRId64 " in %" PRId64 " evaluations",
                  r->best.val_loss, r->best.steps, r->best.stale_evaluations);
    if (r->end == CT_FIT_PATIENCE)
        train_report(r, (ct_lm_event){.kind = CT_LM_EARLY_STOP, .text = text.failed ? "" : text.s});
    ct__textf(&best_dir, "%s/%s", r->o.out, CT_RUN_BEST);
    if (!best_dir.failed && train_has_best(r))
        train_report(r, (ct_lm_event){.kind = CT_LM_BEST, .text = best_dir.s});
    ct__text_free(&text);
    ct__text_free(&best_dir);
}

// Computes the number of bytes of the held-out text.
static bool train_held_out_bytes(const run *r, double *bytes) {
    const int32_t *tokens = r->corpus.tokens + r->n_train;
    const size_t n = r->corpus.n - r->n_train;
    char one[4];
    if (r->bundle.tokenizer) return ct__bundle_count_bytes(&r->bundle, tokens, n, bytes, r->err);
    *bytes = 0;
    for (size_t i = 0; i < n; i++)
        *bytes += r->o.chars ? (double)ct__utf8_put(r->corpus.vocab.chars[tokens[i]], one) : 1;
    return true;
}

// Reports the held-out loss, of the best weights if they are kept, in nats per byte whatever the tokens
// are.
static bool train_report_done(run *r) {
    bool best = train_has_best(r);
    double loss = best ? r->best.val_loss : r->val_loss;
    ct_text text = {0};
    double bytes, n = (double)(r->corpus.n - r->n_train);
    if (!train_held_out_bytes(r, &bytes)) return false;
    ct__textf(&text, "held-out loss: %.4f nats a byte", loss * n / (bytes > 0 ? bytes : 1));
    if (r->o.chars) ct__textf(&text, ", %.4f nats a character", loss);
    if (r->bundle.tokenizer) ct__textf(&text, ", %.4f nats a token", loss);
    if (best) ct__textf(&text, ", after step %" PRId64, r->best.steps);
    train_report(r, (ct_lm_event){.kind = CT_LM_DONE, .text = text.failed ? "" : text.s});
    ct__text_free(&text);
    return true;
}

// --------------------------------------------------------------------- the functions of the fit loop

// Makes the tensor of a batch. A dry run has no values: its device reads none, and a batch that would not
// fit is to be refused before it is allocated.
static ct_tensor train_batch_tensor(const run *r, const void *values, ct_dtype dtype,
                                    int64_t columns) {
    static const char unread;
    return ct_from(r->dry_run ? &unread : values, dtype, CT_DIMS(r->o.batch, columns));
}

static ct_tensor train_record_loss(int64_t batch, void *user) {
    run *r = user;
    r->trained = true;
    r->loader.step = (uint64_t)batch;
    if (!r->dry_run) ct__loader_next(&r->loader, r->x, r->y);
    ct_tensor x = train_batch_tensor(r, r->x, CT_I32, r->o.context),
              y = train_batch_tensor(r, r->y, CT_I32, r->o.context);
    ct_nn_mode mode = {.training = true, .dropout = (float)r->o.dropout};
    if (r->o.dropout > 0) {
        ct_u32x2 seed = {{(uint32_t)r->o.seed, (uint32_t)(r->o.seed >> 32)}};
        ct_u32x2 key = ct__threefry(seed, (ct_u32x2){{STREAM_DROPOUT, 0}});
        key = ct__threefry(key, (ct_u32x2){{(uint32_t)batch, (uint32_t)((uint64_t)batch >> 32)}});
        mode.key = ct_from(key.v, CT_U32, CT_DIMS(2));
    }
    // Assigned with the step, so that it always belongs to this step, and saving needs no plan of its own.
    if ((batch + 1) % r->o.accumulate == 0) {
        r->done = (batch + 1) / r->o.accumulate;
        ct_assign(r->position, ct_scalar((double)r->done, CT_I64));
    }
    CT_AUTOCAST(r->o.precision);
    return ct_lm_loss(r->lm, x, y, &mode);
}

static bool train_should_stop(const run *r) {
    return r->o.should_stop && r->o.should_stop(r->o.user);
}

// Sums the losses of the rows that count, so that the last batch, which may be short, has the shape of all
// others and needs no plan of its own.
static void train_eval_batch(run *r) {
    CT_SCOPE;
    ct_tensor x = train_batch_tensor(r, r->x, CT_I32, r->o.context),
              y = train_batch_tensor(r, r->y, CT_I32, r->o.context);
    ct_tensor count = train_batch_tensor(r, r->row_weights, CT_F32, 1);
    CT_AUTOCAST(r->o.precision);
    ct_tensor logits = ct_lm_logits(r->lm, x, NULL);                 // (B, T, vocab)
    ct_tensor losses = ct_cross_entropy(logits, y, .per_row = true); // (B, T)
    ct_metric("val_sum", ct_sum(ct_mul(losses, count)));
}

static bool train_add_eval_batch(run *r, ct_windows *windows, double *sum) {
    CT_DEFAULT_ENV;
    size_t rows = ct__windows_next(windows, r->x, r->y);
    for (size_t b = 0; b < (size_t)r->o.batch; b++) r->row_weights[b] = b < rows ? 1 : 0;
    train_eval_batch(r);
    if (r->err->code) return false;
    *sum += ct_metric_value("val_sum");
    return !r->err->code;
}

static bool train_collect_sample(const char *text, size_t n, void *user) {
    run *r = user;
    ct__text_bytes(&r->sample, text, n);
    return !r->sample.failed;
}

static bool train_should_stop_fn(void *user) { return train_should_stop(user); }

static bool train_show_sample(run *r) {
    char prompt[4];
    if (!r->o.on_event) return true;
    ct_lm_draw draw = {.prompt = prompt,
                       .prompt_n = ct__lm_first(&r->corpus.vocab, prompt),
                       .max_tokens = SAMPLE_TOKENS,
                       .top_k = 40,
                       .temperature = 0.8,
                       .seed = r->o.seed,
                       .write = train_collect_sample,
                       .stop = train_should_stop_fn,
                       .user = r};
    ct__text_free(&r->sample);
    if (!ct__lm_write(r->lm, r->cache, &r->corpus.vocab, &r->bundle, &draw, r->err)) return false;
    // Untrained weights generate a sample too, so that all plans are made with the first step; it is not
    // reported.
    if (!r->trained) return true;
    train_report(r, (ct_lm_event){.kind = CT_LM_SAMPLE,
                                  .text = r->sample.s ? r->sample.s : "",
                                  .text_n = r->sample.n,
                                  .state.done = r->done});
    return true;
}

static bool train_evaluate(double *val_loss, void *user) {
    run *r = user;
    ct_windows windows = {.tokens = r->corpus.tokens + r->n_train,
                          .n = r->corpus.n - r->n_train,
                          .batch = (size_t)r->o.batch,
                          .context = (size_t)r->o.context};
    size_t count = ct__windows_count(&windows), done = 0;
    // The windows are the same, whatever the number of batches per step.
    double max_batches = r->o.eval_batches.value * (double)r->o.accumulate, sum = 0;
    for (double batch = 0; windows.next < count && (max_batches == 0 || batch < max_batches);
         batch++) {
        if (train_should_stop(r)) return true;
        if (!train_add_eval_batch(r, &windows, &sum)) return false;
        done = windows.next;
    }
    {
        CT_DEFAULT_ENV;
        *val_loss = r->val_loss = sum / ((double)done * (double)r->o.context);
    }
    return isfinite(r->val_loss) ? train_show_sample(r)
                                 : true; // else the fit loop reports the error
}

static bool train_add_settings(ct_config *config, void *user, ct_err *err) {
    const run *r = user;
    // From these keys folders of a GPT-2 without a tokenizer.json have their tokens.
    const char *kind = r->o.chars ? "chars" : "bytes";
    if (!r->o.arch && !r->o.from && !r->bundle.tokenizer) {
        ct__config_set_string(config, "tokenizer", kind, strlen(kind));
        if (r->characters.s)
            ct__config_set_string(config, "vocabulary", r->characters.s, r->characters.n);
    }
    return ct__lm_settings_store(config, &r->o, &r->corpus, r->done, &r->best, err);
}

// The best weights are saved first: the files that are saved later force their names to disk.
static bool train_save_model(run *r, const char *folder) {
    return (!train_has_best(r) || ct__checkpoint_link_best(r->dir, folder, r->err)) &&
           ct__lm_save(r->lm, folder, train_add_settings, r, CT_NOWHERE);
}

static bool train_write_checkpoint(run *r, int64_t steps_done) {
    char folder[CT_RUN_PATH], state[CT_RUN_PATH + 32];
    if (!ct__checkpoint_begin(r->dir, steps_done, folder, r->err)) return false;
    snprintf(state, sizeof state, "%s/state.safetensors", folder);
    return train_save_model(r, folder) &&
           ct_params_save_at(ct_optim_state(r->optim), state, CT_NOWHERE) &&
           ct__checkpoint_commit(r->dir, steps_done, r->err);
}

// Updates the checkpoint of this step after a late evaluation, file by file, each one complete. The weights
// are the same; config.json, with the state of early stopping, is written last, so that until then a
// resumed run evaluates again.
static bool train_update_checkpoint(run *r) {
    char folder[CT_RUN_PATH];
    return ct__checkpoint_path(r->dir, r->saved, NULL, folder, r->err) &&
           train_save_model(r, folder);
}

static bool train_file_path(const run *r, const char *dir, const char *name,
                            char path[CT_RUN_PATH]) {
    int n = snprintf(path, CT_RUN_PATH, "%s/%s", dir, name);
    if (n > 0 && n < CT_RUN_PATH) return true;
    return ct__err(r->err, CT_E_FILE, CT_NOWHERE, "train", "the path of .out is too long");
}

// Sets the folder of the run's files; open files moved with it.
static bool train_set_dir(run *r, const char *dir) {
    int n = snprintf(r->dir, sizeof r->dir, "%s", dir);
    if (n >= CT_RUN_PATH)
        return ct__err(r->err, CT_E_FILE, CT_NOWHERE, "train", "the path of .out is too long");
    return train_file_path(r, dir, "metrics.jsonl", r->metrics_path) &&
           train_file_path(r, dir, "loss.svg", r->plot_path);
}

// Puts the run, which has a save now, in the place of the other run.
static bool train_replace_run(run *r) {
    if (!ct__run_replace(r->o.out, r->err) || !train_set_dir(r, r->o.out)) return false;
    r->replaces_run = false;
    train_report(r, (ct_lm_event){.kind = CT_LM_OUTPUT_DIR, .text = r->o.out});
    return true;
}

// Adds a hint after a failure of the disk or of the device.
static void train_hint_checkpoint(run *r) {
    if (r->saved >= 0)
        ct__err_hint(r->err,
                     "the checkpoint of step %" PRId64
                     " is complete: .resume continues from it after this is fixed",
                     r->saved);
}

static bool train_save(int64_t steps_done, void *user) {
    run *r = user;
    // there is nothing yet that could replace the other run; a failure is reported
    if (r->replaces_run && !steps_done)
        return !train_should_stop(r) ||
               ct__err(r->err, CT_E_INTERRUPTED, CT_NOWHERE, r->command,
                       "stopped before the first step: what is in %s stays", r->o.out);
    bool exists = steps_done == r->saved;
    bool is_current = exists && memcmp(&r->best, &r->saved_best, sizeof r->best) == 0;
    if (!is_current &&
        !(exists ? train_update_checkpoint(r) : train_write_checkpoint(r, steps_done))) {
        ct__checkpoint_abandon(r->dir, steps_done);
        if (r->err->code == CT_E_FILE) train_hint_checkpoint(r);
        return false;
    }
    r->saved = steps_done;
    r->saved_best = r->best;
    if (!r->tokenizer_saved && !ct__bundle_save(&r->bundle, r->dir, r->err)) {
        train_hint_checkpoint(r);
        return false;
    }
    r->tokenizer_saved = true;
    return (!r->replaces_run || train_replace_run(r)) &&
           ct__checkpoint_publish(r->o.out, steps_done, r->err);
}

// Keeps the best weights of runs with patience, since the last weights are those of evaluations that were
// worse. The fit loop reports errors. An evaluation whose weights could not be kept is not counted, so that
// a resumed run repeats it.
static ct_fit_action train_keep_best(const ct_fit_state *point, void *user) {
    run *r = user;
    char folder[CT_RUN_PATH];
    ct_fit_best previous = r->best;
    r->best = point->best;
    if (r->keeps_best && point->improved &&
        !(train_file_path(r, r->dir, CT_RUN_BEST, folder) &&
          ct__lm_save(r->lm, folder, train_add_settings, r, CT_NOWHERE) &&
          ct__bundle_save(&r->bundle, folder, r->err)))
        r->best = previous;
    return CT_FIT_CONTINUE;
}

static ct_fit_action train_report_step(const ct_fit_state *point, void *user) {
    train_report(user, (ct_lm_event){.kind = CT_LM_STEP, .state = *point});
    return CT_FIT_CONTINUE;
}

static void train_on_end(const ct_fit_state *point, void *user) {
    run *r = user;
    r->end = point->end_reason;
    r->done = point->done;
}

// --------------------------------------------------------------------------------------- preparation

// Locks the folder for this process.
static bool train_lock_folder(run *r) {
    return ct__run_lock(r->o.out, &r->lock, r->err) && ct__run_complete_replace(r->o.out, r->err);
}

// Checks what is in the folder: with `overwrite` anything may be replaced, whoever wrote it. The caller
// frees contents->names.
static bool train_check_folder(const run *r, ct_run_contents *contents) {
    if (!ct__run_list_contents(r->o.out, contents, r->err)) return false;
    if (!contents->names.n) return true;
    if (r->o.overwrite) return ct__run_could_replace(r->o.out, r->err);
    if (contents->saved) {
        train_refuse(r->err, r->command,
                     "in %s is a run of %" PRId64 " step%s, which would be lost", r->o.out,
                     contents->steps, contents->steps == 1 ? "" : "s");
        ct__err_hint(r->err, ".resume continues it, .overwrite replaces it");
    } else {
        train_refuse(r->err, r->command, "in %s is what would be lost: %s", r->o.out,
                     contents->names.s);
        ct__err_hint(r->err, ".overwrite replaces it, another .out keeps it");
    }
    return false;
}

static bool train_could_keep_best(const run *r) {
    return (!r->keeps_best && !r->resumed.has_best) || ct__run_check_best(r->o.out, r->err);
}

static bool train_could_begin(const run *r) {
    ct_run_contents contents = {0};
    bool ok = ct__could_be_folder(r->o.out, r->err) && train_check_folder(r, &contents) &&
              train_could_keep_best(r);
    ct__text_free(&contents.names);
    return ok;
}

static void train_report_replaced(const run *r, const ct_run_contents *contents) {
    ct_text text = {0};
    if (contents->saved)
        ct__textf(&text, "the run in %s, of %" PRId64 " step%s, is replaced at the first save",
                  r->o.out, contents->steps, contents->steps == 1 ? "" : "s");
    else
        ct__textf(&text, "what is in %s is replaced at the first save: %s", r->o.out,
                  contents->names.s);
    if (!text.failed) ct__log(ct__ctx(), CT_LOG_WARNING, text.s);
    ct__text_free(&text);
}

// Chooses the folder to write. What would be replaced stays complete until there is a save to put in its
// place.
static bool train_choose_folder(run *r) {
    char next[CT_RUN_PATH];
    ct_run_contents contents = {0};
    bool ok = train_check_folder(r, &contents); // another process may have begun meanwhile
    r->replaces_run = ok && contents.names.n;
    if (ok) ct__run_tidy(r->o.out);
    if (r->replaces_run) train_report_replaced(r, &contents);
    ct__text_free(&contents.names);
    if (r->replaces_run)
        return ct__run_begin_replace(r->o.out, next, r->err) && train_set_dir(r, next);
    if (ok) train_report(r, (ct_lm_event){.kind = CT_LM_OUTPUT_DIR, .text = r->o.out});
    return ok && train_set_dir(r, r->o.out);
}

// Makes the folder of a new run.
static bool train_make_folder(run *r) {
    bool named = r->o.out != NULL;
    if (!named) r->o.out = r->default_dir;
    return (named ? ct__make_dirs(r->o.out, 0777, r->err)
                  : ct__run_make_folder(r->default_dir, r->err)) &&
           train_lock_folder(r) && train_choose_folder(r);
}

static bool train_reopen_folder(run *r) {
    r->o.out = r->o.resume;
    if (!ct__run_is_folder(r->o.out, r->err) || !train_lock_folder(r) ||
        !train_set_dir(r, r->o.out) || !ct__lm_resume(&r->o, &r->resumed, r->err))
        return false;
    r->first = r->saved = r->done = r->resumed.step;
    r->trained = r->first > 0;
    bool exists = r->resumed.best_in_folder || ct__checkpoint_has_best(r->o.out, r->first);
    bool has_patience = r->o.patience.value > 0, lost = r->resumed.best.val_loss == INFINITY;
    r->keeps_best = has_patience || exists || lost;
    // A loss whose weights were never kept does not count for early stopping.
    if (exists || lost || !has_patience) r->best = r->resumed.best;
    r->saved_best = r->best;
    return train_could_keep_best(r);
}

// Warns of NUL bytes: files of any bytes are accepted, but binary files are hardly ever intended.
static void train_warn_of_binary(const run *r) {
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

// Reports the progress some times a second.
static bool train_on_tokenize(const char *text, void *user) {
    run *r = user;
    const double now = ct__now();
    if (now - r->last_report > 0.2)
        train_report(r, (ct_lm_event){.kind = CT_LM_TOKENIZING, .text = text});
    if (now - r->last_report > 0.2) r->last_report = now;
    return !train_should_stop(r);
}

// Makes the tokenizer: trains it, or loads it from the run's folder, from the model's, or from the given
// path.
static bool train_find_tokenizer(run *r) {
    const int64_t bpe = train_bpe_size(r->o.tokenizer);
    const ct_bundle_progress progress = {train_on_tokenize, r};
    const char *from = r->o.resume ? r->o.resume : r->o.from ? r->from : r->o.tokenizer;
    if (!(bpe > 0 && !r->o.resume ? ct__bundle_train(&r->bundle, &r->corpus, bpe, &progress, r->err)
                                  : ct__bundle_load(&r->bundle, from, r->err)))
        return false;
    const int64_t n = ct_tokenizer_size(r->bundle.tokenizer);
    r->corpus.vocab.n = (int32_t)(r->vocab ? r->vocab : n);
    return n <= r->corpus.vocab.n ||
           ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, from,
                   "the tokenizer has %" PRId64 " tokens, the model has %" PRId64, n, r->vocab);
}

// Tokenizes the text; a resumed run maps the tokens in its folder if the text is the same.
static bool train_tokenize(run *r) {
    const ct_bundle_progress progress = {train_on_tokenize, r};
    const ct_lm_resumed *resumed = &r->resumed;
    if (!train_find_tokenizer(r)) return false;
    if (r->o.resume && resumed->text_sum == (int64_t)r->corpus.text_sum &&
        ct__bundle_map_tokens(&r->corpus, r->o.out, resumed->n_tokens,
                              (uint32_t)strtoul(resumed->checksum, NULL, 16)))
        return true;
    return ct__bundle_tokenize(&r->bundle, &r->corpus, &progress, r->err);
}

static bool train_read_text(run *r) {
    const ct_lm_train_options *o = &r->o;
    const bool needs_tokenizer = o->tokenizer || o->from;
    ct_tokens kind = needs_tokenizer ? CT_TOKENS_DEFERRED
                     : o->chars      ? CT_TOKENS_CHARS
                                     : CT_TOKENS_BYTES;
    // The smallest context that would be chosen, if none is requested.
    size_t context = o->context ? (size_t)o->context : 32;
    if (!ct__corpus_read(o->data, o->n_data, kind, o->out, &r->corpus, r->err)) {
        if (o->data == r->resumed.data) ct__lm_hint_text(r->err);
        return false;
    }
    if (needs_tokenizer && !train_tokenize(r)) return false;
    if (!needs_tokenizer && !ct__bundle_of_vocab(&r->bundle, &r->corpus.vocab, r->err))
        return false;
    if (!ct__corpus_check(&r->corpus, context, r->err)) return false;
    if (!needs_tokenizer) train_warn_of_binary(r);
    r->n_train = ct__split(r->corpus.n);
    ct__vocab_text(&r->corpus.vocab, &r->characters);
    return !r->characters.failed || ct__err_memory(r->err, CT_NOWHERE, r->command, r->corpus.n);
}

// Saves the tokenizer and the tokens beside the model from the beginning. Those of bytes or characters are
// saved with the first checkpoint, so that a run that fails before it leaves nothing that would be lost.
static bool train_save_tokenizer(run *r) {
    if (!r->bundle.tokenizer && !r->o.resume) return true;
    r->tokenizer_saved = ct__bundle_save(&r->bundle, r->dir, r->err);
    return r->tokenizer_saved &&
           (!r->bundle.tokenizer || ct__bundle_store_tokens(&r->corpus, r->dir, r->err));
}

static bool train_make_batches(run *r) {
    size_t B = (size_t)r->o.batch, T = (size_t)r->o.context;
    r->loader = (ct_loader){.tokens = r->corpus.tokens,
                            .n = r->n_train,
                            .batch = B,
                            .context = T,
                            .seed = r->o.seed,
                            .stream = STREAM_WINDOWS};
    // Zeros: rows of a short batch that no window fills must still be valid tokens.
    r->x = ct__calloc(B * T, sizeof *r->x);
    r->y = ct__calloc(B * T, sizeof *r->y);
    r->row_weights = ct__calloc(B, sizeof *r->row_weights);
    return (r->x && r->y && r->row_weights) ||
           ct__err_memory(r->err, CT_NOWHERE, r->command, B * T * sizeof *r->x);
}

// Makes the variables that a resumed run needs besides the optimizer's state, in the same file.
static bool train_make_state(run *r) {
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

// Reports the latest plan of a dry run.
static bool train_report_plan(run *r, const char *name) {
    return !r->dry_run || ct__dry_run_report(r->dry_run, name);
}

// Loads the checkpoint's state over the initial one.
static bool train_load_checkpoint(run *r) {
    char state[CT_RUN_PATH];
    if (!ct__checkpoint_path(r->o.out, r->first, "state.safetensors", state, r->err) ||
        !ct_params_load_at(ct_optim_state(r->optim), state, CT_NOWHERE) ||
        !ct_optim_resume_at(r->optim, CT_NOWHERE))
        return false;
    CT_SCOPE;
    double position = ct_item(r->position);
    const uint32_t *key = ct_data(r->random);
    if (!key) return false;
    if (position != (double)r->first || ct_optim_step_count(r->optim) != r->first)
        return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, state,
                       "it holds %" PRId64 " steps and loader position %.0f, not step %" PRId64,
                       ct_optim_step_count(r->optim), position, r->first);
    if (key[0] != (uint32_t)r->o.seed || key[1] != (uint32_t)(r->o.seed >> 32))
        return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, state,
                       "its random key is not that of the run's seed");
    return true;
}

// Warns if this device computes with other rules than the run did, which gives other bits; the run
// continues.
static bool train_compare_numerics(run *r) {
    char path[CT_RUN_PATH];
    ct_st file;
    if (!ct__checkpoint_path(r->o.out, r->first, "state.safetensors", path, r->err) ||
        !ct__st_open(path, &file, r->err))
        return false;
    const char *saved = ct__st_metadata(&file, "cotan.numerics"), *current = ct_numerics();
    if (saved && strcmp(saved, current) != 0) {
        ct_text text = {0};
        char shown[CT_PRINTABLE];
        ct__textf(&text,
                  "the run was computed with \"%s\", this device computes with \"%s\": other bits "
                  "than without the stop",
                  ct__printable(saved, strlen(saved), shown, sizeof shown), current);
        if (!text.failed) ct__log(ct__ctx(), CT_LOG_WARNING, text.s);
        ct__text_free(&text);
    }
    ct__st_close(&file);
    return true;
}

static bool train_restore_best(run *r) {
    const char *dir = r->o.out;
    if (!r->resumed.has_best) return true;
    const ct_err *damage = &r->resumed.damage;
    bool lost = damage->code && !r->resumed.best_in_folder;
    char folder[CT_RUN_PATH];
    if (damage->code) {
        ct_text text = {0};
        ct__textf(&text,
                  lost ? "%s; the run continues without the best weights so far, " CT_RUN_BEST
                         "/ will keep those of the evaluations to come"
                       : "%s; the same weights in " CT_RUN_BEST "/ are complete",
                  damage->text);
        if (!text.failed) ct__log(ct__ctx(), CT_LOG_WARNING, text.s);
        ct__text_free(&text);
    }
    if (r->resumed.best_in_folder)
        return ct__checkpoint_path(dir, r->first, NULL, folder, r->err) &&
               ct__checkpoint_link_best(dir, folder, r->err);
    if (!ct__checkpoint_restore_best(dir, r->first, lost, r->err)) return false;
    return lost || !ct__checkpoint_has_best(dir, r->first) ||
           (train_file_path(r, dir, CT_RUN_BEST, folder) &&
            ct__bundle_save(&r->bundle, folder, r->err));
}

// Prunes the folder to the checkpoint's state, after everything that can be refused was checked.
static ct_fit_action train_on_resume(const ct_fit_state *point, void *user) {
    run *r = user;
    char text[128];
    (void)point;
    ct__run_tidy(r->o.out);
    if (!ct__checkpoint_remove_after(r->o.out, r->first, r->err) || !train_restore_best(r) ||
        !ct__checkpoint_publish(r->o.out, r->first, r->err))
        return CT_FIT_CONTINUE; // the error ends the fit
    int n = snprintf(text, sizeof text, "resuming at step %" PRId64, r->first);
    if (r->first == r->o.steps)
        snprintf(text, sizeof text, "all %" PRId64 " steps are done; more .steps continue it",
                 r->first);
    else if (r->o.steps != r->resumed.steps)
        snprintf(text + n, sizeof text - (size_t)n, ", for %" PRId64 " steps instead of %" PRId64,
                 r->o.steps, r->resumed.steps);
    train_report(r, (ct_lm_event){.kind = CT_LM_RESUME, .text = text});
    return CT_FIT_CONTINUE;
}

ct_optim *ct__lm_optim(ct_params *params, const ct_lm_train_options *o) {
    return ct_adamw(params,
                    .schedule = {.shape = CT_LR_COSINE,
                                 .lr = o->lr > 0 ? o->lr : train_default_lr(o),
                                 .min_lr = o->min_lr.value,
                                 .warmup = (int64_t)o->warmup.value,
                                 .steps = o->steps},
                    .clip = o->clip.value, .beta1 = o->beta1, .beta2 = o->beta2,
                    .weight_decay = o->weight_decay,
                    .loss_scale.initial = o->precision == CT_F16 ? INITIAL_LOSS_SCALE : 0);
}

// Makes a new model, or loads the one that the run starts from.
static bool train_make_model(run *r) {
    const ct_lm_train_options *o = &r->o;
    if (*r->from) {
        r->lm =
            ct_lm_load_with(r->from, (ct_lm_load_options){.trainable = true, .here = CT_NOWHERE});
    } else {
        const ct_lm_sizes sizes = train_lm_sizes(r, o);
        r->lm = ct__lm_new(&sizes, o->seed, CT_HERE);
    }
    return r->lm != NULL;
}

static bool train_make_all(run *r) {
    const ct_lm_train_options *o = &r->o;
    // Loaded weights make no plan.
    if (!train_make_model(r) || (!*r->from && !train_report_plan(r, "initial weights")))
        return false;
    r->optim = ct__lm_optim(ct_lm_params(r->lm), o);
    if (!r->optim || !train_report_plan(r, "initial optimizer state")) return false;
    if (r->o.on_event && !(r->cache = ct__lm_sample_cache_new(r->lm, SAMPLE_TOKENS + CT_LM_PROMPT)))
        return false;
    return train_make_state(r);
}

static void train_free_model(run *r) {
    ct__lm_cache_free(r->cache);
    ct_optim_free(r->optim);
    ct_lm_free(r->lm);
    ct__free(r->x);
    ct__free(r->y);
    ct__free(r->row_weights);
}

static void train_run_free(run *r) {
    train_free_model(r);
    ct__lm_resumed_free(&r->resumed);
    if (r->replaces_run) ct__run_abandon_replace(r->o.out); // the run was never saved
    ct__run_unlock(r->lock);
    ct__corpus_free(&r->corpus);
    ct__bundle_free(&r->bundle);
    ct__text_free(&r->characters);
    ct__text_free(&r->sample);
    ct__text_free(&r->largest);
}

// ------------------------------------------------------------------------------------------- dry run

static uint64_t train_param_bytes(const ct_params *params) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < ct_params_count(params); i++) {
        ct_tensor var = ct_params_get(params, i);
        bytes += (uint64_t)ct_size(var) * ct_dtype_size(ct_dtype_of(var));
    }
    return bytes;
}

// Records a step as ct_fit does; of the batches before the last, which are alike, one.
static bool train_record_step(run *r, bool reports) {
    if (r->o.accumulate > 1) {
        {
            CT_SCOPE;
            ct_tensor loss = train_record_loss(0, r);
            ct_metric("loss", loss);
            ct_optim_accumulate(r->optim, loss);
        }
        if (reports && !train_report_plan(r, "micro-batch")) return false;
    }
    {
        CT_SCOPE;
        ct_tensor loss = train_record_loss(r->o.accumulate - 1, r);
        ct_metric("loss", loss);
        ct_optim_step(r->optim, loss);
    }
    return !reports || train_report_plan(r, "step");
}

// Records everything that a run records, in its order: making the model, an evaluation, a sample, a step.
static bool train_record_all(run *r, ct_lm_cost *cost) {
    if (!train_make_all(r)) return false;
    cost->batches =
        (uint64_t)r->o.batch * (2 * (uint64_t)r->o.context * sizeof *r->x + sizeof *r->row_weights);
    // Half as much again while the losses are plotted.
    cost->loss_history =
        ct__series_bytes(r->o.steps) * 3 / 2 + ct__series_bytes(r->o.steps / r->o.eval_every + 2);
    cost->weights = train_param_bytes(ct_lm_params(r->lm));
    cost->optimizer_state = train_param_bytes(ct_optim_state(r->optim));
    if (r->o.accumulate > 1) {
        const ct_params *sums = ct__optim_make_sums(r->optim, CT_NOWHERE);
        if (!sums || !train_report_plan(r, "initial accumulators")) return false;
        cost->grad_accumulators = train_param_bytes(sums);
    }
    train_eval_batch(r);
    if (!train_report_plan(r, "evaluation")) return false;
    if (r->o.on_event && (!ct__lm_dry_run_generate(r->lm, r->cache, 1, SAMPLE_TOKENS) ||
                          !train_report_plan(r, "sample")))
        return false;
    if (!train_record_step(r, true)) return false;
    // Once more, with the memory of all plans allocated; the plans are cached.
    train_eval_batch(r);
    if (r->o.on_event && !ct__lm_dry_run_generate(r->lm, r->cache, 1, SAMPLE_TOKENS)) return false;
    return train_record_step(r, false) && !r->err->code;
}

// Makes one dry run that keeps within real->device_limit.
static bool train_dry_run_once(run *real, const ct_lm_train_options *options, ct_lm_cost *cost) {
    run *r = train_run_alloc(options, real->command, real->err);
    if (!r) return false;
    ct_lm_dry_run h = {.part = real->part, .user = real->part_user};
    *cost = (ct_lm_cost){0};
    bool ok = ct__dry_run_begin(&h, ct__ctx(), real->device_limit, real->err);
    if (ok) {
        r->err = &h.ctx->err;
        r->dry_run = &h;
        // The text belongs to the run itself.
        r->corpus = real->corpus;
        r->n_train = real->n_train;
        r->characters = real->characters;
        r->bundle = real->bundle;
        memcpy(r->from, real->from, sizeof r->from);
        ok = train_record_all(r, cost);
        train_free_model(r);
    }
    ct__free(r);
    ct__dry_run_end(&h, cost, real->err);
    ct__text_free(&real->largest);
    real->largest = h.largest;
    return ok && !real->err->code;
}

// Makes dry runs until the run fits: gradients recompute as few blocks as necessary. The process's memory
// outside of devices is only known when everything is planned, and differs between dry runs, so that one
// more may not be enough and a reserve is left.
static bool train_dry_run(const ct_lm_train_options *options, bool may_remat, ct_lm_cost *cost,
                          void *user) {
    enum { MAX_TURNS = 4, SPARE_PART = 32 };
    run *real = user;
    real->device_limit = 0;
    bool ok = train_dry_run_once(real, options, cost);
    for (int turn = 1;
         turn <= MAX_TURNS && ok && may_remat && cost->recomputed_blocks < cost->blocks; turn++) {
        const uint64_t available = ct__lm_room(cost),
                       limit = real->device_limit ? real->device_limit : cost->devices;
        if (cost->total <= available) break;
        const uint64_t excess = cost->total - available + cost->process / SPARE_PART;
        real->device_limit = excess < limit && turn < MAX_TURNS ? limit - excess : 1;
        ok = train_dry_run_once(real, options, cost);
    }
    return ok;
}

// Takes the sizes of the model as those of the run.
static bool train_take_model_sizes(run *r, const ct_lm *lm) {
    enum { DEFAULT_CONTEXT = 256 };
    ct_lm_train_options *o = &r->o;
    const ct_spec *s = &lm->spec;
    if (lm->reader || s->bidirectional)
        return ct__err(r->err, CT_E_USAGE, CT_NOWHERE, r->command,
                       ".from %s: %s is not a generative model, and only those can be trained",
                       o->from, s->type);
    if (lm->files->gguf.version)
        return ct__err(
            r->err, CT_E_USAGE, CT_NOWHERE, r->command,
            ".from %s: a run cannot save GGUF: give the folder from which the file was made",
            o->from);
    if (s->context && o->context > s->context)
        return ct__err(r->err, CT_E_USAGE, CT_NOWHERE, r->command,
                       ".context %" PRId64 " is more than the %" PRId64 " tokens of %s", o->context,
                       s->context, o->from);
    r->n_parameters = ct__stack_size(s);
    r->vocab = s->vocab;
    o->layers = s->layers;
    o->heads = s->heads;
    o->width = s->width;
    if (!o->context)
        o->context = s->context && s->context < DEFAULT_CONTEXT ? s->context : DEFAULT_CONTEXT;
    return true;
}

// Finds the folder of the model to start from: for a resumed run its checkpoint.
static bool train_find_base_model(run *r) {
    if (r->o.resume) return ct__checkpoint_path(r->o.out, r->first, NULL, r->from, r->err);
    if (ct__is_absent(r->o.from))
        return ct_hub_find_at(r->o.from, NULL, r->from, CT_RUN_PATH, CT_NOWHERE);
    if (snprintf(r->from, CT_RUN_PATH, "%s", r->o.from) < CT_RUN_PATH) return true;
    return ct__err(r->err, CT_E_FILE, CT_NOWHERE, r->command, "the path of .from is too long");
}

// Refuses quantised weights, which have no gradients.
static bool train_check_not_quantised(run *r) {
    static const char *const keys[] = {"quantization_config", "quantization"};
    char path[CT_RUN_PATH];
    ct_config config;
    ct_err ignored = {0}; // ct_lm_load reports what is wrong with the file
    bool quantised = false;
    if (!train_file_path(r, r->from, "config.json", path)) return false;
    if (!ct__config_read(path, &config, &ignored)) return true;
    for (int i = 0; i < 2; i++)
        quantised |= ct__config_has(&config, keys[i]) && !ct__config_is_null(&config, keys[i]);
    ct__config_close(&config);
    return !quantised ||
           train_refuse(r->err, r->command,
                        ".from %s: its weights are quantised, and have no gradients", r->o.from);
}

static bool train_inspect_base_model(run *r) {
    if (!r->o.from && !r->o.resume) return true;
    if (!train_find_base_model(r)) return false;
    if (!r->o.from) return true;
    if (!train_check_not_quantised(r)) return false;
    ct_lm *lm = ct_lm_load_with(r->from, (ct_lm_load_options){.here = CT_NOWHERE}); // mapped
    bool ok = lm && train_take_model_sizes(r, lm);
    ct_lm_free(lm);
    return ok;
}

// Reads the text, chooses the sizes and estimates the cost: everything that is known before anything is
// written.
static bool train_prepare(run *r, ct_lm_size *size) {
    bool resumed = r->o.resume != NULL;
    if (!train_inspect_base_model(r) || !train_read_text(r)) return false;
    if (resumed && !ct__lm_same_text(&r->resumed, &r->corpus, r->o.chars, r->err)) return false;
    if (!ct__lm_choose(&r->o, r->command, &r->corpus, train_count_parameters, train_dry_run, r,
                       size, r->err))
        return false;
    train_fill_lr(&r->o);
    train_report_model(r, size);
    return true;
}

bool ct_lm_plan(const ct_lm_train_options *options, ct_lm_plan_fn on_plan, void *user,
                ct_lm_cost *cost) {
    ct_ctx *ctx = ct__ctx();
    ct_lm_size size = {0};
    if (!ctx || !ct__given(ctx, options, CT_NOWHERE, "plan", "the options") ||
        !ct__given(ctx, cost, CT_NOWHERE, "plan", "the pointer to the cost") || ctx->err.code)
        return false;
    if (options->resume || ct__num_given(options->resume_step))
        return train_refuse(
            &ctx->err, "plan",
            ".resume is not allowed for a plan: a resumed run needs what it needed before");
    run *r = train_run_new(options, "plan", ctx);
    if (!r) return false;
    bool ok = train_prepare(r, &size);
    // Choosing makes dry runs of several sizes; only the chosen one is reported.
    r->part = on_plan;
    r->part_user = user;
    ok = ok && train_dry_run_once(r, &r->o, &size.cost);
    size.cost.capacity = ct__lm_room(&size.cost);
    size.cost.capacity_is_limit = ct__memory_limit() > 0;
    *cost = size.cost;
    train_run_free(r);
    ct__free(r);
    return ok;
}

// ------------------------------------------------------------------------------------------ training

static bool train_run_all(run *r) {
    ct_lm_size size = {0};
    uint64_t peak = ct__account.peak;
    bool resumed = r->o.resume != NULL;
    // A new folder is made when the run is known to fit.
    if (resumed && !train_reopen_folder(r)) return false;
    if (!resumed && r->o.out && !train_could_begin(r)) return false;
    if (!train_prepare(r, &size)) return false;
    if (!ct__lm_fits(&size.cost, r->command, &r->largest, train_smaller_hint, r->err)) return false;
    if ((!resumed && !train_make_folder(r)) || !train_save_tokenizer(r) || !train_make_batches(r))
        return false;
    ct__ctx_limit_memory(ct__ctx(), r->device_limit);
    if (!train_make_all(r)) return false;
    if (resumed && (!train_load_checkpoint(r) || !train_compare_numerics(r))) return false;
    const ct_fit_callback callbacks = {.on_begin = resumed ? train_on_resume : NULL,
                                       .on_evaluate = train_keep_best,
                                       .on_step = train_report_step,
                                       .on_end = train_on_end,
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
                          .loss = train_record_loss,
                          .evaluate = train_evaluate,
                          .save = train_save,
                          .should_stop = r->o.should_stop ? train_should_stop_fn : NULL,
                          .user = r,
                          .callbacks = &callbacks,
                          .n_callbacks = 1,
                          .metrics_path = r->metrics_path,
                          .tensorboard_dir = r->dir,
                          .plot_path = r->plot_path,
                          .title = "loss"};
    if (!ct_fit_at(&fit, CT_NOWHERE)) {
        if (r->err->code == CT_E_DEVICE) {
            r->err->hint_final = strstr(r->err->text, "\n  hint: "); // whatever failed after it
            train_hint_checkpoint(r);
        }
        return false;
    }
    double value; // if all steps were done before, nothing was evaluated
    if (isnan(r->val_loss) && !train_evaluate(&value, r)) return false;
    if (isnan(r->val_loss)) // it was stopped
        return ct__err(r->err, CT_E_INTERRUPTED, CT_NOWHERE, r->command,
                       "stopped after %" PRId64 " of %" PRId64 " steps", r->done, r->o.steps);
    train_report_early_stop(r);
    train_report_memory(r, &size.cost, peak);
    return train_report_done(r);
}

bool ct_lm_train(const ct_lm_train_options *options) {
    run *r = train_run_new(options, "train", ct__ctx());
    if (!r) return false;
    bool ok = train_run_all(r);
    ct__ctx_limit_memory(ct__ctx(), 0);
    train_run_free(r);
    ct__free(r);
    return ok;
}
