// COTAN_CHECK=bounds: fills guard bytes after every buffer and checks them after each launch. A kernel runs
// once more with other guard bytes: if its results differ, it has read them.
//
// The bytes before a buffer of an arena are the guard of another one, so that most accesses before a buffer's
// start are found as well, though reported for the other buffer.
#include <stdio.h>
#include <string.h>

#include "compile/check/check.h"

enum { GUARD_BYTE = 0xC5, OTHER_GUARD_BYTE = 0x3A };
#define BOUNDS_NO_ARG UINT32_MAX

typedef struct {
    ct_device *device;
    const ct_plan *plan;
} bounds_env;

// A launch whose operands start at index `at` of the plan's.
typedef struct {
    ct_device *device;
    const ct_plan *plan;
    const ct_command *command;
    const ct_launch *launch;
    size_t at;
    ct_err *err;
} bounds_launch;

static const ct_buf *bounds_buffer(const bounds_launch *g, uint32_t arg) {
    return &g->plan->program.bufs[g->plan->operand_buf[g->at + arg]];
}
static size_t bounds_bytes(const bounds_launch *g, uint32_t arg) {
    const ct_buf *b = bounds_buffer(g, arg);
    return b->kind == CT_BUF_SCALARS ? g->plan->n_scalars * 8 : b->bytes;
}
// The operand at the start of a buffer, or at its guard, which follows it.
static ct_operand bounds_operand(const bounds_launch *g, uint32_t arg, bool guard) {
    const ct_buf *b = bounds_buffer(g, arg);
    return (ct_operand){g->plan->operands[g->at + arg].buffer,
                        (guard ? bounds_bytes(g, arg) : 0) +
                            (b->kind == CT_BUF_TEMP ? b->offset : 0)};
}

// Fills the guards of all buffers with GUARD_BYTE, that of argument `other` with OTHER_GUARD_BYTE; if
// `other` is n_args, all with OTHER_GUARD_BYTE.
static bool bounds_fill_guards(const bounds_launch *g, uint32_t other) {
    ct_device *d = g->device;
    const uint32_t n = g->command->n_args;
    unsigned char bytes[CT_GUARD];
    for (uint32_t k = 0; k < n; k++) {
        const bool is_other =
            other == n || (other < n && bounds_buffer(g, k) == bounds_buffer(g, other));
        memset(bytes, is_other ? OTHER_GUARD_BYTE : GUARD_BYTE, sizeof bytes);
        if (!d->backend->copy_in(d, bounds_operand(g, k, true), bytes, sizeof bytes, g->err))
            return false;
    }
    return true;
}

static bool bounds_report(const bounds_launch *g, uint32_t arg, const char *does, size_t byte) {
    const ct_command *c = g->command;
    char where[48] = "";
    if (byte) snprintf(where, sizeof where, ", at byte %zu", byte);
    return ct__err(g->err, CT_E_CHECK, c->node ? c->node->here : CT_NOWHERE,
                   c->node ? c->node->op->name : "copy",
                   "%s %s beyond the end of its argument %u, a buffer of %zu bytes%s",
                   c->kernel ? c->kernel->name : "the device", does, arg,
                   bounds_buffer(g, arg)->bytes, where);
}

// Checks the guards after a launch with GUARD_BYTE in all of them.
static bool bounds_check_guards(const bounds_launch *g) {
    ct_device *d = g->device;
    unsigned char bytes[CT_GUARD];
    for (uint32_t k = 0; k < g->command->n_args; k++) {
        if (!d->backend->copy_out(d, bounds_operand(g, k, true), bytes, sizeof bytes, g->err))
            return false;
        size_t i = 0;
        while (i < sizeof bytes && bytes[i] == GUARD_BYTE) i++;
        if (i < sizeof bytes) return bounds_report(g, k, "writes", bounds_buffer(g, k)->bytes + i);
    }
    return true;
}

static size_t bounds_written_bytes(const bounds_launch *g) {
    size_t bytes = 0;
    for (uint32_t k = 0; k < g->launch->n_args; k++)
        if (g->launch->args[k].write) bytes += bounds_bytes(g, k);
    return bytes;
}
// Copies all buffers that the launch writes, whole, from the device to the host or back.
static bool bounds_copy_written(const bounds_launch *g, unsigned char *host, bool back) {
    ct_device *d = g->device;
    for (uint32_t k = 0; k < g->launch->n_args; k++) {
        const size_t bytes = bounds_bytes(g, k);
        if (!g->launch->args[k].write || !bytes) continue;
        const ct_operand operand = bounds_operand(g, k, false);
        if (!(back ? d->backend->copy_in(d, operand, host, bytes, g->err)
                   : d->backend->copy_out(d, operand, host, bytes, g->err)))
            return false;
        host += bytes;
    }
    return true;
}

static bool bounds_submit(const bounds_launch *g) {
    return g->device->backend->submit(g->device, g->command, 1, g->err);
}
// Runs the launch again on its old inputs, with other guards. after: receives its results.
static bool bounds_rerun(const bounds_launch *g, uint32_t other, unsigned char *before,
                         unsigned char *after) {
    return bounds_fill_guards(g, other) && bounds_copy_written(g, before, true) &&
           bounds_submit(g) && bounds_copy_written(g, after, false);
}

// After the first run: true if results do not depend on the bytes after buffers. A kernel whose optimised
// code becomes ready between two runs may give a NaN other bits, so a difference is reported only if the
// argument can be identified.
static bool bounds_check_reads(const bounds_launch *g, unsigned char *before, unsigned char *first,
                               unsigned char *second, size_t bytes) {
    const uint32_t n = g->command->n_args;
    if (!bounds_copy_written(g, first, false) || !bounds_rerun(g, n, before, second)) return false;
    if (memcmp(first, second, bytes) == 0) return true;
    for (uint32_t k = 0; k < n; k++) {
        if (!bounds_rerun(g, k, before, second) || !bounds_rerun(g, BOUNDS_NO_ARG, before, first))
            return false;
        if (memcmp(first, second, bytes) != 0) return bounds_report(g, k, "reads", 0);
    }
    return true;
}

static bool bounds_run_command(void *user, const ct_command *c, const ct_command *given,
                               ct_err *err) {
    const bounds_env *b = user;
    const bounds_launch g = {.device = b->device,
                             .plan = b->plan,
                             .command = c,
                             .launch = &b->plan->program.launches[given - b->plan->commands],
                             .at = (size_t)(given->args - b->plan->operands),
                             .err = err};
    const size_t bytes = c->kind == CT_COMMAND_KERNEL ? bounds_written_bytes(&g) : 0;
    unsigned char *memory = bytes ? ct__malloc(3 * bytes) : NULL;
    if (bytes && !memory) return ct__err_memory(err, CT_NOWHERE, "bounds", 3 * bytes);
    bool ok = bounds_fill_guards(&g, BOUNDS_NO_ARG) &&
              (!bytes || bounds_copy_written(&g, memory, false)) && bounds_submit(&g) &&
              bounds_check_guards(&g) &&
              (!bytes || bounds_check_reads(&g, memory, memory + bytes, memory + 2 * bytes, bytes));
    ct__free(memory);
    return ok;
}
static bool bounds_read(void *user, ct_operand from, void *to, size_t n, ct_err *err) {
    const bounds_env *b = user;
    return b->device->backend->copy_out(b->device, from, to, n, err);
}

bool ct__check_bounds(ct_ctx *ctx, ct_executor *engine, const ct_plan *p, size_t first, size_t n) {
    bounds_env b = {engine->device, p};
    const ct_runner runner = {
        .device = engine->device, .run = bounds_run_command, .read = bounds_read, .user = &b};
    return ct__run_commands(&runner, p->commands + first, n, &ctx->err);
}
