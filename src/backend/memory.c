#include "backend/memory.h"

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
    return true;
}

void ct__account_sub(ct_account *account, uint64_t bytes, ct_memory_kind kind) {
    atomic_fetch_sub(&account->now[kind], bytes);
    atomic_fetch_sub(&account->total, bytes);
}

void *ct__device_alloc(ct_device *device, size_t bytes, ct_memory_kind kind, ct_err *err) {
    bytes += device->guard;
    if (!ct__account_add(device->account, bytes, kind, err)) return NULL;
    void *buffer = device->backend->alloc(device, bytes, err);
    if (!buffer) ct__account_sub(device->account, bytes, kind);
    return buffer;
}

void ct__device_free(ct_device *device, void *buffer, size_t bytes, ct_memory_kind kind) {
    device->backend->free(device, buffer);
    ct__account_sub(device->account, bytes + device->guard, kind);
}
