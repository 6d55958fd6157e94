// POST /v1/embeddings and Ollama's counterparts: embeddings of texts, as cotan embed computes them.
#include <stdlib.h>
#include <string.h>

#include "serve.h"

enum { MAX_INPUTS = 2048 };

typedef struct embedding_list {
    float *v; // (n, width)
    size_t n, tokens;
} embedding_list;

// Encodes a text, or parses its tokens if they are given.
static bool embeddings_parse_one(exchange *x, model *m, json_t *input, const char *param,
                                 id_list *e) {
    if (!json_is_string(input))
        return parse_ids(x, m, input, param, e) && check_prompt_length(x, m, e->n, param);
    if (!model_encode(m, json_string_value(input), json_string_length(input), true, e))
        return fail_request_from_error(x, 400, param);
    return check_prompt_length(x, m, e->n, param);
}

static bool embeddings_reject_input(exchange *x, const char *param, const json_t *value) {
    return fail_request(x, 400, param,
                        "%s must be a string, a list of tokens, or a list of these, not %s", param,
                        value ? json_excerpt(value) : "missing");
}

static bool embeddings_compute(exchange *x, model *m, const id_list *ids, const char *param,
                               embedding_list *all) {
    char why[512];
    ct_lm_text *texts = calloc(all->n, sizeof *texts);
    all->v = calloc(all->n * (size_t)m->is->width, sizeof *all->v);
    bool ok = texts && all->v;
    if (!ok) fail_request(x, 500, NULL, "there is no memory for the vectors");
    for (size_t i = 0; ok && i < all->n; i++) {
        texts[i] = (ct_lm_text){.ids = ids[i].ids, .n_ids = ids[i].n};
        all->tokens += ids[i].n;
    }
    const ct_embed_options o = {
        .pooling = m->embedding, .should_stop = client_is_disconnected, .user = x};
    if (ok && !model_embed_texts(m, texts, all->n, all->v, o, why))
        ok = fail_request(x, 400, param, "%s", why);
    free(texts);
    return ok;
}

// Parses a text, its tokens, or a list of texts or token lists.
static bool embeddings_parse_inputs(exchange *x, model *m, json_t *input, const char *param,
                                    embedding_list *all) {
    const json_t *first = json_array_get(input, 0);
    const bool one = json_is_string(input) || json_is_integer(first);
    const size_t n = one ? 1 : json_array_size(input);
    if (!n) return embeddings_reject_input(x, param, input);
    if (n > MAX_INPUTS)
        return fail_request(x, 400, param, "%s: at most %d at a time, not %zu", param, MAX_INPUTS,
                            n);
    id_list *ids = calloc(n, sizeof *ids);
    bool ok = ids || fail_request(x, 500, NULL, "there is no memory for the texts");
    for (size_t i = 0; ok && i < n; i++) {
        json_t *text = one ? input : json_array_get(input, i);
        ok = json_is_string(text) || json_is_array(text)
                 ? embeddings_parse_one(x, m, text, param, &ids[i])
                 : embeddings_reject_input(x, param, text);
    }
    all->n = n;
    ok = ok && embeddings_compute(x, m, ids, param, all);
    for (size_t i = 0; ids && i < n; i++) id_list_free(&ids[i]);
    free(ids);
    return ok;
}

json_t *json_numbers(const float *v, int64_t n) {
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++) json_array_append_new(list, json_real((double)v[i]));
    return list;
}

static json_t *embeddings_base64(const void *bytes, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *b = bytes;
    buffer text = {0};
    for (size_t i = 0; i < n; i += 3) {
        const unsigned three = (unsigned)b[i] << 16 | (i + 1 < n ? (unsigned)b[i + 1] << 8 : 0) |
                               (i + 2 < n ? b[i + 2] : 0);
        const char four[4] = {digits[three >> 18], digits[three >> 12 & 63],
                              i + 1 < n ? digits[three >> 6 & 63] : '=',
                              i + 2 < n ? digits[three & 63] : '='};
        buffer_put(&text, four, 4);
    }
    json_t *made = json_utf8(text.v, text.n);
    free(text.v);
    return made;
}

static bool embeddings_check_dimensions(exchange *x, const model *m) {
    const int64_t width = m->is->width;
    ct_num dimensions = {0};
    const field fields[] = {{"dimensions", FIELD_INT, 1, 1e6, &dimensions}};
    if (!parse_fields(x, x->request, "", fields, 1)) return false;
    if (!dimensions.given || (int64_t)dimensions.value == width) return true;
    return fail_request(x, 400, "dimensions", "dimensions: %s has %lld, not %.0f", m->name,
                        (long long)width, dimensions.value);
}

bool handle_embeddings(exchange *x) {
    const char *format = "float";
    const field fields[] = {{"encoding_format", FIELD_STRING, .out = &format}};
    model *m = find_requested_model(x, false);
    if (!m || !parse_fields(x, x->request, "", fields, 1) || !embeddings_check_dimensions(x, m))
        return false;
    const bool packed = strcmp(format, "base64") == 0;
    if (!packed && strcmp(format, "float") != 0)
        return fail_request(x, 400, "encoding_format",
                            "encoding_format must be float or base64, not \"%s\"",
                            printable(format));
    const int64_t width = m->is->width;
    embedding_list all = {0};
    bool ok = embeddings_parse_inputs(x, m, json_object_get(x->request, "input"), "input", &all);
    json_t *data = json_array();
    for (size_t i = 0; ok && i < all.n; i++) {
        const float *v = all.v + i * (size_t)width;
        json_array_append_new(data,
                              json_pack("{s:s, s:I, s:o}", "object", "embedding", "index",
                                        (json_int_t)i, "embedding",
                                        packed ? embeddings_base64(v, (size_t)width * sizeof *v)
                                               : json_numbers(v, width)));
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

bool handle_ollama_embed(exchange *x) {
    model *m = find_requested_model(x, false);
    const double began = seconds_now();
    embedding_list all = {0};
    if (!m || !embeddings_check_dimensions(x, m)) return false;
    json_t *list = json_array();
    const bool ok =
        embeddings_parse_inputs(x, m, json_object_get(x->request, "input"), "input", &all);
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

bool handle_ollama_embeddings(exchange *x) {
    model *m = find_requested_model(x, false);
    embedding_list all = {0};
    if (!m) return false;
    const bool ok =
        embeddings_parse_inputs(x, m, json_object_get(x->request, "prompt"), "prompt", &all);
    json_t *list = ok ? json_numbers(all.v, m->is->width) : NULL;
    free(all.v);
    return ok && reply_json(x, json_pack("{s:o}", "embedding", list));
}
