// Kernels of a program: as source, and as code of the device. What an engine has built it finds
// again by the kernel's IR, so that plans which differ in dynamic sizes alone render nothing.
#include <stdatomic.h>
#include <string.h>

#include "compile/check/dump.h"
#include "compile/plan.h"
#include "compile/render/render_c.h"

static bool grow(ct_built *b) {
    if (b->n * 2 < b->slots) return true;
    size_t slots = b->slots ? b->slots * 2 : 256;
    struct ct_built_kernel *more = ct__calloc(slots, sizeof *more);
    if (!more) return false;
    for (size_t i = 0; i < b->slots; i++) {
        if (!b->of[i].made) continue;
        size_t at = b->of[i].key.lo & (slots - 1);
        while (more[at].made) at = (at + 1) & (slots - 1);
        more[at] = b->of[i];
    }
    ct__free(b->of);
    b->of = more;
    b->slots = slots;
    return true;
}

static ct_kernel *kernel_of(ct_built *b, const ct_kir *ir) {
    if (!grow(b)) return NULL;
    ct_hash key = ct__kir_hash(ir);
    size_t at = key.lo & (b->slots - 1);
    for (; b->of[at].made; at = (at + 1) & (b->slots - 1))
        if (ct__hash_equal(b->of[at].key, key)) return b->of[at].made;
    ct_kernel *made = ct__arena_zero(&b->arena, sizeof *made);
    if (!made) return NULL;
    b->of[at].key = key;
    b->of[at].made = made;
    b->n++;
    return made;
}

void ct__built_free(ct_built *b) {
    ct__free(b->of);
    ct__arena_free(&b->arena);
}

bool ct__measure(ct_ctx *ctx, ct_engine *engine, ct_program *program) {
    ct_device *computing = ct__computing(engine->device);
    size_t n = program->n_kernels, fresh = 0;
    ct_kernel **list = ct__malloc((n + 1) * sizeof *list);
    bool ok = list != NULL;
    for (size_t i = 0; i < n && ok; i++) {
        struct ct_program_kernel *k = &program->kernels[i];
        ok = (k->made = kernel_of(&engine->built, k->ir)) != NULL;
        if (!ok) break;
        k->made->ir = k->ir;
        if (!k->made->measured) list[fresh++] = k->made;
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
static bool render(ct_built *b, ct_kernel *made, ct_err *err) {
    ct_text text = {0};
    char name[40];
    bool ok = ct__render_c(made->ir, &text, name, err);
    if (ok && text.s && !text.failed) {
        made->name = ct__arena_str(&b->arena, name);
        made->text = ct__arena_str(&b->arena, text.s);
    }
    ct__text_free(&text);
    return made->text && made->name;
}

bool ct__render(ct_ctx *ctx, ct_engine *engine, ct_program *program) {
    for (size_t i = 0; i < program->n_kernels; i++) {
        ct_kernel *made = program->kernels[i].made;
        if (!(made->text && made->name) && !render(&engine->built, made, &ctx->err))
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

bool ct__plan_start(ct_ctx *ctx, ct_engine *engine, ct_plan *plan) {
    const ct_backend *backend = engine->device->backend;
    bool finished = true;
    if (!ct__plan_bind(ctx, engine, plan)) return false; // what takes how long hangs on the sizes
    if (backend->start && !backend->start(engine->device, plan->commands, plan->n_commands,
                                          &ctx->cancelled, &finished, &ctx->err))
        return false;
    plan->unfinished = !finished;
    return !finished || ct__cache(ctx, engine, &plan->program); // and what failed is told
}

bool ct__cache(ct_ctx *ctx, ct_engine *engine, ct_program *program) {
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
