// What the memory of devices is taken by: each tensor with its lines, and what a loop leaves behind.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/os.h"
#include "cotan/memory.h"
#include "support/sanitized.h"

static const ct_memory_row *row_of(const ct_memory_snapshot *s, const char *what, unsigned line) {
    for (size_t i = 0; i < s->n_rows; i++)
        if (strcmp(s->rows[i].op, what) == 0 && s->rows[i].here.line == line) return &s->rows[i];
    return NULL;
}

static void all_bytes_are_listed(void **state) {
    (void)state;
    ct_params *params = ct_params_new();
    CT_SCOPE;
    float four[4] = {1, 2, 3, 4};
    const unsigned from = __LINE__ + 1;
    ct_tensor x = ct_from(four, CT_F32, CT_DIMS(2, 2));
    const unsigned variable = __LINE__ + 1;
    ct_tensor w = ct_param(params, "layer.w", CT_F64, CT_DIMS(3));
    ct_assign(w, ct_ones(CT_F64, CT_DIMS(3)));
    const unsigned op = __LINE__ + 1;
    ct_tensor y = ct_exp(x);
    const unsigned wanted = __LINE__ + 1;
    assert_true(ct_eval(&y, 1));
    ct_memory_snapshot *s = ct_memory_snapshot_take();
    assert_non_null(s);
    const ct_memory_row *a = row_of(s, "from", from), *b = row_of(s, "variable", variable),
                        *c = row_of(s, "exp", op);
    assert_true(a && b && c);
    assert_string_equal(a->type, "(2, 2) f32");
    assert_int_equal(a->bytes, 16);
    assert_string_equal(b->type, "(3,) f64");
    assert_string_equal(b->name, "layer.w");
    assert_int_equal(b->bytes, 24);
    assert_string_equal(c->here.file, __FILE__);
    assert_int_equal(c->used_at.line, wanted);
    assert_int_equal(c->count, 1);
    // What the account says without a look at any tensor.
    assert_int_equal(s->values, ct_get_stats().live_bytes);
    assert_int_equal(s->arenas, ct_get_stats().arena_bytes);
    char line[256];
    snprintf(line, sizeof line,
             "  24 bytes       1  variable (3,) f64 \"layer.w\" of %s:%u, used at %s:%u\n",
             __FILE__, variable, b->used_at.file, b->used_at.line);
    assert_non_null(strstr(ct_memory_table(s), line));
    ct_memory_snapshot_free(s);
    ct_params_free(params);
}

// A step that keeps a tensor it does not need any more.
static unsigned leaky_step(ct_tensor *kept) {
    CT_SCOPE;
    float some[100] = {0};
    ct_tensor x = ct_from(some, CT_F32, CT_DIMS(100));
    const unsigned line = __LINE__ + 1;
    *kept = ct_mul(x, ct_f(2));
    *kept = ct_keep(*kept);
    return line;
}

static void a_leak_is_found_by_its_line(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor kept[9];
    unsigned line = 0;
    for (int i = 0; i < 2; i++) line = leaky_step(&kept[i]);
    ct_memory_snapshot *before = ct_memory_snapshot_take();
    for (int i = 2; i < 9; i++) leaky_step(&kept[i]);
    ct_memory_snapshot *after = ct_memory_snapshot_take(),
                       *grown = ct_memory_snapshot_diff(before, after);
    assert_non_null(grown);
    assert_int_equal(grown->n_rows, 1);
    assert_int_equal(grown->rows[0].here.line, line);
    assert_int_equal(grown->rows[0].used_at.line, line + 1);
    assert_int_equal(grown->rows[0].count, 7);
    assert_int_equal(grown->rows[0].bytes, 7 * 400);
    assert_int_equal(grown->values, 7 * 400);
    for (int i = 0; i < 9; i++) ct_drop(kept[i]);
    ct_memory_snapshot *freed = ct_memory_snapshot_take(),
                       *none = ct_memory_snapshot_diff(after, freed);
    assert_null(row_of(freed, "mul", line));
    assert_int_equal(none->n_rows, 0);
    assert_int_equal(none->values, 0);
    ct_memory_snapshot *const all[] = {before, after, grown, freed, none};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ct_memory_snapshot_free(all[i]);
}

static void the_system_agrees(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor first = ct_keep(ct_full(ct_f(10), CT_DIMS(1 << 22)));
    assert_true(
        ct_eval(&first, 1)); // brings what the process takes beside tensors: threads, kernels
    ct_memory_snapshot *before = ct_memory_snapshot_take();
    const size_t resident = ct__resident_bytes();
    if (!resident) skip();
    for (int i = 0; i < 10; i++) {
        ct_tensor t = ct_keep(ct_full(ct_f(i), CT_DIMS(1 << 22)));
        assert_true(ct_eval(&t, 1)); // 16 MiB each
    }
    ct_memory_snapshot *after = ct_memory_snapshot_take();
    const double seen = (double)(ct__resident_bytes() - resident),
                 said = (double)(after->values - before->values);
    assert_true(said == 10.0 * (1 << 24));
#ifdef __SANITIZE_ADDRESS__ // whose shadow is memory of the process, too
    if (seen < 0.95 * said)
#else
    if (!CT_THREAD_SANITIZER && (seen < 0.95 * said || seen > 1.05 * said))
#endif
        fail_msg("%g bytes are listed, the process grew by %g", said, seen);
    ct_memory_snapshot_free(before);
    ct_memory_snapshot_free(after);
}

static void what_is_wrong_is_said(void **state) {
    (void)state;
    ct_memory_snapshot *s = ct_memory_snapshot_take();
    assert_null(ct_memory_snapshot_diff(NULL, s));
    assert_string_equal(ct_error_text(),
                        "memory_snapshot_diff: the first snapshot must not be NULL");
    ct_error_clear();
    ct_memory_snapshot_free(s);
    ct_memory_snapshot_free(NULL);
    assert_string_equal(ct_memory_table(NULL), "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_bytes_are_listed),
        cmocka_unit_test(a_leak_is_found_by_its_line),
        cmocka_unit_test(the_system_agrees),
        cmocka_unit_test(what_is_wrong_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
