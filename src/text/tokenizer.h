// A tokenizer, and the memory of one encoding.
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
    ct_merge *merges; // a table by pair
    size_t n_merges;
    const char *prefix, *suffix; // continuing_subword_prefix, end_of_word_suffix; NULL: none
    size_t prefix_n, suffix_n;
    bool fuse_unk, byte_fallback, ignore_merges;
    bool bytes;            // words are bytes, not characters: ByteLevel, tiktoken
    bool raw;              // and tokens are written so, not as GPT-2's characters (tiktoken)
    int32_t first_part;    // ids from here on are parts of tokens, and no tokens
    bool at_spaces;        // no merge joins U+2581 to what stands before it
    int32_t byte_ids[256]; // of GPT-2's characters, or of <0x00> ...; -1: none
    // Unigram and WordPiece
    ct_trie trie;
    bool trie_made;
    double *scores;
    bool *unused, *user_defined; // of SentencePiece's; NULL: none
    double unk_score, most;      // most: the highest score of a piece
    bool single;                 // scores are added as floats, as SentencePiece does
    uint32_t prefix_node;        // WordPiece: where the prefix ends in the trie
    uint32_t longest;            // WordPiece: characters of a word that is looked at
} ct_model;

typedef struct ct_added {
    const char *text;
    size_t n;
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
    const char *normal; // its text as the normalizers leave it
    size_t normal_n;
    bool literal, hidden; // literal: the normalizers do not see it; hidden: it is not found in text
} ct_added;

struct ct_tokenizer {
    ct_arena arena;
    char *place; // what messages call it: the path
    ct_model model;
    ct_steps normalizers, pretokenizers, processors, decoders;
    ct_added *added; // by no order
    size_t n_added, added_cap;
    ct_lexicon added_vocab; // their texts
    int32_t *added_by_id;   // index and one, below n_added_ids
    size_t n_added_ids;
    ct_trie plain, normalized; // of added tokens: indices
    ct_regex *word;            // one character of a word; NULL: no added token asks
    bool needs_origins;        // a step asks whether a cut begins the text
    bool one_kind;             // the model is not told which of two texts a token is of
    int64_t n_ids;
    int64_t special[CT_TOKEN_ROLES];
    int64_t *ends;
    size_t n_ends, ends_cap;
    struct ct_work *work; // for whoever comes first
    atomic_flag taken;
};

typedef struct ct_token {
    int32_t id;
    uint32_t begin, end; // bytes of the original
    bool added;
} ct_token;

typedef struct ct_symbol {
    int32_t id;         // -1: merged into the one before; ids from n_ids on are no tokens
    uint32_t n;         // its bytes
    int32_t prev, next; // -1: none
} ct_symbol;
typedef struct ct_due { // a merge that waits
    uint32_t rank, at;
    int32_t id;
} ct_due;
typedef struct ct_best { // of the texts that end at a byte
    double score;
    uint32_t begin;
    int32_t id;
} ct_best;
typedef struct ct_part { // a token of a word, by its bytes
    int32_t id;
    uint32_t n;
} ct_part;

// Words that were looked up; all go when there are too many.
typedef struct ct_word_cache {
    struct ct_cached {
        uint64_t hash;
        uint32_t key, key_n, parts, n; // places in bytes and parts; key_n 0: empty
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
    // The text as it is now: view of n bytes, in buffers[which] or the caller's.
    ct_view view;
    uint32_t n;
    ct_aligned buffers[2];
    int which;
    bool tracked;
    ct_cuts cuts, next;
    ct_hits matches;
    ct_matcher matcher;
    uint32_t *chars; // of a normalizer
    int32_t *changes;
    size_t chars_cap, changes_cap;
    ct_symbol *symbols;
    ct_due *heap;
    ct_best *best;
    size_t symbols_cap, heap_cap, best_cap, n_heap;
    ct_part *parts; // of the word at hand
    size_t n_parts, parts_cap;
    ct_aligned spelled; // a word of bytes as GPT-2's characters
    ct_token *tokens;
    size_t n_tokens, tokens_cap;
    ct_word_cache cache;
} ct_work;

// Steps that write the text anew: the buffer to fill, and afterwards the change over to it.
ct_aligned *ct__work_begin(ct_work *w);
bool ct__work_end(ct_work *w, const char *what);
bool ct__work_cut(ct_work *w, uint32_t begin, uint32_t end, int32_t token); // into `next`
void ct__work_take_next(ct_work *w);

// The parts of a word, into w->parts. False: an error.
bool ct__model_word(ct_work *w, const char *s, uint32_t n);
bool ct__bpe_word(ct_work *w, const char *s, uint32_t n);
bool ct__unigram_word(ct_work *w, const char *s, uint32_t n);
bool ct__wordpiece_word(ct_work *w, const char *s, uint32_t n);
bool ct__work_part(ct_work *w, int32_t id, uint32_t n);

// Making one. All take ownership of nothing, and record an error when they fail.
ct_tokenizer *ct__tokenizer_new(const char *place, ct_err *err);
void ct__tokenizer_free(ct_tokenizer *t);
bool ct__tokenizer_memory(const ct_tokenizer *t, ct_err *err); // the error that there is none
ct_step *ct__step_add(ct_tokenizer *t, ct_steps *steps, ct_step_kind kind, ct_err *err);
const char *ct__tokenizer_keep(ct_tokenizer *t, const char *s, size_t n, ct_err *err); // a copy
bool ct__tokenizer_add(ct_tokenizer *t, const ct_added *added, ct_err *err);
// Merges as (left, right, id) in the order of their ranks.
typedef struct ct_triple {
    int32_t left, right, id;
    uint32_t rank;
} ct_triple;
bool ct__bpe_merges(ct_tokenizer *t, const ct_triple *v, size_t n, ct_err *err);
// All pairs of pieces that make a piece, by its rank (of ranks, by id; UINT32_MAX: never made).
// Characters, or bytes, of pieces that are none themselves get ids behind all.
bool ct__bpe_from_ranks(ct_tokenizer *t, const uint32_t *ranks, ct_err *err);
// When all is there: tries, tables, what follows from the rest.
bool ct__tokenizer_finish(ct_tokenizer *t, ct_err *err);

bool ct__work_encode(ct_work *w, const char *text, size_t n, const ct_encode_options *options);
void ct__work_free(ct_work *w);

// From files' bytes (JSON's may be changed). False: an error.
// How two texts stand together, and what around them: n pieces. NULL: the file does not say.
const ct_pair_piece *ct__tokenizer_pair(const ct_tokenizer *t, size_t *n);
bool ct__tokenizer_read_json(ct_tokenizer *t, char *text, size_t n, ct_err *err);
bool ct__tokenizer_read_sentencepiece(ct_tokenizer *t, const void *bytes, size_t n, ct_err *err);
bool ct__tokenizer_read_tiktoken(ct_tokenizer *t, const char *text, size_t n,
                                 const ct_tiktoken_options *options, ct_err *err);
bool ct__tokenizer_read_gguf(ct_tokenizer *t, const ct_gguf_vocab *vocab, ct_err *err);
// Tokens that a folder without tokenizer.json adds to its model's: tokenizer_config.json's and added_tokens.json's.
bool ct__tokenizer_read_added(ct_tokenizer *t, const char *folder, ct_err *err);
bool ct__tokenizer_read_specials(ct_tokenizer *t, const char *folder, ct_err *err);
// The files of what ct_train_bpe learns: tokenizer.json, and tokenizer_config.json beside it.
bool ct__train_bpe(const char *const *paths, size_t n, const ct_bpe_options *options, ct_text *file,
                   ct_text *beside, ct_err *err);
// "gpt2": ByteLevel's own pattern; NULL: not a name that is known.
const char *ct__pattern_named(const char *name);
extern const char ct__gpt2_pattern[];
// Base64, padded or not; -1: it is not.
int64_t ct__base64(const char *s, size_t n, unsigned char *out);

#endif
