// Finds the barriers of a kernel whose 16 lanes are threads.
#ifndef COTAN_COMPILE_RENDER_SYNC_H
#define COTAN_COMPILE_RENDER_SYNC_H

#include "kir/kir.h"

// Sets sync[i], of (k->n), if all threads of the group must synchronise before instruction i: outside of
// LANES loops, or where one begins.
bool ct__render_find_sync(const ct_kir *k, const ct_kshape *shape, bool *sync, ct_err *err);

#endif
