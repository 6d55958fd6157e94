// The operating system's files and clocks, with sentences for what goes wrong.
#ifndef COTAN_BASE_OS_H
#define COTAN_BASE_OS_H

#include "base/error.h"

double ct__now(void); // seconds of a monotonic clock

// Opens a regular file to read and gives its size; -1: an error.
int ct__file_open(const char *path, size_t *n, ct_err *err);
// The whole file in memory (freed with ct__free), with a '\0' behind its n bytes.
bool ct__file_read(const char *path, char **bytes, size_t *n, ct_err *err);
// A file mapped read-only; empty files give bytes = NULL, n = 0.
bool ct__file_map(const char *path, const void **bytes, size_t *n, ct_err *err);
void ct__file_unmap(const void *bytes, size_t n);
// Bytes of a file's mapping that are not soon asked for again: memory is not kept for them.
void ct__file_forget(const void *bytes, size_t n);
// A file that is read where and when its bytes are asked for: others may change it meanwhile.
typedef struct ct_file {
    const char *path; // the caller's
    int fd;
    uint64_t n; // its bytes when it was opened
} ct_file;
bool ct__file_hold(const char *path, ct_file *file, ct_err *err);
// The n bytes from byte `at` on, all or none; they lay in the file when it was opened.
bool ct__file_part(const ct_file *file, uint64_t at, void *to, size_t n, ct_err *err);
void ct__file_release(ct_file *file); // also one that was released
bool ct__is_absent(const char *path); // false too where nobody may look: to open it says why
bool ct__could_be_folder(const char *path, ct_err *err); // false: something else is there
// Are both there, and names of one file or folder, directly or through links?
bool ct__is_same_file(const char *a, const char *b);
// False: the folders are on two disks, or two mounts, between which nothing can be renamed. Where
// one is not there, true.
bool ct__could_rename_between(const char *a, const char *b);
// Like mkdir -p; the names of the folders made are forced to disk.
bool ct__make_dirs(const char *path, int mode, ct_err *err);
// Calls `visit` for all that is in the folder `name` of the folder `above` (AT_FDCWD: `name` is a
// path). False: it cannot be read; a link to a folder is none.
typedef void (*ct_visit_fn)(int folder, const char *name, void *user);
bool ct__each_inside(int above, const char *name, ct_visit_fn visit, void *user);
// Removes the files in such a folder whose names `ours` takes (NULL: all), as far as they let it;
// folders inside are not entered, links not followed. remove_folder: and itself, if nothing is left.
typedef bool (*ct_name_fn)(const char *name);
void ct__remove_files(int above, const char *name, ct_name_fn ours);
void ct__remove_folder(int above, const char *name, ct_name_fn ours);
size_t ct__resident_bytes(void); // of this process now; 0 where unknown
// At most so far; 0 where unknown.
size_t ct__resident_peak_bytes(void);
void ct__release_unused(void); // gives the system the memory back that was freed
// The smaller of what the process's control group leaves and what is available; 0: unknown.
size_t ct__available_bytes(void);
// The smaller of the machine's memory and what the process's control group may have; 0: unknown.
size_t ct__memory_bytes(void);
// What the control groups that the file `self` names, and those above them, leave of memory, or allow of memory and
// cores, below the folder `root`; SIZE_MAX: no limit.
size_t ct__cgroup_left(const char *root, const char *self);
size_t ct__cgroup_limit(const char *root, const char *self);
size_t ct__cgroup_cores(const char *root, const char *self);
int ct__cores_allowed(void); // by affinity and cgroup quota, at least 1

#endif
