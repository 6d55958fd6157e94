#define _GNU_SOURCE
#include "base/atomic.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void ct__atomic_file_temporary_name(const char *path, char beside[CT_TEMPORARY_NAME]) {
    static _Atomic unsigned serial; // two threads may write the same file
    snprintf(beside, CT_TEMPORARY_NAME, "%s.%ld-%u.tmp", path, (long)getpid(),
             atomic_fetch_add(&serial, 1));
}

bool ct__atomic_file_begin(ct_atomic_file *file, const char *path, unsigned mode, ct_err *err) {
    file->fd = -1;
    if (strlen(path) >= sizeof file->path)
        return ct__err(err, CT_E_FILE, CT_NOWHERE, NULL, "the path has %zu bytes, %zu are allowed",
                       strlen(path), sizeof file->path - 1);
    strcpy(file->path, path);
    ct__atomic_file_temporary_name(path, file->beside);
    file->fd = open(file->beside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
                    mode ? mode & 0700 : 0666);
    if (file->fd < 0) return ct__err_system(err, file->path, "create");
    if (!mode || fchmod(file->fd, mode) == 0) return true;
    ct__err_system(err, file->path, "set the permissions of");
    ct__atomic_file_abandon(file);
    return false;
}

bool ct__atomic_file_is_leftover(const char *name, const char *of) {
    static const char digits[] = "0123456789";
    size_t n = strlen(of);
    if (strncmp(name, of, n) != 0 || name[n] != '.') return false;
    const char *process = name + n + 1, *serial = process + strspn(process, digits);
    if (serial == process || *serial++ != '-') return false;
    size_t length = strspn(serial, digits);
    return length && strcmp(serial + length, ".tmp") == 0;
}

bool ct__atomic_file_write(ct_atomic_file *file, const void *bytes, size_t n, ct_err *err) {
    for (const char *p = bytes; n;) {
        ssize_t w = write(file->fd, p, n);
        if (w < 0 && errno == EINTR) continue;
        if (w < 0) return ct__err_system(err, file->path, "write");
        p += w;
        n -= (size_t)w;
    }
    return true;
}

bool ct__atomic_file_patch(ct_atomic_file *file, uint64_t at, const void *bytes, size_t n,
                           ct_err *err) {
    for (const char *p = bytes; n;) {
        ssize_t w = pwrite(file->fd, p, n, (off_t)at);
        if (w < 0 && errno == EINTR) continue;
        if (w < 0) return ct__err_system(err, file->path, "write");
        p += w;
        at += (uint64_t)w;
        n -= (size_t)w;
    }
    return true;
}

// A file system that cannot sync folders (EINVAL) makes no promise that this breaks.
bool ct__sync_folder(const char *folder, ct_err *err) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL);
    if (!ok)
        ct__err(err, CT_E_FILE, CT_NOWHERE, folder, "cannot sync the folder: %s", strerror(errno));
    if (fd >= 0) close(fd);
    return ok;
}

bool ct__sync_entry(const char *path, ct_err *err) {
    char folder[sizeof((ct_atomic_file *)0)->path];
    strcpy(folder, path);
    char *slash = strrchr(folder, '/');
    if (!slash)
        strcpy(folder, ".");
    else
        slash[slash == folder] = '\0';
    return ct__sync_folder(folder, err);
}

static bool atomic_close_and_rename(ct_atomic_file *file, bool ok, ct_err *err) {
    ok = (close(file->fd) == 0 || !ok || ct__err_system(err, file->path, "close")) && ok;
    file->fd = -1;
    ok = ok && (rename(file->beside, file->path) == 0 ||
                ct__err_system(err, file->path, "rename into place"));
    if (!ok) unlink(file->beside);
    return ok;
}

bool ct__atomic_file_commit(ct_atomic_file *file, ct_err *err) {
    bool ok = fsync(file->fd) == 0 || ct__err_system(err, file->path, "sync");
    return atomic_close_and_rename(file, ok, err) && ct__sync_entry(file->path, err);
}

bool ct__atomic_file_rename(ct_atomic_file *file, ct_err *err) {
    return atomic_close_and_rename(file, true, err);
}

void ct__atomic_file_abandon(ct_atomic_file *file) {
    if (file->fd < 0) return;
    close(file->fd);
    unlink(file->beside);
    file->fd = -1;
}

static bool atomic_begin_whole(ct_atomic_file *file, const char *path, unsigned mode,
                               const void *bytes, size_t n, ct_err *err) {
    if (!ct__atomic_file_begin(file, path, mode, err)) return false;
    if (ct__atomic_file_write(file, bytes, n, err)) return true;
    ct__atomic_file_abandon(file);
    return false;
}

bool ct__file_write(const char *path, const void *bytes, size_t n, ct_err *err) {
    ct_atomic_file file;
    return atomic_begin_whole(&file, path, 0, bytes, n, err) && ct__atomic_file_commit(&file, err);
}

bool ct__file_replace(const char *path, const void *bytes, size_t n, unsigned mode, ct_err *err) {
    ct_atomic_file file;
    return atomic_begin_whole(&file, path, mode, bytes, n, err) &&
           ct__atomic_file_rename(&file, err);
}
