// Kernels of a program: rendered, built by the device, printed when asked.
#include "compile/dump.h"
#include "compile/plan.h"
#include "compile/render_c.h"

static bool render(ct_ctx *ctx, ct_program *program, struct ct_program_kernel *k) {
    ct_text text = {0};
    char name[40];
    bool ok = ct__render_c(k->ir, &text, name, &ctx->err);
    if (ok && text.s && !text.failed) {
        k->made.text = ct__arena_str(program->arena, text.s);
        k->made.name = ct__arena_str(program->arena, name);
        k->made.scratch = ct__kir_scratch(k->ir);
    }
    ct__text_free(&text);
    if (k->made.text && k->made.name) return true;
    return ct__err_memory(&ctx->err, CT_NOWHERE, "render", sizeof *k);
}

bool ct__build_kernels(ct_ctx *ctx, ct_device *device, ct_program *program) {
    size_t n = program->n_kernels;
    ct_kernel **kernels = ct__malloc((n + 1) * sizeof *kernels);
    bool ok = kernels != NULL;
    if (!ok) ct__err_memory(&ctx->err, CT_NOWHERE, "plan", n * sizeof *kernels);
    for (size_t i = 0; i < n && ok; i++) {
        struct ct_program_kernel *k = &program->kernels[i];
        ok = k->made.text || render(ctx, program, k);
        kernels[i] = &k->made;
    }
    if (ok) ct__dump_kernels(ctx, program);
    ok = ok && (n == 0 || device->backend->build(device, kernels, n, &ctx->err));
    ct__free(kernels);
    return ok;
}
