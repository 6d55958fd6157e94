// Walks a template's tree.
#include <string.h>

#include "base/os.h"
#include "base/plain.h"
#include "text/jinja_ast.h"

typedef struct ct_jinja_scope {
    struct ct_jinja_scope *parent;
    ct_jv *names, *values;
    size_t n, cap;
    bool captured; // a macro was defined in it, and may outlive it
} scope;

typedef enum { ON, BREAK, CONTINUE } flow;

static flow run(ct_jinja_machine *m, const ct_jinja_node *n, scope *in);
static ct_jv eval(ct_jinja_machine *m, const ct_jinja_node *n, scope *in);

// -------------------------------------------------------------------------------------------- names

static scope *new_scope(ct_jinja_machine *m, scope *parent) {
    scope *made = ct__jinja_room(m, 1, sizeof *made);
    made->parent = parent;
    return made;
}

static ct_jv *look_up(ct_jinja_machine *m, const scope *in, ct_jv name) {
    for (; in; in = in->parent) {
        ct__jinja_step(m, in->n);
        for (size_t i = 0; i < in->n; i++)
            if (in->names[i].s == name.s) return &in->values[i];
    }
    return NULL;
}

static void set_name(ct_jinja_machine *m, scope *in, ct_jv name, ct_jv value) {
    ct_jv *found = look_up(m, &(scope){.names = in->names, .values = in->values, .n = in->n}, name);
    if (found) {
        *found = value;
        return;
    }
    if (in->n == in->cap) {
        size_t cap = in->cap ? 2 * in->cap : 4;
        ct_jv *names = ct__jinja_room(m, cap, 2 * sizeof *names);
        if (in->n) memcpy(names, in->names, in->n * sizeof *names);
        if (in->n) memcpy(names + cap, in->values, in->n * sizeof *names);
        in->names = names;
        in->values = names + cap;
        in->cap = cap;
    }
    in->names[in->n] = name;
    in->values[in->n++] = value;
}

static ct_jv value_of(ct_jinja_machine *m, const scope *in, ct_jv name) {
    const ct_jv *found = look_up(m, in, name);
    if (!found) found = ct__jv_find(m, m->variables, name);
    if (found && found->kind != JV_MISSING) return *found; // an argument that has no value yet
    const ct_jv_function *global = ct__jv_find_in(ct__jv_globals, name);
    if (global) return (ct_jv){.kind = JV_FUNCTION, .function = global};
    return ct__jv_no_member(m, (ct_jv){0}, name);
}

static void assign(ct_jinja_machine *m, const ct_jinja_node *target, scope *in, ct_jv value) {
    if (target->kind == JN_NAME) {
        set_name(m, in, target->name, value);
    } else if (target->kind == JN_MEMBER_TARGET) {
        ct_jv space = value_of(m, in, target->a->name);
        if (space.kind != JV_NAMESPACE)
            ct__jinja_fail(m, "%s is no namespace: nothing else has members that can be set",
                           ct__jinja_shown(m, target->a->name));
        if (*target->name.s->s == '_')
            ct__jinja_fail(m, "a namespace has no members that begin with an underscore");
        ct__jv_set(m, space.dict, target->name, value);
    } else {
        const ct_jv_list *items = ct__jv_items(m, value);
        size_t i = 0;
        for (const ct_jinja_node *part = target->args; part; part = part->next, i++)
            if (i < items->n) assign(m, part, in, items->v[i]);
        if (i != items->n) ct__jinja_fail(m, "%zu values are assigned to %zu names", items->n, i);
    }
}

// --------------------------------------------------------------------------------------- expressions

static ct_jv list_of(ct_jinja_machine *m, const ct_jinja_node *n, scope *in) {
    ct_jv list = ct__jv_new_list(m, n->kind == JN_LIST ? JV_LIST : JV_TUPLE, 0);
    for (const ct_jinja_node *item = n->args; item; item = item->next)
        ct__jv_push(m, list.list, eval(m, item, in));
    return list;
}

static ct_jv dict_of(ct_jinja_machine *m, const ct_jinja_node *n, scope *in) {
    ct_jv dict = ct__jv_new_dict(m);
    for (const ct_jinja_node *key = n->args; key; key = key->next->next) {
        ct_jv k = eval(m, key, in);
        ct__jv_set(m, dict.dict, k, eval(m, key->next, in));
    }
    return dict;
}

static void add_named(ct_jinja_machine *m, ct_jv_args *args, ct_jv name, ct_jv value) {
    if (name.kind != JV_STRING) ct__jinja_fail(m, "an argument's name must be a str");
    for (size_t i = 0; i < args->named_n; i++)
        if (ct__jv_equal(m, args->names[i], name))
            ct__jinja_fail(m, "the argument %s is given twice", ct__jinja_shown(m, name));
    args->names[args->named_n] = name;
    args->named[args->named_n++] = value;
}

static void spread_named(ct_jinja_machine *m, ct_jv_args *args, ct_jv from, size_t written) {
    if (from.kind != JV_DICT) ct__jinja_fail(m, "** needs a dict, not a %s", ct__jv_type(from));
    size_t n = written + from.dict->n;
    ct_jv *names = ct__jinja_room(m, n, 2 * sizeof *names), *named = names + n;
    for (size_t i = 0; i < args->named_n; i++) names[i] = args->names[i], named[i] = args->named[i];
    args->names = names;
    args->named = named;
    for (size_t i = 0; i < from.dict->n; i++)
        add_named(m, args, from.dict->keys[i], from.dict->values[i]);
}

static ct_jv_args args_of(ct_jinja_machine *m, const ct_jinja_node *first, scope *in) {
    ct_jv_list *positional = ct__jv_new_list(m, JV_LIST, 0).list;
    ct_jv_args args = {0};
    size_t n = 1; // and one for the caller
    for (const ct_jinja_node *arg = first; arg; arg = arg->next) n++;
    args.names = ct__jinja_room(m, n, 2 * sizeof *args.names);
    args.named = args.names + n;
    for (const ct_jinja_node *arg = first; arg; arg = arg->next) {
        ct_jv value = eval(m, arg->kind >= JN_KEYWORD ? arg->a : arg, in);
        if (arg->kind == JN_KEYWORD) {
            add_named(m, &args, arg->name, value);
        } else if (arg->kind == JN_SPREAD) {
            const ct_jv_list *items = ct__jv_items(m, value);
            for (size_t i = 0; i < items->n; i++) ct__jv_push(m, positional, items->v[i]);
        } else if (arg->kind == JN_SPREAD_NAMED) {
            spread_named(m, &args, value, n);
        } else {
            ct__jv_push(m, positional, value);
        }
    }
    args.v = positional->v;
    args.n = positional->n;
    return args;
}

static bool compares(ct_jinja_machine *m, int sign, ct_jv a, ct_jv b) {
    static const char *const signs[] = {
        [JC_LT] = "<", [JC_LE] = "<=", [JC_GT] = ">", [JC_GE] = ">="};
    switch (sign) {
    case JC_EQ: return ct__jv_equal(m, a, b);
    case JC_NE: return !ct__jv_equal(m, a, b);
    case JC_IN: return ct__jv_contains(m, b, a);
    case JC_NOT_IN: return !ct__jv_contains(m, b, a);
    default: break;
    }
    int order = ct__jv_compare(m, a, b, signs[sign]);
    if (order == 2) return false; // beside NaN
    return sign == JC_LT   ? order < 0
           : sign == JC_LE ? order <= 0
           : sign == JC_GT ? order > 0
                           : order >= 0;
}

// a < b < c: each is evaluated once, and none behind the first that does not hold.
static ct_jv comparison(ct_jinja_machine *m, const ct_jinja_node *n, scope *in) {
    ct_jv left = eval(m, n->a, in);
    bool holds = true;
    for (const ct_jinja_node *operand = n->args; operand && holds; operand = operand->next) {
        ct_jv right = eval(m, operand->a, in);
        holds = compares(m, operand->op, left, right);
        left = right;
    }
    return ct__jv_bool(holds);
}

static ct_jv concatenation(ct_jinja_machine *m, const ct_jinja_node *n, scope *in) {
    ct_jv all = ct__jv_text(m, eval(m, n->args, in));
    for (const ct_jinja_node *part = n->args->next; part; part = part->next)
        all = ct__jv_concat(m, all, ct__jv_text(m, eval(m, part, in)));
    return all;
}

static ct_jv item(ct_jinja_machine *m, const ct_jinja_node *n, scope *in) {
    ct_jv of = eval(m, n->a, in);
    if (n->b->kind != JN_SLICE) return ct__jv_item(m, of, eval(m, n->b, in));
    const ct_jinja_node *from = n->b->args, *to = from->next, *step = to->next;
    ct_jv first = eval(m, from, in), last = eval(m, to, in);
    return ct__jv_slice(m, of, first, last, eval(m, step, in));
}

static ct_jv call(ct_jinja_machine *m, const ct_jinja_node *n, scope *in, ct_jv caller) {
    ct_jv what = eval(m, n->a, in);
    ct_jv_args args = args_of(m, n->args, in);
    if (caller.kind == JV_MACRO) add_named(m, &args, m->jinja->caller, caller);
    m->line = n->line;
    ct_jv result = ct__jv_call(m, what, &args);
    m->line = n->line;
    return result;
}

static ct_jv apply(ct_jinja_machine *m, const ct_jinja_node *n, scope *in) {
    ct_jv self = eval(m, n->a, in);
    ct_jv_args args = args_of(m, n->args, in);
    m->line = n->line;
    if (n->kind == JN_TEST) return ct__jv_bool(ct__jv_call_test(m, n->name, self, &args));
    return ct__jv_call_filter(m, n->name, self, &args);
}

static ct_jv condition(ct_jinja_machine *m, const ct_jinja_node *n, scope *in) {
    if (ct__jv_truth(m, eval(m, n->a, in))) return eval(m, n->b, in);
    if (n->c) return eval(m, n->c, in);
    return ct__jv_undefined(m, "an if without an else gave no value");
}

static ct_jv eval_inner(ct_jinja_machine *m, const ct_jinja_node *n, scope *in) {
    ct_jv a;
    switch (n->kind) {
    case JN_CONST: return n->value;
    case JN_NAME: return value_of(m, in, n->name);
    case JN_HOLE: return m->hole;
    case JN_TUPLE:
    case JN_LIST: return list_of(m, n, in);
    case JN_DICT: return dict_of(m, n, in);
    case JN_ATTRIBUTE: return ct__jv_attribute(m, eval(m, n->a, in), n->name);
    case JN_ITEM: return item(m, n, in);
    case JN_CALL: return call(m, n, in, ct__jv_none());
    case JN_FILTER:
    case JN_TEST: return apply(m, n, in);
    case JN_NOT: return ct__jv_bool(!ct__jv_truth(m, eval(m, n->a, in)));
    case JN_NEGATE: return ct__jv_negate(m, eval(m, n->a, in));
    case JN_PLUS: return ct__jv_negate(m, ct__jv_negate(m, eval(m, n->a, in)));
    case JN_AND:
    case JN_OR:
        a = eval(m, n->a, in);
        return ct__jv_truth(m, a) == (n->kind == JN_OR) ? a : eval(m, n->b, in);
    case JN_BINARY: a = eval(m, n->a, in); return ct__jv_binary(m, n->op, a, eval(m, n->b, in));
    case JN_COMPARE: return comparison(m, n, in);
    case JN_CONCAT: return concatenation(m, n, in);
    case JN_CONDITION: return condition(m, n, in);
    default: ct__jinja_fail(m, "a slice stands where a value is wanted");
    }
}

static ct_jv eval(ct_jinja_machine *m, const ct_jinja_node *n, scope *in) {
    ct__jinja_enter(m);
    m->line = n->line;
    ct_jv value = eval_inner(m, n, in);
    ct__jinja_leave(m);
    return value;
}

// -------------------------------------------------------------------------------------- statements

// What the body writes, as a string.
static ct_jv captured(ct_jinja_machine *m, const ct_jinja_node *body, scope *in) {
    ct_jinja_writer own = {.m = m}, *outer = m->out;
    m->out = &own;
    run(m, body, in);
    m->out = outer;
    return ct__jinja_written(&own);
}

static ct_jv filtered(ct_jinja_machine *m, const ct_jinja_node *filters, scope *in, ct_jv value) {
    if (!filters) return value;
    ct_jv outer = m->hole;
    m->hole = value;
    value = eval(m, filters, in);
    m->hole = outer;
    return value;
}

static const ct_jv_list *chosen(ct_jinja_machine *m, const ct_jinja_node *n, scope *in) {
    const ct_jv_list *items = ct__jv_items(m, eval(m, n->b, in));
    if (!n->c) return items;
    ct_jv_list *some = ct__jv_new_list(m, JV_LIST, 0).list;
    for (size_t i = 0; i < items->n; i++) {
        scope *own = new_scope(m, in);
        assign(m, n->a, own, items->v[i]);
        if (ct__jv_truth(m, eval(m, n->c, own))) ct__jv_push(m, some, items->v[i]);
    }
    return some;
}

static flow for_loop(ct_jinja_machine *m, const ct_jinja_node *n, scope *in) {
    const ct_jv_list *items = chosen(m, n, in);
    if (!items->n) return run(m, n->rest, new_scope(m, in));
    ct_jv_loop *loop = ct__jinja_room(m, 1, sizeof *loop);
    loop->items = (ct_jv_list *)(uintptr_t)items;
    scope *own = new_scope(m, in);
    for (size_t i = 0; i < items->n; i++) {
        ct__jinja_step(m, 0);
        if (own->captured) own = new_scope(m, in);
        own->n = 0; // what an iteration sets ends with it
        loop->at = i;
        assign(m, n->a, own, items->v[i]);
        set_name(m, own, m->jinja->loop, (ct_jv){.kind = JV_LOOP, .loop = loop});
        if (run(m, n->body, own) == BREAK) break;
    }
    return ON;
}

static ct_jv macro_of(ct_jinja_machine *m, const ct_jinja_node *n, scope *in) {
    for (scope *outer = in; outer; outer = outer->parent) outer->captured = true;
    ct_jv_macro *macro = ct__jinja_room(m, 1, sizeof *macro);
    *macro = (ct_jv_macro){n, in};
    return (ct_jv){.kind = JV_MACRO, .macro = macro};
}

static flow if_else(ct_jinja_machine *m, const ct_jinja_node *n, scope *in) {
    while (!ct__jv_truth(m, eval(m, n->a, in))) {
        if (!n->rest) return ON;
        bool another = n->rest->kind == JN_IF && !n->rest->next;
        if (!another) return run(m, n->rest, in);
        n = n->rest; // elif, or an if that is all that else holds
    }
    return run(m, n->body, in);
}

static void with_values(ct_jinja_machine *m, const ct_jinja_node *n, scope *in) {
    scope *own = new_scope(m, in);
    for (const ct_jinja_node *one = n->params; one; one = one->next)
        assign(m, one->a, own, eval(m, one->b, in));
    in = own;
    run(m, n->body, in);
}

static flow statement(ct_jinja_machine *m, const ct_jinja_node *n, scope *in) {
    switch (n->kind) {
    case JN_DATA: ct__jinja_write(m->out, n->value.s->s, n->value.s->n); break;
    case JN_PRINT: ct__jv_write(m->out, eval(m, n->a, in)); break;
    case JN_IF: return if_else(m, n, in);
    case JN_FOR: return for_loop(m, n, in);
    case JN_SET: assign(m, n->a, in, eval(m, n->b, in)); break;
    case JN_SET_BLOCK:
        assign(m, n->a, in, filtered(m, n->b, in, captured(m, n->body, new_scope(m, in))));
        break;
    case JN_MACRO: set_name(m, in, n->name, macro_of(m, n, in)); break;
    case JN_CALL_BLOCK: ct__jv_write(m->out, call(m, n->a, in, macro_of(m, n, in))); break;
    case JN_FILTER_BLOCK:
        ct__jv_write(m->out, filtered(m, n->b, in, captured(m, n->body, new_scope(m, in))));
        break;
    case JN_WITH: with_values(m, n, in); break;
    case JN_GENERATION: return run(m, n->body, new_scope(m, in));
    case JN_BREAK: return BREAK;
    case JN_CONTINUE: return CONTINUE;
    default: ct__jinja_fail(m, "an expression stands where a statement is wanted");
    }
    return ON;
}

static flow run(ct_jinja_machine *m, const ct_jinja_node *n, scope *in) {
    flow now = ON;
    ct__jinja_enter(m);
    for (; n && now == ON; n = n->next) {
        ct__jinja_step(m, 0);
        m->line = n->line;
        now = statement(m, n, in);
    }
    ct__jinja_leave(m);
    return now;
}

// ------------------------------------------------------------------------------------------ macros

ct_jv ct__jv_macro_name(const ct_jv_macro *macro) { return macro->node->name; }

// The value of a parameter by its name, which is used up; MISSING: there is none.
static ct_jv take_named(ct_jinja_machine *m, const ct_jv_args *args, bool *used, ct_jv name) {
    for (size_t i = 0; i < args->named_n; i++)
        if (!used[i] && ct__jv_equal(m, args->names[i], name)) {
            used[i] = true;
            return args->named[i];
        }
    return (ct_jv){0};
}

static void bind_rest(ct_jinja_machine *m, const ct_jinja_node *n, scope *own,
                      const ct_jv_args *args, bool *used, size_t bound) {
    const ct_jinja *jinja = m->jinja;
    if (n->caller && !look_up(m, &(scope){.names = own->names, .values = own->values, .n = own->n},
                              jinja->caller)) {
        ct_jv caller = take_named(m, args, used, jinja->caller);
        if (caller.kind == JV_MISSING) caller = ct__jv_undefined(m, "the macro has no caller");
        set_name(m, own, jinja->caller, caller);
    }
    ct_jv rest = ct__jv_new_dict(m);
    for (size_t i = 0; i < args->named_n; i++) {
        if (used[i]) continue;
        if (!n->kwargs)
            ct__jinja_fail(m, "the macro %s has no argument %s", ct__jinja_shown(m, n->name),
                           ct__jinja_shown(m, args->names[i]));
        ct__jv_set(m, rest.dict, args->names[i], args->named[i]);
    }
    if (n->kwargs) set_name(m, own, jinja->kwargs, rest);
    if (args->n > bound && !n->varargs)
        ct__jinja_fail(m, "the macro %s takes at most %zu arguments, not %zu",
                       ct__jinja_shown(m, n->name), bound, args->n);
    if (!n->varargs) return;
    ct_jv more = ct__jv_new_list(m, JV_TUPLE, 0);
    for (size_t i = bound; i < args->n; i++) ct__jv_push(m, more.list, args->v[i]);
    set_name(m, own, jinja->varargs, more);
}

ct_jv ct__jv_call_macro(ct_jinja_machine *m, ct_jv_macro *macro, const ct_jv_args *args) {
    const ct_jinja_node *n = macro->node;
    scope *own = new_scope(m, macro->scope);
    bool *used = ct__jinja_room(m, args->named_n, sizeof *used);
    size_t bound = 0;
    for (const ct_jinja_node *param = n->params; param; param = param->next, bound++) {
        ct_jv value = bound < args->n ? args->v[bound] : take_named(m, args, used, param->name);
        if (value.kind == JV_MISSING && !param->a)
            value = ct__jv_undefined(m, "an argument of a macro was not given");
        set_name(m, own, param->name, value);
    }
    bind_rest(m, n, own, args, used, bound);
    for (const ct_jinja_node *param = n->params; param; param = param->next) {
        ct_jv *value = look_up(m, own, param->name);
        if (value->kind == JV_MISSING) {
            ct_jv given = eval(m, param->a, own); // which may use those before it
            *look_up(m, own, param->name) = given;
        }
    }
    return captured(m, n->body, own);
}

// ------------------------------------------------------------------------------------------ whole

static bool render(ct_jinja_machine *m, const struct json_t *variables, ct_text *out) {
    if (setjmp(m->failed)) return false;
    ct_jinja_writer w = {.m = m, .most = m->limits.output};
    m->out = &w;
    m->variables = ct__jv_from_json(m, variables).dict;
    run(m, m->jinja->body, new_scope(m, NULL));
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
    bool ok = render(&m, variables, out);
    ct__arena_free(&m.arena);
    return ok;
}
