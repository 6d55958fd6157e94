// Runs a list of commands: loops, branches, and operands that move with iterations.
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "base/trace_events.h"

enum { FEW = 32, NUMBERS = 8 }; // operands of most commands; numbers with an iteration

typedef struct iteration { // of a running loop
    const struct iteration *outer;
    uint32_t depth;
    int64_t at, count;
} iteration;

typedef struct {
    const ct_runner *runner;
    ct_err *err;
    uint64_t launches;
} run;

static const iteration *commands_at_depth(const iteration *in, uint32_t depth) {
    while (in && in->depth != depth) in = in->outer;
    return in;
}

static int64_t commands_offset_of(const ct_step *s, const iteration *in) {
    in = commands_at_depth(in, s->depth);
    if (!in) return 0;
    return s->bytes * (s->reverse ? in->count - 1 - in->at : in->at);
}

// Returns the command's operands in this iteration, in `few` if they fit there. NULL: no memory.
static const ct_operand *commands_move_operands(const run *r, const ct_command *c,
                                                const iteration *in, ct_operand *few) {
    if (!c->n_steps) return c->args;
    ct_operand *args = c->n_args <= FEW ? few : ct__malloc(c->n_args * sizeof *args);
    if (!args) return ct__null_memory(r->err, CT_NOWHERE, "run", c->n_args * sizeof *args);
    memcpy(args, c->args, c->n_args * sizeof *args);
    for (uint32_t i = 0; i < c->n_steps; i++) {
        const ct_step *s = &c->steps[i];
        args[s->arg].offset += (size_t)commands_offset_of(s, in);
    }
    return args;
}

static void commands_free_operands(const ct_command *c, const ct_operand *args,
                                   const ct_operand *few) {
    if (args != c->args && args != few) ct__free((void *)(uintptr_t)args);
}

// Adds a trace event for a launch that ended: n commands that ran as one.
static void commands_trace(const run *r, const ct_command *c, size_t n, int64_t begin) {
    static const ct_trace_event_kind kinds[] = {[CT_COMMAND_NODE] = CT_TRACE_OP,
                                                [CT_COMMAND_KERNEL] = CT_TRACE_KERNEL,
                                                [CT_COMMAND_COPY] = CT_TRACE_COPY};
    const ct_node *node = c->node;
    char several[160];
    ct_trace_event_key what = {.kind = kinds[c->kind], .device = r->runner->device->name};
    double bytes = 0, flops = 0;
    what.name = c->label                     ? c->label
                : c->kind == CT_COMMAND_COPY ? "copy"
                : node                       ? node->op->name
                                             : "kernel";
    if (node) what.file = node->here.file, what.line = node->here.line;
    if (n > 1) {
        snprintf(several, sizeof several, "%s, %zu more", what.name, n - 1);
        what.name = several;
    }
    for (size_t i = 0; i < n; i++) bytes += (double)c[i].bytes, flops += c[i].flops;
    ct__trace_event_add(&what, begin, bytes, flops);
}

static bool commands_run_one(run *r, const ct_command *c, const iteration *in) {
    ct_operand few[FEW];
    const ct_operand *args = commands_move_operands(r, c, in, few);
    if (!args && c->n_args) return false;
    ct_command placed = *c;
    int64_t numbers[NUMBERS];
    const iteration *loop = c->iteration_of ? commands_at_depth(in, c->iteration_of - 1) : NULL;
    placed.args = args;
    if (loop && c->n_numbers && c->n_numbers <= NUMBERS) {
        memcpy(numbers, c->numbers, c->n_numbers * sizeof *numbers);
        numbers[c->n_numbers - 1] = loop->at;
        placed.numbers = numbers;
    }
    r->launches++;
    const int64_t begin = ct__trace_enabled() ? ct__trace_event_now() : 0;
    bool ok = r->runner->run(r->runner->user, &placed, c, r->err);
    if (begin) commands_trace(r, c, 1, begin);
    commands_free_operands(c, args, few);
    return ok;
}

// Reads the scalar that controls a LOOP or a SWITCH.
static bool commands_read_scalar(run *r, const ct_command *c, const iteration *in, ct_dtype dtype,
                                 int64_t *value) {
    ct_operand few[FEW];
    const ct_operand *args = commands_move_operands(r, c, in, few);
    if (!args) return false;
    char bytes[8] = {0};
    const void *at = (const char *)args->buffer + args->offset;
    bool ok = !r->runner->read ||
              r->runner->read(r->runner->user, *args, bytes, ct_dtype_size(dtype), r->err);
    if (ok) *value = ct__load_i64(dtype, r->runner->read ? bytes : at, 0);
    commands_free_operands(c, args, few);
    return ok;
}

static bool commands_run_list(run *r, const ct_command *commands, size_t n, const iteration *in);

static bool commands_run_loop(run *r, const ct_command *loop, const iteration *outer) {
    iteration in = {.outer = outer, .depth = outer ? outer->depth + 1 : 0, .count = loop->count};
    for (; in.at < loop->count; in.at++) {
        int64_t holds = 1;
        if (ct__stopped(r->runner->device, r->err)) return false;
        if (loop->n_args && !commands_read_scalar(r, loop, outer, CT_BOOL, &holds)) return false;
        if (!holds) return true;
        if (!commands_run_list(r, loop + 1, loop->skip - 1, &in)) return false;
    }
    return true;
}

static bool commands_run_switch(run *r, const ct_command *c, const iteration *in) {
    int64_t branch = 0;
    if (!commands_read_scalar(r, c, in, c->dtype, &branch)) return false;
    if (branch >= c->count) branch = c->count - 1;
    for (c += c->skip; branch > 0; branch--) c += c->skip;
    return commands_run_list(r, c + 1, c->skip - 1, in);
}

static bool commands_run_batch(run *r, const ct_command *batch, const iteration *in) {
    const size_t n = batch->skip - 1;
    const uint64_t before = r->launches;
    const int64_t begin = ct__trace_enabled() && r->runner->run_batch ? ct__trace_event_now() : 0;
    bool ok = r->runner->run_batch ? r->runner->run_batch(r->runner->user, batch + 1, n, r->err)
                                   : commands_run_list(r, batch + 1, n, in);
    r->launches = before + 1;
    if (begin) commands_trace(r, batch + 1, n, begin);
    return ok;
}

static bool commands_run_list(run *r, const ct_command *commands, size_t n, const iteration *in) {
    for (size_t i = 0; i < n; i += ct__command_span(&commands[i])) {
        const ct_command *c = &commands[i];
        if (ct__stopped(r->runner->device, r->err)) return false;
        if (!(c->kind == CT_COMMAND_LOOP     ? commands_run_loop(r, c, in)
              : c->kind == CT_COMMAND_SWITCH ? commands_run_switch(r, c, in)
              : c->kind == CT_COMMAND_BATCH  ? commands_run_batch(r, c, in)
                                             : commands_run_one(r, c, in)))
            return false;
    }
    return true;
}

size_t ct__command_span(const ct_command *command) {
    const ct_command *c = command;
    if (c->kind == CT_COMMAND_BATCH) return c->skip + 1u;
    if (c->kind != CT_COMMAND_LOOP && c->kind != CT_COMMAND_SWITCH) return 1;
    do c += c->skip;
    while (c->kind == CT_COMMAND_BRANCH);
    return (size_t)(c - command) + 1;
}

bool ct__run_commands(const ct_runner *runner, const ct_command *commands, size_t n, ct_err *err) {
    run r = {.runner = runner, .err = err};
    bool ok = commands_run_list(&r, commands, n, NULL);
    atomic_fetch_add_explicit(&ct__counters.launches, r.launches, memory_order_relaxed);
    return ok;
}
