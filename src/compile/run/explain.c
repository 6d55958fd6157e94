#include "compile/run/explain.h"

#include <string.h>

enum { EXPLAIN_PLANS_BEFORE_HINT = 8 };

static const char *explain_file_of(ct_loc here) { return here.file ? here.file : "?"; }

// Writes a leaf as the user knows it.
static void explain_write_leaf(ct_text *text, const ct_plan_leaf *leaf) {
    if (leaf->name)
        ct__textf(text, "variable \"%s\"", leaf->name);
    else
        ct__textf(text, "the tensor made at %s:%u", explain_file_of(leaf->here), leaf->here.line);
}

// Returns the plan of the same source line that was used last, preferring those with the same number of
// leaves. Adds the number of plans of the line to `count`.
static ct_plan *explain_find_sibling(ct_executor *e, const ct_plan *plan, size_t *explain_count) {
    ct_plan *best = NULL;
    for (size_t i = 0; i < e->n_buckets; i++)
        for (ct_plan *p = e->buckets[i]; p; p = p->next) {
            if (p == plan || p->here.line != plan->here.line || !p->here.file || !plan->here.file ||
                strcmp(p->here.file, plan->here.file) != 0)
                continue;
            ++*explain_count;
            bool alike = p->n_leaves == plan->n_leaves,
                 was_alike = best && best->n_leaves == plan->n_leaves;
            if (!best || (alike == was_alike ? p->stamp > best->stamp : alike)) best = p;
        }
    return best;
}

// Writes the first leaf whose type differs. False: none does. `declared`: the difference is in a dynamic
// size.
static bool explain_type_difference(ct_text *text, const ct_plan *plan, const ct_plan *before,
                                    bool *declared) {
    if (plan->n_leaves != before->n_leaves) return false;
    for (size_t i = 0; i < plan->n_leaves; i++) {
        const ct_type *now = &plan->leaves[i].type, *was = &before->leaves[i].type;
        if (now->dtype != was->dtype || now->rank != was->rank) {
            explain_write_leaf(text, &plan->leaves[i]);
            ct__textf(text, " is %s, it was %s", ct__type_text(now).s, ct__type_text(was).s);
            return true;
        }
        for (int a = 0; a < now->rank; a++) {
            if (now->dim[a] == was->dim[a]) continue;
            *declared = ct__is_dyn(now, a) && ct__is_dyn(was, a);
            explain_write_leaf(text, &plan->leaves[i]);
            ct__textf(text, ": axis %d has size %lld, it had %lld", a, (long long)now->dim[a],
                      (long long)was->dim[a]);
            return true;
        }
    }
    return false;
}

static bool explain_same_root(const ct_plan_root *a, const ct_plan_root *b) {
    bool named = a->label && b->label;
    return a->kind == b->kind && a->op == b->op && a->out == b->out &&
           a->node_here.line == b->node_here.line &&
           strcmp(explain_file_of(a->node_here), explain_file_of(b->node_here)) == 0 &&
           (named ? strcmp(a->label, b->label) == 0 : a->label == b->label);
}

static size_t explain_count_root(const ct_plan_root *root, const ct_plan_root *among, size_t n) {
    size_t explain_count = 0;
    for (size_t i = 0; i < n; i++) explain_count += explain_same_root(root, &among[i]);
    return explain_count;
}

// Returns the first result of `plan` that `other` does not have (as often), or NULL. `shared`: set if they
// have results in common.
static const ct_plan_root *explain_own_root(const ct_plan *plan, const ct_plan *other,
                                            bool *shared) {
    const ct_plan_root *own = NULL;
    for (size_t i = 0; i < plan->n_roots; i++) {
        const ct_plan_root *root = &plan->roots[i];
        bool is_shared = explain_count_root(root, plan->roots, i) <
                         explain_count_root(root, other->roots, other->n_roots);
        *shared |= is_shared;
        if (!is_shared && !own) own = root;
    }
    return own;
}

// Writes which result is requested this time and was not before, or the reverse. False if the plans have no
// results in common.
static bool explain_root_difference(ct_text *text, const ct_plan *plan, const ct_plan *before) {
    static const char *const verbs[] = {[CT_ROOT_KEEP] = "kept",
                                        [CT_ROOT_READ] = "read",
                                        [CT_ROOT_ASSIGN] = "assigned",
                                        [CT_ROOT_METRIC] = "recorded",
                                        [CT_ROOT_STORE] = "stored for inner scopes",
                                        [CT_ROOT_EXTRA] = "stored for a later use"};
    bool shared = false;
    const ct_plan_root *now = explain_own_root(plan, before, &shared);
    const ct_plan_root *root = now ? now : explain_own_root(before, plan, &shared);
    if (!root || !shared) return false;
    if (root->label)
        ct__textf(text, "%s \"%s\"", root->kind == CT_ROOT_METRIC ? "metric" : "variable",
                  root->label);
    else
        ct__textf(text, "%s of %s:%u", root->op->name, explain_file_of(root->node_here),
                  root->node_here.line);
    ct__textf(text, " is %s%s this time, it was%s", now ? "" : "not ", verbs[root->kind],
              now ? " not" : "");
    return true;
}

// Writes the first attribute, or else op, that differs.
static bool explain_attr_difference(ct_text *text, const ct_difference *d, bool *declared) {
    if (!d->node) return false;
    const ct_loc here = d->node->here;
    if (d->field) {
        ct__textf(text, "%s of %s:%u: %s is ", d->node->op->name, explain_file_of(here), here.line,
                  d->field->name);
        ct__difference_text(text, d);
        *declared = ct__difference_declared(d);
    } else {
        ct__textf(text, "what was recorded differs in structure, first at %s:%u: %s",
                  explain_file_of(here), here.line, d->node->op->name);
    }
    return true;
}

static const char *explain_advice(const ct_difference *d, bool rolling) {
    if (!d->field && rolling) return "sizes that are padded to a few make as many plans";
    if (!d->field) return "a size that varies can be declared with CT_DYN";
    if (d->node->op->varies) return d->node->op->varies;
    return d->field->kind == CT_FIELD_ints
               ? "an attribute is part of the plan, but for sizes in it that CT_DYN marks"
               : "an attribute is part of the plan; what varies is better an operand";
}

static void explain_log_recomputed(ct_ctx *ctx, ct_loc here, const char *op, const ct_node *node,
                                   const char *why) {
    CT_TEXT text = {0};
    ct__textf(&text, "%s:%u: %s recomputes %s of %s:%u, %s", explain_file_of(here), here.line, op,
              node->op->name, explain_file_of(node->here), node->here.line, why);
    if (text.s && !text.failed) ct__log(ctx, CT_LOG_EXPLAIN, text.s);
}

void ct__explain_recomputed(ct_ctx *ctx, ct_loc here, const char *op, const ct_node *node) {
    if (ct__env_flag("COTAN_EXPLAIN"))
        explain_log_recomputed(
            ctx, here, op, node,
            "which an earlier read had computed and not stored; it is stored from now on");
}

static void explain_log_reopened(ct_ctx *ctx, const ct_order *order) {
    for (size_t i = 0; i < order->n_open; i++) {
        const ct_node *node = order->open[i].node, *gradient = order->open[i].gradient;
        if (node->value || node->flags & CT_NODE_STORED)
            explain_log_recomputed(ctx, gradient->here, gradient->op->name, node,
                                   "though its value is there, to go back through it");
    }
}

static void explain_count(const ct_plan *plan, size_t *launches, size_t *kernels, size_t *n_new) {
    for (size_t i = 0; i < plan->program.n_launches; i++)
        *launches += ct__launch_counts(&plan->program.launches[i]);
    *kernels += plan->program.n_kernels;
    *n_new += plan->program.new_kernels;
    for (size_t i = 0; i < plan->n_subplans; i++)
        explain_count(plan->subplans[i].plan, launches, kernels, n_new);
}

// Writes the devices of a plan of several devices, each once.
static void explain_write_devices(ct_text *text, const ct_plan *plan) {
    for (size_t i = 0; i < plan->n_subplans; i++) {
        size_t before = 0;
        while (before < i && plan->subplans[before].engine != plan->subplans[i].engine) before++;
        if (before < i) continue;
        if (!i) ct__textf(text, ", %zu subplans on ", plan->n_subplans);
        ct__textf(text, "%s%s", i ? ", " : "", plan->subplans[i].engine->device->name);
    }
}

void ct__explain_new(ct_ctx *ctx, ct_executor *engine, ct_plan *plan, const ct_order *order,
                     double seconds) {
    size_t siblings = 0;
    ct_plan *before = explain_find_sibling(engine, plan, &siblings);
    // A plan of several devices has fixed sizes, whatever is declared.
    bool hint = siblings + 1 == EXPLAIN_PLANS_BEFORE_HINT && !plan->n_subplans && !ctx->several,
         explain = ct__env_flag("COTAN_EXPLAIN");
    if (!hint && !explain) return;
    size_t launches = 0, kernels = 0, n_new = 0;
    explain_count(plan, &launches, &kernels, &n_new);
    CT_TEXT text = {0}, why = {0};
    ct_difference attr_difference = {0};
    bool declared = false,
         differs = before && explain_type_difference(&why, plan, before, &declared);
    bool root_differs = before && !differs && explain_root_difference(&why, plan, before);
    differs |= root_differs;
    if (before && !differs) {
        attr_difference = ct__order_difference(order, before->words, before->n_words);
        differs = explain_attr_difference(&why, &attr_difference, &declared);
    }
    differs = differs && why.s && !why.failed;
    // No hint if the difference is in a declared dynamic size, in the structure of the graph, or in the
    // requested results: there is nothing to declare.
    hint = hint && !declared && !root_differs && differs &&
           !(attr_difference.node && !attr_difference.field);
    ct__textf(&text,
              "%s:%u: plan %llu made in %.1f ms (%zu nodes, %zu launches, %zu kernels, %zu new",
              explain_file_of(plan->here), plan->here.line, (unsigned long long)plan->number,
              seconds * 1e3, order->n, launches, kernels, n_new);
    explain_write_devices(&text, plan);
    ct__text_add(&text, "): ");
    if (differs)
        ct__text_add(&text, why.s);
    else
        ct__text_add(&text, siblings ? "what was recorded differs in structure"
                                     : "the first of this line");
    if (hint)
        ct__textf(&text, "\n  hint: this line has made %d plans; %s: %s", EXPLAIN_PLANS_BEFORE_HINT,
                  explain_advice(&attr_difference, ctx->rolling), why.s);
    else if (explain && !declared && attr_difference.field && attr_difference.node->op->varies)
        ct__textf(&text, "\n  hint: %s", attr_difference.node->op->varies);
    if (text.s && !text.failed && (hint || explain))
        ct__log(ctx, hint ? CT_LOG_WARNING : CT_LOG_EXPLAIN, text.s);
    if (explain) explain_log_reopened(ctx, order);
}
