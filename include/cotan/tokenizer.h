// Tokenizers: they encode text to token ids and decode ids to text, and are loaded from the files
// of published models; and the training of a byte-level BPE.
//
// Supported are Hugging Face's tokenizer.json (BPE, WordPiece, Unigram, WordLevel, with the
// normalizers, pre-tokenizers, post-processors and decoders around them), SentencePiece's .model,
// tiktoken's rank files, and the arrays of a GGUF file. Ids and offsets are those of the libraries
// that define the formats. Files are untrusted: a fault in one is an error with a description.
//
// Text is UTF-8 of less than 1 GiB; each run of invalid bytes is replaced by U+FFFD (one per
// maximal subpart, as the Unicode Standard recommends). Several threads may use a tokenizer at
// once; they share its word cache under a lock, so that a thread that uses it often is faster with
// a tokenizer of its own.
#ifndef COTAN_TOKENIZER_H
#define COTAN_TOKENIZER_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ct_tokenizer ct_tokenizer;

// ----------------------------------------------------------------------------------------- loading

// Loads from a directory (its tokenizer.json, or else tokenizer.model, or else *.tiktoken; with the
// special tokens of tokenizer_config.json, special_tokens_map.json and generation_config.json), or
// from one such file; from a GGUF file, or a directory that has nothing else; or makes the
// tokenizer of a run whose config.json says that tokens are bytes or characters. NULL: see
// ct_error_text.
CT_API ct_tokenizer *ct_tokenizer_load_at(const char *path, ct_loc here);
#define ct_tokenizer_load(path) ct_tokenizer_load_at((path), CT_HERE)
CT_API void ct_tokenizer_free(ct_tokenizer *tokenizer); // NULL is ignored

typedef struct ct_tiktoken_options {
    // Name of the encoding, which gives pattern and special tokens: "gpt2", "r50k", "p50k",
    // "cl100k", "o200k", "llama3"; NULL: by the name of the file.
    const char *name;
    const char *pattern; // otherwise: the regular expression that splits text
    // otherwise: the special tokens, NULL-terminated, in the order of their ids, which follow those
    // of the file.
    const char *const *specials;
    ct_loc here;
} ct_tiktoken_options;
// Loads a file of lines with a token in base64 and its rank. NULL: see ct_error_text.
//     if (!(t = ct_tokenizer_tiktoken("cl100k_base.tiktoken", .name = "cl100k"))) return 1;
CT_API ct_tokenizer *ct_tokenizer_tiktoken_with(const char *path, ct_tiktoken_options options);
#define ct_tokenizer_tiktoken(...) CT__TIKTOKEN(__VA_ARGS__, .here = CT_HERE)
#define CT__TIKTOKEN(path, ...)                                                                    \
    ct_tokenizer_tiktoken_with((path), (ct_tiktoken_options){__VA_ARGS__})

// The tokenizer's metadata in a GGUF file; the arrays are only read during the call.
typedef struct ct_gguf_vocab {
    const char *model;         // tokenizer.ggml.model: "gpt2", "llama", "bert", "t5"
    const char *pre;           // tokenizer.ggml.pre, the pre-tokenizer of "gpt2"; NULL: "default"
    const char *const *tokens; // (n) tokenizer.ggml.tokens
    const size_t *lengths;     // (n) their bytes; NULL: they are terminated by a zero byte
    size_t n;
    const float *scores;       // tokenizer.ggml.scores; NULL: none
    const int32_t *types;      // tokenizer.ggml.token_type; NULL: all are normal
    const char *const *merges; // tokenizer.ggml.merges, "left right"
    size_t n_merges;
    const void *charsmap; // tokenizer.ggml.precompiled_charsmap
    size_t charsmap_n;
    int64_t bos, eos, unk, pad; // -1: not in the file; unk of "llama": 0 if it is not in the file
    int add_bos, add_eos, add_space_prefix, remove_extra_whitespaces; // 1, 0; -1: not in the file
} ct_gguf_vocab;
// NULL: see ct_error_text.
CT_API ct_tokenizer *ct_tokenizer_from_gguf_at(const ct_gguf_vocab *vocab, ct_loc here);
#define ct_tokenizer_from_gguf(vocab) ct_tokenizer_from_gguf_at((vocab), CT_HERE)

// -------------------------------------------------------------------------------------- vocabulary

// Returns the number of ids: the largest id plus one. 0 for NULL.
CT_API int64_t ct_tokenizer_size(const ct_tokenizer *tokenizer);
// Returns the token as its file writes it ("\xc4\xa0the"); valid as long as the tokenizer. n (may
// be NULL): its number of bytes, which may include zero bytes. NULL: there is no such id.
CT_API const char *ct_tokenizer_piece(const ct_tokenizer *tokenizer, int64_t id, size_t *n);
// Returns the id of a token as its file writes it; -1: there is none.
CT_API int64_t ct_tokenizer_id(const ct_tokenizer *tokenizer, const char *piece, size_t n);
// True for a special token, which decoding may skip.
CT_API bool ct_tokenizer_is_special(const ct_tokenizer *tokenizer, int64_t id);

typedef enum ct_token_role {
    CT_BOS, // beginning of a sequence
    CT_EOS, // end of a sequence
    CT_UNK, // unknown
    CT_PAD, // padding
    CT_TOKEN_ROLES
} ct_token_role;
// Returns the id of the token; -1: the files name none.
CT_API int64_t ct_tokenizer_special(const ct_tokenizer *tokenizer, ct_token_role which);
// Returns the number of EOS tokens (a list in generation_config.json) and writes the first
// `capacity` of them to ids (may be NULL).
CT_API size_t ct_tokenizer_eos_ids(const ct_tokenizer *tokenizer, int64_t *ids, size_t capacity);

// ---------------------------------------------------------------------------------------- encoding

typedef struct ct_token_span { // half-open range of the text
    uint32_t begin, end;
} ct_token_span;
// Zero it first ({0}); its memory is reused from call to call.
typedef struct ct_encoding {
    int32_t *ids; // (n)
    size_t n;
    // (n) the range of the text that each token covers, with the option offsets; 0, 0 for an added
    // token.
    ct_token_span *bytes, *chars;
    bool *special_mask; // (n) true for added tokens (BOS, EOS), which cover no text
    size_t capacity[4]; // capacities of the arrays
} ct_encoding;
typedef struct ct_encode_options {
    bool add_special;   // adds the special tokens of the file's template
    bool split_special; // encodes special tokens in the text as ordinary text
    bool offsets;       // fills bytes, chars and special_mask
    ct_loc here;
} ct_encode_options;
// Encodes a text. False: see ct_error_text.
//     ct_encoding e = {0};
//     if (!ct_tokenizer_encode(t, text, strlen(text), &e, .add_special = true)) return 1;
//     ct_encoding_free(&e);
CT_API CT_MUST_USE bool ct_tokenizer_encode_with(const ct_tokenizer *tokenizer, const char *text,
                                                 size_t n, ct_encoding *encoding,
                                                 ct_encode_options options);
#define ct_tokenizer_encode(tokenizer, text, n, ...)                                               \
    CT__ENCODE(tokenizer, text, n, __VA_ARGS__, .here = CT_HERE)
#define CT__ENCODE(tokenizer, text, n, encoding, ...)                                              \
    ct_tokenizer_encode_with((tokenizer), (text), (n), (encoding), (ct_encode_options){__VA_ARGS__})
CT_API void ct_encoding_free(ct_encoding *encoding); // zeroes it, too; NULL is ignored

// ---------------------------------------------------------------------------------------- decoding

// Decodes tokens to text. The results belong to it and are valid until its next call; NULL: see
// ct_error_text. n (may be NULL): number of bytes. One thread at a time may use it. The tokenizer
// must outlive it.
typedef struct ct_decoder ct_decoder;
CT_API ct_decoder *ct_decoder_new_at(const ct_tokenizer *tokenizer, bool skip_special, ct_loc here);
#define ct_decoder_new(tokenizer, skip_special)                                                    \
    ct_decoder_new_at((tokenizer), (skip_special), CT_HERE)
CT_API void ct_decoder_free(ct_decoder *decoder); // NULL is ignored
// Decodes all of these tokens.
CT_API const char *ct_decoder_all(ct_decoder *decoder, const int32_t *ids, size_t count, size_t *n);
// Decodes to bytes: an incomplete character, which ct_decoder_all replaces by U+FFFD, is kept. The
// result is not terminated by a zero byte.
CT_API const char *ct_decoder_bytes(ct_decoder *decoder, const int32_t *ids, size_t count,
                                    size_t *n);
// Streaming: returns the text that one more token adds, in whole characters; "" while a character
// is incomplete.
CT_API const char *ct_decoder_next(ct_decoder *decoder, int32_t id, size_t *n);
// Returns what was held back, if anything; the next token begins a new text.
CT_API const char *ct_decoder_end(ct_decoder *decoder, size_t *n);

// ---------------------------------------------------------------------------------------- training

typedef struct ct_bpe_progress {
    const char *stage; // "read", "merge"
    int64_t done, all; // bytes of the files; tokens of the vocabulary
} ct_bpe_progress;
typedef struct ct_bpe_options {
    int64_t vocab_size;    // number of tokens, at least 256 plus the special tokens; default 8192
    int64_t min_frequency; // pairs with a lower frequency are not merged; default 2
    // Special tokens, NULL-terminated, which get the first ids; default "<|endoftext|>".
    const char *const *specials;
    void (*progress)(const ct_bpe_progress *progress, void *user);
    // Returning true writes nothing and gives the error CT_E_INTERRUPTED.
    bool (*should_stop)(void *user);
    void *user;
    ct_loc here;
} ct_bpe_options;
// Trains a byte-level BPE (GPT-2's) on n text files and writes it as tokenizer.json into a
// directory, which is created if it does not exist. The merges are those of Hugging Face's trainer,
// whose library can read the file. False: see ct_error_text.
//     if (!ct_train_bpe("run", paths, 2, .vocab_size = 8192)) return 1;
CT_API CT_MUST_USE bool ct_train_bpe_with(const char *folder, const char *const *paths, size_t n,
                                          ct_bpe_options options);
#define ct_train_bpe(folder, paths, ...) CT__TRAIN_BPE(folder, paths, __VA_ARGS__, .here = CT_HERE)
#define CT__TRAIN_BPE(folder, paths, n, ...)                                                       \
    ct_train_bpe_with((folder), (paths), (n), (ct_bpe_options){__VA_ARGS__})

#ifdef __cplusplus
}
#endif

#endif
