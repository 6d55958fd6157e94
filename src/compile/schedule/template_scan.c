// Going along an axis in order: running sums, the largest elements.
#include "base/number.h"
#include "compile/schedule/template_index.h"

enum { BLOCK = 64, GRAIN = 4096 };

// x[o, k, j] added to the sum of its line, and the sum stored.
static void cumsum_step(ct_kir *k, const ct_cumsum_spec *spec, ct_kval sum, ct_kval o, ct_kval j) {
    ct_kval step = ct__kir_loop(k, CT_BIND_SEQ, spec->n, "along the axis");
    if (spec->reverse) step = ct__kir_sub(k, ct__kir_addi(k, spec->n, -1), step);
    const ct_kval at[3] = {o, step, j};
    ct__kir_set(k, sum, ct__kir_add(k, ct__kir_get(k, sum), ct__source_load(k, &spec->x, 3, at)));
    ct__sink_store(k, &spec->out, 3, at, ct__kir_get(k, sum));
    ct__kir_end(k);
}

void ct__template_cumsum(ct_kir *k, const ct_cumsum_spec *spec) {
    int64_t inner = 0, n = 0;
    bool known = ct__kir_is_int(k, spec->inner, &inner), single = known && inner == 1;
    if (!ct__kir_is_int(k, spec->n, &n) || n < 1) n = 1;
    ct_kval zero = ct__kir_const(k, ct__kir_held(spec->dtype), 0);
    // A task: some lines of a matrix of lines, or a block of lines side by side.
    ct_kval lines = single ? spec->outer : spec->inner;
    int64_t block = single ? (n >= GRAIN ? 1 : GRAIN / n) : BLOCK;
    ct_kval blocks = ct__kir_ceil_div(k, lines, block);
    ct_kval task = ct__kir_loop(k, CT_BIND_CORE,
                                single ? blocks : ct__kir_mul(k, spec->outer, blocks), "block");
    ct_kval first = ct__kir_muli(k, single ? task : ct__kir_mod(k, task, blocks), block);
    ct_kval some = ct__kir_min(k, ct__kir_sub(k, lines, first), ct__kir_int(k, block));
    ct_kval line = ct__kir_loop(k, single ? CT_BIND_SEQ : CT_BIND_VECTOR, some, "line");
    line = ct__kir_add(k, first, line);
    ct_kval sum = ct__kir_reg(k, zero);
    cumsum_step(k, spec, sum, single ? line : ct__kir_div(k, task, blocks),
                single ? ct__kir_int(k, 0) : line);
    ct__kir_end(k);
    ct__kir_end(k);
}

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
    ct__kir_set(
        k, at,
        ct__kir_add(k, ct__kir_get(k, at), ct__kir_select(k, passed, zero, ct__kir_int(k, 1))));
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
