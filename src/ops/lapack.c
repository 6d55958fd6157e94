#include "ops/lapack.h"

#include "base/library.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DTYPES = 4, MOST_NUMERICS = 4 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of all below
static ct_lapack functions[DTYPES];
static bool loaded;
static char name[96]; // "openblas 0.3.21 SkylakeX"
static int (*get_threads)(void);
static void (*set_threads)(int);
static int users, threads_before;

static const struct {
    size_t place;
    const char *name[DTYPES]; // NULL: floats, or complex numbers, have another
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

static void find(void *library, const char *symbol, void *to) {
    void *at = dlsym(library, symbol);
    memcpy(to, &at, sizeof at);
}

// All functions, or the name of one that the library lacks.
static const char *find_all(void *library) {
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
        for (int d = 0; d < DTYPES; d++) {
            if (!symbols[i].name[d]) continue;
            void *at = dlsym(library, symbols[i].name[d]);
            if (!at) return symbols[i].name[d];
            memcpy((char *)&functions[d] + symbols[i].place, &at, sizeof at);
        }
    return NULL;
}

static void find_name(void *library) {
    const char *(*config)(void), *(*core)(void);
    void (*version)(int *, int *, int *);
    find(library, "openblas_get_config", &config);
    find(library, "openblas_get_corename", &core);
    find(library, "openblas_get_num_threads", &get_threads);
    find(library, "openblas_set_num_threads", &set_threads);
    find(library, "ilaver_", &version);
    int number[3] = {0};
    if (config && core) { // "OpenBLAS 0.3.21 NO_LAPACKE ..."
        char release[32] = "";
        sscanf(config(), "%*s %31s", release);
        snprintf(name, sizeof name, "openblas %s %.40s", release, core());
        return;
    }
    if (version) version(&number[0], &number[1], &number[2]);
    snprintf(name, sizeof name, "lapack %d.%d.%d", number[0], number[1], number[2]);
}

// Threads that the library starts take none of the host program's signals.
static void *open_library(const char *file) {
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    void *library = ct__library_open(file, RTLD_NOW | RTLD_LOCAL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return library;
}

static bool load(const ct_node *node, ct_err *err) {
    static const char *const usual[] = {"libopenblas.so.0", "liblapack.so.3"};
    const char *asked = getenv("COTAN_LAPACK"), *op = node->op->name;
    void *library = NULL;
    if (asked && *asked) {
        if (!(library = open_library(asked)))
            return ct__err(err, CT_E_USAGE, node->here, op, "COTAN_LAPACK: %s",
                           ct__library_error());
    } else {
        for (size_t i = 0; i < sizeof usual / sizeof *usual && !library; i++)
            library = open_library(usual[i]);
        if (!library && ct__linked_statically())
            return ct__err(err, CT_E_UNSUPPORTED, node->here, op,
                           "it needs LAPACK, and " CT_NO_LIBRARIES);
        if (!library) {
            ct__err(err, CT_E_UNSUPPORTED, node->here, op,
                    "it needs LAPACK, and there is no libopenblas.so.0 and no liblapack.so.3");
            ct__err_hint(err,
                         "apt-get install libopenblas0, or name a library's file in COTAN_LAPACK");
            return false;
        }
    }
    const char *lacks = find_all(library);
    if (lacks) {
        ct__err(err, CT_E_UNSUPPORTED, node->here, op, "%s has no function %s",
                asked && *asked ? asked : "LAPACK", lacks);
        dlclose(library);
        return false;
    }
    find_name(library);
    return loaded = true;
}

const ct_lapack *ct__lapack(ct_dtype dtype, const ct_node *node, ct_err *err) {
    const int at = dtype == CT_F32 ? 0 : dtype == CT_F64 ? 1 : dtype == CT_C64 ? 2 : 3;
    pthread_mutex_lock(&lock);
    const bool ok = loaded || load(node, err);
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
    } made[MOST_NUMERICS];
    const char *text = device;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_NUMERICS && loaded; i++) {
        if (made[i].device && strcmp(made[i].device, device) != 0) continue;
        if (!made[i].device) {
            made[i].device = device;
            snprintf(made[i].text, sizeof made[i].text, "%s %s", device, name);
        }
        text = made[i].text;
        break;
    }
    pthread_mutex_unlock(&lock);
    return text;
}
