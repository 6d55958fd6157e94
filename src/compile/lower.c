// The passes, in order: from what the user recorded to a program ready to run.
#include "compile/cost.h"
#include "compile/dump.h"
#include "compile/plan.h"
#include "compile/rebuild.h"

static bool verified(ct_ctx *ctx, const char *pass, const ct_graph *graph) {
    ct__dump_graph(ctx, pass, graph);
#ifndef NDEBUG
    bool wanted = true;
#else
    bool wanted = ct__env_flag("COTAN_VERIFY"); // the tests set it
#endif
    return !wanted || ct__verify(graph->nodes, graph->n, &ctx->err);
}

static bool lower(ct_ctx *ctx, ct_engine *engine, ct_plan *plan, const ct_order *order,
                  const ct_root *roots, size_t n_roots) {
    ct_graph graph = {0};
    ct__dump_recorded(ctx, order, roots, n_roots);
    if (!ct__expand(ctx, order, roots, n_roots, &graph) || !verified(ctx, "expanded", &graph))
        return false;
    if (!ct__simplify(ctx, &graph) || !verified(ctx, "simplified", &graph)) return false;
    plan->program.arena = &plan->arena;
    bool by_ops = ct__evaluates_ops(engine->device);
    if (!(by_ops ? ct__lower_ops : ct__lower_kernels)(&graph, &plan->program, &ctx->err))
        return false;
    if (!ct__plan_memory(&plan->program, &ctx->err)) return false;
    ct__dump_plan(ctx, &plan->program);
    if (!ct__plan_fits(ctx, engine, plan)) return false;
    return by_ops || ct__build_kernels(ctx, engine, &plan->program);
}

ct_plan *ct__plan_make(ct_ctx *ctx, ct_engine *engine, const ct_order *order, const ct_root *roots,
                       size_t n_roots) {
    ct_plan *plan = ct__calloc(1, sizeof *plan);
    if (!plan || !ct__frame_push(ctx, CT_FRAME_TRACE, &plan->arena, roots[0].here)) {
        ct__free(plan);
        ct__err_memory(&ctx->err, roots[0].here, "plan", sizeof *plan);
        return NULL;
    }
    plan->here = roots[0].here;
    plan->n_scalars = order->n_scalars;
    bool ok = ct__plan_name(ctx, plan, order, roots, n_roots) &&
              lower(ctx, engine, plan, order, roots, n_roots);
    ct__frame_pop(ctx, roots[0].here);
    ok = ok && ct__plan_prepare(ctx, engine, plan, order);
    if (!ok) {
        ct__plan_free(engine, plan);
        return NULL;
    }
    atomic_fetch_add(&ct__counters.plans_made, 1);
    return plan;
}
