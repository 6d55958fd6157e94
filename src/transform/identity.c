// Identity ops, whose result is the same in every bit but a distinct value for gradients. None of them is
// left in a plan.
#include "ops/opcode.h"

static bool same_infer(ct_call *call) {
    call->out[0] = *call->in[0];
    return true;
}
static bool same_forward_body(ct_rule *r) { return ct__set_body(r, r->in[0]); }
static bool same_jvp(ct_rule *r) { return ct__set_tangent(r, r->t_in[0]); }

#define SAME(ID, op, text)                                                                         \
    .id = CT_OP_##ID, .name = #op, .doc = text, .kind = &ct__kind_composition, .n_in = 1,          \
    .n_out = 1, .accepts = CT_ANY, .infer = same_infer, .body = same_forward_body
const ct_opdef ct__op_same = {SAME(SAME, same, "The operand, as a value of its own."),
                              .jvp = same_jvp};
// Walks of a gradient stop there: it depends on nothing, not even through a path without derivatives.
const ct_opdef ct__op_copy = {SAME(COPY, copy, "The operand, of which it does not depend."),
                              .jvp = CT_NO_GRAD};
