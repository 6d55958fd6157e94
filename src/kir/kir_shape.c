// Analyses which values differ between the iterations of a LANES loop, and how; contiguous loads depend on
// it. Indices are followed through +, -, * and through / and % by constants.
#include "base/number.h"
#include "kir/kir.h"

static int64_t shape_multiply_align(int64_t a, int64_t b) {
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return 1;
    return r == INT64_MIN ? 1 : r < 0 ? -r : r;
}

static const ct_kshape shape_uniform = {CT_UNIFORM, false, 0, 1},
                       shape_varying = {CT_VARYING, false, 0, 1};

static ct_kshape shape_affine(int64_t stride, int64_t align, bool nonneg) {
    return (ct_kshape){stride ? CT_AFFINE : CT_UNIFORM, nonneg, stride, align};
}

// v / c and v % c of an affine v stay affine if no group of lanes crosses a multiple of c, or if the stride
// is a multiple of c. C's division truncates, so v must not be negative.
static ct_kshape shape_divide(ct_kop op, ct_kshape v, int64_t c, int64_t lanes) {
    if (c <= 0) return v.vary == CT_UNIFORM ? shape_uniform : shape_varying;
    bool div = op == CT_K_DIV;
    int64_t align = !div ? ct__gcd(v.align, c) : v.align % c == 0 ? v.align / c : 1;
    if (v.vary == CT_UNIFORM) return shape_affine(0, align, v.nonneg);
    if (v.vary != CT_AFFINE || !v.nonneg || v.stride <= 0) return shape_varying;
    if (v.stride % c == 0)
        return div ? shape_affine(v.stride / c, align, true) : shape_affine(0, align, true);
    int64_t group = shape_multiply_align(v.stride, lanes);
    if (group > 1 && c % group == 0 && v.align % group == 0)
        return div ? shape_affine(0, align, true) : shape_affine(v.stride, align, true);
    return shape_varying;
}

static ct_kshape shape_multiply(const ct_kir *k, const ct_kins *ins, ct_kshape a, ct_kshape b) {
    int64_t c = 0, stride = 0;
    bool cb = ct__kir_is_int(k, ins->b, &c), ca = !cb && ct__kir_is_int(k, ins->a, &c);
    ct_kshape v = cb ? a : b;
    int64_t align = shape_multiply_align(a.align, b.align);
    if (a.vary == CT_UNIFORM && b.vary == CT_UNIFORM)
        return shape_affine(0, align, a.nonneg && b.nonneg);
    if ((!ca && !cb) || v.vary != CT_AFFINE || __builtin_mul_overflow(v.stride, c, &stride))
        return shape_varying;
    return shape_affine(stride, align, a.nonneg && b.nonneg);
}

static ct_kshape shape_index_op(const ct_kir *k, const ct_kins *ins, ct_kshape a, ct_kshape b,
                                int64_t lanes) {
    bool both = a.nonneg && b.nonneg;
    int64_t c = 0, stride = 0;
    if (a.vary == CT_VARYING || b.vary == CT_VARYING) return shape_varying;
    switch (ins->op) {
    case CT_K_ADD:
        if (__builtin_add_overflow(a.stride, b.stride, &stride)) return shape_varying;
        return shape_affine(stride, ct__gcd(a.align, b.align), both);
    case CT_K_SUB:
        if (__builtin_sub_overflow(a.stride, b.stride, &stride)) return shape_varying;
        return shape_affine(stride, ct__gcd(a.align, b.align), false);
    case CT_K_MUL: return shape_multiply(k, ins, a, b);
    case CT_K_DIV:
    case CT_K_MOD:
        if (ct__kir_is_int(k, ins->b, &c)) return shape_divide(ins->op, a, c, lanes);
        if (a.vary || b.vary) break;
        // the sign of the dividend
        return shape_affine(0, 1, a.nonneg && (b.nonneg || ins->op == CT_K_MOD));
    case CT_K_MIN:
    case CT_K_MAX:
        if (a.vary || b.vary) break;
        return shape_affine(0, ct__gcd(a.align, b.align),
                            both || (ins->op == CT_K_MAX && (a.nonneg || b.nonneg)));
    default: break;
    }
    return a.vary || b.vary ? shape_varying : shape_uniform;
}

static ct_kshape shape_of_instruction(const ct_kir *k, int64_t lanes, const ct_kshape *s,
                                      size_t i) {
    const ct_kins *ins = &k->ins[i];
    int64_t c = 0;
    switch (ins->op) {
    case CT_K_CONST:
        if (ct__kir_is_int(k, (ct_kval)i, &c))
            return shape_affine(0, c == INT64_MIN ? 1 : c < 0 ? -c : c, c >= 0);
        return shape_uniform;
    case CT_K_LOOP:
        if (ins->sub == CT_BIND_LANES || ins->sub == CT_BIND_TILE)
            return shape_affine(1, lanes, true);
        return shape_affine(0, 1, true);
    case CT_K_IOTA: return shape_affine(1, 0, true);
    case CT_K_PARAM: return ins->lanes == CT_LANES ? shape_varying : shape_uniform;
    case CT_K_VLOAD:
    case CT_K_ZIP: return shape_varying;
    case CT_K_FOLD: return shape_uniform;
    case CT_K_SPLAT: return s[ins->a];
    case CT_K_REG:
        return s[i].vary || s[ins->a].vary || ins->lanes > 1 ? shape_varying : shape_uniform;
    case CT_K_REDUCE:
        if (k->ins[ins->in].sub == CT_BIND_LANES || !s[ins->a].vary) return shape_uniform;
        return shape_varying;
    default: break;
    }
    if (ins->dtype == CT_I64 && ins->op >= CT_K_ADD && ins->op <= CT_K_MAX)
        return shape_index_op(k, ins, s[ins->a], s[ins->b], lanes);
    bool vary = (ins->a >= 0 && s[ins->a].vary) || (ins->b >= 0 && s[ins->b].vary) ||
                (ins->c >= 0 && s[ins->c].vary);
    return vary ? shape_varying : shape_uniform;
}

void ct__kir_shapes(const ct_kir *k, int64_t lanes, ct_kshape *s) {
    for (size_t i = 0; i < k->n; i++) s[i] = shape_uniform;
    // A register is varying if a varying value is SET anywhere, which affects GETs above it in the next
    // round; each round makes at least one more register varying, so that it ends.
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < k->n; i++) {
            s[i] = shape_of_instruction(k, lanes, s, i);
            const ct_kins *ins = &k->ins[i];
            if (ins->op != CT_K_SET || !s[ins->b].vary || s[ins->a].vary) continue;
            s[ins->a] = shape_varying;
            changed = true;
        }
    }
}
