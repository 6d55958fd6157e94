// The templates, by the kind of node they write kernels for (compile/schedule/schedule.h).
#ifndef COTAN_COMPILE_TEMPLATES_H
#define COTAN_COMPILE_TEMPLATES_H

#include "compile/schedule/schedule.h"

// Makes kernel arguments of all dynamic sizes that reading the node's operands may need: they must
// stand before the first loop.
void ct__template_sizes(ct_emit *e, ct_node *node);

bool ct__template_contract(ct_sched *s, ct_node *node); // matmul
bool ct__template_index(ct_sched *s, ct_node *node);    // scatter_add
bool ct__template_scan(ct_sched *s, ct_node *node);     // cumsum
bool ct__template_sort(ct_sched *s, ct_node *node);     // topk
bool ct__template_loop(ct_sched *s, ct_node *node);     // scan

#endif
