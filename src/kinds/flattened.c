// Values of the graph with runs of axes flattened, as operands and results of templates.
#include "kinds/flattened.h"

#include <string.h>

ct_flattened ct__join(ct_emit *e, ct_val v, ct_dtype as, int groups, const int *start) {
    ct_flattened j = {.e = e, .v = v, .as = as, .groups = groups};
    memcpy(j.start, start, (size_t)groups * sizeof *start);
    j.start[groups] = ct__type(v)->rank;
    return j;
}

static ct_ix flattened_group_size(const ct_flattened *j, int g) {
    ct_ix size = ct__ix_int(j->e->pool, 1);
    for (int a = j->start[g]; a < j->start[g + 1]; a++)
        size = ct__ix_mul(j->e->pool, size, ct__emit_size(j->e, j->v, a));
    return size;
}
ct_kval ct__flattened_size(const ct_flattened *j, int g) {
    return ct__emit_ix(j->e, flattened_group_size(j, g));
}

static void flattened_unflatten(const ct_flattened *j, const ct_kval *at, ct_ix *index) {
    ct_ix size[CT_MAX_RANK];
    for (int a = 0; a < ct__type(j->v)->rank; a++) size[a] = ct__emit_size(j->e, j->v, a);
    for (int g = 0; g < j->groups; g++) {
        int first = j->start[g], n = j->start[g + 1] - first;
        if (n == 0) continue;
        ct_ix flat = ct__emit_bind(j->e, at[g], flattened_group_size(j, g));
        ct__unflatten_ix(j->e->pool, flat, &size[first], n, &index[first]);
    }
}

static ct_kval flattened_value(void *env, ct_kir *k, const ct_kval *at) {
    (void)k;
    const ct_flattened *j = env;
    ct_ix index[CT_MAX_RANK];
    flattened_unflatten(j, at, index);
    return ct__emit_value_apart(j->e, j->v, index, j->as);
}
static void flattened_store(void *env, ct_kir *k, const ct_kval *at, ct_kval v) {
    (void)k;
    const ct_flattened *j = env;
    ct_ix index[CT_MAX_RANK];
    flattened_unflatten(j, at, index);
    ct__emit_store_apart(j->e, j->v, index, v);
}
ct_source ct__flattened_source(ct_flattened *j) {
    return (ct_source){.value = flattened_value, .env = j, .along = -1};
}
ct_sink ct__flattened_sink(ct_flattened *j) {
    return (ct_sink){.store = flattened_store, .env = j};
}
