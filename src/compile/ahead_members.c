// What a plan written ahead of time is given: variables, inputs, scalars, results, and their names.
#define _GNU_SOURCE // dladdr
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "compile/ahead.h"

// ------------------------------------------------------------------------------------------- names

// Words of C and C++, macros of compilers, and what the files name themselves.
static const char *const taken[] = {"alignas",
                                    "alignof",
                                    "and",
                                    "and_eq",
                                    "arena",
                                    "asm",
                                    "auto",
                                    "bitand",
                                    "bitor",
                                    "bool",
                                    "break",
                                    "case",
                                    "catch",
                                    "char",
                                    "char16_t",
                                    "char32_t",
                                    "char8_t",
                                    "class",
                                    "co_await",
                                    "co_return",
                                    "co_yield",
                                    "compl",
                                    "concept",
                                    "const",
                                    "const_cast",
                                    "consteval",
                                    "constexpr",
                                    "constinit",
                                    "continue",
                                    "decltype",
                                    "default",
                                    "delete",
                                    "do",
                                    "double",
                                    "dynamic_cast",
                                    "else",
                                    "enum",
                                    "errno",
                                    "explicit",
                                    "export",
                                    "extern",
                                    "false",
                                    "float",
                                    "for",
                                    "friend",
                                    "goto",
                                    "if",
                                    "inline",
                                    "int",
                                    "linux",
                                    "long",
                                    "main",
                                    "mutable",
                                    "namespace",
                                    "new",
                                    "noexcept",
                                    "not",
                                    "not_eq",
                                    "nullptr",
                                    "operator",
                                    "or",
                                    "or_eq",
                                    "private",
                                    "protected",
                                    "public",
                                    "register",
                                    "reinterpret_cast",
                                    "requires",
                                    "restrict",
                                    "return",
                                    "scalars",
                                    "short",
                                    "signed",
                                    "sizeof",
                                    "static",
                                    "static_assert",
                                    "static_cast",
                                    "struct",
                                    "switch",
                                    "template",
                                    "this",
                                    "thread_local",
                                    "throw",
                                    "true",
                                    "try",
                                    "typedef",
                                    "typeid",
                                    "typename",
                                    "typeof",
                                    "union",
                                    "unix",
                                    "unsigned",
                                    "using",
                                    "virtual",
                                    "void",
                                    "volatile",
                                    "wchar_t",
                                    "while",
                                    "xor",
                                    "xor_eq",
                                    "NULL",
                                    "EOF"};

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_taken(const char *name) {
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (strcmp(taken[i], name) == 0) return true;
    return false;
}

// Types and macros of the system's headers (size_t, INT32_MAX, FE_DFL_ENV), and the file's own.
static bool is_of_headers(const char *name) {
    static const char *const ends[] = {"_t",    "_MAX",         "_MIN",    "_WIDTH",
                                       "_PLAN", "_ARENA_BYTES", "_COTAN_H"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ct__ends_with(name, ends[i])) return true;
    return strncmp(name, "FE_", 3) == 0 || strncmp(name, "FP_", 3) == 0;
}

// A function of libc or libm? Headers declare some, compilers know more, and kernels may call one
// that then was the user's.
static bool is_library_function(const char *name) {
    static const char *const parts[] = {"strlen", "fmaf"}; // one of libc, one of libm
    void *symbol = dlsym(RTLD_DEFAULT, name);
    Dl_info found, part;
    if (!symbol || !dladdr(symbol, &found)) return false;
    for (int i = 0; i < 2; i++) {
        void *of_part = dlsym(RTLD_DEFAULT, parts[i]);
        if (of_part && dladdr(of_part, &part) && part.dli_fbase == found.dli_fbase) return true;
    }
    return false;
}

bool ct__ahead_function_name(const char *name) {
    return ct__ahead_name(name) && !is_library_function(name);
}

bool ct__ahead_name(const char *name) {
    enum { LONGEST = 60 };
    size_t n = 0;
    if (!is_letter(name[0])) return false; // those with _ in front are the compiler's
    for (; name[n]; n++)
        if ((!is_letter(name[n]) && !is_digit(name[n]) && name[n] != '_') || n >= LONGEST)
            return false;
    return !is_taken(name) && !is_of_headers(name);
}

bool ct__ahead_bad_name(ct_err *err, ct_code code, ct_loc here, const char *name) {
    ct__err(err, code, here, "compile", "\"%.100s\" cannot be a name in C", name);
    ct__err_hint(err, "up to 60 letters, digits and _, a letter first; no word of the "
                      "language or its library");
    return false;
}

static bool in_use(const ct_ahead *a, const char *name) {
    for (size_t i = 0; i < a->n_members; i++)
        if (a->members[i].name && strcmp(a->members[i].name, name) == 0) return true;
    return false;
}

// A name in C for what the user calls `was`: "h.0.ln_1.weight" is h_0_ln_1_weight.
static bool name_like(ct_ahead *a, ct_member *m, const char *was) {
    enum { LONGEST = 40 };
    char name[LONGEST + 24];
    size_t n = 0;
    if (!is_letter(was[0])) name[n++] = 'v';
    for (; *was && n < LONGEST; was++) name[n++] = is_letter(*was) || is_digit(*was) ? *was : '_';
    name[n] = '\0';
    if (is_taken(name) || is_of_headers(name)) name[n++] = '_', name[n] = '\0';
    for (unsigned i = 2; in_use(a, name); i++) snprintf(name + n, sizeof name - n, "_%u", i);
    m->name = ct__arena_str(&a->arena, name);
    return m->name != NULL;
}

// What the user named: the newest version of a variable, a leaf, a scalar or a result.
static ct_member *named_member(ct_ahead *a, ct_tensor t, int number) {
    const ct_order *order = &a->engine->order;
    const ct_var *var = ct__var_of(t);
    ct_val v = {0};
    for (size_t i = 0; var && i < a->n_members; i++)
        if (a->members[i].var == var) return &a->members[i];
    if (!ct__resolve(a->ctx, t, &v, "compile", number, a->args->here)) return NULL;
    for (size_t i = 0; i < order->n_scalars; i++)
        if (order->scalars[i] == v.node) return &a->members[a->scalars + i];
    uint32_t leaf = v.node->value ? ct__order_leaf(order, v.node->value[v.out]) : UINT32_MAX;
    if (leaf != UINT32_MAX) return &a->members[a->of_leaf[leaf]];
    ct_member *metric = NULL; // is named, unless the value is kept as well
    for (size_t i = 0; i < a->plan->n_roots; i++) {
        const ct_root *r = &a->roots[i];
        if (r->val.node != v.node || r->val.out != v.out || r->var) continue;
        if (r->kind != CT_ROOT_METRIC) return &a->members[a->of_root[i]];
        metric = &a->members[a->of_root[i]];
    }
    return metric;
}

static bool take_names(ct_ahead *a) {
    const ct_names *names = &a->args->names;
    if (names->n && !ct__given(a->ctx, names->v, a->args->here, "compile", "the list of names"))
        return false;
    for (size_t i = 0; i < names->n; i++) {
        const char *name = names->v[i].name;
        if (!ct__given(a->ctx, name, a->args->here, "compile", "a tensor's name")) return false;
        if (!ct__ahead_name(name))
            return ct__ahead_bad_name(&a->ctx->err, CT_E_ARGUMENT, a->args->here, name);
        ct_member *m = named_member(a, names->v[i].tensor, (int)i);
        if (a->ctx->err.code) return false;
        if (!m)
            return ct__err(&a->ctx->err, CT_E_ARGUMENT, a->args->here, "compile",
                           "the tensor named \"%s\" is neither given to what is pending nor a "
                           "result of it",
                           name);
        if (m->name || in_use(a, name))
            return ct__err(&a->ctx->err, CT_E_ARGUMENT, a->args->here, "compile",
                           m->name ? "the tensor named \"%s\" has another name as well"
                                   : "two tensors are named \"%s\"",
                           name);
        m->name = ct__arena_str(&a->arena, name);
        if (!m->name) return ct__err_memory(&a->ctx->err, a->args->here, "compile", strlen(name));
    }
    return true;
}

static bool name_others(ct_ahead *a) {
    static const char *const kinds[] = {"variable", "input", "scalar", "result"};
    int count[CT_MEMBER_KINDS] = {0};
    for (size_t i = 0; i < a->n_members; i++) {
        ct_member *m = &a->members[i];
        char name[32];
        snprintf(name, sizeof name, "%s_%d", kinds[m->kind], ++count[m->kind]);
        if (!m->name && !name_like(a, m, m->was && *m->was ? m->was : name))
            return ct__err_memory(&a->ctx->err, a->args->here, "compile", sizeof name);
    }
    return true;
}

// ----------------------------------------------------------------------------------------- members

static void leaf_member(ct_ahead *a, size_t i) {
    const ct_order *order = &a->engine->order;
    const ct_node *node = order->leaf_nodes[i];
    ct_member *m = &a->members[a->of_leaf[i] = (uint32_t)a->n_members++];
    *m = (ct_member){.kind = CT_MEMBER_INPUT, .type = node->out, .here = node->here};
    if (ct__reads_var(node)) {
        m->kind = CT_MEMBER_VARIABLE;
        m->var = node->var;
        m->was = node->var->name;
        m->here = node->var->node.here;
    }
    for (int k = 0; node->value && k < node->n_out; k++) // which of the outputs it is
        if (node->value[k] == order->leaves[i]) m->type = &node->out[k];
}

static void root_member(ct_ahead *a, size_t i) {
    const ct_root *r = &a->roots[i];
    uint32_t leaf = r->var ? ct__order_var(&a->engine->order, r->var) : UINT32_MAX;
    a->of_root[i] = leaf != UINT32_MAX ? a->of_leaf[leaf] : (uint32_t)a->n_members++;
    ct_member *m = &a->members[a->of_root[i]];
    if (leaf == UINT32_MAX)
        *m = (ct_member){.kind = r->var ? CT_MEMBER_VARIABLE : CT_MEMBER_RESULT,
                         .type = r->var ? &r->var->type : ct__type(r->val),
                         .var = r->var,
                         .was = r->var ? r->var->name : r->name,
                         .here = r->var ? r->var->node.here : r->here};
    m->written = true;
}

// Of the set whose values are to stand in the file, and the same in every run?
static bool is_embedded(const ct_ahead *a, const ct_member *m) {
    const ct_params *set = a->args->embed;
    for (size_t i = 0; set && m->var && !m->written && i < ct_params_count(set); i++)
        if (ct__var_of(ct_params_get(set, i)) == m->var) return true;
    return false;
}

// What those who recorded a scalar call it: an optimizer its betas.
static void find_scalar_names(ct_ahead *a) {
    const ct_order *order = &a->engine->order;
    for (size_t i = 0; i < order->n; i++) {
        const ct_node *node = order->nodes[i];
        for (int k = 0; node->op->operand_name && k < node->n_in; k++) {
            const char *name = node->op->operand_name(node, k);
            for (size_t s = 0; name && s < order->n_scalars; s++)
                if (order->scalars[s] == node->in[k].node) a->members[a->scalars + s].was = name;
        }
    }
}

bool ct__ahead_members(ct_ahead *a) {
    const ct_order *order = &a->engine->order;
    size_t n_leaves = order->n_leaves, n_roots = a->plan->n_roots;
    size_t most = n_leaves + n_roots + order->n_scalars;
    const ct_program *p = &a->plan->program;
    a->members = ct__arena(&a->arena, most * sizeof *a->members);
    a->of_leaf = ct__arena(&a->arena, n_leaves * sizeof *a->of_leaf);
    a->of_root = ct__arena(&a->arena, n_roots * sizeof *a->of_root);
    a->used = ct__arena_zero(&a->arena, p->n_bufs * sizeof *a->used);
    if (!a->members || !a->of_leaf || !a->of_root || !a->used)
        return ct__err_memory(&a->ctx->err, a->args->here, "compile", most * sizeof *a->members);
    for (size_t i = 0; i < n_leaves; i++) leaf_member(a, i);
    a->scalars = (uint32_t)a->n_members;
    for (size_t i = 0; i < order->n_scalars; i++)
        a->members[a->n_members++] = (ct_member){.kind = CT_MEMBER_SCALAR,
                                                 .type = order->scalars[i]->out,
                                                 .value = order->scalars[i]->number};
    find_scalar_names(a);
    for (size_t i = 0; i < n_roots; i++) root_member(a, i);
    for (size_t i = 0; i < a->n_members; i++)
        a->members[i].embedded = is_embedded(a, &a->members[i]);
    for (size_t i = 0; i < p->n_launches; i++)
        for (uint32_t k = 0; k < p->launches[i].n_args; k++)
            a->used[p->launches[i].args[k].buf] = true;
    return take_names(a) && name_others(a);
}
