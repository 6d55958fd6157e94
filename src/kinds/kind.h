// Properties that all ops of one kind share: one record per kind, each in one file of this folder.
//
// Passes ask the record of a node's kind how the node is scheduled, sized, bounded in error and fused. They
// name only the structural kinds (graph/op.h), which scripts/check-layers enforces.
#ifndef COTAN_KINDS_KIND_H
#define COTAN_KINDS_KIND_H

#include "graph/graph.h"

typedef struct ct_sched ct_sched; // the scheduler of a plan
typedef struct ct_emit ct_emit;   // the kernel builder (kinds/emit.h)

// How the loops of a node are written.
typedef enum ct_scheduled {
    // No loops: a leaf has memory, compositions and transforms are expanded before scheduling, and a loop is
    // a list of launches.
    CT_STRUCTURAL,
    // By the scheduler: an element of the output is computed from elements of the operands at the same index,
    // which broadcast. The node is inlined where it is used, and may be computed more than once.
    CT_POINTWISE,
    // By the scheduler: an element is one element of an operand, at an index that op.map computes. Inlined,
    // too.
    CT_MAPPED,
    CT_REDUCED,  // by the scheduler: loops over the reduced axes; computed once
    CT_TEMPLATE, // by `kernels`; operands are memory, or views of memory
    CT_CALLED,   // No kernel: the op's own function gets whole operands and results in host memory.
} ct_scheduled;

struct ct_kind {
    const char *name, *doc;
    // Kernels.
    ct_scheduled scheduled;
    // True if the result may be computed in place of operand 0, writing only the elements that change.
    bool changes_operand;
    // Returns element `at` of v where it is used, in its own dtype; 16-bit floats as f32. Not for TEMPLATE.
    ct_kval (*value)(ct_emit *e, ct_val v, const ct_ix *at);
    bool (*kernels)(ct_sched *s, ct_node *node); // TEMPLATE: appends the node's launches
    // TEMPLATE, for ops that have bodies: true if the template supports the node. Else the body replaces it.
    bool (*takes)(const ct_node *node);
    // TEMPLATE: elementwise users may be computed from each element before it is stored, so that the node's
    // own value may need no memory.
    bool epilogue;
    // TEMPLATE: reads each element of its operands only a few times, to pack it. So a cheap operand that is
    // computed from fewer bytes is fused into the packing.
    bool packs;
    // Error bound of kernels against the reference. Returns the number of rounded additions or products, one
    // after the other, that an element takes in the kernel, or with in_order in the reference, which adds
    // each element to the previous sum. 0, or NULL: the kind does not accumulate, and the op's record has the
    // bound.
    double (*roundings)(const ct_node *node, bool in_order);
    bool rounds_each; // 16-bit sums are rounded after each addition, not once at the end
    bool copies;      // elements are copies of the operands' or constants, so the op creates no NaN
    // Returns the number of products that are summed for an element, which remat takes as its cost. NULL:
    // none.
    double (*products)(const ct_node *node);
    int positions; // operand whose elements are indices along the axis; 0: none
    // Reference evaluation if the op has none of its own: from a scalar function, or a monoid.
    bool (*eval)(const ct_ref *ref);
    // Records the node with a batch axis. NULL: no rule.
    bool (*batch)(ct_batching *b);
};

extern const ct_kind ct__kind_elementwise, ct__kind_reduce, ct__kind_movement, ct__kind_source,
    ct__kind_contraction, ct__kind_gather, ct__kind_scatter, ct__kind_scan, ct__kind_sort,
    ct__kind_search, ct__kind_pack, ct__kind_call, ct__kind_attention, ct__kind_attention_backward,
    ct__kind_quantised, ct__kind_dequantised;

// True if the node's elements are elements of its only operand (or a fill value) at other indices.
static inline bool ct__is_view(const ct_node *node) {
    return node->op->map && (node->n_in == 1 || node->op->waits);
}
static inline bool ct__is_inlined(const ct_node *node) {
    return node->op->kind->scheduled == CT_POINTWISE || node->op->kind->scheduled == CT_MAPPED;
}

// True if the node reads a part of an element, or the bits of a float narrower than f32. No value in a
// register has those, so they are loaded from memory.
static inline bool ct__reads_memory(const ct_node *n) {
    if (n->op->part) return true;
    if (!n->op->reinterprets) return false;
    ct_dtype from = (ct_dtype)ct__type(n->in[0])->dtype, to = (ct_dtype)n->out->dtype;
    return from != to && (ct__is_narrow_float(from) || ct__is_narrow_float(to));
}

// Elementwise: returns the dtype in which a node computes, the promoted dtype of its operands (without a
// leading condition).
ct_dtype ct__compute_dtype(const ct_node *node);

#endif
