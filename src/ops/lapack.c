#include "ops/lapack.h"

#include "base/library.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DTYPES = 4, MAX_NUMERICS = 4 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards everything below
static ct_lapack functions[DTYPES];
static bool loaded;
static char library_name[96]; // "openblas 0.3.21 SkylakeX"
static int (*get_threads)(void);
static void (*set_threads)(int);
static int users, threads_before;

static const struct {
    size_t offset;
    const char *name[DTYPES]; // NULL: it has another name
} symbols[] = {
#define SAME(f, n)                                                                                 \
    {                                                                                              \
        offsetof(ct_lapack, f), { "s" n "_", "d" n "_", "c" n "_", "z" n "_" }                     \
    }
#define FLOATS(f, n)                                                                               \
    {                                                                                              \
        offsetof(ct_lapack, f), { "s" n "_", "d" n "_", NULL, NULL }                               \
    }
#define COMPLEX(f, n)                                                                              \
    {                                                                                              \
        offsetof(ct_lapack, f), { NULL, NULL, "c" n "_", "z" n "_" }                               \
    }
    SAME(potrf, "potrf"),
    SAME(trsm, "trsm"),
    SAME(getrf, "getrf"),
    SAME(getrs, "getrs"),
    SAME(geqrf, "geqrf"),
    FLOATS(orgqr, "orgqr"),
    COMPLEX(orgqr, "ungqr"),
    FLOATS(syevd, "syevd"),
    COMPLEX(heevd, "heevd"),
    FLOATS(gesdd, "gesdd"),
    COMPLEX(gesdd_complex, "gesdd"),
    FLOATS(geev, "geev"),
    COMPLEX(geev_complex, "geev"),
};

static void lapack_find_symbol(void *library, const char *symbol, void *to) {
    void *at = dlsym(library, symbol);
    memcpy(to, &at, sizeof at);
}

// Loads all functions. Returns NULL, or the name of one that the library lacks.
static const char *lapack_find_functions(void *library) {
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
        for (int d = 0; d < DTYPES; d++) {
            if (!symbols[i].name[d]) continue;
            void *at = dlsym(library, symbols[i].name[d]);
            if (!at) return symbols[i].name[d];
            memcpy((char *)&functions[d] + symbols[i].offset, &at, sizeof at);
        }
    return NULL;
}

static void lapack_find_name(void *library) {
    const char *(*config)(void), *(*core)(void);
    void (*version)(int *, int *, int *);
    lapack_find_symbol(library, "openblas_get_config", &config);
    lapack_find_symbol(library, "openblas_get_corename", &core);
    lapack_find_symbol(library, "openblas_get_num_threads", &get_threads);
    lapack_find_symbol(library, "openblas_set_num_threads", &set_threads);
    lapack_find_symbol(library, "ilaver_", &version);
    int number[3] = {0};
    if (config && core) { // "OpenBLAS 0.3.21 NO_LAPACKE ..."
        char release[32] = "";
        sscanf(config(), "%*s %31s", release);
        snprintf(library_name, sizeof library_name, "openblas %s %.40s", release, core());
        return;
    }
    if (version) version(&number[0], &number[1], &number[2]);
    snprintf(library_name, sizeof library_name, "lapack %d.%d.%d", number[0], number[1], number[2]);
}

// Threads that the library starts inherit the signal mask, so they block the host program's signals.
static void *lapack_open(const char *file) {
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    void *library = ct__library_open(file, RTLD_NOW | RTLD_LOCAL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return library;
}

static bool lapack_load(const ct_node *node, ct_err *err) {
    static const char *const usual[] = {"libopenblas.so.0", "liblapack.so.3"};
    const char *asked = getenv("COTAN_LAPACK"), *op = node->op->name;
    void *library = NULL;
    if (asked && *asked) {
        if (!(library = lapack_open(asked)))
            return ct__err(err, CT_E_USAGE, node->here, op, "COTAN_LAPACK: %s",
                           ct__library_error());
    } else {
        for (size_t i = 0; i < sizeof usual / sizeof *usual && !library; i++)
            library = lapack_open(usual[i]);
        if (!library && ct__linked_statically())
            return ct__err(err, CT_E_UNSUPPORTED, node->here, op,
                           "it needs LAPACK, and " CT_NO_LIBRARIES);
        if (!library) {
            ct__err(err, CT_E_UNSUPPORTED, node->here, op,
                    "it needs LAPACK, and there is no libopenblas.so.0 and no liblapack.so.3");
            return ct__err_hint(
                err, "apt-get install libopenblas0, or name a library's file in COTAN_LAPACK");
        }
    }
    const char *missing = lapack_find_functions(library);
    if (missing) {
        ct__err(err, CT_E_UNSUPPORTED, node->here, op, "%s has no function %s",
                asked && *asked ? asked : "LAPACK", missing);
        dlclose(library);
        return false;
    }
    lapack_find_name(library);
    return loaded = true;
}

const ct_lapack *ct__lapack(ct_dtype dtype, const ct_node *node, ct_err *err) {
    const int at = dtype == CT_F32 ? 0 : dtype == CT_F64 ? 1 : dtype == CT_C64 ? 2 : 3;
    pthread_mutex_lock(&lock);
    const bool ok = loaded || lapack_load(node, err);
    pthread_mutex_unlock(&lock);
    return ok ? &functions[at] : NULL;
}

void ct__lapack_begin(void) {
    pthread_mutex_lock(&lock);
    if (!users++ && get_threads && set_threads) {
        threads_before = get_threads();
        set_threads(1);
    }
    pthread_mutex_unlock(&lock);
}
void ct__lapack_end(void) {
    pthread_mutex_lock(&lock);
    if (!--users && get_threads && set_threads) set_threads(threads_before);
    pthread_mutex_unlock(&lock);
}

const char *ct__lapack_numerics(const char *device) {
    static struct {
        const char *device;
        char text[192];
    } known[MAX_NUMERICS];
    const char *text = device;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_NUMERICS && loaded; i++) {
        if (known[i].device && strcmp(known[i].device, device) != 0) continue;
        if (!known[i].device) {
            known[i].device = device;
            snprintf(known[i].text, sizeof known[i].text, "%s %s", device, library_name);
        }
        text = known[i].text;
        break;
    }
    pthread_mutex_unlock(&lock);
    return text;
}
