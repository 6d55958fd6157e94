// Tracing of C functions into bodies, and recording (inlining) of bodies in other places.
#ifndef COTAN_TRANSFORM_TRACE_H
#define COTAN_TRANSFORM_TRACE_H

#include "transform/transform.h"

// A C function, and how error messages refer to it.
typedef struct ct_traced {
    const char *op;
    ct_fn f;
    void *user;
    const char *unset;      // "f did not set output": a number follows
    const ct_val *operands; // (n_operands) values that the first parameters stand for, if known
    size_t n_operands;
} ct_traced;
// Calls f on parameters of the given types in a frame of its own; the nodes that it records are the body. A
// type is weak if a bare number replaces the parameter when the body is inlined. Outer tensors that it uses
// become further parameters (body->captured_from). Returns NULL with the error in the context.
ct_body *ct__trace(ct_ctx *ctx, const ct_traced *function, const ct_type *const *in, size_t n_in,
                   size_t n_out, ct_loc here);
// The two halves of ct__trace. The frame of the body starts at ctx->depth; it and all frames inside it are
// popped by the second half, which resolves the outputs and makes the canonical record. The list of captured
// values is moved into the arena.
ct_body *ct__trace_begin(ct_ctx *ctx, const ct_type *const *in, size_t n_in, ct_loc here);
// the same in an arena of the caller
ct_body *ct__trace_begin_in(ct_ctx *ctx, ct_arena *arena, const ct_type *const *in, size_t n_in,
                            ct_loc here);
ct_body *ct__trace_end(ct_ctx *ctx, ct_body *body, const char *op, const ct_tensor *out,
                       size_t n_out, size_t depth);
// Records the body's nodes in the innermost frame, with `args` for its parameters followed by its captured
// values.
bool ct__inline(ct_ctx *ctx, const ct_body *body, const ct_tensor *args, ct_tensor *out);
// Returns a copy of the body in the innermost frame's arena, with its compositions expanded.
ct_body *ct__body_clone(ct_ctx *ctx, const ct_body *body);

// Returns a copy of the body on parameters of its own in the innermost frame's arena, with transforms
// expanded.
ct_body *ct__body_without_transforms(ct_ctx *ctx, const ct_body *body);
// Replaces the bodies in a node's attributes, which ct__symbol_attrs copied, by copies for the plan, in which
// the dynamic sizes of all computed values are symbols. Returns false with the error in the context.
bool ct__plan_bodies(ct_ctx *ctx, const ct_opdef *op, void *attrs);

// Called for a copy of the node in the plan, with to[k] for output k. An axis that was static with size 1
// when the node was recorded is 1 in every run of the plan, since it may broadcast. Returns false if out of
// memory.
bool ct__plan_ones(ct_ctx *ctx, const ct_node *node, const ct_val *to);

// Records a body in the innermost frame for a batch of `size` (CT_DYN marks a dynamic one): the `batched`
// ones of args and of the results have it as axis 0, the others are the same for all elements.
bool ct__inline_batched(ct_ctx *ctx, const ct_body *body, int64_t size, const ct_tensor *args,
                        const bool *batched, ct_tensor *out, bool *out_batched);

// Checks that precede every call of a user's function: the output array, without which nothing can be
// poisoned, and the list of operands.
bool ct__call_given(ct_ctx *ctx, const char *op, const ct_tensor *in, size_t n_in,
                    const ct_tensor *out, size_t n_out, ct_loc here);
void ct__poison_all(ct_ctx *ctx, ct_tensor *out, size_t n_out, ct_loc here);
// Returns the operands' types, and stores the operands in `to`. Returns NULL if one is invalid; the error is
// recorded.
const ct_type **ct__operand_types(ct_ctx *ctx, ct_traced *to, const ct_tensor *in, size_t n_in,
                                  ct_loc here);
// Returns an array of the operands, what the body captured, and capacity for `more` tensors. Returns NULL if
// out of memory, recorded.
ct_tensor *ct__with_captured(ct_ctx *ctx, const ct_body *body, const ct_tensor *in, size_t n_in,
                             size_t more);
// Returns the node, or a node in a function that it owns, that moves a tensor to another device; NULL if
// there is none.
const ct_node *ct__moves(const ct_node *node);
// Returns true if no node of the body of a loop does so, else false with an error at the line of that node.
bool ct__stays_in_place(ct_ctx *ctx, const char *op, const ct_body *body);
// A shape rule: the outputs are those of a body.
bool ct__infer_body(ct_call *call, const ct_body *body);
// For rules of nodes that transform a function: traces `f` on parameters in place of args, so that args which
// are the same tensor remain distinct, and inlines the result on args.
bool ct__on_parameters(const ct_node *node, ct_fn f, const void *user, const ct_tensor *args,
                       size_t n, ct_tensor *out, size_t n_out);

// A forward rule that the user wrote. It is recorded on parameters, its bodies are expanded, since only ops
// have transpose rules, and its results must be linear in the tangents.
typedef struct ct_forward_rule {
    const ct_node *node;
    // n_numbers: the node's last operands (captured numbers), which the rule gets after the tangents
    size_t n_in, n_out, n_numbers;
    // Records the rule. There are tangents of all operands, zeros for constant ones. Returns false with the
    // error in the context.
    bool (*record)(const ct_node *node, const ct_tensor *in, const ct_tensor *outs,
                   const ct_tensor *tangents, ct_tensor *slopes);
} ct_forward_rule;
bool ct__apply_forward_rule(ct_rule *r, const ct_forward_rule *rule);

// ct_jvp and ct_value_and_grad with the name of the function that the user called (derivatives.c). what: the
// user's word for a tangent.
void ct__jvp(const char *op, const char *what, ct_fn f, void *user, const ct_tensor *in,
             size_t n_in, ct_tensor *out, size_t n_out, const ct_tensor *tangents,
             ct_tensor *out_tangents, ct_loc here);
void ct__value_and_grad(const char *op, ct_fn f, void *user, const ct_tensor *in, size_t n_in,
                        ct_tensor *out, size_t n_out, ct_tensor *grads, ct_loc here);

// Attributes of the ops that own a traced body.
#define CALL_ATTRS(F, op) F(op, body, body)
CT_ATTRS_SHARED(call, CALL_ATTRS);
#endif
