// What is said about values, and how near they must be.
#include <math.h>
#include <string.h>

#include "compile/check/check.h"
#include "kinds/kind.h"

enum { MOST_INPUTS_SAID = 4 };

// Complex numbers as twice as many floats.
typedef struct {
    int64_t n;
    ct_type type;
} floats;
static const ct_type *as_floats(const ct_type *type, floats *to) {
    to->n = 2 * ct__count(type);
    to->type = (ct_type){.dtype = (uint8_t)ct__part(type->dtype), .rank = 1, .dim = &to->n};
    return &to->type;
}

ct_check_bad ct__check_bad(const ct_type *type, const void *bytes) {
    ct_check_bad bad = {0};
    if (ct__is_complex(type->dtype)) {
        floats parts;
        bad = ct__check_bad(as_floats(type, &parts), bytes);
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

// ---------------------------------------------------------------------------------------- how near

static const ct_type *operand(const ct_node *node, int k) { return ct__type(node->in[k]); }

static double roundings(const ct_node *node, bool in_order) {
    return node->op->kind->roundings ? node->op->kind->roundings(node, in_order) : 0;
}
bool ct__check_rounds(const ct_node *node) { return roundings(node, false) > 0; }

// Units in the last place by which an element may differ from the reference. Of a chain of rounded
// additions (docs/design/bits.md) each errs by half a unit of what the sum may have reached, at
// most; in f64 so do those of the reference.
static double units(const ct_node *node) {
    bool wide = node->out->dtype == CT_F64;
    if (ct__check_rounds(node))
        return 2 + roundings(node, false) / 2 + (wide ? roundings(node, true) / 2 : 0);
    double ulp = node->op->samples.ulp;
    return ulp == 0 ? 0 : (wide ? 4 * ulp : 2 * ulp) + 1;
}

// Of a float: the distance from 1 to the next number, the least normal number, the largest one.
typedef struct {
    double eps, tiny, largest;
} grain;
static grain grain_of(ct_dtype dtype) {
    return (grain){ldexp(1, -ct__dtype(dtype)->mantissa), ct__float_min_normal(dtype),
                   ct__float_max(dtype)};
}

// Of 4 bits, the bytes that hold two.
static bool same_bits(const ct_type *type, const void *got, const void *want, int64_t i) {
    size_t size = ct_dtype_size(type->dtype), at = (size_t)i * size;
    if (size == 0) size = 1, at = (size_t)i / 2;
    return memcmp((const char *)got + at, (const char *)want + at, size) == 0;
}

ct_check_difference ct__check_same(const ct_type *type, const void *got, const void *want) {
    ct_check_difference d = {0};
    if (ct__is_complex(type->dtype)) {
        floats parts;
        d = ct__check_same(as_floats(type, &parts), got, want);
        d.at /= 2;
        return d;
    }
    int64_t n = ct__count(type);
    bool is_float = ct__is_float(type->dtype);
    for (int64_t i = 0; i < n; i++) {
        if (same_bits(type, got, want, i)) continue;
        if (is_float && isnan(ct__load_f64(type->dtype, got, i)) &&
            isnan(ct__load_f64(type->dtype, want, i)))
            continue;
        if (++d.count == 1) d.at = i;
    }
    return d;
}

static bool near(double got, double want, double allowed, double largest) {
    if (isnan(got) && isnan(want)) return true;
    if (got == want) return allowed > 0 || signbit(got) == signbit(want);
    if (isnan(got) || isnan(want)) return false;
    if (isinf(got) || isinf(want)) // a step over the largest number is a step like others
        return allowed > 0 && got * want > 0 && fmin(fabs(got), fabs(want)) >= largest * 0.999;
    return fabs(got - want) <= allowed;
}

// May element i be what it likes, by an operand for which nothing is promised?
static bool is_free(const ct_node *node, void *const *in, int64_t i) {
    double largest = node->op->samples.largest;
    return largest > 0 && fabs(ct__load_f64(operand(node, 0)->dtype, in[0], i)) >= largest;
}

ct_check_difference ct__check_compare(const ct_node *node, uint32_t out, void *const *in,
                                      const void *got, const void *want, const void *most) {
    const ct_type *type = &node->out[out];
    ct_dtype dtype = type->dtype;
    if (!ct__is_float(dtype)) return ct__check_same(type, got, want);
    ct_check_difference d = {0};
    grain own = grain_of(dtype);
    // Sums of narrow floats are those of f32, rounded once; what is added in memory is not.
    bool once = !node->op->kind->rounds_each;
    double by = units(node);
    grain each = once && ct__is_narrow_float(dtype) ? grain_of(CT_F32) : own;
    double last = by > 0 && each.eps < own.eps;
    int64_t n = ct__count(type);
    for (int64_t i = 0; i < n; i++) {
        double g = ct__load_f64(dtype, got, i), w = ct__load_f64(dtype, want, i);
        double size = most ? ct__load_f64(dtype, most, i) : fabs(w);
        // Sums that may have passed the largest number on the way: what they become depends on
        // their order.
        if (most && !(size < each.largest / 4) && isfinite(g) == isfinite(w)) continue;
        if (most && isinf(size) && (!isfinite(g) || !isfinite(w))) continue;
        double allowed = by * each.eps * fmax(isfinite(size) ? size : 0, each.tiny) +
                         last * own.eps * fmax(isfinite(w) ? fabs(w) : 0, own.tiny);
        if (near(g, w, allowed, own.largest) || is_free(node, in, i)) continue;
        if (++d.count == 1) d.at = i, d.allowed = allowed;
    }
    return d;
}

// ---------------------------------------------------------------------------------------- in words

void ct__check_say_value(ct_text *text, const ct_type *type, const void *bytes, int64_t at) {
    if (ct__is_complex(type->dtype)) {
        floats parts;
        as_floats(type, &parts);
        ct__check_say_value(text, &parts.type, bytes, 2 * at);
        ct__text_add(text, " + i ");
        return ct__check_say_value(text, &parts.type, bytes, 2 * at + 1);
    }
    if (ct__is_float(type->dtype))
        ct__textf(text, type->dtype == CT_F64 ? "%.17g" : "%.9g",
                  ct__load_f64(type->dtype, bytes, at));
    else
        ct__text_add(text, ct__int_text(type->dtype, ct__load_i64(type->dtype, bytes, at)).s);
}

void ct__check_say_bad(ct_text *text, const ct_type *type, ct_check_bad bad) {
    bool both = bad.nan && bad.infinite;
    if (bad.nan) ct__textf(text, "%lld NaN", (long long)bad.nan);
    if (bad.infinite)
        ct__textf(text, "%s%lld infinite", both ? " and " : "", (long long)bad.infinite);
    ct__textf(text, " of %lld (first at ", (long long)ct__count(type));
    ct__print_index(text, type, bad.at);
    ct__text_add(text, ")");
}

void ct__check_say_difference(ct_text *text, const ct_type *type, int64_t at, const void *got,
                              const void *want) {
    ct__print_index(text, type, at);
    ct__text_add(text, ": ");
    ct__check_say_value(text, type, got, at);
    ct__text_add(text, " instead of ");
    ct__check_say_value(text, type, want, at);
}

static void say_input(ct_text *text, const ct_type *type, const void *bytes) {
    int64_t n = ct__count(type), low = -1, high = -1;
    ct_check_bad bad = ct__check_bad(type, bytes);
    ct__textf(text, "%s", ct__type_text(type).s);
    for (int64_t i = 0; i < n; i++) { // i64 is exact in double where it matters here
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

void ct__check_say_inputs(ct_text *text, const ct_node *node, void *const *in) {
    int said = node->n_in <= MOST_INPUTS_SAID ? node->n_in : MOST_INPUTS_SAID;
    if (said == 0) return;
    ct__text_add(text, node->n_in == 1 ? ": input " : ": inputs ");
    for (int k = 0; k < said; k++) {
        if (k) ct__text_add(text, k + 1 == node->n_in ? " and " : ", ");
        say_input(text, operand(node, k), in[k]);
    }
    if (said < node->n_in) ct__textf(text, " and %d more", node->n_in - said);
}

void ct__check_say_outside(ct_text *text, const ct_node *node, void *const *in) {
    int positions = node->op->kind->positions;
    const ct_type *type = operand(node, positions);
    int64_t n = operand(node, 0)->dim[ct__along(node).axis], count = ct__count(type), i = 0;
    while (i < count) {
        int64_t place = ct__load_i64(type->dtype, in[positions], i);
        if (place < 0 || place >= n) break;
        i++;
    }
    if (i == count) return;
    ct__text_add(text, "; index ");
    ct__check_say_value(text, type, in[positions], i);
    ct__text_add(text, " at ");
    ct__print_index(text, type, i);
    ct__textf(text, " lies outside 0 to %lld", (long long)n - 1);
}
