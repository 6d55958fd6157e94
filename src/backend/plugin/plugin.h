// Device plugins: devices that the process defined or that shared libraries provide.
#ifndef COTAN_BACKEND_PLUGIN_PLUGIN_H
#define COTAN_BACKEND_PLUGIN_PLUGIN_H

#include "backend/backend.h"

// Iterates over the devices defined so far and those of COTAN_DEVICE_LIBRARY, whose libraries the
// first call loads: returns the one after `last` (NULL: the first); NULL: no more. `why` (may be
// NULL) gets the error of a library that cannot be loaded.
const ct_backend *ct__plugin_next(const ct_backend *last, ct_err *why);

#endif
