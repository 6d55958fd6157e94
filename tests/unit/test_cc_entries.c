// The entries of the kernel cache: damaged and planted ones are replaced, what was not used for longest goes, and
// what is not the cache's own stays.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <time.h>

#include "backend/cpu/cache.h"
#include "base/atomic.h"
#include "base/os.h"
#include "support/kernel_cache.h"

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

// What lies where the one entry should, instead of it, is refused, and replaced.
static void expect_replaced(int salt, void (*plant)(const char *path)) {
    made m;
    ct__kernel_source k = kernel(&m, salt, salt);
    ct_err err = {0};
    char last[256], path[600];
    assert_true(ct__cpu_build(&k, 1, 1, &err));
    assert_int_equal(entries(cache, last), 1);
    snprintf(path, sizeof path, "%s/%s", cache, last);
    plant(path);
    for (int start = 0; start < 2; start++) {
        ct__cpu_build_forget();
        k = kernel(&m, salt, salt);
        if (!ct__cpu_build(&k, 1, 1, &err)) fail_msg("%s", err.text);
        assert_int_equal(k.compiled, start == 0);
        expect_number(&k, salt);
    }
    unlink(path);
}

static char stranger[600]; // a kernel's file outside of the cache

static void plant_text(const char *path) {
    ct_err err = {0};
    assert_true(ct__file_replace(path, "not a program", 13, 0700, &err));
}
static void plant_stranger(const char *path) {
    unlink(path);
    assert_int_equal(linkat(AT_FDCWD, stranger, AT_FDCWD, path, 0), 0);
}
// A file of its own: what this process has loaded already is not looked at again.
static void open_to_others(const char *path) {
    char *bytes = NULL;
    size_t n = 0;
    ct_err err = {0};
    assert_true(ct__file_read(path, &bytes, &n, &err));
    unlink(path);
    assert_true(ct__file_write(path, bytes, n, &err));
    assert_int_equal(chmod(path, 0722), 0);
    free(bytes);
}
static void plant_empty(const char *path) {
    ct_err err = {0};
    assert_true(ct__file_replace(path, "", 0, 0700, &err));
}

static void planted_entries_are_rebuilt(void **state) {
    (void)state;
    made m;
    ct__kernel_source k = kernel(&m, 36, 36);
    ct_err err = {0};
    char last[256], path[600];
    assert_true(ct__cpu_build(&k, 1, 1, &err));
    assert_int_equal(entries(cache, last), 1);
    snprintf(path, sizeof path, "%s/%s", cache, last);
    snprintf(stranger, sizeof stranger, "%s/stranger.so", root);
    assert_int_equal(rename(path, stranger), 0);
    expect_replaced(37, plant_text);
    expect_replaced(38, plant_empty);
    expect_replaced(39, open_to_others);
    expect_replaced(40, plant_stranger); // sealed and whole, but another kernel's
    unlink(stranger);
}

// The path of an entry; the letter is the last digit of its key.
static void entry_named(char path[300], int key, char name) {
    snprintf(path, 300, "%s/%031d%c.so", cache, key, name);
}

// Ten files of 64 KB, one used an hour after the other, each under two names; of the first, its
// reading is the newest of all.
static void what_was_not_used_for_longest_goes(void **state) {
    (void)state;
    enum { FILES = 10, BYTES = 1 << 16 };
    static char bytes[BYTES];
    ct_cache c;
    ct_err err = {0};
    assert_true(ct__cache_open(&c, &err));
    memset(bytes, 7, sizeof bytes);
    for (int i = 0; i < FILES; i++) {
        char path[300], other[300];
        entry_named(path, i, 'a');
        entry_named(other, i, 'b');
        assert_true(ct__file_replace(path, bytes, BYTES, 0700, &err));
        assert_int_equal(linkat(AT_FDCWD, path, AT_FDCWD, other, 0), 0);
        time_t used = 1700000000 + 3600 * i;
        struct timespec times[2] = {{.tv_sec = i ? used : 1800000000}, {.tv_sec = used}};
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    }
    ct__cache_trim(&c, FILES * BYTES);
    assert_int_equal(entries(cache, NULL), 2 * FILES); // they fit
    ct__cache_trim(&c, 8 * BYTES);                     // to six of them
    assert_int_equal(entries(cache, NULL), 2 * 6);
    for (int i = 0; i < FILES; i++) {
        char path[300];
        entry_named(path, i, 'b');
        assert_int_equal(access(path, F_OK) == 0, i == 0 || i > 4);
        unlink(path);
        entry_named(path, i, 'a');
        unlink(path);
    }
}

// Files and folders of the cache, of a size, last changed this long ago; name/ is a folder.
typedef struct {
    const char *name;
    int bytes, seconds_ago;
    bool stays;
} lying_there;

static void lay(const lying_there *things, int n) {
    static char bytes[1 << 16];
    ct_err err = {0};
    char path[300];
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", cache, things[i].name);
        if (path[strlen(path) - 1] == '/')
            assert_int_equal(mkdir(path, 0700), 0);
        else
            assert_true(ct__file_write(path, bytes, (size_t)things[i].bytes, &err));
    }
    for (int i = 0; i < n; i++) {
        struct timespec times[2] = {{.tv_sec = time(NULL) - things[i].seconds_ago}};
        times[1] = times[0];
        snprintf(path, sizeof path, "%s/%s", cache, things[i].name);
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    }
}
static void expect_what_stays(const lying_there *things, int n) {
    for (int i = 0; i < n; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/%s", cache, things[i].name);
        if ((access(path, F_OK) == 0) != things[i].stays)
            fail_msg("%s %s", path, things[i].stays ? "is gone" : "is still there");
    }
}

enum { LONG_AGO = 90000, TODAY = 80000 }; // seconds, on both sides of a day

// A process that is killed while it compiles leaves its folder.
static void old_folders_are_swept(void **state) {
    (void)state;
    const lying_there things[] = {{"build-aB3xY9/", 0, LONG_AGO, false},
                                  {"build-aB3xY9/g0.c", 7, LONG_AGO, false},
                                  {"build-aB3xY9/g12.so", 7, LONG_AGO, false},
                                  {"build-aB3xY9/g12.err", 0, LONG_AGO, false},
                                  {"build-aB3xY9/g1.c.4711-3.tmp", 7, LONG_AGO, false},
                                  {"build-empty0/", 0, LONG_AGO, false},
                                  {"build-newone/", 0, TODAY, true},
                                  {"build-newone/g0.c", 7, TODAY, true}};
    enum { N = sizeof things / sizeof *things };
    ct_cache c;
    ct_err err = {0};
    assert_true(ct__cache_open(&c, &err));
    lay(things, N);
    ct__cache_trim(&c, CT_CACHE_LIMIT);
    expect_what_stays(things, N);
}

// Its user may have given the cache a folder with other things in it.
static void what_is_not_the_caches_own_is_left_alone(void **state) {
    (void)state;
    const lying_there things[] = {
        {"thesis.tex", 1 << 16, LONG_AGO, true},
        {"film.mkv", 1 << 16, TODAY, true},
        {"libown.so", 1 << 16, LONG_AGO, true},
        {"0123456789abcdef0123456789abcde.so", 1 << 16, LONG_AGO, true},   // 31 digits
        {"0123456789abcdef0123456789abcdef0.so", 1 << 16, LONG_AGO, true}, // 33
        {"0123456789abcdef0123456789abcdef.so.txt", 1 << 16, LONG_AGO, true},
        {"0123456789abcdef0123456789abcdef.so/", 0, LONG_AGO, true},
        {"0123456789abcdef0123456789abcdef.so/notes", 9, LONG_AGO, true},
        {"build-release/", 0, LONG_AGO, true},
        {"build-release/g0.c", 9, LONG_AGO, true},
        {"build-debug0/", 0, LONG_AGO, true},
        {"build-debug0/g0.c", 9, LONG_AGO, true},
        {"build-debug0/main.c", 9, LONG_AGO, true},
        {"build-debug1/", 0, LONG_AGO, true},
        {"build-debug1/g0/", 0, LONG_AGO, true},
        {"00000000000000000000000000000001.so", 1 << 16, LONG_AGO, false},
        {"00000000000000000000000000000002.so.4711-3.tmp", 1 << 16, LONG_AGO, false},
        {"00000000000000000000000000000003.so", 1 << 16, TODAY, true}};
    enum { N = sizeof things / sizeof *things };
    ct_cache c;
    ct_err err = {0};
    assert_true(ct__cache_open(&c, &err));
    lay(things, N);
    int before = entries(cache, NULL);
    ct__cache_trim(&c, 3 << 16); // what is its own fits
    assert_int_equal(entries(cache, NULL), before);
    ct__cache_trim(&c, 3 << 15); // to one of the three
    expect_what_stays(things, N);
}

int main(void) {
    keep_own_compiler();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(damaged_entries_are_rebuilt, open_cache, close_cache),
        cmocka_unit_test_setup_teardown(planted_entries_are_rebuilt, open_cache, close_cache),
        cmocka_unit_test_setup_teardown(what_was_not_used_for_longest_goes, open_cache,
                                        close_cache),
        cmocka_unit_test_setup_teardown(old_folders_are_swept, open_cache, close_cache),
        cmocka_unit_test_setup_teardown(what_is_not_the_caches_own_is_left_alone, open_cache,
                                        close_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
