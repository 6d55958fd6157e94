// Memory operations of devices that use host memory.
#include <string.h>

#include "backend/backend.h"

void ct__host_free(ct_device *device, void *buffer) {
    (void)device;
    ct__free(buffer);
}
bool ct__host_copy_in(ct_device *device, ct_operand to, const void *host, size_t n, ct_err *err) {
    (void)device, (void)err;
    if (n) memcpy((char *)to.buffer + to.offset, host, n);
    return true;
}
bool ct__host_copy_out(ct_device *device, ct_operand from, void *host, size_t n, ct_err *err) {
    (void)device, (void)err;
    if (n) memcpy(host, (char *)from.buffer + from.offset, n);
    return true;
}

bool ct__call_on_copies(ct_device *device, const ct_command *c, ct_err *err) {
    const ct_backend *b = device->backend;
    const ct_node *node = c->node;
    void **args = ct__calloc(c->n_args + 1, sizeof *args);
    bool ok = args || ct__err_memory(err, CT_NOWHERE, b->name, c->n_args * sizeof *args);
    for (uint32_t k = 0; k < c->n_args && ok; k++) {
        const bool reads = k < (uint32_t)node->n_in;
        const size_t n = ct__type_bytes(reads ? ct__type(node->in[k]) : &node->out[k - node->n_in]);
        args[k] = ct__aligned(64, n ? n : 64);
        ok = args[k] ? !reads || b->copy_out(device, c->args[k], args[k], n, err)
                     : ct__err_memory(err, CT_NOWHERE, b->name, n);
    }
    ok = ok && ct__call_node(node, args, device->stop, NULL, err);
    for (uint32_t k = node->n_in; k < c->n_args && ok; k++)
        ok = b->copy_in(device, c->args[k], args[k], ct__type_bytes(&node->out[k - node->n_in]),
                        err);
    for (uint32_t k = 0; args && k < c->n_args; k++) ct__free(args[k]);
    ct__free(args);
    return ok;
}
