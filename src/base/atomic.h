// Atomic file writes: a file is written under a temporary name in the same folder and renamed, so
// that readers see the old file or the new one, never a part.
#ifndef COTAN_BASE_ATOMIC_H
#define COTAN_BASE_ATOMIC_H

#include "base/error.h"

enum { CT_TEMPORARY_NAME = 4096 + 64 }; // bytes of a path and the suffix of its temporary name

typedef struct ct_atomic_file {
    int fd; // < 0: not open
    char path[4096], beside[CT_TEMPORARY_NAME];
} ct_atomic_file;

// mode: the file's permissions, regardless of the umask; 0: 0666 and the umask.
bool ct__atomic_file_begin(ct_atomic_file *file, const char *path, unsigned mode, ct_err *err);
bool ct__atomic_file_write(ct_atomic_file *file, const void *bytes, size_t n, ct_err *err);
// Overwrites n bytes that were written before, from byte `at` of the file on.
bool ct__atomic_file_patch(ct_atomic_file *file, uint64_t at, const void *bytes, size_t n,
                           ct_err *err);
// Syncs the file to disk, renames it, and syncs the folder: after it returned true, the file
// survives a loss of power.
bool ct__atomic_file_commit(ct_atomic_file *file, ct_err *err);
// Only renames it: for files that can be made again and are checked when read.
bool ct__atomic_file_rename(ct_atomic_file *file, ct_err *err);
// Removes the temporary file; does nothing after a commit or rename.
void ct__atomic_file_abandon(ct_atomic_file *file);

// Makes a unique temporary name for `path` (of fewer than 4096 bytes), in the same folder, to be
// renamed to it.
void ct__atomic_file_temporary_name(const char *path, char beside[CT_TEMPORARY_NAME]);
// True if `name` is a temporary file of `of`, left by a process that died. Both are names in a
// folder, not paths.
bool ct__atomic_file_is_leftover(const char *name, const char *of);

// Syncs the names of a folder's files to disk.
bool ct__sync_folder(const char *folder, ct_err *err);
// Syncs the name of `path`, of fewer than 4096 bytes, in its folder.
bool ct__sync_entry(const char *path, ct_err *err);

// Write the whole file in one call: committed; or only renamed, with these permissions.
bool ct__file_write(const char *path, const void *bytes, size_t n, ct_err *err);
bool ct__file_replace(const char *path, const void *bytes, size_t n, unsigned mode, ct_err *err);

#endif
