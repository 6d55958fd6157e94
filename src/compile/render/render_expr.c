// Writes values in C: scalars with C's operators, 16-lane values with the prelude's functions.
#include "compile/render/render_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *ct__render_type(int dtype) {
    switch (dtype) {
    case CT_BOOL: return "bool";
    case CT_U8: return "u8";
    case CT_I32: return "i32";
    case CT_U32: return "u32";
    case CT_I64: return "i64";
    case CT_U64: return "u64";
    case CT_F64: return "f64";
    default: return "f32";
    }
}

const char *ct__render_suffix(int dtype) { return dtype == CT_BOOL ? "b" : ct__render_type(dtype); }

const char *ct__render_storage(int dtype) {
    if (dtype == CT_BOOL) return "u8";
    if (!ct__is_narrow((ct_dtype)dtype)) return ct__render_type(dtype);
    if (ct__is_narrow_float((ct_dtype)dtype))
        return ct_dtype_size((ct_dtype)dtype) == 1 ? "u8" : "u16";
    return ct_dtype_name((ct_dtype)dtype);
}

void ct__render_wide_type(ct_text *out, int dtype) {
    ct__textf(out, "%sx16", ct__render_suffix(dtype));
}

// Writes a float in decimal with enough digits to be read back exactly; the host's locale may print a
// comma.
static void expr_float_literal(ct_text *out, double x, bool single) {
    const char *f = single ? "f" : "";
    if (isnan(x)) {
        ct__textf(out, "__builtin_nan%s(\"\")", f);
        return;
    }
    if (isinf(x)) {
        ct__textf(out, "%s__builtin_inf%s()", x < 0 ? "-" : "", f);
        return;
    }
    char s[64], t[64];
    size_t n = 0;
    snprintf(s, sizeof s, "%.*g", single ? 9 : 17, x);
    bool point = false;
    for (const char *c = s; *c; c++) {
        if ((*c >= '0' && *c <= '9') || *c == '-' || *c == '+')
            t[n++] = *c;
        else if (*c == 'e')
            t[n++] = *c, point = true;
        else if (!point)
            t[n++] = '.', point = true;
    }
    t[n] = '\0';
    ct__textf(out, "%s%s%s", t, point ? "" : ".0", f);
}

void ct__render_literal(ct_text *out, int dtype, const ct_kins *ins) {
    int64_t i = ins->imm.i;
    switch (dtype) {
    case CT_F32:
    case CT_F64: expr_float_literal(out, ins->imm.f, dtype == CT_F32); return;
    case CT_U32: ct__textf(out, "%" PRId64 "u", i); return;
    case CT_U64: ct__textf(out, "%" PRIu64 "ul", (uint64_t)i); return;
    case CT_I32:
        if (i == INT32_MIN)
            ct__text_add(out, "INT32_MIN");
        else
            ct__textf(out, "%" PRId64, i);
        return;
    case CT_I64:
        if (i == INT64_MIN)
            ct__text_add(out, "INT64_MIN");
        else
            ct__textf(out, i > INT32_MAX || i < INT32_MIN ? "%" PRId64 "l" : "%" PRId64, i);
        return;
    default: ct__textf(out, "%" PRId64, i); return;
    }
}

// ---------------------------------------------------------------------------------- names of ops

static const char *expr_c_operator(int op) {
    switch (op) {
    case CT_K_ADD: return "+";
    case CT_K_SUB: return "-";
    case CT_K_MUL: return "*";
    case CT_K_DIV: return "/";
    case CT_K_MOD: return "%";
    case CT_K_AND: return "&";
    case CT_K_OR: return "|";
    case CT_K_XOR: return "^";
    case CT_K_LT: return "<";
    case CT_K_LE: return "<=";
    case CT_K_EQ: return "==";
    case CT_K_NE: return "!=";
    default: return NULL;
    }
}

static void expr_op_name(ct_text *out, int op) {
    for (const char *c = ct__kop_name((ct_kop)op); *c; c++)
        ct__textf(out, "%c", *c == '_' ? '_' : *c | 0x20);
}

static const char *const expr_math_names[] = {
#define X(NAME, name) #name,
    CT_KMATHS(X)
#undef X
};

// --------------------------------------------------------------------------------------- scalars

static void expr_write_name(const ct_render *r, ct_kval v) {
    const ct_kins *ins = &r->k->ins[v];
    switch (ins->op) {
    case CT_K_CONST: ct__render_literal(r->out, ins->dtype, ins); return;
    case CT_K_ARG: ct__textf(r->out, "n%" PRId64, ins->imm.i); return;
    case CT_K_PARAM: ct__textf(r->out, "x%" PRId64, ins->imm.i); return;
    case CT_K_LOOP: ct__textf(r->out, "j%d", v); return;
    case CT_K_REG: ct__textf(r->out, "r%d", v); return;
    default: ct__textf(r->out, "v%d", v); return;
    }
}

bool ct__render_can_nest(const ct_kir *k, ct_kval v, ct_kshape shape) {
    const ct_kins *ins = &k->ins[v];
    return ins->dtype == CT_I64 && ins->lanes == 1 && shape.vary != CT_VARYING &&
           ins->op >= CT_K_ADD && ins->op <= CT_K_MAX;
}

// True if C's own operator may overflow, which is undefined in C.
static bool expr_may_overflow(const ct_render *r, ct_kval v) {
    const ct_kins *ins = &r->k->ins[v];
    bool may =
        ins->op == CT_K_ADD || ins->op == CT_K_SUB || ins->op == CT_K_MUL || ins->op == CT_K_NEG;
    return may && (ins->dtype == CT_I32 || ins->dtype == CT_I64) &&
           !(r->no_overflow && r->no_overflow[v]);
}

void ct__render_scalar(const ct_render *r, ct_kval v) {
    const ct_kins *ins = &r->k->ins[v];
    if (ins->op == CT_K_SPLAT) {
        ct__render_scalar(r, ins->a);
    } else if (ins->op == CT_K_IOTA) {
        ct__text_add(r->out, r->thread ? "lane" : "0");
    } else if (r->nested[v]) {
        bool call = ins->op == CT_K_MIN || ins->op == CT_K_MAX || expr_may_overflow(r, v);
        if (!call) ct__text_add(r->out, "(");
        ct__render_value(r, v);
        if (!call) ct__text_add(r->out, ")");
    } else {
        expr_write_name(r, v);
    }
}

// True if C's operator has the meaning of the IR: the divisor is a positive constant.
static bool expr_divides_in_c(const ct_render *r, const ct_kins *ins) {
    const ct_kins *b = &r->k->ins[ins->b];
    if (ins->dtype == CT_F32 || ins->dtype == CT_F64) return ins->op == CT_K_DIV;
    return b->op == CT_K_CONST && b->imm.i > 0;
}

void ct__render_format(const ct_render *r, const char *format, ...) {
    va_list args;
    va_start(args, format);
    for (size_t n; n = strcspn(format, "$"), format[n]; format += n + 2) {
        ct__text_bytes(r->out, format, n);
        switch (format[n + 1]) {
        case 's': ct__render_scalar(r, va_arg(args, ct_kval)); break;
        case 'w': ct__render_wide(r, va_arg(args, ct_kval)); break;
        case 'd': ct__textf(r->out, "%" PRId64, va_arg(args, int64_t)); break;
        default: ct__text_add(r->out, va_arg(args, const char *)); break;
        }
    }
    ct__text_add(r->out, format);
    va_end(args);
}

static void expr_scalar_call(const ct_render *r, const ct_kins *ins, const char *name) {
    if (name)
        ct__textf(r->out, "s_%s_%s(", name, ct__render_suffix(r->k->ins[ins->a].dtype));
    else {
        ct__text_add(r->out, "s_");
        expr_op_name(r->out, ins->op);
        ct__textf(r->out, "_%s(", ct__render_suffix(r->k->ins[ins->a].dtype));
    }
    const ct_kval ops[3] = {ins->a, ins->b, ins->c};
    for (int i = 0; i < 3 && ops[i] >= 0; i++) {
        if (i) ct__text_add(r->out, ", ");
        ct__render_scalar(r, ops[i]);
    }
    ct__text_add(r->out, ")");
}

static void expr_scalar_cast(const ct_render *r, const ct_kins *ins) {
    int from = r->k->ins[ins->a].dtype;
    if (ct__is_narrow_float(ins->sub))
        ct__textf(r->out, "s_round_to_%s(", ct_dtype_name(ins->sub));
    else if (ins->dtype == CT_BOOL)
        ct__text_add(r->out, "0 != (");
    else if (ct__is_float(from) && !ct__is_float(ins->dtype))
        ct__textf(r->out, "s_%s_of_%s(", ct__render_type(ins->dtype), ct__render_type(from));
    else
        ct__textf(r->out, "(%s)(", ct__render_type(ins->dtype));
    ct__render_format(r, "$s)", ins->a);
}

static void expr_scalar_bitcast(const ct_render *r, const ct_kins *ins) {
    int from = r->k->ins[ins->a].dtype;
    if (ct__is_float(from))
        ct__textf(r->out, "s_bits_%s(", ct__render_type(from));
    else if (ct__is_float(ins->dtype))
        ct__textf(r->out, "s_from_%s_%s(", ins->dtype == CT_F32 ? "i32" : "i64",
                  ct__render_type(ins->dtype));
    else
        ct__textf(r->out, "(%s)(", ct__render_type(ins->dtype));
    ct__render_format(r, "$s)", ins->a);
}

// any(a) ? sel(a, f(b), c) : c
static void expr_math_where(const ct_render *r, const ct_kins *ins, bool wide) {
    const char *t = ct__render_suffix(ins->dtype), *f = expr_math_names[ins->sub];
    if (wide)
        ct__render_format(r, "__builtin_expect(any($w), 0) ? sel_$t($w, $t_$t($w), $w) : $w",
                          ins->a, t, ins->a, f, t, ins->b, ins->c, ins->c);
    else
        ct__render_format(r, "__builtin_expect(($s), 0) ? s_$t_$t($s) : $s", ins->a, f, t, ins->b,
                          ins->c);
}

static void expr_scalar_value(const ct_render *r, ct_kval v) {
    const ct_kins *ins = &r->k->ins[v];
    const char *infix = expr_c_operator(ins->op);
    if (expr_may_overflow(r, v)) {
        expr_scalar_call(r, ins, NULL);
        return;
    }
    if ((ins->op == CT_K_DIV || ins->op == CT_K_MOD) && !expr_divides_in_c(r, ins)) infix = NULL;
    if (infix) {
        ct__render_format(r, "$s $t $s", ins->a, infix, ins->b);
        return;
    }
    switch (ins->op) {
    case CT_K_NEG:
    case CT_K_NOT:
        ct__text_add(r->out, ins->op == CT_K_NEG ? "-" : ins->dtype == CT_BOOL ? "!" : "~");
        ct__render_format(r, "($s)", ins->a);
        break;
    case CT_K_CAST: expr_scalar_cast(r, ins); break;
    case CT_K_BITCAST: expr_scalar_bitcast(r, ins); break;
    case CT_K_MATH: expr_scalar_call(r, ins, expr_math_names[ins->sub]); break;
    case CT_K_MATH_WHERE: expr_math_where(r, ins, false); break;
    case CT_K_SELECT: ct__render_format(r, "$s ? $s : $s", ins->a, ins->b, ins->c); break;
    default: expr_scalar_call(r, ins, NULL); break;
    }
}

// -------------------------------------------------------------------------------- 16-lane values

void ct__render_wide(const ct_render *r, ct_kval v) {
    switch (r->shape[v].vary) {
    case CT_VARYING: expr_write_name(r, v); return;
    case CT_UNIFORM: ct__textf(r->out, "splat_%s(", ct__render_suffix(r->k->ins[v].dtype)); break;
    case CT_AFFINE: ct__textf(r->out, "iota_%s(", ct__render_suffix(r->k->ins[v].dtype)); break;
    }
    ct__render_scalar(r, v);
    if (r->shape[v].vary == CT_AFFINE) ct__textf(r->out, ", %" PRId64, r->shape[v].stride);
    ct__text_add(r->out, ")");
}

static void expr_wide_call(const ct_render *r, const ct_kins *ins, const char *name) {
    if (name)
        ct__text_add(r->out, name);
    else
        expr_op_name(r->out, ins->op);
    ct__textf(r->out, "_%s(", ct__render_suffix(r->k->ins[ins->a].dtype));
    const ct_kval ops[3] = {ins->a, ins->b, ins->c};
    for (int i = 0; i < 3 && ops[i] >= 0; i++) {
        if (i) ct__text_add(r->out, ", ");
        ct__render_wide(r, ops[i]);
    }
    ct__text_add(r->out, ")");
}

static void expr_wide_cast(const ct_render *r, const ct_kins *ins) {
    const char *f = ct__render_suffix(r->k->ins[ins->a].dtype);
    if (ct__is_narrow_float(ins->sub))
        ct__textf(r->out, "round_to_%s(", ct_dtype_name(ins->sub));
    else if (ins->dtype == CT_BOOL)
        ct__textf(r->out, "ne_%s(splat_%s(0), ", f, f);
    else
        ct__textf(r->out, "%s_of_%s(", ct__render_suffix(ins->dtype), f);
    ct__render_format(r, "$w)", ins->a);
}

static void expr_wide_bitcast(const ct_render *r, const ct_kins *ins) {
    int from = r->k->ins[ins->a].dtype, to = ins->dtype;
    bool is_unsigned = to == CT_U32 || to == CT_U64, was = from == CT_U32 || from == CT_U64;
    // u32 is converted by way of i32 and u64 by way of i64, the type of a float's bits
    if (is_unsigned) ct__textf(r->out, "%s_bits(", ct__render_type(to));
    if (ct__is_float(from)) ct__textf(r->out, "bits_%s(", ct__render_type(from));
    if (ct__is_float(to))
        ct__textf(r->out, "from_%s_%s(", to == CT_F32 ? "i32" : "i64", ct__render_type(to));
    if (was) ct__text_add(r->out, from == CT_U32 ? "i32_bits(" : "i64_bits(");
    ct__render_wide(r, ins->a);
    int open = is_unsigned + ct__is_float(from) + ct__is_float(to) + was;
    for (int i = 0; i < open; i++) ct__text_add(r->out, ")");
}

// Writes a comparison of indices of which one is affine: by their distance in lane 0, without i64 vectors.
static bool expr_compare_affine(const ct_render *r, const ct_kins *ins) {
    const int64_t limit = 1 << 20;
    if (ins->op < CT_K_LT || ins->op > CT_K_NE || r->k->ins[ins->a].dtype != CT_I64) return false;
    ct_kshape a = r->shape[ins->a], b = r->shape[ins->b];
    if (a.vary == CT_VARYING || b.vary == CT_VARYING) return false;
    int64_t stride = 0;
    if (__builtin_sub_overflow(a.stride, b.stride, &stride) || stride > limit || stride < -limit)
        return false;
    ct__text_add(r->out, "ramp_");
    expr_op_name(r->out, ins->op);
    ct__render_format(r, "(distance($s, $s), $d)", ins->a, ins->b, stride);
    return true;
}

// Writes the comparison of affine u32 values with a bound: mostly all lanes are below it, which the first
// and the last lane decide.
static bool expr_below_bound(const ct_render *r, const ct_kins *ins) {
    if (ins->op != CT_K_LT || r->k->ins[ins->a].dtype != CT_U32 ||
        r->shape[ins->a].vary != CT_AFFINE || r->shape[ins->b].vary != CT_UNIFORM)
        return false;
    const int64_t stride = r->shape[ins->a].stride;
    ct__render_format(r, "ramp_below($s, $d, $s)", ins->a, stride, ins->b);
    return true;
}

// True for a < b ? a : b and a < b ? b : a of floats, one instruction on most machines.
static bool expr_is_min_or_max(const ct_render *r, const ct_kins *ins) {
    const ct_kins *c = &r->k->ins[ins->a];
    if (c->op != CT_K_LT || !ct__is_float(ins->dtype) || c->a == c->b) return false;
    return (c->a == ins->b && c->b == ins->c) || (c->a == ins->c && c->b == ins->b);
}

static void expr_wide_value(const ct_render *r, const ct_kins *ins) {
    const char *t = ct__render_suffix(ins->dtype);
    switch (ins->op) {
    case CT_K_CAST: expr_wide_cast(r, ins); break;
    case CT_K_BITCAST: expr_wide_bitcast(r, ins); break;
    case CT_K_MATH: expr_wide_call(r, ins, expr_math_names[ins->sub]); break;
    case CT_K_MATH_WHERE: expr_math_where(r, ins, true); break;
    case CT_K_ZIP: expr_wide_call(r, ins, ins->sub ? "zip_high" : "zip_low"); break;
    case CT_K_DOT4: expr_wide_call(r, ins, ins->sub ? "dot4_low" : NULL); break;
    case CT_K_LOOKUP4: // the table is the same for all lanes
        ct__render_format(r, "lookup4_i32($w, $s, $s)", ins->a, ins->b, ins->c);
        break;
    case CT_K_SELECT:
        if (r->shape[ins->a].vary == CT_UNIFORM) {
            ct__render_format(r, "$s ? $w : $w", ins->a, ins->b, ins->c);
        } else if (expr_is_min_or_max(r, ins)) {
            bool lesser = r->k->ins[ins->a].a == ins->b;
            ct__render_format(r, "$t_$t($w, $w)", lesser ? "lesser" : "greater", t, ins->b, ins->c);
        } else {
            ct__render_format(r, "sel_$t($w, $w, $w)", t, ins->a, ins->b, ins->c);
        }
        break;
    default:
        if (!expr_compare_affine(r, ins) && !expr_below_bound(r, ins)) expr_wide_call(r, ins, NULL);
        break;
    }
}

void ct__render_value(const ct_render *r, ct_kval v) {
    const ct_kins *ins = &r->k->ins[v];
    if (r->shape[v].vary == CT_VARYING)
        expr_wide_value(r, ins);
    else
        expr_scalar_value(r, v);
}
