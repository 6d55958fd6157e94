// Checks packed kernels' files and loads one level of each into memory.
#define _GNU_SOURCE
#include "backend/cpu/pack.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "backend/backend.h"
#include "backend/cpu/prelude.h"
#include "base/mem.h"
#include "base/os.h"

#define AVX512 "-march=x86-64-v4", "-mavx512vnni"
const ct_level ct__levels[CT_PACK_LEVELS] = {
    {"AVX2",
     {"-march=x86-64-v3"},
     {.lanes = 8, .registers = 16, CT_TARGET_CPU_TASKS, .gflops = 60}},
    {"AVX-512", {AVX512}, {.lanes = 16, .registers = 32, CT_TARGET_CPU_TASKS, .gflops = 160}},
    {"AVX-512 with BF16",
     {AVX512, "-mavx512bf16"},
     {.pairs = true, .lanes = 16, .registers = 32, CT_TARGET_CPU_TASKS, .gflops = 160}},
};

const char ct__pack_magic[8] = {'c', 'o', 't', 'a', 'n', 'p', 'k', '1'};

typedef struct pack {
    struct pack *next;
    const ct_pack_kernel *kernels; // (n) in the pack's memory, after the span
    size_t n;
    char *memory;
    size_t bytes;
} pack;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // held while loading
static _Atomic(pack *) packs;
static ct_target target; // of all packs
static uint64_t cores;
static int current_level;

// ------------------------------------------------------------------------------------- processors

#if defined(__x86_64__)
// True if the processor has what x86-64-v3 requires besides vectors: movbe, f16c and lzcnt.
static bool pack_has_rest_of_v3(void) {
    unsigned a, b, c, d, more;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !__get_cpuid(0x80000001, &a, &b, &more, &d))
        return false;
    return (c >> 22 & 1) && (c >> 29 & 1) && (more >> 5 & 1);
}

static bool pack_level_is_supported(int which) {
    const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                    pack_has_rest_of_v3();
    const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
    return v3 && (which < 1 || v4) && (which < 2 || __builtin_cpu_supports("avx512bf16"));
}
#else
static bool pack_level_is_supported(int which) { return (void)which, false; }
#endif

// ----------------------------------------------------------------------------------------- the file

ct_hash ct__pack_key(const char *text) {
    return ct__hash_bytes(text, strlen(text), (ct_hash){'p', 'k'});
}

void ct__pack_identity(ct_pack_header *h) {
    *h = (ct_pack_header){
        .prelude = ct__hash_bytes(ct__cpu_prelude, strlen(ct__cpu_prelude), (ct_hash){0, 0})};
    memcpy(h->magic, ct__pack_magic, sizeof h->magic);
    snprintf(h->version, sizeof h->version, "%s", CT_VERSION);
    snprintf(h->numerics, sizeof h->numerics, "%s", CT_NUMERICS_KERNELS);
}

static bool pack_report_mismatch(const char *path, ct_err *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool pack_report_mismatch(const char *path, ct_err *err, const char *format, ...) {
    char what[300];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    ct__err(err, CT_E_FORMAT, CT_NOWHERE, "kernels", "%.300s: %s", path, what);
    return ct__err_hint(err, "recreate it with cotan pack");
}

static bool pack_report_damage(const char *path, ct_err *err) {
    return pack_report_mismatch(path, err,
                                "the file is damaged: what it holds is not what was written");
}

// Copies a text of the file for a message, with unprintable bytes replaced: another program may
// have written them.
static const char *pack_printable(const char *from, size_t n, char to[65]) {
    size_t i = 0;
    for (; i < n && i < 64 && from[i]; i++)
        to[i] = (char)(from[i] < ' ' || from[i] > '~' ? '?' : from[i]);
    to[i] = '\0';
    return to;
}

static bool pack_check_program(const ct_pack_header *h, const char *path, ct_err *err) {
    char theirs[65];
    ct_pack_header own;
    ct__pack_identity(&own);
    if (strncmp(h->version, own.version, sizeof own.version) != 0)
        return pack_report_mismatch(path, err, "it was packed by Cotan %s, this is %s",
                                    pack_printable(h->version, sizeof h->version, theirs),
                                    own.version);
    if (strncmp(h->numerics, own.numerics, sizeof own.numerics) != 0)
        return pack_report_mismatch(
            path, err, "its kernels compute by the rules \"%s\", this program by \"%s\"",
            pack_printable(h->numerics, sizeof h->numerics, theirs), own.numerics);
    if (!ct__hash_equal(h->prelude, own.prelude))
        return pack_report_mismatch(path, err, "it was packed by another build of Cotan %s",
                                    own.version);
    return true;
}

ct_hash ct__pack_header_hash(const ct_pack_header *h) {
    ct_pack_header copy = *h;
    copy.hash = (ct_hash){0, 0};
    const ct_hash begin = ct__hash_bytes(&copy, sizeof copy, (ct_hash){0, 0});
    return ct__hash_bytes(h + 1, h->n_levels * sizeof(ct_pack_level), begin);
}

bool ct__pack_check_header(const void *bytes, size_t n, const char *path,
                           const ct_pack_level **levels, size_t *n_levels, ct_err *err) {
    const ct_pack_header *h = bytes;
    if (n < sizeof h->magic || memcmp(bytes, ct__pack_magic, sizeof h->magic) != 0)
        return pack_report_mismatch(path, err, "it is no file of packed kernels");
    if (n < sizeof *h || n < h->bytes)
        return pack_report_mismatch(path, err, "the file ends early: %zu bytes of it are there", n);
    if (n > h->bytes)
        return pack_report_mismatch(path, err, "the file has data after its end, %llu bytes",
                                    (unsigned long long)h->bytes);
    if (!pack_check_program(h, path, err)) return false;
    if (h->n_levels > CT_PACK_LEVELS || n - sizeof *h < h->n_levels * sizeof(ct_pack_level) ||
        !ct__hash_equal(ct__pack_header_hash(h), h->hash))
        return pack_report_damage(path, err);
    *levels = (const ct_pack_level *)(h + 1);
    *n_levels = h->n_levels;
    for (size_t i = 0; i < *n_levels; i++) {
        const ct_pack_level *l = &(*levels)[i];
        if (l->level >= CT_PACK_LEVELS || l->pairs > CT_PAIRS_WITH || l->begin % 8 ||
            l->begin > n || l->bytes > n - l->begin || !l->cores || l->cores >> 7)
            return pack_report_damage(path, err);
    }
    return true;
}

// Returns `count` elements of `size` bytes at *at, and moves *at past them. NULL: they do not fit.
static const void *pack_take_table(const char *section, size_t n, size_t *at, uint64_t count,
                                   size_t size) {
    if (count > (n - *at) / size) return NULL;
    const void *begin = section + *at;
    *at += (size_t)count * size;
    return begin;
}

static uint64_t pack_page_of(uint64_t at) { return at / CT_PACK_PAGE; }

static bool pack_check_segments(const ct_pack_tables *t, size_t n) {
    uint64_t page = 0; // the first free page
    for (uint64_t i = 0; i < t->section->n_segments; i++) {
        const ct_pack_segment *p = &t->segments[i];
        if (p->executable > 1 || !p->bytes || p->from > n || p->bytes > n - p->from ||
            p->at > t->section->span || p->bytes > t->section->span - p->at ||
            pack_page_of(p->at) < page)
            return false;
        page = pack_page_of(p->at + p->bytes - 1) + 1;
    }
    return true;
}

// True if n bytes at this offset are in a segment that is executable, or not, as required.
static bool pack_is_in_segment(const ct_pack_tables *t, uint64_t at, uint64_t n, bool executable) {
    size_t low = 0, high = t->section->n_segments;
    while (low < high) { // finds the last segment that begins at or before it
        const size_t middle = (low + high) / 2;
        if (t->segments[middle].at <= at)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low) return false;
    const ct_pack_segment *p = &t->segments[low - 1];
    return at - p->at < p->bytes && n <= p->bytes - (at - p->at) && p->executable == executable;
}

static int pack_compare_keys(ct_hash a, ct_hash b) {
    return a.hi != b.hi ? (a.hi < b.hi ? -1 : 1) : a.lo < b.lo ? -1 : a.lo > b.lo;
}

static bool pack_check_all_tables(const ct_pack_tables *t, size_t n) {
    const ct_pack_section *s = t->section;
    if (!pack_check_segments(t, n)) return false;
    for (uint64_t i = 0; i < s->n_kernels; i++)
        if (!pack_is_in_segment(t, t->kernels[i].at, 1, true) ||
            (i && pack_compare_keys(t->kernels[i - 1].key, t->kernels[i].key) >= 0))
            return false;
    for (uint64_t i = 0; i < s->n_relocations; i++)
        if (!pack_is_in_segment(t, t->relocations[i].at, 8, false) ||
            t->relocations[i].value > s->span)
            return false;
    for (uint64_t i = 0; i < s->n_imports; i++)
        if (!pack_is_in_segment(t, t->imports[i].at, 8, false) ||
            !memchr(t->imports[i].name, 0, sizeof t->imports[i].name))
            return false;
    return true;
}

bool ct__pack_check_tables(const void *section, size_t n, const char *path, ct_pack_tables *t,
                           ct_err *err) {
    enum { MAX_SPAN = 1 << 30 };
    size_t at = 0;
    *t = (ct_pack_tables){0};
    t->section = pack_take_table(section, n, &at, 1, sizeof *t->section);
    if (!t->section || t->section->span > MAX_SPAN) return pack_report_damage(path, err);
    t->kernels = pack_take_table(section, n, &at, t->section->n_kernels, sizeof *t->kernels);
    t->segments =
        t->kernels ? pack_take_table(section, n, &at, t->section->n_segments, sizeof *t->segments)
                   : NULL;
    t->relocations = t->segments ? pack_take_table(section, n, &at, t->section->n_relocations,
                                                   sizeof *t->relocations)
                                 : NULL;
    t->imports = t->relocations
                     ? pack_take_table(section, n, &at, t->section->n_imports, sizeof *t->imports)
                     : NULL;
    return (t->imports && pack_check_all_tables(t, n)) || pack_report_damage(path, err);
}

// ----------------------------------------------------------------------------------------- in memory

void *ct__pack_import_address(const char *name) {
    static const struct {
        const char *name;
        void (*function)(void);
    } imports[] = {
#define IMPORT(f) {#f, (void (*)(void))f}
        IMPORT(memcpy), IMPORT(memmove), IMPORT(memset), IMPORT(memcmp), IMPORT(fmod),
        IMPORT(fmodf),  IMPORT(fma),     IMPORT(fmaf),   IMPORT(floor),  IMPORT(floorf),
        IMPORT(ceil),   IMPORT(ceilf),   IMPORT(trunc),  IMPORT(truncf), IMPORT(rint),
        IMPORT(rintf),  IMPORT(sqrt),    IMPORT(sqrtf),
    };
    void *address = NULL;
    for (size_t i = 0; i < sizeof imports / sizeof *imports && !address; i++)
        if (strcmp(imports[i].name, name) == 0)
            memcpy(&address, &imports[i].function, sizeof address);
    return address;
}

// Fills one block: the span, then the table of kernels.
static bool pack_fill_memory(const char *section, const ct_pack_tables *t, char *memory,
                             const char *path, ct_err *err) {
    for (uint64_t i = 0; i < t->section->n_segments; i++)
        memcpy(memory + t->segments[i].at, section + t->segments[i].from, t->segments[i].bytes);
    for (uint64_t i = 0; i < t->section->n_relocations; i++) {
        const uint64_t value = (uintptr_t)memory + t->relocations[i].value;
        memcpy(memory + t->relocations[i].at, &value, sizeof value);
    }
    for (uint64_t i = 0; i < t->section->n_imports; i++) {
        void *function = ct__pack_import_address(t->imports[i].name);
        char name[65];
        if (!function)
            return pack_report_mismatch(
                path, err, "its kernels call %s, which this program lends to none",
                pack_printable(t->imports[i].name, sizeof t->imports[i].name, name));
        memcpy(memory + t->imports[i].at, &function, sizeof function);
    }
    return true;
}

// Makes all memory read-only, and only code executable.
static bool pack_protect(const ct_pack_tables *t, char *memory, size_t bytes) {
    if (mprotect(memory, bytes, PROT_READ) != 0) return false;
    for (uint64_t i = 0; i < t->section->n_segments; i++) {
        const ct_pack_segment *p = &t->segments[i];
        char *begin = memory + pack_page_of(p->at) * CT_PACK_PAGE;
        const size_t n = (size_t)(memory + p->at + p->bytes - begin);
        if (p->executable && mprotect(begin, n, PROT_READ | PROT_EXEC) != 0) return false;
    }
    return true;
}

static pack *pack_map(const char *section, const ct_pack_tables *t, const char *path, ct_err *err) {
    const size_t span = (t->section->span + CT_PACK_PAGE - 1) / CT_PACK_PAGE * CT_PACK_PAGE,
                 table_bytes = t->section->n_kernels * sizeof *t->kernels,
                 bytes = span + table_bytes + CT_PACK_PAGE;
    pack *p = ct__calloc(1, sizeof *p);
    char *memory =
        p ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : NULL;
    if (!p || memory == MAP_FAILED) {
        ct__free(p);
        return ct__null_memory(err, CT_NOWHERE, "kernels", bytes);
    }
    *p = (pack){.kernels = (const ct_pack_kernel *)(memory + span),
                .n = t->section->n_kernels,
                .memory = memory,
                .bytes = bytes};
    bool ok = pack_fill_memory(section, t, memory, path, err);
    memcpy(memory + span, t->kernels, table_bytes);
    if (ok && !pack_protect(t, memory, bytes)) {
        ct__err(err, CT_E_FILE, CT_NOWHERE, "kernels",
                "%.300s: the system lets no memory run as code: %s", path, strerror(errno));
        ok = false;
    }
    if (ok) return p;
    munmap(memory, bytes);
    ct__free(p);
    return NULL;
}

// ------------------------------------------------------------------------------------------- loading

// Refuses a file that others may write, since it is code of this process.
static bool pack_check_owner(const char *path, ct_err *err) {
    struct stat st;
    if (stat(path, &st) != 0) return ct__err_system(err, path, "open");
    if (!(st.st_mode & (S_IWGRP | S_IWOTH))) return true;
    ct__err(err, CT_E_FILE, CT_NOWHERE, "kernels", "%.300s: others may write it, and it is code",
            path);
    return ct__err_hint(err, "chmod go-w takes them the right");
}

static bool pack_pairs_match(const ct_pack_level *l, bool pairs) {
    return l->pairs == CT_PAIRS_ANY || pairs == (l->pairs == CT_PAIRS_WITH);
}

// Returns the best level that this processor supports.
static const ct_pack_level *pack_choose_level(const ct_pack_level *levels, size_t n, bool pairs,
                                              const char *path, ct_err *err) {
    const ct_pack_level *best = NULL;
    CT_TEXT has = {0};
    for (size_t i = 0; i < n; i++) {
        const ct_pack_level *l = &levels[i];
        ct__textf(&has, "%s%s", has.n ? ", " : "", ct__levels[l->level].name);
        if (pack_level_is_supported((int)l->level) && pack_pairs_match(l, pairs) &&
            (!best || l->level > best->level))
            best = l;
    }
    if (!best)
        pack_report_mismatch(path, err,
                             "it has kernels for processors with %s, and this one is none of them",
                             has.n && !has.failed ? has.s : "nothing");
    return best;
}

// Returns the smallest available number of cores that is not below this machine's, else the
// largest.
static int pack_choose_cores(uint64_t available, int here) {
    int most = 1;
    for (int i = 0; i < 7; i++) {
        if (!(available >> i & 1)) continue;
        most = 1 << i;
        if (most >= here) break;
    }
    return most;
}

static bool pack_load_level(const ct_pack_level *l, const char *section, bool pairs,
                            const char *path, ct_err *err) {
    ct_pack_tables t;
    if (!ct__hash_equal(ct__hash_bytes(section, l->bytes, (ct_hash){0, 0}), l->hash))
        return pack_report_damage(path, err);
    if (!ct__pack_check_tables(section, l->bytes, path, &t, err)) return false;
    pack *before = atomic_load(&packs);
    if (before && ((int)l->level != current_level || l->cores != cores))
        return ct__err(err, CT_E_USAGE, CT_NOWHERE, "kernels",
                       "%.300s: its kernels are for %s, or other numbers of cores, those that were "
                       "loaded before for %s",
                       path, ct__levels[l->level].name, ct__levels[current_level].name);
    pack *p = pack_map(section, &t, path, err);
    if (!p) return false;
    if (!before) {
        current_level = (int)l->level;
        cores = l->cores;
        target = ct__levels[current_level].target;
        target.cores = pack_choose_cores(cores, ct__cores_allowed());
        target.pairs = pairs;
    }
    p->next = before;
    atomic_store(&packs, p);
    return true;
}

bool ct__pack_load(const char *path, ct_err *err) {
    const void *bytes = NULL;
    size_t n = 0, n_levels = 0;
    const ct_pack_level *levels;
    bool pairs;
    if (getauxval(AT_SECURE))
        return ct__err(err, CT_E_FILE, CT_NOWHERE, "kernels",
                       "a setuid program loads no code of a file's");
    if (!ct__cpu_pairs(&pairs, err) || !pack_check_owner(path, err) ||
        !ct__file_map(path, &bytes, &n, err))
        return false;
    pthread_mutex_lock(&lock);
    bool ok = ct__pack_check_header(bytes, n, path, &levels, &n_levels, err);
    const ct_pack_level *l = ok ? pack_choose_level(levels, n_levels, pairs, path, err) : NULL;
    ok = l && pack_load_level(l, (const char *)bytes + l->begin, pairs, path, err);
    pthread_mutex_unlock(&lock);
    ct__file_unmap(bytes, n);
    return ok;
}

static atomic_bool environment_loaded; // COTAN_KERNELS is loaded

bool ct__pack_environment(ct_err *err) {
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    const char *names = getauxval(AT_SECURE) ? NULL : getenv("COTAN_KERNELS");
    bool ok = true;
    pthread_mutex_lock(&once);
    for (const char *at = names; at && *at && !environment_loaded && ok;) {
        char path[4096];
        const size_t n = strcspn(at, ":");
        snprintf(path, sizeof path, "%.*s", (int)n, at);
        ok = !n || ct__pack_load(path, err);
        at += n + (at[n] == ':');
    }
    environment_loaded = ok;
    pthread_mutex_unlock(&once);
    return ok;
}

const ct_target *ct__pack_target(void) { return atomic_load(&packs) ? &target : NULL; }
const char *ct__pack_level(void) {
    return atomic_load(&packs) ? ct__levels[current_level].name : NULL;
}

ct__kernel_fn ct__pack_find(const char *text) {
    const pack *p = atomic_load(&packs);
    const ct_hash key = p ? ct__pack_key(text) : (ct_hash){0, 0};
    for (; p; p = p->next) {
        size_t low = 0, high = p->n;
        while (low < high) {
            const size_t middle = (low + high) / 2;
            const int order = pack_compare_keys(p->kernels[middle].key, key);
            if (order == 0) {
                ct__kernel_fn fn;
                const char *at = p->memory + p->kernels[middle].at;
                memcpy(&fn, &at, sizeof fn); // ISO C has no cast from void * to a function
                return fn;
            }
            if (order < 0)
                low = middle + 1;
            else
                high = middle;
        }
    }
    return NULL;
}

void ct__pack_end(void) {
    for (pack *p = atomic_exchange(&packs, NULL), *next; p; p = next) {
        next = p->next;
        munmap(p->memory, p->bytes);
        ct__free(p);
    }
    environment_loaded = false;
}
