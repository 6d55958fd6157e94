// src/base: arenas, allocation failures, text, nearest names, hashes, error texts, files.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/atomic.h"
#include "base/os.h"
#include "base/text.h"

// ---------------------------------------------------------------------------------------- memory

static void arena_grows_and_keeps_what_it_gave(void **state) {
    (void)state;
    enum { N = 3000, STEP = 97 };
    ct_arena arena = {0};
    static unsigned char *given[N];
    size_t total = 0;
    for (int i = 0; i < N; i++) {
        size_t bytes = (size_t)(i * 7 % STEP) + 1;
        given[i] = ct__arena(&arena, bytes);
        assert_non_null(given[i]);
        assert_int_equal((uintptr_t)given[i] % 16, 0);
        memset(given[i], i & 255, bytes);
        total += (bytes + 15) / 16 * 16;
    }
    assert_int_equal(arena.bytes, total);
    for (int i = 0; i < N; i++)
        for (size_t k = 0; k < (size_t)(i * 7 % STEP) + 1; k++)
            assert_int_equal(given[i][k], i & 255);
    ct__arena_free(&arena);
    assert_null(arena.head);
}

static void arena_takes_what_is_larger_than_a_block(void **state) {
    (void)state;
    ct_arena arena = {0};
    size_t large = (size_t)9 << 20;
    char *small = ct__arena_str(&arena, "small");
    char *p = ct__arena_zero(&arena, large);
    assert_non_null(p);
    for (size_t i = 0; i < large; i += 4093) assert_int_equal(p[i], 0);
    assert_string_equal(small, "small");
    assert_string_equal(ct__arena_printf(&arena, "%s %d", "n", 12), "n 12");
    ct__arena_free(&arena);
}

static void arena_sizes_at_the_edges(void **state) {
    (void)state;
    ct_arena arena = {0};
    assert_non_null(ct__arena(&arena, 0)); // NULL would mean no memory
    assert_non_null(ct__arena(&arena, 16));
    for (size_t less = 0; less < 40; less++) assert_null(ct__arena(&arena, SIZE_MAX - less));
    assert_null(ct__arena(&arena, SIZE_MAX / 2));
    for (int i = 0; i < 3000; i++) { // the last byte of each block is used and owned
        char *p = ct__arena(&arena, 16);
        assert_non_null(p);
        memset(p, 1, 16);
    }
    ct__arena_free(&arena);
}

static void arena_reset_keeps_the_newest_block(void **state) {
    (void)state;
    ct_arena arena = {0};
    for (int i = 0; i < 200; i++) assert_non_null(ct__arena(&arena, 1000));
    size_t room = (size_t)(arena.end - (char *)arena.head);
    ct__arena_reset(&arena);
    assert_int_equal(arena.bytes, 0);
    ct__fail_alloc_after(0); // whatever fits the kept block needs no allocation
    char *p = ct__arena(&arena, room / 2);
    ct__fail_alloc_after(-1);
    assert_non_null(p);
    memset(p, 1, room / 2);
    ct__arena_free(&arena);
    ct__arena_reset(&arena); // an empty one too
    assert_int_equal(arena.bytes, 0);
}

static void arena_without_memory_gives_null_and_stays_usable(void **state) {
    (void)state;
    ct_arena arena = {0};
    ct__fail_alloc_after(0);
    assert_null(ct__arena(&arena, 8));
    assert_non_null(ct__arena(&arena, 8));
    ct__fail_alloc_after(0);
    assert_null(ct__arena_printf(&arena, "%100000d", 1));
    ct__fail_alloc_after(0);
    assert_null(ct__arena_zero(&arena, 1 << 20));
    assert_string_equal(ct__arena_str(&arena, "still here"), "still here");
    ct__arena_free(&arena);
}

static void the_chosen_allocation_fails_and_only_it(void **state) {
    (void)state;
    void *got[5];
    ct__fail_alloc_after(2);
    got[0] = ct__malloc(10);
    got[1] = ct__calloc(3, 4);
    got[2] = ct__realloc(got[0], 100);
    got[3] = ct__strdup("text");
    got[4] = ct__aligned(64, 100);
    assert_non_null(got[0]);
    assert_non_null(got[1]);
    assert_null(got[2]);
    assert_string_equal(got[3], "text");
    assert_int_equal((uintptr_t)got[4] % 64, 0);
    for (int i = 0; i < 5; i++) ct__free(got[i]);
}

static void grow_doubles_and_refuses_overflow(void **state) {
    (void)state;
    double *array = NULL;
    size_t cap = 0;
    assert_true(CT_GROW(array, cap, 1));
    assert_int_equal(cap, 16);
    for (size_t i = 0; i < 16; i++) array[i] = (double)i;
    assert_true(CT_GROW(array, cap, 17));
    assert_int_equal(cap, 32);
    assert_true(CT_GROW(array, cap, 1000));
    assert_int_equal(cap, 1000);
    for (size_t i = 0; i < 16; i++) assert_true(array[i] == (double)i);
    double *before = array;
    assert_false(CT_GROW(array, cap, SIZE_MAX / 4));
    ct__fail_alloc_after(0);
    assert_false(CT_GROW(array, cap, 1001));
    assert_ptr_equal(array, before);
    assert_int_equal(cap, 1000);
    ct__free(array);
}

// ------------------------------------------------------------------------------------------ text

static void text_grows_by_strings_bytes_and_formats(void **state) {
    (void)state;
    ct_text text = {0};
    ct__text_add(&text, "");
    assert_string_equal(text.s, "");
    for (int i = 0; i < 500; i++) ct__textf(&text, "%d,", i);
    ct__text_bytes(&text, "a\0b", 3);
    assert_int_equal(text.n, 10 * 2 + 90 * 3 + 400 * 4 + 3);
    assert_memory_equal(text.s, "0,1,2,3,", 8);
    assert_memory_equal(text.s + text.n - 7, "499,a\0b", 8);
    assert_false(text.failed);
    ct__text_free(&text);
    assert_null(text.s);
}

static void text_remembers_a_failed_allocation(void **state) {
    (void)state;
    ct_text text = {0};
    ct__text_add(&text, "kept");
    ct__fail_alloc_after(0);
    ct__textf(&text, "%1000d", 1);
    assert_true(text.failed);
    ct__text_add(&text, "x"); // later additions leave no hole
    assert_string_equal(text.s, "kept");
    ct__text_free(&text);
    assert_false(text.failed);
}

static void nearest_finds_the_meant_name_or_none(void **state) {
    (void)state;
    const char *const names[] = {"--layers", "--heads", "--width", "--context", NULL};
    assert_string_equal(ct__nearest("--layer", names), "--layers");
    assert_string_equal(ct__nearest("--haeds", names), "--heads");
    assert_string_equal(ct__nearest("--with", names), "--width");
    assert_null(ct__nearest("q", names));
    assert_null(ct__nearest("zzzzzzzzzz", names));
    // Another word with the same ending, or of as many letters, is not meant.
    const char *const commands[] = {"train", "tokenize", "eval", "bench", "fp32", "i8", NULL};
    const char *const others[] = {"quantize", "finetune", "trace",   "devil",
                                  "fp8",      "f8",       "optimize"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_null(ct__nearest(others[i], commands));
    assert_string_equal(ct__nearest("tokenise", commands), "tokenize");
    assert_string_equal(ct__nearest("evaluate", commands), "eval");
    assert_string_equal(ct__nearest("tok", commands), "tokenize");
    assert_string_equal(ct__nearest("benhc", commands), "bench");
    const char *const none[] = {NULL};
    assert_null(ct__nearest("--layers", none));
}

static void hash_depends_on_every_byte_length_and_seed(void **state) {
    (void)state;
    unsigned char bytes[70] = {0};
    ct_hash seen[70 * 8 + 71 + 2], zero = {0, 0};
    size_t n = 0;
    for (size_t length = 0; length <= 70; length++) seen[n++] = ct__hash_bytes(bytes, length, zero);
    for (size_t bit = 0; bit < 70 * 8; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        seen[n++] = ct__hash_bytes(bytes, sizeof bytes, zero);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    seen[n++] = ct__hash_bytes(bytes, sizeof bytes, (ct_hash){1, 0});
    seen[n++] = ct__hash_bytes(bytes, sizeof bytes, (ct_hash){0, 1});
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++) { // each half is a good hash by itself
            assert_true(seen[i].lo != seen[j].lo);
            assert_true(seen[i].hi != seen[j].hi);
        }
    assert_true(ct__hash_equal(seen[70], ct__hash_bytes(bytes, 70, zero)));
    char hex[33];
    ct__hash_hex((ct_hash){.lo = 0xab, .hi = 1}, hex);
    assert_string_equal(hex, "000000000000000100000000000000ab");
}

// ---------------------------------------------------------------------------------------- errors

static void error_text_is_file_line_op_what_values_hint(void **state) {
    (void)state;
    ct_err err = {0};
    ct__err_hint(&err, "nothing to hint at");
    assert_string_equal(err.text, "");
    ct_loc here = {"mnist.c", 14};
    assert_false(
        ct__err(&err, CT_E_SHAPE, here, "matmul", "inner sizes differ: %d and %d", 784, 512));
    ct__err_hint(&err, "transpose %s", "w");
    assert_int_equal(err.code, CT_E_SHAPE);
    assert_string_equal(err.text,
                        "mnist.c:14: matmul: inner sizes differ: 784 and 512\n  hint: transpose w");
}

static void the_first_error_wins(void **state) {
    (void)state;
    ct_err err = {0};
    assert_false(ct__err(&err, CT_E_DTYPE, CT_NOWHERE, "log", "not for %s", "bool"));
    assert_false(ct__err_memory(&err, CT_HERE, "later", 10));
    assert_int_equal(err.code, CT_E_DTYPE);
    assert_string_equal(err.text, "log: not for bool");
    ct__err_hint(&err, "of the later one");
    assert_string_equal(err.text, "log: not for bool");
    err.code = CT_OK;
    ct__err(&err, CT_E_DTYPE, CT_NOWHERE, "log", "not for bool");
    ct__err_hint(&err, "cast it");
    ct__err_hint(&err, "cast it");
    assert_string_equal(err.text, "log: not for bool\n  hint: cast it");
    ct_err memory = {0};
    assert_false(ct__err_memory(&memory, CT_NOWHERE, "plan", 1 << 20));
    assert_string_equal(memory.text, "plan: out of memory: 1048576 bytes were asked for");
    assert_false(ct__err(NULL, CT_E_DTYPE, CT_NOWHERE, "log", "nobody listens"));
}

static void an_overlong_error_is_cut_not_overrun(void **state) {
    (void)state;
    static char path[3 * CT_ERROR_TEXT];
    memset(path, 'p', sizeof path - 1);
    ct_err err = {0};
    ct__err(&err, CT_E_FILE, (ct_loc){path, 1}, path, "what %s", path);
    assert_int_equal(strlen(err.text), CT_ERROR_TEXT - 1);
    ct__err_hint(&err, "%s", path);
    assert_int_equal(strlen(err.text), CT_ERROR_TEXT - 1);
    ct_err most = {0};
    ct__err(&most, CT_E_FILE, CT_NOWHERE, "op", "%.*s", CT_ERROR_TEXT - 10, path);
    ct__err_hint(&most, "a hint that only begins to fit");
    assert_int_equal(strlen(most.text), CT_ERROR_TEXT - 1);
}

static void each_code_has_title_and_fix(void **state) {
    (void)state;
#define CT_CODE(number, name, title, hint)                                                         \
    assert_string_equal(ct_code_title(CT_E_##name), title);                                        \
    assert_string_equal(ct_code_hint(CT_E_##name), hint);                                          \
    assert_true(CT_E_##name == number && sizeof title > 1 && sizeof hint > 1);
#include "cotan/errors.inc"
#undef CT_CODE
    assert_string_equal(ct_code_title(CT_OK), "no error");
    assert_string_equal(ct_code_hint(CT_OK), "");
    assert_string_equal(ct_code_title((ct_code)9999), "unknown error code");
}

// ----------------------------------------------------------------------------------------- files

// A fresh folder to work in; its tests use relative paths, so that messages are known whole.
static int enter_folder(void **state) {
    char name[] = "/tmp/cotan-test-XXXXXX";
    if (!mkdtemp(name) || chdir(name) != 0) return -1;
    *state = strdup(name);
    return *state ? 0 : -1;
}

static int leave_folder(void **state) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", (char *)*state);
    free(*state);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

static void a_file_is_written_read_and_mapped(void **state) {
    (void)state;
    enum { N = 300001 };
    unsigned char *data = ct__malloc(N);
    for (int i = 0; i < N; i++) data[i] = (unsigned char)(i * 31 >> 3);
    ct_err err = {0};
    assert_true(ct__file_write("f", "old", 3, &err));
    assert_true(ct__file_write("f", data, N, &err));
    char *back = NULL;
    size_t n = 0;
    assert_true(ct__file_read("f", &back, &n, &err));
    assert_int_equal(n, N);
    assert_memory_equal(back, data, N);
    assert_int_equal(back[n], 0);
    const void *map = NULL;
    assert_true(ct__file_map("f", &map, &n, &err));
    assert_int_equal(n, N);
    assert_memory_equal(map, data, N);
    ct__file_unmap(map, n);
    assert_true(ct__file_write("empty", NULL, 0, &err));
    assert_true(ct__file_map("empty", &map, &n, &err));
    assert_null(map);
    assert_int_equal(n, 0);
    ct__file_unmap(map, n);
    ct__free(back);
    assert_true(ct__file_read("empty", &back, &n, &err));
    assert_int_equal(n, 0);
    assert_string_equal(back, "");
    assert_int_equal(err.code, CT_OK);
    ct__free(back);
    ct__free(data);
}

static void expect_file_error(ct_err *err, const char *text) {
    assert_int_equal(err->code, CT_E_FILE);
    assert_string_equal(err->text, text);
    *err = (ct_err){0};
}

static void what_is_no_file_is_refused_in_words(void **state) {
    (void)state;
    ct_err err = {0};
    char *bytes = NULL;
    const void *map = &err;
    size_t n = 0;
    assert_false(ct__file_read("absent", &bytes, &n, &err));
    expect_file_error(&err, "absent: cannot open: No such file or directory");
    assert_false(ct__file_read(".", &bytes, &n, &err));
    expect_file_error(&err, ".: not a regular file");
    assert_false(ct__file_map("absent", &map, &n, &err));
    assert_null(map);
    expect_file_error(&err, "absent: cannot open: No such file or directory");
    assert_false(ct__file_map("/dev/null", &map, &n, &err));
    expect_file_error(&err, "/dev/null: not a regular file");
    assert_false(ct__file_write("no/such/folder", "x", 1, &err));
    expect_file_error(&err, "no/such/folder: cannot create: No such file or directory");
    assert_int_equal(mkdir("taken", 0777), 0);
    assert_false(ct__file_write("taken", "x", 1, &err));
    expect_file_error(&err, "taken: cannot rename into place: Is a directory");
    assert_true(ct__file_write("f", "x", 1, &err));
    ct__fail_alloc_after(0);
    assert_false(ct__file_read("f", &bytes, &n, &err));
    assert_string_equal(err.text, "f: out of memory: 1 bytes were asked for");
    assert_null(bytes);
    static char longest[5000];
    memset(longest, 'a', sizeof longest - 1);
    err = (ct_err){0};
    assert_false(ct__file_write(longest, "x", 1, &err));
    assert_int_equal(err.code, CT_E_FILE);
}

static void a_failed_write_leaves_nothing_beside(void **state) {
    (void)state;
    ct_err err = {0};
    assert_int_equal(mkdir("taken", 0777), 0);
    assert_false(ct__file_write("taken", "x", 1, &err));
    assert_int_equal(rmdir("taken"), 0);
    char *folder = getcwd(NULL, 0);
    assert_non_null(folder);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(rmdir(folder), 0); // only an empty folder can be removed
    assert_int_equal(mkdir(folder, 0700), 0);
    free(folder);
}

static void folders_are_made_with_their_parents(void **state) {
    (void)state;
    ct_err err = {0};
    struct stat st;
    assert_true(ct__make_dirs("a/b//c/", 0755, &err));
    assert_true(ct__make_dirs("a/b/c", 0755, &err));
    assert_int_equal(stat("a/b/c", &st), 0);
    assert_true(S_ISDIR(st.st_mode));
    assert_true(ct__file_write("a/f", "x", 1, &err));
    assert_false(ct__make_dirs("a/f", 0755, &err));
    expect_file_error(&err, "a/f: exists and is not a folder");
    assert_false(ct__make_dirs("a/f/g", 0755, &err));
    expect_file_error(&err, "a/f/g: cannot create the folder: Not a directory");
    assert_false(ct__make_dirs("", 0755, &err));
    expect_file_error(&err, ": bad length of a path");
}

static char synced[4096]; // folders and files, with a line's end behind each
static bool noting;

int fsync(int fd) {
    char name[64], path[1024];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t n = noting ? readlink(name, path, sizeof path) : -1;
    size_t used = strlen(synced);
    if (n > 0) snprintf(synced + used, sizeof synced - used, "%.*s\n", (int)n, path);
    return fdatasync(fd);
}

static void names_of_new_folders_are_on_the_disk(void **state) {
    (void)state;
    ct_err err = {0};
    char want[4096], *here = getcwd(NULL, 0);
    noting = true;
    assert_true(ct__make_dirs("new/b//c/", 0755, &err));
    assert_true(ct__make_dirs("new/b", 0755, &err)); // it was there
    noting = false;
    snprintf(want, sizeof want, "%s\n%s/new\n%s/new/b\n", here, here, here);
    assert_string_equal(synced, want);
    free(here);
}

static void clock_memory_and_cores_are_sane(void **state) {
    (void)state;
    double before = ct__now();
    usleep(2000);
    double passed = ct__now() - before;
    assert_true(passed >= 0.002 && passed < 60);
    assert_true(ct__resident_bytes() > 100000);
    assert_true(ct__available_bytes() > 0);
    assert_in_range(ct__cores_allowed(), 1, 100000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_grows_and_keeps_what_it_gave),
        cmocka_unit_test(arena_takes_what_is_larger_than_a_block),
        cmocka_unit_test(arena_sizes_at_the_edges),
        cmocka_unit_test(arena_reset_keeps_the_newest_block),
        cmocka_unit_test(arena_without_memory_gives_null_and_stays_usable),
        cmocka_unit_test(the_chosen_allocation_fails_and_only_it),
        cmocka_unit_test(grow_doubles_and_refuses_overflow),
        cmocka_unit_test(text_grows_by_strings_bytes_and_formats),
        cmocka_unit_test(text_remembers_a_failed_allocation),
        cmocka_unit_test(nearest_finds_the_meant_name_or_none),
        cmocka_unit_test(hash_depends_on_every_byte_length_and_seed),
        cmocka_unit_test(error_text_is_file_line_op_what_values_hint),
        cmocka_unit_test(the_first_error_wins),
        cmocka_unit_test(an_overlong_error_is_cut_not_overrun),
        cmocka_unit_test(each_code_has_title_and_fix),
        cmocka_unit_test_setup_teardown(a_file_is_written_read_and_mapped, enter_folder,
                                        leave_folder),
        cmocka_unit_test_setup_teardown(what_is_no_file_is_refused_in_words, enter_folder,
                                        leave_folder),
        cmocka_unit_test_setup_teardown(a_failed_write_leaves_nothing_beside, enter_folder,
                                        leave_folder),
        cmocka_unit_test_setup_teardown(names_of_new_folders_are_on_the_disk, enter_folder,
                                        leave_folder),
        cmocka_unit_test_setup_teardown(folders_are_made_with_their_parents, enter_folder,
                                        leave_folder),
        cmocka_unit_test(clock_memory_and_cores_are_sane),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
