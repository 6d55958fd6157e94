// Evaluates a graph op by op on a device: each op is a program of its own, whose operands are uploaded and
// whose results are downloaded. Loops are run here, their bodies in the same way.
#include <string.h>

#include "graph/symbols.h"
#include "backend/memory.h"
#include "compile/memory/memplan.h"
#include "compile/check/check.h"
#include "kinds/kind.h"
#include "transform/loop.h"

typedef struct check_op {
    const ct_node *node;   // of the expanded graph: has types, attributes, line
    uint32_t *in, out;     // value numbers of its operands (n_in) and of its first output
    ct_program program;    // unless it is a leaf or a loop
    ct_check_graph **body; // (n_bodies) of a loop
    size_t n_bodies;
} check_op;

struct ct_check_graph {
    check_op *ops; // (n)
    size_t n, n_values, n_roots;
    uint32_t *users; // number of operands and roots that are this value
    uint32_t *root;  // (n_roots) value numbers
    ct_arena *arena; // the plan's
    bool ready;      // its programs are compiled
};

typedef struct checked_value {
    void *bytes;
    uint32_t users; // remaining number of uses
    uint32_t origin;
    bool owned;
} checked_value;

typedef struct ct_check_loop {
    const struct ct_check_loop *outer;
    const ct_node *node;
    const char *in; // "iteration", "branch"
    int64_t number;
} ct_check_loop;

// The values of a graph's leaves: of a plan (order), or of a loop's body (param).
typedef struct {
    const ct_order *order;
    const checked_value *param;
} leaf_source;

static ct_device *check_ops_device(const ct_check_run *x) { return x->engine->device; }
static bool check_ops_no_memory(const ct_check_run *x, size_t bytes) {
    return ct__err_memory(&x->ctx->err, CT_NOWHERE, "check", bytes);
}

// ---------------------------------------------------------------------------- the recorded graph

static ct_check_graph *check_ops_record_graph(ct_arena *arena, ct_node *const *nodes, size_t n,
                                              const struct ct_graph_root *roots, const ct_val *outs,
                                              size_t n_roots) {
    ct_check_graph *g = ct__arena_zero(arena, sizeof *g);
    uint32_t values = 0;
    for (size_t i = 0; i < n; i++) {
        nodes[i]->index = (uint32_t)i;
        values += nodes[i]->n_out;
    }
    if (!g) return NULL;
    *g = (ct_check_graph){.n = n, .n_values = values, .n_roots = n_roots, .arena = arena};
    g->ops = ct__arena_zero(arena, (n + 1) * sizeof *g->ops);
    g->users = ct__arena_zero(arena, (values + 1) * sizeof *g->users);
    g->root = ct__arena_zero(arena, (n_roots + 1) * sizeof *g->root);
    if (!g->ops || !g->users || !g->root) return NULL;
    for (size_t i = 0, at = 0; i < n; i++) {
        check_op *op = &g->ops[i];
        op->node = nodes[i];
        op->out = (uint32_t)at;
        at += nodes[i]->n_out;
        if (!(op->in = ct__arena(arena, (nodes[i]->n_in + 1u) * sizeof *op->in))) return NULL;
        for (int k = 0; k < nodes[i]->n_in; k++) {
            ct_val v = nodes[i]->in[k];
            g->users[op->in[k] = g->ops[v.node->index].out + v.out]++;
        }
    }
    for (size_t i = 0; i < n_roots; i++) {
        ct_val v = roots ? roots[i].val : outs[i];
        g->users[g->root[i] = g->ops[v.node->index].out + v.out]++;
    }
    for (size_t i = 0; i < n; i++) { // bodies come last: they are numbered by a walk of their own
        if (nodes[i]->op->kind != &ct__kind_loop) continue;
        const ct_bodies bodies = ct__loop_of(nodes[i]).bodies;
        check_op *op = &g->ops[i];
        if (!(op->body = ct__arena_zero(arena, bodies.n * sizeof *op->body))) return NULL;
        for (op->n_bodies = 0; op->n_bodies < bodies.n; op->n_bodies++) {
            const ct_body *b = bodies.v[op->n_bodies];
            ct_check_graph *body =
                check_ops_record_graph(arena, b->nodes, b->n_nodes, NULL, b->outs, b->n_outs);
            if (!body) return NULL;
            op->body[op->n_bodies] = body;
        }
    }
    return g;
}

ct_check_graph *ct__check_graph(ct_arena *arena, const ct_graph *graph) {
    return check_ops_record_graph(arena, graph->nodes, graph->n, graph->roots, NULL,
                                  graph->n_roots);
}

void ct__check_resolve_sizes(ct_check_graph *g, const ct_symbols *symbols) {
    for (size_t i = 0; i < g->n; i++) {
        ct_node *node = (ct_node *)(uintptr_t)g->ops[i].node; // the plan's own
        ct__symbols_substitute(symbols, &node, 1);
    }
}

void ct__check_graph_free(ct_executor *engine, ct_check_graph *g) {
    for (size_t i = 0; g && i < g->n; i++) {
        ct__release_kernels(engine, &g->ops[i].program);
        ct__program_free(&g->ops[i].program);
        for (size_t b = 0; b < g->ops[i].n_bodies; b++)
            ct__check_graph_free(engine, g->ops[i].body[b]);
    }
}

uint32_t ct__check_value_index(const ct_check_graph *g, size_t root) { return g->root[root]; }

// -------------------------------------------------------------------------- programs of single ops

// Makes a graph of one op: its operands are leaves, each output is a root.
static bool check_ops_isolate(const check_op *op, ct_arena *arena, ct_graph *g) {
    const ct_node *node = op->node;
    ct_node *leaf = ct__arena_zero(arena, (node->n_in + 1u) * sizeof *leaf);
    ct_node *copy = ct__arena(arena, sizeof *copy);
    ct_val *in = ct__arena(arena, (node->n_in + 1u) * sizeof *in);
    *g = (ct_graph){.arena = arena, .n_leaves = node->n_in, .n_roots = node->n_out};
    g->nodes = ct__arena(arena, (node->n_in + 1u) * sizeof *g->nodes);
    g->roots = ct__arena_zero(arena, (node->n_out + 1u) * sizeof *g->roots);
    if (!leaf || !copy || !in || !g->nodes || !g->roots) return false;
    for (int k = 0; k < node->n_in; k++) {
        ct_val v = node->in[k];
        int same = 0; // equal operands are one leaf
        while (op->in[same] != op->in[k]) same++;
        in[k] = (ct_val){&leaf[same], 0};
        if (same < k) continue;
        bool constant = v.node->op == &ct__op_const;
        leaf[k] = *v.node;
        leaf[k].op = constant ? v.node->op : &ct__op_data;
        leaf[k].attrs = constant ? v.node->attrs : NULL;
        leaf[k].out = &v.node->out[v.out];
        leaf[k].in = NULL;
        leaf[k].value = NULL;
        leaf[k].n_in = 0;
        leaf[k].n_out = 1;
        leaf[k].number = (uint64_t)k;
        g->nodes[g->n++] = &leaf[k];
    }
    *copy = *node;
    copy->in = in;
    copy->value = NULL;
    g->nodes[g->n++] = copy;
    for (int k = 0; k < node->n_out; k++)
        g->roots[k] = (struct ct_graph_root){CT_ROOT_READ, .val = {copy, (uint32_t)k}, .leaf = -1};
    return true;
}

static bool check_ops_lower(ct_check_run *x, ct_check_graph *g, ct_program *all) {
    ct_lowering lowering =
        ct__evaluates_ops(check_ops_device(x)) ? ct__lower_ops : ct__lower_kernels;
    for (size_t i = 0; i < g->n; i++) {
        check_op *op = &g->ops[i];
        ct_program *p = &op->program;
        ct_graph graph;
        for (size_t b = 0; b < op->n_bodies; b++)
            if (!check_ops_lower(x, op->body[b], all)) return false;
        if (op->body || op->node->op->kind == &ct__kind_leaf) continue;
        p->arena = g->arena;
        p->target = ct__target(check_ops_device(x));
        if (!check_ops_isolate(op, g->arena, &graph)) return check_ops_no_memory(x, sizeof graph);
        if (!lowering(&graph, p, &x->ctx->err) || !ct__plan_memory(p, &x->ctx->err)) return false;
        if (!CT_GROW(all->kernels, all->kernels_cap, all->n_kernels + p->n_kernels))
            return check_ops_no_memory(x, p->n_kernels * sizeof *all->kernels);
        for (size_t k = 0; k < p->n_kernels; k++) all->kernels[all->n_kernels++] = p->kernels[k];
    }
    return true;
}

static void check_ops_assign_kernels(ct_check_graph *g, const struct ct_program_kernel **next) {
    for (size_t i = 0; i < g->n; i++) {
        ct_program *p = &g->ops[i].program;
        for (size_t b = 0; b < g->ops[i].n_bodies; b++)
            check_ops_assign_kernels(g->ops[i].body[b], next);
        for (size_t k = 0; k < p->n_kernels; k++) p->kernels[k].made = (*next)++->made;
    }
}

// All kernels are compiled together: one by one each would pay for a compiler's start.
static bool check_ops_compile(ct_check_run *x, ct_check_graph *g) {
    if (g->ready) return true;
    ct_program all = {.arena = g->arena, .target = ct__target(check_ops_device(x))};
    bool ok = check_ops_lower(x, g, &all);
    if (ok && all.n_kernels)
        ok = ct__measure_kernels(x->ctx, x->engine, &all) &&
             ct__render_kernels(x->ctx, x->engine, &all) &&
             ct__compile_kernels(x->ctx, x->engine, &all);
    const struct ct_program_kernel *next = all.kernels;
    if (ok)
        check_ops_assign_kernels(g, &next);
    else
        ct__release_kernels(x->engine, &all);
    ct__free(all.kernels);
    return g->ready = ok;
}

// ---------------------------------------------------------------------------- one op on the device

typedef struct {
    void **buffer; // (program.n_bufs)
    void *temp;
} op_memory;

static bool check_ops_alloc_buffers(ct_check_run *x, const ct_program *p, void *const *in,
                                    op_memory *m) {
    ct_device *device = check_ops_device(x);
    ct_err *err = &x->ctx->err;
    if (p->arena_bytes &&
        !(m->temp = ct__device_alloc(device, p->arena_bytes, CT_MEMORY_ARENAS, err)))
        return false;
    for (size_t i = 0; i < p->n_bufs; i++) {
        const ct_buf *b = &p->bufs[i];
        if (b->kind == CT_BUF_TEMP) {
            m->buffer[i] = m->temp;
            continue;
        }
        m->buffer[i] = ct__device_alloc(device, b->bytes, CT_MEMORY_VALUES, err);
        if (!m->buffer[i]) return false;
        const void *from = b->kind == CT_BUF_LEAF    ? in[b->index]
                           : b->kind == CT_BUF_CONST ? b->data
                                                     : NULL;
        if (from && b->bytes &&
            !device->backend->copy_in(device, (ct_operand){m->buffer[i], 0}, from, b->bytes, err))
            return false;
    }
    return true;
}

static void check_ops_free_buffers(ct_check_run *x, const ct_program *p, op_memory *m) {
    ct_device *device = check_ops_device(x);
    ct__device_wait(device, NULL);
    for (size_t i = 0; i < p->n_bufs; i++)
        if (m->buffer[i] && p->bufs[i].kind != CT_BUF_TEMP)
            ct__device_free(device, m->buffer[i], p->bufs[i].bytes, CT_MEMORY_VALUES);
    if (m->temp) ct__device_free(device, m->temp, p->arena_bytes, CT_MEMORY_ARENAS);
}

static bool check_ops_launch(ct_check_run *x, const ct_program *p, const op_memory *m,
                             const ct_launch *l, ct_arena *scratch) {
    ct_operand *args = ct__arena(scratch, (l->n_args + 1) * sizeof *args);
    ct_command *c = ct__arena_zero(scratch, sizeof *c);
    if (!args || !c) return check_ops_no_memory(x, (l->n_args + 1) * sizeof *args);
    for (uint32_t k = 0; k < l->n_args; k++) {
        const ct_buf *b = &p->bufs[l->args[k].buf];
        size_t base = b->kind == CT_BUF_TEMP ? b->offset : 0;
        args[k] = (ct_operand){m->buffer[l->args[k].buf], base + l->args[k].offset};
    }
    *c = ct__program_command(p, l);
    c->args = args;
    ct_device *device = check_ops_device(x);
    return device->backend->submit(device, c, 1, &x->ctx->err);
}

static bool check_ops_run_on_device(ct_check_run *x, const check_op *op, void *const *in,
                                    void *const *out, ct_arena *scratch) {
    const ct_program *p = &op->program;
    ct_device *device = check_ops_device(x);
    op_memory m = {.buffer = ct__arena_zero(scratch, (p->n_bufs + 1) * sizeof *m.buffer)};
    if (!m.buffer) return check_ops_no_memory(x, (p->n_bufs + 1) * sizeof *m.buffer);
    bool ok = check_ops_alloc_buffers(x, p, in, &m);
    for (size_t i = 0; i < p->n_launches && ok; i++)
        ok = check_ops_launch(x, p, &m, &p->launches[i], scratch);
    for (size_t i = 0; i < p->n_bufs && ok; i++)
        if (p->bufs[i].kind == CT_BUF_ROOT && p->bufs[i].bytes)
            ok = device->backend->copy_out(device, (ct_operand){m.buffer[i], 0},
                                           out[p->bufs[i].index], p->bufs[i].bytes, &x->ctx->err);
    check_ops_free_buffers(x, p, &m);
    return ok;
}

// ----------------------------------------------------------------------------------- the reference

// Writes the iterations of the open loops: ", in iteration 3 of the scan of f.c:12".
static void check_ops_write_loops(ct_text *text, const ct_check_loop *loop) {
    for (; loop; loop = loop->outer)
        ct__textf(text, ", in %s %lld of the %s of %s:%u", loop->in, (long long)loop->number,
                  loop->node->op->name, loop->node->here.file ? loop->node->here.file : "?",
                  loop->node->here.line);
}

static void *check_ops_magnitude(const ct_type *type, const void *bytes, ct_arena *scratch) {
    size_t size = ct__type_bytes(type);
    void *to = ct__arena(scratch, size + 8);
    if (!to || !ct__is_float(type->dtype)) return to ? memcpy(to, bytes, size) : NULL;
    for (int64_t i = 0; i < ct__count(type); i++) {
        double v = ct__load_f64(type->dtype, bytes, i);
        ct__store_f64(type->dtype, to, i, v < 0 ? -v : v);
    }
    return to;
}

static bool check_ops_run_reference(ct_check_run *x, const ct_node *node, void *const *in,
                                    bool magnitudes, void **args, ct_arena *scratch) {
    for (int k = 0; k < node->n_in; k++) {
        args[k] = magnitudes ? check_ops_magnitude(ct__type(node->in[k]), in[k], scratch) : in[k];
        if (!args[k]) return check_ops_no_memory(x, ct__type_bytes(ct__type(node->in[k])));
    }
    for (int k = 0; k < node->n_out; k++) {
        args[node->n_in + k] = ct__arena(scratch, ct__type_bytes(&node->out[k]) + 8);
        if (!args[node->n_in + k]) return check_ops_no_memory(x, ct__type_bytes(&node->out[k]));
    }
    return ct__ref_node(node, args, NULL, &x->ctx->err);
}

bool ct__check_report(ct_check_run *x, const ct_node *node, ct_text *text) {
    if (text->failed)
        check_ops_no_memory(x, text->n);
    else
        ct__err(&x->ctx->err, CT_E_CHECK, node->here, node->op->name, "%s", text->s);
    ct__text_free(text);
    return false;
}

static bool check_ops_report_difference(ct_check_run *x, const ct_node *node, uint32_t k,
                                        ct_check_difference d, void *const *in, const void *got,
                                        const void *want) {
    const ct_type *type = &node->out[k];
    ct_text text = {0};
    ct__textf(&text, "device %s differs from ref in %lld of %lld elements, first at ",
              ct__ctx_device(x->ctx), (long long)d.count, (long long)ct__count(type));
    ct__check_write_difference(&text, type, d.at, got, want);
    if (d.allowed > 0) ct__textf(&text, " (%.2g allowed)", d.allowed);
    ct__check_write_inputs(&text, node, in);
    check_ops_write_loops(&text, x->loop);
    return ct__check_report(x, node, &text);
}

static bool check_ops_compare(ct_check_run *x, const ct_node *node, void *const *in,
                              void *const *out, ct_arena *scratch) {
    size_t n = node->n_in + node->n_out + 1u;
    void **want = ct__arena(scratch, n * sizeof *want), **most = NULL;
    if (!want) return check_ops_no_memory(x, n * sizeof *want);
    if (!check_ops_run_reference(x, node, in, false, want, scratch)) return false;
    if (ct__check_accumulates(node)) {
        if (!(most = ct__arena(scratch, n * sizeof *most)))
            return check_ops_no_memory(x, n * sizeof *most);
        if (!check_ops_run_reference(x, node, in, true, most, scratch)) return false;
    }
    for (uint32_t k = 0; k < node->n_out; k++) {
        ct_check_difference d = ct__check_compare(node, k, in, out[k], want[node->n_in + k],
                                                  most ? most[node->n_in + k] : NULL);
        if (d.count)
            return check_ops_report_difference(x, node, k, d, in, out[k], want[node->n_in + k]);
    }
    return true;
}

// ---------------------------------------------------------------------------- origins of NaN

static uint32_t check_ops_add_event(ct_check_run *x, const ct_node *node, ct_text *text) {
    check_ops_write_loops(text, x->loop);
    bool has_room = !text->failed && CT_GROW(x->events, x->events_cap, x->n_events + 1);
    const char *stored = has_room ? ct__arena_str(&x->arena, text->s) : NULL;
    if (stored)
        x->events[x->n_events++] =
            (ct_check_event){node->here, node->var ? "variable" : node->op->name, stored};
    else
        check_ops_no_memory(x, text->n + 1);
    ct__text_free(text);
    return (uint32_t)x->n_events;
}

// Returns the event of an input that holds NaN; infinities in inputs are deliberate.
static uint32_t check_ops_input_origin(ct_check_run *x, const ct_node *node, const void *bytes) {
    ct_check_nonfinite bad = ct__check_count_nonfinite(node->out, bytes);
    if (!bad.nan) return 0;
    ct_text text = {0};
    if (node->var) ct__textf(&text, "\"%s\" ", node->var->name);
    bad.infinite = 0;
    ct__textf(&text, "%s holds ", ct__type_text(node->out).s);
    ct__check_write_nonfinite(&text, node->out, bad);
    return check_ops_add_event(x, node, &text);
}

// Returns the operand that a NaN or infinity in a result comes from; -1: none, the op made it. `is_nan`:
// the operand holds a NaN, not only an infinity.
static int check_ops_find_source(const ct_node *node, void *const *in, int64_t at, bool *is_nan) {
    bool each = node->op->kind->scheduled == CT_POINTWISE;
    int found = -1, chosen = -1;
    if (each && node->op->condition) {
        const ct_type *type = ct__type(node->in[0]);
        chosen = ct__load_i64(type->dtype, in[0], ct__broadcast_index(node->out, type, at)) ? 1 : 2;
    }
    *is_nan = false;
    for (int k = 0; k < node->n_in && !*is_nan; k++) {
        const ct_type *type = ct__type(node->in[k]);
        if ((chosen >= 0 && k != chosen) || !ct__is_float(type->dtype)) continue;
        ct_check_nonfinite bad;
        if (each) {
            ct_type one = {.dtype = type->dtype};
            size_t offset =
                (size_t)ct__broadcast_index(node->out, type, at) * ct_dtype_size(type->dtype);
            bad = ct__check_count_nonfinite(&one, (const char *)in[k] + offset);
        } else {
            bad = ct__check_count_nonfinite(type, in[k]);
        }
        if (bad.nan || (bad.infinite && found < 0)) found = k;
        *is_nan = bad.nan > 0;
    }
    return found;
}

static uint32_t check_ops_result_origin(ct_check_run *x, const check_op *op, uint32_t out,
                                        const checked_value *values, void *const *in,
                                        const void *bytes) {
    const ct_node *node = op->node;
    const ct_type *type = &node->out[out];
    ct_check_nonfinite bad = ct__check_count_nonfinite(type, bytes);
    if (!ct__has_nonfinite(bad)) return 0;
    bool source_has_nan;
    int source = check_ops_find_source(node, in, bad.at, &source_has_nan);
    uint32_t origin = source >= 0 ? values[op->in[source]].origin : 0;
    if (origin) return origin;
    // Infinities in inputs are deliberate until an op makes a NaN of them.
    if (source >= 0 && (!bad.nan || source_has_nan)) return 0;
    const ct_kind *kind = node->op->kind;
    if (kind->copies || (node->n_in && ct__count(ct__type(node->in[0])) == 0)) return 0;
    ct_text text = {0};
    ct__text_add(&text, "made ");
    ct__check_write_nonfinite(&text, type, bad);
    ct__check_write_inputs(&text, node, in);
    if (kind->positions && bad.nan) ct__check_write_out_of_range(&text, node, in);
    return check_ops_add_event(x, node, &text);
}

// ---------------------------------------------------------------------------------------- the walk

static void check_ops_release(checked_value *v) {
    if (v->users && --v->users) return;
    if (v->owned) ct__free(v->bytes);
    v->bytes = NULL;
    v->owned = false;
}

static bool check_ops_alloc_value(ct_check_run *x, checked_value *v, const ct_type *type) {
    size_t bytes = ct__type_bytes(type);
    v->bytes = ct__malloc(bytes + 8);
    v->owned = true;
    return v->bytes || check_ops_no_memory(x, bytes);
}

static bool check_ops_load_leaf(ct_check_run *x, const ct_node *node, const leaf_source *from,
                                checked_value *v) {
    if (node->op == &ct__op_const) {
        v->bytes = (void *)(uintptr_t)((const ct_data_bytes *)node->attrs)->bytes;
    } else if (from->param) {
        v->bytes = from->param[node->number].bytes;
        v->origin = from->param[node->number].origin;
        return true;
    } else if (node->op == &ct__op_scalar) {
        v->bytes = &from->order->scalars[node->number]->number;
    } else if (x->saved_leaves[node->number]) {
        v->bytes = x->saved_leaves[node->number];
    } else if (!check_ops_alloc_value(x, v, node->out) ||
               !ct__hooks.download(x->ctx, from->order->leaves[node->number], v->bytes,
                                   ct__type_bytes(node->out))) {
        return false;
    }
    const ct_node *named = node; // has its name
    if (from->order && node->op == &ct__op_data) named = from->order->leaf_nodes[node->number];
    if (x->checks & CT_CHECK_NAN && named->n_out == 1)
        v->origin = check_ops_input_origin(x, named, v->bytes);
    else if (x->checks & CT_CHECK_NAN)
        v->origin = check_ops_input_origin(x, node, v->bytes);
    return true;
}

static bool check_ops_walk(ct_check_run *x, const ct_check_graph *g, const leaf_source *from,
                           checked_value *values);

typedef struct {
    ct_check_run *x;
    const check_op *op;
    ct_loop loop;
    checked_value *values;      // of the graph that contains the loop
    checked_value *param;       // (largest number of parameters) the carried ones own their bytes
    checked_value *body_values; // of the body that ran last
} loop_run;

// Sets the parameters of a body: carried tensors from the results (copied, since the body's results may
// permute them), element `at` of each x, the others whole.
static void check_ops_load_params(loop_run *l, size_t body, int64_t at) {
    const ct_loop *loop = &l->loop;
    const ct_body *b = loop->bodies.v[body];
    for (size_t p = 0; p < b->n_params; p++) {
        const ct_type *type = b->params[p]->out;
        bool carried = loop->form != CT_LOOP_SWITCH && p < loop->n_carry;
        const checked_value *v = carried ? &l->values[l->op->out + p]
                                         : &l->values[l->op->in[ct__loop_operand(loop, body, p)]];
        l->param[p].origin = v->origin;
        if (carried)
            memcpy(l->param[p].bytes, v->bytes, ct__type_bytes(type));
        else
            l->param[p].bytes = v->bytes;
        if (p >= loop->n_carry && p < loop->n_carry + loop->n_xs)
            l->param[p].bytes = (char *)v->bytes + (size_t)at * ct__type_bytes(type);
    }
}

static void check_ops_free_body_values(loop_run *l, const ct_check_graph *body) {
    for (size_t i = 0; l->body_values && i < body->n_values; i++)
        if (l->body_values[i].owned) ct__free(l->body_values[i].bytes);
    ct__free(l->body_values);
    l->body_values = NULL;
}

// Runs a body, which `in` and `number` name in messages, and copies its first n_results results to the
// node's.
static bool check_ops_run_body(loop_run *l, size_t body, const char *in, int64_t number,
                               size_t n_results) {
    ct_check_run *x = l->x;
    const ct_check_graph *g = l->op->body[body];
    const ct_loop *loop = &l->loop;
    ct_check_loop here = {x->loop, l->op->node, in, number};
    check_ops_load_params(l, body, number);
    if (!(l->body_values = ct__calloc(g->n_values + 1, sizeof *l->body_values)))
        return check_ops_no_memory(x, g->n_values * sizeof *l->body_values);
    x->loop = &here;
    bool ok = check_ops_walk(x, g, &(leaf_source){.param = l->param}, l->body_values);
    x->loop = here.outer;
    for (size_t i = 0; i < n_results && ok; i++) {
        checked_value *to = &l->values[l->op->out + i];
        const checked_value *v = &l->body_values[g->root[i]];
        size_t bytes = ct__type_bytes(ct__type(loop->bodies.v[body]->outs[i]));
        bool whole = loop->form == CT_LOOP_SWITCH || i < loop->n_carry;
        memcpy((char *)to->bytes + (whole ? 0 : (size_t)number * bytes), v->bytes, bytes);
        to->origin = whole || !to->origin ? v->origin : to->origin;
    }
    return ok;
}

static bool check_ops_run_scan(loop_run *l) {
    int64_t length = ct__unmarked(l->loop.length);
    bool ok = true;
    for (int64_t step = 0; step < length && ok; step++) {
        ok = check_ops_run_body(l, 0, "iteration", l->loop.reverse ? length - 1 - step : step,
                                l->loop.bodies.v[0]->n_outs);
        check_ops_free_body_values(l, l->op->body[0]);
    }
    return ok;
}

static bool check_ops_run_while(loop_run *l) {
    size_t n = l->loop.n_carry;
    const ct_check_graph *const *g = (const ct_check_graph *const *)l->op->body;
    bool ok = check_ops_run_body(l, 0, "iteration", 0, 0);
    bool holds = ok && *(const bool *)l->body_values[g[0]->root[0]].bytes;
    check_ops_free_body_values(l, g[0]);
    for (int64_t step = 0; ok && holds; step++) {
        ok = check_ops_run_body(l, 1, "iteration", step, n);
        holds = ok && *(const bool *)l->body_values[g[1]->root[n]].bytes;
        check_ops_free_body_values(l, g[1]);
    }
    return ok;
}

static bool check_ops_run_switch(loop_run *l) {
    int64_t n = (int64_t)l->loop.bodies.n;
    const ct_type *type = ct__type(l->op->node->in[0]);
    int64_t branch = ct__load_i64(type->dtype, l->values[l->op->in[0]].bytes, 0);
    branch = branch < 0 ? 0 : branch < n ? branch : n - 1;
    bool ok = check_ops_run_body(l, (size_t)branch, "branch", branch, l->op->node->n_out);
    check_ops_free_body_values(l, l->op->body[branch]);
    return ok;
}

static bool check_ops_run_loop(ct_check_run *x, const check_op *op, checked_value *values) {
    static bool (*const forms[])(loop_run *) = {check_ops_run_scan, check_ops_run_while,
                                                check_ops_run_switch};
    loop_run l = {.x = x, .op = op, .loop = ct__loop_of(op->node), .values = values};
    size_t max_params = 0, carried = l.loop.form == CT_LOOP_SWITCH ? 0 : l.loop.n_carry;
    for (size_t b = 0; b < l.loop.bodies.n; b++)
        if (l.loop.bodies.v[b]->n_params > max_params) max_params = l.loop.bodies.v[b]->n_params;
    if (!(l.param = ct__calloc(max_params + 1, sizeof *l.param)))
        return check_ops_no_memory(x, max_params * sizeof *l.param);
    bool ok = true;
    for (size_t i = 0; i < carried && ok; i++) {
        checked_value *to = &values[op->out + i];
        const checked_value *v = &values[op->in[i]];
        memcpy(to->bytes, v->bytes, ct__type_bytes(&op->node->out[i]));
        to->origin = v->origin;
        ok = check_ops_alloc_value(x, &l.param[i], &op->node->out[i]);
    }
    ok = ok && forms[l.loop.form](&l);
    for (size_t i = 0; i < carried; i++) ct__free(l.param[i].bytes);
    ct__free(l.param);
    return ok;
}

static bool check_ops_run_op(ct_check_run *x, const check_op *op, checked_value *values) {
    const ct_node *node = op->node;
    CT_ARENA scratch = {0};
    void **in = ct__arena(&scratch, (node->n_in + 1u) * sizeof *in);
    void **out = ct__arena(&scratch, (node->n_out + 1u) * sizeof *out);
    bool ok = in && out;
    if (!ok) check_ops_no_memory(x, node->n_in * sizeof *in);
    for (int k = 0; k < node->n_in && ok; k++) in[k] = values[op->in[k]].bytes;
    for (int k = 0; k < node->n_out && ok; k++) {
        ok = check_ops_alloc_value(x, &values[op->out + (uint32_t)k], &node->out[k]);
        out[k] = values[op->out + (uint32_t)k].bytes;
    }
    if (op->body) {
        ok = ok && check_ops_run_loop(x, op, values);
    } else {
        ok = ok && check_ops_run_on_device(x, op, in, out, &scratch);
        if (x->checks & CT_CHECK_REF) ok = ok && check_ops_compare(x, node, in, out, &scratch);
        for (uint32_t k = 0; k < node->n_out && ok && x->checks & CT_CHECK_NAN; k++)
            values[op->out + k].origin = check_ops_result_origin(x, op, k, values, in, out[k]);
    }
    return ok;
}

static bool check_ops_walk(ct_check_run *x, const ct_check_graph *g, const leaf_source *from,
                           checked_value *values) {
    for (size_t i = 0; i < g->n; i++) {
        const check_op *op = &g->ops[i];
        const ct_node *node = op->node;
        for (uint32_t k = 0; k < node->n_out; k++)
            values[op->out + k].users = g->users[op->out + k];
        if (atomic_load(&x->ctx->cancelled))
            return ct__err(&x->ctx->err, CT_E_INTERRUPTED, CT_NOWHERE, "run", CT_CANCELLED);
        bool leaf = node->op->kind == &ct__kind_leaf;
        if (!(leaf ? check_ops_load_leaf(x, node, from, &values[op->out])
                   : check_ops_run_op(x, op, values)) ||
            x->ctx->err.code)
            return false;
        for (int k = 0; k < node->n_in; k++) check_ops_release(&values[op->in[k]]);
        for (uint32_t k = 0; k < node->n_out; k++)
            if (!values[op->out + k].users) check_ops_release(&values[op->out + k]);
    }
    return true;
}

bool ct__check_ops(ct_check_run *x, ct_plan *plan) {
    ct_check_graph *g = plan->check;
    if (!check_ops_compile(x, g)) return false;
    checked_value *values = ct__calloc(g->n_values + 1, sizeof *values);
    if (!values) return check_ops_no_memory(x, g->n_values * sizeof *values);
    bool ok = check_ops_walk(x, g, &(leaf_source){.order = &x->engine->order}, values);
    for (size_t i = 0; i < x->n_roots && ok; i++) {
        const checked_value *v = &values[g->root[i]];
        size_t bytes = ct__type_bytes(ct__type(x->engine->roots[i].val));
        x->origin[i] = v->origin;
        x->root_bytes[i] = ct__malloc(bytes + 8);
        ok = x->root_bytes[i] || check_ops_no_memory(x, bytes);
        if (ok) memcpy(x->root_bytes[i], v->bytes, bytes);
    }
    for (size_t i = 0; i < g->n_values; i++)
        if (values[i].owned) ct__free(values[i].bytes);
    ct__free(values);
    return ok;
}
