// Ahead-of-time compilation of a plan to C: the arguments of the C function, and the two files.
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
    const char *name;      // in C, unique; NULL until it has one
    const char *user_name; // name of the variable, metric or op operand, or NULL
    const ct_type *type;
    ct_loc here;
    const ct_var *var; // VARIABLE
    bool written;
    bool embedded;  // its bytes are in the source file, and it is no member
    uint64_t value; // SCALAR: its bits when the file is written
} ct_member;

typedef struct ct_ahead {
    ct_ctx *ctx;
    ct_executor *engine;
    ct_plan *plan;
    const ct_root *roots; // (plan->n_roots) the executor's
    const ct_compile_args *args;
    const char *name; // of the function: the last part of the path
    ct_arena arena;
    ct_member *members; // (n_members)
    size_t n_members;
    uint32_t *leaf_member, *root_member; // (n_leaves), (n_roots) index of each one's member
    uint32_t scalars;                    // index of the first scalar's member; the others follow
    bool *used;                          // (program.n_bufs) by a launch
} ct_ahead;

// Fills in the members and names them. False: the error is in the context.
bool ct__ahead_members(ct_ahead *a);
// True if this is a valid name of a function or a member in C and C++.
bool ct__ahead_is_valid_name(const char *name);
// the headers of the C library declare a function of this name
bool ct__ahead_is_declared(const char *name);
// Makes an identifier from the user's name and returns its length: "h.0.ln_1.weight" gives h_0_ln_1_weight.
enum { CT_AHEAD_IDENTIFIER = 42 };
size_t ct__ahead_make_identifier(const char *user_name, char name[CT_AHEAD_IDENTIFIER]);
bool ct__ahead_report_name(ct_err *err, ct_code code, ct_loc here,
                           const char *name); // returns false
#define CT_AHEAD_PRELUDE "// ---- what kernels are written with"

// Custom ops: reports an error if the plan calls a function that has no symbol.
bool ct__ahead_check_calls(const ct_ahead *a);
enum { CT_AHEAD_SYMBOLS = 64 };
size_t ct__ahead_symbols(const ct_ahead *a, const char **symbols, size_t most); // each once
void ct__ahead_declare_calls(const ct_ahead *a, ct_text *out);
// Writes the call of a launch, for each element of its batch. `operand` writes the address of an argument.
typedef void (*ct_ahead_operand_fn)(const ct_ahead *a, ct_text *out, const ct_launch *l,
                                    uint32_t number);
void ct__ahead_call(const ct_ahead *a, ct_text *out, const ct_launch *l,
                    ct_ahead_operand_fn operand);

// Writes the two files to texts.
bool ct__ahead_write(const ct_ahead *a, ct_text *header, ct_text *source);

#endif
