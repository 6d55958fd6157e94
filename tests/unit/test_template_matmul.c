// The matrix product's kernels: the same bits as the scalar rule of docs/design/bits.md, for every
// tile, size, order of memory and number of pieces.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "kinds/matmul.h"
#include "support/kir_run.h"

static uint64_t seed = 20240229; // fixed: every run sees the same numbers
static double uniform(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) * 0x1p-53 * 2 - 1;
}

enum { GUARD = 40 }; // elements behind the result that must stay

// One family of kernels; the sizes are arguments unless `fixed`.
typedef struct family {
    ct_dtype dtype;
    bool ta, tb; // stored as (K, M), (N, K)
    bool spread; // no axis of either operand is contiguous
    bool fused;  // operands are computed, the result goes through a function
    bool fixed;  // sizes are literals
    bool one_b;  // b has no batch: stride 0
    int64_t run_n,
        run_k; // columns, the inner index are two axes, the last of so many elements; 0: one axis
    ct_matmul_tile tile;
} family;

typedef struct sizes {
    int64_t outer, batch, m, k, n;
} sizes;

// ------------------------------------------------------------------------------------------------
// the rule, as scalars

static double load(const family *f, const void *p, int64_t i) {
    return f->dtype == CT_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

static void rule_f32(const float *a, int64_t ak, const float *b, int64_t bk, int64_t n, bool twice,
                     float *out) {
    float c = 0;
    for (int64_t k0 = 0; k0 < n || k0 == 0; k0 += CT_DOT_CHUNK) {
        float s = 0;
        for (int64_t k = k0; k < n && k < k0 + CT_DOT_CHUNK; k++)
            s = fmaf(twice ? a[k * ak] + a[k * ak] : a[k * ak], b[k * bk], s);
        c = k0 ? c + s : s;
    }
    *out = c;
}

static void rule_f64(const double *a, int64_t ak, const double *b, int64_t bk, int64_t n,
                     bool twice, double *out) {
    double c = 0;
    for (int64_t k0 = 0; k0 < n || k0 == 0; k0 += CT_DOT_CHUNK) {
        double s = 0;
        for (int64_t k = k0; k < n && k < k0 + CT_DOT_CHUNK; k++)
            s = fma(twice ? a[k * ak] + a[k * ak] : a[k * ak], b[k * bk], s);
        c = k0 ? c + s : s;
    }
    *out = c;
}

// ------------------------------------------------------------------------------------------------
// the kernel

// Strides: elements for outer, batch and the last two axes.
static void strides(const family *f, const sizes *s, int64_t a[4], int64_t b[4]) {
    int64_t gap = f->spread ? 3 : 1;
    a[2] = f->ta ? gap : s->k * gap;
    a[3] = f->ta ? s->m * gap : gap;
    b[2] = f->tb ? gap : s->n * gap;
    b[3] = f->tb ? s->k * gap : gap;
    a[1] = s->m * s->k * gap;
    a[0] = a[1] * s->batch;
    b[1] = f->one_b ? 0 : s->k * s->n * gap;
    b[0] = b[1] * s->batch;
}

typedef struct fused {
    ct_source plain;
    ct_sink result;
    int bias;
} fused;

static ct_kval doubled(void *env, ct_kir *k, const ct_kval *at) {
    ct_kval v = ct__source_load(k, &((fused *)env)->plain, 4, at);
    return ct__kir_add(k, v, v);
}

// relu(c + bias[j])
static void with_bias(void *env, ct_kir *k, const ct_kval *at, ct_kval value) {
    fused *f = env;
    value = ct__kir_add(k, value, ct__kir_load(k, f->bias, at[3]));
    value = ct__kir_select(k, ct__kir_lt(k, value, ct__kir_const(k, k->ins[value].dtype, 0)),
                           ct__kir_const(k, k->ins[value].dtype, 0), value);
    ct__sink_store(k, &f->result, 4, at, value);
}

// The i-th number: a literal or an argument. Literals 1 and 0 stay literals: they are structure.
static ct_kval number(ct_kir *k, const family *f, int64_t value, bool structure, int64_t *args,
                      int *n) {
    if (f->fixed || (structure && (value == 1 || value == 0))) return ct__kir_int(k, value);
    args[(*n)++] = value;
    return ct__kir_arg(k);
}

static void run(const family *f, const sizes *s, void *const bufs[4], int pieces) {
    ct_kir k;
    ct__kir_init(&k);
    int64_t args[32], ia[4], ib[4];
    int n = 0;
    int a = ct__kir_buffer(&k, f->dtype, CT_KIR_READ),
        b = ct__kir_buffer(&k, f->dtype, CT_KIR_READ),
        c = ct__kir_buffer(&k, f->dtype, CT_KIR_WRITE),
        bias = ct__kir_buffer(&k, f->dtype, CT_KIR_READ);
    strides(f, s, ia, ib);
    bool fast_a = !f->spread, fast_b = !f->spread;
    ct_kval batch[2] = {number(&k, f, s->outer, false, args, &n),
                        number(&k, f, s->batch, false, args, &n)};
    ct_kval rows = number(&k, f, s->m, false, args, &n),
            cols = number(&k, f, s->n, false, args, &n),
            inner = number(&k, f, s->k, false, args, &n), sa[5], sb[6], sc[5];
    for (int i = 0; i < 4; i++)
        sa[i] = number(&k, f, ia[i], i == (f->ta ? 2 : 3) && fast_a, args, &n);
    for (int i = 0; i < 4; i++)
        sb[i] =
            number(&k, f, ib[i], (i == (f->tb ? 2 : 3) && fast_b) || (i < 2 && f->one_b), args, &n);
    sc[3] = ct__kir_int(&k, 1);
    sc[2] = number(&k, f, s->n, false, args, &n);
    sc[1] = number(&k, f, s->m * s->n, false, args, &n);
    sc[0] = number(&k, f, s->m * s->n * s->batch, false, args, &n);
    ct_kval column_axis[2], inner_axis[2];
    if (f->run_k) {
        sa[4] = sa[3], sb[4] = sb[3], sb[3] = sb[2];
        sa[3] = ct__kir_muli(&k, sa[4], f->run_k), sb[2] = ct__kir_muli(&k, sb[3], f->run_k);
        inner_axis[0] = number(&k, f, s->k / f->run_k, false, args, &n);
        inner_axis[1] = number(&k, f, f->run_k, false, args, &n);
    }
    if (f->run_n) {
        const int b_last = f->run_k ? 4 : 3;
        sb[b_last + 1] = sb[b_last], sc[4] = sc[3];
        sb[b_last] = ct__kir_muli(&k, sb[b_last + 1], f->run_n);
        sc[3] = ct__kir_muli(&k, sc[4], f->run_n);
        column_axis[0] = number(&k, f, s->n / f->run_n, false, args, &n);
        column_axis[1] = number(&k, f, f->run_n, false, args, &n);
    }
    ct_matmul_spec spec = {.dtype = f->dtype,
                           .n_batch = 2,
                           .batch = batch,
                           .rows = rows,
                           .columns = cols,
                           .inner = inner,
                           .n_column_axes = f->run_n ? 2 : 0,
                           .n_result_axes = f->run_n ? 2 : 0,
                           .n_inner_axes = f->run_k ? 2 : 0,
                           .column_axis = column_axis,
                           .result_axis = column_axis,
                           .inner_axis = inner_axis,
                           .a = {.buf = a, .offset = -1, .stride = sa},
                           .b = {.buf = b, .offset = -1, .stride = sb},
                           .c = {.buf = c, .offset = -1, .stride = sc},
                           .target = ct__backend_cpu.target(),
                           .tile = f->tile};
    fused env = {.plain = spec.a, .result = spec.c, .bias = bias};
    if (f->fused) {
        spec.a = (ct_source){.value = doubled, .env = &env, .along = f->ta ? 2 : 3};
        spec.c = (ct_sink){.store = with_bias, .env = &env};
    }
    ct__template_matmul(&k, &spec);
    ct__kir_lower_tiles(&k);
    kir_run(&k, bufs, args, pieces);
}

static void check(const family *f, const sizes *s, const void *a, const void *b, const void *bias,
                  const void *c) {
    int64_t sa[4], sb[4], at = 0;
    strides(f, s, sa, sb);
    size_t size = f->dtype == CT_F64 ? 8 : 4;
    for (int64_t o = 0; o < s->outer; o++)
        for (int64_t p = 0; p < s->batch; p++)
            for (int64_t i = 0; i < s->m; i++)
                for (int64_t j = 0; j < s->n; j++, at++) {
                    const char *x =
                        (const char *)a + (size_t)(o * sa[0] + p * sa[1] + i * sa[2]) * size;
                    const char *y =
                        (const char *)b + (size_t)(o * sb[0] + p * sb[1] + j * sb[3]) * size;
                    double want64 = 0, exact = 0, scale = 1e-30;
                    float want32 = 0;
                    for (int64_t k = 0; k < s->k; k++) {
                        double t = load(f, x, k * sa[3]) * load(f, y, k * sb[2]);
                        exact += f->fused ? 2 * t : t;
                        scale += fabs(t) * 2;
                    }
                    if (f->dtype == CT_F64) {
                        rule_f64((const double *)x, sa[3], (const double *)y, sb[2], s->k, f->fused,
                                 &want64);
                        if (f->fused) want64 = fmax(want64 + load(f, bias, j), 0);
                    } else {
                        rule_f32((const float *)x, sa[3], (const float *)y, sb[2], s->k, f->fused,
                                 &want32);
                        if (f->fused) want32 = fmaxf(want32 + ((const float *)bias)[j], 0);
                        want64 = (double)want32;
                    }
                    if (f->fused) exact = fmax(exact + load(f, bias, j), 0), scale += 1;
                    double got = load(f, c, at);
                    if (got != want64 || signbit(got) != signbit(want64))
                        fail_msg("(%ld, %ld, %ld, %ld, %ld) at %ld: %.17g, should be %.17g",
                                 (long)s->outer, (long)s->batch, (long)s->m, (long)s->k, (long)s->n,
                                 (long)at, got, want64);
                    assert_true(fabs(got - exact) <= scale * (f->dtype == CT_F64 ? 1e-14 : 1e-5));
                }
    for (int64_t g = 0; g < GUARD; g++) assert_true(load(f, c, at + g) == 42);
}

static void fill(const family *f, void *p, int64_t n, double value) {
    for (int64_t i = 0; i < n; i++) {
        double v = isnan(value) ? uniform() : value;
        if (f->dtype == CT_F64)
            ((double *)p)[i] = v;
        else
            ((float *)p)[i] = (float)v;
    }
}

static void once(const family *f, sizes s, int pieces) {
    int64_t gap = f->spread ? 3 : 1;
    int64_t na = s.outer * s.batch * s.m * s.k * gap, nb = s.outer * s.batch * s.k * s.n * gap,
            nc = s.outer * s.batch * s.m * s.n;
    void *bufs[4] = {malloc((size_t)na * 8 + 8), malloc((size_t)nb * 8 + 8),
                     malloc((size_t)(nc + GUARD) * 8), malloc((size_t)s.n * 8 + 8)};
    fill(f, bufs[0], na, NAN);
    fill(f, bufs[1], nb, NAN);
    fill(f, bufs[2], nc + GUARD, 42);
    fill(f, bufs[3], s.n, NAN);
    run(f, &s, bufs, pieces);
    check(f, &s, bufs[0], bufs[1], bufs[3], bufs[2]);
    for (int i = 0; i < 4; i++) free(bufs[i]);
}

// ------------------------------------------------------------------------------------------------

static const int64_t awkward[] = {1, 2, 3, 5, 7, 13, 14, 15, 16, 17, 31, 32, 33, 64, 65};
static const int64_t depths[] = {0, 1, 2, 7, 16, 17, 64, 255, 256, 257, 511, 512, 513, 770};
#define PICK(list) list[(uint64_t)((uniform() + 1) * 0.5 * (double)(sizeof list / sizeof *list))]

// Each is a kernel to compile: every fourth one, unless COTAN_TEST_ALL is set.
static int stride(void) { return getenv("COTAN_TEST_ALL") ? 1 : 4; }

static void many(const family *f, int times) {
    for (int i = 0; i < times; i++) {
        sizes s = {1 + i % 2, 1 + i / 2 % 3, PICK(awkward), PICK(depths), PICK(awkward)};
        if (i < 6 || i % stride() == 0) once(f, s, (int[]){1, 2, 4}[i % 3]);
    }
}

static void all_orders_of_memory(void **state) {
    (void)state;
    for (int dtype = CT_F32; dtype <= CT_F64; dtype++)
        for (int t = 0; t < 4; t++)
            many(&(family){.dtype = (ct_dtype)dtype, .ta = t & 1, .tb = t & 2}, 25);
    many(&(family){.dtype = CT_F32, .spread = true}, 12);
    many(&(family){.dtype = CT_F32, .tb = true, .one_b = true}, 12);
}

static void every_tile_gives_the_same_bits(void **state) {
    (void)state;
    static const ct_matmul_tile tiles[] = {
        {1, 4, 1, 64, 1}, {3, 1, 6, 32, 2}, {6, 1, 12, 16, 0}, {8, 3, 16, 96, 2}};
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        many(&(family){.dtype = CT_F32, .ta = i & 1, .tb = i & 2, .tile = tiles[i]}, 12);
}

static void fused_ends(void **state) {
    (void)state;
    many(&(family){.dtype = CT_F32, .fused = true}, 20);
    many(&(family){.dtype = CT_F32, .fused = true, .ta = true, .tb = true, .one_b = true}, 20);
    many(&(family){.dtype = CT_F64, .fused = true}, 10);
}

// Literal sizes take other paths: the tile follows the rows, one chunk needs no sums in between.
static void literal_sizes(void **state) {
    (void)state;
    static const sizes list[] = {{1, 1, 1, 300, 70},  {1, 1, 8, 257, 33},   {1, 3, 64, 32, 64},
                                 {2, 2, 17, 256, 16}, {1, 1, 270, 40, 400}, {1, 1, 2, 1, 1},
                                 {1, 2, 37, 300, 64}, {1, 1, 130, 519, 96}, {1, 1, 30, 1024, 80},
                                 {1, 1, 1024, 20, 80}}; // rows 4 KB apart, or steps of k
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (int t = (int)i % stride(); t < 4; t += stride())
            once(&(family){.dtype = CT_F32, .fixed = true, .ta = t & 1, .tb = t & 2}, list[i], 2);
}

// Columns and inner indices over two axes, in runs that begin and end anywhere in panels and chunks.
static void runs_of_several_axes(void **state) {
    (void)state;
    static const int64_t widths[] = {1, 3, 7, 16, 20, 33};
    for (int i = 0; i < 48; i++) {
        family f = {
            .dtype = i % 7 ? CT_F32 : CT_F64, .ta = i & 1, .tb = i & 2, .fixed = i % 5 == 0};
        if (i % 3 != 1) f.run_n = widths[i % 6];
        if (i % 3 != 2) f.run_k = widths[(i + i / 6) % 6];
        sizes s = {1, 1 + i % 2, PICK(awkward), PICK(depths), PICK(awkward)};
        if (f.run_n) s.n = f.run_n * (1 + i % 9);
        if (f.run_k) s.k = f.run_k * (s.k / f.run_k);
        if (i / 2 % stride() == 0) once(&f, s, 2);
    }
}

static void few_rows(void **state) {
    (void)state;
    for (int64_t rows = 1; rows <= CT_FEW_ROWS + 1; rows++)
        for (int t = (int)rows % stride(); t < 8; t += stride()) {
            family f = {.dtype = t == 5 ? CT_F64 : CT_F32,
                        .fixed = true,
                        .tb = t & 1,
                        .ta = t & 2,
                        .fused = t & 4};
            once(&f,
                 (sizes){1, 1 + t % 2, rows, (int[]){1, 16, 37, 256, 300, 519}[t % 6],
                         (int[]){1, 15, 64, 330, 1100}[t % 5]},
                 2);
        }
    once(&(family){.dtype = CT_F32, .fixed = true, .spread = true}, (sizes){1, 2, 3, 40, 70}, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_rows),
        cmocka_unit_test(runs_of_several_axes),
        cmocka_unit_test(all_orders_of_memory),
        cmocka_unit_test(every_tile_gives_the_same_bits),
        cmocka_unit_test(fused_ends),
        cmocka_unit_test(literal_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
