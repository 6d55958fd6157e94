// How elementwise kernels are cut, what rows keep, and what is stored before it is repeated. Each
// program gives the same bits on ref, on cpu unfused and on cpu fused; what its kernels are is counted
// in their text.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/text.h"
#include "cotan/cotan.h"
#include "graph/type.h"

typedef ct_tensor (*program)(void);

static uint32_t seed;
static ct_tensor tensor(ct_ints dims) { // eighths in [-2, 2): sums of them are exact in any order
    int64_t n = 1;
    for (int64_t i = 0; i < dims.n; i++) n *= ct__unmarked(dims.v[i]);
    float *v = malloc((size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        v[i] = (float)(seed >> 27) / 8 - 2;
    }
    ct_tensor t = ct_from(v, CT_F32, dims);
    free(v);
    return t;
}
static ct_tensor cut(ct_tensor x, int axis, int64_t start, int64_t stop) {
    return ct_slice(x, .axes = CT_AXES(axis), .start = CT_INTS(start), .stop = CT_INTS(stop));
}
static ct_tensor every(ct_tensor x, int axis, int64_t start, int64_t step) {
    return ct_slice(x, .axes = CT_AXES(axis), .start = CT_INTS(start), .step = CT_INTS(step));
}

// ---------------------------------------------------------------------------------------- programs

static ct_tensor joined(int64_t axis) { // 8 pieces of (n, 40, 48)
    ct_tensor x = tensor(CT_DIMS(5, 40, 48)), part[8];
    for (int i = 0; i < 8; i++) part[i] = ct_add(ct_mul(x, x), ct_f(i));
    return ct_concat(part, 8, axis);
}
static ct_tensor joined_first(void) { return joined(0); }
static ct_tensor joined_middle(void) { return joined(1); }
static ct_tensor joined_last(void) { return joined(2); }
static ct_tensor joined_long(void) { // chunks that hold the ends of pieces
    ct_tensor part[3] = {tensor(CT_DIMS(5000)), tensor(CT_DIMS(17)), tensor(CT_DIMS(9001))};
    return ct_neg(ct_concat(part, 3, 0));
}
static ct_tensor joined_many(void) { // more pieces than there are ranges
    ct_tensor x = tensor(CT_DIMS(3, 20)), part[40];
    for (int i = 0; i < 40; i++) part[i] = ct_add(x, ct_f(i));
    return ct_concat(part, 40, 0);
}
static ct_tensor stacked(void) { // features side by side
    ct_tensor x = tensor(CT_DIMS(777)), part[4];
    for (int i = 0; i < 4; i++) part[i] = ct_reshape(ct_add(x, ct_f(i)), CT_DIMS(777, 1));
    return ct_concat(part, 4, 1);
}
static ct_tensor turned_pairs(void) {
    ct_tensor x = tensor(CT_DIMS(6, 50, 16, 2)), c = tensor(CT_DIMS(50, 16, 1));
    ct_tensor a = cut(x, 3, 0, 1), b = cut(x, 3, 1, 2);
    ct_tensor y[2] = {ct_sub(ct_mul(a, c), b), ct_add(a, ct_mul(b, c))};
    return ct_reshape(ct_concat(y, 2, 3), CT_DIMS(6, 50, 32));
}
static ct_tensor nine_windows(void) {
    ct_tensor x = tensor(CT_DIMS(2, 4, 20, 32)), part[9];
    ct_tensor p = ct_pad(x, ct_f(0), .low = CT_INTS(0, 0, 1, 1), .high = CT_INTS(0, 0, 1, 1));
    for (int k = 0; k < 9; k++) part[k] = cut(cut(p, 2, k / 3, 20 + k / 3), 3, k % 3, 32 + k % 3);
    return ct_concat(part, 9, 1);
}
static ct_tensor reflected(void) {
    ct_tensor x = tensor(CT_DIMS(3, 40, 37));
    for (int a = 1; a < 3; a++) {
        int64_t n = ct_dim(x, a);
        ct_tensor low = ct_flip(cut(x, a, 1, 4), CT_AXES(a));
        ct_tensor high = ct_flip(cut(x, a, n - 4, n - 1), CT_AXES(a));
        x = ct_concat(((ct_tensor[]){low, x, high}), 3, a);
    }
    return x;
}
static ct_tensor bordered(void) {
    ct_tensor x = tensor(CT_DIMS(30, 41));
    return ct_pad(ct_add(x, x), ct_f(7), .low = CT_INTS(2, 3), .high = CT_INTS(1, 17));
}
static ct_tensor pooled(ct_tensor x) {
    ct_tensor top = every(x, 1, 0, 2), low = every(x, 1, 1, 2);
    return ct_maximum(ct_maximum(every(top, 2, 0, 2), every(top, 2, 1, 2)),
                      ct_maximum(every(low, 2, 0, 2), every(low, 2, 1, 2)));
}
static ct_tensor pool_slope(void) {
    ct_tensor x = tensor(CT_DIMS(5, 36, 64)), w = tensor(CT_DIMS(5, 18, 32)), slope;
    ct_grad(ct_sum(ct_mul(pooled(x), w)), &x, 1, &slope);
    return slope;
}
static ct_tensor spread(void) { // sizes that cells do not divide
    ct_tensor x = tensor(CT_DIMS(9, 25));
    return ct_pad(x, ct_f(0), .low = CT_INTS(1, 2), .high = CT_INTS(0, 1),
                  .interior = CT_INTS(1, 2));
}
static ct_tensor doubled(void) {
    ct_tensor x = tensor(CT_DIMS(3, 16, 1, 24, 1));
    x = ct_reshape(ct_expand(x, CT_DIMS(3, 16, 2, 24, 2)), CT_DIMS(3, 32, 48));
    return ct_add(x, tensor(CT_DIMS(3, 32, 48)));
}
static ct_tensor shuffled(void) {
    ct_tensor x = ct_reshape(tensor(CT_DIMS(4, 12, 20, 40)), CT_DIMS(4, 3, 2, 2, 20, 40));
    return ct_reshape(ct_permute(x, CT_DIMS(0, 1, 4, 2, 5, 3)), CT_DIMS(4, 3, 40, 80));
}
static ct_tensor pool_by_axes(void) {
    ct_tensor x = ct_reshape(tensor(CT_DIMS(6, 64, 64)), CT_DIMS(6, 32, 2, 32, 2));
    return ct_max(x, .axes = CT_AXES(2, 4));
}
static ct_tensor doubly_gathered(void) {
    ct_tensor i = ct_cast(ct_iota(CT_I32, CT_DIMS(50), 0), CT_F32);
    ct_tensor at = ct_cast(ct_mul(i, ct_f(0.8)), CT_I32), x = tensor(CT_DIMS(8, 40, 40));
    return ct_gather(ct_gather(x, at, .axis = 1), at, .axis = 2);
}
static ct_tensor soft_share(void) { // of exact numbers but exp and the quotient
    ct_tensor x = tensor(CT_DIMS(40, 100));
    ct_tensor e = ct_exp(ct_sub(x, ct_max(x, .axes = CT_AXES(1), .keepdims = true)));
    return ct_div(e, ct_sum(e, .axes = CT_AXES(1), .keepdims = true));
}
static ct_tensor max_slope(int64_t images) {
    ct_tensor x = tensor(CT_DIMS(images, 4, 21, 40)), g;
    ct_tensor y =
        ct_max_pool(x, .kernel = CT_DIMS(3, 3), .stride = CT_DIMS(2), .padding = CT_DIMS(1));
    ct_grad(ct_sum(ct_mul(y, tensor(CT_DIMS(images, 4, 11, 20)))), &x, 1, &g);
    return g;
}
static ct_tensor max_pool_slope(void) { return max_slope(3); }
static ct_tensor max_pool_slope_of_some(void) { return max_slope(CT_DYN(3)); }
static ct_tensor mean_slope(int64_t images) {
    ct_tensor x = tensor(CT_DIMS(images, 4, 21, 40)), g;
    ct_tensor y = ct_avg_pool(x, .kernel = CT_DIMS(3, 3), .stride = CT_DIMS(2),
                              .padding = CT_DIMS(1), .divisor = CT_F(8));
    ct_grad(ct_sum(ct_mul(y, tensor(CT_DIMS(images, 4, 11, 20)))), &x, 1, &g);
    return g;
}
static ct_tensor mean_pool_slope(void) { return mean_slope(3); }
static ct_tensor mean_pool_slope_of_some(void) { return mean_slope(CT_DYN(3)); }
static ct_tensor doubled_max_slope(void) { // windows that are a reshape of x, put in another order
    ct_tensor x = tensor(CT_DIMS(4, 8, 28, 28)), g;
    ct_tensor y = ct_max_pool(x, .kernel = CT_DIMS(2, 2));
    ct_grad(ct_sum(ct_square(y)), &x, 1, &g);
    return g;
}
static ct_tensor long_slope(int64_t kernel, int64_t stride) { // more taps than are written out
    ct_tensor x = tensor(CT_DIMS(3, 4, 24, 40)), g;
    ct_tensor y = ct_avg_pool(x, .kernel = CT_DIMS(kernel, kernel), .stride = CT_DIMS(stride),
                              .divisor = CT_F(8));
    ct_tensor back = tensor(CT_DIMS(3, 4, ct_dim(y, 2), ct_dim(y, 3)));
    ct_grad(ct_sum(ct_mul(y, back)), &x, 1, &g);
    return g;
}
static ct_tensor long_slope_6(void) { return long_slope(6, 6); }
// Convolutions of one channel each, and what their weights get.
static ct_tensor each_by_7(void) {
    return ct_conv(tensor(CT_DIMS(2, 8, 24, 24)), tensor(CT_DIMS(8, 1, 7, 7)),
                   .padding = CT_DIMS(3), .groups = 8);
}
static ct_tensor each_slope(void) {
    return ct_conv_weight_grad(tensor(CT_DIMS(2, 8, 24, 24)), tensor(CT_DIMS(2, 8, 24, 24)),
                               .size = CT_DIMS(3, 3), .padding = CT_DIMS(1), .groups = 8);
}
static ct_tensor long_slope_8(void) { return long_slope(8, 4); }
static ct_tensor pair_slope_of_some(void) { // the result and the gradient
    ct_tensor x = tensor(CT_DIMS(CT_DYN(4), 8, 28, 28)), g;
    ct_grad(ct_sum(ct_square(ct_avg_pool(x, .kernel = CT_DIMS(2, 2)))), &x, 1, &g);
    return g;
}
static ct_tensor summed_phases(void) { // four products, put in turns, and sums by channel
    ct_tensor x = tensor(CT_DIMS(2, 3, 16, 24)), w = tensor(CT_DIMS(3, 8, 3, 3));
    ct_tensor y = ct_conv_transpose(x, w, CT_NONE, .stride = CT_DIMS(2), .padding = CT_DIMS(1),
                                    .output_padding = CT_DIMS(1));
    ct_tensor sums = ct_sum(ct_relu(y), .axes = CT_AXES(0, 2, 3), .keepdims = true);
    return ct_sub(ct_relu(y), sums);
}
static ct_tensor waves(void) { // a table of (T, C), added to each of many
    ct_tensor t = ct_cast(ct_iota(CT_I32, CT_DIMS(64, 48), 0), CT_F32);
    return ct_add(tensor(CT_DIMS(16, 64, 48)), ct_sin(ct_mul(t, ct_f(0.25))));
}

// Blocks that are turned, and what blocks do not divide of both axes.
static ct_tensor across(void) {
    ct_tensor x = tensor(CT_DIMS(100, 70)), y = tensor(CT_DIMS(70, 100));
    return ct_add(x, ct_permute(y, CT_DIMS(1, 0)));
}
static ct_tensor across_long(void) { // several tasks a row
    ct_tensor x = tensor(CT_DIMS(131, 300)), y = tensor(CT_DIMS(300, 131));
    return ct_mul(ct_permute(y, CT_DIMS(1, 0)), x);
}
static ct_tensor across_each(void) { // of halves, each alone
    ct_tensor x = ct_cast(tensor(CT_DIMS(3, 64, 48)), CT_BF16);
    return ct_permute(ct_mul(x, x), CT_DIMS(0, 2, 1));
}
static ct_tensor across_twice(void) {
    ct_tensor x = tensor(CT_DIMS(48, 64)), y = tensor(CT_DIMS(48, 64));
    return ct_sub(ct_permute(x, CT_DIMS(1, 0)), ct_permute(y, CT_DIMS(1, 0)));
}

static ct_tensor dropped(void) { // random bits are flat, what they decide is not
    ct_tensor x = tensor(CT_DIMS(40, 64));
    return ct_add(x, ct_dropout(ct_mul(x, x), ct_random_key(3), ct_f(0.5)));
}

// Rows of 64 that begin anywhere: in front of x, behind it, where i32 wraps around.
static ct_tensor windows_at(void) {
    static const int32_t begin[] = {INT32_MIN, -70, -5, 0, 30, 63, 64, INT32_MAX - 7};
    ct_tensor at = ct_from(begin, CT_I32, CT_DIMS(8, 1));
    at = ct_add(at, ct_iota(CT_I32, CT_DIMS(8, 64), 1));
    return ct_neg(ct_gather(tensor(CT_DIMS(3, 64)), at, .axis = 1));
}
// Places that are data, all of 16 inside and not, and at the ends of i32.
static ct_tensor picked(void) {
    int32_t at[64];
    for (int i = 0; i < 64; i++) at[i] = i < 40 ? i * 7 % 64 : i - 52;
    at[60] = INT32_MIN, at[61] = INT32_MAX, at[62] = 63, at[63] = 64;
    return ct_neg(ct_gather(tensor(CT_DIMS(3, 64)), ct_from(at, CT_I32, CT_DIMS(64)), .axis = 1));
}
static ct_tensor bytes(ct_ints dims) { // at most 1000
    uint8_t byte[1000];
    for (size_t i = 0; i < sizeof byte; i++) byte[i] = (uint8_t)(i * 31 >> 2);
    return ct_from(byte, CT_U8, dims);
}
static ct_tensor colours_apart(void) { // (H, W, 3) of bytes; the last one read is the last there is
    ct_tensor x = ct_cast(bytes(CT_DIMS(4, 64, 3)), CT_F32);
    return ct_neg(ct_permute(x, CT_DIMS(2, 0, 1)));
}
static ct_tensor colours_flipped(void) { // the first one read is the last there is
    ct_tensor x = ct_flip(bytes(CT_DIMS(4, 64, 3)), CT_AXES(1));
    return ct_neg(ct_permute(ct_cast(x, CT_F32), CT_DIMS(2, 0, 1)));
}
static ct_tensor fifths(void) {
    return ct_neg(ct_cast(every(bytes(CT_DIMS(320)), 0, 4, 5), CT_F32));
}

// ----------------------------------------------------------------------------------------- running

typedef struct {
    char *data;
    size_t bytes;
} result;

static result run(program f, const char *device, const char *fuse) {
    setenv("COTAN_FUSE", fuse, 1);
    assert_true(ct_set_device(device));
    CT_SCOPE;
    seed = 7;
    ct_tensor y = f();
    const void *data = ct_data(y);
    if (!data) fail_msg("%s", ct_error_text());
    result r = {.bytes = (size_t)ct_size(y) * ct_dtype_size(ct_dtype_of(y))};
    r.data = malloc(r.bytes);
    memcpy(r.data, data, r.bytes);
    return r;
}

static ct_text dump;
static void take_dump(ct_log_kind kind, const char *text, void *user) {
    (void)user;
    if (kind == CT_LOG_DUMP) ct__text_add(&dump, text);
}

// What the fused kernels' loops are; the functions that stand before them are left out.
static ct_text kernels_of(program f) {
    unsetenv("COTAN_FUSE");
    assert_true(ct_set_device("dry:cpu"));
    ct__text_free(&dump);
    ct_set_log(take_dump, NULL);
    setenv("COTAN_DUMP", "kernels", 1);
    {
        CT_SCOPE;
        ct_tensor y = f();
        assert_true(ct_eval(&y, 1));
    }
    unsetenv("COTAN_DUMP");
    ct_set_log(NULL, NULL);
    ct_text bodies = {0};
    for (const char *at = dump.s; at && (at = strstr(at, "void k_"));) {
        const char *end = strstr(at, "\n}\n");
        assert_non_null(end);
        ct__text_bytes(&bodies, at, (size_t)(end - at));
        ct__text_add(&bodies, "\n}\n");
        at = end;
    }
    return bodies;
}
static int count(const char *text, const char *part) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++) n++;
    return n;
}

// COMPILED: it is about what the prelude does in compiled kernels alone. OTHER_FUNCTIONS: those that it
// calls are ours, ref's bits are others.
typedef enum { INTERPRETED, COMPILED, OTHER_FUNCTIONS } how;
typedef struct {
    const char *name;
    program f;
    int kernels;          // as many
    const char *never[4]; // stands in none
    const char *part;     // stands `times` in them
    int times;
    how as;
} expected;

#define DIVISIONS "div_i64(", "mod_i64(", "ldg_"
#define MASKS "(bits_of", "sel_f32(", "ldg_"
#define LOOP "+= 16)"
static const expected all[] = {
    {"joined_first", joined_first, 1, {MASKS}, LOOP, 8, INTERPRETED},
    {"joined_middle", joined_middle, 1, {MASKS}, LOOP, 8, INTERPRETED},
    {"joined_last", joined_last, 1, {MASKS}, LOOP, 8, INTERPRETED},
    {"joined_long", joined_long, 1, {MASKS}, LOOP, 3, INTERPRETED},
    {"joined_many", joined_many, 1, {NULL}, NULL, 0, INTERPRETED},
    {"stacked", stacked, 1, {MASKS}, LOOP, 1, INTERPRETED},
    {"turned_pairs", turned_pairs, 1, {DIVISIONS, "sel_f32("}, LOOP, 1, INTERPRETED},
    {"nine_windows", nine_windows, 1, {DIVISIONS}, NULL, 0, INTERPRETED},
    {"reflected", reflected, 1, {MASKS}, NULL, 0, INTERPRETED},
    {"bordered", bordered, 1, {MASKS}, NULL, 0, INTERPRETED},
    {"pool_slope", pool_slope, 2, {DIVISIONS}, NULL, 0, INTERPRETED},
    {"spread", spread, 1, {DIVISIONS}, NULL, 0, INTERPRETED},
    {"doubled", doubled, 1, {DIVISIONS}, NULL, 0, INTERPRETED},
    {"shuffled", shuffled, 1, {DIVISIONS}, NULL, 0, INTERPRETED},
    {"pool_by_axes", pool_by_axes, 1, {DIVISIONS, "fold_max"}, NULL, 0, INTERPRETED},
    {"doubly_gathered", doubly_gathered, 2, {NULL}, "i32_of_f32(", 1, INTERPRETED},
    {"soft_share", soft_share, 1, {NULL}, "exp_f32(", 1, OTHER_FUNCTIONS},
    {"across", across, 1, {DIVISIONS}, "zip_low_f32(", 32, INTERPRETED},
    {"across_long", across_long, 1, {"ldg_"}, "zip_low_f32(", 32, INTERPRETED},
    {"across_each", across_each, 1, {"ldg_"}, "zip_low_f32(", 32, INTERPRETED},
    {"across_twice", across_twice, 1, {"ldg_", "lds_"}, "zip_low_f32(", 64, INTERPRETED},
    {"dropped", dropped, 1, {NULL}, "st_f32(", 1, INTERPRETED},
    {"max_pool_slope", max_pool_slope, 2, {DIVISIONS, "FOLD_ARRAY"}, NULL, 0, INTERPRETED},
    {"mean_pool_slope", mean_pool_slope, 1, {DIVISIONS, "FOLD_ARRAY"}, NULL, 0, INTERPRETED},
    {"max_pool_slope_of_some",
     max_pool_slope_of_some,
     2,
     {DIVISIONS, "FOLD_ARRAY"},
     NULL,
     0,
     INTERPRETED},
    {"mean_pool_slope_of_some",
     mean_pool_slope_of_some,
     1,
     {DIVISIONS, "FOLD_ARRAY"},
     NULL,
     0,
     INTERPRETED},
    {"doubled_max_slope", doubled_max_slope, 2, {DIVISIONS}, NULL, 0, INTERPRETED},
    {"long_slope_6", long_slope_6, 2, {DIVISIONS}, NULL, 0, INTERPRETED},
    {"long_slope_8", long_slope_8, 2, {DIVISIONS}, NULL, 0, INTERPRETED},
    {"each_by_7", each_by_7, 1, {DIVISIONS, "EACH("}, NULL, 0, INTERPRETED},
    {"each_slope", each_slope, 2, {DIVISIONS}, NULL, 0, INTERPRETED},
    {"pair_slope_of_some", pair_slope_of_some, 2, {DIVISIONS}, NULL, 0, INTERPRETED},
    {"summed_phases", summed_phases, 6, {DIVISIONS}, "sts_f32(", 4, INTERPRETED},
    {"windows_at", windows_at, 1, {"ldg_", "ldi_", "i64x16"}, "ramp_below(", 1, COMPILED},
    {"picked", picked, 1, {"ldg_", "i64x16"}, "ldi_f32(", 1, COMPILED},
    {"colours_apart", colours_apart, 1, {"ldg_"}, "lds_u8(", 1, COMPILED},
    {"colours_flipped", colours_flipped, 1, {"ldg_"}, "lds_u8(", 1, COMPILED},
    {"fifths", fifths, 1, {"ldg_"}, "lds_u8(", 1, COMPILED},
    {"waves", waves, 2, {NULL}, "sin_f32(", 1, OTHER_FUNCTIONS},
};
enum { ALL = sizeof all / sizeof *all };

static void is_cut(void **state) {
    const expected *x = *state;
    result plain = run(x->f, "cpu", "0"), ref = run(x->f, "ref", "1");
    if (x->as == COMPILED) setenv("COTAN_COMPILE", "wait", 1);
    result fused = run(x->f, "cpu", "1");
    unsetenv("COTAN_COMPILE");
    assert_int_equal(plain.bytes, fused.bytes);
    assert_memory_equal(plain.data, fused.data, plain.bytes);
    if (x->as != OTHER_FUNCTIONS) assert_memory_equal(fused.data, ref.data, ref.bytes);
    free(plain.data);
    free(fused.data);
    free(ref.data);
    ct_text text = kernels_of(x->f);
    const int kernels = count(text.s, "void k_");
    if (kernels != x->kernels) fail_msg("%d kernels:\n%s", kernels, text.s);
    for (int i = 0; i < 4 && x->never[i]; i++)
        if (count(text.s, x->never[i])) fail_msg("%s stands in\n%s", x->never[i], text.s);
    const int times = x->part ? count(text.s, x->part) : 0;
    if (times != x->times) fail_msg("%s stands %d times in\n%s", x->part, times, text.s);
    ct__text_free(&text);
}

int main(void) {
    struct CMUnitTest tests[ALL];
    for (int i = 0; i < ALL; i++)
        tests[i] = (struct CMUnitTest){all[i].name, is_cut, NULL, NULL, (void *)(uintptr_t)&all[i]};
    return cmocka_run_group_tests_name("cuts", tests, NULL, NULL);
}
