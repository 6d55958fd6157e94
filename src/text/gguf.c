#include "text/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "io/utf8.h"

// ---------------------------------------------------------------------------------- the vocabulary

typedef struct gguf_source {
    const ct_gguf *g;
    ct_arena arena; // for copies that the file does not hold
    ct_gguf_vocab vocab;
    ct_err *err;
} gguf_source;

static void *gguf_alloc(gguf_source *s, size_t n, size_t each) {
    void *p = ct__arena(&s->arena, (n + 1) * each);
    if (!p) ct__err_memory(s->err, CT_NOWHERE, s->g->label, n * each);
    return p;
}

static const char *gguf_copy_string(gguf_source *s, ct_gguf_text text) {
    char *p = gguf_alloc(s, text.n, 1);
    if (!p) return NULL;
    memcpy(p, text.s, text.n);
    p[text.n] = '\0';
    return p;
}

static bool gguf_text_read_string(gguf_source *s, const char *key, bool required, const char **to) {
    ct_gguf_text text;
    if (!required && !ct__gguf_find(s->g, key)) return true;
    return ct__gguf_text(s->g, key, &text, s->err) && (*to = gguf_copy_string(s, text)) != NULL;
}

// Reads an optional array with an element per token.
static bool gguf_text_read_array(gguf_source *s, const char *key, ct_gguf_type type,
                                 ct_gguf_list *list) {
    *list = (ct_gguf_list){0};
    if (!ct__gguf_find(s->g, key)) return true;
    return ct__gguf_list(s->g, key, type, list, s->err) &&
           (list->n == s->vocab.n ||
            ct__err_part(s->err, s->g->label, "gguf",
                         "key \"%s\" has %" PRIu64 " elements, and there are %zu tokens", key,
                         list->n, s->vocab.n));
}

static bool gguf_read_strings(gguf_source *s, const char *key, const char *const **to,
                              const size_t **lengths, size_t *n) {
    ct_gguf_list list;
    ct_gguf_text text;
    if (!ct__gguf_list(s->g, key, CT_GGUF_STRING, &list, s->err)) return false;
    const char **all = gguf_alloc(s, list.n, sizeof *all);
    size_t *sizes = gguf_alloc(s, list.n, sizeof *sizes);
    if (!all || !sizes) return false;
    for (*n = 0; ct__gguf_next(&list, &text); ++*n) {
        sizes[*n] = text.n;
        all[*n] = lengths ? text.s : gguf_copy_string(s, text);
        if (!all[*n]) return false;
    }
    *to = all;
    if (lengths) *lengths = sizes;
    return true;
}

static bool gguf_read_scores(gguf_source *s) {
    ct_gguf_list list;
    if (!gguf_text_read_array(s, "tokenizer.ggml.scores", CT_GGUF_F32, &list)) return false;
    if (!list.n) return true;
    float *scores = gguf_alloc(s, list.n, sizeof *scores);
    for (uint64_t i = 0; scores && i < list.n; i++) scores[i] = (float)ct__gguf_list_real(&list, i);
    s->vocab.scores = scores;
    return scores != NULL;
}

static bool gguf_read_types(gguf_source *s) {
    static const char key[] = "tokenizer.ggml.token_type";
    ct_gguf_list list;
    const ct_gguf_pair *pair = ct__gguf_find(s->g, key);
    const bool is_unsigned = pair && pair->value.type == CT_GGUF_U32;
    if (!gguf_text_read_array(s, key, is_unsigned ? CT_GGUF_U32 : CT_GGUF_I32, &list)) return false;
    if (!list.n) return true;
    int32_t *types = gguf_alloc(s, list.n, sizeof *types);
    for (uint64_t i = 0; types && i < list.n; i++) types[i] = (int32_t)ct__gguf_list_int(&list, i);
    s->vocab.types = types;
    return types != NULL;
}

// Reads an id. -1, also as an unsigned 32-bit number: none.
static bool gguf_read_id(gguf_source *s, const char *key, int64_t *id) {
    *id = -1;
    if (!ct__gguf_find(s->g, key)) return true;
    if (!ct__gguf_int(s->g, key, -1, UINT32_MAX, id, s->err)) return false;
    if (*id == UINT32_MAX) *id = -1;
    return *id < (int64_t)s->vocab.n ||
           ct__err_part(s->err, s->g->label, "gguf",
                        "key \"%s\" is %" PRId64 ", and there are %zu tokens", key, *id,
                        s->vocab.n);
}

static bool gguf_read_flag(gguf_source *s, const char *key, int *to) {
    bool flag = false;
    *to = -1;
    if (!ct__gguf_find(s->g, key)) return true;
    if (!ct__gguf_bool(s->g, key, &flag, s->err)) return false;
    *to = flag;
    return true;
}

static bool gguf_read_charsmap(gguf_source *s) {
    static const char key[] = "tokenizer.ggml.precompiled_charsmap";
    const ct_gguf_pair *pair = ct__gguf_find(s->g, key);
    const bool is_signed = pair && pair->value.type == CT_GGUF_I8;
    ct_gguf_list list;
    if (!pair) return true;
    if (!ct__gguf_list(s->g, key, is_signed ? CT_GGUF_I8 : CT_GGUF_U8, &list, s->err)) return false;
    s->vocab.charsmap = list.at;
    s->vocab.charsmap_n = list.n;
    return true;
}

static bool gguf_read_vocab(gguf_source *s) {
    ct_gguf_vocab *v = &s->vocab;
    if (!gguf_text_read_string(s, "tokenizer.ggml.model", true, &v->model) ||
        !gguf_text_read_string(s, "tokenizer.ggml.pre", false, &v->pre) ||
        !gguf_read_strings(s, "tokenizer.ggml.tokens", &v->tokens, &v->lengths, &v->n) ||
        !gguf_read_scores(s) || !gguf_read_types(s) || !gguf_read_charsmap(s))
        return false;
    if (strcmp(v->model, "gpt2") == 0 &&
        !gguf_read_strings(s, "tokenizer.ggml.merges", &v->merges, NULL, &v->n_merges))
        return false;
    return gguf_read_id(s, "tokenizer.ggml.bos_token_id", &v->bos) &&
           gguf_read_id(s, "tokenizer.ggml.eos_token_id", &v->eos) &&
           gguf_read_id(s, "tokenizer.ggml.unknown_token_id", &v->unk) &&
           gguf_read_id(s, "tokenizer.ggml.padding_token_id", &v->pad) &&
           gguf_read_flag(s, "tokenizer.ggml.add_bos_token", &v->add_bos) &&
           gguf_read_flag(s, "tokenizer.ggml.add_eos_token", &v->add_eos) &&
           gguf_read_flag(s, "tokenizer.ggml.add_space_prefix", &v->add_space_prefix) &&
           gguf_read_flag(s, "tokenizer.ggml.remove_extra_whitespaces",
                          &v->remove_extra_whitespaces);
}

// -------------------------------------------------------------------------------------- EOS tokens

static bool gguf_add_eos_id(ct_tokenizer *t, int64_t id, ct_err *err) {
    for (size_t i = 0; i < t->n_eos_ids; i++)
        if (t->eos_ids[i] == id) return true;
    if (id < 0) return true;
    if (!CT_GROW(t->eos_ids, t->eos_ids_cap, t->n_eos_ids + 1))
        return ct__tokenizer_memory_error(t, err);
    t->eos_ids[t->n_eos_ids++] = id;
    return true;
}

static int64_t gguf_special_id(const ct_tokenizer *t, const char *text) {
    const int64_t id = ct_tokenizer_id(t, text, strlen(text));
    return id >= 0 && ct_tokenizer_is_special(t, id) ? id : -1;
}

// Collects the tokens that end an answer: files name one or two, and llama.cpp recognizes the
// others by their texts.
static bool gguf_find_eos_ids(ct_tokenizer *t, gguf_source *s) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    static const char deepseek[] = "<\xef\xbd\x9c"
                                   "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>";
    static const char *const texts[] = {
        "<|eot_id|>",      "<|im_end|>",         "<|return|>", "<|call|>",
        "<end_of_turn>",   "<|endoftext|>",      "</s>",       "<|eom_id|>",
        "<|end_of_text|>", "<end_of_utterance>", deepseek};
    int64_t id;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!gguf_read_id(s, keys[i], &id) || !gguf_add_eos_id(t, id, s->err)) return false;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!gguf_add_eos_id(t, gguf_special_id(t, texts[i]), s->err)) return false;
    // For gpt-oss, <|end|> ends a message, and another may follow.
    const bool harmony =
        gguf_special_id(t, "<|return|>") >= 0 && gguf_special_id(t, "<|call|>") >= 0;
    return harmony || gguf_add_eos_id(t, gguf_special_id(t, "<|end|>"), s->err);
}

bool ct__tokenizer_of_gguf(ct_tokenizer *t, const ct_gguf *gguf, ct_err *err) {
    gguf_source s = {.g = gguf, .err = err};
    const bool ok = gguf_read_vocab(&s) && ct__tokenizer_read_gguf(t, &s.vocab, err) &&
                    ct__tokenizer_finish(t, err) && gguf_find_eos_ids(t, &s);
    ct__arena_free(&s.arena);
    return ok;
}

// ---------------------------------------------------------------------------------- chat templates

static json_t *gguf_json_string(const ct_gguf *g, const char *key, ct_err *err) {
    ct_gguf_text text;
    if (!ct__gguf_text(g, key, &text, err)) return NULL;
    if (ct__utf8_bad(text.s, text.n) < text.n) {
        ct__err_part(err, g->label, "gguf", "key \"%s\" is no UTF-8", key);
        return NULL;
    }
    json_t *json = json_stringn(text.s, text.n);
    if (!json) ct__err_memory(err, CT_NOWHERE, g->label, text.n);
    return json;
}

static bool gguf_add_template(json_t *all, const ct_gguf *g, const char *key, json_t *name,
                              ct_err *err) {
    json_t *text = gguf_json_string(g, key, err), *one = text ? json_object() : NULL;
    const bool ok = one && json_object_set(one, "name", name) == 0 &&
                    json_object_set(one, "template", text) == 0 && json_array_append(all, one) == 0;
    json_decref(text);
    json_decref(one);
    json_decref(name);
    return ok || (!err->code && ct__err_memory(err, CT_NOWHERE, g->label, sizeof(json_t)));
}

// Writes the default template, and those that a list names.
static bool gguf_add_templates(json_t *all, const ct_gguf *g, ct_err *err) {
    static const char key[] = "tokenizer.chat_template", list_key[] = "tokenizer.chat_templates";
    char full[256], shown[CT_PRINTABLE];
    ct_gguf_list list;
    ct_gguf_text name;
    if (ct__gguf_find(g, key) && !gguf_add_template(all, g, key, json_string("default"), err))
        return false;
    if (!ct__gguf_find(g, list_key)) return true;
    if (!ct__gguf_list(g, list_key, CT_GGUF_STRING, &list, err)) return false;
    while (ct__gguf_next(&list, &name)) {
        if (name.n > 64 || ct__utf8_bad(name.s, name.n) < name.n || memchr(name.s, 0, name.n))
            return ct__err_part(err, g->label, "gguf", "key \"%s\" has \"%s\", which is no name",
                                list_key, ct__printable(name.s, name.n, shown, sizeof shown));
        snprintf(full, sizeof full, "%s.%.*s", key, (int)name.n, name.s);
        if (!gguf_add_template(all, g, full, json_stringn(name.s, name.n), err)) return false;
    }
    return true;
}

static bool gguf_add_tokens(json_t *config, const ct_gguf *g, ct_err *err) {
    static const char *const names[][2] = {// spelled "seperator" in the format
                                           {"bos", "bos_token"},     {"eos", "eos_token"},
                                           {"unknown", "unk_token"}, {"seperator", "sep_token"},
                                           {"padding", "pad_token"}, {"cls", "cls_token"},
                                           {"mask", "mask_token"}};
    char key[64];
    ct_gguf_list tokens;
    ct_gguf_text text;
    if (!ct__gguf_find(g, "tokenizer.ggml.tokens")) return true;
    if (!ct__gguf_list(g, "tokenizer.ggml.tokens", CT_GGUF_STRING, &tokens, err)) return false;
    int64_t ids[7];
    for (int i = 0; i < 7; i++) {
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", names[i][0]);
        ids[i] = -1;
        if (ct__gguf_find(g, key) && !ct__gguf_int(g, key, -1, UINT32_MAX, &ids[i], err))
            return false;
    }
    for (int64_t at = 0; ct__gguf_next(&tokens, &text); at++)
        for (int i = 0; i < 7; i++) // a token that is not UTF-8 cannot be a variable
            if (ids[i] == at && ct__utf8_bad(text.s, text.n) == text.n &&
                json_object_set_new(config, names[i][1], json_stringn(text.s, text.n)))
                return ct__err_memory(err, CT_NOWHERE, g->label, sizeof(json_t));
    return true;
}

json_t *ct__chat_of_gguf(const ct_gguf *g, ct_err *err) {
    json_t *config = json_object(), *all = json_array();
    bool ok = config && all && json_object_set(config, "chat_template", all) == 0;
    ok = ok || ct__err_memory(err, CT_NOWHERE, g->label, sizeof(json_t));
    ok = ok && gguf_add_templates(all, g, err) && gguf_add_tokens(config, g, err);
    if (ok && !json_array_size(all))
        ok = ct__err(err, CT_E_FILE, CT_NOWHERE, g->label,
                     "the file has no chat template: there is no key \"tokenizer.chat_template\"");
    json_decref(all);
    if (ok) return config;
    json_decref(config);
    return NULL;
}
