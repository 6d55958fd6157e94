// The builder of kernel IR: infers and checks types, folds i64 constants, and shares equal pure
// instructions.
#include "kir/kir.h"

#include <string.h>

#include "base/number.h"

void ct__kir_init(ct_kir *k) {
    *k = (ct_kir){0};
    k->open = -1;
}

void ct__kir_free(ct_kir *k) {
    ct__free(k->ins);
    ct__free(k->bufs);
    ct__free(k->shared);
    ct__kir_init(k);
}

const char *ct__kop_name(ct_kop op) {
    static const char *const names[] = {
#define X(name, arity) #name,
        CT_KOPS(X)
#undef X
    };
    return op < CT_K_COUNT ? names[op] : "?";
}

const char *ct__kred_name(ct_kred op) {
    static const char *const names[] = {"none", "add", "mul",    "max",   "min",
                                        "or",   "and", "argmax", "argmin"};
    return op <= CT_RED_ARGMIN ? names[op] : "?";
}

static ct_kval kir_fail(ct_kir *k, ct_kop op, const char *what) {
    ct__err(&k->err, CT_E_INTERNAL, CT_NOWHERE, "kernel", "%s at instruction %zu: %s",
            ct__kop_name(op), k->n, what);
    return -1;
}

// ---------------------------------------------------------------------------------- instructions

static bool kir_is_compute_dtype(int dtype) {
    return ct__is_dtype((ct_dtype)dtype) && !ct__is_narrow((ct_dtype)dtype);
}

static uint64_t kir_pack(int32_t a, int32_t b) { return (uint64_t)(uint32_t)a << 32 | (uint32_t)b; }
static void kir_pack_instruction(const ct_kins *ins, uint64_t *w) { // 4
    w[0] = (uint64_t)ins->op | (uint64_t)ins->dtype << 8 | (uint64_t)ins->lanes << 16 |
           (uint64_t)ins->sub << 24;
    w[1] = kir_pack(ins->a, ins->b);
    w[2] = kir_pack(ins->c, ins->d);
    w[3] = (uint64_t)ins->imm.i;
}
static uint64_t kir_hash_instruction(const ct_kins *ins) {
    uint64_t h = 0x9e3779b97f4a7c15u, words[4];
    kir_pack_instruction(ins, words);
    for (int i = 0; i < 4; i++) {
        h = (h ^ words[i]) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h;
}

static bool kir_same_instruction(const ct_kins *x, const ct_kins *y) {
    return x->op == y->op && x->dtype == y->dtype && x->lanes == y->lanes && x->sub == y->sub &&
           x->a == y->a && x->b == y->b && x->c == y->c && x->d == y->d && x->imm.i == y->imm.i;
}

ct_hash ct__kir_hash(const ct_kir *k) {
    uint64_t sizes[2] = {kir_pack(k->nparams, k->nargs),
                         kir_pack((int32_t)k->nbufs, (int32_t)k->n)};
    ct_hash h = ct__hash_bytes(sizes, sizeof sizes, (ct_hash){0, 0});
    for (size_t i = 0; i < k->nbufs; i++) {
        uint64_t buf[2] = {kir_pack((int32_t)k->bufs[i].dtype, k->bufs[i].flags),
                           (uint64_t)k->bufs[i].count};
        h = ct__hash_bytes(buf, sizeof buf, h);
    }
    for (size_t i = 0; i < k->n; i++) {
        const ct_kins *x = &k->ins[i];
        uint64_t w[6] = {0, 0, 0, 0, kir_pack(x->in, x->end), 0};
        kir_pack_instruction(x, w);
        if (x->name) w[5] = ct__hash_bytes(x->name, strlen(x->name), (ct_hash){0, 0}).lo;
        h = ct__hash_bytes(w, sizeof w, h);
    }
    return h;
}

bool ct__kir_same(const ct_kir *a, const ct_kir *b) {
    if (a->n != b->n || a->nbufs != b->nbufs || a->nparams != b->nparams || a->nargs != b->nargs)
        return false;
    for (size_t i = 0; i < a->nbufs; i++)
        if (a->bufs[i].dtype != b->bufs[i].dtype || a->bufs[i].flags != b->bufs[i].flags ||
            a->bufs[i].count != b->bufs[i].count)
            return false;
    for (size_t i = 0; i < a->n; i++)
        if (!kir_same_instruction(&a->ins[i], &b->ins[i])) return false;
    return true;
}

// True if an instruction in loop `in` dominates the next one.
static bool kir_is_visible(const ct_kir *k, int32_t in) {
    for (ct_kval loop = k->open; loop >= 0; loop = k->ins[loop].in)
        if (loop == in) return true;
    return in < 0;
}

static ct_kval kir_append(ct_kir *k, ct_kins ins) {
    if (k->err.code) return -1;
    if (k->n >= INT32_MAX / 2 || !CT_GROW(k->ins, k->cap, k->n + 1)) {
        ct__err_memory(&k->err, CT_NOWHERE, "kernel", (k->n + 1) * sizeof ins);
        return -1;
    }
    ins.in = k->open;
    ins.end = -1;
    k->ins[k->n] = ins;
    return (ct_kval)k->n++;
}

static bool kir_grow_shared(ct_kir *k) {
    if (k->nshared * 2 < k->shared_cap) return true;
    size_t cap = k->shared_cap ? k->shared_cap * 2 : 64;
    int32_t *table = ct__malloc(cap * sizeof *table);
    if (!table) return ct__err_memory(&k->err, CT_NOWHERE, "kernel", cap * sizeof *table);
    memset(table, 0xff, cap * sizeof *table);
    for (size_t i = 0; i < k->shared_cap; i++) {
        if (k->shared[i] < 0) continue;
        size_t slot = kir_hash_instruction(&k->ins[k->shared[i]]) & (cap - 1);
        while (table[slot] >= 0) slot = (slot + 1) & (cap - 1);
        table[slot] = k->shared[i];
    }
    ct__free(k->shared);
    k->shared = table;
    k->shared_cap = cap;
    return true;
}

// Appends a pure instruction, or returns an equal one that is in scope.
static ct_kval kir_append_pure(ct_kir *k, ct_kins ins) {
    if (k->err.code || !kir_grow_shared(k)) return -1;
    size_t slot = kir_hash_instruction(&ins) & (k->shared_cap - 1);
    for (; k->shared[slot] >= 0; slot = (slot + 1) & (k->shared_cap - 1)) {
        ct_kins *old = &k->ins[k->shared[slot]];
        if (!kir_same_instruction(old, &ins)) continue;
        if (kir_is_visible(k, old->in)) return k->shared[slot];
        return k->shared[slot] = kir_append(k, ins);
    }
    ct_kval v = kir_append(k, ins);
    if (v >= 0) {
        k->shared[slot] = v;
        k->nshared++;
    }
    return v;
}

static ct_kins kir_instruction(ct_kop op, int dtype, int lanes, ct_kval a, ct_kval b, ct_kval c) {
    return (ct_kins){.op = (uint8_t)op,
                     .dtype = (uint8_t)dtype,
                     .lanes = (uint8_t)lanes,
                     .a = a,
                     .b = b,
                     .c = c,
                     .d = -1};
}

// Returns an operand that exists and has a value, or NULL with an error recorded.
static const ct_kins *kir_check_operand(ct_kir *k, ct_kop op, ct_kval v) {
    if (k->err.code) return NULL;
    if (v < 0 || (size_t)v >= k->n || !k->ins[v].dtype) {
        kir_fail(k, op, "an operand is no value");
        return NULL;
    }
    if (k->ins[v].op == CT_K_REG && op != CT_K_GET && op != CT_K_SET) {
        kir_fail(k, op, "a register is read with GET");
        return NULL;
    }
    return &k->ins[v];
}

// Three operands, and the most lanes that one of them has; 0: an error is recorded.
static int kir_check_three(ct_kir *k, ct_kop op, const ct_kval v[3], const ct_kins *x[3]) {
    int lanes = 0;
    for (int i = 0; i < 3; i++) {
        if (!(x[i] = kir_check_operand(k, op, v[i]))) return 0;
        if (x[i]->lanes > lanes) lanes = x[i]->lanes;
    }
    return lanes;
}

// ---------------------------------------------------------------------------- parameters, values

static int kir_add_buffer(ct_kir *k, ct_dtype dtype, int flags, int64_t count) {
    if (k->err.code) return -1;
    if (!ct__is_dtype(dtype) || k->nbufs >= CT_KIR_MAX_BUFFERS)
        return kir_fail(k, CT_K_PARAM, "a buffer of no dtype, or too many buffers");
    if (!CT_GROW(k->bufs, k->bufs_cap, k->nbufs + 1)) {
        ct__err_memory(&k->err, CT_NOWHERE, "kernel", sizeof(ct_kbuf));
        return -1;
    }
    k->bufs[k->nbufs] = (ct_kbuf){.dtype = dtype, .flags = flags, .count = count};
    return (int)k->nbufs++;
}

int ct__kir_buffer(ct_kir *k, ct_dtype dtype, int flags) {
    if (!(flags & (CT_KIR_READ | CT_KIR_WRITE)) || (flags & CT_KIR_LOCAL))
        return kir_fail(k, CT_K_PARAM, "a buffer is read, written or both");
    int id = kir_add_buffer(k, dtype, flags, 0);
    k->nparams += id >= 0;
    return id;
}

int ct__kir_local(ct_kir *k, ct_dtype dtype, int64_t count) {
    if (count <= 0 || count > ((int64_t)1 << 32))
        return kir_fail(k, CT_K_PARAM, "a local buffer has 1 to 2^32 elements");
    return kir_add_buffer(k, dtype, CT_KIR_READ | CT_KIR_WRITE | CT_KIR_LOCAL, count);
}

ct_kval ct__kir_arg(ct_kir *k) {
    if (k->open >= 0) return kir_fail(k, CT_K_ARG, "args are declared before the loops");
    ct_kins ins = kir_instruction(CT_K_ARG, CT_I64, 1, -1, -1, -1);
    ins.imm.i = k->nargs++;
    return kir_append(k, ins);
}

ct_kval ct__kir_param(ct_kir *k, ct_dtype dtype) {
    if (!kir_is_compute_dtype(dtype) || k->open >= 0)
        return kir_fail(k, CT_K_PARAM, "a parameter of no dtype");
    ct_kins ins = kir_instruction(CT_K_PARAM, dtype, 1, -1, -1, -1);
    for (size_t i = 0; i < k->n; i++) ins.imm.i += k->ins[i].op == CT_K_PARAM;
    return kir_append(k, ins);
}

void ct__kir_ret(ct_kir *k, ct_kval value) {
    const ct_kins *v = kir_check_operand(k, CT_K_RET, value);
    if (v) kir_append(k, kir_instruction(CT_K_RET, CT_DEFAULT, 0, value, -1, -1));
}

ct_kval ct__kir_const_int(ct_kir *k, ct_dtype dtype, int64_t value) {
    ct_dtype compute = ct__kir_compute_dtype(dtype);
    if (ct__is_float(compute)) return ct__kir_const(k, dtype, (double)value);
    if (!kir_is_compute_dtype(compute)) return kir_fail(k, CT_K_CONST, "a constant of no dtype");
    ct_kins ins = kir_instruction(CT_K_CONST, compute, 1, -1, -1, -1);
    switch (dtype) {
    case CT_BOOL: ins.imm.i = value != 0; break;
    case CT_U8: ins.imm.i = (uint8_t)value; break;
    case CT_U16: ins.imm.i = (uint16_t)value; break;
    case CT_I8: ins.imm.i = (int8_t)(uint8_t)value; break;
    case CT_I16: ins.imm.i = (int16_t)(uint16_t)value; break;
    case CT_I32: ins.imm.i = (int32_t)(uint32_t)(uint64_t)value; break;
    case CT_U32: ins.imm.i = (uint32_t)value; break;
    default: ins.imm.i = value; break;
    }
    return kir_append_pure(k, ins);
}

ct_kval ct__kir_const(ct_kir *k, ct_dtype dtype, double value) {
    if (ct__is_narrow_float(dtype))
        return ct__kir_const(k, CT_F32, ct__decode_float(dtype, ct__encode_float(dtype, value)));
    if (!ct__is_float(dtype)) return ct__kir_const_int(k, dtype, (int64_t)value);
    ct_kins ins = kir_instruction(CT_K_CONST, dtype, 1, -1, -1, -1);
    ins.imm.f = dtype == CT_F32 ? (double)(float)value : value;
    return kir_append_pure(k, ins);
}

ct_kval ct__kir_int(ct_kir *k, int64_t value) { return ct__kir_const_int(k, CT_I64, value); }

bool ct__kir_is_int(const ct_kir *k, ct_kval v, int64_t *value) {
    if (v < 0 || (size_t)v >= k->n || k->ins[v].op != CT_K_CONST || k->ins[v].dtype != CT_I64)
        return false;
    *value = k->ins[v].imm.i;
    return true;
}

// ------------------------------------------------------------------------------------ arithmetic

// Computes x op y of i64 constants, with the semantics of kir.h.
static bool kir_fold_i64(ct_kop op, int64_t x, int64_t y, int64_t *r) {
    uint64_t ux = (uint64_t)x, uy = (uint64_t)y;
    switch (op) {
    case CT_K_ADD: *r = (int64_t)(ux + uy); return true;
    case CT_K_SUB: *r = (int64_t)(ux - uy); return true;
    case CT_K_MUL: *r = (int64_t)(ux * uy); return true;
    case CT_K_DIV: *r = y == 0 ? 0 : y == -1 ? (int64_t)(0 - ux) : x / y; return true;
    case CT_K_MOD: *r = y == 0 || y == -1 ? 0 : x % y; return true;
    case CT_K_MIN: *r = x < y ? x : y; return true;
    case CT_K_MAX: *r = x > y ? x : y; return true;
    case CT_K_LT: *r = x < y; return true;
    case CT_K_LE: *r = x <= y; return true;
    case CT_K_EQ: *r = x == y; return true;
    case CT_K_NE: *r = x != y; return true;
    default: return false;
    }
}

static bool kir_is_compare(ct_kop op) { return op >= CT_K_LT && op <= CT_K_NE; }

// Returns the narrower integer that was widened to the i64 v; -1: it is no widened one.
static ct_kval kir_before_widening(const ct_kir *k, ct_kval v) {
    const ct_kins *ins = &k->ins[v];
    if (ins->op != CT_K_CAST) return -1;
    const ct_dtype dtype = (ct_dtype)k->ins[ins->a].dtype;
    return ct__is_int(dtype) && dtype != CT_U64 ? ins->a : -1;
}

// Replaces a comparison of i64 of which one side was widened, and the other is a constant or was widened
// too, by a comparison of the narrower type, or by a constant that follows from its range; -1: it is no
// such comparison.
static ct_kval kir_compare_narrow(ct_kir *k, ct_kop op, ct_kval a, ct_kval b) {
    int64_t c = 0, least, greatest;
    const ct_kval x = kir_before_widening(k, a), y = kir_before_widening(k, b);
    if (x >= 0 && y >= 0 && k->ins[x].dtype == k->ins[y].dtype) return ct__kir_bin(k, op, x, y);
    const bool left = x < 0;
    if (left ? y < 0 || !ct__kir_is_int(k, a, &c) : !ct__kir_is_int(k, b, &c)) return -1;
    const ct_dtype dtype = (ct_dtype)k->ins[left ? y : x].dtype;
    const int64_t lo = ct__int_min(dtype), hi = ct__int_max(dtype);
    const bool holds = c >= lo && c <= hi;
    kir_fold_i64(op, left ? c : lo, left ? lo : c, &least);
    kir_fold_i64(op, left ? c : hi, left ? hi : c, &greatest);
    if (least == greatest && (!holds || op == CT_K_LT || op == CT_K_LE))
        return ct__kir_const_int(k, CT_BOOL, least);
    const ct_kval number = ct__kir_const_int(k, dtype, c);
    return ct__kir_bin(k, op, left ? number : x, left ? y : number);
}

// Simplifies i64 index arithmetic; -1: there is nothing to simplify.
static ct_kval kir_simplify(ct_kir *k, ct_kop op, ct_kval a, ct_kval b) {
    int64_t x = 0, y = 0, r = 0;
    bool cx = ct__kir_is_int(k, a, &x), cy = ct__kir_is_int(k, b, &y);
    if (cx && cy && kir_fold_i64(op, x, y, &r))
        return ct__kir_const_int(k, kir_is_compare(op) ? CT_BOOL : CT_I64, r);
    if (kir_is_compare(op)) return kir_compare_narrow(k, op, a, b);
    switch (op) {
    case CT_K_ADD:
        if (cx && x == 0) return b;
        if (cy && y == 0) return a;
        break;
    case CT_K_SUB:
        if (cy && y == 0) return a;
        break;
    case CT_K_MUL:
        if (cx && x == 1) return b;
        if (cy && y == 1) return a;
        if ((cx && x == 0) || (cy && y == 0)) return ct__kir_int(k, 0);
        break;
    case CT_K_DIV:
        if (cy && y == 1) return a;
        break;
    case CT_K_MOD:
        if (cy && y == 1) return ct__kir_int(k, 0);
        break;
    default: break;
    }
    // (v op c1) op c2 with the constant on the right
    const ct_kins ia = k->ins[a]; // a copy: a new constant may move the instructions
    int64_t z = 0;
    if (cy && (op == CT_K_ADD || op == CT_K_MUL) && ia.op == op && ct__kir_is_int(k, ia.b, &z) &&
        kir_fold_i64(op, z, y, &r))
        return ct__kir_bin(k, op, ia.a, ct__kir_int(k, r));
    return -1;
}

static bool kir_commutes(ct_kop op) {
    return op == CT_K_ADD || op == CT_K_MUL || op == CT_K_MIN || op == CT_K_MAX || op == CT_K_AND ||
           op == CT_K_OR || op == CT_K_XOR || op == CT_K_EQ || op == CT_K_NE;
}

// 1, 0 or (2) unknown
static int kir_bool_const(const ct_kir *k, ct_kval v) {
    const ct_kins *i = &k->ins[v];
    return i->op == CT_K_CONST && i->dtype == CT_BOOL ? (int)i->imm.i : 2;
}

static ct_kval kir_simplify_bool(ct_kir *k, ct_kop op, ct_kval a, ct_kval b) {
    int x = kir_bool_const(k, a), y = kir_bool_const(k, b);
    if (op == CT_K_AND) {
        if (x == 1 || y == 0 || a == b) return b;
        if (y == 1 || x == 0) return a;
    } else if (op == CT_K_OR) {
        if (x == 0 || y == 1 || a == b) return b;
        if (y == 0 || x == 1) return a;
    }
    return -1;
}

// An integer compared or combined with itself gives a constant or itself; a C compiler would warn about
// such a comparison. (A float may be NaN.)
static ct_kval kir_simplify_equal_operands(ct_kir *k, ct_kop op, ct_kval a) {
    if (kir_is_compare(op)) return ct__kir_const_int(k, CT_BOOL, op == CT_K_LE || op == CT_K_EQ);
    return op == CT_K_MIN || op == CT_K_MAX ? a : -1;
}

static const char *kir_binary_error(ct_kop op, int dtype) {
    bool bits = op == CT_K_AND || op == CT_K_OR || op == CT_K_XOR;
    bool shift = op == CT_K_SHL || op == CT_K_SHR;
    if ((bits || shift) && ct__is_float(dtype)) return "bits of a float: BITCAST it first";
    if (dtype == CT_BOOL && !bits && !kir_is_compare(op))
        return "arithmetic on bool: CAST it first";
    return NULL;
}

ct_kval ct__kir_bin(ct_kir *k, ct_kop op, ct_kval a, ct_kval b) {
    const ct_kins *x = kir_check_operand(k, op, a), *y = kir_check_operand(k, op, b);
    if (!x || !y) return -1;
    if (op < CT_K_ADD || op > CT_K_NE) return kir_fail(k, op, "not an op of two operands");
    if (x->dtype != y->dtype) return kir_fail(k, op, "the operands differ in dtype");
    const char *message = kir_binary_error(op, x->dtype);
    if (message) return kir_fail(k, op, message);
    int dtype = x->dtype, lanes = x->lanes > y->lanes ? x->lanes : y->lanes;
    bool same_operands = a == b && lanes == 1 && !ct__is_float(dtype);
    ct_kval v = same_operands ? kir_simplify_equal_operands(k, op, a) : -1;
    if (v >= 0 || k->err.code) return v;
    v = dtype == CT_I64 && lanes == 1              ? kir_simplify(k, op, a, b)
        : dtype == CT_BOOL && x->lanes == y->lanes ? kir_simplify_bool(k, op, a, b)
                                                   : -1;
    if (v >= 0 || k->err.code) return v;
    x = &k->ins[a];
    y = &k->ins[b];
    bool swap = kir_commutes(op) && !ct__is_float(dtype) &&
                (x->op == CT_K_CONST ? y->op != CT_K_CONST || a > b : y->op != CT_K_CONST && a > b);
    ct_kins ins = kir_instruction(op, kir_is_compare(op) ? CT_BOOL : dtype, lanes, swap ? b : a,
                                  swap ? a : b, -1);
    return kir_append_pure(k, ins);
}

ct_kval ct__kir_un(ct_kir *k, ct_kop op, ct_kval a) {
    const ct_kins *x = kir_check_operand(k, op, a);
    if (!x) return -1;
    if (op < CT_K_NEG || op > CT_K_NOT) return kir_fail(k, op, "not an op of one operand");
    int dtype = x->dtype, lanes = x->lanes;
    if (op == CT_K_NOT ? ct__is_float(dtype) : dtype == CT_BOOL)
        return kir_fail(k, op, "dtype not accepted");
    if (op >= CT_K_SQRT && op <= CT_K_TRUNC && !ct__is_float(dtype)) {
        if (op == CT_K_SQRT) return kir_fail(k, op, "sqrt of an int: CAST it first");
        return a; // rounding an int
    }
    int known = op == CT_K_NOT ? kir_bool_const(k, a) : 2;
    if (known != 2) return ct__kir_const_int(k, CT_BOOL, !known);
    return kir_append_pure(k, kir_instruction(op, dtype, lanes, a, -1, -1));
}

ct_kval ct__kir_fma(ct_kir *k, ct_kval a, ct_kval b, ct_kval c) {
    const ct_kins *x[3];
    const int lanes = kir_check_three(k, CT_K_FMA, (const ct_kval[]){a, b, c}, x);
    if (!lanes) return -1;
    if (!ct__is_float(x[0]->dtype) || x[0]->dtype != x[1]->dtype || x[1]->dtype != x[2]->dtype)
        return kir_fail(k, CT_K_FMA, "the operands are not floats of one dtype");
    return kir_append_pure(k, kir_instruction(CT_K_FMA, x[0]->dtype, lanes, a, b, c));
}

// Appends a dot product of the packed elements of words of a and b, added to c.
static ct_kval kir_dot_of_words(ct_kir *k, ct_kop op, ct_dtype word_dtype, ct_dtype sum, bool low,
                                const ct_kval in[3], const char *message) {
    const ct_kins *x[3];
    const int lanes = kir_check_three(k, op, in, x);
    if (!lanes) return -1;
    if (x[0]->dtype != word_dtype || x[1]->dtype != word_dtype || x[2]->dtype != sum)
        return kir_fail(k, op, message);
    ct_kins dot = kir_instruction(op, sum, lanes, in[0], in[1], in[2]);
    dot.sub = low;
    return kir_append_pure(k, dot);
}
ct_kval ct__kir_dot4(ct_kir *k, ct_kval a, ct_kval b, ct_kval c, bool low) {
    return kir_dot_of_words(k, CT_K_DOT4, CT_I32, CT_I32, low, (const ct_kval[]){a, b, c},
                            "the operands are not i32");
}
ct_kval ct__kir_dot2(ct_kir *k, ct_kval a, ct_kval b, ct_kval c) {
    return kir_dot_of_words(k, CT_K_DOT2, CT_U32, CT_F32, false, (const ct_kval[]){a, b, c},
                            "the operands are not two of u32 and one of f32");
}

ct_kval ct__kir_lookup4(ct_kir *k, ct_kval a, ct_kval low, ct_kval high) {
    const ct_kins *x = kir_check_operand(k, CT_K_LOOKUP4, a),
                  *y = kir_check_operand(k, CT_K_LOOKUP4, low),
                  *z = kir_check_operand(k, CT_K_LOOKUP4, high);
    if (!x || !y || !z) return -1;
    if (y->op == CT_K_SPLAT) y = &k->ins[low = y->a];
    if (z->op == CT_K_SPLAT) z = &k->ins[high = z->a];
    if (x->dtype != CT_I32 || y->dtype != CT_I64 || z->dtype != CT_I64)
        return kir_fail(k, CT_K_LOOKUP4, "the operands are not an i32 and two i64");
    if (y->op != CT_K_CONST || z->op != CT_K_CONST)
        return kir_fail(k, CT_K_LOOKUP4, "the table is no constant");
    return kir_append_pure(k, kir_instruction(CT_K_LOOKUP4, CT_I32, x->lanes, a, low, high));
}

ct_kval ct__kir_select(ct_kir *k, ct_kval cond, ct_kval a, ct_kval b) {
    const ct_kins *x[3];
    const int lanes = kir_check_three(k, CT_K_SELECT, (const ct_kval[]){cond, a, b}, x);
    if (!lanes) return -1;
    if (x[0]->dtype != CT_BOOL || x[1]->dtype != x[2]->dtype)
        return kir_fail(k, CT_K_SELECT, "the condition is no bool, or the values differ in dtype");
    int known = kir_bool_const(k, cond);
    if (known != 2 && x[1]->lanes == x[2]->lanes) return known ? a : b;
    if (a == b) return a;
    return kir_append_pure(k, kir_instruction(CT_K_SELECT, x[1]->dtype, lanes, cond, a, b));
}

static bool kir_is_const(const ct_kir *k, ct_kval v, int64_t value) {
    return v >= 0 && k->ins[v].op == CT_K_CONST && k->ins[v].imm.i == value;
}

// Wraps an i32 to the range of i8, i16 or u16.
static ct_kval kir_wrap(ct_kir *k, ct_kval a, ct_dtype to) {
    const ct_kins *x = &k->ins[a];
    int by = 32 - 8 * (int)ct_dtype_size(to);
    bool loads = x->op == CT_K_LOAD || x->op == CT_K_VLOAD;
    if (loads && k->bufs[x->imm.i].dtype == to) return a;
    if (x->op == CT_K_CONST && x->lanes == 1) return ct__kir_const_int(k, to, x->imm.i);
    if (to == CT_U16) {
        if (x->op == CT_K_AND && kir_is_const(k, x->b, UINT16_MAX)) return a;
        return ct__kir_bin(k, CT_K_AND, a, ct__kir_const_int(k, CT_I32, UINT16_MAX));
    }
    if (x->op == CT_K_SHR && kir_is_const(k, x->b, by)) return a;
    ct_kval bits = ct__kir_const_int(k, CT_I32, by);
    return ct__kir_bin(k, CT_K_SHR, ct__kir_bin(k, CT_K_SHL, a, bits), bits);
}

// Saturates an i32, converted from a float, to the range of i8, i16 or u16.
static ct_kval kir_saturate(ct_kir *k, ct_kval a, ct_dtype to) {
    ct_kval x = ct__kir_min(k, a, ct__kir_const_int(k, CT_I32, ct__int_max(to)));
    return ct__kir_max(k, x, ct__kir_const_int(k, CT_I32, ct__int_min(to)));
}

// Rounds an f64 to odd: the f32 that rounds to any narrower float as the f64 itself would. If the f64 is
// not exact in f32, it is the neighbour whose last bit is set. (f32 has at least two bits more than any
// narrower float.)
static ct_kval kir_round_to_odd_f32(ct_kir *k, ct_kval x) {
    ct_kval y = ct__kir_cast(k, x, CT_F32), bits = ct__kir_bitcast(k, y, CT_I32);
    ct_kval size = ct__kir_un(k, CT_K_ABS, x);
    ct_kval near = ct__kir_un(k, CT_K_ABS, ct__kir_cast(k, y, CT_F64));
    ct_kval none = ct__kir_const_int(k, CT_I32, 0), one = ct__kir_const_int(k, CT_I32, 1);
    ct_kval down = ct__kir_lt(k, size, near), up = ct__kir_lt(k, near, size); // NaN: neither
    ct_kval step = ct__kir_select(k, up, one, none);
    step = ct__kir_select(k, down, ct__kir_const_int(k, CT_I32, -1), step);
    ct_kval even = ct__kir_bin(k, CT_K_EQ, ct__kir_bin(k, CT_K_AND, bits, one), none);
    ct_kval moved = ct__kir_select(k, even, ct__kir_add(k, bits, step), bits);
    return ct__kir_bitcast(k, moved, CT_F32);
}

ct_kval ct__kir_cast(ct_kir *k, ct_kval a, ct_dtype to) {
    const ct_kins *x = kir_check_operand(k, CT_K_CAST, a);
    if (!x) return -1;
    if (!ct__is_dtype(to)) return kir_fail(k, CT_K_CAST, "to no dtype");
    ct_dtype compute = ct__kir_compute_dtype(to);
    bool narrow = ct__is_narrow_float(to);
    if (compute != to && x->dtype != compute) {
        // integers are cast to narrow floats by way of f32, and everything to narrow integers by way of i32
        bool to_int = compute == CT_I32 && ct__is_float(x->dtype);
        a = narrow && x->dtype == CT_F64 ? kir_round_to_odd_f32(k, a) : ct__kir_cast(k, a, compute);
        if (a < 0) return -1;
        if (to_int) return kir_saturate(k, a, to);
        x = &k->ins[a];
    }
    if (compute == CT_I32 && to != CT_I32) return kir_wrap(k, a, to);
    if (x->dtype == to) return a;
    if (narrow && x->op == CT_K_CAST && x->sub == to) return a;
    int64_t known = 0;
    if ((to == CT_I32 || to == CT_U32) && ct__kir_is_int(k, a, &known))
        return ct__kir_const_int(k, to, known);
    ct_kins ins = kir_instruction(CT_K_CAST, narrow ? CT_F32 : (int)to, x->lanes, a, -1, -1);
    ins.sub = (uint8_t)to;
    return kir_append_pure(k, ins);
}

ct_kval ct__kir_unpack_half(ct_kir *k, ct_kval word, bool high) {
    const ct_kop op = high ? CT_K_HIGH_HALF : CT_K_LOW_HALF;
    const ct_kins *x = kir_check_operand(k, op, word);
    if (!x) return -1;
    if (x->dtype != CT_U32) return kir_fail(k, op, "of what is no u32");
    return kir_append_pure(k, kir_instruction(op, CT_F32, x->lanes, word, -1, -1));
}

ct_kval ct__kir_bitcast(ct_kir *k, ct_kval a, ct_dtype to) {
    const ct_kins *x = kir_check_operand(k, CT_K_BITCAST, a);
    if (!x) return -1;
    bool four = x->dtype == CT_F32 || x->dtype == CT_I32 || x->dtype == CT_U32;
    bool four_to = to == CT_F32 || to == CT_I32 || to == CT_U32;
    bool eight = x->dtype == CT_F64 || x->dtype == CT_I64 || x->dtype == CT_U64;
    bool eight_to = to == CT_F64 || to == CT_I64 || to == CT_U64;
    if (!(four ? four_to : eight && eight_to))
        return kir_fail(k, CT_K_BITCAST, "the dtypes differ in size");
    if (x->dtype == to) return a;
    return kir_append_pure(k, kir_instruction(CT_K_BITCAST, to, x->lanes, a, -1, -1));
}

ct_kval ct__kir_math(ct_kir *k, ct_kmath f, ct_kval a) {
    const ct_kins *x = kir_check_operand(k, CT_K_MATH, a);
    if (!x) return -1;
    if (!ct__is_float(x->dtype) || (unsigned)f >= CT_MATH_COUNT)
        return kir_fail(k, CT_K_MATH, "of a value that is no float");
    ct_kins ins = kir_instruction(CT_K_MATH, x->dtype, x->lanes, a, -1, -1);
    ins.sub = (uint8_t)f;
    return kir_append_pure(k, ins);
}

ct_kval ct__kir_math_where(ct_kir *k, ct_kmath f, ct_kval cond, ct_kval x, ct_kval y) {
    const ct_kins *in[3];
    if (!kir_check_three(k, CT_K_MATH_WHERE, (const ct_kval[]){cond, x, y}, in)) return -1;
    if (in[0]->dtype != CT_BOOL || !ct__is_float(in[1]->dtype) || in[1]->dtype != in[2]->dtype ||
        (unsigned)f >= CT_MATH_COUNT)
        return kir_fail(k, CT_K_MATH_WHERE, "not a bool and two floats of one dtype");
    ct_kins ins = kir_instruction(CT_K_MATH_WHERE, in[1]->dtype, 1, cond, x, y);
    ins.sub = (uint8_t)f;
    return kir_append_pure(k, ins);
}

ct_kval ct__kir_scale(ct_kir *k, ct_kval x, ct_kval n) {
    const ct_kins *a = kir_check_operand(k, CT_K_SCALE, x),
                  *b = kir_check_operand(k, CT_K_SCALE, n);
    if (!a || !b) return -1;
    if (!ct__is_float(a->dtype) || a->dtype != b->dtype)
        return kir_fail(k, CT_K_SCALE, "the operands are not floats of one dtype");
    return kir_append_pure(k, kir_instruction(CT_K_SCALE, a->dtype, 1, x, n, -1));
}

ct_kval ct__kir_is_in_range(ct_kir *k, ct_kval x, ct_kval n) {
    const ct_kins *i = kir_check_operand(k, CT_K_LT, x), *m = kir_check_operand(k, CT_K_LT, n);
    if (!i || !m) return -1;
    const ct_kval before = i->dtype == CT_I64 ? kir_before_widening(k, x) : -1;
    if (before < 0 || k->ins[before].dtype != CT_I32) {
        const ct_kval negative = ct__kir_lt(k, x, ct__kir_int(k, 0));
        const ct_kval below = ct__kir_lt(k, x, n);
        return ct__kir_bin(k, CT_K_AND, ct__kir_un(k, CT_K_NOT, negative), below);
    }
    // As unsigned numbers, negative ones are above all others.
    const ct_kval end = ct__kir_min(k, n, ct__kir_int(k, (int64_t)INT32_MAX + 1));
    return ct__kir_lt(k, ct__kir_bitcast(k, before, CT_U32), ct__kir_cast(k, end, CT_U32));
}

ct_kval ct__kir_addi(ct_kir *k, ct_kval a, int64_t b) {
    return ct__kir_add(k, a, ct__kir_int(k, b));
}
ct_kval ct__kir_muli(ct_kir *k, ct_kval a, int64_t b) {
    return ct__kir_mul(k, a, ct__kir_int(k, b));
}
ct_kval ct__kir_ceil_div(ct_kir *k, ct_kval a, int64_t b) {
    ct_kval by = ct__kir_int(k, b);
    return ct__kir_div(k, ct__kir_addi(k, a, b - 1), by);
}

// ---------------------------------------------------------------------------------------- memory

// Checks an access; false: an error is recorded.
static bool kir_check_access(ct_kir *k, ct_kop op, int buf, int flag, ct_kval index, ct_kval cond) {
    const ct_kins *i = kir_check_operand(k, op, index);
    if (!i) return false;
    if (buf < 0 || (size_t)buf >= k->nbufs) return kir_fail(k, op, "no such buffer"), false;
    if (!(k->bufs[buf].flags & flag))
        return kir_fail(k, op, "the buffer is not declared so"), false;
    if (i->dtype != CT_I64) return kir_fail(k, op, "the index is not i64"), false;
    if (cond < 0) return true;
    const ct_kins *c = kir_check_operand(k, op, cond);
    if (c && c->dtype != CT_BOOL) kir_fail(k, op, "the condition is no bool");
    return k->err.code == CT_OK;
}

void ct__kir_prefetch(ct_kir *k, int buf, ct_kval index, bool write) {
    if (!kir_check_access(k, CT_K_PREFETCH, buf, write ? CT_KIR_WRITE : CT_KIR_READ, index, -1))
        return;
    ct_kins ins = kir_instruction(CT_K_PREFETCH, CT_DEFAULT, 0, index, -1, -1);
    ins.sub = write;
    ins.imm.i = buf;
    kir_append(k, ins);
}

void ct__kir_set_prefetch_mode(ct_kir *k, bool on) { k->prefetch_mode = on; }

ct_kval ct__kir_load_if(ct_kir *k, int buf, ct_kval index, ct_kval cond) {
    if (!kir_check_access(k, CT_K_LOAD, buf, CT_KIR_READ, index, cond)) return -1;
    if (k->prefetch_mode) {
        const ct_dtype dtype = ct__kir_compute_dtype(k->bufs[buf].dtype);
        ct__kir_prefetch(k, buf, index, false);
        return ct__is_float(dtype) ? ct__kir_const(k, dtype, 0) : ct__kir_const_int(k, dtype, 0);
    }
    if (cond >= 0 && kir_bool_const(k, cond) == 1) cond = -1;
    int lanes = k->ins[index].lanes;
    if (cond >= 0 && k->ins[cond].lanes > lanes) lanes = k->ins[cond].lanes;
    ct_kins ins = kir_instruction(CT_K_LOAD, ct__kir_compute_dtype(k->bufs[buf].dtype), lanes,
                                  index, cond, -1);
    ins.imm.i = buf;
    return kir_append(k, ins);
}

ct_kval ct__kir_load(ct_kir *k, int buf, ct_kval index) {
    return ct__kir_load_if(k, buf, index, -1);
}

ct_kval ct__kir_lookup(ct_kir *k, int table, ct_kval index) {
    ct_kval masked = ct__kir_bin(k, CT_K_AND, index, ct__kir_const_int(k, CT_I32, CT_LANES - 1));
    return ct__kir_load(k, table, ct__kir_cast(k, masked, CT_I64));
}

static bool kir_check_stored(ct_kir *k, ct_kop op, int buf, ct_kval value) {
    const ct_kins *v = kir_check_operand(k, op, value);
    if (v && v->dtype != ct__kir_compute_dtype(k->bufs[buf].dtype))
        kir_fail(k, op, "the value has another dtype");
    return k->err.code == CT_OK;
}

void ct__kir_store_if(ct_kir *k, int buf, ct_kval index, ct_kval value, ct_kval cond) {
    if (!kir_check_access(k, CT_K_STORE, buf, CT_KIR_WRITE, index, cond) ||
        !kir_check_stored(k, CT_K_STORE, buf, value))
        return;
    if (k->prefetch_mode) {
        ct__kir_prefetch(k, buf, index, true);
        return;
    }
    if (cond >= 0 && kir_bool_const(k, cond) == 1) cond = -1;
    ct_kins ins = kir_instruction(CT_K_STORE, CT_DEFAULT, 0, index, value, cond);
    ins.imm.i = buf;
    kir_append(k, ins);
}

void ct__kir_store(ct_kir *k, int buf, ct_kval index, ct_kval value) {
    ct__kir_store_if(k, buf, index, value, -1);
}

void ct__kir_set_nontemporal(ct_kir *k, int buf) {
    for (size_t i = 0; i < k->n; i++) {
        ct_kins *ins = &k->ins[i];
        if ((ins->op == CT_K_STORE || ins->op == CT_K_VSTORE) && ins->imm.i == buf && ins->c < 0)
            ins->sub = true;
    }
}

static bool kir_check_count(ct_kir *k, ct_kop op, ct_kval index, ct_kval count) {
    if (k->ins[index].lanes != 1) return kir_fail(k, op, "the first index is a scalar"), false;
    if (count < 0) return true;
    const ct_kins *c = kir_check_operand(k, op, count);
    if (c && (c->dtype != CT_I64 || c->lanes != 1)) kir_fail(k, op, "the count is an i64 scalar");
    return k->err.code == CT_OK;
}

ct_kval ct__kir_vload(ct_kir *k, int buf, ct_kval index, ct_kval count) {
    if (!kir_check_access(k, CT_K_VLOAD, buf, CT_KIR_READ, index, -1) ||
        !kir_check_count(k, CT_K_VLOAD, index, count))
        return -1;
    ct_kins ins = kir_instruction(CT_K_VLOAD, ct__kir_compute_dtype(k->bufs[buf].dtype), CT_LANES,
                                  index, count, -1);
    ins.imm.i = buf;
    return kir_append(k, ins);
}

void ct__kir_vstore(ct_kir *k, int buf, ct_kval index, ct_kval value, ct_kval count) {
    if (!kir_check_access(k, CT_K_VSTORE, buf, CT_KIR_WRITE, index, -1) ||
        !kir_check_stored(k, CT_K_VSTORE, buf, value) ||
        !kir_check_count(k, CT_K_VSTORE, index, count))
        return;
    ct_kins ins = kir_instruction(CT_K_VSTORE, CT_DEFAULT, 0, index, value, count);
    ins.imm.i = buf;
    kir_append(k, ins);
}

// ----------------------------------------------------------- loops, registers, reductions, lanes

static bool kir_is_valid_name(const char *name) {
    for (; *name; name++)
        if (!((*name >= 'a' && *name <= 'z') || (*name >= '0' && *name <= '9') || *name == ' ' ||
              *name == '_'))
            return false;
    return true;
}

ct_kval ct__kir_loop(ct_kir *k, ct_kbind bind, ct_kval extent, const char *name) {
    const ct_kins *n = kir_check_operand(k, CT_K_LOOP, extent);
    if (!n) return -1;
    if (n->dtype != CT_I64 || n->lanes != 1)
        return kir_fail(k, CT_K_LOOP, "the extent is no i64 scalar");
    if (name && !kir_is_valid_name(name))
        return kir_fail(k, CT_K_LOOP, "the name holds odd characters");
    ct_kins ins = kir_instruction(CT_K_LOOP, CT_I64, 1, extent, -1, -1);
    ins.sub = (uint8_t)bind;
    ins.name = name;
    ct_kval loop = kir_append(k, ins);
    if (loop >= 0) k->open = loop;
    return loop;
}

ct_kval ct__kir_loop_n(ct_kir *k, ct_kbind bind, int64_t extent, const char *name) {
    return ct__kir_loop(k, bind, ct__kir_int(k, extent), name);
}

void ct__kir_end(ct_kir *k) {
    if (k->err.code) return;
    if (k->open < 0) {
        kir_fail(k, CT_K_END, "no loop is open");
        return;
    }
    ct_kval loop = k->open,
            end = kir_append(k, kir_instruction(CT_K_END, CT_DEFAULT, 0, loop, -1, -1));
    if (end < 0) return;
    k->ins[loop].end = end;
    k->open = k->ins[loop].in;
    k->ins[end].in = k->open;
}

void ct__kir_break(ct_kir *k, ct_kval cond) {
    const ct_kins *c = kir_check_operand(k, CT_K_BREAK, cond);
    if (!c) return;
    if (c->dtype != CT_BOOL)
        kir_fail(k, CT_K_BREAK, "the condition is no bool");
    else
        kir_append(k, kir_instruction(CT_K_BREAK, CT_DEFAULT, 0, cond, -1, -1));
}

static bool kir_can_reduce(ct_kred op, int dtype) {
    bool logical = op == CT_RED_OR || op == CT_RED_AND;
    return logical ? !ct__is_float(dtype) : dtype != CT_BOOL;
}

ct_kval ct__kir_reduce(ct_kir *k, ct_kred op, ct_kval value) {
    const ct_kins *v = kir_check_operand(k, CT_K_REDUCE, value);
    if (!v) return -1;
    if (k->open < 0) return kir_fail(k, CT_K_REDUCE, "outside of a loop");
    if (op == CT_RED_NONE) return kir_fail(k, CT_K_REDUCE, "by nothing");
    if (!kir_can_reduce(op, v->dtype)) return kir_fail(k, CT_K_REDUCE, "dtype not accepted");
    ct_kins ins = kir_instruction(CT_K_REDUCE, ct__kred_is_arg(op) ? CT_I64 : (int)v->dtype,
                                  v->lanes, value, -1, -1);
    ins.sub = (uint8_t)op;
    return kir_append(k, ins);
}

ct_kval ct__kir_reg(ct_kir *k, ct_kval init) {
    const ct_kins *v = kir_check_operand(k, CT_K_REG, init);
    return v ? kir_append(k, kir_instruction(CT_K_REG, v->dtype, v->lanes, init, -1, -1)) : -1;
}

ct_kval ct__kir_get(ct_kir *k, ct_kval reg) {
    const ct_kins *r = kir_check_operand(k, CT_K_GET, reg);
    if (!r) return -1;
    if (r->op != CT_K_REG) return kir_fail(k, CT_K_GET, "of a value that is no register");
    return kir_append(k, kir_instruction(CT_K_GET, r->dtype, r->lanes, reg, -1, -1));
}

void ct__kir_set(ct_kir *k, ct_kval reg, ct_kval value) {
    const ct_kins *r = kir_check_operand(k, CT_K_SET, reg),
                  *v = kir_check_operand(k, CT_K_SET, value);
    if (!r || !v) return;
    if (r->op != CT_K_REG || v->op == CT_K_REG || r->dtype != v->dtype || v->lanes > r->lanes) {
        kir_fail(k, CT_K_SET, "the register has another dtype or fewer lanes");
        return;
    }
    kir_append(k, kir_instruction(CT_K_SET, CT_DEFAULT, 0, reg, value, -1));
}

ct_kval ct__kir_splat(ct_kir *k, ct_kval a) {
    const ct_kins *x = kir_check_operand(k, CT_K_SPLAT, a);
    if (!x || x->lanes == CT_LANES) return x ? a : -1;
    return kir_append_pure(k, kir_instruction(CT_K_SPLAT, x->dtype, CT_LANES, a, -1, -1));
}

ct_kval ct__kir_iota(ct_kir *k) {
    return kir_append_pure(k, kir_instruction(CT_K_IOTA, CT_I64, CT_LANES, -1, -1, -1));
}

ct_kval ct__kir_fold(ct_kir *k, ct_kred op, ct_kval a) {
    const ct_kins *x = kir_check_operand(k, CT_K_FOLD, a);
    if (!x) return -1;
    if (x->lanes != CT_LANES || ct__kred_is_arg(op) || !kir_can_reduce(op, x->dtype))
        return kir_fail(k, CT_K_FOLD, "of a scalar, or dtype not accepted");
    ct_kins ins = kir_instruction(CT_K_FOLD, x->dtype, 1, a, -1, -1);
    ins.sub = (uint8_t)op;
    return kir_append_pure(k, ins);
}

ct_kval ct__kir_zip(ct_kir *k, ct_kval a, ct_kval b, bool high) {
    const ct_kins *x = kir_check_operand(k, CT_K_ZIP, a), *y = kir_check_operand(k, CT_K_ZIP, b);
    if (!x || !y) return -1;
    if (x->lanes != CT_LANES || y->lanes != CT_LANES || x->dtype != y->dtype)
        return kir_fail(k, CT_K_ZIP, "the operands are not two 16-lane values of one dtype");
    ct_kins ins = kir_instruction(CT_K_ZIP, x->dtype, CT_LANES, a, b, -1);
    ins.sub = high;
    return kir_append_pure(k, ins);
}

// -------------------------------------------------------------------------------- launch geometry

// Evaluates the first n instructions as far as they are integers that do not depend on memory, with loop
// variables at 0; others are 0.
static void kir_integer_values(const ct_kir *k, ct_kval n, const int64_t *args, int64_t *value) {
    for (ct_kval i = 0; i < n; i++) {
        const ct_kins *ins = &k->ins[i];
        value[i] = 0;
        if (ct__is_float(ins->dtype)) continue;
        if (ins->op == CT_K_CONST)
            value[i] = ins->imm.i;
        else if (ins->op == CT_K_ARG)
            value[i] = args[ins->imm.i];
        else if (ins->op == CT_K_SELECT)
            value[i] = value[ins->a] ? value[ins->b] : value[ins->c];
        else if (ins->op == CT_K_NEG)
            value[i] = (int64_t)(0 - (uint64_t)value[ins->a]);
        else if (ins->op >= CT_K_ADD && ins->op <= CT_K_NE && ins->b >= 0)
            kir_fold_i64(ins->op, value[ins->a], value[ins->b], &value[i]);
    }
}

int64_t ct__kir_grid(const ct_kir *k, const int64_t *args) {
    ct_kval rows = -1;
    for (size_t i = 0; i < k->n && rows < 0; i++)
        if (k->ins[i].op == CT_K_LOOP && k->ins[i].sub == CT_BIND_ROWS) rows = (ct_kval)i;
    if (rows < 0) return 1;
    int64_t small[64] = {0}, *value = small, extent = 0;
    if (rows > 64 && !(value = ct__malloc((size_t)rows * sizeof *value))) return 0;
    kir_integer_values(k, rows, args, value);
    extent = value[k->ins[rows].a];
    if (value != small) ct__free(value);
    return extent < 0 ? 0 : extent;
}

bool ct__kir_trip_counts(const ct_kir *k, const int64_t *args, int64_t lanes, double *times) {
    int64_t *value = ct__malloc((k->n + 1) * sizeof *value);
    if (!value) return false;
    kir_integer_values(k, (ct_kval)k->n, args, value);
    for (size_t i = 0; i < k->n; i++) {
        const ct_kins *ins = &k->ins[i];
        if (ins->op != CT_K_LOOP) continue;
        int64_t n = value[ins->a] > 0 ? value[ins->a] : 0;
        if (ins->sub == CT_BIND_LANES) n = (n + lanes - 1) / lanes;
        times[i] = (ins->in >= 0 ? times[ins->in] : 1) * (double)n;
    }
    ct__free(value);
    return true;
}

double ct__kir_iterations(const ct_kir *k, const int64_t *args) {
    double *times = ct__calloc(k->n + 1, sizeof *times), most = 1;
    bool known = times && ct__kir_trip_counts(k, args, 1, times);
    for (size_t i = 0; i < k->n && known; i++)
        if (times[i] > most) most = times[i];
    ct__free(times);
    return most;
}

enum { KIR_MAX_STACK_LOCAL = 4096, KIR_MAX_STACK_LOCALS = 32768 };

static int64_t kir_local_bytes(const ct_kbuf *b) {
    return (int64_t)ct__round_up((size_t)b->count * ct_dtype_size(b->dtype), 64);
}

// Small locals are on the stack while they fit there, the others in scratch memory.
static int64_t kir_place_locals(const ct_kir *k, int which, int64_t *offset) {
    int64_t stack = 0, scratch = 0;
    for (size_t i = 0; i < k->nbufs; i++) {
        if (!(k->bufs[i].flags & CT_KIR_LOCAL)) continue;
        int64_t bytes = kir_local_bytes(&k->bufs[i]);
        bool fits = bytes <= KIR_MAX_STACK_LOCAL && stack + bytes <= KIR_MAX_STACK_LOCALS;
        if ((int)i == which) *offset = fits ? -1 : scratch;
        *(fits ? &stack : &scratch) += bytes;
    }
    return scratch;
}

int64_t ct__kir_local_offset(const ct_kir *k, int buf) {
    int64_t offset = -1;
    kir_place_locals(k, buf, &offset);
    return offset;
}

size_t ct__kir_scratch(const ct_kir *k) {
    int64_t offset = 0;
    return (size_t)kir_place_locals(k, -1, &offset);
}
