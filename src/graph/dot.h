// Graphs in Graphviz's DOT language: ct__dot_begin, each root, ct__dot_end.
#ifndef COTAN_GRAPH_DOT_H
#define COTAN_GRAPH_DOT_H

#include "graph/graph.h"

// Writes nodes and their operands, without those that are not among the nodes. Numbers the nodes.
void ct__dot_begin(ct_text *text, const char *title, ct_node *const *nodes, size_t n);
// A requested value of one of the nodes; name: of the metric or variable, or NULL.
void ct__dot_root(ct_text *text, size_t number, ct_root_kind kind, ct_val val, const char *name);
void ct__dot_end(ct_text *text);

#endif
