// Sets of texts that are found from their first byte on.
#ifndef COTAN_TEXT_TRIE_H
#define COTAN_TEXT_TRIE_H

#include "base/error.h"
#include "base/mem.h"

// A node's child by a byte stands in a table of (node, byte); node 0 is the root.
typedef struct ct_trie {
    uint64_t *slots; // (node + 1) << 40 | byte << 32 | child; 0: empty
    int32_t *values; // of nodes: -1: no text ends here
    size_t n_slots, n_nodes, cap, used;
    uint32_t root[256]; // children of the root; 0: none
    bool single;        // texts that are the same take the value of the first
} ct_trie;

bool ct__trie_add(ct_trie *trie, const char *s, size_t n, int32_t value); // false: no memory
void ct__trie_free(ct_trie *trie);

// The child of a node; 0: there is none.
static inline uint32_t ct__trie_step(const ct_trie *trie, uint32_t node, unsigned char byte) {
    if (node == 0) return trie->root[byte];
    uint64_t key = (uint64_t)(node + 1) << 8 | byte;
    size_t i = (size_t)(key * 0x9e3779b97f4a7c15u >> 20) & (trie->n_slots - 1);
    for (;; i = (i + 1) & (trie->n_slots - 1)) {
        uint64_t slot = trie->slots[i];
        if (slot >> 32 == key) return (uint32_t)slot;
        if (!slot) return 0;
    }
}
// The longest text at s; its bytes, 0: none. *value: its value.
size_t ct__trie_longest(const ct_trie *trie, const char *s, size_t n, int32_t *value);

// Texts by number and numbers by text.
typedef struct ct_lexicon {
    char *bytes;
    size_t n_bytes, bytes_cap;
    uint32_t *at; // where each begins
    uint32_t *lengths;
    int32_t *ids; // of each
    size_t n, at_cap, lengths_cap, ids_cap;
    uint32_t *slots; // text number and one; 0: empty
    size_t n_slots;
    int32_t *by_id; // text number of an id; -1: none
    size_t n_ids, by_id_cap;
} ct_lexicon;
enum { CT_MOST_IDS = 1 << 24 };
// Of equal texts the last one's id is found, of equal ids the last text. id < CT_MOST_IDS.
bool ct__lexicon_add(ct_lexicon *vocab, const char *s, size_t n, int32_t id);
int32_t ct__lexicon_id(const ct_lexicon *vocab, const char *s, size_t n);     // -1: none
const char *ct__lexicon_text(const ct_lexicon *vocab, int64_t id, size_t *n); // NULL: none
void ct__lexicon_free(ct_lexicon *vocab);
uint64_t ct__text_hash(const char *s, size_t n);

#endif
