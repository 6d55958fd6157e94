// The values of templates, which follow Python's types, and the operations on each.
//
// All memory of a rendering belongs to its machine's arena and is freed with it. An error leaves by
// ct__jinja_fail, which jumps back to where the rendering (or the parsing) began: no function here
// reports an error to its caller, and none owns memory outside of the arena.
#ifndef COTAN_TEXT_JINJA_VALUE_H
#define COTAN_TEXT_JINJA_VALUE_H

#include <setjmp.h>

#include "base/mem.h"
#include "text/jinja.h"

typedef enum {
    JV_MISSING, // an argument that was not given
    JV_UNDEFINED,
    JV_NONE,
    JV_BOOL,
    JV_INT,
    JV_FLOAT,
    JV_STRING,
    JV_LIST,
    JV_TUPLE,
    JV_RANGE,
    JV_VIEW,      // a dict's keys, values or items
    JV_GENERATOR, // yields its items once
    JV_DICT,
    JV_NAMESPACE,
    JV_MACRO,
    JV_FUNCTION, // a global function
    JV_METHOD,   // a method bound to a value
    JV_LOOP,
    JV_CYCLER,
    JV_JOINER,
} ct_jv_kind;

typedef struct ct_jv_string {
    const char *s; // UTF-8
    size_t n;
    int64_t chars;               // code points; -1: not counted yet
    struct ct_jv_buffer *buffer; // the buffer that holds it if it may grow in place; else NULL
    bool markup;                 // marked by the filters safe or escape
} ct_jv_string;

typedef struct ct_jv {
    ct_jv_kind kind;
    union {
        bool b;
        int64_t i;
        double f;
        ct_jv_string *s;
        struct ct_jv_list *list; // LIST, TUPLE, RANGE, VIEW, GENERATOR
        struct ct_jv_dict *dict; // DICT, NAMESPACE
        struct ct_jv_undefined *undefined;
        struct ct_jv_macro *macro;
        struct ct_jv_method *method;
        const struct ct_jv_function *function;
        struct ct_jv_loop *loop;
        struct ct_jv_cycler *cycler;
    };
} ct_jv;

typedef struct ct_jv_list {
    ct_jv *v;
    size_t n, cap;
    size_t at;        // GENERATOR: index of the next item
    const char *view; // VIEW: the name of the method that made it
    int64_t range[3]; // RANGE: start, stop, step
    bool group;       // TUPLE made by groupby: has the members grouper and list
} ct_jv_list;

typedef struct ct_jv_dict { // in insertion order
    ct_jv *keys, *values;
    size_t n, cap;
    uint32_t *index; // hash table of slots; NULL while there are few keys
    size_t slots;
} ct_jv_dict;

typedef struct ct_jv_undefined { // the reason: a sentence, or the value that has no such member
    const char *hint;
    ct_jv_kind of; // MISSING: the undefined thing is a name
    ct_jv name;
} ct_jv_undefined;

typedef struct ct_jv_macro {
    const struct ct_jinja_node *node;
    struct ct_jinja_scope *scope; // the scope of its definition
} ct_jv_macro;

typedef struct ct_jv_loop {
    ct_jv_list *items;
    size_t at;
    ct_jv changed; // the last arguments of loop.changed: a tuple, or MISSING
} ct_jv_loop;

typedef struct ct_jv_cycler { // state of a cycler or a joiner
    ct_jv_list *items;
    size_t at;
} ct_jv_cycler;

typedef struct ct_jv_args {
    ct_jv *v;
    size_t n;
    ct_jv *names, *named; // keyword arguments: strings, and their values
    size_t named_n;
} ct_jv_args;

typedef struct ct_jinja_machine ct_jinja_machine;
// `arg` has an element for each name of `params`; MISSING where the argument was not given.
typedef ct_jv (*ct_jv_fn)(ct_jinja_machine *m, ct_jv self, const ct_jv *arg, const ct_jv_args *all);
typedef struct ct_jv_function {
    const char *name;
    const char *params; // "a b": names separated by spaces; NULL: takes any arguments, as `all`
    int required;
    ct_jv_fn call; // NULL: would change its value in place, and is refused
} ct_jv_function;

typedef struct ct_jv_method {
    const ct_jv_function *function;
    ct_jv self;
} ct_jv_method;

struct ct_jinja_machine {
    ct_arena arena;
    ct_err *err;
    const char *name; // the template's
    int line;
    ct_jinja_limits limits;
    int64_t steps;
    size_t output;
    int depth;
    uint64_t seed; // of the hash function
    jmp_buf failed;
    const struct ct_jinja *jinja;
    const struct ct_jv_dict *variables;
    struct ct_jinja_writer *out; // the current output of the template
    ct_jv filter_input;          // the value that a block's filters are applied to
};

// ------------------------------------------------------------------------------- failing, counting

_Noreturn void ct__jinja_fail(ct_jinja_machine *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
_Noreturn void ct__jinja_fail_as(ct_jinja_machine *m, ct_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void *ct__jinja_alloc(ct_jinja_machine *m, size_t count, size_t size); // zeroed
void ct__jinja_count_steps(ct_jinja_machine *m, size_t bytes); // counts 1, and 1 for each 16 bytes
void ct__jinja_enter(ct_jinja_machine *m); // one level deeper; fails if too deep
static inline void ct__jinja_leave(ct_jinja_machine *m) { m->depth--; }
// The value as text for messages: printable, valid as long as the machine.
const char *ct__jinja_printable(ct_jinja_machine *m, ct_jv v);

// ------------------------------------------------------------------------------------------ values

static inline ct_jv ct__jv_none(void) { return (ct_jv){.kind = JV_NONE}; }
static inline ct_jv ct__jv_bool(bool b) { return (ct_jv){.kind = JV_BOOL, .b = b}; }
static inline ct_jv ct__jv_int(int64_t i) { return (ct_jv){.kind = JV_INT, .i = i}; }
static inline ct_jv ct__jv_float(double f) { return (ct_jv){.kind = JV_FLOAT, .f = f}; }
ct_jv ct__jv_borrow_string(ct_jinja_machine *m, const char *s, size_t n); // does not copy s
ct_jv ct__jv_copy_string(ct_jinja_machine *m, const char *s, size_t n);
static inline ct_jv ct__jv_cstring(ct_jinja_machine *m, const char *s) {
    return ct__jv_borrow_string(m, s, __builtin_strlen(s));
}
ct_jv ct__jv_undefined(ct_jinja_machine *m, const char *hint);
ct_jv ct__jv_undefined_member(ct_jinja_machine *m, ct_jv of, ct_jv name);
_Noreturn void ct__jv_fail_undefined(ct_jinja_machine *m, ct_jv v);
ct_jv ct__jv_new_list(ct_jinja_machine *m, ct_jv_kind kind, size_t n); // n values, all MISSING
void ct__jv_push(ct_jinja_machine *m, ct_jv_list *list, ct_jv v);
ct_jv ct__jv_pair(ct_jinja_machine *m, ct_jv a, ct_jv b);
ct_jv ct__jv_concat(ct_jinja_machine *m, ct_jv a, ct_jv b); // of strings; the result is not markup

ct_jv ct__jv_new_dict(ct_jinja_machine *m);
ct_jv *ct__jv_dict_find(ct_jinja_machine *m, const ct_jv_dict *dict,
                        ct_jv key); // NULL: no such key
void ct__jv_dict_set(ct_jinja_machine *m, ct_jv_dict *dict, ct_jv key, ct_jv value);
ct_jv ct__jv_from_json(ct_jinja_machine *m, const struct json_t *json);

const char *ct__jv_type_name(ct_jv v);                 // Python's name: "str"
bool ct__jv_equals_cstring(ct_jv v, const char *word); // true if v is that string
bool ct__jv_truth(ct_jinja_machine *m, ct_jv v);
bool ct__jv_equal(ct_jinja_machine *m, ct_jv a, ct_jv b);
int ct__jv_compare(ct_jinja_machine *m, ct_jv a, ct_jv b, const char *sign); // < 0, 0, > 0; 2: NaN
bool ct__jv_contains(ct_jinja_machine *m, ct_jv all, ct_jv one);
int64_t ct__jv_length(ct_jinja_machine *m, ct_jv v);
// The items of an iterable value, in a new list or the value's own; takes the remaining items of a
// generator.
ct_jv_list *ct__jv_items(ct_jinja_machine *m, ct_jv v);
bool ct__jv_iterable(ct_jv v);
bool ct__jv_to_double(ct_jv v, double *f); // false: not a number
// Stable sort. The keys are those of the items, in the same order.
void ct__jv_sort(ct_jinja_machine *m, ct_jv *items, ct_jv *keys, size_t n, bool reverse);
ct_jv ct__jv_binary(ct_jinja_machine *m, char op, ct_jv a,
                    ct_jv b); // + - * / %; f: //, p: **
ct_jv ct__jv_negate(ct_jinja_machine *m, ct_jv v);
ct_jv ct__jv_attribute(ct_jinja_machine *m, ct_jv of, ct_jv name);
ct_jv ct__jv_item(ct_jinja_machine *m, ct_jv of, ct_jv key);
ct_jv ct__jv_slice(ct_jinja_machine *m, ct_jv of, ct_jv from, ct_jv to, ct_jv step);
ct_jv ct__jv_call(ct_jinja_machine *m, ct_jv what, const ct_jv_args *args);
ct_jv ct__jv_invoke(ct_jinja_machine *m, const ct_jv_function *f, ct_jv self,
                    const ct_jv_args *args);
ct_jv ct__jv_macro_name(const ct_jv_macro *macro);
ct_jv ct__jv_call_macro(ct_jinja_machine *m, ct_jv_macro *macro, const ct_jv_args *args);

// Functions by name; NULL: none.
const ct_jv_function *ct__jv_find_function(const ct_jv_function *table, ct_jv name);
const ct_jv_function *ct__jv_find_method(ct_jv of, ct_jv name);
const ct_jv_function *ct__jv_find_filter(ct_jv name);
const ct_jv_function *ct__jv_find_test(ct_jv name);
extern const ct_jv_function ct__jv_globals[];
extern const ct_jv_function ct__jv_string_methods[];
ct_jv ct__jv_call_filter(ct_jinja_machine *m, ct_jv name, ct_jv self, const ct_jv_args *args);
bool ct__jv_call_test(ct_jinja_machine *m, ct_jv name, ct_jv self, const ct_jv_args *args);

// -------------------------------------------------------------------------------------------- text

// A string under construction.
typedef struct ct_jinja_writer {
    ct_jinja_machine *m;
    char *s;
    size_t n, cap;
    size_t max_bytes; // 0: no limit but the memory's
} ct_jinja_writer;
void ct__jinja_write(ct_jinja_writer *w, const char *s, size_t n);
// Writes n bytes `times` times; none if times <= 0. More than the memory limit is refused before
// the first.
void ct__jinja_fill(ct_jinja_writer *w, const char *s, size_t n, int64_t times);
void ct__jinja_write_cstring(ct_jinja_writer *w, const char *s);
void ct__jinja_writef(ct_jinja_writer *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void ct__jinja_write_char(ct_jinja_writer *w, uint32_t cp);
ct_jv ct__jinja_writer_string(ct_jinja_writer *w); // the string so far

void ct__jv_write(ct_jinja_writer *w, ct_jv v); // as Python's str()
void ct__jv_repr(ct_jinja_writer *w, ct_jv v);
void ct__jv_write_float(ct_jinja_writer *w, double f);
ct_jv ct__jv_to_string(ct_jinja_machine *m, ct_jv v); // str(v); a string is returned as it is
ct_jv ct__jv_require_string(ct_jinja_machine *m, ct_jv v,
                            const char *who); // fails unless it is a string
int64_t ct__jv_require_int(ct_jinja_machine *m, ct_jv v,
                           const char *who); // fails unless it is an int or a bool
ct_jv ct__jv_parse_int(ct_jinja_machine *m, ct_jv text, int base); // MISSING: not a number
ct_jv ct__jv_parse_float(ct_jinja_machine *m, ct_jv text);
typedef struct ct_jv_json_style {
    const char *item, *key; // separators
    size_t item_n, key_n;
    const char *indent; // NULL: all on one line
    size_t indent_n;
    bool ascii, sorted;
} ct_jv_json_style;
void ct__jv_write_json(ct_jinja_writer *w, ct_jv v, const ct_jv_json_style *style, int depth);
ct_jv ct__jv_format_percent(ct_jinja_machine *m, ct_jv format, ct_jv values); // format % values
ct_jv ct__jv_format(ct_jinja_machine *m, ct_jv format, const ct_jv_args *args);

int64_t ct__jv_count_chars(ct_jinja_machine *m, const ct_jv_string *s);
// Returns the character at *at and moves *at after it.
uint32_t ct__jv_next_char(const ct_jv_string *s, size_t *at);
ct_jv ct__jv_strip(ct_jinja_machine *m, ct_jv text, ct_jv chars, bool left, bool right);
ct_jv ct__jv_upper(ct_jinja_machine *m, ct_jv text);
ct_jv ct__jv_lower(ct_jinja_machine *m, ct_jv text);
ct_jv ct__jv_capitalize(ct_jinja_machine *m, ct_jv text);
ct_jv ct__jv_replace(ct_jinja_machine *m, ct_jv text, ct_jv old, ct_jv replacement, int64_t count);
void ct__jv_reverse(ct_jv_list *list); // in place
ct_jv ct__jv_join(ct_jinja_machine *m, ct_jv between, const ct_jv_list *parts);
ct_jv_list *ct__jv_split_lines(ct_jinja_machine *m, ct_jv text, bool keep_ends);
ct_jv ct__jv_substring(ct_jinja_machine *m, ct_jv text, int64_t from,
                       int64_t to); // from, to: in characters
size_t ct__jv_search(ct_jinja_machine *m, const ct_jv_string *in, size_t from,
                     const ct_jv_string *what); // returns a byte offset; in->n + 1: not found
ct_jv ct__jv_escape(ct_jinja_machine *m, ct_jv v, bool force);

// Classes of a character, as Python's str.isalpha() etc. have them.
enum {
    CT_UC_PRINTABLE = 1,
    CT_UC_ALPHA = 2,
    CT_UC_DECIMAL = 4,
    CT_UC_DIGIT = 8,
    CT_UC_NUMERIC = 16,
    CT_UC_SPACE = 32,
    CT_UC_UPPER = 64,
    CT_UC_LOWER = 128,
    CT_UC_TITLE = 256,
    CT_UC_CASED = 512,
    CT_UC_IGNORED = 1024, // case-ignorable: skipped when looking for the end of a word
    CT_UC_WORD = CT_UC_ALPHA | CT_UC_DECIMAL | CT_UC_DIGIT | CT_UC_NUMERIC,
};
unsigned ct__uc_class(uint32_t cp);
size_t ct__uc_upper(uint32_t cp, uint32_t out[3]);
size_t ct__uc_title(uint32_t cp, uint32_t out[3]);
size_t ct__uc_lower(uint32_t cp, uint32_t out[3]);

#endif
