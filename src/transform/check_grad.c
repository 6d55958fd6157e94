// Compares gradients of a function with central differences.
//
// Near a kink the slopes of two step sizes disagree; exactly at a kink the one-sided slopes differ by the
// same amount however small the step. Such elements are skipped, but only if the gradient does not match
// anyway.
#include <float.h>
#include <math.h>
#include <string.h>

#include "ops/rules.h"
#include "transform/trace.h"

enum { SAMPLES = 16, MAX_STEPS = 3, CLEAR_FACTOR = 16 };
#define CLEAR_ERROR 0.01 // of the larger of both slopes

typedef struct {
    ct_check_grad_args args;
    ct_ctx *ctx;
    int order;                    // order of the derivative that is checked
    const ct_type **type;         // (n_in)
    double **x;                   // (n_in) values in f64; NULL for operands that are not floats
    double **weight, **direction; // (n_out) weights of outputs, (n_in) directions
    double **gradient;            // (n_in)
    double *largest;              // (n_in) largest finite element of the gradient
    ct_arena arena;
    uint64_t random;
} check;

static bool check_grad_no_memory(check *c, size_t bytes) {
    return ct__err_memory(&c->ctx->err, c->args.here, "check_grad", bytes);
}

static double check_grad_random(check *c) { // -1 to 1, away from 0
    uint64_t z = (c->random += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    double u = (double)((z ^ z >> 31) >> 11) * 0x1p-53;
    return u < 0.5 ? u * 1.5 - 1 : u * 1.5 - 0.5;
}
static double *check_grad_random_array(check *c, int64_t n) {
    double *v = ct__arena(&c->arena, (size_t)n * sizeof *v + 8);
    for (int64_t i = 0; i < n && v; i++) v[i] = check_grad_random(c);
    if (!v) check_grad_no_memory(c, (size_t)n * sizeof *v);
    return v;
}

static ct_tensor check_grad_leaf(const check *c, const double *values, const ct_type *type) {
    ct_dims_buffer dims;
    return ct_from_at(values, CT_F64, ct__type_dims(type, &dims), c->args.here);
}

// --------------------------------------------------------------- the scalar that is differentiated

// Returns the sum of the outputs of f with each element weighted. For the second order half of their squares
// is added, so that the gradient of a linear function is not constant.
static ct_tensor check_grad_weighted_sum(check *c, const ct_tensor *x, bool squares) {
    ct_loc here = c->args.here;
    ct_tensor sum = CT_NONE, *out = ct__arena_zero(&c->arena, (c->args.n_out + 1) * sizeof *out);
    if (!out) return check_grad_no_memory(c, c->args.n_out * sizeof *out), CT_NONE;
    c->args.f(x, out, c->args.user); // not traced: values that it reads are concrete
    for (size_t i = 0; i < c->args.n_out && !c->ctx->err.code; i++) {
        if (!out[i].bits)
            return ct__fail(c->ctx, CT_E_ARGUMENT, here, "check_grad", "f did not set output %zu",
                            i + 1);
        ct_val v;
        if (!ct__resolve(c->ctx, out[i], &v, "check_grad", CT_OUTPUT((int)i), here)) return CT_NONE;
        const ct_type *type = ct__type(v);
        if (!ct__is_differentiable(type->dtype)) continue;
        if (type->dtype != CT_F64)
            return ct__fail(c->ctx, CT_E_DTYPE, here, "check_grad",
                            "output %zu is %s where the operands are f64: differences need all "
                            "digits",
                            i + 1, ct_dtype_name(type->dtype));
        if (!c->weight[i]) c->weight[i] = check_grad_random_array(c, ct__count(type));
        if (!c->weight[i]) return CT_NONE;
        ct_tensor y = out[i], w = check_grad_leaf(c, c->weight[i], type);
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

// Computes gradients with respect to the float operands, indexed like all operands.
static bool check_grad_gradients(check *c, ct_tensor value, const ct_tensor *x, ct_tensor *grads) {
    size_t n = 0;
    ct_tensor *wrt = ct__arena(&c->arena, (c->args.n_in + 1) * sizeof *wrt);
    if (!wrt) return check_grad_no_memory(c, c->args.n_in * sizeof *wrt);
    for (size_t k = 0; k < c->args.n_in; k++)
        if (c->x[k]) wrt[n++] = x[k];
    ct_grad_at(value, wrt, n, grads, c->args.here);
    for (size_t k = c->args.n_in; k-- > 0;) // spread, from the end
        grads[k] = c->x[k] ? grads[--n] : CT_NONE;
    return !c->ctx->err.code;
}

static ct_tensor check_grad_scalar(check *c, const ct_tensor *x) {
    ct_tensor value = check_grad_weighted_sum(c, x, c->order == 2), sum = CT_NONE;
    if (c->order == 1 || c->ctx->err.code) return value;
    ct_tensor *g = ct__arena(&c->arena, (c->args.n_in + 1) * sizeof *g);
    if (!g || !check_grad_gradients(c, value, x, g)) return CT_NONE;
    for (size_t k = 0; k < c->args.n_in; k++) {
        if (!c->x[k]) continue;
        ct_tensor v =
            ct_mul_at(g[k], check_grad_leaf(c, c->direction[k], c->type[k]), c->args.here);
        v = ct_sum_with((ct_sum_args){.x = v, .here = c->args.here});
        sum = sum.bits ? ct_add_at(sum, v, c->args.here) : v;
    }
    return sum;
}

static void check_grad_make_operands(check *c, ct_tensor *x) {
    for (size_t k = 0; k < c->args.n_in; k++)
        x[k] = c->x[k] ? check_grad_leaf(c, c->x[k], c->type[k]) : c->args.in[k];
}

// Returns the scalar at the current operands, or NaN if it cannot be computed.
static double check_grad_evaluate(check *c) {
    ct_scope scope = ct_scope_begin(c->args.here);
    ct_tensor *x = ct__arena(&c->arena, (c->args.n_in + 1) * sizeof *x);
    double value = NAN;
    if (x) {
        check_grad_make_operands(c, x);
        value = ct_item_at(check_grad_scalar(c, x), c->args.here);
    } else {
        check_grad_no_memory(c, sizeof *x);
    }
    ct_scope_end(scope, c->args.here);
    return value;
}

static bool check_grad_store_gradient(check *c) {
    size_t n = c->args.n_in;
    ct_scope scope = ct_scope_begin(c->args.here);
    ct_tensor *x = ct__arena(&c->arena, (n + 1) * sizeof *x),
              *g = ct__arena(&c->arena, (n + 1) * sizeof *g);
    bool ok = x && g;
    if (!ok) check_grad_no_memory(c, n * sizeof *x);
    if (ok) check_grad_make_operands(c, x);
    ok = ok && check_grad_gradients(c, check_grad_scalar(c, x), x, g);
    for (size_t k = 0; k < n && ok; k++) {
        if (!c->x[k]) continue;
        int64_t count = ct__count(c->type[k]);
        const double *from = ct_data_at(g[k], c->args.here);
        c->gradient[k] = ct__arena(&c->arena, (size_t)count * sizeof(double) + 8);
        ok = !c->ctx->err.code && (c->gradient[k] || check_grad_no_memory(c, (size_t)count * 8));
        c->largest[k] = 0;
        for (int64_t i = 0; i < count && ok; i++) {
            c->gradient[k][i] = isnan(from[i]) ? NAN : from[i]; // NaN without a sign, for printing
            if (isfinite(from[i])) c->largest[k] = fmax(c->largest[k], fabs(from[i]));
        }
    }
    ct_scope_end(scope, c->args.here);
    return ok && !c->ctx->err.code;
}

// ------------------------------------------------------------------------------------- one element

typedef enum { FITS, WRONG, ROUGH } verdict;

// Returns the scalar with the element perturbed by `by`.
static double check_grad_perturbed(check *c, size_t k, int64_t i, double by) {
    double was = c->x[k][i];
    c->x[k][i] = was + by;
    double value = check_grad_evaluate(c);
    c->x[k][i] = was;
    return value;
}

// Judges a gradient that is not finite where the differences are. NaN is never a slope. An infinite gradient
// is right if f gets steeper the smaller the step, as a root does at 0.
static verdict check_grad_judge_nonfinite(double g, double coarse, double fine, double noise) {
    return isinf(g) && fine > 1.1 * coarse + noise ? ROUGH : WRONG;
}

static verdict check_grad_compare(check *c, size_t k, int64_t i, double h, bool is_last,
                                  double value, double *slope) {
    double up = check_grad_perturbed(c, k, i, h), down = check_grad_perturbed(c, k, i, -h);
    double up2 = check_grad_perturbed(c, k, i, h / 2),
           down2 = check_grad_perturbed(c, k, i, -h / 2);
    double wide = (up - down) / (2 * h), narrow = (up2 - down2) / h, g = c->gradient[k][i];
    // Richardson extrapolation: eliminates the contribution of the third derivative
    *slope = (4 * narrow - wide) / 3;
    double noise = 256 * DBL_EPSILON * fmax(fabs(value), fmax(fabs(up), fabs(down))) / h;
    if (!isfinite(*slope)) return ROUGH; // the step leaves the domain in which f is finite
    if (!isfinite(g))
        return check_grad_judge_nonfinite(g, fmax(fabs(up - value), fabs(down - value)) / h,
                                          fmax(fabs(up2 - value), fabs(down2 - value)) / (h / 2),
                                          noise);
    double size = fmax(fmax(fabs(g), fabs(*slope)), c->largest[k] * 1e-3);
    double allowed = c->args.tolerance * size + noise;
    if (fabs(g - *slope) <= allowed) return FITS;
    // The right slope minus the left slope: it halves with the step if f is smooth.
    double kink1 = fabs(up - 2 * value + down) / h, kink2 = fabs(up2 - 2 * value + down2) / (h / 2);
    bool is_kink = kink2 > 0.75 * kink1 && kink2 > allowed;
    if (is_kink) return ROUGH;
    double uncertainty = fabs(wide - narrow), error = fabs(g - *slope);
    if (!is_last) return uncertainty > allowed ? ROUGH : WRONG;
    // Digits may be lost, or f may be too steep for the tolerance: only an obvious error is reported.
    return error > CLEAR_FACTOR * uncertainty && error > CLEAR_ERROR * size ? WRONG : ROUGH;
}

static bool check_grad_report(check *c, size_t k, int64_t i, double slope) {
    const ct_type *type = c->type[k];
    CT_TEXT index = {0};
    ct__print_index(&index, type, i);
    ct__err(&c->ctx->err, CT_E_CHECK, c->args.here, "check_grad",
            "the %s derivative with respect to operand %zu %s at %s is %.8g, finite differences "
            "give %.8g",
            c->order == 2 ? "second" : "first", k + 1, ct__type_text(type).s,
            index.s ? index.s : "", c->gradient[k][i], slope);
    return false;
}

// Returns the first element of a range whose gradient is not finite, or a random one if all are.
static int64_t check_grad_choose_element(check *c, const double *gradient, int64_t begin,
                                         int64_t end) {
    int64_t i = begin + (int64_t)((check_grad_random(c) + 1) / 2 * (double)(end - begin));
    for (int64_t k = begin; k < end; k++)
        if (!isfinite(gradient[k])) return k;
    return i < end ? i : end - 1;
}

// Checks one element in each of n equal ranges.
static bool check_grad_check_operand(check *c, size_t k, double here) {
    int64_t count = ct__count(c->type[k]);
    int64_t n = count < c->args.samples ? count : c->args.samples, n_rough = 0;
    for (int64_t s = 0; s < n; s++) {
        int64_t i =
            check_grad_choose_element(c, c->gradient[k], s * count / n, (s + 1) * count / n);
        // The smaller the step, the more digits are lost. The last step is as small as the element requires,
        // which may be close to the boundary of the domain of f.
        double slope = 0, size = fabs(c->x[k][i]), h = 1e-4 * fmax(1, size);
        double steps[MAX_STEPS] = {h, h / 16, size > 0 ? fmin(h / 16, 1e-4 * size) : h / 16};
        verdict v = ROUGH;
        for (int t = 0; t < MAX_STEPS && v == ROUGH; t++)
            v = check_grad_compare(c, k, i, steps[t], t == MAX_STEPS - 1, here, &slope);
        if (c->ctx->err.code) return false;
        if (v == WRONG) return check_grad_report(c, k, i, slope);
        n_rough += v == ROUGH;
    }
    if (n == 0 || n_rough < n) return true;
    return ct__err(
        &c->ctx->err, CT_E_CHECK, c->args.here, "check_grad",
        "f is not smooth at any of the %lld elements of operand %zu that were tried: its "
        "gradient cannot be checked there",
        (long long)n, k + 1);
}

// --------------------------------------------------------------------------------------- the whole

static bool check_grad_init(check *c) {
    size_t n = c->args.n_in, floats = 0;
    ct_loc here = c->args.here;
    c->type = ct__arena_zero(&c->arena, (n + 1) * sizeof *c->type);
    c->x = ct__arena_zero(&c->arena, (n + 1) * sizeof *c->x);
    c->direction = ct__arena_zero(&c->arena, (n + 1) * sizeof *c->direction);
    c->gradient = ct__arena_zero(&c->arena, (n + 1) * sizeof *c->gradient);
    c->largest = ct__arena_zero(&c->arena, (n + 1) * sizeof *c->largest);
    c->weight = ct__arena_zero(&c->arena, (c->args.n_out + 1) * sizeof *c->weight);
    if (!c->type || !c->x || !c->direction || !c->gradient || !c->largest || !c->weight)
        return check_grad_no_memory(c, n * sizeof *c->x);
    for (size_t k = 0; k < n; k++) {
        ct_val v;
        if (!ct__resolve(c->ctx, c->args.in[k], &v, "check_grad", (int)k, here)) return false;
        c->type[k] = ct__type(v);
        if (!ct__is_differentiable(c->type[k]->dtype)) continue;
        if (ct__is_complex((ct_dtype)c->type[k]->dtype))
            return ct__err(&c->ctx->err, CT_E_DTYPE, here, "check_grad",
                           "operand %zu is %s: differences are taken of floats; give its parts",
                           k + 1, ct__type_text(c->type[k]).s);
        int64_t count = ct__count(c->type[k]);
        const void *bytes = ct_data_at(c->args.in[k], here);
        if (c->ctx->err.code) return false;
        if (!(c->x[k] = ct__arena(&c->arena, (size_t)count * 8 + 8)))
            return check_grad_no_memory(c, (size_t)count * 8);
        for (int64_t i = 0; i < count; i++) c->x[k][i] = ct__load_f64(c->type[k]->dtype, bytes, i);
        if (!(c->direction[k] = check_grad_random_array(c, count))) return false;
        floats++;
    }
    return floats || ct__err(&c->ctx->err, CT_E_DTYPE, here, "check_grad",
                             "none of the %zu operands is of floats", n);
}

static bool check_grad_check_order(check *c, int order) {
    c->order = order;
    if (!check_grad_store_gradient(c)) return false;
    double here = check_grad_evaluate(c);
    if (c->ctx->err.code) return false;
    if (!isfinite(here))
        return ct__err(&c->ctx->err, CT_E_CHECK, c->args.here, "check_grad",
                       "%s is not finite at its operands", order == 2 ? "the gradient of f" : "f");
    for (size_t k = 0; k < c->args.n_in; k++)
        if (c->x[k] && !check_grad_check_operand(c, k, here)) return false;
    return true;
}

bool ct_check_grad_with(ct_check_grad_args args) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || ctx->err.code ||
        !ct__possible(ctx, args.n_in, args.here, "check_grad", "the operands") ||
        !ct__possible(ctx, args.n_out, args.here, "check_grad", "the outputs"))
        return false;
    if (args.order < 0 || args.order > 2 || args.samples < 0 || !(args.tolerance >= 0))
        return ct__refuse(ctx, CT_E_ARGUMENT, args.here, "check_grad",
                          "order is 1 or 2, samples and tolerance are not negative: %d, %lld, %g",
                          args.order, (long long)args.samples, args.tolerance);
    if (ctx->tracing) {
        ct__fail(ctx, CT_E_TRACE, args.here, "check_grad",
                 "a value is read inside a traced function");
        return ct__err_hint(&ctx->err, "check the gradient outside of the function");
    }
    if (args.n_out == 0) args.n_out = 1;
    if (args.samples == 0) args.samples = SAMPLES;
    if (args.tolerance == 0) args.tolerance = 1e-6;
    check c = {.args = args, .ctx = ctx, .random = (uint64_t)args.seed};
    ct_scope scope = ct_scope_begin(args.here);
    bool ok = check_grad_init(&c) && check_grad_check_order(&c, 1);
    if (ok && args.order == 2) ok = check_grad_check_order(&c, 2);
    ct_scope_end(scope, args.here);
    ct__arena_free(&c.arena);
    return ok && !ctx->err.code;
}
