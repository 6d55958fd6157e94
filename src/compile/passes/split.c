#include "compile/passes/split.h"

enum { SPLIT_ANY_DEVICE = UINT32_MAX };
typedef struct {
    ct_ctx *ctx;
    const ct_graph *graph;
    ct_parts *parts;
    uint32_t *device, *level; // (graph->n) device and level of each node
    // (graph->n) number of a node's first value among those between parts; ~0: it has none
    uint32_t *between;
    uint32_t *part_of; // (graph->n)
    ct_val **map;      // (graph->n) nodes in the part that is being made; NULL: not in it
    ct_node **leaf;    // (n_leaves + n_between) leaves of that part
    bool *needed;      // (graph->n) nodes of that part
} split_state;

bool ct__has_several_devices(const ct_graph *graph) {
    for (size_t i = 0; i < graph->n; i++)
        for (int o = 0; o < graph->nodes[i]->n_out; o++)
            if (graph->nodes[i]->out[o].device) return true;
    return false;
}

static bool split_is_leaf(const ct_node *node) { return node->op->kind == &ct__kind_leaf; }

// True if the node is no root and depends only on constants and scalars. Each part that uses it computes
// it.
static bool split_is_free(const split_state *s, const ct_node *node) {
    return s->device[node->index] == SPLIT_ANY_DEVICE;
}

static void split_find_levels(split_state *s) {
    const ct_graph *g = s->graph;
    for (size_t i = 0; i < g->n; i++) s->device[i] = SPLIT_ANY_DEVICE, s->level[i] = 0;
    for (size_t r = 0; r < g->n_roots; r++)
        s->device[g->roots[r].val.node->index] = ct__type(g->roots[r].val)->device;
    for (size_t i = 0; i < g->n; i++) {
        const ct_node *node = g->nodes[i];
        bool has_device = node->op == &ct__op_data;
        for (int k = 0; k < node->n_in; k++) has_device |= !split_is_free(s, node->in[k].node);
        if (has_device) s->device[i] = node->out->device;
        for (int k = 0; k < node->n_in; k++) {
            const ct_node *in = node->in[k].node;
            if (split_is_leaf(in) || split_is_free(s, in)) continue;
            const uint32_t level = s->level[in->index] + (s->device[in->index] != s->device[i]);
            if (level > s->level[i]) s->level[i] = level;
        }
    }
}

// Moves nodes that only rearrange elements to the level of their users, so that they need no buffer.
static bool split_sink_movements(split_state *s) {
    const ct_graph *g = s->graph;
    uint32_t *latest = ct__arena(g->arena, (g->n + 1) * sizeof *latest);
    if (!latest) return false;
    for (size_t i = 0; i < g->n; i++) latest[i] = SPLIT_ANY_DEVICE;
    for (size_t r = 0; r < g->n_roots; r++) latest[g->roots[r].val.node->index] = 0;
    for (size_t i = g->n; i-- > 0;) {
        const ct_node *node = g->nodes[i];
        if (node->op->map && latest[i] != SPLIT_ANY_DEVICE && latest[i] > s->level[i])
            s->level[i] = latest[i];
        for (int k = 0; k < node->n_in; k++) {
            const uint32_t in = node->in[k].node->index;
            const uint32_t level = s->device[in] == s->device[i] ? s->level[i] : 0;
            if (level < latest[in]) latest[in] = level;
        }
    }
    return true;
}

static ct_part *split_find_part(split_state *s, uint32_t device, uint32_t level) {
    for (size_t i = 0; i < s->parts->n; i++)
        if (s->parts->v[i].device == device && s->parts->v[i].level == level)
            return &s->parts->v[i];
    return NULL;
}

// Lists the parts, by level, and finds the part of each node.
static bool split_list_parts(split_state *s) {
    const ct_graph *g = s->graph;
    s->parts->v = ct__arena_zero(g->arena, (g->n + 1) * sizeof *s->parts->v);
    if (!s->parts->v) return false;
    for (size_t i = 0; i < g->n; i++) {
        if (split_is_free(s, g->nodes[i]) || split_find_part(s, s->device[i], s->level[i]))
            continue;
        size_t at = s->parts->n++;
        for (; at && s->parts->v[at - 1].level > s->level[i]; at--)
            s->parts->v[at] = s->parts->v[at - 1];
        s->parts->v[at] = (ct_part){.device = s->device[i], .level = s->level[i]};
    }
    for (size_t i = 0; i < g->n; i++)
        s->part_of[i] =
            split_is_free(s, g->nodes[i])
                ? SPLIT_ANY_DEVICE
                : (uint32_t)(split_find_part(s, s->device[i], s->level[i]) - s->parts->v);
    return true;
}

static void split_number_values(split_state *s) {
    const ct_graph *g = s->graph;
    for (size_t i = 0; i < g->n; i++) s->between[i] = UINT32_MAX;
    for (size_t i = 0; i < g->n; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            const ct_node *in = g->nodes[i]->in[k].node;
            if (split_is_leaf(in) || split_is_free(s, in) || split_is_free(s, g->nodes[i]) ||
                s->part_of[in->index] == s->part_of[i] || s->between[in->index] != UINT32_MAX)
                continue;
            s->between[in->index] = (uint32_t)s->parts->n_between;
            s->parts->n_between += in->n_out;
        }
}

// Returns the leaf for leaf or value `number` in the part that is being made.
static ct_node *split_get_leaf(split_state *s, ct_part *part, uint32_t number, ct_type type,
                               ct_loc here) {
    ct_node **at = &s->leaf[number];
    if (*at && ct__same_type((*at)->out, &type)) return *at;
    ct_node *leaf = ct__leaf(s->ctx, &ct__op_data, NULL, type, here);
    if (!leaf) return NULL;
    leaf->value = NULL;
    if (*at) {
        leaf->number = (*at)->number;
    } else {
        leaf->number = part->graph.n_leaves;
        part->leaf_nodes[part->graph.n_leaves] = leaf;
        part->leaf[part->graph.n_leaves++] = number;
    }
    return *at = leaf;
}

// Returns what represents a value in part `p`.
static ct_val split_map_value(split_state *s, uint32_t p, ct_val v) {
    ct_part *part = &s->parts->v[p];
    const uint32_t i = v.node->index;
    if (v.node->op == &ct__op_data)
        return (ct_val){
            split_get_leaf(s, part, (uint32_t)v.node->number, *v.node->out, v.node->here), 0};
    if (split_is_leaf(v.node)) return v;
    if (s->part_of[i] == p || split_is_free(s, v.node)) return s->map[i][v.out];
    const uint32_t number = (uint32_t)s->graph->n_leaves + s->between[i] + v.out;
    return (ct_val){split_get_leaf(s, part, number, *ct__type(v), v.node->here), 0};
}

static bool split_copy_node(split_state *s, uint32_t p, ct_node *node, ct_val *to) {
    ct_arena *arena = s->graph->arena;
    ct_tensor *in = ct__arena(arena, (node->n_in + 1u) * sizeof *in);
    if (!in) return false;
    for (int k = 0; k < node->n_in; k++) {
        const ct_val v = split_map_value(s, p, node->in[k]);
        if (!v.node) return false;
        if (node->op->moves) { // the value is on this device already
            to[0] = v;
            return true;
        }
        in[k] = ct__handle_of(v);
    }
    uint32_t out;
    ct_node *made = ct__peek(ct__record(node->op, node->attrs, in, node->n_in, node->here), &out);
    if (!made || s->ctx->err.code) return false;
    for (int k = 0; k < node->n_out; k++) to[k] = (ct_val){made, (uint32_t)k};
    return true;
}

static bool split_add_root(ct_part *part, ct_root_kind kind, ct_val v, uint32_t number) {
    part->root[part->graph.n_roots] = number;
    part->graph.roots[part->graph.n_roots++] = (struct ct_graph_root){kind, v, -1};
    return v.node != NULL;
}

// Makes a part. It has no assignments: variables get their new values after all parts have run.
static bool split_make_part(split_state *s, uint32_t p) {
    const ct_graph *g = s->graph;
    ct_part *part = &s->parts->v[p];
    const size_t n_leaves = g->n_leaves + s->parts->n_between;
    const size_t n_roots = g->n_roots + s->parts->n_between;
    part->graph = (ct_graph){.arena = g->arena, .n_scalars = g->n_scalars};
    part->leaf = ct__arena(g->arena, (n_leaves + 1) * sizeof *part->leaf);
    part->leaf_nodes = ct__arena(g->arena, (n_leaves + 1) * sizeof *part->leaf_nodes);
    part->root = ct__arena(g->arena, (n_roots + 1) * sizeof *part->root);
    part->graph.roots = ct__arena(g->arena, (n_roots + 1) * sizeof *part->graph.roots);
    s->leaf = ct__arena_zero(g->arena, (n_leaves + 1) * sizeof(ct_node *));
    s->needed = ct__arena_zero(g->arena, g->n + 1);
    if (!part->leaf || !part->leaf_nodes || !part->root || !part->graph.roots || !s->leaf ||
        !s->needed)
        return false;
    for (size_t i = g->n; i-- > 0;) {
        s->needed[i] |= s->part_of[i] == p;
        for (int k = 0; s->needed[i] && k < g->nodes[i]->n_in; k++)
            s->needed[g->nodes[i]->in[k].node->index] |= split_is_free(s, g->nodes[i]->in[k].node);
    }
    for (size_t i = 0; i < g->n; i++) {
        ct_node *node = g->nodes[i];
        if (!s->needed[i] || split_is_leaf(node)) continue;
        s->map[i] = ct__arena_zero(g->arena, (node->n_out + 1u) * sizeof **s->map);
        if (!s->map[i] || !split_copy_node(s, p, node, s->map[i])) return false;
    }
    for (size_t i = 0; i < g->n; i++)
        for (int o = 0; s->part_of[i] == p && s->between[i] != UINT32_MAX && o < g->nodes[i]->n_out;
             o++)
            if (!split_add_root(part, CT_ROOT_READ, s->map[i][o],
                                (uint32_t)g->n_roots + s->between[i] + (uint32_t)o))
                return false;
    for (size_t r = 0; r < g->n_roots; r++)
        if (s->part_of[g->roots[r].val.node->index] == p &&
            !split_add_root(part, CT_ROOT_READ, split_map_value(s, p, g->roots[r].val),
                            (uint32_t)r))
            return false;
    return true;
}

bool ct__split_by_device(ct_ctx *ctx, const ct_graph *g, ct_parts *parts) {
    split_state s = {.ctx = ctx, .graph = g, .parts = parts};
    const size_t n = g->n + 1;
    s.device = ct__arena(g->arena, n * sizeof *s.device);
    s.level = ct__arena(g->arena, n * sizeof *s.level);
    s.between = ct__arena(g->arena, n * sizeof *s.between);
    s.part_of = ct__arena(g->arena, n * sizeof *s.part_of);
    s.map = ct__arena_zero(g->arena, n * sizeof *s.map);
    for (size_t i = 0; i < g->n; i++) g->nodes[i]->index = (uint32_t)i;
    bool ok = s.device && s.level && s.between && s.part_of && s.map;
    if (ok) split_find_levels(&s);
    ok = ok && split_sink_movements(&s) && split_list_parts(&s);
    if (ok) split_number_values(&s);
    for (size_t p = 0; p < parts->n && ok; p++) ok = split_make_part(&s, (uint32_t)p);
    // Listing a part gives its nodes new indices.
    for (size_t p = 0; p < parts->n && ok; p++)
        if (parts->v[p].graph.n_roots) ok = ct__list_graph(ctx, &parts->v[p].graph);
    return ok || ct__err_memory(&ctx->err, CT_NOWHERE, "split", n * sizeof *s.map);
}
