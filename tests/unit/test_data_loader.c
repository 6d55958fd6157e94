// src/data/loader and the generator under it: known vectors, unbiased starts, batches that depend
// on (seed, step) alone, validation windows.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/threefry.h"
#include "data/loader.h"

// The published vectors of Threefry-2x32, 20 rounds (Random123, examples/kat_vectors).
static void threefry_known_vectors(void **state) {
    (void)state;
    static const struct {
        ct_u32x2 key, counter, bits;
    } known[] = {
        {{{0, 0}}, {{0, 0}}, {{0x6b200159, 0x99ba4efe}}},
        {{{~0u, ~0u}}, {{~0u, ~0u}}, {{0x1cb996fc, 0xbb002be7}}},
        {{{0x13198a2e, 0x03707344}}, {{0x243f6a88, 0x85a308d3}}, {{0xc4923a9c, 0x483df7a0}}},
    };
    for (int i = 0; i < 3; i++) {
        ct_u32x2 bits = ct__threefry(known[i].key, known[i].counter);
        assert_int_equal(bits.v[0], known[i].bits.v[0]);
        assert_int_equal(bits.v[1], known[i].bits.v[1]);
    }
}

// Chi-squared over cells, 5 standard deviations; and the ends of the range occur.
static void starts_are_uniform(void **state) {
    (void)state;
    enum { CELLS = 100, DRAWS = 100000 };
    __extension__ typedef unsigned __int128 u128;
    static const uint64_t ranges[] = {100, 12345600, (uint64_t)3 << 62};
    for (int r = 0; r < 3; r++) {
        unsigned count[CELLS] = {0};
        double chi = 0, expected = (double)DRAWS / CELLS;
        for (uint64_t k = 0; k < DRAWS; k++) {
            uint64_t start = ct__window_start(7, 1, k, ranges[r]);
            assert_true(start < ranges[r]);
            count[(size_t)((u128)start * CELLS / ranges[r])]++;
        }
        for (int c = 0; c < CELLS; c++) chi += pow(count[c] - expected, 2) / expected;
        assert_true(fabs(chi - (CELLS - 1)) < 5 * sqrt(2.0 * (CELLS - 1)));
    }
    for (uint64_t k = 0; k < 100; k++) assert_int_equal(ct__window_start(1, 0, k, 1), 0);
}

// Without rejection, a range of 3/4 of 2^64 would give multiples of 3 half of the time.
static void starts_are_unbiased(void **state) {
    (void)state;
    enum { DRAWS = 30000 };
    double count[3] = {0}, expected = DRAWS / 3.0;
    for (uint64_t k = 0; k < DRAWS; k++) count[ct__window_start(7, 2, k, (uint64_t)3 << 62) % 3]++;
    for (int i = 0; i < 3; i++) assert_true(fabs(count[i] - expected) < 5 * sqrt(expected));
}

// The values are part of what a resumed run relies on, so they are pinned.
static void starts_are_pinned(void **state) {
    (void)state;
    static const uint64_t pinned[4] = {421211, 279448, 565181, 113590};
    for (uint64_t k = 0; k < 4; k++)
        assert_int_equal(ct__window_start(1337, 0, k, 1000000), pinned[k]);
}

enum { N = 1000, B = 4, T = 8 };
static int32_t tokens[N];

static int count_up(void **state) {
    (void)state;
    for (int32_t i = 0; i < N; i++) tokens[i] = i;
    return 0;
}

static void batches_are_windows_and_their_successors(void **state) {
    (void)state;
    ct_loader loader = {tokens, N, B, T, 42, 0, 0};
    int32_t x[B * T], y[B * T];
    for (int step = 0; step < 200; step++) {
        ct__loader_next(&loader, x, y);
        for (int b = 0; b < B; b++)
            for (int t = 0; t < T; t++) {
                assert_int_equal(x[b * T + t], x[b * T] + t);
                assert_int_equal(y[b * T + t], x[b * T + t] + 1);
            }
    }
    assert_int_equal(loader.step, 200);
}

static void seed_and_step_are_the_whole_state(void **state) {
    (void)state;
    ct_loader one = {tokens, N, B, T, 42, 0, 0}, two = one, other = one, stream = one;
    int32_t x1[B * T], x2[B * T], y[B * T];
    for (int step = 0; step < 5; step++) ct__loader_next(&one, x1, y);
    two.step = 4;
    ct__loader_next(&two, x2, y);
    assert_memory_equal(x1, x2, sizeof x1);
    other.seed = 43, other.step = 4;
    ct__loader_next(&other, x2, y);
    assert_memory_not_equal(x1, x2, sizeof x1);
    stream.stream = 1, stream.step = 4;
    ct__loader_next(&stream, x2, y);
    assert_memory_not_equal(x1, x2, sizeof x1);
}

// Each of the N - T starts comes up, the first and the last included, and no other.
static void every_window_is_drawn(void **state) {
    (void)state;
    enum { SHORT = 40 };
    unsigned char seen[SHORT] = {0};
    ct_loader loader = {tokens, SHORT, B, T, 3, 0, 0};
    int32_t x[B * T], y[B * T];
    for (int step = 0; step < 300; step++) {
        ct__loader_next(&loader, x, y);
        for (int b = 0; b < B; b++) seen[x[b * T]] = 1;
    }
    for (int i = 0; i < SHORT; i++) assert_int_equal(seen[i], i < SHORT - T);
    loader.n = T + 1; // one window only
    ct__loader_next(&loader, x, y);
    assert_int_equal(x[0], 0);
    assert_int_equal(y[T - 1], T);
}

static void validation_windows(void **state) {
    (void)state;
    // Tokens, and the windows of 8 that fit: each needs a ninth token to predict.
    static const size_t cases[][2] = {{0, 0},  {8, 0},  {9, 1},  {16, 1},
                                      {17, 2}, {33, 4}, {41, 5}, {N, 124}};
    for (int c = 0; c < 8; c++) {
        ct_windows windows = {tokens, cases[c][0], B, T, 0};
        int32_t x[B * T], y[B * T], expected = 0;
        size_t rows, total = 0;
        assert_int_equal(ct__windows_count(&windows), cases[c][1]);
        while ((rows = ct__windows_next(&windows, x, y))) {
            total += rows;
            for (size_t i = 0; i < rows * T; i++, expected++) {
                assert_int_equal(x[i], expected);
                assert_int_equal(y[i], expected + 1);
            }
            if (rows < B) assert_int_equal(total, cases[c][1]); // only the last one is smaller
        }
        assert_int_equal(total, cases[c][1]);
        assert_int_equal(ct__windows_next(&windows, x, y), 0);
        windows.next = 0;
        assert_int_equal(ct__windows_next(&windows, x, y) > 0, cases[c][1] > 0);
    }
}

static void the_split_is_nine_to_one(void **state) {
    (void)state;
    assert_int_equal(ct__split(0), 0);
    assert_int_equal(ct__split(9), 8);
    assert_int_equal(ct__split(10), 9);
    assert_int_equal(ct__split(1115394), 1003854); // as int(0.9 * n)
    assert_int_equal(ct__split(SIZE_MAX), 16602069666338596453u);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threefry_known_vectors),
        cmocka_unit_test(starts_are_uniform),
        cmocka_unit_test(starts_are_unbiased),
        cmocka_unit_test(starts_are_pinned),
        cmocka_unit_test(batches_are_windows_and_their_successors),
        cmocka_unit_test(seed_and_step_are_the_whole_state),
        cmocka_unit_test(every_window_is_drawn),
        cmocka_unit_test(validation_windows),
        cmocka_unit_test(the_split_is_nine_to_one),
    };
    return cmocka_run_group_tests(tests, count_up, NULL);
}
