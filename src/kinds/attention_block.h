// State that attention and its gradients share: a block of queries, a block of keys, and the scores between
// them.
#ifndef COTAN_KINDS_ATTENTION_BLOCK_H
#define COTAN_KINDS_ATTENTION_BLOCK_H

#include "graph/graph.h"
#include "kinds/attention.h"

enum {
    CT_ATTENTION_TILE = 8
}; // Largest number of rows of a register tile: keys, elements of a value, or queries.

// An operand that depends on queries and keys, loaded for the current block: (keys, width), or (keys).
typedef struct ct_attention_panel {
    const ct_attention_extra *from;
    // Scratch buffers: (width, keys), and its transpose (keys, width). An operand that is the same for all
    // rows has only `turned`.
    int rows, turned;
} ct_attention_panel;

typedef struct ct_attention {
    ct_kir *k;
    const ct_attention_spec *s;
    int64_t width; // rows (queries) of a block
    bool few;      // fewer rows than lanes: lanes run along keys, and nothing is transposed
    int64_t tile;  // lanes of a register tile, a divisor of width
    int high;      // rows of a register tile, a divisor of the block
    int64_t d_pitch, e_pitch; // d and e rounded up to whole vectors
    bool tail;                // true if the last block of keys may be partial
    int q_rows, q_turned;     // scratch: (width, d_pitch), (d_pitch, width)
    int keys, values;         // scratch: (block, d_pitch), (block, e_pitch)
    int p;                    // scratch: (block, width) scores or probabilities
    int query;                // scratch: (width) i32: the key index of each row's query
    int slopes;               // scratch: (width): the ALiBi slope of each row
    ct_attention_panel added, mask, keep;
    ct_kval fill; // score of a masked key
    // -1, or a bool: some row of the block has no visible key, so no block of keys is skipped
    ct_kval unseen;
    ct_kval lead[CT_MAX_RANK + 4]; // the task's leading index, then capacity for further axes
    ct_kval rows;                  // number of all rows: group * queries
    ct_kval position, end;         // of the task: key index of its first query; number of its keys
    ct_kval row0, n_rows;          // the current block of rows
    ct_kval key0, n_keys;          // the current block of keys
} ct_attention;

// Allocates sizes and scratch (begin); loads what depends on the task's leading index (at).
void ct__attention_begin(ct_attention *a, ct_kir *k, const ct_attention_spec *s, int64_t width);
void ct__attention_at(ct_attention *a, ct_kval lead);
// Selects rows row0 to row0 + n_rows and computes the range of keys that each may attend to.
void ct__attention_take_rows(ct_attention *a, ct_kval block);
// Computes the range [first, end) of blocks of keys that some of the rows attend to. Returns the number of
// keys up to the last visible one.
ct_kval ct__attention_seen(const ct_attention *a, ct_kval *first, ct_kval *end);
// Copies rows of an operand to scratch as (width, pitch), padded with zeros (stage); transposes scratch to
// (pitch, width) (turn).
void ct__attention_stage(ct_attention *a, const ct_source *from, int to, int64_t n, int64_t pitch);
void ct__attention_turn(const ct_attention *a, int from, int64_t rows, int64_t columns, int to);
// Sets the current block of keys (at_keys), copies its keys or values to scratch (pack), or does both and
// loads what depends on the block and the rows (take_keys).
void ct__attention_at_keys(ct_attention *a, ct_kval block);
void ct__attention_pack(ct_attention *a, const ct_source *from, int to, int64_t n, int64_t pitch);
void ct__attention_take_keys(ct_attention *a, ct_kval block);
// Opens loops that run if some row attends to some key of the block, as far as the panels say. Returns the
// number of opened loops.
int ct__attention_take_panels(ct_attention *a);

// In a TILE loop: out[r] = sum over i < n of numbers[at + r * by_row + i * by_i] * lanes[lane + i *
// lane_by_i], as chains in chunks like those of a matrix product (docs/design/bits.md). `lane` includes the
// loop's variable.
typedef struct ct_attention_chain {
    int64_t n;
    int numbers, lanes;
    ct_kval at, lane;
    int64_t by_row, by_i, lane_by_i;
} ct_attention_chain;
void ct__attention_chain(const ct_attention *a, const ct_attention_chain *c, ct_kval *out);
// Computes the lane's scores for a tile of keys that starts at `key` of the block. bent: with a soft cap, the
// tanh of each score.
void ct__attention_scores(const ct_attention *a, ct_kval key, ct_kval lane, ct_kval *out,
                          ct_kval *bent);
// Returns the score of a key of the block and a row from their dot product, after scale, cap, bias and masks.
ct_kval ct__attention_score(const ct_attention *a, ct_kval key, ct_kval row, ct_kval product,
                            ct_kval *bent);
// Returns the result of a query that has no visible key.
ct_kval ct__attention_nothing(const ct_attention *a);
// Returns a panel's value at a key of the block.
ct_kval ct__attention_panel_at(const ct_attention *a, const ct_attention_panel *p, ct_kval key,
                               ct_kval lane);
// Calls `write` inside TILE loops that cover `n` lanes, a multiple of CT_LANES; lane is the loop's variable.
void ct__attention_tiles(const ct_attention *a, int64_t n, void (*write)(void *env, ct_kval lane),
                         void *env);
// Returns the index of (row, lane) in scratch of shape (n, width).
ct_kval ct__attention_in_row(const ct_attention *a, ct_kval row, ct_kval lane);
// Returns the number of rows if there are so few that lanes run along keys in the forward pass
// (attention_few.c), else 0.
int ct__attention_few_rows(const ct_kir *k, const ct_attention_spec *s);
void ct__template_attention_few(ct_kir *k, const ct_attention_spec *s);
// Fills scratch with a value.
void ct__attention_fill(const ct_attention *a, int buf, int64_t n, double value);
// Appends a flat row number as (group, query) to the leading index. Returns the number of axes of the index.
int ct__attention_put_row(ct_attention *a, ct_kval row);

#endif
