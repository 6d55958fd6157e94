// A file that appears whole or not at all: written beside its place, forced to disk, renamed, and
// the folder forced to disk as well, so that it survives a loss of power once commit returned.
#ifndef COTAN_IO_ATOMIC_H
#define COTAN_IO_ATOMIC_H

#include "base/error.h"

typedef struct ct_atomic {
    int fd; // < 0: nothing open
    char path[4096], beside[4096 + 64];
} ct_atomic;

bool ct__atomic_begin(ct_atomic *file, const char *path, ct_err *err);
bool ct__atomic_put(ct_atomic *file, const void *bytes, size_t n, ct_err *err);
bool ct__atomic_commit(ct_atomic *file, ct_err *err);
void ct__atomic_abandon(ct_atomic *file); // leaves no trace; nothing after a commit

#endif
