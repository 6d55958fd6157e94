// "What runs, and when": what makes a new plan, what never does, and what is said about it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/record.h"

#define TEST(name) cmocka_unit_test_setup_teardown(name, record_begin, record_end)
#define FILE_NAME "tests/unit/test_semantics_keys.c"

static void a_learning_rate_and_a_position_that_change_never_recompile(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 1), cache = ct_param(set, "cache", CT_F32, CT_DIMS(8));
    ct_assign(cache, ct_zeros(CT_F32, CT_DIMS(8)));
    assert_true(ct_eval(NULL, 0));
    uint64_t made = plans_made();
    for (int step = 0; step < 8; step++) {
        CT_SCOPE;
        ct_assign(w, ct_sub(w, ct_mul(ct_f(0.1 * (step + 1)), w)));
        ct_tensor start = ct_reshape(ct_i(step), CT_DIMS(1));
        ct_assign(cache, ct_dynamic_update(cache, ct_sum(w, .keepdims = true), start));
        ct_metric("at", ct_sum(ct_dynamic_slice(cache, start, .sizes = CT_INTS(1))));
    }
    assert_ok();
    assert_int_equal(plans_made(), made + 1);
    assert_true(at(cache, 0) > at(cache, 1) && at(cache, 5) > 0);
    ct_params_free(set);
}

static void scalars_are_operands_whatever_their_value(void **state) {
    (void)state;
    uint64_t made = plans_made();
    double values[] = {0, 1, -1, 2, 1e30};
    for (int i = 0; i < 5; i++) {
        CT_SCOPE;
        // x * 1 and x + 0 among them: never folded away
        assert_true(at(ct_add(ct_mul(line_of(2), ct_f(values[i])), ct_i(i)), 0) ==
                    (double)((float)values[i] + (float)i));
    }
    assert_int_equal(plans_made(), made + 1);
}

static void attributes_are_hashed(void **state) {
    (void)state;
    uint64_t made = plans_made();
    for (int twice = 0; twice < 2; twice++)
        for (int64_t axis = 0; axis < 2; axis++) {
            CT_SCOPE;
            ct_tensor x = ct_reshape(line_of(6), CT_DIMS(2, 3));
            assert_true(at(ct_sum(x, .axes = CT_AXES(axis)), 0) == (axis ? 6 : 5));
        }
    assert_int_equal(plans_made(), made + 2);
    CT_SCOPE; // another spelling of the same axis is the same plan
    assert_true(at(ct_sum(ct_reshape(line_of(6), CT_DIMS(2, -1)), .axes = CT_AXES(-1)), 0) == 6);
    assert_int_equal(plans_made(), made + 2);
}

static double with_const(const float *bytes, int n) {
    CT_SCOPE;
    return ct_item(ct_sum(ct_mul(line_of(n), ct_const(bytes, CT_F32, CT_DIMS(n)))));
}

static void a_const_counts_by_content(void **state) {
    (void)state;
    float a[] = {1, 2}, b[] = {1, 2}, c[] = {1, 3};
    uint64_t made = plans_made();
    assert_true(with_const(a, 2) == 5);
    assert_true(with_const(b, 2) == 5);
    assert_int_equal(plans_made(), made + 1);
    assert_true(with_const(c, 2) == 7);
    assert_int_equal(plans_made(), made + 2);
}

static void only_a_const_is_folded(void **state) {
    (void)state;
    CT_SCOPE;
    float two[] = {2};
    uint64_t launches = ct_get_stats().launches;
    ct_tensor c = ct_const(two, CT_F32, CT_DIMS(1));
    assert_true(at(ct_add(ct_mul(c, c), c), 0) == 6);
    assert_int_equal(ct_get_stats().launches - launches, 1); // the copy of the constant out
    launches = ct_get_stats().launches;
    ct_tensor d = ct_from(two, CT_F32, CT_DIMS(1));
    assert_true(at(ct_add(ct_mul(d, d), d), 0) == 6);
    assert_int_equal(ct_get_stats().launches - launches, 3);
}

static void lines_and_pointers_do_not_count(void **state) {
    (void)state;
    uint64_t made = plans_made();
    {
        CT_SCOPE;
        assert_true(at(ct_exp(line_of(2)), 0) > 2.7);
    }
    {
        CT_SCOPE;
        ct_tensor held = line_of(2);
        ct_neg(held);
        assert_true(at(ct_exp(held), 1) > 7);
    }
    assert_int_equal(plans_made(), made + 1);
}

static void the_alias_pattern_of_the_leaves_counts(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = line_of(2), y = vec(2, (double[]){5, 6});
    uint64_t made = plans_made();
    assert_true(at(ct_mul(x, y), 1) == 12);
    assert_int_equal(plans_made(), made + 1);
    assert_true(at(ct_mul(y, y), 1) == 36); // one leaf twice: a plan of its own
    assert_int_equal(plans_made(), made + 2);
    assert_true(at(ct_mul(x, x), 1) == 4);
    assert_true(at(ct_mul(y, x), 1) == 12);
    assert_int_equal(plans_made(), made + 2);
}

static void which_variable_is_written_counts(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor a = set_var(set, "a", 1), b = set_var(set, "b", 10);
    assert_true(ct_eval(NULL, 0));
    uint64_t made = plans_made();
    for (int i = 0; i < 2; i++) {
        {
            CT_SCOPE;
            ct_assign(a, ct_add(a, b));
        }
        {
            CT_SCOPE;
            ct_assign(b, ct_add(a, b));
        }
    }
    assert_int_equal(plans_made(), made + 2);
    assert_true(at(a, 0) == 32 && at(b, 0) == 53);
    ct_params_free(set);
}

// A plan's variables are numbered without a table, which the first leaf behind them makes for all.
static void a_leaf_may_come_behind_many_variables(void **state) {
    (void)state;
    enum { MANY = 300 };
    ct_params *set = ct_params_new();
    ct_tensor var[MANY];
    for (int i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof name, "v%d", i);
        var[i] = set_var(set, name, i);
        assert_true(ct_eval(NULL, 0)); // one by one, so that no plan before has had many leaves
    }
    {
        CT_SCOPE;
        ct_tensor sum = var[0];
        for (int i = 1; i < MANY; i++) sum = ct_add(sum, var[i]);
        assert_true(at(ct_add(sum, line_of(1)), 0) == MANY * (MANY - 1) / 2.0 + at(line_of(1), 0));
    }
    ct_params_free(set);
}

static void the_kind_of_a_root_counts(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor a = set_var(set, "a", 1);
    assert_true(ct_eval(NULL, 0));
    uint64_t made = plans_made();
    for (int i = 0; i < 2; i++) {
        {
            CT_SCOPE;
            ct_assign(a, ct_add(a, ct_f(1)));
        }
        {
            CT_SCOPE;
            ct_metric("m", ct_sum(ct_add(a, ct_f(1))));
        }
    }
    assert_int_equal(plans_made(), made + 2);
    assert_true(ct_metric_value("m") == 8);
    ct_params_free(set);
}

// ------------------------------------------------------------------------------------- dynamic
// sizes

static void a_dynamic_length_makes_a_plan_and_compiles_nothing(void **state) {
    (void)state;
    float v[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    uint64_t made = plans_made(), compiled = ct_get_stats().kernels_compiled;
    for (int n = 1; n <= 8; n++) {
        CT_SCOPE;
        ct_tensor x = ct_from(v, CT_F32, CT_DIMS(CT_DYN(n)));
        assert_int_equal(ct_dim(x, 0), n);
        assert_true(ct_item(ct_sum(ct_mul(x, ct_f(2)))) == n * (n + 1));
    }
    assert_int_equal(plans_made(), made + 8); // the plan key holds the value
    assert_int_equal(ct_get_stats().kernels_compiled, compiled);
}

static void a_dynamic_axis_never_broadcasts_even_at_1(void **state) {
    (void)state;
    CT_SCOPE;
    float v[3] = {1, 2, 3};
    ct_tensor n = ct_from(v, CT_F32, CT_DIMS(CT_DYN(1))), x = line_of(3);
    ct_add(n, x);
    char want[256];
    snprintf(want, sizeof want,
             FILE_NAME ":%d: add: shapes do not broadcast: (n=1,) f32 and (3,) f32\n  hint: a "
                       "dynamic size never broadcasts, even where it is 1",
             __LINE__ - 5);
    assert_error(CT_E_SHAPE, want);
    ct_expand(n, CT_DIMS(3));
    snprintf(want, sizeof want,
             FILE_NAME ":%d: expand: (n=1,) f32 does not expand to (3,) f32\n"
                       "  hint: axes of static size 1 expand, and new axes are in front",
             __LINE__ - 4);
    assert_error(CT_E_SHAPE, want);
    ct_tensor both = ct_add(n, ct_from(v, CT_F32, CT_DIMS(1)));
    assert_true(at(both, 0) == 2); // against a static 1 it is what it is
}

static void sizes_computed_from_a_dynamic_one_are_dynamic(void **state) {
    (void)state;
    CT_SCOPE;
    float v[6] = {1, 2, 3, 4, 5, 6};
    ct_tensor x = ct_from(v, CT_F32, CT_DIMS(CT_DYN(3), 2)), wide = line_of(3);
    const struct {
        ct_tensor t;
        const char *type;
    } cases[] = {
        {ct_reshape(x, CT_DIMS(-1)), "(n=6,) f32"},
        {ct_reshape(x, CT_DIMS(CT_DYN(3), -1)), "(n=3, 2) f32"},
        {ct_permute(x, CT_AXES(1, 0)), "(2, n=3) f32"},
        {ct_mul(x, ct_f(2)), "(n=3, 2) f32"},
        {ct_sum(x, .axes = CT_AXES(1)), "(n=3,) f32"},
        {ct_expand(x, CT_DIMS(4, 3, 2)), "(4, n=3, 2) f32"},
        {ct_matmul(x, ct_reshape(line_of(4), CT_DIMS(2, 2))), "(n=3, 2) f32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_ok();
        ct_add(cases[i].t, ct_expand(wide, CT_DIMS(7, 7, 7, 3))); // an error names the type
        if (!ct_failed()) ct_add(cases[i].t, ct_zeros(CT_F32, CT_DIMS(11, 5)));
        if (!strstr(ct_error_text(), cases[i].type))
            fail_msg("want %s in: %s", cases[i].type, ct_error_text());
        ct_error_clear();
    }
}

// ------------------------------------------------------------------------------------ explanations

static double of_length(int n, int *made_at) {
    CT_SCOPE;
    *made_at = __LINE__ + 1;
    ct_tensor x = ct_from((float[16]){1}, CT_F32, CT_DIMS(n));
    return ct_item(ct_sum(x));
}

static void a_changed_static_shape_makes_one_plan_and_one_line(void **state) {
    (void)state;
    int made_at;
    setenv("COTAN_EXPLAIN", "1", 1);
    assert_true(of_length(5, &made_at) == 1);
    assert_non_null(strstr(record_log, ": the first of this line\n"));
    record_forget();
    uint64_t made = plans_made();
    assert_true(of_length(7, &made_at) == 1);
    assert_int_equal(plans_made(), made + 1);
    char head[128], tail[256];
    snprintf(head, sizeof head, FILE_NAME ":%d: plan ", made_at + 1);
    snprintf(tail, sizeof tail,
             ": the tensor made at " FILE_NAME ":%d: axis 0 has size 7, it had 5\n", made_at);
    assert_int_equal(strncmp(record_log, head, strlen(head)), 0);
    assert_true(ends_with(record_log, tail));
    assert_int_equal(strcspn(record_log, "\n"), strlen(record_log) - 1); // one line
    record_forget();
    assert_true(of_length(5, &made_at) == 1); // both are there now
    assert_true(of_length(7, &made_at) == 1);
    assert_int_equal(plans_made(), made + 1);
    assert_string_equal(record_log, "");
}

static void a_variable_is_named_in_the_explanation(void **state) {
    (void)state;
    setenv("COTAN_EXPLAIN", "1", 1);
    ct_params *small = ct_params_new(), *large = ct_params_new();
    ct_tensor w[2] = {ct_param(small, "wte", CT_F32, CT_DIMS(2, 4)),
                      ct_param(large, "wte", CT_F32, CT_DIMS(3, 4))};
    for (int i = 0; i < 2; i++) ct_assign(w[i], ct_zeros(CT_F32, CT_DIMS(2 + i, 4)));
    assert_true(ct_eval(NULL, 0));
    for (int i = 0; i < 2; i++) {
        CT_SCOPE;
        assert_true(ct_item(ct_sum(w[i])) == 0);
    }
    assert_true(ends_with(record_log, ": variable \"wte\": axis 0 has size 3, it had 2\n"));
    ct_params_free(small);
    ct_params_free(large);
}

static void the_eighth_plan_of_a_line_gets_a_hint(void **state) {
    (void)state;
    int made_at;
    for (int n = 1; n <= 7; n++) assert_true(of_length(n, &made_at) == 1);
    assert_string_equal(record_log, ""); // without COTAN_EXPLAIN
    assert_true(of_length(8, &made_at) == 1);
    char want[512];
    snprintf(
        want, sizeof want,
        "hint: this line has made 8 plans; a size that varies can be declared with CT_DYN: the "
        "tensor made at " FILE_NAME ":%d: axis 0 has size 8, it had 7\n",
        made_at);
    assert_true(ends_with(record_log, want));
    record_forget();
    assert_true(of_length(9, &made_at) == 1);
    assert_string_equal(record_log, ""); // once
}

static double piece(ct_tensor x, int from, int *line) {
    CT_SCOPE;
    *line = __LINE__ + 1;
    ct_tensor y = ct_slice(x, .start = CT_INTS(from), .stop = CT_INTS(from + 2));
    return ct_item(ct_sum(y));
}

static void a_changed_attribute_is_named(void **state) {
    (void)state;
    int line;
    CT_SCOPE;
    ct_tensor x = line_of(32);
    assert_true(piece(x, 0, &line) == 3);
    setenv("COTAN_EXPLAIN", "1", 1);
    assert_true(piece(x, 4, &line) == 11);
    char head[128], tail[256], want[512];
    snprintf(head, sizeof head, FILE_NAME ":%d: plan ", line + 1);
    snprintf(tail, sizeof tail,
             ": slice of " FILE_NAME ":%d: start is [4], it was [0]\n"
             "  hint: a position that varies can be an operand: ct_dynamic_slice\n",
             line);
    assert_int_equal(strncmp(record_log, head, strlen(head)), 0);
    assert_true(ends_with(record_log, tail));
    unsetenv("COTAN_EXPLAIN");
    record_forget();
    for (int i = 6; i < 16; i += 2) assert_true(piece(x, i, &line) > 0);
    assert_string_equal(record_log, "");
    assert_true(piece(x, 16, &line) == 35); // the eighth
    snprintf(want, sizeof want,
             "\n  hint: this line has made 8 plans; a position that varies can be an operand: "
             "ct_dynamic_slice: slice of " FILE_NAME ":%d: start is [16], it was [14]\n",
             line);
    assert_true(ends_with(record_log, want));
}

static void doubled(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_add(in[0], in[0]);
}
static void squared(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_mul(in[0], in[0]);
}
// One of several things, at one line.
static ct_tensor other_thing(ct_tensor x, int what, int change) {
    ct_tensor y = x;
    float table[2] = {1, (float)change};
    switch (what) {
    case 0: return ct_leaky_relu(x, .slope = CT_F(change * 0.5));
    case 1: return ct_sum(x, .axes = CT_AXES(0), .keepdims = change);
    case 2: return ct_cast(x, change ? CT_F64 : CT_I32);
    case 3: ct_call(change ? doubled : squared, NULL, &x, 1, &y, 1); return y;
    case 4: return ct_mul(x, ct_const(table, CT_F32, CT_DIMS(2)));
    case 5: return change ? ct_exp(x) : ct_tanh(x);
    case 6: return ct_cumsum(ct_reshape(x, CT_DIMS(1, 2)), change);
    default: return ct_slice(x, .stop = CT_INTS(CT_DYN(change + 1)));
    }
}
static void of_other_thing(int what, int change) {
    CT_SCOPE;
    assert_non_null(ct_data(other_thing(line_of(2), what, change)));
}

static void attributes_of_each_kind_are_told(void **state) {
    (void)state;
    static const char *const head[] = {
        "leaky_relu of ", "sum of ",   "cast of ",
        "call of ",       "const of ", "what was recorded differs in structure, first at ",
        "cumsum of ",     "slice of ",
    };
    static const char *const tail[] = {
        ": slope is 0.5, it was 0\n",
        ": keepdims is true, it was false\n",
        ": dtype is f64, it was i32\n",
        ": body is another function\n",
        ": bytes is others\n  hint: what varies is no constant: ct_from\n",
        ": exp\n",
        ": axis is 1, it was 0\n",
        ": stop is [n=2], it was [n=1]\n", // declared to vary
    };
    setenv("COTAN_EXPLAIN", "1", 1);
    for (int what = 0; what < 8; what++) {
        of_other_thing(what, 0);
        record_forget();
        of_other_thing(what, 1);
        char begin[200];
        snprintf(begin, sizeof begin, ": %s" FILE_NAME ":", head[what]);
        if (!strstr(record_log, begin) || !ends_with(record_log, tail[what]))
            fail_msg("\"%s\", not \"%s...%s\"", record_log, begin, tail[what]);
    }
}

enum { READ = 1, METRIC = 2, KEPT = 4, ASSIGNED = 8, OTHER_LEAF = 16 };
// A step of one variable, and what more is wanted of it; the line where the loss is made.
static int wanting(ct_tensor w, ct_tensor n, int what) {
    CT_SCOPE;
    const int line = __LINE__ + 1;
    ct_tensor loss = ct_sum(ct_square(w));
    ct_assign(w, ct_mul(w, ct_f(0.5)));
    if (what & METRIC) ct_metric("loss", loss);
    if (what & KEPT) (void)ct_keep(loss);
    if (what & ASSIGNED) ct_assign(n, ct_scalar(7, CT_I32));
    if (what & READ) assert_true(ct_item(loss) >= 0);
    if (what & OTHER_LEAF) ct_metric("sum", ct_sum(line_of(2)));
    return line;
}

// What is asked of a step makes another plan of it: which result it is stands in the line.
static void a_result_that_is_wanted_this_time_is_named(void **state) {
    (void)state;
    static const struct {
        int before, now;
        const char *head, *tail; // around the loss's line, where it is named
    } cases[] = {
        {0, READ, "sum of " FILE_NAME ":", " is read this time, it was not\n"},
        {0, METRIC, "metric \"loss\" is recorded this time, it was not\n", NULL},
        {0, KEPT, "sum of " FILE_NAME ":", " is kept this time, it was not\n"},
        {0, ASSIGNED, "variable \"n\" is assigned this time, it was not\n", NULL},
        {0, OTHER_LEAF, "metric \"sum\" is recorded this time, it was not\n", NULL},
        {METRIC | KEPT | ASSIGNED, KEPT | ASSIGNED,
         "metric \"loss\" is not recorded this time, it was\n", NULL},
        {READ, METRIC | KEPT, "metric \"loss\" is recorded this time, it was not\n", NULL},
    };
    ct_params *set = ct_params_new();
    ct_tensor w = ct_param(set, "w", CT_F32, CT_DIMS(2)), n = ct_param(set, "n", CT_I32, CT_SCALAR);
    ct_assign(w, ct_ones(CT_F32, CT_DIMS(2)));
    ct_assign(n, ct_scalar(7, CT_I32));
    assert_true(ct_eval(NULL, 0));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wanting(w, n, cases[i].before);
        setenv("COTAN_EXPLAIN", "1", 1);
        record_forget();
        int line = wanting(w, n, cases[i].now);
        unsetenv("COTAN_EXPLAIN");
        char want[256];
        if (cases[i].tail)
            snprintf(want, sizeof want, " new): %s%d%s", cases[i].head, line, cases[i].tail);
        else
            snprintf(want, sizeof want, " new): %s", cases[i].head);
        if (!ends_with(record_log, want)) fail_msg("%zu: \"%s\", not \"%s\"", i, record_log, want);
    }
    ct_params_free(set);
}

static void least_recently_used_plans_go(void **state) {
    (void)state;
    float v[1] = {0};
    uint64_t made = plans_made(), empty = ct_get_stats().plan_bytes;
    for (int i = 0; i < 300; i++) {
        CT_SCOPE;
        if (i == 1) ct_set_plan_cache(50 * (ct_get_stats().plan_bytes - empty));
        ct_tensor one = ct_const(v, CT_F32, CT_DIMS(1)); // content is part of the key
        v[0] += 1;
        assert_true(at(ct_mul(one, line_of(1)), 0) == i);
        assert_true(at(ct_exp(line_of(2)), 0) > 2); // used at every turn, so it stays
    }
    assert_int_equal(plans_made(), made + 301);
    v[0] = 0;
    CT_SCOPE;
    assert_true(at(ct_mul(ct_const(v, CT_F32, CT_DIMS(1)), line_of(1)), 0) == 0);
    assert_int_equal(plans_made(), made + 302); // the first one went
    ct_set_plan_cache(0);
}

static void twice_and_a_bit(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_add(ct_mul(ct_f(2), in[0]), ct_f(1e-5));
}

// A bare number keeps the digits that f64 has room for, in traced functions too.
static void a_bare_number_meets_f64_with_all_its_digits(void **state) {
    (void)state;
    CT_SCOPE;
    double three = 3;
    ct_tensor x = ct_from(&three, CT_F64, CT_SCALAR), y;
    assert_true(ct_item(ct_mul(ct_f(1e-5), x)) == 1e-5 * 3);
    assert_true(ct_item(ct_select(ct_less(ct_f(0.1), x), ct_f(0.1), x)) == 0.1);
    ct_call(twice_and_a_bit, NULL, &x, 1, &y, 1);
    assert_int_equal(ct_dtype_of(y), CT_F64);
    assert_true(ct_item(y) == 2.0 * 3 + 1e-5);
    uint64_t made = plans_made();
    ct_call(twice_and_a_bit, NULL, &x, 1, &y, 1);
    assert_true(ct_item(y) == 2.0 * 3 + 1e-5);
    assert_int_equal(plans_made(), made);
    assert_true(ct_item(ct_mul(ct_f(1e-5), line_of(1))) == (double)1e-5f); // and f32 what it has
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_learning_rate_and_a_position_that_change_never_recompile),
        TEST(scalars_are_operands_whatever_their_value),
        TEST(attributes_are_hashed),
        TEST(a_const_counts_by_content),
        TEST(only_a_const_is_folded),
        TEST(lines_and_pointers_do_not_count),
        TEST(the_alias_pattern_of_the_leaves_counts),
        TEST(a_leaf_may_come_behind_many_variables),
        TEST(which_variable_is_written_counts),
        TEST(the_kind_of_a_root_counts),
        TEST(a_dynamic_length_makes_a_plan_and_compiles_nothing),
        TEST(a_dynamic_axis_never_broadcasts_even_at_1),
        TEST(sizes_computed_from_a_dynamic_one_are_dynamic),
        TEST(a_changed_static_shape_makes_one_plan_and_one_line),
        TEST(a_variable_is_named_in_the_explanation),
        TEST(the_eighth_plan_of_a_line_gets_a_hint),
        TEST(a_changed_attribute_is_named),
        TEST(attributes_of_each_kind_are_told),
        TEST(a_result_that_is_wanted_this_time_is_named),
        TEST(least_recently_used_plans_go),
        TEST(a_bare_number_meets_f64_with_all_its_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
