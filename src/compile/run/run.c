// Prepares and runs plans: binds operands, uploads scalars, submits commands.
#include <string.h>

#include "backend/memory.h"
#include "compile/check/check.h"
#include "graph/allocation_registry.h"

static void run_destroy_storage(ct_storage *s) {
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
                                                           .destroy = run_destroy_storage})
                           : NULL;
    if (s)
        ct__device_retain(device);
    else if (buffer)
        ct__device_free(device, buffer, bytes, CT_MEMORY_VALUES);
    if (!s) ct__err_memory(err, CT_NOWHERE, "storage", bytes);
    return s;
}

// --------------------------------------------------------------------------------------- preparing

// State while launches become commands, whose operands are filled in at each run.
typedef struct {
    ct_plan *plan;
    void **const_buffers; // (program.n_bufs) the same in all runs; NULL for leaves and roots
    // (program.n_bufs) the buffer is the storage of a variable that has a value
    bool *is_variable;
    size_t
        // (program.n_launches) of each open LOOP and SWITCH, the command where it or its BRANCH began
        *open;
    size_t depth;
    bool variable_changed; // a command changed a variable: the run can no longer be undone
    size_t commands_cap, binding_cap, offsets_cap, behind_cap;
} run_preparation;

// Sets `skip` of a command: the distance to the next BRANCH, or to the END.
static void run_set_skip(run_preparation *x, const ct_launch *l, size_t at) {
    bool is_end = l->kind == CT_LAUNCH_END, is_branch = l->kind == CT_LAUNCH_BRANCH;
    if (is_end || is_branch) {
        size_t begin = x->open[--x->depth];
        x->plan->commands[begin].skip = (uint32_t)(at - begin);
    }
    if (!is_end && !ct__launch_runs(l)) x->open[x->depth++] = at;
}

// Finds how far a run can be undone: up to the first command that changes a variable, or up to the loop
// around it.
static void run_note_change(run_preparation *x, const ct_launch *l, size_t at) {
    for (uint32_t k = 0; k < l->n_args; k++)
        x->variable_changed |= l->args[k].write && x->is_variable[l->args[k].buf];
    if (!x->variable_changed && x->depth == 0) x->plan->n_cancellable = at + 1;
}

static bool run_add_command(run_preparation *x, const ct_launch *l) {
    ct_plan *p = x->plan;
    if (!CT_GROW(p->commands, x->commands_cap, p->n_commands + 1) ||
        !CT_GROW(p->bindings, x->binding_cap, p->n_bindings + l->n_args) ||
        !CT_GROW(p->operands, x->offsets_cap, p->n_operands + l->n_args) ||
        (p->program.guard && !CT_GROW(p->operand_buf, x->behind_cap, p->n_operands + l->n_args)))
        return false;
    size_t at = p->n_commands++;
    p->commands[at] = ct__program_command(&p->program, l);
    run_set_skip(x, l, at);
    run_note_change(x, l, at);
    for (uint32_t k = 0; k < l->n_args; k++) {
        const ct_buf *b = &p->program.bufs[l->args[k].buf];
        size_t base = b->kind == CT_BUF_TEMP ? b->offset : 0;
        if (b->kind == CT_BUF_LEAF || b->kind == CT_BUF_ROOT)
            p->bindings[p->n_bindings++] =
                (ct_binding){(uint32_t)p->n_operands, b->index, b->kind == CT_BUF_ROOT};
        if (p->operand_buf) p->operand_buf[p->n_operands] = l->args[k].buf;
        p->operands[p->n_operands++] =
            (ct_operand){x->const_buffers[l->args[k].buf], base + l->args[k].offset};
    }
    return true;
}

static bool run_upload_const(ct_device *device, const ct_buf *b, void **buffer, ct_err *err) {
    *buffer = ct__device_alloc(device, b->bytes, CT_MEMORY_CONSTANTS, err);
    return *buffer &&
           device->backend->copy_in(device, (ct_operand){*buffer, 0}, b->data, b->bytes, err);
}

// Allocates the buffers that belong to the plan.
static bool run_alloc_constants(ct_device *device, ct_plan *plan, ct_err *err) {
    size_t n = plan->program.n_bufs;
    plan->const_buffers = ct__calloc(n + 1, sizeof *plan->const_buffers);
    if (!plan->const_buffers)
        return ct__err_memory(err, plan->here, "plan", n * sizeof *plan->const_buffers);
    if (plan->n_scalars &&
        !(plan->scalars = ct__device_alloc(device, plan->n_scalars * 8, CT_MEMORY_CONSTANTS, err)))
        return false;
    for (size_t i = 0; i < n; i++) {
        const ct_buf *b = &plan->program.bufs[i];
        if (b->kind == CT_BUF_SCALARS) plan->const_buffers[i] = plan->scalars;
        if (b->kind == CT_BUF_CONST && !run_upload_const(device, b, &plan->const_buffers[i], err))
            return false;
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
    if (order->n_words) // a subplan has none
        memcpy(plan->words, order->words, order->n_words * sizeof *plan->words);
    if (!run_alloc_constants(engine->device, plan, &ctx->err)) return false;
    run_preparation x = {.plan = plan, .const_buffers = plan->const_buffers};
    x.is_variable = ct__calloc(plan->program.n_bufs + 1, sizeof *x.is_variable);
    for (size_t i = 0; x.is_variable && i < plan->program.n_bufs; i++) {
        const ct_buf *b = &plan->program.bufs[i];
        const ct_root *root = roots && b->kind == CT_BUF_ROOT ? &roots[b->index] : NULL;
        x.is_variable[i] =
            b->kind == CT_BUF_LEAF || (root && root->kind == CT_ROOT_ASSIGN && root->var->storage);
    }
    x.open = ct__malloc((plan->program.n_launches + 1) * sizeof *x.open);
    bool made = x.is_variable && x.open;
    for (size_t i = 0; i < plan->program.n_launches && made; i++)
        made = run_add_command(&x, &plan->program.launches[i]);
    ct__free(x.is_variable);
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
    for (size_t i = 0; i < plan->n_subplans; i++)
        if (plan->subplans[i].plan) ct__plan_free(plan->subplans[i].engine, plan->subplans[i].plan);
    ct_device *device = engine->device;
    ct__device_wait(device, NULL);
    if (plan->scalars)
        ct__device_free(device, plan->scalars, plan->n_scalars * 8, CT_MEMORY_CONSTANTS);
    for (size_t i = 0; plan->const_buffers && i < plan->program.n_bufs; i++)
        if (plan->program.bufs[i].kind == CT_BUF_CONST && plan->const_buffers[i])
            ct__device_free(device, plan->const_buffers[i], plan->program.bufs[i].bytes,
                            CT_MEMORY_CONSTANTS);
    ct__free(plan->const_buffers);
    ct__free(plan->words);
    ct__free(plan->dynamic);
    ct__free(plan->bound_sizes);
    ct__free(plan->values);
    ct__free(plan->commands);
    ct__free(plan->operands);
    ct__free(plan->bindings);
    ct__free(plan->operand_buf);
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

// Frees the old memory first, so that both are never allocated together; a device with a queue frees it
// after the runs that use it.
static bool run_grow_temporaries(ct_executor *engine, size_t bytes, ct_err *err) {
    ct_temporaries *t = &engine->temporaries;
    if (bytes <= t->bytes) return true;
    ct__temporaries_free(engine);
    t->memory = ct__device_alloc(engine->device, bytes, CT_MEMORY_ARENAS, err);
    if (t->memory) t->bytes = bytes;
    return t->memory != NULL;
}

bool ct__plan_place_temporaries(ct_ctx *ctx, ct_executor *engine, ct_plan *plan) {
    const ct_program *p = &plan->program;
    if (!run_grow_temporaries(engine, p->arena_bytes, &ctx->err)) return false;
    if (plan->arena_number == engine->temporaries.number || !p->arena_bytes) return true;
    for (size_t i = 0, at = 0; i < plan->n_commands; i++)
        for (uint32_t k = 0; k < p->launches[i].n_args; k++, at++)
            if (p->bufs[p->launches[i].args[k].buf].kind == CT_BUF_TEMP)
                plan->operands[at].buffer = engine->temporaries.memory;
    plan->arena_number = engine->temporaries.number;
    return true;
}

static bool run_submit(ct_ctx *ctx, ct_executor *engine, const ct_plan *plan, size_t first,
                       size_t n) {
    ct_device *device = engine->device;
    if (plan->operand_buf) return ct__check_bounds(ctx, engine, plan, first, n);
    return device->backend->submit(device, plan->commands + first, n, &ctx->err);
}

bool ct__plan_run(ct_ctx *ctx, ct_executor *engine, ct_plan *plan, const ct_order *order,
                  ct_storage *const *fresh) {
    ct_device *device = engine->device;
    const ct_backend *backend = device->backend;
    if (!ct__plan_place_temporaries(ctx, engine, plan)) return false;
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
    for (size_t i = 0; i < plan->n_bindings; i++) {
        const ct_binding *b = &plan->bindings[i];
        plan->operands[b->operand].buffer =
            (b->is_root ? fresh[b->index] : order->leaves[b->index])->buffer;
    }
    if (device->account == &ct__account) // a dry device runs nothing
        atomic_fetch_add_explicit(&ct__counters.plans_run, 1, memory_order_relaxed);
    // Until a variable changes, the run can be cancelled as if it had never begun. From there on it runs to
    // the end, so that all variables are of one step.
    device->stop = &ctx->cancelled;
    bool ok = run_submit(ctx, engine, plan, 0, plan->n_cancellable);
    device->stop = NULL;
    if (!ok) return false;
    engine->started = plan->n_cancellable < plan->n_commands;
    return run_submit(ctx, engine, plan, plan->n_cancellable,
                      plan->n_commands - plan->n_cancellable);
}
