#include "backend/cpu/code.h"

#include <pthread.h>

#include "backend/backend.h"
#include "backend/cpu/interp.h"
#include "base/mem.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards all below and `claimed`
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static ct_cpu_code **buckets; // (n_buckets), a power of two
static size_t n_buckets, n_codes;
static ct_cpu_code *forgotten;

static bool codes_grow(void) {
    size_t n = n_buckets ? n_buckets * 2 : 256;
    ct_cpu_code **more = ct__calloc(n, sizeof(ct_cpu_code *));
    if (!more) return false;
    for (size_t i = 0; i < n_buckets; i++)
        for (ct_cpu_code *code = buckets[i], *next; code; code = next) {
            next = code->next;
            code->next = more[code->key.lo & (n - 1)];
            more[code->key.lo & (n - 1)] = code;
        }
    ct__free(buckets);
    buckets = more;
    n_buckets = n;
    return true;
}

static ct_cpu_code *codes_find_or_add(ct_hash key) {
    if (n_codes >= n_buckets && !codes_grow()) return NULL;
    ct_cpu_code **bucket = &buckets[key.lo & (n_buckets - 1)];
    for (ct_cpu_code *code = *bucket; code; code = code->next)
        if (ct__hash_equal(code->key, key)) return code;
    ct_cpu_code *code = ct__calloc(1, sizeof *code);
    if (!code) return NULL;
    code->key = key;
    code->next = *bucket;
    *bucket = code;
    n_codes++;
    return code;
}

ct_cpu_code *ct__code_find(ct_hash key, ct_err *err) {
    pthread_mutex_lock(&lock);
    ct_cpu_code *code = codes_find_or_add(key);
    pthread_mutex_unlock(&lock);
    if (!code) ct__err_memory(err, CT_NOWHERE, "cpu", sizeof *code);
    return code;
}

bool ct__code_claim(ct_cpu_code *code) {
    pthread_mutex_lock(&lock);
    bool free = !ct__code_fn(code) && !code->claimed;
    if (free) code->claimed = true;
    pthread_mutex_unlock(&lock);
    return free;
}

// Frees the interpreted kernel once there is compiled code and no launch uses it. A launch
// increments the counter before it reads `fn`, so either it sees the code or it is counted here.
static void code_free_unused_interp(ct_cpu_code *code) {
    if (atomic_load(&code->fn) && atomic_load(&code->interpreting) == 0)
        ct__interp_free(atomic_exchange(&code->interp, NULL));
}

static void code_release(ct_cpu_code *code, ct__kernel_fn fn) {
    atomic_store(&code->ready_by, 0);
    pthread_mutex_lock(&lock);
    if (fn) atomic_store(&code->fn, fn);
    code->claimed = false;
    pthread_cond_broadcast(&released);
    pthread_mutex_unlock(&lock);
}
void ct__code_mark_pending(ct_cpu_code *code) {
    if (!atomic_exchange(&code->pending, true)) ct__counters.kernels_pending++;
}
void ct__code_clear_pending(ct_cpu_code *code) {
    if (atomic_exchange(&code->pending, false)) ct__counters.kernels_pending--;
}

void ct__code_publish(ct_cpu_code *code, ct__kernel_fn fn) {
    code_release(code, fn);
    ct__code_clear_pending(code);
    code_free_unused_interp(code);
}
void ct__code_abandon(ct_cpu_code *code) { code_release(code, NULL); }

bool ct__code_await(ct_cpu_code *code) {
    pthread_mutex_lock(&lock);
    bool was = code->claimed;
    while (code->claimed) pthread_cond_wait(&released, &lock);
    pthread_mutex_unlock(&lock);
    return was;
}

static char out_of_memory[] = "out of memory";

void ct__code_fail(ct_cpu_code *code, const ct_err *why) {
    char *text = ct__strdup(why->text), *none = NULL;
    if (!atomic_compare_exchange_strong(&code->failure, &none, text ? text : out_of_memory))
        ct__free(text);
    ct__counters.kernels_failed++;
    ct__code_clear_pending(code);
}

const ct_interp *ct__code_acquire_interp(ct_cpu_code *code) {
    atomic_fetch_add(&code->interpreting, 1);
    const ct_interp *interp = atomic_load(&code->fn) ? NULL : atomic_load(&code->interp);
    if (!interp) ct__code_release_interp(code);
    return interp;
}
void ct__code_release_interp(ct_cpu_code *code) {
    if (atomic_fetch_sub(&code->interpreting, 1) == 1) code_free_unused_interp(code);
}

bool ct__code_prepare_interp(ct_cpu_code *code, const ct_kir *ir, size_t *frame, ct_err *err) {
    const ct_interp *interp = ct__code_acquire_interp(code);
    if (!interp && !ct__code_fn(code)) {
        ct_interp *made = ct__interp_make(ir, err), *none = NULL;
        if (!made) return false;
        // Another thread may have been faster.
        if (!atomic_compare_exchange_strong(&code->interp, &none, made)) ct__interp_free(made);
        interp = ct__code_acquire_interp(code);
    }
    *frame = interp ? ct__interp_scratch(interp) : 0;
    if (interp) ct__code_release_interp(code);
    return true;
}

void ct__codes_forget(void) {
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n_buckets; i++)
        for (ct_cpu_code *code = buckets[i], *next; code; code = next) {
            next = code->next;
            code->next = forgotten;
            forgotten = code;
        }
    ct__free(buckets);
    buckets = NULL;
    n_buckets = n_codes = 0;
    pthread_mutex_unlock(&lock);
}

void ct__codes_end(void) {
    ct__codes_forget();
    while (forgotten) {
        ct_cpu_code *code = forgotten;
        forgotten = code->next;
        char *failure = atomic_load(&code->failure);
        if (failure != out_of_memory) ct__free(failure);
        ct__interp_free(atomic_load(&code->interp));
        ct__free(code);
    }
}
