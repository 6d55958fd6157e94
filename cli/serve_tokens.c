// POST /tokenize and /detokenize, as llama.cpp's server has them; vLLM's clients name the text `prompt`.
#include <stdlib.h>
#include <string.h>

#include "serve.h"

// A piece that is not UTF-8 is given as its bytes.
static json_t *piece_object(ct_decoder *d, int32_t id) {
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

bool answer_tokenize(exchange *x) {
    bool special = false, pieces = false;
    const char *content = NULL, *prompt = NULL;
    const field fields[] = {{"content", FIELD_TEXT, .out = &content},
                            {"prompt", FIELD_TEXT, .out = &prompt},
                            {"add_special", FIELD_FLAG, .out = &special},
                            {"add_special_tokens", FIELD_FLAG, .out = &special},
                            {"with_pieces", FIELD_FLAG, .out = &pieces}};
    model *m = named_model(x, false);
    id_list e = {0};
    if (!m || !read_fields(x, x->asked, "", fields, 5)) return false;
    const char *text = content ? content : prompt;
    if (!text) return refuse_request(x, 400, "content", "content must be a string, not missing");
    if (!encode(m, text, strlen(text), special, &e)) return refuse_failed(x, 400, "content");
    json_t *list = json_array();
    ct_decoder *d = pieces ? ct_decoder_new_at(m->is->tokenizer, false, (ct_loc){0}) : NULL;
    for (size_t i = 0; i < e.n; i++)
        json_array_append_new(list, pieces ? piece_object(d, e.ids[i]) : json_integer(e.ids[i]));
    ct_decoder_free(d);
    const json_int_t n = (json_int_t)e.n;
    free_ids(&e);
    return reply_json(x, json_pack("{s:o, s:I, s:I}", "tokens", list, "count", n, "max_model_len",
                                   (json_int_t)m->context));
}

bool read_ids(exchange *x, const model *m, json_t *list, const char *param, id_list *e) {
    json_t *id;
    size_t i;
    free_ids(e);
    e->ids = calloc(json_array_size(list) + 1, sizeof *e->ids);
    if (!e->ids) return refuse_request(x, 500, NULL, "there is no memory for %s", param);
    json_array_foreach(list, i, id) {
        const json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
        if (v < 0 || v >= m->is->vocab)
            return refuse_request(x, 400, param,
                                  "%s: a token is a whole number from 0 to %lld, not %s", param,
                                  (long long)m->is->vocab - 1, shown(id));
        e->ids[e->n++] = (int32_t)v;
    }
    return true;
}

bool answer_detokenize(exchange *x) {
    json_t *tokens = NULL;
    const field fields[] = {{"tokens", FIELD_LIST, .out = &tokens}};
    model *m = named_model(x, false);
    id_list e = {0};
    size_t n = 0;
    if (!m || !read_fields(x, x->asked, "", fields, 1)) return false;
    bool ok = read_ids(x, m, tokens, "tokens", &e);
    ct_decoder *d = ok ? ct_decoder_new_at(m->is->tokenizer, false, (ct_loc){0}) : NULL;
    const char *text = d ? ct_decoder_all(d, e.ids, e.n, &n) : NULL;
    if (text)
        ok = reply_json(x, json_pack("{s:o}", "content", json_text(text, n)));
    else if (ok)
        ok = refuse_failed(x, 400, "tokens");
    ct_decoder_free(d);
    free_ids(&e);
    return ok;
}
