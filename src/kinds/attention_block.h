// What attention and its gradients share: a block of queries, a block of keys, and the scores between them.
#ifndef COTAN_KINDS_ATTENTION_BLOCK_H
#define COTAN_KINDS_ATTENTION_BLOCK_H

#include "graph/graph.h"
#include "kinds/attention.h"

enum {
    CT_ATTENTION_TILE = 8
}; // rows of a register tile, at most: keys, numbers of a value, queries

// An operand that hangs on queries and keys, as the block has it: (keys, width), or (keys).
typedef struct ct_attention_panel {
    const ct_attention_extra *from;
    int rows,
        turned; // scratch: (width, keys), (keys, width); of what is alike for all rows only `turned`
} ct_attention_panel;

typedef struct ct_attention {
    ct_kir *k;
    const ct_attention_spec *s;
    int64_t width;            // rows of a block
    bool few;                 // fewer than lanes, which run along keys then: nothing is turned
    int64_t tile;             // lanes of a register tile, a divisor of width
    int high;                 // its rows, a divisor of the block
    int64_t d_pitch, e_pitch; // d and e up to whole vectors
    bool tail;                // may a block of keys have fewer than it has room for?
    int q_rows, q_turned;     // scratch: (width, d_pitch), (d_pitch, width)
    int keys, values;         // scratch: (block, d_pitch), (block, e_pitch)
    int p;                    // scratch: (block, width) scores or probabilities
    int query;                // scratch: (width) i32: where among the keys each row stands
    int slopes;               // scratch: (width): of the distance
    ct_attention_panel added, mask, keep;
    ct_kval fill;   // the score of what a mask hides
    ct_kval unseen; // -1, or a bool: a row of the block may look nowhere, so no block is left out
    ct_kval lead[CT_MAX_RANK + 4]; // the task's place in front, then room for others
    ct_kval rows;                  // of all: group * queries
    ct_kval position, end;         // of the task: of its first query; of its keys
    ct_kval row0, n_rows;          // the block of rows
    ct_kval key0, n_keys;          // the block of keys
} ct_attention;

// Sizes and scratch; then, in a task, what its place in front says.
void ct__attention_begin(ct_attention *a, ct_kir *k, const ct_attention_spec *s, int64_t width);
void ct__attention_at(ct_attention *a, ct_kval lead);
// Rows row0 to row0 + n_rows, and which keys they may look at. Blocks of keys that some of them see.
void ct__attention_take_rows(ct_attention *a, ct_kval block);
// Gives the number of keys up to the last that is seen.
ct_kval ct__attention_seen(const ct_attention *a, ct_kval *first, ct_kval *end);
// Rows of an operand as they lie (width, pitch), zeros behind; and turned (pitch, width).
void ct__attention_stage(ct_attention *a, const ct_source *from, int to, int64_t n, int64_t pitch);
void ct__attention_turn(const ct_attention *a, int from, int64_t rows, int64_t columns, int to);
// The block of keys, and what hangs on it and the rows: where it stands, and its keys and values in scratch.
void ct__attention_at_keys(ct_attention *a, ct_kval block);
void ct__attention_pack(ct_attention *a, const ct_source *from, int to, int64_t n, int64_t pitch);
void ct__attention_take_keys(ct_attention *a, ct_kval block);
// Opens loops that run if a row sees a key, as far as the panels say; how many.
int ct__attention_take_panels(ct_attention *a);

// In a TILE loop: out[r] = sum over i < n of numbers[at + r * by_row + i * by_i] lanes[lane + i * lane_by_i],
// chains in chunks as a product's (docs/design/bits.md). `lane` has the loop's variable.
typedef struct ct_attention_chain {
    int64_t n;
    int numbers, lanes;
    ct_kval at, lane;
    int64_t by_row, by_i, lane_by_i;
} ct_attention_chain;
void ct__attention_chain(const ct_attention *a, const ct_attention_chain *c, ct_kval *out);
// Scores of a tile's keys from `key` of the block on, for the lane; bent: with a cap, tanh of each.
void ct__attention_scores(const ct_attention *a, ct_kval key, ct_kval lane, ct_kval *out,
                          ct_kval *bent);
// The score of a key of the block and a row, of their product: all that options make of it.
ct_kval ct__attention_score(const ct_attention *a, ct_kval key, ct_kval row, ct_kval product,
                            ct_kval *bent);
// What a query gets that may look nowhere.
ct_kval ct__attention_nothing(const ct_attention *a);
// A panel's value at a key of the block.
ct_kval ct__attention_panel_at(const ct_attention *a, const ct_attention_panel *p, ct_kval key,
                               ct_kval lane);
// Calls write for TILE loops that cover `n` lanes, a multiple of CT_LANES; lane is the loop's variable.
void ct__attention_tiles(const ct_attention *a, int64_t n, void (*write)(void *env, ct_kval lane),
                         void *env);
// Where scratch (n, width) has the row's element of a lane.
ct_kval ct__attention_in_row(const ct_attention *a, ct_kval row, ct_kval lane);
// The forward pass of so few rows that lanes run along keys (attention_few.c); how many rows, 0: not so few.
int ct__attention_few_rows(const ct_kir *k, const ct_attention_spec *s);
void ct__template_attention_few(ct_kir *k, const ct_attention_spec *s);
// Fills scratch.
void ct__attention_fill(const ct_attention *a, int buf, int64_t n, double value);
// A row of all as (group, query), put behind the place in front; gives how many positions there are.
int ct__attention_put_row(ct_attention *a, ct_kval row);

#endif
