// POST /tokenize and /detokenize, as in llama.cpp's server; clients of vLLM call the text `prompt`.
#include <stdlib.h>
#include <string.h>

#include "serve.h"

// The text of a token; its bytes if it is not UTF-8.
static json_t *tokens_piece_json(ct_decoder *d, int32_t id) {
    size_t n = 0;
    const char *text = d ? ct_decoder_bytes(d, &id, 1, &n) : NULL;
    json_t *piece = json_stringn(text ? text : "", n);
    if (!text) ct_error_clear();
    if (!piece) {
        piece = json_array();
        for (size_t i = 0; i < n; i++)
            json_array_append_new(piece, json_integer((unsigned char)text[i]));
    }
    return json_pack("{s:i, s:o}", "id", (int)id, "piece", piece);
}

bool handle_tokenize(exchange *x) {
    bool special = false, pieces = false;
    const char *content = NULL, *prompt = NULL;
    const field fields[] = {{"content", FIELD_STRING, .out = &content},
                            {"prompt", FIELD_STRING, .out = &prompt},
                            {"add_special", FIELD_BOOL, .out = &special},
                            {"add_special_tokens", FIELD_BOOL, .out = &special},
                            {"with_pieces", FIELD_BOOL, .out = &pieces}};
    model *m = find_requested_model(x, false);
    id_list e = {0};
    if (!m || !parse_fields(x, x->request, "", fields, 5)) return false;
    const char *text = content ? content : prompt;
    if (!text) return fail_request(x, 400, "content", "content must be a string, not missing");
    if (!model_encode(m, text, strlen(text), special, &e))
        return fail_request_from_error(x, 400, "content");
    json_t *list = json_array();
    ct_decoder *d = pieces ? ct_decoder_new_at(m->is->tokenizer, false, (ct_loc){0}) : NULL;
    for (size_t i = 0; i < e.n; i++)
        json_array_append_new(list,
                              pieces ? tokens_piece_json(d, e.ids[i]) : json_integer(e.ids[i]));
    ct_decoder_free(d);
    const json_int_t n = (json_int_t)e.n;
    id_list_free(&e);
    return reply_json(x, json_pack("{s:o, s:I, s:I}", "tokens", list, "count", n, "max_model_len",
                                   (json_int_t)m->context));
}

bool parse_ids(exchange *x, const model *m, json_t *list, const char *param, id_list *e) {
    json_t *id;
    size_t i;
    id_list_free(e);
    e->ids = calloc(json_array_size(list) + 1, sizeof *e->ids);
    if (!e->ids) return fail_request(x, 500, NULL, "there is no memory for %s", param);
    json_array_foreach(list, i, id) {
        const json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
        if (v < 0 || v >= m->is->vocab)
            return fail_request(x, 400, param,
                                "%s: a token is a whole number from 0 to %lld, not %s", param,
                                (long long)m->is->vocab - 1, json_excerpt(id));
        e->ids[e->n++] = (int32_t)v;
    }
    return true;
}

bool handle_detokenize(exchange *x) {
    json_t *tokens = NULL;
    const field fields[] = {{"tokens", FIELD_LIST, .out = &tokens}};
    model *m = find_requested_model(x, false);
    id_list e = {0};
    size_t n = 0;
    if (!m || !parse_fields(x, x->request, "", fields, 1)) return false;
    bool ok = parse_ids(x, m, tokens, "tokens", &e);
    ct_decoder *d = ok ? ct_decoder_new_at(m->is->tokenizer, false, (ct_loc){0}) : NULL;
    const char *text = d ? ct_decoder_all(d, e.ids, e.n, &n) : NULL;
    if (text)
        ok = reply_json(x, json_pack("{s:o}", "content", json_utf8(text, n)));
    else if (ok)
        ok = fail_request_from_error(x, 400, "tokens");
    ct_decoder_free(d);
    id_list_free(&e);
    return ok;
}
