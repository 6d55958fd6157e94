// Turns OpenCL C into kernels: known to the device, else loaded from the binary on the disk, else
// compiled. Several kernels share a program, since reading the headers and the prelude takes a
// driver longer than most kernels.
#include <stdio.h>
#include <string.h>

#include "backend/cpu/cache.h"
#include "backend/opencl/opencl.h"
#include "backend/opencl/prelude.h"

// No option may change bits: no contraction, no flushing of subnormal numbers, only correctly
// rounded division.
static const char *program_options(const ct_cl_state *s) {
    return s->about.rounded ? "-w -cl-fp32-correctly-rounded-divide-sqrt" : "-w";
}

static ct_hash program_key_of(const ct_cl_state *s, ct_kernel *const *kernels, size_t n) {
    const ct_cl_device *d = &s->about;
    const char *parts[] = {"opencl",  ct__opencl_prelude, d->platform,       d->name,
                           d->driver, d->version,         program_options(s)};
    ct_hash key = {0, 0};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        key = ct__hash_bytes(parts[i], strlen(parts[i]) + 1, key);
    for (size_t i = 0; i < n; i++)
        key = ct__hash_bytes(kernels[i]->text, strlen(kernels[i]->text) + 1, key);
    return key;
}

// PoCL has a cache of its own. If asked for a binary it compiles each kernel once more, for
// work-groups of any size.
static bool program_driver_has_cache(const ct_cl_state *s) {
    return strcmp(s->about.platform, "Portable Computing Language") == 0;
}

// Stores the driver's binary of the source. If that fails, it will be compiled again.
static void program_store_binary(const ct_cl_state *s, cl_program program, ct_hash key) {
    ct_cache cache;
    ct_err ignored = {0};
    size_t n = 0;
    if (s->cl->clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof n, &n, NULL) != 0 || !n)
        return;
    unsigned char *bytes = ct__malloc(n);
    if (bytes &&
        s->cl->clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof bytes, &bytes, NULL) == 0 &&
        ct__cache_open(&cache, &ignored))
        ct__cache_store(&cache, key, bytes, n);
    ct__free(bytes);
}

// Loads the stored binary; NULL: there is none that this driver accepts.
static cl_program program_fetch_binary(const ct_cl_state *s, ct_hash key) {
    ct_cache cache;
    ct_err ignored = {0};
    size_t n = 0;
    char *bytes = ct__cache_open(&cache, &ignored) ? ct__cache_fetch(&cache, key, &n) : NULL;
    const unsigned char *binary = (const unsigned char *)bytes;
    int32_t status = 0, code = 0;
    if (!bytes) return NULL;
    cl_program program =
        s->cl->clCreateProgramWithBinary(s->context, 1, &s->about.id, &n, &binary, &status, &code);
    ct__free(bytes);
    if (!program || code != 0) return NULL;
    if (s->cl->clBuildProgram(program, 1, &s->about.id, program_options(s), NULL, NULL) == 0)
        return program;
    s->cl->clReleaseProgram(program);
    return NULL;
}

// Copies the log's first line with "error", else its first line.
static void program_first_error_line(const char *log, char *line, size_t size) {
    const char *at = strstr(log, "error");
    while (at && at > log && at[-1] != '\n') at--;
    if (!at) at = log + strspn(log, " \n");
    const size_t n = strcspn(at, "\n");
    snprintf(line, size, "%.*s", (int)(n < size ? n : size - 1), at);
}

static bool program_report_rejected(const ct_cl_state *s, cl_program program, const ct_kernel *k,
                                    int32_t code, ct_err *err) {
    char *log = NULL, line[300] = "its log is empty";
    size_t n = 0;
    s->cl->clGetProgramBuildInfo(program, s->about.id, CL_PROGRAM_BUILD_LOG, 0, NULL, &n);
    if (n && (log = ct__calloc(n + 1, 1)))
        s->cl->clGetProgramBuildInfo(program, s->about.id, CL_PROGRAM_BUILD_LOG, n, log, NULL);
    if (log && *log) program_first_error_line(log, line, sizeof line);
    ct__free(log);
    return ct__err(err, CT_E_DEVICE, k->here, "opencl",
                   "the driver's compiler rejects kernel %s (%d): %s", k->name, (int)code, line);
}

static cl_program program_compile(const ct_cl_state *s, ct_kernel *const *kernels, size_t n,
                                  ct_err *err) {
    const char *texts[1 + CT_CL_TOGETHER] = {ct__opencl_prelude};
    int32_t code = 0;
    for (size_t i = 0; i < n; i++) texts[1 + i] = kernels[i]->text;
    cl_program program =
        s->cl->clCreateProgramWithSource(s->context, 1 + (uint32_t)n, texts, NULL, &code);
    if (!program || code != 0) {
        ct__cl_failed(err, "clCreateProgramWithSource", code);
        return NULL;
    }
    code = s->cl->clBuildProgram(program, 1, &s->about.id, program_options(s), NULL, NULL);
    if (code == 0) return program;
    program_report_rejected(s, program, kernels[0], code, err);
    s->cl->clReleaseProgram(program);
    return NULL;
}

static ct_hash program_text_hash(const ct_kernel *k) {
    return ct__hash_bytes(k->text, strlen(k->text), (ct_hash){0, 0});
}
static ct_cl_code *program_find_code(const ct_cl_state *s, ct_hash text) {
    ct_cl_code *c = s->codes;
    while (c && !ct__hash_equal(c->text, text)) c = c->next;
    return c;
}

// Adds the kernel of a program, which holds the program as long as it lives.
static bool program_add_code(ct_cl_state *s, cl_program program, ct_kernel *k, ct_err *err) {
    int32_t code = 0;
    ct_cl_code *c = ct__calloc(1, sizeof *c);
    if (!c) return ct__err_memory(err, k->here, "opencl", sizeof *c);
    c->kernel = s->cl->clCreateKernel(program, k->name, &code);
    if (!c->kernel) {
        ct__free(c);
        return ct__cl_failed(err, "clCreateKernel", code);
    }
    c->text = program_text_hash(k);
    c->next = s->codes;
    s->codes = k->code = c;
    return true;
}

// Builds kernels as one program, with one prelude.
static bool program_build(ct_cl_state *s, ct_kernel *const *kernels, size_t n, ct_err *err) {
    const ct_hash key = program_key_of(s, kernels, n);
    const bool driver_caches = program_driver_has_cache(s);
    cl_program program = driver_caches ? NULL : program_fetch_binary(s, key);
    const bool loaded = program != NULL;
    if (!loaded) {
        ct__counters.kernels_pending += n;
        program = program_compile(s, kernels, n, err);
        ct__counters.kernels_pending -= n;
    }
    bool ok = program != NULL;
    for (size_t i = 0; i < n && ok; i++) ok = program_add_code(s, program, kernels[i], err);
    if (ok && !loaded && !driver_caches) program_store_binary(s, program, key);
    if (program) s->cl->clReleaseProgram(program);
    *(loaded ? &ct__counters.kernels_loaded : &ct__counters.kernels_compiled) += ok ? n : 0;
    return ok;
}

// Builds kernels together; if the driver rejects them, one by one, to find the rejected one.
static bool program_build_or_split(ct_cl_state *s, ct_kernel *const *kernels, size_t n,
                                   ct_err *err) {
    ct_err together = {0};
    if (n > 1 && program_build(s, kernels, n, &together)) return true;
    for (size_t i = 0; i < n; i++) {
        if ((kernels[i]->code = program_find_code(s, program_text_hash(kernels[i])))) continue;
        if (program_build(s, &kernels[i], 1, err)) continue;
        ct__counters.kernels_failed++;
        return false;
    }
    return true;
}

bool ct__cl_build(ct_cl_state *s, ct_kernel *const *kernels, size_t n, ct_err *err) {
    for (size_t at = 0; at < n;) {
        ct_kernel *some[CT_CL_TOGETHER];
        size_t n_some = 0;
        for (; at < n && n_some < CT_CL_TOGETHER; at++) {
            if ((kernels[at]->code = program_find_code(s, program_text_hash(kernels[at]))))
                continue;
            bool twice = false;
            for (size_t i = 0; i < n_some; i++)
                twice |= strcmp(some[i]->name, kernels[at]->name) == 0;
            if (twice) break; // the next program builds it, or finds it
            some[n_some++] = kernels[at];
        }
        if (n_some && !program_build_or_split(s, some, n_some, err)) return false;
    }
    return true;
}

void ct__cl_codes_free(ct_cl_state *s) {
    for (ct_cl_code *c = s->codes, *next; c; c = next) {
        next = c->next;
        s->cl->clReleaseKernel(c->kernel);
        ct__free(c);
    }
    s->codes = NULL;
}
