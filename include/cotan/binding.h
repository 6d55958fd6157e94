// For bindings to garbage-collected languages: values that live as long as a handle refers to them.
#ifndef COTAN_BINDING_H
#define COTAN_BINDING_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

// Gives the current context, which must have no scope yet, a rolling scope, which lasts as long as
// the context. What is recorded in it is freed when it is neither pinned (ct_pin) nor needed by
// anything recorded that is. A read runs, as one plan, the tensor that is read and all pinned
// tensors without a value. Bindings hold one pin per handle of their language and unpin it when the
// handle is collected: what is not pinned when a plan runs can be fused away. Pins have no effect
// inside functions that are being traced and on variables. An error affects only what depends on
// it: other values are computed when they are read, and assignments that do not depend on it are
// made. After an interruption everything stays pending, as if the run had never begun. False: see
// ct_error_text.
CT_API bool ct_rolling_begin_at(ct_loc here);
#define ct_rolling_begin() ct_rolling_begin_at(CT_HERE)
// Returns the number of nodes recorded since the last run. Bindings read before there are many, to
// keep plans small.
CT_API size_t ct_rolling_pending(void);
// Discards pending assignments after an interruption, except the first one of each variable, so
// that the next run does not resume what was interrupted.
CT_API void ct_rolling_discard_pending(void);

// Several threads, each with its own context. A value that was evaluated may be pinned in another
// context, which then has a value of its own in the same memory; no thread may run the context of
// the original meanwhile. A read of a variable that another context assigned last keeps what it
// found: the next assignment writes to other memory, so that what was recorded does not become
// CT_E_OVERWRITTEN.
//
// ct_eval for a thread that is in the middle of other calls to this context, or on behalf of such a
// thread: nothing recorded is freed before ct_rolling_free_deferred, or before the next read that
// is not of this kind.
CT_API bool ct_rolling_eval_at(const ct_tensor *t, size_t n, ct_loc here);
#define ct_rolling_eval(t, n) ct_rolling_eval_at((t), (n), CT_HERE)
CT_API void ct_rolling_free_deferred(void); // frees what ct_rolling_eval deferred, if anything
CT_API bool ct_is_evaluated(ct_tensor t);   // true if not a variable and a read runs nothing
// Returns the context in which an assignment of the variable is pending or running; NULL: none.
CT_API ct_ctx *ct_assigning_ctx(ct_tensor variable);

// History (the autograd graph), in a rolling scope. A result of ops that have derivatives is
// tracked if an operand is: it keeps what a gradient needs, also after it was evaluated, until
// ct_backward consumes it.
//
// Returns t as a tracked value of its own, a leaf at which histories begin.
CT_API ct_tensor ct_track_at(ct_tensor t, ct_loc here);
#define ct_track(t) ct_track_at((t), CT_HERE)
CT_API void ct_track_variable(ct_tensor variable, bool tracked); // takes effect at its next read
CT_API bool ct_is_tracked(ct_tensor t); // true for tracked values and tracked variables
// Returns the name of the op that computed t, "mul"; NULL: t is not a tensor.
CT_API const char *ct_op_name(ct_tensor t);
// True if a pending assigned value of the variable was read.
CT_API bool ct_is_pending_value_read(ct_tensor variable);
// True if the context's rolling scope has a value that was computed from t and has a history.
CT_API bool ct_has_tracked_dependents(ct_tensor t);
// Finds the tracked values and variables at which the history of `loss` begins. Returns their
// number and writes at most `capacity` of them to `leaves`. Returns 0 with an error if a part of
// that history was consumed, or if there is none.
CT_API size_t ct_tracked_leaves_at(ct_tensor loss, ct_tensor *leaves, size_t capacity, ct_loc here);
#define ct_tracked_leaves(loss, leaves, capacity)                                                  \
    ct_tracked_leaves_at((loss), (leaves), (capacity), CT_HERE)
// True if anything that this context has recorded, for example a history, read a variable of the
// set, so that it is too early to free the set.
CT_API bool ct_params_in_use(const ct_params *params);
// Sets reaches[i] if the history of `loss` reaches wrt[i].
CT_API void ct_history_reaches_at(ct_tensor loss, const ct_tensor *wrt, size_t n, bool *reaches,
                                  ct_loc here);
#define ct_history_reaches(loss, wrt, n, reaches)                                                  \
    ct_history_reaches_at((loss), (wrt), (n), (reaches), CT_HERE)
// ct_grad for histories: the results are tracked only with `create_graph`, and the history of the
// loss is freed unless `retain_graph`. The gradient is zeros for what the history reaches but the
// loss does not depend on.
CT_API void ct_backward_at(ct_tensor loss, const ct_tensor *wrt, size_t n, ct_tensor *grads,
                           bool retain_graph, bool create_graph, ct_loc here);
#define ct_backward(loss, wrt, n, grads, retain_graph, create_graph)                               \
    ct_backward_at((loss), (wrt), (n), (grads), (retain_graph), (create_graph), CT_HERE)

// Hooks: gradient rules of the binding's own inside histories. ct_record_hook records a hook of an
// owner; `out` are values from which the owner continues the gradient. ct_grad treats them as their
// operands `values`; ct_history_cut_at stops at them. Their history is that of `inputs` and, if
// they have one, of the values. ct_ended_hooks returns an owner when no gradient can reach its hook
// any more.
CT_API void ct_record_hook_at(const ct_tensor *values, size_t n, const ct_tensor *inputs,
                              size_t n_inputs, void *owner, ct_tensor *out, ct_loc here);
#define ct_record_hook(values, n, inputs, n_inputs, owner, out)                                    \
    ct_record_hook_at((values), (n), (inputs), (n_inputs), (owner), (out), CT_HERE)
CT_API size_t ct_hook_count(void); // number of live hooks in the current context
// Writes the owners of hooks that have ended, at most `capacity` of them, and returns their number.
// Each owner is returned once.
CT_API size_t ct_ended_hooks(void **owners, size_t capacity);
// The part of the histories of n roots after the latest hook in them, or after the latest of the
// targets: everything that depends on it is after the cut. The gradients of the roots inside_roots
// with respect to frontier and leaves are what they need of that part; all other roots, including
// the results of the hook, are left for the next cut. With targets only paths that lead to one of
// them count. Free it with ct_history_cut_free.
typedef struct ct_history_cut {
    void *owner;             // of the hook; NULL: a target, or neither
    ct_tensor *boundary;     // (n_boundary) results of the hook, or the target
    ct_tensor *operands;     // (n_operands) values of the hook, then its inputs
    ct_tensor *inside_roots; // (n_inside_roots) roots in that part
    ct_tensor *frontier;     // (n_frontier) values at the cut that have a history
    ct_tensor *leaves;       // (n_leaves) leaves at which histories begin
    size_t n_boundary, n_operands, n_inside_roots, n_frontier, n_leaves;
    void *memory;
} ct_history_cut;
CT_API CT_MUST_USE bool ct_history_cut_at(const ct_tensor *roots, size_t n,
                                          const ct_tensor *targets, size_t n_targets,
                                          ct_history_cut *cut, ct_loc here);
CT_API void ct_history_cut_free(ct_history_cut *cut);
// Returns a scalar whose gradient with respect to t is `cotangent`, whatever that was computed
// from.
CT_API ct_tensor ct_surrogate_loss_at(ct_tensor t, ct_tensor cotangent, ct_loc here);
#define ct_surrogate_loss(t, cotangent) ct_surrogate_loss_at((t), (cotangent), CT_HERE)
// Consumes the history of t, as ct_backward does with that of its loss.
CT_API void ct_consume_history_at(ct_tensor t, ct_loc here);
#define ct_consume_history(t) ct_consume_history_at((t), CT_HERE)
// Returns t with a control dependency on the others: it is available after they are computed. What
// is computed from it is a different value from what is computed from t, and is computed later, so
// that a value can be recomputed instead of stored.
CT_API ct_tensor ct_control_dependency_at(ct_tensor t, const ct_tensor *others, size_t n,
                                          ct_loc here);
#define ct_control_dependency(t, others, n) ct_control_dependency_at((t), (others), (n), CT_HERE)

// Memory that is borrowed: the elements of t on the host, in row-major order and read-only. They
// stay valid, whatever happens to t, until ct_borrow_end, which any thread may call. They are the
// memory of the tensor itself if the host can read it and t is not a variable, else a copy. NULL:
// see ct_error_text.
typedef struct ct_borrowed ct_borrowed;
CT_API CT_MUST_USE const void *ct_borrow_at(ct_tensor t, ct_borrowed **borrowed, ct_loc here);
#define ct_borrow(t, borrowed) ct_borrow_at((t), (borrowed), CT_HERE)
CT_API void ct_borrow_end(ct_borrowed *borrowed); // NULL is ignored
// Returns the elements, without a copy and while a handle refers to t, if t has a value, is not a
// variable and has no history; NULL for any other tensor, on another device, and if the host cannot
// read the memory. Runs nothing.
CT_API const void *ct_current_data(ct_tensor t);
typedef void (*ct_release_fn)(void *user);
// Fixes the device of x: what is made of numbers alone (zeros) cannot be used on other devices
// after that.
CT_API ct_tensor ct_commit_device_at(ct_tensor x, ct_loc here);
// ct_from without a copy, if the device can read the host's memory and `data` is aligned for an
// element: computations see later writes to it. `release` is called once, on any thread, when
// nothing needs the memory any more; if the call copies or fails, that is before it returns.
CT_API ct_tensor ct_adopt_at(const void *data, ct_dtype dtype, ct_ints dims, ct_release_fn release,
                             void *user, ct_loc here);
#define ct_adopt(data, dtype, dims, release, user)                                                 \
    ct_adopt_at((data), (dtype), (dims), (release), (user), CT_HERE)

// Returns the key that ct_random_fold_in makes from ct_random_key(seed) and a number, as a leaf
// that no kernel computes: for generators that hold a seed and a counter. If the number has more
// than 32 bits, the lower ones are folded in first, then the upper ones.
CT_API ct_tensor ct_random_key_folded_at(int64_t seed, uint64_t number, ct_loc here);
#define ct_random_key_folded(seed, number) ct_random_key_folded_at((seed), (number), CT_HERE)

// Functions of another language are traced before the number of their results is known: what is
// recorded between begin and end belongs to the function, whose parameters begin returns. Then
// ct_function_call, with the function as `user`, can be passed as a ct_fn in the scope in which it
// was traced, until the next run. NULL, false: see ct_error_text; if begin failed, end must not be
// called. A function that raises an exception is ended with `n_out` 0 and `out` NULL.
typedef struct ct_function ct_function;
CT_API ct_function *ct_function_begin_at(const ct_dtype *dtypes, const ct_ints *dims, size_t n_in,
                                         ct_tensor *params, ct_loc here);
CT_API CT_MUST_USE bool ct_function_end_at(ct_function *function, const ct_tensor *out,
                                           size_t n_out, ct_loc here);
CT_API void ct_function_call(const ct_tensor *in, ct_tensor *out, void *function); // a ct_fn
// The same for a function that persists: it can be called in any later step until ct_function_free,
// and the outside tensors that it uses (only numbers and leaves) keep the values that they had.
// ct_function_free returns false and does nothing while recorded nodes may still need the function.
CT_API ct_function *ct_function_begin_persistent_at(const ct_dtype *dtypes, const ct_ints *dims,
                                                    size_t n_in, ct_tensor *params, ct_loc here);
CT_API bool ct_function_free(ct_function *function); // NULL is ignored

#ifdef __cplusplus
}
#endif

#endif
