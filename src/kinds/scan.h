// Scans: running reductions along an axis. Operands are seen as (outer, n, inner).
#ifndef COTAN_KINDS_SCAN_H
#define COTAN_KINDS_SCAN_H

#include "graph/op.h"
#include "kinds/template.h"
#include "kir/target.h"

enum { CT_SCAN_BLOCK = 1024, CT_SCAN_MOST_STATE = 2 };

// The axis is split into blocks of CT_SCAN_BLOCK from its first element on (reverse: from its last). In block
// q, s is the monoid's combination of all elements of the block up to the current one, in order; t(q) is the
// s of the block's last element. The carry c(0) is t(0), and c(q) = c(q - 1) join t(q). An element of the
// output is s in block 0, else c(q - 1) join s.
//
// The monoid is a reduction, or the op's own: then an element is one element of each of n operands, and the
// state has n values, the last of which is the result.
typedef enum ct_scan_pass {
    CT_SCAN_WHOLE,  // one launch: each line sequentially from beginning to end
    CT_SCAN_TOTALS, // or three launches with parallel blocks: t of each block into `carry`,
    CT_SCAN_CARRY,  // then, in place, the c of the previous block for each block,
    CT_SCAN_BLOCKS, // then the output
} ct_scan_pass;
typedef struct ct_scan_spec {
    ct_scan_pass pass;
    ct_kred op; // CT_RED_NONE: `monoid`
    const ct_monoid *monoid;
    const ct_node *node; // the node that the monoid belongs to
    int n_state;         // number of operands
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
