#include "base/rwlock.h"

#include <pthread.h>
#include <time.h>

#include "base/mem.h"

struct ct_rwlock {
    atomic_size_t refs;
    pthread_mutex_t lock;    // guards all below, held only briefly
    pthread_cond_t changed;  // uses the monotonic clock
    size_t sharers, waiting; // holders; shared requests that wait
    size_t exclusive_waiting;
    size_t priority; // shared requests that go before the next exclusive one
    bool exclusive;
};

ct_rwlock *ct__rwlock_new(void) {
    ct_rwlock *share = ct__calloc(1, sizeof *share);
    if (!share) return NULL;
    atomic_init(&share->refs, 1);
    pthread_mutex_init(&share->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&share->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return share;
}

ct_rwlock *ct__rwlock_ref(ct_rwlock *share) {
    atomic_fetch_add_explicit(&share->refs, 1, memory_order_relaxed);
    return share;
}
void ct__rwlock_unref(ct_rwlock *share) {
    if (!share || atomic_fetch_sub_explicit(&share->refs, 1, memory_order_acq_rel) != 1) return;
    pthread_cond_destroy(&share->changed);
    pthread_mutex_destroy(&share->lock);
    ct__free(share);
}

static bool rwlock_must_wait(const ct_rwlock *s, bool exclusive) {
    if (exclusive) return s->exclusive || s->sharers || s->priority;
    return s->exclusive || (s->exclusive_waiting && !s->priority);
}

// A signal handler may set `stop` but cannot signal the condition: it is polled.
static bool rwlock_wait(ct_rwlock *s, bool exclusive, const atomic_bool *stop) {
    enum { POLL_NS = 20000000 }; // 0.02 s
    while (rwlock_must_wait(s, exclusive)) {
        if (stop && atomic_load(stop)) return false;
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        t.tv_nsec += POLL_NS;
        if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
        if (stop)
            pthread_cond_timedwait(&s->changed, &s->lock, &t);
        else
            pthread_cond_wait(&s->changed, &s->lock);
    }
    return true;
}

bool ct__rwlock_lock(ct_rwlock *s, bool exclusive, const atomic_bool *stop) {
    pthread_mutex_lock(&s->lock);
    size_t *waiting = exclusive ? &s->exclusive_waiting : &s->waiting;
    bool taken = true;
    if (rwlock_must_wait(s, exclusive)) {
        (*waiting)++;
        taken = rwlock_wait(s, exclusive, stop);
        (*waiting)--;
    }
    if (taken && exclusive) s->exclusive = true;
    if (taken && !exclusive) {
        s->sharers++;
        if (s->priority) s->priority--;
    }
    if (s->priority > s->waiting) s->priority = s->waiting;
    if (!taken) pthread_cond_broadcast(&s->changed); // others may have waited for this request
    pthread_mutex_unlock(&s->lock);
    return taken;
}

void ct__rwlock_unlock(ct_rwlock *s, bool exclusive) {
    pthread_mutex_lock(&s->lock);
    if (exclusive) {
        s->exclusive = false;
        s->priority = s->waiting;
    } else {
        s->sharers--;
    }
    if (s->waiting || s->exclusive_waiting) pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

bool ct__rwlock_try_read_briefly(ct_rwlock *s) {
    pthread_mutex_lock(&s->lock);
    if (!s->exclusive) return true; // holding `lock` prevents exclusive requests
    pthread_mutex_unlock(&s->lock);
    return false;
}
void ct__rwlock_end_read(ct_rwlock *s) { pthread_mutex_unlock(&s->lock); }

size_t ct__rwlock_waiters(ct_rwlock *s) {
    pthread_mutex_lock(&s->lock);
    const size_t waiting = s->waiting + s->exclusive_waiting;
    pthread_mutex_unlock(&s->lock);
    return waiting;
}
