// What needs an order among elements. The operand is seen as (rows, n).
#ifndef COTAN_KINDS_SORT_H
#define COTAN_KINDS_SORT_H

#include "kinds/template.h"

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
