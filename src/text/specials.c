// Special tokens, from the files beside a tokenizer.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/os.h"
#include "io/json.h"
#include "text/ranks.h"

// Reads the JSON of a file of the folder. *root NULL: there is no such file.
static bool specials_read_file(const char *folder, const char *name, json_t **root, ct_err *err) {
    char path[4096], *text;
    size_t n;
    struct stat st;
    json_error_t where;
    *root = NULL;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path ||
        stat(path, &st) != 0)
        return true;
    if (!ct__file_read(path, &text, &n, err)) return false;
    *root = ct__json_read_bigint(text, n, JSON_ALLOW_NUL, &where);
    ct__free(text);
    char shown[JSON_ERROR_TEXT_LENGTH];
    if (!*root)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path, "not JSON: line %d, column %d: %s",
                       where.line, where.column,
                       ct__printable(where.text, strlen(where.text), shown, sizeof shown));
    return true;
}

// ------------------------------------------------------------------------------------ added tokens

static bool specials_flag(const json_t *of, const char *key, bool default_value) {
    const json_t *value = json_object_get(of, key);
    return json_is_boolean(value) ? json_is_true(value) : default_value;
}

static bool specials_add_token(ct_tokenizer *t, const char *text, size_t n, int64_t id,
                               const json_t *of, ct_err *err) {
    enum { MAX_ADDED = 1 << 16 };
    if (!n || ct__lexicon_id(&t->added_vocab, text, n) >= 0) return true;
    if (id < 0 || id >= (int64_t)t->model.vocab.n_ids + MAX_ADDED)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, t->label,
                       "an added token has id %lld, after a vocabulary of %zu", (long long)id,
                       (size_t)t->model.vocab.n_ids);
    ct_added a = {.n = n,
                  .id = (int32_t)id,
                  .special = specials_flag(of, "special", false),
                  .normalized = specials_flag(of, "normalized", false),
                  .single_word = specials_flag(of, "single_word", false),
                  .lstrip = specials_flag(of, "lstrip", false),
                  .rstrip = specials_flag(of, "rstrip", false)};
    a.text = ct__tokenizer_copy_string(t, text, n, err);
    return a.text && ct__tokenizer_add_token(t, &a, err);
}

bool ct__tokenizer_read_added(ct_tokenizer *t, const char *folder, ct_err *err) {
    json_t *root, *value;
    const char *key;
    if (!specials_read_file(folder, "tokenizer_config.json", &root, err)) return false;
    bool ok = true;
    json_object_foreach(json_object_get(root, "added_tokens_decoder"), key, value) {
        const json_t *text = json_object_get(value, "content");
        char *end;
        const long long id = strtoll(key, &end, 10);
        if (ok && json_is_string(text) && end != key && !*end)
            ok = specials_add_token(t, json_string_value(text), json_string_length(text), id, value,
                                    err);
    }
    json_decref(root);
    if (!ok || !specials_read_file(folder, "added_tokens.json", &root, err)) return false;
    json_object_foreach(root, key, value) {
        if (ok && json_is_integer(value))
            ok = specials_add_token(t, key, strlen(key), json_integer_value(value), NULL, err);
    }
    json_decref(root);
    return ok;
}

// ------------------------------------------------------------------------------------------- roles

static const char *const specials_keys[CT_TOKEN_ROLES] = {"bos_token", "eos_token", "unk_token",
                                                          "pad_token"};

static void specials_read_names(ct_tokenizer *t, const json_t *root) {
    for (int i = 0; i < CT_TOKEN_ROLES; i++) {
        const json_t *value = json_object_get(root, specials_keys[i]);
        if (json_is_object(value)) value = json_object_get(value, "content");
        const char *name = json_string_value(value);
        int64_t id = name ? ct_tokenizer_id(t, name, json_string_length(value)) : -1;
        if (id >= 0) t->special[i] = id;
    }
}

// Adds the tokens that end a sequence: a number, or a list of numbers.
static bool specials_add_eos_ids(ct_tokenizer *t, const json_t *value, ct_err *err) {
    const size_t n = json_is_array(value) ? json_array_size(value) : json_is_integer(value);
    for (size_t k = 0; k < n; k++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, k) : value;
        const json_int_t end = json_is_integer(one) ? json_integer_value(one) : -1;
        if (end < 0 || end >= t->n_ids) continue;
        if (!CT_GROW(t->eos_ids, t->eos_ids_cap, t->n_eos_ids + 1))
            return ct__tokenizer_memory_error(t, err);
        t->eos_ids[t->n_eos_ids++] = end;
    }
    return true;
}

static bool specials_add_own_eos(ct_tokenizer *t, ct_err *err) {
    const int64_t own = t->special[CT_EOS];
    for (size_t i = 0; i < t->n_eos_ids; i++)
        if (t->eos_ids[i] == own) return true;
    if (own < 0) return true;
    if (!CT_GROW(t->eos_ids, t->eos_ids_cap, t->n_eos_ids + 1))
        return ct__tokenizer_memory_error(t, err);
    t->eos_ids[t->n_eos_ids++] = own;
    return true;
}

static bool specials_read_ids(ct_tokenizer *t, const json_t *root, ct_err *err) {
    static const char *const ids[CT_TOKEN_ROLES] = {"bos_token_id", "eos_token_id", NULL,
                                                    "pad_token_id"};
    for (int i = 0; i < CT_TOKEN_ROLES; i++) {
        const json_t *value = ids[i] ? json_object_get(root, ids[i]) : NULL,
                     *first = json_is_array(value) ? json_array_get(value, 0) : value;
        json_int_t id = json_is_integer(first) ? json_integer_value(first) : -1;
        if (id >= 0 && id < t->n_ids && t->special[i] < 0) t->special[i] = id;
        if (i == CT_EOS && !specials_add_eos_ids(t, value, err)) return false;
    }
    return true;
}

// False if the model gets no token type ids: all are 0 then, whatever the template says.
static bool specials_has_type_ids(const json_t *root) {
    const json_t *names = json_object_get(root, "model_input_names"), *name;
    size_t i;
    json_array_foreach(names, i, name) {
        const char *text = json_string_value(name);
        if (text && strcmp(text, "token_type_ids") == 0) return true;
    }
    return !json_is_array(names); // the default of most tokenizer classes
}

bool ct__tokenizer_read_specials(ct_tokenizer *t, const char *folder, ct_err *err) {
    json_t *root;
    if (!specials_read_file(folder, "special_tokens_map.json", &root, err)) return false;
    specials_read_names(t, root);
    json_decref(root);
    if (!specials_read_file(folder, "tokenizer_config.json", &root, err)) return false;
    specials_read_names(t, root);
    bool bos = json_is_true(json_object_get(root, "add_bos_token")),
         eos = json_is_true(json_object_get(root, "add_eos_token"));
    t->single_type_id = !specials_has_type_ids(root);
    json_decref(root);
    // Only SentencePiece needs a template here; tokenizer.json has its own.
    bool pieces = t->normalizers.n && t->normalizers.v[0].kind == CT_STEP_SENTENCEPIECE;
    if (pieces && (bos || eos) &&
        !ct__tokenizer_add_template(t, bos ? t->special[CT_BOS] : -1, eos ? t->special[CT_EOS] : -1,
                                    err))
        return false;
    if (!specials_read_file(folder, "generation_config.json", &root, err)) return false;
    bool ok = specials_read_ids(t, root, err);
    json_decref(root);
    // Without EOS tokens in generation_config.json those of the model's config.json are used, as in
    // transformers, with the tokenizer's own.
    if (!ok || t->n_eos_ids) return ok;
    if (!specials_read_file(folder, "config.json", &root, err)) return false;
    const json_t *own = json_object_get(root, "eos_token_id"),
                 *below = json_object_get(json_object_get(root, "text_config"), "eos_token_id");
    ok = specials_add_eos_ids(t, own ? own : below, err) &&
         (!t->n_eos_ids || specials_add_own_eos(t, err));
    json_decref(root);
    return ok;
}
