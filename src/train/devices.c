// The devices that can be asked for by name: what they are, and what they do in a second.
#include "train/devices.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/memory.h"
#include "base/os.h"
#include "compile/plan.h"
#include "graph/graph.h"

// ----------------------------------------------------------------------------------- measurements

enum { SIDE = 1024, READ_MOST = 1 << 28, ROUNDS = 5 };

// Seconds of the fastest of a few runs of `record`, whose result is read; the first one, which may compile,
// does not count. 0: it failed, and the error stands in the context.
static double fastest(ct_tensor (*record)(const ct_tensor *in), const ct_tensor *in) {
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

static ct_tensor total(const ct_tensor *in) { return ct_sum(in[0]); }
static ct_tensor product(const ct_tensor *in) { return ct_max(ct_matmul(in[0], in[1])); }

static void measure_read(ct_device_info *info) {
    CT_SCOPE;
    uint64_t bytes = info->memory && info->memory / 8 < READ_MOST ? info->memory / 8 : READ_MOST;
    ct_tensor x = ct_keep(ct_ones(CT_F32, CT_DIMS((int64_t)(bytes / 4))));
    if (!ct_eval(&x, 1)) return;
    double seconds = fastest(total, &x);
    info->read = seconds > 0 ? (double)bytes / seconds : 0;
}

static void measure_products(ct_device_info *info) {
    CT_SCOPE;
    ct_tensor x[2];
    for (int i = 0; i < 2; i++) x[i] = ct_keep(ct_ones(CT_F32, CT_DIMS(SIDE, SIDE)));
    if (!ct_eval(x, 2)) return;
    double seconds = fastest(product, x);
    info->flops = seconds > 0 ? 2.0 * SIDE * SIDE * SIDE / seconds : 0;
}

// In a context of its own, so that nothing of the caller's is run or changed.
static void measure_device(ct_device_info *info, ct_err *err) {
    ct_ctx *own = ct_ctx_new(), *before = own ? ct_ctx_use(own) : NULL;
    if (!own) return;
    if (ct_set_device(info->name)) {
        ct__ctx_waits(own);
        measure_read(info);
        measure_products(info);
    }
    if (own->err.code) *err = own->err;
    ct_error_clear();
    ct_ctx_use(before);
    ct_ctx_free(own);
}

// --------------------------------------------------------------------------------------- the list

static void tell(const ct_backend *backend, int ordinal, bool measure, ct_device_fn each,
                 void *user) {
    char name[48];
    ct_text what = {0};
    ct_err err = {0};
    snprintf(name, sizeof name, backend->several && backend->count ? "%s:%d" : "%s", backend->name,
             ordinal);
    ct_device_info info = {.name = name};
    ct_device *device = ct__device_open(name, &err);
    info.usable = device != NULL;
    if (device && backend->about) backend->about(device, &what, &info.memory);
    if (device && !info.memory) info.memory = ct__available_bytes();
    ct__device_close(device);
    if (device && measure && !backend->evaluates_ops) measure_device(&info, &err);
    if (err.code) {
        info.usable = false;
        ct__text_free(&what);
        ct__text_add(&what, err.text);
    }
    if (what.s) what.s[strcspn(what.s, "\n")] = '\0'; // without an error's own hint
    info.what = what.s ? what.s : "";
    each(&info, user);
    ct__text_free(&what);
}

bool ct__devices(bool measure, ct_device_fn each, void *user, ct_err *err) {
    for (const ct_backend *b = NULL; (b = ct__backend_next(b, err));) {
        ct_err why = {0};
        int n = b->count ? b->count(b, &why) : 1;
        if (n <= 0) {
            why.text[strcspn(why.text, "\n")] = '\0';
            each(&(ct_device_info){.name = b->name,
                                   .what = n < 0 ? why.text : "no driver brings a device"},
                 user);
        }
        for (int i = 0; i < n; i++) tell(b, i, measure, each, user);
    }
    return !err->code;
}

bool ct_devices(bool measure, ct_device_fn each, void *user) {
    ct_ctx *ctx = ct__ctx();
    return ctx && ct__given(ctx, each, CT_NOWHERE, "devices", "the function") &&
           ct__devices(measure, each, user, &ctx->err);
}
