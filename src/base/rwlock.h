// A reference-counted read-write lock: shared by many holders, or held exclusively by one.
//
// Phase-fair: an exclusive request waits for the current sharers, a shared request waits for an
// earlier exclusive one, and shared requests that waited during an exclusive hold go before the
// next exclusive one.
#ifndef COTAN_BASE_RWLOCK_H
#define COTAN_BASE_RWLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct ct_rwlock ct_rwlock;

ct_rwlock *ct__rwlock_new(void); // NULL: no memory
ct_rwlock *ct__rwlock_ref(ct_rwlock *share);
void ct__rwlock_unref(ct_rwlock *share); // NULL is ignored
// A thread that takes several locks takes them in the order of their addresses, each once. Returns
// false if `stop` (NULL: never) became true while it waited.
bool ct__rwlock_lock(ct_rwlock *share, bool exclusive, const atomic_bool *stop);
void ct__rwlock_unlock(ct_rwlock *share, bool exclusive);
// Shares the lock for a moment, in which the caller takes no other lock and does not wait: half the
// cost. Returns false if it is held exclusively.
bool ct__rwlock_try_read_briefly(ct_rwlock *share);
void ct__rwlock_end_read(ct_rwlock *share);
size_t ct__rwlock_waiters(ct_rwlock *share); // the number of waiting threads

#endif
