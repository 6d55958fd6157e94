// Lists the devices that can be selected by name: their descriptions and measured speeds.
#include "compile/machine/devices.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "compile/plan.h"
#include "graph/graph.h"

// -------------------------------------------------------------------------------------- measurements

enum { MATMUL_SIZE = 1024, MAX_READ_BYTES = 1 << 28, ROUNDS = 5 };

// Returns the seconds of the fastest of a few runs of `record`, whose result is read; the first run, which
// may compile, does not count. 0: it failed, and the context has the error.
static double devices_time(ct_tensor (*record)(const ct_tensor *in), const ct_tensor *in) {
    double best = 0;
    for (int round = 0; round <= ROUNDS && !ct_failed(); round++) {
        CT_SCOPE;
        double begin = ct__now();
        ct_tensor out = record(in);
        if (isnan(ct_item(out))) return 0;
        double seconds = ct__now() - begin;
        if (round == 1 || (round && seconds < best)) best = seconds;
    }
    return best;
}

static ct_tensor devices_sum(const ct_tensor *in) { return ct_sum(in[0]); }
static ct_tensor devices_matmul(const ct_tensor *in) { return ct_max(ct_matmul(in[0], in[1])); }

static void devices_measure_read(ct_device_info *info) {
    CT_SCOPE;
    uint64_t bytes =
        info->memory && info->memory / 8 < MAX_READ_BYTES ? info->memory / 8 : MAX_READ_BYTES;
    ct_tensor x = ct_keep(ct_ones(CT_F32, CT_DIMS((int64_t)(bytes / 4))));
    if (!ct_eval(&x, 1)) return;
    double seconds = devices_time(devices_sum, &x);
    info->read_bandwidth = seconds > 0 ? (double)bytes / seconds : 0;
}

static void devices_measure_matmul(ct_device_info *info) {
    CT_SCOPE;
    ct_tensor x[2];
    for (int i = 0; i < 2; i++) x[i] = ct_keep(ct_ones(CT_F32, CT_DIMS(MATMUL_SIZE, MATMUL_SIZE)));
    if (!ct_eval(x, 2)) return;
    double seconds = devices_time(devices_matmul, x);
    info->flops = seconds > 0 ? 2.0 * MATMUL_SIZE * MATMUL_SIZE * MATMUL_SIZE / seconds : 0;
}

// Measures in a context of its own, so that nothing of the caller's is run or changed.
static void devices_measure(ct_device_info *info, ct_err *err) {
    ct_ctx *new_ctx = ct_ctx_new(), *outer = new_ctx ? ct_ctx_use(new_ctx) : NULL;
    if (!new_ctx) return;
    if (ct_set_device(info->name)) {
        ct_set_synchronous_compilation();
        devices_measure_read(info);
        devices_measure_matmul(info);
    }
    if (new_ctx->err.code) *err = new_ctx->err;
    ct_error_clear();
    ct_ctx_use(outer);
    ct_ctx_free(new_ctx);
}

// ---------------------------------------------------------------------------------------------- list

static void devices_report(const ct_backend *backend, int ordinal, bool measure,
                           ct_device_fn callback, void *user) {
    char name[48];
    ct_text description = {0};
    ct_err err = {0};
    snprintf(name, sizeof name, backend->several && backend->count ? "%s:%d" : "%s", backend->name,
             ordinal);
    ct_device_info info = {.name = name};
    ct_device *device = ct__device_open(name, &err);
    info.usable = device != NULL;
    if (device && backend->about) backend->about(device, &description, &info.memory);
    if (device && !info.memory) info.memory = ct__available_bytes();
    ct__device_close(device);
    if (device && measure && !backend->evaluates_ops) devices_measure(&info, &err);
    if (err.code) {
        info.usable = false;
        ct__text_free(&description);
        ct__text_add(&description, err.text);
    }
    if (description.s)
        description.s[strcspn(description.s, "\n")] = '\0'; // without the error's own hint
    info.description = description.s ? description.s : "";
    callback(&info, user);
    ct__text_free(&description);
}

bool ct__devices(bool measure, ct_device_fn callback, void *user, ct_err *err) {
    for (const ct_backend *b = NULL; (b = ct__backend_next(b, err));) {
        ct_err error = {0};
        int n = b->count ? b->count(b, &error) : 1;
        if (n <= 0) {
            error.text[strcspn(error.text, "\n")] = '\0';
            callback(&(ct_device_info){.name = b->name,
                                       .description =
                                           n < 0 ? error.text : "no driver provides a device"},
                     user);
        }
        for (int i = 0; i < n; i++) devices_report(b, i, measure, callback, user);
    }
    return !err->code;
}

bool ct_devices(bool measure, ct_device_fn callback, void *user) {
    ct_ctx *ctx = ct__ctx();
    return ctx && ct__given(ctx, callback, CT_NOWHERE, "devices", "the function") &&
           ct__devices(measure, callback, user, &ctx->err);
}
