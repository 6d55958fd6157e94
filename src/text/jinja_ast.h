// The syntax tree of a template, which the parser builds and the evaluator walks.
#ifndef COTAN_TEXT_JINJA_AST_H
#define COTAN_TEXT_JINJA_AST_H

#include "text/jinja_value.h"

typedef enum {
    // Statements.
    JN_DATA,      // value: text
    JN_PRINT,     // a
    JN_IF,        // a: the test; body; orelse: one IF for elif, or the statements of else
    JN_FOR,       // a: the target; b: the iterable; c: filter of the items, NULL: all; body; orelse
    JN_SET,       // a: the target; b
    JN_SET_BLOCK, // a: the target; b: filters of FILTER_INPUT, NULL: none; body
    JN_MACRO,     // name; params: a list of PARAM; body
    JN_CALL_BLOCK,   // a: the call; params; body
    JN_FILTER_BLOCK, // b: filters of FILTER_INPUT; body
    JN_WITH,         // params: a list of SET; body
    JN_GENERATION,   // body
    JN_BREAK,
    JN_CONTINUE,
    JN_PARAM, // of a macro: name; a: its default, NULL: none
    // Expressions.
    JN_CONST,         // value
    JN_NAME,          // name
    JN_MEMBER_TARGET, // member of a namespace: name; a: the NAME of the namespace
    JN_TUPLE,         // args
    JN_LIST,          // args
    JN_DICT,          // args: key, value, key, value ...
    JN_ATTRIBUTE,     // a; name
    JN_ITEM,          // a; b: the key, or a SLICE
    JN_SLICE,         // args: three; a CONST none where one is omitted
    JN_CALL,          // a; args
    JN_FILTER,        // a; name; args
    JN_TEST,          // a; name; args
    JN_FILTER_INPUT,  // the value that a block's filters are applied to
    JN_NOT,
    JN_NEGATE,
    JN_PLUS,
    JN_AND,
    JN_OR,
    JN_BINARY,       // a; b; op
    JN_COMPARE,      // a; args: a list of OPERAND
    JN_OPERAND,      // op; a
    JN_CONCAT,       // args
    JN_CONDITION,    // a: the test; b; c: else, NULL: undefined
    JN_KEYWORD,      // call argument: name; a
    JN_SPREAD,       // call argument: *a
    JN_SPREAD_NAMED, // call argument: **a
} ct_jinja_kind;

// Comparison operators.
enum { JC_EQ, JC_NE, JC_LT, JC_LE, JC_GT, JC_GE, JC_IN, JC_NOT_IN };

typedef struct ct_jinja_node {
    ct_jinja_kind kind;
    char op;
    bool varargs, kwargs, caller; // the macro's body reads these names
    int line;
    ct_jv name, value; // equal names share one string
    struct ct_jinja_node *a, *b, *c, *args, *params, *body, *orelse, *next;
} ct_jinja_node;

struct ct_jinja {
    ct_arena arena;
    char *name;
    ct_jv loop, caller, varargs, kwargs; // names that loops and macros define
    ct_jinja_node *body;
};

// The tokens of a template.
typedef enum {
    JT_DATA,
    JT_PRINT_BEGIN,
    JT_PRINT_END,
    JT_BLOCK_BEGIN,
    JT_BLOCK_END,
    JT_NAME,
    JT_STRING,
    JT_NUMBER,
    JT_OPERATOR,
    JT_END,
} ct_jinja_token_kind;
typedef struct ct_jinja_token {
    ct_jinja_token_kind kind;
    int line;
    uint16_t op; // one character, or two: '*' * 256 + '*'
    ct_jv value;
} ct_jinja_token;

// Returns tokens ended by JT_END. The text is UTF-8.
ct_jinja_token *ct__jinja_lex(ct_jinja_machine *m, const char *text, size_t n);

#endif
