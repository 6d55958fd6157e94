// Horizontal fusion: small independent launches become one launch.
//
// In: a program of kernels, its launches in order (schedule/program.h), and the graph that it was made
// from. Out: the same launches, with those that do not depend on each other in BATCHes.
#ifndef COTAN_COMPILE_BATCH_H
#define COTAN_COMPILE_BATCH_H

#include "compile/schedule/program.h"

bool ct__batch_launches(ct_program *program, const ct_graph *graph, ct_err *err);

#endif
