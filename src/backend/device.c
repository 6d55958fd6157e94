// Opens devices by name.
#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "backend/memory.h"
#include "backend/plugin/plugin.h"

ct_counters ct__counters;

const ct_backend *const ct__backends[] = {&ct__backend_cpu, &ct__backend_ref, &ct__backend_opencl,
                                          NULL};

void ct__device_name(const char *name, char to[CT_DEVICE_NAME]) {
    const size_t n = strlen(name);
    const bool first = n > 2 && strcmp(name + n - 2, ":0") == 0;
    snprintf(to, CT_DEVICE_NAME, "%.*s", (int)(first ? n - 2 : n), name);
}

static ct_device *device_open_backend(const ct_backend *backend, const char *name, int ordinal,
                                      ct_device *inner, ct_err *err) {
    ct_device *device = ct__calloc(1, sizeof *device);
    if (!device) return ct__null_memory(err, CT_NOWHERE, "device", sizeof *device);
    device->backend = backend;
    device->inner = inner;
    device->ordinal = ordinal;
    ct__device_name(name, device->name);
    if (backend->numerics)
        snprintf(device->numerics, sizeof device->numerics, "%s", backend->numerics);
    device->account = &ct__account;
    atomic_init(&device->refs, 1);
    pthread_mutex_init(&device->spare_lock, NULL);
    if (backend->open && !backend->open(device, err)) {
        ct__free(device);
        return NULL;
    }
    return device;
}

// True if the name is of this backend; sets the index of its device.
static bool device_parse_name(const ct_backend *backend, const char *name, int *ordinal) {
    const size_t n = strlen(backend->name);
    *ordinal = 0;
    if (strncmp(name, backend->name, n) != 0) return false;
    if (!name[n]) return true;
    const char *digits = name + n + 1;
    if (!backend->several || name[n] != ':' || !*digits || strlen(digits) > 3) return false;
    for (; *digits >= '0' && *digits <= '9'; digits++) *ordinal = *ordinal * 10 + *digits - '0';
    return !*digits;
}

// Opens a device, and wraps it if the name says so.
static ct_device *device_open_wrapped(const ct_backend *backend, const char *name, int ordinal,
                                      const ct_backend *wrapper, ct_err *err) {
    ct_device *device = device_open_backend(backend, name, ordinal, NULL, err);
    if (!device || !wrapper) return device;
    ct_device *wrapped = device_open_backend(wrapper, name, 0, device, err);
    if (!wrapped) ct__device_close(device);
    return wrapped;
}

const ct_backend *ct__backend_next(const ct_backend *last, ct_err *why) {
    size_t i = 0;
    while (last && ct__backends[i] && ct__backends[i] != last) i++;
    if (last && ct__backends[i])
        i++; // the one after it
    else if (last)
        return ct__plugin_next(last, why);
    return ct__backends[i] ? ct__backends[i] : ct__plugin_next(NULL, why);
}

ct_device *ct__device_open(const char *name, ct_err *err) {
    bool async = strncmp(name, "async:", 6) == 0, dry = strncmp(name, "dry:", 4) == 0;
    const ct_backend *wrapper = async ? &ct__backend_async : dry ? &ct__backend_dry : NULL;
    ct_err why = {0};
    for (const ct_backend *b = NULL; (b = ct__backend_next(b, &why));) {
        int ordinal;
        if (device_parse_name(b, name + (async ? 6 : dry ? 4 : 0), &ordinal))
            return device_open_wrapped(b, name, ordinal, wrapper, err);
    }
    if (why.code) {
        *err = why;
        return NULL;
    }
    ct__err(err, CT_E_DEVICE, CT_NOWHERE, "device",
            "there is no device \"%.40s\": known are cpu, ref, opencl (or opencl:1), and async: "
            "or dry: before them",
            name);
    if (strncmp(name, "cuda", 4) == 0 || strcmp(name, "mps") == 0)
        ct__err_hint(err, "programs for GPUs run on \"cpu\", or by OpenCL on \"opencl\"");
    return NULL;
}

bool ct__stop_requested(const atomic_bool *stop, ct_err *err) {
    if (!stop || !atomic_load_explicit(stop, memory_order_relaxed)) return false;
    ct__err(err, CT_E_INTERRUPTED, CT_NOWHERE, "run", CT_CANCELLED);
    return true;
}
bool ct__stopped(const ct_device *device, ct_err *err) {
    return ct__stop_requested(device->stop, err);
}

ct_device *ct__device_retain(ct_device *device) {
    atomic_fetch_add(&device->refs, 1);
    return device;
}
void ct__device_release(ct_device *device) {
    if (device && atomic_fetch_sub(&device->refs, 1) == 1) ct__device_close(device);
}

ct_target ct__target_unmeasured(void) {
    return (ct_target){.cores = ct__cores_allowed(),
                       .lanes = 16,
                       .registers = 32,
                       CT_TARGET_CPU_TASKS,
                       .gflops = 50};
}

uint64_t ct__device_event(ct_device *device) {
    return device->backend->event ? device->backend->event(device) : 0;
}

bool ct__device_wait(ct_device *device, ct_err *err) {
    return !device->backend->wait || device->backend->wait(device, err);
}

void ct__device_close(ct_device *device) {
    if (!device) return;
    ct__device_empty_cache(device);
    if (device->backend->close) device->backend->close(device);
    if (device->inner) ct__device_close(device->inner);
    pthread_mutex_destroy(&device->spare_lock);
    ct__free(device);
}
