// Products of rows that lie in consecutive groups, of which each has a matrix of its own: how many
// rows a group has is data. Rows are laid out as blocks of one group each, the last of a group filled
// up with zeros; a loop multiplies a block a turn. So memory is that of operands and results, and work
// that of the rows, but for one block a group.
#include "ops/rules.h"

enum { LEAST_ROWS = 16, MOST_ROWS = 256 }; // of a block

// Which rows the blocks have. (G) of groups, (P) of blocks.
typedef struct layout {
    int64_t n_rows, n_groups, n_blocks, rows; // rows: of a block
    ct_tensor start, end;                     // (G,) the group's rows
    ct_tensor first, last;                    // (G,) its blocks
    ct_tensor group;                          // (P,) of a block behind all: the last one
    ct_tensor place;                          // (P, rows) which row of a; -1: none
} layout;

static ct_tensor whole(int64_t n) { return ct__size_number(n, CT_I64); }
static ct_tensor in_groups(ct_tensor of_groups, ct_tensor group) {
    return ct_gather(of_groups, group);
}

static layout lay_out(ct_tensor a, ct_tensor sizes) {
    layout l = {
        .n_rows = ct__size_like(a, 0), .n_groups = ct__size_like(sizes, 0), .rows = LEAST_ROWS};
    const int64_t rows = ct__unmarked(l.n_rows), groups = ct__unmarked(l.n_groups);
    const bool known = !ct__marked(l.n_rows) && !ct__marked(l.n_groups);
    while (l.rows < MOST_ROWS && known && l.rows * groups < rows) l.rows *= 2;
    l.n_blocks = ct__size_add(ct__size_div_up(l.n_rows, l.rows), l.n_groups);
    ct_tensor most = whole(l.n_rows), zero = ct_i(0);
    ct_tensor given = ct_minimum(ct_maximum(ct_cast(sizes, CT_I64), zero), most); // (G,)
    ct_tensor sum = ct_cumsum(given);
    l.end = ct_minimum(sum, most);
    l.start = ct_minimum(ct_sub(sum, given), most);
    ct_tensor own = ct_sub(l.end, l.start);
    ct_tensor blocks = ct_div(ct_add(own, ct_i(l.rows - 1)), ct_i(l.rows));
    l.last = ct_cumsum(blocks);
    l.first = ct_sub(l.last, blocks);
    ct_tensor block = ct_iota(CT_I64, CT_DIMS(l.n_blocks), 0); // (P,)
    ct_tensor group = ct_cast(ct_searchsorted(l.last, block, .right = true), CT_I64);
    ct_tensor used = ct_less(group, whole(l.n_groups));
    l.group = ct_minimum(group, ct_sub(whole(l.n_groups), ct_i(1)));
    ct_tensor from = ct_mul(ct_sub(block, in_groups(l.first, l.group)), ct_i(l.rows));
    from = ct_add(from, in_groups(l.start, l.group));
    ct_tensor end = ct_select(used, in_groups(l.end, l.group), zero);
    ct_tensor row = ct_add(ct__add_last(from), ct_iota(CT_I64, CT_DIMS(l.rows), 0)); // (P, rows)
    l.place = ct_select(ct_less(row, ct__add_last(end)), row, ct_i(-1));
    return l;
}
// (M, K) as (P, rows, K).
static ct_tensor in_blocks(const layout *l, ct_tensor t) {
    return ct_gather(t, l->place, .zero_outside = true);
}
// (P, rows, N) as (M, N); rows that are in no group are 0.
static ct_tensor in_rows(const layout *l, ct_tensor t) {
    ct_tensor row = ct_iota(CT_I64, CT_DIMS(l->n_rows), 0); // (M,)
    ct_tensor group = ct_cast(ct_searchsorted(l->end, row, .right = true), CT_I64);
    ct_tensor used = ct_less(group, whole(l->n_groups));
    group = ct_minimum(group, ct_sub(whole(l->n_groups), ct_i(1)));
    ct_tensor place = ct_mul(in_groups(l->first, group), ct_i(l->rows));
    place = ct_add(place, ct_sub(row, in_groups(l->start, group)));
    const int64_t all = ct__size_mul(l->n_blocks, l->rows);
    return ct_gather(ct_reshape(t, CT_DIMS(all, ct__size_like(t, 2))),
                     ct_select(used, place, ct_i(-1)), .zero_outside = true);
}

static ct_tensor one_of(ct_tensor t, ct_tensor i) { // (..., R, C) at i
    ct_tensor one = ct_dynamic_slice(t, i, .axes = CT_AXES(0), .sizes = CT_DIMS(1));
    return ct_reshape(one, CT_DIMS(ct__size_like(t, 1), ct__size_like(t, 2)));
}
static ct_tensor as(ct_tensor t, const ct_rule *r) {
    const ct_dtype dtype = (ct_dtype)r->node->out->dtype;
    return (ct_dtype)ct__type_of(t)->dtype == dtype ? t : ct_cast(t, dtype);
}

// a, b and the sizes of groups: shapes of which the first have `ranks` axes.
static bool groups_infer(ct_call *call, int ranks[2], ct_dtype *dtype) {
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
static bool differ(ct_call *call, const char *what, int i, int axis, int k, int other) {
    const ct_type *x = call->in[i], *y = call->in[k];
    static const char *const names[3] = {"a", "b", "sizes"};
    if (x->dim[axis] == y->dim[other]) return (void)ct__same_size(x, axis, y, other), false;
    ct__call_err(call, CT_E_SHAPE, "%s differ: %s is %s, %s %s %s", what, names[i],
                 ct__type_text(x).s, names[k], k == 2 ? "are" : "is", ct__type_text(y).s);
    return true;
}

// Are there rows for all groups, as far as their sizes are constants?
static bool rows_suffice(ct_call *call) {
    const ct_type *a = call->in[0], *sizes = call->in[2];
    if (!call->vals || call->vals[2].node->op != &ct__op_const || ct__is_dyn(a, 0)) return true;
    const ct_data_bytes *data = call->vals[2].node->attrs;
    uint64_t sum = 0;
    for (int64_t i = 0; i < sizes->dim[0]; i++) {
        const int64_t size = ct__load_i64((ct_dtype)sizes->dtype, data->bytes, i);
        if (size > 0) sum += (uint64_t)size;
        if (sum > INT64_MAX) break; // the next one could make it small again
    }
    return sum <= (uint64_t)a->dim[0] ||
           ct__call_err(call, CT_E_SHAPE, "the groups have %llu rows, a %s has %lld",
                        (unsigned long long)sum, ct__type_text(a).s, (long long)a->dim[0]);
}

// ---------------------------------------------------------------------------------- ragged_matmul

static bool ragged_matmul_infer(ct_call *call) {
    ct_dtype dtype;
    if (!groups_infer(call, (int[]){2, 3}, &dtype) || differ(call, "inner sizes", 0, 1, 1, 1) ||
        differ(call, "numbers of groups", 1, 0, 2, 0) || !rows_suffice(call))
        return false;
    ct_shape shape = ct__call_shape(call, 2);
    if (!shape.dim) return false;
    ct__shape_add_axis(&shape, call->in[0], 0);
    ct__shape_add_axis(&shape, call->in[1], 2);
    *call->out = ct__shaped(&shape, dtype, false);
    return true;
}

static void block_product(const ct_tensor *in, ct_tensor *out, void *user) {
    const ct_tensor *b = user;
    out[0] = ct_matmul(in[0], one_of(*b, in[1]));
}
static bool ragged_matmul_body(ct_rule *r) {
    ct_tensor a = as(r->in[0], r), b = as(r->in[1], r), y;
    const layout l = lay_out(a, r->in[2]);
    const ct_tensor xs[2] = {in_blocks(&l, a), l.group};
    ct_scan_with((ct_scan_args){.body = block_product,
                                .user = &b,
                                .xs = xs,
                                .n_xs = 2,
                                .n_ys = 1,
                                .here = r->node->here},
                 NULL, &y);
    r->body_out[0] = in_rows(&l, y);
    return true;
}

static ct_tensor same_of(const ct_rule *r, ct_tensor a, ct_tensor b) {
    return ct__record(r->node->op, r->attrs, (const ct_tensor[]){a, b, r->in[2]}, 3, r->node->here);
}
static bool bilinear_jvp(ct_rule *r) {
    const ct_tensor a = r->t_in[0], b = r->t_in[1];
    r->t_out[0] = ct__add_zero(ct__is_none(a) ? CT_NONE : same_of(r, a, r->in[1]),
                               ct__is_none(b) ? CT_NONE : same_of(r, r->in[0], b));
    return true;
}
static bool ragged_matmul_vjp(ct_rule *r) {
    r->c_in[0] = ct_ragged_matmul(r->c_out[0], ct__swap_last(r->in[1]), r->in[2]);
    r->c_in[1] = ct_ragged_outer(r->in[0], r->c_out[0], r->in[2]);
    return true;
}
const ct_opdef ct__op_ragged_matmul = {
    .id = CT_OP_RAGGED_MATMUL,
    .name = "ragged_matmul",
    .doc =
        "Rows of a, (M, K), in consecutive groups of `sizes`, (G,) integers, each times its own "
        "matrix of b, (G, K, N): experts, sequences of several lengths. Groups end where a does, "
        "a size below 0 is 0, and rows behind the last group are 0 in the result. Constant sizes "
        "(ct_const) of more rows than a has are an error.",
    .kind = &ct__kind_composition,
    .n_in = 3,
    .n_out = 1,
    .accepts = CT_NUMBERS,
    .widens = true,
    .infer = ragged_matmul_infer,
    .body = ragged_matmul_body,
    .jvp = bilinear_jvp,
    .vjp = ragged_matmul_vjp,
    .autocast = CT_CAST_LOW,
};

// ----------------------------------------------------------------------------------- ragged_outer

static bool ragged_outer_infer(ct_call *call) {
    ct_dtype dtype;
    if (!groups_infer(call, (int[]){2, 2}, &dtype) || differ(call, "numbers of rows", 0, 0, 1, 0) ||
        !rows_suffice(call))
        return false;
    ct_shape shape = ct__call_shape(call, 3);
    if (!shape.dim) return false;
    ct__shape_add_axis(&shape, call->in[2], 0);
    ct__shape_add_axis(&shape, call->in[0], 1);
    ct__shape_add_axis(&shape, call->in[1], 1);
    *call->out = ct__shaped(&shape, dtype, false);
    return true;
}

static void add_block(const ct_tensor *in, ct_tensor *out, void *user) {
    const ct_tensor *blocks = user;
    ct_tensor a = one_of(blocks[0], in[0]), b = one_of(blocks[1], in[0]);
    out[0] = ct_add(in[1], ct_contract(a, b, .a_axes = CT_AXES(0), .b_axes = CT_AXES(0)));
}
static void sum_of_group(const ct_tensor *in, ct_tensor *out, void *user) {
    const ct_tensor *blocks = user;
    const int64_t dims[2] = {ct__size_like(blocks[0], 2), ct__size_like(blocks[1], 2)};
    ct_tensor sum = ct_zeros((ct_dtype)ct__type_of(blocks[0])->dtype, ((ct_ints){2, dims}));
    ct_fori(&out[0], .body = add_block, .user = user, .lower_value = in[0], .upper_value = in[1],
            .carry = &sum, .n_carry = 1);
}
static bool ragged_outer_body(ct_rule *r) {
    ct_tensor a = as(r->in[0], r), b = as(r->in[1], r);
    const layout l = lay_out(a, r->in[2]);
    ct_tensor blocks[2] = {in_blocks(&l, a), in_blocks(&l, b)};
    const ct_tensor xs[2] = {l.first, l.last};
    ct_scan_with((ct_scan_args){.body = sum_of_group,
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
    .id = CT_OP_RAGGED_OUTER,
    .name = "ragged_outer",
    .doc = "For each group of rows, as in ct_ragged_matmul, the transpose of a's rows, of (M, K), "
           "times b's, of (M, N): (G, K, N), 0 where a group has no rows. With it go gradients "
           "with respect to the matrices of ct_ragged_matmul. Inside ct_vmap it is a loop whose "
           "turns are data, through which ct_grad does not go: record a call for each sample "
           "instead.",
    .kind = &ct__kind_composition,
    .n_in = 3,
    .n_out = 1,
    .accepts = CT_NUMBERS,
    .widens = true,
    .infer = ragged_outer_infer,
    .body = ragged_outer_body,
    .jvp = bilinear_jvp,
    .vjp = ragged_outer_vjp,
    .autocast = CT_CAST_LOW,
};
