// The operating system's files, memory and clocks, with messages for errors.
#ifndef COTAN_BASE_OS_H
#define COTAN_BASE_OS_H

#include "base/error.h"

double ct__now(void); // seconds of a monotonic clock

// Opens a regular file for reading and sets *n to its size; -1 on error.
int ct__file_open(const char *path, size_t *n, ct_err *err);
// Reads the whole file into memory (freed with ct__free), with a '\0' after its n bytes.
bool ct__file_read(const char *path, char **bytes, size_t *n, ct_err *err);
// Maps a file read-only; an empty file gives bytes = NULL, n = 0.
bool ct__file_map(const char *path, const void **bytes, size_t *n, ct_err *err);
void ct__file_unmap(const void *bytes, size_t n);
// Drops the pages of a part of a file's mapping that is not needed soon; a later access reads the
// file again.
void ct__file_drop_pages(const void *bytes, size_t n);
// An open file whose parts are read on demand: others may change it meanwhile.
typedef struct ct_file {
    const char *path; // owned by the caller
    int fd;
    uint64_t n; // size in bytes when it was opened
} ct_file;
bool ct__file_handle_open(const char *path, ct_file *file, ct_err *err);
// Reads n bytes from byte `at` on, all or none; the range must have been in the file when it was
// opened.
bool ct__file_read_at(const ct_file *file, uint64_t at, void *to, size_t n, ct_err *err);
void ct__file_handle_close(ct_file *file); // may be called twice
bool ct__is_absent(const char *path);      // false also if access is denied: opening it reports why
bool ct__could_be_folder(const char *path, ct_err *err); // false: something else exists there
// True if both exist and name one file or folder, directly or through links.
bool ct__is_same_file(const char *a, const char *b);
// False if the folders are on two disks or mounts, between which files cannot be renamed. True if
// one does not exist.
bool ct__could_rename_between(const char *a, const char *b);
// Like mkdir -p; also syncs the names of created folders to disk.
bool ct__make_dirs(const char *path, int mode, ct_err *err);
// Calls `visit` for each entry of the folder `name` in the folder `above` (AT_FDCWD: `name` is a
// path). False if it cannot be read; links to folders are not followed.
typedef void (*ct_visit_fn)(int folder, const char *name, void *user);
bool ct__for_each_entry(int above, const char *name, ct_visit_fn visit, void *user);
// Removes the files in such a folder for which `ours` is true (NULL: all), ignoring failures; does
// not enter subfolders or follow links. ct__remove_folder also removes the folder if it is empty
// then.
typedef bool (*ct_name_fn)(const char *name);
void ct__remove_files(int above, const char *name, ct_name_fn ours);
void ct__remove_folder(int above, const char *name, ct_name_fn ours);
size_t ct__resident_bytes(void); // of this process; 0: unknown
// Peak so far; 0: unknown.
size_t ct__resident_peak_bytes(void);
void ct__trim_heap(void); // returns freed memory to the system
// The memory available to the process, the smaller of the system's and its control group's; 0:
// unknown.
size_t ct__available_bytes(void);
// The memory of the machine or the control group's limit, if smaller; 0: unknown.
size_t ct__memory_bytes(void);
// What the control groups listed in the file `self`, and their parents, under the folder `root`,
// leave of memory, or allow of memory and cores; SIZE_MAX: no limit.
size_t ct__cgroup_left(const char *root, const char *self);
size_t ct__cgroup_limit(const char *root, const char *self);
size_t ct__cgroup_cores(const char *root, const char *self);
int ct__cores_allowed(void); // by affinity and cgroup quota, at least 1

#endif
