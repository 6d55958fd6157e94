// cotan profile: runs a command, or any program that uses the library, and writes a profile of it.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static void profile_cmd_print_help(void) {
    fputs("usage: cotan profile [--trace FILE] [--] COMMAND [ARGUMENTS]\n"
          "\n"
          "Runs a command of this program, or any program that uses the library, and reports at "
          "its end where\n"
          "its time went: each kernel with the line of the program that it comes from, its calls, "
          "time, bytes\n"
          "and operations a second and their share of what this machine does at most, which is "
          "measured\n"
          "then; and plans that were made, waiting for the compiler, the program's own "
          "annotations. The\n"
          "table goes to standard error. FILE holds every launch on a time line, and memory over "
          "time, for\n"
          "ui.perfetto.dev or chrome://tracing.\n"
          "\n"
          "Options, before the command:\n"
          "  --trace FILE             the file for the trace (trace.json)\n"
          "  --help                   this text\n"
          "\n"
          "Examples:\n"
          "  cotan profile train --data book.txt --out run --steps 50\n"
          "  cotan profile sample run --max-tokens 200\n"
          "  cotan profile --trace mnist.json -- ./mnist\n"
          "  cotan profile -- python3 train.py\n"
          "\n"
          "The same for a program that cannot be started so: COTAN_PROFILE=FILE in its "
          "environment.\n",
          stdout);
}

static bool profile_cmd_is_command(const char *word) {
    static const char *const own[] = {"train",  "plan",     "sample", "compile", "bench",
                                      "doctor", "run",      "chat",   "serve",   "eval",
                                      "embed",  "tokenize", "info",   "pack",    NULL};
    for (int i = 0; own[i]; i++)
        if (!strcmp(own[i], word)) return true;
    return false;
}

// Finds an unwritable file before the program has run for hours.
static bool profile_cmd_can_write(const char *path) {
    FILE *file = fopen(path, "ab");
    return file && fclose(file) == 0;
}

int run_profile(int argc, char **argv) {
    const char *trace = "trace.json";
    int at = 0;
    bool ended = false;
    for (; at < argc && argv[at][0] == '-' && !ended; at++) {
        if (!strcmp(argv[at], "--help") || !strcmp(argv[at], "-h"))
            return profile_cmd_print_help(), EXIT_DONE;
        if (!strcmp(argv[at], "--")) {
            ended = true;
        } else if (!strncmp(argv[at], "--trace=", 8) && argv[at][8]) {
            trace = argv[at] + 8;
        } else if (!strcmp(argv[at], "--trace")) {
            if (at + 1 == argc || !argv[at + 1][0])
                return usage_error("profile: --trace wants a file");
            trace = argv[++at];
        } else {
            return usage_error(
                "profile: there is no option \"%s\" before the command; cotan profile "
                "--help lists them",
                printable(argv[at]));
        }
    }
    if (at == argc)
        return usage_error(
            "profile: a command is wanted: cotan profile train --data FILE --out run");
    if (!profile_cmd_can_write(trace))
        return usage_error("profile: %s: %s", printable(trace), strerror(errno));
    char *path = realpath(trace, NULL); // the program may change the current directory
    if (!path || setenv("COTAN_PROFILE", path, 1)) return usage_error("profile: out of memory");
    free(path);
    if (!ended && profile_cmd_is_command(argv[at]))
        return run_command(argv[at], argc - at - 1, argv + at + 1);
    execvp(argv[at], argv + at);
    usage_error("profile: %s: %s", printable(argv[at]), strerror(errno));
    return EXIT_USAGE;
}
