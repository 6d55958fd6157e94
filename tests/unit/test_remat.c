// Memory for work: what a gradient computes again it does not keep. Values are compared with JAX's in
// tests/ops/test_remat.py; here the plan's memory is.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "compile/plan.h"
#include "cotan/lm.h"
#include "cotan/nn.h"
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
                     .policy = how == PRODUCTS ? CT_REMAT_SAVE_MATMULS
                               : how == NEEDED ? CT_REMAT_AUTO
                                               : CT_REMAT_SAVE_NOTHING);
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
    const ct_plan_cost *plan = ct_latest_plan();
    assert_non_null(plan);
    to->arena = plan->arena_bytes;
    to->most = plan->peak_temporary_bytes;
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

// ------------------------------------------------------------------------------ the library's own

enum { CONTEXT = 64, BATCH = 2, MOST_PARAMS = 512, LEARNED = 1 << 20 };

typedef struct {
    uint64_t arena;
    size_t regions, again, n;
    double flops;
    float loss, grads[LEARNED]; // n of them
} learned;

typedef enum { FIRST, SECOND } derivative;

// The loss of GPT-2 and what it is differentiated to: its gradients, or those of the sum of the
// squares of some of them.
static void record_gpt2(ct_lm *model, int time, float dropout, derivative order, ct_tensor *loss,
                        ct_tensor *grads) {
    ct_tensor wrt[MOST_PARAMS];
    ct_params *params = ct_lm_params(model);
    const size_t n = ct_params_count(params);
    int32_t ids[BATCH * CONTEXT];
    for (int i = 0; i < BATCH * CONTEXT; i++) ids[i] = i * i % 13;
    ct_tensor x = ct_from(ids, CT_I32, CT_DIMS(BATCH, time));
    ct_nn_mode mode = {.training = true, .dropout = dropout, .key = ct_random_key(3)};
    *loss = ct_lm_loss(model, x, x, &mode);
    assert_true(n <= MOST_PARAMS);
    for (size_t i = 0; i < n; i++) wrt[i] = ct_params_get(params, i);
    ct_grad(*loss, wrt, n, grads);
    if (order == SECOND) {
        ct_tensor sum = *loss;
        for (size_t i = 0; i < n; i += 7) sum = ct_add(sum, ct_sum(ct_mul(grads[i], grads[i])));
        ct_grad(sum, wrt, n, grads);
    }
    for (size_t i = 0; i < n; i++) grads[i] = ct_keep(grads[i]);
}

static ct_lm *gpt2(int layers) {
    const ct_lm_config config = {
        .vocab = 16, .context = CONTEXT, .layers = layers, .heads = HEADS, .width = WIDTH};
    assert_true(ct_set_device("cpu")); // which holds nothing yet, and knows no plan
    ct_lm *model = ct_lm_new(&config, 1);
    assert_non_null(model);
    return model;
}

static void take(ct_tensor loss, const ct_tensor *grads, size_t n, learned *to) {
    const ct_plan_cost *plan = ct_latest_plan();
    *to = (learned){.arena = plan->arena_bytes,
                    .regions = plan->n_remat_regions,
                    .again = plan->n_recomputed,
                    .flops = plan->flops};
    to->loss = (float)ct_item(loss);
    for (size_t i = 0; i < n; i++) {
        const size_t size = (size_t)ct_size(grads[i]);
        assert_true(to->n + size <= LEARNED);
        memcpy(to->grads + to->n, ct_data(grads[i]), size * sizeof(float));
        to->n += size;
    }
    assert_ok();
}

// limit: bytes for temporaries, 0: any. False: refused, with the error as it stands.
static bool learn(int layers, float dropout, derivative order, uint64_t limit, learned *to) {
    ct_lm *model = gpt2(layers);
    const size_t n = ct_params_count(ct_lm_params(model));
    bool done = true;
    // First with as few temporaries as can be, after which the kernels have their workspaces.
    for (int turn = 0; turn < 2 && done; turn++) {
        CT_SCOPE;
        ct_tensor loss, grads[MOST_PARAMS];
        uint64_t results = sizeof(float);
        record_gpt2(model, CONTEXT, dropout, order, &loss, grads);
        for (size_t i = 0; i < n; i++) results += sizeof(float) * (uint64_t)ct_size(grads[i]);
        if (turn) loss = ct_keep(loss); // which is another plan
        ct__ctx_limit_memory(ct__ctx(), turn == 0);
        const ct_stats now = ct_get_stats();
        if (limit && turn) ct_set_memory_limit(now.memory - now.arena_bytes + results + limit);
        done = ct_eval(grads, n);
        if (done && turn) take(loss, grads, n, to);
        ct_set_memory_limit(0);
    }
    ct_lm_free(model);
    return done;
}

static void same_learned(const learned *a, const learned *b) {
    double most = 0, worst = 0;
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++) {
        most = fmax(most, fabs((double)a->grads[i]));
        worst = fmax(worst, fabs((double)a->grads[i] - (double)b->grads[i]));
    }
    assert_true(most > 0 && worst <= 1e-6 * most);
    assert_true(a->loss == b->loss);
}

static void check_gpt2(float dropout) {
    static learned plain, half, least;
    assert_true(learn(LAYERS, dropout, FIRST, 0, &plain));
    assert_true(learn(LAYERS, dropout, FIRST, plain.arena * 7 / 10, &half));
    assert_true(learn(LAYERS, dropout, FIRST, plain.arena * 4 / 10, &least));
    printf("arena: %llu bytes, under limits %llu (%zu of %zu blocks again) and %llu (%zu); flops "
           "%.0f, %.0f, %.0f\n",
           (unsigned long long)plain.arena, (unsigned long long)half.arena, half.again,
           half.regions, (unsigned long long)least.arena, least.again, plain.flops, half.flops,
           least.flops);
    same_learned(&plain, &half);
    same_learned(&plain, &least);
    assert_int_equal(plain.regions, LAYERS);
    assert_int_equal(plain.again, 0);
    assert_true(0 < half.again && half.again < least.again && least.again <= LAYERS);
    assert_true(half.arena * 10 <= plain.arena * 7 && least.arena * 10 <= plain.arena * 4);
    assert_true(plain.flops < half.flops && half.flops < least.flops);
}

static void blocks_of_gpt2_are_computed_again(void **state) {
    (void)state;
    check_gpt2(0);
}
static void with_what_was_dropped(void **state) {
    (void)state;
    check_gpt2(0.1f);
}

static void second_derivatives_too(void **state) {
    (void)state;
    static learned plain, half;
    assert_true(learn(3, 0, SECOND, 0, &plain));
    // Little is left to gain: what is cheap is computed again without a limit.
    assert_true(learn(3, 0, SECOND, plain.arena * 98 / 100, &half));
    assert_int_equal(plain.regions, 3);
    assert_true(plain.again == 0 && half.again > 0);
    same_learned(&plain, &half);
}

// One plan serves the second length and those behind it, with all blocks computed again or none.
static void lengths_that_vary(void **state) {
    (void)state;
    static learned learnt[2][4];
    const int times[4] = {64, 40, 48, 24};
    for (int again = 0; again < 2; again++) {
        ct_lm *model = gpt2(3);
        const size_t n = ct_params_count(ct_lm_params(model));
        uint64_t made = 0;
        ct__ctx_limit_memory(ct__ctx(), again > 0);
        for (int i = 0; i < 4; i++) {
            CT_SCOPE;
            ct_tensor loss, grads[MOST_PARAMS];
            record_gpt2(model, times[i], 0.1f, FIRST, &loss, grads);
            loss = ct_keep(loss);
            assert_true(ct_eval(grads, n));
            take(loss, grads, n, &learnt[again][i]);
            assert_int_equal(learnt[again][i].again, again ? 3 : 0);
            if (i == 1) made = plans_made();
        }
        assert_int_equal(plans_made(), made);
        ct_lm_free(model);
    }
    for (int i = 0; i < 4; i++) same_learned(&learnt[0][i], &learnt[1][i]);
}

static void a_limit_that_is_too_small(void **state) {
    (void)state;
    static learned none;
    assert_false(learn(LAYERS, 0, FIRST, 1000, &none));
    assert_int_equal(ct_error_code(), CT_E_LIMIT);
    const char *const pattern =
        "tests/unit/test_remat.c:*: plan: * MB are needed where * MB are in use: the limit is * "
        "MB; "
        "the largest tensors are 96 times mul (128, 128) f32 of 65.5 kB "
        "(tests/unit/test_remat.c:*), 24 times matmul (128, 128) f32 of 65.5 kB "
        "(tests/unit/test_remat.c:*) and 24 times * (128, 128) f32 of 65.5 kB "
        "(tests/unit/test_remat.c:*)";
    if (fnmatch(pattern, ct_error_text(), 0)) fail_msg("%s", ct_error_text());
    ct_error_clear();
}

// What a gradient with respect to a value inside of a region goes through is not in it.
static void regions_of_several_values(void **state) {
    (void)state;
    float grads[2][2];
    assert_true(ct_set_device("cpu"));
    for (int again = 0; again < 2; again++) {
        CT_SCOPE;
        ct__ctx_limit_memory(ct__ctx(), again > 0);
        ct_tensor x = ct_keep(line_of(2)), wrt[2] = {x}, g[2], y = x;
        assert_true(ct_eval(&x, 1));
        for (int i = 0; i < 3; i++) { // the second one gives two values
            const uint16_t region = ct__region_begin(ct__ctx());
            assert_true(region && !ct__region_begin(ct__ctx()));
            ct_tensor inner = ct_tanh(ct_mul(y, x));
            if (i == 1) wrt[1] = inner;
            y = ct_mul(ct_sin(inner), inner);
            ct__region_end(ct__ctx(), 0);
            ct__region_end(ct__ctx(), region);
        }
        ct_grad(ct_sum(y), wrt, 2, g);
        ct_tensor both = ct_keep(ct_add(g[0], ct_mul(ct_f(2), g[1])));
        assert_true(ct_eval(&both, 1));
        assert_int_equal(ct_latest_plan()->n_remat_regions, 2);
        assert_int_equal(ct_latest_plan()->n_recomputed, again ? 2 : 0);
        for (int i = 0; i < 2; i++) grads[again][i] = (float)at(both, i);
        assert_true(ct_set_device("cpu")); // which knows no plan
    }
    assert_true(grads[0][0] != 0 && grads[0][0] == grads[1][0] && grads[0][1] == grads[1][1]);
}

// Running statistics are assigned in a region and used by nobody outside of it: it is computed again all
// the same, and they are assigned once.
static void regions_that_keep_statistics(void **state) {
    enum { BLOCKS = 3, CHANNELS = 4 };
    static float grads[2][BLOCKS][CHANNELS * CHANNELS * 9], means[2][BLOCKS][CHANNELS];
    (void)state;
    for (int again = 0; again < 2; again++) {
        assert_true(ct_set_device("cpu")); // which knows no plan
        CT_SCOPE;
        ct_params *params = ct_params_new(), *running = ct_params_new();
        ct_nn_builder place = ct_nn_builder_for(params, 1), beside = ct_nn_builder_for(running, 1);
        const ct_nn_mode training = {.training = true};
        ct_tensor w[BLOCKS], g[BLOCKS], x = ct_random_normal(ct_random_key(5), CT_DIMS(2, 4, 6, 6));
        ct_nn_batch_norm norm[BLOCKS];
        for (int i = 0; i < BLOCKS; i++) {
            norm[i] =
                ct_nn_batch_norm_new(ct_nn_builder_child(place, "%d", i),
                                     ct_nn_builder_child(beside, "%d", i), .channels = CHANNELS);
            w[i] = ct_keep(ct_random_normal(ct_random_key(i), CT_DIMS(CHANNELS, CHANNELS, 3, 3)));
        }
        assert_true(ct_eval(w, BLOCKS));
        ct__ctx_limit_memory(ct__ctx(), again > 0);
        for (int i = 0; i < BLOCKS; i++) {
            const uint16_t region = ct__region_begin(ct__ctx());
            ct_tensor y = ct_conv(x, w[i], CT_NONE, .padding = CT_DIMS(1));
            x = ct_add(x, ct_relu(ct_nn_batch_norm_apply(&norm[i], y, &training)));
            ct__region_end(ct__ctx(), region);
        }
        ct_grad(ct_mean(ct_square(x)), w, BLOCKS, g);
        assert_true(ct_eval(g, BLOCKS));
        assert_int_equal(ct_latest_plan()->n_remat_regions, BLOCKS);
        assert_int_equal(ct_latest_plan()->n_recomputed, again ? BLOCKS : 0);
        for (int i = 0; i < BLOCKS; i++) {
            memcpy(grads[again][i], ct_data(g[i]), sizeof grads[again][i]);
            memcpy(means[again][i], ct_data(norm[i].mean), sizeof means[again][i]);
            assert_true(grads[again][i][0] != 0 && means[again][i][0] != 0);
        }
        ct_params_free(params);
        ct_params_free(running);
        assert_ok();
    }
    assert_memory_equal(means[0], means[1], sizeof means[0]);
    for (int i = 0; i < BLOCKS; i++)
        for (int k = 0; k < CHANNELS * CHANNELS * 9; k++)
            assert_true(fabsf(grads[0][i][k] - grads[1][i][k]) <= 1e-5f);
}

// Interpreted kernels have the bits of compiled ones: without COTAN_TEST_ALL nothing is compiled.
int main(void) {
    if (!getenv("COTAN_TEST_ALL")) setenv("COTAN_CC", "none", 1);
    const struct CMUnitTest tests[] = {TEST(a_transformer_keeps_less),
                                       TEST(a_limit_has_it_computed_again),
                                       TEST(blocks_of_gpt2_are_computed_again),
                                       TEST(with_what_was_dropped),
                                       TEST(second_derivatives_too),
                                       TEST(lengths_that_vary),
                                       TEST(a_limit_that_is_too_small),
                                       TEST(regions_of_several_values),
                                       TEST(regions_that_keep_statistics)};
    return cmocka_run_group_tests_name("remat", tests, NULL, NULL);
}
