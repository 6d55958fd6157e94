// Functions of C traced into bodies, and bodies recorded again in other places.
#ifndef COTAN_TRANSFORM_TRACE_H
#define COTAN_TRANSFORM_TRACE_H

#include "transform/transform.h"

// A function of C, and how errors speak of it.
typedef struct ct_traced {
    const char *op;
    ct_fn f;
    void *user;
    const char *unset;      // "f did not set output": a number follows
    const ct_val *operands; // (n_operands) what the first parameters stand for, where known
    size_t n_operands;
} ct_traced;
// Calls f on parameters of the given types in a frame of its own; what it records is the body. A
// type is weak where a bare number takes the parameter's place when the body is recorded again.
// Outer tensors that it uses become further parameters (body->captured_from). NULL: the error
// stands in the context.
ct_body *ct__trace(ct_ctx *ctx, const ct_traced *function, const ct_type *const *in, size_t n_in,
                   size_t n_out, ct_loc here);
// The two halves of it. The frame of the body, which is begun at ctx->depth, and all inside of it end
// with the second half: it resolves the outputs and makes the record; what was captured moves into
// the arena.
ct_body *ct__trace_begin(ct_ctx *ctx, const ct_type *const *in, size_t n_in, ct_loc here);
ct_body *ct__trace_begin_in(ct_ctx *ctx, ct_arena *arena, const ct_type *const *in, size_t n_in,
                            ct_loc here); // the same in an arena of the caller's
ct_body *ct__trace_end(ct_ctx *ctx, ct_body *body, const char *op, const ct_tensor *out,
                       size_t n_out, size_t depth);
// Records the body's nodes in the innermost frame, with `args` for its parameters and captured
// values in this order.
bool ct__inline(ct_ctx *ctx, const ct_body *body, const ct_tensor *args, ct_tensor *out);
// The same body laid into the innermost frame's arena, its compositions expanded.
ct_body *ct__body_clone(ct_ctx *ctx, const ct_body *body);

// The same body on parameters of its own in the innermost frame's arena, transforms expanded.
ct_body *ct__body_without_transforms(ct_ctx *ctx, const ct_body *body);
// The bodies among a node's attributes, which ct__symbol_attrs copied, as the plan has them: the dynamic
// sizes of all that they compute are symbols. False: the error stands in the context.
bool ct__plan_bodies(ct_ctx *ctx, const ct_opdef *op, void *attrs);

// A copy of the node was recorded in the plan, to[k] for output k. A size of 1 that was no dynamic one when
// the node was recorded is 1 in every run of the plan, since it may broadcast. False: no memory.
bool ct__plan_ones(ct_ctx *ctx, const ct_node *node, const ct_val *to);

// Records a body in the innermost frame for a batch of `size` (CT_DYN marks a dynamic one): the
// `batched` ones of args and of the results have it as axis 0, the others are the same for all.
bool ct__inline_batched(ct_ctx *ctx, const ct_body *body, int64_t size, const ct_tensor *args,
                        const bool *batched, ct_tensor *out, bool *out_batched);

// What a call of a user's function checks first: room for the results, without which nothing can be
// poisoned, and the list of operands.
bool ct__call_given(ct_ctx *ctx, const char *op, const ct_tensor *in, size_t n_in,
                    const ct_tensor *out, size_t n_out, ct_loc here);
void ct__poison_all(ct_ctx *ctx, ct_tensor *out, size_t n_out, ct_loc here);
// The operands' types, and `to` told of the operands; NULL: one is bad and its error recorded.
const ct_type **ct__operand_types(ct_ctx *ctx, ct_traced *to, const ct_tensor *in, size_t n_in,
                                  ct_loc here);
// Operands, then what the body captured, then room for `more`. NULL: no memory, recorded.
ct_tensor *ct__with_captured(ct_ctx *ctx, const ct_body *body, const ct_tensor *in, size_t n_in,
                             size_t more);
// The node, or one in a function that it owns, that brings a tensor to another device; NULL: none does.
const ct_node *ct__moves(const ct_node *node);
// Does nothing in the body of a loop do so? False, and an error at that line.
bool ct__stays_in_place(ct_ctx *ctx, const char *op, const ct_body *body);
// A shape rule: the outputs are those of a body.
bool ct__infer_body(ct_call *call, const ct_body *body);
// For the rules of nodes that transform a function: calls `f` on parameters in place of args, so
// that args which are one tensor stay apart, and records what it made on these.
bool ct__on_parameters(const ct_node *node, ct_fn f, const void *user, const ct_tensor *args,
                       size_t n, ct_tensor *out, size_t n_out);

// A forward rule that somebody else wrote: it is recorded on parameters, its bodies are expanded, since only ops
// have transpose rules, and its results must be linear in the tangents.
typedef struct ct_forward_rule {
    const ct_node *node;
    size_t n_in, n_out,
        n_numbers; // numbers: the node's last operands, which the rule gets behind the tangents
    // Tangents are of all operands, zeros where one stands still. False: the error stands in the context.
    bool (*record)(const ct_node *node, const ct_tensor *in, const ct_tensor *outs,
                   const ct_tensor *tangents, ct_tensor *slopes);
} ct_forward_rule;
bool ct__apply_forward_rule(ct_rule *r, const ct_forward_rule *rule);

// ct_jvp and ct_value_and_grad under the name of what the user called (derivatives.c). what: the user's
// word for a tangent.
void ct__jvp(const char *op, const char *what, ct_fn f, void *user, const ct_tensor *in,
             size_t n_in, ct_tensor *out, size_t n_out, const ct_tensor *tangents,
             ct_tensor *out_tangents, ct_loc here);
void ct__value_and_grad(const char *op, ct_fn f, void *user, const ct_tensor *in, size_t n_in,
                        ct_tensor *out, size_t n_out, ct_tensor *grads, ct_loc here);

// Attributes of the ops that own a traced body.
#define CALL_ATTRS(F, op) F(op, body, body)
CT_ATTRS_SHARED(call, CALL_ATTRS);
#endif
