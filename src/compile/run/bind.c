// Binds a plan with dynamic sizes to the sizes of a run: kernel arguments, grids, bytes, and the offsets of
// its temporary buffers. Nothing is planned or compiled again.
#include "compile/memory/memplan.h"
#include "compile/run/cost.h"
#include "kir/kir.h"

static int64_t bind_size(const ct_plan *p, int64_t size) {
    ct_monomial m;
    if (!ct__size_monomial(p->program.symbols, size, &m)) return size;
    return ct__monomial_value(&m, p->values);
}

static void bind_launch(ct_plan *p, ct_launch *l) {
    if (l->kind == CT_LAUNCH_COPY) l->bytes = (size_t)bind_size(p, l->size);
    if (l->kind == CT_LAUNCH_LOOP) l->count = bind_size(p, l->size);
    for (uint32_t i = 0; i < l->n_steps; i++) l->steps[i].bytes = bind_size(p, l->step_sizes[i]);
    if (l->kind != CT_LAUNCH_KERNEL || !l->n_numbers) return;
    const ct_kir *ir = p->program.kernels[l->kernel].ir;
    for (uint32_t i = 0; i + (l->turn > 0) < l->n_numbers; i++) {
        const ct_monomial atom = {.coef = 1, .n = 1, .atom = {l->atoms[i]}};
        l->numbers[i] =
            l->atoms[i] < 0 ? bind_size(p, l->size) : ct__monomial_value(&atom, p->values);
    }
    if (l->turn) return; // a fixed number of iterations of a loop
    l->grid = ct__kir_grid(ir, l->numbers);
    const double before = (double)l->bytes;
    l->bytes = 0;
    for (uint32_t i = 0; i < l->n_args; i++) l->bytes += p->program.bufs[l->args[i].buf].bytes;
    if (before > 0)
        // an estimate, from which backends choose the number of threads
        l->flops *= (double)l->bytes / before;
}

static void bind_plan_commands(ct_plan *p) {
    for (size_t i = 0, at = 0; i < p->n_commands; i++) {
        const ct_launch *l = &p->program.launches[i];
        ct_command *c = &p->commands[i];
        c->grid = l->grid;
        c->count = l->count;
        c->bytes = l->bytes;
        c->flops = l->flops;
        for (uint32_t k = 0; k < l->n_args; k++, at++) {
            const ct_buf *b = &p->program.bufs[l->args[k].buf];
            if (b->kind != CT_BUF_TEMP) continue;
            p->operands[at].offset = b->offset + l->args[k].offset;
        }
    }
}

// Stacks the buffers in the same order as before; if that needs more memory than is allocated, plans the
// arena again.
static bool bind_place_buffers(ct_ctx *ctx, const ct_executor *e, ct_plan *p) {
    ct_program *program = &p->program;
    if (program->stacking.n) program->arena_bytes = ct__restack(program);
    if (program->stacking.n && program->arena_bytes <= e->temporaries.bytes) return true;
    return ct__plan_memory(program, &ctx->err);
}

static bool bind_is_current(const ct_plan *p, const ct_order *o) {
    for (size_t i = 0; i < p->n_dynamic; i++)
        if (p->bound_sizes[i] != o->words[p->dynamic[i]]) return false;
    return true;
}

bool ct__plan_bind(ct_ctx *ctx, ct_executor *e, ct_plan *p) {
    const ct_order *o = &e->order;
    if (bind_is_current(p, o)) return true;
    // Commands of an earlier run, with other sizes, may still be queued.
    if (!ct__device_wait(e->device, &ctx->err)) return false;
    if (!ct__symbols_bind(p->program.symbols, o->words, p->values))
        return ct__err(&ctx->err, CT_E_INTERNAL, p->here, "plan", "it does not fit its own sizes");
    for (size_t i = 0; i < p->program.n_bufs; i++)
        p->program.bufs[i].bytes = (size_t)bind_size(p, p->program.bufs[i].size);
    for (size_t i = 0; i < p->program.n_launches; i++) bind_launch(p, &p->program.launches[i]);
    p->cost = NULL;
    for (size_t i = 0; i < p->n_dynamic; i++)
        p->bound_sizes[i] = ~(uint64_t)0; // no sizes are bound until all is done
    if (!bind_place_buffers(ctx, e, p)) return false;
    if (p->program.arena_bytes > e->temporaries.bytes && !ct__plan_fits(ctx, e, p)) return false;
    bind_plan_commands(p);
    for (size_t i = 0; i < p->n_dynamic; i++) p->bound_sizes[i] = o->words[p->dynamic[i]];
    return true;
}
