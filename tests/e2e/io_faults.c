// Preloaded into the program by test_resume.py: the k-th call that changes files below FAULT_DIR
// kills the process (FAULT=kill; a write does half its work first), or it and all later ones find
// the disk full (FAULT=full), or it alone fails with EIO (FAULT=once). FAULT_COUNT names a file
// that gets the number of calls when the process ends. FAULT_LINKS=none refuses hard links.
// FAULT_LOG names a file, not below FAULT_DIR, that gets a line a call that a full disk would refuse: its
// number, its name and its paths, separated by tabs, as it is made.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long calls;

static int below(const char *path) {
    const char *dir = getenv("FAULT_DIR");
    return dir && path && strncmp(path, dir, strlen(dir)) == 0;
}

// The path of an open file; "": it has none.
static const char *path_of(int fd) {
    static __thread char path[4096];
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(name, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = '\0';
    return path;
}

static int fd_below(int fd) { return below(path_of(fd)); }

static void note(const char *call, const char *path, const char *to) {
    const char *log = getenv("FAULT_LOG");
    FILE *f = log ? fopen(log, "a") : NULL;
    if (!f) return;
    fprintf(f, to ? "%ld\t%s\t%s\t%s\n" : "%ld\t%s\t%s\n", calls, call, path, to);
    fclose(f);
}

enum { GO_ON, DIE, FAIL };
static int reason = ENOSPC;
static int verdict(void) {
    const char *at = getenv("FAULT_AT"), *what = getenv("FAULT");
    long k = at ? atol(at) : 0;
    calls++;
    if (!k || !what || calls < k) return GO_ON;
    if (strcmp(what, "once") == 0) {
        reason = EIO;
        return calls == k ? FAIL : GO_ON;
    }
    return strcmp(what, "kill") == 0 ? DIE : FAIL;
}

static int refuse(void) {
    errno = reason;
    return -1;
}

__attribute__((destructor)) static void tell(void) {
    const char *path = getenv("FAULT_COUNT");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f) return;
    fprintf(f, "%ld\n", calls);
    fclose(f);
}

#define REAL(name) __typeof__(name) *real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *bytes, size_t n) {
    REAL(write);
    int mine = fd > 2 && fd_below(fd), v = mine ? verdict() : GO_ON;
    if (mine) note("write", path_of(fd), NULL);
    if (v == GO_ON) return real(fd, bytes, n);
    if (n > 1 && real(fd, bytes, n / 2) < 0) return -1;
    if (v == DIE) raise(SIGKILL);
    return refuse();
}

// What only takes a name or a descriptor.
#define CALL(name, params, args, mine, path, to)                                                   \
    int name params {                                                                              \
        REAL(name);                                                                                \
        int v = (mine) ? verdict() : GO_ON;                                                        \
        if (mine) note(#name, path, to);                                                           \
        if (v == DIE) raise(SIGKILL);                                                              \
        return v == FAIL ? refuse() : real args;                                                   \
    }
CALL(fsync, (int fd), (fd), fd_below(fd), path_of(fd), NULL)
CALL(rename, (const char *from, const char *to), (from, to), below(to), from, to)
CALL(mkdir, (const char *path, unsigned mode), (path, mode), below(path), path, NULL)

// Any disk lets one shorten and remove; a process may die there.
#define FREEING(name, params, args, mine)                                                          \
    int name params {                                                                              \
        REAL(name);                                                                                \
        if ((mine) && verdict() == DIE) raise(SIGKILL);                                            \
        return real args;                                                                          \
    }
FREEING(ftruncate, (int fd, off_t n), (fd, n), fd_below(fd))
FREEING(unlink, (const char *path), (path), below(path))
FREEING(unlinkat, (int fd, const char *path, int flags), (fd, path, flags),
        (fd == AT_FDCWD ? below(path) : fd_below(fd)))
FREEING(rmdir, (const char *path), (path), below(path))

int link(const char *from, const char *to) {
    REAL(link);
    const char *links = getenv("FAULT_LINKS");
    int v = below(to) ? verdict() : GO_ON;
    if (below(to)) note("link", from, to);
    if (v == DIE) raise(SIGKILL);
    if (links && strcmp(links, "none") == 0) {
        errno = EPERM;
        return -1;
    }
    return v == FAIL ? refuse() : real(from, to);
}
