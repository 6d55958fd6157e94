#include "backend/memory.h"
#include "base/spans.h"

#include "base/os.h"
#include "base/text.h"

ct_account ct__account;

static _Atomic uint64_t asked;

void ct_set_memory_limit(uint64_t bytes) { asked = bytes; }
uint64_t ct__memory_limit_asked(void) { return asked; }

uint64_t ct__memory_left(const ct_account *account) {
    if (account != &ct__account) return UINT64_MAX;
    uint64_t limit = asked, total = account->total;
    if (limit) return total < limit ? limit - total : 0;
    size_t available = ct__available_bytes();
    return available ? available : UINT64_MAX;
}

bool ct__account_add(ct_account *account, uint64_t bytes, ct_memory_kind kind, ct_err *err) {
    uint64_t limit = account == &ct__account ? asked : 0;
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
    if (ct__watched() && account == &ct__account) ct__span_memory_now(total);
    return true;
}

void ct__account_sub(ct_account *account, uint64_t bytes, ct_memory_kind kind) {
    atomic_fetch_sub(&account->now[kind], bytes);
    const uint64_t total = atomic_fetch_sub(&account->total, bytes) - bytes;
    if (ct__watched() && account == &ct__account) ct__span_memory_now(total);
}

// Values that a program frees it often asks for again at once: the results of the step before. Given back to
// the system, each page of them would be faulted in anew (a sum of two tensors of 4 MB took ten times
// as long; a product of 256 x 768 x 2304, its result 7 MB, a seventh longer). Some of them stay with the
// device; they count as free, and where a limit was set none stay. More than a few of them, of some
// bytes, stay only as long as the process does not grow by them past its peak.
enum { SPARE_LEAST = 128 << 10, SPARE_SOME = 128 << 20, SPARE_MOST = 512 << 20, FEW_SPARES = 8 };

static bool spares(const ct_device *device, size_t bytes) {
    return device->backend->spares && !device->guard && bytes >= SPARE_LEAST;
}

static void *take_spare(ct_device *device, size_t bytes) {
    void *buffer = NULL;
    if (!spares(device, bytes)) return NULL;
    pthread_mutex_lock(&device->spare_lock);
    for (int i = 1; i <= CT_SPARES && !buffer; i++) { // the last one freed first: it lies nearest
        struct ct_spare *spare = &device->spare[(device->next_spare - i + CT_SPARES) % CT_SPARES];
        if (spare->bytes != bytes) continue;
        buffer = spare->buffer;
        device->spare_bytes -= bytes;
        *spare = (struct ct_spare){0};
    }
    pthread_mutex_unlock(&device->spare_lock);
    return buffer;
}

// The buffer stays in place of those that lay there longest. False: it does not stay.
static bool keep_spare(ct_device *device, void *buffer, size_t bytes) {
    struct ct_spare gone[CT_SPARES];
    int n = 0;
    if (!spares(device, bytes) || bytes > SPARE_MOST || asked) return false;
    pthread_mutex_lock(&device->spare_lock);
    do { // the oldest place is taken, and as many after it as there is room wanting
        struct ct_spare *oldest = &device->spare[(device->next_spare + n) % CT_SPARES];
        device->spare_bytes -= oldest->bytes;
        gone[n++] = *oldest;
        *oldest = (struct ct_spare){0};
    } while (n < CT_SPARES && device->spare_bytes + bytes > SPARE_MOST);
    device->spare[device->next_spare] = (struct ct_spare){buffer, bytes};
    device->next_spare = (device->next_spare + 1) % CT_SPARES;
    device->spare_bytes += bytes;
    pthread_mutex_unlock(&device->spare_lock);
    for (int i = 0; i < n; i++)
        if (gone[i].buffer) device->backend->free(device, gone[i].buffer);
    return true;
}

// The oldest go, until there are at most so many bytes; of the last few, until there are at most `some`.
static void leave_spares(ct_device *device, size_t bytes, size_t some) {
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

void ct__device_spares_free(ct_device *device) { leave_spares(device, 0, 0); }

void *ct__device_alloc(ct_device *device, size_t bytes, ct_memory_kind kind, ct_err *err) {
    bytes += device->guard;
    if (asked && device->spare_bytes) ct__device_spares_free(device); // of before there was a limit
    if (!ct__account_add(device->account, bytes, kind, err)) return NULL;
    const uint64_t refused = ct__refused();
    void *buffer = take_spare(device, bytes);
    if (!buffer) {
        const uint64_t total = device->account->total, peak = device->account->peak;
        const size_t room = total < peak ? peak - total : 0;
        leave_spares(device, room, room > SPARE_SOME ? room : SPARE_SOME);
        buffer = device->backend->alloc(device, bytes, err);
    }
    if (!buffer && device->spare_bytes) { // which the system may want back
        ct__device_spares_free(device);
        if (err) *err = (ct_err){0};
        buffer = device->backend->alloc(device, bytes, err);
        if (buffer) ct__refused_set(refused);
    }
    if (!buffer) ct__account_sub(device->account, bytes, kind);
    return buffer;
}

void ct__device_free(ct_device *device, void *buffer, size_t bytes, ct_memory_kind kind) {
    bytes += device->guard;
    // An arena is given back for a larger one, so that nobody asks for one of its size again.
    const bool kept = kind == CT_MEMORY_VALUES && keep_spare(device, buffer, bytes);
    if (!kept) device->backend->free(device, buffer);
    ct__account_sub(device->account, bytes, kind);
}
