// Deduplicates kernels: groups that equal earlier ones, such as the groups of a model's layers, reuse the
// launches of the first, with their own buffers and nodes. So each kernel is written once; writing kernels
// is most of the time that planning takes.
//
// Two groups match if all inputs of their kernels match: nodes, sizes, which values are in memory and at
// which offsets, and which of them are the same. Nodes and buffers are paired, one to one, while both
// groups are walked in parallel. Where passes are verified, the kernels of such a group are written
// nevertheless and compared.
#include <string.h>

#include "compile/schedule/sched.h"

enum { BUCKETS = 64, MAX_TRIED = 16 };

// A one-to-one mapping of numbers: of nodes, of buffers, or of atoms of sizes.
typedef struct dedup_pairs {
    uint32_t *to, *from; // (cap) the partner plus one; 0: none
    size_t cap;
    uint32_t *list; // (n) the keys of `to` that are set
    size_t n, list_cap;
} dedup_pairs;

typedef struct dedup_group {
    struct dedup_group *older;
    const ct_group *g;
    uint32_t *bufs_before; // (units) the buffers of its units before its kernels were written
    uint32_t *dying;       // (n_dying) the scheduler's at that time
    size_t n_dying;
    size_t launch, n_launches, buf, n_bufs; // the launches and buffers that it appended
} dedup_group;

struct ct_again {
    dedup_group *bucket[BUCKETS];
    dedup_pairs nodes, bufs, atoms;
};

typedef struct dedup_match {
    ct_sched *s;
    ct_again *all;
    const dedup_group *earlier;
    const ct_group *g;
    bool no_memory;
} dedup_match;

static bool dedup_no_memory(ct_sched *s) {
    return ct__err_memory(s->err, CT_NOWHERE, "plan", sizeof(dedup_group));
}

// ------------------------------------------------------------------------------------------- pairs

static bool dedup_pairs_reserve(dedup_pairs *p, size_t n) {
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

static void dedup_pairs_clear(dedup_pairs *p) {
    for (size_t i = 0; i < p->n; i++) {
        p->from[p->to[p->list[i]] - 1] = 0;
        p->to[p->list[i]] = 0;
    }
    p->n = 0;
}

// True if a and b are a pair, or become one. `is_new`: they became one.
static bool dedup_pair(dedup_match *m, dedup_pairs *p, uint32_t a, uint32_t b, bool *is_new) {
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

// ---------------------------------------------------------------------------------------- matching

static bool dedup_is_dying(const uint32_t *dying, size_t n, uint32_t buf) {
    for (size_t i = 0; i < n; i++)
        if (dying[i] == buf) return true;
    return false;
}

// Pairs sizes that are not known to be equal for all lengths by their atoms, if they are equal now.
static bool dedup_match_sizes(dedup_match *m, int64_t a, int64_t b) {
    const ct_symbols *symbols = m->s->program->symbols;
    ct_monomial x, y;
    bool is_new, same = ct__size_monomial(symbols, a, &x) && ct__size_monomial(symbols, b, &y);
    if (!same) return a == b;
    same = x.coef == y.coef && x.n == y.n;
    for (int i = 0; i < x.n && same; i++)
        same = ct__atom_value(symbols, x.atom[i]) == ct__atom_value(symbols, y.atom[i]) &&
               dedup_pair(m, &m->all->atoms, (uint32_t)x.atom[i], (uint32_t)y.atom[i], &is_new);
    return same;
}

static bool dedup_match_roots(dedup_match *m, uint32_t a, uint32_t b);

static bool dedup_match_bufs(dedup_match *m, uint32_t a, uint32_t b) {
    bool is_new;
    if (a == UINT32_MAX || b == UINT32_MAX) return a == b;
    if (!dedup_pair(m, &m->all->bufs, a, b, &is_new)) return false;
    const ct_buf *x = &m->s->program->bufs[a], *y = &m->s->program->bufs[b];
    return !is_new ||
           (x->kind == y->kind && x->bytes == y->bytes && dedup_match_sizes(m, x->size, y->size) &&
            dedup_is_dying(m->earlier->dying, m->earlier->n_dying, a) == ct__sched_dies(m->s, b) &&
            (x->kind != CT_BUF_ROOT || dedup_match_roots(m, x->index, y->index)));
}

static bool dedup_match_roots(dedup_match *m, uint32_t a, uint32_t b) {
    const struct ct_graph_root *x = &m->s->graph->roots[a], *y = &m->s->graph->roots[b];
    if (x->kind != y->kind || (x->leaf < 0) != (y->leaf < 0)) return false;
    return x->leaf < 0 || dedup_match_bufs(m, m->s->leaf_buf[x->leaf], m->s->leaf_buf[y->leaf]);
}

static bool dedup_match_types(dedup_match *m, const ct_type *a, const ct_type *b) {
    if (!ct__same_type(a, b)) return false;
    for (int i = 0; i < a->rank; i++)
        if (!dedup_match_sizes(m, ct__size_of(a, i), ct__size_of(b, i))) return false;
    return true;
}

static bool dedup_match_attrs(dedup_match *m, const ct_node *a, const ct_node *b) {
    for (size_t f = 0; f < a->op->n_fields; f++) {
        const ct_field *field = &a->op->fields[f];
        if (ct__field_equal(field, a->attrs, b->attrs)) continue;
        if (field->kind != CT_FIELD_ints) return false;
        const ct_ints *x = (const void *)((const char *)a->attrs + field->offset),
                      *y = (const void *)((const char *)b->attrs + field->offset);
        if (x->n != y->n) return false;
        for (int64_t i = 0; i < x->n; i++)
            if (!dedup_match_sizes(m, x->v[i], y->v[i])) return false;
    }
    return true;
}

// Returns the buffer of the earlier group's value before its kernels were written, which may have changed
// it.
static uint32_t dedup_buffer_before(const dedup_match *m, ct_val v) {
    for (size_t i = 0; i < m->earlier->g->n_units; i++) {
        const ct_val unit = m->earlier->g->units[i].v;
        if (unit.node == v.node && unit.out == v.out) return m->earlier->bufs_before[i];
    }
    return ct__sval(m->s, v)->buf;
}

static bool dedup_match_locations(dedup_match *m, ct_val v, ct_val w) {
    const ct_sval *a = ct__sval(m->s, v), *b = ct__sval(m->s, w);
    if (a->offset != b->offset || a->stored != b->stored || (a->group < 0) != (b->group < 0) ||
        (a->group == m->earlier->g->id) != (b->group == m->g->id) || (a->root < 0) != (b->root < 0))
        return false;
    return (a->root < 0 || dedup_match_roots(m, (uint32_t)a->root, (uint32_t)b->root)) &&
           dedup_match_bufs(m, dedup_buffer_before(m, v), b->buf);
}

static bool dedup_match_values(dedup_match *m, ct_val v, ct_val w) {
    ct_node *a = v.node, *b = w.node;
    bool is_new;
    if (v.out != w.out || !dedup_pair(m, &m->all->nodes, a->index, b->index, &is_new)) return false;
    if (!is_new) return true;
    if (a->op != b->op || a->n_in != b->n_in || a->n_out != b->n_out || !dedup_match_attrs(m, a, b))
        return false;
    for (uint32_t o = 0; o < a->n_out; o++)
        if (!dedup_match_types(m, &a->out[o], &b->out[o]) ||
            !dedup_match_locations(m, (ct_val){a, o}, (ct_val){b, o}))
            return false;
    const int32_t group = ct__sval(m->s, w)->group;
    const bool loaded = group >= 0 && group != m->g->id;
    for (int i = 0; i < a->n_in && (!loaded || ct__is_view(a)); i++)
        if (!dedup_match_values(m, a->in[i], b->in[i])) return false;
    return true;
}

static bool dedup_match_units(dedup_match *m, const ct_unit *a, const ct_unit *b, size_t n) {
    for (size_t i = 0; i < n; i++, a++, b++)
        if (a->reduce != b->reduce || a->store != b->store || a->level != b->level ||
            a->across != b->across || a->late != b->late ||
            memcmp(a->row, b->row, sizeof a->row) != 0 || !dedup_match_values(m, a->v, b->v) ||
            !dedup_match_values(m, a->axes, b->axes))
            return false;
    return true;
}

static bool dedup_match_groups(dedup_match *m, const ct_group *a, const ct_group *b) {
    if (!a->only != !b->only || a->n_units != b->n_units || a->n_kept != b->n_kept ||
        a->n_rows != b->n_rows || a->has_reduce != b->has_reduce ||
        a->has_across != b->has_across || a->gathers != b->gathers || a->torn != b->torn)
        return false;
    for (int i = 0; i < a->n_rows; i++)
        if (a->rows[i].axis != b->rows[i].axis ||
            !dedup_match_values(m, a->rows[i].v, b->rows[i].v))
            return false;
    return (!a->only || dedup_match_values(m, (ct_val){a->only, 0}, (ct_val){b->only, 0})) &&
           dedup_match_units(m, a->units, b->units, a->n_units) &&
           dedup_match_units(m, a->kept, b->kept, (size_t)a->n_kept);
}

// ---------------------------------------------------------------------------------------- launches

// Returns the partner of an atom plus one; 0: none.
static uint32_t dedup_partner_atom(const dedup_match *m, int32_t atom) {
    return atom >= 0 && (size_t)atom < m->all->atoms.cap ? m->all->atoms.to[atom] : 0;
}

static size_t dedup_find_argument(const ct_sched *s, uint32_t atom) {
    size_t i = 0;
    while (i < s->n_syms && s->sym_atom[i] != (int32_t)atom) i++;
    return i;
}
// True if paired atoms have the same order as arguments: arguments of kernels and terms of sums are in the
// order of sizes.
static bool dedup_keeps_order(const dedup_match *m) {
    const dedup_pairs *p = &m->all->atoms;
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < i; k++) {
            const uint32_t a = p->list[i], b = p->list[k];
            if ((dedup_find_argument(m->s, a) < dedup_find_argument(m->s, b)) !=
                (dedup_find_argument(m->s, p->to[a] - 1) < dedup_find_argument(m->s, p->to[b] - 1)))
                return false;
        }
    return true;
}

// True if all that the launches of the earlier group refer to has a partner, or is a buffer that was made
// for them.
static bool dedup_has_all_pairs(const dedup_match *m) {
    const dedup_group *earlier = m->earlier;
    for (size_t l = earlier->launch; l < earlier->launch + earlier->n_launches; l++) {
        const ct_launch *launch = &m->s->program->launches[l];
        if (launch->node && !m->all->nodes.to[launch->node->index]) return false;
        for (uint32_t i = 0; i < launch->n_args; i++) {
            const uint32_t buf = launch->args[i].buf;
            if (!m->all->bufs.to[buf] &&
                (buf < earlier->buf || buf >= earlier->buf + earlier->n_bufs))
                return false;
        }
        for (uint32_t i = 0; i < launch->n_numbers; i++)
            if (!dedup_partner_atom(m, launch->atoms[i])) return false;
    }
    for (size_t i = earlier->buf; i < earlier->buf + earlier->n_bufs;
         i++) { // their sizes are copied unchanged
        ct_monomial size;
        if (!ct__size_monomial(m->s->program->symbols, m->s->program->bufs[i].size, &size))
            continue;
        for (int k = 0; k < size.n; k++)
            if (dedup_partner_atom(m, size.atom[k]) != (uint32_t)size.atom[k] + 1) return false;
    }
    return true;
}

static bool dedup_pair_new_bufs(dedup_match *m, uint32_t first) {
    for (size_t i = 0; i < m->earlier->n_bufs; i++) {
        bool is_new;
        if (!dedup_pair(m, &m->all->bufs, (uint32_t)(m->earlier->buf + i), first + (uint32_t)i,
                        &is_new))
            return false;
    }
    return true;
}

static bool dedup_copy_bufs(dedup_match *m) {
    for (size_t i = 0; i < m->earlier->n_bufs; i++) {
        ct_buf buf = m->s->program->bufs[m->earlier->buf + i];
        const uint32_t node = buf.node ? m->all->nodes.to[buf.node->index] : 0;
        buf.node = node ? m->s->graph->nodes[node - 1] : NULL;
        if (ct__sched_buf(m->s, buf) == UINT32_MAX) return false;
    }
    return dedup_pairs_reserve(&m->all->bufs, m->s->program->n_bufs) || dedup_no_memory(m->s);
}

static bool dedup_copy_launch(dedup_match *m, size_t from) {
    ct_program *p = m->s->program;
    ct_launch launch = p->launches[from];
    if (launch.node) launch.node = m->s->graph->nodes[m->all->nodes.to[launch.node->index] - 1];
    ct_launch *l = ct__program_launch(p, launch, launch.n_args, launch.n_numbers);
    if (!l) return dedup_no_memory(m->s);
    for (uint32_t i = 0; i < l->n_args; i++) {
        l->args[i] = launch.args[i];
        l->args[i].buf = m->all->bufs.to[launch.args[i].buf] - 1;
    }
    memcpy(l->numbers, launch.numbers, launch.n_numbers * sizeof *l->numbers);
    for (uint32_t i = 0; i < launch.n_numbers; i++)
        l->atoms[i] = (int32_t)dedup_partner_atom(m, launch.atoms[i]) - 1;
    return true;
}

static bool dedup_copy_launches(dedup_match *m) {
    const uint32_t first = (uint32_t)m->s->program->n_bufs;
    if (!dedup_copy_bufs(m) || !dedup_pair_new_bufs(m, first)) return dedup_no_memory(m->s);
    for (size_t i = 0; i < m->earlier->n_launches; i++)
        if (!dedup_copy_launch(m, m->earlier->launch + i)) return false;
    m->s->program->n_again += m->earlier->n_launches;
    for (size_t i = 0; i < m->g->n_units; i++) { // a result may have taken an operand's buffer
        const uint32_t buf = ct__sval(m->s, m->earlier->g->units[i].v)->buf;
        if (buf != UINT32_MAX) ct__sval(m->s, m->g->units[i].v)->buf = m->all->bufs.to[buf] - 1;
    }
    return true;
}

static bool dedup_is_same_launch(dedup_match *m, const ct_launch *a, const ct_launch *b) {
    bool same = a->kind == b->kind && a->kernel == b->kernel && a->n_args == b->n_args &&
                a->n_numbers == b->n_numbers && dedup_match_sizes(m, a->size, b->size) &&
                a->grid == b->grid && m->all->nodes.to[a->node->index] == b->node->index + 1 &&
                !a->label == !b->label && (!a->label || strcmp(a->label, b->label) == 0);
    for (uint32_t i = 0; i < a->n_args && same; i++)
        same = m->all->bufs.to[a->args[i].buf] == b->args[i].buf + 1 &&
               a->args[i].offset == b->args[i].offset && a->args[i].write == b->args[i].write;
    for (uint32_t i = 0; i < a->n_numbers && same; i++)
        same = a->numbers[i] == b->numbers[i] &&
               dedup_partner_atom(m, a->atoms[i]) == (uint32_t)b->atoms[i] + 1;
    return same;
}

// Writes the kernels as if no group had matched, and compares them.
static bool dedup_verify_launches(dedup_match *m) {
    ct_program *p = m->s->program;
    const size_t launch = p->n_launches, buf = p->n_bufs;
    const ct_node *node = m->g->only ? m->g->only : m->g->units[0].v.node;
    if (!ct__sched_emit(m->s, m->s->groups[m->g->id])) return false;
    if (!dedup_pairs_reserve(&m->all->bufs, p->n_bufs)) return dedup_no_memory(m->s);
    bool same = !m->s->conflict && p->n_launches - launch == m->earlier->n_launches &&
                p->n_bufs - buf == m->earlier->n_bufs && dedup_pair_new_bufs(m, (uint32_t)buf);
    for (size_t i = 0; i < m->earlier->n_launches && same; i++)
        same =
            dedup_is_same_launch(m, &p->launches[m->earlier->launch + i], &p->launches[launch + i]);
    for (size_t i = 0; i < m->g->n_units && same; i++) {
        const uint32_t a = ct__sval(m->s, m->earlier->g->units[i].v)->buf,
                       b = ct__sval(m->s, m->g->units[i].v)->buf;
        same = a == UINT32_MAX ? a == b : m->all->bufs.to[a] == b + 1;
    }
    if (!same)
        return ct__err(m->s->err, CT_E_INTERNAL, node->here, node->op->name,
                       "its group is taken for another one, whose kernels differ");
    p->n_launches = launch; // the plan runs the launches that it would run without verification
    p->n_bufs = buf;
    return dedup_copy_launches(m);
}

// ------------------------------------------------------------------------------- remembered groups

static size_t dedup_bucket(const ct_group *g) {
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
    if (!s->again && !(s->again = ct__arena_zero(&s->arena, sizeof *s->again)))
        return dedup_no_memory(s);
    ct_again *all = s->again;
    const size_t atoms = s->program->symbols ? ct__symbols_count(s->program->symbols) : 0;
    if (!dedup_pairs_reserve(&all->nodes, s->graph->n + 1) ||
        !dedup_pairs_reserve(&all->bufs, s->program->n_bufs + 1) ||
        !dedup_pairs_reserve(&all->atoms, atoms + 1))
        return dedup_no_memory(s);
    dedup_match m = {.s = s, .all = all, .g = g};
    bool found = false;
    int tried = 0;
    for (m.earlier = all->bucket[dedup_bucket(g)]; m.earlier && tried < MAX_TRIED && !found;
         tried++) {
        dedup_pairs_clear(&all->nodes);
        dedup_pairs_clear(&all->bufs);
        dedup_pairs_clear(&all->atoms);
        found = dedup_match_groups(&m, m.earlier->g, g) && dedup_keeps_order(&m) &&
                dedup_has_all_pairs(&m);
        if (m.no_memory) return dedup_no_memory(s);
        if (!found) m.earlier = m.earlier->older;
    }
    *done = found;
    return !found || (ct__verifies() ? dedup_verify_launches(&m) : dedup_copy_launches(&m));
}

// Records the state before the kernels of a group are written.
static dedup_group *dedup_begin(ct_sched *s, const ct_group *g) {
    dedup_group *x = ct__arena_zero(&s->arena, sizeof *x);
    if (!x) return NULL;
    x->g = g;
    x->launch = s->program->n_launches;
    x->buf = s->program->n_bufs;
    x->n_dying = s->n_dying;
    x->bufs_before = ct__arena(&s->arena, (g->n_units + 1) * sizeof *x->bufs_before);
    x->dying = ct__arena(&s->arena, (s->n_dying + 1) * sizeof *x->dying);
    if (!x->bufs_before || !x->dying) return NULL;
    for (size_t i = 0; i < g->n_units; i++) x->bufs_before[i] = ct__sval(s, g->units[i].v)->buf;
    if (s->n_dying) memcpy(x->dying, s->dying, s->n_dying * sizeof *x->dying);
    return x;
}

bool ct__sched_emit_first(ct_sched *s, ct_group *g) {
    dedup_group *x = dedup_begin(s, g);
    if (!x) return dedup_no_memory(s);
    if (!ct__sched_emit(s, g)) return false;
    const ct_program *p = s->program;
    x->n_launches = p->n_launches - x->launch;
    x->n_bufs = p->n_bufs - x->buf;
    bool plain = !s->conflict;
    for (size_t i = x->buf; i < p->n_bufs; i++) {
        if (p->bufs[i].kind == CT_BUF_TEMP) continue;
        plain =
            false; // a constant is in memory from now on, where earlier kernels had it as a literal
        memset(s->again->bucket, 0, sizeof s->again->bucket);
    }
    for (size_t i = x->launch; i < p->n_launches && plain; i++)
        plain = p->launches[i].kind == CT_LAUNCH_KERNEL && !p->launches[i].n_steps;
    if (!plain) return true;
    dedup_group **bucket = &s->again->bucket[dedup_bucket(g)];
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
