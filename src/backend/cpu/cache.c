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
    uint64_t length; // of what stands before the trailer
    ct_hash hash;    // of that
} trailer;

static const char magic[8] = {'c', 'o', 't', 'a', 'n', 's', 'o', '1'};

// --------------------------------------------------------------------------------------- folders

// The cache cannot be used: why, with the folder it is about.
static void no_cache(ct_cache *cache, const char *folder, const char *why) {
    snprintf(cache->why, sizeof cache->why, "%.300s%s", folder, why);
    cache->folder[0] = '\0';
}

// What keeps the folder from being used; NULL: nothing.
static const char *not_ours(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) return " is no folder";
    if (st.st_uid != geteuid()) return " belongs to another user";
    if (st.st_mode & (S_IWGRP | S_IWOTH)) return " may be written by others";
    return access(path, X_OK) == 0 ? NULL : " may not be entered";
}

static const char *absolute_env(const char *name) {
    const char *value = getenv(name);
    return value && value[0] == '/' ? value : NULL;
}

// Where the cache is to lie, as far as the environment says; "": nowhere. HOME may name a folder
// that is not there, as an account of the system has it: a home is not for us to make.
static bool choose_folder(ct_cache *cache, ct_err *err) {
    const char *own = getenv("COTAN_CACHE_DIR"), *xdg = absolute_env("XDG_CACHE_HOME");
    const char *home = absolute_env("HOME");
    char *path = cache->folder;
    size_t cap = sizeof cache->folder;
    struct stat st;
    int n = 0;
    no_cache(cache, "", "a setuid program has none");
    cache->forbidden = getauxval(AT_SECURE);
    if (cache->forbidden) return true;
    if (own && *own && *own != '/') // it would be another folder after each change of folder
        return ct__err(err, CT_E_USAGE, CT_NOWHERE, "cpu",
                       "COTAN_CACHE_DIR is \"%.200s\", not an absolute path", own);
    if (own && *own)
        n = snprintf(path, cap, "%s", own);
    else if (xdg)
        n = snprintf(path, cap, "%s/cotan", xdg);
    else if (!home)
        no_cache(cache, "", getenv("HOME") ? "HOME is not an absolute path" : "HOME is not set");
    else if (stat(home, &st) != 0 || !S_ISDIR(st.st_mode))
        no_cache(cache, home, ", which HOME names, is no folder");
    else
        n = snprintf(path, cap, "%s/.cache/cotan", home);
    if (n < 0 || (size_t)n >= cap) no_cache(cache, "", "the path of its folder is too long");
    return true;
}

bool ct__cache_check(ct_err *err) {
    ct_cache ignored;
    return choose_folder(&ignored, err);
}

// The folder for what is not kept, before /tmp.
static void choose_temporary(ct_cache *cache) {
    const char *tmp = getauxval(AT_SECURE) ? NULL : absolute_env("TMPDIR");
    cache->locks = NULL;
    cache->temporary[0] = '\0';
    if (tmp && strlen(tmp) < sizeof cache->temporary)
        memcpy(cache->temporary, tmp, strlen(tmp) + 1);
}

bool ct__cache_open(ct_cache *cache, ct_err *err) {
    ct_err made = {0};
    choose_temporary(cache);
    if (!choose_folder(cache, err)) return false;
    if (!cache->folder[0]) return true;
    const char *why = NULL;
    if (!ct__make_dirs(cache->folder, 0700, &made))
        no_cache(cache, made.text, "");
    else if ((why = not_ours(cache->folder)))
        no_cache(cache, cache->folder, why);
    return true;
}

void ct__cache_disable(ct_cache *cache) {
    cache->folder[0] = cache->why[0] = '\0';
    cache->forbidden = false;
    choose_temporary(cache);
}

// The folders for what is not kept: $TMPDIR where it is sound, and /tmp.
static int temporary_folders(const ct_cache *cache, const char *places[2]) {
    int n = 0;
    if (cache->temporary[0]) places[n++] = cache->temporary;
    places[n++] = "/tmp";
    return n;
}

// Do the folder's file system and its user's quota leave this much? 0, or ENOSPC or EDQUOT.
static int lack_of_room(const char *folder, uint64_t bytes) {
    char path[4200];
    struct rlimit most;
    snprintf(path, sizeof path, "%s/g0.room", folder);
    // Beyond its own limit a process is not refused but killed.
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < bytes) bytes = most.rlim_cur;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int failed = fd < 0 ? errno : bytes ? posix_fallocate(fd, 0, (off_t)bytes) : 0;
    if (fd >= 0) close(fd);
    unlink(path);
    return failed == ENOSPC || failed == EDQUOT ? failed : 0;
}

const char *ct__cache_make_work_folder(const ct_cache *cache, uint64_t room, char folder[4096]) {
    const char *places[3] = {cache->folder};
    int n = 1 + temporary_folders(cache, places + 1), failed = 0;
    for (int i = 0; i < n; i++) {
        if (!*places[i]) continue;
        int w = snprintf(folder, 4096, "%s/%sbuild-XXXXXX", places[i], i ? "cotan-" : "");
        if (w < 0 || w >= 4096) continue;
        if (!mkdtemp(folder)) {
            failed = errno;
            continue;
        }
        failed = lack_of_room(folder, room);
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
    // The linker follows the umask: with 002 the group might write, and the file would be refused.
    bool ok = fd >= 0 && fchmod(fd, 0700) == 0 && write(fd, &t, sizeof t) == (ssize_t)sizeof t;
    if (fd >= 0) ok = close(fd) == 0 && ok;
    return ok ||
           ct__err(err, CT_E_FILE, CT_NOWHERE, path, "cannot be written: %s", strerror(errno));
}

static bool entry_path(const ct_cache *cache, ct_hash key, char path[4096]) {
    char hex[33];
    ct__hash_hex(key, hex);
    int n = snprintf(path, 4096, "%s/%s.so", cache->folder, hex);
    return n > 0 && n < 4096;
}

void ct__cache_add(const ct_cache *cache, const char *path, ct_hash key) {
    char entry[4096], beside[4160];
    if (!cache->folder[0] || !entry_path(cache, key, entry)) return;
    // A link that is renamed into place: what is there this process could not load. Where links are
    // not possible, a copy with the same permissions, since a file that others may write is
    // refused.
    snprintf(beside, sizeof beside, "%s.%ld.tmp", entry, (long)getpid());
    unlink(beside);
    if (link(path, beside) == 0 && rename(beside, entry) == 0) return;
    unlink(beside);
    char *bytes = NULL;
    size_t n = 0;
    ct_err ignored = {0};
    if (ct__file_read(path, &bytes, &n, &ignored)) ct__file_place(entry, bytes, n, 0700, &ignored);
    ct__free(bytes);
}

void ct__cache_drop(const ct_cache *cache, ct_hash key) {
    char entry[4096];
    if (cache->folder[0] && entry_path(cache, key, entry)) unlink(entry);
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

static struct ct_lockfile *open_lockfile(const char *folder) {
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

// fcntl's older kind of lock: it belongs to the process, so a child that is forked meanwhile cannot
// hold it longer, and works on network file systems.
static bool set_lock(const struct ct_lockfile *f, ct_hash key, short type) {
    struct flock range = {.l_type = type,
                          .l_whence = SEEK_SET,
                          .l_start = (off_t)(key.lo >> 2), // no byte beyond the largest offset
                          .l_len = 1};
    return fcntl(f->fd, F_SETLK, &range) == 0 || (errno != EACCES && errno != EAGAIN);
}

bool ct__cache_lock(ct_cache *cache, ct_hash key) {
    if (!cache->folder[0]) return true;
    if (!cache->locks) {
        pthread_mutex_lock(&lockfiles_lock);
        cache->locks = open_lockfile(cache->folder);
        pthread_mutex_unlock(&lockfiles_lock);
    }
    return !cache->locks || set_lock(cache->locks, key, F_WRLCK);
}

void ct__cache_unlock(const ct_cache *cache, ct_hash key) {
    if (cache->locks) set_lock(cache->locks, key, F_UNLCK);
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
    bool shared;    // another entry stands for its bytes
} entry;

static int by_file(const void *a, const void *b) {
    const entry *x = a, *y = b;
    return x->file < y->file ? -1 : x->file > y->file;
}
static int by_use(const void *a, const void *b) { // the oldest first, entries of a file together
    const entry *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec) return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec) return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
    return by_file(a, b);
}

// The folder may be one that its user keeps other things in: nothing is counted or removed but what
// has a name that only the cache gives.

// An entry, or one that a process was writing when it was killed (<entry>.<process>.tmp).
static bool names_entry(const char *name) {
    size_t n = strspn(name, "0123456789abcdef");
    if (n != 32 || strncmp(name + n, ".so", 3) != 0) return false;
    const char *rest = name + n + 3;
    return !*rest || (*rest == '.' && strcmp(strrchr(rest, '.'), ".tmp") == 0);
}

// A folder that kernels were compiled in, by its name: what ct__cache_make_work_folder makes.
static bool names_work(const char *name) {
    static const char random[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    return strncmp(name, "build-", 6) == 0 && strlen(name) == 12 && strspn(name + 6, random) == 6;
}

// Is nothing in it but sources, objects and messages of compilers (g0.c, g0.so, g0.err) and what
// is written beside them?
static void look_at_work(int folder, const char *name, void *user) {
    bool *only = user;
    size_t digits = name[0] == 'g' ? strspn(name + 1, "0123456789") : 0;
    (void)folder;
    *only = *only && digits && name[1 + digits] == '.';
}
static bool holds_work(int folder, const char *name) {
    bool only = true;
    return ct__each_inside(folder, name, look_at_work, &only) && only;
}

// Entries of the folder (freed with ct__free), and how many bytes they take together.
static entry *list_entries(DIR *dir, size_t *n, uint64_t *total) {
    entry *list = NULL;
    size_t cap = 0;
    *n = 0;
    *total = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        if (!names_entry(e->d_name) || strlen(e->d_name) >= sizeof list->name ||
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
            continue;
        if (!CT_GROW(list, cap, *n + 1)) break;
        entry *x = &list[(*n)++];
        // A read sets the time of access, at least once a day on most file systems.
        bool read_later = st.st_atim.tv_sec > st.st_mtim.tv_sec;
        *x = (entry){.used = read_later ? st.st_atim : st.st_mtim,
                     .file = st.st_ino,
                     .bytes = (uint64_t)st.st_blocks * 512};
        memcpy(x->name, e->d_name, strlen(e->d_name) + 1);
    }
    if (*n) qsort(list, *n, sizeof *list, by_file);
    for (size_t i = 0; i < *n; i++) {
        list[i].shared = i && list[i].file == list[i - 1].file;
        if (!list[i].shared) *total += list[i].bytes;
    }
    return list;
}

static void sweep(DIR *dir) {
    enum { A_DAY = 24 * 60 * 60 };
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        if (!names_work(e->d_name) ||
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode) ||
            time(NULL) - st.st_mtim.tv_sec < A_DAY || !holds_work(dirfd(dir), e->d_name))
            continue;
        ct__remove_folder(dirfd(dir), e->d_name, NULL);
    }
    rewinddir(dir);
}

void ct__cache_trim(const ct_cache *cache, uint64_t limit) {
    DIR *dir = cache->folder[0] ? opendir(cache->folder) : NULL;
    if (!dir) return;
    sweep(dir);
    size_t n;
    uint64_t total;
    entry *list = list_entries(dir, &n, &total);
    if (total > limit && n) {
        qsort(list, n, sizeof *list, by_use);
        bool going = true; // entries of a file go together: its bytes are free with the last
        for (size_t i = 0; i < n; i++) {
            if (i && list[i].file != list[i - 1].file) going = total > limit / 4 * 3;
            if (!going) break;
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

typedef enum { SOUND, DAMAGED, NOT_READ } condition;

// NOT_READ, as for want of descriptors, says nothing of the file.
static condition look_at(const char *path, const struct stat *st, trailer *t) {
    if (!S_ISREG(st->st_mode) || st->st_uid != geteuid() || (st->st_mode & (S_IWGRP | S_IWOTH)))
        return DAMAGED;
    const void *bytes = NULL;
    size_t n = 0;
    ct_err ignored = {0};
    if (!ct__file_map(path, &bytes, &n, &ignored)) return NOT_READ;
    bool ok = ct__cache_is_intact(bytes, n);
    if (ok) memcpy(t, (const char *)bytes + n - sizeof *t, sizeof *t);
    ct__file_unmap(bytes, n);
    return ok ? SOUND : DAMAGED;
}

void ct__cache_store(const ct_cache *cache, ct_hash key, const void *bytes, size_t n) {
    char path[4096];
    ct_err ignored = {0};
    trailer t = {.length = n, .hash = ct__hash_bytes(bytes, n, (ct_hash){0, 0})};
    if (!cache->folder[0] || !entry_path(cache, key, path)) return;
    char *whole = ct__malloc(n + sizeof t);
    if (!whole) return;
    memcpy(t.magic, magic, sizeof magic);
    memcpy(whole, bytes, n);
    memcpy(whole + n, &t, sizeof t);
    ct__file_place(path, whole, n + sizeof t, 0700, &ignored);
    ct__free(whole);
}

char *ct__cache_fetch(const ct_cache *cache, ct_hash key, size_t *n) {
    char path[4096], *bytes = NULL;
    struct stat st;
    trailer t;
    ct_err ignored = {0};
    if (!cache->folder[0] || !entry_path(cache, key, path) || stat(path, &st) != 0) return NULL;
    if (look_at(path, &st, &t) != SOUND || !ct__file_read(path, &bytes, n, &ignored)) return NULL;
    if (!ct__cache_is_intact(bytes, *n)) { // it is another file by now
        ct__free(bytes);
        return NULL;
    }
    *n -= sizeof t;
    return bytes;
}

// --------------------------------------------------------------------------------------- loading

// The files that are open. Entries of one group are links to one file, known by its inode and
// checked once. Of a copy the inode says nothing (it may be another file's by now): known by its
// content. The lock is held while a file is checked and opened, so that each is opened once.
static pthread_mutex_t libraries_lock = PTHREAD_MUTEX_INITIALIZER;
static struct library {
    dev_t dev;
    ino_t ino;
    ct_hash hash;
    void *handle;
} * libraries;
static size_t nlibraries, libraries_cap;

static void *keep_library(struct library l) {
    if (l.handle && CT_GROW(libraries, libraries_cap, nlibraries + 1)) libraries[nlibraries++] = l;
    return l.handle;
}

static void *open_library(const char *path) {
    return ct__library_open(path, RTLD_NOW | RTLD_LOCAL);
}

#ifndef MFD_EXEC
#define MFD_EXEC 0x10U
#endif

// From memory that no mount option reaches. The descriptor stays open with the handle: its number
// is the name under which the dynamic linker knows the library.
static void *open_in_memory(const char *bytes, size_t n) {
    char name[40];
    int fd = memfd_create("cotan", MFD_CLOEXEC | MFD_EXEC);
    if (fd < 0) fd = memfd_create("cotan", MFD_CLOEXEC); // kernels before 6.3 do not know MFD_EXEC
    if (fd < 0) return NULL;
    while (n) {
        ssize_t w = write(fd, bytes, n);
        if (w < 0 && errno != EINTR) break;
        bytes += w < 0 ? 0 : w;
        n -= w < 0 ? 0 : (size_t)w;
    }
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    void *handle = n ? NULL : open_library(name);
    if (!handle) close(fd);
    return handle;
}

// From a private folder beside the cache, for as long as it takes to open it.
static void *open_elsewhere(const ct_cache *cache, const char *bytes, size_t n) {
    const char *places[2];
    void *handle = NULL;
    int count = temporary_folders(cache, places);
    for (int i = 0; i < count && !handle; i++) {
        char folder[4096], path[4200];
        ct_err ignored = {0};
        int w = snprintf(folder, sizeof folder, "%s/cotan-load-XXXXXX", places[i]);
        if (w < 0 || w >= (int)sizeof folder || !mkdtemp(folder)) continue;
        snprintf(path, sizeof path, "%s/k.so", folder);
        if (ct__file_place(path, bytes, n, 0700, &ignored)) handle = open_library(path);
        ct__cache_remove_work_folder(folder);
    }
    return handle;
}

// A library that its folder does not let run (mounted noexec), from a copy.
static void *open_copy(const ct_cache *cache, const char *path, ct_hash hash) {
    for (size_t i = 0; i < nlibraries; i++)
        if (!libraries[i].ino && ct__hash_equal(libraries[i].hash, hash))
            return libraries[i].handle;
    char *bytes = NULL;
    size_t n = 0;
    ct_err ignored = {0};
    if (!ct__file_read(path, &bytes, &n, &ignored)) return NULL;
    void *handle = open_in_memory(bytes, n);
    if (!handle) handle = open_elsewhere(cache, bytes, n);
    ct__free(bytes);
    return keep_library((struct library){.hash = hash, .handle = handle});
}

// What the dynamic linker said last, without the path in front.
static void note_reason(const char *path, char why[CT_CACHE_WHY]) {
    const char *said = ct__library_error();
    if (!why) return;
    if (!said) said = "no reason was given";
    size_t n = strlen(path);
    if (strncmp(said, path, n) == 0 && strncmp(said + n, ": ", 2) == 0) said += n + 2;
    snprintf(why, CT_CACHE_WHY, "%s", said);
}

static void *load_file(const ct_cache *cache, const char *path, char why[CT_CACHE_WHY]) {
    struct stat st;
    trailer t;
    if (why) snprintf(why, CT_CACHE_WHY, "the file cannot be read");
    if (stat(path, &st) != 0) return NULL;
    for (size_t i = 0; i < nlibraries; i++)
        if (libraries[i].dev == st.st_dev && libraries[i].ino == st.st_ino)
            return libraries[i].handle;
    condition found = look_at(path, &st, &t);
    if (found == DAMAGED) {
        if (why) snprintf(why, CT_CACHE_WHY, "the file is damaged");
        unlink(path);
    }
    if (found != SOUND) return NULL;
    void *handle = open_library(path);
    if (handle) return keep_library((struct library){st.st_dev, st.st_ino, t.hash, handle});
    note_reason(path, why);
    return open_copy(cache, path, t.hash);
}

void *ct__cache_load_file(const ct_cache *cache, const char *path, char why[CT_CACHE_WHY]) {
    pthread_mutex_lock(&libraries_lock);
    void *handle = load_file(cache, path, why);
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
    if (!cache->folder[0] || !entry_path(cache, key, path)) return NULL;
    return ct__cache_load_file(cache, path, NULL);
}
