// Variables, parameter sets, assignments, metrics: what a step changes and reports.
#include <math.h>
#include <string.h>

#include "graph/handle.h"

struct ct_params {
    ct_ctx *ctx;   // whose slots the handles take
    ct_var **vars; // (n)
    size_t n, cap;
};

ct_params *ct_params_new(void) {
    ct_ctx *ctx = ct__ctx();
    ct_params *params = ctx ? ct__calloc(1, sizeof *params) : NULL;
    if (!params) return NULL;
    params->ctx = ctx;
    atomic_fetch_add(&ct__sets, 1);
    return params;
}

static void let_go(ct_var *var) {
    if (atomic_fetch_sub_explicit(&var->refs, 1, memory_order_acq_rel) != 1) return;
    ct__free((void *)(uintptr_t)var->type.dim);
    ct__free(var->name);
    ct__free(var);
}

static void free_var(ct_ctx *ctx, ct_var *var) {
    if (var->writer) { // a pending assignment goes with its variable
        ct_ctx *w = var->writer;
        size_t kept = 0;
        for (size_t i = 0; i < w->n_roots; i++)
            if (w->roots[i].var != var)
                w->roots[kept++] = w->roots[i];
            else
                ct__unuse(w->roots[i].val.node);
        w->n_roots = kept;
        var->writer = NULL;
    }
    if (var->node.slot) ct__slot_release(ctx, &var->node, CT_NOWHERE);
    ct__storage_unref(var->storage);
    var->storage = NULL;
    var->freed = true;
    var->version++; // what was recorded with it is spent
    if (!var->own_refs) let_go(var);
}

// Most leaves are of the variable's own context, which counts without a lock.
void ct__var_ref(ct_var *var, const ct_ctx *ctx) {
    if (var->owner == ctx->id)
        var->own_refs++;
    else
        atomic_fetch_add_explicit(&var->refs, 1, memory_order_relaxed);
}
void ct__var_unref(ct_var *var, const ct_ctx *ctx) {
    if (var->owner != ctx->id || (--var->own_refs == 0 && var->freed)) let_go(var);
}

void ct_params_free(ct_params *params) {
    if (!params || ct__forked()) return;
    ct_ctx *ctx = ct__ctx();
    for (size_t i = 0; i < params->n; i++) free_var(ctx ? ctx : params->ctx, params->vars[i]);
    ct__free(params->vars);
    ct__free(params);
    atomic_fetch_sub(&ct__sets, 1);
}

static ct_var *make_var(ct_ctx *ctx, const char *name, const ct_type *type, ct_loc here) {
    ct_var *var = ct__calloc(1, sizeof *var);
    int64_t *dim = ct__malloc(type->rank * sizeof *dim);
    char *copy = ct__strdup(name);
    if (!var || !dim || !copy) {
        ct__free(var);
        ct__free(dim);
        ct__free(copy);
        return NULL;
    }
    if (type->rank) memcpy(dim, type->dim, type->rank * sizeof *dim);
    atomic_init(&var->refs, 1);
    var->owner = ctx->id;
    var->name = copy;
    var->type = *type;
    var->type.dim = dim;
    var->node = (ct_node){.op = &ct__op_variable,
                          .out = &var->type,
                          .ctx = ctx,
                          .frame = ctx->frames[0],
                          .here = here,
                          .var = var,
                          .n_out = 1,
                          .flags = CT_NODE_VARIABLE};
    return var;
}

ct_tensor ct_param_at(ct_params *params, const char *name, ct_dtype dtype, ct_ints dims,
                      ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (!params || !name)
        return ct__fail(ctx, CT_E_ARGUMENT, here, "param", "no parameter set or no name");
    if (ct_params_find(params, name).bits)
        return ct__fail(ctx, CT_E_ARGUMENT, here, "param",
                        "the name \"%.200s\" is taken in this set", name);
    ct_type type;
    if (!ct__type_from_dims(ct__top(ctx)->arena, dtype, dims, &type, &ctx->err, here, "param"))
        return ct__poison(ctx, here);
    if (type.dyn)
        return ct__fail(ctx, CT_E_SHAPE, here, "param",
                        "\"%.200s\": a variable's sizes cannot be dynamic", name);
    ct_var *var =
        CT_GROW(params->vars, params->cap, params->n + 1) ? make_var(ctx, name, &type, here) : NULL;
    ct_tensor t = var ? ct__handle(&var->node, 0) : CT_NONE;
    if (!t.bits) {
        if (var) free_var(ctx, var);
        return ct__fail(ctx, CT_E_MEMORY, here, "param", "out of memory for \"%.200s\"", name);
    }
    params->vars[params->n++] = var;
    return t;
}

size_t ct_params_count(const ct_params *params) { return params ? params->n : 0; }
ct_tensor ct_params_get(const ct_params *params, size_t i) {
    return params && i < params->n ? ct__handle(&params->vars[i]->node, 0) : CT_NONE;
}
const char *ct_params_name(const ct_params *params, size_t i) {
    return params && i < params->n ? params->vars[i]->name : NULL;
}
ct_tensor ct_params_find(const ct_params *params, const char *name) {
    for (size_t i = 0; params && name && i < params->n; i++)
        if (strcmp(params->vars[i]->name, name) == 0) return ct_params_get(params, i);
    return CT_NONE;
}

// -------------------------------------------------------------------------------------------------
// assignments

static ct_root *add_root(ct_ctx *ctx, ct_root_kind kind, ct_val val, const ct_loc *here) {
    if (!CT_GROW(ctx->roots, ctx->roots_cap, ctx->n_roots + 1)) {
        ct__err_memory(&ctx->err, *here, "root", sizeof(ct_root));
        return NULL;
    }
    ct_root *root = &ctx->roots[ctx->n_roots++];
    root->kind = kind;
    root->val = val;
    root->var = NULL;
    root->name = NULL;
    root->here = *here;
    ct__use(val.node);
    return root;
}
bool ct__root_add(ct_ctx *ctx, ct_root root) {
    ct_root *to = add_root(ctx, root.kind, root.val, &root.here);
    if (to) *to = root;
    return to != NULL;
}

void ct__roots_done(ct_ctx *ctx) {
    for (size_t i = 0; i < ctx->n_roots; i++) ct__unuse(ctx->roots[i].val.node);
    ctx->n_roots = 0;
}

void ct__roots_abandon(ct_ctx *ctx) {
    for (size_t i = 0; i < ctx->n_roots; i++) {
        ct_root *root = &ctx->roots[i];
        if (root->var) root->var->writer = NULL;
        if (root->kind == CT_ROOT_KEEP) root->val.node->flags |= CT_NODE_POISON;
    }
    ct__roots_done(ctx);
}

void ct_assign_at(ct_tensor variable, ct_tensor value, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    ct_var *var = ctx ? ct__var_of(variable) : NULL;
    ct_val v;
    if (!ctx) return;
    if (!var) {
        uint32_t out;
        const ct_node *node = ct__peek(variable, &out);
        if (!node || !(node->flags & CT_NODE_POISON)) // a poisoned variable has said its error
            ct__fail(ctx, CT_E_ARGUMENT, here, "assign", "the first operand is no variable");
        return;
    }
    if (ctx->tracing) {
        ct__fail(ctx, CT_E_TRACE, here, "assign",
                 "variable \"%s\" is assigned inside a traced function", var->name);
        return;
    }
    if (!ct__resolve_fast(ctx, value, &v, "assign", 1, here)) return;
    const ct_type *type = ct__type(v);
    if (!ct__same_shape(type, &var->type)) {
        ct__fail(ctx, CT_E_SHAPE, here, "assign", "variable \"%s\" is %s, the value is %s",
                 var->name, ct__type_text(&var->type).s, ct__type_text(type).s);
        return;
    }
    if (type->dtype != var->type.dtype || type->weak) { // a later read is as strong as the variable
        ct_dtype to = var->type.dtype;
        if (!ct__resolve(ctx, ct_cast_at(ct__handle_of(v), to, here), &v, "assign", 1, here))
            return;
    }
    if (var->writer && var->writer != ctx) {
        ct__fail(ctx, CT_E_CONTEXT, here, "assign",
                 "variable \"%s\" has a pending assignment in another context", var->name);
        return;
    }
    if (!var->writer) {
        ct_root *root = add_root(ctx, CT_ROOT_ASSIGN, v, &here);
        if (!root) return;
        root->var = var;
    } else {
        for (size_t i = 0; i < ctx->n_roots; i++)
            if (ctx->roots[i].var == var) {
                ct__use(v.node);
                ct__unuse(ctx->roots[i].val.node);
                ctx->roots[i].val = v, ctx->roots[i].here = here;
            }
    }
    var->writer = ctx;
    var->pending = v;
    var->assigned = here;
}

// -----------------------------------------------------------------------------------------------------
// metrics

static ct_metric_entry *metric(ct_ctx *ctx, const char *name, bool make) {
    for (size_t i = 0; i < ctx->n_metrics; i++)
        if (strcmp(ctx->metrics[i].name, name) == 0) return &ctx->metrics[i];
    if (!make || !CT_GROW(ctx->metrics, ctx->metrics_cap, ctx->n_metrics + 1)) return NULL;
    char *copy = ct__strdup(name);
    if (!copy) return NULL;
    ctx->metrics[ctx->n_metrics] = (ct_metric_entry){.name = copy};
    return &ctx->metrics[ctx->n_metrics++];
}

void ct_metric_at(const char *name, ct_tensor t, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    ct_val v;
    if (!ctx || !ct__resolve(ctx, t, &v, "metric", 0, here)) return;
    if (!name) {
        ct__fail(ctx, CT_E_ARGUMENT, here, "metric", "it has no name");
        return;
    }
    if (ctx->tracing) {
        ct__fail(ctx, CT_E_TRACE, here, "metric", "\"%.100s\" is reported inside a traced function",
                 name);
        return;
    }
    if (ct__count(ct__type(v)) != 1) {
        ct__fail(ctx, CT_E_SHAPE, here, "metric", "\"%.100s\" must have one element, it is %s",
                 name, ct__type_text(ct__type(v)).s);
        return;
    }
    ct_metric_entry *entry = metric(ctx, name, true);
    if (!entry) {
        ct__err_memory(&ctx->err, here, "metric", sizeof *entry);
        return;
    }
    ct__root_add(ctx,
                 (ct_root){.kind = CT_ROOT_METRIC, .val = v, .name = entry->name, .here = here});
}

bool ct__metric_store(ct_ctx *ctx, const char *name, ct_storage *value, const ct_type *type) {
    ct_metric_entry *entry = metric(ctx, name, false);
    if (!entry) return false;
    ct__storage_ref(value);
    ct__storage_unref(entry->value);
    entry->value = value;
    entry->type = (ct_type){.dtype = type->dtype};
    return true;
}

double ct_metric_value(const char *name) {
    ct_ctx *ctx = ct__ctx();
    ct_metric_entry *entry = ctx && name ? metric(ctx, name, false) : NULL;
    char bytes[8];
    if (!entry || !entry->value) return NAN;
    if (ct__lost(entry->value)) {
        ct__fail(ctx, CT_E_DEVICE, CT_NOWHERE, "metric",
                 "\"%.100s\" is poisoned: the device failed while it was computed", name);
        return NAN;
    }
    if (!ct__hooks.download(ctx, entry->value, bytes, ct_dtype_size(entry->type.dtype))) return NAN;
    return ct__load_f64(entry->type.dtype, bytes, 0);
}
