// Dynamic sizes as kernels see them: the atoms of their symbols (graph/symbols.h) are arguments, and
// sizes that are equal for every length are one argument, so that strides collapse.
#include "compile/schedule/sched.h"
#include "graph/symbols.h"

// The number of an atom among the arguments that kernels may have; -1: no memory.
static int number_of(ct_sched *s, int32_t atom) {
    for (size_t i = 0; i < s->n_syms; i++)
        if (s->sym_atom[i] == atom) return (int)i;
    if (!CT_GROW(s->sym_value, s->sym_value_cap, s->n_syms + 1) ||
        !CT_GROW(s->sym_atom, s->sym_atom_cap, s->n_syms + 1))
        return -1;
    s->sym_value[s->n_syms] = ct__atom_value(s->program->symbols, atom);
    s->sym_atom[s->n_syms] = atom;
    return (int)s->n_syms++;
}

// False: no memory.
static bool extent_of(ct_sched *s, int64_t size, ct_extent *z) {
    ct_monomial m;
    *z = (ct_extent){.coef = ct__unmarked(size)};
    if (!ct__size_monomial(s->program->symbols, size, &m)) {
        if (ct__marked(size)) ct__symbols_incomplete(s->program->symbols);
        return true;
    }
    z->coef = m.coef;
    for (int i = 0; i < m.n; i++) {
        int sym = number_of(s, m.atom[i]), k = z->n++;
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
    if (!extent_of(s, *where, &z)) return CT_IX_NONE;
    ct_ix x = ct__ix_int(pool, z.coef);
    for (int i = 0; i < z.n; i++) x = ct__ix_mul(pool, x, ct__ix_sym(pool, z.sym[i]));
    return x;
}

// Kernels declare their arguments before their loops, so all of them are known from the beginning.
static bool note_positions(ct_sched *s, const ct_node *node) {
    ct_extent z;
    for (size_t f = 0; f < node->op->n_fields; f++) {
        if (node->op->fields[f].kind != CT_FIELD_ints) continue;
        const ct_ints *list =
            (const void *)((const char *)node->attrs + node->op->fields[f].offset);
        for (int64_t i = 0; i < list->n; i++)
            if (ct__marked(list->v[i]) && !extent_of(s, list->v[i], &z)) return false;
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
                if (!extent_of(s, ct__size_of(t, a), &size[a])) return false;
            s->vals[i][o].size = size;
        }
        if (node->op->map && !note_positions(s, node)) return false;
    }
    return true;
}
