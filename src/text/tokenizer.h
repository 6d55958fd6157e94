// A tokenizer, and the workspace of one encoding.
#ifndef COTAN_TEXT_TOKENIZER_H
#define COTAN_TEXT_TOKENIZER_H

#include <stdatomic.h>

#include "base/text.h"
#include "text/steps.h"

struct json_t;

typedef enum ct_model_kind {
    CT_MODEL_BPE,
    CT_MODEL_UNIGRAM,
    CT_MODEL_WORDPIECE,
    CT_MODEL_WORDLEVEL
} ct_model_kind;

typedef struct ct_merge {
    uint64_t pair; // left << 32 | right; UINT64_MAX: empty
    uint32_t rank;
    int32_t id;
} ct_merge;

typedef struct ct_model {
    ct_model_kind kind;
    ct_lexicon vocab;
    int32_t unk; // -1: none
    // BPE
    ct_merge *merges; // hash table by pair
    size_t n_merges;
    const char *prefix, *suffix; // continuing_subword_prefix, end_of_word_suffix; NULL: none
    size_t prefix_n, suffix_n;
    bool fuse_unk, byte_fallback, ignore_merges;
    bool bytes;     // words are split into bytes, not characters: ByteLevel, tiktoken
    bool raw_bytes; // tokens are stored as raw bytes, not in GPT-2's characters (tiktoken)
    int32_t first_partial_id; // ids from here on are parts of tokens, not tokens
    bool space_starts_word;   // no merge joins U+2581 to the text before it
    int32_t byte_ids[256];    // tokens of GPT-2's characters, or of <0x00> ...; -1: none
    // Unigram and WordPiece
    ct_trie trie;
    bool trie_built;
    double *scores;
    bool *unused, *user_defined; // SentencePiece's piece types; NULL: none
    double unk_score, max_score; // max_score: the highest score of a piece
    bool float_scores;           // scores are added as floats, as in SentencePiece
    uint32_t prefix_node;        // WordPiece: the trie node after the prefix
    uint32_t max_word_chars;     // WordPiece: characters; longer words are unknown
} ct_model;

typedef struct ct_added {
    const char *text;
    size_t n;
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
    const char *normal; // its text after the normalizers
    size_t normal_n;
    bool literal, hidden; // literal: matched before the normalizers; hidden: never matched in text
} ct_added;

struct ct_tokenizer {
    ct_arena arena;
    char *label; // the name in messages: the path
    ct_model model;
    ct_steps normalizers, pretokenizers, processors, decoders;
    ct_added *added; // in no order
    size_t n_added, added_cap;
    ct_lexicon added_vocab; // their texts
    int32_t *added_by_id;   // index plus one, for ids below n_added_ids
    size_t n_added_ids;
    ct_trie added_trie, added_normalized_trie; // indices of added tokens
    ct_regex *word_char_regex; // matches one word character; NULL: no added token needs it
    bool needs_offsets;        // a step asks whether a split is at the start of the text
    bool single_type_id;       // the model gets no token type ids: all are 0
    int64_t n_ids;
    int64_t special[CT_TOKEN_ROLES];
    int64_t *eos_ids;
    size_t n_eos_ids, eos_ids_cap;
    struct ct_work *work; // reused by one thread at a time
    atomic_flag work_in_use;
};

typedef struct ct_token {
    int32_t id;
    uint32_t begin, end; // byte range in the original
    bool added;
} ct_token;

typedef struct ct_symbol {
    int32_t id;         // -1: merged into the previous one; ids from n_ids on are not tokens
    uint32_t n;         // bytes
    int32_t prev, next; // -1: none
} ct_symbol;
typedef struct ct_merge_candidate { // a possible merge in the queue
    uint32_t rank, at;
    int32_t id;
} ct_merge_candidate;
typedef struct ct_unigram_best { // the best segmentation of the text up to a byte
    double score;
    uint32_t begin;
    int32_t id;
} ct_unigram_best;
typedef struct ct_part { // a token of a word, with its length in bytes
    int32_t id;
    uint32_t n;
} ct_part;

// Tokenized words; cleared when full.
typedef struct ct_word_cache {
    struct ct_cached {
        uint64_t hash;
        uint32_t key, key_n, parts, n; // offsets in bytes and parts; key_n 0: empty
    } * slots;
    size_t used;
    char *bytes;
    size_t n_bytes, bytes_cap;
    ct_part *parts;
    size_t n_parts, parts_cap;
} ct_word_cache;

typedef struct ct_work {
    const ct_tokenizer *t;
    ct_err *err;
    // The current text: view, n bytes, in buffers[which] or the caller's.
    ct_view view;
    uint32_t n;
    ct_aligned buffers[2];
    int which;
    bool tracked;
    ct_splits splits, next;
    ct_regex_matches matches;
    ct_matcher matcher;
    uint32_t *chars; // of a normalizer
    int32_t *changes;
    size_t chars_cap, changes_cap;
    ct_symbol *symbols;
    ct_merge_candidate *heap;
    ct_unigram_best *best;
    size_t symbols_cap, heap_cap, best_cap, n_heap;
    ct_part *parts; // of the current word
    size_t n_parts, parts_cap;
    ct_aligned spelled; // a byte-level word in GPT-2's characters
    ct_token *tokens;
    size_t n_tokens, tokens_cap;
    ct_word_cache cache;
} ct_work;

// A step that rewrites the text: begin returns the buffer to fill, end makes it the current text.
ct_aligned *ct__work_begin_rewrite(ct_work *w);
bool ct__work_end_rewrite(ct_work *w, const char *what);
bool ct__work_add_split(ct_work *w, uint32_t begin, uint32_t end,
                        int32_t token); // appends to `next`
void ct__work_use_next(ct_work *w);

// Tokenizes a word into w->parts. False: an error.
bool ct__model_encode_word(ct_work *w, const char *s, uint32_t n);
bool ct__bpe_encode_word(ct_work *w, const char *s, uint32_t n);
bool ct__unigram_encode_word(ct_work *w, const char *s, uint32_t n);
bool ct__wordpiece_encode_word(ct_work *w, const char *s, uint32_t n);
bool ct__work_add_part(ct_work *w, int32_t id, uint32_t n);

// Construction. These functions take ownership of nothing and record an error when they fail.
ct_tokenizer *ct__tokenizer_new(const char *label, ct_err *err);
void ct__tokenizer_free(ct_tokenizer *t);
bool ct__tokenizer_memory_error(const ct_tokenizer *t,
                                ct_err *err); // reports out of memory; returns false
ct_step *ct__step_add(ct_tokenizer *t, ct_steps *steps, ct_step_kind kind, ct_err *err);
const char *ct__tokenizer_copy_string(ct_tokenizer *t, const char *s, size_t n,
                                      ct_err *err); // copies into the arena
bool ct__tokenizer_add_token(ct_tokenizer *t, const ct_added *added, ct_err *err);
// Merges (left, right, id), in the order of their ranks.
typedef struct ct_merge_rule {
    int32_t left, right, id;
    uint32_t rank;
} ct_merge_rule;
bool ct__bpe_set_merges(ct_tokenizer *t, const ct_merge_rule *v, size_t n, ct_err *err);
// Sets all pairs of pieces that make a piece as merges, ranked by that piece (ranks: by id;
// UINT32_MAX: never made). Characters, or bytes, that are not pieces themselves get ids after all
// others.
bool ct__bpe_set_merges_by_rank(ct_tokenizer *t, const uint32_t *ranks, ct_err *err);
// Builds the tries and tables once everything is read.
bool ct__tokenizer_finish(ct_tokenizer *t, ct_err *err);

bool ct__work_encode(ct_work *w, const char *text, size_t n, const ct_encode_options *options);
void ct__work_free(ct_work *w);

// Read from the bytes of a file (a JSON text may be modified). False: an error. ct__tokenizer_pair
// returns the template of a pair of texts, n items. NULL: the file has none.
const ct_pair_piece *ct__tokenizer_pair(const ct_tokenizer *t, size_t *n);
bool ct__tokenizer_read_json(ct_tokenizer *t, char *text, size_t n, ct_err *err);
bool ct__tokenizer_read_sentencepiece(ct_tokenizer *t, const void *bytes, size_t n, ct_err *err);
bool ct__tokenizer_read_tiktoken(ct_tokenizer *t, const char *text, size_t n,
                                 const ct_tiktoken_options *options, ct_err *err);
bool ct__tokenizer_read_gguf(ct_tokenizer *t, const ct_gguf_vocab *vocab, ct_err *err);
// Reads the tokens that a folder without tokenizer.json adds, from tokenizer_config.json and
// added_tokens.json.
bool ct__tokenizer_read_added(ct_tokenizer *t, const char *folder, ct_err *err);
bool ct__tokenizer_read_specials(ct_tokenizer *t, const char *folder, ct_err *err);
// Trains a BPE and writes its tokenizer.json (`tokenizer`) and tokenizer_config.json (`config`).
bool ct__train_bpe(const char *const *paths, size_t n, const ct_bpe_options *options,
                   ct_text *tokenizer, ct_text *config, ct_err *err);
// "gpt2": ByteLevel's own pattern; NULL: an unknown name.
const char *ct__pattern_by_name(const char *name);
extern const char ct__gpt2_pattern[];
// Decodes Base64, padded or not. -1: invalid.
int64_t ct__base64(const char *s, size_t n, unsigned char *out);

#endif
