// A device from outside behind the backend's table of functions.
#define _GNU_SOURCE
#include "backend/outside/outside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cotan/device.h"
#include "backend/memory.h"
#include "backend/cpu/prelude.h"
#include "backend/opencl/prelude.h"
#include "base/library.h"
#include "base/os.h"
#include "kir/kir.h"

typedef struct ct_outside {
    ct_backend backend; // first, so that a device's backend is this record
    ct_device_spec spec;
    char numerics[64];
    struct ct_outside *next;
} ct_outside;

typedef struct ct_outside_code { // a kernel that is compiled; found again by its name
    struct ct_outside_code *next;
    char name[40];
    void *code;
} ct_outside_code;

typedef struct ct_outside_state { // of a device that is open
    const ct_device_spec *spec;
    void *state; // the device's own
    ct_outside_code *codes;
    pthread_mutex_t turn; // of the threads that call it
} ct_outside_state;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ct_outside *first;

// ---------------------------------------------------------------------------------- the functions

static const ct_device_spec *spec_of(const ct_device *device) {
    return &((const ct_outside *)device->backend)->spec;
}
static void *own(const ct_device *device) {
    return ((const ct_outside_state *)device->state)->state;
}
static void enter(const ct_device *device) {
    pthread_mutex_lock(&((ct_outside_state *)device->state)->turn);
}
static void leave(const ct_device *device) {
    pthread_mutex_unlock(&((ct_outside_state *)device->state)->turn);
}
static ct_device_place place(ct_operand at) { return (ct_device_place){at.buffer, at.offset}; }

static bool done(const ct_device *device, ct_device_why why, const char *what, ct_err *err) {
    return !why ||
           ct__err(err, CT_E_DEVICE, CT_NOWHERE, device->backend->name, "%s: %.400s", what, why);
}

// The end of a call: its turn is over when what it says was read.
static bool ended(const ct_device *device, ct_device_why why, const char *what, ct_err *err) {
    const bool ok = done(device, why, what, err);
    leave(device);
    return ok;
}

static int outside_count(const ct_backend *self, ct_err *err) {
    const ct_device_spec *spec = &((const ct_outside *)self)->spec;
    (void)err;
    return spec->count ? spec->count() : 1;
}

static bool outside_open(ct_device *device, ct_err *err) {
    const ct_device_spec *spec = spec_of(device);
    const int n = outside_count(device->backend, err);
    if (device->ordinal >= n)
        return ct__err(err, CT_E_DEVICE, CT_NOWHERE, spec->name,
                       "there is no device %s:%d: %d %s found", spec->name, device->ordinal, n,
                       n == 1 ? "is" : "are");
    ct_outside_state *s = ct__calloc(1, sizeof *s);
    if (!s) return ct__err_memory(err, CT_NOWHERE, spec->name, sizeof *s);
    s->spec = spec;
    pthread_mutex_init(&s->turn, NULL);
    device->state = s;
    if (done(device, spec->open(device->ordinal, &s->state), "it cannot be opened", err))
        return true;
    pthread_mutex_destroy(&s->turn);
    ct__free(s);
    return false;
}
static void outside_close(ct_device *device) {
    ct_outside_state *s = device->state;
    s->spec->close(s->state);
    for (ct_outside_code *c = s->codes, *next; c; c = next) {
        next = c->next;
        ct__free(c);
    }
    pthread_mutex_destroy(&s->turn);
    ct__free(s);
}

static void *outside_alloc(ct_device *device, size_t bytes, ct_err *err) {
    enter(device);
    void *p = spec_of(device)->alloc(own(device), bytes ? bytes : 64);
    leave(device);
    if (!p)
        ct__err(err, CT_E_MEMORY, CT_NOWHERE, device->backend->name, "out of memory for %s",
                ct__bytes_text(bytes).s);
    return p;
}
static void outside_free(ct_device *device, void *buffer) {
    enter(device);
    spec_of(device)->free(own(device), buffer);
    leave(device);
}
static bool outside_copy_in(ct_device *device, ct_operand to, const void *host, size_t n,
                            ct_err *err) {
    if (!n) return true;
    enter(device);
    return ended(device, spec_of(device)->copy_in(own(device), place(to), host, n), "copy_in", err);
}
static bool outside_copy_out(ct_device *device, ct_operand from, void *host, size_t n,
                             ct_err *err) {
    if (!n) return true;
    enter(device);
    return ended(device, spec_of(device)->copy_out(own(device), place(from), host, n), "copy_out",
                 err);
}

// --------------------------------------------------------------------------------------- launches

static bool run_kernel(ct_device *device, const ct_command *c, ct_err *err) {
    enum { MOST = 64 };
    ct_device_place few[MOST], *buffers = few;
    if (c->n_args > MOST && !(buffers = ct__malloc(c->n_args * sizeof *buffers)))
        return ct__err_memory(err, CT_NOWHERE, device->backend->name, c->n_args * sizeof *buffers);
    for (uint32_t i = 0; i < c->n_args; i++) buffers[i] = place(c->args[i]);
    const ct_device_launch launch = {.code = c->kernel->code,
                                     .buffers = buffers,
                                     .numbers = c->numbers,
                                     .n_buffers = c->n_args,
                                     .n_numbers = c->n_numbers,
                                     .grid = c->grid,
                                     .scratch = c->kernel->scratch};
    enter(device);
    const bool ok =
        ended(device, spec_of(device)->launch(own(device), &launch), c->kernel->name, err);
    if (buffers != few) ct__free(buffers);
    return ok;
}

static bool run_command(void *user, const ct_command *c, const ct_command *given, ct_err *err) {
    ct_device *device = user;
    (void)given;
    if (ct__stopped(device, err)) return false;
    if (c->kind == CT_COMMAND_NODE) return ct__call_on_copies(device, c, err);
    if (c->kind == CT_COMMAND_KERNEL) return run_kernel(device, c, err);
    if (!c->bytes) return true;
    enter(device);
    return ended(device,
                 spec_of(device)->copy(own(device), place(c->args[0]), place(c->args[1]), c->bytes),
                 "copy", err);
}
static bool read_back(void *device, ct_operand from, void *to, size_t n, ct_err *err) {
    return outside_copy_out(device, from, to, n, err);
}

static bool outside_submit(ct_device *device, const ct_command *commands, size_t n, ct_err *err) {
    const ct_runner runner = {
        .device = device, .run = run_command, .read = read_back, .user = device};
    const bool ok = ct__run_commands(&runner, commands, n, err);
    ct_err other = {0};
    enter(device);
    const bool waited =
        ended(device, spec_of(device)->wait(own(device)), "wait", ok ? err : &other);
    return ok && waited;
}
static uint64_t outside_event(ct_device *device) { return (void)device, 0; }
static bool outside_wait(ct_device *device, uint64_t event, ct_err *err) {
    return (void)device, (void)event, (void)err, true;
}

// ---------------------------------------------------------------------------------------- kernels

static ct_target outside_target(void) {
    return (ct_target){.cores = ct__cores_allowed(),
                       .lanes = 16,
                       .registers = 32,
                       CT_TARGET_CPU_TASKS,
                       .gflops = 50};
}

static bool outside_measure(ct_device *device, ct_kernel *const *kernels, size_t n, ct_err *err) {
    (void)device, (void)err;
    for (size_t i = 0; i < n; i++) {
        kernels[i]->scratch = ct__kir_scratch(kernels[i]->ir);
        kernels[i]->measured = true;
    }
    return true;
}

static bool compile(ct_device *device, const ct_kernel *k, void **code, ct_err *err) {
    const ct_device_spec *spec = spec_of(device);
    ct_text source = {0};
    if (spec->language == CT_DEVICE_C)
        ct__prelude_add(&source, &k->text, 1);
    else
        ct__text_add(&source, ct__opencl_prelude);
    ct__text_add(&source, k->text);
    if (source.failed) return ct__err_memory(err, k->here, spec->name, strlen(k->text));
    const ct_device_kernel kernel = {.name = k->name, .source = source.s, .scratch = k->scratch};
    enter(device);
    ct__counters.kernels_pending++;
    const ct_device_why why = spec->compile(own(device), &kernel, code);
    ct__counters.kernels_pending--;
    if (why)
        ct__err(err, CT_E_DEVICE, k->here, spec->name, "kernel %s cannot be compiled: %.400s",
                k->name, why);
    leave(device);
    ct__text_free(&source);
    if (why) ct__counters.kernels_failed++;
    return !why;
}

static bool build_one(ct_device *device, ct_kernel *k, ct_err *err) {
    ct_outside_state *s = device->state;
    for (const ct_outside_code *c = s->codes; c; c = c->next) {
        if (strcmp(c->name, k->name) != 0) continue;
        k->code = c->code;
        return true;
    }
    ct_outside_code *c = ct__calloc(1, sizeof *c);
    if (!c) return ct__err_memory(err, k->here, device->backend->name, sizeof *c);
    if (!compile(device, k, &c->code, err)) {
        ct__free(c);
        return false;
    }
    ct__counters.kernels_compiled++;
    snprintf(c->name, sizeof c->name, "%s", k->name);
    c->next = s->codes;
    s->codes = c;
    k->code = c->code;
    return true;
}
static bool outside_build(ct_device *device, ct_kernel *const *kernels, size_t n, ct_err *err) {
    for (size_t i = 0; i < n; i++)
        if (!build_one(device, kernels[i], err)) return false;
    return true;
}

static void outside_about(const ct_device *device, ct_text *what, uint64_t *memory) {
    const ct_device_spec *spec = spec_of(device);
    ct__text_add(what, spec->doc ? spec->doc : "a device from outside");
    *memory = spec->memory;
}

static const ct_backend functions = {
    .count = outside_count,
    .open = outside_open,
    .close = outside_close,
    .about = outside_about,
    .alloc = outside_alloc,
    .free = outside_free,
    .copy_in = outside_copy_in,
    .copy_out = outside_copy_out,
    .submit = outside_submit,
    .event = outside_event,
    .wait = outside_wait,
    .target = outside_target,
    .measure = outside_measure,
    .build = outside_build,
};

// ------------------------------------------------------------------------------------- definitions

static bool is_name(const char *name) {
    size_t n = name ? strlen(name) : 0;
    return n >= 1 && n <= 20 && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789") == n;
}

static bool is_taken(const char *name) {
    if (strcmp(name, "async") == 0 || strcmp(name, "dry") == 0) return true;
    for (const ct_backend *const *b = ct__backends; *b; b++)
        if (strcmp((*b)->name, name) == 0) return true;
    bool taken = false;
    pthread_mutex_lock(&lock);
    for (const ct_outside *o = first; o; o = o->next)
        taken = taken || strcmp(o->spec.name, name) == 0;
    pthread_mutex_unlock(&lock);
    return taken;
}

static bool is_whole(const ct_device_spec *s) {
    return s->open && s->close && s->alloc && s->free && s->copy_in && s->copy_out && s->copy &&
           s->compile && s->launch && s->wait;
}

static bool define(const ct_device_spec *spec, ct_loc here, ct_err *err) {
    static const char op[] = "device_define";
    if (spec->bytes != sizeof *spec)
        return ct__err(err, CT_E_ARGUMENT, here, op,
                       "the device was compiled with the headers of another version of Cotan");
    if (!is_name(spec->name))
        return ct__err(err, CT_E_ARGUMENT, here, op,
                       "the name \"%.40s\" is not made of 1 to 20 lower-case letters and digits",
                       spec->name ? spec->name : "");
    if (is_taken(spec->name))
        return ct__err(err, CT_E_ARGUMENT, here, op, "there is a device %s already", spec->name);
    if (!is_whole(spec))
        return ct__err(err, CT_E_ARGUMENT, here, op, "device %s lacks a function", spec->name);
    if ((unsigned)spec->language > CT_DEVICE_OPENCL_C)
        return ct__err(err, CT_E_ARGUMENT, here, op, "device %s is of an unknown language, %d",
                       spec->name, (int)spec->language);
    ct_outside *o = ct__calloc(1, sizeof *o);
    if (!o) return ct__err_memory(err, here, op, sizeof *o);
    o->spec = *spec;
    o->backend = functions;
    o->backend.name = spec->name;
    o->backend.several = spec->count != NULL;
    o->backend.language = spec->language == CT_DEVICE_C ? CT_LANGUAGE_C : CT_LANGUAGE_OPENCL;
    snprintf(o->numerics, sizeof o->numerics, "%s%s%.16s", CT_NUMERICS_KERNELS,
             spec->numerics ? " " : "", spec->numerics ? spec->numerics : "");
    o->backend.numerics = o->numerics;
    pthread_mutex_lock(&lock);
    ct_outside **last = &first;
    while (*last) last = &(*last)->next;
    *last = o;
    pthread_mutex_unlock(&lock);
    return true;
}

static bool load(const char *path, ct_loc here, ct_err *err) {
    static const char op[] = "device_load";
    void *library = ct__library_open(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) return ct__err(err, CT_E_FILE, here, op, "%.400s", ct__library_error());
    const ct_device_spec *(*device)(void);
    void *at = dlsym(library, "cotan_device");
    memcpy(&device, &at, sizeof device);
    const ct_device_spec *spec = at ? device() : NULL;
    dlclose(library); // it stays
    if (!at)
        return ct__err(err, CT_E_FORMAT, here, op,
                       "%.300s has no function cotan_device, which tells of its device", path);
    if (!spec)
        return ct__err(err, CT_E_FORMAT, here, op, "cotan_device of %.300s returned NULL", path);
    return define(spec, here, err);
}

// COTAN_DEVICE_LIBRARY, once; a setuid program does not load what the environment names.
static void load_asked(ct_err *err) {
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    static bool loaded;
    static ct_err failure;
    pthread_mutex_lock(&once);
    const char *text = loaded ? NULL : secure_getenv("COTAN_DEVICE_LIBRARY");
    loaded = true;
    while (text && *text) { // all of them, whatever the first one's fault is
        ct_err why = {0};
        char path[4096];
        const size_t n = strcspn(text, ":");
        snprintf(path, sizeof path, "%.*s", (int)(n < sizeof path ? n : sizeof path - 1), text);
        if (n && !load(path, CT_NOWHERE, &why) && !failure.code) failure = why;
        text += n + (text[n] == ':');
    }
    if (failure.code && err) *err = failure;
    pthread_mutex_unlock(&once);
}

const ct_backend *ct__outside_next(const ct_backend *last, ct_err *why) {
    load_asked(why);
    pthread_mutex_lock(&lock);
    const ct_outside *next = last ? ((const ct_outside *)last)->next : first;
    pthread_mutex_unlock(&lock);
    return next ? &next->backend : NULL;
}

bool ct_device_define_at(const ct_device_spec *spec, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    return ctx && ct__given(ctx, spec, here, "device_define", "the device") && !ctx->err.code &&
           define(spec, here, &ctx->err);
}
bool ct_device_load_at(const char *path, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    return ctx && ct__given(ctx, path, here, "device_load", "the path") && !ctx->err.code &&
           load(path, here, &ctx->err);
}
