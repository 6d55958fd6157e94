// Kernel IR from end to end: written by hand, rendered, compiled, run, and compared with double.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/build.h"
#include "kir/kir.h"
#include "compile/render/render_c.h"
#include "support/kir_run.h"

static uint64_t seed = 0x1234567; // fixed: every run sees the same numbers
static double uniform(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) * 0x1p-53 * 2 - 1;
}

// ----------------------------------------------------------------------------- the worked example
// softmax of each row of a (rows, columns) matrix:
//     m = max_j x[r, j];  e[j] = exp(x[r, j] - m);  y[r, j] = e[j] / sum_j e[j]
// in three passes over the row. The ROWS loop makes the rows parallel; the LANES loops are written
// like scalar loops, and REDUCE gives what they add up to.
static void softmax_kernel(ct_kir *k) {
    ct__kir_init(k);
    int x = ct__kir_buffer(k, CT_F32, CT_KIR_READ);
    int y = ct__kir_buffer(k, CT_F32, CT_KIR_READ | CT_KIR_WRITE);
    ct_kval rows = ct__kir_arg(k), columns = ct__kir_arg(k);

    ct_kval r = ct__kir_loop(k, CT_BIND_ROWS, rows, "row");
    ct_kval start = ct__kir_mul(k, r, columns);

    ct_kval j = ct__kir_loop(k, CT_BIND_LANES, columns, "column");
    ct_kval value = ct__kir_load(k, x, ct__kir_add(k, start, j));
    ct_kval largest = ct__kir_reduce(k, CT_RED_MAX, value);
    ct__kir_end(k);

    j = ct__kir_loop(k, CT_BIND_LANES, columns, "column");
    value = ct__kir_load(k, x, ct__kir_add(k, start, j));
    ct_kval e = ct__kir_math(k, CT_MATH_EXP, ct__kir_sub(k, value, largest));
    ct__kir_store(k, y, ct__kir_add(k, start, j), e);
    ct_kval sum = ct__kir_reduce(k, CT_RED_ADD, e);
    ct__kir_end(k);

    j = ct__kir_loop(k, CT_BIND_LANES, columns, "column");
    e = ct__kir_load(k, y, ct__kir_add(k, start, j));
    ct__kir_store(k, y, ct__kir_add(k, start, j), ct__kir_div(k, e, sum));
    ct__kir_end(k);

    ct__kir_end(k);
}

static void softmax_agrees_with_double(void **state) {
    (void)state;
    static const int64_t sizes[][2] = {{1, 1},    {3, 16},   {5, 17},   {4, 1000},
                                       {2, 1024}, {3, 1030}, {2, 5000}, {7, 100}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t rows = sizes[s][0], columns = sizes[s][1];
        size_t n = (size_t)(rows * columns);
        float *x = malloc(n * sizeof *x), *y = calloc(n + 1, sizeof *y);
        for (size_t i = 0; i < n; i++) x[i] = (float)(uniform() * 8);
        y[n] = 42; // stands guard behind the output
        ct_kir k;
        softmax_kernel(&k);
        kir_run(&k, (void *[]){x, y}, sizes[s], 2);
        for (int64_t r = 0; r < rows; r++) {
            double m = -INFINITY, sum = 0;
            for (int64_t j = 0; j < columns; j++) // fmax here breaks gcc 12 for aarch64 at -O3
                if ((double)x[r * columns + j] > m) m = (double)x[r * columns + j];
            for (int64_t j = 0; j < columns; j++) sum += exp((double)x[r * columns + j] - m);
            for (int64_t j = 0; j < columns; j++) {
                double want = exp((double)x[r * columns + j] - m) / sum;
                assert_true(fabs((double)y[r * columns + j] - want) <= 1e-6 * want);
            }
        }
        assert_true(y[n] == 42);
        free(x);
        free(y);
    }
}

// --------------------------------------------------------------------------------- memory access

// y[i] = x[index(i)] for indices of every kind; guards stand around x, and around y.
typedef ct_kval (*index_fn)(ct_kir *k, ct_kval i);

static ct_kval reversed(ct_kir *k, ct_kval i) { return ct__kir_sub(k, ct__kir_int(k, 999), i); }
static ct_kval by_three(ct_kir *k, ct_kval i) { return ct__kir_addi(k, ct__kir_muli(k, i, 3), 2); }
// rows of 32, transposed in blocks: contiguous inside a row, as 16 divides 32
static ct_kval in_rows(ct_kir *k, ct_kval i) {
    ct_kval row = ct__kir_div(k, i, ct__kir_int(k, 32)),
            column = ct__kir_mod(k, i, ct__kir_int(k, 32));
    return ct__kir_add(k, ct__kir_muli(k, row, 40), column);
}
// rows of 10: no group of 16 lies in one
static ct_kval in_short_rows(ct_kir *k, ct_kval i) {
    ct_kval row = ct__kir_div(k, i, ct__kir_int(k, 10)),
            column = ct__kir_mod(k, i, ct__kir_int(k, 10));
    return ct__kir_add(k, ct__kir_muli(k, row, 12), column);
}
static ct_kval same_place(ct_kir *k, ct_kval i) {
    (void)i;
    return ct__kir_int(k, 17);
}
static ct_kval divided(ct_kir *k, ct_kval i) {
    return ct__kir_div(k, ct__kir_muli(k, i, 48), ct__kir_int(k, 16));
}
static ct_kval wrapped(ct_kir *k, ct_kval i) {
    return ct__kir_bin(k, CT_K_AND, ct__kir_mul(k, i, i), ct__kir_int(k, 1023));
}

static int64_t plain_index(int form, int64_t i) {
    switch (form) {
    case 0: return 999 - i;
    case 1: return i * 3 + 2;
    case 2: return i / 32 * 40 + i % 32;
    case 3: return i / 10 * 12 + i % 10;
    case 4: return 17;
    case 5: return i * 48 / 16;
    default: return (i * i) & 1023;
    }
}

static void indices_of_every_kind(void **state) {
    (void)state;
    static const index_fn forms[] = {reversed,   by_three, in_rows, in_short_rows,
                                     same_place, divided,  wrapped};
    enum { MOST = 4096 };
    static float x[MOST], y[MOST], z[MOST];
    for (int i = 0; i < MOST; i++) x[i] = (float)i + 0.5f;
    for (int f = 0; f < 7; f++)
        for (int64_t n = 0; n < 200; n += n < 20 ? 1 : 41)
            for (int half = 0; half < 2; half++) {
                // half: the second half is written by a loop that starts at an argument
                for (int i = 0; i < MOST; i++) y[i] = z[i] = -1;
                ct_kir k;
                ct__kir_init(&k);
                int in = ct__kir_buffer(&k, CT_F32, CT_KIR_READ);
                int out = ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE);
                int scattered = ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE);
                ct_kval count = ct__kir_arg(&k), from = ct__kir_arg(&k);
                ct_kval i = ct__kir_loop(&k, CT_BIND_LANES, count, "element");
                if (half) i = ct__kir_add(&k, i, from);
                ct_kval v = ct__kir_load(&k, in, forms[f](&k, i));
                ct__kir_store(&k, out, i, v);
                if (f != 4 && f != 6) // one place for many
                    ct__kir_store(&k, scattered, forms[f](&k, i), v);
                ct__kir_end(&k);
                kir_run(&k, (void *[]){x, y, z}, (int64_t[]){n, 100}, 1);
                for (int64_t j = 0; j < MOST; j++) {
                    int64_t at = j - (half ? 100 : 0);
                    bool inside = at >= 0 && at < n;
                    float want = inside ? x[plain_index(f, j)] : -1;
                    if (y[j] != want)
                        fail_msg("index %d, n %d: y[%d] is %g, not %g", f, (int)n, (int)j,
                                 (double)y[j], (double)want);
                }
                for (int64_t j = half ? 100 : 0; f != 4 && f != 6 && j < n + (half ? 100 : 0);
                     j++) {
                    int64_t at = plain_index(f, j);
                    assert_true(z[at] == x[at]);
                    z[at] = -1;
                }
                for (int j = 0; j < MOST; j++) assert_true(z[j] == -1);
            }
}

// A causal mask, a padded load, a padded store: comparisons of indices, and what they admit.
static void conditions_guard_memory(void **state) {
    (void)state;
    enum { N = 53 };
    float *x = malloc(N * sizeof *x), *y = malloc(3 * N * sizeof *y);
    for (int i = 0; i < N; i++) x[i] = (float)(i + 1);
    for (int bind = 0; bind < 2; bind++)
        for (int64_t limit = -2; limit < 60; limit += 5) {
            for (int i = 0; i < 3 * N; i++) y[i] = -1;
            ct_kir k;
            ct__kir_init(&k);
            int in = ct__kir_buffer(&k, CT_F32, CT_KIR_READ);
            int out = ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE);
            ct_kval most = ct__kir_arg(&k), zero = ct__kir_int(&k, 0);
            ct_kval i = ct__kir_loop_n(&k, bind ? CT_BIND_LANES : CT_BIND_SEQ, N, "element");
            ct_kval low = ct__kir_lt(&k, i, most);
            ct_kval odd = ct__kir_bin(&k, CT_K_EQ, ct__kir_mod(&k, i, ct__kir_int(&k, 2)), zero);
            // x[i + 7]: read only where it exists and i < limit
            ct_kval there = ct__kir_lt(&k, ct__kir_addi(&k, i, 7), ct__kir_int(&k, N));
            ct_kval both = ct__kir_bin(&k, CT_K_AND, low, there);
            ct__kir_store(&k, out, i, ct__kir_load_if(&k, in, ct__kir_addi(&k, i, 7), both));
            // x[0] where i is even
            ct_kval first = ct__kir_load_if(&k, in, zero, odd);
            ct__kir_store_if(&k, out, ct__kir_addi(&k, i, N), first, low);
            // stores to even places, from places that are the same for all
            ct__kir_store_if(
                &k, out, ct__kir_addi(&k, i, 2 * N),
                ct__kir_load_if(&k, in, ct__kir_addi(&k, most, 2), ct__kir_lt(&k, most, zero)),
                odd);
            ct__kir_end(&k);
            kir_run(&k, (void *[]){x, y}, &limit, 1);
            for (int j = 0; j < N; j++) {
                assert_true(y[j] == (j < limit && j + 7 < N ? x[j + 7] : 0));
                assert_true(y[N + j] == (j < limit ? (j % 2 ? 0 : x[0]) : -1));
                assert_true(y[2 * N + j] == (j % 2 ? -1 : limit < 0 ? x[limit + 2] : 0));
            }
        }
    free(x);
    free(y);
}

static void indices_as_values(void **state) {
    (void)state;
    enum { N = 40 };
    static float f[N];
    static int64_t w[N];
    static uint8_t b[4 * N];
    static const int64_t limits[] = {-40, 2, 20, INT64_MIN, INT64_MAX, 1L << 40};
    for (int l = 0; l < 6; l++) {
        ct_kir k;
        ct__kir_init(&k);
        int of = ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE),
            ow = ct__kir_buffer(&k, CT_I64, CT_KIR_WRITE);
        int ob = ct__kir_buffer(&k, CT_BOOL, CT_KIR_WRITE);
        ct_kval big = ct__kir_arg(&k), i = ct__kir_loop_n(&k, CT_BIND_LANES, N, "element");
        ct_kval back = ct__kir_sub(&k, ct__kir_int(&k, 20), ct__kir_muli(&k, i, 3));
        ct__kir_store(&k, of, i, ct__kir_cast(&k, back, CT_F32));
        ct__kir_store(&k, ow, i, back);
        const ct_kop compares[] = {CT_K_LT, CT_K_LE, CT_K_EQ, CT_K_NE};
        for (int c = 0; c < 4; c++)
            ct__kir_store(&k, ob, ct__kir_addi(&k, i, c * N),
                          ct__kir_bin(&k, compares[c], back, big));
        ct__kir_end(&k);
        kir_run(&k, (void *[]){f, w, b}, &limits[l], 1);
        for (int64_t j = 0; j < N; j++) {
            int64_t v = 20 - 3 * j;
            assert_true(f[j] == (float)v);
            assert_int_equal(w[j], v);
            assert_int_equal(b[j], v < limits[l]);
            assert_int_equal(b[N + j], v <= limits[l]);
            assert_int_equal(b[2 * N + j], v == limits[l]);
            assert_int_equal(b[3 * N + j], v != limits[l]);
        }
    }
}

// ---------------------------------------------------------------------- registers, locals, lanes

// Running sum along the rows of each column: a register a lane, in a loop inside the vector loop.
static void a_register_is_carried_by_a_loop(void **state) {
    (void)state;
    enum { ROWS = 9, COLUMNS = 21 };
    static float x[ROWS * COLUMNS], y[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = (float)uniform();
    ct_kir k;
    ct__kir_init(&k);
    int in = ct__kir_buffer(&k, CT_F32, CT_KIR_READ),
        out = ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE);
    ct_kval c = ct__kir_loop_n(&k, CT_BIND_LANES, COLUMNS, "column");
    ct_kval sum = ct__kir_reg(&k, ct__kir_const(&k, CT_F32, 0));
    ct_kval r = ct__kir_loop_n(&k, CT_BIND_SEQ, ROWS, "row");
    ct_kval at = ct__kir_add(&k, ct__kir_muli(&k, r, COLUMNS), c);
    ct__kir_set(&k, sum, ct__kir_add(&k, ct__kir_get(&k, sum), ct__kir_load(&k, in, at)));
    ct__kir_store(&k, out, at, ct__kir_get(&k, sum));
    ct__kir_end(&k);
    ct__kir_end(&k);
    kir_run(&k, (void *[]){x, y}, NULL, 1);
    for (int j = 0; j < COLUMNS; j++) {
        float want = 0;
        for (int i = 0; i < ROWS; i++) {
            want += x[i * COLUMNS + j];
            assert_true(y[i * COLUMNS + j] == want);
        }
    }
}

// C (m, n) = A (m, k) B (k, n) in tiles of 4 x 32: B packed into a local, the tile in registers,
// the tail of n by counted loads and stores.
static void tiled_matmul(ct_kir *k, int64_t m, int64_t n, int64_t depth) {
    enum { MR = 4, NV = 2, WIDTH = NV * CT_LANES };
    ct__kir_init(k);
    int a = ct__kir_buffer(k, CT_F32, CT_KIR_READ), b = ct__kir_buffer(k, CT_F32, CT_KIR_READ);
    int c = ct__kir_buffer(k, CT_F32, CT_KIR_WRITE);
    int packed = ct__kir_local(k, CT_F32, depth * WIDTH);
    ct_kval tile = ct__kir_loop_n(k, CT_BIND_ROWS, (n + WIDTH - 1) / WIDTH, "columns");
    ct_kval left = ct__kir_muli(k, tile, WIDTH), rest[NV];
    for (int v = 0; v < NV; v++)
        rest[v] = ct__kir_max(k, ct__kir_int(k, 0),
                              ct__kir_sub(k, ct__kir_int(k, n - v * CT_LANES), left));

    ct_kval p = ct__kir_loop_n(k, CT_BIND_SEQ, depth, "pack");
    for (int v = 0; v < NV; v++) {
        ct_kval from = ct__kir_add(k, ct__kir_muli(k, p, n), ct__kir_addi(k, left, v * CT_LANES));
        ct_kval to = ct__kir_addi(k, ct__kir_muli(k, p, WIDTH), v * CT_LANES);
        ct__kir_vstore(k, packed, to, ct__kir_vload(k, b, from, rest[v]), -1);
    }
    ct__kir_end(k);

    ct_kval row = ct__kir_muli(k, ct__kir_loop_n(k, CT_BIND_SEQ, m / MR, "rows"), MR);
    ct_kval acc[MR][NV];
    for (int i = 0; i < MR; i++)
        for (int v = 0; v < NV; v++)
            acc[i][v] = ct__kir_reg(k, ct__kir_splat(k, ct__kir_const(k, CT_F32, 0)));
    p = ct__kir_loop_n(k, CT_BIND_SEQ, depth, "depth");
    ct_kval bv[NV];
    for (int v = 0; v < NV; v++)
        bv[v] =
            ct__kir_vload(k, packed, ct__kir_addi(k, ct__kir_muli(k, p, WIDTH), v * CT_LANES), -1);
    for (int i = 0; i < MR; i++) {
        ct_kval at = ct__kir_add(k, ct__kir_muli(k, ct__kir_addi(k, row, i), depth), p);
        ct_kval av = ct__kir_load(k, a, at);
        for (int v = 0; v < NV; v++)
            ct__kir_set(k, acc[i][v], ct__kir_fma(k, av, bv[v], ct__kir_get(k, acc[i][v])));
    }
    ct__kir_end(k);
    for (int i = 0; i < MR; i++)
        for (int v = 0; v < NV; v++) {
            ct_kval at = ct__kir_add(k, ct__kir_muli(k, ct__kir_addi(k, row, i), n),
                                     ct__kir_addi(k, left, v * CT_LANES));
            ct__kir_vstore(k, c, at, ct__kir_get(k, acc[i][v]), rest[v]);
        }
    ct__kir_end(k);
    ct__kir_end(k);
}

static void registers_hold_a_tile(void **state) {
    (void)state;
    enum { M = 8, N = 75, K = 50 };
    static float a[M * K], b[K * N], c[M * N + 1];
    for (int i = 0; i < M * K; i++) a[i] = (float)uniform();
    for (int i = 0; i < K * N; i++) b[i] = (float)uniform();
    c[M * N] = 42;
    ct_kir k;
    tiled_matmul(&k, M, N, K);
    assert_true(ct__kir_scratch(&k) >= K * 32 * sizeof(float)); // too large for the stack
    kir_run(&k, (void *[]){a, b, c}, NULL, 3);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float want = 0;
            for (int p = 0; p < K; p++) want = fmaf(a[i * K + p], b[p * N + j], want);
            assert_true(c[i * N + j] == want);
        }
    assert_true(c[M * N] == 42);
}

// Gathered and scattered lanes, folds, unrolled loops, a small local.
static void lanes_by_hand(void **state) {
    (void)state;
    static float x[64], y[64], sums[4];
    for (int i = 0; i < 64; i++) x[i] = (float)uniform();
    ct_kir k;
    ct__kir_init(&k);
    int in = ct__kir_buffer(&k, CT_F32, CT_KIR_READ),
        out = ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE);
    int folded = ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE), small = ct__kir_local(&k, CT_F32, 64);
    ct_kval u = ct__kir_loop_n(&k, CT_BIND_UNROLL, 4, "part");
    ct_kval lane = ct__kir_iota(&k);
    // every fourth element, backwards
    ct_kval from = ct__kir_sub(&k, ct__kir_int(&k, 60), ct__kir_muli(&k, lane, 4));
    ct_kval v = ct__kir_load(&k, in, ct__kir_add(&k, from, u));
    ct__kir_vstore(&k, small, ct__kir_muli(&k, u, 16), v, -1);
    ct_kval sum = ct__kir_fold(&k, CT_RED_ADD, v);
    ct__kir_store(&k, folded, u, sum);
    ct_kval again = ct__kir_vload(&k, small, ct__kir_muli(&k, u, 16), -1);
    // lanes permuted by an index that is no line: l -> (5 l) mod 16
    ct_kval to = ct__kir_bin(&k, CT_K_AND, ct__kir_muli(&k, lane, 5), ct__kir_int(&k, 15));
    ct__kir_store(&k, out, ct__kir_add(&k, to, ct__kir_muli(&k, u, 16)), again);
    ct__kir_end(&k);
    kir_run(&k, (void *[]){x, y, sums}, NULL, 1);
    for (int p = 0; p < 4; p++) {
        float lanes[16];
        for (int l = 0; l < 16; l++) {
            lanes[l] = x[60 - 4 * l + p];
            assert_true(y[16 * p + 5 * l % 16] == lanes[l]);
        }
        for (int h = 8; h; h /= 2)
            for (int l = 0; l < h; l++) lanes[l] += lanes[l + h];
        assert_true(sums[p] == lanes[0]);
    }
}

// Of each row the sum of its elements up to the first that is negative, and how many those are.
static void a_break_leaves_its_loop(void **state) {
    (void)state;
    enum { ROWS = 7, COLUMNS = 9 };
    static float x[ROWS * COLUMNS], sum[ROWS];
    static int64_t count[ROWS];
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++)
            x[r * COLUMNS + c] = c == 2 * r ? -1.0f : (float)(r + c); // of the last rows nowhere
    ct_kir k;
    ct__kir_init(&k);
    int in = ct__kir_buffer(&k, CT_F32, CT_KIR_READ),
        out = ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE),
        many = ct__kir_buffer(&k, CT_I64, CT_KIR_WRITE);
    ct_kval zero = ct__kir_int(&k, 0), r = ct__kir_loop_n(&k, CT_BIND_SEQ, ROWS, "row");
    ct_kval total = ct__kir_reg(&k, ct__kir_const(&k, CT_F32, 0)), n = ct__kir_reg(&k, zero);
    ct_kval c = ct__kir_loop_n(&k, CT_BIND_SEQ, COLUMNS, "column");
    ct_kval v = ct__kir_load(&k, in, ct__kir_add(&k, ct__kir_muli(&k, r, COLUMNS), c));
    ct__kir_break(&k, ct__kir_lt(&k, v, ct__kir_const(&k, CT_F32, 0)));
    ct__kir_set(&k, total, ct__kir_add(&k, ct__kir_get(&k, total), v));
    ct__kir_set(&k, n, ct__kir_addi(&k, ct__kir_get(&k, n), 1));
    ct__kir_end(&k);
    ct__kir_store(&k, out, r, ct__kir_get(&k, total));
    ct__kir_store(&k, many, r, ct__kir_get(&k, n));
    ct__kir_end(&k);
    kir_run(&k, (void *[]){x, sum, count}, NULL, 1);
    for (int i = 0; i < ROWS; i++) {
        int want = 2 * i < COLUMNS ? 2 * i : COLUMNS;
        float by_hand = 0;
        for (int j = 0; j < want; j++) by_hand += (float)(i + j);
        assert_int_equal(count[i], want);
        assert_true(sum[i] == by_hand);
    }
}

// y[3 + i] = x[i] + n by a kernel with a grid and scratch, written three times into another one.
static void a_kernel_in_a_kernel(void **state) {
    (void)state;
    enum { LONG = 20 };
    static float x[LONG], y[3 * LONG + 3];
    for (int i = 0; i < LONG; i++) x[i] = (float)i;
    int in, out, io;
    ct_kir inner = {0}, k = {0};
    ct__kir_init(&inner);
    in = ct__kir_buffer(&inner, CT_F32, CT_KIR_READ);
    int local = ct__kir_local(&inner, CT_F32, LONG);
    out = ct__kir_buffer(&inner, CT_F32, CT_KIR_WRITE);
    ct_kval n = ct__kir_arg(&inner);
    ct_kval half = ct__kir_muli(&inner, ct__kir_loop_n(&inner, CT_BIND_ROWS, 2, "half"), LONG / 2);
    ct_kval at = ct__kir_add(&inner, half, ct__kir_loop_n(&inner, CT_BIND_LANES, LONG / 2, NULL));
    ct__kir_store(&inner, local, at, ct__kir_load(&inner, in, at));
    ct_kval sum =
        ct__kir_add(&inner, ct__kir_load(&inner, local, at), ct__kir_cast(&inner, n, CT_F32));
    ct__kir_store(&inner, out, at, sum);
    ct__kir_end(&inner);
    ct__kir_end(&inner);

    ct__kir_init(&k);
    in = ct__kir_buffer(&k, CT_F32, CT_KIR_READ);
    io = ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE);
    ct_kval times = ct__kir_loop_n(&k, CT_BIND_SEQ, 3, "time");
    ct_kval place = ct__kir_addi(&k, ct__kir_muli(&k, times, LONG), 3);
    const int bufs[3] = {in, -1, io};
    const ct_kval offset[3] = {-1, -1, place}, arg = ct__kir_addi(&k, times, 100);
    ct__kir_inline(&k, &inner, &(ct_kir_inlined){bufs, offset, &arg});
    ct__kir_end(&k);
    ct__kir_free(&inner);
    kir_run(&k, (void *[]){x, y}, NULL, 1);
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < LONG; i++) assert_true(y[3 + t * LONG + i] == (float)(i + 100 + t));
}

// -------------------------------------------------------------------------------------- mistakes

static void expect_fault(ct_kir *k, const char *text) {
    ct_err err = {0};
    assert_false(ct__kir_verify(k, &err));
    assert_int_equal(err.code, CT_E_INTERNAL);
    assert_string_equal(err.text, text);
    ct__kir_free(k);
}

static ct_kir fresh(int *in, int *out) {
    ct_kir k;
    ct__kir_init(&k);
    *in = ct__kir_buffer(&k, CT_F32, CT_KIR_READ);
    *out = ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE);
    return k;
}

// A store in a loop of extent 0 never runs, so it may have the same index in all lanes.
static void loops_of_nothing_are_no_mistake(void **state) {
    (void)state;
    int x, y;
    ct_err err = {0};
    ct_kir k = fresh(&x, &y);
    ct_kval i = ct__kir_loop_n(&k, CT_BIND_LANES, 8, NULL);
    ct__kir_loop_n(&k, CT_BIND_SEQ, 0, NULL);
    ct__kir_store(&k, y, ct__kir_int(&k, 0), ct__kir_load(&k, x, i));
    ct__kir_end(&k);
    ct__kir_end(&k);
    if (!ct__kir_verify(&k, &err)) fail_msg("%s", err.text);
    ct__kir_free(&k);
}

static void mistakes_are_told(void **state) {
    (void)state;
    int x, y;
    ct_kir k = fresh(&x, &y);
    ct_kval i = ct__kir_loop_n(&k, CT_BIND_LANES, 8, "column"), v = ct__kir_load(&k, x, i);
    ct__kir_store(&k, y, i, v);
    expect_fault(&k, "kernel: LOOP at instruction 1: the loop is not closed");

    k = fresh(&x, &y);
    i = ct__kir_loop_n(&k, CT_BIND_SEQ, 8, NULL);
    v = ct__kir_load(&k, x, i);
    ct__kir_end(&k);
    ct__kir_store(&k, y, ct__kir_int(&k, 0), v);
    expect_fault(
        &k, "kernel: STORE at instruction 5: a value is used outside of the loop that made it");

    k = fresh(&x, &y);
    i = ct__kir_loop_n(&k, CT_BIND_SEQ, 8, NULL);
    v = ct__kir_reduce(&k, CT_RED_ADD, ct__kir_load(&k, x, i));
    ct__kir_store(&k, y, i, v);
    ct__kir_end(&k);
    expect_fault(&k,
                 "kernel: STORE at instruction 4: the result of a REDUCE is used before the END of "
                 "its loop");

    k = fresh(&x, &y);
    i = ct__kir_loop_n(&k, CT_BIND_LANES, 8, NULL);
    ct__kir_store(&k, y, ct__kir_int(&k, 0), ct__kir_load(&k, x, i));
    ct__kir_end(&k);
    expect_fault(&k, "kernel: STORE at instruction 4: all lanes store to one place");

    k = fresh(&x, &y);
    ct_kval r = ct__kir_reg(&k, ct__kir_const(&k, CT_F32, 0));
    i = ct__kir_loop_n(&k, CT_BIND_LANES, 8, NULL);
    ct__kir_set(&k, r, ct__kir_load(&k, x, i));
    ct__kir_end(&k);
    expect_fault(
        &k, "kernel: SET at instruction 5: a register made outside is set inside a LANES loop");

    k = fresh(&x, &y);
    i = ct__kir_loop_n(&k, CT_BIND_LANES, 8, NULL);
    ct__kir_prefetch(&k, x, ct__kir_muli(&k, i, 2), false);
    ct__kir_end(&k);
    expect_fault(&k, "kernel: PREFETCH at instruction 4: lanes that are no neighbours");

    k = fresh(&x, &y);
    i = ct__kir_loop_n(&k, CT_BIND_LANES, 8, NULL);
    ct__kir_loop(&k, CT_BIND_SEQ, i, NULL);
    ct__kir_end(&k);
    ct__kir_end(&k);
    expect_fault(&k, "kernel: LOOP at instruction 2: the extent differs between lanes");

    k = fresh(&x, &y);
    ct__kir_loop_n(&k, CT_BIND_SEQ, 8, NULL);
    ct__kir_loop_n(&k, CT_BIND_ROWS, 8, NULL);
    ct__kir_end(&k);
    ct__kir_end(&k);
    expect_fault(&k, "kernel: LOOP at instruction 2: the ROWS loop is not the outermost and last");

    k = fresh(&x, &y);
    ct__kir_bin(&k, CT_K_ADD, ct__kir_int(&k, 1), ct__kir_const(&k, CT_F32, 1));
    ct__kir_store(&k, y, ct__kir_int(&k, 0), -1);
    expect_fault(&k, "kernel: ADD at instruction 2: the operands differ in dtype");

    k = fresh(&x, &y);
    ct__kir_store(&k, x, ct__kir_int(&k, 0), ct__kir_const(&k, CT_F32, 1));
    expect_fault(&k, "kernel: STORE at instruction 2: the buffer is not declared so");

    k = fresh(&x, &y);
    ct__kir_loop_n(&k, CT_BIND_SEQ, 8, "*/ #include");
    expect_fault(&k, "kernel: LOOP at instruction 1: the name holds odd characters");
}

static void mistakes_with_breaks_are_told(void **state) {
    (void)state;
    int x, y;
    ct_kir k = fresh(&x, &y);
    ct_kval i = ct__kir_loop_n(&k, CT_BIND_SEQ, 8, NULL);
    ct_kval v = ct__kir_load(&k, x, i);
    ct__kir_break(&k, ct__kir_lt(&k, v, v));
    ct__kir_reduce(&k, CT_RED_ADD, v);
    ct__kir_end(&k);
    expect_fault(&k, "kernel: BREAK at instruction 4: the loop that it leaves reduces");

    k = fresh(&x, &y);
    i = ct__kir_loop_n(&k, CT_BIND_LANES, 8, NULL);
    v = ct__kir_load(&k, x, i);
    ct__kir_break(&k, ct__kir_lt(&k, v, v));
    ct__kir_end(&k);
    expect_fault(&k, "kernel: BREAK at instruction 4: it is not in a SEQ loop");

    k = fresh(&x, &y);
    ct__kir_loop_n(&k, CT_BIND_SEQ, 8, NULL);
    ct__kir_break(&k, ct__kir_int(&k, 1));
    expect_fault(&k, "kernel: BREAK at instruction 3: the condition is no bool");
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    for (int64_t n = 0;; n++) {
        ct_kir k;
        ct_text text = {0};
        char name[40];
        ct_err err = {0};
        ct__fail_alloc_after(n);
        softmax_kernel(&k);
        bool ok = ct__render_c(&k, &text, name, &err);
        ct__fail_alloc_after(-1);
        ct__text_free(&text);
        ct__kir_free(&k);
        if (ok) {
            assert_true(n > 10);
            return;
        }
        assert_int_equal(err.code, CT_E_MEMORY);
    }
}

static void kernels_are_printed_and_deterministic(void **state) {
    (void)state;
    ct_kir k;
    int x, y;
    k = fresh(&x, &y);
    ct_kval n = ct__kir_arg(&k), i = ct__kir_loop(&k, CT_BIND_LANES, n, "element");
    ct_kval v = ct__kir_load(&k, x, ct__kir_add(&k, ct__kir_int(&k, 0), i));
    ct__kir_store(&k, y, i, ct__kir_add(&k, v, ct__kir_const(&k, CT_F32, 0.5)));
    ct__kir_end(&k);
    ct_text text = {0};
    ct__kir_print(&k, &text);
    assert_string_equal(text.s, "b0: f32 read\n"
                                "b1: f32 write\n"
                                "   0 i64 arg #0\n"
                                "   1 i64 loop lanes %0  // element\n"
                                "   2   i64 const 0\n"
                                "   3   f32 load b0 %1\n"
                                "   4   f32 const 0.5\n"
                                "   5   f32 add %3 %4\n"
                                "   6   store b1 %1 %5\n"
                                "   7 end %1\n");
    ct__text_free(&text);
    ct_text a = {0}, b = {0};
    char name_a[40], name_b[40];
    ct_err err = {0};
    assert_true(ct__render_c(&k, &a, name_a, &err) && ct__render_c(&k, &b, name_b, &err));
    assert_string_equal(a.s, b.s);
    assert_string_equal(name_a, name_b);
    assert_non_null(strstr(a.s, name_a));
    ct__text_free(&a);
    ct__text_free(&b);
    ct__kir_free(&k);
}

// A C compiler would warn of "v < v", which is false, in a plan that was written as C.
static void whole_numbers_and_themselves(void **state) {
    (void)state;
    static const ct_dtype dtypes[] = {CT_U8, CT_I16, CT_I32, CT_U32, CT_I64, CT_U64, CT_BOOL};
    static const struct {
        ct_kop op;
        int64_t is;
    } compares[] = {{CT_K_LT, 0}, {CT_K_LE, 1}, {CT_K_EQ, 1}, {CT_K_NE, 0}};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes + 1; d++) {
        bool whole = d < sizeof dtypes / sizeof *dtypes;
        ct_kir k;
        ct__kir_init(&k);
        int x = ct__kir_buffer(&k, whole ? dtypes[d] : CT_F32, CT_KIR_READ);
        ct_kval v = ct__kir_load(&k, x, ct__kir_arg(&k));
        for (int c = 0; c < 4; c++) {
            ct_kval is = ct__kir_bin(&k, compares[c].op, v, v);
            assert_true(is >= 0 && k.ins[is].dtype == CT_BOOL);
            assert_int_equal(k.ins[is].op == CT_K_CONST, whole);
            if (whole) assert_int_equal(k.ins[is].imm.i, compares[c].is);
        }
        bool ordered = whole && dtypes[d] != CT_BOOL;
        if (ordered) assert_int_equal(ct__kir_bin(&k, CT_K_MIN, v, v), v);
        if (ordered) assert_int_equal(ct__kir_bin(&k, CT_K_MAX, v, v), v);
        ct__kir_free(&k);
    }
}

// The largest nest counts; a tile that ends early counts as the first one, which is whole.
static void iterations_are_counted_from_args(void **state) {
    (void)state;
    ct_kir k;
    ct__kir_init(&k);
    ct_kval n = ct__kir_arg(&k), width = ct__kir_int(&k, 64);
    ct_kval task = ct__kir_loop(&k, CT_BIND_ROWS, ct__kir_ceil_div(&k, n, 64), "task");
    ct_kval rest = ct__kir_sub(&k, n, ct__kir_mul(&k, task, width));
    ct__kir_loop(&k, CT_BIND_LANES, ct__kir_min(&k, width, rest), "element");
    ct__kir_end(&k);
    ct__kir_loop_n(&k, CT_BIND_SEQ, 3, "few");
    ct__kir_end(&k);
    ct__kir_end(&k);
    assert_true(ct__kir_iterations(&k, (int64_t[]){640}) == 640);
    assert_true(ct__kir_iterations(&k, (int64_t[]){10}) == 10);
    assert_true(ct__kir_iterations(&k, (int64_t[]){2}) == 3);
    assert_true(ct__kir_iterations(&k, (int64_t[]){0}) == 1);
    ct__kir_free(&k);
}

static void the_grid_is_computed_from_args(void **state) {
    (void)state;
    ct_kir k;
    ct__kir_init(&k);
    ct_kval n = ct__kir_arg(&k), m = ct__kir_arg(&k);
    ct_kval tiles =
        ct__kir_mul(&k, ct__kir_ceil_div(&k, n, 32), ct__kir_max(&k, m, ct__kir_int(&k, 2)));
    ct__kir_loop(&k, CT_BIND_ROWS, tiles, "tile");
    ct__kir_end(&k);
    assert_int_equal(ct__kir_grid(&k, (int64_t[]){65, 1}), 6);
    assert_int_equal(ct__kir_grid(&k, (int64_t[]){64, 5}), 10);
    assert_true(ct__kir_iterations(&k, (int64_t[]){65, 1}) == 6);
    ct__kir_free(&k);
}

// A number that the kernel only reads is loaded, and what is computed from it, in front of the loop over
// elements; one that it writes as well, one of a buffer that may be empty, and what has another place
// each time, stay where they are.
static void numbers_are_read_once_a_task(void **state) {
    (void)state;
    ct_kir k;
    ct_err err = {0};
    ct__kir_init(&k);
    int rate = ct__kir_buffer(&k, CT_F32, CT_KIR_READ);
    int sum = ct__kir_buffer(&k, CT_F32, CT_KIR_READ | CT_KIR_WRITE);
    int x = ct__kir_buffer(&k, CT_F32, CT_KIR_READ);
    int some = ct__kir_buffer(&k, CT_F32, CT_KIR_READ);
    const int64_t least[] = {[0] = 1, [1] = 1, [2] = 16, [3] = 0};
    ct_kval zero = ct__kir_int(&k, 0);
    ct_kval row = ct__kir_loop_n(&k, CT_BIND_ROWS, 2, "row");
    ct_kval i = ct__kir_loop_n(&k, CT_BIND_SEQ, 8, "element");
    ct_kval at = ct__kir_add(&k, ct__kir_muli(&k, row, 8), i);
    ct_kval root = ct__kir_un(&k, CT_K_SQRT, ct__kir_load(&k, rate, zero));
    ct_kval more = ct__kir_mul(&k, ct__kir_load(&k, x, at), root);
    more = ct__kir_mul(&k, more, ct__kir_load(&k, some, zero));
    ct__kir_store(&k, sum, zero, ct__kir_add(&k, ct__kir_load(&k, sum, zero), more));
    ct__kir_end(&k);
    ct__kir_end(&k);
    const size_t before = k.n;
    ct__kir_hoist(&k, least);
    assert_int_equal(k.n, before);
    assert_true(ct__kir_verify(&k, &err));
    int loads = 0, roots = 0;
    for (size_t n = 0; n < k.n; n++) {
        const ct_kins *ins = &k.ins[n];
        const bool inner = ins->in >= 0 && k.ins[ins->in].sub == CT_BIND_SEQ;
        if (ins->op == CT_K_LOAD) {
            loads++;
            assert_true(inner == (ins->imm.i != rate));
        }
        if (ins->op == CT_K_SQRT) {
            roots++;
            assert_false(inner);
        }
    }
    assert_true(loads == 4 && roots == 1);
    ct__kir_free(&k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_agrees_with_double),
        cmocka_unit_test(indices_of_every_kind),
        cmocka_unit_test(conditions_guard_memory),
        cmocka_unit_test(indices_as_values),
        cmocka_unit_test(a_register_is_carried_by_a_loop),
        cmocka_unit_test(registers_hold_a_tile),
        cmocka_unit_test(lanes_by_hand),
        cmocka_unit_test(a_break_leaves_its_loop),
        cmocka_unit_test(a_kernel_in_a_kernel),
        cmocka_unit_test(loops_of_nothing_are_no_mistake),
        cmocka_unit_test(mistakes_are_told),
        cmocka_unit_test(mistakes_with_breaks_are_told),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(kernels_are_printed_and_deterministic),
        cmocka_unit_test(numbers_are_read_once_a_task),
        cmocka_unit_test(whole_numbers_and_themselves),
        cmocka_unit_test(the_grid_is_computed_from_args),
        cmocka_unit_test(iterations_are_counted_from_args),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
