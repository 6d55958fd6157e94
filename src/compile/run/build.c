// Kernels of a program: as source, and as code of the device. What an engine has built it finds
// again by the kernel's IR, so that plans which differ in dynamic sizes alone render nothing.
#include <stdatomic.h>
#include <string.h>

#include "compile/check/dump.h"
#include "compile/plan.h"
#include "compile/render/render_c.h"

static bool grow(ct_built *b) {
    if (b->n < b->n_buckets) return true;
    const size_t n = b->n_buckets ? b->n_buckets * 2 : 256;
    ct_built_kernel **more = ct__calloc(n, sizeof(ct_built_kernel *));
    if (!more) return false;
    for (size_t i = 0; i < b->n_buckets; i++)
        for (ct_built_kernel *k = b->buckets[i], *next; k; k = next) {
            next = k->next;
            k->next = more[k->key.lo & (n - 1)];
            more[k->key.lo & (n - 1)] = k;
        }
    ct__free(b->buckets);
    b->buckets = more;
    b->n_buckets = n;
    return true;
}

static ct_kernel *kernel_of(ct_built *b, const ct_kir *ir) {
    if (!grow(b)) return NULL;
    const ct_hash key = ct__kir_hash(ir);
    ct_built_kernel **bucket = &b->buckets[key.lo & (b->n_buckets - 1)], *k = *bucket;
    while (k && !ct__hash_equal(k->key, key)) k = k->next;
    if (!k) {
        k = ct__calloc(1, sizeof *k);
        if (!k) return NULL;
        k->key = key;
        k->next = *bucket;
        k->bytes = sizeof *k;
        *bucket = k;
        b->n++;
        b->bytes += k->bytes;
    }
    k->users++;
    return &k->made;
}

static void release_kernel(ct_built *b, ct_kernel *made) {
    ct_built_kernel *k = (ct_built_kernel *)made;
    if (--k->users) return;
    ct_built_kernel **at = &b->buckets[k->key.lo & (b->n_buckets - 1)];
    while (*at != k) at = &(*at)->next;
    *at = k->next;
    b->n--;
    b->bytes -= k->bytes;
    ct__free((char *)made->text);
    ct__free((char *)made->name);
    ct__free(k);
}

void ct__release_kernels(ct_executor *engine, ct_program *program) {
    for (size_t i = 0; i < program->n_kernels; i++) {
        if (program->kernels[i].made) release_kernel(&engine->built, program->kernels[i].made);
        program->kernels[i].made = NULL;
    }
}

bool ct__measure(ct_ctx *ctx, ct_executor *engine, ct_program *program) {
    ct_device *computing = ct__computing(engine->device);
    size_t n = program->n_kernels, fresh = 0;
    ct_kernel **list = ct__malloc((n + 1) * sizeof *list);
    bool ok = list != NULL;
    for (size_t i = 0; i < n && ok; i++) {
        struct ct_program_kernel *k = &program->kernels[i];
        ok = (k->made = kernel_of(&engine->built, k->ir)) != NULL;
        if (!ok) break;
        k->made->ir = k->ir;
        if (k->made->measured) continue;
        const ct_node *first;
        (void)ct__program_uses(program, i, &first);
        if (first) k->made->here = first->here;
        list[fresh++] = k->made;
    }
    if (!ok)
        ct__err_memory(&ctx->err, CT_NOWHERE, "plan", n * sizeof *list);
    else if (fresh)
        ok = computing->backend->measure(computing, list, fresh, &ctx->err);
    program->new_kernels = fresh;
    ct__free(list);
    return ok;
}

// False: no memory, or the error stands there.
static bool render(ct_built *b, ct_language language, ct_kernel *made, ct_err *err) {
    ct_text text = {0};
    char name[40];
    bool ok = language == CT_LANGUAGE_OPENCL ? ct__render_opencl(made->ir, &text, name, err)
                                             : ct__render_c(made->ir, &text, name, err);
    ok = ok && text.s && !text.failed;
    char *named = ok ? ct__strdup(name) : NULL;
    if (!named) {
        ct__text_free(&text);
        return false;
    }
    const size_t bytes = text.cap + strlen(name) + 1;
    made->name = named;
    made->text = text.s; // which is the kernel's now
    ((ct_built_kernel *)made)->bytes += bytes;
    b->bytes += bytes;
    return true;
}

bool ct__render(ct_ctx *ctx, ct_executor *engine, ct_program *program) {
    const ct_language language = ct__computing(engine->device)->backend->language;
    for (size_t i = 0; i < program->n_kernels; i++) {
        ct_kernel *made = program->kernels[i].made;
        if (!made->text && !render(&engine->built, language, made, &ctx->err))
            return ct__err_memory(&ctx->err, CT_NOWHERE, "plan", sizeof *made);
    }
    ct__dump_kernels(ctx, program);
    return true;
}

// What the user should know, once a process for as long as the reason stays.
static void tell(ct_ctx *ctx, const ct_kernel *kernel) {
    static _Atomic uint64_t told; // the reason's hash
    if (!kernel->notice || !*kernel->notice) return;
    uint64_t reason = ct__hash_bytes(kernel->notice, strlen(kernel->notice), (ct_hash){0, 0}).lo;
    if (atomic_exchange(&told, reason) == reason) return;
    // An error's text may bring its own place and hint.
    bool placed = strncmp(kernel->notice, "cpu: ", 5) == 0;
    size_t end = strcspn(kernel->notice, "\n");
    const char *hint = kernel->notice + end;
    ct_text text = {0};
    ct__textf(&text, "%s%.*s: kernels are interpreted, several times slower%s",
              placed ? "" : "cpu: ", (int)end, kernel->notice, hint);
    if (kernel->hint) ct__textf(&text, "\n  hint: %s", kernel->hint);
    if (!text.failed) ct__log(ctx, CT_LOG_WARNING, text.s);
    ct__text_free(&text);
}

bool ct__plan_start(ct_ctx *ctx, ct_executor *engine, ct_plan *plan) {
    const ct_backend *backend = engine->device->backend;
    bool finished = true;
    if (!ct__plan_bind(ctx, engine, plan)) return false; // what takes how long hangs on the sizes
    if (backend->start && !backend->start(engine->device, plan->commands, plan->n_commands,
                                          &ctx->cancelled, &finished, &ctx->err))
        return false;
    plan->unfinished = !finished;
    return !finished || ct__cache(ctx, engine, &plan->program); // and what failed is told
}

bool ct__cache(ct_ctx *ctx, ct_executor *engine, ct_program *program) {
    size_t n = program->n_kernels, missing = 0;
    ct_kernel **build = ct__malloc((n + 1) * sizeof *build);
    if (!build) return ct__err_memory(&ctx->err, CT_NOWHERE, "plan", n * sizeof *build);
    for (size_t i = 0; i < n; i++) {
        ct_kernel *made = program->kernels[i].made;
        bool listed = made->code && !made->unfinished;
        made->ir = program->kernels[i].ir;
        for (size_t m = 0; m < missing && !listed; m++) listed = build[m] == made;
        if (!listed) build[missing++] = made;
    }
    const ct_backend *backend = engine->device->backend;
    bool ok = missing == 0 || backend->build(engine->device, build, missing, &ctx->err);
    for (size_t i = 0; i < missing && ok; i++) tell(ctx, build[i]);
    ct__free(build);
    return ok;
}
