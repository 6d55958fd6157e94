// The library in its process: its threads' signals, cancelling, forking, shutting down, the host's
// allocator.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <dirent.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "cotan/optim.h"
#include "cotan/train.h"
#include "support/sanitized.h"

static void fresh_start(void) {
    ct_error_clear();
    assert_true(ct_shutdown());
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { MANY = 1 << 20 };
static float many[MANY];

// A plan that several threads share.
static void wide_work(void) {
    CT_SCOPE;
    ct_tensor x = ct_from(many, CT_F32, CT_DIMS(MANY));
    double sum = ct_item(ct_sum(ct_tanh(ct_exp(x))));
    assert_true(sum > 0 && !ct_failed());
}

// ------------------------------------------------------------------------------------------------
// signals

// The threads of the pool, the calling one not counted. Soon: one that was joined may still be
// listed.
static void expect_workers(int want) {
    int n = -1;
    for (double end = now() + 5; n != want && now() < end;) {
        DIR *dir = opendir("/proc/self/task");
        n = 0;
        for (struct dirent *e; (e = readdir(dir));) {
            char path[300], name[64] = "";
            snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
            FILE *f = fopen(path, "r");
            n += f && fgets(name, sizeof name, f) && strncmp(name, "cotan-", 6) == 0;
            if (f) fclose(f);
        }
        closedir(dir);
    }
    assert_int_equal(n, want);
}

static void as_many_threads_as_are_set(void **state) {
    (void)state;
    const int set[] = {6, 2, 5, 257, INT_MAX, 3}, have[] = {6, 2, 5, 256, 256, 3};
    fresh_start();
    for (int i = 0; i < 6; i++) {
        ct_set_threads(set[i]);
        assert_int_equal(ct_threads(), have[i]);
        wide_work();
        expect_workers(have[i] - 1);
    }
    ct_set_threads(-3);
    assert_int_equal(ct_error_code(), CT_E_ARGUMENT);
    assert_string_equal(ct_error_text(),
                        "set_threads: -3 threads: 1 to 256 can be, and 0 is the default");
    ct_error_clear();
    wide_work();
    expect_workers(2);
    ct_set_threads(1); // which works alone, and may leave the others asleep
    wide_work();
    ct_set_threads(0);
}

// The threads of the process besides the calling one; counted are those that leave any signal open
// but those of their own faults, which would else end the process past the host's crash handler.
static int other_threads(int *open) {
    int n = 0;
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *e; (e = readdir(dir));) {
        char path[300], line[300];
        unsigned long long blocked = 0;
        if (e->d_name[0] == '.' || atoi(e->d_name) == getpid()) continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        FILE *f = fopen(path, "r");
        bool alive = false; // one that ends just now has nothing to say
        while (f && fgets(line, sizeof line, f))
            alive |= sscanf(line, "SigBlk: %llx", &blocked) == 1;
        if (f) fclose(f);
        if (!alive) continue;
        // All but SIGKILL and SIGSTOP, and the two that the C library keeps for itself.
        static const int never[] = {SIGKILL, SIGSTOP, 32, 33};
        static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
        unsigned long long want = ~0ull;
        for (int i = 0; i < 4; i++) want &= ~(1ull << (never[i] - 1));
        for (int i = 0; i < 7; i++) want &= ~(1ull << (faults[i] - 1));
        n++;
        *open += blocked != want;
    }
    closedir(dir);
    *open -= CT_THREAD_SANITIZER;
    return n - CT_THREAD_SANITIZER;
}

static void threads_take_no_signals(void **state) {
    (void)state;
    fresh_start();
    ct_set_threads(4);
    wide_work();
    ct_ctx *before = ct_ctx_use(ct_ctx_new());
    assert_true(ct_set_device("async:cpu"));
    wide_work();
    int open = 0, n = other_threads(&open);
    assert_true(n >= 4); // three of the pool, one of the asynchronous device
    assert_int_equal(open, 0);
    ct_ctx_free(ct_ctx_use(before));
    fresh_start();
    for (double end = now() + 5; (n = other_threads(&open)) > 0 && now() < end;) usleep(1000);
    assert_int_equal(n, 0); // joined
    ct_set_threads(0);
}

static volatile sig_atomic_t handled;
static pthread_t handled_by;
static void note_signal(int number) {
    (void)number;
    handled_by = pthread_self();
    handled++;
}

static void handlers_and_masks_stay(void **state) {
    (void)state;
    struct sigaction mine = {.sa_handler = note_signal}, old, after;
    sigaction(SIGUSR1, &mine, &old);
    sigset_t mask, mask_after;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    struct sigaction before[65], now_there;
    for (int s = 1; s < 65; s++) sigaction(s, NULL, &before[s]);
    wide_work();
    for (int s = 1; s < 65; s++) {
        if (sigaction(s, NULL, &now_there) != 0) continue;
        assert_true(now_there.sa_handler == before[s].sa_handler);
    }
    pthread_sigmask(SIG_SETMASK, NULL, &mask_after);
    assert_true(sigismember(&mask_after, SIGUSR2) && !sigismember(&mask_after, SIGUSR1));
    kill(getpid(), SIGUSR1);
    assert_int_equal(handled, 1);
    assert_true(pthread_equal(handled_by, pthread_self()));
    sigemptyset(&mask);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    sigaction(SIGUSR1, &old, &after);
}

// ------------------------------------------------------------------------------------------------
// cancelling

typedef struct {
    ct_ctx *ctx;
    double after; // seconds
} appointment;
static void *cancel_then(void *arg) {
    const appointment *a = arg;
    for (double end = now() + a->after; now() < end;) usleep(20);
    ct_cancel(a->ctx);
    return NULL;
}

enum { SIDE = 256, DEEP = 60 };
static float square_matrix[SIDE * SIDE];

// Records a step that takes a while and changes two counters, the first of them maybe early.
static void record_step(ct_tensor a, ct_tensor b, bool early) {
    ct_tensor x = ct_from(square_matrix, CT_F32, CT_DIMS(SIDE, SIDE)), y = x;
    if (early) ct_assign(a, ct_add(a, ct_f(1)));
    for (int i = 0; i < DEEP; i++) y = ct_matmul(y, x);
    ct_tensor one = ct_cast(ct_greater(ct_sum(y), ct_f(-1e30)), CT_F32);
    if (!early) ct_assign(a, ct_add(a, one));
    ct_assign(b, ct_add(b, one));
}
static double value_of(ct_tensor t) {
    CT_SCOPE;
    return ct_item(t);
}

// One launch of about half a second, alone in its plan; returns how long it took.
static double long_launch(void) {
    CT_SCOPE;
    double begin = now();
    ct_tensor y =
        ct_expand(ct_from(square_matrix, CT_F32, CT_DIMS(SIDE, SIDE)), CT_DIMS(DEEP, SIDE, SIDE));
    for (int i = 0; i < DEEP; i++) y = ct_sin(y);
    bool ok = ct_eval(&y, 1);
    assert_true(ok != ct_failed());
    return now() - begin;
}

// A cancellation does not wait for the end of the launch that runs.
static void a_long_launch_is_given_up(void **state) {
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        ct_set_threads(threads);
        long_launch(); // makes the plan
        assert_false(ct_failed());
        uint64_t launches = ct_get_stats().launches;
        double whole = long_launch();
        assert_int_equal(ct_get_stats().launches, launches + 1);
        appointment when = {ct_ctx_current(), whole / 20};
        pthread_t thread;
        pthread_create(&thread, NULL, cancel_then, &when);
        double took = long_launch();
        pthread_join(thread, NULL);
        print_message("%d threads: %.0f ms whole, %.0f ms cancelled after %.0f ms\n", threads,
                      whole * 1e3, took * 1e3, when.after * 1e3);
        assert_string_equal(ct_error_text(), "run: cancelled: no variable has changed");
        ct_error_clear();
        assert_true(took < whole * 0.7);
    }
    ct_set_threads(0);
}

static ct_params *counters(ct_tensor *a, ct_tensor *b) {
    ct_params *params = ct_params_new();
    *a = ct_param(params, "a", CT_F32, CT_SCALAR);
    *b = ct_param(params, "b", CT_F32, CT_SCALAR);
    CT_SCOPE;
    ct_assign(*a, ct_f(0));
    ct_assign(*b, ct_f(0));
    return params;
}

static void cancelled_before_it_runs(void **state) {
    (void)state;
    ct_tensor a, b, kept;
    ct_params *params = counters(&a, &b);
    {
        CT_SCOPE;
        ct_assign(a, ct_add(a, ct_f(1)));
        ct_cancel(ct_ctx_current());
        kept = ct_keep(ct_add(a, ct_f(5)));
    }
    assert_true(ct_failed());
    assert_int_equal(ct_error_code(), CT_E_INTERRUPTED);
    assert_string_equal(ct_error_text(), "run: cancelled: no variable has changed");
    assert_false(ct_ok(kept));
    ct_error_clear();
    assert_true(value_of(a) == 0); // and nothing is cancelled a second time
    assert_false(ct_failed());
    ct_cancel(NULL);
    assert_true(value_of(b) == 0);
    ct_params_free(params);
}

// Whenever the cancellation comes, both counters stay or both move.
static void a_cancelled_step_happens_whole_or_not_at_all(void **state) {
    (void)state;
    const char *devices[] = {"cpu", "async:cpu"};
    for (int d = 0; d < 2; d++) {
        ct_ctx *before = ct_ctx_use(ct_ctx_new());
        assert_true(ct_set_device(devices[d]));
        ct_tensor a, b;
        ct_params *params = counters(&a, &b);
        double begin, whole = 1e9;
        int steps = 0, lost = 0;
        for (int i = 0; i < 4; i++) { // the first two compile
            begin = now();
            {
                CT_SCOPE;
                record_step(a, b, i & 1);
            }
            assert_true(value_of(b) == ++steps);
            if (i > 1 && now() - begin < whole) whole = now() - begin;
        }
        for (int i = 0; i < 40; i++) {
            appointment when = {ct_ctx_current(), whole * i / 32};
            pthread_t thread;
            pthread_create(&thread, NULL, cancel_then, &when);
            {
                CT_SCOPE;
                record_step(a, b, i & 1);
            }
            pthread_join(thread, NULL);
            if (ct_failed()) {
                assert_int_equal(ct_error_code(), CT_E_INTERRUPTED);
                ct_error_clear();
                lost++;
            } else { // it came too late for this step: the next run is cancelled
                steps++;
                CT_SCOPE;
                double none = ct_item(ct_neg(a));
                assert_true(none != none);
                assert_int_equal(ct_error_code(), CT_E_INTERRUPTED);
                ct_error_clear();
            }
            assert_true(value_of(a) == steps && value_of(b) == steps);
            assert_false(ct_failed());
        }
        assert_true(lost >= 1 || d > 0); // an asynchronous device has soon been told everything
        ct_params_free(params);
        ct_ctx_free(ct_ctx_use(before));
    }
}

static ct_ctx *alarmed;
static void on_alarm(int number) {
    (void)number;
    ct_cancel(alarmed);
}

// Many launches, no variable: stopped by a signal handler after a small part of its time.
static double long_run(int deep) {
    double begin = now();
    CT_SCOPE;
    ct_tensor x = ct_from(square_matrix, CT_F32, CT_DIMS(SIDE, SIDE)), y = x;
    for (int i = 0; i < deep; i++) y = ct_matmul(y, x);
    (void)!ct_eval(&y, 1);
    return now() - begin;
}

static void a_run_stops_between_launches(void **state) {
    (void)state;
    enum { DEEPER = 400 };
    long_run(DEEPER); // compiled
    double whole = long_run(DEEPER);
    assert_false(ct_failed());
    alarmed = ct_ctx_current();
    struct sigaction mine = {.sa_handler = on_alarm}, old;
    sigaction(SIGALRM, &mine, &old);
    double wait = whole / 20;
    struct itimerval soon = {
        .it_value = {(time_t)wait, (suseconds_t)((wait - (double)(time_t)wait) * 1e6) + 1}};
    setitimer(ITIMER_REAL, &soon, NULL);
    double stopped = long_run(DEEPER);
    sigaction(SIGALRM, &old, NULL);
    assert_int_equal(ct_error_code(), CT_E_INTERRUPTED);
    assert_true(stopped < whole * 0.7);
    ct_error_clear();
}

// Training that was cancelled twice and went on ends with the same bits.
static void train(int cancel_every, float out[2]) {
    ct_params *params = ct_params_new();
    ct_tensor w = ct_param(params, "w", CT_F32, CT_DIMS(2));
    {
        CT_SCOPE;
        ct_assign(w, ct_zeros(CT_F32, CT_DIMS(2)));
    }
    ct_optim *adam = ct_adam(params, .lr = 0.1);
    for (int step = 0, since = 0; step < 12; since++) {
        {
            CT_SCOPE;
            float target[2] = {1, (float)step};
            ct_tensor miss = ct_sub(w, ct_from(target, CT_F32, CT_DIMS(2)));
            ct_optim_step(adam, ct_sum(ct_square(miss)));
            if (cancel_every && since % cancel_every == cancel_every - 1)
                ct_cancel(ct_ctx_current());
        }
        if (!ct_failed()) {
            step++;
            continue;
        }
        assert_int_equal(ct_error_code(), CT_E_INTERRUPTED);
        ct_error_clear();
        assert_int_equal(ct_optim_step_count(adam), step);
    }
    {
        CT_SCOPE;
        const float *values = ct_data(w);
        assert_non_null(values);
        memcpy(out, values, 2 * sizeof *out);
    }
    ct_optim_free(adam);
    ct_params_free(params);
}

static void training_goes_on_after_a_cancellation(void **state) {
    (void)state;
    float plain[2], cancelled[2];
    train(0, plain);
    train(4, cancelled);
    assert_memory_equal(plain, cancelled, sizeof plain);
}

static ct_tensor distance(int64_t step, void *user) {
    (void)step;
    return ct_sum(ct_square(ct_sub(*(const ct_tensor *)user, ct_f(1))));
}
static ct_fit_action cancel_at_third(const ct_fit_state *point, void *user) {
    (void)user;
    if (point->step == 2) ct_cancel(ct_ctx_current());
    return CT_FIT_CONTINUE;
}
static bool never_save(int64_t steps_done, void *user) {
    (void)steps_done, (void)user;
    fail_msg("a cancelled fit saved");
    return true;
}

static void a_cancelled_fit_ends_at_once(void **state) {
    (void)state;
    ct_params *params = ct_params_new();
    ct_tensor w = ct_param(params, "w", CT_F32, CT_DIMS(2));
    {
        CT_SCOPE;
        ct_assign(w, ct_zeros(CT_F32, CT_DIMS(2)));
    }
    ct_optim *adam = ct_adam(params, .lr = 0.1);
    const ct_fit_callback told = {.on_step = cancel_at_third};
    ct_fit_options fit = {.steps = 9,
                          .optim = adam,
                          .loss = distance,
                          .callbacks = &told,
                          .n_callbacks = 1,
                          .save = never_save,
                          .user = &w};
    assert_false(ct_fit(&fit));
    assert_int_equal(ct_error_code(), CT_E_INTERRUPTED);
    ct_error_clear();
    assert_int_equal(ct_optim_step_count(adam), 3);
    ct_optim_free(adam);
    ct_params_free(params);
}

// ------------------------------------------------------------------------------------------------
// forking

// Runs f in a child that is killed when it hangs; 0: it ended well.
static int in_child(int (*f)(void)) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGALRM, SIG_DFL);
        alarm(20);
        _exit(f());
    }
    int status = 1;
    waitpid(pid, &status, 0);
    return status;
}

static ct_scope open_scope;
static ct_params *parents_params;
static ct_ctx *parents_ctx;
static int everything_refuses(void) {
    if (!ct_failed() || ct_error_code() != CT_E_FORK) return 1;
    if (strncmp(ct_error_text(), "fork: this process was forked", 29) != 0) return 2;
    ct_tensor x = ct_from(many, CT_F32, CT_DIMS(MANY));
    if (ct_ok(x) || ct_ok(ct_sum(x))) return 3;
    if (ct_eval(&x, 1) || ct_data(x)) return 4;
    {
        CT_SCOPE;
        ct_assign(ct_params_get(parents_params, 0), ct_f(1));
    }
    ct_scope_end(open_scope, CT_HERE);
    ct_error_clear();
    ct_ctx_use(parents_ctx);
    if (ct_ctx_current() || ct_ctx_new() || ct_params_new()) return 5;
    ct_ctx_free(parents_ctx);
    ct_params_free(parents_params);
    if (ct_shutdown()) return 6;
    return ct_error_code() == CT_E_FORK ? 0 : 7;
}

static atomic_bool stop_working;
static void *keep_working(void *arg) {
    (void)arg;
    while (!stop_working) wide_work();
    return NULL;
}

static void a_forked_child_gets_errors(void **state) {
    (void)state;
    ct_set_threads(2);
    pthread_t busy;
    pthread_create(&busy, NULL, keep_working, NULL);
    wide_work();
    parents_params = ct_params_new();
    parents_ctx = ct_ctx_current();
    ct_param(parents_params, "p", CT_F32, CT_SCALAR);
    open_scope = ct_scope_begin(CT_HERE);
    for (int i = 0; i < 20; i++) assert_int_equal(in_child(everything_refuses), 0);
    wide_work(); // the parent has noticed nothing
    ct_scope_end(open_scope, CT_HERE);
    stop_working = true;
    pthread_join(busy, NULL);
    ct_params_free(parents_params);
    ct_set_threads(0);
}

static int everything_works(void) {
    if (ct_failed()) return 1;
    CT_SCOPE;
    ct_tensor x = ct_from(many, CT_F32, CT_DIMS(MANY));
    return ct_item(ct_sum(ct_exp(x))) == MANY ? 0 : 2;
}

static void a_child_of_a_process_that_shut_down_may_use_it(void **state) {
    (void)state;
    wide_work();
    fresh_start();
    assert_int_equal(in_child(everything_works), 0);
    assert_int_equal(everything_works(), 0);
}

// ------------------------------------------------------------------------------------------------
// shutting down

static void used_again_after_a_shutdown(void **state) {
    (void)state;
    ct_tensor old = CT_NONE;
    for (int i = 0; i < 5; i++) {
        wide_work();
        ct_tensor kept;
        {
            CT_SCOPE;
            kept = ct_keep(ct_full(ct_f(i), CT_DIMS(3)));
        }
        assert_true(ct_ok(kept));
        if (i) { // no handle of another life names anything
            assert_false(ct_ok(old));
            assert_null(ct_data(old));
            assert_int_equal(ct_error_code(), CT_E_STALE);
            ct_error_clear();
        }
        old = kept;
        fresh_start();
    }
}

static void not_while_others_use_it(void **state) {
    (void)state;
    fresh_start();
    ct_params *params = ct_params_new();
    ct_ctx *other = ct_ctx_new();
    assert_false(ct_shutdown());
    assert_string_equal(ct_error_text(),
                        "shutdown: 1 other contexts and 1 parameter sets are still there");
    ct_error_clear();
    ct_params_free(params);
    ct_ctx_free(other);
    assert_true(ct_shutdown());
    assert_true(ct_shutdown()); // of nothing
}

// ------------------------------------------------------------------------------------------------
// the host's allocator

static atomic_long alive, handed_out;
static void *counted_alloc(size_t align, size_t bytes, void *user) {
    assert_string_equal(user, "mine");
    void *p = align <= _Alignof(max_align_t)
                  ? malloc(bytes)
                  : aligned_alloc(align, (bytes + align - 1) / align * align);
    if (p) alive++;
    if (p) handed_out++;
    return p;
}
static void *counted_realloc(void *old, size_t bytes, void *user) {
    (void)user;
    assert_non_null(old);
    return realloc(old, bytes);
}
static void counted_free(void *p, void *user) {
    (void)user;
    assert_non_null(p);
    alive--;
    free(p);
}

static void all_memory_is_the_hosts(void **state) {
    (void)state;
    static char mine[] = "mine";
    const ct_allocator counted = {counted_alloc, counted_realloc, counted_free, mine};
    wide_work();
    assert_false(ct_set_allocator(&counted));
    assert_string_equal(ct_error_text(), "set_allocator: the library has allocated memory already");
    fresh_start();
    assert_false(ct_set_allocator(&(ct_allocator){.alloc = counted_alloc}));
    assert_string_equal(ct_error_text(),
                        "set_allocator: alloc, realloc and free are needed, all three");
    fresh_start();
    assert_true(ct_set_allocator(&counted));
    ct_set_threads(3);
    wide_work();
    float out[2];
    train(5, out);
    assert_true(handed_out > 100 && alive > 0);
    fresh_start();
    assert_int_equal(alive, 0); // nothing is held after a shutdown
    long before = handed_out;
    assert_true(ct_set_allocator(NULL));
    wide_work();
    assert_int_equal(handed_out, before);
    ct_set_threads(0);
}

static void the_version_is_the_headers(void **state) {
    (void)state;
    assert_string_equal(ct_version(), CT_VERSION);
}

static int shut_down(void **state) {
    (void)state;
    ct_error_clear();
    return ct_shutdown() ? 0 : -1;
}

int main(void) {
    for (int i = 0; i < SIDE; i++) square_matrix[i * SIDE + i] = 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_take_no_signals),
        cmocka_unit_test(handlers_and_masks_stay),
        cmocka_unit_test(as_many_threads_as_are_set),
        cmocka_unit_test(cancelled_before_it_runs),
        cmocka_unit_test(a_long_launch_is_given_up),
        cmocka_unit_test(a_cancelled_step_happens_whole_or_not_at_all),
        cmocka_unit_test(a_run_stops_between_launches),
        cmocka_unit_test(training_goes_on_after_a_cancellation),
        cmocka_unit_test(a_cancelled_fit_ends_at_once),
        cmocka_unit_test(a_forked_child_gets_errors),
        cmocka_unit_test(a_child_of_a_process_that_shut_down_may_use_it),
        cmocka_unit_test(used_again_after_a_shutdown),
        cmocka_unit_test(not_while_others_use_it),
        cmocka_unit_test(all_memory_is_the_hosts),
        cmocka_unit_test(the_version_is_the_headers),
    };
    return cmocka_run_group_tests(tests, NULL, shut_down);
}
