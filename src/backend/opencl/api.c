#include "backend/opencl/api.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/library.h"

static const char default_library[] = "libOpenCL.so.1";
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ct_cl functions;
static bool loaded;

static bool opencl_load(ct_err *err) {
    static const struct {
        const char *name;
        size_t at;
    } list[] = {
#define X(result, name, parameters) {#name, offsetof(ct_cl, name)},
        CL_FUNCTIONS(X)
#undef X
    };
    const char *asked = getenv("COTAN_OPENCL_LIBRARY");
    const char *file = asked && *asked ? asked : default_library;
    void *library = ct__library_open(file, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        ct__err(err, CT_E_DEVICE, CT_NOWHERE, "opencl", "there is no OpenCL here: %.400s",
                ct__library_error());
        if (ct__linked_statically()) return false;
        return ct__err_hint(err, "apt-get install ocl-icd-libopencl1, and the driver of a device "
                                 "(pocl-opencl-icd: the CPU)");
    }
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        void *function = dlsym(library, list[i].name);
        if (!function) {
            ct__err(err, CT_E_DEVICE, CT_NOWHERE, "opencl", "%.300s has no function %s", file,
                    list[i].name);
            dlclose(library);
            return false;
        }
        memcpy((char *)&functions + list[i].at, &function, sizeof function);
    }
    return loaded = true;
}

// Blocks the host program's signals in threads that drivers start.
static void opencl_block_signals(sigset_t *before) {
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

const ct_cl *ct__cl(ct_err *err) {
    sigset_t before;
    pthread_mutex_lock(&lock);
    opencl_block_signals(&before);
    const bool ok = loaded || opencl_load(err);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_mutex_unlock(&lock);
    return ok ? &functions : NULL;
}

bool ct__cl_failed(ct_err *err, const char *function, int32_t code) {
    static const char *const words[] = {"success",
                                        "no such device",
                                        "the device is not available",
                                        "there is no compiler",
                                        "no memory for a buffer on the device",
                                        "out of resources",
                                        "out of host memory"};
    const char *what = code <= 0 && code >= -6 ? words[-code]
                       : code == -11           ? "a program cannot be built"
                       : code == -14           ? "an earlier command failed"
                       : code == -61           ? "a buffer is too large"
                       : code == -1001         ? "no platform is installed"
                                               : "an error";
    return ct__err(err, CT_E_DEVICE, CT_NOWHERE, "opencl", "%s failed: %s (%" PRId32 ")", function,
                   what, code);
}

// ---------------------------------------------------------------------------------------- devices

static uint64_t opencl_device_number(const ct_cl *cl, cl_device id, uint32_t what) {
    uint64_t value =
        0; // all machines with OpenCL are little-endian: a 32-bit value is in the lower half
    return cl->clGetDeviceInfo(id, what, sizeof value, &value, NULL) == 0 ? value : 0;
}

static bool opencl_has_word(const char *words, const char *word) {
    const size_t n = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

static void opencl_describe_device(const ct_cl *cl, cl_platform platform, cl_device id,
                                   ct_cl_device *d) {
    char extensions[8192] = "";
    *d = (ct_cl_device){.id = id};
    cl->clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof d->platform, d->platform, NULL);
    cl->clGetDeviceInfo(id, CL_DEVICE_NAME, sizeof d->name, d->name, NULL);
    cl->clGetDeviceInfo(id, CL_DRIVER_VERSION, sizeof d->driver, d->driver, NULL);
    cl->clGetDeviceInfo(id, CL_DEVICE_VERSION, sizeof d->version, d->version, NULL);
    cl->clGetDeviceInfo(id, CL_DEVICE_EXTENSIONS, sizeof extensions, extensions, NULL);
    sscanf(d->version, "OpenCL %d.%d", &d->major, &d->minor);
    d->f64 = opencl_has_word(extensions, "cl_khr_fp64");
    d->f16 = opencl_has_word(extensions, "cl_khr_fp16");
    d->bytes = opencl_device_number(cl, id, CL_DEVICE_GLOBAL_MEM_SIZE);
    d->max_buffer_bytes = opencl_device_number(cl, id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    d->units = opencl_device_number(cl, id, CL_DEVICE_MAX_COMPUTE_UNITS);
    d->megahertz = opencl_device_number(cl, id, CL_DEVICE_MAX_CLOCK_FREQUENCY);
    d->parameter_bytes = opencl_device_number(cl, id, CL_DEVICE_MAX_PARAMETER_SIZE);
    const uint64_t f32 = opencl_device_number(cl, id, CL_DEVICE_SINGLE_FP_CONFIG);
    d->denormals = f32 & CL_FP_DENORM;
    d->rounded = f32 & CL_FP_CORRECTLY_ROUNDED;
}

int ct__cl_devices(const ct_cl *cl, ct_cl_device *list, int most, ct_err *err) {
    enum { PLATFORMS = 16, DEVICES = 16 };
    cl_platform platforms[PLATFORMS];
    uint32_t n_platforms = 0;
    int n = 0;
    sigset_t before;
    opencl_block_signals(&before);
    int32_t code = cl->clGetPlatformIDs(PLATFORMS, platforms, &n_platforms);
    if (n_platforms > PLATFORMS) n_platforms = PLATFORMS;
    for (uint32_t p = 0; code == 0 && p < n_platforms; p++) {
        cl_device ids[DEVICES];
        uint32_t n_ids = 0;
        if (cl->clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL_BUT_CUSTOM, DEVICES, ids, &n_ids) !=
            0)
            continue; // a platform without a device
        if (n_ids > DEVICES) n_ids = DEVICES;
        for (uint32_t i = 0; i < n_ids; i++, n++)
            if (n < most) opencl_describe_device(cl, platforms[p], ids[i], &list[n]);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code == 0 || code == -1001) return n;
    ct__cl_failed(err, "clGetPlatformIDs", code);
    return -1;
}
