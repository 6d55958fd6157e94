// ResNet: sizes and names of the published models, running statistics, files, refusals.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compile/plan.h"
#include "cotan/cotan.h"
#include "cotan/models.h"
#include "cotan/optim.h"

static int fresh(void **state) {
    (void)state;
    ct_error_clear();
    return 0;
}

static ct_resnet *make(int64_t depth, int64_t classes, bool small_images) {
    ct_resnet_config config = {.depth = depth, .classes = classes, .small_images = small_images};
    ct_resnet *model = ct_resnet_new(&config, 1);
    assert_string_equal(ct_error_text(), "");
    assert_non_null(model);
    return model;
}

static ct_tensor images(int64_t n, int64_t size, int64_t seed) {
    return ct_random_normal(ct_random_key(seed), CT_DIMS(n, 3, size, size));
}

static void expect_shape(ct_params *set, const char *name, ct_ints want) {
    ct_tensor t = ct_params_find(set, name);
    assert_true(ct_ok(t));
    assert_int_equal(ct_rank(t), want.n);
    for (int a = 0; a < want.n; a++) assert_int_equal(ct_dim(t, a), want.v[a]);
}

static void expect_error(const char *want) {
    assert_string_equal(ct_error_text(), want);
    ct_error_clear();
}

// -------------------------------------------------------------------------------------------------

// The counts are torchvision's.
static void sizes_and_names_are_the_published_ones(void **state) {
    (void)state;
    const struct {
        int64_t depth, classes;
        bool small_images;
        int64_t size, variables, norms;
    } want[] = {{18, 10, true, 11173962, 62, 20},
                {18, 1000, false, 11689512, 62, 20},
                {34, 1000, false, 21797672, 110, 36},
                {50, 1000, false, 25557032, 161, 53}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        ct_resnet *model = make(want[i].depth, want[i].classes, want[i].small_images);
        ct_params *params = ct_resnet_params(model), *running = ct_resnet_running_stats(model);
        assert_int_equal(ct_params_size(params), want[i].size);
        assert_int_equal(ct_params_count(params), want[i].variables);
        assert_int_equal(ct_params_count(running), 2 * want[i].norms);
        int64_t k = want[i].small_images ? 3 : 7;
        expect_shape(params, "conv1.weight", CT_DIMS(64, 3, k, k));
        expect_shape(running, "bn1.running_mean", CT_DIMS(64));
        expect_shape(params, "fc.bias", CT_DIMS(want[i].classes));
        if (want[i].depth == 50) {
            expect_shape(params, "layer1.0.downsample.0.weight", CT_DIMS(256, 64, 1, 1));
            expect_shape(params, "layer4.2.conv2.weight", CT_DIMS(512, 512, 3, 3));
            expect_shape(params, "layer4.2.bn3.bias", CT_DIMS(2048));
            expect_shape(running, "layer3.5.bn1.running_var", CT_DIMS(256));
            expect_shape(params, "fc.weight", CT_DIMS(1000, 2048));
        } else {
            assert_false(ct_params_find(params, "layer1.0.downsample.0.weight").bits);
            expect_shape(params, "layer4.0.downsample.1.weight", CT_DIMS(512));
            expect_shape(running, "layer4.0.downsample.1.running_var", CT_DIMS(512));
            expect_shape(params, "layer2.0.conv1.weight", CT_DIMS(128, 64, 3, 3));
            expect_shape(params, "fc.weight", CT_DIMS(want[i].classes, 512));
        }
        ct_resnet_free(model);
    }
}

static void logits_have_a_row_an_image(void **state) {
    (void)state;
    ct_resnet *model = make(18, 7, false);
    CT_SCOPE;
    ct_tensor x = images(3, 33, 1), all = ct_resnet_logits(model, x, NULL); // (3, 7)
    assert_int_equal(ct_rank(all), 2);
    assert_int_equal(ct_dim(all, 0), 3);
    assert_int_equal(ct_dim(all, 1), 7);
    // By running statistics an image does not see its batch.
    ct_tensor first = ct_resnet_logits(model, ct_slice(x, .axes = CT_AXES(0), .stop = CT_INTS(1)),
                                       NULL); // (1, 7)
    const float *a = ct_data(all), *b = ct_data(first);
    assert_non_null(a);
    assert_non_null(b);
    assert_memory_equal(a, b, 7 * sizeof *a);
    ct_resnet_free(model);
}

// Each call moves the running statistics, in one scope too. A gradient does not go back through what
// a call before it assigned: with the same parameters it would need what is gone.
static void training_moves_running_statistics(void **state) {
    (void)state;
    ct_resnet *model = make(18, 2, true);
    ct_params *params = ct_resnet_params(model), *running = ct_resnet_running_stats(model);
    ct_optim *sgd = ct_sgd(params, .lr = 0.01, .momentum = 0.9);
    const int32_t classes[2] = {0, 1};
    const ct_nn_mode training = {.training = true};
    CT_SCOPE;
    ct_tensor x = images(2, 8, 2), labels = ct_from(classes, CT_I32, CT_DIMS(2));
    double before = ct_item(ct_sum(ct_square(ct_params_find(params, "fc.weight")))), var[3];
    ct_tensor alone = ct_resnet_logits(model, x, &training); // (2, 2)
    assert_true(ct_eval(&alone, 1));
    for (int call = 0; call < 3; call++) {
        var[call] = ct_item(ct_mean(ct_params_find(running, "layer3.0.bn1.running_var")));
        ct_tensor loss = ct_cross_entropy(ct_resnet_logits(model, x, &training), labels);
        ct_optim_step(sgd, loss);
        assert_true(ct_item(loss) > 0);
        assert_string_equal(ct_error_text(), "");
    }
    assert_true(var[0] != 1 && var[1] != var[0] && var[2] != var[1]);
    assert_true(ct_item(ct_sum(ct_square(ct_params_find(params, "fc.weight")))) != before);
    ct_optim_free(sgd);
    ct_resnet_free(model);
}

// Planned and not run: blocks that a gradient computes again need not be kept for it.
static void blocks_may_be_computed_again(void **state) {
    enum { BLOCKS = 8 };
    (void)state;
    ct_resnet *model = make(18, 10, true);
    const ct_nn_mode training = {.training = true};
    uint64_t arena[2];
    assert_true(ct_set_device("dry:cpu"));
    for (int again = 0; again < 2; again++) {
        CT_SCOPE;
        ct__ctx_limit_memory(ct__ctx(), again > 0);
        ct_tensor w = ct_params_find(ct_resnet_params(model), "conv1.weight"), g;
        ct_tensor logits = ct_resnet_logits(model, images(8 + again, 32, 2), &training);
        ct_grad(ct_mean(ct_square(logits)), &w, 1, &g);
        assert_true(ct_eval(&g, 1));
        assert_int_equal(ct_latest_plan()->n_remat_regions, BLOCKS);
        assert_int_equal(ct_latest_plan()->n_recomputed, again ? BLOCKS : 0);
        arena[again] = ct_latest_plan()->arena_bytes / (8 + (uint64_t)again);
    }
    assert_true(arena[1] * 10 < arena[0] * 7);
    assert_true(ct_set_device("cpu"));
    ct_resnet_free(model);
}

static void files_round_trip_or_change_nothing(void **state) {
    (void)state;
    char path[64] = "/tmp/cotan_resnet_XXXXXX", want[512];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    ct_resnet *model = make(18, 3, true), *other = make(18, 4, true);
    ct_params *running = ct_resnet_running_stats(model);
    {
        CT_SCOPE;
        ct_assign(ct_params_find(running, "bn1.running_mean"), ct_full(ct_f(0.25), CT_DIMS(64)));
    }
    assert_true(ct_resnet_save_weights(model, path));
    {
        CT_SCOPE;
        ct_tensor sum = ct_params_find(ct_resnet_running_stats(other), "bn1.running_mean");
        const int line = __LINE__ + 1;
        assert_false(ct_resnet_load_weights(other, path));
        snprintf(want, sizeof want,
                 "%s:%d: resnet_load_weights: safetensors: %s: tensor \"fc.weight\" is (3, 512) "
                 "f32 in the file, (4, 512) f32 is expected\n"
                 "  hint: this is a checkpoint of another architecture, or of other sizes",
                 __FILE__, line, path);
        expect_error(want);
        assert_true(ct_item(ct_sum(sum)) == 0); // not even the running statistics, which fit
    }
    ct_resnet_free(other);
    other =
        ct_resnet_new((&(ct_resnet_config){.depth = 18, .classes = 3, .small_images = true}), 2);
    assert_true(ct_resnet_load_weights(other, path));
    {
        CT_SCOPE;
        ct_tensor x = images(1, 8, 3), a = ct_resnet_logits(model, x, NULL),
                  b = ct_resnet_logits(other, x, NULL);
        assert_memory_equal(ct_data(a), ct_data(b), 3 * sizeof(float));
    }
    ct_resnet_free(model);
    ct_resnet_free(other);
    unlink(path);
}

static void what_is_no_model_or_image_is_refused(void **state) {
    (void)state;
    char want[512];
    CT_SCOPE;
    assert_null(ct_resnet_new((&(ct_resnet_config){.depth = 19, .classes = 10}), 1));
    snprintf(want, sizeof want, "%s:%d: resnet: depth is 19, it must be 18, 34 or 50", __FILE__,
             __LINE__ - 2);
    expect_error(want);
    assert_null(ct_resnet_new((&(ct_resnet_config){.depth = 18}), 1));
    snprintf(want, sizeof want, "%s:%d: resnet: classes is 0, it must be 1 to 2147483647", __FILE__,
             __LINE__ - 2);
    expect_error(want);
    assert_null(
        ct_resnet_new((&(ct_resnet_config){.depth = 18, .classes = 2, .dtype = CT_I32}), 1));
    snprintf(want, sizeof want, "%s:%d: resnet: dtype is i32, it must be a float", __FILE__,
             __LINE__ - 2);
    expect_error(want);
    ct_resnet *model = make(18, 2, true);
    ct_tensor grey = ct_zeros(CT_F32, CT_DIMS(2, 1, 8, 8));
    assert_false(ct_ok(ct_resnet_logits(model, grey, NULL)));
    snprintf(
        want, sizeof want,
        "%s:%d: resnet: the images are (2, 1, 8, 8) f32; they must be (batch, 3, height, width)",
        __FILE__, __LINE__ - 4);
    expect_error(want);
    ct_resnet_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(sizes_and_names_are_the_published_ones, fresh),
        cmocka_unit_test_setup(logits_have_a_row_an_image, fresh),
        cmocka_unit_test_setup(training_moves_running_statistics, fresh),
        cmocka_unit_test_setup(blocks_may_be_computed_again, fresh),
        cmocka_unit_test_setup(files_round_trip_or_change_nothing, fresh),
        cmocka_unit_test_setup(what_is_no_model_or_image_is_refused, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
