// Attention's kernels: how many there are, what they hold in memory, and that rows do not see each other's number.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cotan/cotan.h"

static ct_tensor drawn(uint64_t seed, ct_ints dims) {
    return ct_random_normal(ct_random_key(seed), dims);
}

// Temporaries of attention over so many keys and of its gradients, beside operands, results and cotangents.
static uint64_t temporaries(int64_t length) {
    CT_SCOPE;
    const ct_ints dims = CT_DIMS(2, length, 64);
    ct_tensor in[3], grads[3];
    for (int i = 0; i < 3; i++) in[i] = ct_zeros(CT_F32, dims);
    assert_true(ct_eval(in, 3));
    ct_tensor loss = ct_sum(ct_attention(in[0], in[1], in[2], .causal = true));
    ct_grad(loss, in, 3, grads);
    assert_true(ct_eval(grads, 3));
    return ct_latest_plan()->arena_bytes;
}

static void memory_is_linear(void **state) {
    (void)state;
    assert_true(ct_set_device("dry:cpu"));
    const uint64_t least = temporaries(1024), most = temporaries(16384);
    assert_true(most <= 16 * least + 4096);
    assert_true(most <=
                3u * 2 * 16384 * 64 * 4); // the result, its cotangent, and two numbers a query
    assert_true(ct_set_device("cpu"));
}

static ct_tensor decoded(ct_tensor q, ct_tensor k, ct_tensor v, int64_t keys) {
    return ct_attention(q, k, v, .causal = true, .position = ct_i(keys - 1));
}

// A token over any number of keys: one kernel, the same one.
static void a_token_takes_one_kernel(void **state) {
    (void)state;
    uint64_t compiled = 0;
    for (int64_t keys = 100; keys < 900; keys += 100) {
        CT_SCOPE;
        ct_tensor q = drawn(1, CT_DIMS(2, 1, 16)), k = drawn(2, CT_DIMS(2, keys, 16)),
                  v = drawn(3, CT_DIMS(2, keys, 16));
        ct_tensor in[3] = {q, k, v};
        assert_true(ct_eval(in, 3));
        const ct_stats before = ct_get_stats();
        ct_tensor out = decoded(q, k, v, keys);
        assert_true(ct_eval(&out, 1));
        const ct_stats now = ct_get_stats();
        assert_int_equal(now.launches - before.launches, 1);
        // The first lengths tell that it varies.
        if (keys > 400) assert_int_equal(now.kernels_compiled + now.kernels_loaded, compiled);
        compiled = now.kernels_compiled + now.kernels_loaded;
    }
}

// What is compared: queries alone and many, keys in a longer buffer; shared heads beside repeated ones.
static void rows_have_the_same_bits(void **state) {
    (void)state;
    enum { T = 150, S = 200, D = 24 };
    CT_SCOPE;
    ct_tensor q = drawn(1, CT_DIMS(2, T, D)), k = drawn(2, CT_DIMS(2, S, D)),
              v = drawn(3, CT_DIMS(2, S, D));
    ct_tensor out = ct_attention(q, k, v, .causal = true, .position = ct_i(3), .window = 70);
    const float *all = ct_data(out); // (2, T, D)
    for (int64_t t = 0; t < T; t += 29) {
        ct_tensor row =
            ct_slice(q, .axes = CT_AXES(1), .start = CT_DIMS(t), .stop = CT_DIMS(t + 1));
        ct_tensor one =
            ct_attention(row, k, v, .causal = true, .position = ct_i(3 + t), .window = 70);
        const float *some = ct_data(one); // (2, 1, D)
        for (int h = 0; h < 2; h++)
            assert_memory_equal(some + h * D, all + (h * T + t) * D, D * sizeof *some);
    }
}

// Keys and values in pages that lie anywhere: the bits of those in order, and no copy of them.
static void pages_lie_anywhere(void **state) {
    (void)state;
    enum { TEXTS = 2, PAGES = 9, PAGE = 16, HEADS = 2, D = 8, N = PAGES * PAGE };
    static const int32_t table[TEXTS][PAGES] = {{17, 3, 8, 0, 11, 5, 2, 14, 9},
                                                {1, 4, 16, 7, 6, 1000, -1000, 999, 15}};
    static const int32_t last[TEXTS] = {140, 70};
    CT_SCOPE;
    ct_tensor pool[2], in_order[2], paged[2], q = drawn(1, CT_DIMS(TEXTS, 2 * HEADS, 1, D));
    ct_tensor pages = ct_from(table, CT_I32, CT_DIMS(TEXTS, PAGES));
    ct_tensor position = ct_from(last, CT_I32, CT_DIMS(TEXTS, 1));
    for (int i = 0; i < 2; i++) {
        pool[i] = drawn(2 + (uint64_t)i, CT_DIMS(2 * PAGES, PAGE, HEADS, D));
        assert_true(ct_eval(&pool[i], 1));
        ct_tensor rows = ct_gather(pool[i], pages); // (TEXTS, PAGES, PAGE, HEADS, D)
        paged[i] =
            ct_reshape(ct_permute(rows, CT_AXES(0, 3, 1, 2, 4)), CT_DIMS(TEXTS, HEADS, N, D));
        ct_tensor real = ct_minimum(ct_maximum(pages, ct_i(0)), ct_i(2 * PAGES - 1));
        in_order[i] = ct_reshape(ct_permute(ct_gather(pool[i], real), CT_AXES(0, 3, 1, 2, 4)),
                                 CT_DIMS(TEXTS, HEADS, N, D));
    }
    assert_true(ct_eval(in_order, 2) && ct_eval(&q, 1));
    ct_tensor want =
        ct_attention(q, in_order[0], in_order[1], .causal = true, .position = position);
    const float *expected = ct_data(want);
    const uint64_t before = ct_get_stats().launches;
    ct_tensor got = ct_attention(q, paged[0], paged[1], .causal = true, .position = position);
    assert_memory_equal(ct_data(got), expected, TEXTS * 2 * HEADS * D * sizeof *expected);
    assert_int_equal(ct_get_stats().launches - before, 1);
}

// What is added to all scores of a row cancels, however large; rows that a block has room for and that are not there add
// nothing to what keys get.
static void large_scores_cancel(void **state) {
    (void)state;
    enum { T = 3, S = 70, D = 8 };
    CT_SCOPE;
    ct_tensor in[3] = {drawn(1, CT_DIMS(T, D)), drawn(2, CT_DIMS(S, D)), drawn(3, CT_DIMS(S, D))},
              grads[2][3];
    assert_true(ct_eval(in, 3));
    for (int large = 0; large < 2; large++) {
        ct_tensor bias = ct_expand(ct_f(large ? 200 : 0), CT_DIMS(T, S));
        ct_tensor y = ct_attention(in[0], in[1], in[2], .mask = bias);
        ct_grad(ct_sum(ct_square(y)), in, 3, grads[large]);
    }
    for (int i = 0; i < 3; i++) {
        const float *want = ct_data(grads[0][i]), *got = ct_data(grads[1][i]);
        for (int j = 0; j < (i ? S : T) * D; j++) // of 200 f32 has 1.5e-5
            assert_true(got[j] - want[j] < 1e-3f && want[j] - got[j] < 1e-3f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_linear),        cmocka_unit_test(a_token_takes_one_kernel),
        cmocka_unit_test(rows_have_the_same_bits), cmocka_unit_test(pages_lie_anywhere),
        cmocka_unit_test(large_scores_cancel),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
