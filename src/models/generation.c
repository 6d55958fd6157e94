// Reads generation_config.json as sampling options.
#include "models/generation.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/text.h"
#include "io/config.h"

typedef struct generation_reader {
    const json_t *root;
    int64_t vocab;
    const ct_lm_tokens *eos_ids;
    ct_arena *arena;
    ct_lm_sampling *s;
    ct_text unsupported;
    bool out_of_memory; // out of memory
} generation_reader;

static void *generation_alloc(generation_reader *r, size_t bytes) {
    void *to = ct__arena(r->arena, bytes ? bytes : 1);
    r->out_of_memory |= !to;
    return to;
}

static void generation_add_unsupported(generation_reader *r, const char *key) {
    ct__textf(&r->unsupported, "%s%s", r->unsupported.n ? ", " : "", key);
}

static const json_t *generation_get(const generation_reader *r, const char *key) {
    const json_t *value = json_object_get(r->root, key);
    return json_is_null(value) ? NULL : value;
}

// Reads a number; a missing number, or one out of range, changes nothing.
static void generation_read_number(generation_reader *r, const char *key, double low, double high,
                                   ct_num *to) {
    const json_t *value = generation_get(r, key);
    const double number = json_is_number(value) ? json_number_value(value) : -1;
    if (number >= low && number <= high) *to = CT_F(number);
}

static int64_t generation_read_int(generation_reader *r, const char *key, double high) {
    ct_num number = {0};
    generation_read_number(r, key, 0, high, &number);
    return (int64_t)number.value;
}

// -------------------------------------------------------------------------------------------- tokens

// Reads a list of token ids that must be in the vocabulary.
static bool generation_read_tokens(generation_reader *r, const json_t *list, ct_lm_tokens *to) {
    const size_t n = json_array_size(list);
    int32_t *v = n ? generation_alloc(r, n * sizeof *v) : NULL;
    for (size_t i = 0; v && i < n; i++) {
        const json_t *item = json_array_get(list, i);
        const json_int_t id = json_is_integer(item) ? json_integer_value(item) : -1;
        if (id < 0 || id >= r->vocab) return false;
        v[i] = (int32_t)id;
    }
    *to = (ct_lm_tokens){v, n};
    return v != NULL;
}

// True for an eos token: transformers never excludes those.
static bool generation_is_eos(const generation_reader *r, const ct_lm_tokens *word) {
    for (size_t i = 0; i < r->eos_ids->n; i++)
        if (word->n == 1 && word->v[0] == r->eos_ids->v[i]) return true;
    return false;
}

static void generation_read_bad_words(generation_reader *r) {
    const json_t *bad_words = generation_get(r, "bad_words_ids"),
                 *suppressed = generation_get(r, "suppress_tokens");
    const size_t n_words = json_array_size(bad_words), n_suppressed = json_array_size(suppressed);
    ct_lm_tokens *banned = generation_alloc(r, (n_words + n_suppressed) * sizeof *banned), word;
    int32_t *ids = generation_alloc(r, n_suppressed * sizeof *ids);
    size_t n = 0;
    bool ok = banned && ids && (!bad_words || json_is_array(bad_words));
    for (size_t i = 0; ok && i < n_words; i++) {
        ok = generation_read_tokens(r, json_array_get(bad_words, i), &word);
        if (ok && !generation_is_eos(r, &word)) banned[n++] = word;
    }
    if (!ok) n = 0, generation_add_unsupported(r, "bad_words_ids");
    if (suppressed && !json_is_array(suppressed)) generation_add_unsupported(r, "suppress_tokens");
    for (size_t i = 0; banned && ids && i < n_suppressed; i++) {
        const json_t *id = json_array_get(suppressed, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= r->vocab)
            continue; // -1, and ids outside of the vocabulary, exclude nothing
        ids[i] = (int32_t)json_integer_value(id);
        banned[n++] = (ct_lm_tokens){&ids[i], 1};
    }
    r->s->banned = banned;
    r->s->n_banned = n;
}

// Reads [[tokens, number], ...]; a bias of a sequence of several tokens is not supported.
static void generation_read_bias(generation_reader *r) {
    const json_t *list = generation_get(r, "sequence_bias");
    const size_t n = json_array_size(list);
    ct_lm_logit_bias *bias = generation_alloc(r, n * sizeof *bias);
    bool ok = !list || json_is_array(list);
    for (size_t i = 0; bias && i < n; i++) {
        const json_t *item = json_array_get(list, i), *add = json_array_get(item, 1);
        ct_lm_tokens tokens;
        if (generation_read_tokens(r, json_array_get(item, 0), &tokens) && tokens.n == 1 &&
            json_is_number(add))
            bias[r->s->n_logit_bias++] =
                (ct_lm_logit_bias){tokens.v[0], (float)json_number_value(add)};
        else
            ok = false;
    }
    r->s->logit_bias = bias;
    if (!ok) generation_add_unsupported(r, "sequence_bias");
}

// ---------------------------------------------------------------------------------- unsupported keys

// Unsupported keys that change the generated text, with the value that changes nothing (NAN: none).
static const struct {
    const char *key;
    double harmless;
} unsupported_keys[] = {
    {"begin_suppress_tokens", NAN},
    {"constraints", NAN},
    {"dola_layers", NAN},
    {"encoder_no_repeat_ngram_size", 0},
    {"encoder_repetition_penalty", 1},
    {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},
    {"exponential_decay_length_penalty", NAN},
    {"force_words_ids", NAN},
    {"forced_bos_token_id", NAN},
    {"forced_eos_token_id", NAN},
    {"guidance_scale", 1},
    {"num_beam_groups", 1},
    {"num_beams", 1},
    {"penalty_alpha", 0},
    {"stop_strings", NAN},
    {"token_healing", NAN},
    {"top_h", NAN},
    {"watermarking_config", NAN},
};

static void generation_list_unsupported(generation_reader *r) {
    for (size_t i = 0; i < sizeof unsupported_keys / sizeof *unsupported_keys; i++) {
        const json_t *value = generation_get(r, unsupported_keys[i].key);
        const bool empty =
            json_is_false(value) || (json_is_array(value) && !json_array_size(value));
        if (value && !empty &&
            !(json_is_number(value) && json_number_value(value) == unsupported_keys[i].harmless))
            generation_add_unsupported(r, unsupported_keys[i].key);
    }
}

bool ct__generation_read(const char *folder, const ct_lm *lm, const ct_lm_tokens *ends,
                         ct_arena *arena, ct_lm_sampling *s, const char **unsupported,
                         ct_err *err) {
    char file[4096 + 32];
    struct stat st;
    ct_config config;
    ct_num min_p = {0};
    snprintf(file, sizeof file, "%s/generation_config.json", folder);
    if (stat(file, &st)) return true;
    if (!ct__config_read(file, &config, err)) return false;
    generation_reader r = {
        .root = config.root, .vocab = lm->spec.vocab, .eos_ids = ends, .arena = arena, .s = s};
    generation_read_number(&r, "temperature", 0, 1000, &s->temperature);
    generation_read_number(&r, "top_p", 0, 1, &s->top_p);
    generation_read_number(&r, "typical_p", 0, 1, &s->typical_p);
    generation_read_number(&r, "repetition_penalty", 0.01, 100, &s->repetition_penalty);
    generation_read_number(&r, "min_p", 0, 1, &min_p);
    s->min_p = min_p.value;
    s->top_k = generation_read_int(&r, "top_k", 1e9);
    s->no_repeat_ngram_size = generation_read_int(&r, "no_repeat_ngram_size", 1e9);
    s->min_new_tokens = generation_read_int(&r, "min_new_tokens", 1e9);
    s->min_length = generation_read_int(&r, "min_length", 1e9);
    if (json_is_false(json_object_get(config.root, "do_sample"))) s->temperature = CT_F(0);
    generation_read_bad_words(&r);
    generation_read_bias(&r);
    generation_list_unsupported(&r);
    ct__config_close(&config);
    if (r.unsupported.n && !r.unsupported.failed)
        r.out_of_memory |= !(*unsupported = ct__arena_str(arena, r.unsupported.s));
    const bool ok = !r.out_of_memory && !r.unsupported.failed;
    ct__text_free(&r.unsupported);
    return ok || ct__err_memory(err, CT_NOWHERE, "pretrained_load", sizeof file);
}
