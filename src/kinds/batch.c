#include "kinds/batch.h"

#include <string.h>

static bool no_memory(const ct_batching *b, size_t bytes) {
    return ct__err_memory(&b->node->ctx->err, b->node->here, b->node->op->name, bytes);
}
static const ct_type *type_of(const ct_batching *b, int i) { return ct__type(b->node->in[i]); }

// t with the sizes of a type behind the batch, `ones` axes of 1 between, and `last` of 1 at the end.
static ct_tensor batched_as(const ct_batching *b, ct_tensor t, const ct_type *type, int ones,
                            int last) {
    int64_t dim[CT_MAX_RANK + 2] = {b->size};
    int n = 1;
    for (int i = 0; i < ones; i++) dim[n++] = 1;
    for (int a = 0; a < type->rank && n <= CT_MAX_RANK; a++) dim[n++] = ct__size_of(type, a);
    if (last) dim[n++] = 1;
    return ct_reshape_at(t, (ct_ints){n, dim}, b->node->here);
}

ct_tensor ct__batch_aligned(const ct_batching *b, int i, int rank) {
    const ct_type *type = type_of(b, i);
    if (!b->batched[i] || type->rank >= rank) return b->in[i];
    return batched_as(b, b->in[i], type, rank - type->rank, 0);
}

ct_tensor ct__batch_operand(const ct_batching *b, int i) {
    const ct_type *type = type_of(b, i);
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

// A longer list: `first`, then the list's numbers, each with `more` added.
static bool prepend(ct_arena *arena, ct_ints *list, int64_t first, int64_t more) {
    int64_t *v = ct__arena(arena, ((size_t)list->n + 1) * sizeof *v);
    if (!v) return false;
    v[0] = first;
    for (int64_t i = 0; i < list->n; i++) v[i + 1] = list->v[i] + more;
    *list = (ct_ints){list->n + 1, v};
    return true;
}
// The axes named, each one further back; of an operand without axes the one that it is given.
static bool shift_axes(ct_arena *arena, ct_ints *list, bool scalar) {
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
    bool ok = attrs != NULL, scalar = b->n_in && type_of(b, 0)->rank == 0;
    if (ok && op->attr_size) memcpy(attrs, b->attrs, op->attr_size);
    for (size_t i = 0; i < op->n_fields && ok; i++) {
        void *at = attrs + op->fields[i].offset;
        switch (op->fields[i].means) {
        case CT_MEANS_axis: ++*(int64_t *)at; break;
        case CT_MEANS_leading: *(int64_t *)at += leading; break;
        case CT_MEANS_axes: ok = shift_axes(arena, at, scalar); break;
        case CT_MEANS_permutation: ok = prepend(arena, at, 0, 1); break;
        case CT_MEANS_sizes: ok = prepend(arena, at, b->size, 0); break;
        case CT_MEANS_gaps:
        case CT_MEANS_offsets: ok = prepend(arena, at, 0, 0); break;
        case CT_MEANS_limits: ok = prepend(arena, at, CT_END, 0); break;
        case CT_MEANS_strides: ok = prepend(arena, at, 1, 0); break;
        default: break;
        }
    }
    if (!ok) no_memory(b, op->attr_size);
    return ok ? attrs : NULL;
}

// ------------------------------------------------------------------------------------------- rules

bool ct__batch_pointwise(ct_batching *b) {
    ct_tensor few[4], *in = few;
    if (b->n_in > 4) in = ct__arena(ct__top(b->node->ctx)->arena, (size_t)b->n_in * sizeof *in);
    if (!in) return no_memory(b, (size_t)b->n_in * sizeof *in);
    for (int i = 0; i < b->n_in; i++) in[i] = ct__batch_aligned(b, i, b->node->out->rank);
    return ct__batch_record(b, b->attrs, in);
}

static bool names_axes(const ct_opdef *op) {
    for (size_t i = 0; i < op->n_fields; i++)
        if (op->fields[i].means == CT_MEANS_axes) return true;
    return false;
}

bool ct__batch_shifted(ct_batching *b) {
    void *attrs = ct__batch_attrs(b, true);
    ct_tensor *in = ct__arena(ct__top(b->node->ctx)->arena, ((size_t)b->n_in + 1) * sizeof *in);
    // No list of axes can say "none of them, but there is one": the operand gets one more.
    bool bare = names_axes(b->node->op) && type_of(b, 0)->rank == 0;
    if (!attrs || !in) return no_memory(b, (size_t)b->n_in * sizeof *in);
    for (int i = 0; i < b->n_in; i++) {
        in[i] = ct__batch_operand(b, i);
        if (bare) in[i] = batched_as(b, in[i], type_of(b, i), 0, 1);
    }
    bool ok = ct__batch_record(b, attrs, in);
    for (int i = 0; i < b->n_out && ok && bare; i++)
        b->out[i] = batched_as(b, b->out[i], &b->node->out[i], 0, 0);
    return ok;
}

bool ct__no_vmap(ct_batching *b) {
    ct_ctx *ctx = b->node->ctx;
    ct__fail(ctx, CT_E_UNSUPPORTED, b->node->here, b->node->op->name, "it cannot be batched");
    return false;
}
