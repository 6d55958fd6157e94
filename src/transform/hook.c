// Gradient hooks of bindings: nodes in histories at which a binding continues a gradient itself. See
// include/cotan/binding.h.
#include <string.h>

#include "cotan/binding.h"
#include "graph/handle.h"
#include "ops/rules.h"
#include "transform/transform.h"

// ------------------------------------------------------------------------------------------- marks

static const ct_field record_hook_fields[] = {
    {"n_values", CT_FIELD_i64, CT_MEANS_i64, offsetof(record_hook_attrs, n_values)}};
static size_t record_hook_value_count(const void *attrs) {
    return (size_t)((const record_hook_attrs *)attrs)->n_values;
}

static bool record_hook_infer(ct_call *call) {
    const size_t n = record_hook_value_count(call->attrs);
    if (!ct__call_outs(call, (int)n)) return false;
    for (size_t i = 0; i < n; i++) call->out[i] = *call->in[i];
    return true;
}
static bool record_hook_body(ct_rule *r) {
    for (int i = 0; i < r->n_out; i++) r->body_out[i] = r->in[i];
    return true;
}
static bool record_hook_jvp(ct_rule *r) {
    for (int i = 0; i < r->n_out; i++) r->t_out[i] = r->t_in[i];
    return true;
}
const ct_opdef ct__op_record_hook = {
    CT_COMPOSED(RECORD_HOOK, record_hook, -1, -1),
    .doc = "The first operands, where a binding has a rule for gradients.",
    CT_FIELDS(record_hook),
    .accepts = CT_ANY,
    .scattered = true,
    .jvp = record_hook_jvp,
};

void ct_record_hook_at(const ct_tensor *value_set, size_t n, const ct_tensor *inputs,
                       size_t n_inputs, void *owner, ct_tensor *out, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    uint32_t first;
    if (!ctx || !ct__possible(ctx, n + n_inputs, here, "record_hook", "the operands") ||
        !ct__given(ctx, out, here, "record_hook", "the array for the results") ||
        !ct__given(ctx, value_set, here, "record_hook", "the list of values") ||
        (n_inputs && !ct__given(ctx, inputs, here, "record_hook", "the list of inputs")))
        return;
    ct_arena scratch = {0};
    ct_tensor *all = ct__arena(&scratch, (n + n_inputs + 1) * sizeof *all), t = CT_NONE;
    const record_hook_attrs attrs = {.n_values = (int64_t)n, .owner = owner};
    if (all) {
        memcpy(all, value_set, n * sizeof *all);
        if (n_inputs) memcpy(all + n, inputs, n_inputs * sizeof *all);
        t = ct__record(&ct__op_record_hook, &attrs, all, (int)(n + n_inputs), here);
    } else {
        ct__err_memory(&ctx->err, here, "record_hook", n * sizeof *all);
    }
    ct__arena_free(&scratch);
    ct_node *node = ct__peek(t, &first);
    if (node && !(node->flags & CT_NODE_POISON)) {
        ((record_hook_attrs *)(uintptr_t)node->attrs)->self = node;
        ctx->n_marks++;
    }
    for (size_t i = 0; i < n; i++) out[i] = t;
    if (node) ct__outputs(t, out, n);
}

void ct__mark_ended(ct_ctx *ctx, const ct_node *node) {
    ctx->n_marks--;
    if (CT_GROW(ctx->ended, ctx->ended_cap, ctx->n_ended + 1)) // else the owner leaks
        ctx->ended[ctx->n_ended++] = ((const record_hook_attrs *)node->attrs)->owner;
}

size_t ct_hook_count(void) {
    const ct_ctx *ctx = ct__ctx();
    return ctx ? ctx->n_marks : 0;
}

size_t ct_ended_hooks(void **owners, size_t capacity) {
    ct_ctx *ctx = ct__ctx();
    size_t n = 0;
    while (ctx && owners && n < capacity && ctx->n_ended) owners[n++] = ctx->ended[--ctx->n_ended];
    return n;
}

// ------------------------------------------------------------------------------------ paired, after

static bool surrogate_loss_infer(ct_call *call) {
    const ct_dtype dtype = (ct_dtype)call->in[0]->dtype, part = ct__part(dtype);
    call->out[0] = (ct_type){.dtype = (uint8_t)(part ? part : dtype)};
    return true;
}
static ct_tensor surrogate_loss_product(ct_tensor t, ct_tensor cotangent) {
    ct_tensor each = ct_mul(t, cotangent);
    if (ct__part(ct_dtype_of(each))) each = ct_real(each);
    return ct_sum(each);
}
static bool surrogate_loss_body(ct_rule *r) {
    return ct__set_body(r, surrogate_loss_product(r->in[0], r->in[1]));
}
static bool surrogate_loss_jvp(ct_rule *r) {
    return ct__set_tangent(
        r, ct__is_none(r->t_in[0]) ? CT_NONE : surrogate_loss_product(r->t_in[0], r->in[1]));
}
const ct_opdef ct__op_surrogate_loss = {
    CT_COMPOSED(SURROGATE_LOSS, surrogate_loss, 2, 1),
    .doc = "The sum of the products with a cotangent, which is constant for gradients.",
    .accepts = CT_ANY,
    .jvp = surrogate_loss_jvp,
};

ct_tensor ct_surrogate_loss_at(ct_tensor t, ct_tensor cotangent, ct_loc here) {
    const ct_tensor in[2] = {t, cotangent};
    return ct__record(&ct__op_surrogate_loss, NULL, in, 2, here);
}

ct_tensor ct_control_dependency_at(ct_tensor t, const ct_tensor *others, size_t n, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (!ct__possible(ctx, n + 1, here, "control_dependency", "the operands") ||
        (n && !ct__given(ctx, others, here, "control_dependency", "the list of operands")))
        return ct__poison(ctx, here);
    CT_ARENA scratch = {0};
    ct_tensor *in = ct__arena(&scratch, (n + 1) * sizeof *in);
    if (in) in[0] = t;
    if (in && n) memcpy(in + 1, others, n * sizeof *in);
    if (!in) ct__err_memory(&ctx->err, here, "control_dependency", n * sizeof *in);
    t = in ? ct__control_dependency(in, (int)n + 1, here) : ct__poison(ctx, here);
    return t;
}

// -------------------------------------------------------------------------------------------- cuts

typedef struct value_set { // each value once
    ct_val *v;
    size_t n, cap;
    uint8_t *met; // by node of the walk: true if its only output is in the set
} value_set;

static bool cut_add_value(value_set *to, ct_val v) {
    if (v.node->n_out == 1) {
        if (to->met[v.node->index]) return true;
        to->met[v.node->index] = 1;
    } else {
        for (size_t i = 0; i < to->n; i++)
            if (to->v[i].node == v.node && to->v[i].out == v.out) return true;
    }
    if (!CT_GROW(to->v, to->cap, to->n + 1)) return false;
    to->v[to->n++] = v;
    return true;
}

typedef struct cut_search {
    ct_nodes list;
    value_set frontier, leaves;
    size_t position;
    // (list.n) by node of the list: leads is 1 if a target is reached from it (without targets, always), and
    // 2 if it is a target; inside is true if it is on the loss side of the cut; ways is scratch
    uint8_t *leads, *inside, *ways;
} cut_search;

static bool cut_is_target(const ct_node *node, const ct_tensor *targets, size_t n_targets) {
    for (size_t i = 0; i < n_targets; i++) {
        const ct_var *var = ct__var_of(targets[i]);
        uint32_t out;
        if (var ? node->var == var : ct__peek(targets[i], &out) == node) return true;
    }
    return !n_targets;
}

static bool cut_find_paths(cut_search *c, const ct_tensor *targets, size_t n_targets) {
    if (!(c->leads = ct__calloc(c->list.n + 1, 1))) return false;
    for (size_t i = 0; i < n_targets; i++) {
        uint32_t out;
        const ct_node *node = ct__peek(targets[i], &out);
        if (node && node->epoch == c->list.epoch && !(node->flags & CT_NODE_VARIABLE))
            c->leads[node->index] = 2;
    }
    for (size_t i = 0; i < c->list.n; i++) {
        const ct_node *node = c->list.v[i];
        if (!(node->flags & CT_NODE_TRACKED)) continue;
        const bool begins = ct__history_begins(node);
        bool leads = !n_targets || (begins && cut_is_target(node, targets, n_targets));
        for (int k = 0; k < node->n_in && !begins && !leads; k++)
            leads = c->leads[node->in[k].node->index];
        c->leads[i] |= leads;
    }
    return true;
}

// Returns the position of the cut: that of the last mark or target in the list plus 1, or 0 if there is none.
static size_t cut_find_position(const cut_search *c) {
    for (size_t i = c->list.n; i--;) {
        const ct_node *node = c->list.v[i];
        if (!(node->flags & CT_NODE_TRACKED) || !c->leads[i] || ct__history_begins(node)) continue;
        if (ct__is_mark(node) || c->leads[i] & 2) return i + 1;
    }
    return 0;
}

// Returns the number of operands, the first ones, through which gradients flow.
static int cut_slope_count(const ct_node *node) {
    if (node->op == &ct__op_record_hook) return (int)record_hook_value_count(node->attrs);
    return node->op == &ct__op_surrogate_loss ? 1 : node->n_in;
}

// Excludes the nodes between the loss and the operands of a gradient from the cut: no cut goes through there,
// since the derivative of the gradient depends on all of them.
static void cut_exclude_gradient(cut_search *c, const ct_node *grad) {
    enum { WRT = 1, ABOVE = 2, BETWEEN = 4 };
    memset(c->ways, 0, c->list.n);
    for (int k = 1; k < grad->n_in; k++)
        if (grad->in[k].node->epoch == c->list.epoch) c->ways[grad->in[k].node->index] = WRT;
    for (size_t i = 0; i < grad->index; i++) {
        const ct_node *node = c->list.v[i];
        for (int k = 0; k < cut_slope_count(node) && node->flags & CT_NODE_TRACKED && !c->ways[i];
             k++)
            if (c->ways[node->in[k].node->index]) c->ways[i] = ABOVE;
    }
    if (c->ways[grad->in[0].node->index] == ABOVE) c->ways[grad->in[0].node->index] = BETWEEN;
    for (size_t i = grad->index; i-- > 0;) {
        if (c->ways[i] != BETWEEN) continue;
        c->inside[i] = 1;
        for (int k = 0; k < cut_slope_count(c->list.v[i]); k++) {
            uint8_t *path = &c->ways[c->list.v[i]->in[k].node->index];
            if (*path == ABOVE) *path = BETWEEN;
        }
    }
}

static bool cut_find_inside(cut_search *c) {
    c->inside = ct__calloc(2 * c->list.n + 1, 1);
    if (!c->inside) return false;
    c->ways = c->inside + c->list.n;
    for (size_t i = c->list.n; i-- > 0;) {
        const ct_node *node = c->list.v[i];
        c->inside[i] |= i >= c->position;
        if (c->inside[i] && node->op == &ct__op_grad && node->flags & CT_NODE_TRACKED)
            cut_exclude_gradient(c, node);
    }
    return true;
}

static bool cut_add_crossing(cut_search *c) {
    for (size_t i = 0; i < c->list.n; i++) {
        ct_node *node = c->list.v[i];
        if (!c->inside[i] || !(node->flags & CT_NODE_TRACKED) || !c->leads[i]) continue;
        if (ct__history_begins(node)) {
            if (!cut_add_value(&c->leaves, (ct_val){node, 0})) return false;
            continue;
        }
        for (int k = 0; k < node->n_in; k++) {
            const ct_val in = node->in[k];
            if (!(in.node->flags & CT_NODE_TRACKED) || !ct__is_differentiable(ct__type(in)->dtype))
                continue;
            const bool leaf = ct__history_begins(in.node);
            if ((leaf || !c->inside[in.node->index]) &&
                !cut_add_value(leaf ? &c->leaves : &c->frontier, in))
                return false;
        }
    }
    return true;
}

static ct_tensor cut_leaf_handle(ct_val leaf) {
    return leaf.node->var ? ct__handle(&leaf.node->var->node, 0) : ct__handle_of(leaf);
}

static bool cut_write(const cut_search *c, const ct_val *roots, size_t n, ct_history_cut *cut) {
    ct_node *node = c->position ? c->list.v[c->position - 1] : NULL;
    const bool mark = node && ct__is_mark(node);
    const size_t n_at = node ? node->n_out : 0, n_operands = mark ? node->n_in : 0;
    ct_tensor *at = ct__calloc(n_at + n_operands + n + c->frontier.n + c->leaves.n + 1, sizeof *at);
    if (!at) return false;
    *cut = (ct_history_cut){.owner = mark ? ((const record_hook_attrs *)node->attrs)->owner : NULL,
                            .boundary = at,
                            .operands = at + n_at,
                            .inside_roots = at + n_at + n_operands,
                            .frontier = at + n_at + n_operands + n,
                            .leaves = at + n_at + n_operands + n + c->frontier.n,
                            .n_boundary = n_at,
                            .n_operands = n_operands,
                            .n_frontier = c->frontier.n,
                            .n_leaves = c->leaves.n,
                            .memory = at};
    for (size_t i = 0; i < n_at; i++) at[i] = ct__handle(node, (uint32_t)i);
    for (size_t i = 0; i < n_operands; i++) cut->operands[i] = ct__handle_of(node->in[i]);
    for (size_t i = 0; i < n; i++)
        if (roots[i].node->index >= c->position || ct__history_begins(roots[i].node))
            cut->inside_roots[cut->n_inside_roots++] = ct__handle_of(roots[i]);
    for (size_t i = 0; i < c->frontier.n; i++) cut->frontier[i] = ct__handle_of(c->frontier.v[i]);
    for (size_t i = 0; i < c->leaves.n; i++) cut->leaves[i] = cut_leaf_handle(c->leaves.v[i]);
    return true;
}

bool ct_history_cut_at(const ct_tensor *roots, size_t n, const ct_tensor *targets, size_t n_targets,
                       ct_history_cut *cut, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, cut, here, "backward", "the pointer to the history cut") ||
        (n && !ct__given(ctx, roots, here, "backward", "the list of roots")) ||
        (n_targets && !ct__given(ctx, targets, here, "backward", "the list of targets")))
        return false;
    *cut = (ct_history_cut){0};
    cut_search c = {0};
    ct_val *vals = ct__malloc((n + 1) * sizeof *vals);
    bool ok = vals;
    ok = ok && ct__resolve_all(ctx, roots, n, vals, "backward", here);
    ok = ok && ct__history(ctx, vals, n, &c.list) && ct__history_is_whole(ctx, &c.list, here);
    ok = ok && cut_find_paths(&c, targets, n_targets);
    if (ok) {
        c.position = cut_find_position(&c);
        ok = cut_find_inside(&c);
    }
    if (ok) {
        c.frontier.met = ct__calloc(2 * c.list.n + 1, 1);
        c.leaves.met = c.frontier.met ? c.frontier.met + c.list.n : NULL;
        ok = c.frontier.met && cut_add_crossing(&c);
    }
    // a root that is a leaf, and whose users are all on the other side
    for (size_t i = 0; i < n && ok; i++)
        if (ct__history_begins(vals[i].node) && c.leads[vals[i].node->index])
            ok = cut_add_value(&c.leaves, vals[i]);
    ok = ok && cut_write(&c, vals, n, cut);
    // if no error was recorded yet
    if (!ok) ct__err_memory(&ctx->err, here, "backward", n * sizeof *vals);
    ct__free(c.leads);
    ct__free(c.inside);
    ct__free(c.frontier.met);
    ct__free(c.frontier.v);
    ct__free(c.leaves.v);
    ct__free(vals);
    ct__nodes_free(&c.list);
    return ok;
}

void ct_history_cut_free(ct_history_cut *cut) {
    if (!cut) return;
    ct__free(cut->memory);
    *cut = (ct_history_cut){0};
}
