// Graphs, plans and kernels as text for people, when COTAN_DUMP names them.
#ifndef COTAN_COMPILE_DUMP_H
#define COTAN_COMPILE_DUMP_H

#include "compile/program.h"

bool ct__dump_wants(const char *what);
void ct__dump_graph(ct_ctx *ctx, const char *title, const ct_graph *graph);
void ct__dump_plan(ct_ctx *ctx, const ct_program *program); // its launches, after the memory plan
void ct__dump_kernels(ct_ctx *ctx, const ct_program *program); // their source, after rendering

#endif
