// Published models that write for many at once: a model whole (weights, tokenizer, chat template, what its files say
// of generation), and an engine that goes on with all its requests together, a step at a time. `cotan run` and
// `cotan serve` stand on it.
#ifndef COTAN_ENGINE_H
#define COTAN_ENGINE_H

#include "cotan/chat.h"
#include "cotan/lm.h"
#include "cotan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

// ----------------------------------------------------------------------------------- a model whole

// What a folder, a GGUF file or ORG/NAME in the Hub's cache holds. All parts belong to it.
typedef struct ct_pretrained {
    ct_lm *lm;
    ct_tokenizer *tokenizer;
    ct_chat_template *chat; // NULL: the model was not made for conversations
    const int32_t *ends;    // (n_ends) tokens that end what it writes
    size_t n_ends;
    // As generation_config.json has it; without one, draws as the model says.
    ct_lm_sampling sampling;
    // Keys of generation_config.json that change what is written and are not followed, such as "num_beams,
    // forced_eos_token_id"; NULL: none.
    const char *unfollowed;
    const char *path;     // of the folder or file
    const char *type;     // model_type: "llama"
    int64_t context;      // tokens that a text may have; 0: the model sets no limit
    int64_t vocab, width; // tokens that it knows; numbers a position has
    bool writes;          // goes on with texts; false: an encoder (bert)
} ct_pretrained;
// NULL: see ct_error_text.
//     ct_pretrained *m = ct_pretrained_load("SmolLM2-135M-Instruct");
//     ct_pretrained_free(m);
CT_API ct_pretrained *ct_pretrained_load_at(const char *path, ct_loc here);
#define ct_pretrained_load(path) ct_pretrained_load_at((path), CT_HERE)
CT_API void ct_pretrained_free(ct_pretrained *model); // NULL: nothing

// ------------------------------------------------------------------------------------------ engine

// Reads prompts in pieces and adds one token to each text that is written, all in one pass: weights are read once for
// all. Keys and values lie in pages of 16 tokens (Kwon et al. 2023); texts that begin alike share them, also with
// those that have ended, until the room is needed. Where there is none, the text that began last gives its pages back
// and is read anew later. What a request is answered does not depend on what else runs, in any bit.
//
// One thread at a time makes steps, and hears of tokens; any thread adds and cancels.
typedef struct ct_engine ct_engine;

typedef struct ct_engine_options {
    // Makes text of tokens, and finds stop strings; NULL: tokens alone.
    const ct_tokenizer *tokenizer;
    int64_t texts;   // that are written at one time, 1 to 1024; default 32
    int64_t waiting; // requests that wait beside them at most; default 1024
    int64_t context; // tokens that a text may have; default ct_lm_look's usual_context
    // Bytes for keys and values; default: what `texts` of 1,024 tokens take, or a quarter of the memory
    // that is left, if that is less, but at least what one of `context` tokens takes.
    uint64_t memory;
    int64_t piece;  // tokens of prompts that a step reads at most, 16 to 4096; default 256
    ct_dtype dtype; // of keys and values: CT_F32 (default), CT_F16, CT_BF16, or CT_I8
    // Tokens that a request which runs alone guesses at a time, 0 to 15: what followed where the text
    // had the same three tokens before. Those that the model would have written are taken at once.
    // Default 0. No bit depends on it.
    int64_t guesses;
    bool poison; // pages that are given back are filled with NaN: for tests
    ct_loc here;
} ct_engine_options;
// The model must outlive it. NULL: see ct_error_text.
CT_API ct_engine *ct_engine_new_with(const ct_lm *lm, ct_engine_options options);
#define ct_engine_new(...) CT__ENGINE_NEW(__VA_ARGS__, .here = CT_HERE)
#define CT__ENGINE_NEW(lm, ...) ct_engine_new_with((lm), (ct_engine_options){__VA_ARGS__})
CT_API void ct_engine_free(ct_engine *engine); // ends its requests as cancelled; NULL: nothing
// Runs each kind of step once, so that none compiles anything from then on.
CT_API CT_MUST_USE bool ct_engine_warm_at(ct_engine *engine, ct_loc here);
#define ct_engine_warm(engine) ct_engine_warm_at((engine), CT_HERE)

typedef struct ct_engine_choice {
    int32_t token;
    double log_probability;
} ct_engine_choice;
typedef struct ct_engine_token {
    int64_t request;
    int32_t token;
    // By the model, undisturbed; where `likely` or `log_probabilities` asked for it.
    double log_probability;
    const ct_engine_choice *top; // (n_top) the likeliest in its place, likeliest first
    size_t n_top;
    const char *text; // what it adds, in whole characters; what may begin a stop string comes later
    size_t text_n;
} ct_engine_token;

typedef enum ct_engine_end {
    CT_ENGINE_STOPPED,   // a token of `ends`, a stop string, or `token` said so
    CT_ENGINE_LENGTH,    // `most`, or the context
    CT_ENGINE_CANCELLED, // by ct_engine_cancel or ct_engine_free
    CT_ENGINE_FAILED,    // `why` says it
} ct_engine_end;
typedef struct ct_engine_result {
    int64_t request;
    ct_engine_end end;
    const char *why;  // of FAILED; else NULL
    const char *stop; // the stop string that ended it, or NULL
    const char *text; // what was held back for stop strings and incomplete characters
    size_t text_n;
    // Tokens: given; of these, those that another text had read; written.
    size_t prompt, cached, written;
    double first, all; // seconds from when it was added to its first token, and its end
} ct_engine_result;

typedef struct ct_engine_request {
    const int32_t *prompt; // (n_prompt) at least 1
    size_t n_prompt;
    int64_t most;        // tokens to write; default: as many as the context allows
    const int32_t *ends; // (n_ends) tokens that end it; they are not told
    size_t n_ends;
    const char *const *stops; // (n_stops) strings that end it, and are not told; need the tokenizer
    size_t n_stops;
    ct_lm_sampling sampling;
    int64_t likely;         // the likeliest tokens that are told beside each, 0 to 128
    bool log_probabilities; // told of each token
    bool keep_special;      // text of special tokens is told too
    // Hears of each token; false ends the request. NULL: nobody.
    bool (*token)(const ct_engine_token *token, void *user);
    // Hears once how it ended, after the last token. NULL: nobody.
    void (*done)(const ct_engine_result *result, void *user);
    void *user;
    ct_loc here;
} ct_engine_request;
// Adds a request; all that it names is copied. Returns its number, from 1 on; 0: it cannot be taken, see
// ct_error_text: CT_E_LIMIT where too many wait, CT_E_ARGUMENT what does not fit.
//     int64_t id = ct_engine_add(engine, .prompt = ids, .n_prompt = n, .token = print, .user = out);
//     if (!id) fprintf(stderr, "%s\n", ct_error_text());
CT_API int64_t ct_engine_add_with(ct_engine *engine, ct_engine_request request);
#define ct_engine_add(engine, ...)                                                                 \
    ct_engine_add_with((engine), (ct_engine_request){__VA_ARGS__, .here = CT_HERE})
// Ends it before the next step. One that is not there, any more, is no error.
CT_API void ct_engine_cancel(ct_engine *engine, int64_t request);

// One pass over what is there. False: there was nothing to do, or an error that concerns all of them
// (ct_failed), with which they have ended.
//     while (ct_engine_step(engine)) continue;
CT_API bool ct_engine_step_at(ct_engine *engine, ct_loc here);
#define ct_engine_step(engine) ct_engine_step_at((engine), CT_HERE)

typedef struct ct_engine_state {
    int64_t running, waiting; // requests
    // Of the room; held by running requests; of these, by several; tokens of one.
    int64_t pages, pages_used, pages_shared, page;
    // So far: passes; tokens of prompts that were read, and that another text had read; tokens written.
    int64_t steps, read, cached, written;
    int64_t guessed, guessed_well;                  // tokens so far
    int64_t preempted, finished, cancelled, failed; // requests so far
} ct_engine_state;
CT_API ct_engine_state ct_engine_look(const ct_engine *engine); // any thread

// ---------------------------------------------------------------------------------- packed kernels

// Kernels that were compiled before, in one file: where they are loaded, a model needs neither a compiler nor the
// dynamic linker, as in a program that is linked statically, in a container that has nothing else. Bits are the
// same. A file is of one version of Cotan, and of x86-64: for processors with AVX2, with AVX-512 (and VNNI), and,
// where the model multiplies bf16, with AVX-512 BF16.
typedef struct ct_kernels_options {
    // For machines with so many cores, or the next power of two; default: for 1, 2, 4, 8, 16, 32 and 64.
    int64_t cores;
    int64_t context; // as of the engine: only models whose rotary positions hang on it ask for it
    ct_dtype dtype;  // of keys and values, as of the engine
    // Kernels that are compiled so far, and all; NULL: nobody hears.
    void (*progress)(int64_t done, int64_t all, void *user);
    void *user;
    ct_loc here;
} ct_kernels_options;
typedef struct ct_kernels_packed {
    size_t kernels, bytes; // in the file
} ct_kernels_packed;
// Writes the kernels of all kinds of steps of the model's engine to a file, which stands there whole or not at all.
// It plans and compiles; nothing is run, so that this machine needs none of the processors. False: see ct_error_text.
//     if (!ct_kernels_pack(model, "smollm.kernels", NULL, .cores = 8)) fprintf(stderr, "%s\n", ct_error_text());
CT_API CT_MUST_USE bool ct_kernels_pack_with(const ct_pretrained *model, const char *path,
                                             ct_kernels_packed *packed, ct_kernels_options options);
#define ct_kernels_pack(...) CT__KERNELS_PACK(__VA_ARGS__, .here = CT_HERE)
#define CT__KERNELS_PACK(model, path, packed, ...)                                                 \
    ct_kernels_pack_with((model), (path), (packed), (ct_kernels_options){__VA_ARGS__})

// Loads such a file for the process, before the first plan is made; plans are made for its level of processors from
// then on, and what it lacks is compiled or interpreted as ever. A file that is damaged, of another version, or for
// other processors is refused whole. It is code: load what you would run. COTAN_KERNELS names files, too, colons
// between. False: see ct_error_text.
//     if (!ct_kernels_load("smollm.kernels")) fprintf(stderr, "%s\n", ct_error_text());
CT_API CT_MUST_USE bool ct_kernels_load_at(const char *path, ct_loc here);
#define ct_kernels_load(path) ct_kernels_load_at((path), CT_HERE)
// The processors that loaded kernels are for ("AVX-512"); NULL: none are loaded.
CT_API const char *ct_kernels_level(void);

#ifdef __cplusplus
}
#endif

#endif
