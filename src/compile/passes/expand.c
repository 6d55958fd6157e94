// Copies the user's pending nodes into the plan's trace, as a graph of primitives.
#include <string.h>

#include "compile/passes/passes.h"
#include "graph/symbols.h"
#include "transform/trace.h"

enum { EXPAND_MAX_SIDE_RESULTS = 16 };

// The pending nodes of one recorded region. Only one of its values may be used outside of it, besides side
// results that are only kept (such as running statistics).
typedef struct {
    uint16_t number;
    bool several_results; // several values are used outside
    bool recomputed;      // its gradient recomputes it: it becomes a node
    ct_val result;
    // (n_side_results) roots of nodes before the result's
    ct_val side_results[EXPAND_MAX_SIDE_RESULTS];
    int n_side_results;
    size_t n, n_listed; // number of nodes; of these, those that are listed
    ct_node **node;     // (n) in the order's order
    size_t *word;       // (n) position of each in the record
    // While it is recorded: the values from outside that it uses, and their parameters.
    ct_val *inputs, *params; // (n_inputs)
    size_t n_inputs;
} expand_region;

typedef struct {
    ct_ctx *ctx;
    const ct_order *order;
    ct_arena scratch;
    ct_val **map;           // (order->n) the outputs of each node in the trace
    ct_node **leaf_of;      // (n_leaves) one node per storage, so that equal leaves are one
    uint64_t n_scalars;     // number so far: they come in the order's order
    size_t word;            // position in the record of the node that is copied
    expand_region *regions; // (n_regions)
    size_t n_regions, regions_cap;
    uint32_t *region_of;        // (order->n) index + 1 of each node's region; 0: none
    expand_region *open_region; // the region that is being recorded
    uint32_t *uses;             // (order->n) how often each node's values are read
} expand_state;

static bool expand_no_memory(ct_ctx *ctx, size_t bytes) {
    return ct__err_memory(&ctx->err, CT_NOWHERE, "plan", bytes);
}

// Returns a leaf of the trace for a value identified by its storage. word: position of its first size in
// the record.
static ct_node *expand_plan_leaf(expand_state *x, uint32_t number, ct_type named, size_t word,
                                 ct_loc here) {
    ct_node **at = &x->leaf_of[number];
    const ct_type *type = &named;
    ct_arena *arena = ct__top(x->ctx)->arena;
    if (!ct__symbol_type(x->ctx->symbols, arena, &named, word))
        return expand_no_memory(x->ctx, named.rank * sizeof *named.mark), NULL;
    // One storage with two types (a bare number that was kept, and a variable that took it over) stays two
    // leaves with one number.
    if (*at && ct__same_type((*at)->out, type)) return *at;
    ct_node *leaf = ct__leaf(x->ctx, &ct__op_data, NULL, *type, here);
    if (!leaf) return NULL;
    leaf->value = NULL; // its value is given at each run
    leaf->number = number;
    return *at = leaf;
}

static bool expand_copy_leaf(expand_state *x, ct_node *node, ct_val *to) {
    const bool read = ct__reads_var(node);
    if (read || node->value) {
        size_t word = x->word;
        for (int i = 0; i < node->n_out; i++) {
            if (!read && !node->value[i]) continue;
            word += 2;
            uint32_t number = read ? ct__order_var(x->order, node->var)
                                   : ct__order_leaf(x->order, node->value[i]);
            to[i] = (ct_val){expand_plan_leaf(x, number, node->out[i], word, node->here), 0};
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

static bool expand_same_val(ct_val a, ct_val b) { return a.node == b.node && a.out == b.out; }

// Returns the value in the trace, or the parameter in the region that is being recorded.
static ct_val expand_map_operand(const expand_state *x, ct_val of) {
    const ct_val at = x->map[of.node->index][of.out];
    for (size_t i = 0; x->open_region && i < x->open_region->n_inputs; i++)
        if (expand_same_val(x->open_region->inputs[i], at)) return x->open_region->params[i];
    return at;
}

static expand_region *expand_find_region(const expand_state *x, const ct_node *node) {
    const uint32_t position = x->region_of ? x->region_of[node->index] : 0;
    return position ? &x->regions[position - 1] : NULL;
}

static ct_tensor expand_match_operand(void *env, ct_val of) {
    const expand_state *x = env;
    return ct__handle_of(expand_map_operand(x, of));
}
// True if a value has one use, so that a larger op may replace its node. Nodes of a region that is recomputed
// are only merged within it.
static bool expand_is_used_once(void *env, ct_val of) {
    const expand_state *x = env;
    const expand_region *region = expand_find_region(x, of.node);
    if ((region && region->recomputed ? region : NULL) != x->open_region) return false;
    return !ct__is_order_leaf(of.node) && of.node->op->kind != &ct__kind_leaf &&
           x->uses[of.node->index] == 1;
}
// Counts the uses of each node, by other nodes and by roots.
static bool expand_count_uses(expand_state *x, const ct_root *roots, size_t n_roots) {
    const ct_order *o = x->order;
    x->uses = ct__arena_zero(&x->scratch, (o->n + 1) * sizeof *x->uses);
    for (size_t i = 0; i < o->n && x->uses; i++)
        for (int k = 0; k < o->nodes[i]->n_in && !ct__is_order_leaf(o->nodes[i]); k++)
            x->uses[o->nodes[i]->in[k].node->index]++;
    for (size_t i = 0; i < n_roots && x->uses; i++) x->uses[roots[i].val.node->index]++;
    return x->uses || expand_no_memory(x->ctx, o->n * sizeof *x->uses);
}

static bool expand_copy_node(expand_state *x, ct_node *node, ct_val *to) {
    size_t before;
    const size_t part = x->word, words = ct__node_words(node, &before);
    if (ct__is_order_leaf(node) || node->op->kind == &ct__kind_leaf) {
        const bool copied = expand_copy_leaf(x, node, to);
        x->word += words;
        return copied;
    }
    x->word += words;
    void *attrs = NULL;
    if (node->op->n_fields && !(attrs = ct__symbol_attrs(x->ctx->symbols, &x->scratch, node->op,
                                                         node->attrs, part + before)))
        return expand_no_memory(x->ctx, node->op->attr_size);
    if (!node->op->expand && !ct__plan_bodies(x->ctx, node->op, attrs)) return false;
    ct_tensor *in = ct__arena(&x->scratch, (node->n_in + 1u) * sizeof *in);
    ct_val *vals = ct__arena(&x->scratch, (node->n_in + 1u) * sizeof *vals);
    ct_tensor *out = ct__arena_zero(&x->scratch, (node->n_out + 1u) * sizeof *out);
    if (!in || !vals || !out) return expand_no_memory(x->ctx, node->n_in * sizeof *in);
    for (int k = 0; k < node->n_in; k++) {
        vals[k] = expand_map_operand(x, node->in[k]);
        in[k] = ct__handle_of(vals[k]);
    }
    ct_match match = {node, expand_match_operand, expand_is_used_once, x};
    if (x->ctx->whole && node->op->larger) out[0] = node->op->larger(&match);
    if (out[0].bits) {
        // a larger op replaces several nodes
    } else if (node->op->expand) {
        if (!ct__expand_transform(x->ctx, node, vals, out)) return false;
    } else {
        ct__outputs(ct__record(node->op, attrs, in, node->n_in, node->here), out, node->n_out);
    }
    for (int k = 0; k < node->n_out; k++) {
        if (!ct__resolve(x->ctx, out[k], &to[k], node->op->name, k, node->here)) return false;
        // Storages are allocated by the recorded types, so the plan must not change them.
        const ct_type *actual = ct__type(to[k]), *recorded = &node->out[k];
        if (actual->dtype != recorded->dtype || !ct__same_sizes(actual, recorded))
            return ct__err(&x->ctx->err, CT_E_INTERNAL, node->here, node->op->name,
                           "the plan makes %s of what was recorded as %s", ct__type_text(actual).s,
                           ct__type_text(recorded).s);
    }
    return ct__plan_ones(x->ctx, node, to) || expand_no_memory(x->ctx, node->n_out * sizeof *to);
}

// ----------------------------------------------------------------------------------------- regions

// Leaves belong to no region: their values exist in any case.
static bool expand_is_in_region(const ct_node *node) {
    return node->region && node->op->kind != &ct__kind_leaf && !node->op->expand &&
           !ct__is_order_leaf(node);
}

static bool expand_add_to_region(expand_state *x, const ct_node *node) {
    size_t position = x->n_regions; // most often the one before, since regions follow each other
    while (position && x->regions[position - 1].number != node->region) position--;
    if (!position) {
        if (!CT_GROW(x->regions, x->regions_cap, x->n_regions + 1)) return false;
        x->regions[x->n_regions++] = (expand_region){.number = node->region};
        position = x->n_regions;
    }
    if (!x->region_of)
        x->region_of = ct__arena_zero(&x->scratch, x->order->n * sizeof *x->region_of);
    if (!x->region_of) return false;
    x->region_of[node->index] = (uint32_t)position;
    x->regions[position - 1].n++;
    return true;
}

static void expand_note_use(expand_state *x, ct_val v, const expand_region *by) {
    expand_region *region = expand_find_region(x, v.node);
    if (!region || region == by) return;
    region->several_results |= region->result.node && !expand_same_val(region->result, v);
    region->result = v;
}

static void expand_note_root(expand_state *x, ct_val v) {
    expand_region *region = expand_find_region(x, v.node);
    if (!region || !region->result.node) {
        expand_note_use(x, v, NULL);
        return;
    }
    if (expand_same_val(region->result, v)) return;
    for (int i = 0; i < region->n_side_results; i++)
        if (expand_same_val(region->side_results[i], v)) return;
    region->several_results |= region->n_side_results == EXPAND_MAX_SIDE_RESULTS ||
                               v.node->index >= region->result.node->index;
    if (!region->several_results) region->side_results[region->n_side_results++] = v;
}

static bool expand_list_region_nodes(expand_state *x) {
    for (size_t i = 0; i < x->n_regions; i++) {
        expand_region *r = &x->regions[i];
        r->node = ct__arena(&x->scratch, r->n * sizeof *r->node);
        r->word = ct__arena(&x->scratch, r->n * sizeof *r->word);
        if (!r->node || !r->word) return false;
    }
    for (size_t i = 0; i < x->order->n; i++) {
        expand_region *r = expand_find_region(x, x->order->nodes[i]);
        if (r) r->node[r->n_listed++] = x->order->nodes[i];
    }
    return true;
}

// If gradients are taken: finds the regions, and which of them are recomputed. A region with several
// results is not, since a gradient may be taken between them.
static bool expand_find_regions(expand_state *x, const ct_root *roots, size_t n_roots) {
    const ct_order *o = x->order;
    bool ok = true;
    if (!x->ctx->regions || !o->n_transforms) return true;
    for (size_t i = 0; i < o->n && ok; i++)
        ok = !expand_is_in_region(o->nodes[i]) || expand_add_to_region(x, o->nodes[i]);
    if (!x->n_regions || !ok) return ok || expand_no_memory(x->ctx, o->n * sizeof *x->region_of);
    for (size_t i = 0; i < o->n; i++) {
        const ct_node *node = o->nodes[i];
        for (int k = 0; k < node->n_in && !ct__is_order_leaf(node); k++)
            expand_note_use(x, node->in[k], expand_find_region(x, node));
    }
    for (size_t i = 0; i < n_roots; i++) expand_note_root(x, roots[i].val);
    if (!expand_list_region_nodes(x))
        return expand_no_memory(x->ctx, o->n * sizeof *x->order->nodes);
    for (size_t i = 0; i < x->n_regions; i++) {
        expand_region *r = &x->regions[i];
        r->recomputed = !r->several_results && ct__region_again(x->ctx->regions, r->node, r->n);
        r->n_listed = 0;
    }
    return true;
}

// Records the region's nodes with parameters as inputs.
static void expand_record_region(const ct_tensor *in, ct_tensor *out, void *user) {
    expand_state *x = user;
    expand_region *r = x->open_region;
    const size_t word = x->word;
    bool ok = true;
    for (size_t i = 0; i < r->n_inputs && ok; i++)
        ok = ct__resolve(x->ctx, in[i], &r->params[i], "remat", (int)i, r->result.node->here);
    for (size_t i = 0; i < r->n && ok; i++) {
        x->word = r->word[i];
        ok = expand_copy_node(x, r->node[i], x->map[r->node[i]->index]);
    }
    x->word = word;
    if (ok) out[0] = ct__handle_of(x->map[r->result.node->index][r->result.out]);
    for (int i = 0; i < r->n_side_results && ok; i++)
        out[1 + i] = ct__handle_of(x->map[r->side_results[i].node->index][r->side_results[i].out]);
}

// Lists the values from outside that the region uses, each once. False: out of memory.
static bool expand_find_inputs(expand_state *x, expand_region *r) {
    size_t most = 0;
    for (size_t i = 0; i < r->n; i++) most += r->node[i]->n_in;
    r->inputs = ct__arena(&x->scratch, (most + 1) * sizeof *r->inputs);
    r->params = ct__arena(&x->scratch, (most + 1) * sizeof *r->params);
    if (!r->inputs || !r->params) return false;
    for (size_t i = 0; i < r->n; i++)
        for (int k = 0; k < r->node[i]->n_in; k++) {
            if (expand_find_region(x, r->node[i]->in[k].node) == r) continue;
            const ct_val v = expand_map_operand(x, r->node[i]->in[k]);
            size_t at = 0;
            while (at < r->n_inputs && !expand_same_val(r->inputs[at], v)) at++;
            r->inputs[at] = v;
            r->n_inputs += at == r->n_inputs;
        }
    return true;
}

// Copies a node of a region that is recomputed: the node of its result comes last and becomes a ct_remat of
// the whole region.
static bool expand_copy_region(expand_state *x, expand_region *r, ct_node *node) {
    size_t before;
    r->word[r->n_listed++] = x->word;
    x->word += ct__node_words(node, &before);
    if (node != r->result.node) return true;
    ct_tensor *in = expand_find_inputs(x, r)
                        ? ct__arena(&x->scratch, (r->n_inputs + 1) * sizeof *in)
                        : NULL,
              out[1 + EXPAND_MAX_SIDE_RESULTS] = {CT_NONE};
    if (!in) return expand_no_memory(x->ctx, r->n * sizeof *in);
    for (size_t i = 0; i < r->n_inputs; i++) in[i] = ct__handle_of(r->inputs[i]);
    x->open_region = r;
    ct_remat_with((ct_remat_args){.f = expand_record_region,
                                  .user = x,
                                  .in = in,
                                  .n_in = r->n_inputs,
                                  .out = out,
                                  .n_out = 1 + (size_t)r->n_side_results,
                                  .here = node->here});
    x->open_region = NULL;
    bool ok = !x->ctx->err.code;
    for (int i = 0; i <= r->n_side_results && ok; i++) {
        const ct_val v = i ? r->side_results[i - 1] : r->result;
        ok = ct__resolve(x->ctx, out[i], &x->map[v.node->index][v.out], "remat", i, node->here);
    }
    return ok;
}

// -------------------------------------------------------------------------------------- the pass

static bool expand_collect_roots(expand_state *x, const ct_root *roots, size_t n_roots,
                                 ct_graph *graph) {
    graph->roots = ct__arena(graph->arena, (n_roots + 1) * sizeof *graph->roots);
    if (!graph->roots) return expand_no_memory(x->ctx, n_roots * sizeof *graph->roots);
    graph->n_roots = n_roots;
    for (size_t i = 0; i < n_roots; i++) {
        graph->roots[i].kind = roots[i].kind;
        graph->roots[i].val = x->map[roots[i].val.node->index][roots[i].val.out];
        uint32_t leaf = roots[i].var ? ct__order_var(x->order, roots[i].var) : UINT32_MAX;
        graph->roots[i].leaf = leaf == UINT32_MAX ? -1 : (int32_t)leaf;
    }
    return true;
}

// Moves bodies that are attributes of nodes which stay (loops) from the user's scope into the plan, with
// the bodies inside them.
static bool expand_adopt_bodies(ct_ctx *ctx, ct_node *const *nodes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < nodes[i]->op->n_fields; k++) {
            const ct_field *field = &nodes[i]->op->fields[k];
            if (field->kind != CT_FIELD_bodies) continue;
            char *attrs = (char *)(uintptr_t)nodes[i]->attrs; // the plan's own copy
            ct_bodies *bodies = (ct_bodies *)(void *)(attrs + field->offset);
            for (size_t b = 0; b < bodies->n; b++) {
                ct_body *body = bodies->v[b] = ct__body_clone(ctx, bodies->v[b]);
                if (!body || !expand_adopt_bodies(ctx, body->nodes, body->n_nodes)) return false;
            }
        }
    }
    return true;
}

// Expands the bodies of all compositions, then lists the graph's nodes.
static bool expand_flatten(ct_ctx *ctx, ct_graph *graph) {
    ct_val *vals = ct__malloc((graph->n_roots + 1) * sizeof *vals);
    if (!vals) return expand_no_memory(ctx, graph->n_roots * sizeof *vals);
    for (size_t i = 0; i < graph->n_roots; i++) vals[i] = graph->roots[i].val;
    bool ok = ct__expand_bodies(ctx, vals, graph->n_roots, 0, NULL);
    for (size_t i = 0; i < graph->n_roots; i++) graph->roots[i].val = vals[i];
    ct__free(vals);
    return ok && ct__list_graph(ctx, graph) && expand_adopt_bodies(ctx, graph->nodes, graph->n);
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
    if (!graph->nodes) ok = expand_no_memory(ctx, list.n * sizeof *graph->nodes);
    ct__free(vals);
    ct__nodes_free(&list);
    return ok;
}

bool ct__expand(ct_ctx *ctx, const ct_order *order, const ct_root *roots, size_t n_roots,
                ct_graph *graph) {
    expand_state x = {.ctx = ctx, .order = order, .word = ct__words_begin(order)};
    graph->arena = ct__top(ctx)->arena;
    graph->n_leaves = order->n_leaves;
    graph->n_scalars = order->n_scalars;
    size_t outs = 0;
    for (size_t i = 0; i < order->n; i++) outs += order->nodes[i]->n_out;
    x.map = ct__arena(&x.scratch, (order->n + 1) * sizeof *x.map);
    x.leaf_of = ct__arena_zero(&x.scratch, (order->n_leaves + 1) * sizeof *x.leaf_of);
    ct_val *cell = ct__arena_zero(&x.scratch, (outs + 1) * sizeof *cell);
    bool ok = x.map && x.leaf_of && cell;
    if (!ok) expand_no_memory(ctx, outs * sizeof *cell);
    ok = ok && expand_count_uses(&x, roots, n_roots) && expand_find_regions(&x, roots, n_roots);
    for (size_t i = 0; i < order->n && ok; i++) {
        ct_node *node = order->nodes[i];
        expand_region *region = expand_find_region(&x, node);
        x.map[i] = cell;
        cell += node->n_out;
        ok = (region && region->recomputed ? expand_copy_region(&x, region, node)
                                           : expand_copy_node(&x, node, x.map[i])) &&
             !ctx->err.code;
    }
    ok = ok && expand_collect_roots(&x, roots, n_roots, graph) && expand_flatten(ctx, graph);
    ct__free(x.regions);
    ct__arena_free(&x.scratch);
    return ok && !ctx->err.code;
}
