// Attention as kernels: softmax(scale q k') v over blocks of keys, and its gradients (docs/design/attention.md).
//
// Lanes run along queries, so that maxima, sums and what they scale stand in registers as the scores do, and
// elements of keys and values are numbers for all lanes. Rows are the queries of all heads that share one of
// keys and values.
#ifndef COTAN_KINDS_ATTENTION_H
#define COTAN_KINDS_ATTENTION_H

#include "graph/op.h"
#include "kinds/template.h"
#include "kir/target.h"

enum {
    CT_ATTENTION_BLOCK =
        64, // keys of a step of the recurrence, aligned at key 0; rows whose part in
            // the gradients of keys and values is one chain
    CT_ATTENTION_MOST = 1024, // numbers of a query, and of a value
};

#define ATTENTION_ATTRS(F, op)                                                                     \
    F(op, bool, causal)                                                                            \
    F(op, i64, window)                                                                             \
    F(op, num, scale) F(op, num, softcap) F(op, bool, masked_nan) F(op, i64, present)
CT_ATTRS_SHARED(attention, ATTENTION_ATTRS);
// Operands behind q, k and v, in this order.
enum {
    CT_ATTENTION_POSITION = 1, // where among the keys the first query stands
    CT_ATTENTION_MASK = 2,     // bool, or floats that are added to the scores
    CT_ATTENTION_LENGTH = 4,   // how many keys there are to look at
    CT_ATTENTION_KEEP = 8,     // factors of the probabilities
    CT_ATTENTION_ALIBI = 16,   // slopes of the distance, of each head
    CT_ATTENTION_SINKS = 32,   // a score of each head whose value is nothing
    CT_ATTENTION_BIAS = 64,    // floats that are added to the scores, beside a mask of bools
    CT_ATTENTION_FILL = 128,   // the score of a key that a mask of bools hides
};
// The operand with that flag; -1: there is none.
int ct__attention_operand(int64_t present, int flag);
enum { CT_ATTENTION_MOST_OPERANDS = 14 };

// What two axes of the scores an operand hangs on.
typedef enum ct_attention_extent {
    CT_ATTENTION_NONE,
    CT_ATTENTION_KEYS,
    CT_ATTENTION_ALL
} ct_attention_extent;
typedef struct ct_attention_extra {
    ct_attention_extent extent; // NONE: not given; KEYS: alike for all rows
    ct_source at;               // lead..., group, query, key
} ct_attention_extra;

typedef struct ct_attention_spec {
    ct_dtype dtype; // f32 or f64
    int n_lead;     // axes in front, the last of them the heads of keys
    const ct_kval *lead;
    ct_kval group, queries, keys; // sizes: queries' heads to one of keys
    int64_t d, e;                 // numbers of a query and a key; of a value
    double scale, cap;            // cap 0: none
    bool causal;
    int64_t window;    // 0: none
    bool masked_nan;   // a query that may look nowhere gets NaN, not zeros
    ct_source q, k, v; // lead..., group, query, d; lead..., key, d or e
    ct_kval (*position)(void *env, ct_kir *k, const ct_kval *lead); // i64; NULL: 0
    ct_kval (*length)(void *env, ct_kir *k, const ct_kval *lead);   // i64; NULL: all keys
    void *env;
    ct_attention_extra added, mask, keep;  // floats, bools, floats
    ct_kval (*fill)(void *env, ct_kir *k); // NULL: -infinity
    bool has_alibi, has_sinks;
    ct_source alibi, sinks; // lead..., group, query
    ct_target target;
    // Forward: lead..., group, query, e; lead..., group, query.
    ct_sink out, total;
    // Backward.
    ct_source c;                // lead..., group, query, e
    ct_source log_total, delta; // lead..., group, query
    bool wants_q, wants_kv;
    ct_sink c_k, c_v; // lead..., key, d or e
    int c_q;          // a dense buffer (rows, d) that can be read and written
} ct_attention_spec;

void ct__template_attention(ct_kir *k, const ct_attention_spec *spec);
// A task is a block of keys (wants_kv alone), a block of queries (wants_q alone), or all of both.
void ct__template_attention_backward(ct_kir *k, const ct_attention_spec *spec);

#endif
