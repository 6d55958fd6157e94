// A finished kernel becomes a launch; equal kernels are kept once.
#include <stdio.h>
#include <string.h>

#include "compile/schedule/sched.h"

// May what is written lie where something else is read? Of a template's elements each is stored once, after
// what is computed from it was read.
static bool disturbs(const ct_seen *write, const ct_seen *read) {
    if (write->behind != read->behind) return !write->behind || !read->behind;
    return write->offset != read->offset;
}

// A kernel that reads the variable which it assigns must read each element only where it writes it.
// False: it does not.
static bool in_place(ct_emit *e) {
    const ct_sched *s = e->draft->sched;
    for (size_t w = 0; w < e->draft->n_args; w++) {
        const ct_buf *to = &s->program->bufs[e->draft->args[w].buf];
        if (to->kind != CT_BUF_ROOT || s->graph->roots[to->index].kind != CT_ROOT_ASSIGN) continue;
        for (size_t r = 0; r < e->draft->n_args; r++) {
            const ct_buf *from = &s->program->bufs[e->draft->args[r].buf];
            if (from->kind != CT_BUF_LEAF ||
                (int32_t)from->index != s->graph->roots[to->index].leaf)
                continue;
            e->kir->bufs[e->draft->arg_ids[w]].flags |= CT_KIR_ALIAS;
            e->kir->bufs[e->draft->arg_ids[r]].flags |= CT_KIR_ALIAS;
            for (size_t i = 0; i < e->draft->n_seen; i++)
                for (size_t k = 0; k < e->draft->n_seen; k++)
                    if (e->draft->seen[i].buf == e->draft->args[w].buf && e->draft->seen[i].write &&
                        e->draft->seen[k].buf == e->draft->args[r].buf &&
                        disturbs(&e->draft->seen[i], &e->draft->seen[k]))
                        return false;
        }
    }
    return true;
}

// ------------------------------------------------------------------ over an operand that dies here

enum { WORTH = 1 << 16 }; // bytes below which a buffer of its own costs nothing

bool ct__sched_dies(const ct_sched *s, uint32_t buf) {
    for (size_t i = 0; i < s->n_dying; i++)
        if (s->dying[i] == buf) return true;
    return false;
}

// Is what the kernel reads of one buffer what it writes of the other, at one place of each, and read
// before it is written? Then no iteration meets what another has overwritten.
static bool read_where_written(const ct_emit *e, uint32_t from, uint32_t to) {
    const ct_draft *d = e->draft;
    const ct_kir *k = e->kir;
    ct_ix at = CT_IX_NONE;
    for (size_t i = 0; i < d->n_seen; i++) {
        const ct_seen *x = &d->seen[i];
        if (x->buf != from && x->buf != to) continue;
        if (x->write != (x->buf == to) || (at >= 0 && x->offset != at)) return false;
        at = x->offset;
    }
    bool written = false;
    for (size_t i = 0; i < k->n; i++) {
        const bool load = k->ins[i].op == CT_K_LOAD, store = k->ins[i].op == CT_K_STORE;
        for (size_t a = 0; (load || store) && a < d->n_args; a++) {
            if (d->arg_ids[a] != k->ins[i].imm.i) continue;
            if (load && written && d->args[a].buf == from) return false;
            written |= store && d->args[a].buf == to;
        }
    }
    return true;
}

// Every access to the two is one of the group's own, of one dtype.
static bool of_dtype(const ct_draft *d, uint32_t buf, ct_dtype dtype) {
    for (size_t i = 0; i < d->n_args; i++)
        if (d->args[i].buf == buf && d->arg_types[i] != dtype) return false;
    return true;
}

static bool can_take(const ct_emit *e, size_t r, size_t w) {
    const ct_draft *d = e->draft;
    const ct_buf *from = &d->sched->program->bufs[d->args[r].buf];
    const ct_buf *to = &d->sched->program->bufs[d->args[w].buf];
    return from->kind == CT_BUF_TEMP && to->kind == CT_BUF_TEMP && from->size == to->size &&
           !d->args[r].write && d->args[w].write && (ct__marked(to->size) || to->bytes >= WORTH) &&
           of_dtype(d, d->args[r].buf, d->arg_types[w]) &&
           of_dtype(d, d->args[w].buf, d->arg_types[w]) &&
           ct__sched_dies(d->sched, d->args[r].buf) &&
           read_where_written(e, d->args[r].buf, d->args[w].buf);
}

static ct_sval *unit_at(const ct_sched *s, const ct_group *g, uint32_t buf) {
    for (size_t i = 0; i < g->n_units; i++)
        if (ct__sval(s, g->units[i].v)->buf == buf) return ct__sval(s, g->units[i].v);
    return NULL;
}

// A result takes the place of an operand that nobody reads any more.
static void take_places(ct_emit *e) {
    ct_draft *d = e->draft;
    const ct_group *g = d->group >= 0 ? d->sched->groups[d->group] : NULL;
    for (size_t w = 0; g && !g->only && w < d->n_args; w++) {
        const uint32_t to = d->args[w].buf;
        ct_sval *val = unit_at(d->sched, g, to);
        size_t r = 0;
        while (val && r < d->n_args && !can_take(e, r, w)) r++;
        if (!val || r == d->n_args) continue;
        const uint32_t from = val->buf = d->args[r].buf;
        for (size_t i = 0; i < d->n_args; i++) {
            if (d->args[i].buf == to) d->args[i].buf = from;
            if (d->args[i].buf == from) e->kir->bufs[d->arg_ids[i]].flags |= CT_KIR_ALIAS;
        }
        for (size_t i = 0; i < d->n_seen; i++)
            if (d->seen[i].buf == to) d->seen[i].buf = from;
    }
}

// ------------------------------------------------------------------------------- past the caches

// Is it written here and nothing else, so that neither this kernel nor, while it is still in a cache,
// another one reads it? Of a dynamic size it is not known.
static bool goes_past_caches(const ct_emit *e, size_t w) {
    const ct_draft *d = e->draft;
    const ct_buf *to = &d->sched->program->bufs[d->args[w].buf];
    if (!d->args[w].write || ct__marked(to->size) || to->bytes < (size_t)e->target.past_caches)
        return false;
    for (size_t i = 0; i < d->n_args; i++)
        if (d->args[i].buf == d->args[w].buf &&
            e->kir->bufs[d->arg_ids[i]].flags & (CT_KIR_READ | CT_KIR_ALIAS))
            return false;
    return true;
}

// A processor reads a line before it writes to it in its caches: a third of what a chain moves, and in
// vain where the result is larger than they are. Templates ask for their results before they store.
static void write_past_caches(ct_emit *e) {
    const ct_draft *d = e->draft;
    if (d->group < 0 || d->sched->groups[d->group]->only || !e->target.past_caches) return;
    for (size_t w = 0; w < d->n_args; w++)
        if (goes_past_caches(e, w)) ct__kir_past_caches(e->kir, d->arg_ids[w]);
}

// -------------------------------------------------------------------------------------- the kernel

// Sizes that were declared and never used are no arguments of the kernel, and leave no trace in it:
// a kernel does not depend on which other sizes its plan has.
static bool drop_unused_sizes(ct_emit *e) {
    ct_kir *k = e->kir;
    ct_kval *to = ct__arena_zero(&e->arena, (k->n + 1) * sizeof *to);
    if (!to) return ct__err_memory(e->err, CT_NOWHERE, "kernel", k->n * sizeof *to);
    size_t kept = 0, n = 0;
    for (size_t i = 0; i < e->draft->n_syms; i++) {
        if (e->draft->syms[i] < 0) {
            to[e->draft->sym_values[i]] = -1;
            continue;
        }
        k->ins[e->draft->sym_values[i]].imm.i = (int64_t)kept;
        e->draft->syms[kept++] = e->draft->syms[i];
    }
    e->draft->n_syms = kept;
    k->nargs = (int)kept;
    for (size_t i = 0; i < k->n; i++)
        if (to[i] == 0) to[i] = (ct_kval)n++;
    for (size_t i = 0; i < k->n; i++) {
        if (to[i] < 0) continue;
        ct_kins x = k->ins[i];
        int32_t *of[6] = {&x.a, &x.b, &x.c, &x.d, &x.in, &x.end};
        for (int f = 0; f < 6; f++)
            if (*of[f] >= 0) *of[f] = to[*of[f]];
        k->ins[to[i]] = x;
    }
    k->n = n;
    return true;
}

enum { MOST_NAMED = 6 };

// The ops whose values the kernel gives out or reduces, in their order, each once: "max+sum+div". NULL: the op of
// the node says it all (or there is no memory for more).
static const char *label_of(const ct_emit *e) {
    const ct_sched *s = e->draft->sched;
    const ct_group *g = e->draft->group >= 0 ? s->groups[e->draft->group] : NULL;
    const char *names[MOST_NAMED] = {g && g->only ? g->only->op->name : ""};
    size_t n = g && g->only, more = 0, bytes = 16;
    for (size_t i = 0; g && i < g->n_units; i++) {
        const char *name = g->units[i].v.node->op->name;
        bool known = false;
        for (size_t k = 0; k < n && !known; k++) known = names[k] == name;
        if (known) continue;
        if (n < MOST_NAMED)
            names[n++] = name;
        else
            more++;
    }
    if (n < 2) return NULL;
    for (size_t i = 0; i < n; i++) bytes += strlen(names[i]) + 1;
    char *label = ct__arena(s->program->arena, bytes), *at = label;
    for (size_t i = 0; label && i < n; i++) at += sprintf(at, "%s%s", i ? "+" : "", names[i]);
    if (label && more) sprintf(at, "+%zu", more);
    return label;
}

// A buffer that may be empty has no number to be loaded in front of the loops, of which none may run.
static bool hoist(ct_emit *e) {
    const ct_draft *d = e->draft;
    int64_t *least = ct__arena_zero(&e->arena, e->kir->nbufs * sizeof *least);
    if (!least)
        return ct__err_memory(d->sched->err, CT_NOWHERE, "kernel", e->kir->nbufs * sizeof *least);
    for (size_t i = 0; i < d->n_args; i++) {
        const ct_buf *b = &d->sched->program->bufs[d->args[i].buf];
        const size_t each = ct_dtype_size(e->kir->bufs[d->arg_ids[i]].dtype);
        const bool known = !ct__marked(b->size) && b->bytes > d->args[i].offset;
        if (known) least[d->arg_ids[i]] = (int64_t)((b->bytes - d->args[i].offset) / each);
        if (b->kind == CT_BUF_SCALARS) least[d->arg_ids[i]] = 1;
    }
    ct__kir_hoist(e->kir, least);
    return true;
}

static bool finish(ct_emit *e, double flops) {
    ct_sched *s = e->draft->sched;
    if (s->err->code) return false;
    if (e->kir->err.code) {
        *s->err = e->kir->err;
        return false;
    }
    if (ct__ix_failed(e->pool))
        return ct__err_memory(s->err, e->node ? e->node->here : CT_NOWHERE, "kernel", 0);
    if (!drop_unused_sizes(e) || !hoist(e)) return false;
    ct__kir_bind(e->kir);
    if (e->kir->err.code) {
        *s->err = e->kir->err;
        return false;
    }
    if (!in_place(e)) {
        s->conflict = true;
        return true;
    }
    take_places(e);
    write_past_caches(e);
    if (!ct__kir_verify(e->kir, s->err)) return false;
    ct_launch launch = {.kind = CT_LAUNCH_KERNEL, .node = e->node, .label = label_of(e)};
    ct_launch *l = ct__program_launch(s->program, launch, (uint32_t)e->draft->n_args,
                                      (uint32_t)e->draft->n_syms);
    if (!l) return ct__err_memory(s->err, CT_NOWHERE, "plan", sizeof *l);
    for (size_t i = 0; i < e->draft->n_args; i++) {
        const ct_buf *b = &s->program->bufs[e->draft->args[i].buf];
        l->args[i] = e->draft->args[i];
        l->bytes += b->bytes;
    }
    for (size_t i = 0; i < e->draft->n_syms; i++) {
        l->numbers[i] = s->sym_value[e->draft->syms[i]];
        l->atoms[i] = s->sym_atom[e->draft->syms[i]];
    }
    l->flops = flops > 0 ? flops : e->flops * ct__kir_iterations(e->kir, l->numbers);
    l->grid = ct__kir_grid(e->kir, l->numbers);
    return ct__program_kernel(s->program, &e->kir, &l->kernel) ||
           ct__err_memory(s->err, CT_NOWHERE, "kernel", sizeof *s->program->kernels);
}

bool ct__emit_done(ct_emit *e, double flops) {
    bool ok = finish(e, flops);
    ct__emit_free(e);
    return ok;
}
