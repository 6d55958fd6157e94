// cotan pack: compiles the kernels of a model into one file, for machines without a compiler.
#include <stdlib.h>
#include <string.h>

#include <cotan/engine.h>

#include "cli.h"

static const char *const cache_types[] = {"f32", "f16", "bf16", "i8", NULL};

static const char what_it_does[] =
    "Compiles all kernels that cotan run and cotan serve need for MODEL, and writes them to one\n"
    "file, by default MODEL.kernels. Who has it needs no compiler, and no cache of compiled\n"
    "kernels: cotan run MODEL --kernels FILE loads it in a few milliseconds, also where there is\n"
    "nothing but the program, linked statically (cmake -DCOTAN_STATIC=ON), the model and this\n"
    "file. The file has kernels for processors with AVX2 and with AVX-512, on 1 to 64 cores; each\n"
    "machine takes the best that it can run, whatever this one is. It is of this version of\n"
    "Cotan, holds no weights, and is code: load what you would run.\n";

static const char examples[] =
    "  cotan pack SmolLM2-135M-Instruct                # SmolLM2-135M-Instruct.kernels\n"
    "  cotan pack small.gguf --out small.kernels --cores 8\n"
    "  cotan serve small.gguf --kernels small.kernels\n"
    "  COTAN_KERNELS=small.kernels cotan run small.gguf --prompt \"Once \"\n";

static void pack_cmd_on_progress(int64_t done, int64_t all, void *user) {
    (void)user;
    progress_show("compiled", done, all);
}

// Returns MODEL.kernels, in the current directory.
static char *pack_cmd_default_path(const char *model) {
    const size_t n = strlen(model);
    size_t end = n, begin;
    while (end > 1 && model[end - 1] == '/') end--;
    for (begin = end; begin && model[begin - 1] != '/'; begin--) continue;
    if (end - begin > 5 && strncmp(model + end - 5, ".gguf", 5) == 0) end -= 5;
    char *name = malloc(end - begin + sizeof ".kernels");
    if (!name) return NULL;
    memcpy(name, model + begin, end - begin);
    memcpy(name + (end - begin), ".kernels", sizeof ".kernels");
    return name;
}

static int pack_cmd_pack_model(const char *model, const char *path, ct_dtype activations,
                               ct_kernels_options o) {
    ct_kernels_packed packed;
    ct_pretrained *m = ct_pretrained_load(model, .activations = activations);
    if (m) progress_show("planned", 0, 1);
    const bool ok = m && ct_kernels_pack_with(m, path, &packed, o);
    ct_pretrained_free(m);
    if (!ok) return report_error();
    printf("wrote %s: %zu kernels, %.1f MB\n", printable(path), packed.kernels,
           (double)packed.bytes / 1e6);
    return EXIT_DONE;
}

int run_pack(int argc, char **argv) {
    static const ct_dtype types[] = {CT_F32, CT_F16, CT_BF16, CT_I8};
    const char *model, *out = NULL;
    int64_t threads = 0;
    int cache_type = 0, activations = 0, status;
    ct_kernels_options o = {.progress = pack_cmd_on_progress, .here = {0}};
    opt options[] = {
        {"out", OPT_PATH, "FILE", "where to write (MODEL.kernels, here)", .out = &out},
        {"cores", OPT_INT, "N", "for machines with so many cores alone (1 to 64, powers of two)", 1,
         64, .out = &o.cores},
        {"context", OPT_INT, "N", "the --context of run and serve (the model's default)", 2, 1e7,
         .out = &o.context},
        {"cache-type", OPT_CHOICE, "TYPE", "the --cache-type of serve: f32, f16, bf16 or i8 (f32)",
         .choices = cache_types, .out = &cache_type},
        activations_option(&activations),
        {"threads", OPT_INT, "N", "compilers at one time (the cores allowed)", 1, 256,
         .out = &threads},
    };
    command c = {
        .name = "pack",
        .usage = "MODEL [options]",
        .operand = "MODEL",
        .text = what_it_does,
        .examples = examples,
        .opts = options,
        .n = sizeof options / sizeof *options,
    };
    if (!options_parse(&c, argc, argv, &model, &status)) return status;
    if (threads) ct_set_threads((int)threads);
    o.cache_dtype = types[cache_type];
    char *name = out ? NULL : pack_cmd_default_path(model);
    if (!out && !name) return usage_error("pack: out of memory");
    status = pack_cmd_pack_model(model, out ? out : name, activations_dtype(activations), o);
    free(name);
    return status;
}
