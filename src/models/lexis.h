// What the tokens of a run stand for where a tokenizer makes them: the tokenizer, its files, and the text by it.
#ifndef COTAN_MODELS_LEXIS_H
#define COTAN_MODELS_LEXIS_H

#include "cotan/tokenizer.h"
#include "base/text.h"
#include "data/corpus.h"
#include "io/run_names.h"

typedef struct ct_lexis {
    ct_tokenizer *tokenizer;         // NULL: tokens are the corpus's bytes or characters
    int64_t begin, end;              // tokens in front of a text and behind it; -1: none
    ct_text beside[CT_RUN_BESIDE_N]; // files of a model's folder, by CT_RUN_BESIDE; empty: none
} ct_lexis;

// How far something has come; false: stop, the error is CT_E_INTERRUPTED.
typedef struct ct_lexis_heard {
    bool (*go_on)(const char *text, void *user);
    void *user;
} ct_lexis_heard;

// Learns a byte-level BPE of `size` tokens from the corpus's files.
bool ct__lexis_learn(ct_lexis *lexis, const ct_corpus *corpus, int64_t size,
                     const ct_lexis_heard *heard, ct_err *err);
// Of a folder, or one of a tokenizer's files.
bool ct__lexis_load(ct_lexis *lexis, const char *path, ct_err *err);
// The files of a tokenizer that makes the vocabulary's bytes or characters of a text; the corpus has the
// tokens already.
bool ct__lexis_plain(ct_lexis *lexis, const ct_vocab *vocab, ct_err *err);
// The files of the corpus as tokens, each between begin and end.
bool ct__lexis_read(const ct_lexis *lexis, ct_corpus *corpus, const ct_lexis_heard *heard,
                    ct_err *err);
// Takes them out of memory into a file of the run's folder, and maps it.
bool ct__lexis_keep(ct_corpus *corpus, const char *dir, ct_err *err);
// The tokens that such a file has, if it is there and they are these; false without an error: it is not.
bool ct__lexis_kept(ct_corpus *corpus, const char *dir, int64_t tokens, uint32_t sum);
// The files into a model's folder.
bool ct__lexis_save(const ct_lexis *lexis, const char *dir, ct_err *err);
// Bytes of text that n tokens stand for.
bool ct__lexis_bytes(const ct_lexis *lexis, const int32_t *tokens, size_t n, double *bytes,
                     ct_err *err);
void ct__lexis_free(ct_lexis *lexis);

#endif
