// From a graph to kernels: two passes, in order (lower.c). Groups of values become a kernel each
// (fuse.c); then come the launches of each (schedule.c). What kinds see of it is kinds/emit.h.
#ifndef COTAN_COMPILE_SCHEDULE_H
#define COTAN_COMPILE_SCHEDULE_H

#include "compile/schedule/program.h"
#include "kinds/kind.h"

ct_sched *ct__sched_new(const ct_graph *graph, ct_program *program, ct_err *err);
bool ct__fuse(ct_sched *s); // false: recorded
bool ct__schedule(ct_sched *s);
void ct__sched_free(ct_sched *s);

bool ct__verifies(void); // are passes checked: in debug builds, and where COTAN_VERIFY says so?

#endif
