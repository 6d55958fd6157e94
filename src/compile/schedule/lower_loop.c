// A scan as launches: its body lowered once, as a program of its own, and laid into the surrounding
// one between LOOP and END.
#include <string.h>

#include "compile/schedule/program.h"
#include "ops/rules.h"
#include "transform/trace.h"

typedef struct {
    ct_program *p;
    const ct_node *node;
    const scan_attrs *a;
    int64_t length;
    const ct_place *in, *out;
    ct_program sub;
    ct_arg *shift; // (sub.n_bufs) what an argument on it gets: buffer, offset, step
} loop;

static uint32_t add_temp(loop *l, size_t bytes) {
    return ct__program_buf(l->p, (ct_buf){.kind = CT_BUF_TEMP, .bytes = bytes, .node = l->node});
}
static bool add_copy(loop *l, ct_arg from, ct_arg to, size_t bytes) {
    return ct__program_copy(l->p, from, to, l->node, bytes);
}
static bool add_marker(loop *l, ct_launch_kind kind, int64_t count) {
    return ct__program_append(l->p, (ct_launch){.kind = kind, .node = l->node, .count = count});
}

// Element `iteration` of x at a place: forwards, or backwards from the last.
static ct_arg element(const loop *l, ct_place place, size_t bytes) {
    int64_t last = l->a->reverse && l->length ? l->length - 1 : 0;
    return (ct_arg){.buf = place.buf,
                    .offset = place.offset + (size_t)last * bytes,
                    .step = l->a->reverse ? -(int64_t)bytes : (int64_t)bytes};
}

static bool lower_body(loop *l, ct_lowering lower, ct_err *err) {
    ct_body *body = l->a->body;
    ct_graph g = {.arena = l->p->arena,
                  .nodes = body->nodes,
                  .n = body->n_nodes,
                  .n_leaves = body->n_params,
                  .n_roots = body->n_outs};
    g.roots = ct__arena_zero(g.arena, (g.n_roots + 1) * sizeof *g.roots);
    if (!g.roots) return ct__err_memory(err, l->node->here, "scan", g.n_roots * sizeof *g.roots);
    for (size_t i = 0; i < g.n_roots; i++) {
        g.roots[i].kind = CT_ROOT_READ;
        g.roots[i].val = body->outs[i];
        g.roots[i].leaf = -1;
    }
    for (size_t i = 0; i < body->n_nodes; i++)
        if (body->nodes[i]->op == &ct__op_param)
            body->nodes[i]->op = &ct__op_data; // a leaf of this program
    l->sub.arena = l->p->arena;
    l->sub.target = l->p->target;
    return lower(&g, &l->sub, err);
}

// Every buffer of the body's program gets its place in the surrounding one. Elements of xs and ys
// are reached by a step; where the body has loops of its own, through copies, since an argument has
// one step.
static bool place_bufs(loop *l, bool nested) {
    size_t nc = (size_t)l->a->n_carry, nx = (size_t)l->a->n_xs;
    l->shift = ct__arena_zero(l->p->arena, (l->sub.n_bufs + 1) * sizeof *l->shift);
    if (!l->shift) return false;
    for (size_t i = 0; i < l->sub.n_bufs; i++) {
        ct_buf b = l->sub.bufs[i];
        ct_arg *to = &l->shift[i];
        size_t k = b.index;
        if (b.kind == CT_BUF_TEMP || b.kind == CT_BUF_CONST)
            *to = (ct_arg){.buf = ct__program_buf(l->p, b)};
        else if (b.kind == CT_BUF_LEAF && k < nc)
            *to = ct__arg_at(l->out[k]);
        else if (b.kind == CT_BUF_LEAF && k >= nc + nx)
            *to = ct__arg_at(l->in[k]);
        else if (b.kind == CT_BUF_LEAF && !nested)
            *to = element(l, l->in[k], b.bytes);
        else if (b.kind == CT_BUF_ROOT && k >= nc && !nested)
            *to = element(l, l->out[k], b.bytes);
        else
            *to = (ct_arg){.buf = add_temp(l, b.bytes)};
        if (to->buf == UINT32_MAX) return false;
    }
    return true;
}

static bool copy_elements(loop *l, ct_buf_kind kind, size_t first, size_t end,
                          const ct_place *place) {
    for (size_t i = 0; i < l->sub.n_bufs; i++) {
        const ct_buf *b = &l->sub.bufs[i];
        if (b->kind != kind || b->index < first || b->index >= end) continue;
        ct_arg outside = element(l, place[b->index], b->bytes), inside = l->shift[i];
        if (!(kind == CT_BUF_LEAF ? add_copy(l, outside, inside, b->bytes)
                                  : add_copy(l, inside, outside, b->bytes)))
            return false;
    }
    return true;
}

static bool splice(loop *l) {
    uint32_t first = (uint32_t)l->p->n_kernels;
    for (size_t i = 0; i < l->sub.n_kernels; i++) {
        if (!CT_GROW(l->p->kernels, l->p->kernels_cap, l->p->n_kernels + 1)) return false;
        l->p->kernels[l->p->n_kernels++] = l->sub.kernels[i];
        l->sub.kernels[i].ir = NULL; // whoever has it frees it
    }
    for (size_t i = 0; i < l->sub.n_launches; i++) {
        ct_launch launch = l->sub.launches[i];
        launch.kernel += first;
        for (uint32_t k = 0; k < launch.n_args; k++) {
            ct_arg *arg = &launch.args[k];
            const ct_arg *shift = &l->shift[arg->buf];
            arg->buf = shift->buf;
            arg->offset += shift->offset;
            if (shift->step) arg->step = shift->step;
        }
        if (!ct__program_append(l->p, launch)) return false;
    }
    return true;
}

bool ct__lower_loop(ct_program *p, const ct_node *node, const ct_place *in, const ct_place *out,
                    ct_lowering lower, ct_err *err) {
    loop l = {.p = p, .node = node, .a = node->attrs, .in = in, .out = out};
    l.length = ct__unmarked(l.a->length);
    size_t nc = (size_t)l.a->n_carry, nx = (size_t)l.a->n_xs, n_out = node->n_out;
    bool ok = lower_body(&l, lower, err), nested = false;
    if (!ok) {
        ct__program_free(&l.sub);
        return false;
    }
    for (size_t i = 0; i < l.sub.n_launches; i++)
        nested = nested || l.sub.launches[i].kind == CT_LAUNCH_LOOP;
    ok = place_bufs(&l, nested);
    for (size_t i = 0; i < nc && ok; i++)
        ok = add_copy(&l, ct__arg_at(in[i]), ct__arg_at(out[i]), ct__type_bytes(&node->out[i]));
    ok = ok && add_marker(&l, CT_LAUNCH_LOOP, l.length);
    if (nested) ok = ok && copy_elements(&l, CT_BUF_LEAF, nc, nc + nx, in);
    ok = ok && splice(&l);
    if (nested) ok = ok && copy_elements(&l, CT_BUF_ROOT, nc, n_out, out);
    for (size_t i = 0; i < l.sub.n_bufs && ok; i++) {
        const ct_buf *b = &l.sub.bufs[i];
        if (b->kind != CT_BUF_ROOT || b->index >= nc) continue;
        ok = add_copy(&l, l.shift[i], ct__arg_at(out[b->index]), b->bytes);
    }
    ok = ok && add_marker(&l, CT_LAUNCH_END, 0);
    ct__program_free(&l.sub);
    return ok || ct__err_memory(err, node->here, "scan", sizeof(ct_launch));
}
