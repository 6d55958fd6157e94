// What needs an order among elements. NaN is larger than all numbers, -0 and 0 are equal.
#ifndef COTAN_KINDS_SORT_H
#define COTAN_KINDS_SORT_H

#include "kinds/kind.h"
#include "kinds/template.h"

// Is a larger than b? As values of the kernel IR, held in their dtype, and as elements in memory,
// compared as a dtype to which both promote.
ct_kval ct__kir_larger(ct_kir *k, ct_dtype dtype, ct_kval a, ct_kval b);
typedef struct ct_element {
    ct_dtype dtype;
    const void *data;
    int64_t at;
} ct_element;
bool ct__is_larger(ct_element a, ct_element b, ct_dtype as);

// The `count` largest of each row of x (rows, n) in falling order and where they stood (i32);
// equals in the order of x, NaN before all. A long row may be done by blocks of at least `count`
// elements: a kernel for the largest of each, then one for the largest of those.
typedef enum ct_topk_part { CT_TOPK_ROWS, CT_TOPK_BLOCKS, CT_TOPK_OF_BLOCKS } ct_topk_part;
typedef struct ct_topk_spec {
    ct_topk_part part;
    int64_t blocks, width; // of a row; elements of each, but the last, which has what is left
    // Buffers (rows, blocks, count) of the blocks' largest, and where they stood in x (i32).
    int block_values, block_places;
    ct_dtype dtype;
    ct_kval rows, n;
    int64_t count; // <= n
    ct_source x;
    ct_sink values, places; // not of CT_TOPK_BLOCKS
} ct_topk_spec;
void ct__template_topk(ct_kir *k, const ct_topk_spec *spec);

// Where the elements of each line of keys (outer, n, inner) stand once they are in order: by the
// first key, equals by the next one, equals in all of them as they stood. Runs of 16 elements are
// ordered by counting what stands before each, then merged in pairs.
enum { CT_SORT_MOST_KEYS = 8, CT_SORT_RUN = 16 };
typedef struct ct_order_spec {
    int n_keys;
    bool falling;
    ct_kval outer, n, inner;
    ct_dtype dtype[CT_SORT_MOST_KEYS];
    ct_source key[CT_SORT_MOST_KEYS];
    // Buffers (2, outer * inner, n): runs are read from one half, and written into the other one.
    int runs[CT_SORT_MOST_KEYS], order; // the keys, and where they stood (i32)
    ct_sink out;
} ct_order_spec;
void ct__template_order(ct_kir *k, const ct_order_spec *spec);

#endif
