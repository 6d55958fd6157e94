// cotan serve. serve.c has the command, serve_http.c the connections, serve_models.c the models,
// serve_generation.c the generations of a request, serve_fields.c the parsing of their JSON; each of the
// other files handles one family of requests.
//
// Each connection has a thread, which reads a request, handles it and waits meanwhile. Each model has a
// thread, which runs the engine's steps and puts tokens into the queues of the requests. The main thread
// polls the connections.
#ifndef COTAN_CLI_SERVE_H
#define COTAN_CLI_SERVE_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cotan/chat.h>
#include <cotan/embed.h>
#include <cotan/engine.h>
#include <cotan/tokenizer.h>

#include "cli.h"

enum {
    MAX_BODY = 16 << 20, // bytes of a request
    MAX_DEPTH = 64,      // of nested lists and objects in it
    MAX_CONNECTIONS = 512,
    SPARE_CONNECTIONS = 128, // accepted while an idle connection is being closed
    LARGE_BODY = 256 << 10,  // bytes from which on memory is returned to the system at once
    MAX_STOPS = 16,
    MAX_TOP_LOGPROBS = 20,
    MAX_MODELS = 16,
    MAX_KEYS = 64,
    MAX_LOGITS_BYTES = 1 << 30, // logits of a prompt whose log-probabilities are requested
    SHUTDOWN_SECONDS = 5,       // given to running requests when the server stops
};

// ------------------------------------------------------------------------------------------- texts

// A growing byte buffer. After an allocation has failed it ignores further writes and `failed` is set.
typedef struct buffer {
    char *v; // n bytes and a terminating zero
    size_t n, cap;
    bool failed;
} buffer;
void buffer_put(buffer *to, const char *text, size_t n);
void buffer_putf(buffer *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buffer_put_json(buffer *to, json_t *value); // in one line; consumes the value
void buffer_put_event(buffer *to, const char *name,
                      json_t *value); // server-sent event; name NULL: none; consumes the value
json_t *json_utf8(const char *text, size_t n); // a string; U+FFFD if the text is not UTF-8

// ------------------------------------------------------------------------------------------ server

typedef struct model model;
typedef struct exchange exchange;
typedef struct generation generation;
typedef struct metrics metrics;

typedef struct serve_settings {
    const char *host;
    int64_t port, context, max_sequences, max_queued, prefill_chunk, timeout, speculate;
    uint64_t cache_bytes, max_body_bytes;
    int cache_type;   // f32, f16, bf16, i8
    int activations;  // of activations_option
    const char *cors; // allowed origin; NULL: none; "*": all
    char *keys[MAX_KEYS];
    size_t n_keys; // 0: no key is required
    machine machine;
} serve_settings;

typedef struct server {
    serve_settings is;
    model *models;
    size_t n_models;
    metrics *metrics;
    atomic_bool stopping;
    time_t start_time;
} server;

// -------------------------------------------------------------------------------------- exchanges

typedef enum { STYLE_OPENAI, STYLE_OLLAMA } error_style;
// Families of requests whose members have the same meaning (serve_unsupported.c).
enum {
    FIELDS_CHAT = 1,            // /v1/chat/completions
    FIELDS_COMPLETION = 2,      // /v1/completions
    FIELDS_RESPONSES = 4,       // /v1/responses
    FIELDS_NATIVE = 8,          // /completion, llama-server's own
    FIELDS_OLLAMA = 16,         // /api/chat and /api/generate
    FIELDS_OLLAMA_OPTIONS = 32, // their member "options"
};
typedef struct route {
    const char *method, *path;
    bool has_suffix;          // the path continues with a name
    bool is_public;           // requires no API key
    bool works_while_loading; // is also handled while models load
    error_style style;
    unsigned families;           // FIELDS_..., or 0: no member is rejected
    bool (*handle)(exchange *x); // false: an error was replied
} route;
extern const route routes[];
extern const size_t n_routes;

// A request and its reply.
struct exchange {
    server *server;
    const route *route;
    const char *path_suffix; // the path after the route's
    struct conn *conn;
    bool is_compressed;
    bool is_over_limit; // the bodies of all requests exceed their limit
    size_t body_bytes;  // bytes of the body that are counted towards the limit
    buffer body;
    json_t *request; // the body, an object; NULL: none
    int code;
    const char *content_type, *allow;
    buffer out;
    int retry_after; // seconds; 0: not sent
    // For a streamed reply: `next_chunk` waits for more; false: it is complete. `end_state` is always
    // called.
    bool (*next_chunk)(void *state, buffer *out);
    void (*end_state)(void *state);
    void *state;
};
// Replies with an error in the format of the route. Returns false.
bool fail_request(exchange *x, int code, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
// The same with the error of the thread's context, which is cleared.
bool fail_request_from_error(exchange *x, int code, const char *param);
bool reply_json(exchange *x, json_t *value); // consumes the value; true
bool reply_stream(exchange *x, const char *type, bool (*next)(void *, buffer *),
                  void (*end)(void *),
                  void *state); // returns true
json_t *error_object(error_style style, int code, const char *param, const char *what);

// Makes an id such as "chatcmpl-" and 24 digits.
enum { ID_BYTES = 48 };
void make_id(const char *prefix, char id[ID_BYTES]);
uint64_t random_number(void);

// Sets the generation of a connection; while it is set, it is cancelled when the client disconnects.
void conn_set_generation(struct conn *conn, generation *w); // NULL: none
// The client has disconnected, so that the work can be abandoned.
bool client_is_disconnected(void *exchange);

typedef struct listener listener;
// NULL: `*status` is the exit status, and the error has been printed.
listener *listener_open(server *s, int *status);
int listener_port(const listener *l);
// Closes connections past their deadline, cancels generations of disconnected clients.
void listener_poll(listener *l);
void listener_stop_accepting(listener *l); // accepts no more connections
size_t listener_busy_count(listener *l);
void listener_cancel_all(listener *l);
void listener_close(listener *l);

// ------------------------------------------------------------------------------------------ models

typedef enum { MODEL_LOADING, MODEL_READY, MODEL_FAILED } model_state;
struct model {
    server *server;
    const char *path;
    char name[256], digest[65];
    uint64_t size; // bytes of its files
    time_t modified;
    atomic_int state;
    char error[1024];                // of a failed one
    atomic_uint replaced_pages_seen; // of serve_files.c
    atomic_bool is_truncated;
    ct_pretrained *is;
    ct_engine *engine;   // NULL: it does not generate
    int64_t context;     // maximum number of tokens of a sequence; 0: no limit
    bool supports_tools; // its chat template shows them to it
    // A token after which others are decoded, so that they keep their leading spaces.
    int32_t anchor_token;
    _Atomic(ct_ctx *) loader_ctx; // context of its thread
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool has_work, is_stopping;
    pthread_mutex_t template_lock; // one thread at a time renders the template
    pthread_mutex_t reader_lock;   // one thread at a time uses `reader_ctx`
    ct_ctx *reader_ctx;            // for embeddings and log-probabilities
    ct_pooling_config embedding;   // how texts are embedded
};
// Files that are truncated while they are mapped (serve_files.c): install the handler before any is
// mapped.
void truncation_install_handler(void);
bool model_is_truncated(model *m); // what it has computed since is invalid
extern const char truncated_message[];
bool model_files_changed(const model *m); // since the model was loaded
bool model_start(model *m);
bool model_stop(model *m); // after its requests have ended; false: its thread is still running
void model_wake(model *m);
// Returns the model that the request names in `model`, or the first one. NULL: an error was replied.
model *find_requested_model(exchange *x, bool writes);
model *model_find(server *s, const char *name);
const char *strip_latest_tag(const char *name, size_t *n); // without Ollama's ":latest"
// Computes vectors (n, width) of texts that are given as tokens, pooled as the model's directory says.
// False: see `why`.
bool model_embed_texts(model *m, const ct_lm_text *texts, size_t n, float *vectors,
                       ct_embed_options o, char why[512]);
// Computes scores (n, labels) of a classifier.
bool model_classify_texts(model *m, const ct_lm_text *texts, size_t n, float *scores,
                          ct_embed_options o, char why[512]);
// For each token but the first computes its log-probability, its rank from 1, and the n_best most likely
// tokens at its position: own (n), rank (n), best (n, n_best).
bool model_prompt_logprobs(model *m, const int32_t *ids, size_t n, double *own, int64_t *rank,
                           ct_engine_logprob *best, size_t n_best, char why[512]);
typedef struct id_list {
    int32_t *ids; // (n)
    size_t n;
} id_list;
void id_list_free(id_list *list); // zeroes it, too
// Parses token ids of a request: a list of ids from 0. False: an error was replied.
bool parse_ids(exchange *x, const model *m, json_t *list, const char *param, id_list *e);
// False: see ct_error_text.
bool model_encode(model *m, const char *text, size_t n, bool add_special, id_list *e);
void model_set_name(model *m, const char *name, size_t n); // NULL: from its path

// ---------------------------------------------------------------------------------------- writing

// The parameters of a generation.
typedef struct generation_params {
    ct_lm_sampling sampling;
    ct_num most;             // not given: as many tokens as the context allows; 0: none
    bool allows_zero_tokens; // most may be 0
    bool ignore_eos;         // the model's own EOS tokens do not end it
    bool include_special;
    bool single_tool_call; // tool calls after the first are dropped
    bool return_token_ids; // ids of generated tokens are kept
    int32_t *ends;         // (n_ends) EOS tokens
    size_t n_ends;
    int64_t n; // number of choices per prompt
    const char *stops[MAX_STOPS];
    size_t n_stops;
    bool log_probabilities;
    int64_t likely;
    // Number of most likely tokens per prompt token; not given: none are computed.
    ct_num prompt_top_logprobs;
    ct_lm_logit_bias *bias; // the array in sampling
    // For conversations: `tools`, a JSON list, enables parsing of tool calls (NULL: off); parse_chat
    // enables parsing of reasoning and calls.
    const char *tools;
    bool parse_chat;
} generation_params;

typedef struct tool_call {
    char id[ID_BYTES];
    buffer name, arguments;
} tool_call;
// One of the generated sequences.
typedef struct choice {
    generation *owner;
    size_t index;
    int64_t request; // id in the engine
    buffer content, reasoning;
    tool_call *calls;
    size_t n_calls;
    json_t *likely;    // logprobs since they were last taken, in the format of /v1/chat/completions
    json_t *token_ids; // ids of generated tokens with `return_token_ids`; else NULL
    bool is_done, failed;
    ct_engine_finish_reason end;
    bool by_stop_string; // a stop string ended it, which is in `why`
    char why[512];       // error message
    size_t prompt, cached, written;
    // Tokens of its reasoning; tokens since the last one that added text.
    size_t reasoning_tokens, unattributed_tokens;
    double first, all;
    ct_chat_parser *parser; // NULL: all text is content
    size_t text_offset;     // characters reported so far, for the legacy logprobs
} choice;

typedef enum {
    PART_CONTENT,
    PART_REASONING,
    PART_TOOL_CALL,
    PART_TOOL_ARGUMENTS,
    PART_END
} part_kind;
// Receives a part of a choice; for PART_END text is NULL.
typedef void (*part_fn)(void *user, choice *c, part_kind kind, size_t call, const char *text,
                        size_t n);
struct generation {
    model *model;
    struct conn *conn;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct event *first_event, *last_event;
    choice *choices;
    size_t n, running;
    size_t choices_per_prompt;
    bool single_tool_call, return_token_ids;
    ct_decoder *decoder;
    bool failed;
    part_fn on_part;
    void *user;
    double start_time;
};
typedef struct prompt_input {
    const int32_t *ids;
    size_t n;
    const char *text; // for a conversation, whose template may end with an open <think>; else NULL
} prompt_input;
// Adds n choices per prompt to the model's engine. NULL: an error was replied.
generation *generation_start(exchange *x, model *m, const generation_params *w,
                             const prompt_input *prompts, size_t n);
// Waits for an event of any choice and reports it to `on_part`. False: all have ended.
bool generation_wait(generation *w);
void generation_cancel(generation *w);      // any thread may call it
void generation_free(generation *w);        // cancels, and waits for the end
const char *finish_reason(const choice *c); // "stop", "length", "tool_calls"
json_t *choice_take_logprobs(choice *c);    // a list
// Adds the logprobs of the prompt's tokens, before those of generated ones. False: see `why`.
bool choice_add_prompt_logprobs(choice *c, const prompt_input *p, size_t n_best, char why[512]);
// Makes vLLM's prompt_logprobs. NULL: see `why`.
json_t *make_prompt_logprobs(generation *w, const prompt_input *p, size_t n_best, char why[512]);
typedef struct token_counts {
    size_t prompt, cached, written, reasoning_tokens; // numbers of tokens
} token_counts;
token_counts generation_count_tokens(const generation *w);
// True if a choice failed or was cancelled; `*code` and `what` describe it.
bool generation_has_failed(const generation *w, int *code, const char **what);

// ----------------------------------------------------------------------------------------- fields

typedef enum {
    FIELD_BOOL,
    FIELD_INT,
    FIELD_SEED,
    FIELD_NUMBER,
    FIELD_STRING,
    FIELD_LIST,
    FIELD_OBJECT
} field_kind;
typedef struct field {
    const char *name;
    field_kind kind;
    double low, high;
    // bool, ct_num, optional_seed, ct_num, const char *, json_t *, json_t *; unchanged if not given.
    void *out;
} field;
// Parses members of an object. null and missing members are not given; unlisted members are ignored.
// `where` is a prefix of names in messages.
bool parse_fields(exchange *x, json_t *from, const char *where, const field *fields, size_t n);
// Replies with an error to members of `from` that would change the result and are not supported. `where`
// is a prefix of their names.
bool reject_unsupported_fields(exchange *x, unsigned family, json_t *from, const char *where);
// Formats a value for an error message. The result is overwritten by the thread's next call.
const char *json_excerpt(const json_t *value);
typedef struct optional_seed { // any 64-bit integer, which a double cannot hold
    bool given;
    int64_t value;
} optional_seed;
// Numbers of a request that ct_lm_sampling stores in another form.
typedef struct sampling_fields {
    optional_seed seed;
    ct_num top_k, min_p, presence, frequency, penalty_window;
} sampling_fields;
sampling_fields sampling_fields_init(const ct_lm_sampling *s);
// Applies them. A seed that is not given is random. False: an error was replied.
bool sampling_apply_fields(exchange *x, const char *where, ct_lm_sampling *s,
                           const sampling_fields *given);
// Parses temperature, top_p ... logit_bias, stop and seed, which OpenAI's requests share.
bool parse_generation_params(exchange *x, model *m, generation_params *w, const char *most_name);
// Sets the model's own EOS tokens and those of `list` (may be NULL).
bool parse_eos_ids(exchange *x, const model *m, json_t *list, generation_params *w);
bool parse_stop_strings(exchange *x, json_t *stop, const char *where, generation_params *w);
void generation_params_free(generation_params *w);

// ------------------------------------------------------------------------------------ conversations

// A conversation and the prompt that is made of it.
typedef struct conversation {
    json_t *messages, *tools, *variables; // arguments of the template; tools may be NULL
    bool continue_final;                  // the last message is continued, not answered
    bool no_generation_prompt;            // the template adds no generation prompt
    bool add_special;
    id_list ids;
    char *text, *tools_text;
} conversation;
bool parse_messages(exchange *x, json_t *list, conversation *c);
bool parse_tools(exchange *x, json_t *tools, json_t *choice, conversation *c);
// Renders and encodes the prompt. False: an error was replied.
bool conversation_make_prompt(exchange *x, model *m, conversation *c);
void conversation_free(conversation *c);
// True if a prompt of n tokens leaves space for one more. False: an error was replied.
bool check_prompt_length(exchange *x, const model *m, size_t n, const char *param);

bool handle_chat(exchange *x);
bool handle_completions(exchange *x);
bool handle_responses(exchange *x);
bool handle_models(exchange *x);
bool handle_model(exchange *x);
bool handle_embeddings(exchange *x);
bool handle_rerank(exchange *x);
bool handle_predict(exchange *x);
bool handle_tei_embed(exchange *x);
json_t *json_numbers(const float *v, int64_t n);
bool handle_tokenize(exchange *x);
bool handle_detokenize(exchange *x);
bool handle_native(exchange *x);
bool handle_props(exchange *x);
bool handle_slots(exchange *x);
bool handle_apply_template(exchange *x);
bool handle_ollama_chat(exchange *x);
bool handle_ollama_generate(exchange *x);
bool handle_ollama_embed(exchange *x);
bool handle_ollama_embeddings(exchange *x);
bool handle_ollama_tags(exchange *x);
bool handle_ollama_show(exchange *x);
bool handle_ollama_ps(exchange *x);
bool handle_ollama_version(exchange *x);
bool handle_ollama_unsupported(exchange *x);
bool handle_metrics(exchange *x);
bool handle_health(exchange *x);
bool handle_page(exchange *x);

// ---------------------------------------------------------------------------------------- metrics

metrics *metrics_new(void);
void metrics_free(metrics *m);
void metrics_count_request(metrics *m, const route *r, int code); // r NULL: an unknown path
void metrics_count_choice(metrics *m, const choice *c);

#endif
