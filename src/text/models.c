// The models Unigram, WordPiece and WordLevel, and the cache of words for every model.
#include <string.h>

#include "text/tokenizer.h"

bool ct__work_add_part(ct_work *w, int32_t id, uint32_t n) {
    if (!CT_GROW(w->parts, w->parts_cap, w->n_parts + 1))
        return ct__tokenizer_memory_error(w->t, w->err);
    w->parts[w->n_parts++] = (ct_part){id, n};
    return true;
}

static bool model_no_unk_error(ct_work *w) {
    return ct__err(
        w->err, CT_E_DATA, CT_NOWHERE, w->t->label,
        "the text has a part that is in no token, and the tokenizer has no unknown token");
}

// ----------------------------------------------------------------------------------------- Unigram

static void unigram_relax(const ct_model *m, ct_unigram_best *at, double score, uint32_t begin,
                          int32_t id) {
    if (m->float_scores) score = (double)(float)score;
    if (at->begin != UINT32_MAX && !(score > at->score)) return;
    *at = (ct_unigram_best){score, begin, id};
}

// Viterbi, forward: finds the best piece that ends at each byte.
static bool unigram_forward(ct_work *w, const char *s, uint32_t n) {
    const ct_model *m = &w->t->model;
    if (!CT_GROW(w->best, w->best_cap, (size_t)n + 1))
        return ct__tokenizer_memory_error(w->t, w->err);
    ct_unigram_best *best = w->best;
    for (uint32_t i = 0; i <= n; i++) best[i] = (ct_unigram_best){0, UINT32_MAX, -1};
    for (uint32_t i = 0, used; i < n; i += used) {
        uint32_t node = 0;
        bool has_char = false;
        double here = best[i].score;
        ct__char(s + i, n - i, &used);
        for (uint32_t end = i; end < n;) {
            node = ct__trie_step(&m->trie, node, (unsigned char)s[end++]);
            if (!node) break;
            int32_t id = m->trie.values[node];
            if (id < 0 || (m->unused && m->unused[id])) continue;
            double score = m->scores[id];
            if (m->user_defined && m->user_defined[id])
                score = (float)((float)(end - i) * (float)m->max_score - 0.1);
            unigram_relax(m, &best[end], score + here, i, id);
            has_char |= end - i == used;
        }
        if (!has_char) {
            if (m->unk < 0) return model_no_unk_error(w);
            unigram_relax(m, &best[i + used], m->unk_score + here, i, m->unk);
        }
    }
    return true;
}

// Adds a run that no piece matches: its bytes, or the unknown token.
static bool unigram_unknown_run(ct_work *w, const char *s, uint32_t n) {
    const ct_model *m = &w->t->model;
    bool bytes = m->byte_fallback;
    for (uint32_t i = 0; i < n && bytes; i++) bytes = m->byte_ids[(unsigned char)s[i]] >= 0;
    if (!bytes) return ct__work_add_part(w, m->unk, n);
    for (uint32_t i = 0; i < n; i++)
        // A part of no bytes has the span of the next part that has some: of the whole run.
        if (!ct__work_add_part(w, m->byte_ids[(unsigned char)s[i]], i + 1 < n ? 0 : n))
            return false;
    return true;
}

bool ct__unigram_encode_word(ct_work *w, const char *s, uint32_t n) {
    const ct_model *m = &w->t->model;
    if (!unigram_forward(w, s, n)) return false;
    // The best path is linked backwards; this links it forwards, through the ends of its pieces.
    uint32_t next = n;
    for (uint32_t end = n; end;) {
        uint32_t begin = w->best[end].begin;
        w->best[end].begin = next; // the end of the following piece
        next = end;
        end = begin;
    }
    for (uint32_t begin = 0, end = next; begin < n;) {
        int32_t id = w->best[end].id;
        uint32_t following = w->best[end].begin;
        while (id == m->unk && end < n &&
               w->best[following].id == m->unk) // a run of unknown pieces is merged
            end = following, following = w->best[end].begin;
        // A merged run that happens to be a piece is that piece.
        int32_t known = id == m->unk && !m->float_scores
                            ? ct__lexicon_id(&m->vocab, s + begin, end - begin)
                            : -1;
        bool ok = id != m->unk ? ct__work_add_part(w, id, end - begin)
                  : known >= 0 ? ct__work_add_part(w, known, end - begin)
                               : unigram_unknown_run(w, s + begin, end - begin);
        if (!ok) return false;
        begin = end;
        end = following;
    }
    return true;
}

// ---------------------------------------------------------------------------- WordPiece, WordLevel

static bool model_unknown_word(ct_work *w, uint32_t n) {
    w->n_parts = 0;
    return w->t->model.unk >= 0 ? ct__work_add_part(w, w->t->model.unk, n) : model_no_unk_error(w);
}

bool ct__wordpiece_encode_word(ct_work *w, const char *s, uint32_t n) {
    const ct_model *m = &w->t->model;
    uint32_t chars = 0;
    for (uint32_t i = 0; i < n; i++) chars += ct__is_char_start(s[i]);
    if (chars > m->max_word_chars) return model_unknown_word(w, n);
    for (uint32_t i = 0; i < n;) {
        uint32_t node = i ? m->prefix_node : 0, end = 0;
        int32_t id = -1;
        for (uint32_t k = i; k < n && node != UINT32_MAX; k++) {
            node = ct__trie_step(&m->trie, node, (unsigned char)s[k]);
            if (!node) break;
            bool at_char_end = k + 1 == n || ct__is_char_start(s[k + 1]);
            if (at_char_end && m->trie.values[node] >= 0) id = m->trie.values[node], end = k + 1;
        }
        if (id < 0) return model_unknown_word(w, n);
        if (!ct__work_add_part(w, id, end - i)) return false;
        i = end;
    }
    return true;
}

// ------------------------------------------------------------------------------------------- cache

enum {
    CACHE_SLOTS = 1 << 16,
    MAX_CACHED_WORD = 256,
    MAX_CACHED_PARTS = 1 << 19,
    MAX_CACHED_BYTES = 4 << 20
};

static bool cache_reserve(ct_word_cache *c, uint32_t n, size_t parts) {
    if (!c->slots) c->slots = ct__calloc(CACHE_SLOTS, sizeof *c->slots);
    if (!c->slots) return false;
    if (c->used >= CACHE_SLOTS / 2 || c->n_bytes + n > MAX_CACHED_BYTES ||
        c->n_parts + parts > MAX_CACHED_PARTS) {
        memset(c->slots, 0, CACHE_SLOTS * sizeof *c->slots);
        c->used = c->n_bytes = c->n_parts = 0;
    }
    return CT_GROW(c->bytes, c->bytes_cap, c->n_bytes + n) &&
           CT_GROW(c->parts, c->parts_cap, c->n_parts + parts);
}

static struct ct_cached *cache_slot(const ct_word_cache *c, uint64_t hash, const char *s,
                                    uint32_t n) {
    size_t i = (size_t)hash & (CACHE_SLOTS - 1);
    for (; c->slots[i].key_n; i = (i + 1) & (CACHE_SLOTS - 1)) {
        struct ct_cached *at = &c->slots[i];
        if (at->hash == hash && at->key_n == n && memcmp(c->bytes + at->key, s, n) == 0) break;
    }
    return &c->slots[i];
}

static bool model_encode_uncached(ct_work *w, const char *s, uint32_t n) {
    const ct_model *m = &w->t->model;
    w->n_parts = 0;
    switch (m->kind) {
    case CT_MODEL_BPE: return ct__bpe_encode_word(w, s, n);
    case CT_MODEL_UNIGRAM: return ct__unigram_encode_word(w, s, n);
    case CT_MODEL_WORDPIECE: return ct__wordpiece_encode_word(w, s, n);
    case CT_MODEL_WORDLEVEL: break;
    }
    int32_t id = ct__lexicon_id(&m->vocab, s, n);
    return id >= 0 ? ct__work_add_part(w, id, n) : model_unknown_word(w, n);
}

bool ct__model_encode_word(ct_work *w, const char *s, uint32_t n) {
    if (n > MAX_CACHED_WORD || w->t->model.kind == CT_MODEL_WORDLEVEL)
        return model_encode_uncached(w, s, n);
    ct_word_cache *c = &w->cache;
    uint64_t hash = ct__text_hash(s, n);
    if (c->slots) {
        struct ct_cached *at = cache_slot(c, hash, s, n);
        if (at->key_n) {
            if (!CT_GROW(w->parts, w->parts_cap, at->n))
                return ct__tokenizer_memory_error(w->t, w->err);
            if (at->n) memcpy(w->parts, c->parts + at->parts, at->n * sizeof *w->parts);
            w->n_parts = at->n;
            return true;
        }
    }
    if (!model_encode_uncached(w, s, n)) return false;
    if (cache_reserve(c, n, w->n_parts)) { // otherwise it is tokenized again next time
        *cache_slot(c, hash, s, n) = (struct ct_cached){hash, (uint32_t)c->n_bytes, n,
                                                        (uint32_t)c->n_parts, (uint32_t)w->n_parts};
        memcpy(c->bytes + c->n_bytes, s, n);
        if (w->n_parts) memcpy(c->parts + c->n_parts, w->parts, w->n_parts * sizeof *w->parts);
        c->n_bytes += n, c->n_parts += w->n_parts, c->used++;
    }
    return true;
}
