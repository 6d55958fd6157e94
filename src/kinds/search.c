// searchsorted: finds by binary search where elements belong in sorted lines.
#include "graph/symbols.h"
#include "kinds/batch.h"
#include "kinds/flattened.h"
#include "kinds/sort.h"

enum { GRAIN = 1024 }; // elements that are worth a task

typedef struct search {
    ct_kir *k;
    ct_dtype as;
    bool right;
    ct_kval n;
    int64_t steps;
    ct_source x; // (lines, n)
} search;

// Returns the number of elements of a line that are smaller than a value, or, with `right`, not larger.
static ct_kval search_insertion_point(const search *c, ct_kval line, ct_kval value) {
    ct_kir *k = c->k;
    ct_kval zero = ct__kir_int(k, 0), two = ct__kir_int(k, 2), last = ct__kir_addi(k, c->n, -1);
    ct_kval below = ct__kir_reg(k, zero), left = ct__kir_reg(k, c->n);
    ct_kval is_nonempty = ct__kir_lt(k, zero, c->n), steps = ct__kir_int(k, c->steps);
    ct__kir_loop(k, CT_BIND_SEQ, ct__kir_select(k, is_nonempty, steps, zero), "halves");
    ct_kval at = ct__kir_get(k, below), rest = ct__kir_get(k, left);
    ct_kval half = ct__kir_div(k, rest, two), middle = ct__kir_add(k, at, half);
    ct_kval index = ct__kir_min(k, middle, last);
    ct_kval element = ct__source_load(k, &c->x, 2, (ct_kval[]){line, index});
    ct_kval is_after = c->right ? ct__kir_larger(k, c->as, element, value)
                                : ct__kir_larger(k, c->as, value, element);
    if (c->right) is_after = ct__kir_un(k, CT_K_NOT, is_after);
    is_after = ct__kir_bin(k, CT_K_AND, ct__kir_lt(k, zero, rest), is_after);
    ct_kval right_rest = ct__kir_addi(k, ct__kir_sub(k, rest, half), -1);
    ct__kir_set(k, below, ct__kir_select(k, is_after, ct__kir_addi(k, middle, 1), at));
    ct__kir_set(k, left, ct__kir_select(k, is_after, right_rest, half));
    ct__kir_end(k);
    return ct__kir_get(k, below);
}

static ct_dtype search_compare_dtype(const ct_type *x, const ct_type *v) {
    return ct__promote(x->dtype, x->weak, v->dtype, v->weak);
}

// Writes the kernel. A task processes some of the values of a line.
static bool search_kernels(ct_sched *s, ct_node *node) {
    ct_emit *e = ct__emit_new(s, node);
    if (!e) return false;
    ct__emit_declare_sizes(e, node);
    ct_kir *k = e->kir;
    const int start[2] = {0, ct__along(node).leading};
    ct_dtype as = search_compare_dtype(ct__type(node->in[0]), ct__type(node->in[1]));
    ct_flattened x = ct__join(e, node->in[0], as, 2, start),
                 v = ct__join(e, node->in[1], as, 2, start);
    ct_flattened out = ct__join(e, (ct_val){node, 0}, CT_I32, 2, start);
    ct_source values = ct__flattened_source(&v);
    ct_sink to = ct__flattened_sink(&out);
    search c = {.k = k, .as = as, .right = ct__along(node).reverse, .x = ct__flattened_source(&x)};
    c.n = ct__flattened_size(&x, 1);
    int64_t n = 0;
    if (!ct__kir_is_int(k, c.n, &n)) n = INT64_C(1) << 48; // an upper bound of sizes
    while (n >> c.steps) c.steps++;
    ct_kval lines = ct__flattened_size(&v, 0), n_values = ct__flattened_size(&v, 1);
    ct_kval blocks = ct__kir_ceil_div(k, n_values, GRAIN), grain = ct__kir_int(k, GRAIN);
    ct_kval task = ct__kir_loop(k, CT_BIND_ROWS, ct__kir_mul(k, lines, blocks), "block");
    ct_kval line = ct__kir_div(k, task, blocks);
    ct_kval first = ct__kir_muli(k, ct__kir_mod(k, task, blocks), GRAIN);
    ct_kval count = ct__kir_min(k, ct__kir_sub(k, n_values, first), grain);
    ct_kval i = ct__kir_add(k, first, ct__kir_loop(k, CT_BIND_LANES, count, "value"));
    ct_kval value = ct__source_load(k, &values, 2, (ct_kval[]){line, i});
    ct_kval index = ct__kir_cast(k, search_insertion_point(&c, line, value), CT_I32);
    ct__sink_store(k, &to, 2, (ct_kval[]){line, i}, index);
    ct__kir_end_n(k, 2);
    return ct__emit_done(e, 20 * (double)ct__count(node->out));
}

static bool search_eval(const ct_ref *ref) {
    const ct_type *x = &ref->in_type[0], *v = &ref->in_type[1];
    const ct_along along = ct__along(ref->node);
    ct_dtype as = search_compare_dtype(x, v);
    int64_t n = x->dim[along.leading], per_line = 1, count = ct__count(v);
    for (int a = along.leading; a < v->rank; a++) per_line *= v->dim[a];
    for (int64_t i = 0; i < count; i++) {
        ct_element value = {(ct_dtype)v->dtype, ref->in[1], i},
                   element = {(ct_dtype)x->dtype, ref->in[0], 0};
        int64_t index = 0, left = n;
        while (left > 0) {
            int64_t half = left / 2;
            element.at = i / per_line * n + index + half;
            bool is_after = along.reverse ? !ct__is_larger(element, value, as)
                                          : ct__is_larger(value, element, as);
            if (is_after) index += half + 1;
            left = is_after ? left - half - 1 : half;
        }
        ct__store_i64(CT_I32, ref->out[0], i, index);
    }
    return true;
}

const ct_kind ct__kind_search = {
    .name = "search",
    .doc = "Where elements of operand 1 belong in lines of operand 0, which are in order.",
    .scheduled = CT_TEMPLATE,
    .kernels = search_kernels,
    .eval = search_eval,
    .copies = true,
    .batch = ct__batch_shifted,
};
