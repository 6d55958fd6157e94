// The engine's queue of sequences, and the hash table of all sequences by id. Each operation takes constant
// time. The callers hold the engine's lock.

#include "base/mem.h"
#include "models/engine.h"

static ct_sequence **queue_bucket(const ct_engine_queue *q, int64_t id) {
    return &q->buckets[(uint64_t)id & (q->n_buckets - 1)];
}

static bool queue_grow(ct_engine_queue *q) {
    const size_t n = q->n_buckets ? 2 * q->n_buckets : 64;
    ct_sequence **buckets = ct__calloc(n, sizeof *buckets), **old = q->buckets;
    const size_t n_old = q->n_buckets;
    if (!buckets) return n_old > 0; // the old table works too, with longer chains
    q->buckets = buckets;
    q->n_buckets = n;
    for (size_t i = 0; i < n_old; i++)
        for (ct_sequence *seq = old[i], *next; seq; seq = next) {
            next = seq->next_in_bucket;
            seq->next_in_bucket = *queue_bucket(q, seq->id);
            *queue_bucket(q, seq->id) = seq;
        }
    ct__free(old);
    return true;
}

bool ct__requests_enter(ct_engine_queue *q, ct_sequence *seq) {
    if (q->n_requests >= q->n_buckets && !queue_grow(q)) return false;
    seq->next_in_bucket = *queue_bucket(q, seq->id);
    *queue_bucket(q, seq->id) = seq;
    q->n_requests++;
    return true;
}

void ct__requests_forget(ct_engine_queue *q, ct_sequence *seq) {
    for (ct_sequence **at = q->n_buckets ? queue_bucket(q, seq->id) : NULL; at && *at;
         at = &(*at)->next_in_bucket)
        if (*at == seq) {
            *at = seq->next_in_bucket;
            q->n_requests--;
            break;
        }
    if (!seq->cancelled) return;
    for (ct_sequence **at = &q->cancelled; *at; at = &(*at)->next_cancelled)
        if (*at == seq) {
            *at = seq->next_cancelled;
            break;
        }
}

void ct__requests_append(ct_engine_queue *q, ct_sequence *seq) {
    seq->next = NULL;
    seq->prev = q->last;
    *(q->last ? &q->last->next : &q->first) = seq;
    q->last = seq;
    seq->is_queued = true;
    q->n++;
}

void ct__requests_prepend(ct_engine_queue *q, ct_sequence *seq) {
    seq->prev = NULL;
    seq->next = q->first;
    *(q->first ? &q->first->prev : &q->last) = seq;
    q->first = seq;
    seq->is_queued = true;
    q->n++;
}

void ct__requests_remove(ct_engine_queue *q, ct_sequence *seq) {
    if (!seq->is_queued) return;
    *(seq->prev ? &seq->prev->next : &q->first) = seq->next;
    *(seq->next ? &seq->next->prev : &q->last) = seq->prev;
    seq->next = seq->prev = NULL;
    seq->is_queued = false;
    q->n--;
}

void ct__requests_cancel(ct_engine_queue *q, int64_t id) {
    ct_sequence *seq = q->n_buckets ? *queue_bucket(q, id) : NULL;
    while (seq && seq->id != id) seq = seq->next_in_bucket;
    if (!seq || seq->cancelled) return;
    seq->cancelled = true;
    seq->next_cancelled = q->cancelled;
    q->cancelled = seq;
}

ct_sequence *ct__requests_take_cancelled(ct_engine_queue *q) {
    ct_sequence *seq = q->cancelled;
    if (!seq) return NULL;
    q->cancelled = seq->next_cancelled;
    seq->cancelled = false;
    ct__requests_remove(q, seq);
    return seq;
}

void ct__requests_free(ct_engine_queue *q) { ct__free(q->buckets); }
