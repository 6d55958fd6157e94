// TILE loops, bound to registers of 16 lanes: each iteration does what it says, whatever the others do.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "kir/kir.h"
#include "support/kir_run.h"

enum { TILE = 48, STEPS = 5 };

// acc[j] += a[k] * b[k, j] and, beside it, the sum before the last step, a count of the steps and j.
static void registers_of_each_iteration(void **state) {
    (void)state;
    float a[STEPS], b[STEPS * TILE], sum[TILE], before[TILE], place[TILE];
    for (int i = 0; i < STEPS; i++) a[i] = (float)(i + 1);
    for (int i = 0; i < STEPS * TILE; i++) b[i] = (float)(i % 13) - 6;
    ct_kir k;
    ct__kir_init(&k);
    int in_a = ct__kir_buffer(&k, CT_F32, CT_KIR_READ),
        in_b = ct__kir_buffer(&k, CT_F32, CT_KIR_READ);
    int out[3];
    for (int i = 0; i < 3; i++) out[i] = ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE);
    ct_kval steps = ct__kir_arg(&k);
    ct_kval j = ct__kir_loop_n(&k, CT_BIND_TILE, TILE, "column");
    ct_kval zero = ct__kir_const(&k, CT_F32, 0);
    ct_kval acc = ct__kir_reg(&k, zero), old = ct__kir_reg(&k, zero), count = ct__kir_reg(&k, zero);
    ct_kval t = ct__kir_loop(&k, CT_BIND_SEQ, steps, "step");
    ct_kval x = ct__kir_load(&k, in_a, t);
    ct_kval y = ct__kir_load(&k, in_b, ct__kir_add(&k, ct__kir_muli(&k, t, TILE), j));
    ct_kval was = ct__kir_get(&k, acc); // which is used behind the SET
    ct__kir_set(&k, acc, ct__kir_fma(&k, x, y, ct__kir_get(&k, acc)));
    ct__kir_set(&k, old, was);
    ct__kir_set(&k, count, ct__kir_add(&k, ct__kir_get(&k, count), ct__kir_const(&k, CT_F32, 1)));
    ct__kir_end(&k);
    ct__kir_store(&k, out[0], j, ct__kir_get(&k, acc));
    ct__kir_store(&k, out[1], j, ct__kir_get(&k, old));
    ct_kval where = ct__kir_cast(&k, ct__kir_muli(&k, j, 3), CT_F32); // an index as a number
    ct__kir_store(&k, out[2], j, ct__kir_add(&k, where, ct__kir_get(&k, count)));
    ct__kir_end(&k);
    ct__kir_lower_tiles(&k);
    kir_run(&k, (void *[]){a, b, sum, before, place}, (int64_t[]){STEPS}, 1);
    for (int c = 0; c < TILE; c++) {
        float want = 0, last = 0;
        for (int i = 0; i < STEPS; i++) last = want, want += a[i] * b[i * TILE + c];
        assert_true(sum[c] == want);
        assert_true(before[c] == last);
        assert_true(place[c] == (float)(3 * c + STEPS));
    }
}

// Columns that are far from each other become rows: with the 16 loads that can be turned, and with some
// of them.
static void columns_become_rows(void **state) {
    for (int rows = 15; rows <= 16; rows++) {
        (void)state;
        float x[16 * 21], y[16 * 16];
        ct_kval v[16];
        for (int i = 0; i < 16 * 21; i++) x[i] = (float)i;
        ct_kir k;
        ct__kir_init(&k);
        int in = ct__kir_buffer(&k, CT_F32, CT_KIR_READ),
            out = ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE);
        ct_kval c = ct__kir_loop_n(&k, CT_BIND_TILE, 16, "column");
        ct_kval from = ct__kir_addi(&k, ct__kir_muli(&k, c, 21), 2);
        for (int r = 0; r < rows; r++) v[r] = ct__kir_load(&k, in, ct__kir_addi(&k, from, r));
        for (int r = 0; r < rows; r++)
            ct__kir_store(&k, out, ct__kir_addi(&k, c, (int64_t)r * 16), v[r]);
        ct__kir_end(&k);
        ct__kir_lower_tiles(&k);
        int turned = 0;
        for (size_t i = 0; i < k.n; i++) turned += k.ins[i].op == CT_K_ZIP;
        assert_int_equal(turned, rows == 16 ? 64 : 0);
        kir_run(&k, (void *[]){x, y}, NULL, 1);
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < 16; i++) assert_true(y[r * 16 + i] == (float)(i * 21 + 2 + r));
    }
}

static void a_kernel_without_tiles_stays(void **state) {
    (void)state;
    ct_kir k;
    ct__kir_init(&k);
    int out = ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE);
    ct_kval i = ct__kir_loop(&k, CT_BIND_LANES, ct__kir_arg(&k), "element");
    ct__kir_store(&k, out, i, ct__kir_const(&k, CT_F32, 1));
    ct__kir_end(&k);
    const ct_kins *ins = k.ins;
    ct__kir_lower_tiles(&k);
    assert_ptr_equal(k.ins, ins);
    ct__kir_free(&k);
}

static void mistakes_are_told(void **state) {
    (void)state;
    for (int mistake = 0; mistake < 3; mistake++) {
        static const char *const text[] = {
            "needs a constant extent of 16 to 128, a multiple of 16, and none around it",
            "has a loop in it that is not SEQ",
            "holds scalar loads, stores, registers and arithmetic alone"};
        char whole[160];
        snprintf(whole, sizeof whole, "kernel: a TILE loop %s", text[mistake]);
        ct_kir k;
        ct__kir_init(&k);
        int out = ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE);
        ct_kval i = ct__kir_loop_n(&k, CT_BIND_TILE, mistake == 0 ? 20 : 16, NULL), inner = -1;
        ct_kval one = ct__kir_const(&k, CT_F32, 1);
        if (mistake == 1) inner = ct__kir_loop_n(&k, CT_BIND_LANES, 3, NULL);
        ct__kir_store(&k, out, i, mistake == 2 ? ct__kir_splat(&k, one) : one);
        if (inner >= 0) ct__kir_end(&k);
        ct__kir_end(&k);
        ct__kir_lower_tiles(&k);
        assert_string_equal(k.err.text, whole);
        ct__kir_free(&k);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(registers_of_each_iteration),
        cmocka_unit_test(columns_become_rows),
        cmocka_unit_test(a_kernel_without_tiles_stays),
        cmocka_unit_test(mistakes_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
