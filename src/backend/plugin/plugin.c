// Adapts a device plugin to the backend's table of functions.
#define _GNU_SOURCE
#include "backend/plugin/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cotan/device.h"
#include "backend/cpu/prelude.h"
#include "backend/opencl/prelude.h"
#include "base/library.h"
#include "base/os.h"
#include "kir/kir.h"

typedef struct device_plugin {
    ct_backend backend; // first, so that a device's backend is this record
    ct_device_spec spec;
    char numerics[64];
    struct device_plugin *next;
} device_plugin;

typedef struct plugin_code { // a compiled kernel, found by its name
    struct plugin_code *next;
    char name[40];
    void *code;
} plugin_code;

typedef struct plugin_state { // of an open device
    const ct_device_spec *spec;
    void *state; // the plugin's own
    plugin_code *codes;
    pthread_mutex_t lock; // serializes calls of the plugin
} plugin_state;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static device_plugin *first;

// ---------------------------------------------------------------------------------- the functions

static const ct_device_spec *plugin_spec_of(const ct_device *device) {
    return &((const device_plugin *)device->backend)->spec;
}
static void *plugin_own_state(const ct_device *device) {
    return ((const plugin_state *)device->state)->state;
}
static void plugin_lock(const ct_device *device) {
    pthread_mutex_lock(&((plugin_state *)device->state)->lock);
}
static void plugin_unlock(const ct_device *device) {
    pthread_mutex_unlock(&((plugin_state *)device->state)->lock);
}
static ct_device_address plugin_place(ct_operand at) {
    return (ct_device_address){at.buffer, at.offset};
}

static bool plugin_check(const ct_device *device, ct_device_error why, const char *what,
                         ct_err *err) {
    return !why ||
           ct__err(err, CT_E_DEVICE, CT_NOWHERE, device->backend->name, "%s: %.400s", what, why);
}

// Ends a call: unlocks the device after the returned message was read.
static bool plugin_check_and_unlock(const ct_device *device, ct_device_error why, const char *what,
                                    ct_err *err) {
    const bool ok = plugin_check(device, why, what, err);
    plugin_unlock(device);
    return ok;
}

static int plugin_count(const ct_backend *self, ct_err *err) {
    const ct_device_spec *spec = &((const device_plugin *)self)->spec;
    (void)err;
    return spec->count ? spec->count() : 1;
}

static bool plugin_open(ct_device *device, ct_err *err) {
    const ct_device_spec *spec = plugin_spec_of(device);
    const int n = plugin_count(device->backend, err);
    if (device->ordinal >= n)
        return ct__err(err, CT_E_DEVICE, CT_NOWHERE, spec->name,
                       "there is no device %s:%d: %d %s found", spec->name, device->ordinal, n,
                       n == 1 ? "is" : "are");
    plugin_state *s = ct__calloc(1, sizeof *s);
    if (!s) return ct__err_memory(err, CT_NOWHERE, spec->name, sizeof *s);
    s->spec = spec;
    pthread_mutex_init(&s->lock, NULL);
    device->state = s;
    if (plugin_check(device, spec->open(device->ordinal, &s->state), "it cannot be opened", err))
        return true;
    pthread_mutex_destroy(&s->lock);
    ct__free(s);
    return false;
}
static void plugin_close(ct_device *device) {
    plugin_state *s = device->state;
    s->spec->close(s->state);
    for (plugin_code *c = s->codes, *next; c; c = next) {
        next = c->next;
        ct__free(c);
    }
    pthread_mutex_destroy(&s->lock);
    ct__free(s);
}

static void *plugin_alloc(ct_device *device, size_t bytes, ct_err *err) {
    plugin_lock(device);
    void *p = plugin_spec_of(device)->alloc(plugin_own_state(device), bytes ? bytes : 64);
    plugin_unlock(device);
    if (!p)
        ct__err(err, CT_E_MEMORY, CT_NOWHERE, device->backend->name, "out of memory for %s",
                ct__bytes_text(bytes).s);
    return p;
}
static void plugin_free_buffer(ct_device *device, void *buffer) {
    plugin_lock(device);
    plugin_spec_of(device)->free(plugin_own_state(device), buffer);
    plugin_unlock(device);
}
static bool plugin_copy_in(ct_device *device, ct_operand to, const void *host, size_t n,
                           ct_err *err) {
    if (!n) return true;
    plugin_lock(device);
    return plugin_check_and_unlock(
        device,
        plugin_spec_of(device)->copy_in(plugin_own_state(device), plugin_place(to), host, n),
        "copy_in", err);
}
static bool plugin_copy_out(ct_device *device, ct_operand from, void *host, size_t n, ct_err *err) {
    if (!n) return true;
    plugin_lock(device);
    return plugin_check_and_unlock(
        device,
        plugin_spec_of(device)->copy_out(plugin_own_state(device), plugin_place(from), host, n),
        "copy_out", err);
}

// --------------------------------------------------------------------------------------- launches

static bool plugin_run_kernel(ct_device *device, const ct_command *c, ct_err *err) {
    enum { MAX_FEW = 64 };
    ct_device_address few[MAX_FEW], *buffers = few;
    if (c->n_args > MAX_FEW && !(buffers = ct__malloc(c->n_args * sizeof *buffers)))
        return ct__err_memory(err, CT_NOWHERE, device->backend->name, c->n_args * sizeof *buffers);
    for (uint32_t i = 0; i < c->n_args; i++) buffers[i] = plugin_place(c->args[i]);
    const ct_device_launch launch = {.code = c->kernel->code,
                                     .buffers = buffers,
                                     .scalars = c->numbers,
                                     .n_buffers = c->n_args,
                                     .n_scalars = c->n_numbers,
                                     .grid = c->grid,
                                     .scratch = c->kernel->scratch};
    plugin_lock(device);
    const bool ok = plugin_check_and_unlock(
        device, plugin_spec_of(device)->launch(plugin_own_state(device), &launch), c->kernel->name,
        err);
    if (buffers != few) ct__free(buffers);
    return ok;
}

static bool plugin_run_command(void *user, const ct_command *c, const ct_command *original,
                               ct_err *err) {
    ct_device *device = user;
    (void)original;
    if (ct__stopped(device, err)) return false;
    if (c->kind == CT_COMMAND_NODE) return ct__call_on_copies(device, c, err);
    if (c->kind == CT_COMMAND_KERNEL) return plugin_run_kernel(device, c, err);
    if (!c->bytes) return true;
    plugin_lock(device);
    return plugin_check_and_unlock(device,
                                   plugin_spec_of(device)->copy(plugin_own_state(device),
                                                                plugin_place(c->args[0]),
                                                                plugin_place(c->args[1]), c->bytes),
                                   "copy", err);
}
static bool plugin_read_back(void *device, ct_operand from, void *to, size_t n, ct_err *err) {
    return plugin_copy_out(device, from, to, n, err);
}

static bool plugin_submit(ct_device *device, const ct_command *commands, size_t n, ct_err *err) {
    const ct_runner runner = {
        .device = device, .run = plugin_run_command, .read = plugin_read_back, .user = device};
    const bool ok = ct__run_commands(&runner, commands, n, err);
    ct_err other = {0};
    plugin_lock(device);
    const bool waited = plugin_check_and_unlock(
        device, plugin_spec_of(device)->wait(plugin_own_state(device)), "wait", ok ? err : &other);
    return ok && waited;
}

// ---------------------------------------------------------------------------------------- kernels

static bool plugin_measure(ct_device *device, ct_kernel *const *kernels, size_t n, ct_err *err) {
    (void)device, (void)err;
    for (size_t i = 0; i < n; i++) {
        kernels[i]->scratch = ct__kir_scratch(kernels[i]->ir);
        kernels[i]->measured = true;
    }
    return true;
}

static bool plugin_compile(ct_device *device, const ct_kernel *k, void **code, ct_err *err) {
    const ct_device_spec *spec = plugin_spec_of(device);
    ct_text source = {0};
    if (spec->language == CT_DEVICE_C)
        ct__prelude_add(&source, &k->text, 1);
    else
        ct__text_add(&source, ct__opencl_prelude);
    ct__text_add(&source, k->text);
    if (source.failed) return ct__err_memory(err, k->here, spec->name, strlen(k->text));
    const ct_device_kernel kernel = {.name = k->name, .source = source.s, .scratch = k->scratch};
    plugin_lock(device);
    ct__counters.kernels_pending++;
    const ct_device_error why = spec->compile(plugin_own_state(device), &kernel, code);
    ct__counters.kernels_pending--;
    if (why)
        ct__err(err, CT_E_DEVICE, k->here, spec->name, "kernel %s cannot be compiled: %.400s",
                k->name, why);
    plugin_unlock(device);
    ct__text_free(&source);
    if (why) ct__counters.kernels_failed++;
    return !why;
}

static bool plugin_build_one(ct_device *device, ct_kernel *k, ct_err *err) {
    plugin_state *s = device->state;
    for (const plugin_code *c = s->codes; c; c = c->next) {
        if (strcmp(c->name, k->name) != 0) continue;
        k->code = c->code;
        return true;
    }
    plugin_code *c = ct__calloc(1, sizeof *c);
    if (!c) return ct__err_memory(err, k->here, device->backend->name, sizeof *c);
    if (!plugin_compile(device, k, &c->code, err)) {
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
static bool plugin_build(ct_device *device, ct_kernel *const *kernels, size_t n, ct_err *err) {
    for (size_t i = 0; i < n; i++)
        if (!plugin_build_one(device, kernels[i], err)) return false;
    return true;
}

static void plugin_about(const ct_device *device, ct_text *what, uint64_t *memory) {
    const ct_device_spec *spec = plugin_spec_of(device);
    ct__text_add(what, spec->doc ? spec->doc : "a device plugin");
    *memory = spec->memory;
}

static const ct_backend plugin_functions = {
    .count = plugin_count,
    .open = plugin_open,
    .close = plugin_close,
    .about = plugin_about,
    .alloc = plugin_alloc,
    .free = plugin_free_buffer,
    .copy_in = plugin_copy_in,
    .copy_out = plugin_copy_out,
    .submit = plugin_submit,
    .target = ct__target_unmeasured,
    .measure = plugin_measure,
    .build = plugin_build,
};

// ------------------------------------------------------------------------------------- definitions

static bool plugin_is_name(const char *name) {
    size_t n = name ? strlen(name) : 0;
    return n >= 1 && n <= 20 && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789") == n;
}

static bool plugin_is_name_taken(const char *name) {
    if (strcmp(name, "async") == 0 || strcmp(name, "dry") == 0) return true;
    for (const ct_backend *const *b = ct__backends; *b; b++)
        if (strcmp((*b)->name, name) == 0) return true;
    bool taken = false;
    pthread_mutex_lock(&lock);
    for (const device_plugin *o = first; o; o = o->next)
        taken = taken || strcmp(o->spec.name, name) == 0;
    pthread_mutex_unlock(&lock);
    return taken;
}

static bool plugin_is_complete(const ct_device_spec *s) {
    return s->open && s->close && s->alloc && s->free && s->copy_in && s->copy_out && s->copy &&
           s->compile && s->launch && s->wait;
}

static bool plugin_define(const ct_device_spec *spec, ct_loc here, ct_err *err) {
    static const char op[] = "device_define";
    if (spec->struct_size != sizeof *spec)
        return ct__err(err, CT_E_ARGUMENT, here, op,
                       "the device was compiled with the headers of another version of Cotan");
    if (!plugin_is_name(spec->name))
        return ct__err(err, CT_E_ARGUMENT, here, op,
                       "the name \"%.40s\" is not made of 1 to 20 lower-case letters and digits",
                       spec->name ? spec->name : "");
    if (plugin_is_name_taken(spec->name))
        return ct__err(err, CT_E_ARGUMENT, here, op, "there is a device %s already", spec->name);
    if (!plugin_is_complete(spec))
        return ct__err(err, CT_E_ARGUMENT, here, op, "device %s lacks a function", spec->name);
    if ((unsigned)spec->language > CT_DEVICE_OPENCL_C)
        return ct__err(err, CT_E_ARGUMENT, here, op, "device %s is of an unknown language, %d",
                       spec->name, (int)spec->language);
    device_plugin *o = ct__calloc(1, sizeof *o);
    if (!o) return ct__err_memory(err, here, op, sizeof *o);
    o->spec = *spec;
    o->backend = plugin_functions;
    o->backend.name = spec->name;
    o->backend.several = spec->count != NULL;
    o->backend.language = spec->language == CT_DEVICE_C ? CT_LANGUAGE_C : CT_LANGUAGE_OPENCL;
    snprintf(o->numerics, sizeof o->numerics, "%s%s%.16s", CT_NUMERICS_KERNELS,
             spec->numerics ? " " : "", spec->numerics ? spec->numerics : "");
    o->backend.numerics = o->numerics;
    pthread_mutex_lock(&lock);
    device_plugin **last = &first;
    while (*last) last = &(*last)->next;
    *last = o;
    pthread_mutex_unlock(&lock);
    return true;
}

static bool plugin_load(const char *path, ct_loc here, ct_err *err) {
    static const char op[] = "device_load";
    void *library = ct__library_open(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) return ct__err(err, CT_E_FILE, here, op, "%.400s", ct__library_error());
    const ct_device_spec *(*device)(void);
    void *at = dlsym(library, "cotan_device");
    memcpy(&device, &at, sizeof device);
    const ct_device_spec *spec = at ? device() : NULL;
    dlclose(library); // RTLD_NODELETE keeps it loaded
    if (!at)
        return ct__err(err, CT_E_FORMAT, here, op,
                       "%.300s has no function cotan_device, which returns its device", path);
    if (!spec)
        return ct__err(err, CT_E_FORMAT, here, op, "cotan_device of %.300s returned NULL", path);
    return plugin_define(spec, here, err);
}

// Loads the libraries in COTAN_DEVICE_LIBRARY, once; a setuid program does not.
static void plugin_load_from_env(ct_err *err) {
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    static bool loaded;
    static ct_err failure;
    pthread_mutex_lock(&once);
    const char *text = loaded ? NULL : secure_getenv("COTAN_DEVICE_LIBRARY");
    loaded = true;
    while (text && *text) { // loads all of them, even after a failure
        ct_err why = {0};
        char path[4096];
        const size_t n = strcspn(text, ":");
        snprintf(path, sizeof path, "%.*s", (int)(n < sizeof path ? n : sizeof path - 1), text);
        if (n && !plugin_load(path, CT_NOWHERE, &why) && !failure.code) failure = why;
        text += n + (text[n] == ':');
    }
    if (failure.code && err) *err = failure;
    pthread_mutex_unlock(&once);
}

const ct_backend *ct__plugin_next(const ct_backend *last, ct_err *why) {
    plugin_load_from_env(why);
    pthread_mutex_lock(&lock);
    const device_plugin *next = last ? ((const device_plugin *)last)->next : first;
    pthread_mutex_unlock(&lock);
    return next ? &next->backend : NULL;
}

bool ct_device_define_at(const ct_device_spec *spec, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    return ctx && ct__given(ctx, spec, here, "device_define", "the device") && !ctx->err.code &&
           plugin_define(spec, here, &ctx->err);
}
bool ct_device_load_at(const char *path, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    return ctx && ct__given(ctx, path, here, "device_load", "the path") && !ctx->err.code &&
           plugin_load(path, here, &ctx->err);
}
