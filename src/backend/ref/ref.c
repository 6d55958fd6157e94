// The reference backend, the oracle for tests: evaluates one node at a time in the simplest way,
// floats in double, integers exactly.
#include <string.h>

#include "backend/backend.h"
#include "kinds/kind.h"

static void *ref_alloc(ct_device *device, size_t bytes, ct_err *err) {
    (void)device;
    void *p = ct__aligned(64, bytes ? bytes : 64);
    if (!p) ct__err_memory(err, CT_NOWHERE, "ref", bytes);
    return p;
}

bool ct__ref_node(const ct_node *node, void *const *args, const atomic_bool *stop, ct_err *err) {
    return ct__call_node(node, args, stop, NULL, err);
}

bool ct__call_node(const ct_node *node, void *const *args, const atomic_bool *stop,
                   ct_parallel_for spread, ct_err *err) {
    bool (*eval)(const ct_ref *) = node->op->eval ? node->op->eval : node->op->kind->eval;
    if (!eval)
        return ct__err(err, CT_E_INTERNAL, node->here, node->op->name, "no reference evaluation");
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
                  .stop = stop,
                  .spread = spread,
                  .err = err};
    bool ok = eval(&ref);
    ct__free(types);
    return ok;
}

static bool ref_run_command(void *device_, const ct_command *c, const ct_command *original,
                            ct_err *err) {
    const ct_device *device = device_;
    (void)original;
    void **args = ct__malloc((c->n_args + 1) * sizeof *args);
    if (!args) return ct__err_memory(err, CT_NOWHERE, "ref", c->n_args * sizeof *args);
    for (uint32_t k = 0; k < c->n_args; k++)
        args[k] = (char *)c->args[k].buffer + c->args[k].offset;
    bool ok = c->kind == CT_COMMAND_COPY ? !c->bytes || memmove(args[1], args[0], c->bytes)
                                         : ct__ref_node(c->node, args, device->stop, err);
    ct__free(args);
    return ok;
}
static bool ref_submit(ct_device *device, const ct_command *commands, size_t n, ct_err *err) {
    const ct_runner runner = {.device = device, .run = ref_run_command, .user = device};
    return ct__run_commands(&runner, commands, n, err);
}

static void ref_about(const ct_device *device, ct_text *what, uint64_t *memory) {
    (void)device, (void)memory;
    ct__text_add(what, "the reference: an op at a time, simple and slow");
}

const ct_backend ct__backend_ref = {
    .name = "ref",
    .about = ref_about,
    .on_host = true,
    .several = true,
    .numerics = "2 double",
    .evaluates_ops = true,
    .alloc = ref_alloc,
    .free = ct__host_free,
    .copy_in = ct__host_copy_in,
    .copy_out = ct__host_copy_out,
    .submit = ref_submit,
};
