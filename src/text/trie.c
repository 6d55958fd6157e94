#include "text/trie.h"

#include <string.h>

// ------------------------------------------------------------------------------------------- tries

static void trie_put_slot(ct_trie *trie, uint64_t slot) {
    uint64_t key = slot >> 32;
    size_t i = (size_t)(key * 0x9e3779b97f4a7c15u >> 20) & (trie->n_slots - 1);
    while (trie->slots[i]) i = (i + 1) & (trie->n_slots - 1);
    trie->slots[i] = slot;
}

static bool trie_grow_slots(ct_trie *trie) {
    size_t n = trie->n_slots ? trie->n_slots * 2 : 64, old_n = trie->n_slots;
    uint64_t *old = trie->slots, *slots = ct__calloc(n, sizeof *slots);
    if (!slots) return false;
    trie->slots = slots;
    trie->n_slots = n;
    for (size_t i = 0; i < old_n; i++)
        if (old[i]) trie_put_slot(trie, old[i]);
    ct__free(old);
    return true;
}

static bool trie_new_node(ct_trie *trie, uint32_t *node) {
    if (trie->n_nodes >= 1u << 23 || !CT_GROW(trie->values, trie->cap, trie->n_nodes + 1))
        return false;
    *node = (uint32_t)trie->n_nodes;
    trie->values[trie->n_nodes++] = -1;
    return true;
}

bool ct__trie_add(ct_trie *trie, const char *s, size_t n, int32_t value) {
    uint32_t node = 0;
    if (!trie->n_nodes && !trie_new_node(trie, &node)) return false;
    if (!trie->n_slots && !trie_grow_slots(trie)) return false;
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)s[i];
        uint32_t child = ct__trie_step(trie, node, byte);
        if (!child) {
            if (2 * (trie->used + 1) > trie->n_slots && !trie_grow_slots(trie)) return false;
            if (!trie_new_node(trie, &child)) return false;
            if (node == 0)
                trie->root[byte] = child;
            else
                trie_put_slot(trie, ((uint64_t)(node + 1) << 8 | byte) << 32 | child), trie->used++;
        }
        node = child;
    }
    if (trie->values[node] < 0 || !trie->single) trie->values[node] = value;
    return true;
}

void ct__trie_free(ct_trie *trie) {
    ct__free(trie->slots);
    ct__free(trie->values);
    *trie = (ct_trie){0};
}

size_t ct__trie_longest(const ct_trie *trie, const char *s, size_t n, int32_t *value) {
    size_t longest = 0;
    uint32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        node = ct__trie_step(trie, node, (unsigned char)s[i]);
        if (!node) break;
        if (trie->values[node] >= 0) *value = trie->values[node], longest = i + 1;
    }
    return longest;
}

// ------------------------------------------------------------------------------- tables of strings

uint64_t ct__text_hash(const char *s, size_t n) {
    uint64_t h = n * 0x9e3779b97f4a7c15u, word;
    for (; n >= 8; s += 8, n -= 8) {
        memcpy(&word, s, 8);
        h = (h ^ word) * 0xd6e8feb86659fd93u;
        h ^= h >> 32;
    }
    word = 0;
    memcpy(&word, s, n);
    h = (h ^ word) * 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    return h ^ h >> 29;
}

static size_t lexicon_slot(const ct_lexicon *v, const char *s, size_t n) {
    size_t i = (size_t)ct__text_hash(s, n) & (v->n_slots - 1);
    for (; v->slots[i]; i = (i + 1) & (v->n_slots - 1)) {
        uint32_t k = v->slots[i] - 1;
        if (v->lengths[k] == n && memcmp(v->bytes + v->at[k], s, n) == 0) break;
    }
    return i;
}

static bool lexicon_grow_slots(ct_lexicon *v) {
    size_t n = v->n_slots ? v->n_slots * 2 : 1024;
    uint32_t *slots = ct__calloc(n, sizeof *slots);
    if (!slots) return false;
    ct__free(v->slots);
    v->slots = slots;
    v->n_slots = n;
    for (size_t k = 0; k < v->n; k++)
        v->slots[lexicon_slot(v, v->bytes + v->at[k], v->lengths[k])] = (uint32_t)k + 1;
    return true;
}

bool ct__lexicon_add(ct_lexicon *v, const char *s, size_t n, int32_t id) {
    size_t need = (size_t)id + 1;
    if (2 * (v->n + 1) > v->n_slots && !lexicon_grow_slots(v)) return false;
    if (!CT_GROW(v->by_id, v->by_id_cap, need) || !CT_GROW(v->at, v->at_cap, v->n + 1) ||
        !CT_GROW(v->lengths, v->lengths_cap, v->n + 1) || !CT_GROW(v->ids, v->ids_cap, v->n + 1) ||
        v->n_bytes + n > UINT32_MAX || !CT_GROW(v->bytes, v->bytes_cap, v->n_bytes + n + 1))
        return false;
    for (; v->n_ids < need; v->n_ids++) v->by_id[v->n_ids] = -1;
    size_t k = v->n++, slot;
    v->at[k] = (uint32_t)v->n_bytes;
    v->lengths[k] = (uint32_t)n;
    v->ids[k] = id;
    memcpy(v->bytes + v->n_bytes, s, n);
    v->bytes[v->n_bytes + n] = '\0';
    v->n_bytes += n + 1;
    slot = lexicon_slot(v, s, n);
    v->slots[slot] = (uint32_t)k + 1;
    v->by_id[id] = (int32_t)k;
    return true;
}

int32_t ct__lexicon_id(const ct_lexicon *v, const char *s, size_t n) {
    if (!v->n_slots) return -1;
    uint32_t k = v->slots[lexicon_slot(v, s, n)];
    return k ? v->ids[k - 1] : -1;
}

const char *ct__lexicon_text(const ct_lexicon *v, int64_t id, size_t *n) {
    if (id < 0 || (uint64_t)id >= v->n_ids || v->by_id[id] < 0) return NULL;
    size_t k = (size_t)v->by_id[id];
    if (n) *n = v->lengths[k];
    return v->bytes + v->at[k];
}

void ct__lexicon_free(ct_lexicon *v) {
    ct__free(v->bytes);
    ct__free(v->at);
    ct__free(v->lengths);
    ct__free(v->ids);
    ct__free(v->slots);
    ct__free(v->by_id);
    *v = (ct_lexicon){0};
}
