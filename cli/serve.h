// cotan serve, in parts: serve.c has the command, serve_http.c the connections, serve_models.c what is served,
// serve_writing.c the texts that are written for a request, serve_fields.c what its JSON says of them; the others answer
// one family of requests each.
//
// A connection has a thread, which reads a request, answers it and waits meanwhile. A model has one, which makes the
// engine's steps and puts what is written into the requests' queues. The main thread looks after the connections.
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
    MOST_BODY = 16 << 20, // bytes of a request
    MOST_DEPTH = 64,      // of lists and objects in it
    MOST_CONNECTIONS = 512,
    SPARE_CONNECTIONS = 128, // that may come meanwhile an idle one is closed
    LARGE_BODY = 256 << 10,  // bytes, whose memory goes back to the system at once
    MOST_STOPS = 16,
    MOST_LIKELY = 20,
    MOST_MODELS = 16,
    MOST_KEYS = 64,
    MOST_SCORES = 1 << 30, // bytes, of a prompt whose log-probabilities are asked for
    LAST_SECONDS = 5,      // that running requests have when the server is told to stop
};

// ------------------------------------------------------------------------------------------- texts

// Text that grows. Once memory was missing it takes no more, and `failed` says so.
typedef struct buffer {
    char *v; // n bytes and a zero
    size_t n, cap;
    bool failed;
} buffer;
void put(buffer *to, const char *text, size_t n);
void putf(buffer *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
void put_json(buffer *to, json_t *value); // in one line; takes the value
void put_event(buffer *to, const char *name,
               json_t *value);                 // server-sent; name NULL: none; takes the value
json_t *json_text(const char *text, size_t n); // a string, with U+FFFD for what is no UTF-8

// ------------------------------------------------------------------------------------------ server

typedef struct model model;
typedef struct exchange exchange;
typedef struct writing writing;
typedef struct metrics metrics;

typedef struct serve_settings {
    const char *host;
    int64_t port, context, parallel, queue, timeout, guesses;
    uint64_t cache, bodies;
    int cache_type;   // of f32, f16, bf16, i8
    const char *cors; // NULL: no other pages; "*": all
    char *keys[MOST_KEYS];
    size_t n_keys; // 0: none is wanted
    machine machine;
} serve_settings;

typedef struct server {
    serve_settings is;
    model *models;
    size_t n_models;
    metrics *metrics;
    atomic_bool stopping;
    time_t began;
} server;

// -------------------------------------------------------------------------------------- exchanges

typedef enum { STYLE_OPENAI, STYLE_OLLAMA } error_style;
// Requests whose members have the same names (serve_known.c).
enum {
    NAMES_CHAT = 1,      // /v1/chat/completions
    NAMES_TEXT = 2,      // /v1/completions
    NAMES_RESPONSES = 4, // /v1/responses
    NAMES_NATIVE = 8,    // /completion, llama-server's own
    NAMES_OLLAMA = 16,   // /api/chat and /api/generate
    NAMES_OPTIONS = 32,  // "options" of these
};
typedef struct route {
    const char *method, *path;
    bool more;  // the path goes on with a name
    bool open;  // needs no key
    bool waits; // is answered while models load, too
    error_style style;
    unsigned names;              // NAMES_..., or 0: any are taken
    bool (*answer)(exchange *x); // false: it has been refused
} route;
extern const route routes[];
extern const size_t n_routes;

// A request and its reply.
struct exchange {
    server *server;
    const route *route;
    const char *rest; // of the path, behind the route's
    struct watch *watch;
    bool packed;  // the body is compressed
    bool crowded; // the bodies of all requests take more than they may
    size_t held;  // bytes of the body that are counted
    buffer body;
    json_t *asked; // what the body says: an object; NULL: there was none
    int code;
    const char *type, *allow;
    buffer out;
    int retry_after; // seconds; 0: it is not said
    // A reply that comes in pieces: `next` waits for some; false: that was all. `end` is called in any case.
    bool (*next)(void *state, buffer *out);
    void (*end)(void *state);
    void *state;
};
// The reply is an error, said in the form that the route's clients read. Returns false.
bool refuse_request(exchange *x, int code, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
// The same with the error of the thread's context, which is cleared.
bool refuse_failed(exchange *x, int code, const char *param);
bool reply_json(exchange *x, json_t *value); // takes the value; true
bool reply_stream(exchange *x, const char *type, bool (*next)(void *, buffer *),
                  void (*end)(void *),
                  void *state); // true
json_t *error_object(error_style style, int code, const char *param, const char *what);

// Fills an id such as "chatcmpl-" and 24 digits.
enum { ID_BYTES = 48 };
void make_id(const char *prefix, char id[ID_BYTES]);
uint64_t random_number(void);
double seconds_now(void); // of a clock that only goes forward

// Of a connection, for who looks after all of them: while `writing` is there, a client that goes away ends it.
void watch_writing(struct watch *watch, writing *w); // NULL: there is none any more
bool nobody_waits(void *exchange); // its client has gone away, so that no more need be computed

typedef struct listener listener;
// NULL: `*status` is what the process ends with, and what was to be said has been said.
listener *listen_http(server *s, int *status);
int listener_port(const listener *l);
void look_after(listener *l);  // closes what has taken too long, cancels for clients that are gone
void refuse_more(listener *l); // takes no connections from now on
size_t busy_requests(listener *l);
void cancel_all(listener *l);
void close_http(listener *l);

// ------------------------------------------------------------------------------------------ models

typedef enum { MODEL_LOADING, MODEL_READY, MODEL_BROKEN } model_state;
struct model {
    server *server;
    const char *path;
    char name[256], digest[65];
    uint64_t size; // bytes of its files
    time_t changed;
    atomic_int state;
    char why[1024];         // of a broken one
    atomic_uint pages_seen; // of serve_files.c
    atomic_bool cut_short;
    ct_pretrained *is;
    ct_engine *engine;        // NULL: it does not write
    int64_t context;          // tokens that a text may have; 0: no limit
    bool takes_tools;         // its template shows them to it
    int32_t anchor;           // a token behind which others are shown, with their blanks
    _Atomic(ct_ctx *) loader; // of its thread
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool work, over;
    pthread_mutex_t template_lock; // a template is rendered by one thread at a time
    pthread_mutex_t read_lock;     // so is `reader` used
    ct_ctx *reader;                // where texts are read for embeddings
    ct_embedding embeds;           // how
};
// Of files that are cut short while they are served (serve_files.c): guard_files comes before any is mapped.
void guard_files(void);
bool is_cut_short(model *m); // what it has computed since is of no use
extern const char cut_short[];
bool files_have_changed(const model *m); // since the model was loaded
bool start_model(model *m);
bool stop_model(model *m); // whose requests have ended; false: its thread goes on
void wake_model(model *m);
// The one that the request names in `model`, or the first. NULL: it has been refused.
model *named_model(exchange *x, bool writes);
model *find_model(server *s, const char *name);
const char *short_name(const char *name, size_t *n); // without Ollama's ":latest"
// Vectors (n, width) of texts that are given by their tokens, as the model's folder has it. False: `why` says it.
bool read_vectors(model *m, const ct_lm_text *texts, size_t n, float *vectors, ct_embed_options o,
                  char why[512]);
// Scores (n, labels) of a model that tells classes of texts apart.
bool read_classes(model *m, const ct_lm_text *texts, size_t n, float *scores, ct_embed_options o,
                  char why[512]);
// Of each token but the first the log-probability, its rank from 1 on, and the n_best likeliest ones in its place:
// own (n), rank (n), best (n, n_best).
bool read_likely(model *m, const int32_t *ids, size_t n, double *own, int64_t *rank,
                 ct_engine_choice *best, size_t n_best, char why[512]);
typedef struct id_list {
    int32_t *ids; // n of them
    size_t n;
} id_list;
void free_ids(id_list *list); // and empties it
// Tokens as a request has them: a list of ids from 0 on. False: it has been refused.
bool read_ids(exchange *x, const model *m, json_t *list, const char *param, id_list *e);
// False: see ct_error_text.
bool encode(model *m, const char *text, size_t n, bool add_special, id_list *e);
void name_model(model *m, const char *name, size_t n); // NULL: by its path

// ---------------------------------------------------------------------------------------- writing

// What a request wants of the texts that are written for it.
typedef struct wanted {
    ct_lm_sampling sampling;
    ct_num most;      // tokens; not given: as many as the context allows; 0: none is written
    bool may_be_none; // most may be 0
    bool ignore_eos;  // the model's own end tokens do not end a text
    bool shows_special;
    bool one_call;  // calls after the first are left out
    bool tells_ids; // numbers of tokens are kept
    int32_t *ends;  // (n_ends) tokens that end a text
    size_t n_ends;
    int64_t n; // texts
    const char *stops[MOST_STOPS];
    size_t n_stops;
    bool log_probabilities;
    int64_t likely;
    ct_num
        prompt_likely; // the likeliest tokens beside each of the prompt; not given: none is looked at
    ct_lm_bias *bias; // that sampling names
    // Of a conversation: calls of `tools`, a JSON list, are looked for (NULL: they are not), and reasoning.
    const char *tools;
    bool split;
} wanted;

typedef struct tool_call { // of a tool
    char id[ID_BYTES];
    buffer name, arguments;
} tool_call;
// One of the texts.
typedef struct choice {
    writing *of;
    size_t index;
    int64_t request; // the engine's number
    buffer content, reasoning;
    tool_call *calls;
    size_t n_calls;
    json_t *likely; // of the tokens since it was last taken, as /v1/chat/completions has them
    json_t *ids;    // of the tokens that were written, where `tells_ids`; else NULL
    bool over, failed;
    ct_engine_end end;
    bool by_word;  // a stop string ended it, which `why` holds
    char why[512]; // of a failure
    size_t prompt, cached, written;
    size_t reasoned, since; // tokens of its reasoning; those since the last that added to a text
    double first, all;
    ct_chat_parser *parser; // NULL: all is content
    size_t offset;          // characters that were told, for who counts them
} choice;

typedef enum { PART_CONTENT, PART_REASONING, PART_CALL, PART_ARGUMENTS, PART_END } part_kind;
// Hears of what has come of a text; of PART_END text is NULL.
typedef void (*part_fn)(void *user, choice *c, part_kind kind, size_t call, const char *text,
                        size_t n);
struct writing {
    model *model;
    struct watch *watch;
    pthread_mutex_t lock;
    pthread_cond_t come;
    struct event *first, *last;
    choice *choices;
    size_t n, running;
    size_t each; // texts behind one prompt
    bool one_call, tells_ids;
    ct_decoder *decoder;
    bool failed;
    part_fn part;
    void *user;
    double began;
};
typedef struct given_prompt {
    const int32_t *ids;
    size_t n;
    const char *text; // of a conversation: a template may open <think> at its end; else NULL
} given_prompt;
// Adds wanted.n texts behind each prompt to the model's engine. NULL: it has been refused.
writing *start_writing(exchange *x, model *m, const wanted *w, const given_prompt *prompts,
                       size_t n);
// Waits for something of one of the texts, and tells `part`. False: all have ended.
bool go_on(writing *w);
void cancel_writing(writing *w);            // any thread
void free_writing(writing *w);              // cancels, and waits for the end
const char *finish_reason(const choice *c); // "stop", "length", "tool_calls"
json_t *take_likely(choice *c);             // a list
// Puts those of the prompt's tokens there, before any is written. False: `why` says it.
bool add_prompt_likely(choice *c, const given_prompt *p, size_t n_best, char why[512]);
// The prompt's tokens as vLLM's prompt_logprobs has them. NULL: `why` says it.
json_t *make_prompt_logprobs(writing *w, const given_prompt *p, size_t n_best, char why[512]);
typedef struct token_counts {
    size_t prompt, cached, written, reasoned; // tokens
} token_counts;
token_counts count_tokens(const writing *w);
// Did a text fail, or was it cancelled? Then `*code` and `what` say how.
bool is_broken(const writing *w, int *code, const char **what);

// ----------------------------------------------------------------------------------------- fields

typedef enum {
    FIELD_FLAG,
    FIELD_WHOLE,
    FIELD_SEED,
    FIELD_NUMBER,
    FIELD_TEXT,
    FIELD_LIST,
    FIELD_OBJECT
} field_kind;
typedef struct field {
    const char *name;
    field_kind kind;
    double low, high;
    void *
        out; // bool, ct_num, given_seed, ct_num, const char *, json_t *, json_t *; as it is where nothing is given
} field;
// Members that are null, or not there, are not given; others are not looked at. `where` stands in front of names.
bool read_fields(exchange *x, json_t *from, const char *where, const field *fields, size_t n);
// Refuses members of `from` that would change the answer and cannot be followed. `where` is put before their names.
bool refuse_known(exchange *x, unsigned family, json_t *from, const char *where);
// A value as it is shown in a sentence. Overwritten by the thread's next call.
const char *shown(const json_t *value);
typedef struct given_seed { // any whole number of 64 bits, which a double does not hold
    bool given;
    int64_t value;
} given_seed;
// Numbers of a request that ct_lm_sampling has in another form.
typedef struct loose_numbers {
    given_seed seed;
    ct_num top_k, min_p, presence, frequency, window;
} loose_numbers;
loose_numbers loosen(const ct_lm_sampling *s);
// A seed that is not given is drawn. False: it has been refused.
bool settle(exchange *x, const char *where, ct_lm_sampling *s, const loose_numbers *given);
// temperature, top_p ... logit_bias, stop and seed, which OpenAI's requests have alike.
bool read_wanted(exchange *x, model *m, wanted *w, const char *most_name);
// The model's own tokens that end a text, and those of `list` (may be NULL).
bool read_ends(exchange *x, const model *m, json_t *list, wanted *w);
bool read_stops(exchange *x, json_t *stop, const char *where, wanted *w);
void free_wanted(wanted *w);

// ------------------------------------------------------------------------------------ conversations

// What a conversation becomes: its prompt.
typedef struct conversation {
    json_t *messages, *tools, *variables; // as the template is given them; tools may be NULL
    bool continues;                       // the last message is continued, not answered
    bool ends_open;                       // no prompt of an answer is added
    bool adds_special;
    id_list ids;
    char *text, *tools_text;
} conversation;
bool read_messages(exchange *x, json_t *list, conversation *c);
bool read_tools(exchange *x, json_t *tools, json_t *choice, conversation *c);
// Renders and encodes. False: it has been refused.
bool make_prompt(exchange *x, model *m, conversation *c);
void free_conversation(conversation *c);
// Do so many tokens leave room for one more? False: it has been refused.
bool prompt_fits(exchange *x, const model *m, size_t n, const char *param);

bool answer_chat(exchange *x);
bool answer_completions(exchange *x);
bool answer_responses(exchange *x);
bool answer_models(exchange *x);
bool answer_model(exchange *x);
bool answer_embeddings(exchange *x);
bool answer_rerank(exchange *x);
bool answer_predict(exchange *x);
bool answer_tei_embed(exchange *x);
json_t *json_numbers(const float *v, int64_t n);
bool answer_tokenize(exchange *x);
bool answer_detokenize(exchange *x);
bool answer_native(exchange *x);
bool answer_props(exchange *x);
bool answer_slots(exchange *x);
bool answer_apply_template(exchange *x);
bool answer_ollama_chat(exchange *x);
bool answer_ollama_generate(exchange *x);
bool answer_ollama_embed(exchange *x);
bool answer_ollama_embeddings(exchange *x);
bool answer_ollama_tags(exchange *x);
bool answer_ollama_show(exchange *x);
bool answer_ollama_ps(exchange *x);
bool answer_ollama_version(exchange *x);
bool answer_ollama_cannot(exchange *x);
bool answer_metrics(exchange *x);
bool answer_health(exchange *x);
bool answer_page(exchange *x);

// ---------------------------------------------------------------------------------------- metrics

metrics *metrics_new(void);
void metrics_free(metrics *m);
void count_request(metrics *m, const route *r, int code); // r NULL: another path
void count_text(metrics *m, const choice *c);

#endif
