// POST /v1/embeddings and Ollama's: texts as vectors, as cotan embed makes them.
#include <stdlib.h>
#include <string.h>

#include "serve.h"

enum { MOST_INPUTS = 2048 };

typedef struct vectors {
    float *v; // (n, width)
    size_t n, tokens;
} vectors;

// A text's tokens, or those that are given.
static bool read_one(exchange *x, model *m, json_t *input, const char *param, id_list *e) {
    if (!json_is_string(input))
        return read_ids(x, m, input, param, e) && prompt_fits(x, m, e->n, param);
    if (!encode(m, json_string_value(input), json_string_length(input), true, e))
        return refuse_failed(x, 400, param);
    return prompt_fits(x, m, e->n, param);
}

static bool refuse_input(exchange *x, const char *param, const json_t *value) {
    return refuse_request(x, 400, param,
                          "%s must be a string, a list of tokens, or a list of these, not %s",
                          param, value ? shown(value) : "missing");
}

static bool embed(exchange *x, model *m, const id_list *ids, const char *param, vectors *all) {
    char why[512];
    ct_lm_text *texts = calloc(all->n, sizeof *texts);
    all->v = calloc(all->n * (size_t)m->is->width, sizeof *all->v);
    bool ok = texts && all->v;
    if (!ok) refuse_request(x, 500, NULL, "there is no memory for the vectors");
    for (size_t i = 0; ok && i < all->n; i++) {
        texts[i] = (ct_lm_text){.ids = ids[i].ids, .n_ids = ids[i].n};
        all->tokens += ids[i].n;
    }
    const ct_embed_options o = {.how = m->embeds, .stop = nobody_waits, .user = x};
    if (ok && !read_vectors(m, texts, all->n, all->v, o, why))
        ok = refuse_request(x, 400, param, "%s", why);
    free(texts);
    return ok;
}

// A text, its tokens, or a list of texts or of tokens' lists.
static bool read_inputs(exchange *x, model *m, json_t *input, const char *param, vectors *all) {
    const json_t *first = json_array_get(input, 0);
    const bool one = json_is_string(input) || json_is_integer(first);
    const size_t n = one ? 1 : json_array_size(input);
    if (!n) return refuse_input(x, param, input);
    if (n > MOST_INPUTS)
        return refuse_request(x, 400, param, "%s: at most %d at a time, not %zu", param,
                              MOST_INPUTS, n);
    id_list *ids = calloc(n, sizeof *ids);
    bool ok = ids || refuse_request(x, 500, NULL, "there is no memory for the texts");
    for (size_t i = 0; ok && i < n; i++) {
        json_t *text = one ? input : json_array_get(input, i);
        ok = json_is_string(text) || json_is_array(text) ? read_one(x, m, text, param, &ids[i])
                                                         : refuse_input(x, param, text);
    }
    all->n = n;
    ok = ok && embed(x, m, ids, param, all);
    for (size_t i = 0; ids && i < n; i++) free_ids(&ids[i]);
    free(ids);
    return ok;
}

json_t *json_numbers(const float *v, int64_t n) {
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++) json_array_append_new(list, json_real((double)v[i]));
    return list;
}

static json_t *base64(const void *bytes, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *b = bytes;
    buffer text = {0};
    for (size_t i = 0; i < n; i += 3) {
        const unsigned three = (unsigned)b[i] << 16 | (i + 1 < n ? (unsigned)b[i + 1] << 8 : 0) |
                               (i + 2 < n ? b[i + 2] : 0);
        const char four[4] = {digits[three >> 18], digits[three >> 12 & 63],
                              i + 1 < n ? digits[three >> 6 & 63] : '=',
                              i + 2 < n ? digits[three & 63] : '='};
        put(&text, four, 4);
    }
    json_t *made = json_text(text.v, text.n);
    free(text.v);
    return made;
}

static bool read_dimensions(exchange *x, const model *m) {
    const int64_t width = m->is->width;
    ct_num dimensions = {0};
    const field fields[] = {{"dimensions", FIELD_WHOLE, 1, 1e6, &dimensions}};
    if (!read_fields(x, x->asked, "", fields, 1)) return false;
    if (!dimensions.given || (int64_t)dimensions.value == width) return true;
    return refuse_request(x, 400, "dimensions", "dimensions: %s has %lld, not %.0f", m->name,
                          (long long)width, dimensions.value);
}

bool answer_embeddings(exchange *x) {
    const char *format = "float";
    const field fields[] = {{"encoding_format", FIELD_TEXT, .out = &format}};
    model *m = named_model(x, false);
    if (!m || !read_fields(x, x->asked, "", fields, 1) || !read_dimensions(x, m)) return false;
    const bool packed = strcmp(format, "base64") == 0;
    if (!packed && strcmp(format, "float") != 0)
        return refuse_request(x, 400, "encoding_format",
                              "encoding_format must be float or base64, not \"%s\"", plain(format));
    const int64_t width = m->is->width;
    vectors all = {0};
    bool ok = read_inputs(x, m, json_object_get(x->asked, "input"), "input", &all);
    json_t *data = json_array();
    for (size_t i = 0; ok && i < all.n; i++) {
        const float *v = all.v + i * (size_t)width;
        json_array_append_new(
            data,
            json_pack("{s:s, s:I, s:o}", "object", "embedding", "index", (json_int_t)i, "embedding",
                      packed ? base64(v, (size_t)width * sizeof *v) : json_numbers(v, width)));
    }
    free(all.v);
    if (!ok) {
        json_decref(data);
        return false;
    }
    return reply_json(x, json_pack("{s:s, s:o, s:s, s:{s:I, s:I}}", "object", "list", "data", data,
                                   "model", m->name, "usage", "prompt_tokens",
                                   (json_int_t)all.tokens, "total_tokens", (json_int_t)all.tokens));
}

// ---------------------------------------------------------------------------------------- Ollama's

bool answer_ollama_embed(exchange *x) {
    model *m = named_model(x, false);
    const double began = seconds_now();
    vectors all = {0};
    if (!m || !read_dimensions(x, m)) return false;
    json_t *list = json_array();
    const bool ok = read_inputs(x, m, json_object_get(x->asked, "input"), "input", &all);
    for (size_t i = 0; ok && i < all.n; i++)
        json_array_append_new(list, json_numbers(all.v + i * (size_t)m->is->width, m->is->width));
    free(all.v);
    if (!ok) {
        json_decref(list);
        return false;
    }
    return reply_json(x, json_pack("{s:s, s:o, s:I, s:I, s:I}", "model", m->name, "embeddings",
                                   list, "total_duration",
                                   (json_int_t)((seconds_now() - began) * 1e9), "load_duration",
                                   (json_int_t)0, "prompt_eval_count", (json_int_t)all.tokens));
}

bool answer_ollama_embeddings(exchange *x) {
    model *m = named_model(x, false);
    vectors all = {0};
    if (!m) return false;
    const bool ok = read_inputs(x, m, json_object_get(x->asked, "prompt"), "prompt", &all);
    json_t *list = ok ? json_numbers(all.v, m->is->width) : NULL;
    free(all.v);
    return ok && reply_json(x, json_pack("{s:o}", "embedding", list));
}
