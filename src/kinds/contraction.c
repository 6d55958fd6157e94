// Contractions: sums of products over axes that two operands share. The kernel is the matrix template with
// the graph's values as operands and result: axes of one role are one axis of the template, in row-major
// order.
#include "kinds/contraction.h"

#include <math.h>
#include <string.h>

#include "graph/symbols.h"
#include "kinds/batch.h"
#include "kinds/emit.h"
#include "kinds/matmul.h"

enum { A, B, OUT };
enum { GRAIN = 64 }; // dot products that are worth a task

static ct_contraction contract_roles(const ct_node *node) {
    ct_contraction is = {0};
    node->op->contraction(node, &is);
    return is;
}
static double contract_inner_count(const ct_node *node) {
    const ct_contraction is = contract_roles(node);
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
    int n_batch; // batch axes of the template: those of the role, or all of them flattened to one
    ct_ix batch[CT_MAX_RANK], rows, columns, inner; // sizes of the template
    // trailing axes of the role that are flattened to the template's last one
    int column_tail, inner_tail;
    int result_tail;           // the same for the columns of the result
    bool uses_matmul;          // the kernel is the matrix template
    ct_matmul_windows windows; // window structure of the rows; channels 0: none
} contract;
typedef struct side {
    contract *c;
    int which; // operand
} side;

// Returns the operand or the result whose type has the size of an axis of a role. An operand may lack an axis that is a row,
// a column or a batch axis; the result has those, and both operands have the summed axes.
static int contract_axis_owner(const ct_role *role, int i) {
    return role->of[OUT][i] < 0 ? A : OUT;
}

// Returns the size of a role, in the encoding of attributes.
static int64_t contract_role_size(const contract *c, const ct_role *role) {
    int64_t n = 1;
    for (int i = 0; i < role->n; i++) {
        const int which = contract_axis_owner(role, i);
        n = ct__size_mul(n, ct__size_of(ct__type(c->value[which]), role->of[which][i]));
    }
    return n;
}

static ct_ix contract_axis_size(const contract *c, const ct_role *role, int i) {
    const int which = contract_axis_owner(role, i);
    return ct__emit_size(c->e, c->value[which], role->of[which][i]);
}
static ct_ix contract_flat_size(const contract *c, const ct_role *role) {
    ct_ix n = ct__ix_int(c->e->pool, 1);
    for (int i = 0; i < role->n; i++) n = ct__ix_mul(c->e->pool, n, contract_axis_size(c, role, i));
    return n;
}

// Sets the index of an operand or the result along the axes of a role.
static void contract_set_axes(const contract *c, const ct_role *role, int which, const ct_ix *at,
                              ct_ix *to) {
    const ct_type *type = ct__type(c->value[which]), *out = ct__type(c->value[OUT]);
    for (int i = 0; i < role->n; i++) {
        const int axis = role->of[which][i], own = role->of[OUT][i];
        if (axis < 0 || (type->dim[axis] == 1 && own >= 0 && out->dim[own] != 1)) continue;
        to[axis] = at[i];
    }
}
static void contract_set_flat_axes(const contract *c, const ct_role *role, int which, ct_ix at,
                                   ct_ix *to) {
    ct_ix size[CT_MAX_RANK], each[CT_MAX_RANK];
    for (int i = 0; i < role->n; i++) size[i] = contract_axis_size(c, role, i);
    ct__unflatten_ix(c->e->pool, at, size, role->n, each);
    contract_set_axes(c, role, which, each, to);
}

// A role as the template sees it: leading axes separately, and the last `tail` axes flattened to one.
typedef struct template_role {
    const ct_role *role;
    int tail;
} template_role;
static int contract_axis_count(const template_role *x) {
    return x->role->n > x->tail ? x->role->n - x->tail + 1 : 1;
}
static ct_ix contract_template_size(const contract *c, const template_role *x, int i) {
    ct_role part = *x->role;
    const int own = part.n - x->tail;
    if (i < own) return contract_axis_size(c, x->role, i);
    part.n = 0;
    for (int k = own < 0 ? 0 : own; k < x->role->n; k++)
        ct__role_add(&part, x->role->of[A][k], x->role->of[B][k], x->role->of[OUT][k]);
    return contract_flat_size(c, &part);
}
static void contract_set_template_axes(const contract *c, const template_role *x, int which,
                                       const ct_ix *at, ct_ix *to) {
    ct_ix size[CT_MAX_RANK], each[CT_MAX_RANK];
    const int n = x->role->n, own = contract_axis_count(x) - 1;
    for (int i = 0; i < own; i++) each[i] = at[i];
    for (int i = own; i < n; i++) size[i] = contract_axis_size(c, x->role, i);
    ct__unflatten_ix(c->e->pool, at[own], size + own, n - own, each + own);
    contract_set_axes(c, x->role, which, each, to);
}

// Returns the two roles of an operand or the result, in the order of the template's positions.
static void contract_operand_roles(const contract *c, int which, template_role two[2]) {
    const int tail = which == OUT ? c->result_tail : c->column_tail;
    const template_role rows = {&c->is.rows, c->is.rows.n}, columns = {&c->is.columns, tail},
                        inner = {&c->is.inner, c->inner_tail};
    two[0] = which == B ? inner : rows;
    two[1] = which == A ? inner : columns;
}

// Computes the index of an element from the template's positions: batch, then (row, k), (k, column) or (row,
// column), where k and column may be several positions.
static void contract_index(const contract *c, int which, const ct_ix *at, ct_ix *to) {
    template_role two[2];
    contract_operand_roles(c, which, two);
    for (int a = 0; a < ct__type(c->value[which])->rank; a++) to[a] = ct__ix_int(c->e->pool, 0);
    if (c->n_batch == c->is.batch.n)
        contract_set_axes(c, &c->is.batch, which, at, to);
    else
        contract_set_flat_axes(c, &c->is.batch, which, at[0], to);
    contract_set_template_axes(c, &two[0], which, at + c->n_batch, to);
    contract_set_template_axes(c, &two[1], which, at + c->n_batch + contract_axis_count(&two[0]),
                               to);
}

// Computes the sizes of all positions of an operand or the result. Returns their number.
static int contract_position_sizes(const contract *c, int which, ct_ix *size) {
    template_role two[2];
    int n = 0;
    contract_operand_roles(c, which, two);
    for (; n < c->n_batch; n++) size[n] = c->batch[n];
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < contract_axis_count(&two[r]); i++)
            size[n++] = contract_template_size(c, &two[r], i);
    return n;
}

// Computes the index of an element from positions that are values of the kernel.
static void contract_bind_index(const contract *c, int which, const ct_kval *at, ct_ix *to) {
    ct_ix size[CT_MAX_RANK + 2], own[CT_MAX_RANK + 2];
    const int n = contract_position_sizes(c, which, size);
    for (int i = 0; i < n; i++) own[i] = ct__emit_bind(c->e, at[i], size[i]);
    contract_index(c, which, own, to);
}

static ct_kval contract_value(void *env, ct_kir *k, const ct_kval *at) {
    (void)k;
    const side *s = env;
    ct_ix index[CT_MAX_RANK];
    contract_bind_index(s->c, s->which, at, index);
    return ct__emit_value_apart(s->c->e, s->c->value[s->which], index, s->c->dtype);
}

static void contract_store(void *env, ct_kir *k, const ct_kval *at, ct_kval v) {
    (void)k;
    const contract *c = env;
    ct_ix index[CT_MAX_RANK];
    contract_bind_index(c, OUT, at, index);
    ct__emit_store_apart(c->e, c->value[OUT], index, v);
}

// Creates index variables for all positions of an operand or the result, and its index there. Returns their
// number.
static int contract_variable_index(const contract *c, int which, ct_ix *var, ct_ix *index) {
    ct_ix size[CT_MAX_RANK + 2];
    const int n = contract_position_sizes(c, which, size);
    for (int i = 0; i < n; i++) var[i] = ct__ix_var(c->e->pool, size[i]);
    contract_index(c, which, var, index);
    return n;
}

// Returns the position of the operand along which memory is contiguous, preferring the last one; -1 if there
// is none.
static int contract_contiguous_axis(const contract *c, int which) {
    ct_ix var[CT_MAX_RANK + 2], index[CT_MAX_RANK];
    template_role two[2];
    contract_operand_roles(c, which, two);
    const int n = contract_variable_index(c, which, var, index),
              first = c->n_batch + contract_axis_count(&two[0]) - 1;
    if (ct__emit_contiguous(c->e, c->value[which], index, var[n - 1])) return n - 1;
    return ct__emit_contiguous(c->e, c->value[which], index, var[first]) ? first : -1;
}

// Returns the distance in memory, in elements, between neighbours of a along the one of its last two
// positions that is not contiguous.
static int64_t contract_step_of_a(const contract *c) {
    ct_ix var[CT_MAX_RANK + 2], index[CT_MAX_RANK];
    const int n = contract_variable_index(c, A, var, index);
    const int other = contract_contiguous_axis(c, A) == n - 1 ? n - 2 : n - 1;
    return other < 0 ? 0 : ct__emit_stride(c->e, c->value[A], index, var[other]);
}

static bool contract_is_load(const contract *c, int which) {
    ct_ix var[CT_MAX_RANK + 2], index[CT_MAX_RANK];
    contract_variable_index(c, which, var, index);
    return ct__emit_is_load(c->e, c->value[which], index, c->dtype);
}

// Doubles the operand's position along which memory is contiguous, which counts pairs.
static void contract_scale_pair_axis(const contract *c, int which, ct_ix *at) {
    const int along = contract_contiguous_axis(c, which);
    if (along < 0) return; // out of memory: the kernel that is being built is dropped
    at[along] = ct__ix_mul(c->e->pool, at[along], ct__ix_int(c->e->pool, 2));
}

static bool contract_has_pairs(const contract *c, int which, ct_dtype *of) {
    ct_ix var[CT_MAX_RANK + 2], index[CT_MAX_RANK];
    if (c->dtype != CT_F32 || contract_contiguous_axis(c, which) < 0) return false;
    contract_variable_index(c, which, var, index);
    contract_scale_pair_axis(c, which, var);
    contract_index(c, which, var, index);
    return ct__emit_has_word(c->e, c->value[which], index, of) && (*of == CT_BF16 || *of == CT_F16);
}

static ct_kval contract_load_pair(void *env, ct_kir *k, const ct_kval *at) {
    (void)k;
    const side *s = env;
    const contract *c = s->c;
    ct_ix size[CT_MAX_RANK + 2], own[CT_MAX_RANK + 2], index[CT_MAX_RANK];
    const int n = contract_position_sizes(c, s->which, size);
    for (int i = 0; i < n; i++) own[i] = ct__emit_bind(c->e, at[i], size[i]);
    contract_scale_pair_axis(c, s->which, own);
    contract_index(c, s->which, own, index);
    return ct__emit_word(c->e, c->value[s->which], index);
}

// ------------------------------------------------------------------- bf16: pairs of steps of k

static int contract_k_position(const contract *c, int which) {
    return c->n_batch + (which == A ? 1 : 0);
}

// True if two steps of k of the operand can be loaded at once: as words of memory, or from two rows.
static bool contract_can_load_pairs(const contract *c, int which) {
    const int along = contract_contiguous_axis(c, which);
    ct_dtype of;
    return ct__type(c->value[which])->dtype == CT_BF16 && along >= 0 &&
           (along != contract_k_position(c, which) || contract_has_pairs(c, which, &of));
}

// True if a step of the template is a pair of bf16, for which the processor has an instruction. Convolutions,
// whose roles have several axes, and odd lengths use single steps, which form the same chain.
static bool contract_uses_pairs(const contract *c) {
    const int64_t inner = contract_role_size(c, &c->is.inner);
    const bool is_plain = c->is.rows.n && c->is.columns.n && !c->windows.channels;
    return c->e->target.pairs && c->uses_matmul && is_plain && c->inner_tail == c->is.inner.n &&
           c->column_tail == c->is.columns.n && c->result_tail == c->is.columns.n &&
           !ct__marked(inner) && inner > 0 && inner % 2 == 0 && contract_can_load_pairs(c, A) &&
           contract_can_load_pairs(c, B);
}

// Loads two elements, with the position along k counting pairs: the first one in the high half.
static ct_kval contract_load_two_steps(void *env, ct_kir *k, const ct_kval *at) {
    const side *s = env;
    const contract *c = s->c;
    ct_kval half = ct__kir_const_int(k, CT_U32, 16);
    if (contract_contiguous_axis(c, s->which) == contract_k_position(c, s->which)) {
        ct_kval word = contract_load_pair(env, k, at);
        return ct__kir_bin(k, CT_K_OR, ct__kir_bin(k, CT_K_SHL, word, half),
                           ct__kir_bin(k, CT_K_SHR, word, half));
    }
    ct_kval own[CT_MAX_RANK + 2], two[2];
    ct_ix size[CT_MAX_RANK + 2];
    const int n = contract_position_sizes(c, s->which, size),
              of_k = contract_k_position(c, s->which);
    for (int i = 0; i < 2; i++) {
        memcpy(own, at, sizeof *at * (size_t)n);
        own[of_k] = ct__kir_addi(k, ct__kir_muli(k, at[of_k], 2), i);
        two[i] = ct__kir_bitcast(k, contract_value(env, k, own), CT_U32);
    }
    return ct__kir_bin(k, CT_K_OR, two[0], ct__kir_bin(k, CT_K_SHR, two[1], half));
}

// True if the second operand is read as one line of memory along all columns. A tile has more than 16 of
// them.
static bool contract_b_is_line(const contract *c) {
    ct_ix var[CT_MAX_RANK + 2], index[CT_MAX_RANK];
    const int n = contract_variable_index(c, B, var, index);
    return contract_is_load(c, B) && ct__emit_undivided(c->e, c->value[B], index, var[n - 1], 0);
}

// True if the index has no quotient of `var`, so that lanes along it need no division. For the result, an
// epilogue's other operands are assumed to have its layout.
static bool contract_is_undivided(const contract *c, int which, const ct_ix *index, ct_ix var,
                                  int64_t group) {
    ct_ix_pool *pool = c->e->pool;
    ct_ix flat = ct__ix_int(pool, 0);
    if (which != OUT) return ct__emit_undivided(c->e, c->value[which], index, var, group);
    for (int a = 0; a < ct__type(c->value[OUT])->rank; a++) {
        flat = ct__ix_mul(pool, flat, ct__emit_size(c->e, c->value[OUT], a));
        flat = ct__ix_add(pool, flat, index[a]);
    }
    return !ct__ix_divides(pool, flat, var, group);
}

// Chooses how many trailing axes of a role the template flattens to one: as many as both operands that have
// them can be read along without a division. x: its last position.
static void contract_choose_tail(contract *c, const ct_role *role, int *tail, const int which[2]) {
    for (*tail = role->n; *tail > 1; --*tail) {
        bool fine = true;
        for (int i = 0; i < 2 && fine; i++) {
            ct_ix var[CT_MAX_RANK + 2], index[CT_MAX_RANK];
            template_role two[2];
            contract_operand_roles(c, which[i], two);
            const int n = contract_variable_index(c, which[i], var, index);
            const int last =
                two[0].role == role ? c->n_batch + contract_axis_count(&two[0]) - 1 : n - 1;
            // Runs over only some of the axes begin anywhere, so no group of lanes is aligned.
            fine = contract_is_undivided(c, which[i], index, var[last],
                                         *tail == role->n ? CT_LANES : 0);
        }
        if (fine) return;
    }
}

// Swaps the operands, so that rows become columns.
static void contract_swap_operands(contract *c) {
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
// If the second operand has no batch, all axes of the result except its columns become rows.
static void contract_batch_to_rows(contract *c) {
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

// Batch axes that the first operand does not depend on become columns, so that it is packed once for all of
// them: images of a convolution.
static void contract_batch_to_columns(contract *c) {
    ct_role batch = {0}, columns = {0};
    ct_ix var[CT_MAX_RANK + 2], index[CT_MAX_RANK];
    const ct_role old = c->is.batch;
    if (c->n_batch != old.n || !c->is.columns.n) return;
    contract_variable_index(c, A, var, index);
    for (int i = 0; i < old.n; i++)
        ct__role_add(ct__emit_without(c->e, c->value[A], index, var[i]) ? &columns : &batch,
                     old.of[A][i], old.of[B][i], old.of[OUT][i]);
    for (int i = 0; i < c->is.columns.n; i++)
        ct__role_add(&columns, c->is.columns.of[A][i], c->is.columns.of[B][i],
                     c->is.columns.of[OUT][i]);
    c->is.batch = batch;
    c->is.columns = columns;
}

// Writes the kernel for integers, which wrap, so that their sums may be in any order: a task is a row, and
// vectors run along the contiguous axis of b.
static void contract_write_int_kernel(ct_kir *k, const ct_matmul_spec *s) {
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
    ct__kir_end_n(k, 2);
}

// Adds the chunk's sum to the sum of the chunks before.
static void contract_add_chunk(ct_kir *k, ct_kval total, ct_kval chunk, ct_kval own) {
    ct_kval first = ct__kir_bin(k, CT_K_EQ, chunk, ct__kir_int(k, 0));
    ct_kval both = ct__kir_add(k, ct__kir_get(k, total), own);
    ct__kir_set(k, total, ct__kir_select(k, first, own, both));
}

// Sums 16 chunks of a long dot product of floats in parallel, each in its own order, and adds them to the
// total. Returns the number of chunks that were processed.
static ct_kval contract_sum_16_chunks(ct_kir *k, const ct_matmul_spec *s, ct_kval *of_a,
                                      ct_kval *of_b, ct_kval total) {
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
    contract_add_chunk(k, total, chunk, ct__kir_load(k, sums, c));
    ct__kir_end_n(k, 2);
    return ct__kir_muli(k, groups, CT_LANES);
}

// Returns the dot product of one row and one column, by chunks as in the matrix template. few: there are too
// few dot products for lanes to run along them.
static ct_kval contract_dot_product(ct_kir *k, const ct_matmul_spec *s, const ct_kval *batch,
                                    bool few) {
    const int n = s->n_batch;
    ct_kval of_a[CT_MAX_RANK], of_b[CT_MAX_RANK], none = ct__kir_int(k, 0);
    for (int i = 0; i < n; i++) of_a[i] = of_b[i] = batch[i];
    of_a[n] = batch[n];
    of_b[n + 1] = none;
    ct_kval zero =
        ct__is_float(s->dtype) ? ct__kir_const(k, s->dtype, 0) : ct__kir_const_int(k, s->dtype, 0);
    ct_kval total = ct__kir_reg(k, zero), most = ct__kir_int(k, CT_DOT_CHUNK), done = none;
    if (few && ct__is_float(s->dtype)) done = contract_sum_16_chunks(k, s, of_a, of_b, total);
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
    contract_add_chunk(k, total, chunk, ct__kir_get(k, part));
    ct__kir_end(k);
    return ct__kir_get(k, total);
}
// Writes the kernel for operands without axes of their own. Neither has rows or columns that lanes could
// share, so lanes run along the batch.
static void contract_write_dot_products(ct_kir *k, const ct_matmul_spec *s) {
    const int n = s->n_batch;
    ct_kval size[CT_MAX_RANK], at[CT_MAX_RANK], all = s->rows;
    int64_t count = 0;
    for (int i = 0; i < n; i++) size[i] = s->batch[i], all = ct__kir_mul(k, all, size[i]);
    size[n] = s->rows;
    const bool few = ct__kir_is_int(k, all, &count) && count < CT_LANES;
    const int64_t grain = few ? 1 : GRAIN;
    ct_kval block = ct__kir_loop(k, CT_BIND_ROWS, ct__kir_ceil_div(k, all, grain), "block");
    ct_kval from = ct__kir_muli(k, block, grain);
    ct_kval n_dots = ct__kir_min(k, ct__kir_sub(k, all, from), ct__kir_int(k, grain));
    ct_kval i = ct__kir_loop(k, few ? CT_BIND_SEQ : CT_BIND_LANES, n_dots, "dot product");
    ct__unflatten(k, ct__kir_add(k, from, i), n + 1, size, at);
    at[n + 1] = ct__kir_int(k, 0);
    ct__sink_store(k, &s->c, n + 2, at, contract_dot_product(k, s, at, few));
    ct__kir_end_n(k, 2);
}

// True if b is read along its columns while k steps through several axes, the last of which is long enough
// for a loop of its own, whose steps need no division.
static bool contract_loops_over_inner(contract *c) {
    enum { WORTH_A_LOOP = 8 };
    const template_role inner = {&c->is.inner, c->inner_tail};
    const int n = c->is.inner.n;
    if (n < 2 || contract_contiguous_axis(c, B) == c->n_batch + contract_axis_count(&inner) - 1)
        return false;
    const ct_type *a = ct__type(c->value[A]);
    const int last = c->is.inner.of[A][n - 1];
    return ct__is_dyn(a, last) || a->dim[last] >= WORTH_A_LOOP;
}

static void contract_set_sizes(contract *c) {
    c->n_batch = c->is.batch.n > CT_MAX_RANK - 2 ? 1 : c->is.batch.n;
    for (int i = 0; i < c->n_batch; i++) c->batch[i] = contract_axis_size(c, &c->is.batch, i);
    if (c->n_batch < c->is.batch.n) c->batch[0] = contract_flat_size(c, &c->is.batch);
    c->rows = contract_flat_size(c, &c->is.rows);
    c->columns = contract_flat_size(c, &c->is.columns);
    c->column_tail = c->result_tail = c->is.columns.n;
    c->inner_tail = c->is.inner.n;
}

// Computes the sizes, and chooses how many axes of each role the template has.
static void contract_choose_layout(contract *c) {
    contract_batch_to_rows(c);
    contract_set_sizes(c);
    contract_batch_to_columns(c);
    contract_set_sizes(c);
    if (!c->uses_matmul) return;
    contract_choose_tail(c, &c->is.columns, &c->column_tail, (int[]){B, B});
    contract_choose_tail(c, &c->is.columns, &c->result_tail, (int[]){OUT, OUT});
    contract_choose_tail(c, &c->is.inner, &c->inner_tail, (int[]){A, B});
    if (contract_loops_over_inner(c)) c->inner_tail = 1;
}

static int contract_last_position(const contract *c, int which) {
    ct_ix size[CT_MAX_RANK + 2];
    return contract_position_sizes(c, which, size) - 1;
}

// True if the columns are windows, there are more of them than rows, and they are summed over many positions,
// which are contiguous in both operands. As rows they are copied in runs of these positions, and fewer
// columns are transposed: the weights' gradient of a convolution.
static bool contract_prefers_swap(const contract *c) {
    enum { MANY = 1024 };
    const bool pieces = c->column_tail < c->is.columns.n || c->inner_tail < c->is.inner.n;
    if (!c->uses_matmul || !c->is.rows.n || !pieces ||
        contract_contiguous_axis(c, A) != contract_last_position(c, A))
        return false;
    const int64_t rows = contract_role_size(c, &c->is.rows),
                  columns = contract_role_size(c, &c->is.columns),
                  inner = contract_role_size(c, &c->is.inner);
    return !ct__marked(rows) && !ct__marked(columns) && rows < columns &&
           (ct__marked(inner) || inner >= MANY);
}

// Drops summed axes of size 1, so that a convolution of 1 x 1 is a plain product.
static void contract_drop_unit_axes(contract *c) {
    ct_role *inner = &c->is.inner, remaining = {0};
    const ct_type *a = ct__type(c->value[A]), *b = ct__type(c->value[B]);
    for (int i = 0; i < inner->n; i++)
        if (!ct__is_one(a, inner->of[A][i]) || !ct__is_one(b, inner->of[B][i]))
            ct__role_add(&remaining, inner->of[A][i], inner->of[B][i], inner->of[OUT][i]);
    *inner = remaining;
}

// Returns the stride if row axis `tap` is a step along windows whose positions are inner axis `position`,
// else 0. Then an element depends only on stride * position + tap, along which memory has a constant step.
static int64_t contract_window_stride(const contract *c, int tap, int position, int64_t *step) {
    // larger than the reach of any condition, so that none folds
    const int64_t large_extent = (int64_t)1 << 36;
    ct_emit *e = c->e;
    ct_ix_pool *p = e->pool;
    const ct_role *rows = &c->is.rows, *inner = &c->is.inner;
    ct_ix row[CT_MAX_RANK], at[CT_MAX_RANK], index[CT_MAX_RANK];
    for (int i = 0; i < rows->n; i++) row[i] = ct__ix_var(p, contract_axis_size(c, rows, i));
    for (int i = 0; i < inner->n; i++) at[i] = ct__ix_var(p, contract_axis_size(c, inner, i));
    ct_ix any = ct__ix_var(p, ct__ix_int(p, large_extent));
    row[tap] = any;
    for (int i = 0; i < ct__type(c->value[A])->rank; i++) index[i] = ct__ix_int(p, 0);
    contract_set_axes(c, rows, A, row, index);
    contract_set_axes(c, inner, A, at, index);
    *step = ct__emit_stride(e, c->value[A], index, row[tap]);
    const int64_t position_step = ct__emit_stride(e, c->value[A], index, at[position]);
    if (*step <= 0 || position_step <= 0 || position_step % *step) return 0;
    row[tap] =
        ct__ix_sub(p, any, ct__ix_mul(p, at[position], ct__ix_int(p, position_step / *step)));
    contract_set_axes(c, rows, A, row, index);
    return ct__emit_without(e, c->value[A], index, at[position]) ? position_step / *step : 0;
}

// True if the last of these axes of an operand, which has all of them, can be the taps of a window. Most
// products are rejected here.
static bool contract_may_have_taps(const contract *c, int which, const ct_role *role) {
    const int last = role->n - 1;
    if (!c->uses_matmul || c->is.batch.n || last < 0) return false;
    for (int i = 0; i <= last; i++)
        if (role->of[which][i] < 0) return false;
    return ct__type(c->value[which])->dim[role->of[which][last]] <= CT_TILE_ROWS;
}

// Matches rows that are channels and taps of windows, with columns of the second operand contiguous along k.
// Returns false if they are not.
static bool contract_match_windows(contract *c) {
    enum { MAX_STRIDE = 4 };
    if (!contract_may_have_taps(c, A, &c->is.rows)) return false;
    const ct_role *rows = &c->is.rows, *inner = &c->is.inner;
    const ct_type *a = ct__type(c->value[A]);
    if (c->is.columns.n != 1 || c->is.columns.of[B][0] < 0) return false;
    const int64_t all = contract_role_size(c, rows),
                  columns = contract_role_size(c, &c->is.columns);
    if (ct__marked(all) || ct__marked(columns) || !columns) return false;
    ct_matmul_windows w = {.taps = {1, 1}, .positions = {1, 1}, .stride = {1, 1}};
    int64_t step, n = 0;
    while (n < 2 && n < rows->n && n < inner->n) {
        const int tap = rows->n - 1 - (int)n, position = inner->n - 1 - (int)n;
        const int64_t taps = a->dim[rows->of[A][tap]];
        if (ct__is_dyn(a, inner->of[A][position])) break;
        const int64_t stride = contract_window_stride(c, tap, position, &step);
        // Other steps that fit are those of plain matrices.
        const bool fits = taps > stride || (taps == 1 && stride <= MAX_STRIDE);
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
        const template_role steps = {inner, c->inner_tail};
        if (contract_contiguous_axis(c, B) == contract_axis_count(&steps) - 1) break;
    }
    if (!c->inner_tail) {
        c->inner_tail = before;
        return false;
    }
    c->windows = w;
    return true;
}

static ct_kval contract_window_value(void *env, ct_kir *k, ct_kval channel, ct_kval image,
                                     const ct_kval *offset) {
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
        for (int i = 0; i < own; i++)
            all = ct__ix_mul(p, all, size[i] = contract_axis_size(c, roles[r], i));
        if (own) ct__unflatten_ix(p, ct__emit_bind(c->e, outer[r], all), size, own, at);
        for (int i = 0; i < n; i++) {
            const int a = 2 - n + i;
            const int64_t span = (w->positions[a] - 1) * w->stride[a] + w->taps[a];
            at[own + i] =
                r ? ct__ix_int(p, 0) : ct__emit_bind(c->e, offset[a], ct__ix_int(p, span));
        }
        contract_set_axes(c, roles[r], A, at, index);
    }
    return ct__emit_value_apart(c->e, c->value[A], index, c->dtype);
}

// Initialises the roles of the template for the node that e writes a kernel for.
static bool contract_init(contract *c, ct_emit *e, ct_node *node) {
    if (!e) return false;
    ct__emit_declare_sizes(e, node);
    // sums are rounded once, at the end
    *c = (contract){.e = e,
                    .value = {node->in[A], node->in[B], {node, 0}},
                    .dtype = ct__kir_compute_dtype(node->out->dtype),
                    .is = contract_roles(node)};
    c->inner = contract_flat_size(c, &c->is.inner);
    contract_drop_unit_axes(c);
    // one row instead of one column, so that lanes have work
    if (!c->is.columns.n && c->is.rows.n) contract_swap_operands(c);
    // Integers and dot products have their own loops.
    c->uses_matmul = c->is.columns.n && ct__is_float(node->out->dtype);
    contract_choose_layout(c);
    if (contract_match_windows(c)) return true;
    if (c->is.rows.n && contract_may_have_taps(c, B, &c->is.columns)) {
        contract_swap_operands(c);
        contract_choose_layout(c);
        if (contract_match_windows(c)) return true;
        contract_swap_operands(c);
        contract_choose_layout(c);
    }
    if (contract_prefers_swap(c)) {
        contract_swap_operands(c);
        contract_choose_layout(c);
        if (contract_contiguous_axis(c, A) == contract_last_position(c, A)) return true;
        contract_swap_operands(c);
        contract_choose_layout(c);
    }
    return true;
}

// ------------------------------------------------------------- panels: rows in memory order

// Computes the index of the first operand at a row, at `channel` of the last inner axis, and at the flat
// position `tap` of the other inner axes.
static void contract_tap_index(const contract *c, ct_ix row, ct_ix channel, int64_t tap,
                               ct_ix *to) {
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
    contract_set_flat_axes(c, &c->is.rows, A, row, to);
    contract_set_axes(c, inner, A, each, to);
}

static ct_kval contract_panel_value(void *env, ct_kir *k, ct_kval row, ct_kval from, int64_t more,
                                    int64_t tap) {
    (void)k;
    const contract *c = ((side *)env)->c;
    ct_ix_pool *p = c->e->pool;
    ct_ix index[CT_MAX_RANK], channel = contract_axis_size(c, &c->is.inner, c->is.inner.n - 1);
    channel = ct__ix_add(p, ct__emit_bind(c->e, from, channel), ct__ix_int(p, more));
    contract_tap_index(c, ct__emit_bind(c->e, row, c->rows), channel, tap, index);
    return ct__emit_value_apart(c->e, c->value[A], index, c->dtype);
}

// True if in each row the taps of a channel are adjacent in memory, and the channels follow one another.
static bool contract_taps_are_adjacent(const contract *c, int64_t taps) {
    ct_ix_pool *p = c->e->pool;
    const ct_role *inner = &c->is.inner;
    ct_ix size[CT_MAX_RANK], each[CT_MAX_RANK], index[CT_MAX_RANK];
    const ct_type *a = ct__type(c->value[A]);
    ct_ix step = ct__ix_var(p, c->inner), tap_count = ct__ix_int(p, taps);
    for (int i = 0; i < inner->n; i++) size[i] = contract_axis_size(c, inner, i);
    ct__unflatten_ix(p, ct__ix_mod(p, step, tap_count), size, inner->n - 1, each);
    each[inner->n - 1] = ct__ix_div(p, step, tap_count);
    for (int i = 0; i < a->rank; i++) index[i] = ct__ix_int(p, 0);
    contract_set_flat_axes(c, &c->is.rows, A, ct__ix_var(p, c->rows), index);
    contract_set_axes(c, inner, A, each, index);
    return ct__emit_contiguous(c->e, c->value[A], index, step);
}

// Returns the product of the sizes of all summed axes but the last, if it is small and all sizes are static;
// else 0.
static int64_t contract_count_taps(const contract *c) {
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

// Returns the number of taps of a channel that are adjacent in a row, if all channels follow one another and
// the product is computed by panels; else 0. This matches the weights of a convolution, and other operands
// with one tap.
static int64_t contract_panel_taps(const contract *c) {
    if (!c->uses_matmul || c->n_batch || !c->is.rows.n || !c->is.inner.n || !contract_is_load(c, A))
        return 0;
    const int64_t taps = contract_count_taps(c), rows = contract_role_size(c, &c->is.rows),
                  columns = contract_role_size(c, &c->is.columns);
    if (!taps || ct__marked(rows) || ct__marked(columns) ||
        !ct__matmul_has_panels(rows, columns, contract_role_size(c, &c->is.inner), taps))
        return 0;
    return contract_taps_are_adjacent(c, taps) ? taps : 0;
}

// ------------------------------------------------------------------- prepacking: rows in order of k

// True if storing the first operand in packed form is worth a launch of its own. If neither its rows nor k
// are contiguous, packing gathers, and every task that uses the rows would gather again: weights of a
// convolution.
static bool contract_needs_prepack(const contract *c) {
    // columns of a task; number of gathers that cost more than a launch
    enum { COLUMNS = 384, WORTH = 1 << 16 };
    const ct_role *const own[] = {&c->is.batch, &c->is.rows, &c->is.inner};
    const ct_type *a = ct__type(c->value[A]);
    double size = 1;
    if (!c->uses_matmul || !c->is.rows.n || contract_contiguous_axis(c, A) >= 0) return false;
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < own[r]->n; i++) {
            const int axis = own[r]->of[A][i], out = own[r]->of[OUT][i];
            const bool one = out >= 0 && ct__is_one(ct__type(c->value[OUT]), out);
            if (axis < 0 || (out >= 0 && ct__is_one(a, axis) && !one)) return false;
            size *= (double)a->dim[axis];
        }
    const int64_t rows = contract_role_size(c, &c->is.rows),
                  columns = contract_role_size(c, &c->is.columns);
    if (!ct__marked(rows) && rows <= CT_FEW_ROWS) return false;
    const double tasks = ct__marked(columns) ? 8 : (double)(columns / COLUMNS);
    return size * (tasks < 1 ? 1 : tasks) >= WORTH;
}

// Returns the number of taps if the taps of neighbouring rows are adjacent in memory, in whole vectors for 16
// channels; else 0. This matches the weights as the gradient of a convolution reads them, which sums over
// output channels.
static int64_t contract_taps_across_rows(const contract *c) {
    ct_ix_pool *p = c->e->pool;
    const ct_role *inner = &c->is.inner;
    ct_ix size[CT_MAX_RANK], each[CT_MAX_RANK], index[CT_MAX_RANK];
    const ct_type *a = ct__type(c->value[A]);
    const int64_t taps = inner->n ? contract_count_taps(c) : 0,
                  rows = contract_role_size(c, &c->is.rows);
    if (!taps || c->n_batch || ct__marked(rows) || rows % CT_LANES || !contract_is_load(c, A) ||
        a->dim[inner->of[A][inner->n - 1]] % CT_LANES)
        return 0;
    ct_ix step = ct__ix_var(p, ct__ix_int(p, rows * taps)), many = ct__ix_int(p, taps);
    for (int i = 0; i < inner->n; i++) size[i] = contract_axis_size(c, inner, i);
    ct__unflatten_ix(p, ct__ix_mod(p, step, many), size, inner->n - 1, each);
    each[inner->n - 1] = ct__ix_var(p, size[inner->n - 1]);
    for (int i = 0; i < a->rank; i++) index[i] = ct__ix_int(p, 0);
    contract_set_flat_axes(c, &c->is.rows, A, ct__ix_div(p, step, many), index);
    contract_set_axes(c, inner, A, each, index);
    return ct__emit_contiguous(c->e, c->value[A], index, step) ? taps : 0;
}

// Prepacks those 16 rows and 16 channels at a time, transposed in registers.
static void contract_prepack_transposed(const contract *c, int to, int64_t taps) {
    ct_emit *e = c->e;
    ct_ix_pool *p = e->pool;
    ct_kir *k = e->kir;
    const int64_t rows = contract_role_size(c, &c->is.rows),
                  channels = contract_role_size(c, &c->is.inner) / taps;
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
            contract_tap_index(c, row, own, (some + i) % taps, index);
            x[i] = ct__emit_value_apart(e, c->value[A], index, c->dtype);
        }
        for (int64_t i = 0; i < CT_LANES; i++) {
            const int64_t row = (some + i) / taps, tap = (some + i) % taps;
            ct__kir_store(k, to, ct__kir_addi(k, at[tap], row * CT_DOT_CHUNK), x[i]);
        }
    }
    for (int i = 0; i < 3; i++) ct__kir_end(k);
}

// Writes the launch that prepacks the first operand: (batch..., chunk of k, row, CT_DOT_CHUNK).
static bool contract_prepack(ct_sched *s, ct_node *node, uint32_t temp) {
    contract c;
    if (!contract_init(&c, ct__emit_new(s, node), node)) return false;
    ct_emit *e = c.e;
    ct_ix_pool *p = e->pool;
    const int64_t taps = contract_taps_across_rows(&c);
    if (taps > 1) {
        contract_prepack_transposed(&c, ct__emit_temp(e, temp, c.dtype, CT_KIR_WRITE), taps);
        return ct__emit_done(e, 0);
    }
    ct_ix size[CT_MAX_RANK + 2], at[CT_MAX_RANK + 2], index[CT_MAX_RANK];
    const int n = contract_position_sizes(&c, A, size), first = c.n_batch + 1;
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
    contract_index(&c, A, at, index);
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

// Returns the size of the prepacked operand in bytes.
static int64_t contract_prepacked_size(const contract *c) {
    const int64_t each = c->dtype == CT_F64 ? 8 : 4;
    int64_t n = ct__size_div_up(contract_role_size(c, &c->is.inner), CT_DOT_CHUNK);
    n = ct__size_mul(n, contract_role_size(c, &c->is.rows));
    n = ct__size_mul(n, contract_role_size(c, &c->is.batch));
    return ct__size_mul(ct__size_add(n, CT_TILE_ROWS), CT_DOT_CHUNK * each);
}

// There is one inner axis in this case.
static void contract_write_pair_kernel(const contract *c, ct_matmul_spec *spec) {
    ct_kir *k = c->e->kir;
    spec->pairs = true;
    spec->inner = ct__kir_div(k, spec->inner, ct__kir_int(k, 2));
    spec->a.value = spec->b.value = contract_load_two_steps;
    spec->a.is_load = false;
    spec->b.is_load = spec->b.is_load && spec->b.along == contract_k_position(c, B);
    spec->b.pair = NULL;
    ct__template_matmul(k, spec);
}

static bool contraction_kernels(ct_sched *s, ct_node *node) {
    contract c;
    if (!contract_init(&c, ct__emit_new(s, node), node)) return false;
    ct_emit *e = c.e;
    const ct_type *out = &node->out[0];
    ct_kval batch[CT_MAX_RANK], column_axis[CT_MAX_RANK], inner_axis[CT_MAX_RANK],
        result_axis[CT_MAX_RANK];
    const template_role columns = {&c.is.columns, c.column_tail},
                        inner = {&c.is.inner, c.inner_tail},
                        result = {&c.is.columns, c.result_tail};
    for (int i = 0; i < c.n_batch; i++) batch[i] = ct__emit_ix(e, c.batch[i]);
    for (int i = 0; i < contract_axis_count(&columns); i++)
        column_axis[i] = ct__emit_ix(e, contract_template_size(&c, &columns, i));
    for (int i = 0; i < contract_axis_count(&result); i++)
        result_axis[i] = ct__emit_ix(e, contract_template_size(&c, &result, i));
    for (int i = 0; i < contract_axis_count(&inner); i++)
        inner_axis[i] = ct__emit_ix(e, contract_template_size(&c, &inner, i));
    side sides[2] = {{&c, A}, {&c, B}};
    ct_dtype pair_of = CT_DEFAULT;
    ct_matmul_spec spec = {
        .dtype = c.dtype,
        .n_batch = c.n_batch,
        .batch = batch,
        .rows = ct__emit_ix(e, c.rows),
        .columns = ct__emit_ix(e, c.columns),
        .inner = ct__emit_ix(e, c.inner),
        .n_column_axes = contract_axis_count(&columns),
        .n_inner_axes = contract_axis_count(&inner),
        .n_result_axes = contract_axis_count(&result),
        .column_axis = column_axis,
        .inner_axis = inner_axis,
        .result_axis = result_axis,
        .a = {.value = contract_value,
              .env = &sides[A],
              .along = contract_contiguous_axis(&c, A),
              .is_load = contract_is_load(&c, A),
              .step = contract_step_of_a(&c)},
        .b = {.value = contract_value,
              .env = &sides[B],
              .along = contract_contiguous_axis(&c, B),
              .is_load = contract_b_is_line(&c),
              .pair = contract_has_pairs(&c, B, &pair_of) ? contract_load_pair : NULL,
              .pair_of = pair_of},
        .c = {.store = contract_store, .env = &c},
        .target = e->target,
    };
    if (c.windows.channels) {
        c.windows.value = contract_window_value;
        spec.windows = &c.windows;
        ct__template_windows(e->kir, &spec);
        return ct__emit_done(e, 2.0 * (double)ct__count(out) * contract_inner_count(node));
    }
    if (contract_uses_pairs(&c)) {
        contract_write_pair_kernel(&c, &spec);
        return ct__emit_done(e, 2.0 * (double)ct__count(out) * contract_inner_count(node));
    }
    spec.a_taps = contract_panel_taps(&c);
    spec.a_in_memory = contract_panel_value;
    const uint32_t temp = !spec.a_taps && contract_needs_prepack(&c)
                              ? ct__sched_temp(s, contract_prepacked_size(&c))
                              : UINT32_MAX;
    bool ok = true;
    if (temp != UINT32_MAX) {
        ok = contract_prepack(s, node, temp);
        spec.a = (ct_source){.buf = ct__emit_temp(e, temp, c.dtype, CT_KIR_READ)};
        spec.a_packed = true;
    }
    if (!c.is.columns.n)
        contract_write_dot_products(e->kir, &spec);
    else if (spec.a_taps)
        ct__template_panels(e->kir, &spec);
    else if (ct__is_float(out->dtype))
        ct__template_matmul(e->kir, &spec);
    else
        contract_write_int_kernel(e->kir, &spec);
    return ct__emit_done(e, 2.0 * (double)ct__count(out) * contract_inner_count(node)) && ok;
}

static double contraction_roundings(const ct_node *node, bool in_order) {
    const double k = contract_inner_count(node);
    if (!ct__is_float(node->out->dtype)) return 0;
    return in_order ? k : fmin(k, CT_DOT_CHUNK) + k / CT_DOT_CHUNK;
}

// --------------------------------------------------------------------------------------- reference

// Returns the offsets, from the first element, of the elements along the axes of a role in an operand or the
// result.
static int64_t *contract_ref_offsets(const ct_ref *ref, const ct_role *role, int which,
                                     int64_t *n) {
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

// Loads an element in the dtype of the sums, also if the operands are integers.
static double contract_ref_load(const ct_type *type, const void *data, int64_t at, bool narrow) {
    const double x = ct__load_f64(type->dtype, data, at);
    return narrow ? (double)(float)x : x;
}

static void contract_ref_dot(const ct_ref *ref, const int64_t at[3], const int64_t *along_a,
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
        sum += contract_ref_load(a, ref->in[A], at[A] + along_a[k], narrow) *
               contract_ref_load(b, ref->in[B], at[B] + along_b[k], narrow);
    ct__store_f64(dtype, ref->out[0], at[OUT], sum);
}

static bool contraction_eval(const ct_ref *ref) {
    const ct_contraction is = contract_roles(ref->node);
    const ct_role *const roles[] = {&is.batch, &is.rows, &is.columns, &is.inner};
    int64_t n[4], *at[4][3];
    bool ok = true;
    for (int r = 0; r < 4; r++)
        for (int w = 0; w < 3; w++)
            ok = (at[r][w] = contract_ref_offsets(ref, roles[r], w, &n[r])) && ok;
    for (int64_t m = 0; m < n[0] && ok; m++)
        for (int64_t i = 0; i < n[1]; i++)
            for (int64_t j = 0; j < n[2]; j++) {
                int64_t first[3];
                for (int w = 0; w < 3; w++) first[w] = at[0][w][m] + at[1][w][i] + at[2][w][j];
                contract_ref_dot(ref, first, at[3][A], at[3][B], n[3]);
            }
    for (int r = 0; r < 4; r++)
        for (int w = 0; w < 3; w++) ct__free(at[r][w]);
    return ok || ct__err_memory(ref->err, ref->node->here, ref->node->op->name, 0);
}

// If only the second operand has the batch and both are matrices, it becomes the rows of one product, with
// everything transposed: (B, K, N) and (M, K) as (B, N, K) and (K, M). If only the first has it, the batch is
// among its rows.
static bool contraction_batch(ct_batching *b) {
    const ct_type *x = ct__type(b->node->in[0]), *y = ct__type(b->node->in[1]);
    const int rank = b->node->out->rank;
    ct_tensor in[2] = {ct__batch_aligned(b, 0, rank), ct__batch_aligned(b, 1, rank)};
    bool swapped = !b->batched[0] && x->rank == 2 && y->rank == 2;
    if (swapped) {
        in[0] = ct__batch_move(b, b->in[1], 3, 1, 2);
        in[1] = ct__batch_move(b, b->in[0], 2, 0, 1);
    }
    if (!ct__batch_record(b, b->attrs, in)) return false;
    if (swapped) b->out[0] = ct__batch_move(b, b->out[0], 3, 1, 2);
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
    .products = contract_inner_count,
    .eval = contraction_eval,
    .batch = contraction_batch,
};
