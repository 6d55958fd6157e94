// Rows of the table of architectures, and what a config.json makes of one.
#include "models/spec.h"

#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/plain.h"
#include "base/text.h"
#include "cotan/lm.h"
#include "graph/graph.h"
#include "models/rope.h"

typedef enum { INTEGER, REAL, KIND, NAME } setting_kind;
typedef struct setting {
    const char *key;
    setting_kind kind;
    size_t at;            // in ct_spec
    const char *fallback; // NULL: of a name
    const char *words;    // of a kind
} setting;

static const setting settings[] = {
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
enum { SETTINGS = sizeof settings / sizeof *settings, MOST_LIKE = 16 };

typedef struct reader {
    const char *path;
    const json_t *config;
    ct_arena *arena;
    ct_spec *spec;
    const char *value[SETTINGS]; // of the row, each an expression; NULL: the fallback
    ct_err *err;
} reader;

// ---------------------------------------------------------------------------------------------- rows

static size_t type_length(const char *row) { return strcspn(row, ":"); }

// Rows that a program brings; they are never removed, and go before the table's.
static struct own_row {
    char *row;
    struct own_row *older;
} * own_rows;
static pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER;

static const char *own_row(const char *type, size_t n) {
    pthread_mutex_lock(&own_lock);
    const struct own_row *at = own_rows;
    while (at && !(type_length(at->row) == n && !strncmp(at->row, type, n))) at = at->older;
    pthread_mutex_unlock(&own_lock);
    return at ? at->row : NULL;
}

static const char *find_row(const char *type, size_t n) {
    const char *own = own_row(type, n);
    for (size_t i = 0; !own && ct__architectures[i]; i++)
        if (type_length(ct__architectures[i]) == n && !strncmp(ct__architectures[i], type, n))
            return ct__architectures[i];
    return own;
}

bool ct__spec_is_known(const char *type) { return find_row(type, strlen(type)) != NULL; }

// NULL: no memory, or none is near.
const char *ct__spec_nearest(const char *type, ct_arena *arena) {
    enum { MOST = 256 };
    const char *names[MOST + 1];
    size_t n = 0;
    pthread_mutex_lock(&own_lock);
    for (const struct own_row *at = own_rows; at && n < MOST; at = at->older)
        names[n++] = ct__arena_printf(arena, "%.*s", (int)type_length(at->row), at->row);
    pthread_mutex_unlock(&own_lock);
    for (size_t i = 0; ct__architectures[i] && n < MOST; i++)
        names[n++] = ct__arena_printf(arena, "%.*s", (int)type_length(ct__architectures[i]),
                                      ct__architectures[i]);
    names[n] = NULL;
    for (size_t i = 0; i < n; i++)
        if (!names[i]) return NULL;
    return ct__nearest(type, names);
}

static bool unknown_type(const reader *r, const char *type) {
    const char *near = ct__spec_nearest(type, r->arena);
    ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->path,
            "key \"model_type\" is \"%.100s\", an architecture that is not known", type);
    if (near) ct__err_hint(r->err, "the nearest that is known is \"%s\"", near);
    return false;
}

static int setting_of(const char *key, size_t n) {
    for (int i = 0; i < SETTINGS; i++)
        if (strlen(settings[i].key) == n && !strncmp(settings[i].key, key, n)) return i;
    return -1;
}

static bool unknown_setting(reader *r, const char *row, const char *key, size_t n) {
    const char *names[SETTINGS + 2];
    for (int i = 0; i < SETTINGS; i++) names[i] = settings[i].key;
    names[SETTINGS] = "like";
    names[SETTINGS + 1] = NULL;
    const char *word = ct__arena_printf(r->arena, "%.*s", (int)n, key);
    if (!word) return ct__err_memory(r->err, CT_NOWHERE, "architecture", n);
    const char *near = ct__nearest(word, names);
    ct__err(r->err, CT_E_ARGUMENT, CT_NOWHERE, "architecture",
            "\"%.*s\" has a setting \"%.60s\", which there is not", (int)type_length(row), row,
            word);
    if (near) ct__err_hint(r->err, "the nearest is \"%s\"", near);
    return false;
}

// Settings of the row that none has given yet: those of the row that it is like come later.
static bool take_row(reader *r, const char *row, int depth) {
    const char *like = NULL;
    size_t like_n = 0, n;
    for (const char *at = row + type_length(row) + 1; *at; at += n) {
        at += strspn(at, " ");
        n = strcspn(at, " ");
        const size_t key = strcspn(at, "= ");
        if (!n) break;
        const int which = setting_of(at, key);
        char *value = ct__arena(r->arena, n - key + 1);
        if (!value) return ct__err_memory(r->err, CT_NOWHERE, r->path, n);
        if (key == n || (which < 0 && (key != 4 || strncmp(at, "like", 4) != 0)))
            return unknown_setting(r, row, at, key == n ? n : key);
        snprintf(value, n - key, "%s", at + key + 1);
        if (which < 0) {
            like = at + key + 1;
            like_n = n - key - 1;
        } else if (!r->value[which]) {
            r->value[which] = value;
        }
    }
    if (!like) return true;
    row = depth < MOST_LIKE ? find_row(like, like_n) : NULL;
    return row ? take_row(r, row, depth + 1)
               : ct__err(r->err, CT_E_ARGUMENT, CT_NOWHERE, "architecture",
                         "there is no architecture \"%.*s\" to be like", (int)like_n, like);
}

// ------------------------------------------------------------------------------------------- values

typedef struct value {
    double number;
    const char *word; // NULL: a number
} value;

// A key's value; false: it is not there, or null, which is 0 of a key behind a ?.
static bool of_config(const reader *r, const char *key, size_t n, value *v) {
    char name[128];
    const bool or_zero = n && *key == '?';
    if (n >= sizeof name) return false;
    snprintf(name, n + 1 - or_zero, "%s", key + or_zero);
    const json_t *j = json_object_get(r->config, name);
    *v = (value){0};
    if (or_zero && json_is_null(j)) return true;
    if (!j || json_is_null(j)) return false;
    *v = (value){json_is_boolean(j) ? json_is_true(j) : json_number_value(j),
                 json_is_string(j) ? json_string_value(j) : NULL};
    return json_is_boolean(j) || json_is_number(j) || json_is_string(j);
}

// `$key`, a number, a number's name, or a word.
static bool term_value(const reader *r, const char *s, size_t n, bool word, value *v) {
    if (*s == '$') return of_config(r, s + 1, n - 1, v);
    char *end;
    *v = (value){strtod(s, &end), NULL};
    if (n && end == s + n) return true;
    const int which = setting_of(s, n);
    if (!word && which >= 0 && settings[which].kind == INTEGER) {
        v->number = (double)*(const int64_t *)((const char *)r->spec + settings[which].at);
        return true;
    }
    if (!word && which >= 0 && settings[which].kind == REAL) {
        v->number = *(const double *)((const char *)r->spec + settings[which].at);
        return true;
    }
    char *text = ct__arena(r->arena, n + 1);
    if (!text) return false;
    snprintf(text, n + 1, "%s", s);
    v->word = text;
    return true;
}

static bool one_value(const reader *r, const char *s, size_t n, bool word, value *v) {
    const size_t first = *s == '$' ? 1 + strcspn(s + 1, "+*/|") : strcspn(s, "+*/|");
    value other;
    if (first >= n || *s == '-' || (*s >= '0' && *s <= '9' && s[first] == '+'))
        return term_value(r, s, n, word, v);
    if (!term_value(r, s, first, word, v) ||
        !term_value(r, s + first + 1, n - first - 1, word, &other))
        return false;
    if (s[first] == '+') v->number += other.number;
    if (s[first] == '*') v->number *= other.number;
    if (s[first] == '/') v->number = other.number != 0 ? v->number / other.number : 0;
    return true;
}

// Of what a `$` begins, the key.
static const char *name_of(const char *key) { return key + 1 + (key[1] == '?'); }

static bool find_value(const reader *r, const char *expression, bool word, value *v) {
    for (const char *at = expression;; at++) {
        const size_t n = strcspn(at, "|");
        if (one_value(r, at, n, word, v)) return true;
        at += n;
        if (!*at) break;
    }
    const char *key = strchr(expression, '$');
    return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->path, "key \"%.*s\" is missing",
                   key ? (int)strcspn(name_of(key), "|+*/") : 0, key ? name_of(key) : "");
}

// The place of a word in a list of words with a space between; -1: none.
static int word_of(const char *words, const char *word) {
    const size_t n = strlen(word);
    for (int i = 0; *words; i++) {
        const size_t own = strcspn(words, " ");
        if (own == n && !strncmp(words, word, n)) return i;
        words += own + (words[own] == ' ');
    }
    return -1;
}

static bool set_value(reader *r, int which) {
    const setting *s = &settings[which];
    const char *expression = r->value[which] ? r->value[which] : s->fallback;
    char *to = (char *)r->spec + s->at;
    value v;
    if (s->kind == NAME) {
        *(const char **)to = expression && *expression ? expression : NULL;
        return true;
    }
    if (!find_value(r, expression, s->kind == KIND, &v)) return false;
    if ((s->kind == KIND) != (v.word != NULL))
        return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->path, "\"%s\" (%s) is no %s", s->key,
                       expression, s->kind == KIND ? "word" : "number");
    if (s->kind == KIND) {
        const int word = word_of(s->words, v.word);
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

// ------------------------------------------------------------------------------------------- layers

static bool is_sliding(const ct_spec *s, int64_t i) {
    if (s->sliding > 0) return s->sliding == 1 || (i + 1) % s->sliding;
    return s->sliding < 0 && i % -s->sliding;
}

static bool set_sight(const reader *r, ct_layer_spec *layer, int64_t i) {
    const ct_spec *s = r->spec;
    const json_t *types = json_object_get(r->config, "layer_types");
    const char *type = json_string_value(json_array_get(types, (size_t)i));
    if (type) {
        static const char words[] = "full_attention sliding_attention chunked_attention";
        const int word = word_of(words, type);
        if (word < 0)
            return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->path,
                           "\"layer_types\" has \"%.60s\", layers are one of: %s", type, words);
        layer->sight = (ct_layer_sight)word;
    } else if (s->chunk) {
        layer->sight = layer->rotates ? CT_SIGHT_CHUNK : CT_SIGHT_FULL;
    } else {
        layer->sight = is_sliding(s, i) && i >= s->first_sliding ? CT_SIGHT_SLIDING : CT_SIGHT_FULL;
    }
    if (layer->sight == CT_SIGHT_SLIDING && !s->window) layer->sight = CT_SIGHT_FULL;
    return true;
}

static bool has_number(const json_t *list, int64_t number) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_array_get(list, i)) == number) return true;
    return false;
}

// T5 says MLP and activation in one word.
static void split_mlp(ct_spec *s) {
    enum { GELU_NEW = 2, RELU = 5 };
    if (s->mlp <= CT_MLP_PLAIN) return;
    const int kind = s->mlp - CT_MLP_PLAIN; // relu, gated-gelu, gated-silu
    s->act = kind == 1 ? RELU : kind == 2 ? GELU_NEW : 0;
    s->mlp = kind == 1 ? CT_MLP_PLAIN : CT_MLP_GATED;
}

// What words of the row stand for only as long as the config does not say no.
static void take_back(const json_t *config, ct_spec *s) {
    if (s->qk_norm == CT_QK_UNIT && json_is_false(json_object_get(config, "use_qk_norm")))
        s->qk_norm = CT_QK_NONE;
    if (s->rope == CT_ROPE_PAIRS && json_is_false(json_object_get(config, "rope_interleave")))
        s->rope = CT_ROPE_HALF;
}

static bool set_layers(reader *r) {
    ct_spec *s = r->spec;
    split_mlp(s);
    take_back(r->config, s);
    const json_t *turns = json_object_get(r->config, "no_rope_layers"),
                 *dense = json_object_get(r->config, "mlp_only_layers"),
                 *sparse = json_object_get(r->config, "moe_layers");
    if (!s->slides) s->window = 0;
    s->layer = ct__arena_zero(r->arena, (size_t)s->layers * sizeof *s->layer);
    if (!s->layer) return ct__err_memory(r->err, CT_NOWHERE, r->path, 0);
    for (int64_t i = 0; i < s->layers; i++) {
        ct_layer_spec *layer = &s->layer[i];
        const json_t *turn = json_array_get(turns, (size_t)i);
        layer->rotates =
            s->rope != CT_ROPE_NONE &&
            (turn ? json_integer_value(turn) : !s->rope_interval || (i + 1) % s->rope_interval);
        layer->experts = s->experts && (json_is_array(sparse) ? has_number(sparse, i)
                                                              : i >= s->dense_first &&
                                                                    (i + 1) % s->sparse_step == 0 &&
                                                                    !has_number(dense, i));
        if (!set_sight(r, layer, i)) return false;
    }
    return true;
}

// ------------------------------------------------------------------------------------------- checks

// Keys that change what is computed and that are not looked at, with the values that change nothing: a number,
// words, and null, which is as if the key were not there. `of`: of these rows alone, or of all.
static const struct {
    const char *key, *of, *harmless;
} unread[] = {
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

static const char *text_of(const json_t *has, char out[64]) {
    if (json_is_boolean(has)) return json_is_true(has) ? "true" : "false";
    if (json_is_string(has)) return json_string_value(has);
    if (!json_is_number(has)) return "a list";
    snprintf(out, 64, "%g", json_number_value(has));
    return out;
}

static bool check_unread(const reader *r) {
    char number[64];
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++) {
        const json_t *has = json_object_get(r->config, unread[i].key);
        if (!has || json_is_null(has)) continue;
        if (unread[i].of && word_of(unread[i].of, r->spec->type) < 0) continue;
        const char *text = text_of(has, number);
        if (word_of(unread[i].harmless, text) >= 0) continue;
        return ct__err(r->err, CT_E_UNSUPPORTED, CT_NOWHERE, r->path,
                       "\"%s\" is %.60s, which is not computed: it must be %s%s", unread[i].key,
                       text, strchr(unread[i].harmless, ' ') ? "one of: " : "", unread[i].harmless);
    }
    return true;
}

// Sizes that make a model. Limits are such that products of two of them, and of three where a weight has
// so many axes, are numbers.
static bool check_sizes(const reader *r) {
    const ct_spec *s = r->spec;
    const struct {
        const char *name;
        int64_t value, most;
    } sizes[] = {{"vocab", s->vocab, INT32_MAX},
                 {"layers", s->layers, 10000},
                 {"width", s->width, 1 << 24},
                 {"heads", s->heads, 1 << 20},
                 {"kv_heads", s->kv_heads, 1 << 20},
                 {"head", s->head, 1 << 20},
                 {"value_head", s->value_head, 1 << 20},
                 {"hidden", s->hidden, 1 << 26},
                 {"top", s->top, 1 << 16},
                 {"groups", s->groups, 1 << 16},
                 {"top_groups", s->top_groups, 1 << 16},
                 {"sparse_step", s->sparse_step, 10000},
                 {"expert_hidden", s->expert_hidden, 1 << 26},
                 {"dense_hidden", s->dense_hidden, 1 << 26}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value < 1 || sizes[i].value > sizes[i].most)
            return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->path,
                           "%s is %" PRId64 ", it must be 1 to %" PRId64, sizes[i].name,
                           sizes[i].value, sizes[i].most);
    const struct {
        const char *name;
        int64_t value, most;
    } counts[] = {
        {"context", s->context, INT32_MAX},     {"experts", s->experts, 1 << 16},
        {"window", s->window, INT32_MAX},       {"first_sliding", s->first_sliding, INT32_MAX},
        {"chunk", s->chunk, INT32_MAX},         {"types", s->types, 1 << 16},
        {"positions", s->positions, INT32_MAX}, {"latent", s->latent, 1 << 20},
        {"query_rank", s->query_rank, 1 << 20}, {"plain_head", s->plain_head, s->head},
        {"rotary", s->rotary, s->head},         {"first_position", s->first_position, s->positions},
        {"buckets", s->buckets, 4096},          {"farthest", s->farthest, 1 << 20},
        {"begin", s->begin, s->vocab - 1},      {"shared_hidden", s->shared_hidden, 1 << 26},
        {"state", s->state, 1 << 16},           {"conv", s->conv, 64},
        {"step_rank", s->step_rank, 1 << 20}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].value < 0 || counts[i].value > counts[i].most)
            return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->path,
                           "%s is %" PRId64 ", it must be 0 to %" PRId64, counts[i].name,
                           counts[i].value, counts[i].most);
    if (s->heads % s->kv_heads)
        return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->path,
                       "%" PRId64 " heads are no multiple of %" PRId64 " of keys and values",
                       s->heads, s->kv_heads);
    if (s->experts && (s->top > s->experts || s->experts % s->groups || s->top_groups > s->groups))
        return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->path,
                       "of %" PRId64 " experts in %" PRId64 " groups a token cannot take %" PRId64
                       " of %" PRId64 " groups",
                       s->experts, s->groups, s->top, s->top_groups);
    if (s->buckets && (s->buckets % 4 || s->farthest <= s->buckets))
        return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->path,
                       "%" PRId64 " buckets cannot have relative positions up to %" PRId64
                       ": they must be a multiple of 4, and fewer",
                       s->buckets, s->farthest);
    return s->eps > 0 || ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->path,
                                 "eps is %g, it must be above 0", s->eps);
}

// ---------------------------------------------------------------------------------------------- whole

// A model of text and more has the language model's config inside.
static const json_t *text_config(const json_t *config) {
    const json_t *text = json_object_get(config, "text_config");
    return json_string_value(json_object_get(text, "model_type")) ? text : config;
}

bool ct__spec_read_as(const char *type, const char *path, const json_t *config, ct_arena *arena,
                      ct_spec *spec, ct_err *err) {
    CT_PLAIN; // numbers are worked out
    reader r = {
        .path = path, .config = text_config(config), .arena = arena, .spec = spec, .err = err};
    *spec = (ct_spec){0};
    if (!ct__spec_own_rows(err)) return false;
    const char *row = find_row(type, strlen(type));
    if (!row) return unknown_type(&r, type);
    spec->type = ct__arena_str(arena, type);
    if (!spec->type) return ct__err_memory(err, CT_NOWHERE, path, 0);
    if (!take_row(&r, row, 0)) return false;
    for (int i = 0; i < SETTINGS; i++)
        if (!set_value(&r, i)) return false;
    return check_sizes(&r) && check_unread(&r) && set_layers(&r) &&
           ct__rope_read(path, r.config, arena, spec, err);
}

bool ct__spec_read(const char *path, const json_t *config, ct_arena *arena, ct_spec *spec,
                   ct_err *err) {
    const char *type = json_string_value(json_object_get(text_config(config), "model_type"));
    if (!type) return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path, "key \"model_type\" is missing");
    return ct__spec_read_as(type, path, config, arena, spec, err);
}

// ------------------------------------------------------------------------------------- of a row alone

const char *ct__spec_key(const char *type, const char *key, ct_arena *arena) {
    ct_spec spec;
    ct_err ignored = {0};
    reader r = {.path = "", .arena = arena, .spec = &spec, .err = &ignored};
    const char *row = find_row(type, strlen(type));
    const int which = setting_of(key, strlen(key));
    if (!row || which < 0 || !take_row(&r, row, 0)) return NULL;
    const char *expression = r.value[which] ? r.value[which] : settings[which].fallback;
    if (!expression || *expression != '$') return NULL;
    expression = name_of(expression);
    const size_t n = strcspn(expression, "|+*/");
    if (expression[n] && expression[n] != '|') return NULL;
    return ct__arena_printf(arena, "%.*s", (int)n, expression);
}

void ct__spec_row(const char *type, ct_arena *arena, ct_spec *spec) {
    CT_PLAIN; // numbers are worked out
    *spec = (ct_spec){.type = type};
    const char *row = find_row(type, strlen(type));
    ct_err ignored = {0};
    reader r = {.path = "", .arena = arena, .spec = spec, .err = &ignored};
    bool ok = row && take_row(&r, row, 0);
    for (int i = 0; ok && i < SETTINGS; i++) (void)set_value(&r, i);
}

// Words, which no config need say, are among those that there are.
static bool check_words(reader *r) {
    for (int i = 0; i < SETTINGS; i++) {
        const setting *s = &settings[i];
        const char *word = r->value[i];
        if (s->kind != KIND || !word || *word == '$') continue;
        if (word_of(s->words, word) < 0)
            return ct__err(r->err, CT_E_ARGUMENT, CT_NOWHERE, "architecture",
                           "\"%s\" is \"%.60s\", it must be one of: %s", s->key, word, s->words);
    }
    return true;
}

static bool check_row(const char *row, ct_err *err) {
    ct_arena arena = {0};
    ct_spec spec;
    reader r = {.path = "", .arena = &arena, .spec = &spec, .err = err};
    const size_t n = type_length(row),
                 safe = strspn(row, "abcdefghijklmnopqrstuvwxyz0123456789_.-");
    bool ok = n && row[n] == ':' && safe == n;
    if (!ok)
        ct__err(err, CT_E_ARGUMENT, CT_NOWHERE, "architecture",
                "\"%.60s\" is no row: it begins with a name of a-z, 0-9 and _, and a colon", row);
    ok = ok && take_row(&r, row, 0) && check_words(&r);
    ct__arena_free(&arena);
    return ok;
}

// Takes the row, whose line ends and tabs become spaces.
static bool add_row(const char *row, size_t n, ct_err *err) {
    struct own_row *own = ct__malloc(sizeof *own);
    char *copy = own ? ct__malloc(n + 1) : NULL;
    if (copy) {
        memcpy(copy, row, n);
        copy[n] = '\0';
        for (char *at = copy; *at; at++)
            if (*at == '\n' || *at == '\t' || *at == '\r') *at = ' ';
    }
    bool ok = copy || ct__err_memory(err, CT_NOWHERE, "architecture", n);
    if (!ok || !check_row(copy, err)) {
        ct__free(copy);
        ct__free(own);
        return false;
    }
    pthread_mutex_lock(&own_lock);
    *own = (struct own_row){copy, own_rows};
    own_rows = own;
    pthread_mutex_unlock(&own_lock);
    return true;
}

bool ct_lm_architecture_at(const char *row, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, row, here, "architecture", "the row") || ctx->err.code)
        return false;
    return add_row(row, strlen(row), &ctx->err) || ct__err_place(&ctx->err, here, "architecture");
}

// The rows of a file: each begins at a line's begin and goes on in lines that begin with a space; # begins a
// line that is none.
static bool read_rows(const char *text, ct_err *err) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        if (!n || *text == '#') {
            text += n + (text[n] == '\n');
            continue;
        }
        while (text[n] && (text[n + 1] == ' ' || text[n + 1] == '\t'))
            n += 1 + strcspn(text + n + 1, "\n");
        if (!add_row(text, n, err)) return false;
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
        read = ok = read_rows(text, err);
        if (!ok)
            ct__err_hint(err, "the row stands in %.200s, which COTAN_ARCHITECTURES names", path);
        ct__free(text);
    }
    pthread_mutex_unlock(&lock);
    return ok;
}
