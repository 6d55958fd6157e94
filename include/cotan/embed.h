// Text embeddings and classification: encoders and decoders whose hidden states are pooled, as in
// sentence-transformers.
#ifndef COTAN_EMBED_H
#define COTAN_EMBED_H

#include "cotan/lm.h"
#include "cotan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ct_pooling {
    // As the model's directory says; default: mean for an encoder, last token for a decoder.
    CT_POOL_AUTO,
    CT_POOL_MEAN,     // mean of all tokens
    CT_POOL_CLS,      // the first token
    CT_POOL_LAST,     // the last token
    CT_POOL_MAX,      // maximum of each component
    CT_POOL_SQRT,     // sum divided by the square root of the number of tokens
    CT_POOL_WEIGHTED, // mean in which token i has weight i
} ct_pooling;
// How a model pools texts into vectors, from its directory (modules.json, 1_Pooling/config.json,
// sentence_bert_config.json).
typedef struct ct_pooling_config {
    ct_pooling pooling; // never AUTO
    bool normalised;    // vectors are scaled to length 1
    int64_t max_tokens; // maximum number of tokens of a text; 0: no limit
} ct_pooling_config;
// Reads it for a model. Without such files, and for a model in one file, it is the default,
// normalised. False: see ct_error_text; an unknown module is an error.
CT_API CT_MUST_USE bool ct_pooling_config_read_at(const char *path, const ct_lm *lm,
                                                  ct_pooling_config *config, ct_loc here);
#define ct_pooling_config_read(path, lm, config)                                                   \
    ct_pooling_config_read_at((path), (lm), (config), CT_HERE)

typedef struct ct_lm_text {
    const char *s; // UTF-8
    size_t n;
    // Its tokens (n_ids), which are used as they are; NULL: the tokenizer encodes the text.
    const int32_t *ids;
    size_t n_ids;
    // A second text that is encoded together with the first as a pair, such as an answer to a
    // question, in the pair format of the tokenizer's file; NULL: none.
    const char *text_pair;
    size_t n_text_pair;
} ct_lm_text;
typedef struct ct_embed_options {
    ct_pooling_config pooling; // zero: the model's default, as ct_pooling_config_read returns it
    // Truncates a text that is too long at its end, of a pair the longer text first; otherwise it
    // is an error.
    bool truncate;
    // Maximum number of tokens of a pass, except for a single text; default 2048.
    int64_t batch_tokens;
    int64_t *n_tokens; // receives the number of tokens; may be NULL
    // Called after each pass, with numbers of texts.
    void (*progress)(int64_t done, int64_t all, void *user);
    ct_stop_fn should_stop; // returning true ends it with the error CT_E_INTERRUPTED
    void *user;
    ct_loc here;
} ct_embed_options;
// Computes vectors (n, width) of n texts, each with the special tokens that the tokenizer adds. The
// vector of a text does not depend on the other texts. False: see ct_error_text.
//     if (!ct_lm_embed(lm, tokenizer, texts, n, vectors, .pooling = config)) return 1;
CT_API CT_MUST_USE bool ct_lm_embed_with(const ct_lm *lm, const ct_tokenizer *tokenizer,
                                         const ct_lm_text *texts, size_t n, float *vectors,
                                         ct_embed_options options);
#define ct_lm_embed(lm, tokenizer, texts, n, ...)                                                  \
    CT__LM_EMBED(lm, tokenizer, texts, n, __VA_ARGS__, .here = CT_HERE)
#define CT__LM_EMBED(lm, tokenizer, texts, n, vectors, ...)                                        \
    ct_lm_embed_with((lm), (tokenizer), (texts), (n), (vectors), (ct_embed_options){__VA_ARGS__})

// -------------------------------------------------------------------------------- classes of texts

// Computes scores (n, labels) of n texts by a model with a classification head (config.json's
// ...ForSequenceClassification; ct_lm_info returns the number of labels): the class of a text or,
// with one label, how well two texts match, as rerankers score them. The scores are the logits of
// the head, before ct_lm_class_probabilities. Only `max_tokens` of options.pooling has an effect:
// the head determines which tokens it pools. False: see ct_error_text.
//     if (!ct_lm_classify(lm, tokenizer, texts, n, scores, .batch_tokens = 4096)) return 1;
CT_API CT_MUST_USE bool ct_lm_classify_with(const ct_lm *lm, const ct_tokenizer *tokenizer,
                                            const ct_lm_text *texts, size_t n, float *scores,
                                            ct_embed_options options);
#define ct_lm_classify(lm, tokenizer, texts, n, ...)                                               \
    CT__LM_CLASSIFY(lm, tokenizer, texts, n, __VA_ARGS__, .here = CT_HERE)
#define CT__LM_CLASSIFY(lm, tokenizer, texts, n, scores, ...)                                      \
    ct_lm_classify_with((lm), (tokenizer), (texts), (n), (scores), (ct_embed_options){__VA_ARGS__})
// Converts scores (n, labels) to probabilities in place: by a softmax or, if config.json says that
// a text may have several labels (problem_type) or if there is only one label, by a sigmoid of
// each.
CT_API void ct_lm_class_probabilities(const ct_lm *lm, float *scores, size_t n);
// Writes the name of a label in config.json (id2label), or else "LABEL_" and its number, to `name`:
// at most n bytes, including a terminating zero byte.
CT_API void ct_lm_label(const ct_lm *lm, int64_t label, char *name, size_t n);

#ifdef __cplusplus
}
#endif

#endif
