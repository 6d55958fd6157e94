// Verifies the results of passes: legal groups and a legal program. Runs in debug builds and in tests.
#ifndef COTAN_COMPILE_VERIFY_H
#define COTAN_COMPILE_VERIFY_H

#include "compile/schedule/schedule.h"

// After fusing: every root is stored; each value that a group reads of another group is stored there; each
// reduction is a unit of the group that computes it.
bool ct__verify_groups(ct_sched *s, ct_err *err);
// After lowering: launches name existing buffers and kernels that fit them, temporaries and roots are
// written before they are read, loops are closed. Planned: temporaries lie within the arena.
bool ct__verify_program(const ct_program *p, bool planned, ct_err *err);

#endif
