// Properties of reductions that depend only on the op and dtype, for all code that writes their loops.
#include "kir/kir.h"

bool ct__kred_is_arg(ct_kred op) { return op == CT_RED_ARGMAX || op == CT_RED_ARGMIN; }

bool ct__kred_is_ordered(ct_kred op, ct_dtype dtype) {
    return ct__is_float(dtype) && (op == CT_RED_ADD || op == CT_RED_MUL);
}

ct_kins ct__kred_identity(ct_kred op, ct_dtype dtype) {
    bool max = op == CT_RED_MAX || op == CT_RED_ARGMAX;
    bool min = op == CT_RED_MIN || op == CT_RED_ARGMIN;
    ct_kins start = {.op = CT_K_CONST, .dtype = (uint8_t)dtype, .lanes = 1};
    start.a = start.b = start.c = start.d = start.in = start.end = -1;
    if (ct__is_float(dtype))
        start.imm.f = max ? -__builtin_inf() : min ? __builtin_inf() : op == CT_RED_MUL;
    else if (max || min)
        start.imm.i = max ? ct__int_min(dtype) : ct__int_max(dtype);
    else if (op == CT_RED_AND) // all bits
        start.imm.i = ct__int_min(dtype) < 0 ? -1 : ct__int_max(dtype);
    else
        start.imm.i = op == CT_RED_MUL;
    return start;
}

ct_kval ct__kred_identity_value(ct_kir *k, ct_kred op, ct_dtype dtype) {
    ct_kins start = ct__kred_identity(op, dtype);
    return ct__is_float(dtype) ? ct__kir_const(k, dtype, start.imm.f)
                               : ct__kir_const_int(k, dtype, start.imm.i);
}

ct_kval ct__kred_combine(ct_kir *k, ct_kred op, ct_kval a, ct_kval b) {
    static const uint8_t by[] = {
        [CT_RED_ADD] = CT_K_ADD, [CT_RED_MUL] = CT_K_MUL, [CT_RED_MAX] = CT_K_MAX,
        [CT_RED_MIN] = CT_K_MIN, [CT_RED_OR] = CT_K_OR,   [CT_RED_AND] = CT_K_AND};
    return ct__kir_bin(k, (ct_kop)by[op], a, b);
}

static bool reduce_is_one_block(const ct_kir *k, ct_kval v) {
    int64_t n = 0;
    return ct__kir_is_int(k, v, &n) && n <= CT_REDUCE_BLOCK;
}
bool ct__kir_one_block(const ct_kir *k, ct_kval loop) {
    ct_kval extent = k->ins[loop].a;
    const ct_kins *n = &k->ins[extent];
    bool is_bounded =
        n->op == CT_K_MIN && (reduce_is_one_block(k, n->a) || reduce_is_one_block(k, n->b));
    return is_bounded || reduce_is_one_block(k, extent);
}

bool ct__kir_reduces_by_blocks(const ct_kir *k, ct_kval loop) {
    if (ct__kir_one_block(k, loop)) return false;
    bool any = false;
    CT_EACH_REDUCE(k, loop, id)
    any |= ct__kred_is_ordered(k->ins[id].sub, k->ins[k->ins[id].a].dtype);
    return any;
}
