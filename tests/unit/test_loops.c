// Loops and branches on devices: values, gradients, no way back to the host program while they turn.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "backend/backend.h"
#include "compile/plan.h"
#include "support/record.h"

static const char *const devices[] = {"ref", "cpu", "async:ref", "async:cpu"};
enum { DEVICES = sizeof devices / sizeof *devices };
#define EACH_DEVICE                                                                                \
    for (int device_ = 0; device_ < DEVICES; device_++)                                            \
        if (!ct_set_device(devices[device_]))                                                      \
            fail_msg("%s", ct_error_text());                                                       \
        else

static ct_tensor number(double v) { return ct_from(&v, CT_F64, CT_SCALAR); }
static ct_tensor whole(int32_t v) { return ct_from(&v, CT_I32, CT_SCALAR); }
static ct_tensor truth(bool v) { return ct_from(&v, CT_BOOL, CT_SCALAR); }
static double value(ct_tensor t) {
    double v = ct_item(t);
    assert_ok();
    return v;
}
static void near(double a, double b) {
    if (!(fabs(a - b) <= 1e-9 * (1 + fabs(b)))) fail_msg("%.17g is not %.17g", a, b);
}

// ------------------------------------------------------------------------------------------- while

// Newton's method for the root of x^2 = a; carried: x, and how often it turned.
static void improves(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_tensor a = *(ct_tensor *)user;
    out[0] = ct_greater(ct_abs(ct_sub(ct_mul(in[0], in[0]), a)), ct_mul(ct_f(1e-12), a));
}
static void newton(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_tensor a = *(ct_tensor *)user;
    out[0] = ct_div(ct_add(in[0], ct_div(a, in[0])), ct_f(2));
    out[1] = ct_add(in[1], ct_i(1));
}
static void root(ct_tensor a, ct_tensor *out) {
    ct_tensor start[2] = {number(1), whole(0)};
    ct_while(out, .cond = improves, .body = newton, .user = &a, .carry = start, .n_carry = 2);
}

static void a_while_loop_turns_until_its_predicate_fails(void **state) {
    (void)state;
    EACH_DEVICE {
        uint64_t before = plans_made();
        for (int i = 0; i < 3; i++) {
            CT_SCOPE;
            double a = (double[]){2, 1e10, 1}[i];
            ct_tensor out[2];
            root(number(a), out);
            near(value(out[0]), sqrt(a));
            int turns = 0;
            for (double x = 1; fabs(x * x - a) > 1e-12 * a; turns++) x = (x + a / x) / 2;
            assert_int_equal(value(out[1]), turns); // 0 of the last
        }
        assert_int_equal(plans_made() - before, 1);
    }
}

// A device that counts what the host program asks of it.
static const ct_backend *counted;
static int copies_out, submissions;
static bool count_copy(ct_device *d, ct_operand from, void *to, size_t n, ct_err *err) {
    copies_out++;
    return counted->copy_out(d, from, to, n, err);
}
static bool count_submit(ct_device *d, const ct_command *c, size_t n, ct_err *err) {
    submissions += n > 0;
    return counted->submit(d, c, n, err);
}

static void a_while_loop_makes_no_round_trip(void **state) {
    (void)state;
    if (getenv("COTAN_CHECK")) return; // looks at ops one by one
    EACH_DEVICE {
        ct_device *device = ((ct_executor *)ct__ctx()->device)->device;
        ct_backend counting = *device->backend;
        counted = device->backend;
        counting.copy_out = count_copy;
        counting.submit = count_submit;
        int copies[2], submits[2];
        for (int i = 0; i < 2; i++) {
            CT_SCOPE;
            ct_tensor out[2];
            copies_out = submissions = 0;
            root(number(i ? 1e300 : 4), out);
            device->backend = &counting;
            double turns = value(out[1]);
            device->backend = counted;
            assert_true(i ? turns > 500 : turns < 10);
            copies[i] = copies_out;
            submits[i] = submissions;
        }
        assert_int_equal(copies[0], copies[1]);
        assert_int_equal(submits[0], submits[1]);
        assert_true(submits[1] <= 1);
    }
}

// A body that is too large for one kernel: the device goes from launch to launch.
static void any_below(const ct_tensor *in, ct_tensor *out, void *user) {
    out[0] = ct_any(ct_less(in[0], *(ct_tensor *)user));
}
static void each_one_more(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_add(in[0], ct_f(1));
}
static void nor_does_one_of_launches(void **state) {
    (void)state;
    if (getenv("COTAN_CHECK")) return;
    enum { wide = 1 << 17 };
    EACH_DEVICE {
        ct_device *device = ((ct_executor *)ct__ctx()->device)->device;
        ct_backend counting = *device->backend;
        counted = device->backend;
        counting.copy_out = count_copy;
        counting.submit = count_submit;
        int copies[2], submits[2];
        for (int i = 0; i < 2; i++) {
            CT_SCOPE;
            ct_tensor limit = number(i ? 40 : 2), x = ct_zeros(CT_F64, CT_DIMS(wide)), out;
            copies_out = submissions = 0;
            ct_while(&out, .cond = any_below, .body = each_one_more, .user = &limit, .carry = &x,
                     .n_carry = 1);
            ct_tensor least = ct_min(out);
            device->backend = &counting;
            double turns = value(least);
            device->backend = counted;
            near(turns, i ? 40 : 2);
            copies[i] = copies_out;
            submits[i] = submissions;
        }
        assert_int_equal(copies[0], copies[1]);
        assert_int_equal(submits[0], submits[1]);
        assert_true(submits[1] <= 1);
    }
}

// An Euclid of two carried whole numbers that change places.
static void goes_on(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_not_equal(in[1], ct_i(0));
}
static void euclid(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = in[1];
    out[1] = ct_mod(in[0], in[1]);
}
static void what_is_carried_may_change_places(void **state) {
    (void)state;
    EACH_DEVICE {
        CT_SCOPE;
        ct_tensor start[2] = {whole(1071), whole(462)}, out[2];
        ct_while(out, .cond = goes_on, .body = euclid, .carry = start, .n_carry = 2);
        near(value(out[0]), 21);
        near(value(out[1]), 0);
        near(value(start[0]), 1071); // what it began with stays
    }
}

// -------------------------------------------------------------------------------------------- fori

static void add_power(const ct_tensor *in, ct_tensor *out, void *user) { // sum of i * x^i
    ct_tensor x = *(ct_tensor *)user, i = ct_cast(in[0], CT_F64);
    out[0] = ct_add(in[1], ct_mul(i, in[2]));
    out[1] = ct_mul(in[2], x);
}
static double powers(double x, int lower, int upper) {
    double sum = 0, power = 1;
    for (int i = lower; i < upper; i++, power *= x) sum += i * power;
    return sum;
}

static void counting_loops(void **state) {
    (void)state;
    EACH_DEVICE {
        for (int i = 0; i < 4; i++) {
            CT_SCOPE;
            int lower = (int[]){0, -2, 3, 5}[i], upper = (int[]){4, 3, 3, 1}[i];
            ct_tensor x = number(0.9), start[2] = {number(0), number(1)}, known[2], later[2], slope;
            ct_fori(known, .body = add_power, .user = &x, .lower = lower, .upper = upper,
                    .carry = start, .n_carry = 2);
            ct_fori(later, .body = add_power, .user = &x, .lower_value = whole(lower),
                    .upper_value = whole(upper), .carry = start, .n_carry = 2);
            ct_grad(known[0], &x, 1, &slope);
            near(value(known[0]), powers(0.9, lower, upper));
            near(value(later[0]), powers(0.9, lower, upper));
            double e = 1e-6;
            assert_true(fabs(value(slope) -
                             (powers(0.9 + e, lower, upper) - powers(0.9 - e, lower, upper)) /
                                 (2 * e)) < 1e-6);
        }
    }
}

static void one_plan_serves_all_bounds(void **state) {
    (void)state;
    EACH_DEVICE {
        uint64_t before = plans_made();
        for (int n = 1; n < 2000; n *= 3) {
            CT_SCOPE;
            ct_tensor x = number(0.999), start[2] = {number(0), number(1)}, out[2];
            ct_fori(out, .body = add_power, .user = &x, .upper_value = whole(n), .carry = start,
                    .n_carry = 2);
            near(value(out[0]), powers(0.999, 0, n));
        }
        assert_int_equal(plans_made() - before, 1);
    }
}

// ------------------------------------------------------------------------------------ cond, switch

static void squared(const ct_tensor *in, ct_tensor *out, void *user) {
    out[0] = ct_mul(ct_square(in[0]), *(ct_tensor *)user);
    out[1] = in[1];
}
static void cubed(const ct_tensor *in, ct_tensor *out, void *user) {
    out[0] = ct_mul(ct_mul(in[0], ct_square(in[0])), in[1]);
    out[1] = ct_add(in[1], *(ct_tensor *)user);
}

static void one_branch_runs_and_has_its_gradient(void **state) {
    (void)state;
    EACH_DEVICE {
        uint64_t before = plans_made();
        for (int holds = 0; holds < 2; holds++) {
            CT_SCOPE;
            ct_tensor c = number(5), in[2] = {number(3), number(2)}, out[2], g[3], gg;
            ct_tensor wrt[3] = {in[0], in[1], c};
            ct_cond(out, .pred = truth(holds), .then = squared, .otherwise = cubed, .user = &c,
                    .in = in, .n_in = 2, .n_out = 2);
            ct_grad(ct_add(out[0], ct_mul(ct_f(10), out[1])), wrt, 3, g);
            ct_grad(g[0], &in[0], 1, &gg);
            const double want[2][6] = {{54, 7, 54, 37, 10, 36}, {45, 2, 30, 10, 9, 10}};
            ct_tensor all[] = {out[0], out[1], g[0], g[1], g[2], gg};
            if (!ct_eval(all, 6)) fail_msg("%s", ct_error_text());
            for (int i = 0; i < 6; i++) near(value(all[i]), want[holds][i]);
        }
        assert_int_equal(plans_made() - before, 1);
    }
}

static void times_0(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_neg(in[0]);
}
static void times_1(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = in[0];
}
static void times_2(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_add(ct_mul(in[0], in[0]), ct_mul(ct_f(2), in[0]));
}
static const ct_fn three[] = {times_0, times_1, times_2};
static double of_three(int branch, double x) {
    return branch <= 0 ? -x : branch == 1 ? x : x * x + 2 * x;
}

static void an_index_outside_is_the_nearest(void **state) {
    (void)state;
    EACH_DEVICE {
        for (int i = -2; i < 5; i++) {
            CT_SCOPE;
            int64_t far = i < 0 ? -(1ll << 40) : i > 2 ? 1ll << 40 : i;
            ct_tensor x = number(3), near_one, far_one, g;
            ct_switch(&near_one, .index = whole(i), .branches = three, .n_branches = 3, .in = &x,
                      .n_in = 1, .n_out = 1);
            ct_switch(&far_one, .index = ct_from(&far, CT_I64, CT_SCALAR), .branches = three,
                      .n_branches = 3, .in = &x, .n_in = 1, .n_out = 1);
            ct_grad(near_one, &x, 1, &g);
            near(value(near_one), of_three(i, 3));
            near(value(far_one), of_three(i, 3));
            near(value(g), i <= 0 ? -1 : i == 1 ? 1 : 8);
        }
    }
}

// ----------------------------------------------------------------------------------------- nesting

// A scan over rows of a scan over their elements, which chooses at each.
static void grow(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_mul(in[0], ct_f(1.5));
}
static void shrink(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_add(in[0], in[1]);
}
static void element(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_cond(out, .pred = ct_greater(in[1], ct_f(0.5)), .then = grow, .otherwise = shrink,
            .user = user, .in = in, .n_in = 2, .n_out = 1);
    out[1] = ct_mul(out[0], in[1]);
}
static void row(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_scan(&out[0], &out[1], .body = element, .user = user, .carry = in, .n_carry = 1,
            .xs = in + 1, .n_xs = 1, .n_ys = 1, .reverse = true);
}
enum { ROWS = 3, COLUMNS = 4 };
static double by_hand(double h, const double *x, double *sum) {
    *sum = 0;
    for (int r = 0; r < ROWS; r++)
        for (int c = COLUMNS - 1; c >= 0; c--) {
            double v = x[r * COLUMNS + c];
            h = v > 0.5 ? h * 1.5 : h + v;
            *sum += h * v;
        }
    return h;
}

static void loops_in_loops_with_branches(void **state) {
    (void)state;
    EACH_DEVICE {
        CT_SCOPE;
        double x[ROWS * COLUMNS], sum, e = 1e-6, up, down;
        for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = fmod(0.37 * i + 0.11, 1);
        ct_tensor h = number(0.7), xs = ct_from(x, CT_F64, CT_DIMS(ROWS, COLUMNS)), last, ys, g[2],
                  wrt[2] = {h, xs};
        ct_scan(&last, &ys, .body = row, .carry = &h, .n_carry = 1, .xs = &xs, .n_xs = 1,
                .n_ys = 1);
        ct_grad(ct_add(last, ct_sum(ys)), wrt, 2, g);
        double want = by_hand(0.7, x, &sum);
        near(value(last), want);
        near(value(ct_sum(ys)), sum);
        double slope = (by_hand(0.7 + e, x, &up) + up - by_hand(0.7 - e, x, &down) - down);
        assert_true(fabs(value(g[0]) - slope / (2 * e)) < 1e-6);
        const double *gx = ct_data(g[1]);
        assert_ok();
        for (int i = 0; i < ROWS * COLUMNS; i++) {
            double at = x[i];
            x[i] = at + e;
            double more = by_hand(0.7, x, &up) + up;
            x[i] = at - e;
            double less = by_hand(0.7, x, &down) + down;
            x[i] = at;
            assert_true(fabs(gx[i] - (more - less) / (2 * e)) < 1e-6);
        }
    }
}

// ----------------------------------------------------------------------------------------- lengths

static void leak(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_tensor w = *(ct_tensor *)user;
    out[0] = ct_add(ct_mul(w, in[0]), in[1]);
    out[1] = ct_mul(out[0], out[0]);
}
static double leaked(double w, const double *x, int n, int reverse) {
    double h = 0.25, sum = 0;
    for (int i = 0; i < n; i++) {
        h = w * h + x[reverse ? n - 1 - i : i];
        sum += h * h;
    }
    return sum + h;
}

// Forwards and backwards, with gradients.
static void one_plan_serves_all_lengths(void **state) {
    (void)state;
    static double x[3000];
    for (int i = 0; i < 3000; i++) x[i] = sin(i);
    if (getenv("COTAN_CHECK")) return; // a check plans for each length
    if (!ct_set_device("cpu")) fail_msg("%s", ct_error_text());
    for (int reverse = 0; reverse < 2; reverse++) {
        uint64_t before = plans_made();
        const int lengths[] = {10, 3000, 3, 777};
        for (int i = 0; i < 4; i++) {
            CT_SCOPE;
            int n = lengths[i];
            enum { wide = 3 };
            ct_tensor w = number(0.5), xs = ct_from(x, CT_F64, CT_DIMS(CT_DYN(n))), last, ys, g[2],
                      wrt[2] = {w, xs};
            // (n, wide), and the same number in each place of a row
            xs = ct_expand(ct_reshape(xs, CT_DIMS(CT_DYN(n), 1)), CT_DIMS(CT_DYN(n), wide));
            ct_tensor h = ct_expand(number(0.25), CT_DIMS(wide));
            ct_scan(&last, &ys, .body = leak, .user = &w, .carry = &h, .n_carry = 1, .xs = &xs,
                    .n_xs = 1, .n_ys = 1, .reverse = reverse);
            ct_tensor loss = ct_add(ct_sum(ys), ct_sum(last));
            ct_grad(loss, wrt, 2, g);
            ct_tensor all[] = {loss, g[0], g[1]};
            if (!ct_eval(all, 3)) fail_msg("%s", ct_error_text());
            double e = 1e-5;
            near(value(loss), wide * leaked(0.5, x, n, reverse));
            double slope =
                (leaked(0.5 + e, x, n, reverse) - leaked(0.5 - e, x, n, reverse)) / (2 * e);
            assert_true(fabs(value(g[0]) - wide * slope) < 1e-6 * (1 + fabs(wide * slope)));
            const double *gx = ct_data(g[1]);
            assert_ok();
            double at = x[1];
            x[1] = at + e;
            double up = leaked(0.5, x, n, reverse);
            x[1] = at - e;
            double down = leaked(0.5, x, n, reverse);
            x[1] = at;
            assert_true(fabs(gx[1] - wide * (up - down) / (2 * e)) < 1e-5);
        }
        assert_int_equal(plans_made() - before, 1);
    }
}

// ---------------------------------------------------------------------------------------- stopping

static void always(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)in, (void)user;
    const bool yes = true;
    out[0] = ct_const(&yes, CT_BOOL, CT_SCALAR);
}
static void turn(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_add(in[0], ct_f(1));
}
static void *cancel_soon(void *ctx) {
    const struct timespec wait = {.tv_nsec = 30000000};
    nanosleep(&wait, NULL);
    ct_cancel(ctx);
    return NULL;
}

// wide: elements of what is carried; of few the loop is inside of one kernel.
static void never_ends(int64_t wide) {
    EACH_DEVICE {
        ct_params *set = ct_params_new();
        ct_tensor w = set_var(set, "w", 1), out;
        near(at(w, 0), 1);
        CT_SCOPE;
        pthread_t thread;
        ct_tensor x = ct_zeros(CT_F64, CT_DIMS(wide));
        // The assignment stands first: it must not run before the loop.
        ct_assign(w, ct_mul(w, ct_f(2)));
        ct_while(&out, .cond = always, .body = turn, .carry = &x, .n_carry = 1);
        assert_int_equal(pthread_create(&thread, NULL, cancel_soon, ct_ctx_current()), 0);
        double got = ct_item(ct_min(out));
        pthread_join(thread, NULL);
        assert_true(isnan(got));
        assert_error(CT_E_INTERRUPTED, "run: cancelled: no variable has changed");
        bool behind_queue = strncmp(devices[device_], "async:", 6) == 0; // heard of too late
        if (!behind_queue) near(at(w, 0), 1);
        near(value(ct_min(ct_add(x, ct_f(1)))), 1); // the context goes on
        ct_params_free(set);
    }
}
static void a_loop_that_never_ends_stops_on_cancel(void **state) {
    (void)state;
    never_ends(1);
    never_ends(1 << 17);
}

// ------------------------------------------------------------------------------------------ errors

// The error with the file and a line of this function's callers, which compilers count differently.
#define SAYS(code, text) says(code, __LINE__, text)
static void says(ct_code code, unsigned line, const char *text) {
    unsigned at = 0;
    int skip = 0;
    assert_int_equal(sscanf(ct_error_text(), "tests/unit/test_loops.c:%u: %n", &at, &skip), 1);
    assert_string_equal(ct_error_text() + skip, text);
    assert_true(at < line && at + 8 > line);
    assert_int_equal(ct_error_code(), code);
    ct_error_clear();
}
static void itself(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = in[0];
}
static void widens(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    int64_t two = 2;
    out[0] = ct_expand(in[0], ((ct_ints){1, &two}));
}
static void casts(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_cast(in[0], CT_F32);
}
static void second(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = in[1];
}
static void turns_never(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    ct_fori(out, .body = second, .lower = 2, .upper = 1, .carry = in, .n_carry = 1);
}
static void made_dynamic(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_reshape(in[0], CT_DIMS(CT_DYN(3)));
}
static void halves(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_mul(in[0], ct_f(0.5));
}
static void forgets(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)in, (void)out, (void)user;
}

static void bodies_whose_results_change_type(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = number(1), out;
    ct_while(&out, .cond = always, .body = widens, .carry = &x, .n_carry = 1);
    SAYS(CT_E_SHAPE, "while: carried tensor 1 is () f64, the body makes it (2,) f64\n"
                     "  hint: it keeps its shape; give it the size of all iterations, and write "
                     "one with ct_dynamic_update");
    ct_scan(&out, NULL, .body = widens, .carry = &x, .n_carry = 1, .length = 2);
    SAYS(CT_E_SHAPE, "scan: carried tensor 1 is () f64, the body makes it (2,) f64\n"
                     "  hint: it keeps its shape; what each iteration adds is returned as ys");
    ct_tensor row = ct_ones(CT_F64, CT_DIMS(3));
    ct_scan(&out, NULL, .body = made_dynamic, .carry = &row, .n_carry = 1, .length = 2);
    SAYS(CT_E_SHAPE, "scan: carried tensor 1 is (3,) f64, the body makes it (n=3,) f64\n"
                     "  hint: n= is a dynamic size: ct_reshape with CT_DYN in its dims makes that "
                     "axis of the other dynamic");
    ct_while(&out, .cond = always, .body = casts, .carry = &x, .n_carry = 1);
    SAYS(CT_E_SHAPE, "while: carried tensor 1 is () f64, the body "
                     "makes it () f32\n  hint: ct_cast it in the "
                     "body, or before the loop");
    ct_while(&out, .cond = always, .body = forgets, .carry = &x, .n_carry = 1);
    SAYS(CT_E_ARGUMENT, "while: the body did not set output 1");
    ct_fori(&out, .body = forgets, .upper = 3, .carry = &x, .n_carry = 1);
    SAYS(CT_E_ARGUMENT, "fori: the body did not set output 1");
    ct_fori(&out, .body = itself, .upper = 3, .carry = &x, .n_carry = 1); // gives i
    SAYS(
        CT_E_SHAPE,
        "fori: carried tensor 1 is () f64, the body makes it () i32\n"
        "  hint: in[0] of the body is the number of the iteration, in[1] the first carried tensor");
    ct_fori(&out, .body = halves, .upper = 3, .carry = &row, .n_carry = 1);
    SAYS(
        CT_E_SHAPE,
        "fori: carried tensor 1 is (3,) f64, the body makes it () f32\n"
        "  hint: in[0] of the body is the number of the iteration, in[1] the first carried tensor");
    ct_fori(&out, .body = itself, .upper_value = whole(3), .carry = &x, .n_carry = 1);
    SAYS(
        CT_E_SHAPE,
        "fori: carried tensor 1 is () f64, the body makes it () i32\n"
        "  hint: in[0] of the body is the number of the iteration, in[1] the first carried tensor");
}

// Of a scan that is not told how long it is. A ct_fori may turn never, and its derivatives.
static void a_scan_without_a_length(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = number(1), out, slope;
    ct_scan(&out, NULL, .body = itself, .carry = &x, .n_carry = 1);
    SAYS(CT_E_ARGUMENT, "scan: there are neither xs nor a length\n"
                        "  hint: give .length; ct_fori runs a number of iterations that may be 0");
    assert_false(ct_ok(out));
    ct_fori(&out, .body = second, .upper = 0, .carry = &x, .n_carry = 1);
    ct_grad(out, &x, 1, &slope);
    assert_true(ct_item(out) == 1 && ct_item(slope) == 1);
    const double pair[2] = {3, 4};
    ct_tensor rows = ct_from(pair, CT_F64, CT_DIMS(2)), one = ct_ones(CT_F64, CT_DIMS(2));
    ct_tensor turned, moved;
    ct_vmap(turns_never, NULL, &rows, 1, &turned, 1);
    ct_jvp(turns_never, NULL, &rows, 1, &out, 1, &one, &moved);
    assert_true(ct_item(ct_sum(turned)) == 7 && ct_item(ct_sum(moved)) == 2);
}

static void xs_that_are_not_of_one_length(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor xs[2] = {ct_ones(CT_F64, CT_DIMS(3)), ct_ones(CT_F64, CT_DIMS(4))}, out;
    ct_scan(NULL, &out, .body = itself, .xs = xs, .n_xs = 2, .n_ys = 1);
    SAYS(CT_E_SHAPE, "scan: operand 2 is (4,) f64, the loop has length 3\n"
                     "  hint: it is the size of axis 0, of all xs the same");
    ct_scan(NULL, &out, .body = itself, .xs = xs, .n_xs = 1, .n_ys = 1, .length = 2);
    SAYS(CT_E_SHAPE, "scan: operand 1 is (3,) f64, the loop has length 2\n"
                     "  hint: it is .length; without it, it is the length of the xs");
}

static void predicates_that_are_no_bool(void **state) {
    (void)state;
    CT_SCOPE;
    const bool flags[2] = {true, false};
    ct_tensor x = number(1), many = ct_from(flags, CT_BOOL, CT_DIMS(2)), out;
    ct_while(&out, .cond = itself, .body = itself, .carry = &x, .n_carry = 1);
    SAYS(CT_E_DTYPE, "while: the predicate is () f64, it must be one "
                     "bool\n  hint: compare it with something, as "
                     "ct_less does");
    ct_while(&out, .cond = itself, .body = itself, .carry = &many, .n_carry = 1);
    SAYS(CT_E_SHAPE, "while: the predicate is (2,) bool, it must be "
                     "one bool\n  hint: ct_all or ct_any makes one "
                     "of many");
    ct_while(&out, .cond = forgets, .body = itself, .carry = &x, .n_carry = 1);
    SAYS(CT_E_ARGUMENT, "while: the predicate did not set output 1");
    ct_cond(&out, .pred = x, .then = itself, .otherwise = itself, .in = &x, .n_in = 1, .n_out = 1);
    SAYS(CT_E_DTYPE, "cond: the predicate is () f64, it must be one "
                     "bool\n  hint: compare it with something, as "
                     "ct_less does");
    ct_cond(&out, .pred = many, .then = itself, .otherwise = itself, .in = &x, .n_in = 1,
            .n_out = 1);
    SAYS(CT_E_SHAPE, "cond: the predicate is (2,) bool, it must be "
                     "one bool\n  hint: ct_select chooses element by "
                     "element; ct_all or ct_any makes one of many");
    ct_switch(&out, .index = x, .branches = three, .n_branches = 3, .in = &x, .n_in = 1,
              .n_out = 1);
    SAYS(CT_E_DTYPE, "switch: the index is () f64, it must be one integer\n"
                     "  hint: cast it: ct_cast(index, CT_I32)");
    ct_switch(&out, .index = ct_ones(CT_I32, CT_DIMS(2)), .branches = three, .n_branches = 3,
              .in = &x, .n_in = 1, .n_out = 1);
    SAYS(CT_E_SHAPE, "switch: the index is (2,) i32, it must be one integer\n"
                     "  hint: where each element has its own, ct_vmap a function of one");
    ct_fori(&out, .body = itself, .upper_value = x, .carry = &x, .n_carry = 1);
    SAYS(CT_E_DTYPE, "fori: the upper bound is () f64, it must be one integer\n"
                     "  hint: cast it: ct_cast(upper, CT_I32)");
    int32_t pair[2] = {1, 2};
    ct_fori(&out, .body = itself, .lower_value = ct_from(pair, CT_I32, CT_DIMS(2)), .carry = &x,
            .n_carry = 1);
    SAYS(CT_E_SHAPE, "fori: the lower bound is (2,) i32, it must be one integer\n"
                     "  hint: where each element has its own, ct_vmap a function of one");
}

static void branches_that_disagree(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = number(1), out;
    ct_cond(&out, .pred = truth(true), .then = widens, .otherwise = itself, .in = &x, .n_in = 1,
            .n_out = 1);
    SAYS(CT_E_SHAPE, "cond: result 1 is (2,) f64 where the predicate "
                     "holds, () f64 where it does not\n  hint: all must give it in one shape: "
                     "ct_expand repeats, ct_pad fills up");
    ct_tensor row = ct_ones(CT_F64, CT_DIMS(3));
    ct_cond(&out, .pred = truth(true), .then = made_dynamic, .otherwise = itself, .in = &row,
            .n_in = 1, .n_out = 1);
    SAYS(CT_E_SHAPE, "cond: result 1 is (n=3,) f64 where the predicate holds, (3,) f64 where it "
                     "does not\n  hint: n= is a dynamic size: ct_reshape with CT_DYN in its dims "
                     "makes that axis of the other dynamic");
    const ct_fn branches[] = {itself, casts, itself};
    ct_switch(&out, .index = whole(0), .branches = branches, .n_branches = 3, .in = &x, .n_in = 1,
              .n_out = 1);
    SAYS(CT_E_SHAPE, "switch: result 1 is () f64 in branch 2, () f32 "
                     "in branch 1\n  hint: ct_cast it in one of them");
    ct_switch(&out, .index = whole(0), .in = &x, .n_in = 1, .n_out = 1);
    SAYS(CT_E_ARGUMENT, "switch: there are no branches");
    ct_cond(&out, .pred = truth(true), .then = forgets, .otherwise = itself, .in = &x, .n_in = 1,
            .n_out = 1);
    SAYS(CT_E_ARGUMENT, "cond: a branch did not set output 1");
}

static void double_it(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_add(in[1], in[1]);
}
static void the_gradient_of_a_while_loop_in_reverse(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = number(1), out, slope;
    ct_fori(&out, .body = double_it, .upper_value = whole(3), .carry = &x, .n_carry = 1);
    ct_grad(out, &x, 1, &slope);
    assert_true(isnan(ct_item(slope)));
    SAYS(CT_E_GRAD, "grad: a loop that a predicate ends has no gradient in reverse mode\n"
                    "  hint: ct_scan has one, and ct_fori between two constants: run the largest "
                    "number of iterations, and keep finished values with ct_select");
}

static void assigns(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_assign(*(ct_tensor *)user, in[0]);
    out[0] = in[0];
}
static void keeps(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_keep(ct_neg(in[0]));
}
static void reads(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_mul(in[0], ct_f(ct_item(in[0])));
}

static void nothing_is_assigned_kept_or_read_in_a_body(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 1);
    {
        CT_SCOPE;
        const struct {
            ct_fn body;
            const char *text;
        } bad[] = {
            {assigns, "assign: variable \"w\" is assigned inside a traced function\n  hint: return "
                      "the value as a result of the function, and assign it outside"},
            {keeps, "keep: a traced function returns its results; it cannot keep a tensor"},
            {reads, "item: a value is read inside a traced function\n  hint: return it as a result "
                    "of the function, and read it outside"},
        };
        ct_tensor x = number(1), out;
        for (int i = 0; i < 3; i++)
            for (int form = 0; form < 3; form++) {
                if (form == 0)
                    ct_while(&out, .cond = always, .body = bad[i].body, .user = &w, .carry = &x,
                             .n_carry = 1);
                if (form == 1)
                    ct_scan(&out, NULL, .body = bad[i].body, .user = &w, .carry = &x, .n_carry = 1,
                            .length = 3);
                if (form == 2)
                    ct_cond(&out, .pred = truth(true), .then = itself, .otherwise = bad[i].body,
                            .user = &w, .in = &x, .n_in = 1, .n_out = 1);
                const char *text = strchr(ct_error_text(), ':'); // behind the file, and the line
                text = text ? strchr(text + 1, ' ') : NULL;
                assert_non_null(text);
                assert_string_equal(text + 1, bad[i].text);
                assert_int_equal(ct_error_code(), CT_E_TRACE);
                ct_error_clear();
            }
    }
    ct_params_free(set);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, record_begin, record_end)
        T(a_while_loop_turns_until_its_predicate_fails),
        T(a_while_loop_makes_no_round_trip),
        T(nor_does_one_of_launches),
        T(what_is_carried_may_change_places),
        T(counting_loops),
        T(one_plan_serves_all_bounds),
        T(one_branch_runs_and_has_its_gradient),
        T(an_index_outside_is_the_nearest),
        T(loops_in_loops_with_branches),
        T(one_plan_serves_all_lengths),
        T(a_loop_that_never_ends_stops_on_cancel),
        T(bodies_whose_results_change_type),
        T(a_scan_without_a_length),
        T(xs_that_are_not_of_one_length),
        T(predicates_that_are_no_bool),
        T(branches_that_disagree),
        T(the_gradient_of_a_while_loop_in_reverse),
        T(nothing_is_assigned_kept_or_read_in_a_body),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
