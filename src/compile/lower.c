// The passes, in order: from what the user recorded to a program ready to run.
//
//   expand    bodies of compositions and transforms                    passes/expand.c
//   simplify  fold, share, drop; only algebra that keeps every bit     passes/simplify.c
//   fuse      which values one kernel computes together                schedule/fuse.c
//   schedule  buffers, launches in order, their kernels                schedule/schedule.c
//   batch     small launches that do not need each other are one       schedule/batch.c
//   plan      lifetimes, and one arena for what is temporary           memory/memplan.c
//   measure   what kernels need when they run; does the plan fit?      run/build.c, run/cost.c
//   render    kernels as source                                        render/render_c.c
//   cache     known to the process, on disk, or compiled               the device
//
// Devices that evaluate ops (ref) have a launch a node in place of fuse and schedule
// (schedule/lower_ops.c). After each pass stand its dump (COTAN_DUMP) and, in debug builds and tests,
// its verifier. Each folder's head file says what comes in and what goes out.
#include <stdlib.h>

#include "base/os.h"
#include "base/spans.h"
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

static bool legal_graph(ct_ctx *ctx, const char *pass, const ct_graph *graph) {
    ct__dump_graph(ctx, pass, graph);
    return !ct__verifies() || ct__verify(graph->nodes, graph->n, &ctx->err);
}
static bool legal_groups(ct_sched *s, ct_err *err) {
    ct__dump_groups(s);
    return !ct__verifies() || ct__verify_groups(s, err);
}
static bool legal_program(ct_ctx *ctx, const ct_program *program, bool planned) {
    if (planned) ct__dump_plan(ctx, program);
    return !ct__verifies() || ct__verify_program(program, planned, &ctx->err);
}

bool ct__lower_kernels(const ct_graph *graph, ct_program *program, ct_err *err) {
    ct_sched *s = ct__sched_new(graph, program, err);
    bool ok = s && ct__fuse(s) && legal_groups(s, err) && ct__schedule(s);
    ct__sched_free(s);
    return ok;
}

// The graph before any pass has changed it, for COTAN_CHECK.
static bool remembered(ct_ctx *ctx, ct_executor *engine, ct_plan *plan, const ct_graph *graph) {
    if (!(engine->check & CT_CHECK_OPS)) return true;
    plan->check = ct__check_graph(&plan->arena, graph);
    return plan->check || ct__err_memory(&ctx->err, plan->here, "check", graph->n);
}

// Nodes that are evaluated when the plan runs hold their sizes, so the plan is of these alone.
static bool settled(ct_ctx *ctx, const ct_executor *engine, const ct_plan *plan,
                    const ct_graph *graph) {
    bool evaluated = ct__evaluates_ops(engine->device);
    for (size_t i = 0; i < plan->program.n_launches; i++)
        evaluated |= plan->program.launches[i].kind == CT_LAUNCH_NODE;
    if (evaluated) ct__symbols_settle(ctx->symbols, graph->nodes, graph->n);
    if (plan->check) ct__check_resolve_sizes(plan->check, ctx->symbols);
    if (evaluated || plan->check) ct__symbols_incomplete(ctx->symbols);
    return true;
}

// Was no more asked than whether it fits?
static bool wanted(ct_regions *regions) {
    regions->fits = true;
    return !regions->only_try;
}

// A graph of one device.
static bool lower_graph(ct_ctx *ctx, ct_executor *engine, ct_plan *plan, ct_graph *graph) {
    ct_program *program = &plan->program;
    ct_lowering lowering = ct__evaluates_ops(engine->device) ? ct__lower_ops : ct__lower_kernels;
    program->arena = graph->arena;
    program->symbols = ctx->symbols;
    program->target = ct__target(engine->device);
    program->guard = engine->device->guard;
    return (lowering == ct__lower_ops || plan->check || ct__prune(ctx, graph)) &&
           lowering(graph, program, &ctx->err) &&
           (lowering == ct__lower_ops || ct__batch_launches(program, graph, &ctx->err)) &&
           legal_program(ctx, program, false) && ct__plan_memory(program, &ctx->err) &&
           legal_program(ctx, program, true) && settled(ctx, engine, plan, graph) &&
           ct__measure(ctx, engine, program) && ct__plan_fits(ctx, engine, plan) &&
           wanted(ctx->regions) && ct__render(ctx, engine, program) &&
           ct__cache(ctx, engine, program);
}

// A plan of its own for a part of one that lies on several devices.
static ct_plan *piece_plan(const ct_plan *whole, const ct_part *part) {
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

// One of several devices, as pieces. Its sizes are those that it is made for.
static bool lower_pieces(ct_ctx *ctx, ct_plan *plan, ct_graph *graph) {
    ct_parts *parts = ct__arena_zero(&plan->arena, sizeof *parts);
    if (!parts || !ct__split_places(ctx, graph, parts)) return false;
    plan->pieces = ct__arena_zero(&plan->arena, (parts->n + 1) * sizeof *plan->pieces);
    if (!plan->pieces) return false;
    plan->n_between = parts->n_between;
    bool ok = true;
    for (size_t i = 0; i < parts->n && ok; i++) {
        ct_part *part = &parts->v[i];
        if (!part->graph.n_roots) continue; // leaves alone
        ct_piece *piece = &plan->pieces[plan->n_pieces];
        *piece = (ct_piece){.engine = ct__engine_at(ctx, (int)part->place), .part = part};
        if (!piece->engine || !(piece->plan = piece_plan(plan, part))) return false;
        plan->n_pieces++;
        ok = legal_graph(ctx, "split", &part->graph) &&
             remembered(ctx, piece->engine, piece->plan, &part->graph) &&
             lower_graph(ctx, piece->engine, piece->plan, &part->graph) &&
             ct__plan_prepare(ctx, piece->engine, piece->plan, &(ct_order){0}, NULL);
    }
    plan->program.symbols = ctx->symbols;
    ct__symbols_incomplete(ctx->symbols);
    return ok;
}

// The devices that the nodes lie on, which another context may have named.
static bool open_places(ct_ctx *ctx, const ct_order *order) {
    for (size_t i = 0; i < order->n; i++)
        for (int o = 0; o < order->nodes[i]->n_out; o++) {
            const int place = order->nodes[i]->out[o].place;
            if (place && !ct__engine_at(ctx, place)) return false;
        }
    return true;
}

static bool runs_kernels(const ct_executor *engine) {
    return !ct__evaluates_ops(engine->device) && !(engine->check & CT_CHECK_OPS);
}

// Do all devices that the graph lies on run kernels, which take compositions as they are?
static bool all_run_kernels(ct_ctx *ctx, const ct_graph *graph) {
    for (size_t i = 0; i < graph->n; i++)
        for (int o = 0; o < graph->nodes[i]->n_out; o++) {
            const ct_executor *engine = ct__engine_at(ctx, graph->nodes[i]->out[o].place);
            if (!engine || !runs_kernels(engine)) return false;
        }
    return true;
}

// The graph of what was recorded. Where it lies shows when bodies are in their places; if a part of it lies on a
// device that evaluates ops, it is made once more without whole compositions.
static bool expand(ct_ctx *ctx, ct_executor *engine, const ct_order *order, const ct_root *roots,
                   size_t n_roots, ct_graph *graph) {
    ctx->whole = runs_kernels(engine);
    if (!ct__expand(ctx, order, roots, n_roots, graph)) return false;
    if (ctx->whole && ct__lies_apart(graph) && !all_run_kernels(ctx, graph)) {
        ctx->whole = false;
        *graph = (ct_graph){0};
        if (!ct__expand(ctx, order, roots, n_roots, graph)) return false;
    }
    return legal_graph(ctx, "expanded", graph);
}

static bool lower(ct_ctx *ctx, ct_executor *engine, ct_plan *plan, const ct_order *order,
                  const ct_root *roots, size_t n_roots) {
    ct_graph graph = {0};
    ct__dump_recorded(ctx, order, roots, n_roots);
    if (!open_places(ctx, order)) return false;
    if (!expand(ctx, engine, order, roots, n_roots, &graph)) return false;
    const bool apart = ct__lies_apart(&graph);
    return (apart || remembered(ctx, engine, plan, &graph)) && ct__simplify(ctx, &graph) &&
           legal_graph(ctx, "simplified", &graph) &&
           (apart ? lower_pieces(ctx, plan, &graph) : lower_graph(ctx, engine, plan, &graph));
}

// Is anything of the record dynamic?
static bool is_dynamic(const ct_executor *engine) {
    for (size_t i = 0; i < engine->sizes.n; i++)
        if (engine->sizes.v[i].marked || engine->also[engine->sizes.v[i].word]) return true;
    return false;
}

static ct_plan *make(ct_ctx *ctx, ct_executor *engine, const ct_order *order, const ct_root *roots,
                     size_t n_roots) {
    const uint64_t refused = ct__refused();
    ct_plan *plan = ct__calloc(1, sizeof *plan);
    if (!plan || !ct__frame_push(ctx, CT_FRAME_TRACE, &plan->arena, roots[0].here)) {
        ct__free(plan);
        ct__err_memory(&ctx->err, roots[0].here, "plan", sizeof *plan);
        return NULL;
    }
    plan->here = roots[0].here;
    plan->n_scalars = order->n_scalars;
    ctx->symbols = ct__symbols_new(&plan->arena);
    if (!ctx->symbols) ct__err_memory(&ctx->err, roots[0].here, "plan", sizeof *plan);
    if (ctx->symbols) ct__symbols_also(ctx->symbols, engine->also, is_dynamic(engine));
    bool ok = ctx->symbols && ct__plan_name(ctx, plan, order, roots, n_roots) &&
              lower(ctx, engine, plan, order, roots, n_roots);
    plan->n_regions = ctx->regions->n;
    for (size_t i = 0; i < plan->n_regions; i++) plan->n_again += ctx->regions->v[i].again;
    ctx->symbols = NULL;
    ct__frame_pop(ctx, roots[0].here);
    ok = ok && ct__plan_prepare(ctx, engine, plan, order, engine->roots);
    // A pass that went on without memory has left something out, and what is found wrong then is no fault.
    if (ct__refused() != refused && (ok || ctx->err.code == CT_E_INTERNAL)) {
        ctx->err = (ct_err){0};
        ok = ct__err_memory(&ctx->err, plan->here, "plan", ct__refused_bytes());
    }
    if (!ok) {
        ct__plan_free(engine, plan);
        return NULL;
    }
    return plan;
}

// ------------------------------------------------------------------------- a plan that must be less

typedef struct {
    ct_ctx *ctx;
    ct_executor *engine;
    const ct_order *order;
    const ct_root *roots;
    size_t n_roots;
    struct ct_region **ranked; // (regions->n) those that give most memory for their work come first
} lessening;

static int most_for_its_work(const void *a, const void *b) {
    const struct ct_region *x = *(struct ct_region *const *)a, *y = *(struct ct_region *const *)b;
    const double gain = x->bytes * y->work - y->bytes * x->work;
    return gain > 0 ? -1 : gain < 0 ? 1 : x < y ? -1 : x > y;
}

static ct_plan *make_with(const lessening *l, size_t again, bool only_try) {
    ct_regions *regions = l->ctx->regions;
    for (size_t i = 0; i < regions->n; i++) l->ranked[i]->again = i < again;
    regions->at = 0;
    regions->only_try = only_try;
    regions->fits = false;
    l->ctx->err = (ct_err){0}; // of the plan before, which did not fit
    return make(l->ctx, l->engine, l->order, l->roots, l->n_roots);
}

// The plan that computes as few of the regions again as it takes; NULL: all are not enough. That
// is no failure where it is not a limit that asks for less.
static ct_plan *make_less(lessening *l) {
    ct_regions *regions = l->ctx->regions;
    const size_t n = regions->n;
    size_t few = 0, enough = n;
    regions->counted = true;
    for (size_t i = 0; i < n; i++) l->ranked[i] = &regions->v[i];
    qsort(l->ranked, n, sizeof *l->ranked, most_for_its_work);
    make_with(l, n, true);
    regions->least = !regions->fits;
    if (regions->least)
        return l->engine->within && l->ctx->err.code == CT_E_LIMIT ? make_with(l, n, false) : NULL;
    while (enough - few > 1) {
        size_t middle = few + (enough - few) / 2;
        make_with(l, middle, true);
        if (!regions->fits && l->ctx->err.code != CT_E_LIMIT) return NULL;
        *(regions->fits ? &enough : &few) = middle;
    }
    return make_with(l, enough, false);
}

ct_plan *ct__plan_make(ct_ctx *ctx, ct_executor *engine, const ct_order *order,
                       const ct_root *roots, size_t n_roots) {
    const int64_t begin = ct__watched() ? ct__span_now() : 0;
    ct_regions regions = {0};
    ctx->regions = &regions;
    ct_plan *plan = make(ctx, engine, order, roots, n_roots);
    if (!plan && ctx->err.code == CT_E_LIMIT && regions.n) {
        lessening l = {ctx, engine, order, roots, n_roots, NULL};
        l.ranked = ct__malloc(regions.n * sizeof *l.ranked);
        if (l.ranked) plan = make_less(&l); // else the error stands
        ct__free(l.ranked);
        ct__release_unused(); // the plans that were tried
    }
    ctx->regions = NULL;
    ct__free(regions.v);
    if (plan) atomic_fetch_add(&ct__counters.plans_made, 1);
    const ct_span_what what = {CT_SPAN_PLAN, "plan made", "", roots[0].here.file,
                               roots[0].here.line};
    if (begin) ct__span_add(&what, begin, 0, 0);
    return plan;
}
