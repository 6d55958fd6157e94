// Texts as vectors: encoders and decoders whose hidden states are pooled, as sentence-transformers does it.
#ifndef COTAN_EMBED_H
#define COTAN_EMBED_H

#include "cotan/lm.h"
#include "cotan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ct_pooling {
    CT_POOL_AUTO, // what the model's folder says; else the mean of an encoder, the last token of a decoder
    CT_POOL_MEAN,     // of all tokens
    CT_POOL_CLS,      // the first token
    CT_POOL_LAST,     // the last token
    CT_POOL_MAX,      // of each number
    CT_POOL_SQRT,     // the sum over the square root of the number of tokens
    CT_POOL_WEIGHTED, // the mean, in which token i counts i times
} ct_pooling;
// How a model's folder says that texts become vectors (modules.json, 1_Pooling/config.json,
// sentence_bert_config.json).
typedef struct ct_embedding {
    ct_pooling pooling; // never AUTO
    bool normalised;    // to length 1
    int64_t most;       // tokens that a text may have; 0: no limit
} ct_embedding;
// Reads it for the model of that folder; without such files, or of a file, it is the default, normalised. False:
// see ct_error_text; so is a module that is not known.
CT_API CT_MUST_USE bool ct_embedding_read_at(const char *path, const ct_lm *lm, ct_embedding *how,
                                             ct_loc here);
#define ct_embedding_read(path, lm, how) ct_embedding_read_at((path), (lm), (how), CT_HERE)

typedef struct ct_lm_text {
    const char *s; // UTF-8
    size_t n;
    // Its tokens (n_ids), which are taken as they are; NULL: the tokenizer finds them.
    const int32_t *ids;
    size_t n_ids;
    // Another text that is read together with it, an answer to a question, in the form that the tokenizer's file has
    // for two; NULL: none.
    const char *second;
    size_t n_second;
} ct_lm_text;
typedef struct ct_embed_options {
    ct_embedding how; // zero: the default of the model, as ct_embedding_read has it
    // Of a text that is too long the end is left out, of two that of the longer one first; else it is an error.
    bool truncate;
    int64_t batch;   // tokens of a pass at most, but for one text alone; default 2048
    int64_t *tokens; // takes how many were read; NULL: not
    // After each pass: texts.
    void (*progress)(int64_t done, int64_t all, void *user);
    ct_stop_fn stop; // true: the error is CT_E_INTERRUPTED
    void *user;
    ct_loc here;
} ct_embed_options;
// Vectors (n, width) of n texts, each with the tokens around it that the tokenizer puts there. What a text gives does
// not depend on the others. False: see ct_error_text.
//     if (!ct_lm_embed(lm, tokenizer, texts, n, vectors, .how = how)) return 1;
CT_API CT_MUST_USE bool ct_lm_embed_with(const ct_lm *lm, const ct_tokenizer *tokenizer,
                                         const ct_lm_text *texts, size_t n, float *vectors,
                                         ct_embed_options options);
#define ct_lm_embed(lm, tokenizer, texts, n, ...)                                                  \
    CT__LM_EMBED(lm, tokenizer, texts, n, __VA_ARGS__, .here = CT_HERE)
#define CT__LM_EMBED(lm, tokenizer, texts, n, vectors, ...)                                        \
    ct_lm_embed_with((lm), (tokenizer), (texts), (n), (vectors), (ct_embed_options){__VA_ARGS__})

// -------------------------------------------------------------------------------- classes of texts

// Scores (n, labels) of n texts by a model with a head for that (config.json's ...ForSequenceClassification;
// ct_lm_look says how many labels there are): what stands in a text, or by one score how well two texts fit, as rerankers
// have it. As the head gives them, before ct_lm_probabilities. Of options.how only `most` acts: the head says which
// tokens it looks at. False: see ct_error_text.
//     if (!ct_lm_classify(lm, tokenizer, texts, n, scores, .batch = 4096)) return 1;
CT_API CT_MUST_USE bool ct_lm_classify_with(const ct_lm *lm, const ct_tokenizer *tokenizer,
                                            const ct_lm_text *texts, size_t n, float *scores,
                                            ct_embed_options options);
#define ct_lm_classify(lm, tokenizer, texts, n, ...)                                               \
    CT__LM_CLASSIFY(lm, tokenizer, texts, n, __VA_ARGS__, .here = CT_HERE)
#define CT__LM_CLASSIFY(lm, tokenizer, texts, n, scores, ...)                                      \
    ct_lm_classify_with((lm), (tokenizer), (texts), (n), (scores), (ct_embed_options){__VA_ARGS__})
// Scores (n, labels) become probabilities in their place: of a softmax or, where config.json says that a text may have
// several labels (problem_type), or there is one alone, each by itself.
CT_API void ct_lm_probabilities(const ct_lm *lm, float *scores, size_t n);
// What config.json calls a label (id2label), into `name`, ended by a zero byte: n bytes at most; else "LABEL_" and its
// number.
CT_API void ct_lm_label(const ct_lm *lm, int64_t label, char *name, size_t n);

#ifdef __cplusplus
}
#endif

#endif
