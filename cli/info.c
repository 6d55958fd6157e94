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
        .usage = "FILE",
        .operand = "FILE",
        .text = "Says what FILE holds: tensors with dtype, shape and bytes, and metadata, of a\n"
                "safetensors file, or of NumPy's npy and npz; the model and its training, of a "
                "folder that cotan train wrote\n"
                "or of its config.json; bytes, lines, characters and vocabulary of a text.\n",
        .examples = "  cotan info run                      # what was trained\n"
                    "  cotan info run/model.safetensors    # every tensor\n"
                    "  cotan info book.txt                 # is it text, and how much?\n",
    };
    const char *file = NULL;
    int status;
    if (!parse(&c, argc, argv, &file, &status)) return status;
    return ct_describe(file, print, NULL) ? EXIT_DONE : fail();
}
