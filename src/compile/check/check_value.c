// Describes values in messages, and decides how far they may be apart.
#include <math.h>
#include <string.h>

#include "compile/check/check.h"
#include "kinds/kind.h"

enum { CHECK_VALUE_MAX_INPUTS = 4 };

// Complex numbers viewed as twice as many floats.
typedef struct {
    int64_t n;
    ct_type type;
} real_view;
static const ct_type *check_value_as_floats(const ct_type *type, real_view *to) {
    to->n = 2 * ct__count(type);
    to->type = (ct_type){.dtype = (uint8_t)ct__part(type->dtype), .rank = 1, .dim = &to->n};
    return &to->type;
}

ct_check_nonfinite ct__check_count_nonfinite(const ct_type *type, const void *bytes) {
    ct_check_nonfinite bad = {0};
    if (ct__is_complex(type->dtype)) {
        real_view parts;
        bad = ct__check_count_nonfinite(check_value_as_floats(type, &parts), bytes);
        bad.at /= 2;
        return bad;
    }
    if (!ct__is_float(type->dtype)) return bad;
    int64_t n = ct__count(type), nan = -1, infinite = -1;
    for (int64_t i = 0; i < n; i++) {
        double x = ct__load_f64(type->dtype, bytes, i);
        if (isfinite(x)) continue;
        int64_t *count = isnan(x) ? &bad.nan : &bad.infinite, *first = isnan(x) ? &nan : &infinite;
        if (++*count == 1) *first = i;
    }
    bad.at = nan >= 0 ? nan : infinite;
    return bad;
}

// ---------------------------------------------------------------------------------------- tolerances

static const ct_type *check_value_operand_type(const ct_node *node, int k) {
    return ct__type(node->in[k]);
}

static double check_value_roundings(const ct_node *node, bool in_order) {
    return node->op->kind->roundings ? node->op->kind->roundings(node, in_order) : 0;
}
bool ct__check_accumulates(const ct_node *node) { return check_value_roundings(node, false) > 0; }

// Returns the number of units in the last place by which an element may differ from the reference. In a
// chain of rounded additions (docs/design/bits.md) each has an error of at most half a unit of the largest
// possible partial sum; in f64 the same holds for the additions of the reference.
static double check_value_tolerance_ulps(const ct_node *node) {
    bool wide = node->out->dtype == CT_F64;
    if (ct__check_accumulates(node))
        return 2 + check_value_roundings(node, false) / 2 +
               (wide ? check_value_roundings(node, true) / 2 : 0);
    double ulp = node->op->samples.ulp;
    return ulp == 0 ? 0 : (wide ? 4 * ulp : 2 * ulp) + 1;
}

// Of a float dtype: the distance from 1 to the next number, the smallest normal number, the largest number.
typedef struct {
    double eps, tiny, largest;
} float_limits;
static float_limits check_value_float_limits(ct_dtype dtype) {
    return (float_limits){ldexp(1, -ct__dtype(dtype)->mantissa), ct__float_min_normal(dtype),
                          ct__float_max(dtype)};
}

// Dtypes of 4 bits compare bytes, which hold two elements.
static bool check_value_same_bits(const ct_type *type, const void *got, const void *want,
                                  int64_t i) {
    size_t size = ct_dtype_size(type->dtype), at = (size_t)i * size;
    if (size == 0) size = 1, at = (size_t)i / 2;
    return memcmp((const char *)got + at, (const char *)want + at, size) == 0;
}

ct_check_difference ct__check_same(const ct_type *type, const void *got, const void *want) {
    ct_check_difference d = {0};
    if (ct__is_complex(type->dtype)) {
        real_view parts;
        d = ct__check_same(check_value_as_floats(type, &parts), got, want);
        d.at /= 2;
        return d;
    }
    int64_t n = ct__count(type);
    bool is_float = ct__is_float(type->dtype);
    for (int64_t i = 0; i < n; i++) {
        if (check_value_same_bits(type, got, want, i)) continue;
        if (is_float && isnan(ct__load_f64(type->dtype, got, i)) &&
            isnan(ct__load_f64(type->dtype, want, i)))
            continue;
        if (++d.count == 1) d.at = i;
    }
    return d;
}

static bool check_value_near(double got, double want, double allowed, double largest) {
    if (isnan(got) && isnan(want)) return true;
    if (got == want) return allowed > 0 || signbit(got) == signbit(want);
    if (isnan(got) || isnan(want)) return false;
    // overflow to infinity is an error like others near the largest number
    if (isinf(got) || isinf(want))
        return allowed > 0 && got * want > 0 && fmin(fabs(got), fabs(want)) >= largest * 0.999;
    return fabs(got - want) <= allowed;
}

// True if element i may have any value, since nothing is guaranteed for its operand.
static bool check_value_is_unspecified(const ct_node *node, void *const *in, int64_t i) {
    double largest = node->op->samples.largest;
    return largest > 0 &&
           fabs(ct__load_f64(check_value_operand_type(node, 0)->dtype, in[0], i)) >= largest;
}

ct_check_difference ct__check_compare(const ct_node *node, uint32_t out, void *const *in,
                                      const void *got, const void *want, const void *most) {
    const ct_type *type = &node->out[out];
    ct_dtype dtype = type->dtype;
    if (!ct__is_float(dtype)) return ct__check_same(type, got, want);
    ct_check_difference d = {0};
    float_limits limits = check_value_float_limits(dtype);
    // Sums of narrow floats are computed in f32 and rounded once, unless partial sums are stored in memory.
    bool single_rounding = !node->op->kind->rounds_each;
    double ulps = check_value_tolerance_ulps(node);
    float_limits step_limits =
        single_rounding && ct__is_narrow_float(dtype) ? check_value_float_limits(CT_F32) : limits;
    double final_rounding = ulps > 0 && step_limits.eps < limits.eps;
    int64_t n = ct__count(type);
    for (int64_t i = 0; i < n; i++) {
        double g = ct__load_f64(dtype, got, i), w = ct__load_f64(dtype, want, i);
        double size = most ? ct__load_f64(dtype, most, i) : fabs(w);
        // If partial sums may exceed the largest number, the result depends on their order.
        if (most && !(size < step_limits.largest / 4) && isfinite(g) == isfinite(w)) continue;
        if (most && isinf(size) && (!isfinite(g) || !isfinite(w))) continue;
        double allowed =
            ulps * step_limits.eps * fmax(isfinite(size) ? size : 0, step_limits.tiny) +
            final_rounding * limits.eps * fmax(isfinite(w) ? fabs(w) : 0, limits.tiny);
        if (check_value_near(g, w, allowed, limits.largest) ||
            check_value_is_unspecified(node, in, i))
            continue;
        if (++d.count == 1) d.at = i, d.allowed = allowed;
    }
    return d;
}

// ---------------------------------------------------------------------------------------- messages

void ct__check_write_value(ct_text *text, const ct_type *type, const void *bytes, int64_t at) {
    if (ct__is_complex(type->dtype)) {
        real_view parts;
        check_value_as_floats(type, &parts);
        ct__check_write_value(text, &parts.type, bytes, 2 * at);
        ct__text_add(text, " + i ");
        return ct__check_write_value(text, &parts.type, bytes, 2 * at + 1);
    }
    if (ct__is_float(type->dtype))
        ct__textf(text, type->dtype == CT_F64 ? "%.17g" : "%.9g",
                  ct__load_f64(type->dtype, bytes, at));
    else
        ct__text_add(text, ct__int_text(type->dtype, ct__load_i64(type->dtype, bytes, at)).s);
}

void ct__check_write_nonfinite(ct_text *text, const ct_type *type, ct_check_nonfinite bad) {
    bool both = bad.nan && bad.infinite;
    if (bad.nan) ct__textf(text, "%lld NaN", (long long)bad.nan);
    if (bad.infinite)
        ct__textf(text, "%s%lld infinite", both ? " and " : "", (long long)bad.infinite);
    ct__textf(text, " of %lld (first at ", (long long)ct__count(type));
    ct__print_index(text, type, bad.at);
    ct__text_add(text, ")");
}

void ct__check_write_difference(ct_text *text, const ct_type *type, int64_t at, const void *got,
                                const void *want) {
    ct__print_index(text, type, at);
    ct__text_add(text, ": ");
    ct__check_write_value(text, type, got, at);
    ct__text_add(text, " instead of ");
    ct__check_write_value(text, type, want, at);
}

static void check_value_write_input(ct_text *text, const ct_type *type, const void *bytes) {
    int64_t n = ct__count(type), low = -1, high = -1;
    ct_check_nonfinite bad = ct__check_count_nonfinite(type, bytes);
    ct__textf(text, "%s", ct__type_text(type).s);
    for (int64_t i = 0; i < n; i++) { // i64 is exact in double for the values that matter here
        double x = ct__load_f64(type->dtype, bytes, i);
        if (!isfinite(x)) continue;
        if (low < 0 || x < ct__load_f64(type->dtype, bytes, low)) low = i;
        if (high < 0 || x > ct__load_f64(type->dtype, bytes, high)) high = i;
    }
    if (low >= 0 && n == 1) {
        ct__textf(text, " = %g", ct__load_f64(type->dtype, bytes, 0));
    } else if (low >= 0) {
        ct__textf(text, " in [%g, %g]", ct__load_f64(type->dtype, bytes, low),
                  ct__load_f64(type->dtype, bytes, high));
    }
    if (bad.nan) ct__textf(text, " with %lld NaN", (long long)bad.nan);
    if (bad.infinite)
        ct__textf(text, " %s %lld infinite", bad.nan ? "and" : "with", (long long)bad.infinite);
}

void ct__check_write_inputs(ct_text *text, const ct_node *node, void *const *in) {
    int shown = node->n_in <= CHECK_VALUE_MAX_INPUTS ? node->n_in : CHECK_VALUE_MAX_INPUTS;
    if (shown == 0) return;
    ct__text_add(text, node->n_in == 1 ? ": input " : ": inputs ");
    for (int k = 0; k < shown; k++) {
        if (k) ct__text_add(text, k + 1 == node->n_in ? " and " : ", ");
        check_value_write_input(text, check_value_operand_type(node, k), in[k]);
    }
    if (shown < node->n_in) ct__textf(text, " and %d more", node->n_in - shown);
}

void ct__check_write_out_of_range(ct_text *text, const ct_node *node, void *const *in) {
    int positions = node->op->kind->positions;
    const ct_type *type = check_value_operand_type(node, positions);
    int64_t n = check_value_operand_type(node, 0)->dim[ct__along(node).axis],
            count = ct__count(type), i = 0;
    while (i < count) {
        int64_t index = ct__load_i64(type->dtype, in[positions], i);
        if (index < 0 || index >= n) break;
        i++;
    }
    if (i == count) return;
    ct__text_add(text, "; index ");
    ct__check_write_value(text, type, in[positions], i);
    ct__text_add(text, " at ");
    ct__print_index(text, type, i);
    ct__textf(text, " is outside 0 to %lld", (long long)n - 1);
}
