// Builds a tokenizer from the vocabulary of a GGUF file.
#include <stdio.h>
#include <string.h>

#include "text/ranks.h"

static bool vocab_error(ct_tokenizer *t, const char *what, size_t i, size_t n, ct_err *err) {
    return ct__err(err, CT_E_FORMAT, CT_NOWHERE, t->label, "%s %zu of %zu", what, i, n);
}

enum { MAX_TOKEN_TYPE = 6 }; // 0: not specified

static bool vocab_read_tokens(ct_tokenizer *t, const ct_gguf_vocab *v, ct_err *err) {
    if (v->n == 0 || v->n >= CT_MAX_IDS)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, t->label,
                       "there are %zu tokens, not 1 to 16777215", v->n);
    for (size_t i = 0; i < v->n; i++) {
        size_t length = v->tokens[i] ? v->lengths ? v->lengths[i] : strlen(v->tokens[i]) : 0;
        if (ct__utf8_bad(v->tokens[i] ? v->tokens[i] : "", length) < length)
            return vocab_error(t, "no UTF-8 is token", i, v->n, err);
        if (v->types && (v->types[i] < 0 || v->types[i] > MAX_TOKEN_TYPE))
            return vocab_error(t, "a type that is not 0 to 6 has token", i, v->n, err);
        // Of equal tokens the first is found by its text; the others get a unique placeholder.
        bool is_duplicate = length && ct__lexicon_id(&t->model.vocab, v->tokens[i], length) >= 0;
        char placeholder[32];
        if (is_duplicate || !length) snprintf(placeholder, sizeof placeholder, "[token %zu]", i);
        if (!ct__lexicon_add(&t->model.vocab, is_duplicate || !length ? placeholder : v->tokens[i],
                             is_duplicate || !length ? strlen(placeholder) : length, (int32_t)i))
            return ct__tokenizer_memory_error(t, err);
    }
    const int64_t *ids[] = {&v->bos, &v->eos, &v->unk, &v->pad};
    const ct_token_role which[] = {CT_BOS, CT_EOS, CT_UNK, CT_PAD};
    for (int i = 0; i < 4; i++) {
        if (*ids[i] >= (int64_t)v->n)
            return ct__err(err, CT_E_FORMAT, CT_NOWHERE, t->label,
                           "a special token has id %lld, and there are %zu tokens",
                           (long long)*ids[i], v->n);
        t->special[which[i]] = *ids[i] < 0 ? -1 : *ids[i];
    }
    return true;
}

static int vocab_token_type(const ct_gguf_vocab *v, size_t i) { return v->types ? v->types[i] : 1; }

// Adds control, user-defined and unknown tokens, which are recognized in text.
static bool vocab_add_specials(ct_tokenizer *t, const ct_gguf_vocab *v, ct_err *err) {
    for (size_t i = 0; i < v->n; i++) {
        int type = vocab_token_type(v, i);
        size_t n;
        const char *s = ct__lexicon_text(&t->model.vocab, (int64_t)i, &n);
        if (type < 2 || type > 4) continue;
        ct_added a = {.text = ct__tokenizer_copy_string(t, s, n, err),
                      .n = n,
                      .id = (int32_t)i,
                      .special = type != 4};
        if (!a.text || !ct__tokenizer_add_token(t, &a, err)) return false;
    }
    return true;
}

// Pre-tokenizers that split as a named encoding does.
typedef struct gguf_pre_tokenizer {
    const char *pre, *name;
    // ignore_merges: words that are tokens are not merged; bos: a text begins with BOS unless the
    // file says otherwise
    bool ignore_merges, bos;
} gguf_pre_tokenizer;
static const gguf_pre_tokenizer *vocab_find_pre_tokenizer(const char *pre) {
    static const gguf_pre_tokenizer all[] = {{"llama-bpe", "llama3", true, true},
                                             {"llama3", "llama3", true, true},
                                             {"llama-v3", "llama3", true, true},
                                             {"falcon3", "llama3", true, true},
                                             {"falcon-h1", "llama3", true, true},
                                             {"pixtral", "llama3", true, true},
                                             {"midm-2.0", "llama3", true, true},
                                             {"lfm2", "llama3", true, true},
                                             {"dbrx", "cl100k", false, false},
                                             {"smaug-bpe", "cl100k", false, false},
                                             {"chatglm-bpe", "cl100k", false, false},
                                             {"glm4", "cl100k", true, false},
                                             {"qwen2", "qwen2", false, false},
                                             {"stablelm2", "qwen2", false, false},
                                             {"deepseek-r1-qwen", "qwen2", false, false},
                                             {"megrez", "qwen2", false, false},
                                             {"hunyuan", "qwen2", false, false},
                                             {"solar-open", "qwen2", false, false},
                                             {"gpt-4o", "o200k", false, false},
                                             {"llama4", "o200k", false, false},
                                             {"kanana2", "o200k", false, false}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(pre, all[i].pre)) return &all[i];
    return NULL;
}

// Adds the splits of tokenizer.ggml.pre: patterns that are applied one after the other.
static bool vocab_add_splits(ct_tokenizer *t, const char *pre, ct_err *err) {
    static const char digits[] = "\\p{N}", three[] = "\\p{N}{1,3}";
    static const char tekken[] =
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
        "\\p{N}|"
        " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    static const struct {
        const char *pre, *patterns[5];
    } known[] = {
        {"default",
         {"[\\p{P}\\$\\+<=>\\^~\\|]+", ct__gpt2_pattern, "\\p{N}+", "[0-9][0-9][0-9]", NULL}},
        {"gpt-2", {ct__gpt2_pattern}},
        {"mpt", {ct__gpt2_pattern}},
        {"olmo", {ct__gpt2_pattern}},
        {"phi-2", {ct__gpt2_pattern}},
        {"jais", {ct__gpt2_pattern}},
        {"roberta-bpe", {ct__gpt2_pattern}},
        {"gigachat", {ct__gpt2_pattern}},
        {"exaone4", {ct__gpt2_pattern}},
        {"mellum", {ct__gpt2_pattern}},
        {"trillion", {ct__gpt2_pattern}},
        {"granite-docling", {ct__gpt2_pattern}},
        {"starcoder", {digits, ct__gpt2_pattern}},
        {"refact", {digits, ct__gpt2_pattern}},
        {"command-r", {digits, ct__gpt2_pattern}},
        {"smollm", {digits, ct__gpt2_pattern}},
        {"codeshell", {digits, ct__gpt2_pattern}},
        {"exaone", {digits, ct__gpt2_pattern}},
        {"minerva-7b", {digits, ct__gpt2_pattern}},
        {"tekken", {tekken}},
        {"falcon", {"[\\p{P}\\$\\+<=>\\^~\\|`]+", ct__gpt2_pattern, "[0-9][0-9][0-9]"}},
        {"deepseek-coder",
         {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+",
          "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+", digits}},
        {"deepseek-v3",
         {three, "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",
          "[!\"#$%&'()*+,\\-./"
          ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
          "?[\\p{P}\\p{S}]+[\\r\\n]*|"
          "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(pre, known[i].pre)) continue;
        for (size_t k = 0; k < 5 && known[i].patterns[k]; k++)
            if (!ct__tokenizer_add_split(t, known[i].patterns[k], err)) return false;
        return true;
    }
    const gguf_pre_tokenizer *l = vocab_find_pre_tokenizer(pre);
    if (l) return ct__tokenizer_add_split(t, ct__pattern_by_name(l->name), err);
    char shown[CT_PRINTABLE];
    return ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, t->label,
                   "tokenizer.ggml.pre is \"%s\", an unknown pre-tokenizer",
                   ct__printable(pre, strlen(pre), shown, sizeof shown));
}

static bool vocab_read_merges(ct_tokenizer *t, const ct_gguf_vocab *v, ct_err *err) {
    const ct_lexicon *vocab = &t->model.vocab;
    ct_merge_rule *all = ct__malloc((v->n_merges + 1) * sizeof *all);
    char *joined = NULL;
    size_t cap = 0;
    bool ok = all || ct__tokenizer_memory_error(t, err);
    for (size_t i = 0; i < v->n_merges && ok; i++) {
        const char *s = v->merges ? v->merges[i] : NULL,
                   *space = s && *s ? strchr(s + 1, ' ') : NULL;
        size_t n = s ? strlen(s) : 0, left = space ? (size_t)(space - s) : 0;
        if (!space || !CT_GROW(joined, cap, n)) {
            ok = space ? ct__tokenizer_memory_error(t, err)
                       : vocab_error(t, "no pair of tokens is merge", i, v->n_merges, err);
            break;
        }
        memcpy(joined, s, left);
        memcpy(joined + left, space + 1, n - left - 1);
        all[i] = (ct_merge_rule){ct__lexicon_id(vocab, s, left),
                                 ct__lexicon_id(vocab, space + 1, n - left - 1),
                                 ct__lexicon_id(vocab, joined, n - 1), (uint32_t)i};
        if (all[i].left < 0 || all[i].right < 0 || all[i].id < 0)
            ok = vocab_error(t, "tokens that are not there has merge", i, v->n_merges, err);
    }
    ok = ok && ct__bpe_set_merges(t, all, v->n_merges, err);
    ct__free(all);
    ct__free(joined);
    return ok;
}

static bool vocab_read_gpt2(ct_tokenizer *t, const ct_gguf_vocab *v, ct_err *err) {
    const char *pre = v->pre ? v->pre : "default";
    t->model.kind = CT_MODEL_BPE;
    const gguf_pre_tokenizer *l = vocab_find_pre_tokenizer(pre);
    t->model.ignore_merges = (l && l->ignore_merges) || !strcmp(pre, "tekken");
    return vocab_add_specials(t, v, err) && vocab_add_splits(t, pre, err) &&
           ct__step_add(t, &t->pretokenizers, CT_STEP_BYTES, err) &&
           ct__step_add(t, &t->decoders, CT_STEP_BYTES, err) && vocab_read_merges(t, v, err);
}

// "llama": SentencePiece's BPE by scores; "t5": its Unigram.
static bool vocab_read_sentencepiece(ct_tokenizer *t, const ct_gguf_vocab *v, bool unigram,
                                     ct_err *err) {
    ct_step *normalizer = ct__step_add(t, &t->normalizers, CT_STEP_SENTENCEPIECE, err);
    ct_step *decoder = ct__step_add(t, &t->decoders, CT_STEP_SENTENCEPIECE_TEXT, err);
    ct_pieces p = {.merge_all_types = !unigram, .match_in_text = true};
    if (!normalizer || !decoder) return false;
    if (!v->scores)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, t->label,
                       "the tokens have no scores (tokenizer.ggml.scores)");
    normalizer->escape = decoder->escape = true;
    normalizer->dummy_prefix = decoder->dummy_prefix = v->add_space_prefix != 0;
    normalizer->remove_extra_spaces =
        v->remove_extra_whitespaces < 0 ? unigram : v->remove_extra_whitespaces > 0;
    if (v->charsmap_n && v->charsmap &&
        !ct__charsmap_read(t->label, v->charsmap, v->charsmap_n, &t->arena, &normalizer->map, err))
        return false;
    t->model.kind = unigram ? CT_MODEL_UNIGRAM : CT_MODEL_BPE;
    t->model.unk = (int32_t)t->special[CT_UNK];
    if (!unigram && t->model.unk < 0) t->model.unk = 0;
    p.scores = ct__arena(&t->arena, v->n * sizeof *p.scores);
    p.types = ct__arena(&t->arena, v->n);
    if (!p.scores || !p.types) return ct__tokenizer_memory_error(t, err);
    for (size_t i = 0; i < v->n; i++) {
        int type = vocab_token_type(v, i);
        if (!(v->scores[i] - v->scores[i] == 0))
            return vocab_error(t, "no finite score has token", i, v->n, err);
        p.scores[i] = v->scores[i];
        p.types[i] = (unsigned char)(type < 1 || type > 6 ? 1 : type);
        t->model.byte_fallback |= type == 6;
    }
    return ct__pieces_build_model(t, &p, err);
}

// "bert": words begin with U+2581 where the original has no prefix, and continue without ##.
static bool vocab_read_bert(ct_tokenizer *t, const ct_gguf_vocab *v, ct_err *err) {
    ct_step *normalizer = ct__step_add(t, &t->normalizers, CT_STEP_BERT, err);
    if (!normalizer || !ct__step_add(t, &t->pretokenizers, CT_STEP_BERT_SPLIT, err)) return false;
    normalizer->clean = normalizer->chinese = normalizer->accents = normalizer->lower = true;
    ct_step *mark = ct__step_add(t, &t->pretokenizers, CT_STEP_METASPACE, err);
    if (!mark || !ct__step_add(t, &t->decoders, CT_STEP_GGML_WORDS, err)) return false;
    mark->text = "\xe2\x96\x81", mark->text_n = 3;
    t->model.kind = CT_MODEL_WORDPIECE;
    t->model.max_word_chars = UINT32_MAX;
    t->model.unk = (int32_t)t->special[CT_UNK];
    return vocab_add_specials(t, v, err);
}

bool ct__tokenizer_read_gguf(ct_tokenizer *t, const ct_gguf_vocab *v, ct_err *err) {
    if (!vocab_read_tokens(t, v, err)) return false;
    bool gpt2 = !strcmp(v->model, "gpt2"), llama = !strcmp(v->model, "llama"),
         t5 = !strcmp(v->model, "t5"), bert = !strcmp(v->model, "bert");
    if (!gpt2 && !llama && !t5 && !bert) {
        char shown[CT_PRINTABLE];
        return ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, t->label,
                       "tokenizer.ggml.model is \"%s\"; known are gpt2, llama, bert and t5",
                       ct__printable(v->model, strlen(v->model), shown, sizeof shown));
    }
    if (!(gpt2   ? vocab_read_gpt2(t, v, err)
          : bert ? vocab_read_bert(t, v, err)
                 : vocab_read_sentencepiece(t, v, t5, err)))
        return false;
    const gguf_pre_tokenizer *l = gpt2 && v->pre ? vocab_find_pre_tokenizer(v->pre) : NULL;
    const bool begins =
        llama || bert || (l && l->bos) || (gpt2 && v->pre && !strcmp(v->pre, "tekken"));
    bool bos = v->add_bos < 0 ? begins : v->add_bos, eos = v->add_eos < 0 ? t5 || bert : v->add_eos;
    return ct__tokenizer_add_template(t, bos ? t->special[CT_BOS] : -1,
                                      eos ? t->special[CT_EOS] : -1, err);
}
