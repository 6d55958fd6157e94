// From kernel IR to the interpreter's code: slots for values, loops, reductions, register tiles.
#include "backend/cpu/interp.h"

#include <string.h>

#include "backend/cpu/interp_code.h"
#include "base/number.h"
#include "kir/kir_math.h"

struct ct_interp {
    ct_iins *head, *code; // constants; the kernel
    size_t frame;         // bytes
    int n_bufs, n_params;
    size_t *local; // (n_bufs) where a local lies in the frame; 0: a parameter
    ct_itile **tiles;
    size_t n_tiles, tiles_cap;
};

typedef struct {
    ct_iins *ins;
    size_t n, cap;
} code;

typedef struct { // a constant, once in a kernel
    uint8_t dtype;
    int64_t bits;
    uint32_t slot, wide; // wide: 0 until somebody needs it
} constant;

typedef struct { // slots of one size that are free again
    uint32_t *slot;
    size_t n, cap;
} slots;

typedef struct {
    ct_interp *made;
    const ct_itable *table;
    code head, body;
    constant *constants;
    size_t n_constants, constants_cap;
    slots free[3];
    size_t frame;
    int64_t strip; // iterations of a LANES loop done at a time
    bool no_memory;
    ct_iins lost; // take what is written after that
    constant lost_constant;
    int missing; // an instruction that the table has not; -1: none
} builder;

// A kernel, or a math function that stands in place of a call.
typedef struct {
    const ct_kir *k;
    ct_kshape *shape;
    uint32_t *slot;   // of a value
    uint32_t *wide;   // of its lanes, where it is a scalar that is needed wide
    bool *needs_wide; // is it?
    int32_t *last;    // the last instruction that uses it
    uint32_t *aux;    // REDUCE: accumulator; of LOOP, BREAK: where its code begins
    uint32_t *second; // REDUCE: tree or places, 0: none
    uint32_t *start;  // REDUCE: where its start stands
} unit;

// --------------------------------------------------------------------------------- code and slots

static const ct_itable *machine(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        return &ct__interp_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &ct__interp_avx2;
#endif
    return &ct__interp_base;
}

static ct_iins *add_to(builder *b, code *to, int op, int dtype, bool wide) {
    if (!CT_GROW(to->ins, to->cap, to->n + 1)) {
        b->no_memory = true;
        return &b->lost;
    }
    ct_iins *i = &to->ins[to->n++];
    *i = (ct_iins){.fn = b->table->fn[op][dtype][wide]};
    if (!i->fn) b->missing = op;
    return i;
}
static ct_iins *add(builder *b, int op, int dtype, bool wide) {
    return add_to(b, &b->body, op, dtype, wide);
}

static size_t lane_bytes(int dtype) {
    if (dtype == CT_BOOL) return 4; // an i32 mask
    return ct_dtype_size((ct_dtype)dtype);
}
static int slots_class(int dtype) { return dtype == CT_U8 ? 0 : lane_bytes(dtype) == 4 ? 1 : 2; }

static uint32_t room(builder *b, size_t bytes, size_t align) {
    b->frame = ct__round_up(b->frame, align);
    uint32_t at = (uint32_t)b->frame;
    b->frame += bytes;
    return at;
}
static uint32_t scalar_slot(builder *b) { return room(b, 8, 8); }
static uint32_t wide_slot(builder *b, int dtype) {
    slots *s = &b->free[slots_class(dtype)];
    return s->n ? s->slot[--s->n] : room(b, lane_bytes(dtype) * CT_STRIP, 64);
}
static void give_back(builder *b, int dtype, uint32_t slot) {
    slots *s = &b->free[slots_class(dtype)];
    if (CT_GROW(s->slot, s->cap, s->n + 1)) s->slot[s->n++] = slot; // else it stays taken
}

static constant *constant_of(builder *b, int dtype, const ct_kins *ins) {
    int64_t bits = ins->imm.i;
    for (size_t i = 0; i < b->n_constants; i++)
        if (b->constants[i].dtype == dtype && b->constants[i].bits == bits) return &b->constants[i];
    if (!CT_GROW(b->constants, b->constants_cap, b->n_constants + 1)) {
        b->no_memory = true;
        return &b->lost_constant;
    }
    constant *c = &b->constants[b->n_constants++];
    *c = (constant){.dtype = (uint8_t)dtype, .bits = bits, .slot = scalar_slot(b)};
    ct_iins *i = add_to(b, &b->head, CT_I_CONST, dtype, false);
    i->d = c->slot;
    i->imm.i = bits;
    return c;
}
static uint32_t wide_constant(builder *b, int dtype, const ct_kins *ins) {
    constant *c = constant_of(b, dtype, ins);
    if (!c->wide) {
        c->wide = room(b, lane_bytes(dtype) * CT_STRIP, 64);
        ct_iins *i = add_to(b, &b->head, CT_I_WIDEN, dtype, true);
        i->d = c->wide;
        i->a = c->slot;
    }
    return c->wide;
}

// --------------------------------------------------------------------------------------- operands

static ct_kval unsplat(const unit *u, ct_kval v) {
    while (u->k->ins[v].op == CT_K_SPLAT) v = u->k->ins[v].a;
    return v;
}
static bool is_wide(const unit *u, ct_kval v) { return u->shape[v].vary == CT_VARYING; }

static uint32_t scalar(builder *b, const unit *u, ct_kval v) {
    static const ct_kins zero = {.imm = {.i = 0}};
    v = unsplat(u, v);
    const ct_kins *ins = &u->k->ins[v];
    if (ins->op == CT_K_CONST) return constant_of(b, ins->dtype, ins)->slot;
    if (ins->op == CT_K_IOTA) return constant_of(b, CT_I64, &zero)->slot;
    return u->slot[v];
}
static uint32_t wide(builder *b, const unit *u, ct_kval v) {
    v = unsplat(u, v);
    const ct_kins *ins = &u->k->ins[v];
    if (ins->op == CT_K_CONST) return wide_constant(b, ins->dtype, ins);
    return is_wide(u, v) ? u->slot[v] : u->wide[v];
}
static uint32_t either(builder *b, const unit *u, ct_kval v, bool lanes) {
    return lanes ? wide(b, u, v) : scalar(b, u, v);
}

// A scalar that some instruction takes as lanes is widened where it is made.
static void widen(builder *b, unit *u, ct_kval v) {
    const ct_kins *ins = &u->k->ins[v];
    if (!u->needs_wide[v] || is_wide(u, v) || ins->op == CT_K_CONST) return;
    bool ramp = u->shape[v].vary == CT_AFFINE;
    uint32_t from = scalar(b, u, v);
    u->wide[v] = wide_slot(b, ins->dtype);
    ct_iins *i = add(b, ramp ? CT_I_RAMP : CT_I_WIDEN, ins->dtype, true);
    i->d = u->wide[v];
    i->a = from;
    i->imm.i = u->shape[v].stride;
}

static uint32_t result(builder *b, unit *u, ct_kval v) {
    return u->slot[v] = is_wide(u, v) ? wide_slot(b, u->k->ins[v].dtype) : scalar_slot(b);
}

// ---------------------------------------------------------------------- what is known beforehand

static void mark(unit *u, ct_kval v) {
    if (v >= 0) u->needs_wide[unsplat(u, v)] = true;
}

static void mark_operands(unit *u, ct_kval v) {
    const ct_kins *ins = &u->k->ins[v];
    switch (ins->op) {
    case CT_K_STORE:
        if (u->shape[ins->a].vary) mark(u, ins->b);
        return;
    case CT_K_VSTORE: mark(u, ins->b); return;
    case CT_K_SET:
        if (is_wide(u, ins->a)) mark(u, ins->b);
        return;
    case CT_K_FOLD: mark(u, ins->a); return;
    case CT_K_REDUCE:
        if (is_wide(u, v) || u->k->ins[ins->in].sub == CT_BIND_LANES) mark(u, ins->a);
        return;
    case CT_K_LOAD:
    case CT_K_VLOAD:
    case CT_K_GET: return;
    case CT_K_SELECT:
        if (!is_wide(u, v)) return;
        if (u->shape[ins->a].vary) mark(u, ins->a);
        mark(u, ins->b);
        mark(u, ins->c);
        return;
    default:
        if (!is_wide(u, v) || ins->op == CT_K_LOOP) return;
        mark(u, ins->a);
        mark(u, ins->b);
        mark(u, ins->c);
    }
}

// v is used at instruction `at`; in a loop that v was made outside of, up to the loop's end.
static void used(unit *u, ct_kval v, ct_kval at) {
    if (v < 0) return;
    v = unsplat(u, v);
    const ct_kins *ins = u->k->ins;
    int32_t made = ins[v].op == CT_K_LOOP ? v : ins[v].in;
    if (ins[v].op == CT_K_REDUCE) made = ins[made].in;
    int32_t last = ins[at].op == CT_K_LOOP ? ins[at].end : at;
    for (int32_t l = ins[at].in; l >= 0 && l != made; l = ins[l].in) last = ins[l].end;
    if (u->last[v] < last) u->last[v] = last;
}

static void look_ahead(unit *u) {
    for (ct_kval i = 0; (size_t)i < u->k->n; i++) {
        const ct_kins *ins = &u->k->ins[i];
        u->last[i] = i;
        if (ins->op == CT_K_END) continue;
        used(u, ins->a, i);
        used(u, ins->b, i);
        used(u, ins->c, i);
        mark_operands(u, i);
    }
}

static void unit_free(unit *u) {
    ct__free(u->shape);
    ct__free(u->slot);
    ct__free(u->needs_wide);
}
static bool unit_new(unit *u, const ct_kir *k) {
    *u = (unit){.k = k};
    u->shape = ct__calloc(k->n, sizeof *u->shape);
    u->slot = ct__calloc(6 * k->n, sizeof *u->slot);
    u->needs_wide = ct__calloc(k->n, sizeof *u->needs_wide);
    if (!u->shape || !u->slot || !u->needs_wide) {
        unit_free(u);
        return false;
    }
    u->wide = u->slot + k->n;
    u->last = (int32_t *)(u->slot + 2 * k->n);
    u->aux = u->slot + 3 * k->n;
    u->second = u->slot + 4 * k->n;
    u->start = u->slot + 5 * k->n;
    return true;
}

// Gives back the slots of v if instruction `at` is the last that uses it.
static void release_value(builder *b, unit *u, ct_kval v, ct_kval at) {
    if (u->last[v] != at || u->k->ins[v].op == CT_K_CONST) return;
    if (is_wide(u, v) && u->slot[v]) give_back(b, u->k->ins[v].dtype, u->slot[v]);
    if (u->wide[v]) give_back(b, u->k->ins[v].dtype, u->wide[v]);
    u->last[v] = -1;
}

// Slots of values that are not used again: operands, and at an END all that lived through its loop.
static void release(builder *b, unit *u, ct_kval at) {
    const ct_kins *ins = &u->k->ins[at];
    if (ins->op == CT_K_END) {
        for (ct_kval v = 0; v < at; v++) release_value(b, u, v, at);
        return;
    }
    const ct_kval ops[4] = {ins->a, ins->b, ins->c, at};
    for (int j = 0; j < 4; j++)
        if (ops[j] >= 0) release_value(b, u, unsplat(u, ops[j]), at);
}

// ----------------------------------------------------------------------------------------- memory

// The condition of an access, and whether it is wide.
static void condition(builder *b, const unit *u, ct_iins *i, ct_kval cond) {
    bool lanes = cond >= 0 && is_wide(u, cond);
    uint32_t slot = cond < 0 ? 0 : either(b, u, cond, lanes);
    i->c = slot;
    i->flag = lanes;
}

static void emit_load(builder *b, unit *u, ct_kval v, const ct_kins *ins) {
    ct_kshape at = u->shape[ins->a];
    bool lanes = is_wide(u, v);
    uint32_t index = either(b, u, ins->a, at.vary == CT_VARYING), d = result(b, u, v);
    int op = at.vary == CT_UNIFORM ? CT_I_LOAD : at.vary == CT_AFFINE ? CT_I_LOAD_S : CT_I_LOAD_G;
    ct_iins *i = add(b, op, (int)u->k->bufs[ins->imm.i].dtype, lanes);
    condition(b, u, i, ins->b);
    i->d = d;
    i->a = index;
    i->buf = (int32_t)ins->imm.i;
    i->imm.i = at.stride;
}

static void emit_store(builder *b, unit *u, const ct_kins *ins) {
    ct_kshape at = u->shape[ins->a];
    bool lanes = at.vary != CT_UNIFORM;
    uint32_t index = either(b, u, ins->a, at.vary == CT_VARYING),
             value = either(b, u, ins->b, lanes);
    int op = !lanes ? CT_I_STORE : at.vary == CT_AFFINE ? CT_I_STORE_S : CT_I_STORE_G;
    ct_iins *i = add(b, op, (int)u->k->bufs[ins->imm.i].dtype, lanes);
    condition(b, u, i, ins->c);
    i->a = index;
    i->b = value;
    i->buf = (int32_t)ins->imm.i;
    i->imm.i = at.stride;
}

static void emit_counted(builder *b, unit *u, ct_kval v, const ct_kins *ins) {
    bool load = ins->op == CT_K_VLOAD;
    ct_kval many = load ? ins->b : ins->c;
    uint32_t index = scalar(b, u, ins->a), count = many < 0 ? 0 : scalar(b, u, many);
    uint32_t value = load ? result(b, u, v) : wide(b, u, ins->b);
    ct_iins *i = add(b, load ? CT_I_LOAD_N : CT_I_STORE_N, (int)u->k->bufs[ins->imm.i].dtype, true);
    i->a = index;
    i->buf = (int32_t)ins->imm.i;
    *(load ? &i->d : &i->b) = value;
    *(load ? &i->b : &i->c) = count;
}

// ------------------------------------------------------------------------------------- reductions

typedef struct {
    const ct_kins *ins;
    int dtype, mode;
    bool ordered, place; // does its order show; is it a place that is asked for
    ct_kins start;       // a constant
    size_t accumulators; // elements, of 16 lanes where wide
} reduction;

static reduction reduction_of(const unit *u, ct_kval id) {
    const ct_kins *ins = &u->k->ins[id];
    reduction r = {.ins = ins, .dtype = u->k->ins[ins->a].dtype};
    r.mode = u->k->ins[ins->in].sub == CT_BIND_LANES ? CT_I_LANES
             : is_wide(u, id)                        ? CT_I_WIDE
                                                     : CT_I_ONE;
    r.ordered = ct__kred_is_ordered(ins->sub, r.dtype);
    r.place = ct__kred_is_arg(ins->sub);
    r.start = ct__kred_identity(ins->sub, r.dtype);
    size_t each = r.ordered && r.mode != CT_I_LANES ? CT_LANES : 1;
    r.accumulators = each * (r.mode == CT_I_LANES ? CT_LANES : r.mode == CT_I_WIDE ? CT_STRIP : 1);
    return r;
}

static void fill(builder *b, int dtype, const ct_kins *value, uint32_t at, size_t n) {
    uint32_t from = constant_of(b, dtype, value)->slot;
    ct_iins *i = add(b, CT_I_FILL, dtype, false);
    i->d = at;
    i->a = from;
    i->imm.i = (int64_t)n;
}

static void begin_reduction(builder *b, unit *u, ct_kval loop, ct_kval id) {
    reduction r = reduction_of(u, id);
    bool lanes = r.mode != CT_I_ONE;
    u->aux[id] = room(b, r.accumulators * (lanes ? lane_bytes(r.dtype) : 8), 64);
    bool mask = r.dtype == CT_BOOL && lanes; // lanes of bools are 0 or -1
    ct_kins start = r.start;
    if (mask) start.imm.i = -start.imm.i;
    fill(b, mask ? CT_I32 : r.dtype, &start, u->aux[id], r.accumulators);
    if (r.place) {
        static const ct_kins zero = {.imm = {.i = 0}};
        u->second[id] = room(b, 8 * r.accumulators, 64);
        fill(b, CT_I64, &zero, u->second[id], r.accumulators);
    } else if (r.ordered && !ct__kir_one_block(u->k, loop)) {
        bool wide_tree = r.mode == CT_I_WIDE;
        u->second[id] = room(b, b->table->tree_bytes[r.dtype][wide_tree], 64);
        add(b, CT_I_CLEAR, r.dtype, wide_tree)->d = u->second[id];
    }
}

static ct_iins *reduction_step(builder *b, const reduction *r, int op) {
    ct_iins *i = add(b, op + 3 * r->ins->sub + r->mode, r->dtype, false);
    i->imm = (__typeof__(i->imm)){.i = r->start.imm.i};
    return i;
}

static void emit_reduce(builder *b, unit *u, ct_kval id) {
    reduction r = reduction_of(u, id);
    uint32_t value = either(b, u, r.ins->a, r.mode != CT_I_ONE);
    ct_iins *i = reduction_step(b, &r, CT_I_TAKE);
    i->d = u->aux[id];
    i->a = value;
    i->b = u->slot[r.ins->in];
    i->c = u->second[id];
}

static void end_block(builder *b, unit *u, ct_kval loop, ct_kval id) {
    reduction r = reduction_of(u, id);
    if (!r.ordered || !u->second[id]) return;
    uint32_t extent = scalar(b, u, u->k->ins[loop].a);
    ct_iins *i = reduction_step(b, &r, CT_I_BLOCK);
    i->d = u->aux[id];
    i->a = extent;
    i->b = u->slot[loop];
    i->c = u->second[id];
    i->flag = r.mode == CT_I_LANES ? (int32_t)b->strip : 1;
}

static void end_reduction(builder *b, unit *u, ct_kval loop, ct_kval id) {
    reduction r = reduction_of(u, id);
    uint32_t extent = scalar(b, u, u->k->ins[loop].a), d = result(b, u, id);
    ct_iins *i = reduction_step(b, &r, CT_I_RESULT);
    i->d = d;
    i->a = u->aux[id];
    i->b = extent;
    i->c = u->second[id];
    widen(b, u, id);
}

// ------------------------------------------------------------------------------------------ loops

static void begin_loop(builder *b, unit *u, ct_kval v) {
    const ct_kins *ins = &u->k->ins[v];
    CT_EACH_REDUCE(u->k, v, id) begin_reduction(b, u, v, id);
    uint32_t extent = scalar(b, u, ins->a);
    u->slot[v] = scalar_slot(b);
    u->aux[v] = (uint32_t)b->body.n;
    int op = ins->sub == CT_BIND_ROWS    ? CT_I_CORE
             : ins->sub == CT_BIND_LANES ? CT_I_VECTOR
                                         : CT_I_SEQ;
    ct_iins *i = add(b, op, CT_I64, false);
    i->d = u->slot[v];
    i->a = extent;
    i->imm.i = b->strip;
    widen(b, u, v);
}

static void emit_break(builder *b, unit *u, ct_kval v, const ct_kins *ins) {
    uint32_t cond = scalar(b, u, ins->a);
    u->aux[v] = (uint32_t)b->body.n;
    add(b, CT_I_BREAK, CT_BOOL, false)->a = cond;
}

// The BREAKs of a loop that ends leave it for the next instruction.
static void aim_breaks(builder *b, const unit *u, ct_kval loop) {
    for (ct_kval v = loop + 1; v < u->k->ins[loop].end && !b->no_memory; v++)
        if (u->k->ins[v].op == CT_K_BREAK && u->k->ins[v].in == loop)
            b->body.ins[u->aux[v]].buf = (int32_t)b->body.n - (int32_t)u->aux[v];
}

static void end_loop(builder *b, unit *u, ct_kval v) {
    const ct_kins *ins = &u->k->ins[v];
    CT_EACH_REDUCE(u->k, v, id) end_block(b, u, v, id);
    uint32_t extent = scalar(b, u, ins->a);
    int op = ins->sub == CT_BIND_ROWS    ? CT_I_CORE_NEXT
             : ins->sub == CT_BIND_LANES ? CT_I_VECTOR_NEXT
                                         : CT_I_SEQ_NEXT;
    int32_t head = (int32_t)u->aux[v], here = (int32_t)b->body.n;
    ct_iins *i = add(b, op, CT_I64, false);
    i->d = u->slot[v];
    i->a = extent;
    i->imm.i = b->strip;
    i->buf = head + 1 - here;
    if (!b->no_memory) b->body.ins[head].buf = here + 1 - head;
    if (ins->sub == CT_BIND_SEQ) aim_breaks(b, u, v);
    CT_EACH_REDUCE(u->k, v, id) end_reduction(b, u, v, id);
}

// ------------------------------------------------------------------------------------------ values

static void emit_math(builder *b, unit *u, ct_kval v, ct_kval a, const ct_kins *ins);
static void emit_math_where(builder *b, unit *u, ct_kval v, const ct_kins *ins);

static void emit_cast(builder *b, unit *u, ct_kval v, const ct_kins *ins) {
    bool lanes = is_wide(u, v);
    int from = u->k->ins[ins->a].dtype, op = CT_I_CAST_FROM + from;
    const bool rounds = ct__is_narrow_float(ins->sub);
    if (rounds)
        op = CT_I_ROUND;
    else if (from == ins->dtype)
        op = CT_I_COPY;
    uint32_t a = either(b, u, ins->a, lanes), d = result(b, u, v);
    ct_iins *i = add(b, op, rounds ? ins->sub : ins->dtype, lanes);
    i->d = d;
    i->a = a;
}

static void emit_select(builder *b, unit *u, ct_kval v, const ct_kins *ins) {
    bool lanes = is_wide(u, v), choose = lanes && !is_wide(u, ins->a);
    uint32_t c = either(b, u, ins->a, lanes && !choose);
    uint32_t x = either(b, u, ins->b, lanes), y = either(b, u, ins->c, lanes), d = result(b, u, v);
    ct_iins *i = add(b, choose ? CT_I_CHOOSE : CT_K_SELECT, ins->dtype, lanes);
    *i = (ct_iins){.fn = i->fn, .d = d, .a = c, .b = x, .c = y};
}

// One to three operands of one dtype.
static void emit_plain(builder *b, unit *u, ct_kval v, const ct_kins *ins) {
    bool lanes = is_wide(u, v);
    int op = ins->op, dtype = u->k->ins[ins->a].dtype;
    if (op == CT_K_BITCAST || op == CT_K_GET) op = CT_I_COPY, dtype = ins->dtype;
    if (op == CT_K_ZIP && ins->sub) op = CT_I_ZIP_HIGH;
    if (op == CT_K_FOLD) op = CT_I_FOLD + ins->sub;
    bool in_lanes = lanes || ins->op == CT_K_FOLD;
    const ct_kval ops[3] = {ins->a, ins->b, ins->c};
    uint32_t slot[3] = {0};
    for (int j = 0; j < 3; j++)
        if (ops[j] >= 0) slot[j] = either(b, u, ops[j], in_lanes);
    uint32_t d = result(b, u, v);
    ct_iins *i = add(b, op, dtype, in_lanes);
    *i = (ct_iins){.fn = i->fn, .d = d, .a = slot[0], .b = slot[1], .c = slot[2]};
}

// A register begins with a value, or takes one.
static void emit_register(builder *b, unit *u, ct_kval reg, ct_kval value) {
    bool lanes = is_wide(u, reg);
    uint32_t from = either(b, u, value, lanes);
    if (u->k->ins[reg].op == CT_K_REG && !u->slot[reg]) result(b, u, reg);
    ct_iins *i = add(b, CT_I_COPY, u->k->ins[reg].dtype, lanes);
    i->d = u->slot[reg];
    i->a = from;
}

static ct_kval tile(builder *b, unit *u, ct_kval v);

// Emits instruction v; gives the last instruction that it stands for.
static ct_kval emit(builder *b, unit *u, ct_kval v) {
    const ct_kins *ins = &u->k->ins[v];
    ct_kval end = v;
    switch (ins->op) {
    case CT_K_CONST:
    case CT_K_SPLAT:
    case CT_K_PARAM:
    case CT_K_PREFETCH:
    case CT_K_RET: break;
    case CT_K_IOTA: widen(b, u, v); break;
    case CT_K_ARG:
        u->slot[v] = scalar_slot(b);
        *add(b, CT_I_ARG, CT_I64, false) = (ct_iins){
            .fn = b->table->fn[CT_I_ARG][CT_I64][0], .d = u->slot[v], .imm = {.i = ins->imm.i}};
        break;
    case CT_K_LOOP:
        end = tile(b, u, v);
        if (end == v) begin_loop(b, u, v);
        return end;
    case CT_K_END: end_loop(b, u, ins->a); break;
    case CT_K_BREAK: emit_break(b, u, v, ins); break;
    case CT_K_LOAD: emit_load(b, u, v, ins); break;
    case CT_K_STORE: emit_store(b, u, ins); break;
    case CT_K_VLOAD:
    case CT_K_VSTORE: emit_counted(b, u, v, ins); break;
    case CT_K_REG: emit_register(b, u, v, ins->a); break;
    case CT_K_SET: emit_register(b, u, ins->a, ins->b); break;
    case CT_K_REDUCE: emit_reduce(b, u, v); return end;
    case CT_K_CAST: emit_cast(b, u, v, ins); break;
    case CT_K_SELECT: emit_select(b, u, v, ins); break;
    case CT_K_MATH: emit_math(b, u, v, ins->a, ins); break;
    case CT_K_MATH_WHERE: emit_math_where(b, u, v, ins); break;
    default: emit_plain(b, u, v, ins); break;
    }
    if (ins->dtype && ins->op != CT_K_IOTA && ins->op != CT_K_SPLAT) widen(b, u, v);
    return end;
}

static void emit_all(builder *b, unit *u) {
    for (ct_kval v = 0; (size_t)v < u->k->n && !b->no_memory; v++) {
        v = emit(b, u, v);
        release(b, u, v);
    }
}

// The function's own instructions in place of a call. Its parameter is the operand's slot, which
// only the caller may give back.
static void emit_math(builder *b, unit *u, ct_kval v, ct_kval a, const ct_kins *ins) {
    ct_kir k;
    unit f;
    bool lanes = is_wide(u, v);
    ct__kir_init(&k);
    ct__kir_math_body(&k, ins->sub, ins->dtype);
    if (k.err.code || !unit_new(&f, &k)) {
        b->no_memory = true;
        ct__kir_free(&k);
        return;
    }
    for (size_t i = 0; i < k.n; i++) {
        const ct_kins *x = &k.ins[i];
        const ct_kval ops[3] = {x->a, x->b, x->c};
        bool vary = x->op == CT_K_PARAM && lanes;
        for (int j = 0; j < 3; j++) vary |= ops[j] >= 0 && f.shape[ops[j]].vary == CT_VARYING;
        f.shape[i].vary = vary ? CT_VARYING : CT_UNIFORM;
    }
    look_ahead(&f);
    ct_kval value = unsplat(&f, k.ins[k.n - 1].a);
    f.last[value] = -1;
    for (size_t i = 0; i < k.n; i++)
        if (k.ins[i].op == CT_K_PARAM) {
            f.slot[i] = either(b, u, a, lanes);
            f.last[i] = -1;
        }
    emit_all(b, &f);
    u->slot[v] = f.slot[value];
    if (k.ins[value].op == CT_K_PARAM || k.ins[value].op == CT_K_CONST) {
        uint32_t from = either(b, &f, value, lanes), d = result(b, u, v);
        ct_iins *i = add(b, CT_I_COPY, ins->dtype, lanes);
        i->d = d;
        i->a = from;
    }
    unit_free(&f);
    ct__kir_free(&k);
}

// f(b) where a holds, c elsewhere; where no lane asks for f, what computes it is passed over.
static void emit_math_where(builder *b, unit *u, ct_kval v, const ct_kins *ins) {
    bool lanes = is_wide(u, v);
    uint32_t cond = either(b, u, ins->a, lanes), other = either(b, u, ins->c, lanes);
    uint32_t d = result(b, u, v);
    ct_iins *copy = add(b, CT_I_COPY, ins->dtype, lanes);
    copy->d = d;
    copy->a = other;
    size_t test = b->body.n;
    add(b, CT_I_UNLESS, CT_BOOL, lanes)->a = cond;
    emit_math(b, u, v, ins->b, ins);
    uint32_t computed = u->slot[v];
    ct_iins *i = add(b, CT_K_SELECT, ins->dtype, lanes);
    *i = (ct_iins){.fn = i->fn, .d = d, .a = cond, .b = computed, .c = other};
    if (!b->no_memory) b->body.ins[test].buf = (int32_t)(b->body.n - test);
    if (lanes) give_back(b, ins->dtype, computed);
    u->slot[v] = d;
}

// ------------------------------------------------------------------------------------------ tiles

typedef struct {
    ct_kval a[16], b[16]; // loads of scalars, loads of vectors
    ct_kval acc[16][16];
    int rows, vectors, n_acc;
    int buf[2];
} tile_plan;

static int place_of(ct_kval *list, int *n, ct_kval v) {
    for (int i = 0; i < *n; i++)
        if (list[i] == v) return i;
    if (*n == 16) return -1;
    list[*n] = v;
    return (*n)++;
}

static bool made_in(const unit *u, ct_kval v, ct_kval loop) {
    return v >= 0 && (v == loop || u->k->ins[v].in == loop);
}

// Is v, an instruction of the loop, index arithmetic that is linear in the loop's variable?
// `follows` says of each value whether it depends on the variable.
static bool linear(const unit *u, ct_kval v, ct_kval loop, bool *follows) {
    const ct_kins *ins = &u->k->ins[v];
    bool a = made_in(u, ins->a, loop) && follows[ins->a - loop];
    bool b = made_in(u, ins->b, loop) && follows[ins->b - loop];
    follows[v - loop] = a || b;
    if (ins->dtype != CT_I64 || ins->lanes != 1 || ins->op < CT_K_ADD || ins->op > CT_K_MAX)
        return false;
    if (ins->op == CT_K_ADD || ins->op == CT_K_SUB) return true;
    return ins->op == CT_K_MUL ? !(a && b) : !a && !b;
}

// acc = fma(splat(a), b, acc)
static bool accumulates(const unit *u, ct_kval set, ct_kval loop, tile_plan *p) {
    const ct_kins *ins = u->k->ins, *s = &ins[set], *m = &ins[s->b];
    if (!made_in(u, s->b, loop) || m->op != CT_K_FMA || made_in(u, s->a, loop)) return false;
    ct_kval x = unsplat(u, m->a), y = m->b;
    if (ins[m->c].op != CT_K_GET || ins[m->c].a != s->a || !made_in(u, x, loop) ||
        !made_in(u, y, loop) || ins[x].op != CT_K_LOAD || ins[y].op != CT_K_VLOAD)
        return false;
    int row = place_of(p->a, &p->rows, x), vector = place_of(p->b, &p->vectors, y);
    if (row < 0 || vector < 0 || p->acc[row][vector]) return false;
    p->acc[row][vector] = s->a;
    p->n_acc++;
    return true;
}

static bool loads_plainly(const unit *u, ct_kval v, int dtype, int *buf) {
    const ct_kins *ins = &u->k->ins[v];
    if (ins->b >= 0 || ins->dtype != dtype || (int)u->k->bufs[ins->imm.i].dtype != dtype ||
        (*buf >= 0 && *buf != ins->imm.i))
        return false;
    *buf = (int)ins->imm.i;
    return true;
}

// Does the loop nothing but fused multiply-adds into a tile of registers?
static bool is_tile(const unit *u, ct_kval loop, tile_plan *p) {
    const ct_kins *ins = u->k->ins;
    int32_t end = ins[loop].end;
    enum { MOST = 2000 };
    bool follows[MOST] = {true};
    if (ins[loop].sub != CT_BIND_SEQ || end - loop >= MOST) return false;
    for (ct_kval v = loop + 1; v < end; v++) {
        switch (ins[v].op) {
        case CT_K_CONST:
        case CT_K_SPLAT:
        case CT_K_GET:
        case CT_K_FMA:
        case CT_K_LOAD:
        case CT_K_VLOAD: break;
        case CT_K_SET:
            if (!accumulates(u, v, loop, p)) return false;
            break;
        default:
            if (!linear(u, v, loop, follows)) return false;
        }
    }
    if (!p->n_acc || p->n_acc != p->rows * p->vectors) return false;
    int dtype = ins[p->a[0]].dtype, loads = 0;
    for (ct_kval v = loop + 1; v < end; v++)
        loads += ins[v].op == CT_K_LOAD || ins[v].op == CT_K_VLOAD;
    bool ok = ct__is_float(dtype) && loads == p->rows + p->vectors;
    for (int r = 0; r < p->rows && ok; r++) ok = loads_plainly(u, p->a[r], dtype, &p->buf[0]);
    for (int v = 0; v < p->vectors && ok; v++) ok = loads_plainly(u, p->b[v], dtype, &p->buf[1]);
    return ok;
}

// The loop's index arithmetic with its variable at `k`, and the indices put aside.
static void indices_at(builder *b, unit *u, ct_kval loop, const tile_plan *p, int64_t k,
                       uint32_t *to_a, uint32_t *to_b) {
    ct_iins *set = add(b, CT_I_CONST, CT_I64, false);
    set->d = u->slot[loop];
    set->imm.i = k;
    for (ct_kval v = loop + 1; v < u->k->ins[loop].end; v++)
        if (u->k->ins[v].op >= CT_K_ADD && u->k->ins[v].op <= CT_K_MAX)
            emit_plain(b, u, v, &u->k->ins[v]);
    for (int j = 0; j < p->rows + p->vectors; j++) {
        bool of_a = j < p->rows;
        uint32_t d = scalar_slot(b);
        uint32_t from = scalar(b, u, u->k->ins[of_a ? p->a[j] : p->b[j - p->rows]].a);
        ct_iins *i = add(b, CT_I_COPY, CT_I64, false);
        i->d = d;
        i->a = from;
        *(of_a ? &to_a[j] : &to_b[j - p->rows]) = d;
    }
}

// A register tile's loop as one instruction; gives its END, or `loop` where it is none.
static ct_kval tile(builder *b, unit *u, ct_kval loop) {
    tile_plan p = {.buf = {-1, -1}};
    if (!is_tile(u, loop, &p)) return loop;
    size_t n = 2 * (size_t)p.rows + 2 * (size_t)p.vectors + (size_t)p.n_acc;
    ct_itile *t = ct__calloc(1, sizeof *t + n * sizeof(uint32_t));
    ct_interp *made = b->made;
    if (!t || !CT_GROW(made->tiles, made->tiles_cap, made->n_tiles + 1)) {
        b->no_memory = true;
        ct__free(t);
        return u->k->ins[loop].end;
    }
    made->tiles[made->n_tiles++] = t;
    uint32_t *a = (uint32_t *)(t + 1), *bs = a + 2 * p.rows, *acc = bs + 2 * p.vectors;
    *t = (ct_itile){p.rows, p.vectors, p.buf[0], p.buf[1], a, bs, acc};
    for (int r = 0; r < p.rows; r++)
        for (int v = 0; v < p.vectors; v++) acc[r * p.vectors + v] = u->slot[p.acc[r][v]];
    uint32_t extent = scalar(b, u, u->k->ins[loop].a);
    u->slot[loop] = scalar_slot(b);
    indices_at(b, u, loop, &p, 0, a, bs);
    indices_at(b, u, loop, &p, 1, a + p.rows, bs + p.vectors);
    ct_iins *i = add(b, CT_I_TILE, u->k->ins[p.a[0]].dtype, true);
    i->a = extent;
    i->imm.data = t;
    return u->k->ins[loop].end;
}

// ----------------------------------------------------------------------------------------- kernels

static bool place_buffers(builder *b, const ct_kir *k) {
    ct_interp *made = b->made;
    made->n_bufs = (int)k->nbufs;
    made->n_params = k->nparams;
    made->local = ct__calloc(k->nbufs + 1, sizeof *made->local);
    if (!made->local) return false;
    b->frame = sizeof(ct_iframe) + k->nbufs * sizeof(void *);
    for (size_t i = 0; i < k->nbufs; i++)
        if (k->bufs[i].flags & CT_KIR_LOCAL) {
            size_t bytes = (size_t)k->bufs[i].count * ct_dtype_size(k->bufs[i].dtype);
            made->local[i] = room(b, bytes, 64);
        }
    return true;
}

// As many iterations at a time as the frame has room for, unless a loop's extent would then differ
// between them.
static void shapes(builder *b, unit *u) {
    b->strip = CT_STRIP;
    ct__kir_shapes(u->k, b->strip, u->shape);
    for (size_t i = 0; i < u->k->n; i++)
        if (u->k->ins[i].op == CT_K_LOOP && u->shape[u->k->ins[i].a].vary) b->strip = CT_LANES;
    if (b->strip != CT_STRIP) ct__kir_shapes(u->k, b->strip, u->shape);
}

static bool build(builder *b, const ct_kir *k) {
    unit u;
    if (!place_buffers(b, k) || !unit_new(&u, k)) return false;
    shapes(b, &u);
    look_ahead(&u);
    emit_all(b, &u);
    unit_free(&u);
    add(b, CT_I_STOP, CT_I64, false);
    add_to(b, &b->head, CT_I_STOP, CT_I64, false);
    b->made->head = b->head.ins;
    b->made->code = b->body.ins;
    b->made->frame = ct__round_up(b->frame, 64);
    return !b->no_memory;
}

ct_interp *ct__interp_make(const ct_kir *k, ct_err *err) {
    if (!ct__kir_verify(k, err)) return NULL;
    builder b = {.made = ct__calloc(1, sizeof(ct_interp)), .table = machine(), .missing = -1};
    bool ok = b.made && build(&b, k);
    ct__free(b.constants);
    for (int i = 0; i < 3; i++) ct__free(b.free[i].slot);
    if (!ok)
        ct__err_memory(err, CT_NOWHERE, "kernel", sizeof(ct_interp));
    else if (b.missing >= 0)
        ok = ct__err(err, CT_E_INTERNAL, CT_NOWHERE, "kernel",
                     "the interpreter has no instruction %d", b.missing);
    if (ok) return b.made;
    if (b.made && !b.made->code) {
        ct__free(b.head.ins);
        ct__free(b.body.ins);
    }
    ct__interp_free(b.made);
    return NULL;
}

void ct__interp_free(ct_interp *interp) {
    if (!interp) return;
    for (size_t i = 0; i < interp->n_tiles; i++) ct__free(interp->tiles[i]);
    ct__free(interp->tiles);
    ct__free(interp->head);
    ct__free(interp->code);
    ct__free(interp->local);
    ct__free(interp);
}

size_t ct__interp_scratch(const ct_interp *interp) { return interp->frame; }

bool ct__interp_run(const ct_interp *interp, void *const *bufs, const int64_t *args, int64_t begin,
                    int64_t end, void *scratch, const atomic_bool *stop) {
    enum { BETWEEN_LOOKS = 4096 }; // instructions: some milliseconds at most
    if (begin >= end) return true;
    char *frame = scratch;
    ct_iframe *f = scratch;
    *f = (ct_iframe){.groups = 1,
                     .mask = {(1u << CT_LANES) - 1},
                     .args = args,
                     .begin = begin,
                     .end = end,
                     .bufs = (void **)(frame + sizeof(ct_iframe))};
    int param = 0;
    for (int i = 0; i < interp->n_bufs; i++)
        f->bufs[i] = interp->local[i] ? frame + interp->local[i] : bufs[param++];
    for (const ct_iins *i = interp->head; i;) i = i->fn(frame, i);
    uint32_t left = BETWEEN_LOOKS;
    for (const ct_iins *i = interp->code; i;) {
        i = i->fn(frame, i);
        if (--left) continue;
        if (stop && atomic_load_explicit(stop, memory_order_relaxed)) return false;
        left = BETWEEN_LOOKS;
    }
    return true;
}
