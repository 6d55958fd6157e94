// Verifies and prints kernels.
#include "kir/kir.h"

typedef struct {
    const ct_kir *k;
    const ct_kshape *shape;
    ct_err *err;
    size_t at;
} kir_checker;

static bool kir_report(const kir_checker *c, const char *what) {
    return ct__err(c->err, CT_E_INTERNAL, CT_NOWHERE, "kernel", "%s at instruction %zu: %s",
                   ct__kop_name(c->k->ins[c->at].op), c->at, what);
}

// True if `loop` is one of the loops around instruction `at`, or -1.
static bool kir_is_inside(const ct_kir *k, int32_t loop, size_t at) {
    for (int32_t l = k->ins[at].in; l >= 0; l = k->ins[l].in)
        if (l == loop) return true;
    return loop < 0;
}

// Returns the LANES loop around instruction `at`, or -1.
static int32_t kir_lanes_loop(const ct_kir *k, size_t at) {
    for (int32_t l = k->ins[at].in; l >= 0; l = k->ins[l].in)
        if (k->ins[l].sub == CT_BIND_LANES) return l;
    return -1;
}

static bool kir_check_value(const kir_checker *c, ct_kval v) {
    if (v < 0) return true;
    const ct_kir *k = c->k;
    if ((size_t)v >= c->at || !k->ins[v].dtype)
        return kir_report(c, "an operand is no earlier value");
    const ct_kins *ins = &k->ins[v];
    if (ins->op == CT_K_LOOP)
        return kir_is_inside(k, v, c->at) ||
               kir_report(c, "a loop variable is used outside of its loop");
    if (ins->op == CT_K_REDUCE) {
        if (k->ins[ins->in].end < 0 || (size_t)k->ins[ins->in].end > c->at)
            return kir_report(c, "the result of a REDUCE is used before the END of its loop");
        return kir_is_inside(k, k->ins[ins->in].in, c->at) ||
               kir_report(c, "the result of a REDUCE is used outside of the loops around it");
    }
    return kir_is_inside(k, ins->in, c->at) ||
           kir_report(c, "a value is used outside of the loop that made it");
}

static bool kir_check_loop(const kir_checker *c, const ct_kins *ins) {
    const ct_kir *k = c->k;
    int64_t n = 0;
    if (ins->end < 0) return kir_report(c, "the loop is not closed");
    if (ins->sub > CT_BIND_ROWS) return kir_report(c, "no such binding");
    if (c->shape[ins->a].vary) return kir_report(c, "the extent differs between lanes");
    if (ins->sub == CT_BIND_UNROLL && !(ct__kir_is_int(k, ins->a, &n) && n <= 64))
        return kir_report(c, "an UNROLL loop needs a constant extent of at most 64");
    if (ins->sub == CT_BIND_LANES && kir_lanes_loop(k, c->at) >= 0)
        return kir_report(c, "a LANES loop inside another");
    if (ins->sub == CT_BIND_ROWS && (ins->in >= 0 || (size_t)ins->end + 1 != k->n))
        return kir_report(c, "the ROWS loop is not the outermost and last");
    return true;
}

// Only instructions that ct__kir_grid can evaluate may precede a ROWS loop.
static bool kir_check_before_rows(const kir_checker *c) {
    const ct_kir *k = c->k;
    for (size_t i = c->at + 1; i < k->n; i++) {
        if (k->ins[i].op != CT_K_LOOP || k->ins[i].sub != CT_BIND_ROWS) continue;
        const ct_kins *ins = &k->ins[c->at];
        bool fine = ins->op == CT_K_CONST || ins->op == CT_K_ARG || ins->op == CT_K_SELECT ||
                    (ins->op >= CT_K_ADD && ins->op <= CT_K_NE) || ins->op == CT_K_NEG;
        bool whole = ins->dtype == CT_I64 || ins->dtype == CT_BOOL || ins->op == CT_K_CONST;
        return (fine && whole) ||
               kir_report(c, "only i64 arithmetic on args is allowed before ROWS");
    }
    return true;
}

static bool kir_check_reduce(const kir_checker *c, const ct_kins *ins) {
    if (ins->in < 0) return kir_report(c, "outside of a loop");
    int bind = c->k->ins[ins->in].sub;
    if (bind != CT_BIND_SEQ && bind != CT_BIND_LANES)
        return kir_report(c, "its loop is not SEQ or LANES");
    return true;
}

static bool kir_check_break(const kir_checker *c, const ct_kins *ins) {
    const ct_kir *k = c->k;
    if (ins->in < 0 || k->ins[ins->in].sub != CT_BIND_SEQ)
        return kir_report(c, "it is not in a SEQ loop");
    if (c->shape[ins->a].vary) return kir_report(c, "the condition differs between lanes");
    CT_EACH_REDUCE(k, ins->in, id) return kir_report(c, "the loop that it leaves reduces");
    return true;
}

// True if the instruction is inside a loop of extent 0. Indices of an axis of size 0 fold to constants.
static bool kir_never_runs(const ct_kir *k, const ct_kins *ins) {
    for (int32_t loop = ins->in; loop >= 0; loop = k->ins[loop].in) {
        const ct_kins *n = &k->ins[k->ins[loop].a];
        if (n->op == CT_K_CONST && n->imm.i == 0) return true;
    }
    return false;
}

static bool kir_check_lanes_body(const kir_checker *c, const ct_kins *ins, int32_t loop) {
    const ct_kir *k = c->k;
    if (ins->op == CT_K_SET && !kir_is_inside(k, loop, (size_t)ins->a))
        return kir_report(c, "a register made outside is set inside a LANES loop");
    if (ins->op == CT_K_STORE && !c->shape[ins->a].vary &&
        (c->shape[ins->b].vary || (ins->c >= 0 && c->shape[ins->c].vary)) &&
        !kir_never_runs(k, ins))
        return kir_report(c, "all lanes store to one place");
    if (ins->lanes == CT_LANES || ins->op == CT_K_VSTORE || ins->op == CT_K_FOLD)
        return kir_report(c, "16-lane values inside a LANES loop");
    if (ins->op == CT_K_PREFETCH &&
        (c->shape[ins->a].vary != CT_AFFINE || c->shape[ins->a].stride != 1))
        return kir_report(c, "lanes that are no neighbours");
    return true;
}

static bool kir_check_function(const kir_checker *c, const ct_kins *ins) {
    bool last = c->at + 1 == c->k->n;
    if ((ins->op == CT_K_RET) != last) return kir_report(c, "a function ends in its one RET");
    bool fine = ins->op == CT_K_PARAM || ins->op == CT_K_CONST || ins->op == CT_K_RET ||
                (ins->op >= CT_K_NEG && ins->lanes == 1);
    return fine || kir_report(c, "not allowed in a function");
}

static bool kir_check_instruction(const kir_checker *c, bool function) {
    const ct_kins *ins = &c->k->ins[c->at];
    if (ins->op >= CT_K_COUNT) return ct__err(c->err, CT_E_INTERNAL, CT_NOWHERE, "kernel", "no op");
    if (ins->op == CT_K_END) return true;
    if (!kir_check_value(c, ins->a) || !kir_check_value(c, ins->b) || !kir_check_value(c, ins->c) ||
        !kir_check_value(c, ins->d))
        return false;
    if (function) return kir_check_function(c, ins);
    if (ins->op == CT_K_PARAM || ins->op == CT_K_RET || ins->op >= CT_K_SCALE)
        return kir_report(c, "outside of a function");
    if (ins->op == CT_K_LOOP && !kir_check_loop(c, ins)) return false;
    if (ins->op == CT_K_REDUCE && !kir_check_reduce(c, ins)) return false;
    if (ins->op == CT_K_BREAK && !kir_check_break(c, ins)) return false;
    if (ins->in < 0 && ins->op != CT_K_LOOP && !kir_check_before_rows(c)) return false;
    int32_t vector = kir_lanes_loop(c->k, c->at);
    return vector < 0 || kir_check_lanes_body(c, ins, vector);
}

// Operands must be earlier instructions, before shapes can be computed.
static bool kir_check_operand_order(const ct_kir *k, ct_err *err) {
    for (size_t i = 0; i < k->n; i++) {
        const ct_kins *ins = &k->ins[i];
        const ct_kval ops[5] = {ins->a, ins->b, ins->c, ins->d, ins->in};
        for (int j = 0; j < 5; j++)
            if (ops[j] >= (ct_kval)i)
                return ct__err(err, CT_E_INTERNAL, CT_NOWHERE, "kernel",
                               "%s at instruction %zu: an operand is no earlier value",
                               ct__kop_name(ins->op), i);
    }
    return true;
}

bool ct__kir_verify(const ct_kir *k, ct_err *err) {
    if (k->err.code) {
        if (err && !err->code) *err = k->err;
        return false;
    }
    if (k->n == 0) return ct__err(err, CT_E_INTERNAL, CT_NOWHERE, "kernel", "no instruction");
    if (k->open >= 0)
        return ct__err(err, CT_E_INTERNAL, CT_NOWHERE, "kernel",
                       "LOOP at instruction %d: the loop is not closed", k->open);
    if (!kir_check_operand_order(k, err)) return false;
    ct_kshape *shape = ct__malloc(k->n * sizeof *shape);
    if (!shape) return ct__err_memory(err, CT_NOWHERE, "kernel", k->n * sizeof *shape);
    ct__kir_shapes(k, CT_LANES, shape);
    kir_checker c = {.k = k, .shape = shape, .err = err};
    bool function = k->ins[0].op == CT_K_PARAM, ok = true;
    for (c.at = 0; ok && c.at < k->n; c.at++) ok = kir_check_instruction(&c, function);
    ct__free(shape);
    return ok;
}

// --------------------------------------------------------------------------------------- printer

static const char *const kir_bind_names[] = {"seq", "unroll", "lanes", "rows", "tile"};

static void kir_print_lower(ct_text *out, const char *name) {
    for (; *name; name++)
        ct__textf(out, "%c", *name >= 'A' && *name <= 'Z' ? *name - 'A' + 'a' : *name);
}

static void kir_print_detail(const ct_kins *ins, ct_text *out) {
    switch (ins->op) {
    case CT_K_CONST:
        if (ins->dtype == CT_F32 || ins->dtype == CT_F64)
            ct__textf(out, " %.17g", ins->imm.f);
        else if (ins->dtype == CT_U64)
            ct__textf(out, " %llu", (unsigned long long)ins->imm.i);
        else
            ct__textf(out, " %lld", (long long)ins->imm.i);
        break;
    case CT_K_ARG:
    case CT_K_PARAM: ct__textf(out, " #%lld", (long long)ins->imm.i); break;
    case CT_K_LOAD:
    case CT_K_VLOAD: ct__textf(out, " b%lld", (long long)ins->imm.i); break;
    case CT_K_STORE:
    case CT_K_VSTORE:
        ct__textf(out, "%s b%lld", ins->sub ? " past caches" : "", (long long)ins->imm.i);
        break;
    case CT_K_PREFETCH:
        ct__textf(out, "%s b%lld", ins->sub ? " write" : "", (long long)ins->imm.i);
        break;
    case CT_K_LOOP: ct__textf(out, " %s", kir_bind_names[ins->sub]); break;
    case CT_K_REDUCE:
    case CT_K_FOLD: ct__textf(out, " %s", ct__kred_name(ins->sub)); break;
    case CT_K_ZIP: ct__text_add(out, ins->sub ? " high" : " low"); break;
    case CT_K_MATH:
    case CT_K_MATH_WHERE: ct__textf(out, " %s", ct__kir_math_name(ins->sub)); break;
    case CT_K_CAST: ct__textf(out, " to %s", ct_dtype_name(ins->sub)); break;
    default: break;
    }
}

void ct__kir_print(const ct_kir *k, ct_text *out) {
    for (size_t i = 0; i < k->nbufs; i++) {
        const ct_kbuf *b = &k->bufs[i];
        ct__textf(out, "b%zu: %s", i, ct_dtype_name(b->dtype));
        if (b->flags & CT_KIR_LOCAL)
            ct__textf(out, " local[%lld]\n", (long long)b->count);
        else
            ct__textf(out, "%s%s%s\n", b->flags & CT_KIR_READ ? " read" : "",
                      b->flags & CT_KIR_WRITE ? " write" : "",
                      b->flags & CT_KIR_ALIAS ? " alias" : "");
    }
    int depth = 0;
    for (size_t i = 0; i < k->n; i++) {
        const ct_kins *ins = &k->ins[i];
        depth -= ins->op == CT_K_END;
        ct__textf(out, "%4zu %*s", i, depth > 0 ? 2 * depth : 0, "");
        if (ins->dtype)
            ct__textf(out, "%s%s ", ct_dtype_name(ins->dtype), ins->lanes == CT_LANES ? "x16" : "");
        kir_print_lower(out, ct__kop_name(ins->op));
        kir_print_detail(ins, out);
        const ct_kval ops[4] = {ins->a, ins->b, ins->c, ins->d};
        for (int j = 0; j < 4; j++)
            if (ops[j] >= 0) ct__textf(out, " %%%d", ops[j]);
        if (ins->name) ct__textf(out, "  // %s", ins->name);
        ct__text_add(out, "\n");
        depth += ins->op == CT_K_LOOP;
    }
}
