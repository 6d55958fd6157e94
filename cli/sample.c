// cotan sample: generates text with a trained model.
#include <stdio.h>
#include <unistd.h>

#include "cli.h"

// On a terminal control characters are escaped, since a byte-level model may generate any; elsewhere the
// text is written as it is.
static bool sample_on_text(const char *text, size_t n, void *user) {
    progress_watch_kernels(false);
    if (*(const bool *)user)
        put_escaped(stdout, text, n, "");
    else
        fwrite(text, 1, n, stdout);
    return flush_output();
}

int run_sample(int argc, char **argv) {
    bool terminal = isatty(STDOUT_FILENO) == 1;
    ct_lm_sample_options s = {.on_text = sample_on_text, .user = &terminal};
    ct_num seed = {0};
    machine m = {0};
    int status;
    opt options[] = {
        {"prompt", OPT_STRING, "TEXT", "how the text begins (a new line)", .out = &s.prompt},
        {"max-tokens", OPT_INT, "N", "tokens to generate (500)", 1, 1e9, .out = &s.max_tokens},
        {"temperature", OPT_REAL, "X", "0: greedy; above 1: more random (0.8)", 0, 1000,
         .out = &s.temperature},
        {"top-k", OPT_INT, "N", "samples from the N most likely tokens (40)", 1, 1e9,
         .out = &s.top_k},
        {"seed", OPT_OPTIONAL_INT, "N", "of the draws (0)", 0, 9e15, .out = &seed},
        MACHINE_OPTIONS(m),
    };
    command c = {
        .name = "sample",
        .usage = "DIR [options]",
        .operand = "DIR",
        .text =
            "Writes text with the model in DIR, a folder that cotan train wrote, to standard\n"
            "output as it is drawn. Equal seeds give equal text. Where the context is full, the\n"
            "newest half of it is kept. On a terminal, control characters appear as \\x1b; in a "
            "file or a\n"
            "pipe they are themselves.\n",
        .examples = "  cotan sample run\n"
                    "  cotan sample run --prompt \"Once upon a time\" --max-tokens 200\n"
                    "  cotan sample run --temperature 0      # greedy decoding\n"
                    "  cotan sample run --seed 7 >text.txt   # another one\n",
        .opts = options,
        .n = sizeof options / sizeof *options,
    };
    if (!options_parse(&c, argc, argv, &s.dir, &status)) return status;
    s.seed = (uint64_t)seed.value;
    if (!machine_apply(&m, c.name, &status)) return status;
    progress_watch_kernels(true);
    if (!ct_lm_sample(&s)) {
        fflush(stdout);
        return report_error();
    }
    putchar('\n');
    return EXIT_DONE;
}
