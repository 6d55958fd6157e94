// A plan written ahead of time: what its C function is given, and the two files.
#ifndef COTAN_COMPILE_AHEAD_H
#define COTAN_COMPILE_AHEAD_H

#include "compile/plan.h"

typedef enum {
    CT_MEMBER_VARIABLE,
    CT_MEMBER_INPUT,
    CT_MEMBER_SCALAR,
    CT_MEMBER_RESULT,
    CT_MEMBER_KINDS
} ct_member_kind;

// A member of the struct that the function takes.
typedef struct ct_member {
    ct_member_kind kind;
    const char *name; // in C, unique; NULL until it has one
    const char *was;  // a variable's, a metric's or an op's number's own name, or NULL
    const ct_type *type;
    ct_loc here;
    const ct_var *var; // VARIABLE
    bool written;
    bool embedded;  // its bytes stand in the file, and it is no member
    uint64_t value; // SCALAR: its bits as they are now
} ct_member;

typedef struct ct_ahead {
    ct_ctx *ctx;
    ct_executor *engine;
    ct_plan *plan;
    const ct_root *roots; // (plan->n_roots) the engine's
    const ct_compile_args *args;
    const char *name; // of the function, the path's last part
    ct_arena arena;
    ct_member *members; // (n_members)
    size_t n_members;
    uint32_t *of_leaf, *of_root; // members by leaf and by root
    uint32_t scalars;            // the first one's member; the others follow
    bool *used;                  // (program.n_bufs) by a launch
} ct_ahead;

// Fills in the members and names them. False: the error stands in the context.
bool ct__ahead_members(ct_ahead *a);
// Can this be the name of a function or of a member in C and C++?
bool ct__ahead_name(const char *name);
bool ct__ahead_function_name(const char *name); // of a function: is it not the C library's?
bool ct__ahead_declared(const char *name);      // as a function, by the headers of the C library
// A name for what the user calls `was`, and its length: "h.0.ln_1.weight" is h_0_ln_1_weight.
enum { CT_SPELLED = 42 };
size_t ct__ahead_spell(const char *was, char name[CT_SPELLED]);
bool ct__ahead_bad_name(ct_err *err, ct_code code, ct_loc here, const char *name); // false
#define CT_AHEAD_PRELUDE "// ---- what kernels are written with"

// Ops from outside. May the plan be written, does each function that it calls have a symbol? Reports if not.
bool ct__ahead_may_call(const ct_ahead *a);
enum { CT_AHEAD_SYMBOLS = 64 };
size_t ct__ahead_symbols(const ct_ahead *a, const char **symbols, size_t most); // each once
void ct__ahead_declare_calls(const ct_ahead *a, ct_text *out);
// The launch's call, for each element of its batch. `operand` writes where its argument lies.
typedef void (*ct_ahead_operand_fn)(const ct_ahead *a, ct_text *out, const ct_launch *l,
                                    uint32_t number);
void ct__ahead_call(const ct_ahead *a, ct_text *out, const ct_launch *l,
                    ct_ahead_operand_fn operand);

// The texts of the two files.
bool ct__ahead_texts(const ct_ahead *a, ct_text *header, ct_text *source);

#endif
