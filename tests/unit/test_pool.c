// The thread pool: every piece once, in every order of calls.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os.h"
#include "base/pool.h"

enum { MOST = 4096 };

typedef struct {
    ct_pool *pool;
    _Atomic int done[MOST];
    _Atomic int busy[CT_POOL_MAX_THREADS]; // pieces running as this worker
    _Atomic int clashes;
    int plain[MOST]; // written without atomics: a race would show under the thread sanitizer
} board;

static void mark(void *arg, int64_t begin, int64_t end, int worker) {
    board *b = arg;
    if (atomic_fetch_add(&b->busy[worker], 1) != 0) atomic_fetch_add(&b->clashes, 1);
    for (int64_t i = begin; i < end; i++) {
        atomic_fetch_add(&b->done[i], 1);
        b->plain[i] += worker + 1;
    }
    atomic_fetch_sub(&b->busy[worker], 1);
}

static void each_once(board *b, int64_t count, int64_t grain) {
    memset(b->plain, 0, sizeof b->plain);
    for (int i = 0; i < MOST; i++) b->done[i] = 0;
    ct__pool_run(b->pool, mark, b, count, grain);
    for (int64_t i = 0; i < MOST; i++) {
        assert_int_equal(b->done[i], i < count ? 1 : 0);
        assert_true((b->plain[i] > 0) == (i < count));
    }
    assert_int_equal(b->clashes, 0);
}

static void every_piece_is_done_once(void **state) {
    (void)state;
    board *b = calloc(1, sizeof *b);
    static const int sizes[] = {1, 2, 3, 8, 64};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        b->pool = ct__pool_new(sizes[s]);
        assert_int_equal(ct__pool_threads(b->pool), sizes[s]);
        for (int round = 0; round < 200; round++) each_once(b, (round * 37) % MOST, 1 + round % 7);
        each_once(b, 0, 1);
        each_once(b, 1, 1);
        each_once(b, MOST, MOST * 2);
        ct__pool_free(b->pool);
    }
    free(b);
}

static int threads_named(const char *prefix) {
    int n = 0;
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char path[300], name[64] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        FILE *f = fopen(path, "r");
        if (f && fgets(name, sizeof name, f) && strncmp(name, prefix, strlen(prefix)) == 0) n++;
        if (f) fclose(f);
    }
    if (dir) closedir(dir);
    return n;
}

// Soon: threads name themselves, and one that was joined may still be listed.
static void expect_threads(int want) {
    int n = -1;
    for (int i = 0; i < 500 && n != want; i++) {
        if (i) usleep(10000);
        n = threads_named("cotan-");
    }
    assert_int_equal(n, want);
}

static void threads_start_late_and_are_resized(void **state) {
    (void)state;
    board *b = calloc(1, sizeof *b);
    b->pool = ct__pool_new(5);
    assert_int_equal(threads_named("cotan-"), 0);
    each_once(b, 1, 1); // one piece needs no thread
    assert_int_equal(threads_named("cotan-"), 0);
    each_once(b, 100, 1);
    expect_threads(4);
    ct__pool_resize(b->pool, 3);
    each_once(b, 100, 1);
    expect_threads(2);
    ct__pool_resize(b->pool, 1);
    expect_threads(0);
    each_once(b, 100, 1);
    ct__pool_free(b->pool);
    free(b);
}

static void inner(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    atomic_fetch_add((_Atomic int *)arg, (int)(end - begin));
}
static void outer(void *arg, int64_t begin, int64_t end, int worker) {
    board *b = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++) ct__pool_run(b->pool, inner, &b->done[i], 10, 3);
}

static void a_job_inside_a_job_runs_in_place(void **state) {
    (void)state;
    board *b = calloc(1, sizeof *b);
    b->pool = ct__pool_new(4);
    ct__pool_run(b->pool, outer, b, 50, 1);
    for (int i = 0; i < 50; i++) assert_int_equal(b->done[i], 10);
    ct__pool_free(b->pool);
    free(b);
}

typedef struct {
    ct_pool *pool;
    _Atomic int64_t sum;
} sums;

static void add_up(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    for (int64_t i = begin; i < end; i++) atomic_fetch_add(&((sums *)arg)->sum, i);
}
static void *foreign(void *arg) {
    for (int round = 0; round < 300; round++) {
        sums s = {.pool = arg};
        ct__pool_run(s.pool, add_up, &s, 100, 3);
        if (s.sum != 4950) return arg;
    }
    return NULL;
}

static void many_threads_may_call(void **state) {
    (void)state;
    ct_pool *pool = ct__pool_new(3);
    pthread_t ids[6];
    for (int i = 0; i < 6; i++) assert_int_equal(pthread_create(&ids[i], NULL, foreign, pool), 0);
    for (int i = 0; i < 6; i++) {
        void *failed = NULL;
        pthread_join(ids[i], &failed);
        assert_null(failed);
    }
    ct__pool_free(pool);
}

static void blocks(void *arg, int64_t begin, int64_t end, int worker) {
    (void)begin;
    (void)end;
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    usleep(1000);
    if (worker && !(sigismember(&now, SIGINT) && sigismember(&now, SIGTERM))) *(bool *)arg = false;
}

static void workers_block_signals(void **state) {
    (void)state;
    ct_pool *pool = ct__pool_new(4);
    bool all = true;
    sigset_t now;
    ct__pool_run(pool, blocks, &all, 40, 1);
    assert_true(all);
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    assert_false(sigismember(&now, SIGINT));
    ct__pool_free(pool);
}

static void a_child_cannot_use_it(void **state) {
    (void)state;
    ct_pool *pool = ct__pool_new(3);
    sums s = {.pool = pool};
    ct__pool_run(pool, add_up, &s, 100, 1);
    assert_true(ct__pool_usable(pool));
    pid_t child = fork();
    if (child == 0) {
        bool usable = ct__pool_usable(pool);
        ct__pool_free(pool); // must not hang
        _exit(usable ? 1 : 0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ct__pool_free(pool);
}

static void nothing(void *arg, int64_t begin, int64_t end, int worker) {
    (void)arg;
    (void)begin;
    (void)end;
    (void)worker;
}

static void a_job_costs_little(void **state) {
    (void)state;
    ct_pool *pool = ct__pool_new(2);
    double best = 1;
    for (int round = 0; round < 20; round++) {
        double t = ct__now();
        for (int i = 0; i < 100; i++) ct__pool_run(pool, nothing, NULL, 2, 1);
        t = (ct__now() - t) / 100;
        if (t < best) best = t;
    }
    print_message("an empty job of two pieces: %.2f us\n", best * 1e6);
    assert_true(best < 200e-6); // generous: the machine may be busy
    ct__pool_free(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_piece_is_done_once),
        cmocka_unit_test(threads_start_late_and_are_resized),
        cmocka_unit_test(a_job_inside_a_job_runs_in_place),
        cmocka_unit_test(many_threads_may_call),
        cmocka_unit_test(workers_block_signals),
        cmocka_unit_test(a_child_cannot_use_it),
        cmocka_unit_test(a_job_costs_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
