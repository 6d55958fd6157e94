// From OpenCL C to kernels: known to the device, else what the driver once made of it and the disk kept, else
// compiled.
#include <stdio.h>
#include <string.h>

#include "backend/cpu/cache.h"
#include "backend/opencl/opencl.h"
#include "backend/opencl/prelude.h"

// No option may change bits: nothing fused, no small number flushed, no division but the rounded one.
static const char *options(const ct_cl_state *s) {
    return s->about.rounded ? "-w -cl-fp32-correctly-rounded-divide-sqrt" : "-w";
}

static ct_hash key_of(const ct_cl_state *s, const ct_kernel *k) {
    const ct_cl_device *d = &s->about;
    const char *parts[] = {"opencl",  ct__opencl_prelude, d->platform, d->name,
                           d->driver, d->version,         options(s),  k->text};
    ct_hash key = {0, 0};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        key = ct__hash_bytes(parts[i], strlen(parts[i]) + 1, key);
    return key;
}

// Keeps what the driver made of the source. What cannot be kept is compiled again.
static void keep_binary(const ct_cl_state *s, cl_program program, ct_hash key) {
    ct_cache cache;
    ct_err ignored = {0};
    size_t n = 0;
    if (s->cl->clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof n, &n, NULL) != 0 || !n)
        return;
    unsigned char *bytes = ct__malloc(n);
    if (bytes &&
        s->cl->clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof bytes, &bytes, NULL) == 0 &&
        ct__cache_open(&cache, &ignored))
        ct__cache_keep(&cache, key, bytes, n);
    ct__free(bytes);
}

// What the disk keeps; NULL: nothing that this driver takes.
static cl_program kept_binary(const ct_cl_state *s, ct_hash key) {
    ct_cache cache;
    ct_err ignored = {0};
    size_t n = 0;
    char *bytes = ct__cache_open(&cache, &ignored) ? ct__cache_kept(&cache, key, &n) : NULL;
    const unsigned char *binary = (const unsigned char *)bytes;
    int32_t status = 0, code = 0;
    if (!bytes) return NULL;
    cl_program program =
        s->cl->clCreateProgramWithBinary(s->context, 1, &s->about.id, &n, &binary, &status, &code);
    ct__free(bytes);
    if (!program || code != 0) return NULL;
    if (s->cl->clBuildProgram(program, 1, &s->about.id, options(s), NULL, NULL) == 0)
        return program;
    s->cl->clReleaseProgram(program);
    return NULL;
}

// The first line of the log that tells of an error, else its first line.
static void first_error(const char *log, char *line, size_t size) {
    const char *at = strstr(log, "error");
    while (at && at > log && at[-1] != '\n') at--;
    if (!at) at = log + strspn(log, " \n");
    const size_t n = strcspn(at, "\n");
    snprintf(line, size, "%.*s", (int)(n < size ? n : size - 1), at);
}

static bool rejected(const ct_cl_state *s, cl_program program, const ct_kernel *k, int32_t code,
                     ct_err *err) {
    char *log = NULL, line[300] = "its log is empty";
    size_t n = 0;
    s->cl->clGetProgramBuildInfo(program, s->about.id, CL_PROGRAM_BUILD_LOG, 0, NULL, &n);
    if (n && (log = ct__calloc(n + 1, 1)))
        s->cl->clGetProgramBuildInfo(program, s->about.id, CL_PROGRAM_BUILD_LOG, n, log, NULL);
    if (log && *log) first_error(log, line, sizeof line);
    ct__free(log);
    return ct__err(err, CT_E_DEVICE, k->here, "opencl",
                   "the driver's compiler rejects kernel %s (%d): %s", k->name, (int)code, line);
}

static cl_program compile(const ct_cl_state *s, const ct_kernel *k, ct_err *err) {
    const char *texts[] = {ct__opencl_prelude, k->text};
    int32_t code = 0;
    cl_program program = s->cl->clCreateProgramWithSource(s->context, 2, texts, NULL, &code);
    if (!program || code != 0) {
        ct__cl_failed(err, "clCreateProgramWithSource", code);
        return NULL;
    }
    code = s->cl->clBuildProgram(program, 1, &s->about.id, options(s), NULL, NULL);
    if (code == 0) return program;
    rejected(s, program, k, code, err);
    s->cl->clReleaseProgram(program);
    return NULL;
}

ct_cl_code *ct__cl_build(ct_cl_state *s, const ct_kernel *k, ct_err *err) {
    const ct_hash key = key_of(s, k);
    int32_t code = 0;
    for (ct_cl_code *c = s->codes; c; c = c->next)
        if (ct__hash_equal(c->key, key)) return c;
    ct_cl_code *c = ct__calloc(1, sizeof *c);
    if (!c) {
        ct__err_memory(err, k->here, "opencl", sizeof *c);
        return NULL;
    }
    const bool loaded = (c->program = kept_binary(s, key)) != NULL;
    if (!loaded) c->program = compile(s, k, err);
    if (c->program) c->kernel = s->cl->clCreateKernel(c->program, k->name, &code);
    if (!c->kernel) {
        if (c->program) {
            ct__cl_failed(err, "clCreateKernel", code);
            s->cl->clReleaseProgram(c->program);
        }
        ct__counters.kernels_failed++;
        ct__free(c);
        return NULL;
    }
    if (loaded) {
        ct__counters.kernels_loaded++;
    } else {
        ct__counters.kernels_compiled++;
        keep_binary(s, c->program, key);
    }
    c->key = key;
    c->next = s->codes;
    s->codes = c;
    return c;
}

void ct__cl_codes_free(ct_cl_state *s) {
    for (ct_cl_code *c = s->codes, *next; c; c = next) {
        next = c->next;
        s->cl->clReleaseKernel(c->kernel);
        s->cl->clReleaseProgram(c->program);
        ct__free(c);
    }
    s->codes = NULL;
}
