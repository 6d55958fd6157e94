// Text as tokens: corpora from files, folders and globs, vocabularies, encoding and decoding.
#ifndef COTAN_DATA_CORPUS_H
#define COTAN_DATA_CORPUS_H

#include "base/error.h"
#include "base/text.h"

typedef enum ct_tokens {
    CT_TOKENS_BYTES,    // a token per byte, 256 of them
    CT_TOKENS_CHARS,    // a token per Unicode code point that occurs in the corpus
    CT_TOKENS_DEFERRED, // none yet: the files are listed, for a tokenizer to read
} ct_tokens;

typedef struct ct_vocab {
    ct_tokens kind;
    int32_t n;       // number of tokens
    uint32_t *chars; // chars only: the n code points, ascending; token i is chars[i]
} ct_vocab;

typedef struct ct_corpus {
    ct_vocab vocab;
    int32_t *tokens;
    size_t n;           // number of tokens
    size_t bytes;       // of text that was read
    size_t files;       // number of files read
    size_t skipped;     // hidden, binary and irregular files, and files written by runs, in folders
                        // and globs
    char **paths;       // (files) of CT_TOKENS_DEFERRED
    uint32_t text_sum;  // of CT_TOKENS_DEFERRED: a checksum of the files' bytes
    const void *mapped; // mapped file with the tokens; NULL: they are allocated
    size_t mapped_n;    // its bytes
} ct_corpus;

// Reads the paths in order and concatenates the texts without separators. A path is a file, a folder
// (recursively, by name; hidden files and folders, links and binary files are skipped), or, if nothing has
// that exact name, a glob pattern (matches by name, binary files skipped). A file given by its own path is
// never skipped: with chars, binary content is an error; with bytes, it is accepted. Files that a run writes
// to its folder (metrics, configuration, plot, saves) are skipped, also in `run`, the folder in which the
// current run will write (NULL: none), whether it has written or not; other files in best/ and checkpoints/
// are text.
bool ct__corpus_read(const char *const *paths, size_t n, ct_tokens kind, const char *run,
                     ct_corpus *corpus, ct_err *err);
// True if it is a glob pattern and not an existing path.
bool ct__corpus_is_pattern(const char *path);
// True if both parts of ct__split have at least one window of `context` + 1 tokens.
bool ct__corpus_check(const ct_corpus *corpus, size_t context, ct_err *err);
void ct__corpus_free(ct_corpus *corpus); // also after a failure

// The vocabulary as text for a file: its characters in order, "" for bytes; and the reverse.
void ct__vocab_text(const ct_vocab *vocab, ct_text *text);
bool ct__vocab_parse(const char *label, ct_tokens kind, const char *text, size_t n, ct_vocab *vocab,
                     ct_err *err);
void ct__vocab_free(ct_vocab *vocab);

// Encodes text as tokens (freed with ct__free). A character that is not in the vocabulary is an error; bytes
// always succeed. `label` begins the message ("prompt").
bool ct__encode(const ct_vocab *vocab, const char *label, const char *text, size_t n,
                int32_t **tokens, size_t *count, ct_err *err);

// Decodes tokens to UTF-8, one at a time. Bytes that begin a character are held back until it is complete;
// invalid bytes and tokens outside the vocabulary are written as U+FFFD.
typedef struct ct_byte_decoder {
    unsigned char held[4];
    size_t n;
} ct_byte_decoder;
enum { CT_DECODE_ROOM = 16 };
size_t ct__decode(const ct_vocab *vocab, ct_byte_decoder *decoder, int32_t token,
                  char out[CT_DECODE_ROOM]); // returns the number of bytes written
size_t ct__decode_end(ct_byte_decoder *decoder,
                      char out[CT_DECODE_ROOM]); // writes what is held back

#endif
