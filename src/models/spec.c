// Parses rows of the table of architectures, and evaluates them with a config.json to a spec.
#include "models/spec.h"

#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/fp_env.h"
#include "base/text.h"
#include "cotan/lm.h"
#include "graph/graph.h"
#include "models/rope.h"

typedef enum { INTEGER, REAL, KIND, NAME } spec_setting_kind;
typedef struct spec_setting {
    const char *key;
    spec_setting_kind kind;
    size_t at;            // offset in ct_spec
    const char *fallback; // NULL: the setting is a name
    const char *words;    // of a kind
} spec_setting;

static const spec_setting spec_settings[] = {
#define F(name, fallback) {#name, INTEGER, offsetof(ct_spec, name), fallback, NULL},
    CT_SPEC_INTS(F)
#undef F
#define F(name, fallback) {#name, REAL, offsetof(ct_spec, name), fallback, NULL},
        CT_SPEC_REALS(F)
#undef F
#define F(name, fallback, words) {#name, KIND, offsetof(ct_spec, name), fallback, words},
            CT_SPEC_KINDS(F)
#undef F
#define F(n) {#n, NAME, offsetof(ct_spec, name[CT_NAME_##n]), NULL, NULL},
                CT_SPEC_NAMES(F) CT_SPEC_LAYER_NAMES(F)
#undef F
};
enum { N_SETTINGS = sizeof spec_settings / sizeof *spec_settings, MAX_LIKE_DEPTH = 16 };

typedef struct spec_reader {
    const char *path;
    const json_t *config;
    ct_arena *arena;
    ct_spec *spec;
    const char *value[N_SETTINGS]; // the row's expressions; NULL: the fallback
    int depth[N_SETTINGS];         // how many `like` lead to the row that sets it
    ct_err *err;
} spec_reader;

// ---------------------------------------------------------------------------------------------- rows

static size_t spec_type_length(const char *row) { return strcspn(row, ":"); }

// Rows that a program registers; they are never removed, and take precedence over the table's.
static struct spec_custom_row {
    char *row;
    struct spec_custom_row *older;
} * spec_custom_rows;
static pthread_mutex_t spec_custom_lock = PTHREAD_MUTEX_INITIALIZER;

static const char *spec_custom_row(const char *type, size_t n) {
    pthread_mutex_lock(&spec_custom_lock);
    const struct spec_custom_row *at = spec_custom_rows;
    while (at && !(spec_type_length(at->row) == n && !strncmp(at->row, type, n))) at = at->older;
    pthread_mutex_unlock(&spec_custom_lock);
    return at ? at->row : NULL;
}

static const char *spec_find_row(const char *type, size_t n) {
    const char *own = spec_custom_row(type, n);
    for (size_t i = 0; !own && ct__architectures[i]; i++)
        if (spec_type_length(ct__architectures[i]) == n && !strncmp(ct__architectures[i], type, n))
            return ct__architectures[i];
    return own;
}

bool ct__spec_is_known(const char *type) { return spec_find_row(type, strlen(type)) != NULL; }

// NULL: out of memory, or no name is similar.
const char *ct__spec_nearest(const char *type, ct_arena *arena) {
    enum { MAX_NAMES = 256 };
    const char *names[MAX_NAMES + 1];
    size_t n = 0;
    pthread_mutex_lock(&spec_custom_lock);
    for (const struct spec_custom_row *at = spec_custom_rows; at && n < MAX_NAMES; at = at->older)
        names[n++] = ct__arena_printf(arena, "%.*s", (int)spec_type_length(at->row), at->row);
    pthread_mutex_unlock(&spec_custom_lock);
    for (size_t i = 0; ct__architectures[i] && n < MAX_NAMES; i++)
        names[n++] = ct__arena_printf(arena, "%.*s", (int)spec_type_length(ct__architectures[i]),
                                      ct__architectures[i]);
    names[n] = NULL;
    for (size_t i = 0; i < n; i++)
        if (!names[i]) return NULL;
    return ct__nearest(type, names);
}

static bool spec_unknown_type(const spec_reader *r, const char *type) {
    const char *closest = ct__spec_nearest(type, r->arena);
    ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->path,
            "key \"model_type\" is \"%.100s\", an architecture that is not known", type);
    if (closest) ct__err_hint(r->err, "the nearest that is known is \"%s\"", closest);
    return false;
}

static int spec_find_setting(const char *key, size_t n) {
    for (int i = 0; i < N_SETTINGS; i++)
        if (strlen(spec_settings[i].key) == n && !strncmp(spec_settings[i].key, key, n)) return i;
    return -1;
}

static bool spec_unknown_setting(spec_reader *r, const char *row, const char *key, size_t n) {
    const char *names[N_SETTINGS + 2];
    for (int i = 0; i < N_SETTINGS; i++) names[i] = spec_settings[i].key;
    names[N_SETTINGS] = "like";
    names[N_SETTINGS + 1] = NULL;
    const char *word = ct__arena_printf(r->arena, "%.*s", (int)n, key);
    if (!word) return ct__err_memory(r->err, CT_NOWHERE, "architecture", n);
    const char *closest = ct__nearest(word, names);
    ct__err(r->err, CT_E_ARGUMENT, CT_NOWHERE, "architecture",
            "\"%.*s\" has a setting \"%.60s\", which there is not", (int)spec_type_length(row), row,
            word);
    if (closest) ct__err_hint(r->err, "the nearest is \"%s\"", closest);
    return false;
}

// Takes the settings of the row that are not set yet; those of the row that it is `like` come later.
static bool spec_take_row(spec_reader *r, const char *row, int depth) {
    const char *like = NULL;
    size_t like_n = 0, n;
    for (const char *at = row + spec_type_length(row) + 1; *at; at += n) {
        at += strspn(at, " ");
        n = strcspn(at, " ");
        const size_t key = strcspn(at, "= ");
        if (!n) break;
        const int index = spec_find_setting(at, key);
        char *value = ct__arena(r->arena, n - key + 1);
        if (!value) return ct__err_memory(r->err, CT_NOWHERE, r->path, n);
        if (key == n || (index < 0 && (key != 4 || strncmp(at, "like", 4) != 0)))
            return spec_unknown_setting(r, row, at, key == n ? n : key);
        snprintf(value, n - key, "%s", at + key + 1);
        if (index < 0) {
            like = at + key + 1;
            like_n = n - key - 1;
        } else if (!r->value[index]) {
            r->value[index] = value;
            r->depth[index] = depth;
        } else if (r->depth[index] == depth) {
            return ct__err(r->err, CT_E_ARGUMENT, CT_NOWHERE, "architecture",
                           "\"%.*s\" sets \"%.*s\" twice", (int)spec_type_length(row), row,
                           (int)key, at);
        }
    }
    if (!like) return true;
    row = depth < MAX_LIKE_DEPTH ? spec_find_row(like, like_n) : NULL;
    return row ? spec_take_row(r, row, depth + 1)
               : ct__err(r->err, CT_E_ARGUMENT, CT_NOWHERE, "architecture",
                         "there is no architecture \"%.*s\" to be like", (int)like_n, like);
}

// -------------------------------------------------------------------------------------------- values

typedef struct spec_value {
    double number;
    const char *word; // NULL: a number
} spec_value;

// Reads a key's value. Returns false if it is missing or null; a null of a key with ? is 0.
static bool spec_config_value(const spec_reader *r, const char *key, size_t n, spec_value *v) {
    char name[128];
    const bool or_zero = n && *key == '?';
    if (n >= sizeof name) return false;
    snprintf(name, n + 1 - or_zero, "%s", key + or_zero);
    const json_t *j = json_object_get(r->config, name);
    *v = (spec_value){0};
    if (or_zero && json_is_null(j)) return true;
    if (!j || json_is_null(j)) return false;
    *v = (spec_value){json_is_boolean(j) ? json_is_true(j) : json_number_value(j),
                      json_is_string(j) ? json_string_value(j) : NULL};
    return json_is_boolean(j) || json_is_number(j) || json_is_string(j);
}

// Evaluates `$key`, a number, the name of a number, or a word.
static bool spec_term_value(const spec_reader *r, const char *s, size_t n, bool word,
                            spec_value *v) {
    if (*s == '$') return spec_config_value(r, s + 1, n - 1, v);
    char *end;
    *v = (spec_value){strtod(s, &end), NULL};
    if (n && end == s + n) return true;
    const int index = spec_find_setting(s, n);
    if (!word && index >= 0 && spec_settings[index].kind == INTEGER) {
        v->number = (double)*(const int64_t *)((const char *)r->spec + spec_settings[index].at);
        return true;
    }
    if (!word && index >= 0 && spec_settings[index].kind == REAL) {
        v->number = *(const double *)((const char *)r->spec + spec_settings[index].at);
        return true;
    }
    char *text = ct__arena(r->arena, n + 1);
    if (!text) return false;
    snprintf(text, n + 1, "%s", s);
    v->word = text;
    return true;
}

static bool spec_alternative_value(const spec_reader *r, const char *s, size_t n, bool word,
                                   spec_value *v) {
    const size_t term_n = *s == '$' ? 1 + strcspn(s + 1, "+*/|") : strcspn(s, "+*/|");
    spec_value other;
    if (term_n >= n || *s == '-' || (*s >= '0' && *s <= '9' && s[term_n] == '+'))
        return spec_term_value(r, s, n, word, v);
    if (!spec_term_value(r, s, term_n, word, v) ||
        !spec_term_value(r, s + term_n + 1, n - term_n - 1, word, &other))
        return false;
    if (s[term_n] == '+') v->number += other.number;
    if (s[term_n] == '*') v->number *= other.number;
    if (s[term_n] == '/') v->number = other.number != 0 ? v->number / other.number : 0;
    return true;
}

// Returns the key of a term that begins with `$`.
static const char *spec_key_of_term(const char *key) { return key + 1 + (key[1] == '?'); }

static bool spec_evaluate(const spec_reader *r, const char *expression, bool word, spec_value *v) {
    for (const char *at = expression;; at++) {
        const size_t n = strcspn(at, "|");
        if (spec_alternative_value(r, at, n, word, v)) return true;
        at += n;
        if (!*at) break;
    }
    const char *key = strchr(expression, '$');
    return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->path, "key \"%.*s\" is missing",
                   key ? (int)strcspn(spec_key_of_term(key), "|+*/") : 0,
                   key ? spec_key_of_term(key) : "");
}

// Returns the index of a word in a list separated by spaces; -1: it is not in the list.
static int spec_find_word(const char *words, const char *word) {
    const size_t n = strlen(word);
    for (int i = 0; *words; i++) {
        const size_t length = strcspn(words, " ");
        if (length == n && !strncmp(words, word, n)) return i;
        words += length + (words[length] == ' ');
    }
    return -1;
}

static bool spec_set_value(spec_reader *r, int index) {
    const spec_setting *s = &spec_settings[index];
    const char *expression = r->value[index] ? r->value[index] : s->fallback;
    char *to = (char *)r->spec + s->at;
    spec_value v;
    if (s->kind == NAME) {
        *(const char **)to = expression && *expression ? expression : NULL;
        return true;
    }
    if (!spec_evaluate(r, expression, s->kind == KIND, &v)) return false;
    if ((s->kind == KIND) != (v.word != NULL))
        return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->path, "\"%s\" (%s) is no %s", s->key,
                       expression, s->kind == KIND ? "word" : "number");
    if (s->kind == KIND) {
        const int word = spec_find_word(s->words, v.word);
        if (word < 0)
            return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->path,
                           "\"%s\" is \"%.60s\", it must be one of: %s", s->key, v.word, s->words);
        *(int *)to = word;
    } else if (s->kind == REAL) {
        *(double *)to = v.number;
    } else if (v.number >= -1e9 && v.number <= 1e15 && v.number == (double)(int64_t)v.number) {
        *(int64_t *)to = (int64_t)v.number;
    } else {
        return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->path,
                       "\"%s\" (%s) is %g, it must be a whole number", s->key, expression,
                       v.number);
    }
    return true;
}

// -------------------------------------------------------------------------------------------- layers

static bool spec_is_sliding(const ct_spec *s, int64_t i) {
    if (s->sliding > 0) return s->sliding == 1 || (i + 1) % s->sliding;
    return s->sliding < 0 && i % -s->sliding;
}

static bool spec_set_mask(const spec_reader *r, ct_layer_spec *layer, int64_t i) {
    const ct_spec *s = r->spec;
    const json_t *types = json_object_get(r->config, "layer_types");
    const char *type = json_string_value(json_array_get(types, (size_t)i));
    if (type) {
        static const char words[] = "full_attention sliding_attention chunked_attention";
        const int word = spec_find_word(words, type);
        if (word < 0)
            return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->path,
                           "\"layer_types\" has \"%.60s\", layers are one of: %s", type, words);
        layer->mask = (ct_layer_mask)word;
    } else if (s->chunk) {
        layer->mask = layer->has_rope ? CT_LAYER_MASK_CHUNKED : CT_LAYER_MASK_FULL;
    } else {
        layer->mask = spec_is_sliding(s, i) && i >= s->first_sliding ? CT_LAYER_MASK_SLIDING
                                                                     : CT_LAYER_MASK_FULL;
    }
    if (layer->mask == CT_LAYER_MASK_SLIDING && !s->window) layer->mask = CT_LAYER_MASK_FULL;
    return true;
}

static bool spec_has_number(const json_t *list, int64_t number) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_array_get(list, i)) == number) return true;
    return false;
}

// Splits T5's setting of MLP and activation in one word.
static void spec_split_mlp(ct_spec *s) {
    enum { GELU_NEW = 2, RELU = 5 };
    if (s->mlp <= CT_MLP_UNGATED) return;
    const int kind = s->mlp - CT_MLP_UNGATED; // relu, gated-gelu, gated-silu
    s->act = kind == 1 ? RELU : kind == 2 ? GELU_NEW : 0;
    s->mlp = kind == 1 ? CT_MLP_UNGATED : CT_MLP_GATED;
}

// Undoes settings of the row that the config switches off.
static void spec_apply_switches(const json_t *config, ct_spec *s) {
    if (s->qk_norm == CT_QK_UNIT && json_is_false(json_object_get(config, "use_qk_norm")))
        s->qk_norm = CT_QK_NONE;
    if (s->rope == CT_ROPE_PAIRS && json_is_false(json_object_get(config, "rope_interleave")))
        s->rope = CT_ROPE_HALF;
}

static bool spec_set_layers(spec_reader *r) {
    ct_spec *s = r->spec;
    spec_split_mlp(s);
    spec_apply_switches(r->config, s);
    const json_t *rope_layers = json_object_get(r->config, "no_rope_layers"),
                 *dense = json_object_get(r->config, "mlp_only_layers"),
                 *sparse = json_object_get(r->config, "moe_layers");
    if (!s->use_sliding_window) s->window = 0;
    s->layer = ct__arena_zero(r->arena, (size_t)s->layers * sizeof *s->layer);
    if (!s->layer) return ct__err_memory(r->err, CT_NOWHERE, r->path, 0);
    for (int64_t i = 0; i < s->layers; i++) {
        ct_layer_spec *layer = &s->layer[i];
        const json_t *uses_rope = json_array_get(rope_layers, (size_t)i);
        layer->has_rope = s->rope != CT_ROPE_NONE &&
                          (uses_rope ? json_integer_value(uses_rope)
                                     : !s->rope_interval || (i + 1) % s->rope_interval);
        layer->experts = s->experts && (json_is_array(sparse) ? spec_has_number(sparse, i)
                                                              : i >= s->dense_first &&
                                                                    (i + 1) % s->sparse_step == 0 &&
                                                                    !spec_has_number(dense, i));
        if (!spec_set_mask(r, layer, i)) return false;
    }
    return true;
}

// -------------------------------------------------------------------------------------------- checks

// Keys that change what is computed and are not supported, with the values that change nothing: a number,
// words; null counts as missing. `of`: the rows that the key belongs to; NULL: all.
static const struct {
    const char *key, *of, *harmless;
} spec_unsupported_keys[] = {
    {"use_bidirectional_attention", NULL, "false"},
    {"scale_attn_weights", NULL, "true"},
    {"scale_attn_by_inverse_layer_idx", NULL, "false"},
    {"add_cross_attention", NULL, "false"},
    {"is_decoder", "bert roberta xlm-roberta distilbert modernbert", "false"},
    {"position_embedding_type", "bert roberta xlm-roberta", "absolute"},
    {"is_causal", "qwen2 qwen3 llama mistral", "true"},
    {"clip_qkv", NULL, "0"},
    {"moe_layer_freq", "deepseek_v2 deepseek_v3", "1"},
    {"scoring_func", "deepseek_v2", "softmax"},
    {"scoring_func", "deepseek_v3", "sigmoid"},
    {"topk_method", "deepseek_v2", "greedy group_limited_greedy"},
    {"topk_method", "deepseek_v3", "noaux_tc"},
};

static const char *spec_json_text(const json_t *json, char out[64]) {
    if (json_is_boolean(json)) return json_is_true(json) ? "true" : "false";
    if (json_is_string(json)) return json_string_value(json);
    if (!json_is_number(json)) return "a list";
    snprintf(out, 64, "%g", json_number_value(json));
    return out;
}

static bool spec_check_unsupported(const spec_reader *r) {
    char number[64];
    for (size_t i = 0; i < sizeof spec_unsupported_keys / sizeof *spec_unsupported_keys; i++) {
        const json_t *json = json_object_get(r->config, spec_unsupported_keys[i].key);
        if (!json || json_is_null(json)) continue;
        if (spec_unsupported_keys[i].of &&
            spec_find_word(spec_unsupported_keys[i].of, r->spec->type) < 0)
            continue;
        const char *text = spec_json_text(json, number);
        if (spec_find_word(spec_unsupported_keys[i].harmless, text) >= 0) continue;
        return ct__err(r->err, CT_E_UNSUPPORTED, CT_NOWHERE, r->path,
                       "\"%s\" is %.60s, which is not computed: it must be %s%s",
                       spec_unsupported_keys[i].key, text,
                       strchr(spec_unsupported_keys[i].harmless, ' ') ? "one of: " : "",
                       spec_unsupported_keys[i].harmless);
    }
    return true;
}

// Checks that the sizes make a model. The limits ensure that products of two of them, and of three for
// weights with three axes, do not overflow.
static bool spec_check_sizes(const spec_reader *r) {
    const ct_spec *s = r->spec;
    const struct {
        const char *name;
        int64_t value, max;
    } sizes[] = {{"vocab", s->vocab, INT32_MAX},
                 {"layers", s->layers, 10000},
                 {"width", s->width, 1 << 24},
                 {"heads", s->heads, 1 << 20},
                 {"kv_heads", s->kv_heads, 1 << 20},
                 {"head", s->head, 1 << 20},
                 {"value_head", s->value_head, 1 << 20},
                 {"hidden", s->hidden, 1 << 26},
                 {"experts_per_token", s->experts_per_token, 1 << 16},
                 {"groups", s->groups, 1 << 16},
                 {"top_groups", s->top_groups, 1 << 16},
                 {"sparse_step", s->sparse_step, 10000},
                 {"expert_hidden", s->expert_hidden, 1 << 26},
                 {"dense_hidden", s->dense_hidden, 1 << 26}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value < 1 || sizes[i].value > sizes[i].max)
            return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->path,
                           "%s is %" PRId64 ", it must be 1 to %" PRId64, sizes[i].name,
                           sizes[i].value, sizes[i].max);
    const struct {
        const char *name;
        int64_t value, max;
    } counts[] = {{"context", s->context, INT32_MAX},
                  {"experts", s->experts, 1 << 16},
                  {"window", s->window, INT32_MAX},
                  {"first_sliding", s->first_sliding, INT32_MAX},
                  {"chunk", s->chunk, INT32_MAX},
                  {"types", s->types, 1 << 16},
                  {"positions", s->positions, INT32_MAX},
                  {"kv_lora_rank", s->kv_lora_rank, 1 << 20},
                  {"q_lora_rank", s->q_lora_rank, 1 << 20},
                  {"nope_head", s->nope_head, s->head},
                  {"rotary", s->rotary, s->head},
                  {"first_position", s->first_position, s->positions},
                  {"buckets", s->buckets, 4096},
                  {"max_distance", s->max_distance, 1 << 20},
                  {"decoder_start", s->decoder_start, s->vocab - 1},
                  {"shared_hidden", s->shared_hidden, 1 << 26},
                  {"state", s->state, 1 << 16},
                  {"conv", s->conv, 64},
                  {"step_rank", s->step_rank, 1 << 20}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].value < 0 || counts[i].value > counts[i].max)
            return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->path,
                           "%s is %" PRId64 ", it must be 0 to %" PRId64, counts[i].name,
                           counts[i].value, counts[i].max);
    if (s->heads % s->kv_heads)
        return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->path,
                       "%" PRId64 " heads are no multiple of %" PRId64 " of keys and values",
                       s->heads, s->kv_heads);
    if (s->experts &&
        (s->experts_per_token > s->experts || s->experts % s->groups || s->top_groups > s->groups))
        return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->path,
                       "of %" PRId64 " experts in %" PRId64 " groups a token cannot take %" PRId64
                       " of %" PRId64 " groups",
                       s->experts, s->groups, s->experts_per_token, s->top_groups);
    if (s->buckets && (s->buckets % 4 || s->max_distance <= s->buckets))
        return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->path,
                       "%" PRId64 " buckets cannot have relative positions up to %" PRId64
                       ": they must be a multiple of 4, and fewer",
                       s->buckets, s->max_distance);
    return s->eps > 0 || ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->path,
                                 "eps is %g, it must be above 0", s->eps);
}

// -------------------------------------------------------------------------------- specs from configs

// Returns the language model's config inside that of a multimodal model, else the config itself.
static const json_t *spec_text_config(const json_t *config) {
    const json_t *text = json_object_get(config, "text_config");
    return json_string_value(json_object_get(text, "model_type")) ? text : config;
}

bool ct__spec_read_as(const char *type, const char *path, const json_t *config, ct_arena *arena,
                      ct_spec *spec, ct_err *err) {
    CT_DEFAULT_ENV; // settings are evaluated
    spec_reader r = {
        .path = path, .config = spec_text_config(config), .arena = arena, .spec = spec, .err = err};
    *spec = (ct_spec){0};
    if (!ct__spec_own_rows(err)) return false;
    const char *row = spec_find_row(type, strlen(type));
    if (!row) return spec_unknown_type(&r, type);
    spec->type = ct__arena_str(arena, type);
    if (!spec->type) return ct__err_memory(err, CT_NOWHERE, path, 0);
    if (!spec_take_row(&r, row, 0)) return false;
    for (int i = 0; i < N_SETTINGS; i++)
        if (!spec_set_value(&r, i)) return false;
    return spec_check_sizes(&r) && spec_check_unsupported(&r) && spec_set_layers(&r) &&
           ct__rope_read(path, r.config, arena, spec, err);
}

bool ct__spec_read(const char *path, const json_t *config, ct_arena *arena, ct_spec *spec,
                   ct_err *err) {
    const char *type = json_string_value(json_object_get(spec_text_config(config), "model_type"));
    if (!type) return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path, "key \"model_type\" is missing");
    return ct__spec_read_as(type, path, config, arena, spec, err);
}

// ----------------------------------------------------------------------------- specs from rows alone

const char *ct__spec_key(const char *type, const char *key, ct_arena *arena) {
    ct_spec spec;
    ct_err ignored = {0};
    spec_reader r = {.path = "", .arena = arena, .spec = &spec, .err = &ignored};
    const char *row = spec_find_row(type, strlen(type));
    const int index = spec_find_setting(key, strlen(key));
    if (!row || index < 0 || !spec_take_row(&r, row, 0)) return NULL;
    const char *expression = r.value[index] ? r.value[index] : spec_settings[index].fallback;
    if (!expression || *expression != '$') return NULL;
    expression = spec_key_of_term(expression);
    const size_t n = strcspn(expression, "|+*/");
    if (expression[n] && expression[n] != '|') return NULL;
    return ct__arena_printf(arena, "%.*s", (int)n, expression);
}

void ct__spec_row(const char *type, ct_arena *arena, ct_spec *spec) {
    CT_DEFAULT_ENV; // settings are evaluated
    *spec = (ct_spec){.type = type};
    const char *row = spec_find_row(type, strlen(type));
    ct_err ignored = {0};
    spec_reader r = {.path = "", .arena = arena, .spec = spec, .err = &ignored};
    bool ok = row && spec_take_row(&r, row, 0);
    for (int i = 0; ok && i < N_SETTINGS; i++) (void)spec_set_value(&r, i);
}

void ct__spec_drop_prefix(ct_spec *spec) {
    const char *embed = spec->name[CT_NAME_embed], *dot = embed ? strchr(embed, '.') : NULL;
    const size_t n = dot ? (size_t)(dot - embed) + 1 : 0;
    for (int i = CT_NAME_layer; n && i < CT_NAME_WHOLE; i++)
        if (spec->name[i] && strncmp(spec->name[i], embed, n) == 0 && i != CT_NAME_embed)
            spec->name[i] += n;
    if (n) spec->name[CT_NAME_embed] += n;
}

// Checks that words in the row, which need no config, are valid.
static bool spec_check_words(spec_reader *r) {
    for (int i = 0; i < N_SETTINGS; i++) {
        const spec_setting *s = &spec_settings[i];
        const char *word = r->value[i];
        if (s->kind != KIND || !word || *word == '$') continue;
        if (spec_find_word(s->words, word) < 0)
            return ct__err(r->err, CT_E_ARGUMENT, CT_NOWHERE, "architecture",
                           "\"%s\" is \"%.60s\", it must be one of: %s", s->key, word, s->words);
    }
    return true;
}

// What belongs together, and what excludes each other. A word is a setting that the row sets (to neither 0 nor
// nothing), or setting=word; conditions are separated by ", ", and "no " negates one.
static const struct spec_rule {
    const char *when, *needs, *excludes;
} spec_rules[] = {
    {"", "class embed layer", ""},
    {"family=decoder", "o", ""},
    {"family=encoder", "o", ""},
    {"family=decoder, qkv=split, no kv_lora_rank", "q k v", ""},
    {"family=encoder, qkv=split", "q k v", ""},
    {"qkv=fused", "fused_qkv", "kv_lora_rank"},
    {"qkv=by_head", "fused_qkv", "kv_lora_rank"},
    {"kv_lora_rank", "kv_a kv_a_norm kv_b nope_head rotary", "qk_norm=head qk_norm=whole"},
    {"q_lora_rank", "q_a q_a_norm q_b kv_lora_rank", ""},
    {"family=decoder, mlp=gated, no experts", "gate up down", ""},
    {"family=encoder, mlp=gated", "gate up down", ""},
    {"mlp=fused", "gate_up down", ""},
    {"mlp=ungated", "up down", ""},
    {"experts", "router expert_down", ""},
    {"experts, no expert_gate_up", "expert_gate expert_up", ""},
    {"expert_gate_up", "experts", "expert_gate expert_up"},
    {"shared_hidden", "experts shared_gate shared_up shared_down", ""},
    {"dense_first", "experts", ""},
    {"sparse_step", "experts", ""},
    {"qk_norm=head", "q_norm k_norm", ""},
    {"qk_norm=whole", "q_norm k_norm", ""},
    {"q_norm", "", "qk_norm=none qk_norm=unit"},
    {"rope=none", "", "rotary rotary_fraction rope_interval"},
    {"rotary", "", "rotary_fraction"},
    {"position_table", "rope=none", ""},
    {"types", "type_table", ""},
    {"type_table", "types", ""},
    {"buckets", "relative", ""},
    {"relative", "buckets", ""},
    {"encoder", "cross_q cross_k cross_v cross_o cross_norm", ""},
    {"cross_q", "encoder", ""},
    {"sliding", "window", ""},
    {"window", "", "chunk"},
    {"scale", "", "scale_of"},
    {"parallel", "", "attn_post order=post"},
    {"family=decoder, no bidirectional, no tied=1", "output", ""},
    {"family=mamba",
     "state conv step_rank ssm_in ssm_conv ssm_x ssm_step ssm_decay ssm_skip ssm_out", ""},
    {"family=rwkv",
     "first_norm mix_k mix_v mix_r decay bonus k v r o mlp_mix_k mlp_mix_r mlp_r up down", ""},
};

// True if the row has what the word of a rule names. A setting=word that a config determines never holds.
static bool spec_has(const spec_reader *r, const char *word, size_t n) {
    const size_t key = strcspn(word, "= ,");
    const int index = spec_find_setting(word, key < n ? key : n);
    const char *value = index < 0 ? NULL : r->value[index];
    if (key >= n) return value && *value && strcmp(value, "0") != 0;
    if (index >= 0 && !value) value = spec_settings[index].fallback;
    return value && strlen(value) == n - key - 1 && !strncmp(value, word + key + 1, n - key - 1);
}

static bool spec_rule_applies(const spec_reader *r, const char *when) {
    for (size_t n; *when; when += n + (when[n] ? 2 : 0)) {
        n = strcspn(when, ",");
        const size_t no = strncmp(when, "no ", 3) == 0 ? 3 : 0;
        if (spec_has(r, when + no, n - no) == (no > 0)) return false;
    }
    return true;
}

// Checks that the row, with the rows that it is like, obeys the rules.
static bool spec_check_rules(const spec_reader *r, const char *row) {
    const int type = (int)spec_type_length(row);
    for (size_t i = 0; i < sizeof spec_rules / sizeof *spec_rules; i++) {
        const struct spec_rule *rule = &spec_rules[i];
        if (!spec_rule_applies(r, rule->when)) continue;
        for (int excludes = 0; excludes < 2; excludes++) {
            const char *word = excludes ? rule->excludes : rule->needs;
            for (size_t n; *word; word += n + (word[n] == ' ')) {
                n = strcspn(word, " ");
                if (spec_has(r, word, n) != (excludes > 0)) continue;
                return ct__err(r->err, CT_E_ARGUMENT, CT_NOWHERE, "architecture",
                               excludes      ? "\"%.*s\" has %.*s, which excludes %s"
                               : *rule->when ? "\"%.*s\" has no %.*s, which is needed with %s"
                                             : "\"%.*s\" has no %.*s, which every row needs%s",
                               type, row, (int)n, word, rule->when);
            }
        }
    }
    const char *layer = r->value[spec_find_setting("layer", 5)];
    return strchr(layer, '%') ||
           ct__err(r->err, CT_E_ARGUMENT, CT_NOWHERE, "architecture",
                   "\"%.*s\" has the layer \"%.60s\", in which no %% stands for its number", type,
                   row, layer);
}

bool ct__spec_check_row(const char *row, ct_err *err) {
    CT_ARENA arena = {0};
    ct_spec spec;
    spec_reader r = {.path = "", .arena = &arena, .spec = &spec, .err = err};
    const size_t n = spec_type_length(row),
                 safe = strspn(row, "abcdefghijklmnopqrstuvwxyz0123456789_.-");
    bool ok = n && row[n] == ':' && safe == n;
    if (!ok)
        ct__err(err, CT_E_ARGUMENT, CT_NOWHERE, "architecture",
                "\"%.60s\" is no row: it begins with a name of a-z, 0-9 and _, and a colon", row);
    ok = ok && spec_take_row(&r, row, 0) && spec_check_words(&r) && spec_check_rules(&r, row);
    return ok;
}

// Adds a row; newlines and tabs become spaces.
static bool spec_add_row(const char *row, size_t n, ct_err *err) {
    struct spec_custom_row *item = ct__malloc(sizeof *item);
    char *copy = item ? ct__malloc(n + 1) : NULL;
    if (copy) {
        memcpy(copy, row, n);
        copy[n] = '\0';
        for (char *at = copy; *at; at++)
            if (*at == '\n' || *at == '\t' || *at == '\r') *at = ' ';
    }
    bool ok = copy || ct__err_memory(err, CT_NOWHERE, "architecture", n);
    if (!ok || !ct__spec_check_row(copy, err)) {
        ct__free(copy);
        ct__free(item);
        return false;
    }
    pthread_mutex_lock(&spec_custom_lock);
    *item = (struct spec_custom_row){copy, spec_custom_rows};
    spec_custom_rows = item;
    pthread_mutex_unlock(&spec_custom_lock);
    return true;
}

bool ct_lm_add_architecture_at(const char *row, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, row, here, "architecture", "the row") || ctx->err.code)
        return false;
    return spec_add_row(row, strlen(row), &ctx->err) ||
           ct__err_locate(&ctx->err, here, "architecture");
}

// Adds the rows of a file: each begins at the beginning of a line and continues in lines that begin with a
// space; lines that begin with # are comments.
static bool spec_read_rows(const char *text, ct_err *err) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        if (!n || *text == '#') {
            text += n + (text[n] == '\n');
            continue;
        }
        while (text[n] && (text[n + 1] == ' ' || text[n + 1] == '\t'))
            n += 1 + strcspn(text + n + 1, "\n");
        if (!spec_add_row(text, n, err)) return false;
        text += n;
    }
    return true;
}

bool ct__spec_own_rows(ct_err *err) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool read;
    const char *path = getenv("COTAN_ARCHITECTURES");
    char *text;
    size_t n;
    pthread_mutex_lock(&lock);
    bool ok = read || !path || !*path;
    if (!ok && ct__file_read(path, &text, &n, err)) {
        read = ok = spec_read_rows(text, err);
        if (!ok) ct__err_hint(err, "the row is in %.200s, which COTAN_ARCHITECTURES names", path);
        ct__free(text);
    }
    pthread_mutex_unlock(&lock);
    return ok;
}
