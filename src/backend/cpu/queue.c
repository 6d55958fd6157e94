#define _GNU_SOURCE
#include "backend/cpu/queue.h"

#include <pthread.h>
#include <string.h>

#include "backend/cpu/code.h"
#include "backend/cpu/toolchain.h"
#include "base/mem.h"
#include "base/pool.h"
#include "graph/graph.h"

typedef struct item {
    struct item *next;
    ct_cpu_code *code;
    const ct_toolchain *toolchain;
    const char *name; // stored after the text
    char text[];
} item;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;   // guards all below
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;    // a worker
static pthread_cond_t compiled = PTHREAD_COND_INITIALIZER; // a batch, or not: it is over
static item *first, **last = &first;
static size_t queued, urgent; // items; those that a thread waits for
static size_t share;          // of the urgent items, for one compiler
static struct worker {
    pthread_t id;
    enum { NONE, RUNNING, ENDED } state;
} workers[CT_POOL_MAX_THREADS];
static int working; // workers that have not ended
static atomic_bool closed;

bool ct__queue_add(const ct__kernel_source *k, const ct_toolchain *toolchain, ct_err *err) {
    size_t text = strlen(k->text) + 1, name = strlen(k->name) + 1;
    item *it = ct__malloc(sizeof *it + text + name);
    if (!it) return ct__err_memory(err, CT_NOWHERE, "cpu", sizeof *it + text + name);
    *it = (item){.code = k->code, .toolchain = toolchain};
    memcpy(it->text, k->text, text);
    it->name = memcpy(it->text + text, k->name, name);
    pthread_mutex_lock(&lock);
    bool taken = !closed && !k->code->queued;
    if (taken) {
        *last = it;
        last = &it->next;
        k->code->queued = true;
        ct__code_mark_pending(k->code);
        queued++;
    }
    pthread_mutex_unlock(&lock);
    if (!taken) ct__free(it);
    return true;
}

void ct__queue_prioritize(ct_cpu_code *code) {
    pthread_mutex_lock(&lock);
    if (code->queued && !code->urgent) {
        code->urgent = true;
        urgent++;
    }
    pthread_mutex_unlock(&lock);
}

// ---------------------------------------------------------------------------------------- batches

enum { MAX_URGENT = 32, MAX_BATCH = 8 };

static size_t queue_share_of(size_t n, int threads) {
    return (n + (size_t)threads - 1) / (size_t)threads;
}

// A compiler is started for several kernels, since its start costs as much as two of them. Urgent
// kernels are divided evenly, all at once; of the others few are taken at a time, so that kernels
// that become urgent are reached soon.
static size_t queue_batch_size(int threads) {
    size_t n = urgent ? share : queue_share_of(queued, 2 * threads),
           most = urgent ? MAX_URGENT : MAX_BATCH;
    return n < 1 ? 1 : n < most ? n : most;
}

// Takes items of one toolchain from the queue, urgent ones before the others.
static size_t queue_take(item *batch[MAX_URGENT], int threads) {
    size_t n = 0, most = queue_batch_size(threads);
    bool only_wanted = urgent > 0;
    for (item **at = &first; *at && n < most;) {
        item *it = *at;
        if (it->code->urgent != only_wanted || (n && it->toolchain != batch[0]->toolchain)) {
            at = &it->next;
            continue;
        }
        *at = it->next;
        if (last == &it->next) last = at;
        queued--;
        urgent -= it->code->urgent;
        it->code->queued = it->code->urgent = false;
        it->code->taken++;
        batch[n++] = it;
    }
    return n;
}

static void queue_compile(item *const *batch, size_t n) {
    ct__kernel_source sources[MAX_URGENT];
    ct_err err = {0};
    for (size_t i = 0; i < n; i++)
        sources[i] = (ct__kernel_source){
            .name = batch[i]->name, .text = batch[i]->text, .code = batch[i]->code};
    bool ok = ct__cpu_build_entries(sources, n, batch[0]->toolchain, &closed, &err);
    for (size_t i = 0; i < n; i++) {
        if (!ok && !ct__code_fn(batch[i]->code)) ct__code_fail(batch[i]->code, &err);
        // It may have been published before it was queued; an unpublished one belongs to another
        // thread.
        if (ct__code_fn(batch[i]->code)) ct__code_clear_pending(batch[i]->code);
    }
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n; i++) batch[i]->code->taken--;
    pthread_cond_broadcast(&compiled);
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < n; i++) ct__free(batch[i]);
}

bool ct__queue_compile_some(void) {
    item *batch[MAX_URGENT];
    pthread_mutex_lock(&lock);
    size_t n = urgent ? queue_take(batch, 1) : 0;
    pthread_mutex_unlock(&lock);
    if (n) queue_compile(batch, n);
    return n > 0;
}

bool ct__queue_await(const ct_cpu_code *code) {
    pthread_mutex_lock(&lock);
    bool was = code->taken > 0;
    while (code->taken > 0) pthread_cond_wait(&compiled, &lock);
    pthread_mutex_unlock(&lock);
    return was;
}

// ---------------------------------------------------------------------------------------- threads

typedef struct {
    struct worker *worker;
    int threads;
} worker_arg;

static void *queue_worker(void *arg) {
    worker_arg h = *(worker_arg *)arg;
    ct__free(arg);
    pthread_setname_np(pthread_self(), "cotan cc");
    for (;;) {
        item *batch[MAX_URGENT];
        pthread_mutex_lock(&lock);
        size_t n = closed ? 0 : queue_take(batch, h.threads);
        if (n == 0) break;
        pthread_mutex_unlock(&lock);
        queue_compile(batch, n);
    }
    h.worker->state = ENDED;
    working--;
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
    return NULL;
}

// Joins the threads that have ended or are about to return.
static void queue_join_ended(void) {
    for (int i = 0; i < CT_POOL_MAX_THREADS; i++)
        if (workers[i].state == ENDED) {
            pthread_join(workers[i].id, NULL);
            workers[i].state = NONE;
        }
}

// Returns false if the system refuses a thread.
static bool queue_start_thread(int threads) {
    int i = 0;
    while (i < CT_POOL_MAX_THREADS && workers[i].state != NONE) i++;
    worker_arg *h = i < CT_POOL_MAX_THREADS ? ct__malloc(sizeof *h) : NULL;
    if (!h) return false;
    *h = (worker_arg){&workers[i], threads};
    workers[i].state = RUNNING;
    if (ct__thread_start(&workers[i].id, queue_worker, h) != 0) {
        workers[i].state = NONE;
        ct__free(h);
        return false;
    }
    working++;
    return true;
}

void ct__queue_start(int threads, bool helps) {
    pthread_mutex_lock(&lock);
    if (queued && !closed) queue_join_ended();
    share = queue_share_of(urgent, threads);
    size_t left = queued, batch = queue_batch_size(threads);
    for (int i = helps; i < threads && left && !closed; i++) {
        left -= left < batch ? left : batch;
        if (i >= working && !queue_start_thread(threads)) break;
    }
    pthread_mutex_unlock(&lock);
}

void ct__queue_wait_idle(void) {
    ct__queue_start(1, false);
    pthread_mutex_lock(&lock);
    while (working) pthread_cond_wait(&ended, &lock);
    pthread_mutex_unlock(&lock);
}

void ct__queue_close(void) {
    pthread_mutex_lock(&lock);
    closed = true;
    for (item *it = first, *next; it; it = next) {
        next = it->next;
        it->code->queued = it->code->urgent = false;
        ct__code_clear_pending(it->code);
        ct__free(it);
    }
    first = NULL;
    last = &first;
    queued = urgent = 0;
    while (working) pthread_cond_wait(&ended, &lock);
    queue_join_ended();
    pthread_mutex_unlock(&lock);
}

void ct__queue_open(void) {
    pthread_mutex_lock(&lock);
    closed = false;
    pthread_mutex_unlock(&lock);
}

// If the process ends without ct_shutdown, its threads first wait for their compilers, which would
// otherwise keep running and leave their folders.
__attribute__((destructor)) static void queue_close_at_exit(void) {
    if (!ct__forked()) ct__queue_close();
}
