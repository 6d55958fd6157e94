// What a gradient keeps of a transformer's block: less than every value that it reads.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "cotan/cotan.h"
#include "cotan/models.h"

enum { BATCH = 4, TIME = 64, MOST_PARAMS = 128 };

// Bytes of temporaries that a loss and all its gradients take, in a plan that is made and not run.
static uint64_t temporaries(int layers, const char *fuse) {
    const ct_gpt2_config config = {
        .vocab = 64, .context = TIME, .layers = layers, .heads = 2, .width = 128};
    int32_t ids[BATCH * TIME];
    ct_tensor wrt[MOST_PARAMS], grads[MOST_PARAMS];
    for (int i = 0; i < BATCH * TIME; i++) ids[i] = i * 7 % 64;
    setenv("COTAN_FUSE", fuse, 1);
    assert_true(ct_set_device("dry:cpu"));
    ct_gpt2 *model = ct_gpt2_new(&config, 1);
    assert_non_null(model);
    const size_t n = ct_params_count(ct_gpt2_params(model));
    assert_true(n <= MOST_PARAMS);
    {
        CT_SCOPE;
        ct_tensor x = ct_from(ids, CT_I32, CT_DIMS(BATCH, TIME));
        ct_nn_mode mode = {.training = true};
        for (size_t i = 0; i < n; i++) wrt[i] = ct_params_get(ct_gpt2_params(model), i);
        ct_grad(ct_gpt2_loss(model, x, x, &mode), wrt, n, grads);
        assert_true(ct_eval(grads, n));
    }
    const uint64_t bytes = ct_newest_plan()->arena_bytes;
    ct_gpt2_free(model);
    assert_false(ct_failed());
    return bytes;
}

// With every node a kernel of its own each value that the gradient reads is saved. Fused without
// the choice of what is computed again it is 0.72 of that, with it 0.49.
static void a_block_saves_less(void **state) {
    (void)state;
    const uint64_t all = (temporaries(6, "0") - temporaries(2, "0")) / 4,
                   chosen = (temporaries(6, "1") - temporaries(2, "1")) / 4;
    printf("a block saves %llu bytes of %llu\n", (unsigned long long)chosen,
           (unsigned long long)all);
    assert_true(chosen > 0 && chosen * 20 <= all * 11);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_block_saves_less)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
