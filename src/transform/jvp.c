// Forward mode: computes tangents of everything between some values and outputs, by the ops' jvp rules.
#include "ops/rules.h"
#include "transform/transform.h"

typedef struct {
    ct_ctx *ctx;
    ct_loc here;
    ct_arena scratch;
    ct_nodes nodes;
    ct_tensor **tangent; // for each node, an array for its outputs; NULL: none
} forward;

// True if a composition is differentiated by its own rule. One without a rule, or one that rounds internally,
// is differentiated through its body.
static bool jvp_has_rule(const ct_node *node) {
    return node->op->jvp == CT_NO_GRAD || (node->op->jvp && !ct__is_widened(node));
}

ct_tensor ct__tangent_like(ct_tensor t, const ct_type *type) {
    ct_dims_buffer dims;
    if (ct__is_none(t)) return t;
    if (!ct__same_shape(ct__type_of(t), type)) t = ct_expand(t, ct__type_dims(type, &dims));
    return ct__type_of(t)->dtype == type->dtype ? t : ct_cast(t, (ct_dtype)type->dtype);
}

ct_rule ct__rule_of(ct_arena *arena, ct_node *node) {
    ct_tensor *in = ct__arena(arena, (node->n_in + node->n_out + 1u) * sizeof *in);
    if (!in) return (ct_rule){0};
    ct_tensor *out = in + node->n_in;
    for (int k = 0; k < node->n_in; k++) in[k] = ct__handle_of(node->in[k]);
    for (int k = 0; k < node->n_out; k++) out[k] = ct__handle(node, (uint32_t)k);
    return (ct_rule){.node = node,
                     .attrs = node->attrs,
                     .n_in = node->n_in,
                     .n_out = node->n_out,
                     .in = in,
                     .out = out};
}

static bool jvp_apply_rule(forward *f, ct_node *node, const ct_tensor *t_in, ct_tensor *t_out) {
    ct_rule r = ct__rule_of(&f->scratch, node);
    if (!r.in) return false;
    if (!node->op->jvp)
        return ct__refuse(f->ctx, CT_E_GRAD, node->here, node->op->name, "it has no forward mode");
    r.t_in = t_in;
    r.t_out = t_out;
    const ct_node *before = ct__top(f->ctx)->nodes;
    if (!node->op->jvp(&r)) return false;
    for (int k = 0; k < node->n_out; k++) t_out[k] = ct__tangent_like(t_out[k], &node->out[k]);
    ct__give_line(f->ctx, before, node->here);
    return !f->ctx->err.code;
}

static bool jvp_push_node(forward *f, size_t i) {
    ct_node *node = f->nodes.v[i];
    bool is_active = false;
    ct_tensor *t_in = ct__arena_zero(&f->scratch, (node->n_in + 1u) * sizeof *t_in);
    if (!t_in) return false;
    for (int k = 0; k < node->n_in; k++) {
        const ct_tensor *of = f->tangent[node->in[k].node->index];
        if (of) t_in[k] = of[node->in[k].out];
        is_active = is_active || !ct__is_none(t_in[k]);
    }
    if (!is_active) return true;
    ct_tensor *t_out = ct__arena_zero(&f->scratch, node->n_out * sizeof *t_out);
    if (!t_out || !jvp_apply_rule(f, node, t_in, t_out)) return false;
    // Some outputs of the node may be among the values whose tangents are given.
    for (int k = 0; f->tangent[i] && k < node->n_out; k++)
        if (!ct__is_none(f->tangent[i][k])) t_out[k] = f->tangent[i][k];
    f->tangent[i] = t_out;
    return true;
}

static bool jvp_seed(forward *f, const ct_val *wrt, const ct_tensor *tangents, size_t n) {
    f->tangent = ct__arena_zero(&f->scratch, (f->nodes.n + 1) * sizeof *f->tangent);
    for (size_t i = 0; f->tangent && i < n; i++) {
        ct_tensor **of = &f->tangent[wrt[i].node->index];
        if (!*of) *of = ct__arena_zero(&f->scratch, wrt[i].node->n_out * sizeof **of);
        if (!*of) return false;
        (*of)[wrt[i].out] = tangents[i];
    }
    return f->tangent != NULL;
}

bool ct__jvp_expand(ct_ctx *ctx, ct_loc here, const ct_val *outs, size_t n_outs, const ct_val *wrt,
                    const ct_tensor *tangents, size_t n, ct_tensor *out_tangents) {
    forward f = {.ctx = ctx, .here = here};
    ct_val *vals = ct__arena(&f.scratch, (n_outs + n + 1) * sizeof *vals);
    bool ok = vals != NULL;
    for (size_t i = 0; i < n_outs && ok; i++) vals[i] = outs[i];
    for (size_t i = 0; i < n && ok; i++) vals[n_outs + i] = wrt[i];
    ok = ok && ct__expand_bodies(ctx, vals, n_outs, n, jvp_has_rule) &&
         ct__reach_to(&f.nodes, vals, n_outs, wrt, n, &ctx->err) && jvp_seed(&f, wrt, tangents, n);
    for (size_t i = f.nodes.n_ends; i < f.nodes.n && ok; i++) ok = jvp_push_node(&f, i);
    for (size_t i = 0; i < n_outs && ok; i++) {
        const ct_tensor *of = f.tangent[vals[i].node->index];
        out_tangents[i] = of ? of[vals[i].out] : CT_NONE;
    }
    // if no error was recorded yet
    if (!ok) ct__err_memory(&ctx->err, here, "jvp", n_outs * sizeof *vals);
    ct__nodes_free(&f.nodes);
    ct__arena_free(&f.scratch);
    return ok && !ctx->err.code;
}
