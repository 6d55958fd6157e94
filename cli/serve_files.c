// A served model's files are mapped: where somebody cuts one short, reading what is gone is a fault (SIGBUS). The page is
// replaced by zeros, so that the process goes on, and the model whose file it was answers with an error from then on.
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "serve.h"

static atomic_uint replaced_pages;
static uintptr_t page_bytes;

static void replace_page(int number, siginfo_t *info, void *context) {
    (void)context;
    void *page = (void *)((uintptr_t)info->si_addr & ~(page_bytes - 1));
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (info->si_code == BUS_ADRERR &&
        mmap(page, page_bytes, PROT_READ | PROT_WRITE, flags, -1, 0) == page)
        atomic_fetch_add(&replaced_pages, 1);
    else
        signal(number, SIG_DFL); // it happens again, and ends the process
}

void guard_files(void) {
    struct sigaction act = {.sa_sigaction = replace_page, .sa_flags = SA_SIGINFO};
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigemptyset(&act.sa_mask);
    sigaction(SIGBUS, &act, NULL);
}

bool is_cut_short(model *m) {
    const unsigned now = atomic_load(&replaced_pages);
    if (atomic_load(&m->pages_seen) != now) {
        if (files_have_changed(m)) atomic_store(&m->cut_short, true);
        atomic_store(&m->pages_seen, now);
    }
    return atomic_load(&m->cut_short);
}

const char cut_short[] = "the model's file was cut short while it was served: start the server "
                         "again with the whole file";
