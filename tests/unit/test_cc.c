// The compiler driver and the kernel cache: counts, damage, hostile surroundings, error sentences.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cpu/build.h"
#include "base/os.h"

static char root[64]; // a folder of this run; holds the cache
static char cache[128];

static int setup(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/cotan-test-cc-XXXXXX");
    if (!mkdtemp(root)) return -1;
    snprintf(cache, sizeof cache, "%s/a/cache", root);
    setenv("COTAN_CACHE_DIR", cache, 1);
    unsetenv("COTAN_CC");
    ct__cpu_build_forget();
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
    chmod(cache, 0700);
    remove_tree(root);
    unsetenv("COTAN_CC");
    unsetenv("COTAN_CACHE_DIR");
    return 0;
}

// A kernel that stores a number; the salt makes texts differ between tests.
typedef struct {
    char name[40];
    char text[400];
} made;

static ct__kernel_source kernel(made *m, int salt, int number) {
    char name[40];
    snprintf(name, sizeof name, "k_%d_%d", salt, number);
    memcpy(m->name, name, sizeof name);
    snprintf(m->text, sizeof m->text,
             "void %s(void *const *bufs, const i64 *args, i64 begin, i64 end, void *scratch) {\n"
             "    for (i64 i = begin; i < end; i++) ((i64 *)bufs[0])[i] = %d + args[0];\n}\n",
             name, number);
    return (ct__kernel_source){.name = m->name, .text = m->text};
}

static void expect_number(const ct__kernel_source *k, int number) {
    int64_t y[2] = {0}, arg = 1000;
    assert_non_null(k->fn);
    k->fn((void *[]){y}, &arg, 1, 2, NULL);
    assert_int_equal(y[0], 0);
    assert_int_equal(y[1], number + 1000);
}

static int entries(const char *path, char last[256]) {
    int n = 0;
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (e->d_name[0] != '.') {
            if (last) snprintf(last, 256, "%s", e->d_name);
            n++;
        }
    if (dir) closedir(dir);
    return n;
}

static void compiled_once_then_known_then_loaded(void **state) {
    (void)state;
    enum { N = 7 };
    made m[N];
    ct__kernel_source k[N + 1];
    for (int i = 0; i < N; i++) k[i] = kernel(&m[i], 1, i);
    k[N] = k[2]; // twice in one request
    ct_err err = {0};
    ct__build_counts before = ct__cpu_build_counts(), now;
    if (!ct__cpu_build(k, N + 1, 2, &err)) fail_msg("%s", err.text);
    now = ct__cpu_build_counts();
    assert_int_equal(now.compiled - before.compiled, N);
    assert_int_equal(now.runs - before.runs, 2); // two processes for seven kernels
    for (int i = 0; i < N; i++) {
        expect_number(&k[i], i);
        assert_true(k[i].compiled);
    }
    assert_ptr_equal(k[N].fn, k[2].fn);
    assert_int_equal(entries(cache, NULL), N); // and nothing else is left there
    struct stat st;
    assert_int_equal(stat(cache, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);

    before = now;
    assert_true(ct__cpu_build(k, N, 2, &err));
    now = ct__cpu_build_counts();
    assert_int_equal(now.known - before.known, N);

    before = now;
    ct__cpu_build_forget();
    assert_true(ct__cpu_build(k, N, 2, &err));
    now = ct__cpu_build_counts();
    assert_int_equal(now.loaded - before.loaded, N);
    assert_int_equal(now.runs, before.runs);
    for (int i = 0; i < N; i++) {
        expect_number(&k[i], i);
        assert_false(k[i].compiled);
    }
}

// The linker makes files that the group may write where the umask allows it; entries are the
// owner's.
static void the_umask_does_not_matter(void **state) {
    (void)state;
    made m;
    ct__kernel_source k = kernel(&m, 9, 3);
    ct_err err = {0};
    ct__build_counts before = ct__cpu_build_counts();
    mode_t was = umask(002);
    bool ok = ct__cpu_build(&k, 1, 1, &err);
    ct__cpu_build_forget();
    ok = ok && ct__cpu_build(&k, 1, 1, &err);
    umask(was);
    if (!ok) fail_msg("%s", err.text);
    assert_int_equal(ct__cpu_build_counts().loaded - before.loaded, 1);
    expect_number(&k, 3);
}

// Entries of one group are links to one file.
static void a_group_is_one_file(void **state) {
    (void)state;
    made m[2];
    ct__kernel_source k[2] = {kernel(&m[0], 2, 0), kernel(&m[1], 2, 1)};
    ct_err err = {0};
    char last[256], path[600];
    assert_true(ct__cpu_build(k, 2, 1, &err));
    assert_int_equal(entries(cache, last), 2);
    snprintf(path, sizeof path, "%s/%s", cache, last);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_nlink, 2);
}

// Replaces the one entry by a changed copy and expects it to be refused, and rebuilt.
static void damaged(int salt, size_t cut, size_t flip) {
    made m;
    ct__kernel_source k = kernel(&m, salt, salt);
    ct_err err = {0};
    char last[256], path[600], *bytes = NULL;
    size_t n = 0;
    assert_true(ct__cpu_build(&k, 1, 1, &err));
    assert_int_equal(entries(cache, last), 1);
    snprintf(path, sizeof path, "%s/%s", cache, last);
    assert_true(ct__file_read(path, &bytes, &n, &err));
    bytes[flip % n] = (char)(bytes[flip % n] ^ 1);
    unlink(path);
    assert_true(ct__file_write(path, bytes, n - cut, &err));
    chmod(path, 0700);
    free(bytes);
    ct__cpu_build_forget();
    ct__build_counts before = ct__cpu_build_counts();
    k.fn = NULL;
    if (!ct__cpu_build(&k, 1, 1, &err)) fail_msg("%s", err.text);
    assert_int_equal(ct__cpu_build_counts().compiled - before.compiled, 1);
    expect_number(&k, salt);
    assert_int_equal(entries(cache, NULL), 1);
    ct__cpu_build_forget();
    assert_true(ct__cpu_build(&k, 1, 1, &err)); // what was rebuilt is whole
    assert_false(k.compiled);
    unlink(path);
}

static void damaged_entries_are_rebuilt(void **state) {
    (void)state;
    damaged(31, 0, 5000);     // a bit inside
    damaged(32, 0, SIZE_MAX); // somewhere else
    damaged(33, 1, 100);      // cut short
    damaged(34, 9000, 100);
}

static void a_folder_others_may_write_is_not_used(void **state) {
    (void)state;
    made m;
    ct__kernel_source k = kernel(&m, 4, 4);
    ct_err err = {0};
    assert_true(ct__make_dirs(cache, 0700, &err));
    chmod(cache, 0777);
    if (!ct__cpu_build(&k, 1, 1, &err)) fail_msg("%s", err.text);
    expect_number(&k, 4);
    assert_int_equal(entries(cache, NULL), 0);
}

static void without_any_folder_it_still_runs(void **state) {
    (void)state;
    made m;
    ct__kernel_source k = kernel(&m, 5, 5);
    ct_err err = {0};
    setenv("COTAN_CACHE_DIR", "/proc/nothing/here", 1);
    setenv("TMPDIR", root, 1);
    if (!ct__cpu_build(&k, 1, 1, &err)) fail_msg("%s", err.text);
    expect_number(&k, 5);
    assert_int_equal(entries(root, NULL), 0); // the private folder is gone
    unsetenv("TMPDIR");
}

static void children_of_the_program_are_left_alone(void **state) {
    (void)state;
    made m[2];
    ct__kernel_source k = kernel(&m[0], 6, 6);
    ct_err err = {0};
    pid_t child = fork();
    if (child == 0) _exit(7);
    if (!ct__cpu_build(&k, 1, 1, &err)) fail_msg("%s", err.text);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child); // still ours to reap
    assert_int_equal(WEXITSTATUS(status), 7);

    struct sigaction old, ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGCHLD, &ignore, &old);
    k = kernel(&m[1], 6, 7);
    bool ok = ct__cpu_build(&k, 1, 1, &err);
    sigaction(SIGCHLD, &old, NULL);
    if (!ok) fail_msg("with SIGCHLD ignored: %s", err.text);
    expect_number(&k, 7);
}

static void expect_failure(ct__kernel_source *k, const char *want) {
    ct_err err = {0};
    assert_false(ct__cpu_build(k, 1, 1, &err));
    assert_int_equal(err.code, CT_E_COMPILER);
    assert_string_equal(err.text, want);
    assert_int_equal(entries(cache, NULL), 0); // no litter
}

#define HINT "\n  hint: install gcc or clang, or set COTAN_CC to one"

static void failures_are_one_sentence(void **state) {
    (void)state;
    made m;
    ct__kernel_source k = kernel(&m, 8, 8);
    setenv("COTAN_CC", "no-such-compiler", 1);
    expect_failure(&k,
                   "cpu: no working C compiler: COTAN_CC names no program: no-such-compiler" HINT);
    setenv("COTAN_CC", "/bin/false", 1);
    char *real = realpath("/bin/false", NULL), want[300];
    snprintf(want, sizeof want,
             "cpu: no working C compiler: %s: it made nothing and gave no reason" HINT, real);
    expect_failure(&k, want);
    free(real);
    unsetenv("COTAN_CC");
    char *path = strdup(getenv("PATH"));
    setenv("PATH", root, 1);
    expect_failure(&k, "cpu: no working C compiler: neither cc, gcc nor clang is on PATH" HINT);
    setenv("PATH", "", 1);
    expect_failure(&k, "cpu: no working C compiler: neither cc, gcc nor clang is on PATH" HINT);
    setenv("PATH", path, 1);
    free(path);

    ct_err err = {0};
    k.text = "int broken(\n";
    assert_false(ct__cpu_build(&k, 1, 1, &err));
    assert_non_null(strstr(err.text, "error: "));

    // it says that all is well, and makes nothing
    setenv("COTAN_CC", "/bin/true", 1);
    real = realpath("/bin/true", NULL);
    snprintf(want, sizeof want,
             "cpu: no working C compiler: %s: it made nothing and gave no reason" HINT, real);
    expect_failure(&k, want);
    free(real);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(compiled_once_then_known_then_loaded, setup, teardown),
        cmocka_unit_test_setup_teardown(the_umask_does_not_matter, setup, teardown),
        cmocka_unit_test_setup_teardown(a_group_is_one_file, setup, teardown),
        cmocka_unit_test_setup_teardown(damaged_entries_are_rebuilt, setup, teardown),
        cmocka_unit_test_setup_teardown(a_folder_others_may_write_is_not_used, setup, teardown),
        cmocka_unit_test_setup_teardown(without_any_folder_it_still_runs, setup, teardown),
        cmocka_unit_test_setup_teardown(children_of_the_program_are_left_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(failures_are_one_sentence, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
