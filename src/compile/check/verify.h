// What legal groups and a legal program are; passes are checked in debug builds and in tests.
#ifndef COTAN_COMPILE_VERIFY_H
#define COTAN_COMPILE_VERIFY_H

#include "compile/schedule/schedule.h"

// Behind fuse: every root is stored; what a group reads of another is stored there; a reduction is
// a unit of the group that computes it.
bool ct__verify_groups(ct_sched *s, ct_err *err);
// Behind a lowering: launches name buffers and kernels that exist and fit them, temporaries and
// roots are written before they are read, loops are closed. Planned: temporaries lie in the arena.
bool ct__verify_program(const ct_program *p, bool planned, ct_err *err);

#endif
