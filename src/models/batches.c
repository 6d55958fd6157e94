// Groups sequences by length into padded batches.
#include "models/batches.h"

#include <stdlib.h>
#include <string.h>

// Sorts by length first, then by index, so that the order does not depend on the C library's sort.
typedef struct length_index {
    size_t n, at;
} length_index;
static int batches_compare_length(const void *a, const void *b) {
    const length_index *x = a, *y = b;
    if (x->n != y->n) return x->n < y->n ? 1 : -1;
    return x->at < y->at ? -1 : x->at > y->at;
}

bool ct__batches_begin(ct_batches *b, const ct_lm_tokens *sequences,
                       const int32_t *const *token_types, size_t n, int64_t max_tokens) {
    *b = (ct_batches){
        .sequences = sequences, .token_types = token_types, .n = n, .max_tokens = max_tokens};
    length_index *items = ct__malloc((n + 1) * sizeof *items);
    b->order = ct__malloc((n + 1) * sizeof *b->order);
    if (!items || !b->order) {
        ct__free(items);
        return false;
    }
    for (size_t i = 0; i < n; i++) items[i] = (length_index){sequences[i].n, i};
    qsort(items, n, sizeof *items, batches_compare_length);
    for (size_t i = 0; i < n; i++) b->order[i] = items[i].at;
    ct__free(items);
    const size_t capacity = n && sequences[b->order[0]].n > (size_t)max_tokens
                                ? sequences[b->order[0]].n
                                : (size_t)max_tokens;
    b->tokens = ct__malloc(capacity * sizeof *b->tokens);
    b->lengths = ct__malloc((n + 1) * sizeof *b->lengths);
    if (token_types) b->batch_types = ct__malloc(capacity * sizeof *b->batch_types);
    return b->tokens && b->lengths && (!token_types || b->batch_types);
}

bool ct__batches_next(ct_batches *b) {
    if (b->next == b->n) return false;
    b->indices = b->order + b->next;
    b->time = (int64_t)b->sequences[b->indices[0]].n;
    const size_t max_rows = b->time > b->max_tokens ? 1 : (size_t)(b->max_tokens / b->time),
                 left = b->n - b->next;
    b->rows = (int64_t)(left < max_rows ? left : max_rows);
    memset(b->tokens, 0, (size_t)(b->rows * b->time) * sizeof *b->tokens);
    if (b->batch_types)
        memset(b->batch_types, 0, (size_t)(b->rows * b->time) * sizeof *b->batch_types);
    for (int64_t i = 0; i < b->rows; i++) {
        const ct_lm_tokens *t = &b->sequences[b->indices[i]];
        memcpy(b->tokens + i * b->time, t->v, t->n * sizeof *t->v);
        if (b->batch_types && b->token_types[b->indices[i]])
            memcpy(b->batch_types + i * b->time, b->token_types[b->indices[i]],
                   t->n * sizeof *b->batch_types);
        b->lengths[i] = (int32_t)t->n;
    }
    b->next += (size_t)b->rows;
    return true;
}

void ct__batches_free(ct_batches *b) {
    ct__free(b->order);
    ct__free(b->tokens);
    ct__free(b->lengths);
    ct__free(b->batch_types);
}

ct_tensor ct__batches_rows(const ct_batches *b, const ct_lm *lm, ct_lm_pass *pass, ct_loc here) {
    const int64_t rows = ct__varying(b->rows), time = ct__varying(b->time);
    ct_tensor tokens = ct_from_at(b->tokens, CT_I32, CT_DIMS(rows, time), here);
    // attends to later tokens, too, so that padding must be masked
    const bool is_bidirectional = lm->spec.bidirectional;
    ct_tensor lengths = is_bidirectional ? ct_from_at(b->lengths, CT_I32, CT_DIMS(rows, 1), here)
                                         : CT_NONE; // (B, 1)
    ct_tensor types =
        b->batch_types ? ct_from_at(b->batch_types, CT_I32, CT_DIMS(rows, time), here) : CT_NONE;
    return ct__lm_rows(lm, tokens, lengths, types, pass, here);
}
