// Tokens as a tree.
#include <string.h>

#include "base/plain.h"
#include "io/utf8.h"
#include "text/jinja_ast.h"

typedef struct parser {
    ct_jinja_machine *m;
    const ct_jinja_token *t; // the next
    ct_jv_dict *names;       // each that occurs, once
    ct_jinja_node *macro;    // whose body is read; NULL: none
    int loops;               // around what is read, in this macro
} parser;

static ct_jinja_node *expression(parser *p, bool condition);

// ------------------------------------------------------------------------------------------ tokens

static const char *seen(parser *p) {
    switch (p->t->kind) {
    case JT_PRINT_END: return "}}";
    case JT_BLOCK_END: return "%}";
    case JT_END: return "the template's end";
    case JT_SIGN:;
        char *text = ct__jinja_room(p->m, 3, 1);
        size_t n = 0;
        if (p->t->sign > 255) text[n++] = (char)(p->t->sign >> 8);
        text[n] = (char)(p->t->sign & 255);
        return text;
    case JT_DATA:
    case JT_PRINT_BEGIN:
    case JT_BLOCK_BEGIN: return "text";
    default: return ct__jinja_shown(p->m, p->t->value);
    }
}

static _Noreturn void expected(parser *p, const char *what) {
    p->m->line = p->t->line;
    ct__jinja_fail(p->m, "%s is expected, not %s", what, seen(p));
}

static bool is_word(const ct_jinja_token *t, const char *word) {
    return t->kind == JT_NAME && ct__jv_is(t->value, word);
}

static bool is_sign(const ct_jinja_token *t, uint16_t sign) {
    return t->kind == JT_SIGN && t->sign == sign;
}

static bool take_word(parser *p, const char *word) {
    if (!is_word(p->t, word)) return false;
    p->t++;
    return true;
}

static bool take_sign(parser *p, uint16_t sign) {
    if (!is_sign(p->t, sign)) return false;
    p->t++;
    return true;
}

static void want_sign(parser *p, char sign) {
    if (!take_sign(p, (uint16_t)sign)) expected(p, (char[]){sign, 0});
}

static void want_word(parser *p, const char *word) {
    if (!take_word(p, word)) expected(p, word);
}

static void want(parser *p, ct_jinja_token_kind kind, const char *what) {
    if (p->t->kind != kind) expected(p, what);
    p->t++;
}

static ct_jv intern(parser *p, ct_jv name) {
    ct_jv *found = ct__jv_find(p->m, p->names, name);
    if (found) return *found;
    ct__jv_chars(p->m, name.s);
    ct__jv_set(p->m, p->names, name, name);
    return name;
}

// Renderings at once share the string: none may grow it, and its characters are counted.
static void settle(parser *p, ct_jv text) {
    text.s->room = NULL;
    ct__jv_chars(p->m, text.s);
}

static ct_jv want_name(parser *p) {
    if (p->t->kind != JT_NAME) expected(p, "a name");
    return intern(p, (p->t++)->value);
}

static ct_jinja_node *node(parser *p, ct_jinja_kind kind) {
    ct_jinja_node *made = ct__jinja_room(p->m, 1, sizeof *made);
    made->kind = kind;
    made->line = p->t->line;
    return made;
}

static ct_jinja_node *around(parser *p, ct_jinja_kind kind, ct_jinja_node *a, ct_jinja_node *b) {
    ct_jinja_node *made = node(p, kind);
    made->a = a;
    made->b = b;
    made->line = a->line;
    return made;
}

// Appends to a list by `next`.
static void append(ct_jinja_node ***end, ct_jinja_node *item) {
    **end = item;
    *end = &item->next;
}

// ------------------------------------------------------------------------------------- primary ones

// a, b, c: a tuple where there is a comma. `simple`: of names and literals alone.
static ct_jinja_node *primary(parser *p, bool target);
static ct_jinja_node *tuple(parser *p, bool simple, bool condition, bool target, bool in_brackets) {
    ct_jinja_node *made = node(p, JN_TUPLE), **end = &made->args;
    bool comma = false;
    for (;;) {
        bool over = p->t->kind == JT_PRINT_END || p->t->kind == JT_BLOCK_END ||
                    is_sign(p->t, ')') || (simple && is_word(p->t, "in")) ||
                    (!condition && is_word(p->t, "recursive"));
        if (over) break;
        append(&end, simple ? primary(p, target) : expression(p, condition));
        if (!take_sign(p, ',')) break;
        comma = true;
    }
    if (comma) return made;
    if (made->args) return made->args;
    if (!in_brackets) expected(p, "an expression");
    return made;
}

static ct_jinja_node *list(parser *p) {
    ct_jinja_node *made = node(p, JN_LIST), **end = &made->args;
    want_sign(p, '[');
    while (!is_sign(p->t, ']')) {
        if (made->args) want_sign(p, ',');
        if (is_sign(p->t, ']')) break;
        append(&end, expression(p, true));
    }
    want_sign(p, ']');
    return made;
}

static ct_jinja_node *dict(parser *p) {
    ct_jinja_node *made = node(p, JN_DICT), **end = &made->args;
    want_sign(p, '{');
    while (!is_sign(p->t, '}')) {
        if (made->args) want_sign(p, ',');
        if (is_sign(p->t, '}')) break;
        append(&end, expression(p, true));
        want_sign(p, ':');
        append(&end, expression(p, true));
    }
    want_sign(p, '}');
    return made;
}

static void note_special(parser *p, ct_jv name) {
    if (!p->macro) return;
    p->macro->varargs |= ct__jv_is(name, "varargs");
    p->macro->kwargs |= ct__jv_is(name, "kwargs");
    p->macro->caller |= ct__jv_is(name, "caller");
}

static ct_jinja_node *name_or_word(parser *p, bool target) {
    ct_jinja_node *made = node(p, JN_CONST);
    ct_jv word = want_name(p);
    bool yes = ct__jv_is(word, "true") || ct__jv_is(word, "True");
    if (yes || ct__jv_is(word, "false") || ct__jv_is(word, "False")) {
        made->value = ct__jv_bool(yes);
    } else if (ct__jv_is(word, "none") || ct__jv_is(word, "None")) {
        made->value = ct__jv_none();
    } else {
        made->kind = JN_NAME;
        made->name = word;
        note_special(p, word);
        if (target && take_sign(p, '.')) {
            made = around(p, JN_MEMBER_TARGET, made, NULL);
            made->name = want_name(p);
        }
    }
    return made;
}

static ct_jinja_node *primary(parser *p, bool target) {
    ct_jinja_node *made;
    if (p->t->kind == JT_NAME) return name_or_word(p, target);
    if (p->t->kind == JT_NUMBER) {
        made = node(p, JN_CONST);
        made->value = (p->t++)->value;
        return made;
    }
    if (p->t->kind == JT_STRING) {
        made = node(p, JN_CONST);
        made->value = (p->t++)->value;
        while (p->t->kind == JT_STRING)
            made->value = ct__jv_concat(p->m, made->value, (p->t++)->value);
        settle(p, made->value);
        return made;
    }
    if (is_sign(p->t, '[')) return list(p);
    if (is_sign(p->t, '{')) return dict(p);
    if (!take_sign(p, '(')) expected(p, "an expression");
    ct__jinja_enter(p->m);
    made = tuple(p, false, true, false, true);
    ct__jinja_leave(p->m);
    want_sign(p, ')');
    return made;
}

// ------------------------------------------------------------------- what may follow an expression

static ct_jinja_node *arguments(parser *p) {
    ct_jinja_node *first = NULL, **end = &first;
    bool named = false, spread = false, spread_named = false;
    want_sign(p, '(');
    while (!is_sign(p->t, ')')) {
        if (first) want_sign(p, ',');
        if (is_sign(p->t, ')')) break;
        ct_jinja_node *made = NULL;
        if (take_sign(p, '*')) {
            if (spread || spread_named) expected(p, "one * alone");
            spread = true;
            made = around(p, JN_SPREAD, expression(p, true), NULL);
        } else if (take_sign(p, '*' * 256 + '*')) {
            if (spread_named) expected(p, "one ** alone");
            spread_named = true;
            made = around(p, JN_SPREAD_NAMED, expression(p, true), NULL);
        } else if (p->t->kind == JT_NAME && is_sign(p->t + 1, '=')) {
            if (spread_named) expected(p, "no argument behind **");
            named = true;
            made = node(p, JN_KEYWORD);
            made->name = want_name(p);
            p->t++;
            made->a = expression(p, true);
        } else {
            if (named || spread || spread_named)
                expected(p, "an argument with a name behind one that has one");
            made = expression(p, true);
        }
        append(&end, made);
    }
    want_sign(p, ')');
    return first;
}

static ct_jinja_node *nothing(parser *p) {
    ct_jinja_node *none = node(p, JN_CONST);
    none->value = ct__jv_none();
    return none;
}

static ct_jinja_node *part_of_slice(parser *p) {
    bool left_out = is_sign(p->t, ':') || is_sign(p->t, ']') || is_sign(p->t, ',');
    return left_out ? nothing(p) : expression(p, true);
}

static ct_jinja_node *key(parser *p) {
    ct_jinja_node *first = part_of_slice(p);
    if (!take_sign(p, ':')) return first;
    ct_jinja_node *slice = node(p, JN_SLICE), **end = &slice->args;
    append(&end, first);
    append(&end, part_of_slice(p));
    append(&end, take_sign(p, ':') ? part_of_slice(p) : nothing(p));
    return slice;
}

static ct_jinja_node *subscript(parser *p, ct_jinja_node *of) {
    ct_jinja_node *made = around(p, JN_ITEM, of, NULL);
    if (take_sign(p, '.')) {
        if (p->t->kind == JT_NAME) {
            made->kind = JN_ATTRIBUTE;
            made->name = want_name(p);
            return made;
        }
        if (p->t->kind != JT_NUMBER || p->t->value.kind != JV_INT)
            expected(p, "a name or a number");
        made->b = node(p, JN_CONST);
        made->b->value = (p->t++)->value;
        return made;
    }
    want_sign(p, '[');
    if (is_sign(p->t, ']')) expected(p, "a key");
    made->b = key(p);
    if (is_sign(p->t, ',')) { // a key of several is a tuple
        ct_jinja_node *several = node(p, JN_TUPLE), **end = &several->args;
        append(&end, made->b);
        while (take_sign(p, ',') && !is_sign(p->t, ']')) append(&end, key(p));
        made->b = several;
    }
    want_sign(p, ']');
    return made;
}

static ct_jinja_node *call(parser *p, ct_jinja_node *of) {
    ct_jinja_node *made = around(p, JN_CALL, of, NULL);
    made->line = p->t->line;
    made->args = arguments(p);
    return made;
}

// Trees as deep as the chains that they come from are refused here, so that they can be walked.
static ct_jinja_node *postfix(parser *p, ct_jinja_node *made) {
    int deep = p->m->depth;
    for (;; ct__jinja_enter(p->m)) {
        if (is_sign(p->t, '.') || is_sign(p->t, '['))
            made = subscript(p, made);
        else if (is_sign(p->t, '('))
            made = call(p, made);
        else
            break;
    }
    p->m->depth = deep;
    return made;
}

// The name of a filter or a test may have points.
static ct_jv dotted(parser *p) {
    ct_jv name = want_name(p);
    while (take_sign(p, '.')) {
        name = ct__jv_concat(p->m, name, ct__jv_word(p->m, "."));
        name = ct__jv_concat(p->m, name, want_name(p));
    }
    settle(p, name);
    return name;
}

static ct_jinja_node *filter(parser *p, ct_jinja_node *of) {
    ct_jinja_node *made = around(p, JN_FILTER, of, NULL);
    made->line = p->t->line;
    made->name = dotted(p);
    if (is_sign(p->t, '(')) made->args = arguments(p);
    return made;
}

static ct_jinja_node *test(parser *p, ct_jinja_node *of) {
    ct_jinja_node *made = around(p, JN_TEST, of, NULL);
    bool negated = take_word(p, "not");
    made->line = p->t->line;
    made->name = dotted(p);
    bool simple = p->t->kind == JT_NAME || p->t->kind == JT_STRING || p->t->kind == JT_NUMBER ||
                  is_sign(p->t, '[') || is_sign(p->t, '{');
    bool word = is_word(p->t, "else") || is_word(p->t, "or") || is_word(p->t, "and");
    if (is_sign(p->t, '(')) {
        made->args = arguments(p);
    } else if (simple && !word) {
        if (is_word(p->t, "is")) expected(p, "one test alone");
        made->args = postfix(p, primary(p, false));
    }
    return negated ? around(p, JN_NOT, made, NULL) : made;
}

static ct_jinja_node *filters_and_tests(parser *p, ct_jinja_node *made) {
    int deep = p->m->depth;
    for (;; ct__jinja_enter(p->m)) {
        if (take_sign(p, '|'))
            made = filter(p, made);
        else if (take_word(p, "is"))
            made = test(p, made);
        else if (is_sign(p->t, '('))
            made = call(p, made);
        else
            break;
    }
    p->m->depth = deep;
    return made;
}

// --------------------------------------------------------------------------------------- operators

static ct_jinja_node *unary(parser *p, bool filters) {
    ct_jinja_node *made;
    ct__jinja_enter(p->m);
    bool minus = is_sign(p->t, '-'), plus = is_sign(p->t, '+');
    if (minus || plus) {
        p->t++;
        made = around(p, minus ? JN_NEGATE : JN_PLUS, unary(p, false), NULL);
    } else {
        made = primary(p, false);
    }
    made = postfix(p, made);
    if (filters) made = filters_and_tests(p, made);
    ct__jinja_leave(p->m);
    return made;
}

// Left to right, of the signs that bind as tightly as `level`: 0 loosest.
static ct_jinja_node *arithmetic(parser *p, int level) {
    static const struct {
        uint16_t sign;
        char op;
        int level;
    } signs[] = {{'+', '+', 0},
                 {'-', '-', 0},
                 {'*', '*', 2},
                 {'/', '/', 2},
                 {'%', '%', 2},
                 {'/' * 256 + '/', 'f', 2},
                 {'*' * 256 + '*', 'p', 3}};
    enum { CONCAT = 1, LEVELS = 4 };
    if (level == LEVELS) return unary(p, true);
    ct_jinja_node *made = arithmetic(p, level + 1);
    if (level == CONCAT) {
        if (!is_sign(p->t, '~')) return made;
        ct_jinja_node *all = node(p, JN_CONCAT), **end = &all->args;
        append(&end, made);
        while (take_sign(p, '~')) append(&end, arithmetic(p, level + 1));
        return all;
    }
    int deep = p->m->depth;
    for (;; ct__jinja_enter(p->m)) {
        size_t i = 0, n = sizeof signs / sizeof *signs;
        while (i < n && !(signs[i].level == level && is_sign(p->t, signs[i].sign))) i++;
        if (i == n) break;
        p->t++;
        made = around(p, JN_BINARY, made, NULL);
        made->op = signs[i].op;
        made->b = arithmetic(p, level + 1);
    }
    p->m->depth = deep;
    return made;
}

static int comparison_sign(parser *p) {
    static const uint16_t signs[] = {[JC_EQ] = '=' * 256 + '=',
                                     [JC_NE] = '!' * 256 + '=',
                                     [JC_LT] = '<',
                                     [JC_LE] = '<' * 256 + '=',
                                     [JC_GT] = '>',
                                     [JC_GE] = '>' * 256 + '='};
    for (int i = JC_EQ; i <= JC_GE; i++)
        if (take_sign(p, signs[i])) return i;
    if (take_word(p, "in")) return JC_IN;
    if (is_word(p->t, "not") && is_word(p->t + 1, "in")) {
        p->t += 2;
        return JC_NOT_IN;
    }
    return -1;
}

static ct_jinja_node *comparison(parser *p) {
    ct_jinja_node *first = arithmetic(p, 0), *made = NULL, **end = NULL;
    for (int sign; (sign = comparison_sign(p)) >= 0;) {
        if (!made) {
            made = around(p, JN_COMPARE, first, NULL);
            end = &made->args;
        }
        ct_jinja_node *operand = around(p, JN_OPERAND, arithmetic(p, 0), NULL);
        operand->op = (char)sign;
        append(&end, operand);
    }
    return made ? made : first;
}

static ct_jinja_node *negation(parser *p) {
    if (!take_word(p, "not")) return comparison(p);
    ct__jinja_enter(p->m);
    ct_jinja_node *made = around(p, JN_NOT, negation(p), NULL);
    ct__jinja_leave(p->m);
    return made;
}

static ct_jinja_node *logic(parser *p, bool any) {
    ct_jinja_node *made = any ? logic(p, false) : negation(p);
    int deep = p->m->depth;
    for (; take_word(p, any ? "or" : "and"); ct__jinja_enter(p->m))
        made = around(p, any ? JN_OR : JN_AND, made, any ? logic(p, false) : negation(p));
    p->m->depth = deep;
    return made;
}

static ct_jinja_node *expression(parser *p, bool condition) {
    ct__jinja_enter(p->m);
    int deep = p->m->depth;
    ct_jinja_node *made = logic(p, true);
    for (; condition && take_word(p, "if"); ct__jinja_enter(p->m)) {
        ct_jinja_node *then = made;
        made = around(p, JN_CONDITION, logic(p, true), then);
        if (take_word(p, "else")) made->c = expression(p, true);
    }
    p->m->depth = deep;
    ct__jinja_leave(p->m);
    return made;
}

// -------------------------------------------------------------------------------------- statements

static ct_jinja_node *statement(parser *p);

static bool is_end(const ct_jinja_token *t, const char *const *ends) {
    for (; *ends; ends++)
        if (is_word(t, *ends)) return true;
    return false;
}

// Up to one of the words that end it, which is the next token then; NULL: to the template's end.
static ct_jinja_node *body(parser *p, const char *const *ends) {
    ct_jinja_node *first = NULL, **end = &first, *made;
    ct__jinja_enter(p->m);
    for (;;) {
        p->m->line = p->t->line;
        switch (p->t->kind) {
        case JT_DATA:
            made = node(p, JN_DATA);
            made->value = (p->t++)->value;
            settle(p, made->value);
            break;
        case JT_PRINT_BEGIN:
            p->t++;
            made = node(p, JN_PRINT);
            made->a = tuple(p, false, true, false, false);
            want(p, JT_PRINT_END, "}}");
            break;
        case JT_BLOCK_BEGIN:
            p->t++;
            if (ends && is_end(p->t, ends)) {
                ct__jinja_leave(p->m);
                return first;
            }
            made = statement(p);
            want(p, JT_BLOCK_END, "%}");
            break;
        default:
            if (ends) ct__jinja_fail(p->m, "the template ends, and {%% %s %%} is missing", *ends);
            ct__jinja_leave(p->m);
            return first;
        }
        if (made) append(&end, made);
    }
}

// A block's body between %} and {% WORD, which is taken.
static ct_jinja_node *block(parser *p, const char *word) {
    take_sign(p, ':');
    want(p, JT_BLOCK_END, "%}");
    ct_jinja_node *made = body(p, (const char *const[]){word, NULL});
    p->t++;
    return made;
}

static void check_target(parser *p, const ct_jinja_node *target) {
    if (target->kind == JN_TUPLE || target->kind == JN_LIST) {
        for (const ct_jinja_node *part = target->args; part; part = part->next)
            check_target(p, part);
    } else if (target->kind != JN_NAME && target->kind != JN_MEMBER_TARGET) {
        expected(p, "a name to assign to");
    }
}

static ct_jinja_node *target(parser *p, bool members) {
    ct_jinja_node *made = tuple(p, true, true, members, false);
    check_target(p, made);
    return made;
}

static ct_jinja_node *if_statement(parser *p) {
    static const char *const ends[] = {"endif", "elif", "else", NULL};
    ct_jinja_node *first = node(p, JN_IF), *made = first;
    for (;;) {
        made->a = tuple(p, false, false, false, false);
        take_sign(p, ':');
        want(p, JT_BLOCK_END, "%}");
        made->body = body(p, ends);
        if (take_word(p, "elif")) {
            made->rest = node(p, JN_IF);
            made = made->rest;
        } else if (take_word(p, "else")) {
            made->rest = block(p, "endif");
            return first;
        } else {
            p->t++;
            return first;
        }
    }
}

static ct_jinja_node *for_statement(parser *p) {
    static const char *const ends[] = {"endfor", "else", NULL};
    ct_jinja_node *made = node(p, JN_FOR);
    made->a = target(p, false);
    want_word(p, "in");
    made->b = tuple(p, false, false, false, false);
    if (take_word(p, "if")) made->c = expression(p, true);
    if (is_word(p->t, "recursive")) expected(p, "a loop that is not recursive");
    take_sign(p, ':');
    want(p, JT_BLOCK_END, "%}");
    p->loops++;
    made->body = body(p, ends);
    p->loops--;
    if (take_word(p, "else"))
        made->rest = block(p, "endfor");
    else
        p->t++;
    return made;
}

static ct_jinja_node *hole(parser *p, bool inline_filter) {
    ct_jinja_node *made = node(p, JN_HOLE);
    if (inline_filter) made = filter(p, made);
    while (take_sign(p, '|')) made = filter(p, made);
    return made->kind == JN_HOLE ? NULL : made;
}

static ct_jinja_node *set_statement(parser *p) {
    ct_jinja_node *made = node(p, JN_SET);
    made->a = target(p, true);
    if (take_sign(p, '=')) {
        made->b = tuple(p, false, true, false, false);
        return made;
    }
    made->kind = JN_SET_BLOCK;
    made->b = hole(p, false);
    made->body = block(p, "endset");
    return made;
}

static ct_jinja_node *signature(parser *p) {
    ct_jinja_node *first = NULL, **end = &first;
    bool defaults = false;
    want_sign(p, '(');
    while (!is_sign(p->t, ')')) {
        if (first) want_sign(p, ',');
        ct_jinja_node *made = node(p, JN_PARAM);
        made->name = want_name(p);
        if (take_sign(p, '='))
            made->a = expression(p, true), defaults = true;
        else if (defaults)
            expected(p, "a default behind an argument that has one");
        append(&end, made);
    }
    want_sign(p, ')');
    return first;
}

static ct_jinja_node *macro_body(parser *p, ct_jinja_node *made, const char *end) {
    ct_jinja_node *outer = p->macro;
    int loops = p->loops;
    p->macro = made;
    p->loops = 0;
    made->body = block(p, end);
    p->macro = outer;
    p->loops = loops;
    if (outer) { // whose body this is a part of
        outer->varargs |= made->varargs;
        outer->kwargs |= made->kwargs;
        outer->caller |= made->caller;
    }
    return made;
}

static ct_jinja_node *macro_statement(parser *p) {
    ct_jinja_node *made = node(p, JN_MACRO), *outer = p->macro;
    made->name = want_name(p);
    p->macro = made;
    made->params = signature(p);
    p->macro = outer;
    return macro_body(p, made, "endmacro");
}

static ct_jinja_node *call_statement(parser *p) {
    ct_jinja_node *made = node(p, JN_CALL_BLOCK);
    made->name = intern(p, ct__jv_word(p->m, "caller"));
    if (is_sign(p->t, '(')) made->params = signature(p);
    made->a = expression(p, true);
    if (made->a->kind != JN_CALL) expected(p, "a call");
    return macro_body(p, made, "endcall");
}

static ct_jinja_node *with_statement(parser *p) {
    ct_jinja_node *made = node(p, JN_WITH), **end = &made->params;
    while (p->t->kind != JT_BLOCK_END) {
        if (made->params) want_sign(p, ',');
        ct_jinja_node *one = node(p, JN_SET);
        one->a = primary(p, false);
        check_target(p, one->a);
        want_sign(p, '=');
        one->b = expression(p, true);
        append(&end, one);
    }
    made->body = block(p, "endwith");
    return made;
}

static ct_jinja_node *loop_control(parser *p, ct_jinja_kind kind) {
    if (!p->loops) ct__jinja_fail(p->m, "break and continue stand in a loop only");
    return node(p, kind);
}

static ct_jinja_node *statement(parser *p) {
    static const char *const elsewhere[] = {"include", "import", "from", "extends", "block", NULL};
    static const char *const known[] = {"if",   "for",   "set",      "macro",      "call", "filter",
                                        "with", "break", "continue", "generation", "raw",  NULL};
    if (p->t->kind != JT_NAME) expected(p, "a statement");
    const char *word = ct__jinja_shown(p->m, p->t->value);
    if (take_word(p, "if")) return if_statement(p);
    if (take_word(p, "for")) return for_statement(p);
    if (take_word(p, "set")) return set_statement(p);
    if (take_word(p, "macro")) return macro_statement(p);
    if (take_word(p, "call")) return call_statement(p);
    if (take_word(p, "with")) return with_statement(p);
    if (take_word(p, "break")) return loop_control(p, JN_BREAK);
    if (take_word(p, "continue")) return loop_control(p, JN_CONTINUE);
    if (take_word(p, "filter")) {
        ct_jinja_node *made = node(p, JN_FILTER_BLOCK);
        made->b = hole(p, true);
        made->body = block(p, "endfilter");
        return made;
    }
    if (take_word(p, "generation")) return macro_body(p, node(p, JN_GENERATION), "endgeneration");
    if (is_end(p->t, elsewhere))
        ct__jinja_fail(p->m, "%s needs other templates, and a chat template stands alone", word);
    size_t n = 0;
    char *bare = ct__jinja_room(p->m, p->t->value.s->n + 1, 1);
    memcpy(bare, p->t->value.s->s, n = p->t->value.s->n);
    const char *near = n < 20 ? ct__nearest(bare, known) : NULL;
    if (near) ct__jinja_fail(p->m, "there is no statement %s; is %s meant?", word, near);
    ct__jinja_fail(p->m, "there is no statement %s", word);
}

// -------------------------------------------------------------------------------------------- whole

static ct_jinja *parse(ct_jinja_machine *m, const char *text, size_t n) {
    if (setjmp(m->failed)) return NULL;
    ct_jinja *jinja = ct__jinja_room(m, 1, sizeof *jinja);
    parser p = {.m = m, .t = ct__jinja_lex(m, text, n), .names = ct__jv_new_dict(m).dict};
    jinja->loop = intern(&p, ct__jv_word(m, "loop"));
    jinja->caller = intern(&p, ct__jv_word(m, "caller"));
    jinja->varargs = intern(&p, ct__jv_word(m, "varargs"));
    jinja->kwargs = intern(&p, ct__jv_word(m, "kwargs"));
    jinja->body = body(&p, NULL);
    jinja->name = ct__jinja_room(m, strlen(m->name) + 1, 1);
    memcpy(jinja->name, m->name, strlen(m->name));
    jinja->arena = m->arena;
    return jinja;
}

ct_jinja *ct__jinja_parse(const char *name, const char *text, size_t n, ct_err *err) {
    enum { MOST = 16 << 20 };
    ct_jinja_machine m = {.err = err, .name = name, .line = 1};
    m.limits = (ct_jinja_limits){.steps = INT64_MAX / 2, .memory = (size_t)1 << 31};
    size_t bad = n <= MOST ? ct__utf8_bad(text, n) : n;
    if (n > MOST)
        ct__err(err, CT_E_LIMIT, CT_NOWHERE, name, "the template has %zu bytes, more than %d", n,
                MOST);
    else if (bad != n)
        ct__err(err, CT_E_FORMAT, CT_NOWHERE, name, "the template is not UTF-8 at byte %zu", bad);
    if (n > MOST || bad != n) return NULL;
    CT_DEFAULT_ENV;
    ct_jinja *jinja = parse(&m, text, n);
    if (!jinja) ct__arena_free(&m.arena);
    return jinja;
}

void ct__jinja_free(ct_jinja *jinja) {
    if (!jinja) return;
    ct_arena arena = jinja->arena; // in which it lies itself
    ct__arena_free(&arena);
}
