// Running plans: operands bound, scalars sent, launches enqueued.
#include <stdio.h>
#include <string.h>

#include "backend/memory.h"
#include "compile/check/check.h"
#include "graph/live.h"

static void destroy_storage(ct_storage *s) {
    ct_device *device = s->owner;
    ct__device_free(device, s->buffer, s->bytes, CT_MEMORY_VALUES);
    ct__registry_remove(s);
    ct__device_release(device);
}

ct_storage *ct__storage_new(ct_device *device, size_t bytes, ct_err *err) {
    void *buffer = ct__device_alloc(device, bytes, CT_MEMORY_VALUES, err);
    ct_storage *s = buffer ? ct__registry_add((ct_storage){.refs = 1,
                                                           .buffer = buffer,
                                                           .bytes = bytes,
                                                           .owner = device,
                                                           .destroy = destroy_storage})
                           : NULL;
    if (s)
        ct__device_retain(device);
    else if (buffer)
        ct__device_free(device, buffer, bytes, CT_MEMORY_VALUES);
    if (!s) ct__err_memory(err, CT_NOWHERE, "storage", bytes);
    return s;
}

// --------------------------------------------------------------------------------------- preparing

// Launches become commands whose operands are filled at each run.
typedef struct {
    ct_plan *plan;
    void **home;   // (program.n_bufs) what is the same in all runs; NULL of leaves and roots
    bool *lasting; // (program.n_bufs) is it the storage of a variable that has a value?
    size_t
        *open; // (program.n_launches) of each LOOP and SWITCH around, where it or its BRANCH began
    size_t depth;
    bool changed; // a variable, so that it cannot be undone any more
    size_t commands_cap, binding_cap, offsets_cap, behind_cap;
} preparation;

// How far away the next BRANCH is, or the END.
static void note_structure(preparation *x, const ct_launch *l, size_t at) {
    bool ends = l->kind == CT_LAUNCH_END, parts = l->kind == CT_LAUNCH_BRANCH;
    if (ends || parts) {
        size_t begin = x->open[--x->depth];
        x->plan->commands[begin].skip = (uint32_t)(at - begin);
    }
    if (!ends && !ct__launch_runs(l)) x->open[x->depth++] = at;
}

// A run can be undone up to the first command that changes a variable, or the loop that it is in.
static void note_change(preparation *x, const ct_launch *l, size_t at) {
    for (uint32_t k = 0; k < l->n_args; k++)
        x->changed |= l->args[k].write && x->lasting[l->args[k].buf];
    if (!x->changed && x->depth == 0) x->plan->n_undoable = at + 1;
}

static bool add_command(preparation *x, const ct_launch *l) {
    ct_plan *p = x->plan;
    if (!CT_GROW(p->commands, x->commands_cap, p->n_commands + 1) ||
        !CT_GROW(p->binding, x->binding_cap, p->n_binding + l->n_args) ||
        !CT_GROW(p->operands, x->offsets_cap, p->n_operands + l->n_args) ||
        (p->program.guard && !CT_GROW(p->behind, x->behind_cap, p->n_operands + l->n_args)))
        return false;
    size_t at = p->n_commands++;
    p->commands[at] = ct__program_command(&p->program, l);
    note_structure(x, l, at);
    note_change(x, l, at);
    for (uint32_t k = 0; k < l->n_args; k++) {
        const ct_buf *b = &p->program.bufs[l->args[k].buf];
        size_t base = b->kind == CT_BUF_TEMP ? b->offset : 0;
        if (b->kind == CT_BUF_LEAF || b->kind == CT_BUF_ROOT)
            p->binding[p->n_binding++] =
                (ct_binding){(uint32_t)p->n_operands, b->index, b->kind == CT_BUF_ROOT};
        if (p->behind) p->behind[p->n_operands] = l->args[k].buf;
        p->operands[p->n_operands++] =
            (ct_operand){x->home[l->args[k].buf], base + l->args[k].offset};
    }
    return true;
}

static bool upload_const(ct_device *device, const ct_buf *b, void **home, ct_err *err) {
    *home = ct__device_alloc(device, b->bytes, CT_MEMORY_CONSTANTS, err);
    return *home &&
           device->backend->copy_in(device, (ct_operand){*home, 0}, b->data, b->bytes, err);
}

// Where the buffers lie that are the plan's own.
static bool make_homes(ct_device *device, ct_plan *plan, ct_err *err) {
    size_t n = plan->program.n_bufs;
    plan->homes = ct__calloc(n + 1, sizeof *plan->homes);
    if (!plan->homes) return ct__err_memory(err, plan->here, "plan", n * sizeof *plan->homes);
    if (plan->n_scalars &&
        !(plan->scalars = ct__device_alloc(device, plan->n_scalars * 8, CT_MEMORY_CONSTANTS, err)))
        return false;
    for (size_t i = 0; i < n; i++) {
        const ct_buf *b = &plan->program.bufs[i];
        if (b->kind == CT_BUF_SCALARS) plan->homes[i] = plan->scalars;
        if (b->kind == CT_BUF_CONST && !upload_const(device, b, &plan->homes[i], err)) return false;
    }
    return true;
}

bool ct__plan_prepare(ct_ctx *ctx, ct_executor *engine, ct_plan *plan, const ct_order *order,
                      const ct_root *roots) {
    plan->hash = order->hash;
    plan->n_words = order->n_words;
    plan->words = ct__malloc((order->n_words + 1) * sizeof *plan->words);
    if (!plan->words)
        return ct__err_memory(&ctx->err, plan->here, "plan", order->n_words * sizeof *plan->words);
    if (order->n_words) // a piece of a plan has none
        memcpy(plan->words, order->words, order->n_words * sizeof *plan->words);
    if (!make_homes(engine->device, plan, &ctx->err)) return false;
    preparation x = {.plan = plan, .home = plan->homes};
    x.lasting = ct__calloc(plan->program.n_bufs + 1, sizeof *x.lasting);
    for (size_t i = 0; x.lasting && i < plan->program.n_bufs; i++) {
        const ct_buf *b = &plan->program.bufs[i];
        const ct_root *root = roots && b->kind == CT_BUF_ROOT ? &roots[b->index] : NULL;
        x.lasting[i] =
            b->kind == CT_BUF_LEAF || (root && root->kind == CT_ROOT_ASSIGN && root->var->storage);
    }
    x.open = ct__malloc((plan->program.n_launches + 1) * sizeof *x.open);
    bool made = x.lasting && x.open;
    for (size_t i = 0; i < plan->program.n_launches && made; i++)
        made = add_command(&x, &plan->program.launches[i]);
    ct__free(x.lasting);
    ct__free(x.open);
    if (!made) return ct__err_memory(&ctx->err, plan->here, "plan", sizeof *plan->commands);
    for (size_t i = 0, at = 0; i < plan->n_commands; i++) {
        plan->commands[i].args = plan->operands + at;
        at += plan->commands[i].n_args;
    }
    for (size_t i = 0; i < plan->program.n_kernels; i++)
        plan->unfinished |= plan->program.kernels[i].made->unfinished;
    return true;
}

void ct__plan_free(ct_executor *engine, ct_plan *plan) {
    for (size_t i = 0; i < plan->n_pieces; i++)
        if (plan->pieces[i].plan) ct__plan_free(plan->pieces[i].engine, plan->pieces[i].plan);
    ct_device *device = engine->device;
    device->backend->wait(device, device->backend->event(device), NULL);
    if (plan->scalars)
        ct__device_free(device, plan->scalars, plan->n_scalars * 8, CT_MEMORY_CONSTANTS);
    for (size_t i = 0; plan->homes && i < plan->program.n_bufs; i++)
        if (plan->program.bufs[i].kind == CT_BUF_CONST && plan->homes[i])
            ct__device_free(device, plan->homes[i], plan->program.bufs[i].bytes,
                            CT_MEMORY_CONSTANTS);
    ct__free(plan->homes);
    ct__free(plan->words);
    ct__free(plan->dynamic);
    ct__free(plan->bound);
    ct__free(plan->values);
    ct__free(plan->commands);
    ct__free(plan->operands);
    ct__free(plan->binding);
    ct__free(plan->behind);
    ct__free(plan->extra);
    ct__release_kernels(engine, &plan->program);
    ct__program_free(&plan->program);
    ct__check_graph_free(engine, plan->check);
    ct__arena_free(&plan->arena);
    ct__free(plan);
}

// ----------------------------------------------------------------------------------------- running

void ct__temporaries_free(ct_executor *engine) {
    ct_temporaries *t = &engine->temporaries;
    if (t->memory) ct__device_free(engine->device, t->memory, t->bytes, CT_MEMORY_ARENAS);
    *t = (ct_temporaries){.number = t->number + 1};
}

// The old memory goes first, so that both are never held; a device behind a queue frees it when the
// runs that use it are over.
static bool grow(ct_executor *engine, size_t bytes, ct_err *err) {
    ct_temporaries *t = &engine->temporaries;
    if (bytes <= t->bytes) return true;
    ct__temporaries_free(engine);
    t->memory = ct__device_alloc(engine->device, bytes, CT_MEMORY_ARENAS, err);
    if (t->memory) t->bytes = bytes;
    return t->memory != NULL;
}

bool ct__plan_place(ct_ctx *ctx, ct_executor *engine, ct_plan *plan) {
    const ct_program *p = &plan->program;
    if (!grow(engine, p->arena_bytes, &ctx->err)) return false;
    if (plan->placed == engine->temporaries.number || !p->arena_bytes) return true;
    for (size_t i = 0, at = 0; i < plan->n_commands; i++)
        for (uint32_t k = 0; k < p->launches[i].n_args; k++, at++)
            if (p->bufs[p->launches[i].args[k].buf].kind == CT_BUF_TEMP)
                plan->operands[at].buffer = engine->temporaries.memory;
    plan->placed = engine->temporaries.number;
    return true;
}

static bool submit(ct_ctx *ctx, ct_executor *engine, const ct_plan *plan, size_t first, size_t n) {
    ct_device *device = engine->device;
    if (plan->behind) return ct__check_bounds(ctx, engine, plan, first, n);
    return device->backend->submit(device, plan->commands + first, n, &ctx->err);
}

bool ct__plan_run(ct_ctx *ctx, ct_executor *engine, ct_plan *plan, const ct_order *order,
                  ct_storage *const *fresh) {
    ct_device *device = engine->device;
    const ct_backend *backend = device->backend;
    if (!ct__plan_place(ctx, engine, plan)) return false;
    if (order->n_scalars) {
        size_t n = order->n_scalars * 8;
        if (!CT_GROW(engine->scalar_bytes, engine->scalar_cap, n))
            return ct__err_memory(&ctx->err, plan->here, "plan", n);
        for (size_t i = 0; i < order->n_scalars; i++)
            memcpy(engine->scalar_bytes + 8 * i, &order->scalars[i]->number, 8);
        if (!backend->copy_in(device, (ct_operand){plan->scalars, 0}, engine->scalar_bytes, n,
                              &ctx->err))
            return false;
    }
    for (size_t i = 0; i < plan->n_binding; i++) {
        const ct_binding *b = &plan->binding[i];
        plan->operands[b->operand].buffer =
            (b->is_root ? fresh[b->index] : order->leaves[b->index])->buffer;
    }
    if (device->account == &ct__account) // a dry device runs nothing
        atomic_fetch_add_explicit(&ct__counters.plans_run, 1, memory_order_relaxed);
    // Until a variable changes the run can be given up as if it had never begun; then it goes to
    // its end, so that variables are of one step.
    device->stop = &ctx->cancelled;
    bool ok = submit(ctx, engine, plan, 0, plan->n_undoable);
    device->stop = NULL;
    if (!ok) return false;
    engine->started = plan->n_undoable < plan->n_commands;
    return submit(ctx, engine, plan, plan->n_undoable, plan->n_commands - plan->n_undoable);
}
