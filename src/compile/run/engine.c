// The entry points of scope ends and reads: makes or finds a plan for the pending roots, runs it, and takes
// its values.
#include <fenv.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/memory.h"
#include "base/os.h"
#include "base/trace_events.h"
#include "compile/check/check.h"
#include "compile/run/cost.h"
#include "compile/passes/env.h"
#include "compile/run/store.h"
#include "ops/lapack.h"
#include "compile/plan.h"
#include "graph/allocation_registry.h"

static void executor_free(ct_executor *e) {
    ct__plans_free(e);
    if (e->device) ct__temporaries_free(e);
    ct__order_free(&e->order);
    ct__free(e->buckets);
    ct__free(e->shape_buckets);
    ct__free(e->sizes.v);
    ct__free(e->shape_words);
    ct__free(e->auto_dynamic);
    ct__free(e->fresh);
    ct__free(e->copies);
    ct__free(e->locks);
    ct__free(e->roots);
    ct__free(e->scalar_bytes);
    if (e->device) ct__device_release(e->device);
    ct__free(e);
}

static ct_executor *executor_new(const char *device, ct_err *err) {
    ct__profile_start_from_env();
    ct_executor *e = ct__calloc(1, sizeof *e);
    if (!e) {
        ct__err_memory(err, CT_NOWHERE, "device", sizeof *e);
    } else if (ct__env_check(err) && ct__env_plan_cache(&e->max_bytes, err) &&
               ct__check_parse_env(&e->check, err) && (e->device = ct__device_open(device, err))) {
        if (e->device->backend == &ct__backend_dry) e->check = 0; // a dry run has no values
        if (e->check & CT_CHECK_BOUNDS) e->device->guard = CT_GUARD;
        // Checks run compiled kernels, as later runs do.
        ct__computing_device(e->device)->wait_for_compiler =
            e->check || ct__env_waits_for_compiler();
        e->order.numerics = ct__numerics(e->device);
        return e;
    }
    if (e) executor_free(e);
    return NULL;
}

static ct_executor *executor_of(ct_ctx *ctx) {
    if (!ctx->device) {
        const char *name = getenv("COTAN_DEVICE");
        ctx->device = executor_new(name && *name ? name : "cpu", &ctx->err);
    }
    return ctx->device;
}

// ------------------------------------------------------------------------------------------- devices

// Device numbers are global to the process, since contexts read each other's values; 0 is each context's
// own device.
static struct {
    pthread_mutex_t lock;
    char name[CT_MAX_DEVICES][CT_DEVICE_NAME]; // [0, n)
    int n;
} executor_devices = {.lock = PTHREAD_MUTEX_INITIALIZER, .n = 1};

// Returns the number of a device's name, which gets one if `add`. -1: it has none.
static int executor_device_number(const char *name, bool add) {
    pthread_mutex_lock(&executor_devices.lock);
    int at = 1;
    while (at < executor_devices.n && strcmp(executor_devices.name[at], name) != 0) at++;
    if (at == executor_devices.n && add && at < CT_MAX_DEVICES)
        snprintf(executor_devices.name[executor_devices.n++], CT_DEVICE_NAME, "%s", name);
    if (at == executor_devices.n) at = -1;
    pthread_mutex_unlock(&executor_devices.lock);
    return at;
}

ct_executor *ct__executor_at(ct_ctx *ctx, int device) {
    if (!device) return executor_of(ctx);
    if (!ctx->other_devices[device])
        ctx->other_devices[device] = executor_new(executor_devices.name[device], &ctx->err);
    return ctx->other_devices[device];
}

static int executor_find_device(ct_ctx *ctx, const char *given, ct_loc here) {
    const ct_executor *own_executor = executor_of(ctx);
    char name[CT_DEVICE_NAME];
    if (!own_executor) return -1;
    ct__device_name(given, name);
    if (strcmp(name, own_executor->device->name) == 0) return 0;
    const int known = executor_device_number(name, false);
    ct_executor *e = known < 0 ? executor_new(given, &ctx->err) : ct__executor_at(ctx, known);
    if (!e) return -1;
    const int at = known < 0 ? executor_device_number(name, true) : known;
    if (known >= 0) return known;
    if (at > 0 && !ctx->other_devices[at]) {
        ctx->other_devices[at] = e;
        return at;
    }
    executor_free(e);
    if (at < 0)
        ct__err(&ctx->err, CT_E_LIMIT, here, "to",
                "\"%s\" would be device %d with tensors of this process, at most %d can be", name,
                CT_MAX_DEVICES + 1, CT_MAX_DEVICES);
    return at;
}

static const char *executor_device_name(ct_ctx *ctx, int device) {
    const ct_executor *own = device ? NULL : executor_of(ctx);
    return device ? executor_devices.name[device] : own ? own->device->name : "?";
}

ct_ctx_memory ct__ctx_memory(ct_ctx *ctx) {
    const ct_executor *e = executor_of(ctx);
    const ct_account *a = e ? e->device->account : &ct__account;
    return (ct_ctx_memory){.is_planned = a != &ct__account,
                           .arenas = a->now[CT_MEMORY_ARENAS],
                           .constants = a->now[CT_MEMORY_CONSTANTS],
                           .workspaces = a->now[CT_MEMORY_WORKSPACES],
                           .peak = a->peak};
}

void ct__ctx_release_unused(ct_ctx *ctx) {
    ct_executor *e = executor_of(ctx);
    if (e) ct__device_empty_cache(ct__computing_device(e->device));
    ct__trim_heap();
}

const char *ct__ctx_device(ct_ctx *ctx) {
    ct_executor *e = executor_of(ctx);
    return e ? ct__computing_device(e->device)->backend->name : "";
}

double ct__ctx_gflops(ct_ctx *ctx) {
    ct_executor *e = executor_of(ctx);
    return e ? ct__target(e->device).gflops : 0;
}

void ct__ctx_limit_memory(ct_ctx *ctx, uint64_t bytes) {
    ct_executor *e = executor_of(ctx);
    if (e) e->memory_limit = bytes;
}

void ct_set_synchronous_compilation(void) {
    ct_ctx *ctx = ct__ctx();
    ct_executor *e = ctx ? executor_of(ctx) : NULL;
    if (e) ct__computing_device(e->device)->wait_for_compiler = true;
}

void ct__ctx_set_recorder(ct_ctx *ctx, ct_recorder *recorder) {
    ct_executor *e = executor_of(ctx);
    if (e) ct__computing_device(e->device)->recorder = recorder;
}

const char *ct_numerics(void) {
    ct_ctx *ctx = ct__ctx();
    ct_executor *e = ctx ? executor_of(ctx) : NULL;
    return e ? ct__lapack_numerics(ct__numerics(e->device)) : "";
}

// Reports an error if tensors of this context were sent to the device, so that it has another number.
static bool executor_has_sent_to(ct_ctx *ctx, const char *given) {
    char name[CT_DEVICE_NAME];
    ct__device_name(given, name);
    for (int i = 1; i < CT_MAX_DEVICES; i++) {
        const ct_executor *e = ctx->other_devices[i];
        if (!e || strcmp(e->device->name, name) != 0) continue;
        ct__fail(ctx, CT_E_DEVICE, CT_NOWHERE, "set_device",
                 "tensors of this context were sent to %s, which was not its own device", name);
        ct__err_hint(&ctx->err, "set the device before anything is sent there");
        return true;
    }
    return false;
}

bool ct_set_device(const char *name) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return false;
    if (ctx->n_roots || ctx->tracing)
        return ct__refuse(ctx, CT_E_ARGUMENT, CT_NOWHERE, "set_device",
                          "the context holds pending work");
    if (!ct__given(ctx, name, CT_NOWHERE, "set_device", "the name") ||
        executor_has_sent_to(ctx, name))
        return false;
    ct_executor *e = executor_new(name, &ctx->err);
    if (!e) return false;
    if (ctx->device) {
        ct_device *old =
            ((ct_executor *)ctx->device)->device; // report its errors before it is closed
        if (!ct__device_wait(old, &ctx->err)) {
            executor_free(e);
            return false;
        }
        e->n_made = ((ct_executor *)ctx->device)->n_made; // nodes refer to plans by number
        executor_free(ctx->device);
    }
    ctx->device = e;
    return true;
}

// ---------------------------------------------------------------------------------- choosing plans

static bool executor_keeps_value(const ct_root *r) {
    return r->kind == CT_ROOT_KEEP || r->kind == CT_ROOT_READ;
}

// Adds the outputs of a node that are no pending roots, if another output of it keeps its value.
static bool executor_add_other_outputs(ct_ctx *ctx, ct_executor *e, size_t *n, ct_node *node,
                                       ct_loc here) {
    bool few[64] = {0}, *asked = node->n_out <= 64 ? few : ct__calloc(node->n_out, sizeof *asked);
    bool ok = asked != NULL;
    for (size_t i = 0; i < ctx->n_roots && ok; i++)
        if (ctx->roots[i].val.node == node && executor_keeps_value(&ctx->roots[i]))
            asked[ctx->roots[i].val.out] = true;
    for (uint32_t k = 0; k < node->n_out && ok; k++)
        ok = asked[k] ||
             ct__add_root(ctx, e, n,
                          (ct_root){.kind = CT_ROOT_READ, .val = {node, k}, .here = here});
    if (asked != few) ct__free(asked);
    return ok || ct__err_memory(&ctx->err, here, "run", node->n_out);
}

// Gathers the pending roots. If an output of a node keeps its value, its other outputs are added, each
// once, since the node becomes a leaf.
static bool executor_gather_roots(ct_ctx *ctx, ct_executor *e, size_t *n) {
    const uint64_t epoch = ct__new_epoch(); // marks nodes whose other outputs are roots
    for (size_t i = 0; i < ctx->n_roots; i++) {
        ct_root r = ctx->roots[i];
        ct_node *node = r.val.node;
        if (executor_keeps_value(&r) && node->value) continue;
        if (r.var && r.var->freed) { // by another context
            ct__var_assignment_done(r.var, ctx);
            ct__root_release(&ctx->roots[i]);
            ctx->roots[i--] = ctx->roots[--ctx->n_roots];
            continue;
        }
        if (!ct__add_root(ctx, e, n, r)) return false;
        if (!executor_keeps_value(&r) || node->n_out == 1 || node->epoch == epoch) continue;
        node->epoch = epoch;
        if (!executor_add_other_outputs(ctx, e, n, node, r.here)) return false;
    }
    return true;
}

// Returns the plan of the executor's first n roots, to which it adds the values stored for later uses.
// `stores`: also those that are used by now.
static ct_plan *executor_choose_plan(ct_ctx *ctx, ct_executor *e, size_t *n, bool stores) {
    const size_t n_requested = *n;
    ct_plan *p;
    if (!ct__order(ctx, &e->order, e->roots, *n)) return NULL;
    if (stores && !ct__add_stores(ctx, e, n)) return NULL;
    if (*n > n_requested && !ct__order(ctx, &e->order, e->roots, *n)) return NULL;
    while ((p = ct__plans_find(e)) && p->n_extra) {
        const size_t before = *n;
        if (!ct__add_extras(ctx, e, n, p)) return NULL;
        if (*n == before) break; // it stores them
        if (!ct__order(ctx, &e->order, e->roots, *n)) return NULL;
    }
    return p ? p : ct__plans_make(ctx, e, e->roots, *n);
}

// ------------------------------------------------------------------------------------------ results

// Releases a storage, except that of a variable, which is only borrowed for the run.
static void executor_release_storage(const ct_root *r, ct_storage *storage) {
    if (!r->var || r->var->storage != storage) ct__storage_unref(storage);
}

static void executor_register_variable(ct_storage *s, const ct_var *var, ct_loc wanted) {
    ct__registry_describe(
        s, (ct_alloc_info){
               .here = var->node.here, .wanted = wanted, .type = var->type, .name = var->name});
}

static void executor_register_root(const ct_root *r, ct_storage *s) {
    const ct_node *node = r->val.node;
    if (r->var)
        executor_register_variable(s, r->var, r->here);
    else
        ct__registry_describe(s, (ct_alloc_info){.here = node->here,
                                                 .wanted = r->here,
                                                 .op = node->op->name,
                                                 .type = *ct__type(r->val),
                                                 .name = r->name});
}

static bool executor_alloc_storages(ct_ctx *ctx, ct_executor *e, size_t n) {
    if (!CT_GROW(e->fresh, e->fresh_cap, n))
        return ct__err_memory(&ctx->err, CT_NOWHERE, "run", n * sizeof *e->fresh);
    for (size_t i = 0; i < n; i++) {
        const ct_root *r = &e->roots[i];
        e->fresh[i] = r->var && r->var->storage
                          ? r->var->storage
                          : ct__storage_new(e->device, ct__type_bytes(ct__type(r->val)), &ctx->err);
        if (e->fresh[i]) {
            if (!r->var || e->fresh[i] != r->var->storage) executor_register_root(r, e->fresh[i]);
            continue;
        }
        while (i-- > 0) executor_release_storage(&e->roots[i], e->fresh[i]);
        return false;
    }
    return true;
}

static bool executor_set_node_value(ct_ctx *ctx, const ct_root *r, ct_storage *storage) {
    ct_node *node = r->val.node;
    if (!node->value) {
        ct_storage **value = ct__arena_zero(node->frame->arena, node->n_out * sizeof *node->value);
        if (!value)
            return ct__err_memory(&ctx->err, r->here, "run", node->n_out * sizeof *node->value);
        ct__node_set_values(node, value);
        if (r->kind == CT_ROOT_EXTRA) {
            ct__flag(node, CT_NODE_EXTRA);
            ctx->n_extras++;
        }
    }
    if (!node->value[r->val.out]) ct__node_set_value(node, r->val.out, ct__storage_ref(storage));
    return true;
}

static bool executor_take_results(ct_ctx *ctx, ct_executor *e, size_t n) {
    bool ok = true, assigned = false;
    for (size_t i = 0; i < n; i++) {
        const ct_root *r = &e->roots[i];
        if (r->kind == CT_ROOT_ASSIGN) {
            ct_var *var = r->var;
            if (!var->storage) var->storage = e->fresh[i];
            const ct_current *now = ct__current(ctx, var);
            ct__var_set_version(var, now->version);
            if (now->node) {
                ct__flag(now->node, CT_NODE_STORED);
                ct__hold_version(ctx, now->node);
            }
            if (var->broken) var->broken = false;
            assigned = true;
        } else if (r->kind == CT_ROOT_METRIC) {
            ct__metric_store(ctx, r->name, e->fresh[i], ct__type(r->val));
        } else {
            ok = executor_set_node_value(ctx, r, e->fresh[i]) && ok;
        }
        executor_release_storage(r, e->fresh[i]);
        if (r->kind == CT_ROOT_ASSIGN) ct__var_assignment_done(r->var, ctx);
    }
    if (assigned && ctx->n_extras) ct__drop_extras(ctx);
    return ok;
}

// ------------------------------------------------------------------------- values of other devices

// True if anything but reads of this context refers to the variable's value.
static bool executor_is_shared(const ct_ctx *ctx, const ct_storage *s) {
    return (uint32_t)atomic_load(&s->refs) > 1 + (s->assigner == ctx->id ? s->assigner_holds : 0);
}

static bool executor_move_variable_here(ct_ctx *ctx, ct_executor *e, ct_var *var) {
    ct_storage *from = var->storage, *here = ct__copy_to_device(ctx, e, from, var->assigned);
    if (!here) return false;
    here->version = from->version;
    here->assigner = from->assigner;
    executor_register_variable(here, var, var->assigned);
    var->storage = here;
    ct__storage_unref(from);
    return true;
}

// Moves variables that a plan updates in place to its device permanently; a shared value is copied for the
// others.
static bool executor_fetch_targets(ct_ctx *ctx, ct_executor *e, size_t n) {
    for (size_t i = 0; i < n; i++) {
        ct_var *var = e->roots[i].var;
        const ct_storage *from = var ? var->storage : NULL;
        if (from && (ct__is_foreign(e, from) || executor_is_shared(ctx, from)) &&
            !executor_move_variable_here(ctx, e, var))
            return false;
    }
    return true;
}

// Copies leaves that a plan only reads to its device, for this run.
static bool executor_fetch_leaves(ct_ctx *ctx, ct_executor *e) {
    for (size_t i = 0; i < e->order.n_leaves; i++) {
        if (!ct__is_foreign(e, e->order.leaves[i])) continue;
        if (!CT_GROW(e->copies, e->copies_cap, e->n_copies + 1)) return false;
        ct_storage *here =
            ct__copy_to_device(ctx, e, e->order.leaves[i], e->order.leaf_nodes[i]->here);
        if (!here) return false;
        e->copies[e->n_copies++] = e->order.leaves[i] = here;
    }
    return true;
}

// ------------------------------------------------------------------------------------------- a run

static bool executor_storage_lost(const ct_storage *s) {
    ct_device *device = s->owner;
    return device->backend->lost && device->backend->lost(device, s->begin, s->end);
}

// Values that a device failed to compute may be leaves, if they were recorded before the failure was known.
static bool executor_check_leaves(ct_ctx *ctx, const ct_order *o) {
    for (size_t i = 0; i < o->n_leaves; i++) {
        const ct_node *node = o->leaf_nodes[i];
        if (!ct__lost(o->leaves[i])) continue;
        if (node->var)
            return ct__err(&ctx->err, CT_E_DEVICE, node->here, "run",
                           "variable \"%s\", read here, is poisoned: the plan that was updating it "
                           "for %s:%u failed",
                           node->var->name, node->var->ran.file ? node->var->ran.file : "?",
                           node->var->ran.line);
        return ct__err(&ctx->err, CT_E_DEVICE, node->here, "run",
                       "the value made here is poisoned: the device failed while it was computed");
    }
    return true;
}

// Variables get their new storages after all subplans have run: until then the run can be cancelled.
static bool executor_run_subplans(ct_ctx *ctx, ct_executor *e, const ct_plan *p, size_t n) {
    const uint64_t refused = ct__failed_allocations();
    ct_storage **made = ct__calloc(n + p->n_between + 1, sizeof(ct_storage *));
    bool ok = made && CT_GROW(e->fresh, e->fresh_cap, n);
    for (size_t i = 0; i < p->n_subplans && ok; i++)
        ok = ct__subplan_run(ctx, e, &p->subplans[i], n, made) &&
             ct__failed_allocations() == refused;
    for (size_t i = ok ? n : 0; made && i < n + p->n_between; i++) ct__storage_unref(made[i]);
    for (size_t i = 0; i < n && ok; i++) {
        const ct_root *r = &e->roots[i];
        ct_storage *old = r->var ? r->var->storage : NULL;
        e->fresh[i] = made[i];
        executor_register_root(r, made[i]);
        if (!r->var) continue;
        if (old) made[i]->version = old->version, made[i]->assigner = old->assigner;
        r->var->storage = made[i];
        ct__storage_unref(old);
    }
    ct__free(made);
    return ok ? executor_take_results(ctx, e, n) : ct__err_memory(&ctx->err, CT_NOWHERE, "run", n);
}

static bool executor_run_plan(ct_ctx *ctx, ct_executor *e, ct_plan *p, size_t n) {
    if (!executor_check_leaves(ctx, &e->order)) return false;
    if (p->n_subplans) return executor_run_subplans(ctx, e, p, n);
    if (!executor_fetch_leaves(ctx, e) || !executor_alloc_storages(ctx, e, n)) return false;
    e->started = false;
    const uint64_t refused = ct__failed_allocations();
    uint64_t begin = ct__device_event(e->device);
    bool ok = ct__plan_bind(ctx, e, p) && ct__check_before(ctx, e, p, n) &&
              ct__plan_run(ctx, e, p, &e->order, e->fresh) && ct__check_after(e, p) &&
              ct__failed_allocations() ==
                  refused; // otherwise a pass ran out of memory and left something out
    ct__check_done(e);
    if (ok) {
        uint64_t end = ct__device_event(e->device);
        for (size_t i = 0; i < n; i++) e->fresh[i]->begin = begin, e->fresh[i]->end = end;
        return executor_take_results(ctx, e, n);
    }
    for (size_t i = 0; i < n; i++) {
        ct_var *var = e->roots[i].var;
        if (e->started && var && var->storage) { // its value is undefined now
            var->broken = true;
            ct__var_set_version(var, ct__new_version(ctx));
        }
        executor_release_storage(&e->roots[i], e->fresh[i]);
    }
    return false;
}

// -------------------------------------------------------------------------------------------- locks
// Variables may be in use by other contexts: the locks of their sets are held until all commands are
// submitted. That is enough, since the memory of a device with a queue is accessed only by that queue, and a
// copy from it waits for the queue.

static bool executor_add_lock(ct_executor *e, ct_rwlock *lock, bool alone) {
    size_t low = 0, high = e->n_locks;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if ((uintptr_t)e->locks[middle].lock < (uintptr_t)lock)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == e->n_locks || e->locks[low].lock != lock) {
        if (!CT_GROW(e->locks, e->locks_cap, e->n_locks + 1)) return false;
        memmove(&e->locks[low + 1], &e->locks[low], (e->n_locks++ - low) * sizeof *e->locks);
        e->locks[low] = (struct ct_held_lock){lock, false};
    }
    e->locks[low].exclusive |= alone;
    return true;
}

static bool executor_list_locks(ct_executor *e, size_t n) {
    const ct_rwlock *last = NULL;
    e->n_locks = 0;
    for (size_t i = 0; i < n; i++) {
        const ct_var *var = e->roots[i].var;
        if (!var || var->lock == last) continue;
        if (!executor_add_lock(e, var->lock, true)) return false;
        last = var->lock;
    }
    for (size_t i = 0; i < e->order.n_leaves; i++) {
        const ct_node *node = e->order.leaf_nodes[i];
        if (!ct__reads_var(node) || node->var->lock == last) continue;
        if (!executor_add_lock(e, node->var->lock, false)) return false;
        last = node->var->lock;
    }
    return true;
}

static void executor_release_locks(ct_executor *e) {
    while (e->n_locks) {
        e->n_locks--;
        ct__rwlock_unlock(e->locks[e->n_locks].lock, e->locks[e->n_locks].exclusive);
    }
}

static bool executor_take_locks(ct_ctx *ctx, ct_executor *e, size_t n) {
    bool listed = executor_list_locks(e, n);
    size_t all = e->n_locks;
    e->n_locks = 0;
    if (!listed) return ct__err_memory(&ctx->err, CT_NOWHERE, "run", all * sizeof *e->locks);
    while (e->n_locks < all) {
        struct ct_held_lock *h = &e->locks[e->n_locks];
        if (!ct__rwlock_lock(h->lock, h->exclusive, &ctx->cancelled)) return false;
        e->n_locks++;
    }
    return true;
}

// Binds reads to storages. Returns the first read whose version is gone, or NULL.
static const ct_node *executor_bind_reads(ct_executor *e) {
    for (size_t i = 0; i < e->order.n_leaves; i++) {
        const ct_node *node = e->order.leaf_nodes[i];
        if (!ct__reads_var(node)) continue;
        const bool is_latest = ct__version_of(node) == node->var->version;
        if (!is_latest && !ct__held_storage(node)) return node;
        e->order.leaves[i] = is_latest ? node->var->storage : ct__held_storage(node);
    }
    return NULL;
}

static bool executor_check_variable(ct_ctx *ctx, const ct_var *var, ct_loc here) {
    return !var->freed || ct__err(&ctx->err, CT_E_OVERWRITTEN, here, "assign",
                                  "variable \"%s\" was freed by another context", var->name);
}

static bool executor_check_targets(ct_ctx *ctx, const ct_executor *e, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (e->roots[i].var && !executor_check_variable(ctx, e->roots[i].var, e->roots[i].here))
            return false;
    return true;
}

static bool executor_check_cancelled(ct_ctx *ctx) {
    return atomic_load(&ctx->cancelled) &&
           !ct__err(&ctx->err, CT_E_INTERRUPTED, CT_NOWHERE, "run", CT_CANCELLED);
}

static bool executor_run_locked(ct_ctx *ctx, ct_executor *e, ct_plan *p, size_t n, ct_loc here) {
    const ct_node *stale = NULL;
    bool ok = executor_take_locks(ctx, e, n);
    if (!ok) (void)executor_check_cancelled(ctx);
    ok = ok && executor_check_targets(ctx, e, n) &&
         (p->n_subplans || executor_fetch_targets(ctx, e, n)) &&
         !(stale = executor_bind_reads(e)) && executor_run_plan(ctx, e, p, n);
    executor_release_locks(e);
    return stale ? ct__fail_stale_read(ctx, stale, here) : ok;
}

static ct_trace_event_key executor_trace_event(const ct_plan *p, ct_trace_event_kind kind,
                                               const char *name) {
    return (ct_trace_event_key){kind, name, "", p->here.file, p->here.line};
}
static bool executor_await_compiler(ct_ctx *ctx, ct_executor *e, ct_plan *p) {
    const int64_t begin = ct__trace_enabled() ? ct__trace_event_now() : 0;
    const bool ok = ct__plan_await_kernels(ctx, e, p);
    const ct_trace_event_key what = executor_trace_event(p, CT_TRACE_COMPILE, "compiler awaited");
    if (begin) ct__trace_event_add(&what, begin, 0, 0);
    return ok;
}
// Waits for the compiler, if that is worthwhile, before any lock is taken.
static bool executor_await_kernels(ct_ctx *ctx, ct_executor *e, ct_plan *p) {
    bool ok = !p->unfinished || executor_await_compiler(ctx, e, p);
    for (size_t i = 0; i < p->n_subplans && ok; i++)
        ok = executor_await_kernels(ctx, p->subplans[i].engine, p->subplans[i].plan);
    return ok;
}
static bool executor_run_traced(ct_ctx *ctx, ct_executor *e, ct_plan *p, size_t n, ct_loc here) {
    const int64_t begin = ct__trace_enabled() ? ct__trace_event_now() : 0;
    const bool ok = executor_run_locked(ctx, e, p, n, here);
    const ct_trace_event_key what = executor_trace_event(p, CT_TRACE_RUN, "plan run");
    if (begin) ct__trace_event_add(&what, begin, 0, 0);
    return ok;
}

// Runs the pending roots as one plan.
static bool executor_run_once(ct_ctx *ctx, ct_loc here) {
    ct_executor *e = ctx->err.code ? NULL : executor_of(ctx);
    size_t n = 0;
    bool ok = e && !executor_check_cancelled(ctx) && executor_gather_roots(ctx, e, &n);
    if (ok && n) {
        ct_plan *p = executor_choose_plan(ctx, e, &n, true);
        if (p) {
            e->latest_plan = p;
            ct__mark_computed(p, &e->order);
        }
        ok = p && executor_await_kernels(ctx, e, p) && executor_run_traced(ctx, e, p, n, here);
        while (e->n_copies) ct__storage_unref(e->copies[--e->n_copies]);
        ct__order_close(&e->order);
    }
    if (!ok) ct__err_memory(&ctx->err, here, "run", 0); // unless an error is recorded already
    return ok;
}

// In a rolling scope variables get their values even if something else in the plan failed: first all
// assignments are run without the rest, then the first values of variables that have none. After an
// interruption nothing is run, and assignments stay pending until ct_rolling_discard_pending.
static void executor_save_assignments(ct_ctx *ctx, ct_loc here) {
    const ct_err failure = ctx->err;
    bool done = false;
    if (failure.code == CT_E_INTERRUPTED) {
        (void)ct__roots_keep_assignments(ctx);
        ctx->given_up = ctx->turn_due = true;
        return;
    }
    for (int first = 0; first < 2 && !done; first++)
        if (first ? ct__roots_keep_first(ctx) : ct__roots_keep_assignments(ctx)) {
            ctx->err.code = CT_OK;
            done = executor_run_once(ctx, here);
        }
    ctx->err = failure;
    if (done) ct__roots_done(ctx);
    ct__roots_abandon(ctx);
}

static bool executor_run(ct_ctx *ctx, ct_loc here) {
    ct__run_begin(ctx);
    // Constant folding and the reference must round as kernels do, whatever the host program's
    // floating-point mode is.
    fenv_t host;
    fegetenv(&host);
    fesetenv(FE_DFL_ENV);
    const bool ok = executor_run_once(ctx, here);
    if (!ok && ctx->err.code == CT_E_INTERRUPTED) atomic_store(&ctx->cancelled, false);
    if (ok)
        ct__roots_done(ctx);
    else if (ctx->rolling)
        executor_save_assignments(ctx, here);
    else
        ct__roots_abandon(ctx);
    fesetenv(&host);
    ct__run_end(ctx);
    return ok;
}

ct_plan *ct__pending_plan(ct_ctx *ctx, ct_loc here, ct_executor **engine) {
    ct_executor *e = executor_of(ctx);
    size_t n = 0;
    if (!e || !executor_gather_roots(ctx, e, &n)) return NULL;
    *engine = e;
    if (n) return executor_choose_plan(ctx, e, &n, false);
    ct__err(&ctx->err, CT_E_ARGUMENT, here, "compile", "nothing is pending: there is no plan");
    ct__err_hint(&ctx->err, "call it after a step is recorded, before the step's scope ends");
    return NULL;
}

static ct_storage *executor_upload(ct_ctx *ctx, const void *bytes, size_t n) {
    ct_executor *e = executor_of(ctx);
    ct_storage *s = e ? ct__storage_new(e->device, n, &ctx->err) : NULL;
    if (!s) return NULL;
    s->begin = ct__device_event(e->device);
    bool ok =
        e->device->backend->copy_in(e->device, (ct_operand){s->buffer, 0}, bytes, n, &ctx->err);
    s->end = ct__device_event(e->device);
    if (ok) return s;
    ct__storage_unref(s);
    return NULL;
}

// Returns the variable's storage, or a new one if it has none of its own on this device.
static ct_storage *executor_variable_storage(ct_ctx *ctx, ct_executor *e, ct_var *var) {
    if (var->storage && !ct__is_foreign(e, var->storage) && !executor_is_shared(ctx, var->storage))
        return var->storage;
    ct_storage *s = ct__storage_new(e->device, ct__type_bytes(&var->type), &ctx->err);
    if (!s) return NULL;
    executor_register_variable(s, var, var->assigned);
    ct__storage_unref(var->storage);
    var->storage = s;
    return s;
}

static bool executor_fill_locked(ct_ctx *ctx, ct_executor *e, ct_var *var, ct_chunk_fn next,
                                 void *user) {
    ct_device *device = e->device;
    ct_storage *s = executor_variable_storage(ctx, e, var);
    const void *bytes;
    size_t n = 0;
    bool ok = true;
    if (!s) return false;
    s->begin = ct__device_event(device);
    for (size_t at = 0; ok && (ok = next(user, &bytes, &n, &ctx->err)) && n; at += n)
        ok = device->backend->copy_in(device, (ct_operand){s->buffer, at}, bytes, n, &ctx->err);
    s->end = ct__device_event(device);
    var->broken = !ok;
    ct__var_set_version(var, ct__new_version(ctx));
    if (ctx->n_extras) ct__drop_extras(ctx);
    return ok;
}

static bool executor_lock_variable(ct_ctx *ctx, ct_var *var) {
    if (!atomic_load(&ctx->cancelled) && ct__rwlock_lock(var->lock, true, &ctx->cancelled))
        return true;
    if (executor_check_cancelled(ctx)) atomic_store(&ctx->cancelled, false);
    return false;
}

static bool executor_move_variable(ct_ctx *ctx, ct_var *var, int device) {
    ct_executor *e = ct__executor_at(ctx, device);
    if (!e || !executor_lock_variable(ctx, var)) return false;
    bool ok =
        executor_check_variable(ctx, var, CT_NOWHERE) && executor_move_variable_here(ctx, e, var);
    if (ok) { // earlier reads, on the old device, must not be confused with new ones
        ct__var_set_version(var, ct__new_version(ctx));
        if (ctx->n_extras) ct__drop_extras(ctx);
    }
    ct__rwlock_unlock(var->lock, true);
    return ok;
}

static bool executor_fill_variable(ct_ctx *ctx, ct_var *var, ct_chunk_fn next, void *user) {
    ct_executor *e = ct__executor_at(ctx, var->type.device);
    if (!e || !executor_lock_variable(ctx, var)) return false;
    bool ok = executor_check_variable(ctx, var, CT_NOWHERE) &&
              executor_fill_locked(ctx, e, var, next, user);
    ct__rwlock_unlock(var->lock, true);
    return ok;
}

static bool executor_set_borrowed(ct_ctx *ctx, ct_var *var, ct_storage *value) {
    if (!executor_lock_variable(ctx, var)) return false;
    bool ok = executor_check_variable(ctx, var, CT_NOWHERE);
    if (ok) { // borrowed memory belongs to its owner and is not counted
        ct__storage_unref(var->storage);
        var->storage = ct__storage_ref(value);
        var->broken = false;
        ct__var_set_version(var, ct__new_version(ctx));
        if (ctx->n_extras) ct__drop_extras(ctx);
    }
    ct__rwlock_unlock(var->lock, true);
    return ok;
}

static bool executor_download(ct_ctx *ctx, ct_storage *from, void *to, size_t n) {
    ct_device *device = from->owner;
    bool ok = device->backend->copy_out(device, (ct_operand){from->buffer, 0}, to, n, &ctx->err);
    // A loop in a queue was stopped, which has been reported now.
    if (!ok && ctx->err.code == CT_E_INTERRUPTED) atomic_store(&ctx->cancelled, false);
    return ok;
}

static const void *executor_host_pointer(const ct_storage *s) {
    const ct_device *device = s->owner;
    return device->backend->on_host ? s->buffer : NULL;
}

typedef struct executor_adopted {
    ct_storage storage; // first
    void (*release)(void *user);
    void *user;
} executor_adopted;
static void executor_destroy_adopted(ct_storage *s) {
    executor_adopted *a = (executor_adopted *)s;
    a->release(a->user);
    ct__device_release(s->owner);
    ct__free(a);
}

static ct_storage *executor_adopt(ct_ctx *ctx, const void *data, size_t n, void (*end)(void *user),
                                  void *user) {
    ct_executor *e = executor_of(ctx);
    executor_adopted *a = e && e->device->backend->on_host ? ct__calloc(1, sizeof *a) : NULL;
    if (!a) return NULL;
    ct_storage *s = &a->storage;
    atomic_init(&s->refs, 1);
    s->buffer = (void *)(uintptr_t)data;
    s->bytes = n;
    s->owner = ct__device_retain(e->device);
    s->destroy = executor_destroy_adopted;
    a->release = end;
    a->user = user;
    return s;
}

static void executor_wait(ct_ctx *ctx) {
    for (int i = 0; i < CT_MAX_DEVICES; i++) {
        ct_executor *e = i ? ctx->other_devices[i] : ctx->device;
        ct_err err = {0};
        if (e && !ct__device_wait(e->device, &err)) ct__log(ctx, CT_LOG_WARNING, err.text);
    }
}

static void executor_close(ct_ctx *ctx) {
    executor_wait(ctx);
    if (ctx->device) executor_free(ctx->device);
    ctx->device = NULL;
    for (int i = 1; i < CT_MAX_DEVICES; i++) {
        if (ctx->other_devices[i]) executor_free(ctx->other_devices[i]);
        ctx->other_devices[i] = NULL;
    }
}

const ct_hooks ct__hooks = {.run = executor_run,
                            .upload = executor_upload,
                            .download = executor_download,
                            .host = executor_host_pointer,
                            .adopt = executor_adopt,
                            .fill = executor_fill_variable,
                            .lend = executor_set_borrowed,
                            .move = executor_move_variable,
                            .lost = executor_storage_lost,
                            .find_device = executor_find_device,
                            .device_name = executor_device_name,
                            .settle = executor_wait,
                            .close = executor_close};

uint64_t ct_peak_memory(void) {
    ct_ctx *ctx = ct__ctx();
    return ctx ? ct__ctx_memory(ctx).peak : 0;
}

const ct_plan_cost *ct_latest_plan(void) {
    ct_ctx *ctx = ct__ctx();
    ct_executor *e = ctx ? ctx->device : NULL;
    if (!e || !e->latest_plan) return NULL;
    ct__run_begin(ctx);
    const ct_plan_cost *cost = ct__plan_cost(ctx, e, e->latest_plan);
    ct__run_end(ctx);
    return cost;
}

ct_stats ct_get_stats(void) {
    return (ct_stats){.plans_made = ct__counters.plans_made,
                      .plans_run = ct__counters.plans_run,
                      .kernels_compiled = ct__counters.kernels_compiled,
                      .kernels_loaded = ct__counters.kernels_loaded,
                      .kernels_packed = ct__counters.kernels_packed,
                      .kernels_pending = ct__counters.kernels_pending,
                      .launches = ct__counters.launches,
                      .launches_interpreted = ct__counters.launches_interpreted,
                      .plan_bytes = ct__counters.plan_bytes,
                      .arena_bytes = ct__account.now[CT_MEMORY_ARENAS],
                      .live_bytes = ct__account.now[CT_MEMORY_VALUES],
                      .memory = ct__account.total,
                      .peak_memory = ct__account.peak,
                      .nodes = ct__nodes_recorded()};
}
