// Profiles: what is counted, what is said of it, and the trace.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "cotan/profile.h"

enum { N = 64, STEPS = 5 };

static void step(void) {
    CT_SCOPE;
    CT_ANNOTATE("step");
    ct_tensor x = ct_ones(CT_F32, CT_DIMS(N, N));
    ct_tensor y = ct_abs(ct_matmul(x, x));
    float sum = 0;
    {
        CT_ANNOTATE("read");
        sum = (float)ct_item(ct_sum(y));
    }
    assert_true(sum == (float)N * N * N);
}

static const ct_profile_row *row(const char *name, ct_profile_kind kind) {
    const ct_profile *p = ct_profile_result();
    assert_non_null(p);
    for (size_t i = 0; i < p->n_rows; i++)
        if (p->rows[i].kind == kind && !strcmp(p->rows[i].name, name)) return &p->rows[i];
    return NULL;
}

static void launches_have_their_lines(void **state) {
    const char *device = *state;
    ct_ctx *own = ct_ctx_new(); // whose memory goes with it
    assert_non_null(own);
    ct_ctx_use(own);
    assert_true(ct_set_device(device));
    step();
    assert_true(ct_profile_begin());
    for (int i = 0; i < STEPS; i++) step();
    assert_true(ct_profile_end(NULL, false));
    const ct_profile *p = ct_profile_result();
    const bool ref = !strcmp(device, "ref");
    const ct_profile_row *product =
        ref ? row("matmul", CT_PROFILE_OP) : row("matmul", CT_PROFILE_KERNEL);
    assert_non_null(product);
    assert_int_equal(product->calls, STEPS);
    assert_string_equal(product->device, device);
    assert_non_null(strstr(product->here.file, "test_profile.c"));
    assert_in_range(product->here.line, 20, 30);
    if (!ref) assert_true(product->flops >= 2.0 * N * N * N * STEPS && product->bytes > 0);
    assert_true(product->min_seconds <= product->max_seconds &&
                product->seconds <= p->launch_seconds);
    if (strncmp(device, "async:", 6)) // whose plans have run when they stand in its queue
        assert_true(p->launch_seconds <= row("plan run", CT_PROFILE_RUN)->seconds);
    assert_true(row("plan run", CT_PROFILE_RUN)->seconds <= row("read", CT_PROFILE_USER)->seconds);
    assert_true(row("read", CT_PROFILE_USER)->seconds <= row("step", CT_PROFILE_USER)->seconds);
    assert_true(row("step", CT_PROFILE_USER)->seconds <= p->seconds);
    assert_null(row("plan made", CT_PROFILE_PLAN)); // it was made before
    const char *table = ct_profile_table();
    assert_non_null(strstr(table, "matmul "));
    assert_non_null(strstr(table, "test_profile.c:"));
    assert_null(strstr(table, "share"));
    step(); // nobody watches: nothing is added
    assert_int_equal(row("step", CT_PROFILE_USER)->calls, STEPS);
    ct_ctx_use(NULL);
    ct_ctx_free(own);
}

static void pauses_do_not_count(void **state) {
    (void)state;
    assert_true(ct_profile_begin());
    step();
    ct_profile_pause();
    step();
    usleep(200000);
    ct_profile_resume();
    step();
    assert_true(ct_profile_end(NULL, true));
    assert_int_equal(row("step", CT_PROFILE_USER)->calls, 2);
    assert_true(ct_profile_result()->seconds < 0.2);
    assert_true(ct_profile_result()->limits.flops > 0 &&
                ct_profile_result()->limits.stream_bandwidth > 0);
    assert_non_null(strstr(ct_profile_table(), "share: the time that "));
}

static void memory_is_seen(void **state) {
    (void)state;
    assert_true(ct_profile_begin());
    {
        CT_SCOPE;
        ct_tensor x = ct_keep(ct_ones(CT_F32, CT_DIMS(1 << 20)));
        assert_true(ct_eval(&x, 1));
        ct_drop(x);
    }
    assert_true(ct_profile_end(NULL, false));
    assert_in_range(ct_profile_result()->peak_bytes, 4 << 20, 64 << 20);
}

static void mistakes_are_said(void **state) {
    (void)state;
    assert_false(ct_profile_end_at(NULL, false, (ct_loc){"a.c", 3}));
    assert_string_equal(ct_error_text(),
                        "a.c:3: profile: none is under way: ct_profile_begin begins one");
    ct_error_clear();
    assert_true(ct_profile_begin());
    assert_false(ct_profile_begin_at((ct_loc){"a.c", 4}));
    assert_string_equal(ct_error_text(),
                        "a.c:4: profile: a profile is under way, which ct_profile_end ends");
    ct_error_clear();
    step();
    assert_false(ct_profile_end("/no/such/folder/trace.json", false));
    assert_non_null(strstr(ct_error_text(), "/no/such/folder/trace.json"));
    ct_error_clear();
    assert_non_null(row("step", CT_PROFILE_USER)); // what was seen stays
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(launches_have_their_lines, (void *)"cpu"),
        cmocka_unit_test_prestate(launches_have_their_lines, (void *)"ref"),
        cmocka_unit_test_prestate(launches_have_their_lines, (void *)"async:cpu"),
        cmocka_unit_test(pauses_do_not_count),
        cmocka_unit_test(memory_is_seen),
        cmocka_unit_test(mistakes_are_said),
    };
    return cmocka_run_group_tests_name("profile", tests, NULL, NULL);
}
