// The loop nest of a group's kernel: what nest.c, which chooses and writes it, and nest_pointwise.c share.
#ifndef COTAN_COMPILE_NEST_H
#define COTAN_COMPILE_NEST_H

#include "compile/schedule/sched.h"

enum {
    CT_NEST_MOST_INNER = 16,     // distinct inner loop variables of a kernel
    CT_NEST_MOST_PREFETCHED = 8, // operands of a row
};

typedef struct ct_nest {
    ct_emit *e;
    ct_group *g;
    // number of trailing axes (pointwise) or row axes (reductions) in the LANES loop
    int lanes;
    bool flat;            // inner axes of stored values are one loop
    uint32_t reused_mask; // the group's expensive values that later loops of a row reuse
    bool reuse_decided;   // `reused_mask` is known
    int pass;             // of a split reduction: 1 blocks, 2 their fold; 0: not split
    // (n_units) buffer of the results of blocks (split), or of the accumulators (sums over rows)
    uint32_t *partials;
    ct_ix accumulator;        // sums over rows: index of the current row's accumulator
    const ct_cut *axis_split; // (rank) pointwise: how each axis is split; NULL: no axis is
    // pointwise: each axis is a loop of its own, so that its conditions can be examined
    bool separate_axes;
    bool unrolls; // reductions of a few elements are unrolled, so that the kernel is pointwise
    // pointwise: 1 + the axis that is split into cells of as many elements as there are lanes; an operand
    // is contiguous along it. The lanes' axis follows. 0: none
    int transposed;
    ct_shares trip_counts; // pointwise: trip counts of loops whose extents are no constants
    ct_ix row[CT_MAX_RANK], row_size[CT_MAX_RANK];
    // index of the row whose elements are loops inside; CT_IX_NONE: there is none
    ct_ix row_index;
    size_t row_first_access; // number of accesses before the row
    // (n_prefetched) accesses whose later rows are prefetched
    size_t prefetched[CT_NEST_MOST_PREFETCHED];
    int n_prefetched;
    int n_row_operands; // number of operands that advance by rows, once it is known
    ct_ix lane_vars[CT_NEST_MOST_INNER]; // variables of LANES loops
    int n_lane_vars;
    struct {
        ct_ix extent, var;
        int nth;
    } inner[CT_NEST_MOST_INNER];
    int n_inner;
} ct_nest;

// nest.c
//
// Returns the value of a size; a dynamic size counts as 64.
int64_t ct__nest_estimate(const ct_emit *e, ct_ix x);
// Returns the product of sizes as a double, since it may exceed 64 bits.
double ct__nest_estimate_product(const ct_emit *e, const ct_ix *size, int n);
ct_ix ct__nest_product(ct_emit *e, const ct_ix *size, int n);
bool ct__nest_is_dynamic(const ct_emit *e, ct_ix x);
bool ct__nest_is_one(const ct_emit *e, ct_ix x);

// nest_pointwise.c
ct_val ct__nest_space_value(const ct_group *g);
void ct__nest_write_pointwise(ct_nest *n);
extern const ct_cut ct__nest_whole_axis; // one loop over all of it

#endif
