// Writes one kernel: values by substitution of index expressions. kinds/emit.h tells how it is used.
#include <string.h>

#include "compile/schedule/sched.h"

enum { MAX_NESTED = 512 }; // nested inlining; fusion stays far below

// ------------------------------------------------------------------------ creation and destruction

static bool emitter_no_memory(ct_emit *e) {
    return ct__err_memory(e->err, e->node ? e->node->here : CT_NOWHERE, "kernel", sizeof(ct_kir));
}

static ct_kval emitter_declare_sym(ct_emit *e, int sym);

bool ct__emit_restart(ct_emit *e) {
    ct_kernel_builder *d = e->draft;
    // A kernel written on trial is no basis for a choice if there was not enough memory for all of it.
    if (e->kir && e->kir->err.code == CT_E_MEMORY && !e->err->code) *e->err = e->kir->err;
    if (e->pool && ct__ix_failed(e->pool) && !e->err->code) emitter_no_memory(e);
    if (e->kir) ct__kir_free(e->kir);
    ct__free(e->kir);
    e->kir = ct__malloc(sizeof *e->kir);
    if (e->kir) ct__kir_init(e->kir); // at once, so that it is freed whatever fails below
    ct__arena_reset(&e->arena);
    e->pool = ct__ix_new(&e->arena, e->err);
    d->n_binds = d->n_memo = d->n_marks = d->n_args = d->n_syms = d->n_seen = 0;
    d->n_epilogues = 0;
    d->depth = d->n_kept = d->stage = 0;
    e->guard = CT_IX_NONE;
    e->flops = 0;
    if (!e->kir || !e->pool) return emitter_no_memory(e);
    for (int i = 0; i < (int)d->sched->n_syms; i++) emitter_declare_sym(e, i);
    return !e->err->code;
}

ct_emit *ct__emit_new(ct_sched *s, const ct_node *node) {
    ct_kernel_builder *d = ct__calloc(1, sizeof *d);
    ct_emit *e = d ? &d->emit : NULL;
    if (d) {
        *e = (ct_emit){.node = node, .err = s->err, .target = s->program->target, .draft = d};
        d->sched = s;
        d->group = node && node->op->kind->epilogue ? s->vals[node->index][0].group : -1;
        if (ct__emit_restart(e)) return e;
    }
    ct__emit_free(e);
    return ct__null_memory(s->err, node ? node->here : CT_NOWHERE, "kernel", sizeof *d);
}

void ct__emit_free(ct_emit *e) {
    if (!e) return;
    ct_kernel_builder *d = e->draft;
    if (e->kir) ct__kir_free(e->kir);
    ct__free(e->kir);
    ct__arena_free(&e->arena);
    ct__free(d->binds);
    ct__free(d->memo);
    ct__free(d->marks);
    ct__free(d->args);
    ct__free(d->arg_ids);
    ct__free(d->arg_bases);
    ct__free(d->arg_types);
    ct__free(d->syms);
    ct__free(d->sym_values);
    ct__free(d->seen);
    ct__free(d);
}

// ----------------------------------------------------------------- sizes, loops, index expressions

ct_ix ct__emit_sized(ct_emit *e, ct_extent size) {
    ct_ix x = ct__ix_int(e->pool, size.coef);
    for (int i = 0; i < size.n; i++) x = ct__ix_mul(e->pool, x, ct__ix_sym(e->pool, size.sym[i]));
    return x;
}
ct_ix ct__emit_size(ct_emit *e, ct_val v, int axis) {
    return ct__emit_sized(e, ct__sched_size(e->draft->sched, v, axis));
}

// Declares a kernel argument for a dynamic size. Arguments are declared before the loops, where it is not
// known yet which will be used: all are declared, as ~sym, and the unused ones are removed at the end.
static ct_kval emitter_declare_sym(ct_emit *e, int sym) {
    ct_kernel_builder *d = e->draft;
    if (!CT_GROW(d->syms, d->syms_cap, d->n_syms + 1) ||
        !CT_GROW(d->sym_values, d->sym_values_cap, d->n_syms + 1))
        return emitter_no_memory(e) - 1;
    d->syms[d->n_syms] = ~sym;
    return d->sym_values[d->n_syms++] = ct__kir_arg(e->kir);
}
static ct_kval emitter_sym_value(ct_emit *e, int sym) {
    ct_kernel_builder *d = e->draft;
    for (size_t i = 0; i < d->n_syms; i++)
        if (d->syms[i] == sym || d->syms[i] == ~sym) {
            d->syms[i] = sym;
            return d->sym_values[i];
        }
    ct_kval value = emitter_declare_sym(e, sym);
    if (value >= 0) d->syms[d->n_syms - 1] = sym;
    return value;
}

ct_ix ct__emit_bind(ct_emit *e, ct_kval value, ct_ix extent) {
    ct_ix var = ct__ix_var(e->pool, extent);
    ct__emit_bind_to(e, var, value);
    return var;
}
void ct__emit_bind_to(ct_emit *e, ct_ix var, ct_kval value) {
    ct_kernel_builder *d = e->draft;
    for (size_t i = 0; i < d->n_binds; i++)
        if (d->binds[i].var == var) {
            d->binds[i].value = value;
            return;
        }
    if (!CT_GROW(d->binds, d->binds_cap, d->n_binds + 1)) {
        emitter_no_memory(e);
        return;
    }
    d->binds[d->n_binds++] = (ct_bind){var, value};
}

void ct__emit_open(ct_emit *e, ct_kbind bind, ct_ix extent, const char *name, ct_ix var) {
    ct_kernel_builder *d = e->draft;
    ct_kval n = ct__emit_ix(e, extent);
    ct__emit_bind_to(e, var, ct__kir_loop(e->kir, bind, n, name));
    if (!CT_GROW(d->marks, d->marks_cap, d->n_marks + 1))
        emitter_no_memory(e);
    else
        d->marks[d->n_marks++] = d->n_memo;
}
ct_ix ct__emit_loop(ct_emit *e, ct_kbind bind, ct_ix extent, const char *name) {
    ct_ix var = ct__ix_var(e->pool, extent);
    ct__emit_open(e, bind, extent, name, var);
    return var;
}
void ct__emit_end(ct_emit *e) {
    ct_kernel_builder *d = e->draft;
    ct__kir_end(e->kir);
    if (d->n_marks) d->n_memo = d->marks[--d->n_marks]; // values computed in a loop end with it
}

static ct_kval emitter_write_term(ct_emit *e, const ct_ix_term *t) {
    ct_kir *k = e->kir;
    ct_kval x = -1;
    if (t->atom >= 0) x = ct__emit_ix(e, t->atom);
    int syms[16], n = ct__ix_mono(e->pool, t->mono, syms, 16);
    ct_kval size = -1;
    for (int i = 0; i < n; i++) {
        ct_kval v = emitter_sym_value(e, syms[i]);
        size = i ? ct__kir_mul(k, size, v) : v;
    }
    if (t->coef != 1 || n == 0) size = n ? ct__kir_muli(k, size, t->coef) : ct__kir_int(k, t->coef);
    if (t->atom < 0) return size;
    if (n == 0 && t->coef == 1) return x;
    return ct__kir_mul(k, x, size);
}

ct_kval ct__emit_condition(ct_emit *e, ct_ix x) {
    ct_kval v = ct__emit_ix(e, x);
    return v < 0 || e->kir->ins[v].dtype == CT_BOOL
               ? v
               : ct__kir_bin(e->kir, CT_K_NE, v, ct__kir_int(e->kir, 0));
}

// Returns a guard without the parts that depend on the value x. Those parts were added once x was known, so
// the load of x itself cannot depend on them.
static ct_ix emitter_guard_without(ct_emit *e, ct_ix guard, ct_ix x) {
    if (guard < 0 || !ct__ix_contains(e->pool, guard, x)) return guard;
    ct_ix_node n = *ct__ix_node(e->pool, guard);
    if (n.kind != CT_IX_AND) return CT_IX_NONE;
    ct_ix b = emitter_guard_without(e, n.b, x);
    return ct__ix_and(e->pool, emitter_guard_without(e, n.a, x), b);
}

// True if an index is in the bounds of the value whatever the guard is.
static bool emitter_is_in_bounds(ct_emit *e, ct_val v, const ct_ix *at) {
    for (int a = 0; a < ct__type(v)->rank; a++) {
        int64_t size;
        if (!ct__ix_is_int(e->pool, ct__emit_size(e, v, a), &size) ||
            ct__ix_strip_within(e->pool, at[a]) != at[a] || ct__ix_node(e->pool, at[a])->lo < 0 ||
            ct__ix_node(e->pool, at[a])->hi >= size)
            return false;
    }
    return true;
}

// True if a and b are 0 <= x and x < n, for a position x that is loaded.
static bool emitter_is_bounds_check(const ct_ix_pool *p, ct_ix a, ct_ix b, ct_ix *x, ct_ix *n) {
    const ct_ix_node *not_negative = ct__ix_node(p, a), *less = ct__ix_node(p, b);
    int64_t zero = 1;
    if (not_negative->kind != CT_IX_NOT || less->kind != CT_IX_LT) return false;
    const ct_ix_node *negative = ct__ix_node(p, not_negative->a);
    *x = less->a;
    *n = less->b;
    return negative->kind == CT_IX_LT && negative->a == *x &&
           ct__ix_is_int(p, negative->b, &zero) && zero == 0 &&
           ct__ix_node(p, *x)->kind == CT_IX_LOAD && ct__ix_node(p, *n)->lo >= 0;
}

// Writes an expression of two operands; the second operand is written first.
static ct_kval emitter_write_binary(ct_emit *e, const ct_ix_node *n) {
    ct_kir *k = e->kir;
    ct_ix index, size;
    if (n->kind == CT_IX_AND && (emitter_is_bounds_check(e->pool, n->a, n->b, &index, &size) ||
                                 emitter_is_bounds_check(e->pool, n->b, n->a, &index, &size))) {
        const ct_kval x = ct__emit_ix(e, index);
        return ct__kir_is_in_range(k, x, ct__emit_ix(e, size));
    }
    bool condition = n->kind == CT_IX_AND;
    ct_kval b = condition ? ct__emit_condition(e, n->b) : ct__emit_ix(e, n->b);
    ct_kval a = condition ? ct__emit_condition(e, n->a) : ct__emit_ix(e, n->a);
    switch ((int)n->kind) {
    case CT_IX_PROD: return ct__kir_mul(k, a, b);
    case CT_IX_DIV: return ct__kir_div(k, a, b);
    case CT_IX_MOD: return ct__kir_mod(k, a, b);
    case CT_IX_MIN: return ct__kir_min(k, a, b);
    case CT_IX_MAX: return ct__kir_max(k, a, b);
    case CT_IX_LT: return ct__kir_lt(k, a, b);
    case CT_IX_EQ: return ct__kir_bin(k, CT_K_EQ, a, b);
    default: return ct__kir_bin(k, CT_K_AND, a, b);
    }
}

// Conditions are returned as bool, all other expressions as i64.
ct_kval ct__emit_ix(ct_emit *e, ct_ix x) {
    ct_kernel_builder *d = e->draft;
    if (x < 0) return -1;
    ct_ix_node n = *ct__ix_node(e->pool, x);
    ct_kir *k = e->kir;
    switch (n.kind) {
    case CT_IX_SUM: {
        if (n.n == 0) return ct__kir_int(k, 0);
        ct_kval sum = emitter_write_term(e, &n.term[0]);
        for (int i = 1; i < n.n; i++) sum = ct__kir_add(k, sum, emitter_write_term(e, &n.term[i]));
        return sum;
    }
    case CT_IX_VAR:
        for (size_t i = 0; i < d->n_binds; i++)
            if (d->binds[i].var == x) return d->binds[i].value;
        return -1;
    case CT_IX_WITHIN: return ct__emit_ix(e, n.a);
    case CT_IX_PROD:
    case CT_IX_DIV:
    case CT_IX_MOD:
    case CT_IX_MIN:
    case CT_IX_MAX:
    case CT_IX_LT:
    case CT_IX_EQ:
    case CT_IX_AND: return emitter_write_binary(e, &n);
    case CT_IX_NOT: return ct__kir_un(k, CT_K_NOT, ct__emit_condition(e, n.a));
    case CT_IX_SELECT: {
        ct_kval no = ct__emit_ix(e, n.c), yes = ct__emit_ix(e, n.b);
        return ct__kir_select(k, ct__emit_condition(e, n.a), yes, no);
    }
    case CT_IX_LOAD: {
        ct_val v = {d->sched->graph->nodes[n.number >> 16], (uint32_t)(n.number & 0xffff)};
        ct_ix outer = e->guard;
        e->guard =
            emitter_is_in_bounds(e, v, n.at) ? CT_IX_NONE : emitter_guard_without(e, outer, x);
        ct_kval value = ct__emit_value(e, v, n.at, CT_I64);
        e->guard = outer;
        return value;
    }
    }
    return -1;
}

// Declares the sizes of an operand, which is memory or a chain of views of memory (fuse.c).
static void emitter_declare_sizes(ct_emit *e, ct_val v) {
    for (;;) {
        for (int a = 0; a < ct__type(v)->rank; a++)
            if (ct__is_dyn(ct__type(v), a)) ct__emit_ix(e, ct__emit_size(e, v, a));
        if (!ct__is_view(v.node)) return;
        v = v.node->in[0];
    }
}
void ct__emit_declare_sizes(ct_emit *e, ct_node *node) {
    for (int i = 0; i < node->n_in; i++) emitter_declare_sizes(e, node->in[i]);
    for (uint32_t o = 0; o < node->n_out; o++)
        for (int a = 0; a < node->out[o].rank; a++)
            if (ct__is_dyn(&node->out[o], a))
                ct__emit_ix(e, ct__emit_size(e, (ct_val){node, o}, a));
}

// ------------------------------------------------------------------------------------------ memory

// Returns the kernel's parameter for a location. A new parameter begins *base elements after it; for an
// existing one *base is set. NULL: the parameter begins at the location itself.
static int emitter_parameter(ct_emit *e, ct_location location, ct_dtype dtype, int flags,
                             int64_t *base) {
    ct_kernel_builder *d = e->draft;
    if (ct__has_parts(dtype)) dtype = ct__part(dtype);
    for (size_t i = 0; i < d->n_args; i++) {
        const size_t base_bytes = (size_t)d->arg_bases[i] * ct_dtype_size(dtype);
        if (d->args[i].buf != location.buf || d->arg_types[i] != dtype ||
            d->args[i].offset != location.offset + base_bytes || (!base && base_bytes))
            continue;
        e->kir->bufs[d->arg_ids[i]].flags |= flags;
        d->args[i].write |= (flags & CT_KIR_WRITE) != 0;
        if (base) *base = d->arg_bases[i];
        return d->arg_ids[i];
    }
    if (location.buf == UINT32_MAX || !CT_GROW(d->args, d->args_cap, d->n_args + 1) ||
        !CT_GROW(d->arg_ids, d->arg_ids_cap, d->n_args + 1) ||
        !CT_GROW(d->arg_bases, d->arg_bases_cap, d->n_args + 1) ||
        !CT_GROW(d->arg_types, d->arg_types_cap, d->n_args + 1))
        return emitter_no_memory(e) - 1;
    int id = ct__kir_buffer(e->kir, dtype, flags);
    if (id < 0) return -1; // the kernel keeps the error
    const int64_t first = base ? *base : 0;
    d->args[d->n_args] = ct__arg_at(location);
    d->args[d->n_args].offset += (size_t)first * ct_dtype_size(dtype);
    d->args[d->n_args].write = (flags & CT_KIR_WRITE) != 0;
    d->arg_bases[d->n_args] = first;
    d->arg_ids[d->n_args] = id;
    d->arg_types[d->n_args++] = dtype;
    return id;
}
int ct__emit_result_buffer(ct_emit *e, ct_val v, int flags) {
    const ct_sval *val = ct__sval(e->draft->sched, v);
    return emitter_parameter(e, (ct_location){val->buf, val->offset}, (ct_dtype)ct__type(v)->dtype,
                             flags, NULL);
}

// Returns the constant term of an index, where the buffer has an element at it in every run; else 0.
static int64_t emitter_base(const ct_emit *e, ct_location location, ct_dtype dtype, ct_ix index) {
    if (index < 0 || location.buf == UINT32_MAX || ct__has_parts(dtype)) return 0;
    const ct_buf *b = &e->draft->sched->program->bufs[location.buf];
    const ct_ix_node *n = ct__ix_node(e->pool, index);
    const ct_ix_term *t = n->kind == CT_IX_SUM && n->n ? &n->term[0] : NULL;
    if (!t || t->atom >= 0 || t->mono || t->coef < 0 || ct__marked(b->size)) return 0;
    const size_t bytes_left = b->bytes > location.offset ? b->bytes - location.offset : 0;
    return (size_t)t->coef < bytes_left / ct_dtype_size(dtype) ? t->coef : 0;
}

// Returns the parameter for an access, and the index of the access in it. The constant term of the index is
// part of the launch instead of the kernel: layers whose weights are slices of one tensor share their
// kernels. The kernel's first access to a buffer determines where its parameter begins; other accesses
// count from there.
static int emitter_access(ct_emit *e, ct_location location, ct_dtype dtype, int flags,
                          ct_ix *index) {
    int64_t base = emitter_base(e, location, dtype, *index);
    const int id = emitter_parameter(e, location, dtype, flags, &base);
    if (base) *index = ct__ix_sub(e->pool, *index, ct__ix_int(e->pool, base));
    return id;
}

int ct__emit_temp(ct_emit *e, uint32_t temp, ct_dtype dtype, int flags) {
    return emitter_parameter(e, (ct_location){.buf = temp}, dtype, flags, NULL);
}

// Records an access, with its guard, for the choice of loops.
static void emitter_record_access(ct_emit *e, ct_seen access) {
    ct_kernel_builder *d = e->draft;
    if (!CT_GROW(d->seen, d->seen_cap, d->n_seen + 1)) {
        emitter_no_memory(e);
        return;
    }
    access.epilogue = d->epilogue;
    d->seen[d->n_seen++] = access;
}

ct_kval ct__emit_load_at(ct_emit *e, uint32_t buf, size_t bytes, ct_dtype dtype, ct_ix offset) {
    emitter_record_access(e, (ct_seen){offset, e->guard, false, buf, bytes, dtype, 0});
    int id = emitter_access(e, (ct_location){buf, bytes}, dtype, CT_KIR_READ, &offset);
    if (e->guard < 0) return ct__kir_load(e->kir, id, ct__emit_ix(e, offset));
    e->draft->guarded++;
    ct_kval guard = ct__emit_condition(e, e->guard);
    return ct__kir_load_if(e->kir, id, ct__emit_ix(e, offset), guard);
}
void ct__emit_store_at(ct_emit *e, uint32_t buf, size_t bytes, ct_dtype dtype, ct_ix offset,
                       ct_kval value) {
    emitter_record_access(e, (ct_seen){offset, e->guard, true, buf, bytes, dtype, 0});
    int id = emitter_access(e, (ct_location){buf, bytes}, dtype, CT_KIR_WRITE, &offset);
    ct__kir_store(e->kir, id, ct__emit_ix(e, offset), value);
}

ct_ix ct__emit_offset(ct_emit *e, ct_val v, const ct_ix *at) {
    ct_ix offset = ct__ix_int(e->pool, 0);
    for (int a = 0; a < ct__type(v)->rank; a++)
        offset = ct__ix_add(e->pool, ct__ix_mul(e->pool, offset, ct__emit_size(e, v, a)), at[a]);
    return ct__ix_strip_within(e->pool, offset);
}

void ct__emit_index_as(ct_emit *e, ct_val v, const ct_ix *at, ct_val other, ct_ix *own) {
    const int rank = ct__type(v)->rank;
    ct_ix size[CT_MAX_RANK];
    bool same = rank == ct__type(other)->rank;
    for (int a = 0; a < rank; a++) {
        size[a] = ct__emit_size(e, v, a);
        same = same && size[a] == ct__emit_size(e, other, a);
    }
    if (same)
        memcpy(own, at, (size_t)rank * sizeof *own);
    else
        ct__unflatten_ix(e->pool, ct__emit_offset(e, other, at), size, rank, own);
}

ct_kval ct__emit_bits(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype dtype) {
    ct_kernel_builder *d = e->draft;
    const ct_sval *val = ct__sval(d->sched, v);
    if (ct__is_leaf(v.node) && !ct__sched_place_leaf(d->sched, v.node)) return -1;
    return ct__emit_load_at(e, val->buf, val->offset, dtype, ct__emit_offset(e, v, at));
}

static ct_ix emitter_part_offset(ct_emit *e, ct_ix offset, int part) {
    ct_ix twice = ct__ix_mul(e->pool, offset, ct__ix_int(e->pool, 2));
    return ct__ix_add(e->pool, twice, ct__ix_int(e->pool, part));
}

// Loads a part of an element. Of a dtype of 4 bits: two elements are one byte. Of a complex number: its
// parts are adjacent.
ct_kval ct__emit_part(ct_emit *e, ct_val v, const ct_ix *at, int part) {
    ct_kernel_builder *d = e->draft;
    ct_kir *k = e->kir;
    const ct_sval *val = ct__sval(d->sched, v);
    const ct_dtype dtype = (ct_dtype)ct__type(v)->dtype;
    if (ct__is_leaf(v.node) && !ct__sched_place_leaf(d->sched, v.node)) return -1;
    ct_ix offset = ct__emit_offset(e, v, at), two = ct__ix_int(e->pool, 2);
    if (ct__is_complex(dtype))
        return ct__emit_load_at(e, val->buf, val->offset, ct__part(dtype),
                                emitter_part_offset(e, offset, part));
    ct_kval byte =
        ct__emit_load_at(e, val->buf, val->offset, CT_U8, ct__ix_div(e->pool, offset, two));
    ct_kval odd = ct__kir_cast(k, ct__emit_ix(e, ct__ix_mod(e->pool, offset, two)), CT_U8);
    ct_kval shift = ct__kir_mul(k, odd, ct__kir_const_int(k, CT_U8, 4));
    ct_kval code = ct__kir_bin(k, CT_K_SHR, byte, shift);
    return ct__kir_bin(k, CT_K_AND, code, ct__kir_const_int(k, CT_U8, 15));
}

static void emitter_store_one(ct_emit *e, ct_val v, const ct_ix *at, ct_kval value) {
    const ct_sval *val = ct__sval(e->draft->sched, v);
    const ct_type *t = ct__type(v);
    // there is no element, and its offset would not even advance with the lanes
    for (int a = 0; a < t->rank; a++)
        if (t->dim[a] == 0 && !ct__is_dyn(t, a)) return;
    const ct_dtype dtype = (ct_dtype)t->dtype;
    const ct_ix offset = ct__emit_offset(e, v, at);
    for (int p = 0; p < 2 && ct__is_complex(dtype); p++) { // its parts are its node's operands
        ct_ix own[CT_MAX_RANK];
        ct__broadcast_ix(e, v.node->in[p], t->rank, at, own);
        value = ct__emit_value(e, v.node->in[p], own, ct__part(dtype));
        ct__emit_store_at(e, val->buf, val->offset, ct__part(dtype),
                          emitter_part_offset(e, offset, p), value);
    }
    if (ct__is_complex(dtype)) return;
    ct__emit_store_at(e, val->buf, val->offset, dtype, offset, value);
}

// Rounds a value that is in a wider form to its dtype.
static ct_kval emitter_round(ct_emit *e, ct_kval value, ct_dtype dtype) {
    return ct__kir_compute_dtype(dtype) == dtype ? value : ct__kir_cast(e->kir, value, dtype);
}

// Stores an element of a template's node, and the epilogue: the units that are computed from it at the same
// index.
static void emitter_store_epilogue(ct_emit *e, const ct_group *g, ct_val v, const ct_ix *at,
                                   ct_kval value) {
    const ct_type *t = ct__type(v);
    ct_dtype dtype = (ct_dtype)t->dtype;
    ct_ix own[CT_MAX_RANK];
    for (int a = 0; a < t->rank; a++) own[a] = ct__is_one(t, a) ? ct__ix_int(e->pool, 0) : at[a];
    ct__emit_remember(e, v, own, emitter_round(e, value, dtype));
    ct_kval *values = ct__arena(&e->arena, g->n_units * sizeof *values);
    if (!values) {
        emitter_no_memory(e);
        return;
    }
    for (size_t i = 0; i < g->n_units; i++)
        values[i] = ct__emit_value(e, g->units[i].v, own, CT_DEFAULT);
    if (ct__sval(e->draft->sched, v)->stored) emitter_store_one(e, v, at, value);
    for (size_t i = 0; i < g->n_units; i++) emitter_store_one(e, g->units[i].v, at, values[i]);
}

void ct__emit_store(ct_emit *e, ct_val v, const ct_ix *at, ct_kval value) {
    ct_kernel_builder *d = e->draft;
    const ct_group *g = d->group >= 0 ? d->sched->groups[d->group] : NULL;
    if (!g || g->only != v.node)
        emitter_store_one(e, v, at, value);
    else if (g->n_units && v.out == 0)
        emitter_store_epilogue(e, g, v, at, value);
    else if (ct__sval(d->sched, v)->stored)
        emitter_store_one(e, v, at, value);
}

// ------------------------------------------------------------------------------------------ values

static void emitter_remember(ct_emit *e, ct_val v, const ct_ix *at, ct_ix guard, ct_kval value) {
    ct_kernel_builder *d = e->draft;
    size_t bytes = ct__type(v)->rank * sizeof *at;
    ct_ix *own = ct__arena(&e->arena, bytes);
    if (!own || !CT_GROW(d->memo, d->memo_cap, d->n_memo + 1)) {
        emitter_no_memory(e);
        return;
    }
    if (bytes) memcpy(own, at, bytes);
    d->memo[d->n_memo++] = (ct_memo){v, guard, own, value};
}
void ct__emit_remember(ct_emit *e, ct_val v, const ct_ix *at, ct_kval value) {
    emitter_remember(e, v, at, e->guard, value);
}
static const ct_memo *emitter_recall(const ct_emit *e, ct_val v, const ct_ix *at) {
    const ct_kernel_builder *d = e->draft;
    size_t bytes = ct__type(v)->rank * sizeof *at;
    for (size_t i = d->n_memo; i-- > 0;) {
        const ct_memo *m = &d->memo[i];
        // A value that was computed without a guard holds under any guard.
        if (m->v.node == v.node && m->v.out == v.out && (m->guard == e->guard || m->guard < 0) &&
            (bytes == 0 || memcmp(m->at, at, bytes) == 0))
            return m;
    }
    return NULL;
}

bool ct__emit_recalls(const ct_emit *e, ct_val v, const ct_ix *at) {
    const ct_memo *m = emitter_recall(e, v, at);
    return m && m->value >= 0;
}

// Computes the index in an operand that broadcasts to the node's shape.
void ct__broadcast_ix(ct_emit *e, ct_val v, int rank, const ct_ix *at, ct_ix *own) {
    const ct_type *t = ct__type(v);
    for (int a = 0; a < t->rank; a++)
        own[a] = ct__is_one(t, a) ? ct__ix_int(e->pool, 0) : at[rank - t->rank + a];
}

static ct_ix emitter_map_size(ct_map *map, int operand, int axis) {
    ct_val v = operand < 0 ? (ct_val){(ct_node *)(uintptr_t)map->node, 0} : map->node->in[operand];
    return ct__emit_size(map->user, v, axis);
}
static ct_ix emitter_map_load(ct_map *map, int operand, const ct_ix *at) {
    ct_val v = map->node->in[operand];
    return ct__ix_load(map->pool, (int64_t)v.node->index << 16 | v.out, at, ct__type(v)->rank);
}

static ct_ix emitter_map_attr(ct_map *map, const int64_t *where) {
    ct_emit *e = map->user;
    return ct__sched_attr(e->draft->sched, map->pool, where);
}

// True if the piece's index along an axis is the node's own, which is in bounds already. It is left as it
// is then, so that a value which was computed at the node's index is found again.
static bool emitter_is_own_index(ct_emit *e, const ct_map *map, const ct_map_piece *piece,
                                 int axis) {
    const ct_node *node = map->node;
    return axis < node->out->rank && piece->from[axis] == map->at[axis] &&
           ct__emit_size(e, node->in[piece->operand], axis) ==
               ct__emit_size(e, (ct_val){(ct_node *)node, 0}, axis);
}

// Asks the op where the element at `at` comes from. The pieces live in the emit's arena.
bool ct__emit_map(ct_emit *e, const ct_node *node, const ct_ix *at, ct_map *map) {
    *map = (ct_map){.node = node,
                    .pool = e->pool,
                    .at = at,
                    .piece = ct__arena(&e->arena, CT_MAP_PIECES * sizeof(ct_map_piece)),
                    .value = CT_IX_NONE,
                    .size = emitter_map_size,
                    .load = emitter_map_load,
                    .attr = emitter_map_attr,
                    .user = e};
    if (!map->piece) return emitter_no_memory(e);
    if (node->op->map && node->op->map(map)) {
        // The index of a piece is in the bounds of its operand where the piece is valid.
        for (int i = 0; i < map->n_pieces; i++) {
            ct_map_piece *piece = &map->piece[i];
            if (piece->operand < 0 || (map->n_pieces == 1 && piece->valid < 0)) continue;
            ct_val v = node->in[piece->operand];
            for (int a = 0; a < ct__type(v)->rank; a++)
                if (!emitter_is_own_index(e, map, piece, a))
                    piece->from[a] = ct__ix_within(e->pool, piece->from[a], ct__emit_size(e, v, a));
        }
        return true;
    }
    return ct__err(e->err, CT_E_INTERNAL, node->here, node->op->name,
                   "it does not define where its elements come from");
}

static ct_kval emitter_constant(ct_emit *e, const ct_node *node) {
    const ct_data_bytes *data = node->attrs;
    ct_dtype dtype = (ct_dtype)node->out->dtype;
    if (ct__is_float(dtype))
        return ct__kir_const(e->kir, dtype, ct__load_f64(dtype, data->bytes, 0));
    return ct__kir_const_int(e->kir, dtype, ct__load_i64(dtype, data->bytes, 0));
}

// Loads a value that the row reuses from scratch memory; -1: it has to be computed.
static ct_kval emitter_load_reused(ct_emit *e, ct_val v, const ct_ix *at) {
    ct_kernel_builder *d = e->draft;
    ct_kept *k = d->kept;
    while (k < d->kept + d->n_kept && k->unit->v.node != v.node) k++;
    if (k == d->kept + d->n_kept) return -1;
    if (!k->filled) {
        k->wanted |= k->stage > 0 && k->stage != d->stage;
        if (!k->stage) k->stage = d->stage;
        return -1;
    }
    ct_ix flat = ct__ix_int(e->pool, 0);
    for (int a = 0; a < ct__type(v)->rank; a++) {
        if (k->unit->row[a] >= 0) continue;
        const ct_ix size = ct__emit_size(e, v, a);
        flat = ct__ix_add(e->pool, ct__ix_mul(e->pool, flat, size), at[a]);
    }
    const ct_kval index = ct__emit_ix(e, ct__ix_strip_within(e->pool, flat));
    if (e->guard < 0) return ct__kir_load(e->kir, k->buf, index);
    d->guarded++;
    return ct__kir_load_if(e->kir, k->buf, index, ct__emit_condition(e, e->guard));
}

static ct_kval emitter_compute(ct_emit *e, ct_val v, const ct_ix *at) {
    ct_kernel_builder *d = e->draft;
    const ct_node *node = v.node;
    const ct_sval *val = ct__sval(d->sched, v);
    ct_dtype dtype = (ct_dtype)ct__type(v)->dtype;
    if (node->op == &ct__op_const && ct__count(node->out) == 1) return emitter_constant(e, node);
    if (node->op == &ct__op_scalar) { // each location of the scalars is a parameter of its own
        const ct_ix guard = e->guard; // which it does not need: the scalar is always there
        e->guard = CT_IX_NONE;
        ct_kval number = ct__emit_load_at(e, val->buf, val->offset, dtype, ct__ix_int(e->pool, 0));
        e->guard = guard;
        return number;
    }
    if (val->buf != UINT32_MAX && (val->group < 0 || val->group != d->group))
        return ct__emit_bits(e, v, at, dtype);
    const ct_kval reused = d->n_kept ? emitter_load_reused(e, v, at) : -1;
    if (reused >= 0) return reused;
    if (node->op->kind->value) return node->op->kind->value(e, v, at);
    if (!e->kir->err.code) // else it is not there for lack of memory
        ct__err(e->err, CT_E_INTERNAL, node->here, node->op->name,
                "its value is used before it has a location");
    return -1;
}

ct_kval ct__emit_value(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype as) {
    ct_kernel_builder *d = e->draft;
    // After an error nothing is found again: a further walk would visit shared values many times.
    if (e->kir->err.code || e->err->code) return -1;
    ct_dtype dtype = (ct_dtype)ct__type(v)->dtype;
    const ct_memo *m = emitter_recall(e, v, at);
    ct_kval r = m ? m->value : -1;
    d->guarded += m && m->guard >= 0;
    if (r < 0) {
        const size_t guarded = d->guarded;
        if (++d->depth > MAX_NESTED) {
            ct__err(e->err, CT_E_INTERNAL, v.node->here, v.node->op->name,
                    "more than %d values are nested in one kernel", MAX_NESTED);
            return -1;
        }
        r = emitter_compute(e, v, at);
        d->depth--;
        // A value that was computed without loads under the guard holds without it.
        emitter_remember(e, v, at, d->guarded == guarded ? CT_IX_NONE : e->guard, r);
    }
    return as == CT_DEFAULT || as == dtype || r < 0 ? r : ct__kir_cast(e->kir, r, as);
}

ct_kval ct__emit_value_apart(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype as) {
    ct_kernel_builder *d = e->draft;
    size_t n_memo = d->n_memo;
    ct_kval r = ct__emit_value(e, v, at, as);
    d->n_memo = n_memo;
    return r;
}
void ct__emit_store_apart(ct_emit *e, ct_val v, const ct_ix *at, ct_kval value) {
    ct_kernel_builder *d = e->draft;
    size_t n_memo = d->n_memo;
    d->epilogue = ++d->n_epilogues;
    ct__emit_store(e, v, at, value);
    d->epilogue = 0;
    d->n_memo = n_memo;
}

int64_t ct__emit_stride(ct_emit *e, ct_val v, const ct_ix *at, ct_ix var) {
    const ct_sval *val = ct__sval(e->draft->sched, v);
    ct_ix stride;
    int64_t n;
    if (val->buf != UINT32_MAX)
        return ct__ix_stride(e->pool, ct__emit_offset(e, v, at), var, &stride) &&
                       ct__ix_is_int(e->pool, stride, &n)
                   ? n
                   : 0;
    ct_ix own[CT_MAX_RANK];
    ct_map map;
    switch (v.node->op->kind->scheduled) {
    case CT_MAPPED:
        if (!ct__emit_map(e, v.node, at, &map) || !map.n_pieces || map.piece[0].operand < 0)
            return 0;
        return ct__emit_stride(e, v.node->in[map.piece[0].operand], map.piece[0].from, var);
    case CT_POINTWISE: // the operand with the most elements decides
        n = 0;
        for (int i = 0; i < v.node->n_in && n != 1; i++) {
            ct__broadcast_ix(e, v.node->in[i], v.node->out->rank, at, own);
            const int64_t step = ct__emit_stride(e, v.node->in[i], own, var);
            if (step) n = step;
        }
        return n;
    default: return 0;
    }
}
bool ct__emit_contiguous(ct_emit *e, ct_val v, const ct_ix *at, ct_ix var) {
    return ct__emit_stride(e, v, at, var) == 1;
}

// True if a predicate holds for every offset, condition and index value (of an iota) that v[at...] is
// computed from.
typedef bool (*emitter_index_predicate)(const ct_ix_pool *pool, ct_ix x, ct_ix var, int64_t group);
static bool emitter_holds_for_reads(ct_emit *e, ct_val v, const ct_ix *at,
                                    emitter_index_predicate holds, ct_ix var, int64_t group) {
    const ct_sval *val = ct__sval(e->draft->sched, v);
    ct_ix own[CT_MAX_RANK];
    ct_map map;
    if (val->buf != UINT32_MAX) return holds(e->pool, ct__emit_offset(e, v, at), var, group);
    bool ok = ct__is_inlined(v.node);
    if (v.node->op->kind->scheduled == CT_MAPPED) {
        ok = ct__emit_map(e, v.node, at, &map);
        if (ok && map.value >= 0) ok = holds(e->pool, map.value, var, group);
        for (int i = 0; i < map.n_pieces && ok; i++) {
            const ct_map_piece *piece = &map.piece[i];
            ok = piece->valid < 0 || holds(e->pool, piece->valid, var, group);
            if (ok && piece->operand >= 0)
                ok = emitter_holds_for_reads(e, v.node->in[piece->operand], piece->from, holds, var,
                                             group);
        }
        return ok;
    }
    for (int i = 0; i < v.node->n_in && ok; i++) {
        ct__broadcast_ix(e, v.node->in[i], v.node->out->rank, at, own);
        ok = emitter_holds_for_reads(e, v.node->in[i], own, holds, var, group);
    }
    return ok;
}
static bool emitter_is_undivided(const ct_ix_pool *pool, ct_ix x, ct_ix var, int64_t group) {
    return !ct__ix_divides(pool, x, var, group);
}
static bool emitter_is_independent(const ct_ix_pool *pool, ct_ix x, ct_ix var, int64_t group) {
    return (void)group, !ct__ix_uses(pool, x, var);
}
bool ct__emit_undivided(ct_emit *e, ct_val v, const ct_ix *at, ct_ix var, int64_t group) {
    return emitter_holds_for_reads(e, v, at, emitter_is_undivided, var, group);
}
bool ct__emit_without(ct_emit *e, ct_val v, const ct_ix *at, ct_ix var) {
    return emitter_holds_for_reads(e, v, at, emitter_is_independent, var, 0);
}

bool ct__emit_is_load(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype as) {
    const ct_sval *val = ct__sval(e->draft->sched, v);
    ct_map map;
    if (val->buf != UINT32_MAX) return ct__type(v)->dtype == as;
    return ct__is_view(v.node) && ct__emit_map(e, v.node, at, &map) && map.n_pieces == 1 &&
           map.piece[0].operand == 0 && map.piece[0].valid < 0 &&
           ct__emit_is_load(e, v.node->in[0], map.piece[0].from, as);
}

// True if the node widens floats of 16 bits to f32.
static bool emitter_widens(const ct_node *node) {
    const int from = ct__type(node->in[0])->dtype;
    return node->op->converts && node->out->dtype == CT_F32 && (from == CT_BF16 || from == CT_F16);
}

// Finds the value in memory that v[at...] is an element of, and the index of its word there.
static bool emitter_find_word(ct_emit *e, ct_val v, const ct_ix *at, ct_val *in, ct_ix *word) {
    const ct_sval *val = ct__sval(e->draft->sched, v);
    const size_t bits = ct_dtype_bits((ct_dtype)ct__type(v)->dtype);
    ct_ix many = ct__ix_int(e->pool, bits ? (int64_t)(32 / bits) : 1);
    ct_map map;
    int64_t rest;
    if (val->buf == UINT32_MAX && emitter_widens(v.node))
        return emitter_find_word(e, v.node->in[0], at, in, word);
    if (val->buf == UINT32_MAX)
        return ct__is_view(v.node) && ct__emit_map(e, v.node, at, &map) && map.n_pieces == 1 &&
               map.piece[0].operand == 0 && map.piece[0].valid < 0 &&
               emitter_find_word(e, v.node->in[0], map.piece[0].from, in, word);
    ct_ix offset = ct__emit_offset(e, v, at);
    *in = v;
    *word = ct__ix_div(e->pool, offset, many);
    return bits && bits < 32 && val->offset % 4 == 0 &&
           ct__ix_is_int(e->pool, ct__ix_mod(e->pool, offset, many), &rest) && !rest;
}
bool ct__emit_has_word(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype *of) {
    ct_val in;
    ct_ix word;
    if (!emitter_find_word(e, v, at, &in, &word)) return false;
    *of = (ct_dtype)ct__type(in)->dtype;
    return true;
}
ct_kval ct__emit_word(ct_emit *e, ct_val v, const ct_ix *at) {
    ct_val in;
    ct_ix word;
    if (!emitter_find_word(e, v, at, &in, &word)) return -1;
    const ct_sval *val = ct__sval(e->draft->sched, in);
    if (ct__is_leaf(in.node) && !ct__sched_place_leaf(e->draft->sched, in.node)) return -1;
    return ct__emit_load_at(e, val->buf, val->offset, CT_U32, word);
}

void ct__unflatten_ix(ct_ix_pool *p, ct_ix flat, const ct_ix *size, int n, ct_ix *at) {
    for (int i = n - 1; i > 0; i--) {
        at[i] = ct__ix_mod(p, flat, size[i]);
        flat = ct__ix_div(p, flat, size[i]);
    }
    if (n > 0) at[0] = flat;
}
