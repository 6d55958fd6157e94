// Elements of 4 bits: how they lie in memory, and that they are kept, assigned, carried and read.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "cotan/cotan.h"

static const char *const devices[] = {"ref", "cpu", "async:cpu"};
#define HERE ((ct_loc){"p.c", 4})

static void assert_bytes(ct_tensor t, const char *want, size_t n) {
    const void *have = ct_data(t);
    assert_string_equal(ct_error_text(), "");
    assert_memory_equal(have, want, n);
}

static ct_tensor seven(void) {
    return ct_from(((float[]){0.4f, 1, -2, 7, -9, 100, 3.9f}), CT_F32, CT_DIMS(7));
}

// The first element in the lower half of a byte; what is left of the last byte is 0.
static void two_lie_in_a_byte(void **state) {
    (void)state;
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
        assert_true(ct_set_device(devices[d]));
        CT_SCOPE;
        ct_tensor x = seven(), q = ct_cast(x, CT_I4);
        assert_bytes(q, "\x10\x7e\x78\x03", 4);
        assert_bytes(ct_cast(x, CT_U4), "\x10\x70\xf0\x03", 4);
        assert_bytes(ct_cast(x, CT_F4), "\x21\x7c\x7f\x06", 4);
        assert_bytes(ct_ones(CT_I4, CT_DIMS(3)), "\x11\x01", 2);
        assert_bytes(ct_scalar(5, CT_U4), "\x05", 1);
        // An odd slice, and rows without gaps between them.
        assert_bytes(ct_slice(q, .start = CT_INTS(1), .stop = CT_INTS(4)), "\xe1\x07", 2);
        ct_tensor rows = ct_from("\x21\x43\x65\x87\x09", CT_U4, CT_DIMS(3, 3));
        assert_bytes(ct_permute(rows, CT_AXES(1, 0)), "\x41\x27\x85\x63\x09", 5);
        assert_true(ct_item(ct_slice(q, .start = CT_INTS(4), .stop = CT_INTS(5))) == -8);
    }
}

static void variables_hold_them(void **state) {
    (void)state;
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
        assert_true(ct_set_device(devices[d]));
        ct_params *set = ct_params_new();
        ct_tensor w = ct_param(set, "w", CT_I4, CT_DIMS(7)), kept;
        {
            CT_SCOPE;
            ct_assign(w, ct_cast(seven(), CT_I4));
        }
        {
            CT_SCOPE;
            ct_assign(w, ct_flip(w, CT_AXES(0)));
            kept = ct_keep(ct_cast(w, CT_F32));
        }
        assert_bytes(w, "\x73\x78\x1e\x00", 4);
        char text[64];
        ct_format(kept, text, sizeof text);
        assert_string_equal(text, "(7,) f32\n[ 3  7 -8  7 -2  1  0]");
        ct_format(w, text, sizeof text);
        assert_string_equal(text, "(7,) i4\n[ 3  7 -8  7 -2  1  0]");
        ct_drop(kept);
        ct_params_free(set);
    }
}

// Sizes that change from run to run, odd ones among them.
static void dynamic_sizes(void **state) {
    (void)state;
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
        assert_true(ct_set_device(devices[d]));
        for (int n = 1; n < 40; n += 3) {
            CT_SCOPE;
            int8_t v[40];
            for (int i = 0; i < n; i++) v[i] = (int8_t)(5 * i % 16 - 8);
            ct_tensor q = ct_cast(ct_from(v, CT_I8, CT_DIMS(n)), CT_I4), back = ct_cast(q, CT_I8);
            const uint8_t *byte = ct_data(q);
            const int8_t *same = ct_data(back);
            assert_string_equal(ct_error_text(), "");
            for (int i = 0; i < n; i++) {
                assert_int_equal(byte[i / 2] >> 4 * (i % 2) & 15, v[i] & 15);
                assert_int_equal(same[i], v[i]);
            }
            if (n % 2) assert_int_equal(byte[n / 2] >> 4, 0);
        }
    }
}

static void add(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_cast(ct_add(ct_cast(in[0], CT_I32), ct_cast(in[1], CT_I32)), CT_I4);
    out[1] = in[0];
}

static void loops_carry_them(void **state) {
    (void)state;
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
        assert_true(ct_set_device(devices[d]));
        CT_SCOPE;
        ct_tensor xs = ct_from("\x21\x43\x65", CT_I4, CT_DIMS(3, 2)), last, ys;
        ct_tensor carry = ct_zeros(CT_I4, CT_DIMS(2));
        ct_scan(&last, &ys, .body = add, .carry = &carry, .n_carry = 1, .xs = &xs, .n_xs = 1,
                .n_ys = 1);
        assert_bytes(last, "\xc9", 1);
        assert_bytes(ys, "\x00\x21\x64", 3);
        xs = ct_from("\x21\x43\x05", CT_I4, CT_DIMS(5));
        carry = ct_zeros(CT_I4, CT_SCALAR);
        ct_scan_args args = {.body = add,
                             .carry = &carry,
                             .n_carry = 1,
                             .xs = &xs,
                             .n_xs = 1,
                             .n_ys = 1,
                             .here = HERE};
        ct_scan_with(args, &last, &ys);
        assert_string_equal(
            ct_error_text(),
            "p.c:4: scan: an element of operand 2 is () i4, which is no whole number of bytes\n"
            "  hint: go along a tensor of 8 bits, and cast it inside or after");
        ct_error_clear();
    }
}

static void nothing_is_computed_in_them(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor q = ct_cast(seven(), CT_I4);
    (void)ct_add_at(q, q, HERE);
    assert_string_equal(ct_error_text(),
                        "p.c:4: add: operand 1 is (7,) i4, accepted are integers, "
                        "floats and complex numbers\n  hint: cast it: ct_cast(x, CT_F32)");
    ct_error_clear();
    (void)ct_add_at(q, seven(), HERE);
    assert_string_equal(ct_error_text(), "p.c:4: add: i4 and f32 do not promote to one dtype\n"
                                         "  hint: cast it: ct_cast(x, CT_F32)");
    ct_error_clear();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_lie_in_a_byte),
        cmocka_unit_test(variables_hold_them),
        cmocka_unit_test(dynamic_sizes),
        cmocka_unit_test(loops_carry_them),
        cmocka_unit_test(nothing_is_computed_in_them),
    };
    return cmocka_run_group_tests_name("packed", tests, NULL, NULL);
}
