// POST /v1/embeddings and /rerank: texts as vectors, as cotan embed makes them.
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
    if (ok && !read_vectors(m, texts, all->n, all->v, why))
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

static json_t *numbers(const float *v, int64_t n) {
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

bool answer_embeddings(exchange *x) {
    const char *format = "float";
    ct_num dimensions = {0};
    const field fields[] = {{"encoding_format", FIELD_TEXT, .out = &format},
                            {"dimensions", FIELD_WHOLE, 1, 1e6, &dimensions}};
    model *m = named_model(x, false);
    if (!m || !read_fields(x, x->asked, "", fields, 2)) return false;
    const bool packed = strcmp(format, "base64") == 0;
    if (!packed && strcmp(format, "float") != 0)
        return refuse_request(x, 400, "encoding_format",
                              "encoding_format must be float or base64, not \"%s\"", plain(format));
    const int64_t width = m->is->width;
    if (dimensions.given && (int64_t)dimensions.value != width)
        return refuse_request(x, 400, "dimensions", "dimensions: %s has %lld, not %.0f", m->name,
                              (long long)width, dimensions.value);
    vectors all = {0};
    bool ok = read_inputs(x, m, json_object_get(x->asked, "input"), "input", &all);
    json_t *data = json_array();
    for (size_t i = 0; ok && i < all.n; i++) {
        const float *v = all.v + i * (size_t)width;
        json_array_append_new(
            data,
            json_pack("{s:s, s:I, s:o}", "object", "embedding", "index", (json_int_t)i, "embedding",
                      packed ? base64(v, (size_t)width * sizeof *v) : numbers(v, width)));
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
    if (!m) return false;
    json_t *list = json_array();
    const bool ok = read_inputs(x, m, json_object_get(x->asked, "input"), "input", &all);
    for (size_t i = 0; ok && i < all.n; i++)
        json_array_append_new(list, numbers(all.v + i * (size_t)m->is->width, m->is->width));
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
    json_t *list = ok ? numbers(all.v, m->is->width) : NULL;
    free(all.v);
    return ok && reply_json(x, json_pack("{s:o}", "embedding", list));
}

// ------------------------------------------------------------------------------------------ ranking

typedef struct rank {
    size_t index;
    double score;
} rank;

static int by_score(const void *a, const void *b) {
    const rank *p = a, *q = b;
    if (p->score != q->score) return p->score < q->score ? 1 : -1;
    return p->index < q->index ? -1 : 1;
}

// Cohere's and others' clients send documents as texts, or as objects with one.
static json_t *document_texts(exchange *x, json_t *documents) {
    json_t *list = json_array(), *one;
    size_t i;
    json_array_foreach(documents, i, one) {
        json_t *text = json_is_object(one) ? json_object_get(one, "text") : one;
        if (json_is_string(text)) {
            json_array_append(list, text);
            continue;
        }
        refuse_request(x, 400, "documents", "documents[%zu] must be a string, not %s", i,
                       shown(one));
        json_decref(list);
        return NULL;
    }
    return list;
}

static json_t *ranking(const model *m, const vectors *q, const vectors *all, size_t top,
                       json_t *texts, bool with_texts) {
    const size_t width = (size_t)m->is->width;
    rank *ranks = calloc(all->n, sizeof *ranks);
    json_t *list = json_array();
    for (size_t i = 0; ranks && i < all->n; i++) {
        ranks[i].index = i;
        for (size_t k = 0; k < width; k++)
            ranks[i].score += (double)q->v[k] * all->v[i * width + k];
    }
    if (ranks) qsort(ranks, all->n, sizeof *ranks, by_score);
    for (size_t i = 0; ranks && i < top && i < all->n; i++) {
        json_t *one = json_pack("{s:I, s:f}", "index", (json_int_t)ranks[i].index,
                                "relevance_score", ranks[i].score);
        if (with_texts)
            json_object_set_new(one, "document",
                                json_pack("{s:O}", "text", json_array_get(texts, ranks[i].index)));
        json_array_append_new(list, one);
    }
    free(ranks);
    return list;
}

bool answer_rerank(exchange *x) {
    json_t *documents = NULL;
    const char *query = NULL;
    bool with_texts = false;
    ct_num top = {0};
    const field fields[] = {{"query", FIELD_TEXT, .out = &query},
                            {"documents", FIELD_LIST, .out = &documents},
                            {"return_documents", FIELD_FLAG, .out = &with_texts},
                            {"top_n", FIELD_WHOLE, 1, 1e9, &top}};
    model *m = named_model(x, false);
    if (!m || !read_fields(x, x->asked, "", fields, 4)) return false;
    if (!query) return refuse_request(x, 400, "query", "query must be a string, not missing");
    if (!json_array_size(documents))
        return refuse_request(x, 400, "documents",
                              "documents must be a list of at least one, not %s",
                              documents ? shown(documents) : "missing");
    json_t *texts = document_texts(x, documents);
    vectors q = {0}, all = {0};
    bool ok = texts && read_inputs(x, m, json_object_get(x->asked, "query"), "query", &q) &&
              read_inputs(x, m, texts, "documents", &all);
    const size_t n = top.given ? (size_t)top.value : all.n;
    if (ok)
        ok = reply_json(x, json_pack("{s:s, s:o, s:{s:I, s:I}}", "model", m->name, "results",
                                     ranking(m, &q, &all, n, texts, with_texts), "usage",
                                     "prompt_tokens", (json_int_t)(q.tokens + all.tokens),
                                     "total_tokens", (json_int_t)(q.tokens + all.tokens)));
    free(q.v);
    free(all.v);
    json_decref(texts);
    return ok;
}
