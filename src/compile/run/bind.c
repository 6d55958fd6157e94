// A plan whose sizes are dynamic gets those of a run: numbers of its kernels, grids, bytes, and with them
// the places of its temporary buffers. Nothing is planned or compiled anew.
#include "compile/memory/memplan.h"
#include "compile/run/cost.h"
#include "kir/kir.h"

static int64_t value_of(const ct_plan *p, int64_t size) {
    ct_monomial m;
    if (!ct__size_monomial(p->program.symbols, size, &m)) return size;
    return ct__monomial_value(&m, p->values);
}

static void bind_launch(ct_plan *p, ct_launch *l) {
    if (l->kind == CT_LAUNCH_COPY) l->bytes = (size_t)value_of(p, l->size);
    if (l->kind == CT_LAUNCH_LOOP) l->count = value_of(p, l->size);
    for (uint32_t i = 0; i < l->n_steps; i++) l->steps[i].bytes = value_of(p, l->step_sizes[i]);
    if (l->kind != CT_LAUNCH_KERNEL || !l->n_numbers) return;
    const ct_kir *ir = p->program.kernels[l->kernel].ir;
    for (uint32_t i = 0; i + (l->turn > 0) < l->n_numbers; i++) {
        const ct_monomial alone = {.coef = 1, .n = 1, .atom = {l->atoms[i]}};
        l->numbers[i] =
            l->atoms[i] < 0 ? value_of(p, l->size) : ct__monomial_value(&alone, p->values);
    }
    if (l->turn) return; // some iterations of a loop: as many in every run
    l->grid = ct__kir_grid(ir, l->numbers);
    const double before = (double)l->bytes;
    l->bytes = 0;
    for (uint32_t i = 0; i < l->n_args; i++) l->bytes += p->program.bufs[l->args[i].buf].bytes;
    if (before > 0)
        l->flops *= (double)l->bytes / before; // roughly: for how many threads it is worth
}

static void bind_commands(ct_plan *p) {
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

// Places as before, one above the other; where that takes more memory than there is, the best ones.
static bool place_buffers(ct_ctx *ctx, const ct_executor *e, ct_plan *p) {
    ct_program *program = &p->program;
    if (program->stacking.n) program->arena_bytes = ct__restack(program);
    if (program->stacking.n && program->arena_bytes <= e->temporaries.bytes) return true;
    return ct__plan_memory(program, &ctx->err);
}

static bool is_bound(const ct_plan *p, const ct_order *o) {
    for (size_t i = 0; i < p->n_dynamic; i++)
        if (p->bound[i] != o->words[p->dynamic[i]]) return false;
    return true;
}

bool ct__plan_bind(ct_ctx *ctx, ct_executor *e, ct_plan *p) {
    const ct_order *o = &e->order;
    if (is_bound(p, o)) return true;
    // Work of an earlier run, with other sizes, may still be on its way.
    if (!e->device->backend->wait(e->device, e->device->backend->event(e->device), &ctx->err))
        return false;
    if (!ct__symbols_bind(p->program.symbols, o->words, p->values))
        return ct__err(&ctx->err, CT_E_INTERNAL, p->here, "plan", "it does not fit its own sizes");
    for (size_t i = 0; i < p->program.n_bufs; i++)
        p->program.bufs[i].bytes = (size_t)value_of(p, p->program.bufs[i].size);
    for (size_t i = 0; i < p->program.n_launches; i++) bind_launch(p, &p->program.launches[i]);
    p->cost = NULL;
    for (size_t i = 0; i < p->n_dynamic; i++)
        p->bound[i] = ~(uint64_t)0; // of none, until all is done
    if (!place_buffers(ctx, e, p)) return false;
    if (p->program.arena_bytes > e->temporaries.bytes && !ct__plan_fits(ctx, e, p)) return false;
    bind_commands(p);
    for (size_t i = 0; i < p->n_dynamic; i++) p->bound[i] = o->words[p->dynamic[i]];
    return true;
}
