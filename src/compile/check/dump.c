// Prints what COTAN_DUMP asks for: graph, dot, groups, plan, kernels, cuda (the variable contains any of
// these words).
#include "compile/check/dump.h"
#include "compile/schedule/sched.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "compile/passes/env.h"
#include "compile/render/render_gpu.h"
#include "graph/dot.h"

bool ct__dump_is_requested(const char *what) {
    const char *list = getenv("COTAN_DUMP");
    return list && strstr(list, what);
}

static void dump_flush(ct_ctx *ctx, ct_text *text) {
    if (text->s && !text->failed) ct__log(ctx, CT_LOG_DUMP, text->s);
    ct__text_free(text);
}

void ct__dump_recorded(ct_ctx *ctx, const ct_order *order, const ct_root *roots, size_t n_roots) {
    if (!ct__dump_is_requested("dot")) return;
    ct_text text = {0};
    ct__dot_begin(&text, "recorded", order->nodes, order->n);
    for (size_t i = 0; i < n_roots; i++)
        ct__dot_root(&text, i, roots[i].kind, roots[i].val,
                     roots[i].kind == CT_ROOT_ASSIGN ? roots[i].var->name : roots[i].name);
    ct__dot_end(&text);
    for (size_t i = 0; i < order->n; i++) order->nodes[i]->epoch = order->epoch; // restore
    dump_flush(ctx, &text);
}

static void dump_graphviz(ct_ctx *ctx, const char *title, const ct_graph *graph) {
    ct_text text = {0};
    ct__dot_begin(&text, title, graph->nodes, graph->n);
    for (size_t i = 0; i < graph->n_roots; i++)
        ct__dot_root(&text, i, graph->roots[i].kind, graph->roots[i].val, NULL);
    ct__dot_end(&text);
    dump_flush(ctx, &text);
}

void ct__dump_graph(ct_ctx *ctx, const char *title, const ct_graph *graph) {
    if (ct__dump_is_requested("dot")) dump_graphviz(ctx, title, graph);
    if (!ct__dump_is_requested("graph")) return;
    ct_text text = {0};
    ct__textf(&text, "// graph, %s: %zu nodes, %zu roots\n", title, graph->n, graph->n_roots);
    ct__print_nodes(&text, graph->nodes, graph->n);
    dump_flush(ctx, &text);
}

static void dump_write_op(ct_text *text, const ct_node *node) {
    if (node && node->here.file)
        ct__textf(text, "%s of %s:%u", node->op->name, node->here.file, node->here.line);
    else
        ct__text_add(text, node ? node->op->name : "-");
}

void ct__dump_groups(const ct_sched *s) {
    if (!ct__dump_is_requested("groups")) return;
    ct_text text = {0};
    ct__textf(&text, "// groups of %zu nodes\n", s->graph->n);
    for (size_t i = 0; i < s->n_groups; i++) {
        const ct_group *g = s->groups[i];
        if (g->dead) continue;
        ct__textf(&text, "%4d %d rows", g->id, g->n_rows);
        if (g->only) {
            ct__text_add(&text, ", template ");
            dump_write_op(&text, g->only);
            if (ct__sval(s, (ct_val){g->only, 0})->stored) ct__text_add(&text, " ->");
        }
        ct__text_add(&text, "\n");
        for (size_t k = 0; k < g->n_units; k++) {
            ct__text_add(&text, "       ");
            dump_write_op(&text, g->units[k].v.node);
            ct__text_add(&text, g->units[k].store ? " ->\n" : "\n");
        }
    }
    dump_flush(ct__ctx(), &text);
}

static const char *const dump_buf_names[] = {"leaf", "scalars", "const", "root", "temp"};

static void dump_write_args(ct_text *text, const ct_program *program, const ct_launch *l) {
    for (uint32_t k = 0; k < l->n_args; k++) {
        const ct_buf *b = &program->bufs[l->args[k].buf];
        ct__textf(text, "%s%s%u", k ? ", " : "", l->args[k].write ? "-> " : "", l->args[k].buf);
        ct__textf(text, " %s", dump_buf_names[b->kind]);
        for (uint32_t i = 0; i < l->n_steps; i++)
            if (l->steps[i].arg == k)
                ct__textf(text, " %s%lld i%u", l->steps[i].reverse ? "reverse " : "+",
                          (long long)l->steps[i].bytes, l->steps[i].depth);
    }
}

static void dump_write_count(ct_text *text, const ct_launch *l) {
    if (l->kind == CT_LAUNCH_SWITCH)
        ct__textf(text, " of %lld branches", (long long)l->count);
    else if (l->kind == CT_LAUNCH_BATCH)
        ct__textf(text, " of %lld", (long long)l->count);
    else if (l->count == INT64_MAX)
        ct__text_add(text, " while it holds");
    else
        ct__textf(text, " %lld times", (long long)l->count);
}

void ct__dump_plan(ct_ctx *ctx, const ct_program *program) {
    if (!ct__dump_is_requested("plan")) return;
    static const char *const kinds[] = {"node",   "kernel", "copy",  "loop",
                                        "switch", "branch", "batch", "end"};
    int depth = 0;
    size_t launches = 0;
    ct_text text = {0};
    for (size_t i = 0; i < program->n_launches; i++)
        launches += ct__launch_counts(&program->launches[i]);
    ct__textf(&text, "// plan: %zu launches, %zu kernels, %zu buffers, arena %zu bytes\n", launches,
              program->n_kernels, program->n_bufs, program->arena_bytes);
    for (size_t i = 0; i < program->n_launches; i++) {
        const ct_launch *l = &program->launches[i];
        bool opens =
            l->kind == CT_LAUNCH_LOOP || l->kind == CT_LAUNCH_SWITCH || l->kind == CT_LAUNCH_BATCH;
        depth -= l->kind == CT_LAUNCH_END;
        ct__textf(&text, "%4zu %*s%-6s ", i, 2 * (depth - (l->kind == CT_LAUNCH_BRANCH)), "",
                  kinds[l->kind]);
        depth += opens;
        dump_write_op(&text, l->node);
        if (l->kind == CT_LAUNCH_KERNEL)
            ct__textf(&text, " [%u] grid %lld, %.3g MB, %.3g MFLOP", l->kernel, (long long)l->grid,
                      (double)l->bytes * 1e-6, l->flops * 1e-6);
        if (l->kind == CT_LAUNCH_COPY) ct__textf(&text, " %zu bytes", l->bytes);
        if (opens) dump_write_count(&text, l);
        ct__text_add(&text, " (");
        dump_write_args(&text, program, l);
        ct__text_add(&text, ")\n");
    }
    dump_flush(ctx, &text);
}

// Writes to a file of this name and extension in the folder COTAN_DUMP_DIR, if it is set; else to the log.
static void dump_write_kernel(ct_ctx *ctx, const char *name, const char *ending, ct_text *text) {
    const char *folder = ct__env_dump_folder();
    if (!folder) {
        dump_flush(ctx, text);
        return;
    }
    CT_TEXT path = {0};
    ct_err err = {0};
    ct__textf(&path, "%s/%s%s", folder, name, ending);
    if (path.s && !path.failed && text->s && !text->failed &&
        !ct__file_replace(path.s, text->s, text->n, 0644, &err))
        ct__log(ctx, CT_LOG_WARNING, err.text);
    ct__text_free(text);
}

// Prints a kernel as CUDA source, which can be read and compiled without an NVIDIA GPU.
static void dump_cuda(ct_ctx *ctx, const ct_kir *ir, const char *title) {
    static const ct_gpu_caps caps = {.f64 = true, .local_bytes = 48 << 10, .max_threads = 1024};
    ct_text text = {0}, source = {0};
    ct_gpu_launch launch;
    ct_err err = {0};
    char name[40] = "failed";
    const bool ok = ct__render_gpu(ir, CT_GPU_CUDA, &caps, &source, name, &launch, &err);
    if (ct__env_dump_folder()) ct__text_add(&text, "#include \"prelude.cuh\"\n");
    if (ok)
        ct__textf(&text,
                  "%s// CUDA: %d threads a block, which runs %lld rows; bytes of a block: %lld of "
                  "shared memory, %lld of scratch\n%s",
                  title, launch.threads, (long long)launch.rows, (long long)launch.local_bytes,
                  (long long)launch.scratch, source.s);
    else
        ct__textf(&text, "%s#error %s\n", title, err.text);
    ct__text_free(&source);
    dump_write_kernel(ctx, name, ".cu", &text);
}

static void dump_cuda_prelude(ct_ctx *ctx) {
    ct_text text = {0};
    ct__render_gpu_prelude(&(ct_gpu_caps){.f64 = true}, &text);
    dump_write_kernel(ctx, "prelude", ".cuh", &text);
}

void ct__dump_kernels(ct_ctx *ctx, const ct_program *program) {
    const bool kernels = ct__dump_is_requested("kernels"), cuda = ct__dump_is_requested("cuda");
    if (!kernels && !cuda) return;
    if (cuda && ct__env_dump_folder()) dump_cuda_prelude(ctx);
    for (size_t i = 0; i < program->n_kernels; i++) {
        const struct ct_program_kernel *k = &program->kernels[i];
        ct_text text = {0};
        const ct_node *first;
        size_t uses = ct__program_uses(program, i, &first);
        ct__textf(&text, "// kernel %zu, launched %zu times, first for ", i, uses);
        dump_write_op(&text, first);
        ct__text_add(&text, "\n");
        if (cuda && text.s && !text.failed) dump_cuda(ctx, k->ir, text.s);
        ct__textf(&text, "%s\n", k->made->text);
        if (kernels)
            dump_write_kernel(ctx, k->made->name, ".c", &text);
        else
            ct__text_free(&text);
    }
}
