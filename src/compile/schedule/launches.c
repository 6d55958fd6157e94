// Makes a launch from a finished kernel; equal kernels are stored once.
#include <stdio.h>
#include <string.h>

#include "compile/schedule/sched.h"

// True if a write may overwrite what a read still needs. A template's elements are stored once each, after
// the values of their epilogues were read.
static bool finish_overwrites(const ct_seen *write, const ct_seen *read) {
    if (write->epilogue != read->epilogue) return !write->epilogue || !read->epilogue;
    return write->offset != read->offset;
}

// True if a kernel that reads the variable which it assigns reads each element only where it writes it.
static bool finish_is_in_place(ct_emit *e) {
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
                        finish_overwrites(&e->draft->seen[i], &e->draft->seen[k]))
                        return false;
        }
    }
    return true;
}

// ------------------------------------------ results in buffers of operands that are not read again

enum { MIN_REUSED_BYTES = 1 << 16 }; // below this size a buffer of its own costs nothing

bool ct__sched_dies(const ct_sched *s, uint32_t buf) {
    for (size_t i = 0; i < s->n_dying; i++)
        if (s->dying[i] == buf) return true;
    return false;
}

// True if the kernel reads one buffer only where it writes the other, at one offset of each, and reads
// before it writes. No iteration then reads what another has overwritten.
static bool finish_reads_where_written(const ct_emit *e, uint32_t from, uint32_t to) {
    const ct_kernel_builder *d = e->draft;
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

// True if all accesses to the buffer have one dtype.
static bool finish_has_dtype(const ct_kernel_builder *d, uint32_t buf, ct_dtype dtype) {
    for (size_t i = 0; i < d->n_args; i++)
        if (d->args[i].buf == buf && d->arg_types[i] != dtype) return false;
    return true;
}

static bool finish_can_reuse(const ct_emit *e, size_t r, size_t w) {
    const ct_kernel_builder *d = e->draft;
    const ct_buf *from = &d->sched->program->bufs[d->args[r].buf];
    const ct_buf *to = &d->sched->program->bufs[d->args[w].buf];
    return from->kind == CT_BUF_TEMP && to->kind == CT_BUF_TEMP && from->size == to->size &&
           !d->args[r].write && d->args[w].write &&
           (ct__marked(to->size) || to->bytes >= MIN_REUSED_BYTES) &&
           finish_has_dtype(d, d->args[r].buf, d->arg_types[w]) &&
           finish_has_dtype(d, d->args[w].buf, d->arg_types[w]) &&
           ct__sched_dies(d->sched, d->args[r].buf) &&
           finish_reads_where_written(e, d->args[r].buf, d->args[w].buf);
}

static ct_sval *finish_find_unit(const ct_sched *s, const ct_group *g, uint32_t buf) {
    for (size_t i = 0; i < g->n_units; i++)
        if (ct__sval(s, g->units[i].v)->buf == buf) return ct__sval(s, g->units[i].v);
    return NULL;
}

// Gives a result the buffer of an operand that nothing reads any more.
static void finish_reuse_buffers(ct_emit *e) {
    ct_kernel_builder *d = e->draft;
    const ct_group *g = d->group >= 0 ? d->sched->groups[d->group] : NULL;
    for (size_t w = 0; g && !g->only && w < d->n_args; w++) {
        const uint32_t to = d->args[w].buf;
        ct_sval *val = finish_find_unit(d->sched, g, to);
        size_t r = 0;
        while (val && r < d->n_args && !finish_can_reuse(e, r, w)) r++;
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

// ----------------------------------------------------------------------------- non-temporal stores

// True if the buffer is only written here, so that neither this kernel nor, while it is still in a cache,
// another one reads it. A buffer of a dynamic size is not known to be larger than the caches.
static bool finish_is_nontemporal(const ct_emit *e, size_t w) {
    const ct_kernel_builder *d = e->draft;
    const ct_buf *to = &d->sched->program->bufs[d->args[w].buf];
    if (!d->args[w].write || ct__marked(to->size) ||
        to->bytes < (size_t)e->target.nontemporal_bytes)
        return false;
    for (size_t i = 0; i < d->n_args; i++)
        if (d->args[i].buf == d->args[w].buf &&
            e->kir->bufs[d->arg_ids[i]].flags & (CT_KIR_READ | CT_KIR_ALIAS))
            return false;
    return true;
}

// Marks stores of large results as non-temporal. A processor reads a line into its caches before it writes
// to it: a third of the memory traffic of an elementwise chain, and useless if the result is larger than
// the caches. Templates are left out, since they prefetch their results before they store them.
static void finish_mark_nontemporal(ct_emit *e) {
    const ct_kernel_builder *d = e->draft;
    if (d->group < 0 || d->sched->groups[d->group]->only || !e->target.nontemporal_bytes) return;
    for (size_t w = 0; w < d->n_args; w++)
        if (finish_is_nontemporal(e, w)) ct__kir_set_nontemporal(e->kir, d->arg_ids[w]);
}

// -------------------------------------------------------------------------------------- the kernel

// Removes the arguments of sizes that were declared and never used, so that a kernel does not depend on the
// other sizes of its plan.
static bool finish_drop_unused_sizes(ct_emit *e) {
    ct_kir *k = e->kir;
    ct_kval *to = ct__arena_zero(&e->arena, (k->n + 1) * sizeof *to);
    if (!to) return ct__err_memory(e->err, CT_NOWHERE, "kernel", k->n * sizeof *to);
    size_t n_used = 0, n = 0;
    for (size_t i = 0; i < e->draft->n_syms; i++) {
        if (e->draft->syms[i] < 0) {
            to[e->draft->sym_values[i]] = -1;
            continue;
        }
        k->ins[e->draft->sym_values[i]].imm.i = (int64_t)n_used;
        e->draft->syms[n_used++] = e->draft->syms[i];
    }
    e->draft->n_syms = n_used;
    k->nargs = (int)n_used;
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

enum { MAX_NAMED = 6 };

// Returns the ops whose values the kernel stores or reduces, in order and each once: "max+sum+div". NULL:
// the op of the node is the only one (or there is no memory for more).
static const char *finish_label(const ct_emit *e) {
    const ct_sched *s = e->draft->sched;
    const ct_group *g = e->draft->group >= 0 ? s->groups[e->draft->group] : NULL;
    const char *names[MAX_NAMED] = {g && g->only ? g->only->op->name : ""};
    size_t n = g && g->only, more = 0, bytes = 16;
    for (size_t i = 0; g && i < g->n_units; i++) {
        const char *name = g->units[i].v.node->op->name;
        bool is_named = false;
        for (size_t k = 0; k < n && !is_named; k++) is_named = names[k] == name;
        if (is_named) continue;
        if (n < MAX_NAMED)
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

// Hoists scalar loads out of the loops. A buffer that may be empty has no element to load there, since none
// of the loops may run.
static bool finish_hoist(ct_emit *e) {
    const ct_kernel_builder *d = e->draft;
    int64_t *min_elements = ct__arena_zero(&e->arena, e->kir->nbufs * sizeof *min_elements);
    if (!min_elements)
        return ct__err_memory(d->sched->err, CT_NOWHERE, "kernel",
                              e->kir->nbufs * sizeof *min_elements);
    for (size_t i = 0; i < d->n_args; i++) {
        const ct_buf *b = &d->sched->program->bufs[d->args[i].buf];
        const size_t each = ct_dtype_size(e->kir->bufs[d->arg_ids[i]].dtype);
        const bool known = !ct__marked(b->size) && b->bytes > d->args[i].offset;
        if (known) min_elements[d->arg_ids[i]] = (int64_t)((b->bytes - d->args[i].offset) / each);
        if (b->kind == CT_BUF_SCALARS) min_elements[d->arg_ids[i]] = 1;
    }
    ct__kir_hoist(e->kir, min_elements);
    return true;
}

static bool finish_kernel(ct_emit *e, double flops) {
    ct_sched *s = e->draft->sched;
    if (s->err->code) return false;
    if (e->kir->err.code) {
        *s->err = e->kir->err;
        return false;
    }
    if (ct__ix_failed(e->pool))
        return ct__err_memory(s->err, e->node ? e->node->here : CT_NOWHERE, "kernel", 0);
    if (!finish_drop_unused_sizes(e) || !finish_hoist(e)) return false;
    ct__kir_lower_tiles(e->kir);
    if (e->kir->err.code) {
        *s->err = e->kir->err;
        return false;
    }
    if (!finish_is_in_place(e)) {
        s->conflict = true;
        return true;
    }
    finish_reuse_buffers(e);
    finish_mark_nontemporal(e);
    if (!ct__kir_verify(e->kir, s->err)) return false;
    ct_launch launch = {.kind = CT_LAUNCH_KERNEL, .node = e->node, .label = finish_label(e)};
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
    bool ok = finish_kernel(e, flops);
    ct__emit_free(e);
    return ok;
}
