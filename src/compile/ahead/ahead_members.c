// The members of a plan compiled ahead of time: variables, inputs, scalars, results, and their names.
#include <stdio.h>
#include <string.h>

#include "compile/ahead/ahead.h"

// ------------------------------------------------------------------------------------------- names

static bool ahead_name_is_used(const ct_ahead *a, const char *name) {
    for (size_t i = 0; i < a->n_members; i++)
        if (a->members[i].name && strcmp(a->members[i].name, name) == 0) return true;
    return false;
}

static bool ahead_name_member(ct_ahead *a, ct_member *m, const char *user_name) {
    char name[CT_AHEAD_IDENTIFIER + 12];
    size_t n = ct__ahead_make_identifier(user_name, name);
    for (unsigned i = 2; ahead_name_is_used(a, name); i++)
        snprintf(name + n, sizeof name - n, "_%u", i);
    m->name = ct__arena_str(&a->arena, name);
    return m->name != NULL;
}

// Returns the member of a tensor that the user named: the current version of a variable, a leaf, a scalar
// or a result.
static ct_member *ahead_find_member(ct_ahead *a, ct_tensor t, int number) {
    const ct_order *order = &a->engine->order;
    const ct_var *var = ct__var_of(t);
    ct_val v = {0};
    for (size_t i = 0; var && i < a->n_members; i++)
        if (a->members[i].var == var) return &a->members[i];
    if (!ct__resolve(a->ctx, t, &v, "compile", number, a->args->here)) return NULL;
    for (size_t i = 0; i < order->n_scalars; i++)
        if (order->scalars[i] == v.node) return &a->members[a->scalars + i];
    uint32_t leaf = v.node->value ? ct__order_leaf(order, v.node->value[v.out]) : UINT32_MAX;
    if (leaf != UINT32_MAX) return &a->members[a->leaf_member[leaf]];
    ct_member *metric = NULL; // used unless the value is a result as well
    for (size_t i = 0; i < a->plan->n_roots; i++) {
        const ct_root *r = &a->roots[i];
        if (r->val.node != v.node || r->val.out != v.out || r->var) continue;
        if (r->kind != CT_ROOT_METRIC) return &a->members[a->root_member[i]];
        metric = &a->members[a->root_member[i]];
    }
    return metric;
}

static bool ahead_use_name(ct_ahead *a, ct_named_tensor named, int number) {
    const char *name = named.name;
    if (!ct__given(a->ctx, name, a->args->here, "compile", "a tensor's name")) return false;
    if (!ct__ahead_is_valid_name(name))
        return ct__ahead_report_name(&a->ctx->err, CT_E_ARGUMENT, a->args->here, name);
    ct_member *m = ahead_find_member(a, named.tensor, number);
    if (a->ctx->err.code) return false;
    if (!m)
        return ct__err(&a->ctx->err, CT_E_ARGUMENT, a->args->here, "compile",
                       "the tensor named \"%s\" is neither given to what is pending nor a "
                       "result of it",
                       name);
    if (m->name || ahead_name_is_used(a, name))
        return ct__err(&a->ctx->err, CT_E_ARGUMENT, a->args->here, "compile",
                       m->name ? "the tensor named \"%s\" has another name as well"
                               : "two tensors are named \"%s\"",
                       name);
    m->name = ct__arena_str(&a->arena, name);
    return m->name || ct__err_memory(&a->ctx->err, a->args->here, "compile", strlen(name));
}
// Sets what the user calls a tensor, if the plan has it.
static bool ahead_use_label(ct_ahead *a, ct_named_tensor named, int number) {
    if (!ct__given(a->ctx, named.name, a->args->here, "compile", "a tensor's name")) return false;
    ct_member *m = ahead_find_member(a, named.tensor, number);
    if (m) m->user_name = named.name;
    return !a->ctx->err.code;
}
static bool ahead_use_names(ct_ahead *a) {
    const ct_named_list *lists[2] = {&a->args->names, &a->args->optional_names};
    for (int list = 0; list < 2; list++) {
        const ct_named_list *names = lists[list];
        if (names->n && !ct__given(a->ctx, names->v, a->args->here, "compile", "the list of names"))
            return false;
        for (size_t i = 0; i < names->n; i++)
            if (!(list ? ahead_use_label : ahead_use_name)(a, names->v[i], (int)i)) return false;
    }
    return true;
}

static bool ahead_name_unnamed(ct_ahead *a) {
    static const char *const kinds[] = {"variable", "input", "scalar", "result"};
    int count[CT_MEMBER_KINDS] = {0};
    for (size_t i = 0; i < a->n_members; i++) {
        ct_member *m = &a->members[i];
        char name[32];
        snprintf(name, sizeof name, "%s_%d", kinds[m->kind], ++count[m->kind]);
        if (!m->name &&
            !ahead_name_member(a, m, m->user_name && *m->user_name ? m->user_name : name))
            return ct__err_memory(&a->ctx->err, a->args->here, "compile", sizeof name);
    }
    return true;
}

// ----------------------------------------------------------------------------------------- members

static void ahead_add_leaf_member(ct_ahead *a, size_t i) {
    const ct_order *order = &a->engine->order;
    const ct_node *node = order->leaf_nodes[i];
    ct_member *m = &a->members[a->leaf_member[i] = (uint32_t)a->n_members++];
    *m = (ct_member){.kind = CT_MEMBER_INPUT, .type = node->out, .here = node->here};
    if (ct__reads_var(node)) {
        m->kind = CT_MEMBER_VARIABLE;
        m->var = node->var;
        m->user_name = node->var->name;
        m->here = node->var->node.here;
    }
    for (int k = 0; node->value && k < node->n_out; k++) // finds the output that it is
        if (node->value[k] == order->leaves[i]) m->type = &node->out[k];
}

static void ahead_add_root_member(ct_ahead *a, size_t i) {
    const ct_root *r = &a->roots[i];
    uint32_t leaf = r->var ? ct__order_var(&a->engine->order, r->var) : UINT32_MAX;
    a->root_member[i] = leaf != UINT32_MAX ? a->leaf_member[leaf] : (uint32_t)a->n_members++;
    ct_member *m = &a->members[a->root_member[i]];
    if (leaf == UINT32_MAX)
        *m = (ct_member){.kind = r->var ? CT_MEMBER_VARIABLE : CT_MEMBER_RESULT,
                         .type = r->var ? &r->var->type : ct__type(r->val),
                         .var = r->var,
                         .user_name = r->var ? r->var->name : r->name,
                         .here = r->var ? r->var->node.here : r->here};
    m->written = true;
}

// True if the variable is in the set whose values are embedded in the file, and the plan does not change
// it.
static bool ahead_is_embedded(const ct_ahead *a, const ct_member *m) {
    const ct_params *set = a->args->embed_params;
    if (a->args->embed_all_params) return m->var && !m->written;
    for (size_t i = 0; set && m->var && !m->written && i < ct_params_count(set); i++)
        if (ct__var_of(ct_params_get(set, i)) == m->var) return true;
    return false;
}

// Finds names that ops have for their scalar operands, such as an optimizer's betas.
static void ahead_find_scalar_names(ct_ahead *a) {
    const ct_order *order = &a->engine->order;
    for (size_t i = 0; i < order->n; i++) {
        const ct_node *node = order->nodes[i];
        for (int k = 0; node->op->operand_name && k < node->n_in; k++) {
            const char *name = node->op->operand_name(node, k);
            for (size_t s = 0; name && s < order->n_scalars; s++)
                if (order->scalars[s] == node->in[k].node)
                    a->members[a->scalars + s].user_name = name;
        }
    }
}

bool ct__ahead_members(ct_ahead *a) {
    const ct_order *order = &a->engine->order;
    size_t n_leaves = order->n_leaves, n_roots = a->plan->n_roots;
    size_t max_members = n_leaves + n_roots + order->n_scalars;
    const ct_program *p = &a->plan->program;
    a->members = ct__arena(&a->arena, max_members * sizeof *a->members);
    a->leaf_member = ct__arena(&a->arena, n_leaves * sizeof *a->leaf_member);
    a->root_member = ct__arena(&a->arena, n_roots * sizeof *a->root_member);
    a->used = ct__arena_zero(&a->arena, p->n_bufs * sizeof *a->used);
    if (!a->members || !a->leaf_member || !a->root_member || !a->used)
        return ct__err_memory(&a->ctx->err, a->args->here, "compile",
                              max_members * sizeof *a->members);
    for (size_t i = 0; i < n_leaves; i++) ahead_add_leaf_member(a, i);
    a->scalars = (uint32_t)a->n_members;
    for (size_t i = 0; i < order->n_scalars; i++)
        a->members[a->n_members++] = (ct_member){.kind = CT_MEMBER_SCALAR,
                                                 .type = order->scalars[i]->out,
                                                 .value = order->scalars[i]->number};
    ahead_find_scalar_names(a);
    for (size_t i = 0; i < n_roots; i++) ahead_add_root_member(a, i);
    for (size_t i = 0; i < a->n_members; i++)
        a->members[i].embedded = ahead_is_embedded(a, &a->members[i]);
    for (size_t i = 0; i < p->n_launches; i++)
        for (uint32_t k = 0; k < p->launches[i].n_args; k++)
            a->used[p->launches[i].args[k].buf] = true;
    return ahead_use_names(a) && ahead_name_unnamed(a);
}
