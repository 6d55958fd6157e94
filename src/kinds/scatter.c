// Elements put together with others at positions that are data.
#include "kinds/scatter.h"

#include "kinds/batch.h"
#include "kinds/joined.h"
#include "kinds/monoid.h"

enum { GRAIN = 8192 }; // elements that are worth a task of their own

static int64_t literal(const ct_kir *k, ct_kval v, int64_t otherwise) {
    int64_t n = 0;
    return ct__kir_is_int(k, v, &n) ? n : otherwise;
}

static ct_kval position(ct_kir *k, const ct_source *s, ct_kval batch, ct_kval i) {
    ct_kval v = ct__source_load(k, s, 2, (ct_kval[]){batch, i});
    return v >= 0 && k->ins[v].dtype != CT_I64 ? ct__kir_cast(k, v, CT_I64) : v;
}

static ct_kval in_range(ct_kir *k, ct_kval v, ct_kval from, ct_kval to) {
    ct_kval below = ct__kir_lt(k, v, to);
    return ct__kir_bin(k, CT_K_AND, ct__kir_bin(k, CT_K_LE, from, v), below);
}

// A task owns a block of destination rows: no two threads meet, and the order of what is put to
// an element is that of the positions. Every task reads all positions, so a block is as much work
// as that at least.
void ct__template_scatter(ct_kir *k, const ct_scatter_spec *spec) {
    const ct_picking *p = &spec->size;
    int64_t tail = literal(k, p->tail, 64), picks = literal(k, p->picks, GRAIN);
    int64_t work = picks > GRAIN ? picks : GRAIN;
    int64_t block = work / (tail > 1 ? tail : 1);
    if (block < 1) block = 1;
    ct_kval blocks = ct__kir_ceil_div(k, p->n, block);
    ct_kval task = ct__kir_loop(
        k, CT_BIND_CORE, ct__kir_mul(k, ct__kir_mul(k, p->batch, p->middle), blocks), "block");
    ct_kval first = ct__kir_muli(k, ct__kir_mod(k, task, blocks), block);
    ct_kval lead = ct__kir_div(k, task, blocks);
    ct_kval m = ct__kir_mod(k, lead, p->middle), b = ct__kir_div(k, lead, p->middle);
    ct_kval most = ct__kir_int(k, block);
    ct_kval rows = ct__kir_min(k, ct__kir_sub(k, p->n, first), most);
    ct_kval base = ct__kir_mul(k, lead, p->n); // rows of out before this matrix
    ct_kbind along_tail = literal(k, p->tail, CT_LANES) < 4 ? CT_BIND_SEQ : CT_BIND_VECTOR;

    ct_kval row = ct__kir_add(k, first, ct__kir_loop(k, CT_BIND_SEQ, rows, "row of x"));
    ct_kval t = ct__kir_loop(k, along_tail, p->tail, "tail");
    ct_kval to = ct__kir_add(k, ct__kir_mul(k, ct__kir_add(k, base, row), p->tail), t);
    ct__kir_store(k, spec->out, to, ct__source_load(k, &spec->x, 4, (ct_kval[]){b, m, row, t}));
    ct__kir_end(k);
    ct__kir_end(k);

    ct_kval i = ct__kir_loop(k, CT_BIND_SEQ, p->picks, "pick");
    ct_kval at = position(k, &spec->positions, b, i);
    ct__kir_if(k, in_range(k, at, first, ct__kir_add(k, first, rows)));
    t = ct__kir_loop(k, along_tail, p->tail, "tail");
    to = ct__kir_add(k, ct__kir_mul(k, ct__kir_add(k, base, at), p->tail), t);
    ct_kval update = ct__source_load(k, &spec->updates, 4, (ct_kval[]){b, m, i, t});
    ct__kir_store(k, spec->out, to,
                  ct__kred_combine(k, spec->op, ct__kir_load(k, spec->out, to), update));
    ct__kir_end(k);
    ct__kir_end(k);
    ct__kir_end(k);
    ct__kir_end(k);
}

static bool scatter_kernels(ct_sched *s, ct_node *node) {
    ct_emit *e = ct__emit_new(s, node);
    if (!e) return false;
    ct__emit_declare_sizes(e, node);
    ct_along along = ct__along(node);
    int axis = along.axis, lead = along.leading, own = ct__type(node->in[1])->rank - lead;
    ct_dtype as = ct__kir_held((ct_dtype)node->out->dtype);
    ct_joined x = ct__join(e, node->in[0], as, 4, (int[]){0, lead, axis, axis + 1});
    ct_joined positions = ct__join(e, node->in[1], CT_I64, 2, (int[]){0, lead});
    ct_joined updates = ct__join(e, node->in[2], as, 4, (int[]){0, lead, axis, axis + own});
    ct_scatter_spec spec = {
        .op = node->op->reduction,
        .size = {ct__joined_size(&x, 0), ct__joined_size(&x, 1), ct__joined_size(&x, 2),
                 ct__joined_size(&positions, 1), ct__joined_size(&x, 3)},
        .x = ct__joined_source(&x),
        .positions = ct__joined_source(&positions),
        .updates = ct__joined_source(&updates),
        .out = ct__emit_result_buffer(e, (ct_val){node, 0}, CT_KIR_READ | CT_KIR_WRITE)};
    ct__template_scatter(e->kir, &spec);
    return ct__emit_done(e, (double)ct__count(ct__type(node->in[2])));
}

// All updates may name one element, one after the other.
static double scatter_roundings(const ct_node *node, bool in_order) {
    (void)in_order; // it always is
    bool rounds = ct__kred_is_ordered(node->op->reduction, (ct_dtype)node->out->dtype);
    return rounds ? (double)ct__count(ct__type(node->in[1])) : 0;
}

typedef struct picking {
    int64_t batch, middle, n, picks, tail;
} picking;
static picking picking_of(const ct_ref *ref, ct_along along) {
    const ct_type *x = &ref->in_type[0], *at = &ref->in_type[1];
    picking p = {1, 1, x->dim[along.axis], 1, 1};
    for (int a = 0; a < x->rank; a++) {
        int64_t size = x->dim[a];
        if (a < along.leading)
            p.batch *= size;
        else if (a < along.axis)
            p.middle *= size;
        else if (a > along.axis)
            p.tail *= size;
    }
    for (int a = along.leading; a < at->rank; a++) p.picks *= at->dim[a];
    return p;
}

static bool scatter_eval(const ct_ref *ref) {
    const ct_opdef *op = ref->node->op;
    const ct_type *update = &ref->in_type[2];
    ct_dtype d = ref->in_type[0].dtype;
    picking p = picking_of(ref, ct__along(ref->node));
    int64_t n = ct__count(&ref->in_type[0]);
    ct_acc *acc = ct__malloc((size_t)n * sizeof *acc);
    if (!acc) return ct__err_memory(ref->err, ref->node->here, op->name, (size_t)n * sizeof *acc);
    for (int64_t i = 0; i < n; i++) acc[i] = ct__acc_load(d, ref->in[0], i);
    for (int64_t o = 0; o < p.batch * p.middle * p.picks; o++) {
        int64_t lead = o / p.picks, b = lead / p.middle;
        int64_t at = ct__load_i64(ref->in_type[1].dtype, ref->in[1], b * p.picks + o % p.picks);
        if (at < 0 || at >= p.n) continue;
        for (int64_t i = 0; i < p.tail; i++) {
            ct_acc *to = &acc[(lead * p.n + at) * p.tail + i], by;
            if (ct__is_float(d))
                by.f = ct__load_f64(update->dtype, ref->in[2], o * p.tail + i);
            else
                by.i = ct__load_i64(update->dtype, ref->in[2], o * p.tail + i);
            *to = ct__acc_join(op, *to, by, d);
        }
    }
    for (int64_t i = 0; i < n; i++) ct__acc_store(d, ref->out[0], i, acc[i]);
    ct__free(acc);
    return true;
}

// Positions that are the same for all: the batch goes behind the axes that they share with x.
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
    .kernels = scatter_kernels,
    .roundings = scatter_roundings,
    .rounds_each = true,
    .eval = scatter_eval,
    .positions = 1,
    .batch = scatter_batch,
};
