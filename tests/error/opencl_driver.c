// A library in the place of OpenCL's, for tests: one device whose memory is the host's, which runs nothing. The
// environment says how it fails: DRIVER=none (no device), old (OpenCL 1.1), broken (every question fails),
// rejects (kernels), full (no buffer), plain (f32 alone), lost (the first launch); or that it gives
// (keeps) what it compiled, and takes it back.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int is(const char *how) {
    const char *driver = getenv("DRIVER");
    return driver && strcmp(driver, how) == 0;
}
static int32_t give(const void *from, size_t n, size_t size, void *to, size_t *needed) {
    if (needed) *needed = n;
    if (to) memcpy(to, from, n < size ? n : size);
    return 0;
}

int32_t clGetPlatformIDs(uint32_t n, void **to, uint32_t *count) {
    if (is("broken")) return -6;
    if (n) to[0] = (void *)1;
    return *count = 1, 0;
}
int32_t clGetPlatformInfo(void *p, uint32_t what, size_t size, void *to, size_t *needed) {
    return (void)p, (void)what, give("Stub", 5, size, to, needed);
}
int32_t clGetDeviceIDs(void *p, uint64_t type, uint32_t n, void **to, uint32_t *count) {
    (void)p, (void)type;
    if (is("none")) return -1;
    if (n) to[0] = (void *)2;
    return *count = 1, 0;
}
int32_t clGetDeviceInfo(void *d, uint32_t what, size_t size, void *to, size_t *needed) {
    const char *version = is("old") ? "OpenCL 1.1 Stub" : "OpenCL 1.2 Stub";
    const char *extensions = is("plain") ? "" : "cl_khr_fp64";
    const uint64_t numbers[] = {1 << 30, 255};
    (void)d;
    if (what == 0x102f) return give(version, strlen(version) + 1, size, to, needed);
    if (what == 0x1030) return give(extensions, strlen(extensions) + 1, size, to, needed);
    if (what == 0x102b || what == 0x102d) return give("a stub", 7, size, to, needed);
    return give(&numbers[what == 0x101b], 8, size, to, needed);
}
void *clCreateContext(const void *p, uint32_t n, void *d, void *f, void *u, int32_t *code) {
    return (void)p, (void)n, (void)d, (void)f, (void)u, *code = 0, (void *)3;
}
int32_t clReleaseContext(void *c) { return (void)c, 0; }
void *clCreateCommandQueue(void *c, void *d, uint64_t how, int32_t *code) {
    return (void)c, (void)d, (void)how, *code = 0, (void *)4;
}
int32_t clReleaseCommandQueue(void *q) { return (void)q, 0; }
void *clCreateBuffer(void *c, uint64_t how, size_t n, void *host, int32_t *code) {
    (void)c, (void)how, (void)host;
    *code = is("full") ? -4 : 0;
    return is("full") ? NULL : calloc(n, 1);
}
int32_t clReleaseMemObject(void *m) { return free(m), 0; }
int32_t clEnqueueReadBuffer(void *q, char *m, uint32_t b, size_t at, size_t n, void *to, uint32_t k,
                            void *l, void *e) {
    return (void)q, (void)b, (void)k, (void)l, (void)e, memcpy(to, m + at, n), 0;
}
int32_t clEnqueueWriteBuffer(void *q, char *m, uint32_t b, size_t at, size_t n, const void *from,
                             uint32_t k, void *l, void *e) {
    return (void)q, (void)b, (void)k, (void)l, (void)e, memcpy(m + at, from, n), 0;
}
int32_t clEnqueueCopyBuffer(void *q, char *a, char *b, size_t at, size_t to, size_t n, uint32_t k,
                            void *l, void *e) {
    return (void)q, (void)k, (void)l, (void)e, memcpy(b + to, a + at, n), 0;
}
int32_t clEnqueueNDRangeKernel(void *q, void *k, uint32_t r, const size_t *o, const size_t *g,
                               const size_t *l, uint32_t n, void *w, void *e) {
    return (void)q, (void)k, (void)r, (void)o, (void)g, (void)l, (void)n, (void)w, (void)e,
           is("lost") ? -5 : 0;
}
int32_t clFinish(void *q) { return (void)q, 0; }
static const unsigned char built[] = "what it compiled";
void *clCreateProgramWithSource(void *c, uint32_t n, const char **t, const size_t *l,
                                int32_t *code) {
    return (void)c, (void)n, (void)t, (void)l, *code = 0, (void *)5;
}
void *clCreateProgramWithBinary(void *c, uint32_t n, void *d, const size_t *l,
                                const unsigned char **b, int32_t *s, int32_t *code) {
    const int ours = is("keeps") && *l == sizeof built && memcmp(*b, built, sizeof built) == 0;
    (void)c, (void)n, (void)d, (void)s;
    *code = ours ? 0 : -42;
    return ours ? (void *)5 : NULL;
}
int32_t clBuildProgram(void *p, uint32_t n, void *d, const char *how, void *f, void *u) {
    return (void)p, (void)n, (void)d, (void)how, (void)f, (void)u, is("rejects") ? -11 : 0;
}
int32_t clGetProgramBuildInfo(void *p, void *d, uint32_t what, size_t size, void *to,
                              size_t *needed) {
    const char log[] = "a warning\n<source>:3:7: error: no such thing as vload16\nmore\n";
    return (void)p, (void)d, (void)what, give(log, sizeof log, size, to, needed);
}
int32_t clGetProgramInfo(void *p, uint32_t what, size_t size, void *to, size_t *needed) {
    const size_t n = is("keeps") ? sizeof built : 0;
    (void)p;
    if (what == 0x1165) return give(&n, sizeof n, size, to, needed);
    return memcpy(*(unsigned char **)to, built, n), 0;
}
int32_t clReleaseProgram(void *p) { return (void)p, 0; }
void *clCreateKernel(void *p, const char *name, int32_t *code) {
    return (void)p, (void)name, *code = 0, (void *)6;
}
int32_t clReleaseKernel(void *k) { return (void)k, 0; }
int32_t clSetKernelArg(void *k, uint32_t i, size_t n, const void *v) {
    return (void)k, (void)i, (void)n, (void)v, 0;
}
