// Protection against truncated model files. Model files are mapped; if one is truncated, reading the
// missing part raises SIGBUS. The page is replaced by zeros, so that the process continues, and the
// model replies with an error from then on.
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "serve.h"

static atomic_uint n_replaced_pages;
static uintptr_t page_bytes;

static void truncation_on_sigbus(int number, siginfo_t *info, void *context) {
    (void)context;
    void *page = (void *)((uintptr_t)info->si_addr & ~(page_bytes - 1));
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (info->si_code == BUS_ADRERR &&
        mmap(page, page_bytes, PROT_READ | PROT_WRITE, flags, -1, 0) == page)
        atomic_fetch_add(&n_replaced_pages, 1);
    else
        signal(number, SIG_DFL); // the fault is repeated and ends the process
}

void truncation_install_handler(void) {
    struct sigaction act = {.sa_sigaction = truncation_on_sigbus, .sa_flags = SA_SIGINFO};
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigemptyset(&act.sa_mask);
    sigaction(SIGBUS, &act, NULL);
}

bool model_is_truncated(model *m) {
    const unsigned now = atomic_load(&n_replaced_pages);
    if (atomic_load(&m->replaced_pages_seen) != now) {
        if (model_files_changed(m)) atomic_store(&m->is_truncated, true);
        atomic_store(&m->replaced_pages_seen, now);
    }
    return atomic_load(&m->is_truncated);
}

const char truncated_message[] =
    "the model's file was truncated while it was served: restore the file and restart the server";
