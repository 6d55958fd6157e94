// Reductions over axes by a monoid. Floats are added and multiplied in a tree whose shape depends only on the
// index (docs/design/bits.md).
#include <math.h>

#include "kinds/monoid.h"
#include "kinds/batch.h"
#include "kinds/reduce.h"

// ----------------------------------------------------------------------------------------- kernels

ct_folds ct__folds_of(ct_emit *e, const ct_node *node) {
    ct_folds f = {.n = 0};
    uint32_t mask = ct__along(node).axes;
    int rank = ct__type(node->in[0])->rank;
    for (int a = 0; a < rank; a++) {
        if (!(mask >> a & 1)) continue;
        if (a == 0 || !(mask >> (a - 1) & 1)) {
            f.first[f.n] = a;
            f.count[f.n] = 0;
            f.extent[f.n++] = ct__ix_int(e->pool, 1);
        }
        f.count[f.n - 1]++;
        ct_ix size = ct__emit_size(e, node->in[0], a);
        f.extent[f.n - 1] = ct__ix_mul(e->pool, f.extent[f.n - 1], size);
    }
    return f;
}

ct_kval ct__folded_value(ct_emit *e, const ct_node *node, const ct_folds *f, const ct_ix *at,
                         const ct_ix *position) {
    ct_ix own[CT_MAX_RANK], size[CT_MAX_RANK];
    const ct_type *in = ct__type(node->in[0]);
    bool keep = node->out->rank == in->rank;
    uint32_t mask = ct__along(node).axes;
    for (int a = 0, o = 0; a < in->rank; a++)
        if (!(mask >> a & 1)) own[a] = keep ? at[a] : at[o++];
    for (int i = 0; i < f->n; i++) {
        for (int k = 0; k < f->count[i]; k++)
            size[k] = ct__emit_size(e, node->in[0], f->first[i] + k);
        ct__unflatten_ix(e->pool, position[i], size, f->count[i], &own[f->first[i]]);
    }
    return ct__emit_value(e, node->in[0], own, CT_DEFAULT);
}

ct_ix ct__fold_lanes(ct_emit *e, const ct_node *node, ct_ix *at) {
    const ct_type *in = ct__type(node->in[0]);
    const ct_folds f = ct__folds_of(e, node);
    ct_ix size[CT_MAX_RANK];
    if (f.n == 0 || f.count[f.n - 1] < 2) return CT_IX_NONE;
    const int first = f.first[f.n - 1], end = first + f.count[f.n - 1];
    for (int a = end; a < in->rank; a++)
        if (!ct__is_one(in, a)) return CT_IX_NONE;
    for (int a = 0; a < in->rank; a++) {
        size[a] = ct__emit_size(e, node->in[0], a);
        at[a] = ct__is_one(in, a) ? ct__ix_int(e->pool, 0) : ct__ix_var(e->pool, size[a]);
    }
    const ct_ix var = ct__ix_var(e->pool, f.extent[f.n - 1]);
    ct__unflatten_ix(e->pool, var, size + first, end - first, at + first);
    return var;
}

ct_kval ct__fold_result(ct_emit *e, const ct_node *node, ct_kval r) {
    ct_kred op = node->op->reduction;
    if (r < 0) return r;
    bool is_extremum = op == CT_RED_MAX || op == CT_RED_MIN;
    ct_dtype out = (ct_dtype)node->out->dtype, compute = ct__kir_compute_dtype(out);
    // of an empty axis: the extremum of the wider dtype
    if (is_extremum && compute == CT_I32 && out != CT_I32) {
        r = ct__kir_max(e->kir, r, ct__kir_const_int(e->kir, out, ct__int_min(out)));
        r = ct__kir_min(e->kir, r, ct__kir_const_int(e->kir, out, ct__int_max(out)));
    }
    return ct__kir_cast(e->kir, r, out);
}

// ------------------------------------------------------------------- unrolled: a few elements

enum { MAX_UNROLLED = 49 }; // windows of 7 x 7; unrolling rows of 64 does not pay off

bool ct__fold_is_short(ct_emit *e, const ct_node *node) {
    const ct_folds f = ct__folds_of(e, node);
    int64_t n = 1;
    for (int i = 0; i < f.n; i++) {
        int64_t extent;
        if (!ct__ix_is_int(e->pool, f.extent[i], &extent) || extent > MAX_UNROLLED) return false;
        n *= extent;
    }
    return n > 0 && n <= MAX_UNROLLED;
}

// True if the element is the identity of the monoid, such as padding of a window.
static bool reduce_is_identity(const ct_kir *k, ct_kred op, ct_kval x) {
    const ct_kins start = ct__kred_identity(op, (ct_dtype)k->ins[x].dtype);
    return k->ins[x].op == CT_K_CONST && k->ins[x].imm.i == start.imm.i;
}

// Returns the index of the first largest (or smallest) of n elements; NaN compares as beyond all numbers.
static ct_kval reduce_unrolled_arg(ct_kir *k, ct_kred op, const ct_kval *x, int64_t n) {
    const ct_dtype dtype = (ct_dtype)k->ins[x[0]].dtype;
    ct_kval best = ct__kred_identity_value(k, op, dtype), index = ct__kir_const_int(k, CT_I32, 0);
    for (int64_t i = 0; i < n; i++) {
        if (reduce_is_identity(k, op, x[i])) continue;
        const ct_kval low = op == CT_RED_ARGMAX ? best : x[i];
        const ct_kval high = op == CT_RED_ARGMAX ? x[i] : best;
        ct_kval better; // for floats: not (high <= low), so that NaN counts as better
        if (ct__is_float(dtype)) {
            better = ct__kir_un(k, CT_K_NOT, ct__kir_bin(k, CT_K_LE, high, low));
            better = ct__kir_bin(k, CT_K_AND, better, ct__kir_bin(k, CT_K_EQ, best, best));
        } else {
            better = ct__kir_lt(k, low, high);
        }
        best = ct__kir_select(k, better, x[i], best);
        index = ct__kir_select(k, better, ct__kir_const_int(k, CT_I32, i), index);
    }
    return ct__kir_cast(k, index, CT_I64);
}

// Reduces n elements by the rule of REDUCE (kir.h): in 16 lanes, which are then folded. The start value, to
// which elements are added first there, may be added last here: for a sum that only ensures that the result
// is not -0.
static ct_kval reduce_unrolled(ct_kir *k, ct_kred op, ct_kval *x, int64_t n) {
    ct_kval lane[CT_LANES];
    if (ct__kred_is_arg(op)) return reduce_unrolled_arg(k, op, x, n);
    const ct_kval start = ct__kred_identity_value(k, op, (ct_dtype)k->ins[x[0]].dtype);
    for (int i = 0; i < CT_LANES; i++) lane[i] = -1;
    for (int64_t i = 0; i < n; i++) {
        ct_kval *to = &lane[i % CT_LANES];
        if (!reduce_is_identity(k, op, x[i]))
            *to = *to < 0 ? x[i] : ct__kred_combine(k, op, *to, x[i]);
    }
    for (int half = CT_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            if (lane[i] < 0)
                lane[i] = lane[i + half];
            else if (lane[i + half] >= 0)
                lane[i] = ct__kred_combine(k, op, lane[i], lane[i + half]);
    return lane[0] < 0 ? start : ct__kred_combine(k, op, start, lane[0]);
}

static ct_kval reduce_group(ct_emit *e, const ct_node *node, const ct_folds *f, int i,
                            const ct_ix *at, ct_ix *position);

static ct_kval reduce_unroll_group(ct_emit *e, const ct_node *node, const ct_folds *f, int i,
                                   const ct_ix *at, ct_ix *position) {
    ct_kval x[MAX_UNROLLED];
    int64_t n = 0;
    if (!ct__ix_is_int(e->pool, f->extent[i], &n) || n < 1 || n > MAX_UNROLLED) return -1;
    for (int64_t k = 0; k < n; k++) {
        position[i] = ct__ix_int(e->pool, k);
        x[k] = reduce_group(e, node, f, i + 1, at, position);
        if (x[k] < 0) return -1; // the error is recorded
        e->flops++;
    }
    return reduce_unrolled(e->kir, node->op->reduction, x, n);
}

// -------------------------------------------------------------------------------------- in loops

static ct_kval reduce_group(ct_emit *e, const ct_node *node, const ct_folds *f, int i,
                            const ct_ix *at, ct_ix *position) {
    if (i == f->n) return ct__folded_value(e, node, f, at, position);
    if (e->unrolls) return reduce_unroll_group(e, node, f, i, at, position);
    bool vector = i == f->n - 1 && !ct__in_vector(e->kir);
    position[i] = ct__emit_loop(e, vector ? CT_BIND_LANES : CT_BIND_SEQ, f->extent[i], NULL);
    ct_kval r =
        ct__kir_reduce(e->kir, node->op->reduction, reduce_group(e, node, f, i + 1, at, position));
    e->flops++;
    ct__emit_end(e);
    return r;
}

// Emits the reduction's loops where its value is used.
static ct_kval reduce_value(ct_emit *e, ct_val v, const ct_ix *at) {
    ct_ix position[CT_MAX_RANK];
    ct_folds f = ct__folds_of(e, v.node);
    return ct__fold_result(e, v.node, reduce_group(e, v.node, &f, 0, at, position));
}

// Counts, for each level of the tree, 64 additions in a lane and then four of lanes; for every group of axes.
static double reduce_roundings(const ct_node *node, bool in_order) {
    const ct_type *x = ct__type(node->in[0]);
    if (!ct__kred_is_ordered(node->op->reduction, (ct_dtype)node->out->dtype)) return 0;
    double n = (double)ct__count(x) / fmax((double)ct__count(node->out), 1);
    double levels = 1 + (n > 0x1p10) + (n > 0x1p20);
    return in_order ? n : fmin(n, 68 * levels * (x->rank ? x->rank : 1));
}

// --------------------------------------------------------------------------------------- reference

// Returns the index of the result that element i of the operand is reduced into.
static int64_t reduce_result_index(const ct_type *in, uint32_t reduced, int64_t i) {
    int64_t out = 0, stride = 1;
    for (int a = in->rank - 1; a >= 0; a--) {
        int64_t at = i % in->dim[a];
        i /= in->dim[a];
        if (reduced >> a & 1) continue;
        out += at * stride;
        stride *= in->dim[a];
    }
    return out;
}

static bool reduce_eval(const ct_ref *ref) {
    const ct_opdef *op = ref->node->op;
    ct_dtype d = ref->in_type->dtype;
    uint32_t reduced = ct__along(ref->node).axes;
    int64_t n_in = ct__count(ref->in_type), n_out = ct__count(ref->out_type);
    ct_acc *acc = ct__malloc((size_t)n_out * sizeof *acc);
    if (!acc)
        return ct__err_memory(ref->err, ref->node->here, op->name, (size_t)n_out * sizeof *acc);
    for (int64_t o = 0; o < n_out; o++) acc[o] = ct__acc_start(op, d);
    for (int64_t i = 0; i < n_in; i++) {
        ct_acc *to = &acc[reduce_result_index(ref->in_type, reduced, i)];
        *to = ct__acc_join(op, *to, ct__acc_load(d, ref->in[0], i), d);
    }
    for (int64_t o = 0; o < n_out; o++) ct__acc_store(d, ref->out[0], o, acc[o]);
    ct__free(acc);
    return true;
}

const ct_kind ct__kind_reduce = {
    .name = "reduce",
    .doc = "Axes of the operand go, their elements put together by a monoid.",
    .scheduled = CT_REDUCED,
    .value = reduce_value,
    .roundings = reduce_roundings,
    .eval = reduce_eval,
    .batch = ct__batch_shifted,
};
