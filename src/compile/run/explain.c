#include "compile/run/explain.h"

#include <string.h>

enum { PLANS_BEFORE_HINT = 8 };

static const char *file_of(ct_loc here) { return here.file ? here.file : "?"; }

// A leaf as the user knows it.
static void name_leaf(ct_text *text, const ct_plan_leaf *leaf) {
    if (leaf->name)
        ct__textf(text, "variable \"%s\"", leaf->name);
    else
        ct__textf(text, "the tensor made at %s:%u", file_of(leaf->here), leaf->here.line);
}

// The plan of the same line that ran last, of those with as many leaves if there are; how many
// plans the line has made.
static ct_plan *sibling(ct_executor *e, const ct_plan *plan, size_t *count) {
    ct_plan *best = NULL;
    for (size_t i = 0; i < e->n_buckets; i++)
        for (ct_plan *p = e->buckets[i]; p; p = p->next) {
            if (p == plan || p->here.line != plan->here.line || !p->here.file || !plan->here.file ||
                strcmp(p->here.file, plan->here.file) != 0)
                continue;
            ++*count;
            bool alike = p->n_leaves == plan->n_leaves,
                 was_alike = best && best->n_leaves == plan->n_leaves;
            if (!best || (alike == was_alike ? p->stamp > best->stamp : alike)) best = p;
        }
    return best;
}

// The first leaf whose type differs, in words. False: none does. `declared`: it is a dynamic size.
static bool say_difference(ct_text *text, const ct_plan *plan, const ct_plan *before,
                           bool *declared) {
    if (plan->n_leaves != before->n_leaves) return false;
    for (size_t i = 0; i < plan->n_leaves; i++) {
        const ct_type *now = &plan->leaves[i].type, *was = &before->leaves[i].type;
        if (now->dtype != was->dtype || now->rank != was->rank) {
            name_leaf(text, &plan->leaves[i]);
            ct__textf(text, " is %s, it was %s", ct__type_text(now).s, ct__type_text(was).s);
            return true;
        }
        for (int a = 0; a < now->rank; a++) {
            if (now->dim[a] == was->dim[a]) continue;
            *declared = ct__is_dyn(now, a) && ct__is_dyn(was, a);
            name_leaf(text, &plan->leaves[i]);
            ct__textf(text, ": axis %d has size %lld, it had %lld", a, (long long)now->dim[a],
                      (long long)was->dim[a]);
            return true;
        }
    }
    return false;
}

static bool same_root(const ct_plan_root *a, const ct_plan_root *b) {
    bool named = a->called && b->called;
    return a->kind == b->kind && a->op == b->op && a->out == b->out &&
           a->made.line == b->made.line && strcmp(file_of(a->made), file_of(b->made)) == 0 &&
           (named ? strcmp(a->called, b->called) == 0 : a->called == b->called);
}

static size_t times(const ct_plan_root *root, const ct_plan_root *among, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += same_root(root, &among[i]);
    return count;
}

// The first result of `plan` that `other` does not have (so often); NULL: there is none. `shared`:
// it has some.
static const ct_plan_root *own_root(const ct_plan *plan, const ct_plan *other, bool *shared) {
    const ct_plan_root *own = NULL;
    for (size_t i = 0; i < plan->n_roots; i++) {
        const ct_plan_root *root = &plan->roots[i];
        bool there = times(root, plan->roots, i) < times(root, other->roots, other->n_roots);
        *shared |= there;
        if (!there && !own) own = root;
    }
    return own;
}

// The result that is wanted this time and was not before, or else the other way round; of steps
// that have nothing in common none is.
static bool say_wanted(ct_text *text, const ct_plan *plan, const ct_plan *before) {
    static const char *const wanted[] = {[CT_ROOT_KEEP] = "kept",
                                         [CT_ROOT_READ] = "read",
                                         [CT_ROOT_ASSIGN] = "assigned",
                                         [CT_ROOT_METRIC] = "recorded",
                                         [CT_ROOT_STORE] = "stored for inner scopes",
                                         [CT_ROOT_EXTRA] = "stored for a later use"};
    bool shared = false;
    const ct_plan_root *now = own_root(plan, before, &shared);
    const ct_plan_root *root = now ? now : own_root(before, plan, &shared);
    if (!root || !shared) return false;
    if (root->called)
        ct__textf(text, "%s \"%s\"", root->kind == CT_ROOT_METRIC ? "metric" : "variable",
                  root->called);
    else
        ct__textf(text, "%s of %s:%u", root->op->name, file_of(root->made), root->made.line);
    ct__textf(text, " is %s%s this time, it was%s", now ? "" : "not ", wanted[root->kind],
              now ? " not" : "");
    return true;
}

// The first attribute, or else op, that differs.
static bool say_other(ct_text *text, const ct_difference *d, bool *declared) {
    if (!d->node) return false;
    const ct_loc here = d->node->here;
    if (d->field) {
        ct__textf(text, "%s of %s:%u: %s is ", d->node->op->name, file_of(here), here.line,
                  d->field->name);
        ct__difference_text(text, d);
        *declared = ct__difference_declared(d);
    } else {
        ct__textf(text, "what was recorded differs in structure, first at %s:%u: %s", file_of(here),
                  here.line, d->node->op->name);
    }
    return true;
}

static const char *advice(const ct_difference *d, bool rolling) {
    if (!d->field && rolling) return "sizes that are padded to a few make as many plans";
    if (!d->field) return "a size that varies can be declared with CT_DYN";
    if (d->node->op->varies) return d->node->op->varies;
    return d->field->kind == CT_FIELD_ints
               ? "an attribute is part of the plan, but for sizes in it that CT_DYN marks"
               : "an attribute is part of the plan; what varies is better an operand";
}

static void say_again(ct_ctx *ctx, ct_loc here, const char *op, const ct_node *node,
                      const char *why) {
    ct_text text = {0};
    ct__textf(&text, "%s:%u: %s computes %s of %s:%u again, %s", file_of(here), here.line, op,
              node->op->name, file_of(node->here), node->here.line, why);
    if (text.s && !text.failed) ct__log(ctx, CT_LOG_EXPLAIN, text.s);
    ct__text_free(&text);
}

void ct__explain_again(ct_ctx *ctx, ct_loc here, const char *op, const ct_node *node) {
    if (ct__env_flag("COTAN_EXPLAIN"))
        say_again(ctx, here, op, node,
                  "which an earlier read had computed and not stored; it is stored from now on");
}

static void say_opened(ct_ctx *ctx, const ct_order *order) {
    for (size_t i = 0; i < order->n_open; i++) {
        const ct_node *node = order->open[i].node, *gradient = order->open[i].gradient;
        if (node->value || node->flags & CT_NODE_STORED)
            say_again(ctx, gradient->here, gradient->op->name, node,
                      "though its value is there, to go back through it");
    }
}

static void count(const ct_plan *plan, size_t *launches, size_t *kernels, size_t *anew) {
    for (size_t i = 0; i < plan->program.n_launches; i++)
        *launches += ct__launch_counts(&plan->program.launches[i]);
    *kernels += plan->program.n_kernels;
    *anew += plan->program.new_kernels;
    for (size_t i = 0; i < plan->n_pieces; i++)
        count(plan->pieces[i].plan, launches, kernels, anew);
}

// The devices of a plan that lies on several, each once.
static void say_devices(ct_text *text, const ct_plan *plan) {
    for (size_t i = 0; i < plan->n_pieces; i++) {
        size_t before = 0;
        while (before < i && plan->pieces[before].engine != plan->pieces[i].engine) before++;
        if (before < i) continue;
        if (!i) ct__textf(text, ", %zu pieces on ", plan->n_pieces);
        ct__textf(text, "%s%s", i ? ", " : "", plan->pieces[i].engine->device->name);
    }
}

void ct__explain_new(ct_ctx *ctx, ct_executor *engine, ct_plan *plan, const ct_order *order,
                     double seconds) {
    size_t siblings = 0;
    ct_plan *before = sibling(engine, plan, &siblings);
    // One of several devices is of its sizes alone, whatever is declared.
    bool hint = siblings + 1 == PLANS_BEFORE_HINT && !plan->n_pieces && !ctx->several,
         explain = ct__env_flag("COTAN_EXPLAIN");
    if (!hint && !explain) return;
    size_t launches = 0, kernels = 0, anew = 0;
    count(plan, &launches, &kernels, &anew);
    ct_text text = {0}, why = {0};
    ct_difference other = {0};
    bool declared = false, differs = before && say_difference(&why, plan, before, &declared);
    bool wanted = before && !differs && say_wanted(&why, plan, before);
    differs |= wanted;
    if (before && !differs) {
        other = ct__order_difference(order, before->words, before->n_words);
        differs = say_other(&why, &other, &declared);
    }
    differs = differs && why.s && !why.failed;
    // Lengths are dynamic so that they may vary; and where the graph is another one each time, or
    // other results of it are wanted, there is nothing to declare.
    hint = hint && !declared && !wanted && differs && !(other.node && !other.field);
    ct__textf(&text,
              "%s:%u: plan %llu made in %.1f ms (%zu nodes, %zu launches, %zu kernels, %zu new",
              file_of(plan->here), plan->here.line, (unsigned long long)plan->number, seconds * 1e3,
              order->n, launches, kernels, anew);
    say_devices(&text, plan);
    ct__text_add(&text, "): ");
    if (differs)
        ct__text_add(&text, why.s);
    else
        ct__text_add(&text, siblings ? "what was recorded differs in structure"
                                     : "the first of this line");
    if (hint)
        ct__textf(&text, "\n  hint: this line has made %d plans; %s: %s", PLANS_BEFORE_HINT,
                  advice(&other, ctx->rolling), why.s);
    else if (explain && !declared && other.field && other.node->op->varies)
        ct__textf(&text, "\n  hint: %s", other.node->op->varies);
    if (text.s && !text.failed && (hint || explain))
        ct__log(ctx, hint ? CT_LOG_WARNING : CT_LOG_EXPLAIN, text.s);
    if (explain) say_opened(ctx, order);
    ct__text_free(&text);
    ct__text_free(&why);
}
