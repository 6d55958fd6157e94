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

// How a job is handed over: the caller sets the job's fields, then `open`. A worker increments
// `inside` before it reads `open`, and accesses the job only if it is open. The caller closes the
// job when no chunk is left, then waits until `inside` is 0; only then may the fields change again.
// Both sides write before they read, in one order (seq_cst), so that either the worker sees a
// closed job or the caller sees the worker.
struct ct_pool {
    pthread_mutex_t job_lock; // held while a job runs, and by resize
    int threads;              // requested, including the caller
    int started;              // existing workers
    pid_t owner;
    pthread_t ids[CT_POOL_MAX_THREADS];

    ct__pool_fn fn;
    void *arg;
    int64_t count, grain;
    int spins; // how long a worker polls for the next job before it sleeps

    _Alignas(64) _Atomic int64_t next; // the first chunk not claimed
    _Alignas(64) _Atomic bool open;
    _Alignas(64) _Atomic uint32_t epoch; // number of jobs; workers sleep on it
    _Atomic uint32_t asleep;
    _Alignas(64) _Atomic uint32_t inside; // workers in the job; the caller sleeps on it
    _Atomic bool caller_waits;
    _Atomic bool quit;
};

typedef struct {
    ct_pool *pool;
    int number;
} worker_arg;

// The pool whose job this thread is running, and its worker number.
static _Thread_local const ct_pool *current_pool;
static _Thread_local int current_worker;

static void pool_futex_wait(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}
static void pool_futex_wake(_Atomic uint32_t *word, int most) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, most, NULL, NULL, 0);
}
static void pool_cpu_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void pool_run_chunks(ct_pool *pool, int number) {
    current_pool = pool;
    current_worker = number;
    int64_t count = pool->count, grain = pool->grain;
    for (;;) {
        int64_t begin = atomic_fetch_add_explicit(&pool->next, grain, memory_order_relaxed);
        if (begin >= count) break;
        pool->fn(pool->arg, begin, count - begin < grain ? count : begin + grain, number);
    }
    current_pool = NULL;
}

// Returns when the epoch is not `seen` any more.
static void pool_await_job(ct_pool *pool, uint32_t seen) {
    for (int i = 0; i < pool->spins; i++) {
        if (atomic_load_explicit(&pool->epoch, memory_order_acquire) != seen) return;
        pool_cpu_relax();
    }
    atomic_fetch_add(&pool->asleep, 1);
    while (atomic_load(&pool->epoch) == seen) pool_futex_wait(&pool->epoch, seen);
    atomic_fetch_sub(&pool->asleep, 1);
}

static void *pool_worker(void *arg) {
    worker_arg *w = arg;
    ct_pool *pool = w->pool;
    int number = w->number;
    ct__free(w);
    fesetenv(FE_DFL_ENV);
    char name[16];
    snprintf(name, sizeof name, "cotan-%d", number);
    pthread_setname_np(pthread_self(), name);
    for (uint32_t seen = 0;;) {
        pool_await_job(pool, seen);
        seen = atomic_load(&pool->epoch);
        if (atomic_load(&pool->quit)) return NULL;
        atomic_fetch_add(&pool->inside, 1);
        if (atomic_load(&pool->open)) pool_run_chunks(pool, number);
        if (atomic_fetch_sub(&pool->inside, 1) == 1 && atomic_load(&pool->caller_waits))
            pool_futex_wake(&pool->inside, 1);
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

static void pool_start_workers(ct_pool *pool) {
    while (pool->started < pool->threads - 1) {
        worker_arg *w = ct__malloc(sizeof *w);
        if (!w) break;
        *w = (worker_arg){pool, pool->started + 1};
        if (ct__thread_start(&pool->ids[pool->started], pool_worker, w) != 0) {
            ct__free(w);
            break;
        }
        pool->started++;
    }
}

static void pool_stop_workers(ct_pool *pool) {
    atomic_store(&pool->quit, true);
    atomic_fetch_add(&pool->epoch, 1);
    pool_futex_wake(&pool->epoch, INT_MAX);
    for (int i = 0; i < pool->started; i++) pthread_join(pool->ids[i], NULL);
    pool->started = 0;
    atomic_store(&pool->quit, false);
    atomic_store(&pool->epoch, 0); // new workers start from epoch 0
}

static int pool_clamp_threads(int threads) {
    return threads < 1 ? 1 : threads > CT_POOL_MAX_THREADS ? CT_POOL_MAX_THREADS : threads;
}

// Spinning is worth it only if each thread has a core of its own.
static void pool_set_threads(ct_pool *pool, int threads) {
    pool->threads = pool_clamp_threads(threads);
    pool->spins = pool->threads <= ct__cores_allowed() ? 400 : 0;
}

ct_pool *ct__pool_new(int threads) {
    ct_pool *pool = ct__aligned(64, sizeof *pool);
    if (!pool) return NULL;
    *pool = (ct_pool){.owner = getpid()};
    pthread_mutex_init(&pool->job_lock, NULL);
    pool_set_threads(pool, threads);
    return pool;
}

void ct__pool_free(ct_pool *pool) {
    if (!pool) return;
    if (ct__pool_usable(pool)) {
        pool_stop_workers(pool);
        pthread_mutex_destroy(&pool->job_lock);
    }
    ct__free(pool);
}

int ct__pool_threads(const ct_pool *pool) { return pool->threads; }

void ct__pool_resize(ct_pool *pool, int threads) {
    pthread_mutex_lock(&pool->job_lock);
    if (pool_clamp_threads(threads) != pool->threads) {
        pool_stop_workers(pool);
        pool_set_threads(pool, threads);
    }
    pthread_mutex_unlock(&pool->job_lock);
}

bool ct__pool_usable(const ct_pool *pool) { return pool->owner == getpid(); }

static void pool_await_workers(ct_pool *pool) {
    for (int i = 0; i < 2000 && pool->spins; i++) {
        if (atomic_load(&pool->inside) == 0) return;
        pool_cpu_relax();
    }
    atomic_store(&pool->caller_waits, true);
    for (uint32_t n; (n = atomic_load(&pool->inside)) != 0;) pool_futex_wait(&pool->inside, n);
    atomic_store(&pool->caller_waits, false);
}

static void pool_run_inline(ct__pool_fn fn, void *arg, int64_t count, int64_t grain, int number) {
    for (int64_t i = 0; i < count; i += grain)
        fn(arg, i, count - i < grain ? count : i + grain, number);
}

void ct__pool_run(ct_pool *pool, ct__pool_fn fn, void *arg, int64_t count, int64_t grain) {
    if (grain < 1) grain = 1;
    if (current_pool == pool) {
        pool_run_inline(fn, arg, count, grain, current_worker);
        return;
    }
    pthread_mutex_lock(&pool->job_lock);
    bool parallel = count > grain && pool->threads > 1;
    if (parallel && pool->started < pool->threads - 1) pool_start_workers(pool);
    pool->fn = fn;
    pool->arg = arg;
    pool->count = count;
    pool->grain = grain;
    atomic_store(&pool->next, 0);
    if (parallel && pool->started) {
        atomic_store(&pool->open, true);
        atomic_fetch_add(&pool->epoch, 1);
        int64_t chunks = (count - 1) / grain; // besides the caller's first
        if (atomic_load(&pool->asleep))
            pool_futex_wake(&pool->epoch, chunks < INT_MAX ? (int)chunks : INT_MAX);
        pool_run_chunks(pool, 0);
        atomic_store(&pool->open, false);
        pool_await_workers(pool);
    } else {
        pool_run_chunks(pool, 0);
    }
    pthread_mutex_unlock(&pool->job_lock);
}
