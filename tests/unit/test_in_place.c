// Where plans need no second copy: a product that is added to what it takes the place of, what a loop
// carries, and the loss of a linear layer whose logits are never there all at once.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cotan/cotan.h"

enum { N = 48 };

static void device(const char *name, const char *fuse) {
    setenv("COTAN_FUSE", fuse, 1);
    assert_true(ct_set_device(name));
}

static ct_tensor numbers(int64_t rows, int64_t columns, uint32_t seed) {
    static float v[N * N];
    for (int64_t i = 0; i < rows * columns; i++) {
        seed = seed * 1664525 + 1013904223;
        v[i] = (float)(seed >> 8) / (1 << 24) - 0.5f;
    }
    return ct_from(v, CT_F32, CT_DIMS(rows, columns));
}

// Assignments of w that read w and a product.
static ct_tensor added(ct_tensor w, ct_tensor x) { // each element where it is written
    return ct_sub(w, ct_mul(ct_matmul(x, x), ct_f(0.1)));
}
static ct_tensor added_turned(ct_tensor w, ct_tensor x) { // elsewhere than where it is written
    return ct_add(ct_matmul(x, x), ct_permute(w, CT_AXES(1, 0)));
}
static ct_tensor multiplied(ct_tensor w, ct_tensor x) { // all of it for each element
    return ct_add(ct_matmul(w, x), w);
}
static ct_tensor twice(ct_tensor w, ct_tensor x) { // here and elsewhere
    return ct_add(ct_add(ct_matmul(x, x), w), ct_permute(w, CT_AXES(1, 0)));
}

typedef ct_tensor (*update)(ct_tensor w, ct_tensor x);

// w (N, N) after three updates; the bytes that the last one's plan needs beside it.
static uint64_t run(update f, const char *fuse, float to[N * N]) {
    device("cpu", fuse);
    ct_params *set = ct_params_new();
    ct_tensor w = ct_param(set, "w", CT_F32, CT_DIMS(N, N));
    {
        CT_SCOPE;
        ct_assign(w, numbers(N, N, 1));
    }
    for (uint32_t i = 0; i < 3; i++) {
        CT_SCOPE;
        ct_assign(w, f(w, numbers(N, N, 2 + i)));
    }
    const uint64_t bytes = ct_latest_plan()->arena_bytes;
    {
        CT_SCOPE;
        memcpy(to, ct_data(w), sizeof(float) * N * N);
    }
    assert_false(ct_failed());
    ct_params_free(set);
    return bytes;
}

static void a_product_is_added_where_it_goes(void **state) {
    (void)state;
    static const struct {
        update f;
        uint64_t bytes;
    } cases[] = {{added, 0},
                 {added_turned, sizeof(float) * N * N},
                 {multiplied, sizeof(float) * N * N},
                 {twice, sizeof(float) * N * N}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static float apart[N * N], together[N * N];
        run(cases[i].f, "0", apart);
        assert_int_equal(run(cases[i].f, "1", together), cases[i].bytes);
        assert_memory_equal(apart, together, sizeof apart);
    }
}

// ------------------------------------------------------------------------------------------- loops

// Carries two sums of products of x, of which neither needs the other, and gives one number a turn.
static void two_sums(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    ct_tensor x = in[2]; // (N, N)
    out[0] = ct_add(in[0], ct_matmul(x, x));
    out[1] = ct_add(in[1], ct_matmul(ct_permute(x, CT_AXES(1, 0)), x));
    out[2] = ct_sum(x);
}
// The second needs the first one's earlier value.
static void chained_sums(const ct_tensor *in, ct_tensor *out, void *user) {
    two_sums(in, out, user);
    out[1] = ct_add(out[1], in[0]);
}

typedef struct {
    double flops;
    uint64_t bytes;
} cost;

static cost scan_of(ct_fn body, const bool wanted[3]) {
    CT_SCOPE;
    ct_tensor xs =
        ct_reshape(ct_mul(ct_ones(CT_F32, CT_DIMS(4, N, N)), ct_f(0.5)), CT_DIMS(4, N, N));
    ct_tensor zero[2] = {ct_zeros(CT_F32, CT_DIMS(N, N)), ct_zeros(CT_F32, CT_DIMS(N, N))}, made[3],
              all[3];
    ct_scan(made, &made[2], .body = body, .carry = zero, .n_carry = 2, .xs = &xs, .n_xs = 1,
            .n_ys = 1);
    size_t n = 0;
    for (int i = 0; i < 3; i++)
        if (wanted[i]) all[n++] = ct_sum(made[i]);
    assert_true(ct_eval(all, n));
    return (cost){ct_latest_plan()->flops, ct_latest_plan()->arena_bytes};
}

static void a_loop_makes_what_is_wanted(void **state) {
    (void)state;
    enum { MATRIX = sizeof(float) * N * N };
    const double product = 2.0 * N * N * N * 4;
    device("cpu", "1");
    const cost both = scan_of(two_sums, (bool[]){true, true, true}),
               one = scan_of(two_sums, (bool[]){true, false, true}),
               none = scan_of(two_sums, (bool[]){false, false, true}),
               first = scan_of(chained_sums, (bool[]){true, false, false}),
               second = scan_of(chained_sums, (bool[]){false, true, false});
    assert_in_range(both.flops - one.flops, product, product * 1.2);
    assert_in_range(one.flops - none.flops, product, product * 1.2);
    assert_in_range(second.flops - first.flops, product, product * 1.2);
    // What it begins with lies where it ends: nothing is there twice.
    assert_in_range(both.bytes - one.bytes, MATRIX, MATRIX + 1024);
    assert_in_range(one.bytes - none.bytes, MATRIX, MATRIX + 1024);
}

// --------------------------------------------------------------------------- a loss of many classes

enum { ROWS = 4096, WIDTH = 64, CLASSES = 131072 };

// Bytes of temporaries of the loss (and its gradients), planned and not run.
static uint64_t loss_bytes(bool blocks, bool gradients) {
    device("dry:cpu", "1");
    CT_SCOPE;
    ct_tensor in[2] = {ct_ones(CT_F32, CT_DIMS(ROWS, WIDTH)),
                       ct_ones(CT_F32, CT_DIMS(CLASSES, WIDTH))},
              out[3];
    ct_tensor targets = ct_zeros(CT_I32, CT_DIMS(ROWS));
    ct_tensor logits = ct_matmul(in[0], ct_permute(in[1], CT_AXES(1, 0)));
    out[0] =
        blocks ? ct_linear_cross_entropy(in[0], in[1], targets) : ct_cross_entropy(logits, targets);
    if (gradients) ct_grad(out[0], in, 2, out + 1);
    assert_true(ct_eval(out, gradients ? 3 : 1));
    return ct_latest_plan()->arena_bytes;
}

static void a_loss_without_its_logits(void **state) {
    (void)state;
    const uint64_t logits = loss_bytes(false, true), blocks = loss_bytes(true, true),
                   alone = loss_bytes(true, false);
    printf("bytes: %llu with the logits, %llu in blocks, %llu for the loss alone\n",
           (unsigned long long)logits, (unsigned long long)blocks, (unsigned long long)alone);
    assert_true(blocks * 10 <= logits * 4 && alone <= blocks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product_is_added_where_it_goes),
        cmocka_unit_test(a_loop_makes_what_is_wanted),
        cmocka_unit_test(a_loss_without_its_logits),
    };
    return cmocka_run_group_tests_name("in_place", tests, NULL, NULL);
}
