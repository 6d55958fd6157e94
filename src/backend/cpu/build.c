#define _GNU_SOURCE
#include "backend/cpu/build.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/cache.h"
#include "backend/cpu/cc.h"
#include "backend/cpu/interp.h"
#include "backend/cpu/prelude.h"
#include "base/atomic.h"
#include "base/mem.h"
#include "base/text.h"

// One lock around all of it: a second request would most likely want the same kernels.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct known {
    ct_hash key;
    ct__kernel_fn fn;
    ct_interp *interp;
} * table;                        // open addressing; neither: free
static size_t table_n, table_cap; // cap: a power of two
static ct__build_counts counts;

static bool taken(const struct known *slot) { return slot->fn || slot->interp; }

static struct known *slot_of(ct_hash key) {
    size_t i = key.lo & (table_cap - 1);
    while (taken(&table[i]) && !ct__hash_equal(table[i].key, key)) i = (i + 1) & (table_cap - 1);
    return &table[i];
}

static bool lookup(ct_hash key, ct__kernel_source *k) {
    const struct known *slot = table_cap ? slot_of(key) : NULL;
    if (!slot || !taken(slot)) return false;
    k->fn = slot->fn;
    k->interp = slot->interp;
    return true;
}

static bool remember(struct known entry, ct_err *err) {
    if ((table_n + 1) * 2 > table_cap) {
        size_t cap = table_cap ? table_cap * 2 : 256, old_cap = table_cap;
        struct known *grown = ct__calloc(cap, sizeof *grown), *old = table;
        if (!grown) return ct__err_memory(err, CT_NOWHERE, "cpu", cap * sizeof *grown);
        table = grown;
        table_cap = cap;
        for (size_t i = 0; i < old_cap; i++)
            if (taken(&old[i])) *slot_of(old[i].key) = old[i];
        ct__free(old);
    }
    struct known *slot = slot_of(entry.key);
    table_n += !taken(slot);
    *slot = entry;
    return true;
}

static bool take(ct__kernel_source *k, ct_hash key, void *library, ct_err *err) {
    void *symbol = library ? dlsym(library, k->name) : NULL;
    if (!symbol) return false;
    memcpy(&k->fn, &symbol, sizeof k->fn); // ISO C has no cast from void * to a function
    return remember((struct known){key, k->fn, NULL}, err);
}

typedef struct {
    ct__kernel_source *kernels;
    const ct_hash *keys;
    size_t *missing; // indices into kernels
    size_t n;        // how many of them, from the first, are to be compiled
    int threads, groups;
    const ct_cc *cc;
    ct_cache *cache;
    char folder[4096];
    bool fleeting;       // nothing is entered in the cache
    const char *refused; // why no folder takes what is compiled; NULL: one does
} job;

static bool write_group(const job *j, int group, ct_err *err) {
    ct_text text = {0};
    ct__text_add(&text, ct__cpu_prelude);
    for (size_t i = (size_t)group; i < j->n; i += (size_t)j->groups)
        ct__text_add(&text, j->kernels[j->missing[i]].text);
    char path[4200];
    snprintf(path, sizeof path, "%s/g%d.c", j->folder, group);
    bool ok = text.failed ? ct__err_memory(err, CT_NOWHERE, "cpu", text.n)
                          : ct__file_place(path, text.s, text.n, 0600, err);
    ct__text_free(&text);
    return ok;
}

// The compiler did its work, but the system does not let it run.
static bool not_allowed(const job *j, const char *why, ct_err *err) {
    ct__err(err, CT_E_FILE, CT_NOWHERE, "cpu", "compiled kernels cannot be loaded: %s", why);
    ct__err_hint(err,
                 "%s, memory and /tmp may hold no programs (mounted noexec?): set COTAN_CACHE_DIR "
                 "or TMPDIR to a folder that may",
                 j->cache->folder[0] ? j->cache->folder : "TMPDIR");
    return false;
}

static bool load_group(const job *j, int group, ct_err *err) {
    char path[4200], why[CT_CACHE_WHY];
    snprintf(path, sizeof path, "%s/g%d.so", j->folder, group);
    if (!ct__cache_seal(path, err)) return false;
    void *library = ct__cache_load_file(path, why);
    if (!library && strstr(why, "failed to map segment")) return not_allowed(j, why, err);
    for (size_t i = (size_t)group; i < j->n; i += (size_t)j->groups) {
        size_t at = j->missing[i];
        if (!take(&j->kernels[at], j->keys[at], library, err))
            return ct__err(err, CT_E_COMPILER, CT_NOWHERE, "cpu",
                           "no working C compiler: what %s made cannot be loaded: %s", j->cc->path,
                           library ? "it lacks a kernel" : why);
        j->kernels[at].compiled = true;
        if (!j->fleeting) ct__cache_enter(j->cache, path, j->keys[at]);
    }
    return true;
}

enum { OF_A_GROUP = 128 << 10, OF_A_KERNEL = 64 << 10 }; // bytes that compiling takes at most

static uint64_t room_for(const job *j) {
    return (uint64_t)j->groups * OF_A_GROUP + (uint64_t)j->n * OF_A_KERNEL;
}

// False, with no error: `refused`.
static bool compile(job *j, ct_err *err) {
    j->refused = ct__cache_work(j->cache, room_for(j), j->folder);
    if (j->refused) return false;
    bool ok = true;
    for (int g = 0; ok && g < j->groups; g++) ok = write_group(j, g, err);
    ok = ok && ct__cc_run(j->cc, j->folder, j->groups, err);
    for (int g = 0; ok && g < j->groups; g++) ok = load_group(j, g, err);
    ct__cache_work_end(j->folder);
    if (ok && counts.runs == 0) ct__cache_trim(j->cache, CT_CACHE_LIMIT); // once a process
    counts.runs += (uint64_t)j->groups;
    if (ok) counts.compiled += j->n;
    return ok;
}

static bool from_disk(const job *j, size_t i, ct_err *err) {
    void *library = ct__cache_load(j->cache, j->keys[i]);
    if (take(&j->kernels[i], j->keys[i], library, err)) {
        counts.loaded++;
        return true;
    }
    if (library && !dlsym(library, j->kernels[i].name)) // whole, but another kernel's
        ct__cache_drop(j->cache, j->keys[i]);
    return false;
}

// Of the first n that are missing, puts those that are for this process to compile first, the
// others, which another process compiles now, behind. When it has waited for those, it asks for
// the first alone, which costs nothing.
static size_t claim(job *j, size_t n, bool waited, bool impatient) {
    size_t mine = 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = j->missing[i];
        if (!ct__cache_lock(j->cache, j->keys[at]) && !impatient) {
            if (waited && i == 0) break;
            continue;
        }
        j->missing[i] = j->missing[mine];
        j->missing[mine++] = at;
    }
    return mine;
}

enum { LOOK_AGAIN_MS = 20, PATIENCE_MS = 60000 };

// Compiles m kernels, each unless another process does: those are waited for, until they are there,
// or that process ended, or nothing came for a minute (it may be stopped).
static bool settle(job *j, size_t m, ct_err *err) {
    for (int waited = 0; m;) {
        size_t mine = claim(j, m, waited > 0, waited >= PATIENCE_MS);
        j->n = 0;
        for (size_t i = 0; i < mine; i++) // entered since this process looked?
            if (!from_disk(j, j->missing[i], err)) j->missing[j->n++] = j->missing[i];
        // Starting a compiler and reading the prelude costs about what two kernels cost.
        size_t groups = (j->n + 1) / 2, most = j->threads > 0 ? (size_t)j->threads : 1;
        j->groups = (int)(groups < most ? groups : most);
        bool ok = j->n == 0 || compile(j, err);
        ct__cache_unlock(j->cache);
        if (!ok) return false;
        m -= mine;
        memmove(j->missing, j->missing + mine, m * sizeof *j->missing);
        waited = mine ? 0 : waited + LOOK_AGAIN_MS;
        if (waited) nanosleep(&(struct timespec){.tv_nsec = LOOK_AGAIN_MS * 1000000L}, NULL);
    }
    return true;
}

// Fills what is known or on disk and lists the rest, each once.
static size_t find_missing(const job *j, size_t n, ct_err *err) {
    size_t m = 0, *missing = j->missing;
    const ct_hash *keys = j->keys;
    for (size_t i = 0; i < n; i++) {
        if (lookup(keys[i], &j->kernels[i])) {
            counts.known++;
            continue;
        }
        if (from_disk(j, i, err)) continue;
        bool listed = false;
        for (size_t k = 0; k < m; k++) listed |= ct__hash_equal(keys[missing[k]], keys[i]);
        if (!listed) missing[m++] = i;
    }
    return m;
}

static bool interpret(ct__kernel_source *k, const char *why, const char *hint, ct_err *err) {
    ct_hash key = ct__hash_bytes(k->text, strlen(k->text), (ct_hash){1, 1});
    k->compiled = false;
    k->why = why;
    k->hint = hint;
    if (lookup(key, k)) return true;
    ct_interp *interp = ct__interp_make(k->ir, err);
    k->fn = NULL;
    k->interp = interp;
    counts.interpreted += interp != NULL;
    if (interp && remember((struct known){key, NULL, interp}, err)) return true;
    ct__interp_free(interp);
    return false;
}

static bool interpretable(const ct__kernel_source *kernels, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!kernels[i].ir) return false;
    return true;
}

static bool no_folder(const job *j, ct_err *err) {
    return ct__err(err, CT_E_FILE, CT_NOWHERE, "cpu",
                   "no folder to compile kernels in: neither the cache, TMPDIR nor /tmp: %s",
                   j->refused);
}

// Those of n that are neither known nor compiled by now, where no folder takes what is compiled.
static bool interpret_rest(const job *j, size_t n, ct_err *err) {
    bool ok = interpretable(j->kernels, n) || no_folder(j, err);
    for (size_t i = 0; i < n && ok; i++)
        if (!j->kernels[i].fn && !lookup(j->keys[i], &j->kernels[i]))
            ok = interpret(&j->kernels[i],
                           "no folder takes what is compiled, neither the cache, TMPDIR nor /tmp",
                           "make room in one of them, or set TMPDIR to a folder with room", err);
    return ok;
}

static bool build(ct__kernel_source *kernels, size_t n, int threads, ct_hash *keys, size_t *missing,
                  ct_err *err) {
    ct_cc cc;
    ct_cache cache;
    const char *missing_cc = interpretable(kernels, n) ? ct__cc_missing() : NULL;
    if (missing_cc) {
        bool ok = true;
        for (size_t i = 0; i < n && ok; i++)
            ok = interpret(&kernels[i], missing_cc, ct__cc_missing_hint(), err);
        return ok;
    }
    if (!ct__cc_find(&cc, err) || !ct__cache_open(&cache, err)) return false;
    if (!cc.identified) ct__cache_none(&cache); // its keys might be another machine's
    ct_hash target = ct__hash_bytes(ct__cpu_prelude, strlen(ct__cpu_prelude), cc.id);
    for (size_t i = 0; i < n; i++) {
        kernels[i].fn = NULL;
        kernels[i].interp = NULL;
        kernels[i].compiled = false;
        keys[i] = ct__hash_bytes(kernels[i].text, strlen(kernels[i].text), target);
    }
    job j = {kernels, keys, missing, 0, threads, 1, &cc, &cache, "", false, NULL};
    size_t m = find_missing(&j, n, err);
    if (m == 0) return true;
    if (!settle(&j, m, err)) return j.refused && interpret_rest(&j, n, err);
    for (size_t i = 0; i < n; i++)
        if (!kernels[i].fn) lookup(keys[i], &kernels[i]);
    return true;
}

bool ct__cpu_build(ct__kernel_source *kernels, size_t n, int threads, ct_err *err) {
    if (n == 0) return true;
    ct_hash *keys = ct__malloc(n * sizeof *keys);
    size_t *missing = ct__malloc(n * sizeof *missing);
    bool ok = keys && missing;
    if (!ok) ct__err_memory(err, CT_NOWHERE, "cpu", n * sizeof *keys);
    if (ok) {
        pthread_mutex_lock(&lock);
        ok = build(kernels, n, threads, keys, missing, err);
        pthread_mutex_unlock(&lock);
    }
    ct__free(keys);
    ct__free(missing);
    return ok;
}

bool ct__cpu_build_anew(ct__kernel_source *kernel, ct_err *err) {
    ct_cc cc;
    ct_cache cache;
    ct_err ignored = {0}; // of the cache, which is not what is asked for
    size_t first = 0;
    if (!ct__cc_find(&cc, err)) return false;
    pthread_mutex_lock(&lock);
    if (!ct__cache_open(&cache, &ignored)) ct__cache_none(&cache);
    ct_hash key = ct__hash_bytes(kernel->text, strlen(kernel->text), cc.id);
    job j = {kernel, &key, &first, 1, 1, 1, &cc, &cache, "", true, NULL};
    bool ok = compile(&j, err) || (j.refused && no_folder(&j, err));
    pthread_mutex_unlock(&lock);
    return ok;
}

ct__build_counts ct__cpu_build_counts(void) {
    pthread_mutex_lock(&lock);
    ct__build_counts now = counts;
    pthread_mutex_unlock(&lock);
    return now;
}

static void forget(void) {
    for (size_t i = 0; i < table_cap; i++) ct__interp_free(table[i].interp);
    ct__free(table);
    table = NULL;
    table_n = table_cap = 0;
}
void ct__cpu_build_forget(void) {
    pthread_mutex_lock(&lock);
    forget();
    pthread_mutex_unlock(&lock);
}
void ct__cpu_build_end(void) {
    pthread_mutex_lock(&lock);
    forget();
    ct__cache_unload();
    pthread_mutex_unlock(&lock);
}
