// The parser of templates: tokens to a syntax tree.
#include <string.h>

#include "base/fp_env.h"
#include "io/utf8.h"
#include "text/jinja_ast.h"

typedef struct jinja_parser {
    ct_jinja_machine *m;
    const ct_jinja_token *t; // the next token
    ct_jv_dict *names;       // interned names
    ct_jinja_node *macro;    // the macro whose body is parsed; NULL: none
    int loops;               // enclosing loops, inside this macro
} jinja_parser;

static ct_jinja_node *parse_expression(jinja_parser *p, bool condition);

// ------------------------------------------------------------------------------------------ tokens

static const char *parse_describe_token(jinja_parser *p) {
    switch (p->t->kind) {
    case JT_PRINT_END: return "}}";
    case JT_BLOCK_END: return "%}";
    case JT_END: return "the template's end";
    case JT_OPERATOR:;
        char *text = ct__jinja_alloc(p->m, 3, 1);
        size_t n = 0;
        if (p->t->op > 255) text[n++] = (char)(p->t->op >> 8);
        text[n] = (char)(p->t->op & 255);
        return text;
    case JT_DATA:
    case JT_PRINT_BEGIN:
    case JT_BLOCK_BEGIN: return "text";
    default: return ct__jinja_printable(p->m, p->t->value);
    }
}

static _Noreturn void parse_expected(jinja_parser *p, const char *what) {
    p->m->line = p->t->line;
    ct__jinja_fail(p->m, "%s is expected, not %s", what, parse_describe_token(p));
}

static bool parse_is_word(const ct_jinja_token *t, const char *word) {
    return t->kind == JT_NAME && ct__jv_equals_cstring(t->value, word);
}

static bool parse_is_operator(const ct_jinja_token *t, uint16_t op) {
    return t->kind == JT_OPERATOR && t->op == op;
}

static bool parse_accept_word(jinja_parser *p, const char *word) {
    if (!parse_is_word(p->t, word)) return false;
    p->t++;
    return true;
}

static bool parse_accept_operator(jinja_parser *p, uint16_t op) {
    if (!parse_is_operator(p->t, op)) return false;
    p->t++;
    return true;
}

static void parse_expect_operator(jinja_parser *p, char op) {
    if (!parse_accept_operator(p, (uint16_t)op)) parse_expected(p, (char[]){op, 0});
}

static void parse_expect_word(jinja_parser *p, const char *word) {
    if (!parse_accept_word(p, word)) parse_expected(p, word);
}

static void parse_expect(jinja_parser *p, ct_jinja_token_kind kind, const char *what) {
    if (p->t->kind != kind) parse_expected(p, what);
    p->t++;
}

static ct_jv parse_intern(jinja_parser *p, ct_jv name) {
    ct_jv *found = ct__jv_dict_find(p->m, p->names, name);
    if (found) return *found;
    ct__jv_count_chars(p->m, name.s);
    ct__jv_dict_set(p->m, p->names, name, name);
    return name;
}

// Concurrent renderings share the string: none may grow it in place, and its characters are counted
// in advance.
static void parse_seal_string(jinja_parser *p, ct_jv text) {
    text.s->buffer = NULL;
    ct__jv_count_chars(p->m, text.s);
}

static ct_jv parse_name(jinja_parser *p) {
    if (p->t->kind != JT_NAME) parse_expected(p, "a name");
    return parse_intern(p, (p->t++)->value);
}

static ct_jinja_node *parse_new_node(jinja_parser *p, ct_jinja_kind kind) {
    ct_jinja_node *node = ct__jinja_alloc(p->m, 1, sizeof *node);
    node->kind = kind;
    node->line = p->t->line;
    return node;
}

static ct_jinja_node *parse_wrap_node(jinja_parser *p, ct_jinja_kind kind, ct_jinja_node *a,
                                      ct_jinja_node *b) {
    ct_jinja_node *node = parse_new_node(p, kind);
    node->a = a;
    node->b = b;
    node->line = a->line;
    return node;
}

// Appends to a list linked by `next`.
static void parse_append(ct_jinja_node ***end, ct_jinja_node *item) {
    **end = item;
    *end = &item->next;
}

// ----------------------------------------------------------------------------- primary expressions

// Parses "a, b, c": a tuple if there is a comma. `simple`: elements are names and literals only.
static ct_jinja_node *parse_primary(jinja_parser *p, bool target);
static ct_jinja_node *parse_tuple(jinja_parser *p, bool simple, bool condition, bool target,
                                  bool in_brackets) {
    ct_jinja_node *node = parse_new_node(p, JN_TUPLE), **end = &node->args;
    bool comma = false;
    for (;;) {
        bool over = p->t->kind == JT_PRINT_END || p->t->kind == JT_BLOCK_END ||
                    parse_is_operator(p->t, ')') || (simple && parse_is_word(p->t, "in")) ||
                    (!condition && parse_is_word(p->t, "recursive"));
        if (over) break;
        parse_append(&end, simple ? parse_primary(p, target) : parse_expression(p, condition));
        if (!parse_accept_operator(p, ',')) break;
        comma = true;
    }
    if (comma) return node;
    if (node->args) return node->args;
    if (!in_brackets) parse_expected(p, "an expression");
    return node;
}

// Parses "[a, b]", or "{a: b, c: d}", whose keys and values alternate.
static ct_jinja_node *parse_items(jinja_parser *p, ct_jinja_kind kind, char open, char close) {
    ct_jinja_node *node = parse_new_node(p, kind), **end = &node->args;
    parse_expect_operator(p, open);
    while (!parse_is_operator(p->t, close)) {
        if (node->args) parse_expect_operator(p, ',');
        if (parse_is_operator(p->t, close)) break;
        parse_append(&end, parse_expression(p, true));
        if (kind == JN_LIST) continue;
        parse_expect_operator(p, ':');
        parse_append(&end, parse_expression(p, true));
    }
    parse_expect_operator(p, close);
    return node;
}

static void parse_note_macro_name(jinja_parser *p, ct_jv name) {
    if (!p->macro) return;
    p->macro->varargs |= ct__jv_equals_cstring(name, "varargs");
    p->macro->kwargs |= ct__jv_equals_cstring(name, "kwargs");
    p->macro->caller |= ct__jv_equals_cstring(name, "caller");
}

static ct_jinja_node *parse_name_or_constant(jinja_parser *p, bool target) {
    ct_jinja_node *node = parse_new_node(p, JN_CONST);
    ct_jv word = parse_name(p);
    bool is_true = ct__jv_equals_cstring(word, "true") || ct__jv_equals_cstring(word, "True");
    if (is_true || ct__jv_equals_cstring(word, "false") || ct__jv_equals_cstring(word, "False")) {
        node->value = ct__jv_bool(is_true);
    } else if (ct__jv_equals_cstring(word, "none") || ct__jv_equals_cstring(word, "None")) {
        node->value = ct__jv_none();
    } else {
        node->kind = JN_NAME;
        node->name = word;
        parse_note_macro_name(p, word);
        if (target && parse_accept_operator(p, '.')) {
            node = parse_wrap_node(p, JN_MEMBER_TARGET, node, NULL);
            node->name = parse_name(p);
        }
    }
    return node;
}

static ct_jinja_node *parse_primary(jinja_parser *p, bool target) {
    ct_jinja_node *node;
    if (p->t->kind == JT_NAME) return parse_name_or_constant(p, target);
    if (p->t->kind == JT_NUMBER) {
        node = parse_new_node(p, JN_CONST);
        node->value = (p->t++)->value;
        return node;
    }
    if (p->t->kind == JT_STRING) {
        node = parse_new_node(p, JN_CONST);
        node->value = (p->t++)->value;
        while (p->t->kind == JT_STRING)
            node->value = ct__jv_concat(p->m, node->value, (p->t++)->value);
        parse_seal_string(p, node->value);
        return node;
    }
    if (parse_is_operator(p->t, '[')) return parse_items(p, JN_LIST, '[', ']');
    if (parse_is_operator(p->t, '{')) return parse_items(p, JN_DICT, '{', '}');
    if (!parse_accept_operator(p, '(')) parse_expected(p, "an expression");
    ct__jinja_enter(p->m);
    node = parse_tuple(p, false, true, false, true);
    ct__jinja_leave(p->m);
    parse_expect_operator(p, ')');
    return node;
}

// ----------------------------------------------------------------------------- postfix expressions

static ct_jinja_node *parse_arguments(jinja_parser *p) {
    ct_jinja_node *first = NULL, **end = &first;
    bool named = false, spread = false, spread_named = false;
    parse_expect_operator(p, '(');
    while (!parse_is_operator(p->t, ')')) {
        if (first) parse_expect_operator(p, ',');
        if (parse_is_operator(p->t, ')')) break;
        ct_jinja_node *node = NULL;
        if (parse_accept_operator(p, '*')) {
            if (spread || spread_named) parse_expected(p, "one * alone");
            spread = true;
            node = parse_wrap_node(p, JN_SPREAD, parse_expression(p, true), NULL);
        } else if (parse_accept_operator(p, '*' * 256 + '*')) {
            if (spread_named) parse_expected(p, "one ** alone");
            spread_named = true;
            node = parse_wrap_node(p, JN_SPREAD_NAMED, parse_expression(p, true), NULL);
        } else if (p->t->kind == JT_NAME && parse_is_operator(p->t + 1, '=')) {
            if (spread_named) parse_expected(p, "no argument after **");
            named = true;
            node = parse_new_node(p, JN_KEYWORD);
            node->name = parse_name(p);
            p->t++;
            node->a = parse_expression(p, true);
        } else {
            if (named || spread || spread_named)
                parse_expected(p, "a positional argument after a keyword argument");
            node = parse_expression(p, true);
        }
        parse_append(&end, node);
    }
    parse_expect_operator(p, ')');
    return first;
}

static ct_jinja_node *parse_none(jinja_parser *p) {
    ct_jinja_node *none = parse_new_node(p, JN_CONST);
    none->value = ct__jv_none();
    return none;
}

static ct_jinja_node *parse_slice_part(jinja_parser *p) {
    bool left_out = parse_is_operator(p->t, ':') || parse_is_operator(p->t, ']') ||
                    parse_is_operator(p->t, ',');
    return left_out ? parse_none(p) : parse_expression(p, true);
}

static ct_jinja_node *parse_key(jinja_parser *p) {
    ct_jinja_node *first = parse_slice_part(p);
    if (!parse_accept_operator(p, ':')) return first;
    ct_jinja_node *slice = parse_new_node(p, JN_SLICE), **end = &slice->args;
    parse_append(&end, first);
    parse_append(&end, parse_slice_part(p));
    parse_append(&end, parse_accept_operator(p, ':') ? parse_slice_part(p) : parse_none(p));
    return slice;
}

static ct_jinja_node *parse_subscript(jinja_parser *p, ct_jinja_node *of) {
    ct_jinja_node *node = parse_wrap_node(p, JN_ITEM, of, NULL);
    if (parse_accept_operator(p, '.')) {
        if (p->t->kind == JT_NAME) {
            node->kind = JN_ATTRIBUTE;
            node->name = parse_name(p);
            return node;
        }
        if (p->t->kind != JT_NUMBER || p->t->value.kind != JV_INT)
            parse_expected(p, "a name or a number");
        node->b = parse_new_node(p, JN_CONST);
        node->b->value = (p->t++)->value;
        return node;
    }
    parse_expect_operator(p, '[');
    if (parse_is_operator(p->t, ']')) parse_expected(p, "a key");
    node->b = parse_key(p);
    if (parse_is_operator(p->t, ',')) { // several keys make a tuple
        ct_jinja_node *several = parse_new_node(p, JN_TUPLE), **end = &several->args;
        parse_append(&end, node->b);
        while (parse_accept_operator(p, ',') && !parse_is_operator(p->t, ']'))
            parse_append(&end, parse_key(p));
        node->b = several;
    }
    parse_expect_operator(p, ']');
    return node;
}

static ct_jinja_node *parse_call(jinja_parser *p, ct_jinja_node *of) {
    ct_jinja_node *node = parse_wrap_node(p, JN_CALL, of, NULL);
    node->line = p->t->line;
    node->args = parse_arguments(p);
    return node;
}

// Counts the depth of the chain, so that a tree that is too deep to be walked is refused here.
static ct_jinja_node *parse_postfix(jinja_parser *p, ct_jinja_node *node) {
    int depth = p->m->depth;
    for (;; ct__jinja_enter(p->m)) {
        if (parse_is_operator(p->t, '.') || parse_is_operator(p->t, '['))
            node = parse_subscript(p, node);
        else if (parse_is_operator(p->t, '('))
            node = parse_call(p, node);
        else
            break;
    }
    p->m->depth = depth;
    return node;
}

// The name of a filter or a test may contain dots.
static ct_jv parse_dotted_name(jinja_parser *p) {
    ct_jv name = parse_name(p);
    while (parse_accept_operator(p, '.')) {
        name = ct__jv_concat(p->m, name, ct__jv_cstring(p->m, "."));
        name = ct__jv_concat(p->m, name, parse_name(p));
    }
    parse_seal_string(p, name);
    return name;
}

static ct_jinja_node *parse_filter(jinja_parser *p, ct_jinja_node *of) {
    ct_jinja_node *node = parse_wrap_node(p, JN_FILTER, of, NULL);
    node->line = p->t->line;
    node->name = parse_dotted_name(p);
    if (parse_is_operator(p->t, '(')) node->args = parse_arguments(p);
    return node;
}

static ct_jinja_node *parse_test(jinja_parser *p, ct_jinja_node *of) {
    ct_jinja_node *node = parse_wrap_node(p, JN_TEST, of, NULL);
    bool negated = parse_accept_word(p, "not");
    node->line = p->t->line;
    node->name = parse_dotted_name(p);
    bool simple = p->t->kind == JT_NAME || p->t->kind == JT_STRING || p->t->kind == JT_NUMBER ||
                  parse_is_operator(p->t, '[') || parse_is_operator(p->t, '{');
    bool word =
        parse_is_word(p->t, "else") || parse_is_word(p->t, "or") || parse_is_word(p->t, "and");
    if (parse_is_operator(p->t, '(')) {
        node->args = parse_arguments(p);
    } else if (simple && !word) {
        if (parse_is_word(p->t, "is")) parse_expected(p, "one test alone");
        node->args = parse_postfix(p, parse_primary(p, false));
    }
    return negated ? parse_wrap_node(p, JN_NOT, node, NULL) : node;
}

static ct_jinja_node *parse_filters_and_tests(jinja_parser *p, ct_jinja_node *node) {
    int depth = p->m->depth;
    for (;; ct__jinja_enter(p->m)) {
        if (parse_accept_operator(p, '|'))
            node = parse_filter(p, node);
        else if (parse_accept_word(p, "is"))
            node = parse_test(p, node);
        else if (parse_is_operator(p->t, '('))
            node = parse_call(p, node);
        else
            break;
    }
    p->m->depth = depth;
    return node;
}

// --------------------------------------------------------------------------------------- operators

static ct_jinja_node *parse_unary(jinja_parser *p, bool filters) {
    ct_jinja_node *node;
    ct__jinja_enter(p->m);
    bool minus = parse_is_operator(p->t, '-'), plus = parse_is_operator(p->t, '+');
    if (minus || plus) {
        p->t++;
        node = parse_wrap_node(p, minus ? JN_NEGATE : JN_PLUS, parse_unary(p, false), NULL);
    } else {
        node = parse_primary(p, false);
    }
    node = parse_postfix(p, node);
    if (filters) node = parse_filters_and_tests(p, node);
    ct__jinja_leave(p->m);
    return node;
}

// Left-associative operators of precedence `level`; 0 binds loosest.
static ct_jinja_node *parse_arithmetic(jinja_parser *p, int level) {
    static const struct {
        uint16_t sign;
        char op;
        int level;
    } operators[] = {{'+', '+', 0},
                     {'-', '-', 0},
                     {'*', '*', 2},
                     {'/', '/', 2},
                     {'%', '%', 2},
                     {'/' * 256 + '/', 'f', 2},
                     {'*' * 256 + '*', 'p', 3}};
    enum { CONCAT = 1, LEVELS = 4 };
    if (level == LEVELS) return parse_unary(p, true);
    ct_jinja_node *node = parse_arithmetic(p, level + 1);
    if (level == CONCAT) {
        if (!parse_is_operator(p->t, '~')) return node;
        ct_jinja_node *all = parse_new_node(p, JN_CONCAT), **end = &all->args;
        parse_append(&end, node);
        while (parse_accept_operator(p, '~')) parse_append(&end, parse_arithmetic(p, level + 1));
        return all;
    }
    int depth = p->m->depth;
    for (;; ct__jinja_enter(p->m)) {
        size_t i = 0, n = sizeof operators / sizeof *operators;
        while (i < n &&
               !(operators[i].level == level && parse_is_operator(p->t, operators[i].sign)))
            i++;
        if (i == n) break;
        p->t++;
        node = parse_wrap_node(p, JN_BINARY, node, NULL);
        node->op = operators[i].op;
        node->b = parse_arithmetic(p, level + 1);
    }
    p->m->depth = depth;
    return node;
}

static int parse_comparison_operator(jinja_parser *p) {
    static const uint16_t operators[] = {[JC_EQ] = '=' * 256 + '=',
                                         [JC_NE] = '!' * 256 + '=',
                                         [JC_LT] = '<',
                                         [JC_LE] = '<' * 256 + '=',
                                         [JC_GT] = '>',
                                         [JC_GE] = '>' * 256 + '='};
    for (int i = JC_EQ; i <= JC_GE; i++)
        if (parse_accept_operator(p, operators[i])) return i;
    if (parse_accept_word(p, "in")) return JC_IN;
    if (parse_is_word(p->t, "not") && parse_is_word(p->t + 1, "in")) {
        p->t += 2;
        return JC_NOT_IN;
    }
    return -1;
}

static ct_jinja_node *parse_comparison(jinja_parser *p) {
    ct_jinja_node *first = parse_arithmetic(p, 0), *node = NULL, **end = NULL;
    for (int op; (op = parse_comparison_operator(p)) >= 0;) {
        if (!node) {
            node = parse_wrap_node(p, JN_COMPARE, first, NULL);
            end = &node->args;
        }
        ct_jinja_node *operand = parse_wrap_node(p, JN_OPERAND, parse_arithmetic(p, 0), NULL);
        operand->op = (char)op;
        parse_append(&end, operand);
    }
    return node ? node : first;
}

static ct_jinja_node *parse_not(jinja_parser *p) {
    if (!parse_accept_word(p, "not")) return parse_comparison(p);
    ct__jinja_enter(p->m);
    ct_jinja_node *node = parse_wrap_node(p, JN_NOT, parse_not(p), NULL);
    ct__jinja_leave(p->m);
    return node;
}

static ct_jinja_node *parse_and_or(jinja_parser *p, bool any) {
    ct_jinja_node *node = any ? parse_and_or(p, false) : parse_not(p);
    int depth = p->m->depth;
    for (; parse_accept_word(p, any ? "or" : "and"); ct__jinja_enter(p->m))
        node = parse_wrap_node(p, any ? JN_OR : JN_AND, node,
                               any ? parse_and_or(p, false) : parse_not(p));
    p->m->depth = depth;
    return node;
}

static ct_jinja_node *parse_expression(jinja_parser *p, bool condition) {
    ct__jinja_enter(p->m);
    int depth = p->m->depth;
    ct_jinja_node *node = parse_and_or(p, true);
    for (; condition && parse_accept_word(p, "if"); ct__jinja_enter(p->m)) {
        ct_jinja_node *then = node;
        node = parse_wrap_node(p, JN_CONDITION, parse_and_or(p, true), then);
        if (parse_accept_word(p, "else")) node->c = parse_expression(p, true);
    }
    p->m->depth = depth;
    ct__jinja_leave(p->m);
    return node;
}

// -------------------------------------------------------------------------------------- statements

static ct_jinja_node *parse_statement(jinja_parser *p);

static bool parse_is_end(const ct_jinja_token *t, const char *const *ends) {
    for (; *ends; ends++)
        if (parse_is_word(t, *ends)) return true;
    return false;
}

// Parses statements up to one of the words that end the block, which is the next token then; NULL:
// up to the end of the template.
static ct_jinja_node *parse_body(jinja_parser *p, const char *const *ends) {
    ct_jinja_node *first = NULL, **end = &first, *node;
    ct__jinja_enter(p->m);
    for (;;) {
        p->m->line = p->t->line;
        switch (p->t->kind) {
        case JT_DATA:
            node = parse_new_node(p, JN_DATA);
            node->value = (p->t++)->value;
            parse_seal_string(p, node->value);
            break;
        case JT_PRINT_BEGIN:
            p->t++;
            node = parse_new_node(p, JN_PRINT);
            node->a = parse_tuple(p, false, true, false, false);
            parse_expect(p, JT_PRINT_END, "}}");
            break;
        case JT_BLOCK_BEGIN:
            p->t++;
            if (ends && parse_is_end(p->t, ends)) {
                ct__jinja_leave(p->m);
                return first;
            }
            node = parse_statement(p);
            parse_expect(p, JT_BLOCK_END, "%}");
            break;
        default:
            if (ends) ct__jinja_fail(p->m, "the template ends, and {%% %s %%} is missing", *ends);
            ct__jinja_leave(p->m);
            return first;
        }
        if (node) parse_append(&end, node);
    }
}

// Parses a block's body between %} and {% WORD, and takes WORD.
static ct_jinja_node *parse_block(jinja_parser *p, const char *word) {
    parse_accept_operator(p, ':');
    parse_expect(p, JT_BLOCK_END, "%}");
    ct_jinja_node *node = parse_body(p, (const char *const[]){word, NULL});
    p->t++;
    return node;
}

static void parse_check_target(jinja_parser *p, const ct_jinja_node *target) {
    if (target->kind == JN_TUPLE || target->kind == JN_LIST) {
        for (const ct_jinja_node *part = target->args; part; part = part->next)
            parse_check_target(p, part);
    } else if (target->kind != JN_NAME && target->kind != JN_MEMBER_TARGET) {
        parse_expected(p, "a name to assign to");
    }
}

static ct_jinja_node *parse_target(jinja_parser *p, bool members) {
    ct_jinja_node *node = parse_tuple(p, true, true, members, false);
    parse_check_target(p, node);
    return node;
}

static ct_jinja_node *parse_if(jinja_parser *p) {
    static const char *const ends[] = {"endif", "elif", "else", NULL};
    ct_jinja_node *first = parse_new_node(p, JN_IF), *node = first;
    for (;;) {
        node->a = parse_tuple(p, false, false, false, false);
        parse_accept_operator(p, ':');
        parse_expect(p, JT_BLOCK_END, "%}");
        node->body = parse_body(p, ends);
        if (parse_accept_word(p, "elif")) {
            node->orelse = parse_new_node(p, JN_IF);
            node = node->orelse;
        } else if (parse_accept_word(p, "else")) {
            node->orelse = parse_block(p, "endif");
            return first;
        } else {
            p->t++;
            return first;
        }
    }
}

static ct_jinja_node *parse_for(jinja_parser *p) {
    static const char *const ends[] = {"endfor", "else", NULL};
    ct_jinja_node *node = parse_new_node(p, JN_FOR);
    node->a = parse_target(p, false);
    parse_expect_word(p, "in");
    node->b = parse_tuple(p, false, false, false, false);
    if (parse_accept_word(p, "if")) node->c = parse_expression(p, true);
    if (parse_is_word(p->t, "recursive")) parse_expected(p, "a loop that is not recursive");
    parse_accept_operator(p, ':');
    parse_expect(p, JT_BLOCK_END, "%}");
    p->loops++;
    node->body = parse_body(p, ends);
    p->loops--;
    if (parse_accept_word(p, "else"))
        node->orelse = parse_block(p, "endfor");
    else
        p->t++;
    return node;
}

static ct_jinja_node *parse_block_filters(jinja_parser *p, bool inline_filter) {
    ct_jinja_node *node = parse_new_node(p, JN_FILTER_INPUT);
    if (inline_filter) node = parse_filter(p, node);
    while (parse_accept_operator(p, '|')) node = parse_filter(p, node);
    return node->kind == JN_FILTER_INPUT ? NULL : node;
}

static ct_jinja_node *parse_set(jinja_parser *p) {
    ct_jinja_node *node = parse_new_node(p, JN_SET);
    node->a = parse_target(p, true);
    if (parse_accept_operator(p, '=')) {
        node->b = parse_tuple(p, false, true, false, false);
        return node;
    }
    node->kind = JN_SET_BLOCK;
    node->b = parse_block_filters(p, false);
    node->body = parse_block(p, "endset");
    return node;
}

static ct_jinja_node *parse_parameters(jinja_parser *p) {
    ct_jinja_node *first = NULL, **end = &first;
    bool defaults = false;
    parse_expect_operator(p, '(');
    while (!parse_is_operator(p->t, ')')) {
        if (first) parse_expect_operator(p, ',');
        ct_jinja_node *node = parse_new_node(p, JN_PARAM);
        node->name = parse_name(p);
        if (parse_accept_operator(p, '='))
            node->a = parse_expression(p, true), defaults = true;
        else if (defaults)
            parse_expected(p, "a parameter without a default after one that has one");
        parse_append(&end, node);
    }
    parse_expect_operator(p, ')');
    return first;
}

static ct_jinja_node *parse_macro_body(jinja_parser *p, ct_jinja_node *node, const char *end) {
    ct_jinja_node *outer = p->macro;
    int loops = p->loops;
    p->macro = node;
    p->loops = 0;
    node->body = parse_block(p, end);
    p->macro = outer;
    p->loops = loops;
    if (outer) { // the outer macro contains this body
        outer->varargs |= node->varargs;
        outer->kwargs |= node->kwargs;
        outer->caller |= node->caller;
    }
    return node;
}

static ct_jinja_node *parse_macro(jinja_parser *p) {
    ct_jinja_node *node = parse_new_node(p, JN_MACRO), *outer = p->macro;
    node->name = parse_name(p);
    p->macro = node;
    node->params = parse_parameters(p);
    p->macro = outer;
    return parse_macro_body(p, node, "endmacro");
}

static ct_jinja_node *parse_call_block(jinja_parser *p) {
    ct_jinja_node *node = parse_new_node(p, JN_CALL_BLOCK);
    node->name = parse_intern(p, ct__jv_cstring(p->m, "caller"));
    if (parse_is_operator(p->t, '(')) node->params = parse_parameters(p);
    node->a = parse_expression(p, true);
    if (node->a->kind != JN_CALL) parse_expected(p, "a call");
    return parse_macro_body(p, node, "endcall");
}

static ct_jinja_node *parse_with(jinja_parser *p) {
    ct_jinja_node *node = parse_new_node(p, JN_WITH), **end = &node->params;
    while (p->t->kind != JT_BLOCK_END) {
        if (node->params) parse_expect_operator(p, ',');
        ct_jinja_node *one = parse_new_node(p, JN_SET);
        one->a = parse_primary(p, false);
        parse_check_target(p, one->a);
        parse_expect_operator(p, '=');
        one->b = parse_expression(p, true);
        parse_append(&end, one);
    }
    node->body = parse_block(p, "endwith");
    return node;
}

static ct_jinja_node *parse_loop_control(jinja_parser *p, ct_jinja_kind kind) {
    if (!p->loops) ct__jinja_fail(p->m, "break and continue are only allowed in a loop");
    return parse_new_node(p, kind);
}

static ct_jinja_node *parse_statement(jinja_parser *p) {
    static const char *const unsupported[] = {"include", "import", "from",
                                              "extends", "block",  NULL};
    static const char *const known[] = {"if",   "for",   "set",      "macro",      "call", "filter",
                                        "with", "break", "continue", "generation", "raw",  NULL};
    if (p->t->kind != JT_NAME) parse_expected(p, "a statement");
    const char *word = ct__jinja_printable(p->m, p->t->value);
    if (parse_accept_word(p, "if")) return parse_if(p);
    if (parse_accept_word(p, "for")) return parse_for(p);
    if (parse_accept_word(p, "set")) return parse_set(p);
    if (parse_accept_word(p, "macro")) return parse_macro(p);
    if (parse_accept_word(p, "call")) return parse_call_block(p);
    if (parse_accept_word(p, "with")) return parse_with(p);
    if (parse_accept_word(p, "break")) return parse_loop_control(p, JN_BREAK);
    if (parse_accept_word(p, "continue")) return parse_loop_control(p, JN_CONTINUE);
    if (parse_accept_word(p, "filter")) {
        ct_jinja_node *node = parse_new_node(p, JN_FILTER_BLOCK);
        node->b = parse_block_filters(p, true);
        node->body = parse_block(p, "endfilter");
        return node;
    }
    if (parse_accept_word(p, "generation"))
        return parse_macro_body(p, parse_new_node(p, JN_GENERATION), "endgeneration");
    if (parse_is_end(p->t, unsupported))
        ct__jinja_fail(p->m, "%s needs other templates, and a chat template cannot use any", word);
    size_t n = 0;
    char *bare = ct__jinja_alloc(p->m, p->t->value.s->n + 1, 1);
    memcpy(bare, p->t->value.s->s, n = p->t->value.s->n);
    const char *near = n < 20 ? ct__nearest(bare, known) : NULL;
    if (near) ct__jinja_fail(p->m, "there is no statement %s; is %s meant?", word, near);
    ct__jinja_fail(p->m, "there is no statement %s", word);
}

// ------------------------------------------------------------------------------------ entry points

static ct_jinja *parse_template(ct_jinja_machine *m, const char *text, size_t n) {
    if (setjmp(m->failed)) return NULL;
    ct_jinja *jinja = ct__jinja_alloc(m, 1, sizeof *jinja);
    jinja_parser p = {.m = m, .t = ct__jinja_lex(m, text, n), .names = ct__jv_new_dict(m).dict};
    jinja->loop = parse_intern(&p, ct__jv_cstring(m, "loop"));
    jinja->caller = parse_intern(&p, ct__jv_cstring(m, "caller"));
    jinja->varargs = parse_intern(&p, ct__jv_cstring(m, "varargs"));
    jinja->kwargs = parse_intern(&p, ct__jv_cstring(m, "kwargs"));
    jinja->body = parse_body(&p, NULL);
    jinja->name = ct__jinja_alloc(m, strlen(m->name) + 1, 1);
    memcpy(jinja->name, m->name, strlen(m->name));
    jinja->arena = m->arena;
    return jinja;
}

ct_jinja *ct__jinja_parse(const char *name, const char *text, size_t n, ct_err *err) {
    enum { MAX_BYTES = 16 << 20 };
    ct_jinja_machine m = {.err = err, .name = name, .line = 1};
    m.limits = (ct_jinja_limits){.steps = INT64_MAX / 2, .memory = (size_t)1 << 31};
    size_t bad = n <= MAX_BYTES ? ct__utf8_bad(text, n) : n;
    if (n > MAX_BYTES)
        ct__err(err, CT_E_LIMIT, CT_NOWHERE, name, "the template has %zu bytes, more than %d", n,
                MAX_BYTES);
    else if (bad != n)
        ct__err(err, CT_E_FORMAT, CT_NOWHERE, name, "the template is not UTF-8 at byte %zu", bad);
    if (n > MAX_BYTES || bad != n) return NULL;
    CT_DEFAULT_ENV;
    ct_jinja *jinja = parse_template(&m, text, n);
    if (!jinja) ct__arena_free(&m.arena);
    return jinja;
}

void ct__jinja_free(ct_jinja *jinja) {
    if (!jinja) return;
    ct_arena arena = jinja->arena; // which holds jinja itself
    ct__arena_free(&arena);
}
