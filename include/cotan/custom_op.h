// Custom ops: a program, or a shared library (plugin) that is loaded at run time, defines an op. It
// is recorded, differentiated, batched, compiled, and exported ahead of time like the ops of the
// library.
#ifndef COTAN_CUSTOM_OP_H
#define COTAN_CUSTOM_OP_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ct_op ct_op;

enum {
    CT_CUSTOM_OP_MAX_OPERANDS = 8,
    CT_CUSTOM_OP_MAX_RESULTS = 8,
    CT_CUSTOM_OP_MAX_ATTRIBUTES = 8
}; // maximum numbers

// A dense, row-major array on the host, as a C function gets it.
typedef struct ct_op_array {
    void *data;
    ct_dtype dtype;
    int rank;
    const int64_t *dim; // (rank)
} ct_op_array;
// Computes results from operands, which it must not write. For a batch it is called for each
// element, by several threads at once. Returns NULL on success, else a sentence that becomes the
// plan's error and must live as long as the op.
typedef const char *(*ct_op_compute_fn)(const ct_op_array *in, const ct_op_array *out,
                                        const int64_t *attributes, void *user);

// The arguments of a rule, which records with the public ops. A rule is called when a plan is made,
// by any thread.
typedef struct ct_op_rule {
    const ct_tensor *in, *out; // operands; results (NULL: the rule is a body, which makes them)
    const ct_tensor *tangents; // jvp: tangents of the operands; vjp: cotangents of the results
    // output. body: results; jvp: tangents of the results, linear in those of the operands; vjp:
    // cotangents of the operands. An entry that is not set is 0.
    ct_tensor *outputs;
    const int64_t *attributes;
    void *user;
} ct_op_rule;
typedef void (*ct_op_rule_fn)(const ct_op_rule *rule);

// The definition of an op. One of expression, body and compute defines its results:
// - expression: a result element as a C expression over the operands' names: "x / (1 + exp(-b *
//   x))". It may use numbers, + - * /, comparisons, && || !, ?:, the library's elementwise ops by
//   name (without attributes), and named intermediate values: "s = 1 / (1 + exp(-x)); s * (1 + x *
//   (1 - s))". It is fused into kernels.
// - body: records the op in terms of other ops when a plan is made. It is fused into kernels, too.
// - compute: a C function that runs on the host. It must handle NaN and infinity itself.
// Gradients: `vjp` is the reverse-mode rule, `jvp` the forward-mode rule and, without a vjp, also
// used in reverse mode. An expression or a body needs neither; gradients of a compute function
// without a rule are an error.
typedef struct ct_op_spec {
    // sizeof this struct, as the caller was compiled; set by the macro; 0: unknown.
    size_t struct_size;
    const char *name;     // a C identifier
    const char *doc;      // a sentence
    const char *operands; // their names, "q k v": for messages, and for the expression
    // Shapes, for body and compute. It names the last axes of each operand and result; the axes
    // before them are batch axes, which broadcast: "(t, d), (s, d), (s, v), (t, s)bool -> (t, v)".
    // A name is one size, an integer is a size, and a name that no operand has is one of
    // `attributes`. A dtype after the axes is required of that operand; all other operands are
    // promoted to a common dtype. The operands of an expression broadcast.
    const char *signature;
    // Dtypes to which operands may be promoted; NULL: "f32 f64", or any float for an expression.
    const char *dtypes;
    // Names of the integer attributes that each call passes: "window causal".
    const char *attributes;
    const char *expression;
    ct_op_rule_fn body;
    ct_op_compute_fn compute;
    // Name of the compute function in the C code that ct_compile writes; NULL: ct_compile refuses
    // the op.
    const char *symbol;
    ct_op_rule_fn jvp, vjp;
    void *user;
    ct_loc here;
} ct_op_spec;

// Defines an op until the process ends. Everything it points to, except `user`, is copied. If there
// is an op of that name already, ct_op_find returns the new one from now on. NULL: see
// ct_error_text.
CT_API const ct_op *ct_op_define_with(ct_op_spec spec);
#define ct_op_define(...)                                                                          \
    ct_op_define_with((ct_op_spec){__VA_ARGS__, .struct_size = sizeof(ct_op_spec), .here = CT_HERE})
// Loads a shared library, which stays loaded, and calls its `void cotan_ops(void)`, which defines
// ops. The library is compiled with -shared -fPIC and linked with nothing: it uses Cotan's
// functions in the process. False: see ct_error_text.
CT_API CT_MUST_USE bool ct_op_load_at(const char *path, ct_loc here);
#define ct_op_load(path) ct_op_load_at((path), CT_HERE)
CT_API const ct_op *ct_op_find(const char *name); // the latest op of that name; NULL: none
// Iterates over the ops in the order of their definition: returns the one after `op` (NULL: the
// first); NULL: no more.
CT_API const ct_op *ct_op_next(const ct_op *op);
typedef struct ct_op_properties {
    const char *name, *doc, *operands, *attributes; // never NULL
    int n_in, n_out, n_attributes;
} ct_op_properties;
CT_API const ct_op_properties *ct_op_info(const ct_op *op); // NULL for NULL

// Records a call of the op. attributes: one integer for each attribute name of the op.
CT_API void ct_op_call_at(const ct_op *op, const ct_tensor *in, size_t n_in, ct_ints attributes,
                          ct_tensor *out, size_t n_out, ct_loc here);
#define ct_op_call(op, in, n_in, attributes, out, n_out)                                           \
    ct_op_call_at((op), (in), (n_in), (attributes), (out), (n_out), CT_HERE)

#ifdef __cplusplus
}
#endif

#endif
