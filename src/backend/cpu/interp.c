// Translates kernel IR into the interpreter's code: slots for values, loops, reductions, register
// tiles.
#include "backend/cpu/interp.h"

#include "backend/cpu/interp_code.h"
#include "base/number.h"
#include "kir/kir_math.h"

struct ct_interp {
    ct_iins *head, *code; // sets up the constants; the kernel
    size_t frame;         // bytes
    int n_bufs, n_params;
    size_t *local; // (n_bufs) offset of a local in the frame; 0: a parameter
    ct_itile **tiles;
    size_t n_tiles, tiles_cap;
};

typedef struct {
    ct_iins *ins;
    size_t n, cap;
} code_buffer;

typedef struct { // each is stored once a kernel
    uint8_t dtype;
    int64_t bits;
    uint32_t slot, wide; // wide: 0 until an operand needs its lanes
} interp_constant;

typedef struct { // slots of one size that can be reused
    uint32_t *slot;
    size_t n, cap;
} free_slots;

typedef struct {
    ct_interp *made;
    const ct_itable *table;
    code_buffer head, body;
    interp_constant *constants;
    size_t n_constants, constants_cap;
    free_slots free[3];
    size_t frame;
    int64_t strip; // iterations of a LANES loop processed at a time
    bool out_of_memory;
    ct_iins discarded; // receives what is written after memory ran out
    interp_constant discarded_constant;
    int missing_op; // an opcode that the table lacks; -1: none
} builder;

// The state of a kernel, or of a math function that is inlined at its call.
typedef struct {
    const ct_kir *k;
    ct_kshape *shape;
    uint32_t *slot;    // of each value
    uint32_t *wide;    // of its lanes, if a scalar is also needed wide
    bool *needs_wide;  // as a scalar's lanes
    int32_t *last_use; // the last instruction that uses it
    uint32_t *aux;     // REDUCE: accumulator; LOOP, BREAK: where its code begins
    uint32_t *extra;   // REDUCE: tree or indices; 0: none
    uint32_t *start;   // REDUCE: its start value
} unit;

// --------------------------------------------------------------------------------- code and slots

static const ct_itable *interp_table_for_cpu(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        return &ct__interp_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &ct__interp_avx2;
#endif
    return &ct__interp_base;
}

static ct_iins *interp_append_to(builder *b, code_buffer *to, int op, int dtype, bool wide) {
    if (!CT_GROW(to->ins, to->cap, to->n + 1)) {
        b->out_of_memory = true;
        return &b->discarded;
    }
    ct_iins *i = &to->ins[to->n++];
    *i = (ct_iins){.fn = b->table->fn[op][dtype][wide]};
    if (!i->fn) b->missing_op = op;
    return i;
}
static ct_iins *interp_append(builder *b, int op, int dtype, bool wide) {
    return interp_append_to(b, &b->body, op, dtype, wide);
}

static size_t interp_lane_bytes(int dtype) {
    if (dtype == CT_BOOL) return 4; // an i32 mask
    return ct_dtype_size((ct_dtype)dtype);
}
static int interp_slot_class(int dtype) {
    return dtype == CT_U8 ? 0 : interp_lane_bytes(dtype) == 4 ? 1 : 2;
}

static uint32_t interp_allocate(builder *b, size_t bytes, size_t align) {
    b->frame = ct__round_up(b->frame, align);
    uint32_t at = (uint32_t)b->frame;
    b->frame += bytes;
    return at;
}
static uint32_t interp_new_scalar_slot(builder *b) { return interp_allocate(b, 8, 8); }
static uint32_t interp_new_wide_slot(builder *b, int dtype) {
    free_slots *s = &b->free[interp_slot_class(dtype)];
    return s->n ? s->slot[--s->n] : interp_allocate(b, interp_lane_bytes(dtype) * CT_STRIP, 64);
}
static void interp_free_slot(builder *b, int dtype, uint32_t slot) {
    free_slots *s = &b->free[interp_slot_class(dtype)];
    if (CT_GROW(s->slot, s->cap, s->n + 1)) s->slot[s->n++] = slot; // else it is not reused
}

static interp_constant *interp_find_constant(builder *b, int dtype, const ct_kins *ins) {
    int64_t bits = ins->imm.i;
    for (size_t i = 0; i < b->n_constants; i++)
        if (b->constants[i].dtype == dtype && b->constants[i].bits == bits) return &b->constants[i];
    if (!CT_GROW(b->constants, b->constants_cap, b->n_constants + 1)) {
        b->out_of_memory = true;
        return &b->discarded_constant;
    }
    interp_constant *c = &b->constants[b->n_constants++];
    *c =
        (interp_constant){.dtype = (uint8_t)dtype, .bits = bits, .slot = interp_new_scalar_slot(b)};
    ct_iins *i = interp_append_to(b, &b->head, CT_I_CONST, dtype, false);
    i->d = c->slot;
    i->imm.i = bits;
    return c;
}
static uint32_t interp_wide_constant(builder *b, int dtype, const ct_kins *ins) {
    interp_constant *c = interp_find_constant(b, dtype, ins);
    if (!c->wide) {
        c->wide = interp_allocate(b, interp_lane_bytes(dtype) * CT_STRIP, 64);
        ct_iins *i = interp_append_to(b, &b->head, CT_I_SPLAT, dtype, true);
        i->d = c->wide;
        i->a = c->slot;
    }
    return c->wide;
}

// --------------------------------------------------------------------------------------- operands

static ct_kval interp_skip_splats(const unit *u, ct_kval v) {
    while (u->k->ins[v].op == CT_K_SPLAT) v = u->k->ins[v].a;
    return v;
}
static bool interp_is_wide(const unit *u, ct_kval v) { return u->shape[v].vary == CT_VARYING; }

static uint32_t interp_scalar_operand(builder *b, const unit *u, ct_kval v) {
    static const ct_kins zero = {.imm = {.i = 0}};
    v = interp_skip_splats(u, v);
    const ct_kins *ins = &u->k->ins[v];
    if (ins->op == CT_K_CONST) return interp_find_constant(b, ins->dtype, ins)->slot;
    if (ins->op == CT_K_IOTA) return interp_find_constant(b, CT_I64, &zero)->slot;
    return u->slot[v];
}
static uint32_t interp_wide_operand(builder *b, const unit *u, ct_kval v) {
    v = interp_skip_splats(u, v);
    const ct_kins *ins = &u->k->ins[v];
    if (ins->op == CT_K_CONST) return interp_wide_constant(b, ins->dtype, ins);
    return interp_is_wide(u, v) ? u->slot[v] : u->wide[v];
}
static uint32_t interp_operand(builder *b, const unit *u, ct_kval v, bool lanes) {
    return lanes ? interp_wide_operand(b, u, v) : interp_scalar_operand(b, u, v);
}

// Splats a scalar where it is defined, if an instruction uses it as lanes.
static void interp_splat_if_needed(builder *b, unit *u, ct_kval v) {
    const ct_kins *ins = &u->k->ins[v];
    if (!u->needs_wide[v] || interp_is_wide(u, v) || ins->op == CT_K_CONST) return;
    bool ramp = u->shape[v].vary == CT_AFFINE;
    uint32_t from = interp_scalar_operand(b, u, v);
    u->wide[v] = interp_new_wide_slot(b, ins->dtype);
    ct_iins *i = interp_append(b, ramp ? CT_I_RAMP : CT_I_SPLAT, ins->dtype, true);
    i->d = u->wide[v];
    i->a = from;
    i->imm.i = u->shape[v].stride;
}

static uint32_t interp_new_result(builder *b, unit *u, ct_kval v) {
    return u->slot[v] = interp_is_wide(u, v) ? interp_new_wide_slot(b, u->k->ins[v].dtype)
                                             : interp_new_scalar_slot(b);
}

// ---------------------------------------------------------------------- what is known beforehand

static void interp_mark_wide(unit *u, ct_kval v) {
    if (v >= 0) u->needs_wide[interp_skip_splats(u, v)] = true;
}

static void interp_mark_wide_operands(unit *u, ct_kval v) {
    const ct_kins *ins = &u->k->ins[v];
    switch (ins->op) {
    case CT_K_STORE:
        if (u->shape[ins->a].vary) interp_mark_wide(u, ins->b);
        return;
    case CT_K_VSTORE: interp_mark_wide(u, ins->b); return;
    case CT_K_SET:
        if (interp_is_wide(u, ins->a)) interp_mark_wide(u, ins->b);
        return;
    case CT_K_FOLD: interp_mark_wide(u, ins->a); return;
    case CT_K_REDUCE:
        if (interp_is_wide(u, v) || u->k->ins[ins->in].sub == CT_BIND_LANES)
            interp_mark_wide(u, ins->a);
        return;
    case CT_K_LOAD:
    case CT_K_VLOAD:
    case CT_K_GET: return;
    case CT_K_SELECT:
        if (!interp_is_wide(u, v)) return;
        if (u->shape[ins->a].vary) interp_mark_wide(u, ins->a);
        interp_mark_wide(u, ins->b);
        interp_mark_wide(u, ins->c);
        return;
    default:
        if (!interp_is_wide(u, v) || ins->op == CT_K_LOOP) return;
        interp_mark_wide(u, ins->a);
        interp_mark_wide(u, ins->b);
        interp_mark_wide(u, ins->c);
    }
}

// Extends the lifetime of v to its use at instruction `at`; if v is defined outside of a loop
// around `at`, to that loop's end.
static void interp_extend_lifetime(unit *u, ct_kval v, ct_kval at) {
    if (v < 0) return;
    v = interp_skip_splats(u, v);
    const ct_kins *ins = u->k->ins;
    int32_t made = ins[v].op == CT_K_LOOP ? v : ins[v].in;
    if (ins[v].op == CT_K_REDUCE) made = ins[made].in;
    int32_t last_use = ins[at].op == CT_K_LOOP ? ins[at].end : at;
    for (int32_t l = ins[at].in; l >= 0 && l != made; l = ins[l].in) last_use = ins[l].end;
    if (u->last_use[v] < last_use) u->last_use[v] = last_use;
}

static void interp_analyze(unit *u) {
    for (ct_kval i = 0; (size_t)i < u->k->n; i++) {
        const ct_kins *ins = &u->k->ins[i];
        u->last_use[i] = i;
        if (ins->op == CT_K_END) continue;
        interp_extend_lifetime(u, ins->a, i);
        interp_extend_lifetime(u, ins->b, i);
        interp_extend_lifetime(u, ins->c, i);
        interp_mark_wide_operands(u, i);
    }
}

static void interp_unit_free(unit *u) {
    ct__free(u->shape);
    ct__free(u->slot);
    ct__free(u->needs_wide);
}
static bool interp_unit_new(unit *u, const ct_kir *k) {
    *u = (unit){.k = k};
    u->shape = ct__calloc(k->n, sizeof *u->shape);
    u->slot = ct__calloc(6 * k->n, sizeof *u->slot);
    u->needs_wide = ct__calloc(k->n, sizeof *u->needs_wide);
    if (!u->shape || !u->slot || !u->needs_wide) {
        interp_unit_free(u);
        return false;
    }
    u->wide = u->slot + k->n;
    u->last_use = (int32_t *)(u->slot + 2 * k->n);
    u->aux = u->slot + 3 * k->n;
    u->extra = u->slot + 4 * k->n;
    u->start = u->slot + 5 * k->n;
    return true;
}

// Frees the slots of v if instruction `at` is the last that uses it.
static void interp_release_value(builder *b, unit *u, ct_kval v, ct_kval at) {
    if (u->last_use[v] != at || u->k->ins[v].op == CT_K_CONST) return;
    if (interp_is_wide(u, v) && u->slot[v]) interp_free_slot(b, u->k->ins[v].dtype, u->slot[v]);
    if (u->wide[v]) interp_free_slot(b, u->k->ins[v].dtype, u->wide[v]);
    u->last_use[v] = -1;
}

// Frees the slots of dead values: operands, and at an END all values that lived through its loop.
static void interp_release_dead(builder *b, unit *u, ct_kval at) {
    const ct_kins *ins = &u->k->ins[at];
    if (ins->op == CT_K_END) {
        for (ct_kval v = 0; v < at; v++) interp_release_value(b, u, v, at);
        return;
    }
    const ct_kval ops[4] = {ins->a, ins->b, ins->c, at};
    for (int j = 0; j < 4; j++)
        if (ops[j] >= 0) interp_release_value(b, u, interp_skip_splats(u, ops[j]), at);
}

// ----------------------------------------------------------------------------------------- memory

// Sets the condition of an access, and whether it is wide.
static void interp_set_condition(builder *b, const unit *u, ct_iins *i, ct_kval cond) {
    bool lanes = cond >= 0 && interp_is_wide(u, cond);
    uint32_t slot = cond < 0 ? 0 : interp_operand(b, u, cond, lanes);
    i->c = slot;
    i->flag = lanes;
}

static void interp_emit_load(builder *b, unit *u, ct_kval v, const ct_kins *ins) {
    ct_kshape at = u->shape[ins->a];
    bool lanes = interp_is_wide(u, v);
    uint32_t index = interp_operand(b, u, ins->a, at.vary == CT_VARYING),
             d = interp_new_result(b, u, v);
    int op = at.vary == CT_UNIFORM ? CT_I_LOAD : at.vary == CT_AFFINE ? CT_I_LOAD_S : CT_I_LOAD_G;
    ct_iins *i = interp_append(b, op, (int)u->k->bufs[ins->imm.i].dtype, lanes);
    interp_set_condition(b, u, i, ins->b);
    i->d = d;
    i->a = index;
    i->buf = (int32_t)ins->imm.i;
    i->imm.i = at.stride;
}

static void interp_emit_store(builder *b, unit *u, const ct_kins *ins) {
    ct_kshape at = u->shape[ins->a];
    bool lanes = at.vary != CT_UNIFORM;
    uint32_t index = interp_operand(b, u, ins->a, at.vary == CT_VARYING),
             value = interp_operand(b, u, ins->b, lanes);
    int op = !lanes ? CT_I_STORE : at.vary == CT_AFFINE ? CT_I_STORE_S : CT_I_STORE_G;
    ct_iins *i = interp_append(b, op, (int)u->k->bufs[ins->imm.i].dtype, lanes);
    interp_set_condition(b, u, i, ins->c);
    i->a = index;
    i->b = value;
    i->buf = (int32_t)ins->imm.i;
    i->imm.i = at.stride;
}

static void interp_emit_vector_access(builder *b, unit *u, ct_kval v, const ct_kins *ins) {
    bool load = ins->op == CT_K_VLOAD;
    ct_kval count_value = load ? ins->b : ins->c;
    uint32_t index = interp_scalar_operand(b, u, ins->a),
             count = count_value < 0 ? 0 : interp_scalar_operand(b, u, count_value);
    uint32_t value = load ? interp_new_result(b, u, v) : interp_wide_operand(b, u, ins->b);
    ct_iins *i = interp_append(b, load ? CT_I_LOAD_N : CT_I_STORE_N,
                               (int)u->k->bufs[ins->imm.i].dtype, true);
    i->a = index;
    i->buf = (int32_t)ins->imm.i;
    *(load ? &i->d : &i->b) = value;
    *(load ? &i->b : &i->c) = count;
}

// ------------------------------------------------------------------------------------- reductions

typedef struct {
    const ct_kins *ins;
    int dtype, mode;
    bool ordered, is_index; // whether order changes the bits; whether the result is an index
    ct_kins start;          // a constant
    size_t accumulators;    // elements; of 16 lanes where wide
} reduction;

static reduction interp_reduction_of(const unit *u, ct_kval id) {
    const ct_kins *ins = &u->k->ins[id];
    reduction r = {.ins = ins, .dtype = u->k->ins[ins->a].dtype};
    r.mode = u->k->ins[ins->in].sub == CT_BIND_LANES ? CT_I_LANES
             : interp_is_wide(u, id)                 ? CT_I_WIDE
                                                     : CT_I_SCALAR;
    r.ordered = ct__kred_is_ordered(ins->sub, r.dtype);
    r.is_index = ct__kred_is_arg(ins->sub);
    r.start = ct__kred_identity(ins->sub, r.dtype);
    size_t each = r.ordered && r.mode != CT_I_LANES ? CT_LANES : 1;
    r.accumulators = each * (r.mode == CT_I_LANES ? CT_LANES : r.mode == CT_I_WIDE ? CT_STRIP : 1);
    return r;
}

static void interp_emit_fill(builder *b, int dtype, const ct_kins *value, uint32_t at, size_t n) {
    uint32_t from = interp_find_constant(b, dtype, value)->slot;
    ct_iins *i = interp_append(b, CT_I_FILL, dtype, false);
    i->d = at;
    i->a = from;
    i->imm.i = (int64_t)n;
}

static void interp_begin_reduction(builder *b, unit *u, ct_kval loop, ct_kval id) {
    reduction r = interp_reduction_of(u, id);
    bool lanes = r.mode != CT_I_SCALAR;
    u->aux[id] = interp_allocate(b, r.accumulators * (lanes ? interp_lane_bytes(r.dtype) : 8), 64);
    bool mask = r.dtype == CT_BOOL && lanes; // lanes of bools are 0 or -1
    ct_kins start = r.start;
    if (mask) start.imm.i = -start.imm.i;
    interp_emit_fill(b, mask ? CT_I32 : r.dtype, &start, u->aux[id], r.accumulators);
    if (r.is_index) {
        static const ct_kins zero = {.imm = {.i = 0}};
        u->extra[id] = interp_allocate(b, 8 * r.accumulators, 64);
        interp_emit_fill(b, CT_I64, &zero, u->extra[id], r.accumulators);
    } else if (r.ordered && !ct__kir_one_block(u->k, loop)) {
        bool wide_tree = r.mode == CT_I_WIDE;
        u->extra[id] = interp_allocate(b, b->table->tree_bytes[r.dtype][wide_tree], 64);
        interp_append(b, CT_I_CLEAR, r.dtype, wide_tree)->d = u->extra[id];
    }
}

static ct_iins *interp_append_reduction(builder *b, const reduction *r, int op) {
    ct_iins *i = interp_append(b, op + 3 * r->ins->sub + r->mode, r->dtype, false);
    i->imm = (__typeof__(i->imm)){.i = r->start.imm.i};
    return i;
}

static void interp_emit_reduce(builder *b, unit *u, ct_kval id) {
    reduction r = interp_reduction_of(u, id);
    uint32_t value = interp_operand(b, u, r.ins->a, r.mode != CT_I_SCALAR);
    ct_iins *i = interp_append_reduction(b, &r, CT_I_ACCUMULATE);
    i->d = u->aux[id];
    i->a = value;
    i->b = u->slot[r.ins->in];
    i->c = u->extra[id];
}

static void interp_end_reduction_block(builder *b, unit *u, ct_kval loop, ct_kval id) {
    reduction r = interp_reduction_of(u, id);
    if (!r.ordered || !u->extra[id]) return;
    uint32_t extent = interp_scalar_operand(b, u, u->k->ins[loop].a);
    ct_iins *i = interp_append_reduction(b, &r, CT_I_END_BLOCK);
    i->d = u->aux[id];
    i->a = extent;
    i->b = u->slot[loop];
    i->c = u->extra[id];
    i->flag = r.mode == CT_I_LANES ? (int32_t)b->strip : 1;
}

static void interp_end_reduction(builder *b, unit *u, ct_kval loop, ct_kval id) {
    reduction r = interp_reduction_of(u, id);
    uint32_t extent = interp_scalar_operand(b, u, u->k->ins[loop].a),
             d = interp_new_result(b, u, id);
    ct_iins *i = interp_append_reduction(b, &r, CT_I_RESULT);
    i->d = d;
    i->a = u->aux[id];
    i->b = extent;
    i->c = u->extra[id];
    interp_splat_if_needed(b, u, id);
}

// ------------------------------------------------------------------------------------------ loops

static void interp_begin_loop(builder *b, unit *u, ct_kval v) {
    const ct_kins *ins = &u->k->ins[v];
    CT_EACH_REDUCE(u->k, v, id) interp_begin_reduction(b, u, v, id);
    uint32_t extent = interp_scalar_operand(b, u, ins->a);
    u->slot[v] = interp_new_scalar_slot(b);
    u->aux[v] = (uint32_t)b->body.n;
    int op = ins->sub == CT_BIND_ROWS    ? CT_I_ROWS
             : ins->sub == CT_BIND_LANES ? CT_I_VECTOR
                                         : CT_I_SEQ;
    ct_iins *i = interp_append(b, op, CT_I64, false);
    i->d = u->slot[v];
    i->a = extent;
    i->imm.i = b->strip;
    interp_splat_if_needed(b, u, v);
}

static void interp_emit_break(builder *b, unit *u, ct_kval v, const ct_kins *ins) {
    uint32_t cond = interp_scalar_operand(b, u, ins->a);
    u->aux[v] = (uint32_t)b->body.n;
    interp_append(b, CT_I_BREAK, CT_BOOL, false)->a = cond;
}

// Makes the BREAKs of a loop that ends jump to the next instruction.
static void interp_patch_breaks(builder *b, const unit *u, ct_kval loop) {
    for (ct_kval v = loop + 1; v < u->k->ins[loop].end && !b->out_of_memory; v++)
        if (u->k->ins[v].op == CT_K_BREAK && u->k->ins[v].in == loop)
            b->body.ins[u->aux[v]].buf = (int32_t)b->body.n - (int32_t)u->aux[v];
}

static void interp_end_loop(builder *b, unit *u, ct_kval v) {
    const ct_kins *ins = &u->k->ins[v];
    CT_EACH_REDUCE(u->k, v, id) interp_end_reduction_block(b, u, v, id);
    uint32_t extent = interp_scalar_operand(b, u, ins->a);
    int op = ins->sub == CT_BIND_ROWS    ? CT_I_ROWS_NEXT
             : ins->sub == CT_BIND_LANES ? CT_I_VECTOR_NEXT
                                         : CT_I_SEQ_NEXT;
    int32_t head = (int32_t)u->aux[v], here = (int32_t)b->body.n;
    ct_iins *i = interp_append(b, op, CT_I64, false);
    i->d = u->slot[v];
    i->a = extent;
    i->imm.i = b->strip;
    i->buf = head + 1 - here;
    if (!b->out_of_memory) b->body.ins[head].buf = here + 1 - head;
    if (ins->sub == CT_BIND_SEQ) interp_patch_breaks(b, u, v);
    CT_EACH_REDUCE(u->k, v, id) interp_end_reduction(b, u, v, id);
}

// ------------------------------------------------------------------------------------------ values

static void interp_emit_math(builder *b, unit *u, ct_kval v, ct_kval a, const ct_kins *ins);
static void interp_emit_math_where(builder *b, unit *u, ct_kval v, const ct_kins *ins);

static void interp_emit_cast(builder *b, unit *u, ct_kval v, const ct_kins *ins) {
    bool lanes = interp_is_wide(u, v);
    int from = u->k->ins[ins->a].dtype, op = CT_I_CAST_FROM + from;
    const bool rounds = ct__is_narrow_float(ins->sub);
    if (rounds)
        op = CT_I_ROUND;
    else if (from == ins->dtype)
        op = CT_I_COPY;
    uint32_t a = interp_operand(b, u, ins->a, lanes), d = interp_new_result(b, u, v);
    ct_iins *i = interp_append(b, op, rounds ? ins->sub : ins->dtype, lanes);
    i->d = d;
    i->a = a;
}

static void interp_emit_select(builder *b, unit *u, ct_kval v, const ct_kins *ins) {
    bool lanes = interp_is_wide(u, v), uniform = lanes && !interp_is_wide(u, ins->a);
    uint32_t c = interp_operand(b, u, ins->a, lanes && !uniform);
    uint32_t x = interp_operand(b, u, ins->b, lanes), y = interp_operand(b, u, ins->c, lanes),
             d = interp_new_result(b, u, v);
    ct_iins *i = interp_append(b, uniform ? CT_I_SELECT_UNIFORM : CT_K_SELECT, ins->dtype, lanes);
    *i = (ct_iins){.fn = i->fn, .d = d, .a = c, .b = x, .c = y};
}

// One to three operands of one dtype.
static void interp_emit_elementwise(builder *b, unit *u, ct_kval v, const ct_kins *ins) {
    bool lanes = interp_is_wide(u, v);
    int op = ins->op, dtype = u->k->ins[ins->a].dtype;
    if (op == CT_K_BITCAST || op == CT_K_GET) op = CT_I_COPY, dtype = ins->dtype;
    if (op == CT_K_ZIP && ins->sub) op = CT_I_ZIP_HIGH;
    if (op == CT_K_FOLD) op = CT_I_FOLD + ins->sub;
    bool in_lanes = lanes || ins->op == CT_K_FOLD;
    const ct_kval ops[3] = {ins->a, ins->b, ins->c};
    uint32_t slot[3] = {0};
    for (int j = 0; j < 3; j++)
        if (ops[j] >= 0) slot[j] = interp_operand(b, u, ops[j], in_lanes);
    uint32_t d = interp_new_result(b, u, v);
    ct_iins *i = interp_append(b, op, dtype, in_lanes);
    *i = (ct_iins){.fn = i->fn, .d = d, .a = slot[0], .b = slot[1], .c = slot[2]};
}

// Initializes or sets a register.
static void interp_emit_register(builder *b, unit *u, ct_kval reg, ct_kval value) {
    bool lanes = interp_is_wide(u, reg);
    uint32_t from = interp_operand(b, u, value, lanes);
    if (u->k->ins[reg].op == CT_K_REG && !u->slot[reg]) interp_new_result(b, u, reg);
    ct_iins *i = interp_append(b, CT_I_COPY, u->k->ins[reg].dtype, lanes);
    i->d = u->slot[reg];
    i->a = from;
}

static ct_kval interp_emit_tile(builder *b, unit *u, ct_kval v);

// Emits instruction v; returns the last instruction that this covers.
static ct_kval interp_emit(builder *b, unit *u, ct_kval v) {
    const ct_kins *ins = &u->k->ins[v];
    ct_kval end = v;
    switch (ins->op) {
    case CT_K_CONST:
    case CT_K_SPLAT:
    case CT_K_PARAM:
    case CT_K_PREFETCH:
    case CT_K_RET: break;
    case CT_K_IOTA: interp_splat_if_needed(b, u, v); break;
    case CT_K_ARG:
        u->slot[v] = interp_new_scalar_slot(b);
        *interp_append(b, CT_I_ARG, CT_I64, false) = (ct_iins){
            .fn = b->table->fn[CT_I_ARG][CT_I64][0], .d = u->slot[v], .imm = {.i = ins->imm.i}};
        break;
    case CT_K_LOOP:
        end = interp_emit_tile(b, u, v);
        if (end == v) interp_begin_loop(b, u, v);
        return end;
    case CT_K_END: interp_end_loop(b, u, ins->a); break;
    case CT_K_BREAK: interp_emit_break(b, u, v, ins); break;
    case CT_K_LOAD: interp_emit_load(b, u, v, ins); break;
    case CT_K_STORE: interp_emit_store(b, u, ins); break;
    case CT_K_VLOAD:
    case CT_K_VSTORE: interp_emit_vector_access(b, u, v, ins); break;
    case CT_K_REG: interp_emit_register(b, u, v, ins->a); break;
    case CT_K_SET: interp_emit_register(b, u, ins->a, ins->b); break;
    case CT_K_REDUCE: interp_emit_reduce(b, u, v); return end;
    case CT_K_CAST: interp_emit_cast(b, u, v, ins); break;
    case CT_K_SELECT: interp_emit_select(b, u, v, ins); break;
    case CT_K_MATH: interp_emit_math(b, u, v, ins->a, ins); break;
    case CT_K_MATH_WHERE: interp_emit_math_where(b, u, v, ins); break;
    default: interp_emit_elementwise(b, u, v, ins); break;
    }
    if (ins->dtype && ins->op != CT_K_IOTA && ins->op != CT_K_SPLAT)
        interp_splat_if_needed(b, u, v);
    return end;
}

static void interp_emit_all(builder *b, unit *u) {
    for (ct_kval v = 0; (size_t)v < u->k->n && !b->out_of_memory; v++) {
        v = interp_emit(b, u, v);
        interp_release_dead(b, u, v);
    }
}

// Inlines the function's instructions at its call. Its parameter is the operand's slot, which only
// the caller may free.
static void interp_emit_math(builder *b, unit *u, ct_kval v, ct_kval a, const ct_kins *ins) {
    ct_kir k;
    unit f;
    bool lanes = interp_is_wide(u, v);
    ct__kir_init(&k);
    ct__kir_math_body(&k, ins->sub, ins->dtype);
    if (k.err.code || !interp_unit_new(&f, &k)) {
        b->out_of_memory = true;
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
    interp_analyze(&f);
    ct_kval value = interp_skip_splats(&f, k.ins[k.n - 1].a);
    f.last_use[value] = -1;
    for (size_t i = 0; i < k.n; i++)
        if (k.ins[i].op == CT_K_PARAM) {
            f.slot[i] = interp_operand(b, u, a, lanes);
            f.last_use[i] = -1;
        }
    interp_emit_all(b, &f);
    u->slot[v] = f.slot[value];
    if (k.ins[value].op == CT_K_PARAM || k.ins[value].op == CT_K_CONST) {
        uint32_t from = interp_operand(b, &f, value, lanes), d = interp_new_result(b, u, v);
        ct_iins *i = interp_append(b, CT_I_COPY, ins->dtype, lanes);
        i->d = d;
        i->a = from;
    }
    interp_unit_free(&f);
    ct__kir_free(&k);
}

// f(b) where a holds, c elsewhere; the code of f is skipped if a holds in no lane.
static void interp_emit_math_where(builder *b, unit *u, ct_kval v, const ct_kins *ins) {
    bool lanes = interp_is_wide(u, v);
    uint32_t cond = interp_operand(b, u, ins->a, lanes),
             other = interp_operand(b, u, ins->c, lanes);
    uint32_t d = interp_new_result(b, u, v);
    ct_iins *copy = interp_append(b, CT_I_COPY, ins->dtype, lanes);
    copy->d = d;
    copy->a = other;
    size_t test = b->body.n;
    interp_append(b, CT_I_SKIP_IF_NONE, CT_BOOL, lanes)->a = cond;
    interp_emit_math(b, u, v, ins->b, ins);
    uint32_t computed = u->slot[v];
    ct_iins *i = interp_append(b, CT_K_SELECT, ins->dtype, lanes);
    *i = (ct_iins){.fn = i->fn, .d = d, .a = cond, .b = computed, .c = other};
    if (!b->out_of_memory) b->body.ins[test].buf = (int32_t)(b->body.n - test);
    if (lanes) interp_free_slot(b, ins->dtype, computed);
    u->slot[v] = d;
}

// ------------------------------------------------------------------------------------------ tiles

typedef struct {
    ct_kval a[16], b[16]; // loads of scalars, loads of vectors
    ct_kval acc[16][16];
    int rows, vectors, n_acc;
    int buf[2];
} tile_plan;

static int interp_tile_index(ct_kval *list, int *n, ct_kval v) {
    for (int i = 0; i < *n; i++)
        if (list[i] == v) return i;
    if (*n == 16) return -1;
    list[*n] = v;
    return (*n)++;
}

static bool interp_is_defined_in(const unit *u, ct_kval v, ct_kval loop) {
    return v >= 0 && (v == loop || u->k->ins[v].in == loop);
}

// True if v, an instruction of the loop, is index arithmetic that is linear in the loop's variable.
// Sets in `depends` whether each value depends on the variable.
static bool interp_is_linear(const unit *u, ct_kval v, ct_kval loop, bool *depends) {
    const ct_kins *ins = &u->k->ins[v];
    bool a = interp_is_defined_in(u, ins->a, loop) && depends[ins->a - loop];
    bool b = interp_is_defined_in(u, ins->b, loop) && depends[ins->b - loop];
    depends[v - loop] = a || b;
    if (ins->dtype != CT_I64 || ins->lanes != 1 || ins->op < CT_K_ADD || ins->op > CT_K_MAX)
        return false;
    if (ins->op == CT_K_ADD || ins->op == CT_K_SUB) return true;
    return ins->op == CT_K_MUL ? !(a && b) : !a && !b;
}

// Matches acc = fma(splat(a), b, acc).
static bool interp_match_tile_fma(const unit *u, ct_kval set, ct_kval loop, tile_plan *p) {
    const ct_kins *ins = u->k->ins, *s = &ins[set], *m = &ins[s->b];
    if (!interp_is_defined_in(u, s->b, loop) || m->op != CT_K_FMA ||
        interp_is_defined_in(u, s->a, loop))
        return false;
    ct_kval x = interp_skip_splats(u, m->a), y = m->b;
    if (ins[m->c].op != CT_K_GET || ins[m->c].a != s->a || !interp_is_defined_in(u, x, loop) ||
        !interp_is_defined_in(u, y, loop) || ins[x].op != CT_K_LOAD || ins[y].op != CT_K_VLOAD)
        return false;
    int row = interp_tile_index(p->a, &p->rows, x),
        vector = interp_tile_index(p->b, &p->vectors, y);
    if (row < 0 || vector < 0 || p->acc[row][vector]) return false;
    p->acc[row][vector] = s->a;
    p->n_acc++;
    return true;
}

static bool interp_is_plain_load(const unit *u, ct_kval v, int dtype, int *buf) {
    const ct_kins *ins = &u->k->ins[v];
    if (ins->b >= 0 || ins->dtype != dtype || (int)u->k->bufs[ins->imm.i].dtype != dtype ||
        (*buf >= 0 && *buf != ins->imm.i))
        return false;
    *buf = (int)ins->imm.i;
    return true;
}

// True if the loop does only fused multiply-adds into a tile of registers.
static bool interp_is_tile(const unit *u, ct_kval loop, tile_plan *p) {
    const ct_kins *ins = u->k->ins;
    int32_t end = ins[loop].end;
    enum { MAX_INSTRUCTIONS = 2000 };
    bool depends[MAX_INSTRUCTIONS] = {true};
    if (ins[loop].sub != CT_BIND_SEQ || end - loop >= MAX_INSTRUCTIONS) return false;
    for (ct_kval v = loop + 1; v < end; v++) {
        switch (ins[v].op) {
        case CT_K_CONST:
        case CT_K_SPLAT:
        case CT_K_GET:
        case CT_K_FMA:
        case CT_K_LOAD:
        case CT_K_VLOAD: break;
        case CT_K_SET:
            if (!interp_match_tile_fma(u, v, loop, p)) return false;
            break;
        default:
            if (!interp_is_linear(u, v, loop, depends)) return false;
        }
    }
    if (!p->n_acc || p->n_acc != p->rows * p->vectors) return false;
    int dtype = ins[p->a[0]].dtype, loads = 0;
    for (ct_kval v = loop + 1; v < end; v++)
        loads += ins[v].op == CT_K_LOAD || ins[v].op == CT_K_VLOAD;
    bool ok = ct__is_float(dtype) && loads == p->rows + p->vectors;
    for (int r = 0; r < p->rows && ok; r++)
        ok = interp_is_plain_load(u, p->a[r], dtype, &p->buf[0]);
    for (int v = 0; v < p->vectors && ok; v++)
        ok = interp_is_plain_load(u, p->b[v], dtype, &p->buf[1]);
    return ok;
}

// Emits the loop's index arithmetic with its variable at `k`, and copies the indices to slots of
// their own.
static void interp_emit_tile_indices(builder *b, unit *u, ct_kval loop, const tile_plan *p,
                                     int64_t k, uint32_t *to_a, uint32_t *to_b) {
    ct_iins *set = interp_append(b, CT_I_CONST, CT_I64, false);
    set->d = u->slot[loop];
    set->imm.i = k;
    for (ct_kval v = loop + 1; v < u->k->ins[loop].end; v++)
        if (u->k->ins[v].op >= CT_K_ADD && u->k->ins[v].op <= CT_K_MAX)
            interp_emit_elementwise(b, u, v, &u->k->ins[v]);
    for (int j = 0; j < p->rows + p->vectors; j++) {
        bool of_a = j < p->rows;
        uint32_t d = interp_new_scalar_slot(b);
        uint32_t from =
            interp_scalar_operand(b, u, u->k->ins[of_a ? p->a[j] : p->b[j - p->rows]].a);
        ct_iins *i = interp_append(b, CT_I_COPY, CT_I64, false);
        i->d = d;
        i->a = from;
        *(of_a ? &to_a[j] : &to_b[j - p->rows]) = d;
    }
}

// Emits a register tile's loop as one instruction; returns its END, or `loop` if it is no tile.
static ct_kval interp_emit_tile(builder *b, unit *u, ct_kval loop) {
    tile_plan p = {.buf = {-1, -1}};
    if (!interp_is_tile(u, loop, &p)) return loop;
    size_t n = 2 * (size_t)p.rows + 2 * (size_t)p.vectors + (size_t)p.n_acc;
    ct_itile *t = ct__calloc(1, sizeof *t + n * sizeof(uint32_t));
    ct_interp *made = b->made;
    if (!t || !CT_GROW(made->tiles, made->tiles_cap, made->n_tiles + 1)) {
        b->out_of_memory = true;
        ct__free(t);
        return u->k->ins[loop].end;
    }
    made->tiles[made->n_tiles++] = t;
    uint32_t *a = (uint32_t *)(t + 1), *bs = a + 2 * p.rows, *acc = bs + 2 * p.vectors;
    *t = (ct_itile){p.rows, p.vectors, p.buf[0], p.buf[1], a, bs, acc};
    for (int r = 0; r < p.rows; r++)
        for (int v = 0; v < p.vectors; v++) acc[r * p.vectors + v] = u->slot[p.acc[r][v]];
    uint32_t extent = interp_scalar_operand(b, u, u->k->ins[loop].a);
    u->slot[loop] = interp_new_scalar_slot(b);
    interp_emit_tile_indices(b, u, loop, &p, 0, a, bs);
    interp_emit_tile_indices(b, u, loop, &p, 1, a + p.rows, bs + p.vectors);
    ct_iins *i = interp_append(b, CT_I_TILE, u->k->ins[p.a[0]].dtype, true);
    i->a = extent;
    i->imm.data = t;
    return u->k->ins[loop].end;
}

// ----------------------------------------------------------------------------------------- kernels

static bool interp_layout_buffers(builder *b, const ct_kir *k) {
    ct_interp *made = b->made;
    made->n_bufs = (int)k->nbufs;
    made->n_params = k->nparams;
    made->local = ct__calloc(k->nbufs + 1, sizeof *made->local);
    if (!made->local) return false;
    b->frame = sizeof(ct_iframe) + k->nbufs * sizeof(void *);
    for (size_t i = 0; i < k->nbufs; i++)
        if (k->bufs[i].flags & CT_KIR_LOCAL) {
            size_t bytes = (size_t)k->bufs[i].count * ct_dtype_size(k->bufs[i].dtype);
            made->local[i] = interp_allocate(b, bytes, 64);
        }
    return true;
}

// Processes CT_STRIP iterations at a time, unless a loop's extent would then differ between them.
static void interp_choose_strip(builder *b, unit *u) {
    b->strip = CT_STRIP;
    ct__kir_shapes(u->k, b->strip, u->shape);
    for (size_t i = 0; i < u->k->n; i++)
        if (u->k->ins[i].op == CT_K_LOOP && u->shape[u->k->ins[i].a].vary) b->strip = CT_LANES;
    if (b->strip != CT_STRIP) ct__kir_shapes(u->k, b->strip, u->shape);
}

static bool interp_build(builder *b, const ct_kir *k) {
    unit u;
    if (!interp_layout_buffers(b, k) || !interp_unit_new(&u, k)) return false;
    interp_choose_strip(b, &u);
    interp_analyze(&u);
    interp_emit_all(b, &u);
    interp_unit_free(&u);
    interp_append(b, CT_I_STOP, CT_I64, false);
    interp_append_to(b, &b->head, CT_I_STOP, CT_I64, false);
    b->made->head = b->head.ins;
    b->made->code = b->body.ins;
    b->made->frame = ct__round_up(b->frame, 64);
    return !b->out_of_memory;
}

ct_interp *ct__interp_make(const ct_kir *k, ct_err *err) {
    if (!ct__kir_verify(k, err)) return NULL;
    builder b = {.made = ct__calloc(1, sizeof(ct_interp)),
                 .table = interp_table_for_cpu(),
                 .missing_op = -1};
    bool ok = b.made && interp_build(&b, k);
    ct__free(b.constants);
    for (int i = 0; i < 3; i++) ct__free(b.free[i].slot);
    if (!ok)
        ct__err_memory(err, CT_NOWHERE, "kernel", sizeof(ct_interp));
    else if (b.missing_op >= 0)
        ok = ct__err(err, CT_E_INTERNAL, CT_NOWHERE, "kernel",
                     "the interpreter has no instruction %d", b.missing_op);
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
    enum { STOP_INTERVAL = 4096 }; // instructions: a few milliseconds at most
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
    uint32_t left = STOP_INTERVAL;
    for (const ct_iins *i = interp->code; i;) {
        i = i->fn(frame, i);
        if (--left) continue;
        if (stop && atomic_load_explicit(stop, memory_order_relaxed)) return false;
        left = STOP_INTERVAL;
    }
    return true;
}
