// cotan info: describes files and directories.
#include <stdio.h>

#include "cli.h"

static bool info_on_text(const char *text, size_t n, void *user) {
    (void)user;
    return fwrite(text, 1, n, stdout) == n;
}

// Describes each path, under its name if there are several. An error does not stop the others; the
// status is that of the first error.
static int info_describe_all(int n, char **names) {
    int status = EXIT_DONE;
    for (int i = 0; i < n; i++) {
        if (n > 1) printf("%s%s:\n", i ? "\n" : "", printable(names[i]));
        if (ct_describe(names[i], info_on_text, NULL)) continue;
        flush_output(); // so that the error is printed below its name
        int failed = report_error();
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
        .many_operands = true,
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
    if (!options_parse(&c, argc, argv, &file, &status)) return status;
    return info_describe_all(argc, argv);
}
