// Kernels of scatters, scans and topk against plain loops: equal to the bit.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kinds/scan.h"
#include "kinds/scatter.h"
#include "kinds/sort.h"
#include "support/kir_run.h"

static uint64_t seed = 77001; // fixed: every run sees the same numbers
static uint64_t next(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed >> 33;
}
static float uniform(void) { return (float)((double)next() * 0x1p-30 - 1); }

static float *floats(int64_t n) {
    float *x = malloc((size_t)n * sizeof *x + 4);
    for (int64_t i = 0; i < n; i++) x[i] = uniform();
    return x;
}

typedef struct plain {
    ct_kval stride[4];
} plain;

// A dense operand with these axes.
static ct_source source(ct_kir *k, plain *p, int buf, int rank, const int64_t *dim) {
    int64_t stride = 1;
    for (int a = rank - 1; a >= 0; a--) {
        p->stride[a] = ct__kir_int(k, stride);
        stride *= dim[a];
    }
    return (ct_source){.buf = buf, .offset = -1, .stride = p->stride};
}
static ct_sink sink(ct_kir *k, plain *p, int buf, int rank, const int64_t *dim) {
    source(k, p, buf, rank, dim);
    return (ct_sink){.buf = buf, .offset = -1, .stride = p->stride};
}

static ct_picking picking(ct_kir *k, const int64_t s[5]) {
    return (ct_picking){ct__kir_int(k, s[0]), ct__kir_int(k, s[1]), ct__kir_int(k, s[2]),
                        ct__kir_int(k, s[3]), ct__kir_int(k, s[4])};
}

// batch, middle, n, picks, tail
static const int64_t sizes[][5] = {{1, 1, 10, 7, 1},    {1, 1, 5, 40, 3},     {1, 1, 50, 20, 100},
                                   {2, 3, 7, 9, 17},    {3, 1, 4, 20000, 1},  {1, 2, 1, 3, 16},
                                   {1, 1, 300, 9, 768}, {2, 2, 20000, 30, 2}, {1, 1, 3, 0, 5}};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static int64_t product(const int64_t *v, int n) {
    int64_t p = 1;
    for (int i = 0; i < n; i++) p *= v[i];
    return p;
}

// Positions of which some lie outside.
static int32_t *positions(int64_t count, int64_t n) {
    int32_t *at = malloc((size_t)count * sizeof *at + 4);
    for (int64_t i = 0; i < count; i++) at[i] = (int32_t)(next() % (uint64_t)(n + 3)) - 1;
    return at;
}

static int by_value(const void *a, const void *b) {
    return *(const int32_t *)a - *(const int32_t *)b;
}
static int32_t clipped(int32_t at, int64_t n) {
    return at < 0 && n ? 0 : at >= n ? (int32_t)n - 1 : at;
}

// Promises: sorted, and unique, which goes in two launches.
static void scatter(bool clip, bool sorted, bool unique) {
    for (int c = 0; c < N_SIZES; c++) {
        const int64_t *s = sizes[c];
        if (unique && s[3] > s[2]) continue;
        int64_t B = s[0], M = s[1], n = s[2], P = s[3], T = s[4], count = B * M * n * T;
        float *x = floats(count), *u = floats(B * M * P * T), *y = floats(count + 1),
              *want = malloc((size_t)count * sizeof *want);
        int32_t *at = positions(B * P, n);
        for (int64_t i = 0; unique && i < B * P; i++) at[i] = (int32_t)(n - 1 - i % P);
        for (int64_t b = 0; sorted && b < B; b++)
            qsort(at + b * P, (size_t)P, sizeof *at, by_value);
        y[count] = 42;
        ct_kir k;
        ct__kir_init(&k);
        int bx = ct__kir_buffer(&k, CT_F32, CT_KIR_READ),
            bi = ct__kir_buffer(&k, CT_I32, CT_KIR_READ),
            bu = ct__kir_buffer(&k, CT_F32, CT_KIR_READ),
            by = ct__kir_buffer(&k, CT_F32, CT_KIR_READ | CT_KIR_WRITE);
        plain px, pi, pu;
        ct_scatter_spec spec = {.pass = unique ? CT_SCATTER_COPY : CT_SCATTER_WHOLE,
                                .op = CT_RED_ADD,
                                .clip = clip,
                                .sorted = sorted,
                                .size = picking(&k, s),
                                .x = source(&k, &px, bx, 4, (int64_t[]){B, M, n, T}),
                                .positions = source(&k, &pi, bi, 2, (int64_t[]){B, P}),
                                .updates = source(&k, &pu, bu, 4, (int64_t[]){B, M, P, T}),
                                .out = by};
        ct__template_scatter(&k, &spec);
        kir_run(&k, (void *[]){x, at, u, y}, NULL, 1 + c % 3);
        if (unique) {
            ct__kir_init(&k);
            bx = ct__kir_buffer(&k, CT_F32, CT_KIR_READ);
            bi = ct__kir_buffer(&k, CT_I32, CT_KIR_READ);
            bu = ct__kir_buffer(&k, CT_F32, CT_KIR_READ);
            by = ct__kir_buffer(&k, CT_F32, CT_KIR_READ | CT_KIR_WRITE);
            spec.pass = CT_SCATTER_PICKS;
            spec.size = picking(&k, s);
            spec.x = source(&k, &px, bx, 4, (int64_t[]){B, M, n, T});
            spec.positions = source(&k, &pi, bi, 2, (int64_t[]){B, P});
            spec.updates = source(&k, &pu, bu, 4, (int64_t[]){B, M, P, T});
            ct__template_scatter(&k, &spec);
            kir_run(&k, (void *[]){x, at, u, y}, NULL, 1 + c % 3);
        }
        memcpy(want, x, (size_t)count * sizeof *want);
        for (int64_t i = 0; i < B * M * P; i++) {
            int64_t lead = i / P, to = at[lead / M * P + i % P];
            if (clip) to = clipped((int32_t)to, n);
            for (int64_t t = 0; t < T && to >= 0 && to < n; t++)
                want[(lead * n + to) * T + t] += u[i * T + t];
        }
        assert_memory_equal(y, want, (size_t)count * sizeof *want);
        assert_true(y[count] == 42);
        free(x), free(u), free(y), free(want), free(at);
    }
}

static void scatter_add(void **state) {
    (void)state;
    scatter(false, false, false);
    scatter(true, false, false);
    scatter(false, true, false);
    scatter(true, true, false);
    scatter(false, false, true);
}

// The rule of docs/design/bits.md: blocks of 1,024 in order, carries put to them in order.
static void running(ct_kred op, const float *x, float *want, int64_t n, int64_t step,
                    bool reverse) {
    float carry = 0;
    for (int64_t q = 0; q * 1024 < n; q++) {
        float sum = op == CT_RED_MUL ? 1 : op == CT_RED_MAX ? -INFINITY : 0;
        for (int64_t i = q * 1024; i < n && i < (q + 1) * 1024; i++) {
            int64_t at = (reverse ? n - 1 - i : i) * step;
            sum = op == CT_RED_MUL   ? sum * x[at]
                  : op == CT_RED_MAX ? fmaxf(sum, x[at])
                                     : sum + x[at];
            want[at] = q == 0             ? sum
                       : op == CT_RED_MUL ? carry * sum
                       : op == CT_RED_MAX ? fmaxf(carry, sum)
                                          : carry + sum;
        }
        carry = q == 0             ? sum
                : op == CT_RED_MUL ? carry * sum
                : op == CT_RED_MAX ? fmaxf(carry, sum)
                                   : carry + sum;
    }
}

static void run_scan(ct_scan_pass pass, ct_kred op, const int64_t *dim, bool reverse, float *x,
                     float *y, float *carry) {
    ct_kir k;
    ct__kir_init(&k);
    plain px, py;
    bool reads = pass != CT_SCAN_CARRY, writes = pass == CT_SCAN_WHOLE || pass == CT_SCAN_BLOCKS;
    void *bufs[3];
    int n = 0;
    ct_scan_spec spec = {.pass = pass,
                         .op = op,
                         .n_state = 1,
                         .dtype = CT_F32,
                         .outer = ct__kir_int(&k, dim[0]),
                         .n = ct__kir_int(&k, dim[1]),
                         .inner = ct__kir_int(&k, dim[2]),
                         .reverse = reverse,
                         .target = {CT_TARGET_CPU_TASKS}};
    if (reads) {
        bufs[n++] = x;
        spec.x[0] = source(&k, &px, ct__kir_buffer(&k, CT_F32, CT_KIR_READ), 3, dim);
    }
    if (writes) {
        bufs[n++] = y;
        spec.out = sink(&k, &py, ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE), 3, dim);
    }
    if (pass) {
        bufs[n++] = carry;
        int access = pass == CT_SCAN_TOTALS   ? CT_KIR_WRITE
                     : pass == CT_SCAN_BLOCKS ? CT_KIR_READ
                                              : CT_KIR_READ | CT_KIR_WRITE;
        spec.carry = ct__kir_buffer(&k, CT_F32, access);
    }
    ct__template_scan(&k, &spec);
    kir_run(&k, bufs, NULL, 3);
}

static void one_scan(ct_kred op, const int64_t *dim, bool reverse) {
    int64_t count = product(dim, 3), blocks = (dim[1] + 1023) / 1024, n = dim[1], inner = dim[2];
    int64_t carries = dim[0] * blocks * inner;
    float *x = floats(count), *y = floats(count + 1), *want = floats(count),
          *carry = floats(carries + 1);
    for (int64_t i = 0; i < count && op == CT_RED_MUL; i++) x[i] = 1 + x[i] / 64;
    if (count) x[0] = op == CT_RED_ADD ? -0.0f : 1;
    for (int64_t line = 0; line < dim[0] * inner; line++) {
        int64_t base = line / inner * n * inner + line % inner;
        running(op, x + base, want + base, n, inner, reverse);
    }
    for (int in_three = 0; in_three <= (n == 0 || n >= 1000); in_three++) {
        memset(y, 0, (size_t)count * sizeof *y);
        y[count] = carry[carries] = 42;
        if (in_three) {
            run_scan(CT_SCAN_TOTALS, op, dim, reverse, x, y, carry);
            run_scan(CT_SCAN_CARRY, op, dim, reverse, x, y, carry);
            run_scan(CT_SCAN_BLOCKS, op, dim, reverse, x, y, carry);
        } else {
            run_scan(CT_SCAN_WHOLE, op, dim, reverse, x, y, NULL);
        }
        assert_memory_equal(y, want, (size_t)count * sizeof *y);
        assert_true(y[count] == 42 && carry[carries] == 42);
    }
    free(x), free(y), free(want), free(carry);
}

static void scans(void **state) {
    (void)state;
    static const int64_t dims[][3] = {{1, 1000, 1}, {300, 5, 1},  {2, 9, 5},    {3, 7, 200},
                                      {1, 1, 1},    {4, 0, 3},    {5, 33, 16},  {2, 5000, 1},
                                      {1, 1024, 3}, {2, 1025, 1}, {1, 2048, 70}};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (int reverse = 0; reverse < 2; reverse++) {
            // Each is two to four kernels to compile: one way of each, unless COTAN_TEST_ALL is set.
            if (!getenv("COTAN_TEST_ALL") && reverse != (int)(i / 2) % 2) continue;
            one_scan(CT_RED_ADD, dims[i], reverse);
            if (i % 2) one_scan(CT_RED_MUL, dims[i], reverse);
            if (i > 6) one_scan(CT_RED_MAX, dims[i], reverse);
        }
}

static bool before(float a, float b) { return isnan(a) ? !isnan(b) : a > b; }

// The largest of each block, into values and places of (rows, blocks, count).
static void topk_blocks(const ct_topk_spec *whole, float *x, int64_t rows, int64_t n, float *values,
                        int32_t *places) {
    ct_kir k;
    plain px;
    ct__kir_init(&k);
    ct_topk_spec spec = *whole;
    int bx = ct__kir_buffer(&k, CT_F32, CT_KIR_READ);
    spec.part = CT_TOPK_BLOCKS;
    spec.block_values = ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE);
    spec.block_indices = ct__kir_buffer(&k, CT_I32, CT_KIR_WRITE);
    spec.rows = ct__kir_int(&k, rows);
    spec.n = ct__kir_int(&k, n);
    spec.x = source(&k, &px, bx, 2, (int64_t[]){rows, n});
    ct__template_topk(&k, &spec);
    kir_run(&k, (void *[]){x, values, places}, NULL, 2);
}

// width: of a block; 0: rows are whole
static void one_topk(int64_t rows, int64_t n, int64_t count, int64_t width) {
    float *x = floats(rows * n), *values = floats(rows * count + 1);
    int32_t *places = malloc((size_t)(rows * count + 1) * sizeof *places);
    for (int64_t i = 0; i < rows * n; i++) { // many equals, some NaN
        if (next() % 4 == 0) x[i] = (float)(next() % 3) - 1;
        if (next() % 50 == 0) x[i] = NAN;
    }
    values[rows * count] = 42;
    places[rows * count] = 42;
    ct_kir k;
    ct__kir_init(&k);
    int64_t blocks = width ? n / width : 1;
    float *block_values = floats(rows * blocks * count);
    int32_t *block_indices = malloc((size_t)(rows * blocks * count) * sizeof *block_indices + 4);
    int bx = ct__kir_buffer(&k, CT_F32, CT_KIR_READ);
    int bs = width ? ct__kir_buffer(&k, CT_I32, CT_KIR_READ) : 0;
    int bv = ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE),
        bp = ct__kir_buffer(&k, CT_I32, CT_KIR_WRITE);
    plain px, pv, pp;
    ct_topk_spec spec = {.part = width ? CT_TOPK_OF_BLOCKS : CT_TOPK_ROWS,
                         .blocks = blocks,
                         .width = width,
                         .block_values = bx,
                         .block_indices = bs,
                         .dtype = CT_F32,
                         .rows = ct__kir_int(&k, rows),
                         .n = ct__kir_int(&k, n),
                         .count = count,
                         .x = source(&k, &px, bx, 2, (int64_t[]){rows, n}),
                         .values = sink(&k, &pv, bv, 2, (int64_t[]){rows, count}),
                         .indices = sink(&k, &pp, bp, 2, (int64_t[]){rows, count})};
    ct__template_topk(&k, &spec);
    if (width) topk_blocks(&spec, x, rows, n, block_values, block_indices);
    if (width)
        kir_run(&k, (void *[]){block_values, block_indices, values, places}, NULL, 2);
    else
        kir_run(&k, (void *[]){x, values, places}, NULL, 2);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) { // its rank: how many stand before it
            int64_t rank = 0;
            const float *row = x + r * n;
            for (int64_t j = 0; j < n; j++)
                rank += before(row[j], row[i]) || (j < i && !before(row[i], row[j]));
            if (rank >= count) continue;
            assert_int_equal(places[r * count + rank], i);
            assert_memory_equal(&values[r * count + rank], &row[i], sizeof *row);
        }
    assert_true(values[rows * count] == 42 && places[rows * count] == 42);
    free(x), free(values), free(places), free(block_values), free(block_indices);
}

static void topk(void **state) {
    (void)state;
    static const int64_t dims[][3] = {
        {1, 1, 1}, {3, 10, 3}, {2, 300, 300}, {1, 2000, 40}, {4, 5, 0}};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        one_topk(dims[i][0], dims[i][1], dims[i][2], 0);
    one_topk(1, 1000, 7, 100);
    one_topk(3, 499, 5, 100); // a longer last block
    one_topk(2, 64, 16, 16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scatter_add),
        cmocka_unit_test(scans),
        cmocka_unit_test(topk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
