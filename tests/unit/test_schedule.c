// The scheduler against the reference: the same programs on ref, on cpu with every node a kernel of
// its own (COTAN_FUSE=0), and on cpu fused. Fused and unfused must agree in every bit, both agree
// with ref closely.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cotan/cotan.h"
#include "graph/type.h"

enum { MOST_OUTS = 8, MOST_BYTES = 1 << 22 };

typedef struct {
    int n;
    size_t bytes[MOST_OUTS];
    ct_dtype dtype[MOST_OUTS];
    char *data[MOST_OUTS];
    uint64_t launches;
} result;

typedef int (*program)(ct_tensor *out);

static uint32_t seed;
static float uniform(void) { // in [-2, 2)
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / (float)(1 << 22) - 2.0f;
}
static ct_tensor tensor(ct_ints dims) {
    int64_t n = 1;
    for (int64_t i = 0; i < dims.n; i++) n *= ct__unmarked(dims.v[i]);
    float *v = malloc((size_t)n * sizeof *v + 1);
    for (int64_t i = 0; i < n; i++) v[i] = uniform();
    ct_tensor t = ct_from(v, CT_F32, dims);
    free(v);
    return t;
}
static ct_tensor ints(ct_ints dims, int below) {
    int64_t n = 1;
    for (int64_t i = 0; i < dims.n; i++) n *= ct__unmarked(dims.v[i]);
    int32_t *v = malloc((size_t)n * sizeof *v + 1);
    for (int64_t i = 0; i < n; i++) v[i] = (int32_t)((uniform() + 2) / 4 * (float)below);
    ct_tensor t = ct_from(v, CT_I32, dims);
    free(v);
    return t;
}

static result run(program f, const char *device, const char *fuse) {
    result r = {0};
    ct_tensor out[MOST_OUTS];
    setenv("COTAN_FUSE", fuse, 1);
    assert_true(ct_set_device(device));
    seed = 42;
    {
        CT_SCOPE;
        r.n = f(out);
        uint64_t before = ct_get_stats().launches;
        if (!ct_eval(out, (size_t)r.n)) fail_msg("%s: %s", device, ct_error_text());
        r.launches = ct_get_stats().launches - before;
        for (int i = 0; i < r.n; i++) {
            r.dtype[i] = ct_dtype_of(out[i]);
            r.bytes[i] = (size_t)ct_size(out[i]) * ct_dtype_size(r.dtype[i]);
            const void *data = ct_data(out[i]);
            assert_non_null(data);
            r.data[i] = malloc(r.bytes[i] + 1);
            memcpy(r.data[i], data, r.bytes[i]);
        }
    }
    if (ct_failed()) fail_msg("%s: %s", device, ct_error_text());
    return r;
}
static void release(result *r) {
    for (int i = 0; i < r->n; i++) free(r->data[i]);
}

static void close_to(const result *a, const result *b, const char *what) {
    for (int o = 0; o < a->n; o++) {
        assert_int_equal(a->bytes[o], b->bytes[o]);
        if (a->dtype[o] != CT_F32) {
            if (memcmp(a->data[o], b->data[o], a->bytes[o]) != 0)
                fail_msg("%s: output %d differs", what, o);
            continue;
        }
        const float *x = (const void *)a->data[o], *y = (const void *)b->data[o];
        for (size_t i = 0; i < a->bytes[o] / 4; i++) {
            if (isnan(x[i]) && isnan(y[i])) continue;
            if (x[i] == y[i]) continue;
            if (!(fabsf(x[i] - y[i]) <= 2e-5f + 2e-5f * fabsf(y[i])))
                fail_msg("%s: output %d, element %zu: %.9g, ref has %.9g", what, o, i, x[i], y[i]);
        }
    }
}

// Runs it three ways; gives the launches of the fused one.
static uint64_t check(program f) {
    result ref = run(f, "ref", "1"), plain = run(f, "cpu", "0"), fused = run(f, "cpu", "1");
    close_to(&plain, &ref, "unfused");
    close_to(&fused, &ref, "fused");
    for (int o = 0; o < ref.n; o++)
        if (memcmp(plain.data[o], fused.data[o], plain.bytes[o]) != 0)
            fail_msg("output %d: fused and unfused differ in bits", o);
    uint64_t launches = fused.launches;
    release(&ref);
    release(&plain);
    release(&fused);
    return launches;
}

// ------------------------------------------------------------------------------------------------
// programs

static int chain(ct_tensor *out) {
    ct_tensor x = tensor(CT_DIMS(37, 129)), b = tensor(CT_DIMS(129)), c = tensor(CT_DIMS(37, 1));
    out[0] = ct_mul(ct_tanh(ct_add(x, b)), ct_add(c, ct_f(0.5)));
    out[1] = ct_exp(ct_neg(ct_abs(out[0])));
    return 2;
}
static int views(ct_tensor *out) {
    ct_tensor x = tensor(CT_DIMS(4, 6, 32)); // (B, T, C)
    ct_tensor h =
        ct_permute(ct_reshape(x, CT_DIMS(4, 6, 2, 16)), CT_DIMS(0, 2, 1, 3)); // (B, H, T, D)
    out[0] = ct_add(h, ct_f(1));
    out[1] = ct_reshape(ct_permute(ct_sin(h), CT_DIMS(0, 2, 1, 3)), CT_DIMS(4, 6, 32));
    out[2] = ct_expand(ct_reshape(x, CT_DIMS(4, 1, 6, 32)), CT_DIMS(4, 3, 6, 32));
    out[3] = ct_permute(x, CT_DIMS(2, 1, 0));
    return 4;
}
static int sums(ct_tensor *out) {
    ct_tensor x = tensor(CT_DIMS(23, 40, 50));
    out[0] = ct_sum(x);
    out[1] = ct_sum(x, .axes = CT_AXES(0));
    out[2] = ct_sum(x, .axes = CT_AXES(1));
    out[3] = ct_sum(x, .axes = CT_AXES(2), .keepdims = true);
    out[4] = ct_sum(x, .axes = CT_AXES(0, 2));
    out[5] = ct_max(x, .axes = CT_AXES(0, 1));
    out[6] = ct_min(x, .axes = CT_AXES(1, 2));
    out[7] = ct_argmax(x, .axis = 1);
    return 8;
}
static int long_sum(ct_tensor *out) {
    ct_tensor x = tensor(CT_DIMS(70000)), y = tensor(CT_DIMS(20000, 3)); // split into blocks
    out[0] = ct_sqrt(ct_sum(ct_mul(x, x)));
    out[1] = ct_sum(y, .axes = CT_AXES(0));
    out[2] = ct_max(y, .axes = CT_AXES(0), .keepdims = true);
    return 3;
}
static int integers(ct_tensor *out) {
    ct_tensor a = ints(CT_DIMS(5, 33), 1000), b = ints(CT_DIMS(33), 7);
    out[0] = ct_div(a, b);
    out[1] = ct_mod(a, b);
    out[2] = ct_xor(ct_shift_left(a, b), ct_shift_right(a, ct_i(2)));
    out[3] = ct_cast(ct_less(a, ct_i(500)), CT_F32);
    out[4] = ct_select(ct_equal(b, ct_i(3)), a, ct_neg(a));
    out[5] = ct_sum(a, .axes = CT_AXES(0));
    out[6] = ct_cast(a, CT_U8);
    return 7;
}
static int halves(ct_tensor *out) {
    ct_tensor x = tensor(CT_DIMS(9, 70));
    ct_tensor h = ct_cast(x, CT_BF16), f = ct_cast(x, CT_F16);
    out[0] = ct_cast(h, CT_F32);
    out[1] = ct_mul(ct_cast(f, CT_F32), ct_cast(h, CT_F32));
    out[2] = f;
    out[3] = ct_bitcast(f, CT_BF16);
    out[4] = ct_bitcast(x, CT_I32);
    return 5;
}

static int softmax(ct_tensor *out) {
    ct_tensor x = tensor(CT_DIMS(48, 100));
    ct_tensor e = ct_exp(ct_sub(x, ct_max(x, .axes = CT_AXES(1), .keepdims = true)));
    out[0] = ct_div(e, ct_sum(e, .axes = CT_AXES(1), .keepdims = true));
    return 1;
}
static int softmax_outer(ct_tensor *out) { // over the first axis
    ct_tensor x = tensor(CT_DIMS(60, 100));
    ct_tensor e = ct_exp(ct_sub(x, ct_max(x, .axes = CT_AXES(0))));
    out[0] = ct_div(e, ct_sum(e, .axes = CT_AXES(0)));
    return 1;
}
static int log_softmax(ct_tensor *out) {
    ct_tensor x = tensor(CT_DIMS(4, 12, 300));
    ct_tensor s = ct_sub(x, ct_max(x, .axes = CT_AXES(2), .keepdims = true));
    out[0] = ct_sub(s, ct_log(ct_sum(ct_exp(s), .axes = CT_AXES(2), .keepdims = true)));
    return 1;
}
static int layer_norm(ct_tensor *out) {
    ct_tensor x = tensor(CT_DIMS(4, 12, 96)), g = tensor(CT_DIMS(96)), b = tensor(CT_DIMS(96));
    ct_tensor m = ct_mul(ct_sum(x, .axes = CT_AXES(2), .keepdims = true), ct_f(1.0 / 96));
    ct_tensor d = ct_sub(x, m);
    ct_tensor v =
        ct_mul(ct_sum(ct_mul(d, d), .axes = CT_AXES(2), .keepdims = true), ct_f(1.0 / 96));
    ct_tensor r = ct_div(ct_f(1), ct_sqrt(ct_add(v, ct_f(1e-5))));
    out[0] = ct_add(ct_mul(ct_mul(d, r), g), b);
    return 1;
}
static int rms_norm_two_axes(ct_tensor *out) { // over the two outer axes
    ct_tensor x = tensor(CT_DIMS(6, 20, 64));
    ct_tensor v = ct_mul(ct_sum(ct_mul(x, x), .axes = CT_AXES(0, 1)), ct_f(1.0 / 120));
    out[0] = ct_div(x, ct_sqrt(ct_add(v, ct_f(1e-5))));
    return 1;
}
static int gelu_bias(ct_tensor *out) {
    ct_tensor x = tensor(CT_DIMS(50, 256)), b = tensor(CT_DIMS(256));
    ct_tensor h = ct_add(x, b);
    ct_tensor u =
        ct_mul(ct_add(h, ct_mul(ct_f(0.044715), ct_mul(h, ct_mul(h, h)))), ct_f(0.7978845608));
    out[0] = ct_mul(ct_mul(h, ct_f(0.5)), ct_add(ct_f(1), ct_tanh(u)));
    return 1;
}
static int adamw(ct_tensor *out) {
    ct_tensor p = tensor(CT_DIMS(40, 130)), g = tensor(CT_DIMS(40, 130));
    ct_tensor m = tensor(CT_DIMS(40, 130)), v = ct_abs(tensor(CT_DIMS(40, 130)));
    ct_tensor lr = ct_f(1e-3);
    out[0] = ct_add(ct_mul(m, ct_f(0.9)), ct_mul(g, ct_f(0.1)));
    out[1] = ct_add(ct_mul(v, ct_f(0.99)), ct_mul(ct_mul(g, g), ct_f(0.01)));
    ct_tensor u = ct_div(out[0], ct_add(ct_sqrt(out[1]), ct_f(1e-8)));
    out[2] = ct_sub(p, ct_mul(lr, ct_add(u, ct_mul(p, ct_f(0.1)))));
    return 3;
}
static int cross_entropy(ct_tensor *out) { // a loss a row, the label found by comparing
    ct_tensor x = tensor(CT_DIMS(64, 65)), y = ints(CT_DIMS(64, 1), 65);
    ct_tensor s = ct_sub(x, ct_max(x, .axes = CT_AXES(1), .keepdims = true));
    ct_tensor lse = ct_log(ct_sum(ct_exp(s), .axes = CT_AXES(1)));
    ct_tensor hit = ct_equal(ct_iota(CT_I32, CT_DIMS(64, 65), 1), y);
    out[0] = ct_sub(lse, ct_sum(ct_select(hit, s, ct_f(0)), .axes = CT_AXES(1)));
    return 1;
}
static int gradients(ct_tensor *out) {
    ct_tensor x = tensor(CT_DIMS(30, 40)), w = tensor(CT_DIMS(40, 20)), b = tensor(CT_DIMS(20));
    ct_tensor h = ct_tanh(ct_add(ct_matmul(x, w), b));
    ct_tensor e = ct_exp(ct_sub(h, ct_max(h, .axes = CT_AXES(1), .keepdims = true)));
    ct_tensor p = ct_div(e, ct_sum(e, .axes = CT_AXES(1), .keepdims = true));
    ct_tensor loss = ct_sum(ct_mul(p, p));
    out[0] = loss;
    const ct_tensor wrt[] = {x, w, b};
    ct_grad(loss, wrt, 3, out + 1);
    return 4;
}

static int product_gelu(ct_tensor *out) { // bias, gelu and a residual behind a matrix product
    ct_tensor x = tensor(CT_DIMS(3, 20, 48)), w = tensor(CT_DIMS(48, 70)), b = tensor(CT_DIMS(70));
    ct_tensor h = ct_add(ct_matmul(x, w), b);
    ct_tensor u = ct_add(h, ct_mul(ct_f(0.044715), ct_mul(h, ct_mul(h, h))));
    ct_tensor g = ct_mul(ct_mul(h, ct_f(0.5)), ct_add(ct_f(1), ct_tanh(u)));
    out[0] = ct_add(g, tensor(CT_DIMS(3, 20, 70)));
    return 1;
}
static int product_shared(ct_tensor *out) { // the product is wanted itself, and turned
    ct_tensor x = ct_tanh(tensor(CT_DIMS(33, 48))), w = ct_mul(tensor(CT_DIMS(48, 40)), ct_f(0.1));
    ct_tensor h = ct_matmul(x, w);
    out[0] = ct_tanh(h);
    out[1] = ct_sum(h, .axes = CT_AXES(1));
    out[2] = ct_add(ct_permute(h, CT_DIMS(1, 0)), ct_f(1));
    out[3] = ct_mul(ct_sub(h, ct_reshape(out[1], CT_DIMS(33, 1))), out[0]);
    return 4;
}

// A product behind a mask that is recorded twice, and one recorded once that is used twice.
static ct_tensor masked(ct_tensor x, ct_tensor w) {
    ct_ints dims = CT_DIMS(33, 48);
    ct_tensor seen = ct_less(ct_iota(CT_I32, dims, 1), ct_iota(CT_I32, dims, 0));
    return ct_matmul(ct_select(seen, x, ct_neg(x)), w);
}
static int masks(ct_tensor *out, bool twice) {
    ct_tensor x = tensor(CT_DIMS(33, 48)), w = ct_mul(tensor(CT_DIMS(48, 40)), ct_f(0.1));
    ct_tensor h = masked(x, w), again = twice ? masked(x, w) : h;
    out[0] = ct_tanh(h);
    out[1] = ct_sum(again, .axes = CT_AXES(0));
    return 2;
}
static int mask_once(ct_tensor *out) { return masks(out, false); }
static int mask_twice(ct_tensor *out) { return masks(out, true); }

static int nothing(ct_tensor *out) { // values without elements beside others of the same rows
    ct_tensor rows = tensor(CT_DIMS(4, 67)), best = ct_argmax(rows, .axis = 0);
    ct_tensor none = ct_one_hot(best, 0, CT_F32);
    out[0] = ct_add(none, none);
    out[1] = ct_mul(best, best);
    return 2;
}

static ct_tensor small(ct_ints dims) { return ct_mul(tensor(dims), ct_f(0.125)); }
static void with_gradients(ct_tensor y, ct_tensor *wrt, int n, ct_tensor *out) {
    ct_grad(ct_mean(ct_mul(y, y)), wrt, (size_t)n, out + 1);
    out[0] = y;
}
// Values that gradients compute again of what they read, rather than read (more than 64 KiB each).
static int again_behind_product(ct_tensor *out) {
    ct_tensor in[4] = {small(CT_DIMS(96, 40)), small(CT_DIMS(40, 260)), small(CT_DIMS(260)),
                       small(CT_DIMS(260, 24))};
    ct_tensor h = ct_gelu(ct_add(ct_matmul(in[0], in[1]), in[2])); // (96, 260)
    with_gradients(ct_matmul(h, in[3]), in, 4, out);
    return 5;
}
static int again_elementwise(ct_tensor *out) {
    ct_tensor in[2] = {small(CT_DIMS(96, 40)), small(CT_DIMS(40, 260))};
    ct_tensor h = ct_matmul(in[0], in[1]); // (96, 260)
    ct_tensor gate = ct_sigmoid(h), wave = ct_mul(ct_sin(h), ct_cos(ct_mul(h, gate)));
    with_gradients(ct_cumsum(ct_mul(wave, gate), .axis = 1), in, 2, out);
    return 3;
}
static int again_in_rows(ct_tensor *out) { // what is computed again is read turned, and by rows
    ct_tensor in[2] = {small(CT_DIMS(4, 65, 32)), small(CT_DIMS(32, 128))};
    ct_tensor h = ct_matmul(in[0], in[1]); // (4, 65, 128)
    ct_tensor t = ct_tanh(h), turned = ct_permute(t, CT_DIMS(0, 2, 1));
    ct_tensor p = ct_softmax(ct_add(h, t), .axes = CT_AXES(2));
    with_gradients(ct_matmul(turned, ct_mul(p, t)), in, 2, out);
    return 3;
}
static int plain_weights(ct_tensor *out) {
    ct_tensor in[2] = {small(CT_DIMS(4, 24, 40)), small(CT_DIMS(40, 70))};
    with_gradients(ct_matmul(in[0], in[1]), in, 2, out);
    return 3;
}
static int turned_weights(ct_tensor *out) {
    ct_tensor in[2] = {small(CT_DIMS(4, 24, 40)), small(CT_DIMS(70, 40))};
    with_gradients(ct_matmul(in[0], ct_permute(in[1], CT_DIMS(1, 0))), in, 2, out);
    return 3;
}
static int picked_early(ct_tensor *out) { // the rest of the logits goes before the loss
    ct_tensor in[2] = {tensor(CT_DIMS(96, 24)), tensor(CT_DIMS(24, 512))};
    ct_tensor logits = ct_matmul(in[0], in[1]); // (96, 512)
    ct_tensor loss = ct_cross_entropy(logits, ints(CT_DIMS(96), 512));
    ct_grad(loss, in, 2, out + 1);
    out[0] = loss;
    return 3;
}

static int circle(ct_tensor *out) { // an old group reads a new one; who read the old one needs it
    ct_tensor x = tensor(CT_DIMS(37, 21)), y = tensor(CT_DIMS(37, 129));
    out[0] = ct_tanh(x);
    out[1] = ct_cumsum(out[0], .axis = 1);
    out[2] = ct_sum(y, .axes = CT_AXES(1));
    ct_tensor column = ct_reshape(out[2], CT_DIMS(37, 1));
    out[3] = ct_add(out[0], column); // beside out[0], whose kernel now needs out[2]'s
    out[4] = ct_mul(out[1], column); // beside out[2] it would wait for out[1], so for out[0]
    return 5;
}

#define TEST_EQUAL(name)                                                                           \
    static void test_##name(void **state) {                                                        \
        (void)state;                                                                               \
        check(name);                                                                               \
    }
TEST_EQUAL(chain)
TEST_EQUAL(views)
TEST_EQUAL(sums)
TEST_EQUAL(long_sum)
TEST_EQUAL(integers)
TEST_EQUAL(halves)
TEST_EQUAL(gradients)
TEST_EQUAL(nothing)
TEST_EQUAL(circle)
TEST_EQUAL(again_behind_product)
TEST_EQUAL(again_elementwise)
TEST_EQUAL(again_in_rows)
TEST_EQUAL(picked_early)
TEST_EQUAL(product_shared)
static void test_equal_values_are_shared(void **state) {
    (void)state;
    assert_int_equal(check(mask_twice), check(mask_once));
}
static void test_gradient_of_turned_weights(void **state) { // is stored as these are
    (void)state;
    assert_int_equal(check(turned_weights), check(plain_weights));
}
// One launch each, whatever the axes and whoever wrote them.
#define TEST_ONE(name)                                                                             \
    static void test_##name(void **state) {                                                        \
        (void)state;                                                                               \
        assert_int_equal(check(name), 1);                                                          \
    }
TEST_ONE(softmax)
TEST_ONE(softmax_outer)
TEST_ONE(log_softmax)
TEST_ONE(layer_norm)
TEST_ONE(rms_norm_two_axes)
TEST_ONE(gelu_bias)
TEST_ONE(adamw)
TEST_ONE(cross_entropy)
TEST_ONE(product_gelu)

#define T(name) cmocka_unit_test(test_##name)
int main(void) {
    const struct CMUnitTest tests[] = {
        T(chain),
        T(views),
        T(sums),
        T(long_sum),
        T(integers),
        T(halves),
        T(gradients),
        T(nothing),
        T(circle),
        T(softmax),
        T(softmax_outer),
        T(log_softmax),
        T(layer_norm),
        T(rms_norm_two_axes),
        T(gelu_bias),
        T(adamw),
        T(cross_entropy),
        T(product_gelu),
        T(product_shared),
        T(equal_values_are_shared),
        T(again_behind_product),
        T(again_elementwise),
        T(again_in_rows),
        T(picked_early),
        T(gradient_of_turned_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
