// Drops the initial values of carried tensors that nothing uses, neither after the scan nor in its later
// iterations. The lowering of the loop skips their updates.

#include "compile/passes/passes.h"
#include "transform/loop.h"

// Marks the outputs of loops that are used: (graph->n) flags of each node's outputs, NULL if it is no loop.
static void prune_mark_used(const ct_graph *graph, bool *const *used) {
    for (size_t i = 0; i < graph->n; i++)
        for (int k = 0; k < graph->nodes[i]->n_in; k++) {
            const ct_val v = graph->nodes[i]->in[k];
            if (used[v.node->index]) used[v.node->index][v.out] = true;
        }
    for (size_t i = 0; i < graph->n_roots; i++) {
        const ct_val v = graph->roots[i].val;
        if (used[v.node->index]) used[v.node->index][v.out] = true;
    }
}

// Replaces each unneeded initial value by an operand that the loop reads anyway.
static bool prune_drop_initial_values(ct_node *node, const bool *needed) {
    const ct_loop loop = ct__loop_of(node);
    bool changed = false;
    for (size_t i = 0; i < loop.n_carry && loop.n_carry < node->n_in; i++) {
        if (needed[i]) continue;
        node->in[i] = node->in[loop.n_carry];
        changed = true;
    }
    return changed;
}

bool ct__prune(ct_ctx *ctx, ct_graph *graph) {
    bool changed = false;
    bool **used = ct__arena_zero(graph->arena, (graph->n + 1) * sizeof *used);
    for (size_t i = 0; used && i < graph->n; i++) {
        ct_node *node = graph->nodes[i];
        node->index = (uint32_t)i;
        if (node->op->kind != &ct__kind_loop || ct__loop_of(node).form != CT_LOOP_SCAN) continue;
        used[i] = ct__arena_zero(graph->arena, node->n_out + 1u);
        if (!used[i]) used = NULL;
    }
    if (used) prune_mark_used(graph, used);
    for (size_t i = 0; used && i < graph->n; i++) {
        if (!used[i]) continue;
        if (!ct__loop_wanted(graph->arena, graph->nodes[i], used[i]))
            used = NULL;
        else
            changed |= prune_drop_initial_values(graph->nodes[i], used[i]);
    }
    if (!used) return ct__err_memory(&ctx->err, CT_NOWHERE, "plan", graph->n * sizeof *used);
    return !changed || ct__list_graph(ctx, graph);
}
