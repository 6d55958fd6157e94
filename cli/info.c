// cotan info: what a file or a folder holds.
#include <stdio.h>

#include "cli.h"

static bool print(const char *text, size_t n, void *user) {
    (void)user;
    return fwrite(text, 1, n, stdout) == n;
}

int run_info(int argc, char **argv) {
    command c = {
        .name = "info",
        .usage = "FILE|DIR",
        .operand = "FILE or DIR",
        .text = "Says what a file or folder holds: tensors with dtype, shape and bytes, and\n"
                "metadata, of a safetensors file, or of NumPy's npy and npz; the model and its\n"
                "training, of a folder that cotan train wrote or of its config.json; bytes,\n"
                "lines, characters and vocabulary of a text, or of all texts in a folder.\n",
        .examples = "  cotan info run                      # what was trained\n"
                    "  cotan info run/model.safetensors    # every tensor\n"
                    "  cotan info book.txt                 # is it text, and how much?\n",
    };
    const char *file = NULL;
    int status;
    if (!parse(&c, argc, argv, &file, &status)) return status;
    return ct_describe(file, print, NULL) ? EXIT_DONE : fail();
}
