// From the user's pending nodes to a graph of primitives in the plan's trace.
#include <string.h>

#include "compile/passes/passes.h"
#include "graph/symbols.h"
#include "transform/trace.h"

enum { MOST_KEPT = 16 };

// What was recorded as one region and is pending, one value of which alone is used outside of it, but
// for what is only kept (running statistics).
typedef struct {
    uint16_t number;
    bool split; // several values are
    bool again; // its gradient computes it again: it becomes a node of its own
    ct_val result;
    ct_val kept[MOST_KEPT]; // (n_kept) roots of nodes before the result's
    int n_kept;
    size_t n, met;  // nodes, and those of them that were met
    ct_node **node; // (n) in the order's order
    size_t *word;   // (n) of the record
    // While it is recorded: what it uses from outside, and what stands for that.
    ct_val *outer, *param; // (n_outer)
    size_t n_outer;
} marked;

typedef struct {
    ct_ctx *ctx;
    const ct_order *order;
    ct_arena scratch;
    ct_val **map;       // (order->n) of each node, its outputs in the trace
    ct_node **leaf_of;  // (n_leaves) one node a storage, so that equal leaves are one
    uint64_t n_scalars; // met so far: they come in the order's order
    size_t word;        // of the record: where the part of the node that is copied begins
    marked *regions;    // (n_regions)
    size_t n_regions, regions_cap;
    uint32_t *region_of; // (order->n) of each node, its region's place and 1; 0: it has none
    marked *inside;      // the one that is being recorded
    uint32_t *uses;      // (order->n) how often a node's values are read
} expansion;

static bool out_of_memory(ct_ctx *ctx, size_t bytes) {
    return ct__err_memory(&ctx->err, CT_NOWHERE, "plan", bytes);
}

// A leaf of the trace for a value that is known by its storage.
// word: of its first size in the record.
static ct_node *plan_leaf(expansion *x, uint32_t number, ct_type named, size_t word, ct_loc here) {
    ct_node **at = &x->leaf_of[number];
    const ct_type *type = &named;
    ct_arena *arena = ct__top(x->ctx)->arena;
    if (!ct__symbol_type(x->ctx->symbols, arena, &named, word))
        return out_of_memory(x->ctx, named.rank * sizeof *named.mark), NULL;
    // One storage seen with two types (a bare number that was kept, beside a variable that took it)
    // stays two leaves with one number.
    if (*at && ct__same_type((*at)->out, type)) return *at;
    ct_node *leaf = ct__leaf(x->ctx, &ct__op_data, NULL, *type, here);
    if (!leaf) return NULL;
    leaf->value = NULL; // it stands for whatever the plan is run with
    leaf->number = number;
    return *at = leaf;
}

static bool copy_leaf(expansion *x, ct_node *node, ct_val *to) {
    const bool read = ct__reads_var(node);
    if (read || node->value) {
        size_t word = x->word;
        for (int i = 0; i < node->n_out; i++) {
            if (!read && !node->value[i]) continue;
            word += 2;
            uint32_t number = read ? ct__order_var(x->order, node->var)
                                   : ct__order_leaf(x->order, node->value[i]);
            to[i] = (ct_val){plan_leaf(x, number, node->out[i], word, node->here), 0};
            if (!to[i].node) return false;
            word += node->out[i].rank;
        }
        return true;
    }
    ct_node *leaf = ct__leaf(x->ctx, node->op, node->attrs, *node->out, node->here);
    if (!leaf) return false;
    if (node->op == &ct__op_scalar) {
        leaf->number = x->n_scalars++;
    } else {
        leaf->number = node->number;
    }
    to[0] = (ct_val){leaf, 0};
    return true;
}

static bool same_val(ct_val a, ct_val b) { return a.node == b.node && a.out == b.out; }

// What stands for it in the trace, or in the region that is being recorded.
static ct_val operand(const expansion *x, ct_val of) {
    const ct_val at = x->map[of.node->index][of.out];
    for (size_t i = 0; x->inside && i < x->inside->n_outer; i++)
        if (same_val(x->inside->outer[i], at)) return x->inside->param[i];
    return at;
}

static marked *region_of(const expansion *x, const ct_node *node) {
    const uint32_t place = x->region_of ? x->region_of[node->index] : 0;
    return place ? &x->regions[place - 1] : NULL;
}

static ct_tensor operand_of(void *env, ct_val of) {
    const expansion *x = env;
    return ct__handle_of(operand(x, of));
}
// What a region computes again stays in it.
static bool is_alone(void *env, ct_val of) {
    const expansion *x = env;
    const marked *region = region_of(x, of.node);
    if ((region && region->again ? region : NULL) != x->inside) return false;
    return !ct__is_order_leaf(of.node) && of.node->op->kind != &ct__kind_leaf &&
           x->uses[of.node->index] == 1;
}
// How often each node is read, by others and as a result.
static bool count_uses(expansion *x, const ct_root *roots, size_t n_roots) {
    const ct_order *o = x->order;
    x->uses = ct__arena_zero(&x->scratch, (o->n + 1) * sizeof *x->uses);
    for (size_t i = 0; i < o->n && x->uses; i++)
        for (int k = 0; k < o->nodes[i]->n_in && !ct__is_order_leaf(o->nodes[i]); k++)
            x->uses[o->nodes[i]->in[k].node->index]++;
    for (size_t i = 0; i < n_roots && x->uses; i++) x->uses[roots[i].val.node->index]++;
    return x->uses || out_of_memory(x->ctx, o->n * sizeof *x->uses);
}

static bool copy_node(expansion *x, ct_node *node, ct_val *to) {
    size_t before;
    const size_t part = x->word, words = ct__node_words(node, &before);
    if (ct__is_order_leaf(node) || node->op->kind == &ct__kind_leaf) {
        const bool copied = copy_leaf(x, node, to);
        x->word += words;
        return copied;
    }
    x->word += words;
    void *attrs = NULL;
    if (node->op->n_fields && !(attrs = ct__symbol_attrs(x->ctx->symbols, &x->scratch, node->op,
                                                         node->attrs, part + before)))
        return out_of_memory(x->ctx, node->op->attr_size);
    if (!node->op->expand && !ct__plan_bodies(x->ctx, node->op, attrs)) return false;
    ct_tensor *in = ct__arena(&x->scratch, (node->n_in + 1u) * sizeof *in);
    ct_val *vals = ct__arena(&x->scratch, (node->n_in + 1u) * sizeof *vals);
    ct_tensor *out = ct__arena_zero(&x->scratch, (node->n_out + 1u) * sizeof *out);
    if (!in || !vals || !out) return out_of_memory(x->ctx, node->n_in * sizeof *in);
    for (int k = 0; k < node->n_in; k++) {
        vals[k] = operand(x, node->in[k]);
        in[k] = ct__handle_of(vals[k]);
    }
    ct_match match = {node, operand_of, is_alone, x};
    if (x->ctx->whole && node->op->larger) out[0] = node->op->larger(&match);
    if (out[0].bits) {
        // it stands for others, too
    } else if (node->op->expand) {
        if (!ct__expand_transform(x->ctx, node, vals, out)) return false;
    } else {
        ct__outputs(ct__record(node->op, attrs, in, node->n_in, node->here), out, node->n_out);
    }
    for (int k = 0; k < node->n_out; k++) {
        if (!ct__resolve(x->ctx, out[k], &to[k], node->op->name, k, node->here)) return false;
        // Storages are made by what was said when recording, so nothing else may come out here.
        const ct_type *is = ct__type(to[k]), *said = &node->out[k];
        if (is->dtype != said->dtype || !ct__same_sizes(is, said))
            return ct__err(&x->ctx->err, CT_E_INTERNAL, node->here, node->op->name,
                           "the plan makes %s of what was recorded as %s", ct__type_text(is).s,
                           ct__type_text(said).s);
    }
    return ct__plan_ones(x->ctx, node, to) || out_of_memory(x->ctx, node->n_out * sizeof *to);
}

// ----------------------------------------------------------------------------------------- regions

// Leaves belong to none: they are there, whoever uses them.
static bool is_marked(const ct_node *node) {
    return node->region && node->op->kind != &ct__kind_leaf && !node->op->expand &&
           !ct__is_order_leaf(node);
}

static bool note_marked(expansion *x, const ct_node *node) {
    size_t place = x->n_regions; // most often the one before, since regions follow each other
    while (place && x->regions[place - 1].number != node->region) place--;
    if (!place) {
        if (!CT_GROW(x->regions, x->regions_cap, x->n_regions + 1)) return false;
        x->regions[x->n_regions++] = (marked){.number = node->region};
        place = x->n_regions;
    }
    if (!x->region_of)
        x->region_of = ct__arena_zero(&x->scratch, x->order->n * sizeof *x->region_of);
    if (!x->region_of) return false;
    x->region_of[node->index] = (uint32_t)place;
    x->regions[place - 1].n++;
    return true;
}

static void note_use(expansion *x, ct_val v, const marked *by) {
    marked *of = region_of(x, v.node);
    if (!of || of == by) return;
    of->split |= of->result.node && !same_val(of->result, v);
    of->result = v;
}

static void note_root(expansion *x, ct_val v) {
    marked *of = region_of(x, v.node);
    if (!of || !of->result.node) {
        note_use(x, v, NULL);
        return;
    }
    if (same_val(of->result, v)) return;
    for (int i = 0; i < of->n_kept; i++)
        if (same_val(of->kept[i], v)) return;
    of->split |= of->n_kept == MOST_KEPT || v.node->index >= of->result.node->index;
    if (!of->split) of->kept[of->n_kept++] = v;
}

static bool list_marked(expansion *x) {
    for (size_t i = 0; i < x->n_regions; i++) {
        marked *r = &x->regions[i];
        r->node = ct__arena(&x->scratch, r->n * sizeof *r->node);
        r->word = ct__arena(&x->scratch, r->n * sizeof *r->word);
        if (!r->node || !r->word) return false;
    }
    for (size_t i = 0; i < x->order->n; i++) {
        marked *r = region_of(x, x->order->nodes[i]);
        if (r) r->node[r->met++] = x->order->nodes[i];
    }
    return true;
}

// Where gradients are taken: the regions, and which of them are computed again. One that gives
// several values stays as it is, as a gradient may be taken between them.
static bool find_regions(expansion *x, const ct_root *roots, size_t n_roots) {
    const ct_order *o = x->order;
    bool ok = true;
    if (!x->ctx->regions || !o->n_transforms) return true;
    for (size_t i = 0; i < o->n && ok; i++)
        ok = !is_marked(o->nodes[i]) || note_marked(x, o->nodes[i]);
    if (!x->n_regions || !ok) return ok || out_of_memory(x->ctx, o->n * sizeof *x->region_of);
    for (size_t i = 0; i < o->n; i++) {
        const ct_node *node = o->nodes[i];
        for (int k = 0; k < node->n_in && !ct__is_order_leaf(node); k++)
            note_use(x, node->in[k], region_of(x, node));
    }
    for (size_t i = 0; i < n_roots; i++) note_root(x, roots[i].val);
    if (!list_marked(x)) return out_of_memory(x->ctx, o->n * sizeof *x->order->nodes);
    for (size_t i = 0; i < x->n_regions; i++) {
        marked *r = &x->regions[i];
        r->again = !r->split && ct__region_again(x->ctx->regions, r->node, r->n);
        r->met = 0;
    }
    return true;
}

// The region's nodes, on parameters.
static void record_marked(const ct_tensor *in, ct_tensor *out, void *user) {
    expansion *x = user;
    marked *r = x->inside;
    const size_t word = x->word;
    bool ok = true;
    for (size_t i = 0; i < r->n_outer && ok; i++)
        ok = ct__resolve(x->ctx, in[i], &r->param[i], "remat", (int)i, r->result.node->here);
    for (size_t i = 0; i < r->n && ok; i++) {
        x->word = r->word[i];
        ok = copy_node(x, r->node[i], x->map[r->node[i]->index]);
    }
    x->word = word;
    if (ok) out[0] = ct__handle_of(x->map[r->result.node->index][r->result.out]);
    for (int i = 0; i < r->n_kept && ok; i++)
        out[1 + i] = ct__handle_of(x->map[r->kept[i].node->index][r->kept[i].out]);
}

// What the region uses from outside, once each. False: no memory.
static bool find_outer(expansion *x, marked *r) {
    size_t most = 0;
    for (size_t i = 0; i < r->n; i++) most += r->node[i]->n_in;
    r->outer = ct__arena(&x->scratch, (most + 1) * sizeof *r->outer);
    r->param = ct__arena(&x->scratch, (most + 1) * sizeof *r->param);
    if (!r->outer || !r->param) return false;
    for (size_t i = 0; i < r->n; i++)
        for (int k = 0; k < r->node[i]->n_in; k++) {
            if (region_of(x, r->node[i]->in[k].node) == r) continue;
            const ct_val v = operand(x, r->node[i]->in[k]);
            size_t at = 0;
            while (at < r->n_outer && !same_val(r->outer[at], v)) at++;
            r->outer[at] = v;
            r->n_outer += at == r->n_outer;
        }
    return true;
}

// A node of a region that is computed again: the one that gives its result comes last, and is a
// ct_remat of all.
static bool copy_marked(expansion *x, marked *r, ct_node *node) {
    size_t before;
    r->word[r->met++] = x->word;
    x->word += ct__node_words(node, &before);
    if (node != r->result.node) return true;
    ct_tensor *in = find_outer(x, r) ? ct__arena(&x->scratch, (r->n_outer + 1) * sizeof *in) : NULL,
              out[1 + MOST_KEPT] = {CT_NONE};
    if (!in) return out_of_memory(x->ctx, r->n * sizeof *in);
    for (size_t i = 0; i < r->n_outer; i++) in[i] = ct__handle_of(r->outer[i]);
    x->inside = r;
    ct_remat_with((ct_remat_args){.f = record_marked,
                                  .user = x,
                                  .in = in,
                                  .n_in = r->n_outer,
                                  .out = out,
                                  .n_out = 1 + (size_t)r->n_kept,
                                  .here = node->here});
    x->inside = NULL;
    bool ok = !x->ctx->err.code;
    for (int i = 0; i <= r->n_kept && ok; i++) {
        const ct_val v = i ? r->kept[i - 1] : r->result;
        ok = ct__resolve(x->ctx, out[i], &x->map[v.node->index][v.out], "remat", i, node->here);
    }
    return ok;
}

// -------------------------------------------------------------------------------------- all of it

static bool collect_roots(expansion *x, const ct_root *roots, size_t n_roots, ct_graph *graph) {
    graph->roots = ct__arena(graph->arena, (n_roots + 1) * sizeof *graph->roots);
    if (!graph->roots) return out_of_memory(x->ctx, n_roots * sizeof *graph->roots);
    graph->n_roots = n_roots;
    for (size_t i = 0; i < n_roots; i++) {
        graph->roots[i].kind = roots[i].kind;
        graph->roots[i].val = x->map[roots[i].val.node->index][roots[i].val.out];
        uint32_t leaf = roots[i].var ? ct__order_var(x->order, roots[i].var) : UINT32_MAX;
        graph->roots[i].leaf = leaf == UINT32_MAX ? -1 : (int32_t)leaf;
    }
    return true;
}

// Bodies that are attributes of nodes which stay (loops) move from the user's scope into the plan,
// with those inside them.
static bool adopt_bodies(ct_ctx *ctx, ct_node *const *nodes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < nodes[i]->op->n_fields; k++) {
            const ct_field *field = &nodes[i]->op->fields[k];
            if (field->kind != CT_FIELD_bodies) continue;
            char *attrs = (char *)(uintptr_t)nodes[i]->attrs; // the plan's own copy
            ct_bodies *bodies = (ct_bodies *)(void *)(attrs + field->offset);
            for (size_t b = 0; b < bodies->n; b++) {
                ct_body *body = bodies->v[b] = ct__body_clone(ctx, bodies->v[b]);
                if (!body || !adopt_bodies(ctx, body->nodes, body->n_nodes)) return false;
            }
        }
    }
    return true;
}

// The bodies of all compositions, then the graph's list of nodes.
static bool flatten(ct_ctx *ctx, ct_graph *graph) {
    ct_val *vals = ct__malloc((graph->n_roots + 1) * sizeof *vals);
    if (!vals) return out_of_memory(ctx, graph->n_roots * sizeof *vals);
    for (size_t i = 0; i < graph->n_roots; i++) vals[i] = graph->roots[i].val;
    bool ok = ct__expand_bodies(ctx, vals, graph->n_roots, 0, NULL);
    for (size_t i = 0; i < graph->n_roots; i++) graph->roots[i].val = vals[i];
    ct__free(vals);
    return ok && ct__list_graph(ctx, graph) && adopt_bodies(ctx, graph->nodes, graph->n);
}

bool ct__list_graph(ct_ctx *ctx, ct_graph *graph) {
    ct_nodes list = {0};
    ct_val *vals = ct__malloc((graph->n_roots + 1) * sizeof *vals);
    bool ok = vals != NULL;
    for (size_t i = 0; i < graph->n_roots && ok; i++) vals[i] = graph->roots[i].val;
    ok = ok && ct__reach(&list, vals, graph->n_roots, &ctx->err);
    graph->nodes = ok ? ct__arena(graph->arena, (list.n + 1) * sizeof *graph->nodes) : NULL;
    if (graph->nodes && list.n) memcpy(graph->nodes, list.v, list.n * sizeof *graph->nodes);
    graph->n = list.n;
    if (!graph->nodes) ok = out_of_memory(ctx, list.n * sizeof *graph->nodes);
    ct__free(vals);
    ct__nodes_free(&list);
    return ok;
}

bool ct__expand(ct_ctx *ctx, const ct_order *order, const ct_root *roots, size_t n_roots,
                ct_graph *graph) {
    expansion x = {.ctx = ctx, .order = order, .word = ct__words_begin(order)};
    graph->arena = ct__top(ctx)->arena;
    graph->n_leaves = order->n_leaves;
    graph->n_scalars = order->n_scalars;
    size_t outs = 0;
    for (size_t i = 0; i < order->n; i++) outs += order->nodes[i]->n_out;
    x.map = ct__arena(&x.scratch, (order->n + 1) * sizeof *x.map);
    x.leaf_of = ct__arena_zero(&x.scratch, (order->n_leaves + 1) * sizeof *x.leaf_of);
    ct_val *cell = ct__arena_zero(&x.scratch, (outs + 1) * sizeof *cell);
    bool ok = x.map && x.leaf_of && cell;
    if (!ok) out_of_memory(ctx, outs * sizeof *cell);
    ok = ok && count_uses(&x, roots, n_roots) && find_regions(&x, roots, n_roots);
    for (size_t i = 0; i < order->n && ok; i++) {
        ct_node *node = order->nodes[i];
        marked *region = region_of(&x, node);
        x.map[i] = cell;
        cell += node->n_out;
        ok = (region && region->again ? copy_marked(&x, region, node)
                                      : copy_node(&x, node, x.map[i])) &&
             !ctx->err.code;
    }
    ok = ok && collect_roots(&x, roots, n_roots, graph) && flatten(ctx, graph);
    ct__free(x.regions);
    ct__arena_free(&x.scratch);
    return ok && !ctx->err.code;
}
