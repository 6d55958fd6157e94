// Movement: each element is one element of an operand, or a fill value (reshape, permute, slice, concat ...).
#include "kinds/movement.h"

#include "kinds/batch.h"

ct_kval ct__value_by_map(ct_emit *e, ct_val v, const ct_ix *at) {
    const ct_node *node = v.node;
    ct_map map;
    ct_dtype dtype = (ct_dtype)node->out->dtype;
    if (!ct__emit_map(e, node, at, &map)) return -1;
    if (map.value >= 0) { // computed from the index itself
        ct_kval value = ct__emit_ix(e, map.value);
        return dtype == CT_I64 || value < 0 ? value : ct__kir_cast(e->kir, value, dtype);
    }
    ct_ix outer = e->guard, before = CT_IX_NONE; // the condition that no earlier piece was valid
    ct_kval value[CT_MAP_PIECES];
    int n = 0;
    for (; n < map.n_pieces; n++) {
        const ct_map_piece *piece = &map.piece[n];
        int64_t never;
        value[n] = -1;
        if (piece->valid >= 0 && ct__ix_is_int(e->pool, piece->valid, &never) && !never) continue;
        e->guard = ct__ix_and(e->pool, outer, ct__ix_and(e->pool, before, piece->valid));
        value[n] = piece->operand < 0
                       ? ct__kir_const(e->kir, dtype, piece->fill)
                       : ct__emit_value(e, node->in[piece->operand], piece->from, dtype);
        e->guard = outer;
        if (piece->valid < 0 || (ct__ix_is_int(e->pool, piece->valid, &never) && never)) {
            n++;
            break;
        }
        before = ct__ix_and(e->pool, before, ct__ix_not(e->pool, piece->valid));
    }
    ct_kval r = -1;
    for (int i = n - 1; i >= 0; i--) {
        if (value[i] < 0) continue;
        r = r < 0 ? value[i]
                  : ct__kir_select(e->kir, ct__emit_condition(e, map.piece[i].valid), value[i], r);
    }
    return r;
}

// Sizes are those of the output; the axes of an operand of lower rank are aligned with its last axes.
static bool movement_batch(ct_batching *b) {
    const ct_type *in = ct__type(b->node->in[0]), *out = b->node->out;
    if (b->n_in > 1 || in->rank >= out->rank) return ct__batch_shifted(b);
    ct_tensor aligned = ct__batch_aligned(b, 0, out->rank);
    const void *attrs = ct__batch_attrs(b, false);
    return attrs && ct__batch_record(b, attrs, &aligned);
}

const ct_kind ct__kind_movement = {
    .name = "movement",
    .doc = "Each element is one element of an operand, or a fill value: index arithmetic.",
    .scheduled = CT_MAPPED,
    .value = ct__value_by_map,
    .copies = true,
    .batch = movement_batch,
};
