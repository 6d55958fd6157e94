#include "compile/memory/memplan.h"
#include "compile/run/cost.h"

#include <string.h>

#include "backend/memory.h"
#include "base/number.h"

enum { COST_MAX_TENSORS = 8, COST_MESSAGE_TENSORS = 3 };

// ------------------------------------------------------------------------------------------- names

static bool cost_name_leaf(ct_plan *plan, ct_plan_leaf *leaf, const ct_node *node) {
    *leaf = (ct_plan_leaf){.type = *node->out, .here = node->here};
    int64_t *dim = ct__arena(&plan->arena, node->out->rank * sizeof *dim);
    if (!dim) return false;
    if (node->out->rank) memcpy(dim, node->out->dim, node->out->rank * sizeof *dim);
    leaf->type.dim = dim;
    if (!node->var) return true;
    leaf->here = node->var->node.here;
    leaf->name = ct__arena_str(&plan->arena, node->var->name);
    return leaf->name != NULL;
}

static bool cost_name_root(ct_plan *plan, ct_plan_root *to, const ct_root *root) {
    const ct_var *var = root->var;
    const char *called = var ? var->name : root->name;
    *to = (ct_plan_root){.fresh = !(var && var->storage),
                         .kind = root->kind,
                         .op = root->val.node->op,
                         .out = root->val.out,
                         .node_here = root->val.node->here};
    if (!called) return true;
    to->label = ct__arena_str(&plan->arena, called);
    if (var && to->fresh) to->name = to->label, to->here = var->node.here;
    return to->label != NULL;
}

bool ct__plan_name(ct_ctx *ctx, ct_plan *plan, const ct_order *order, const ct_root *roots,
                   size_t n_roots) {
    plan->leaves = ct__arena(&plan->arena, order->n_leaves * sizeof *plan->leaves);
    plan->roots = ct__arena_zero(&plan->arena, n_roots * sizeof *plan->roots);
    bool ok = plan->leaves && plan->roots;
    for (size_t i = 0; i < order->n_leaves && ok; i++)
        ok = cost_name_leaf(plan, &plan->leaves[i], order->leaf_nodes[i]);
    for (size_t i = 0; i < n_roots && ok; i++)
        ok = cost_name_root(plan, &plan->roots[i], &roots[i]);
    plan->n_leaves = order->n_leaves;
    plan->n_roots = n_roots;
    return ok || ct__err_memory(&ctx->err, plan->here, "plan", n_roots * sizeof *plan->roots);
}

// ----------------------------------------------------------------------------------------- tensors

static const ct_type *cost_type_of(const ct_buf *b) {
    for (int k = 0; b->node && k < b->node->n_out; k++)
        if (ct__type_bytes(&b->node->out[k]) == b->bytes) return &b->node->out[k];
    return NULL;
}

// Describes the tensor in buffer b. False: it does not count (e.g. a variable's new value, which is in the
// variable).
static bool cost_describe_tensor(const ct_plan *plan, const ct_buf *b, ct_plan_tensor *t) {
    const ct_type *type = cost_type_of(b);
    *t = (ct_plan_tensor){.bytes = b->bytes, .count = 1};
    if (b->node) t->here = b->node->here, t->name = b->node->op->name;
    if (b->kind == CT_BUF_LEAF) {
        const ct_plan_leaf *leaf = &plan->leaves[b->index];
        type = &leaf->type;
        t->here = leaf->here;
        t->name = leaf->name;
        t->is_variable = leaf->name != NULL;
    } else if (b->kind == CT_BUF_ROOT) {
        const ct_plan_root *root = &plan->roots[b->index];
        if (!root->fresh) return false;
        if (root->name) t->name = root->name, t->here = root->here;
        t->is_variable = root->name != NULL;
    } else if (b->kind == CT_BUF_SCALARS) {
        return false;
    }
    if (type) {
        t->dtype = (ct_dtype)type->dtype;
        t->rank = type->rank;
        t->dim = type->dim;
    }
    return t->bytes > 0;
}

static bool cost_same_loc(ct_loc a, ct_loc b) {
    return a.line == b.line && (a.file == b.file || (a.file && b.file && !strcmp(a.file, b.file)));
}

// True for tensors of one line that look alike, such as one per layer.
static bool cost_is_alike(const ct_plan_tensor *a, const ct_plan_tensor *b) {
    return a->bytes == b->bytes && a->is_variable == b->is_variable && !a->is_variable &&
           a->rank == b->rank && a->dtype == b->dtype && cost_same_loc(a->here, b->here) &&
           (a->name == b->name || (a->name && b->name && !strcmp(a->name, b->name))) &&
           !(a->rank && memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim));
}

// Fills list (COST_MAX_TENSORS) with the largest tensors, largest first. Returns their number.
static size_t cost_largest_tensors(const ct_plan *plan, ct_plan_tensor *list) {
    size_t n = 0;
    for (size_t b = 0; b < plan->program.n_bufs; b++) {
        ct_plan_tensor t;
        if (!cost_describe_tensor(plan, &plan->program.bufs[b], &t)) continue;
        size_t at = 0;
        while (at < n && list[at].bytes >= t.bytes && !cost_is_alike(&list[at], &t)) at++;
        if (at < n && cost_is_alike(&list[at], &t)) {
            list[at].count++;
            continue;
        }
        if (at == COST_MAX_TENSORS) continue;
        if (n < COST_MAX_TENSORS) n++;
        memmove(&list[at + 1], &list[at], (n - 1 - at) * sizeof *list);
        list[at] = t;
    }
    return n;
}

void ct__write_tensors(ct_text *text, const ct_plan_tensor *tensors, size_t n) {
    if (n > COST_MESSAGE_TENSORS) n = COST_MESSAGE_TENSORS;
    for (size_t i = 0; i < n; i++) {
        const ct_plan_tensor *t = &tensors[i];
        ct_type type = {.dtype = (uint8_t)t->dtype, .rank = (uint8_t)t->rank, .dim = t->dim};
        if (i) ct__text_add(text, i + 1 < n ? ", " : " and ");
        if (t->count > 1) ct__textf(text, "%zu times ", t->count);
        if (t->is_variable) ct__text_add(text, "variable ");
        ct__textf(text, t->is_variable ? "\"%.100s\"" : "%.100s", t->name ? t->name : "input");
        if (t->dtype) ct__textf(text, " %s", ct__type_text(&type).s);
        ct__textf(text, " of %s", ct__bytes_text(t->bytes).s);
        if (t->here.file) ct__textf(text, " (%s:%u)", t->here.file, t->here.line);
    }
}

// ---------------------------------------------------------------------------------------- fits

static void cost_add_sizes(ct_executor *engine, const ct_plan *plan, ct_plan_cost *c) {
    const ct_program *p = &plan->program;
    const ct_device *d = ct__computing_device(engine->device);
    c->arena_bytes = p->arena_bytes;
    c->constant_bytes = plan->n_scalars * 8;
    for (size_t b = 0; b < p->n_bufs; b++) {
        if (p->bufs[b].kind == CT_BUF_CONST) c->constant_bytes += p->bufs[b].bytes;
        if (p->bufs[b].kind == CT_BUF_ROOT && plan->roots[p->bufs[b].index].fresh)
            c->result_bytes += p->bufs[b].bytes;
    }
    for (size_t i = 0; i < plan->n_leaves; i++)
        c->input_bytes += ct__type_bytes(&plan->leaves[i].type);
    for (size_t i = 0; i < p->n_launches && d->backend->workspace; i++) {
        const ct_launch *l = &p->launches[i];
        if (l->kind != CT_LAUNCH_KERNEL) continue;
        ct_command command = ct__program_command(p, l);
        uint64_t bytes = d->backend->workspace(d, &command);
        if (bytes > c->workspace_bytes) c->workspace_bytes = bytes;
    }
    c->n_kernels = p->n_kernels;
    c->new_kernels = p->new_kernels;
    c->n_remat_regions = plan->n_regions;
    c->n_recomputed = plan->n_recomputed;
    c->here = plan->here;
}

bool ct__plan_fits(ct_ctx *ctx, ct_executor *engine, ct_plan *plan) {
    ct_account *account = engine->device->account;
    ct_plan_cost c = {0};
    cost_add_sizes(engine, plan, &c);
    uint64_t workspace = account->now[CT_MEMORY_WORKSPACES], arena = engine->temporaries.bytes;
    uint64_t need = (c.arena_bytes > arena ? c.arena_bytes - arena : 0) + c.constant_bytes +
                    c.result_bytes +
                    (c.workspace_bytes > workspace ? c.workspace_bytes - workspace : 0);
    uint64_t left = ct__memory_left(account), user_limit = ct_memory_limit();
    if (engine->memory_limit && ctx->regions->n && !ctx->regions->least) {
        uint64_t total = account->total;
        uint64_t limit = engine->memory_limit > total ? engine->memory_limit - total : 0;
        if (limit < left) left = limit;
    }
    if (need <= left) return true;
    ct_plan_tensor tensors[COST_MAX_TENSORS];
    ct_text text = {0};
    ct__write_tensors(&text, tensors, cost_largest_tensors(plan, tensors));
    if (user_limit)
        ct__err(&ctx->err, CT_E_LIMIT, plan->here, "plan",
                "%s are needed where %s are in use: the limit is %s; the largest tensors are %s",
                ct__bytes_text(need).s, ct__bytes_text(account->total).s,
                ct__bytes_text(user_limit).s, text.s && !text.failed ? text.s : "not known");
    else
        ct__err(&ctx->err, CT_E_LIMIT, plan->here, "plan",
                "%s are needed where %s are left; the largest tensors are %s",
                ct__bytes_text(need).s, ct__bytes_text(left).s,
                text.s && !text.failed ? text.s : "not known");
    ct__text_free(&text);
    return false;
}

// -------------------------------------------------------------------------------------- the report

// Adds the bytes of temporaries in use during each launch to in_use (n_launches + 2), which is zero.
static bool cost_add_temporaries(const ct_program *p, uint64_t *in_use, ct_err *err) {
    size_t *first = ct__malloc((p->n_bufs + 1) * sizeof *first);
    size_t *last = ct__malloc((p->n_bufs + 1) * sizeof *last);
    bool ok = first && last ? ct__plan_lifetimes(p, first, last, err)
                            : ct__err_memory(err, CT_NOWHERE, "plan", p->n_bufs * sizeof *first);
    // Unsigned numbers wrap: each buffer is subtracted again after its last launch.
    for (size_t b = 0; b < p->n_bufs && ok; b++) {
        if (p->bufs[b].kind != CT_BUF_TEMP || first[b] == SIZE_MAX) continue;
        uint64_t bytes = ct__round_up(p->bufs[b].bytes, 64);
        in_use[first[b]] += bytes;
        in_use[last[b] + 1] -= bytes;
    }
    for (size_t i = 0; i < p->n_launches && ok; i++) in_use[i + 1] += in_use[i];
    ct__free(first);
    ct__free(last);
    return ok;
}

// Returns the name of the largest variable that the launch reads, which tells the user what it works on.
// Among the variables of an optimizer update, which have equal sizes, it is the parameter: its name is part
// of the others'.
static const char *cost_main_variable(const ct_plan *plan, const ct_launch *l) {
    const char *name = NULL;
    uint64_t most_bytes = 0;
    for (uint32_t a = 0; a < l->n_args; a++) {
        const ct_buf *b = &plan->program.bufs[l->args[a].buf];
        const char *variable = b->kind == CT_BUF_LEAF ? plan->leaves[b->index].name : NULL;
        if (!variable || b->bytes < most_bytes) continue;
        if (b->bytes == most_bytes && name && strlen(variable) >= strlen(name)) continue;
        name = variable;
        most_bytes = b->bytes;
    }
    return name;
}

static ct_plan_launch cost_describe_launch(const ct_plan *plan, const ct_launch *l, int64_t times) {
    const ct_program *p = &plan->program;
    ct_plan_launch out = {.op = l->node ? l->node->op->name : NULL,
                          .here = l->node ? l->node->here : CT_NOWHERE,
                          .variable = cost_main_variable(plan, l),
                          .executions = times,
                          .bytes = l->bytes,
                          .flops = l->flops};
    if (l->kind == CT_LAUNCH_KERNEL) out.kernel = p->kernels[l->kernel].made->name;
    if (l->kind == CT_LAUNCH_COPY) out.kernel = "copy";
    // an op that is evaluated alone reads and writes its arguments whole
    if (l->kind == CT_LAUNCH_NODE)
        for (uint32_t a = 0; a < l->n_args; a++) out.bytes += p->bufs[l->args[a].buf].bytes;
    return out;
}

// Describes the launches of a batch as one.
static ct_plan_launch cost_describe_batch(const ct_plan *plan, const ct_launch *batch,
                                          int64_t times) {
    ct_plan_launch out = cost_describe_launch(plan, batch + 1, times);
    bool copies = batch[1].kind == CT_LAUNCH_COPY;
    for (int64_t i = 2; i <= batch->count; i++) {
        copies &= batch[i].kind == CT_LAUNCH_COPY;
        out.bytes += batch[i].bytes;
        out.flops += batch[i].flops;
    }
    if (!copies) out.kernel = "batch";
    return out;
}

static bool cost_add_launches(ct_plan *plan, const char *device, ct_plan_cost *c, uint64_t *in_use,
                              ct_err *err) {
    const ct_program *p = &plan->program;
    ct_plan_launch *launches = ct__arena(&plan->arena, p->n_launches * sizeof *launches);
    int64_t *times = ct__arena(&plan->arena, (p->n_launches + 1) * sizeof *times);
    if (!launches || !times || !cost_add_temporaries(p, in_use, err))
        return ct__err_memory(err, plan->here, "plan", p->n_launches * sizeof *launches);
    size_t depth = 0;
    times[0] = 1;
    for (size_t i = 0; i < p->n_launches; i++) {
        const ct_launch *l = &p->launches[i];
        if (l->kind == CT_LAUNCH_LOOP || l->kind == CT_LAUNCH_SWITCH) {
            // Counts one iteration of a loop of unknown length, and each branch once.
            bool known = l->kind == CT_LAUNCH_LOOP && l->count != INT64_MAX;
            times[depth + 1] = times[depth] * (known ? l->count : 1);
            depth++;
        } else if (l->kind == CT_LAUNCH_END) {
            depth--;
        } else if (ct__launch_counts(l)) {
            ct_plan_launch *out = &launches[c->n_launches++];
            const bool batch = l->kind == CT_LAUNCH_BATCH;
            *out = batch ? cost_describe_batch(plan, l, times[depth])
                         : cost_describe_launch(plan, l, times[depth]);
            out->temporary_bytes = in_use[i];
            out->device = device;
            c->bytes += out->bytes * (uint64_t)out->executions;
            c->flops += out->flops * (double)out->executions;
            if (in_use[i] > c->peak_temporary_bytes) c->peak_temporary_bytes = in_use[i];
            if (batch) i += (size_t)l->count + 1; // its END
        }
    }
    c->launches = launches;
    return true;
}

static void cost_add(ct_plan_cost *to, const ct_plan_cost *c) {
    to->arena_bytes += c->arena_bytes;
    to->input_bytes += c->input_bytes;
    to->result_bytes += c->result_bytes;
    to->constant_bytes += c->constant_bytes;
    to->workspace_bytes += c->workspace_bytes;
    to->peak_temporary_bytes += c->peak_temporary_bytes;
    to->bytes += c->bytes;
    to->flops += c->flops;
    to->n_launches += c->n_launches;
    to->n_kernels += c->n_kernels;
    to->new_kernels += c->new_kernels;
}

// Keeps the largest of the subplans' largest tensors.
static void cost_merge_tensors(ct_plan_tensor *to, size_t *n, const ct_plan_cost *c) {
    for (size_t i = 0; i < c->n_tensors; i++) {
        size_t at = *n;
        while (at && to[at - 1].bytes < c->tensors[i].bytes) at--;
        if (at == COST_MAX_TENSORS) continue;
        if (*n < COST_MAX_TENSORS) ++*n;
        memmove(&to[at + 1], &to[at], (*n - 1 - at) * sizeof *to);
        to[at] = c->tensors[i];
    }
}

// Returns the cost of a plan of several devices: the sum of its subplans, whose launches run one after
// another.
static const ct_plan_cost *cost_of_subplans(ct_ctx *ctx, ct_plan *plan) {
    ct_plan_cost *sum = ct__arena_zero(&plan->arena, sizeof *sum);
    ct_plan_tensor *tensors = ct__arena(&plan->arena, COST_MAX_TENSORS * sizeof *tensors);
    bool ok = sum && tensors;
    for (size_t i = 0; i < plan->n_subplans && ok; i++) {
        const ct_plan_cost *c =
            ct__plan_cost(ctx, plan->subplans[i].engine, plan->subplans[i].plan);
        ok = c != NULL;
        if (ok) cost_add(sum, c), cost_merge_tensors(tensors, &sum->n_tensors, c);
    }
    ct_plan_launch *all = ok ? ct__arena(&plan->arena, (sum->n_launches + 1) * sizeof *all) : NULL;
    if (!all) return ct__null_memory(&ctx->err, plan->here, "plan", sizeof *sum);
    sum->launches = all;
    for (size_t i = 0; i < plan->n_subplans; i++) {
        const ct_plan_cost *c = plan->subplans[i].plan->cost;
        if (c->n_launches) memcpy(all, c->launches, c->n_launches * sizeof *all);
        all += c->n_launches;
    }
    sum->tensors = tensors;
    sum->n_remat_regions = plan->n_regions;
    sum->n_recomputed = plan->n_recomputed;
    sum->here = plan->here;
    return plan->cost = sum;
}

const ct_plan_cost *ct__plan_cost(ct_ctx *ctx, ct_executor *engine, ct_plan *plan) {
    if (plan->cost) return plan->cost;
    if (plan->n_subplans) return cost_of_subplans(ctx, plan);
    ct_plan_cost *c = ct__arena_zero(&plan->arena, sizeof *c);
    ct_plan_tensor *tensors = ct__arena(&plan->arena, COST_MAX_TENSORS * sizeof *tensors);
    uint64_t *in_use = ct__calloc(plan->program.n_launches + 2, sizeof *in_use);
    bool ok = c && tensors && in_use;
    if (ok) {
        cost_add_sizes(engine, plan, c);
        ok = cost_add_launches(plan, engine->device->name, c, in_use, &ctx->err);
        c->tensors = tensors;
        c->n_tensors = cost_largest_tensors(plan, tensors);
    } else {
        ct__err_memory(&ctx->err, plan->here, "plan", sizeof *c);
    }
    ct__free(in_use);
    return ok ? plan->cost = c : NULL;
}
