// A pool of threads that run the chunks of one job at a time.
//
// The thread that calls ct__pool_run takes part as worker 0; the others are named cotan-1, cotan-2
// ..., block the host program's signals and keep the default floating-point environment. The first
// job that has more than one chunk starts them; between jobs they spin for a moment, then sleep.
// Calls from several threads run one after the other. A call from inside a job runs its chunks at
// once, on the calling worker.
#ifndef COTAN_BASE_POOL_H
#define COTAN_BASE_POOL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { CT_POOL_MAX_THREADS = 256 };

typedef struct ct_pool ct_pool;

// Starts a thread that blocks the host program's signals; returns 0, or the error of
// pthread_create. Signals raised by the thread's own faults are not blocked: if SIGSEGV were, the
// kernel would end the process without calling its crash handler.
int ct__thread_start(pthread_t *id, void *(*run)(void *), void *arg);

// Runs [begin, end); worker is 0 .. threads - 1, and no two concurrent calls have the same.
typedef void (*ct__pool_fn)(void *arg, int64_t begin, int64_t end, int worker);

ct_pool *ct__pool_new(int threads); // clamped to 1 .. CT_POOL_MAX_THREADS; NULL: no memory
void ct__pool_free(ct_pool *pool);  // not while a job runs; NULL is ignored
int ct__pool_threads(const ct_pool *pool);
void ct__pool_resize(ct_pool *pool, int threads); // waits for a running job

// Runs fn over [0, count) in chunks of `grain` (the last may be shorter), each claimed by the next
// free worker; returns when all are done. Which worker gets which chunk is not determined. If the
// system refuses to start threads, the others do their work.
void ct__pool_run(ct_pool *pool, ct__pool_fn fn, void *arg, int64_t count, int64_t grain);

// False in a child after fork(): the threads stayed in the parent.
bool ct__pool_usable(const ct_pool *pool);

#endif
