// A device that makes plans for another one and runs nothing: memory is counted and not allocated,
// kernels are rendered and not compiled. There are no values: reading one is an error. It reports
// what a program will need before it runs.
#include "backend/memory.h"

static bool dry_open(ct_device *device, ct_err *err) {
    device->account = device->state = ct__calloc(1, sizeof(ct_account));
    return device->state || ct__err_memory(err, CT_NOWHERE, "dry", sizeof(ct_account));
}
static void dry_close(ct_device *device) { ct__free(device->state); }

// No access to this address succeeds; two buffers need not differ.
static void *dry_alloc(ct_device *device, size_t bytes, ct_err *err) {
    return (void)device, (void)bytes, (void)err, (void *)(uintptr_t)64;
}
static void dry_free(ct_device *device, void *buffer) { (void)device, (void)buffer; }
static bool dry_copy_in(ct_device *device, ct_operand to, const void *host, size_t n, ct_err *err) {
    return (void)device, (void)to, (void)host, (void)n, (void)err, true;
}
static bool dry_copy_out(ct_device *device, ct_operand from, void *host, size_t n, ct_err *err) {
    (void)device, (void)from, (void)host, (void)n;
    return ct__err(err, CT_E_DEVICE, CT_NOWHERE, "dry",
                   "this device plans and runs nothing: there are no values to read");
}
// Counts the workspace that launches need; the largest one serves all.
static bool dry_submit(ct_device *device, const ct_command *commands, size_t n, ct_err *err) {
    const ct_device *inner = device->inner;
    size_t most = 0;
    for (size_t i = 0; i < n && inner->backend->workspace; i++) {
        if (commands[i].kind != CT_COMMAND_KERNEL) continue;
        size_t bytes = inner->backend->workspace(inner, &commands[i]);
        if (bytes > most) most = bytes;
    }
    uint64_t now = device->account->now[CT_MEMORY_WORKSPACES];
    return most <= now || ct__account_add(device->account, most - now, CT_MEMORY_WORKSPACES, err);
}

static bool dry_build(ct_device *device, ct_kernel *const *kernels, size_t n, ct_err *err) {
    return (void)device, (void)kernels, (void)n, (void)err, true;
}

const ct_backend ct__backend_dry = {
    .name = "dry",
    .open = dry_open,
    .close = dry_close,
    .alloc = dry_alloc,
    .free = dry_free,
    .copy_in = dry_copy_in,
    .copy_out = dry_copy_out,
    .submit = dry_submit,
    .build = dry_build,
};
