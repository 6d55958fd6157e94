// Programs written the obvious way compute nothing more often than the same with ct_keep: plans and
// launches are counted on device ref, where every op is a launch.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cotan/nn.h"
#include "cotan/optim.h"
#include "support/record.h"

#define TEST(name) cmocka_unit_test_setup_teardown(name, record_begin, record_end)
#define FILE_NAME "tests/unit/test_obvious.c"

enum { TURNS = 8, ROWS = 12, COLS = 6 };

// What a program gets: is it to say what shall be stored, and what its turns were.
typedef struct run {
    bool keeps;
    uint64_t launches[TURNS], plans[TURNS];
    double values[TURNS];
    int turn;
    ct_stats before;
} run;
static ct_tensor stored(const run *r, ct_tensor t) { return r->keeps ? ct_keep(t) : t; }
static void turn_begins(run *r) { r->before = ct_get_stats(); }
static void turn_ends(run *r, double value) {
    const ct_stats now = ct_get_stats();
    r->launches[r->turn] = now.launches - r->before.launches;
    r->plans[r->turn] = now.plans_made - r->before.plans_made;
    r->values[r->turn++] = value;
}

typedef void (*program)(run *r, ct_params *set);

// From turn `from` on: a value that an outer scope computes is stored at once; where a read in
// mid-step computes something that the step needs again, the plan learns of it in the first turn that
// is like the others.
static void assert_as_fast(program p, int from) {
    run runs[2] = {{.keeps = false}, {.keeps = true}};
    for (int k = 0; k < 2; k++) {
        CT_SCOPE;
        ct_params *set = ct_params_new();
        p(&runs[k], set);
        assert_ok();
        assert_int_equal(runs[k].turn, TURNS);
        ct_params_free(set);
    }
    for (int i = 0; i < TURNS; i++) {
        assert_true(runs[0].values[i] == runs[1].values[i]);
        if (i >= 3) assert_int_equal(runs[0].plans[i], 0); // all is known that plans can learn
        if (i >= from && runs[0].launches[i] > runs[1].launches[i])
            fail_msg("turn %d: %d launches, %d with ct_keep", i, (int)runs[0].launches[i],
                     (int)runs[1].launches[i]);
    }
}

// ---------------------------------------------------------------------------------- what they share

static ct_tensor pixels(void) { // (ROWS, COLS) u8
    uint8_t p[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++) p[i] = (uint8_t)(i * 37 % 251);
    return ct_from(p, CT_U8, CT_DIMS(ROWS, COLS));
}
static ct_tensor normalised(ct_tensor raw) { // f32
    ct_tensor x = ct_cast(raw, CT_F32), off = ct_sub(x, ct_mean(x, .axes = CT_AXES(0)));
    return ct_div(off, ct_sqrt(ct_add(ct_mean(ct_square(off)), ct_f(1e-5))));
}
static ct_tensor weights(ct_params *set, const char *name, int rows, int cols) {
    ct_tensor w = ct_param(set, name, CT_F32, CT_DIMS(rows, cols));
    ct_assign(w, ct_mul(ct_f(0.01), ct_cast(ct_iota(CT_I32, CT_DIMS(rows, cols), 1), CT_F32)));
    return w;
}
static ct_tensor net(ct_tensor x, ct_tensor w, ct_tensor head) { // (B, COLS) -> (B, 1)
    return ct_matmul(ct_tanh(ct_matmul(x, w)), head);
}
static void descend(ct_tensor loss, const ct_tensor *of, size_t n) {
    ct_tensor g[4];
    ct_grad(loss, of, n, g);
    for (size_t i = 0; i < n; i++) ct_assign(of[i], ct_sub(of[i], ct_mul(ct_f(0.01), g[i])));
}
static double newest_of(ct_tensor w) { // when the turn has run
    CT_SCOPE;
    return ct_item(ct_sum(w));
}

// ------------------------------------------------------------------------------------ ten programs

static void data_is_prepared_outside_of_the_loop(run *r, ct_params *set) {
    ct_tensor w[] = {weights(set, "w", COLS, 4), weights(set, "head", 4, 1)};
    ct_tensor x = stored(r, normalised(pixels()));
    for (int i = 0; i < TURNS; i++) {
        turn_begins(r);
        {
            CT_SCOPE;
            descend(ct_mean(ct_square(net(x, w[0], w[1]))), w, 2);
        }
        turn_ends(r, newest_of(w[0]));
    }
}

static void an_epoch_prepares_what_its_steps_use(run *r, ct_params *set) {
    ct_tensor w[] = {weights(set, "w", COLS, 4), weights(set, "head", 4, 1)};
    ct_tensor x = stored(r, normalised(pixels()));
    for (int epoch = 0; epoch < TURNS; epoch++) {
        turn_begins(r);
        {
            CT_SCOPE;
            ct_tensor key = ct_sin(ct_add(ct_iota(CT_F32, CT_DIMS(ROWS), 0), ct_f(epoch)));
            ct_tensor order = ct_topk(key, ROWS).indices;
            ct_tensor mixed = stored(r, ct_gather(x, order));
            for (int step = 0; step < 3; step++) {
                CT_SCOPE;
                ct_tensor at = ct_reshape(ct_i(step * 4), CT_DIMS(1));
                ct_tensor batch =
                    ct_dynamic_slice(mixed, at, .sizes = CT_INTS(4), .axes = CT_AXES(0));
                descend(ct_mean(ct_square(net(batch, w[0], w[1]))), w, 2);
            }
        }
        turn_ends(r, newest_of(w[0]));
    }
}

static void an_evaluation_set_is_prepared_once(run *r, ct_params *set) {
    ct_tensor w = weights(set, "w", COLS, 1), x = stored(r, normalised(pixels()));
    for (int i = 0; i < TURNS; i++) {
        double loss;
        turn_begins(r);
        {
            CT_SCOPE;
            loss = ct_item(ct_mean(ct_square(ct_matmul(x, w))));
        }
        {
            CT_SCOPE;
            ct_assign(w, ct_mul(w, ct_f(0.5)));
        }
        turn_ends(r, loss);
    }
}

// The loss is read before its gradient is taken: what the batch was made of is not made again.
static void a_loss_is_read_in_mid_step(run *r, ct_params *set) {
    ct_tensor w[] = {weights(set, "w", COLS, 4), weights(set, "head", 4, 1)}, raw = pixels();
    for (int i = 0; i < TURNS; i++) {
        double value;
        turn_begins(r);
        {
            CT_SCOPE;
            ct_tensor x = stored(r, normalised(raw));
            ct_tensor loss = ct_mean(ct_square(net(x, w[0], w[1])));
            value = ct_item(loss);
            descend(loss, w, 2);
        }
        turn_ends(r, value);
    }
}

static void several_numbers_of_one_tensor_are_read(run *r, ct_params *set) {
    (void)set;
    ct_tensor raw = pixels();
    for (int i = 0; i < TURNS; i++) {
        CT_SCOPE;
        turn_begins(r);
        ct_tensor x = stored(r, normalised(raw));
        double sum = ct_item(ct_mean(ct_mul(x, ct_f(i)))) + ct_item(ct_max(x)) + ct_item(ct_min(x));
        turn_ends(r, sum);
    }
}

// Only the head is trained: what the frozen part makes of the data is made once.
static void a_head_is_trained_on_frozen_features(run *r, ct_params *set) {
    ct_tensor frozen = weights(set, "frozen", COLS, 4), head = weights(set, "head", 4, 1);
    ct_tensor features = stored(r, ct_tanh(ct_matmul(normalised(pixels()), frozen)));
    for (int i = 0; i < TURNS; i++) {
        turn_begins(r);
        {
            CT_SCOPE;
            descend(ct_mean(ct_square(ct_matmul(features, head))), &head, 1);
        }
        turn_ends(r, newest_of(head));
    }
}

// The gradient goes back through what was computed outside; what that was computed from is stored.
static void a_gradient_goes_back_through_an_outer_value(run *r, ct_params *set) {
    ct_tensor w = weights(set, "w", COLS, 4), x = stored(r, normalised(pixels()));
    ct_tensor h = ct_tanh(ct_matmul(x, w)); // (ROWS, 4)
    for (int i = 0; i < TURNS; i++) {
        CT_SCOPE;
        turn_begins(r);
        ct_tensor g;
        ct_grad(ct_sum(ct_mul(h, ct_f(i + 1))), &w, 1, &g);
        turn_ends(r, ct_item(ct_sum(g)));
    }
}

static void masks_and_positions_are_made_outside(run *r, ct_params *set) {
    ct_tensor w = weights(set, "w", COLS, COLS);
    ct_tensor row = ct_iota(CT_I32, CT_DIMS(ROWS, ROWS), 0),
              col = ct_iota(CT_I32, CT_DIMS(ROWS, ROWS), 1);
    ct_tensor mask = stored(r, ct_less_equal(col, row)), x = stored(r, normalised(pixels()));
    ct_tensor at = stored(r, ct_sin(ct_cast(ct_iota(CT_I32, CT_DIMS(ROWS, COLS), 0), CT_F32)));
    for (int i = 0; i < TURNS; i++) {
        turn_begins(r);
        {
            CT_SCOPE;
            ct_tensor q = ct_add(ct_matmul(x, w), at);                     // (ROWS, COLS)
            ct_tensor scores = ct_matmul(q, ct_permute(q, CT_AXES(1, 0))); // (ROWS, ROWS)
            ct_tensor p = ct_softmax(ct_select(mask, scores, ct_f(-1e9)), .axes = CT_AXES(-1));
            descend(ct_mean(ct_square(ct_matmul(p, q))), &w, 1);
        }
        turn_ends(r, newest_of(w));
    }
}

// A network that follows another one, and two losses of one step.
static void two_networks_take_turns(run *r, ct_params *set) {
    ct_tensor online = weights(set, "online", COLS, 1), target = weights(set, "target", COLS, 1);
    ct_tensor x = stored(r, normalised(pixels()));
    ct_assign(target, online);
    for (int i = 0; i < TURNS; i++) {
        double value;
        turn_begins(r);
        {
            CT_SCOPE;
            ct_tensor wanted = stored(r, ct_stop_gradient(ct_tanh(ct_matmul(x, target))));
            value = ct_item(ct_mean(wanted));
            descend(ct_mean(ct_square(ct_sub(ct_matmul(x, online), wanted))), &online, 1);
            ct_assign(target, ct_add(ct_mul(target, ct_f(0.9)), ct_mul(online, ct_f(0.1))));
        }
        turn_ends(r, value + newest_of(target));
    }
}

// A state is carried through the steps; the matrix that moves it is made outside.
static void a_state_is_carried_on(run *r, ct_params *set) {
    (void)set;
    ct_tensor x = normalised(pixels());
    ct_tensor move =
        stored(r, ct_div(ct_matmul(ct_permute(x, CT_AXES(1, 0)), x), ct_f(ROWS))); // (COLS, COLS)
    ct_tensor state = ct_ones(CT_F32, CT_DIMS(COLS, 1));
    if (r->keeps) state = ct_keep(state);
    for (int i = 0; i < TURNS; i++) {
        double length;
        turn_begins(r);
        {
            CT_SCOPE;
            ct_tensor next = ct_matmul(move, state);
            ct_tensor norm = stored(r, ct_sqrt(ct_sum(ct_square(next))));
            length = ct_item(norm);
            state = ct_keep(ct_div(next, norm));
        }
        turn_ends(r, length);
    }
}

#define AS_FAST(p, from)                                                                           \
    static void test_##p(void **state) {                                                           \
        (void)state;                                                                               \
        assert_as_fast(p, from);                                                                   \
    }
AS_FAST(data_is_prepared_outside_of_the_loop, 1)
AS_FAST(an_epoch_prepares_what_its_steps_use, 1)
AS_FAST(an_evaluation_set_is_prepared_once, 1)
AS_FAST(a_loss_is_read_in_mid_step, 2)
AS_FAST(several_numbers_of_one_tensor_are_read, 1)
AS_FAST(a_head_is_trained_on_frozen_features, 1)
AS_FAST(a_gradient_goes_back_through_an_outer_value, 1)
AS_FAST(masks_and_positions_are_made_outside, 1)
AS_FAST(two_networks_take_turns, 2)
AS_FAST(a_state_is_carried_on, 1)

// ------------------------------------------------------------------------------------ what is said

// A value is computed again, though it is there, where a gradient goes back through it: both lines
// are named.
static void a_value_that_a_gradient_goes_through_is_explained(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 2), g;
    CT_SCOPE;
    const int made = __LINE__ + 1;
    ct_tensor h = ct_mul(w, w);
    assert_true(at(h, 0) == 4);
    setenv("COTAN_EXPLAIN", "1", 1);
    ct_grad(ct_sum(h), &w, 1, &g);
    const int line = __LINE__ - 1;
    record_forget();
    assert_true(at(g, 0) == 4);
    char want[256];
    snprintf(want, sizeof want,
             FILE_NAME ":%d: grad recomputes mul of " FILE_NAME
                       ":%d, though its value is there, to go back through it\n",
             line, made);
    if (!strstr(record_log, want)) fail_msg("want %sgot %s", want, record_log);
    unsetenv("COTAN_EXPLAIN");
    ct_params_free(set);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_data_is_prepared_outside_of_the_loop),
        TEST(test_an_epoch_prepares_what_its_steps_use),
        TEST(test_an_evaluation_set_is_prepared_once),
        TEST(test_a_loss_is_read_in_mid_step),
        TEST(test_several_numbers_of_one_tensor_are_read),
        TEST(test_a_head_is_trained_on_frozen_features),
        TEST(test_a_gradient_goes_back_through_an_outer_value),
        TEST(test_masks_and_positions_are_made_outside),
        TEST(test_two_networks_take_turns),
        TEST(test_a_state_is_carried_on),
        TEST(a_value_that_a_gradient_goes_through_is_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
