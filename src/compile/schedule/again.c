// Groups that are as earlier ones, such as those of a model's layers: their launches are those of the first, with
// buffers and nodes of their own. Kernels are written once, which is most of what planning takes.
//
// Two groups are alike if whatever their kernels are written from is: nodes, sizes, what lies in memory and where,
// and which of it is one. Nodes and buffers are paired, one to one, while both groups are walked side by side. Where
// passes are verified, kernels of such a group are written nevertheless, and have to be the same.
#include <string.h>

#include "compile/schedule/sched.h"

enum { BUCKETS = 64, MOST_TRIED = 16 };

// What one number became: of nodes, of buffers, and of atoms of sizes.
typedef struct pairs {
    uint32_t *to, *from; // (cap) the other one plus one; 0: none
    size_t cap;
    uint32_t *list; // (n) of `to`
    size_t n, list_cap;
} pairs;

typedef struct emitted {
    struct emitted *older;
    const ct_group *g;
    uint32_t *placed; // (units) their buffers before
    uint32_t *dying;  // (n_dying) as the scheduler's
    size_t n_dying;
    size_t launch, n_launches, buf, n_bufs; // what it appended
} emitted;

struct ct_again {
    emitted *bucket[BUCKETS];
    pairs nodes, bufs, atoms;
};

typedef struct likeness {
    ct_sched *s;
    ct_again *all;
    const emitted *was;
    const ct_group *g;
    bool no_memory;
} likeness;

static bool no_memory(ct_sched *s) {
    return ct__err_memory(s->err, CT_NOWHERE, "plan", sizeof(emitted));
}

// ------------------------------------------------------------------------------------------ pairs

static bool reserve(pairs *p, size_t n) {
    size_t had = p->cap, other = p->cap;
    if (n <= had) return true;
    if (!CT_GROW(p->to, p->cap, n)) return false;
    if (!CT_GROW(p->from, other, p->cap)) {
        p->cap = had;
        return false;
    }
    memset(p->to + had, 0, (p->cap - had) * sizeof *p->to);
    memset(p->from + had, 0, (p->cap - had) * sizeof *p->from);
    return true;
}

static void forget(pairs *p) {
    for (size_t i = 0; i < p->n; i++) {
        p->from[p->to[p->list[i]] - 1] = 0;
        p->to[p->list[i]] = 0;
    }
    p->n = 0;
}

// Are a and b one pair, or may they become one? `is_new`: they have.
static bool pair(likeness *m, pairs *p, uint32_t a, uint32_t b, bool *is_new) {
    *is_new = false;
    if (p->to[a] || p->from[b]) return p->to[a] == b + 1;
    if (!CT_GROW(p->list, p->list_cap, p->n + 1)) {
        m->no_memory = true;
        return false;
    }
    p->to[a] = b + 1;
    p->from[b] = a + 1;
    p->list[p->n++] = a;
    return *is_new = true;
}

// -------------------------------------------------------------------------------------- likeness

static bool dies(const uint32_t *dying, size_t n, uint32_t buf) {
    for (size_t i = 0; i < n; i++)
        if (dying[i] == buf) return true;
    return false;
}

// Sizes that no length is known to make equal are paired by their atoms, where they are equal now.
static bool same_size(likeness *m, int64_t a, int64_t b) {
    const ct_symbols *symbols = m->s->program->symbols;
    ct_monomial x, y;
    bool is_new, same = ct__size_monomial(symbols, a, &x) && ct__size_monomial(symbols, b, &y);
    if (!same) return a == b;
    same = x.coef == y.coef && x.n == y.n;
    for (int i = 0; i < x.n && same; i++)
        same = ct__atom_value(symbols, x.atom[i]) == ct__atom_value(symbols, y.atom[i]) &&
               pair(m, &m->all->atoms, (uint32_t)x.atom[i], (uint32_t)y.atom[i], &is_new);
    return same;
}

static bool like_roots(likeness *m, uint32_t a, uint32_t b);

static bool like_bufs(likeness *m, uint32_t a, uint32_t b) {
    bool is_new;
    if (a == UINT32_MAX || b == UINT32_MAX) return a == b;
    if (!pair(m, &m->all->bufs, a, b, &is_new)) return false;
    const ct_buf *x = &m->s->program->bufs[a], *y = &m->s->program->bufs[b];
    return !is_new ||
           (x->kind == y->kind && x->bytes == y->bytes && same_size(m, x->size, y->size) &&
            dies(m->was->dying, m->was->n_dying, a) == ct__sched_dies(m->s, b) &&
            (x->kind != CT_BUF_ROOT || like_roots(m, x->index, y->index)));
}

static bool like_roots(likeness *m, uint32_t a, uint32_t b) {
    const struct ct_graph_root *x = &m->s->graph->roots[a], *y = &m->s->graph->roots[b];
    if (x->kind != y->kind || (x->leaf < 0) != (y->leaf < 0)) return false;
    return x->leaf < 0 || like_bufs(m, m->s->leaf_buf[x->leaf], m->s->leaf_buf[y->leaf]);
}

static bool like_types(likeness *m, const ct_type *a, const ct_type *b) {
    if (!ct__same_type(a, b)) return false;
    for (int i = 0; i < a->rank; i++)
        if (!same_size(m, ct__size_of(a, i), ct__size_of(b, i))) return false;
    return true;
}

static bool like_attrs(likeness *m, const ct_node *a, const ct_node *b) {
    for (size_t f = 0; f < a->op->n_fields; f++) {
        const ct_field *field = &a->op->fields[f];
        if (ct__field_equal(field, a->attrs, b->attrs)) continue;
        if (field->kind != CT_FIELD_ints) return false;
        const ct_ints *x = (const void *)((const char *)a->attrs + field->offset),
                      *y = (const void *)((const char *)b->attrs + field->offset);
        if (x->n != y->n) return false;
        for (int64_t i = 0; i < x->n; i++)
            if (!same_size(m, x->v[i], y->v[i])) return false;
    }
    return true;
}

// Where the earlier group's value lay before its kernels were written: they may have moved it.
static uint32_t placed(const likeness *m, ct_val v) {
    for (size_t i = 0; i < m->was->g->n_units; i++) {
        const ct_val unit = m->was->g->units[i].v;
        if (unit.node == v.node && unit.out == v.out) return m->was->placed[i];
    }
    return ct__sval(m->s, v)->buf;
}

static bool like_places(likeness *m, ct_val v, ct_val w) {
    const ct_sval *a = ct__sval(m->s, v), *b = ct__sval(m->s, w);
    if (a->offset != b->offset || a->stored != b->stored || (a->group < 0) != (b->group < 0) ||
        (a->group == m->was->g->id) != (b->group == m->g->id) || (a->root < 0) != (b->root < 0))
        return false;
    return (a->root < 0 || like_roots(m, (uint32_t)a->root, (uint32_t)b->root)) &&
           like_bufs(m, placed(m, v), b->buf);
}

static bool like(likeness *m, ct_val v, ct_val w) {
    ct_node *a = v.node, *b = w.node;
    bool is_new;
    if (v.out != w.out || !pair(m, &m->all->nodes, a->index, b->index, &is_new)) return false;
    if (!is_new) return true;
    if (a->op != b->op || a->n_in != b->n_in || a->n_out != b->n_out || !like_attrs(m, a, b))
        return false;
    for (uint32_t o = 0; o < a->n_out; o++)
        if (!like_types(m, &a->out[o], &b->out[o]) ||
            !like_places(m, (ct_val){a, o}, (ct_val){b, o}))
            return false;
    const int32_t group = ct__sval(m->s, w)->group;
    const bool loaded = group >= 0 && group != m->g->id;
    for (int i = 0; i < a->n_in && (!loaded || ct__is_view(a)); i++)
        if (!like(m, a->in[i], b->in[i])) return false;
    return true;
}

static bool like_units(likeness *m, const ct_unit *a, const ct_unit *b, size_t n) {
    for (size_t i = 0; i < n; i++, a++, b++)
        if (a->reduce != b->reduce || a->store != b->store || a->level != b->level ||
            a->across != b->across || a->late != b->late ||
            memcmp(a->row, b->row, sizeof a->row) != 0 || !like(m, a->v, b->v) ||
            !like(m, a->axes, b->axes))
            return false;
    return true;
}

static bool like_groups(likeness *m, const ct_group *a, const ct_group *b) {
    if (!a->only != !b->only || a->n_units != b->n_units || a->n_kept != b->n_kept ||
        a->n_rows != b->n_rows || a->has_reduce != b->has_reduce ||
        a->has_across != b->has_across || a->gathers != b->gathers || a->torn != b->torn)
        return false;
    for (int i = 0; i < a->n_rows; i++)
        if (a->rows[i].axis != b->rows[i].axis || !like(m, a->rows[i].v, b->rows[i].v))
            return false;
    return (!a->only || like(m, (ct_val){a->only, 0}, (ct_val){b->only, 0})) &&
           like_units(m, a->units, b->units, a->n_units) &&
           like_units(m, a->kept, b->kept, (size_t)a->n_kept);
}

// ---------------------------------------------------------------------------------------- launches

// The partner of an atom plus one; 0: none.
static uint32_t other_atom(const likeness *m, int32_t atom) {
    return atom >= 0 && (size_t)atom < m->all->atoms.cap ? m->all->atoms.to[atom] : 0;
}

static size_t argument_of(const ct_sched *s, uint32_t atom) {
    size_t i = 0;
    while (i < s->n_syms && s->sym_atom[i] != (int32_t)atom) i++;
    return i;
}
// Kernels have their arguments in the order of sizes, and sums their terms.
static bool keep_order(const likeness *m) {
    const pairs *p = &m->all->atoms;
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < i; k++) {
            const uint32_t a = p->list[i], b = p->list[k];
            if ((argument_of(m->s, a) < argument_of(m->s, b)) !=
                (argument_of(m->s, p->to[a] - 1) < argument_of(m->s, p->to[b] - 1)))
                return false;
        }
    return true;
}

// Has all that the earlier group's launches name a partner, or is it a buffer that was made for them?
static bool all_are_paired(const likeness *m) {
    const emitted *was = m->was;
    for (size_t l = was->launch; l < was->launch + was->n_launches; l++) {
        const ct_launch *launch = &m->s->program->launches[l];
        if (launch->node && !m->all->nodes.to[launch->node->index]) return false;
        for (uint32_t i = 0; i < launch->n_args; i++) {
            const uint32_t buf = launch->args[i].buf;
            if (!m->all->bufs.to[buf] && (buf < was->buf || buf >= was->buf + was->n_bufs))
                return false;
        }
        for (uint32_t i = 0; i < launch->n_numbers; i++)
            if (!other_atom(m, launch->atoms[i])) return false;
    }
    for (size_t i = was->buf; i < was->buf + was->n_bufs;
         i++) { // their sizes are taken as they are
        ct_monomial size;
        if (!ct__size_monomial(m->s->program->symbols, m->s->program->bufs[i].size, &size))
            continue;
        for (int k = 0; k < size.n; k++)
            if (other_atom(m, size.atom[k]) != (uint32_t)size.atom[k] + 1) return false;
    }
    return true;
}

static bool pair_new_bufs(likeness *m, uint32_t first) {
    for (size_t i = 0; i < m->was->n_bufs; i++) {
        bool is_new;
        if (!pair(m, &m->all->bufs, (uint32_t)(m->was->buf + i), first + (uint32_t)i, &is_new))
            return false;
    }
    return true;
}

static bool make_bufs(likeness *m) {
    for (size_t i = 0; i < m->was->n_bufs; i++) {
        ct_buf buf = m->s->program->bufs[m->was->buf + i];
        const uint32_t node = buf.node ? m->all->nodes.to[buf.node->index] : 0;
        buf.node = node ? m->s->graph->nodes[node - 1] : NULL;
        if (ct__sched_buf(m->s, buf) == UINT32_MAX) return false;
    }
    return reserve(&m->all->bufs, m->s->program->n_bufs) || no_memory(m->s);
}

static bool make_launch(likeness *m, size_t from) {
    ct_program *p = m->s->program;
    ct_launch launch = p->launches[from];
    if (launch.node) launch.node = m->s->graph->nodes[m->all->nodes.to[launch.node->index] - 1];
    ct_launch *l = ct__program_launch(p, launch, launch.n_args, launch.n_numbers);
    if (!l) return no_memory(m->s);
    for (uint32_t i = 0; i < l->n_args; i++) {
        l->args[i] = launch.args[i];
        l->args[i].buf = m->all->bufs.to[launch.args[i].buf] - 1;
    }
    memcpy(l->numbers, launch.numbers, launch.n_numbers * sizeof *l->numbers);
    for (uint32_t i = 0; i < launch.n_numbers; i++)
        l->atoms[i] = (int32_t)other_atom(m, launch.atoms[i]) - 1;
    return true;
}

static bool make_launches(likeness *m) {
    const uint32_t first = (uint32_t)m->s->program->n_bufs;
    if (!make_bufs(m) || !pair_new_bufs(m, first)) return no_memory(m->s);
    for (size_t i = 0; i < m->was->n_launches; i++)
        if (!make_launch(m, m->was->launch + i)) return false;
    m->s->program->n_again += m->was->n_launches;
    for (size_t i = 0; i < m->g->n_units; i++) { // a result may have taken an operand's place
        const uint32_t buf = ct__sval(m->s, m->was->g->units[i].v)->buf;
        if (buf != UINT32_MAX) ct__sval(m->s, m->g->units[i].v)->buf = m->all->bufs.to[buf] - 1;
    }
    return true;
}

static bool same_launch(likeness *m, const ct_launch *a, const ct_launch *b) {
    bool same = a->kind == b->kind && a->kernel == b->kernel && a->n_args == b->n_args &&
                a->n_numbers == b->n_numbers && same_size(m, a->size, b->size) &&
                a->grid == b->grid && m->all->nodes.to[a->node->index] == b->node->index + 1 &&
                !a->label == !b->label && (!a->label || strcmp(a->label, b->label) == 0);
    for (uint32_t i = 0; i < a->n_args && same; i++)
        same = m->all->bufs.to[a->args[i].buf] == b->args[i].buf + 1 &&
               a->args[i].offset == b->args[i].offset && a->args[i].write == b->args[i].write;
    for (uint32_t i = 0; i < a->n_numbers && same; i++)
        same = a->numbers[i] == b->numbers[i] &&
               other_atom(m, a->atoms[i]) == (uint32_t)b->atoms[i] + 1;
    return same;
}

// Writes the kernels as if no group had been like it, and compares.
static bool check_launches(likeness *m) {
    ct_program *p = m->s->program;
    const size_t launch = p->n_launches, buf = p->n_bufs;
    const ct_node *node = m->g->only ? m->g->only : m->g->units[0].v.node;
    if (!ct__sched_emit(m->s, m->s->groups[m->g->id])) return false;
    if (!reserve(&m->all->bufs, p->n_bufs)) return no_memory(m->s);
    bool same = !m->s->conflict && p->n_launches - launch == m->was->n_launches &&
                p->n_bufs - buf == m->was->n_bufs && pair_new_bufs(m, (uint32_t)buf);
    for (size_t i = 0; i < m->was->n_launches && same; i++)
        same = same_launch(m, &p->launches[m->was->launch + i], &p->launches[launch + i]);
    for (size_t i = 0; i < m->g->n_units && same; i++) {
        const uint32_t a = ct__sval(m->s, m->was->g->units[i].v)->buf,
                       b = ct__sval(m->s, m->g->units[i].v)->buf;
        same = a == UINT32_MAX ? a == b : m->all->bufs.to[a] == b + 1;
    }
    if (!same)
        return ct__err(m->s->err, CT_E_INTERNAL, node->here, node->op->name,
                       "its group is taken for another one, whose kernels differ");
    p->n_launches = launch; // and what runs is what would run without a check
    p->n_bufs = buf;
    return make_launches(m);
}

// ------------------------------------------------------------------------------------ remembered

static size_t bucket_of(const ct_group *g) {
    uint64_t h = (uint64_t)(uintptr_t)(g->only ? g->only->op : NULL) + g->n_units;
    for (size_t i = 0; i < g->n_units; i++) {
        const ct_type *t = ct__type(g->units[i].v);
        h = (h ^ (uint64_t)(uintptr_t)g->units[i].v.node->op) * 0x9e3779b97f4a7c15ull;
        for (int a = 0; a < t->rank; a++) h = h * 31 + (uint64_t)t->dim[a];
    }
    return (size_t)((h * 0x9e3779b97f4a7c15ull) >> 32) % BUCKETS;
}

bool ct__sched_again(ct_sched *s, ct_group *g, bool *done) {
    *done = false;
    if (!s->again && !(s->again = ct__arena_zero(&s->arena, sizeof *s->again))) return no_memory(s);
    ct_again *all = s->again;
    const size_t atoms = s->program->symbols ? ct__symbols_count(s->program->symbols) : 0;
    if (!reserve(&all->nodes, s->graph->n + 1) || !reserve(&all->bufs, s->program->n_bufs + 1) ||
        !reserve(&all->atoms, atoms + 1))
        return no_memory(s);
    likeness m = {.s = s, .all = all, .g = g};
    bool found = false;
    int tried = 0;
    for (m.was = all->bucket[bucket_of(g)]; m.was && tried < MOST_TRIED && !found; tried++) {
        forget(&all->nodes);
        forget(&all->bufs);
        forget(&all->atoms);
        found = like_groups(&m, m.was->g, g) && keep_order(&m) && all_are_paired(&m);
        if (m.no_memory) return no_memory(s);
        if (!found) m.was = m.was->older;
    }
    *done = found;
    return !found || (ct__verifies() ? check_launches(&m) : make_launches(&m));
}

// Before its kernels are written.
static emitted *begin(ct_sched *s, const ct_group *g) {
    emitted *x = ct__arena_zero(&s->arena, sizeof *x);
    if (!x) return NULL;
    x->g = g;
    x->launch = s->program->n_launches;
    x->buf = s->program->n_bufs;
    x->n_dying = s->n_dying;
    x->placed = ct__arena(&s->arena, (g->n_units + 1) * sizeof *x->placed);
    x->dying = ct__arena(&s->arena, (s->n_dying + 1) * sizeof *x->dying);
    if (!x->placed || !x->dying) return NULL;
    for (size_t i = 0; i < g->n_units; i++) x->placed[i] = ct__sval(s, g->units[i].v)->buf;
    if (s->n_dying) memcpy(x->dying, s->dying, s->n_dying * sizeof *x->dying);
    return x;
}

bool ct__sched_emit_first(ct_sched *s, ct_group *g) {
    emitted *x = begin(s, g);
    if (!x) return no_memory(s);
    if (!ct__sched_emit(s, g)) return false;
    const ct_program *p = s->program;
    x->n_launches = p->n_launches - x->launch;
    x->n_bufs = p->n_bufs - x->buf;
    bool plain = !s->conflict;
    for (size_t i = x->buf; i < p->n_bufs; i++) {
        if (p->bufs[i].kind == CT_BUF_TEMP) continue;
        plain =
            false; // a constant lies in memory from now on: what was written before took it for a number
        memset(s->again->bucket, 0, sizeof s->again->bucket);
    }
    for (size_t i = x->launch; i < p->n_launches && plain; i++)
        plain = p->launches[i].kind == CT_LAUNCH_KERNEL && !p->launches[i].n_steps;
    if (!plain) return true;
    emitted **bucket = &s->again->bucket[bucket_of(g)];
    x->older = *bucket;
    *bucket = x;
    return true;
}

void ct__sched_again_free(ct_again *all) {
    if (!all) return;
    ct__free(all->nodes.to);
    ct__free(all->nodes.from);
    ct__free(all->nodes.list);
    ct__free(all->bufs.to);
    ct__free(all->bufs.from);
    ct__free(all->bufs.list);
    ct__free(all->atoms.to);
    ct__free(all->atoms.from);
    ct__free(all->atoms.list);
}
