// Index expressions: integer arithmetic over loop variables and dynamic sizes in a normal form, so that
// compositions of reshapes, permutations and slices collapse to plain strides.
//
// An expression is an index into a pool; equal expressions have equal indices. The normal form is a sum
// of coefficient x (product of dynamic sizes) x atom, where an atom is a loop variable or an opaque
// expression (a quotient, a minimum, a loaded value). Quotients and remainders disappear where the sum
// proves them. All functions accept a failed expression (CT_IX_NONE) and return it; only running out of
// memory makes one fail.
#ifndef COTAN_GRAPH_INDEX_H
#define COTAN_GRAPH_INDEX_H

#include "base/error.h"
#include "base/mem.h"

typedef int32_t ct_ix;
enum { CT_IX_NONE = -1 };
typedef struct ct_ix_pool ct_ix_pool;

typedef enum ct_ix_kind {
    CT_IX_SUM,  // sum of terms
    CT_IX_VAR,  // a loop variable: `number`, extent `a`
    CT_IX_PROD, // a * b, where neither is a number or a dynamic size
    CT_IX_DIV,  // floor(a / b), a >= 0, b > 0
    CT_IX_MOD,  // remainder of a >= 0 by b > 0
    CT_IX_MIN,
    CT_IX_MAX,
    CT_IX_LT, // conditions: 0 or 1
    CT_IX_EQ,
    CT_IX_AND,
    CT_IX_NOT,
    CT_IX_SELECT, // a ? b : c
    CT_IX_WITHIN, // a, known to be in [0, b) at each of its uses
    CT_IX_LOAD,   // the integer element, at index `at`, of value `number` of the kernel
} ct_ix_kind;

// coef * sizes * atom. `mono` is a product of dynamic sizes in the pool (0: none); atom CT_IX_NONE is the
// number 1.
typedef struct ct_ix_term {
    ct_ix atom;
    int32_t mono;
    int64_t coef;
} ct_ix_term;

typedef struct ct_ix_node {
    ct_ix_kind kind;
    ct_ix a, b, c;
    int64_t number; // VAR: its number; LOAD: which value
    int n;          // SUM: terms; LOAD: indices
    union {
        const ct_ix_term *term; // SUM, sorted by atom, then mono
        const ct_ix *at;        // LOAD
    };
    int64_t lo, hi; // bounds, inclusive; INT64_MIN, INT64_MAX: unknown
    uint64_t vars;  // variables that it depends on: bit number % 64
    uint64_t sizes; // dynamic sizes (bit: number, the first 64) known not to be 0 where it is
                    // evaluated, inside a loop over them
} ct_ix_node;

// NULL: out of memory. The pool lives in the arena; running out of memory later is recorded in err.
ct_ix_pool *ct__ix_new(ct_arena *arena, ct_err *err);
const ct_ix_node *ct__ix_node(const ct_ix_pool *pool, ct_ix e);

ct_ix ct__ix_int(ct_ix_pool *pool, int64_t value);
ct_ix ct__ix_sym(ct_ix_pool *pool, int number);   // a dynamic size, which may be 0
ct_ix ct__ix_var(ct_ix_pool *pool, ct_ix extent); // a new variable in [0, extent)
ct_ix ct__ix_load(ct_ix_pool *pool, int64_t value, const ct_ix *at, int n);
ct_ix ct__ix_add(ct_ix_pool *pool, ct_ix a, ct_ix b);
ct_ix ct__ix_sub(ct_ix_pool *pool, ct_ix a, ct_ix b);
ct_ix ct__ix_mul(ct_ix_pool *pool, ct_ix a, ct_ix b);
ct_ix ct__ix_div(ct_ix_pool *pool, ct_ix a, ct_ix b); // a >= 0, b > 0
ct_ix ct__ix_mod(ct_ix_pool *pool, ct_ix a, ct_ix b); // a >= 0, b > 0
ct_ix ct__ix_min(ct_ix_pool *pool, ct_ix a, ct_ix b);
ct_ix ct__ix_max(ct_ix_pool *pool, ct_ix a, ct_ix b);
ct_ix ct__ix_lt(ct_ix_pool *pool, ct_ix a, ct_ix b); // a < b
ct_ix ct__ix_le(ct_ix_pool *pool, ct_ix a, ct_ix b); // a <= b
ct_ix ct__ix_eq(ct_ix_pool *pool, ct_ix a, ct_ix b);
// Conditions. CT_IX_NONE is the condition that is always true.
ct_ix ct__ix_and(ct_ix_pool *pool, ct_ix a, ct_ix b);
ct_ix ct__ix_not(ct_ix_pool *pool, ct_ix a);
ct_ix ct__ix_select(ct_ix_pool *pool, ct_ix cond, ct_ix a, ct_ix b);

// a, for which the caller guarantees 0 <= a < size wherever the value matters: quotients of expressions
// made of it collapse. ct__ix_strip_within removes these annotations.
ct_ix ct__ix_within(ct_ix_pool *pool, ct_ix a, ct_ix size);
ct_ix ct__ix_strip_within(ct_ix_pool *pool, ct_ix e);

bool ct__ix_is_int(const ct_ix_pool *pool, ct_ix e, int64_t *value);
// If e is rest + stride * var, where neither depends on var: returns stride (CT_IX_NONE in *stride if out
// of memory).
bool ct__ix_stride(ct_ix_pool *pool, ct_ix e, ct_ix var, ct_ix *stride);
bool ct__ix_uses(const ct_ix_pool *pool, ct_ix e, ct_ix var);      // exact, also inside atoms
bool ct__ix_contains(const ct_ix_pool *pool, ct_ix e, ct_ix part); // or is equal to it
// The stride of e from one lane to the next as var runs over 16 lanes aligned to 16. False: not constant.
bool ct__ix_lane_step(ct_ix_pool *pool, ct_ix e, ct_ix var, int64_t *step);
// True if a quotient or remainder in e depends on var other than by multiples of `group` (0: at all).
bool ct__ix_divides(const ct_ix_pool *pool, ct_ix e, ct_ix var, int64_t group);
// Writes the sizes of the mono to syms (at most max); returns their number.
int ct__ix_mono(const ct_ix_pool *pool, int32_t mono, int *syms, int max);
bool ct__ix_failed(const ct_ix_pool *pool); // true if some call ran out of memory

#endif
