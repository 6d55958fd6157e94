// Scatter: combines updates with elements at positions that are data.
#include "kinds/scatter.h"

#include "kinds/batch.h"
#include "kinds/flattened.h"
#include "kinds/monoid.h"

enum { GRAIN = 8192 }; // elements that are worth a task of their own

static int64_t scatter_static_or(const ct_kir *k, ct_kval v, int64_t otherwise) {
    int64_t n = 0;
    return ct__kir_is_int(k, v, &n) ? n : otherwise;
}

typedef struct scatter {
    ct_kir *k;
    const ct_scatter_spec *s;
    ct_kbind along_tail;
} scatter;

static scatter scatter_new(ct_kir *k, const ct_scatter_spec *s) {
    bool narrow = scatter_static_or(k, s->size.tail, CT_LANES) < 4;
    return (scatter){k, s, narrow ? CT_BIND_SEQ : CT_BIND_LANES};
}

static ct_kval scatter_position(const scatter *c, ct_kval batch, ct_kval i) {
    ct_kir *k = c->k;
    ct_kval v = ct__source_load(k, &c->s->positions, 2, (ct_kval[]){batch, i});
    if (v >= 0 && k->ins[v].dtype != CT_I64) v = ct__kir_cast(k, v, CT_I64);
    if (!c->s->clip) return v;
    v = ct__kir_max(k, v, ct__kir_int(k, 0));
    return ct__kir_min(k, v, ct__kir_addi(k, c->s->size.n, -1));
}

static ct_kval scatter_in_range(ct_kir *k, ct_kval v, ct_kval from, ct_kval to) {
    ct_kval below = ct__kir_lt(k, v, to);
    return ct__kir_bin(k, CT_K_AND, ct__kir_bin(k, CT_K_LE, from, v), below);
}

// For sorted positions: returns how many are smaller than v, by binary search.
static ct_kval scatter_count_below(const scatter *c, ct_kval batch, ct_kval v) {
    ct_kir *k = c->k;
    int64_t steps = 1, picks = scatter_static_or(k, c->s->size.picks, INT64_MAX);
    while (steps < 63 && picks >> steps) steps++;
    ct_kval below = ct__kir_reg(k, ct__kir_int(k, 0)), left = ct__kir_reg(k, c->s->size.picks);
    ct__kir_loop_n(k, CT_BIND_SEQ, steps, "halves");
    ct_kval from = ct__kir_get(k, below), n = ct__kir_get(k, left);
    ct__kir_if(k, ct__kir_lt(k, ct__kir_int(k, 0), n));
    ct_kval half = ct__kir_div(k, n, ct__kir_int(k, 2)), middle = ct__kir_add(k, from, half);
    ct_kval less = ct__kir_lt(k, scatter_position(c, batch, middle), v);
    ct_kval right_rest = ct__kir_addi(k, ct__kir_sub(k, n, half), -1);
    ct__kir_set(k, below, ct__kir_select(k, less, ct__kir_addi(k, middle, 1), from));
    ct__kir_set(k, left, ct__kir_select(k, less, right_rest, half));
    ct__kir_end_n(k, 2);
    return ct__kir_get(k, below);
}

// Copies row `row` of matrix `lead` from x to out.
static void scatter_copy_row(const scatter *c, ct_kval lead, ct_kval row) {
    ct_kir *k = c->k;
    const ct_picking *p = &c->s->size;
    ct_kval t = ct__kir_loop(k, c->along_tail, p->tail, "tail");
    ct_kval to = ct__kir_add(k, ct__kir_mul(k, lead, p->n), row);
    to = ct__kir_add(k, ct__kir_mul(k, to, p->tail), t);
    ct_kval b = ct__kir_div(k, lead, p->middle), m = ct__kir_mod(k, lead, p->middle);
    ct_kval x = ct__source_load(k, &c->s->x, 4, (ct_kval[]){b, m, row, t});
    ct__kir_store(k, c->s->out, to, x);
    ct__kir_end(k);
}

// Applies update i of a matrix if its position is in [from, to).
static void scatter_update_row(const scatter *c, ct_kval lead, ct_kval i, ct_kval from,
                               ct_kval to) {
    ct_kir *k = c->k;
    const ct_picking *p = &c->s->size;
    ct_kval b = ct__kir_div(k, lead, p->middle), m = ct__kir_mod(k, lead, p->middle);
    ct_kval row = scatter_position(c, b, i);
    ct__kir_if(k, scatter_in_range(k, row, from, to));
    ct_kval t = ct__kir_loop(k, c->along_tail, p->tail, "tail");
    ct_kval at = ct__kir_add(k, ct__kir_mul(k, lead, p->n), row);
    at = ct__kir_add(k, ct__kir_mul(k, at, p->tail), t);
    ct_kval v = ct__source_load(k, &c->s->updates, 4, (ct_kval[]){b, m, i, t});
    if (c->s->op) v = ct__kred_combine(k, c->s->op, ct__kir_load(k, c->s->out, at), v);
    ct__kir_store(k, c->s->out, at, v);
    ct__kir_end_n(k, 2);
}

// Rows or positions of one matrix that are one task.
typedef struct range {
    ct_kval lead, first, count;
} range;
static range scatter_open_task(const scatter *c, ct_kval count, int64_t work) {
    ct_kir *k = c->k;
    const ct_picking *p = &c->s->size;
    int64_t tail = scatter_static_or(k, p->tail, 64), block = work / (tail > 1 ? tail : 1);
    if (block < 1) block = 1;
    ct_kval blocks = ct__kir_ceil_div(k, count, block);
    ct_kval tasks = ct__kir_mul(k, ct__kir_mul(k, p->batch, p->middle), blocks);
    ct_kval task = ct__kir_loop(k, CT_BIND_ROWS, tasks, "block");
    ct_kval first = ct__kir_muli(k, ct__kir_mod(k, task, blocks), block);
    ct_kval max_block = ct__kir_int(k, block);
    ct_kval count_here = ct__kir_min(k, ct__kir_sub(k, count, first), max_block);
    return (range){ct__kir_div(k, task, blocks), first, count_here};
}
static ct_kval scatter_open_range(const scatter *c, const range *r, const char *what) {
    return ct__kir_add(c->k, r->first, ct__kir_loop(c->k, CT_BIND_SEQ, r->count, what));
}

// Writes the kernel of one launch. A task owns a block of destination rows, so no two threads write the same
// element, and updates of an element are applied in the order of the positions. Every task reads all
// positions unless they are sorted, so a block has at least as many rows as that is work.
static void scatter_whole(const scatter *c) {
    ct_kir *k = c->k;
    const ct_picking *p = &c->s->size;
    int64_t picks = scatter_static_or(k, p->picks, GRAIN), block = GRAIN;
    if (!c->s->sorted && picks > GRAIN) block = picks;
    range rows = scatter_open_task(c, p->n, block), own = {rows.lead, ct__kir_int(k, 0), p->picks};
    scatter_copy_row(c, rows.lead, scatter_open_range(c, &rows, "row of x"));
    ct__kir_end(k);
    ct_kval end = ct__kir_add(k, rows.first, rows.count);
    if (c->s->sorted) {
        ct_kval b = ct__kir_div(k, rows.lead, p->middle);
        own.first = scatter_count_below(c, b, rows.first);
        own.count = ct__kir_sub(k, scatter_count_below(c, b, end), own.first);
    }
    scatter_update_row(c, rows.lead, scatter_open_range(c, &own, "pick"), rows.first, end);
    ct__kir_end_n(k, 2);
}

void ct__template_scatter(ct_kir *k, const ct_scatter_spec *spec) {
    const scatter c = scatter_new(k, spec);
    if (spec->pass == CT_SCATTER_WHOLE) {
        scatter_whole(&c);
        return;
    }
    if (spec->pass == CT_SCATTER_CHANGE) { // one task per matrix: positions may be duplicated
        const ct_picking *p = &spec->size;
        const ct_kval lead =
            ct__kir_loop(k, CT_BIND_ROWS, ct__kir_mul(k, p->batch, p->middle), "matrix");
        const ct_kval i = ct__kir_loop(k, CT_BIND_SEQ, p->picks, "pick");
        scatter_update_row(&c, lead, i, ct__kir_int(k, 0), p->n);
        ct__kir_end_n(k, 2);
        return;
    }
    range own = scatter_open_task(
        &c, spec->pass == CT_SCATTER_COPY ? spec->size.n : spec->size.picks, GRAIN);
    if (spec->pass == CT_SCATTER_COPY) {
        scatter_copy_row(&c, own.lead, scatter_open_range(&c, &own, "row of x"));
    } else {
        // evaluated here, since the evaluation order of arguments is unspecified
        const ct_kval first = ct__kir_int(k, 0);
        scatter_update_row(&c, own.lead, scatter_open_range(&c, &own, "pick"), first, spec->size.n);
    }
    ct__kir_end_n(k, 2);
}

static bool scatter_write_pass(ct_sched *s, ct_node *node, ct_scatter_pass pass) {
    ct_emit *e = ct__emit_new(s, node);
    if (!e) return false;
    ct__emit_declare_sizes(e, node);
    ct_along along = ct__along(node);
    int axis = along.axis, lead = along.leading, own = ct__type(node->in[1])->rank - lead;
    ct_dtype as = ct__kir_compute_dtype((ct_dtype)node->out->dtype);
    ct_flattened x = ct__join(e, node->in[0], as, 4, (int[]){0, lead, axis, axis + 1});
    ct_flattened positions = ct__join(e, node->in[1], CT_I64, 2, (int[]){0, lead});
    ct_flattened updates = ct__join(e, node->in[2], as, 4, (int[]){0, lead, axis, axis + own});
    const bool only_writes =
        pass == CT_SCATTER_COPY || (pass == CT_SCATTER_CHANGE && !node->op->reduction);
    int access = only_writes ? CT_KIR_WRITE : CT_KIR_READ | CT_KIR_WRITE;
    ct_scatter_spec spec = {.pass = pass,
                            .op = node->op->reduction,
                            .clip = along.mode == CT_MODE_CLIP,
                            .sorted = along.sorted,
                            .size = {ct__flattened_size(&x, 0), ct__flattened_size(&x, 1),
                                     ct__flattened_size(&x, 2), ct__flattened_size(&positions, 1),
                                     ct__flattened_size(&x, 3)},
                            .x = ct__flattened_source(&x),
                            .positions = ct__flattened_source(&positions),
                            .updates = ct__flattened_source(&updates),
                            .out = ct__emit_result_buffer(e, (ct_val){node, 0}, access)};
    ct__template_scatter(e->kir, &spec);
    return ct__emit_done(e, (double)ct__count(ct__type(node->in[2])));
}

// In place of the operand, only the picks are written. If there are more positions than elements of few
// tasks, reading all of them in every task costs more than a second launch, which the promise of unique
// positions allows.
static bool scatter_kernels(ct_sched *s, ct_node *node) {
    ct_along along = ct__along(node);
    if (ct__sched_changes(s, node)) return scatter_write_pass(s, node, CT_SCATTER_CHANGE);
    if (!along.unique || along.sorted || ct__count(ct__type(node->in[1])) <= GRAIN)
        return scatter_write_pass(s, node, CT_SCATTER_WHOLE);
    return scatter_write_pass(s, node, CT_SCATTER_COPY) &&
           scatter_write_pass(s, node, CT_SCATTER_PICKS);
}

// All updates may hit one element, one after the other.
static double scatter_roundings(const ct_node *node, bool in_order) {
    (void)in_order; // it always is
    ct_kred op = node->op->reduction;
    bool rounds = op && ct__kred_is_ordered(op, (ct_dtype)node->out->dtype);
    return rounds ? (double)ct__count(ct__type(node->in[1])) : 0;
}

ct_picked ct__picked_sizes(const ct_type *x, const ct_type *at, int axis, int batch) {
    ct_picked p = {1, 1, x->dim[axis], 1, 1};
    for (int a = 0; a < x->rank; a++) {
        int64_t size = x->dim[a];
        if (a < batch)
            p.batch *= size;
        else if (a < axis)
            p.middle *= size;
        else if (a > axis)
            p.tail *= size;
    }
    for (int a = batch; a < at->rank; a++) p.picks *= at->dim[a];
    return p;
}

// Returns the position of pick i of matrix b in `at`, -1 if it is out of bounds and dropped. Returns false if
// positions were promised to be in bounds and this one is not.
static bool scatter_ref_position(const ct_ref *ref, ct_index_mode mode, const ct_picked *p,
                                 int64_t b, int64_t i, int64_t *at) {
    const ct_type *x = &ref->in_type[0], *type = &ref->in_type[1];
    int64_t v = *at = ct__load_i64(type->dtype, ref->in[1], b * p->picks + i);
    if (v >= 0 && v < p->n) return true;
    *at = mode != CT_MODE_CLIP || !p->n ? -1 : v < 0 ? 0 : p->n - 1;
    if (mode != CT_MODE_PROMISE_IN_BOUNDS) return true;
    int axis = ct__along(ref->node).axis;
    ct__err(
        ref->err, CT_E_ARGUMENT, ref->node->here, ref->node->op->name,
        "index %lld is out of bounds of axis %d of %s, which CT_MODE_PROMISE_IN_BOUNDS excludes",
        (long long)v, axis, ct__type_text(x).s);
    if (p->n) ct__err_hint(ref->err, "indices are 0 to %lld", (long long)p->n - 1);
    return false;
}

static bool scatter_eval(const ct_ref *ref) {
    const ct_opdef *op = ref->node->op;
    const ct_along along = ct__along(ref->node);
    const ct_type *update = &ref->in_type[2];
    ct_dtype d = ref->in_type[0].dtype;
    const ct_picked p =
        ct__picked_sizes(&ref->in_type[0], &ref->in_type[1], along.axis, along.leading);
    bool ok = true;
    int64_t n = ct__count(&ref->in_type[0]);
    ct_acc *acc = ct__malloc((size_t)n * sizeof *acc);
    if (!acc) return ct__err_memory(ref->err, ref->node->here, op->name, (size_t)n * sizeof *acc);
    for (int64_t i = 0; i < n; i++) acc[i] = ct__acc_load(d, ref->in[0], i);
    for (int64_t o = 0; ok && o < p.batch * p.middle * p.picks; o++) {
        int64_t lead = o / p.picks, at;
        ok = scatter_ref_position(ref, along.mode, &p, lead / p.middle, o % p.picks, &at);
        if (!ok || at < 0) continue;
        for (int64_t i = 0; i < p.tail; i++) {
            ct_acc *to = &acc[(lead * p.n + at) * p.tail + i], by;
            if (ct__is_float(d))
                by.f = ct__load_f64(update->dtype, ref->in[2], o * p.tail + i);
            else
                by.i = ct__load_i64(update->dtype, ref->in[2], o * p.tail + i);
            *to = op->reduction ? ct__acc_join(op, *to, by, d) : by;
        }
    }
    for (int64_t i = 0; i < n; i++) ct__acc_store(d, ref->out[0], i, acc[i]);
    ct__free(acc);
    return ok;
}

// If the positions have no batch, the batch goes after the axes that they share with x.
static bool scatter_batch(ct_batching *b) {
    const ct_node *node = b->node;
    const int lead = ct__along(node).leading;
    if (b->batched[1]) return ct__batch_shifted(b);
    const void *attrs = ct__batch_attrs(b, false);
    ct_tensor in[3] = {ct__batch_operand(b, 0), b->in[1], ct__batch_operand(b, 2)};
    for (int i = 0; i < 3; i += 2)
        in[i] = ct__batch_move(b, in[i], ct__type(node->in[i])->rank + 1, 0, lead);
    if (!attrs || !ct__batch_record(b, attrs, in)) return false;
    b->out[0] = ct__batch_move(b, b->out[0], node->out->rank + 1, lead, 0);
    return true;
}

const ct_kind ct__kind_scatter = {
    .name = "scatter",
    .doc = "Operand 0 with operand 2 put together with it at positions along an axis, which "
           "operand 1 holds.",
    .scheduled = CT_TEMPLATE,
    .changes_operand = true,
    .kernels = scatter_kernels,
    .roundings = scatter_roundings,
    .rounds_each = true,
    .eval = scatter_eval,
    .positions = 1,
    .batch = scatter_batch,
};
