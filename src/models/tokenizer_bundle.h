// A run's tokenizer bundle: the tokenizer, the files that a model's folder needs, and the tokens of the
// corpus.
#ifndef COTAN_MODELS_TOKENIZER_BUNDLE_H
#define COTAN_MODELS_TOKENIZER_BUNDLE_H

#include "cotan/tokenizer.h"
#include "base/text.h"
#include "data/corpus.h"
#include "io/run_names.h"

typedef struct ct_tokenizer_bundle {
    ct_tokenizer *tokenizer; // NULL: tokens are the corpus's bytes or characters
    int64_t begin, end;      // tokens before and after each document; -1: none
    // contents of the tokenizer's files in a model's folder, by CT_RUN_SIDE_FILES; empty: none
    ct_text beside[CT_N_RUN_SIDE_FILES];
} ct_tokenizer_bundle;

// Progress callback; it returns false to stop, and the error is then CT_E_INTERRUPTED.
typedef struct ct_bundle_progress {
    bool (*on_progress)(const char *text, void *user);
    void *user;
} ct_bundle_progress;

// Trains a byte-level BPE of `size` tokens on the corpus's files.
bool ct__bundle_train(ct_tokenizer_bundle *bundle, const ct_corpus *corpus, int64_t size,
                      const ct_bundle_progress *progress, ct_err *err);
// Loads a tokenizer from a folder, or from one of its files.
bool ct__bundle_load(ct_tokenizer_bundle *bundle, const char *path, ct_err *err);
// Makes the files of a tokenizer that is equivalent to the corpus's byte or character vocabulary; the
// corpus is already tokenized.
bool ct__bundle_of_vocab(ct_tokenizer_bundle *bundle, const ct_vocab *vocab, ct_err *err);
// Tokenizes the corpus's files, each between the tokens bos and eos.
bool ct__bundle_tokenize(const ct_tokenizer_bundle *bundle, ct_corpus *corpus,
                         const ct_bundle_progress *progress, ct_err *err);
// Moves the tokens from memory into a file of the run's folder, and maps it.
bool ct__bundle_store_tokens(ct_corpus *corpus, const char *dir, ct_err *err);
// Maps such a file if it is there and has these tokens. Returns false without an error if not.
bool ct__bundle_map_tokens(ct_corpus *corpus, const char *dir, int64_t tokens, uint32_t sum);
// Writes the tokenizer's files into a model's folder.
bool ct__bundle_save(const ct_tokenizer_bundle *bundle, const char *dir, ct_err *err);
// Computes the number of bytes of text that n tokens decode to.
bool ct__bundle_count_bytes(const ct_tokenizer_bundle *bundle, const int32_t *tokens, size_t n,
                            double *bytes, ct_err *err);
void ct__bundle_free(ct_tokenizer_bundle *bundle);

#endif
