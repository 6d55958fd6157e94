// Accounting of device memory by kind, and the memory limit.
#ifndef COTAN_BACKEND_MEMORY_H
#define COTAN_BACKEND_MEMORY_H

#include "backend/backend.h"

typedef enum {
    CT_MEMORY_VALUES, // variables, and values that were kept or read
    CT_MEMORY_ARENAS, // temporaries of plans
    CT_MEMORY_CONSTANTS,
    CT_MEMORY_WORKSPACES, // of kernels: packed operands
    CT_MEMORY_KINDS
} ct_memory_kind;

struct ct_account {
    _Atomic uint64_t now[CT_MEMORY_KINDS], total, peak; // bytes
};
// The account of the process, for all devices that allocate memory. The limit applies to this one;
// planned memory (a dry device has its own account) is never refused, so that it can be reported.
extern ct_account ct__account;

// Allocates device memory and counts it. NULL with the error set: there is none, or the limit is
// reached.
void *ct__device_alloc(ct_device *device, size_t bytes, ct_memory_kind kind, ct_err *err);
void ct__device_free(ct_device *device, void *buffer, size_t bytes, ct_memory_kind kind);
// Returns the buffers kept for reuse to the system.
void ct__device_empty_cache(ct_device *device);
// Counts memory that a backend allocates for itself. False with the error set: the limit is
// reached.
bool ct__account_add(ct_account *account, uint64_t bytes, ct_memory_kind kind, ct_err *err);
void ct__account_sub(ct_account *account, uint64_t bytes, ct_memory_kind kind);

// Returns the bytes that the account may still allocate; UINT64_MAX: unknown. Without a limit it
// reads the system's free memory, which takes time.
uint64_t ct__memory_left(const ct_account *account);

#endif
