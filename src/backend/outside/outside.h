// Devices that the process defined, or that shared libraries brought.
#ifndef COTAN_BACKEND_OUTSIDE_OUTSIDE_H
#define COTAN_BACKEND_OUTSIDE_OUTSIDE_H

#include "backend/backend.h"

// Those that were defined so far and those of COTAN_DEVICE_LIBRARY, which are loaded when this is asked first: the
// one behind `last` (NULL: the first); NULL: no more. `why`, where a library cannot be loaded, may be NULL.
const ct_backend *ct__outside_next(const ct_backend *last, ct_err *why);

#endif
