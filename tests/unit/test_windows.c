// Windows are views: what plans of pools and convolutions store is their operands and results, forward and
// backward, and never the windows themselves.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "cotan/nn.h"

enum { N = 4, C = 16, O = 24, SIZE = 32 };

static ct_tensor normal(int64_t seed, ct_ints dims) {
    ct_tensor t = ct_random_normal(ct_random_key(seed), dims);
    assert_true(ct_eval(&t, 1));
    return t;
}

// The newest plan: no more launches than so many, none of them a scatter, and of temporaries no more
// than so many bytes.
static void stores(size_t launches, uint64_t bytes) {
    const ct_plan_cost *plan = ct_latest_plan();
    assert_non_null(plan);
    assert_true(plan->n_launches > 0);
    assert_in_range(plan->n_launches, 1, launches);
    assert_in_range(plan->arena_bytes, 0, bytes);
    for (size_t i = 0; i < plan->n_launches; i++)
        assert_null(strstr(plan->launches[i].op, "scatter"));
}
// The gradients of sum(y y) with respect to n tensors.
static void differentiate(ct_tensor y, const ct_tensor *wrt, size_t n) {
    ct_tensor g[2];
    ct_grad(ct_sum(ct_mul(y, y)), wrt, n, g);
    assert_true(ct_eval(g, n));
}

static void convolutions_store_no_columns(void **state) {
    (void)state;
    const uint64_t result = N * O * SIZE * SIZE * sizeof(float);
    for (int stride = 1; stride <= 2; stride++) {
        CT_SCOPE;
        ct_tensor in[2] = {normal(1, CT_DIMS(N, C, SIZE, SIZE)), normal(2, CT_DIMS(O, C, 3, 3))};
        ct_tensor y =
            ct_conv(in[0], in[1], CT_NONE, .padding = CT_DIMS(1), .stride = CT_DIMS(stride));
        assert_true(ct_eval(&y, 1));
        stores(1, 0);
        y = ct_conv(in[0], in[1], CT_NONE, .padding = CT_DIMS(1), .stride = CT_DIMS(stride));
        differentiate(y, in, 2); // the result, whose slope is the result twice, and two products
        if (stride == 1)
            stores(3, result);
        else // of x by phases: four products, which are put together
            stores(7, result / 4 + (uint64_t)N * C * SIZE * SIZE * sizeof(float));
    }
}

// A dot product as docs/design/bits.md says: chunks of 256.
typedef struct dot {
    int64_t n;
    float chunk, sum;
} dot;
static void add(dot *d, float a, float b) {
    if (d->n && d->n % 256 == 0) {
        d->sum = d->n == 256 ? d->chunk : d->sum + d->chunk;
        d->chunk = 0;
    }
    d->chunk = fmaf(a, b, d->chunk);
    d->n++;
}
static float result(const dot *d) { return d->n > 256 ? d->sum + d->chunk : d->chunk; }

// Of images (channels, size, size): 0 outside.
static float pixel(const float *x, int64_t channels, int size, int64_t image, int64_t c, int h,
                   int w) {
    if (h < 0 || h >= size || w < 0 || w >= size) return 0;
    return x[((image * channels + c) * size + h) * size + w];
}

// Many positions, so that weights are put in order first, and more windows than channels, which makes
// windows the rows of the weights' gradient; widths and channels that lanes divide, and that they do not.
static void large_convolutions_have_the_bits_of_dot_products(void **state) {
    (void)state;
    enum { IMAGES = 8, SOME = 97 };
    for (int size = 30; size <= 32; size += 2) {
        CT_SCOPE;
        const int64_t in_channels = size == 30 ? 20 : 32, out_channels = size == 30 ? 40 : 48;
        ct_tensor in[2] = {normal(1, CT_DIMS(IMAGES, in_channels, size, size)),
                           normal(2, CT_DIMS(out_channels, in_channels, 3, 3))};
        ct_tensor back = normal(3, CT_DIMS(IMAGES, out_channels, size, size)), slope[2];
        ct_tensor y = ct_conv(in[0], in[1], CT_NONE, .padding = CT_DIMS(1));
        const float *got = ct_data(y), *x = ct_data(in[0]), *w = ct_data(in[1]), *c = ct_data(back);
        assert_non_null(got);
        stores(2,
               (uint64_t)((in_channels * 9 + 255) / 256 * out_channels + 16) * 256 * sizeof(float));
        ct_grad(ct_sum(ct_mul(ct_conv(in[0], in[1], CT_NONE, .padding = CT_DIMS(1)), back)), in, 2,
                slope);
        assert_true(ct_eval(slope, 2));
        const float *dx = ct_data(slope[0]), *dw = ct_data(slope[1]);
        for (int64_t i = 0; i < IMAGES * out_channels * size * size; i += SOME) {
            const int at_w = (int)(i % size), at_h = (int)(i / size % size);
            const int64_t o = i / size / size % out_channels, n = i / size / size / out_channels;
            dot d = {0};
            for (int t = 0; t < 9; t++)
                for (int64_t k = 0; k < in_channels; k++)
                    add(&d, w[(o * in_channels + k) * 9 + t],
                        pixel(x, in_channels, size, n, k, at_h + t / 3 - 1, at_w + t % 3 - 1));
            assert_true(result(&d) == got[i]);
        }
        for (int64_t i = 0; i < IMAGES * in_channels * size * size; i += SOME) {
            const int at_w = (int)(i % size), at_h = (int)(i / size % size);
            const int64_t k = i / size / size % in_channels, n = i / size / size / in_channels;
            dot d = {0};
            for (int t = 0; t < 9; t++)
                for (int64_t o = 0; o < out_channels; o++)
                    add(&d, w[(o * in_channels + k) * 9 + t],
                        pixel(c, out_channels, size, n, o, at_h - t / 3 + 1, at_w - t % 3 + 1));
            assert_true(result(&d) == dx[i]);
        }
        for (int64_t i = 0; i < out_channels * in_channels * 9; i += SOME) {
            dot d = {0};
            const int t = (int)(i % 9);
            for (int64_t n = 0; n < IMAGES; n++)
                for (int p = 0; p < size * size; p++)
                    add(&d,
                        pixel(c, out_channels, size, n, i / 9 / in_channels, p / size, p % size),
                        pixel(x, in_channels, size, n, i / 9 % in_channels, p / size + t / 3 - 1,
                              p % size + t % 3 - 1));
            assert_true(result(&d) == dw[i]);
        }
    }
}

// Few positions: weights are read as they lie, and nothing is stored but the result.
static void small_images_have_the_bits_of_dot_products(void **state) {
    (void)state;
    enum { IN = 64, OUT = 96, CASES = 5 };
    const struct {
        int images, size, k, stride;
    } cases[CASES] = {{1, 7, 3, 1}, {1, 7, 1, 1}, {1, 14, 3, 2}, {2, 7, 3, 1}, {1, 14, 1, 1}};
    for (int i = 0; i < CASES; i++) {
        CT_SCOPE;
        const int images = cases[i].images, size = cases[i].size, k = cases[i].k,
                  stride = cases[i].stride, out = (size - 1) / stride + 1, pad = k / 2;
        ct_tensor in = normal(1, CT_DIMS(images, IN, size, size)),
                  weight = normal(2, CT_DIMS(OUT, IN, k, k)), bias = normal(3, CT_DIMS(OUT));
        ct_tensor y =
            ct_relu(ct_conv(in, weight, bias, .padding = CT_DIMS(pad), .stride = CT_DIMS(stride)));
        const float *got = ct_data(y), *x = ct_data(in), *w = ct_data(weight), *b = ct_data(bias);
        assert_non_null(got);
        stores(1, 0);
        for (int64_t at = 0; at < (int64_t)images * OUT * out * out; at++) {
            const int row = (int)(at / out % out) * stride - pad,
                      column = (int)(at % out) * stride - pad;
            const int64_t o = at / out / out % OUT, n = at / out / out / OUT;
            dot d = {0};
            for (int t = 0; t < k * k; t++)
                for (int64_t c = 0; c < IN; c++)
                    add(&d, w[(o * IN + c) * k * k + t],
                        pixel(x, IN, size, n, c, row + t / k, column + t % k));
            assert_true(fmaxf(result(&d) + b[o], 0) == got[at]);
        }
    }
}

// Weights' gradients: chunks that end inside lines and images, or span several; steps between windows above
// what they see; channels that no tile divides.
static void slopes_of_weights_have_the_bits_of_dot_products(void **state) {
    (void)state;
    enum { CASES = 6 };
    const struct {
        int images, in, out, size, k, stride, pad;
    } cases[CASES] = {{40, 3, 33, 4, 3, 1, 1},  {5, 7, 40, 14, 3, 1, 1}, {5, 20, 16, 13, 3, 2, 1},
                      {3, 17, 48, 16, 1, 2, 0}, {7, 9, 16, 9, 2, 1, 0},  {2, 2, 18, 40, 3, 3, 0}};
    for (int i = 0; i < CASES; i++) {
        CT_SCOPE;
        const int images = cases[i].images, in = cases[i].in, outs = cases[i].out,
                  size = cases[i].size, k = cases[i].k, stride = cases[i].stride,
                  pad = cases[i].pad, out = (size + 2 * pad - k) / stride + 1;
        ct_tensor x = normal(1, CT_DIMS(images, in, size, size)),
                  y = normal(2, CT_DIMS(images, outs, out, out));
        ct_tensor slope = ct_conv_weight_grad(x, y, .size = CT_DIMS(k, k), .padding = CT_DIMS(pad),
                                              .stride = CT_DIMS(stride));
        const float *got = ct_data(slope), *of_x = ct_data(x), *of_y = ct_data(y);
        assert_non_null(got);
        for (int64_t at = 0; at < (int64_t)outs * in * k * k; at++) {
            const int t = (int)(at % (k * k));
            const int64_t c = at / k / k % in, o = at / k / k / in;
            dot d = {0};
            for (int64_t n = 0; n < images; n++)
                for (int p = 0; p < out * out; p++)
                    add(&d, of_y[((n * outs + o) * out + p / out) * out + p % out],
                        pixel(of_x, in, size, n, c, p / out * stride + t / k - pad,
                              p % out * stride + t % k - pad));
            assert_true(result(&d) == got[at]);
        }
    }
}

// Channels that lie as far apart as windows could: between them is padding, which belongs to no channel.
// The largest of a task's buffers, of the kernels that are dumped.
static long long scratch;
static void see_scratch(ct_log_kind kind, const char *text, void *user) {
    (void)user;
    (void)kind;
    for (const char *at = text; (at = strstr(at, "scratch + ")); at++) {
        const char *size = strchr(at, '[');
        if (size && atoll(size + 1) > scratch) scratch = atoll(size + 1);
    }
}
// Lines of sound are not copied as those of images are, which tasks hold whole.
static void long_lines_are_not_copied(void **state) {
    (void)state;
    static const int lengths[] = {1000, 100000};
    setenv("COTAN_CC", "none", 1);
    ct_ctx *ctx = ct_ctx_new(), *before = ct_ctx_use(ctx);
    assert_true(ct_set_device("dry:cpu"));
    for (int i = 0; i < 2; i++) {
        CT_SCOPE;
        ct_tensor x = normal(1, CT_DIMS(1, 32, lengths[i])),
                  y = normal(2, CT_DIMS(1, 32, lengths[i]));
        ct_tensor slope = ct_conv_weight_grad(x, y, .size = CT_DIMS(9), .padding = CT_DIMS(4));
        scratch = 0;
        ct_set_log(see_scratch, NULL);
        setenv("COTAN_DUMP", "kernels", 1);
        assert_true(ct_eval(&slope, 1));
        unsetenv("COTAN_DUMP");
        ct_set_log(NULL, NULL);
        assert_true(scratch > 0 && scratch < 1 << 17);
    }
    ct_ctx_use(before);
    ct_ctx_free(ctx);
    unsetenv("COTAN_CC");
}

static void padding_is_of_each_channel(void **state) {
    (void)state;
    enum { IMAGES = 6, CHANNELS = 6, LENGTH = 6, OUTS = 2 };
    CT_SCOPE;
    ct_tensor x = normal(1, CT_DIMS(IMAGES, CHANNELS, LENGTH)),
              weight = normal(2, CT_DIMS(OUTS, CHANNELS, 1));
    const float *y = ct_data(ct_conv(x, weight, CT_NONE, .padding = CT_DIMS(1)));
    const float *of_x = ct_data(x), *w = ct_data(weight);
    assert_non_null(y);
    for (int64_t at = 0; at < IMAGES * OUTS * (LENGTH + 2); at++) {
        const int64_t p = at % (LENGTH + 2) - 1, o = at / (LENGTH + 2) % OUTS,
                      n = at / (LENGTH + 2) / OUTS;
        dot d = {0};
        for (int64_t c = 0; c < CHANNELS; c++)
            add(&d, w[o * CHANNELS + c],
                p < 0 || p >= LENGTH ? 0 : of_x[(n * CHANNELS + c) * LENGTH + p]);
        assert_true(result(&d) == y[at]);
    }
}

// Columns that are several axes, 16 of the last one: a tile of 32 is two pieces of memory.
static void columns_of_several_axes_are_of_all_of_them(void **state) {
    (void)state;
    enum { ROWS = 64, INNER = 128, MANY = 2, LAST = 16 };
    CT_SCOPE;
    ct_tensor in[2] = {normal(1, CT_DIMS(ROWS, INNER)), normal(2, CT_DIMS(MANY, INNER, LAST))};
    ct_tensor y = ct_einsum("ik,nkj->inj", in, 2);
    const float *got = ct_data(y), *a = ct_data(in[0]), *b = ct_data(in[1]);
    assert_non_null(got);
    for (int at = 0; at < ROWS * MANY * LAST; at++) {
        const int row = at / LAST / MANY, n = at / LAST % MANY, j = at % LAST;
        dot d = {0};
        for (int k = 0; k < INNER; k++) add(&d, a[row * INNER + k], b[(n * INNER + k) * LAST + j]);
        assert_true(result(&d) == got[at]);
    }
}

// Multiplications and additions of the newest plan's launches.
static double operations(void) {
    const ct_plan_cost *plan = ct_latest_plan();
    double flops = 0;
    assert_non_null(plan);
    for (size_t i = 0; i < plan->n_launches; i++) flops += plan->launches[i].flops;
    return flops;
}

// Transposed convolutions compute no tap that sees nothing, by phases or by channels: each element of x
// is multiplied with each weight once. Of dynamic sizes there may be a line of elements more.
static void strides_compute_no_empty_taps(void **state) {
    (void)state;
    enum { IMAGES = 2, IN = 32, OUT = 3, CASES = 5 };
    const struct {
        int size, k, stride;
        bool dynamic;
    } cases[CASES] = {{14, 16, 16, false},
                      {14, 16, 16, true},
                      {14, 4, 2, false},
                      {14, 4, 2, true},
                      {14, 7, 9, false}};
    for (int i = 0; i < CASES; i++) {
        CT_SCOPE;
        const int64_t n = cases[i].size, k = cases[i].k;
        const int64_t size = cases[i].dynamic ? CT_DYN(n) : n;
        ct_tensor x =
            ct_reshape(normal(1, CT_DIMS(IMAGES, IN, n, n)), CT_DIMS(IMAGES, IN, size, size));
        ct_tensor y = ct_conv_transpose(x, normal(2, CT_DIMS(IN, OUT, k, k)), CT_NONE,
                                        .stride = CT_DIMS(cases[i].stride));
        assert_true(ct_eval(&y, 1));
        const int64_t lines = n + (k > cases[i].stride ? k / cases[i].stride : 1);
        assert_true(operations() < 2.1 * IMAGES * IN * OUT * (double)(lines * lines * k * k));
    }
}

static void depthwise_convolutions_are_sums_of_taps(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor in[2] = {normal(1, CT_DIMS(N, C, SIZE, SIZE)), normal(2, CT_DIMS(C, 1, 3, 3))};
    ct_tensor y = ct_conv(in[0], in[1], CT_NONE, .padding = CT_DIMS(1), .groups = C);
    assert_true(ct_eval(&y, 1));
    stores(1, 0);
    assert_string_equal(ct_latest_plan()->launches[0].op, "sum");
}

// The gradient with respect to x reads windows of the result, which is stored: in one kernel with it,
// each result would be computed anew for each of its windows.
static void depthwise_gradients_compute_results_once(void **state) {
    (void)state;
    for (int k = 3; k <= 7; k += 2) {
        CT_SCOPE;
        const uint64_t result = N * C * SIZE * SIZE * sizeof(float);
        ct_tensor in[2] = {normal(1, CT_DIMS(N, C, SIZE, SIZE)), normal(2, CT_DIMS(C, 1, k, k))};
        ct_tensor y = ct_conv(in[0], in[1], CT_NONE, .padding = CT_DIMS(k / 2), .groups = C);
        differentiate(y, in, 1);
        stores(2, result);
        assert_int_equal(ct_latest_plan()->n_launches, 2);
    }
}

static void pools_store_their_results(void **state) {
    (void)state;
    CT_SCOPE;
    const uint64_t result = N * C * (SIZE / 2) * (SIZE / 2) * sizeof(float);
    ct_tensor x = normal(1, CT_DIMS(N, C, SIZE, SIZE));
    ct_tensor y =
        ct_max_pool(x, .kernel = CT_DIMS(3, 3), .stride = CT_DIMS(2), .padding = CT_DIMS(1));
    assert_true(ct_eval(&y, 1));
    stores(1, 0);
    differentiate(
        ct_max_pool(x, .kernel = CT_DIMS(3, 3), .stride = CT_DIMS(2), .padding = CT_DIMS(1)), &x,
        1);
    stores(2, 2 * result); // with the number of the tap that was the largest, a byte each
    y = ct_avg_pool(x, .kernel = CT_DIMS(2, 2));
    assert_true(ct_eval(&y, 1));
    stores(1, 0);
}

// Bytes that the newest plan's launches read and write, in tensors of (N, C, SIZE, SIZE).
static double tensors_moved(void) {
    const ct_plan_cost *plan = ct_latest_plan();
    double bytes = 0;
    assert_non_null(plan);
    for (size_t i = 0; i < plan->n_launches; i++) bytes += (double)plan->launches[i].bytes;
    return bytes / (N * C * SIZE * SIZE * sizeof(float));
}

static ct_tensor of_batch(ct_tensor x, ct_tensor w, ct_tensor b) {
    return ct_batch_norm_train(x, ct_zeros(CT_F32, CT_DIMS(C)), ct_ones(CT_F32, CT_DIMS(C)), w, b)
        .y;
}
static ct_tensor of_groups(ct_tensor x, ct_tensor w, ct_tensor b) {
    return ct_group_norm(x, w, b, .groups = C / 2);
}
static ct_tensor of_images(ct_tensor x, ct_tensor w, ct_tensor b) {
    return ct_instance_norm(x, w, b);
}

// x is read and y written, and of the gradient x, y's cotangent and what x gets; groups of several
// channels read operands once for sums by channel, and once more behind them.
static void norms_move_little(void **state) {
    static const struct {
        ct_tensor (*norm)(ct_tensor x, ct_tensor w, ct_tensor b);
        double forward, backward;
    } all[] = {{of_batch, 2, 3}, {of_images, 2, 3}, {of_groups, 2, 7}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        CT_SCOPE;
        ct_tensor in[3] = {normal(1, CT_DIMS(N, C, SIZE, SIZE)), normal(2, CT_DIMS(C)),
                           normal(3, CT_DIMS(C))};
        ct_tensor c = normal(4, CT_DIMS(N, C, SIZE, SIZE)), g[3];
        ct_tensor y = all[i].norm(in[0], in[1], in[2]);
        assert_true(ct_eval(&y, 1));
        assert_true(tensors_moved() < all[i].forward * 1.05);
        ct_grad(ct_sum(ct_mul(all[i].norm(in[0], in[1], in[2]), c)), in, 3, g);
        assert_true(ct_eval(g, 3));
        assert_true(tensors_moved() < all[i].backward * 1.05);
    }
}

// A view that fills is none of a constant alone.
static void what_fills_is_no_constant(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor one = ct_const((float[]){1}, CT_F32, CT_DIMS(1));
    ct_tensor mask = ct_windows(one, .size = CT_DIMS(3), .low = CT_DIMS(1), .high = CT_DIMS(1));
    ct_tensor x = ct_from(((float[]){2, 3, 4}), CT_F32, CT_DIMS(1, 3));
    const float *y = ct_data(ct_mul(x, mask));
    assert_non_null(y);
    assert_true(y[0] == 0 && y[1] == 3 && y[2] == 0);
}

// ------------------------------------------------------------------------------- gradients of pools

// Numbers of which sums are exact in any order; and all are different.
static void fill(float *v, int64_t n, int64_t times) {
    for (int64_t i = 0; i < n; i++) v[i] = (float)((i * times + 11) % n);
}
typedef struct pool {
    int kernel, stride, padding;
    bool ceil_mode;
} pool;
enum { MOST_POOL = 24 * 24, PLANES = 2 };

// One plane of h times w. sums: of each window; chosen: which position is its largest.
static void naive_pool(const pool *p, const float *x, int h, int w, int oh, int ow, float *sums,
                       int *chosen) {
    for (int o = 0; o < oh * ow; o++) {
        sums[o] = 0;
        chosen[o] = -1;
        for (int t = 0; t < p->kernel * p->kernel; t++) {
            const int i = o / ow * p->stride + t / p->kernel - p->padding;
            const int j = o % ow * p->stride + t % p->kernel - p->padding;
            if (i < 0 || i >= h || j < 0 || j >= w) continue;
            sums[o] += x[i * w + j];
            if (chosen[o] < 0 || x[i * w + j] > x[chosen[o]]) chosen[o] = i * w + j;
        }
    }
}
// What each position has from the windows that see it.
static void naive_back(const pool *p, const float *back, int h, int w, int oh, int ow, float *out) {
    for (int i = 0; i < h * w; i++) out[i] = 0;
    for (int o = 0; o < oh * ow; o++)
        for (int t = 0; t < p->kernel * p->kernel; t++) {
            const int i = o / ow * p->stride + t / p->kernel - p->padding;
            const int j = o % ow * p->stride + t % p->kernel - p->padding;
            if (i >= 0 && i < h && j >= 0 && j < w) out[i * w + j] += back[o];
        }
}

// dynamic: images, or images and both axes.
static void slopes_of(const pool *p, int h, int w, int dynamic) {
    CT_SCOPE;
    static float x[PLANES * MOST_POOL], y[PLANES * MOST_POOL], v[PLANES * MOST_POOL];
    float want[MOST_POOL], sums[MOST_POOL];
    int chosen[MOST_POOL];
    const int64_t images = dynamic ? CT_DYN(PLANES) : PLANES;
    fill(x, PLANES * h * w, 5);
    fill(v, PLANES * h * w, 7);
    ct_tensor in = ct_from(
        x, CT_F32, CT_DIMS(images, 1, dynamic > 1 ? CT_DYN(h) : h, dynamic > 1 ? CT_DYN(w) : w));
    ct_tensor along = ct_from(
        v, CT_F32, CT_DIMS(images, 1, dynamic > 1 ? CT_DYN(h) : h, dynamic > 1 ? CT_DYN(w) : w));
    ct_tensor mean =
        ct_avg_pool(in, .kernel = CT_DIMS(p->kernel, p->kernel), .stride = CT_DIMS(p->stride),
                    .padding = CT_DIMS(p->padding), .ceil_mode = p->ceil_mode, .divisor = CT_F(1));
    ct_tensor most =
        ct_max_pool(in, .kernel = CT_DIMS(p->kernel, p->kernel), .stride = CT_DIMS(p->stride),
                    .padding = CT_DIMS(p->padding), .ceil_mode = p->ceil_mode);
    const int oh = (int)ct_dim(mean, 2), ow = (int)ct_dim(mean, 3);
    fill(y, PLANES * oh * ow, 3);
    ct_tensor back =
        ct_from(y, CT_F32,
                CT_DIMS(images, 1, dynamic > 1 ? CT_DYN(oh) : oh, dynamic > 1 ? CT_DYN(ow) : ow));
    ct_tensor slope[2], second;
    ct_grad(ct_sum(ct_mul(mean, back)), &in, 1, &slope[0]);
    ct_grad(ct_sum(ct_mul(most, back)), &in, 1, &slope[1]);
    ct_grad(ct_sum(ct_mul(slope[0], along)), &back, 1, &second);
    const float *of_mean = ct_data(slope[0]), *of_most = ct_data(slope[1]);
    const float *again = ct_data(second);
    assert_true(of_mean && of_most && again);
    for (int n = 0; n < PLANES; n++) {
        const int64_t at = (int64_t)n * h * w, out = (int64_t)n * oh * ow;
        naive_back(p, y + out, h, w, oh, ow, want);
        assert_memory_equal(of_mean + at, want, (size_t)(h * w) * sizeof *want);
        naive_pool(p, x + at, h, w, oh, ow, sums, chosen);
        for (int i = 0; i < h * w; i++) want[i] = 0;
        for (int o = 0; o < oh * ow; o++) want[chosen[o]] += y[out + o];
        assert_memory_equal(of_most + at, want, (size_t)(h * w) * sizeof *want);
        naive_pool(p, v + at, h, w, oh, ow, sums, chosen);
        assert_memory_equal(again + out, sums, (size_t)(oh * ow) * sizeof *sums);
    }
}
static void pools_of_any_size_have_their_gradients(void **state) {
    (void)state;
    static const pool all[] = {
        {6, 6, 0, false}, {8, 4, 0, false},   {7, 7, 3, false}, {7, 7, 3, true},  {7, 5, 2, true},
        {9, 9, 0, false}, {12, 10, 1, false}, {3, 2, 1, false}, {2, 2, 0, false}, {2, 3, 0, false}};
    const bool compiled = getenv("COTAN_TEST_ALL"); // so many kernels take half a minute
    setenv(compiled ? "COTAN_COMPILE" : "COTAN_CC", compiled ? "wait" : "none", 1);
    ct_ctx *ctx = ct_ctx_new(), *before = ct_ctx_use(ctx);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int dynamic = 0; dynamic <= 2; dynamic++) {
            slopes_of(&all[i], 19, 22, dynamic);
            slopes_of(&all[i], 24, 17, dynamic); // of dynamic sizes the same plan
        }
    ct_ctx_use(before);
    ct_ctx_free(ctx);
    unsetenv(compiled ? "COTAN_COMPILE" : "COTAN_CC");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_store_no_columns),
        cmocka_unit_test(large_convolutions_have_the_bits_of_dot_products),
        cmocka_unit_test(small_images_have_the_bits_of_dot_products),
        cmocka_unit_test(slopes_of_weights_have_the_bits_of_dot_products),
        cmocka_unit_test(long_lines_are_not_copied),
        cmocka_unit_test(padding_is_of_each_channel),
        cmocka_unit_test(columns_of_several_axes_are_of_all_of_them),
        cmocka_unit_test(strides_compute_no_empty_taps),
        cmocka_unit_test(depthwise_convolutions_are_sums_of_taps),
        cmocka_unit_test(depthwise_gradients_compute_results_once),
        cmocka_unit_test(pools_store_their_results),
        cmocka_unit_test(pools_of_any_size_have_their_gradients),
        cmocka_unit_test(norms_move_little),
        cmocka_unit_test(what_fills_is_no_constant),
    };
    return cmocka_run_group_tests_name("windows", tests, NULL, NULL);
}
