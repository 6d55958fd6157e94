// The machine options: device, threads, memory limit, packed kernels.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <cotan/engine.h>

#include "cli.h"

// Bytes: no process of the program is smaller than this, so that less means a forgotten unit.
#define MIN_MEMORY 1e6

static const char *const devices[] = {"cpu", "ref", "opencl", NULL};

void machine_options_init(machine *m, opt options[MACHINE_OPTIONS]) {
    *m = (machine){0};
    options[0] = (opt){
        "threads", OPT_INT,           "N", "threads (COTAN_THREADS, else the cores allowed)", 1,
        256,       .out = &m->threads};
    options[1] = (opt){"device", OPT_STRING, "NAME",
                       "cpu, opencl, or ref, which is slow and simple (cpu); see cotan devices",
                       .out = &m->device};
    options[2] = (opt){"memory-limit", OPT_BYTES,
                       "SIZE",         "most memory: 500MB, 2GiB (what this machine has left)",
                       MIN_MEMORY,     .out = &m->memory_limit};
    options[3] = (opt){"kernels", OPT_PATH, "FILES",
                       "of cotan pack, colons between: instead of a compiler (COTAN_KERNELS)",
                       .out = &m->kernels};
}

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
