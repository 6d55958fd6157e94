// Elementwise ops and reductions in kernel IR, by the name in their record (ct_opdef.kernel).
#include "compile/schedule_impl.h"

#include <string.h>

#include "ops/rules.h"

typedef struct {
    ct_emit *e;
    ct_kir *k;
    const ct_node *node;
    ct_kval *x; // operands in the compute dtype
    ct_dtype d; // compute dtype
} call;

static ct_kval bin(const call *c, ct_kop op) { return ct__kir_bin(c->k, op, c->x[0], c->x[1]); }
static ct_kval un(const call *c, ct_kop op) { return ct__kir_un(c->k, op, c->x[0]); }
static ct_kval math(const call *c, ct_kmath f) { return ct__kir_math(c->k, f, c->x[0]); }

// Order is compared as numbers: the IR orders no bools.
static void as_numbers(const call *c) {
    if (c->d != CT_BOOL) return;
    for (int i = 0; i < 2; i++) c->x[i] = ct__kir_cast(c->k, c->x[i], CT_I32);
}
static ct_kval order(const call *c, ct_kop op, bool turned) {
    as_numbers(c);
    return ct__kir_bin(c->k, op, c->x[turned], c->x[!turned]);
}

static ct_kval do_add(const call *c) { return bin(c, CT_K_ADD); }
static ct_kval do_sub(const call *c) { return bin(c, CT_K_SUB); }
static ct_kval do_mul(const call *c) { return bin(c, CT_K_MUL); }
static ct_kval do_div(const call *c) { return bin(c, CT_K_DIV); }
static ct_kval do_mod(const call *c) { return bin(c, CT_K_MOD); }
static ct_kval do_maximum(const call *c) { return bin(c, CT_K_MAX); }
static ct_kval do_minimum(const call *c) { return bin(c, CT_K_MIN); }
static ct_kval do_neg(const call *c) { return un(c, CT_K_NEG); }
static ct_kval do_abs(const call *c) { return un(c, CT_K_ABS); }
static ct_kval do_floor(const call *c) { return un(c, CT_K_FLOOR); }
static ct_kval do_ceil(const call *c) { return un(c, CT_K_CEIL); }
static ct_kval do_round(const call *c) { return un(c, CT_K_ROUND); }
static ct_kval do_sqrt(const call *c) { return un(c, CT_K_SQRT); }
static ct_kval do_exp(const call *c) { return math(c, CT_MATH_EXP); }
static ct_kval do_log(const call *c) { return math(c, CT_MATH_LOG); }
static ct_kval do_expm1(const call *c) { return math(c, CT_MATH_EXPM1); }
static ct_kval do_log1p(const call *c) { return math(c, CT_MATH_LOG1P); }
static ct_kval do_sin(const call *c) { return math(c, CT_MATH_SIN); }
static ct_kval do_cos(const call *c) { return math(c, CT_MATH_COS); }
static ct_kval do_tanh(const call *c) { return math(c, CT_MATH_TANH); }
static ct_kval do_erf(const call *c) { return math(c, CT_MATH_ERF); }
static ct_kval do_copy(const call *c) { return c->x[0]; }

static ct_kval do_equal(const call *c) { return order(c, CT_K_EQ, false); }
static ct_kval do_not_equal(const call *c) { return order(c, CT_K_NE, false); }
static ct_kval do_less(const call *c) { return order(c, CT_K_LT, false); }
static ct_kval do_less_equal(const call *c) { return order(c, CT_K_LE, false); }
static ct_kval do_greater(const call *c) { return order(c, CT_K_LT, true); }
static ct_kval do_greater_equal(const call *c) { return order(c, CT_K_LE, true); }

static ct_kval do_and(const call *c) { return bin(c, CT_K_AND); }
static ct_kval do_or(const call *c) { return bin(c, CT_K_OR); }
static ct_kval do_xor(const call *c) { return bin(c, CT_K_XOR); }
static ct_kval do_not(const call *c) { return un(c, CT_K_NOT); }

// Shifts give 0 where the count is not within the width; those of the IR take it modulo the width.
static ct_kval within_width(const call *c, ct_kval shifted) {
    ct_kir *k = c->k;
    ct_kval zero = ct__kir_const_int(k, c->d, 0);
    ct_kval width = ct__kir_const_int(k, c->d, ct__dtype(c->d)->bits);
    ct_kval ok = ct__kir_lt(k, c->x[1], width);
    if (c->d == CT_I32 || c->d == CT_I64)
        ok = ct__kir_bin(k, CT_K_AND, ok, ct__kir_bin(k, CT_K_LE, zero, c->x[1]));
    return ct__kir_select(k, ok, shifted, zero);
}
static ct_kval do_shift_left(const call *c) { return within_width(c, bin(c, CT_K_SHL)); }
static ct_kval do_shift_right(const call *c) { // zeros come in
    ct_kir *k = c->k;
    ct_kval r;
    if (c->d == CT_I32) {
        ct_kval a = ct__kir_cast(k, c->x[0], CT_U32), n = ct__kir_cast(k, c->x[1], CT_U32);
        r = ct__kir_cast(k, ct__kir_bin(k, CT_K_SHR, a, n), CT_I32);
    } else if (c->d == CT_I64) { // copies of the sign are masked away: ((max >> n) << 1) + 1
        ct_kval max = ct__kir_const_int(k, CT_I64, INT64_MAX);
        ct_kval one = ct__kir_const_int(k, CT_I64, 1);
        ct_kval kept = ct__kir_bin(k, CT_K_SHR, max, c->x[1]);
        kept = ct__kir_bin(k, CT_K_OR, ct__kir_bin(k, CT_K_SHL, kept, one), one);
        r = ct__kir_bin(k, CT_K_AND, bin(c, CT_K_SHR), kept);
    } else {
        r = bin(c, CT_K_SHR);
    }
    return within_width(c, r);
}
static ct_kval do_select(const call *c) { return ct__kir_select(c->k, c->x[0], c->x[1], c->x[2]); }
static ct_kval do_cast(const call *c) {
    return ct__cast_from(c->e, c->x[0], c->d, (ct_dtype)c->node->out->dtype);
}
// 16-bit floats never come here: schedule_emit.c reads their operand's memory as the other type.
static ct_kval do_bitcast(const call *c) {
    ct_dtype to = (ct_dtype)c->node->out->dtype, from = c->d;
    if (to == from) return c->x[0];
    bool is_float = ct__is_float(to) || ct__is_float(from);
    return is_float ? ct__kir_bitcast(c->k, c->x[0], to) : ct__kir_cast(c->k, c->x[0], to);
}

static const struct {
    const char *name;
    ct_kval (*f)(const call *c);
} functions[] = {
#define F(name)                                                                                    \
    { #name, do_##name }
    F(add),  F(sub),     F(mul),       F(div),  F(mod),        F(maximum),     F(minimum),
    F(neg),  F(abs),     F(floor),     F(ceil), F(round),      F(sqrt),        F(exp),
    F(log),  F(expm1),   F(log1p),     F(sin),  F(cos),        F(tanh),        F(erf),
    F(copy), F(equal),   F(not_equal), F(less), F(less_equal), F(greater),     F(greater_equal),
    F(and),  F(or),      F(xor),       F(not ), F(shift_left), F(shift_right), F(select),
    F(cast), F(bitcast),
#undef F
};

static int find(const ct_node *node) {
    for (size_t i = 0; node->op->kernel && i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, node->op->kernel) == 0) return (int)i;
    return -1;
}
bool ct__knows_elementwise(const ct_node *node) { return find(node) >= 0; }

ct_kval ct__emit_elementwise(ct_emit *e, const ct_node *node, ct_kval *x, ct_dtype compute) {
    int i = find(node);
    if (i < 0) return -1;
    call c = {e, e->kir, node, x, compute};
    return functions[i].f(&c);
}

static const struct {
    const char *name;
    ct_kred op;
} reductions[] = {{"sum", CT_RED_ADD},
                  {"prod", CT_RED_MUL},
                  {"max", CT_RED_MAX},
                  {"min", CT_RED_MIN},
                  {"argmax", CT_RED_ARGMAX}};

static int find_reduction(const ct_node *node) {
    for (size_t i = 0; node->op->kernel && i < sizeof reductions / sizeof *reductions; i++)
        if (strcmp(reductions[i].name, node->op->kernel) == 0) return (int)i;
    return -1;
}
bool ct__knows_reduction(const ct_node *node) { return find_reduction(node) >= 0; }
// Of a known one: the scheduler refuses graphs with others before it begins.
ct_kred ct__reduce_op(const ct_node *node) { return reductions[find_reduction(node)].op; }

// The attribute that names the reduced axes: a list `axes` or a single `axis`.
uint32_t ct__reduce_axes(const ct_node *node) {
    uint32_t mask = 0;
    for (size_t i = 0; i < node->op->n_fields; i++) {
        const ct_field *f = &node->op->fields[i];
        const void *at = (const char *)node->attrs + f->offset;
        if (f->kind == CT_FIELD_ints && strcmp(f->name, "axes") == 0) {
            const ct_ints *list = at;
            for (int64_t k = 0; k < list->n; k++) mask |= 1u << list->v[k];
        } else if (f->kind == CT_FIELD_i64 && strcmp(f->name, "axis") == 0) {
            mask |= 1u << *(const int64_t *)at;
        }
    }
    return mask;
}
