// Dynamic sizes of a plan as symbols: numbers that every run of the plan brings anew.
//
// While a plan is made, a size or position that is dynamic is a marked number (ct__marked) that names
// a symbol of the context's table. An atom is a word of the canonical record, the size of an axis that
// only its shape rule knows, or a sum or quotient of others; every symbol is a product of atoms and a
// coefficient, so that equal sizes have equal symbols wherever they were computed. Outside of plans
// the same functions work with plain numbers that CT_DYN marks.
#ifndef COTAN_GRAPH_SYMBOLS_H
#define COTAN_GRAPH_SYMBOLS_H

#include "graph/type.h"

struct ct_node;
typedef struct ct_symbols ct_symbols;

// coef * product of atoms, which are sorted.
enum { CT_MONOMIAL_ATOMS = 8 };
typedef struct ct_monomial {
    int64_t coef;
    int n;
    int32_t atom[CT_MONOMIAL_ATOMS];
} ct_monomial;

// A table; NULL: no memory. It lives and goes with the arena.
ct_symbols *ct__symbols_new(ct_arena *arena);
// The table of the plan that the thread's context is making; NULL outside of plans.
ct_symbols *ct__symbols_now(void);

// Which words of the record are dynamic though nothing marks them; by word, or NULL. any: is there a
// dynamic word, marked or not?
void ct__symbols_also(ct_symbols *table, const bool *dynamic, bool any);
bool ct__symbols_any(const ct_symbols *table);
// A size or position in word `word` of the record: its symbol where it is dynamic, else itself.
int64_t ct__symbol_at(ct_symbols *table, size_t word, int64_t size);
// The attributes of a node of the record in the plan, in the arena: dynamic numbers are symbols, and
// bodies know where their words begin. word: of its first attribute. NULL: no memory.
struct ct_opdef;
void *ct__symbol_attrs(ct_symbols *table, ct_arena *arena, const struct ct_opdef *op,
                       const void *attrs, size_t word);
// The type of a leaf of the record, likewise. word: of its first size. False: no memory.
bool ct__symbol_type(ct_symbols *table, ct_arena *arena, ct_type *type, size_t word);
// The same size by the name that is in use for it now.
int64_t ct__size_canonical(ct_symbols *table, int64_t size);
// The value that an atom has in the run for which the plan is made.
int64_t ct__atom_value(const ct_symbols *table, int32_t atom);

// The symbol of a word of the canonical record: the same for every asking.
int64_t ct__symbol_word(ct_symbols *table, size_t word, int64_t value);
// A symbol for the size of output `out` of `node` along `axis`, known by the node's shape rule alone.
int64_t ct__symbol_axis(ct_symbols *table, const struct ct_node *node, uint32_t out, int axis,
                        int64_t value);

// Arithmetic of sizes, marked or not: the result is marked where an operand is. Quotients are rounded
// up; where the divisor is known to divide they are exact. No memory: CT_DYN of the value, after
// which the table is incomplete.
int64_t ct__size_add(int64_t a, int64_t b);
int64_t ct__marked_sub(int64_t a, int64_t b); // where one of them is marked
static inline int64_t ct__size_sub(int64_t a, int64_t b) {
    return ct__marked(a) || ct__marked(b) ? ct__marked_sub(a, b) : a - b;
}
int64_t ct__size_mul(int64_t a, int64_t b);
int64_t ct__marked_div_up(int64_t a, int64_t b);
static inline int64_t ct__size_div_up(int64_t a, int64_t b) {
    return ct__marked(a) || ct__marked(b) ? ct__marked_div_up(a, b) : a / b + (a % b > 0);
}
// Tells that two sizes are equal in every run, which the shape rules demand.
void ct__size_equal(int64_t a, int64_t b);
// The same of the axes of b and those of a behind its first `skip`, where they have equal sizes now.
void ct__sizes_equal(const ct_type *a, int skip, const ct_type *b);

// A marked size in terms of what is known to be equal by now. False: it names no symbol.
bool ct__size_monomial(const ct_symbols *table, int64_t size, ct_monomial *out);
int64_t ct__monomial_value(const ct_monomial *m, const int64_t *values); // by atom
// A marked size that no symbol stands for was met: the plan fits the sizes alone that it was made for.
void ct__symbols_incomplete(ct_symbols *table);
bool ct__symbols_complete(const ct_symbols *table);

// Numbers in place of symbols, in nodes that are evaluated as they are: the values of this run. Bodies
// among the attributes too.
void ct__symbols_settle(const ct_symbols *table, struct ct_node *const *nodes, size_t n);

// Values for another run. words: its canonical record. False: it contradicts what was found to be
// equal, so another plan is needed. values: (ct__symbols_count), by atom.
size_t ct__symbols_count(const ct_symbols *table);
bool ct__symbols_bind(const ct_symbols *table, const uint64_t *words, int64_t *values);

#endif
