// The part of the prelude that a kernel is compiled with: it suffices for each function, on each kind of machine, and is small.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cpu/prelude.h"
#include "base/mem.h"

// Every 24th function, and all of them where all is tested.
static size_t stride(void) { return getenv("COTAN_TEST_ALL") ? 1 : 24; }

static const char *compiler(void) {
    const char *asked = getenv("COTAN_CC");
    return asked ? asked : "cc";
}

static char file[] = "/tmp/cotan-prelude-XXXXXX.c";

static int make_file(void **state) {
    (void)state;
    const int fd = mkstemps(file, 2);
    return fd < 0 ? -1 : close(fd);
}
static int remove_file(void **state) {
    (void)state;
    return unlink(file);
}

static void write_text(const char *text, const char *more) {
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0 && fputs(more, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void name_function(char *to, size_t size, const char *name) {
    snprintf(to, size, "const void *use_it(void) { return (const void *)%s; }\n", name);
}

static void expect_compiles(const char *name, const char *machine) {
    char kernel[200], command[400];
    const char *kernels = kernel;
    ct_text text = {0};
    name_function(kernel, sizeof kernel, name);
    ct__prelude_add(&text, &kernels, 1);
    write_text(text.s, kernel);
    ct__text_free(&text);
    snprintf(command, sizeof command,
             "%s -w -Werror=implicit-function-declaration -std=gnu17 %s -fsyntax-only %s",
             compiler(), machine, file);
    if (system(command) != 0) fail_msg("%s %s: not all that it needs is there", name, machine);
}

// Compiles every stride-th function of the preprocessed prelude; returns the number of functions. A function is recognised by
// the attribute `unused` of FN and SLOW before its type and name.
static size_t check_functions(const char *machine) {
    char command[400], line[1 << 16], name[100];
    size_t n = 0;
    write_text(ct__cpu_prelude, "");
    snprintf(command, sizeof command, "%s -E -P -std=gnu17 %s %s", compiler(), machine, file);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    char(*names)[100] = calloc(2000, sizeof *names);
    while (fgets(line, sizeof line, f)) {
        for (const char *at = line; (at = strstr(at, "unused)) ")); at++) {
            const char *open = strchr(at + strlen("unused)) "), '('), *from = open;
            if (!open) break;
            while (from[-1] == '_' || (from[-1] >= 'a' && from[-1] <= 'z') ||
                   (from[-1] >= '0' && from[-1] <= '9'))
                from--;
            snprintf(name, sizeof name, "%.*s", (int)(open - from), from);
            if (n < 2000) memcpy(names[n++], name, sizeof name);
        }
    }
    assert_int_equal(pclose(f), 0);
    for (size_t i = 0; i < n; i += stride()) expect_compiles(names[i], machine);
    free(names);
    return n;
}

static void test_each_function_has_what_it_needs(void **state) {
    (void)state;
#if defined(__x86_64__)
    if (!getenv("COTAN_CC")) {
        assert_true(check_functions("-march=x86-64-v4") > 600);
        assert_true(check_functions("-march=x86-64-v3") > 600);
        assert_true(check_functions("-march=x86-64") > 600);
        return;
    }
#endif
    assert_true(check_functions("") > 600);
}

static size_t length_for(const char *kernel) {
    ct_text text = {0};
    ct__prelude_add(&text, &kernel, 1);
    const size_t n = text.n;
    ct__text_free(&text);
    return n;
}

static void test_what_is_not_used_stays_out(void **state) {
    (void)state;
    const size_t whole = strlen(ct__cpu_prelude), none = length_for("");
    assert_true(none < 8000 && whole > 35000);
    assert_true(length_for("add_f32") > none && length_for("add_f32") < none + 2000);
    assert_int_equal(length_for("// add_f32\n"), none);
    assert_int_equal(length_for("add_f32x"), none);
}

static void test_without_memory_all_of_it_is_there(void **state) {
    (void)state;
    const char *kernel = "SPLATTED(add, x, 1)";
    (void)length_for(""); // the tables are there
    ct_text text = {.s = ct__malloc(1 << 18), .cap = 1 << 18};
    ct__fail_alloc_after(0);
    ct__prelude_add(&text, &kernel, 1);
    ct__fail_alloc_after(-1);
    assert_false(text.failed);
    assert_string_equal(text.s, ct__cpu_prelude);
    ct__text_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_function_has_what_it_needs),
        cmocka_unit_test(test_what_is_not_used_stays_out),
        cmocka_unit_test(test_without_memory_all_of_it_is_there),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
