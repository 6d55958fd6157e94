// Index expressions: the normal form of random ones has the value of what was asked for, inside of the
// range that is said of it; and some that must collapse do.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "graph/index.h"

enum { VARS = 4, POINTS = 6, STEPS = 40, ROUNDS = 400 };

static ct_arena arena;
static ct_err err;
static uint32_t seed = 5;
static int below(int n) {
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (uint32_t)n);
}

static int64_t value_of(const ct_ix_pool *p, ct_ix e, const int64_t *vars) {
    const ct_ix_node *x = ct__ix_node(p, e);
    int64_t sum = 0;
    switch (x->kind) {
    case CT_IX_SUM:
        for (int i = 0; i < x->n; i++)
            sum += x->term[i].coef * (x->term[i].atom < 0 ? 1 : value_of(p, x->term[i].atom, vars));
        return sum;
    case CT_IX_VAR: return vars[x->number];
    case CT_IX_PROD: return value_of(p, x->a, vars) * value_of(p, x->b, vars);
    case CT_IX_DIV: return value_of(p, x->a, vars) / value_of(p, x->b, vars);
    case CT_IX_MOD: return value_of(p, x->a, vars) % value_of(p, x->b, vars);
    case CT_IX_LT: return value_of(p, x->a, vars) < value_of(p, x->b, vars);
    case CT_IX_EQ: return value_of(p, x->a, vars) == value_of(p, x->b, vars);
    case CT_IX_AND: return value_of(p, x->a, vars) && value_of(p, x->b, vars);
    case CT_IX_NOT: return !value_of(p, x->a, vars);
    case CT_IX_MIN:
    case CT_IX_MAX: {
        int64_t a = value_of(p, x->a, vars), b = value_of(p, x->b, vars);
        return (a < b) == (x->kind == CT_IX_MIN) ? a : b;
    }
    default: fail(); return 0;
    }
}

typedef struct {
    ct_ix e;
    int64_t value[POINTS];
} known;

// Of two known ones, or of one and a number, what has no overflow and no negative dividend.
static known combined(ct_ix_pool *p, const known *a, const known *b) {
    known r;
    const int how = below(7), n = 1 + below(70);
    const bool natural = ct__ix_node(p, a->e)->lo >= 0;
    ct_ix number = ct__ix_int(p, n);
    switch (how) {
    case 0: r.e = ct__ix_add(p, a->e, b->e); break;
    case 1: r.e = ct__ix_sub(p, a->e, b->e); break;
    case 2: r.e = ct__ix_mul(p, a->e, number); break;
    case 3: r.e = natural ? ct__ix_div(p, a->e, number) : a->e; break;
    case 4: r.e = natural ? ct__ix_mod(p, a->e, number) : a->e; break;
    case 5: r.e = ct__ix_min(p, a->e, b->e); break;
    default: r.e = ct__ix_lt(p, a->e, b->e); break;
    }
    for (int i = 0; i < POINTS; i++) {
        const int64_t x = a->value[i], y = b->value[i];
        switch (how) {
        case 0: r.value[i] = x + y; break;
        case 1: r.value[i] = x - y; break;
        case 2: r.value[i] = x * n; break;
        case 3: r.value[i] = natural ? x / n : x; break;
        case 4: r.value[i] = natural ? x % n : x; break;
        case 5: r.value[i] = x < y ? x : y; break;
        default: r.value[i] = x < y; break;
        }
    }
    return r;
}

static void random_expressions(void **state) {
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        ct_ix_pool *p = ct__ix_new(&arena, &err);
        known all[VARS + STEPS];
        int64_t vars[POINTS][VARS];
        for (int v = 0; v < VARS; v++) {
            const int size = 1 + below(40);
            all[v].e = ct__ix_var(p, ct__ix_int(p, size));
            for (int i = 0; i < POINTS; i++) vars[i][v] = all[v].value[i] = below(size);
        }
        for (int n = VARS; n < VARS + STEPS; n++) {
            all[n] = combined(p, &all[below(n)], &all[below(n)]);
            const ct_ix_node *x = ct__ix_node(p, all[n].e);
            if (x->lo < -100000 || x->hi > 100000) all[n] = all[below(VARS)];
            x = ct__ix_node(p, all[n].e);
            for (int i = 0; i < POINTS; i++) {
                assert_int_equal(value_of(p, all[n].e, vars[i]), all[n].value[i]);
                assert_true(x->lo <= all[n].value[i] && all[n].value[i] <= x->hi);
            }
        }
    }
    ct__arena_free(&arena);
}

static ct_ix_pool *p;
static ct_ix times(int64_t n, ct_ix x) { return ct__ix_mul(p, ct__ix_int(p, n), x); }

static void quotients_see_ranges(void **state) {
    (void)state;
    p = ct__ix_new(&arena, &err);
    ct_ix i = ct__ix_var(p, ct__ix_int(p, 256)), k = ct__ix_var(p, ct__ix_int(p, 8));
    ct_ix n32 = ct__ix_int(p, 32), n16 = ct__ix_int(p, 16);
    // (2 i + 33 k) mod 32 is (2 i + k) mod 32; its quotient is k more.
    ct_ix sum = ct__ix_add(p, times(2, i), times(33, k)), less = ct__ix_add(p, times(2, i), k);
    assert_int_equal(ct__ix_mod(p, sum, n32), ct__ix_mod(p, less, n32));
    assert_int_equal(ct__ix_div(p, sum, n32), ct__ix_add(p, k, ct__ix_div(p, less, n32)));
    // (16 i + k) / 16 is i, its remainder k.
    sum = ct__ix_add(p, times(16, i), k);
    assert_int_equal(ct__ix_div(p, sum, n16), i);
    assert_int_equal(ct__ix_mod(p, sum, n16), k);
    // Quotient and remainder together are what they came from.
    sum = ct__ix_add(p, times(33, i), k);
    ct_ix again = ct__ix_add(p, times(32, ct__ix_div(p, sum, n32)), ct__ix_mod(p, sum, n32));
    assert_int_equal(again, sum);
    // Conditions that ranges decide.
    int64_t yes = 0, no = 1;
    assert_true(ct__ix_is_int(p, ct__ix_lt(p, ct__ix_div(p, i, n16), n16), &yes) && yes);
    assert_true(ct__ix_is_int(p, ct__ix_lt(p, ct__ix_add(p, i, n16), k), &no) && !no);
    ct_ix far = ct__ix_div(p, ct__ix_add(p, i, ct__ix_int(p, 100)), n32); // 3 or more
    assert_true(ct__ix_is_int(p, ct__ix_lt(p, far, ct__ix_int(p, 3)), &no) && !no);
    ct__arena_free(&arena);
}

static bool decided(ct_ix condition) {
    int64_t value;
    return ct__ix_is_int(p, condition, &value);
}
// Outside of the loop over a dynamic axis it may have no element.
static void a_dynamic_size_may_be_0(void **state) {
    (void)state;
    p = ct__ix_new(&arena, &err);
    ct_ix n = ct__ix_sym(p, 0), zero = ct__ix_int(p, 0), one = ct__ix_int(p, 1);
    ct_ix j = ct__ix_var(p, ct__ix_int(p, 4)), i = ct__ix_var(p, times(2, n));
    assert_false(decided(ct__ix_lt(p, zero, n)) || decided(ct__ix_le(p, one, n)));
    assert_false(decided(ct__ix_lt(p, j, times(4, n))) || decided(ct__ix_eq(p, n, zero)));
    assert_int_equal(ct__ix_node(p, n)->lo, 0);
    assert_int_equal(ct__ix_node(p, ct__ix_sub(p, zero, n))->hi, 0);
    assert_int_equal(ct__ix_node(p, ct__ix_sub(p, n, one))->lo, -1);
    // In it there is one.
    int64_t yes = 0, no = 1;
    assert_true(ct__ix_is_int(p, ct__ix_lt(p, i, times(2, n)), &yes) && yes);
    assert_true(ct__ix_is_int(p, ct__ix_lt(p, ct__ix_add(p, i, n), zero), &no) && !no);
    assert_int_equal(ct__ix_node(p, ct__ix_add(p, i, n))->lo, 1);
    ct__arena_free(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_expressions),
                                       cmocka_unit_test(quotients_see_ranges),
                                       cmocka_unit_test(a_dynamic_size_may_be_0)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
