// Elementwise ops: out[i] = f(in0[i], in1[i], ...). Operands broadcast to one shape and promote to one dtype.
#include "kinds/batch.h"
#include "kinds/emit.h"

ct_dtype ct__compute_dtype(const ct_node *node) {
    ct_promotion met = CT_PROMOTION_START;
    for (int i = node->op->condition; i < node->n_in; i++) {
        const ct_type *t = ct__type(node->in[i]);
        met = ct__promotion_add(met, (ct_dtype)t->dtype, t->weak);
    }
    return ct__promotion_result(met);
}

// ----------------------------------------------------------------------------------------- kernels

static ct_kval elementwise_value(ct_emit *e, ct_val v, const ct_ix *at) {
    const ct_node *node = v.node;
    ct_dtype compute = ct__compute_dtype(node), out = (ct_dtype)node->out->dtype;
    ct_kval few[4], *x = few;
    ct_ix own[CT_MAX_RANK];
    if (node->n_in > 4) x = ct__arena(&e->arena, node->n_in * sizeof *x);
    if (!x) return ct__err_memory(e->err, node->here, "kernel", node->n_in * sizeof *x) - 1;
    if (ct__reads_memory(node)) {
        ct__broadcast_ix(e, node->in[0], node->out->rank, at, own);
        if (node->op->part) return ct__emit_part(e, node->in[0], own, node->op->part - 1);
        return ct__emit_bits(e, node->in[0], own, out);
    }
    // only its parts have values in registers, and each is requested where it is stored
    if (ct__has_parts(out)) {
        ct__broadcast_ix(e, node->in[0], node->out->rank, at, own);
        return ct__emit_value(e, node->in[0], own, ct__part(out));
    }
    for (int i = 0; i < node->n_in; i++) {
        ct__broadcast_ix(e, node->in[i], node->out->rank, at, own);
        bool condition = i == 0 && node->op->condition;
        x[i] = ct__emit_value(e, node->in[i], own, condition ? CT_BOOL : compute);
    }
    e->flops++;
    ct_kval r = node->op->emit(&(ct_elem){e->kir, node, x, compute});
    return ct__kir_compute_dtype(out) == out ? r
                                             : ct__kir_cast(e->kir, r, out); // rounded to its dtype
}

// --------------------------------------------------------------------------------------- reference

static void elementwise_store_int(ct_dtype to, void *data, int64_t i, ct_dtype from, int64_t bits) {
    if (from == CT_U64)
        ct__store_u64(to, data, i, (uint64_t)bits);
    else
        ct__store_i64(to, data, i, bits);
}

// Loads a value in the compute dtype: promotion rounds before the op does.
static double elementwise_load_float(ct_dtype compute, ct_dtype from, const void *data, int64_t i) {
    char rounded[8];
    if (from == compute || compute == CT_F64) return ct__load_f64(from, data, i);
    if (ct__is_float(from))
        ct__store_f64(compute, rounded, 0, ct__load_f64(from, data, i));
    else
        elementwise_store_int(compute, rounded, 0, from, ct__load_i64(from, data, i));
    return ct__load_f64(compute, rounded, 0);
}

enum { MAX_OPERANDS = 4 };
static bool elementwise_eval(const ct_ref *ref) {
    const ct_node *node = ref->node;
    const ct_opdef *op = node->op;
    if (ref->n_in > MAX_OPERANDS)
        return ct__err(ref->err, CT_E_INTERNAL, node->here, op->name, "too many operands");
    ct_dtype compute = ct__compute_dtype(node);
    bool is_float = ct__is_float(compute);
    int64_t n = ct__count(ref->out_type);
    for (int64_t i = 0; i < n; i++) {
        double x[MAX_OPERANDS];
        int64_t ints[MAX_OPERANDS];
        for (int k = 0; k < ref->n_in; k++) {
            const ct_type *in = &ref->in_type[k];
            int64_t at = ct__broadcast_index(ref->out_type, in, i);
            if (is_float)
                x[k] = elementwise_load_float(compute, in->dtype, ref->in[k], at);
            else
                ints[k] = ct__load_i64(in->dtype, ref->in[k], at);
        }
        if (is_float && op->eval_f64)
            ct__store_f64(ref->out_type->dtype, ref->out[0], i, op->eval_f64(x));
        else if (!is_float && op->eval_i64)
            elementwise_store_int(ref->out_type->dtype, ref->out[0], i, compute,
                                  op->eval_i64(ints, compute));
        else
            return ct__err(ref->err, CT_E_INTERNAL, node->here, op->name,
                           "no reference evaluation for %s", ct_dtype_name(compute));
    }
    return true;
}

const ct_kind ct__kind_elementwise = {
    .name = "elementwise",
    .doc = "Each element from elements of the operands at the same index; operands broadcast and "
           "promote.",
    .scheduled = CT_POINTWISE,
    .value = elementwise_value,
    .eval = elementwise_eval,
    .batch = ct__batch_pointwise,
};
