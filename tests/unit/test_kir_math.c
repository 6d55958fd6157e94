// exp, log, sin ...: accuracy against long double, special values, and equal bits scalar and
// vector.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kir/kir.h"
#include "kir/kir_math.h"
#include "support/kir_run.h"

enum { RANDOM = 60000 };

static uint64_t seed = 0x9e3779b97f4a7c15u;
static uint64_t bits(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed ^ seed >> 29;
}

// y = f(x), by the 16 in a LANES loop or one by one.
static void apply(ct_kmath f, ct_dtype dtype, ct_kbind bind, void *x, void *y, int64_t n) {
    ct_kir k;
    ct__kir_init(&k);
    int in = ct__kir_buffer(&k, dtype, CT_KIR_READ), out = ct__kir_buffer(&k, dtype, CT_KIR_WRITE);
    ct_kval i = ct__kir_loop(&k, bind, ct__kir_arg(&k), "element");
    ct__kir_store(&k, out, i, ct__kir_math(&k, f, ct__kir_load(&k, in, i)));
    ct__kir_end(&k);
    kir_run(&k, (void *[]){x, y}, &n, 1);
}

static long double exact(ct_kmath f, long double x) {
    switch (f) {
    case CT_MATH_EXP: return expl(x);
    case CT_MATH_EXP2: return exp2l(x);
    case CT_MATH_EXPM1: return expm1l(x);
    case CT_MATH_LOG:
    case CT_MATH_LOG_ANY: return logl(x);
    case CT_MATH_LOG1P: return log1pl(x);
    case CT_MATH_SIN:
    case CT_MATH_SIN_FAR: return sinl(x);
    case CT_MATH_COS:
    case CT_MATH_COS_FAR: return cosl(x);
    case CT_MATH_TANH: return tanhl(x);
    default: return erfl(x);
    }
}

// Distance in units of the last place of the dtype at the exact value.
static double ulps(ct_dtype dtype, double got, long double want) {
    if (isnan(want)) return isnan(got) ? 0 : INFINITY;
    long double rounded = dtype == CT_F32 ? (long double)(float)want : (long double)(double)want;
    if (isinf(rounded) || isinf(got)) return (long double)got == rounded ? 0 : INFINITY;
    int e = 0;
    frexpl(want, &e);
    int digits = dtype == CT_F32 ? FLT_MANT_DIG : DBL_MANT_DIG;
    int least = dtype == CT_F32 ? FLT_MIN_EXP : DBL_MIN_EXP;
    if (want == 0 || e < least) e = least;
    return (double)fabsl(((long double)got - want) / ldexpl(1, e - digits));
}

static const double edges[] = {0.0,
                               -0.0,
                               INFINITY,
                               -INFINITY,
                               NAN,
                               1,
                               -1,
                               0.5,
                               -0.5,
                               0x1p-149,
                               -0x1p-149,
                               0x1p-126,
                               0x1p-127,
                               88.72284,
                               88.72283,
                               -87.33655,
                               -103.9721,
                               -103.98,
                               104,
                               -200,
                               1e-10,
                               -1e-10,
                               0.625,
                               0.921875,
                               4,
                               6,
                               3.1415926535,
                               1e4,
                               709.7827,
                               709.79,
                               -745.13,
                               -745.14,
                               5e-324,
                               2.2250738585072014e-308,
                               1.7976931348623157e308,
                               3.4028234663852886e38,
                               -2,
                               0x1p-27,
                               0x1p-24,
                               -0.9999999,
                               1.5707963267948966,
                               -1e-40,
                               1e-310,
                               20,
                               -20,
                               9.1,
                               19.1};
enum { EDGES = sizeof edges / sizeof *edges, ALL_VALUES = EDGES + RANDOM };

typedef struct {
    double x[ALL_VALUES], y[ALL_VALUES], y_scalar[ALL_VALUES];
} values;

static double random_value(ct_kmath f, int i) {
    double u = (double)(bits() >> 11) * 0x1p-53 * 2 - 1;
    double scale = ldexp(1, (int)(bits() % 40) - 30);
    switch (f) {
    case CT_MATH_EXP:
    case CT_MATH_EXP2:
    case CT_MATH_EXPM1: return i % 2 ? u * 104 : u * scale;
    case CT_MATH_LOG:
    case CT_MATH_LOG_ANY:
        return i % 2 ? fabs(u) * 3 : ldexp(1 + fabs(u), (int)(bits() % 250) - 125);
    case CT_MATH_LOG1P: return i % 2 ? u : fabs(u) * scale;
    case CT_MATH_SIN:
    case CT_MATH_SIN_FAR:
    case CT_MATH_COS:
    case CT_MATH_COS_FAR: return i % 2 ? u * 4 : ldexp(u, (int)(bits() % 53));
    default: return i % 2 ? u * 5 : u * scale;
    }
}

static void check(ct_kmath f, ct_dtype dtype, double bound) {
    values *v = malloc(sizeof *v);
    float *narrow = malloc(3 * ALL_VALUES * sizeof *narrow);
    bool f32 = dtype == CT_F32;
    for (int i = 0; i < ALL_VALUES; i++) {
        double x = i < EDGES ? edges[i] : random_value(f, i);
        narrow[i] = (float)x;
        v->x[i] = f32 ? (double)narrow[i] : x;
    }
    void *x = f32 ? (void *)narrow : (void *)v->x;
    void *y = f32 ? (void *)(narrow + ALL_VALUES) : (void *)v->y;
    void *s = f32 ? (void *)(narrow + 2 * ALL_VALUES) : (void *)v->y_scalar;
    apply(f, dtype, CT_BIND_LANES, x, y, ALL_VALUES);
    apply(f, dtype, CT_BIND_SEQ, x, s, ALL_VALUES);
    double worst = 0, at = 0;
    for (int i = 0; i < ALL_VALUES; i++) {
        double got = f32 ? (double)((float *)y)[i] : ((double *)y)[i];
        double scalar = f32 ? (double)((float *)s)[i] : ((double *)s)[i];
        bool equal = (isnan(got) && isnan(scalar)) || memcmp(&got, &scalar, sizeof got) == 0;
        if (!equal)
            fail_msg("%s(%a): vector %a, scalar %a", ct__kir_math_name(f), v->x[i], got, scalar);
        long double want = exact(f, (long double)v->x[i]);
        bool periodic =
            f == CT_MATH_SIN || f == CT_MATH_COS || f == CT_MATH_SIN_FAR || f == CT_MATH_COS_FAR;
        if (periodic && fabs(v->x[i]) >= 0x1p52) {
            if (isfinite(v->x[i]))
                assert_true(fabs(got) <= 1);
            else
                assert_true(isnan(got));
            continue;
        }
        if (want == 0 && !isnan(got)) assert_true(!signbit(got) == !signbit(want));
        double off = ulps(dtype, got, want);
        if (!(off <= worst)) worst = off, at = v->x[i];
    }
    print_message("%-5s %s: %.3f ulp at %a\n", ct__kir_math_name(f), ct_dtype_name(dtype), worst,
                  at);
    if (!(worst <= bound))
        fail_msg("%s of %s: %.2f ulp at %a, bound %.1f", ct__kir_math_name(f), ct_dtype_name(dtype),
                 worst, at, bound);
    free(v);
    free(narrow);
}

static void f32_within_2_ulp(void **state) {
    (void)state;
    for (int f = 0; f < CT_MATH_COUNT; f++) check((ct_kmath)f, CT_F32, 2);
}

static void f64_within_4_ulp(void **state) {
    (void)state;
    for (int f = 0; f < CT_MATH_COUNT; f++) check((ct_kmath)f, CT_F64, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_within_2_ulp),
        cmocka_unit_test(f64_within_4_ulp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
