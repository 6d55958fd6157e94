// Gradients: linearise forward with the ops' jvp rules, then transpose the linear part backward.
//
// The forward rules record tangents as functions of tangent placeholders, one per wrt. Whatever depends on a
// placeholder is linear in it, so a cotangent can be propagated back through these nodes in reverse order,
// with the ops' transpose rules, until it arrives at the placeholders. The tangent nodes themselves are never
// evaluated. (Radul, Paszke, Frostig, Johnson, Maclaurin: "You Only Linearize Once", POPL 2023.)
#include <string.h>

#include "graph/handle.h"
#include "ops/rules.h"
#include "transform/transform.h"

// ------------------------------------------------------------------------ a composition's own vjp

// The tangent of a composition with its own vjp is one node, linear in the tangents, that exists only to be
// transposed. Its operands are the composition's operands, its outputs, then the tangents that are not zero
// (`present` lists whose they are).

// The composition itself is not an attribute: the operands, which include its outputs, identify it, and
// attributes that are printed or hashed must not contain addresses.
typedef struct linear_attrs {
    ct_ints present;
    const ct_node *node;
} linear_attrs;
static const ct_field linear_fields[] = {
    {"present", CT_FIELD_positions, CT_MEANS_positions, offsetof(linear_attrs, present)}};

static const ct_node *linear_composition(const ct_rule *r) {
    return ((const linear_attrs *)r->attrs)->node;
}
static bool linear_infer(ct_call *call) {
    const ct_node *node = ((const linear_attrs *)call->attrs)->node;
    if (!ct__call_outs(call, node->n_out)) return false;
    for (int i = 0; i < node->n_out; i++) call->out[i] = node->out[i];
    return true;
}
static bool linear_transpose(ct_rule *r) {
    const linear_attrs *attrs = r->attrs;
    const ct_node *node = linear_composition(r);
    CT_ARENA scratch = {0};
    ct_tensor *c_in = ct__arena_zero(&scratch, node->n_in * sizeof *c_in);
    if (!c_in) return false;
    ct_rule inner = {.node = node,
                     .attrs = node->attrs,
                     .n_in = node->n_in,
                     .n_out = node->n_out,
                     .in = r->in,
                     .out = r->in + node->n_in,
                     .c_out = r->c_out,
                     .c_in = c_in};
    bool ok = node->op->vjp(&inner);
    for (int64_t i = 0; i < attrs->present.n && ok; i++)
        r->c_in[node->n_in + node->n_out + i] = c_in[attrs->present.v[i]];
    return ok;
}
static bool linear_refuse_jvp(ct_rule *r) {
    ct_ctx *ctx = ct__ctx();
    return ct__refuse(ctx, CT_E_INTERNAL, r->node->here, "grad",
                      "a tangent of %s was differentiated", linear_composition(r)->op->name);
}
const ct_opdef ct__op_linear = {
    CT_OP(LINEAR, linear, transform, -1, -1),
    .doc = "The tangent of a composition that has its own vjp.",
    CT_FIELDS(linear),
    .accepts = CT_ANY,
    .infer = linear_infer,
    .jvp = linear_refuse_jvp,
    .transpose = linear_transpose,
};

// ------------------------------------------------------------------------------- the recorded node

// zeros: tensors that the loss does not depend on get zeros instead of an error. A binding asks about
// dependence on the graph as it was recorded, of which nothing may be left when the plan is made: the
// derivative of a linear function, an operand that a function does not use.
// The number of outputs of a node is limited, so gradients of more tensors are several nodes of one loss.
// `first` is the number of the call's tensors before the node's; it is used in messages, and is not an
// attribute.
enum { MAX_NODE_OUTPUTS = CT_MAX_OUTPUTS - 1, MAX_TENSORS = 1 << 20 };
typedef struct grad_attrs {
    bool zeros;
    size_t first;
} grad_attrs;
static const ct_field grad_fields[] = {
    {"zeros", CT_FIELD_bool, CT_MEANS_bool, offsetof(grad_attrs, zeros)}};

static bool grad_infer(ct_call *call) {
    const ct_dtype dtype = (ct_dtype)call->in[0]->dtype;
    bool floats = ct__is_differentiable(dtype) && !ct__is_complex(dtype);
    if (!floats || ct__count(call->in[0]) != 1) {
        ct__call_err(call, floats ? CT_E_SHAPE : CT_E_DTYPE, "the loss must be one float, it is %s",
                     ct__type_text(call->in[0]).s);
        return ct__err_hint(call->err, ct__is_complex(dtype)
                                           ? "ct_real or ct_abs makes a float of it"
                                       : floats ? "ct_mean or ct_sum makes it one number"
                                                : "only what is computed in floats has gradients");
    }
    if (!ct__call_outs(call, call->n_in - 1)) return false;
    const size_t first = ((const grad_attrs *)call->attrs)->first;
    for (int i = 1; i < call->n_in; i++) {
        if (!ct__is_differentiable(call->in[i]->dtype))
            return ct__call_err(call, CT_E_DTYPE, "operand %zu is %s; only floats have gradients",
                                first + (size_t)i, ct__type_text(call->in[i]).s);
        call->out[i - 1] = *call->in[i];
        call->out[i - 1].weak = false;
    }
    return true;
}
static bool grad_expand_node(ct_ctx *ctx, const ct_node *node, const ct_val *in, ct_tensor *out) {
    return ct__grad_expand(ctx, node, in[0], in + 1, node->n_in - 1u, out);
}
const ct_opdef ct__op_grad = {
    CT_OP(GRAD, grad, transform, -1, -1),
    .doc = "Gradients of a scalar with respect to values that it depends on.",
    CT_FIELDS(grad),
    .accepts = CT_ANY,
    .infer = grad_infer,
    .expand = grad_expand_node,
    .jvp = CT_NO_GRAD,
};

// True if the node does not depend on a variable, or is one.
static bool grad_stops_at_variable(const ct_node *node, const void *user) {
    return (void)user, !(node->flags & CT_NODE_FROM_VARIABLE) || node->var;
}

static bool grad_is_tracked(const ct_node *node) { return node->flags & CT_NODE_TRACKED; }

// Finds the versions of the marked variables (by epoch) that the loss reads. Two versions of one variable are
// an error.
static bool grad_find_versions(ct_ctx *ctx, ct_val loss, uint64_t epoch, ct_loc here) {
    ct_nodes list = {0};
    bool ok = ct__reach_before(&list, &loss, 1, grad_stops_at_variable, NULL, &ctx->err);
    for (size_t i = 0; i < list.n && ok; i++) {
        ct_node *node = list.v[i];
        if (!(node->flags & CT_NODE_FROM_VARIABLE) || !node->var) continue;
        ct_current *now = ct__current(ctx, node->var);
        if (!now || now->epoch != epoch) continue;
        if (now->met && ct__version_of(now->met) == ct__version_of(node) &&
            grad_is_tracked(now->met) != grad_is_tracked(node)) {
            // the other one was read while the variable was marked as a constant
            if (grad_is_tracked(node)) now->met = node;
            continue;
        }
        const ct_loc one = now->met ? now->met->here : CT_NOWHERE, other = node->here;
        ok = !now->met;
        if (!ok)
            ct__fail(ctx, CT_E_GRAD, here, "grad",
                     "the loss reads two versions of variable \"%s\": of %s:%u and of %s:%u",
                     node->var->name, one.file ? one.file : "?", one.line,
                     other.file ? other.file : "?", other.line);
        now->met = node;
    }
    ct__nodes_free(&list);
    return ok;
}

// A gradient with respect to a variable is with respect to the version that the loss reads: in[1 + i] becomes
// that one.
static bool grad_bind_versions(ct_ctx *ctx, ct_val loss, const ct_tensor *wrt, size_t n,
                               ct_tensor *in, ct_loc here) {
    const uint64_t epoch = ct__new_epoch();
    size_t n_vars = 0;
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        ct_var *var = ct__var_of(wrt[i]);
        ct_current *now = var ? ct__current(ctx, var) : NULL;
        ok = now || !var;
        if (now) now->epoch = epoch, now->met = NULL, n_vars++;
    }
    ok = ok && (!n_vars || grad_find_versions(ctx, loss, epoch, here));
    for (size_t i = 0; i < n && ok && n_vars; i++) {
        ct_var *var = ct__var_of(wrt[i]);
        const ct_current *now = var ? ct__current(ctx, var) : NULL;
        if (now && now->met) in[i + 1] = ct__handle(now->met, 0);
    }
    return ok || ct__err_memory(&ctx->err, here, "grad", n * sizeof(ct_current));
}

static bool grad_stops_at_leaf(const ct_node *node, const void *user) {
    return (void)user, !(node->flags & CT_NODE_FROM_LEAF) || node->flags & CT_NODE_OPEN;
}
static void grad_mark_wrt(const ct_tensor *wrt, size_t n, bool open) {
    for (size_t i = 0; i < n; i++) {
        uint32_t out;
        ct_node *node = ct__peek(wrt[i], &out);
        if (!node || node->flags & CT_NODE_VARIABLE) continue;
        if (open)
            ct__flag(node, CT_NODE_OPEN);
        else
            ct__unflag(node, CT_NODE_OPEN);
    }
}

// A value that left its scope is a constant. If it was computed from a variable that may be unintended, so a
// warning is logged once.
static void grad_warn_leaf(ct_ctx *ctx, ct_val loss, const ct_tensor *wrt, size_t n, ct_loc here) {
    if (ctx->leaf_hinted || ctx->rolling || !(loss.node->flags & CT_NODE_FROM_LEAF)) return;
    ct_nodes list = {0};
    const ct_node *leaf = NULL;
    grad_mark_wrt(wrt, n, true);
    if (ct__reach_before(&list, &loss, 1, grad_stops_at_leaf, NULL, &ctx->err))
        for (size_t i = 0; i < list.n && !leaf; i++)
            if (list.v[i]->op == &ct__op_data && !grad_stops_at_leaf(list.v[i], NULL))
                leaf = list.v[i];
    grad_mark_wrt(wrt, n, false);
    ct__nodes_free(&list);
    if (!leaf) return;
    ctx->leaf_hinted = true;
    ct__warn(ctx,
             "%s:%u: grad: the value of %s:%u is a constant here: it was computed from a variable "
             "in a scope that has ended, or in another context\n"
             "  hint: use ct_stop_gradient if this is intended; if not, take the gradient where "
             "the value is computed",
             here.file ? here.file : "?", here.line, leaf->here.file ? leaf->here.file : "?",
             leaf->here.line);
}

// Refuses numbers that were replaced by a copy in f64, since a gradient with respect to them would be
// incomplete or absent.
static bool grad_refuse_widened(ct_ctx *ctx, const ct_tensor *wrt, size_t n, ct_loc here) {
    for (size_t i = 0; i < n; i++) {
        uint32_t out;
        const ct_node *node = ct__peek(wrt[i], &out);
        if (!node || !(node->flags & CT_NODE_WIDENED)) continue;
        ct__fail(ctx, CT_E_GRAD, here, "grad",
                 "operand %zu is a bare number that met an f64: it has no gradient", i + 1);
        return ct__err_hint(&ctx->err, "ct_scalar(value, CT_F64) has one");
    }
    return true;
}

// Records the nodes of all parts. in: (1 + n) the loss, then the tensors; the loss temporarily replaces the
// tensor before each part.
static void grad_record_parts(ct_tensor *in, size_t n, ct_tensor *grads, bool zeros, ct_loc here) {
    const ct_tensor loss = in[0];
    for (size_t first = 0; first < n; first += MAX_NODE_OUTPUTS) {
        const size_t part = n - first < MAX_NODE_OUTPUTS ? n - first : MAX_NODE_OUTPUTS;
        const ct_tensor before = in[first];
        in[first] = loss;
        ct_tensor all =
            ct__record(&ct__op_grad, &(grad_attrs){zeros, first}, in + first, (int)part + 1, here);
        in[first] = before;
        ct__outputs(all, grads + first, (int)part);
    }
}

void ct__grad(ct_tensor loss, const ct_tensor *wrt, size_t n, ct_tensor *grads, bool zeros,
              ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, grads, here, "grad", "the array for the gradients")) return;
    bool is_valid = n > 0 && n <= MAX_TENSORS;
    for (size_t i = 0; i < n && is_valid; i++) grads[i] = CT_NONE;
    ct_tensor *in = is_valid ? ct__arena(ct__top(ctx)->arena, (n + 1) * sizeof *in) : NULL, bad;
    ct_val at;
    if (!is_valid)
        bad = ct__fail(ctx, CT_E_ARGUMENT, here, "grad",
                       "%zu tensors are named, 1 to %d are possible", n, MAX_TENSORS);
    else if (!ct__given(ctx, wrt, here, "grad", "the list of tensors"))
        bad = ct__poison(ctx, here);
    else if (!in)
        bad = ct__fail(ctx, CT_E_MEMORY, here, "grad", "out of memory while recording");
    else if (!ct__resolve(ctx, loss, &at, "grad", 0, here))
        bad = ct__poison(ctx, here);
    else {
        in[0] = ct__handle_of(at);
        memcpy(in + 1, wrt, n * sizeof *in);
        const bool ok =
            grad_refuse_widened(ctx, wrt, n, here) && grad_bind_versions(ctx, at, wrt, n, in, here);
        if (ok) grad_record_parts(in, n, grads, zeros, here);
        grad_warn_leaf(ctx, at, in + 1, n, here);
        if (ok) return;
        bad = ct__poison(ctx, here);
    }
    for (size_t i = 0; i < n && n <= MAX_TENSORS; i++) grads[i] = bad;
}

void ct_grad_at(ct_tensor loss, const ct_tensor *wrt, size_t n, ct_tensor *grads, ct_loc here) {
    ct__grad(loss, wrt, n, grads, false, here);
}

// ------------------------------------------------------------------------------------- linearising

static bool grad_needs_body(const ct_node *node) {
    if (node->op->jvp == NULL && node->op->vjp == NULL) return true;
    return node->op->jvp != CT_NO_GRAD && ct__is_widened(node);
}
static bool grad_has_rule(const ct_node *node) { return !grad_needs_body(node); }

// Records the tangent of a composition with its own vjp as a node `linear`.
static bool grad_record_linear(ct_linear *l, ct_rule *r) {
    const ct_node *node = r->node;
    int extra = 0, total = node->n_in * 2 + node->n_out;
    ct_tensor *in = ct__arena(&l->scratch, (size_t)total * sizeof *in);
    int64_t *present = ct__arena(&l->scratch, node->n_in * sizeof *present);
    if (!in || !present) return false;
    memcpy(in, r->in, node->n_in * sizeof *in);
    memcpy(in + node->n_in, r->out, node->n_out * sizeof *in);
    for (int i = 0; i < node->n_in; i++)
        if (!ct__is_none(r->t_in[i])) {
            in[node->n_in + node->n_out + extra] = r->t_in[i];
            present[extra++] = i;
        }
    linear_attrs attrs = {.present = {extra, present}, .node = node};
    ct_tensor t =
        ct__record(&ct__op_linear, &attrs, in, node->n_in + node->n_out + extra, node->here);
    for (int i = 0; i < node->n_out; i++)
        r->t_out[i] =
            ct__is_differentiable(node->out[i].dtype) ? ct__output(t, (uint32_t)i) : CT_NONE;
    return true;
}

static bool grad_linearise_node(ct_linear *l, size_t i) {
    ct_node *node = l->forward.v[i];
    bool active = false;
    ct_tensor *t_in = ct__arena_zero(&l->scratch, (node->n_in + 1u) * sizeof *t_in);
    if (!t_in) return false;
    for (int k = 0; k < node->n_in; k++) {
        ct_tensor *of = l->tangent[node->in[k].node->index];
        if (of) t_in[k] = of[node->in[k].out];
        active = active || !ct__is_none(t_in[k]);
    }
    if (!active) return true;
    ct_rule r = ct__rule_of(&l->scratch, node);
    ct_tensor *t_out = ct__arena_zero(&l->scratch, node->n_out * sizeof *t_out);
    if (!r.in || !t_out) return false;
    r.t_in = t_in;
    r.t_out = t_out;
    const ct_node *before = ct__top(l->ctx)->nodes;
    if (!(node->op->vjp ? grad_record_linear(l, &r) : node->op->jvp(&r))) return false;
    for (int k = 0; k < node->n_out; k++) t_out[k] = ct__tangent_like(t_out[k], &node->out[k]);
    ct__give_line(l->ctx, before, node->here);
    l->tangent[i] = t_out;
    return !l->ctx->err.code;
}

static bool grad_is_copy(const ct_node *node, const void *user) {
    return (void)user, node->op == &ct__op_copy;
}
static bool grad_find_reached(ct_linear *l, const ct_val *outs, size_t n_outs) {
    if (!ct__reach_before(&l->forward, outs, n_outs, grad_is_copy, NULL, &l->ctx->err))
        return false;
    for (size_t i = 0; i < l->n; i++) l->reached[i] = l->at[i].node->epoch == l->forward.epoch;
    return true;
}

// Returns the index of the first of wrt that is the value; n if there is none.
static size_t grad_index_of(const ct_val *wrt, size_t n, ct_val v) {
    size_t i = 0;
    while (i < n && (v.node != wrt[i].node || v.out != wrt[i].out)) i++;
    return i;
}

// Returns the index of the wrt of which a value is a copy, possibly through copies of copies; n if there is
// none.
static size_t grad_find_original(ct_val v, const ct_val *wrt, size_t n) {
    size_t index = n;
    while (index == n && v.node && v.node->flags & CT_NODE_COPY) {
        v = v.node->copy_of[v.out];
        index = grad_index_of(wrt, n, v);
    }
    return index;
}

// Other gradients in the graph recorded copies of what is between their operands and their loss. If a
// requested value has such a copy, the copy is requested as well, and their gradients are added.
static bool grad_add_copies(ct_linear *l, const ct_val *wrt) {
    size_t n_copies = 0;
    for (size_t i = 0; i < l->forward.n; i++)
        if (l->forward.v[i]->flags & CT_NODE_COPY) n_copies += l->forward.v[i]->n_out;
    if (!n_copies) return true;
    size_t capacity = l->n + n_copies, n = l->n;
    ct_val *at = ct__arena(&l->scratch, capacity * sizeof *at);
    size_t *origin = ct__arena(&l->scratch, capacity * sizeof *origin);
    bool *reached = ct__arena(&l->scratch, capacity * sizeof *reached);
    if (!at || !origin || !reached)
        return ct__err_memory(&l->ctx->err, l->here, "grad", capacity * sizeof *at);
    memcpy(at, l->at, n * sizeof *at);
    memcpy(reached, l->reached, n * sizeof *reached);
    for (size_t i = 0; i < l->forward.n; i++) {
        ct_node *node = l->forward.v[i];
        for (uint32_t k = 0; node->flags & CT_NODE_COPY && k < node->n_out; k++) {
            size_t of = grad_find_original((ct_val){node, k}, wrt, l->n);
            if (of == l->n || (at[of].node == node && at[of].out == k)) continue;
            at[n] = (ct_val){node, k};
            origin[n] = of;
            reached[n++] = reached[of] = true;
        }
    }
    l->at = at, l->origin = origin, l->reached = reached;
    l->n_all = n;
    return true;
}

// Records tangents of everything between wrt and outs.
static bool grad_record_tangents(ct_linear *l, const ct_val *outs, size_t n_outs) {
    const ct_val *wrt = l->at;
    size_t n = l->n_all;
    if (!ct__reach_to(&l->forward, outs, n_outs, wrt, n, &l->ctx->err)) return false;
    l->tangent = ct__arena_zero(&l->scratch, (l->forward.n + 1) * sizeof *l->tangent);
    l->holder = ct__arena_zero(&l->scratch, (n + 1) * sizeof *l->holder);
    if (!l->tangent || !l->holder)
        return ct__err_memory(&l->ctx->err, l->here, "grad", l->forward.n * sizeof *l->tangent);
    for (size_t i = 0; i < n; i++) {
        ct_node *node = wrt[i].node;
        if (!l->reached[i]) continue; // the caller decides what that means
        ct_tensor **of = &l->tangent[node->index];
        if (!*of) *of = ct__arena_zero(&l->scratch, node->n_out * sizeof **of);
        l->holder[i] =
            *of ? ct__leaf(l->ctx, &ct__op_param, NULL, *ct__type(wrt[i]), l->here) : NULL;
        if (!l->holder[i]) return ct__err_memory(&l->ctx->err, l->here, "grad", sizeof(ct_node));
        (*of)[wrt[i].out] = ct__add_zero((*of)[wrt[i].out], ct__handle(l->holder[i], 0));
    }
    for (size_t i = l->forward.n_ends; i < l->forward.n; i++) {
        const ct_tensor *known = l->tangent[i]; // some of its outputs are among wrt
        if (!grad_linearise_node(l, i)) return false;
        for (int k = 0; known && k < l->forward.v[i]->n_out; k++)
            if (!ct__is_none(known[k])) l->tangent[i][k] = known[k];
    }
    return true;
}

bool ct__linearise(ct_linear *l, const ct_val *outs, size_t n_outs, const ct_val *wrt, size_t n) {
    ct_val *vals = ct__arena(&l->scratch, (n_outs + 2 * n) * sizeof *vals);
    l->n_outs = n_outs;
    l->n = l->n_all = n;
    l->out = ct__arena_zero(&l->scratch, (n_outs + 1) * sizeof *l->out);
    l->reached = ct__arena_zero(&l->scratch, n + 1);
    if (!vals || !l->out || !l->reached)
        return ct__err_memory(&l->ctx->err, l->here, "grad", (n_outs + n) * sizeof *vals);
    memcpy(vals, outs, n_outs * sizeof *vals);
    l->at = memcpy(vals + n_outs, wrt, n * sizeof *vals);
    l->wrt = memcpy(vals + n_outs + n, wrt, n * sizeof *vals);
    // Compositions without a rule are differentiated through their bodies. Nodes that only wrt depend on are
    // unchanged: steps that have not run yet may be a long chain.
    if (!ct__expand_bodies(l->ctx, vals, n_outs, n, grad_has_rule) ||
        !grad_find_reached(l, vals, n_outs) || !grad_add_copies(l, wrt) ||
        !grad_record_tangents(l, vals, n_outs))
        return false;
    for (size_t i = 0; i < n_outs; i++) {
        ct_tensor *of = l->tangent[vals[i].node->index];
        if (of) l->out[i] = of[vals[i].out];
    }
    return true;
}

// ------------------------------------------------------------------------------------- transposing

// Brings a cotangent to the shape and dtype of the operand: broadcast axes are summed over, and the dtype is
// cast back.
static ct_tensor grad_fit_cotangent(ct_tensor c, const ct_type *to) {
    const ct_type *from = ct__type_of(c);
    int lead = from->rank - to->rank, n = 0;
    int64_t axes[CT_MAX_RANK];
    if (!ct__same_shape(from, to)) {
        for (int a = 0; a < from->rank; a++) {
            bool own = a >= lead && (to->dim[a - lead] != 1 || ct__is_dyn(to, a - lead));
            if (!own) axes[n++] = a;
        }
        if (n) c = ct_sum(c, .axes = {n, axes});
        c = ct__of_type(c, to);
    }
    return ct__cotangent_like(c, (ct_dtype)to->dtype);
}

typedef struct {
    bool linear;  // depends on a placeholder
    ct_tensor *c; // cotangents of its outputs
} mark;

static bool grad_transpose_node(ct_linear *l, mark *marks, ct_node *node) {
    mark *m = &marks[node->index];
    bool *linear = ct__arena_zero(&l->scratch, node->n_in + 1u);
    ct_rule r = ct__rule_of(&l->scratch, node);
    ct_tensor *c_in = ct__arena_zero(&l->scratch, node->n_in * sizeof *c_in);
    if (!linear || !r.in || !c_in) return false;
    for (int k = 0; k < node->n_in; k++) linear[k] = marks[node->in[k].node->index].linear;
    if (!node->op->transpose)
        return ct__refuse(l->ctx, CT_E_INTERNAL, node->here, "grad",
                          "%s has no transpose rule but appears in a tangent", node->op->name);
    r.c_out = m->c;
    r.c_in = c_in;
    r.linear = linear;
    const ct_node *before = ct__top(l->ctx)->nodes;
    if (!node->op->transpose(&r) || l->ctx->err.code) return false;
    for (int k = 0; k < node->n_in; k++) {
        if (!linear[k] || ct__is_none(c_in[k])) continue;
        ct_val to = node->in[k];
        mark *into = &marks[to.node->index];
        if (!into->c && !(into->c = ct__arena_zero(&l->scratch, to.node->n_out * sizeof *into->c)))
            return false;
        into->c[to.out] = ct__add_zero(into->c[to.out], grad_fit_cotangent(c_in[k], ct__type(to)));
    }
    ct__give_line(l->ctx, before, node->here);
    return true;
}

// Computes the cotangents of the placeholders.
static bool grad_transpose_nodes(ct_linear *l, const ct_tensor *cotangents, ct_tensor *to) {
    ct_val *roots = ct__arena(&l->scratch, (l->n_outs + 1) * sizeof *roots);
    size_t n_roots = 0;
    if (!roots) return ct__err_memory(&l->ctx->err, l->here, "grad", l->n_outs * sizeof *roots);
    for (size_t i = 0; i < l->n_outs; i++)
        if (!ct__is_none(l->out[i]) && !ct__is_none(cotangents[i]))
            roots[n_roots].node = ct__peek(l->out[i], &roots[n_roots].out), n_roots++;
    if (!ct__reach_to(&l->backward, roots, n_roots, l->at, l->n_all, &l->ctx->err)) return false;
    mark *marks = ct__arena_zero(&l->scratch, (l->backward.n + 1) * sizeof *marks);
    if (!marks) return ct__err_memory(&l->ctx->err, l->here, "grad", l->backward.n * sizeof *marks);
    uint64_t epoch = l->backward.epoch;
    for (size_t i = 0; i < l->n_all; i++)
        if (l->holder[i] && l->holder[i]->epoch == epoch) marks[l->holder[i]->index].linear = true;
    for (size_t i = l->backward.n_ends; i < l->backward.n; i++)
        for (int k = 0; k < l->backward.v[i]->n_in; k++)
            if (marks[l->backward.v[i]->in[k].node->index].linear) marks[i].linear = true;
    for (size_t i = 0, at = 0; i < l->n_outs; i++) {
        if (ct__is_none(l->out[i]) || ct__is_none(cotangents[i])) continue;
        ct_val v = roots[at++];
        mark *m = &marks[v.node->index];
        if (!m->c && !(m->c = ct__arena_zero(&l->scratch, v.node->n_out * sizeof *m->c)))
            return false;
        m->c[v.out] = ct__add_zero(m->c[v.out], grad_fit_cotangent(cotangents[i], ct__type(v)));
    }
    for (size_t i = l->backward.n; i-- > l->backward.n_ends;)
        if (marks[i].linear && marks[i].c && l->backward.v[i]->n_in &&
            !grad_transpose_node(l, marks, l->backward.v[i]))
            return false;
    for (size_t i = 0; i < l->n_all; i++) {
        const ct_node *h = l->holder[i];
        mark *m = h && h->epoch == epoch ? &marks[h->index] : NULL;
        to[i] = m && m->c ? m->c[0] : CT_NONE;
    }
    return true;
}

bool ct__transpose(ct_linear *l, const ct_tensor *cotangents, ct_tensor *grads) {
    ct_tensor *all = ct__arena_zero(&l->scratch, (l->n_all + 1) * sizeof *all);
    if (!all) return ct__err_memory(&l->ctx->err, l->here, "grad", l->n_all * sizeof *all);
    if (!grad_transpose_nodes(l, cotangents, all)) return false;
    for (size_t i = l->n; i < l->n_all; i++)
        all[l->origin[i]] = ct__add_zero(all[l->origin[i]], all[i]);
    for (size_t i = 0; i < l->n; i++) {
        // Gradients of copies were added to the first of equal values.
        size_t of = l->n_all > l->n ? grad_index_of(l->wrt, l->n, l->wrt[i]) : i;
        grads[i] = all[of];
        if (ct__is_none(all[of]) && l->holder[of])
            grads[i] = ct__zeros_like(ct__handle_of(l->at[i]));
    }
    return true;
}

void ct__linear_free(ct_linear *l) {
    ct__nodes_free(&l->forward);
    ct__nodes_free(&l->backward);
    ct__arena_free(&l->scratch);
}

// ------------------------------------------------------------------------------------- entry points

bool ct__vjp_expand(ct_ctx *ctx, ct_loc here, const ct_val *outs, const ct_tensor *cotangents,
                    size_t n_outs, const ct_val *wrt, size_t n, ct_tensor *grads) {
    ct_linear l = {.ctx = ctx, .here = here};
    bool ok = ct__linearise(&l, outs, n_outs, wrt, n) && ct__transpose(&l, cotangents, grads);
    // if no error was recorded yet
    if (!ok) ct__err_memory(&ctx->err, here, "grad", n * sizeof *grads);
    ct__linear_free(&l);
    return ok && !ctx->err.code;
}

bool ct__grad_expand(ct_ctx *ctx, const ct_node *grad, ct_val loss, const ct_val *wrt, size_t n,
                     ct_tensor *grads) {
    ct_tensor one = ct__number_like(1, ct__handle_of(loss));
    if (!ct__vjp_expand(ctx, grad->here, &loss, &one, 1, wrt, n, grads)) return false;
    for (size_t i = 0; i < n; i++) {
        if (!ct__is_none(grads[i])) continue;
        if (((const grad_attrs *)grad->attrs)->zeros) {
            grads[i] = ct__zeros_like(ct__handle_of(wrt[i]));
            continue;
        }
        const size_t number = ((const grad_attrs *)grad->attrs)->first + i + 1;
        const ct_var *var = grad->in[i + 1].node->var; // the variable from which it was read
        if (var && !var->freed) {
            ct__fail(ctx, CT_E_GRAD, grad->here, "grad",
                     "the loss does not depend on variable \"%s\", operand %zu, %s", var->name,
                     number, ct__type_text(ct__type(wrt[i])).s);
            ct__err_hint(&ctx->err, "use it in the loss, or leave it out: of the list of ct_grad, "
                                    "of the parameter set of an optimizer");
        } else {
            ct__fail(ctx, CT_E_GRAD, grad->here, "grad",
                     "the loss does not depend on operand %zu, %s", number,
                     ct__type_text(ct__type(wrt[i])).s);
            ct__err_hint(&ctx->err, "a value that was kept is a leaf: differentiate before its "
                                    "scope ends, or with respect to it");
        }
        return false;
    }
    return true;
}
