// Prints graphs, plans and kernels for people, if COTAN_DUMP names them.
#ifndef COTAN_COMPILE_DUMP_H
#define COTAN_COMPILE_DUMP_H

#include "compile/schedule/schedule.h"

bool ct__dump_is_requested(const char *what);
// recorded: prints the recorded graph in the language of Graphviz; ct__dump_graph prints it in the same
// language also after passes.
void ct__dump_recorded(ct_ctx *ctx, const ct_order *order, const ct_root *roots, size_t n_roots);
void ct__dump_graph(ct_ctx *ctx, const char *title, const ct_graph *graph);
void ct__dump_groups(const ct_sched *s);                    // what each kernel computes
void ct__dump_plan(ct_ctx *ctx, const ct_program *program); // its launches, after the memory plan
void ct__dump_kernels(ct_ctx *ctx, const ct_program *program); // their source, after rendering

#endif
