// A device of one's own: its memory is out of the host's sight, and its kernels are compiled by cc and run by one
// thread. A driver of real hardware would put its own calls where this one has malloc, memcpy and dlsym.
//     cc -O2 -shared -fPIC own_device.c -o own_device.so
//     COTAN_DEVICE_LIBRARY=$PWD/own_device.so cotan devices
//     COTAN_DEVICE_LIBRARY=$PWD/own_device.so cotan train --data book.txt --device own
#define _GNU_SOURCE
#include <cotan/device.h>
#include <dlfcn.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
const ct_device_spec *cotan_device(void);

typedef void (*kernel_fn)(void *const *buffers, const int64_t *numbers, int64_t begin, int64_t end,
                          void *scratch);

typedef struct own_device {
    char why[256];   // of the last failure
    char folder[32]; // where kernels are compiled
    int compiled;
    void *scratch;
    size_t scratch_bytes;
} own_device;

// ----------------------------------------------------------------------------------------- memory

// What the library gets is no address: whoever touched it would crash.
static void *hidden(void *p) { return (void *)((uintptr_t)p ^ UINTPTR_MAX); }
static char *at(ct_device_address place) { return (char *)hidden(place.buffer) + place.offset; }

static ct_device_error own_open(int ordinal, void **state) {
    own_device *d = calloc(1, sizeof *d);
    (void)ordinal;
    if (!d) return "out of memory";
    strcpy(d->folder, "/tmp/own-device-XXXXXX");
    if (!mkdtemp(d->folder)) {
        free(d);
        return "no folder can be made in /tmp";
    }
    *state = d;
    return NULL;
}
static void own_close(void *state) {
    own_device *d = state;
    rmdir(d->folder); // each kernel's files went when it was loaded
    free(d->scratch);
    free(d);
}

static void *own_alloc(void *state, size_t bytes) {
    void *p = NULL;
    (void)state;
    return posix_memalign(&p, 64, bytes) == 0 ? hidden(p) : NULL;
}
static void own_free(void *state, void *buffer) {
    (void)state;
    free(hidden(buffer));
}
static ct_device_error own_copy_in(void *state, ct_device_address to, const void *host,
                                   size_t bytes) {
    (void)state;
    memcpy(at(to), host, bytes);
    return NULL;
}
static ct_device_error own_copy_out(void *state, ct_device_address from, void *host, size_t bytes) {
    (void)state;
    memcpy(host, at(from), bytes);
    return NULL;
}
static ct_device_error own_copy(void *state, ct_device_address from, ct_device_address to,
                                size_t bytes) {
    (void)state;
    memmove(at(to), at(from), bytes);
    return NULL;
}

// ---------------------------------------------------------------------------------------- kernels

static bool run_compiler(const char *source, const char *library) {
    const char *words[] = {"cc",
                           "-O2",
                           "-march=native",
                           "-ffp-contract=off",
                           "-fno-math-errno",
                           "-fwrapv",
                           "-fno-strict-aliasing",
                           "-std=gnu17",
                           "-fPIC",
                           "-shared",
                           "-w",
                           source,
                           "-o",
                           library,
                           NULL};
    pid_t child;
    int status = -1;
    return posix_spawnp(&child, words[0], NULL, NULL, (char **)words, environ) == 0 &&
           waitpid(child, &status, 0) == child && status == 0;
}

static ct_device_error own_compile(void *state, const ct_device_kernel *kernel, void **code) {
    own_device *d = state;
    char source[64], library[64];
    snprintf(source, sizeof source, "%s/%d.c", d->folder, d->compiled);
    snprintf(library, sizeof library, "%s/%d.so", d->folder, d->compiled++);
    FILE *f = fopen(source, "w");
    bool ok = f && fputs(kernel->source, f) >= 0;
    ok = f && fclose(f) == 0 && ok && run_compiler(source, library);
    void *loaded = ok ? dlopen(library, RTLD_NOW | RTLD_LOCAL) : NULL;
    *code = loaded ? dlsym(loaded, kernel->name) : NULL;
    if (!*code) snprintf(d->why, sizeof d->why, "%.200s", ok ? dlerror() : "cc gave no library");
    unlink(source);
    unlink(library);
    return *code ? NULL : d->why;
}

static ct_device_error own_launch(void *state, const ct_device_launch *launch) {
    own_device *d = state;
    void *buffers[launch->n_buffers + 1];
    kernel_fn run;
    if (launch->scratch > d->scratch_bytes) {
        free(d->scratch);
        d->scratch_bytes = (launch->scratch + 63) / 64 * 64;
        if (!(d->scratch = aligned_alloc(64, d->scratch_bytes))) {
            d->scratch_bytes = 0;
            return "out of memory for scratch";
        }
    }
    for (uint32_t i = 0; i < launch->n_buffers; i++) buffers[i] = at(launch->buffers[i]);
    memcpy(&run, &launch->code, sizeof run);
    run(buffers, launch->scalars, 0, launch->grid, d->scratch);
    return NULL;
}
static ct_device_error own_wait(void *state) { return (void)state, NULL; }

const ct_device_spec *cotan_device(void) {
    static const ct_device_spec spec = {
        .struct_size = sizeof spec,
        .name = "own",
        .doc = "an example: one thread, and memory out of the host's sight",
        .language = CT_DEVICE_C,
        .open = own_open,
        .close = own_close,
        .alloc = own_alloc,
        .free = own_free,
        .copy_in = own_copy_in,
        .copy_out = own_copy_out,
        .copy = own_copy,
        .compile = own_compile,
        .launch = own_launch,
        .wait = own_wait};
    return &spec;
}
