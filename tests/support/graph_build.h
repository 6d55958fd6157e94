// How a random graph grows by one op: between graph_gen.c, which holds the graph, and
// graph_build.c, which knows what ops want.
#ifndef COTAN_TESTS_GRAPH_BUILD_H
#define COTAN_TESTS_GRAPH_BUILD_H

#include "support/graph_gen.h"

enum { GEN_MOST = 4096 }; // elements

int gen_below(gen_graph *g, int64_t n); // 0 to n - 1
bool gen_chance(gen_graph *g, int percent);
double gen_uniform(gen_graph *g, double lo, double hi);

int64_t gen_count(ct_ints dims);
ct_ints gen_dims(gen_graph *g, int64_t n, const int64_t *v); // a copy
int gen_leaf(gen_graph *g, ct_dtype dtype, ct_ints dims, double lo, double hi);
int gen_numbers(gen_graph *g, ct_dtype dtype, ct_ints dims, const int64_t *v);
int gen_number(gen_graph *g, double value, bool is_int); // ct_f, ct_i
// Records and evaluates a step; its first value, or -1 where the op rejects its operands.
int gen_commit(gen_graph *g, gen_step *step);
bool gen_jumps(const gen_graph *g, const gen_step *s);

void gen_begin(gen_graph *g, uint64_t random);
void gen_op(gen_graph *g); // tries to add one op
bool gen_this(gen_graph *g, const ct_opdef *op);
void gen_end(gen_graph *g); // chooses roots and a loss

#endif
