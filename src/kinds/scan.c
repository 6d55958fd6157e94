// Scans (cumulative sums and the like): combines, by a monoid, all elements up to each one along an axis.
#include "kinds/scan.h"

#include <math.h>

#include "graph/symbols.h"
#include "kinds/batch.h"
#include "kinds/flattened.h"
#include "kinds/monoid.h"

typedef struct scan {
    ct_kir *k;
    const ct_scan_spec *s;
    bool single, many; // inner is 1; there may be several blocks
    ct_kval blocks;
} scan;

static int64_t scan_static_or(const ct_kir *k, ct_kval v, int64_t otherwise) {
    int64_t n = 0;
    return ct__kir_is_int(k, v, &n) ? n : otherwise;
}

// ----------------------------------------------------------------------------------------- a block

static void scan_init_state(const scan *c, ct_kval *reg) {
    ct_dtype compute = ct__kir_compute_dtype(c->s->dtype);
    for (int i = 0; i < c->s->n_state; i++)
        reg[i] = ct__kir_reg(c->k, c->s->op ? ct__kred_identity_value(c->k, c->s->op, compute)
                                            : ct__kir_const(c->k, compute, c->s->monoid->start[i]));
}
static void scan_load_state(const scan *c, const ct_kval *reg, ct_kval *value) {
    for (int i = 0; i < c->s->n_state; i++) value[i] = ct__kir_get(c->k, reg[i]);
}
static void scan_store_state(const scan *c, const ct_kval *reg, const ct_kval *value) {
    for (int i = 0; i < c->s->n_state; i++) ct__kir_set(c->k, reg[i], value[i]);
}

static void scan_combine(const scan *c, const ct_kval *before, const ct_kval *x, ct_kval *to) {
    int n = c->s->n_state;
    ct_kval operands[2 * CT_SCAN_MOST_STATE];
    if (c->s->op) {
        to[0] = ct__kred_combine(c->k, c->s->op, before[0], x[0]);
        return;
    }
    for (int i = 0; i < n; i++) operands[i] = before[i], operands[n + i] = x[i];
    c->s->monoid->join(&(ct_elem){c->k, c->s->node, operands, c->s->dtype}, to);
}

// Returns the index of value `which` of the carry of block q.
static ct_kval scan_carry_index(const scan *c, ct_kval o, ct_kval q, int which, ct_kval j) {
    ct_kir *k = c->k;
    ct_kval at = ct__kir_add(k, ct__kir_mul(k, o, c->blocks), q);
    at = ct__kir_addi(k, ct__kir_muli(k, at, c->s->n_state), which);
    return ct__kir_add(k, ct__kir_mul(k, at, c->s->inner), j);
}

// Combines the elements of block q with the state. carry: NULL, or the combination of all earlier blocks,
// which block 0 ignores. With `out`, results are stored.
static void scan_block(const scan *c, ct_kval o, ct_kval q, ct_kval j, const ct_kval *state,
                       const ct_kval *carry, bool out) {
    ct_kir *k = c->k;
    const ct_scan_spec *s = c->s;
    ct_kval first = ct__kir_muli(k, q, CT_SCAN_BLOCK), count = s->n;
    if (c->many) {
        ct_kval block = ct__kir_int(k, CT_SCAN_BLOCK);
        count = ct__kir_min(k, ct__kir_sub(k, s->n, first), block);
    }
    ct_kval step = ct__kir_loop(k, CT_BIND_SEQ, count, "along the axis");
    step = ct__kir_add(k, first, step);
    if (s->reverse) step = ct__kir_sub(k, ct__kir_addi(k, s->n, -1), step);
    const ct_kval at[3] = {o, step, j};
    ct_kval x[CT_SCAN_MOST_STATE], before[CT_SCAN_MOST_STATE], now[CT_SCAN_MOST_STATE];
    for (int i = 0; i < s->n_state; i++) x[i] = ct__source_load(k, &s->x[i], 3, at);
    scan_load_state(c, state, before);
    scan_combine(c, before, x, now);
    scan_store_state(c, state, now);
    if (out) {
        ct_kval all[CT_SCAN_MOST_STATE], r = now[s->n_state - 1];
        if (carry) {
            scan_combine(c, carry, now, all);
            ct_kval zero = ct__kir_bin(k, CT_K_EQ, q, ct__kir_int(k, 0));
            r = ct__kir_select(k, zero, r, all[s->n_state - 1]);
        }
        ct__sink_store(k, &s->out, 3, at, r);
    }
    ct__kir_end(k);
}

// ------------------------------------------------------------------------------------------ a line

static void scan_whole_line(const scan *c, ct_kval o, ct_kval j) {
    ct_kir *k = c->k;
    ct_kval state[CT_SCAN_MOST_STATE], carry[CT_SCAN_MOST_STATE], value[CT_SCAN_MOST_STATE],
        total[CT_SCAN_MOST_STATE];
    if (!c->many) {
        scan_init_state(c, state);
        scan_block(c, o, ct__kir_int(k, 0), j, state, NULL, true);
        return;
    }
    scan_init_state(c, carry);
    ct_kval q = ct__kir_loop(k, CT_BIND_SEQ, c->blocks, "block");
    scan_init_state(c, state);
    scan_load_state(c, carry, value);
    scan_block(c, o, q, j, state, value, true);
    scan_load_state(c, state, total);
    scan_combine(c, value, total, value);
    ct_kval first = ct__kir_bin(k, CT_K_EQ, q, ct__kir_int(k, 0));
    for (int i = 0; i < c->s->n_state; i++)
        ct__kir_set(k, carry[i], ct__kir_select(k, first, total[i], value[i]));
    ct__kir_end(k);
}

static void scan_block_total(const scan *c, ct_kval o, ct_kval q, ct_kval j) {
    ct_kval state[CT_SCAN_MOST_STATE], total[CT_SCAN_MOST_STATE];
    scan_init_state(c, state);
    scan_block(c, o, q, j, state, NULL, false);
    scan_load_state(c, state, total);
    for (int i = 0; i < c->s->n_state; i++)
        ct__kir_store(c->k, c->s->carry, scan_carry_index(c, o, q, i, j), total[i]);
}

static void scan_carries(const scan *c, ct_kval o, ct_kval j) {
    ct_kir *k = c->k;
    ct_kval carry[CT_SCAN_MOST_STATE], value[CT_SCAN_MOST_STATE], total[CT_SCAN_MOST_STATE];
    scan_init_state(c, carry);
    ct_kval q = ct__kir_loop(k, CT_BIND_SEQ, c->blocks, "block");
    scan_load_state(c, carry, value);
    for (int i = 0; i < c->s->n_state; i++)
        total[i] = ct__kir_load(k, c->s->carry, scan_carry_index(c, o, q, i, j));
    for (int i = 0; i < c->s->n_state; i++)
        ct__kir_store(k, c->s->carry, scan_carry_index(c, o, q, i, j), value[i]);
    scan_combine(c, value, total, value);
    ct_kval first = ct__kir_bin(k, CT_K_EQ, q, ct__kir_int(k, 0));
    for (int i = 0; i < c->s->n_state; i++)
        ct__kir_set(k, carry[i], ct__kir_select(k, first, total[i], value[i]));
    ct__kir_end(k);
}

static void scan_block_with_carry(const scan *c, ct_kval o, ct_kval q, ct_kval j) {
    ct_kval state[CT_SCAN_MOST_STATE], carry[CT_SCAN_MOST_STATE];
    for (int i = 0; i < c->s->n_state; i++)
        carry[i] = ct__kir_load(c->k, c->s->carry, scan_carry_index(c, o, q, i, j));
    scan_init_state(c, state);
    scan_block(c, o, q, j, state, carry, true);
}

// ------------------------------------------------------------------------------------ the kernel

// A task is several lines of a matrix of lines, or several adjacent lines in lanes; of each, all blocks or
// one.
void ct__template_scan(ct_kir *k, const ct_scan_spec *spec) {
    scan c = {.k = k, .s = spec};
    c.single = scan_static_or(k, spec->inner, 0) == 1;
    int64_t n = scan_static_or(k, spec->n, INT64_MAX);
    c.many = n > CT_SCAN_BLOCK;
    c.blocks = ct__kir_ceil_div(k, spec->n, CT_SCAN_BLOCK);
    bool by_blocks = spec->pass == CT_SCAN_TOTALS || spec->pass == CT_SCAN_BLOCKS;
    int64_t length = by_blocks ? CT_SCAN_BLOCK : n < 1 || n == INT64_MAX ? 1 : n;
    ct_kval lines = c.single ? spec->outer : spec->inner;
    const ct_target *target = &spec->target;
    int64_t task_lines = !c.single                ? target->columns
                         : length >= target->task ? 1
                                                  : target->task / length;
    ct_kval groups = ct__kir_ceil_div(k, lines, task_lines), zero = ct__kir_int(k, 0);
    ct_kval tasks = c.single ? groups : ct__kir_mul(k, spec->outer, groups);
    if (by_blocks) tasks = ct__kir_mul(k, tasks, c.blocks);
    ct_kval task = ct__kir_loop(k, CT_BIND_ROWS, tasks, "block"), q = zero;
    if (by_blocks) {
        q = ct__kir_mod(k, task, c.blocks);
        task = ct__kir_div(k, task, c.blocks);
    }
    ct_kval first = ct__kir_muli(k, c.single ? task : ct__kir_mod(k, task, groups), task_lines);
    ct_kval max_lines = ct__kir_int(k, task_lines);
    ct_kval n_lines = ct__kir_min(k, ct__kir_sub(k, lines, first), max_lines);
    ct_kval line = ct__kir_loop(k, c.single ? CT_BIND_SEQ : CT_BIND_LANES, n_lines, "line");
    line = ct__kir_add(k, first, line);
    ct_kval o = c.single ? line : ct__kir_div(k, task, groups), j = c.single ? zero : line;
    switch (spec->pass) {
    case CT_SCAN_WHOLE: scan_whole_line(&c, o, j); break;
    case CT_SCAN_TOTALS: scan_block_total(&c, o, q, j); break;
    case CT_SCAN_CARRY: scan_carries(&c, o, j); break;
    case CT_SCAN_BLOCKS: scan_block_with_carry(&c, o, q, j); break;
    }
    ct__kir_end_n(k, 2);
}

// Computes the sizes of a value before an axis, along it, and after it, in the encoding of attributes.
static void scan_sizes_around(const ct_type *t, int axis, int64_t *size) {
    size[0] = size[1] = size[2] = 1;
    for (int a = 0; a < t->rank; a++) {
        int64_t *of = &size[(a >= axis) + (a > axis)];
        *of = ct__size_mul(*of, ct__size_of(t, a));
    }
}
static int64_t scan_size_or_guess(int64_t size) { return ct__marked(size) ? 64 : size; }

static bool scan_write_pass(ct_sched *s, ct_node *node, ct_scan_pass pass, uint32_t temp) {
    ct_emit *e = ct__emit_new(s, node);
    if (!e) return false;
    ct__emit_declare_sizes(e, node);
    ct_along along = ct__along(node);
    ct_dtype as = (ct_dtype)node->out->dtype;
    ct_flattened x[CT_SCAN_MOST_STATE];
    const int start[3] = {0, along.axis, along.axis + 1};
    ct_flattened out = ct__join(e, (ct_val){node, 0}, as, 3, start);
    ct_scan_spec spec = {.pass = pass,
                         .op = node->op->reduction,
                         .monoid = &node->op->monoid,
                         .node = node,
                         .n_state = node->n_in,
                         .dtype = as,
                         .outer = ct__flattened_size(&out, 0),
                         .n = ct__flattened_size(&out, 1),
                         .inner = ct__flattened_size(&out, 2),
                         .reverse = along.reverse,
                         .target = e->target,
                         .out = ct__flattened_sink(&out)};
    for (int i = 0; i < node->n_in; i++) {
        x[i] = ct__join(e, node->in[i], as, 3, start);
        spec.x[i] = ct__flattened_source(&x[i]);
    }
    static const int access[] = {0, CT_KIR_WRITE, CT_KIR_READ | CT_KIR_WRITE, CT_KIR_READ};
    if (pass) spec.carry = ct__emit_temp(e, temp, ct__kir_compute_dtype(as), access[pass]);
    ct__template_scan(e->kir, &spec);
    return ct__emit_done(e, (double)ct__count(&node->out[0]));
}

static bool scan_kernels(ct_sched *s, ct_node *node) {
    const ct_type *out = node->out;
    const ct_target *target = ct__sched_target(s);
    int64_t size[3];
    scan_sizes_around(out, ct__along(node).axis, size);
    int64_t column_groups =
        size[2] == 1 ? 1 : (scan_size_or_guess(size[2]) + target->columns - 1) / target->columns;
    bool is_long = ct__marked(size[1]) || size[1] >= target->long_line;
    if (scan_size_or_guess(size[0]) * column_groups >= target->few_tasks ||
        !is_long) // long lines use three launches
        return scan_write_pass(s, node, CT_SCAN_WHOLE, 0);
    int64_t each = node->n_in * (int64_t)ct_dtype_size(ct__kir_compute_dtype((ct_dtype)out->dtype));
    int64_t states =
        ct__size_mul(ct__size_mul(size[0], size[2]), ct__size_div_up(size[1], CT_SCAN_BLOCK));
    uint32_t temp = ct__sched_temp(s, ct__size_mul(states, each));
    if (temp == UINT32_MAX) return false;
    return scan_write_pass(s, node, CT_SCAN_TOTALS, temp) &&
           scan_write_pass(s, node, CT_SCAN_CARRY, temp) &&
           scan_write_pass(s, node, CT_SCAN_BLOCKS, temp);
}

// A monoid of the op's own counts as some operations per element.
static double scan_roundings(const ct_node *node, bool in_order) {
    enum { MONOID_OPS = 4 };
    ct_kred op = node->op->reduction;
    double n = (double)node->out->dim[ct__along(node).axis];
    if (op && !ct__kred_is_ordered(op, (ct_dtype)node->out->dtype)) return 0;
    bool single_chain = in_order || n <= CT_SCAN_BLOCK;
    return (op ? 1 : MONOID_OPS) * (single_chain ? n : CT_SCAN_BLOCK + ceil(n / CT_SCAN_BLOCK));
}

static bool scan_eval(const ct_ref *ref) {
    const ct_opdef *op = ref->node->op;
    const ct_type *in = ref->in_type;
    ct_along along = ct__along(ref->node);
    int64_t n = in->dim[along.axis], inner = 1, count = ct__count(in);
    for (int a = along.axis + 1; a < in->rank; a++) inner *= in->dim[a];
    for (int64_t line = 0; n && line < count / n; line++) {
        int64_t base = line / inner * inner * n + line % inner;
        ct_acc acc = ct__acc_start(op, in->dtype);
        for (int64_t k = 0; k < n; k++) {
            int64_t at = base + (along.reverse ? n - 1 - k : k) * inner;
            acc = ct__acc_join(op, acc, ct__acc_load(in->dtype, ref->in[0], at), in->dtype);
            ct__acc_store(in->dtype, ref->out[0], at, acc);
        }
    }
    return true;
}

const ct_kind ct__kind_scan = {
    .name = "scan",
    .doc = "Each element is put together, by a monoid, of all up to it along an axis.",
    .scheduled = CT_TEMPLATE,
    .kernels = scan_kernels,
    .roundings = scan_roundings,
    .eval = scan_eval,
    .batch = ct__batch_shifted,
};
