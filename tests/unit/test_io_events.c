// Event files. With FOLDER STEP, writes one for test_io_events.py, which decodes it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/events.h"

static const ct_scalar_event scalars[] = {
    {"loss", 1.5}, {"lr", -1e-3}, {"none", NAN}, {"far", -INFINITY}};
static const int64_t steps[] = {0, 1, 127, 128, 16384, INT64_MAX};
enum { STEPS = sizeof steps / sizeof *steps };

static bool write_file(const char *folder, int64_t step, ct_err *err) {
    ct_events events;
    bool ok = ct__events_open(folder, step, &events, err);
    for (int i = 0; i < STEPS && ok; i++) ok = ct__events_add(&events, steps[i], scalars, 4, err);
    ok = ok && ct__events_add(&events, 7, NULL, 0, err);
    ct__events_close(&events);
    return ok;
}

static void no_folder(void **state) {
    (void)state;
    ct_events events;
    ct_err err = {0};
    assert_false(ct__events_open("/dev/null/x", 0, &events, &err));
    assert_int_equal(err.code, CT_E_FILE);
    assert_string_equal(err.text, "/dev/null/x: cannot create the folder: Not a directory");
    ct__events_close(&events); // harmless
}

static void no_memory(void **state) {
    (void)state;
    char folder[] = "/tmp/cotan-events-XXXXXX", command[64];
    assert_non_null(mkdtemp(folder));
    for (int64_t n = 0, done = 0; !done; n++) {
        ct_err err = {0};
        ct__fail_alloc_after(n);
        done = write_file(folder, 3, &err);
        ct__fail_alloc_after(-1);
        if (!done) assert_int_equal(err.code, CT_E_MEMORY);
        assert_true(n < 1000);
        // A name that is taken costs one allocation more, and a second may see many attempts.
        snprintf(command, sizeof command, "rm -f %s/*", folder);
        assert_int_equal(system(command), 0);
    }
    assert_int_equal(rmdir(folder), 0);
}

int main(int argc, char **argv) {
    ct_err err = {0};
    if (argc == 3) return !write_file(argv[1], atoll(argv[2]), &err);
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_folder), cmocka_unit_test(no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
