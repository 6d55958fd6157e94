// Kernels that add at positions which are data, and kernels that go along an axis in order:
// scatter_add, cumsum, topk. Their operands are seen with few axes; the caller joins axes.
#ifndef COTAN_COMPILE_TEMPLATE_INDEX_H
#define COTAN_COMPILE_TEMPLATE_INDEX_H

#include "compile/schedule/template.h"

// x is (batch, middle, n, tail), the positions (batch, picks), the updates (batch, middle, picks,
// tail).
typedef struct ct_picking {
    ct_kval batch, middle, n, picks, tail;
} ct_picking;

// out = x; then for i in order: out[b, m, positions[b, i], t] += updates[b, m, i, t]. Each element
// is one chain of additions from x on, in the order of i; positions outside are left out.
typedef struct ct_scatter_spec {
    ct_picking size;
    ct_source x, positions, updates;
    int out; // a dense buffer that can be read and written
} ct_scatter_spec;
void ct__template_scatter_add(ct_kir *k, const ct_scatter_spec *spec);

// out[o, k, j] = +0 + x[o, 0, j] + ... + x[o, k, j], one addition after the other in x's dtype;
// reverse: from the last one down.
typedef struct ct_cumsum_spec {
    ct_dtype dtype;
    ct_kval outer, n, inner;
    bool reverse;
    ct_source x;
    ct_sink out;
} ct_cumsum_spec;
void ct__template_cumsum(ct_kir *k, const ct_cumsum_spec *spec);

// The `count` largest of each row of x (rows, n) in falling order and where they stood (i32);
// equals in the order of x, NaN before all.
typedef struct ct_topk_spec {
    ct_dtype dtype;
    ct_kval rows, n;
    int64_t count; // <= n
    ct_source x;
    ct_sink values, places;
} ct_topk_spec;
void ct__template_topk(ct_kir *k, const ct_topk_spec *spec);

#endif
