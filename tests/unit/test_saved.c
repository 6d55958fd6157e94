// The memory of temporaries, planned and not run: what a gradient keeps of a transformer's block, which
// is less than every value that it reads, and what whole steps take.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "cotan/cotan.h"
#include "cotan/lm.h"
#include "cotan/models.h"
#include "cotan/optim.h"

enum { BATCH = 4, TIME = 64, MOST_PARAMS = 128 };

// Bytes of temporaries that a loss and all its gradients take, in a plan that is made and not run.
static uint64_t temporaries(int layers, const char *fuse) {
    const ct_lm_config config = {
        .vocab = 64, .context = TIME, .layers = layers, .heads = 2, .width = 128};
    int32_t ids[BATCH * TIME];
    ct_tensor wrt[MOST_PARAMS], grads[MOST_PARAMS];
    for (int i = 0; i < BATCH * TIME; i++) ids[i] = i * 7 % 64;
    setenv("COTAN_FUSE", fuse, 1);
    assert_true(ct_set_device("dry:cpu"));
    ct_lm *model = ct_lm_new(&config, 1);
    assert_non_null(model);
    const size_t n = ct_params_count(ct_lm_params(model));
    assert_true(n <= MOST_PARAMS);
    {
        CT_SCOPE;
        ct_tensor x = ct_from(ids, CT_I32, CT_DIMS(BATCH, TIME));
        ct_nn_mode mode = {.training = true};
        for (size_t i = 0; i < n; i++) wrt[i] = ct_params_get(ct_lm_params(model), i);
        ct_grad(ct_lm_loss(model, x, x, &mode), wrt, n, grads);
        assert_true(ct_eval(grads, n));
    }
    const uint64_t bytes = ct_latest_plan()->arena_bytes;
    ct_lm_free(model);
    assert_false(ct_failed());
    return bytes;
}

// With every node a kernel of its own each value that the gradient reads is saved. With the choice of
// what is computed again it is 0.77 of that: 17 numbers an element of the block's input.
static void a_block_saves_less(void **state) {
    (void)state;
    const uint64_t all = (temporaries(6, "0") - temporaries(2, "0")) / 4,
                   chosen = (temporaries(6, "1") - temporaries(2, "1")) / 4;
    printf("a block saves %llu bytes of %llu\n", (unsigned long long)chosen,
           (unsigned long long)all);
    assert_true(chosen > 0 && chosen * 5 <= all * 4);
    assert_true(chosen <= sizeof(float) * 18 * BATCH * TIME * 128);
}

// Two products at a time of a chain of any length.
static void a_chain_of_products(void **state) {
    (void)state;
    enum { N = 1024 };
    float *v = calloc((size_t)N * N, sizeof *v);
    assert_non_null(v);
    setenv("COTAN_FUSE", "1", 1);
    assert_true(ct_set_device("dry:cpu"));
    {
        CT_SCOPE;
        ct_tensor x = ct_from(v, CT_F32, CT_DIMS(N, N)), y = x;
        for (int i = 0; i < 6; i++) y = ct_matmul(y, x);
        y = ct_sum(y);
        assert_true(ct_eval(&y, 1));
    }
    assert_in_range(ct_latest_plan()->arena_bytes, 1, 8 << 20);
    free(v);
}

// A step of GPT-2 124M with AdamW, its gradients clipped.
static void gpt2_in_less_than_half(void **state) {
    (void)state;
    const ct_lm_config config = {
        .vocab = 50257, .context = 1024, .layers = 12, .heads = 12, .width = 768};
    const int64_t time = config.context;
    int32_t *ids = calloc((size_t)(BATCH * time), sizeof *ids);
    assert_non_null(ids);
    setenv("COTAN_FUSE", "1", 1);
    assert_true(ct_set_device("dry:cpu"));
    ct_lm *model = ct_lm_new(&config, 1);
    assert_non_null(model);
    ct_optim *optim = ct_adamw(ct_lm_params(model), .lr = 1e-3, .clip = 1.0);
    {
        CT_SCOPE;
        ct_tensor x = ct_from(ids, CT_I32, CT_DIMS(BATCH, time));
        ct_nn_mode mode = {.training = true};
        ct_optim_step(optim, ct_lm_loss(model, x, x, &mode));
    }
    assert_false(ct_failed());
    const uint64_t bytes = ct_latest_plan()->arena_bytes;
    printf("GPT-2 124M, 4 x 1024 tokens: %.0f MB\n", (double)bytes * 1e-6);
    assert_in_range(bytes, 1, 3500000000);
    ct_optim_free(optim);
    ct_lm_free(model);
    free(ids);
}

// A step of ResNet-18 on 64 pictures of 32 x 32: outputs of convolutions, what follows from them for
// the next, the gradients of the weights, and what is at work.
static void a_resnet(void **state) {
    (void)state;
    const ct_resnet_config config = {.depth = 18, .classes = 10, .small_images = true};
    float *pictures = calloc((size_t)64 * 3 * 32 * 32, sizeof *pictures);
    int32_t classes[64] = {0};
    assert_non_null(pictures);
    setenv("COTAN_FUSE", "1", 1);
    assert_true(ct_set_device("dry:cpu"));
    ct_resnet *model = ct_resnet_new(&config, 1);
    assert_non_null(model);
    ct_optim *optim = ct_sgd(ct_resnet_params(model), .lr = 0.1, .momentum = 0.9);
    {
        CT_SCOPE;
        ct_tensor x = ct_from(pictures, CT_F32, CT_DIMS(64, 3, 32, 32));
        ct_nn_mode mode = {.training = true};
        ct_tensor y = ct_from(classes, CT_I32, CT_DIMS(64));
        ct_optim_step(optim, ct_cross_entropy(ct_resnet_logits(model, x, &mode), y));
    }
    assert_false(ct_failed());
    const uint64_t bytes = ct_latest_plan()->arena_bytes;
    printf("ResNet-18, 64 pictures of 32 x 32: %.0f MB\n", (double)bytes * 1e-6);
    assert_in_range(bytes, 1, 460000000);
    ct_optim_free(optim);
    ct_resnet_free(model);
    free(pictures);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_saves_less), cmocka_unit_test(a_chain_of_products),
        cmocka_unit_test(gpt2_in_less_than_half), cmocka_unit_test(a_resnet)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
