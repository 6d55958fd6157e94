#include "backend/memory.h"
#include "base/trace_events.h"

#include "base/os.h"
#include "base/text.h"

ct_account ct__account;

static _Atomic uint64_t limit_bytes;

void ct_set_memory_limit(uint64_t bytes) { limit_bytes = bytes; }
uint64_t ct_memory_limit(void) { return limit_bytes; }

uint64_t ct__memory_left(const ct_account *account) {
    if (account != &ct__account) return UINT64_MAX;
    uint64_t limit = limit_bytes, total = account->total;
    if (limit) return total < limit ? limit - total : 0;
    size_t available = ct__available_bytes();
    return available ? available : UINT64_MAX;
}

bool ct__account_add(ct_account *account, uint64_t bytes, ct_memory_kind kind, ct_err *err) {
    uint64_t limit = account == &ct__account ? limit_bytes : 0;
    uint64_t total = atomic_fetch_add(&account->total, bytes) + bytes;
    if (limit && total > limit) {
        atomic_fetch_sub(&account->total, bytes);
        ct__err(err, CT_E_LIMIT, CT_NOWHERE, "memory",
                "%s more are needed where %s are in use: the limit is %s", ct__bytes_text(bytes).s,
                ct__bytes_text(total - bytes).s, ct__bytes_text(limit).s);
        return false;
    }
    atomic_fetch_add(&account->now[kind], bytes);
    uint64_t peak = account->peak;
    while (total > peak && !atomic_compare_exchange_weak(&account->peak, &peak, total)) {
    }
    if (ct__trace_enabled() && account == &ct__account) ct__trace_memory_add(total);
    return true;
}

void ct__account_sub(ct_account *account, uint64_t bytes, ct_memory_kind kind) {
    atomic_fetch_sub(&account->now[kind], bytes);
    const uint64_t total = atomic_fetch_sub(&account->total, bytes) - bytes;
    if (ct__trace_enabled() && account == &ct__account) ct__trace_memory_add(total);
}

// A program often allocates sizes that it has just freed: the results of the step before. If they
// were returned to the system, each of their pages would cause a fault again (a sum of two tensors
// of 4 MB took ten times as long; a product of 256 x 768 x 2304, its result 7 MB, a seventh
// longer). So the device keeps some buffers; they count as free, and none is kept if there is a
// limit. The latest FEW_SPARES may take SPARE_ALWAYS_BYTES; others are kept only while the
// process's memory stays below its peak.
enum {
    SPARE_MIN_BYTES = 128 << 10,
    SPARE_ALWAYS_BYTES = 128 << 20,
    SPARE_MAX_BYTES = 512 << 20,
    FEW_SPARES = 8
};

static bool memory_may_cache(const ct_device *device, size_t bytes) {
    return device->backend->caches_buffers && !device->guard && bytes >= SPARE_MIN_BYTES;
}

static void *memory_take_spare(ct_device *device, size_t bytes) {
    void *buffer = NULL;
    if (!memory_may_cache(device, bytes)) return NULL;
    pthread_mutex_lock(&device->spare_lock);
    for (int i = 1; i <= CT_SPARES && !buffer;
         i++) { // the last one freed first: it is most likely in the caches
        struct ct_spare *spare = &device->spare[(device->next_spare - i + CT_SPARES) % CT_SPARES];
        if (spare->bytes != bytes) continue;
        buffer = spare->buffer;
        device->spare_bytes -= bytes;
        *spare = (struct ct_spare){0};
    }
    pthread_mutex_unlock(&device->spare_lock);
    return buffer;
}

// Keeps the buffer, in place of the oldest ones. Returns false if it is not kept.
static bool memory_keep_spare(ct_device *device, void *buffer, size_t bytes) {
    struct ct_spare evicted[CT_SPARES];
    int n = 0;
    if (!memory_may_cache(device, bytes) || bytes > SPARE_MAX_BYTES || limit_bytes) return false;
    pthread_mutex_lock(&device->spare_lock);
    do { // evicts the oldest, and as many after it as needed for the new one
        struct ct_spare *oldest = &device->spare[(device->next_spare + n) % CT_SPARES];
        device->spare_bytes -= oldest->bytes;
        evicted[n++] = *oldest;
        *oldest = (struct ct_spare){0};
    } while (n < CT_SPARES && device->spare_bytes + bytes > SPARE_MAX_BYTES);
    device->spare[device->next_spare] = (struct ct_spare){buffer, bytes};
    device->next_spare = (device->next_spare + 1) % CT_SPARES;
    device->spare_bytes += bytes;
    pthread_mutex_unlock(&device->spare_lock);
    for (int i = 0; i < n; i++)
        if (evicted[i].buffer) device->backend->free(device, evicted[i].buffer);
    return true;
}

// Frees the oldest until at most `bytes` are left; the last few only until at most `some` are left.
static void memory_trim_spares(ct_device *device, size_t bytes, size_t some) {
    bool done = false;
    for (int i = 0; i < CT_SPARES && !done; i++) {
        void *buffer = NULL;
        pthread_mutex_lock(&device->spare_lock);
        done = device->spare_bytes <= (i < CT_SPARES - FEW_SPARES ? bytes : some);
        if (!done) {
            struct ct_spare *oldest = &device->spare[(device->next_spare + i) % CT_SPARES];
            buffer = oldest->buffer;
            device->spare_bytes -= oldest->bytes;
            *oldest = (struct ct_spare){0};
        }
        pthread_mutex_unlock(&device->spare_lock);
        if (buffer) device->backend->free(device, buffer);
    }
}

void ct__device_empty_cache(ct_device *device) { memory_trim_spares(device, 0, 0); }

void *ct__device_alloc(ct_device *device, size_t bytes, ct_memory_kind kind, ct_err *err) {
    bytes += device->guard;
    if (limit_bytes && device->spare_bytes)
        ct__device_empty_cache(device); // kept before there was a limit
    if (!ct__account_add(device->account, bytes, kind, err)) return NULL;
    const uint64_t refused = ct__failed_allocations();
    void *buffer = memory_take_spare(device, bytes);
    if (!buffer) {
        const uint64_t total = device->account->total, peak = device->account->peak;
        const size_t room = total < peak ? peak - total : 0;
        memory_trim_spares(device, room, room > SPARE_ALWAYS_BYTES ? room : SPARE_ALWAYS_BYTES);
        buffer = device->backend->alloc(device, bytes, err);
    }
    if (!buffer && device->spare_bytes) { // the system may need it
        ct__device_empty_cache(device);
        if (err) *err = (ct_err){0};
        buffer = device->backend->alloc(device, bytes, err);
        if (buffer) ct__set_failed_allocations(refused);
    }
    if (!buffer) ct__account_sub(device->account, bytes, kind);
    return buffer;
}

void ct__device_free(ct_device *device, void *buffer, size_t bytes, ct_memory_kind kind) {
    bytes += device->guard;
    // An arena is freed for a larger one, so its size is not needed again.
    const bool kept = kind == CT_MEMORY_VALUES && memory_keep_spare(device, buffer, bytes);
    if (!kept) device->backend->free(device, buffer);
    ct__account_sub(device->account, bytes, kind);
}
