// Going along an axis in order. The operand is seen as (outer, n, inner).
#ifndef COTAN_KINDS_SCAN_H
#define COTAN_KINDS_SCAN_H

#include "kinds/template.h"

// out[o, k, j] = start op x[o, 0, j] op ... op x[o, k, j], one after the other in x's dtype, where
// start is what the reduction starts with; reverse: from the last one down.
typedef struct ct_scan_spec {
    ct_kred op;
    ct_dtype dtype;
    ct_kval outer, n, inner;
    bool reverse;
    ct_source x;
    ct_sink out;
} ct_scan_spec;
void ct__template_scan(ct_kir *k, const ct_scan_spec *spec);

#endif
