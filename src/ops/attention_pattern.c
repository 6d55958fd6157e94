// Attention that a program writes from products and a softmax: matmul(softmax(f(matmul(q, k'))), v), f being any chain
// of multiplying by a number, adding, and putting a number where a mask hides a key; dropout may stand behind the
// softmax. Where nobody else reads a value in between, it is the op, and has that op's memory, speed and bits.
#include "ops/rules.h"

#include "ops/attention.h"

enum { MOST = 8 };

typedef struct pattern {
    const ct_match *m;
    const ct_node *product; // of queries and keys
    const ct_type *scores;
    ct_val scale[MOST], bias[MOST];
    bool divides[MOST], minus[MOST];
    int n_scales, n_biases;
    int scaled_by[MOST]; // of each bias: how many scales follow it
    ct_val mask, fill;
    bool shows; // the mask is true where a query may look
} pattern;

static bool is_one_number(ct_val v) {
    const ct_type *type = ct__type(v);
    return type->dyn == 0 && ct__count(type) == 1;
}
static bool is_scores(const pattern *p, ct_val v) {
    const ct_type *type = ct__type(v);
    return type->dtype == p->scores->dtype && ct__same_shape(type, p->scores);
}
static bool spreads(const pattern *p, ct_val v) {
    return ct__attention_mask_fits(ct__type(v), p->scores);
}

static bool find(pattern *p, ct_val v);

static bool find_scaled(pattern *p, ct_val v, ct_val by, bool divides) {
    if (!is_one_number(by) || p->n_scales == MOST) return false;
    p->scale[p->n_scales] = by;
    p->divides[p->n_scales++] = divides;
    return find(p, v) || (p->n_scales--, false);
}
static bool find_summed(pattern *p, ct_val v, ct_val bias, bool minus) {
    if (!is_scores(p, v) || !spreads(p, bias) || p->n_biases == MOST) return false;
    p->bias[p->n_biases] = bias;
    p->scaled_by[p->n_biases] = p->n_scales;
    p->minus[p->n_biases++] = minus;
    return find(p, v) || (p->n_biases--, false);
}
// What follows a mask would change what it puts, so it comes last.
static bool find_masked(pattern *p, const ct_node *select) {
    const int fill = is_one_number(select->in[1]) ? 1 : 2;
    if (p->mask.node || p->n_scales || p->n_biases || !is_one_number(select->in[fill]) ||
        !spreads(p, select->in[0]))
        return false;
    p->mask = select->in[0];
    p->fill = select->in[fill];
    p->shows = fill == 2;
    return find(p, select->in[3 - fill]);
}

// Does v come from a product of queries and keys? Notes what lies on the way.
static bool find(pattern *p, ct_val v) {
    const ct_node *node = v.node;
    const ct_opdef *op = node->op;
    const ct_val *in = node->in;
    if (!p->m->is_alone(p->m->env, v) || !is_scores(p, v)) return false;
    if (op == &ct__op_matmul) {
        p->product = node;
        return true;
    }
    if (op == &ct__op_select) return find_masked(p, node);
    if (op == &ct__op_mul)
        return find_scaled(p, in[0], in[1], false) || find_scaled(p, in[1], in[0], false);
    if (op == &ct__op_div) return find_scaled(p, in[0], in[1], true);
    if (op == &ct__op_add)
        return find_summed(p, in[0], in[1], false) || find_summed(p, in[1], in[0], false);
    if (op == &ct__op_sub) return find_summed(p, in[0], in[1], true);
    return false;
}

// ------------------------------------------------------------------------------------- what stands for it

static ct_tensor operand(const pattern *p, ct_val v) { return p->m->operand(p->m->env, v); }
static ct_tensor as_number(const pattern *p, ct_val v) {
    ct_tensor t = ct_reshape(operand(p, v), CT_SCALAR);
    const ct_dtype dtype = (ct_dtype)p->scores->dtype;
    return ct__type_of(t)->dtype == dtype ? t : ct_cast(t, dtype);
}
static ct_tensor scaled(const pattern *p, ct_tensor t, int n) {
    for (int i = 0; i < n; i++)
        t = p->divides[i] ? ct_div(t, as_number(p, p->scale[i]))
                          : ct_mul(t, as_number(p, p->scale[i]));
    return t;
}
static ct_tensor summand(const pattern *p) {
    ct_tensor all = CT_NONE;
    for (int i = 0; i < p->n_biases; i++) {
        ct_tensor own = operand(p, p->bias[i]);
        const ct_dtype dtype = (ct_dtype)p->scores->dtype;
        own = scaled(p, ct__type_of(own)->dtype == dtype ? own : ct_cast(own, dtype),
                     p->scaled_by[i]);
        if (p->minus[i]) own = ct_neg(own);
        all = ct__is_none(all) ? own : ct_add(all, own);
    }
    return all;
}

// Of a product of probabilities and values.
ct_tensor ct__attention_of_product(const ct_match *m) {
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
    if (!(CT_FLOATS & CT_MASK(p.scores->dtype)) || !find(&p, p_of.node->in[0])) return CT_NONE;
    ct_val q_of = p.product->in[0], k_of = p.product->in[1];
    const ct_type *q = ct__type(q_of), *k = ct__type(k_of);
    if (q->dtype != p.scores->dtype || k->dtype != q->dtype || v->dtype != q->dtype ||
        !ct__attention_fits(q, k, v))
        return CT_NONE;
    ct_tensor mask = CT_NONE, fill = CT_NONE, keep = CT_NONE;
    if (p.mask.node) {
        mask = p.shows ? operand(&p, p.mask) : ct_not(operand(&p, p.mask));
        fill = as_number(&p, p.fill);
    }
    if (drop) {
        ct_dims_buffer dims;
        ct_tensor one = ct_cast(ct_f(1), (ct_dtype)p.scores->dtype);
        keep = ct_dropout(ct_expand(one, ct__type_dims(ct__type_of(operand(&p, p_of)), &dims)),
                          operand(&p, drop->in[1]), operand(&p, drop->in[2]));
    }
    return ct_attention_with((ct_attention_args){.q = scaled(&p, operand(&p, q_of), p.n_scales),
                                                 .k = ct__swap_last(operand(&p, k_of)),
                                                 .v = operand(&p, node->in[1]),
                                                 .mask = mask,
                                                 .fill = fill,
                                                 .bias = summand(&p),
                                                 .keep = keep,
                                                 .scale = CT_F(1),
                                                 .masked_nan = !masked_zero,
                                                 .here = node->here});
}
