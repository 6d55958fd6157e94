// Custom ops of plugins (cotan/custom_op.h): the records that their definitions become.
#ifndef COTAN_OPS_CUSTOM_OP_H
#define COTAN_OPS_CUSTOM_OP_H

#include "cotan/custom_op.h"
#include "ops/rules.h"

// An expression as nodes, operands before their users; the last one is the result.
typedef struct ct_expression {
    struct ct_expression_node {
        const ct_opdef *op; // NULL: an operand, or a number
        int operand;        // -1: none
        double number;
        int n, in[3]; // operands of op
        bool is_bool;
    } * v;
    size_t n, cap;
} ct_expression;

// Axes of operands and results, by the names of their sizes.
enum { CT_SIGNATURE_SIZES = 32, CT_SIGNATURE_AXES = 8 };
typedef struct ct_signature {
    struct ct_signature_array {
        int rank, size[CT_SIGNATURE_AXES]; // indices into `sizes`
        ct_dtype dtype;                    // CT_DEFAULT: that of the others
    } in[CT_CUSTOM_OP_MAX_OPERANDS], out[CT_CUSTOM_OP_MAX_RESULTS];
    int n_in, n_out, n_sizes;
    struct ct_signature_size {
        char name[24];
        int64_t value; // -1: not given
        int number;    // index among the numbers of the call; -1: none
    } sizes[CT_SIGNATURE_SIZES];
} ct_signature;

struct ct_op {
    ct_opdef def;
    char *name, *doc, *operands, *numbers, *symbol; // numbers, operands: "" if there are none
    const char *operand_names[CT_CUSTOM_OP_MAX_OPERANDS + 1],
        *number_names[CT_CUSTOM_OP_MAX_ATTRIBUTES + 1];
    char *split_operands, *split_numbers; // the buffers that these point into
    int n_numbers;
    ct_signature signature; // for an op defined by a text: only the numbers of operands and results
    ct_dtypes dtypes;
    ct_expression expression;
    ct_op_rule_fn body, jvp, vjp;
    ct_op_compute_fn compute;
    void *user;
    ct_op_properties about;
    struct ct_op *next;
};
static inline const ct_op *ct__outside(const ct_node *node) {
    return (const ct_op *)(const void *)((const char *)node->op - offsetof(ct_op, def));
}

#define OUTSIDE_ATTRS(F, op) F(op, ints, numbers)
CT_ATTRS_SHARED(outside, OUTSIDE_ATTRS);

// Parses a definition's text, or signature, into op, whose names are already set. Returns false if an error
// was reported.
bool ct__read_expression(ct_op *op, const char *text, ct_err *err, ct_loc here);
bool ct__read_signature(ct_op *op, const char *signature, ct_err *err, ct_loc here);
bool ct__expression_body(ct_rule *r); // for an op defined by a text
bool ct__signature_infer(ct_call *call);
// Fills in the record of an op that has been parsed, without its rules.
void ct__outside_record(ct_op *op);
// Returns the dtype to which operands without a fixed dtype are promoted.
ct_dtype ct__outside_dtype(const ct_op *op, const ct_type *const *in);

// Of the texts that describe an op: skips spaces, and the token if it follows them.
void ct__skip_spaces(const char **at);
bool ct__accept(const char **at, const char *token);

#endif
