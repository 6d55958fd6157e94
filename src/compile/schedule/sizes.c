// Dynamic sizes by name: which dynamic axes of the graph's values have the same size for every
// length, so that kernels see one argument for it and their strides collapse. What is not
// recognised as equal becomes an argument of its own: slower code, never a wrong one.
#include <string.h>

#include "compile/schedule/sched.h"

static int root_of(ct_sched *s, int sym) {
    while (s->sym_parent[sym] != sym) sym = s->sym_parent[sym] = s->sym_parent[s->sym_parent[sym]];
    return sym;
}

// A new dynamic size; -1: no memory.
static int new_sym(ct_sched *s, int64_t value) {
    if (!CT_GROW(s->sym_value, s->sym_value_cap, s->n_syms + 1) ||
        !CT_GROW(s->sym_parent, s->sym_parent_cap, s->n_syms + 1) ||
        !CT_GROW(s->sym_times, s->sym_times_cap, s->n_syms + 1))
        return -1;
    s->sym_times[s->n_syms].by = 0;
    s->sym_value[s->n_syms] = value;
    s->sym_parent[s->n_syms] = (int)s->n_syms;
    return (int)s->n_syms++;
}

// A marked entry of a list of attributes is a size like others, one more than it since sizes are
// at least 1.
static ct_ix attr_size(ct_ix_pool *pool, int sym) {
    return ct__ix_sub(pool, ct__ix_sym(pool, sym), ct__ix_int(pool, 1));
}
ct_ix ct__sched_attr(ct_sched *s, ct_ix_pool *pool, const int64_t *where) {
    for (size_t i = 0; i < s->n_marked; i++)
        if (s->marked[i].where == where) return attr_size(pool, root_of(s, s->marked[i].sym));
    return CT_IX_NONE;
}

static void sort(ct_extent *z) {
    for (int i = 1; i < z->n; i++)
        for (int k = i; k > 0 && z->sym[k - 1] > z->sym[k]; k--) {
            int t = z->sym[k];
            z->sym[k] = z->sym[k - 1];
            z->sym[k - 1] = t;
        }
}

// In terms of what is known now: equal symbols are one, multiples of others are written so.
static ct_extent resolved(ct_sched *s, ct_extent z) {
    for (int i = 0; i < z.n; i++) {
        z.sym[i] = root_of(s, z.sym[i]);
        while (s->sym_times[z.sym[i]].by) {
            z.coef *= s->sym_times[z.sym[i]].by;
            z.sym[i] = root_of(s, s->sym_times[z.sym[i]].sym);
        }
    }
    sort(&z);
    return z;
}
ct_extent ct__sched_size(ct_sched *s, ct_val v, int axis) {
    const ct_sval *val = ct__sval(s, v);
    if (!val->size) return (ct_extent){.coef = ct__type(v)->dim[axis]};
    return resolved(s, val->size[axis]);
}

// Both are the same size: where each is one plain symbol, the two are joined.
static void join(ct_sched *s, ct_extent a, ct_extent b) {
    a = resolved(s, a);
    b = resolved(s, b);
    if (a.coef != 1 || b.coef != 1 || a.n != 1 || b.n != 1) return;
    int x = root_of(s, a.sym[0]), y = root_of(s, b.sym[0]);
    if (s->sym_value[x] != s->sym_value[y]) return;
    s->sym_parent[x > y ? x : y] = x > y ? y : x;
}

static bool times(ct_extent *z, ct_extent by) {
    if (z->n + by.n > CT_SIZE_SYMS || __builtin_mul_overflow(z->coef, by.coef, &z->coef))
        return false;
    for (int i = 0; i < by.n; i++) z->sym[z->n++] = by.sym[i];
    sort(z);
    return true;
}
static bool over(ct_extent *z, ct_extent by) {
    if (by.coef == 0 || z->coef % by.coef) return false;
    z->coef /= by.coef;
    for (int i = 0; i < by.n; i++) {
        int k = 0;
        while (k < z->n && z->sym[k] != by.sym[i]) k++;
        if (k == z->n) return false;
        z->n--;
        memmove(&z->sym[k], &z->sym[k + 1], (size_t)(z->n - k) * sizeof *z->sym);
    }
    return true;
}

static bool same_extent(const ct_extent *a, const ct_extent *b) {
    return a->coef == b->coef && a->n == b->n &&
           (a->n == 0 || memcmp(a->sym, b->sym, (size_t)a->n * sizeof *a->sym) == 0);
}
static bool is_set(const ct_extent *z) { return z->n > 0; }
static bool total(ct_sched *s, ct_val v, ct_extent *z) {
    *z = (ct_extent){.coef = 1};
    for (int a = 0; a < ct__type(v)->rank; a++)
        if (!times(z, ct__sched_size(s, v, a))) return false;
    return true;
}

// Output axis `a` is the operand's axis `b`.
static void same_axis(ct_sched *s, ct_node *node, int out, int a, int operand, int b) {
    ct_extent *size = s->vals[node->index][out].size;
    if (!ct__is_dyn(&node->out[out], a) || !ct__is_dyn(ct__type(node->in[operand]), b)) return;
    ct_extent z = ct__sched_size(s, node->in[operand], b);
    if (is_set(&size[a]))
        join(s, size[a], z);
    else
        size[a] = z;
}

typedef struct {
    ct_sched *s;
    ct_node *node;
} axes_env;
static void equal_axes(void *env_, ct_node_axis a, ct_node_axis b) {
    const axes_env *env = env_;
    ct_sched *s = env->s;
    const ct_val *in = env->node->in;
    if (a.value < 0)
        same_axis(s, env->node, ~a.value, a.axis, b.value, b.axis);
    else if (ct__is_dyn(ct__type(in[a.value]), a.axis) && ct__is_dyn(ct__type(in[b.value]), b.axis))
        join(s, ct__sched_size(s, in[a.value], a.axis), ct__sched_size(s, in[b.value], b.axis));
}

typedef struct {
    ct_sched *s;
    const ct_node *node;
} map_env;
static ct_ix map_size(ct_map *map, int operand, int axis) {
    const map_env *env = map->user;
    if (operand < 0) // dynamic ones are not known yet
        return ct__is_dyn(env->node->out, axis) ? ct__ix_sym(map->pool, 1000000 + axis)
                                                : ct__ix_int(map->pool, env->node->out->dim[axis]);
    ct_extent z = ct__sched_size(env->s, env->node->in[operand], axis);
    ct_ix x = ct__ix_int(map->pool, z.coef);
    for (int i = 0; i < z.n; i++) x = ct__ix_mul(map->pool, x, ct__ix_sym(map->pool, z.sym[i]));
    return x;
}
static ct_ix map_load(ct_map *map, int operand, const ct_ix *at) {
    (void)at;
    return ct__ix_load(map->pool, operand, NULL, 0);
}

static ct_ix map_attr(ct_map *map, const int64_t *where) {
    const map_env *env = map->user;
    ct_sched *s = env->s;
    int sym = new_sym(s, ct__unmarked(*where) + 1);
    if (sym < 0 || !CT_GROW(s->marked, s->marked_cap, s->n_marked + 1)) return CT_IX_NONE;
    s->marked[s->n_marked].where = where;
    s->marked[s->n_marked++].sym = sym;
    return attr_size(map->pool, sym);
}

// Axes that the map passes through unchanged keep their size.
static bool sizes_by_map(ct_sched *s, ct_node *node, bool *in_order) {
    ct_arena scratch = {0};
    ct_ix_pool *pool = ct__ix_new(&scratch, s->err);
    ct_map_piece *piece = ct__arena(&scratch, CT_MAP_PIECES * sizeof *piece);
    map_env env = {s, node};
    ct_ix at[CT_MAX_RANK];
    ct_map map = {.node = node,
                  .pool = pool,
                  .at = at,
                  .piece = piece,
                  .value = CT_IX_NONE,
                  .size = map_size,
                  .load = map_load,
                  .attr = map_attr,
                  .user = &env};
    bool ok = pool && piece;
    for (int a = 0; a < node->out->rank && ok; a++) at[a] = ct__ix_var(pool, map_size(&map, -1, a));
    ok = ok && node->op->map(&map);
    for (int i = 0; i < map.n_pieces && ok; i++) {
        if (piece[i].operand < 0 || piece[i].valid != CT_IX_NONE) continue;
        int rank = ct__type(node->in[piece[i].operand])->rank;
        for (int b = 0; b < rank; b++)
            for (int a = 0; a < node->out->rank; a++)
                if (piece[i].from[b] == at[a] && !(piece[i].cut >> b & 1))
                    same_axis(s, node, 0, a, piece[i].operand, b);
    }
    *in_order = map.in_order;
    ct__arena_free(&scratch);
    return ok;
}

// An operand's axis of a size P that is split into (n, 64), n open: P is 64 n, for every length.
static bool split_by_count(ct_sched *s, ct_extent all, ct_extent rest, int64_t n, ct_extent *open) {
    for (int i = 0; i < all.n; i++) {
        int split = all.sym[i];
        ct_extent others = all, by = rest;
        if (!over(&others, (ct_extent){.coef = 1, .n = 1, .sym = {split}}) || !over(&by, others) ||
            by.n || by.coef < 1 || s->sym_value[split] != by.coef * n)
            continue;
        int sym = new_sym(s, n);
        if (sym < 0) return false;
        s->sym_times[split].by = by.coef;
        s->sym_times[split].sym = sym;
        *open = (ct_extent){.coef = 1, .n = 1, .sym = {sym}};
        return true;
    }
    return true;
}

// Axes of equal values in order. Where the counts would not agree for every length, they are equal
// by chance: then all are open. Gives how many are, and the last of them.
static int match_axes(ct_sched *s, ct_node *node, ct_extent all, int *open) {
    const ct_type *in = ct__type(node->in[0]), *out = node->out;
    ct_extent *z = s->vals[node->index][0].size, count;
    uint32_t matched = 0;
    int n_open = 0, n_dyn = 0, last = 0;
    for (int a = 0, b = 0; a < out->rank; a++) {
        if (!ct__is_dyn(out, a) || is_set(&z[a])) continue;
        n_dyn++;
        last = a;
        while (b < in->rank && !(ct__is_dyn(in, b) && in->dim[b] == out->dim[a])) b++;
        if (b < in->rank) {
            z[a] = ct__sched_size(s, node->in[0], b++);
            matched |= 1u << a;
            continue;
        }
        b = 0;
        *open = a;
        n_open++;
    }
    if (n_open || !total(s, (ct_val){node, 0}, &count) || same_extent(&count, &all)) return n_open;
    for (int a = 0; a < out->rank; a++)
        if (matched >> a & 1) z[a] = (ct_extent){.coef = 0};
    *open = last;
    return n_dyn;
}

// A reshape keeps the count: one open axis is what is left; several are matched in order.
static bool sizes_by_count(ct_sched *s, ct_node *node) {
    const ct_type *in = ct__type(node->in[0]), *out = node->out;
    ct_extent *z = s->vals[node->index][0].size, all, rest = {.coef = 1};
    int open = -1;
    if (node->n_in != 1 || ct__count(in) != ct__count(out) || !total(s, node->in[0], &all) ||
        match_axes(s, node, all, &open) != 1)
        return true;
    for (int a = 0; a < out->rank; a++)
        if (a != open && !times(&rest, ct__sched_size(s, (ct_val){node, 0}, a))) return true;
    ct_extent left = all;
    if (!over(&left, rest)) return split_by_count(s, all, rest, out->dim[open], &z[open]);
    int64_t value = left.coef;
    for (int i = 0; i < left.n; i++) value *= s->sym_value[left.sym[i]];
    if (left.n && value == out->dim[open]) z[open] = left;
    return true;
}

static bool sizes_of(ct_sched *s, ct_node *node) {
    bool in_order = false;
    if (node->op->kind->equal_axes)
        node->op->kind->equal_axes(node, equal_axes, &(axes_env){s, node});
    if (node->op->map && !sizes_by_map(s, node, &in_order)) return false;
    return !in_order || sizes_by_count(s, node);
}

bool ct__sched_sizes(ct_sched *s) {
    for (size_t i = 0; i < s->graph->n; i++) {
        ct_node *node = s->graph->nodes[i];
        bool any = false;
        for (int o = 0; o < node->n_out; o++) {
            const ct_type *t = &node->out[o];
            if (!t->dyn) continue;
            ct_extent *size = ct__arena_zero(&s->arena, (t->rank + 1u) * sizeof *size);
            if (!size) return false;
            for (int a = 0; a < t->rank; a++)
                if (!ct__is_dyn(t, a)) size[a].coef = t->dim[a];
            s->vals[i][o].size = size;
            any = true;
        }
        if (any && !sizes_of(s, node)) return false;
        for (int o = 0; o < node->n_out; o++)
            for (int a = 0; a < node->out[o].rank; a++) {
                if (!ct__is_dyn(&node->out[o], a) || is_set(&s->vals[i][o].size[a])) continue;
                int sym = new_sym(s, node->out[o].dim[a]);
                if (sym < 0) return false;
                s->vals[i][o].size[a] = (ct_extent){.coef = 1, .n = 1, .sym = {sym}};
            }
    }
    return true;
}
