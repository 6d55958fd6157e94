// Memory for work: what a gradient computes again it does not keep. Values are compared with JAX's in
// tests/ops/test_remat.py; here the plan's memory is.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "support/record.h"

#define TEST(name) cmocka_unit_test_setup_teardown(name, record_begin, record_end)

enum { LAYERS = 24, TOKENS = 64, WIDTH = 32, HEADS = 2, WEIGHTS = 6, ALL = LAYERS * WEIGHTS };

// One layer of a transformer. in: x (1, T, D), then its weights.
static void layer(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    const ct_tensor x = in[0], *w = in + 1;
    ct_tensor h = ct_layer_norm(x, CT_NONE, CT_NONE), part[3];
    for (int i = 0; i < 3; i++) // (1, H, T, D / H)
        part[i] =
            ct_permute(ct_reshape(ct_matmul(h, w[i]), CT_DIMS(1, TOKENS, HEADS, WIDTH / HEADS)),
                       CT_AXES(0, 2, 1, 3));
    ct_tensor a = ct_attention(part[0], part[1], part[2], CT_NONE, CT_NONE, .causal = true);
    a = ct_reshape(ct_permute(a, CT_AXES(0, 2, 1, 3)), CT_DIMS(1, TOKENS, WIDTH));
    ct_tensor y = ct_add(x, ct_matmul(a, w[3]));
    h = ct_gelu(ct_matmul(ct_layer_norm(y, CT_NONE, CT_NONE), w[4]));
    out[0] = ct_add(y, ct_matmul(h, w[5]));
}

typedef enum { PLAIN, REMAT, PRODUCTS, NEEDED } policy;

static const int64_t columns[WEIGHTS] = {WIDTH, WIDTH, WIDTH, WIDTH, 4 * WIDTH, WIDTH};
static const int64_t rows[WEIGHTS] = {WIDTH, WIDTH, WIDTH, WIDTH, WIDTH, 4 * WIDTH};

// The loss and its gradients, which are kept.
static void gradients(policy how, ct_tensor *loss, ct_tensor *grads) {
    ct_tensor w[ALL], key = ct_random_key(7);
    for (int i = 0; i < ALL; i++) {
        ct_tensor own = ct_random_fold_in(key, ct_i(i));
        w[i] = ct_keep(ct_mul(
            ct_random_normal(own, CT_DIMS(rows[i % WEIGHTS], columns[i % WEIGHTS])), ct_f(0.2)));
    }
    ct_tensor x = ct_keep(ct_random_normal(key, CT_DIMS(1, TOKENS, WIDTH))), first = x;
    assert_true(ct_eval(w, ALL) && ct_eval(&x, 1));
    for (int i = 0; i < LAYERS; i++) {
        ct_tensor in[1 + WEIGHTS] = {x};
        memcpy(in + 1, w + i * WEIGHTS, WEIGHTS * sizeof *w);
        if (how == PLAIN)
            layer(in, &x, NULL);
        else
            ct_remat(layer, NULL, in, 1 + WEIGHTS, &x, 1,
                     .policy = how == PRODUCTS ? CT_REMAT_PRODUCTS
                               : how == NEEDED ? CT_REMAT_NEEDED
                                               : CT_REMAT_NOTHING);
    }
    *loss = ct_mean(ct_mul(x, ct_mul(x, first)));
    ct_grad(*loss, w, ALL, grads);
    for (int i = 0; i < ALL; i++) grads[i] = ct_keep(grads[i]);
}

typedef struct {
    uint64_t arena, most;
    double flops;
    float loss, grads[LAYERS * 12 * WIDTH * WIDTH];
} result;

static void run(ct_tensor loss, ct_tensor *grads, result *to) {
    if (!ct_eval(grads, ALL)) fail_msg("%s", ct_error_text());
    const ct_plan_cost *plan = ct_newest_plan();
    assert_non_null(plan);
    to->arena = plan->arena_bytes;
    to->most = plan->most_temporaries;
    to->flops = plan->flops;
    to->loss = (float)ct_item(loss);
    float *at = to->grads;
    for (int i = 0; i < ALL; i++) {
        memcpy(at, ct_data(grads[i]), (size_t)ct_size(grads[i]) * sizeof *at);
        at += ct_size(grads[i]);
    }
    assert_int_equal(at - to->grads, LAYERS * 12 * WIDTH * WIDTH);
    assert_ok();
}

// On a device of its own, which holds nothing yet.
static void free_to_take(policy how, result *to) {
    assert_true(ct_set_device("cpu"));
    CT_SCOPE;
    ct_tensor loss, grads[ALL];
    gradients(how, &loss, grads);
    run(loss, grads, to);
}

static void same(const result *a, const result *b) {
    double most = 0, worst = 0;
    for (size_t i = 0; i < sizeof a->grads / sizeof *a->grads; i++) {
        most = fmax(most, fabs((double)a->grads[i]));
        worst = fmax(worst, fabs((double)a->grads[i] - (double)b->grads[i]));
    }
    assert_true(most > 0 && worst <= 1e-6 * most);
    assert_true(a->loss == b->loss);
}

static void a_transformer_keeps_less(void **state) {
    (void)state;
    static result plain, remat, products;
    free_to_take(PLAIN, &plain);
    free_to_take(REMAT, &remat);
    free_to_take(PRODUCTS, &products);
    printf("arena: %llu bytes, %llu under ct_remat, %llu with products; flops %.0f, %.0f, %.0f\n",
           (unsigned long long)plain.arena, (unsigned long long)remat.arena,
           (unsigned long long)products.arena, plain.flops, remat.flops, products.flops);
    same(&plain, &remat);
    same(&plain, &products);
    assert_true(remat.arena * 10 <= plain.arena * 4 && remat.most * 10 <= plain.most * 4);
    assert_true(products.arena < plain.arena && remat.flops > plain.flops);
    assert_true(products.flops < remat.flops);
}

// With so many bytes for temporaries, on a device whose kernels have their workspaces already.
static void limited(policy how, uint64_t bytes, result *to) {
    static result small;
    free_to_take(REMAT, &small);
    CT_SCOPE;
    ct_tensor loss, grads[ALL];
    gradients(how, &loss, grads);
    const ct_stats now = ct_get_stats();
    ct_set_memory_limit(now.memory - now.arena_bytes + sizeof to->grads + bytes);
    if (how == PLAIN) {
        assert_false(ct_eval(grads, ALL));
        assert_int_equal(ct_error_code(), CT_E_LIMIT);
        ct_error_clear();
    } else {
        run(loss, grads, to);
    }
    ct_set_memory_limit(0);
}

static void a_limit_has_it_computed_again(void **state) {
    (void)state;
    static result plain, half, least, roomy;
    free_to_take(NEEDED, &roomy);
    free_to_take(PLAIN, &plain);
    assert_true(roomy.arena == plain.arena && roomy.flops == plain.flops);
    limited(PLAIN, plain.arena * 6 / 10, NULL);
    limited(NEEDED, plain.arena * 6 / 10, &half);
    limited(NEEDED, plain.arena * 3 / 10, &least);
    printf("arena: %llu bytes, under limits %llu and %llu; flops %.0f, %.0f, %.0f\n",
           (unsigned long long)plain.arena, (unsigned long long)half.arena,
           (unsigned long long)least.arena, plain.flops, half.flops, least.flops);
    same(&plain, &half);
    same(&plain, &least);
    assert_true(half.arena * 10 <= plain.arena * 6 && least.arena * 10 <= plain.arena * 3);
    assert_true(plain.flops < half.flops && half.flops < least.flops);
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(a_transformer_keeps_less),
                                       TEST(a_limit_has_it_computed_again)};
    return cmocka_run_group_tests_name("remat", tests, NULL, NULL);
}
