// Reads operands and writes results of kernel templates.
#include "kinds/template.h"

static ct_kval template_index(ct_kir *k, ct_kval offset, const ct_kval *stride, int rank,
                              const ct_kval *at) {
    ct_kval index = offset >= 0 ? offset : ct__kir_int(k, 0);
    for (int i = 0; i < rank; i++) index = ct__kir_add(k, index, ct__kir_mul(k, at[i], stride[i]));
    return index;
}

ct_kval ct__source_index(ct_kir *k, const ct_source *o, int rank, const ct_kval *at) {
    return template_index(k, o->offset, o->stride, rank, at);
}

ct_kval ct__source_load(ct_kir *k, const ct_source *o, int rank, const ct_kval *at) {
    if (o->value) return o->value(o->env, k, at);
    return ct__kir_load(k, o->buf, ct__source_index(k, o, rank, at));
}

bool ct__source_along(const ct_kir *k, const ct_source *o, int axis) {
    if (o->value) return o->along == axis;
    int64_t stride = 0;
    return ct__kir_is_int(k, o->stride[axis], &stride) && stride == 1;
}

int64_t ct__source_step(const ct_kir *k, const ct_source *o, int rank) {
    if (o->value) return o->step;
    const int other = ct__source_along(k, o, rank - 1) ? rank - 2 : rank - 1;
    int64_t step = 0;
    return ct__kir_is_int(k, o->stride[other], &step) ? step : 0;
}

bool ct__source_is_load(const ct_source *o) { return !o->value || o->is_load; }

void ct__sink_store(ct_kir *k, const ct_sink *r, int rank, const ct_kval *at, ct_kval value) {
    if (r->store)
        r->store(r->env, k, at, value);
    else
        ct__kir_store(k, r->buf, template_index(k, r->offset, r->stride, rank, at), value);
}

void ct__unflatten(ct_kir *k, ct_kval n, int rank, const ct_kval *dim, ct_kval *at) {
    for (int i = rank - 1; i > 0; i--) {
        at[i] = ct__kir_mod(k, n, dim[i]);
        n = ct__kir_div(k, n, dim[i]);
    }
    if (rank > 0) at[0] = n;
}

void ct__kir_if(ct_kir *k, ct_kval cond) {
    ct_kval none = ct__kir_int(k, 0), once = ct__kir_int(k, 1);
    ct__kir_loop(k, CT_BIND_SEQ, ct__kir_select(k, cond, once, none), NULL);
}
