// The nodes of an optimizer's step: the global norm of the gradients, and a parameter's update. They are
// compositions, so a step records one node per parameter.
#include "optim/stage.h"

ct_tensor ct__widened(ct_tensor t, ct_loc here) {
    ct_dtype dtype = ct_dtype_of(t);
    return ct__is_narrow_float(dtype) ? ct_cast_at(t, CT_F32, here) : t;
}

static ct_tensor update_narrow(ct_tensor t, ct_dtype to, ct_loc here) {
    return ct_dtype_of(t) == to ? t : ct_cast_at(t, to, here);
}

// --------------------------------------------------------------------------------- the global norm

static bool global_norm_infer(ct_call *call) {
    *call->out = (ct_type){.dtype = CT_F32};
    for (int i = 0; i < call->n_in; i++) {
        if (!ct__check_accepts(call, i)) return false;
        if (call->in[i]->dtype == CT_F64) call->out->dtype = CT_F64;
    }
    return true;
}
static bool global_norm_body(ct_rule *r) {
    ct_loc here = r->node->here;
    ct_tensor sum = CT_NONE;
    for (int i = 0; i < r->n_in; i++) {
        ct_tensor g = ct__widened(r->in[i], here);
        ct_tensor square_sum =
            ct_sum_with((ct_sum_args){.x = ct_mul_at(g, g, here), .here = here}); // ()
        sum = i ? ct_add_at(sum, square_sum, here) : square_sum;
    }
    return ct__set_body(r, ct_sqrt_at(sum, here));
}
const ct_opdef ct__op_global_norm = {
    CT_COMPOSED(GLOBAL_NORM, global_norm, -1, 1),
    .doc = "The square root of the sum of squares of all operands, in f32 at least.",
    .accepts = CT_FLOATS,
    .scattered = true,
};

// --------------------------------------------------------------------------------------- an update

CT_ATTR_FIELDS(update, UPDATE_ATTRS);

static bool update_infer(ct_call *call) {
    const ct_ints *stages = &((const update_attrs *)call->attrs)->stages;
    int n_states = 0, n_in = 2;
    for (int64_t s = 0; s < stages->n; s++) {
        const ct_stage *stage = &ct__stages[stages->v[s]];
        n_states += stage->n_states;
        n_in += stage->n_states + stage->n_numbers;
    }
    if (n_in != call->n_in)
        return ct__call_err(call, CT_E_INTERNAL, "%d operands, its stages need %d", call->n_in,
                            n_in);
    if (!ct__call_outs(call, 1 + n_states)) return false;
    call->out[0] = *call->in[0];
    for (int64_t s = 0, at = 2, out = 1; s < stages->n; s++) {
        const ct_stage *stage = &ct__stages[stages->v[s]];
        for (int k = 0; k < stage->n_states; k++) call->out[out++] = *call->in[at + k];
        at += stage->n_states + stage->n_numbers;
    }
    return true;
}

// A stage writes its states to body_out, in the dtypes in which they are stored.
static bool update_body(ct_rule *r) {
    const ct_ints *stages = &((const update_attrs *)r->attrs)->stages;
    const ct_tensor *in = r->in + 2;
    ct_tensor *state = r->body_out + 1;
    ct_step_context context = {.param = ct__widened(r->in[0], r->node->here),
                               .update = ct__widened(r->in[1], r->node->here),
                               .here = r->node->here};
    for (int64_t s = 0; s < stages->n; s++) {
        const ct_stage *stage = &ct__stages[stages->v[s]];
        for (int k = 0; k < stage->n_states; k++) state[k] = in[k];
        context.state = state;
        context.number = in + stage->n_states;
        context.update = stage->apply_one(&context);
        for (int k = 0; k < stage->n_states; k++)
            state[k] = update_narrow(state[k], ct_dtype_of(in[k]), context.here);
        state += stage->n_states;
        in += stage->n_states + stage->n_numbers;
    }
    return ct__set_body(r, update_narrow(ct_add_at(context.param, context.update, context.here),
                                         ct_dtype_of(r->in[0]), context.here));
}
static const char *update_operand_name(const ct_node *node, int operand) {
    const ct_ints *stages = &((const update_attrs *)node->attrs)->stages;
    for (int64_t s = 0, at = 2; s < stages->n; s++) {
        const ct_stage *stage = &ct__stages[stages->v[s]];
        int64_t k = operand - at - stage->n_states;
        if (k >= 0 && k < stage->n_numbers) return stage->names[k];
        at += stage->n_states + stage->n_numbers;
    }
    return NULL;
}
const ct_opdef ct__op_update = {
    CT_COMPOSED(UPDATE, update, -1, -1),
    .doc = "A step of a parameter by its gradient: the stages of an optimizer, then their sum.",
    CT_FIELDS(update),
    .accepts = CT_FLOATS,
    .operand_name = update_operand_name,
};
