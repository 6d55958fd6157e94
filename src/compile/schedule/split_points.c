// Finds where the loops of an elementwise kernel may be split, and estimates the work of a kernel, by which
// a split is chosen.
//
// Along an axis of a concat, or one with a border, conditions change at some indices. Between those are
// ranges, in each of which one piece is read without a condition. An index that is divided by 2, such as
// that of a doubled pixel, is linear where an iteration computes two elements (a cell). The same holds for
// interleaved elements, and for short last axes of concats.
#include <math.h>

#include "base/number.h"
#include "compile/schedule/sched.h"

enum { MAX_ELEMENTS = 8 };

typedef struct {
    ct_emit *e;
    ct_ix var;
    int64_t size, elements;
    ct_cut *ranges;
} axis_split_finder;

static void axis_split_add_start(axis_split_finder *f, int64_t at) {
    ct_cut *r = f->ranges;
    int i = 0;
    if (at <= 0 || at >= f->size) return;
    while (i < r->n && r->start[i] < at) i++;
    if ((i < r->n && r->start[i] == at) || r->n == CT_MOST_RANGES - 1) return;
    for (int k = r->n++; k > i; k--) r->start[k] = r->start[k - 1];
    r->start[i] = at;
}

// True if e is step * var + offset, and both are numbers.
static bool axis_split_is_linear(axis_split_finder *f, ct_ix e, int64_t *step, int64_t *offset) {
    ct_ix stride, rest;
    ct_ix_pool *p = f->e->pool;
    if (!ct__ix_stride(p, e, f->var, &stride) || !ct__ix_is_int(p, stride, step)) return false;
    rest = ct__ix_sub(p, e, ct__ix_mul(p, stride, f->var));
    return offset == NULL || ct__ix_is_int(p, rest, offset);
}

static void axis_split_visit(axis_split_finder *f, ct_ix e);

// step * var + offset < 0 changes once.
static void axis_split_visit_less(axis_split_finder *f, const ct_ix_node *x) {
    int64_t step, offset;
    if (!axis_split_is_linear(f, ct__ix_sub(f->e->pool, x->a, x->b), &step, &offset) || step == 0)
        return;
    if (step > 0)
        axis_split_add_start(f, (-offset + step - 1) / step);
    else
        axis_split_add_start(f, offset / -step + 1);
}

static void axis_split_visit(axis_split_finder *f, ct_ix e) {
    ct_ix_pool *p = f->e->pool;
    int64_t by, step;
    if (e < 0 || !ct__ix_uses(p, e, f->var)) return;
    const ct_ix_node x = *ct__ix_node(p, e); // a copy, since the pool moves
    switch (x.kind) {
    case CT_IX_VAR: return;
    case CT_IX_SUM:
        for (int i = 0; i < x.n; i++) axis_split_visit(f, x.term[i].atom);
        return;
    case CT_IX_LOAD:
        for (int i = 0; i < x.n; i++) axis_split_visit(f, x.at[i]);
        return;
    case CT_IX_LT: axis_split_visit_less(f, &x); break;
    case CT_IX_DIV:
    case CT_IX_MOD:
        if (!ct__ix_is_int(p, x.b, &by) || !by || !axis_split_is_linear(f, x.a, &step, NULL) ||
            step % by == 0)
            break; // division by 0: an index of an empty axis, which is not used
        by /= ct__gcd(by, step);
        if (f->elements <= MAX_ELEMENTS && by <= MAX_ELEMENTS)
            f->elements *= by / ct__gcd(f->elements, by);
        break;
    default: break;
    }
    axis_split_visit(f, x.a);
    axis_split_visit(f, x.b);
    axis_split_visit(f, x.c);
}

void ct__find_cuts(ct_emit *e, ct_ix var, int64_t size, bool last, ct_cut *ranges, ct_cut *cells) {
    axis_split_finder f = {.e = e, .var = var, .size = size, .elements = 1, .ranges = ranges};
    const ct_kernel_builder *d = e->draft;
    ranges->n = 0;
    for (size_t i = 0; i < d->n_seen; i++) {
        axis_split_visit(&f, d->seen[i].offset);
        axis_split_visit(&f, d->seen[i].guard);
    }
    if (last && ranges->n && size <= MAX_ELEMENTS) f.elements = size;
    if (f.elements <= MAX_ELEMENTS && f.elements <= size) cells->elements = f.elements;
    if (size % cells->elements) { // the remaining elements
        cells->n = 2;
        cells->start[1] = size - size % cells->elements;
        cells->start[2] = size;
    }
    if (!ranges->n) return;
    for (int i = ranges->n++; i > 0; i--) ranges->start[i] = ranges->start[i - 1];
    ranges->start[0] = 0;
    ranges->start[ranges->n] = size;
}

// -------------------------------------------------------------------------------------------- work

void ct__share(ct_shares *s, const ct_kir *k, double times) {
    if (s->n == (int)(sizeof s->loop / sizeof *s->loop)) return;
    s->loop[s->n] = k->open;
    s->times[s->n++] = times;
}

// Returns the trip count of a loop: its extent, or the count that was recorded for it.
static double kernel_cost_trip_count(const ct_kir *k, ct_kval loop, const ct_shares *shares) {
    int64_t n;
    if (ct__kir_is_int(k, k->ins[loop].a, &n)) return (double)n;
    for (int i = 0; i < shares->n; i++)
        if (shares->loop[i] == loop) return shares->times[i];
    return 64;
}

enum {
    COST_LANES = 16,     // lane by lane
    COST_STRIDE_2 = 3,   // an access to every second element
    COST_FOLD = 12,      // lanes are folded at a loop's end
    COST_TRANSPOSED = 5, // a strided load of lanes that is transposed in registers
};

// Returns the cost of an instruction for 16 lanes, or for one value that all of them share.
static double kernel_cost_instruction(const ct_kshape *shape, const ct_kins *x, ct_kval id,
                                      bool tile) {
    const bool masked = x->op == CT_K_LOAD && x->b >= 0;
    switch (x->op) {
    case CT_K_CONST:
    case CT_K_PREFETCH: // while something else waits
    case CT_K_ARG: return 0;
    case CT_K_LOOP: return 2;
    case CT_K_LOAD:
    case CT_K_STORE:
        if (shape[x->a].vary == CT_VARYING) return COST_LANES;
        if (shape[x->a].vary == CT_AFFINE && shape[x->a].stride == 2 && !tile) return COST_STRIDE_2;
        if (shape[x->a].vary == CT_AFFINE && shape[x->a].stride != 1)
            return tile && x->op == CT_K_LOAD ? COST_TRANSPOSED : COST_LANES / 2;
        return masked ? 1.5 : 1;
    default: break;
    }
    if (shape[id].vary == CT_UNIFORM) return 0.3;
    const bool is_int_division = (x->op == CT_K_DIV || x->op == CT_K_MOD) && x->dtype == CT_I64;
    if (shape[id].vary == CT_AFFINE) return 0.3;
    if (is_int_division) return 4 * COST_LANES;
    if (x->op == CT_K_MATH || x->op == CT_K_DIV || x->op == CT_K_SQRT || x->op == CT_K_MOD)
        return COST_LANES;
    return x->dtype == CT_I64 || x->dtype == CT_F64 ? 2 : 1;
}

double ct__work(ct_emit *e, const ct_shares *shares) {
    const ct_kir *k = e->kir;
    double *times = ct__calloc(k->n + 1, sizeof *times), work = 0;
    ct_kshape *shape = ct__malloc((k->n + 1) * sizeof *shape);
    if ((!times || !shape) && !e->err->code)
        ct__err_memory(e->err, CT_NOWHERE, "kernel", (k->n + 1) * sizeof *shape);
    if (times && shape && !k->err.code) {
        ct__kir_shapes(k, CT_LANES, shape);
        for (size_t i = 0; i < k->n; i++) {
            const ct_kins *x = &k->ins[i];
            const double around = x->in >= 0 ? times[x->in] : 1;
            const bool tile = x->in >= 0 && k->ins[x->in].sub == CT_BIND_TILE;
            if (x->op == CT_K_LOOP) {
                const bool lanes = x->sub == CT_BIND_LANES || x->sub == CT_BIND_TILE;
                double n = kernel_cost_trip_count(k, (ct_kval)i, shares);
                times[i] = around * (lanes ? ceil(n / CT_LANES) : n);
            }
            work += around * kernel_cost_instruction(shape, x, (ct_kval)i, tile);
            if (x->op == CT_K_REDUCE && k->ins[x->in].sub == CT_BIND_LANES)
                work += COST_FOLD * (k->ins[x->in].in >= 0 ? times[k->ins[x->in].in] : 1);
        }
    }
    ct__free(times);
    ct__free(shape);
    return work;
}
