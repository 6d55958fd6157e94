#define _GNU_SOURCE
#include "base/pool.h"

#include <fenv.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"

// How a job is handed over. The caller fills the job's fields, then sets `open`. A worker counts
// itself in (`inside`) before it looks at `open`, and touches the job only if it is open. The
// caller closes the job when no piece is left, then waits until nobody is inside; only then may the
// fields change again. Both sides write before they read, in one order (seq_cst), so that either
// the worker sees a closed job or the caller sees the worker.
struct ct_pool {
    pthread_mutex_t turn; // held while a job runs, and by resize
    int threads;          // asked for, the caller included
    int started;          // workers that exist
    pid_t owner;
    pthread_t ids[CT_POOL_MOST];

    ct__pool_fn fn;
    void *arg;
    int64_t count, grain;
    int spins; // how long a worker looks for the next job before it sleeps

    _Alignas(64) _Atomic int64_t next; // the first piece not claimed
    _Alignas(64) _Atomic bool open;
    _Alignas(64) _Atomic uint32_t epoch; // jobs so far; workers sleep on it
    _Atomic uint32_t asleep;
    _Alignas(64) _Atomic uint32_t inside; // the caller sleeps on it
    _Atomic bool waiting;
    _Atomic bool quit;
};

typedef struct {
    ct_pool *pool;
    int number;
} hire;

// The pool whose job this thread is running, and its number there.
static _Thread_local const ct_pool *working_for;
static _Thread_local int working_as;

static void sleep_on(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}
static void wake(_Atomic uint32_t *word, int most) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, most, NULL, NULL, 0);
}
static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void work(ct_pool *pool, int number) {
    working_for = pool;
    working_as = number;
    int64_t count = pool->count, grain = pool->grain;
    for (;;) {
        int64_t begin = atomic_fetch_add_explicit(&pool->next, grain, memory_order_relaxed);
        if (begin >= count) break;
        pool->fn(pool->arg, begin, count - begin < grain ? count : begin + grain, number);
    }
    working_for = NULL;
}

// Returns when the epoch is no longer `seen`.
static void await_job(ct_pool *pool, uint32_t seen) {
    for (int i = 0; i < pool->spins; i++) {
        if (atomic_load_explicit(&pool->epoch, memory_order_acquire) != seen) return;
        relax();
    }
    atomic_fetch_add(&pool->asleep, 1);
    while (atomic_load(&pool->epoch) == seen) sleep_on(&pool->epoch, seen);
    atomic_fetch_sub(&pool->asleep, 1);
}

static void *worker(void *arg) {
    hire *hired = arg;
    ct_pool *pool = hired->pool;
    int number = hired->number;
    ct__free(hired);
    fesetenv(FE_DFL_ENV);
    char name[16];
    snprintf(name, sizeof name, "cotan-%d", number);
    pthread_setname_np(pthread_self(), name);
    for (uint32_t seen = 0;;) {
        await_job(pool, seen);
        seen = atomic_load(&pool->epoch);
        if (atomic_load(&pool->quit)) return NULL;
        atomic_fetch_add(&pool->inside, 1);
        if (atomic_load(&pool->open)) work(pool, number);
        if (atomic_fetch_sub(&pool->inside, 1) == 1 && atomic_load(&pool->waiting))
            wake(&pool->inside, 1);
    }
}

int ct__thread_start(pthread_t *id, void *(*run)(void *), void *arg) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int failed = pthread_create(id, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

static void start(ct_pool *pool) {
    while (pool->started < pool->threads - 1) {
        hire *hired = ct__malloc(sizeof *hired);
        if (!hired) break;
        *hired = (hire){pool, pool->started + 1};
        if (ct__thread_start(&pool->ids[pool->started], worker, hired) != 0) {
            ct__free(hired);
            break;
        }
        pool->started++;
    }
}

static void stop(ct_pool *pool) {
    atomic_store(&pool->quit, true);
    atomic_fetch_add(&pool->epoch, 1);
    wake(&pool->epoch, INT_MAX);
    for (int i = 0; i < pool->started; i++) pthread_join(pool->ids[i], NULL);
    pool->started = 0;
    atomic_store(&pool->quit, false);
    atomic_store(&pool->epoch, 0); // new workers start from epoch 0
}

static int clamp(int threads) {
    return threads < 1 ? 1 : threads > CT_POOL_MOST ? CT_POOL_MOST : threads;
}

// Spinning pays only where each thread has a core of its own.
static void set_threads(ct_pool *pool, int threads) {
    pool->threads = clamp(threads);
    pool->spins = pool->threads <= ct__cores_allowed() ? 400 : 0;
}

ct_pool *ct__pool_new(int threads) {
    ct_pool *pool = ct__aligned(64, sizeof *pool);
    if (!pool) return NULL;
    *pool = (ct_pool){.owner = getpid()};
    pthread_mutex_init(&pool->turn, NULL);
    set_threads(pool, threads);
    return pool;
}

void ct__pool_free(ct_pool *pool) {
    if (!pool) return;
    if (ct__pool_usable(pool)) {
        stop(pool);
        pthread_mutex_destroy(&pool->turn);
    }
    ct__free(pool);
}

int ct__pool_threads(const ct_pool *pool) { return pool->threads; }

void ct__pool_resize(ct_pool *pool, int threads) {
    pthread_mutex_lock(&pool->turn);
    if (clamp(threads) != pool->threads) {
        stop(pool);
        set_threads(pool, threads);
    }
    pthread_mutex_unlock(&pool->turn);
}

bool ct__pool_usable(const ct_pool *pool) { return pool->owner == getpid(); }

static void await_workers(ct_pool *pool) {
    for (int i = 0; i < 2000 && pool->spins; i++) {
        if (atomic_load(&pool->inside) == 0) return;
        relax();
    }
    atomic_store(&pool->waiting, true);
    for (uint32_t n; (n = atomic_load(&pool->inside)) != 0;) sleep_on(&pool->inside, n);
    atomic_store(&pool->waiting, false);
}

static void run_alone(ct__pool_fn fn, void *arg, int64_t count, int64_t grain, int number) {
    for (int64_t i = 0; i < count; i += grain)
        fn(arg, i, count - i < grain ? count : i + grain, number);
}

void ct__pool_run(ct_pool *pool, ct__pool_fn fn, void *arg, int64_t count, int64_t grain) {
    if (grain < 1) grain = 1;
    if (working_for == pool) {
        run_alone(fn, arg, count, grain, working_as);
        return;
    }
    pthread_mutex_lock(&pool->turn);
    bool several = count > grain && pool->threads > 1;
    if (several && pool->started < pool->threads - 1) start(pool);
    pool->fn = fn;
    pool->arg = arg;
    pool->count = count;
    pool->grain = grain;
    atomic_store(&pool->next, 0);
    if (several && pool->started) {
        atomic_store(&pool->open, true);
        atomic_fetch_add(&pool->epoch, 1);
        int64_t pieces = (count - 1) / grain; // beside the caller's first
        if (atomic_load(&pool->asleep))
            wake(&pool->epoch, pieces < INT_MAX ? (int)pieces : INT_MAX);
        work(pool, 0);
        atomic_store(&pool->open, false);
        await_workers(pool);
    } else {
        work(pool, 0);
    }
    pthread_mutex_unlock(&pool->turn);
}
