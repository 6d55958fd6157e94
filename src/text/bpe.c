// BPE: merges adjacent pairs in the order of their ranks, equal ranks from the left.
#include <stdio.h>
#include <string.h>

#include "text/ranks.h"

// Words of up to this many symbols are searched linearly for their best pair; longer ones use a
// heap.
enum { MAX_LINEAR = 32 };

static size_t bpe_merge_slot(const ct_merge *table, size_t n, uint64_t pair) {
    size_t i = (size_t)(pair * 0x9e3779b97f4a7c15u >> 24) & (n - 1);
    while (table[i].pair != pair && table[i].pair != UINT64_MAX) i = (i + 1) & (n - 1);
    return i;
}

static const ct_merge *bpe_find_merge(const ct_model *m, int32_t left, int32_t right) {
    if (left < 0 || right < 0 || !m->n_merges) return NULL;
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    const ct_merge *found = &m->merges[bpe_merge_slot(m->merges, m->n_merges, pair)];
    return found->pair == pair ? found : NULL;
}

bool ct__bpe_set_merges(ct_tokenizer *t, const ct_merge_rule *v, size_t n, ct_err *err) {
    ct_model *m = &t->model;
    size_t slots = 16;
    while (slots < 2 * n) slots *= 2;
    m->merges = ct__malloc(slots * sizeof *m->merges);
    if (!m->merges) return ct__tokenizer_memory_error(t, err);
    m->n_merges = slots;
    for (size_t i = 0; i < slots; i++) m->merges[i].pair = UINT64_MAX;
    for (size_t i = 0; i < n; i++) {
        uint64_t pair = (uint64_t)(uint32_t)v[i].left << 32 | (uint32_t)v[i].right;
        ct_merge *slot = &m->merges[bpe_merge_slot(m->merges, slots, pair)];
        *slot = (ct_merge){pair, v[i].rank, v[i].id}; // the last of duplicate pairs wins
    }
    return true;
}

void ct__model_find_byte_tokens(ct_model *m) {
    for (int i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);
        m->byte_ids[i] = ct__lexicon_id(&m->vocab, name, 6);
    }
}

// Returns the id of a piece, or of a character (`is_char`) that is not a piece itself: a new id
// after all others.
static int32_t bpe_part_id(ct_lexicon *parts, const ct_lexicon *vocab, const char *s, size_t n,
                           bool is_char, bool *ok) {
    int32_t id = ct__lexicon_id(vocab, s, n);
    if (id >= 0 || !is_char) return id;
    id = ct__lexicon_id(parts, s, n);
    if (id >= 0) return id;
    id = (int32_t)(vocab->n_ids + parts->n); // first_partial_id and up
    *ok = id < CT_MAX_IDS && ct__lexicon_add(parts, s, n, id);
    return id;
}

bool ct__bpe_set_merges_by_rank(ct_tokenizer *t, const uint32_t *ranks, ct_err *err) {
    ct_model *m = &t->model;
    ct_merge_rule *v = NULL;
    size_t n = 0, cap = 0;
    ct_lexicon parts = {0};
    bool ok = true;
    m->first_partial_id = (int32_t)m->vocab.n_ids;
    for (int64_t id = 0; id < (int64_t)m->vocab.n_ids && ok; id++) {
        size_t length;
        const char *s = ct__lexicon_text(&m->vocab, id, &length);
        if (!s || ranks[id] == UINT32_MAX || ct__lexicon_id(&m->vocab, s, length) != id) continue;
        for (size_t cut = 1; cut < length && ok; cut++) {
            bool begins = m->raw_bytes || ct__is_char_start(s[cut]);
            if (!begins) continue;
            uint32_t used = 1, last = 1;
            if (!m->raw_bytes)
                ct__char(s, (uint32_t)length, &used),
                    ct__char(s + cut, (uint32_t)(length - cut), &last);
            int32_t left = bpe_part_id(&parts, &m->vocab, s, cut, cut == used, &ok);
            int32_t right = left < 0 ? -1
                                     : bpe_part_id(&parts, &m->vocab, s + cut, length - cut,
                                                   length - cut == last, &ok);
            if (right < 0 || (left < (int64_t)m->vocab.n_ids && ranks[left] == UINT32_MAX) ||
                (right < (int64_t)m->vocab.n_ids && ranks[right] == UINT32_MAX))
                continue;
            ok = ok && CT_GROW(v, cap, n + 1);
            if (ok) v[n++] = (ct_merge_rule){left, right, (int32_t)id, ranks[id]};
        }
    }
    // Adds the parts to the vocabulary; their ids do not count as tokens.
    for (size_t i = 0; i < parts.n && ok; i++)
        ok = ct__lexicon_add(&m->vocab, parts.bytes + parts.at[i], parts.lengths[i], parts.ids[i]);
    ok = ok ? ct__bpe_set_merges(t, v, n, err) : ct__tokenizer_memory_error(t, err);
    ct__free(v);
    ct__lexicon_free(&parts);
    return ok;
}

// ----------------------------------------------------------------------------------------- symbols

static bool bpe_add_symbol(ct_work *w, size_t *n, int32_t id, uint32_t bytes) {
    if (!CT_GROW(w->symbols, w->symbols_cap, *n + 1))
        return ct__tokenizer_memory_error(w->t, w->err);
    w->symbols[*n] = (ct_symbol){id, bytes, (int32_t)*n - 1, (int32_t)*n + 1};
    ++*n;
    return true;
}

typedef struct bpe_unknown { // a run of unknown characters, not yet a token
    uint32_t n;
    bool any;
} bpe_unknown;
static bool bpe_flush_unknown(ct_work *w, size_t *n, bpe_unknown *u) {
    bool ok = !u->any || bpe_add_symbol(w, n, w->t->model.unk, u->n);
    *u = (bpe_unknown){0};
    return ok;
}

// The id of one character, with the prefix or suffix that the vocabulary has at that position of a
// word.
static int32_t bpe_char_id(const ct_model *m, const char *s, uint32_t n, bool first, bool last) {
    char bytes[512];
    size_t before = first ? 0 : m->prefix_n, after = last ? m->suffix_n : 0;
    if (!before && !after) return ct__lexicon_id(&m->vocab, s, n);
    if (before + n + after > sizeof bytes) return -1;
    if (before) memcpy(bytes, m->prefix, before);
    memcpy(bytes + before, s, n);
    if (after) memcpy(bytes + before + n, m->suffix, after);
    return ct__lexicon_id(&m->vocab, bytes, before + n + after);
}

static bool bpe_has_all_bytes(const ct_model *m, const char *s, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (m->byte_ids[(unsigned char)s[i]] < 0) return false;
    return true;
}

static bool bpe_split_symbols(ct_work *w, const char *s, uint32_t n, size_t *count) {
    const ct_model *m = &w->t->model;
    bpe_unknown u = {0};
    for (uint32_t i = 0, used; i < n; i += used) {
        int32_t id;
        if (m->bytes) {
            used = 1;
            id = m->byte_ids[(unsigned char)s[i]];
        } else {
            ct__char(s + i, n - i, &used);
            id = bpe_char_id(m, s + i, used, i == 0, i + used == n);
        }
        if (id >= 0) {
            if (!bpe_flush_unknown(w, count, &u) || !bpe_add_symbol(w, count, id, used))
                return false;
        } else if (m->byte_fallback && !m->bytes && bpe_has_all_bytes(m, s + i, used)) {
            for (uint32_t k = 0; k < used; k++)
                if (!bpe_add_symbol(w, count, m->byte_ids[(unsigned char)s[i + k]], 1))
                    return false;
        } else if (m->unk >= 0) {
            if (!m->fuse_unk && !bpe_flush_unknown(w, count, &u)) return false;
            u = (bpe_unknown){u.n + used, true};
        }
    }
    return bpe_flush_unknown(w, count, &u);
}

// ----------------------------------------------------------------------------------------- merging

static void bpe_merge_symbols(ct_symbol *s, size_t n, int32_t at, int32_t id) {
    int32_t removed = s[at].next;
    s[at].id = id;
    s[at].n += s[removed].n;
    s[at].next = s[removed].next;
    if (s[at].next < (int32_t)n) s[s[at].next].prev = at;
    s[removed].id = -1;
}

static void bpe_merge_linear(const ct_model *m, ct_symbol *s, size_t n) {
    uint32_t ranks[MAX_LINEAR];
    int32_t ids[MAX_LINEAR]; // of the pair that starts at each symbol
    if (n < 2) return;
    for (size_t i = 0; i < n; i++) {
        const ct_merge *found = i + 1 < n ? bpe_find_merge(m, s[i].id, s[i + 1].id) : NULL;
        ranks[i] = found ? found->rank : UINT32_MAX;
        ids[i] = found ? found->id : -1;
    }
    for (;;) {
        size_t best = 0;
        for (size_t i = 1; i < n; i++)
            if (ranks[i] < ranks[best]) best = i;
        if (ranks[best] == UINT32_MAX) return;
        ranks[s[best].next] = UINT32_MAX;
        bpe_merge_symbols(s, n, (int32_t)best, ids[best]);
        for (int side = 0; side < 2; side++) {
            int32_t left = side ? (int32_t)best : s[best].prev;
            if (left < 0) continue;
            int32_t right = s[left].next;
            const ct_merge *found =
                right < (int32_t)n ? bpe_find_merge(m, s[left].id, s[right].id) : NULL;
            ranks[left] = found ? found->rank : UINT32_MAX;
            ids[left] = found ? found->id : -1;
        }
    }
}

static bool bpe_is_before(ct_merge_candidate a, ct_merge_candidate b) {
    return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}

static bool bpe_heap_push(ct_work *w, ct_merge_candidate candidate) {
    if (!CT_GROW(w->heap, w->heap_cap, w->n_heap + 1))
        return ct__tokenizer_memory_error(w->t, w->err);
    size_t i = w->n_heap++;
    for (; i && bpe_is_before(candidate, w->heap[(i - 1) / 4]); i = (i - 1) / 4)
        w->heap[i] = w->heap[(i - 1) / 4];
    w->heap[i] = candidate;
    return true;
}

static ct_merge_candidate bpe_heap_pop(ct_work *w) {
    ct_merge_candidate top = w->heap[0], last = w->heap[--w->n_heap];
    size_t i = 0, n = w->n_heap;
    for (size_t child; (child = 4 * i + 1) < n; i = child) {
        for (size_t k = child + 1; k < n && k < 4 * i + 5; k++)
            if (bpe_is_before(w->heap[k], w->heap[child])) child = k;
        if (!bpe_is_before(w->heap[child], last)) break;
        w->heap[i] = w->heap[child];
    }
    w->heap[i] = last;
    return top;
}

static bool bpe_push_pair(ct_work *w, size_t n, int32_t left) {
    ct_symbol *s = w->symbols;
    if (left < 0 || s[left].next >= (int32_t)n) return true;
    const ct_merge *found = bpe_find_merge(&w->t->model, s[left].id, s[s[left].next].id);
    return !found || bpe_heap_push(w, (ct_merge_candidate){found->rank, (uint32_t)left, found->id});
}

static bool bpe_merge_heap(ct_work *w, size_t n) {
    ct_symbol *s = w->symbols;
    w->n_heap = 0;
    for (size_t i = 0; i + 1 < n; i++)
        if (!bpe_push_pair(w, n, (int32_t)i)) return false;
    while (w->n_heap) {
        ct_merge_candidate candidate = bpe_heap_pop(w);
        int32_t at = (int32_t)candidate.at;
        if (s[at].id < 0 || s[at].next >= (int32_t)n) continue;
        const ct_merge *found = bpe_find_merge(&w->t->model, s[at].id, s[s[at].next].id);
        if (!found || found->id != candidate.id) continue; // the pair has changed since
        bpe_merge_symbols(s, n, at, candidate.id);
        if (!bpe_push_pair(w, n, s[at].prev) || !bpe_push_pair(w, n, at)) return false;
    }
    return true;
}

// Adds a symbol that is not a token, a character that occurs in pieces only: as unknown, or as its
// bytes.
static bool bpe_add_non_token(ct_work *w, const char *s, uint32_t n) {
    const ct_model *m = &w->t->model;
    if (m->byte_fallback && bpe_has_all_bytes(m, s, n)) {
        for (uint32_t i = 0; i < n; i++)
            if (!ct__work_add_part(w, m->byte_ids[(unsigned char)s[i]], 1)) return false;
        return true;
    }
    if (m->fuse_unk && w->n_parts && w->parts[w->n_parts - 1].id == m->unk) {
        w->parts[w->n_parts - 1].n += n;
        return true;
    }
    return m->unk < 0 || ct__work_add_part(w, m->unk, n);
}

// The word's bytes in GPT-2's characters.
static const char *bpe_to_byte_chars(ct_work *w, const char *s, uint32_t n, size_t *out) {
    w->spelled.n = 0;
    for (uint32_t i = 0; i < n; i++) {
        char bytes[4];
        ct__aligned_append(&w->spelled, bytes,
                           ct__utf8_put(ct__byte_chars[(unsigned char)s[i]], bytes),
                           (ct_token_span){0, 0});
    }
    *out = w->spelled.n;
    return w->spelled.s;
}

bool ct__bpe_encode_word(ct_work *w, const char *s, uint32_t n) {
    const ct_model *m = &w->t->model;
    size_t count = 0;
    if (m->ignore_merges) {
        size_t length = n;
        const char *text = m->bytes && !m->raw_bytes ? bpe_to_byte_chars(w, s, n, &length) : s;
        if (w->spelled.failed) return ct__tokenizer_memory_error(w->t, w->err);
        int32_t id = ct__lexicon_id(&m->vocab, text, length);
        if (id >= 0 && id < m->first_partial_id) return ct__work_add_part(w, id, n);
    }
    if (!bpe_split_symbols(w, s, n, &count)) return false;
    if (count <= MAX_LINEAR)
        bpe_merge_linear(m, w->symbols, count);
    else if (!bpe_merge_heap(w, count))
        return false;
    uint32_t at = 0;
    for (int32_t i = 0; i < (int32_t)count; i = w->symbols[i].next) {
        ct_symbol x = w->symbols[i];
        bool token =
            x.id < m->first_partial_id && (x.id != m->unk || m->first_partial_id == INT32_MAX);
        bool ok = token ? ct__work_add_part(w, x.id, x.n) : bpe_add_non_token(w, s + at, x.n);
        if (!ok) return false;
        at += x.n;
    }
    return true;
}
