// Products of rows in consecutive groups, each of which has a matrix of its own; the numbers of rows per
// group are data. Rows are laid out in blocks of one group each, the last block of a group padded with
// zeros; a loop multiplies one block per iteration. So the memory is that of operands and results, and the
// work that of the rows plus at most one block per group.
#include "ops/rules.h"

enum { MIN_ROWS = 16, MAX_ROWS = 256 }; // of a block

// The rows of the blocks. (G) groups, (P) blocks.
typedef struct ragged_layout {
    int64_t n_rows, n_groups, n_blocks, rows; // rows: of a block
    ct_tensor start, end;                     // (G,) rows of the group
    ct_tensor first, last;                    // (G,) blocks of the group
    ct_tensor group;                          // (P,) the last group for blocks after all groups
    ct_tensor row_index;                      // (P, rows) index of the row in a; -1: none
} ragged_layout;

static ct_tensor ragged_size(int64_t n) { return ct__size_number(n, CT_I64); }
static ct_tensor ragged_of_group(ct_tensor values, ct_tensor group) {
    return ct_gather(values, group);
}

static ragged_layout ragged_lay_out(ct_tensor a, ct_tensor sizes) {
    ragged_layout l = {
        .n_rows = ct__size_like(a, 0), .n_groups = ct__size_like(sizes, 0), .rows = MIN_ROWS};
    const int64_t rows = ct__unmarked(l.n_rows), groups = ct__unmarked(l.n_groups);
    const bool known = !ct__marked(l.n_rows) && !ct__marked(l.n_groups);
    while (l.rows < MAX_ROWS && known && l.rows * groups < rows) l.rows *= 2;
    l.n_blocks = ct__size_add(ct__size_div_up(l.n_rows, l.rows), l.n_groups);
    ct_tensor n_rows = ragged_size(l.n_rows), zero = ct_i(0);
    ct_tensor given = ct_minimum(ct_maximum(ct_cast(sizes, CT_I64), zero), n_rows); // (G,)
    ct_tensor sum = ct_cumsum(given);
    l.end = ct_minimum(sum, n_rows);
    l.start = ct_minimum(ct_sub(sum, given), n_rows);
    ct_tensor own = ct_sub(l.end, l.start);
    ct_tensor blocks = ct_div(ct_add(own, ct_i(l.rows - 1)), ct_i(l.rows));
    l.last = ct_cumsum(blocks);
    l.first = ct_sub(l.last, blocks);
    ct_tensor block = ct_iota(CT_I64, CT_DIMS(l.n_blocks), 0); // (P,)
    ct_tensor group = ct_cast(ct_searchsorted(l.last, block, .right = true), CT_I64);
    ct_tensor used = ct_less(group, ragged_size(l.n_groups));
    l.group = ct_minimum(group, ct_sub(ragged_size(l.n_groups), ct_i(1)));
    ct_tensor from = ct_mul(ct_sub(block, ragged_of_group(l.first, l.group)), ct_i(l.rows));
    from = ct_add(from, ragged_of_group(l.start, l.group));
    ct_tensor end = ct_select(used, ragged_of_group(l.end, l.group), zero);
    ct_tensor row = ct_add(ct__add_last(from), ct_iota(CT_I64, CT_DIMS(l.rows), 0)); // (P, rows)
    l.row_index = ct_select(ct_less(row, ct__add_last(end)), row, ct_i(-1));
    return l;
}
// Gathers the rows (M, K) to blocks (P, rows, K).
static ct_tensor ragged_to_blocks(const ragged_layout *l, ct_tensor t) {
    return ct_gather(t, l->row_index, .zero_outside = true);
}
// Gathers the blocks (P, rows, N) to rows (M, N); rows that are in no group are 0.
static ct_tensor ragged_to_rows(const ragged_layout *l, ct_tensor t) {
    ct_tensor row = ct_iota(CT_I64, CT_DIMS(l->n_rows), 0); // (M,)
    ct_tensor group = ct_cast(ct_searchsorted(l->end, row, .right = true), CT_I64);
    ct_tensor used = ct_less(group, ragged_size(l->n_groups));
    group = ct_minimum(group, ct_sub(ragged_size(l->n_groups), ct_i(1)));
    ct_tensor position = ct_mul(ragged_of_group(l->first, group), ct_i(l->rows));
    position = ct_add(position, ct_sub(row, ragged_of_group(l->start, group)));
    const int64_t all = ct__size_mul(l->n_blocks, l->rows);
    return ct_gather(ct_reshape(t, CT_DIMS(all, ct__size_like(t, 2))),
                     ct_select(used, position, ct_i(-1)), .zero_outside = true);
}

static ct_tensor ragged_index(ct_tensor t, ct_tensor i) { // t[i] of (G, R, C)
    ct_tensor one = ct_dynamic_slice(t, i, .axes = CT_AXES(0), .sizes = CT_DIMS(1));
    return ct_reshape(one, CT_DIMS(ct__size_like(t, 1), ct__size_like(t, 2)));
}
static ct_tensor ragged_cast(ct_tensor t, const ct_rule *r) {
    const ct_dtype dtype = (ct_dtype)r->node->out->dtype;
    return (ct_dtype)ct__type_of(t)->dtype == dtype ? t : ct_cast(t, dtype);
}

// Checks the operands a, b and sizes; a and b have `ranks` axes.
static bool ragged_check_operands(ct_call *call, int ranks[2], ct_dtype *dtype) {
    const ct_type *a = call->in[0], *b = call->in[1], *sizes = call->in[2];
    if (!ct__check_accepts(call, 0) || !ct__check_accepts(call, 1) ||
        !ct__check_integers(call, 2, "sizes of groups"))
        return false;
    if (a->rank != ranks[0] || b->rank != ranks[1] || sizes->rank != 1)
        return ct__call_err(call, CT_E_SHAPE, "a is %s, b is %s, sizes are %s", ct__type_text(a).s,
                            ct__type_text(b).s, ct__type_text(sizes).s) ||
               ct__call_hint(call, "they are (M, K), %s and (G,)",
                             ranks[1] == 3 ? "(G, K, N)" : "(M, N)");
    *dtype = ct__promote(a->dtype, a->weak, b->dtype, b->weak);
    if (*dtype == CT_DEFAULT) return ct__no_promotion(call, (ct_dtype)a->dtype, (ct_dtype)b->dtype);
    if (sizes->dim[0] == 0)
        return ct__call_err(call, CT_E_SHAPE, "there is no group: sizes are %s",
                            ct__type_text(sizes).s);
    return true;
}
static bool ragged_sizes_differ(ct_call *call, const char *what, int i, int axis, int k,
                                int other) {
    const ct_type *x = call->in[i], *y = call->in[k];
    static const char *const names[3] = {"a", "b", "sizes"};
    if (x->dim[axis] == y->dim[other]) return (void)ct__same_size(x, axis, y, other), false;
    ct__call_err(call, CT_E_SHAPE, "%s differ: %s is %s, %s %s %s", what, names[i],
                 ct__type_text(x).s, names[k], k == 2 ? "are" : "is", ct__type_text(y).s);
    return true;
}

// Checks that a has enough rows for all groups, as far as sizes are constants.
static bool ragged_check_rows(ct_call *call) {
    const ct_type *a = call->in[0], *sizes = call->in[2];
    if (!call->vals || call->vals[2].node->op != &ct__op_const || ct__is_dyn(a, 0)) return true;
    const ct_data_bytes *data = call->vals[2].node->attrs;
    uint64_t sum = 0;
    for (int64_t i = 0; i < sizes->dim[0]; i++) {
        const int64_t size = ct__load_i64((ct_dtype)sizes->dtype, data->bytes, i);
        if (size > 0) sum += (uint64_t)size;
        if (sum > INT64_MAX) break; // adding the next size could overflow
    }
    return sum <= (uint64_t)a->dim[0] ||
           ct__call_err(call, CT_E_SHAPE, "the groups have %llu rows, a %s has %lld",
                        (unsigned long long)sum, ct__type_text(a).s, (long long)a->dim[0]);
}

// ---------------------------------------------------------------------------------- ragged_matmul

static bool ragged_matmul_infer(ct_call *call) {
    ct_dtype dtype;
    if (!ragged_check_operands(call, (int[]){2, 3}, &dtype) ||
        ragged_sizes_differ(call, "inner sizes", 0, 1, 1, 1) ||
        ragged_sizes_differ(call, "numbers of groups", 1, 0, 2, 0) || !ragged_check_rows(call))
        return false;
    ct_shape shape = ct__call_shape(call, 2);
    if (!shape.dim) return false;
    ct__shape_add_axis(&shape, call->in[0], 0);
    ct__shape_add_axis(&shape, call->in[1], 2);
    return ct__set_out(call, &shape, dtype, false);
}

static void ragged_matmul_loop_body(const ct_tensor *in, ct_tensor *out, void *user) {
    const ct_tensor *b = user;
    out[0] = ct_matmul(in[0], ragged_index(*b, in[1]));
}
static bool ragged_matmul_body(ct_rule *r) {
    ct_tensor a = ragged_cast(r->in[0], r), b = ragged_cast(r->in[1], r), y;
    const ragged_layout l = ragged_lay_out(a, r->in[2]);
    const ct_tensor xs[2] = {ragged_to_blocks(&l, a), l.group};
    ct_scan_with((ct_scan_args){.body = ragged_matmul_loop_body,
                                .user = &b,
                                .xs = xs,
                                .n_xs = 2,
                                .n_ys = 1,
                                .here = r->node->here},
                 NULL, &y);
    return ct__set_body(r, ragged_to_rows(&l, y));
}

static ct_tensor ragged_record_op(const ct_rule *r, ct_tensor a, ct_tensor b) {
    return ct__record(r->node->op, r->attrs, (const ct_tensor[]){a, b, r->in[2]}, 3, r->node->here);
}
static bool ragged_jvp(ct_rule *r) {
    const ct_tensor a = r->t_in[0], b = r->t_in[1];
    return ct__set_tangent(
        r, ct__add_zero(ct__is_none(a) ? CT_NONE : ragged_record_op(r, a, r->in[1]),
                        ct__is_none(b) ? CT_NONE : ragged_record_op(r, r->in[0], b)));
}
static bool ragged_matmul_vjp(ct_rule *r) {
    r->c_in[0] = ct_ragged_matmul(r->c_out[0], ct__swap_last(r->in[1]), r->in[2]);
    r->c_in[1] = ct_ragged_outer(r->in[0], r->c_out[0], r->in[2]);
    return true;
}
const ct_opdef ct__op_ragged_matmul = {
    CT_COMPOSED(RAGGED_MATMUL, ragged_matmul, 3, 1),
    .doc = "Rows of a, (M, K), in consecutive groups of `sizes`, (G,) integers, each times its own "
           "matrix of b, (G, K, N): experts, sequences of several lengths. Groups end where a "
           "does, a size below 0 is 0, and rows after the last group are 0 in the result. Constant "
           "sizes (ct_const) of more rows than a has are an error.",
    .accepts = CT_NUMBERS,
    .widens = true,
    .jvp = ragged_jvp,
    .vjp = ragged_matmul_vjp,
    .autocast = CT_CAST_LOW,
};

// ----------------------------------------------------------------------------------- ragged_outer

static bool ragged_outer_infer(ct_call *call) {
    ct_dtype dtype;
    if (!ragged_check_operands(call, (int[]){2, 2}, &dtype) ||
        ragged_sizes_differ(call, "numbers of rows", 0, 0, 1, 0) || !ragged_check_rows(call))
        return false;
    ct_shape shape = ct__call_shape(call, 3);
    if (!shape.dim) return false;
    ct__shape_add_axis(&shape, call->in[2], 0);
    ct__shape_add_axis(&shape, call->in[0], 1);
    ct__shape_add_axis(&shape, call->in[1], 1);
    return ct__set_out(call, &shape, dtype, false);
}

static void ragged_outer_add_block(const ct_tensor *in, ct_tensor *out, void *user) {
    const ct_tensor *blocks = user;
    ct_tensor a = ragged_index(blocks[0], in[0]), b = ragged_index(blocks[1], in[0]);
    out[0] = ct_add(in[1], ct_contract(a, b, .a_axes = CT_AXES(0), .b_axes = CT_AXES(0)));
}
static void ragged_outer_group(const ct_tensor *in, ct_tensor *out, void *user) {
    const ct_tensor *blocks = user;
    const int64_t dims[2] = {ct__size_like(blocks[0], 2), ct__size_like(blocks[1], 2)};
    ct_tensor sum = ct_zeros((ct_dtype)ct__type_of(blocks[0])->dtype, ((ct_ints){2, dims}));
    ct_fori(&out[0], .body = ragged_outer_add_block, .user = user, .lower_value = in[0],
            .upper_value = in[1], .carry = &sum, .n_carry = 1);
}
static bool ragged_outer_body(ct_rule *r) {
    ct_tensor a = ragged_cast(r->in[0], r), b = ragged_cast(r->in[1], r);
    const ragged_layout l = ragged_lay_out(a, r->in[2]);
    ct_tensor blocks[2] = {ragged_to_blocks(&l, a), ragged_to_blocks(&l, b)};
    const ct_tensor xs[2] = {l.first, l.last};
    ct_scan_with((ct_scan_args){.body = ragged_outer_group,
                                .user = blocks,
                                .xs = xs,
                                .n_xs = 2,
                                .n_ys = 1,
                                .here = r->node->here},
                 NULL, &r->body_out[0]);
    return true;
}
static bool ragged_outer_vjp(ct_rule *r) {
    r->c_in[0] = ct_ragged_matmul(r->in[1], ct__swap_last(r->c_out[0]), r->in[2]);
    r->c_in[1] = ct_ragged_matmul(r->in[0], r->c_out[0], r->in[2]);
    return true;
}
const ct_opdef ct__op_ragged_outer = {
    CT_COMPOSED(RAGGED_OUTER, ragged_outer, 3, 1),
    .doc = "For each group of rows, as in ct_ragged_matmul, the transpose of a's rows, of (M, K), "
           "times b's, of (M, N): (G, K, N), 0 where a group has no rows. Gradients with respect "
           "to the matrices of ct_ragged_matmul are computed with it. Inside ct_vmap it is a loop "
           "whose number of iterations is data, which ct_grad does not support: record a call for "
           "each sample instead.",
    .accepts = CT_NUMBERS,
    .widens = true,
    .jvp = ragged_jvp,
    .vjp = ragged_outer_vjp,
    .autocast = CT_CAST_LOW,
};
