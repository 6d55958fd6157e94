// What a scan carries and nobody wants, behind it or in its later turns, is not begun either: what it
// begins with goes, if nobody else needs that. What the loop itself makes of it, its lowering leaves out.
#include <string.h>

#include "compile/passes/passes.h"
#include "transform/loop.h"

// Marks the outputs of loops that others read: (graph->n) of each node its flags, NULL where it is no loop.
static void mark_used(const ct_graph *graph, bool *const *used) {
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

// An operand that the loop reads stands in the place of those that it does not.
static bool drop_begins(ct_node *node, const bool *wanted) {
    const ct_loop loop = ct__loop_of(node);
    bool any = false;
    for (size_t i = 0; i < loop.n_carry && loop.n_carry < node->n_in; i++) {
        if (wanted[i]) continue;
        node->in[i] = node->in[loop.n_carry];
        any = true;
    }
    return any;
}

bool ct__prune(ct_ctx *ctx, ct_graph *graph) {
    bool any = false;
    bool **used = ct__arena_zero(graph->arena, (graph->n + 1) * sizeof *used);
    for (size_t i = 0; used && i < graph->n; i++) {
        ct_node *node = graph->nodes[i];
        node->index = (uint32_t)i;
        if (node->op->kind != &ct__kind_loop || ct__loop_of(node).form != CT_LOOP_SCAN) continue;
        used[i] = ct__arena_zero(graph->arena, node->n_out + 1u);
        if (!used[i]) used = NULL;
    }
    if (used) mark_used(graph, used);
    for (size_t i = 0; used && i < graph->n; i++) {
        if (!used[i]) continue;
        if (!ct__loop_wanted(graph->arena, graph->nodes[i], used[i]))
            used = NULL;
        else
            any |= drop_begins(graph->nodes[i], used[i]);
    }
    if (!used) return ct__err_memory(&ctx->err, CT_NOWHERE, "plan", graph->n * sizeof *used);
    return !any || ct__list_graph(ctx, graph);
}
