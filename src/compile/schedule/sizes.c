// Dynamic sizes as kernels have them. The atoms of their symbols (graph/symbols.h) are arguments, and sizes
// that are equal for all lengths are one argument, so that strides collapse.
#include "compile/schedule/sched.h"
#include "graph/symbols.h"

// Returns the number of an atom among the arguments that kernels may have; -1: no memory.
static int sizes_find_atom(ct_sched *s, int32_t atom) {
    for (size_t i = 0; i < s->n_syms; i++)
        if (s->sym_atom[i] == atom) return (int)i;
    if (!CT_GROW(s->sym_value, s->sym_value_cap, s->n_syms + 1) ||
        !CT_GROW(s->sym_atom, s->sym_atom_cap, s->n_syms + 1))
        return -1;
    s->sym_value[s->n_syms] = ct__atom_value(s->program->symbols, atom);
    s->sym_atom[s->n_syms] = atom;
    return (int)s->n_syms++;
}

// Converts a size, as attributes hold it, to an extent. False: no memory.
static bool sizes_extent(ct_sched *s, int64_t size, ct_extent *z) {
    ct_monomial m;
    *z = (ct_extent){.coef = ct__unmarked(size)};
    if (!ct__size_monomial(s->program->symbols, size, &m)) {
        if (ct__marked(size)) ct__symbols_incomplete(s->program->symbols);
        return true;
    }
    z->coef = m.coef;
    for (int i = 0; i < m.n; i++) {
        int sym = sizes_find_atom(s, m.atom[i]), k = z->n++;
        if (sym < 0) return false;
        for (; k > 0 && z->sym[k - 1] > sym; k--) z->sym[k] = z->sym[k - 1];
        z->sym[k] = sym;
    }
    return true;
}

ct_extent ct__sched_size(ct_sched *s, ct_val v, int axis) {
    const ct_sval *val = ct__sval(s, v);
    return val->size ? val->size[axis] : (ct_extent){.coef = ct__type(v)->dim[axis]};
}

ct_ix ct__sched_attr(ct_sched *s, ct_ix_pool *pool, const int64_t *where) {
    ct_extent z;
    if (!sizes_extent(s, *where, &z)) return CT_IX_NONE;
    ct_ix x = ct__ix_int(pool, z.coef);
    for (int i = 0; i < z.n; i++) x = ct__ix_mul(pool, x, ct__ix_sym(pool, z.sym[i]));
    return x;
}

// Finds the dynamic positions in a node's attributes. Kernels declare their arguments before their loops,
// so all of them must be known from the beginning.
static bool sizes_find_positions(ct_sched *s, const ct_node *node) {
    ct_extent z;
    for (size_t f = 0; f < node->op->n_fields; f++) {
        if (node->op->fields[f].kind != CT_FIELD_ints) continue;
        const ct_ints *list =
            (const void *)((const char *)node->attrs + node->op->fields[f].offset);
        for (int64_t i = 0; i < list->n; i++)
            if (ct__marked(list->v[i]) && !sizes_extent(s, list->v[i], &z)) return false;
    }
    return true;
}

bool ct__sched_sizes(ct_sched *s) {
    for (size_t i = 0; i < s->graph->n; i++) {
        const ct_node *node = s->graph->nodes[i];
        for (int o = 0; o < node->n_out; o++) {
            const ct_type *t = &node->out[o];
            if (!t->dyn) continue;
            ct_extent *size = ct__arena(&s->arena, t->rank * sizeof *size);
            if (!size) return false;
            for (int a = 0; a < t->rank; a++)
                if (!sizes_extent(s, ct__size_of(t, a), &size[a])) return false;
            s->vals[i][o].size = size;
        }
        if (node->op->map && !sizes_find_positions(s, node)) return false;
    }
    return true;
}
