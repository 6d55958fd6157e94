// tiktoken's files, and the patterns and special tokens of its named encodings.
#include <stdio.h>
#include <string.h>

#include "text/ranks.h"

#define SUFFIXES "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPER "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

const char ct__gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
static const char tiktoken_cl100k_pattern[] =
    SUFFIXES "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES;
static const char tiktoken_qwen2_pattern[] =
    SUFFIXES "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES;
static const char tiktoken_o200k_pattern[] =
    "[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]*[" LOWER "]+" SUFFIXES "?|[^\\r\\n\\p{L}\\p{N}]?[" UPPER
    "]+[" LOWER "]*" SUFFIXES "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES;

const char *ct__pattern_by_name(const char *name) {
    static const struct {
        const char *name, *pattern;
    } known[] = {{"gpt2", ct__gpt2_pattern},          {"r50k", ct__gpt2_pattern},
                 {"p50k", ct__gpt2_pattern},          {"cl100k", tiktoken_cl100k_pattern},
                 {"llama3", tiktoken_cl100k_pattern}, {"o200k", tiktoken_o200k_pattern},
                 {"qwen2", tiktoken_qwen2_pattern}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strncmp(name, known[i].name, strlen(known[i].name))) return known[i].pattern;
    return NULL;
}

bool ct__tokenizer_add_split(ct_tokenizer *t, const char *pattern, ct_err *err) {
    ct_step *s = ct__step_add(t, &t->pretokenizers, CT_STEP_SPLIT, err);
    if (!s) return false;
    s->behavior = CT_ISOLATED;
    s->pattern = ct__regex_new(t->label, pattern, strlen(pattern), CT_TIKTOKEN, err);
    return s->pattern != NULL;
}

bool ct__tokenizer_add_template(ct_tokenizer *t, int64_t bos, int64_t eos, ct_err *err) {
    int32_t *ids = ct__arena(&t->arena, 2 * sizeof *ids);
    ct_step *s = ids ? ct__step_add(t, &t->processors, CT_STEP_TEMPLATE, err) : NULL;
    if (!s) return err->code ? false : ct__tokenizer_memory_error(t, err);
    ids[0] = (int32_t)bos, ids[1] = (int32_t)eos;
    s->before = ids, s->n_before = bos >= 0;
    s->after = ids + 1, s->n_after = eos >= 0;
    return true;
}

int64_t ct__base64(const char *s, size_t n, unsigned char *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t size = 0;
    uint32_t bits = 0;
    int have = 0;
    for (int pads = 0; pads < 2 && n && s[n - 1] == '='; pads++) n--;
    for (size_t i = 0; i < n; i++) {
        const char *found = s[i] ? strchr(digits, s[i]) : NULL;
        if (!found) return -1;
        bits = bits << 6 | (uint32_t)(found - digits);
        have += 6;
        if (have < 8) continue;
        have -= 8;
        out[size++] = (unsigned char)(bits >> have);
        bits &= (1u << have) - 1;
    }
    return n % 4 == 1 ? -1 : (int64_t)size;
}

static bool tiktoken_line_error(ct_tokenizer *t, size_t line, const char *what, ct_err *err) {
    return ct__err(err, CT_E_FORMAT, CT_NOWHERE, t->label, "tiktoken: line %zu %s", line, what);
}

static bool tiktoken_read_line(ct_tokenizer *t, const char *s, size_t n, size_t line, ct_err *err) {
    const char *space = memchr(s, ' ', n);
    uint64_t rank = 0;
    size_t token = space ? (size_t)(space - s) : 0, k = token + 1;
    if (!token || k >= n || n > 1 << 16)
        return tiktoken_line_error(t, line, "is no token and a rank", err);
    for (; k < n && s[k] >= '0' && s[k] <= '9' && rank < CT_MAX_IDS; k++)
        rank = rank * 10 + (uint64_t)(s[k] - '0');
    if (k < n || rank >= CT_MAX_IDS)
        return tiktoken_line_error(t, line, "has a rank that is no number from 0 to 16777215", err);
    unsigned char *bytes = ct__malloc(token);
    if (!bytes) return ct__tokenizer_memory_error(t, err);
    int64_t size = ct__base64(s, token, bytes);
    bool ok = size > 0 || tiktoken_line_error(t, line, "has a token that is not base64", err);
    if (ok && ct__lexicon_id(&t->model.vocab, (char *)bytes, (size_t)size) >= 0)
        ok = tiktoken_line_error(t, line, "has a token that was there before", err);
    if (ok && ct__lexicon_text(&t->model.vocab, (int64_t)rank, NULL))
        ok = tiktoken_line_error(t, line, "has a rank that was there before", err);
    if (ok && !ct__lexicon_add(&t->model.vocab, (char *)bytes, (size_t)size, (int32_t)rank))
        ok = ct__tokenizer_memory_error(t, err);
    ct__free(bytes);
    return ok;
}

static bool tiktoken_read_ranks(ct_tokenizer *t, const char *text, size_t n, ct_err *err) {
    ct_model *m = &t->model;
    size_t line = 1;
    for (size_t i = 0; i < n; line++) {
        const char *end = memchr(text + i, '\n', n - i);
        size_t length = end ? (size_t)(end - text) - i : n - i, line_n = length;
        if (length && text[i + length - 1] == '\r') length--;
        if (length && !tiktoken_read_line(t, text + i, length, line, err)) return false;
        i += line_n + 1;
    }
    m->kind = CT_MODEL_BPE;
    m->bytes = m->raw_bytes = m->ignore_merges = true;
    for (int i = 0; i < 256; i++) {
        char byte = (char)i;
        m->byte_ids[i] = ct__lexicon_id(&m->vocab, &byte, 1);
        if (m->byte_ids[i] < 0)
            return ct__err(err, CT_E_FORMAT, CT_NOWHERE, t->label,
                           "tiktoken: there is no token of the single byte 0x%02x", (unsigned)i);
    }
    uint32_t *ranks = ct__malloc((m->vocab.n_ids + 1) * sizeof *ranks);
    if (!ranks) return ct__tokenizer_memory_error(t, err);
    for (size_t i = 0; i < m->vocab.n_ids; i++) ranks[i] = (uint32_t)i;
    bool ok = ct__bpe_set_merges_by_rank(t, ranks, err);
    ct__free(ranks);
    return ok;
}

static bool tiktoken_add_special(ct_tokenizer *t, const char *text, int64_t id, ct_err *err) {
    size_t n = strlen(text);
    ct_added a = {.text = ct__tokenizer_copy_string(t, text, n, err),
                  .n = n,
                  .id = (int32_t)id,
                  .special = true};
    return a.text && (!n || ct__tokenizer_add_token(t, &a, err));
}

// Adds Llama 3's 256 special tokens, most of which are reserved.
static bool tiktoken_add_llama3(ct_tokenizer *t, int64_t first, ct_err *err) {
    static const struct {
        int at;
        const char *name;
    } named[] = {
        {0, "<|begin_of_text|>"},   {1, "<|end_of_text|>"},   {4, "<|finetune_right_pad_id|>"},
        {6, "<|start_header_id|>"}, {7, "<|end_header_id|>"}, {8, "<|eom_id|>"},
        {9, "<|eot_id|>"},          {10, "<|python_tag|>"}};
    int reserved = 0;
    for (int i = 0; i < 256; i++) {
        char name[48];
        const char *is = NULL;
        for (size_t k = 0; k < sizeof named / sizeof *named; k++)
            if (named[k].at == i) is = named[k].name;
        if (!is) snprintf(name, sizeof name, "<|reserved_special_token_%d|>", reserved++);
        if (!tiktoken_add_special(t, is ? is : name, first + i, err)) return false;
    }
    t->special[CT_BOS] = first, t->special[CT_EOS] = first + 1;
    return ct__tokenizer_add_template(t, first, -1, err);
}

static bool tiktoken_add_named_specials(ct_tokenizer *t, const char *name, ct_err *err) {
    static const struct {
        const char *name, *text;
        int64_t id;
    } known[] = {{"gpt2", "<|endoftext|>", 50256},     {"r50k", "<|endoftext|>", 50256},
                 {"p50k", "<|endoftext|>", 50256},     {"cl100k", "<|endoftext|>", 100257},
                 {"cl100k", "<|fim_prefix|>", 100258}, {"cl100k", "<|fim_middle|>", 100259},
                 {"cl100k", "<|fim_suffix|>", 100260}, {"cl100k", "<|endofprompt|>", 100276},
                 {"o200k", "<|endoftext|>", 199999},   {"o200k", "<|endofprompt|>", 200018}};
    if (!strncmp(name, "llama3", 6))
        return tiktoken_add_llama3(t, (int64_t)t->model.vocab.n_ids, err);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strncmp(name, known[i].name, strlen(known[i].name))) continue;
        if (!tiktoken_add_special(t, known[i].text, known[i].id, err)) return false;
        if (!strcmp(known[i].text, "<|endoftext|>")) t->special[CT_EOS] = known[i].id;
    }
    return true;
}

bool ct__tokenizer_read_tiktoken(ct_tokenizer *t, const char *text, size_t n,
                                 const ct_tiktoken_options *options, ct_err *err) {
    const char *slash = strrchr(t->label, '/'), *name = options->name ? options->name
                                                        : slash       ? slash + 1
                                                                      : t->label;
    const char *pattern = options->pattern ? options->pattern : ct__pattern_by_name(name);
    if (!pattern) {
        char shown[CT_PRINTABLE];
        ct__err(err, CT_E_ARGUMENT, CT_NOWHERE, t->label, "no encoding is called \"%s\"",
                ct__printable(name, strlen(name), shown, sizeof shown));
        return ct__err_hint(err,
                            "known are gpt2, r50k, p50k, cl100k, o200k and llama3; others need a "
                            "pattern and special tokens");
    }
    if (!tiktoken_read_ranks(t, text, n, err) || !ct__tokenizer_add_split(t, pattern, err) ||
        !ct__step_add(t, &t->decoders, CT_STEP_RAW, err))
        return false;
    int64_t next = (int64_t)t->model.vocab.n_ids;
    for (const char *const *s = options->specials; s && *s; s++)
        if (!tiktoken_add_special(t, *s, next++, err)) return false;
    return options->pattern || options->specials || tiktoken_add_named_specials(t, name, err);
}
