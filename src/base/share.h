// A lock that many may share or one may hold alone, counted by those who may take it.
//
// Fair by phases: who wants it alone waits for those who share it now, who wants to share it waits
// for one holder alone that came first, and those who waited meanwhile go before the next one.
#ifndef COTAN_BASE_SHARE_H
#define COTAN_BASE_SHARE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct ct_share ct_share;

ct_share *ct__share_new(void); // NULL: no memory
ct_share *ct__share_ref(ct_share *share);
void ct__share_unref(ct_share *share); // NULL is fine
// Who takes several takes them in the order of their addresses, none twice. False: `stop` (NULL:
// never) was set while it waited.
bool ct__share_take(ct_share *share, bool alone, const atomic_bool *stop);
void ct__share_leave(ct_share *share, bool alone);
// To share it for a moment, in which the caller takes no lock and waits for nothing: half the price. False:
// somebody has it alone.
bool ct__share_touch(ct_share *share);
void ct__share_touched(ct_share *share);
size_t ct__share_waiting(ct_share *share); // how many wait for it now

#endif
