// Graphs, plans and kernels as text for people, when COTAN_DUMP names them.
#ifndef COTAN_COMPILE_DUMP_H
#define COTAN_COMPILE_DUMP_H

#include "compile/schedule/schedule.h"

bool ct__dump_wants(const char *what);
// In the language of Graphviz: what was recorded; ct__dump_graph also gives what the passes make of
// it.
void ct__dump_recorded(ct_ctx *ctx, const ct_order *order, const ct_root *roots, size_t n_roots);
void ct__dump_graph(ct_ctx *ctx, const char *title, const ct_graph *graph);
void ct__dump_groups(const ct_sched *s);                    // what one kernel computes together
void ct__dump_plan(ct_ctx *ctx, const ct_program *program); // its launches, after the memory plan
void ct__dump_kernels(ct_ctx *ctx, const ct_program *program); // their source, after rendering

#endif
