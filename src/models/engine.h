// The engine's parts: its requests, which pages they have, and the text that they make.
#ifndef COTAN_MODELS_ENGINE_H
#define COTAN_MODELS_ENGINE_H

#include <pthread.h>

#include "base/text.h"
#include "cotan/engine.h"
#include "models/pages.h"
#include "models/stack.h"

// A request with all that it named, and its text so far.
typedef struct ct_writing {
    int64_t id;
    ct_engine_request ask; // its pointers lead into the arena
    ct_arena arena;
    int32_t *tokens; // (n of cap) the prompt, and what was written
    int64_t n, cap;
    int64_t read;   // of these, whose keys and values the cache has, or the state has seen
    int64_t cached; // of these, that another text had read, when it began
    int32_t *page;  // (n_pages)
    int64_t n_pages;
    int64_t known;       // pages whose content others may find
    uint64_t content;    // of the last of these
    int32_t state;       // its place in the pool of states, and its own among those that run
    bool cancelled;      // it is in the list of those that were, by whoever holds the lock
    bool waits;          // it is in the queue
    double added, first; // seconds of the clock; first: 0 until there is one
    ct_decoder *decoder;
    ct_text held;                      // text that may begin a stop string
    const char *found;                 // the stop string that ended it
    struct ct_writing *next, *before;  // among those that wait
    struct ct_writing *same_slot;      // of the table of numbers
    struct ct_writing *next_cancelled; // among those that were cancelled
} ct_writing;

// Requests that wait, and all of them by number (engine_queue.c).
typedef struct ct_engine_queue {
    ct_writing *first, *last; // first: the next to run
    int64_t n;
    ct_writing *cancelled; // not yet taken
    ct_writing **slot;     // (n_slots, a power of two) chains of numbers; n_known requests in all
    size_t n_slots, n_known;
} ct_engine_queue;

struct ct_engine {
    const ct_lm *lm;
    ct_engine_options options;
    ct_lm_cache *cache;
    ct_pages pages;
    bool paged; // keys and values; else states
    ct_tensor
        memory; // (1, S, width): what an encoder made of a text that all its requests look at; or CT_NONE
    int64_t most_pages; // of one text

    pthread_mutex_t lock; // for what follows
    ct_engine_queue queue;
    ct_writing **running; // (n_running of texts) those that began first stand first
    bool *place_taken;    // (texts) of states
    int64_t n_running, ids;
    ct_engine_state count;

    int32_t *ints; // what a step is made of: (n_ints)
    float *bent;   // (vocab)
    ct_engine_choice likely[128];
    size_t n_ints;
};

// Rows of one length in a step.
typedef struct ct_engine_group {
    ct_writing **text;
    int64_t n, time; // texts, and tokens of each
    bool every;      // what follows each token is asked for, not the last alone
} ct_engine_group;

// engine_step.c: one pass over what they have not read -> logits behind each (n of both, vocab), or NULL. Values live as
// long as the scope.
const float *ct__engine_pass(ct_engine *e, const ct_engine_group group[2], ct_loc here);
// Pages for the next `time` tokens of the text: false where none is left.
bool ct__engine_room(ct_engine *e, ct_writing *w, int64_t time, ct_loc here);
// Takes what other texts have read of this one.
void ct__engine_share(ct_engine *e, ct_writing *w, ct_loc here);
void ct__engine_learn(ct_engine *e, ct_writing *w); // pages that are full now can be found
void ct__engine_give_back(ct_engine *e, ct_writing *w, ct_loc here);

// engine_queue.c, with the engine's lock held.
bool ct__requests_enter(ct_engine_queue *q,
                        ct_writing *w); // by its number; false: there is no memory
void ct__requests_forget(ct_engine_queue *q, ct_writing *w);
void ct__requests_append(ct_engine_queue *q, ct_writing *w);
void ct__requests_prepend(ct_engine_queue *q, ct_writing *w);
void ct__requests_remove(ct_engine_queue *q, ct_writing *w); // one that does not wait: nothing
void ct__requests_cancel(ct_engine_queue *q, int64_t id);
// The next that was cancelled, out of the queue; NULL: there is none.
ct_writing *ct__requests_take_cancelled(ct_engine_queue *q);
void ct__requests_free(ct_engine_queue *q);

// lm_beams.c: ct_lm_generate with beams, or of a model that reads another text.
bool ct__lm_search(const ct_lm_generate_args *args);

// engine_text.c: what one more token adds, but for what may begin a stop string, which stays in w->held; `stopped`: one
// stands there whole. What is returned is told at once. False: the context's error.
bool ct__engine_text(ct_writing *w, int32_t token, ct_text *told, bool *stopped);
bool ct__engine_text_end(ct_writing *w, ct_text *told, bool *stopped);
// The n likeliest, likeliest first; their number.
size_t ct__engine_likeliest(const float *scores, int64_t vocab, ct_engine_choice *out, size_t n);

// engine_request.c: a copy of the request; NULL: the context's error.
// `op` begins their errors.
bool ct__lm_tokens_fit(const ct_lm *lm, const int32_t *tokens, size_t n, int64_t context,
                       const char *op, ct_loc here);
ct_engine *ct__engine_new(const ct_lm *lm, ct_engine_options options, const char *op);
int64_t ct__engine_add(ct_engine *e, const ct_engine_request *request, const char *op);
ct_writing *ct__writing_new(const ct_engine *e, const ct_engine_request *ask, const char *op);
void ct__writing_free(ct_writing *w);

#endif
