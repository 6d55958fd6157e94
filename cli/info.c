// cotan info: what files and folders hold.
#include <stdio.h>

#include "cli.h"

static bool print(const char *text, size_t n, void *user) {
    (void)user;
    return fwrite(text, 1, n, stdout) == n;
}

// What each path holds, under its name where there are several. One that cannot be told keeps none
// of the others from it; the status is that of the first.
static int describe_all(int n, char **names) {
    int status = EXIT_DONE;
    for (int i = 0; i < n; i++) {
        if (n > 1) printf("%s%s:\n", i ? "\n" : "", plain(names[i]));
        if (ct_describe(names[i], print, NULL)) continue;
        flush_output(); // so that what is wrong stands below its name
        int failed = fail();
        if (status == EXIT_DONE) status = failed;
        ct_error_clear();
    }
    return status;
}

int run_info(int argc, char **argv) {
    command c = {
        .name = "info",
        .usage = "FILE|DIR...",
        .operand = "FILE or DIR",
        .several = true,
        .text =
            "Says what each file or folder holds: tensors with dtype, shape and bytes, and\n"
            "metadata, of a safetensors file, or of NumPy's npy and npz, or of MNIST's IDX, or\n"
            "of PyTorch's .bin, .pt and .pth; architecture, tokenizer and parameters by type, of\n"
            "a GGUF file, or of the folder of a published model; the model and its training, of\n"
            "a folder that cotan train wrote, or of its config.json or metrics.jsonl; the saves\n"
            "in its checkpoints; bytes, lines, characters and vocabulary of a text, or of all\n"
            "texts in a folder.\n",
        .examples = "  cotan info run                      # what was trained\n"
                    "  cotan info run/model.safetensors    # every tensor\n"
                    "  cotan info run/checkpoints          # which saves are there\n"
                    "  cotan info book.txt                 # is it text, and how much?\n",
    };
    const char *file = NULL;
    int status;
    if (!parse(&c, argc, argv, &file, &status)) return status;
    return describe_all(argc, argv);
}
