// Sets of strings that are matched from their first byte on, and tables of strings with ids.
#ifndef COTAN_TEXT_TRIE_H
#define COTAN_TEXT_TRIE_H

#include "base/error.h"
#include "base/mem.h"

// The children of a node are in a hash table keyed by (node, byte); node 0 is the root.
typedef struct ct_trie {
    uint64_t *slots; // (node + 1) << 40 | byte << 32 | child; 0: empty
    int32_t *values; // by node; -1: no string ends here
    size_t n_slots, n_nodes, cap, used;
    uint32_t root[256]; // children of the root by byte; 0: none
    bool single;        // a string that is added again keeps its first value
} ct_trie;

bool ct__trie_add(ct_trie *trie, const char *s, size_t n, int32_t value); // false: no memory
void ct__trie_free(ct_trie *trie);

// Returns the child of a node; 0: none.
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
// Returns the length in bytes of the longest string that s begins with, 0: none. *value: its value.
size_t ct__trie_longest(const ct_trie *trie, const char *s, size_t n, int32_t *value);

// Strings with ids, found by either.
typedef struct ct_lexicon {
    char *bytes;
    size_t n_bytes, bytes_cap;
    uint32_t *at; // (n) offset of each string in bytes
    uint32_t *lengths;
    int32_t *ids; // (n)
    size_t n, at_cap, lengths_cap, ids_cap;
    uint32_t *slots; // hash table: index of a string plus one; 0: empty
    size_t n_slots;
    int32_t *by_id; // index of the string of an id; -1: none
    size_t n_ids, by_id_cap;
} ct_lexicon;
enum { CT_MAX_IDS = 1 << 24 };
// Of equal strings the id of the last is found, of equal ids the last string. id < CT_MAX_IDS.
bool ct__lexicon_add(ct_lexicon *vocab, const char *s, size_t n, int32_t id);
int32_t ct__lexicon_id(const ct_lexicon *vocab, const char *s, size_t n);     // -1: none
const char *ct__lexicon_text(const ct_lexicon *vocab, int64_t id, size_t *n); // NULL: none
void ct__lexicon_free(ct_lexicon *vocab);
uint64_t ct__text_hash(const char *s, size_t n);

#endif
