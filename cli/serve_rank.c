// POST /rerank, and text-embeddings-inference's /embed and /predict: scores by embeddings or by a
// classification head.
#include <stdlib.h>
#include <string.h>

#include "serve.h"

enum { MAX_INPUTS = 2048 };

// Options that apply to all texts of a request.
typedef struct rerank_options {
    exchange *x;
    bool truncate, raw;
    int64_t tokens; // number of tokens that were processed
} rerank_options;

static ct_embed_options rerank_embed_options(const model *m, rerank_options *a) {
    return (ct_embed_options){.pooling = m->embedding,
                              .truncate = a->truncate,
                              .n_tokens = &a->tokens,
                              .should_stop = client_is_disconnected,
                              .user = a->x};
}

static ct_lm_text rerank_text_input(const json_t *string) {
    return (ct_lm_text){.s = json_string_value(string), .n = json_string_length(string)};
}

static bool rerank_out_of_memory(exchange *x) {
    return fail_request(x, 500, NULL, "there is no memory for the texts");
}

static bool rerank_too_many(exchange *x, const char *param, size_t n) {
    return fail_request(x, 400, param, "%s: at most %d at a time, not %zu", param, MAX_INPUTS, n);
}

// ------------------------------------------------------------------------------------------ ranking

typedef struct ranking {
    json_t *documents; // (n)
    double *scores;
    size_t *order; // best first
} ranking;

// Parses documents: clients of Cohere and others send texts, or objects with a text.
static json_t *rerank_parse_documents(exchange *x, const char *param, json_t *documents) {
    json_t *list = json_array(), *one;
    size_t i;
    json_array_foreach(documents, i, one) {
        json_t *text = json_is_object(one) ? json_object_get(one, "text") : one;
        if (json_is_string(text)) {
            json_array_append(list, text);
            continue;
        }
        fail_request(x, 400, param, "%s[%zu] must be a string, not %s", param, i,
                     json_excerpt(one));
        json_decref(list);
        return NULL;
    }
    return list;
}

// Scores by embeddings; the query follows the documents.
static bool rerank_score_by_vectors(model *m, ct_lm_text *texts, size_t n, ranking *r,
                                    rerank_options *a, char why[512]) {
    const size_t width = (size_t)m->is->width;
    float *v = malloc((n + 1) * width * sizeof *v);
    snprintf(why, 512, "there is no memory for the vectors");
    const bool ok = v && model_embed_texts(m, texts, n + 1, v, rerank_embed_options(m, a), why);
    for (size_t i = 0; ok && i < n; i++)
        r->scores[i] = cosine_similarity(v + i * width, v + n * width, m->is->width);
    free(v);
    return ok;
}

// Scores by a cross-encoder: its head's score for the query and a document, or the probability.
static bool rerank_score_by_head(model *m, ct_lm_text *texts, size_t n, ranking *r,
                                 rerank_options *a, char why[512]) {
    float *v = malloc((n + 1) * sizeof *v);
    snprintf(why, 512, "there is no memory for the scores");
    for (size_t i = 0; i < n; i++) {
        texts[i].text_pair = texts[i].s;
        texts[i].n_text_pair = texts[i].n;
        texts[i].s = texts[n].s;
        texts[i].n = texts[n].n;
    }
    const bool ok = v && model_classify_texts(m, texts, n, v, rerank_embed_options(m, a), why);
    if (ok && !a->raw) ct_lm_class_probabilities(m->is->lm, v, n);
    for (size_t i = 0; ok && i < n; i++) r->scores[i] = (double)v[i];
    free(v);
    return ok;
}

static void rerank_sort(ranking *r, size_t n) { // insertion sort: few elements, and stable
    for (size_t i = 0; i < n; i++) {
        size_t at = i;
        for (; at && r->scores[r->order[at - 1]] < r->scores[i]; at--)
            r->order[at] = r->order[at - 1];
        r->order[at] = i;
    }
}

static bool rerank_run(exchange *x, model *m, const json_t *query, const char *param, ranking *r,
                       rerank_options *a) {
    char why[512];
    const size_t n = json_array_size(r->documents);
    const int64_t labels = ct_lm_info(m->is->lm).labels;
    if (labels > 1)
        return fail_request(
            x, 400, "model",
            "%s has %lld classes; reranking needs a model with one label, or an embedding model",
            m->name, (long long)labels);
    ct_lm_text *texts = calloc(n + 1, sizeof *texts);
    r->scores = calloc(n, sizeof *r->scores);
    r->order = calloc(n, sizeof *r->order);
    bool ok = (texts && r->scores && r->order) || rerank_out_of_memory(x);
    for (size_t i = 0; ok && i < n; i++)
        texts[i] = rerank_text_input(json_array_get(r->documents, i));
    if (ok) texts[n] = rerank_text_input(query);
    if (ok && !(labels ? rerank_score_by_head : rerank_score_by_vectors)(m, texts, n, r, a, why))
        ok = fail_request(x, 400, param, "%s", why);
    if (ok) rerank_sort(r, n);
    free(texts);
    return ok;
}

static json_t *rerank_results_json(const ranking *r, size_t top, bool tei, bool with_texts) {
    json_t *list = json_array();
    const size_t n = json_array_size(r->documents);
    for (size_t i = 0; i < top && i < n; i++) {
        const size_t at = r->order[i];
        json_t *text = json_array_get(r->documents, at),
               *one = json_pack("{s:I, s:f}", "index", (json_int_t)at,
                                tei ? "score" : "relevance_score", r->scores[at]);
        if (with_texts && tei) json_object_set(one, "text", text);
        if (with_texts && !tei)
            json_object_set_new(one, "document", json_pack("{s:O}", "text", text));
        json_array_append_new(list, one);
    }
    return list;
}

// Handles requests of clients of Cohere, Jina and others, with documents, and of
// text-embeddings-inference, with texts.
bool handle_rerank(exchange *x) {
    json_t *documents = NULL, *own = NULL;
    const char *query = NULL;
    bool with_documents = false, with_texts = false;
    ct_num top = {0};
    rerank_options a = {.x = x};
    const field fields[] = {{"query", FIELD_STRING, .out = &query},
                            {"documents", FIELD_LIST, .out = &documents},
                            {"texts", FIELD_LIST, .out = &own},
                            {"return_documents", FIELD_BOOL, .out = &with_documents},
                            {"return_text", FIELD_BOOL, .out = &with_texts},
                            {"truncate", FIELD_BOOL, .out = &a.truncate},
                            {"raw_scores", FIELD_BOOL, .out = &a.raw},
                            {"top_n", FIELD_INT, 1, 1e9, &top}};
    model *m = find_requested_model(x, false);
    if (!m || !parse_fields(x, x->request, "", fields, sizeof fields / sizeof *fields))
        return false;
    const bool tei = own && !documents;
    const char *param = tei ? "texts" : "documents";
    json_t *list = tei ? own : documents;
    const size_t n = json_array_size(list);
    if (!query) return fail_request(x, 400, "query", "query must be a string, not missing");
    if (!n)
        return fail_request(x, 400, param, "%s must be a list of at least one, not %s", param,
                            list ? json_excerpt(list) : "missing");
    if (n > MAX_INPUTS) return rerank_too_many(x, param, n);
    ranking r = {.documents = rerank_parse_documents(x, param, list)};
    bool ok = r.documents && rerank_run(x, m, json_object_get(x->request, "query"), param, &r, &a);
    if (ok) {
        json_t *results = rerank_results_json(&r, top.given ? (size_t)top.value : n, tei,
                                              tei ? with_texts : with_documents);
        ok = reply_json(x, tei ? results
                               : json_pack("{s:s, s:o, s:{s:I, s:I}}", "model", m->name, "results",
                                           results, "usage", "prompt_tokens", (json_int_t)a.tokens,
                                           "total_tokens", (json_int_t)a.tokens));
    }
    free(r.scores);
    free(r.order);
    json_decref(r.documents);
    return ok;
}

// ------------------------------------------------------------------------------------------- classes

// Parses a text, or a list of one or two texts, which form a pair.
static bool predict_parse_input(exchange *x, const json_t *input, ct_lm_text *text) {
    const json_t *first = json_is_array(input) ? json_array_get(input, 0) : input,
                 *second = json_array_get(input, 1);
    if (!json_is_string(first) || (second && !json_is_string(second)) || json_array_size(input) > 2)
        return fail_request(x, 400, "inputs",
                            "inputs must be a string, a list of one or two, or a list of such "
                            "lists, not %s",
                            input ? json_excerpt(input) : "missing");
    *text = rerank_text_input(first);
    text->text_pair = json_string_value(second);
    text->n_text_pair = json_string_length(second);
    return true;
}

// Labels and their scores, highest first.
static json_t *predict_labels_json(const model *m, const float *scores, int64_t labels) {
    json_t *list = json_array();
    char name[512];
    for (int64_t k = 0; k < labels; k++) {
        size_t at = 0;
        while (at < json_array_size(list) &&
               json_real_value(json_object_get(json_array_get(list, at), "score")) >=
                   (double)scores[k])
            at++;
        ct_lm_label(m->is->lm, k, name, sizeof name);
        json_array_insert_new(list, at,
                              json_pack("{s:f, s:o}", "score", (double)scores[k], "label",
                                        json_utf8(name, strlen(name))));
    }
    return list;
}

bool handle_predict(exchange *x) {
    rerank_options a = {.x = x};
    char why[512];
    const field fields[] = {{"truncate", FIELD_BOOL, .out = &a.truncate},
                            {"raw_scores", FIELD_BOOL, .out = &a.raw}};
    model *m = find_requested_model(x, false);
    if (!m || !parse_fields(x, x->request, "", fields, 2)) return false;
    const int64_t labels = ct_lm_info(m->is->lm).labels;
    if (!labels) return fail_request(x, 400, "model", "%s has no classification head", m->name);
    json_t *inputs = json_object_get(x->request, "inputs");
    const bool many = json_is_array(json_array_get(inputs, 0));
    const size_t n = many ? json_array_size(inputs) : 1;
    if (n > MAX_INPUTS) return rerank_too_many(x, "inputs", n);
    ct_lm_text *texts = calloc(n, sizeof *texts);
    float *scores = calloc(n * (size_t)labels, sizeof *scores);
    bool ok = (texts && scores) || rerank_out_of_memory(x);
    for (size_t i = 0; ok && i < n; i++)
        ok = predict_parse_input(x, many ? json_array_get(inputs, i) : inputs, &texts[i]);
    if (ok && !model_classify_texts(m, texts, n, scores, rerank_embed_options(m, &a), why))
        ok = fail_request(x, 400, "inputs", "%s", why);
    if (ok && !a.raw) ct_lm_class_probabilities(m->is->lm, scores, n);
    json_t *all = ok ? json_array() : NULL;
    for (size_t i = 0; ok && i < n; i++)
        json_array_append_new(all, predict_labels_json(m, scores + i * (size_t)labels, labels));
    free(texts);
    free(scores);
    if (!ok) return false;
    if (many) return reply_json(x, all);
    json_t *one = json_incref(json_array_get(all, 0));
    json_decref(all);
    return reply_json(x, one);
}

// ------------------------------------------------------------------------------------------- vectors

bool handle_tei_embed(exchange *x) {
    rerank_options a = {.x = x};
    char why[512];
    bool normalise = true;
    const field fields[] = {{"truncate", FIELD_BOOL, .out = &a.truncate},
                            {"normalize", FIELD_BOOL, .out = &normalise}};
    model *m = find_requested_model(x, false);
    if (!m || !parse_fields(x, x->request, "", fields, 2)) return false;
    const json_t *inputs = json_object_get(x->request, "inputs");
    const size_t n = json_is_string(inputs) ? 1 : json_array_size(inputs),
                 width = (size_t)m->is->width;
    if (!n)
        return fail_request(x, 400, "inputs", "inputs must be a string or a list of them, not %s",
                            inputs ? json_excerpt(inputs) : "missing");
    if (n > MAX_INPUTS) return rerank_too_many(x, "inputs", n);
    ct_lm_text *texts = calloc(n, sizeof *texts);
    float *v = malloc(n * width * sizeof *v);
    bool ok = (texts && v) || rerank_out_of_memory(x);
    for (size_t i = 0; ok && i < n; i++) {
        const json_t *one = json_is_string(inputs) ? inputs : json_array_get(inputs, i);
        texts[i] = rerank_text_input(one);
        if (!texts[i].s)
            ok = fail_request(x, 400, "inputs", "inputs[%zu] must be a string, not %s", i,
                              json_excerpt(one));
    }
    ct_embed_options o = rerank_embed_options(m, &a);
    o.pooling.normalised = normalise;
    if (ok && !model_embed_texts(m, texts, n, v, o, why))
        ok = fail_request(x, 400, "inputs", "%s", why);
    json_t *list = ok ? json_array() : NULL;
    for (size_t i = 0; ok && i < n; i++)
        json_array_append_new(list, json_numbers(v + i * width, m->is->width));
    free(texts);
    free(v);
    return ok && reply_json(x, list);
}
