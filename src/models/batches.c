// Texts by their length, a pass at a time.
#include "models/batches.h"

#include <stdlib.h>
#include <string.h>

// In order of length first, then of their places, whatever the C library's sort does.
typedef struct place {
    size_t n, at;
} place;
static int longest_first(const void *a, const void *b) {
    const place *x = a, *y = b;
    if (x->n != y->n) return x->n < y->n ? 1 : -1;
    return x->at < y->at ? -1 : x->at > y->at;
}

bool ct__batches_begin(ct_batches *b, const ct_lm_tokens *texts, const int32_t *const *kinds,
                       size_t n, int64_t most) {
    *b = (ct_batches){.texts = texts, .kinds = kinds, .n = n, .most = most};
    place *places = ct__malloc((n + 1) * sizeof *places);
    b->order = ct__malloc((n + 1) * sizeof *b->order);
    if (!places || !b->order) {
        ct__free(places);
        return false;
    }
    for (size_t i = 0; i < n; i++) places[i] = (place){texts[i].n, i};
    qsort(places, n, sizeof *places, longest_first);
    for (size_t i = 0; i < n; i++) b->order[i] = places[i].at;
    ct__free(places);
    const size_t room =
        n && texts[b->order[0]].n > (size_t)most ? texts[b->order[0]].n : (size_t)most;
    b->tokens = ct__malloc(room * sizeof *b->tokens);
    b->lengths = ct__malloc((n + 1) * sizeof *b->lengths);
    if (kinds) b->kind = ct__malloc(room * sizeof *b->kind);
    return b->tokens && b->lengths && (!kinds || b->kind);
}

bool ct__batches_next(ct_batches *b) {
    if (b->next == b->n) return false;
    b->which = b->order + b->next;
    b->time = (int64_t)b->texts[b->which[0]].n;
    const size_t fit = b->time > b->most ? 1 : (size_t)(b->most / b->time), left = b->n - b->next;
    b->rows = (int64_t)(left < fit ? left : fit);
    memset(b->tokens, 0, (size_t)(b->rows * b->time) * sizeof *b->tokens);
    if (b->kind) memset(b->kind, 0, (size_t)(b->rows * b->time) * sizeof *b->kind);
    for (int64_t i = 0; i < b->rows; i++) {
        const ct_lm_tokens *t = &b->texts[b->which[i]];
        memcpy(b->tokens + i * b->time, t->v, t->n * sizeof *t->v);
        if (b->kind && b->kinds[b->which[i]])
            memcpy(b->kind + i * b->time, b->kinds[b->which[i]], t->n * sizeof *b->kind);
        b->lengths[i] = (int32_t)t->n;
    }
    b->next += (size_t)b->rows;
    return true;
}

void ct__batches_free(ct_batches *b) {
    ct__free(b->order);
    ct__free(b->tokens);
    ct__free(b->lengths);
    ct__free(b->kind);
}

ct_tensor ct__batches_rows(const ct_batches *b, const ct_lm *lm, ct_lm_pass *pass, ct_loc here) {
    const int64_t rows = ct__varying(b->rows), time = ct__varying(b->time);
    ct_tensor tokens = ct_from_at(b->tokens, CT_I32, CT_DIMS(rows, time), here);
    const bool ahead = lm->spec.bidirectional; // sees what stands behind, too
    ct_tensor lengths =
        ahead ? ct_from_at(b->lengths, CT_I32, CT_DIMS(rows, 1), here) : CT_NONE; // (B, 1)
    ct_tensor kinds = b->kind ? ct_from_at(b->kind, CT_I32, CT_DIMS(rows, time), here) : CT_NONE;
    return ct__lm_rows(lm, tokens, lengths, kinds, pass, here);
}
