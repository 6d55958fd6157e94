#define _GNU_SOURCE
#include "backend/cpu/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/library.h"
#include "base/mem.h"
#include "base/os.h"

typedef struct {
    char magic[8];
    uint64_t length; // of all before the trailer
    ct_hash hash;    // of the same bytes
} trailer;

static const char magic[8] = {'c', 'o', 't', 'a', 'n', 's', 'o', '1'};

// --------------------------------------------------------------------------------------- folders

// Disables the cache and sets the reason, which begins with the folder's path.
static void cache_disable_because(ct_cache *cache, const char *folder, const char *why) {
    snprintf(cache->why, sizeof cache->why, "%.300s%s", folder, why);
    cache->folder[0] = '\0';
}

// Returns what prevents the use of the folder; NULL: nothing.
static const char *cache_why_unusable(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) return " is no folder";
    if (st.st_uid != geteuid()) return " belongs to another user";
    if (st.st_mode & (S_IWGRP | S_IWOTH)) return " may be written by others";
    return access(path, X_OK) == 0 ? NULL : " may not be entered";
}

static const char *cache_absolute_env(const char *name) {
    const char *value = getenv(name);
    return value && value[0] == '/' ? value : NULL;
}

// Chooses the cache's path from the environment; "": there is no cache. HOME may name a folder that
// does not exist, as for system accounts: a home is not created.
static bool cache_choose_folder(ct_cache *cache, ct_err *err) {
    const char *own = getenv("COTAN_CACHE_DIR"), *xdg = cache_absolute_env("XDG_CACHE_HOME");
    const char *home = cache_absolute_env("HOME");
    char *path = cache->folder;
    size_t cap = sizeof cache->folder;
    struct stat st;
    int n = 0;
    cache_disable_because(cache, "", "a setuid program has none");
    cache->forbidden = getauxval(AT_SECURE);
    if (cache->forbidden) return true;
    if (own && *own && *own != '/') // a relative path would name another folder after each chdir
        return ct__err(err, CT_E_USAGE, CT_NOWHERE, "cpu",
                       "COTAN_CACHE_DIR is \"%.200s\", not an absolute path", own);
    if (own && *own)
        n = snprintf(path, cap, "%s", own);
    else if (xdg)
        n = snprintf(path, cap, "%s/cotan", xdg);
    else if (!home)
        cache_disable_because(cache, "",
                              getenv("HOME") ? "HOME is not an absolute path" : "HOME is not set");
    else if (stat(home, &st) != 0 || !S_ISDIR(st.st_mode))
        cache_disable_because(cache, home, ", which HOME names, is no folder");
    else
        n = snprintf(path, cap, "%s/.cache/cotan", home);
    if (n < 0 || (size_t)n >= cap)
        cache_disable_because(cache, "", "the path of its folder is too long");
    return true;
}

bool ct__cache_check(ct_err *err) {
    ct_cache ignored;
    return cache_choose_folder(&ignored, err);
}

// Chooses the temporary folder that is tried before /tmp.
static void cache_choose_temporary(ct_cache *cache) {
    const char *tmp = getauxval(AT_SECURE) ? NULL : cache_absolute_env("TMPDIR");
    cache->locks = NULL;
    cache->temporary[0] = '\0';
    if (tmp && strlen(tmp) < sizeof cache->temporary)
        memcpy(cache->temporary, tmp, strlen(tmp) + 1);
}

bool ct__cache_open(ct_cache *cache, ct_err *err) {
    ct_err made = {0};
    cache_choose_temporary(cache);
    if (!cache_choose_folder(cache, err)) return false;
    if (!cache->folder[0]) return true;
    const char *why = NULL;
    if (!ct__make_dirs(cache->folder, 0700, &made))
        cache_disable_because(cache, made.text, "");
    else if ((why = cache_why_unusable(cache->folder)))
        cache_disable_because(cache, cache->folder, why);
    return true;
}

void ct__cache_disable(ct_cache *cache) {
    cache->folder[0] = cache->why[0] = '\0';
    cache->forbidden = false;
    cache_choose_temporary(cache);
}

// Lists the folders for temporary files: $TMPDIR where it is usable, and /tmp.
static int cache_temporary_folders(const ct_cache *cache, const char *folders[2]) {
    int n = 0;
    if (cache->temporary[0]) folders[n++] = cache->temporary;
    folders[n++] = "/tmp";
    return n;
}

// Returns 0 if the folder's file system and its user's quota have space for so many bytes, else
// ENOSPC or EDQUOT.
static int cache_check_space(const char *folder, uint64_t bytes) {
    char path[4200];
    struct rlimit limit;
    snprintf(path, sizeof path, "%s/g0.room", folder);
    // Beyond RLIMIT_FSIZE a write kills the process instead of failing.
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) bytes = limit.rlim_cur;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int failed = fd < 0 ? errno : bytes ? posix_fallocate(fd, 0, (off_t)bytes) : 0;
    if (fd >= 0) close(fd);
    unlink(path);
    return failed == ENOSPC || failed == EDQUOT ? failed : 0;
}

const char *ct__cache_make_work_folder(const ct_cache *cache, uint64_t room, char folder[4096]) {
    const char *folders[3] = {cache->folder};
    int n = 1 + cache_temporary_folders(cache, folders + 1), failed = 0;
    for (int i = 0; i < n; i++) {
        if (!*folders[i]) continue;
        int w = snprintf(folder, 4096, "%s/%sbuild-XXXXXX", folders[i], i ? "cotan-" : "");
        if (w < 0 || w >= 4096) continue;
        if (!mkdtemp(folder)) {
            failed = errno;
            continue;
        }
        failed = cache_check_space(folder, room);
        if (!failed) return NULL;
        ct__cache_remove_work_folder(folder);
    }
    return strerror(failed);
}

void ct__cache_remove_work_folder(const char *folder) { ct__remove_folder(AT_FDCWD, folder, NULL); }

// --------------------------------------------------------------------------------------- entries

bool ct__cache_seal(const char *path, ct_err *err) {
    const void *bytes = NULL;
    size_t n = 0;
    if (!ct__file_map(path, &bytes, &n, err)) return false;
    trailer t = {.length = n, .hash = ct__hash_bytes(bytes, n, (ct_hash){0, 0})};
    memcpy(t.magic, magic, sizeof magic);
    ct__file_unmap(bytes, n);
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    // The linker's file mode follows the umask: with 002 the group might write, and the file would
    // be refused.
    bool ok = fd >= 0 && fchmod(fd, 0700) == 0 && write(fd, &t, sizeof t) == (ssize_t)sizeof t;
    if (fd >= 0) ok = close(fd) == 0 && ok;
    return ok ||
           ct__err(err, CT_E_FILE, CT_NOWHERE, path, "cannot be written: %s", strerror(errno));
}

static bool cache_entry_path(const ct_cache *cache, ct_hash key, char path[4096]) {
    char hex[33];
    ct__hash_hex(key, hex);
    int n = snprintf(path, 4096, "%s/%s.so", cache->folder, hex);
    return n > 0 && n < 4096;
}

void ct__cache_add(const ct_cache *cache, const char *path, ct_hash key) {
    char entry[4096], temporary[4160];
    if (!cache->folder[0] || !cache_entry_path(cache, key, entry)) return;
    // A link is renamed into place, since this process could not load an existing entry. Where
    // links are impossible, the file is copied with the same permissions, since a file that others
    // may write is refused.
    snprintf(temporary, sizeof temporary, "%s.%ld.tmp", entry, (long)getpid());
    unlink(temporary);
    if (link(path, temporary) == 0 && rename(temporary, entry) == 0) return;
    unlink(temporary);
    char *bytes = NULL;
    size_t n = 0;
    ct_err ignored = {0};
    if (ct__file_read(path, &bytes, &n, &ignored))
        ct__file_replace(entry, bytes, n, 0700, &ignored);
    ct__free(bytes);
}

void ct__cache_drop(const ct_cache *cache, ct_hash key) {
    char entry[4096];
    if (cache->folder[0] && cache_entry_path(cache, key, entry)) unlink(entry);
}

// The file whose bytes are the locks of a folder. Threads of a process share one descriptor: when a
// process closes any descriptor of a file, all its locks on that file end.
struct ct_lockfile {
    struct ct_lockfile *next;
    unsigned users;
    int fd;
    char folder[];
};
static pthread_mutex_t lockfiles_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ct_lockfile *lockfiles;

static struct ct_lockfile *cache_open_lockfile(const char *folder) {
    struct ct_lockfile *f = lockfiles;
    while (f && strcmp(f->folder, folder) != 0) f = f->next;
    if (!f) {
        char path[4096];
        snprintf(path, sizeof path, "%s/.lock", folder);
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        f = fd < 0 ? NULL : ct__malloc(sizeof *f + strlen(folder) + 1);
        if (!f) {
            if (fd >= 0) close(fd);
            return NULL;
        }
        *f = (struct ct_lockfile){.next = lockfiles, .fd = fd};
        memcpy(f->folder, folder, strlen(folder) + 1);
        lockfiles = f;
    }
    f->users++;
    return f;
}

// The lock is of fcntl's older kind: it belongs to the process, so a child forked meanwhile cannot
// hold it longer, and it works on network file systems.
static bool cache_set_lock(const struct ct_lockfile *f, ct_hash key, short type) {
    struct flock range = {.l_type = type,
                          .l_whence = SEEK_SET,
                          .l_start = (off_t)(key.lo >> 2), // the byte is within the largest offset
                          .l_len = 1};
    return fcntl(f->fd, F_SETLK, &range) == 0 || (errno != EACCES && errno != EAGAIN);
}

bool ct__cache_lock(ct_cache *cache, ct_hash key) {
    if (!cache->folder[0]) return true;
    if (!cache->locks) {
        pthread_mutex_lock(&lockfiles_lock);
        cache->locks = cache_open_lockfile(cache->folder);
        pthread_mutex_unlock(&lockfiles_lock);
    }
    return !cache->locks || cache_set_lock(cache->locks, key, F_WRLCK);
}

void ct__cache_unlock(const ct_cache *cache, ct_hash key) {
    if (cache->locks) cache_set_lock(cache->locks, key, F_UNLCK);
}

void ct__cache_close(ct_cache *cache) {
    struct ct_lockfile *f = cache->locks;
    if (!f) return;
    cache->locks = NULL;
    pthread_mutex_lock(&lockfiles_lock);
    if (--f->users == 0) {
        struct ct_lockfile **at = &lockfiles;
        while (*at != f) at = &(*at)->next;
        *at = f->next;
        close(f->fd);
        ct__free(f);
    }
    pthread_mutex_unlock(&lockfiles_lock);
}

typedef struct {
    char name[64];
    struct timespec used;
    ino_t file;
    uint64_t bytes; // of the file, which entries of one group share
    bool shared;    // another entry already counts its bytes
} entry;

static int cache_order_by_inode(const void *a, const void *b) {
    const entry *x = a, *y = b;
    return x->file < y->file ? -1 : x->file > y->file;
}
static int cache_order_by_use(const void *a,
                              const void *b) { // the oldest first, entries of a file together
    const entry *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec) return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec) return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
    return cache_order_by_inode(a, b);
}

// The user may keep other files in the folder: only names that the cache gives are counted or
// removed.

// True for an entry's name, or one that a process was writing when it was killed
// (<entry>.<process>.tmp).
static bool cache_is_entry_name(const char *name) {
    size_t n = strspn(name, "0123456789abcdef");
    if (n != 32 || strncmp(name + n, ".so", 3) != 0) return false;
    const char *rest = name + n + 3;
    return !*rest || (*rest == '.' && strcmp(strrchr(rest, '.'), ".tmp") == 0);
}

// True for the name of a work folder, which ct__cache_make_work_folder creates.
static bool cache_is_work_name(const char *name) {
    static const char random[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    return strncmp(name, "build-", 6) == 0 && strlen(name) == 12 && strspn(name + 6, random) == 6;
}

// Checks that a work folder contains only sources, objects and messages of compilers (g0.c, g0.so,
// g0.err) and their temporary files.
static void cache_check_work_file(int folder, const char *name, void *user) {
    bool *only = user;
    size_t digits = name[0] == 'g' ? strspn(name + 1, "0123456789") : 0;
    (void)folder;
    *only = *only && digits && name[1 + digits] == '.';
}
static bool cache_is_work_folder(int folder, const char *name) {
    bool only = true;
    return ct__for_each_entry(folder, name, cache_check_work_file, &only) && only;
}

// Lists the folder's entries (freed with ct__free) and sums their bytes.
static entry *cache_list_entries(DIR *dir, size_t *n, uint64_t *total) {
    entry *list = NULL;
    size_t cap = 0;
    *n = 0;
    *total = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        if (!cache_is_entry_name(e->d_name) || strlen(e->d_name) >= sizeof list->name ||
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
            continue;
        if (!CT_GROW(list, cap, *n + 1)) break;
        entry *x = &list[(*n)++];
        // A read updates the time of access, at least once a day on most file systems.
        bool read_later = st.st_atim.tv_sec > st.st_mtim.tv_sec;
        *x = (entry){.used = read_later ? st.st_atim : st.st_mtim,
                     .file = st.st_ino,
                     .bytes = (uint64_t)st.st_blocks * 512};
        memcpy(x->name, e->d_name, strlen(e->d_name) + 1);
    }
    if (*n) qsort(list, *n, sizeof *list, cache_order_by_inode);
    for (size_t i = 0; i < *n; i++) {
        list[i].shared = i && list[i].file == list[i - 1].file;
        if (!list[i].shared) *total += list[i].bytes;
    }
    return list;
}

static void cache_remove_stale_work(DIR *dir) {
    enum { A_DAY = 24 * 60 * 60 };
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        if (!cache_is_work_name(e->d_name) ||
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode) ||
            time(NULL) - st.st_mtim.tv_sec < A_DAY || !cache_is_work_folder(dirfd(dir), e->d_name))
            continue;
        ct__remove_folder(dirfd(dir), e->d_name, NULL);
    }
    rewinddir(dir);
}

void ct__cache_trim(const ct_cache *cache, uint64_t limit) {
    DIR *dir = cache->folder[0] ? opendir(cache->folder) : NULL;
    if (!dir) return;
    cache_remove_stale_work(dir);
    size_t n;
    uint64_t total;
    entry *list = cache_list_entries(dir, &n, &total);
    if (total > limit && n) {
        qsort(list, n, sizeof *list, cache_order_by_use);
        bool evict = true; // entries of one file are removed together: the last one frees its bytes
        for (size_t i = 0; i < n; i++) {
            if (i && list[i].file != list[i - 1].file) evict = total > limit / 4 * 3;
            if (!evict) break;
            unlinkat(dirfd(dir), list[i].name, 0);
            if (!list[i].shared) total -= list[i].bytes < total ? list[i].bytes : total;
        }
    }
    ct__free(list);
    closedir(dir);
}

bool ct__cache_is_intact(const void *bytes, size_t n) {
    trailer t;
    if (n <= sizeof t) return false;
    memcpy(&t, (const char *)bytes + n - sizeof t, sizeof t);
    return memcmp(t.magic, magic, sizeof magic) == 0 && t.length == n - sizeof t &&
           ct__hash_equal(t.hash, ct__hash_bytes(bytes, n - sizeof t, (ct_hash){0, 0}));
}

typedef enum { FILE_INTACT, FILE_DAMAGED, FILE_UNREADABLE } file_state;

// FILE_UNREADABLE, e.g. for lack of descriptors, says nothing about the file's contents.
static file_state cache_check_file(const char *path, const struct stat *st, trailer *t) {
    if (!S_ISREG(st->st_mode) || st->st_uid != geteuid() || (st->st_mode & (S_IWGRP | S_IWOTH)))
        return FILE_DAMAGED;
    const void *bytes = NULL;
    size_t n = 0;
    ct_err ignored = {0};
    if (!ct__file_map(path, &bytes, &n, &ignored)) return FILE_UNREADABLE;
    bool ok = ct__cache_is_intact(bytes, n);
    if (ok) memcpy(t, (const char *)bytes + n - sizeof *t, sizeof *t);
    ct__file_unmap(bytes, n);
    return ok ? FILE_INTACT : FILE_DAMAGED;
}

void ct__cache_store(const ct_cache *cache, ct_hash key, const void *bytes, size_t n) {
    char path[4096];
    ct_err ignored = {0};
    trailer t = {.length = n, .hash = ct__hash_bytes(bytes, n, (ct_hash){0, 0})};
    if (!cache->folder[0] || !cache_entry_path(cache, key, path)) return;
    char *sealed = ct__malloc(n + sizeof t);
    if (!sealed) return;
    memcpy(t.magic, magic, sizeof magic);
    memcpy(sealed, bytes, n);
    memcpy(sealed + n, &t, sizeof t);
    ct__file_replace(path, sealed, n + sizeof t, 0700, &ignored);
    ct__free(sealed);
}

char *ct__cache_fetch(const ct_cache *cache, ct_hash key, size_t *n) {
    char path[4096], *bytes = NULL;
    struct stat st;
    trailer t;
    ct_err ignored = {0};
    if (!cache->folder[0] || !cache_entry_path(cache, key, path) || stat(path, &st) != 0)
        return NULL;
    if (cache_check_file(path, &st, &t) != FILE_INTACT || !ct__file_read(path, &bytes, n, &ignored))
        return NULL;
    if (!ct__cache_is_intact(bytes, *n)) { // the file was replaced meanwhile
        ct__free(bytes);
        return NULL;
    }
    *n -= sizeof t;
    return bytes;
}

// --------------------------------------------------------------------------------------- loading

// The open libraries. Entries of one group are links to one file, identified by its inode and
// checked once. A copy's inode may be reused by another file, so copies are identified by content.
// The lock is held while a file is checked and opened, so that each is opened once.
static pthread_mutex_t libraries_lock = PTHREAD_MUTEX_INITIALIZER;
static struct library {
    dev_t dev;
    ino_t ino;
    ct_hash hash;
    void *handle;
} * libraries;
static size_t nlibraries, libraries_cap;

static void *cache_keep_library(struct library l) {
    if (l.handle && CT_GROW(libraries, libraries_cap, nlibraries + 1)) libraries[nlibraries++] = l;
    return l.handle;
}

static void *cache_dlopen(const char *path) {
    return ct__library_open(path, RTLD_NOW | RTLD_LOCAL);
}

#ifndef MFD_EXEC
#define MFD_EXEC 0x10U
#endif

// Opens a library from memory, which no mount option affects. The descriptor stays open with the
// handle: the dynamic linker knows the library by its number.
static void *cache_open_in_memory(const char *bytes, size_t n) {
    char name[40];
    int fd = memfd_create("cotan", MFD_CLOEXEC | MFD_EXEC);
    if (fd < 0) fd = memfd_create("cotan", MFD_CLOEXEC); // kernels before 6.3 lack MFD_EXEC
    if (fd < 0) return NULL;
    while (n) {
        ssize_t w = write(fd, bytes, n);
        if (w < 0 && errno != EINTR) break;
        bytes += w < 0 ? 0 : w;
        n -= w < 0 ? 0 : (size_t)w;
    }
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    void *handle = n ? NULL : cache_dlopen(name);
    if (!handle) close(fd);
    return handle;
}

// Opens a library from a private temporary folder, which is removed at once.
static void *cache_open_in_temporary(const ct_cache *cache, const char *bytes, size_t n) {
    const char *folders[2];
    void *handle = NULL;
    int count = cache_temporary_folders(cache, folders);
    for (int i = 0; i < count && !handle; i++) {
        char folder[4096], path[4200];
        ct_err ignored = {0};
        int w = snprintf(folder, sizeof folder, "%s/cotan-load-XXXXXX", folders[i]);
        if (w < 0 || w >= (int)sizeof folder || !mkdtemp(folder)) continue;
        snprintf(path, sizeof path, "%s/k.so", folder);
        if (ct__file_replace(path, bytes, n, 0700, &ignored)) handle = cache_dlopen(path);
        ct__cache_remove_work_folder(folder);
    }
    return handle;
}

// Opens a copy of a library whose folder forbids execution (mounted noexec).
static void *cache_open_copy(const ct_cache *cache, const char *path, ct_hash hash) {
    for (size_t i = 0; i < nlibraries; i++)
        if (!libraries[i].ino && ct__hash_equal(libraries[i].hash, hash))
            return libraries[i].handle;
    char *bytes = NULL;
    size_t n = 0;
    ct_err ignored = {0};
    if (!ct__file_read(path, &bytes, &n, &ignored)) return NULL;
    void *handle = cache_open_in_memory(bytes, n);
    if (!handle) handle = cache_open_in_temporary(cache, bytes, n);
    ct__free(bytes);
    return cache_keep_library((struct library){.hash = hash, .handle = handle});
}

// Copies the dynamic linker's last message without the path in front.
static void cache_copy_dlerror(const char *path, char why[CT_CACHE_WHY]) {
    const char *message = ct__library_error();
    if (!why) return;
    if (!message) message = "no reason was given";
    size_t n = strlen(path);
    if (strncmp(message, path, n) == 0 && strncmp(message + n, ": ", 2) == 0) message += n + 2;
    snprintf(why, CT_CACHE_WHY, "%s", message);
}

static void *cache_load_locked(const ct_cache *cache, const char *path, char why[CT_CACHE_WHY]) {
    struct stat st;
    trailer t;
    if (why) snprintf(why, CT_CACHE_WHY, "the file cannot be read");
    if (stat(path, &st) != 0) return NULL;
    for (size_t i = 0; i < nlibraries; i++)
        if (libraries[i].dev == st.st_dev && libraries[i].ino == st.st_ino)
            return libraries[i].handle;
    file_state found = cache_check_file(path, &st, &t);
    if (found == FILE_DAMAGED) {
        if (why) snprintf(why, CT_CACHE_WHY, "the file is damaged");
        unlink(path);
    }
    if (found != FILE_INTACT) return NULL;
    void *handle = cache_dlopen(path);
    if (handle) return cache_keep_library((struct library){st.st_dev, st.st_ino, t.hash, handle});
    cache_copy_dlerror(path, why);
    return cache_open_copy(cache, path, t.hash);
}

void *ct__cache_load_file(const ct_cache *cache, const char *path, char why[CT_CACHE_WHY]) {
    pthread_mutex_lock(&libraries_lock);
    void *handle = cache_load_locked(cache, path, why);
    pthread_mutex_unlock(&libraries_lock);
    return handle;
}

void ct__cache_unload(void) {
    while (nlibraries) dlclose(libraries[--nlibraries].handle);
    ct__free(libraries);
    libraries = NULL;
    libraries_cap = 0;
}

void *ct__cache_load(const ct_cache *cache, ct_hash key) {
    char path[4096];
    if (!cache->folder[0] || !cache_entry_path(cache, key, path)) return NULL;
    return ct__cache_load_file(cache, path, NULL);
}
