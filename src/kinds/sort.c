// Sorting: argsort of lines by several keys, and top-k.
#include "kinds/sort.h"

#include <math.h>

#include "graph/symbols.h"
#include "kinds/batch.h"
#include "kinds/flattened.h"
#include "kinds/monoid.h"

enum {
    GRAIN = 4096,  // elements that are worth a task
    BLOCK = 16384, // elements of a block of a long row in top-k
    FEW_ROWS = 8,  // fewer rows leave cores idle
};

ct_kval ct__kir_larger(ct_kir *k, ct_dtype dtype, ct_kval a, ct_kval b) {
    ct_kval larger = ct__kir_lt(k, b, a);
    if (!ct__is_float(dtype)) return larger;
    ct_kval a_nan = ct__kir_bin(k, CT_K_NE, a, a), b_is = ct__kir_bin(k, CT_K_EQ, b, b);
    return ct__kir_bin(k, CT_K_OR, larger, ct__kir_bin(k, CT_K_AND, a_nan, b_is));
}

bool ct__is_larger(ct_element a, ct_element b, ct_dtype as) {
    if (!ct__is_float(as))
        return ct__less_i64(ct__load_i64(b.dtype, b.data, b.at),
                            ct__load_i64(a.dtype, a.data, a.at), as);
    double p = ct__load_f64(a.dtype, a.data, a.at), q = ct__load_f64(b.dtype, b.data, b.at);
    return isnan(p) ? !isnan(q) : p > q;
}

// --------------------------------------------------------------------------------------- top-k

// The input of a task: a row, a block of one, or the results of a row's blocks.
typedef struct line_of {
    const ct_topk_spec *spec;
    ct_kval n, task, row; // number of elements; the loop's variable; the row
    ct_kval first;        // offset of the line in its row, or in the blocks' values; -1: none
} line_of;

static void topk_open_line(ct_kir *k, line_of *x) {
    const ct_topk_spec *s = x->spec;
    x->first = -1;
    if (s->part != CT_TOPK_BLOCKS) {
        x->row = x->task = ct__kir_loop(k, CT_BIND_ROWS, s->rows, "row");
        if (s->part == CT_TOPK_ROWS) return;
        x->n = ct__kir_int(k, s->blocks * s->count);
        x->first = ct__kir_mul(k, x->row, x->n);
        return;
    }
    ct_kval blocks = ct__kir_int(k, s->blocks);
    x->task = ct__kir_loop(k, CT_BIND_ROWS, ct__kir_mul(k, s->rows, blocks), "block");
    x->row = ct__kir_div(k, x->task, blocks);
    ct_kval block = ct__kir_mod(k, x->task, blocks);
    x->first = ct__kir_muli(k, block, s->width);
    ct_kval last = ct__kir_bin(k, CT_K_EQ, block, ct__kir_int(k, s->blocks - 1));
    ct_kval rest = ct__kir_sub(k, s->n, x->first);
    x->n = ct__kir_select(k, last, rest, ct__kir_int(k, s->width));
}
static ct_kval topk_index_in_row(ct_kir *k, const line_of *x, ct_kval i) {
    return x->first < 0 ? i : ct__kir_add(k, x->first, i);
}

// The best elements so far are kept sorted in scratch; an element that belongs to them is inserted after its
// equals. Most elements of a long row are rejected by one comparison with the last of the best.
void ct__template_topk(ct_kir *k, const ct_topk_spec *spec) {
    int64_t count = spec->count;
    line_of x = {spec, .n = spec->n};
    int best = ct__kir_local(k, spec->dtype, count > 0 ? count : 1);
    int index = ct__kir_local(k, CT_I32, count > 0 ? count : 1);
    topk_open_line(k, &x);
    ct_kval zero = ct__kir_int(k, 0), all = ct__kir_int(k, count);
    ct_kval i = ct__kir_loop(k, CT_BIND_SEQ, count > 0 ? x.n : zero, "element");
    ct_kval v =
        spec->part == CT_TOPK_OF_BLOCKS
            ? ct__kir_load(k, spec->block_values, ct__kir_add(k, x.first, i))
            : ct__source_load(k, &spec->x, 2, (ct_kval[]){x.row, topk_index_in_row(k, &x, i)});
    ct_kval n_best = ct__kir_min(k, i, all), is_full = ct__kir_bin(k, CT_K_LE, all, i);
    ct_kval last = ct__kir_load_if(k, best, ct__kir_int(k, count > 0 ? count - 1 : 0), is_full);
    ct_kval is_better = ct__kir_larger(k, spec->dtype, v, last);
    ct__kir_if(k, ct__kir_bin(k, CT_K_OR, ct__kir_un(k, CT_K_NOT, is_full), is_better));
    // Its insertion point: after all elements that it does not precede.
    ct_kval at = ct__kir_reg(k, zero);
    ct_kval j = ct__kir_loop(k, CT_BIND_SEQ, n_best, "among the best");
    ct_kval is_larger = ct__kir_larger(k, spec->dtype, v, ct__kir_load(k, best, j));
    ct_kval step = ct__kir_select(k, is_larger, zero, ct__kir_int(k, 1));
    ct__kir_set(k, at, ct__kir_add(k, ct__kir_get(k, at), step));
    ct__kir_end(k);
    ct_kval to = ct__kir_get(k, at), end = ct__kir_min(k, n_best, ct__kir_int(k, count - 1));
    j = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_sub(k, end, to), "make room");
    ct_kval free_slot = ct__kir_sub(k, end, j), from = ct__kir_addi(k, free_slot, -1);
    ct__kir_store(k, best, free_slot, ct__kir_load(k, best, from));
    ct__kir_store(k, index, free_slot, ct__kir_load(k, index, from));
    ct__kir_end(k);
    ct__kir_store(k, best, to, v);
    ct_kval original = spec->part == CT_TOPK_OF_BLOCKS
                           ? ct__kir_load(k, spec->block_indices, ct__kir_add(k, x.first, i))
                           : ct__kir_cast(k, topk_index_in_row(k, &x, i), CT_I32);
    ct__kir_store(k, index, to, original);
    ct__kir_end_n(k, 2);
    j = ct__kir_loop(k, CT_BIND_SEQ, all, "result");
    ct_kval value = ct__kir_load(k, best, j), original_at = ct__kir_load(k, index, j);
    if (spec->part == CT_TOPK_BLOCKS) {
        ct_kval at_part = ct__kir_add(k, ct__kir_muli(k, x.task, count), j);
        ct__kir_store(k, spec->block_values, at_part, value);
        ct__kir_store(k, spec->block_indices, at_part, original_at);
    } else {
        ct__sink_store(k, &spec->values, 2, (ct_kval[]){x.row, j}, value);
        ct__sink_store(k, &spec->indices, 2, (ct_kval[]){x.row, j}, original_at);
    }
    ct__kir_end_n(k, 2);
}

static bool topk_write_pass(ct_sched *s, ct_node *node, ct_topk_spec spec, const uint32_t *temp) {
    ct_emit *e = ct__emit_new(s, node);
    if (!e) return false;
    ct__emit_declare_sizes(e, node);
    const int start[2] = {0, ct__type(node->in[0])->rank - 1};
    const bool first = spec.part == CT_TOPK_BLOCKS, second = spec.part == CT_TOPK_OF_BLOCKS;
    const int access = first ? CT_KIR_WRITE : CT_KIR_READ;
    ct_flattened x, values, indices;
    if (!second) {
        x = ct__join(e, node->in[0], spec.dtype, 2, start);
        spec.rows = ct__flattened_size(&x, 0);
        spec.n = ct__flattened_size(&x, 1);
        spec.x = ct__flattened_source(&x);
    }
    if (!first) {
        values = ct__join(e, (ct_val){node, 0}, spec.dtype, 2, start);
        indices = ct__join(e, (ct_val){node, 1}, CT_I32, 2, start);
        spec.rows = ct__flattened_size(&values, 0);
        spec.values = ct__flattened_sink(&values);
        spec.indices = ct__flattened_sink(&indices);
    }
    if (first || second) {
        spec.block_values = ct__emit_temp(e, temp[0], ct__kir_compute_dtype(spec.dtype), access);
        spec.block_indices = ct__emit_temp(e, temp[1], CT_I32, access);
    }
    ct__template_topk(e->kir, &spec);
    const double read = second ? (double)(spec.blocks * spec.count) : 1;
    return ct__emit_done(e, second ? read : (double)ct__count(ct__type(node->in[0])));
}

// A few long rows are processed in blocks.
static bool topk_kernels(ct_sched *s, ct_node *node) {
    const ct_type *type = ct__type(node->in[0]);
    ct_topk_spec spec = {.dtype = (ct_dtype)type->dtype, .count = ct__along(node).count};
    const int last = type->rank - 1;
    int64_t rows = 1;
    bool dynamic = false;
    for (int a = 0; a <= last; a++) dynamic |= ct__is_dyn(type, a);
    for (int a = 0; a < last && !dynamic; a++) rows *= type->dim[a];
    spec.width = spec.count > BLOCK / 16 ? 16 * spec.count : BLOCK;
    spec.blocks = dynamic ? 0 : type->dim[last] / spec.width;
    if (rows >= FEW_ROWS || spec.blocks < 2 || spec.count < 1)
        return topk_write_pass(s, node, spec, NULL);
    const int64_t n_kept = ct__size_mul(rows, spec.blocks * spec.count);
    const int64_t each = (int64_t)ct_dtype_size(ct__kir_compute_dtype(spec.dtype));
    const uint32_t temp[2] = {ct__sched_temp(s, ct__size_mul(n_kept, each)),
                              ct__sched_temp(s, ct__size_mul(n_kept, (int64_t)sizeof(int32_t)))};
    if (temp[0] == UINT32_MAX || temp[1] == UINT32_MAX) return false;
    ct_topk_spec second = spec;
    spec.part = CT_TOPK_BLOCKS;
    second.part = CT_TOPK_OF_BLOCKS;
    return topk_write_pass(s, node, spec, temp) && topk_write_pass(s, node, second, temp);
}

// ------------------------------------------------------------------------------------- argsort

typedef struct order {
    ct_kir *k;
    const ct_order_spec *s;
    ct_kval all, base; // elements of one half of a buffer; offset of the line in it
} order;

// True in the kernel if keys y come before keys x; on ties `tie` decides (-1: false).
static ct_kval sort_is_before(const order *c, const ct_kval *y, const ct_kval *x, ct_kval tie) {
    ct_kir *k = c->k;
    ct_kval result = tie;
    for (int q = c->s->n_keys - 1; q >= 0; q--) {
        ct_dtype dtype = c->s->dtype[q];
        ct_kval x_larger = ct__kir_larger(k, dtype, x[q], y[q]);
        ct_kval y_larger = ct__kir_larger(k, dtype, y[q], x[q]);
        ct_kval first = c->s->falling ? y_larger : x_larger;
        if (result >= 0) {
            ct_kval not_last = ct__kir_un(k, CT_K_NOT, c->s->falling ? x_larger : y_larger);
            result = ct__kir_bin(k, CT_K_AND, not_last, result);
            result = ct__kir_bin(k, CT_K_OR, first, result);
        } else {
            result = first;
        }
    }
    return result;
}

static void sort_load_keys(const order *c, ct_kval o, ct_kval i, ct_kval j, ct_kval *x) {
    for (int q = 0; q < c->s->n_keys; q++)
        x[q] = ct__source_load(c->k, &c->s->key[q], 3, (ct_kval[]){o, i, j});
}

// Sorts each run of a line into the first half of the buffers.
static void sort_first_runs(const order *c, ct_kval o, ct_kval j) {
    ct_kir *k = c->k;
    ct_kval x[CT_SORT_MOST_KEYS], y[CT_SORT_MOST_KEYS], n = c->s->n;
    ct_kval run = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_ceil_div(k, n, CT_SORT_RUN), "run");
    ct_kval start = ct__kir_muli(k, run, CT_SORT_RUN), run_size = ct__kir_int(k, CT_SORT_RUN);
    ct_kval count = ct__kir_min(k, ct__kir_sub(k, n, start), run_size), zero = ct__kir_int(k, 0);
    ct_kval i = ct__kir_loop(k, CT_BIND_LANES, count, "element");
    ct_kval from = ct__kir_add(k, start, i), one = ct__kir_int(k, 1);
    sort_load_keys(c, o, from, j, x);
    ct_kval rank = ct__kir_reg(k, zero);
    ct_kval m = ct__kir_loop(k, CT_BIND_SEQ, count, "other");
    sort_load_keys(c, o, ct__kir_add(k, start, m), j, y);
    ct_kval is_before = sort_is_before(c, y, x, ct__kir_lt(k, m, i));
    ct_kval step = ct__kir_select(k, is_before, one, zero);
    ct__kir_set(k, rank, ct__kir_add(k, ct__kir_get(k, rank), step));
    ct__kir_end(k);
    ct_kval to = ct__kir_add(k, start, ct__kir_get(k, rank));
    to = ct__kir_add(k, c->base, to);
    for (int q = 0; q < c->s->n_keys; q++) ct__kir_store(k, c->s->runs[q], to, x[q]);
    ct__kir_store(k, c->s->order, to, ct__kir_cast(k, from, CT_I32));
    ct__kir_end_n(k, 2);
}

// Merges two neighbouring runs of `width` elements each (the last ones may be shorter), starting at `start`,
// from one half of the buffers into the other.
static void sort_merge_runs(const order *c, ct_kval start, ct_kval width, ct_kval from,
                            ct_kval to) {
    ct_kir *k = c->k;
    ct_kval n = c->s->n, last = ct__kir_addi(k, n, -1), zero = ct__kir_int(k, 0);
    ct_kval one = ct__kir_int(k, 1), middle = ct__kir_min(k, ct__kir_add(k, start, width), n);
    ct_kval end = ct__kir_min(k, ct__kir_add(k, middle, width), n);
    ct_kval left = ct__kir_reg(k, start), right = ct__kir_reg(k, middle);
    from = ct__kir_add(k, from, c->base);
    to = ct__kir_add(k, to, ct__kir_add(k, c->base, start));
    ct_kval m = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_sub(k, end, start), "element");
    ct_kval a = ct__kir_get(k, left), b = ct__kir_get(k, right);
    ct_kval no_a = ct__kir_bin(k, CT_K_LE, middle, a), has_b = ct__kir_lt(k, b, end);
    ct_kval at_a = ct__kir_add(k, from, ct__kir_min(k, a, last));
    ct_kval at_b = ct__kir_add(k, from, ct__kir_min(k, b, last));
    ct_kval x[CT_SORT_MOST_KEYS], y[CT_SORT_MOST_KEYS];
    for (int q = 0; q < c->s->n_keys; q++) {
        x[q] = ct__kir_load(k, c->s->runs[q], at_a);
        y[q] = ct__kir_load(k, c->s->runs[q], at_b);
    }
    ct_kval wins = ct__kir_bin(k, CT_K_OR, no_a, sort_is_before(c, y, x, -1));
    ct_kval takes_b = ct__kir_bin(k, CT_K_AND, has_b, wins), to_at = ct__kir_add(k, to, m);
    for (int q = 0; q < c->s->n_keys; q++)
        ct__kir_store(k, c->s->runs[q], to_at, ct__kir_select(k, takes_b, y[q], x[q]));
    ct_kval original = ct__kir_load(k, c->s->order, ct__kir_select(k, takes_b, at_b, at_a));
    ct__kir_store(k, c->s->order, to_at, original);
    ct__kir_set(k, left, ct__kir_add(k, a, ct__kir_select(k, takes_b, zero, one)));
    ct__kir_set(k, right, ct__kir_add(k, b, ct__kir_select(k, takes_b, one, zero)));
    ct__kir_end(k);
}

// Doubles the length of runs until one run is the line. Returns the offset of the half that contains the
// result.
static ct_kval sort_merge_all(const order *c, int64_t n) {
    ct_kir *k = c->k;
    int64_t passes = 0, max_n = n >= 0 ? n : INT64_C(1) << 48; // an upper bound of sizes
    while (CT_SORT_RUN * (INT64_C(1) << passes) < max_n) passes++;
    ct_kval half = ct__kir_reg(k, ct__kir_int(k, 0));
    ct_kval width = ct__kir_reg(k, ct__kir_int(k, CT_SORT_RUN));
    ct__kir_loop_n(k, CT_BIND_SEQ, passes, "pass");
    ct_kval w = ct__kir_get(k, width), from = ct__kir_get(k, half);
    ct_kval to = ct__kir_sub(k, c->all, from), two = ct__kir_muli(k, w, 2);
    ct__kir_if(k, ct__kir_lt(k, w, c->s->n));
    ct_kval up = ct__kir_addi(k, ct__kir_add(k, c->s->n, two), -1);
    ct_kval pair = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_div(k, up, two), "pair of runs");
    sort_merge_runs(c, ct__kir_mul(k, pair, two), w, from, to);
    ct__kir_end(k);
    ct__kir_set(k, half, to);
    ct__kir_set(k, width, two);
    ct__kir_end_n(k, 2);
    return ct__kir_get(k, half);
}

void ct__template_order(ct_kir *k, const ct_order_spec *spec) {
    int64_t n = -1;
    order c = {.k = k, .s = spec};
    if (!ct__kir_is_int(k, spec->n, &n)) n = -1;
    int64_t task_lines = n > 0 && n < GRAIN ? GRAIN / n : 1;
    ct_kval lines = ct__kir_mul(k, spec->outer, spec->inner),
            max_lines = ct__kir_int(k, task_lines);
    c.all = ct__kir_mul(k, lines, spec->n);
    ct_kval task = ct__kir_loop(k, CT_BIND_ROWS, ct__kir_ceil_div(k, lines, task_lines), "block");
    ct_kval first = ct__kir_muli(k, task, task_lines);
    ct_kval n_lines = ct__kir_min(k, ct__kir_sub(k, lines, first), max_lines);
    ct_kval line = ct__kir_add(k, first, ct__kir_loop(k, CT_BIND_SEQ, n_lines, "line"));
    ct_kval o = ct__kir_div(k, line, spec->inner), j = ct__kir_mod(k, line, spec->inner);
    c.base = ct__kir_mul(k, line, spec->n);
    sort_first_runs(&c, o, j);
    ct_kval from = ct__kir_add(k, sort_merge_all(&c, n), c.base);
    ct_kval i = ct__kir_loop(k, CT_BIND_SEQ, spec->n, "result");
    ct_kval original = ct__kir_load(k, spec->order, ct__kir_add(k, from, i));
    ct__sink_store(k, &spec->out, 3, (ct_kval[]){o, i, j}, original);
    ct__kir_end_n(k, 3);
}

// Allocates memory for the original indices and then for the runs of each key.
static bool sort_alloc_runs(ct_sched *s, const ct_node *node, uint32_t *temp) {
    int64_t count = 2;
    for (int a = 0; a < node->out->rank; a++)
        count = ct__size_mul(count, ct__size_of(node->out, a));
    for (int q = 0; q <= node->n_in; q++) {
        ct_dtype dtype = q ? (ct_dtype)ct__type(node->in[q - 1])->dtype : CT_I32;
        int64_t each = (int64_t)ct_dtype_size(ct__kir_compute_dtype(dtype));
        temp[q] = ct__sched_temp(s, ct__size_mul(count, each));
        if (temp[q] == UINT32_MAX) return false;
    }
    return true;
}

static bool sort_order_kernels(ct_sched *s, ct_node *node) {
    const ct_along along = ct__along(node);
    const int start[3] = {0, along.axis, along.axis + 1}, access = CT_KIR_READ | CT_KIR_WRITE;
    uint32_t temp[CT_SORT_MOST_KEYS + 1];
    ct_emit *e = sort_alloc_runs(s, node, temp) ? ct__emit_new(s, node) : NULL;
    if (!e) return false;
    ct__emit_declare_sizes(e, node);
    ct_flattened out = ct__join(e, (ct_val){node, 0}, CT_I32, 3, start), key[CT_SORT_MOST_KEYS];
    ct_order_spec spec = {.n_keys = node->n_in, .falling = along.reverse};
    spec.outer = ct__flattened_size(&out, 0);
    spec.n = ct__flattened_size(&out, 1);
    spec.inner = ct__flattened_size(&out, 2);
    spec.out = ct__flattened_sink(&out);
    for (int q = 0; q < node->n_in; q++) {
        ct_dtype dtype = (ct_dtype)ct__type(node->in[q])->dtype;
        key[q] = ct__join(e, node->in[q], dtype, 3, start);
        spec.dtype[q] = dtype;
        spec.key[q] = ct__flattened_source(&key[q]);
        spec.runs[q] = ct__emit_temp(e, temp[q + 1], ct__kir_compute_dtype(dtype), access);
    }
    spec.order = ct__emit_temp(e, temp[0], CT_I32, access);
    ct__template_order(e->kir, &spec);
    return ct__emit_done(e, 20 * (double)ct__count(node->out));
}

// ------------------------------------------------------------------------------------- reference

// Lines of keys in memory: elements are `step` apart, and the first one of a line is at `base`.
typedef struct lines {
    const ct_ref *ref;
    bool falling;
    int64_t base, step;
} lines;

// True if element a of the line comes after element b.
static bool sort_ref_is_after(const lines *l, int64_t a, int64_t b) {
    for (int q = 0; q < l->ref->n_in; q++) {
        ct_dtype d = (ct_dtype)l->ref->in_type[q].dtype;
        ct_element x = {d, l->ref->in[q], l->base + a * l->step}, y = x;
        y.at = l->base + b * l->step;
        bool x_larger = ct__is_larger(x, y, d), y_larger = ct__is_larger(y, x, d);
        if (x_larger || y_larger) return l->falling ? y_larger : x_larger;
    }
    return false;
}

static void sort_ref_merge(const lines *l, const int64_t *from, int64_t *to, int64_t n,
                           int64_t width) {
    for (int64_t start = 0; start < n; start += 2 * width) {
        int64_t middle = start + width < n ? start + width : n;
        int64_t end = middle + width < n ? middle + width : n, a = start, b = middle;
        for (int64_t i = start; i < end; i++) {
            bool takes_b = b < end && (a >= middle || sort_ref_is_after(l, from[a], from[b]));
            to[i] = takes_b ? from[b++] : from[a++];
        }
    }
}

static bool sort_order_eval(const ct_ref *ref) {
    const ct_type *type = ref->in_type;
    const ct_along along = ct__along(ref->node);
    int64_t n = type->dim[along.axis], count = ct__count(type);
    lines l = {.ref = ref, .falling = along.reverse, .step = 1};
    for (int a = along.axis + 1; a < type->rank; a++) l.step *= type->dim[a];
    if (!count) return true;
    size_t bytes = 2 * (size_t)n * sizeof(int64_t);
    int64_t *memory = ct__malloc(bytes);
    if (!memory) return ct__err_memory(ref->err, ref->node->here, ref->node->op->name, bytes);
    for (int64_t line = 0; line < count / n; line++) {
        int64_t *from = memory, *to = memory + n;
        l.base = line / l.step * l.step * n + line % l.step;
        for (int64_t i = 0; i < n; i++) from[i] = i;
        for (int64_t width = 1; width < n; width *= 2) {
            sort_ref_merge(&l, from, to, n, width);
            int64_t *merged = to;
            to = from;
            from = merged;
        }
        for (int64_t i = 0; i < n; i++)
            ct__store_i64(CT_I32, ref->out[0], l.base + i * l.step, from[i]);
    }
    ct__free(memory);
    return true;
}

// An op with one result is argsort; one with two is top-k: the largest elements and their indices.
static bool sort_kernels(ct_sched *s, ct_node *node) {
    return node->n_out == 1 ? sort_order_kernels(s, node) : topk_kernels(s, node);
}

const ct_kind ct__kind_sort = {
    .name = "sort",
    .doc = "Elements along an axis in their order.",
    .scheduled = CT_TEMPLATE,
    .kernels = sort_kernels,
    .eval = sort_order_eval,
    .copies = true,
    .batch = ct__batch_shifted,
};
