// Random graphs, made from the records of the table of ops: a list of steps that can be recorded as
// often as wanted, in any context.
//
// A graph is made step by step on the reference device, so that values are seen: operands are
// brought into an op's range of samples, and a value is either *exact* (any correct evaluation
// gives the same number: integers, movement, operations that IEEE 754 defines) or it is not. What
// jumps (comparisons, floor, top-k, casts to integers) reads exact values only.
//
// Ops and dtypes are chosen by a hash of their names, so that a new one changes no graph but those
// that have come to choose it.
//
// The graphs of numbers from GEN_EMPTY on are a family of their own: small ones of up to 6 axes, of
// which many are empty, of size 1 or dynamic, all in one.
#ifndef COTAN_TESTS_GRAPH_GEN_H
#define COTAN_TESTS_GRAPH_GEN_H

#include "ops/rules.h"

enum {
    GEN_STEPS = 80,
    GEN_VALUES = 128,
    GEN_IN = 8,
    GEN_ROOTS = 24,
    GEN_WRT = 4,
    GEN_ATTRS = 160,
    GEN_OPS = 1024
};

#define GEN_EMPTY ((uint64_t)1 << 40)

typedef enum { GEN_DATA, GEN_CONST, GEN_WEAK, GEN_OP, GEN_LOOP } gen_kind;
typedef struct gen_step {
    gen_kind kind;
    const ct_opdef *op;    // OP
    char attrs[GEN_ATTRS]; // OP
    int in[GEN_IN], n_in;  // values
    ct_dtype dtype;        // DATA, CONST, WEAK
    ct_ints dims;          // DATA, CONST: with marks of dynamic sizes
    void *data;            // DATA, CONST
    double number;         // WEAK
    int first, n_out;      // values
} gen_step;

typedef struct gen_value {
    int step, out;
    ct_type type;
    ct_ints dims; // with marks
    bool exact;
    double lo, hi;   // of the finite elements
    double least;    // their smallest size but 0; infinity: all are 0
    uint64_t behind; // float leaves on which it depends by a path that has a gradient
    int uses;
} gen_value;

typedef struct gen_graph {
    ct_arena arena;
    uint64_t random;
    bool gradients, second;  // second: gradients of the gradients too
    bool empty;              // of the family of GEN_EMPTY
    const ct_opdef *without; // an op that is not chosen, as if the table did not have it
    bool chosen[GEN_OPS];    // by gen_place: the ops that were chosen, also those that did not fit
    gen_step step[GEN_STEPS];
    gen_value value[GEN_VALUES];
    int n_steps, n_values, n_ops;
    int leaf[64], n_leaves; // values: float leaves, by their bit in `behind`
    int root[GEN_ROOTS], n_roots;
    int loss, wrt[GEN_WRT], n_wrt; // loss: a value, or -1
    ct_tensor *live;               // while it is made
    // Set before it is recorded: each step's operands are sent to one of these devices, of which the
    // first is the context's own. For that there must be no noise.
    const char *const *devices; // (n_devices)
    int n_devices;
    uint64_t placed; // which, at random
} gen_graph;

// Makes graph `number` of a seed. The context's device should evaluate op by op.
void gen_make(gen_graph *g, uint64_t seed, uint64_t number);
void gen_make_without(gen_graph *g, uint64_t seed, uint64_t number, const ct_opdef *op);
uint32_t gen_place(const ct_opdef *op); // in ct__ops
// A graph around one op, and nothing but what that needs; false: after many tries there is none
// (ops of other layers, or one that the generator does not know).
bool gen_make_op(gen_graph *g, uint64_t seed, const ct_opdef *op);
void gen_free(gen_graph *g);

// Is it an op that graphs are made of? Leaves stand in all of them, gradients are taken of the
// whole, and calls of traced functions have tests of their own.
bool gen_wants(const ct_opdef *op);

// Records it: values of roots, then the loss and the gradients, then those of a sum over these.
// `noise` is 0, or else a seed by which every operand of a rounding operation is disturbed by a few
// units in its last place: how far results move says how well the graph is conditioned. Returns how
// many roots there are.
enum { GEN_RESULTS = GEN_ROOTS + 1 + 2 * GEN_WRT };
int gen_record(const gen_graph *g, uint64_t noise, ct_tensor *results);
bool gen_exact(const gen_graph *g, int result);

double gen_unit(ct_dtype d);  // half of a unit in the last place of 1
double gen_noise(ct_dtype d); // by which values are disturbed, as a part of them
double gen_tiny(ct_dtype d);  // the least normal number

// Random numbers.
uint64_t gen_bits(uint64_t *state);
// What a name is worth to a random number: of several, the one worth most is drawn.
uint64_t gen_worth(uint64_t random, const char *name);

#endif
