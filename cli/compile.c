// cotan compile: exports a trained model as C.
#include <stdio.h>

#include "cli.h"

static const char *const functions[] = {"token", "window", "step", NULL};

static const char text[] =
    "Writes the model in DIR, a folder that cotan train wrote, as one C file and its header:\n"
    "PATH.c and PATH.h, with a function named as the path ends. They need the C library and libm,\n"
    "neither Cotan nor memory but what they are given, and compute Cotan's bits. The header says\n"
    "what the function takes. Nothing is run here, and no compiler is needed.\n"
    "\n"
    "  token   the scores of the next token: a token and its place, and the keys and values of "
    "those\n"
    "          before, zeros at first, which the function goes on with\n"
    "  window  the scores behind each token of a text of a fixed length\n"
    "  step    a step of training as DIR's own: weights and moments are updated; the learning "
    "rate\n"
    "          is a number of each call\n"
    "\n"
    "Weights are pointers, in the layout of model.safetensors, or stand in the file with "
    "--embed.\n";

static const char examples[] =
    "  cotan compile run --out next_token           # next_token.c and next_token.h\n"
    "  cotan compile run --out next_token --embed   # the weights in it\n"
    "  cotan compile run --out score --function window --batch 8 --context 32\n"
    "  cotan compile run --out train_step --function step\n"
    "  cc -O2 -march=native -c next_token.c\n";

int run_compile(int argc, char **argv) {
    ct_lm_compile_options o = {0};
    int function = 0, status;
    opt options[] = {
        {"out", OPT_PATH, "PATH", "of the files, without .c; its end names the function",
         .out = &o.path},
        {"function", OPT_CHOICE, "NAME", "token, window or step (token)", .choices = functions,
         .out = &function},
        {"batch", OPT_INT, "N", "texts at a time (1; of a step its run's)", 1, 1e9,
         .out = &o.batch},
        {"context", OPT_INT, "N", "most tokens of a text (the model's; of a step its run's)", 1,
         1e9, .out = &o.context},
        {"embed", OPT_FLAG, NULL, "the weights stand in the file, 3 bytes of text a byte",
         .out = &o.embed},
    };
    command c = {
        .name = "compile",
        .usage = "DIR --out PATH [options]",
        .operand = "DIR",
        .text = text,
        .examples = examples,
        .opts = options,
        .n = sizeof options / sizeof *options,
    };
    if (!options_parse(&c, argc, argv, &o.dir, &status)) return status;
    if (!o.path) return usage_error("compile: --out is missing: the path of the files, without .c");
    o.function = (ct_lm_function)function;
    if (!ct_lm_compile(&o)) return report_error();
    printf("wrote %s.c and %s.h\n", printable(o.path), printable(o.path));
    return EXIT_DONE;
}
