// Merges equal nodes, folds constants, and applies algebra that keeps every bit: x * 1, x / 1, x - 0,
// -(-x); a cast, reshape, expand or permute that changes nothing; a reshape of a reshape. (x + 0 stays: it
// turns -0 into 0.)
#include <math.h>

#include "backend/backend.h"
#include "compile/passes/passes.h"
#include "kinds/kind.h"

enum { SIMPLIFY_MAX_FOLDED = 64 }; // elements of a folded constant

typedef struct {
    ct_ctx *ctx;
    ct_arena scratch;
    ct_val **map;
    ct_node **table; // open addressing by structure
    size_t slots;
} simplifier;

// ----------------------------------------------------------------------------------------- sharing

static uint64_t simplify_mix_hash(uint64_t h, uint64_t w) {
    return (h ^ w) * 0x9e3779b97f4a7c15u ^ (h >> 29);
}

static uint64_t simplify_hash_node(const ct_node *node, const ct_val *in) {
    uint64_t h = simplify_mix_hash(node->op->id, node->n_in);
    for (int k = 0; k < node->n_in; k++)
        h = simplify_mix_hash(h, (uint64_t)(uintptr_t)in[k].node + in[k].out);
    if (node->op->kind == &ct__kind_leaf) h = simplify_mix_hash(h, node->number);
    h = simplify_mix_hash(h, (uint64_t)ct__count(node->out) << 8 | node->out->dtype);
    return h;
}

static bool simplify_same_node(const ct_node *a, const ct_node *b, const ct_val *in) {
    if (a->op != b->op || a->n_in != b->n_in || a->n_out != b->n_out ||
        (a->op->kind == &ct__kind_leaf && a->number != b->number))
        return false;
    for (int k = 0; k < a->n_in; k++)
        if (a->in[k].node != in[k].node || a->in[k].out != in[k].out) return false;
    for (int k = 0; k < a->n_out; k++)
        if (a->out[k].dtype != b->out[k].dtype || a->out[k].weak != b->out[k].weak ||
            !ct__same_shape(&a->out[k], &b->out[k]))
            return false;
    return a->op->n_fields == 0 || ct__attrs_equal(a->op, a->attrs, b->attrs);
}

// Returns an earlier node equal to `node` with operands `in`, or NULL; then `slot` is its place in the
// table.
static ct_node *simplify_find_equal(simplifier *s, const ct_node *node, const ct_val *in,
                                    ct_node ***slot) {
    size_t at = simplify_hash_node(node, in) & (s->slots - 1);
    while (s->table[at]) {
        if (simplify_same_node(s->table[at], node, in)) return s->table[at];
        at = (at + 1) & (s->slots - 1);
    }
    *slot = &s->table[at];
    return NULL;
}

// ----------------------------------------------------------------------------------------- algebra

// True if every element of v is this number: a view of a constant of one element.
static bool simplify_is_number(ct_val v, double value) {
    while (ct__is_view(v.node) && !v.node->op->fills) v = v.node->in[0];
    if (v.node->op != &ct__op_const || ct__count(v.node->out) != 1) return false;
    const ct_data_bytes *data = v.node->attrs;
    double x = ct__load_f64(v.node->out->dtype, data->bytes, 0);
    return x == value && (value != 0 || !signbit(x));
}
// Finds a value among the operands that equals the node in every bit and in type, including weakness, which
// decides how users promote. False: none.
static bool simplify_identity(const ct_node *node, const ct_val *in, ct_val *equal) {
    const ct_opdef *op = node->op;
    int keep = -1;
    if (op->neutral.right && simplify_is_number(in[1], op->neutral.number))
        keep = 0;
    else if (op->neutral.left && simplify_is_number(in[0], op->neutral.number))
        keep = 1;
    else if (op->unchanged && op->unchanged(node))
        keep = 0;
    *equal = keep >= 0 ? in[keep] : (ct_val){0};
    if (op->involution && in[0].node->op == op) *equal = in[0].node->in[0];
    if (op->undoes && in[0].node->op == op->undoes) *equal = in[0].node->in[op->part - 1];
    return equal->node && ct__same_type(ct__type(*equal), node->out);
}

// True if all operands are small constants, so that the node is evaluated now, if the reference has the
// same bits as kernels, as it has for all but math functions.
static bool simplify_is_foldable(const ct_node *node, const ct_val *in) {
    if (node->n_in == 0 || node->n_out != 1 || ct__count(node->out) > SIMPLIFY_MAX_FOLDED)
        return false;
    if (!ct__is_inlined(node) || node->op->samples.ulp > 0 || node->out->dyn) return false;
    int64_t most = 0;
    for (int k = 0; k < node->n_in; k++) {
        int64_t count = ct__count(ct__type(in[k]));
        if (in[k].node->op != &ct__op_const || count > SIMPLIFY_MAX_FOLDED) return false;
        most = count > most ? count : most;
    }
    return ct__count(node->out) <= most; // a number that is expanded stays one number
}

static ct_node *simplify_fold(simplifier *s, ct_node *node, const ct_val *in) {
    size_t bytes = ct__type_bytes(node->out);
    void **args = ct__arena(&s->scratch, (node->n_in + 1u) * sizeof *args);
    void *out = ct__arena_zero(&s->scratch, bytes + 1);
    if (!args || !out) return NULL;
    for (int k = 0; k < node->n_in; k++)
        args[k] = (void *)(uintptr_t)((const ct_data_bytes *)in[k].node->attrs)->bytes;
    args[node->n_in] = out;
    ct_node view = *node; // has the new operands' types
    view.in = (ct_val *)(uintptr_t)in;
    if (!ct__ref_node(&view, args, NULL, &s->ctx->err)) return NULL;
    ct_data_bytes data = {out, bytes};
    return ct__leaf(s->ctx, &ct__op_const, &data, *node->out, node->here);
}

// ---------------------------------------------------------------------------------------- the pass

static bool simplify_record(simplifier *s, ct_node *node, const ct_val *in, ct_val *to) {
    ct_tensor *t = ct__arena(&s->scratch, (node->n_in + 1u) * sizeof *t);
    if (!t) return false;
    bool changed = false;
    for (int k = 0; k < node->n_in; k++) {
        changed = changed || in[k].node != node->in[k].node || in[k].out != node->in[k].out;
        t[k] = ct__handle_of(in[k]);
    }
    ct_node *made = node;
    if (changed) {
        uint32_t out;
        made = ct__peek(ct__record(node->op, node->attrs, t, node->n_in, node->here), &out);
        if (!made || s->ctx->err.code) return false;
    }
    for (int k = 0; k < node->n_out; k++) to[k] = (ct_val){made, (uint32_t)k};
    return true;
}

static bool simplify_node(simplifier *s, ct_node *node, ct_val *to) {
    ct_val *in = ct__arena(&s->scratch, (node->n_in + 1u) * sizeof *in);
    if (!in) return false;
    for (int k = 0; k < node->n_in; k++) in[k] = s->map[node->in[k].node->index][node->in[k].out];
    while (node->op->outermost && in[0].node->op == node->op) in[0] = in[0].node->in[0];
    if (simplify_identity(node, in, &to[0])) return true;
    ct_node **slot = NULL, *equal = simplify_find_equal(s, node, in, &slot);
    if (!equal && simplify_is_foldable(node, in)) {
        ct_node *folded = simplify_fold(s, node, in);
        if (!folded) return false;
        ct_node **folded_slot = NULL;
        equal = simplify_find_equal(s, folded, NULL, &folded_slot);
        if (!equal) *folded_slot = equal = folded;
    }
    if (equal) {
        for (int k = 0; k < node->n_out; k++) to[k] = (ct_val){equal, (uint32_t)k};
        return true;
    }
    if (!simplify_record(s, node, in, to)) return false;
    *slot = to[0].node;
    return true;
}

bool ct__simplify(ct_ctx *ctx, ct_graph *graph) {
    simplifier s = {.ctx = ctx, .slots = 64};
    size_t outs = 0;
    for (size_t i = 0; i < graph->n; i++) outs += graph->nodes[i]->n_out;
    while (s.slots < graph->n * 4) s.slots *= 2;
    s.map = ct__arena(&s.scratch, (graph->n + 1) * sizeof *s.map);
    s.table = ct__arena_zero(&s.scratch, s.slots * sizeof *s.table);
    ct_val *cell = ct__arena_zero(&s.scratch, (outs + 1) * sizeof *cell);
    bool ok = s.map && s.table && cell;
    for (size_t i = 0; i < graph->n && ok; i++) {
        s.map[i] = cell;
        cell += graph->nodes[i]->n_out;
        ok = simplify_node(&s, graph->nodes[i], s.map[i]);
    }
    if (!ok) ct__err_memory(&ctx->err, CT_NOWHERE, "simplify", outs * sizeof *cell);
    for (size_t i = 0; i < graph->n_roots && ok; i++) {
        ct_val v = graph->roots[i].val;
        graph->roots[i].val = s.map[v.node->index][v.out];
    }
    ct__arena_free(&s.scratch);
    return ok && ct__list_graph(ctx, graph);
}
