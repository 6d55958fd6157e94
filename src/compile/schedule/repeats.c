// Estimates, from the sizes of types alone, how often elements of an operand are read.
#include "compile/schedule/sched.h"

enum { REPEATS_FEW_ROWS = 8 }; // fewer rows are not worth storing positions for

int64_t ct__guess(const ct_type *t, uint32_t mask) {
    int64_t n = 1;
    for (int a = 0; a < t->rank; a++)
        if (mask >> a & 1 && n < (INT64_MAX >> 40)) n *= ct__is_dyn(t, a) ? 64 : t->dim[a];
    return n;
}

// True if positions along the lanes are computed anew for each of many rows.
static bool repeats_positions(const ct_node *node) {
    const ct_type *x = ct__type(node->in[0]), *at = ct__type(node->in[1]);
    const int axis = ct__along(node).axis;
    const uint32_t trailing = axis + 1 < 32 ? ~0u << (axis + 1) : 0;
    return ct__guess(x, trailing) < CT_LANES &&
           ct__guess(node->out, ~0u) >=
               REPEATS_FEW_ROWS * ct__guess(at, ~0u) * ct__guess(x, trailing);
}

// True if each element of the operand is read many times, in loops that do not keep it: a value along the
// lanes where an axis before is repeated, or a value that is gathered more often than it has elements.
bool ct__repeats_operand(const ct_node *node, int operand) {
    const ct_type *in = ct__type(node->in[operand]), *out = node->out;
    if (node->op->kind->positions) // a gather
        return operand == 0 ? ct__guess(out, ~0u) >= ct__guess(in, ~0u) : repeats_positions(node);
    const bool expands = ct__is_view(node) && ct__guess(out, ~0u) > ct__guess(in, ~0u);
    if (!ct__is_pointwise(node) && !expands) return false;
    if (in->rank == 0 || ct__is_one(in, in->rank - 1)) return false;
    for (int a = 0; a < out->rank - 1; a++) {
        const int own = a - (out->rank - in->rank);
        if (!ct__is_one(out, a) && (own < 0 || ct__is_one(in, own))) return true;
    }
    return false;
}
