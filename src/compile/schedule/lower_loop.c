// Nodes that own bodies as launches: scan and while are a LOOP, cond and switch a SWITCH. Each body is
// lowered once, as a program of its own, and laid into the surrounding one.
//
// The carried tensors lie where the node's outputs do. For the body's program they are variables that
// it assigns: so each is updated in place where nobody needs the old value any more, and elsewhere
// through a copy.
#include <string.h>

#include "compile/schedule/program.h"
#include "kir/kir.h"
#include "transform/loop.h"

typedef struct {
    ct_program *p;
    const ct_node *node;
    ct_loop loop;
    const ct_place *in, *out; // of its operands and outputs
    const bool *wanted;       // (its outputs)
    ct_lowering lower;
    ct_err *err;
} owner;

// Where a parameter or a result of a body lies, and how far on in the next iteration.
typedef struct spot {
    ct_place place;
    int64_t step; // bytes, as attributes hold them
    bool reverse;
    bool assigned; // a result: the next value of parameter `leaf`
    uint32_t leaf;
} spot;

typedef struct {
    const owner *o;
    ct_body *body;
    const spot *param, *result; // (body->n_params), (body->n_outs)
    const bool *wanted;         // (body->n_outs), or NULL: all are
    bool in_loop;
    ct_program sub;
    uint32_t *root; // (g.n_roots) results by root
    spot *to;       // (sub.n_bufs)
} inlay;

static bool no_memory(const owner *o, size_t bytes) {
    return ct__err_memory(o->err, o->node->here, o->node->op->name, bytes);
}

// --------------------------------------------------------------------------- a body as a program

// A carried tensor that the body passes on unchanged is no root, nor is what nobody wants.
static bool is_no_root(const inlay *l, size_t result) {
    const ct_node *node = l->body->outs[result].node;
    const spot *s = &l->result[result];
    return (l->wanted && !l->wanted[result]) ||
           (s->assigned && node->op == &ct__op_data && node->number == s->leaf);
}

static bool lower_body(inlay *l) {
    const owner *o = l->o;
    ct_body *body = l->body;
    ct_graph g = {.arena = o->p->arena,
                  .nodes = ct__arena(o->p->arena, (body->n_nodes + 1) * sizeof *g.nodes),
                  .n_leaves = body->n_params,
                  .is_body = true};
    g.roots = ct__arena_zero(g.arena, (body->n_outs + 1) * sizeof *g.roots);
    l->root = ct__arena(g.arena, (body->n_outs + 1) * sizeof *l->root);
    bool *reached = ct__arena(o->p->arena, body->n_nodes + 1);
    if (!g.roots || !l->root || !g.nodes || !reached)
        return no_memory(o, body->n_outs * sizeof *g.roots);
    ct__body_reach(body, l->wanted, reached);
    for (size_t i = 0; i < body->n_nodes; i++) {
        if (body->nodes[i]->op == &ct__op_param)
            body->nodes[i]->op = &ct__op_data; // a leaf of this program
        if (reached[i]) g.nodes[g.n++] = body->nodes[i];
    }
    for (size_t i = 0; i < body->n_outs; i++) {
        if (is_no_root(l, i)) continue;
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

// ----------------------------------------------------------------------- its place in the program

static bool place_bufs(inlay *l) {
    ct_program *p = l->o->p;
    l->to = ct__arena_zero(p->arena, (l->sub.n_bufs + 1) * sizeof *l->to);
    if (!l->to) return no_memory(l->o, l->sub.n_bufs * sizeof *l->to);
    for (size_t i = 0; i < l->sub.n_bufs; i++) {
        ct_buf b = l->sub.bufs[i];
        if (b.kind == CT_BUF_LEAF)
            l->to[i] = l->param[b.index];
        else if (b.kind == CT_BUF_ROOT)
            l->to[i] = l->result[l->root[b.index]];
        else if ((l->to[i].place.buf = ct__program_buf(p, b)) == UINT32_MAX)
            return no_memory(l->o, sizeof b);
    }
    return true;
}

// A launch's steps in its own loops, and those of the buffers that move on with the one around it.
static bool add_steps(const inlay *l, ct_launch *launch) {
    const ct_launch own = *launch;
    ct_arena *arena = l->o->p->arena;
    uint32_t n = own.n_steps;
    size_t most = n + own.n_args + 1u;
    ct_step *steps = launch->steps = ct__arena(arena, most * sizeof *steps);
    int64_t *sizes = launch->step_sizes = ct__arena(arena, most * sizeof *sizes);
    if (!steps || !sizes) return no_memory(l->o, most * sizeof *steps);
    for (uint32_t i = 0; i < n; i++) {
        steps[i] = own.steps[i];
        sizes[i] = own.step_sizes[i];
        steps[i].depth += l->in_loop;
    }
    for (uint32_t k = 0; k < own.n_args; k++) {
        const spot *to = &l->to[own.args[k].buf];
        if (!to->step) continue;
        sizes[n] = to->step;
        steps[n++] = (ct_step){.arg = k, .bytes = ct__unmarked(to->step), .reverse = to->reverse};
    }
    launch->n_steps = n;
    if (launch->turn) launch->turn += l->in_loop;
    return true;
}

static bool splice(inlay *l) {
    ct_program *p = l->o->p;
    uint32_t *number = ct__arena(p->arena, (l->sub.n_kernels + 1) * sizeof *number);
    if (!number) return no_memory(l->o, l->sub.n_kernels * sizeof *number);
    for (size_t i = 0; i < l->sub.n_kernels; i++)
        if (!ct__program_kernel(p, &l->sub.kernels[i].ir, &number[i]))
            return no_memory(l->o, sizeof *p->kernels);
    for (size_t i = 0; i < l->sub.n_launches; i++) {
        ct_launch launch = l->sub.launches[i];
        if (launch.kind == CT_LAUNCH_KERNEL) launch.kernel = number[launch.kernel];
        if (!add_steps(l, &launch)) return false;
        for (uint32_t k = 0; k < launch.n_args; k++) {
            ct_arg *arg = &launch.args[k];
            ct_place to = l->to[arg->buf].place;
            arg->buf = to.buf;
            arg->offset += to.offset;
        }
        if (!ct__program_append(p, launch)) return no_memory(l->o, sizeof launch);
    }
    return true;
}

// The body's launches behind those that there are.
static bool lay_body(const owner *o, ct_body *body, const spot *param, const spot *result,
                     bool in_loop) {
    inlay l = {.o = o, .body = body, .param = param, .result = result, .in_loop = in_loop};
    if (o->loop.form == CT_LOOP_SCAN) l.wanted = o->wanted;
    bool ok = lower_body(&l) && place_bufs(&l) && splice(&l);
    ct__program_free(&l.sub);
    return ok;
}

static bool add_marker(const owner *o, ct_launch launch) {
    launch.node = o->node;
    return ct__program_append(o->p, launch) || no_memory(o, sizeof launch);
}

// --------------------------------------------------------------------------------------- the forms

// An element of what lies at a place in each iteration, forwards or backwards.
static spot element(const owner *o, ct_place place, const ct_type *type) {
    return (spot){.place = place, .step = ct__bytes_of(type), .reverse = o->loop.reverse};
}

// A parameter: carried tensors lie where the node's outputs do, of each x there is one element.
static spot param_at(const owner *o, size_t body, size_t p) {
    const ct_loop *l = &o->loop;
    if (l->form != CT_LOOP_SWITCH && p < l->n_carry) return (spot){.place = o->out[p]};
    const size_t operand = ct__loop_operand(l, body, p);
    if (p < l->n_carry || p >= l->n_carry + l->n_xs) return (spot){.place = o->in[operand]};
    const ct_type type = ct__element_type(ct__type(o->node->in[operand]));
    return element(o, o->in[operand], &type);
}

static bool lay(const owner *o, size_t body, const spot *result, bool in_loop) {
    ct_body *b = o->loop.bodies.v[body];
    spot *param = ct__arena_zero(o->p->arena, (b->n_params + 1) * sizeof *param);
    if (!param) return no_memory(o, b->n_params * sizeof *param);
    for (size_t p = 0; p < b->n_params; p++) param[p] = param_at(o, body, p);
    return lay_body(o, b, param, result, in_loop);
}

// A LOOP of a body, as one kernel where it can be.
static bool lay_loop(const owner *o, ct_launch loop, size_t body, const spot *result) {
    ct_program *p = o->p;
    size_t from = p->n_launches, kernels = p->n_kernels;
    return add_marker(o, loop) && lay(o, body, result, true) &&
           add_marker(o, (ct_launch){.kind = CT_LAUNCH_END}) &&
           (o->lower != ct__lower_kernels || ct__merge_loop(p, from, kernels, o->err));
}

static bool copy_in_carry(const owner *o) {
    for (size_t i = 0; i < o->loop.n_carry; i++)
        if (o->wanted[i] && o->in[i].buf != o->out[i].buf &&
            !ct__program_copy(o->p, ct__arg_at(o->in[i]), ct__arg_at(o->out[i]), o->node,
                              ct__bytes_of(&o->node->out[i])))
            return no_memory(o, sizeof(ct_launch));
    return true;
}

static spot *results(const owner *o, const ct_body *body) {
    spot *to = ct__arena_zero(o->p->arena, (body->n_outs + 1) * sizeof *to);
    for (size_t i = 0; to && i < o->loop.n_carry; i++)
        to[i] = (spot){.place = o->out[i], .assigned = true, .leaf = (uint32_t)i};
    if (!to) no_memory(o, body->n_outs * sizeof *to);
    return to;
}

static bool lower_scan(const owner *o) {
    const ct_loop *l = &o->loop;
    const ct_body *body = l->bodies.v[0];
    spot *result = results(o, body);
    if (!result) return false;
    for (size_t i = l->n_carry; i < body->n_outs; i++)
        result[i] = element(o, o->out[i], ct__type(body->outs[i]));
    const ct_launch loop = {
        .kind = CT_LAUNCH_LOOP, .size = l->length, .count = ct__unmarked(l->length)};
    return copy_in_carry(o) && lay_loop(o, loop, 0, result);
}

// The predicate is computed before the loop, and then at the end of each iteration.
static bool lower_while(const owner *o) {
    const ct_loop *l = &o->loop;
    spot *result = results(o, l->bodies.v[1]);
    ct_buf holds = {.kind = CT_BUF_TEMP, .size = (int64_t)ct_dtype_size(CT_BOOL), .node = o->node};
    ct_arg *arg = ct__arena_zero(o->p->arena, sizeof *arg);
    if (!result) return false;
    if (!arg || (arg->buf = ct__program_buf(o->p, holds)) == UINT32_MAX)
        return no_memory(o, sizeof *arg);
    result[l->n_carry] = (spot){.place = {.buf = arg->buf}};
    const ct_launch loop = {
        .kind = CT_LAUNCH_LOOP, .size = INT64_MAX, .count = INT64_MAX, .args = arg, .n_args = 1};
    return copy_in_carry(o) && lay(o, 0, &result[l->n_carry], false) &&
           lay_loop(o, loop, 1, result);
}

static bool lower_switch(const owner *o) {
    const ct_bodies *branches = &o->loop.bodies;
    spot *result = ct__arena_zero(o->p->arena, (o->node->n_out + 1u) * sizeof *result);
    ct_arg *arg = ct__arena_zero(o->p->arena, sizeof *arg);
    if (!result || !arg) return no_memory(o, o->node->n_out * sizeof *result);
    *arg = ct__arg_at(o->in[0]);
    for (int i = 0; i < o->node->n_out; i++) result[i].place = o->out[i];
    bool ok = add_marker(o, (ct_launch){.kind = CT_LAUNCH_SWITCH,
                                        .args = arg,
                                        .n_args = 1,
                                        .count = (int64_t)branches->n,
                                        .dtype = (ct_dtype)ct__type(o->node->in[0])->dtype});
    for (size_t b = 0; b < branches->n && ok; b++)
        ok = add_marker(o, (ct_launch){.kind = CT_LAUNCH_BRANCH}) && lay(o, b, result, false);
    return ok && add_marker(o, (ct_launch){.kind = CT_LAUNCH_END});
}

bool ct__lower_loop(ct_program *p, const ct_node *node, const ct_place *in, const ct_place *out,
                    const bool *wanted, ct_lowering lower, ct_err *err) {
    static bool (*const forms[])(const owner *) = {lower_scan, lower_while, lower_switch};
    const owner o = {p, node, ct__loop_of(node), in, out, wanted, lower, err};
    return forms[o.loop.form](&o);
}
