// Dynamic lengths: what a length decides reaches kernels as arguments. After the first length no
// other one compiles anything, and all have the bits of a static length.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cotan/cotan.h"
#include "graph/type.h"

enum { MOST = 1 << 15, SEED = 2026 };

static float value_at(int64_t i, int which) {
    uint64_t z = (uint64_t)(i * 16 + which + SEED) * 0x9e3779b97f4a7c15u; // SplitMix64
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    return (float)((z ^ z >> 27) >> 40) * 0x1p-23f - 1;
}
static ct_tensor tensor(int which, ct_ints dims) {
    int64_t n = 1;
    for (int64_t i = 0; i < dims.n; i++) n *= ct__unmarked(dims.v[i]);
    float *v = malloc((size_t)n * sizeof *v + 1);
    assert_non_null(v);
    for (int64_t i = 0; i < n; i++) v[i] = value_at(i, which);
    ct_tensor t = ct_from(v, CT_F32, dims);
    free(v);
    return t;
}
static int64_t size_of(int64_t n, bool dynamic) { return dynamic ? CT_DYN(n) : n; }

// Kernels that this process did not have yet, whether a disk cache had them or not.
static uint64_t new_kernels(void) {
    ct_stats stats = ct_get_stats();
    return stats.kernels_compiled + stats.kernels_loaded;
}

// A context of its own for each way of running: nothing is known to it.
static ct_ctx *enter(const char *device, const char *fuse) {
    setenv("COTAN_FUSE", fuse, 1);
    ct_ctx *ctx = ct_ctx_new();
    assert_non_null(ctx);
    ct_ctx_use(ctx);
    ct_set_log(NULL, NULL); // many shapes on one line are meant here
    if (!ct_set_device(device)) fail_msg("%s", ct_error_text());
    return ctx;
}
static void leave(ct_ctx *ctx) {
    if (ct_failed()) fail_msg("%s", ct_error_text());
    ct_ctx_use(NULL);
    ct_ctx_free(ctx);
    unsetenv("COTAN_FUSE");
}

// Contexts that begin from now on interpret their kernels, or have the compiler that was asked for.
static void interpret(bool on) {
    static char *asked; // for another machine there is one
    if (on) {
        const char *now = getenv("COTAN_CC");
        asked = now ? strdup(now) : NULL;
        setenv("COTAN_CC", "none", 1);
    } else if (asked) {
        setenv("COTAN_CC", asked, 1);
        free(asked);
    } else {
        unsetenv("COTAN_CC");
    }
}

static const struct {
    const char *device, *fuse;
} ways[] = {{"cpu", "1"}, {"cpu", "0"}, {"ref", "1"}};
enum { WAYS = sizeof ways / sizeof *ways };

// A program for a length, declared dynamic or not; gives the number of its results.
typedef int (*program)(int64_t n, bool dynamic, int variant, ct_tensor *out);

static size_t run(program f, int64_t n, bool dynamic, int variant, float *to) {
    CT_SCOPE;
    ct_tensor out[8];
    int count = f(n, dynamic, variant, out);
    size_t at = 0;
    if (!ct_eval(out, (size_t)count)) fail_msg("length %d: %s", (int)n, ct_error_text());
    for (int i = 0; i < count; i++) {
        const float *data = ct_data(out[i]);
        size_t size = (size_t)ct_size(out[i]);
        if (!data) fail_msg("length %d: %s", (int)n, ct_error_text());
        assert_true(at + size <= MOST);
        memcpy(to + at, data, size * sizeof *to);
        at += size;
    }
    return at;
}

// Unfused each node is a kernel to compile: every eighth variant, unless COTAN_TEST_ALL is set.
static bool tried(int way, int variant) {
    return way != 1 || variant % 8 == 0 || getenv("COTAN_TEST_ALL");
}

// Kernels of a static length serve it alone: they are interpreted, which gives the same bits, unless COTAN_TEST_ALL is set.
static size_t run_static(int way, program f, int64_t n, int variant, float *to) {
    ct_ctx *outer = ct_ctx_use(NULL);
    if (!getenv("COTAN_TEST_ALL")) interpret(true);
    ct_ctx *ctx = enter(ways[way].device, ways[way].fuse);
    const size_t count = run(f, n, false, variant, to);
    leave(ctx);
    if (!getenv("COTAN_TEST_ALL")) interpret(false);
    setenv("COTAN_FUSE", ways[way].fuse, 1);
    ct_ctx_use(outer);
    return count;
}

// On each way: the kernels of the first length serve all; results are those of static lengths.
static void serves_all(program f, int variant, const int64_t *length, int lengths) {
    static float got[MOST], want[MOST];
    for (int w = 0; w < WAYS; w++) {
        if (!tried(w, variant)) continue;
        ct_ctx *ctx = enter(ways[w].device, ways[w].fuse);
        uint64_t kernels = 0;
        for (int i = 0; i < lengths; i++) {
            run(f, length[i], true, variant, got);
            if (i == 0) kernels = new_kernels();
            if (new_kernels() != kernels)
                fail_msg("%s, COTAN_FUSE=%s, variant %d: length %d needs %d kernels more",
                         ways[w].device, ways[w].fuse, variant, (int)length[i],
                         (int)(new_kernels() - kernels));
        }
        for (int i = 0; i < lengths; i++) {
            size_t n = run(f, length[i], true, variant, got);
            assert_int_equal(run_static(w, f, length[i], variant, want), n);
            for (size_t k = 0; k < n; k++)
                if (memcmp(&got[k], &want[k], sizeof *got) != 0)
                    fail_msg("%s, COTAN_FUSE=%s, variant %d: length %d, element %d: %.9g, a static "
                             "length has %.9g",
                             ways[w].device, ways[w].fuse, variant, (int)length[i], (int)k,
                             (double)got[k], (double)want[k]);
        }
        leave(ctx);
    }
}
static void near_reference(program f, int variant, const int64_t *length, int lengths) {
    static float got[MOST], want[MOST];
    for (int i = 0; i < lengths; i++) {
        ct_ctx *ctx = enter("cpu", "1");
        size_t n = run(f, length[i], true, variant, got);
        leave(ctx);
        ctx = enter("ref", "1");
        assert_int_equal(run(f, length[i], true, variant, want), n);
        leave(ctx);
        for (size_t k = 0; k < n; k++)
            if (!(fabsf(got[k] - want[k]) < 1e-4f * (1 + fabsf(want[k]))))
                fail_msg("variant %d: length %d, element %d: %.9g, ref has %.9g", variant,
                         (int)length[i], (int)k, (double)got[k], (double)want[k]);
    }
}

// ------------------------------------------------------------------------------------------------
// no elements

// An empty past before new tokens, and what has no element at all.
static int emptied(int64_t n, bool dynamic, int variant, ct_tensor *out) {
    int64_t all = size_of(n, dynamic);
    ct_tensor x = tensor(1, CT_DIMS(2, all)), more = tensor(2, CT_DIMS(2, 3));
    ct_tensor rows = tensor(3, CT_DIMS(all, 3)), both = ct_concat(((ct_tensor[]){x, more}), 2, 1);
    ct_tensor results[] = {
        ct_reshape(both, CT_DIMS(2 * (n + 3))),
        ct_reshape(ct_concat(((ct_tensor[]){more, x, more}), 3, 1), CT_DIMS(2 * (n + 6))),
        ct_reshape(ct_permute(both, CT_AXES(1, 0)), CT_DIMS(n + 3, 2)),
        ct_cumsum(ct_reshape(both, CT_DIMS(2 * (n + 3)))),
        ct_sort(ct_reshape(ct_sort(rows, .axis = 0), CT_DIMS(3 * n))),
        ct_cumsum(ct_reshape(ct_cumsum(rows, .axis = 1), CT_DIMS(3 * n))),
        ct_sort(ct_cumsum(ct_reshape(ct_sort(x, .axis = 1), CT_DIMS(2 * n)))),
        ct_pad(rows, ct_f(7), .low = CT_INTS(1, 0), .interior = CT_INTS(2, 0)),
        ct_slice(rows, .axes = CT_AXES(0), .step = CT_INTS(2)),
        ct_diagonal(rows, .offset = 1),
        ct_diagonal(rows),
        ct_windows(rows, .axes = CT_AXES(0), .size = CT_INTS(2), .base = CT_INTS(3),
                   .low = CT_INTS(2), .high = CT_INTS(2)),
        ct_conv(ct_reshape(rows, CT_DIMS(1, 3, all)), tensor(4, CT_DIMS(4, 3, 2)),
                .padding = CT_INTS(2)),
        ct_mul(ct_softmax(ct_iota(CT_F32, CT_DIMS(2, all), 0), .axes = CT_AXES(0)),
               tensor(5, CT_DIMS(n))),
    };
    out[0] = results[variant];
    if (variant < 7 || variant == 13) return 1;
    ct_grad(ct_sum(ct_mul(out[0], out[0])), &rows, 1, out + 1);
    return 2;
}
static void an_axis_may_be_empty(void **state) {
    (void)state;
    static float got[MOST], want[MOST];
    interpret(true);
    static const int64_t length[] = {0, 1, 5, 0, 2};
    for (int variant = 0; variant < 14; variant++)
        for (int w = 0; w < 2 * WAYS; w++) {
            if (w >= WAYS) setenv("COTAN_CHECK", "bounds", 1);
            ct_ctx *ctx = enter(ways[w % WAYS].device, ways[w % WAYS].fuse);
            for (int i = 0; i < 5; i++) {
                const size_t size = run(emptied, length[i], true, variant, got);
                assert_int_equal(run(emptied, length[i], false, variant, want), size);
                assert_memory_equal(got, want, size * sizeof *got);
            }
            leave(ctx);
            unsetenv("COTAN_CHECK");
        }
    interpret(false);
}

// ------------------------------------------------------------------------------------------------
// slice and pad

static int moved(int64_t n, bool dynamic, int variant, ct_tensor *out) {
    int64_t a = size_of(n / 3, dynamic), b = size_of(n - n / 4, dynamic), all = size_of(n, dynamic);
    ct_tensor x = tensor(1, CT_DIMS(all, 6)), fixed = tensor(2, CT_DIMS(40, 6)), y;
    switch (variant) {
    case 0: y = ct_slice(x, .start = CT_INTS(a), .stop = CT_INTS(b)); break;
    case 1: y = ct_slice(fixed, .start = CT_INTS(a), .stop = CT_INTS(b), .step = CT_INTS(2)); break;
    case 2: y = ct_slice(x, .start = CT_INTS(-1)); break;
    case 3: y = ct_slice(x, .start = CT_INTS(1), .stop = CT_INTS(-1)); break;
    case 4: y = ct_slice(x, .axes = CT_AXES(0), .stop = CT_INTS(b)); break;
    case 5: y = ct_pad(x, ct_f(3), .low = CT_INTS(a, 1), .high = CT_INTS(b, 0)); break;
    case 6: y = ct_pad(fixed, ct_f(3), .low = CT_INTS(a, 0), .interior = CT_INTS(2, 0)); break;
    case 7: y = ct_pad(x, ct_f(3), .high = CT_INTS(size_of(64 - n, dynamic), 0)); break;
    default: y = ct_concat(((ct_tensor[]){x, ct_slice(fixed, .stop = CT_INTS(a)), x}), 3, 0); break;
    }
    y = ct_mul(y, y);
    out[0] = y;
    ct_tensor wrt[2] = {x, fixed};
    bool both = variant == 8, first = variant != 1 && variant != 6;
    ct_grad(ct_sum(y), first ? wrt : wrt + 1, both ? 2 : 1, out + 1);
    return both ? 3 : 2;
}
static void positions_in_attributes_are_arguments(void **state) {
    (void)state;
    static const int64_t length[] = {9, 3, 10, 16, 17, 33, 40, 64 - 31};
    for (int variant = 0; variant < 9; variant++) {
        serves_all(moved, variant, length, 8);
        near_reference(moved, variant, length, 3);
    }
}

static int quantised(int64_t n, bool dynamic, int variant, ct_tensor *out) {
    static const int64_t layouts[] = {CT_LAYOUT_INT8, CT_LAYOUT_MXFP4};
    ct_tensor x = tensor(1, CT_DIMS(size_of(n, dynamic), 384)), w = tensor(2, CT_DIMS(41, 384));
    ct_quantise_out q = ct_quantise(w, layouts[variant]);
    out[0] = ct_quantised_matmul(x, q.codes, q.scales, layouts[variant]);
    return 1;
}
// Tiles of rows, those that are left, more rows than a task has.
static void rows_of_bytes_are_any_number(void **state) {
    (void)state;
    static const int64_t length[] = {9, 1, 3, 4, 16, 21, 128, 131};
    for (int variant = 0; variant < 2; variant++) serves_all(quantised, variant, length, 8);
    near_reference(quantised, 0, length, 3);
}

static void what_counts_from_the_end_has_a_known_size(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = tensor(1, CT_DIMS(CT_DYN(7), 2));
    ct_tensor last = ct_slice(x, .start = CT_INTS(-3), .stop = CT_INTS(-1));
    ct_tensor wide = ct_expand(ct_slice(x, .start = CT_INTS(-1)), CT_DIMS(5, 2)); // of size 1
    if (ct_failed()) fail_msg("%s", ct_error_text());
    assert_int_equal(ct_dim(last, 0), 2);
    const float *data = ct_data(wide);
    assert_non_null(data);
    for (int i = 0; i < 10; i++) assert_true(data[i] == value_at(12 + i % 2, 1));
}

// ------------------------------------------------------------------------------------------------
// scan

static void cell(const ct_tensor *in, ct_tensor *out, void *user) {
    const ct_tensor *w = user;
    out[0] = ct_tanh(ct_add(ct_matmul(in[0], *w), in[1])); // (1, 5)
    out[1] = ct_mul(out[0], out[0]);
}
static int looped(int64_t n, bool dynamic, int variant, ct_tensor *out) {
    ct_tensor w = tensor(1, CT_DIMS(5, 5)), h = tensor(2, CT_DIMS(1, 5)), last, ys;
    ct_tensor xs = tensor(3, CT_DIMS(size_of(n, dynamic), 1, 5));
    ct_scan(&last, &ys, .body = cell, .user = &w, .carry = &h, .n_carry = 1, .xs = &xs, .n_xs = 1,
            .n_ys = 1, .reverse = variant == 1);
    ct_tensor wrt[3] = {w, h, xs};
    out[0] = last;
    out[1] = ys;
    ct_grad(ct_add(ct_sum(ct_mul(ys, ys)), ct_sum(last)), wrt, 3, out + 2);
    return 5;
}
static void a_loop_of_dynamic_length_compiles_nothing(void **state) {
    (void)state;
    static const int64_t length[] = {4, 1, 2, 7, 16, 33, 5};
    for (int variant = 0; variant < 2; variant++) {
        serves_all(looped, variant, length, 7);
        near_reference(looped, variant, length, 3);
    }
}

static void count_up(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_add(in[0], ct_f(1));
}
static void a_length_can_be_given_as_dynamic(void **state) {
    (void)state;
    for (int64_t n = 0; n < 4; n++) {
        CT_SCOPE;
        ct_tensor zero = ct_zeros(CT_F32, CT_SCALAR), last;
        ct_scan(&last, NULL, .body = count_up, .carry = &zero, .n_carry = 1, .length = CT_DYN(n));
        assert_true(ct_item(last) == (double)n);
    }
    CT_SCOPE;
    ct_tensor zero = ct_zeros(CT_F32, CT_SCALAR), last;
    unsigned line = __LINE__ + 1;
    ct_scan(&last, NULL, .body = count_up, .carry = &zero, .n_carry = 1, .length = -2);
    char want[128];
    snprintf(want, sizeof want,
             "tests/unit/test_dynamic.c:%u: scan: the length is -2\n"
             "  hint: it is how often the body runs, at least 0",
             line);
    assert_string_equal(ct_error_text(), want);
    ct_error_clear();
}

// ------------------------------------------------------------------------------------------------
// attention

enum { CAUSAL = 1, POSITION = 2, MASK = 4, NARROW_MASK = 8, QUERIES = 16, BATCH = 32 };

static ct_tensor mask_of(ct_ints dims) {
    int64_t n = 1;
    for (int64_t i = 0; i < dims.n; i++) n *= ct__unmarked(dims.v[i]);
    unsigned char *v = malloc((size_t)n);
    assert_non_null(v);
    for (int64_t i = 0; i < n; i++) v[i] = value_at(i, 9) > -0.5f;
    ct_tensor t = ct_from(v, CT_BOOL, dims);
    free(v);
    return t;
}
static int attended(int64_t n, bool dynamic, int variant, ct_tensor *out) {
    int64_t keys = size_of(n, dynamic), t = variant & QUERIES ? keys : 5;
    int64_t b = variant & BATCH ? size_of(n % 3 + 1, dynamic) : 2;
    ct_tensor q = tensor(1, CT_DIMS(b, 2, t, 8)), k = tensor(2, CT_DIMS(b, 2, keys, 8)),
              v = tensor(3, CT_DIMS(b, 2, keys, 6));
    ct_attention_args args = {.q = q, .k = k, .v = v, .causal = variant & CAUSAL};
    if (variant & POSITION) args.position = ct_i(60);
    if (variant & MASK) args.mask = mask_of(CT_DIMS(b, 1, t, keys));
    if (variant & NARROW_MASK) args.mask = mask_of(CT_DIMS(t, 1));
    out[0] = ct_attention_with(args);
    ct_tensor wrt[3] = {q, k, v}, w = tensor(4, CT_DIMS(b, 2, t, 6));
    ct_grad(ct_sum(ct_mul(out[0], w)), wrt, 3, out + 1);
    return 4;
}
static void attention_over_a_dynamic_number_of_keys(void **state) {
    (void)state;
    static const int64_t length[] = {130, 1, 63, 64, 65, 200, 257, 128};
    static const int variants[] = {
        0,           CAUSAL,           CAUSAL | POSITION, MASK, CAUSAL | POSITION | MASK,
        NARROW_MASK, CAUSAL | QUERIES, MASK | BATCH};
    const int lengths = getenv("COTAN_TEST_ALL") ? 8 : 5;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        bool large = variants[i] & QUERIES;
        serves_all(attended, variants[i], length + large, large ? 4 : lengths);
    }
    near_reference(attended, CAUSAL | POSITION | MASK, length, 3);
}

// The gradient of a function of the gradient.
static int twice(int64_t n, bool dynamic, int variant, ct_tensor *out) {
    int64_t keys = size_of(n, dynamic);
    ct_tensor q = tensor(1, CT_DIMS(3, 4)), k = tensor(2, CT_DIMS(keys, 4)),
              v = tensor(3, CT_DIMS(keys, 4)), g[3], wrt[3] = {q, k, v};
    ct_tensor y = ct_attention(q, k, v, .causal = variant == 1);
    ct_grad(ct_sum(ct_mul(y, y)), wrt, 3, g);
    ct_tensor norm = ct_sum(ct_mul(g[0], g[0]));
    for (int i = 1; i < 3; i++) norm = ct_add(norm, ct_sum(ct_mul(g[i], g[i])));
    ct_grad(norm, wrt, 3, out);
    return 3;
}
static void second_order_through_the_loop(void **state) {
    (void)state;
    static const int64_t length[] = {70, 1, 64, 130};
    static float got[MOST], want[MOST];
    for (int w = 0; w < WAYS; w++)
        for (int variant = 0; variant < 2; variant++) {
            if (!tried(w, variant)) continue;
            ct_ctx *ctx = enter(ways[w].device, ways[w].fuse);
            uint64_t kernels = 0;
            for (int i = 0; i < 4; i++) {
                run(twice, length[i], true, variant, got);
                if (i == 0) kernels = new_kernels();
                assert_int_equal(new_kernels(), kernels);
            }
            for (int i = 0; i < 4; i++) {
                size_t n = run(twice, length[i], true, variant, got);
                assert_int_equal(run_static(w, twice, length[i], variant, want), n);
                for (size_t k = 0; k < n; k++)
                    if (!(fabsf(got[k] - want[k]) < 1e-5f * (1 + fabsf(want[k]))))
                        fail_msg("%s: length %d, element %d: %.9g, a static length has %.9g",
                                 ways[w].device, (int)length[i], (int)k, (double)got[k],
                                 (double)want[k]);
            }
            leave(ctx);
        }
}

// Two lengths that are equal, or 1, by chance.
// A product's rows are a product of sizes, one of which may be dynamic: what follows it in its kernel
// knows an element's index as quotients of the row, not as variables.
static void a_piece_behind_a_product_is_in_its_place(void **state) {
    (void)state;
    enum { COUNT = 16 * 2 * 7 * 7 };
    float was[COUNT];
    for (int way = 0; way < WAYS * 2; way++) {
        ct_ctx *ctx = enter(ways[way / 2].device, ways[way / 2].fuse);
        int64_t n = size_of(16, way % 2);
        ct_tensor y = ct_matmul(tensor(0, CT_DIMS(n, 2, 7, 3)), tensor(1, CT_DIMS(1, 3, 7)));
        ct_tensor none = tensor(2, CT_DIMS(0, 2, 7, 7));
        const float *is = ct_data(ct_concat(((ct_tensor[]){y, none}), 2, 0)); // (n, 2, 7, 7)
        assert_non_null(is);
        if (way % 2 == 0) memcpy(was, is, sizeof was);
        assert_memory_equal(is, was, sizeof was);
        leave(ctx);
    }
}

static void two_lengths_may_meet(void **state) {
    (void)state;
    static const int64_t pair[][2] = {{5, 130}, {9, 9},  {64, 64}, {1, 1},
                                      {130, 5}, {64, 1}, {1, 64},  {128, 2}};
    ct_ctx *ctx = enter("cpu", "1");
    uint64_t kernels = 0;
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
        CT_SCOPE;
        ct_tensor q = tensor(1, CT_DIMS(2, CT_DYN(pair[i][0]), 8));
        ct_tensor k = tensor(2, CT_DIMS(2, CT_DYN(pair[i][1]), 8));
        ct_tensor v = tensor(3, CT_DIMS(2, CT_DYN(pair[i][1]), 8)), g[3], wrt[3] = {q, k, v};
        ct_tensor y = ct_attention(q, k, v, .causal = true);
        ct_grad(ct_sum(ct_mul(y, y)), wrt, 3, g);
        if (!ct_eval(g, 3)) fail_msg("%s", ct_error_text());
        if (i == 0) kernels = new_kernels();
        assert_int_equal(new_kernels(), kernels);
    }
    leave(ctx);
}

// The value of the second key is so small that its product is rounded to -0; a third key follows,
// masked.
// In ceil mode the number of windows is computed from the size as it is: it is static, and so is the result.
static void windows_that_end_outside(void **state) {
    (void)state;
    ct_ctx *ctx = enter("cpu", "1");
    for (int64_t n = 1; n <= 4; n++) {
        CT_SCOPE;
        ct_tensor x = tensor(1, CT_DIMS(3, CT_DYN(n)));
        ct_tensor most =
            ct_max_pool(x, .kernel = CT_DIMS(2), .stride = CT_DIMS(3), .ceil_mode = true);
        ct_tensor mean =
            ct_avg_pool(x, .kernel = CT_DIMS(2), .stride = CT_DIMS(3), .ceil_mode = true);
        const int64_t windows = ct_dim(most, 1);
        assert_int_equal(windows, n < 4 ? 1 : 2);
        // one window expands, as static axes of size 1 do
        const int64_t columns = windows == 1 ? 5 : windows;
        ct_tensor many = ct_expand(ct_add(most, mean), CT_DIMS(3, columns));
        const float *got = ct_data(many), *own = ct_data(x);
        if (ct_failed()) fail_msg("%s", ct_error_text());
        for (int row = 0; row < 3; row++) {
            const float first = own[row * n], second = n > 1 ? own[row * n + 1] : first;
            const float want = fmaxf(first, second) + (first + second) / 2;
            for (int64_t k = 0; k < (windows == 1 ? columns : 1); k++)
                assert_float_equal(got[row * columns + k], want, 1e-6);
        }
    }
    leave(ctx);
}

// An (n, n) product reshaped to (n): n must be 1, which makes dynamic and static axes equal in size.
static void a_product_with_as_many_elements_as_its_axis(void **state) {
    (void)state;
    ct_ctx *ctx = enter("cpu", "1");
    ct_tensor x = tensor(1, CT_DIMS(CT_DYN(1), 1)), y = tensor(2, CT_DIMS(1, CT_DYN(1)));
    ct_tensor product = ct_reshape(ct_matmul(x, y), CT_DIMS(CT_DYN(1)));
    const double got = ct_item(ct_maximum(product, ct_tanh(y)));
    if (ct_failed()) fail_msg("%s", ct_error_text());
    const float *a = ct_data(x), *b = ct_data(y);
    assert_float_equal(got, fmaxf(a[0] * b[0], tanhf(b[0])), 1e-6);
    leave(ctx);
}

static void a_masked_key_does_not_turn_the_sign_of_zero(void **state) {
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        ct_ctx *ctx = enter(ways[w].device, ways[w].fuse);
        float q[2] = {1, 1}, k[6] = {2, 2, 0, 0, 1, 1}, v[3] = {0, -0x1p-149f, 7}, got[3];
        const bool look[3] = {true, true, false};
        {
            CT_SCOPE;
            ct_tensor query = ct_from(q, CT_F32, CT_DIMS(1, 2)), few[2], all[2], grad[2][2];
            for (int i = 0; i < 2; i++) {
                few[i] = i ? ct_from(v, CT_F32, CT_DIMS(2, 1)) : ct_from(k, CT_F32, CT_DIMS(2, 2));
                all[i] = i ? ct_from(v, CT_F32, CT_DIMS(3, 1)) : ct_from(k, CT_F32, CT_DIMS(3, 2));
            }
            ct_tensor mask = ct_from(look, CT_BOOL, CT_DIMS(1, 3));
            ct_tensor a = ct_attention(query, few[0], few[1]);
            ct_tensor b = ct_attention(query, all[0], all[1], .mask = mask);
            ct_grad(ct_sum(a), &query, 1, grad[0]);
            ct_grad(ct_sum(b), &query, 1, grad[1]);
            const ct_tensor results[4] = {a, b, grad[0][0], grad[1][0]};
            const float *data[4];
            for (int i = 0; i < 4; i++) {
                data[i] = ct_data(results[i]);
                if (!data[i]) fail_msg("%s", ct_error_text());
            }
            got[0] = data[0][0];
            got[1] = data[1][0];
            assert_memory_equal(data[2], data[3], 2 * sizeof(float));
        }
        leave(ctx);
        assert_true(got[0] == 0);
        assert_memory_equal(&got[0], &got[1], sizeof(float));
    }
}

// ------------------------------------------------------------------------------------------------
// how many parts a launch gets

static int64_t parts; // the largest grid of the plans that were dumped
static double mflop;  // the largest estimate
static void read_plan(ct_log_kind kind, const char *text, void *user) {
    (void)user;
    if (kind != CT_LOG_DUMP) return;
    for (const char *s = text; (s = strstr(s, "grid ")); s++) {
        long long grid;
        double megabytes, work;
        if (sscanf(s, "grid %lld, %lf MB, %lf MFLOP", &grid, &megabytes, &work) != 3) continue;
        parts = grid > parts ? grid : parts;
        mflop = work > mflop ? work : mflop;
    }
}
static int spread(int64_t n, bool dynamic, int variant, ct_tensor *out) {
    ct_tensor x = tensor(1, CT_DIMS(size_of(n, dynamic)));
    switch (variant) {
    case 0: out[0] = ct_tanh(x); break;
    case 1: out[0] = ct_sum(x); break;
    case 2:
        out[0] = ct_sum(ct_random_uniform(ct_random_key(7), CT_DIMS(size_of(n, dynamic))));
        break;
    default:
        out[0] =
            ct_sum(ct_mul(tensor(2, CT_DIMS(size_of(n, dynamic), 3)), ct_f(2)), .axes = CT_AXES(0));
        break;
    }
    return 1;
}
static void long_ones_are_spread_over_threads(void **state) {
    (void)state;
    static const int64_t length[] = {700, 1, 1024, 1025, 9000, 31111};
    for (int variant = 0; variant < 4; variant++) serves_all(spread, variant, length, 6);
    enum { LONG = 1 << 20 };
    for (int variant = 0; variant < 4; variant++)
        for (int dynamic = 0; dynamic < 2; dynamic++) {
            ct_ctx *ctx = enter("cpu", "1");
            ct_set_log(read_plan, NULL);
            setenv("COTAN_DUMP", "plan", 1);
            parts = 0;
            mflop = 0;
            {
                CT_SCOPE;
                ct_tensor out;
                spread(LONG, dynamic, variant, &out);
                if (!ct_eval(&out, 1)) fail_msg("%s", ct_error_text());
            }
            unsetenv("COTAN_DUMP");
            leave(ctx);
            if (parts < LONG / 4096) fail_msg("variant %d: %d parts", variant, (int)parts);
            if (mflop < LONG * 1e-6 * 0.99) fail_msg("variant %d: %g MFLOP", variant, mflop);
            if (variant == 2) assert_true(mflop > LONG * 1e-6 * 20); // what is drawn costs
        }
}

int main(void) {
    setenv("COTAN_COMPILE", "wait", 1); // kernels are counted when a plan is made
    printf("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_axis_may_be_empty),
        cmocka_unit_test(positions_in_attributes_are_arguments),
        cmocka_unit_test(rows_of_bytes_are_any_number),
        cmocka_unit_test(what_counts_from_the_end_has_a_known_size),
        cmocka_unit_test(a_loop_of_dynamic_length_compiles_nothing),
        cmocka_unit_test(a_length_can_be_given_as_dynamic),
        cmocka_unit_test(attention_over_a_dynamic_number_of_keys),
        cmocka_unit_test(second_order_through_the_loop),
        cmocka_unit_test(a_piece_behind_a_product_is_in_its_place),
        cmocka_unit_test(two_lengths_may_meet),
        cmocka_unit_test(windows_that_end_outside),
        cmocka_unit_test(a_product_with_as_many_elements_as_its_axis),
        cmocka_unit_test(a_masked_key_does_not_turn_the_sign_of_zero),
        cmocka_unit_test(long_ones_are_spread_over_threads),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ct_ctx_free(ct_ctx_use(NULL));
    return failed;
}
