// The machine options: device, threads, memory limit, packed kernels.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <cotan/engine.h>

#include "cli.h"

static const char *const devices[] = {"cpu", "ref", "opencl", NULL};

static const char *const activations[] = {"int8", "f32", NULL};

opt activations_option(int *choice) {
    return (opt){.name = "activations",
                 .kind = OPT_CHOICE,
                 .value = "TYPE",
                 .help =
                     "in products with quantised weights: int8, or f32, exact and slower (int8)",
                 .choices = activations,
                 .out = choice};
}
ct_dtype activations_dtype(int choice) { return choice ? CT_F32 : CT_I8; }

// True for a name of the library's own devices, with a number after it or async: before it. If a plugin
// library is set, any name is tried.
static bool machine_is_device_name(const char *name) {
    const char *library = getenv("COTAN_DEVICE_LIBRARY");
    if (library && *library) return true;
    if (strncmp(name, "async:", 6) == 0) name += 6;
    for (const char *const *d = devices; *d; d++) {
        const size_t n = strlen(*d);
        if (strncmp(name, *d, n) == 0 && (!name[n] || name[n] == ':')) return true;
    }
    return false;
}

// Loads the files of packed kernels once in the process, for all callers.
static bool machine_load_kernels(const char *files) {
    static bool loaded;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    bool ok = true;
    pthread_mutex_lock(&lock);
    for (const char *at = files; *at && !loaded && ok;) {
        const size_t n = strcspn(at, ":");
        char *path = strndup(at, n);
        ok = path && (!n || ct_kernels_load_at(path, (ct_loc){0}));
        free(path);
        at += n + (at[n] == ':');
    }
    loaded = ok;
    pthread_mutex_unlock(&lock);
    return ok;
}

bool machine_apply(const machine *m, const char *caller, int *status) {
    if (m->threads) ct_set_threads((int)m->threads);
    if (m->memory_limit) ct_set_memory_limit(m->memory_limit);
    if (m->device && !machine_is_device_name(m->device)) {
        const char *near = ct_nearest(m->device, devices);
        *status = usage_error("%s: --device is cpu, ref or opencl, not \"%s\"%s%s%s", caller,
                              printable(m->device), near ? "; is " : "", near ? near : "",
                              near ? " meant?" : "");
        return false;
    }
    if ((!m->kernels || machine_load_kernels(m->kernels)) &&
        (!m->device || ct_set_device(m->device)))
        return true;
    *status = report_error();
    return false;
}
