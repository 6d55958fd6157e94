#define _GNU_SOURCE
#include "base/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/mem.h"

double ct__now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int ct__file_open(const char *path, size_t *n, ct_err *err) {
    // Without O_NONBLOCK, open would block on a named pipe before that can be refused.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    if (fd < 0) {
        ct__err_system(err, path, "open");
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
    int fd = ct__file_open(path, &size, err);
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
            ct__err_system(err, path, "read");
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
    int fd = ct__file_open(path, n, err);
    if (fd < 0) return false;
    void *p = *n ? mmap(NULL, *n, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    if (p == MAP_FAILED)
        ct__err_system(err, path, "map");
    else
        *bytes = p;
    close(fd);
    return p != MAP_FAILED;
}

void ct__file_unmap(const void *bytes, size_t n) {
    if (bytes) munmap((void *)(uintptr_t)bytes, n);
}

void ct__file_drop_pages(const void *bytes, size_t n) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)bytes,
                    is_v1 = (from + page - 1) & ~(page - 1), end = (from + n) & ~(page - 1);
    if (is_v1 < end) madvise((void *)is_v1, end - is_v1, MADV_DONTNEED);
}

bool ct__file_handle_open(const char *path, ct_file *file, ct_err *err) {
    size_t n = 0;
    *file = (ct_file){.path = path, .fd = ct__file_open(path, &n, err)};
    file->n = n;
    return file->fd >= 0;
}

bool ct__file_read_at(const ct_file *file, uint64_t at, void *to, size_t n, ct_err *err) {
    for (char *p = to; n;) {
        ssize_t r = pread(file->fd, p, n, (off_t)at);
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) return ct__err_system(err, file->path, "read");
        if (r == 0)
            return ct__err(err, CT_E_FILE, CT_NOWHERE, file->path,
                           "it ends at byte %" PRIu64 " or before, but had %" PRIu64
                           " bytes when it was opened",
                           at, file->n);
        p += r;
        at += (uint64_t)r;
        n -= (size_t)r;
    }
    return true;
}

void ct__file_handle_close(ct_file *file) {
    if (file->fd >= 0) close(file->fd);
    file->fd = -1;
}

bool ct__is_absent(const char *path) {
    struct stat st;
    return stat(path, &st) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

bool ct__could_be_folder(const char *path, ct_err *err) {
    struct stat st;
    if (stat(path, &st) != 0 || S_ISDIR(st.st_mode)) return true;
    return ct__err(err, CT_E_FILE, CT_NOWHERE, path, "exists and is not a folder");
}

bool ct__is_same_file(const char *a, const char *b) {
    struct stat s, t;
    return stat(a, &s) == 0 && stat(b, &t) == 0 && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

// Returns the mount of an existing folder; 0 if the system does not report it. Two mounts may be of
// one disk, e.g. a container's volume and its host's.
static uint64_t os_mount_id(const char *path) {
#ifdef STATX_MNT_ID
    struct statx st;
    if (statx(AT_FDCWD, path, 0, STATX_MNT_ID, &st) == 0 && st.stx_mask & STATX_MNT_ID)
        return st.stx_mnt_id;
#endif
    (void)path;
    return 0;
}

bool ct__could_rename_between(const char *a, const char *b) {
    struct stat s, t;
    if (stat(a, &s) != 0 || stat(b, &t) != 0) return true;
    return s.st_dev == t.st_dev && os_mount_id(a) == os_mount_id(b);
}

bool ct__make_dirs(const char *path, int mode, ct_err *err) {
    char part[4096];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof part)
        return ct__err(err, CT_E_FILE, CT_NOWHERE, path, "bad length of a path");
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] != '/' && part[i] != '\0') continue;
        char separator = part[i];
        part[i] = '\0';
        bool made = mkdir(part, (mode_t)mode) == 0;
        if (!made && errno != EEXIST) return ct__err_system(err, part, "create the folder");
        // Permissions other than the default 0777 apply regardless of the umask.
        if (made && mode != 0777 && chmod(part, (mode_t)mode) != 0)
            return ct__err_system(err, part, "set the permissions of");
        // Files saved in a folder survive a crash only if the folder's own name does.
        if (made && !ct__sync_entry(part, err)) return false;
        part[i] = separator;
    }
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return ct__err(err, CT_E_FILE, CT_NOWHERE, path, "exists and is not a folder");
    return true;
}

bool ct__for_each_entry(int above, const char *name, ct_visit_fn visit, void *user) {
    int fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0) close(fd);
        return false;
    }
    for (struct dirent *e; (e = readdir(dir));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) visit(fd, e->d_name, user);
    closedir(dir);
    return true;
}

static void os_remove_if_ours(int folder, const char *name, void *user) {
    const ct_name_fn *ours = user;
    if (!*ours || (*ours)(name)) unlinkat(folder, name, 0);
}

void ct__remove_files(int above, const char *name, ct_name_fn ours) {
    (void)ct__for_each_entry(above, name, os_remove_if_ours, &ours);
}

void ct__remove_folder(int above, const char *name, ct_name_fn ours) {
    ct__remove_files(above, name, ours);
    unlinkat(above, name, AT_REMOVEDIR);
}

size_t ct__resident_bytes(void) {
    FILE *f = fopen("/proc/self/statm", "re");
    unsigned long total = 0, resident = 0;
    if (!f) return 0;
    if (fscanf(f, "%lu %lu", &total, &resident) != 2) resident = 0;
    fclose(f);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

void ct__trim_heap(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

// Reads a number from a control group's file; SIZE_MAX if there is none or it is "max".
static size_t os_read_number(const char *folder, const char *name) {
    char path[4200];
    unsigned long long v = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    if (!f) return SIZE_MAX;
    bool ok = fscanf(f, "%llu", &v) == 1;
    fclose(f);
    return ok ? (size_t)v : SIZE_MAX;
}

// Reads the number after the word that begins a line; 0 if there is none.
static size_t os_read_field(const char *path, const char *word) {
    FILE *f = fopen(path, "re");
    char line[256];
    unsigned long long v = 0;
    size_t n = strlen(word);
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, word, n) == 0 && sscanf(line + n, " %llu", &v) == 1) break;
    if (f) fclose(f);
    return (size_t)v;
}

static size_t cgroup_memory_limit(const char *folder, bool is_v1) {
    return os_read_number(folder, is_v1 ? "memory.limit_in_bytes" : "memory.max");
}

// Returns the memory that one group leaves; its file cache is not counted as used, since it is
// freed on demand.
static size_t cgroup_memory_left(const char *folder, bool is_v1) {
    char stat_path[4200];
    size_t limit = cgroup_memory_limit(folder, is_v1);
    size_t used = os_read_number(folder, is_v1 ? "memory.usage_in_bytes" : "memory.current");
    if (limit == SIZE_MAX || used == SIZE_MAX) return SIZE_MAX;
    snprintf(stat_path, sizeof stat_path, "%s/memory.stat", folder);
    size_t files = os_read_field(stat_path, is_v1 ? "total_inactive_file " : "inactive_file ");
    used = files < used ? used - files : 0;
    return limit > used ? limit - used : 0;
}

// Returns the average number of cores that one group may use, rounded up; a quota of -1 means no
// limit.
static size_t cgroup_cores(const char *folder, bool is_v1) {
    char path[4200];
    long long quota = 0, period = 0;
    if (is_v1) {
        const size_t whole = os_read_number(folder, "cpu.cfs_quota_us"),
                     part = os_read_number(folder, "cpu.cfs_period_us");
        if (whole < LLONG_MAX && part < LLONG_MAX)
            quota = (long long)whole, period = (long long)part;
    } else {
        snprintf(path, sizeof path, "%s/cpu.max", folder);
        FILE *f = fopen(path, "re");
        if (f && fscanf(f, "%lld %lld", &quota, &period) != 2) quota = 0;
        if (f) fclose(f);
    }
    if (quota <= 0 || period <= 0) return SIZE_MAX;
    return (size_t)(quota / period + (quota % period != 0));
}

// Returns the minimum over the group and its parents, whose limits apply too.
typedef size_t (*group_fn)(const char *folder, bool is_v1);
static size_t cgroup_min_of_parents(const char *root, char *group, const char *v1_controller,
                                    group_fn of) {
    char folder[4096];
    size_t best = SIZE_MAX;
    for (;;) {
        snprintf(folder, sizeof folder, "%s%s%s%s", root, v1_controller ? "/" : "",
                 v1_controller ? v1_controller : "", group);
        size_t its = of(folder, v1_controller != NULL);
        if (its < best) best = its;
        char *slash = strrchr(group, '/');
        if (!slash || slash == group + strlen(group) - 1) {
            if (!*group) return best;
            *group = '\0';
        } else {
            *slash = '\0';
        }
    }
}

// True if `names`, separated by commas, has the controller: "cpuset,cpuacct" does not have cpu.
static bool cgroup_has_controller(const char *names, const char *controller) {
    const size_t n = strlen(controller);
    for (const char *at = names; at; at = strchr(at, ','), at += at != NULL)
        if (strncmp(at, controller, n) == 0 && (at[n] == ',' || !at[n])) return true;
    return false;
}

// The lines are "0::/group" for version 2 and "7:memory:/group" (perhaps with more names) for
// version 1.
static size_t cgroup_min(const char *root, const char *self, const char *controller, group_fn of) {
    FILE *f = fopen(self, "re");
    char line[4096];
    size_t best = SIZE_MAX;
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        bool is_v1 = names[1] != '\0';
        if (is_v1 && !cgroup_has_controller(names + 1, controller)) continue;
        size_t its = cgroup_min_of_parents(root, group, is_v1 ? controller : NULL, of);
        if (its < best) best = its;
    }
    if (f) fclose(f);
    return best;
}
size_t ct__cgroup_left(const char *root, const char *self) {
    return cgroup_min(root, self, "memory", cgroup_memory_left);
}
size_t ct__cgroup_limit(const char *root, const char *self) {
    return cgroup_min(root, self, "memory", cgroup_memory_limit);
}
size_t ct__cgroup_cores(const char *root, const char *self) {
    return cgroup_min(root, self, "cpu", cgroup_cores);
}

size_t ct__resident_peak_bytes(void) { return os_read_field("/proc/self/status", "VmHWM:") * 1024; }

size_t ct__available_bytes(void) {
    size_t best = os_read_field("/proc/meminfo", "MemAvailable:") * 1024;
    size_t left = ct__cgroup_left("/sys/fs/cgroup", "/proc/self/cgroup");
    return left != SIZE_MAX && (!best || left < best) ? left : best;
}

size_t ct__memory_bytes(void) {
    size_t all = os_read_field("/proc/meminfo", "MemTotal:") * 1024;
    size_t limit = ct__cgroup_limit("/sys/fs/cgroup", "/proc/self/cgroup");
    return limit != SIZE_MAX && (!all || limit < all) ? limit : all;
}

int ct__cores_allowed(void) {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    const size_t by_quota = ct__cgroup_cores("/sys/fs/cgroup", "/proc/self/cgroup");
    if (by_quota < (size_t)n) n = (int)by_quota;
    return n < 1 ? 1 : n;
}
