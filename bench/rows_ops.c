// The benchmark `ops`: 40 elementary ops of a million elements.
#include "rows.h"

enum { SIDE = 1000 }; // side of a matrix of a million elements

// in: three matrices; in[3]: a mask made of the first two.
static size_t ops_make(const bench_case *c, ct_tensor *in) {
    (void)c;
    for (uint32_t i = 0; i < 3; i++) in[i] = bench_numbers(CT_DIMS(SIDE, SIDE), i + 1);
    in[3] = ct_less(in[0], in[1]);
    return ct_eval(&in[3], 1) ? 4 : 0;
}

// name, bytes read and written per element, the result as a function of x, y, z and mask
#define OPS(F)                                                                                     \
    F(add, 12, ct_add(x, y))                                                                       \
    F(sub, 12, ct_sub(x, y))                                                                       \
    F(mul, 12, ct_mul(x, y))                                                                       \
    F(div, 12, ct_div(x, y))                                                                       \
    F(maximum, 12, ct_maximum(x, y))                                                               \
    F(minimum, 12, ct_minimum(x, y))                                                               \
    F(pow, 12, ct_pow(x, y))                                                                       \
    F(less, 9, ct_less(x, y))                                                                      \
    F(select, 13, ct_select(mask, x, y))                                                           \
    F(multiply_add, 16, ct_add(ct_mul(x, y), z))                                                   \
    F(neg, 8, ct_neg(x))                                                                           \
    F(abs, 8, ct_abs(x))                                                                           \
    F(floor, 8, ct_floor(x))                                                                       \
    F(round, 8, ct_round(x))                                                                       \
    F(square, 8, ct_square(x))                                                                     \
    F(sqrt, 8, ct_sqrt(x))                                                                         \
    F(rsqrt, 8, ct_rsqrt(x))                                                                       \
    F(reciprocal, 8, ct_reciprocal(x))                                                             \
    F(exp, 8, ct_exp(x))                                                                           \
    F(log, 8, ct_log(x))                                                                           \
    F(expm1, 8, ct_expm1(x))                                                                       \
    F(log1p, 8, ct_log1p(x))                                                                       \
    F(sin, 8, ct_sin(x))                                                                           \
    F(cos, 8, ct_cos(x))                                                                           \
    F(tanh, 8, ct_tanh(x))                                                                         \
    F(erf, 8, ct_erf(x))                                                                           \
    F(relu, 8, ct_relu(x))                                                                         \
    F(sigmoid, 8, ct_sigmoid(x))                                                                   \
    F(silu, 8, ct_silu(x))                                                                         \
    F(gelu, 8, ct_gelu(x))                                                                         \
    F(clamp, 8, ct_clamp(x, ct_f(0.2), ct_f(0.8)))                                                 \
    F(to_bf16, 6, ct_cast(x, CT_BF16))                                                             \
    F(sum, 4, ct_sum(x))                                                                           \
    F(max, 4, ct_max(x))                                                                           \
    F(sum_rows, 4, ct_sum(x, CT_AXES(1)))                                                          \
    F(sum_columns, 4, ct_sum(x, CT_AXES(0)))                                                       \
    F(argmax_rows, 4, ct_argmax(x, 1))                                                             \
    F(transpose, 8, ct_permute(x, CT_AXES(1, 0)))                                                  \
    F(concat, 16, ct_concat(in, 2, 0))                                                             \
    F(cumsum_rows, 8, ct_cumsum(x, 1))

#define RECORD(op, bytes, result)                                                                  \
    static size_t ops_record_##op(const bench_case *c, const ct_tensor *in, int64_t iteration,     \
                                  ct_tensor *out) {                                                \
        ct_tensor x = in[0], y = in[1], z = in[2], mask = in[3];                                   \
        (void)c, (void)iteration, (void)x, (void)y, (void)z, (void)mask;                           \
        out[0] = result;                                                                           \
        return 1;                                                                                  \
    }
OPS(RECORD)

size_t list_ops(const bench_settings *s, bench_case *out) {
    size_t n = 0;
    (void)s;
#define ENTRY(op, moved, result)                                                                   \
    out[n++] = (bench_case){                                                                       \
        .name = #op, .bytes = (moved)*1e6, .make = ops_make, .record = ops_record_##op};
    OPS(ENTRY)
    return n;
}
