// The batching rules of kinds (batch.h).
#include "kinds/batch.h"

#include <string.h>

static bool batch_no_memory(const ct_batching *b, size_t bytes) {
    return ct__err_memory(&b->node->ctx->err, b->node->here, b->node->op->name, bytes);
}
static const ct_type *batch_operand_type(const ct_batching *b, int i) {
    return ct__type(b->node->in[i]);
}

// Reshapes t to the batch, `ones` axes of size 1, the sizes of a type, and, with `last`, one more axis of
// size 1.
static ct_tensor batch_reshape(const ct_batching *b, ct_tensor t, const ct_type *type, int ones,
                               int last) {
    int64_t dim[CT_MAX_RANK + 2] = {b->size};
    int n = 1;
    for (int i = 0; i < ones; i++) dim[n++] = 1;
    for (int a = 0; a < type->rank && n <= CT_MAX_RANK; a++) dim[n++] = ct__size_of(type, a);
    if (last) dim[n++] = 1;
    return ct_reshape_at(t, (ct_ints){n, dim}, b->node->here);
}

ct_tensor ct__batch_aligned(const ct_batching *b, int i, int rank) {
    const ct_type *type = batch_operand_type(b, i);
    if (!b->batched[i] || type->rank >= rank) return b->in[i];
    return batch_reshape(b, b->in[i], type, rank - type->rank, 0);
}

ct_tensor ct__batch_operand(const ct_batching *b, int i) {
    const ct_type *type = batch_operand_type(b, i);
    int64_t dim[CT_MAX_RANK + 1] = {b->size};
    if (b->batched[i]) return b->in[i];
    for (int a = 0; a < type->rank; a++) dim[a + 1] = ct__size_of(type, a);
    return ct_expand_at(b->in[i], (ct_ints){type->rank + 1, dim}, b->node->here);
}

ct_tensor ct__batch_move(const ct_batching *b, ct_tensor t, int rank, int from, int to) {
    int64_t axes[CT_MAX_RANK];
    int n = 0;
    if (from == to) return t;
    for (int a = 0; a < rank; a++) {
        if (a == from) continue;
        if (n == to) axes[n++] = from;
        axes[n++] = a;
    }
    if (n == to) axes[n++] = from;
    return ct_permute_at(t, (ct_ints){rank, axes}, b->node->here);
}

bool ct__batch_record(ct_batching *b, const void *attrs, const ct_tensor *in) {
    ct_tensor t = ct__record(b->node->op, attrs, in, b->n_in, b->node->here);
    ct__outputs(t, b->out, (size_t)b->n_out);
    return !b->node->ctx->err.code;
}

// ------------------------------------------------------------------------------------- attributes

// Prepends `first` to a list whose numbers are increased by `more`. Returns false if out of memory.
static bool batch_prepend(ct_arena *arena, ct_ints *list, int64_t first, int64_t increment) {
    int64_t *v = ct__arena(arena, ((size_t)list->n + 1) * sizeof *v);
    if (!v) return false;
    v[0] = first;
    for (int64_t i = 0; i < list->n; i++) v[i + 1] = list->v[i] + increment;
    *list = (ct_ints){list->n + 1, v};
    return true;
}
// Increments the listed axes. The list of a scalar becomes the axis that it is given.
static bool batch_shift_axes(ct_arena *arena, ct_ints *list, bool scalar) {
    int64_t *v = ct__arena(arena, ((size_t)list->n + 1) * sizeof *v);
    if (!v) return false;
    for (int64_t i = 0; i < list->n; i++) v[i] = list->v[i] + 1;
    if (scalar) v[0] = 1;
    *list = (ct_ints){scalar ? 1 : list->n, v};
    return true;
}

void *ct__batch_attrs(const ct_batching *b, bool leading) {
    const ct_opdef *op = b->node->op;
    ct_arena *arena = ct__top(b->node->ctx)->arena;
    char *attrs = ct__arena(arena, op->attr_size + 1);
    bool ok = attrs != NULL, scalar = b->n_in && batch_operand_type(b, 0)->rank == 0;
    if (ok && op->attr_size) memcpy(attrs, b->attrs, op->attr_size);
    for (size_t i = 0; i < op->n_fields && ok; i++) {
        void *at = attrs + op->fields[i].offset;
        switch (op->fields[i].means) {
        case CT_MEANS_axis: ++*(int64_t *)at; break;
        case CT_MEANS_leading: *(int64_t *)at += leading; break;
        case CT_MEANS_axes: ok = batch_shift_axes(arena, at, scalar); break;
        case CT_MEANS_permutation: ok = batch_prepend(arena, at, 0, 1); break;
        case CT_MEANS_sizes: ok = batch_prepend(arena, at, b->size, 0); break;
        case CT_MEANS_gaps:
        case CT_MEANS_offsets: ok = batch_prepend(arena, at, 0, 0); break;
        case CT_MEANS_limits: ok = batch_prepend(arena, at, CT_END, 0); break;
        case CT_MEANS_strides: ok = batch_prepend(arena, at, 1, 0); break;
        default: break;
        }
    }
    if (!ok) batch_no_memory(b, op->attr_size);
    return ok ? attrs : NULL;
}

// ------------------------------------------------------------------------------------------- rules

bool ct__batch_pointwise(ct_batching *b) {
    ct_tensor few[4], *in = few;
    if (b->n_in > 4) in = ct__arena(ct__top(b->node->ctx)->arena, (size_t)b->n_in * sizeof *in);
    if (!in) return batch_no_memory(b, (size_t)b->n_in * sizeof *in);
    for (int i = 0; i < b->n_in; i++) in[i] = ct__batch_aligned(b, i, b->node->out->rank);
    return ct__batch_record(b, b->attrs, in);
}

static bool batch_op_has_axes(const ct_opdef *op) {
    for (size_t i = 0; i < op->n_fields; i++)
        if (op->fields[i].means == CT_MEANS_axes) return true;
    return false;
}

bool ct__batch_shifted(ct_batching *b) {
    void *attrs = ct__batch_attrs(b, true);
    ct_tensor *in = ct__arena(ct__top(b->node->ctx)->arena, ((size_t)b->n_in + 1) * sizeof *in);
    // A list of axes cannot distinguish no axes from all axes of a scalar, so a scalar operand gets one more
    // axis.
    bool is_scalar = batch_op_has_axes(b->node->op) && batch_operand_type(b, 0)->rank == 0;
    if (!attrs || !in) return batch_no_memory(b, (size_t)b->n_in * sizeof *in);
    for (int i = 0; i < b->n_in; i++) {
        in[i] = ct__batch_operand(b, i);
        if (is_scalar) in[i] = batch_reshape(b, in[i], batch_operand_type(b, i), 0, 1);
    }
    bool ok = ct__batch_record(b, attrs, in);
    for (int i = 0; i < b->n_out && ok && is_scalar; i++)
        b->out[i] = batch_reshape(b, b->out[i], &b->node->out[i], 0, 0);
    return ok;
}

bool ct__no_vmap(ct_batching *b) {
    ct_ctx *ctx = b->node->ctx;
    return ct__refuse(ctx, CT_E_UNSUPPORTED, b->node->here, b->node->op->name,
                      "it cannot be batched");
}
