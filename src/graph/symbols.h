// Dynamic sizes of a plan as symbols: numbers that may differ in each run of the plan.
//
// While a plan is built, a dynamic size or position is a marked number (ct__marked) that names a symbol of
// the context's table. An atom is a word of the canonical record, the size of an axis that only its shape
// rule knows, or a sum or quotient of others; every symbol is a product of atoms and a coefficient, so that
// equal sizes have equal symbols wherever they were computed. Outside of plans the same functions work with
// numbers marked by CT_DYN.
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

// Creates a table in the arena; NULL: out of memory.
ct_symbols *ct__symbols_new(ct_arena *arena);
// The table of the plan that the thread's context is building; NULL outside of plans.
ct_symbols *ct__symbols_now(void);

// Sets which words of the record are dynamic without being marked (by word, or NULL), and whether any word is
// dynamic, marked or not.
void ct__symbols_set_dynamic(ct_symbols *table, const bool *dynamic, bool any);
bool ct__symbols_has_dynamic(const ct_symbols *table);
// A size or position in word `word` of the record: its symbol if it is dynamic, else the number itself.
int64_t ct__symbol_at(ct_symbols *table, size_t word, int64_t size);
// Copies the attributes of a node of the record to the arena: dynamic numbers become symbols, and bodies get
// the offset of their words. word: of the first attribute. NULL: out of memory.
struct ct_opdef;
void *ct__symbol_attrs(ct_symbols *table, ct_arena *arena, const struct ct_opdef *op,
                       const void *attrs, size_t word);
// The same for the type of a leaf of the record. word: of its first size. False: out of memory.
bool ct__symbol_type(ct_symbols *table, ct_arena *arena, ct_type *type, size_t word);
// Rewrites a size with the symbol that is canonical now.
int64_t ct__size_canonical(ct_symbols *table, int64_t size);
// The value of an atom in the run for which the plan is built.
int64_t ct__atom_value(const ct_symbols *table, int32_t atom);

// The symbol of a word of the canonical record; every call returns the same.
int64_t ct__symbol_word(ct_symbols *table, size_t word, int64_t value);
// A new symbol for the size of output `out` of `node` along `axis`, known only to the node's shape rule.
int64_t ct__symbol_axis(ct_symbols *table, const struct ct_node *node, uint32_t out, int axis,
                        int64_t value);

// Arithmetic of sizes, marked or not: the result is marked if an operand is. Quotients are rounded up; if the
// divisor is known to divide, they are exact. Out of memory: CT_DYN of the value, and the table is
// incomplete.
int64_t ct__size_add(int64_t a, int64_t b);
int64_t ct__marked_sub(int64_t a, int64_t b); // one of them is marked
static inline int64_t ct__size_sub(int64_t a, int64_t b) {
    return ct__marked(a) || ct__marked(b) ? ct__marked_sub(a, b) : a - b;
}
int64_t ct__size_mul(int64_t a, int64_t b);
int64_t ct__marked_div_up(int64_t a, int64_t b);
static inline int64_t ct__size_div_up(int64_t a, int64_t b) {
    return ct__marked(a) || ct__marked(b) ? ct__marked_div_up(a, b) : a / b + (a % b > 0);
}
// Records that two sizes are equal in every run, as a shape rule requires.
void ct__size_equal(int64_t a, int64_t b);
// The same for the axes of b and those of a after its first `skip`, where their sizes are equal in this run.
void ct__sizes_equal(const ct_type *a, int skip, const ct_type *b);

// A marked size with all known equalities applied. False: it is not a symbol.
bool ct__size_monomial(const ct_symbols *table, int64_t size, ct_monomial *out);
int64_t ct__monomial_value(const ct_monomial *m, const int64_t *values); // values by atom
// A marked size without a symbol was found: the plan fits only the sizes for which it is built.
void ct__symbols_incomplete(ct_symbols *table);
bool ct__symbols_complete(const ct_symbols *table);

// Replaces symbols by their values in this run, in nodes that are evaluated as they are, and in bodies among
// their attributes.
void ct__symbols_substitute(const ct_symbols *table, struct ct_node *const *nodes, size_t n);

// Computes the values for another run. words: its canonical record. False: it contradicts a recorded
// equality, so another plan is needed. values: (ct__symbols_count), by atom.
size_t ct__symbols_count(const ct_symbols *table);
bool ct__symbols_bind(const ct_symbols *table, const uint64_t *words, int64_t *values);

#endif
