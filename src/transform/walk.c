// Graph walks without recursion, and the expansion of compositions.
#include <string.h>

#include "graph/symbols.h"
#include "kinds/kind.h"
#include "ops/rules.h"
#include "transform/transform.h"

void ct__nodes_free(ct_nodes *list) {
    ct__free(list->v);
    ct__free(list->stack);
    ct__free(list->ends);
    *list = (ct_nodes){0};
}

static bool walk_push(ct_nodes *list, size_t *top, ct_node *node) {
    if (!CT_GROW(list->stack, list->stack_cap, *top + 1)) return false;
    list->stack[(*top)++] = (struct ct_visit){node, 0};
    return true;
}

static bool walk_append(ct_nodes *list, ct_node *node) {
    if (node->epoch == list->epoch) return true;
    if (!CT_GROW(list->v, list->cap, list->n + 1)) return false;
    node->epoch = list->epoch;
    node->index = (uint32_t)list->n;
    list->v[list->n++] = node;
    return true;
}

static bool walk_visit(ct_nodes *list, ct_node *root) {
    size_t top = 0;
    if (root->epoch == list->epoch) return true;
    if (!walk_push(list, &top, root)) return false;
    while (top) {
        ct_node *node = list->stack[top - 1].node;
        uint32_t next = list->stack[top - 1].next,
                 n_in = list->stops && list->stops(node, list->user) ? 0 : node->n_in;
        while (next < n_in && node->in[next].node->epoch == list->epoch) next++;
        if (next < n_in) {
            list->stack[top - 1].next = next + 1;
            if (!walk_push(list, &top, node->in[next].node)) return false;
            continue;
        }
        top--;
        if (!walk_append(list, node)) return false;
    }
    return true;
}

// A node of which another output is used is not an end: all its outputs are removed from the ends. Returns
// true if v makes this happen.
static bool walk_reopen_end(ct_nodes *list, ct_val v, size_t *n_ends) {
    size_t left = 0;
    if (v.node->index >= list->n_ends || v.node->n_out == 1) return false;
    for (size_t i = 0; i < *n_ends; i++)
        if (list->ends[i].node == v.node && list->ends[i].out == v.out) return false;
    for (size_t i = 0; i < *n_ends; i++)
        if (list->ends[i].node != v.node) list->ends[left++] = list->ends[i];
    *n_ends = left;
    return true;
}

static bool walk_reopen_ends(ct_nodes *list, const ct_val *roots, size_t n_roots, size_t *n_ends) {
    for (size_t i = 0; i < n_roots && *n_ends; i++)
        if (walk_reopen_end(list, roots[i], n_ends)) return true;
    for (size_t i = list->n_ends; i < list->n && *n_ends; i++)
        for (int k = 0; k < list->v[i]->n_in; k++)
            if (walk_reopen_end(list, list->v[i]->in[k], n_ends)) return true;
    return false;
}

bool ct__reach_to(ct_nodes *list, const ct_val *roots, size_t n_roots, const ct_val *ends,
                  size_t n_ends, ct_err *err) {
    bool ok = CT_GROW(list->ends, list->ends_cap, n_ends);
    if (ok && n_ends) memcpy(list->ends, ends, n_ends * sizeof *ends);
    do {
        list->n = 0;
        list->epoch = ct__new_epoch();
        for (size_t i = 0; i < n_ends && ok; i++) ok = walk_append(list, list->ends[i].node);
        list->n_ends = list->n;
        for (size_t i = 0; i < n_roots && ok; i++) ok = walk_visit(list, roots[i].node);
    } while (ok && walk_reopen_ends(list, roots, n_roots, &n_ends));
    return ok || ct__err_memory(err, CT_NOWHERE, "walk", list->n * sizeof *list->v);
}

bool ct__reach(ct_nodes *list, const ct_val *roots, size_t n_roots, ct_err *err) {
    return ct__reach_to(list, roots, n_roots, NULL, 0, err);
}

bool ct__reach_before(ct_nodes *list, const ct_val *roots, size_t n_roots, ct_stops_fn stops,
                      const void *user, ct_err *err) {
    bool ok = true;
    list->n = 0;
    list->epoch = ct__new_epoch();
    list->stops = stops;
    list->user = user;
    for (size_t i = 0; i < n_roots && ok; i++) ok = walk_visit(list, roots[i].node);
    list->stops = NULL;
    return ok || ct__err_memory(err, CT_NOWHERE, "walk", list->n * sizeof *list->v);
}

void ct__give_line(ct_ctx *ctx, const ct_node *before, ct_loc here) {
    for (ct_node *made = ct__top(ctx)->nodes; made && made != before; made = made->next)
        made->here = here;
}

bool ct__is_widened(const ct_node *node) {
    for (int i = 0; node->op->widens && i < node->n_in; i++)
        if (ct__is_narrow_float((ct_dtype)ct__type(node->in[i])->dtype)) return true;
    return false;
}

// The same op in f32, so that its own rules also serve the gradients of 16-bit floats.
static bool expand_widened_body(ct_rule *r) {
    CT_ARENA scratch = {0};
    ct_tensor *in = ct__arena(&scratch, (size_t)r->n_in * sizeof *in);
    if (!in) return ct__err_memory(&ct__ctx()->err, r->node->here, r->node->op->name, 0);
    for (int i = 0; i < r->n_in; i++) {
        bool narrow = ct__is_narrow_float((ct_dtype)ct__type_of(r->in[i])->dtype);
        in[i] = narrow ? ct_cast(r->in[i], CT_F32) : r->in[i];
    }
    ct_tensor in_f32 = ct__record(r->node->op, r->attrs, in, r->n_in, r->node->here);
    for (int i = 0; i < r->n_out; i++) {
        ct_tensor t = ct__output(in_f32, (uint32_t)i);
        ct_dtype recorded = (ct_dtype)r->node->out[i].dtype;
        r->body_out[i] = ct__type_of(t)->dtype == recorded ? t : ct_cast(t, recorded);
    }
    return true;
}

// True if the op owns a function of the user, whose nodes have source lines of their own.
static bool expand_owns_function(const ct_opdef *op) {
    for (size_t i = 0; i < op->n_fields; i++)
        if (op->fields[i].kind == CT_FIELD_body) return true;
    return false;
}

bool ct__is_split(const ct_node *node) {
    bool has = false;
    for (int i = 0; i < node->n_in && node->op->split; i++)
        has = has || ct__has_parts((ct_dtype)ct__type(node->in[i])->dtype);
    for (int i = 0; i < node->n_out && node->op->split; i++)
        has = has || ct__has_parts((ct_dtype)node->out[i].dtype);
    return has;
}

bool ct__call_body(ct_ctx *ctx, const ct_node *node, const ct_tensor *in, ct_tensor *out) {
    ct_rule rule = {.node = node,
                    .attrs = node->attrs,
                    .n_in = node->n_in,
                    .n_out = node->n_out,
                    .in = in,
                    .body_out = out};
    memset(out, 0, node->n_out * sizeof *out);
    const ct_node *before = ct__top(ctx)->nodes;
    bool (*body)(ct_rule *) = ct__is_split(node)     ? node->op->split
                              : ct__is_widened(node) ? expand_widened_body
                                                     : node->op->body;
    if (!body(&rule) || ctx->err.code) return false;
    if (!expand_owns_function(node->op)) ct__give_line(ctx, before, node->here);
    for (int i = 0; i < node->n_out; i++) {
        ct_val v;
        if (!ct__resolve(ctx, out[i], &v, node->op->name, i, node->here)) return false;
        const ct_type *is = ct__type(v), *recorded = &node->out[i];
        if (is->dtype != recorded->dtype || !ct__same_sizes(is, recorded))
            return ct__refuse(ctx, CT_E_INTERNAL, node->here, node->op->name,
                              "its body gives %s, its shape rule %s", ct__type_text(is).s,
                              ct__type_text(recorded).s);
        for (int a = 0; a < is->rank && ctx->symbols; a++)
            if (ct__is_dyn(is, a) || ct__is_dyn(recorded, a))
                ct__size_equal(ct__size_of(is, a), ct__size_of(recorded, a));
    }
    return true;
}

// Makes each float output a node of its own that was recorded since `before` and is not a leaf. Otherwise
// another output would be mistaken for it when a gradient is requested with respect to it.
static bool expand_separate_outputs(ct_ctx *ctx, ct_tensor *out, int n, const ct_node *before,
                                    ct_loc here) {
    const uint64_t fresh = ct__new_epoch();
    uint32_t at;
    // number of outputs that are of this node
    for (ct_node *made = ct__top(ctx)->nodes; made && made != before; made = made->next)
        made->epoch = fresh, made->index = 0;
    for (int k = 0; k < n; k++) {
        ct_node *node = ct__peek(out[k], &at);
        if (node) node->index += node->epoch == fresh;
    }
    for (int k = 0; k < n; k++) {
        const ct_node *node = ct__peek(out[k], &at);
        if (!node || !ct__is_differentiable(node->out[at].dtype)) continue;
        if (node->epoch != fresh || node->index > 1 || !node->n_in)
            out[k] = ct__record(&ct__op_same, NULL, &out[k], 1, here);
    }
    return !ctx->err.code;
}

bool ct__expand_transform(ct_ctx *ctx, const ct_node *node, const ct_val *in, ct_tensor *out) {
    const ct_node *before = ct__top(ctx)->nodes;
    return node->op->expand(ctx, node, in, out) &&
           expand_separate_outputs(ctx, out, node->n_out, before, node->here);
}

// Notes that the values recorded since `before` are copies of the node's outputs. A gradient that is
// requested with respect to these finds the copies so.
static bool expand_note_copies(ct_ctx *ctx, ct_node *node, const ct_val *to,
                               const ct_node *before) {
    for (int k = 0; k < node->n_out; k++) {
        ct_node *copy = ct__top(ctx)->nodes;
        while (copy && copy != before && copy != to[k].node) copy = copy->next;
        if (copy == before || !copy || !copy->n_in) continue; // no gradient is requested
        if (!(copy->flags & CT_NODE_COPY)) {
            copy->copy_of =
                ct__arena_zero(ct__top(ctx)->arena, copy->n_out * sizeof *copy->copy_of);
            if (!copy->copy_of)
                return ct__err_memory(&ctx->err, node->here, "expand", copy->n_out * sizeof *to);
            copy->flags |= CT_NODE_COPY;
        }
        copy->copy_of[to[k].out] = (ct_val){node, (uint32_t)k};
    }
    return true;
}

// True if the node has a body that replaces it here. keep: the expansion is for a transform, which has rules
// for some nodes.
static bool expand_is_composition(const ct_ctx *ctx, const ct_node *node,
                                  bool (*keep)(const ct_node *)) {
    const ct_kind *kind = node->op->kind;
    if (kind != &ct__kind_composition && !kind->takes) return false;
    if (keep) return !keep(node);
    return !kind->takes || !ctx->whole || ct__is_widened(node) || !kind->takes(node);
}

// One round: replaces every composition that is there now; bodies may contain others.
static bool expand_round(ct_ctx *ctx, ct_nodes *list, ct_val *vals, size_t n,
                         bool (*keep)(const ct_node *), bool *found) {
    size_t outs = 0;
    for (size_t i = 0; i < list->n; i++) outs += list->v[i]->n_out;
    CT_ARENA scratch = {0};
    ct_val **map = ct__arena(&scratch, list->n * sizeof *map),
           *cell = ct__arena(&scratch, outs * sizeof *cell);
    bool ok = map && cell;
    if (!ok) ct__err_memory(&ctx->err, CT_NOWHERE, "expand", outs * sizeof *cell);
    for (size_t i = 0; i < list->n && ok; i++) {
        ct_node *node = list->v[i];
        map[i] = cell;
        cell += node->n_out;
        bool end = i < list->n_ends, composed = expand_is_composition(ctx, node, keep),
             expand = !end && (composed || (!keep && ct__is_split(node))), changed = expand;
        for (int k = 0; k < node->n_in && !end; k++) {
            ct_val to = map[node->in[k].node->index][node->in[k].out];
            changed = changed || to.node != node->in[k].node || to.out != node->in[k].out;
        }
        for (int k = 0; k < node->n_out; k++) map[i][k] = (ct_val){node, (uint32_t)k};
        if (!changed) continue;
        ct_tensor *in = ct__arena(&scratch, (node->n_in + 1u) * sizeof *in),
                  *out = ct__arena(&scratch, node->n_out * sizeof *out);
        ok = in && out;
        const ct_node *before = ct__top(ctx)->nodes;
        for (int k = 0; k < node->n_in && ok; k++)
            in[k] = ct__handle_of(map[node->in[k].node->index][node->in[k].out]);
        if (ok && expand) {
            *found = true;
            ok = ct__call_body(ctx, node, in, out) &&
                 (!keep || expand_separate_outputs(ctx, out, node->n_out, before, node->here));
        } else if (ok) {
            ct__outputs(ct__record(node->op, node->attrs, in, node->n_in, node->here), out,
                        node->n_out);
        }
        for (int k = 0; k < node->n_out && ok; k++)
            ok = ct__resolve(ctx, out[k], &map[i][k], node->op->name, k, node->here);
        ok = ok && expand_note_copies(ctx, node, map[i], before);
    }
    // map uses the walk's indices, which later records do not change
    for (size_t i = 0; i < n && ok; i++) vals[i] = map[vals[i].node->index][vals[i].out];
    return ok && !ctx->err.code;
}

bool ct__expand_bodies(ct_ctx *ctx, ct_val *vals, size_t n, size_t n_ends,
                       bool (*keep)(const ct_node *)) {
    ct_nodes list = {0};
    bool found = true, ok = true;
    while (found && ok) {
        found = false;
        ok = ct__reach_to(&list, vals, n, vals + n, n_ends, &ctx->err) &&
             expand_round(ctx, &list, vals, n + n_ends, keep, &found);
    }
    ct__nodes_free(&list);
    return ok;
}
