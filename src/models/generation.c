// generation_config.json as options of sampling: what its makers found good.
#include "models/generation.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/text.h"
#include "io/config.h"

typedef struct reader {
    const json_t *root;
    int64_t vocab;
    const ct_lm_tokens *ends;
    ct_arena *arena;
    ct_lm_sampling *s;
    ct_text unfollowed;
    bool full; // there was no memory
} reader;

static void *take(reader *r, size_t bytes) {
    void *to = ct__arena(r->arena, bytes ? bytes : 1);
    r->full |= !to;
    return to;
}

static void cannot(reader *r, const char *key) {
    ct__textf(&r->unfollowed, "%s%s", r->unfollowed.n ? ", " : "", key);
}

static const json_t *value_of(const reader *r, const char *key) {
    const json_t *value = json_object_get(r->root, key);
    return json_is_null(value) ? NULL : value;
}

// Numbers that are not there, or out of range, change nothing.
static void take_number(reader *r, const char *key, double low, double high, ct_num *to) {
    const json_t *value = value_of(r, key);
    const double number = json_is_number(value) ? json_number_value(value) : -1;
    if (number >= low && number <= high) *to = CT_F(number);
}

static int64_t whole_number(reader *r, const char *key, double high) {
    ct_num number = {0};
    take_number(r, key, 0, high, &number);
    return (int64_t)number.value;
}

// ------------------------------------------------------------------------------------------- tokens

// A list of tokens that the model knows.
static bool read_tokens(reader *r, const json_t *list, ct_lm_tokens *to) {
    const size_t n = json_array_size(list);
    int32_t *v = n ? take(r, n * sizeof *v) : NULL;
    for (size_t i = 0; v && i < n; i++) {
        const json_t *one = json_array_get(list, i);
        const json_int_t id = json_is_integer(one) ? json_integer_value(one) : -1;
        if (id < 0 || id >= r->vocab) return false;
        v[i] = (int32_t)id;
    }
    *to = (ct_lm_tokens){v, n};
    return v != NULL;
}

// transformers lets a text end, whatever is banned.
static bool is_end(const reader *r, const ct_lm_tokens *one) {
    for (size_t i = 0; i < r->ends->n; i++)
        if (one->n == 1 && one->v[0] == r->ends->v[i]) return true;
    return false;
}

static void ban_words(reader *r) {
    const json_t *words = value_of(r, "bad_words_ids"), *alone = value_of(r, "suppress_tokens");
    const size_t n_words = json_array_size(words), n_alone = json_array_size(alone);
    ct_lm_tokens *banned = take(r, (n_words + n_alone) * sizeof *banned), one;
    int32_t *ids = take(r, n_alone * sizeof *ids);
    size_t n = 0;
    bool ok = banned && ids && (!words || json_is_array(words));
    for (size_t i = 0; ok && i < n_words; i++) {
        ok = read_tokens(r, json_array_get(words, i), &one);
        if (ok && !is_end(r, &one)) banned[n++] = one;
    }
    if (!ok) n = 0, cannot(r, "bad_words_ids");
    if (alone && !json_is_array(alone)) cannot(r, "suppress_tokens");
    for (size_t i = 0; banned && ids && i < n_alone; i++) {
        const json_t *id = json_array_get(alone, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= r->vocab)
            continue; // -1, and what the model does not know, are none of its tokens
        ids[i] = (int32_t)json_integer_value(id);
        banned[n++] = (ct_lm_tokens){&ids[i], 1};
    }
    r->s->banned = banned;
    r->s->n_banned = n;
}

// [[tokens, number], ...]; a bias of several tokens, whose last it is for, is not known here.
static void read_bias(reader *r) {
    const json_t *list = value_of(r, "sequence_bias");
    const size_t n = json_array_size(list);
    ct_lm_bias *bias = take(r, n * sizeof *bias);
    bool ok = !list || json_is_array(list);
    for (size_t i = 0; bias && i < n; i++) {
        const json_t *one = json_array_get(list, i), *add = json_array_get(one, 1);
        ct_lm_tokens of;
        if (read_tokens(r, json_array_get(one, 0), &of) && of.n == 1 && json_is_number(add))
            bias[r->s->n_bias++] = (ct_lm_bias){of.v[0], (float)json_number_value(add)};
        else
            ok = false;
    }
    r->s->bias = bias;
    if (!ok) cannot(r, "sequence_bias");
}

// ------------------------------------------------------------------------------------- what is not done

// Keys that change what is written, with the number that changes nothing (NAN: none does).
static const struct {
    const char *key;
    double harmless;
} unread[] = {
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

static void list_unread(reader *r) {
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++) {
        const json_t *value = value_of(r, unread[i].key);
        const bool empty =
            json_is_false(value) || (json_is_array(value) && !json_array_size(value));
        if (value && !empty &&
            !(json_is_number(value) && json_number_value(value) == unread[i].harmless))
            cannot(r, unread[i].key);
    }
}

bool ct__generation_read(const char *folder, const ct_lm *lm, const ct_lm_tokens *ends,
                         ct_arena *arena, ct_lm_sampling *s, const char **unfollowed, ct_err *err) {
    char file[4096 + 32];
    struct stat st;
    ct_config config;
    ct_num min_p = {0};
    snprintf(file, sizeof file, "%s/generation_config.json", folder);
    if (stat(file, &st)) return true;
    if (!ct__config_read(file, &config, err)) return false;
    reader r = {.root = config.root, .vocab = lm->spec.vocab, .ends = ends, .arena = arena, .s = s};
    take_number(&r, "temperature", 0, 1000, &s->temperature);
    take_number(&r, "top_p", 0, 1, &s->top_p);
    take_number(&r, "typical_p", 0, 1, &s->typical_p);
    take_number(&r, "repetition_penalty", 0.01, 100, &s->repetition_penalty);
    take_number(&r, "min_p", 0, 1, &min_p);
    s->min_p = min_p.value;
    s->top_k = whole_number(&r, "top_k", 1e9);
    s->no_repeat_ngram_size = whole_number(&r, "no_repeat_ngram_size", 1e9);
    s->min_new_tokens = whole_number(&r, "min_new_tokens", 1e9);
    s->min_length = whole_number(&r, "min_length", 1e9);
    if (json_is_false(json_object_get(config.root, "do_sample"))) s->temperature = CT_F(0);
    ban_words(&r);
    read_bias(&r);
    list_unread(&r);
    ct__config_close(&config);
    if (r.unfollowed.n && !r.unfollowed.failed)
        r.full |= !(*unfollowed = ct__arena_str(arena, r.unfollowed.s));
    const bool ok = !r.full && !r.unfollowed.failed;
    ct__text_free(&r.unfollowed);
    return ok || ct__err_memory(err, CT_NOWHERE, "pretrained_load", sizeof file);
}
