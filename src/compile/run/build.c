// Renders and compiles the kernels of a program. An executor finds built kernels again by their IR, so that
// plans which differ only in dynamic sizes render nothing.
#include <stdatomic.h>
#include <string.h>

#include "compile/check/dump.h"
#include "compile/plan.h"
#include "compile/render/render_c.h"

static bool build_grow_buckets(ct_kernel_cache *b) {
    if (b->n < b->n_buckets) return true;
    const size_t n = b->n_buckets ? b->n_buckets * 2 : 256;
    ct_cached_kernel **more = ct__calloc(n, sizeof(ct_cached_kernel *));
    if (!more) return false;
    for (size_t i = 0; i < b->n_buckets; i++)
        for (ct_cached_kernel *k = b->buckets[i], *next; k; k = next) {
            next = k->next;
            k->next = more[k->key.lo & (n - 1)];
            more[k->key.lo & (n - 1)] = k;
        }
    ct__free(b->buckets);
    b->buckets = more;
    b->n_buckets = n;
    return true;
}

static ct_kernel *build_find_or_add(ct_kernel_cache *b, const ct_kir *ir) {
    if (!build_grow_buckets(b)) return NULL;
    const ct_hash key = ct__kir_hash(ir);
    ct_cached_kernel **bucket = &b->buckets[key.lo & (b->n_buckets - 1)], *k = *bucket;
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

static void build_release_kernel(ct_kernel_cache *b, ct_kernel *made) {
    ct_cached_kernel *k = (ct_cached_kernel *)made;
    if (--k->users) return;
    ct_cached_kernel **link = &b->buckets[k->key.lo & (b->n_buckets - 1)];
    while (*link != k) link = &(*link)->next;
    *link = k->next;
    b->n--;
    b->bytes -= k->bytes;
    ct__free((char *)made->text);
    ct__free((char *)made->name);
    ct__free(k);
}

void ct__release_kernels(ct_executor *engine, ct_program *program) {
    for (size_t i = 0; i < program->n_kernels; i++) {
        if (program->kernels[i].made)
            build_release_kernel(&engine->kernel_cache, program->kernels[i].made);
        program->kernels[i].made = NULL;
    }
}

bool ct__measure_kernels(ct_ctx *ctx, ct_executor *engine, ct_program *program) {
    ct_device *computing = ct__computing_device(engine->device);
    size_t n = program->n_kernels, n_new = 0;
    ct_kernel **list = ct__malloc((n + 1) * sizeof *list);
    bool ok = list != NULL;
    for (size_t i = 0; i < n && ok; i++) {
        struct ct_program_kernel *k = &program->kernels[i];
        ok = (k->made = build_find_or_add(&engine->kernel_cache, k->ir)) != NULL;
        if (!ok) break;
        k->made->ir = k->ir;
        if (k->made->measured) continue;
        const ct_node *first;
        (void)ct__program_uses(program, i, &first);
        if (first) k->made->here = first->here;
        list[n_new++] = k->made;
    }
    if (!ok)
        ct__err_memory(&ctx->err, CT_NOWHERE, "plan", n * sizeof *list);
    else if (n_new)
        ok = computing->backend->measure(computing, list, n_new, &ctx->err);
    program->new_kernels = n_new;
    ct__free(list);
    return ok;
}

// False: out of memory, or the error is recorded.
static bool build_render_kernel(ct_kernel_cache *b, ct_language language, ct_kernel *made,
                                ct_err *err) {
    ct_text text = {0};
    char name[40];
    bool ok = language == CT_LANGUAGE_OPENCL ? ct__render_opencl(made->ir, &text, name, err)
                                             : ct__render_c(made->ir, &text, name, err);
    ok = ok && text.s && !text.failed;
    char *copied_name = ok ? ct__strdup(name) : NULL;
    if (!copied_name) {
        ct__text_free(&text);
        return false;
    }
    const size_t bytes = text.cap + strlen(name) + 1;
    made->name = copied_name;
    made->text = text.s; // owned by the kernel from here on
    ((ct_cached_kernel *)made)->bytes += bytes;
    b->bytes += bytes;
    return true;
}

bool ct__render_kernels(ct_ctx *ctx, ct_executor *engine, ct_program *program) {
    const ct_language language = ct__computing_device(engine->device)->backend->language;
    for (size_t i = 0; i < program->n_kernels; i++) {
        ct_kernel *made = program->kernels[i].made;
        if (!made->text && !build_render_kernel(&engine->kernel_cache, language, made, &ctx->err))
            return ct__err_memory(&ctx->err, CT_NOWHERE, "plan", sizeof *made);
    }
    ct__dump_kernels(ctx, program);
    return true;
}

// Logs a kernel's notice once per process, until the reason changes.
static void build_report_notice(ct_ctx *ctx, const ct_kernel *kernel) {
    static _Atomic uint64_t last_reason; // hash of the reason
    if (!kernel->notice || !*kernel->notice) return;
    uint64_t reason = ct__hash_bytes(kernel->notice, strlen(kernel->notice), (ct_hash){0, 0}).lo;
    if (atomic_exchange(&last_reason, reason) == reason) return;
    // The text of an error may have a prefix and a hint of its own.
    bool has_prefix = strncmp(kernel->notice, "cpu: ", 5) == 0;
    size_t end = strcspn(kernel->notice, "\n");
    const char *hint = kernel->notice + end;
    ct_text text = {0};
    ct__textf(&text, "%s%.*s: kernels are interpreted, several times slower%s",
              has_prefix ? "" : "cpu: ", (int)end, kernel->notice, hint);
    if (kernel->hint) ct__textf(&text, "\n  hint: %s", kernel->hint);
    if (!text.failed) ct__log(ctx, CT_LOG_WARNING, text.s);
    ct__text_free(&text);
}

bool ct__plan_await_kernels(ct_ctx *ctx, ct_executor *engine, ct_plan *plan) {
    const ct_backend *backend = engine->device->backend;
    bool finished = true;
    if (!ct__plan_bind(ctx, engine, plan)) return false; // the compile time depends on the sizes
    if (backend->start && !backend->start(engine->device, plan->commands, plan->n_commands,
                                          &ctx->cancelled, &finished, &ctx->err))
        return false;
    plan->unfinished = !finished;
    return !finished || ct__compile_kernels(ctx, engine, &plan->program); // reports failures
}

bool ct__compile_kernels(ct_ctx *ctx, ct_executor *engine, ct_program *program) {
    size_t n = program->n_kernels, n_missing = 0;
    ct_kernel **build = ct__malloc((n + 1) * sizeof *build);
    if (!build) return ct__err_memory(&ctx->err, CT_NOWHERE, "plan", n * sizeof *build);
    for (size_t i = 0; i < n; i++) {
        ct_kernel *made = program->kernels[i].made;
        bool is_listed = made->code && !made->unfinished;
        made->ir = program->kernels[i].ir;
        for (size_t m = 0; m < n_missing && !is_listed; m++) is_listed = build[m] == made;
        if (!is_listed) build[n_missing++] = made;
    }
    const ct_backend *backend = engine->device->backend;
    bool ok = n_missing == 0 || backend->build(engine->device, build, n_missing, &ctx->err);
    for (size_t i = 0; i < n_missing && ok; i++) build_report_notice(ctx, build[i]);
    ct__free(build);
    return ok;
}
