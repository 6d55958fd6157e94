// Tokenizers: text as token ids and back, by the files that models come with; and the training of a
// byte-level BPE.
//
// Read are Hugging Face's tokenizer.json (BPE, WordPiece, Unigram, WordLevel, with all that stands
// around them), SentencePiece's .model, tiktoken's rank files, and the arrays of a GGUF file. Ids and offsets
// are those of the libraries that define the formats. Files are taken as hostile: what is wrong
// with one is an error in words.
//
// Text is UTF-8 of less than 1 GiB; each run of bytes that is none is taken as U+FFFD (one for a
// maximal subpart, as the Unicode Standard recommends). A tokenizer may be used by several threads at once; they
// share its cache of words one at a time, so a thread that uses it often is faster with one of its own.
#ifndef COTAN_TOKENIZER_H
#define COTAN_TOKENIZER_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ct_tokenizer ct_tokenizer;

// ----------------------------------------------------------------------------------------- loading

// From a folder (its tokenizer.json, or else tokenizer.model, or else *.tiktoken; and what tokenizer_config.json,
// special_tokens_map.json and generation_config.json say of special tokens), or from one such file; or from a GGUF
// file, or a folder that has nothing else; or that of a run whose config.json says that tokens are bytes or characters. NULL: see ct_error_text.
CT_API ct_tokenizer *ct_tokenizer_load_at(const char *path, ct_loc here);
#define ct_tokenizer_load(path) ct_tokenizer_load_at((path), CT_HERE)
CT_API void ct_tokenizer_free(ct_tokenizer *tokenizer); // NULL: nothing

typedef struct ct_tiktoken_options {
    const char *name;    // of the encoding, which gives pattern and special tokens: "gpt2", "r50k",
                         // "p50k", "cl100k", "o200k", "llama3"; NULL: by the file's name
    const char *pattern; // else: by which text is split, a regular expression
    const char *const *specials; // and the special tokens, NULL-terminated, in the order of their
                                 // ids, which follow the file's
    ct_loc here;
} ct_tiktoken_options;
// A file of lines of a token in base64 and its rank. NULL: see ct_error_text.
//     if (!(t = ct_tokenizer_tiktoken("cl100k_base.tiktoken", .name = "cl100k"))) return 1;
CT_API ct_tokenizer *ct_tokenizer_tiktoken_with(const char *path, ct_tiktoken_options options);
#define ct_tokenizer_tiktoken(...) CT__TIKTOKEN(__VA_ARGS__, .here = CT_HERE)
#define CT__TIKTOKEN(path, ...)                                                                    \
    ct_tokenizer_tiktoken_with((path), (ct_tiktoken_options){__VA_ARGS__})

// What a GGUF file says of its tokenizer; the arrays are only read during the call.
typedef struct ct_gguf_vocab {
    const char *model; // tokenizer.ggml.model: "gpt2", "llama", "bert", "t5"
    const char *pre;   // tokenizer.ggml.pre, which names how "gpt2" splits text; NULL: "default"
    const char *const *tokens; // tokenizer.ggml.tokens, n of them
    const size_t *lengths;     // their bytes; NULL: they end with a zero byte
    size_t n;
    const float *scores;       // tokenizer.ggml.scores; NULL: none
    const int32_t *types;      // tokenizer.ggml.token_type; NULL: all normal
    const char *const *merges; // tokenizer.ggml.merges, "left right"
    size_t n_merges;
    const void *charsmap; // tokenizer.ggml.precompiled_charsmap
    size_t charsmap_n;
    int64_t bos, eos, unk, pad; // -1: the file names none; unk of "llama": 0 where it names none
    int add_bos, add_eos, add_space_prefix, remove_extra_whitespaces; // 1, 0; -1: not said
} ct_gguf_vocab;
// NULL: see ct_error_text.
CT_API ct_tokenizer *ct_tokenizer_from_gguf_at(const ct_gguf_vocab *vocab, ct_loc here);
#define ct_tokenizer_from_gguf(vocab) ct_tokenizer_from_gguf_at((vocab), CT_HERE)

// -------------------------------------------------------------------------------------- vocabulary

// The number of ids: the largest and one. 0: no tokenizer.
CT_API int64_t ct_tokenizer_size(const ct_tokenizer *tokenizer);
// The token as its file writes it ("\xc4\xa0the"); valid as long as the tokenizer. n (may be NULL): its bytes, which
// may hold zeros. NULL: there is none of this id.
CT_API const char *ct_tokenizer_piece(const ct_tokenizer *tokenizer, int64_t id, size_t *n);
// The id of a token as its file writes it; -1: there is none.
CT_API int64_t ct_tokenizer_id(const ct_tokenizer *tokenizer, const char *piece, size_t n);
// Is it a special token, which decoding may leave out?
CT_API bool ct_tokenizer_is_special(const ct_tokenizer *tokenizer, int64_t id);

typedef enum ct_token_role {
    CT_BOS, // begins a text
    CT_EOS, // ends it
    CT_UNK, // is unknown
    CT_PAD, // fills
    CT_TOKEN_ROLES
} ct_token_role;
// The id of the token; -1: the files name none.
CT_API int64_t ct_tokenizer_special(const ct_tokenizer *tokenizer, ct_token_role which);
// All tokens that end what a model writes (a list in generation_config.json); their number. Of ids
// (may be NULL) the first cap are filled.
CT_API size_t ct_tokenizer_ends(const ct_tokenizer *tokenizer, int64_t *ids, size_t cap);

// ---------------------------------------------------------------------------------------- encoding

typedef struct ct_token_span { // of the text, half-open
    uint32_t begin, end;
} ct_token_span;
// Zero it first ({0}); it keeps its memory from call to call.
typedef struct ct_encoding {
    int32_t *ids; // n of them
    size_t n;
    ct_token_span *bytes, *chars; // where in the text each token comes from, where that was asked
                                  // for; 0, 0 of a token that was added
    bool *added;                  // was it added (begin, end), and stands for no text?
    size_t cap[4];                // how many the arrays have room for
} ct_encoding;
typedef struct ct_encode_options {
    bool add_special; // the tokens that the file puts around a text
    bool plain;       // special tokens that stand in the text are text
    bool offsets;     // fill bytes, chars and added
    ct_loc here;
} ct_encode_options;
// False: see ct_error_text.
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
CT_API void ct_encoding_free(ct_encoding *encoding); // and zeroes it; NULL: nothing

// ---------------------------------------------------------------------------------------- decoding

// Text from tokens. What it returns belongs to it and is valid until its next call; NULL: see
// ct_error_text. n (may be NULL): its bytes. One thread at a time; not longer than the tokenizer.
typedef struct ct_decoder ct_decoder;
CT_API ct_decoder *ct_decoder_new_at(const ct_tokenizer *tokenizer, bool skip_special, ct_loc here);
#define ct_decoder_new(tokenizer, skip_special)                                                    \
    ct_decoder_new_at((tokenizer), (skip_special), CT_HERE)
CT_API void ct_decoder_free(ct_decoder *decoder); // NULL: nothing
// The text of all these tokens.
CT_API const char *ct_decoder_all(ct_decoder *decoder, const int32_t *ids, size_t count, size_t *n);
// Their bytes: a part of a character, which ct_decoder_all shows as U+FFFD, stays as it is. No zero byte ends them.
CT_API const char *ct_decoder_bytes(ct_decoder *decoder, const int32_t *ids, size_t count,
                                    size_t *n);
// As they come: what one more token adds, in whole characters; "" while one is incomplete.
CT_API const char *ct_decoder_next(ct_decoder *decoder, int32_t id, size_t *n);
// What has been held back, if anything; the next token begins a new text.
CT_API const char *ct_decoder_end(ct_decoder *decoder, size_t *n);

// ---------------------------------------------------------------------------------------- training

typedef struct ct_bpe_progress {
    const char *stage; // "read", "merge"
    int64_t done, all; // bytes of the files; tokens of the vocabulary
} ct_bpe_progress;
typedef struct ct_bpe_options {
    int64_t vocab_size;    // tokens, at least 256 and the special ones; default 8192
    int64_t min_frequency; // pairs that are rarer are not merged; default 2
    // Special tokens, NULL-terminated, the first ids; default "<|endoftext|>".
    const char *const *specials;
    void (*progress)(const ct_bpe_progress *at, void *user);
    bool (*stop)(void *user); // true: nothing is written, the error is CT_E_INTERRUPTED
    void *user;
    ct_loc here;
} ct_bpe_options;
// Learns a byte-level BPE (GPT-2's) from n files of text, and writes it as tokenizer.json into a folder, which is made
// where it is missing. The merges are those of Hugging Face's trainer, and its library reads the
// file. False: see ct_error_text.
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
