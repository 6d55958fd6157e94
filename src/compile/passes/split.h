// Splits a graph whose nodes are on several devices into graphs of one device each.
//
// The level of a node is the number of device changes on the way to it; a part is the set of nodes of one
// device and one level. A value that a part needs of another one is a leaf of it and a root of the other.
#ifndef COTAN_COMPILE_SPLIT_H
#define COTAN_COMPILE_SPLIT_H

#include "compile/passes/passes.h"

typedef struct ct_part {
    uint32_t device, level;
    ct_graph graph;
    // Its leaves and roots: numbers of those of the whole graph or, after these, of values between parts.
    uint32_t *leaf;       // (graph.n_leaves)
    ct_node **leaf_nodes; // (graph.n_leaves)
    uint32_t *root;       // (graph.n_roots)
} ct_part;

typedef struct ct_parts {
    ct_part *v; // (n) each after those that it needs
    size_t n;
    size_t n_between; // number of values that one part makes and others need
} ct_parts;

bool ct__has_several_devices(
    const ct_graph *graph); // a node is on another device than the context's
// Allocates from the plan's arena. The innermost frame must be the plan's.
bool ct__split_by_device(ct_ctx *ctx, const ct_graph *graph, ct_parts *parts);

#endif
