// Variables, parameter sets, assignments, metrics: the state that a step changes and reports.
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "cotan/binding.h"
#include "graph/handle.h"

struct ct_params {
    ct_ctx *ctx; // the handles use its slots
    ct_rwlock *lock;
    ct_var **vars; // (n)
    size_t n, cap;
    uint32_t *by_name; // (slots), a power of two: hash table by name of 1 + a variable's index; 0:
                       // empty
    size_t slots;
};

ct_params *ct_params_new(void) {
    ct_ctx *ctx = ct__ctx();
    ct_params *params = ctx ? ct__calloc(1, sizeof *params) : NULL;
    if (params) params->lock = ct__rwlock_new();
    if (!params || !params->lock) {
        ct__free(params);
        if (ctx) ct__err_memory(&ctx->err, CT_NOWHERE, "params", sizeof *params);
        return NULL;
    }
    params->ctx = ctx;
    atomic_fetch_add(&ct__sets, 1);
    return params;
}

// Records are reused, and not freed while the library is in use: a thread that resolves a handle while
// another one frees its set still finds a record, and detects by the handle that it has changed.
static pthread_mutex_t var_spare_lock = PTHREAD_MUTEX_INITIALIZER;
static ct_var *var_spare_list;

static ct_var *var_new_record(void) {
    pthread_mutex_lock(&var_spare_lock);
    ct_var *var = var_spare_list;
    if (var) var_spare_list = var->next;
    pthread_mutex_unlock(&var_spare_lock);
    return var ? var : ct__calloc(1, sizeof *var);
}
static void var_recycle(ct_var *var) {
    pthread_mutex_lock(&var_spare_lock);
    var->next = var_spare_list;
    var_spare_list = var;
    pthread_mutex_unlock(&var_spare_lock);
}
void ct__vars_end(void) {
    for (ct_var *var = var_spare_list, *next; var; var = next) {
        next = var->next;
        ct__free(var);
    }
    var_spare_list = NULL;
}

static void var_release_record(ct_var *var) {
    if (atomic_fetch_sub_explicit(&var->refs, 1, memory_order_acq_rel) != 1) return;
    ct__free((void *)(uintptr_t)var->type.dim);
    ct__free(var->name);
    ct__rwlock_unref(var->lock);
    var_recycle(var);
}

ct_var *ct__var_acquire(ct_tensor t, const ct_ctx *ctx) {
    ct_peeked at;
    if (!ct__peek_lock(t, &at)) return NULL;
    ct_var *var = ct__flags(&at) & CT_NODE_VARIABLE ? at.node->var : NULL;
    if (var) ct__var_ref(var, ctx); // the handle is valid, so the set still has its reference
    ct__peek_unlock(&at);
    return var;
}

enum { VERSION_BITS = 40 }; // version number: low bits; the context's id is above them

void ct__var_set_version(ct_var *var, uint64_t version) {
    var->ran = var->assigned;
    ct_storage *storage = var->storage;
    storage->version = version;
    storage->assigner = version >> VERSION_BITS;
    atomic_store_explicit(&var->version, version, memory_order_release);
}

uint64_t ct__new_version(ct_ctx *ctx) { return ctx->id << VERSION_BITS | ++ctx->versions; }

// The table's entry of a variable, or the free entry for it.
static ct_current *current_find_entry(ct_current *table, size_t capacity, const ct_var *var) {
    size_t i = (size_t)(((uint64_t)(uintptr_t)var >> 4) * 0x9e3779b97f4a7c15u >> 32);
    while (table[i & (capacity - 1)].of && table[i & (capacity - 1)].of != var) i++;
    return &table[i & (capacity - 1)];
}

// Records are reused, so a table does not grow without bound; an old entry has another version, or a
// frame that is gone.
ct_current *ct__foreign_current(ct_ctx *ctx, const ct_var *var) {
    if (2 * (ctx->foreign_used + 1) > ctx->n_foreign) {
        size_t capacity = ctx->n_foreign ? 2 * ctx->n_foreign : 16;
        ct_current *table = ct__calloc(capacity, sizeof *table);
        if (!table) return NULL;
        for (size_t i = 0; i < ctx->n_foreign; i++)
            if (ctx->foreign[i].of)
                *current_find_entry(table, capacity, ctx->foreign[i].of) = ctx->foreign[i];
        ct__free(ctx->foreign);
        ctx->foreign = table;
        ctx->n_foreign = capacity;
    }
    ct_current *entry = current_find_entry(ctx->foreign, ctx->n_foreign, var);
    ctx->foreign_used += !entry->of;
    entry->of = var;
    return entry;
}

void ct__var_assignment_done(ct_var *var, const ct_ctx *ctx) {
    atomic_store_explicit(&var->writer, NULL, memory_order_release);
    ct__var_unref(var, ctx);
}

// Cancels the pending assignment of a variable that is freed; another context detects that when it runs.
static void var_cancel_assignment(ct_ctx *ctx, ct_var *var) {
    size_t kept = 0;
    for (size_t i = 0; i < ctx->n_roots; i++)
        if (ctx->roots[i].var != var)
            ctx->roots[kept++] = ctx->roots[i];
        else
            ct__root_release(&ctx->roots[i]);
    ctx->n_roots = kept;
    ct__var_assignment_done(var, ctx);
}

// Under the lock. References of the variable's own context are counted by that one.
static void var_free(ct_ctx *ctx, ct_var *var) {
    if (var->writer == ctx) var_cancel_assignment(ctx, var);
    if (var->node.slot) ct__slot_release(ctx, &var->node, CT_PAST_PARAMS, CT_NOWHERE);
    ct__storage_unref(var->storage);
    var->storage = NULL;
    var->freed = true;
    atomic_store_explicit(&var->version, UINT64_MAX, memory_order_release); // invalidates all reads
    if (var->owner == ctx->id) {
        var->orphaned = true;
        if (!var->own_refs) var_release_record(var);
    } else if (!ct__var_defer_free(var)) {
        var_release_record(var);
    }
}

void ct__vars_free_deferred(ct_ctx *ctx) {
    for (ct_var *var = atomic_exchange(&ctx->deferred_vars, NULL), *next; var; var = next) {
        next = var->next;
        var->orphaned = true;
        if (!var->own_refs) var_release_record(var);
    }
}

// Most leaves belong to the variable's own context, which counts them without a lock.
void ct__var_ref(ct_var *var, const ct_ctx *ctx) {
    if (var->owner == ctx->id)
        var->own_refs++;
    else
        atomic_fetch_add_explicit(&var->refs, 1, memory_order_relaxed);
}
void ct__var_unref(ct_var *var, const ct_ctx *ctx) {
    if (var->owner != ctx->id || (--var->own_refs == 0 && var->orphaned)) var_release_record(var);
}

void ct_params_free(ct_params *params) {
    if (!params || ct__forked() || ct__in_callback()) return;
    ct_ctx *ctx = ct__ctx();
    ct__rwlock_lock(params->lock, true, NULL); // waits for plans that read them
    for (size_t i = 0; i < params->n; i++) var_free(ctx ? ctx : params->ctx, params->vars[i]);
    ct__rwlock_unlock(params->lock, true);
    ct__rwlock_unref(params->lock);
    ct__free(params->vars);
    ct__free(params->by_name);
    ct__free(params);
    atomic_fetch_sub(&ct__sets, 1);
}

static ct_var *var_make(ct_ctx *ctx, ct_rwlock *lock, const char *name, const ct_type *type,
                        ct_loc here) {
    ct_var *var = var_new_record();
    int64_t *dim = ct__malloc(type->rank * sizeof *dim);
    char *copy = ct__strdup(name);
    if (!var || !dim || !copy) {
        if (var) var_recycle(var);
        ct__free(dim);
        ct__free(copy);
        return NULL;
    }
    if (type->rank) memcpy(dim, type->dim, type->rank * sizeof *dim);
    var->owner = ctx->id;
    var->lock = ct__rwlock_ref(lock);
    var->orphaned = var->open = false;
    var->freed = false;
    var->broken = var->tracked = false;
    var->own_refs = var->index = var->reassigned = 0;
    var->current = (ct_current){0};
    var->epoch = 0;
    var->assigned = var->ran = (ct_loc){0};
    atomic_init(&var->storage, NULL);
    atomic_init(&var->version, 0);
    atomic_init(&var->writer, NULL);
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
    atomic_store(&var->refs, 1); // last: before that nobody can take a reference
    return var;
}

// Returns the slot of the name, or the free slot for it. The table is not empty.
static uint32_t *params_find_slot(const ct_params *params, const char *name) {
    size_t mask = params->slots - 1;
    size_t i = ct__hash_bytes(name, strlen(name), (ct_hash){0}).lo & mask;
    while (params->by_name[i] && strcmp(params->vars[params->by_name[i] - 1]->name, name) != 0)
        i = (i + 1) & mask;
    return &params->by_name[i];
}

// Reserves space for one more variable, and at least twice as many slots as names.
static bool params_reserve(ct_params *params) {
    if (!CT_GROW(params->vars, params->cap, params->n + 1)) return false;
    if (2 * (params->n + 1) <= params->slots) return true;
    ct_params wider = *params;
    wider.slots = params->slots ? 2 * params->slots : 16;
    wider.by_name = ct__calloc(wider.slots, sizeof *wider.by_name);
    if (!wider.by_name) return false;
    for (size_t i = 0; i < wider.n; i++)
        *params_find_slot(&wider, wider.vars[i]->name) = (uint32_t)i + 1;
    ct__free(params->by_name);
    *params = wider;
    return true;
}

ct_tensor ct_param_at(ct_params *params, const char *name, ct_dtype dtype, ct_ints dims,
                      ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (!params || !name)
        return ct__fail(ctx, CT_E_ARGUMENT, here, "param",
                        params ? "it has no name" : "it has no parameter set");
    if (ct_params_find(params, name).bits) {
        ct_tensor none = ct__fail(ctx, CT_E_ARGUMENT, here, "param",
                                  "the name \"%.200s\" is taken in this set", name);
        ct__err_hint(&ctx->err, "ct_nn_builder_child gives each layer a place of its own");
        return none;
    }
    ct_type type;
    char what[240];
    snprintf(what, sizeof what, "param: \"%.200s\"", name);
    if (!ct__type_from_dims(ct__top(ctx)->arena, dtype, dims, &type, &ctx->err, here, what))
        return ct__poison(ctx, here);
    if (type.dyn)
        return ct__fail(ctx, CT_E_SHAPE, here, "param",
                        "\"%.200s\": a variable's sizes cannot be dynamic", name);
    ct_var *var = params_reserve(params) ? var_make(ctx, params->lock, name, &type, here) : NULL;
    ct_tensor t = var ? ct__handle(&var->node, 0) : CT_NONE;
    if (!t.bits) {
        if (var) var_free(ctx, var);
        return ct__fail(ctx, CT_E_MEMORY, here, "param", "out of memory for \"%.200s\"", name);
    }
    params->vars[params->n++] = var;
    *params_find_slot(params, name) = (uint32_t)params->n;
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
    uint32_t slot = params && name && params->slots ? *params_find_slot(params, name) : 0;
    return slot ? ct_params_get(params, slot - 1) : CT_NONE;
}

bool ct_params_in_use(const ct_params *params) {
    const ct_ctx *ctx = ct__ctx();
    bool read = false;
    for (size_t i = 0; ctx && params && i < params->n && !read; i++)
        read = params->vars[i]->owner == ctx->id && params->vars[i]->own_refs;
    return read;
}

// ------------------------------------------------------------------------------------- assignments

static ct_root *root_append(ct_ctx *ctx, ct_root_kind kind, ct_val val, const ct_loc *here) {
    if (!CT_GROW(ctx->roots, ctx->roots_cap, ctx->n_roots + 1))
        return ct__null_memory(&ctx->err, *here, "root", sizeof(ct_root));
    ct_root *root = &ctx->roots[ctx->n_roots++];
    root->kind = kind;
    root->val = val;
    root->var = NULL;
    root->first.node = NULL;
    root->name = NULL;
    root->depth = (uint32_t)ctx->depth - 1;
    root->here = *here;
    ct__use(val.node);
    return root;
}
bool ct__root_add(ct_ctx *ctx, ct_root root) {
    ct_root *to = root_append(ctx, root.kind, root.val, &root.here);
    if (to) to->name = root.name;
    return to != NULL;
}

void ct__roots_done(ct_ctx *ctx) {
    for (size_t i = 0; i < ctx->n_roots; i++) ct__root_release(&ctx->roots[i]);
    ctx->n_roots = 0;
    ctx->turn_due = true;
}

void ct__root_release(const ct_root *root) {
    ct__unuse(root->val.node);
    if (root->first.node) ct__unuse(root->first.node);
}

// In a rolling scope a referenced value can be computed later, on demand.
static void root_abandon(ct_ctx *ctx, const ct_root *root) {
    if (root->var) ct__var_assignment_done(root->var, ctx);
    if (root->kind == CT_ROOT_KEEP && !ctx->rolling) ct__flag(root->val.node, CT_NODE_POISON);
    ct__root_release(root);
}

void ct__roots_abandon(ct_ctx *ctx) {
    ctx->given_up = ctx->rolling;
    for (size_t i = 0; i < ctx->n_roots; i++) root_abandon(ctx, &ctx->roots[i]);
    ctx->n_roots = 0;
    ctx->turn_due = true;
}

static bool root_is_assignment(const ct_root *root) { return root->var; }
static bool root_is_first_assignment(const ct_root *root) {
    return root->var && !root->var->storage;
}

static bool roots_filter(ct_ctx *ctx, bool (*matches)(const ct_root *root)) {
    size_t n = 0;
    const size_t before = ctx->n_roots;
    for (size_t i = 0; i < before; i++)
        if (matches(&ctx->roots[i]))
            ctx->roots[n++] = ctx->roots[i];
        else
            root_abandon(ctx, &ctx->roots[i]);
    ctx->n_roots = n;
    return n && n < before;
}
bool ct__roots_keep_assignments(ct_ctx *ctx) { return roots_filter(ctx, root_is_assignment); }

bool ct__roots_keep_first(ct_ctx *ctx) {
    bool another = roots_filter(ctx, root_is_first_assignment);
    for (size_t i = 0; i < ctx->n_roots; i++) {
        ct_root *root = &ctx->roots[i];
        ct_current *now = ct__current(ctx, root->var);
        if (!root->first.node || !now) continue;
        ct__unuse(root->val.node);
        root->val = now->value = root->first;
        root->first.node = now->node = NULL;
        now->version = ct__new_version(ctx); // the version that replaced it never gets a value
        another = true;
    }
    return another;
}

// False, and an error: another context has a pending assignment.
static bool var_become_writer(ct_ctx *ctx, ct_var *var, const ct_loc *here) {
    ct_ctx *writer = NULL;
    if (!atomic_compare_exchange_strong(&var->writer, &writer, ctx))
        return ct__refuse(ctx, CT_E_CONTEXT, *here, "assign",
                          "variable \"%s\" has a pending assignment in another context", var->name);
    ct__var_ref(var, ctx); // until the assignment ends
    return true;
}

// Makes the assignment pending; it replaces a pending one of this context.
static void var_add_assignment(ct_ctx *ctx, ct_var *var, ct_val v, const ct_loc *here) {
    ct_current *now = ct__current(ctx, var);
    if (!now) {
        ct__err_memory(&ctx->err, *here, "assign", sizeof *now);
        return;
    }
    if (atomic_load_explicit(&var->writer, memory_order_relaxed) == ctx) {
        for (size_t i = 0; i < ctx->n_roots; i++)
            if (ctx->roots[i].var == var) {
                const bool first = ctx->rolling && !var->storage && !ctx->roots[i].first.node;
                ct__use(v.node);
                if (first)
                    ctx->roots[i].first = ctx->roots[i].val;
                else
                    ct__unuse(ctx->roots[i].val.node);
                ctx->roots[i].val = v, ctx->roots[i].here = *here;
            }
        const uint64_t scope = ctx->id << 32 | ct__top(ctx)->serial;
        if (var->reassigned_scope != scope) var->reassigned = 0;
        var->reassigned_scope = scope;
        if (++var->reassigned == CT_TURNS_BEFORE_HINT)
            ct__hint_scope(
                ctx, *here,
                "%d assignments of variable \"%.100s\" in one scope were replaced before they ran",
                CT_TURNS_BEFORE_HINT, var->name);
    } else if (!var_become_writer(ctx, var, here)) {
        return;
    } else {
        ct_root *root = root_append(ctx, CT_ROOT_ASSIGN, v, here);
        if (!root) {
            ct__var_assignment_done(var, ctx);
            return;
        }
        root->var = var;
    }
    const ct_frame *frame = ct__top(ctx);
    if (now->depth < frame->depth)
        ct__current_replaced(ctx, now); // otherwise it is freed with
                                        // the frame
    now->version = ct__new_version(ctx);
    now->value = v;
    now->node = NULL;
    now->depth = frame->depth;
    now->serial = frame->serial;
    now->carried = false;
    var->assigned = *here;
}

static bool var_can_assign(ct_ctx *ctx, const ct_var *var, const ct_loc *here) {
    if (!ctx->tracing) return true;
    ct__fail(ctx, CT_E_TRACE, *here, "assign",
             "variable \"%s\" is assigned inside a traced function", var->name);
    return ct__err_hint(&ctx->err,
                        "return the value as a result of the function, and assign it outside");
}

// A variable is on the device of its first value, and later values must be on the same one. False: the
// value is on another device and cannot be used on any.
static bool var_match_device(ct_ctx *ctx, ct_var *var, ct_val *v, const ct_loc *here) {
    const ct_type *type = ct__type(*v);
    if (type->device == var->type.device) return true;
    if (!var->storage && !var->writer) {
        var->type.device = type->device;
        return true;
    }
    if (ct__fits_any_device(*v, here))
        return ct__resolve(ctx, ct__transfer(ct__handle_of(*v), var->type.device, *here), v,
                           "assign", 1, *here);
    ct__fail(ctx, CT_E_DEVICE, *here, "assign",
             "variable \"%s\" is %s on %s, the value is %s on %s", var->name,
             ct__type_text(&var->type).s, ct__hooks.device_name(ctx, var->type.device),
             ct__type_text(type).s, ct__hooks.device_name(ctx, type->device));
    return ct__err_hint(&ctx->err, "ct_to brings the value there, ct_move the variable");
}

static void var_assign(ct_ctx *ctx, ct_var *var, ct_tensor value, ct_loc here) {
    ct_val v;
    if (!var_can_assign(ctx, var, &here)) return;
    if (!ct__resolve_fast(ctx, value, &v, "assign", 1, here)) return;
    if (v.node->var) { // the variable gets a copy, which does not depend on the other variable
        value = ct__record(&ct__op_copy, NULL, &value, 1, here);
        if (!ct__resolve(ctx, value, &v, "assign", 1, here)) return;
    }
    const ct_type *type = ct__type(v);
    if (!ct__same_shape(type, &var->type)) {
        ct__fail(ctx, CT_E_SHAPE, here, "assign", "variable \"%s\" is %s, the value is %s",
                 var->name, ct__type_text(&var->type).s, ct__type_text(type).s);
        return;
    }
    if (type->dtype != var->type.dtype || type->weak) { // a later read is not weak, like the
                                                        // variable
        ct_dtype to = var->type.dtype;
        ct_tensor from = ct__handle_of(v);
        if (!ct__bare_fits(value, to, 1, false, &ctx->err, here, "assign")) return;
        if (!ct__resolve(ctx, ct_cast_at(from, to, here), &v, "assign", 1, here)) return;
    }
    if (var_match_device(ctx, var, &v, &here)) var_add_assignment(ctx, var, v, &here);
}

ct_ctx *ct_assigning_ctx(ct_tensor variable) {
    ct_peeked at;
    ct_ctx *writer = NULL;
    if (!ct__peek_lock(variable, &at)) return NULL;
    if (ct__flags(&at) & CT_NODE_VARIABLE)
        writer = atomic_load_explicit(&at.node->var->writer, memory_order_acquire);
    ct__peek_unlock(&at);
    return writer;
}

// Returns the variable to assign with a reference. NULL, and an error: it is not a variable.
static ct_var *var_acquire_target(ct_ctx *ctx, ct_tensor variable, const char *op,
                                  const ct_loc *here) {
    ct_var *var = ct__var_acquire(variable, ctx);
    if (var) return var;
    uint32_t out;
    const ct_node *node = ct__peek(variable, &out);
    if (!node || !(node->flags & CT_NODE_POISON)) // the error of a poisoned variable is already
                                                  // set
        ct__fail(ctx, CT_E_ARGUMENT, *here, op, "the first operand is no variable");
    return NULL;
}

void ct_assign_at(ct_tensor variable, ct_tensor value, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    ct_var *var = ctx ? var_acquire_target(ctx, variable, "assign", &here) : NULL;
    if (!var) return;
    var_assign(ctx, var, value, here);
    ct__var_unref(var, ctx);
}

bool ct__var_move(ct_ctx *ctx, ct_tensor variable, int device, ct_loc here) {
    ct_var *var = var_acquire_target(ctx, variable, "move", &here);
    if (!var) return false;
    bool ok = var->type.device == device;
    if (!ok && ctx->tracing) {
        ct__fail(ctx, CT_E_TRACE, here, "move", "variable \"%s\" is moved inside a traced function",
                 var->name);
    } else if (!ok && ct_eval_at(NULL, 0, here) && var_become_writer(ctx, var, &here)) {
        ok = !var->storage || ct__hooks.move(ctx, var, device);
        if (ok) var->type.device = (uint8_t)device;
        ct__var_assignment_done(var, ctx);
    }
    ct__var_unref(var, ctx);
    return ok;
}

bool ct__var_fill(ct_ctx *ctx, ct_tensor variable, ct_chunk_fn next, void *user, ct_loc here) {
    ct_var *var = var_acquire_target(ctx, variable, "assign", &here);
    if (!var) return false;
    bool ok = var_can_assign(ctx, var, &here) && ct_eval_at(NULL, 0, here) &&
              var_become_writer(ctx, var, &here);
    if (ok) {
        var->assigned = here;
        ok = ct__hooks.fill(ctx, var, next, user);
        ct__var_assignment_done(var, ctx);
    }
    ct__var_unref(var, ctx);
    return ok;
}

static void var_borrow_released(void *user) { (void)user; }

ct_storage *ct__var_borrow(ct_ctx *ctx, ct_tensor variable, const void *data, size_t n,
                           ct_loc here) {
    ct_var *var = var_acquire_target(ctx, variable, "assign", &here);
    if (!var) return NULL;
    ct_storage *value = ct__hooks.adopt(ctx, data, n, var_borrow_released, NULL);
    bool ok = value && var_can_assign(ctx, var, &here) && ct_eval_at(NULL, 0, here) &&
              var_become_writer(ctx, var, &here);
    if (ok) {
        var->assigned = here;
        ok = ct__hooks.lend(ctx, var, value);
        ct__var_assignment_done(var, ctx);
    }
    ct__var_unref(var, ctx);
    if (!ok) ct__storage_unref(value);
    return ok ? value : NULL;
}

// ----------------------------------------------------------------------------------------- metrics

static ct_metric_entry *metric_find(ct_ctx *ctx, const char *name, bool make) {
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
        ct__err_hint(&ctx->err,
                     "return the value as a result of the function, and report it outside");
        return;
    }
    if (ct__count(ct__type(v)) != 1) {
        ct__fail(ctx, CT_E_SHAPE, here, "metric", "\"%.100s\" must have one element, it is %s",
                 name, ct__type_text(ct__type(v)).s);
        return;
    }
    ct_metric_entry *entry = metric_find(ctx, name, true);
    if (!entry) {
        ct__err_memory(&ctx->err, here, "metric", sizeof *entry);
        return;
    }
    ct__root_add(ctx,
                 (ct_root){.kind = CT_ROOT_METRIC, .val = v, .name = entry->name, .here = here});
}

bool ct__metric_store(ct_ctx *ctx, const char *name, ct_storage *value, const ct_type *type) {
    ct_metric_entry *entry = metric_find(ctx, name, false);
    if (!entry) return false;
    ct__storage_ref(value);
    ct__storage_unref(entry->value);
    entry->value = value;
    entry->type = (ct_type){.dtype = type->dtype};
    return true;
}

// Reading a pending metric runs pending work.
static bool metric_run_pending(ct_ctx *ctx, const char *name) {
    for (size_t i = 0; i < ctx->n_roots; i++)
        if (ctx->roots[i].kind == CT_ROOT_METRIC && ctx->roots[i].name == name) {
            const ct_loc here = ctx->roots[i].here;
            return ct__readable(ctx, here, "metric") && ct_eval_at(NULL, 0, here);
        }
    return true;
}

double ct_metric_value(const char *name) {
    ct_ctx *ctx = ct__ctx();
    ct_metric_entry *entry = ctx && name ? metric_find(ctx, name, false) : NULL;
    char bytes[CT_MAX_ELEMENT_BYTES];
    if (!entry || !metric_run_pending(ctx, entry->name) || !entry->value) return NAN;
    if (ct__lost(entry->value)) {
        ct__fail(ctx, CT_E_DEVICE, CT_NOWHERE, "metric",
                 "\"%.100s\" is poisoned: the device failed while it was computed", name);
        return NAN;
    }
    if (!ct__hooks.download(ctx, entry->value, bytes, ct__type_bytes(&entry->type))) return NAN;
    return ct__load_f64(entry->type.dtype, bytes, 0);
}
