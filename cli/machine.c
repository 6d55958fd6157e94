// What a command that computes runs on: options of train, plan and sample alike.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <cotan/engine.h>

#include "cli.h"

// Bytes: no process of the program is as small, so that less is a unit forgotten.
#define LEAST_MEMORY 1e6

static const char *const devices[] = {"cpu", "ref", "opencl", NULL};

void list_machine_options(machine *m, opt options[MACHINE_OPTIONS]) {
    *m = (machine){0};
    options[0] = (opt){
        "threads", OPT_WHOLE,         "N", "threads (COTAN_THREADS, else the cores allowed)", 1,
        256,       .out = &m->threads};
    options[1] = (opt){"device", OPT_TEXT, "NAME",
                       "cpu, opencl, or ref, which is slow and simple (cpu); see cotan devices",
                       .out = &m->device};
    options[2] = (opt){"memory-limit", OPT_BYTES,
                       "SIZE",         "most memory: 500MB, 2GiB (what this machine has left)",
                       LEAST_MEMORY,   .out = &m->limit};
    options[3] = (opt){"kernels", OPT_PATH, "FILES",
                       "of cotan pack, colons between: instead of a compiler (COTAN_KERNELS)",
                       .out = &m->kernels};
}

// A name of the library's own devices, with a number behind it or async: before it; where a library brings others,
// any name is tried.
static bool could_be_device(const char *name) {
    const char *library = getenv("COTAN_DEVICE_LIBRARY");
    if (library && *library) return true;
    if (strncmp(name, "async:", 6) == 0) name += 6;
    for (const char *const *d = devices; *d; d++) {
        const size_t n = strlen(*d);
        if (strncmp(name, *d, n) == 0 && (!name[n] || name[n] == ':')) return true;
    }
    return false;
}

// Each once in the process, whoever asks.
static bool load_kernels(const char *files) {
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

bool use_machine(const machine *m, const char *caller, int *status) {
    if (m->threads) ct_set_threads((int)m->threads);
    if (m->limit) ct_set_memory_limit(m->limit);
    if (m->device && !could_be_device(m->device)) {
        const char *near = ct_nearest(m->device, devices);
        *status =
            refuse("%s: --device is cpu, ref or opencl, not \"%s\"%s%s%s", caller, plain(m->device),
                   near ? "; is " : "", near ? near : "", near ? " meant?" : "");
        return false;
    }
    if ((!m->kernels || load_kernels(m->kernels)) && (!m->device || ct_set_device(m->device)))
        return true;
    *status = fail();
    return false;
}
