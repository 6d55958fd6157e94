// What follows from a reduction's op and dtype alone, for all who write its loop.
#include "base/number.h"
#include "kir/kir.h"

bool ct__kred_is_place(ct_kred op) { return op == CT_RED_ARGMAX || op == CT_RED_ARGMIN; }

bool ct__kred_is_ordered(ct_kred op, ct_dtype dtype) {
    return ct__is_float(dtype) && (op == CT_RED_ADD || op == CT_RED_MUL);
}

ct_kins ct__kred_start(ct_kred op, ct_dtype dtype) {
    bool max = op == CT_RED_MAX || op == CT_RED_ARGMAX;
    bool min = op == CT_RED_MIN || op == CT_RED_ARGMIN;
    ct_kins start = {.op = CT_K_CONST, .dtype = (uint8_t)dtype, .lanes = 1};
    start.a = start.b = start.c = start.d = start.in = start.end = -1;
    if (ct__is_float(dtype))
        start.imm.f = max ? -__builtin_inf() : min ? __builtin_inf() : op == CT_RED_MUL;
    else if (max || min)
        start.imm.i = max ? ct__least(dtype) : ct__greatest(dtype);
    else if (op == CT_RED_AND) // all bits
        start.imm.i = ct__least(dtype) < 0 ? -1 : ct__greatest(dtype);
    else
        start.imm.i = op == CT_RED_MUL;
    return start;
}

bool ct__kir_one_block(const ct_kir *k, ct_kval loop) {
    int64_t n = 0;
    return ct__kir_is_int(k, k->ins[loop].a, &n) && n <= CT_REDUCE_BLOCK;
}
