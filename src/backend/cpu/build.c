#define _GNU_SOURCE
#include "backend/cpu/build.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backend/backend.h"
#include "backend/cpu/code.h"
#include "backend/cpu/interp.h"
#include "backend/cpu/pack.h"
#include "backend/cpu/prelude.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/toolchain.h"
#include "base/atomic.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/text.h"

static struct { _Atomic uint64_t compiled, loaded, known, runs, interpreted; } counts;

// A request, or the part of one that is being compiled.
typedef struct {
    ct__kernel_source *kernels;
    size_t *missing; // indices into kernels that this request has claimed
    size_t n;        // the first so many are to be compiled
    int threads, groups;
    const ct_cc *cc;
    ct_cache *cache;
    char folder[4096];
    bool uncached;           // adds nothing to the cache
    const atomic_bool *stop; // if set, ends the wait for other processes; NULL: waits without limit
    const char *refused;     // why there is no folder to compile in; NULL: there is one
} job;

static bool build_publish(ct__kernel_source *k, void *library) {
    void *symbol = library ? dlsym(library, k->name) : NULL;
    if (!symbol) return false;
    memcpy(&k->fn, &symbol, sizeof k->fn); // ISO C has no cast from void * to a function
    if (k->code) ct__code_publish(k->code, k->fn);
    return true;
}

static bool build_write_group(const job *j, int group, ct_err *err) {
    CT_TEXT text = {0};
    const char **kernels = ct__malloc(j->n * sizeof *kernels);
    if (!kernels) return ct__err_memory(err, CT_NOWHERE, "cpu", j->n * sizeof *kernels);
    size_t n = 0;
    for (size_t i = (size_t)group; i < j->n; i += (size_t)j->groups)
        kernels[n++] = j->kernels[j->missing[i]].text;
    ct__prelude_add(&text, kernels, n);
    for (size_t i = 0; i < n; i++) ct__text_add(&text, kernels[i]);
    ct__free(kernels);
    char path[4200];
    snprintf(path, sizeof path, "%s/g%d.c", j->folder, group);
    return text.failed ? ct__err_memory(err, CT_NOWHERE, "cpu", text.n)
                       : ct__file_replace(path, text.s, text.n, 0600, err);
}

// Reports that the compiler succeeded but the system does not let its output run.
static bool build_report_not_allowed(const job *j, const char *why, ct_err *err) {
    ct__err(err, CT_E_FILE, CT_NOWHERE, "cpu", "compiled kernels cannot be loaded: %s", why);
    return ct__err_hint(
        err,
        "%s, memory and /tmp may hold no programs (mounted noexec?): set COTAN_CACHE_DIR "
        "or TMPDIR to a folder that may",
        j->cache->folder[0] ? j->cache->folder : "TMPDIR");
}

static bool build_load_group(const job *j, int group, ct_err *err) {
    char path[4200], why[CT_CACHE_WHY];
    snprintf(path, sizeof path, "%s/g%d.so", j->folder, group);
    if (!ct__cache_seal(path, err)) return false;
    void *library = ct__cache_load_file(j->cache, path, why);
    if (!library && strstr(why, "failed to map segment"))
        return build_report_not_allowed(j, why, err);
    for (size_t i = (size_t)group; i < j->n; i += (size_t)j->groups) {
        ct__kernel_source *k = &j->kernels[j->missing[i]];
        if (!build_publish(k, library))
            return ct__err(err, CT_E_COMPILER, CT_NOWHERE, "cpu",
                           "no working C compiler: what %s made cannot be loaded: %s", j->cc->path,
                           library ? "it lacks a kernel" : why);
        k->compiled = true;
        if (j->uncached) continue;
        ct__counters.kernels_compiled++;
        ct__cache_add(j->cache, path, k->code->key);
    }
    return true;
}

enum {
    BYTES_PER_GROUP = 128 << 10,
    BYTES_PER_KERNEL = 64 << 10
}; // disk space that compiling takes at most

static uint64_t build_disk_bytes(const job *j) {
    return (uint64_t)j->groups * BYTES_PER_GROUP + (uint64_t)j->n * BYTES_PER_KERNEL;
}

// ------------------------------------------------------------------------------- what it takes

static _Atomic uint64_t compile_ns = 50000000; // per kernel; a guess until one was compiled

uint64_t ct__cpu_compile_ns(void) { return compile_ns; }

static uint64_t build_kernels_per_group(const job *j) {
    return (j->n + (size_t)j->groups - 1) / (size_t)j->groups + CT_CC_START;
}

// Sets when each kernel's code is expected.
static void build_announce(const job *j, uint64_t now) {
    for (size_t i = 0; i < j->n; i++) {
        ct_cpu_code *code = j->kernels[j->missing[i]].code;
        if (code) atomic_store(&code->ready_by, now + build_kernels_per_group(j) * compile_ns);
    }
}

// Averages with the earlier estimate, the latest run counting half, since a machine's load changes.
static void build_update_compile_ns(const job *j, uint64_t begin) {
    static atomic_bool measured;
    uint64_t each = ((uint64_t)(ct__now() * 1e9) - begin) / build_kernels_per_group(j);
    compile_ns = atomic_exchange(&measured, true) ? (compile_ns + each) / 2 : each;
}

// Returns false without an error if no folder was found (`refused`).
static bool build_compile(job *j, ct_err *err) {
    static atomic_flag trimmed = ATOMIC_FLAG_INIT; // the cache is trimmed once a process
    j->refused = ct__cache_make_work_folder(j->cache, build_disk_bytes(j), j->folder);
    if (j->refused) return false;
    bool ok = true;
    uint64_t begin = (uint64_t)(ct__now() * 1e9);
    build_announce(j, begin);
    for (int g = 0; ok && g < j->groups; g++) ok = build_write_group(j, g, err);
    ok = ok && ct__cc_run(j->cc, j->folder, j->groups, err);
    for (int g = 0; ok && g < j->groups; g++) ok = build_load_group(j, g, err);
    ct__cache_remove_work_folder(j->folder);
    if (ok && !atomic_flag_test_and_set(&trimmed)) ct__cache_trim(j->cache, CT_CACHE_LIMIT);
    if (ok) build_update_compile_ns(j, begin);
    counts.runs += (uint64_t)j->groups;
    if (ok) counts.compiled += j->n;
    return ok;
}

static bool build_load_from_disk(const job *j, ct__kernel_source *k) {
    void *library = ct__cache_load(j->cache, k->code->key);
    if (build_publish(k, library)) {
        counts.loaded++;
        ct__counters.kernels_loaded++;
        return true;
    }
    if (library && !dlsym(library, k->name)) // intact, but another kernel's
        ct__cache_drop(j->cache, k->code->key);
    return false;
}

static ct_hash build_key_of(const job *j, size_t missing) {
    return j->kernels[j->missing[missing]].code->key;
}

// Moves those of the first n missing kernels that this process locks to the front; the others are
// being compiled by another process. After a wait it tries to lock the first one alone: while that
// fails, the others are not tried. Returns how many are locked.
static size_t build_lock_entries(job *j, size_t n, bool waited, bool timed_out) {
    size_t locked = 0;
    for (size_t i = 0; i < n; i++) {
        if (!ct__cache_lock(j->cache, build_key_of(j, i)) && !timed_out) {
            if (waited && i == 0) break;
            continue;
        }
        size_t at = j->missing[i];
        j->missing[i] = j->missing[locked];
        j->missing[locked++] = at;
    }
    return locked;
}

// Compiles those of the first n that no process has added since the disk was read.
static bool build_compile_new(job *j, size_t n, ct_err *err) {
    j->n = 0;
    for (size_t i = 0; i < n; i++)
        if (!build_load_from_disk(j, &j->kernels[j->missing[i]])) {
            size_t at = j->missing[i];
            j->missing[i] = j->missing[j->n];
            j->missing[j->n++] = at;
        }
    // Starting a compiler and reading the prelude takes about as long as two kernels.
    size_t groups = (j->n + 1) / 2, most = j->threads > 0 ? (size_t)j->threads : 1;
    j->groups = (int)(groups < most ? groups : most);
    return j->n == 0 || build_compile(j, err);
}

enum { POLL_MS = 20, TIMEOUT_MS = 60000 };

// Compiles m kernels except those that another process compiles: for these it waits until they are
// there, or that process ended, or nothing came for a minute (it may be stopped).
static bool build_compile_or_wait(job *j, size_t m, ct_err *err) {
    for (int waited = 0; m;) {
        size_t locked = build_lock_entries(j, m, waited > 0, waited >= TIMEOUT_MS);
        bool ok = build_compile_new(j, locked, err);
        for (size_t i = 0; i < locked; i++) ct__cache_unlock(j->cache, build_key_of(j, i));
        if (!ok) return false;
        m -= locked;
        memmove(j->missing, j->missing + locked, m * sizeof *j->missing);
        waited = locked ? 0 : waited + POLL_MS;
        if (waited && j->stop && atomic_load(j->stop))
            return ct__err(err, CT_E_INTERRUPTED, CT_NOWHERE, "cpu", "the process ends");
        if (waited) nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
    }
    return true;
}

static bool build_interpret(ct__kernel_source *k, const char *why, const char *hint, ct_err *err) {
    k->code = ct__code_find(ct__hash_bytes(k->text, strlen(k->text), (ct_hash){1, 1}), err);
    k->fn = NULL;
    k->compiled = false;
    k->why = why;
    k->hint = hint;
    if (!k->code) return false;
    ct_interp *known = atomic_load(&k->code->interp);
    if (!known) {
        ct_interp *made = ct__interp_make(k->ir, err);
        if (!made) return false;
        if (atomic_compare_exchange_strong(&k->code->interp, &known, made)) {
            known = made;
            counts.interpreted++;
        } else {
            ct__interp_free(made); // another thread was faster
        }
    }
    k->interp = known;
    return true;
}

static bool build_is_interpretable(const ct__kernel_source *kernels, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!kernels[i].ir) return false;
    return true;
}

static const char free_space_hint[] =
    "free space in one of them, or set TMPDIR to a folder with free space";

static bool build_report_no_folder(const job *j, ct_err *err) {
    ct__err(err, CT_E_FILE, CT_NOWHERE, "cpu",
            "no folder to compile kernels in: neither the cache, TMPDIR nor /tmp: %s", j->refused);
    return ct__err_hint(err, "%s", free_space_hint);
}

// Interprets those of n that are still missing if there is no folder to compile in.
static bool build_interpret_rest(const job *j, size_t n, ct_err *err) {
    bool ok = build_is_interpretable(j->kernels, n) || build_report_no_folder(j, err);
    for (size_t i = 0; i < n && ok; i++)
        if (!(j->kernels[i].fn = ct__code_fn(j->kernels[i].code)))
            ok = build_interpret(
                &j->kernels[i],
                "no folder takes what is compiled, neither the cache, TMPDIR nor /tmp",
                free_space_hint, err);
    return ok;
}

// Claims the kernels that are not ready and makes them; after a failure none stays claimed.
// `claimed` (n) is scratch.
static bool build_make_missing(job *j, size_t n, size_t *claimed, ct_err *err) {
    size_t all = 0, m = 0;
    for (size_t i = 0; i < n; i++)
        if (ct__code_claim(j->kernels[i].code)) claimed[all++] = i;
    for (size_t i = 0; i < all; i++)
        if (!build_load_from_disk(j, &j->kernels[claimed[i]])) j->missing[m++] = claimed[i];
    for (size_t i = 0; i < m; i++) ct__code_mark_pending(j->kernels[j->missing[i]].code);
    bool ok = m == 0 || build_compile_or_wait(j, m, err);
    for (size_t i = 0; i < all && !ok; i++)
        if (!j->kernels[claimed[i]].fn) {
            ct__code_clear_pending(j->kernels[claimed[i]].code);
            ct__code_abandon(j->kernels[claimed[i]].code);
        }
    return ok;
}

// Returns the first that is not ready; NULL if all are.
static ct_cpu_code *build_first_unready(const ct__kernel_source *kernels, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!ct__code_fn(kernels[i].code)) return kernels[i].code;
    return NULL;
}

// Makes all kernels, which have their entries.
static bool build_make_all(job *j, size_t n, size_t *claimed, ct_err *err) {
    for (ct_cpu_code *code; (code = build_first_unready(j->kernels, n)); ct__code_await(code))
        if (!build_make_missing(j, n, claimed, err))
            return j->refused && build_interpret_rest(j, n, err);
    for (size_t i = 0; i < n; i++) j->kernels[i].fn = ct__code_fn(j->kernels[i].code);
    return true;
}

static bool build_interpret_all(ct__kernel_source *kernels, size_t n, const char *why,
                                ct_err *err) {
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++)
        ok = build_interpret(&kernels[i], why, ct__cc_missing_hint(), err);
    return ok;
}

// Finds the kernels' entries by text and toolchain.
static bool build_find_entries(ct__kernel_source *kernels, size_t n, ct_hash toolchain,
                               ct_err *err) {
    for (size_t i = 0; i < n; i++) {
        ct__kernel_source *k = &kernels[i];
        k->interp = NULL;
        k->compiled = false;
        k->why = k->hint = k->failure = NULL;
        k->code = ct__code_find(ct__hash_bytes(k->text, strlen(k->text), toolchain), err);
        if (!k->code) return false;
        k->fn = ct__code_fn(k->code);
        counts.known += k->fn != NULL;
    }
    return true;
}

static bool build_unpacked(ct__kernel_source *kernels, size_t n, int threads, size_t *missing,
                           ct_err *err) {
    ct_toolchain t;
    const char *missing_cc = build_is_interpretable(kernels, n) ? ct__cc_missing() : NULL;
    if (missing_cc) return build_interpret_all(kernels, n, missing_cc, err);
    if (!ct__toolchain_find(&t, err) || !build_find_entries(kernels, n, t.key, err)) return false;
    job j = {
        .kernels = kernels, .missing = missing, .threads = threads, .cc = &t.cc, .cache = &t.cache};
    bool ok = build_make_all(&j, n, missing + n, err);
    ct__cache_close(&t.cache);
    return ok;
}

static bool build_allocate_and_build(ct__kernel_source *kernels, size_t n, int threads,
                                     ct_err *err) {
    size_t *missing = ct__malloc(2 * n * sizeof *missing);
    if (!missing) return ct__err_memory(err, CT_NOWHERE, "cpu", 2 * n * sizeof *missing);
    bool ok = build_unpacked(kernels, n, threads, missing, err);
    ct__free(missing);
    return ok;
}

bool ct__cpu_build_entries(ct__kernel_source *kernels, size_t n, const ct_toolchain *toolchain,
                           const atomic_bool *stop, ct_err *err) {
    ct_cache cache = toolchain->cache; // a copy, since the locks are held through it
    size_t *missing = ct__malloc(2 * n * sizeof *missing);
    if (!missing) return ct__err_memory(err, CT_NOWHERE, "cpu", 2 * n * sizeof *missing);
    job j = {.kernels = kernels,
             .missing = missing,
             .cc = &toolchain->cc,
             .cache = &cache,
             .stop = stop};
    bool ok = build_make_missing(&j, n, missing + n, err) ||
              (j.refused && build_report_no_folder(&j, err));
    ct__cache_close(&cache);
    ct__free(missing);
    return ok;
}

// Loads a kernel from the disk if it is there; else queues it, unless it failed before.
static bool build_load_or_queue(const job *j, ct__kernel_source *k, const ct_toolchain *toolchain,
                                ct_err *err) {
    if (!k->fn && ct__code_claim(k->code) && !build_load_from_disk(j, k)) ct__code_abandon(k->code);
    if (k->fn || (k->fn = ct__code_fn(k->code))) return true;
    k->failure = atomic_load(&k->code->failure);
    if (k->failure) return true;
    return ct__queue_add(k, toolchain, err);
}

static bool build_async(ct__kernel_source *kernels, size_t n, ct_err *err) {
    ct_toolchain found;
    const char *missing_cc = build_is_interpretable(kernels, n) ? ct__cc_missing() : NULL;
    if (missing_cc) return build_interpret_all(kernels, n, missing_cc, err);
    if (!ct__toolchain_find(&found, err) || !build_find_entries(kernels, n, found.key, err))
        return false;
    const ct_toolchain *interned =
        build_first_unready(kernels, n) ? ct__toolchain_intern(&found, err) : &found;
    const job j = {.kernels = kernels, .cc = &found.cc, .cache = &found.cache};
    bool ok = interned != NULL;
    for (size_t i = 0; i < n && ok; i++) ok = build_load_or_queue(&j, &kernels[i], interned, err);
    return ok;
}

// ------------------------------------------------------------------------------------------ packed

// Returns false if no pack has the kernel. Sets *ok to false if there is no memory.
static bool build_find_packed(ct__kernel_source *k, bool *ok, ct_err *err) {
    const ct__kernel_fn fn = ct__pack_find(k->text);
    if (!fn) return false;
    *k = (ct__kernel_source){.name = k->name, .text = k->text, .ir = k->ir, .fn = fn};
    k->code = ct__code_find(ct__pack_key(k->text), err);
    *ok = k->code != NULL;
    if (*ok && ct__code_claim(k->code)) {
        ct__code_publish(k->code, fn);
        ct__counters.kernels_packed++;
    }
    return true;
}

// Packed kernels need neither compiler nor disk. threads 0: the others are built in the background.
// `rest` and `indices` (n) are scratch.
static bool build_with_packs(ct__kernel_source *kernels, size_t n, int threads,
                             ct__kernel_source *rest, size_t *indices, ct_err *err) {
    size_t left = 0;
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        if (build_find_packed(&kernels[i], &ok, err)) continue;
        indices[left] = i;
        rest[left++] = kernels[i];
    }
    ok = ok && (!left || (threads ? build_allocate_and_build(rest, left, threads, err)
                                  : build_async(rest, left, err)));
    for (size_t i = 0; i < left && ok; i++) kernels[indices[i]] = rest[i];
    return ok;
}

static bool build_request(ct__kernel_source *kernels, size_t n, int threads, ct_err *err) {
    if (!ct__pack_target())
        return threads ? build_allocate_and_build(kernels, n, threads, err)
                       : build_async(kernels, n, err);
    ct__kernel_source *rest = ct__malloc(n * (sizeof *rest + sizeof(size_t)));
    if (!rest) return ct__err_memory(err, CT_NOWHERE, "cpu", n * sizeof *rest);
    const bool ok = build_with_packs(kernels, n, threads, rest, (size_t *)(rest + n), err);
    ct__free(rest);
    return ok;
}

bool ct__cpu_build(ct__kernel_source *kernels, size_t n, int threads, ct_err *err) {
    return !n || build_request(kernels, n, threads > 0 ? threads : 1, err);
}
bool ct__cpu_build_async(ct__kernel_source *kernels, size_t n, ct_err *err) {
    return !n || build_request(kernels, n, 0, err);
}

bool ct__cpu_build_uncached(ct__kernel_source *kernel, ct_err *err) {
    ct_cc cc;
    ct_cache cache;
    ct_err ignored = {0}; // the cache's errors do not matter here
    size_t first = 0;
    if (!ct__cc_find(&cc, err)) return false;
    if (!ct__cache_open(&cache, &ignored)) ct__cache_disable(&cache);
    kernel->code = NULL;
    job j = {.kernels = kernel,
             .missing = &first,
             .n = 1,
             .groups = 1,
             .cc = &cc,
             .cache = &cache,
             .uncached = true};
    return build_compile(&j, err) || (j.refused && build_report_no_folder(&j, err));
}

ct__build_counts ct__cpu_build_counts(void) {
    return (ct__build_counts){.compiled = counts.compiled,
                              .loaded = counts.loaded,
                              .known = counts.known,
                              .runs = counts.runs,
                              .interpreted = counts.interpreted};
}

void ct__cpu_build_forget(void) { ct__codes_forget(); }

void ct__cpu_build_end(void) {
    ct__queue_close();
    ct__codes_end();
    ct__toolchains_end();
    ct__cache_unload();
    ct__pack_end();
    ct__queue_open();
}
