// The configuration of a training run: its options, checked and with their defaults, the model that it starts
// from, and the text that it reads.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/os.h"
#include "cotan/hub.h"
#include "graph/graph.h"
#include "io/weights.h"
#include "models/lm_run.h"

static void lm_config_fill_defaults(ct_lm_train_options *o) {
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

static double lm_config_default_lr(const ct_lm_train_options *o) {
    return o->from ? 5e-5 : o->width < 512 ? 1e-3 : 6e-4;
}

void ct__lm_config_fill_lr(ct_lm_train_options *o) {
    if (o->lr == 0) o->lr = lm_config_default_lr(o);
    o->min_lr = CT_F(ct__num_or(o->min_lr, o->lr / 10));
}

__attribute__((format(printf, 3, 4))) bool ct__lm_config_refuse(ct_err *err, const char *command,
                                                                const char *format, ...) {
    va_list args;
    va_start(args, format);
    ct__err_v(err, CT_E_USAGE, CT_NOWHERE, command, format, args);
    va_end(args);
    return false;
}

static bool lm_config_options_in_range(const ct_lm_train_options *o) {
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
static int64_t lm_config_bpe_size(const char *tokens) {
    char *end;
    if (!tokens || strncmp(tokens, "bpe:", 4) != 0) return -1;
    const long long n = strtoll(tokens + 4, &end, 10);
    return *end || end == tokens + 4 || n < 0 || n > INT32_MAX ? 0 : n;
}

static bool lm_config_check_tokens(const ct_lm_train_options *o, const char *command, ct_err *err) {
    enum { MIN_TOKENS = 257, MAX_TOKENS = 1 << 24 };
    const int64_t bpe = lm_config_bpe_size(o->tokenizer);
    if (o->tokenizer && o->from)
        return ct__lm_config_refuse(
            err, command, ".tokenizer is not allowed with .from, whose model has its own");
    static const char *const kinds[] = {"bytes", "chars", "bpe:8192", NULL};
    const char *closest = o->tokenizer && bpe < 0 ? ct__nearest(o->tokenizer, kinds) : NULL;
    const bool is_kind = closest && strcmp(closest, o->tokenizer) == 0;
    if (o->tokenizer && bpe < 0 && !is_kind && access(o->tokenizer, F_OK) != 0)
        return ct__lm_config_refuse(
            err, command,
            ".tokenizer is bytes, chars, bpe:8192 (or another number) or the path "
            "of a tokenizer, not \"%.60s\"%s%s%s",
            o->tokenizer, closest ? "; is " : "", closest ? closest : "", closest ? " meant?" : "");
    if (bpe >= 0 && (bpe < MIN_TOKENS || bpe >= MAX_TOKENS))
        return ct__lm_config_refuse(
            err, command,
            ".tokenizer %.40s: a byte-level BPE has %d tokens at least (256 bytes "
            "and the end of a text), and fewer than %d",
            o->tokenizer, MIN_TOKENS, MAX_TOKENS);
    return true;
}

static bool lm_config_check_model(const ct_lm_train_options *o, const char *command, ct_err *err) {
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
            return ct__lm_config_refuse(err, command,
                                        ".%s is not allowed with .from, whose model has its own",
                                        sizes[i].option);
    if (o->arch && !ct__spec_own_rows(err)) return false;
    if (o->arch && !ct__spec_is_known(o->arch)) {
        ct_arena arena = {0};
        const char *closest = ct__spec_nearest(o->arch, &arena);
        ct__lm_config_refuse(err, command, ".arch %.60s is an unknown architecture", o->arch);
        if (closest) ct__err_hint(err, "the nearest that is known is %s", closest);
        ct__arena_free(&arena);
        return false;
    }
    const bool is_other = o->arch && strcmp(o->arch, "gpt2") != 0;
    if ((o->kv_heads || o->intermediate_size) && !is_other)
        return ct__lm_config_refuse(err, command, ".%s needs .arch (a GPT-2 has no such option)",
                                    o->kv_heads ? "kv_heads" : "intermediate_size");
    if (o->no_bias && is_other)
        return ct__lm_config_refuse(
            err, command, ".no_bias is not allowed with .arch %s, which determines its biases",
            o->arch);
    if (o->kv_heads && !o->heads)
        return ct__lm_config_refuse(err, command, ".kv_heads needs .heads");
    return true;
}

static bool lm_config_check_options(const ct_lm_train_options *o, const char *command,
                                    ct_err *err) {
    int64_t steps = o->steps ? o->steps : 2000;
    double lr = o->lr > 0 ? o->lr : lm_config_default_lr(o);
    if (!lm_config_options_in_range(o))
        return ct__lm_config_refuse(err, command, "an option is out of its range");
    if (o->precision && !ct__lm_is_precision(o->precision))
        return ct__lm_config_refuse(err, command,
                                    "the precision is %s, it must be f32, bf16 or f16",
                                    ct_dtype_name(o->precision));
    if (o->out && !*o->out)
        return ct__lm_config_refuse(err, command, ".out is empty: it is the output folder");
    if (o->resume && o->out)
        return ct__lm_config_refuse(
            err, command, ".out is not allowed with .resume, which continues in its folder");
    if (o->resume && o->overwrite)
        return ct__lm_config_refuse(
            err, command, ".overwrite is not allowed with .resume, which continues in its folder");
    if (o->resume) return true; // all other options are those of the run
    if (o->overwrite && !o->out) return ct__lm_config_refuse(err, command, ".overwrite needs .out");
    if (ct__num_given(o->resume_step))
        return ct__lm_config_refuse(err, command, ".resume_step needs .resume");
    if (ct__num_or(o->min_delta, 0) > 0 && !(ct__num_or(o->patience, 0) > 0))
        return ct__lm_config_refuse(err, command, ".min_delta needs .patience");
    if (!o->n_data)
        return ct__lm_config_refuse(err, command,
                                    ".data is missing: files, folders or patterns of text");
    if (!lm_config_check_tokens(o, command, err) || !lm_config_check_model(o, command, err))
        return false;
    if (o->width && o->heads && o->width % o->heads)
        return ct__lm_config_refuse(err, command,
                                    ".width %" PRId64 " is not a multiple of .heads %" PRId64,
                                    o->width, o->heads);
    if (ct__num_given(o->min_lr) && o->min_lr.value > lr)
        return ct__lm_config_refuse(err, command, ".min_lr %g is above .lr %g", o->min_lr.value,
                                    lr);
    if (ct__num_given(o->warmup) && o->warmup.value >= (double)steps)
        return ct__lm_config_refuse(err, command, ".warmup %.0f is not below .steps %" PRId64,
                                    o->warmup.value, steps);
    return true;
}

// Translates values to older option names: chars and bytes to o->chars, and gpt2 to no architecture.
static void lm_config_rename_options(ct_lm_train_options *o) {
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

ct_lm_run *ct__lm_config_alloc(const ct_lm_train_options *options, const char *command,
                               ct_err *err) {
    ct_lm_run *r = ct__malloc(sizeof *r);
    if (!r) return ct__null_memory(err, CT_NOWHERE, command, sizeof *r);
    *r = (ct_lm_run){
        .o = *options, .command = command, .err = err, .val_loss = NAN, .saved = -1, .lock = -1};
    r->bundle.begin = r->bundle.end = -1;
    return r;
}

ct_lm_run *ct__lm_config_new(const ct_lm_train_options *options, const char *command, ct_ctx *ctx) {
    if (!ctx || !ct__given(ctx, options, CT_NOWHERE, command, "the options") || ctx->err.code ||
        !lm_config_check_options(options, command, &ctx->err))
        return NULL;
    ct_numerics(); // opens the device, which may refuse a setting of the environment
    if (ctx->err.code) return NULL;
    ct_lm_run *r = ct__lm_config_alloc(options, command, &ctx->err);
    if (!r) return r;
    lm_config_rename_options(&r->o);
    if (r->o.resume) return r;
    lm_config_fill_defaults(&r->o);
    r->keeps_best = r->o.patience.value > 0;
    return r;
}

ct_lm_sizes ct__lm_config_sizes(const ct_lm_run *r, const ct_lm_train_options *o) {
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

int64_t ct__lm_config_count_parameters(const ct_lm_train_options *o, void *user) {
    const ct_lm_run *r = user;
    if (r->n_parameters) return r->n_parameters;
    const ct_lm_sizes sizes = ct__lm_config_sizes(r, o);
    CT_ARENA arena = {0};
    ct_spec spec;
    const int64_t n =
        ct__lm_spec_of(&sizes, &arena, &spec, NULL, r->err) ? ct__stack_size(&spec) : -1;
    return n;
}

ct_optim *ct__lm_optim(ct_params *params, const ct_lm_train_options *o) {
    enum { INITIAL_LOSS_SCALE = 65536 };
    return ct_adamw(params,
                    .schedule = {.shape = CT_LR_COSINE,
                                 .lr = o->lr > 0 ? o->lr : lm_config_default_lr(o),
                                 .min_lr = o->min_lr.value,
                                 .warmup = (int64_t)o->warmup.value,
                                 .steps = o->steps},
                    .clip = o->clip.value, .beta1 = o->beta1, .beta2 = o->beta2,
                    .weight_decay = o->weight_decay,
                    .loss_scale.initial = o->precision == CT_F16 ? INITIAL_LOSS_SCALE : 0);
}

// -------------------------------------------------------------- the model that the run starts from

// Takes the sizes of the model as those of the run.
static bool lm_config_take_model_sizes(ct_lm_run *r, const ct_lm *lm) {
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
static bool lm_config_find_base_model(ct_lm_run *r) {
    if (r->o.resume) return ct__checkpoint_path(r->o.out, r->first, NULL, r->from, r->err);
    if (ct__is_absent(r->o.from))
        return ct_hub_find_at(r->o.from, NULL, r->from, CT_RUN_PATH, CT_NOWHERE);
    if (snprintf(r->from, CT_RUN_PATH, "%s", r->o.from) < CT_RUN_PATH) return true;
    return ct__err(r->err, CT_E_FILE, CT_NOWHERE, r->command, "the path of .from is too long");
}

// Refuses quantised weights, which have no gradients.
static bool lm_config_check_not_quantised(ct_lm_run *r) {
    static const char *const keys[] = {"quantization_config", "quantization"};
    char path[CT_RUN_PATH];
    ct_config config;
    ct_err ignored = {0}; // ct_lm_load reports what is wrong with the file
    bool quantised = false;
    if (!ct__lm_state_path(r, r->from, "config.json", path)) return false;
    if (!ct__config_read(path, &config, &ignored)) return true;
    for (int i = 0; i < 2; i++)
        quantised |= ct__config_has(&config, keys[i]) && !ct__config_is_null(&config, keys[i]);
    ct__config_close(&config);
    return !quantised ||
           ct__lm_config_refuse(r->err, r->command,
                                ".from %s: its weights are quantised, and have no gradients",
                                r->o.from);
}

bool ct__lm_config_inspect_base(ct_lm_run *r) {
    if (!r->o.from && !r->o.resume) return true;
    if (!lm_config_find_base_model(r)) return false;
    if (!r->o.from) return true;
    if (!lm_config_check_not_quantised(r)) return false;
    ct_lm *lm = ct_lm_load_with(r->from, (ct_lm_load_options){.here = CT_NOWHERE}); // mapped
    bool ok = lm && lm_config_take_model_sizes(r, lm);
    ct_lm_free(lm);
    return ok;
}

// -------------------------------------------------------------------------------------------- text

// Warns of NUL bytes: files of any bytes are accepted, but binary files are hardly ever intended.
static void lm_config_warn_of_binary(const ct_lm_run *r) {
    size_t nuls = 0;
    if (r->o.chars) return;
    for (size_t i = 0; i < r->corpus.n; i++) nuls += r->corpus.tokens[i] == 0;
    if (nuls)
        ct__warn(ct__ctx(), "the text holds %zu NUL byte%s: is it a binary file?", nuls,
                 nuls == 1 ? "" : "s");
}

// Reports the progress some times a second.
static bool lm_config_on_tokenize(const char *text, void *user) {
    ct_lm_run *r = user;
    const double now = ct__now();
    if (now - r->last_report > 0.2)
        ct__lm_report(r, (ct_lm_event){.kind = CT_LM_TOKENIZING, .text = text});
    if (now - r->last_report > 0.2) r->last_report = now;
    return !ct__lm_run_should_stop(r);
}

// Makes the tokenizer: trains it, or loads it from the run's folder, from the model's, or from the given
// path.
static bool lm_config_find_tokenizer(ct_lm_run *r) {
    const int64_t bpe = lm_config_bpe_size(r->o.tokenizer);
    const ct_bundle_progress progress = {lm_config_on_tokenize, r};
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
static bool lm_config_tokenize(ct_lm_run *r) {
    const ct_bundle_progress progress = {lm_config_on_tokenize, r};
    const ct_lm_resumed *resumed = &r->resumed;
    if (!lm_config_find_tokenizer(r)) return false;
    if (r->o.resume && resumed->text_sum == (int64_t)r->corpus.text_sum &&
        ct__bundle_map_tokens(&r->corpus, r->o.out, resumed->n_tokens,
                              (uint32_t)strtoul(resumed->checksum, NULL, 16)))
        return true;
    return ct__bundle_tokenize(&r->bundle, &r->corpus, &progress, r->err);
}

bool ct__lm_config_read_text(ct_lm_run *r) {
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
    if (needs_tokenizer && !lm_config_tokenize(r)) return false;
    if (!needs_tokenizer && !ct__bundle_of_vocab(&r->bundle, &r->corpus.vocab, r->err))
        return false;
    if (!ct__corpus_check(&r->corpus, context, r->err)) return false;
    if (!needs_tokenizer) lm_config_warn_of_binary(r);
    r->n_train = ct__split(r->corpus.n);
    ct__vocab_text(&r->corpus.vocab, &r->characters);
    return !r->characters.failed || ct__err_memory(r->err, CT_NOWHERE, r->command, r->corpus.n);
}
