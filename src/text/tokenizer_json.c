// The reader of Hugging Face's tokenizer.json.
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "io/json.h"
#include "text/ranks.h"

typedef struct tok_json_reader {
    ct_tokenizer *t;
    ct_err *err;
    bool zeros; // some keys contain zero bytes
} tok_json_reader;

static bool tok_json_error(tok_json_reader *r, const char *part, const char *what,
                           const char *value) {
    char shown[CT_PRINTABLE];
    if (!value) return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->t->label, "%s: %s", part, what);
    return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->t->label, "%s: %s: \"%s\"", part, what,
                   ct__printable(value, strlen(value), shown, sizeof shown));
}

// ----------------------------------------------------------------------------------------- members

static bool tok_json_flag(const json_t *of, const char *key, bool default_value) {
    const json_t *value = json_object_get(of, key);
    return json_is_boolean(value) ? json_is_true(value) : default_value;
}

// Reads a string member, as a copy; a missing one is an error if it is required.
static bool tok_json_string(tok_json_reader *r, const char *part, const json_t *of, const char *key,
                            bool required, const char **text, size_t *n) {
    const json_t *value = json_object_get(of, key);
    *text = NULL, *n = 0;
    if (!json_is_string(value)) {
        if (!required && (!value || json_is_null(value))) return true;
        char what[96];
        snprintf(what, sizeof what, "\"%s\" is %s", key, value ? "no string" : "missing");
        return tok_json_error(r, part, what, NULL);
    }
    *n = json_string_length(value);
    *text = ct__tokenizer_copy_string(r->t, json_string_value(value), *n, r->err);
    return *text != NULL;
}

static bool tok_json_count(tok_json_reader *r, const char *part, const json_t *of, const char *key,
                           uint32_t default_value, uint32_t *out) {
    const json_t *value = json_object_get(of, key);
    *out = default_value;
    if (!value) return true;
    json_int_t n = json_integer_value(value);
    if (!json_is_integer(value) || n < 0 || n > 1 << 30) {
        char what[96];
        snprintf(what, sizeof what, "\"%s\" is no number from 0 to 2^30", key);
        return tok_json_error(r, part, what, NULL);
    }
    *out = (uint32_t)n;
    return true;
}

static bool tok_json_id(tok_json_reader *r, const char *part, const json_t *value, int32_t *id) {
    json_int_t n = json_integer_value(value);
    if (!json_is_integer(value) || n < 0 || n >= CT_MAX_IDS)
        return tok_json_error(r, part, "an id is no number from 0 to 16777215", NULL);
    *id = (int32_t)n;
    return true;
}

static bool tok_json_pattern(tok_json_reader *r, const char *part, const json_t *of,
                             ct_regex **out) {
    const json_t *pattern = json_object_get(of, "pattern");
    const json_t *literal = json_object_get(pattern, "String"),
                 *regex = json_object_get(pattern, "Regex");
    const json_t *value = json_is_string(literal) ? literal : regex;
    if (!json_is_string(value))
        return tok_json_error(r, part, "\"pattern\" has neither String nor Regex", NULL);
    char label[256];
    snprintf(label, sizeof label, "%.200s: %s", r->t->label, part);
    *out = ct__regex_new(label, json_string_value(value), json_string_length(value),
                         value == literal ? CT_LITERAL : CT_ONIGURUMA, r->err);
    return *out != NULL;
}

static bool tok_json_behavior(tok_json_reader *r, const char *part, const json_t *of,
                              ct_split_behavior *out) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const char *name = json_string_value(json_object_get(of, "behavior"));
    *out = CT_ISOLATED;
    for (int i = 0; name && i < 5; i++)
        if (!strcmp(name, names[i])) {
            *out = (ct_split_behavior)i;
            return true;
        }
    return name ? tok_json_error(r, part, "this behavior is not known", name) : true;
}

// ------------------------------------------------------------------------------------------- steps

// A section of the file with a kind of steps.
typedef struct tok_section {
    const char *name, *sequence_key; // sequence_key: the key of a Sequence's list
    ct_steps *steps;
    bool (*read)(tok_json_reader *r, const struct tok_section *part, const char *type,
                 const json_t *of);
} tok_section;

static bool tok_json_steps(tok_json_reader *r, const tok_section *p, const json_t *of) {
    if (!of || json_is_null(of)) return true;
    const char *type = json_string_value(json_object_get(of, "type"));
    if (!type) return tok_json_error(r, p->name, "there is no \"type\"", NULL);
    if (strcmp(type, "Sequence")) return p->read(r, p, type, of);
    const json_t *list = json_object_get(of, p->sequence_key);
    if (!json_is_array(list))
        return tok_json_error(r, p->name, "a Sequence has no list of what is in it", NULL);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!tok_json_steps(r, p, json_array_get(list, i))) return false;
    return true;
}

static ct_step *tok_json_add_step(tok_json_reader *r, const tok_section *p, ct_step_kind kind) {
    return ct__step_add(r->t, p->steps, kind, r->err);
}

static bool tok_json_replace(tok_json_reader *r, const tok_section *p, const json_t *of) {
    ct_step *s = tok_json_add_step(r, p, CT_STEP_REPLACE);
    return s && tok_json_pattern(r, p->name, of, &s->pattern) &&
           tok_json_string(r, p->name, of, "content", true, &s->text, &s->text_n);
}

static bool tok_json_charsmap(tok_json_reader *r, const tok_section *p, const json_t *of) {
    const json_t *value = json_object_get(of, "precompiled_charsmap");
    ct_step *s = tok_json_add_step(r, p, CT_STEP_PRECOMPILED);
    if (!s) return false;
    if (!json_is_string(value))
        return tok_json_error(r, p->name, "\"precompiled_charsmap\" is no string", NULL);
    size_t n = json_string_length(value);
    unsigned char *bytes = ct__malloc(n + 4);
    if (!bytes) return ct__tokenizer_memory_error(r->t, r->err);
    int64_t size = ct__base64(json_string_value(value), n, bytes);
    bool ok = size >= 0
                  ? size == 0 || ct__charsmap_read(r->t->label, bytes, (size_t)size, &r->t->arena,
                                                   &s->map, r->err)
                  : tok_json_error(r, p->name, "\"precompiled_charsmap\" is not base64", NULL);
    ct__free(bytes);
    return ok;
}

static bool tok_json_normalizer(tok_json_reader *r, const tok_section *p, const char *type,
                                const json_t *of) {
    static const struct {
        const char *type;
        ct_step_kind kind;
    } plain[] = {{"NFC", CT_STEP_NFC},
                 {"NFD", CT_STEP_NFD},
                 {"NFKC", CT_STEP_NFKC},
                 {"NFKD", CT_STEP_NFKD},
                 {"Lowercase", CT_STEP_LOWERCASE},
                 {"StripAccents", CT_STEP_STRIP_ACCENTS},
                 {"Nmt", CT_STEP_NMT},
                 {"ByteLevel", CT_STEP_BYTES}};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (!strcmp(type, plain[i].type)) return tok_json_add_step(r, p, plain[i].kind) != NULL;
    if (!strcmp(type, "Replace")) return tok_json_replace(r, p, of);
    if (!strcmp(type, "Precompiled")) return tok_json_charsmap(r, p, of);
    bool prepend = !strcmp(type, "Prepend"), strip = !strcmp(type, "Strip");
    if (!prepend && !strip && strcmp(type, "BertNormalizer"))
        return tok_json_error(r, p->name, "this type is not known", type);
    ct_step *s = tok_json_add_step(r, p,
                                   prepend ? CT_STEP_PREPEND
                                   : strip ? CT_STEP_STRIP
                                           : CT_STEP_BERT);
    if (!s) return false;
    if (prepend) return tok_json_string(r, p->name, of, "prepend", true, &s->text, &s->text_n);
    s->left = tok_json_flag(of, "strip_left", true);
    s->right = tok_json_flag(of, "strip_right", true);
    s->clean = tok_json_flag(of, "clean_text", true);
    s->chinese = tok_json_flag(of, "handle_chinese_chars", true);
    s->lower = tok_json_flag(of, "lowercase", true);
    s->accents = tok_json_flag(of, "strip_accents", s->lower);
    return true;
}

static bool tok_json_metaspace(tok_json_reader *r, const tok_section *p, const json_t *of) {
    ct_step *s = tok_json_add_step(r, p, CT_STEP_METASPACE);
    if (!s || !tok_json_string(r, p->name, of, "replacement", true, &s->text, &s->text_n))
        return false;
    if (!s->text_n) return tok_json_error(r, p->name, "\"replacement\" is empty", NULL);
    const char *scheme = json_string_value(json_object_get(of, "prepend_scheme"));
    s->scheme = !scheme || !strcmp(scheme, "always") ? CT_PREPEND_ALWAYS
                : !strcmp(scheme, "first")           ? CT_PREPEND_FIRST
                                                     : CT_PREPEND_NEVER;
    if (scheme && s->scheme == CT_PREPEND_NEVER && strcmp(scheme, "never"))
        return tok_json_error(r, p->name, "this prepend_scheme is not known", scheme);
    if (!tok_json_flag(of, "add_prefix_space", true)) s->scheme = CT_PREPEND_NEVER;
    s->split = tok_json_flag(of, "split", true);
    return true;
}

static bool tok_json_add_split(tok_json_reader *r, const tok_section *p, const char *pattern,
                               size_t n, bool literal, ct_split_behavior behavior, bool invert) {
    ct_step *s = tok_json_add_step(r, p, CT_STEP_SPLIT);
    if (!s) return false;
    s->behavior = behavior;
    s->invert = invert;
    s->pattern =
        ct__regex_new(r->t->label, pattern, n, literal ? CT_LITERAL : CT_ONIGURUMA, r->err);
    return s->pattern != NULL;
}

#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}"
static const char word_or_signs[] = "[" WORD "]+|[^" WORD "\\s]+";

static bool tok_json_byte_level(tok_json_reader *r, const tok_section *p, const json_t *of) {
    if (tok_json_flag(of, "add_prefix_space", true) &&
        !tok_json_add_step(r, p, CT_STEP_PREFIX_SPACE))
        return false;
    if (tok_json_flag(of, "use_regex", true) &&
        !tok_json_add_split(r, p, ct__gpt2_pattern, strlen(ct__gpt2_pattern), false, CT_ISOLATED,
                            false))
        return false;
    return tok_json_add_step(r, p, CT_STEP_BYTES) != NULL;
}

static bool tok_json_pretokenizer(tok_json_reader *r, const tok_section *p, const char *type,
                                  const json_t *of) {
    ct_step *s;
    if (!strcmp(type, "ByteLevel")) return tok_json_byte_level(r, p, of);
    if (!strcmp(type, "Metaspace")) return tok_json_metaspace(r, p, of);
    if (!strcmp(type, "BertPreTokenizer"))
        return tok_json_add_step(r, p, CT_STEP_BERT_SPLIT) != NULL;
    if (!strcmp(type, "WhitespaceSplit"))
        return tok_json_add_step(r, p, CT_STEP_WHITESPACE_SPLIT) != NULL;
    if (!strcmp(type, "Whitespace"))
        return tok_json_add_split(r, p, word_or_signs, strlen(word_or_signs), false, CT_REMOVED,
                                  true);
    if (!strcmp(type, "CharDelimiterSplit")) {
        const json_t *value = json_object_get(of, "delimiter");
        if (!json_is_string(value))
            return tok_json_error(r, p->name, "\"delimiter\" is no string", NULL);
        return tok_json_add_split(r, p, json_string_value(value), json_string_length(value), true,
                                  CT_REMOVED, false);
    }
    if (!strcmp(type, "Punctuation"))
        return (s = tok_json_add_step(r, p, CT_STEP_PUNCTUATION)) &&
               tok_json_behavior(r, p->name, of, &s->behavior);
    if (!strcmp(type, "Digits")) {
        if (!(s = tok_json_add_step(r, p, CT_STEP_DIGITS))) return false;
        s->behavior = tok_json_flag(of, "individual_digits", false) ? CT_ISOLATED : CT_CONTIGUOUS;
        return true;
    }
    if (!strcmp(type, "FixedLength")) {
        if (!(s = tok_json_add_step(r, p, CT_STEP_FIXED_LENGTH)) ||
            !tok_json_count(r, p->name, of, "length", 5, &s->count))
            return false;
        return s->count > 0 || tok_json_error(r, p->name, "\"length\" is 0", NULL);
    }
    bool scripts = !strcmp(type, "UnicodeScripts");
    if (!scripts && strcmp(type, "Split"))
        return tok_json_error(r, p->name, "this type is not known", type);
    if (!(s = tok_json_add_step(r, p, CT_STEP_SPLIT))) return false;
    s->behavior = CT_REMOVED;
    s->invert = scripts || tok_json_flag(of, "invert", false);
    if (scripts) return (s->pattern = ct__regex_scripts(r->err)) != NULL;
    return tok_json_pattern(r, p->name, of, &s->pattern) &&
           tok_json_behavior(r, p->name, of, &s->behavior);
}

static bool tok_json_decoder(tok_json_reader *r, const tok_section *p, const char *type,
                             const json_t *of) {
    ct_step *s;
    if (!strcmp(type, "ByteLevel")) return tok_json_add_step(r, p, CT_STEP_BYTES) != NULL;
    if (!strcmp(type, "Metaspace")) return tok_json_metaspace(r, p, of);
    if (!strcmp(type, "Replace")) return tok_json_replace(r, p, of);
    if (!strcmp(type, "Fuse")) return tok_json_add_step(r, p, CT_STEP_FUSE) != NULL;
    if (!strcmp(type, "ByteFallback"))
        return tok_json_add_step(r, p, CT_STEP_BYTE_FALLBACK) != NULL;
    if (!strcmp(type, "BPEDecoder"))
        return (s = tok_json_add_step(r, p, CT_STEP_SUFFIX)) &&
               tok_json_string(r, p->name, of, "suffix", true, &s->text, &s->text_n);
    if (!strcmp(type, "Strip"))
        return (s = tok_json_add_step(r, p, CT_STEP_STRIP_CHAR)) &&
               tok_json_string(r, p->name, of, "content", true, &s->text, &s->text_n) &&
               tok_json_count(r, p->name, of, "start", 0, &s->count) &&
               tok_json_count(r, p->name, of, "stop", 0, &s->stop) &&
               (s->text_n || tok_json_error(r, p->name, "\"content\" is empty", NULL));
    bool ctc = !strcmp(type, "CTC");
    if (!ctc && strcmp(type, "WordPiece"))
        return tok_json_error(r, p->name, "this type is not known", type);
    if (!(s = tok_json_add_step(r, p, ctc ? CT_STEP_CTC : CT_STEP_WORDPIECE))) return false;
    s->cleanup = tok_json_flag(of, "cleanup", true);
    return tok_json_string(r, p->name, of, ctc ? "pad_token" : "prefix", true, &s->text,
                           &s->text_n) &&
           (!ctc || tok_json_string(r, p->name, of, "word_delimiter_token", true, &s->delimiter,
                                    &s->delimiter_n));
}

// --------------------------------------------------------------------------------- post-processors

static bool tok_json_push_id(tok_json_reader *r, const tok_section *p, int32_t **ids, size_t *n,
                             const json_t *value) {
    // The lists are short and in the arena, so each append copies the list.
    int32_t *longer = ct__arena(&r->t->arena, (*n + 1) * sizeof *longer);
    if (!longer) return ct__tokenizer_memory_error(r->t, r->err);
    if (*n) memcpy(longer, *ids, *n * sizeof *longer);
    *ids = longer;
    return tok_json_id(r, p->name, value, &longer[(*n)++]);
}

static bool tok_json_push_pair_item(tok_json_reader *r, ct_step *s, int32_t id, int32_t kind) {
    ct_pair_piece *longer = ct__arena(&r->t->arena, (s->n_pair + 1) * sizeof *longer);
    if (!longer) return ct__tokenizer_memory_error(r->t, r->err);
    if (s->n_pair) memcpy(longer, s->pair, s->n_pair * sizeof *longer);
    longer[s->n_pair++] = (ct_pair_piece){id, kind};
    s->pair = longer;
    return true;
}

// Reads a template of pairs with each text once; any other leaves the template without a form for
// pairs.
static bool tok_json_pair(tok_json_reader *r, const tok_section *p, const json_t *of, ct_step *s) {
    const json_t *pair = json_object_get(of, "pair"),
                 *specials = json_object_get(of, "special_tokens");
    int texts[2] = {0, 0};
    bool known = json_is_array(pair);
    for (size_t i = 0; known && i < json_array_size(pair); i++) {
        const json_t *item = json_array_get(pair, i), *text = json_object_get(item, "Sequence"),
                     *own = text ? text : json_object_get(item, "SpecialToken"),
                     *kind = json_object_get(own, "type_id");
        const char *name = json_string_value(json_object_get(own, "id"));
        const json_t *list =
            text || !name ? NULL : json_object_get(json_object_get(specials, name), "ids");
        const int32_t is = json_integer_value(kind) == 1;
        known = name && (!kind || json_integer_value(kind) == is) && (text || json_is_array(list));
        if (known && text) {
            const bool second = strcmp(name, "B") == 0;
            texts[second]++;
            known = second || strcmp(name, "A") == 0;
            if (!tok_json_push_pair_item(r, s, second ? CT_PAIR_SECOND : CT_PAIR_FIRST, is))
                return false;
        }
        for (size_t k = 0; known && k < json_array_size(list); k++) {
            int32_t id = 0;
            if (!tok_json_id(r, p->name, json_array_get(list, k), &id) ||
                !tok_json_push_pair_item(r, s, id, is))
                return false;
        }
    }
    if (!known || texts[0] != 1 || texts[1] != 1) s->n_pair = 0;
    return true;
}

static bool tok_json_template(tok_json_reader *r, const tok_section *p, const json_t *of) {
    const json_t *single = json_object_get(of, "single"),
                 *specials = json_object_get(of, "special_tokens");
    ct_step *s = tok_json_add_step(r, p, CT_STEP_TEMPLATE);
    int32_t *ids[2] = {NULL, NULL};
    size_t n[2] = {0, 0};
    int side = 0;
    if (!s) return false;
    if (!json_is_array(single)) return tok_json_error(r, p->name, "\"single\" is no list", NULL);
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i);
        if (json_object_get(item, "Sequence")) {
            if (side++) return tok_json_error(r, p->name, "\"single\" has the text twice", NULL);
            continue;
        }
        const char *name =
            json_string_value(json_object_get(json_object_get(item, "SpecialToken"), "id"));
        const json_t *list = name ? json_object_get(json_object_get(specials, name), "ids") : NULL;
        if (!json_is_array(list))
            return tok_json_error(r, p->name,
                                  "a member of \"single\" is no special token that it lists", name);
        for (size_t k = 0; k < json_array_size(list); k++)
            if (!tok_json_push_id(r, p, &ids[side], &n[side], json_array_get(list, k)))
                return false;
    }
    if (!side) return tok_json_error(r, p->name, "\"single\" has no Sequence", NULL);
    s->before = ids[0], s->n_before = n[0];
    s->after = ids[1], s->n_after = n[1];
    return tok_json_pair(r, p, of, s);
}

static bool tok_json_processor(tok_json_reader *r, const tok_section *p, const char *type,
                               const json_t *of) {
    bool bytes = !strcmp(type, "ByteLevel"), roberta = !strcmp(type, "RobertaProcessing");
    if (!strcmp(type, "TemplateProcessing")) return tok_json_template(r, p, of);
    if ((bytes || roberta) && tok_json_flag(of, "trim_offsets", true)) {
        ct_step *s = tok_json_add_step(r, p, CT_STEP_TRIM);
        if (!s) return false;
        s->prefix = tok_json_flag(of, "add_prefix_space", true);
    }
    if (bytes) return true;
    if (!roberta && strcmp(type, "BertProcessing"))
        return tok_json_error(r, p->name, "this type is not known", type);
    ct_step *s = tok_json_add_step(r, p, CT_STEP_TEMPLATE);
    int32_t *cls = NULL, *sep = NULL;
    if (!s ||
        !tok_json_push_id(r, p, &cls, &s->n_before,
                          json_array_get(json_object_get(of, "cls"), 1)) ||
        !tok_json_push_id(r, p, &sep, &s->n_after, json_array_get(json_object_get(of, "sep"), 1)))
        return false;
    s->before = cls, s->after = sep;
    // <s> A </s></s> B </s>, or [CLS] A [SEP] B [SEP], whose second text has type id 1.
    return tok_json_push_pair_item(r, s, *cls, 0) &&
           tok_json_push_pair_item(r, s, CT_PAIR_FIRST, 0) &&
           tok_json_push_pair_item(r, s, *sep, 0) &&
           (!roberta || tok_json_push_pair_item(r, s, *sep, 0)) &&
           tok_json_push_pair_item(r, s, CT_PAIR_SECOND, !roberta) &&
           tok_json_push_pair_item(r, s, *sep, !roberta);
}

// ------------------------------------------------------------------------------------------ models

// The JSON library rejects zero bytes in keys, and a vocabulary may have them: they are replaced by
// this noncharacter, which no text contains.
static const char zero_key[] = "\\uFDD0";

static bool tok_json_hide_zero_bytes(char *s, size_t n) {
    bool hidden = false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '"') continue;
        size_t begin = ++i;
        bool zero = false;
        for (; i < n && s[i] != '"'; i++) {
            zero |= i + 6 <= n && !memcmp(s + i, "\\u0000", 6);
            if (s[i] == '\\') i++;
        }
        size_t next = i + 1;
        while (next < n && strchr(" \t\r\n", s[next])) next++;
        if (!zero || next >= n || s[next] != ':') continue;
        for (size_t k = begin; k + 6 <= i; k += s[k] == '\\' ? 2 : 1)
            if (!memcmp(s + k, "\\u0000", 6)) memcpy(s + k, zero_key, 6), hidden = true;
    }
    return hidden;
}

static size_t tok_json_restore_zero_bytes(char *s, size_t n) {
    size_t to = 0;
    for (size_t i = 0; i < n; to++) {
        bool zero = i + 3 <= n && !memcmp(s + i, "\xef\xb7\x90", 3);
        s[to] = zero ? '\0' : s[i];
        i += zero ? 3 : 1;
    }
    return to;
}

static bool tok_json_vocab(tok_json_reader *r, const json_t *vocab) {
    const char *piece;
    json_t *value;
    if (!json_is_object(vocab)) return tok_json_error(r, "model", "\"vocab\" is no object", NULL);
    if (json_object_size(vocab) >= CT_MAX_IDS)
        return tok_json_error(r, "model", "\"vocab\" has more than 16777215 tokens", NULL);
    json_object_foreach((json_t *)(uintptr_t)vocab, piece, value) {
        int32_t id = -1;
        size_t n = strlen(piece);
        char *shown = NULL;
        if (!tok_json_id(r, "model", value, &id)) return false;
        if (r->zeros) {
            if (!(shown = ct__malloc(n + 1))) return ct__tokenizer_memory_error(r->t, r->err);
            memcpy(shown, piece, n);
            n = tok_json_restore_zero_bytes(shown, n);
        }
        bool ok = ct__lexicon_add(&r->t->model.vocab, shown ? shown : piece, n, id);
        ct__free(shown);
        if (!ok) return ct__tokenizer_memory_error(r->t, r->err);
    }
    return true;
}

// Parses the number as the reference library does, which is not always the nearest double: its
// digits as an integer, divided by a power of ten. This breaks ties between segmentations of equal
// score.
static double tok_json_score(double exact) {
    ct_text text = {0};
    ct__json_real(&text, exact);
    uint64_t digits = 0;
    int decimals = 0;
    bool point = false, plain = !text.failed;
    for (const char *s = text.s; plain && *s; s++) {
        if (*s == '.')
            point = true;
        else if (*s >= '0' && *s <= '9')
            digits = digits * 10 + (uint64_t)(*s - '0'), decimals += point;
        else if (*s != '-')
            plain = false;
    }
    ct__text_free(&text);
    if (!plain || decimals > 22) return exact;
    double value = (double)digits / pow(10, decimals);
    return exact < 0 ? -value : value;
}

// A merge is "a b", or ["a", "b"].
static bool tok_json_merge_parts(const json_t *merge, ct_token_text parts[2]) {
    const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
    if (json_is_string(a) && json_is_string(b)) {
        parts[0] = (ct_token_text){json_string_value(a), json_string_length(a)};
        parts[1] = (ct_token_text){json_string_value(b), json_string_length(b)};
        return json_array_size(merge) == 2;
    }
    const char *s = json_string_value(merge), *space = s ? strchr(s, ' ') : NULL;
    if (!space || strchr(space + 1, ' ')) return false;
    parts[0] = (ct_token_text){s, (size_t)(space - s)};
    parts[1] = (ct_token_text){space + 1, strlen(space + 1)};
    return true;
}

static bool tok_json_merges(tok_json_reader *r, const json_t *merges) {
    ct_model *m = &r->t->model;
    size_t n = json_array_size(merges), cap = 0;
    if (!json_is_array(merges)) return tok_json_error(r, "model", "\"merges\" is no list", NULL);
    ct_merge_rule *v = ct__malloc((n + 1) * sizeof *v);
    char *joined = NULL;
    bool ok = v || ct__tokenizer_memory_error(r->t, r->err);
    for (size_t i = 0; i < n && ok; i++) {
        ct_token_text x[2];
        if (!tok_json_merge_parts(json_array_get(merges, i), x)) {
            ok = ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->t->label,
                         "model: merge %zu of %zu is no pair of tokens", i + 1, n);
            break;
        }
        size_t drop = m->prefix_n < x[1].n ? m->prefix_n : x[1].n;
        if (!CT_GROW(joined, cap, x[0].n + x[1].n + 1)) {
            ok = ct__tokenizer_memory_error(r->t, r->err);
            break;
        }
        memcpy(joined, x[0].s, x[0].n);
        memcpy(joined + x[0].n, x[1].s + drop, x[1].n - drop);
        size_t joined_n = x[0].n + x[1].n - drop;
        v[i] = (ct_merge_rule){ct__lexicon_id(&m->vocab, x[0].s, x[0].n),
                               ct__lexicon_id(&m->vocab, x[1].s, x[1].n),
                               ct__lexicon_id(&m->vocab, joined, joined_n), (uint32_t)i};
        if (v[i].left >= 0 && v[i].right >= 0 && v[i].id >= 0) continue;
        ct_token_text missing = v[i].left < 0    ? x[0]
                                : v[i].right < 0 ? x[1]
                                                 : (ct_token_text){joined, joined_n};
        char shown[CT_PRINTABLE];
        ok = ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->t->label,
                     "model: merge %zu of %zu has \"%s\", which is in no vocabulary", i + 1, n,
                     ct__printable(missing.s, missing.n, shown, sizeof shown));
    }
    ok = ok && ct__bpe_set_merges(r->t, v, n, r->err);
    ct__free(v);
    ct__free(joined);
    return ok;
}

static bool tok_json_bpe(tok_json_reader *r, const json_t *of) {
    ct_model *m = &r->t->model;
    double dropout = json_number_value(json_object_get(of, "dropout"));
    if (dropout != 0)
        return ct__err(r->err, CT_E_UNSUPPORTED, CT_NOWHERE, r->t->label,
                       "model: dropout is %g: its tokens would be drawn at random", dropout);
    m->kind = CT_MODEL_BPE;
    m->fuse_unk = tok_json_flag(of, "fuse_unk", false);
    m->byte_fallback = tok_json_flag(of, "byte_fallback", false);
    m->ignore_merges = tok_json_flag(of, "ignore_merges", false);
    if (!tok_json_string(r, "model", of, "continuing_subword_prefix", false, &m->prefix,
                         &m->prefix_n) ||
        !tok_json_string(r, "model", of, "end_of_word_suffix", false, &m->suffix, &m->suffix_n))
        return false;
    if (!tok_json_vocab(r, json_object_get(of, "vocab"))) return false;
    ct__model_find_byte_tokens(m);
    return tok_json_merges(r, json_object_get(of, "merges"));
}

static bool tok_json_unigram(tok_json_reader *r, const json_t *of) {
    ct_model *m = &r->t->model;
    const json_t *vocab = json_object_get(of, "vocab"), *unk = json_object_get(of, "unk_id");
    size_t n = json_array_size(vocab);
    m->kind = CT_MODEL_UNIGRAM;
    m->byte_fallback = tok_json_flag(of, "byte_fallback", false);
    if (!n || n >= CT_MAX_IDS)
        return tok_json_error(r, "model", "\"vocab\" is no list of 1 to 16777215 pairs", NULL);
    if (!(m->scores = ct__arena(&r->t->arena, n * sizeof *m->scores)))
        return ct__tokenizer_memory_error(r->t, r->err);
    double min_score = INFINITY;
    for (size_t i = 0; i < n; i++) {
        const json_t *pair = json_array_get(vocab, i), *piece = json_array_get(pair, 0),
                     *score = json_array_get(pair, 1);
        if (!json_is_string(piece) || !json_is_number(score) || json_array_size(pair) != 2)
            return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->t->label,
                           "model: token %zu of %zu is no pair of a text and a score", i, n);
        m->scores[i] = tok_json_score(json_number_value(score));
        if (m->scores[i] < min_score) min_score = m->scores[i];
        if (!ct__lexicon_add(&m->vocab, json_string_value(piece), json_string_length(piece),
                             (int32_t)i))
            return ct__tokenizer_memory_error(r->t, r->err);
    }
    m->unk_score = min_score - 10;
    ct__model_find_byte_tokens(m);
    if (!unk || json_is_null(unk)) return true;
    if (!tok_json_id(r, "model", unk, &m->unk)) return false;
    if ((size_t)m->unk < n) return true;
    return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->t->label,
                   "model: unk_id is %d, and there are %zu tokens", m->unk, n);
}

// A model without a type is recognized by its members.
static const char *tok_json_model_type(const json_t *of) {
    const char *type = json_string_value(json_object_get(of, "type"));
    if (type) return type;
    if (json_object_get(of, "merges")) return "BPE";
    if (json_object_get(of, "max_input_chars_per_word")) return "WordPiece";
    return json_is_array(json_object_get(of, "vocab")) ? "Unigram" : "WordLevel";
}

static bool tok_json_model(tok_json_reader *r, const json_t *of) {
    ct_model *m = &r->t->model;
    const char *type = tok_json_model_type(of), *unk;
    size_t unk_n;
    bool wordpiece = !strcmp(type, "WordPiece");
    if (!json_is_object(of)) return tok_json_error(r, "model", "there is none", NULL);
    if (!strcmp(type, "Unigram")) return tok_json_unigram(r, of);
    if (!strcmp(type, "BPE")) {
        if (!tok_json_bpe(r, of)) return false;
    } else if (wordpiece || !strcmp(type, "WordLevel")) {
        m->kind = wordpiece ? CT_MODEL_WORDPIECE : CT_MODEL_WORDLEVEL;
        if (!tok_json_vocab(r, json_object_get(of, "vocab")) ||
            (wordpiece && !tok_json_string(r, "model", of, "continuing_subword_prefix", true,
                                           &m->prefix, &m->prefix_n)) ||
            !tok_json_count(r, "model", of, "max_input_chars_per_word", 100, &m->max_word_chars))
            return false;
    } else {
        return tok_json_error(r, "model", "this type is not known", type);
    }
    if (!tok_json_string(r, "model", of, "unk_token", false, &unk, &unk_n)) return false;
    if (unk) m->unk = ct__lexicon_id(&m->vocab, unk, unk_n);
    return true;
}

static bool tok_json_added_tokens(tok_json_reader *r, const json_t *list) {
    if (!list || json_is_null(list)) return true;
    if (!json_is_array(list)) return tok_json_error(r, "added_tokens", "it is no list", NULL);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *of = json_array_get(list, i);
        ct_added a = {.special = tok_json_flag(of, "special", false)};
        a.normalized = tok_json_flag(of, "normalized", !a.special);
        a.single_word = tok_json_flag(of, "single_word", false);
        a.lstrip = tok_json_flag(of, "lstrip", false);
        a.rstrip = tok_json_flag(of, "rstrip", false);
        if (!tok_json_string(r, "added_tokens", of, "content", true, &a.text, &a.n) ||
            !tok_json_id(r, "added_tokens", json_object_get(of, "id"), &a.id))
            return false;
        int32_t known = ct__lexicon_id(&r->t->model.vocab, a.text, a.n);
        if (known >= 0) a.id = known;
        if (a.n && !ct__tokenizer_add_token(r->t, &a, r->err)) return false;
    }
    return true;
}

bool ct__tokenizer_read_json(ct_tokenizer *t, char *text, size_t n, ct_err *err) {
    tok_json_reader r = {t, err, tok_json_hide_zero_bytes(text, n)};
    json_error_t where;
    char shown[JSON_ERROR_TEXT_LENGTH];
    json_t *root = ct__json_read(text, n, JSON_ALLOW_NUL, &where);
    if (!root)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, t->label, "not JSON: line %d, column %d: %s",
                       where.line, where.column,
                       ct__printable(where.text, strlen(where.text), shown, sizeof shown));
    const tok_section sections[] = {
        {"normalizer", "normalizers", &t->normalizers, tok_json_normalizer},
        {"pre_tokenizer", "pretokenizers", &t->pretokenizers, tok_json_pretokenizer},
        {"post_processor", "processors", &t->processors, tok_json_processor},
        {"decoder", "decoders", &t->decoders, tok_json_decoder}};
    bool ok = tok_json_model(&r, json_object_get(root, "model")) &&
              tok_json_added_tokens(&r, json_object_get(root, "added_tokens"));
    for (int i = 0; i < 4 && ok; i++)
        ok = tok_json_steps(&r, &sections[i], json_object_get(root, sections[i].name));
    if (ok && !t->decoders.n) ok = ct__step_add(t, &t->decoders, CT_STEP_JOIN, err) != NULL;
    json_decref(root);
    return ok;
}
