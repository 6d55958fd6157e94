// Kernels of a program: rendered, built by the device, printed when asked. What an engine has built
// it finds again by the kernel's IR, so that plans which differ in dynamic sizes alone render
// nothing.
#include <string.h>

#include "compile/dump.h"
#include "compile/plan.h"
#include "compile/render_c.h"

enum { INS_WORDS = 6 };

static uint64_t pair(int32_t a, int32_t b) { return (uint64_t)(uint32_t)a << 32 | (uint32_t)b; }

// All that the kernel's text follows from.
static bool hash_of(const ct_kir *k, ct_hash *hash) {
    size_t n = 0, most = 2 + k->nbufs * 2 + k->n * INS_WORDS;
    uint64_t *w = ct__malloc(most * sizeof *w);
    if (!w) return false;
    w[n++] = pair(k->nparams, k->nargs);
    w[n++] = pair((int32_t)k->nbufs, (int32_t)k->n);
    for (size_t i = 0; i < k->nbufs; i++) {
        w[n++] = pair(k->bufs[i].dtype, k->bufs[i].flags);
        w[n++] = (uint64_t)k->bufs[i].count;
    }
    for (size_t i = 0; i < k->n; i++) {
        const ct_kins *x = &k->ins[i];
        w[n++] = (uint64_t)x->op | (uint64_t)x->dtype << 8 | (uint64_t)x->lanes << 16 |
                 (uint64_t)x->sub << 24;
        w[n++] = pair(x->a, x->b);
        w[n++] = pair(x->c, x->d);
        w[n++] = pair(x->in, x->end);
        w[n++] = (uint64_t)x->imm.i;
        w[n++] = x->name ? ct__hash_bytes(x->name, strlen(x->name), (ct_hash){0, 0}).lo : 0;
    }
    *hash = ct__hash_bytes(w, n * sizeof *w, (ct_hash){0, 0});
    ct__free(w);
    return true;
}

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

static bool render(ct_built *b, const ct_kir *ir, ct_kernel *made, ct_err *err) {
    ct_text text = {0};
    char name[40];
    bool ok = ct__render_c(ir, &text, name, err);
    if (ok && text.s && !text.failed) {
        made->text = ct__arena_str(&b->arena, text.s);
        made->name = ct__arena_str(&b->arena, name);
        made->scratch = ct__kir_scratch(ir);
    }
    ct__text_free(&text);
    return made->text && made->name;
}

// The kernel of this IR, rendered; NULL: no memory, or the error stands there.
static ct_kernel *kernel_of(ct_built *b, const ct_kir *ir, ct_err *err) {
    ct_hash key;
    if (!grow(b) || !hash_of(ir, &key)) return NULL;
    size_t at = key.lo & (b->slots - 1);
    for (; b->of[at].made; at = (at + 1) & (b->slots - 1))
        if (ct__hash_equal(b->of[at].key, key)) return b->of[at].made;
    ct_kernel *made = ct__arena_zero(&b->arena, sizeof *made);
    if (!made || !render(b, ir, made, err)) return NULL;
    b->of[at].key = key;
    b->of[at].made = made;
    b->n++;
    return made;
}

void ct__built_free(ct_built *b) {
    ct__free(b->of);
    ct__arena_free(&b->arena);
}

bool ct__build_kernels(ct_ctx *ctx, ct_engine *engine, ct_program *program) {
    size_t n = program->n_kernels, missing = 0;
    ct_kernel **made = ct__malloc((2 * n + 1) * sizeof *made), **build = made + n;
    bool ok = made != NULL;
    for (size_t i = 0; i < n && ok; i++) {
        struct ct_program_kernel *k = &program->kernels[i];
        ok = (made[i] = kernel_of(&engine->built, k->ir, &ctx->err)) != NULL;
        if (!ok) break;
        k->made = *made[i];
        bool listed = made[i]->code != NULL;
        for (size_t m = 0; m < missing && !listed; m++) listed = build[m] == made[i];
        if (!listed) build[missing++] = made[i];
    }
    if (!ok) ct__err_memory(&ctx->err, CT_NOWHERE, "plan", n * sizeof *made);
    if (ok) ct__dump_kernels(ctx, program);
    const ct_backend *backend = engine->device->backend;
    ok = ok && (missing == 0 || backend->build(engine->device, build, missing, &ctx->err));
    for (size_t i = 0; i < n && ok; i++) program->kernels[i].made = *made[i];
    ct__free(made);
    return ok;
}
