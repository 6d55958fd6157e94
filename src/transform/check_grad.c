// Gradients of a function against central differences.
//
// Near a kink the slopes of two step sizes disagree, on one they jump by as much however small the
// step; such elements are left out, but only when the gradient does not fit anyway.
#include <float.h>
#include <math.h>
#include <string.h>

#include "ops/rules.h"
#include "transform/trace.h"

enum { SAMPLES = 16, TRIES = 3, MANY = 16 };
#define PLAIN 0.01 // of the larger of both slopes

typedef struct {
    ct_check_grad_args args;
    ct_ctx *ctx;
    int order;                // of the derivative that is looked at
    const ct_type **type;     // (n_in)
    double **x;               // (n_in) values in f64; NULL of operands that are no floats
    double **weight, **along; // (n_out) of outputs, (n_in) directions
    double **gradient;        // (n_in)
    double *largest;          // (n_in) of the gradient's finite elements
    ct_arena arena;
    uint64_t random;
} check;

static bool no_memory(check *c, size_t bytes) {
    return ct__err_memory(&c->ctx->err, c->args.here, "check_grad", bytes);
}

static double random_number(check *c) { // -1 to 1, away from 0
    uint64_t z = (c->random += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    double u = (double)((z ^ z >> 31) >> 11) * 0x1p-53;
    return u < 0.5 ? u * 1.5 - 1 : u * 1.5 - 0.5;
}
static double *random_numbers(check *c, int64_t n) {
    double *v = ct__arena(&c->arena, (size_t)n * sizeof *v + 8);
    for (int64_t i = 0; i < n && v; i++) v[i] = random_number(c);
    if (!v) no_memory(c, (size_t)n * sizeof *v);
    return v;
}

static ct_tensor leaf(const check *c, const double *values, const ct_type *type) {
    ct_dims_buffer dims;
    return ct_from_at(values, CT_F64, ct__type_dims(type, &dims), c->args.here);
}

// --------------------------------------------------------------- the number that is differentiated

// The outputs of f, each element with its weight. For the second order their squares too, so that
// the gradient of what is linear is no constant.
static ct_tensor weighted(check *c, const ct_tensor *x, bool squares) {
    ct_loc here = c->args.here;
    ct_tensor sum = CT_NONE, *out = ct__arena_zero(&c->arena, (c->args.n_out + 1) * sizeof *out);
    if (!out) return no_memory(c, c->args.n_out * sizeof *out), CT_NONE;
    c->args.f(x, out, c->args.user); // not traced: what it reads are values
    for (size_t i = 0; i < c->args.n_out && !c->ctx->err.code; i++) {
        if (!out[i].bits)
            return ct__fail(c->ctx, CT_E_ARGUMENT, here, "check_grad", "f did not set output %zu",
                            i + 1);
        ct_val v;
        if (!ct__resolve(c->ctx, out[i], &v, "check_grad", CT_OUTPUT((int)i), here)) return CT_NONE;
        const ct_type *type = ct__type(v);
        if (!ct__has_slope(type->dtype)) continue;
        if (type->dtype != CT_F64)
            return ct__fail(c->ctx, CT_E_DTYPE, here, "check_grad",
                            "output %zu is %s where the operands are f64: differences need all "
                            "digits",
                            i + 1, ct_dtype_name(type->dtype));
        if (!c->weight[i]) c->weight[i] = random_numbers(c, ct__count(type));
        if (!c->weight[i]) return CT_NONE;
        ct_tensor y = out[i], w = leaf(c, c->weight[i], type);
        if (squares) {
            ct_tensor half = ct_mul_at(ct_mul_at(y, y, here), ct_scalar(0.5, CT_F64), here);
            y = ct_add_at(y, half, here);
        }
        ct_tensor part = ct_sum_with((ct_sum_args){.x = ct_mul_at(y, w, here), .here = here});
        sum = sum.bits ? ct_add_at(sum, part, here) : part;
    }
    if (!sum.bits && !c->ctx->err.code)
        return ct__fail(c->ctx, CT_E_DTYPE, here, "check_grad", "no output is of floats");
    return sum;
}

// With respect to the float operands, by their place among all.
static bool slopes(check *c, ct_tensor value, const ct_tensor *x, ct_tensor *grads) {
    size_t n = 0;
    ct_tensor *wrt = ct__arena(&c->arena, (c->args.n_in + 1) * sizeof *wrt);
    if (!wrt) return no_memory(c, c->args.n_in * sizeof *wrt);
    for (size_t k = 0; k < c->args.n_in; k++)
        if (c->x[k]) wrt[n++] = x[k];
    ct_grad_at(value, wrt, n, grads, c->args.here);
    for (size_t k = c->args.n_in; k-- > 0;) // spread, from the end
        grads[k] = c->x[k] ? grads[--n] : CT_NONE;
    return !c->ctx->err.code;
}

static ct_tensor number(check *c, const ct_tensor *x) {
    ct_tensor value = weighted(c, x, c->order == 2), sum = CT_NONE;
    if (c->order == 1 || c->ctx->err.code) return value;
    ct_tensor *g = ct__arena(&c->arena, (c->args.n_in + 1) * sizeof *g);
    if (!g || !slopes(c, value, x, g)) return CT_NONE;
    for (size_t k = 0; k < c->args.n_in; k++) {
        if (!c->x[k]) continue;
        ct_tensor v = ct_mul_at(g[k], leaf(c, c->along[k], c->type[k]), c->args.here);
        v = ct_sum_with((ct_sum_args){.x = v, .here = c->args.here});
        sum = sum.bits ? ct_add_at(sum, v, c->args.here) : v;
    }
    return sum;
}

static void operands(check *c, ct_tensor *x) {
    for (size_t k = 0; k < c->args.n_in; k++)
        x[k] = c->x[k] ? leaf(c, c->x[k], c->type[k]) : c->args.in[k];
}

// The number at the operands as they are now; NaN when it cannot be computed.
static double evaluate(check *c) {
    ct_scope scope = ct_scope_begin(c->args.here);
    ct_tensor *x = ct__arena(&c->arena, (c->args.n_in + 1) * sizeof *x);
    double value = NAN;
    if (x) {
        operands(c, x);
        value = ct_item_at(number(c, x), c->args.here);
    } else {
        no_memory(c, sizeof *x);
    }
    ct_scope_end(scope, c->args.here);
    return value;
}

static bool take_gradient(check *c) {
    size_t n = c->args.n_in;
    ct_scope scope = ct_scope_begin(c->args.here);
    ct_tensor *x = ct__arena(&c->arena, (n + 1) * sizeof *x),
              *g = ct__arena(&c->arena, (n + 1) * sizeof *g);
    bool ok = x && g;
    if (!ok) no_memory(c, n * sizeof *x);
    if (ok) operands(c, x);
    ok = ok && slopes(c, number(c, x), x, g);
    for (size_t k = 0; k < n && ok; k++) {
        if (!c->x[k]) continue;
        int64_t count = ct__count(c->type[k]);
        const double *from = ct_data_at(g[k], c->args.here);
        c->gradient[k] = ct__arena(&c->arena, (size_t)count * sizeof(double) + 8);
        ok = !c->ctx->err.code && (c->gradient[k] || no_memory(c, (size_t)count * 8));
        c->largest[k] = 0;
        for (int64_t i = 0; i < count && ok; i++) {
            c->gradient[k][i] = isnan(from[i]) ? NAN : from[i]; // one that is shown without a sign
            if (isfinite(from[i])) c->largest[k] = fmax(c->largest[k], fabs(from[i]));
        }
    }
    ct_scope_end(scope, c->args.here);
    return ok && !c->ctx->err.code;
}

// ------------------------------------------------------------------------------------- one element

typedef enum { FITS, WRONG, ROUGH } verdict;

// The number where the element is moved by `by`.
static double moved(check *c, size_t k, int64_t i, double by) {
    double was = c->x[k][i];
    c->x[k][i] = was + by;
    double value = evaluate(c);
    c->x[k][i] = was;
    return value;
}

// Of a gradient that is not finite, where the differences are. NaN is nobody's slope, and an
// infinite one is f's where f is the steeper the closer one looks, as a root at 0.
static verdict not_finite(double g, double coarse, double fine, double noise) {
    return isinf(g) && fine > 1.1 * coarse + noise ? ROUGH : WRONG;
}

static verdict one_step(check *c, size_t k, int64_t i, double h, bool last, double here,
                        double *slope) {
    double up = moved(c, k, i, h), down = moved(c, k, i, -h);
    double up2 = moved(c, k, i, h / 2), down2 = moved(c, k, i, -h / 2);
    double wide = (up - down) / (2 * h), narrow = (up2 - down2) / h, g = c->gradient[k][i];
    *slope = (4 * narrow - wide) / 3; // what both share of the third derivative is gone
    double noise = 256 * DBL_EPSILON * fmax(fabs(here), fmax(fabs(up), fabs(down))) / h;
    if (!isfinite(*slope)) return ROUGH; // the step leaves where f is finite
    if (!isfinite(g))
        return not_finite(g, fmax(fabs(up - here), fabs(down - here)) / h,
                          fmax(fabs(up2 - here), fabs(down2 - here)) / (h / 2), noise);
    double size = fmax(fmax(fabs(g), fabs(*slope)), c->largest[k] * 1e-3);
    double allowed = c->args.tolerance * size + noise;
    if (fabs(g - *slope) <= allowed) return FITS;
    // The slope to the right less that to the left: half as much at half the step, if f is smooth.
    double bend = fabs(up - 2 * here + down) / h, bend2 = fabs(up2 - 2 * here + down2) / (h / 2);
    bool kink = bend2 > 0.75 * bend && bend2 > allowed;
    if (kink) return ROUGH;
    double unsure = fabs(wide - narrow), off = fabs(g - *slope);
    if (!last) return unsure > allowed ? ROUGH : WRONG;
    // Digits may be lost, and f too steep for the tolerance: an error is one that is plain anyway.
    return off > MANY * unsure && off > PLAIN * size ? WRONG : ROUGH;
}

static bool wrong(check *c, size_t k, int64_t i, double slope) {
    const ct_type *type = c->type[k];
    ct_text place = {0};
    ct__say_index(&place, type, i);
    ct__err(&c->ctx->err, CT_E_CHECK, c->args.here, "check_grad",
            "the %s derivative with respect to operand %zu %s at %s is %.8g, differences say "
            "%.8g",
            c->order == 2 ? "second" : "first", k + 1, ct__type_text(type).s,
            place.s ? place.s : "", c->gradient[k][i], slope);
    ct__text_free(&place);
    return false;
}

// The first element of a part whose gradient is not finite; a random one where all are.
static int64_t one_of(check *c, const double *gradient, int64_t begin, int64_t end) {
    int64_t i = begin + (int64_t)((random_number(c) + 1) / 2 * (double)(end - begin));
    for (int64_t k = begin; k < end; k++)
        if (!isfinite(gradient[k])) return k;
    return i < end ? i : end - 1;
}

// One element of each of n equal parts.
static bool check_operand(check *c, size_t k, double here) {
    int64_t count = ct__count(c->type[k]);
    int64_t n = count < c->args.samples ? count : c->args.samples, rough = 0;
    for (int64_t s = 0; s < n; s++) {
        int64_t i = one_of(c, c->gradient[k], s * count / n, (s + 1) * count / n);
        // The smaller the step, the more digits are lost: the last is as small as the element asks
        // for, which may be close to where f ends.
        double slope = 0, size = fabs(c->x[k][i]), h = 1e-4 * fmax(1, size);
        double steps[TRIES] = {h, h / 16, size > 0 ? fmin(h / 16, 1e-4 * size) : h / 16};
        verdict v = ROUGH;
        for (int t = 0; t < TRIES && v == ROUGH; t++)
            v = one_step(c, k, i, steps[t], t == TRIES - 1, here, &slope);
        if (c->ctx->err.code) return false;
        if (v == WRONG) return wrong(c, k, i, slope);
        rough += v == ROUGH;
    }
    if (n == 0 || rough < n) return true;
    return ct__err(
        &c->ctx->err, CT_E_CHECK, c->args.here, "check_grad",
        "f is not smooth at any of the %lld elements of operand %zu that were tried: its "
        "gradient cannot be checked there",
        (long long)n, k + 1);
}

// --------------------------------------------------------------------------------------- the whole

static bool prepare(check *c) {
    size_t n = c->args.n_in, floats = 0;
    ct_loc here = c->args.here;
    c->type = ct__arena_zero(&c->arena, (n + 1) * sizeof *c->type);
    c->x = ct__arena_zero(&c->arena, (n + 1) * sizeof *c->x);
    c->along = ct__arena_zero(&c->arena, (n + 1) * sizeof *c->along);
    c->gradient = ct__arena_zero(&c->arena, (n + 1) * sizeof *c->gradient);
    c->largest = ct__arena_zero(&c->arena, (n + 1) * sizeof *c->largest);
    c->weight = ct__arena_zero(&c->arena, (c->args.n_out + 1) * sizeof *c->weight);
    if (!c->type || !c->x || !c->along || !c->gradient || !c->largest || !c->weight)
        return no_memory(c, n * sizeof *c->x);
    for (size_t k = 0; k < n; k++) {
        ct_val v;
        if (!ct__resolve(c->ctx, c->args.in[k], &v, "check_grad", (int)k, here)) return false;
        c->type[k] = ct__type(v);
        if (!ct__has_slope(c->type[k]->dtype)) continue;
        if (ct__is_complex((ct_dtype)c->type[k]->dtype))
            return ct__err(&c->ctx->err, CT_E_DTYPE, here, "check_grad",
                           "operand %zu is %s: differences are taken of floats; give its parts",
                           k + 1, ct__type_text(c->type[k]).s);
        int64_t count = ct__count(c->type[k]);
        const void *bytes = ct_data_at(c->args.in[k], here);
        if (c->ctx->err.code) return false;
        if (!(c->x[k] = ct__arena(&c->arena, (size_t)count * 8 + 8)))
            return no_memory(c, (size_t)count * 8);
        for (int64_t i = 0; i < count; i++) c->x[k][i] = ct__load_f64(c->type[k]->dtype, bytes, i);
        if (!(c->along[k] = random_numbers(c, count))) return false;
        floats++;
    }
    return floats || ct__err(&c->ctx->err, CT_E_DTYPE, here, "check_grad",
                             "none of the %zu operands is of floats", n);
}

static bool check_order(check *c, int order) {
    c->order = order;
    if (!take_gradient(c)) return false;
    double here = evaluate(c);
    if (c->ctx->err.code) return false;
    if (!isfinite(here))
        return ct__err(&c->ctx->err, CT_E_CHECK, c->args.here, "check_grad",
                       "%s is not finite at its operands", order == 2 ? "the gradient of f" : "f");
    for (size_t k = 0; k < c->args.n_in; k++)
        if (c->x[k] && !check_operand(c, k, here)) return false;
    return true;
}

bool ct_check_grad_with(ct_check_grad_args args) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || ctx->err.code ||
        !ct__possible(ctx, args.n_in, args.here, "check_grad", "the operands") ||
        !ct__possible(ctx, args.n_out, args.here, "check_grad", "the outputs"))
        return false;
    if (args.order < 0 || args.order > 2 || args.samples < 0 || !(args.tolerance >= 0)) {
        ct__fail(ctx, CT_E_ARGUMENT, args.here, "check_grad",
                 "order is 1 or 2, samples and tolerance are not negative: %d, %lld, %g",
                 args.order, (long long)args.samples, args.tolerance);
        return false;
    }
    if (ctx->tracing) {
        ct__fail(ctx, CT_E_TRACE, args.here, "check_grad",
                 "a value is read inside a traced function");
        ct__err_hint(&ctx->err, "check the gradient outside of the function");
        return false;
    }
    if (args.n_out == 0) args.n_out = 1;
    if (args.samples == 0) args.samples = SAMPLES;
    if (args.tolerance == 0) args.tolerance = 1e-6;
    check c = {.args = args, .ctx = ctx, .random = (uint64_t)args.seed};
    ct_scope scope = ct_scope_begin(args.here);
    bool ok = prepare(&c) && check_order(&c, 1);
    if (ok && args.order == 2) ok = check_order(&c, 2);
    ct_scope_end(scope, args.here);
    ct__arena_free(&c.arena);
    return ok && !ctx->err.code;
}
