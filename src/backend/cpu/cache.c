#define _GNU_SOURCE
#include "backend/cpu/cache.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"

typedef struct {
    char magic[8];
    uint64_t length; // of what stands before the trailer
    ct_hash hash;    // of that
} trailer;

static const char magic[8] = {'c', 'o', 't', 'a', 'n', 's', 'o', '1'};

// --------------------------------------------------------------------------------------- folders

static bool folder_is_ours(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
           (st.st_mode & (S_IWGRP | S_IWOTH)) == 0 && access(path, W_OK | X_OK) == 0;
}

static const char *absolute_env(const char *name) {
    const char *value = getenv(name);
    return value && value[0] == '/' ? value : NULL;
}

void ct__cache_open(ct_cache *cache) {
    cache->folder[0] = '\0';
    if (getauxval(AT_SECURE)) return;
    const char *own = getenv("COTAN_CACHE_DIR"), *xdg = absolute_env("XDG_CACHE_HOME");
    const char *home = absolute_env("HOME");
    char path[sizeof cache->folder];
    int n = -1;
    if (own && *own)
        n = snprintf(path, sizeof path, "%s", own);
    else if (xdg)
        n = snprintf(path, sizeof path, "%s/cotan", xdg);
    else if (home)
        n = snprintf(path, sizeof path, "%s/.cache/cotan", home);
    ct_err ignored = {0};
    if (n <= 0 || (size_t)n >= sizeof path || !ct__make_dirs(path, 0700, &ignored)) return;
    if (folder_is_ours(path)) memcpy(cache->folder, path, (size_t)n + 1);
}

bool ct__cache_work(const ct_cache *cache, char folder[4096], ct_err *err) {
    const char *tmp = getauxval(AT_SECURE) ? NULL : absolute_env("TMPDIR");
    const char *places[3] = {cache->folder[0] ? cache->folder : NULL, tmp, "/tmp"};
    for (int i = 0; i < 3; i++) {
        if (!places[i]) continue;
        int n = snprintf(folder, 4096, "%s/%sbuild-XXXXXX", places[i], i ? "cotan-" : "");
        if (n > 0 && n < 4096 && mkdtemp(folder)) return true;
    }
    return ct__err(err, CT_E_FILE, CT_NOWHERE, "cpu",
                   "no folder to compile kernels in: neither the cache, TMPDIR nor /tmp: %s",
                   strerror(errno));
}

void ct__cache_work_end(const char *folder) {
    DIR *dir = opendir(folder);
    if (dir) {
        for (struct dirent *e; (e = readdir(dir));)
            if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
                unlinkat(dirfd(dir), e->d_name, 0);
        closedir(dir);
    }
    rmdir(folder);
}

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

void ct__cache_enter(const ct_cache *cache, const char *path, ct_hash key) {
    char entry[4096];
    if (!cache->folder[0] || !entry_path(cache, key, entry)) return;
    // A link appears whole or not at all; where links are not possible, a copy is renamed into
    // place.
    if (link(path, entry) == 0 || errno == EEXIST) return;
    char *bytes = NULL;
    size_t n = 0;
    ct_err ignored = {0};
    if (ct__file_read(path, &bytes, &n, &ignored)) ct__file_write(entry, bytes, n, &ignored);
    ct__free(bytes);
}

static bool sealed(const char *path, const struct stat *st) {
    if (!S_ISREG(st->st_mode) || st->st_uid != geteuid() || (st->st_mode & (S_IWGRP | S_IWOTH)))
        return false;
    const void *bytes = NULL;
    size_t n = 0;
    ct_err ignored = {0};
    if (!ct__file_map(path, &bytes, &n, &ignored)) return false;
    trailer t;
    bool ok = n > sizeof t;
    if (ok) {
        memcpy(&t, (const char *)bytes + n - sizeof t, sizeof t);
        ok = memcmp(t.magic, magic, sizeof magic) == 0 && t.length == n - sizeof t &&
             ct__hash_equal(t.hash, ct__hash_bytes(bytes, n - sizeof t, (ct_hash){0, 0}));
    }
    ct__file_unmap(bytes, n);
    return ok;
}

// The files that are open: entries of one group are links to one file, checked once.
static struct library {
    dev_t dev;
    ino_t ino;
    void *handle;
} * libraries;
static size_t nlibraries, libraries_cap;

void *ct__cache_load_file(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) return NULL;
    for (size_t i = 0; i < nlibraries; i++)
        if (libraries[i].dev == st.st_dev && libraries[i].ino == st.st_ino)
            return libraries[i].handle;
    void *handle = sealed(path, &st) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!handle) {
        unlink(path);
        return NULL;
    }
    if (CT_GROW(libraries, libraries_cap, nlibraries + 1))
        libraries[nlibraries++] = (struct library){st.st_dev, st.st_ino, handle};
    return handle;
}

void *ct__cache_load(const ct_cache *cache, ct_hash key) {
    char path[4096];
    if (!cache->folder[0] || !entry_path(cache, key, path)) return NULL;
    return ct__cache_load_file(path);
}
