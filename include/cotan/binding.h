// For bindings to languages with a collector: values that live as long as they are named.
#ifndef COTAN_BINDING_H
#define COTAN_BINDING_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

// The current context, which has no scope yet, gets one that lasts as long as itself: a rolling one. What
// is recorded in it goes when it is neither pinned (ct_pin) nor needed by anything recorded that is.
// A read runs what is pinned, and has no value yet, as one plan with what is read; then it has one.
// Bindings pin what their language names, one pin a handle, and unpin it when it is collected: what
// is not pinned when a plan runs can be fused away. Inside of functions that are being traced, and
// of variables, pins mean nothing. An error takes along what hangs on it alone: other values are computed when they
// are asked for, and assignments are made that can be; after an interruption all stays pending, as if the
// run had never begun. False: see ct_error_text.
CT_API bool ct_rolling_begin_at(ct_loc here);
#define ct_rolling_begin() ct_rolling_begin_at(CT_HERE)
// Nodes recorded since the last run; reading when they are many keeps plans small.
CT_API size_t ct_rolling_pending(void);
// After an interruption: assignments that are pending are not made, but for each variable's first, so that the next run
// does not take up what was interrupted.
CT_API void ct_rolling_give_up(void);

// Several threads, each with a context of its own. A value that was evaluated may be pinned in another
// context, which then has a value of its own in the same memory; meanwhile no thread may run the one it comes
// from. A read of a variable that another context assigned last holds what it found: the next assignment
// writes elsewhere, so what was recorded is not spent.
//
// ct_eval, by a thread that is in the middle of other calls to this context, or for such a one: nothing of what
// is recorded is given back before ct_rolling_turn, or before the next read that is none of this kind.
CT_API bool ct_rolling_visit_at(const ct_tensor *t, size_t n, ct_loc here);
#define ct_rolling_visit(t, n) ct_rolling_visit_at((t), (n), CT_HERE)
CT_API void ct_rolling_turn(void);        // if one is due
CT_API bool ct_is_evaluated(ct_tensor t); // is no variable, and a read of it runs nothing
// The context in which an assignment of the variable is pending, or running; NULL: there is none.
CT_API ct_ctx *ct_assigning(ct_tensor variable);

// History, in a rolling scope. What is computed of a tracked value is tracked, by ops that have
// derivatives: it keeps what a gradient needs, after it was evaluated too, until ct_backward uses it.
//
// t as a tracked value of its own, at which histories begin.
CT_API ct_tensor ct_track_at(ct_tensor t, ct_loc here);
#define ct_track(t) ct_track_at((t), CT_HERE)
CT_API void ct_track_variable(ct_tensor variable, bool tracked); // from its next read on
CT_API bool ct_is_tracked(ct_tensor t);                          // or a tracked variable
// The op that computed it, "mul"; NULL: t is no tensor.
CT_API const char *ct_op_name(ct_tensor t);
CT_API bool ct_is_read_ahead(ct_tensor variable); // what is assigned to it, and pending, was read
// Is there, in the context's rolling scope, what was made of it and has a history?
CT_API bool ct_is_followed(ct_tensor t);
// The tracked values and variables at which the history behind `loss` begins: their number, of which at most
// `room` are written to `leaves`. 0 and an error where a part of that history was used, or there is none.
CT_API size_t ct_tracked_leaves_at(ct_tensor loss, ct_tensor *leaves, size_t room, ct_loc here);
#define ct_tracked_leaves(loss, leaves, room)                                                      \
    ct_tracked_leaves_at((loss), (leaves), (room), CT_HERE)
// Does anything that this context has recorded, a history maybe, read a variable of the set? Then it is
// too early to free it.
CT_API bool ct_params_read(const ct_params *params);
// Which of wrt the history behind `loss` reaches.
CT_API void ct_reached_at(ct_tensor loss, const ct_tensor *wrt, size_t n, bool *reached,
                          ct_loc here);
#define ct_reached(loss, wrt, n, reached) ct_reached_at((loss), (wrt), (n), (reached), CT_HERE)
// ct_grad, whose results are not tracked, unless `create_graph`; and unless `retain_graph` the history
// behind the loss is given back. What the history reaches and the loss does not depend on has zeros.
CT_API void ct_backward_at(ct_tensor loss, const ct_tensor *wrt, size_t n, ct_tensor *grads,
                           bool retain_graph, bool create_graph, ct_loc here);
#define ct_backward(loss, wrt, n, grads, retain_graph, create_graph)                               \
    ct_backward_at((loss), (wrt), (n), (grads), (retain_graph), (create_graph), CT_HERE)

// Rules of the binding's own, in the middle of histories. Values from which gradients go on as their
// owner says: to ct_grad they are the operands `values`; to ct_cut they are a place where it stops. Their
// history is that of `inputs` and, where they have one, of the values. An owner is given back by
// ct_marks_ended once nothing can come there any more.
CT_API void ct_mark_at(const ct_tensor *values, size_t n, const ct_tensor *inputs, size_t n_inputs,
                       void *owner, ct_tensor *out, ct_loc here);
#define ct_mark(values, n, inputs, n_inputs, owner, out)                                           \
    ct_mark_at((values), (n), (inputs), (n_inputs), (owner), (out), CT_HERE)
CT_API size_t ct_marks(void); // alive in the current context
// Owners of marks that have gone, at most `room` of them: how many. Once each.
CT_API size_t ct_marks_ended(void **owners, size_t room);
// The histories behind n roots up to the newest mark in them, or the newest of the targets: all that
// depends on it lies in front of the cut. Gradients of the roots `inside`, with respect to `behind`
// and `leaves`, are what they need of that part; all other roots, the results of the mark among
// them, wait for the next cut. With targets only what leads to one of them counts. Freed by ct_cut_free.
typedef struct ct_cut {
    void *owner;         // of the mark; NULL: a target, or there is neither
    ct_tensor *at;       // (n_at) the mark's results, or the target
    ct_tensor *operands; // (n_operands) the mark's values, then its inputs
    ct_tensor *inside;   // (n_inside) of the roots
    ct_tensor *behind;   // (n_behind) values at the cut that have a history
    ct_tensor *leaves;   // (n_leaves) where histories begin
    size_t n_at, n_operands, n_inside, n_behind, n_leaves;
    void *memory;
} ct_cut;
CT_API CT_MUST_USE bool ct_cut_at(const ct_tensor *roots, size_t n, const ct_tensor *targets,
                                  size_t n_targets, ct_cut *cut, ct_loc here);
CT_API void ct_cut_free(ct_cut *cut);
// A number whose gradient with respect to t is `cotangent`, whatever that is made of.
CT_API ct_tensor ct_paired_at(ct_tensor t, ct_tensor cotangent, ct_loc here);
#define ct_paired(t, cotangent) ct_paired_at((t), (cotangent), CT_HERE)
// The history behind t is used: what ct_backward does to that of its loss.
CT_API void ct_use_history_at(ct_tensor t, ct_loc here);
#define ct_use_history(t) ct_use_history_at((t), CT_HERE)
// t once the others are computed. What is computed from it is another value than what is computed from t,
// and is computed later: so a value need not be stored, but can be made again.
CT_API ct_tensor ct_after_at(ct_tensor t, const ct_tensor *others, size_t n, ct_loc here);
#define ct_after(t, others, n) ct_after_at((t), (others), (n), CT_HERE)

// Memory that is lent. The value's elements on the host, row-major, not to be written: they stay where
// they are, whatever becomes of t, until ct_loan_end, from any thread. They are the tensor's own where the host
// can read them there, and t is no variable. NULL: see ct_error_text.
typedef struct ct_loan ct_loan;
CT_API CT_MUST_USE const void *ct_borrow_at(ct_tensor t, ct_loan **loan, ct_loc here);
#define ct_borrow(t, loan) ct_borrow_at((t), (loan), CT_HERE)
CT_API void ct_loan_end(ct_loan *loan); // NULL: nothing
// The elements of a value that is there already, is no variable and has no history, while t is named; NULL
// of any other, of another device, and where the host cannot read them in their place. Nothing runs.
CT_API const void *ct_at_hand(ct_tensor t);
typedef void (*ct_release_fn)(void *user);
// x, for which its line says where it lies: what is made of numbers alone (zeros) goes to other devices no more.
CT_API ct_tensor ct_here_at(ct_tensor x, ct_loc here);
// ct_from without a copy, where the device can read the host's memory and `data` is aligned for an
// element: what is computed sees later writes. `release` is called once, on any thread, when nothing
// needs the memory any more; where the call copies or fails that is before it returns.
CT_API ct_tensor ct_adopt_at(const void *data, ct_dtype dtype, ct_ints dims, ct_release_fn release,
                             void *user, ct_loc here);
#define ct_adopt(data, dtype, dims, release, user)                                                 \
    ct_adopt_at((data), (dtype), (dims), (release), (user), CT_HERE)

// The key that ct_random_fold_in gives of ct_random_key(seed) and a number, as a leaf that no kernel computes: for
// generators that hold a seed and a counter. Of a number beyond 32 bits the upper ones are folded in after the lower.
CT_API ct_tensor ct_random_key_folded_at(int64_t seed, uint64_t number, ct_loc here);
#define ct_random_key_folded(seed, number) ct_random_key_folded_at((seed), (number), CT_HERE)

// Functions of another language are traced before it is known how many results they have: between
// begin and end, what is recorded is the function's, of the parameters that begin gives. Then
// ct_function_call, with the function as `user`, stands for it wherever a ct_fn is asked for, in the
// scope in which it was traced and up to the next run. NULL, false: see ct_error_text; begin must
// then not be ended. A function that raises is ended with `n_out` 0 and `out` NULL.
typedef struct ct_function ct_function;
CT_API ct_function *ct_function_begin_at(const ct_dtype *dtypes, const ct_ints *dims, size_t n_in,
                                         ct_tensor *params, ct_loc here);
CT_API CT_MUST_USE bool ct_function_end_at(ct_function *function, const ct_tensor *out,
                                           size_t n_out, ct_loc here);
CT_API void ct_function_call(const ct_tensor *in, ct_tensor *out, void *function); // a ct_fn
// The same of a function that lasts: it can be called in any later step, until ct_function_free, and
// what it uses from outside is as it was (numbers and leaves alone). False, and nothing happens:
// what was recorded by it may still need it.
CT_API ct_function *ct_lasting_begin_at(const ct_dtype *dtypes, const ct_ints *dims, size_t n_in,
                                        ct_tensor *params, ct_loc here);
CT_API bool ct_function_free(ct_function *function); // NULL: nothing

#ifdef __cplusplus
}
#endif

#endif
