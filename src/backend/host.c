// Memory of devices whose memory is the host's.
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
