// Dynamic sizes by name: which dynamic axes of the graph's values have the same size for every
// length, so that kernels see one argument for it and their strides collapse. What is not
// recognised as equal becomes an argument of its own: slower code, never a wrong one.
#include <string.h>

#include "compile/schedule_impl.h"

static int root_of(ct_sched *s, int sym) {
    while (s->sym_parent[sym] != sym) sym = s->sym_parent[sym] = s->sym_parent[s->sym_parent[sym]];
    return sym;
}

// A new dynamic size; -1: no memory.
static int new_sym(ct_sched *s, int64_t value) {
    if (!CT_GROW(s->sym_value, s->sym_value_cap, s->n_syms + 1) ||
        !CT_GROW(s->sym_parent, s->sym_parent_cap, s->n_syms + 1))
        return -1;
    s->sym_value[s->n_syms] = value;
    s->sym_parent[s->n_syms] = (int)s->n_syms;
    return (int)s->n_syms++;
}

static void sort(ct_extent *z) {
    for (int i = 1; i < z->n; i++)
        for (int k = i; k > 0 && z->sym[k - 1] > z->sym[k]; k--) {
            int t = z->sym[k];
            z->sym[k] = z->sym[k - 1];
            z->sym[k - 1] = t;
        }
}

ct_extent ct__sched_size(ct_sched *s, ct_val v, int axis) {
    const ct_sval *val = ct__sval(s, v);
    if (!val->size) return (ct_extent){.coef = ct__type(v)->dim[axis]};
    ct_extent z = val->size[axis];
    for (int i = 0; i < z.n; i++) z.sym[i] = root_of(s, z.sym[i]);
    sort(&z);
    return z;
}

// Both are the same size: where each is one plain symbol, the two are joined.
static void join(ct_sched *s, ct_extent a, ct_extent b) {
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

static bool is_set(const ct_extent *z) { return z->n > 0; }
static bool total(ct_sched *s, ct_val v, ct_extent *z) {
    *z = (ct_extent){.coef = 1};
    for (int a = 0; a < ct__type(v)->rank; a++)
        if (!times(z, ct__sched_size(s, v, a))) return false;
    return true;
}

// Output axis `a` is the operand's axis `b`.
static void same_axis(ct_sched *s, ct_node *node, int a, int operand, int b) {
    ct_extent *out = &s->vals[node->index][0].size[a];
    if (!ct__is_dyn(node->out, a) || !ct__is_dyn(ct__type(node->in[operand]), b)) return;
    ct_extent z = ct__sched_size(s, node->in[operand], b);
    if (is_set(out))
        join(s, *out, z);
    else
        *out = z;
}

static void sizes_aligned_right(ct_sched *s, ct_node *node, int skip_last) {
    for (int k = 0; k < node->n_in; k++) {
        const ct_type *in = ct__type(node->in[k]);
        for (int b = 0; b < in->rank - skip_last; b++)
            if (node->out->rank >= in->rank)
                same_axis(s, node, node->out->rank - in->rank + b, k, b);
    }
}

static void sizes_of_reduce(ct_sched *s, ct_node *node) {
    uint32_t gone = ct__along(node).axes;
    int rank = ct__type(node->in[0])->rank, a = 0;
    bool keep = node->out->rank == rank;
    for (int b = 0; b < rank; b++)
        if (!(gone >> b & 1)) same_axis(s, node, keep ? b : a++, 0, b);
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

// Axes that the map passes through unchanged keep their size.
static bool sizes_by_map(ct_sched *s, ct_node *node) {
    ct_arena scratch = {0};
    ct_ix_pool *pool = ct__ix_new(&scratch);
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
                  .user = &env};
    bool ok = pool && piece;
    for (int a = 0; a < node->out->rank && ok; a++) at[a] = ct__ix_var(pool, map_size(&map, -1, a));
    ok = ok && node->op->map(&map);
    for (int i = 0; i < map.n_pieces && ok; i++) {
        if (piece[i].operand < 0 || piece[i].valid != CT_IX_NONE) continue;
        int rank = ct__type(node->in[piece[i].operand])->rank;
        for (int b = 0; b < rank; b++)
            for (int a = 0; a < node->out->rank; a++)
                if (piece[i].from[b] == at[a]) {
                    // A slice from 0 also passes positions through: the sizes must agree.
                    if (ct__type(node->in[piece[i].operand])->dim[b] == node->out->dim[a])
                        same_axis(s, node, a, piece[i].operand, b);
                }
    }
    ct__arena_free(&scratch);
    return ok;
}

// A reshape keeps the count: one open axis is what is left; several are matched in order.
static void sizes_by_count(ct_sched *s, ct_node *node) {
    const ct_type *in = ct__type(node->in[0]), *out = node->out;
    ct_extent *z = s->vals[node->index][0].size, all;
    if (node->n_in != 1 || ct__count(in) != ct__count(out) || !total(s, node->in[0], &all)) return;
    int open = -1, n_open = 0;
    for (int a = 0, b = 0; a < out->rank; a++) {
        if (!ct__is_dyn(out, a) || is_set(&z[a])) continue;
        while (b < in->rank && !(ct__is_dyn(in, b) && in->dim[b] == out->dim[a])) b++;
        if (b < in->rank) {
            z[a] = ct__sched_size(s, node->in[0], b++);
            continue;
        }
        b = 0;
        open = a;
        n_open++;
    }
    if (n_open != 1) return;
    for (int a = 0; a < out->rank; a++)
        if (a != open && !over(&all, ct__sched_size(s, (ct_val){node, 0}, a))) return;
    int64_t value = all.coef;
    for (int i = 0; i < all.n; i++) value *= s->sym_value[all.sym[i]];
    if (all.n && value == out->dim[open]) z[open] = all;
}

static bool sizes_of(ct_sched *s, ct_node *node) {
    switch (node->op->kind) {
    case CT_KIND_ELEMENTWISE: sizes_aligned_right(s, node, 0); return true;
    case CT_KIND_SCAN:
        if (node->out->rank == ct__type(node->in[0])->rank)
            for (int a = 0; a < node->out->rank; a++) same_axis(s, node, a, 0, a);
        return true;
    case CT_KIND_CONTRACT: {
        int rank = node->out->rank;
        sizes_aligned_right(s, node, 2);
        same_axis(s, node, rank - 2, 0, ct__type(node->in[0])->rank - 2);
        same_axis(s, node, rank - 1, 1, ct__type(node->in[1])->rank - 1);
        const ct_type *a = ct__type(node->in[0]), *b = ct__type(node->in[1]);
        if (ct__is_dyn(a, a->rank - 1) && ct__is_dyn(b, b->rank - 2))
            join(s, ct__sched_size(s, node->in[0], a->rank - 1),
                 ct__sched_size(s, node->in[1], b->rank - 2));
        return true;
    }
    case CT_KIND_REDUCE: sizes_of_reduce(s, node); return true;
    case CT_KIND_MOVEMENT:
        if (!sizes_by_map(s, node)) return false;
        sizes_by_count(s, node);
        return true;
    default: return true;
    }
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
            any |= o == 0;
        }
        if (any && node->op->kind != CT_KIND_LEAF && !sizes_of(s, node)) return false;
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
