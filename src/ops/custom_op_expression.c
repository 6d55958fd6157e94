// The text of a plugin op: parses a C expression over its operands into nodes, and records these as ops.
#define _GNU_SOURCE
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/fp_env.h"
#include "ops/custom_op.h"

enum { MAX_DEPTH = 64, MAX_NAME = 64, MAX_PARTS = 64, MAX_NODES = 4096 };

typedef struct expression_parser {
    const ct_op *op;
    ct_expression *to;
    const char *text, *at;
    int depth, n_parts;
    struct {
        const char *name;
        size_t n;
        int node;
    } part[MAX_PARTS]; // "name = ...;"
    bool used[CT_CUSTOM_OP_MAX_OPERANDS];
    ct_err *err;
    ct_loc here;
} expression_parser;

// Reports an error, unless there is one already. Returns -1, for `return`.
static __attribute__((format(printf, 2, 3))) int expression_error(expression_parser *r,
                                                                  const char *format, ...) {
    CT_TEXT message = {0};
    va_list args;
    va_start(args, format);
    ct__textf_v(&message, format, args);
    va_end(args);
    if (!r->err->code)
        ct__err(r->err, CT_E_ARGUMENT, r->here, r->op->name, "column %zu of its expression: %s",
                (size_t)(r->at - r->text) + 1, message.s ? message.s : "an error");
    return -1;
}

static int expression_add_node(expression_parser *r, struct ct_expression_node node) {
    ct_expression *e = r->to;
    if (e->n == MAX_NODES) return expression_error(r, "it is too long");
    if (!CT_GROW(e->v, e->cap, e->n + 1)) {
        ct__err_memory(r->err, r->here, r->op->name, (e->n + 1) * sizeof *e->v);
        return -1;
    }
    e->v[e->n] = node;
    return (int)e->n++;
}
static int expression_add_op(expression_parser *r, const ct_opdef *op, int n, const int *in) {
    struct ct_expression_node node = {.op = op, .operand = -1, .n = n};
    for (int i = 0; i < n; i++) {
        if (in[i] < 0) return -1;
        node.in[i] = in[i];
    }
    node.is_bool = op == &ct__op_select ? r->to->v[in[1]].is_bool && r->to->v[in[2]].is_bool
                                        : op->infer == ct__infer_elementwise_bool;
    return expression_add_node(r, node);
}
static int expression_add_number(expression_parser *r, double number) {
    return expression_add_node(r, (struct ct_expression_node){.operand = -1, .number = number});
}
// Converts to bool as in C: all numbers but 0 are true.
static int expression_to_bool(expression_parser *r, int node) {
    if (node < 0 || r->to->v[node].is_bool) return node;
    const int zero = expression_add_number(r, 0);
    return expression_add_op(r, &ct__op_not_equal, 2, (int[]){node, zero});
}

// ------------------------------------------------------------------------------------------ tokens

static bool expression_starts_name(char c) { return isalpha((unsigned char)c) || c == '_'; }
static size_t expression_name_length(const char *at) {
    size_t n = 0;
    while (expression_starts_name(at[n]) || (n && isdigit((unsigned char)at[n]))) n++;
    return n;
}

// True for an elementwise op of numbers without attributes.
static bool expression_is_function(const ct_opdef *op) {
    const bool pointwise = op->infer == ct__infer_elementwise ||
                           op->infer == ct__infer_elementwise_bool || op == &ct__op_abs;
    return pointwise && !op->condition && !op->n_fields && op->n_out == 1 && op->n_in >= 1 &&
           op->n_in <= 3;
}
static const ct_opdef *expression_find_function(const char *name) {
    for (uint32_t i = 0; i < ct__n_ops; i++)
        if (expression_is_function(ct__ops[i]) && strcmp(ct__ops[i]->name, name) == 0)
            return ct__ops[i];
    return NULL;
}
static const char *expression_nearest_function(const char *name) {
    size_t at = 0;
    const char **names = ct__calloc(ct__n_ops + 1, sizeof *names);
    for (uint32_t i = 0; names && i < ct__n_ops; i++)
        if (expression_is_function(ct__ops[i])) names[at++] = ct__ops[i]->name;
    const char *near = names ? ct__nearest(name, names) : NULL;
    ct__free(names);
    return near;
}

// ------------------------------------------------------------------------------------- expressions

static int expression_parse_ternary(expression_parser *r);

static int expression_parse_number(expression_parser *r) {
    CT_DEFAULT_ENV;
    char *end = NULL;
    const double value = strtod(r->at, &end);
    if (!end || end == r->at) return expression_error(r, "a number was expected");
    r->at = end;
    if (*r->at == 'f') r->at++; // as in C
    return expression_add_number(r, value);
}

static int expression_parse_call(expression_parser *r, const char *name) {
    int in[3], n = 0;
    const ct_opdef *op = expression_find_function(name);
    if (!op) {
        const char *near = expression_nearest_function(name);
        expression_error(r, "there is no elementwise op \"%s\" without attributes", name);
        if (near) ct__err_hint(r->err, "did you mean %s?", near);
        return -1;
    }
    if (!ct__accept(&r->at, ")")) {
        do {
            if (n == op->n_in) return expression_error(r, "%s takes %d operands", name, op->n_in);
            if ((in[n++] = expression_parse_ternary(r)) < 0) return -1;
        } while (ct__accept(&r->at, ","));
        if (!ct__accept(&r->at, ")")) return expression_error(r, "\")\" was expected");
    }
    if (n != op->n_in) return expression_error(r, "%s takes %d operands", name, op->n_in);
    return expression_add_op(r, op, n, in);
}

static int expression_parse_name(expression_parser *r) {
    const size_t n = expression_name_length(r->at);
    char name[MAX_NAME];
    if (n >= sizeof name) return expression_error(r, "the name is too long");
    memcpy(name, r->at, n);
    name[n] = '\0';
    const char *begin = r->at;
    r->at += n;
    if (ct__accept(&r->at, "(")) return expression_parse_call(r, name);
    r->at = begin + n;
    for (int i = r->n_parts; i-- > 0;)
        if (r->part[i].n == n && memcmp(r->part[i].name, name, n) == 0) return r->part[i].node;
    for (int i = 0; r->op->operand_names[i]; i++)
        if (strcmp(r->op->operand_names[i], name) == 0) {
            r->used[i] = true;
            return expression_add_node(r, (struct ct_expression_node){.operand = i});
        }
    r->at = begin;
    return expression_error(r, "\"%s\" is no operand", name);
}

static int expression_parse_primary(expression_parser *r) {
    ct__skip_spaces(&r->at);
    if (expression_starts_name(*r->at)) return expression_parse_name(r);
    if (ct__accept(&r->at, "(")) {
        const int inner = expression_parse_ternary(r);
        if (inner < 0) return -1;
        return ct__accept(&r->at, ")") ? inner : expression_error(r, "\")\" was expected");
    }
    if (isdigit((unsigned char)*r->at) || *r->at == '.') return expression_parse_number(r);
    return *r->at ? expression_error(r, "\"%c\" was not expected", *r->at)
                  : expression_error(r, "it ends too early");
}

static int expression_parse_unary(expression_parser *r) {
    if (r->depth == MAX_DEPTH) return expression_error(r, "it is nested too deeply");
    r->depth++;
    int node;
    if (ct__accept(&r->at, "-"))
        node = expression_add_op(r, &ct__op_neg, 1, (int[]){expression_parse_unary(r)});
    else if (ct__accept(&r->at, "+"))
        node = expression_parse_unary(r);
    else if (ct__accept(&r->at, "!"))
        node = expression_add_op(r, &ct__op_not, 1,
                                 (int[]){expression_to_bool(r, expression_parse_unary(r))});
    else
        node = expression_parse_primary(r);
    r->depth--;
    return node;
}

// Binary operators by increasing precedence; those of one level associate to the left.
static const struct {
    const char *word;
    const ct_opdef *op;
    int level;
    bool takes_bools;
} operators[] = {
    {"||", &ct__op_or, 0, true},          {"&&", &ct__op_and, 1, true},
    {"==", &ct__op_equal, 2, false},      {"!=", &ct__op_not_equal, 2, false},
    {"<=", &ct__op_less_equal, 3, false}, {">=", &ct__op_greater_equal, 3, false},
    {"<", &ct__op_less, 3, false},        {">", &ct__op_greater, 3, false},
    {"+", &ct__op_add, 4, false},         {"-", &ct__op_sub, 4, false},
    {"*", &ct__op_mul, 5, false},         {"/", &ct__op_div, 5, false},
};
enum { OPERATORS = sizeof operators / sizeof *operators, LEVELS = 6 };

static int expression_parse_binary(expression_parser *r, int level) {
    if (level == LEVELS) return expression_parse_unary(r);
    int left = expression_parse_binary(r, level + 1);
    for (int i = 0; left >= 0 && i < OPERATORS; i++) {
        if (operators[i].level != level || !ct__accept(&r->at, operators[i].word)) continue;
        int in[2] = {left, expression_parse_binary(r, level + 1)};
        if (operators[i].takes_bools)
            in[0] = expression_to_bool(r, in[0]), in[1] = expression_to_bool(r, in[1]);
        left = expression_add_op(r, operators[i].op, 2, in);
        i = -1; // more operators of this level may follow
    }
    return left;
}

static int expression_parse_ternary(expression_parser *r) {
    if (r->depth == MAX_DEPTH) return expression_error(r, "it is nested too deeply");
    r->depth++;
    int node = expression_parse_binary(r, 0);
    if (node >= 0 && ct__accept(&r->at, "?")) {
        int in[3] = {expression_to_bool(r, node), expression_parse_ternary(r), -1};
        if (in[1] < 0) return -1;
        if (!ct__accept(&r->at, ":")) return expression_error(r, "\":\" was expected");
        in[2] = expression_parse_ternary(r);
        if (in[0] < 0 || in[2] < 0) return -1;
        if (r->to->v[in[1]].is_bool != r->to->v[in[2]].is_bool)
            return expression_error(r, "one side of ?: is a comparison, the other a number");
        node = expression_add_op(r, &ct__op_select, 3, in);
    }
    r->depth--;
    return node;
}

// Parses "name =", the start of a part.
static bool expression_parse_part_name(expression_parser *r, const char **name, size_t *n) {
    ct__skip_spaces(&r->at);
    *name = r->at;
    *n = expression_name_length(r->at);
    const char *next = r->at + *n;
    ct__skip_spaces(&next);
    if (!*n || next[0] != '=' || next[1] == '=') return false;
    r->at = next + 1;
    return true;
}

bool ct__read_expression(ct_op *op, const char *text, ct_err *err, ct_loc here) {
    expression_parser r = {
        .op = op, .to = &op->expression, .text = text, .at = text, .err = err, .here = here};
    const char *name;
    size_t n;
    while (expression_parse_part_name(&r, &name, &n)) {
        const int node = expression_parse_ternary(&r);
        if (node < 0) return false;
        if (!ct__accept(&r.at, ";")) return expression_error(&r, "\";\" was expected") >= 0;
        if (r.n_parts == MAX_PARTS) return expression_error(&r, "it has too many parts") >= 0;
        r.part[r.n_parts].name = name, r.part[r.n_parts].n = n, r.part[r.n_parts++].node = node;
    }
    const int root = expression_parse_ternary(&r);
    if (root < 0) return false;
    ct__accept(&r.at, ";");
    ct__skip_spaces(&r.at);
    if (*r.at) return expression_error(&r, "\"%c\" was not expected", *r.at) >= 0;
    for (int i = 0; i < op->signature.n_in; i++)
        if (!r.used[i])
            return ct__err(err, CT_E_ARGUMENT, here, op->name,
                           "its expression does not use operand %s", op->operand_names[i]);
    op->expression.n = (size_t)root + 1; // the nodes after it are not needed
    return true;
}

// ------------------------------------------------------------------------------------------- body

bool ct__expression_body(ct_rule *r) {
    const ct_op *op = ct__outside(r->node);
    const ct_expression *e = &op->expression;
    CT_ARENA scratch = {0};
    ct_tensor *t = ct__arena(&scratch, e->n * sizeof *t), operand[CT_CUSTOM_OP_MAX_OPERANDS];
    ct_promotion met = CT_PROMOTION_START;
    if (!t) return ct__err_memory(&ct__ctx()->err, r->node->here, op->name, e->n * sizeof *t);
    for (int i = 0; i < r->n_in; i++) {
        const ct_type *type = ct__type_of(r->in[i]);
        met = ct__promotion_add(met, (ct_dtype)type->dtype, type->weak);
    }
    for (int i = 0; i < r->n_in; i++)
        operand[i] = (ct_dtype)ct__type_of(r->in[i])->dtype == ct__promotion_result(met)
                         ? r->in[i]
                         : ct_cast(r->in[i], ct__promotion_result(met));
    for (size_t i = 0; i < e->n; i++) {
        const struct ct_expression_node *node = &e->v[i];
        ct_tensor in[3];
        for (int k = 0; k < node->n; k++) in[k] = t[node->in[k]];
        t[i] = node->op             ? ct__record(node->op, NULL, in, node->n, r->node->here)
               : node->operand >= 0 ? operand[node->operand]
                                    : ct__number_like(node->number, operand[0]);
    }
    r->body_out[0] = t[e->n - 1];
    return !ct_failed();
}
