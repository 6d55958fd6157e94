// An inference engine for published models: a pretrained model (weights, tokenizer, chat template,
// generation settings), and an engine with continuous batching, which advances all running requests
// together, one step at a time. `cotan run` and `cotan serve` use it.
#ifndef COTAN_ENGINE_H
#define COTAN_ENGINE_H

#include "cotan/chat.h"
#include "cotan/lm.h"
#include "cotan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------- pretrained models

// The contents of a directory, a GGUF file or ORG/NAME in the Hub's cache. All parts belong to it.
typedef struct ct_pretrained {
    ct_lm *lm;
    ct_tokenizer *tokenizer;
    ct_chat_template *chat; // NULL: the model has no chat template
    const int32_t *eos_ids; // (n_eos_ids) EOS tokens
    size_t n_eos_ids;
    // From generation_config.json; without one, samples from the model's unmodified distribution.
    ct_lm_sampling sampling;
    // Keys of generation_config.json that would change the output and are not supported, such as
    // "num_beams, forced_eos_token_id"; NULL: none.
    const char *unsupported_generation_keys;
    const char *path;     // path of the directory or file
    const char *type;     // model_type: "llama"
    int64_t context;      // maximum number of tokens of a sequence; 0: no limit
    int64_t vocab, width; // number of tokens in the vocabulary; size of a hidden state
    bool is_generative;   // generates text; false: an encoder (bert)
} ct_pretrained;
typedef struct ct_pretrained_options {
    ct_dtype activations; // as in ct_lm_load: CT_I8 (default) or CT_F32
    ct_loc here;
} ct_pretrained_options;
// Loads a model. NULL: see ct_error_text.
//     ct_pretrained *m = ct_pretrained_load("SmolLM2-135M-Instruct");
//     ct_pretrained_free(m);
CT_API ct_pretrained *ct_pretrained_load_with(const char *path, ct_pretrained_options options);
#define ct_pretrained_load(...) CT__PRETRAINED_LOAD(__VA_ARGS__, .here = CT_HERE)
#define CT__PRETRAINED_LOAD(path, ...)                                                             \
    ct_pretrained_load_with((path), (ct_pretrained_options){__VA_ARGS__})
CT_API void ct_pretrained_free(ct_pretrained *model); // NULL is ignored

// ------------------------------------------------------------------------------------------ engine

// A step prefills prompts in chunks and generates one token of each running sequence, all in one
// pass, so that weights are read once for all of them. Keys and values are stored in pages of 16
// tokens (Kwon et al. 2023). Sequences with a common prefix share pages, also with sequences that
// have ended, until the memory is needed. If no page is free, the sequence that started last is
// preempted: it frees its pages and is recomputed later. The output for a request does not depend,
// in any bit, on what else runs.
//
// One thread at a time runs steps and receives the callbacks; any thread may add and cancel
// requests.
typedef struct ct_engine ct_engine;

typedef struct ct_engine_options {
    // Detokenizes, and matches stop strings; NULL: tokens only.
    const ct_tokenizer *tokenizer;
    int64_t max_sequences; // maximum number of running sequences, 1 to 1024; default 32
    int64_t max_queued;    // maximum number of queued requests besides them; default 1024
    // Maximum number of tokens of a sequence; default: default_context of ct_lm_info.
    int64_t context;
    // Bytes of the KV cache. Default: enough for `max_sequences` sequences of 1,024 tokens, or a
    // quarter of the free memory if that is less, but at least enough for one sequence of `context`
    // tokens.
    uint64_t cache_memory;
    // Prefill chunk: maximum number of prompt tokens per step, 16 to 4096; default 256.
    int64_t prefill_chunk;
    ct_dtype cache_dtype; // of keys and values: CT_F32 (default), CT_F16, CT_BF16 or CT_I8
    // Maximum number of draft tokens per step for a request that runs alone, 0 to 15: those that
    // followed the last occurrence of the same three tokens in the sequence (prompt lookup). Those
    // that the model would have generated are accepted at once. Default 0. No bit of the output
    // depends on it.
    int64_t max_draft_tokens;
    bool poison; // fills freed pages with NaN: for tests
    ct_loc here;
} ct_engine_options;
// Makes an engine. The model must outlive it. NULL: see ct_error_text.
CT_API ct_engine *ct_engine_new_with(const ct_lm *lm, ct_engine_options options);
#define ct_engine_new(...) CT__ENGINE_NEW(__VA_ARGS__, .here = CT_HERE)
#define CT__ENGINE_NEW(lm, ...) ct_engine_new_with((lm), (ct_engine_options){__VA_ARGS__})
CT_API void ct_engine_free(ct_engine *engine); // cancels its requests; NULL is ignored
// Runs each kind of step once, so that later steps compile nothing. False, without a change: requests are running
// (CT_E_ARGUMENT), or see ct_error_text.
CT_API CT_MUST_USE bool ct_engine_warm_up_at(ct_engine *engine, ct_loc here);
#define ct_engine_warm_up(engine) ct_engine_warm_up_at((engine), CT_HERE)

typedef struct ct_engine_logprob {
    int32_t token;
    double logprob;
} ct_engine_logprob;
typedef struct ct_engine_token {
    int64_t request;
    int32_t token;
    // Log-probability by the model, before sampling options; set if the request has `logprobs` or
    // `top_logprobs`.
    double logprob;
    // (n_top_logprobs) the most likely tokens at this position, most likely first.
    const ct_engine_logprob *top_logprobs;
    size_t n_top_logprobs;
    // The text that it adds, in whole characters; text that may begin a stop string is held back.
    const char *text;
    size_t text_n;
} ct_engine_token;

typedef enum ct_engine_finish_reason {
    CT_ENGINE_STOPPED,   // an EOS token in `eos_ids`, a stop string, or `on_token` returned false
    CT_ENGINE_LENGTH,    // `max_tokens` tokens, or the context is full
    CT_ENGINE_CANCELLED, // by ct_engine_cancel or ct_engine_free
    CT_ENGINE_FAILED,    // see `error`
} ct_engine_finish_reason;
typedef struct ct_engine_result {
    int64_t request;
    ct_engine_finish_reason finish_reason;
    const char *error;       // the error message of FAILED; else NULL
    const char *stop_string; // the stop string that matched, or NULL
    const char *text;        // text that was held back for stop strings and incomplete characters
    size_t text_n;
    // Numbers of tokens: of the prompt; of those, the ones whose keys and values were cached;
    // generated.
    size_t prompt_tokens, cached_tokens, generated_tokens;
    // Seconds from ct_engine_add to the first token, and to the end.
    double ttft_seconds, total_seconds;
} ct_engine_result;

typedef struct ct_engine_request {
    const int32_t *prompt; // (n_prompt) at least 1
    size_t n_prompt;
    // Maximum number of tokens to generate; default: as many as the context allows.
    int64_t max_tokens;
    const int32_t *eos_ids; // (n_eos_ids) EOS tokens that end it; they are not reported
    size_t n_eos_ids;
    const char *const *stops; // (n_stops) stop strings, which are not reported; need the tokenizer
    size_t n_stops;
    ct_lm_sampling sampling;
    int64_t top_logprobs; // number of most likely tokens to report for each token, 0 to 128
    bool logprobs;        // report the log-probability of each token
    bool include_special; // report the text of special tokens, too
    // Called for each token; returns false to end the request. May be NULL.
    bool (*on_token)(const ct_engine_token *token, void *user);
    // Called once when the request has ended, after the last token. May be NULL.
    void (*on_finish)(const ct_engine_result *result, void *user);
    void *user;
    ct_loc here;
} ct_engine_request;
// Adds a request; everything it points to is copied. Returns its id, from 1; 0 if it is refused,
// see ct_error_text: CT_E_LIMIT if too many requests are queued, CT_E_ARGUMENT if it does not fit: a
// prompt has fewer tokens than the context.
//     int64_t id = ct_engine_add(engine, .prompt = ids, .n_prompt = n, .on_token = print, .user = out);
//     if (!id) fprintf(stderr, "%s\n", ct_error_text());
CT_API int64_t ct_engine_add_with(ct_engine *engine, ct_engine_request request);
#define ct_engine_add(engine, ...)                                                                 \
    ct_engine_add_with((engine), (ct_engine_request){__VA_ARGS__, .here = CT_HERE})
// Cancels a request before the next step. An id that is unknown, or has ended, is ignored.
CT_API void ct_engine_cancel(ct_engine *engine, int64_t request);

// Runs one pass over all requests. False: there was nothing to do, or an error of the pass
// (ct_failed), with which the running requests have ended; queued ones run after ct_error_clear.
//     while (ct_engine_step(engine)) continue;
CT_API bool ct_engine_step_at(ct_engine *engine, ct_loc here);
#define ct_engine_step(engine) ct_engine_step_at((engine), CT_HERE)

typedef struct ct_engine_metrics {
    int64_t running, queued; // numbers of requests
    // Pages in total, held by running requests, and of these shared by several; tokens per page.
    int64_t pages, pages_used, pages_shared, page_size;
    // So far: passes; prompt tokens that were prefilled, and that were cached; tokens generated.
    int64_t steps, prefilled_tokens, cached_tokens, generated_tokens;
    // Draft tokens so far, and those of them that were accepted.
    int64_t drafted_tokens, accepted_tokens;
    int64_t preempted, finished, cancelled, failed; // requests so far
} ct_engine_metrics;
CT_API ct_engine_metrics ct_engine_stats(const ct_engine *engine); // any thread may call it

// ---------------------------------------------------------------------------------- packed kernels

// Packed kernels: kernels that were compiled ahead of time, in one file. A program that loads them
// needs neither a compiler nor the dynamic linker for a model, for example a statically linked one
// in an empty container. The bits of results are the same. A file is for one version of Cotan and
// for x86-64: for processors with AVX2, with AVX-512 (and VNNI) and, if the model multiplies bf16,
// with AVX-512 BF16.
typedef struct ct_kernels_options {
    // For machines with this many cores, or the next power of two; default: for 1, 2, 4, 8, 16, 32
    // and 64.
    int64_t cores;
    int64_t context; // as in the engine; only models whose rotary embedding depends on it need it
    ct_dtype cache_dtype; // of keys and values, as in the engine
    // Called with the number of kernels that are compiled, and of all; may be NULL.
    void (*progress)(int64_t done, int64_t all, void *user);
    void *user;
    ct_loc here;
} ct_kernels_options;
typedef struct ct_kernels_packed {
    size_t kernels, bytes; // in the file
} ct_kernels_packed;
// Writes the kernels of all kinds of steps of the model's engine to a file, completely or not at
// all. It plans and compiles but runs nothing, so that this machine need not have any of those
// processors. False: see ct_error_text.
//     if (!ct_kernels_pack(model, "smollm.kernels", NULL, .cores = 8)) fprintf(stderr, "%s\n", ct_error_text());
CT_API CT_MUST_USE bool ct_kernels_pack_with(const ct_pretrained *model, const char *path,
                                             ct_kernels_packed *packed, ct_kernels_options options);
#define ct_kernels_pack(...) CT__KERNELS_PACK(__VA_ARGS__, .here = CT_HERE)
#define CT__KERNELS_PACK(model, path, packed, ...)                                                 \
    ct_kernels_pack_with((model), (path), (packed), (ct_kernels_options){__VA_ARGS__})

// Loads such a file for the process, before the first plan is made. Plans are then made for its
// instruction set, and kernels that the file lacks are compiled or interpreted as usual. A file
// that is damaged, of another version, or for other processors is rejected as a whole. It is
// executable code: load only files that you trust. COTAN_KERNELS names files, too, separated by
// colons. False: see ct_error_text.
//     if (!ct_kernels_load("smollm.kernels")) fprintf(stderr, "%s\n", ct_error_text());
CT_API CT_MUST_USE bool ct_kernels_load_at(const char *path, ct_loc here);
#define ct_kernels_load(path) ct_kernels_load_at((path), CT_HERE)
// Returns the instruction set of the loaded kernels ("AVX-512"); NULL: none are loaded.
CT_API const char *ct_kernels_isa(void);

#ifdef __cplusplus
}
#endif

#endif
