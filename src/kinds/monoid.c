// Monoids on single values, for the reference evaluator.
#include "kinds/monoid.h"

ct_acc ct__acc_start(const ct_opdef *op, ct_dtype dtype) {
    if (!op->reduction) return (ct_acc){.f = op->monoid.start[0]};
    ct_kins start = ct__kred_identity(op->reduction, dtype);
    return ct__is_float(dtype) ? (ct_acc){.f = start.imm.f} : (ct_acc){.i = start.imm.i};
}

static double monoid_combine_f64(ct_kred by, double a, double b) {
    switch (by) {
    case CT_RED_ADD: return a + b;
    case CT_RED_MUL: return a * b;
    case CT_RED_MAX: return ct__max_f64(a, b);
    default: return ct__min_f64(a, b);
    }
}
static int64_t monoid_combine_i64(ct_kred by, int64_t a, int64_t b, ct_dtype dtype) {
    switch (by) {
    case CT_RED_ADD: return (int64_t)((uint64_t)a + (uint64_t)b);
    case CT_RED_MUL: return (int64_t)((uint64_t)a * (uint64_t)b);
    case CT_RED_OR: return a | b;
    case CT_RED_AND: return a & b;
    case CT_RED_MAX: return ct__less_i64(b, a, dtype) ? a : b;
    default: return ct__less_i64(a, b, dtype) ? a : b;
    }
}

ct_acc ct__acc_join(const ct_opdef *op, ct_acc a, ct_acc b, ct_dtype dtype) {
    ct_acc r;
    if (ct__is_float(dtype))
        r.f = op->reduction ? monoid_combine_f64(op->reduction, a.f, b.f)
                            : op->eval_f64((const double[2]){a.f, b.f});
    else
        r.i = op->reduction ? monoid_combine_i64(op->reduction, a.i, b.i, dtype)
                            : op->eval_i64((const int64_t[2]){a.i, b.i}, dtype);
    return r;
}

ct_acc ct__acc_load(ct_dtype dtype, const void *data, int64_t i) {
    return ct__is_float(dtype) ? (ct_acc){.f = ct__load_f64(dtype, data, i)}
                               : (ct_acc){.i = ct__load_i64(dtype, data, i)};
}

void ct__acc_store(ct_dtype dtype, void *data, int64_t i, ct_acc value) {
    if (ct__is_float(dtype))
        ct__store_f64(dtype, data, i, value.f);
    else
        ct__store_i64(dtype, data, i, value.i);
}
