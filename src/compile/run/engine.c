// What scope ends and reads reach: pending roots become a plan, found or made, and their values
// come back.
#include <fenv.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/memory.h"
#include "base/os.h"
#include "base/spans.h"
#include "compile/check/check.h"
#include "compile/run/cost.h"
#include "compile/passes/env.h"
#include "compile/run/explain.h"
#include "compile/run/store.h"
#include "ops/lapack.h"
#include "compile/plan.h"
#include "graph/live.h"

static void engine_free(ct_executor *e) {
    ct__plans_free(e);
    if (e->device) ct__temporaries_free(e);
    ct__order_free(&e->order);
    ct__free(e->buckets);
    ct__free(e->of_shape);
    ct__free(e->sizes.v);
    ct__free(e->shape_words);
    ct__free(e->also);
    ct__free(e->fresh);
    ct__free(e->copies);
    ct__free(e->held);
    ct__free(e->roots);
    ct__free(e->scalar_bytes);
    if (e->device) ct__device_release(e->device);
    ct__free(e);
}

static ct_executor *engine_new(const char *device, ct_err *err) {
    ct__profile_begins();
    ct_executor *e = ct__calloc(1, sizeof *e);
    if (!e) {
        ct__err_memory(err, CT_NOWHERE, "device", sizeof *e);
    } else if (ct__env_check(err) && ct__env_plan_cache(&e->most_bytes, err) &&
               ct__check_parse_env(&e->check, err) && (e->device = ct__device_open(device, err))) {
        if (e->device->backend == &ct__backend_dry) e->check = 0; // there are no values
        if (e->check & CT_CHECK_BOUNDS) e->device->guard = CT_GUARD;
        // What is checked is what will run.
        ct__computing(e->device)->waits = e->check || ct__env_waits();
        e->order.numerics = ct__numerics(e->device);
        return e;
    }
    if (e) engine_free(e);
    return NULL;
}

static ct_executor *engine_of(ct_ctx *ctx) {
    if (!ctx->device) {
        const char *name = getenv("COTAN_DEVICE");
        ctx->device = engine_new(name && *name ? name : "cpu", &ctx->err);
    }
    return ctx->device;
}

// -------------------------------------------------------------------------------------------- places

// Numbers of devices are the process's, since contexts read each other's values; 0 is each context's own.
static struct {
    pthread_mutex_t lock;
    char name[CT_PLACES][CT_DEVICE_NAME]; // [0, n)
    int n;
} places = {.lock = PTHREAD_MUTEX_INITIALIZER, .n = 1};

// The number of a name, which gets one if `anew`. -1: it has none.
static int number_of(const char *name, bool anew) {
    pthread_mutex_lock(&places.lock);
    int at = 1;
    while (at < places.n && strcmp(places.name[at], name) != 0) at++;
    if (at == places.n && anew && at < CT_PLACES)
        snprintf(places.name[places.n++], CT_DEVICE_NAME, "%s", name);
    if (at == places.n) at = -1;
    pthread_mutex_unlock(&places.lock);
    return at;
}

ct_executor *ct__engine_at(ct_ctx *ctx, int place) {
    if (!place) return engine_of(ctx);
    if (!ctx->places[place]) ctx->places[place] = engine_new(places.name[place], &ctx->err);
    return ctx->places[place];
}

static int place_of(ct_ctx *ctx, const char *given, ct_loc here) {
    const ct_executor *own = engine_of(ctx);
    char name[CT_DEVICE_NAME];
    if (!own) return -1;
    ct__device_name(given, name);
    if (strcmp(name, own->device->name) == 0) return 0;
    const int known = number_of(name, false);
    ct_executor *e = known < 0 ? engine_new(given, &ctx->err) : ct__engine_at(ctx, known);
    if (!e) return -1;
    const int at = known < 0 ? number_of(name, true) : known;
    if (known >= 0) return known;
    if (at > 0 && !ctx->places[at]) {
        ctx->places[at] = e;
        return at;
    }
    engine_free(e);
    if (at < 0)
        ct__err(&ctx->err, CT_E_LIMIT, here, "to",
                "\"%s\" would be device %d that tensors of this process lie on, at most %d can be",
                name, CT_PLACES + 1, CT_PLACES);
    return at;
}

static const char *place_name(ct_ctx *ctx, int place) {
    const ct_executor *own = place ? NULL : engine_of(ctx);
    return place ? places.name[place] : own ? own->device->name : "?";
}

const ct_account *ct__ctx_account(ct_ctx *ctx) {
    ct_executor *e = engine_of(ctx);
    return e ? e->device->account : &ct__account;
}

void ct__ctx_release_unused(ct_ctx *ctx) {
    ct_executor *e = engine_of(ctx);
    if (e) ct__device_spares_free(ct__computing(e->device));
    ct__release_unused();
}

const char *ct__ctx_device(ct_ctx *ctx) {
    ct_executor *e = engine_of(ctx);
    return e ? ct__computing(e->device)->backend->name : "";
}

double ct__ctx_gflops(ct_ctx *ctx) {
    ct_executor *e = engine_of(ctx);
    return e ? ct__target(e->device).gflops : 0;
}

void ct__ctx_within(ct_ctx *ctx, uint64_t bytes) {
    ct_executor *e = engine_of(ctx);
    if (e) e->within = bytes;
}

void ct__ctx_waits(ct_ctx *ctx) {
    ct_executor *e = engine_of(ctx);
    if (e) ct__computing(e->device)->waits = true;
}

void ct_wait_for_kernels(void) {
    ct_ctx *ctx = ct__ctx();
    if (ctx) ct__ctx_waits(ctx);
}

void ct__ctx_record(ct_ctx *ctx, ct_recorder *recorder) {
    ct_executor *e = engine_of(ctx);
    if (e) ct__computing(e->device)->recorder = recorder;
}

const char *ct_numerics(void) {
    ct_ctx *ctx = ct__ctx();
    ct_executor *e = ctx ? engine_of(ctx) : NULL;
    return e ? ct__lapack_numerics(ct__numerics(e->device)) : "";
}

// Tensors lie there already, under a number of their own.
static bool is_place(ct_ctx *ctx, const char *given) {
    char name[CT_DEVICE_NAME];
    ct__device_name(given, name);
    for (int i = 1; i < CT_PLACES; i++) {
        const ct_executor *e = ctx->places[i];
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
    if (ctx->n_roots || ctx->tracing) {
        ct__fail(ctx, CT_E_ARGUMENT, CT_NOWHERE, "set_device", "the context holds pending work");
        return false;
    }
    if (!ct__given(ctx, name, CT_NOWHERE, "set_device", "the name") || is_place(ctx, name))
        return false;
    ct_executor *e = engine_new(name, &ctx->err);
    if (!e) return false;
    if (ctx->device) {
        ct_device *old =
            ((ct_executor *)ctx->device)->device; // whose faults are told before it goes
        if (!old->backend->wait(old, old->backend->event(old), &ctx->err)) {
            engine_free(e);
            return false;
        }
        e->made = ((ct_executor *)ctx->device)->made; // nodes remember plans by number
        engine_free(ctx->device);
    }
    ctx->device = e;
    return true;
}

// ---------------------------------------------------------------------------------- choosing plans

static bool stays(const ct_root *r) { return r->kind == CT_ROOT_KEEP || r->kind == CT_ROOT_READ; }

// The outputs of a node of which one stays, that no pending root is.
static bool add_other_outputs(ct_ctx *ctx, ct_executor *e, size_t *n, ct_node *node, ct_loc here) {
    bool few[64] = {0}, *asked = node->n_out <= 64 ? few : ct__calloc(node->n_out, sizeof *asked);
    bool ok = asked != NULL;
    for (size_t i = 0; i < ctx->n_roots && ok; i++)
        if (ctx->roots[i].val.node == node && stays(&ctx->roots[i]))
            asked[ctx->roots[i].val.out] = true;
    for (uint32_t k = 0; k < node->n_out && ok; k++)
        ok = asked[k] ||
             ct__add_root(ctx, e, n,
                          (ct_root){.kind = CT_ROOT_READ, .val = {node, k}, .here = here});
    if (asked != few) ct__free(asked);
    return ok || ct__err_memory(&ctx->err, here, "run", node->n_out);
}

// The pending roots, and with an output of a node that stays its other outputs, each once, since
// the node becomes a leaf.
static bool gather_roots(ct_ctx *ctx, ct_executor *e, size_t *n) {
    const uint64_t epoch = ct__new_epoch(); // of nodes whose other outputs are roots
    for (size_t i = 0; i < ctx->n_roots; i++) {
        ct_root r = ctx->roots[i];
        ct_node *node = r.val.node;
        if (stays(&r) && node->value) continue;
        if (r.var && r.var->freed) { // by another context
            ct__var_released(r.var, ctx);
            ct__root_release(&ctx->roots[i]);
            ctx->roots[i--] = ctx->roots[--ctx->n_roots];
            continue;
        }
        if (!ct__add_root(ctx, e, n, r)) return false;
        if (!stays(&r) || node->n_out == 1 || node->epoch == epoch) continue;
        node->epoch = epoch;
        if (!add_other_outputs(ctx, e, n, node, r.here)) return false;
    }
    return true;
}

// The plan of the engine's first n roots, which grow by what it stores for later uses. `stores`:
// those that are known now, too.
static ct_plan *choose_plan(ct_ctx *ctx, ct_executor *e, size_t *n, bool stores) {
    const size_t wanted = *n;
    ct_plan *p;
    if (!ct__order(ctx, &e->order, e->roots, *n)) return NULL;
    if (stores && !ct__add_stores(ctx, e, n)) return NULL;
    if (*n > wanted && !ct__order(ctx, &e->order, e->roots, *n)) return NULL;
    while ((p = ct__plans_find(e)) && p->n_extra) {
        const size_t before = *n;
        if (!ct__add_extras(ctx, e, n, p)) return NULL;
        if (*n == before) break; // it stores them
        if (!ct__order(ctx, &e->order, e->roots, *n)) return NULL;
    }
    return p ? p : ct__plans_make(ctx, e, e->roots, *n);
}

// -------------------------------------------------------------------------------- values come back

// A variable's storage is borrowed for the run, all others are held.
static void let_go(const ct_root *r, ct_storage *storage) {
    if (!r->var || r->var->storage != storage) ct__storage_unref(storage);
}

static void note_variable(ct_storage *s, const ct_var *var, ct_loc wanted) {
    ct__live_note(
        s, (ct_live_note){
               .here = var->node.here, .wanted = wanted, .type = var->type, .name = var->name});
}

static void note_root(const ct_root *r, ct_storage *s) {
    const ct_node *node = r->val.node;
    if (r->var)
        note_variable(s, r->var, r->here);
    else
        ct__live_note(s, (ct_live_note){.here = node->here,
                                        .wanted = r->here,
                                        .op = node->op->name,
                                        .type = *ct__type(r->val),
                                        .name = r->name});
}

static bool make_storages(ct_ctx *ctx, ct_executor *e, size_t n) {
    if (!CT_GROW(e->fresh, e->fresh_cap, n))
        return ct__err_memory(&ctx->err, CT_NOWHERE, "run", n * sizeof *e->fresh);
    for (size_t i = 0; i < n; i++) {
        const ct_root *r = &e->roots[i];
        e->fresh[i] = r->var && r->var->storage
                          ? r->var->storage
                          : ct__storage_new(e->device, ct__type_bytes(ct__type(r->val)), &ctx->err);
        if (e->fresh[i]) {
            if (!r->var || e->fresh[i] != r->var->storage) note_root(r, e->fresh[i]);
            continue;
        }
        while (i-- > 0) let_go(&e->roots[i], e->fresh[i]);
        return false;
    }
    return true;
}

static bool give_value(ct_ctx *ctx, const ct_root *r, ct_storage *storage) {
    ct_node *node = r->val.node;
    if (!node->value) {
        ct_storage **value = ct__arena_zero(node->frame->arena, node->n_out * sizeof *node->value);
        if (!value)
            return ct__err_memory(&ctx->err, r->here, "run", node->n_out * sizeof *node->value);
        ct__give_values(node, value);
        if (r->kind == CT_ROOT_EXTRA) {
            ct__flag(node, CT_NODE_EXTRA);
            ctx->n_extras++;
        }
    }
    if (!node->value[r->val.out]) ct__give_value(node, r->val.out, ct__storage_ref(storage));
    return true;
}

static bool take_results(ct_ctx *ctx, ct_executor *e, size_t n) {
    bool ok = true, assigned = false;
    for (size_t i = 0; i < n; i++) {
        const ct_root *r = &e->roots[i];
        if (r->kind == CT_ROOT_ASSIGN) {
            ct_var *var = r->var;
            if (!var->storage) var->storage = e->fresh[i];
            const ct_current *now = ct__current(ctx, var);
            ct__var_changed(var, now->version);
            if (now->node) {
                ct__flag(now->node, CT_NODE_STORED);
                ct__hold_version(ctx, now->node);
            }
            if (var->broken) var->broken = false;
            assigned = true;
        } else if (r->kind == CT_ROOT_METRIC) {
            ct__metric_store(ctx, r->name, e->fresh[i], ct__type(r->val));
        } else {
            ok = give_value(ctx, r, e->fresh[i]) && ok;
        }
        let_go(r, e->fresh[i]);
        if (r->kind == CT_ROOT_ASSIGN) ct__var_released(r->var, ctx);
    }
    if (assigned && ctx->n_extras) ct__extras_spent(ctx);
    return ok;
}

// ------------------------------------------------------------------------- values of other devices

// Does anybody but the reads of this context hold the variable's value?
static bool is_shared(const ct_ctx *ctx, const ct_storage *s) {
    return (uint32_t)atomic_load(&s->refs) > 1 + (s->home == ctx->id ? s->home_holds : 0);
}

static bool move_here(ct_ctx *ctx, ct_executor *e, ct_var *var) {
    ct_storage *from = var->storage, *here = ct__fetch(ctx, e, from, var->assigned);
    if (!here) return false;
    here->version = from->version;
    here->home = from->home;
    note_variable(here, var, var->assigned);
    var->storage = here;
    ct__storage_unref(from);
    return true;
}

// What a plan updates in place moves here for good, and away from others who hold it.
static bool fetch_targets(ct_ctx *ctx, ct_executor *e, size_t n) {
    for (size_t i = 0; i < n; i++) {
        ct_var *var = e->roots[i].var;
        const ct_storage *from = var ? var->storage : NULL;
        if (from && (ct__is_foreign(e, from) || is_shared(ctx, from)) && !move_here(ctx, e, var))
            return false;
    }
    return true;
}

// What it only reads is copied for the run.
static bool fetch_leaves(ct_ctx *ctx, ct_executor *e) {
    for (size_t i = 0; i < e->order.n_leaves; i++) {
        if (!ct__is_foreign(e, e->order.leaves[i])) continue;
        if (!CT_GROW(e->copies, e->copies_cap, e->n_copies + 1)) return false;
        ct_storage *here = ct__fetch(ctx, e, e->order.leaves[i], e->order.leaf_nodes[i]->here);
        if (!here) return false;
        e->copies[e->n_copies++] = e->order.leaves[i] = here;
    }
    return true;
}

// ------------------------------------------------------------------------------------------- a run

static bool storage_lost(const ct_storage *s) {
    ct_device *device = s->owner;
    return device->backend->lost && device->backend->lost(device, s->begin, s->end);
}

// Values that a device failed to make may have been recorded with before that was known.
static bool leaves_stand(ct_ctx *ctx, const ct_order *o) {
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

// Variables take their new storages when all pieces have run: until then a run can be given up.
static bool run_pieces(ct_ctx *ctx, ct_executor *e, const ct_plan *p, size_t n) {
    const uint64_t refused = ct__refused();
    ct_storage **made = ct__calloc(n + p->n_between + 1, sizeof(ct_storage *));
    bool ok = made && CT_GROW(e->fresh, e->fresh_cap, n);
    for (size_t i = 0; i < p->n_pieces && ok; i++)
        ok = ct__piece_run(ctx, e, &p->pieces[i], n, made) && ct__refused() == refused;
    for (size_t i = ok ? n : 0; made && i < n + p->n_between; i++) ct__storage_unref(made[i]);
    for (size_t i = 0; i < n && ok; i++) {
        const ct_root *r = &e->roots[i];
        ct_storage *old = r->var ? r->var->storage : NULL;
        e->fresh[i] = made[i];
        note_root(r, made[i]);
        if (!r->var) continue;
        if (old) made[i]->version = old->version, made[i]->home = old->home;
        r->var->storage = made[i];
        ct__storage_unref(old);
    }
    ct__free(made);
    return ok ? take_results(ctx, e, n) : ct__err_memory(&ctx->err, CT_NOWHERE, "run", n);
}

static bool run_plan(ct_ctx *ctx, ct_executor *e, ct_plan *p, size_t n) {
    if (!leaves_stand(ctx, &e->order)) return false;
    if (p->n_pieces) return run_pieces(ctx, e, p, n);
    if (!fetch_leaves(ctx, e) || !make_storages(ctx, e, n)) return false;
    e->started = false;
    const uint64_t refused = ct__refused();
    uint64_t begin = e->device->backend->event(e->device);
    bool ok = ct__plan_bind(ctx, e, p) && ct__check_before(ctx, e, p, n) &&
              ct__plan_run(ctx, e, p, &e->order, e->fresh) && ct__check_after(e, p) &&
              ct__refused() == refused; // else something was not done for want of it
    ct__check_done(e);
    if (ok) {
        uint64_t end = e->device->backend->event(e->device);
        for (size_t i = 0; i < n; i++) e->fresh[i]->begin = begin, e->fresh[i]->end = end;
        return take_results(ctx, e, n);
    }
    for (size_t i = 0; i < n; i++) {
        ct_var *var = e->roots[i].var;
        if (e->started && var && var->storage) { // it may hold anything now
            var->broken = true;
            ct__var_changed(var, ct__new_version(ctx));
        }
        let_go(&e->roots[i], e->fresh[i]);
    }
    return false;
}

// ------------------------------------------------------------------------------------------------
// variables that other contexts may be using: their sets' locks are held until all work is
// enqueued. That is long enough: a device that works behind a queue has memory that only itself
// touches, and who copies from it waits for the queue.

static bool hold(ct_executor *e, ct_share *lock, bool alone) {
    size_t low = 0, high = e->n_held;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if ((uintptr_t)e->held[middle].lock < (uintptr_t)lock)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == e->n_held || e->held[low].lock != lock) {
        if (!CT_GROW(e->held, e->held_cap, e->n_held + 1)) return false;
        memmove(&e->held[low + 1], &e->held[low], (e->n_held++ - low) * sizeof *e->held);
        e->held[low] = (struct ct_held){lock, false};
    }
    e->held[low].alone |= alone;
    return true;
}

static bool list_held(ct_executor *e, size_t n) {
    const ct_share *last = NULL;
    e->n_held = 0;
    for (size_t i = 0; i < n; i++) {
        const ct_var *var = e->roots[i].var;
        if (!var || var->lock == last) continue;
        if (!hold(e, var->lock, true)) return false;
        last = var->lock;
    }
    for (size_t i = 0; i < e->order.n_leaves; i++) {
        const ct_node *node = e->order.leaf_nodes[i];
        if (!ct__reads_var(node) || node->var->lock == last) continue;
        if (!hold(e, node->var->lock, false)) return false;
        last = node->var->lock;
    }
    return true;
}

static void release(ct_executor *e) {
    while (e->n_held) {
        e->n_held--;
        ct__share_leave(e->held[e->n_held].lock, e->held[e->n_held].alone);
    }
}

static bool take_held(ct_ctx *ctx, ct_executor *e, size_t n) {
    bool listed = list_held(e, n);
    size_t all = e->n_held;
    e->n_held = 0;
    if (!listed) return ct__err_memory(&ctx->err, CT_NOWHERE, "run", all * sizeof *e->held);
    while (e->n_held < all) {
        struct ct_held *h = &e->held[e->n_held];
        if (!ct__share_take(h->lock, h->alone, &ctx->cancelled)) return false;
        e->n_held++;
    }
    return true;
}

// The first read whose version is gone by now; what the others read lies here.
static const ct_node *bind_reads(ct_executor *e) {
    for (size_t i = 0; i < e->order.n_leaves; i++) {
        const ct_node *node = e->order.leaf_nodes[i];
        if (!ct__reads_var(node)) continue;
        const bool newest = ct__version_of(node) == node->var->version;
        if (!newest && !ct__held(node)) return node;
        e->order.leaves[i] = newest ? node->var->storage : ct__held(node);
    }
    return NULL;
}

static bool target_stands(ct_ctx *ctx, const ct_var *var, ct_loc here) {
    return !var->freed || ct__err(&ctx->err, CT_E_SPENT, here, "assign",
                                  "variable \"%s\" was freed by another context", var->name);
}

static bool targets_stand(ct_ctx *ctx, const ct_executor *e, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (e->roots[i].var && !target_stands(ctx, e->roots[i].var, e->roots[i].here)) return false;
    return true;
}

static bool cancelled(ct_ctx *ctx) {
    return atomic_load(&ctx->cancelled) &&
           !ct__err(&ctx->err, CT_E_INTERRUPTED, CT_NOWHERE, "run", CT_CANCELLED);
}

static bool run_held(ct_ctx *ctx, ct_executor *e, ct_plan *p, size_t n, ct_loc here) {
    const ct_node *gone = NULL;
    bool ok = take_held(ctx, e, n);
    if (!ok) (void)cancelled(ctx);
    ok = ok && targets_stand(ctx, e, n) && (p->n_pieces || fetch_targets(ctx, e, n)) &&
         !(gone = bind_reads(e)) && run_plan(ctx, e, p, n);
    release(e);
    return gone ? ct__spent(ctx, gone, here) : ok;
}

static ct_span_what span_of(const ct_plan *p, ct_span_kind kind, const char *name) {
    return (ct_span_what){kind, name, "", p->here.file, p->here.line};
}
static bool await_compiler(ct_ctx *ctx, ct_executor *e, ct_plan *p) {
    const int64_t begin = ct__watched() ? ct__span_now() : 0;
    const bool ok = ct__plan_start(ctx, e, p);
    const ct_span_what what = span_of(p, CT_SPAN_COMPILE, "compiler awaited");
    if (begin) ct__span_add(&what, begin, 0, 0);
    return ok;
}
// Waits for the compiler, before anything is locked, where that is worth it.
static bool start(ct_ctx *ctx, ct_executor *e, ct_plan *p) {
    bool ok = !p->unfinished || await_compiler(ctx, e, p);
    for (size_t i = 0; i < p->n_pieces && ok; i++)
        ok = start(ctx, p->pieces[i].engine, p->pieces[i].plan);
    return ok;
}
static bool run_watched(ct_ctx *ctx, ct_executor *e, ct_plan *p, size_t n, ct_loc here) {
    const int64_t begin = ct__watched() ? ct__span_now() : 0;
    const bool ok = run_held(ctx, e, p, n, here);
    const ct_span_what what = span_of(p, CT_SPAN_RUN, "plan run");
    if (begin) ct__span_add(&what, begin, 0, 0);
    return ok;
}

// What is pending as one plan.
static bool run_once(ct_ctx *ctx, ct_loc here) {
    ct_executor *e = ctx->err.code ? NULL : engine_of(ctx);
    size_t n = 0;
    bool ok = e && !cancelled(ctx) && gather_roots(ctx, e, &n);
    if (ok && n) {
        ct_plan *p = choose_plan(ctx, e, &n, true);
        if (p) {
            e->newest = p;
            ct__note_computed(p, &e->order);
        }
        ok = p && start(ctx, e, p) && run_watched(ctx, e, p, n, here);
        while (e->n_copies) ct__storage_unref(e->copies[--e->n_copies]);
        ct__order_close(&e->order);
    }
    if (!ok) ct__err_memory(&ctx->err, here, "run", 0); // unless the reason stands there already
    return ok;
}

// In a rolling scope a variable gets its value though something else failed in the plan: first all that are
// assigned are tried without the rest, then the first values of those that have none. What was interrupted stops at
// once; then assignments wait, until ct_rolling_give_up.
static void save_assignments(ct_ctx *ctx, ct_loc here) {
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
            done = run_once(ctx, here);
        }
    ctx->err = failure;
    if (done) ct__roots_done(ctx);
    ct__roots_abandon(ctx);
}

static bool run(ct_ctx *ctx, ct_loc here) {
    ct__run_begin(ctx);
    // Folding and the reference round as kernels do, whatever the host program's mode is.
    fenv_t host;
    fegetenv(&host);
    fesetenv(FE_DFL_ENV);
    const bool ok = run_once(ctx, here);
    if (!ok && ctx->err.code == CT_E_INTERRUPTED) atomic_store(&ctx->cancelled, false);
    if (ok)
        ct__roots_done(ctx);
    else if (ctx->rolling)
        save_assignments(ctx, here);
    else
        ct__roots_abandon(ctx);
    fesetenv(&host);
    ct__run_end(ctx);
    return ok;
}

ct_plan *ct__pending_plan(ct_ctx *ctx, ct_loc here, ct_executor **engine) {
    ct_executor *e = engine_of(ctx);
    size_t n = 0;
    if (!e || !gather_roots(ctx, e, &n)) return NULL;
    *engine = e;
    if (n) return choose_plan(ctx, e, &n, false);
    ct__err(&ctx->err, CT_E_ARGUMENT, here, "compile", "nothing is pending: there is no plan");
    ct__err_hint(&ctx->err, "call it behind what a step records, before the step's scope ends");
    return NULL;
}

static ct_storage *upload(ct_ctx *ctx, const void *bytes, size_t n) {
    ct_executor *e = engine_of(ctx);
    ct_storage *s = e ? ct__storage_new(e->device, n, &ctx->err) : NULL;
    if (!s) return NULL;
    s->begin = e->device->backend->event(e->device);
    bool ok =
        e->device->backend->copy_in(e->device, (ct_operand){s->buffer, 0}, bytes, n, &ctx->err);
    s->end = e->device->backend->event(e->device);
    if (ok) return s;
    ct__storage_unref(s);
    return NULL;
}

// The variable's storage; a new one where it has none here.
static ct_storage *home_of(ct_ctx *ctx, ct_executor *e, ct_var *var) {
    if (var->storage && !ct__is_foreign(e, var->storage) && !is_shared(ctx, var->storage))
        return var->storage;
    ct_storage *s = ct__storage_new(e->device, ct__type_bytes(&var->type), &ctx->err);
    if (!s) return NULL;
    note_variable(s, var, var->assigned);
    ct__storage_unref(var->storage);
    var->storage = s;
    return s;
}

static bool fill_held(ct_ctx *ctx, ct_executor *e, ct_var *var, ct_pieces_fn next, void *user) {
    ct_device *device = e->device;
    ct_storage *s = home_of(ctx, e, var);
    const void *bytes;
    size_t n = 0;
    bool ok = true;
    if (!s) return false;
    s->begin = device->backend->event(device);
    for (size_t at = 0; ok && (ok = next(user, &bytes, &n, &ctx->err)) && n; at += n)
        ok = device->backend->copy_in(device, (ct_operand){s->buffer, at}, bytes, n, &ctx->err);
    s->end = device->backend->event(device);
    var->broken = !ok;
    ct__var_changed(var, ct__new_version(ctx));
    if (ctx->n_extras) ct__extras_spent(ctx);
    return ok;
}

static bool take_alone(ct_ctx *ctx, ct_var *var) {
    if (!atomic_load(&ctx->cancelled) && ct__share_take(var->lock, true, &ctx->cancelled))
        return true;
    if (cancelled(ctx)) atomic_store(&ctx->cancelled, false);
    return false;
}

static bool move(ct_ctx *ctx, ct_var *var, int place) {
    ct_executor *e = ct__engine_at(ctx, place);
    if (!e || !take_alone(ctx, var)) return false;
    bool ok = target_stands(ctx, var, CT_NOWHERE) && move_here(ctx, e, var);
    if (ok) { // what read it where it was is not to meet what reads it now
        ct__var_changed(var, ct__new_version(ctx));
        if (ctx->n_extras) ct__extras_spent(ctx);
    }
    ct__share_leave(var->lock, true);
    return ok;
}

static bool fill(ct_ctx *ctx, ct_var *var, ct_pieces_fn next, void *user) {
    ct_executor *e = ct__engine_at(ctx, var->type.place);
    if (!e || !take_alone(ctx, var)) return false;
    bool ok = target_stands(ctx, var, CT_NOWHERE) && fill_held(ctx, e, var, next, user);
    ct__share_leave(var->lock, true);
    return ok;
}

static bool lend(ct_ctx *ctx, ct_var *var, ct_storage *value) {
    if (!take_alone(ctx, var)) return false;
    bool ok = target_stands(ctx, var, CT_NOWHERE);
    if (ok) { // what is lent is its owner's, and in no account
        ct__storage_unref(var->storage);
        var->storage = ct__storage_ref(value);
        var->broken = false;
        ct__var_changed(var, ct__new_version(ctx));
        if (ctx->n_extras) ct__extras_spent(ctx);
    }
    ct__share_leave(var->lock, true);
    return ok;
}

static bool download(ct_ctx *ctx, ct_storage *from, void *to, size_t n) {
    ct_device *device = from->owner;
    bool ok = device->backend->copy_out(device, (ct_operand){from->buffer, 0}, to, n, &ctx->err);
    // A loop behind a queue was stopped: that has been said now.
    if (!ok && ctx->err.code == CT_E_INTERRUPTED) atomic_store(&ctx->cancelled, false);
    return ok;
}

static const void *host(const ct_storage *s) {
    const ct_device *device = s->owner;
    return device->backend->on_host ? s->buffer : NULL;
}

typedef struct ct_adopted {
    ct_storage storage; // first
    void (*release)(void *user);
    void *user;
} ct_adopted;
static void destroy_adopted(ct_storage *s) {
    ct_adopted *a = (ct_adopted *)s;
    a->release(a->user);
    ct__device_release(s->owner);
    ct__free(a);
}

static ct_storage *adopt(ct_ctx *ctx, const void *data, size_t n, void (*end)(void *user),
                         void *user) {
    ct_executor *e = engine_of(ctx);
    ct_adopted *a = e && e->device->backend->on_host ? ct__calloc(1, sizeof *a) : NULL;
    if (!a) return NULL;
    ct_storage *s = &a->storage;
    atomic_init(&s->refs, 1);
    s->buffer = (void *)(uintptr_t)data;
    s->bytes = n;
    s->owner = ct__device_retain(e->device);
    s->destroy = destroy_adopted;
    a->release = end;
    a->user = user;
    return s;
}

static void settle(ct_ctx *ctx) {
    for (int i = 0; i < CT_PLACES; i++) {
        ct_executor *e = i ? ctx->places[i] : ctx->device;
        ct_err err = {0};
        if (e && !e->device->backend->wait(e->device, e->device->backend->event(e->device), &err))
            ct__log(ctx, CT_LOG_WARNING, err.text);
    }
}

static void close_engine(ct_ctx *ctx) {
    settle(ctx);
    if (ctx->device) engine_free(ctx->device);
    ctx->device = NULL;
    for (int i = 1; i < CT_PLACES; i++) {
        if (ctx->places[i]) engine_free(ctx->places[i]);
        ctx->places[i] = NULL;
    }
}

const ct_hooks ct__hooks = {.run = run,
                            .upload = upload,
                            .download = download,
                            .host = host,
                            .adopt = adopt,
                            .fill = fill,
                            .lend = lend,
                            .move = move,
                            .lost = storage_lost,
                            .place = place_of,
                            .place_name = place_name,
                            .settle = settle,
                            .close = close_engine};

uint64_t ct_most_memory(void) {
    ct_ctx *ctx = ct__ctx();
    return ctx ? ct__ctx_account(ctx)->peak : 0;
}

const ct_plan_cost *ct_newest_plan(void) {
    ct_ctx *ctx = ct__ctx();
    ct_executor *e = ctx ? ctx->device : NULL;
    if (!e || !e->newest) return NULL;
    ct__run_begin(ctx);
    const ct_plan_cost *cost = ct__plan_cost(ctx, e, e->newest);
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
                      .most_memory = ct__account.peak,
                      .nodes = ct__nodes_recorded()};
}
