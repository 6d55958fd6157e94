// Progress display: a live line on a terminal, and the number of kernels that are being compiled.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void progress_draw_line(const char *what, int64_t done, int64_t all) {
    fprintf(stderr, "\r%s: %lld of %lld\x1b[K", printable(what), (long long)done, (long long)all);
    if (done == all) fputs("\r\x1b[K", stderr);
    fflush(stderr);
}

void progress_show(const char *what, int64_t done, int64_t all) {
    if (isatty(STDERR_FILENO) != 1) return;
    progress_clear_line();
    progress_draw_line(what, done, all);
}

// ----------------------------------------------------------------------------------------- kernels

// A terminal shows no wait that is shorter than this. A log gets a line at this interval, if kernels are
// being compiled then.
#define LIVE_LINE_DELAY_SECONDS 0.2
#define LOG_INTERVAL_SECONDS 10.0
enum { POLL_INTERVAL_MS = 100 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool begun, on;    // its thread has been started; lines may be written
    bool wrote;        // a live line was drawn since `on`
    uint64_t compiled; // kernels compiled before `on`
    uint64_t done, of; // numbers on the live line; of 0: there is none
    double since;      // time of the last log line or, on a terminal, when nothing was compiled
} kernel_watch = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static void progress_clear_locked(void) {
    if (kernel_watch.of) fputs("\r\x1b[K", stderr), fflush(stderr);
    kernel_watch.of = 0;
    kernel_watch.since = seconds_now();
}

static void progress_update_kernels(void) {
    static const char what[] = "compiling kernels";
    const bool terminal = isatty(STDERR_FILENO) == 1;
    const ct_stats s = ct_get_stats();
    const uint64_t done = s.kernels_compiled - kernel_watch.compiled, of = done + s.kernels_pending;
    if (!s.kernels_pending) { // between two plans
        if (terminal) progress_clear_locked();
    } else if (seconds_now() - kernel_watch.since <
               (terminal ? LIVE_LINE_DELAY_SECONDS : LOG_INTERVAL_SECONDS)) {
        return;
    } else if (!terminal) {
        fprintf(stderr, "%s: %llu of %llu\n", what, (unsigned long long)done,
                (unsigned long long)of);
        kernel_watch.since = seconds_now();
    } else if (done != kernel_watch.done || of != kernel_watch.of) {
        progress_draw_line(what, (int64_t)done, (int64_t)of);
        kernel_watch.wrote = true;
        kernel_watch.done = done;
        kernel_watch.of = of;
    }
}

static void *progress_kernel_thread(void *unused) {
    const struct timespec pause = {.tv_nsec = POLL_INTERVAL_MS * 1000000L};
    for (;;) {
        pthread_mutex_lock(&kernel_watch.lock);
        while (!kernel_watch.on) pthread_cond_wait(&kernel_watch.wake, &kernel_watch.lock);
        progress_update_kernels();
        pthread_mutex_unlock(&kernel_watch.lock);
        nanosleep(&pause, NULL);
    }
    return unused;
}

// Starts the thread, which blocks all signals. If there is no memory for a thread, nothing is shown.
static bool progress_start_thread(void) {
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool ok = pthread_create(&thread, NULL, progress_kernel_thread, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (ok) pthread_detach(thread);
    return ok;
}

bool progress_watch_kernels(bool on) {
    pthread_mutex_lock(&kernel_watch.lock);
    const bool wrote = kernel_watch.wrote;
    if (on && !kernel_watch.on) {
        kernel_watch.wrote = false;
        kernel_watch.compiled = ct_get_stats().kernels_compiled;
        kernel_watch.since = seconds_now();
        kernel_watch.begun = kernel_watch.begun || progress_start_thread();
        pthread_cond_signal(&kernel_watch.wake);
    }
    if (!on) progress_clear_locked();
    kernel_watch.on = on && kernel_watch.begun;
    pthread_mutex_unlock(&kernel_watch.lock);
    return wrote;
}

void progress_clear_line(void) {
    pthread_mutex_lock(&kernel_watch.lock);
    progress_clear_locked();
    pthread_mutex_unlock(&kernel_watch.lock);
}
