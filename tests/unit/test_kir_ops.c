// Every operation of the kernel IR, for every dtype, scalar and 16-lane, against plain C.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "kir/kir.h"
#include "support/kir_run.h"

enum { N = 16 * 40 + 5 }; // with a tail

static uint64_t seed = 7;
static uint64_t bits(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed ^ seed >> 31;
}

// One element, as the widest type of its kind.
typedef union {
    int64_t i;
    double f;
} number;

static number get(ct_dtype d, const void *p, int64_t at) {
    switch (d) {
    case CT_BOOL:
    case CT_U8: return (number){.i = ((const uint8_t *)p)[at]};
    case CT_U16: return (number){.i = ((const uint16_t *)p)[at]};
    case CT_I8: return (number){.i = ((const int8_t *)p)[at]};
    case CT_I16: return (number){.i = ((const int16_t *)p)[at]};
    case CT_I32: return (number){.i = ((const int32_t *)p)[at]};
    case CT_U32: return (number){.i = ((const uint32_t *)p)[at]};
    case CT_U64:
    case CT_I64: return (number){.i = ((const int64_t *)p)[at]};
    case CT_F32: return (number){.f = (double)((const float *)p)[at]};
    default: return (number){.f = ((const double *)p)[at]};
    }
}

static int64_t wrap(ct_dtype d, uint64_t x) {
    switch (d) {
    case CT_BOOL: return x != 0;
    case CT_U8: return (uint8_t)x;
    case CT_U16: return (uint16_t)x;
    case CT_I8: return (int8_t)(uint8_t)x;
    case CT_I16: return (int16_t)(uint16_t)x;
    case CT_I32: return (int32_t)(uint32_t)x;
    case CT_U32: return (uint32_t)x;
    default: return (int64_t)x;
    }
}

static void put(ct_dtype d, void *p, int64_t at, number x) {
    switch (d) {
    case CT_BOOL:
    case CT_I8:
    case CT_U8: ((uint8_t *)p)[at] = (uint8_t)x.i; break;
    case CT_I16:
    case CT_U16: ((uint16_t *)p)[at] = (uint16_t)x.i; break;
    case CT_I32: ((int32_t *)p)[at] = (int32_t)x.i; break;
    case CT_U32: ((uint32_t *)p)[at] = (uint32_t)x.i; break;
    case CT_U64:
    case CT_I64: ((int64_t *)p)[at] = x.i; break;
    case CT_F32: ((float *)p)[at] = (float)x.f; break;
    default: ((double *)p)[at] = x.f; break;
    }
}

static const double odd_floats[] = {
    0.0,           -0.0,         INFINITY, -INFINITY, NAN,      1,     -1,    0.5, 1.5,
    2.5,           -0.5,         -2.5,     1e-40,     3e38,     -3e38, 255.5, 256, 2147483648.0,
    -2147483649.0, 4294967296.0, 9.3e18,   -9.3e18,   0x1p-149, 65504, 65520, 1e-8};
static const int64_t odd_ints[] = {0,   1,         -1,        2,         -2,        31, 32, 63,  64,
                                   255, INT32_MIN, INT32_MAX, INT64_MIN, INT64_MAX, 7,  -7, 1000};

static number sample(ct_dtype d) {
    if (ct__is_float(d)) {
        double x = bits() % 3 ? odd_floats[bits() % (sizeof odd_floats / sizeof *odd_floats)]
                              : ((double)(bits() >> 11) * 0x1p-53 - 0.5) * 40;
        return (number){.f = d == CT_F32 ? (double)(float)x : x};
    }
    uint64_t x = bits() % 2 ? (uint64_t)odd_ints[bits() % (sizeof odd_ints / sizeof *odd_ints)]
                            : bits() >> (bits() % 64);
    return (number){.i = wrap(d, x)};
}

// ------------------------------------------------------------------------------------ in plain C

static bool is_signed(ct_dtype d) { return d >= CT_I8 && d <= CT_I64; }
static int width(ct_dtype d) { return 8 * (int)ct_dtype_size(ct__kir_compute_dtype(d)); }
static int64_t lowest(ct_dtype d) { // 1: unsigned, never equal to -1 / x
    return is_signed(d) ? INT64_MIN >> (64 - 8 * ct_dtype_size(d)) : 1;
}

// Where the sign of i64 misleads.
static int64_t u64_op(int op, uint64_t x, uint64_t y) {
    switch (op) {
    case CT_K_DIV: return y == 0 ? 0 : (int64_t)(x / y);
    case CT_K_MOD: return y == 0 ? 0 : (int64_t)(x % y);
    case CT_K_MIN: return (int64_t)(x < y ? x : y);
    case CT_K_MAX: return (int64_t)(x > y ? x : y);
    case CT_K_SHR: return (int64_t)(x >> (y & 63));
    case CT_K_LT: return x < y;
    case CT_K_LE: return x <= y;
    default: return (int64_t)x; // ABS
    }
}

static number int_op(ct_dtype d, int op, int64_t a, int64_t b) {
    uint64_t x = (uint64_t)a, y = (uint64_t)b;
    int s = (int)(y & (uint64_t)(width(d) - 1));
    bool edge = b == -1 && a == lowest(d);
    bool order = op == CT_K_DIV || op == CT_K_MOD || op == CT_K_MIN || op == CT_K_MAX ||
                 op == CT_K_SHR || op == CT_K_LT || op == CT_K_LE || op == CT_K_ABS;
    if (d == CT_U64 && order) return (number){.i = u64_op(op, x, y)};
    switch (op) {
    case CT_K_ADD: return (number){.i = wrap(d, x + y)};
    case CT_K_SUB: return (number){.i = wrap(d, x - y)};
    case CT_K_MUL: return (number){.i = wrap(d, x * y)};
    case CT_K_DIV: return (number){.i = b == 0 ? 0 : edge ? a : wrap(d, (uint64_t)(a / b))};
    case CT_K_MOD: return (number){.i = b == 0 || edge ? 0 : a % b};
    case CT_K_MIN: return (number){.i = a < b ? a : b};
    case CT_K_MAX: return (number){.i = a > b ? a : b};
    case CT_K_AND: return (number){.i = a & b};
    case CT_K_OR: return (number){.i = a | b};
    case CT_K_XOR: return (number){.i = a ^ b};
    case CT_K_SHL: return (number){.i = wrap(d, x << s)};
    case CT_K_SHR: return (number){.i = a >> s};
    case CT_K_LT: return (number){.i = a < b};
    case CT_K_LE: return (number){.i = a <= b};
    case CT_K_EQ: return (number){.i = a == b};
    case CT_K_NE: return (number){.i = a != b};
    case CT_K_NEG: return (number){.i = wrap(d, 0 - x)};
    case CT_K_ABS: return (number){.i = a < 0 ? wrap(d, 0 - x) : a};
    default: return (number){.i = d == CT_BOOL ? !a : wrap(d, ~x)};
    }
}

static double larger(double a, double b) {
    if (isnan(a) || isnan(b)) return NAN;
    if (a == b) return signbit(a) ? b : a;
    return a > b ? a : b;
}

static number float_op(ct_dtype d, int op, double a, double b) {
    float x = (float)a, y = (float)b;
    bool s = d == CT_F32; // rounded as floats where that differs
    switch (op) {
    case CT_K_ADD: return (number){.f = s ? (double)(x + y) : a + b};
    case CT_K_SUB: return (number){.f = s ? (double)(x - y) : a - b};
    case CT_K_MUL: return (number){.f = s ? (double)(x * y) : a * b};
    case CT_K_DIV: return (number){.f = s ? (double)(x / y) : a / b};
    case CT_K_MOD: return (number){.f = s ? (double)fmodf(x, y) : fmod(a, b)};
    case CT_K_MAX: return (number){.f = larger(a, b)};
    case CT_K_MIN: return (number){.f = -larger(-a, -b)};
    case CT_K_LT: return (number){.i = a < b};
    case CT_K_LE: return (number){.i = a <= b};
    case CT_K_EQ: return (number){.i = a == b};
    case CT_K_NE: return (number){.i = a != b};
    case CT_K_NEG: return (number){.f = -a};
    case CT_K_ABS: return (number){.f = fabs(a)};
    case CT_K_SQRT: return (number){.f = s ? (double)sqrtf(x) : sqrt(a)};
    case CT_K_FLOOR: return (number){.f = floor(a)};
    case CT_K_CEIL: return (number){.f = ceil(a)};
    case CT_K_TRUNC: return (number){.f = trunc(a)};
    default: return (number){.f = rint(a)}; // ROUND: half to even
    }
}

static bool accepts(ct_dtype d, int op) {
    bool whole_only = op == CT_K_AND || op == CT_K_OR || op == CT_K_XOR || op == CT_K_SHL ||
                      op == CT_K_SHR || op == CT_K_NOT;
    bool float_only = op == CT_K_SQRT || (op >= CT_K_FLOOR && op <= CT_K_TRUNC);
    if (d == CT_BOOL)
        return op == CT_K_NOT || op == CT_K_AND || op == CT_K_OR || op == CT_K_XOR || op >= CT_K_LT;
    return ct__is_float(d) ? !whole_only : !float_only;
}

static bool equal(ct_dtype d, number a, number b) {
    if (!ct__is_float(d)) return a.i == b.i;
    return (isnan(a.f) && isnan(b.f)) || a.i == b.i;
}

// -------------------------------------------------------------------------------------- the test

typedef struct {
    int op;
    ct_dtype d, result;
    char *a, *b, *y;
} trial;

// One kernel for all ops of a dtype: each writes its own buffer.
static void run_ops(trial *t, int trials, ct_kbind bind) {
    ct_kir k;
    ct__kir_init(&k);
    void *bufs[64] = {t->a, t->b};
    int out[64], a = ct__kir_buffer(&k, t->d, CT_KIR_READ),
                 b = ct__kir_buffer(&k, t->d, CT_KIR_READ);
    for (int j = 0; j < trials; j++) {
        out[j] = ct__kir_buffer(&k, t[j].result, CT_KIR_WRITE);
        bufs[2 + j] = t[j].y;
    }
    ct_kval i = ct__kir_loop(&k, bind, ct__kir_arg(&k), "element");
    ct_kval x = ct__kir_load(&k, a, i), y = ct__kir_load(&k, b, i);
    for (int j = 0; j < trials; j++)
        ct__kir_store(&k, out[j], i,
                      t[j].op >= CT_K_ADD ? ct__kir_bin(&k, t[j].op, x, y)
                                          : ct__kir_un(&k, t[j].op, x));
    ct__kir_end(&k);
    int64_t n = N;
    kir_run(&k, bufs, &n, 1);
}

static void check_dtype(ct_dtype d) {
    trial t[64];
    int trials = 0;
    char *a = malloc(N * 8), *b = malloc(N * 8);
    for (int i = 0; i < N; i++) {
        put(d, a, i, sample(d));
        put(d, b, i, sample(d));
    }
    for (int op = CT_K_NEG; op <= CT_K_NE; op++) {
        if ((op >= CT_K_CAST && op <= CT_K_HIGH_HALF) || !accepts(d, op)) continue;
        t[trials++] = (trial){op, d, op >= CT_K_LT ? CT_BOOL : d, a, b, malloc(N * 8)};
    }
    for (int bind = 0; bind < 2; bind++) {
        run_ops(t, trials, bind ? CT_BIND_LANES : CT_BIND_SEQ);
        for (int j = 0; j < trials; j++)
            for (int i = 0; i < N; i++) {
                number x = get(d, a, i), y = get(d, b, i), got = get(t[j].result, t[j].y, i);
                number want =
                    ct__is_float(d) ? float_op(d, t[j].op, x.f, y.f) : int_op(d, t[j].op, x.i, y.i);
                if (equal(t[j].result, got, want)) continue;
                if (ct__is_float(d))
                    fail_msg("%s %s %s: %a, %a gives %a (%lld), not %a", bind ? "vector" : "scalar",
                             ct_dtype_name(d), ct__kop_name(t[j].op), x.f, y.f, got.f,
                             (long long)got.i, want.f);
                fail_msg("%s %s %s: %lld, %lld gives %lld, not %lld", bind ? "vector" : "scalar",
                         ct_dtype_name(d), ct__kop_name(t[j].op), (long long)x.i, (long long)y.i,
                         (long long)got.i, (long long)want.i);
            }
    }
    for (int j = 0; j < trials; j++) free(t[j].y);
    free(a);
    free(b);
}

// Those that are held in a wider one, too: what is stored wraps.
static const ct_dtype computed[] = {CT_BOOL, CT_U8,  CT_U16, CT_U32, CT_U64, CT_I8,
                                    CT_I16,  CT_I32, CT_I64, CT_F32, CT_F64};
enum { DTYPES = sizeof computed / sizeof *computed };

static void arithmetic_of_every_dtype(void **state) {
    (void)state;
    for (int d = 0; d < DTYPES; d++) check_dtype(computed[d]);
}

// ----------------------------------------------------------------------------------------- casts

static number cast(ct_dtype from, ct_dtype to, number x) {
    if (ct__is_float(from) && ct__is_float(to))
        return (number){.f = to == CT_F32 ? (double)(float)x.f : x.f};
    if (ct__is_float(to) && from == CT_U64)
        return (number){.f = to == CT_F32 ? (double)(float)(uint64_t)x.i : (double)(uint64_t)x.i};
    if (ct__is_float(to)) return (number){.f = to == CT_F32 ? (double)(float)x.i : (double)x.i};
    if (!ct__is_float(from))
        return (number){.i = to == CT_BOOL ? x.i != 0 : wrap(to, (uint64_t)x.i)};
    if (to == CT_BOOL) return (number){.i = x.f != 0};
    int bits = 8 * (int)ct_dtype_size(to) - is_signed(to);
    double above = ldexp(1, bits);
    if (isnan(x.f)) return (number){.i = 0};
    if (x.f >= above) return (number){.i = (int64_t)(UINT64_MAX >> (64 - bits))};
    if (x.f < (is_signed(to) ? -above : 0)) return (number){.i = is_signed(to) ? lowest(to) : 0};
    return (number){.i = x.f >= 0x1p63 ? (int64_t)(uint64_t)x.f : (int64_t)x.f};
}

static void check_casts(ct_dtype from, ct_kbind bind) {
    char *x = malloc(N * 8), *y = malloc(DTYPES * N * 8);
    for (int i = 0; i < N; i++) put(from, x, i, sample(from));
    ct_kir k;
    ct__kir_init(&k);
    void *bufs[1 + DTYPES] = {x};
    int in = ct__kir_buffer(&k, from, CT_KIR_READ), out[DTYPES];
    for (int d = 0; d < DTYPES; d++) {
        out[d] = ct__kir_buffer(&k, computed[d], CT_KIR_WRITE);
        bufs[1 + d] = y + d * N * 8;
    }
    ct_kval i = ct__kir_loop_n(&k, bind, N, "element"), v = ct__kir_load(&k, in, i);
    for (int d = 0; d < DTYPES; d++) ct__kir_store(&k, out[d], i, ct__kir_cast(&k, v, computed[d]));
    ct__kir_end(&k);
    kir_run(&k, bufs, NULL, 1);
    for (int d = 0; d < DTYPES; d++)
        for (int j = 0; j < N; j++) {
            number v0 = get(from, x, j), got = get(computed[d], bufs[1 + d], j);
            number want = cast(from, computed[d], v0);
            if (!equal(computed[d], got, want))
                fail_msg("%s to %s: %a (%lld) gives %a (%lld), not %a (%lld)", ct_dtype_name(from),
                         ct_dtype_name(computed[d]), v0.f, (long long)v0.i, got.f, (long long)got.i,
                         want.f, (long long)want.i);
        }
    free(x);
    free(y);
}

static void casts_truncate_saturate_and_wrap(void **state) {
    (void)state;
    for (int d = 0; d < DTYPES; d++) {
        check_casts(computed[d], CT_BIND_SEQ);
        check_casts(computed[d], CT_BIND_LANES);
    }
}

static void bits_pass_through_bitcasts(void **state) {
    (void)state;
    static float x[N];
    static double z[N];
    static int32_t y[N];
    static uint32_t u[N];
    static int64_t w[N];
    static uint64_t uw[N];
    for (int bind = 0; bind < 2; bind++) {
        for (int i = 0; i < N; i++) x[i] = (float)sample(CT_F32).f, z[i] = sample(CT_F64).f;
        ct_kir k;
        ct__kir_init(&k);
        int in = ct__kir_buffer(&k, CT_F32, CT_KIR_READ), wide = ct__kir_buffer(&k, CT_F64, 3);
        int o = ct__kir_buffer(&k, CT_I32, CT_KIR_WRITE),
            ou = ct__kir_buffer(&k, CT_U32, CT_KIR_WRITE);
        int ow = ct__kir_buffer(&k, CT_I64, CT_KIR_WRITE),
            ouw = ct__kir_buffer(&k, CT_U64, CT_KIR_WRITE);
        ct_kval i = ct__kir_loop_n(&k, bind ? CT_BIND_LANES : CT_BIND_SEQ, N, "element");
        ct_kval v = ct__kir_bitcast(&k, ct__kir_load(&k, in, i), CT_I32);
        ct_kval d = ct__kir_bitcast(&k, ct__kir_load(&k, wide, i), CT_I64);
        ct__kir_store(&k, o, i, v);
        ct__kir_store(&k, ou, i, ct__kir_bitcast(&k, v, CT_U32));
        ct__kir_store(&k, ow, i, d);
        ct_kval next =
            ct__kir_bitcast(&k, ct__kir_bitcast(&k, ct__kir_addi(&k, d, 1), CT_U64), CT_F64);
        ct__kir_store(&k, ouw, i, ct__kir_bitcast(&k, next, CT_U64));
        ct__kir_store(&k, wide, i, next);
        ct__kir_end(&k);
        kir_run(&k, (void *[]){x, z, y, u, w, uw}, NULL, 1);
        assert_memory_equal(x, y, sizeof x);
        assert_memory_equal(x, u, sizeof x);
        for (int j = 0; j < N; j++) w[j]++;
        assert_memory_equal(z, w, sizeof z);
        assert_memory_equal(z, uw, sizeof z);
    }
}

// --------------------------------------------------------------------------------- 16-bit floats

// The nearest value of a format with `digits` bits, least exponent and largest number; ties to
// even.
static double nearest(double x, int digits, int least, double most) {
    if (isnan(x) || isinf(x) || x == 0) return x;
    int e = 0;
    frexp(x, &e);
    if (e < least) e = least;
    double unit = ldexp(1, e - digits), y = rint(x / unit) * unit;
    return fabs(y) > most ? copysign(INFINITY, x) : y == 0 ? copysign(0, x) : y;
}

static void sixteen_bit_floats_round_to_nearest_even(void **state) {
    (void)state;
    enum { M = 20000 };
    float *x = malloc(M * sizeof *x), *y = malloc(M * sizeof *y), *z = malloc(M * sizeof *z);
    uint16_t *h = malloc(M * sizeof *h);
    for (int half = 0; half < 2; half++)
        for (int bind = 0; bind < 2; bind++) {
            ct_dtype d = half ? CT_F16 : CT_BF16;
            for (int i = 0; i < M; i++) {
                uint32_t u = (uint32_t)bits();
                if (half && i % 2)
                    u = (u & 0x87ffffff) | 0x30000000; // where f16 is normal or subnormal
                if (i % 3 == 0) u &= 0xfffff000;       // ties
                memcpy(&x[i], &u, sizeof u);
            }
            ct_kir k;
            ct__kir_init(&k);
            int in = ct__kir_buffer(&k, CT_F32, CT_KIR_READ), mid = ct__kir_buffer(&k, d, 3);
            int out = ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE);
            int rounded = ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE);
            ct_kval i = ct__kir_loop_n(&k, bind ? CT_BIND_LANES : CT_BIND_SEQ, M, "element");
            ct_kval v = ct__kir_load(&k, in, i);
            ct__kir_store(&k, mid, i, v);
            ct__kir_store(&k, out, i, ct__kir_load(&k, mid, i));
            ct__kir_store(&k, rounded, i, ct__kir_cast(&k, v, d));
            ct__kir_end(&k);
            kir_run(&k, (void *[]){x, h, y, z}, NULL, 1);
            for (int j = 0; j < M; j++) {
                double want = half ? nearest((double)x[j], 11, -13, 65504)
                                   : nearest((double)x[j], 8, -125, 0x1.fep127);
                bool ok = isnan(want) ? isnan(y[j]) && isnan(z[j])
                                      : (double)y[j] == want && memcmp(&y[j], &z[j], 4) == 0 &&
                                            !signbit(y[j]) == !signbit(want);
                if (!ok)
                    fail_msg("%s of %a: %a and %a, not %a", ct_dtype_name(d), (double)x[j],
                             (double)y[j], (double)z[j], want);
            }
        }
    free(x);
    free(y);
    free(z);
    free(h);
}

// Bytes of one operand are unsigned, of the other signed; the sum wraps.
static void dots_of_four_bytes(void **state) {
    (void)state;
    static int32_t x[N], y[N], z[N], got[N];
    for (int i = 0; i < N; i++) {
        x[i] = (int32_t)bits(), y[i] = (int32_t)bits(), z[i] = i % 3 ? (int32_t)bits() : INT32_MAX;
        if (i % 5 == 0)
            x[i] = -1, y[i] = i % 2 ? (int32_t)0x80808080 : 0x7f7f7f7f; // the largest sizes
    }
    for (int form = 0; form < 4; form++) {
        const bool bind = form & 1, low = form & 2;
        for (int j = 0; low && j < N; j++) x[j] &= 0x7f7f7f7f;
        ct_kir k;
        ct__kir_init(&k);
        int in[3];
        for (int b = 0; b < 3; b++) in[b] = ct__kir_buffer(&k, CT_I32, CT_KIR_READ);
        int out = ct__kir_buffer(&k, CT_I32, CT_KIR_WRITE);
        ct_kval i = ct__kir_loop_n(&k, bind ? CT_BIND_LANES : CT_BIND_SEQ, N, "element");
        ct_kval a = ct__kir_load(&k, in[0], i), b = ct__kir_load(&k, in[1], i);
        ct__kir_store(&k, out, i, ct__kir_dot4(&k, a, b, ct__kir_load(&k, in[2], i), low));
        ct__kir_end(&k);
        kir_run(&k, (void *[]){x, y, z, got}, NULL, 1);
        for (int j = 0; j < N; j++) {
            uint32_t want = (uint32_t)z[j];
            for (int s = 0; s < 32; s += 8)
                want += (uint32_t)(int32_t)((uint8_t)((uint32_t)x[j] >> s) *
                                            (int8_t)((uint32_t)y[j] >> s));
            assert_int_equal(got[j], (int32_t)want);
        }
        ct__kir_free(&k);
    }
}

// The high halves first, each product and sum rounded once; subnormal numbers, taken or made, are zeros. A sum is one if it
// is below the normal numbers with 24 digits, whatever its exponent; a product is exact in double, and a sum nearly so in
// long double.
static float normal(float x) { return fabsf(x) < FLT_MIN ? copysignf(0, x) : x; }
static float added(float a, float b, float c) {
    const float r = fmaf(a, b, c);
    const long double all = (long double)((double)a * b) + c;
    return fabsf(r) <= FLT_MIN && fabsf((float)(all * 0x1p24L)) < 0x1p-102f ? copysignf(0, r) : r;
}
static float half_of(uint32_t x) {
    float f;
    x &= 0xffff0000;
    memcpy(&f, &x, sizeof f);
    return normal(f);
}
static void dots_of_pairs(void **state) {
    (void)state;
    static uint32_t x[N], y[N];
    static float z[N], got[N];
    for (int i = 0; i < N; i++) {
        x[i] = (uint32_t)bits(), y[i] = (uint32_t)bits(), z[i] = (float)sample(CT_F32).f;
        const uint32_t near = 0x3f803f80; // exponents that meet
        if (i % 3 == 0) x[i] = (x[i] & 0x83ff83ff) | near, y[i] = (y[i] & 0x83ff83ff) | near;
        if (i % 3 == 0) z[i] = 1 + (float)(bits() % 4096) * 0x1p-12f;
        if (i % 7 == 0) y[i] = 0x00010080, z[i] = i % 2 ? 0x1p-127f : 0x1p-126f;
        // 2^-126 less 1 to 2 times 2^-151: what rounds to a normal number as subnormal numbers do, and not with 24 digits
        if (i % 11 == 0) x[i] = 0x20001a00 | (uint32_t)(bits() & 0x7f), y[i] = 0x20009980, z[i] = 0;
    }
    for (int bind = 0; bind < 2; bind++) {
        ct_kir k;
        ct__kir_init(&k);
        int a = ct__kir_buffer(&k, CT_U32, CT_KIR_READ),
            b = ct__kir_buffer(&k, CT_U32, CT_KIR_READ);
        int c = ct__kir_buffer(&k, CT_F32, CT_KIR_READ);
        int out = ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE);
        ct_kval i = ct__kir_loop_n(&k, bind ? CT_BIND_LANES : CT_BIND_SEQ, N, "element");
        ct_kval p = ct__kir_load(&k, a, i), q = ct__kir_load(&k, b, i);
        ct__kir_store(&k, out, i, ct__kir_dot2(&k, p, q, ct__kir_load(&k, c, i)));
        ct__kir_end(&k);
        kir_run(&k, (void *[]){x, y, z, got}, NULL, 1);
        for (int j = 0; j < N; j++) {
            float want = added(half_of(x[j]), half_of(y[j]), normal(z[j]));
            want = added(half_of(x[j] << 16), half_of(y[j] << 16), want);
            if (!(isnan(want) ? isnan(got[j]) : memcmp(&got[j], &want, sizeof want) == 0))
                fail_msg("%08x, %08x, %a: %a, not %a", x[j], y[j], (double)z[j], (double)got[j],
                         (double)want);
        }
        ct__kir_free(&k);
    }
}

// All numbers of f16, in either half of a word.
static void halves_of_words(void **state) {
    (void)state;
    enum { WORDS = 1 << 16 };
    static uint32_t words[WORDS];
    static float low[WORDS], high[WORDS];
    for (uint32_t i = 0; i < WORDS; i++) words[i] = i << 16 | (i * 40503u & 0xffff);
    for (int bind = 0; bind < 2; bind++) {
        ct_kir k;
        ct__kir_init(&k);
        int in = ct__kir_buffer(&k, CT_U32, CT_KIR_READ),
            out[2] = {ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE),
                      ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE)};
        ct_kval i = ct__kir_loop_n(&k, bind ? CT_BIND_LANES : CT_BIND_SEQ, WORDS, "element");
        ct_kval word = ct__kir_load(&k, in, i);
        for (int h = 0; h < 2; h++) ct__kir_store(&k, out[h], i, ct__kir_unpack_half(&k, word, h));
        ct__kir_end(&k);
        kir_run(&k, (void *[]){words, low, high}, NULL, 1);
        for (int j = 0; j < WORDS; j++)
            for (int h = 0; h < 2; h++) {
                const float got = h ? high[j] : low[j],
                            want = (float)ct__decode_float(CT_F16, (uint16_t)(words[j] >> 16 * h));
                if (!(isnan(want) ? isnan(got) : memcmp(&got, &want, sizeof want) == 0))
                    fail_msg("%08x, half %d: %a, not %a", words[j], h, (double)got, (double)want);
            }
        ct__kir_free(&k);
    }
}

// Bytes of a table of constants.
static void lookups_of_bytes(void **state) {
    (void)state;
    static int32_t words[N], got[N];
    uint8_t table[16];
    int64_t half[2];
    for (int i = 0; i < N; i++) words[i] = (int32_t)bits();
    for (int i = 0; i < 16; i++) table[i] = (uint8_t)(bits() >> 3 | (i == 7 || i == 15) << 7);
    memcpy(half, table, sizeof half);
    for (int bind = 0; bind < 2; bind++) {
        ct_kir k;
        ct__kir_init(&k);
        int in = ct__kir_buffer(&k, CT_I32, CT_KIR_READ),
            out = ct__kir_buffer(&k, CT_I32, CT_KIR_WRITE);
        ct_kval i = ct__kir_loop_n(&k, bind ? CT_BIND_TILE : CT_BIND_SEQ, bind ? 64 : N, "element");
        ct_kval low = ct__kir_const_int(&k, CT_I64, half[0]),
                high = ct__kir_const_int(&k, CT_I64, half[1]);
        ct__kir_store(&k, out, i, ct__kir_lookup4(&k, ct__kir_load(&k, in, i), low, high));
        ct__kir_end(&k);
        if (bind) ct__kir_lower_tiles(&k);
        memset(got, 0, sizeof got);
        kir_run(&k, (void *[]){words, got}, NULL, 1);
        for (int j = 0; j < (bind ? 64 : N); j++)
            for (int s = 0; s < 32; s += 8)
                assert_int_equal((uint32_t)got[j] >> s & 255, table[(uint32_t)words[j] >> s & 15]);
    }
    ct_kir k;
    ct__kir_init(&k);
    ct_kval n = ct__kir_arg(&k), c = ct__kir_const_int(&k, CT_I32, 1);
    assert_int_equal(ct__kir_lookup4(&k, c, n, ct__kir_int(&k, 1)), -1);
    assert_non_null(strstr(k.err.text, "the table is no constant"));
    ct__kir_free(&k);
}

// A table of 16, looked up in by the low four bits of words of any value: one by one, by lanes with a tail, in a tile.
static void lookup_kernel(ct_kir *k, ct_dtype dtype, ct_kbind bind, int64_t n) {
    int words = ct__kir_buffer(k, CT_I32, CT_KIR_READ),
        from = ct__kir_buffer(k, dtype, CT_KIR_READ);
    int out = ct__kir_buffer(k, dtype, CT_KIR_WRITE), table = ct__kir_local(k, dtype, CT_LANES);
    ct_kval row = ct__kir_loop_n(k, CT_BIND_ROWS, 1, "row"), at;
    ct_kval i = ct__kir_loop_n(k, CT_BIND_SEQ, CT_LANES, "element");
    ct__kir_store(k, table, i, ct__kir_load(k, from, ct__kir_add(k, i, row)));
    ct__kir_end(k);
    const bool tile = bind == CT_BIND_TILE;
    if (tile) at = ct__kir_muli(k, ct__kir_loop_n(k, CT_BIND_SEQ, n / 32, "32"), 32);
    i = ct__kir_loop_n(k, bind, tile ? 32 : n, "element");
    if (tile) i = ct__kir_add(k, at, i);
    ct__kir_store(k, out, i, ct__kir_lookup(k, table, ct__kir_load(k, words, i)));
    for (int open = 0; open < 2 + tile; open++) ct__kir_end(k);
    if (tile) ct__kir_lower_tiles(k);
}
static void lookups(void **state) {
    (void)state;
    static int32_t words[N], got[N], table[CT_LANES];
    for (int i = 0; i < N; i++) words[i] = i < 64 ? i - 32 : (int32_t)bits();
    for (int i = 0; i < CT_LANES; i++) table[i] = (int32_t)(bits() & 0x3fffffff) + i;
    const ct_dtype dtypes[] = {CT_F32, CT_I32, CT_U32};
    const ct_kbind binds[] = {CT_BIND_SEQ, CT_BIND_LANES, CT_BIND_TILE};
    for (int d = 0; d < 3; d++)
        for (int b = 0; b < 3; b++) {
            const int n = binds[b] == CT_BIND_TILE ? N / 32 * 32 : N - 3;
            ct_kir k;
            ct__kir_init(&k);
            lookup_kernel(&k, dtypes[d], binds[b], n);
            memset(got, 0, sizeof got);
            kir_run(&k, (void *[]){words, table, got}, NULL, 1);
            for (int j = 0; j < N; j++) assert_int_equal(got[j], j < n ? table[words[j] & 15] : 0);
        }
}

// ----------------------------------------------------------------------------- fma, select, fold

static void fma_rounds_once(void **state) {
    (void)state;
    static float x[N], y[N], z[N], f[N];
    static double d[N];
    for (int i = 0; i < N; i++) {
        x[i] = 1 + (float)(bits() % 4096) * 0x1p-23f;
        y[i] = 1 - (float)(bits() % 4096) * 0x1p-24f;
        z[i] = i % 2 ? -1 : (float)sample(CT_F32).f;
    }
    for (int bind = 0; bind < 2; bind++) {
        ct_kir k;
        ct__kir_init(&k);
        int a = ct__kir_buffer(&k, CT_F32, CT_KIR_READ),
            b = ct__kir_buffer(&k, CT_F32, CT_KIR_READ);
        int c = ct__kir_buffer(&k, CT_F32, CT_KIR_READ),
            o = ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE);
        int od = ct__kir_buffer(&k, CT_F64, CT_KIR_WRITE);
        ct_kval i = ct__kir_loop_n(&k, bind ? CT_BIND_LANES : CT_BIND_SEQ, N, "element");
        ct_kval va = ct__kir_load(&k, a, i), vb = ct__kir_load(&k, b, i),
                vc = ct__kir_load(&k, c, i);
        ct__kir_store(&k, o, i, ct__kir_fma(&k, va, vb, vc));
        ct_kval third = ct__kir_div(&k, ct__kir_cast(&k, va, CT_F64), ct__kir_const(&k, CT_F64, 3));
        ct__kir_store(&k, od, i, ct__kir_fma(&k, third, third, ct__kir_cast(&k, vc, CT_F64)));
        ct__kir_end(&k);
        kir_run(&k, (void *[]){x, y, z, f, d}, NULL, 1);
        for (int j = 0; j < N; j++) {
            double t = (double)x[j] / 3, want = fma(t, t, (double)z[j]);
            float want32 = fmaf(x[j], y[j], z[j]);
            assert_true(isnan(want) ? isnan(d[j]) : d[j] == want);
            assert_true(isnan(want32) ? isnan(f[j]) : f[j] == want32);
        }
    }
}

static void select_of_every_dtype(void **state) {
    (void)state;
    for (int j = 0; j < DTYPES; j++)
        for (int bind = 0; bind < 2; bind++) {
            ct_dtype d = computed[j];
            char *x = malloc(N * 8), *y = malloc(N * 8), *c = malloc(N), *o = malloc(N * 8);
            for (int i = 0; i < N; i++) {
                put(d, x, i, sample(d));
                put(d, y, i, sample(d));
                c[i] = bits() & 1;
            }
            ct_kir k;
            ct__kir_init(&k);
            int a = ct__kir_buffer(&k, d, CT_KIR_READ), b = ct__kir_buffer(&k, d, CT_KIR_READ);
            int w = ct__kir_buffer(&k, CT_BOOL, CT_KIR_READ),
                r = ct__kir_buffer(&k, d, CT_KIR_WRITE);
            ct_kval i = ct__kir_loop_n(&k, bind ? CT_BIND_LANES : CT_BIND_SEQ, N, "element");
            ct__kir_store(&k, r, i,
                          ct__kir_select(&k, ct__kir_load(&k, w, i), ct__kir_load(&k, a, i),
                                         ct__kir_load(&k, b, i)));
            ct__kir_end(&k);
            kir_run(&k, (void *[]){x, y, c, o}, NULL, 1);
            for (int n = 0; n < N; n++) {
                const char *from = c[n] ? x : y;
                assert_true(equal(d, get(d, o, n), get(d, from, n)));
            }
            free(x);
            free(y);
            free(c);
            free(o);
        }
}

static void zips_take_lanes_in_turn(void **state) {
    (void)state;
    for (int j = 0; j < DTYPES; j++) {
        ct_dtype d = computed[j];
        char x[32 * 8], y[32 * 8];
        for (int i = 0; i < 32; i++) put(d, x, i, sample(d));
        ct_kir k;
        ct__kir_init(&k);
        int in = ct__kir_buffer(&k, d, CT_KIR_READ), out = ct__kir_buffer(&k, d, CT_KIR_WRITE);
        ct_kval a = ct__kir_vload(&k, in, ct__kir_int(&k, 0), -1);
        ct_kval b = ct__kir_vload(&k, in, ct__kir_int(&k, 16), -1);
        ct__kir_vstore(&k, out, ct__kir_int(&k, 0), ct__kir_zip(&k, a, b, false), -1);
        ct__kir_vstore(&k, out, ct__kir_int(&k, 16), ct__kir_zip(&k, a, b, true), -1);
        kir_run(&k, (void *[]){x, y}, NULL, 1);
        for (int i = 0; i < 32; i++)
            assert_true(equal(d, get(d, y, i), get(d, x, i / 2 + (i & 1) * 16)));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arithmetic_of_every_dtype),
        cmocka_unit_test(casts_truncate_saturate_and_wrap),
        cmocka_unit_test(bits_pass_through_bitcasts),
        cmocka_unit_test(sixteen_bit_floats_round_to_nearest_even),
        cmocka_unit_test(dots_of_four_bytes),
        cmocka_unit_test(dots_of_pairs),
        cmocka_unit_test(halves_of_words),
        cmocka_unit_test(lookups),
        cmocka_unit_test(lookups_of_bytes),
        cmocka_unit_test(fma_rounds_once),
        cmocka_unit_test(select_of_every_dtype),
        cmocka_unit_test(zips_take_lanes_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
