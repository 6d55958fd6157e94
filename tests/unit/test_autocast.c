// Autocasting: which operands are cast, blocks that nest, gradients of what was cast, and what is no dtype for it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cotan/cotan.h"
#include "ops/opcode.h"
#include "ops/rules.h"

static ct_tensor ones(ct_dtype dtype, int64_t n) { return ct_ones(dtype, CT_DIMS(n, n)); }

static void test_classes(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = ones(CT_F32, 4), narrow = ones(CT_BF16, 4), wide = ones(CT_F64, 4);
    CT_AUTOCAST(CT_BF16);
    assert_int_equal(ct_dtype_of(ct_matmul(x, x)), CT_BF16);
    assert_int_equal(ct_dtype_of(ct_matmul(wide, wide)), CT_F64);
    assert_int_equal(ct_dtype_of(ct_exp(narrow)), CT_F32);
    assert_int_equal(ct_dtype_of(ct_softmax(narrow)), CT_F32);
    assert_int_equal(ct_dtype_of(ct_add(narrow, narrow)), CT_BF16);
    assert_int_equal(ct_dtype_of(ct_add(narrow, x)), CT_F32);
    assert_int_equal(ct_dtype_of(ct_exp(ones(CT_F64, 4))), CT_F64);
    assert_int_equal(ct_dtype_of(ct_concat(((ct_tensor[]){narrow, x}), 2, 0)), CT_F32);
    assert_int_equal(ct_dtype_of(ct_concat(((ct_tensor[]){narrow, narrow}), 2, 0)), CT_BF16);
    assert_int_equal(ct_dtype_of(ct_sum(ct_iota(CT_I32, CT_DIMS(4), 0))), CT_I32);
    assert_false(ct_failed());
}

static void test_blocks_nest(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = ones(CT_F32, 4);
    assert_int_equal(ct_autocast_dtype(), CT_F32);
    {
        CT_AUTOCAST(CT_BF16);
        for (int i = 0; i < 2; i++) {
            CT_AUTOCAST(i ? CT_F32 : CT_F16);
            assert_int_equal(ct_dtype_of(ct_matmul(x, x)), i ? CT_F32 : CT_F16);
            if (i) break;
        }
        assert_int_equal(ct_dtype_of(ct_matmul(x, x)), CT_BF16);
    }
    assert_int_equal(ct_dtype_of(ct_matmul(x, x)), CT_F32);
}

// 257 is no bf16: 256 is. The slope of sum(x w) along w is x as it was cast, in f32; bodies of ops are not cast again.
static void test_gradients_are_of_the_masters(void **state) {
    (void)state;
    CT_SCOPE;
    const float numbers[] = {257, 1, 1, 1}, *slope;
    ct_tensor x = ct_from(numbers, CT_F32, CT_DIMS(1, 4)), w = ct_ones(CT_F32, CT_DIMS(4, 1)), grad;
    {
        CT_AUTOCAST(CT_BF16);
        ct_tensor loss = ct_sum(ct_matmul(x, w));
        ct_grad(loss, &w, 1, &grad);
        assert_int_equal(ct_dtype_of(loss), CT_F32);
    }
    assert_int_equal(ct_dtype_of(grad), CT_F32);
    assert_non_null(slope = ct_data(grad));
    assert_true(slope[0] == 256 && slope[1] == 1);
}

static void test_a_norm_keeps_f32_weights(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = ct_ones(CT_BF16, CT_DIMS(2, 3)), w = ct_ones(CT_F32, CT_DIMS(3)), grad;
    ct_batch_norm_train_out y = ct_batch_norm_train(x, w, w, .weight = w, .bias = w);
    assert_int_equal(ct_dtype_of(y.y), CT_BF16);
    assert_int_equal(ct_dtype_of(y.mean), CT_F32);
    ct_grad(ct_sum(ct_cast(y.y, CT_F32)), &w, 1, &grad);
    const float *slope = ct_data(grad);
    assert_non_null(slope);
    assert_true(slope[0] == 2); // along the bias; the rows are equal, so that the weight's is 0
}

static void test_errors(void **state) {
    (void)state;
    ct_loc here = {"net.c", 7};
    assert_int_equal(ct_autocast_set_at(CT_I32, here), CT_F32);
    assert_string_equal(
        ct_error_text(),
        "net.c:7: autocast: the dtype is i32, it must be bf16 or f16, or f32, which casts nothing");
    ct_error_clear();
    assert_int_equal(ct_autocast_dtype(), CT_F32);
}

// A class casts to what its ops accept.
static void test_classes_fit_the_ops(void **state) {
    (void)state;
    int seen[4] = {0};
    for (uint32_t i = 0; i < ct__n_ops; i++) {
        const ct_opdef *op = ct__ops[i];
        seen[op->autocast]++;
        const ct_dtypes low = CT_MASK(CT_F16) | CT_MASK(CT_BF16), f32 = CT_MASK(CT_F32);
        if (op->accepts && op->autocast == CT_CAST_LOW && (op->accepts & low) != low)
            fail_msg("%s is to run in 16 bits, which it does not accept", op->name);
        if (op->accepts && op->autocast == CT_CAST_F32 && !(op->accepts & f32))
            fail_msg("%s is to run in f32, which it does not accept", op->name);
    }
    for (int c = 0; c < 4; c++) assert_true(seen[c] > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_blocks_nest),
        cmocka_unit_test(test_gradients_are_of_the_masters),
        cmocka_unit_test(test_a_norm_keeps_f32_weights),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_classes_fit_the_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
