// Index expressions in normal form. See index.h.
#include "graph/index.h"

#include <string.h>

#include "base/number.h"

enum { MAX_TERMS = 96, MAX_SYMS = 16 };

typedef struct {
    int n;
    int sym[MAX_SYMS];
} mono;

struct ct_ix_pool {
    ct_arena *arena;
    ct_err *err;      // out of memory is reported here at once
    ct_ix_node *node; // (n)
    int n, cap;
    int32_t *slot; // hash table of node numbers + 1
    int n_slots;
    mono *monos; // (n_monos); [0] is the empty product
    int n_monos, cap_monos;
    int n_vars;
    bool failed;
};

typedef struct {
    int n;
    ct_ix_term t[MAX_TERMS];
} sum;

static ct_ix ix_fail(ct_ix_pool *p) {
    p->failed = true;
    return CT_IX_NONE;
}
bool ct__ix_failed(const ct_ix_pool *p) { return p->failed; }
const ct_ix_node *ct__ix_node(const ct_ix_pool *p, ct_ix e) { return &p->node[e]; }

static bool ix_fail_memory(ct_ix_pool *p, size_t bytes) {
    p->failed = true;
    return ct__err_memory(p->err, CT_NOWHERE, "kernel", bytes);
}

static void *ix_grow(ct_ix_pool *p, const void *old, size_t used, size_t bytes) {
    void *fresh = ct__arena(p->arena, bytes);
    if (!fresh) return ix_fail_memory(p, bytes), NULL;
    if (used) memcpy(fresh, old, used);
    return fresh;
}

ct_ix_pool *ct__ix_new(ct_arena *arena, ct_err *err) {
    ct_ix_pool *p = ct__arena_zero(arena, sizeof *p);
    if (!p) return NULL;
    p->arena = arena;
    p->err = err;
    p->n_slots = 256;
    p->slot = ct__arena_zero(arena, (size_t)p->n_slots * sizeof *p->slot);
    p->cap_monos = 8;
    p->monos = ct__arena_zero(arena, (size_t)p->cap_monos * sizeof *p->monos);
    p->n_monos = 1;
    return p->slot && p->monos ? p : NULL;
}

// ----------------------------------------------------------------------------------------- sharing

static uint64_t ix_hash_mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9e3779b97f4a7c15ull;
    return h ^ h >> 29;
}
static uint64_t ix_hash(const ct_ix_node *x) {
    uint64_t h = ix_hash_mix((uint64_t)x->kind, (uint64_t)x->number);
    h = ix_hash_mix(ix_hash_mix(ix_hash_mix(h, (uint64_t)x->a), (uint64_t)x->b), (uint64_t)x->c);
    for (int i = 0; i < x->n; i++) {
        if (x->kind == CT_IX_LOAD) {
            h = ix_hash_mix(h, (uint64_t)x->at[i]);
            continue;
        }
        h = ix_hash_mix(h, (uint64_t)x->term[i].atom << 32 ^ (uint64_t)x->term[i].mono);
        h = ix_hash_mix(h, (uint64_t)x->term[i].coef);
    }
    return h;
}
static bool ix_equal_terms(const ct_ix_term *a, const ct_ix_term *b) {
    return a->atom == b->atom && a->mono == b->mono && a->coef == b->coef;
}
static bool ix_equal_nodes(const ct_ix_node *x, const ct_ix_node *y) {
    if (x->kind != y->kind || x->a != y->a || x->b != y->b || x->c != y->c ||
        x->number != y->number || x->n != y->n)
        return false;
    for (int i = 0; i < x->n; i++)
        if (x->kind == CT_IX_LOAD ? x->at[i] != y->at[i]
                                  : !ix_equal_terms(&x->term[i], &y->term[i]))
            return false;
    return true;
}

static bool ix_rehash(ct_ix_pool *p) {
    int size = p->n_slots * 2;
    int32_t *slot = ct__arena_zero(p->arena, (size_t)size * sizeof *slot);
    if (!slot) return ix_fail_memory(p, (size_t)size * sizeof *slot);
    for (int i = 0; i < p->n; i++) {
        uint64_t h = ix_hash(&p->node[i]);
        while (slot[h & (uint64_t)(size - 1)]) h++;
        slot[h & (uint64_t)(size - 1)] = i + 1;
    }
    p->slot = slot;
    p->n_slots = size;
    return true;
}

// Returns the number of x, whose lists may be on the stack: they are copied into the arena.
static ct_ix ix_intern(ct_ix_pool *p, ct_ix_node x) {
    uint64_t h = ix_hash(&x);
    for (;; h++) {
        int32_t at = p->slot[h & (uint64_t)(p->n_slots - 1)];
        if (!at) break;
        if (ix_equal_nodes(&p->node[at - 1], &x)) return at - 1;
    }
    if (p->n == p->cap) {
        int cap = p->cap ? p->cap * 2 : 128;
        ct_ix_node *node =
            ix_grow(p, p->node, (size_t)p->n * sizeof *node, (size_t)cap * sizeof *node);
        if (!node) return CT_IX_NONE;
        p->node = node;
        p->cap = cap;
    }
    if (x.kind == CT_IX_LOAD) {
        x.at = ix_grow(p, x.at, (size_t)x.n * sizeof *x.at, (size_t)x.n * sizeof *x.at);
        if (!x.at) return CT_IX_NONE;
    } else if (x.kind == CT_IX_SUM) {
        x.term = ix_grow(p, x.term, (size_t)x.n * sizeof *x.term, (size_t)x.n * sizeof *x.term);
        if (!x.term) return CT_IX_NONE;
    }
    p->slot[h & (uint64_t)(p->n_slots - 1)] = p->n + 1;
    p->node[p->n++] = x;
    if (p->n * 2 > p->n_slots && !ix_rehash(p)) return CT_IX_NONE;
    return p->n - 1;
}

// ----------------------------------------------------------------------- products of dynamic sizes

static int32_t mono_intern(ct_ix_pool *p, const mono *m) {
    for (int i = 0; i < p->n_monos; i++)
        if (p->monos[i].n == m->n &&
            (m->n == 0 || memcmp(p->monos[i].sym, m->sym, (size_t)m->n * sizeof *m->sym) == 0))
            return i;
    if (p->n_monos == p->cap_monos) {
        mono *more = ix_grow(p, p->monos, (size_t)p->n_monos * sizeof *more,
                             (size_t)p->cap_monos * 2 * sizeof *more);
        if (!more) return -1;
        p->monos = more;
        p->cap_monos *= 2;
    }
    p->monos[p->n_monos] = *m;
    return p->n_monos++;
}

static int32_t mono_mul(ct_ix_pool *p, int32_t a, int32_t b) {
    if (a == 0) return b;
    if (b == 0) return a;
    const mono *x = &p->monos[a], *y = &p->monos[b];
    if (x->n + y->n > MAX_SYMS) return -1;
    mono m = {0};
    for (int i = 0, k = 0; i < x->n || k < y->n;)
        m.sym[m.n++] =
            k == y->n || (i < x->n && x->sym[i] <= y->sym[k]) ? x->sym[i++] : y->sym[k++];
    return mono_intern(p, &m);
}

// a / b, or -1 if b does not divide a.
static int32_t mono_div(ct_ix_pool *p, int32_t a, int32_t b) {
    if (b == 0) return a;
    if (a == b) return 0;
    const mono *x = &p->monos[a], *y = &p->monos[b];
    mono m = {0};
    int k = 0;
    for (int i = 0; i < x->n; i++) {
        if (k < y->n && x->sym[i] == y->sym[k])
            k++;
        else
            m.sym[m.n++] = x->sym[i];
    }
    return k == y->n ? mono_intern(p, &m) : -1;
}

int ct__ix_mono(const ct_ix_pool *p, int32_t m, int *syms, int max) {
    const mono *x = &p->monos[m];
    for (int i = 0; i < x->n && i < max; i++) syms[i] = x->sym[i];
    return x->n;
}

// ---------------------------------------------------- ranges: INT64_MIN and INT64_MAX mean unknown

static int64_t range_add(int64_t a, int64_t b, int64_t unknown) {
    int64_t r;
    if (a == unknown || b == unknown || __builtin_add_overflow(a, b, &r)) return unknown;
    return r;
}
static int64_t range_mul(int64_t a, int64_t c, int64_t unknown) {
    int64_t r;
    if (a == INT64_MIN || a == INT64_MAX || __builtin_mul_overflow(a, c, &r)) return unknown;
    return r;
}

// True if all sizes of the product are among `sizes`.
static bool mono_is_subset(const ct_ix_pool *p, int32_t m, uint64_t sizes) {
    const mono *x = &p->monos[m];
    for (int i = 0; i < x->n; i++)
        if (x->sym[i] >= 64 || !(sizes >> x->sym[i] & 1)) return false;
    return true;
}

// Range of a term that is evaluated where `sizes` are at least 1.
static void ix_term_range(const ct_ix_pool *p, const ct_ix_term *t, uint64_t sizes, int64_t *lo,
                          int64_t *hi) {
    int64_t a = 1, b = 1;
    if (t->atom != CT_IX_NONE) {
        a = p->node[t->atom].lo;
        b = p->node[t->atom].hi;
    }
    if (t->mono) { // the product of sizes has no upper bound
        const bool some = mono_is_subset(p, t->mono, sizes);
        b = b > 0 ? INT64_MAX : some ? b : 0;
        a = a < 0 ? INT64_MIN : some ? a : 0;
    }
    if (t->coef >= 0) {
        *lo = range_mul(a, t->coef, INT64_MIN);
        *hi = range_mul(b, t->coef, INT64_MAX);
    } else {
        *lo = range_mul(b, t->coef, INT64_MIN);
        *hi = range_mul(a, t->coef, INT64_MAX);
    }
}

static uint64_t ix_known_sizes(const ct_ix_pool *p, const ct_ix_term *t, int n) {
    uint64_t sizes = 0;
    for (int i = 0; i < n; i++)
        if (t[i].atom != CT_IX_NONE) sizes |= p->node[t[i].atom].sizes;
    return sizes;
}

static void ix_sum_range(const ct_ix_pool *p, const ct_ix_term *t, int n, int64_t *lo,
                         int64_t *hi) {
    const uint64_t sizes = ix_known_sizes(p, t, n);
    *lo = *hi = 0;
    for (int i = 0; i < n; i++) {
        int64_t a, b;
        ix_term_range(p, &t[i], sizes, &a, &b);
        *lo = range_add(*lo, a, INT64_MIN);
        *hi = range_add(*hi, b, INT64_MAX);
    }
}

// -------------------------------------------------------------------------------------------- sums

static void sum_from_ix(const ct_ix_pool *p, ct_ix e, sum *s) {
    const ct_ix_node *x = &p->node[e];
    if (x->kind == CT_IX_SUM) {
        s->n = x->n;
        if (x->n) memcpy(s->t, x->term, (size_t)x->n * sizeof *s->t);
    } else {
        s->n = 1;
        s->t[0] = (ct_ix_term){e, 0, 1};
    }
}

static void sum_remove_term(sum *s, int i) {
    memmove(&s->t[i], &s->t[i + 1], (size_t)(s->n - i - 1) * sizeof *s->t);
    s->n--;
}
// Inserts a term in sorted order, or adds its coefficient to an equal term. False: the sum is full.
static bool sum_add_term(sum *s, ct_ix_term t) {
    if (t.coef == 0) return true;
    int i = 0;
    while (i < s->n && (s->t[i].atom < t.atom || (s->t[i].atom == t.atom && s->t[i].mono < t.mono)))
        i++;
    if (i < s->n && s->t[i].atom == t.atom && s->t[i].mono == t.mono) {
        s->t[i].coef = (int64_t)((uint64_t)s->t[i].coef + (uint64_t)t.coef);
        if (s->t[i].coef == 0) sum_remove_term(s, i);
        return true;
    }
    if (s->n == MAX_TERMS) return false;
    memmove(&s->t[i + 1], &s->t[i], (size_t)(s->n - i) * sizeof *s->t);
    s->t[i] = t;
    s->n++;
    return true;
}

static ct_ix sum_to_ix(ct_ix_pool *p, const sum *s) {
    if (s->n == 1 && s->t[0].coef == 1 && s->t[0].mono == 0 && s->t[0].atom != CT_IX_NONE)
        return s->t[0].atom;
    ct_ix_node x = {.kind = CT_IX_SUM, .a = -1, .b = -1, .c = -1, .n = s->n, .term = s->t};
    ix_sum_range(p, s->t, s->n, &x.lo, &x.hi);
    x.sizes = ix_known_sizes(p, s->t, s->n);
    for (int i = 0; i < s->n; i++)
        if (s->t[i].atom != CT_IX_NONE) x.vars |= p->node[s->t[i].atom].vars;
    return ix_intern(p, x);
}

// True if e is one term without an atom: a number times sizes.
static bool ix_is_single_term(const ct_ix_pool *p, ct_ix e, ct_ix_term *t) {
    const ct_ix_node *x = &p->node[e];
    if (x->kind != CT_IX_SUM || x->n > 1) return false;
    if (x->n == 0) {
        *t = (ct_ix_term){CT_IX_NONE, 0, 0};
        return true;
    }
    *t = x->term[0];
    return t->atom == CT_IX_NONE;
}
bool ct__ix_is_int(const ct_ix_pool *p, ct_ix e, int64_t *value) {
    ct_ix_term t;
    if (e < 0 || !ix_is_single_term(p, e, &t) || t.mono) return false;
    *value = t.coef;
    return true;
}

// (x / d) d c + (x mod d) c is x c; (x / k mod d) k c + (x mod k) c is (x mod k d) c.
static bool sum_join_quotients(ct_ix_pool *p, sum *s) {
    for (int i = 0; i < s->n; i++) {
        if (s->t[i].atom < 0) continue;
        ct_ix_node m = p->node[s->t[i].atom]; // x mod d
        ct_ix_term d;
        if (m.kind != CT_IX_MOD || !ix_is_single_term(p, m.b, &d)) continue;
        int32_t mono_want = mono_mul(p, s->t[i].mono, d.mono);
        int64_t want;
        if (mono_want < 0 || __builtin_mul_overflow(s->t[i].coef, d.coef, &want)) continue;
        for (int k = 0; k < s->n; k++) {
            if (s->t[k].atom < 0 || s->t[k].mono != mono_want || s->t[k].coef != want) continue;
            ct_ix_node q = p->node[s->t[k].atom];
            ct_ix whole = CT_IX_NONE;
            if (q.kind == CT_IX_DIV && q.a == m.a && q.b == m.b) {
                whole = m.a;
            } else if (q.kind == CT_IX_MOD) {
                ct_ix quotient = ct__ix_div(p, m.a, m.b);
                if (quotient == q.a) whole = ct__ix_mod(p, m.a, ct__ix_mul(p, m.b, q.b));
            }
            if (whole < 0) continue;
            ct_ix_term scale = {CT_IX_NONE, s->t[i].mono, s->t[i].coef};
            sum_remove_term(s, i > k ? i : k);
            sum_remove_term(s, i > k ? k : i);
            sum w;
            sum_from_ix(p, whole, &w);
            for (int j = 0; j < w.n; j++) {
                int32_t both = mono_mul(p, w.t[j].mono, scale.mono);
                if (both < 0 ||
                    !sum_add_term(s, (ct_ix_term){w.t[j].atom, both, w.t[j].coef * scale.coef}))
                    return p->failed = true, false;
            }
            return true;
        }
    }
    return false;
}

static ct_ix sum_normalise(ct_ix_pool *p, sum *s) {
    while (sum_join_quotients(p, s)) {
    }
    return p->failed ? CT_IX_NONE : sum_to_ix(p, s);
}

ct_ix ct__ix_int(ct_ix_pool *p, int64_t value) {
    sum s = {.n = 0};
    sum_add_term(&s, (ct_ix_term){CT_IX_NONE, 0, value});
    return sum_to_ix(p, &s);
}
ct_ix ct__ix_sym(ct_ix_pool *p, int number) {
    int32_t m = mono_intern(p, &(mono){1, {number}});
    if (m < 0) return ix_fail(p);
    sum s = {1, {{CT_IX_NONE, m, 1}}};
    return sum_to_ix(p, &s);
}
ct_ix ct__ix_var(ct_ix_pool *p, ct_ix extent) {
    if (extent < 0) return CT_IX_NONE;
    int64_t n;
    ct_ix_node x = {.kind = CT_IX_VAR, .a = extent, .b = -1, .c = -1, .number = p->n_vars};
    x.hi = ct__ix_is_int(p, extent, &n) ? (n > 0 ? n - 1 : 0) : INT64_MAX;
    x.vars = 1ull << (p->n_vars % 64);
    p->n_vars++;
    ct_ix_term size;
    if (ix_is_single_term(p, extent, &size)) { // inside the loop none of its sizes is 0
        const mono *m = &p->monos[size.mono];
        for (int i = 0; i < m->n; i++)
            if (m->sym[i] < 64) x.sizes |= 1ull << m->sym[i];
    }
    return ix_intern(p, x);
}
ct_ix ct__ix_load(ct_ix_pool *p, int64_t value, const ct_ix *at, int n) {
    ct_ix_node x = {.kind = CT_IX_LOAD,
                    .a = -1,
                    .b = -1,
                    .c = -1,
                    .number = value,
                    .n = n,
                    .at = at,
                    .lo = INT64_MIN,
                    .hi = INT64_MAX};
    for (int i = 0; i < n; i++) {
        if (at[i] < 0) return CT_IX_NONE;
        x.vars |= p->node[at[i]].vars;
        x.sizes |= p->node[at[i]].sizes;
    }
    return ix_intern(p, x);
}

static ct_ix ix_add_scaled(ct_ix_pool *p, ct_ix a, ct_ix b, int64_t scale) {
    if (a < 0 || b < 0) return CT_IX_NONE;
    sum s, t;
    sum_from_ix(p, a, &s);
    sum_from_ix(p, b, &t);
    for (int i = 0; i < t.n; i++) {
        t.t[i].coef *= scale;
        if (!sum_add_term(&s, t.t[i])) return ix_fail(p);
    }
    return sum_normalise(p, &s);
}
ct_ix ct__ix_add(ct_ix_pool *p, ct_ix a, ct_ix b) { return ix_add_scaled(p, a, b, 1); }
ct_ix ct__ix_sub(ct_ix_pool *p, ct_ix a, ct_ix b) { return ix_add_scaled(p, a, b, -1); }

static ct_ix ix_binary(ct_ix_pool *p, ct_ix_kind kind, ct_ix a, ct_ix b, int64_t lo, int64_t hi) {
    ct_ix_node x = {.kind = kind, .a = a, .b = b, .c = -1, .lo = lo, .hi = hi};
    x.vars = p->node[a].vars | p->node[b].vars;
    x.sizes = p->node[a].sizes | p->node[b].sizes;
    return ix_intern(p, x);
}

ct_ix ct__ix_mul(ct_ix_pool *p, ct_ix a, ct_ix b) {
    if (a < 0 || b < 0) return CT_IX_NONE;
    sum s, t, r = {.n = 0};
    sum_from_ix(p, a, &s);
    sum_from_ix(p, b, &t);
    for (int i = 0; i < s.n; i++)
        for (int k = 0; k < t.n; k++) {
            ct_ix x = s.t[i].atom, y = t.t[k].atom, atom = x < 0 ? y : x;
            if (x >= 0 && y >= 0) {
                bool natural = p->node[x].lo >= 0 && p->node[y].lo >= 0;
                atom = ix_binary(p, CT_IX_PROD, x < y ? x : y, x < y ? y : x,
                                 natural ? 0 : INT64_MIN, INT64_MAX);
                if (atom < 0) return CT_IX_NONE;
            }
            int32_t m = mono_mul(p, s.t[i].mono, t.t[k].mono);
            int64_t coef; // wraps along an axis of size 1, where the stride can be anything
            (void)__builtin_mul_overflow(s.t[i].coef, t.t[k].coef, &coef);
            if (m < 0 || !sum_add_term(&r, (ct_ix_term){atom, m, coef})) return ix_fail(p);
        }
    return sum_normalise(p, &r);
}

// --------------------------------------------------------------------------------------- quotients

// True if the sum is in [0, d), where d is not 0: by its range, or because its strides nest. For instance
// i * 12 n + j * 4 with j below 3 n is below 12 n times the extent of i.
static bool sum_is_below(ct_ix_pool *p, const sum *s, ct_ix_term d) {
    int64_t lo, hi;
    ix_sum_range(p, s->t, s->n, &lo, &hi);
    if (lo < 0) return false;
    if (hi != INT64_MAX && hi < d.coef) return true;
    // bound: an upper bound of the sum of all terms taken so far
    ct_ix_term bound = {CT_IX_NONE, 0, 1};
    bool used[MAX_TERMS] = {false};
    for (int round = 0; round < s->n; round++) {
        int next = -1;
        for (int i = 0; i < s->n && next < 0; i++) {
            if (used[i] || s->t[i].coef <= 0) continue;
            if (s->t[i].atom < 0) { // a constant below the smallest stride
                bool first = bound.coef == 1 && bound.mono == 0;
                if (!first || s->t[i].mono || s->n == 1) continue;
                next = i;
                bound.coef = s->t[i].coef + 1;
                used[i] = true;
                continue;
            }
            const ct_ix_node *v = &p->node[s->t[i].atom];
            ct_ix_term n;
            if (v->kind == CT_IX_VAR) {
                if (!ix_is_single_term(p, v->a, &n)) continue;
            } else if (v->kind == CT_IX_MOD || v->kind == CT_IX_WITHIN) {
                if (!ix_is_single_term(p, v->b, &n)) continue;
            } else {
                continue;
            }
            int32_t rest = mono_div(p, s->t[i].mono, bound.mono);
            if (rest < 0 || s->t[i].coef < bound.coef) continue;
            // Takes the smallest stride first: no other unused term may have a smaller one.
            bool smallest = true;
            for (int k = 0; k < s->n; k++)
                smallest &=
                    used[k] || k == i || s->t[k].coef <= 0 ||
                    (mono_div(p, s->t[k].mono, s->t[i].mono) >= 0 && s->t[k].coef >= s->t[i].coef);
            if (!smallest) continue;
            used[i] = true;
            next = i;
            int32_t m = mono_mul(p, s->t[i].mono, n.mono);
            if (m < 0) return false;
            if (__builtin_mul_overflow(s->t[i].coef, n.coef, &bound.coef)) return false;
            bound.mono = m;
        }
        if (next < 0) return false;
    }
    return mono_div(p, d.mono, bound.mono) >= 0 && bound.coef <= d.coef;
}

// Splits a = q * d + r, where every term of q d is a multiple of d.
static void sum_split_multiples(ct_ix_pool *p, const sum *a, ct_ix_term d, sum *q, sum *r) {
    q->n = r->n = 0;
    for (int i = 0; i < a->n; i++) {
        ct_ix_term t = a->t[i];
        int32_t m = mono_div(p, t.mono, d.mono);
        if (m < 0) {
            sum_add_term(r, t);
            continue;
        }
        int64_t whole = t.coef / d.coef, rest = t.coef % d.coef;
        // 65 / 64 = 1 + 1 / 64; if x is not negative, (33 x) / 32 = x + x / 32.
        const bool natural = t.atom < 0 || (t.coef > 0 && p->node[t.atom].lo >= 0);
        if (rest && (t.mono != d.mono || !natural)) {
            sum_add_term(r, t);
            continue;
        }
        if (rest < 0) {
            rest += d.coef;
            whole--;
        }
        sum_add_term(q, (ct_ix_term){t.atom, m, whole});
        if (rest) sum_add_term(r, (ct_ix_term){t.atom, t.mono, rest});
    }
}

// Divides numerator and divisor by their common factor, which is returned.
static ct_ix_term sum_divide_common(ct_ix_pool *p, sum *r, ct_ix_term *d) {
    int64_t g = d->coef;
    for (int i = 0; i < r->n; i++) g = ct__gcd(g, r->t[i].coef);
    bool has_mono = d->mono != 0;
    for (int i = 0; i < r->n; i++) has_mono &= mono_div(p, r->t[i].mono, d->mono) >= 0;
    ct_ix_term common = {CT_IX_NONE, has_mono ? d->mono : 0, g};
    for (int i = 0; i < r->n; i++) {
        r->t[i].coef /= g;
        r->t[i].mono = mono_div(p, r->t[i].mono, common.mono);
    }
    d->coef /= g;
    d->mono = mono_div(p, d->mono, common.mono);
    sum sorted = {.n = 0};
    for (int i = 0; i < r->n; i++) sum_add_term(&sorted, r->t[i]);
    *r = sorted;
    return common;
}

static ct_ix ix_from_term(ct_ix_pool *p, ct_ix_term d) {
    sum s = {.n = 0};
    sum_add_term(&s, (ct_ix_term){CT_IX_NONE, d.mono, d.coef});
    return sum_to_ix(p, &s);
}

static ct_ix ix_opaque_div(ct_ix_pool *p, ct_ix a, ct_ix b) {
    const ct_ix_node *x = &p->node[a];
    ct_ix_term d;
    if (x->kind == CT_IX_DIV) return ct__ix_div(p, x->a, ct__ix_mul(p, x->b, b));
    if (x->kind == CT_IX_MOD && ix_is_single_term(p, x->b, &d)) { // (y mod k b) / b = y / b mod k
        ct_ix_term e;
        if (ix_is_single_term(p, b, &e) && e.coef > 0 && d.coef % e.coef == 0) {
            int32_t m = mono_div(p, d.mono, e.mono);
            if (m >= 0) {
                ct_ix_term k = {CT_IX_NONE, m, d.coef / e.coef};
                ct_ix y = x->a;
                return ct__ix_mod(p, ct__ix_div(p, y, b), ix_from_term(p, k));
            }
        }
    }
    int64_t n, hi = x->hi;
    if (ct__ix_is_int(p, b, &n) && n > 0 && hi != INT64_MAX) hi /= n;
    int64_t lo = x->lo >= 0 ? 0 : INT64_MIN;
    if (ct__ix_is_int(p, b, &n) && n > 0 && x->lo > 0) lo = x->lo / n;
    return ix_binary(p, CT_IX_DIV, a, b, lo, hi);
}

ct_ix ct__ix_div(ct_ix_pool *p, ct_ix a, ct_ix b) {
    if (a < 0 || b < 0) return CT_IX_NONE;
    ct_ix_term d;
    if (!ix_is_single_term(p, b, &d) || d.coef <= 0)
        return ix_binary(p, CT_IX_DIV, a, b, INT64_MIN, INT64_MAX);
    if (d.coef == 1 && d.mono == 0) return a;
    sum s, q, r;
    sum_from_ix(p, a, &s);
    sum_split_multiples(p, &s, d, &q, &r);
    int64_t lo, hi;
    ix_sum_range(p, r.t, r.n, &lo, &hi);
    if (lo < 0) return ix_opaque_div(p, a, b);
    if (!sum_is_below(p, &r, d)) {
        sum_divide_common(p, &r, &d);
        ct_ix rest = sum_to_ix(p, &r);
        if (rest < 0) return CT_IX_NONE;
        rest = d.coef == 1 && d.mono == 0 ? rest : ix_opaque_div(p, rest, ix_from_term(p, d));
        if (rest < 0) return CT_IX_NONE;
        if (q.n == 0) return rest;
        return ct__ix_add(p, sum_to_ix(p, &q), rest);
    }
    return sum_to_ix(p, &q);
}

ct_ix ct__ix_mod(ct_ix_pool *p, ct_ix a, ct_ix b) {
    if (a < 0 || b < 0) return CT_IX_NONE;
    ct_ix_term d;
    if (!ix_is_single_term(p, b, &d) || d.coef <= 0)
        return ix_binary(p, CT_IX_MOD, a, b, 0, INT64_MAX);
    if (d.coef == 1 && d.mono == 0) return ct__ix_int(p, 0);
    sum s, q, r;
    sum_from_ix(p, a, &s);
    sum_split_multiples(p, &s, d, &q, &r);
    int64_t lo, hi;
    ix_sum_range(p, r.t, r.n, &lo, &hi);
    if (lo < 0) return ix_binary(p, CT_IX_MOD, a, b, 0, d.mono ? INT64_MAX : d.coef - 1);
    if (sum_is_below(p, &r, d)) return sum_to_ix(p, &r);
    ct_ix_term common = sum_divide_common(p, &r, &d);
    ct_ix rest = sum_to_ix(p, &r);
    if (rest < 0) return CT_IX_NONE;
    const ct_ix_node *x = &p->node[rest];
    if (x->kind == CT_IX_MOD) { // (y mod k d) mod d = y mod d
        ct_ix_term e;
        if (ix_is_single_term(p, x->b, &e) && e.coef % d.coef == 0 &&
            mono_div(p, e.mono, d.mono) >= 0)
            rest = x->a;
    }
    ct_ix m = ix_binary(p, CT_IX_MOD, rest, ix_from_term(p, d), 0, d.mono ? INT64_MAX : d.coef - 1);
    return m < 0 ? m : ct__ix_mul(p, m, ix_from_term(p, common));
}

// ----------------------------------------------------------------------------- order and selection

ct_ix ct__ix_min(ct_ix_pool *p, ct_ix a, ct_ix b) {
    if (a < 0 || b < 0) return CT_IX_NONE;
    const ct_ix_node *x = &p->node[a], *y = &p->node[b];
    if (a == b || (x->hi != INT64_MAX && x->hi <= y->lo)) return a;
    if (y->hi != INT64_MAX && y->hi <= x->lo) return b;
    return ix_binary(p, CT_IX_MIN, a, b, x->lo < y->lo ? x->lo : y->lo,
                     x->hi < y->hi ? x->hi : y->hi);
}
ct_ix ct__ix_max(ct_ix_pool *p, ct_ix a, ct_ix b) {
    if (a < 0 || b < 0) return CT_IX_NONE;
    const ct_ix_node *x = &p->node[a], *y = &p->node[b];
    if (a == b || (y->hi != INT64_MAX && x->lo >= y->hi)) return a;
    if (x->hi != INT64_MAX && y->lo >= x->hi) return b;
    return ix_binary(p, CT_IX_MAX, a, b, x->lo > y->lo ? x->lo : y->lo,
                     x->hi > y->hi ? x->hi : y->hi);
}

ct_ix ct__ix_lt(ct_ix_pool *p, ct_ix a, ct_ix b) {
    ct_ix d = ct__ix_sub(p, a, b);
    if (d < 0) return CT_IX_NONE;
    const ct_ix_node *x = &p->node[d];
    if (x->hi != INT64_MAX && x->hi < 0) return ct__ix_int(p, 1);
    if (x->lo != INT64_MIN && x->lo >= 0) return ct__ix_int(p, 0);
    // var < its extent
    const ct_ix_node *v = &p->node[a];
    if (v->kind == CT_IX_VAR && v->a == b) return ct__ix_int(p, 1);
    ct_ix_term t;
    sum s;
    sum_from_ix(p, a, &s);
    if (ix_is_single_term(p, b, &t) && t.coef > 0 && mono_is_subset(p, t.mono, v->sizes) &&
        sum_is_below(p, &s, t))
        return ct__ix_int(p, 1);
    return ix_binary(p, CT_IX_LT, a, b, 0, 1);
}
ct_ix ct__ix_le(ct_ix_pool *p, ct_ix a, ct_ix b) { // integers: the same as not b < a
    return ct__ix_not(p, ct__ix_lt(p, b, a));
}
ct_ix ct__ix_eq(ct_ix_pool *p, ct_ix a, ct_ix b) {
    ct_ix d = ct__ix_sub(p, a, b);
    if (d < 0) return CT_IX_NONE;
    if (a == b) return ct__ix_int(p, 1);
    const ct_ix_node *x = &p->node[d];
    if ((x->lo != INT64_MIN && x->lo > 0) || (x->hi != INT64_MAX && x->hi < 0))
        return ct__ix_int(p, 0);
    return ix_binary(p, CT_IX_EQ, a, b, 0, 1);
}
ct_ix ct__ix_and(ct_ix_pool *p, ct_ix a, ct_ix b) {
    int64_t n;
    if (a < 0) return b;
    if (b < 0 || a == b) return a;
    if (ct__ix_is_int(p, a, &n)) return n ? b : a;
    if (ct__ix_is_int(p, b, &n)) return n ? a : b;
    return ix_binary(p, CT_IX_AND, a < b ? a : b, a < b ? b : a, 0, 1);
}
ct_ix ct__ix_not(ct_ix_pool *p, ct_ix a) {
    int64_t n;
    if (a < 0) return a;
    if (ct__ix_is_int(p, a, &n)) return ct__ix_int(p, !n);
    if (p->node[a].kind == CT_IX_NOT) return p->node[a].a;
    return ix_binary(p, CT_IX_NOT, a, a, 0, 1);
}
ct_ix ct__ix_select(ct_ix_pool *p, ct_ix cond, ct_ix a, ct_ix b) {
    int64_t n;
    if (cond < 0 || a == b) return a;
    if (a < 0 || b < 0) return CT_IX_NONE;
    if (ct__ix_is_int(p, cond, &n)) return n ? a : b;
    const ct_ix_node *x = &p->node[a], *y = &p->node[b];
    ct_ix_node s = {.kind = CT_IX_SELECT,
                    .a = cond,
                    .b = a,
                    .c = b,
                    .lo = x->lo < y->lo ? x->lo : y->lo,
                    .hi = x->hi > y->hi ? x->hi : y->hi,
                    .vars = p->node[cond].vars | x->vars | y->vars,
                    .sizes = p->node[cond].sizes | x->sizes | y->sizes};
    return ix_intern(p, s);
}

// -------------------------------------------------------------------------------------- inspection

// Its operands one after the other: operand i, or CT_IX_NONE; false: there are no more.
static bool ix_operand(const ct_ix_node *x, int i, ct_ix *operand) {
    switch (x->kind) {
    case CT_IX_VAR: return false;
    case CT_IX_SUM: return i < x->n && (*operand = x->term[i].atom, true);
    case CT_IX_LOAD: return i < x->n && (*operand = x->at[i], true);
    default: *operand = i == 0 ? x->a : i == 1 ? x->b : x->c; return i < 3;
    }
}

bool ct__ix_uses(const ct_ix_pool *p, ct_ix e, ct_ix var) {
    if (e < 0) return false;
    const ct_ix_node *x = &p->node[e];
    if (!(x->vars & p->node[var].vars)) return false;
    bool found = e == var && x->kind == CT_IX_VAR;
    ct_ix operand;
    for (int i = 0; !found && ix_operand(x, i, &operand); i++) found = ct__ix_uses(p, operand, var);
    return found;
}

bool ct__ix_contains(const ct_ix_pool *p, ct_ix e, ct_ix part) {
    if (e < 0 || e == part) return e >= 0;
    if (e < part) return false; // an expression is made after its parts
    bool found = false;
    ct_ix operand;
    for (int i = 0; !found && ix_operand(&p->node[e], i, &operand); i++)
        found = ct__ix_contains(p, operand, part);
    return found;
}

// Strides that contain dynamic sizes are not numbers: the result is false.
bool ct__ix_lane_step(ct_ix_pool *p, ct_ix e, ct_ix var, int64_t *step) {
    *step = 0;
    if (!ct__ix_uses(p, e, var)) return true;
    const ct_ix_node *x = &p->node[e];
    int64_t by;
    switch (x->kind) {
    case CT_IX_VAR: *step = 1; return true;
    case CT_IX_WITHIN: return ct__ix_lane_step(p, x->a, var, step);
    case CT_IX_DIV: // lanes never cross a multiple of 16
    case CT_IX_MOD: {
        bool div = x->kind == CT_IX_DIV;
        if (!ct__ix_is_int(p, x->b, &by) || by % 16 || x->a != var) return false;
        *step = !div;
        return true;
    }
    case CT_IX_SUM: {
        const ct_ix_term *term = x->term;
        for (int i = 0, n = x->n; i < n; i++) {
            int64_t own;
            if (!ct__ix_uses(p, term[i].atom, var)) continue;
            if (!ct__ix_lane_step(p, term[i].atom, var, &own)) return false;
            if (own && term[i].mono) return false;
            *step += own * term[i].coef;
        }
        return true;
    }
    default: return false;
    }
}

// True if e is constant within each aligned group of `group` values of var.
static bool ix_is_constant_in_group(const ct_ix_pool *p, ct_ix e, ct_ix var, int64_t group) {
    const ct_ix_node *x = &p->node[e];
    int64_t by;
    if (!ct__ix_uses(p, e, var)) return true;
    if (x->kind == CT_IX_DIV && x->a == var) return ct__ix_is_int(p, x->b, &by) && by % group == 0;
    if (x->kind == CT_IX_DIV || x->kind == CT_IX_MOD)
        return ix_is_constant_in_group(p, x->a, var, group) &&
               ix_is_constant_in_group(p, x->b, var, group);
    for (int i = 0; x->kind == CT_IX_SUM && i < x->n; i++)
        if (!ix_is_constant_in_group(p, x->term[i].atom, var, group)) return false;
    return x->kind == CT_IX_SUM;
}

bool ct__ix_divides(const ct_ix_pool *p, ct_ix e, ct_ix var, int64_t group) {
    if (!ct__ix_uses(p, e, var) || (group && ix_is_constant_in_group(p, e, var, group)))
        return false;
    const ct_ix_node *x = &p->node[e];
    int64_t by;
    if (x->kind == CT_IX_DIV || x->kind == CT_IX_MOD)
        return !group || !ct__ix_is_int(p, x->b, &by) || by % group ||
               ct__ix_divides(p, x->a, var, group);
    bool divides = false;
    ct_ix operand;
    for (int i = 0; !divides && ix_operand(x, i, &operand); i++)
        divides = ct__ix_divides(p, operand, var, group);
    return divides;
}

bool ct__ix_stride(ct_ix_pool *p, ct_ix e, ct_ix var, ct_ix *stride) {
    if (e < 0) return false;
    sum s, t = {.n = 0};
    sum_from_ix(p, e, &s);
    for (int i = 0; i < s.n; i++) {
        if (s.t[i].atom == var)
            sum_add_term(&t, (ct_ix_term){CT_IX_NONE, s.t[i].mono, s.t[i].coef});
        else if (ct__ix_uses(p, s.t[i].atom, var))
            return false;
    }
    *stride = sum_to_ix(p, &t);
    return true;
}

ct_ix ct__ix_within(ct_ix_pool *p, ct_ix a, ct_ix size) {
    int64_t n;
    ct_ix_term t;
    if (a < 0 || size < 0) return CT_IX_NONE;
    if (ct__ix_is_int(p, size, &n) && n == 1) return ct__ix_int(p, 0);
    sum s;
    sum_from_ix(p, a, &s);
    if (ix_is_single_term(p, size, &t) && t.coef > 0 && sum_is_below(p, &s, t)) return a;
    return ix_binary(p, CT_IX_WITHIN, a, size, 0, ct__ix_is_int(p, size, &n) ? n - 1 : INT64_MAX);
}

static bool ix_has_within(const ct_ix_pool *p, ct_ix e) {
    if (e < 0) return false;
    bool has = p->node[e].kind == CT_IX_WITHIN;
    ct_ix operand;
    for (int i = 0; !has && ix_operand(&p->node[e], i, &operand); i++)
        has = ix_has_within(p, operand);
    return has;
}

static ct_ix ix_rebuild(ct_ix_pool *p, ct_ix_node x, ct_ix a, ct_ix b, ct_ix c) {
    switch (x.kind) {
    case CT_IX_PROD: return ct__ix_mul(p, a, b);
    case CT_IX_DIV: return ct__ix_div(p, a, b);
    case CT_IX_MOD: return ct__ix_mod(p, a, b);
    case CT_IX_MIN: return ct__ix_min(p, a, b);
    case CT_IX_MAX: return ct__ix_max(p, a, b);
    case CT_IX_LT: return ct__ix_lt(p, a, b);
    case CT_IX_EQ: return ct__ix_eq(p, a, b);
    case CT_IX_AND: return ct__ix_and(p, a, b);
    case CT_IX_NOT: return ct__ix_not(p, a);
    default: return ct__ix_select(p, a, b, c);
    }
}

enum { MAX_LOAD_INDICES = 32 };
ct_ix ct__ix_strip_within(ct_ix_pool *p, ct_ix e) {
    if (!ix_has_within(p, e)) return e;
    ct_ix_node x = p->node[e]; // a copy: recursion may move the pool
    if (x.kind == CT_IX_WITHIN) return ct__ix_strip_within(p, x.a);
    if (x.kind == CT_IX_SUM) {
        ct_ix r = ct__ix_int(p, 0);
        for (int i = 0; i < x.n; i++) {
            ct_ix_term size = {CT_IX_NONE, x.term[i].mono, x.term[i].coef};
            ct_ix t = ix_from_term(p, size);
            if (x.term[i].atom >= 0) t = ct__ix_mul(p, t, ct__ix_strip_within(p, x.term[i].atom));
            r = ct__ix_add(p, r, t);
        }
        return r;
    }
    if (x.kind == CT_IX_LOAD) {
        ct_ix at[MAX_LOAD_INDICES];
        if (x.n > MAX_LOAD_INDICES) return ix_fail(p);
        for (int i = 0; i < x.n; i++) at[i] = ct__ix_strip_within(p, x.at[i]);
        return ct__ix_load(p, x.number, at, x.n);
    }
    return ix_rebuild(p, x, ct__ix_strip_within(p, x.a), ct__ix_strip_within(p, x.b),
                      ct__ix_strip_within(p, x.c));
}
