// Attention as kernels: softmax(scale q k') v over blocks of keys, and its gradients
// (docs/design/attention.md).
//
// Vector lanes run along queries, so that the running maxima, sums and results stay in registers like the
// scores, and elements of keys and values are scalars that are broadcast to all lanes. Rows are the queries
// of all heads that share one head of keys and values (grouped-query attention).
#ifndef COTAN_KINDS_ATTENTION_H
#define COTAN_KINDS_ATTENTION_H

#include "graph/op.h"
#include "kinds/template.h"
#include "kir/target.h"

enum {
    // Keys per step of the recurrence; blocks are aligned to key 0. In the backward pass, also the number of
    // rows whose contributions to the gradients of keys and values are one chain of additions.
    CT_ATTENTION_BLOCK = 64,
    CT_ATTENTION_MOST = 1024, // Largest head size of a query, and of a value.
};

#define ATTENTION_ATTRS(F, op)                                                                     \
    F(op, bool, causal)                                                                            \
    F(op, i64, window)                                                                             \
    F(op, num, scale) F(op, num, softcap) F(op, bool, masked_nan) F(op, i64, present)
CT_ATTRS_SHARED(attention, ATTENTION_ATTRS);
// Optional operands, which follow q, k and v in this order.
enum {
    CT_ATTENTION_POSITION = 1, // index among the keys of the first query
    CT_ATTENTION_MASK = 2,     // bool, or floats that are added to the scores
    CT_ATTENTION_LENGTH = 4,   // number of valid keys
    CT_ATTENTION_KEEP = 8,     // factors of the probabilities (dropout)
    CT_ATTENTION_ALIBI = 16,   // slope of the distance, per head
    CT_ATTENTION_SINKS = 32,   // per head, a score that has no value (attention sink)
    CT_ATTENTION_BIAS = 64,    // floats that are added to the scores, together with a mask of bools
    CT_ATTENTION_FILL = 128,   // score of a key that a mask of bools hides
};
// Returns the index of the operand with that flag, or -1 if it is absent.
int ct__attention_operand(int64_t present, int flag);
enum { CT_ATTENTION_MOST_OPERANDS = 14 };

// Which of the last two axes of the scores an operand depends on.
typedef enum ct_attention_extent {
    CT_ATTENTION_NONE,
    CT_ATTENTION_KEYS,
    CT_ATTENTION_ALL
} ct_attention_extent;
typedef struct ct_attention_extra {
    ct_attention_extent extent; // NONE: absent; KEYS: the same for all rows
    ct_source at;               // indexed by lead..., group, query, key
} ct_attention_extra;

typedef struct ct_attention_spec {
    ct_dtype dtype; // f32 or f64
    int n_lead;     // number of leading (batch) axes, the last of which is the heads of keys
    const ct_kval *lead;
    ct_kval group, queries, keys; // sizes; group: query heads per key head
    int64_t d, e;                 // head size of queries and keys; head size of values
    double scale, cap;            // cap: the soft cap of the scores, 0 if none
    bool causal;
    int64_t window;    // 0: no sliding window
    bool masked_nan;   // a query without a visible key gets NaN instead of zeros
    ct_source q, k, v; // lead..., group, query, d; lead..., key, d or e
    ct_kval (*position)(void *env, ct_kir *k, const ct_kval *lead); // i64; NULL: 0
    ct_kval (*length)(void *env, ct_kir *k, const ct_kval *lead);   // i64; NULL: all keys
    void *env;
    ct_attention_extra added, mask, keep;  // floats, bools, floats
    ct_kval (*fill)(void *env, ct_kir *k); // NULL: -infinity
    bool has_alibi, has_sinks;
    ct_source alibi, sinks; // lead..., group, query
    ct_target target;
    // Forward results: lead..., group, query, e; lead..., group, query.
    ct_sink out, total;
    // Backward operands and results.
    ct_source c;                // lead..., group, query, e
    ct_source log_total, delta; // lead..., group, query
    bool wants_q, wants_kv;
    ct_sink c_k, c_v; // lead..., key, d or e
    int c_q;          // a dense buffer (rows, d) that can be read and written
} ct_attention_spec;

void ct__template_attention(ct_kir *k, const ct_attention_spec *spec);
// A task is one block of keys (only wants_kv), one block of queries (only wants_q), or all blocks (both).
void ct__template_attention_backward(ct_kir *k, const ct_attention_spec *spec);

#endif
