// Ahead-of-time compilation: writes the plan of the pending nodes as one C file and its header, which need
// neither the library nor memory allocation.
#include "compile/ahead/ahead.h"

#include <string.h>
#include <sys/stat.h>

#include "base/atomic.h"
#include "base/fp_env.h"

static bool ahead_check_path(const ct_ahead *a, const char *path) {
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) return true;
    return ct__err(&a->ctx->err, CT_E_FILE, a->args->here, "compile",
                   "%s: a folder of that name is in the way", path);
}

// Writes both files or none: both are complete as temporary files before the first is renamed, and no
// folder has either name.
static bool ahead_write_files(const ct_ahead *a, const ct_text *header, const ct_text *source) {
    const ct_text *const texts[] = {source, header};
    ct_err *err = &a->ctx->err;
    ct_atomic_file files[2] = {{.fd = -1}, {.fd = -1}};
    bool ok = true;
    for (int i = 0; i < 2 && ok; i++) {
        ct_text path = {0};
        ct__textf(&path, "%s.%c", a->args->path, "ch"[i]);
        ok = path.failed ? ct__err_memory(err, a->args->here, "compile", strlen(a->args->path))
                         : ahead_check_path(a, path.s) &&
                               ct__atomic_file_begin(&files[i], path.s, 0, err) &&
                               ct__atomic_file_write(&files[i], texts[i]->s, texts[i]->n, err);
        ct__text_free(&path);
    }
    for (int i = 0; i < 2; i++)
        if (!ok || !(ok = ct__atomic_file_commit(&files[i], err)))
            ct__atomic_file_abandon(&files[i]);
    return ok;
}

// The generated code must not use the function's name for anything else.
static bool ahead_check_name(const ct_ahead *a, const ct_text *source) {
    static const char name_chars[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    size_t n = strlen(a->name), word;
    for (const char *at = strstr(source->s, CT_AHEAD_PRELUDE); *at; at += word) {
        word = strspn(at, name_chars);
        // e.g. fmaf by name
        size_t builtin = word > 10 && memcmp(at, "__builtin_", 10) == 0 ? 10 : 0;
        if (word - builtin == n && memcmp(at + builtin, a->name, n) == 0)
            return ct__err(&a->ctx->err, CT_E_ARGUMENT, a->args->here, "compile",
                           "the generated code has a \"%s\" of its own: choose another name",
                           a->name);
        if (!word) word = at[0] == '/' && at[1] == '/' ? strcspn(at, "\n") : 1; // skips a comment
    }
    return true;
}

static bool ahead_write_plan(ct_ahead *a) {
    CT_TEXT header = {0}, source = {0};
    bool ok = ct__ahead_members(a) && ct__ahead_write(a, &header, &source);
    if (ok && (header.failed || source.failed))
        ok = ct__err_memory(&a->ctx->err, a->args->here, "compile", header.n + source.n);
    ok = ok && ahead_check_name(a, &source) && ahead_write_files(a, &header, &source);
    return ok;
}

static bool ahead_compile_pending(ct_ahead *a) {
    ct_loc here = a->args->here;
    if (!(a->plan = ct__pending_plan(a->ctx, here, &a->engine))) return false;
    const ct_backend *backend = ct__computing_device(a->engine->device)->backend;
    if (backend->evaluates_ops || backend->language != CT_LANGUAGE_C) {
        ct__err(&a->ctx->err, CT_E_DEVICE, here, "compile", "device %s %s", ct__ctx_device(a->ctx),
                backend->evaluates_ops ? "runs an op at a time: it has no kernels to write"
                                       : "has kernels that are not in C");
        return ct__err_hint(&a->ctx->err,
                            "ct_set_device(\"cpu\"), or \"dry:cpu\", which runs nothing");
    }
    if (a->plan->n_subplans)
        return ct__err(&a->ctx->err, CT_E_DEVICE, here, "compile",
                       "tensors are on several devices: the exported function runs on one");
    a->roots = a->engine->roots;
    return ct__ahead_check_calls(a) && ahead_write_plan(a);
}

bool ct_compile_with(ct_compile_args args) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, args.path, args.here, "compile", "the path") || ctx->err.code)
        return false;
    CT_DEFAULT_ENV; // constants are folded while the plan is made
    const char *slash = strrchr(args.path, '/');
    ct_ahead a = {.ctx = ctx, .args = &args, .name = slash ? slash + 1 : args.path};
    if (!ct__check_function_name(args.path, CT_E_ARGUMENT, args.here, &ctx->err)) return false;
    if (ctx->tracing)
        return ct__err(&ctx->err, CT_E_TRACE, args.here, "compile",
                       "a traced function has no plan of its own: its caller's is written");
    ct__run_begin(ctx);
    const size_t n_roots = ctx->n_roots; // a rolling scope adds roots for this plan
    bool ok = (!ct__top(ctx)->rolling || ct__rolling_roots(ctx)) && ahead_compile_pending(&a);
    if (a.engine) ct__order_close(&a.engine->order);
    while (ctx->n_roots > n_roots) ct__unuse(ctx->roots[--ctx->n_roots].val.node);
    ct__run_end(ctx);
    ct__arena_free(&a.arena);
    return ok;
}
