// What ops want of their operands and attributes. Elementwise ops, scatters and what has one operand
// are served by their records: by the kind, and by what fields mean. Others have a builder here, and
// an op without one is found missing by the tests.
#include "support/graph_build.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "optim/stage.h"

// ------------------------------------------------------------------------------------------------
// shapes

// Axes that an op has at most which takes any number of them.
static int most_axes(const gen_graph *g) { return g->empty ? 6 : 4; }

// A size as one that CT_DYN marks, now and then, where graphs are to have many.
static int64_t perhaps_dynamic(gen_graph *g, int64_t size) {
    return g->empty && size >= 0 && !ct__marked(size) && gen_chance(g, 40) ? CT_DYN(size) : size;
}

static int64_t any_size(gen_graph *g) {
    if (g->empty) {
        static const int64_t few[] = {0, 1, 1, 1, 2, 2, 3, 5};
        return few[gen_below(g, sizeof few / sizeof *few)];
    }
    static const int64_t sizes[] = {1, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 13, 16, 17, 31, 33, 64, 67};
    static const int64_t large[] = {129, 257, 1000, 1025, 2050, 3001};
    int way = gen_below(g, 100);
    return way < 2 ? 0 : way < 7 ? large[gen_below(g, 6)] : sizes[gen_below(g, 18)];
}

static ct_ints any_dims(gen_graph *g, int least, int most) {
    int64_t v[8], rank = least + gen_below(g, most - least + 1), n = 1;
    int64_t limit = g->gradients ? GEN_MOST / 2 : GEN_MOST;
    for (int64_t a = 0; a < rank; a++) {
        v[a] = any_size(g);
        while (n * v[a] > limit) v[a] = v[a] > 8 ? v[a] / 8 : 1;
        if (v[a]) n *= v[a];
        if (!g->empty && v[a] && gen_chance(g, 4)) v[a] = CT_DYN(v[a]);
        v[a] = perhaps_dynamic(g, v[a]);
    }
    return gen_dims(g, rank, v);
}

// Sizes that broadcast with those of a type: some axes missing in front, some 1.
static ct_ints fitting_dims(gen_graph *g, const gen_value *like) {
    int64_t v[CT_MAX_RANK], n = 0;
    int from = gen_chance(g, 50) ? 0 : gen_below(g, like->type.rank + 1);
    for (int a = from; a < like->type.rank; a++) {
        const int64_t own = like->dims.v[a];
        v[n++] = !gen_chance(g, 70) ? 1 : g->empty && gen_chance(g, 30) ? ct__unmarked(own) : own;
    }
    return gen_dims(g, n, v);
}

static bool broadcast_fits(const ct_type *a, const ct_type *b) {
    int64_t n = 1;
    int rank = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 1; i <= rank; i++) { // from the last axis
        int64_t x = i <= a->rank ? a->dim[a->rank - i] : 1;
        int64_t y = i <= b->rank ? b->dim[b->rank - i] : 1;
        bool x_dyn = i <= a->rank && ct__is_dyn(a, a->rank - i);
        bool y_dyn = i <= b->rank && ct__is_dyn(b, b->rank - i);
        if (x != y && !(x == 1 && !x_dyn) && !(y == 1 && !y_dyn)) return false;
        n *= x == 1 ? y : x;
    }
    return n <= GEN_MOST;
}

// ------------------------------------------------------------------------------------------------
// operands

typedef struct {
    ct_dtypes accepts;
    int least, most; // rank
    bool exact;
    const ct_type *with; // it broadcasts with this
} want;

static ct_dtype any_dtype(gen_graph *g, ct_dtypes accepts) {
    accepts &= CT_NUMBERS | CT_MASK(CT_BOOL);
    if (accepts & CT_MASK(CT_F32) && gen_chance(g, 50)) return CT_F32;
    if (accepts & CT_MASK(CT_F16) && gen_chance(g, 40)) return gen_chance(g, 50) ? CT_F16 : CT_BF16;
    uint64_t random = gen_bits(&g->random), most = 0;
    ct_dtype best = CT_DEFAULT;
    for (int d = CT_DEFAULT + 1; d < CT_DTYPE_COUNT; d++) {
        uint64_t worth = accepts & CT_MASK(d) ? gen_worth(random, ct_dtype_name((ct_dtype)d)) : 0;
        if (worth > most) best = (ct_dtype)d, most = worth;
    }
    return best;
}

static bool good(const gen_value *v, const want *w) {
    if (!(w->accepts & CT_MASK(v->type.dtype)) || v->type.rank < w->least || v->type.rank > w->most)
        return false;
    if (w->exact && !v->exact) return false;
    return !w->with || broadcast_fits(&v->type, w->with);
}

// A value that was made before, rather one that nothing uses yet; -1: none fits.
static int found(gen_graph *g, const want *w) {
    int best = -1, score = 0;
    for (int i = 0; i < g->n_values; i++) {
        const gen_value *v = &g->value[i];
        if (!good(v, w)) continue;
        int mine = 1 + gen_below(g, 100) + (v->uses ? 0 : 60) + 2 * i;
        if (v->type.weak) mine /= 4;
        if (mine > score) best = i, score = mine;
    }
    return best;
}

static int pick(gen_graph *g, const ct_opdef *op, want w) {
    int v = gen_chance(g, 80) ? found(g, &w) : -1;
    if (v >= 0) return v;
    double lo = op->samples.lo, hi = op->samples.hi;
    if (lo == 0 && hi == 0) lo = -2, hi = 2;
    ct_ints dims = any_dims(g, w.least, w.most > most_axes(g) ? most_axes(g) : w.most);
    return gen_leaf(g, any_dtype(g, w.accepts), dims, lo, hi);
}

static int apply(gen_graph *g, const ct_opdef *op, int n, const int *in) {
    gen_step s = {.kind = GEN_OP, .op = op, .n_in = n};
    for (int i = 0; i < n; i++) {
        if (in[i] < 0) return -1;
        s.in[i] = in[i];
    }
    return gen_commit(g, &s);
}

// A float brought into the range of an op's samples: cut off where it is exact, else pressed in.
static int ranged(gen_graph *g, const ct_opdef *op, int at) {
    if (at < 0 || !(CT_FLOATS & CT_MASK(g->value[at].type.dtype))) return at;
    double lo = op->samples.lo, hi = op->samples.hi;
    const gen_value *v = &g->value[at];
    bool open = lo == 0 && hi == 0; // any number will do, if it does not grow and grow
    if (open) lo = -2, hi = 2;
    double slack = open ? 4 : 1;
    if ((v->lo >= slack * lo && v->hi <= slack * hi) || v->lo > v->hi) return at;
    if (v->type.weak) return gen_number(g, gen_uniform(g, lo, hi), false);
    if (gen_chance(g, 8)) return at;
    int low = gen_number(g, lo, false), high = gen_number(g, hi, false);
    if (v->exact) return apply(g, &ct__op_clamp, 3, (int[]){at, low, high});
    int unit = apply(g, &ct__op_sigmoid, 1, &at), span = gen_number(g, hi - lo, false);
    return apply(g, &ct__op_add, 2, (int[]){apply(g, &ct__op_mul, 2, (int[]){unit, span}), low});
}

// ------------------------------------------------------------------------------------------------
// attributes

static void *attr(gen_step *s, const char *name) {
    for (size_t i = 0; i < s->op->n_fields; i++)
        if (strcmp(s->op->fields[i].name, name) == 0) return s->attrs + s->op->fields[i].offset;
    abort(); // the op's attributes have other names now
}
static void set(gen_step *s, const char *name, int64_t v) { *(int64_t *)attr(s, name) = v; }
static void set_flag(gen_step *s, const char *name, bool v) { *(bool *)attr(s, name) = v; }
static void set_dtype(gen_step *s, const char *name, ct_dtype v) { *(ct_dtype *)attr(s, name) = v; }
static void set_list(gen_graph *g, gen_step *s, const char *name, int64_t n, const int64_t *v) {
    *(ct_ints *)attr(s, name) = gen_dims(g, n, v);
}

// Some axes of a rank, perhaps counted from the end; none: 0.
static int64_t some_axes(gen_graph *g, int rank, int64_t *axes) {
    int64_t n = 0;
    for (int a = 0; a < rank; a++)
        if (gen_chance(g, 50)) axes[n++] = gen_chance(g, 30) ? a - rank : a;
    return n;
}

static int64_t shuffled_axes(gen_graph *g, int rank, int64_t *axes) {
    for (int a = 0; a < rank; a++) axes[a] = a;
    for (int a = rank - 1; a > 0; a--) {
        int b = gen_below(g, a + 1);
        int64_t t = axes[a];
        axes[a] = axes[b];
        axes[b] = t;
    }
    return rank;
}

static want any_of(const gen_step *s, int least, int most) {
    return (want){.accepts = s->op->accepts, .least = least, .most = most};
}
static int first(gen_graph *g, gen_step *s, int least, int most) {
    want w = any_of(s, least, most);
    gen_step probe = *s;
    w.exact = gen_jumps(g, &probe);
    s->in[0] = ranged(g, s->op, pick(g, s->op, w));
    s->n_in = 1;
    return s->in[0];
}
static const gen_value *value(const gen_graph *g, int v) { return &g->value[v]; }

// x with 0 for NaN: the sign of a computed NaN is not defined.
static int without_nan(gen_graph *g, int at) {
    if (at < 0 || !(CT_FLOATS & CT_MASK(value(g, at)->type.dtype)) || value(g, at)->type.weak)
        return at;
    const int is_nan = apply(g, &ct__op_is_nan, 1, &at), zero = gen_number(g, 0, false);
    return apply(g, &ct__op_select, 3, (int[]){is_nan, zero, at});
}

// ------------------------------------------------------------------------------------------------
// by kind

static bool elementwise(gen_graph *g, gen_step *s) {
    bool choice = s->op->condition, exact = gen_jumps(g, s);
    int n = s->op->n_in, head = choice ? 1 : 0;
    want w = any_of(s, 0, most_axes(g));
    w.exact = exact;
    int base = s->in[head] = ranged(g, s->op, pick(g, s->op, w));
    if (base < 0) return false;
    for (int i = 0; i < n; i++) {
        if (i == head) continue;
        ct_dtypes own = CT_MASK(value(g, base)->type.dtype);
        want other = {.accepts = gen_chance(g, 80) ? own : s->op->accepts,
                      .most = most_axes(g),
                      .exact = exact,
                      .with = &value(g, base)->type};
        if (choice && i == 0) other.accepts = CT_MASK(CT_BOOL);
        bool number = other.accepts & (CT_MASK(CT_F32) | CT_MASK(CT_I32)) && gen_chance(g, 12);
        int v = !number && gen_chance(g, 60) ? found(g, &other) : -1;
        double lo = s->op->samples.lo, hi = s->op->samples.hi;
        if (lo == 0 && hi == 0) lo = -2, hi = 2;
        if (number) {
            bool whole = !(other.accepts & CT_MASK(CT_F32));
            v = gen_number(g, whole ? gen_below(g, CT_STAGES) : gen_uniform(g, lo, hi), whole);
        } else if (v < 0) {
            ct_ints dims = fitting_dims(g, value(g, base));
            v = gen_leaf(g, any_dtype(g, other.accepts), dims, lo, hi);
        }
        s->in[i] = ranged(g, s->op, v);
    }
    if (s->op == &ct__op_signbit || s->op == &ct__op_copysign)
        s->in[n - 1] = without_nan(g, s->in[n - 1]);
    s->n_in = n;
    return s->in[n - 1] >= 0;
}

// An axis is chosen, or some, where a field means that; flags are thrown, whole numbers small.
static void set_field(gen_graph *g, gen_step *s, const ct_field *field, const ct_type *x) {
    int64_t axes[CT_MAX_RANK], n = x->rank ? x->dim[x->rank - 1] : 1;
    switch ((int)field->means) {
    case CT_MEANS_axis: set(s, field->name, gen_below(g, x->rank)); return;
    case CT_MEANS_axes: set_list(g, s, field->name, some_axes(g, x->rank, axes), axes); return;
    case CT_MEANS_permutation:
        set_list(g, s, field->name, gen_chance(g, 20) ? 0 : shuffled_axes(g, x->rank, axes), axes);
        return;
    case CT_MEANS_count: set(s, field->name, gen_below(g, (n < 9 ? n : 9) + 1)); return;
    default: break;
    }
    if (field->kind == CT_FIELD_bool) set_flag(s, field->name, gen_chance(g, 40));
    if (field->kind == CT_FIELD_i64) set(s, field->name, gen_below(g, 2));
}

// One operand, and attributes by what they mean.
static bool by_attributes(gen_graph *g, gen_step *s) {
    const ct_opdef *op = s->op;
    int least = 0;
    for (size_t i = 0; i < op->n_fields; i++) {
        const ct_field *field = &op->fields[i];
        if (field->kind == CT_FIELD_dtype) set_dtype(s, field->name, any_dtype(g, CT_ANY));
        if (field->means == CT_MEANS_axis || field->means == CT_MEANS_count) least = 1;
    }
    int x = first(g, s, least, most_axes(g)); // which depends on the dtype of a cast
    if (x < 0) return false;
    for (size_t i = 0; i < op->n_fields; i++) set_field(g, s, &op->fields[i], &value(g, x)->type);
    return true;
}

// Of two operands of one shape and dtype.
static bool of_pairs(gen_graph *g, gen_step *s) {
    if (!by_attributes(g, s)) return false;
    const gen_value *a = value(g, s->in[0]);
    // Results that do not depend on the second operand have no gradient with respect to it.
    bool apart = !g->gradients || s->op->n_out == 1;
    s->in[1] = apart ? gen_leaf(g, (ct_dtype)a->type.dtype, a->dims, -1, 1) : s->in[0];
    s->n_in = 2;
    return true;
}

static bool searchsorted(gen_graph *g, gen_step *s) {
    if (first(g, s, 0, 3) < 0) return false;
    int64_t n = gen_below(g, 70);
    ct_dtype dtype = (ct_dtype)value(g, s->in[0])->type.dtype;
    int line = gen_leaf(g, dtype, gen_dims(g, 1, &n), -2, 2);
    s->in[1] = s->in[0];
    s->in[0] = apply(g, &ct__op_sort, 1, &line);
    s->n_in = 2;
    set_flag(s, "right", gen_chance(g, 50));
    return s->in[0] >= 0;
}

static bool unique(gen_graph *g, gen_step *s) {
    if (first(g, s, 0, 3) < 0) return false;
    set(s, "size", gen_below(g, 20));
    return true;
}

// NaNs have many bit patterns, so only leaves are read as bits.
static bool bitcast(gen_graph *g, gen_step *s) {
    ct_dtype from = any_dtype(g, CT_ANY), to = any_dtype(g, CT_ANY);
    while (ct_dtype_size(to) != ct_dtype_size(from) || to == CT_BOOL) {
        from = any_dtype(g, CT_ANY);
        to = any_dtype(g, CT_ANY);
    }
    s->in[0] = gen_leaf(g, from, any_dims(g, 0, 4), -2, 2);
    s->n_in = 1;
    set_dtype(s, "dtype", to);
    return true;
}

// ------------------------------------------------------------------------------------------------
// movement

// Sizes that multiply to n, in any order, dynamic or not; at most 6.
static int64_t any_split(gen_graph *g, int64_t n, int64_t *dims) {
    int64_t rank = gen_below(g, 6), at = gen_below(g, rank + 1);
    for (int64_t a = 0; a < rank; a++) {
        const int64_t part = n ? 1 + gen_below(g, 5) : gen_below(g, 4);
        dims[a < at ? a : a + 1] = n && n % part ? 1 : part;
        if (n) n /= dims[a < at ? a : a + 1];
    }
    dims[at] = n;
    if (n == 1 && rank == 0 && gen_chance(g, 50)) return 0;
    for (int64_t a = 0; a <= rank; a++) dims[a] = perhaps_dynamic(g, dims[a]);
    return rank + 1;
}

static bool reshape(gen_graph *g, gen_step *s) {
    int x = first(g, s, 0, most_axes(g));
    if (x < 0) return false;
    const gen_value *v = value(g, x);
    int64_t n = gen_count(v->dims), dims[8], rank = 0;
    if (g->empty && gen_chance(g, 80)) {
        rank = any_split(g, n, dims);
    } else if (v->type.dyn) {
        dims[rank++] = -1;
        if (v->type.rank && !ct__is_dyn(&v->type, v->type.rank - 1) && n)
            dims[rank++] = v->dims.v[v->type.rank - 1];
    } else {
        while (rank < 4 && gen_chance(g, 80)) {
            int64_t part = 1 + gen_below(g, 9);
            dims[rank++] = n % part == 0 ? part : 1;
            if (n) n /= dims[rank - 1];
        }
        if (n != 1 || rank == 0 || gen_chance(g, 30)) dims[rank++] = n;
    }
    set_list(g, s, "dims", rank, dims);
    return true;
}

static bool expand(gen_graph *g, gen_step *s) {
    int x = first(g, s, 0, g->empty ? 6 : 3);
    if (x < 0) return false;
    const gen_value *v = value(g, x);
    int64_t dims[8], rank = 0, n = gen_count(v->dims);
    if (n * 5 <= GEN_MOST && gen_chance(g, 60)) {
        const int64_t size = g->empty ? gen_below(g, 4) : 1 + gen_below(g, 5);
        dims[rank++] = perhaps_dynamic(g, size), n *= size;
    }
    for (int a = 0; a < v->type.rank; a++) {
        bool one = v->dims.v[a] == 1;
        int64_t size = one && n * 9 <= GEN_MOST ? (g->empty ? gen_below(g, 4) : 1 + gen_below(g, 9))
                                                : v->dims.v[a];
        if (one) n *= size;
        dims[rank++] = perhaps_dynamic(g, size);
    }
    set_list(g, s, "dims", rank, dims);
    return true;
}

static bool slice(gen_graph *g, gen_step *s) {
    int x = first(g, s, 1, most_axes(g));
    if (x < 0) return false;
    const ct_type *t = &value(g, x)->type;
    int64_t start[CT_MAX_RANK], stop[CT_MAX_RANK], step[CT_MAX_RANK];
    for (int a = 0; a < t->rank; a++) {
        int64_t n = t->dim[a];
        start[a] = gen_chance(g, 40) ? 0 : gen_below(g, n / 2 + 1);
        stop[a] = gen_chance(g, 50) ? CT_END : n - gen_below(g, (n - start[a]) / 2 + 1);
        step[a] = gen_chance(g, 60) ? 1 : 1 + gen_below(g, 4);
        if (n && start[a] && gen_chance(g, 20)) start[a] -= n;
        start[a] = perhaps_dynamic(g, start[a]);
        if (stop[a] != CT_END) stop[a] = perhaps_dynamic(g, stop[a]);
    }
    set_list(g, s, "start", t->rank, start);
    set_list(g, s, "stop", t->rank, stop);
    set_list(g, s, "step", gen_chance(g, 40) ? 0 : t->rank, step);
    return true;
}

static bool pad(gen_graph *g, gen_step *s) {
    int x = first(g, s, 1, most_axes(g));
    if (x < 0) return false;
    const ct_type *t = &value(g, x)->type;
    int64_t low[CT_MAX_RANK], high[CT_MAX_RANK], interior[CT_MAX_RANK];
    for (int a = 0; a < t->rank; a++) {
        low[a] = perhaps_dynamic(g, gen_below(g, 3));
        high[a] = perhaps_dynamic(g, gen_below(g, 3));
        interior[a] = gen_chance(g, 70) ? 0 : gen_below(g, 3);
    }
    ct_dtype dtype = (ct_dtype)t->dtype;
    int rank = t->rank;
    s->in[1] = gen_leaf(g, dtype, CT_SCALAR, -2, 2);
    s->n_in = 2;
    set_list(g, s, "low", rank, low);
    set_list(g, s, "high", gen_chance(g, 30) ? 0 : rank, high);
    set_list(g, s, "interior", rank, interior);
    return true;
}

static bool concat(gen_graph *g, gen_step *s) {
    int x = first(g, s, 1, most_axes(g));
    if (x < 0) return false;
    int n = 1 + gen_below(g, 4), axis = gen_below(g, value(g, x)->type.rank);
    for (int i = 1; i < n; i++) {
        const gen_value *v = value(g, x);
        ct_ints dims = gen_dims(g, v->dims.n, v->dims.v);
        int64_t *own = (int64_t *)(uintptr_t)dims.v;
        own[axis] = perhaps_dynamic(g, gen_below(g, 5));
        bool again = gen_count(v->dims) < 500 && gen_chance(g, 30);
        s->in[i] = again ? x : gen_leaf(g, (ct_dtype)v->type.dtype, dims, -2, 2);
    }
    s->n_in = n;
    set(s, "axis", gen_chance(g, 30) ? axis - value(g, x)->type.rank : axis);
    return true;
}

// Start positions for some axes, now and then outside.
static int starts(gen_graph *g, const ct_type *t, int64_t n, const int64_t *axes) {
    int64_t at[CT_MAX_RANK];
    for (int64_t i = 0; i < n; i++) at[i] = gen_below(g, t->dim[axes[i]] + 3) - 2;
    return gen_numbers(g, gen_chance(g, 50) ? CT_I32 : CT_I64, gen_dims(g, 1, &n), at);
}

static int64_t plain_axes(gen_graph *g, int rank, int64_t *axes) { // at least one, from the front
    int64_t n = 0;
    for (int a = 0; a < rank; a++)
        if (gen_chance(g, 50) || (a == rank - 1 && n == 0)) axes[n++] = a;
    return n;
}

static bool dynamic_slice(gen_graph *g, gen_step *s) {
    int x = first(g, s, 1, most_axes(g));
    if (x < 0) return false;
    int64_t axes[CT_MAX_RANK], sizes[CT_MAX_RANK];
    int64_t n = plain_axes(g, value(g, x)->type.rank, axes);
    for (int64_t i = 0; i < n; i++)
        sizes[i] = perhaps_dynamic(g, gen_below(g, value(g, x)->type.dim[axes[i]] + 1));
    s->in[1] = starts(g, &value(g, x)->type, n, axes);
    s->n_in = 2;
    set_list(g, s, "axes", n, axes);
    set_list(g, s, "sizes", n, sizes);
    return true;
}

static bool dynamic_update(gen_graph *g, gen_step *s) {
    int x = first(g, s, 1, most_axes(g));
    if (x < 0) return false;
    int64_t axes[CT_MAX_RANK];
    const gen_value *v = value(g, x);
    int64_t n = plain_axes(g, v->type.rank, axes);
    ct_ints dims = gen_dims(g, v->dims.n, v->dims.v);
    for (int64_t i = 0; i < n; i++)
        ((int64_t *)(uintptr_t)dims.v)[axes[i]] =
            perhaps_dynamic(g, gen_below(g, v->type.dim[axes[i]] + 1));
    s->in[1] = gen_leaf(g, (ct_dtype)v->type.dtype, dims, -2, 2);
    s->in[2] = starts(g, &value(g, x)->type, n, axes);
    s->n_in = 3;
    set_list(g, s, "axes", n, axes);
    return true;
}

// ------------------------------------------------------------------------------------------------
// positions

// What may be promised of positions: of each line of them, and of all.
typedef struct {
    bool unique, sorted, inside;
} promises;

static promises promises_of(const int64_t *v, int64_t count, int64_t line, int64_t size) {
    promises p = {true, true, true};
    for (int64_t i = 0; i < count; i++) {
        if (v[i] < 0 || v[i] >= size) p.inside = false;
        if (i % line && v[i] < v[i - 1]) p.sorted = false;
        for (int64_t k = i - i % line; k < i; k++)
            if (v[k] == v[i]) p.unique = false;
    }
    return p;
}

static int positions(gen_graph *g, const ct_type *x, int axis, int batch, promises *p) {
    int64_t dims[8], n = 0, count, line = 1, v[GEN_MOST];
    int extra = gen_below(g, 3);
    for (int a = 0; a < batch; a++) dims[n++] = perhaps_dynamic(g, x->dim[a]);
    for (int a = 0; a < extra; a++) dims[n++] = perhaps_dynamic(g, gen_below(g, 8));
    ct_ints list = gen_dims(g, n, dims);
    count = gen_count(list);
    if (count > GEN_MOST) return -1;
    for (int64_t i = 0; i < count; i++)
        v[i] = gen_chance(g, 8) ? gen_below(g, 40) - 20 : gen_below(g, x->dim[axis]);
    ct_dtype dtype = gen_chance(g, 60) ? CT_I32 : any_dtype(g, CT_INTEGERS);
    for (int64_t a = batch; a < n; a++) line *= ct__unmarked(dims[a]);
    if (p) *p = promises_of(v, count, line ? line : 1, dtype == CT_I32 ? x->dim[axis] : 0);
    return gen_numbers(g, dtype, list, v);
}

static bool take_along(gen_graph *g, gen_step *s) {
    int x = first(g, s, 1, most_axes(g));
    if (x < 0) return false;
    int axis = gen_below(g, value(g, x)->type.rank);
    const gen_value *v = value(g, x);
    ct_ints dims = gen_dims(g, v->dims.n, v->dims.v);
    ((int64_t *)(uintptr_t)dims.v)[axis] = perhaps_dynamic(g, gen_below(g, 8));
    int64_t n = gen_count(dims), at[GEN_MOST];
    if (n > GEN_MOST) return false;
    for (int64_t i = 0; i < n; i++) at[i] = gen_below(g, v->type.dim[axis] + 2) - 1;
    s->in[1] = gen_numbers(g, CT_I32, dims, at);
    s->n_in = 2;
    set(s, "axis", axis);
    return s->in[1] >= 0;
}

static bool gather(gen_graph *g, gen_step *s) {
    int x = first(g, s, 1, most_axes(g));
    if (x < 0) return false;
    int axis = gen_below(g, value(g, x)->type.rank), batch = gen_below(g, axis + 1);
    if (gen_chance(g, 50)) batch = 0;
    s->in[1] = positions(g, &value(g, x)->type, axis, batch, NULL);
    s->n_in = 2;
    set(s, "axis", axis);
    set(s, "batch_dims", batch);
    set_flag(s, "zero_outside", gen_chance(g, 50));
    return s->in[1] >= 0;
}

static bool scatter(gen_graph *g, gen_step *s) {
    int x = first(g, s, 1, most_axes(g));
    if (x < 0) return false;
    int axis = gen_below(g, value(g, x)->type.rank), batch = gen_below(g, axis + 1);
    promises may;
    int at = positions(g, &value(g, x)->type, axis, batch, &may);
    if (at < 0) return false;
    const gen_value *v = value(g, x), *p = value(g, at);
    int64_t dims[16], n = 0;
    for (int a = 0; a < axis; a++) dims[n++] = v->dims.v[a];
    for (int a = batch; a < p->type.rank; a++) dims[n++] = p->dims.v[a];
    for (int a = axis + 1; a < v->type.rank; a++) dims[n++] = v->dims.v[a];
    ct_ints list = gen_dims(g, n, dims);
    if (gen_count(list) > GEN_MOST) return false;
    s->in[1] = at;
    s->in[2] = gen_leaf(g, (ct_dtype)v->type.dtype, list, -2, 2);
    s->n_in = 3;
    set(s, "axis", axis);
    set(s, "batch_dims", batch);
    set(s, "mode", gen_below(g, may.inside ? CT_MODE_PROMISE_IN_BOUNDS + 1 : CT_MODE_CLIP + 1));
    // Two that lie outside go to one element where they are clipped.
    bool apart = may.unique && may.inside, must = s->op == &ct__op_scatter_mul && g->gradients;
    if (must && !apart) return false; // it has no derivative
    set_flag(s, "unique", apart && (must || gen_chance(g, 70)));
    set_flag(s, "sorted", may.sorted && gen_chance(g, 70));
    return true;
}

static bool one_hot(gen_graph *g, gen_step *s) {
    set(s, "n", gen_below(g, 8));
    set_dtype(s, "dtype", any_dtype(g, CT_ANY));
    int x = first(g, s, 0, 3);
    return x >= 0 && gen_count(value(g, x)->dims) * 8 <= GEN_MOST;
}

static bool iota(gen_graph *g, gen_step *s) {
    ct_ints dims = any_dims(g, 1, 4);
    set_dtype(s, "dtype", any_dtype(g, s->op->accepts));
    set_list(g, s, "dims", dims.n, dims.v);
    set(s, "axis", gen_below(g, dims.n));
    return true;
}

// ------------------------------------------------------------------------------------------------
// products and networks

static int float_leaf(gen_graph *g, ct_dtype d, int64_t n, const int64_t *v) {
    ct_ints dims = gen_dims(g, n, v);
    return gen_count(dims) > 4 * GEN_MOST ? -1 : gen_leaf(g, d, dims, -1, 1);
}

static bool matmul(gen_graph *g, gen_step *s) {
    int a = first(g, s, 2, most_axes(g));
    if (a < 0) return false;
    const gen_value *v = value(g, a);
    int rank = v->type.rank;
    int64_t dims[8], k = v->dims.v[rank - 1], n = any_size(g), rows = gen_count(v->dims), m = 0;
    while (n * rows > 200000 || n * ct__unmarked(k) > 4 * GEN_MOST) n /= 4;
    n = perhaps_dynamic(g, n);
    int batch = gen_below(g, rank - 1);
    for (int i = rank - 2 - batch; i < rank - 2; i++)
        dims[m++] = gen_chance(g, 70) ? v->dims.v[i] : 1;
    bool turned = gen_chance(g, 40); // b as a permuted view
    dims[m++] = turned ? n : k;
    dims[m++] = turned ? k : n;
    int b = float_leaf(g, (ct_dtype)v->type.dtype, m, dims);
    if (b >= 0 && turned) {
        gen_step view = {.kind = GEN_OP, .op = &ct__op_permute, .n_in = 1, .in = {b}};
        int64_t axes[8];
        for (int i = 0; i < m; i++) axes[i] = i < m - 2 ? i : 2 * m - 3 - i;
        set_list(g, &view, "axes", m, axes);
        b = gen_commit(g, &view);
    }
    s->in[1] = b;
    s->n_in = 2;
    return b >= 0;
}

// Each axis of a is summed over, of the batch or its own; b has one of its own, too.
static bool contract(gen_graph *g, gen_step *s) {
    int a = first(g, s, 0, most_axes(g));
    if (a < 0) return false;
    const gen_value *v = value(g, a);
    int64_t dims[8], axes[2][8], batch[2][8], n = any_size(g), m = 0, summed = 0, shared = 0;
    while (n * gen_count(v->dims) > 4 * GEN_MOST) n /= 4;
    n = perhaps_dynamic(g, n);
    bool in_front = gen_chance(g, 50), behind = !in_front && gen_chance(g, 70);
    if (in_front) dims[m++] = n;
    for (int i = v->type.rank - 1; i >= 0; i--) {
        if (gen_chance(g, 30)) {
            batch[0][shared] = i;
            batch[1][shared++] = m;
        } else if (gen_chance(g, 60)) {
            axes[0][summed] = gen_chance(g, 30) ? i - v->type.rank : i;
            axes[1][summed++] = m;
        } else {
            continue;
        }
        dims[m++] = v->dims.v[i];
    }
    if (behind) dims[m++] = n;
    set_list(g, s, "a_axes", summed, axes[0]);
    set_list(g, s, "b_axes", summed, axes[1]);
    set_list(g, s, "a_batch", shared, batch[0]);
    set_list(g, s, "b_batch", shared, batch[1]);
    s->in[1] = float_leaf(g, (ct_dtype)v->type.dtype, m, dims);
    s->n_in = 2;
    return s->in[1] >= 0;
}

static bool ragged(gen_graph *g, gen_step *s) {
    int a = first(g, s, 2, 2);
    if (a < 0) return false;
    const gen_value *v = value(g, a);
    const int64_t rows = v->dims.v[0], k = v->dims.v[1], n = 1 + gen_below(g, 9);
    const int64_t groups = 1 + gen_below(g, 4), matrices[3] = {groups, k, n}, others[2] = {rows, n};
    const double most = (double)ct__unmarked(rows) + 2;
    const bool outer = s->op == &ct__op_ragged_outer;
    s->in[1] = float_leaf(g, (ct_dtype)v->type.dtype, outer ? 2 : 3, outer ? others : matrices);
    s->in[2] = gen_leaf(g, CT_I32, gen_dims(g, 1, &groups), -1, most);
    s->n_in = 3;
    return s->in[1] >= 0 && s->in[2] >= 0;
}

static bool norm(gen_graph *g, gen_step *s) {
    int x = first(g, s, 1, most_axes(g)), most = s->op == &ct__op_layer_norm ? 2 : 1, present = 0;
    if (x < 0) return false;
    for (int i = 0; i < most; i++) {
        if (gen_chance(g, 40)) continue;
        const gen_value *v = value(g, x);
        present |= 1 << i;
        s->in[s->n_in++] = float_leaf(g, (ct_dtype)v->type.dtype, 1, &v->dims.v[v->type.rank - 1]);
    }
    set(s, "present", present);
    return true;
}

// Lists of one number an axis, between two bounds.
static void some_numbers(gen_graph *g, gen_step *s, const char *name, int n, int least, int most) {
    int64_t v[8];
    for (int i = 0; i < n; i++) v[i] = least + gen_below(g, most - least + 1);
    set_list(g, s, name, n, v);
}
// Windows of the last axes; what does not fit is refused by the op.
static bool moving_windows(gen_graph *g, gen_step *s) {
    int x = first(g, s, 1, 4);
    if (x < 0) return false;
    int n = 1 + gen_below(g, value(g, x)->type.rank > 2 ? 2 : value(g, x)->type.rank);
    bool pool = s->op != &ct__op_windows;
    some_numbers(g, s, pool ? "kernel" : "size", n, 1, 4);
    if (gen_chance(g, 70)) some_numbers(g, s, "stride", n, 1, 3);
    if (s->op == &ct__op_lp_pool) {
        *(ct_num *)attr(s, "power") = (ct_num){gen_chance(g, 50) ? 1 : 2, true};
        return true;
    }
    if (gen_chance(g, 40)) some_numbers(g, s, "dilation", n, 1, 2);
    if (pool) {
        if (gen_chance(g, 50)) some_numbers(g, s, "padding", n, 0, 1);
        set_flag(s, "ceil_mode", gen_chance(g, 30));
        return true;
    }
    some_numbers(g, s, "low", n, -1, 2);
    some_numbers(g, s, "high", n, -1, 2);
    if (gen_chance(g, 40)) some_numbers(g, s, "base", n, 1, 2);
    return true;
}
static bool adaptive_pool(gen_graph *g, gen_step *s) {
    int x = first(g, s, 1, 4);
    if (x < 0) return false;
    int n = 1 + gen_below(g, value(g, x)->type.rank > 2 ? 2 : value(g, x)->type.rank);
    some_numbers(g, s, "output", n, 1, 4);
    return true;
}

// x (N, C, ...) with weights for up to two groups.
static bool conv(gen_graph *g, gen_step *s) {
    int x = first(g, s, 3, 4);
    if (x < 0) return false;
    const gen_value *v = value(g, x);
    ct_dtype dtype = (ct_dtype)v->type.dtype;
    int rank = v->type.rank, n = rank - 2;
    int64_t channels = v->type.dim[1], groups = channels % 2 ? 1 : 1 + gen_below(g, 2), dims[4];
    bool turned = s->op == &ct__op_conv_transpose, bias = gen_chance(g, 30);
    int64_t out = groups * (1 + gen_below(g, 4));
    dims[0] = turned ? channels : out;
    dims[1] = (turned ? out : channels) / groups;
    for (int i = 0; i < n; i++) dims[2 + i] = 1 + gen_below(g, 3);
    s->in[s->n_in++] = float_leaf(g, dtype, rank, dims);
    if (bias) s->in[s->n_in++] = float_leaf(g, dtype, 1, &out);
    set(s, "present", bias);
    set(s, "groups", groups);
    some_numbers(g, s, "stride", n, 1, 2);
    some_numbers(g, s, "padding", n, 0, 1);
    if (gen_chance(g, 30)) some_numbers(g, s, "dilation", n, 1, 2);
    return s->in[1] >= 0;
}
static bool conv_weight_grad(gen_graph *g, gen_step *s) {
    int x = first(g, s, 3, 4);
    if (x < 0) return false;
    const gen_value *v = value(g, x);
    int64_t dims[4] = {v->dims.v[0], 1 + gen_below(g, 4)}, size[2];
    int rank = v->type.rank;
    for (int i = 2; i < rank; i++) {
        size[i - 2] = 1 + gen_below(g, 3);
        dims[i] = v->type.dim[i] - size[i - 2] + 1;
        if (dims[i] < 1) return false;
    }
    s->in[s->n_in++] = float_leaf(g, (ct_dtype)v->type.dtype, rank, dims);
    set_list(g, s, "size", rank - 2, size);
    return s->in[1] >= 0;
}
// x (N, C, ...), running statistics where the op has them, and perhaps weight and bias.
static bool channel_norm(gen_graph *g, gen_step *s) {
    int x = first(g, s, s->op == &ct__op_instance_norm ? 3 : 2, 4), present = 0;
    if (x < 0) return false;
    ct_dtype dtype = (ct_dtype)value(g, x)->type.dtype;
    int64_t channels = value(g, x)->dims.v[1];
    ct_ints dims = gen_dims(g, 1, &channels);
    bool running = s->op == &ct__op_batch_norm || s->op == &ct__op_batch_norm_train;
    if (running) {
        s->in[s->n_in++] = gen_leaf(g, dtype, dims, -1, 1);
        s->in[s->n_in++] = gen_leaf(g, dtype, dims, 0.5, 2);
    } else if (s->op == &ct__op_group_norm) {
        set(s, "groups", ct__unmarked(channels) % 2 ? 1 : 2);
    }
    for (int i = 0; i < 2; i++) {
        if (gen_chance(g, 40)) continue;
        present |= 1 << i;
        s->in[s->n_in++] = gen_leaf(g, dtype, dims, -1, 1);
    }
    set(s, "present", present);
    return true;
}

static bool cross_entropy(gen_graph *g, gen_step *s) {
    int x = first(g, s, 1, most_axes(g));
    if (x < 0) return false;
    const ct_type *t = &value(g, x)->type;
    ct_ints dims = gen_dims(g, t->rank - 1, value(g, x)->dims.v);
    int64_t rows = gen_count(dims); // without classes there may be more rows than elements
    int64_t *v = ct__arena(&g->arena, ((size_t)rows + 1) * sizeof *v);
    if (!v) abort();
    for (int64_t i = 0; i < rows; i++) v[i] = gen_below(g, t->dim[t->rank - 1]);
    s->in[1] = gen_numbers(g, gen_chance(g, 50) ? CT_I32 : CT_I64, dims, v);
    s->n_in = 2;
    set_flag(s, "per_row", gen_chance(g, 50));
    return true;
}

static bool linear_cross_entropy(gen_graph *g, gen_step *s) {
    const bool inner = s->op == &ct__op_linear_cross_entropy_sum;
    const int x = first(g, s, inner ? 2 : 1, inner ? 2 : 3);
    if (x < 0) return false;
    const ct_type *t = &value(g, x)->type;
    const ct_dtype dtype = (ct_dtype)t->dtype, wide = dtype == CT_F64 ? CT_F64 : CT_F32;
    const ct_ints rows = gen_dims(g, t->rank - 1, value(g, x)->dims.v);
    const int64_t classes = 1 + gen_below(g, 20);
    const int64_t weight[2] = {classes, value(g, x)->dims.v[t->rank - 1]};
    s->in[1] = float_leaf(g, dtype, 2, weight);
    s->in[2] = gen_leaf(g, CT_I32, rows, 0, (double)classes - 1);
    s->n_in = 3;
    int present = 0;
    if (inner || gen_chance(g, 50))
        present |= 1, s->in[s->n_in++] = gen_leaf(g, wide, rows, 0.1, 1);
    if (gen_chance(g, 50)) present |= 2, s->in[s->n_in++] = float_leaf(g, dtype, 1, &classes);
    if (gen_chance(g, 30)) *(ct_num *)attr(s, "smoothing") = (ct_num){0.1, true};
    if (gen_chance(g, 30)) *(ct_num *)attr(s, "softcap") = (ct_num){2, true};
    if (!inner) set(s, "present", present);
    if (!inner) set_flag(s, "per_row", gen_chance(g, 50));
    return s->in[1] >= 0 && s->in[2] >= 0;
}

// A leaf without NaN and infinity. A hidden key's probability 0 times them is NaN, unless the kernel skips
// the block (docs/design/attention.md).
static int finite_leaf(gen_graph *g, ct_dtype d, int64_t n, const int64_t *v) {
    const int at = float_leaf(g, d, n, v);
    if (at < 0) return at;
    const gen_step *leaf = &g->step[value(g, at)->step];
    for (int64_t i = 0; i < gen_count(leaf->dims); i++)
        if (!isfinite(ct__load_f64(d, leaf->data, i))) ct__store_f64(d, leaf->data, i, 0);
    return at;
}

static bool attention(gen_graph *g, gen_step *s) {
    int q = first(g, s, 2, 4);
    if (q < 0) return false;
    const gen_value *v = value(g, q);
    int rank = v->type.rank;
    ct_dtype dtype = (ct_dtype)v->type.dtype;
    int64_t dims[8], keys = 1 + gen_below(g, gen_chance(g, 25) ? 150 : 9), zero = 0;
    if (g->empty) keys = perhaps_dynamic(g, any_size(g));
    memcpy(dims, v->dims.v, (size_t)rank * sizeof *dims);
    int64_t queries = ct__unmarked(dims[rank - 2]);
    if (gen_count(v->dims) * ct__unmarked(keys) > 100000) return false;
    const bool back = s->op == &ct__op_attention_backward;
    if (back) s->in[0] = finite_leaf(g, dtype, rank, dims);
    dims[rank - 2] = keys;
    s->in[1] = (back ? finite_leaf : float_leaf)(g, dtype, rank, dims);
    dims[rank - 1] = 1 + gen_below(g, 9);
    s->in[2] = finite_leaf(g, dtype, rank, dims);
    s->n_in = 3;
    bool causal = gen_chance(g, 60), position = causal && gen_chance(g, 50),
         mask = gen_chance(g, 40);
    zero = gen_below(g, ct__unmarked(keys));
    if (position) s->in[s->n_in++] = gen_numbers(g, CT_I32, CT_SCALAR, &zero);
    if (mask) {
        int64_t grid[2] = {gen_chance(g, 50) ? queries : 1, keys};
        s->in[s->n_in++] = gen_leaf(g, CT_BOOL, gen_dims(g, 2, grid), 0, 1);
    }
    set_flag(s, "causal", causal);
    set(s, "present", position | mask << 1);
    if (back) { // the result's cotangent, and two numbers a query
        const int64_t values = dims[rank - 1];
        memcpy(dims, value(g, q)->dims.v, (size_t)rank * sizeof *dims);
        dims[rank - 1] = values;
        s->in[s->n_in++] = finite_leaf(g, dtype, rank, dims);
        for (int i = 0; i < 2; i++) s->in[s->n_in++] = finite_leaf(g, dtype, rank - 1, dims);
    }
    return s->in[1] >= 0 && s->in[2] >= 0;
}

// A scan along axis 0 of x, with an accumulator like its rows.
static bool loop(gen_graph *g, gen_step *s) {
    want w = {.accepts = CT_FLOATS, .least = 1, .most = 3};
    int x = found(g, &w);
    if (x < 0) return false;
    const gen_value *v = value(g, x);
    if (v->type.weak || v->type.dim[0] > 40 || (v->type.dyn && !g->empty)) return false;
    s->in[1] = ranged(g, &ct__op_tanh, x);
    s->in[0] = float_leaf(g, (ct_dtype)v->type.dtype, v->dims.n - 1, v->dims.v + 1);
    *s = (gen_step){.kind = GEN_LOOP, .in = {s->in[0], s->in[1]}, .n_in = 2};
    for (int i = 0; i < 3; i++) s->attrs[i] = (char)gen_below(g, i < 2 ? 3 : 2);
    return s->in[0] >= 0 && s->in[1] >= 0;
}

// ------------------------------------------------------------------------------------------------
// optimizers

static bool global_norm(gen_graph *g, gen_step *s) {
    if (first(g, s, 0, most_axes(g)) < 0) return false;
    while (s->n_in < GEN_IN && gen_chance(g, 60))
        s->in[s->n_in++] = pick(g, s->op, (want){.accepts = CT_FLOATS, .most = 4});
    return s->in[s->n_in - 1] >= 0;
}
// A gradient of the parameter's shape, then the states and numbers of up to two stages.
static bool update(gen_graph *g, gen_step *s) {
    int x = first(g, s, 0, most_axes(g));
    if (x < 0 || value(g, x)->type.weak) return false;
    int64_t stages[2], n = 0;
    const gen_value *v = value(g, x);
    ct_dtype dtype = (ct_dtype)v->type.dtype;
    s->in[s->n_in++] = float_leaf(g, dtype, v->type.rank, v->dims.v);
    for (int i = 0; i < 2; i++) {
        stages[n] = gen_below(g, CT_STAGES);
        const ct_stage *stage = &ct__stages[stages[n]];
        if (s->n_in + stage->n_states + stage->n_numbers > GEN_IN) continue;
        for (int k = 0; k < stage->n_states; k++) {
            v = value(g, x); // the list may have moved
            s->in[s->n_in++] = float_leaf(g, dtype, v->type.rank, v->dims.v);
        }
        for (int k = 0; k < stage->n_numbers; k++)
            s->in[s->n_in++] = gen_leaf(g, CT_F32, CT_SCALAR, -1, 1);
        n++;
    }
    set_list(g, s, "stages", n, stages);
    return true;
}

// ------------------------------------------------------------------------------------------------
// random numbers

static int key(gen_graph *g) {
    const int64_t words[2] = {(int64_t)(gen_bits(&g->random) >> 32), gen_below(g, 100)};
    return gen_numbers(g, CT_U32, gen_dims(g, 1, (const int64_t[]){2}), words);
}
static bool random_numbers(gen_graph *g, gen_step *s) {
    s->in[0] = key(g);
    for (int i = 1; i < s->op->n_in; i++) {
        const int64_t bound = i == 1 ? -3 : gen_below(g, 50);
        s->in[i] = s->op == &ct__op_random_int ? gen_numbers(g, CT_I32, CT_SCALAR, &bound)
                                               : gen_leaf(g, CT_F32, CT_SCALAR, 0, 1);
    }
    s->n_in = s->op->n_in;
    ct_ints dims = any_dims(g, 0, 3);
    set_list(g, s, "dims", dims.n, dims.v);
    return true;
}
static bool random_split(gen_graph *g, gen_step *s) {
    s->in[0] = key(g);
    s->n_in = 1;
    set(s, "n", gen_below(g, 9));
    return true;
}
static bool random_fold_in(gen_graph *g, gen_step *s) {
    const int64_t step = gen_below(g, 1000);
    s->in[0] = key(g);
    s->in[1] = gen_numbers(g, CT_I64, CT_SCALAR, &step);
    s->n_in = 2;
    return true;
}
static bool dropout(gen_graph *g, gen_step *s) {
    if (first(g, s, 0, most_axes(g)) < 0) return false;
    s->in[1] = key(g);
    s->in[2] = gen_leaf(g, CT_F32, CT_SCALAR, 0, 0.75);
    s->n_in = 3;
    return true;
}

// ------------------------------------------------------------------------------------------------
// the table

typedef bool (*builder)(gen_graph *g, gen_step *s);
static const struct {
    const ct_opdef *op;
    builder build;
} builders[] = {
    {&ct__op_bitcast, bitcast},
    {&ct__op_reshape, reshape},
    {&ct__op_expand, expand},
    {&ct__op_slice, slice},
    {&ct__op_pad, pad},
    {&ct__op_concat, concat},
    {&ct__op_dynamic_slice, dynamic_slice},
    {&ct__op_dynamic_update, dynamic_update},
    {&ct__op_gather, gather},
    {&ct__op_take_along, take_along},
    {&ct__op_linear_recurrence, of_pairs},
    {&ct__op_lexsort, of_pairs},
    {&ct__op_sort_pairs, of_pairs},
    {&ct__op_searchsorted, searchsorted},
    {&ct__op_unique, unique},
    {&ct__op_one_hot, one_hot},
    {&ct__op_iota, iota},
    {&ct__op_matmul, matmul},
    {&ct__op_contract, contract},
    {&ct__op_ragged_matmul, ragged},
    {&ct__op_ragged_outer, ragged},
    {&ct__op_layer_norm, norm},
    {&ct__op_rms_norm, norm},
    {&ct__op_windows, moving_windows},
    {&ct__op_max_pool, moving_windows},
    {&ct__op_max_pool_indices, moving_windows},
    {&ct__op_avg_pool, moving_windows},
    {&ct__op_lp_pool, moving_windows},
    {&ct__op_adaptive_max_pool, adaptive_pool},
    {&ct__op_adaptive_avg_pool, adaptive_pool},
    {&ct__op_conv, conv},
    {&ct__op_conv_transpose, conv},
    {&ct__op_conv_weight_grad, conv_weight_grad},
    {&ct__op_group_norm, channel_norm},
    {&ct__op_instance_norm, channel_norm},
    {&ct__op_batch_norm, channel_norm},
    {&ct__op_batch_norm_train, channel_norm},
    {&ct__op_cross_entropy, cross_entropy},
    {&ct__op_linear_cross_entropy, linear_cross_entropy},
    {&ct__op_linear_cross_entropy_sum, linear_cross_entropy},
    {&ct__op_attention, attention},
    {&ct__op_attention_backward, attention},
    {&ct__op_random_bits, random_numbers},
    {&ct__op_random_uniform, random_numbers},
    {&ct__op_random_normal, random_numbers},
    {&ct__op_random_bernoulli, random_numbers},
    {&ct__op_random_int, random_numbers},
    {&ct__op_random_split, random_split},
    {&ct__op_random_fold_in, random_fold_in},
    {&ct__op_dropout, dropout},
    {&ct__op_global_norm, global_norm},
    {&ct__op_update, update},
    {&ct__op_scan, loop},
};

static builder builder_of(const ct_opdef *op) {
    for (size_t i = 0; i < sizeof builders / sizeof *builders; i++)
        if (builders[i].op == op) return builders[i].build;
    if (op->infer == ct__infer_elementwise || op->infer == ct__infer_elementwise_bool ||
        op->condition)
        return elementwise;
    if (op->kind == &ct__kind_scatter) return scatter;
    return op->n_in == 1 ? by_attributes : NULL;
}

static const ct_opdef *any_op(gen_graph *g) {
    uint64_t random = gen_bits(&g->random), most = 0;
    uint32_t best = 0;
    for (uint32_t i = 0; i < ct__n_ops; i++) {
        if (!gen_wants(ct__ops[i]) || ct__ops[i] == g->without) continue;
        uint64_t worth = gen_worth(random, ct__ops[i]->name);
        if (worth > most) best = i, most = worth;
    }
    return ct__ops[best];
}

uint32_t gen_place(const ct_opdef *op) {
    uint32_t i = 0;
    while (ct__ops[i] != op) i++;
    return i;
}

void gen_op(gen_graph *g) {
    static const ct_opdef *const frequent[] = {
        &ct__op_matmul,  &ct__op_sum,     &ct__op_max,    &ct__op_reshape,    &ct__op_permute,
        &ct__op_softmax, &ct__op_slice,   &ct__op_add,    &ct__op_mul,        &ct__op_tanh,
        &ct__op_expand,  &ct__op_exp,     &ct__op_select, &ct__op_layer_norm, &ct__op_mean,
        &ct__op_concat,  &ct__op_maximum, &ct__op_gather,
    };
    bool often = gen_chance(g, 50);
    int which = gen_below(g, sizeof frequent / sizeof *frequent);
    const ct_opdef *op = often ? frequent[which] : any_op(g);
    if (op == g->without) return;
    g->chosen[gen_place(op)] = true;
    gen_this(g, op);
}

bool gen_this(gen_graph *g, const ct_opdef *op) {
    builder build = builder_of(op);
    gen_step s = {.kind = GEN_OP, .op = op};
    return build && build(g, &s) && gen_commit(g, &s) >= 0;
}
