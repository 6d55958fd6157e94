// COTAN_CHECK=bounds: known bytes behind every buffer, looked at after each launch. A kernel runs once
// more with other bytes there: where its results differ, it has read them.
//
// What lies before a buffer of an arena is the guard of another one, so most accesses before its
// beginning are found as well, as somebody else's.
#include <stdio.h>
#include <string.h>

#include "compile/check/check.h"

enum { PAINT = 0xC5, OTHER = 0x3A };
#define NO_OTHER UINT32_MAX

typedef struct {
    ct_device *device;
    const ct_plan *plan;
} bounds;

// A launch whose operands begin at `at` of the plan's.
typedef struct {
    ct_device *device;
    const ct_plan *plan;
    const ct_command *command;
    const ct_launch *launch;
    size_t at;
    ct_err *err;
} guarded;

static const ct_buf *buffer_of(const guarded *g, uint32_t arg) {
    return &g->plan->program.bufs[g->plan->behind[g->at + arg]];
}
static size_t bytes_of(const guarded *g, uint32_t arg) {
    const ct_buf *b = buffer_of(g, arg);
    return b->kind == CT_BUF_SCALARS ? g->plan->n_scalars * 8 : b->bytes;
}
// The buffer of an operand, from its beginning; its guard lies behind it.
static ct_operand place_of(const guarded *g, uint32_t arg, bool guard) {
    const ct_buf *b = buffer_of(g, arg);
    return (ct_operand){g->plan->operands[g->at + arg].buffer,
                        (guard ? bytes_of(g, arg) : 0) + (b->kind == CT_BUF_TEMP ? b->offset : 0)};
}

// The guards of all buffers get PAINT, that of the argument `other` OTHER; or all, where it is n_args.
static bool paint(const guarded *g, uint32_t other) {
    ct_device *d = g->device;
    const uint32_t n = g->command->n_args;
    unsigned char bytes[CT_GUARD];
    for (uint32_t k = 0; k < n; k++) {
        const bool is_other = other == n || (other < n && buffer_of(g, k) == buffer_of(g, other));
        memset(bytes, is_other ? OTHER : PAINT, sizeof bytes);
        if (!d->backend->copy_in(d, place_of(g, k, true), bytes, sizeof bytes, g->err))
            return false;
    }
    return true;
}

static bool fail(const guarded *g, uint32_t arg, const char *does, size_t byte) {
    const ct_command *c = g->command;
    char where[48] = "";
    if (byte) snprintf(where, sizeof where, ", at byte %zu", byte);
    return ct__err(g->err, CT_E_CHECK, c->node ? c->node->here : CT_NOWHERE,
                   c->node ? c->node->op->name : "copy",
                   "%s %s beyond the end of its argument %u, a buffer of %zu bytes%s",
                   c->kernel ? c->kernel->name : "the device", does, arg, buffer_of(g, arg)->bytes,
                   where);
}

// After a launch with PAINT everywhere.
static bool look(const guarded *g) {
    ct_device *d = g->device;
    unsigned char bytes[CT_GUARD];
    for (uint32_t k = 0; k < g->command->n_args; k++) {
        if (!d->backend->copy_out(d, place_of(g, k, true), bytes, sizeof bytes, g->err))
            return false;
        size_t i = 0;
        while (i < sizeof bytes && bytes[i] == PAINT) i++;
        if (i < sizeof bytes) return fail(g, k, "writes", buffer_of(g, k)->bytes + i);
    }
    return true;
}

static size_t written_bytes(const guarded *g) {
    size_t bytes = 0;
    for (uint32_t k = 0; k < g->launch->n_args; k++)
        if (g->launch->args[k].write) bytes += bytes_of(g, k);
    return bytes;
}
// All buffers that the launch writes, whole, out of the device's memory or back.
static bool copy_written(const guarded *g, unsigned char *host, bool back) {
    ct_device *d = g->device;
    for (uint32_t k = 0; k < g->launch->n_args; k++) {
        const size_t bytes = bytes_of(g, k);
        if (!g->launch->args[k].write || !bytes) continue;
        const ct_operand place = place_of(g, k, false);
        if (!(back ? d->backend->copy_in(d, place, host, bytes, g->err)
                   : d->backend->copy_out(d, place, host, bytes, g->err)))
            return false;
        host += bytes;
    }
    return true;
}

static bool submit(const guarded *g) {
    return g->device->backend->submit(g->device, g->command, 1, g->err);
}
// Once more on what it had before, with other guards. after: its results now.
static bool again(const guarded *g, uint32_t other, unsigned char *before, unsigned char *after) {
    return paint(g, other) && copy_written(g, before, true) && submit(g) &&
           copy_written(g, after, false);
}

// After the first run: do results depend on what lies behind the buffers? Code that is ready between two
// runs may give a NaN other bits, so it counts only where it can be told whose guard it is.
static bool reads_inside(const guarded *g, unsigned char *before, unsigned char *first,
                         unsigned char *second, size_t bytes) {
    const uint32_t n = g->command->n_args;
    if (!copy_written(g, first, false) || !again(g, n, before, second)) return false;
    if (memcmp(first, second, bytes) == 0) return true;
    for (uint32_t k = 0; k < n; k++) {
        if (!again(g, k, before, second) || !again(g, NO_OTHER, before, first)) return false;
        if (memcmp(first, second, bytes) != 0) return fail(g, k, "reads", 0);
    }
    return true;
}

static bool run_guarded(void *user, const ct_command *c, const ct_command *given, ct_err *err) {
    const bounds *b = user;
    const guarded g = {.device = b->device,
                       .plan = b->plan,
                       .command = c,
                       .launch = &b->plan->program.launches[given - b->plan->commands],
                       .at = (size_t)(given->args - b->plan->operands),
                       .err = err};
    const size_t bytes = c->kind == CT_COMMAND_KERNEL ? written_bytes(&g) : 0;
    unsigned char *memory = bytes ? ct__malloc(3 * bytes) : NULL;
    if (bytes && !memory) return ct__err_memory(err, CT_NOWHERE, "bounds", 3 * bytes);
    bool ok = paint(&g, NO_OTHER) && (!bytes || copy_written(&g, memory, false)) && submit(&g) &&
              look(&g) &&
              (!bytes || reads_inside(&g, memory, memory + bytes, memory + 2 * bytes, bytes));
    ct__free(memory);
    return ok;
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
