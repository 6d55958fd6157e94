// What needs an order among elements: the largest ones.
#include "kinds/sort.h"

#include "kinds/batch.h"
#include "kinds/joined.h"

// Does a stand before b? Equals do not.
static ct_kval before(ct_kir *k, ct_dtype dtype, ct_kval a, ct_kval b) {
    ct_kval larger = ct__kir_lt(k, b, a);
    if (!ct__is_float(dtype)) return larger;
    ct_kval a_nan = ct__kir_bin(k, CT_K_NE, a, a), b_is = ct__kir_bin(k, CT_K_EQ, b, b);
    return ct__kir_bin(k, CT_K_OR, larger, ct__kir_bin(k, CT_K_AND, a_nan, b_is));
}

// The best so far stand in order in scratch; an element that belongs to them is inserted behind its
// equals. Most elements of a long row are turned away by one comparison with the last of the best.
void ct__template_topk(ct_kir *k, const ct_topk_spec *spec) {
    int64_t count = spec->count;
    int best = ct__kir_local(k, spec->dtype, count > 0 ? count : 1);
    int place = ct__kir_local(k, CT_I32, count > 0 ? count : 1);
    ct_kval row = ct__kir_loop(k, CT_BIND_CORE, spec->rows, "row");
    ct_kval zero = ct__kir_int(k, 0), all = ct__kir_int(k, count);
    ct_kval i = ct__kir_loop(k, CT_BIND_SEQ, count > 0 ? spec->n : zero, "element");
    ct_kval v = ct__source_load(k, &spec->x, 2, (ct_kval[]){row, i});
    ct_kval have = ct__kir_min(k, i, all), full = ct__kir_bin(k, CT_K_LE, all, i);
    ct_kval last = ct__kir_load_if(k, best, ct__kir_int(k, count > 0 ? count - 1 : 0), full);
    ct_kval better = before(k, spec->dtype, v, last);
    ct__kir_if(k, ct__kir_bin(k, CT_K_OR, ct__kir_un(k, CT_K_NOT, full), better));
    // Its place: behind all that it does not stand before.
    ct_kval at = ct__kir_reg(k, zero);
    ct_kval j = ct__kir_loop(k, CT_BIND_SEQ, have, "among the best");
    ct_kval passed = before(k, spec->dtype, v, ct__kir_load(k, best, j));
    ct_kval step = ct__kir_select(k, passed, zero, ct__kir_int(k, 1));
    ct__kir_set(k, at, ct__kir_add(k, ct__kir_get(k, at), step));
    ct__kir_end(k);
    ct_kval to = ct__kir_get(k, at), end = ct__kir_min(k, have, ct__kir_int(k, count - 1));
    j = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_sub(k, end, to), "make room");
    ct_kval free = ct__kir_sub(k, end, j), from = ct__kir_addi(k, free, -1);
    ct__kir_store(k, best, free, ct__kir_load(k, best, from));
    ct__kir_store(k, place, free, ct__kir_load(k, place, from));
    ct__kir_end(k);
    ct__kir_store(k, best, to, v);
    ct__kir_store(k, place, to, ct__kir_cast(k, i, CT_I32));
    ct__kir_end(k);
    ct__kir_end(k);
    j = ct__kir_loop(k, CT_BIND_SEQ, all, "result");
    ct__sink_store(k, &spec->values, 2, (ct_kval[]){row, j}, ct__kir_load(k, best, j));
    ct__sink_store(k, &spec->places, 2, (ct_kval[]){row, j}, ct__kir_load(k, place, j));
    ct__kir_end(k);
    ct__kir_end(k);
}

static bool sort_kernels(ct_sched *s, ct_node *node) {
    ct_emit *e = ct__emit_new(s, node);
    if (!e) return false;
    ct__emit_declare_sizes(e, node);
    int last = ct__type(node->in[0])->rank - 1;
    ct_dtype as = (ct_dtype)ct__type(node->in[0])->dtype;
    ct_joined x = ct__join(e, node->in[0], as, 2, (int[]){0, last});
    ct_joined values = ct__join(e, (ct_val){node, 0}, as, 2, (int[]){0, last});
    ct_joined places = ct__join(e, (ct_val){node, 1}, CT_I32, 2, (int[]){0, last});
    ct_topk_spec spec = {.dtype = as,
                         .rows = ct__joined_size(&x, 0),
                         .n = ct__joined_size(&x, 1),
                         .count = ct__along(node).count,
                         .x = ct__joined_source(&x),
                         .values = ct__joined_sink(&values),
                         .places = ct__joined_sink(&places)};
    ct__template_topk(e->kir, &spec);
    return ct__emit_done(e, (double)ct__count(ct__type(node->in[0])));
}

const ct_kind ct__kind_sort = {
    .name = "sort",
    .doc = "Elements along an axis in their order.",
    .scheduled = CT_TEMPLATE,
    .kernels = sort_kernels,
    .copies = true,
    .batch = ct__batch_shifted,
};
