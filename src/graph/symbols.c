// Dynamic sizes as symbols; see symbols.h.
//
// Sums are polynomials over atoms in a normal form; quotients that cannot be simplified are atoms. Sizes that
// a shape rule requires to be equal unify atoms, or define one by others (P = 64 s, if P was split into (s,
// 64)). A run binds the words, evaluates the other atoms in creation order, and checks that unified atoms are
// equal in this run, too.
#include <string.h>

#include "graph/graph.h"
#include "graph/symbols.h"

enum { MAX_TERMS = 8 };

typedef enum { ATOM_WORD, ATOM_AXIS, ATOM_SUM, ATOM_QUOTIENT } atom_kind;
typedef struct atom {
    atom_kind kind;
    int64_t value;          // in the run for which the plan is built
    int32_t equal_to;       // an atom equal to it, towards the root of its class; itself: the root
    bool defined;           // by `definition`; only used at the root of a class
    ct_monomial definition; // its atoms are not defined by this one
    union {
        size_t word;
        struct {
            const ct_node *node;
            uint32_t out;
            int axis;
        } of;
        struct {
            int n;
            ct_monomial *term; // (n) sorted by atoms
        } sum;
        struct {
            ct_monomial a, b; // ceil(a / b)
        } quotient;
    };
} atom;

struct ct_symbols {
    ct_arena *arena;
    atom *atoms; // (n_atoms)
    size_t n_atoms, atoms_cap;
    ct_monomial *symbols; // (n_symbols)
    int64_t *value;       // (n_symbols) in the run for which the plan is built
    size_t n_symbols, symbols_cap;
    const bool *dynamic; // (words of the record) dynamic without a mark; or NULL
    bool has_dynamic;    // some word of the record is dynamic
    bool incomplete;
};

ct_symbols *ct__symbols_new(ct_arena *arena) {
    ct_symbols *table = ct__arena_zero(arena, sizeof *table);
    if (table) table->arena = arena;
    return table;
}
ct_symbols *ct__symbols_now(void) {
    const ct_ctx *ctx = ct__ctx();
    return ctx ? ctx->symbols : NULL;
}
void ct__symbols_incomplete(ct_symbols *table) {
    if (table) table->incomplete = true;
}
bool ct__symbols_complete(const ct_symbols *table) { return !table->incomplete; }
size_t ct__symbols_count(const ct_symbols *table) { return table->n_atoms; }

int64_t ct__symbol_value(int64_t size) {
    const ct_symbols *table = ct__symbols_now();
    size_t id = (size_t)(size - CT_SYMBOL_MARK);
    return table && id < table->n_symbols ? table->value[id] : 0;
}

// --------------------------------------------------------------------------------------- monomials

static int monomial_compare_atoms(const ct_monomial *a, const ct_monomial *b) {
    if (a->n != b->n) return a->n - b->n;
    return a->n ? memcmp(a->atom, b->atom, (size_t)a->n * sizeof *a->atom) : 0;
}
static bool monomial_equal(const ct_monomial *a, const ct_monomial *b) {
    return a->coef == b->coef && monomial_compare_atoms(a, b) == 0;
}

static bool monomial_multiply(ct_monomial *m, const ct_monomial *by) {
    if (m->n + by->n > CT_MONOMIAL_ATOMS || __builtin_mul_overflow(m->coef, by->coef, &m->coef))
        return false;
    for (int i = 0; i < by->n; i++) {
        int k = m->n++;
        for (; k > 0 && m->atom[k - 1] > by->atom[i]; k--) m->atom[k] = m->atom[k - 1];
        m->atom[k] = by->atom[i];
    }
    return true;
}
static void monomial_remove_atom(ct_monomial *m, int i) {
    m->n--;
    memmove(&m->atom[i], &m->atom[i + 1], (size_t)(m->n - i) * sizeof *m->atom);
}
// Removes common atoms from both.
static void monomial_cancel(ct_monomial *a, ct_monomial *b) {
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < b->n; k++) {
            if (a->atom[i] != b->atom[k]) continue;
            monomial_remove_atom(a, i--);
            monomial_remove_atom(b, k);
            break;
        }
}

static int32_t symbols_root(const ct_symbols *t, int32_t a) {
    while (t->atoms[a].equal_to != a) a = t->atoms[a].equal_to;
    return a;
}

// Substitutes definitions. One that would make the monomial too long is not substituted.
static ct_monomial symbols_resolve(const ct_symbols *t, const ct_monomial *m) {
    ct_monomial r = {.coef = m->coef};
    for (int i = 0; i < m->n; i++) {
        const int32_t root = symbols_root(t, m->atom[i]);
        const ct_monomial alone = {.coef = 1, .n = 1, .atom = {root}};
        ct_monomial by = alone, longer = r;
        if (t->atoms[root].defined) by = symbols_resolve(t, &t->atoms[root].definition);
        r = monomial_multiply(&longer, &by) ? longer : (monomial_multiply(&r, &alone), r);
    }
    return r;
}

bool ct__size_monomial(const ct_symbols *table, int64_t size, ct_monomial *out) {
    if (!ct__is_symbol(size)) return false;
    *out = symbols_resolve(table, &table->symbols[size - CT_SYMBOL_MARK]);
    return true;
}
// A mark without a symbol is taken as the number that it has in this run.
static ct_monomial symbols_monomial(ct_symbols *t, int64_t size) {
    ct_monomial m = {.coef = ct__unmarked(size)};
    if (!ct__size_monomial(t, size, &m)) t->incomplete |= ct__marked(size);
    return m;
}

// Returns the marked size of a monomial; equal monomials give the same.
static int64_t symbols_intern(ct_symbols *t, const ct_monomial *m, int64_t value) {
    if (m->n == 0) return m->coef;
    for (size_t i = 0; i < t->n_symbols; i++)
        if (monomial_equal(&t->symbols[i], m)) return CT_SYMBOL_MARK + (int64_t)i;
    if (t->n_symbols == t->symbols_cap) {
        const size_t cap = t->symbols_cap ? 2 * t->symbols_cap : 64;
        ct_monomial *symbols = ct__arena(t->arena, cap * sizeof *symbols);
        int64_t *values = ct__arena(t->arena, cap * sizeof *values);
        if (!symbols || !values) {
            t->incomplete = true;
            return CT_DYN(value);
        }
        if (t->n_symbols) {
            memcpy(symbols, t->symbols, t->n_symbols * sizeof *symbols);
            memcpy(values, t->value, t->n_symbols * sizeof *values);
        }
        t->symbols = symbols;
        t->value = values;
        t->symbols_cap = cap;
    }
    t->symbols[t->n_symbols] = *m;
    t->value[t->n_symbols] = value;
    return CT_SYMBOL_MARK + (int64_t)t->n_symbols++;
}

// ------------------------------------------------------------------------------------------- atoms

// NULL: out of memory.
static atom *symbols_add_atom(ct_symbols *t, atom_kind kind, int64_t value) {
    if (t->n_atoms == t->atoms_cap) {
        const size_t cap = t->atoms_cap ? 2 * t->atoms_cap : 32;
        atom *atoms = ct__arena(t->arena, cap * sizeof *atoms);
        if (!atoms) return NULL;
        if (t->n_atoms) memcpy(atoms, t->atoms, t->n_atoms * sizeof *atoms);
        t->atoms = atoms;
        t->atoms_cap = cap;
    }
    atom *a = &t->atoms[t->n_atoms];
    *a = (atom){.kind = kind, .value = value, .equal_to = (int32_t)t->n_atoms};
    t->n_atoms++;
    return a;
}
static int64_t symbols_atom_size(ct_symbols *t, const atom *a) {
    ct_monomial m = {.coef = 1, .n = 1, .atom = {(int32_t)(a - t->atoms)}};
    m = symbols_resolve(t, &m);
    return symbols_intern(t, &m, a->value);
}
// Marked if possible; a size too large to be dynamic is too large for a tensor, too.
static int64_t symbols_mark(int64_t value) {
    return value >= 0 && value < CT_DYN_END ? CT_DYN(value) : value;
}
static int64_t symbols_mark_incomplete(ct_symbols *t, int64_t value) {
    t->incomplete = true;
    return symbols_mark(value);
}

int64_t ct__symbol_word(ct_symbols *t, size_t word, int64_t value) {
    for (size_t i = 0; i < t->n_atoms; i++)
        if (t->atoms[i].kind == ATOM_WORD && t->atoms[i].word == word)
            return symbols_atom_size(t, &t->atoms[i]);
    atom *a = symbols_add_atom(t, ATOM_WORD, value);
    if (!a) return symbols_mark_incomplete(t, value);
    a->word = word;
    return symbols_atom_size(t, a);
}

void ct__symbols_set_dynamic(ct_symbols *t, const bool *dynamic, bool any) {
    t->dynamic = dynamic;
    t->has_dynamic = any;
}
bool ct__symbols_has_dynamic(const ct_symbols *t) { return t->has_dynamic; }
int64_t ct__atom_value(const ct_symbols *t, int32_t a) { return t->atoms[a].value; }

int64_t ct__symbol_at(ct_symbols *t, size_t word, int64_t size) {
    if (ct__is_symbol(size) || !(ct__marked(size) || (t->dynamic && t->dynamic[word]))) return size;
    return ct__symbol_word(t, word, ct__unmarked(size));
}

void *ct__symbol_attrs(ct_symbols *t, ct_arena *arena, const ct_opdef *op, const void *attrs,
                       size_t word) {
    char *own = ct__attrs_copy(arena, op, attrs);
    for (size_t f = 0; own && f < op->n_fields; f++) {
        const ct_field *field = &op->fields[f];
        void *at = own + field->offset;
        if (field->kind == CT_FIELD_i64) {
            int64_t *size = at;
            *size = ct__symbol_at(t, word, *size);
        } else if (field->kind == CT_FIELD_ints) {
            int64_t *v = (int64_t *)(uintptr_t)((ct_ints *)at)->v; // the copy's own
            for (int64_t i = 0; i < ((ct_ints *)at)->n; i++)
                v[i] = ct__symbol_at(t, word + 1 + (size_t)i, v[i]);
        } else if (field->kind == CT_FIELD_body && *(ct_body **)at) {
            (*(ct_body **)at)->word = word + 1;
        } else if (field->kind == CT_FIELD_bodies) {
            const ct_bodies *list = at;
            for (size_t i = 0, begin = word + 1; i < list->n; begin += 1 + list->v[i++]->n_words)
                list->v[i]->word = begin + 1;
        }
        word += ct__attr_words(field, attrs);
    }
    return own;
}

bool ct__symbol_type(ct_symbols *t, ct_arena *arena, ct_type *type, size_t word) {
    int64_t *mark = ct__arena(arena, type->rank * sizeof *mark);
    if (!mark) return false;
    for (int a = 0; a < type->rank; a++) {
        const int64_t size = ct__is_dyn(type, a) ? CT_DYN(type->dim[a]) : type->dim[a];
        mark[a] = ct__symbol_at(t, word + (size_t)a, size);
        type->dyn |= (uint32_t)ct__marked(mark[a]) << a;
    }
    type->mark = type->dyn ? mark : NULL;
    return true;
}

int64_t ct__size_canonical(ct_symbols *t, int64_t size) {
    if (!ct__is_symbol(size)) return size;
    const ct_monomial m = symbols_monomial(t, size);
    return symbols_intern(t, &m, t->value[size - CT_SYMBOL_MARK]);
}

int64_t ct__symbol_axis(ct_symbols *t, const ct_node *node, uint32_t out, int axis, int64_t value) {
    atom *a = symbols_add_atom(t, ATOM_AXIS, value);
    if (!a) return symbols_mark_incomplete(t, value);
    a->of.node = node;
    a->of.out = out;
    a->of.axis = axis;
    return symbols_atom_size(t, a);
}

// -------------------------------------------------------------------------------------------- sums

typedef struct polynomial {
    int n;
    ct_monomial term[MAX_TERMS];
} polynomial;

static bool polynomial_add_term(polynomial *p, ct_monomial m) {
    int i = 0;
    while (i < p->n && monomial_compare_atoms(&p->term[i], &m) < 0) i++;
    if (i < p->n && monomial_compare_atoms(&p->term[i], &m) == 0) {
        if (__builtin_add_overflow(p->term[i].coef, m.coef, &p->term[i].coef)) return false;
        if (p->term[i].coef) return true;
        p->n--;
        memmove(&p->term[i], &p->term[i + 1], (size_t)(p->n - i) * sizeof *p->term);
        return true;
    }
    if (m.coef == 0) return true;
    if (p->n == MAX_TERMS) return false;
    memmove(&p->term[i + 1], &p->term[i], (size_t)(p->n - i) * sizeof *p->term);
    p->term[i] = m;
    p->n++;
    return true;
}

// p += m, with sums among its atoms multiplied out.
static bool polynomial_add_monomial(const ct_symbols *t, polynomial *p, ct_monomial m) {
    for (int i = 0; i < m.n; i++) {
        const atom *a = &t->atoms[m.atom[i]];
        if (a->kind != ATOM_SUM) continue;
        monomial_remove_atom(&m, i);
        for (int k = 0; k < a->sum.n; k++) {
            ct_monomial part = symbols_resolve(t, &a->sum.term[k]);
            if (!monomial_multiply(&part, &m) || !polynomial_add_monomial(t, p, part)) return false;
        }
        return true;
    }
    return polynomial_add_term(p, m);
}

static bool polynomial_equal(const atom *a, const polynomial *p) {
    if (a->kind != ATOM_SUM || a->sum.n != p->n) return false;
    for (int i = 0; i < p->n; i++)
        if (!monomial_equal(&a->sum.term[i], &p->term[i])) return false;
    return true;
}

static int64_t symbols_sum_size(ct_symbols *t, const polynomial *p, int64_t value) {
    if (p->n == 0) return 0;
    if (p->n == 1) return symbols_intern(t, &p->term[0], value);
    for (size_t i = 0; i < t->n_atoms; i++)
        if (polynomial_equal(&t->atoms[i], p)) return symbols_atom_size(t, &t->atoms[i]);
    ct_monomial *term = ct__arena(t->arena, (size_t)p->n * sizeof *term);
    atom *a = term ? symbols_add_atom(t, ATOM_SUM, value) : NULL;
    if (!a) return symbols_mark_incomplete(t, value);
    memcpy(term, p->term, (size_t)p->n * sizeof *term);
    a->sum.n = p->n;
    a->sum.term = term;
    return symbols_atom_size(t, a);
}

static int64_t symbols_add_sizes(int64_t a, int64_t b, int64_t sign) {
    const int64_t value = ct__unmarked(a) + sign * ct__unmarked(b);
    if (!ct__marked(a) && !ct__marked(b)) return value;
    ct_symbols *t = ct__symbols_now();
    if (!t) return symbols_mark(value);
    polynomial p = {0};
    ct_monomial minus = symbols_monomial(t, b);
    minus.coef *= sign;
    if (!polynomial_add_monomial(t, &p, symbols_monomial(t, a)) ||
        !polynomial_add_monomial(t, &p, minus))
        return symbols_mark_incomplete(t, value);
    return symbols_sum_size(t, &p, value);
}
int64_t ct__size_add(int64_t a, int64_t b) { return symbols_add_sizes(a, b, 1); }
int64_t ct__marked_sub(int64_t a, int64_t b) { return symbols_add_sizes(a, b, -1); }

// ------------------------------------------------------------------------- products and quotients

int64_t ct__size_mul(int64_t a, int64_t b) {
    const int64_t value = ct__unmarked(a) * ct__unmarked(b);
    if (!ct__marked(a) && !ct__marked(b)) return value;
    ct_symbols *t = ct__symbols_now();
    if (!t) return symbols_mark(value);
    ct_monomial m = symbols_monomial(t, a), by = symbols_monomial(t, b);
    return monomial_multiply(&m, &by) ? symbols_intern(t, &m, value)
                                      : symbols_mark_incomplete(t, value);
}

int64_t ct__marked_div_up(int64_t a, int64_t b) {
    const int64_t over = ct__unmarked(b), n = ct__unmarked(a), value = n / over + (n % over > 0);
    ct_symbols *t = ct__symbols_now();
    if (!t) return symbols_mark(value);
    ct_monomial m = symbols_monomial(t, a), by = symbols_monomial(t, b);
    monomial_cancel(&m, &by);
    if (by.n == 0 && by.coef && m.coef % by.coef == 0) {
        m.coef /= by.coef;
        return symbols_intern(t, &m, value);
    }
    for (size_t i = 0; i < t->n_atoms; i++)
        if (t->atoms[i].kind == ATOM_QUOTIENT && monomial_equal(&t->atoms[i].quotient.a, &m) &&
            monomial_equal(&t->atoms[i].quotient.b, &by))
            return symbols_atom_size(t, &t->atoms[i]);
    atom *q = symbols_add_atom(t, ATOM_QUOTIENT, value);
    if (!q) return symbols_mark_incomplete(t, value);
    q->quotient.a = m;
    q->quotient.b = by;
    return symbols_atom_size(t, q);
}

// ---------------------------------------------------------------------------------------- equality

// True if x is among the atoms of m, or of the sums among these.
static bool monomial_contains(const ct_symbols *t, const ct_monomial *m, int32_t x) {
    for (int i = 0; i < m->n; i++)
        if (m->atom[i] == x) return true;
    for (int i = 0; i < m->n; i++) {
        const atom *a = &t->atoms[m->atom[i]];
        for (int k = 0; a->kind == ATOM_SUM && k < a->sum.n; k++) {
            const ct_monomial part = symbols_resolve(t, &a->sum.term[k]);
            if (monomial_contains(t, &part, x)) return true;
        }
    }
    return false;
}

// c * x = m, where x is an atom: defines x, if c divides m. They need not be equal if the cancelled factor is
// 0 in this run.
static bool symbols_define(ct_symbols *t, int64_t c, int32_t x, const ct_monomial *m) {
    int64_t value = m->coef;
    for (int i = 0; i < m->n; i++) value *= t->atoms[m->atom[i]].value;
    if (c == 0 || m->coef % c || monomial_contains(t, m, x) || value != c * t->atoms[x].value)
        return false;
    if (m->n == 1 && m->coef == c) {
        t->atoms[x].equal_to = m->atom[0];
        return true;
    }
    t->atoms[x].definition = *m;
    t->atoms[x].definition.coef /= c;
    t->atoms[x].defined = true;
    return true;
}

void ct__size_equal(int64_t a, int64_t b) {
    ct_symbols *t = ct__symbols_now();
    const bool one = ct__is_symbol(a), other = ct__is_symbol(b);
    if (!t || a == b || (!one && !other)) return;
    if ((!one && ct__marked(a)) || (!other && ct__marked(b))) return; // not computed from symbols
    ct_monomial x = symbols_monomial(t, a), y = symbols_monomial(t, b);
    monomial_cancel(&x, &y);
    if (x.n == 0 && y.n == 0) return;
    // Defines the newer atom by the older, and keeps an atom that is a word of the record undefined if
    // possible.
    const bool newer = x.n == 1 && (y.n != 1 || x.atom[0] > y.atom[0]);
    if (newer ? symbols_define(t, x.coef, x.atom[0], &y)
              : y.n == 1 && symbols_define(t, y.coef, y.atom[0], &x))
        return;
    if (x.n == 1 && !newer) symbols_define(t, x.coef, x.atom[0], &y);
    if (y.n == 1 && newer) symbols_define(t, y.coef, y.atom[0], &x);
}

void ct__sizes_equal(const ct_type *a, int skip, const ct_type *b) {
    if (a->rank - skip != b->rank) return;
    for (int i = 0; i < b->rank; i++)
        if (a->dim[skip + i] == b->dim[i])
            ct__size_equal(ct__size_of(a, skip + i), ct__size_of(b, i));
}

// --------------------------------------------------------------------------------------- other runs

static int64_t monomial_evaluate(const ct_monomial *m, const int64_t *values) {
    int64_t value = m->coef;
    for (int i = 0; i < m->n; i++) value *= values[m->atom[i]];
    return value;
}
int64_t ct__monomial_value(const ct_monomial *m, const int64_t *values) {
    return monomial_evaluate(m, values);
}

static int64_t symbols_bind_size(const ct_symbols *t, int64_t size, const int64_t *values) {
    if (!ct__is_symbol(size)) return size;
    return CT_DYN(monomial_evaluate(&t->symbols[size - CT_SYMBOL_MARK], values));
}

// The attributes with the values of this run. NULL: out of memory.
static void *symbols_bind_attrs(const ct_symbols *t, const ct_node *node, const int64_t *values,
                                ct_arena *scratch) {
    char *attrs = ct__attrs_copy(scratch, node->op, node->attrs);
    for (size_t f = 0; attrs && f < node->op->n_fields; f++) {
        const ct_field *field = &node->op->fields[f];
        if (field->kind == CT_FIELD_i64) {
            int64_t *size = (int64_t *)(void *)(attrs + field->offset);
            *size = symbols_bind_size(t, *size, values);
        }
        if (field->kind != CT_FIELD_ints) continue;
        const ct_ints *list = (const ct_ints *)(void *)(attrs + field->offset);
        int64_t *v = (int64_t *)(uintptr_t)list->v; // the copy's own
        for (int64_t i = 0; i < list->n; i++) v[i] = symbols_bind_size(t, v[i], values);
    }
    return attrs;
}

static const ct_type *symbols_bind_type(const ct_symbols *t, const ct_type *type,
                                        const int64_t *values, ct_arena *scratch) {
    if (!type->mark) return type;
    ct_type *bound = ct__arena(scratch, sizeof *bound);
    int64_t *dim = ct__arena(scratch, type->rank * sizeof *dim);
    if (!bound || !dim) return NULL;
    *bound = *type;
    bound->dim = dim;
    bound->mark = NULL;
    for (int a = 0; a < type->rank; a++)
        dim[a] = ct__unmarked(symbols_bind_size(t, type->mark[a], values));
    return bound;
}

// The size that the node's shape rule returns for operands and attributes with the values of this run.
static bool symbols_infer_axis(const ct_symbols *t, const atom *a, const int64_t *values,
                               int64_t *value) {
    const ct_node *node = a->of.node;
    CT_ARENA scratch = {0};
    ct_err err = {0};
    const ct_type **in = ct__arena(&scratch, (node->n_in + 1u) * sizeof *in);
    ct_type *out = ct__arena_zero(&scratch, node->n_out * sizeof *out);
    void *attrs = node->op->n_fields ? symbols_bind_attrs(t, node, values, &scratch) : NULL;
    bool ok = in && out && (attrs || !node->op->n_fields);
    for (int k = 0; k < node->n_in && ok; k++) {
        in[k] = symbols_bind_type(t, ct__type(node->in[k]), values, &scratch);
        ok = in[k] != NULL;
    }
    ct_call call = {.op = node->op,
                    .attrs = attrs,
                    .n_in = node->n_in,
                    .in = in,
                    .n_out = node->n_out,
                    .out = out,
                    .arena = &scratch,
                    .err = &err,
                    .here = node->here,
                    .marks = ct__symbols_now() != NULL};
    ok = ok && node->op->infer(&call) && a->of.axis < call.out[a->of.out].rank;
    if (ok) *value = call.out[a->of.out].dim[a->of.axis];
    return ok;
}

static bool symbols_bind_atom(const ct_symbols *t, const atom *a, const uint64_t *words,
                              int64_t *values, int64_t *value) {
    switch (a->kind) {
    case ATOM_WORD: *value = ct__unmarked((int64_t)words[a->word]); return true;
    case ATOM_AXIS: return symbols_infer_axis(t, a, values, value);
    case ATOM_SUM:
        *value = 0;
        for (int i = 0; i < a->sum.n; i++) *value += monomial_evaluate(&a->sum.term[i], values);
        return true;
    case ATOM_QUOTIENT: {
        const int64_t n = monomial_evaluate(&a->quotient.a, values),
                      by = monomial_evaluate(&a->quotient.b, values);
        *value = by ? n / by + (n % by > 0) : 0;
        return by != 0;
    }
    }
    return false;
}

// True if every atom has the value of its class and of its definition.
static bool symbols_are_consistent(const ct_symbols *t, const int64_t *values) {
    for (size_t i = 0; i < t->n_atoms; i++) {
        const int32_t root = symbols_root(t, (int32_t)i);
        if (values[root] != values[i]) return false;
        if (t->atoms[root].defined &&
            monomial_evaluate(&t->atoms[root].definition, values) != values[i])
            return false;
    }
    return true;
}

bool ct__symbols_bind(const ct_symbols *t, const uint64_t *words, int64_t *values) {
    for (size_t i = 0; i < t->n_atoms; i++)
        if (!symbols_bind_atom(t, &t->atoms[i], words, values, &values[i])) return false;
    return symbols_are_consistent(t, values);
}

static void symbols_substitute_size(const ct_symbols *t, int64_t *size) {
    if (ct__is_symbol(*size)) *size = CT_DYN(t->value[*size - CT_SYMBOL_MARK]);
}
void ct__symbols_substitute(const ct_symbols *t, ct_node *const *nodes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const ct_opdef *op = nodes[i]->op;
        for (int o = 0; o < nodes[i]->n_out; o++) nodes[i]->out[o].mark = NULL;
        for (size_t f = 0; nodes[i]->attrs && f < op->n_fields; f++) {
            void *at = (char *)(uintptr_t)nodes[i]->attrs + op->fields[f].offset; // the plan's own
            if (op->fields[f].kind == CT_FIELD_i64) symbols_substitute_size(t, at);
            ct_ints *list = op->fields[f].kind == CT_FIELD_ints ? at : NULL;
            for (int64_t k = 0; list && k < list->n; k++)
                symbols_substitute_size(t, (int64_t *)(uintptr_t)&list->v[k]);
            const ct_body *body = op->fields[f].kind == CT_FIELD_body ? *(ct_body **)at : NULL;
            if (body) ct__symbols_substitute(t, body->nodes, body->n_nodes);
            const ct_bodies *bodies = op->fields[f].kind == CT_FIELD_bodies ? at : NULL;
            for (size_t k = 0; bodies && k < bodies->n; k++)
                ct__symbols_substitute(t, bodies->v[k]->nodes, bodies->v[k]->n_nodes);
        }
    }
}
