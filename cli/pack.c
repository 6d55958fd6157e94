// cotan pack: the kernels of a model in one file, for machines without a compiler.
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

static void show(int64_t done, int64_t all, void *user) {
    (void)user;
    show_progress("compiled", done, all);
}

// MODEL.kernels, in the folder that the program was called in.
static char *default_name(const char *model) {
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

static int pack(const char *model, const char *path, ct_kernels_options o) {
    ct_kernels_packed packed;
    ct_pretrained *m = ct_pretrained_load(model);
    if (m) show_progress("planned", 0, 1);
    const bool ok = m && ct_kernels_pack_with(m, path, &packed, o);
    ct_pretrained_free(m);
    if (!ok) return fail();
    printf("wrote %s: %zu kernels, %.1f MB\n", plain(path), packed.kernels,
           (double)packed.bytes / 1e6);
    return EXIT_DONE;
}

int run_pack(int argc, char **argv) {
    static const ct_dtype types[] = {CT_F32, CT_F16, CT_BF16, CT_I8};
    const char *model, *out = NULL;
    int64_t threads = 0;
    int cache_type = 0, status;
    ct_kernels_options o = {.progress = show, .here = {0}};
    opt options[] = {
        {"out", OPT_PATH, "FILE", "where to write (MODEL.kernels, here)", .out = &out},
        {"cores", OPT_WHOLE, "N", "for machines with so many cores alone (1 to 64, powers of two)",
         1, 64, .out = &o.cores},
        {"context", OPT_WHOLE, "N",
         "as run and serve will be told (the model's before it is stretched, at most 8192)", 2, 1e7,
         .out = &o.context},
        {"cache-type", OPT_CHOICE, "TYPE", "as serve will be told: f32, f16, bf16 or i8 (f32)",
         .choices = cache_types, .out = &cache_type},
        {"threads", OPT_WHOLE, "N", "compilers at one time (the cores allowed)", 1, 256,
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
    if (!parse(&c, argc, argv, &model, &status)) return status;
    if (threads) ct_set_threads((int)threads);
    o.dtype = types[cache_type];
    char *name = out ? NULL : default_name(model);
    if (!out && !name) return refuse("pack: out of memory");
    status = pack(model, out ? out : name, o);
    free(name);
    return status;
}
