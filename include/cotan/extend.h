// Ops from outside: a program, or a shared library that is loaded at run time, brings an op of its own.
// It is recorded, differentiated, batched, compiled and written ahead of time like the library's.
#ifndef COTAN_EXTEND_H
#define COTAN_EXTEND_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ct_op ct_op;

enum { CT_OUTSIDE_OPERANDS = 8, CT_OUTSIDE_RESULTS = 8, CT_OUTSIDE_NUMBERS = 8 }; // at most

// Elements on the host, dense and row-major, as a function of C sees them.
typedef struct ct_op_array {
    void *data;
    ct_dtype dtype;
    int rank;
    const int64_t *dim; // (rank)
} ct_op_array;
// Computes results from operands, which it does not write to. Of a batch it is called for one element after the
// other, by several threads at once. NULL: done. Else a sentence, which is the error of the plan, and lives as
// long as the op.
typedef const char *(*ct_op_compute_fn)(const ct_op_array *in, const ct_op_array *out,
                                        const int64_t *numbers, void *user);

// What a rule sees, which records with the public ops. It is called when a plan is made, by any thread.
typedef struct ct_op_rule {
    const ct_tensor *in, *out; // operands; results (NULL: the rule is a body, which makes them)
    const ct_tensor *slopes;   // jvp: tangents of the operands; vjp: cotangents of the results
    ct_tensor *to; // to fill. body: results; jvp: tangents of the results, linear in those of the
                   // operands; vjp: cotangents of the operands. What is left alone is 0.
    const int64_t *numbers;
    void *user;
} ct_op_rule;
typedef void (*ct_op_rule_fn)(const ct_op_rule *rule);

// What an op is. One of text, body and compute says what it gives:
// - text: an element, as an expression of C over the operands' names: "x / (1 + exp(-b * x))". It has numbers,
//   + - * /, comparisons, && || !, ?:, the library's elementwise ops by name (without attributes), and
//   names for parts: "s = 1 / (1 + exp(-x)); s * (1 + x * (1 - s))". It becomes part of kernels.
// - body: it is recorded with other ops, when a plan is made. Becomes part of kernels, too.
// - compute: a function of C, on the host. NaN and infinity are its own affair.
// Gradients: `vjp` goes backwards, `jvp` forwards and, unless there is a vjp, backwards, too. A text or a body needs
// neither; a function without is refused by gradients.
typedef struct ct_op_spec {
    size_t bytes;         // of this struct, as the caller knows it: set by the macro; 0: not said
    const char *name;     // as identifiers of C are
    const char *doc;      // a sentence
    const char *operands; // their names, "q k v": for messages, and for the text
    // Shapes of body and compute. Of each operand and result the last axes, named; in front of these are a
    // batch's, which broadcast: "(t, d), (s, d), (s, v), (t, s)bool -> (t, v)". A name has one size; a whole number
    // is a size; a name that no operand has is one of `numbers`. A dtype behind the axes is what that operand must
    // be; all others have one, to which they are promoted. A text broadcasts its operands.
    const char *signature;
    const char *dtypes; // that operands may be promoted to; NULL: "f32 f64". Of a text: any floats
    // Names of whole numbers that come with each call, as attributes: "window causal".
    const char *numbers;
    const char *text;
    ct_op_rule_fn body;
    ct_op_compute_fn compute;
    // The name of compute, by which C that ct_compile writes calls it; NULL: refused there.
    const char *symbol;
    ct_op_rule_fn jvp, vjp;
    void *user;
    ct_loc here;
} ct_op_spec;

// The op, which lasts as long as the process. What it points to but `user` is copied. A name that is
// there already is another op's from now on, for ct_op_find. NULL: see ct_error_text.
CT_API const ct_op *ct_op_define_with(ct_op_spec spec);
#define ct_op_define(...)                                                                          \
    ct_op_define_with((ct_op_spec){__VA_ARGS__, .bytes = sizeof(ct_op_spec), .here = CT_HERE})
// Loads a shared library, which stays, and calls its `void cotan_ops(void)`, which defines ops. It is compiled with
// -shared -fPIC and linked with nothing: the library's functions are those of the process. False: see ct_error_text.
CT_API CT_MUST_USE bool ct_op_load_at(const char *path, ct_loc here);
#define ct_op_load(path) ct_op_load_at((path), CT_HERE)
CT_API const ct_op *ct_op_find(const char *name); // the newest of that name; NULL: there is none
// The ops that there are, in the order of their definitions: the next after `op` (NULL: the first); NULL: no more.
CT_API const ct_op *ct_op_next(const ct_op *op);
typedef struct ct_op_about {
    const char *name, *doc, *operands, *numbers; // never NULL
    int n_in, n_out, n_numbers;
} ct_op_about;
CT_API const ct_op_about *ct_op_describe(const ct_op *op); // of NULL: NULL

// Records it. numbers: one for each that the op names.
CT_API void ct_op_call_at(const ct_op *op, const ct_tensor *in, size_t n_in, ct_ints numbers,
                          ct_tensor *out, size_t n_out, ct_loc here);
#define ct_op_call(op, in, n_in, numbers, out, n_out)                                              \
    ct_op_call_at((op), (in), (n_in), (numbers), (out), (n_out), CT_HERE)

#ifdef __cplusplus
}
#endif

#endif
