// Writing one kernel: values by index substitution. See kinds/emit.h for how it is used.
#include <string.h>

#include "compile/schedule/sched.h"

enum { DEEPEST = 512 }; // nested inlining; fusion keeps far below

// -------------------------------------------------------------------------------------------- life

static bool no_memory(ct_emit *e) {
    return ct__err_memory(e->err, e->node ? e->node->here : CT_NOWHERE, "kernel", sizeof(ct_kir));
}

static ct_kval declare_sym(ct_emit *e, int sym);

bool ct__emit_restart(ct_emit *e) {
    ct_draft *d = e->draft;
    // What a kernel on trial says is no ground for a choice if there was no memory for all of it.
    if (e->kir && e->kir->err.code == CT_E_MEMORY && !e->err->code) *e->err = e->kir->err;
    if (e->pool && ct__ix_failed(e->pool) && !e->err->code) no_memory(e);
    if (e->kir) ct__kir_free(e->kir);
    ct__free(e->kir);
    e->kir = ct__malloc(sizeof *e->kir);
    if (e->kir) ct__kir_init(e->kir); // at once: whatever fails below, it is freed
    ct__arena_reset(&e->arena);
    e->pool = ct__ix_new(&e->arena, e->err);
    d->n_binds = d->n_memo = d->n_marks = d->n_args = d->n_syms = d->n_seen = 0;
    d->n_behind = 0;
    d->depth = d->n_kept = d->stage = 0;
    e->guard = CT_IX_NONE;
    e->flops = 0;
    if (!e->kir || !e->pool) return no_memory(e);
    for (int i = 0; i < (int)d->sched->n_syms; i++) declare_sym(e, i);
    return !e->err->code;
}

ct_emit *ct__emit_new(ct_sched *s, const ct_node *node) {
    ct_draft *d = ct__calloc(1, sizeof *d);
    ct_emit *e = d ? &d->emit : NULL;
    if (d) {
        *e = (ct_emit){.node = node, .err = s->err, .target = s->program->target, .draft = d};
        d->sched = s;
        d->group = node && node->op->kind->epilogue ? s->vals[node->index][0].group : -1;
        if (ct__emit_restart(e)) return e;
    }
    ct__emit_free(e);
    ct__err_memory(s->err, node ? node->here : CT_NOWHERE, "kernel", sizeof *d);
    return NULL;
}

void ct__emit_free(ct_emit *e) {
    if (!e) return;
    ct_draft *d = e->draft;
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

// An argument is declared before the loops, where it is not known yet which will be asked for: so
// all are, as ~sym, and those never used are taken back at the end.
static ct_kval declare_sym(ct_emit *e, int sym) {
    ct_draft *d = e->draft;
    if (!CT_GROW(d->syms, d->syms_cap, d->n_syms + 1) ||
        !CT_GROW(d->sym_values, d->sym_values_cap, d->n_syms + 1))
        return no_memory(e) - 1;
    d->syms[d->n_syms] = ~sym;
    return d->sym_values[d->n_syms++] = ct__kir_arg(e->kir);
}
static ct_kval sym_value(ct_emit *e, int sym) {
    ct_draft *d = e->draft;
    for (size_t i = 0; i < d->n_syms; i++)
        if (d->syms[i] == sym || d->syms[i] == ~sym) {
            d->syms[i] = sym;
            return d->sym_values[i];
        }
    ct_kval value = declare_sym(e, sym);
    if (value >= 0) d->syms[d->n_syms - 1] = sym;
    return value;
}

ct_ix ct__emit_bind(ct_emit *e, ct_kval value, ct_ix extent) {
    ct_ix var = ct__ix_var(e->pool, extent);
    ct__emit_bind_to(e, var, value);
    return var;
}
void ct__emit_bind_to(ct_emit *e, ct_ix var, ct_kval value) {
    ct_draft *d = e->draft;
    for (size_t i = 0; i < d->n_binds; i++)
        if (d->binds[i].var == var) {
            d->binds[i].value = value;
            return;
        }
    if (!CT_GROW(d->binds, d->binds_cap, d->n_binds + 1)) {
        no_memory(e);
        return;
    }
    d->binds[d->n_binds++] = (ct_bind){var, value};
}

void ct__emit_open(ct_emit *e, ct_kbind bind, ct_ix extent, const char *name, ct_ix var) {
    ct_draft *d = e->draft;
    ct_kval n = ct__emit_ix(e, extent);
    ct__emit_bind_to(e, var, ct__kir_loop(e->kir, bind, n, name));
    if (!CT_GROW(d->marks, d->marks_cap, d->n_marks + 1))
        no_memory(e);
    else
        d->marks[d->n_marks++] = d->n_memo;
}
ct_ix ct__emit_loop(ct_emit *e, ct_kbind bind, ct_ix extent, const char *name) {
    ct_ix var = ct__ix_var(e->pool, extent);
    ct__emit_open(e, bind, extent, name, var);
    return var;
}
void ct__emit_end(ct_emit *e) {
    ct_draft *d = e->draft;
    ct__kir_end(e->kir);
    if (d->n_marks) d->n_memo = d->marks[--d->n_marks]; // values of the loop end with it
}

static ct_kval emit_term(ct_emit *e, const ct_ix_term *t) {
    ct_kir *k = e->kir;
    ct_kval x = -1;
    if (t->atom >= 0) x = ct__emit_ix(e, t->atom);
    int syms[16], n = ct__ix_mono(e->pool, t->mono, syms, 16);
    ct_kval size = -1;
    for (int i = 0; i < n; i++) {
        ct_kval v = sym_value(e, syms[i]);
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

// A condition without the parts that hang on the value x: they were added once it was known, so
// that its own load cannot wait for them.
static ct_ix guard_before(ct_emit *e, ct_ix guard, ct_ix x) {
    if (guard < 0 || !ct__ix_holds(e->pool, guard, x)) return guard;
    ct_ix_node n = *ct__ix_node(e->pool, guard);
    if (n.kind != CT_IX_AND) return CT_IX_NONE;
    ct_ix b = guard_before(e, n.b, x);
    return ct__ix_and(e->pool, guard_before(e, n.a, x), b);
}

// Is an index inside of the value whatever the condition is?
static bool always_inside(ct_emit *e, ct_val v, const ct_ix *at) {
    for (int a = 0; a < ct__type(v)->rank; a++) {
        int64_t size;
        if (!ct__ix_is_int(e->pool, ct__emit_size(e, v, a), &size) ||
            ct__ix_bare(e->pool, at[a]) != at[a] || ct__ix_node(e->pool, at[a])->lo < 0 ||
            ct__ix_node(e->pool, at[a])->hi >= size)
            return false;
    }
    return true;
}

// 0 <= x and x < n of a position x that is data?
static bool is_inside(const ct_ix_pool *p, ct_ix a, ct_ix b, ct_ix *x, ct_ix *n) {
    const ct_ix_node *no = ct__ix_node(p, a), *less = ct__ix_node(p, b);
    int64_t zero = 1;
    if (no->kind != CT_IX_NOT || less->kind != CT_IX_LT) return false;
    const ct_ix_node *negative = ct__ix_node(p, no->a);
    *x = less->a;
    *n = less->b;
    return negative->kind == CT_IX_LT && negative->a == *x &&
           ct__ix_is_int(p, negative->b, &zero) && zero == 0 &&
           ct__ix_node(p, *x)->kind == CT_IX_LOAD && ct__ix_node(p, *n)->lo >= 0;
}

// Of two operands; the second one is written first.
static ct_kval emit_pair(ct_emit *e, const ct_ix_node *n) {
    ct_kir *k = e->kir;
    ct_ix place, size;
    if (n->kind == CT_IX_AND && (is_inside(e->pool, n->a, n->b, &place, &size) ||
                                 is_inside(e->pool, n->b, n->a, &place, &size))) {
        const ct_kval x = ct__emit_ix(e, place);
        return ct__kir_is_inside(k, x, ct__emit_ix(e, size));
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

// Conditions come as bool, everything else as i64.
ct_kval ct__emit_ix(ct_emit *e, ct_ix x) {
    ct_draft *d = e->draft;
    if (x < 0) return -1;
    ct_ix_node n = *ct__ix_node(e->pool, x);
    ct_kir *k = e->kir;
    switch (n.kind) {
    case CT_IX_SUM: {
        if (n.n == 0) return ct__kir_int(k, 0);
        ct_kval sum = emit_term(e, &n.term[0]);
        for (int i = 1; i < n.n; i++) sum = ct__kir_add(k, sum, emit_term(e, &n.term[i]));
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
    case CT_IX_AND: return emit_pair(e, &n);
    case CT_IX_NOT: return ct__kir_un(k, CT_K_NOT, ct__emit_condition(e, n.a));
    case CT_IX_SELECT: {
        ct_kval no = ct__emit_ix(e, n.c), yes = ct__emit_ix(e, n.b);
        return ct__kir_select(k, ct__emit_condition(e, n.a), yes, no);
    }
    case CT_IX_LOAD: {
        ct_val v = {d->sched->graph->nodes[n.number >> 16], (uint32_t)(n.number & 0xffff)};
        ct_ix outer = e->guard;
        e->guard = always_inside(e, v, n.at) ? CT_IX_NONE : guard_before(e, outer, x);
        ct_kval value = ct__emit_value(e, v, n.at, CT_I64);
        e->guard = outer;
        return value;
    }
    }
    return -1;
}

// An operand is memory, or a chain of views of memory (fuse.c).
static void declare_sizes(ct_emit *e, ct_val v) {
    for (;;) {
        for (int a = 0; a < ct__type(v)->rank; a++)
            if (ct__is_dyn(ct__type(v), a)) ct__emit_ix(e, ct__emit_size(e, v, a));
        if (!ct__is_view(v.node)) return;
        v = v.node->in[0];
    }
}
void ct__emit_declare_sizes(ct_emit *e, ct_node *node) {
    for (int i = 0; i < node->n_in; i++) declare_sizes(e, node->in[i]);
    for (uint32_t o = 0; o < node->n_out; o++)
        for (int a = 0; a < node->out[o].rank; a++)
            if (ct__is_dyn(&node->out[o], a))
                ct__emit_ix(e, ct__emit_size(e, (ct_val){node, o}, a));
}

// ------------------------------------------------------------------------------------------ memory

// The kernel's parameter for what lies at a place. A new one begins *base elements behind it; of one
// that is there *base is told. NULL: at the place itself.
static int parameter(ct_emit *e, ct_place place, ct_dtype dtype, int flags, int64_t *base) {
    ct_draft *d = e->draft;
    if (ct__has_parts(dtype)) dtype = ct__part(dtype);
    for (size_t i = 0; i < d->n_args; i++) {
        const size_t ahead = (size_t)d->arg_bases[i] * ct_dtype_size(dtype);
        if (d->args[i].buf != place.buf || d->arg_types[i] != dtype ||
            d->args[i].offset != place.offset + ahead || (!base && ahead))
            continue;
        e->kir->bufs[d->arg_ids[i]].flags |= flags;
        d->args[i].write |= (flags & CT_KIR_WRITE) != 0;
        if (base) *base = d->arg_bases[i];
        return d->arg_ids[i];
    }
    if (place.buf == UINT32_MAX || !CT_GROW(d->args, d->args_cap, d->n_args + 1) ||
        !CT_GROW(d->arg_ids, d->arg_ids_cap, d->n_args + 1) ||
        !CT_GROW(d->arg_bases, d->arg_bases_cap, d->n_args + 1) ||
        !CT_GROW(d->arg_types, d->arg_types_cap, d->n_args + 1))
        return no_memory(e) - 1;
    int id = ct__kir_buffer(e->kir, dtype, flags);
    if (id < 0) return -1; // the kernel keeps the error
    const int64_t first = base ? *base : 0;
    d->args[d->n_args] = ct__arg_at(place);
    d->args[d->n_args].offset += (size_t)first * ct_dtype_size(dtype);
    d->args[d->n_args].write = (flags & CT_KIR_WRITE) != 0;
    d->arg_bases[d->n_args] = first;
    d->arg_ids[d->n_args] = id;
    d->arg_types[d->n_args++] = dtype;
    return id;
}
int ct__emit_result_buffer(ct_emit *e, ct_val v, int flags) {
    const ct_sval *val = ct__sval(e->draft->sched, v);
    return parameter(e, (ct_place){val->buf, val->offset}, (ct_dtype)ct__type(v)->dtype, flags,
                     NULL);
}

// The number in an index, where the buffer has an element there in every run; else 0.
static int64_t base_of(const ct_emit *e, ct_place place, ct_dtype dtype, ct_ix index) {
    if (index < 0 || place.buf == UINT32_MAX || ct__has_parts(dtype)) return 0;
    const ct_buf *b = &e->draft->sched->program->bufs[place.buf];
    const ct_ix_node *n = ct__ix_node(e->pool, index);
    const ct_ix_term *t = n->kind == CT_IX_SUM && n->n ? &n->term[0] : NULL;
    if (!t || t->atom >= 0 || t->mono || t->coef < 0 || ct__marked(b->size)) return 0;
    const size_t left = b->bytes > place.offset ? b->bytes - place.offset : 0;
    return (size_t)t->coef < left / ct_dtype_size(dtype) ? t->coef : 0;
}

// The parameter for an access, and the index of the access in it. A number in the index is part of the
// launch, not of the kernel: layers whose weights are slices of one tensor share their kernels. The
// kernel's first access to a buffer says where its parameter begins; the others count from there.
static int access(ct_emit *e, ct_place place, ct_dtype dtype, int flags, ct_ix *index) {
    int64_t base = base_of(e, place, dtype, *index);
    const int id = parameter(e, place, dtype, flags, &base);
    if (base) *index = ct__ix_sub(e->pool, *index, ct__ix_int(e->pool, base));
    return id;
}

int ct__emit_temp(ct_emit *e, uint32_t temp, ct_dtype dtype, int flags) {
    return parameter(e, (ct_place){.buf = temp}, dtype, flags, NULL);
}

// For the choice of loops: every place that is read or written, with what it hangs on.
static void see(ct_emit *e, ct_seen access) {
    ct_draft *d = e->draft;
    if (!CT_GROW(d->seen, d->seen_cap, d->n_seen + 1)) {
        no_memory(e);
        return;
    }
    access.behind = d->behind;
    d->seen[d->n_seen++] = access;
}

ct_kval ct__emit_load_at(ct_emit *e, uint32_t buf, size_t bytes, ct_dtype dtype, ct_ix offset) {
    see(e, (ct_seen){offset, e->guard, false, buf, bytes, dtype, 0});
    int id = access(e, (ct_place){buf, bytes}, dtype, CT_KIR_READ, &offset);
    if (e->guard < 0) return ct__kir_load(e->kir, id, ct__emit_ix(e, offset));
    e->draft->guarded++;
    ct_kval guard = ct__emit_condition(e, e->guard);
    return ct__kir_load_if(e->kir, id, ct__emit_ix(e, offset), guard);
}
void ct__emit_store_at(ct_emit *e, uint32_t buf, size_t bytes, ct_dtype dtype, ct_ix offset,
                       ct_kval value) {
    see(e, (ct_seen){offset, e->guard, true, buf, bytes, dtype, 0});
    int id = access(e, (ct_place){buf, bytes}, dtype, CT_KIR_WRITE, &offset);
    ct__kir_store(e->kir, id, ct__emit_ix(e, offset), value);
}

ct_ix ct__emit_offset(ct_emit *e, ct_val v, const ct_ix *at) {
    ct_ix offset = ct__ix_int(e->pool, 0);
    for (int a = 0; a < ct__type(v)->rank; a++)
        offset = ct__ix_add(e->pool, ct__ix_mul(e->pool, offset, ct__emit_size(e, v, a)), at[a]);
    return ct__ix_bare(e->pool, offset);
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
    ct_draft *d = e->draft;
    const ct_sval *val = ct__sval(d->sched, v);
    if (ct__is_leaf(v.node) && !ct__sched_place_leaf(d->sched, v.node)) return -1;
    return ct__emit_load_at(e, val->buf, val->offset, dtype, ct__emit_offset(e, v, at));
}

static ct_ix part_offset(ct_emit *e, ct_ix offset, int part) {
    ct_ix twice = ct__ix_mul(e->pool, offset, ct__ix_int(e->pool, 2));
    return ct__ix_add(e->pool, twice, ct__ix_int(e->pool, part));
}

// Of 4 bits: two elements are one byte. Of a complex number: its parts lie one behind the other.
ct_kval ct__emit_part(ct_emit *e, ct_val v, const ct_ix *at, int part) {
    ct_draft *d = e->draft;
    ct_kir *k = e->kir;
    const ct_sval *val = ct__sval(d->sched, v);
    const ct_dtype dtype = (ct_dtype)ct__type(v)->dtype;
    if (ct__is_leaf(v.node) && !ct__sched_place_leaf(d->sched, v.node)) return -1;
    ct_ix offset = ct__emit_offset(e, v, at), two = ct__ix_int(e->pool, 2);
    if (ct__is_complex(dtype))
        return ct__emit_load_at(e, val->buf, val->offset, ct__part(dtype),
                                part_offset(e, offset, part));
    ct_kval byte =
        ct__emit_load_at(e, val->buf, val->offset, CT_U8, ct__ix_div(e->pool, offset, two));
    ct_kval odd = ct__kir_cast(k, ct__emit_ix(e, ct__ix_mod(e->pool, offset, two)), CT_U8);
    ct_kval shift = ct__kir_mul(k, odd, ct__kir_const_int(k, CT_U8, 4));
    ct_kval code = ct__kir_bin(k, CT_K_SHR, byte, shift);
    return ct__kir_bin(k, CT_K_AND, code, ct__kir_const_int(k, CT_U8, 15));
}

static void store_one(ct_emit *e, ct_val v, const ct_ix *at, ct_kval value) {
    const ct_sval *val = ct__sval(e->draft->sched, v);
    const ct_type *t = ct__type(v);
    for (int a = 0; a < t->rank; a++) // no element, whose place would not even move with the lanes
        if (t->dim[a] == 0 && !ct__is_dyn(t, a)) return;
    const ct_dtype dtype = (ct_dtype)t->dtype;
    const ct_ix offset = ct__emit_offset(e, v, at);
    for (int p = 0; p < 2 && ct__is_complex(dtype); p++) { // made of its operands
        ct_ix own[CT_MAX_RANK];
        ct__broadcast_ix(e, v.node->in[p], t->rank, at, own);
        value = ct__emit_value(e, v.node->in[p], own, ct__part(dtype));
        ct__emit_store_at(e, val->buf, val->offset, ct__part(dtype), part_offset(e, offset, p),
                          value);
    }
    if (ct__is_complex(dtype)) return;
    ct__emit_store_at(e, val->buf, val->offset, dtype, offset, value);
}

// What comes in a wider form than the dtype, rounded to it.
static ct_kval rounded(ct_emit *e, ct_kval value, ct_dtype dtype) {
    return ct__kir_held(dtype) == dtype ? value : ct__kir_cast(e->kir, value, dtype);
}

// Behind a template's node: what is computed from its element at the same index.
static void store_behind(ct_emit *e, const ct_group *g, ct_val v, const ct_ix *at, ct_kval value) {
    const ct_type *t = ct__type(v);
    ct_dtype dtype = (ct_dtype)t->dtype;
    ct_ix own[CT_MAX_RANK];
    for (int a = 0; a < t->rank; a++) own[a] = ct__is_one(t, a) ? ct__ix_int(e->pool, 0) : at[a];
    ct__emit_remember(e, v, own, rounded(e, value, dtype));
    ct_kval *made = ct__arena(&e->arena, g->n_units * sizeof *made);
    if (!made) {
        no_memory(e);
        return;
    }
    for (size_t i = 0; i < g->n_units; i++)
        made[i] = ct__emit_value(e, g->units[i].v, own, CT_DEFAULT);
    if (ct__sval(e->draft->sched, v)->stored) store_one(e, v, at, value);
    for (size_t i = 0; i < g->n_units; i++) store_one(e, g->units[i].v, at, made[i]);
}

void ct__emit_store(ct_emit *e, ct_val v, const ct_ix *at, ct_kval value) {
    ct_draft *d = e->draft;
    const ct_group *g = d->group >= 0 ? d->sched->groups[d->group] : NULL;
    if (!g || g->only != v.node)
        store_one(e, v, at, value);
    else if (g->n_units && v.out == 0)
        store_behind(e, g, v, at, value);
    else if (ct__sval(d->sched, v)->stored)
        store_one(e, v, at, value);
}

// ------------------------------------------------------------------------------------------ values

static void remember(ct_emit *e, ct_val v, const ct_ix *at, ct_ix guard, ct_kval value) {
    ct_draft *d = e->draft;
    size_t bytes = ct__type(v)->rank * sizeof *at;
    ct_ix *own = ct__arena(&e->arena, bytes);
    if (!own || !CT_GROW(d->memo, d->memo_cap, d->n_memo + 1)) {
        no_memory(e);
        return;
    }
    if (bytes) memcpy(own, at, bytes);
    d->memo[d->n_memo++] = (ct_memo){v, guard, own, value};
}
void ct__emit_remember(ct_emit *e, ct_val v, const ct_ix *at, ct_kval value) {
    remember(e, v, at, e->guard, value);
}
static const ct_memo *recall(const ct_emit *e, ct_val v, const ct_ix *at) {
    const ct_draft *d = e->draft;
    size_t bytes = ct__type(v)->rank * sizeof *at;
    for (size_t i = d->n_memo; i-- > 0;) {
        const ct_memo *m = &d->memo[i];
        // A value without condition serves where there is one.
        if (m->v.node == v.node && m->v.out == v.out && (m->guard == e->guard || m->guard < 0) &&
            (bytes == 0 || memcmp(m->at, at, bytes) == 0))
            return m;
    }
    return NULL;
}

bool ct__emit_recalls(const ct_emit *e, ct_val v, const ct_ix *at) {
    const ct_memo *m = recall(e, v, at);
    return m && m->value >= 0;
}

// The index in an operand that broadcasts to the node's shape.
void ct__broadcast_ix(ct_emit *e, ct_val v, int rank, const ct_ix *at, ct_ix *own) {
    const ct_type *t = ct__type(v);
    for (int a = 0; a < t->rank; a++)
        own[a] = ct__is_one(t, a) ? ct__ix_int(e->pool, 0) : at[rank - t->rank + a];
}

static ct_ix map_size(ct_map *map, int operand, int axis) {
    ct_val v = operand < 0 ? (ct_val){(ct_node *)(uintptr_t)map->node, 0} : map->node->in[operand];
    return ct__emit_size(map->user, v, axis);
}
static ct_ix map_load(ct_map *map, int operand, const ct_ix *at) {
    ct_val v = map->node->in[operand];
    return ct__ix_load(map->pool, (int64_t)v.node->index << 16 | v.out, at, ct__type(v)->rank);
}

static ct_ix map_attr(ct_map *map, const int64_t *where) {
    ct_emit *e = map->user;
    return ct__sched_attr(e->draft->sched, map->pool, where);
}

// Is the piece's index along an axis the node's own, which lies inside already? Nothing is said of it
// then: whoever recalls a value that was computed at the node's index finds it.
static bool is_own_index(ct_emit *e, const ct_map *map, const ct_map_piece *piece, int axis) {
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
                    .size = map_size,
                    .load = map_load,
                    .attr = map_attr,
                    .user = e};
    if (!map->piece) return no_memory(e);
    if (node->op->map && node->op->map(map)) {
        // Where a piece counts, its index lies inside of its operand.
        for (int i = 0; i < map->n_pieces; i++) {
            ct_map_piece *piece = &map->piece[i];
            if (piece->operand < 0 || (map->n_pieces == 1 && piece->valid < 0)) continue;
            ct_val v = node->in[piece->operand];
            for (int a = 0; a < ct__type(v)->rank; a++)
                if (!is_own_index(e, map, piece, a))
                    piece->from[a] = ct__ix_within(e->pool, piece->from[a], ct__emit_size(e, v, a));
        }
        return true;
    }
    return ct__err(e->err, CT_E_INTERNAL, node->here, node->op->name,
                   "it does not say where its elements come from");
}

static ct_kval constant(ct_emit *e, const ct_node *node) {
    const ct_data_bytes *data = node->attrs;
    ct_dtype dtype = (ct_dtype)node->out->dtype;
    if (ct__is_float(dtype))
        return ct__kir_const(e->kir, dtype, ct__load_f64(dtype, data->bytes, 0));
    return ct__kir_const_int(e->kir, dtype, ct__load_i64(dtype, data->bytes, 0));
}

// A value that the row keeps, from scratch memory; -1: it is to be computed.
static ct_kval kept(ct_emit *e, ct_val v, const ct_ix *at) {
    ct_draft *d = e->draft;
    ct_kept *k = d->kept;
    while (k < d->kept + d->n_kept && k->unit->v.node != v.node) k++;
    if (k == d->kept + d->n_kept) return -1;
    if (!k->filled) {
        k->wanted |= k->stage > 0 && k->stage != d->stage;
        if (!k->stage) k->stage = d->stage;
        return -1;
    }
    ct_ix place = ct__ix_int(e->pool, 0);
    for (int a = 0; a < ct__type(v)->rank; a++) {
        if (k->unit->row[a] >= 0) continue;
        const ct_ix size = ct__emit_size(e, v, a);
        place = ct__ix_add(e->pool, ct__ix_mul(e->pool, place, size), at[a]);
    }
    const ct_kval index = ct__emit_ix(e, ct__ix_bare(e->pool, place));
    if (e->guard < 0) return ct__kir_load(e->kir, k->buf, index);
    d->guarded++;
    return ct__kir_load_if(e->kir, k->buf, index, ct__emit_condition(e, e->guard));
}

static ct_kval computed(ct_emit *e, ct_val v, const ct_ix *at) {
    ct_draft *d = e->draft;
    const ct_node *node = v.node;
    const ct_sval *val = ct__sval(d->sched, v);
    ct_dtype dtype = (ct_dtype)ct__type(v)->dtype;
    if (node->op == &ct__op_const && ct__count(node->out) == 1) return constant(e, node);
    if (node->op == &ct__op_scalar) { // each place of the scalars is a parameter of its own
        const ct_ix guard = e->guard; // which it needs not: it is always there
        e->guard = CT_IX_NONE;
        ct_kval number = ct__emit_load_at(e, val->buf, val->offset, dtype, ct__ix_int(e->pool, 0));
        e->guard = guard;
        return number;
    }
    if (val->buf != UINT32_MAX && (val->group < 0 || val->group != d->group))
        return ct__emit_bits(e, v, at, dtype);
    const ct_kval there = d->n_kept ? kept(e, v, at) : -1;
    if (there >= 0) return there;
    if (node->op->kind->value) return node->op->kind->value(e, v, at);
    if (!e->kir->err.code) // else what was made of it is not known for want of memory
        ct__err(e->err, CT_E_INTERNAL, node->here, node->op->name,
                "its value is used before it has a place");
    return -1;
}

ct_kval ct__emit_value(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype as) {
    ct_draft *d = e->draft;
    // After an error nothing is recalled: walking on would visit shared values again and again.
    if (e->kir->err.code || e->err->code) return -1;
    ct_dtype dtype = (ct_dtype)ct__type(v)->dtype;
    const ct_memo *m = recall(e, v, at);
    ct_kval r = m ? m->value : -1;
    d->guarded += m && m->guard >= 0;
    if (r < 0) {
        const size_t guarded = d->guarded;
        if (++d->depth > DEEPEST) {
            ct__err(e->err, CT_E_INTERNAL, v.node->here, v.node->op->name,
                    "more than %d values are nested in one kernel", DEEPEST);
            return -1;
        }
        r = computed(e, v, at);
        d->depth--;
        // What was read without a condition holds without one.
        remember(e, v, at, d->guarded == guarded ? CT_IX_NONE : e->guard, r);
    }
    return as == CT_DEFAULT || as == dtype || r < 0 ? r : ct__kir_cast(e->kir, r, as);
}

ct_kval ct__emit_value_apart(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype as) {
    ct_draft *d = e->draft;
    size_t known = d->n_memo;
    ct_kval r = ct__emit_value(e, v, at, as);
    d->n_memo = known;
    return r;
}
void ct__emit_store_apart(ct_emit *e, ct_val v, const ct_ix *at, ct_kval value) {
    ct_draft *d = e->draft;
    size_t known = d->n_memo;
    d->behind = ++d->n_behind;
    ct__emit_store(e, v, at, value);
    d->behind = 0;
    d->n_memo = known;
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
    case CT_POINTWISE: // the widest operand decides
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

// Does something hold for every place and condition that reading v[at...] takes?
typedef bool (*about_index)(const ct_ix_pool *pool, ct_ix x, ct_ix var, int64_t group);
static bool holds_for_reads(ct_emit *e, ct_val v, const ct_ix *at, about_index holds, ct_ix var,
                            int64_t group) {
    const ct_sval *val = ct__sval(e->draft->sched, v);
    ct_ix own[CT_MAX_RANK];
    ct_map map;
    if (val->buf != UINT32_MAX) return holds(e->pool, ct__emit_offset(e, v, at), var, group);
    bool ok = ct__is_inlined(v.node);
    if (v.node->op->kind->scheduled == CT_MAPPED) {
        ok = ct__emit_map(e, v.node, at, &map);
        for (int i = 0; i < map.n_pieces && ok; i++) {
            const ct_map_piece *piece = &map.piece[i];
            ok = piece->valid < 0 || holds(e->pool, piece->valid, var, group);
            if (ok && piece->operand >= 0)
                ok = holds_for_reads(e, v.node->in[piece->operand], piece->from, holds, var, group);
        }
        return ok;
    }
    for (int i = 0; i < v.node->n_in && ok; i++) {
        ct__broadcast_ix(e, v.node->in[i], v.node->out->rank, at, own);
        ok = holds_for_reads(e, v.node->in[i], own, holds, var, group);
    }
    return ok;
}
static bool is_undivided(const ct_ix_pool *pool, ct_ix x, ct_ix var, int64_t group) {
    return !ct__ix_divides(pool, x, var, group);
}
static bool is_without(const ct_ix_pool *pool, ct_ix x, ct_ix var, int64_t group) {
    return (void)group, !ct__ix_uses(pool, x, var);
}
bool ct__emit_undivided(ct_emit *e, ct_val v, const ct_ix *at, ct_ix var, int64_t group) {
    return holds_for_reads(e, v, at, is_undivided, var, group);
}
bool ct__emit_without(ct_emit *e, ct_val v, const ct_ix *at, ct_ix var) {
    return holds_for_reads(e, v, at, is_without, var, 0);
}

bool ct__emit_is_load(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype as) {
    const ct_sval *val = ct__sval(e->draft->sched, v);
    ct_map map;
    if (val->buf != UINT32_MAX) return ct__type(v)->dtype == as;
    return ct__is_view(v.node) && ct__emit_map(e, v.node, at, &map) && map.n_pieces == 1 &&
           map.piece[0].operand == 0 && map.piece[0].valid < 0 &&
           ct__emit_is_load(e, v.node->in[0], map.piece[0].from, as);
}

static bool widens(const ct_node *node) { // what has 16 bits
    const int from = ct__type(node->in[0])->dtype;
    return node->op->converts && node->out->dtype == CT_F32 && (from == CT_BF16 || from == CT_F16);
}

// The value in memory that v[at...] is an element of, and the number of the word there.
static bool place_of_word(ct_emit *e, ct_val v, const ct_ix *at, ct_val *in, ct_ix *word) {
    const ct_sval *val = ct__sval(e->draft->sched, v);
    const size_t bits = ct_dtype_bits((ct_dtype)ct__type(v)->dtype);
    ct_ix many = ct__ix_int(e->pool, bits ? (int64_t)(32 / bits) : 1);
    ct_map map;
    int64_t rest;
    if (val->buf == UINT32_MAX && widens(v.node))
        return place_of_word(e, v.node->in[0], at, in, word);
    if (val->buf == UINT32_MAX)
        return ct__is_view(v.node) && ct__emit_map(e, v.node, at, &map) && map.n_pieces == 1 &&
               map.piece[0].operand == 0 && map.piece[0].valid < 0 &&
               place_of_word(e, v.node->in[0], map.piece[0].from, in, word);
    ct_ix offset = ct__emit_offset(e, v, at);
    *in = v;
    *word = ct__ix_div(e->pool, offset, many);
    return bits && bits < 32 && val->offset % 4 == 0 &&
           ct__ix_is_int(e->pool, ct__ix_mod(e->pool, offset, many), &rest) && !rest;
}
bool ct__emit_has_word(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype *of) {
    ct_val in;
    ct_ix word;
    if (!place_of_word(e, v, at, &in, &word)) return false;
    *of = (ct_dtype)ct__type(in)->dtype;
    return true;
}
ct_kval ct__emit_word(ct_emit *e, ct_val v, const ct_ix *at) {
    ct_val in;
    ct_ix word;
    if (!place_of_word(e, v, at, &in, &word)) return -1;
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
