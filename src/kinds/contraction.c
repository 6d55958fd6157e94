// Sums of products over axes that two operands share. The kernel is the matrix template with the
// graph's values as operands and result: axes of one role are one axis of it, in row-major order.
#include "kinds/contraction.h"

#include <math.h>
#include <string.h>

#include "graph/symbols.h"
#include "kinds/batch.h"
#include "kinds/emit.h"
#include "kinds/matmul.h"

enum { A, B, OUT };
enum { GRAIN = 64 }; // dot products that are worth a task

static ct_contraction roles_of(const ct_node *node) {
    ct_contraction is = {0};
    node->op->contraction(node, &is);
    return is;
}
static double inner_count(const ct_node *node) {
    const ct_contraction is = roles_of(node);
    double n = 1;
    for (int i = 0; i < is.inner.n; i++) n *= (double)ct__type(node->in[A])->dim[is.inner.of[A][i]];
    return n;
}

// ----------------------------------------------------------------------------------------- kernels

typedef struct contract {
    ct_emit *e;
    ct_val value[3]; // operands, result
    ct_dtype dtype;
    ct_contraction is;
    int n_batch; // axes of the template: those of the role, or all of them as one
    ct_ix batch[CT_MAX_RANK], rows, columns, inner; // sizes of the template
    int column_tail, inner_tail; // axes of the role that are the template's last one
    int result_tail;             // of the columns, as the result has them
    bool tiles;                  // it is the template of matrices
    ct_matmul_windows windows;   // what rows are; no channels: not known
} contract;
typedef struct side {
    contract *c;
    int which; // operand
} side;

// The size of a role, as attributes hold it, of an operand that has all of its axes.
static int64_t role_size(const contract *c, const ct_role *role, int which) {
    int64_t n = 1;
    for (int i = 0; i < role->n; i++)
        n = ct__size_mul(n, ct__size_of(ct__type(c->value[which]), role->of[which][i]));
    return n;
}

static ct_ix axis_size(const contract *c, const ct_role *role, int i) {
    const int which = role->of[OUT][i] < 0 ? A : OUT;
    return ct__emit_size(c->e, c->value[which], role->of[which][i]);
}
static ct_ix joined_size(const contract *c, const ct_role *role) {
    ct_ix n = ct__ix_int(c->e->pool, 1);
    for (int i = 0; i < role->n; i++) n = ct__ix_mul(c->e->pool, n, axis_size(c, role, i));
    return n;
}

// Puts the place along each axis of a role into the index of an operand or the result.
static void put(const contract *c, const ct_role *role, int which, const ct_ix *at, ct_ix *to) {
    const ct_type *type = ct__type(c->value[which]), *out = ct__type(c->value[OUT]);
    for (int i = 0; i < role->n; i++) {
        const int axis = role->of[which][i], own = role->of[OUT][i];
        if (axis < 0 || (type->dim[axis] == 1 && own >= 0 && out->dim[own] != 1)) continue;
        to[axis] = at[i];
    }
}
static void put_joined(const contract *c, const ct_role *role, int which, ct_ix at, ct_ix *to) {
    ct_ix size[CT_MAX_RANK], each[CT_MAX_RANK];
    for (int i = 0; i < role->n; i++) size[i] = axis_size(c, role, i);
    ct__unflatten_ix(c->e->pool, at, size, role->n, each);
    put(c, role, which, each, to);
}

// A role as the template has it: axes of its own, and the last `tail` of them as one.
typedef struct spread {
    const ct_role *role;
    int tail;
} spread;
static int axes_of(const spread *x) { return x->role->n > x->tail ? x->role->n - x->tail + 1 : 1; }
static ct_ix spread_size(const contract *c, const spread *x, int i) {
    ct_role part = *x->role;
    const int own = part.n - x->tail;
    if (i < own) return axis_size(c, x->role, i);
    part.n = 0;
    for (int k = own < 0 ? 0 : own; k < x->role->n; k++)
        ct__role_add(&part, x->role->of[A][k], x->role->of[B][k], x->role->of[OUT][k]);
    return joined_size(c, &part);
}
static void put_spread(const contract *c, const spread *x, int which, const ct_ix *at, ct_ix *to) {
    ct_ix size[CT_MAX_RANK], each[CT_MAX_RANK];
    const int n = x->role->n, own = axes_of(x) - 1;
    for (int i = 0; i < own; i++) each[i] = at[i];
    for (int i = own; i < n; i++) size[i] = axis_size(c, x->role, i);
    ct__unflatten_ix(c->e->pool, at[own], size + own, n - own, each + own);
    put(c, x->role, which, each, to);
}

// The two roles of an operand or the result, in the order of the template's positions.
static void roles_at(const contract *c, int which, spread two[2]) {
    const int tail = which == OUT ? c->result_tail : c->column_tail;
    const spread rows = {&c->is.rows, c->is.rows.n}, columns = {&c->is.columns, tail},
                 inner = {&c->is.inner, c->inner_tail};
    two[0] = which == B ? inner : rows;
    two[1] = which == A ? inner : columns;
}

// The index of an element at the template's positions: batch, then (row, k), (k, column) or (row,
// column), of which k and column may be several.
static void place(const contract *c, int which, const ct_ix *at, ct_ix *to) {
    spread two[2];
    roles_at(c, which, two);
    for (int a = 0; a < ct__type(c->value[which])->rank; a++) to[a] = ct__ix_int(c->e->pool, 0);
    if (c->n_batch == c->is.batch.n)
        put(c, &c->is.batch, which, at, to);
    else
        put_joined(c, &c->is.batch, which, at[0], to);
    put_spread(c, &two[0], which, at + c->n_batch, to);
    put_spread(c, &two[1], which, at + c->n_batch + axes_of(&two[0]), to);
}

// The sizes of all positions of an operand or the result; how many there are.
static int position_sizes(const contract *c, int which, ct_ix *size) {
    spread two[2];
    int n = 0;
    roles_at(c, which, two);
    for (; n < c->n_batch; n++) size[n] = c->batch[n];
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < axes_of(&two[r]); i++) size[n++] = spread_size(c, &two[r], i);
    return n;
}

// The same of positions as values of the kernel.
static void bound(const contract *c, int which, const ct_kval *at, ct_ix *to) {
    ct_ix size[CT_MAX_RANK + 2], own[CT_MAX_RANK + 2];
    const int n = position_sizes(c, which, size);
    for (int i = 0; i < n; i++) own[i] = ct__emit_bind(c->e, at[i], size[i]);
    place(c, which, own, to);
}

static ct_kval value(void *env, ct_kir *k, const ct_kval *at) {
    (void)k;
    const side *s = env;
    ct_ix index[CT_MAX_RANK];
    bound(s->c, s->which, at, index);
    return ct__emit_value_apart(s->c->e, s->c->value[s->which], index, s->c->dtype);
}

static void store(void *env, ct_kir *k, const ct_kval *at, ct_kval v) {
    (void)k;
    const contract *c = env;
    ct_ix index[CT_MAX_RANK];
    bound(c, OUT, at, index);
    ct__emit_store_apart(c->e, c->value[OUT], index, v);
}

// Index variables at all positions of an operand or the result, and its index there; how many.
static int at_variables(const contract *c, int which, ct_ix *var, ct_ix *index) {
    ct_ix size[CT_MAX_RANK + 2];
    const int n = position_sizes(c, which, size);
    for (int i = 0; i < n; i++) var[i] = ct__ix_var(c->e->pool, size[i]);
    place(c, which, var, index);
    return n;
}

// Along which of the operand's positions memory is contiguous, the last ones first; -1: none.
static int contiguous(const contract *c, int which) {
    ct_ix var[CT_MAX_RANK + 2], index[CT_MAX_RANK];
    spread two[2];
    roles_at(c, which, two);
    const int n = at_variables(c, which, var, index), first = c->n_batch + axes_of(&two[0]) - 1;
    if (ct__emit_contiguous(c->e, c->value[which], index, var[n - 1])) return n - 1;
    return ct__emit_contiguous(c->e, c->value[which], index, var[first]) ? first : -1;
}

// Elements of memory between neighbours of a along that of its last two positions that is not
// contiguous.
static int64_t step_of_a(const contract *c) {
    ct_ix var[CT_MAX_RANK + 2], index[CT_MAX_RANK];
    const int n = at_variables(c, A, var, index);
    const int other = contiguous(c, A) == n - 1 ? n - 2 : n - 1;
    return other < 0 ? 0 : ct__emit_stride(c->e, c->value[A], index, var[other]);
}

static bool is_load(const contract *c, int which) {
    ct_ix var[CT_MAX_RANK + 2], index[CT_MAX_RANK];
    at_variables(c, which, var, index);
    return ct__emit_is_load(c->e, c->value[which], index, c->dtype);
}

// An operand's positions where that along which memory is contiguous counts pairs.
static void of_pairs(const contract *c, int which, ct_ix *at) {
    const int along = contiguous(c, which);
    if (along < 0) return; // there is no memory to ask with: what is being built is dropped
    at[along] = ct__ix_mul(c->e->pool, at[along], ct__ix_int(c->e->pool, 2));
}

static bool has_pairs(const contract *c, int which, ct_dtype *of) {
    ct_ix var[CT_MAX_RANK + 2], index[CT_MAX_RANK];
    if (c->dtype != CT_F32 || contiguous(c, which) < 0) return false;
    at_variables(c, which, var, index);
    of_pairs(c, which, var);
    place(c, which, var, index);
    return ct__emit_has_word(c->e, c->value[which], index, of) && (*of == CT_BF16 || *of == CT_F16);
}

static ct_kval pair(void *env, ct_kir *k, const ct_kval *at) {
    (void)k;
    const side *s = env;
    const contract *c = s->c;
    ct_ix size[CT_MAX_RANK + 2], own[CT_MAX_RANK + 2], index[CT_MAX_RANK];
    const int n = position_sizes(c, s->which, size);
    for (int i = 0; i < n; i++) own[i] = ct__emit_bind(c->e, at[i], size[i]);
    of_pairs(c, s->which, own);
    place(c, s->which, own, index);
    return ct__emit_word(c->e, c->value[s->which], index);
}

// ------------------------------------------------------------------- two steps of k of bf16 as one

static int place_of_k(const contract *c, int which) { return c->n_batch + (which == A ? 1 : 0); }

// Can the operand's elements be read two steps of k at a time: words of memory, or rows of it at once?
static bool comes_in_pairs(const contract *c, int which) {
    const int along = contiguous(c, which);
    ct_dtype of;
    return ct__type(c->value[which])->dtype == CT_BF16 && along >= 0 &&
           (along != place_of_k(c, which) || has_pairs(c, which, &of));
}

// Where processors have an instruction for pairs of bf16 a step of the template is a pair. Convolutions,
// whose axes are several, and odd lengths go one by one: the same chain.
static bool in_pairs(const contract *c) {
    const int64_t inner = role_size(c, &c->is.inner, A);
    const bool plain = c->is.rows.n && c->is.columns.n && !c->windows.channels;
    return c->e->target.pairs && c->tiles && plain && c->inner_tail == c->is.inner.n &&
           c->column_tail == c->is.columns.n && c->result_tail == c->is.columns.n &&
           !ct__marked(inner) && inner > 0 && inner % 2 == 0 && comes_in_pairs(c, A) &&
           comes_in_pairs(c, B);
}

// Two elements, the position along k being a pair's: the first in the high half.
static ct_kval two_steps(void *env, ct_kir *k, const ct_kval *at) {
    const side *s = env;
    const contract *c = s->c;
    ct_kval half = ct__kir_const_int(k, CT_U32, 16);
    if (contiguous(c, s->which) == place_of_k(c, s->which)) {
        ct_kval word = pair(env, k, at);
        return ct__kir_bin(k, CT_K_OR, ct__kir_bin(k, CT_K_SHL, word, half),
                           ct__kir_bin(k, CT_K_SHR, word, half));
    }
    ct_kval own[CT_MAX_RANK + 2], two[2];
    ct_ix size[CT_MAX_RANK + 2];
    const int n = position_sizes(c, s->which, size), of_k = place_of_k(c, s->which);
    for (int i = 0; i < 2; i++) {
        memcpy(own, at, sizeof *at * (size_t)n);
        own[of_k] = ct__kir_addi(k, ct__kir_muli(k, at[of_k], 2), i);
        two[i] = ct__kir_bitcast(k, value(env, k, own), CT_U32);
    }
    return ct__kir_bin(k, CT_K_OR, two[0], ct__kir_bin(k, CT_K_SHR, two[1], half));
}

// Is the second operand read in one line of memory along all columns? A tile has more than 16 of them.
static bool is_line(const contract *c) {
    ct_ix var[CT_MAX_RANK + 2], index[CT_MAX_RANK];
    const int n = at_variables(c, B, var, index);
    return is_load(c, B) && ct__emit_undivided(c->e, c->value[B], index, var[n - 1], 0);
}

// Is `var` crossed without a division? What is computed behind the result lies as the result would.
static bool undivided(const contract *c, int which, const ct_ix *index, ct_ix var, int64_t group) {
    ct_ix_pool *pool = c->e->pool;
    ct_ix flat = ct__ix_int(pool, 0);
    if (which != OUT) return ct__emit_undivided(c->e, c->value[which], index, var, group);
    for (int a = 0; a < ct__type(c->value[OUT])->rank; a++) {
        flat = ct__ix_mul(pool, flat, ct__emit_size(c->e, c->value[OUT], a));
        flat = ct__ix_add(pool, flat, index[a]);
    }
    return !ct__ix_divides(pool, flat, var, group);
}

// How many axes of a role are one to the template: as many of the last as both that have them are read
// along without a division. x: its last position.
static void tail_of(contract *c, const ct_role *role, int *tail, const int which[2]) {
    for (*tail = role->n; *tail > 1; --*tail) {
        bool fine = true;
        for (int i = 0; i < 2 && fine; i++) {
            ct_ix var[CT_MAX_RANK + 2], index[CT_MAX_RANK];
            spread two[2];
            roles_at(c, which[i], two);
            const int n = at_variables(c, which[i], var, index);
            const int last = two[0].role == role ? c->n_batch + axes_of(&two[0]) - 1 : n - 1;
            // Runs of a part of the axes begin anywhere, so that no group of lanes is aligned.
            fine = undivided(c, which[i], index, var[last], *tail == role->n ? CT_LANES : 0);
        }
        if (fine) return;
    }
}

// The operands change places: the other's rows are its columns.
static void exchange(contract *c) {
    const ct_role rows = c->is.rows;
    ct_role *const all[] = {&c->is.batch, &c->is.rows, &c->is.columns, &c->is.inner};
    const ct_val a = c->value[A];
    c->value[A] = c->value[B];
    c->value[B] = a;
    c->is.rows = c->is.columns;
    c->is.columns = rows;
    for (int r = 0; r < 4; r++) {
        int8_t own[CT_MAX_RANK];
        memcpy(own, all[r]->of[A], sizeof own);
        memcpy(all[r]->of[A], all[r]->of[B], sizeof own);
        memcpy(all[r]->of[B], own, sizeof own);
    }
}
// A second operand without batch: all axes of the result but its columns are rows.
static void batch_to_rows(contract *c) {
    const ct_role *batch = &c->is.batch, *rows = &c->is.rows;
    const ct_type *b = ct__type(c->value[B]);
    ct_role all = *batch;
    for (int i = 0; i < batch->n; i++)
        if (batch->of[B][i] >= 0 && !ct__is_one(b, batch->of[B][i])) return;
    for (int i = 0; i < rows->n; i++)
        ct__role_add(&all, rows->of[A][i], rows->of[B][i], rows->of[OUT][i]);
    c->is.rows = all;
    c->is.batch.n = 0;
}

// What the first operand has no part in is more columns, so that it is packed once for all: images of a
// convolution.
static void batch_to_columns(contract *c) {
    ct_role batch = {0}, columns = {0};
    ct_ix var[CT_MAX_RANK + 2], index[CT_MAX_RANK];
    const ct_role old = c->is.batch;
    if (c->n_batch != old.n || !c->is.columns.n) return;
    at_variables(c, A, var, index);
    for (int i = 0; i < old.n; i++)
        ct__role_add(ct__emit_without(c->e, c->value[A], index, var[i]) ? &columns : &batch,
                     old.of[A][i], old.of[B][i], old.of[OUT][i]);
    for (int i = 0; i < c->is.columns.n; i++)
        ct__role_add(&columns, c->is.columns.of[A][i], c->is.columns.of[B][i],
                     c->is.columns.of[OUT][i]);
    c->is.batch = batch;
    c->is.columns = columns;
}

// The template's kernel for integers, which wrap, so that the order of their sums is free: a task is a
// row, and vectors run along what is contiguous in b.
static void whole_numbers(ct_kir *k, const ct_matmul_spec *s) {
    const int n = s->n_batch;
    const bool along_k = s->b.along == n;
    ct_kval size[CT_MAX_RANK], at[CT_MAX_RANK], of_a[CT_MAX_RANK], of_b[CT_MAX_RANK];
    ct_kval all = s->rows;
    for (int i = 0; i < n; i++) size[i] = s->batch[i], all = ct__kir_mul(k, all, size[i]);
    size[n] = s->rows;
    ct__unflatten(k, ct__kir_loop(k, CT_BIND_ROWS, all, "row"), n + 1, size, at);
    const ct_kbind of_column = along_k ? CT_BIND_SEQ : CT_BIND_LANES;
    at[n + 1] = ct__kir_loop(k, of_column, s->columns, "column");
    ct_kval kk = ct__kir_loop(k, along_k ? CT_BIND_LANES : CT_BIND_SEQ, s->inner, "k");
    memcpy(of_a, at, sizeof *at * (size_t)n);
    memcpy(of_b, at, sizeof *at * (size_t)n);
    of_a[n] = at[n];
    of_a[n + 1] = of_b[n] = kk;
    of_b[n + 1] = at[n + 1];
    ct_kval x = ct__source_load(k, &s->a, n + 2, of_a), y = ct__source_load(k, &s->b, n + 2, of_b);
    ct_kval sum = ct__kir_reduce(k, CT_RED_ADD, ct__kir_mul(k, x, y));
    ct__kir_end(k);
    ct__sink_store(k, &s->c, n + 2, at, sum);
    ct__kir_end(k);
    ct__kir_end(k);
}

// The chunk's sum put to those before it.
static void add_chunk(ct_kir *k, ct_kval total, ct_kval chunk, ct_kval own) {
    ct_kval first = ct__kir_bin(k, CT_K_EQ, chunk, ct__kir_int(k, 0));
    ct_kval both = ct__kir_add(k, ct__kir_get(k, total), own);
    ct__kir_set(k, total, ct__kir_select(k, first, own, both));
}

// Of a long dot product of floats 16 chunks are summed side by side, each in its own order. Puts them to
// the total; gives how many there were.
static ct_kval many_chunks(ct_kir *k, const ct_matmul_spec *s, ct_kval *of_a, ct_kval *of_b,
                           ct_kval total) {
    enum { MANY = CT_LANES * CT_DOT_CHUNK };
    const int n = s->n_batch, sums = ct__kir_local(k, s->dtype, CT_LANES);
    ct_kval x[CT_LANES], y[CT_LANES], groups = ct__kir_div(k, s->inner, ct__kir_int(k, MANY));
    ct_kval group = ct__kir_loop(k, CT_BIND_SEQ, groups, "16 chunks");
    ct_kval c = ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "chunk");
    ct_kval part = ct__kir_reg(k, ct__kir_const(k, s->dtype, 0));
    ct_kval steps = ct__kir_loop_n(k, CT_BIND_SEQ, CT_DOT_CHUNK / CT_LANES, "16 steps of k");
    ct_kval from = ct__kir_add(k, ct__kir_muli(k, group, MANY), ct__kir_muli(k, steps, CT_LANES));
    from = ct__kir_add(k, from, ct__kir_muli(k, c, CT_DOT_CHUNK));
    for (int i = 0; i < CT_LANES; i++) {
        of_a[n + 1] = ct__kir_addi(k, from, i);
        x[i] = ct__source_load(k, &s->a, n + 2, of_a);
    }
    for (int i = 0; i < CT_LANES; i++) {
        of_b[n] = ct__kir_addi(k, from, i);
        y[i] = ct__source_load(k, &s->b, n + 2, of_b);
    }
    for (int i = 0; i < CT_LANES; i++)
        ct__kir_set(k, part, ct__kir_fma(k, x[i], y[i], ct__kir_get(k, part)));
    ct__kir_end(k);
    ct__kir_store(k, sums, c, ct__kir_get(k, part));
    ct__kir_end(k);
    c = ct__kir_loop_n(k, CT_BIND_SEQ, CT_LANES, "sum of a chunk");
    ct_kval chunk = ct__kir_add(k, ct__kir_muli(k, group, CT_LANES), c);
    add_chunk(k, total, chunk, ct__kir_load(k, sums, c));
    ct__kir_end(k);
    ct__kir_end(k);
    return ct__kir_muli(k, groups, CT_LANES);
}

// The sum of products of one row and one column, by chunks as the template makes it. few: too few dot
// products for lanes to run along them.
static ct_kval dot_product(ct_kir *k, const ct_matmul_spec *s, const ct_kval *batch, bool few) {
    const int n = s->n_batch;
    ct_kval of_a[CT_MAX_RANK], of_b[CT_MAX_RANK], none = ct__kir_int(k, 0);
    for (int i = 0; i < n; i++) of_a[i] = of_b[i] = batch[i];
    of_a[n] = batch[n];
    of_b[n + 1] = none;
    ct_kval zero =
        ct__is_float(s->dtype) ? ct__kir_const(k, s->dtype, 0) : ct__kir_const_int(k, s->dtype, 0);
    ct_kval total = ct__kir_reg(k, zero), most = ct__kir_int(k, CT_DOT_CHUNK), done = none;
    if (few && ct__is_float(s->dtype)) done = many_chunks(k, s, of_a, of_b, total);
    ct_kval rest = ct__kir_sub(k, ct__kir_ceil_div(k, s->inner, CT_DOT_CHUNK), done);
    ct_kval chunk = ct__kir_add(k, done, ct__kir_loop(k, CT_BIND_SEQ, rest, "chunk"));
    ct_kval from = ct__kir_muli(k, chunk, CT_DOT_CHUNK), part = ct__kir_reg(k, zero);
    ct_kval step =
        ct__kir_loop(k, CT_BIND_SEQ, ct__kir_min(k, ct__kir_sub(k, s->inner, from), most), "k");
    of_a[n + 1] = of_b[n] = ct__kir_add(k, from, step);
    ct_kval x = ct__source_load(k, &s->a, n + 2, of_a), y = ct__source_load(k, &s->b, n + 2, of_b);
    ct_kval sum = ct__kir_get(k, part);
    ct__kir_set(k, part,
                ct__is_float(s->dtype) ? ct__kir_fma(k, x, y, sum)
                                       : ct__kir_add(k, sum, ct__kir_mul(k, x, y)));
    ct__kir_end(k);
    add_chunk(k, total, chunk, ct__kir_get(k, part));
    ct__kir_end(k);
    return ct__kir_get(k, total);
}
// Without axes of its own neither operand has rows that lanes could share: they run along the batch.
static void dot_products(ct_kir *k, const ct_matmul_spec *s) {
    const int n = s->n_batch;
    ct_kval size[CT_MAX_RANK], at[CT_MAX_RANK], all = s->rows;
    int64_t count = 0;
    for (int i = 0; i < n; i++) size[i] = s->batch[i], all = ct__kir_mul(k, all, size[i]);
    size[n] = s->rows;
    const bool few = ct__kir_is_int(k, all, &count) && count < CT_LANES;
    const int64_t grain = few ? 1 : GRAIN;
    ct_kval block = ct__kir_loop(k, CT_BIND_ROWS, ct__kir_ceil_div(k, all, grain), "block");
    ct_kval from = ct__kir_muli(k, block, grain);
    ct_kval here = ct__kir_min(k, ct__kir_sub(k, all, from), ct__kir_int(k, grain));
    ct_kval i = ct__kir_loop(k, few ? CT_BIND_SEQ : CT_BIND_LANES, here, "dot product");
    ct__unflatten(k, ct__kir_add(k, from, i), n + 1, size, at);
    at[n + 1] = ct__kir_int(k, 0);
    ct__sink_store(k, &s->c, n + 2, at, dot_product(k, s, at, few));
    ct__kir_end(k);
    ct__kir_end(k);
}

// Is b read along its columns while k steps through several axes, of which the last is worth a loop? Its
// steps need no division then.
static bool has_steps(contract *c) {
    enum { WORTH_A_LOOP = 8 };
    const spread inner = {&c->is.inner, c->inner_tail};
    const int n = c->is.inner.n;
    if (n < 2 || contiguous(c, B) == c->n_batch + axes_of(&inner) - 1) return false;
    const ct_type *a = ct__type(c->value[A]);
    const int last = c->is.inner.of[A][n - 1];
    return ct__is_dyn(a, last) || a->dim[last] >= WORTH_A_LOOP;
}

static void sizes_of(contract *c) {
    c->n_batch = c->is.batch.n > CT_MAX_RANK - 2 ? 1 : c->is.batch.n;
    for (int i = 0; i < c->n_batch; i++) c->batch[i] = axis_size(c, &c->is.batch, i);
    if (c->n_batch < c->is.batch.n) c->batch[0] = joined_size(c, &c->is.batch);
    c->rows = joined_size(c, &c->is.rows);
    c->columns = joined_size(c, &c->is.columns);
    c->column_tail = c->result_tail = c->is.columns.n;
    c->inner_tail = c->is.inner.n;
}

// Sizes, and how many axes of each role the template has.
static void arrange(contract *c) {
    batch_to_rows(c);
    sizes_of(c);
    batch_to_columns(c);
    sizes_of(c);
    if (!c->tiles) return;
    tail_of(c, &c->is.columns, &c->column_tail, (int[]){B, B});
    tail_of(c, &c->is.columns, &c->result_tail, (int[]){OUT, OUT});
    tail_of(c, &c->is.inner, &c->inner_tail, (int[]){A, B});
    if (has_steps(c)) c->inner_tail = 1;
}

static int last_position(const contract *c, int which) {
    ct_ix size[CT_MAX_RANK + 2];
    return position_sizes(c, which, size) - 1;
}

// Are columns of windows, more than there are rows, summed over many positions, which both operands have
// side by side? As rows they are copied in pieces of these, and fewer columns are turned: the weights'
// gradient of a convolution.
static bool turned_windows(const contract *c) {
    enum { MANY = 1024 };
    const bool pieces = c->column_tail < c->is.columns.n || c->inner_tail < c->is.inner.n;
    if (!c->tiles || !c->is.rows.n || !pieces || contiguous(c, A) != last_position(c, A))
        return false;
    const int64_t rows = role_size(c, &c->is.rows, A), columns = role_size(c, &c->is.columns, B),
                  inner = role_size(c, &c->is.inner, A);
    return !ct__marked(rows) && !ct__marked(columns) && rows < columns &&
           (ct__marked(inner) || inner >= MANY);
}

// Summed axes of one element are none: a convolution of 1 x 1 is a plain product.
static void drop_ones(contract *c) {
    ct_role *inner = &c->is.inner, kept = {0};
    const ct_type *a = ct__type(c->value[A]), *b = ct__type(c->value[B]);
    for (int i = 0; i < inner->n; i++)
        if (!ct__is_one(a, inner->of[A][i]) || !ct__is_one(b, inner->of[B][i]))
            ct__role_add(&kept, inner->of[A][i], inner->of[B][i], inner->of[OUT][i]);
    *inner = kept;
}

// Is row axis `tap` a step along the windows whose positions are inner axis `position`? Then an element
// hangs on stride * position + tap alone, and along what it hangs on, memory has a step. Gives the stride,
// or 0.
static int64_t stride_of_windows(const contract *c, int tap, int position, int64_t *step) {
    const int64_t far_off = (int64_t)1 << 36; // further than conditions reach: none folds
    ct_emit *e = c->e;
    ct_ix_pool *p = e->pool;
    const ct_role *rows = &c->is.rows, *inner = &c->is.inner;
    ct_ix row[CT_MAX_RANK], at[CT_MAX_RANK], index[CT_MAX_RANK];
    for (int i = 0; i < rows->n; i++) row[i] = ct__ix_var(p, axis_size(c, rows, i));
    for (int i = 0; i < inner->n; i++) at[i] = ct__ix_var(p, axis_size(c, inner, i));
    ct_ix any = ct__ix_var(p, ct__ix_int(p, far_off));
    row[tap] = any;
    for (int i = 0; i < ct__type(c->value[A])->rank; i++) index[i] = ct__ix_int(p, 0);
    put(c, rows, A, row, index);
    put(c, inner, A, at, index);
    *step = ct__emit_stride(e, c->value[A], index, row[tap]);
    const int64_t far = ct__emit_stride(e, c->value[A], index, at[position]);
    if (*step <= 0 || far <= 0 || far % *step) return 0;
    row[tap] = ct__ix_sub(p, any, ct__ix_mul(p, at[position], ct__ix_int(p, far / *step)));
    put(c, rows, A, row, index);
    return ct__emit_without(e, c->value[A], index, at[position]) ? far / *step : 0;
}

// Can the last of such axes of an operand, which has all of them, be the taps of a window? Most products
// end here.
static bool ends_in_taps(const contract *c, int which, const ct_role *role) {
    const int last = role->n - 1;
    if (!c->tiles || c->is.batch.n || last < 0) return false;
    for (int i = 0; i <= last; i++)
        if (role->of[which][i] < 0) return false;
    return ct__type(c->value[which])->dim[role->of[which][last]] <= CT_TILE_ROWS;
}

// Are rows channels and taps of windows, and columns of the second operand side by side along k?
static bool rows_are_windows(contract *c) {
    enum { MOST_SKIPPED = 4 };
    if (!ends_in_taps(c, A, &c->is.rows)) return false;
    const ct_role *rows = &c->is.rows, *inner = &c->is.inner;
    const ct_type *a = ct__type(c->value[A]);
    if (c->is.columns.n != 1 || c->is.columns.of[B][0] < 0) return false;
    const int64_t all = role_size(c, rows, A), columns = role_size(c, &c->is.columns, B);
    if (ct__marked(all) || ct__marked(columns) || !columns) return false;
    ct_matmul_windows w = {.taps = {1, 1}, .positions = {1, 1}, .stride = {1, 1}};
    int64_t step, n = 0;
    while (n < 2 && n < rows->n && n < inner->n) {
        const int tap = rows->n - 1 - (int)n, position = inner->n - 1 - (int)n;
        const int64_t taps = a->dim[rows->of[A][tap]];
        if (ct__is_dyn(a, inner->of[A][position])) break;
        const int64_t stride = stride_of_windows(c, tap, position, &step);
        // Other steps that fit are those of plain matrices.
        const bool fits = taps > stride || (taps == 1 && stride <= MOST_SKIPPED);
        if (!stride || !fits || (n == 0 && step != 1)) break;
        w.taps[1 - n] = taps;
        w.positions[1 - n] = a->dim[inner->of[A][position]];
        w.stride[1 - n] = stride;
        n++;
    }
    w.channels = all / (w.taps[0] * w.taps[1]);
    if (w.taps[0] * w.taps[1] * w.stride[0] * w.stride[1] == 1) return false;
    if (!n || !ct__matmul_has_windows(&c->e->target, c->dtype, &w)) return false;
    const int before = c->inner_tail;
    for (c->inner_tail = inner->n; c->inner_tail > 0; c->inner_tail--) {
        const spread steps = {inner, c->inner_tail};
        if (contiguous(c, B) == axes_of(&steps) - 1) break;
    }
    if (!c->inner_tail) {
        c->inner_tail = before;
        return false;
    }
    c->windows = w;
    return true;
}

static ct_kval behind_first(void *env, ct_kir *k, ct_kval channel, ct_kval image,
                            const ct_kval *behind) {
    (void)k;
    const contract *c = ((side *)env)->c;
    const ct_matmul_windows *w = &c->windows;
    ct_ix_pool *p = c->e->pool;
    const ct_role *const roles[] = {&c->is.rows, &c->is.inner};
    const ct_kval outer[] = {channel, image};
    const int n = w->taps[0] * w->positions[0] > 1 ? 2 : 1;
    ct_ix index[CT_MAX_RANK], size[CT_MAX_RANK], at[CT_MAX_RANK];
    for (int i = 0; i < ct__type(c->value[A])->rank; i++) index[i] = ct__ix_int(p, 0);
    for (int r = 0; r < 2; r++) {
        const int own = roles[r]->n - n;
        ct_ix all = ct__ix_int(p, 1);
        for (int i = 0; i < own; i++) all = ct__ix_mul(p, all, size[i] = axis_size(c, roles[r], i));
        if (own) ct__unflatten_ix(p, ct__emit_bind(c->e, outer[r], all), size, own, at);
        for (int i = 0; i < n; i++) {
            const int a = 2 - n + i;
            const int64_t span = (w->positions[a] - 1) * w->stride[a] + w->taps[a];
            at[own + i] =
                r ? ct__ix_int(p, 0) : ct__emit_bind(c->e, behind[a], ct__ix_int(p, span));
        }
        put(c, roles[r], A, at, index);
    }
    return ct__emit_value_apart(c->e, c->value[A], index, c->dtype);
}

// The roles of the template, of the node that e writes a kernel of.
static bool prepare(contract *c, ct_emit *e, ct_node *node) {
    if (!e) return false;
    ct__emit_declare_sizes(e, node);
    *c = (contract){.e = e,
                    .value = {node->in[A], node->in[B], {node, 0}},
                    .dtype = ct__kir_held(node->out->dtype), // sums are rounded once, at their end
                    .is = roles_of(node)};
    c->inner = joined_size(c, &c->is.inner);
    drop_ones(c);
    if (!c->is.columns.n && c->is.rows.n) exchange(c); // one row, not one column: lanes have work
    // Integers and dot products have loops of their own.
    c->tiles = c->is.columns.n && ct__is_float(node->out->dtype);
    arrange(c);
    if (rows_are_windows(c)) return true;
    if (c->is.rows.n && ends_in_taps(c, B, &c->is.columns)) {
        exchange(c);
        arrange(c);
        if (rows_are_windows(c)) return true;
        exchange(c);
        arrange(c);
    }
    if (turned_windows(c)) {
        exchange(c);
        arrange(c);
        if (contiguous(c, A) == last_position(c, A)) return true;
        exchange(c);
        arrange(c);
    }
    return true;
}

// ------------------------------------------------------------- rows as memory has them, by panels

// The index of the first operand at a row and, of the inner axes, the last one's place and a number of the
// others'.
static void place_taps(const contract *c, ct_ix row, ct_ix channel, int64_t tap, ct_ix *to) {
    const ct_role *inner = &c->is.inner;
    const ct_type *a = ct__type(c->value[A]);
    ct_ix each[CT_MAX_RANK];
    each[inner->n - 1] = channel;
    for (int i = inner->n - 2; i >= 0; i--) {
        const int64_t size = a->dim[inner->of[A][i]];
        each[i] = ct__ix_int(c->e->pool, tap % size);
        tap /= size;
    }
    for (int i = 0; i < a->rank; i++) to[i] = ct__ix_int(c->e->pool, 0);
    put_joined(c, &c->is.rows, A, row, to);
    put(c, inner, A, each, to);
}

static ct_kval in_memory(void *env, ct_kir *k, ct_kval row, ct_kval from, int64_t more,
                         int64_t tap) {
    (void)k;
    const contract *c = ((side *)env)->c;
    ct_ix_pool *p = c->e->pool;
    ct_ix index[CT_MAX_RANK], channel = axis_size(c, &c->is.inner, c->is.inner.n - 1);
    channel = ct__ix_add(p, ct__emit_bind(c->e, from, channel), ct__ix_int(p, more));
    place_taps(c, ct__emit_bind(c->e, row, c->rows), channel, tap, index);
    return ct__emit_value_apart(c->e, c->value[A], index, c->dtype);
}

// Have rows the taps of each channel side by side, and channels behind each other?
static bool has_taps_together(const contract *c, int64_t taps) {
    ct_ix_pool *p = c->e->pool;
    const ct_role *inner = &c->is.inner;
    ct_ix size[CT_MAX_RANK], each[CT_MAX_RANK], index[CT_MAX_RANK];
    const ct_type *a = ct__type(c->value[A]);
    ct_ix step = ct__ix_var(p, c->inner), many = ct__ix_int(p, taps);
    for (int i = 0; i < inner->n; i++) size[i] = axis_size(c, inner, i);
    ct__unflatten_ix(p, ct__ix_mod(p, step, many), size, inner->n - 1, each);
    each[inner->n - 1] = ct__ix_div(p, step, many);
    for (int i = 0; i < a->rank; i++) index[i] = ct__ix_int(p, 0);
    put_joined(c, &c->is.rows, A, ct__ix_var(p, c->rows), index);
    put(c, inner, A, each, index);
    return ct__emit_contiguous(c->e, c->value[A], index, step);
}

// How many elements the summed axes have but the last one, if they are few and all sizes known; else 0.
static int64_t few_taps(const contract *c) {
    const ct_role *inner = &c->is.inner;
    const ct_type *a = ct__type(c->value[A]);
    int64_t taps = 1;
    for (int i = 0; i < inner->n; i++) {
        const int axis = inner->of[A][i];
        if (ct__is_dyn(a, axis)) return 0;
        if (i < inner->n - 1) taps *= a->dim[axis];
        if (taps > CT_MOST_TAPS) return 0;
    }
    return taps;
}

// The taps of a channel that rows have side by side, with all channels behind each other, where the
// product goes by panels; else 0. So are weights of a convolution, and of others with one tap.
static int64_t taps_of_panels(const contract *c) {
    if (!c->tiles || c->n_batch || !c->is.rows.n || !c->is.inner.n || !is_load(c, A)) return 0;
    const int64_t taps = few_taps(c), rows = role_size(c, &c->is.rows, A),
                  columns = role_size(c, &c->is.columns, B);
    if (!taps || ct__marked(rows) || ct__marked(columns) ||
        !ct__matmul_has_panels(rows, columns, role_size(c, &c->is.inner, A), taps))
        return 0;
    return has_taps_together(c, taps) ? taps : 0;
}

// ------------------------------------------------------------------------ the rows, in order of k

// Is it worth a launch of its own to store the first operand as the template packs it? Where neither
// its rows nor k are contiguous packing gathers, and each task that has the rows does so again: weights
// of a convolution.
static bool ordered_first(const contract *c) {
    enum { COLUMNS = 384, WORTH = 1 << 16 }; // of a task; gathers that cost more than a launch
    const ct_role *const own[] = {&c->is.batch, &c->is.rows, &c->is.inner};
    const ct_type *a = ct__type(c->value[A]);
    double size = 1;
    if (!c->tiles || !c->is.rows.n || contiguous(c, A) >= 0) return false;
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < own[r]->n; i++) {
            const int axis = own[r]->of[A][i], out = own[r]->of[OUT][i];
            const bool one = out >= 0 && ct__is_one(ct__type(c->value[OUT]), out);
            if (axis < 0 || (out >= 0 && ct__is_one(a, axis) && !one)) return false;
            size *= (double)a->dim[axis];
        }
    const int64_t rows = role_size(c, &c->is.rows, A), columns = role_size(c, &c->is.columns, B);
    if (!ct__marked(rows) && rows <= CT_FEW_ROWS) return false;
    const double tasks = ct__marked(columns) ? 8 : (double)(columns / COLUMNS);
    return size * (tasks < 1 ? 1 : tasks) >= WORTH;
}

// Have neighbouring rows their taps side by side, whole vectors of which 16 channels have? So it is of
// the weights where a convolution's gradient, which sums over what it made, reads them.
static int64_t taps_across_rows(const contract *c) {
    ct_ix_pool *p = c->e->pool;
    const ct_role *inner = &c->is.inner;
    ct_ix size[CT_MAX_RANK], each[CT_MAX_RANK], index[CT_MAX_RANK];
    const ct_type *a = ct__type(c->value[A]);
    const int64_t taps = inner->n ? few_taps(c) : 0, rows = role_size(c, &c->is.rows, A);
    if (!taps || c->n_batch || ct__marked(rows) || rows % CT_LANES || !is_load(c, A) ||
        a->dim[inner->of[A][inner->n - 1]] % CT_LANES)
        return 0;
    ct_ix step = ct__ix_var(p, ct__ix_int(p, rows * taps)), many = ct__ix_int(p, taps);
    for (int i = 0; i < inner->n; i++) size[i] = axis_size(c, inner, i);
    ct__unflatten_ix(p, ct__ix_mod(p, step, many), size, inner->n - 1, each);
    each[inner->n - 1] = ct__ix_var(p, size[inner->n - 1]);
    for (int i = 0; i < a->rank; i++) index[i] = ct__ix_int(p, 0);
    put_joined(c, &c->is.rows, A, ct__ix_div(p, step, many), index);
    put(c, inner, A, each, index);
    return ct__emit_contiguous(c->e, c->value[A], index, step) ? taps : 0;
}

// Those go 16 rows and 16 channels at a time, turned in registers.
static void order_turned(const contract *c, int to, int64_t taps) {
    ct_emit *e = c->e;
    ct_ix_pool *p = e->pool;
    ct_kir *k = e->kir;
    const int64_t rows = role_size(c, &c->is.rows, A),
                  channels = role_size(c, &c->is.inner, A) / taps;
    ct_kval row0 = ct__kir_loop_n(k, CT_BIND_ROWS, rows / CT_LANES, "16 rows");
    row0 = ct__kir_muli(k, row0, CT_LANES);
    ct_kval channel = ct__kir_loop_n(k, CT_BIND_SEQ, channels / CT_LANES, "16 channels");
    channel = ct__kir_muli(k, channel, CT_LANES);
    ct_kval lane = ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "channel"), at[CT_MOST_TAPS];
    for (int64_t tap = 0; tap < taps; tap++) {
        ct_kval step = ct__kir_addi(k, channel, tap * channels),
                size = ct__kir_int(k, CT_DOT_CHUNK);
        at[tap] = ct__kir_add(k, ct__kir_muli(k, ct__kir_div(k, step, size), rows), row0);
        at[tap] =
            ct__kir_add(k, ct__kir_muli(k, at[tap], CT_DOT_CHUNK), ct__kir_mod(k, step, size));
        at[tap] = ct__kir_add(k, at[tap], lane);
    }
    ct_ix own = ct__emit_bind(e, ct__kir_add(k, channel, lane), ct__ix_int(p, channels));
    ct_ix first = ct__emit_bind(e, row0, ct__ix_int(p, rows)), index[CT_MAX_RANK];
    for (int64_t some = 0; some < taps * CT_LANES; some += CT_LANES) {
        ct_kval x[CT_LANES];
        for (int64_t i = 0; i < CT_LANES; i++) {
            ct_ix row = ct__ix_add(p, first, ct__ix_int(p, (some + i) / taps));
            place_taps(c, row, own, (some + i) % taps, index);
            x[i] = ct__emit_value_apart(e, c->value[A], index, c->dtype);
        }
        for (int64_t i = 0; i < CT_LANES; i++) {
            const int64_t row = (some + i) / taps, tap = (some + i) % taps;
            ct__kir_store(k, to, ct__kir_addi(k, at[tap], row * CT_DOT_CHUNK), x[i]);
        }
    }
    for (int i = 0; i < 3; i++) ct__kir_end(k);
}

// The launch that stores it: (batch..., chunk of k, row, CT_DOT_CHUNK).
static bool order_rows(ct_sched *s, ct_node *node, uint32_t temp) {
    contract c;
    if (!prepare(&c, ct__emit_new(s, node), node)) return false;
    ct_emit *e = c.e;
    ct_ix_pool *p = e->pool;
    const int64_t taps = taps_across_rows(&c);
    if (taps > 1) {
        order_turned(&c, ct__emit_temp(e, temp, c.dtype, CT_KIR_WRITE), taps);
        return ct__emit_done(e, 0);
    }
    ct_ix size[CT_MAX_RANK + 2], at[CT_MAX_RANK + 2], index[CT_MAX_RANK];
    const int n = position_sizes(&c, A, size), first = c.n_batch + 1;
    int to = ct__emit_temp(e, temp, c.dtype, CT_KIR_WRITE);
    ct_ix rows = ct__ix_int(p, 1), steps = rows, chunk = ct__ix_int(p, CT_DOT_CHUNK);
    for (int i = 0; i < first; i++) rows = ct__ix_mul(p, rows, size[i]);
    for (int i = first; i < n - 1; i++) steps = ct__ix_mul(p, steps, size[i]);
    ct_ix inner = ct__ix_mul(p, steps, size[n - 1]), own = size[c.n_batch];
    ct_ix chunks = ct__ix_div(p, ct__ix_add(p, inner, ct__ix_int(p, CT_DOT_CHUNK - 1)), chunk);
    ct_ix line = ct__emit_loop(e, CT_BIND_ROWS, rows, "row");
    ct_ix step = ct__emit_loop(e, CT_BIND_SEQ, steps, "outer k");
    ct__unflatten_ix(p, line, size, first, at);
    ct__unflatten_ix(p, step, size + first, n - 1 - first, at + first);
    at[n - 1] = ct__emit_loop(e, CT_BIND_LANES, size[n - 1], "k");
    place(&c, A, at, index);
    ct_kval v = ct__emit_value(e, c.value[A], index, c.dtype);
    ct_ix k = ct__ix_add(p, ct__ix_mul(p, step, size[n - 1]), at[n - 1]);
    ct_ix to_chunk =
        ct__ix_add(p, ct__ix_mul(p, ct__ix_div(p, line, own), chunks), ct__ix_div(p, k, chunk));
    ct_ix flat = ct__ix_add(p, ct__ix_mul(p, to_chunk, own), at[c.n_batch]);
    flat = ct__ix_add(p, ct__ix_mul(p, flat, chunk), ct__ix_mod(p, k, chunk));
    ct__kir_store(e->kir, to, ct__emit_ix(e, flat), v);
    for (int i = 0; i < 3; i++) ct__emit_end(e);
    return ct__emit_done(e, 0);
}

// Bytes of what it stores.
static int64_t ordered_size(const contract *c) {
    const int64_t each = c->dtype == CT_F64 ? 8 : 4;
    int64_t n = ct__size_div_up(role_size(c, &c->is.inner, A), CT_DOT_CHUNK);
    n = ct__size_mul(n, role_size(c, &c->is.rows, A));
    n = ct__size_mul(n, role_size(c, &c->is.batch, A));
    return ct__size_mul(ct__size_add(n, CT_TILE_ROWS), CT_DOT_CHUNK * each);
}

// There is one inner axis then.
static void go_in_pairs(const contract *c, ct_matmul_spec *spec) {
    ct_kir *k = c->e->kir;
    spec->pairs = true;
    spec->inner = ct__kir_div(k, spec->inner, ct__kir_int(k, 2));
    spec->a.value = spec->b.value = two_steps;
    spec->a.is_load = false;
    spec->b.is_load = spec->b.is_load && spec->b.along == place_of_k(c, B);
    spec->b.pair = NULL;
    ct__template_matmul(k, spec);
}

static bool contraction_kernels(ct_sched *s, ct_node *node) {
    contract c;
    if (!prepare(&c, ct__emit_new(s, node), node)) return false;
    ct_emit *e = c.e;
    const ct_type *out = &node->out[0];
    ct_kval batch[CT_MAX_RANK], column_axis[CT_MAX_RANK], inner_axis[CT_MAX_RANK],
        result_axis[CT_MAX_RANK];
    const spread columns = {&c.is.columns, c.column_tail}, inner = {&c.is.inner, c.inner_tail},
                 result = {&c.is.columns, c.result_tail};
    for (int i = 0; i < c.n_batch; i++) batch[i] = ct__emit_ix(e, c.batch[i]);
    for (int i = 0; i < axes_of(&columns); i++)
        column_axis[i] = ct__emit_ix(e, spread_size(&c, &columns, i));
    for (int i = 0; i < axes_of(&result); i++)
        result_axis[i] = ct__emit_ix(e, spread_size(&c, &result, i));
    for (int i = 0; i < axes_of(&inner); i++)
        inner_axis[i] = ct__emit_ix(e, spread_size(&c, &inner, i));
    side sides[2] = {{&c, A}, {&c, B}};
    ct_dtype pair_of = CT_DEFAULT;
    ct_matmul_spec spec = {
        .dtype = c.dtype,
        .n_batch = c.n_batch,
        .batch = batch,
        .rows = ct__emit_ix(e, c.rows),
        .columns = ct__emit_ix(e, c.columns),
        .inner = ct__emit_ix(e, c.inner),
        .n_column_axes = axes_of(&columns),
        .n_inner_axes = axes_of(&inner),
        .n_result_axes = axes_of(&result),
        .column_axis = column_axis,
        .inner_axis = inner_axis,
        .result_axis = result_axis,
        .a = {.value = value,
              .env = &sides[A],
              .along = contiguous(&c, A),
              .is_load = is_load(&c, A),
              .step = step_of_a(&c)},
        .b = {.value = value,
              .env = &sides[B],
              .along = contiguous(&c, B),
              .is_load = is_line(&c),
              .pair = has_pairs(&c, B, &pair_of) ? pair : NULL,
              .pair_of = pair_of},
        .c = {.store = store, .env = &c},
        .target = e->target,
    };
    if (c.windows.channels) {
        c.windows.value = behind_first;
        spec.windows = &c.windows;
        ct__template_windows(e->kir, &spec);
        return ct__emit_done(e, 2.0 * (double)ct__count(out) * inner_count(node));
    }
    if (in_pairs(&c)) {
        go_in_pairs(&c, &spec);
        return ct__emit_done(e, 2.0 * (double)ct__count(out) * inner_count(node));
    }
    spec.a_taps = taps_of_panels(&c);
    spec.a_in_memory = in_memory;
    const uint32_t temp =
        !spec.a_taps && ordered_first(&c) ? ct__sched_temp(s, ordered_size(&c)) : UINT32_MAX;
    bool ok = true;
    if (temp != UINT32_MAX) {
        ok = order_rows(s, node, temp);
        spec.a = (ct_source){.buf = ct__emit_temp(e, temp, c.dtype, CT_KIR_READ)};
        spec.a_packed = true;
    }
    if (!c.is.columns.n)
        dot_products(e->kir, &spec);
    else if (spec.a_taps)
        ct__template_panels(e->kir, &spec);
    else if (ct__is_float(out->dtype))
        ct__template_matmul(e->kir, &spec);
    else
        whole_numbers(e->kir, &spec);
    return ct__emit_done(e, 2.0 * (double)ct__count(out) * inner_count(node)) && ok;
}

static double contraction_roundings(const ct_node *node, bool in_order) {
    const double k = inner_count(node);
    if (!ct__is_float(node->out->dtype)) return 0;
    return in_order ? k : fmin(k, CT_DOT_CHUNK) + k / CT_DOT_CHUNK;
}

// --------------------------------------------------------------------------------------- reference

// Where the elements along the axes of a role lie in an operand or the result, from their first.
static int64_t *offsets(const ct_ref *ref, const ct_role *role, int which, int64_t *n) {
    const ct_type *out = ref->out_type, *a = &ref->in_type[A];
    const ct_type *type = which == OUT ? out : &ref->in_type[which];
    int64_t size[CT_MAX_RANK], step[CT_MAX_RANK];
    *n = 1;
    for (int i = 0; i < role->n; i++) {
        const int own = role->of[OUT][i], axis = role->of[which][i];
        size[i] = own >= 0 ? out->dim[own] : a->dim[role->of[A][i]];
        *n *= size[i];
        step[i] = axis >= 0 && type->dim[axis] == size[i];
        for (int r = axis + 1; r < type->rank; r++) step[i] *= type->dim[r];
    }
    int64_t *to = ct__malloc((size_t)*n * sizeof *to + 1);
    for (int64_t p = 0; p < *n && to; p++) {
        int64_t rest = p;
        to[p] = 0;
        for (int i = role->n - 1; i >= 0; i--) {
            to[p] += rest % size[i] * step[i];
            rest /= size[i];
        }
    }
    return to;
}

// An element as a product has it: in the dtype of the sums, whatever integers meet.
static double factor(const ct_type *type, const void *data, int64_t at, bool narrow) {
    const double x = ct__load_f64(type->dtype, data, at);
    return narrow ? (double)(float)x : x;
}

static void sum_of_products(const ct_ref *ref, const int64_t at[3], const int64_t *along_a,
                            const int64_t *along_b, int64_t inner) {
    const ct_type *a = &ref->in_type[A], *b = &ref->in_type[B];
    const ct_dtype dtype = (ct_dtype)ref->out_type->dtype;
    const bool narrow = dtype != CT_F64;
    if (!ct__is_float(dtype)) {
        uint64_t sum = 0;
        for (int64_t k = 0; k < inner; k++)
            sum += (uint64_t)ct__load_i64(a->dtype, ref->in[A], at[A] + along_a[k]) *
                   (uint64_t)ct__load_i64(b->dtype, ref->in[B], at[B] + along_b[k]);
        ct__store_i64(dtype, ref->out[0], at[OUT], (int64_t)sum);
        return;
    }
    double sum = 0;
    for (int64_t k = 0; k < inner; k++)
        sum += factor(a, ref->in[A], at[A] + along_a[k], narrow) *
               factor(b, ref->in[B], at[B] + along_b[k], narrow);
    ct__store_f64(dtype, ref->out[0], at[OUT], sum);
}

static bool contraction_eval(const ct_ref *ref) {
    const ct_contraction is = roles_of(ref->node);
    const ct_role *const roles[] = {&is.batch, &is.rows, &is.columns, &is.inner};
    int64_t n[4], *at[4][3];
    bool ok = true;
    for (int r = 0; r < 4; r++)
        for (int w = 0; w < 3; w++) ok = (at[r][w] = offsets(ref, roles[r], w, &n[r])) && ok;
    for (int64_t m = 0; m < n[0] && ok; m++)
        for (int64_t i = 0; i < n[1]; i++)
            for (int64_t j = 0; j < n[2]; j++) {
                int64_t first[3];
                for (int w = 0; w < 3; w++) first[w] = at[0][w][m] + at[1][w][i] + at[2][w][j];
                sum_of_products(ref, first, at[3][A], at[3][B], n[3]);
            }
    for (int r = 0; r < 4; r++)
        for (int w = 0; w < 3; w++) ct__free(at[r][w]);
    return ok || ct__err_memory(ref->err, ref->node->here, ref->node->op->name, 0);
}

// A second operand alone that is one matrix becomes the rows of one product, all turned over:
// (B, K, N) and (M, K) as (B, N, K) and (K, M). A first one alone has its batch among the rows.
static bool contraction_batch(ct_batching *b) {
    const ct_type *x = ct__type(b->node->in[0]), *y = ct__type(b->node->in[1]);
    const int rank = b->node->out->rank;
    ct_tensor in[2] = {ct__batch_aligned(b, 0, rank), ct__batch_aligned(b, 1, rank)};
    bool turned = !b->batched[0] && x->rank == 2 && y->rank == 2;
    if (turned) {
        in[0] = ct__batch_move(b, b->in[1], 3, 1, 2);
        in[1] = ct__batch_move(b, b->in[0], 2, 0, 1);
    }
    if (!ct__batch_record(b, b->attrs, in)) return false;
    if (turned) b->out[0] = ct__batch_move(b, b->out[0], 3, 1, 2);
    return true;
}

const ct_kind ct__kind_contraction = {
    .name = "contraction",
    .doc = "Sums of products over axes that two operands share.",
    .scheduled = CT_TEMPLATE,
    .kernels = contraction_kernels,
    .epilogue = true,
    .packs = true,
    .roundings = contraction_roundings,
    .products = inner_count,
    .eval = contraction_eval,
    .batch = contraction_batch,
};
