#include "support/refusals.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

// ------------------------------------------------------------------------------------------------
// the host's allocator

static atomic_llong live, until = -1; // blocks; allocations that still succeed, < 0: all
static atomic_bool fired;

static bool refuse(void) {
    if (atomic_load(&until) < 0 || atomic_fetch_sub(&until, 1) != 0) return false;
    atomic_store(&fired, true);
    return true;
}
static void *host_alloc(size_t align, size_t bytes, void *user) {
    (void)user;
    void *p = refuse() ? NULL : aligned_alloc(align, (bytes + align - 1) / align * align);
    atomic_fetch_add(&live, p != NULL);
    return p;
}
static void *host_realloc(void *old, size_t bytes, void *user) {
    (void)user;
    return refuse() ? NULL : realloc(old, bytes);
}
static void host_free(void *p, void *user) {
    (void)user;
    atomic_fetch_sub(&live, 1);
    free(p);
}

void refuse_at(int n) {
    atomic_store(&fired, false);
    atomic_store(&until, n);
}
int refuse_next(void) { return (int)atomic_load(&until); }
bool refuse_none(void) {
    atomic_store(&until, -1);
    return atomic_load(&fired);
}
void refused_already(bool hit) { atomic_store(&fired, hit); }
long long blocks_live(void) { return atomic_load(&live); }

int refusals_begin(void **state) {
    static const ct_allocator host = {host_alloc, host_realloc, host_free, NULL};
    (void)state;
    setenv("COTAN_CC", "none", 1);
    mallopt(M_TRIM_THRESHOLD, 1 << 28); // contexts come and go: their pages stay
    mallopt(M_MMAP_THRESHOLD, 1 << 28);
    ct_set_threads(1);
    if (!ct_set_allocator(&host)) return -1;
    ct_set_memory_limit(1 << 30); // else each plan asks the system what is left
    ct_set_log(NULL, NULL);
    return 0;
}
int refusals_end(void **state) {
    (void)state;
    refuse_none();
    if (!ct_shutdown()) return -1;
    if (atomic_load(&live)) print_error("%lld blocks are left\n", (long long)live);
    return atomic_load(&live) ? -1 : 0;
}

// ------------------------------------------------------------------------------------------------
// sweeps

const char *refusal_subject;
int refusal_at, refusals, refusals_borne;

static ct_ctx *mine;
ct_ctx *refusals_enter(const char *device, bool *ok) {
    ct_ctx *ctx = ct_ctx_new(); // which tells the thread's context when it fails
    if (!ctx) return NULL;
    mine = ct_ctx_use(ctx);
    ct_set_log(NULL, NULL);
    *ok = ct_set_device(device);
    return ctx;
}
void refusals_leave(ct_ctx *ctx) {
    ct_ctx_use(mine);
    ct_ctx_free(ctx);
}

void expect_told(bool ok) {
    const char *text = ct_error_text();
    refusals += !ok;
    refusals_borne += ok && atomic_load(&fired);
    if (ok) return;
    expect(ct_error_code() == CT_E_MEMORY, "the error is %d: \"%s\"", (int)ct_error_code(), text);
    expect(strstr(text, "memory") && strchr(text, ':'), "it does not say so: \"%s\"", text);
    ct_error_clear();
}

void sweep_some(const char *name, void (*program)(void *), void *user, int from, int step) {
    refusal_subject = name;
    refusal_at = -1;
    refuse_none();
    program(user); // with memory it works; and what the process keeps, it has from now on
    bool hit = true;
    for (refusal_at = from; hit; refusal_at += step) {
        long long grown = 1;
        for (int again = 0; again < 2 && grown; again++) {
            long long before = atomic_load(&live);
            refuse_at(refusal_at);
            program(user);
            hit = refuse_none();
            grown = atomic_load(&live) - before; // at first perhaps a kernel that is kept
        }
        expect(!grown, "%lld blocks leaked", grown);
    }
}
void sweep(const char *name, void (*program)(void *), void *user) {
    sweep_some(name, program, user, 0, 1);
}
int one_in(int n) { return getenv("COTAN_TEST_ALL") ? 1 : n; }
