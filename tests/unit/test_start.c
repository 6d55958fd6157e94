// It starts at once: kernels are interpreted until a compiler in the background has made them, with
// the same bits; what is worth it is waited for. The compiler here is a script that waits to be let
// go, so that nothing hangs on how fast it is.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cpu/code.h"
#include "backend/cpu/interp.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/start.h"
#include "base/atomic.h"
#include "compile/render/render_c.h"
#include "cotan/cotan.h"
#include "support/sanitized.h"

static char *own_compiler; // COTAN_CC of the environment: for another machine it is another one
static char root[64], cache[128];
static char logged[4000];

static void note_log(ct_log_kind kind, const char *text, void *user) {
    (void)kind, (void)user;
    size_t n = strlen(logged);
    snprintf(logged + n, sizeof logged - n, "%s|", text);
}

// A compiler with this line before it; `go` in the folder lets it run.
static void script(const char *line) {
    char path[200], text[2000];
    ct_err err = {0};
    snprintf(path, sizeof path, "%s/cc", root);
    snprintf(text, sizeof text, "#!/bin/sh\n: >%s/started\n%s\nexec %s \"$@\"\n", root, line,
             own_compiler ? own_compiler : "cc");
    assert_true(ct__file_replace(path, text, strlen(text), 0700, &err));
    setenv("COTAN_CC", path, 1);
}

static const char *path_of(const char *name) {
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}
static bool is_there(const char *name) { return access(path_of(name), F_OK) == 0; }
static void touch(const char *name) {
    ct_err err = {0};
    assert_true(ct__file_write(path_of(name), "", 0, &err));
}

static void compiler_that_waits(void) {
    char line[400];
    snprintf(
        line, sizeof line,
        "n=0; until [ -e %s/go ]; do n=$((n + 1)); [ $n -lt 3000 ] || exit 1; sleep 0.02; done",
        root);
    script(line);
}

static int setup(void **state) {
    (void)state;
    if (!ct_shutdown()) return -1;
    snprintf(root, sizeof root, "/tmp/cotan-test-start-XXXXXX");
    if (!mkdtemp(root)) return -1;
    snprintf(cache, sizeof cache, "%s/cache", root);
    setenv("COTAN_CACHE_DIR", cache, 1);
    unsetenv("COTAN_COMPILE");
    logged[0] = '\0';
    ct_set_threads(2);
    ct_set_log(note_log, NULL);
    return 0;
}

static void remove_tree(const char *path) {
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char inner[600];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
        if (unlink(inner) != 0) remove_tree(inner);
    }
    if (dir) closedir(dir);
    rmdir(path);
}

static int teardown(void **state) {
    (void)state;
    ct_error_clear();
    if (!ct_shutdown()) return -1;
    remove_tree(root);
    own_compiler ? setenv("COTAN_CC", own_compiler, 1) : unsetenv("COTAN_CC");
    unsetenv("COTAN_CACHE_DIR");
    unsetenv("COTAN_COMPILE");
    return 0;
}

// How many entries of the folder, or of the process's threads, have a name that begins so.
static int count(const char *folder, const char *name) {
    int n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));)
        n += strncmp(e->d_name, name, strlen(name)) == 0;
    if (dir) closedir(dir);
    return n;
}

enum { WIDTH = 37 };

// What a small network says, with kernels of its own for each salt.
static void small(int salt, float out[WIDTH]) {
    CT_SCOPE;
    float x[WIDTH], factor = 1 + (float)salt / 8;
    for (int i = 0; i < WIDTH; i++) x[i] = (float)(i - 11) / 7;
    ct_tensor h = ct_from(x, CT_F32, CT_DIMS(WIDTH));
    h = ct_tanh(ct_add(ct_mul(h, ct_const(&factor, CT_F32, CT_DIMS(1))), ct_exp(h)));
    h = ct_sub(h, ct_mean(h));
    const float *v = ct_data(h);
    if (!v) fail_msg("%s", ct_error_text());
    memcpy(out, v, WIDTH * sizeof *v);
}

static void the_first_call_waits_for_no_compiler(void **state) {
    (void)state;
    float first[WIDTH], again[WIDTH], compiled[WIDTH];
    compiler_that_waits();
    ct_stats begin = ct_get_stats();
    small(1, first);
    ct_stats now = ct_get_stats();
    assert_int_equal(now.kernels_compiled, begin.kernels_compiled);
    const uint64_t pending = now.kernels_pending; // queued, or being compiled
    assert_true(begin.kernels_pending == 0 && pending > 0);
    assert_true(now.launches_interpreted > begin.launches_interpreted);
    assert_int_equal(now.launches_interpreted - begin.launches_interpreted,
                     now.launches - begin.launches);
    while (!is_there("started")) sched_yield(); // in the background, meanwhile
    begin = now;
    small(1, again); // and while it runs
    now = ct_get_stats();
    assert_int_equal(now.plans_made, begin.plans_made);
    assert_int_equal(now.launches_interpreted - begin.launches_interpreted,
                     now.launches - begin.launches);
    touch("go");
    ct__queue_wait_idle();
    assert_int_equal(ct_get_stats().kernels_pending, 0);
    assert_int_equal(ct_get_stats().kernels_compiled - begin.kernels_compiled, pending);
    begin = ct_get_stats();
    small(1, compiled);
    now = ct_get_stats();
    assert_int_equal(now.plans_made, begin.plans_made);
    assert_int_equal(now.launches_interpreted, begin.launches_interpreted);
    assert_memory_equal(first, again, sizeof first);
    assert_memory_equal(first, compiled, sizeof first);
    assert_int_equal(count(cache, "build-"), 0);
    assert_string_equal(logged, "");
}

static void whoever_asks_to_wait_does(void **state) {
    (void)state;
    float out[WIDTH];
    setenv("COTAN_COMPILE", "wait", 1);
    assert_true(ct_set_device("cpu"));
    ct_stats begin = ct_get_stats();
    small(2, out);
    assert_true(ct_get_stats().kernels_compiled > begin.kernels_compiled);
    assert_int_equal(ct_get_stats().launches_interpreted, begin.launches_interpreted);
    setenv("COTAN_COMPILE", "now", 1);
    assert_false(ct_set_device("cpu"));
    assert_string_equal(ct_error_text(),
                        "COTAN_COMPILE: it is \"now\", not wait\n"
                        "  hint: unset it to have kernels interpreted while they are compiled");
    assert_int_equal(ct_error_code(), CT_E_USAGE);
}

// Until it is replaced and behind that: the same bits, and nobody notices when it happens.
static void replaced_at_any_moment(void **state) {
    (void)state;
    float want[WIDTH], got[WIDTH];
    for (int salt = 3; salt < 9; salt++) {
        ct_stats begin = ct_get_stats();
        small(salt, want);
        int runs = 0;
        for (bool over = false; !over; runs++) {
            ct_stats before = ct_get_stats();
            small(salt, got);
            assert_memory_equal(got, want, sizeof want);
            over = ct_get_stats().launches_interpreted == before.launches_interpreted;
        }
        assert_true(runs > 0 && ct_get_stats().plans_made == begin.plans_made + 1);
    }
}

// A large launch, cut into pieces: the code comes while it runs.
static void replaced_within_a_launch(void **state) {
    (void)state;
    enum { N = 1 << 19 };
    float *x = malloc(N * sizeof *x), *want = malloc(N * sizeof *want);
    assert_true(x && want);
    for (int i = 0; i < N; i++) x[i] = (float)(i % 1000) / 300;
    for (int turn = 0; turn < 8; turn++) {
        CT_SCOPE;
        ct_tensor y = ct_exp(ct_tanh(ct_from(x, CT_F32, CT_DIMS(N))));
        const float *v = ct_data(y);
        if (!v) fail_msg("%s", ct_error_text());
        if (turn == 0) memcpy(want, v, N * sizeof *v);
        assert_memory_equal(v, want, N * sizeof *v);
    }
    free(x);
    free(want);
}

// ------------------------------------------------------------------------- what is waited for

// y[i] = x[i] + salt for as many i as the argument says.
static void make_kernel(ct_kir *k, int salt) {
    ct__kir_init(k);
    int x = ct__kir_buffer(k, CT_F32, CT_KIR_READ), y = ct__kir_buffer(k, CT_F32, CT_KIR_WRITE);
    ct_kval n = ct__kir_arg(k);
    ct_kval i = ct__kir_loop(k, CT_BIND_ROWS, n, "i");
    ct_kval v = ct__kir_add(k, ct__kir_load(k, x, i), ct__kir_const(k, CT_F32, salt));
    ct__kir_store(k, y, i, v);
    ct__kir_end(k);
}

typedef struct {
    ct_kir ir;
    ct_text text;
    char name[40];
    ct_kernel kernel;
    int64_t n;
    ct_command command;
} made;

static void build(made *m, int salt, int64_t n, size_t scratch) {
    ct_err err = {0};
    make_kernel(&m->ir, salt);
    m->text = (ct_text){0};
    assert_true(ct__render_c(&m->ir, &m->text, m->name, &err));
    ct__kernel_source s = {.name = m->name, .text = m->text.s, .ir = &m->ir};
    if (!ct__cpu_build_async(&s, 1, &err)) fail_msg("%s", err.text);
    m->n = n;
    m->kernel = (ct_kernel){
        .name = m->name, .text = m->text.s, .ir = &m->ir, .scratch = scratch, .code = s.code};
    m->command = (ct_command){.kind = CT_COMMAND_KERNEL,
                              .kernel = &m->kernel,
                              .ir = &m->ir,
                              .numbers = &m->n,
                              .n_numbers = 1,
                              .grid = n};
}
static void give_back(made *m) {
    ct__kir_free(&m->ir);
    ct__text_free(&m->text);
}
static bool ready(const made *m) { return ct__code_fn(m->kernel.code) != NULL; }

// On one thread, which compiles what it waits for itself: the rest begins when all waiting is done.
static bool start(const made *m, size_t n) {
    ct_command commands[4];
    ct_err err = {0};
    bool finished = false;
    for (size_t i = 0; i < n; i++) commands[i] = m[i].command;
    if (!ct__cpu_start(commands, n, 1, NULL, &finished, &err)) fail_msg("%s", err.text);
    return finished;
}

static void what_takes_longer_than_the_compiler_is_waited_for(void **state) {
    (void)state;
    made m[4];
    compiler_that_waits();
    build(&m[0], 1, 64, CT_FRAME_ROOM);
    build(&m[1], 2, 64, CT_FRAME_ROOM);
    assert_false(start(m, 2)); // microseconds: not waited for
    assert_false(ready(&m[0]) || ready(&m[1]));
    const struct ct_interp *interp = ct__code_acquire_interp(m[0].kernel.code);
    assert_non_null(interp);
    touch("go");
    ct__queue_wait_idle();
    assert_true(ready(&m[0]) && ready(&m[1]));
    assert_true(start(m, 2));
    // The launch that runs keeps what it runs; the next takes the code.
    assert_true(ct__interp_scratch(interp) > 0);
    assert_null(ct__code_acquire_interp(m[0].kernel.code));
    ct__code_release_interp(m[0].kernel.code);
    assert_null(atomic_load(&((ct_cpu_code *)m[0].kernel.code)->interp));

    build(&m[2], 3, (int64_t)1 << 50, CT_FRAME_ROOM); // years
    build(&m[3], 4, 64, CT_FRAME_ROOM); // compiled behind the other's run it would slow that
    assert_false(ready(&m[2]) || ready(&m[3]));
    assert_true(start(m, 4));
    assert_true(ready(&m[2]) && ready(&m[3]));
    for (int i = 0; i < 4; i++) give_back(&m[i]);
}

// One launch is not worth a compiler, a million of them are.
static void launches_of_a_kernel_count_together(void **state) {
    (void)state;
    enum { MANY = 1000000 };
    made m;
    ct_err err = {0};
    bool finished;
    build(&m, 10, 1 << 12, CT_FRAME_ROOM);
    ct_command *commands = malloc(MANY * sizeof *commands);
    assert_non_null(commands);
    for (int i = 0; i < MANY; i++) commands[i] = m.command;
    assert_true(ct__cpu_start(commands, MANY, 2, NULL, &finished, &err));
    assert_true(finished && ready(&m));
    free(commands);
    give_back(&m);

    // And a loop's, but for one that may end after its first turn.
    ct_operand predicate = {0};
    for (int i = 0; i < 2; i++) {
        script("until [ -e \"${0%/cc}/go\" ]; do sleep 0.02; done");
        if (i == 0) touch("go");
        build(&m, 12 + i, 1 << 12, CT_FRAME_ROOM);
        ct_command loop[3] = {{.kind = CT_COMMAND_LOOP, .count = MANY, .args = &predicate},
                              m.command,
                              {.kind = CT_COMMAND_END}};
        loop[0].n_args = i == 1;
        assert_true(ct__cpu_start(loop, 3, 2, NULL, &finished, &err));
        assert_int_equal(ready(&m), i == 0);
        if (i == 0) unlink(path_of("go"));
        give_back(&m);
    }
    touch("go");
}

static void what_does_not_fit_the_scratch_memory_is_waited_for(void **state) {
    (void)state;
    made m;
    build(&m, 11, 64, 8);
    assert_true(start(&m, 1));
    assert_true(ready(&m));
    give_back(&m);
}

// ------------------------------------------------------------------------------- what goes wrong

static void a_compiler_that_fails_is_told_once(void **state) {
    (void)state;
    float first[WIDTH], again[WIDTH];
    char want[500], *real;
    made m;
    script("exit 3");
    small(20, first);
    assert_string_equal(logged, "");
    ct__queue_wait_idle();
    assert_int_equal(ct_get_stats().kernels_pending, 0);
    for (int i = 0; i < 3; i++) {
        small(20, again);
        assert_memory_equal(first, again, sizeof first);
    }
    assert_false(ct_failed());
    real = realpath(path_of("cc"), NULL);
    snprintf(want, sizeof want,
             "cpu: no working C compiler: %s: it made nothing and gave no reason: kernels are "
             "interpreted, several times slower\n"
             "  hint: install gcc or clang, set COTAN_CC to one, or to none to have kernels "
             "interpreted|",
             real);
    free(real);
    assert_string_equal(logged, want);
    // Nobody tries again for each plan, nor waits in vain.
    unlink(path_of("started"));
    build(&m, 21, (int64_t)1 << 50, CT_FRAME_ROOM);
    assert_true(start(&m, 1));
    assert_false(ready(&m));
    give_back(&m);
    unlink(path_of("started"));
    build(&m, 21, 64, CT_FRAME_ROOM);
    assert_true(start(&m, 1));
    ct__queue_wait_idle();
    assert_false(is_there("started"));
    give_back(&m);
}

static void a_shutdown_waits_for_the_compiler_alone(void **state) {
    (void)state;
    float out[WIDTH];
    int status;
    compiler_that_waits();
    for (int salt = 30; salt < 60; salt++) small(salt, out);
    while (!is_there("started")) sched_yield();
    assert_true(ct_get_stats().kernels_pending >= 30); // some of them in the queue
    touch("go");
    int threads = count("/proc/self/task", ""); // the pool's may not even have begun
    assert_true(ct_shutdown());
    enum { LEFT = 3 + CT_THREAD_SANITIZER }; // . and .. and this one
    while (count("/proc/self/task", "") > LEFT) {
        assert_true(threads > LEFT);
        sched_yield();
    }
    assert_int_equal(ct_get_stats().kernels_pending, 0);
    assert_int_equal(count(cache, "build-"), 0);
    assert_true(count(cache, "") > 3); // what was compiled is kept
    assert_int_equal(waitpid(-1, &status, WNOHANG), -1);
}

// The leak checker asks it at the end: nobody has in the child what the compiler's threads had.
static bool is_child;
int __lsan_is_turned_off(void);
__attribute__((visibility("default"))) int __lsan_is_turned_off(void) { return is_child; }

// The child has none of the threads: it refuses, and ends.
static void a_forked_child_does_not_hang(void **state) {
    (void)state;
    float out[WIDTH];
    compiler_that_waits();
    small(70, out);
    while (!is_there("started")) sched_yield();
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        is_child = true;
        bool refused = ct_failed() && ct_error_code() == CT_E_FORK;
        exit(refused ? 0 : 1); // destructors run
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    touch("go");
}

// Contexts in threads of their own share what any of them had compiled.
static void *in_a_thread(void *arg) {
    ct_ctx *ctx = ct_ctx_new();
    ct_ctx_use(ctx);
    for (int turn = 0; turn < 20; turn++)
        for (int salt = 80; salt < 84; salt++) small(salt, ((float(*)[WIDTH])arg)[salt - 80]);
    ct_ctx_free(ctx);
    return NULL;
}
static void contexts_share_code(void **state) {
    (void)state;
    static float out[3][4][WIDTH];
    pthread_t threads[3];
    ct_stats begin = ct_get_stats();
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, in_a_thread, out[i]), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    ct__queue_wait_idle();
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    assert_memory_equal(out[0], out[2], sizeof out[0]);
    ct_stats now = ct_get_stats();
    assert_int_equal(now.kernels_pending, 0);
    int kernels = count(cache, "") - 3;                                       // ., .. and .lock
    assert_int_equal(now.kernels_compiled - begin.kernels_compiled, kernels); // each once
}

// Two contexts that compile: each waits for its own kernels alone. The compiler of one hangs until `go`,
// that of the other, and of whatever comes after it, works meanwhile.
enum { HANGS = 90, WORKS = 95 };

static void *hung_up(void *done) {
    float out[WIDTH];
    ct_ctx *ctx = ct_ctx_new();
    ct_ctx_use(ctx);
    small(HANGS, out);
    atomic_store((atomic_bool *)done, true);
    ct_ctx_free(ctx);
    return NULL;
}
static void contexts_do_not_wait_for_each_other(void **state) {
    (void)state;
    float out[WIDTH];
    pthread_t thread;
    atomic_bool done = false;
    char line[600];
    // The factor of small(HANGS) is 12.25, a number in the kernel's text.
    snprintf(
        line, sizeof line,
        "for a; do case $a in *.c) if grep -qF 12.25 $a; then : >%s/hangs\n"
        "n=0; until [ -e %s/go ]; do n=$((n + 1)); [ $n -lt 3000 ] || exit 1; sleep 0.02; done\n"
        "fi;; esac; done",
        root, root);
    script(line);
    setenv("COTAN_COMPILE", "wait", 1);
    assert_int_equal(pthread_create(&thread, NULL, hung_up, &done), 0);
    while (!is_there("hangs")) sched_yield();
    ct_ctx *ctx = ct_ctx_new(), *outer = ct_ctx_use(ctx);
    const ct_stats begin = ct_get_stats();
    assert_true(begin.kernels_pending > 0); // those of the other, which waits
    for (int salt = WORKS; salt < WORKS + 4; salt++) small(salt, out);
    assert_true(ct_get_stats().kernels_compiled > begin.kernels_compiled);
    assert_int_equal(ct_get_stats().launches_interpreted, begin.launches_interpreted);
    assert_int_equal(ct_get_stats().kernels_pending, begin.kernels_pending);
    assert_false(atomic_load(&done)); // it still waits for its compiler
    touch("go");
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(atomic_load(&done));
    assert_int_equal(ct_get_stats().kernels_pending, 0);
    ct_ctx_free(ct_ctx_use(outer));
}

int main(void) {
    own_compiler = getenv("COTAN_CC") ? strdup(getenv("COTAN_CC")) : NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_first_call_waits_for_no_compiler, setup, teardown),
        cmocka_unit_test_setup_teardown(whoever_asks_to_wait_does, setup, teardown),
        cmocka_unit_test_setup_teardown(replaced_at_any_moment, setup, teardown),
        cmocka_unit_test_setup_teardown(replaced_within_a_launch, setup, teardown),
        cmocka_unit_test_setup_teardown(what_takes_longer_than_the_compiler_is_waited_for, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(launches_of_a_kernel_count_together, setup, teardown),
        cmocka_unit_test_setup_teardown(what_does_not_fit_the_scratch_memory_is_waited_for, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_compiler_that_fails_is_told_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_shutdown_waits_for_the_compiler_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(a_forked_child_does_not_hang, setup, teardown),
        cmocka_unit_test_setup_teardown(contexts_share_code, setup, teardown),
        cmocka_unit_test_setup_teardown(contexts_do_not_wait_for_each_other, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
