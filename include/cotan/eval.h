// Evaluation of language models: log-likelihoods of texts, perplexity of files, and multiple-choice
// questions, computed as in EleutherAI's lm-evaluation-harness (0.4).
#ifndef COTAN_EVAL_H
#define COTAN_EVAL_H

#include "cotan/lm.h"
#include "cotan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

// Options of all functions below. 0 and NULL mean the default.
typedef struct ct_eval_options {
    // Maximum length of a sequence in tokens, 2 or more; default: the model's, or 2048 if it has no
    // limit.
    int64_t context;
    // Perplexity: maximum number of tokens that a window predicts, 1 to the context; default: the
    // context.
    int64_t stride;
    // Maximum number of tokens of a pass, except for a single text; default 2048.
    int64_t batch_tokens;
    int64_t limit; // ct_eval_multiple_choice: maximum number of questions; default: all
    // Called after each pass, with numbers of texts or windows.
    void (*progress)(int64_t done, int64_t all, void *user);
    ct_stop_fn should_stop; // returning true ends it with the error CT_E_INTERRUPTED
    void *user;
    ct_loc here;
} ct_eval_options;

// --------------------------------------------------------------------------------- log-likelihoods

// Tokens of which the last `n_scored` are scored; those before are the context. There is at least
// one context token.
typedef struct ct_lm_score_input {
    const int32_t *tokens; // (n)
    size_t n, n_scored;
} ct_lm_score_input;
typedef struct ct_lm_score {
    // Sum over the scored tokens, each given all tokens before it; natural logarithm.
    double log_likelihood;
    bool greedy; // each of them was the most likely token at its position
} ct_lm_score;
// Computes scores (n) of n texts. A text that is longer than the context is truncated at its
// beginning, but not its scored tokens. Texts of similar length are batched. False: see
// ct_error_text.
//     if (!ct_lm_score_tokens(lm, texts, n, scores, .batch_tokens = 4096)) return 1;
CT_API CT_MUST_USE bool ct_lm_score_tokens_with(const ct_lm *lm, const ct_lm_score_input *texts,
                                                size_t n, ct_lm_score *scores,
                                                ct_eval_options options);
#define ct_lm_score_tokens(lm, texts, n, ...)                                                      \
    CT__LM_SCORE_TOKENS(lm, texts, n, __VA_ARGS__, .here = CT_HERE)
#define CT__LM_SCORE_TOKENS(lm, texts, n, scores, ...)                                             \
    ct_lm_score_tokens_with((lm), (texts), (n), (scores), (ct_eval_options){__VA_ARGS__})

// A context and its continuation. White space at the end of the context is scored with the
// continuation. An empty context is replaced by the BOS token, or else the EOS token.
typedef struct ct_eval_pair {
    const char *context, *continuation; // UTF-8
    size_t n_context, n_continuation;
} ct_eval_pair;
CT_API CT_MUST_USE bool ct_eval_log_likelihood_with(const ct_lm *lm, const ct_tokenizer *tokenizer,
                                                    const ct_eval_pair *pairs, size_t n,
                                                    ct_lm_score *scores, ct_eval_options options);
#define ct_eval_log_likelihood(lm, tokenizer, pairs, n, ...)                                       \
    CT__EVAL_LOG_LIKELIHOOD(lm, tokenizer, pairs, n, __VA_ARGS__, .here = CT_HERE)
#define CT__EVAL_LOG_LIKELIHOOD(lm, tokenizer, pairs, n, scores, ...)                              \
    ct_eval_log_likelihood_with((lm), (tokenizer), (pairs), (n), (scores),                         \
                                (ct_eval_options){__VA_ARGS__})

// -------------------------------------------------------------------------------------- perplexity

// A perplexity is exp(-log_likelihood / count).
typedef struct ct_perplexity {
    double log_likelihood;
    int64_t tokens, words, bytes; // words are separated by white space
    int64_t windows;
} ct_perplexity;
// Adds a text to `sum`, which must be zeroed first. The first window begins with the BOS token, or
// else the EOS token; the others begin with the preceding tokens, context - stride + 1 or more.
// Each token is predicted once. If the tokenizer has neither token, the first token of the text is
// only context and is not counted.
//     ct_perplexity sum = {0};
//     if (!ct_eval_perplexity(lm, tokenizer, text, n, &sum, .stride = 512)) return 1;
CT_API CT_MUST_USE bool ct_eval_perplexity_with(const ct_lm *lm, const ct_tokenizer *tokenizer,
                                                const char *text, size_t n, ct_perplexity *sum,
                                                ct_eval_options options);
#define ct_eval_perplexity(lm, tokenizer, text, n, ...)                                            \
    CT__EVAL_PERPLEXITY(lm, tokenizer, text, n, __VA_ARGS__, .here = CT_HERE)
#define CT__EVAL_PERPLEXITY(lm, tokenizer, text, n, sum, ...)                                      \
    ct_eval_perplexity_with((lm), (tokenizer), (text), (n), (sum), (ct_eval_options){__VA_ARGS__})

// --------------------------------------------------------------------------------- multiple choice

// Accuracy: the fraction of the questions whose most likely choice is the right one, by
// log-likelihood, by log-likelihood per character, and per byte; each with its standard error.
typedef struct ct_multiple_choice_result {
    int64_t questions;
    double acc, acc_stderr, acc_norm, acc_norm_stderr, acc_bytes, acc_bytes_stderr;
} ct_multiple_choice_result;
// Evaluates a file of lines, each of which is a question as a JSON object: a text ("query", "ctx",
// "question", "goal" or "context"), choices ("choices", "endings" or "options": a list, or an
// object with the list "text" beside a list "label"; or "sol1" and "sol2") and the right one's
// index from 0, or its label ("gold", "label", "answer" or "answerKey"). Question and choice are
// separated by a space. False: see ct_error_text.
CT_API CT_MUST_USE bool ct_eval_multiple_choice_with(const ct_lm *lm, const ct_tokenizer *tokenizer,
                                                     const char *path,
                                                     ct_multiple_choice_result *result,
                                                     ct_eval_options options);
#define ct_eval_multiple_choice(lm, tokenizer, path, ...)                                          \
    CT__EVAL_MULTIPLE_CHOICE(lm, tokenizer, path, __VA_ARGS__, .here = CT_HERE)
#define CT__EVAL_MULTIPLE_CHOICE(lm, tokenizer, path, result, ...)                                 \
    ct_eval_multiple_choice_with((lm), (tokenizer), (path), (result),                              \
                                 (ct_eval_options){__VA_ARGS__})

#ifdef __cplusplus
}
#endif

#endif
