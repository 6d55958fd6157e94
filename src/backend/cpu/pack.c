// Packed kernels: the file is checked, and one level of it brought into memory.
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
    const ct_pack_kernel *kernels; // (n) in memory of its own, of which the code is the first
    size_t n;
    char *memory;
    size_t bytes;
} pack;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of what loads
static _Atomic(pack *) packs;
static ct_target target; // of all of them
static uint64_t cores;
static int level_now;

// ------------------------------------------------------------------------------------- processors

#if defined(__x86_64__)
// What x86-64-v3 has beside vectors: movbe, f16c and lzcnt.
static bool has_rest_of_v3(void) {
    unsigned a, b, c, d, more;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !__get_cpuid(0x80000001, &a, &b, &more, &d))
        return false;
    return (c >> 22 & 1) && (c >> 29 & 1) && (more >> 5 & 1);
}

static bool runs_here(int which) {
    const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                    has_rest_of_v3();
    const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
    return v3 && (which < 1 || v4) && (which < 2 || __builtin_cpu_supports("avx512bf16"));
}
#else
static bool runs_here(int which) { return (void)which, false; }
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

static bool unlike(const char *path, ct_err *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool unlike(const char *path, ct_err *err, const char *format, ...) {
    char what[300];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    ct__err(err, CT_E_FORMAT, CT_NOWHERE, "kernels", "%.300s: %s", path, what);
    ct__err_hint(err, "cotan pack writes it anew");
    return false;
}

static bool damaged(const char *path, ct_err *err) {
    return unlike(path, err, "the file is damaged: what it holds is not what was written");
}

// A text of the file, for a sentence: what may be anything where another program wrote it.
static const char *shown(const char *from, size_t n, char to[65]) {
    size_t i = 0;
    for (; i < n && i < 64 && from[i]; i++)
        to[i] = (char)(from[i] < ' ' || from[i] > '~' ? '?' : from[i]);
    to[i] = '\0';
    return to;
}

static bool same_program(const ct_pack_header *h, const char *path, ct_err *err) {
    char theirs[65];
    ct_pack_header own;
    ct__pack_identity(&own);
    if (strncmp(h->version, own.version, sizeof own.version) != 0)
        return unlike(path, err, "it was packed by Cotan %s, this is %s",
                      shown(h->version, sizeof h->version, theirs), own.version);
    if (strncmp(h->numerics, own.numerics, sizeof own.numerics) != 0)
        return unlike(path, err, "its kernels compute by the rules \"%s\", this program by \"%s\"",
                      shown(h->numerics, sizeof h->numerics, theirs), own.numerics);
    if (!ct__hash_equal(h->prelude, own.prelude))
        return unlike(path, err, "it was packed by another build of Cotan %s", own.version);
    return true;
}

ct_hash ct__pack_header_hash(const ct_pack_header *h) {
    ct_pack_header copy = *h;
    copy.hash = (ct_hash){0, 0};
    const ct_hash begin = ct__hash_bytes(&copy, sizeof copy, (ct_hash){0, 0});
    return ct__hash_bytes(h + 1, h->n_levels * sizeof(ct_pack_level), begin);
}

bool ct__pack_header(const void *bytes, size_t n, const char *path, const ct_pack_level **levels,
                     size_t *n_levels, ct_err *err) {
    const ct_pack_header *h = bytes;
    if (n < sizeof h->magic || memcmp(bytes, ct__pack_magic, sizeof h->magic) != 0)
        return unlike(path, err, "it is no file of packed kernels");
    if (n < sizeof *h || n < h->bytes)
        return unlike(path, err, "the file ends early: %zu bytes of it are there", n);
    if (n > h->bytes)
        return unlike(path, err, "the file goes on behind its end, %llu bytes",
                      (unsigned long long)h->bytes);
    if (!same_program(h, path, err)) return false;
    if (h->n_levels > CT_PACK_LEVELS || n - sizeof *h < h->n_levels * sizeof(ct_pack_level) ||
        !ct__hash_equal(ct__pack_header_hash(h), h->hash))
        return damaged(path, err);
    *levels = (const ct_pack_level *)(h + 1);
    *n_levels = h->n_levels;
    for (size_t i = 0; i < *n_levels; i++) {
        const ct_pack_level *l = &(*levels)[i];
        if (l->level >= CT_PACK_LEVELS || l->pairs > CT_PAIRS_WITH || l->begin % 8 ||
            l->begin > n || l->bytes > n - l->begin || !l->cores || l->cores >> 7)
            return damaged(path, err);
    }
    return true;
}

// Takes `count` elements of `size` bytes from *at on. NULL: they are not there.
static const void *table(const char *section, size_t n, size_t *at, uint64_t count, size_t size) {
    if (count > (n - *at) / size) return NULL;
    const void *begin = section + *at;
    *at += (size_t)count * size;
    return begin;
}

static uint64_t page_of(uint64_t at) { return at / CT_PACK_PAGE; }

static bool parts_fit(const ct_pack_tables *t, size_t n) {
    uint64_t page = 0; // the first that is free
    for (uint64_t i = 0; i < t->section->n_parts; i++) {
        const ct_pack_part *p = &t->parts[i];
        if (p->runs > 1 || !p->bytes || p->from > n || p->bytes > n - p->from ||
            p->at > t->section->span || p->bytes > t->section->span - p->at ||
            page_of(p->at) < page)
            return false;
        page = page_of(p->at + p->bytes - 1) + 1;
    }
    return true;
}

// Is the place, with n bytes, in a part that runs, or in one that does not?
static bool is_within(const ct_pack_tables *t, uint64_t at, uint64_t n, bool runs) {
    size_t low = 0, high = t->section->n_parts;
    while (low < high) { // the last part that begins before it
        const size_t middle = (low + high) / 2;
        if (t->parts[middle].at <= at)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low) return false;
    const ct_pack_part *p = &t->parts[low - 1];
    return at - p->at < p->bytes && n <= p->bytes - (at - p->at) && p->runs == runs;
}

static int compare(ct_hash a, ct_hash b) {
    return a.hi != b.hi ? (a.hi < b.hi ? -1 : 1) : a.lo < b.lo ? -1 : a.lo > b.lo;
}

static bool tables_fit(const ct_pack_tables *t, size_t n) {
    const ct_pack_section *s = t->section;
    if (!parts_fit(t, n)) return false;
    for (uint64_t i = 0; i < s->n_kernels; i++)
        if (!is_within(t, t->kernels[i].at, 1, true) ||
            (i && compare(t->kernels[i - 1].key, t->kernels[i].key) >= 0))
            return false;
    for (uint64_t i = 0; i < s->n_bases; i++)
        if (!is_within(t, t->bases[i].at, 8, false) || t->bases[i].value > s->span) return false;
    for (uint64_t i = 0; i < s->n_imports; i++)
        if (!is_within(t, t->imports[i].at, 8, false) ||
            !memchr(t->imports[i].name, 0, sizeof t->imports[i].name))
            return false;
    return true;
}

bool ct__pack_tables(const void *section, size_t n, const char *path, ct_pack_tables *t,
                     ct_err *err) {
    enum { MOST_SPAN = 1 << 30 };
    size_t at = 0;
    *t = (ct_pack_tables){0};
    t->section = table(section, n, &at, 1, sizeof *t->section);
    if (!t->section || t->section->span > MOST_SPAN) return damaged(path, err);
    t->kernels = table(section, n, &at, t->section->n_kernels, sizeof *t->kernels);
    t->parts = t->kernels ? table(section, n, &at, t->section->n_parts, sizeof *t->parts) : NULL;
    t->bases = t->parts ? table(section, n, &at, t->section->n_bases, sizeof *t->bases) : NULL;
    t->imports =
        t->bases ? table(section, n, &at, t->section->n_imports, sizeof *t->imports) : NULL;
    return (t->imports && tables_fit(t, n)) || damaged(path, err);
}

// ----------------------------------------------------------------------------------------- in memory

void *ct__pack_function(const char *name) {
    static const struct {
        const char *name;
        void (*function)(void);
    } lent[] = {
#define LEND(f) {#f, (void (*)(void))f}
        LEND(memcpy), LEND(memmove), LEND(memset), LEND(memcmp), LEND(fmod), LEND(fmodf),
        LEND(fma),    LEND(fmaf),    LEND(floor),  LEND(floorf), LEND(ceil), LEND(ceilf),
        LEND(trunc),  LEND(truncf),  LEND(rint),   LEND(rintf),  LEND(sqrt), LEND(sqrtf),
    };
    void *address = NULL;
    for (size_t i = 0; i < sizeof lent / sizeof *lent && !address; i++)
        if (strcmp(lent[i].name, name) == 0) memcpy(&address, &lent[i].function, sizeof address);
    return address;
}

// One block: the span, then the table of kernels.
static bool put_parts(const char *section, const ct_pack_tables *t, char *memory, const char *path,
                      ct_err *err) {
    for (uint64_t i = 0; i < t->section->n_parts; i++)
        memcpy(memory + t->parts[i].at, section + t->parts[i].from, t->parts[i].bytes);
    for (uint64_t i = 0; i < t->section->n_bases; i++) {
        const uint64_t value = (uintptr_t)memory + t->bases[i].value;
        memcpy(memory + t->bases[i].at, &value, sizeof value);
    }
    for (uint64_t i = 0; i < t->section->n_imports; i++) {
        void *function = ct__pack_function(t->imports[i].name);
        char name[65];
        if (!function)
            return unlike(path, err, "its kernels call %s, which this program lends to none",
                          shown(t->imports[i].name, sizeof t->imports[i].name, name));
        memcpy(memory + t->imports[i].at, &function, sizeof function);
    }
    return true;
}

// Nothing may be written any more; only code runs.
static bool protect(const ct_pack_tables *t, char *memory, size_t bytes) {
    if (mprotect(memory, bytes, PROT_READ) != 0) return false;
    for (uint64_t i = 0; i < t->section->n_parts; i++) {
        const ct_pack_part *p = &t->parts[i];
        char *begin = memory + page_of(p->at) * CT_PACK_PAGE;
        const size_t n = (size_t)(memory + p->at + p->bytes - begin);
        if (p->runs && mprotect(begin, n, PROT_READ | PROT_EXEC) != 0) return false;
    }
    return true;
}

static pack *map(const char *section, const ct_pack_tables *t, const char *path, ct_err *err) {
    const size_t span = (t->section->span + CT_PACK_PAGE - 1) / CT_PACK_PAGE * CT_PACK_PAGE,
                 table_bytes = t->section->n_kernels * sizeof *t->kernels,
                 bytes = span + table_bytes + CT_PACK_PAGE;
    pack *p = ct__calloc(1, sizeof *p);
    char *memory =
        p ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : NULL;
    if (!p || memory == MAP_FAILED) {
        ct__free(p);
        ct__err_memory(err, CT_NOWHERE, "kernels", bytes);
        return NULL;
    }
    *p = (pack){.kernels = (const ct_pack_kernel *)(memory + span),
                .n = t->section->n_kernels,
                .memory = memory,
                .bytes = bytes};
    bool ok = put_parts(section, t, memory, path, err);
    memcpy(memory + span, t->kernels, table_bytes);
    if (ok && !protect(t, memory, bytes)) {
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

// Who may write it decides what this process does.
static bool only_its_owner_writes(const char *path, ct_err *err) {
    struct stat st;
    if (stat(path, &st) != 0) return ct__err_system(err, path, "open");
    if (!(st.st_mode & (S_IWGRP | S_IWOTH))) return true;
    ct__err(err, CT_E_FILE, CT_NOWHERE, "kernels", "%.300s: others may write it, and it is code",
            path);
    ct__err_hint(err, "chmod go-w takes them the right");
    return false;
}

static bool answer_fits(const ct_pack_level *l, bool pairs) {
    return l->pairs == CT_PAIRS_ANY || pairs == (l->pairs == CT_PAIRS_WITH);
}

// The best one for this processor.
static const ct_pack_level *choose(const ct_pack_level *levels, size_t n, bool pairs,
                                   const char *path, ct_err *err) {
    const ct_pack_level *best = NULL;
    ct_text has = {0};
    for (size_t i = 0; i < n; i++) {
        const ct_pack_level *l = &levels[i];
        ct__textf(&has, "%s%s", has.n ? ", " : "", ct__levels[l->level].name);
        if (runs_here((int)l->level) && answer_fits(l, pairs) && (!best || l->level > best->level))
            best = l;
    }
    if (!best)
        unlike(path, err, "it has kernels for processors with %s, and this one is none of them",
               has.n && !has.failed ? has.s : "nothing");
    ct__text_free(&has);
    return best;
}

// The least number of cores that kernels are there for and that is not below those here, else the most.
static int cores_for(uint64_t have, int here) {
    int most = 1;
    for (int i = 0; i < 7; i++) {
        if (!(have >> i & 1)) continue;
        most = 1 << i;
        if (most >= here) break;
    }
    return most;
}

static bool take_level(const ct_pack_level *l, const char *section, bool pairs, const char *path,
                       ct_err *err) {
    ct_pack_tables t;
    if (!ct__hash_equal(ct__hash_bytes(section, l->bytes, (ct_hash){0, 0}), l->hash))
        return damaged(path, err);
    if (!ct__pack_tables(section, l->bytes, path, &t, err)) return false;
    pack *before = atomic_load(&packs);
    if (before && ((int)l->level != level_now || l->cores != cores))
        return ct__err(err, CT_E_USAGE, CT_NOWHERE, "kernels",
                       "%.300s: its kernels are for %s, or other numbers of cores, those that were "
                       "loaded before for %s",
                       path, ct__levels[l->level].name, ct__levels[level_now].name);
    pack *p = map(section, &t, path, err);
    if (!p) return false;
    if (!before) {
        level_now = (int)l->level;
        cores = l->cores;
        target = ct__levels[level_now].target;
        target.cores = cores_for(cores, ct__cores_allowed());
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
    if (!ct__cpu_pairs(&pairs, err) || !only_its_owner_writes(path, err) ||
        !ct__file_map(path, &bytes, &n, err))
        return false;
    pthread_mutex_lock(&lock);
    bool ok = ct__pack_header(bytes, n, path, &levels, &n_levels, err);
    const ct_pack_level *l = ok ? choose(levels, n_levels, pairs, path, err) : NULL;
    ok = l && take_level(l, (const char *)bytes + l->begin, pairs, path, err);
    pthread_mutex_unlock(&lock);
    ct__file_unmap(bytes, n);
    return ok;
}

static atomic_bool done; // what the environment names is loaded

bool ct__pack_environment(ct_err *err) {
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    const char *asked = getauxval(AT_SECURE) ? NULL : getenv("COTAN_KERNELS");
    bool ok = true;
    pthread_mutex_lock(&once);
    for (const char *at = asked; at && *at && !done && ok;) {
        char path[4096];
        const size_t n = strcspn(at, ":");
        snprintf(path, sizeof path, "%.*s", (int)n, at);
        ok = !n || ct__pack_load(path, err);
        at += n + (at[n] == ':');
    }
    done = ok;
    pthread_mutex_unlock(&once);
    return ok;
}

const ct_target *ct__pack_target(void) { return atomic_load(&packs) ? &target : NULL; }
const char *ct__pack_level(void) { return atomic_load(&packs) ? ct__levels[level_now].name : NULL; }

ct__kernel_fn ct__pack_find(const char *text) {
    const pack *p = atomic_load(&packs);
    const ct_hash key = p ? ct__pack_key(text) : (ct_hash){0, 0};
    for (; p; p = p->next) {
        size_t low = 0, high = p->n;
        while (low < high) {
            const size_t middle = (low + high) / 2;
            const int order = compare(p->kernels[middle].key, key);
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
    done = false;
}
