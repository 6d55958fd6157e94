// A pool of threads that run the pieces of one job at a time.
//
// The thread that calls ct__pool_run works too, as worker 0; the others are named cotan-1, cotan-2
// ..., take none of the host program's signals and keep the default floating-point environment.
// They are started by the first job that has more than one piece, wait for the next job spinning
// for a moment and then asleep. Calls from several threads take turns. A call from inside a job
// runs its pieces at once, in the calling worker.
#ifndef COTAN_BASE_POOL_H
#define COTAN_BASE_POOL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { CT_POOL_MOST = 256 };

typedef struct ct_pool ct_pool;

// Starts a thread that takes none of the host program's signals; 0, or what pthread_create returns.
// Signals that a fault of the thread itself raises stay open: were SIGSEGV blocked, the kernel would
// end the process past its crash handler.
int ct__thread_start(pthread_t *id, void *(*run)(void *), void *arg);

// Does [begin, end); worker is 0 .. threads - 1, and no two pieces run at once with the same.
typedef void (*ct__pool_fn)(void *arg, int64_t begin, int64_t end, int worker);

ct_pool *ct__pool_new(int threads); // at least 1, at most CT_POOL_MOST; NULL: no memory
void ct__pool_free(ct_pool *pool);  // not while a job runs; NULL is fine
int ct__pool_threads(const ct_pool *pool);
void ct__pool_resize(ct_pool *pool, int threads); // waits for a running job

// Runs fn over [0, count) in pieces of `grain` (the last may be shorter), each claimed by the next
// free worker; returns when all are done. Which worker gets which piece is not determined. Threads
// that the system refuses are done without.
void ct__pool_run(ct_pool *pool, ct__pool_fn fn, void *arg, int64_t count, int64_t grain);

// False in a child after fork(): the threads stayed in the parent.
bool ct__pool_usable(const ct_pool *pool);

#endif
