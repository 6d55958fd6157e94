// How good a language model is: log-likelihoods of given texts, perplexity of files, and questions with choices, as
// EleutherAI's lm-evaluation-harness (0.4) counts them.
#ifndef COTAN_EVAL_H
#define COTAN_EVAL_H

#include "cotan/lm.h"
#include "cotan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

// Of all that follows. 0 and NULL mean the default.
typedef struct ct_eval_options {
    // Tokens that the model sees at once, 2 or more; default its own, or 2048 if it has no limit.
    int64_t context;
    // Of perplexity: tokens that a window predicts at most, 1 to the context; default the context.
    int64_t stride;
    int64_t batch; // tokens of a pass at most, but for one text alone; default 2048
    int64_t limit; // of ct_eval_choices: questions at most; default: all
    // After each pass: texts, or windows.
    void (*progress)(int64_t done, int64_t all, void *user);
    ct_stop_fn stop; // true: the error is CT_E_INTERRUPTED
    void *user;
    ct_loc here;
} ct_eval_options;

// --------------------------------------------------------------------------------- log-likelihoods

// Tokens of which the last `judged` are judged by the model; what stands before them is given. At least one is given.
typedef struct ct_lm_judged {
    const int32_t *tokens; // (n)
    size_t n, judged;
} ct_lm_judged;
typedef struct ct_lm_score {
    double log_likelihood; // of the judged tokens, each behind all before it; natural
    bool greedy;           // each was the likeliest in its place
} ct_lm_score;
// Scores (n) of n texts. Of one that is longer than the context the beginning is left out, as far as it is not
// judged. Texts of about one length make a pass. False: see ct_error_text.
//     if (!ct_lm_score_texts(lm, texts, n, scores, .batch = 4096)) return 1;
CT_API CT_MUST_USE bool ct_lm_score_texts_with(const ct_lm *lm, const ct_lm_judged *texts, size_t n,
                                               ct_lm_score *scores, ct_eval_options options);
#define ct_lm_score_texts(lm, texts, n, ...)                                                       \
    CT__LM_SCORE_TEXTS(lm, texts, n, __VA_ARGS__, .here = CT_HERE)
#define CT__LM_SCORE_TEXTS(lm, texts, n, scores, ...)                                              \
    ct_lm_score_texts_with((lm), (texts), (n), (scores), (ct_eval_options){__VA_ARGS__})

// What is given, and how it goes on. White space at the end of what is given is judged with the rest. Nothing
// given: the token that begins a text, or that which ends one.
typedef struct ct_eval_pair {
    const char *given, *rest; // UTF-8
    size_t n_given, n_rest;
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
    int64_t tokens, words, bytes; // words stand between white space
    int64_t windows;
} ct_perplexity;
// Adds a text to what `sum` has: zero it first. The first window begins with the token that begins a text, or that
// which ends one; the others with the tokens before them, context - stride + 1 or more. Each token is predicted once.
// Where the tokenizer names neither, the text's own first token stands in front of the others and is not counted.
//     ct_perplexity sum = {0};
//     if (!ct_eval_perplexity(lm, tokenizer, text, n, &sum, .stride = 512)) return 1;
CT_API CT_MUST_USE bool ct_eval_perplexity_with(const ct_lm *lm, const ct_tokenizer *tokenizer,
                                                const char *text, size_t n, ct_perplexity *sum,
                                                ct_eval_options options);
#define ct_eval_perplexity(lm, tokenizer, text, n, ...)                                            \
    CT__EVAL_PERPLEXITY(lm, tokenizer, text, n, __VA_ARGS__, .here = CT_HERE)
#define CT__EVAL_PERPLEXITY(lm, tokenizer, text, n, sum, ...)                                      \
    ct_eval_perplexity_with((lm), (tokenizer), (text), (n), (sum), (ct_eval_options){__VA_ARGS__})

// ----------------------------------------------------------------------------------------- choices

// Parts of the questions of which the likeliest choice is the right one: by log-likelihood, by that a character, and
// by that a byte; each with its standard error.
typedef struct ct_choices {
    int64_t questions;
    double acc, acc_stderr, acc_norm, acc_norm_stderr, acc_bytes, acc_bytes_stderr;
} ct_choices;
// Of a file of lines, each a question as a JSON object: a text ("query", "ctx", "question", "goal" or "context"), choices
// ("choices", "endings" or "options": a list, or an object that has it as "text" beside a list "label"; or "sol1" and "sol2") and
// the right one's number from 0 on, or its label ("gold", "label", "answer" or "answerKey"). A space stands between
// question and choice. False: see ct_error_text.
CT_API CT_MUST_USE bool ct_eval_choices_with(const ct_lm *lm, const ct_tokenizer *tokenizer,
                                             const char *path, ct_choices *result,
                                             ct_eval_options options);
#define ct_eval_choices(lm, tokenizer, path, ...)                                                  \
    CT__EVAL_CHOICES(lm, tokenizer, path, __VA_ARGS__, .here = CT_HERE)
#define CT__EVAL_CHOICES(lm, tokenizer, path, result, ...)                                         \
    ct_eval_choices_with((lm), (tokenizer), (path), (result), (ct_eval_options){__VA_ARGS__})

#ifdef __cplusplus
}
#endif

#endif
