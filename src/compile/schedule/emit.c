// Writing one kernel: values by index substitution. See schedule.h for how it is used.
#include <string.h>

#include "compile/schedule/sched.h"
#include "ops/rules.h"

enum { DEEPEST = 512 }; // nested inlining; fusion keeps far below

// -------------------------------------------------------------------------------------------- life

static bool no_memory(ct_emit *e) {
    return ct__err_memory(e->sched->err, e->node ? e->node->here : CT_NOWHERE, "kernel",
                          sizeof(ct_kir));
}

static ct_kval declare_sym(ct_emit *e, int sym);

bool ct__emit_restart(ct_emit *e) {
    if (e->kir) ct__kir_free(e->kir);
    ct__free(e->kir);
    e->kir = ct__malloc(sizeof *e->kir);
    if (e->kir) ct__kir_init(e->kir); // at once: whatever fails below, it is freed
    ct__arena_reset(&e->arena);
    e->pool = ct__ix_new(&e->arena, e->sched->err);
    e->n_binds = e->n_memo = e->n_marks = e->n_args = e->n_syms = e->n_seen = 0;
    e->depth = 0;
    e->guard = CT_IX_NONE;
    e->bytes = e->flops = 0;
    if (!e->kir || !e->pool) return no_memory(e);
    for (int i = 0; i < (int)e->sched->n_syms; i++)
        if (e->sched->sym_parent[i] == i) declare_sym(e, i);
    return true;
}

ct_emit *ct__emit_new(ct_sched *s, const ct_node *node) {
    ct_emit *e = ct__calloc(1, sizeof *e);
    if (e) {
        e->sched = s;
        e->node = node;
        e->group = -1;
        if (node && node->op->kind == CT_KIND_CONTRACT) e->group = s->vals[node->index][0].group;
        if (ct__emit_restart(e)) return e;
    }
    ct__emit_free(e);
    ct__err_memory(s->err, node ? node->here : CT_NOWHERE, "kernel", sizeof *e);
    return NULL;
}

void ct__emit_free(ct_emit *e) {
    if (!e) return;
    if (e->kir) ct__kir_free(e->kir);
    ct__free(e->kir);
    ct__arena_free(&e->arena);
    ct__free(e->binds);
    ct__free(e->memo);
    ct__free(e->marks);
    ct__free(e->args);
    ct__free(e->arg_ids);
    ct__free(e->arg_types);
    ct__free(e->syms);
    ct__free(e->sym_values);
    ct__free(e->seen);
    ct__free(e);
}

// ----------------------------------------------------------------- sizes, loops, index expressions

ct_ix ct__emit_sized(ct_emit *e, ct_extent size) {
    ct_ix x = ct__ix_int(e->pool, size.coef);
    for (int i = 0; i < size.n; i++) x = ct__ix_mul(e->pool, x, ct__ix_sym(e->pool, size.sym[i]));
    return x;
}
ct_ix ct__emit_size(ct_emit *e, ct_val v, int axis) {
    return ct__emit_sized(e, ct__sched_size(e->sched, v, axis));
}

// An argument is declared before the loops, where it is not known yet which will be asked for: so
// all are, as ~sym, and those never used are taken back at the end.
static ct_kval declare_sym(ct_emit *e, int sym) {
    if (!CT_GROW(e->syms, e->syms_cap, e->n_syms + 1) ||
        !CT_GROW(e->sym_values, e->sym_values_cap, e->n_syms + 1))
        return no_memory(e) - 1;
    e->syms[e->n_syms] = ~sym;
    return e->sym_values[e->n_syms++] = ct__kir_arg(e->kir);
}
static ct_kval sym_value(ct_emit *e, int sym) {
    for (size_t i = 0; i < e->n_syms; i++)
        if (e->syms[i] == sym || e->syms[i] == ~sym) {
            e->syms[i] = sym;
            return e->sym_values[i];
        }
    ct_kval value = declare_sym(e, sym);
    if (value >= 0) e->syms[e->n_syms - 1] = sym;
    return value;
}

ct_ix ct__emit_bind(ct_emit *e, ct_kval value, ct_ix extent) {
    ct_ix var = ct__ix_var(e->pool, extent);
    ct__emit_bind_to(e, var, value);
    return var;
}
void ct__emit_bind_to(ct_emit *e, ct_ix var, ct_kval value) {
    for (size_t i = 0; i < e->n_binds; i++)
        if (e->binds[i].var == var) {
            e->binds[i].value = value;
            return;
        }
    if (!CT_GROW(e->binds, e->binds_cap, e->n_binds + 1)) {
        no_memory(e);
        return;
    }
    e->binds[e->n_binds++] = (ct_bind){var, value};
}

void ct__emit_open(ct_emit *e, ct_kbind bind, ct_ix extent, const char *name, ct_ix var) {
    ct_kval n = ct__emit_ix(e, extent);
    ct__emit_bind_to(e, var, ct__kir_loop(e->kir, bind, n, name));
    if (!CT_GROW(e->marks, e->marks_cap, e->n_marks + 1))
        no_memory(e);
    else
        e->marks[e->n_marks++] = e->n_memo;
}
ct_ix ct__emit_loop(ct_emit *e, ct_kbind bind, ct_ix extent, const char *name) {
    ct_ix var = ct__ix_var(e->pool, extent);
    ct__emit_open(e, bind, extent, name, var);
    return var;
}
void ct__emit_end(ct_emit *e) {
    ct__kir_end(e->kir);
    if (e->n_marks) e->n_memo = e->marks[--e->n_marks]; // values of the loop end with it
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

static ct_kval as_bool(ct_emit *e, ct_ix x) {
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
    return ct__ix_and(e->pool, guard_before(e, n.a, x), guard_before(e, n.b, x));
}

// Conditions come as bool, everything else as i64.
ct_kval ct__emit_ix(ct_emit *e, ct_ix x) {
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
        for (size_t i = 0; i < e->n_binds; i++)
            if (e->binds[i].var == x) return e->binds[i].value;
        return -1;
    case CT_IX_WITHIN: return ct__emit_ix(e, n.a);
    case CT_IX_PROD: return ct__kir_mul(k, ct__emit_ix(e, n.a), ct__emit_ix(e, n.b));
    case CT_IX_DIV: return ct__kir_div(k, ct__emit_ix(e, n.a), ct__emit_ix(e, n.b));
    case CT_IX_MOD: return ct__kir_mod(k, ct__emit_ix(e, n.a), ct__emit_ix(e, n.b));
    case CT_IX_MIN: return ct__kir_min(k, ct__emit_ix(e, n.a), ct__emit_ix(e, n.b));
    case CT_IX_MAX: return ct__kir_max(k, ct__emit_ix(e, n.a), ct__emit_ix(e, n.b));
    case CT_IX_LT: return ct__kir_lt(k, ct__emit_ix(e, n.a), ct__emit_ix(e, n.b));
    case CT_IX_EQ: return ct__kir_bin(k, CT_K_EQ, ct__emit_ix(e, n.a), ct__emit_ix(e, n.b));
    case CT_IX_AND: return ct__kir_bin(k, CT_K_AND, as_bool(e, n.a), as_bool(e, n.b));
    case CT_IX_NOT: return ct__kir_un(k, CT_K_NOT, as_bool(e, n.a));
    case CT_IX_SELECT:
        return ct__kir_select(k, as_bool(e, n.a), ct__emit_ix(e, n.b), ct__emit_ix(e, n.c));
    case CT_IX_LOAD: {
        ct_val v = {e->sched->graph->nodes[n.number >> 16], (uint32_t)(n.number & 0xffff)};
        ct_ix outer = e->guard;
        e->guard = guard_before(e, outer, x);
        ct_kval value = ct__emit_value(e, v, n.at, CT_I64);
        e->guard = outer;
        return value;
    }
    }
    return -1;
}

// ------------------------------------------------------------------------------------------ memory

static int parameter(ct_emit *e, uint32_t buf, size_t offset, ct_dtype dtype, int flags) {
    for (size_t i = 0; i < e->n_args; i++)
        if (e->args[i].buf == buf && e->args[i].offset == offset && e->arg_types[i] == dtype) {
            e->kir->bufs[e->arg_ids[i]].flags |= flags;
            e->args[i].write |= (flags & CT_KIR_WRITE) != 0;
            return e->arg_ids[i];
        }
    if (buf == UINT32_MAX || !CT_GROW(e->args, e->args_cap, e->n_args + 1) ||
        !CT_GROW(e->arg_ids, e->arg_ids_cap, e->n_args + 1) ||
        !CT_GROW(e->arg_types, e->arg_types_cap, e->n_args + 1))
        return no_memory(e) - 1;
    int id = ct__kir_buffer(e->kir, dtype, flags);
    if (id < 0) return -1; // the kernel keeps the error
    e->args[e->n_args] =
        (ct_arg){.buf = buf, .offset = offset, .write = (flags & CT_KIR_WRITE) != 0};
    e->arg_ids[e->n_args] = id;
    e->arg_types[e->n_args++] = dtype;
    return id;
}
int ct__emit_result_buffer(ct_emit *e, ct_val v, int flags) {
    const ct_sval *val = ct__sval(e->sched, v);
    return parameter(e, val->buf, val->offset, (ct_dtype)ct__type(v)->dtype, flags);
}

// For the choice of loops: every place that is read or written, with what it hangs on.
static void see(ct_emit *e, ct_ix offset, bool write, uint32_t buf) {
    if (!CT_GROW(e->seen, e->seen_cap, e->n_seen + 1)) {
        no_memory(e);
        return;
    }
    e->seen[e->n_seen++] = (ct_seen){offset, e->guard, write, buf};
}

ct_kval ct__emit_load_at(ct_emit *e, uint32_t buf, size_t bytes, ct_dtype dtype, ct_ix offset) {
    see(e, offset, false, buf);
    int id = parameter(e, buf, bytes, dtype, CT_KIR_READ);
    if (e->guard < 0) return ct__kir_load(e->kir, id, ct__emit_ix(e, offset));
    return ct__kir_load_if(e->kir, id, ct__emit_ix(e, offset), as_bool(e, e->guard));
}
void ct__emit_store_at(ct_emit *e, uint32_t buf, size_t bytes, ct_dtype dtype, ct_ix offset,
                       ct_kval value) {
    see(e, offset, true, buf);
    int id = parameter(e, buf, bytes, dtype, CT_KIR_WRITE);
    ct__kir_store(e->kir, id, ct__emit_ix(e, offset), value);
}

ct_ix ct__emit_offset(ct_emit *e, ct_val v, const ct_ix *at) {
    ct_ix offset = ct__ix_int(e->pool, 0);
    for (int a = 0; a < ct__type(v)->rank; a++)
        offset = ct__ix_add(e->pool, ct__ix_mul(e->pool, offset, ct__emit_size(e, v, a)), at[a]);
    return ct__ix_bare(e->pool, offset);
}

static ct_kval load_as(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype dtype) {
    const ct_sval *val = ct__sval(e->sched, v);
    if (ct__is_leaf(v.node) && !ct__sched_place_leaf(e->sched, v.node)) return -1;
    return ct__emit_load_at(e, val->buf, val->offset, dtype, ct__emit_offset(e, v, at));
}

static void store_one(ct_emit *e, ct_val v, const ct_ix *at, ct_kval value) {
    const ct_sval *val = ct__sval(e->sched, v);
    const ct_type *t = ct__type(v);
    for (int a = 0; a < t->rank; a++) // no element, whose place would not even move with the lanes
        if (t->dim[a] == 0 && !ct__is_dyn(t, a)) return;
    ct__emit_store_at(e, val->buf, val->offset, (ct_dtype)ct__type(v)->dtype,
                      ct__emit_offset(e, v, at), value);
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
    if (ct__sval(e->sched, v)->stored) store_one(e, v, at, value);
    for (size_t i = 0; i < g->n_units; i++) store_one(e, g->units[i].v, at, made[i]);
}

void ct__emit_store(ct_emit *e, ct_val v, const ct_ix *at, ct_kval value) {
    const ct_group *g = e->group >= 0 ? e->sched->groups[e->group] : NULL;
    if (g && g->only == v.node && g->n_units)
        store_behind(e, g, v, at, value);
    else
        store_one(e, v, at, value);
}

// ------------------------------------------------------------------------------------------ values

void ct__emit_remember(ct_emit *e, ct_val v, const ct_ix *at, ct_kval value) {
    size_t bytes = ct__type(v)->rank * sizeof *at;
    ct_ix *own = ct__arena(&e->arena, bytes);
    if (!own || !CT_GROW(e->memo, e->memo_cap, e->n_memo + 1)) {
        no_memory(e);
        return;
    }
    if (bytes) memcpy(own, at, bytes);
    e->memo[e->n_memo++] = (ct_memo){v, e->guard, own, value};
}
static ct_kval recall(const ct_emit *e, ct_val v, const ct_ix *at) {
    size_t bytes = ct__type(v)->rank * sizeof *at;
    for (size_t i = e->n_memo; i-- > 0;) {
        const ct_memo *m = &e->memo[i];
        // A value without condition serves where there is one.
        if (m->v.node == v.node && m->v.out == v.out && (m->guard == e->guard || m->guard < 0) &&
            (bytes == 0 || memcmp(m->at, at, bytes) == 0))
            return m->value;
    }
    return -1;
}

bool ct__emit_recalls(const ct_emit *e, ct_val v, const ct_ix *at) { return recall(e, v, at) >= 0; }

ct_kval ct__cast_from(ct_emit *e, ct_kval v, ct_dtype from, ct_dtype to) {
    if (from == to || v < 0) return v;
    return ct__kir_cast(e->kir, v, to);
}

// The index in an operand that broadcasts to the node's shape.
void ct__broadcast_ix(ct_emit *e, ct_val v, int rank, const ct_ix *at, ct_ix *own) {
    const ct_type *t = ct__type(v);
    for (int a = 0; a < t->rank; a++)
        own[a] = ct__is_one(t, a) ? ct__ix_int(e->pool, 0) : at[rank - t->rank + a];
}

static ct_kval elementwise(ct_emit *e, const ct_node *node, const ct_ix *at) {
    ct_dtype compute = ct__compute_dtype(node), out = (ct_dtype)node->out->dtype;
    ct_kval few[4], *x = few;
    ct_ix own[CT_MAX_RANK];
    if (node->n_in > 4) x = ct__arena(&e->arena, node->n_in * sizeof *x);
    if (!x) return no_memory(e) - 1;
    if (ct__reads_memory(node)) {
        ct__broadcast_ix(e, node->in[0], node->out->rank, at, own);
        return load_as(e, node->in[0], own, out);
    }
    for (int i = 0; i < node->n_in; i++) {
        ct__broadcast_ix(e, node->in[i], node->out->rank, at, own);
        bool condition = i == 0 && node->op->condition;
        x[i] = ct__emit_value(e, node->in[i], own, condition ? CT_BOOL : compute);
    }
    e->flops++;
    return rounded(e, node->op->emit(&(ct_elem){e->kir, node, x, compute}), out);
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
    return ct__sched_attr(e->sched, map->pool, where);
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
                piece->from[a] = ct__ix_within(e->pool, piece->from[a], ct__emit_size(e, v, a));
        }
        return true;
    }
    return ct__err(e->sched->err, CT_E_INTERNAL, node->here, node->op->name,
                   "it does not say where its elements come from");
}

static ct_kval moved(ct_emit *e, const ct_node *node, const ct_ix *at) {
    ct_map map;
    ct_dtype dtype = (ct_dtype)node->out->dtype;
    if (!ct__emit_map(e, node, at, &map)) return -1;
    if (map.value >= 0) return ct__cast_from(e, ct__emit_ix(e, map.value), CT_I64, dtype);
    ct_ix outer = e->guard, before = CT_IX_NONE; // the condition that no earlier piece held
    ct_kval value[CT_MAP_PIECES];
    int n = 0;
    for (; n < map.n_pieces; n++) {
        const ct_map_piece *piece = &map.piece[n];
        int64_t never;
        value[n] = -1;
        if (piece->valid >= 0 && ct__ix_is_int(e->pool, piece->valid, &never) && !never) continue;
        e->guard = ct__ix_and(e->pool, outer, ct__ix_and(e->pool, before, piece->valid));
        value[n] = piece->operand < 0
                       ? ct__kir_const(e->kir, dtype, piece->fill)
                       : ct__emit_value(e, node->in[piece->operand], piece->from, dtype);
        e->guard = outer;
        if (piece->valid < 0 || (ct__ix_is_int(e->pool, piece->valid, &never) && never)) {
            n++;
            break;
        }
        before = ct__ix_and(e->pool, before, ct__ix_not(e->pool, piece->valid));
    }
    ct_kval r = -1;
    for (int i = n - 1; i >= 0; i--) {
        if (value[i] < 0) continue;
        r = r < 0 ? value[i] : ct__kir_select(e->kir, as_bool(e, map.piece[i].valid), value[i], r);
    }
    return r;
}

static ct_kval constant(ct_emit *e, const ct_node *node) {
    const ct_data_bytes *data = node->attrs;
    ct_dtype dtype = (ct_dtype)node->out->dtype;
    if (ct__is_float(dtype))
        return ct__kir_const(e->kir, dtype, ct__load_f64(dtype, data->bytes, 0));
    return ct__kir_const_int(e->kir, dtype, ct__load_i64(dtype, data->bytes, 0));
}

static ct_kval computed(ct_emit *e, ct_val v, const ct_ix *at) {
    const ct_node *node = v.node;
    const ct_sval *val = ct__sval(e->sched, v);
    ct_dtype dtype = (ct_dtype)ct__type(v)->dtype;
    if (node->op == &ct__op_const && ct__count(node->out) == 1) return constant(e, node);
    if (node->op == &ct__op_scalar) // each place of the scalars is a parameter of its own
        return ct__emit_load_at(e, val->buf, val->offset, dtype, ct__ix_int(e->pool, 0));
    if (val->buf != UINT32_MAX && (val->group < 0 || val->group != e->group))
        return load_as(e, v, at, dtype);
    if (node->op->map) return moved(e, node, at);
    switch (node->op->kind) {
    case CT_KIND_ELEMENTWISE: return elementwise(e, node, at);
    case CT_KIND_REDUCE: return ct__emit_reduce_here(e, v, at);
    default:
        if (!e->kir->err.code) // else what was made of it is not known for want of memory
            ct__err(e->sched->err, CT_E_INTERNAL, node->here, node->op->name,
                    "its value is used before it has a place");
        return -1;
    }
}

ct_kval ct__emit_value(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype as) {
    // After an error nothing is recalled: walking on would visit shared values again and again.
    if (e->kir->err.code || e->sched->err->code) return -1;
    ct_dtype dtype = (ct_dtype)ct__type(v)->dtype;
    ct_kval r = recall(e, v, at);
    if (r < 0) {
        if (++e->depth > DEEPEST) {
            ct__err(e->sched->err, CT_E_INTERNAL, v.node->here, v.node->op->name,
                    "more than %d values are nested in one kernel", DEEPEST);
            return -1;
        }
        r = computed(e, v, at);
        e->depth--;
        ct__emit_remember(e, v, at, r);
    }
    return as == CT_DEFAULT ? r : ct__cast_from(e, r, dtype, as);
}

ct_kval ct__emit_value_apart(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype as) {
    size_t known = e->n_memo;
    ct_kval r = ct__emit_value(e, v, at, as);
    e->n_memo = known;
    return r;
}
void ct__emit_store_apart(ct_emit *e, ct_val v, const ct_ix *at, ct_kval value) {
    size_t known = e->n_memo;
    ct__emit_store(e, v, at, value);
    e->n_memo = known;
}

bool ct__emit_contiguous(ct_emit *e, ct_val v, const ct_ix *at, ct_ix var) {
    const ct_sval *val = ct__sval(e->sched, v);
    ct_ix stride;
    int64_t n;
    if (val->buf != UINT32_MAX)
        return ct__ix_stride(e->pool, ct__emit_offset(e, v, at), var, &stride) &&
               ct__ix_is_int(e->pool, stride, &n) && n == 1;
    ct_ix own[CT_MAX_RANK];
    ct_map map;
    switch (v.node->op->kind) {
    case CT_KIND_MOVEMENT:
        return ct__emit_map(e, v.node, at, &map) && map.n_pieces > 0 && map.piece[0].operand >= 0 &&
               ct__emit_contiguous(e, v.node->in[map.piece[0].operand], map.piece[0].from, var);
    case CT_KIND_ELEMENTWISE: // the widest operand decides
        for (int i = 0; i < v.node->n_in; i++) {
            ct__broadcast_ix(e, v.node->in[i], v.node->out->rank, at, own);
            if (ct__emit_contiguous(e, v.node->in[i], own, var)) return true;
        }
        return false;
    default: return false;
    }
}

void ct__unflatten_ix(ct_ix_pool *p, ct_ix flat, const ct_ix *size, int n, ct_ix *at) {
    for (int i = n - 1; i > 0; i--) {
        at[i] = ct__ix_mod(p, flat, size[i]);
        flat = ct__ix_div(p, flat, size[i]);
    }
    if (n > 0) at[0] = flat;
}
