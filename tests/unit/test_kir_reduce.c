// Reductions have bits fixed by their index alone: every lowering against a plain statement of the
// rule.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kir/kir.h"
#include "support/kir_run.h"

static uint64_t seed = 42;
static double uniform(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) * 0x1p-53 * 2 - 1;
}

// The rule of kir.h, written down once more without regard to speed.
#define RULE(T, name)                                                                              \
    static T name(const T *x, int64_t n, bool mul) {                                               \
        int64_t blocks = (n + CT_REDUCE_BLOCK - 1) / CT_REDUCE_BLOCK;                              \
        if (n == 0) return mul ? 1 : 0;                                                            \
        T *result = malloc((size_t)blocks * sizeof *result);                                       \
        for (int64_t b = 0; b < blocks; b++) {                                                     \
            T lane[16];                                                                            \
            for (int j = 0; j < 16; j++) lane[j] = mul ? 1 : 0;                                    \
            for (int64_t i = b * CT_REDUCE_BLOCK; i < n && i < (b + 1) * CT_REDUCE_BLOCK; i++)     \
                lane[i % 16] = mul ? lane[i % 16] * x[i] : lane[i % 16] + x[i];                    \
            for (int h = 8; h; h /= 2)                                                             \
                for (int j = 0; j < h; j++)                                                        \
                    lane[j] = mul ? lane[j] * lane[j + h] : lane[j] + lane[j + h];                 \
            result[b] = lane[0];                                                                   \
        }                                                                                          \
        T all = blocks == 1 ? result[0] : name(result, blocks, mul);                               \
        free(result);                                                                              \
        return all;                                                                                \
    }
RULE(float, rule_f32)
RULE(double, rule_f64)

static const int64_t sizes[] = {0, 1, 5, 15, 16, 17, 100, 1023, 1024, 1025, 2048, 3000, 40000};
enum { SIZES = sizeof sizes / sizeof *sizes, LARGEST = 40000 };

// y[0] = reduction of x[0 .. n), the reduce loop itself in vectors or one by one; n an argument or
// a constant.
static void whole(ct_kir *k, ct_dtype dtype, ct_kred op, ct_kbind bind, int64_t constant) {
    ct__kir_init(k);
    int x = ct__kir_buffer(k, dtype, CT_KIR_READ);
    bool arg = ct__kred_is_arg(op);
    int y = ct__kir_buffer(k, arg ? CT_I64 : dtype, CT_KIR_WRITE);
    ct_kval n = constant >= 0 ? ct__kir_int(k, constant) : ct__kir_arg(k);
    ct_kval i = ct__kir_loop(k, bind, n, "element");
    ct_kval r = ct__kir_reduce(k, op, ct__kir_load(k, x, i));
    ct__kir_end(k);
    ct__kir_store(k, y, ct__kir_int(k, 0), r);
}

// y[c] = reduction over r of x[r, c] for `columns` columns, which are the vector loop.
static void by_column(ct_kir *k, ct_dtype dtype, ct_kred op) {
    ct__kir_init(k);
    int x = ct__kir_buffer(k, dtype, CT_KIR_READ);
    bool arg = ct__kred_is_arg(op);
    int y = ct__kir_buffer(k, arg ? CT_I64 : dtype, CT_KIR_WRITE);
    ct_kval rows = ct__kir_arg(k), columns = ct__kir_arg(k);
    ct_kval c = ct__kir_loop(k, CT_BIND_LANES, columns, "column");
    ct_kval r = ct__kir_loop(k, CT_BIND_SEQ, rows, "row");
    ct_kval at = ct__kir_add(k, ct__kir_mul(k, r, columns), c);
    ct_kval sum = ct__kir_reduce(k, op, ct__kir_load(k, x, at));
    ct__kir_end(k);
    ct__kir_store(k, y, c, sum);
    ct__kir_end(k);
}

// A long sum in two kernels: block results in parallel, then the sum of those.
static void block_results(ct_kir *k, ct_dtype dtype, ct_kred op) {
    ct__kir_init(k);
    int x = ct__kir_buffer(k, dtype, CT_KIR_READ), y = ct__kir_buffer(k, dtype, CT_KIR_WRITE);
    ct_kval n = ct__kir_arg(k);
    ct_kval b = ct__kir_loop(k, CT_BIND_ROWS, ct__kir_ceil_div(k, n, CT_REDUCE_BLOCK), "block");
    ct_kval begin = ct__kir_muli(k, b, CT_REDUCE_BLOCK);
    ct_kval extent = ct__kir_min(k, ct__kir_sub(k, n, begin), ct__kir_int(k, CT_REDUCE_BLOCK));
    ct_kval i = ct__kir_loop(k, CT_BIND_LANES, extent, "element");
    ct_kval at = ct__kir_add(k, begin, i);
    ct_kval sum = ct__kir_reduce(k, op, ct__kir_load(k, x, at));
    ct__kir_end(k);
    ct__kir_store(k, y, b, sum);
    ct__kir_end(k);
}

static void same_bits(const char *what, ct_dtype dtype, int64_t n, const void *got,
                      const void *want) {
    size_t size = ct_dtype_size(dtype);
    if (memcmp(got, want, size) == 0) return;
    if (dtype == CT_F32)
        fail_msg("%s of %d: %a, not %a", what, (int)n, (double)*(const float *)got,
                 (double)*(const float *)want);
    else
        fail_msg("%s of %d: %a, not %a", what, (int)n, *(const double *)got, *(const double *)want);
}

static void ordered(ct_dtype dtype, ct_kred op) {
    enum { COLUMNS = 19 };
    size_t size = ct_dtype_size(dtype);
    bool mul = op == CT_RED_MUL, f32 = dtype == CT_F32;
    char *x = malloc(LARGEST * size), *wide = malloc(LARGEST * COLUMNS * size);
    char y[COLUMNS * 8], partial[64 * 8], want[8];
    for (int64_t i = 0; i < LARGEST; i++) {
        double u = mul ? 1 + uniform() * 0.01 : uniform();
        if (f32)
            ((float *)x)[i] = (float)u;
        else
            ((double *)x)[i] = u;
        // each column holds x, so that all have the same sum
        for (int c = 0; c < COLUMNS; c++)
            memcpy(wide + ((size_t)i * COLUMNS + (size_t)c) * size, x + (size_t)i * size, size);
    }
    for (int s = 0; s < SIZES; s++) {
        int64_t n = sizes[s], blocks = (n + CT_REDUCE_BLOCK - 1) / CT_REDUCE_BLOCK;
        ct_kir k;
        if (f32)
            *(float *)want = rule_f32((float *)x, n, mul);
        else
            *(double *)want = rule_f64((double *)x, n, mul);
        whole(&k, dtype, op, CT_BIND_LANES, -1);
        kir_run(&k, (void *[]){x, y}, &n, 1);
        same_bits("vector", dtype, n, y, want);
        whole(&k, dtype, op, CT_BIND_SEQ, -1);
        kir_run(&k, (void *[]){x, y}, &n, 1);
        same_bits("scalar", dtype, n, y, want);
        if (n == 17 || n == 1024 || n == 3000) {
            whole(&k, dtype, op, CT_BIND_LANES, n);
            kir_run(&k, (void *[]){x, y}, &n, 1);
            same_bits("vector, constant extent", dtype, n, y, want);
        }
        by_column(&k, dtype, op);
        kir_run(&k, (void *[]){wide, y}, (int64_t[]){n, COLUMNS}, 1);
        for (int c = 0; c < COLUMNS; c++) same_bits("column", dtype, n, y + (size_t)c * size, want);
        block_results(&k, dtype, op);
        kir_run(&k, (void *[]){x, partial}, &n, 3);
        whole(&k, dtype, op, CT_BIND_LANES, -1);
        kir_run(&k, (void *[]){partial, y}, &blocks, 1);
        same_bits("two kernels", dtype, n, y, want);
    }
    free(x);
    free(wide);
}

static void sums_and_products_follow_the_rule(void **state) {
    (void)state;
    ordered(CT_F32, CT_RED_ADD);
    ordered(CT_F64, CT_RED_ADD);
    ordered(CT_F32, CT_RED_MUL);
    ordered(CT_F64, CT_RED_MUL);
}

// More than 1024 blocks: the rule is applied three times.
static void a_million_elements(void **state) {
    (void)state;
    int64_t n = 1024 * 1024 + 3 * 1024 + 77;
    float *x = malloc((size_t)n * sizeof *x), y = 0;
    for (int64_t i = 0; i < n; i++) x[i] = (float)uniform();
    float want = rule_f32(x, n, false);
    for (int bind = 0; bind < 2; bind++) {
        ct_kir k;
        whole(&k, CT_F32, CT_RED_ADD, bind ? CT_BIND_LANES : CT_BIND_SEQ, -1);
        kir_run(&k, (void *[]){x, &y}, &n, 1);
        same_bits("a million", CT_F32, n, &y, &want);
    }
    free(x);
}

// Extremes in every lowering; the number at `at` is put last.
static void extreme(ct_kred op, const float *x, int64_t n, float want, int64_t want_at) {
    enum { COLUMNS = 5 };
    bool arg = ct__kred_is_arg(op);
    float *wide = malloc(((size_t)n + 1) * COLUMNS * sizeof *wide);
    for (int64_t i = 0; i < n * COLUMNS; i++) wide[i] = x[i / COLUMNS];
    for (int form = 0; form < 3; form++) {
        char y[COLUMNS * 8] = {0};
        ct_kir k;
        if (form == 2)
            by_column(&k, CT_F32, op);
        else
            whole(&k, CT_F32, op, form ? CT_BIND_SEQ : CT_BIND_LANES, -1);
        void *in = form == 2 ? (void *)wide : (void *)(uintptr_t)x;
        kir_run(&k, (void *[]){in, y}, (int64_t[]){n, COLUMNS}, 1);
        float got = *(float *)y;
        if (arg)
            assert_int_equal(*(int64_t *)y, want_at);
        else if (isnan(want))
            assert_true(isnan(got));
        else
            same_bits("extreme", CT_F32, n, y, &want);
    }
    free(wide);
}

static void extremes_and_their_places(void **state) {
    (void)state;
    enum { N = 2500 };
    static float x[N];
    for (int i = 0; i < N; i++) x[i] = (float)uniform();
    x[700] = x[701] = 5; // the first wins
    x[1600] = x[2000] = -5;
    extreme(CT_RED_MAX, x, N, 5, 700);
    extreme(CT_RED_ARGMAX, x, N, 5, 700);
    extreme(CT_RED_MIN, x, N, -5, 1600);
    extreme(CT_RED_ARGMIN, x, N, -5, 1600);
    extreme(CT_RED_MAX, x, 0, -INFINITY, 0);
    extreme(CT_RED_MIN, x, 0, INFINITY, 0);
    extreme(CT_RED_ARGMAX, x, 0, 0, 0);
    x[1234] = x[1300] = NAN;
    extreme(CT_RED_MAX, x, N, NAN, 1234);
    extreme(CT_RED_MIN, x, N, NAN, 1234);
    extreme(CT_RED_ARGMAX, x, N, NAN, 1234);
    extreme(CT_RED_ARGMIN, x, N, NAN, 1234);
    static float zeros[40];
    for (int i = 0; i < 40; i++) zeros[i] = -0.0f;
    extreme(CT_RED_MAX, zeros, 40, -0.0f, 0);
    zeros[33] = 0;
    extreme(CT_RED_MAX, zeros, 40, 0.0f, 33);
    extreme(CT_RED_MIN, zeros, 40, -0.0f, 0);
    extreme(CT_RED_ARGMAX, zeros, 40, 0, 0); // equal values: the first
    static float low[20];
    for (int i = 0; i < 20; i++) low[i] = -INFINITY;
    extreme(CT_RED_ARGMAX, low, 20, 0, 0);
}

#define INT_REDUCTIONS(T, dtype, lowest, highest)                                                  \
    do {                                                                                           \
        enum { N = 1500 };                                                                         \
        static T x[N];                                                                             \
        T sum = 0, most = lowest, least = highest;                                                 \
        for (int i = 0; i < N; i++) {                                                              \
            x[i] = (T)((int64_t)(uniform() * 0x1p62) >> 3);                                        \
            sum = (T)((uint64_t)sum + (uint64_t)x[i]);                                             \
            if (x[i] > most) most = x[i];                                                          \
            if (x[i] < least) least = x[i];                                                        \
        }                                                                                          \
        for (int bind = 0; bind < 2; bind++) {                                                     \
            const ct_kred ops[3] = {CT_RED_ADD, CT_RED_MAX, CT_RED_MIN};                           \
            const T want[3] = {sum, most, least};                                                  \
            for (int o = 0; o < 3; o++) {                                                          \
                ct_kir k;                                                                          \
                T y = 0;                                                                           \
                int64_t n = N;                                                                     \
                whole(&k, dtype, ops[o], bind ? CT_BIND_LANES : CT_BIND_SEQ, -1);                  \
                kir_run(&k, (void *[]){x, &y}, &n, 1);                                             \
                assert_true(y == want[o]);                                                         \
            }                                                                                      \
        }                                                                                          \
    } while (0)

static void whole_numbers(void **state) {
    (void)state;
    INT_REDUCTIONS(int32_t, CT_I32, INT32_MIN, INT32_MAX);
    INT_REDUCTIONS(uint32_t, CT_U32, 0, UINT32_MAX);
    INT_REDUCTIONS(int64_t, CT_I64, INT64_MIN, INT64_MAX);
    INT_REDUCTIONS(uint64_t, CT_U64, 0, UINT64_MAX);
    INT_REDUCTIONS(uint8_t, CT_U8, 0, 255);
    INT_REDUCTIONS(uint16_t, CT_U16, 0, UINT16_MAX); // held in an i32
    INT_REDUCTIONS(int16_t, CT_I16, INT16_MIN, INT16_MAX);
    INT_REDUCTIONS(int8_t, CT_I8, INT8_MIN, INT8_MAX);
}

static void any_and_all(void **state) {
    (void)state;
    static const int64_t lengths[] = {0, 1, 16, 37};
    for (int pattern = 0; pattern < 4; pattern++)
        for (int s = 0; s < 4; s++) {
            uint8_t x[40] = {0}, y = 9;
            int64_t n = lengths[s];
            bool any = false, all = true;
            for (int i = 0; i < n; i++) {
                x[i] = pattern == 1 || (pattern == 2 && i == n - 1) || (pattern == 3 && i != n - 1);
                any |= x[i];
                all &= x[i];
            }
            for (int form = 0; form < 4; form++) {
                ct_kir k;
                whole(&k, CT_BOOL, form & 1 ? CT_RED_AND : CT_RED_OR,
                      form & 2 ? CT_BIND_LANES : CT_BIND_SEQ, -1);
                kir_run(&k, (void *[]){x, &y}, &n, 1);
                assert_int_equal(y, form & 1 ? all : any);
            }
        }
}

// Two reductions of one loop, one of them over the other's unmasked neighbour; and a reduction of
// reductions: the rows of a matrix, each summed by a loop of its own.
static void nested_and_joint(void **state) {
    (void)state;
    enum { ROWS = 37, COLUMNS = 53 };
    static float x[ROWS * COLUMNS], y[2], rows[ROWS];
    for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = (float)uniform();
    ct_kir k;
    ct__kir_init(&k);
    int in = ct__kir_buffer(&k, CT_F32, CT_KIR_READ),
        out = ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE);
    ct_kval r = ct__kir_loop_n(&k, CT_BIND_LANES, ROWS, "row");
    ct_kval c = ct__kir_loop_n(&k, CT_BIND_SEQ, COLUMNS, "column");
    ct_kval at = ct__kir_add(&k, ct__kir_muli(&k, r, COLUMNS), c);
    ct_kval row = ct__kir_reduce(&k, CT_RED_ADD, ct__kir_load(&k, in, at));
    ct__kir_end(&k);
    ct_kval sum = ct__kir_reduce(&k, CT_RED_ADD, row), max = ct__kir_reduce(&k, CT_RED_MAX, row);
    ct__kir_end(&k);
    ct__kir_store(&k, out, ct__kir_int(&k, 0), sum);
    ct__kir_store(&k, out, ct__kir_int(&k, 1), max);
    kir_run(&k, (void *[]){x, y}, NULL, 1);
    float most = -INFINITY;
    for (int i = 0; i < ROWS; i++) {
        rows[i] = rule_f32(x + i * COLUMNS, COLUMNS, false);
        if (rows[i] > most) most = rows[i];
    }
    float want = rule_f32(rows, ROWS, false);
    same_bits("sum of sums", CT_F32, ROWS, &y[0], &want);
    same_bits("largest sum", CT_F32, ROWS, &y[1], &most);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_and_products_follow_the_rule),
        cmocka_unit_test(a_million_elements),
        cmocka_unit_test(extremes_and_their_places),
        cmocka_unit_test(whole_numbers),
        cmocka_unit_test(any_and_all),
        cmocka_unit_test(nested_and_joint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
