// Dynamic sizes as symbols: sums and products come out equal however they were computed, what is known
// to be equal is one, and another run binds all of them or says that it contradicts them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cotan/cotan.h"
#include "graph/graph.h"
#include "graph/symbols.h"

static ct_arena arena;
static ct_symbols *table;

static int begin(void **state) {
    (void)state;
    table = ct__symbols_new(&arena);
    assert_non_null(table);
    ct__ctx()->symbols = table;
    return 0;
}
static int end(void **state) {
    (void)state;
    ct__ctx()->symbols = NULL;
    ct__arena_free(&arena);
    return 0;
}

static ct_monomial monomial(int64_t size) {
    ct_monomial m = {0};
    assert_true(ct__size_monomial(table, size, &m));
    return m;
}

static void plain_numbers_stay_plain(void **state) {
    (void)state;
    assert_int_equal(ct__size_add(3, 4), 7);
    assert_int_equal(ct__size_sub(3, 4), -1);
    assert_int_equal(ct__size_mul(3, 4), 12);
    assert_int_equal(ct__size_div_up(10, 4), 3);
    ct__ctx()->symbols = NULL; // outside of plans a mark stays a mark
    assert_true(ct__size_add(CT_DYN(3), 4) == CT_DYN(7));
    assert_true(ct__size_div_up(CT_DYN(10), 4) == CT_DYN(3));
}

static void equal_sizes_have_equal_symbols(void **state) {
    (void)state;
    const int64_t n = ct__symbol_word(table, 5, 6), m = ct__symbol_word(table, 9, 4);
    assert_true(n != m && n == ct__symbol_word(table, 5, 6));
    assert_true(ct__size_mul(n, m) == ct__size_mul(m, n));
    assert_true(ct__size_add(n, 3) == ct__size_add(ct__size_add(n, 1), 2));
    assert_true(ct__size_sub(ct__size_add(n, m), m) == n);
    assert_int_equal(ct__size_sub(ct__size_mul(n, 3), ct__size_mul(3, n)), 0);
    assert_true(ct__size_div_up(ct__size_mul(ct__size_mul(n, 64), m), ct__size_mul(m, 8)) ==
                ct__size_mul(n, 8));
    assert_true(ct__size_mul(ct__size_add(n, 1), 2) != ct__size_mul(n, 2));
    assert_true(ct__size_sub(ct__size_mul(ct__size_add(n, 1), 2), ct__size_mul(n, 2)) == 2);
    assert_int_equal(ct__unmarked(ct__size_mul(n, m)), 24);
    assert_int_equal(ct__unmarked(ct__size_div_up(n, m)), 2);
    assert_true(ct__symbols_complete(table));
}

static void what_is_equal_is_one(void **state) {
    (void)state;
    const int64_t n = ct__symbol_word(table, 5, 6), m = ct__symbol_word(table, 9, 6);
    const int64_t all = ct__symbol_word(table, 12, 384), open = ct__size_div_up(all, 64);
    ct__size_equal(n, m);
    assert_int_equal(monomial(n).atom[0], monomial(m).atom[0]);
    ct__size_equal(all, ct__size_mul(open, 64)); // (all,) as (open, 64)
    const ct_monomial whole = monomial(all), part = monomial(open);
    assert_int_equal(whole.coef, 64);
    assert_int_equal(whole.n, 1);
    assert_int_equal(whole.atom[0], part.atom[0]);
    assert_true(ct__size_canonical(table, all) == ct__size_mul(open, 64));
}

// (n, m) without elements has as many as (n,): m need not be 1.
static void what_0_hides_is_not_known(void **state) {
    (void)state;
    const int64_t n = ct__symbol_word(table, 5, 0), m = ct__symbol_word(table, 9, 3);
    ct__size_equal(ct__size_mul(n, m), n);
    assert_true(ct__size_canonical(table, m) == m && ct__marked(m));
}

static void another_run_binds_them(void **state) {
    (void)state;
    const int64_t n = ct__symbol_word(table, 5, 6), m = ct__symbol_word(table, 9, 6);
    const int64_t sum = ct__size_add(n, ct__symbol_word(table, 2, 1));
    const int64_t blocks = ct__size_div_up(sum, 4);
    ct__size_equal(n, m);
    uint64_t words[16] = {[2] = 3, [5] = (uint64_t)CT_DYN(10), [9] = (uint64_t)CT_DYN(10)};
    int64_t values[16];
    assert_true(ct__symbols_count(table) <= 16);
    assert_true(ct__symbols_bind(table, words, values));
    const ct_monomial s = monomial(sum), b = monomial(blocks);
    assert_int_equal(ct__monomial_value(&s, values), 13);
    assert_int_equal(ct__monomial_value(&b, values), 4);
    words[9] = (uint64_t)CT_DYN(11);
    assert_false(ct__symbols_bind(table, words, values));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(plain_numbers_stay_plain, begin, end),
        cmocka_unit_test_setup_teardown(equal_sizes_have_equal_symbols, begin, end),
        cmocka_unit_test_setup_teardown(what_is_equal_is_one, begin, end),
        cmocka_unit_test_setup_teardown(what_0_hides_is_not_known, begin, end),
        cmocka_unit_test_setup_teardown(another_run_binds_them, begin, end),
    };
    return cmocka_run_group_tests_name("symbols", tests, NULL, NULL);
}
