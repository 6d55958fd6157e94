// What the environment asks of plans.
#ifndef COTAN_COMPILE_ENV_H
#define COTAN_COMPILE_ENV_H

#include "graph/graph.h"

// False, with an error that names what is allowed: a variable says something that nobody reads.
bool ct__env_check(ct_err *err);
bool ct__env_fuses(void); // COTAN_FUSE

#endif
