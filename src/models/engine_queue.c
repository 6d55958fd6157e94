// The engine's requests that wait, in their order, and all requests by their numbers: each operation takes the same
// time however many there are. The engine's lock is held around all of them.
#include <string.h>

#include "base/mem.h"
#include "models/engine.h"

static ct_writing **queue_slot(const ct_engine_queue *q, int64_t id) {
    return &q->slot[(uint64_t)id & (q->n_slots - 1)];
}

static bool queue_grow(ct_engine_queue *q) {
    const size_t n = q->n_slots ? 2 * q->n_slots : 64;
    ct_writing **slot = ct__calloc(n, sizeof *slot), **old = q->slot;
    const size_t n_old = q->n_slots;
    if (!slot) return n_old > 0; // longer chains do as well
    q->slot = slot;
    q->n_slots = n;
    for (size_t i = 0; i < n_old; i++)
        for (ct_writing *w = old[i], *next; w; w = next) {
            next = w->same_slot;
            w->same_slot = *queue_slot(q, w->id);
            *queue_slot(q, w->id) = w;
        }
    ct__free(old);
    return true;
}

bool ct__requests_enter(ct_engine_queue *q, ct_writing *w) {
    if (q->n_known >= q->n_slots && !queue_grow(q)) return false;
    w->same_slot = *queue_slot(q, w->id);
    *queue_slot(q, w->id) = w;
    q->n_known++;
    return true;
}

void ct__requests_forget(ct_engine_queue *q, ct_writing *w) {
    for (ct_writing **at = q->n_slots ? queue_slot(q, w->id) : NULL; at && *at;
         at = &(*at)->same_slot)
        if (*at == w) {
            *at = w->same_slot;
            q->n_known--;
            break;
        }
    if (!w->cancelled) return;
    for (ct_writing **at = &q->cancelled; *at; at = &(*at)->next_cancelled)
        if (*at == w) {
            *at = w->next_cancelled;
            break;
        }
}

void ct__requests_append(ct_engine_queue *q, ct_writing *w) {
    w->next = NULL;
    w->before = q->last;
    *(q->last ? &q->last->next : &q->first) = w;
    q->last = w;
    w->waits = true;
    q->n++;
}

void ct__requests_prepend(ct_engine_queue *q, ct_writing *w) {
    w->before = NULL;
    w->next = q->first;
    *(q->first ? &q->first->before : &q->last) = w;
    q->first = w;
    w->waits = true;
    q->n++;
}

void ct__requests_remove(ct_engine_queue *q, ct_writing *w) {
    if (!w->waits) return;
    *(w->before ? &w->before->next : &q->first) = w->next;
    *(w->next ? &w->next->before : &q->last) = w->before;
    w->next = w->before = NULL;
    w->waits = false;
    q->n--;
}

void ct__requests_cancel(ct_engine_queue *q, int64_t id) {
    ct_writing *w = q->n_slots ? *queue_slot(q, id) : NULL;
    while (w && w->id != id) w = w->same_slot;
    if (!w || w->cancelled) return;
    w->cancelled = true;
    w->next_cancelled = q->cancelled;
    q->cancelled = w;
}

ct_writing *ct__requests_take_cancelled(ct_engine_queue *q) {
    ct_writing *w = q->cancelled;
    if (!w) return NULL;
    q->cancelled = w->next_cancelled;
    w->cancelled = false;
    ct__requests_remove(q, w);
    return w;
}

void ct__requests_free(ct_engine_queue *q) { ct__free(q->slot); }
