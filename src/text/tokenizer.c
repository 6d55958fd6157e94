// Tokenizers: construction, lookup, and the public functions.
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/os.h"
#include "base/text.h"
#include "graph/graph.h"
#include "io/weights.h"
#include "text/alphabet.h"
#include "text/gguf.h"

enum { MAX_PATH = 4096 };

// ------------------------------------------------------------------------------------ construction

bool ct__tokenizer_memory_error(const ct_tokenizer *t, ct_err *err) {
    return ct__err_memory(err, CT_NOWHERE, t->label, t->arena.bytes);
}

ct_tokenizer *ct__tokenizer_new(const char *label, ct_err *err) {
    ct_tokenizer *t = ct__calloc(1, sizeof *t);
    char *copy = ct__strdup(label);
    if (!t || !copy) {
        ct__err_memory(err, CT_NOWHERE, label, sizeof *t);
        ct__free(t);
        ct__free(copy);
        return NULL;
    }
    t->label = copy;
    t->model.unk = -1;
    t->model.first_partial_id = INT32_MAX;
    memset(t->model.byte_ids, -1, sizeof t->model.byte_ids);
    for (int i = 0; i < CT_TOKEN_ROLES; i++) t->special[i] = -1;
    return t;
}

static void tokenizer_free_steps(ct_steps *steps) {
    for (size_t i = 0; i < steps->n; i++) {
        ct__regex_free(steps->v[i].pattern);
        if (steps->v[i].unchanged) ct__trie_free(steps->v[i].unchanged);
    }
    ct__free(steps->v);
}

void ct__tokenizer_free(ct_tokenizer *t) {
    if (!t) return;
    ct__work_free(t->work);
    tokenizer_free_steps(&t->normalizers);
    tokenizer_free_steps(&t->pretokenizers);
    tokenizer_free_steps(&t->processors);
    tokenizer_free_steps(&t->decoders);
    ct__lexicon_free(&t->model.vocab);
    ct__trie_free(&t->model.trie);
    ct__free(t->model.merges);
    ct__lexicon_free(&t->added_vocab);
    ct__trie_free(&t->added_trie);
    ct__trie_free(&t->added_normalized_trie);
    ct__regex_free(t->word_char_regex);
    ct__free(t->added);
    ct__free(t->eos_ids);
    ct__arena_free(&t->arena);
    ct__free(t->label);
    ct__free(t);
}

ct_step *ct__step_add(ct_tokenizer *t, ct_steps *steps, ct_step_kind kind, ct_err *err) {
    if (!CT_GROW(steps->v, steps->cap, steps->n + 1)) {
        ct__tokenizer_memory_error(t, err);
        return NULL;
    }
    ct_step *step = &steps->v[steps->n++];
    *step = (ct_step){.kind = kind};
    return step;
}

const char *ct__tokenizer_copy_string(ct_tokenizer *t, const char *s, size_t n, ct_err *err) {
    char *copy = ct__arena(&t->arena, n + 1);
    if (!copy) {
        ct__tokenizer_memory_error(t, err);
        return NULL;
    }
    memcpy(copy, s, n);
    copy[n] = '\0';
    return copy;
}

bool ct__tokenizer_add_token(ct_tokenizer *t, const ct_added *added, ct_err *err) {
    if (!CT_GROW(t->added, t->added_cap, t->n_added + 1) ||
        !ct__lexicon_add(&t->added_vocab, added->text, added->n, added->id))
        return ct__tokenizer_memory_error(t, err);
    t->added[t->n_added++] = *added;
    return true;
}

// Computes the text of an added token as it is once the text around it was normalized.
static bool tokenizer_normalize_added(ct_work *w, ct_added *a) {
    ct_tokenizer *t = (ct_tokenizer *)(uintptr_t)w->t;
    w->tracked = false;
    w->which = 0;
    w->view = (ct_view){a->text, NULL};
    w->n = (uint32_t)a->n;
    w->next.n = 0;
    if (!ct__work_add_split(w, 0, w->n, -1)) return false;
    ct__work_use_next(w);
    for (size_t i = 0; i < t->normalizers.n; i++)
        if (!ct__normalize(w, &t->normalizers.v[i])) return false;
    a->normal_n = w->n;
    a->normal = ct__tokenizer_copy_string(t, w->n ? w->view.s : "", w->n, w->err);
    return a->normal != NULL;
}

static bool tokenizer_finish_added(ct_tokenizer *t, ct_err *err) {
    ct_work *w = ct__calloc(1, sizeof *w);
    bool ok = w || ct__tokenizer_memory_error(t, err);
    t->n_added_ids = t->added_vocab.n_ids;
    t->added_by_id = ct__arena_zero(&t->arena, (t->n_added_ids + 1) * sizeof *t->added_by_id);
    if (ok && !t->added_by_id) ok = ct__tokenizer_memory_error(t, err);
    if (ok) *w = (ct_work){.t = t, .err = err};
    for (size_t i = 0; i < t->n_added && ok; i++) {
        ct_added *a = &t->added[i];
        if (!a->normal) a->normal = a->text, a->normal_n = a->n;
        if (a->normalized && !a->literal) ok = tokenizer_normalize_added(w, a);
        if (!ok) break;
        ct_trie *trie = a->normalized ? &t->added_normalized_trie : &t->added_trie;
        const char *needle = a->literal ? a->text : a->normal;
        size_t needle_n = a->literal ? a->n : a->normal_n;
        if (needle_n && !a->hidden && !ct__trie_add(trie, needle, needle_n, (int32_t)i))
            ok = ct__tokenizer_memory_error(t, err);
        t->added_by_id[a->id] = (int32_t)i + 1;
        if (ok && a->single_word && !t->word_char_regex)
            ok = (t->word_char_regex = ct__regex_new(t->label, "[\\w\\x{200c}\\x{200d}]", 20,
                                                     CT_ONIGURUMA, err)) != NULL;
    }
    ct__work_free(w);
    return ok;
}

// True if no token has a space after other text: then the words of a BPE can be tokenized one by
// one.
static bool tokenizer_spaces_begin_words(const ct_model *m) {
    if (m->kind != CT_MODEL_BPE || m->bytes || m->ignore_merges || m->prefix_n || m->suffix_n ||
        ct__lexicon_id(&m->vocab, "\xe2\x96\x81", 3) < 0)
        return false;
    for (size_t k = 0; k < m->vocab.n; k++) {
        const char *s = m->vocab.bytes + m->vocab.at[k];
        for (size_t i = 1; i + 3 <= m->vocab.lengths[k]; i++) {
            bool space = !memcmp(s + i, "\xe2\x96\x81", 3),
                 after = i >= 3 && !memcmp(s + i - 3, "\xe2\x96\x81", 3);
            if (space && !after) return false;
        }
    }
    return true;
}

// Lets the model take bytes directly, if the last pre-tokenizer converts bytes to characters only
// for the model and the vocabulary has all of these.
static void tokenizer_use_raw_bytes(ct_tokenizer *t) {
    ct_model *m = &t->model;
    ct_steps *pre = &t->pretokenizers;
    int32_t ids[256];
    if (m->kind != CT_MODEL_BPE || !pre->n || pre->v[pre->n - 1].kind != CT_STEP_BYTES ||
        m->prefix_n || m->suffix_n || m->byte_fallback)
        return;
    for (int i = 0; i < 256; i++) {
        char bytes[4];
        ids[i] = ct__lexicon_id(&m->vocab, bytes, ct__utf8_put(ct__byte_chars[i], bytes));
        if (ids[i] < 0) return;
    }
    memcpy(m->byte_ids, ids, sizeof ids);
    m->bytes = true;
    pre->n--;
}

static bool tokenizer_finish_model(ct_tokenizer *t, ct_err *err) {
    ct_model *m = &t->model;
    bool pieces = m->kind == CT_MODEL_UNIGRAM || m->kind == CT_MODEL_WORDPIECE;
    for (size_t k = 0; k < m->vocab.n && pieces && !m->trie_built; k++)
        if (m->vocab.lengths[k] && !ct__trie_add(&m->trie, m->vocab.bytes + m->vocab.at[k],
                                                 m->vocab.lengths[k], m->vocab.ids[k]))
            return ct__tokenizer_memory_error(t, err);
    if (pieces && !m->trie.n_nodes)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, t->label, "model: the vocabulary is empty");
    for (size_t i = 0; i < m->prefix_n && m->kind == CT_MODEL_WORDPIECE; i++) {
        m->prefix_node = ct__trie_step(&m->trie, m->prefix_node, (unsigned char)m->prefix[i]);
        if (!m->prefix_node) m->prefix_node = UINT32_MAX, i = m->prefix_n;
    }
    tokenizer_use_raw_bytes(t);
    m->space_starts_word = tokenizer_spaces_begin_words(m);
    return true;
}

bool ct__tokenizer_finish(ct_tokenizer *t, ct_err *err) {
    for (size_t i = 0; i < t->pretokenizers.n; i++) {
        const ct_step *step = &t->pretokenizers.v[i];
        t->needs_offsets |= step->kind == CT_STEP_METASPACE && step->scheme == CT_PREPEND_FIRST;
    }
    if (!tokenizer_finish_model(t, err) || !tokenizer_finish_added(t, err)) return false;
    size_t own = t->model.first_partial_id < INT32_MAX ? (size_t)t->model.first_partial_id
                                                       : t->model.vocab.n_ids;
    t->n_ids = (int64_t)(own > t->n_added_ids ? own : t->n_added_ids);
    return true;
}

const ct_pair_piece *ct__tokenizer_pair(const ct_tokenizer *t, size_t *n) {
    static const ct_pair_piece bare[] = {{CT_PAIR_FIRST, 0}, {CT_PAIR_SECOND, 1}};
    const ct_step *found = NULL;
    size_t templates = 0;
    for (size_t i = 0; i < t->processors.n; i++)
        if (t->processors.v[i].kind == CT_STEP_TEMPLATE) found = &t->processors.v[i], templates++;
    *n = found ? found->n_pair : 2;
    if (!found) return bare;
    return templates == 1 && *n ? found->pair : NULL;
}

// ----------------------------------------------------------------------------------------- loading

static bool tokenizer_read_file(ct_tokenizer *t, const char *path, ct_err *err) {
    char *bytes;
    size_t n;
    if (!ct__file_read(path, &bytes, &n, err)) return false;
    bool ok;
    // Llama 3's .model files are tiktoken's.
    if (ct__ends_with(path, ".model") && n && bytes[0] != '\n')
        ok =
            ct__tokenizer_read_tiktoken(t, bytes, n, &(ct_tiktoken_options){.name = "llama3"}, err);
    else if (ct__ends_with(path, ".model"))
        ok = ct__tokenizer_read_sentencepiece(t, bytes, n, err);
    else if (ct__ends_with(path, ".tiktoken"))
        ok = ct__tokenizer_read_tiktoken(t, bytes, n, &(ct_tiktoken_options){0}, err);
    else
        ok = ct__tokenizer_read_json(t, bytes, n, err);
    ct__free(bytes);
    return ok;
}

// The tokenizer file of a folder.
static bool tokenizer_has_file(const char *folder, char path[MAX_PATH]) {
    static const char *const names[] = {"tokenizer.json", "tokenizer.model", "spiece.model",
                                        "sentencepiece.bpe.model"};
    struct stat st;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (snprintf(path, MAX_PATH, "%s/%s", folder, names[i]) < MAX_PATH && stat(path, &st) == 0)
            return true;
    glob_t found = {0};
    bool one = snprintf(path, MAX_PATH, "%s/*.tiktoken", folder) < MAX_PATH &&
               glob(path, 0, NULL, &found) == 0 && found.gl_pathc == 1 &&
               snprintf(path, MAX_PATH, "%s", found.gl_pathv[0]) < MAX_PATH;
    globfree(&found);
    return one;
}
static bool tokenizer_find_file(const char *folder, char path[MAX_PATH], ct_err *err) {
    return tokenizer_has_file(folder, path) ||
           ct__err(err, CT_E_FILE, CT_NOWHERE, folder,
                   "the folder has no tokenizer: neither tokenizer.json, nor tokenizer.model, nor "
                   "a .tiktoken file");
}

static bool tokenizer_read_gguf_file(ct_tokenizer *t, const char *path, ct_err *err) {
    ct_gguf_file file;
    if (!ct__gguf_open(path, &file, err)) return false;
    const bool ok = ct__tokenizer_of_gguf(t, &file.gguf, err);
    ct__gguf_file_close(&file);
    return ok;
}

// A run whose tokens are bytes or characters describes them in its config.json.
static bool tokenizer_read_alphabet(ct_tokenizer *t, const char *folder, ct_err *err) {
    CT_TEXT json = {0};
    return ct__alphabet_of(folder, &json, err) && ct__tokenizer_read_json(t, json.s, json.n, err) &&
           ct__tokenizer_finish(t, err);
}

// A folder's own tokenizer files take precedence; without any, a GGUF model's metadata is used.
static bool tokenizer_load(ct_tokenizer *t, const char *path, ct_err *err) {
    char file[MAX_PATH];
    struct stat st;
    const bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    if (!(folder && tokenizer_has_file(path, file))) {
        if (!ct__weights_find_gguf(path, file, sizeof file, err)) return false;
        if (*file) return tokenizer_read_gguf_file(t, file, err);
        if (folder && tokenizer_read_alphabet(t, path, err)) return true;
        if (err->code) return false;
    }
    if (folder)
        return tokenizer_find_file(path, file, err) && tokenizer_read_file(t, file, err) &&
               (ct__ends_with(file, ".json") || ct__tokenizer_read_added(t, path, err)) &&
               ct__tokenizer_finish(t, err) && ct__tokenizer_read_specials(t, path, err);
    return tokenizer_read_file(t, path, err) && ct__tokenizer_finish(t, err);
}

ct_tokenizer *ct_tokenizer_load_at(const char *path, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, path, here, "tokenizer_load", "the path") || ctx->err.code)
        return NULL;
    ct_tokenizer *t = ct__tokenizer_new(path, &ctx->err);
    if (t && tokenizer_load(t, path, &ctx->err)) return t;
    ct__err_locate(&ctx->err, here, "tokenizer_load");
    ct__tokenizer_free(t);
    return NULL;
}

ct_tokenizer *ct_tokenizer_tiktoken_with(const char *path, ct_tiktoken_options options) {
    ct_ctx *ctx = ct__ctx();
    char *bytes = NULL;
    size_t n;
    if (!ctx || !ct__given(ctx, path, options.here, "tokenizer_tiktoken", "the path") ||
        ctx->err.code)
        return NULL;
    ct_tokenizer *t = ct__tokenizer_new(path, &ctx->err);
    bool ok = t && ct__file_read(path, &bytes, &n, &ctx->err) &&
              ct__tokenizer_read_tiktoken(t, bytes, n, &options, &ctx->err) &&
              ct__tokenizer_finish(t, &ctx->err);
    ct__free(bytes);
    if (ok) return t;
    ct__err_locate(&ctx->err, options.here, "tokenizer_tiktoken");
    ct__tokenizer_free(t);
    return NULL;
}

ct_tokenizer *ct_tokenizer_from_gguf_at(const ct_gguf_vocab *vocab, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, vocab, here, "tokenizer_from_gguf", "the vocabulary") ||
        !ct__given(ctx, vocab->model, here, "tokenizer_from_gguf", "the model's name") ||
        !ct__given(ctx, vocab->tokens, here, "tokenizer_from_gguf", "the list of tokens") ||
        ctx->err.code)
        return NULL;
    ct_tokenizer *t = ct__tokenizer_new("gguf", &ctx->err);
    if (t && ct__tokenizer_read_gguf(t, vocab, &ctx->err) && ct__tokenizer_finish(t, &ctx->err))
        return t;
    ct__err_locate(&ctx->err, here, "tokenizer_from_gguf");
    ct__tokenizer_free(t);
    return NULL;
}

void ct_tokenizer_free(ct_tokenizer *tokenizer) { ct__tokenizer_free(tokenizer); }

// -------------------------------------------------------------------------------------- vocabulary

static const ct_added *tokenizer_find_added(const ct_tokenizer *t, int64_t id) {
    bool known = id >= 0 && (uint64_t)id < t->n_added_ids && t->added_by_id[id];
    return known ? &t->added[t->added_by_id[id] - 1] : NULL;
}

int64_t ct_tokenizer_size(const ct_tokenizer *tokenizer) {
    return tokenizer ? tokenizer->n_ids : 0;
}

const char *ct_tokenizer_piece(const ct_tokenizer *tokenizer, int64_t id, size_t *n) {
    if (n) *n = 0;
    if (!tokenizer) return NULL;
    const ct_added *added = tokenizer_find_added(tokenizer, id);
    if (added && n) *n = added->n;
    if (added) return added->text;
    return id < tokenizer->model.first_partial_id ? ct__lexicon_text(&tokenizer->model.vocab, id, n)
                                                  : NULL;
}

int64_t ct_tokenizer_id(const ct_tokenizer *tokenizer, const char *piece, size_t n) {
    if (!tokenizer || !piece) return -1;
    int32_t id = ct__lexicon_id(&tokenizer->added_vocab, piece, n);
    if (id < 0) id = ct__lexicon_id(&tokenizer->model.vocab, piece, n);
    return id < tokenizer->model.first_partial_id ? id : -1;
}

bool ct_tokenizer_is_special(const ct_tokenizer *tokenizer, int64_t id) {
    const ct_added *added = tokenizer ? tokenizer_find_added(tokenizer, id) : NULL;
    return added && added->special;
}

int64_t ct_tokenizer_special(const ct_tokenizer *tokenizer, ct_token_role which) {
    if (!tokenizer || (int)which < 0 || which >= CT_TOKEN_ROLES) return -1;
    if (which == CT_UNK && tokenizer->special[which] < 0) return tokenizer->model.unk;
    return tokenizer->special[which];
}

size_t ct_tokenizer_eos_ids(const ct_tokenizer *tokenizer, int64_t *ids, size_t capacity) {
    if (!tokenizer) return 0;
    bool one = !tokenizer->n_eos_ids && tokenizer->special[CT_EOS] >= 0;
    size_t n = one ? 1 : tokenizer->n_eos_ids;
    for (size_t i = 0; ids && i < n && i < capacity; i++)
        ids[i] = one ? tokenizer->special[CT_EOS] : tokenizer->eos_ids[i];
    return n;
}

// ---------------------------------------------------------------------------------------- encoding

static bool encoding_reserve(ct_encoding *e, size_t n, bool offsets) {
    return CT_GROW(e->ids, e->capacity[0], n) &&
           (!offsets ||
            (CT_GROW(e->bytes, e->capacity[1], n) && CT_GROW(e->chars, e->capacity[2], n) &&
             CT_GROW(e->special_mask, e->capacity[3], n)));
}

// Counts the characters that begin before each byte, up to the n-th; invalid UTF-8 counts as the
// encoder reads it.
static bool encoding_count_chars(ct_work *w, const char *text, size_t n) {
    if (!CT_GROW(w->chars, w->chars_cap, n + 1)) return ct__tokenizer_memory_error(w->t, w->err);
    uint32_t count = 0;
    for (size_t i = 0, used; i < n; i += used, count++) {
        uint32_t cp;
        ct__utf8_next(text + i, n - i, &cp, &used);
        for (size_t k = i; k < i + used; k++) w->chars[k] = count;
    }
    w->chars[n] = count;
    return true;
}

static bool encoding_fill(ct_work *w, const char *text, size_t n, bool offsets, ct_encoding *e) {
    if (!encoding_reserve(e, w->n_tokens + 1, offsets) ||
        (offsets && !encoding_count_chars(w, text, n)))
        return w->err->code ? false : ct__tokenizer_memory_error(w->t, w->err);
    e->n = w->n_tokens;
    for (size_t i = 0; i < e->n; i++) {
        ct_token x = w->tokens[i];
        e->ids[i] = x.id;
        if (!offsets) continue;
        e->bytes[i] = (ct_token_span){x.begin, x.end};
        e->chars[i] = (ct_token_span){w->chars[x.begin], w->chars[x.end]};
        e->special_mask[i] = x.added;
    }
    return true;
}

// Bytes of a text up to which the workspace is kept for the next one.
enum { MAX_KEPT_TEXT = 256 << 10 };

bool ct_tokenizer_encode_with(const ct_tokenizer *tokenizer, const char *text, size_t n,
                              ct_encoding *encoding, ct_encode_options options) {
    ct_ctx *ctx = ct__ctx();
    static const char op[] = "tokenizer_encode";
    if (!ctx || ctx->err.code || !ct__given(ctx, tokenizer, options.here, op, "the tokenizer") ||
        !ct__given(ctx, encoding, options.here, op, "the encoding") ||
        (n && !ct__given(ctx, text, options.here, op, "the text")))
        return false;
    // Casts const away: the workspace is shared, and the first thread gets it.
    ct_tokenizer *t = (ct_tokenizer *)(uintptr_t)tokenizer;
    bool first = !atomic_flag_test_and_set(&t->work_in_use);
    ct_work *w = first ? t->work : NULL;
    if (!w) w = ct__calloc(1, sizeof *w);
    bool ok = w || ct__tokenizer_memory_error(t, &ctx->err);
    encoding->n = 0;
    if (w) {
        w->t = t;
        w->err = &ctx->err;
        ok = ct__work_encode(w, text ? text : "", n, &options) &&
             encoding_fill(w, text ? text : "", n, options.offsets, encoding);
    }
    // The workspace of a long text is freed: it is forty times the text, and the next text may be
    // short.
    const bool keeps_work = first && n <= MAX_KEPT_TEXT;
    if (first) t->work = keeps_work ? w : NULL;
    if (!keeps_work) ct__work_free(w);
    if (first) atomic_flag_clear(&t->work_in_use);
    return ok || ct__err_locate(&ctx->err, options.here, op);
}

void ct_encoding_free(ct_encoding *encoding) {
    if (!encoding) return;
    ct__free(encoding->ids);
    ct__free(encoding->bytes);
    ct__free(encoding->chars);
    ct__free(encoding->special_mask);
    *encoding = (ct_encoding){0};
}

// ---------------------------------------------------------------------------------------- decoding

// A character never has more tokens than this.
enum { MAX_HELD = 12 };

struct ct_decoder {
    const ct_tokenizer *t;
    bool skip_special;
    ct_token_texts words;
    ct_matcher matcher;
    ct_regex_matches matches;
    int32_t *ids;            // the tokens of the stream on which the text of the next one depends
    size_t n, cap, reported; // `reported` of them were written
    ct_text text, shown;
    ct_loc here;
};

ct_decoder *ct_decoder_new_at(const ct_tokenizer *tokenizer, bool skip_special, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || ctx->err.code || !ct__given(ctx, tokenizer, here, "decoder_new", "the tokenizer"))
        return NULL;
    ct_decoder *d = ct__calloc(1, sizeof *d);
    if (!d) return ct__null_memory(&ctx->err, here, "decoder_new", sizeof *d);
    d->t = tokenizer;
    d->skip_special = skip_special;
    d->here = here;
    return d;
}

void ct_decoder_free(ct_decoder *decoder) {
    if (!decoder) return;
    ct__arena_free(&decoder->words.arena);
    ct__free(decoder->words.v);
    ct__matcher_free(&decoder->matcher);
    ct__free(decoder->matches.v);
    ct__free(decoder->ids);
    ct__text_free(&decoder->text);
    ct__text_free(&decoder->shown);
    ct__free(decoder);
}

static bool decoder_decode(ct_decoder *d, const int32_t *ids, size_t n, ct_text *out, ct_err *err) {
    ct_token_texts *words = &d->words;
    ct__arena_reset(&words->arena);
    words->n = 0;
    for (size_t i = 0; i < n; i++) {
        const ct_added *added = tokenizer_find_added(d->t, ids[i]);
        ct_token_text x = {NULL, 0};
        if (added)
            x = (ct_token_text){added->normal, added->normal_n};
        else if (ids[i] < d->t->model.first_partial_id)
            x.s = ct__lexicon_text(&d->t->model.vocab, ids[i], &x.n);
        if (!x.s || (added && added->special && d->skip_special))
            continue; // ids that are not tokens have no text
        if (!CT_GROW(words->v, words->cap, words->n + 1))
            return ct__tokenizer_memory_error(d->t, err);
        words->v[words->n++] = x;
    }
    for (size_t i = 0; i < d->t->decoders.n && words->n; i++)
        if (!ct__decode_step(&d->t->decoders.v[i], words, &d->matcher, &d->matches, err))
            return false;
    out->n = 0;
    ct__text_add(out, "");
    for (size_t i = 0; i < words->n; i++) ct__text_bytes(out, words->v[i].s, words->v[i].n);
    return !out->failed || ct__tokenizer_memory_error(d->t, err);
}

static ct_ctx *decoder_ctx(ct_decoder *d, const char *op, size_t *n) {
    ct_ctx *ctx = ct__ctx();
    if (n) *n = 0;
    if (!ctx || ctx->err.code || !ct__given(ctx, d, CT_NOWHERE, op, "the decoder")) return NULL;
    return ctx;
}

static const char *decoder_decode_all(ct_decoder *d, const char *op, const int32_t *ids,
                                      size_t count, bool raw, size_t *n) {
    ct_ctx *ctx = decoder_ctx(d, op, n);
    if (!ctx || (count && !ct__given(ctx, ids, d->here, op, "the list of ids"))) return NULL;
    d->words.raw = raw;
    const bool ok = decoder_decode(d, ids, count, &d->shown, &ctx->err);
    d->words.raw = false;
    if (!ok) return NULL;
    if (n) *n = d->shown.n;
    return d->shown.s;
}

const char *ct_decoder_all(ct_decoder *decoder, const int32_t *ids, size_t count, size_t *n) {
    return decoder_decode_all(decoder, "decoder_all", ids, count, false, n);
}

const char *ct_decoder_bytes(ct_decoder *decoder, const int32_t *ids, size_t count, size_t *n) {
    return decoder_decode_all(decoder, "decoder_bytes", ids, count, true, n);
}

static bool decoder_is_complete(const ct_text *text) {
    return text->n < 3 || memcmp(text->s + text->n - 3, "\xef\xbf\xbd", 3) != 0;
}

// Returns the text that the unreported tokens add to those before; tokens are kept as long as the
// next one depends on them.
static const char *decoder_report(ct_decoder *d, size_t *n, bool all, ct_err *err) {
    if (!decoder_decode(d, d->ids, d->reported, &d->shown, err)) return NULL;
    size_t before = d->shown.n;
    if (!decoder_decode(d, d->ids, d->n, &d->text, err)) return NULL;
    d->shown.n = 0;
    ct__text_add(&d->shown, "");
    bool fits = before <= d->text.n,
         held = !all && !decoder_is_complete(&d->text) && d->n - d->reported < MAX_HELD;
    if (d->text.n > before && !held) {
        ct__text_bytes(&d->shown, d->text.s + before, d->text.n - before);
        if (d->n > d->reported)
            memmove(d->ids, d->ids + d->reported, (d->n - d->reported) * sizeof *d->ids);
        d->n -= d->reported;
        d->reported = d->n;
    } else if (!fits || d->n - d->reported >= 4 * MAX_HELD) { // tokens without text
        d->n = d->reported = 0;
    }
    if (d->shown.failed) {
        ct__tokenizer_memory_error(d->t, err);
        return NULL;
    }
    if (n) *n = d->shown.n;
    return d->shown.s;
}

const char *ct_decoder_next(ct_decoder *decoder, int32_t id, size_t *n) {
    ct_ctx *ctx = decoder_ctx(decoder, "decoder_next", n);
    if (!ctx) return NULL;
    if (!CT_GROW(decoder->ids, decoder->cap, decoder->n + 1)) {
        ct__tokenizer_memory_error(decoder->t, &ctx->err);
        return NULL;
    }
    decoder->ids[decoder->n++] = id;
    return decoder_report(decoder, n, false, &ctx->err);
}

const char *ct_decoder_end(ct_decoder *decoder, size_t *n) {
    ct_ctx *ctx = decoder_ctx(decoder, "decoder_end", n);
    if (!ctx) return NULL;
    const char *rest = decoder_report(decoder, n, true, &ctx->err);
    decoder->n = decoder->reported = 0;
    return rest;
}
