// Types, promotion, conversions, records, the printer and the verifier.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"
#include "ops/opcode.h"
#include "support/record.h"

#define TEST(name) cmocka_unit_test_setup_teardown(name, record_begin, record_end)
#define FILE_NAME "tests/unit/test_graph.c"

// ------------------------------------------------------------------------------------ promotion

// Of all pairs it is compared with JAX's by tests/ops/test_dtypes.py.
static void bare_integers_keep_their_size(void **state) {
    (void)state;
    assert_int_equal(ct_dtype_of(ct_add(ct_i(1), ct_i(1))), CT_I32);
    assert_int_equal(ct_dtype_of(ct_add(ct_i(1), ct_i(1ll << 40))), CT_I64);
    assert_int_equal(ct_dtype_of(ct_clamp(ct_i(1), ct_i(1ll << 40), ct_f(1))), CT_F32);
}

// ---------------------------------------------------------------------------------- conversions

// The nearest of all values of a 16-bit format to x, ties to the even pattern, by their real
// values.
static double half_value(uint32_t h) {
    int exponent = (int)(h >> 10 & 31), mantissa = (int)(h & 1023);
    double v = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return h & 0x8000 ? -v : v; // exponent 31 counts as 2^16: where infinity would lie
}
static double bf16_value(uint32_t h) {
    int exponent = (int)(h >> 7 & 255), mantissa = (int)(h & 127);
    double v = exponent ? ldexp(128 + mantissa, exponent - 134) : ldexp(mantissa, -133);
    return h & 0x8000 ? -v : v;
}

static uint32_t encode(ct_dtype d, float x) { return ct__encode_float(d, (double)x); }

static void all_65536_halves(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = (float)ct__decode_float(CT_F16, h), g = (float)ct__decode_float(CT_BF16, h);
        uint32_t special = h & 0x7fff;
        if (special > 0x7c00) {
            assert_true(isnan(f) && (encode(CT_F16, f) & 0x7c00) == 0x7c00);
            assert_true(encode(CT_F16, f) & 0x3ff);
        } else {
            assert_true(special == 0x7c00 ? isinf(f) : (double)f == half_value(h));
            assert_int_equal(!!signbit(f), h >> 15);
            assert_int_equal(encode(CT_F16, f), h);
        }
        if (special > 0x7f80) {
            assert_true(isnan(g) &&
                        isnan(ct__decode_float(CT_BF16, ct__encode_float(CT_BF16, (double)g))));
        } else {
            assert_true(special == 0x7f80 ? isinf(g) : (double)g == bf16_value(h));
            assert_int_equal(encode(CT_BF16, g), h);
        }
    }
}

// Between neighbours: the midpoint goes to the even one, a little beside it to the nearer one.
static void rounding_between_all_neighbours(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double a = half_value(h), b = half_value(h + 1), middle = (a + b) / 2;
        float m = (float)middle;
        assert_true((double)m == middle);
        assert_int_equal(encode(CT_F16, m), h & 1 ? h + 1 : h);
        assert_int_equal(encode(CT_F16, nextafterf(m, 0)), h);
        assert_int_equal(encode(CT_F16, nextafterf(m, INFINITY)), h + 1);
        assert_int_equal(encode(CT_F16, -m), 0x8000 | (h & 1 ? h + 1 : h));
    }
    for (uint32_t h = 0; h < 0x7f7f; h++) {
        double middle = (bf16_value(h) + bf16_value(h + 1)) / 2;
        float m = (float)middle;
        assert_int_equal(encode(CT_BF16, m), h & 1 ? h + 1 : h);
        if (h) assert_int_equal(encode(CT_BF16, nextafterf(m, 0)), h);
        assert_int_equal(encode(CT_BF16, nextafterf(m, INFINITY)), h + 1);
    }
    assert_int_equal(encode(CT_BF16, 3.4e38f), 0x7f80); // past the largest: infinity
    assert_int_equal(encode(CT_F16, 1e9f), 0x7c00);
}

static void elements_convert_as_documented(void **state) {
    (void)state;
    int32_t i = 0;
    uint8_t u = 9;
    float f = 0;
    ct__store_f64(CT_I32, &i, 0, -2.9);
    assert_int_equal(i, -2);
    ct__store_f64(CT_I32, &i, 0, 1e300);
    assert_int_equal(i, INT32_MAX);
    ct__store_f64(CT_U8, &u, 0, (double)NAN);
    assert_int_equal(u, 0);
    ct__store_i64(CT_U8, &u, 0, 257);
    assert_int_equal(u, 1);
    // one rounding, not two: by way of double this would be a tie, and go down
    ct__store_i64(CT_F32, &f, 0, (1ll << 53) + (1 << 29) + 1);
    assert_true(f == (float)((1ll << 53) + (1 << 30)));
    ct__store_i64(CT_F32, &f, 0, -(1ll << 53) - (1 << 29) - 1);
    assert_true(f == -(float)((1ll << 53) + (1 << 30)));
}

// Integers of every width at their ends: what saturates, what wraps, and u64 above 2^63.
static void integers_convert_at_their_ends(void **state) {
    (void)state;
    uint64_t room = 0;
    for (ct_dtype d = CT_U8; d <= CT_I64; d++) {
        ct__store_f64(d, &room, 0, 1e300);
        assert_true(ct__load_i64(d, &room, 0) == ct__int_max(d));
        ct__store_f64(d, &room, 0, -1e300);
        assert_true(ct__load_i64(d, &room, 0) == ct__int_min(d));
        ct__store_f64(d, &room, 0, (double)NAN);
        assert_true(ct__load_i64(d, &room, 0) == 0);
        ct__store_i64(d, &room, 0, (int64_t)((uint64_t)ct__int_max(d) + 1));
        assert_true(ct__load_i64(d, &room, 0) == ct__int_min(d));
        ct__store_f64(d, &room, 0, 6.9);
        assert_true(ct__load_f64(d, &room, 0) == 6);
    }
    float f = 0;
    double v = 0;
    uint16_t h = 0;
    ct__store_f64(CT_U64, &room, 0, 0x1.8p63);
    assert_true(room == 3ull << 62 && ct__load_f64(CT_U64, &room, 0) == 0x1.8p63);
    ct__store_u64(CT_F32, &f, 0, UINT64_MAX);
    ct__store_u64(CT_F64, &v, 0, UINT64_MAX - 1025);
    assert_true(f == 0x1p64f && v == 0x1.fffffffffffffp63);
    ct__store_u64(CT_F16, &h, 0, 65519); // below half way to what f16 has not
    assert_int_equal(h, 0x7bff);
    assert_string_equal(ct__int_text(CT_U64, -1).s, "18446744073709551615");
    assert_string_equal(ct__int_text(CT_I64, INT64_MIN).s, "-9223372036854775808");
}

// ------------------------------------------------------------------------------------------ types

static void types_print_as_tuples(void **state) {
    (void)state;
    const int64_t dims[] = {2, 3, 5};
    ct_type t = {.dtype = CT_F32, .rank = 3, .dim = dims};
    assert_string_equal(ct__type_text(&t).s, "(2, 3, 5) f32");
    t.dyn = 2;
    assert_string_equal(ct__type_text(&t).s, "(2, n=3, 5) f32");
    t.rank = 1, t.dyn = 0, t.dtype = CT_BF16;
    assert_string_equal(ct__type_text(&t).s, "(2,) bf16");
    t.rank = 0;
    assert_string_equal(ct__type_text(&t).s, "() bf16");
    int64_t many[CT_MAX_RANK];
    for (int i = 0; i < CT_MAX_RANK; i++) many[i] = INT64_MAX / 2;
    t = (ct_type){.dtype = CT_F64, .rank = CT_MAX_RANK, .dim = many};
    assert_true(strlen(ct__type_text(&t).s) < CT_TYPE_TEXT); // cut, and ended
}

static void shapes_that_are_too_large_are_refused(void **state) {
    (void)state;
    const int64_t huge = 1ll << 40;
    ct_tensor x = ct_f(1);
    int line = __LINE__ + 1;
    ct_expand(x, CT_DIMS(huge, huge));
    char want[256];
    snprintf(want, sizeof want,
             FILE_NAME ":%d: expand: (1099511627776, 1099511627776) f32 is too large: the sizes "
                       "multiply to 2^60 or more",
             line);
    assert_error(CT_E_SHAPE, want);
    ct_tensor wide = ct_expand(x, CT_DIMS(1, huge)), tall = ct_expand(x, CT_DIMS(huge, 1));
    assert_ok();
    line = __LINE__ + 1;
    ct_add(wide, tall);
    snprintf(want, sizeof want,
             FILE_NAME ":%d: add: (1099511627776, 1099511627776) f32 is too large: the sizes "
                       "multiply to 2^60 or more",
             line);
    assert_error(CT_E_SHAPE, want);
}

static void a_size_is_dynamic_only_where_it_is_marked(void **state) {
    (void)state;
    const int64_t most = ((int64_t)1 << 48) - 1, plain[] = {0, 1, most, most + 1, INT64_MAX, -1};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        assert_false(ct__marked(plain[i]));
        assert_true(ct__unmarked(plain[i]) == plain[i]);
    }
    for (int bit = 49; bit < 63; bit++) assert_false(ct__marked(((int64_t)1 << bit) + 5));
    for (int i = 0; i < 3; i++) {
        assert_true(ct__marked(CT_DYN(plain[i])));
        assert_true(ct__unmarked(CT_DYN(plain[i])) == plain[i]);
    }
    assert_false(ct__marked(CT_DYN(most + 1)));
    assert_false(ct__marked(CT_DYN(-1)));
    assert_true(ct__unmarked(CT_DYN(-1)) == -1); // what the error says
}

// The attributes of the node that made t, as they are printed.
static const char *attributes_of(ct_tensor t) {
    static char printed[128];
    uint32_t out;
    ct_text text = {0};
    const ct_node *node = ct__peek(t, &out);
    ct__attrs_print(&text, node->op, node->attrs);
    snprintf(printed, sizeof printed, "%s", text.s);
    ct__text_free(&text);
    return printed;
}

// What a step or a gap says beyond any axis is not counted with.
static void steps_and_gaps_beyond_the_axis_have_one_form(void **state) {
    (void)state;
    static float ones[8];
    ct_tensor x = ct_from(ones, CT_F32, CT_DIMS(2, 4)), row = ct_from(ones, CT_F32, CT_DIMS(1, 8)),
              n = ct_from(ones, CT_F32, CT_DIMS(CT_DYN(1), 8)),
              none = ct_from(NULL, CT_F32, CT_DIMS(0, 8));
    const int64_t most = INT64_MAX;
    const char *form = "axes=[], start=[0, 0], stop=[2, 4], step=[2, 4]";
    assert_string_equal(attributes_of(ct_slice(x, .step = CT_INTS(most, most))), form);
    assert_string_equal(attributes_of(ct_slice(x, .step = CT_INTS(2, 4))), form);
    form = "axes=[], start=[0, 0], stop=[0, 8], step=[1, 3]";
    assert_string_equal(attributes_of(ct_slice(none, .step = CT_INTS(most, 3))), form);
    form = "axes=[], start=[0, 0], stop=[end, 8], step=[281474976710656, 3]";
    assert_string_equal(attributes_of(ct_slice(n, .step = CT_INTS(most, 3))), form);
    form = "low=[0, 0], high=[0, 0], interior=[0, 1]";
    assert_string_equal(attributes_of(ct_pad(row, ct_f(0), .interior = CT_INTS(most, 1))), form);
    assert_string_equal(attributes_of(ct_pad(none, ct_f(0), .interior = CT_INTS(most, 1))), form);
    form = "low=[0, 0], high=[0, 0], interior=[1152921504606846976, 1]";
    assert_string_equal(attributes_of(ct_pad(n, ct_f(0), .interior = CT_INTS(most, 1))), form);
    assert_ok();
}

static void more_operands_than_a_node_holds_are_refused(void **state) {
    (void)state;
    enum { N = 70000 };
    ct_tensor *xs = malloc(N * sizeof *xs), x = line_of(1);
    assert_non_null(xs);
    for (int i = 0; i < N; i++) xs[i] = x;
    ct_tensor all = ct_concat(xs, N, 0);
    if (ct_failed()) {
        assert_int_equal(ct_error_code(), CT_E_ARGUMENT);
        ct_error_clear();
    } else {
        assert_int_equal(ct_dim(all, 0), N); // cut into several by its constructor
    }
    free(xs);
}

// ---------------------------------------------------------------------------------------- records

static ct_hash hash_of(const ct_tensor *roots, size_t n, ct_order *order) {
    ct_root list[8];
    for (size_t i = 0; i < n; i++) {
        list[i] = (ct_root){.kind = CT_ROOT_READ};
        assert_true(ct__resolve(ct__ctx(), roots[i], &list[i].val, "test", 0, CT_HERE));
    }
    assert_true(ct__order(ct__ctx(), order, list, n));
    return order->hash;
}

static void records_depend_on_structure_alone(void **state) {
    (void)state;
    ct_order o = {0};
    ct_tensor x = line_of(3), y = line_of(3), z = vec(3, (double[]){7, 8, 9});
    ct_tensor a = ct_exp(x), b = ct_sin(y), ab = ct_mul(a, b);
    ct_tensor d = ct_sin(z), c = ct_exp(x), cd = ct_mul(c, d); // recorded the other way round
    ct_hash first = hash_of(&ab, 1, &o);
    assert_true(ct__hash_equal(first, hash_of(&cd, 1, &o)));
    ct_tensor others[] = {
        ct_mul(b, a),                                                   // operands exchanged
        ct_mul(ct_exp(x), ct_sin(x)),                                   // one leaf twice
        ct_mul(a, ct_cos(y)),                                           // another op
        ct_add(a, b),                                                   //
        ct_mul(a, ct_sin(line_of(1))),                                  // another shape
        ct_mul(a, ct_sin(ct_cast(y, CT_F64))),                          //
        ct_mul(a, ct_sin(ct_from((double[3]){0}, CT_F64, CT_DIMS(3)))), // another dtype
        ct_mul(a, ct_mul(b, ct_f(1))),                                  //
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(ct__hash_equal(first, hash_of(&others[i], 1, &o)));
    ct_tensor two[] = {a, b}, swapped[] = {b, a};
    ct_hash pair = hash_of(two, 2, &o);
    assert_false(ct__hash_equal(pair, hash_of(swapped, 2, &o)));
    ct_tensor s0 = ct_sum(x, .axes = CT_AXES(0)), keep = ct_sum(x, .keepdims = true);
    ct_hash sum = hash_of(&s0, 1, &o);
    assert_false(ct__hash_equal(sum, hash_of(&keep, 1, &o))); // an attribute
    ct__order_free(&o);
}

// What is printed and hashed holds no addresses: a field that is none of the kinds is not listed.
static void attributes_hold_no_addresses(void **state) {
    (void)state;
    char attrs[64] = {0};
    ct_text text = {0};
    assert_true(ct__op_linear.attr_size <= sizeof attrs);
    ct__attrs_print(&text, &ct__op_linear, attrs);
    assert_string_equal(text.s, "present=[]");
    ct__text_free(&text);
}

static void graphs_print_a_line_a_node(void **state) {
    (void)state;
    ct_order o = {0};
    ct_tensor x = ct_reshape(line_of(6), CT_DIMS(2, 3));
    ct_topk_out top = ct_topk(x, 2);
    ct_tensor y = ct_add(ct_sum(top.values, .axes = CT_AXES(-1)), ct_f(2));
    hash_of(&y, 1, &o);
    ct_text text = {0};
    ct__print_nodes(&text, o.nodes, o.n);
    assert_string_equal(text.s, "%0 = data : f32(6,)\n"
                                "%1 = reshape %0 {dims=[2, 3]} : f32(2, 3)\n"
                                "%2 = topk %1 {k=2} : f32(2, 2), i32(2, 2)\n"
                                "%3 = sum %2.0 {axes=[1], keepdims=false} : f32(2,)\n"
                                "%4 = scalar : f32()\n"
                                "%5 = add %3 %4 : f32(2,)\n");
    ct__text_free(&text);
    ct__order_free(&o);
}

static void the_verifier_finds_what_is_broken(void **state) {
    (void)state;
    ct_order o = {0};
    ct_tensor x = line_of(3), y = ct_sum(ct_mul(ct_exp(x), x));
    hash_of(&y, 1, &o); // data, exp, mul, sum
    ct_err err = {0};
    assert_int_equal(o.n, 4);
    assert_true(ct__verify(o.nodes, o.n, &err));
    ct_node *mul = o.nodes[2];

    ct_node *order[] = {o.nodes[0], mul, o.nodes[1], o.nodes[3]};
    assert_false(ct__verify(order, 4, &err));
    assert_non_null(strstr(err.text, "verify: node 1: mul uses a later or foreign node"));

    err.code = CT_OK;
    ct_val right = mul->in[1];
    mul->in[1].out = 5;
    assert_false(ct__verify(o.nodes, o.n, &err));
    assert_non_null(strstr(err.text, "verify: node 2: mul uses output 5 of data"));
    mul->in[1] = right;

    err.code = CT_OK;
    uint8_t dtype = mul->out->dtype;
    mul->out->dtype = CT_F64;
    assert_false(ct__verify(o.nodes, o.n, &err));
    assert_non_null(
        strstr(err.text, "verify: node 2: mul: output 0 is (3,) f64, by its rule it is (3,) f32"));
    mul->out->dtype = dtype;

    err.code = CT_OK;
    mul->n_in = 1;
    assert_false(ct__verify(o.nodes, o.n, &err));
    assert_non_null(strstr(err.text, "verify: node 2: mul has 1 operands"));
    mul->n_in = 2;
    err.code = CT_OK;
    assert_true(ct__verify(o.nodes, o.n, &err));
    ct__order_free(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(bare_integers_keep_their_size),
        TEST(all_65536_halves),
        TEST(rounding_between_all_neighbours),
        TEST(elements_convert_as_documented),
        TEST(integers_convert_at_their_ends),
        TEST(types_print_as_tuples),
        TEST(shapes_that_are_too_large_are_refused),
        TEST(a_size_is_dynamic_only_where_it_is_marked),
        TEST(steps_and_gaps_beyond_the_axis_have_one_form),
        TEST(more_operands_than_a_node_holds_are_refused),
        TEST(records_depend_on_structure_alone),
        TEST(attributes_hold_no_addresses),
        TEST(graphs_print_a_line_a_node),
        TEST(the_verifier_finds_what_is_broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
