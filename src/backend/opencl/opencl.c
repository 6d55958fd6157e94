// OpenCL as a device: memory that the host cannot access, one in-order queue, and kernels whose
// work-items run one row of the grid each. submit returns when everything has run, so that it
// reports all failures; "async:opencl" adds the library's own queue.
#include <stdio.h>

#include "backend/memory.h"
#include "backend/opencl/opencl.h"
#include "base/number.h"
#include "base/os.h"
#include "kir/kir.h"

// ---------------------------------------------------------------------------------------- opening

// Finds the device of that index; reports if it does not exist or is too old.
static bool opencl_find_device(ct_cl_state *s, int ordinal, ct_err *err) {
    enum { MAX_DEVICES = 64 };
    ct_cl_device *list = ct__malloc(MAX_DEVICES * sizeof *list);
    if (!list) return ct__err_memory(err, CT_NOWHERE, "opencl", MAX_DEVICES * sizeof *list);
    const int n = ct__cl_devices(s->cl, list, MAX_DEVICES, err);
    bool ok = ordinal < n && ordinal < MAX_DEVICES;
    if (n == 0) {
        ct__err(err, CT_E_DEVICE, CT_NOWHERE, "opencl", "no OpenCL driver provides a device");
        ct__err_hint(err, "install a device's driver (pocl-opencl-icd: the CPU)");
    } else if (n > 0 && !ok) {
        ct__err(err, CT_E_DEVICE, CT_NOWHERE, "opencl",
                "there is no device opencl:%d: %d %s found, from opencl:0 on", ordinal, n,
                n == 1 ? "is" : "are");
    } else if (ok) {
        s->about = list[ordinal];
        if (s->about.major < 1 || (s->about.major == 1 && s->about.minor < 2))
            ok = ct__err(err, CT_E_DEVICE, CT_NOWHERE, "opencl",
                         "%s has \"%s\", and OpenCL 1.2 is the least that is used", s->about.name,
                         s->about.version);
    }
    ct__free(list);
    return ok;
}

static void opencl_close(ct_device *device) {
    ct_cl_state *s = device->state;
    ct__cl_codes_free(s);
    if (s->scratch) s->cl->clReleaseMemObject(s->scratch);
    if (s->queue) s->cl->clReleaseCommandQueue(s->queue);
    if (s->context) s->cl->clReleaseContext(s->context);
    ct__account_sub(device->account, s->scratch_bytes, CT_MEMORY_WORKSPACES);
    ct__free(s);
}

static bool opencl_open(ct_device *device, ct_err *err) {
    ct_cl_state *s = device->state = ct__calloc(1, sizeof *s);
    int32_t code = 0;
    if (!s) return ct__err_memory(err, CT_NOWHERE, "opencl", sizeof *s);
    bool ok = (s->cl = ct__cl(err)) && opencl_find_device(s, device->ordinal, err);
    if (ok && !(s->context = s->cl->clCreateContext(NULL, 1, &s->about.id, NULL, NULL, &code)))
        ok = ct__cl_failed(err, "clCreateContext", code);
    if (ok && !(s->queue = s->cl->clCreateCommandQueue(s->context, s->about.id, 0, &code)))
        ok = ct__cl_failed(err, "clCreateCommandQueue", code);
    if (ok && (!s->about.denormals || !s->about.rounded))
        snprintf(device->numerics, sizeof device->numerics, "%s%s%s", device->backend->numerics,
                 s->about.denormals ? "" : " ftz", s->about.rounded ? "" : " div2ulp");
    if (!ok) opencl_close(device);
    return ok;
}

// ----------------------------------------------------------------------------------------- memory

static void *opencl_alloc(ct_device *device, size_t bytes, ct_err *err) {
    ct_cl_state *s = device->state;
    int32_t code = 0;
    if (bytes > s->about.max_buffer_bytes) {
        ct__err(err, CT_E_LIMIT, CT_NOWHERE, "opencl", "a buffer of %s: %s allows %s at most",
                ct__bytes_text(bytes).s, s->about.name,
                ct__bytes_text(s->about.max_buffer_bytes).s);
        return NULL;
    }
    cl_memory m =
        s->cl->clCreateBuffer(s->context, CL_MEM_READ_WRITE, bytes ? bytes : 64, NULL, &code);
    if (!m) ct__cl_failed(err, "clCreateBuffer", code);
    return m;
}
static void opencl_free(ct_device *device, void *buffer) {
    ct_cl_state *s = device->state;
    s->cl->clReleaseMemObject(buffer);
}
static bool opencl_copy_in(ct_device *device, ct_operand to, const void *host, size_t n,
                           ct_err *err) {
    ct_cl_state *s = device->state;
    const int32_t code =
        n ? s->cl->clEnqueueWriteBuffer(s->queue, to.buffer, 1, to.offset, n, host, 0, NULL, NULL)
          : 0;
    return code == 0 || ct__cl_failed(err, "clEnqueueWriteBuffer", code);
}
static bool opencl_copy_out(ct_device *device, ct_operand from, void *host, size_t n, ct_err *err) {
    ct_cl_state *s = device->state;
    const int32_t code = n ? s->cl->clEnqueueReadBuffer(s->queue, from.buffer, 1, from.offset, n,
                                                        host, 0, NULL, NULL)
                           : 0;
    return code == 0 || ct__cl_failed(err, "clEnqueueReadBuffer", code);
}

// --------------------------------------------------------------------------------------- launches

enum {
    SCRATCH_BYTES = 64 << 20
}; // scratch of the concurrent work-items, if one needs less than that

// Returns the number of rows that run at a time.
static int64_t opencl_concurrent_rows(const ct_command *c) {
    const size_t room = ct__round_up(c->kernel->scratch, 64);
    int64_t rows = room ? (int64_t)(SCRATCH_BYTES / room) : c->grid;
    return rows < 1 ? 1 : rows < c->grid ? rows : c->grid;
}
static size_t opencl_workspace(const ct_device *device, const ct_command *c) {
    return (void)device, ct__round_up(c->kernel->scratch, 64) * (size_t)opencl_concurrent_rows(c);
}

static bool opencl_grow_scratch(ct_device *device, size_t bytes, ct_err *err) {
    ct_cl_state *s = device->state;
    if (bytes <= s->scratch_bytes) return true;
    if (s->scratch) s->cl->clReleaseMemObject(s->scratch);
    ct__account_sub(device->account, s->scratch_bytes, CT_MEMORY_WORKSPACES);
    s->scratch = NULL;
    s->scratch_bytes = 0;
    if (!ct__account_add(device->account, bytes, CT_MEMORY_WORKSPACES, err)) return false;
    s->scratch = opencl_alloc(device, bytes, err);
    if (s->scratch)
        s->scratch_bytes = bytes;
    else
        ct__account_sub(device->account, bytes, CT_MEMORY_WORKSPACES);
    return s->scratch != NULL;
}

typedef struct {
    const ct_cl *cl;
    cl_kernel kernel;
    uint32_t n;
    int32_t code; // the first error
} arguments;
static void opencl_set_argument(arguments *a, size_t size, const void *value) {
    const int32_t code = a->cl->clSetKernelArg(a->kernel, a->n++, size, value);
    if (!a->code) a->code = code;
}

static bool opencl_run_kernel(ct_device *device, const ct_command *c, ct_err *err) {
    ct_cl_state *s = device->state;
    const ct_cl_code *made = c->kernel->code;
    const int64_t rows = opencl_concurrent_rows(c),
                  room = (int64_t)ct__round_up(c->kernel->scratch, 64);
    arguments a = {.cl = s->cl, .kernel = made->kernel};
    if (!opencl_grow_scratch(device, opencl_workspace(device, c), err)) return false;
    for (uint32_t i = 0; i < c->n_args; i++)
        opencl_set_argument(&a, sizeof(cl_memory), &c->args[i].buffer);
    for (uint32_t i = 0; i < c->n_args; i++) {
        const int64_t offset = (int64_t)c->args[i].offset;
        opencl_set_argument(&a, sizeof offset, &offset);
    }
    for (uint32_t i = 0; i < c->n_numbers; i++)
        opencl_set_argument(&a, sizeof(int64_t), &c->numbers[i]);
    for (int64_t begin = 0; begin < c->grid && !a.code; begin += rows) {
        if (ct__stopped(device, err)) return false;
        const int64_t end = begin + rows < c->grid ? begin + rows : c->grid;
        const size_t items = (size_t)(end - begin), of_group = 1;
        a.n = 2 * c->n_args + c->n_numbers;
        opencl_set_argument(&a, sizeof begin, &begin);
        opencl_set_argument(&a, sizeof end, &end);
        opencl_set_argument(&a, sizeof room, &room);
        opencl_set_argument(&a, sizeof(cl_memory), s->scratch ? &s->scratch : NULL);
        if (a.code) break;
        const int32_t code = s->cl->clEnqueueNDRangeKernel(s->queue, made->kernel, 1, NULL, &items,
                                                           &of_group, 0, NULL, NULL);
        if (code != 0) return ct__cl_failed(err, "clEnqueueNDRangeKernel", code);
    }
    return !a.code || ct__cl_failed(err, "clSetKernelArg", a.code);
}

static bool opencl_run_copy(ct_device *device, const ct_command *c, ct_err *err) {
    ct_cl_state *s = device->state;
    const ct_operand from = c->args[0], to = c->args[1];
    if (!c->bytes || (from.buffer == to.buffer && from.offset == to.offset)) return true;
    const size_t apart =
        from.offset > to.offset ? from.offset - to.offset : to.offset - from.offset;
    if (from.buffer != to.buffer || apart >= c->bytes) {
        const int32_t code = s->cl->clEnqueueCopyBuffer(
            s->queue, from.buffer, to.buffer, from.offset, to.offset, c->bytes, 0, NULL, NULL);
        return code == 0 || ct__cl_failed(err, "clEnqueueCopyBuffer", code);
    }
    void *bytes = ct__malloc(c->bytes); // they overlap, which clEnqueueCopyBuffer does not allow
    bool ok = bytes ? opencl_copy_out(device, from, bytes, c->bytes, err) &&
                          opencl_copy_in(device, to, bytes, c->bytes, err)
                    : ct__err_memory(err, CT_NOWHERE, "opencl", c->bytes);
    ct__free(bytes);
    return ok;
}

static bool opencl_run_command(void *device, const ct_command *c, const ct_command *original,
                               ct_err *err) {
    (void)original;
    return c->kind == CT_COMMAND_NODE     ? ct__call_on_copies(device, c, err)
           : c->kind == CT_COMMAND_KERNEL ? opencl_run_kernel(device, c, err)
                                          : opencl_run_copy(device, c, err);
}
static bool opencl_read_back(void *device, ct_operand from, void *to, size_t n, ct_err *err) {
    return opencl_copy_out(device, from, to, n, err);
}

static bool opencl_submit(ct_device *device, const ct_command *commands, size_t n, ct_err *err) {
    const ct_cl_state *s = device->state;
    const ct_runner runner = {
        .device = device, .run = opencl_run_command, .read = opencl_read_back, .user = device};
    const bool ok = ct__run_commands(&runner, commands, n, err);
    const int32_t code = n ? s->cl->clFinish(s->queue) : 0;
    return ok && (code == 0 || ct__cl_failed(err, "clFinish", code));
}

// ---------------------------------------------------------------------------------------- kernels

static bool opencl_needs_f64(const ct_kir *k) {
    for (size_t i = 0; i < k->n; i++)
        if (k->ins[i].dtype == CT_F64) return true;
    for (size_t i = 0; i < k->nbufs; i++)
        if (k->bufs[i].dtype == CT_F64) return true;
    return false;
}

static bool opencl_measure(ct_device *device, ct_kernel *const *kernels, size_t n, ct_err *err) {
    const ct_cl_state *s = device->state;
    for (size_t i = 0; i < n; i++) {
        ct_kernel *k = kernels[i];
        const uint64_t bytes = 16u * (unsigned)k->ir->nparams + 8u * (unsigned)k->ir->nargs + 32;
        if (!s->about.f64 && opencl_needs_f64(k->ir))
            return ct__err(err, CT_E_DEVICE, k->here, "opencl",
                           "f64 is computed here, and %s has none (cl_khr_fp64)", s->about.name);
        if (bytes > s->about.parameter_bytes)
            return ct__err(err, CT_E_DEVICE, k->here, "opencl",
                           "a kernel of %d buffers takes %d bytes of parameters, and %s has %d",
                           k->ir->nparams, (int)bytes, s->about.name,
                           (int)s->about.parameter_bytes);
        k->scratch = ct__kir_scratch(k->ir);
        k->measured = true;
    }
    return true;
}

static bool opencl_build(ct_device *device, ct_kernel *const *kernels, size_t n, ct_err *err) {
    return ct__cl_build(device->state, kernels, n, err);
}

static int opencl_count(const ct_backend *self, ct_err *err) {
    (void)self;
    const ct_cl *cl = ct__cl(err);
    return cl ? ct__cl_devices(cl, NULL, 0, err) : -1;
}

static void opencl_about(const ct_device *device, ct_text *what, uint64_t *memory) {
    const ct_cl_state *s = device->state;
    ct__textf(what, "%s (%s, %s): %d units%s", s->about.name, s->about.platform, s->about.version,
              (int)s->about.units, s->about.f64 ? "" : ", no f64");
    *memory = s->about.bytes;
}

const ct_backend ct__backend_opencl = {
    .name = "opencl",
    .count = opencl_count,
    .about = opencl_about,
    .language = CT_LANGUAGE_OPENCL,
    .several = true,
    .numerics = CT_NUMERICS_KERNELS,
    .open = opencl_open,
    .close = opencl_close,
    .alloc = opencl_alloc,
    .free = opencl_free,
    .copy_in = opencl_copy_in,
    .copy_out = opencl_copy_out,
    .submit = opencl_submit,
    .workspace = opencl_workspace,
    .target = ct__target_unmeasured,
    .measure = opencl_measure,
    .build = opencl_build,
};
