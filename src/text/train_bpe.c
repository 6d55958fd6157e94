// Training of a byte-level BPE: repeatedly makes the most frequent pair of adjacent symbols a
// token. Ties are broken by the ids of the pair, so the result is unique.
#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "base/os.h"
#include "base/text.h"
#include "graph/graph.h"
#include "io/json.h"
#include "text/tokenizer.h"

enum { MIN_CHUNK = 1 << 20 }; // minimum bytes of a file between two calls of the callbacks

typedef struct bpe_word {
    size_t at; // offset in `symbols`
    uint32_t n;
    int64_t count;
} bpe_word;
// Indices of the words that contain a pair, without duplicates.
typedef struct bpe_occurrences {
    uint32_t *v;
    size_t n, cap;
} bpe_occurrences;
typedef struct bpe_pair {
    uint64_t key; // left << 32 | right
    int64_t count;
    bpe_occurrences added; // added in this round
} bpe_pair;
typedef struct bpe_candidate {
    int64_t count; // when it was pushed: may be larger than the pair's count now
    uint64_t key;
    bpe_occurrences in;
} bpe_candidate;
// A merged token: its two parts.
typedef struct bpe_merge {
    int32_t left, right;
} bpe_merge;

typedef struct bpe_trainer {
    const ct_bpe_options *o;
    const char *const *specials;
    size_t n_specials;
    ct_err *err;
    ct_loc here;
    ct_lexicon lexicon; // words, by index
    bpe_word *words;
    size_t words_cap;
    int32_t *symbols;
    size_t n_symbols;
    bpe_pair *pairs;
    size_t n_pairs, pairs_cap;
    uint32_t *slots; // hash table: index of a pair plus one, by key
    size_t n_slots;
    bpe_candidate *heap;
    size_t n_heap, heap_cap;
    uint32_t *touched; // pairs with new occurrences
    size_t n_touched, touched_cap;
    ct_lexicon tokens; // texts of the tokens
    bpe_merge *merges; // in merge order
    size_t n_merges, merges_cap;
    int32_t byte_ids[256];
    ct_regex *pattern;
    ct_matcher matcher;
    ct_regex_matches hits;
} bpe_trainer;

static bool train_memory_error(bpe_trainer *r) {
    return ct__err_memory(r->err, r->here, "train_bpe", r->n_symbols * sizeof *r->symbols);
}

static bool train_progress(bpe_trainer *r, const char *stage, size_t done, size_t all) {
    if (r->o->progress)
        r->o->progress(&(ct_bpe_progress){stage, (int64_t)done, (int64_t)all}, r->o->user);
    if (!r->o->should_stop || !r->o->should_stop(r->o->user)) return true;
    return ct__err(r->err, CT_E_INTERRUPTED, r->here, "train_bpe",
                   "interrupted after %zu of %zu %s", done, all,
                   strcmp(stage, "read") ? "tokens" : "bytes");
}

// ----------------------------------------------------------------------------------------- reading

static bool train_count_words(bpe_trainer *r, const char *s, size_t n) {
    if (!ct__regex_find_all(&r->matcher, r->pattern, s, (uint32_t)n, &r->hits, r->err))
        return false;
    for (size_t i = 0; i < r->hits.n; i++) {
        ct_regex_match h = r->hits.v[i];
        if (h.begin == h.end) continue;
        int32_t id = ct__lexicon_id(&r->lexicon, s + h.begin, h.end - h.begin);
        if (id < 0) {
            id = (int32_t)r->lexicon.n;
            if (id + 1 >= CT_MAX_IDS)
                return ct__err(r->err, CT_E_DATA, r->here, "train_bpe",
                               "the text has more than 16777215 different words");
            if (!CT_GROW(r->words, r->words_cap, r->lexicon.n + 1) ||
                !ct__lexicon_add(&r->lexicon, s + h.begin, h.end - h.begin, id))
                return train_memory_error(r);
            r->words[id] = (bpe_word){.n = h.end - h.begin};
        }
        r->words[id].count++;
    }
    return true;
}

static bool train_is_space(char c) { return c == ' ' || (c >= 9 && c <= 13); }

// Returns the bytes up to a line end between two ASCII words. The words are the same whether the
// text after it is split together with it or not.
static size_t train_chunk_size(const char *s, size_t n) {
    for (size_t i = MIN_CHUNK; i + 1 < n; i++) {
        bool plain = (unsigned char)s[i - 1] < 0x80 && (unsigned char)s[i + 1] < 0x80;
        if (s[i] == '\n' && plain && !train_is_space(s[i - 1]) && !train_is_space(s[i + 1]))
            return i + 1;
    }
    return n;
}

static bool train_read_file(bpe_trainer *r, const char *path, size_t *done, size_t all) {
    char *text;
    size_t n;
    if (!ct__file_read(path, &text, &n, r->err)) return false;
    size_t bad = ct__utf8_bad(text, n);
    bool ok = bad == n || ct__err(r->err, CT_E_DATA, CT_NOWHERE, path,
                                  "the file is not UTF-8: byte %zu of %zu is 0x%02x", bad, n,
                                  (unsigned)(unsigned char)text[bad]);
    for (size_t i = 0, part; i < n && ok; i += part) {
        part = train_chunk_size(text + i, n - i);
        if (part > 1u << 30)
            ok = ct__err(r->err, CT_E_DATA, CT_NOWHERE, path,
                         "the file has more than 1 GiB without a line's end between two words");
        ok = ok && train_count_words(r, text + i, part) &&
             train_progress(r, "read", *done += part, all);
    }
    ct__free(text);
    return ok;
}

static bool train_read_files(bpe_trainer *r, const char *const *paths, size_t n) {
    size_t done = 0, all = 0, size;
    r->pattern =
        ct__regex_new("train_bpe", ct__gpt2_pattern, strlen(ct__gpt2_pattern), CT_TIKTOKEN, r->err);
    if (!r->pattern) return false;
    for (size_t i = 0; i < n; i++) {
        ct_file file;
        if (!ct__given(ct__ctx(), paths[i], r->here, "train_bpe", "a path") ||
            !ct__file_handle_open(paths[i], &file, r->err))
            return false;
        size = (size_t)file.n;
        ct__file_handle_close(&file);
        all += size;
    }
    for (size_t i = 0; i < n; i++)
        if (!train_read_file(r, paths[i], &done, all)) return false;
    return r->lexicon.n ||
           ct__err(r->err, CT_E_DATA, r->here, "train_bpe", "the files hold no text");
}

// ------------------------------------------------------------------------------------------- pairs

static size_t train_pair_slot(const bpe_trainer *r, uint64_t key) {
    size_t i = (size_t)(key * 0x9e3779b97f4a7c15u >> 20) & (r->n_slots - 1);
    while (r->slots[i] && r->pairs[r->slots[i] - 1].key != key) i = (i + 1) & (r->n_slots - 1);
    return i;
}

static bool train_grow_slots(bpe_trainer *r) {
    size_t n = r->n_slots ? r->n_slots * 2 : 1 << 12;
    uint32_t *slots = ct__calloc(n, sizeof *slots);
    if (!slots) return false;
    ct__free(r->slots);
    r->slots = slots;
    r->n_slots = n;
    for (size_t i = 0; i < r->n_pairs; i++)
        slots[train_pair_slot(r, r->pairs[i].key)] = (uint32_t)i + 1;
    return true;
}

// Adds `by` to a pair's count; if positive, adds the word `in` to its occurrences.
static bool train_change_count(bpe_trainer *r, int32_t left, int32_t right, int64_t by,
                               uint32_t in) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    if (2 * (r->n_pairs + 1) > r->n_slots && !train_grow_slots(r)) return train_memory_error(r);
    size_t slot = train_pair_slot(r, key);
    if (!r->slots[slot]) {
        if (r->n_pairs >= UINT32_MAX - 1 || !CT_GROW(r->pairs, r->pairs_cap, r->n_pairs + 1))
            return train_memory_error(r);
        r->pairs[r->n_pairs++] = (bpe_pair){.key = key};
        r->slots[slot] = (uint32_t)r->n_pairs;
    }
    uint32_t i = r->slots[slot] - 1;
    bpe_occurrences *p = &r->pairs[i].added;
    r->pairs[i].count += by;
    if (by <= 0 || (p->n && p->v[p->n - 1] == in)) return true;
    if (!p->n && !CT_GROW(r->touched, r->touched_cap, r->n_touched + 1))
        return train_memory_error(r);
    if (!CT_GROW(p->v, p->cap, p->n + 1)) return train_memory_error(r);
    if (!p->n) r->touched[r->n_touched++] = i;
    p->v[p->n++] = in;
    return true;
}

static bool train_is_before(const bpe_candidate *a, const bpe_candidate *b) {
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

// Pushes a candidate; the capacity is reserved.
static void train_heap_push(bpe_trainer *r, bpe_candidate c) {
    size_t i = r->n_heap++;
    for (; i && train_is_before(&c, &r->heap[(i - 1) / 2]); i = (i - 1) / 2)
        r->heap[i] = r->heap[(i - 1) / 2];
    r->heap[i] = c;
}

static bpe_candidate train_heap_pop(bpe_trainer *r) {
    bpe_candidate top = r->heap[0], last = r->heap[--r->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < r->n_heap; i = child) {
        if (child + 1 < r->n_heap && train_is_before(&r->heap[child + 1], &r->heap[child])) child++;
        if (!train_is_before(&r->heap[child], &last)) break;
        r->heap[i] = r->heap[child];
    }
    r->heap[i] = last;
    return top;
}

// Pushes the pairs that appeared in this round, for the next one.
static bool train_push_touched(bpe_trainer *r) {
    if (!CT_GROW(r->heap, r->heap_cap, r->n_heap + r->n_touched + 1)) return train_memory_error(r);
    for (size_t i = 0; i < r->n_touched; i++) {
        bpe_pair *p = &r->pairs[r->touched[i]];
        if (p->count > 0)
            train_heap_push(r, (bpe_candidate){p->count, p->key, p->added});
        else
            ct__free(p->added.v);
        p->added = (bpe_occurrences){0};
    }
    r->n_touched = 0;
    return true;
}

static bool train_init_symbols(bpe_trainer *r) {
    size_t n = r->lexicon.n, at = 0;
    for (size_t i = 0; i < n; i++) r->n_symbols += r->words[i].n;
    r->symbols = ct__malloc(r->n_symbols * sizeof *r->symbols);
    if (!r->symbols) return train_memory_error(r);
    for (size_t i = 0; i < n; i++) {
        bpe_word *w = &r->words[i];
        const unsigned char *s = (const unsigned char *)r->lexicon.bytes + r->lexicon.at[i];
        w->at = at;
        for (uint32_t k = 0; k < w->n; k++) {
            r->symbols[at++] = r->byte_ids[s[k]];
            if (k && !train_change_count(r, r->symbols[at - 2], r->symbols[at - 1], w->count,
                                         (uint32_t)i))
                return false;
        }
    }
    return train_push_touched(r);
}

// Replaces the pair by the token throughout a word.
static bool train_merge_in_word(bpe_trainer *r, uint32_t in, int32_t left, int32_t right,
                                int32_t token) {
    bpe_word *w = &r->words[in];
    int32_t *s = r->symbols + w->at;
    uint32_t to = 0;
    for (uint32_t i = 0; i < w->n; to++) {
        if (s[i] != left || i + 1 == w->n || s[i + 1] != right) {
            s[to] = s[i++];
            continue;
        }
        int32_t next = i + 2 < w->n ? s[i + 2] : -1, last = to ? s[to - 1] : -1;
        s[to] = token;
        i += 2;
        if (last >= 0 && (!train_change_count(r, last, left, -w->count, in) ||
                          !train_change_count(r, last, token, w->count, in)))
            return false;
        if (next >= 0 && (!train_change_count(r, right, next, -w->count, in) ||
                          !train_change_count(r, token, next, w->count, in)))
            return false;
    }
    w->n = to;
    return true;
}

// ------------------------------------------------------------------------------------------ tokens

static bool train_add_token(bpe_trainer *r, const char *s, size_t n) {
    return ct__lexicon_id(&r->tokens, s, n) >= 0 ||
           ct__lexicon_add(&r->tokens, s, n, (int32_t)r->tokens.n) || train_memory_error(r);
}

// The special tokens, then the characters of all bytes in their order.
static bool train_add_base_tokens(bpe_trainer *r) {
    char text[4];
    for (size_t i = 0; i < r->n_specials; i++)
        if (!train_add_token(r, r->specials[i], strlen(r->specials[i]))) return false;
    for (uint32_t cp = 0; cp < 324; cp++) {
        int byte = ct__byte_of_char(cp);
        if (byte < 0) continue;
        size_t n = ct__utf8_put(cp, text);
        if (!train_add_token(r, text, n)) return false;
        r->byte_ids[byte] = ct__lexicon_id(&r->tokens, text, n);
    }
    return true;
}

static bool train_add_merged(bpe_trainer *r, int32_t left, int32_t right, int32_t *token) {
    size_t n[2];
    const char *a = ct__lexicon_text(&r->tokens, left, &n[0]),
               *b = ct__lexicon_text(&r->tokens, right, &n[1]);
    char *both = ct__malloc(n[0] + n[1]);
    if (!both) return train_memory_error(r);
    memcpy(both, a, n[0]);
    memcpy(both + n[0], b, n[1]);
    bool ok = train_add_token(r, both, n[0] + n[1]);
    *token = ok ? ct__lexicon_id(&r->tokens, both, n[0] + n[1]) : -1;
    ct__free(both);
    return ok;
}

static bool train_merge_all(bpe_trainer *r, size_t max_tokens, int64_t min_count) {
    bool ok = true;
    while (ok && r->tokens.n < max_tokens && r->n_heap) {
        bpe_candidate top = train_heap_pop(r);
        int64_t count = r->pairs[r->slots[train_pair_slot(r, top.key)] - 1].count;
        if (top.count != count && count > 0) {
            top.count = count;
            train_heap_push(r, top);
            continue;
        }
        int32_t left = (int32_t)(top.key >> 32), right = (int32_t)(uint32_t)top.key, token = -1;
        bool enough = count > 0 && count >= min_count;
        if (!enough) r->n_heap = top.count == count ? 0 : r->n_heap;
        if (enough) {
            ok = CT_GROW(r->merges, r->merges_cap, r->n_merges + 1)
                     ? train_add_merged(r, left, right, &token)
                     : train_memory_error(r);
            if (ok) r->merges[r->n_merges++] = (bpe_merge){left, right};
            for (size_t i = 0; i < top.in.n && ok; i++)
                ok = train_merge_in_word(r, top.in.v[i], left, right, token);
            ok = ok && train_push_touched(r) && train_progress(r, "merge", r->tokens.n, max_tokens);
        }
        ct__free(top.in.v);
    }
    return ok;
}

// ----------------------------------------------------------------------------------------- writing

static void train_write_token(const bpe_trainer *r, ct_text *out, int32_t id) {
    size_t n;
    const char *s = ct__lexicon_text(&r->tokens, id, &n);
    ct__json_string(out, s, n);
}

static void train_write_tokenizer(const bpe_trainer *r, ct_text *out) {
    ct__text_add(out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n "
                      " \"added_tokens\": [");
    for (size_t i = 0; i < r->n_specials; i++) {
        ct__textf(out, "%s\n    {\"id\": %d, \"content\": ", i ? "," : "",
                  ct__lexicon_id(&r->tokens, r->specials[i], strlen(r->specials[i])));
        ct__json_string(out, r->specials[i], strlen(r->specials[i]));
        ct__text_add(out, ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                          "\"normalized\": false, \"special\": true}");
    }
    static const char bytes[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                                "\"trim_offsets\": true, \"use_regex\": true}";
    ct__textf(out,
              "%s],\n  \"normalizer\": null,\n  \"pre_tokenizer\": %s,\n  \"post_processor\": "
              "null,\n  \"decoder\": %s,\n",
              r->n_specials ? "\n  " : "", bytes, bytes);
    ct__text_add(out, "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    "
                      "\"unk_token\": null,\n    \"continuing_subword_prefix\": null,\n"
                      "    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n    "
                      "\"byte_fallback\": false,\n    \"ignore_merges\": false,\n    \"vocab\": {");
    for (size_t i = 0; i < r->tokens.n; i++) {
        ct__text_add(out, i ? ",\n      " : "\n      ");
        train_write_token(r, out, (int32_t)i);
        ct__textf(out, ": %zu", i);
    }
    ct__text_add(out, "\n    },\n    \"merges\": [");
    for (size_t i = 0; i < r->n_merges; i++) {
        ct__text_add(out, i ? ",\n      [" : "\n      [");
        train_write_token(r, out, r->merges[i].left);
        ct__text_add(out, ", ");
        train_write_token(r, out, r->merges[i].right);
        ct__text_add(out, "]");
    }
    ct__text_add(out, r->n_merges ? "\n    ]\n  }\n}\n" : "]\n  }\n}\n");
}

static void train_write_config(const bpe_trainer *r, ct_text *out) {
    ct__text_add(out, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"");
    for (int i = 0; i < 2 && r->n_specials; i++) {
        ct__text_add(out, i ? ",\n  \"eos_token\": " : ",\n  \"bos_token\": ");
        ct__json_string(out, r->specials[0], strlen(r->specials[0]));
    }
    ct__text_add(out, "\n}\n");
}

static void train_free(bpe_trainer *r) {
    for (size_t i = 0; i < r->n_pairs; i++) ct__free(r->pairs[i].added.v);
    for (size_t i = 0; i < r->n_heap; i++) ct__free(r->heap[i].in.v);
    ct__lexicon_free(&r->lexicon);
    ct__lexicon_free(&r->tokens);
    ct__regex_free(r->pattern);
    ct__matcher_free(&r->matcher);
    void *all[] = {r->words, r->symbols, r->pairs,  r->slots,
                   r->heap,  r->touched, r->merges, r->hits.v};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ct__free(all[i]);
}

bool ct__train_bpe(const char *const *paths, size_t n, const ct_bpe_options *options,
                   ct_text *tokenizer, ct_text *config, ct_err *err) {
    static const char *const default_specials[] = {"<|endoftext|>", NULL};
    bpe_trainer r = {.o = options, .err = err, .here = options->here};
    r.specials = options->specials ? options->specials : default_specials;
    while (r.specials[r.n_specials]) r.n_specials++;
    int64_t size = options->vocab_size ? options->vocab_size : 8192,
            min_size = (int64_t)(256 + r.n_specials);
    bool ok = size >= min_size && size < CT_MAX_IDS;
    if (!ok)
        ct__err(r.err, CT_E_ARGUMENT, r.here, "train_bpe",
                "vocab_size is %lld; it is at least %lld (256 bytes and %zu special tokens), and "
                "below 16777216",
                (long long)size, (long long)min_size, r.n_specials);
    ok = ok && train_add_base_tokens(&r) && train_read_files(&r, paths, n) &&
         train_init_symbols(&r) &&
         train_merge_all(&r, (size_t)size, options->min_frequency ? options->min_frequency : 2);
    if (ok) {
        train_write_tokenizer(&r, tokenizer);
        train_write_config(&r, config);
        ok = (!tokenizer->failed && !config->failed) || train_memory_error(&r);
    }
    train_free(&r);
    return ok;
}

static bool train_write_file(const char *folder, const char *name, const ct_text *text,
                             ct_err *err) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return ct__err(err, CT_E_FILE, CT_NOWHERE, folder, "the path is longer than 4095 bytes");
    return ct__file_write(path, text->s, text->n, err);
}

bool ct_train_bpe_with(const char *folder, const char *const *paths, size_t n,
                       ct_bpe_options options) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || ctx->err.code || !ct__given(ctx, folder, options.here, "train_bpe", "the folder") ||
        !ct__given(ctx, paths, options.here, "train_bpe", "the list of paths"))
        return false;
    CT_TEXT tokenizer = {0}, config = {0};
    bool ok = ct__train_bpe(paths, n, &options, &tokenizer, &config, &ctx->err) &&
              ct__make_dirs(folder, 0777, &ctx->err) &&
              train_write_file(folder, "tokenizer_config.json", &config, &ctx->err) &&
              train_write_file(folder, "tokenizer.json", &tokenizer, &ctx->err);
    return ok || ct__err_locate(&ctx->err, options.here, "train_bpe");
}
