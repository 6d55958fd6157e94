// Recognises attention that a program writes as matrix products and a softmax: matmul(softmax(f(matmul(q,
// k'))), v), where f is any chain of multiplications by a scalar, additions, and replacements by a scalar
// where a mask hides a key; the softmax may be followed by dropout. If no other node uses an intermediate
// value, it is replaced by the op, with that op's memory, speed and bits.
#include "ops/rules.h"

#include "ops/attention.h"

enum { MAX_STEPS = 8 };

typedef struct pattern {
    const ct_match *m;
    const ct_node *product; // of queries and keys
    const ct_type *scores;
    ct_val scale[MAX_STEPS], bias[MAX_STEPS];
    bool divides[MAX_STEPS], minus[MAX_STEPS];
    int n_scales, n_biases;
    int scaled_by[MAX_STEPS]; // for each bias: the number of scales that follow it
    ct_val mask, fill;
    bool mask_is_visible; // the mask is true where a query may attend
} pattern;

static bool pattern_is_scalar(ct_val v) {
    const ct_type *type = ct__type(v);
    return type->dyn == 0 && ct__count(type) == 1;
}
static bool pattern_is_scores(const pattern *p, ct_val v) {
    const ct_type *type = ct__type(v);
    return type->dtype == p->scores->dtype && ct__same_shape(type, p->scores);
}
static bool pattern_broadcasts(const pattern *p, ct_val v) {
    return ct__attention_mask_fits(ct__type(v), p->scores);
}

static bool pattern_match(pattern *p, ct_val v);

static bool pattern_match_scaled(pattern *p, ct_val v, ct_val by, bool divides) {
    if (!pattern_is_scalar(by) || p->n_scales == MAX_STEPS) return false;
    p->scale[p->n_scales] = by;
    p->divides[p->n_scales++] = divides;
    return pattern_match(p, v) || (p->n_scales--, false);
}
static bool pattern_match_summed(pattern *p, ct_val v, ct_val bias, bool minus) {
    if (!pattern_is_scores(p, v) || !pattern_broadcasts(p, bias) || p->n_biases == MAX_STEPS)
        return false;
    p->bias[p->n_biases] = bias;
    p->scaled_by[p->n_biases] = p->n_scales;
    p->minus[p->n_biases++] = minus;
    return pattern_match(p, v) || (p->n_biases--, false);
}
// An operation after a mask would change the fill value, so the mask must be last.
static bool pattern_match_masked(pattern *p, const ct_node *select) {
    const int fill = pattern_is_scalar(select->in[1]) ? 1 : 2;
    if (p->mask.node || p->n_scales || p->n_biases || !pattern_is_scalar(select->in[fill]) ||
        !pattern_broadcasts(p, select->in[0]))
        return false;
    p->mask = select->in[0];
    p->fill = select->in[fill];
    p->mask_is_visible = fill == 2;
    return pattern_match(p, select->in[3 - fill]);
}

// Matches v back to a product of queries and keys. Notes the operations on the way.
static bool pattern_match(pattern *p, ct_val v) {
    const ct_node *node = v.node;
    const ct_opdef *op = node->op;
    const ct_val *in = node->in;
    if (!p->m->is_alone(p->m->env, v) || !pattern_is_scores(p, v)) return false;
    if (op == &ct__op_matmul) {
        p->product = node;
        return true;
    }
    if (op == &ct__op_select) return pattern_match_masked(p, node);
    if (op == &ct__op_mul)
        return pattern_match_scaled(p, in[0], in[1], false) ||
               pattern_match_scaled(p, in[1], in[0], false);
    if (op == &ct__op_div) return pattern_match_scaled(p, in[0], in[1], true);
    if (op == &ct__op_add)
        return pattern_match_summed(p, in[0], in[1], false) ||
               pattern_match_summed(p, in[1], in[0], false);
    if (op == &ct__op_sub) return pattern_match_summed(p, in[0], in[1], true);
    return false;
}

// --------------------------------------------------------------------------------- the replacement

static ct_tensor pattern_operand(const pattern *p, ct_val v) { return p->m->operand(p->m->env, v); }
static ct_tensor pattern_scalar(const pattern *p, ct_val v) {
    ct_tensor t = ct_reshape(pattern_operand(p, v), CT_SCALAR);
    const ct_dtype dtype = (ct_dtype)p->scores->dtype;
    return ct__type_of(t)->dtype == dtype ? t : ct_cast(t, dtype);
}
static ct_tensor pattern_record_scaled(const pattern *p, ct_tensor t, int n) {
    for (int i = 0; i < n; i++)
        t = p->divides[i] ? ct_div(t, pattern_scalar(p, p->scale[i]))
                          : ct_mul(t, pattern_scalar(p, p->scale[i]));
    return t;
}
static ct_tensor pattern_record_bias(const pattern *p) {
    ct_tensor all = CT_NONE;
    for (int i = 0; i < p->n_biases; i++) {
        ct_tensor own = pattern_operand(p, p->bias[i]);
        const ct_dtype dtype = (ct_dtype)p->scores->dtype;
        own = pattern_record_scaled(p, ct__type_of(own)->dtype == dtype ? own : ct_cast(own, dtype),
                                    p->scaled_by[i]);
        if (p->minus[i]) own = ct_neg(own);
        all = ct__is_none(all) ? own : ct_add(all, own);
    }
    return all;
}

// Matches a product of probabilities and values.
ct_tensor ct__match_attention(const ct_match *m) {
    const ct_node *node = m->node, *drop = NULL;
    ct_val p_of = node->in[0];
    const ct_type *v = ct__type(node->in[1]);
    bool masked_zero;
    if (p_of.node->op == &ct__op_dropout && m->is_alone(m->env, p_of)) {
        drop = p_of.node;
        p_of = drop->in[0];
    }
    if (!ct__is_softmax_of_last(p_of.node, &masked_zero) || !m->is_alone(m->env, p_of))
        return CT_NONE;
    pattern p = {.m = m, .scores = ct__type(p_of)};
    if (!(CT_FLOATS & CT_MASK(p.scores->dtype)) || !pattern_match(&p, p_of.node->in[0]))
        return CT_NONE;
    ct_val q_of = p.product->in[0], k_of = p.product->in[1];
    const ct_type *q = ct__type(q_of), *k = ct__type(k_of);
    if (q->dtype != p.scores->dtype || k->dtype != q->dtype || v->dtype != q->dtype ||
        !ct__attention_fits(q, k, v))
        return CT_NONE;
    ct_tensor mask = CT_NONE, fill = CT_NONE, keep = CT_NONE;
    if (p.mask.node) {
        mask =
            p.mask_is_visible ? pattern_operand(&p, p.mask) : ct_not(pattern_operand(&p, p.mask));
        fill = pattern_scalar(&p, p.fill);
    }
    if (drop) {
        ct_dims_buffer dims;
        ct_tensor one = ct_cast(ct_f(1), (ct_dtype)p.scores->dtype);
        keep =
            ct_dropout(ct_expand(one, ct__type_dims(ct__type_of(pattern_operand(&p, p_of)), &dims)),
                       pattern_operand(&p, drop->in[1]), pattern_operand(&p, drop->in[2]));
    }
    return ct_attention_with(
        (ct_attention_args){.q = pattern_record_scaled(&p, pattern_operand(&p, q_of), p.n_scales),
                            .k = ct__swap_last(pattern_operand(&p, k_of)),
                            .v = pattern_operand(&p, node->in[1]),
                            .mask = mask,
                            .fill = fill,
                            .bias = pattern_record_bias(&p),
                            .keep = keep,
                            .scale = CT_F(1),
                            .masked_nan = !masked_zero,
                            .here = node->here});
}
