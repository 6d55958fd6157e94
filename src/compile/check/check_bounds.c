// COTAN_CHECK=bounds: known bytes behind every buffer, looked at after each launch.
//
// What lies before a buffer of an arena is the guard of another one, so most writes before its
// beginning are found as well, as somebody else's.
#include <string.h>

#include "compile/check/check.h"

enum { PAINT = 0xC5 };

// The guard behind the buffer of an operand.
static ct_operand guard_of(const ct_plan *p, size_t operand) {
    const ct_buf *b = &p->program.bufs[p->behind[operand]];
    size_t bytes = b->kind == CT_BUF_SCALARS ? p->n_scalars * 8 : b->bytes;
    return (ct_operand){p->operands[operand].buffer,
                        bytes + (b->kind == CT_BUF_TEMP ? b->offset : 0)};
}

static bool paint(ct_device *d, const ct_plan *p, const ct_command *c, size_t at, ct_err *err) {
    unsigned char bytes[CT_GUARD];
    memset(bytes, PAINT, sizeof bytes);
    for (uint32_t k = 0; k < c->n_args; k++)
        if (!d->backend->copy_in(d, guard_of(p, at + k), bytes, sizeof bytes, err)) return false;
    return true;
}

static bool look(ct_device *d, const ct_plan *p, const ct_command *c, size_t at, ct_err *err) {
    unsigned char bytes[CT_GUARD];
    for (uint32_t k = 0; k < c->n_args; k++) {
        const ct_buf *b = &p->program.bufs[p->behind[at + k]];
        if (!d->backend->copy_out(d, guard_of(p, at + k), bytes, sizeof bytes, err)) return false;
        size_t i = 0;
        while (i < sizeof bytes && bytes[i] == PAINT) i++;
        if (i < sizeof bytes)
            return ct__err(err, CT_E_CHECK, c->node ? c->node->here : CT_NOWHERE,
                           c->node ? c->node->op->name : "copy",
                           "%s writes beyond the end of its argument %u, a buffer of %zu bytes, at "
                           "byte %zu",
                           c->kernel ? c->kernel->name : "the device", k, b->bytes, b->bytes + i);
    }
    return true;
}

typedef struct {
    ct_device *device;
    const ct_plan *plan;
} bounds;

static bool run_guarded(void *user, const ct_command *c, const ct_command *given, ct_err *err) {
    const bounds *b = user;
    size_t at = (size_t)(given->args - b->plan->operands);
    return paint(b->device, b->plan, c, at, err) &&
           b->device->backend->submit(b->device, c, 1, err) && look(b->device, b->plan, c, at, err);
}
static bool read(void *user, ct_operand from, void *to, size_t n, ct_err *err) {
    const bounds *b = user;
    return b->device->backend->copy_out(b->device, from, to, n, err);
}

bool ct__check_bounds(ct_ctx *ctx, ct_executor *engine, const ct_plan *p, size_t first, size_t n) {
    bounds b = {engine->device, p};
    const ct_runner runner = {
        .device = engine->device, .run = run_guarded, .read = read, .user = &b};
    return ct__run_commands(&runner, p->commands + first, n, &ctx->err);
}
