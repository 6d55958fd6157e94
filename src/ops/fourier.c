// Discrete Fourier transforms as matrix products. A size is factored (Cooley and Tukey, "An algorithm for the
// machine calculation of complex Fourier series", 1965), and each factor is a product with a small matrix; a
// large prime becomes a convolution whose size is a power of two (Bluestein, "A linear filtering approach to
// the computation of the discrete Fourier transform", 1970). Roots of unity are computed in double, from an
// angle that was reduced in integers, so that they are correct to the last bit for any size.
#include <math.h>
#include <stdlib.h>

#include "kinds/batch.h"
#include "ops/rules.h"

enum {
    // of a size that is factored: the matrix of a step fits in the L1 cache
    MAX_FACTOR = 64,
    MAX_PRIME = 128, // that is one product: for larger primes a convolution is less work
};

#define FFT_ATTRS(F, op) F(op, axes, axes) F(op, bool, inverse)
CT_ATTRS(fft, FFT_ATTRS);

static bool fft_infer(ct_call *call) { // without axes: the last one
    fft_attrs *attrs = call->attrs;
    const ct_type *in = call->in[0];
    int64_t last = -1;
    if (!ct__check_accepts(call, 0)) return false;
    if (in->rank == 0)
        return ct__call_err(call, CT_E_SHAPE, "x is %s, it needs an axis", ct__type_text(in).s);
    if (attrs->axes.n == 0) attrs->axes = (ct_ints){1, &last};
    if (!ct__normal_axes(call, &attrs->axes, in->rank)) return false;
    for (int64_t i = 0; i < attrs->axes.n; i++) {
        const int axis = (int)attrs->axes.v[i];
        if (ct__is_dyn(in, axis))
            return ct__call_err(call, CT_E_SHAPE, "axis %d has a dynamic size, x is %s", axis,
                                ct__type_text(in).s) ||
                   ct__call_hint(call, "the size is factorised when the plan is made");
        if (in->dim[axis] == 0)
            return ct__call_err(call, CT_E_SHAPE, "axis %d has no elements, x is %s", axis,
                                ct__type_text(in).s);
    }
    *call->out = *in;
    call->out->dtype = in->dtype == CT_F32 || in->dtype == CT_C64 ? CT_C64 : CT_C128;
    return true;
}

// ---------------------------------------------------------------------------------------------- tables

// Parameters of a transform: the dtype of its results, the sign of the exponent, and whether something
// failed: out of memory for a table, or an error during recording, which has been reported.
typedef struct {
    ct_dtype dtype;
    double sign;
    bool failed;
} fft_state;

static ct_tensor fft_dft(fft_state *t, ct_tensor x, int64_t n);

// Returns a constant (rows, columns) of the roots exp(sign 2 pi i p(row, column) / order), for exponents p
// that are reduced modulo the order.
static ct_tensor fft_roots(fft_state *t, int64_t rows, int64_t columns, int64_t order,
                           int64_t (*exponent)(int64_t row, int64_t column, int64_t order)) {
    const int64_t count = rows * columns;
    double *wide = malloc((size_t)count * 2 * sizeof *wide);
    if (!wide) return t->failed = true, CT_NONE;
    float *narrow = (float *)wide; // in place: element i is read before it is overwritten
    for (int64_t i = 0; i < count; i++) {
        const int64_t p = exponent(i / columns, i % columns, order);
        const double angle = 2 * 3.14159265358979323846 * (double)p / (double)order;
        // A quarter of the circle is exact.
        const double re = 4 * p == order || 4 * p == 3 * order ? 0 : cos(angle);
        const double im = 2 * p == order || p == 0 ? 0 : t->sign * sin(angle);
        if (t->dtype == CT_C64)
            narrow[2 * i] = (float)re, narrow[2 * i + 1] = (float)im;
        else
            wide[2 * i] = re, wide[2 * i + 1] = im;
    }
    const int64_t dims[2] = {rows, columns};
    ct_tensor table = ct_const(wide, t->dtype, ((ct_ints){2, dims}));
    free(wide);
    return table;
}
static int64_t fft_exponent_product(int64_t row, int64_t column, int64_t order) {
    return (int64_t)((unsigned __int128)row * (unsigned __int128)column % (unsigned __int128)order);
}
static int64_t fft_exponent_square(int64_t row, int64_t column, int64_t order) {
    return (void)row, fft_exponent_product(column, column, order);
}

// -------------------------------------------------------------------------------------- along the last axis

// x (..., n) as (..., a, b), n = a b.
static ct_tensor fft_split_last(ct_tensor x, int64_t a, int64_t b) {
    const ct_type *type = ct__type_of(x);
    int64_t dims[CT_MAX_RANK + 1];
    for (int i = 0; i + 1 < type->rank; i++) dims[i] = ct__size_of(type, i);
    dims[type->rank - 1] = a, dims[type->rank] = b;
    return ct_reshape(x, ((ct_ints){type->rank + 1, dims}));
}
// x (..., a, b) as (..., n), n = a b.
static ct_tensor fft_merge_last(ct_tensor x, int64_t n) {
    const ct_type *type = ct__type_of(x);
    int64_t dims[CT_MAX_RANK + 1];
    for (int i = 0; i + 2 < type->rank; i++) dims[i] = ct__size_of(type, i);
    dims[type->rank - 2] = n;
    return ct_reshape(x, ((ct_ints){type->rank - 1, dims}));
}
static ct_tensor fft_swap_axes(ct_tensor x, int a, int b) {
    int64_t order[CT_MAX_RANK + 1];
    const int rank = ct__type_of(x)->rank;
    for (int i = 0; i < rank; i++) order[i] = i == a ? b : i == b ? a : i;
    return ct_permute(x, ((ct_ints){rank, order}));
}
static ct_tensor fft_swap_last(ct_tensor x) {
    const int rank = ct__type_of(x)->rank;
    return fft_swap_axes(x, rank - 2, rank - 1);
}
// The first n elements along the last axis.
static ct_tensor fft_head(ct_tensor x, int64_t n) {
    const int64_t last = ct__type_of(x)->rank - 1, begin = 0;
    return ct_slice(x, .axes = {1, &last}, .start = {1, &begin}, .stop = {1, &n});
}

// Returns the factor of n that is split off: the smallest one of at least the square root of n, or else the
// largest up to MAX_FACTOR. 1: n has none, and is one product or a convolution.
static int64_t fft_choose_factor(int64_t n) {
    int64_t best = 1;
    for (int64_t f = 2; f <= MAX_FACTOR && f < n; f++)
        if (n % f == 0 && (best == 1 || best * best < n)) best = f;
    return best;
}

// For n = a b, with j = b j1 + j2 and k = k1 + a k2: the sum over j1 is one of a elements for each j2; after
// multiplication by the root (j2 k1), the sum over j2 is one of b elements for each k1.
static ct_tensor fft_cooley_tukey(fft_state *t, ct_tensor x, int64_t n, int64_t a) {
    const int64_t b = n / a;
    x = fft_swap_last(fft_split_last(x, a, b));                 // (..., j2, j1)
    x = fft_dft(t, x, a);                                       // (..., j2, k1)
    x = ct_mul(x, fft_roots(t, b, a, n, fft_exponent_product)); // (..., j2, k1)
    x = fft_dft(t, fft_swap_last(x), b);                        // (..., k1, k2)
    return fft_merge_last(fft_swap_last(x), n);                 // k1 + a k2
}

// j k = (j^2 + k^2 - (k - j)^2) / 2: the transform is a multiplication by a chirp, a convolution with its
// conjugate, and a multiplication by the chirp.
static ct_tensor fft_bluestein(fft_state *t, ct_tensor x, int64_t n) {
    const int last = ct__type_of(x)->rank - 1;
    int64_t m = 1, pad_x[CT_MAX_RANK + 1] = {0}, pad_kernel[2] = {0};
    while (m < 2 * n - 1) m *= 2;
    ct_tensor chirp = fft_roots(t, 1, n, 2 * n, fft_exponent_square); // (1, n)
    if (t->failed) return CT_NONE;
    ct_tensor chirp_conj = ct_conj(chirp), zero = ct_zeros(t->dtype, CT_SCALAR); // (1, n)
    // chirp_conj_|k - j| for k - j from -(n - 1) to n - 1, the negative ones at the end, since the
    // convolution is circular: (1, m)
    const int64_t one = 1, along = 1;
    pad_kernel[1] = m - 2 * n + 1;
    ct_tensor rest = ct_slice(chirp_conj, .axes = {1, &along}, .start = {1, &one}); // (1, n - 1)
    ct_tensor parts[2] = {ct_pad(chirp_conj, zero, .high = {2, pad_kernel}),
                          ct_flip(rest, ((ct_ints){1, &along}))};
    ct_tensor kernel = ct_concat(parts, 2, 1);
    pad_x[last] = m - n;
    const int rank = last + 1;
    ct_tensor y = ct_pad(ct_mul(x, chirp), zero, .high = {rank, pad_x}); // (..., m)
    fft_state inverse = {t->dtype, -t->sign, false};
    y = fft_dft(&inverse, ct_mul(fft_dft(t, y, m), fft_dft(t, kernel, m)), m);
    t->failed |= inverse.failed;
    y = ct_mul(fft_head(y, n), chirp);
    return ct_mul(y, ct_scalar(1.0 / (double)m, ct__part(t->dtype)));
}

// The sums over the last axis of x (..., n), not scaled.
static ct_tensor fft_dft(fft_state *t, ct_tensor x, int64_t n) {
    t->failed |= ct__is_none(x) || ct__type_of(x)->rank < 2; // poisoned
    if (n == 1 || t->failed) return x;
    const int64_t a = n > MAX_FACTOR ? fft_choose_factor(n) : 1;
    if (a > 1) return fft_cooley_tukey(t, x, n, a);
    if (n > MAX_PRIME) return fft_bluestein(t, x, n);
    ct_tensor matrix = fft_roots(t, n, n, n, fft_exponent_product); // (n, n)
    return t->failed ? CT_NONE : ct_matmul(x, matrix);
}

// ------------------------------------------------------------------------------------------------- the op

static bool fft_body(ct_rule *r) {
    const fft_attrs *attrs = r->attrs;
    fft_state t = {(ct_dtype)r->node->out->dtype, attrs->inverse ? 1 : -1, false};
    ct_tensor x = ct_cast(r->in[0], t.dtype);
    double count = 1;
    for (int64_t i = 0; i < attrs->axes.n && !t.failed; i++) {
        const int axis = (int)attrs->axes.v[i], last = r->node->out->rank - 1;
        const int64_t n = r->node->out->dim[axis];
        // A single axis would be a vector in a product, so it becomes a row of a matrix.
        x = last == 0 ? fft_split_last(x, 1, n) : fft_swap_axes(x, axis, last);
        x = fft_dft(&t, x, n);
        if (!t.failed) x = last == 0 ? fft_merge_last(x, n) : fft_swap_axes(x, axis, last);
        count *= (double)n;
    }
    if (t.failed)
        return ct__fail(r->node->ctx, CT_E_MEMORY, r->node->here, "fft",
                        "out of memory while recording"),
               false;
    if (attrs->inverse) x = ct_mul(x, ct_scalar(1 / count, ct__part(t.dtype)));
    return ct__set_body(r, x);
}
// The matrix of a transform is its own transpose.
static bool fft_transpose(ct_rule *r) {
    const fft_attrs *attrs = r->attrs;
    ct_tensor c = ct_fft(r->c_out[0], .axes = attrs->axes, .inverse = attrs->inverse);
    return ct__set_cotangent(r, ct__cotangent_like(c, (ct_dtype)ct__type_of(r->in[0])->dtype));
}
const ct_opdef ct__op_fft = {
    CT_COMPOSED(FFT, fft, 1, 1),
    .doc = "The discrete Fourier transform along axes (default: the last), complex: sums of x_j "
           "exp(-2 pi i j k / n); "
           "`inverse`: of x_j exp(2 pi i j k / n), divided by the number of elements.",
    CT_FIELDS(fft),
    .accepts = CT_MASK(CT_F32) | CT_MASK(CT_F64) | CT_COMPLEX,
    .jvp = ct__jvp_same,
    .transpose = fft_transpose,
    .batch = ct__batch_shifted,
    .stablehlo = "fft",
    .autocast = CT_CAST_F32,
};
