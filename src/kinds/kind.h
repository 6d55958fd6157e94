// What ops of one kind have in common: one record a kind, each in one file of this folder.
//
// Passes ask the record of a node's kind how it is scheduled, sized, bounded in error and fused;
// they name no kind but the structural ones (graph/op.h), which scripts/check-layers sees to.
#ifndef COTAN_KINDS_KIND_H
#define COTAN_KINDS_KIND_H

#include "graph/graph.h"

typedef struct ct_sched ct_sched; // the scheduler of a plan
typedef struct ct_emit ct_emit;   // a kernel being written (kinds/emit.h)

// Who writes the loops of a node.
typedef enum ct_scheduled {
    CT_STRUCTURAL, // none: a leaf has memory, compositions and transforms are replaced before, a
                   // loop is a list of launches
    CT_POINTWISE,  // the scheduler: an element of the output is computed from elements of the
                   // operands at the same index, which broadcast. Inlined where it is used, and
                   // perhaps computed twice.
    CT_MAPPED,     // the scheduler: an element is one of an operand, at an index that op.map tells.
                   // Inlined, too.
    CT_REDUCED,    // the scheduler: loops over axes that go; computed once
    CT_TEMPLATE,   // `kernels`; operands are memory, or views of memory
    CT_CALLED,     // nobody: the op's own function gets operands and results whole, in memory of
                   // the host
} ct_scheduled;

struct ct_kind {
    const char *name, *doc;
    // Kernels.
    ct_scheduled scheduled;
    // Its result may lie where operand 0 lies: then it writes the elements that it changes alone.
    bool changes_operand;
    // Element `at` of v, where it is used: its own dtype, 16-bit floats as f32. Not TEMPLATE.
    ct_kval (*value)(ct_emit *e, ct_val v, const ct_ix *at);
    bool (*kernels)(ct_sched *s, ct_node *node); // TEMPLATE: appends the node's launches
    // TEMPLATE of ops that have bodies: does it take the node? Else the body replaces it.
    bool (*takes)(const ct_node *node);
    bool epilogue; // TEMPLATE: what follows elementwise is computed from each element before it is
                   // stored, so that the node's own value may need no memory
    bool
        packs; // TEMPLATE: reads each element of its operands a few times, to pack it: what is cheap
               // to compute from fewer bytes is computed there
    // How near kernels come to the reference. Rounded additions or products behind an element, one
    // after the other, as the kernel makes them or (in_order) each element after the one before it,
    // as the reference does; 0, or NULL: it does not accumulate, so the record of the op says.
    double (*roundings)(const ct_node *node, bool in_order);
    bool rounds_each; // 16-bit sums are rounded after each addition, not once at their end
    bool copies;      // elements are some of the operands' or numbers: it makes no NaN by itself
    // Of how many products an element is the sum: worth more memory than doing it again. NULL: none.
    double (*products)(const ct_node *node);
    int positions; // operand whose elements are positions along the axis; 0: none
    // Reference evaluation where the op has none of its own: from a scalar function, or a monoid.
    bool (*eval)(const ct_ref *ref);
    // Records the node with a batch axis. NULL: no rule.
    bool (*batch)(ct_batching *b);
};

extern const ct_kind ct__kind_elementwise, ct__kind_reduce, ct__kind_movement, ct__kind_source,
    ct__kind_contraction, ct__kind_gather, ct__kind_scatter, ct__kind_scan, ct__kind_sort,
    ct__kind_search, ct__kind_pack, ct__kind_call, ct__kind_attention, ct__kind_attention_backward,
    ct__kind_quantised, ct__kind_dequantised;

// A node whose elements are elements of its one operand (or a fill value) in other places.
static inline bool ct__is_view(const ct_node *node) {
    return node->op->map && (node->n_in == 1 || node->op->waits);
}
static inline bool ct__is_inlined(const ct_node *node) {
    return node->op->kind->scheduled == CT_POINTWISE || node->op->kind->scheduled == CT_MAPPED;
}

// Reads a part of an element, or the bits of a float narrower than f32, which no value has: they are read from memory.
static inline bool ct__reads_memory(const ct_node *n) {
    if (n->op->part) return true;
    if (!n->op->reinterprets) return false;
    ct_dtype from = (ct_dtype)ct__type(n->in[0])->dtype, to = (ct_dtype)n->out->dtype;
    return from != to && (ct__is_narrow_float(from) || ct__is_narrow_float(to));
}

// Elementwise: the dtype in which a node computes, its operands' promoted one (without a leading
// condition).
ct_dtype ct__compute_dtype(const ct_node *node);

#endif
