// Indices computed in 32 bits, such as positions of a gather: finds which of them are affine over lanes,
// and which loads can use the 32-bit value itself.
#include "compile/render/render_impl.h"

enum { INDEX_MAX_STRIDE = 1 << 20 };

// Sets `step` to the difference between neighbouring lanes, modulo 2^32 for values of 32 bits. False: it is
// not constant.
static bool index_affine_step(const ct_kshape *shape, ct_kval v, uint64_t *step) {
    *step = (uint64_t)shape[v].stride; // 0 if uniform
    return shape[v].vary != CT_VARYING;
}

static bool index_result_step(const ct_kir *k, const ct_kshape *shape, const ct_kins *ins,
                              uint64_t *step) {
    uint64_t more = 0;
    switch (ins->op) {
    case CT_K_CAST: return k->ins[ins->a].dtype == CT_I64 && index_affine_step(shape, ins->a, step);
    case CT_K_BITCAST:
        return !ct__is_float(k->ins[ins->a].dtype) && index_affine_step(shape, ins->a, step);
    case CT_K_ADD:
    case CT_K_SUB:
        if (!index_affine_step(shape, ins->a, step) || !index_affine_step(shape, ins->b, &more))
            return false;
        *step = ins->op == CT_K_ADD ? *step + more : *step - more;
        return true;
    case CT_K_MUL:
        if (k->ins[ins->b].op != CT_K_CONST || !index_affine_step(shape, ins->a, step))
            return false;
        *step *= (uint64_t)k->ins[ins->b].imm.i;
        return true;
    default: return false;
    }
}

void ct__render_find_affine(const ct_kir *k, ct_kshape *shape) {
    for (size_t i = 0; i < k->n; i++) {
        const ct_kins *ins = &k->ins[i];
        uint64_t step = 0;
        if ((ins->dtype != CT_I32 && ins->dtype != CT_U32) || ins->lanes != 1 ||
            shape[i].vary != CT_VARYING || !index_result_step(k, shape, ins, &step))
            continue;
        const int64_t stride = (int32_t)(uint32_t)step;
        if (stride && stride >= -INDEX_MAX_STRIDE && stride <= INDEX_MAX_STRIDE)
            shape[i] = (ct_kshape){CT_AFFINE, false, stride, 1};
    }
}

static ct_kval index_varying_part(const ct_kshape *shape, const ct_kins *sum) {
    return shape[sum->a].vary == CT_UNIFORM ? sum->b : sum->a;
}

ct_kval ct__render_i32_index(const ct_kir *k, const ct_kshape *shape, ct_kval index) {
    const ct_kins *ins = &k->ins[index];
    for (; ins->op == CT_K_ADD; ins = &k->ins[index]) {
        if (shape[ins->a].vary != CT_UNIFORM && shape[ins->b].vary != CT_UNIFORM) return -1;
        index = index_varying_part(shape, ins);
    }
    const bool narrow = ins->op == CT_K_CAST && shape[index].vary == CT_VARYING;
    return narrow && k->ins[ins->a].dtype == CT_I32 ? ins->a : -1;
}

ct_kval ct__render_table_index(const ct_kir *k, const ct_kshape *shape, const ct_kins *load) {
    const ct_kbuf *table = &k->bufs[load->imm.i];
    const bool words = table->dtype == CT_F32 || table->dtype == CT_I32 || table->dtype == CT_U32;
    const ct_kval x =
        k->ins[load->a].op == CT_K_CAST ? ct__render_i32_index(k, shape, load->a) : -1;
    if (x < 0 || k->ins[x].op != CT_K_AND || load->b >= 0 || !words ||
        !(table->flags & CT_KIR_LOCAL) || table->count != CT_LANES)
        return -1;
    const ct_kval both[2] = {k->ins[x].a, k->ins[x].b};
    for (int i = 0; i < 2; i++) {
        const ct_kins *mask = &k->ins[both[i]];
        if (mask->op == CT_K_SPLAT) mask = &k->ins[mask->a];
        if (mask->op == CT_K_CONST && mask->imm.i == CT_LANES - 1) return both[1 - i];
    }
    return -1;
}

void ct__render_nest_i32_indices(const ct_kir *k, const ct_kshape *shape, const uint8_t *uses,
                                 uint8_t *nested) {
    for (size_t i = 0; i < k->n; i++) {
        ct_kval v = k->ins[i].a;
        if (k->ins[i].op != CT_K_LOAD || ct__render_i32_index(k, shape, v) < 0) continue;
        for (; k->ins[v].op == CT_K_ADD && uses[v] == 1; v = index_varying_part(shape, &k->ins[v]))
            nested[v] = 1;
        if (uses[v] == 1) nested[v] = 1;
        const bool table = ct__render_table_index(k, shape, &k->ins[i]) >= 0;
        if (table && uses[v] == 1 && uses[k->ins[v].a] == 1) nested[k->ins[v].a] = 1;
    }
}

void ct__render_uniform_part(const ct_render *r, ct_kval index) {
    const ct_kins *ins = &r->k->ins[index];
    if (ins->op != CT_K_ADD) return;
    const ct_kval varying = index_varying_part(r->shape, ins);
    ct__text_add(r->out, " + ");
    ct__render_scalar(r, varying == ins->a ? ins->b : ins->a);
    ct__render_uniform_part(r, varying);
}

// True if the bound is at most 2^31. The operand of the cast is a size, hence at least 0.
static bool index_is_i32_bound(const ct_kir *k, ct_kval end) {
    const int64_t most = (int64_t)INT32_MAX + 1;
    const ct_kins *ins = &k->ins[end];
    int64_t n = most + 1;
    if (ins->op == CT_K_CONST) return ins->imm.i <= most;
    const ct_kins *size = &k->ins[ins->a];
    return ins->op == CT_K_CAST && size->op == CT_K_MIN && k->ins[size->a].op == CT_K_ARG &&
           ct__kir_is_int(k, size->b, &n) && n <= most;
}

// True if the condition is false wherever x, an i32, is negative.
static bool index_requires_nonneg(const ct_kir *k, ct_kval cond, ct_kval x) {
    const ct_kins *ins = &k->ins[cond];
    if (ins->op == CT_K_AND)
        return index_requires_nonneg(k, ins->a, x) || index_requires_nonneg(k, ins->b, x);
    if (ins->op != CT_K_LT) return false;
    const ct_kins *bits = &k->ins[ins->a];
    return bits->op == CT_K_BITCAST && bits->dtype == CT_U32 && bits->a == x &&
           index_is_i32_bound(k, ins->b);
}

bool ct__render_is_contiguous(const ct_render *r, const ct_kins *load, ct_kval x) {
    return r->shape[x].vary == CT_AFFINE && r->shape[x].stride == 1 && load->b >= 0 &&
           index_requires_nonneg(r->k, load->b, x);
}
