// A graph whose nodes lie on several devices, as graphs of one device each.
//
// A node's level is how often values change device on the way to it; a part is what has one place
// and one level. What a part needs of another is a leaf of its own and a root of the other.
#ifndef COTAN_COMPILE_SPLIT_H
#define COTAN_COMPILE_SPLIT_H

#include "compile/passes/passes.h"

typedef struct ct_part {
    uint32_t place, level;
    ct_graph graph;
    // What its leaves and roots are: those of the whole, or behind these the values between parts.
    uint32_t *leaf;       // (graph.n_leaves)
    ct_node **leaf_nodes; // (graph.n_leaves)
    uint32_t *root;       // (graph.n_roots)
} ct_part;

typedef struct ct_parts {
    ct_part *v; // (n) those that others need come first
    size_t n;
    size_t n_between; // values that one part makes and others need
} ct_parts;

bool ct__lies_apart(const ct_graph *graph); // has it nodes on another device than the context's?
// In the plan's arena. The innermost frame is the plan's.
bool ct__split_places(ct_ctx *ctx, const ct_graph *graph, ct_parts *parts);

#endif
