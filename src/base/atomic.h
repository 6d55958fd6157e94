// A file that appears whole or not at all: written beside its place and renamed into it, so that
// readers see the old file or the new one, never a part.
#ifndef COTAN_BASE_ATOMIC_H
#define COTAN_BASE_ATOMIC_H

#include "base/error.h"

enum { CT_BESIDE = 4096 + 64 }; // bytes of a path and what makes it a name beside it

typedef struct ct_atomic {
    int fd; // < 0: nothing open
    char path[4096], beside[CT_BESIDE];
} ct_atomic;

// mode: the file's permissions whatever the umask is; 0: 0666 and the umask.
bool ct__atomic_begin(ct_atomic *file, const char *path, unsigned mode, ct_err *err);
bool ct__atomic_put(ct_atomic *file, const void *bytes, size_t n, ct_err *err);
// Writes over n bytes that were put, from byte `at` of the file on.
bool ct__atomic_patch(ct_atomic *file, uint64_t at, const void *bytes, size_t n, ct_err *err);
// Forced to disk, renamed, and the folder forced to disk as well: once this returned true, the file
// survives a loss of power.
bool ct__atomic_commit(ct_atomic *file, ct_err *err);
// Renamed only: for what can be made again and is checked when it is read.
bool ct__atomic_place(ct_atomic *file, ct_err *err);
void ct__atomic_abandon(ct_atomic *file); // leaves no trace; nothing behind a commit or place

// A name beside `path`, of fewer than 4096 bytes, that only this call gives: for what gets that
// place by being renamed.
void ct__atomic_beside(const char *path, char beside[CT_BESIDE]);
// Is `name` what a write of the file `of` leaves beside it where its process dies? Both are names
// in a folder, no paths.
bool ct__atomic_is_leftover(const char *name, const char *of);

// Forces the names of a folder's files to disk.
bool ct__sync_folder(const char *folder, ct_err *err);
// The name of `path`, of fewer than 4096 bytes, in the folder that it stands in.
bool ct__sync_entry(const char *path, ct_err *err);

// The whole file in one call: committed, or placed with these permissions.
bool ct__file_write(const char *path, const void *bytes, size_t n, ct_err *err);
bool ct__file_place(const char *path, const void *bytes, size_t n, unsigned mode, ct_err *err);

#endif
