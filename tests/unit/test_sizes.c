// One plan serves every value of a dynamic size, and a size or a position becomes dynamic by itself when
// a second value of it is met. The results are those of plans that are made for each value.
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

enum { MOST = 1 << 14 };

static float value_at(int64_t i, int which) {
    uint64_t z = (uint64_t)(i * 16 + which + 77) * 0x9e3779b97f4a7c15u; // SplitMix64
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    return (float)((z ^ z >> 27) >> 40) * 0x1p-23f - 1;
}
static ct_tensor tensor(int which, ct_ints dims, int64_t count) {
    static float v[MOST];
    assert_true(count <= MOST);
    for (int64_t i = 0; i < count; i++) v[i] = value_at(i, which);
    return ct_from(v, CT_F32, dims);
}

// A program for two sizes; gives one result.
typedef ct_tensor (*program)(int64_t n, int64_t m);

static size_t run(program f, int64_t n, int64_t m, float *to) {
    CT_SCOPE;
    ct_tensor out = f(n, m);
    const float *data = ct_data(out);
    if (!data) fail_msg("sizes %d, %d: %s", (int)n, (int)m, ct_error_text());
    size_t size = (size_t)ct_size(out);
    assert_true(size <= MOST);
    memcpy(to, data, size * sizeof *to);
    return size;
}

typedef struct {
    int64_t n, m;
    int plans; // made up to and with this run
} turn;

// In one context, one after the other; and each in a context of its own.
static void turns(program f, const turn *t, int n_turns) {
    static float got[MOST], want[MOST];
    ct_ctx *ctx = ct_ctx_new(), *own = NULL;
    assert_non_null(ctx);
    int made = 0;
    for (int i = 0; i < n_turns; i++) {
        ct_ctx_use(ctx);
        ct_set_log(NULL, NULL); // many shapes on one line are meant here
        uint64_t before = ct_get_stats().plans_made;
        size_t n = run(f, t[i].n, t[i].m, got);
        made += (int)(ct_get_stats().plans_made - before);
        if (made != t[i].plans)
            fail_msg("turn %d, sizes %d, %d: %d plans, not %d", i, (int)t[i].n, (int)t[i].m, made,
                     t[i].plans);
        ct_ctx_use(own = ct_ctx_new());
        size_t same = run(f, t[i].n, t[i].m, want);
        ct_ctx_use(NULL);
        ct_ctx_free(own);
        assert_int_equal(n, same);
        for (size_t k = 0; k < n; k++)
            if (memcmp(&got[k], &want[k], sizeof *got) != 0)
                fail_msg("turn %d, sizes %d, %d, element %d: %.9g, alone it is %.9g", i,
                         (int)t[i].n, (int)t[i].m, (int)k, (double)got[k], (double)want[k]);
    }
    ct_ctx_use(NULL);
    ct_ctx_free(ctx);
}
#define TURNS(f, ...)                                                                              \
    turns(f, (const turn[]){__VA_ARGS__}, (int)(sizeof((turn[]){__VA_ARGS__}) / sizeof(turn)))

static ct_tensor layer(ct_tensor x) { // (n, 8)
    ct_tensor w = tensor(2, CT_DIMS(8, 12), 96), b = tensor(3, CT_DIMS(12), 12);
    return ct_softmax(ct_gelu(ct_add(ct_matmul(x, w), b)));
}
static ct_tensor rows(int64_t n, int64_t m) {
    (void)m;
    return layer(tensor(1, CT_DIMS(n, 8), n * 8));
}
static void a_batch_becomes_dynamic_by_itself(void **state) {
    (void)state;
    // The first size keeps its plan; 0 and 1 have plans of their own.
    TURNS(rows, {5, 0, 1}, {7, 0, 2}, {9, 0, 2}, {300, 0, 2}, {5, 0, 2}, {2, 0, 2}, {1, 0, 3},
          {1, 0, 3}, {4, 0, 3});
}

static ct_tensor marked_rows(int64_t n, int64_t m) {
    return layer(tensor(1, CT_DIMS(CT_DYN(n), 8), n * 8 + 0 * m));
}
static void a_marked_size_is_dynamic_from_the_first(void **state) {
    (void)state;
    TURNS(marked_rows, {5, 0, 1}, {7, 0, 1}, {1, 0, 1}, {200, 0, 1}, {0, 0, 1}, {5, 0, 1});
}

static ct_tensor columns(int64_t n, int64_t m) {
    (void)m;
    return ct_sum(tensor(1, CT_DIMS(6, n), 6 * n), .axes = CT_AXES(1));
}
static ct_tensor list(int64_t n, int64_t m) {
    (void)m;
    return ct_cumsum(tensor(1, CT_DIMS(n), n));
}
static void the_last_axis_of_floats_stays(void **state) {
    (void)state;
    TURNS(columns, {5, 0, 1}, {7, 0, 2}, {9, 0, 3}, {5, 0, 3});
    TURNS(list, {5, 0, 1}, {7, 0, 2}, {2000, 0, 2}, {6, 0, 2});
}

// Where an op needs a size when the plan is made, each size has a plan of its own.
static ct_tensor rolled(int64_t n, int64_t m) {
    (void)m;
    return ct_mul(ct_roll(tensor(1, CT_DIMS(n), n), CT_AXES(1)), ct_f(2));
}
static ct_tensor halves(int64_t n, int64_t m) {
    (void)m;
    return ct_glu(tensor(1, CT_DIMS(2 * n, 8), 16 * n), 0);
}
static void a_size_that_must_be_static_stays(void **state) {
    (void)state;
    TURNS(rolled, {5, 0, 1}, {7, 0, 2}, {9, 0, 3}, {5, 0, 3}, {7, 0, 3});
    TURNS(halves, {5, 0, 1}, {7, 0, 2}, {9, 0, 3}, {5, 0, 3});
}

// Sizes that the program computes are attributes that change with the leaf.
static ct_tensor split(int64_t n, int64_t m) {
    ct_tensor x = tensor(1, CT_DIMS(n, 2 * m, 3), 6 * n * m);
    x = ct_reshape(x, CT_DIMS(n * m, 2, 3));
    x = ct_add(ct_permute(x, CT_AXES(1, 0, 2)), ct_ones(CT_F32, CT_DIMS(n * m, 1)));
    return ct_mean(ct_reshape(x, CT_DIMS(2, n, 3 * m)), .axes = CT_AXES(1));
}
static void computed_sizes_follow(void **state) {
    (void)state;
    TURNS(split, {5, 4, 1}, {7, 4, 2}, {9, 4, 2}, {9, 6, 3}, {8, 11, 3}, {4, 4, 3}, {5, 4, 3});
}

// Equal by chance, the first time.
static ct_tensor two_sizes(int64_t n, int64_t m) {
    ct_tensor a = tensor(1, CT_DIMS(n, 4), 4 * n), b = tensor(2, CT_DIMS(m, 4), 4 * m);
    ct_tensor both[] = {a, b};
    return ct_matmul(ct_concat(both, 2, 0), tensor(3, CT_DIMS(4, 5), 20));
}
static void sizes_that_are_equal_by_chance(void **state) {
    (void)state;
    TURNS(two_sizes, {5, 5, 1}, {6, 6, 2}, {6, 9, 2}, {3, 70, 2}, {5, 5, 2});
}

static ct_tensor window(int64_t n, int64_t m) {
    ct_tensor x = tensor(1, CT_DIMS(64, 4), 256);
    return ct_exp(ct_slice(x, .axes = CT_AXES(0), .start = CT_INTS(n), .stop = CT_INTS(n + m)));
}
static void a_position_becomes_dynamic_by_itself(void **state) {
    (void)state;
    TURNS(window, {0, 8, 1}, {8, 8, 2}, {16, 8, 2}, {24, 8, 2}, {56, 8, 2}, {3, 10, 2}, {0, 8, 2});
}

static ct_tensor slope(int64_t n, int64_t m) {
    ct_tensor x = tensor(1, CT_DIMS(n, m, 4), n * m * 4), w = tensor(2, CT_DIMS(4, 4), 16), g;
    ct_tensor y = ct_attention(x, ct_matmul(x, w), x, .causal = true);
    ct_grad(ct_sum(ct_mul(y, ct_layer_norm(x))), &w, 1, &g);
    return g;
}
static void gradients_too(void **state) {
    (void)state;
    TURNS(slope, {3, 5, 1}, {4, 5, 2}, {6, 5, 2}, {6, 7, 3}, {2, 9, 3}, {5, 200, 3}, {1, 64, 4});
}

static void next_state(const ct_tensor *in, ct_tensor *out, void *user) {
    out[0] = ct_tanh(ct_add(in[0], ct_mul(in[1], *(const ct_tensor *)user)));
    out[1] = ct_exp(out[0]);
}
static void half(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_sin(ct_add(ct_mul(in[1], ct_f(0.5)), ct_cast(in[0], CT_F32)));
}
// Along an axis, and so often as a number says; and the gradient of both.
static ct_tensor loops(int64_t n, int64_t m) {
    ct_tensor x = tensor(1, CT_DIMS(n, 8), n * 8), w = tensor(2, CT_DIMS(8), 8), slope;
    ct_tensor first = tensor(3, CT_DIMS(8), 8), last, states, end;
    ct_scan(&last, &states, .body = next_state, .user = &w, .carry = &first, .n_carry = 1, .xs = &x,
            .n_xs = 1, .n_ys = 1);
    ct_fori(&end, .body = half, .upper = m, .carry = &last, .n_carry = 1);
    ct_grad(ct_add(ct_sum(states), ct_sum(ct_square(end))), &w, 1, &slope);
    ct_tensor both[] = {ct_add(states, slope), ct_expand(end, CT_DIMS(2, 8))};
    return ct_concat(both, 2, 0);
}
static void the_length_of_a_loop_too(void **state) {
    (void)state;
    TURNS(loops, {5, 3, 1}, {7, 3, 2}, {900, 3, 2}, {3, 3, 2}, {5, 3, 2}, {7, 6, 3}, {9, 1500, 3},
          {2, 2, 3}, {1, 3, 4}, {5, 1, 5});
}

// Sizes inside of functions: of what a loop carries, goes along and gives, and of what a branch makes.
static ct_tensor sized(int which, ct_ints dims) { // (., ., 8) or (., 8)
    int64_t count = 1;
    for (int64_t i = 0; i < dims.n; i++)
        count *= (dims.v[i] < CT_DYN(0) ? dims.v[i] : dims.v[i] - CT_DYN(0));
    return tensor(which, dims, count);
}
static void cell(const ct_tensor *in, ct_tensor *out, void *user) {
    out[0] = ct_tanh(ct_add(ct_matmul(in[0], *(const ct_tensor *)user), in[1]));
    out[1] = ct_sum(ct_square(out[0]), .axes = CT_AXES(1));
}
static ct_tensor recurrent(int64_t n, int64_t m) {
    ct_tensor x = sized(1, CT_DIMS(m, n, 8)), w = sized(2, CT_DIMS(8, 8)), last, squares, slope;
    ct_tensor first = ct_full(ct_f(0.5), CT_DIMS(n, 8));
    ct_scan(&last, &squares, .body = cell, .user = &w, .carry = &first, .n_carry = 1, .xs = &x,
            .n_xs = 1, .n_ys = 1);
    ct_tensor ends = ct_add(last, ct_reshape(ct_sum(squares, .axes = CT_AXES(0)), CT_DIMS(n, 1)));
    ct_grad(ct_sum(ct_mul(ends, ends)), &w, 1, &slope);
    ct_tensor both[] = {ends, slope};
    return ct_concat(both, 2, 0);
}
static ct_tensor marked_recurrent(int64_t n, int64_t m) { return recurrent(CT_DYN(n), CT_DYN(m)); }
static void sizes_inside_of_a_loop_too(void **state) {
    (void)state;
    TURNS(recurrent, {5, 3, 1}, {7, 4, 2}, {30, 9, 2}, {4, 4, 2}, {5, 3, 2}, {1, 3, 3});
    TURNS(marked_recurrent, {5, 3, 1}, {7, 4, 1}, {30, 9, 1}, {4, 4, 1}, {1, 1, 1}, {9, 0, 1});
}

static void below_ten(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_less(ct_sum(in[0]), ct_f(10));
}
static void grow(const ct_tensor *in, ct_tensor *out, void *user) {
    out[0] = ct_add(ct_abs(ct_add(in[0], *(const ct_tensor *)user)), ct_f(0.125));
}
static ct_tensor until(int64_t n, int64_t m) {
    ct_tensor x = sized(1, CT_DIMS(n, 8)), y = sized(2, CT_DIMS(m, 8)), last;
    ct_tensor more = ct_expand(ct_mean(y, .axes = CT_AXES(0)), CT_DIMS(n, 8));
    ct_while(&last, .cond = below_ten, .body = grow, .user = &more, .carry = &x, .n_carry = 1);
    return ct_flip(ct_mul(last, ct_f(0.25)), CT_AXES(0));
}
static ct_tensor marked_until(int64_t n, int64_t m) { return until(CT_DYN(n), CT_DYN(m)); }

static void twice(const ct_tensor *in, ct_tensor *out, void *user) {
    const ct_tensor both[] = {in[0], *(const ct_tensor *)user};
    out[0] = ct_sin(ct_concat(both, 2, 0));
    out[1] = ct_sum(in[0], .axes = CT_AXES(0));
}
static void backwards(const ct_tensor *in, ct_tensor *out, void *user) {
    const ct_tensor both[] = {*(const ct_tensor *)user, in[0]};
    out[0] = ct_concat(both, 2, 0);
    out[1] = ct_max(in[0], .axes = CT_AXES(0));
}
static ct_tensor chosen(int64_t n, int64_t m) {
    ct_tensor x = sized(1, CT_DIMS(n, 8)), y = sized(2, CT_DIMS(m, 8)), one[2], other[2], slope;
    ct_tensor positive = ct_greater(ct_sum(x), ct_f(0));
    ct_cond(one, .pred = positive, .then = twice, .otherwise = backwards, .user = &y, .in = &x,
            .n_in = 1, .n_out = 2);
    const ct_fn branches[] = {backwards, twice, backwards};
    ct_switch(other, .index = ct_cast(ct_sum(ct_cast(ct_greater(y, ct_f(0.9)), CT_I32)), CT_I32),
              .branches = branches, .n_branches = 3, .user = &x, .in = &y, .n_in = 1, .n_out = 2);
    ct_tensor all = ct_add(ct_mul(one[0], ct_exp(one[1])), ct_flip(other[0], CT_AXES(0)));
    ct_grad(ct_sum(ct_square(ct_add(all, other[1]))), &x, 1, &slope);
    ct_tensor both[] = {all, slope};
    return ct_concat(both, 2, 0);
}
static ct_tensor marked_chosen(int64_t n, int64_t m) { return chosen(CT_DYN(n), CT_DYN(m)); }
static void what_a_predicate_decides_too(void **state) {
    (void)state;
    TURNS(until, {5, 3, 1}, {7, 4, 2}, {30, 9, 2}, {4, 4, 2}, {5, 3, 2}, {3, 200, 2});
    TURNS(marked_until, {5, 3, 1}, {7, 4, 1}, {30, 9, 1}, {4, 4, 1}, {1, 1, 1});
    TURNS(chosen, {5, 3, 1}, {7, 4, 2}, {30, 9, 2}, {4, 4, 2}, {5, 3, 2}, {3, 200, 2});
    TURNS(marked_chosen, {5, 3, 1}, {7, 4, 1}, {30, 9, 1}, {4, 4, 1}, {1, 1, 1}, {2, 90, 1});
}

static void region(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_tensor last, squares, first = ct_mul(in[0], ct_f(0));
    ct_scan(&last, &squares, .body = cell, .user = user, .carry = &first, .n_carry = 1,
            .xs = &in[1], .n_xs = 1, .n_ys = 1);
    out[0] = ct_mul(last, ct_sum(in[0], .axes = CT_AXES(0), .keepdims = true));
}
static ct_tensor computed_again(int64_t n, int64_t m) {
    ct_tensor w = sized(3, CT_DIMS(8, 8)), out, slope[2];
    ct_tensor in[] = {sized(1, CT_DIMS(n, 8)), sized(2, CT_DIMS(m, n, 8))};
    ct_remat(.f = region, .user = &w, .in = in, .n_in = 2, .out = &out, .n_out = 1);
    ct_tensor wrt[] = {in[0], w};
    ct_grad(ct_sum(ct_square(out)), wrt, 2, slope);
    ct_tensor all[] = {out, slope[0], slope[1]};
    return ct_concat(all, 3, 0);
}
static ct_tensor marked_again(int64_t n, int64_t m) { return computed_again(CT_DYN(n), CT_DYN(m)); }
static void what_a_gradient_computes_again_too(void **state) {
    (void)state;
    TURNS(computed_again, {5, 3, 1}, {7, 4, 2}, {30, 9, 2}, {4, 4, 2}, {5, 3, 2});
    TURNS(marked_again, {5, 3, 1}, {7, 4, 1}, {30, 9, 1}, {4, 4, 1}, {1, 1, 1});
}

// Where a slice begins and ends varies, how long it is does not.
static ct_tensor from_the_last(int64_t n, int64_t m) {
    ct_tensor x = tensor(1, CT_DIMS(n, 8), n * 8 + 0 * m);
    return ct_sub(x, ct_slice(x, .axes = CT_AXES(0), .start = CT_INTS(n - 1), .stop = CT_INTS(n)));
}
static void one_row_broadcasts_wherever_it_lies(void **state) {
    (void)state;
    TURNS(from_the_last, {5, 0, 1}, {7, 0, 2}, {30, 0, 2}, {2, 0, 2}, {1, 0, 3});
}

// Two sums of as many elements, of one axis and of two, are one loop over blocks.
static ct_tensor sums(int64_t n, int64_t m) {
    ct_tensor x = tensor(1, CT_DIMS(CT_DYN(n), CT_DYN(m)), n * m);
    ct_tensor flat = ct_reshape(x, CT_DIMS(CT_DYN(n * m)));
    ct_tensor both[] = {ct_sum(ct_mul(x, ct_f(2))), ct_sum(ct_sub(flat, ct_f(1)))};
    ct_tensor out = ct_sub(both[1], ct_mul(both[0], ct_f(0.5)));
    const double count = (double)(n * m);
    assert_true(fabs(ct_item(out) + count) < 1e-3 * count);
    return out;
}
static void sums_of_other_axes_in_one_loop(void **state) {
    (void)state;
    TURNS(sums, {8, 10, 1}, {100, 20, 1}, {3, 5, 1});
}

// What lies in memory for a run is what its sizes need.
static void one_arena_for_all_lengths(void **state) {
    (void)state;
    static float got[MOST];
    ct_ctx *ctx = ct_ctx_new();
    assert_non_null(ctx);
    ct_ctx_use(ctx);
    ct_set_log(NULL, NULL);
    uint64_t before = ct_get_stats().arena_bytes;
    run(marked_rows, 1000, 0, got);
    uint64_t largest = ct_get_stats().arena_bytes - before;
    uint64_t plans = ct_get_stats().plans_made;
    for (int i = 0; i < 300; i++) run(marked_rows, 1 + i * 613 % 1000, 0, got);
    assert_int_equal(ct_get_stats().plans_made, plans);
    assert_true(ct_get_stats().arena_bytes - before <= largest + largest / 10);
    ct_ctx_use(NULL);
    ct_ctx_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_becomes_dynamic_by_itself),
        cmocka_unit_test(a_marked_size_is_dynamic_from_the_first),
        cmocka_unit_test(the_last_axis_of_floats_stays),
        cmocka_unit_test(a_size_that_must_be_static_stays),
        cmocka_unit_test(computed_sizes_follow),
        cmocka_unit_test(sizes_that_are_equal_by_chance),
        cmocka_unit_test(a_position_becomes_dynamic_by_itself),
        cmocka_unit_test(gradients_too),
        cmocka_unit_test(the_length_of_a_loop_too),
        cmocka_unit_test(sizes_inside_of_a_loop_too),
        cmocka_unit_test(what_a_predicate_decides_too),
        cmocka_unit_test(what_a_gradient_computes_again_too),
        cmocka_unit_test(one_row_broadcasts_wherever_it_lies),
        cmocka_unit_test(sums_of_other_axes_in_one_loop),
        cmocka_unit_test(one_arena_for_all_lengths),
    };
    setenv("COTAN_CC", "none", 0); // the bits are the same
    return cmocka_run_group_tests_name("sizes", tests, NULL, NULL);
}
