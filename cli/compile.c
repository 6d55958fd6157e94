// cotan compile: exports a trained model as C.
#include <stdio.h>

#include "cli.h"

static const char *const functions[] = {"token", "window", "step", NULL};

static const char text[] =
    "Writes the model in DIR, a folder that cotan train wrote, as one C file and its header:\n"
    "PATH.c and PATH.h, with a function named after the last part of PATH. They need only the C\n"
    "library and libm, and no memory but their arguments, and compute the same bits as Cotan. The\n"
    "header describes the arguments. Nothing is run here, and no compiler is needed.\n"
    "\n"
    "  token   the logits of the next token, from a token, its position and the KV cache, which\n"
    "          is zero at first and updated by each call\n"
    "  window  the logits after each token of a sequence of a fixed length\n"
    "  step    a training step of DIR's own run: updates weights and moments; the learning rate\n"
    "          is an argument of each call\n"
    "\n"
    "Weights are pointers, in the layout of model.safetensors, or part of the file with\n"
    "--embed-weights.\n";

static const char examples[] =
    "  cotan compile run --out next_token           # next_token.c and next_token.h\n"
    "  cotan compile run --out next_token --embed-weights   # the weights in it\n"
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
        {"embed-weights", OPT_FLAG, NULL,
         "writes the weights into the file, 3 bytes of text per byte", .out = &o.embed},
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
