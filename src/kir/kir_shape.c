// Which values differ between the iterations of a LANES loop, and how: the analysis behind
// contiguous loads. Indices are followed through +, -, * and through / and % by constants.
#include "base/number.h"
#include "kir/kir.h"

static int64_t times(int64_t a, int64_t b) {
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return 1;
    return r == INT64_MIN ? 1 : r < 0 ? -r : r;
}

static const ct_kshape uniform = {CT_UNIFORM, false, 0, 1}, varying = {CT_VARYING, false, 0, 1};

static ct_kshape affine(int64_t stride, int64_t align, bool nonneg) {
    return (ct_kshape){stride ? CT_AFFINE : CT_UNIFORM, nonneg, stride, align};
}

// v / c and v % c of an affine v stay affine where no group of lanes crosses a multiple of c, or
// where the stride is a multiple of c. C's division truncates, so v must not be negative.
static ct_kshape divided(ct_kop op, ct_kshape v, int64_t c, int64_t lanes) {
    if (c <= 0) return v.vary == CT_UNIFORM ? uniform : varying;
    bool div = op == CT_K_DIV;
    int64_t align = !div ? ct__gcd(v.align, c) : v.align % c == 0 ? v.align / c : 1;
    if (v.vary == CT_UNIFORM) return affine(0, align, v.nonneg);
    if (v.vary != CT_AFFINE || !v.nonneg || v.stride <= 0) return varying;
    if (v.stride % c == 0) return div ? affine(v.stride / c, align, true) : affine(0, align, true);
    int64_t group = times(v.stride, lanes);
    if (group > 1 && c % group == 0 && v.align % group == 0)
        return div ? affine(0, align, true) : affine(v.stride, align, true);
    return varying;
}

static ct_kshape multiplied(const ct_kir *k, const ct_kins *ins, ct_kshape a, ct_kshape b) {
    int64_t c = 0, stride = 0;
    bool cb = ct__kir_is_int(k, ins->b, &c), ca = !cb && ct__kir_is_int(k, ins->a, &c);
    ct_kshape v = cb ? a : b;
    int64_t align = times(a.align, b.align);
    if (a.vary == CT_UNIFORM && b.vary == CT_UNIFORM) return affine(0, align, a.nonneg && b.nonneg);
    if ((!ca && !cb) || v.vary != CT_AFFINE || __builtin_mul_overflow(v.stride, c, &stride))
        return varying;
    return affine(stride, align, a.nonneg && b.nonneg);
}

static ct_kshape index_op(const ct_kir *k, const ct_kins *ins, ct_kshape a, ct_kshape b,
                          int64_t lanes) {
    bool both = a.nonneg && b.nonneg;
    int64_t c = 0, stride = 0;
    if (a.vary == CT_VARYING || b.vary == CT_VARYING) return varying;
    switch (ins->op) {
    case CT_K_ADD:
        if (__builtin_add_overflow(a.stride, b.stride, &stride)) return varying;
        return affine(stride, ct__gcd(a.align, b.align), both);
    case CT_K_SUB:
        if (__builtin_sub_overflow(a.stride, b.stride, &stride)) return varying;
        return affine(stride, ct__gcd(a.align, b.align), false);
    case CT_K_MUL: return multiplied(k, ins, a, b);
    case CT_K_DIV:
    case CT_K_MOD:
        if (ct__kir_is_int(k, ins->b, &c)) return divided(ins->op, a, c, lanes);
        if (a.vary || b.vary) break;
        return affine(0, 1, a.nonneg && (b.nonneg || ins->op == CT_K_MOD)); // the dividend's sign
    case CT_K_MIN:
    case CT_K_MAX:
        if (a.vary || b.vary) break;
        return affine(0, ct__gcd(a.align, b.align),
                      both || (ins->op == CT_K_MAX && (a.nonneg || b.nonneg)));
    default: break;
    }
    return a.vary || b.vary ? varying : uniform;
}

static ct_kshape shape_of(const ct_kir *k, int64_t lanes, const ct_kshape *s, size_t i) {
    const ct_kins *ins = &k->ins[i];
    int64_t c = 0;
    switch (ins->op) {
    case CT_K_CONST:
        if (ct__kir_is_int(k, (ct_kval)i, &c))
            return affine(0, c == INT64_MIN ? 1 : c < 0 ? -c : c, c >= 0);
        return uniform;
    case CT_K_LOOP:
        if (ins->sub == CT_BIND_LANES || ins->sub == CT_BIND_TILE) return affine(1, lanes, true);
        return affine(0, 1, true);
    case CT_K_IOTA: return affine(1, 0, true);
    case CT_K_PARAM: return ins->lanes == CT_LANES ? varying : uniform;
    case CT_K_VLOAD:
    case CT_K_ZIP: return varying;
    case CT_K_FOLD: return uniform;
    case CT_K_SPLAT: return s[ins->a];
    case CT_K_REG: return s[i].vary || s[ins->a].vary || ins->lanes > 1 ? varying : uniform;
    case CT_K_REDUCE:
        if (k->ins[ins->in].sub == CT_BIND_LANES || !s[ins->a].vary) return uniform;
        return varying;
    default: break;
    }
    if (ins->dtype == CT_I64 && ins->op >= CT_K_ADD && ins->op <= CT_K_MAX)
        return index_op(k, ins, s[ins->a], s[ins->b], lanes);
    bool vary = (ins->a >= 0 && s[ins->a].vary) || (ins->b >= 0 && s[ins->b].vary) ||
                (ins->c >= 0 && s[ins->c].vary);
    return vary ? varying : uniform;
}

void ct__kir_shapes(const ct_kir *k, int64_t lanes, ct_kshape *s) {
    for (size_t i = 0; i < k->n; i++) s[i] = uniform;
    // A register is varying if a varying value is SET anywhere, which the GETs above then learn in
    // the next round; each round makes at least one more register varying.
    for (bool again = true; again;) {
        again = false;
        for (size_t i = 0; i < k->n; i++) {
            s[i] = shape_of(k, lanes, s, i);
            const ct_kins *ins = &k->ins[i];
            if (ins->op != CT_K_SET || !s[ins->b].vary || s[ins->a].vary) continue;
            s[ins->a] = varying;
            again = true;
        }
    }
}
