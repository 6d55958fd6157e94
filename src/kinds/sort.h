// Sorting and comparison of elements. NaN is larger than all numbers; -0 and 0 are equal.
#ifndef COTAN_KINDS_SORT_H
#define COTAN_KINDS_SORT_H

#include "kinds/kind.h"
#include "kinds/template.h"

// True if a is larger than b: for values of the kernel IR in their compute dtype, and for elements in memory,
// compared in a dtype to which both promote.
ct_kval ct__kir_larger(ct_kir *k, ct_dtype dtype, ct_kval a, ct_kval b);
typedef struct ct_element {
    ct_dtype dtype;
    const void *data;
    int64_t at;
} ct_element;
bool ct__is_larger(ct_element a, ct_element b, ct_dtype as);

// Top-k: the `count` largest elements of each row of x (rows, n) in descending order and their indices (i32);
// equal elements in the order of x, NaN first. A long row may be done in blocks of at least `count` elements:
// one kernel for the largest of each block, then one for the largest of those.
typedef enum ct_topk_part { CT_TOPK_ROWS, CT_TOPK_BLOCKS, CT_TOPK_OF_BLOCKS } ct_topk_part;
typedef struct ct_topk_spec {
    ct_topk_part part;
    // blocks of a row; elements of each block, except that the last one has the remainder
    int64_t blocks, width;
    // Buffers (rows, blocks, count) of the blocks' largest elements and their indices in x (i32).
    int block_values, block_indices;
    ct_dtype dtype;
    ct_kval rows, n;
    int64_t count; // <= n
    ct_source x;
    ct_sink values, indices; // not for CT_TOPK_BLOCKS
} ct_topk_spec;
void ct__template_topk(ct_kir *k, const ct_topk_spec *spec);

// Argsort: the permutation that sorts each line of keys (outer, n, inner) by the first key, then by the next
// one on ties; the sort is stable. Runs of 16 elements are sorted by counting the elements before each, then
// merged in pairs.
enum { CT_SORT_MOST_KEYS = 8, CT_SORT_RUN = 16 };
typedef struct ct_order_spec {
    int n_keys;
    bool falling;
    ct_kval outer, n, inner;
    ct_dtype dtype[CT_SORT_MOST_KEYS];
    ct_source key[CT_SORT_MOST_KEYS];
    // Buffers (2, outer * inner, n): runs are read from one half and written to the other.
    int runs[CT_SORT_MOST_KEYS], order; // the keys, and the original indices (i32)
    ct_sink out;
} ct_order_spec;
void ct__template_order(ct_kir *k, const ct_order_spec *spec);

#endif
