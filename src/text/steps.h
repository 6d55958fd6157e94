// The steps that stand around a model: normalizers, pre-tokenizers, post-processors and decoders,
// as Hugging Face's library names them. Sequences are laid out flat.
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
    CT_STEP_REPLACE, // pattern, text; a decoder as well
    CT_STEP_PREPEND, // text
    CT_STEP_PRECOMPILED,
    CT_STEP_BERT, // clean, chinese, accents, lower
    CT_STEP_NMT,
    CT_STEP_BYTES,         // ByteLevel: bytes as characters; a pre-tokenizer and decoder as well
    CT_STEP_SENTENCEPIECE, // the normalizer of .model files
    // pre-tokenizers
    CT_STEP_PREFIX_SPACE, // ByteLevel's add_prefix_space
    CT_STEP_METASPACE,    // text, scheme, split; a decoder as well
    CT_STEP_WHITESPACE_SPLIT,
    CT_STEP_BERT_SPLIT,
    CT_STEP_PUNCTUATION,  // behavior
    CT_STEP_DIGITS,       // behavior
    CT_STEP_SPLIT,        // pattern, behavior, invert
    CT_STEP_FIXED_LENGTH, // count
    // post-processors
    CT_STEP_TEMPLATE, // ids around the text
    CT_STEP_TRIM,     // ByteLevel's trim_offsets; prefix
    // decoders
    CT_STEP_WORDPIECE, // text: the prefix; cleanup
    CT_STEP_SUFFIX,    // BPEDecoder: text: the suffix
    CT_STEP_CTC,       // text: the pad token, more: the word delimiter; cleanup
    CT_STEP_BYTE_FALLBACK,
    CT_STEP_FUSE,
    CT_STEP_STRIP_CHAR,         // text: the character; count, stop
    CT_STEP_JOIN,               // words with a space between, where a file names no decoder
    CT_STEP_SENTENCEPIECE_TEXT, // the decoder of .model files
    CT_STEP_RAW,                // tokens are bytes: tiktoken's
    CT_STEP_GGML_WORDS,         // the decoder of GGUF's "bert"
} ct_step_kind;

typedef enum ct_behavior {
    CT_REMOVED,
    CT_ISOLATED,
    CT_MERGED_WITH_PREVIOUS,
    CT_MERGED_WITH_NEXT,
    CT_CONTIGUOUS,
} ct_behavior;
typedef enum ct_scheme { CT_PREPEND_ALWAYS, CT_PREPEND_FIRST, CT_PREPEND_NEVER } ct_scheme;

// SentencePiece's table of replacements: a double array and the texts it points at.
typedef struct ct_charsmap {
    const uint32_t *units;
    size_t n_units;
    const char *texts; // ended by zero bytes
    size_t n_texts;
} ct_charsmap;
// Copies the table into the arena. False: the error says what is wrong with it.
bool ct__charsmap_read(const char *place, const void *bytes, size_t n, ct_arena *arena,
                       ct_charsmap *map, ct_err *err);

// Of what two texts become together: a text, or a special token, and the kind of token that the model is told it is.
enum { CT_PAIR_FIRST = -1, CT_PAIR_SECOND = -2 };
typedef struct ct_pair_piece {
    int32_t id; // CT_PAIR_FIRST, CT_PAIR_SECOND: a text
    int32_t kind;
} ct_pair_piece;

typedef struct ct_step {
    ct_step_kind kind;
    ct_regex *pattern;
    const char *text, *more;
    size_t text_n, more_n;
    ct_behavior behavior;
    ct_scheme scheme;
    bool invert, split;                               // of splits
    bool left, right, clean, chinese, accents, lower; // of normalizers
    bool prefix, cleanup;
    uint32_t count, stop;
    ct_charsmap map;
    ct_trie *kept; // texts that a normalizer leaves as they are; NULL: none
    bool dummy_prefix, extra_spaces, escape, suffix; // of SentencePiece's: extra_spaces: they go
    const int32_t *before, *after;                   // of templates
    size_t n_before, n_after;
    const ct_pair_piece *pair; // of templates; none: it does not say
    size_t n_pair;
} ct_step;

typedef struct ct_steps {
    ct_step *v;
    size_t n, cap;
} ct_steps;

// The text is rewritten from `from` into `to`, cut by cut. False: an error.
struct ct_work;
bool ct__normalize(struct ct_work *w, const ct_step *step);
bool ct__pretokenize(struct ct_work *w, const ct_step *step);
extern const uint16_t ct__byte_chars[256]; // GPT-2's characters of bytes
int ct__byte_of_char(uint32_t cp);         // -1: it stands for no byte

// Tokens' texts become one text. Tokens' bytes end where the next begin.
typedef struct ct_word {
    const char *s;
    size_t n;
} ct_word;
typedef struct ct_words {
    ct_word *v;
    size_t n, cap;
    ct_arena arena; // of what steps write
    bool raw;       // bytes that are no UTF-8 stay as they are
} ct_words;
bool ct__decode_step(const ct_step *step, ct_words *words, ct_matcher *m, ct_hits *matches,
                     ct_err *err);

#endif
