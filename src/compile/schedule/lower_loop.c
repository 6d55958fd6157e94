// Nodes that own bodies as launches: a scan is a LOOP, its body lowered once, as a program of its own,
// and laid into the surrounding one.
//
// The carried tensors lie where the node's outputs do. For the body's program they are variables that
// it assigns: so each is updated in place where nobody needs the old value any more, and elsewhere
// through a copy.
#include <string.h>

#include "compile/schedule/program.h"
#include "kir/kir.h"
#include "ops/rules.h"
#include "transform/trace.h"

typedef struct {
    ct_program *p;
    const ct_node *node;
    const ct_place *in, *out; // of its operands and outputs
    ct_lowering lower;
    ct_err *err;
} owner;

// Where a parameter or a result of a body lies, and how far on in the next iteration.
typedef struct spot {
    ct_place place;
    int64_t step;
    bool assigned; // a result: the next value of parameter `leaf`
    uint32_t leaf;
} spot;

typedef struct {
    const owner *o;
    ct_body *body;
    const spot *param, *result; // (body->n_params), (body->n_outs)
    bool in_loop;
    ct_program sub;
    uint32_t *root; // (g.n_roots) results by root
    spot *to;       // (sub.n_bufs)
} inlay;

static bool no_memory(const owner *o, size_t bytes) {
    return ct__err_memory(o->err, o->node->here, o->node->op->name, bytes);
}

// --------------------------------------------------------------------------- a body as a program

// A carried tensor that the body passes on unchanged is no root.
static bool passes_on(const inlay *l, size_t result) {
    const ct_node *node = l->body->outs[result].node;
    const spot *s = &l->result[result];
    return s->assigned && node->op == &ct__op_data && node->number == s->leaf;
}

static bool lower_body(inlay *l) {
    const owner *o = l->o;
    ct_body *body = l->body;
    ct_graph g = {.arena = o->p->arena,
                  .nodes = body->nodes,
                  .n = body->n_nodes,
                  .n_leaves = body->n_params,
                  .is_body = true};
    g.roots = ct__arena_zero(g.arena, (body->n_outs + 1) * sizeof *g.roots);
    l->root = ct__arena(g.arena, (body->n_outs + 1) * sizeof *l->root);
    if (!g.roots || !l->root) return no_memory(o, body->n_outs * sizeof *g.roots);
    for (size_t i = 0; i < body->n_nodes; i++)
        if (body->nodes[i]->op == &ct__op_param)
            body->nodes[i]->op = &ct__op_data; // a leaf of this program
    for (size_t i = 0; i < body->n_outs; i++) {
        if (passes_on(l, i)) continue;
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
    const ct_step *own = launch->steps;
    uint32_t n = launch->n_steps;
    ct_step *steps = ct__arena(l->o->p->arena, (n + launch->n_args + 1) * sizeof *steps);
    if (!steps) return no_memory(l->o, n * sizeof *steps);
    for (uint32_t i = 0; i < n; i++) {
        steps[i] = own[i];
        steps[i].depth += l->in_loop;
    }
    for (uint32_t k = 0; k < launch->n_args; k++) {
        int64_t bytes = l->to[launch->args[k].buf].step;
        if (bytes) steps[n++] = (ct_step){.arg = k, .bytes = bytes};
    }
    launch->steps = steps;
    launch->n_steps = n;
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
    bool ok = lower_body(&l) && place_bufs(&l) && splice(&l);
    ct__program_free(&l.sub);
    return ok;
}

static bool add_marker(const owner *o, ct_launch launch) {
    launch.node = o->node;
    return ct__program_append(o->p, launch) || no_memory(o, sizeof launch);
}

// ---------------------------------------------------------------------------------------- scan

// The element of the first iteration of what lies at a place: x[0], or backwards the last.
static spot element(const owner *o, ct_place place, const ct_type *type) {
    const scan_attrs *a = o->node->attrs;
    if (type->dyn) ct__symbols_incomplete(o->p->symbols);
    int64_t bytes = (int64_t)ct__type_bytes(type), length = ct__unmarked(a->length);
    if (a->reverse && length) place.offset += (size_t)((length - 1) * bytes);
    return (spot){.place = place, .step = a->reverse ? -bytes : bytes};
}

static bool copy_in_carry(const owner *o, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!ct__program_copy(o->p, ct__arg_at(o->in[i]), ct__arg_at(o->out[i]), o->node,
                              ct__bytes_of(&o->node->out[i])))
            return no_memory(o, sizeof(ct_launch));
    return true;
}

static bool lower_scan(const owner *o) {
    const scan_attrs *a = o->node->attrs;
    if (ct__marked(a->length)) ct__symbols_incomplete(o->p->symbols);
    ct_body *body = a->body;
    size_t nc = (size_t)a->n_carry, nx = (size_t)a->n_xs;
    spot *param = ct__arena_zero(o->p->arena, (body->n_params + 1) * sizeof *param),
         *result = ct__arena_zero(o->p->arena, (body->n_outs + 1) * sizeof *result);
    if (!param || !result) return no_memory(o, body->n_params * sizeof *param);
    for (size_t k = 0; k < body->n_params; k++)
        param[k] = k < nc        ? (spot){.place = o->out[k]}
                   : k < nc + nx ? element(o, o->in[k], body->params[k]->out)
                                 : (spot){.place = o->in[k]};
    for (size_t i = 0; i < body->n_outs; i++)
        result[i] = i < nc ? (spot){.place = o->out[i], .assigned = true, .leaf = (uint32_t)i}
                           : element(o, o->out[i], ct__type(body->outs[i]));
    return copy_in_carry(o, nc) &&
           add_marker(o, (ct_launch){.kind = CT_LAUNCH_LOOP, .count = ct__unmarked(a->length)}) &&
           lay_body(o, body, param, result, true) &&
           add_marker(o, (ct_launch){.kind = CT_LAUNCH_END});
}

bool ct__lower_loop(ct_program *p, const ct_node *node, const ct_place *in, const ct_place *out,
                    ct_lowering lower, ct_err *err) {
    const owner o = {p, node, in, out, lower, err};
    return lower_scan(&o);
}
