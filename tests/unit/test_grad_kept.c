// Paths through kept values: an error where a gradient would lose them, and only there.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "graph/graph.h"
#include "support/record.h"

#define TEST(name) cmocka_unit_test_setup_teardown(name, record_begin, record_end)

static ct_params *set;
static ct_tensor w; // a variable, 3

static const int slope_line = __LINE__ + 3;
static ct_tensor slope(ct_tensor k, ct_tensor x) { // of sum(k) + 3 sum(x)
    ct_tensor g;
    ct_grad(ct_add(ct_sum(k), ct_mul(ct_f(3), ct_sum(x))), &x, 1, &g);
    return g;
}
static void is_refused(ct_tensor g, const char *of) {
    assert_int_equal(ct_error_code(), CT_E_GRAD);
    assert_false(ct_ok(g));
    char want[128];
    snprintf(want, sizeof want, "grad: the loss depends on %s through the value of tests/unit", of);
    assert_non_null(strstr(ct_error_text(), want));
    assert_non_null(strstr(ct_error_text(), "ct_stop_gradient"));
    ct_error_clear();
}
static void is_three(ct_tensor g) {
    assert_true(at(g, 0) == 3);
    assert_ok();
}
static const int kept_line = __LINE__ + 3;
static ct_tensor kept(ct_tensor x) { // x^2
    CT_SCOPE;
    return ct_keep(ct_mul(x, x));
}

static void a_lost_path_is_an_error(void **state) {
    (void)state;
    set = ct_params_new();
    w = set_var(set, "w", 3);
    assert_true(ct_eval(NULL, 0));
    CT_SCOPE;
    ct_tensor x = line_of(2), h = ct_mul(x, ct_f(2)), k = kept(w), far = kept(h), farther;
    is_refused(slope(k, w), "variable \"w\"");
    is_refused(slope(kept(x), x), "operand 1");
    is_refused(slope(far, h), "operand 1");
    is_refused(slope(far, x), "operand 1"); // behind a node that lives
    is_refused(slope(kept(k), w), "variable \"w\"");
    is_refused(slope(kept(k), k), "operand 1");
    {
        CT_SCOPE;
        ct_tensor inner = ct_mul(x, ct_f(2));
        farther = ct_keep(kept(inner)); // through two scopes, the first one's node is gone
    }
    is_refused(slope(farther, x), "operand 1");
    ct_tensor after = kept(k);
    ct_drop(k);
    is_refused(slope(after, w), "variable \"w\"");
    {
        CT_SCOPE;
        ct_assign(w, ct_add(w, ct_f(1)));
        after = ct_keep(ct_mul(w, w)); // of the version that is assigned here
    }
    is_refused(slope(after, w), "variable \"w\"");
    {
        CT_SCOPE;
        k = ct_keep(ct_mul(w, w));
        after = ct_keep(ct_mul(k, k));
    }
    is_refused(slope(after, k), "operand 1");
    ct_params_free(set);
}

static void what_is_no_path_is_none(void **state) {
    (void)state;
    set = ct_params_new();
    w = set_var(set, "w", 3);
    assert_true(ct_eval(NULL, 0));
    CT_SCOPE;
    ct_tensor x = line_of(2), k = kept(w), other, both[] = {k, w}, g[2];
    is_three(slope(kept(x), w));
    is_three(slope(ct_stop_gradient(k), w));
    is_three(slope(ct_floor(k), w));
    {
        CT_SCOPE;
        ct_keep(ct_mul(w, w)); // beside it
        other = ct_keep(ct_add(ct_stop_gradient(w), x));
    }
    is_three(slope(other, w));
    ct_grad(ct_add(ct_sum(k), ct_mul(ct_f(3), ct_sum(w))), both, 2, g); // it ends at k
    assert_true(at(g[0], 0) == 1);
    is_three(g[1]);
    ct_tensor read = ct_mul(x, x); // stays a path
    assert_true(at(read, 1) == 4);
    assert_true(at(slope(read, x), 1) == 7);
    {
        CT_SCOPE;
        ct_assign(w, ct_add(w, ct_f(1)));
    }
    is_three(slope(k, w)); // of an older version
    ct_params_free(set);
}

// What another context computed is a leaf here, and what it was computed from there is known.
static void a_path_through_another_context_is_an_error(void **state) {
    ct_ctx *mine = *state, *other = ct_ctx_new();
    set = ct_params_new();
    w = set_var(set, "w", 3);
    assert_true(ct_eval(NULL, 0));
    CT_SCOPE;
    ct_tensor x = line_of(2), k, far, y, z, old;
    assert_true(ct_eval(&x, 1));
    ct_ctx_use(other);
    assert_true(ct_set_device("ref"));
    k = kept(w);
    far = kept(x); // of a tensor of this context
    y = ct_mul(ct_exp(w), ct_f(2));
    z = ct_mul(ct_stop_gradient(w), ct_f(2));
    old = kept(ct_floor(w));
    assert_true(ct_eval(((ct_tensor[]){y, z}), 2));
    ct_ctx_use(mine);
    is_refused(slope(y, w), "variable \"w\"");
    is_refused(slope(ct_mul(far, far), x), "operand 1");
    is_three(slope(far, w));
    is_three(slope(z, w));
    is_three(slope(old, w));
    is_three(slope(ct_stop_gradient(k), w));
    assert_false(ct_ok(slope(k, w)));
    char want[400];
    snprintf(want, sizeof want,
             "tests/unit/test_grad_kept.c:%d: grad: the loss depends on variable \"w\" through the "
             "value of tests/unit/test_grad_kept.c:%d, which another context computed\n"
             "  hint: differentiate there, or say by ct_stop_gradient that it is a constant",
             slope_line, kept_line);
    assert_string_equal(ct_error_text(), want);
    ct_error_clear();
    {
        CT_SCOPE; // here it is kept: from the same
        k = ct_keep(ct_mul(k, ct_f(2)));
    }
    is_refused(slope(k, w), "variable \"w\"");
    ct_ctx_use(other);
    {
        CT_SCOPE;
        ct_assign(w, ct_add(w, ct_f(1)));
    }
    assert_ok();
    ct_ctx_use(mine);
    is_three(slope(k, w)); // of an older version
    ct_ctx_free(other);    // and of a context that is gone
    is_three(slope(k, w));
    ct_params_free(set);
}

// A state that is carried through steps which change the parameter.
static void a_carried_state_does_not_grow(void **state) {
    (void)state;
    set = ct_params_new();
    w = set_var(set, "w", 3);
    assert_true(ct_eval(NULL, 0));
    CT_SCOPE;
    ct_tensor s = kept(w), g;
    for (int step = 0; step < 1000; step++) {
        CT_SCOPE;
        ct_grad(ct_sum(ct_mul(ct_stop_gradient(s), w)), &w, 1, &g);
        ct_assign(w, ct_sub(w, ct_mul(g, ct_f(1e-3))));
        ct_tensor old = s;
        s = ct_keep(ct_tanh(ct_mul(s, w)));
        ct_drop(old);
    }
    assert_ok();
    uint32_t out;
    const ct_node *leaf = ct__peek(s, &out);
    assert_non_null(leaf);
    assert_true(!leaf->past || leaf->past->n <= 2);
    ct_params_free(set);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_lost_path_is_an_error),
        TEST(what_is_no_path_is_none),
        TEST(a_path_through_another_context_is_an_error),
        TEST(a_carried_state_does_not_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
