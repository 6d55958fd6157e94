// The benchmark `programs`: ordinary programs, written as a newcomer would. bench/fusion.c runs
// them with and without fusion.
#include <stdlib.h>
#include <string.h>

#include "rows.h"

enum { MAX_OUT = 4, MAX_DIMS = 6 };

typedef struct {
    const char *name;
    void (*run)(const ct_tensor *in, ct_tensor *out); // sets its results
    // operands: dtype and sizes of each; for i32 the first number is the exclusive upper bound of the
    // values.
    const char *in;
} program;

#define F(x) ct_f(x)

static ct_tensor programs_slice(ct_tensor x, int axis, int64_t start, int64_t stop) {
    return ct_slice(x, .axes = CT_AXES(axis), .start = CT_INTS(start), .stop = CT_INTS(stop));
}
static ct_tensor programs_slice_step(ct_tensor x, int axis, int64_t start, int64_t step) {
    return ct_slice(x, .axes = CT_AXES(axis), .start = CT_INTS(start), .step = CT_INTS(step));
}
static ct_tensor programs_zero_pad(ct_tensor x, int64_t by) { // pads (N, C, H, W) with zeros
    return ct_pad(x, F(0), .low = CT_INTS(0, 0, by, by), .high = CT_INTS(0, 0, by, by));
}
// For x (N, C, H, W) padded by 1: returns the part of the original size that begins at (y, x).
static ct_tensor programs_window(ct_tensor p, int y, int x) {
    return programs_slice(programs_slice(p, 2, y, ct_dim(p, 2) - 2 + y), 3, x,
                          ct_dim(p, 3) - 2 + x);
}

// --------------------------------------------------------------------------------------- pictures

static void programs_preprocess(const ct_tensor *in, ct_tensor *out) { // (N, H, W, 3) u8
    ct_tensor x = ct_div(ct_cast(in[0], CT_F32), F(255));
    out[0] = ct_permute(ct_div(ct_sub(x, in[1]), in[2]), CT_DIMS(0, 3, 1, 2));
}
static void programs_crop_flip(const ct_tensor *in, ct_tensor *out) {
    ct_tensor x =
        ct_flip(programs_slice(programs_slice(in[0], 1, 16, 240), 2, 16, 240), CT_AXES(2));
    x = ct_div(ct_sub(ct_div(ct_cast(x, CT_F32), F(255)), in[1]), in[2]);
    out[0] = ct_permute(x, CT_DIMS(0, 3, 1, 2));
}
static void programs_resize_nearest(const ct_tensor *in, ct_tensor *out) { // (N, C, H, W)
    ct_tensor at =
        ct_cast(ct_mul(ct_cast(ct_iota(CT_I32, CT_DIMS(160), 0), CT_F32), F(0.8)), CT_I32);
    out[0] = ct_gather(ct_gather(in[0], at, .axis = 2), at, .axis = 3);
}
static void programs_upsample(const ct_tensor *in, ct_tensor *out) { // each pixel four times
    ct_tensor x =
        ct_expand(ct_reshape(in[0], CT_DIMS(8, 32, 32, 1, 32, 1)), CT_DIMS(8, 32, 32, 2, 32, 2));
    out[0] = ct_add(ct_reshape(x, CT_DIMS(8, 32, 64, 64)), in[1]);
}
static void programs_pixel_shuffle(const ct_tensor *in, ct_tensor *out) {
    ct_tensor x =
        ct_permute(ct_reshape(in[0], CT_DIMS(8, 16, 2, 2, 64, 64)), CT_DIMS(0, 1, 4, 2, 5, 3));
    out[0] = ct_relu(ct_reshape(x, CT_DIMS(8, 16, 128, 128)));
}
static void programs_colours(const ct_tensor *in, ct_tensor *out) { // (N, H, W, 3): to YUV and back
    ct_tensor r = programs_slice(in[0], 3, 0, 1), g = programs_slice(in[0], 3, 1, 2),
              b = programs_slice(in[0], 3, 2, 3);
    ct_tensor y = ct_add(ct_add(ct_mul(r, F(0.299)), ct_mul(g, F(0.587))), ct_mul(b, F(0.114)));
    ct_tensor u = ct_mul(ct_sub(b, y), F(0.492)), v = ct_mul(ct_sub(r, y), F(0.877));
    out[0] = ct_concat(((ct_tensor[]){y, u, v}), 3, 3);
}
static void programs_histogram(const ct_tensor *in, ct_tensor *out) { // (N,) below 32
    out[0] = ct_sum(ct_one_hot(in[0], 32, CT_F32), .axes = CT_AXES(0));
}

// ------------------------------------------------------------------- windows: convolution, pooling

static void programs_depthwise(const ct_tensor *in, ct_tensor *out) { // weights (9, C, 1, 1)
    ct_tensor p = programs_zero_pad(in[0], 1), sum = CT_NONE;
    for (int k = 0; k < 9; k++) {
        ct_tensor w = ct_reshape(programs_slice(in[1], 0, k, k + 1), CT_DIMS(32, 1, 1));
        ct_tensor term = ct_mul(programs_window(p, k / 3, k % 3), w);
        sum = k ? ct_add(sum, term) : term;
    }
    out[0] = sum;
}
static void programs_columns(const ct_tensor *in, ct_tensor *out) { // im2col, then a product
    ct_tensor p = programs_zero_pad(in[0], 1), part[9];
    for (int k = 0; k < 9; k++) part[k] = programs_window(p, k / 3, k % 3);
    ct_tensor all = ct_reshape(ct_concat(part, 9, 1), CT_DIMS(8, 144, 4096)); // (N, 9 C, H W)
    out[0] = ct_matmul(in[1], all);
}
static void programs_columns_of_relu(const ct_tensor *in,
                                     ct_tensor *out) { // after a norm and a relu
    ct_tensor x = ct_gelu(ct_add(ct_mul(in[0], in[2]), in[3]));
    ct_tensor p = programs_zero_pad(x, 1), part[9];
    for (int k = 0; k < 9; k++) part[k] = programs_window(p, k / 3, k % 3);
    ct_tensor all = ct_reshape(ct_concat(part, 9, 1), CT_DIMS(8, 144, 4096));
    out[0] = ct_matmul(in[1], all);
}
// Each slice is padded separately.
static void programs_nine_padded(const ct_tensor *in, ct_tensor *out) {
    ct_tensor part[9];
    for (int k = 0; k < 9; k++) {
        int64_t dy = k / 3 - 1, dx = k % 3 - 1, h = ct_dim(in[0], 2), w = ct_dim(in[0], 3);
        ct_tensor x = programs_slice(programs_slice(in[0], 2, dy > 0 ? dy : 0, dy < 0 ? h + dy : h),
                                     3, dx > 0 ? dx : 0, dx < 0 ? w + dx : w);
        part[k] = ct_pad(x, F(0), .low = CT_INTS(0, 0, dy < 0 ? -dy : 0, dx < 0 ? -dx : 0),
                         .high = CT_INTS(0, 0, dy > 0 ? dy : 0, dx > 0 ? dx : 0));
    }
    out[0] = ct_concat(part, 9, 1);
}
// (B, T) into windows of 400, with a step of 160.
static void programs_frames(const ct_tensor *in, ct_tensor *out) {
    ct_tensor at = ct_add(ct_mul(ct_iota(CT_I32, CT_DIMS(398, 1), 0), ct_i(160)),
                          ct_iota(CT_I32, CT_DIMS(1, 400), 1));
    out[0] = ct_mul(ct_gather(in[0], at, .axis = 1), in[1]);
}
static ct_tensor programs_pooled_by_slices(ct_tensor x) {
    ct_tensor top = programs_slice_step(x, 2, 0, 2), low = programs_slice_step(x, 2, 1, 2);
    return ct_maximum(
        ct_maximum(programs_slice_step(top, 3, 0, 2), programs_slice_step(top, 3, 1, 2)),
        ct_maximum(programs_slice_step(low, 3, 0, 2), programs_slice_step(low, 3, 1, 2)));
}
static void programs_pool_slices(const ct_tensor *in, ct_tensor *out) {
    out[0] = programs_pooled_by_slices(in[0]);
}
static void programs_pool_slices_grad(const ct_tensor *in, ct_tensor *out) {
    ct_grad(ct_sum(ct_mul(programs_pooled_by_slices(in[0]), in[1])), in, 1, out);
}
static void programs_pool_reshape(const ct_tensor *in, ct_tensor *out) {
    out[0] = ct_max(ct_reshape(in[0], CT_DIMS(8, 32, 32, 2, 32, 2)), .axes = CT_AXES(3, 5));
}
static void programs_pool_reshape_grad(const ct_tensor *in, ct_tensor *out) {
    ct_tensor y = ct_max(ct_reshape(in[0], CT_DIMS(8, 32, 32, 2, 32, 2)), .axes = CT_AXES(3, 5));
    ct_grad(ct_sum(ct_mul(y, in[1])), in, 1, out);
}
static void programs_pool_mean(const ct_tensor *in, ct_tensor *out) {
    out[0] = ct_mean(ct_reshape(in[0], CT_DIMS(8, 32, 16, 4, 16, 4)), .axes = CT_AXES(3, 5));
}
static void programs_pool_all(const ct_tensor *in, ct_tensor *out) {
    out[0] = ct_mean(in[0], .axes = CT_AXES(2, 3));
}

// --------------------------------------------------------------------------------- padding, joining

static void programs_pad_relu(const ct_tensor *in, ct_tensor *out) {
    out[0] = ct_relu(programs_zero_pad(in[0], 3));
}
static void programs_pad_costly(const ct_tensor *in, ct_tensor *out) {
    out[0] = programs_zero_pad(ct_gelu(in[0]), 2);
}
static void programs_pad_reflect(const ct_tensor *in, ct_tensor *out) {
    ct_tensor x = in[0];
    for (int a = 2; a < 4; a++) {
        int64_t n = ct_dim(x, a);
        x = ct_concat(((ct_tensor[]){ct_flip(programs_slice(x, a, 1, 4), CT_AXES(a)), x,
                                     ct_flip(programs_slice(x, a, n - 4, n - 1), CT_AXES(a))}),
                      3, a);
    }
    out[0] = x;
}
static void programs_pad_wrap(const ct_tensor *in, ct_tensor *out) {
    ct_tensor x = in[0];
    for (int a = 2; a < 4; a++) {
        int64_t n = ct_dim(x, a);
        x = ct_concat(
            ((ct_tensor[]){programs_slice(x, a, n - 2, n), x, programs_slice(x, a, 0, 2)}), 3, a);
    }
    out[0] = x;
}
static void programs_concat_last(const ct_tensor *in, ct_tensor *out) { // 16 of (2048, 48)
    ct_tensor part[16];
    for (int i = 0; i < 16; i++)
        part[i] = ct_mul(programs_slice(in[0], 0, 2048 * i, 2048 * (i + 1)), ct_f(i + 1.0));
    out[0] = ct_concat(part, 16, 1);
}
static void programs_concat_first(const ct_tensor *in, ct_tensor *out) { // 16 computed ones
    ct_tensor part[16];
    for (int i = 0; i < 16; i++)
        part[i] =
            ct_tanh(ct_mul(programs_slice(in[0], 0, 2048 * i, 2048 * (i + 1)), ct_f(i + 1.0)));
    out[0] = ct_concat(part, 16, 0);
}
static void programs_stack_last(const ct_tensor *in, ct_tensor *out) { // 8 features per element
    ct_tensor x = in[0], part[8];
    for (int i = 0; i < 8; i++)
        part[i] = ct_reshape(i % 2 ? ct_mul(x, ct_f(i)) : ct_add(ct_square(x), ct_f(i)),
                             CT_DIMS(131072, 1));
    out[0] = ct_concat(part, 8, 1);
}
// (B, T, C): skip connections of a U-net.
static void programs_concat_halves(const ct_tensor *in, ct_tensor *out) {
    ct_tensor a = ct_silu(in[0]), b = ct_silu(in[1]);
    ct_tensor x = ct_concat(((ct_tensor[]){a, b}), 2, 1);
    out[0] = ct_add(x, in[2]);
}

// ----------------------------------------------------------------------------------------- stencils

static void programs_blur(const ct_tensor *in, ct_tensor *out) { // 5 x 5, separable
    static const double w[5] = {1 / 16.0, 4 / 16.0, 6 / 16.0, 4 / 16.0, 1 / 16.0};
    ct_tensor x = programs_zero_pad(in[0], 2);
    for (int a = 2; a < 4; a++) {
        ct_tensor sum = CT_NONE;
        for (int k = 0; k < 5; k++) {
            ct_tensor t = ct_mul(programs_slice(x, a, k, ct_dim(x, a) - 4 + k), F(w[k]));
            sum = k ? ct_add(sum, t) : t;
        }
        x = sum;
    }
    out[0] = x;
}
static void programs_sobel(const ct_tensor *in, ct_tensor *out) {
    ct_tensor p = programs_zero_pad(in[0], 1), w[9];
    for (int k = 0; k < 9; k++) w[k] = programs_window(p, k / 3, k % 3);
    ct_tensor gx =
        ct_add(ct_add(ct_sub(w[2], w[0]), ct_mul(ct_sub(w[5], w[3]), F(2))), ct_sub(w[8], w[6]));
    ct_tensor gy =
        ct_add(ct_add(ct_sub(w[6], w[0]), ct_mul(ct_sub(w[7], w[1]), F(2))), ct_sub(w[8], w[2]));
    out[0] = ct_sqrt(ct_add(ct_square(gx), ct_square(gy)));
}
static void programs_laplace(const ct_tensor *in,
                             ct_tensor *out) { // four steps of the heat equation
    ct_tensor x = in[0];
    for (int step = 0; step < 4; step++) {
        ct_tensor p = programs_zero_pad(x, 1);
        ct_tensor near = ct_add(ct_add(programs_window(p, 0, 1), programs_window(p, 2, 1)),
                                ct_add(programs_window(p, 1, 0), programs_window(p, 1, 2)));
        x = ct_add(x, ct_mul(ct_sub(near, ct_mul(x, F(4))), F(0.2)));
    }
    out[0] = x;
}
static ct_tensor programs_roll(ct_tensor x, int axis, int64_t by) {
    int64_t n = ct_dim(x, axis);
    return ct_concat(
        ((ct_tensor[]){programs_slice(x, axis, n - by, n), programs_slice(x, axis, 0, n - by)}), 2,
        axis);
}
static void programs_rolled(const ct_tensor *in, ct_tensor *out) { // four steps on a torus
    ct_tensor x = in[0];
    for (int step = 0; step < 4; step++) {
        int64_t h = ct_dim(x, 0), w = ct_dim(x, 1);
        ct_tensor near = ct_add(ct_add(programs_roll(x, 0, 1), programs_roll(x, 0, h - 1)),
                                ct_add(programs_roll(x, 1, 1), programs_roll(x, 1, w - 1)));
        x = ct_add(ct_mul(x, F(0.2)), ct_mul(near, F(0.2)));
    }
    out[0] = x;
}
static void programs_moving_mean(const ct_tensor *in, ct_tensor *out) { // over 16, by prefix sums
    ct_tensor s = ct_pad(ct_cumsum(in[0], .axis = 1), F(0), .low = CT_INTS(0, 1));
    out[0] = ct_div(
        ct_sub(programs_slice(s, 1, 16, ct_dim(s, 1)), programs_slice(s, 1, 0, ct_dim(s, 1) - 16)),
        F(16));
}

// -------------------------------------------------------------------------------------- recurrences

static void programs_elman(const ct_tensor *in, ct_tensor *out) { // x (B, T, D), W, U, b
    ct_tensor h = ct_zeros(CT_F32, CT_DIMS(64, 128));
    for (int t = 0; t < 8; t++) {
        ct_tensor x = ct_reshape(programs_slice(in[0], 1, t, t + 1), CT_DIMS(64, 128));
        h = ct_tanh(ct_add(ct_add(ct_matmul(x, in[1]), ct_matmul(h, in[2])), in[3]));
    }
    out[0] = h;
}
static void programs_gru(const ct_tensor *in, ct_tensor *out) { // W and U (D, 3 H), b (3 H,)
    ct_tensor h = ct_zeros(CT_F32, CT_DIMS(64, 128)), hs[6];
    for (int t = 0; t < 6; t++) {
        ct_tensor x = ct_reshape(programs_slice(in[0], 1, t, t + 1), CT_DIMS(64, 128));
        ct_tensor a = ct_add(ct_matmul(x, in[1]), in[3]), b = ct_matmul(h, in[2]);
        ct_tensor r =
            ct_sigmoid(ct_add(programs_slice(a, 1, 0, 128), programs_slice(b, 1, 0, 128)));
        ct_tensor z =
            ct_sigmoid(ct_add(programs_slice(a, 1, 128, 256), programs_slice(b, 1, 128, 256)));
        ct_tensor n = ct_tanh(
            ct_add(programs_slice(a, 1, 256, 384), ct_mul(r, programs_slice(b, 1, 256, 384))));
        h = ct_add(ct_mul(ct_sub(F(1), z), n), ct_mul(z, h));
        hs[t] = ct_reshape(h, CT_DIMS(64, 1, 128));
    }
    out[0] = ct_concat(hs, 6, 1);
}
static void programs_lstm(const ct_tensor *in, ct_tensor *out) { // W (D + H, 4 H)
    ct_tensor h = ct_zeros(CT_F32, CT_DIMS(64, 128)), c = h;
    for (int t = 0; t < 6; t++) {
        ct_tensor x = ct_reshape(programs_slice(in[0], 1, t, t + 1), CT_DIMS(64, 128));
        ct_tensor g = ct_matmul(ct_concat(((ct_tensor[]){x, h}), 2, 1), in[1]);
        ct_tensor i = ct_sigmoid(programs_slice(g, 1, 0, 128)),
                  f = ct_sigmoid(programs_slice(g, 1, 128, 256)),
                  o = ct_sigmoid(programs_slice(g, 1, 256, 384)),
                  u = ct_tanh(programs_slice(g, 1, 384, 512));
        c = ct_add(ct_mul(f, c), ct_mul(i, u));
        h = ct_mul(o, ct_tanh(c));
    }
    out[0] = h;
    out[1] = c;
}

// ----------------------------------------------------------------------------- tables and positions

static void programs_one_hot_product(const ct_tensor *in, ct_tensor *out) {
    out[0] = ct_matmul(ct_one_hot(in[0], 512, CT_F32), in[1]);
}
static void programs_one_hot_loss(const ct_tensor *in, ct_tensor *out) { // (N, C), labels (N,)
    ct_tensor hot = ct_one_hot(in[1], 512, CT_F32);
    out[0] = ct_neg(ct_mean(ct_sum(ct_mul(hot, ct_log_softmax(in[0])), .axes = CT_AXES(-1))));
}
static void programs_embed(const ct_tensor *in, ct_tensor *out) { // ids (B, T), E (V, C), P (T, C)
    ct_tensor x = ct_add(ct_gather(in[1], in[0]), in[2]);
    out[0] = ct_layer_norm(x, in[3], in[4]);
}
static void programs_sinusoids(const ct_tensor *in, ct_tensor *out) { // x (B, T, C) + positions
    ct_tensor t = ct_cast(ct_iota(CT_I32, CT_DIMS(256, 1), 0), CT_F32);
    ct_tensor k = ct_cast(ct_iota(CT_I32, CT_DIMS(1, 128), 1), CT_F32);
    ct_tensor at = ct_mul(t, ct_exp(ct_mul(k, F(-0.07))));
    ct_tensor p = ct_concat(((ct_tensor[]){ct_reshape(ct_sin(at), CT_DIMS(256, 128, 1)),
                                           ct_reshape(ct_cos(at), CT_DIMS(256, 128, 1))}),
                            2, 2);
    out[0] = ct_add(in[0], ct_reshape(p, CT_DIMS(256, 256)));
}
static void programs_rotary_halves(const ct_tensor *in,
                                   ct_tensor *out) { // (B, H, T, D), cos, sin (T, D)
    ct_tensor x = in[0], first = programs_slice(x, 3, 0, 32), second = programs_slice(x, 3, 32, 64);
    ct_tensor turned = ct_concat(((ct_tensor[]){ct_neg(second), first}), 2, 3);
    out[0] = ct_add(ct_mul(x, in[1]), ct_mul(turned, in[2]));
}
static void programs_rotary_pairs(const ct_tensor *in, ct_tensor *out) { // cos, sin (T, D / 2, 1)
    ct_tensor x = ct_reshape(in[0], CT_DIMS(4, 8, 256, 32, 2));
    ct_tensor a = programs_slice(x, 4, 0, 1), b = programs_slice(x, 4, 1, 2);
    ct_tensor y = ct_concat(((ct_tensor[]){ct_sub(ct_mul(a, in[1]), ct_mul(b, in[2])),
                                           ct_add(ct_mul(a, in[2]), ct_mul(b, in[1]))}),
                            2, 4);
    out[0] = ct_reshape(y, CT_DIMS(4, 8, 256, 64));
}
static void programs_shuffled(const ct_tensor *in, ct_tensor *out) { // rows at (2 i + 33 k) mod 512
    ct_tensor i = ct_iota(CT_I32, CT_DIMS(256, 8), 0), k = ct_iota(CT_I32, CT_DIMS(256, 8), 1);
    ct_tensor at = ct_mod(ct_add(ct_mul(i, ct_i(2)), ct_mul(k, ct_i(33))), ct_i(512));
    out[0] = ct_mul(ct_gather(in[0], at), F(2)); // (256, 8, C)
}

// ----------------------------------------------------------------------------------- norms and masks

static void programs_batch_norm(const ct_tensor *in,
                                ct_tensor *out) { // (N, C, H, W), weight, bias (C, 1, 1)
    ct_tensor m = ct_mean(in[0], .axes = CT_AXES(0, 2, 3), .keepdims = true);
    ct_tensor v = ct_mean(ct_square(ct_sub(in[0], m)), .axes = CT_AXES(0, 2, 3), .keepdims = true);
    ct_tensor x = ct_mul(ct_sub(in[0], m), ct_rsqrt(ct_add(v, F(1e-5))));
    out[0] = ct_relu(ct_add(ct_mul(x, in[1]), in[2]));
}
static void programs_channel_statistics(const ct_tensor *in, ct_tensor *out) {
    out[0] = ct_mean(in[0], .axes = CT_AXES(0, 2, 3));
    out[1] = ct_mean(ct_square(in[0]), .axes = CT_AXES(0, 2, 3));
}
static void programs_batch_norm_last(const ct_tensor *in, ct_tensor *out) { // (N, H, W, C)
    ct_tensor m = ct_mean(in[0], .axes = CT_AXES(0, 1, 2), .keepdims = true);
    ct_tensor v = ct_mean(ct_square(ct_sub(in[0], m)), .axes = CT_AXES(0, 1, 2), .keepdims = true);
    out[0] = ct_mul(ct_sub(in[0], m), ct_rsqrt(ct_add(v, F(1e-5))));
}
static void programs_instance_norm(const ct_tensor *in, ct_tensor *out) {
    ct_tensor m = ct_mean(in[0], .axes = CT_AXES(2, 3), .keepdims = true);
    ct_tensor v = ct_mean(ct_square(ct_sub(in[0], m)), .axes = CT_AXES(2, 3), .keepdims = true);
    out[0] = ct_mul(ct_sub(in[0], m), ct_rsqrt(ct_add(v, F(1e-5))));
}
static void programs_group_norm(const ct_tensor *in, ct_tensor *out) {
    ct_tensor x = ct_reshape(in[0], CT_DIMS(8, 4, 8, 64, 64));
    ct_tensor m = ct_mean(x, .axes = CT_AXES(2, 3, 4), .keepdims = true);
    ct_tensor v = ct_mean(ct_square(ct_sub(x, m)), .axes = CT_AXES(2, 3, 4), .keepdims = true);
    x = ct_reshape(ct_mul(ct_sub(x, m), ct_rsqrt(ct_add(v, F(1e-5)))), CT_DIMS(8, 32, 64, 64));
    out[0] = ct_add(ct_mul(x, in[1]), in[2]);
}
static void programs_layer_norm_gelu(const ct_tensor *in, ct_tensor *out) {
    out[0] = ct_gelu(ct_layer_norm(in[0], in[1], in[2]));
}
static void programs_layer_norm_grad(const ct_tensor *in, ct_tensor *out) {
    ct_tensor y = ct_layer_norm(in[0], in[1], in[2]);
    ct_grad(ct_sum(ct_mul(y, in[3])), in, 3, out);
}
static void programs_causal(const ct_tensor *in, ct_tensor *out) { // scores (B, H, T, T)
    ct_tensor i = ct_iota(CT_I32, CT_DIMS(256, 256), 0), k = ct_iota(CT_I32, CT_DIMS(256, 256), 1);
    out[0] = ct_softmax(ct_select(ct_less_equal(k, i), ct_mul(in[0], F(0.125)), F(-1e9)));
}
static void programs_lengths_masked(const ct_tensor *in, ct_tensor *out) { // lengths (B, 1, 1)
    ct_tensor inside = ct_less(ct_iota(CT_I32, CT_DIMS(1, 512, 1), 1), in[1]);
    ct_tensor x = ct_select(inside, in[0], F(0)); // (B, T, C)
    out[0] =
        ct_div(ct_sum(x, .axes = CT_AXES(1)), ct_reshape(ct_cast(in[1], CT_F32), CT_DIMS(16, 1)));
}
static void programs_dropouts(const ct_tensor *in, ct_tensor *out) {
    ct_tensor x = in[0];
    for (int i = 0; i < 2; i++) x = ct_add(x, ct_dropout(ct_gelu(x), ct_random_key(i), F(0.1)));
    out[0] = x;
}
static void programs_softmax_loss(const ct_tensor *in, ct_tensor *out) {
    ct_grad(ct_cross_entropy(in[0], in[1]), in, 1, out);
}

// -------------------------------------------------------------------------------------------- plain

static void programs_transposed_add(const ct_tensor *in, ct_tensor *out) {
    out[0] = ct_add(in[0], ct_permute(in[0], CT_DIMS(1, 0)));
}
static void programs_cumulative_share(const ct_tensor *in, ct_tensor *out) {
    ct_tensor p = ct_softmax(in[0]);
    out[0] = ct_cast(ct_less(ct_cumsum(p, .axis = 1), F(0.9)), CT_F32);
}
static void programs_distances(const ct_tensor *in, ct_tensor *out) { // (N, 1, D) and (1, M, D)
    ct_tensor d =
        ct_sub(ct_reshape(in[0], CT_DIMS(256, 1, 64)), ct_reshape(in[1], CT_DIMS(1, 256, 64)));
    out[0] = ct_sqrt(ct_sum(ct_square(d), .axes = CT_AXES(2)));
}
static void programs_outer(const ct_tensor *in, ct_tensor *out) { // (N,) by (M,): a Gaussian kernel
    ct_tensor d = ct_sub(ct_reshape(in[0], CT_DIMS(1024, 1)), ct_reshape(in[1], CT_DIMS(1, 1024)));
    out[0] = ct_exp(ct_neg(ct_square(d)));
}
static void programs_accuracy(const ct_tensor *in, ct_tensor *out) {
    out[0] =
        ct_mean(ct_cast(ct_equal(ct_cast(ct_argmax(in[0], .axis = 1), CT_I32), in[1]), CT_F32));
}
static void programs_standardise(const ct_tensor *in,
                                 ct_tensor *out) { // a table of features, by column
    ct_tensor m = ct_mean(in[0], .axes = CT_AXES(0)), v = ct_var(in[0], .axes = CT_AXES(0));
    out[0] = ct_div(ct_sub(in[0], m), ct_sqrt(ct_add(v, F(1e-8))));
}

static const program programs[] = {
    {"preprocess", programs_preprocess, "u8 8 224 224 3; f32 3; f32 3"},
    {"crop and flip", programs_crop_flip, "u8 8 256 256 3; f32 3; f32 3"},
    {"resize", programs_resize_nearest, "f32 8 16 128 128"},
    {"upsample", programs_upsample, "f32 8 32 32 32; f32 8 32 64 64"},
    {"pixel shuffle", programs_pixel_shuffle, "f32 8 64 64 64"},
    {"colours", programs_colours, "f32 8 224 224 3"},
    {"histogram", programs_histogram, "i32 32 100000"},
    {"depthwise by slices", programs_depthwise, "f32 8 32 64 64; f32 9 32"},
    {"im2col", programs_columns, "f32 8 16 64 64; f32 32 144"},
    {"im2col of a gelu", programs_columns_of_relu,
     "f32 8 16 64 64; f32 32 144; f32 16 1 1; f32 16 1 1"},
    {"nine padded slices", programs_nine_padded, "f32 4 16 64 64"},
    {"frames", programs_frames, "f32 8 64000; f32 400"},
    {"pool by slices", programs_pool_slices, "f32 8 32 64 64"},
    {"pool by slices, gradient", programs_pool_slices_grad, "f32 8 32 64 64; f32 8 32 32 32"},
    {"pool by reshape", programs_pool_reshape, "f32 8 32 64 64"},
    {"pool by reshape, gradient", programs_pool_reshape_grad, "f32 8 32 64 64; f32 8 32 32 32"},
    {"mean pool by reshape", programs_pool_mean, "f32 8 32 64 64"},
    {"global pool", programs_pool_all, "f32 8 128 64 64"},
    {"pad and relu", programs_pad_relu, "f32 8 32 64 64"},
    {"gelu and pad", programs_pad_costly, "f32 8 32 64 64"},
    {"pad by reflection", programs_pad_reflect, "f32 8 32 64 64"},
    {"pad around", programs_pad_wrap, "f32 8 32 64 64"},
    {"concat of 16, last axis", programs_concat_last, "f32 32768 48"},
    {"concat of 16, first axis", programs_concat_first, "f32 32768 48"},
    {"stack of 8", programs_stack_last, "f32 131072"},
    {"concat of two", programs_concat_halves, "f32 8 256 256; f32 8 256 256; f32 8 512 256"},
    {"blur", programs_blur, "f32 4 3 256 256"},
    {"sobel", programs_sobel, "f32 4 1 512 512"},
    {"heat by slices", programs_laplace, "f32 1 1 512 512"},
    {"heat by roll", programs_rolled, "f32 512 512"},
    {"moving mean", programs_moving_mean, "f32 64 8192"},
    {"elman", programs_elman, "f32 64 8 128; f32 128 128; f32 128 128; f32 128"},
    {"gru", programs_gru, "f32 64 6 128; f32 128 384; f32 128 384; f32 384"},
    {"lstm", programs_lstm, "f32 64 6 128; f32 256 512"},
    {"one-hot product", programs_one_hot_product, "i32 512 1024; f32 512 256"},
    {"one-hot loss", programs_one_hot_loss, "f32 2048 512; i32 512 2048"},
    {"embedding", programs_embed, "i32 1000 8 256; f32 1000 256; f32 256 256; f32 256; f32 256"},
    {"sinusoids", programs_sinusoids, "f32 8 256 256"},
    {"rotary by halves", programs_rotary_halves, "f32 4 8 256 64; f32 256 64; f32 256 64"},
    {"rotary by pairs", programs_rotary_pairs, "f32 4 8 256 64; f32 256 32 1; f32 256 32 1"},
    {"shuffled rows", programs_shuffled, "f32 512 256"},
    {"batch norm", programs_batch_norm, "f32 16 32 56 56; f32 32 1 1; f32 32 1 1"},
    {"channel statistics", programs_channel_statistics, "f32 16 32 56 56"},
    {"batch norm, channels last", programs_batch_norm_last, "f32 16 56 56 32"},
    {"instance norm", programs_instance_norm, "f32 16 32 56 56"},
    {"group norm", programs_group_norm, "f32 8 32 64 64; f32 32 1 1; f32 32 1 1"},
    {"layer norm and gelu", programs_layer_norm_gelu, "f32 2048 768; f32 768; f32 768"},
    {"layer norm, gradient", programs_layer_norm_grad,
     "f32 2048 768; f32 768; f32 768; f32 2048 768"},
    {"causal softmax", programs_causal, "f32 4 8 256 256"},
    {"mean under a mask", programs_lengths_masked, "f32 16 512 256; i32 500 16 1 1"},
    {"dropout chain", programs_dropouts, "f32 1024 768"},
    {"cross-entropy, gradient", programs_softmax_loss, "f32 1024 1000; i32 1000 1024"},
    {"transposed add", programs_transposed_add, "f32 1024 1024"},
    {"cumulative share", programs_cumulative_share, "f32 512 1024"},
    {"distances", programs_distances, "f32 256 64; f32 256 64"},
    {"outer product", programs_outer, "f32 1024; f32 1024"},
    {"accuracy", programs_accuracy, "f32 8192 100; i32 100 8192"},
    {"standardise", programs_standardise, "f32 20000 64"},
};

// ---------------------------------------------------------------------------------------- the benchmark

// Makes the leaf that the beginning of `text` describes; the i-th leaf has the seed i + 1.
static ct_tensor programs_parse_operand(const char **text, uint32_t seed) {
    char dtype[4] = "";
    int64_t dims[MAX_DIMS], below = 256;
    int rank = 0;
    char *at = (char *)(uintptr_t)(*text + strspn(*text, " "));
    memcpy(dtype, at, strcspn(at, " "));
    at += strlen(dtype);
    if (strcmp(dtype, "i32") == 0) below = strtoll(at, &at, 10);
    while (*at == ' ') dims[rank++] = strtoll(at, &at, 10);
    *text = *at == ';' ? at + 1 : at;
    ct_ints shape = {rank, dims};
    if (strcmp(dtype, "f32") == 0) return bench_numbers(shape, seed);
    return bench_integers(shape, seed, (uint32_t)below, dtype[0] == 'u' ? CT_U8 : CT_I32);
}

static size_t programs_make_operands(const bench_case *c, ct_tensor *in) {
    const char *text = programs[c->which].in;
    size_t n = 0;
    while (*text) {
        in[n] = programs_parse_operand(&text, (uint32_t)n + 1);
        n++;
    }
    return n;
}

static size_t programs_record(const bench_case *c, const ct_tensor *in, int64_t iteration,
                              ct_tensor *out) {
    size_t n = 0;
    (void)iteration;
    for (size_t i = 0; i < MAX_OUT; i++) out[i] = CT_NONE;
    programs[c->which].run(in, out);
    while (n < MAX_OUT && ct_size(out[n]) > 0) n++;
    return n;
}

size_t list_programs(const bench_settings *s, bench_case *out) {
    size_t n = sizeof programs / sizeof *programs;
    (void)s;
    _Static_assert(sizeof programs / sizeof *programs <= MOST_CASES,
                   "MOST_CASES is at least their number");
    for (size_t i = 0; i < n; i++) {
        out[i] = (bench_case){
            .which = (int)i, .make = programs_make_operands, .record = programs_record};
        snprintf(out[i].name, sizeof out[i].name, "%s", programs[i].name);
    }
    return n;
}
