// Where elements belong in lines that are in order: by halving what is left.
#include "graph/symbols.h"
#include "kinds/batch.h"
#include "kinds/joined.h"
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

// How many elements of a line are smaller than a value, or (right) not larger.
static ct_kval place_of(const search *c, ct_kval line, ct_kval value) {
    ct_kir *k = c->k;
    ct_kval zero = ct__kir_int(k, 0), two = ct__kir_int(k, 2), last = ct__kir_addi(k, c->n, -1);
    ct_kval below = ct__kir_reg(k, zero), left = ct__kir_reg(k, c->n);
    ct_kval some = ct__kir_lt(k, zero, c->n), steps = ct__kir_int(k, c->steps);
    ct__kir_loop(k, CT_BIND_SEQ, ct__kir_select(k, some, steps, zero), "halves");
    ct_kval at = ct__kir_get(k, below), rest = ct__kir_get(k, left);
    ct_kval half = ct__kir_div(k, rest, two), middle = ct__kir_add(k, at, half);
    ct_kval place = ct__kir_min(k, middle, last);
    ct_kval there = ct__source_load(k, &c->x, 2, (ct_kval[]){line, place});
    ct_kval behind =
        c->right ? ct__kir_larger(k, c->as, there, value) : ct__kir_larger(k, c->as, value, there);
    if (c->right) behind = ct__kir_un(k, CT_K_NOT, behind);
    behind = ct__kir_bin(k, CT_K_AND, ct__kir_lt(k, zero, rest), behind);
    ct_kval more = ct__kir_addi(k, ct__kir_sub(k, rest, half), -1);
    ct__kir_set(k, below, ct__kir_select(k, behind, ct__kir_addi(k, middle, 1), at));
    ct__kir_set(k, left, ct__kir_select(k, behind, more, half));
    ct__kir_end(k);
    return ct__kir_get(k, below);
}

static ct_dtype compared_as(const ct_type *x, const ct_type *v) {
    return ct__promote(x->dtype, x->weak, v->dtype, v->weak);
}

// A task has some of the values of a line.
static bool search_kernels(ct_sched *s, ct_node *node) {
    ct_emit *e = ct__emit_new(s, node);
    if (!e) return false;
    ct__emit_declare_sizes(e, node);
    ct_kir *k = e->kir;
    const int start[2] = {0, ct__along(node).leading};
    ct_dtype as = compared_as(ct__type(node->in[0]), ct__type(node->in[1]));
    ct_joined x = ct__join(e, node->in[0], as, 2, start),
              v = ct__join(e, node->in[1], as, 2, start);
    ct_joined out = ct__join(e, (ct_val){node, 0}, CT_I32, 2, start);
    ct_source values = ct__joined_source(&v);
    ct_sink to = ct__joined_sink(&out);
    search c = {.k = k, .as = as, .right = ct__along(node).reverse, .x = ct__joined_source(&x)};
    c.n = ct__joined_size(&x, 1);
    int64_t n = 0;
    if (!ct__kir_is_int(k, c.n, &n)) n = INT64_C(1) << 48; // sizes are smaller
    while (n >> c.steps) c.steps++;
    ct_kval lines = ct__joined_size(&v, 0), many = ct__joined_size(&v, 1);
    ct_kval blocks = ct__kir_ceil_div(k, many, GRAIN), most = ct__kir_int(k, GRAIN);
    ct_kval task = ct__kir_loop(k, CT_BIND_ROWS, ct__kir_mul(k, lines, blocks), "block");
    ct_kval line = ct__kir_div(k, task, blocks);
    ct_kval first = ct__kir_muli(k, ct__kir_mod(k, task, blocks), GRAIN);
    ct_kval here = ct__kir_min(k, ct__kir_sub(k, many, first), most);
    ct_kval i = ct__kir_add(k, first, ct__kir_loop(k, CT_BIND_LANES, here, "value"));
    ct_kval value = ct__source_load(k, &values, 2, (ct_kval[]){line, i});
    ct_kval place = ct__kir_cast(k, place_of(&c, line, value), CT_I32);
    ct__sink_store(k, &to, 2, (ct_kval[]){line, i}, place);
    ct__kir_end(k);
    ct__kir_end(k);
    return ct__emit_done(e, 20 * (double)ct__count(node->out));
}

static bool search_eval(const ct_ref *ref) {
    const ct_type *x = &ref->in_type[0], *v = &ref->in_type[1];
    const ct_along along = ct__along(ref->node);
    ct_dtype as = compared_as(x, v);
    int64_t n = x->dim[along.leading], many = 1, count = ct__count(v);
    for (int a = along.leading; a < v->rank; a++) many *= v->dim[a];
    for (int64_t i = 0; i < count; i++) {
        ct_element value = {(ct_dtype)v->dtype, ref->in[1], i},
                   there = {(ct_dtype)x->dtype, ref->in[0], 0};
        int64_t place = 0, left = n;
        while (left > 0) {
            int64_t half = left / 2;
            there.at = i / many * n + place + half;
            bool behind =
                along.reverse ? !ct__is_larger(there, value, as) : ct__is_larger(value, there, as);
            if (behind) place += half + 1;
            left = behind ? left - half - 1 : half;
        }
        ct__store_i64(CT_I32, ref->out[0], i, place);
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
