// Lowers nodes that own bodies to launches: scan and while become a LOOP, cond and switch a SWITCH. Each
// body is lowered once, as a program of its own, whose launches are appended to the surrounding program.
//
// The carried tensors have the locations of the node's outputs. In the body's program they are variables
// that it assigns. So each is updated in place where nothing needs the old value any more, and through a
// copy elsewhere.

#include "compile/schedule/program.h"
#include "transform/loop.h"

typedef struct {
    ct_program *p;
    const ct_node *node;
    ct_loop loop;
    const ct_location *in, *out; // locations of its operands and outputs
    const bool *wanted;          // (number of its outputs)
    ct_lowering lower;
    ct_err *err;
} loop_lowering;

// The location of a parameter or a result of a body, and its step to the next iteration.
typedef struct loop_location {
    ct_location location;
    int64_t step; // in bytes, as attributes hold them
    bool reverse;
    bool assigned; // it is a result: the next value of parameter `leaf`
    uint32_t leaf;
} loop_location;

typedef struct {
    const loop_lowering *o;
    ct_body *body;
    const loop_location *param, *result; // (body->n_params), (body->n_outs)
    const bool *wanted;                  // (body->n_outs), or NULL: all are wanted
    bool in_loop;
    ct_program sub;
    uint32_t *root;    // (g.n_roots) the result of each root
    loop_location *to; // (sub.n_bufs) the location of each buffer
} body_lowering;

static bool lower_loop_no_memory(const loop_lowering *o, size_t bytes) {
    return ct__err_memory(o->err, o->node->here, o->node->op->name, bytes);
}

// ----------------------------------------------------------------------------- a body as a program

// True if a result is no root: a carried tensor that the body returns unchanged, or a result that nothing
// wants.
static bool lower_loop_is_not_root(const body_lowering *l, size_t result) {
    const ct_node *node = l->body->outs[result].node;
    const loop_location *s = &l->result[result];
    return (l->wanted && !l->wanted[result]) ||
           (s->assigned && node->op == &ct__op_data && node->number == s->leaf);
}

static bool lower_loop_body(body_lowering *l) {
    const loop_lowering *o = l->o;
    ct_body *body = l->body;
    ct_graph g = {.arena = o->p->arena,
                  .nodes = ct__arena(o->p->arena, (body->n_nodes + 1) * sizeof *g.nodes),
                  .n_leaves = body->n_params,
                  .is_body = true};
    g.roots = ct__arena_zero(g.arena, (body->n_outs + 1) * sizeof *g.roots);
    l->root = ct__arena(g.arena, (body->n_outs + 1) * sizeof *l->root);
    bool *reached = ct__arena(o->p->arena, body->n_nodes + 1);
    if (!g.roots || !l->root || !g.nodes || !reached)
        return lower_loop_no_memory(o, body->n_outs * sizeof *g.roots);
    ct__body_reach(body, l->wanted, reached);
    for (size_t i = 0; i < body->n_nodes; i++) {
        if (body->nodes[i]->op == &ct__op_param)
            body->nodes[i]->op = &ct__op_data; // a leaf of this program
        if (reached[i]) g.nodes[g.n++] = body->nodes[i];
    }
    for (size_t i = 0; i < body->n_outs; i++) {
        if (lower_loop_is_not_root(l, i)) continue;
        bool assigned = l->result[i].assigned;
        l->root[g.n_roots] = (uint32_t)i;
        g.roots[g.n_roots++] =
            (struct ct_graph_root){.kind = assigned ? CT_ROOT_ASSIGN : CT_ROOT_READ,
                                   .val = body->outs[i],
                                   .leaf = assigned ? (int32_t)l->result[i].leaf : -1};
    }
    l->sub.arena = o->p->arena;
    l->sub.target = o->p->target;
    l->sub.symbols = o->p->symbols;
    return o->lower(&g, &l->sub, o->err);
}

// --------------------------------------------------------------------- its launches in the program

static bool lower_loop_map_bufs(body_lowering *l) {
    ct_program *p = l->o->p;
    l->to = ct__arena_zero(p->arena, (l->sub.n_bufs + 1) * sizeof *l->to);
    if (!l->to) return lower_loop_no_memory(l->o, l->sub.n_bufs * sizeof *l->to);
    for (size_t i = 0; i < l->sub.n_bufs; i++) {
        ct_buf b = l->sub.bufs[i];
        if (b.kind == CT_BUF_LEAF)
            l->to[i] = l->param[b.index];
        else if (b.kind == CT_BUF_ROOT)
            l->to[i] = l->result[l->root[b.index]];
        else if ((l->to[i].location.buf = ct__program_buf(p, b)) == UINT32_MAX)
            return lower_loop_no_memory(l->o, sizeof b);
    }
    return true;
}

// Joins a launch's steps in its own loops and the steps of its buffers in the loop around it.
static bool lower_loop_add_steps(const body_lowering *l, ct_launch *launch) {
    const ct_launch own = *launch;
    ct_arena *arena = l->o->p->arena;
    uint32_t n = own.n_steps;
    size_t max_steps = n + own.n_args + 1u;
    ct_step *steps = launch->steps = ct__arena(arena, max_steps * sizeof *steps);
    int64_t *sizes = launch->step_sizes = ct__arena(arena, max_steps * sizeof *sizes);
    if (!steps || !sizes) return lower_loop_no_memory(l->o, max_steps * sizeof *steps);
    for (uint32_t i = 0; i < n; i++) {
        steps[i] = own.steps[i];
        sizes[i] = own.step_sizes[i];
        steps[i].depth += l->in_loop;
    }
    for (uint32_t k = 0; k < own.n_args; k++) {
        const loop_location *to = &l->to[own.args[k].buf];
        if (!to->step) continue;
        sizes[n] = to->step;
        steps[n++] = (ct_step){.arg = k, .bytes = ct__unmarked(to->step), .reverse = to->reverse};
    }
    launch->n_steps = n;
    if (launch->turn) launch->turn += l->in_loop;
    return true;
}

static bool lower_loop_append_launches(body_lowering *l) {
    ct_program *p = l->o->p;
    uint32_t *numbers = ct__arena(p->arena, (l->sub.n_kernels + 1) * sizeof *numbers);
    if (!numbers) return lower_loop_no_memory(l->o, l->sub.n_kernels * sizeof *numbers);
    for (size_t i = 0; i < l->sub.n_kernels; i++)
        if (!ct__program_kernel(p, &l->sub.kernels[i].ir, &numbers[i]))
            return lower_loop_no_memory(l->o, sizeof *p->kernels);
    for (size_t i = 0; i < l->sub.n_launches; i++) {
        ct_launch launch = l->sub.launches[i];
        if (launch.kind == CT_LAUNCH_KERNEL) launch.kernel = numbers[launch.kernel];
        if (!lower_loop_add_steps(l, &launch)) return false;
        for (uint32_t k = 0; k < launch.n_args; k++) {
            ct_arg *arg = &launch.args[k];
            ct_location to = l->to[arg->buf].location;
            arg->buf = to.buf;
            arg->offset += to.offset;
        }
        if (!ct__program_append(p, launch)) return lower_loop_no_memory(l->o, sizeof launch);
    }
    return true;
}

// Appends the launches of a body.
static bool lower_loop_emit_body_at(const loop_lowering *o, ct_body *body,
                                    const loop_location *param, const loop_location *result,
                                    bool in_loop) {
    body_lowering l = {.o = o, .body = body, .param = param, .result = result, .in_loop = in_loop};
    if (o->loop.form == CT_LOOP_SCAN) l.wanted = o->wanted;
    bool ok = lower_loop_body(&l) && lower_loop_map_bufs(&l) && lower_loop_append_launches(&l);
    ct__program_free(&l.sub);
    return ok;
}

static bool lower_loop_add_marker(const loop_lowering *o, ct_launch launch) {
    launch.node = o->node;
    return ct__program_append(o->p, launch) || lower_loop_no_memory(o, sizeof launch);
}

// --------------------------------------------------------------------------------------- the forms

// Returns the location of one element in each iteration, forwards or backwards.
static loop_location lower_loop_element(const loop_lowering *o, ct_location location,
                                        const ct_type *type) {
    return (loop_location){
        .location = location, .step = ct__bytes_of(type), .reverse = o->loop.reverse};
}

// Returns the location of a parameter. Carried tensors have the locations of the node's outputs; of each x
// the body gets one element.
static loop_location lower_loop_param(const loop_lowering *o, size_t body, size_t p) {
    const ct_loop *l = &o->loop;
    if (l->form != CT_LOOP_SWITCH && p < l->n_carry) return (loop_location){.location = o->out[p]};
    const size_t operand = ct__loop_operand(l, body, p);
    if (p < l->n_carry || p >= l->n_carry + l->n_xs)
        return (loop_location){.location = o->in[operand]};
    const ct_type type = ct__element_type(ct__type(o->node->in[operand]));
    return lower_loop_element(o, o->in[operand], &type);
}

static bool lower_loop_emit_body(const loop_lowering *o, size_t body, const loop_location *result,
                                 bool in_loop) {
    ct_body *b = o->loop.bodies.v[body];
    loop_location *param = ct__arena_zero(o->p->arena, (b->n_params + 1) * sizeof *param);
    if (!param) return lower_loop_no_memory(o, b->n_params * sizeof *param);
    for (size_t p = 0; p < b->n_params; p++) param[p] = lower_loop_param(o, body, p);
    return lower_loop_emit_body_at(o, b, param, result, in_loop);
}

// Emits the LOOP of a body, as one kernel where that is possible.
static bool lower_loop_emit_loop(const loop_lowering *o, ct_launch loop, size_t body,
                                 const loop_location *result) {
    ct_program *p = o->p;
    size_t from = p->n_launches, kernels = p->n_kernels;
    return lower_loop_add_marker(o, loop) && lower_loop_emit_body(o, body, result, true) &&
           lower_loop_add_marker(o, (ct_launch){.kind = CT_LAUNCH_END}) &&
           (o->lower != ct__lower_kernels || ct__merge_loop(p, from, kernels, o->err));
}

static bool lower_loop_copy_carry(const loop_lowering *o) {
    for (size_t i = 0; i < o->loop.n_carry; i++)
        if (o->wanted[i] && o->in[i].buf != o->out[i].buf &&
            !ct__program_copy(o->p, ct__arg_at(o->in[i]), ct__arg_at(o->out[i]), o->node,
                              ct__bytes_of(&o->node->out[i])))
            return lower_loop_no_memory(o, sizeof(ct_launch));
    return true;
}

static loop_location *lower_loop_results(const loop_lowering *o, const ct_body *body) {
    loop_location *to = ct__arena_zero(o->p->arena, (body->n_outs + 1) * sizeof *to);
    for (size_t i = 0; to && i < o->loop.n_carry; i++)
        to[i] = (loop_location){.location = o->out[i], .assigned = true, .leaf = (uint32_t)i};
    if (!to) lower_loop_no_memory(o, body->n_outs * sizeof *to);
    return to;
}

static bool lower_loop_scan(const loop_lowering *o) {
    const ct_loop *l = &o->loop;
    const ct_body *body = l->bodies.v[0];
    loop_location *result = lower_loop_results(o, body);
    if (!result) return false;
    for (size_t i = l->n_carry; i < body->n_outs; i++)
        result[i] = lower_loop_element(o, o->out[i], ct__type(body->outs[i]));
    const ct_launch loop = {
        .kind = CT_LAUNCH_LOOP, .size = l->length, .count = ct__unmarked(l->length)};
    return lower_loop_copy_carry(o) && lower_loop_emit_loop(o, loop, 0, result);
}

// The predicate is computed before the loop, and then at the end of each iteration.
static bool lower_loop_while(const loop_lowering *o) {
    const ct_loop *l = &o->loop;
    loop_location *result = lower_loop_results(o, l->bodies.v[1]);
    ct_buf holds = {.kind = CT_BUF_TEMP, .size = (int64_t)ct_dtype_size(CT_BOOL), .node = o->node};
    ct_arg *arg = ct__arena_zero(o->p->arena, sizeof *arg);
    if (!result) return false;
    if (!arg || (arg->buf = ct__program_buf(o->p, holds)) == UINT32_MAX)
        return lower_loop_no_memory(o, sizeof *arg);
    result[l->n_carry] = (loop_location){.location = {.buf = arg->buf}};
    const ct_launch loop = {
        .kind = CT_LAUNCH_LOOP, .size = INT64_MAX, .count = INT64_MAX, .args = arg, .n_args = 1};
    return lower_loop_copy_carry(o) && lower_loop_emit_body(o, 0, &result[l->n_carry], false) &&
           lower_loop_emit_loop(o, loop, 1, result);
}

static bool lower_loop_switch(const loop_lowering *o) {
    const ct_bodies *branches = &o->loop.bodies;
    loop_location *result = ct__arena_zero(o->p->arena, (o->node->n_out + 1u) * sizeof *result);
    ct_arg *arg = ct__arena_zero(o->p->arena, sizeof *arg);
    if (!result || !arg) return lower_loop_no_memory(o, o->node->n_out * sizeof *result);
    *arg = ct__arg_at(o->in[0]);
    for (int i = 0; i < o->node->n_out; i++) result[i].location = o->out[i];
    bool ok =
        lower_loop_add_marker(o, (ct_launch){.kind = CT_LAUNCH_SWITCH,
                                             .args = arg,
                                             .n_args = 1,
                                             .count = (int64_t)branches->n,
                                             .dtype = (ct_dtype)ct__type(o->node->in[0])->dtype});
    for (size_t b = 0; b < branches->n && ok; b++)
        ok = lower_loop_add_marker(o, (ct_launch){.kind = CT_LAUNCH_BRANCH}) &&
             lower_loop_emit_body(o, b, result, false);
    return ok && lower_loop_add_marker(o, (ct_launch){.kind = CT_LAUNCH_END});
}

bool ct__lower_loop(ct_program *p, const ct_node *node, const ct_location *in,
                    const ct_location *out, const bool *wanted, ct_lowering lower, ct_err *err) {
    static bool (*const forms[])(const loop_lowering *) = {lower_loop_scan, lower_loop_while,
                                                           lower_loop_switch};
    const loop_lowering o = {p, node, ct__loop_of(node), in, out, wanted, lower, err};
    return forms[o.loop.form](&o);
}
