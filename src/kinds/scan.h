// Going along an axis in order. Operands are seen as (outer, n, inner).
#ifndef COTAN_KINDS_SCAN_H
#define COTAN_KINDS_SCAN_H

#include "graph/op.h"
#include "kinds/template.h"
#include "kir/target.h"

enum { CT_SCAN_BLOCK = 1024, CT_SCAN_MOST_STATE = 2 };

// The axis in blocks of CT_SCAN_BLOCK from its first element on (reverse: from its last). In a block
// q, s is what a monoid puts together of all elements up to one, from its start, in order; t(q) is
// the s of the block's last element. The carry c(0) is t(0), c(q) = c(q - 1) join t(q). An element of
// the output is s in block 0, else c(q - 1) join s.
//
// The monoid is a reduction, or the op's own: then an element is one of each of n operands, and the
// state has n values, of which the last is given out.
typedef enum ct_scan_pass {
    CT_SCAN_WHOLE,  // a line after the other, each from its beginning to its end
    CT_SCAN_TOTALS, // or in three launches, blocks side by side: t of each block into `carry`,
    CT_SCAN_CARRY,  // in place, for each block c of the one before it,
    CT_SCAN_BLOCKS, // then the output
} ct_scan_pass;
typedef struct ct_scan_spec {
    ct_scan_pass pass;
    ct_kred op; // CT_RED_NONE: `monoid`
    const ct_monoid *monoid;
    const ct_node *node; // for the monoid
    int n_state;         // operands
    ct_dtype dtype;
    ct_kval outer, n, inner;
    bool reverse;
    ct_source x[CT_SCAN_MOST_STATE];
    ct_sink out;
    int carry; // buffer (outer, blocks, n_state, inner)
    ct_target target;
} ct_scan_spec;
void ct__template_scan(ct_kir *k, const ct_scan_spec *spec);

#endif
