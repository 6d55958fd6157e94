// Text as tokens: corpora from files, folders and globs, vocabularies, prompts in and text out.
#ifndef COTAN_DATA_CORPUS_H
#define COTAN_DATA_CORPUS_H

#include "base/error.h"
#include "base/text.h"

typedef enum ct_tokens {
    CT_TOKENS_BYTES, // a token a byte, 256 of them
    CT_TOKENS_CHARS, // a token a Unicode code point that occurs in the corpus
    CT_TOKENS_LATER, // none yet: the files are listed, for a tokenizer to read
} ct_tokens;

typedef struct ct_vocab {
    ct_tokens kind;
    int32_t n;       // number of tokens
    uint32_t *chars; // chars only: the n code points, ascending; token i is chars[i]
} ct_vocab;

typedef struct ct_corpus {
    ct_vocab vocab;
    int32_t *tokens;
    size_t n;       // tokens
    size_t bytes;   // of text read
    size_t files;   // read
    size_t skipped; // hidden, binary and irregular files, and what runs wrote, in folders and globs
    char **paths;   // (files) of CT_TOKENS_LATER
    uint32_t text_sum;  // of CT_TOKENS_LATER: a checksum of the files' bytes
    const void *mapped; // the file that the tokens lie in; NULL: they are the corpus's own
    size_t mapped_n;    // its bytes
} ct_corpus;

// Reads each path in turn and joins the texts as they are. A path is a file, a folder (all of it,
// by name, hidden files and folders, links and binary files skipped), or, where nothing has that
// very name, a glob pattern (matches by name, binary files skipped). A file that is named itself is
// never skipped: as characters, binary content is an error; as bytes it is taken. What a run writes
// in its folder (metrics, configuration, plot, saves) is skipped there, and in `run`, which one is
// to write in (NULL: none), whether it has written or not; other files in best/ and checkpoints/
// are text.
bool ct__corpus_read(const char *const *paths, size_t n, ct_tokens kind, const char *run,
                     ct_corpus *corpus, ct_err *err);
// Is it a pattern, and no path that is there?
bool ct__corpus_is_pattern(const char *path);
// Whether both parts of ct__split hold at least one window of `context` + 1 tokens.
bool ct__corpus_check(const ct_corpus *corpus, size_t context, ct_err *err);
void ct__corpus_free(ct_corpus *corpus); // also after a failure

// The vocabulary as text for a file: its characters in order, "" for bytes; and back.
void ct__vocab_text(const ct_vocab *vocab, ct_text *text);
bool ct__vocab_parse(const char *label, ct_tokens kind, const char *text, size_t n, ct_vocab *vocab,
                     ct_err *err);
void ct__vocab_free(ct_vocab *vocab);

// Text to tokens (freed with ct__free). A character outside the vocabulary is an error; bytes
// always succeed. `label` begins the message ("prompt").
bool ct__encode(const ct_vocab *vocab, const char *label, const char *text, size_t n,
                int32_t **tokens, size_t *count, ct_err *err);

// Tokens to UTF-8, one at a time. Bytes that begin a character are held back until it is complete;
// what can never become one is written as U+FFFD, as is a token outside the vocabulary.
typedef struct ct_byte_decoder {
    unsigned char held[4];
    size_t n;
} ct_byte_decoder;
enum { CT_DECODE_ROOM = 16 };
size_t ct__decode(const ct_vocab *vocab, ct_byte_decoder *decoder, int32_t token,
                  char out[CT_DECODE_ROOM]); // bytes written
size_t ct__decode_end(ct_byte_decoder *decoder,
                      char out[CT_DECODE_ROOM]); // what is still held back

#endif
