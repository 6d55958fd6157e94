// The steps before and after a model: normalizers, pre-tokenizers, post-processors and decoders,
// named as in Hugging Face's library. Sequences are flattened.
#ifndef COTAN_TEXT_STEPS_H
#define COTAN_TEXT_STEPS_H

#include "text/text.h"
#include "text/trie.h"

typedef enum ct_step_kind {
    // normalizers
    CT_STEP_NFC,
    CT_STEP_NFD,
    CT_STEP_NFKC,
    CT_STEP_NFKD,
    CT_STEP_LOWERCASE,
    CT_STEP_STRIP, // left, right
    CT_STEP_STRIP_ACCENTS,
    CT_STEP_REPLACE, // pattern, text; also a decoder
    CT_STEP_PREPEND, // text
    CT_STEP_PRECOMPILED,
    CT_STEP_BERT, // clean, chinese, accents, lower
    CT_STEP_NMT,
    CT_STEP_BYTES,         // ByteLevel: bytes as characters; also a pre-tokenizer and a decoder
    CT_STEP_SENTENCEPIECE, // the normalizer of SentencePiece's .model files
    // pre-tokenizers
    CT_STEP_PREFIX_SPACE, // ByteLevel's add_prefix_space
    CT_STEP_METASPACE,    // text, scheme, split; also a decoder
    CT_STEP_WHITESPACE_SPLIT,
    CT_STEP_BERT_SPLIT,
    CT_STEP_PUNCTUATION,  // behavior
    CT_STEP_DIGITS,       // behavior
    CT_STEP_SPLIT,        // pattern, behavior, invert
    CT_STEP_FIXED_LENGTH, // count
    // post-processors
    CT_STEP_TEMPLATE, // token ids around the text
    CT_STEP_TRIM,     // ByteLevel's trim_offsets; prefix
    // decoders
    CT_STEP_WORDPIECE, // text: the prefix; cleanup
    CT_STEP_SUFFIX,    // BPEDecoder: text: the suffix
    CT_STEP_CTC,       // text: the pad token, delimiter: the word delimiter; cleanup
    CT_STEP_BYTE_FALLBACK,
    CT_STEP_FUSE,
    CT_STEP_STRIP_CHAR,         // text: the character; count, stop
    CT_STEP_JOIN,               // words separated by spaces, where a file names no decoder
    CT_STEP_SENTENCEPIECE_TEXT, // the decoder of SentencePiece's .model files
    CT_STEP_RAW,                // tokens are bytes (tiktoken)
    CT_STEP_GGML_WORDS,         // the decoder of GGUF's "bert"
} ct_step_kind;

typedef enum ct_split_behavior {
    CT_REMOVED,
    CT_ISOLATED,
    CT_MERGED_WITH_PREVIOUS,
    CT_MERGED_WITH_NEXT,
    CT_CONTIGUOUS,
} ct_split_behavior;
typedef enum ct_prepend_scheme {
    CT_PREPEND_ALWAYS,
    CT_PREPEND_FIRST,
    CT_PREPEND_NEVER
} ct_prepend_scheme;

// SentencePiece's table of replacements: a double-array trie and the strings that it refers to.
typedef struct ct_charsmap {
    const uint32_t *units;
    size_t n_units;
    const char *texts; // each ended by a zero byte
    size_t n_texts;
} ct_charsmap;
// Copies the table into the arena. False: the error says what is wrong with the table.
bool ct__charsmap_read(const char *label, const void *bytes, size_t n, ct_arena *arena,
                       ct_charsmap *map, ct_err *err);

// An item of the template of a pair of texts: a text or a special token, and its token type id.
enum { CT_PAIR_FIRST = -1, CT_PAIR_SECOND = -2 };
typedef struct ct_pair_piece {
    int32_t id; // CT_PAIR_FIRST or CT_PAIR_SECOND: a text
    int32_t kind;
} ct_pair_piece;

typedef struct ct_step {
    ct_step_kind kind;
    ct_regex *pattern;
    const char *text, *delimiter;
    size_t text_n, delimiter_n;
    ct_split_behavior behavior;
    ct_prepend_scheme scheme;
    bool invert, split;                               // for splits
    bool left, right, clean, chinese, accents, lower; // for normalizers
    bool prefix, cleanup;
    uint32_t count, stop;
    ct_charsmap map;
    ct_trie *unchanged; // strings that the normalizer does not change; NULL: none
    bool dummy_prefix, remove_extra_spaces, escape, suffix; // for SentencePiece
    const int32_t *before, *after;                          // for templates
    size_t n_before, n_after;
    const ct_pair_piece *pair; // for templates; none: the file has no template for pairs
    size_t n_pair;
} ct_step;

typedef struct ct_steps {
    ct_step *v;
    size_t n, cap;
} ct_steps;

// Rewrites the text from `from` into `to`, split by split. False: an error.
struct ct_work;
bool ct__normalize(struct ct_work *w, const ct_step *step);
bool ct__pretokenize(struct ct_work *w, const ct_step *step);
extern const uint16_t ct__byte_chars[256]; // GPT-2's character for each byte
int ct__byte_of_char(uint32_t cp);         // -1: no byte has this character

// Decodes the texts of tokens into one text. The bytes of a token end where those of the next
// begin.
typedef struct ct_token_text {
    const char *s;
    size_t n;
} ct_token_text;
typedef struct ct_token_texts {
    ct_token_text *v;
    size_t n, cap;
    ct_arena arena; // for the output of steps
    bool raw;       // bytes that are not UTF-8 are kept
} ct_token_texts;
bool ct__decode_step(const ct_step *step, ct_token_texts *words, ct_matcher *m,
                     ct_regex_matches *matches, ct_err *err);

#endif
