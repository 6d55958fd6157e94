// The evaluator: walks the syntax tree of a template.
#include <string.h>

#include "base/os.h"
#include "base/fp_env.h"
#include "text/jinja_ast.h"

typedef struct ct_jinja_scope {
    struct ct_jinja_scope *parent;
    ct_jv *names, *values;
    size_t n, cap;
    bool captured; // a macro was defined in it, and may outlive it
} eval_scope;

typedef enum { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE } eval_flow;

static eval_flow eval_statements(ct_jinja_machine *m, const ct_jinja_node *n, eval_scope *in);
static ct_jv eval_expression(ct_jinja_machine *m, const ct_jinja_node *n, eval_scope *in);

// ------------------------------------------------------------------------------------------- names

static eval_scope *eval_new_scope(ct_jinja_machine *m, eval_scope *parent) {
    eval_scope *scope = ct__jinja_alloc(m, 1, sizeof *scope);
    scope->parent = parent;
    return scope;
}

static ct_jv *eval_find_name(ct_jinja_machine *m, const eval_scope *in, ct_jv name) {
    for (; in; in = in->parent) {
        ct__jinja_count_steps(m, in->n);
        for (size_t i = 0; i < in->n; i++)
            if (in->names[i].s == name.s) return &in->values[i];
    }
    return NULL;
}

static void eval_set_name(ct_jinja_machine *m, eval_scope *in, ct_jv name, ct_jv value) {
    ct_jv *found = eval_find_name(
        m, &(eval_scope){.names = in->names, .values = in->values, .n = in->n}, name);
    if (found) {
        *found = value;
        return;
    }
    if (in->n == in->cap) {
        size_t cap = in->cap ? 2 * in->cap : 4;
        ct_jv *names = ct__jinja_alloc(m, cap, 2 * sizeof *names);
        if (in->n) memcpy(names, in->names, in->n * sizeof *names);
        if (in->n) memcpy(names + cap, in->values, in->n * sizeof *names);
        in->names = names;
        in->values = names + cap;
        in->cap = cap;
    }
    in->names[in->n] = name;
    in->values[in->n++] = value;
}

static ct_jv eval_name(ct_jinja_machine *m, const eval_scope *in, ct_jv name) {
    const ct_jv *found = eval_find_name(m, in, name);
    if (!found) found = ct__jv_dict_find(m, m->variables, name);
    // MISSING: a parameter that has no value yet.
    if (found && found->kind != JV_MISSING) return *found;
    const ct_jv_function *global = ct__jv_find_function(ct__jv_globals, name);
    if (global) return (ct_jv){.kind = JV_FUNCTION, .function = global};
    return ct__jv_undefined_member(m, (ct_jv){0}, name);
}

static void eval_assign(ct_jinja_machine *m, const ct_jinja_node *target, eval_scope *in,
                        ct_jv value) {
    if (target->kind == JN_NAME) {
        eval_set_name(m, in, target->name, value);
    } else if (target->kind == JN_MEMBER_TARGET) {
        ct_jv space = eval_name(m, in, target->a->name);
        if (space.kind != JV_NAMESPACE)
            ct__jinja_fail(m, "%s is no namespace: nothing else has members that can be set",
                           ct__jinja_printable(m, target->a->name));
        if (*target->name.s->s == '_')
            ct__jinja_fail(m, "a namespace has no members that begin with an underscore");
        ct__jv_dict_set(m, space.dict, target->name, value);
    } else {
        const ct_jv_list *items = ct__jv_items(m, value);
        size_t i = 0;
        for (const ct_jinja_node *part = target->args; part; part = part->next, i++)
            if (i < items->n) eval_assign(m, part, in, items->v[i]);
        if (i != items->n) ct__jinja_fail(m, "%zu values are assigned to %zu names", items->n, i);
    }
}

// ------------------------------------------------------------------------------------- expressions

static ct_jv eval_list(ct_jinja_machine *m, const ct_jinja_node *n, eval_scope *in) {
    ct_jv list = ct__jv_new_list(m, n->kind == JN_LIST ? JV_LIST : JV_TUPLE, 0);
    for (const ct_jinja_node *item = n->args; item; item = item->next)
        ct__jv_push(m, list.list, eval_expression(m, item, in));
    return list;
}

static ct_jv eval_dict(ct_jinja_machine *m, const ct_jinja_node *n, eval_scope *in) {
    ct_jv dict = ct__jv_new_dict(m);
    for (const ct_jinja_node *key = n->args; key; key = key->next->next) {
        ct_jv k = eval_expression(m, key, in);
        ct__jv_dict_set(m, dict.dict, k, eval_expression(m, key->next, in));
    }
    return dict;
}

static void eval_add_keyword(ct_jinja_machine *m, ct_jv_args *args, ct_jv name, ct_jv value) {
    if (name.kind != JV_STRING) ct__jinja_fail(m, "an argument's name must be a str");
    for (size_t i = 0; i < args->named_n; i++)
        if (ct__jv_equal(m, args->names[i], name))
            ct__jinja_fail(m, "the argument %s is given twice", ct__jinja_printable(m, name));
    args->names[args->named_n] = name;
    args->named[args->named_n++] = value;
}

static void eval_spread_keywords(ct_jinja_machine *m, ct_jv_args *args, ct_jv from,
                                 size_t written) {
    if (from.kind != JV_DICT)
        ct__jinja_fail(m, "** needs a dict, not a %s", ct__jv_type_name(from));
    size_t n = written + from.dict->n;
    ct_jv *names = ct__jinja_alloc(m, n, 2 * sizeof *names), *named = names + n;
    for (size_t i = 0; i < args->named_n; i++) names[i] = args->names[i], named[i] = args->named[i];
    args->names = names;
    args->named = named;
    for (size_t i = 0; i < from.dict->n; i++)
        eval_add_keyword(m, args, from.dict->keys[i], from.dict->values[i]);
}

static ct_jv_args eval_arguments(ct_jinja_machine *m, const ct_jinja_node *first, eval_scope *in) {
    ct_jv_list *positional = ct__jv_new_list(m, JV_LIST, 0).list;
    ct_jv_args args = {0};
    size_t n = 1; // and one for the caller
    for (const ct_jinja_node *arg = first; arg; arg = arg->next) n++;
    args.names = ct__jinja_alloc(m, n, 2 * sizeof *args.names);
    args.named = args.names + n;
    for (const ct_jinja_node *arg = first; arg; arg = arg->next) {
        ct_jv value = eval_expression(m, arg->kind >= JN_KEYWORD ? arg->a : arg, in);
        if (arg->kind == JN_KEYWORD) {
            eval_add_keyword(m, &args, arg->name, value);
        } else if (arg->kind == JN_SPREAD) {
            const ct_jv_list *items = ct__jv_items(m, value);
            for (size_t i = 0; i < items->n; i++) ct__jv_push(m, positional, items->v[i]);
        } else if (arg->kind == JN_SPREAD_NAMED) {
            eval_spread_keywords(m, &args, value, n);
        } else {
            ct__jv_push(m, positional, value);
        }
    }
    args.v = positional->v;
    args.n = positional->n;
    return args;
}

static bool eval_compare(ct_jinja_machine *m, int op, ct_jv a, ct_jv b) {
    static const char *const operators[] = {
        [JC_LT] = "<", [JC_LE] = "<=", [JC_GT] = ">", [JC_GE] = ">="};
    switch (op) {
    case JC_EQ: return ct__jv_equal(m, a, b);
    case JC_NE: return !ct__jv_equal(m, a, b);
    case JC_IN: return ct__jv_contains(m, b, a);
    case JC_NOT_IN: return !ct__jv_contains(m, b, a);
    default: break;
    }
    int order = ct__jv_compare(m, a, b, operators[op]);
    if (order == 2) return false; // one is NaN
    return op == JC_LT   ? order < 0
           : op == JC_LE ? order <= 0
           : op == JC_GT ? order > 0
                         : order >= 0;
}

// a < b < c: each operand is evaluated once, and none after the first comparison that is false.
static ct_jv eval_comparison(ct_jinja_machine *m, const ct_jinja_node *n, eval_scope *in) {
    ct_jv left = eval_expression(m, n->a, in);
    bool holds = true;
    for (const ct_jinja_node *operand = n->args; operand && holds; operand = operand->next) {
        ct_jv right = eval_expression(m, operand->a, in);
        holds = eval_compare(m, operand->op, left, right);
        left = right;
    }
    return ct__jv_bool(holds);
}

static ct_jv eval_concat(ct_jinja_machine *m, const ct_jinja_node *n, eval_scope *in) {
    ct_jv all = ct__jv_to_string(m, eval_expression(m, n->args, in));
    for (const ct_jinja_node *part = n->args->next; part; part = part->next)
        all = ct__jv_concat(m, all, ct__jv_to_string(m, eval_expression(m, part, in)));
    return all;
}

static ct_jv eval_item(ct_jinja_machine *m, const ct_jinja_node *n, eval_scope *in) {
    ct_jv of = eval_expression(m, n->a, in);
    if (n->b->kind != JN_SLICE) return ct__jv_item(m, of, eval_expression(m, n->b, in));
    const ct_jinja_node *from = n->b->args, *to = from->next, *step = to->next;
    ct_jv first = eval_expression(m, from, in), last = eval_expression(m, to, in);
    return ct__jv_slice(m, of, first, last, eval_expression(m, step, in));
}

static ct_jv eval_call(ct_jinja_machine *m, const ct_jinja_node *n, eval_scope *in, ct_jv caller) {
    ct_jv what = eval_expression(m, n->a, in);
    ct_jv_args args = eval_arguments(m, n->args, in);
    if (caller.kind == JV_MACRO) eval_add_keyword(m, &args, m->jinja->caller, caller);
    m->line = n->line;
    ct_jv result = ct__jv_call(m, what, &args);
    m->line = n->line;
    return result;
}

static ct_jv eval_filter_or_test(ct_jinja_machine *m, const ct_jinja_node *n, eval_scope *in) {
    ct_jv self = eval_expression(m, n->a, in);
    ct_jv_args args = eval_arguments(m, n->args, in);
    m->line = n->line;
    if (n->kind == JN_TEST) return ct__jv_bool(ct__jv_call_test(m, n->name, self, &args));
    return ct__jv_call_filter(m, n->name, self, &args);
}

static ct_jv eval_condition(ct_jinja_machine *m, const ct_jinja_node *n, eval_scope *in) {
    if (ct__jv_truth(m, eval_expression(m, n->a, in))) return eval_expression(m, n->b, in);
    if (n->c) return eval_expression(m, n->c, in);
    return ct__jv_undefined(m, "an if without an else gave no value");
}

static ct_jv eval_node(ct_jinja_machine *m, const ct_jinja_node *n, eval_scope *in) {
    ct_jv a;
    switch (n->kind) {
    case JN_CONST: return n->value;
    case JN_NAME: return eval_name(m, in, n->name);
    case JN_FILTER_INPUT: return m->filter_input;
    case JN_TUPLE:
    case JN_LIST: return eval_list(m, n, in);
    case JN_DICT: return eval_dict(m, n, in);
    case JN_ATTRIBUTE: return ct__jv_attribute(m, eval_expression(m, n->a, in), n->name);
    case JN_ITEM: return eval_item(m, n, in);
    case JN_CALL: return eval_call(m, n, in, ct__jv_none());
    case JN_FILTER:
    case JN_TEST: return eval_filter_or_test(m, n, in);
    case JN_NOT: return ct__jv_bool(!ct__jv_truth(m, eval_expression(m, n->a, in)));
    case JN_NEGATE: return ct__jv_negate(m, eval_expression(m, n->a, in));
    case JN_PLUS: return ct__jv_negate(m, ct__jv_negate(m, eval_expression(m, n->a, in)));
    case JN_AND:
    case JN_OR:
        a = eval_expression(m, n->a, in);
        return ct__jv_truth(m, a) == (n->kind == JN_OR) ? a : eval_expression(m, n->b, in);
    case JN_BINARY:
        a = eval_expression(m, n->a, in);
        return ct__jv_binary(m, n->op, a, eval_expression(m, n->b, in));
    case JN_COMPARE: return eval_comparison(m, n, in);
    case JN_CONCAT: return eval_concat(m, n, in);
    case JN_CONDITION: return eval_condition(m, n, in);
    default: ct__jinja_fail(m, "a slice is used as a value");
    }
}

static ct_jv eval_expression(ct_jinja_machine *m, const ct_jinja_node *n, eval_scope *in) {
    ct__jinja_enter(m);
    m->line = n->line;
    ct_jv value = eval_node(m, n, in);
    ct__jinja_leave(m);
    return value;
}

// -------------------------------------------------------------------------------------- statements

// The output of the body, as a string.
static ct_jv eval_capture(ct_jinja_machine *m, const ct_jinja_node *body, eval_scope *in) {
    ct_jinja_writer inner = {.m = m}, *outer = m->out;
    m->out = &inner;
    eval_statements(m, body, in);
    m->out = outer;
    return ct__jinja_writer_string(&inner);
}

static ct_jv eval_block_filters(ct_jinja_machine *m, const ct_jinja_node *filters, eval_scope *in,
                                ct_jv value) {
    if (!filters) return value;
    ct_jv outer = m->filter_input;
    m->filter_input = value;
    value = eval_expression(m, filters, in);
    m->filter_input = outer;
    return value;
}

static const ct_jv_list *eval_loop_items(ct_jinja_machine *m, const ct_jinja_node *n,
                                         eval_scope *in) {
    const ct_jv_list *items = ct__jv_items(m, eval_expression(m, n->b, in));
    if (!n->c) return items;
    ct_jv_list *some = ct__jv_new_list(m, JV_LIST, 0).list;
    for (size_t i = 0; i < items->n; i++) {
        eval_scope *inner = eval_new_scope(m, in);
        eval_assign(m, n->a, inner, items->v[i]);
        if (ct__jv_truth(m, eval_expression(m, n->c, inner))) ct__jv_push(m, some, items->v[i]);
    }
    return some;
}

static eval_flow eval_for(ct_jinja_machine *m, const ct_jinja_node *n, eval_scope *in) {
    const ct_jv_list *items = eval_loop_items(m, n, in);
    if (!items->n) return eval_statements(m, n->orelse, eval_new_scope(m, in));
    ct_jv_loop *loop = ct__jinja_alloc(m, 1, sizeof *loop);
    loop->items = (ct_jv_list *)(uintptr_t)items;
    eval_scope *inner = eval_new_scope(m, in);
    for (size_t i = 0; i < items->n; i++) {
        ct__jinja_count_steps(m, 0);
        if (inner->captured) inner = eval_new_scope(m, in);
        inner->n = 0; // names set by an iteration end with it
        loop->at = i;
        eval_assign(m, n->a, inner, items->v[i]);
        eval_set_name(m, inner, m->jinja->loop, (ct_jv){.kind = JV_LOOP, .loop = loop});
        if (eval_statements(m, n->body, inner) == FLOW_BREAK) break;
    }
    return FLOW_NEXT;
}

static ct_jv eval_new_macro(ct_jinja_machine *m, const ct_jinja_node *n, eval_scope *in) {
    for (eval_scope *outer = in; outer; outer = outer->parent) outer->captured = true;
    ct_jv_macro *macro = ct__jinja_alloc(m, 1, sizeof *macro);
    *macro = (ct_jv_macro){n, in};
    return (ct_jv){.kind = JV_MACRO, .macro = macro};
}

static eval_flow eval_if(ct_jinja_machine *m, const ct_jinja_node *n, eval_scope *in) {
    while (!ct__jv_truth(m, eval_expression(m, n->a, in))) {
        if (!n->orelse) return FLOW_NEXT;
        bool another = n->orelse->kind == JN_IF && !n->orelse->next;
        if (!another) return eval_statements(m, n->orelse, in);
        n = n->orelse; // elif, or an if as the only statement of else
    }
    return eval_statements(m, n->body, in);
}

static eval_flow eval_with(ct_jinja_machine *m, const ct_jinja_node *n, eval_scope *in) {
    eval_scope *inner = eval_new_scope(m, in);
    for (const ct_jinja_node *one = n->params; one; one = one->next)
        eval_assign(m, one->a, inner, eval_expression(m, one->b, in));
    return eval_statements(m, n->body, inner);
}

static eval_flow eval_statement(ct_jinja_machine *m, const ct_jinja_node *n, eval_scope *in) {
    switch (n->kind) {
    case JN_DATA: ct__jinja_write(m->out, n->value.s->s, n->value.s->n); break;
    case JN_PRINT: ct__jv_write(m->out, eval_expression(m, n->a, in)); break;
    case JN_IF: return eval_if(m, n, in);
    case JN_FOR: return eval_for(m, n, in);
    case JN_SET: eval_assign(m, n->a, in, eval_expression(m, n->b, in)); break;
    case JN_SET_BLOCK:
        eval_assign(
            m, n->a, in,
            eval_block_filters(m, n->b, in, eval_capture(m, n->body, eval_new_scope(m, in))));
        break;
    case JN_MACRO: eval_set_name(m, in, n->name, eval_new_macro(m, n, in)); break;
    case JN_CALL_BLOCK:
        ct__jv_write(m->out, eval_call(m, n->a, in, eval_new_macro(m, n, in)));
        break;
    case JN_FILTER_BLOCK:
        ct__jv_write(m->out, eval_block_filters(m, n->b, in,
                                                eval_capture(m, n->body, eval_new_scope(m, in))));
        break;
    case JN_WITH: return eval_with(m, n, in);
    case JN_GENERATION: return eval_statements(m, n->body, eval_new_scope(m, in));
    case JN_BREAK: return FLOW_BREAK;
    case JN_CONTINUE: return FLOW_CONTINUE;
    default: ct__jinja_fail(m, "an expression is used as a statement");
    }
    return FLOW_NEXT;
}

static eval_flow eval_statements(ct_jinja_machine *m, const ct_jinja_node *n, eval_scope *in) {
    eval_flow now = FLOW_NEXT;
    ct__jinja_enter(m);
    for (; n && now == FLOW_NEXT; n = n->next) {
        ct__jinja_count_steps(m, 0);
        m->line = n->line;
        now = eval_statement(m, n, in);
    }
    ct__jinja_leave(m);
    return now;
}

// ------------------------------------------------------------------------------------------ macros

ct_jv ct__jv_macro_name(const ct_jv_macro *macro) { return macro->node->name; }

// The value of a keyword argument, which is marked as used; MISSING: not given.
static ct_jv eval_take_keyword(ct_jinja_machine *m, const ct_jv_args *args, bool *used,
                               ct_jv name) {
    for (size_t i = 0; i < args->named_n; i++)
        if (!used[i] && ct__jv_equal(m, args->names[i], name)) {
            used[i] = true;
            return args->named[i];
        }
    return (ct_jv){0};
}

static void eval_bind_rest(ct_jinja_machine *m, const ct_jinja_node *n, eval_scope *inner,
                           const ct_jv_args *args, bool *used, size_t bound) {
    const ct_jinja *jinja = m->jinja;
    if (n->caller &&
        !eval_find_name(
            m, &(eval_scope){.names = inner->names, .values = inner->values, .n = inner->n},
            jinja->caller)) {
        ct_jv caller = eval_take_keyword(m, args, used, jinja->caller);
        if (caller.kind == JV_MISSING) caller = ct__jv_undefined(m, "the macro has no caller");
        eval_set_name(m, inner, jinja->caller, caller);
    }
    ct_jv rest = ct__jv_new_dict(m);
    for (size_t i = 0; i < args->named_n; i++) {
        if (used[i]) continue;
        if (!n->kwargs)
            ct__jinja_fail(m, "the macro %s has no argument %s", ct__jinja_printable(m, n->name),
                           ct__jinja_printable(m, args->names[i]));
        ct__jv_dict_set(m, rest.dict, args->names[i], args->named[i]);
    }
    if (n->kwargs) eval_set_name(m, inner, jinja->kwargs, rest);
    if (args->n > bound && !n->varargs)
        ct__jinja_fail(m, "the macro %s takes at most %zu arguments, not %zu",
                       ct__jinja_printable(m, n->name), bound, args->n);
    if (!n->varargs) return;
    ct_jv more = ct__jv_new_list(m, JV_TUPLE, 0);
    for (size_t i = bound; i < args->n; i++) ct__jv_push(m, more.list, args->v[i]);
    eval_set_name(m, inner, jinja->varargs, more);
}

ct_jv ct__jv_call_macro(ct_jinja_machine *m, ct_jv_macro *macro, const ct_jv_args *args) {
    const ct_jinja_node *n = macro->node;
    eval_scope *inner = eval_new_scope(m, macro->scope);
    bool *used = ct__jinja_alloc(m, args->named_n, sizeof *used);
    size_t bound = 0;
    for (const ct_jinja_node *param = n->params; param; param = param->next, bound++) {
        ct_jv value =
            bound < args->n ? args->v[bound] : eval_take_keyword(m, args, used, param->name);
        if (value.kind == JV_MISSING && !param->a)
            value = ct__jv_undefined(m, "an argument of a macro was not given");
        eval_set_name(m, inner, param->name, value);
    }
    eval_bind_rest(m, n, inner, args, used, bound);
    for (const ct_jinja_node *param = n->params; param; param = param->next) {
        ct_jv *value = eval_find_name(m, inner, param->name);
        if (value->kind == JV_MISSING) {
            ct_jv given =
                eval_expression(m, param->a, inner); // which may use the parameters before it
            *eval_find_name(m, inner, param->name) = given;
        }
    }
    return eval_capture(m, n->body, inner);
}

// ------------------------------------------------------------------------------------- entry point

static bool eval_template(ct_jinja_machine *m, const struct json_t *variables, ct_text *out) {
    if (setjmp(m->failed)) return false;
    ct_jinja_writer w = {.m = m, .max_bytes = m->limits.output};
    m->out = &w;
    m->variables = ct__jv_from_json(m, variables).dict;
    eval_statements(m, m->jinja->body, eval_new_scope(m, NULL));
    ct__text_bytes(out, w.n ? w.s : "", w.n);
    return !out->failed || ct__err_memory(m->err, CT_NOWHERE, m->name, w.n);
}

bool ct__jinja_render(const ct_jinja *jinja, const struct json_t *variables,
                      const ct_jinja_limits *limits, ct_text *out, ct_err *err) {
    ct_jinja_machine m = {
        .err = err, .name = jinja->name, .jinja = jinja, .line = 1, .limits = *limits};
    double clock = ct__now();
    memcpy(&m.seed, &clock, sizeof clock);
    CT_DEFAULT_ENV;
    bool ok = eval_template(&m, variables, out);
    ct__arena_free(&m.arena);
    return ok;
}
