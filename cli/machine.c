// What a command that computes runs on: options of train, plan and sample alike.
#include "cli.h"

// Bytes: no process of the program is as small, so that less is a unit forgotten.
#define LEAST_MEMORY 1e6

static const char *const devices[] = {"cpu", "ref", "opencl", NULL};

void list_machine_options(machine *m, opt options[MACHINE_OPTIONS]) {
    *m = (machine){.device = -1};
    options[0] = (opt){
        "threads", OPT_WHOLE,         "N", "threads (COTAN_THREADS, else the cores allowed)", 1,
        256,       .out = &m->threads};
    options[1] = (opt){"device",
                       OPT_CHOICE,
                       "NAME",
                       "cpu, opencl, or ref, which is slow and simple (cpu)",
                       .choices = devices,
                       .out = &m->device};
    options[2] = (opt){"memory-limit", OPT_BYTES,
                       "SIZE",         "most memory: 500MB, 2GiB (what this machine has left)",
                       LEAST_MEMORY,   .out = &m->limit};
}

bool use_machine(const machine *m, int *status) {
    if (m->threads) ct_set_threads((int)m->threads);
    if (m->limit) ct_set_memory_limit(m->limit);
    if (m->device < 0 || ct_set_device(devices[m->device])) return true;
    *status = fail();
    return false;
}

bool on_ref(const machine *m) { return m->device == 1; }
