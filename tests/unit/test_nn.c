// Modules: names, first values, layers against their formulas in double, parameter files.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cotan/cotan.h"
#include "cotan/nn.h"
#include "nn/store.h"

#define HERE ((ct_loc){"main.c", 9})

static int fresh(void **state) {
    (void)state;
    ct_error_clear();
    return 0;
}

// Numbers that look random, from -1 to 1.
static double number(int64_t i) { return 2 * fmod(0.6180339887 * (double)(i + 1) * 7.3, 1) - 1; }

static ct_tensor numbers(ct_ints dims, int64_t first) {
    static float x[4096];
    int64_t n = 1;
    for (int64_t a = 0; a < dims.n; a++) n *= dims.v[a];
    assert_true(n <= 4096);
    for (int64_t i = 0; i < n; i++) x[i] = (float)number(first + i);
    return ct_from(x, CT_F32, dims);
}

// Gives a variable these numbers.
static void fill(ct_tensor var, int64_t first) {
    CT_SCOPE;
    int64_t dim[CT_MAX_RANK];
    for (int a = 0; a < ct_rank(var); a++) dim[a] = ct_dim(var, a);
    ct_assign(var, numbers((ct_ints){ct_rank(var), dim}, first));
}

static double at(int64_t first, int64_t i) { return (double)(float)number(first + i); }

static void compare(ct_tensor t, const double *want, int64_t n) {
    assert_string_equal(ct_error_text(), "");
    assert_int_equal(ct_size(t), n);
    const float *got = ct_data(t);
    assert_string_equal(ct_error_text(), "");
    assert_non_null(got);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= 2e-6 * (1 + fabs(want[i]))))
            fail_msg("element %d: %.9g, expected %.9g", (int)i, (double)got[i], want[i]);
}

// ---------------------------------------------------------------------------------------
// parameters

static void places_make_dotted_names(void **state) {
    (void)state;
    ct_params *params = ct_params_new();
    ct_nn_builder top = ct_nn_builder_for(params, 1), block = ct_nn_builder_child(top, "h.%d", 3);
    CT_SCOPE;
    ct_nn_param(top, "scale", CT_SCALAR, CT_NN_ONES);
    ct_nn_param(ct_nn_builder_child(block, "attn"), "weight", CT_DIMS(2, 3), CT_NN_ZEROS);
    assert_string_equal(ct_params_name(params, 0), "scale");
    assert_string_equal(ct_params_name(params, 1), "h.3.attn.weight");
    assert_int_equal(ct_params_size(params), 7);
    assert_string_equal(ct_error_text(), "");
    ct_nn_param_at(top, "scale", CT_SCALAR, CT_NN_ONES, HERE);
    assert_string_equal(ct_error_text(),
                        "main.c:9: param: the name \"scale\" is taken in this set"
                        "\n  hint: ct_nn_builder_child gives each layer a place of its own");
    ct_error_clear();
    ct_params_free(params);
}

static void a_name_that_is_too_long_is_refused(void **state) {
    (void)state;
    ct_params *params = ct_params_new();
    ct_nn_builder place = ct_nn_builder_for(params, 1);
    for (int i = 0; i < 10; i++) place = ct_nn_builder_child(place, "a_rather_long_name_%d", i);
    ct_nn_param_at(place, "x", CT_DIMS(1), CT_NN_ZEROS, HERE);
    assert_non_null(strstr(ct_error_text(), "main.c:9: param: the name \"a_rather_long_name_0."));
    assert_non_null(strstr(ct_error_text(), "...\" is longer than 191 bytes"));
    assert_int_equal(ct_params_count(params), 0);
    ct_params_free(params);
}

static void first_values_have_their_distribution(void **state) {
    (void)state;
    ct_params *params = ct_params_new();
    ct_nn_builder top = ct_nn_builder_for(params, 11), unfilled = top, half = top;
    unfilled.skip_init = true;
    half.dtype = CT_BF16;
    ct_tensor x, none, h;
    {
        CT_SCOPE;
        x = ct_nn_param(top, "x", CT_DIMS(100, 100), CT_NN_NORMAL(0.5));
        h = ct_nn_param(half, "h", CT_DIMS(4), CT_NN_ONES);
        none = ct_nn_param(unfilled, "none", CT_DIMS(4), CT_NN_ONES);
    }
    CT_SCOPE;
    const float *v = ct_data(x);
    assert_non_null(v);
    double sum = 0, squares = 0;
    int beyond = 0;
    for (int i = 0; i < 10000; i++) {
        sum += (double)v[i];
        squares += (double)v[i] * (double)v[i];
        beyond += fabs((double)v[i]) > 1; // two deviations: 4.55 % of them
    }
    assert_true(fabs(sum / 10000) < 0.02 && fabs(sqrt(squares / 10000) / 0.5 - 1) < 0.03);
    assert_true(beyond > 380 && beyond < 530);
    assert_int_equal(ct_dtype_of(h), CT_BF16);
    assert_true(ct_item(ct_sum(ct_cast(h, CT_F32))) == 4);
    assert_null(ct_data(none));
    assert_int_equal(ct_error_code(), CT_E_UNSET);
    ct_params_free(params);
}

// -------------------------------------------------------------------------------------------
// layers

static void linear_has_either_layout(void **state) {
    (void)state;
    enum { B = 2, T = 3, IN = 4, OUT = 5 };
    for (int out_in = 0; out_in < 2; out_in++) {
        ct_params *params = ct_params_new();
        ct_nn_linear layer =
            ct_nn_linear_new(ct_nn_builder_for(params, 1), .in = IN, .out = OUT, .out_in = out_in);
        fill(layer.weight, 0);
        fill(layer.bias, 50);
        assert_int_equal(ct_dim(layer.weight, 0), out_in ? OUT : IN);
        double want[B * T * OUT];
        for (int r = 0; r < B * T; r++)
            for (int o = 0; o < OUT; o++) {
                double y = at(50, o);
                for (int i = 0; i < IN; i++)
                    y += at(100, r * IN + i) * at(0, out_in ? o * IN + i : i * OUT + o);
                want[r * OUT + o] = y;
            }
        CT_SCOPE;
        compare(ct_nn_linear_apply(&layer, numbers(CT_DIMS(B, T, IN), 100)), want, B * T * OUT);
        ct_tensor single = ct_nn_linear_apply(&layer, numbers(CT_DIMS(IN), 100)); // (OUT,)
        assert_int_equal(ct_rank(single), 1);
        compare(single, want, OUT);
        ct_params_free(params);
    }
}

static void refused(ct_tensor t, const char *text) {
    assert_false(ct_ok(t));
    assert_string_equal(ct_error_text(), text);
    ct_error_clear();
}

static void a_wrong_width_is_an_error_of_the_users_line(void **state) {
    (void)state;
    ct_params *params = ct_params_new();
    CT_SCOPE;
    ct_nn_linear layer =
        ct_nn_linear_new(ct_nn_builder_for(params, 1), .in = 4, .out = 5, .no_bias = true);
    assert_true(layer.bias.bits == 0);
    refused(ct_nn_linear_apply_at(&layer, numbers(CT_DIMS(2, 3), 0), HERE),
            "main.c:9: linear: x is (2, 3) f32, its last axis must be the layer's .in, 4");
    refused(ct_nn_linear_apply_at(&layer, numbers(CT_DIMS(3), 0), HERE),
            "main.c:9: linear: x is (3,) f32, its last axis must be the layer's .in, 4");
    refused(ct_nn_linear_apply_at(&layer, ct_ones(CT_F32, CT_SCALAR), HERE),
            "main.c:9: linear: x is () f32, its last axis must be the layer's .in, 4");
    refused(ct_nn_linear_apply_at(&layer, CT_NONE, HERE),
            "main.c:9: matmul: operand 1 is no tensor");
    for (int rms = 0; rms < 2; rms++) {
        ct_nn_builder place = ct_nn_builder_child(ct_nn_builder_for(params, 1), "norm%d", rms);
        ct_nn_norm norm = ct_nn_norm_new(place, .width = 4, .rms = rms);
        refused(ct_nn_norm_apply_at(&norm, numbers(CT_DIMS(3), 0), HERE),
                "main.c:9: norm: x is (3,) f32, its last axis must be the layer's .width, 4");
    }
    ct_params_free(params);
}

static void embedding_takes_rows(void **state) {
    (void)state;
    ct_params *params = ct_params_new();
    ct_nn_embedding layer =
        ct_nn_embedding_new(ct_nn_builder_for(params, 1), .count = 6, .width = 3);
    fill(layer.weight, 20);
    const int32_t ids[4] = {5, 0, 5, 2};
    double want[12];
    for (int i = 0; i < 12; i++) want[i] = at(20, ids[i / 3] * 3 + i % 3);
    CT_SCOPE;
    compare(ct_nn_embedding_apply(&layer, ct_from(ids, CT_I32, CT_DIMS(2, 2))), want, 12);
    ct_params_free(params);
}

// x is `scale` times some numbers: small ones let eps count.
static void check_norm(bool rms, ct_nn_norm_options options, double eps, double scale) {
    enum { R = 3, W = 7 };
    ct_params *params = ct_params_new();
    options.width = W;
    options.rms = rms;
    ct_nn_norm layer = ct_nn_norm_with(ct_nn_builder_for(params, 1), options);
    assert_int_equal(ct_params_count(params), rms ? 1 : 2);
    fill(layer.weight, 5);
    if (!rms) fill(layer.bias, 25);
    double want[R * W], x[W];
    for (int r = 0; r < R; r++) {
        double mean = 0, square = 0;
        for (int i = 0; i < W; i++) x[i] = scale * at(60, r * W + i);
        for (int i = 0; i < W && !rms; i++) mean += x[i] / W;
        for (int i = 0; i < W; i++) square += pow(x[i] - mean, 2) / W;
        for (int i = 0; i < W; i++)
            want[r * W + i] = (x[i] - mean) / sqrt(square + eps) * at(5, i) + (rms ? 0 : at(25, i));
    }
    CT_SCOPE;
    ct_tensor small = ct_mul(numbers(CT_DIMS(R, W), 60), ct_f(scale)); // (R, W)
    compare(ct_nn_norm_apply(&layer, small), want, R * W);
    ct_params_free(params);
}

static void norms_follow_their_formulas(void **state) {
    (void)state;
    for (int rms = 0; rms < 2; rms++) {
        check_norm(rms, (ct_nn_norm_options){.eps = 0.01}, 0.01, 1);
        check_norm(rms, (ct_nn_norm_options){0}, 1e-5, 0x1p-8); // the default
    }
}

static double activated(ct_nn_activation which, double x) {
    switch (which) {
    case CT_NN_GELU_TANH: return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case CT_NN_GELU: return 0.5 * x * (1 + erf(x / sqrt(2)));
    case CT_NN_SILU: return x / (1 + exp(-x));
    case CT_NN_RELU: return x > 0 ? x : 0;
    case CT_NN_TANH: return tanh(x);
    case CT_NN_IDENTITY: break;
    }
    return x;
}

// x (2, 3, 4): a norm of groups of 3 and of 1 channels, and a batch norm through two steps.
static void norms_by_channels_follow_their_formulas(void **state) {
    (void)state;
    enum { N = 2, C = 3, W = 4 };
    ct_params *set = ct_params_new(), *running = ct_params_new();
    ct_nn_builder place = ct_nn_builder_for(set, 1);
    {
        CT_SCOPE;
        ct_nn_group_norm whole =
            ct_nn_group_norm_new(ct_nn_builder_child(place, "g"), .channels = C);
        ct_nn_group_norm each =
            ct_nn_group_norm_new(place, .channels = C, .groups = C, .no_affine = true, .eps = 0.5);
        fill(whole.weight, 50), fill(whole.bias, 60);
        double want[2][N * C * W];
        for (int groups = 1; groups <= C; groups += C - 1)
            for (int i = 0; i < N * groups; i++) {
                int n = C * W / groups;
                double mean = 0, var = 0;
                for (int k = 0; k < n; k++) mean += at(0, i * n + k) / n;
                for (int k = 0; k < n; k++) var += pow(at(0, i * n + k) - mean, 2) / n;
                for (int k = 0; k < n; k++) {
                    int e = i * n + k, c = e / W % C;
                    double hat = (at(0, e) - mean) / sqrt(var + (groups == 1 ? 1e-5 : 0.5));
                    want[groups > 1][e] = groups > 1 ? hat : hat * at(50, c) + at(60, c);
                }
            }
        compare(ct_nn_group_norm_apply(&whole, numbers(CT_DIMS(N, C, W), 0)), want[0], N * C * W);
        compare(ct_nn_group_norm_apply(&each, numbers(CT_DIMS(N, C, W), 0)), want[1], N * C * W);
    }
    CT_SCOPE;
    ct_nn_batch_norm layer = ct_nn_batch_norm_new(
        ct_nn_builder_child(place, "b"), ct_nn_builder_child(ct_nn_builder_for(running, 1), "b"),
        .channels = C, .momentum = 0.25);
    assert_string_equal(ct_params_name(running, 0), "b.running_mean");
    assert_int_equal(ct_params_count(set), 4);
    fill(layer.weight, 50), fill(layer.bias, 60);
    double mean[C] = {0}, var[C] = {1, 1, 1}, y[N * C * W];
    for (int step = 0; step < 2; step++) {
        int64_t first = 100 * step;
        CT_SCOPE;
        ct_nn_mode training = {.training = true};
        ct_tensor x = numbers(CT_DIMS(N, C, W), first);
        for (int c = 0; c < C; c++) {
            double m = 0, v = 0;
            for (int i = 0; i < N * W; i++) m += at(first, (i / W * C + c) * W + i % W) / (N * W);
            for (int i = 0; i < N * W; i++)
                v += pow(at(first, (i / W * C + c) * W + i % W) - m, 2) / (N * W);
            for (int i = 0; i < N * W; i++) {
                int e = (i / W * C + c) * W + i % W;
                y[e] = (at(first, e) - m) / sqrt(v + 1e-5) * at(50, c) + at(60, c);
            }
            mean[c] = 0.75 * mean[c] + 0.25 * m;
            var[c] = 0.75 * var[c] + 0.25 * v * N * W / (N * W - 1);
        }
        compare(ct_nn_batch_norm_apply(&layer, x, &training), y, N * C * W);
        compare(layer.mean, mean, C);
        compare(layer.var, var, C);
    }
    for (int e = 0; e < N * C * W; e++) {
        int c = e / W % C;
        y[e] = (at(7, e) - mean[c]) / sqrt(var[c] + 1e-5) * at(50, c) + at(60, c);
    }
    compare(ct_nn_batch_norm_apply(&layer, numbers(CT_DIMS(N, C, W), 7), NULL), y, N * C * W);
    assert_false(
        ct_ok(ct_nn_batch_norm_apply_at(&layer, numbers(CT_DIMS(1, 2, 3), 0), NULL, HERE)));
    assert_string_equal(ct_error_text(),
                        "main.c:9: batch_norm: x is (1, 2, 3) f32, its axis 1 must "
                        "be the layer's .channels, 3");
    ct_error_clear();
    ct_nn_group_norm two = ct_nn_group_norm_new(place, .channels = 2, .no_affine = true);
    assert_false(ct_ok(ct_nn_group_norm_apply_at(&two, numbers(CT_DIMS(1, 3), 0), HERE)));
    assert_string_equal(ct_error_text(),
                        "main.c:9: group_norm: x is (1, 3) f32, its axis 1 must be "
                        "the layer's .channels, 2");
    ct_error_clear();
    ct_params_free(set);
    ct_params_free(running);
}

// x (2, 4, 6, 5), two groups, a stride and padding of its own on each axis; and back.
static void conv_follows_its_formula(void **state) {
    (void)state;
    enum { N = 2, IN = 4, OUT = 6, H = 6, W = 5, KH = 3, KW = 2, OH = 3, OW = 6 };
    ct_params *params = ct_params_new();
    ct_nn_builder top = ct_nn_builder_for(params, 1);
    ct_nn_conv down = {0};
    { // the layer keeps what its options pointed to
        const int64_t stride[] = {2, 1}, padding[] = {1, 1};
        down = ct_nn_conv_new(ct_nn_builder_child(top, "down"), .in = IN, .out = OUT, .groups = 2,
                              .kernel = CT_INTS(KH, KW), .stride = {2, stride},
                              .padding = {2, padding});
    }
    ct_nn_conv up = ct_nn_conv_new(
        ct_nn_builder_child(top, "up"), .in = OUT, .out = IN, .kernel = CT_INTS(KH, KW),
        .stride = CT_INTS(2, 1), .padding = CT_INTS(1), .groups = 2,
        .output_padding = CT_INTS(1, 0), .transposed = true, .no_bias = true);
    assert_string_equal(ct_error_text(), "");
    assert_int_equal(ct_params_count(params), 3);
    assert_true(ct_params_find(params, "down.bias").bits == down.bias.bits);
    CT_SCOPE;
    assert_int_equal(ct_dim(up.weight, 0), OUT);
    assert_int_equal(ct_dim(up.weight, 1), IN / 2);
    fill(down.weight, 500), fill(down.bias, 60), fill(up.weight, 500);
    double y[N * OUT * OH * OW], back[N * IN * H * W] = {0};
    for (int e = 0; e < N * OUT * OH * OW; e++) {
        const int j = e % OW, i = e / OW % OH, o = e / (OW * OH) % OUT, n = e / (OW * OH * OUT);
        y[e] = at(60, o);
        for (int c = 0; c < IN / 2; c++)
            for (int t = 0; t < KH * KW; t++) {
                const int h = 2 * i - 1 + t / KW, w = j - 1 + t % KW;
                if (h < 0 || h >= H || w < 0 || w >= W) continue;
                const int from = ((n * IN + o / (OUT / 2) * (IN / 2) + c) * H + h) * W + w;
                const double weight = at(500, (o * IN / 2 + c) * KH * KW + t);
                y[e] += at(0, from) * weight;
                back[from] += at(300, e) * weight;
            }
    }
    compare(ct_nn_conv_apply(&down, numbers(CT_DIMS(N, IN, H, W), 0)), y, N * OUT * OH * OW);
    compare(ct_nn_conv_apply(&up, numbers(CT_DIMS(N, OUT, OH, OW), 300)), back, N * IN * H * W);
    ct_params_free(params);
}

static void norms_refuse_what_does_not_fit(void **state) {
    (void)state;
    ct_params *params = ct_params_new();
    ct_nn_builder top = ct_nn_builder_for(params, 1);
    CT_SCOPE;
#define REFUSES(call, says)                                                                        \
    do {                                                                                           \
        (void)(call);                                                                              \
        assert_non_null(strstr(ct_error_text(), ": " says));                                       \
        assert_string_equal(strstr(ct_error_text(), ": ") + 2, says);                              \
        ct_error_clear();                                                                          \
    } while (0)
    REFUSES(ct_nn_group_norm_new(top, .channels = 6, .groups = 4),
            "group_norm: 4 groups do not divide 6 channels");
    REFUSES(ct_nn_group_norm_new(top, .channels = 6, .groups = 4, .no_affine = true),
            "group_norm: 4 groups do not divide 6 channels");
    REFUSES(ct_nn_group_norm_new(top, .channels = 6, .eps = -1e-5),
            "group_norm: .eps is -1e-05, it must be at least 0");
    REFUSES(ct_nn_norm_new(top, .width = 6, .eps = -1), "norm: .eps is -1, it must be at least 0");
    REFUSES(ct_nn_batch_norm_new(top, top, .channels = 6, .eps = -1),
            "batch_norm: .eps is -1, it must be at least 0");
    REFUSES(ct_nn_batch_norm_new(top, top, .channels = 6, .momentum = -0.5),
            "batch_norm: .momentum is -0.5, it must be at least 0");
    REFUSES(ct_nn_batch_norm_new(top, top, .channels = 6, .momentum = 1.5),
            "batch_norm: .momentum is 1.5, it must be at most 1");
#undef REFUSES
    assert_int_equal(ct_params_count(params), 0);
    ct_params_free(params);
}

static void conv_refuses_what_does_not_fit(void **state) {
    (void)state;
    ct_params *params = ct_params_new();
    ct_nn_builder top = ct_nn_builder_for(params, 1);
    CT_SCOPE;
    const struct {
        ct_nn_conv_options options;
        const char *says;
    } cases[] = {
        {{.out = 2, .kernel = CT_INTS(3)}, ".in is 0, it must be at least 1"},
        {{.in = 2, .out = 2}, ".kernel has 0 sizes, it must have one a spatial axis, 1 to 3"},
        {{.in = 2, .out = 2, .kernel = CT_INTS(3, 0)}, ".kernel is 0, it must be at least 1"},
        {{.in = 4, .out = 6, .groups = 3, .kernel = CT_INTS(3)},
         "3 groups do not divide 4 channels in and 6 out"},
        {{.in = 2, .out = 2, .kernel = CT_INTS(3), .padding = CT_INTS(1, 1, 1, 1, 1, 1, 1)},
         ".padding has 7 numbers for 1 axis\n"
         "  hint: give one for all, one an axis, or one an axis for what is before and then one an "
         "axis for what is after"},
        {{.in = 2, .out = 2, .kernel = CT_INTS(3, 3), .padding = CT_INTS(1, 1, 1, 1, 1)},
         ".padding has 5 numbers for 2 axes\n"
         "  hint: give one for all, one an axis, or one an axis for what is before and then one an "
         "axis for what is after"},
        {{.in = 2, .out = 2, .kernel = CT_INTS(3, 3), .stride = CT_INTS(1, 1, 1)},
         ".stride has 3 numbers for 2 axes\n  hint: give one number an axis, or one for all of "
         "them"},
        {{.in = 2, .out = 2, .kernel = CT_INTS(3, 3), .stride = CT_INTS(1, 0)},
         ".stride is 0, it must be at least 1"},
        {{.in = 2, .out = 2, .kernel = CT_INTS(3), .dilation = CT_INTS(1ll << 40)},
         ".dilation is 1099511627776, it must be at most 1073741824"},
        {{.in = 2, .out = 2, .kernel = CT_INTS(3), .stride = CT_INTS(CT_DYN(2))},
         ".stride is dynamic, it must be static"},
        {{.in = 2, .out = 2, .kernel = CT_INTS(3), .padding = CT_INTS(-1)},
         ".padding is -1, it must be at least 0"},
        {{.in = 2, .out = 2, .kernel = CT_INTS(3), .padding = CT_INTS(1), .same = true},
         ".padding is given, and .same too"},
        {{.in = 2, .out = 2, .kernel = CT_INTS(3), .output_padding = CT_INTS(1)},
         ".output_padding needs .transposed"},
        {{.in = 2, .out = 2, .kernel = CT_INTS(3), .same = true, .transposed = true},
         ".same is not allowed with .transposed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char says[300];
        ct_nn_conv_options options = cases[i].options;
        options.here = HERE;
        ct_nn_conv_with(top, options);
        snprintf(says, sizeof says, "main.c:9: conv: %s", cases[i].says);
        assert_string_equal(ct_error_text(), says);
        ct_error_clear();
    }
    assert_int_equal(ct_params_count(params), 0);
    ct_nn_conv layer = ct_nn_conv_new(top, .in = 3, .out = 2, .kernel = CT_INTS(3, 3));
    ct_nn_conv_apply_at(&layer, numbers(CT_DIMS(1, 4, 5, 5), 0), HERE);
    assert_string_equal(
        ct_error_text(),
        "main.c:9: conv: x is (1, 4, 5, 5) f32, its axis 1 must be the layer's .in, 3");
    ct_error_clear();
    ct_params_free(params);
}

static void mlp_is_two_linear_layers(void **state) {
    (void)state;
    enum { W = 3, HIDDEN = 12 };
    for (int which = CT_NN_GELU_TANH; which <= CT_NN_IDENTITY; which++) {
        ct_params *params = ct_params_new();
        ct_nn_mlp layer = ct_nn_mlp_new(ct_nn_builder_child(ct_nn_builder_for(params, 1), "mlp"),
                                        .width = W, .activation = (ct_nn_activation)which);
        assert_true(ct_params_find(params, "mlp.c_fc.weight").bits == layer.fc.weight.bits);
        assert_true(ct_params_find(params, "mlp.c_proj.bias").bits == layer.proj.bias.bits);
        fill(layer.fc.weight, 0);
        fill(layer.fc.bias, 40);
        fill(layer.proj.weight, 80);
        fill(layer.proj.bias, 120);
        double want[2 * W], h[HIDDEN];
        for (int r = 0; r < 2; r++) {
            for (int k = 0; k < HIDDEN; k++) {
                h[k] = at(40, k);
                for (int i = 0; i < W; i++) h[k] += at(200, r * W + i) * at(0, i * HIDDEN + k);
                h[k] = activated((ct_nn_activation)which, h[k]);
            }
            for (int o = 0; o < W; o++) {
                want[r * W + o] = at(120, o);
                for (int k = 0; k < HIDDEN; k++) want[r * W + o] += h[k] * at(80, k * W + o);
            }
        }
        CT_SCOPE;
        compare(ct_nn_mlp_apply(&layer, numbers(CT_DIMS(2, W), 200), NULL), want, 2 * W);
        ct_params_free(params);
    }
}

enum { AB = 2, AT = 5, AH = 2, AW = 6, AD = AW / AH };

// Causal attention in double, from x (AB, AT, AW) and the layer's numbers, first at 0, 300, 400,
// 500, and x at 600.
static void attend(double *y) {
    static double qkv[AB * AT][3 * AW], joined[AB * AT][AW];
    for (int r = 0; r < AB * AT; r++)
        for (int o = 0; o < 3 * AW; o++) {
            qkv[r][o] = at(300, o);
            for (int i = 0; i < AW; i++) qkv[r][o] += at(600, r * AW + i) * at(0, i * 3 * AW + o);
        }
    for (int r = 0; r < AB * AT; r++)
        for (int h = 0; h < AH; h++) {
            double sum = 0, mixed[AD] = {0};
            for (int s = r / AT * AT; s <= r; s++) {
                double score = 0;
                for (int d = 0; d < AD; d++) score += qkv[r][h * AD + d] * qkv[s][AW + h * AD + d];
                double weight = exp(score / sqrt(AD));
                sum += weight;
                for (int d = 0; d < AD; d++) mixed[d] += weight * qkv[s][2 * AW + h * AD + d];
            }
            for (int d = 0; d < AD; d++) joined[r][h * AD + d] = mixed[d] / sum;
        }
    for (int r = 0; r < AB * AT; r++)
        for (int o = 0; o < AW; o++) {
            y[r * AW + o] = at(500, o);
            for (int i = 0; i < AW; i++) y[r * AW + o] += joined[r][i] * at(400, i * AW + o);
        }
}

static ct_nn_attention attention_layer(ct_params *params) {
    ct_nn_attention layer =
        ct_nn_attention_new(ct_nn_builder_for(params, 1), .width = AW, .heads = AH);
    assert_true(ct_params_find(params, "c_attn.weight").bits == layer.attn.weight.bits);
    assert_true(ct_params_find(params, "c_proj.weight").bits == layer.proj.weight.bits);
    fill(layer.attn.weight, 0);
    fill(layer.attn.bias, 300);
    fill(layer.proj.weight, 400);
    fill(layer.proj.bias, 500);
    return layer;
}

static void attention_follows_its_formula(void **state) {
    (void)state;
    ct_params *params = ct_params_new(), *kept = ct_params_new();
    ct_nn_attention layer = attention_layer(params);
    double want[AB * AT * AW];
    attend(want);
    CT_SCOPE;
    ct_tensor x = numbers(CT_DIMS(AB, AT, AW), 600);
    compare(ct_nn_attention_apply(&layer, x, NULL), want, AB * AT * AW);
    // In two parts through a cache that has room for more.
    ct_nn_cache cache = ct_nn_cache_new(ct_nn_builder_for(kept, 1), &layer, AB, AT + 4);
    ct_tensor parts[2] = {ct_slice(x, .axes = CT_AXES(1), .stop = CT_INTS(2)),
                          ct_slice(x, .axes = CT_AXES(1), .start = CT_INTS(2))};
    parts[0] = ct_nn_attention_apply_cached(&layer, parts[0], &cache, ct_i(0));
    parts[1] = ct_nn_attention_apply_cached(&layer, parts[1], &cache, ct_i(2));
    compare(ct_concat(parts, 2, 1), want, AB * AT * AW);
    ct_params_free(params);
    ct_params_free(kept);
}

static void a_forgotten_size_is_refused(void **state) {
    (void)state;
    ct_params *params = ct_params_new();
    ct_nn_builder top = ct_nn_builder_for(params, 1);
    CT_SCOPE;
    ct_nn_linear_with(top, (ct_nn_linear_options){.in = 4, .here = HERE});
    assert_string_equal(ct_error_text(), "main.c:9: linear: .out is 0, it must be at least 1");
    ct_error_clear();
    ct_nn_linear_with(top, (ct_nn_linear_options){.in = -4, .out = 2, .here = HERE});
    assert_string_equal(ct_error_text(), "main.c:9: linear: .in is -4, it must be at least 1");
    ct_error_clear();
    ct_nn_embedding_with(top, (ct_nn_embedding_options){.width = 4, .here = HERE});
    assert_string_equal(ct_error_text(), "main.c:9: embedding: .count is 0, it must be at least 1");
    ct_error_clear();
    ct_nn_norm_with(top, (ct_nn_norm_options){.here = HERE});
    assert_string_equal(ct_error_text(), "main.c:9: norm: .width is 0, it must be at least 1");
    ct_error_clear();
    ct_nn_group_norm_with(top, (ct_nn_group_norm_options){.here = HERE});
    assert_string_equal(ct_error_text(),
                        "main.c:9: group_norm: .channels is 0, it must be at least 1");
    ct_error_clear();
    ct_nn_group_norm_with(top,
                          (ct_nn_group_norm_options){.channels = 4, .groups = -1, .here = HERE});
    assert_string_equal(ct_error_text(),
                        "main.c:9: group_norm: .groups is -1, it must be at least 1");
    ct_error_clear();
    ct_nn_batch_norm_with(top, top, (ct_nn_batch_norm_options){.here = HERE});
    assert_string_equal(ct_error_text(),
                        "main.c:9: batch_norm: .channels is 0, it must be at least 1");
    ct_error_clear();
    ct_nn_mlp_with(top, (ct_nn_mlp_options){.here = HERE});
    assert_string_equal(ct_error_text(), "main.c:9: mlp: .width is 0, it must be at least 1");
    ct_error_clear();
    ct_nn_attention_with(top, (ct_nn_attention_options){.heads = 1, .here = HERE});
    assert_string_equal(ct_error_text(), "main.c:9: attention: .width is 0, it must be at least 1");
    ct_error_clear();
    assert_int_equal(ct_params_count(params), 0);
    ct_params_free(params);
}

static void attention_refuses_what_does_not_fit(void **state) {
    (void)state;
    ct_params *params = ct_params_new();
    ct_nn_builder top = ct_nn_builder_for(params, 1);
    CT_SCOPE;
    ct_nn_attention_with(top, (ct_nn_attention_options){.width = 6, .heads = 4, .here = HERE});
    assert_string_equal(ct_error_text(), "main.c:9: attention: width 6 is no multiple of 4 heads");
    ct_error_clear();
    ct_nn_attention layer = ct_nn_attention_new(top, .width = 6, .heads = 2);
    ct_nn_cache cache = ct_nn_cache_new(ct_nn_builder_child(top, "cache"), &layer, 1, 3);
    ct_nn_attention_apply_at(&layer, numbers(CT_DIMS(2, 6), 0), NULL, CT_NONE, NULL, HERE);
    assert_string_equal(ct_error_text(), "main.c:9: attention: x has 2 axes, the last of size 6; "
                                         "it must be (batch, time, 6)");
    ct_error_clear();
    ct_nn_attention_apply_at(&layer, numbers(CT_DIMS(1, 4, 6), 0), &cache, ct_i(0), NULL, HERE);
    assert_string_equal(ct_error_text(),
                        "main.c:9: attention: 4 positions do not fit a cache of 3");
    ct_error_clear();
    ct_params_free(params);
}

static void dropout_is_for_training(void **state) {
    (void)state;
    CT_SCOPE;
    enum { N = 4000 };
    ct_tensor x = ct_ones(CT_F32, CT_DIMS(N));
    ct_nn_mode mode = {.dropout = 0.25f, .key = ct_random_key(3)};
    assert_true(ct_nn_dropout(x, NULL).bits == x.bits);
    assert_true(ct_nn_dropout(x, &mode).bits == x.bits);
    mode.training = true;
    ct_tensor first = ct_nn_dropout(x, &mode), second = ct_nn_dropout(x, &mode);
    assert_int_equal(mode.n_dropouts, 2);
    ct_nn_mode again = {.dropout = 0.25f, .key = ct_random_key(3), .training = true};
    const float *a = ct_data(first), *b = ct_data(second), *c = ct_data(ct_nn_dropout(x, &again));
    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(c);
    assert_memory_equal(a, c, N * sizeof *a);
    assert_true(memcmp(a, b, N * sizeof *a) != 0);
    int dropped = 0;
    for (int i = 0; i < N; i++) {
        dropped += a[i] == 0;
        assert_true(a[i] == 0 || fabs((double)a[i] - 1 / 0.75) < 1e-6);
    }
    assert_true(dropped > 890 && dropped < 1110); // 1000, four deviations of 27
}

static void dropout_needs_a_key(void **state) {
    (void)state;
    static const char said[] = "main.c:9: dropout: the mode has no key to draw from\n  hint: give "
                               "it one, another each step: .key = ct_random_key(step)";
    ct_params *params = ct_params_new();
    CT_SCOPE;
    ct_nn_mode mode = {.training = true, .dropout = 0.5f};
    refused(ct_nn_dropout_at(numbers(CT_DIMS(4), 0), &mode, HERE), said);
    ct_nn_mlp mlp = ct_nn_mlp_new(ct_nn_builder_for(params, 1), .width = 4);
    refused(ct_nn_mlp_apply_at(&mlp, numbers(CT_DIMS(2, 4), 0), &mode, HERE), said);
    ct_params_free(params);
}

// --------------------------------------------------------------------------------------------
// files

// Into the memory that the variables have, and no more; converted as a cast does; behind what was
// recorded before.
static void loading_needs_no_further_memory(void **state) {
    (void)state;
    static const ct_dtype dtypes[] = {CT_F32, CT_F64, CT_F16, CT_BF16};
    enum { N = 300007 }; // more than a piece of the file
    static float values[N];
    char path[64];
    snprintf(path, sizeof path, "/tmp/cotan_nn_%d.safetensors", (int)getpid());
    for (int i = 0; i < N; i++) values[i] = (float)number(i) * (float)(1 + i % 1000);
    ct_params *from = ct_params_new();
    ct_tensor x = ct_param(from, "x", CT_F32, CT_DIMS(N));
    {
        CT_SCOPE;
        ct_assign(x, ct_from(values, CT_F32, CT_DIMS(N)));
    }
    assert_true(ct_params_save(from, path));
    for (int k = 0; k < 4; k++) {
        CT_SCOPE;
        ct_params *to = ct_params_new();
        ct_tensor y = ct_param(to, "x", dtypes[k], CT_DIMS(N));
        ct_assign(y, ct_ones(dtypes[k], CT_DIMS(N)));
        const void *want = ct_data(ct_cast(x, dtypes[k]));
        assert_non_null(want);
        ct_metric("before", ct_max(y));
        ct_stats now = ct_get_stats();
        ct_set_memory_limit(now.memory + 20000);
        bool loaded = ct_params_load(to, path);
        ct_set_memory_limit(0);
        assert_string_equal(ct_error_text(), "");
        assert_true(loaded && ct_get_stats().live_bytes <= now.live_bytes + 20000);
        assert_true(ct_metric_value("before") == 1);
        const void *have = ct_data(y);
        assert_non_null(have);
        assert_memory_equal(have, want, N * ct_dtype_size(dtypes[k]));
        ct_params_free(to);
    }
    ct_params_free(from);
    unlink(path);
}

// Somebody shortens the file between its opening and the second piece of its tensor: no fault, and
// no variable that looks whole. With conversion and without.
static void a_file_shortened_while_it_is_loaded_is_an_error(void **state) {
    (void)state;
    enum { N = 50000, LEFT = 50000 };
    static float values[N];
    const int64_t n = N;
    const ct_dtype dtypes[] = {CT_F32, CT_F64};
    char path[64], want[256];
    snprintf(path, sizeof path, "/tmp/cotan_nn_%d.safetensors", (int)getpid());
    for (int k = 0; k < 2; k++) {
        ct_err err = {0};
        ct_st file;
        ct_params *set = ct_params_new();
        ct_tensor w = ct_param(set, "w", dtypes[k], CT_DIMS(N));
        assert_true(ct__st_write(path, &(ct_st_out){"w", CT_F32, 1, &n, values}, 1, NULL, 0, &err));
        assert_true(ct__st_open(path, &file, &err));
        assert_int_equal(truncate(path, LEFT), 0);
        assert_false(ct__store_load(set, &file, &(ct_store_rules){.path = path}, &err));
        snprintf(want, sizeof want,
                 "%s: it ends at byte %d or before, but had %zu bytes when it was opened", path,
                 LEFT, 8 + file.header_n + sizeof values);
        assert_string_equal(err.text, want);
        assert_string_equal(ct_error_text(), want);
        ct_error_clear();
        ct__st_close(&file);
        {
            CT_SCOPE;
            assert_null(ct_data_at(w, (ct_loc){"main.c", 9}));
            assert_string_equal(ct_error_text(), "main.c:9: data: variable \"w\" is poisoned: what "
                                                 "was giving it its value failed\n  hint: assign "
                                                 "it again");
            ct_error_clear();
            ct_assign(w, ct_zeros(dtypes[k], CT_DIMS(N)));
            assert_non_null(ct_data(w));
        }
        ct_params_free(set);
    }
    unlink(path);
}

static void parameters_round_trip_in_a_file(void **state) {
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "/tmp/cotan_nn_%d.safetensors", (int)getpid());
    ct_params *a = ct_params_new(), *b = ct_params_new();
    ct_tensor from[2], to[2];
    for (int i = 0; i < 2; i++) {
        ct_params *set = i ? b : a;
        ct_tensor *vars = i ? to : from;
        vars[0] = ct_param(set, "layer.weight", CT_F32, CT_DIMS(3, 4));
        vars[1] = ct_param(set, "step", CT_I32, CT_SCALAR);
    }
    fill(from[0], 9);
    {
        CT_SCOPE;
        ct_assign(from[1], ct_scalar(77, CT_I32));
    }
    assert_true(ct_params_save(a, path));
    assert_true(ct_params_load(b, path));
    {
        CT_SCOPE;
        const void *x = ct_data(from[0]), *y = ct_data(to[0]);
        assert_non_null(x);
        assert_non_null(y);
        assert_memory_equal(x, y, 48);
        assert_true(ct_item(to[1]) == 77);
    }
    // Halves are converted, whole numbers into floats are not.
    const uint16_t halves[2] = {0x3f80, 0xc000}; // bf16: 1, -2
    const int64_t two = 2;
    ct_st_out out = {"x", CT_BF16, 1, &two, halves};
    ct_err err = {0};
    assert_true(ct__st_write(path, &out, 1, NULL, 0, &err));
    ct_params *c = ct_params_new();
    ct_tensor x = ct_param(c, "x", CT_F32, CT_DIMS(2));
    assert_true(ct_params_load(c, path));
    {
        CT_SCOPE;
        const float *v = ct_data(x);
        assert_non_null(v);
        assert_true(v[0] == 1 && v[1] == -2);
    }
    const ct_loc here = {"main.c", 9};
    ct_params *unset = ct_params_new();
    (void)ct_param(unset, "v", CT_F32, CT_DIMS(3));
    assert_false(ct_params_save_at(unset, path, here));
    assert_string_equal(
        ct_error_text(),
        "main.c:9: data: variable \"v\" is read before its first assignment\n  hint: "
        "ct_assign gives it a value, ct_params_load those of a whole set");
    ct_error_clear();
    ct_params_free(unset);
    const int32_t whole[2] = {1, 2};
    out = (ct_st_out){"x", CT_I32, 1, &two, whole};
    assert_true(ct__st_write(path, &out, 1, NULL, 0, &err));
    assert_false(ct_params_load_at(c, path, here));
    char want[256];
    snprintf(want, sizeof want,
             "main.c:9: params_load: safetensors: %s: tensor \"x\" is (2,) i32 in the file, (2,) "
             "f32 is expected",
             path);
    assert_string_equal(ct_error_text(), want);
    ct_error_clear();
    unlink(path);
    assert_false(ct_params_load_at(c, path, here));
    snprintf(want, sizeof want, "main.c:9: params_load: %s: cannot open: No such file or directory",
             path);
    assert_string_equal(ct_error_text(), want);
    ct_error_clear();
    assert_false(ct_params_save_at(c, "/nowhere/x", here));
    assert_string_equal(
        ct_error_text(),
        "main.c:9: params_save: /nowhere/x: cannot create: No such file or directory");
    ct_error_clear();
    ct_params_free(a);
    ct_params_free(b);
    ct_params_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(places_make_dotted_names, fresh),
        cmocka_unit_test_setup(a_name_that_is_too_long_is_refused, fresh),
        cmocka_unit_test_setup(first_values_have_their_distribution, fresh),
        cmocka_unit_test_setup(linear_has_either_layout, fresh),
        cmocka_unit_test_setup(a_wrong_width_is_an_error_of_the_users_line, fresh),
        cmocka_unit_test_setup(embedding_takes_rows, fresh),
        cmocka_unit_test_setup(norms_follow_their_formulas, fresh),
        cmocka_unit_test_setup(norms_by_channels_follow_their_formulas, fresh),
        cmocka_unit_test_setup(conv_follows_its_formula, fresh),
        cmocka_unit_test_setup(conv_refuses_what_does_not_fit, fresh),
        cmocka_unit_test_setup(norms_refuse_what_does_not_fit, fresh),
        cmocka_unit_test_setup(mlp_is_two_linear_layers, fresh),
        cmocka_unit_test_setup(attention_follows_its_formula, fresh),
        cmocka_unit_test_setup(attention_refuses_what_does_not_fit, fresh),
        cmocka_unit_test_setup(a_forgotten_size_is_refused, fresh),
        cmocka_unit_test_setup(dropout_is_for_training, fresh),
        cmocka_unit_test_setup(dropout_needs_a_key, fresh),
        cmocka_unit_test_setup(loading_needs_no_further_memory, fresh),
        cmocka_unit_test_setup(a_file_shortened_while_it_is_loaded_is_an_error, fresh),
        cmocka_unit_test_setup(parameters_round_trip_in_a_file, fresh),
    };
    const char *const devices[] = {"ref", "cpu", "async:cpu"};
    int failed = 0;
    for (int i = 0; i < 3; i++) {
        print_message("on %s\n", devices[i]);
        failed += ct_set_device(devices[i]) ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
    }
    ct_shutdown(); // sanitizers cannot see what a device with buffers of its own still holds
    return failed;
}
