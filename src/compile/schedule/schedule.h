// From a graph to kernels, in two passes (lower.c). fuse.c groups values, and each group becomes a kernel;
// then schedule.c makes the launches of each group. kinds/emit.h is the part of it that kinds see.
#ifndef COTAN_COMPILE_SCHEDULE_H
#define COTAN_COMPILE_SCHEDULE_H

#include "compile/schedule/program.h"
#include "kinds/kind.h"

ct_sched *ct__sched_new(const ct_graph *graph, ct_program *program, ct_err *err);
bool ct__fuse(ct_sched *s); // false: the error is recorded
bool ct__schedule(ct_sched *s);
void ct__sched_free(ct_sched *s);

// True if passes are verified: in debug builds, and where COTAN_VERIFY is set
bool ct__verifies(void);

#endif
