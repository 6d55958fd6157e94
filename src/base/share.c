#include "base/share.h"

#include <pthread.h>
#include <time.h>

#include "base/mem.h"

struct ct_share {
    atomic_size_t refs;
    pthread_mutex_t lock;    // of all below, for moments
    pthread_cond_t changed;  // waited for by a monotonic clock
    size_t sharing, waiting; // who share it; who wait to
    size_t alone_waiting;
    size_t owed; // of those who wait to share: who go before the next who takes it alone
    bool alone;
};

ct_share *ct__share_new(void) {
    ct_share *share = ct__calloc(1, sizeof *share);
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

ct_share *ct__share_ref(ct_share *share) {
    atomic_fetch_add_explicit(&share->refs, 1, memory_order_relaxed);
    return share;
}
void ct__share_unref(ct_share *share) {
    if (!share || atomic_fetch_sub_explicit(&share->refs, 1, memory_order_acq_rel) != 1) return;
    pthread_cond_destroy(&share->changed);
    pthread_mutex_destroy(&share->lock);
    ct__free(share);
}

static bool must_wait(const ct_share *s, bool alone) {
    if (alone) return s->alone || s->sharing || s->owed;
    return s->alone || (s->alone_waiting && !s->owed);
}

// A signal handler may set `stop`, which can wake nobody: it is looked at now and then.
static bool wait_for(ct_share *s, bool alone, const atomic_bool *stop) {
    enum { LOOK = 20000000 }; // ns
    while (must_wait(s, alone)) {
        if (stop && atomic_load(stop)) return false;
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        t.tv_nsec += LOOK;
        if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
        if (stop)
            pthread_cond_timedwait(&s->changed, &s->lock, &t);
        else
            pthread_cond_wait(&s->changed, &s->lock);
    }
    return true;
}

bool ct__share_take(ct_share *s, bool alone, const atomic_bool *stop) {
    pthread_mutex_lock(&s->lock);
    size_t *waiting = alone ? &s->alone_waiting : &s->waiting;
    bool taken = true;
    if (must_wait(s, alone)) {
        (*waiting)++;
        taken = wait_for(s, alone, stop);
        (*waiting)--;
    }
    if (taken && alone) s->alone = true;
    if (taken && !alone) {
        s->sharing++;
        if (s->owed) s->owed--;
    }
    if (s->owed > s->waiting) s->owed = s->waiting;
    if (!taken) pthread_cond_broadcast(&s->changed); // others may have waited for this one
    pthread_mutex_unlock(&s->lock);
    return taken;
}

void ct__share_leave(ct_share *s, bool alone) {
    pthread_mutex_lock(&s->lock);
    if (alone) {
        s->alone = false;
        s->owed = s->waiting;
    } else {
        s->sharing--;
    }
    if (s->waiting || s->alone_waiting) pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

bool ct__share_touch(ct_share *s) {
    pthread_mutex_lock(&s->lock);
    if (!s->alone) return true; // nobody can take it alone meanwhile
    pthread_mutex_unlock(&s->lock);
    return false;
}
void ct__share_touched(ct_share *s) { pthread_mutex_unlock(&s->lock); }

size_t ct__share_waiting(ct_share *s) {
    pthread_mutex_lock(&s->lock);
    const size_t waiting = s->waiting + s->alone_waiting;
    pthread_mutex_unlock(&s->lock);
    return waiting;
}
