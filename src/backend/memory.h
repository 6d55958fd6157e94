// What devices hold, counted by what it is for, and the limit on it.
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
// Of the process: all devices that hold memory. The limit is on this one; what is only planned (a
// dry device has its own account) is never refused, so that it can be said.
extern ct_account ct__account;

// Memory of a device, counted. NULL, with a sentence: there is none, or the limit is reached.
void *ct__device_alloc(ct_device *device, size_t bytes, ct_memory_kind kind, ct_err *err);
void ct__device_free(ct_device *device, void *buffer, size_t bytes, ct_memory_kind kind);
// Buffers that stayed for reuse go back to the system.
void ct__device_spares_free(ct_device *device);
// Counts memory that a backend takes for itself. False, with a sentence: the limit is reached.
bool ct__account_add(ct_account *account, uint64_t bytes, ct_memory_kind kind, ct_err *err);
void ct__account_sub(ct_account *account, uint64_t bytes, ct_memory_kind kind);

// What ct_set_memory_limit was told; 0: nothing.
uint64_t ct__memory_limit_asked(void);
// Bytes that the account may still take; UINT64_MAX: unknown. Without a limit that was asked for it
// looks at what the system has left, which takes time.
uint64_t ct__memory_left(const ct_account *account);

#endif
