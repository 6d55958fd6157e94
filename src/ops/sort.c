// Ops that order elements: NaN is larger than all numbers, -0 and 0 are equal.
#include "kinds/sort.h"

#include "kinds/batch.h"
#include "ops/rules.h"

#define TOPK_ATTRS(F, op) F(op, count, k)
CT_ATTRS(topk, TOPK_ATTRS);

static bool topk_infer(ct_call *call) {
    const topk_attrs *attrs = call->attrs;
    const ct_type *in = call->in[0];
    int last = in->rank - 1;
    if (!ct__check_accepts(call, 0)) return false;
    if (last < 0)
        return ct__call_err(call, CT_E_SHAPE, "x is %s, it needs an axis", ct__type_text(in).s);
    if (attrs->k < 0 || attrs->k > in->dim[last])
        return ct__call_err(call, CT_E_ARGUMENT, "k is %lld for axis %d of %s", (long long)attrs->k,
                            last, ct__type_text(in).s) ||
               ct__call_hint(call, "k is 0 to %lld", (long long)in->dim[last]);
    return ct__resized_type(call, in, last, attrs->k, in->dtype, in->weak, &call->out[0]) &&
           ct__resized_type(call, in, last, attrs->k, CT_I32, false, &call->out[1]);
}

// True if element a of x comes before element b in falling order; false if they are equal.
static bool topk_comes_before(const ct_type *type, const void *x, int64_t a, int64_t b) {
    ct_dtype dtype = (ct_dtype)type->dtype;
    return ct__is_larger((ct_element){dtype, x, a}, (ct_element){dtype, x, b}, dtype);
}

static bool topk_eval(const ct_ref *ref) {
    const topk_attrs *attrs = ref->attrs;
    const ct_type *in = ref->in_type;
    int64_t n = in->dim[in->rank - 1], k = attrs->k, rows = 1;
    for (int a = 0; a < in->rank - 1; a++) rows *= in->dim[a];
    for (int64_t row = 0; k && row < rows; row++) {
        int32_t *best = (int32_t *)ref->out[1] + row * k; // the largest so far, in order
        int64_t n_best = 0, base = row * n;
        for (int64_t i = 0; i < n; i++) {
            int64_t at = n_best;
            while (at > 0 && topk_comes_before(in, ref->in[0], base + i, base + best[at - 1])) at--;
            if (at == k) continue;
            if (n_best < k) n_best++;
            for (int64_t j = n_best - 1; j > at; j--) best[j] = best[j - 1];
            best[at] = (int32_t)i;
        }
        for (int64_t j = 0; j < k; j++) {
            if (ct__is_float(in->dtype))
                ct__store_f64(in->dtype, ref->out[0], row * k + j,
                              ct__load_f64(in->dtype, ref->in[0], base + best[j]));
            else
                ct__store_i64(in->dtype, ref->out[0], row * k + j,
                              ct__load_i64(in->dtype, ref->in[0], base + best[j]));
        }
    }
    return true;
}
static bool topk_jvp(ct_rule *r) {
    int64_t last = ct__type_of(r->in[0])->rank - 1;
    return ct__set_tangent(r, ct_gather(r->t_in[0], r->out[1], .axis = last, .batch_dims = last,
                                        .zero_outside = true));
}
const ct_opdef ct__op_topk = {
    CT_OP(TOPK, topk, sort, 1, 2),
    .doc = "The k largest elements along the last axis, in falling order, and their indices (i32); "
           "equals in the order of x; NaN counts as largest.",
    CT_FIELDS(topk),
    .accepts = CT_NUMBERS,
    .infer = topk_infer,
    .eval = topk_eval,
    .jvp = topk_jvp,
    .onnx = "TopK",
    .samples = {.kinks = true},
};

// ------------------------------------------------------------------------------------- sorting

static bool sort_check_shape(ct_call *call, int operand) {
    const ct_type *first = call->in[0], *t = call->in[operand];
    return ct__same_sizes(first, t) ||
           ct__call_err(call, CT_E_SHAPE, "operand 1 is %s, operand %d is %s",
                        ct__type_text(first).s, operand + 1, ct__type_text(t).s) ||
           ct__call_hint(call, "they must have one shape: ct_expand brings one to that of another");
}

#define ARGSORT_ATTRS(F, op) F(op, axis, axis) F(op, reverse, descending)
CT_ATTRS(argsort, ARGSORT_ATTRS);
// Shape rule of indices into elements in order. Keys have one shape; the first one has priority.
static bool argsort_infer(ct_call *call) {
    argsort_attrs *attrs = call->attrs;
    if (call->n_in < 1 || call->n_in > CT_SORT_MOST_KEYS)
        return ct__call_err(call, CT_E_ARGUMENT, "there are %d keys, it takes 1 to %d", call->n_in,
                            CT_SORT_MOST_KEYS);
    const ct_type *first = call->in[0];
    ct_shape shape = ct__call_shape(call, first->rank);
    if (!shape.dim) return false;
    for (int i = 0; i < call->n_in; i++)
        if (!ct__check_accepts(call, i) || (i && !sort_check_shape(call, i))) return false;
    for (int a = 0; a < first->rank; a++) ct__shape_add_axis(&shape, first, a);
    *call->out = ct__shaped(&shape, CT_I32, false);
    return ct__normal_axis(call, &attrs->axis);
}
const ct_opdef ct__op_argsort = {
    CT_OP(ARGSORT, argsort, sort, 1, 1),
    .doc = "The indices that put the elements along an axis into rising order (descending: "
           "falling), as i32: the first is the index of the smallest one. NaN is larger than all "
           "numbers; equals, and -0 and 0 are equal, stay in their order.",
    CT_FIELDS(argsort),
    .accepts = CT_NUMBERS,
    .infer = argsort_infer,
    .jvp = CT_NO_GRAD,
    .samples = {.kinks = true},
};

CT_ATTRS(lexsort, ARGSORT_ATTRS);
const ct_opdef ct__op_lexsort = {
    CT_OP(LEXSORT, lexsort, sort, -1, 1),
    .doc =
        "ct_argsort by several keys of one shape, 8 at most: by the first one, equals by the next "
        "one (NumPy's lexsort has them the other way round). ct_take_along then puts any tensors "
        "into that order.",
    CT_FIELDS(lexsort),
    .accepts = CT_NUMBERS,
    .infer = argsort_infer,
    .jvp = CT_NO_GRAD,
    .samples = {.kinks = true},
};

#define TAKE_ALONG_ATTRS(F, op) F(op, axis, axis)
CT_ATTRS(take_along, TAKE_ALONG_ATTRS);
static bool take_along_infer(ct_call *call) {
    take_along_attrs *attrs = call->attrs;
    const ct_type *x = call->in[0], *at = call->in[1];
    if (!ct__check_accepts(call, 0) || !ct__check_integers(call, 1, "the indices") ||
        !ct__normal_axis(call, &attrs->axis))
        return false;
    bool fits = x->rank == at->rank;
    for (int a = 0; fits && a < x->rank; a++) fits = a == attrs->axis || x->dim[a] == at->dim[a];
    if (!fits)
        return ct__call_err(call, CT_E_SHAPE, "the indices are %s, x is %s", ct__type_text(at).s,
                            ct__type_text(x).s) ||
               ct__call_hint(call, "they have x's sizes, but along axis %lld any",
                             (long long)attrs->axis);
    ct_shape shape = ct__call_shape(call, x->rank);
    if (!shape.dim) return false;
    for (int a = 0; a < x->rank; a++)
        ct__shape_add(&shape, a == attrs->axis ? ct__size_of(at, a) : ct__same_size(x, a, at, a));
    return ct__set_out(call, &shape, (ct_dtype)x->dtype, x->weak);
}
static bool take_along_body(ct_rule *r) { // a gather along the last axis
    int64_t axis = ((const take_along_attrs *)r->attrs)->axis, order[CT_MAX_RANK];
    int rank = ct__type_of(r->in[0])->rank, last = rank - 1;
    for (int a = 0; a < rank; a++) order[a] = a == axis ? last : a == last ? axis : a;
    ct_ints swapped = {rank, order};
    bool is_last = axis == last;
    ct_tensor x = is_last ? r->in[0] : ct_permute(r->in[0], swapped);
    ct_tensor at = is_last ? r->in[1] : ct_permute(r->in[1], swapped);
    ct_tensor y = ct_gather(x, at, .axis = last, .batch_dims = last);
    return ct__set_body(r, is_last ? y : ct_permute(y, swapped));
}
const ct_opdef ct__op_take_along = {
    CT_COMPOSED(TAKE_ALONG, take_along, 2, 1),
    .doc =
        "The elements of x at `indices` along an axis, line by line: the indices have x's sizes, "
        "but along the axis any. An index outside gives NaN, or 0 for integers.",
    CT_FIELDS(take_along),
    .accepts = CT_NUMBERS | CT_MASK(CT_BOOL) | CT_COMPLEX,
    .batch = ct__batch_shifted,
    .widens = true,
};

CT_ATTRS(sort, ARGSORT_ATTRS);
static bool sort_infer(ct_call *call) {
    sort_attrs *attrs = call->attrs;
    for (int i = 0; i < call->n_in; i++) {
        if (!ct__check_accepts(call, i) || (i && !sort_check_shape(call, i))) return false;
        call->out[i] = *call->in[i];
    }
    return ct__normal_axis(call, &attrs->axis);
}
// All operands are put into the order of the first one.
static bool sort_body(ct_rule *r) {
    const sort_attrs *attrs = r->attrs;
    ct_tensor order = ct_argsort(r->in[0], .axis = attrs->axis, .descending = attrs->descending);
    for (int i = 0; i < r->n_in; i++)
        r->body_out[i] = ct_take_along(r->in[i], order, .axis = attrs->axis);
    return true;
}
#define SORT(ID, op, n)                                                                            \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_composition, .n_in = n, .n_out = n,           \
    CT_FIELDS(op), .accepts = CT_NUMBERS, .infer = sort_infer, .body = sort_body,                  \
    .batch = ct__batch_shifted, .widens = true, .samples = {.kinks = true, .jumps = true}
const ct_opdef ct__op_sort = {
    SORT(SORT, sort, 1),
    .doc =
        "The elements along an axis in rising order (descending: falling), as ct_argsort has it. "
        "The gradient of an element goes where it came from.",
};

CT_ATTRS(sort_pairs, ARGSORT_ATTRS);
const ct_opdef ct__op_sort_pairs = {
    SORT(SORT_PAIRS, sort_pairs, 2),
    .doc = "ct_sort of the keys, and of values in the order of the keys: both have one shape. For "
           "more of either: ct_lexsort.",
};

#define SEARCHSORTED_ATTRS(F, op) F(op, leading, batch_dims) F(op, reverse, right)
CT_ATTRS(searchsorted, SEARCHSORTED_ATTRS);
static bool searchsorted_infer(ct_call *call) {
    searchsorted_attrs *attrs = call->attrs;
    const ct_type *x = call->in[0], *v = call->in[1];
    int64_t batch = attrs->batch_dims;
    if (!ct__check_accepts(call, 0) || !ct__check_accepts(call, 1)) return false;
    if (batch < 0 || batch + 1 != x->rank || batch > v->rank)
        return ct__call_err(call, CT_E_SHAPE, "x is %s, values are %s, and batch_dims is %lld",
                            ct__type_text(x).s, ct__type_text(v).s, (long long)batch) ||
               ct__call_hint(call, "x has batch_dims axes, which values share, and one more");
    ct_shape shape = ct__call_shape(call, v->rank);
    if (!shape.dim) return false;
    for (int a = 0; a < v->rank; a++) {
        if (a < batch && x->dim[a] != v->dim[a])
            return ct__call_err(call, CT_E_SHAPE, "batch axis %d differs: x is %s, values are %s",
                                a, ct__type_text(x).s, ct__type_text(v).s);
        ct__shape_add(&shape, a < batch ? ct__same_size(x, a, v, a) : ct__size_of(v, a));
    }
    if (ct__promote(x->dtype, x->weak, v->dtype, v->weak) == CT_DEFAULT)
        return ct__no_promotion(call, (ct_dtype)x->dtype, (ct_dtype)v->dtype);
    return ct__set_out(call, &shape, CT_I32, false);
}
const ct_opdef ct__op_searchsorted = {
    CT_OP(SEARCHSORTED, searchsorted, search, 2, 1),
    .doc = "How many elements of x, which are in rising order, are smaller than each value (right: "
           "not larger), as i32: the index at which it belongs. Both have batch_dims axes in front "
           "that go together, then x has one.",
    CT_FIELDS(searchsorted),
    .accepts = CT_NUMBERS,
    .infer = searchsorted_infer,
    .jvp = CT_NO_GRAD,
    .samples = {.kinks = true},
};

#define UNIQUE_ATTRS(F, op) F(op, i64, size) F(op, i64, present)
CT_ATTRS(unique, UNIQUE_ATTRS);
// Returns the maximum number of results.
static int64_t unique_size(const unique_attrs *attrs, const ct_type *x) {
    int64_t size = 1;
    for (int a = 0; a < x->rank; a++) size = ct__size_mul(size, ct__size_of(x, a));
    return attrs->size ? attrs->size : size;
}
static bool unique_infer(ct_call *call) {
    unique_attrs *attrs = call->attrs;
    const ct_type *x = call->in[0], *fill = attrs->present ? call->in[1] : NULL;
    if (!ct__check_accepts(call, 0)) return false;
    if (attrs->size < 0)
        return ct__call_err(call, CT_E_ARGUMENT, "the size is %lld", (long long)attrs->size) ||
               ct__call_hint(call, "it is the number of results, known before; left out, as many "
                                   "as x has elements");
    if (fill && (fill->rank ||
                 ct__promote(x->dtype, x->weak, fill->dtype, fill->weak) != (ct_dtype)x->dtype))
        return ct__call_err(call, CT_E_SHAPE, "the fill is %s, x is %s", ct__type_text(fill).s,
                            ct__type_text(x).s) ||
               ct__call_hint(call, "it is a scalar of x's dtype");
    if (fill && !ct__call_fits(call, 1, (ct_dtype)x->dtype)) return false;
    ct_shape some = ct__call_shape(call, 1), all = ct__call_shape(call, x->rank);
    if (!some.dim || !all.dim) return false;
    ct__shape_add(&some, unique_size(attrs, x));
    for (int a = 0; a < x->rank; a++) ct__shape_add_axis(&all, x, a);
    call->out[0] = ct__shaped(&some, (ct_dtype)x->dtype, x->weak);
    call->out[1] = call->out[3] = ct__shaped(&some, CT_I32, false);
    call->out[2] = ct__shaped(&all, CT_I32, false);
    return true;
}
// In the sorted order, an element is new if it differs from the one before it.
static bool unique_body(ct_rule *r) {
    const unique_attrs *attrs = r->attrs;
    const int64_t size = unique_size(attrs, ct__type_of(r->in[0]));
    const ct_ints sizes = {1, &size};
    ct_tensor x = ct_reshape(r->in[0], CT_DIMS(-1)), order = ct_argsort(x), s = ct_gather(x, order);
    int64_t all = ct__size_like(x, 0), none = 0;
    const ct_ints n = {1, &all};
    ct_tensor i = ct_iota(CT_I32, n, 0), before = ct_gather(s, ct_sub(i, ct_i(1)));
    ct_tensor same = ct_equal(s, before);
    if (ct__is_float((ct_dtype)ct__type_of(x)->dtype))
        same = ct_or(same, ct_and(ct_is_nan(s), ct_is_nan(before)));
    ct_tensor is_new = ct_or(ct_equal(i, ct_i(0)), ct_not(same));
    ct_tensor rank = ct_sub(ct_cumsum(ct_cast(is_new, CT_I32)), ct_i(1));
    // for others an index outside
    ct_tensor to = ct_select(is_new, rank, ct__size_number(size, CT_I32));
    ct_tensor at_0 = ct_zeros(CT_I32, ((ct_ints){0, &none}));
    ct_tensor fill =
        attrs->present ? ct_cast(r->in[1], (ct_dtype)ct__type_of(x)->dtype) : ct_gather(s, at_0);
    r->body_out[0] = ct_scatter(ct_expand(fill, sizes), to, s);
    r->body_out[1] = ct_scatter(ct_expand(ct_gather(order, at_0), sizes), to, order);
    ct_tensor inverse = ct_scatter(ct_zeros(CT_I32, n), order, rank, .unique = true);
    ct_dims_buffer dims;
    r->body_out[2] = ct_reshape(inverse, ct__dims_of(r->in[0], &dims));
    r->body_out[3] =
        ct_scatter_add(ct_zeros(CT_I32, sizes), rank, ct_ones(CT_I32, n), .sorted = true);
    return true;
}
const ct_opdef ct__op_unique = {
    CT_COMPOSED(UNIQUE, unique, -1, 4),
    .doc =
        "The first `size` different elements of x (default: as many as x has) in rising order (all "
        "NaN are one), the index in x, read as one line, of the first of each, for each element of "
        "x the index of its value, and how often each occurs in x. Where there are fewer the rest "
        "of the values is `fill` (default: the smallest), of the indices that of the smallest, of "
        "the counts 0; where there are more, inverse names some that are left out.",
    CT_FIELDS(unique),
    .accepts = CT_NUMBERS,
    .widens = true,
    .samples = {.kinks = true, .jumps = true},
};
