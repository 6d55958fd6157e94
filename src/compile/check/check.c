// COTAN_CHECK around a run: compares a plan's results with those of the same ops one by one.
//
// ref: the ops run first, so that nothing has changed when one of them is wrong; then the plan itself, whose
// results must have the same bits, since fusion and the other passes change none.
// nan: the plan runs first; only if a result holds NaN or infinity do the ops run, with the values that
// variables had before.
#include "compile/check/check.h"

#include <stdlib.h>
#include <string.h>

#include "compile/passes/env.h"

static bool check_no_memory(ct_ctx *ctx, size_t bytes) {
    return ct__err_memory(&ctx->err, CT_NOWHERE, "check", bytes);
}

bool ct__check_parse_env(unsigned *checks, ct_err *err) {
    static const char *const names[] = {"ref", "nan", "bounds", NULL}; // in the order of their bits
    const char *list = getenv("COTAN_CHECK");
    *checks = 0;
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
        *checks |= 1u << i;
        list += n;
        if (*list == ',' && !*++list)
            return ct__err(err, CT_E_USAGE, CT_NOWHERE, "COTAN_CHECK",
                           "nothing follows the comma: the variable is a list of ref, nan and "
                           "bounds");
    }
    return true;
}

// ----------------------------------------------------------------- state that a run may restore

static void check_free_array(void **of, size_t n) {
    for (size_t i = 0; of && i < n; i++) ct__free(of[i]);
    ct__free(of);
}

void ct__check_done(ct_executor *e) {
    ct_check_run *x = e->checking;
    if (!x) return;
    check_free_array(x->saved_leaves, x->n_leaves);
    check_free_array(x->root_bytes, x->n_roots);
    check_free_array(x->old_values, x->n_roots);
    ct__free(x->origin);
    ct__free(x->events);
    ct__arena_free(&x->arena);
    ct__free(x);
    e->checking = NULL;
}

static ct_check_run *check_begin_run(ct_ctx *ctx, ct_executor *e, size_t n_roots) {
    ct_check_run *x = e->checking = ct__calloc(1, sizeof *x);
    if (!x) return NULL;
    *x = (ct_check_run){.ctx = ctx,
                        .engine = e,
                        .checks = e->check,
                        .n_leaves = e->order.n_leaves,
                        .n_roots = n_roots};
    x->saved_leaves = ct__calloc(x->n_leaves + 1, sizeof *x->saved_leaves);
    x->root_bytes = ct__calloc(n_roots + 1, sizeof *x->root_bytes);
    x->old_values = ct__calloc(n_roots + 1, sizeof *x->old_values);
    x->origin = ct__calloc(n_roots + 1, sizeof *x->origin);
    return x->saved_leaves && x->root_bytes && x->old_values && x->origin ? x : NULL;
}

static void *check_download(ct_ctx *ctx, ct_storage *s) {
    void *bytes = ct__malloc(s->bytes + 8);
    if (!bytes) check_no_memory(ctx, s->bytes);
    if (bytes && ct__hooks.download(ctx, s, bytes, s->bytes)) return bytes;
    ct__free(bytes);
    return NULL;
}

static bool check_save_values(ct_check_run *x) {
    for (size_t i = 0; i < x->n_roots; i++) {
        const ct_var *var = x->engine->roots[i].var;
        const ct_storage *storage = var ? var->storage : NULL;
        if (!storage) continue;
        if (!(x->old_values[i] = check_download(x->ctx, var->storage))) return false;
        size_t leaf = 0;
        while (leaf < x->n_leaves && x->engine->order.leaves[leaf] != storage) leaf++;
        if (leaf == x->n_leaves) continue;
        x->saved_leaves[leaf] = ct__malloc(storage->bytes + 8);
        if (!x->saved_leaves[leaf]) return check_no_memory(x->ctx, storage->bytes);
        memcpy(x->saved_leaves[leaf], x->old_values[i], storage->bytes);
    }
    return true;
}

// Restores the variables that the plan changed, as if it had not run.
static void check_restore_variables(ct_check_run *x) {
    for (size_t i = 0; i < x->n_roots; i++) {
        const ct_var *var = x->engine->roots[i].var;
        if (!x->old_values[i]) continue;
        const ct_storage *storage = var->storage;
        ct_device *device = storage->owner;
        ct_err err = {0}; // the error of the check is recorded already
        if (!device->backend->copy_in(device, (ct_operand){storage->buffer, 0}, x->old_values[i],
                                      storage->bytes, &err))
            return; // the device is poisoned, as by any device error
    }
    x->engine->started = false;
}

// ---------------------------------------------------------------------------------------- verdicts

static bool check_report_event(ct_check_run *x, uint32_t number) {
    const ct_check_event *e = &x->events[number - 1];
    ct__err(&x->ctx->err, CT_E_CHECK, e->here, e->op, "%s", e->text);
    return false;
}

// Reports the first op, in execution order, that made a NaN or infinity of a result.
static bool check_roots_are_finite(ct_check_run *x) {
    uint32_t first = 0;
    for (size_t i = 0; i < x->n_roots; i++)
        if (x->engine->roots[i].kind != CT_ROOT_EXTRA && x->origin[i] &&
            (!first || x->origin[i] < first))
            first = x->origin[i];
    return !first || check_report_event(x, first);
}

static void check_write_root(ct_text *text, const ct_root *r) {
    if (r->kind == CT_ROOT_ASSIGN)
        ct__textf(text, "the new value of variable \"%s\"", r->var->name);
    else if (r->kind == CT_ROOT_METRIC)
        ct__textf(text, "the metric \"%s\"", r->name);
    else
        ct__text_add(text, "its value");
}

static void check_report_fused(ct_check_run *x, const ct_root *r, ct_check_difference d,
                               const void *got, const void *want) {
    const ct_type *type = ct__type(r->val);
    ct_text text = {0};
    check_write_root(&text, r);
    ct__textf(&text,
              " differs between the plan and the same ops one by one in %lld of %lld elements,"
              " first at ",
              (long long)d.count, (long long)ct__count(type));
    ct__check_write_difference(&text, type, d.at, got, want);
    ct__check_report(x, r->val.node, &text);
    ct__err_hint(&x->ctx->err, "one op at a time is right: COTAN_FUSE=0 goes around the fault");
}

// Reports the differing result that comes first in the order of the ops, which is nearest to the error.
static bool check_equals_ops(ct_check_run *x, const ct_plan *plan) {
    void *first = NULL;
    size_t at = 0;
    ct_check_difference of_first = {0};
    for (size_t i = 0; i < x->n_roots; i++) {
        void *got = check_download(x->ctx, x->engine->fresh[i]);
        if (!got) break;
        ct_check_difference d =
            ct__check_same(ct__type(x->engine->roots[i].val), got, x->root_bytes[i]);
        bool earlier = !first || ct__check_value_index(plan->check, i) <
                                     ct__check_value_index(plan->check, at);
        if (d.count && earlier) {
            ct__free(first);
            first = got;
            at = i;
            of_first = d;
        } else {
            ct__free(got);
        }
    }
    if (first) check_report_fused(x, &x->engine->roots[at], of_first, first, x->root_bytes[at]);
    ct__free(first);
    return !x->ctx->err.code;
}

static bool check_find_nonfinite(ct_check_run *x, bool *bad) {
    *bad = false;
    for (size_t i = 0; i < x->n_roots && !*bad; i++) {
        const ct_type *type = ct__type(x->engine->roots[i].val);
        if (!ct__is_float(type->dtype)) continue;
        void *got = check_download(x->ctx, x->engine->fresh[i]);
        if (!got) return false;
        *bad = ct__has_nonfinite(ct__check_count_nonfinite(type, got));
        ct__free(got);
    }
    return true;
}

// --------------------------------------------------------------------------- before and after a run

bool ct__check_before(ct_ctx *ctx, ct_executor *e, ct_plan *plan, size_t n_roots) {
    if (!(e->check & CT_CHECK_OPS)) return true;
    ct_check_run *x = check_begin_run(ctx, e, n_roots);
    if (!x) return check_no_memory(ctx, sizeof *x);
    if (!check_save_values(x)) return false;
    if (!(x->checks & CT_CHECK_REF)) return true;
    return ct__check_ops(x, plan) && check_roots_are_finite(x);
}

bool ct__check_after(ct_executor *e, ct_plan *plan) {
    ct_check_run *x = e->checking;
    if (!x) return true;
    bool ok, bad = false;
    if (x->checks & CT_CHECK_REF)
        ok = check_equals_ops(x, plan);
    else
        ok = check_find_nonfinite(x, &bad) &&
             (!bad || (ct__check_ops(x, plan) && check_roots_are_finite(x)));
    if (!ok) check_restore_variables(x);
    return ok;
}
