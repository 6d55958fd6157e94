#define _GNU_SOURCE
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

double ct__now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool file_err(ct_err *err, const char *what, const char *path) {
    return ct__err(err, CT_E_FILE, CT_NOWHERE, path, "cannot %s: %s", what, strerror(errno));
}

// Opens a regular file and gives its size.
static int open_sized(const char *path, size_t *n, ct_err *err) {
    // Without O_NONBLOCK a named pipe would be waited for before it can be refused.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    if (fd < 0) {
        file_err(err, "open", path);
        return -1;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        ct__err(err, CT_E_FILE, CT_NOWHERE, path, "not a regular file");
        close(fd);
        return -1;
    }
    *n = (size_t)st.st_size;
    return fd;
}

bool ct__file_read(const char *path, char **bytes, size_t *n, ct_err *err) {
    size_t size = 0, have = 0;
    int fd = open_sized(path, &size, err);
    if (fd < 0) return false;
    char *buffer = size < SIZE_MAX ? ct__malloc(size + 1) : NULL;
    if (!buffer) {
        close(fd);
        return ct__err_memory(err, CT_NOWHERE, path, size);
    }
    while (have < size) {
        ssize_t r = read(fd, buffer + have, size - have);
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) {
            file_err(err, "read", path);
            ct__free(buffer);
            close(fd);
            return false;
        }
        if (r == 0) break;
        have += (size_t)r;
    }
    close(fd);
    buffer[have] = '\0';
    *bytes = buffer;
    *n = have;
    return true;
}

bool ct__file_map(const char *path, const void **bytes, size_t *n, ct_err *err) {
    *bytes = NULL;
    int fd = open_sized(path, n, err);
    if (fd < 0) return false;
    void *p = *n ? mmap(NULL, *n, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    close(fd);
    if (p == MAP_FAILED) return file_err(err, "map", path);
    *bytes = p;
    return true;
}

void ct__file_unmap(const void *bytes, size_t n) {
    if (bytes) munmap((void *)(uintptr_t)bytes, n);
}

bool ct__make_dirs(const char *path, int mode, ct_err *err) {
    char part[4096];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof part)
        return ct__err(err, CT_E_FILE, CT_NOWHERE, path, "bad length of a path");
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] != '/' && part[i] != '\0') continue;
        char kept = part[i];
        part[i] = '\0';
        bool made = mkdir(part, (mode_t)mode) == 0;
        if (!made && errno != EEXIST) return file_err(err, "create the folder", part);
        // Modes narrower than what the umask is for hold whatever it says.
        if (made && mode != 0777 && chmod(part, (mode_t)mode) != 0)
            return file_err(err, "set the permissions of", part);
        part[i] = kept;
    }
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return ct__err(err, CT_E_FILE, CT_NOWHERE, path, "exists and is not a folder");
    return true;
}

size_t ct__resident_bytes(void) {
    FILE *f = fopen("/proc/self/statm", "re");
    unsigned long total = 0, resident = 0;
    if (!f) return 0;
    if (fscanf(f, "%lu %lu", &total, &resident) != 2) resident = 0;
    fclose(f);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

// One number from a cgroup file; SIZE_MAX where there is none or it says "max".
static size_t cgroup_number(const char *path) {
    FILE *f = fopen(path, "re");
    unsigned long long v = 0;
    if (!f) return SIZE_MAX;
    bool ok = fscanf(f, "%llu", &v) == 1;
    fclose(f);
    return ok ? (size_t)v : SIZE_MAX;
}

size_t ct__available_bytes(void) {
    size_t best = 0;
    FILE *f = fopen("/proc/meminfo", "re");
    char line[256];
    unsigned long long kb;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu kB", &kb) == 1) best = (size_t)kb * 1024;
    if (f) fclose(f);
    size_t limit = cgroup_number("/sys/fs/cgroup/memory.max");
    size_t used = cgroup_number("/sys/fs/cgroup/memory.current");
    if (limit != SIZE_MAX && used != SIZE_MAX) {
        size_t left = limit > used ? limit - used : 0;
        if (!best || left < best) best = left;
    }
    return best;
}

int ct__cores_allowed(void) {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    long long quota, period;
    if (f && fscanf(f, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0) {
        int by_quota = (int)((quota + period - 1) / period);
        if (by_quota < n) n = by_quota;
    }
    if (f) fclose(f);
    return n < 1 ? 1 : n;
}
