#include "compile/check/verify.h"

#include "compile/schedule/sched.h"

// ------------------------------------------------------------------------------------------ groups

static bool verify_is_stored(const ct_sched *s, ct_val v) {
    const ct_sval *val = ct__sval(s, v);
    return ct__is_leaf(v.node) || (val->stored && val->group >= 0 && !s->groups[val->group]->dead);
}

typedef struct {
    ct_sched *s;
    const ct_group *g;
    ct_err *err;
} verify_env;

static bool verify_value(void *env_, ct_val v, bool loaded) {
    verify_env *env = env_;
    if (loaded)
        return verify_is_stored(env->s, v) ||
               ct__err(env->err, CT_E_INTERNAL, v.node->here, v.node->op->name,
                       "group %d reads its value, which no group stores", env->g->id);
    if (!ct__is_reduced(v.node)) return true;
    for (size_t i = 0; i < env->g->n_units; i++)
        if (env->g->units[i].v.node == v.node) return true;
    return ct__err(env->err, CT_E_INTERNAL, v.node->here, v.node->op->name,
                   "group %d reduces by it without a unit for it", env->g->id);
}

bool ct__verify_groups(ct_sched *s, ct_err *err) {
    for (size_t i = 0; i < s->graph->n_roots; i++) {
        ct_val v = s->graph->roots[i].val;
        if (!verify_is_stored(s, v))
            return ct__err(err, CT_E_INTERNAL, v.node->here, v.node->op->name,
                           "root %zu is stored by no group", i);
    }
    for (size_t i = 0; i < s->n_groups; i++) {
        const ct_group *g = s->groups[i];
        verify_env env = {s, g, err};
        if (g->dead) continue;
        if (g->only && !ct__sched_walk(s, g->id, &(ct_val){g->only, 0}, 1, verify_value, &env))
            return false;
        for (size_t k = 0; k < g->n_units; k++)
            if (!ct__sched_walk(s, g->id, &g->units[k].v, 1, verify_value, &env)) return false;
    }
    return true;
}

// ---------------------------------------------------------------------------------------- programs

static bool verify_report(ct_err *err, const ct_launch *l, size_t at, const char *what,
                          uint64_t number) {
    return ct__err(err, CT_E_INTERNAL, l->node ? l->node->here : CT_NOWHERE, "plan",
                   "launch %zu: %s: %llu", at, what, (unsigned long long)number);
}

// True if the launch writes the buffer of its argument i through another argument. A loop inside of a
// kernel reads what it wrote before; such parameters are marked CT_KIR_ALIAS.
static bool verify_writes_own_input(const ct_program *p, const ct_launch *l, uint32_t i) {
    if (l->kind != CT_LAUNCH_KERNEL) return false;
    const ct_kir *k = p->kernels[l->kernel].ir;
    uint32_t param = 0;
    for (size_t b = 0; b < k->nbufs; b++) {
        if (k->bufs[b].flags & CT_KIR_LOCAL || param++ != i) continue;
        if (!(k->bufs[b].flags & CT_KIR_ALIAS)) return false;
    }
    for (uint32_t j = 0; j < l->n_args; j++)
        if (l->args[j].write && l->args[j].buf == l->args[i].buf) return true;
    return false;
}

static bool verify_arg(const ct_program *p, size_t at, uint32_t i, const bool *written,
                       ct_err *err) {
    const ct_launch *l = &p->launches[at];
    const ct_arg *arg = &l->args[i];
    if (arg->buf >= p->n_bufs)
        return verify_report(err, l, at, "there is no such buffer", arg->buf);
    const ct_buf *b = &p->bufs[arg->buf];
    bool made = b->kind == CT_BUF_TEMP || b->kind == CT_BUF_ROOT;
    if (arg->write && (b->kind == CT_BUF_CONST || b->kind == CT_BUF_SCALARS))
        return verify_report(err, l, at, "it writes a buffer that may only be read", arg->buf);
    if (!arg->write && made && b->bytes && !written[arg->buf] && !verify_writes_own_input(p, l, i))
        return verify_report(err, l, at, "it reads a buffer that nothing has written", arg->buf);
    return true;
}

static bool verify_launch_args(const ct_program *p, size_t at, bool *written, ct_err *err) {
    const ct_launch *l = &p->launches[at];
    size_t expected = l->n_args;
    if (l->kind == CT_LAUNCH_COPY) expected = 2;
    if (l->kind == CT_LAUNCH_SWITCH) expected = 1;
    for (uint32_t i = 0; i < l->n_steps; i++)
        if (l->steps[i].arg >= l->n_args)
            return verify_report(err, l, at, "there is no such argument to move on",
                                 l->steps[i].arg);
    if (l->kind == CT_LAUNCH_NODE) expected = (size_t)l->node->n_in + l->node->n_out;
    if (l->kind == CT_LAUNCH_KERNEL) {
        const struct ct_kir *k = l->kernel < p->n_kernels ? p->kernels[l->kernel].ir : NULL;
        if (!k) return verify_report(err, l, at, "there is no such kernel", l->kernel);
        expected = (size_t)k->nparams;
        if (l->n_numbers != (size_t)k->nargs)
            return verify_report(err, l, at, "its numbers are not those of the kernel",
                                 l->n_numbers);
    }
    if (l->n_args != expected)
        return verify_report(err, l, at, "it has another count of buffers", l->n_args);
    for (uint32_t i = 0; i < l->n_args; i++)
        if (!verify_arg(p, at, i, written, err)) return false;
    for (uint32_t i = 0; i < l->n_args; i++)
        if (l->args[i].write) written[l->args[i].buf] = true;
    return true;
}

static bool verify_offsets(const ct_program *p, const bool *written, ct_err *err) {
    for (size_t i = 0; i < p->n_bufs; i++) {
        const ct_buf *b = &p->bufs[i];
        if (b->kind == CT_BUF_TEMP && written[i] &&
            (b->offset % 64 || b->offset > p->arena_bytes || p->arena_bytes - b->offset < b->bytes))
            return ct__err(err, CT_E_INTERNAL, CT_NOWHERE, "plan",
                           "buffer %zu is outside of the arena", i);
    }
    return true;
}

// A root may have two buffers, if its value was moved to a temporary (schedule.c).
static bool verify_root_written(const ct_program *p, size_t buf, const bool *written, ct_err *err) {
    for (size_t i = 0; i < p->n_bufs; i++)
        if (p->bufs[i].kind == CT_BUF_ROOT && p->bufs[i].index == p->bufs[buf].index && written[i])
            return true;
    return ct__err(err, CT_E_INTERNAL, CT_NOWHERE, "plan", "root %u is never written",
                   p->bufs[buf].index);
}

// The open loops and branches at a launch.
typedef struct {
    const ct_program *p;
    size_t *open; // (n_launches) open LOOP and SWITCH launches
    size_t depth;
    bool *written; // (n_bufs)
    ct_err *err;
} verify_state;

// The launches of a batch may run in any order: none may write a buffer that another one accesses.
static bool verify_batch_member(const ct_program *p, const ct_launch *batch, size_t at,
                                ct_err *err) {
    const ct_launch *l = &p->launches[at];
    if ((l->kind != CT_LAUNCH_KERNEL && l->kind != CT_LAUNCH_COPY) || l > batch + batch->count)
        return verify_report(err, l, at, "it is in a batch but is no kernel or copy of it", at);
    for (const ct_launch *other = batch + 1; other < l; other++)
        for (uint32_t i = 0; i < l->n_args; i++)
            for (uint32_t j = 0; j < other->n_args; j++)
                if (l->args[i].buf == other->args[j].buf &&
                    (l->args[i].write || other->args[j].write))
                    return verify_report(err, l, at,
                                         "its batch holds another one for the same buffer",
                                         l->args[i].buf);
    return true;
}

static bool verify_nesting(verify_state *w, size_t at) {
    const ct_launch *l = &w->p->launches[at];
    const ct_launch *around = w->depth ? &w->p->launches[w->open[w->depth - 1]] : NULL;
    if (l->kind == CT_LAUNCH_END) {
        if (!around) return verify_report(w->err, l, at, "it ends a loop that is not open", at);
        w->depth--;
        return true;
    }
    bool branch = l->kind == CT_LAUNCH_BRANCH, first = at && l[-1].kind == CT_LAUNCH_SWITCH;
    if (branch && !(around && around->kind == CT_LAUNCH_SWITCH))
        return verify_report(w->err, l, at, "it is a branch of nothing", at);
    if (first && !branch)
        return verify_report(w->err, l, at, "it follows a switch and is no branch", at);
    if (!branch && !verify_launch_args(w->p, at, w->written, w->err)) return false;
    if (around && around->kind == CT_LAUNCH_BATCH && !verify_batch_member(w->p, around, at, w->err))
        return false;
    if (!ct__launch_runs(l) && !branch) w->open[w->depth++] = at;
    return true;
}

bool ct__verify_program(const ct_program *p, bool planned, ct_err *err) {
    verify_state w = {.p = p, .err = err};
    w.written = ct__calloc(p->n_bufs + 1, sizeof *w.written);
    w.open = ct__malloc((p->n_launches + 1) * sizeof *w.open);
    bool ok = (w.written && w.open) || ct__err_memory(err, CT_NOWHERE, "plan", p->n_bufs);
    for (size_t i = 0; i < p->n_launches && ok; i++) ok = verify_nesting(&w, i);
    if (ok && w.depth)
        ok = ct__err(err, CT_E_INTERNAL, CT_NOWHERE, "plan", "%zu loops are not closed", w.depth);
    for (size_t i = 0; i < p->n_bufs && ok; i++)
        if (p->bufs[i].kind == CT_BUF_ROOT && p->bufs[i].bytes)
            ok = verify_root_written(p, i, w.written, err);
    ok = ok && (!planned || verify_offsets(p, w.written, err));
    ct__free(w.written);
    ct__free(w.open);
    return ok;
}
