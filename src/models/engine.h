// The parts of the engine that serves a model: its sequences, the pages of keys and values that they hold,
// and their text.
#ifndef COTAN_MODELS_ENGINE_H
#define COTAN_MODELS_ENGINE_H

#include <pthread.h>

#include "base/text.h"
#include "cotan/engine.h"
#include "models/pages.h"
#include "models/stack.h"

// A request with copies of everything that it names, and the tokens and the text generated so far.
typedef struct ct_sequence {
    int64_t id;
    ct_engine_request ask; // its pointers point into the arena
    ct_arena arena;
    int32_t *tokens; // (n of cap) the prompt, then the generated tokens
    int64_t n, cap;
    // number of tokens whose keys and values are in the cache, or which the state includes
    int64_t n_computed;
    int64_t cached; // of these, the number reused from another sequence when this one began
    int32_t *page;  // (n_pages)
    int64_t n_pages;
    int64_t n_indexed;  // number of full pages that other sequences can find
    uint64_t prefix_id; // prefix id of the last of these (ct_page)
    // its slot in the pool of states, unique among the running sequences; -1: none
    int32_t state;
    bool cancelled;         // it is in the list of cancelled sequences; guarded by the lock
    bool is_queued;         // it is in the queue
    double added_at, first; // clock in seconds; first_token_at is 0 until there is a token
    ct_decoder *detokenizer;
    ct_text pending_text;               // text that may be the beginning of a stop string
    const char *matched_stop;           // the stop string that ended the sequence
    struct ct_sequence *next, *prev;    // neighbours in the queue
    struct ct_sequence *next_in_bucket; // in the hash table by id
    struct ct_sequence *next_cancelled; // in the list of cancelled sequences
} ct_sequence;

// The queued sequences, and the hash table of all sequences by id (engine_queue.c).
typedef struct ct_engine_queue {
    ct_sequence *first, *last; // first is the next one to run
    int64_t n;
    ct_sequence *cancelled; // not yet handled by a step
    ct_sequence **buckets;  // (n_buckets, a power of two) chains by id; n_requests sequences in all
    size_t n_buckets, n_requests;
} ct_engine_queue;

struct ct_engine {
    const ct_lm *lm;
    ct_engine_options options;
    ct_lm_cache *cache;
    ct_pages pages;
    bool is_paged; // true: it has keys and values in pages; false: recurrent states
    // (1, S, width): the encoder's output, shared by all sequences; CT_NONE: no encoder
    ct_tensor memory;
    int64_t max_pages; // of one sequence

    pthread_mutex_t lock; // guards what follows
    ct_engine_queue queue;
    ct_sequence **running; // (n_running of max_sequences) in the order in which they began
    bool *state_slot_used; // (max_sequences) state slots
    int64_t n_running, last_id;
    ct_engine_metrics stats;

    int32_t *step_ints;      // (n_step_ints) the integers of a step's inputs
    float *processed_logits; // (vocab)
    ct_engine_logprob likely[128];
    size_t n_step_ints;
};

// Sequences of a step that add the same number of tokens each.
typedef struct ct_engine_group {
    ct_sequence **sequences;
    int64_t n, n_tokens; // number of sequences, and tokens of each
    bool every;          // true: logits after each token; false: after the last token alone
} ct_engine_group;

// engine_step.c: runs one pass over the tokens of both groups and returns the logits after them, (n of
// both, vocab), or NULL. The result lives as long as the scope.
const float *ct__engine_pass(ct_engine *e, const ct_engine_group group[2], ct_loc here);
// Allocates pages for the next `time` tokens of the sequence. Returns false if no page is free.
bool ct__engine_room(ct_engine *e, ct_sequence *seq, int64_t time, ct_loc here);
// Takes pages of other sequences that hold the same prefix.
void ct__engine_share(ct_engine *e, ct_sequence *seq, ct_loc here);
// makes pages that are full now available to other sequences
void ct__engine_learn(ct_engine *e, ct_sequence *seq);
void ct__engine_give_back(ct_engine *e, ct_sequence *seq, ct_loc here);

// engine_queue.c: call these with the engine's lock held.
bool ct__requests_enter(ct_engine_queue *q,
                        ct_sequence *seq); // adds it to the table by id; false: out of memory
void ct__requests_forget(ct_engine_queue *q, ct_sequence *seq);
void ct__requests_append(ct_engine_queue *q, ct_sequence *seq);
void ct__requests_prepend(ct_engine_queue *q, ct_sequence *seq);
void ct__requests_remove(ct_engine_queue *q, ct_sequence *seq); // does nothing if it is not queued
void ct__requests_cancel(ct_engine_queue *q, int64_t id);
// Removes the next cancelled sequence from the list and the queue and returns it; NULL: there is none.
ct_sequence *ct__requests_take_cancelled(ct_engine_queue *q);
void ct__requests_free(ct_engine_queue *q);

// lm_beams.c: ct_lm_generate with beams, or of an encoder-decoder model.
bool ct__lm_search(const ct_lm_generate_args *args);

// engine_text.c: appends to `ready` the text that one more token adds. Text that may be the beginning of a
// stop string stays in seq->pending_text; `stopped` is set if a whole stop string was found. The text in
// `ready` is to be reported at once. Returns false with the context's error set.
bool ct__engine_text(ct_sequence *seq, int32_t token, ct_text *ready, bool *stopped);
bool ct__engine_text_end(ct_sequence *seq, ct_text *ready, bool *stopped);
// Writes the n most probable tokens, the most probable first, and returns their number.
size_t ct__engine_likeliest(const float *scores, int64_t vocab, ct_engine_logprob *out, size_t n);

// engine_request.c: checks and copies a request. NULL and false: the context's error is set. `op` is the
// beginning of its message.
bool ct__lm_tokens_fit(const ct_lm *lm, const int32_t *tokens, size_t n, int64_t context,
                       const char *op, ct_loc here);
ct_engine *ct__engine_new(const ct_lm *lm, ct_engine_options options, const char *op);
int64_t ct__engine_add(ct_engine *e, const ct_engine_request *request, const char *op);
ct_sequence *ct__sequence_new(const ct_engine *e, const ct_engine_request *request, const char *op);
void ct__sequence_free(ct_sequence *seq);

#endif
