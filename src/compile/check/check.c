// COTAN_CHECK around a run: what a plan gives, against the same ops one by one.
//
// ref: the ops come first, so that nothing has changed when one of them is wrong; then the plan
// itself, whose results must have the same bits, since fusion and the other passes change none.
// nan: the plan comes first; only when a result holds NaN or infinity are the ops looked at, with
// the values that variables had before.
#include "compile/check/check.h"

#include <stdlib.h>
#include <string.h>

#include "compile/passes/env.h"

static bool no_memory(ct_ctx *ctx, size_t bytes) {
    return ct__err_memory(&ctx->err, CT_NOWHERE, "check", bytes);
}

bool ct__check_wanted(unsigned *what, ct_err *err) {
    static const char *const names[] = {"ref", "nan", "bounds", NULL}; // in the order of their bits
    const char *list = getenv("COTAN_CHECK");
    *what = 0;
    while (list && *list) {
        size_t n = strcspn(list, ",");
        int i = 0;
        while (names[i] && !(strlen(names[i]) == n && strncmp(list, names[i], n) == 0)) i++;
        if (!names[i]) {
            const ct_env_word word = ct__env_word(list, n);
            ct__err(err, CT_E_USAGE, CT_NOWHERE, "COTAN_CHECK",
                    "there is no check \"%s\": the variable is a list of ref, nan and bounds",
                    word.s);
            const char *near = ct__nearest(word.s, names);
            if (near) ct__err_hint(err, "did you mean %s?", near);
            return false;
        }
        *what |= 1u << i;
        list += n;
        if (*list == ',' && !*++list)
            return ct__err(err, CT_E_USAGE, CT_NOWHERE, "COTAN_CHECK",
                           "nothing follows the comma: the variable is a list of ref, nan and "
                           "bounds");
    }
    return true;
}

// ----------------------------------------------------------------- what a run may have to put back

static void free_all(void **of, size_t n) {
    for (size_t i = 0; of && i < n; i++) ct__free(of[i]);
    ct__free(of);
}

void ct__check_done(ct_executor *e) {
    ct_check_run *x = e->checking;
    if (!x) return;
    free_all(x->saved, x->n_leaves);
    free_all(x->root, x->n_roots);
    free_all(x->old, x->n_roots);
    ct__free(x->origin);
    ct__free(x->events);
    ct__arena_free(&x->arena);
    ct__free(x);
    e->checking = NULL;
}

static ct_check_run *begin(ct_ctx *ctx, ct_executor *e, size_t n_roots) {
    ct_check_run *x = e->checking = ct__calloc(1, sizeof *x);
    if (!x) return NULL;
    *x = (ct_check_run){.ctx = ctx,
                        .engine = e,
                        .what = e->check,
                        .n_leaves = e->order.n_leaves,
                        .n_roots = n_roots};
    x->saved = ct__calloc(x->n_leaves + 1, sizeof *x->saved);
    x->root = ct__calloc(n_roots + 1, sizeof *x->root);
    x->old = ct__calloc(n_roots + 1, sizeof *x->old);
    x->origin = ct__calloc(n_roots + 1, sizeof *x->origin);
    return x->saved && x->root && x->old && x->origin ? x : NULL;
}

static void *fetch(ct_ctx *ctx, ct_storage *s) {
    void *bytes = ct__malloc(s->bytes + 8);
    if (!bytes) no_memory(ctx, s->bytes);
    if (bytes && ct__hooks.download(ctx, s, bytes, s->bytes)) return bytes;
    ct__free(bytes);
    return NULL;
}

static bool save(ct_check_run *x) {
    for (size_t i = 0; i < x->n_roots; i++) {
        const ct_var *var = x->engine->roots[i].var;
        const ct_storage *storage = var ? var->storage : NULL;
        if (!storage) continue;
        if (!(x->old[i] = fetch(x->ctx, var->storage))) return false;
        size_t leaf = 0;
        while (leaf < x->n_leaves && x->engine->order.leaves[leaf] != storage) leaf++;
        if (leaf == x->n_leaves) continue;
        x->saved[leaf] = ct__malloc(storage->bytes + 8);
        if (!x->saved[leaf]) return no_memory(x->ctx, storage->bytes);
        memcpy(x->saved[leaf], x->old[i], storage->bytes);
    }
    return true;
}

// The plan's work on variables is taken back; then the run has never been.
static void put_back(ct_check_run *x) {
    for (size_t i = 0; i < x->n_roots; i++) {
        const ct_var *var = x->engine->roots[i].var;
        if (!x->old[i]) continue;
        const ct_storage *storage = var->storage;
        ct_device *device = storage->owner;
        ct_err err = {0}; // the plan's own stands already
        if (!device->backend->copy_in(device, (ct_operand){storage->buffer, 0}, x->old[i],
                                      storage->bytes, &err))
            return; // poisoned, as by any fault of a device
    }
    x->engine->started = false;
}

// ---------------------------------------------------------------------------------------- verdicts

static bool say_event(ct_check_run *x, uint32_t number) {
    const ct_check_event *e = &x->events[number - 1];
    ct__err(&x->ctx->err, CT_E_CHECK, e->here, e->op, "%s", e->text);
    return false;
}

// The first op, in their order, that made what a result holds.
static bool roots_are_finite(ct_check_run *x) {
    uint32_t first = 0;
    for (size_t i = 0; i < x->n_roots; i++)
        if (x->engine->roots[i].kind != CT_ROOT_EXTRA && x->origin[i] &&
            (!first || x->origin[i] < first))
            first = x->origin[i];
    return !first || say_event(x, first);
}

static void say_root(ct_text *text, const ct_root *r) {
    if (r->kind == CT_ROOT_ASSIGN)
        ct__textf(text, "the new value of variable \"%s\"", r->var->name);
    else if (r->kind == CT_ROOT_METRIC)
        ct__textf(text, "the metric \"%s\"", r->name);
    else
        ct__text_add(text, "its value");
}

static void fused_differs(ct_check_run *x, const ct_root *r, ct_check_difference d, const void *got,
                          const void *want) {
    const ct_type *type = ct__type(r->val);
    ct_text text = {0};
    say_root(&text, r);
    ct__textf(&text,
              " differs between the plan and the same ops one by one in %lld of %lld elements,"
              " first at ",
              (long long)d.count, (long long)ct__count(type));
    ct__check_say_difference(&text, type, d.at, got, want);
    ct__check_verdict(x, r->val.node, &text);
    ct__err_hint(&x->ctx->err, "one op at a time is right: COTAN_FUSE=0 goes around the fault");
}

// Of the results that differ the first in the order of the ops, which is nearest to the fault.
static bool same_as_ops(ct_check_run *x, const ct_plan *plan) {
    void *first = NULL;
    size_t at = 0;
    ct_check_difference of_first = {0};
    for (size_t i = 0; i < x->n_roots; i++) {
        void *got = fetch(x->ctx, x->engine->fresh[i]);
        if (!got) break;
        ct_check_difference d = ct__check_same(ct__type(x->engine->roots[i].val), got, x->root[i]);
        bool earlier = !first || ct__check_place(plan->check, i) < ct__check_place(plan->check, at);
        if (d.count && earlier) {
            ct__free(first);
            first = got;
            at = i;
            of_first = d;
        } else {
            ct__free(got);
        }
    }
    if (first) fused_differs(x, &x->engine->roots[at], of_first, first, x->root[at]);
    ct__free(first);
    return !x->ctx->err.code;
}

static bool any_is_bad(ct_check_run *x, bool *bad) {
    *bad = false;
    for (size_t i = 0; i < x->n_roots && !*bad; i++) {
        const ct_type *type = ct__type(x->engine->roots[i].val);
        if (!ct__is_float(type->dtype)) continue;
        void *got = fetch(x->ctx, x->engine->fresh[i]);
        if (!got) return false;
        *bad = ct__is_bad(ct__check_bad(type, got));
        ct__free(got);
    }
    return true;
}

// --------------------------------------------------------------------------------- the two moments

bool ct__check_before(ct_ctx *ctx, ct_executor *e, ct_plan *plan, size_t n_roots) {
    if (!(e->check & CT_CHECK_OPS)) return true;
    ct_check_run *x = begin(ctx, e, n_roots);
    if (!x) return no_memory(ctx, sizeof *x);
    if (!save(x)) return false;
    if (!(x->what & CT_CHECK_REF)) return true;
    return ct__check_ops(x, plan) && roots_are_finite(x);
}

bool ct__check_after(ct_executor *e, ct_plan *plan) {
    ct_check_run *x = e->checking;
    if (!x) return true;
    bool ok, bad = false;
    if (x->what & CT_CHECK_REF)
        ok = same_as_ops(x, plan);
    else
        ok = any_is_bad(x, &bad) && (!bad || (ct__check_ops(x, plan) && roots_are_finite(x)));
    if (!ok) put_back(x);
    return ok;
}
