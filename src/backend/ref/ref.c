// The reference backend: one node at a time, as plainly as possible, floats in double, integers
// exactly. The oracle.
#include <string.h>

#include "backend/backend.h"
#include "ops/rules.h"

static void *ref_alloc(ct_device *device, size_t bytes, ct_err *err) {
    (void)device;
    void *p = ct__aligned(64, bytes ? bytes : 64);
    if (!p) ct__err_memory(err, CT_NOWHERE, "ref", bytes);
    return p;
}

static void store_whole(ct_dtype to, void *data, int64_t i, ct_dtype from, int64_t bits) {
    if (from == CT_U64)
        ct__store_u64(to, data, i, (uint64_t)bits);
    else
        ct__store_i64(to, data, i, bits);
}

// A value as the compute dtype has it: promotion rounds before the op does.
static double as_float(ct_dtype compute, ct_dtype from, const void *data, int64_t i) {
    char rounded[8];
    if (from == compute || compute == CT_F64) return ct__load_f64(from, data, i);
    if (ct__is_float(from))
        ct__store_f64(compute, rounded, 0, ct__load_f64(from, data, i));
    else
        store_whole(compute, rounded, 0, from, ct__load_i64(from, data, i));
    return ct__load_f64(compute, rounded, 0);
}

enum { MOST_OPERANDS = 4 };
static bool eval_elementwise(const ct_node *node, void *const *args, ct_err *err) {
    const ct_opdef *op = node->op;
    const ct_type *out = node->out;
    if (node->n_in > MOST_OPERANDS)
        return ct__err(err, CT_E_INTERNAL, node->here, op->name, "too many operands");
    ct_dtype compute = ct__compute_dtype(node);
    bool is_float = ct__is_float(compute);
    int64_t n = ct__count(out);
    for (int64_t i = 0; i < n; i++) {
        double x[MOST_OPERANDS];
        int64_t whole[MOST_OPERANDS];
        for (int k = 0; k < node->n_in; k++) {
            const ct_type *in = ct__type(node->in[k]);
            int64_t at = ct__broadcast_place(out, in, i);
            ct_dtype d = in->dtype;
            if (is_float)
                x[k] = as_float(compute, d, args[k], at);
            else
                whole[k] = ct__load_i64(d, args[k], at);
        }
        void *to = args[node->n_in];
        if (is_float && op->eval_f64)
            ct__store_f64(out->dtype, to, i, op->eval_f64(x));
        else if (!is_float && op->eval_i64)
            store_whole(out->dtype, to, i, compute, op->eval_i64(whole, compute));
        else
            return ct__err(err, CT_E_INTERNAL, node->here, op->name,
                           "no reference evaluation for %s", ct_dtype_name(compute));
    }
    return true;
}

bool ct__ref_node(const ct_node *node, void *const *args, ct_err *err) {
    if (!node->op->eval) {
        if (node->op->kind == CT_KIND_ELEMENTWISE) return eval_elementwise(node, args, err);
        return ct__err(err, CT_E_INTERNAL, node->here, node->op->name, "no reference evaluation");
    }
    ct_type *types = ct__malloc((node->n_in + 1u) * sizeof *types);
    if (!types) return ct__err_memory(err, node->here, node->op->name, node->n_in * sizeof *types);
    for (int k = 0; k < node->n_in; k++) types[k] = *ct__type(node->in[k]);
    ct_ref ref = {.node = node,
                  .attrs = node->attrs,
                  .n_in = node->n_in,
                  .n_out = node->n_out,
                  .in_type = types,
                  .in = (const void *const *)args,
                  .out_type = node->out,
                  .out = args + node->n_in,
                  .err = err};
    bool ok = node->op->eval(&ref);
    ct__free(types);
    return ok;
}

static bool ref_submit(ct_device *device, const ct_command *commands, size_t n, ct_err *err) {
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        const ct_command *c = &commands[i];
        if (ct__stopped(device, err)) return false;
        void **args = ct__malloc((c->n_args + 1) * sizeof *args);
        if (!args) return ct__err_memory(err, CT_NOWHERE, "ref", c->n_args * sizeof *args);
        for (uint32_t k = 0; k < c->n_args; k++)
            args[k] = (char *)c->args[k].buffer + c->args[k].offset;
        if (c->kind == CT_COMMAND_COPY)
            ok = !c->bytes || memmove(args[1], args[0], c->bytes);
        else
            ok = ct__ref_node(c->node, args, err);
        ct__free(args);
    }
    return ok;
}
static uint64_t ref_event(ct_device *device) { return (void)device, 0; }
static bool ref_wait(ct_device *device, uint64_t event, ct_err *err) {
    return (void)device, (void)event, (void)err, true;
}

const ct_backend ct__backend_ref = {
    .name = "ref",
    .numerics = "1 double",
    .evaluates_ops = true,
    .alloc = ref_alloc,
    .free = ct__host_free,
    .copy_in = ct__host_copy_in,
    .copy_out = ct__host_copy_out,
    .submit = ref_submit,
    .event = ref_event,
    .wait = ref_wait,
};
