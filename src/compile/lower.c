// The passes, in order: from what the user recorded to a program ready to run.
//
//   expand    bodies of compositions and transforms                        passes/expand.c
//   simplify  fold, share, drop; only algebra that keeps every bit         passes/simplify.c
//   fuse      chooses the values that one kernel computes together         schedule/fuse.c
//   schedule  buffers, launches in order, their kernels                    schedule/schedule.c
//   batch     merges small launches that are independent                   schedule/batch.c
//   plan      lifetimes, and one arena for temporary buffers               memory/memplan.c
//   measure   resources that kernels need, and whether the plan fits       run/build.c, run/cost.c
//   render    kernels as source                                            render/render_c.c
//   cache     kernels known to the process, on disk, or compiled           the device
//
// For devices that evaluate ops (ref), schedule/lower_ops.c makes one launch per node instead of fuse and
// schedule. After each pass come its dump (COTAN_DUMP) and, in debug builds and tests, its verifier. The main
// header of each folder describes its input and output.
#include <stdlib.h>

#include "base/os.h"
#include "base/trace_events.h"
#include "compile/memory/memplan.h"
#include "compile/schedule/batch.h"
#include "compile/check/check.h"
#include "compile/run/cost.h"
#include "compile/check/dump.h"
#include "compile/plan.h"
#include "compile/passes/passes.h"
#include "compile/schedule/schedule.h"
#include "graph/symbols.h"
#include "compile/check/verify.h"

static bool lower_verify_graph(ct_ctx *ctx, const char *pass, const ct_graph *graph) {
    ct__dump_graph(ctx, pass, graph);
    return !ct__verifies() || ct__verify(graph->nodes, graph->n, &ctx->err);
}
static bool lower_verify_groups(ct_sched *s, ct_err *err) {
    ct__dump_groups(s);
    return !ct__verifies() || ct__verify_groups(s, err);
}
static bool lower_verify_program(ct_ctx *ctx, const ct_program *program, bool planned) {
    if (planned) ct__dump_plan(ctx, program);
    return !ct__verifies() || ct__verify_program(program, planned, &ctx->err);
}

bool ct__lower_kernels(const ct_graph *graph, ct_program *program, ct_err *err) {
    ct_sched *s = ct__sched_new(graph, program, err);
    bool ok = s && ct__fuse(s) && lower_verify_groups(s, err) && ct__schedule(s);
    ct__sched_free(s);
    return ok;
}

// Records the graph before any pass changes it, for COTAN_CHECK.
static bool lower_record_graph(ct_ctx *ctx, ct_executor *engine, ct_plan *plan,
                               const ct_graph *graph) {
    if (!(engine->check & CT_CHECK_OPS)) return true;
    plan->check = ct__check_graph(&plan->arena, graph);
    return plan->check || ct__err_memory(&ctx->err, plan->here, "check", graph->n);
}

// Nodes that are evaluated when the plan runs hold their sizes, so the plan is valid for these only.
static bool lower_resolve_sizes(ct_ctx *ctx, const ct_executor *engine, const ct_plan *plan,
                                const ct_graph *graph) {
    bool evaluated = ct__evaluates_ops(engine->device);
    for (size_t i = 0; i < plan->program.n_launches; i++)
        evaluated |= plan->program.launches[i].kind == CT_LAUNCH_NODE;
    if (evaluated) ct__symbols_substitute(ctx->symbols, graph->nodes, graph->n);
    if (plan->check) ct__check_resolve_sizes(plan->check, ctx->symbols);
    if (evaluated || plan->check) ct__symbols_incomplete(ctx->symbols);
    return true;
}

// False if the plan is only tried, to see whether it fits.
static bool lower_continues(ct_regions *regions) {
    regions->fits = true;
    return !regions->only_try;
}

// Lowers a graph of one device.
static bool lower_one_device(ct_ctx *ctx, ct_executor *engine, ct_plan *plan, ct_graph *graph) {
    ct_program *program = &plan->program;
    ct_lowering lowering = ct__evaluates_ops(engine->device) ? ct__lower_ops : ct__lower_kernels;
    program->arena = graph->arena;
    program->symbols = ctx->symbols;
    program->target = ct__target(engine->device);
    program->guard = engine->device->guard;
    return (lowering == ct__lower_ops || plan->check || ct__prune(ctx, graph)) &&
           lowering(graph, program, &ctx->err) &&
           (lowering == ct__lower_ops || ct__batch_launches(program, graph, &ctx->err)) &&
           lower_verify_program(ctx, program, false) && ct__plan_memory(program, &ctx->err) &&
           lower_verify_program(ctx, program, true) &&
           lower_resolve_sizes(ctx, engine, plan, graph) &&
           ct__measure_kernels(ctx, engine, program) && ct__plan_fits(ctx, engine, plan) &&
           lower_continues(ctx->regions) && ct__render_kernels(ctx, engine, program) &&
           ct__compile_kernels(ctx, engine, program);
}

// Makes a subplan for a part of a plan of several devices.
static ct_plan *lower_new_subplan(const ct_plan *whole, const ct_part *part) {
    ct_plan *plan = ct__calloc(1, sizeof *plan);
    if (!plan) return NULL;
    const ct_graph *g = &part->graph;
    plan->here = whole->here;
    plan->n_scalars = whole->n_scalars;
    plan->n_leaves = g->n_leaves;
    plan->n_roots = g->n_roots;
    plan->leaves = ct__arena_zero(g->arena, (g->n_leaves + 1) * sizeof *plan->leaves);
    plan->roots = ct__arena_zero(g->arena, (g->n_roots + 1) * sizeof *plan->roots);
    for (size_t i = 0; i < g->n_leaves && plan->leaves; i++) {
        const ct_node *node = part->leaf_nodes[i];
        plan->leaves[i] = part->leaf[i] < whole->n_leaves
                              ? whole->leaves[part->leaf[i]]
                              : (ct_plan_leaf){.type = *node->out, .here = node->here};
    }
    for (size_t i = 0; i < g->n_roots && plan->roots; i++)
        plan->roots[i] = part->root[i] < whole->n_roots ? whole->roots[part->root[i]]
                                                        : (ct_plan_root){.fresh = true};
    if (plan->leaves && plan->roots) return plan;
    ct__free(plan);
    return NULL;
}

// Lowers a graph of several devices to subplans, whose sizes are fixed.
static bool lower_several_devices(ct_ctx *ctx, ct_plan *plan, ct_graph *graph) {
    ct_parts *parts = ct__arena_zero(&plan->arena, sizeof *parts);
    if (!parts || !ct__split_by_device(ctx, graph, parts)) return false;
    plan->subplans = ct__arena_zero(&plan->arena, (parts->n + 1) * sizeof *plan->subplans);
    if (!plan->subplans) return false;
    plan->n_between = parts->n_between;
    bool ok = true;
    for (size_t i = 0; i < parts->n && ok; i++) {
        ct_part *part = &parts->v[i];
        if (!part->graph.n_roots) continue; // leaves only
        ct_subplan *piece = &plan->subplans[plan->n_subplans];
        *piece = (ct_subplan){.engine = ct__executor_at(ctx, (int)part->device), .part = part};
        if (!piece->engine || !(piece->plan = lower_new_subplan(plan, part))) return false;
        plan->n_subplans++;
        ok = lower_verify_graph(ctx, "split", &part->graph) &&
             lower_record_graph(ctx, piece->engine, piece->plan, &part->graph) &&
             lower_one_device(ctx, piece->engine, piece->plan, &part->graph) &&
             ct__plan_prepare(ctx, piece->engine, piece->plan, &(ct_order){0}, NULL);
    }
    plan->program.symbols = ctx->symbols;
    ct__symbols_incomplete(ctx->symbols);
    return ok;
}

// Opens the devices of the nodes, which another context may have named.
static bool lower_open_devices(ct_ctx *ctx, const ct_order *order) {
    for (size_t i = 0; i < order->n; i++)
        for (int o = 0; o < order->nodes[i]->n_out; o++) {
            const int device = order->nodes[i]->out[o].device;
            if (device && !ct__executor_at(ctx, device)) return false;
        }
    return true;
}

static bool lower_runs_kernels(const ct_executor *engine) {
    return !ct__evaluates_ops(engine->device) && !(engine->check & CT_CHECK_OPS);
}

// True if all devices of the graph run kernels, which can take compositions whole.
static bool lower_all_run_kernels(ct_ctx *ctx, const ct_graph *graph) {
    for (size_t i = 0; i < graph->n; i++)
        for (int o = 0; o < graph->nodes[i]->n_out; o++) {
            const ct_executor *engine = ct__executor_at(ctx, graph->nodes[i]->out[o].device);
            if (!engine || !lower_runs_kernels(engine)) return false;
        }
    return true;
}

// Expands the recorded graph. Its devices are known only after the bodies are expanded; if one of them
// evaluates ops, the graph is expanded again without whole compositions.
static bool lower_expand(ct_ctx *ctx, ct_executor *engine, const ct_order *order,
                         const ct_root *roots, size_t n_roots, ct_graph *graph) {
    ctx->whole = lower_runs_kernels(engine);
    if (!ct__expand(ctx, order, roots, n_roots, graph)) return false;
    if (ctx->whole && ct__has_several_devices(graph) && !lower_all_run_kernels(ctx, graph)) {
        ctx->whole = false;
        *graph = (ct_graph){0};
        if (!ct__expand(ctx, order, roots, n_roots, graph)) return false;
    }
    return lower_verify_graph(ctx, "expanded", graph);
}

static bool lower_to_program(ct_ctx *ctx, ct_executor *engine, ct_plan *plan, const ct_order *order,
                             const ct_root *roots, size_t n_roots) {
    ct_graph graph = {0};
    ct__dump_recorded(ctx, order, roots, n_roots);
    if (!lower_open_devices(ctx, order)) return false;
    if (!lower_expand(ctx, engine, order, roots, n_roots, &graph)) return false;
    const bool several = ct__has_several_devices(&graph);
    return (several || lower_record_graph(ctx, engine, plan, &graph)) &&
           ct__simplify(ctx, &graph) && lower_verify_graph(ctx, "simplified", &graph) &&
           (several ? lower_several_devices(ctx, plan, &graph)
                    : lower_one_device(ctx, engine, plan, &graph));
}

// True if any size of the record is dynamic.
static bool lower_is_dynamic(const ct_executor *engine) {
    for (size_t i = 0; i < engine->sizes.n; i++)
        if (engine->sizes.v[i].marked || engine->auto_dynamic[engine->sizes.v[i].word]) return true;
    return false;
}

static ct_plan *lower_make_plan(ct_ctx *ctx, ct_executor *engine, const ct_order *order,
                                const ct_root *roots, size_t n_roots) {
    const uint64_t refused = ct__failed_allocations();
    ct_plan *plan = ct__calloc(1, sizeof *plan);
    if (!plan || !ct__frame_push(ctx, CT_FRAME_TRACE, &plan->arena, roots[0].here)) {
        ct__free(plan);
        return ct__null_memory(&ctx->err, roots[0].here, "plan", sizeof *plan);
    }
    plan->here = roots[0].here;
    plan->n_scalars = order->n_scalars;
    ctx->symbols = ct__symbols_new(&plan->arena);
    if (!ctx->symbols) ct__err_memory(&ctx->err, roots[0].here, "plan", sizeof *plan);
    if (ctx->symbols)
        ct__symbols_set_dynamic(ctx->symbols, engine->auto_dynamic, lower_is_dynamic(engine));
    bool ok = ctx->symbols && ct__plan_name(ctx, plan, order, roots, n_roots) &&
              lower_to_program(ctx, engine, plan, order, roots, n_roots);
    plan->n_regions = ctx->regions->n;
    for (size_t i = 0; i < plan->n_regions; i++) plan->n_recomputed += ctx->regions->v[i].again;
    ctx->symbols = NULL;
    ct__frame_pop(ctx, roots[0].here);
    ok = ok && ct__plan_prepare(ctx, engine, plan, order, engine->roots);
    // A pass that ran out of memory may leave something out; an internal error that follows from it is
    // reported as out of memory.
    if (ct__failed_allocations() != refused && (ok || ctx->err.code == CT_E_INTERNAL)) {
        ctx->err = (ct_err){0};
        ok = ct__err_memory(&ctx->err, plan->here, "plan", ct__failed_allocation_bytes());
    }
    if (!ok) {
        ct__plan_free(engine, plan);
        return NULL;
    }
    return plan;
}

// ---------------------------------------------------------- rematerialisation, if a plan does not fit

typedef struct {
    ct_ctx *ctx;
    ct_executor *engine;
    const ct_order *order;
    const ct_root *roots;
    size_t n_roots;
    // (regions->n) by memory saved per unit of work, largest first
    struct ct_region **ranked;
} lower_remat;

static int lower_compare_gain(const void *a, const void *b) {
    const struct ct_region *x = *(struct ct_region *const *)a, *y = *(struct ct_region *const *)b;
    const double gain = x->bytes * y->work - y->bytes * x->work;
    return gain > 0 ? -1 : gain < 0 ? 1 : x < y ? -1 : x > y;
}

static ct_plan *lower_make_with(const lower_remat *l, size_t n_recomputed, bool only_try) {
    ct_regions *regions = l->ctx->regions;
    for (size_t i = 0; i < regions->n; i++) l->ranked[i]->again = i < n_recomputed;
    regions->at = 0;
    regions->only_try = only_try;
    regions->fits = false;
    l->ctx->err = (ct_err){0}; // of the plan before, which did not fit
    return lower_make_plan(l->ctx, l->engine, l->order, l->roots, l->n_roots);
}

// Makes the plan that recomputes as few of the regions as possible. If recomputing all of them is not enough,
// returns NULL, or that plan if the limit is that of ct__ctx_limit_memory, which is only a goal.
static ct_plan *lower_make_with_remat(lower_remat *l) {
    ct_regions *regions = l->ctx->regions;
    const size_t n = regions->n;
    size_t few = 0, enough = n;
    regions->counted = true;
    for (size_t i = 0; i < n; i++) l->ranked[i] = &regions->v[i];
    qsort(l->ranked, n, sizeof *l->ranked, lower_compare_gain);
    lower_make_with(l, n, true);
    regions->least = !regions->fits;
    if (regions->least)
        return l->engine->memory_limit && l->ctx->err.code == CT_E_LIMIT
                   ? lower_make_with(l, n, false)
                   : NULL;
    while (enough - few > 1) {
        size_t middle = few + (enough - few) / 2;
        lower_make_with(l, middle, true);
        if (!regions->fits && l->ctx->err.code != CT_E_LIMIT) return NULL;
        *(regions->fits ? &enough : &few) = middle;
    }
    return lower_make_with(l, enough, false);
}

ct_plan *ct__plan_make(ct_ctx *ctx, ct_executor *engine, const ct_order *order,
                       const ct_root *roots, size_t n_roots) {
    const int64_t begin = ct__trace_enabled() ? ct__trace_event_now() : 0;
    ct_regions regions = {0};
    ctx->regions = &regions;
    ct_plan *plan = lower_make_plan(ctx, engine, order, roots, n_roots);
    if (!plan && ctx->err.code == CT_E_LIMIT && regions.n) {
        lower_remat l = {ctx, engine, order, roots, n_roots, NULL};
        l.ranked = ct__malloc(regions.n * sizeof *l.ranked);
        if (l.ranked) plan = lower_make_with_remat(&l); // otherwise the error is recorded
        ct__free(l.ranked);
        ct__trim_heap(); // frees the plans that were tried
    }
    ctx->regions = NULL;
    ct__free(regions.v);
    if (plan) atomic_fetch_add(&ct__counters.plans_made, 1);
    const ct_trace_event_key what = {CT_TRACE_PLAN, "plan made", "", roots[0].here.file,
                                     roots[0].here.line};
    if (begin) ct__trace_event_add(&what, begin, 0, 0);
    return plan;
}
