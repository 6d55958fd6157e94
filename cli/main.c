// The program's entry: the first word names the command, and the rest are its options.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static void main_print_usage(FILE *out) {
    fputs("Cotan: deep learning in C.\n"
          "\n"
          "usage: cotan COMMAND [options]\n"
          "\n"
          "  train    train a language model on text\n"
          "  plan     show what train would do and the memory it would need\n"
          "  sample   generate text with a trained model\n"
          "  compile  write a trained model as one C file without dependencies\n"
          "  pack     write a published model's kernels to one file, to run without a compiler\n"
          "  pull     download a model from the Hugging Face Hub\n"
          "  run      generate text with a published model, or chat with it (also: chat)\n"
          "  embed    compute text embeddings, or rank texts by similarity\n"
          "  eval     measure a published model: perplexity, questions with choices\n"
          "  serve    serve published models over HTTP\n"
          "  info     describe a file or a folder\n"
          "  tokenize show the tokens of a text, or train a tokenizer\n"
          "  profile  profile a command or a program\n"
          "  bench    measure the limits of this machine\n"
          "  devices  list the devices to compute on, and how fast they are\n"
          "  doctor   check whether this machine has what Cotan needs\n"
          "  explain  explain an error code: cotan explain SHAPE\n"
          "  help     this text, or that of a command: cotan help train\n"
          "  version  the version\n"
          "\n"
          "Start with:\n"
          "  cotan train --data FILE --out run    # chooses a model for this machine\n"
          "  cotan sample run --prompt \"Once \"\n"
          "\n"
          "Environment: COTAN_DEVICE (cpu; opencl, or opencl:1; ref, which is slow and simple),\n"
          "COTAN_OPENCL_LIBRARY (else libOpenCL.so.1), COTAN_DEVICE_LIBRARY (shared libraries\n"
          "that bring further devices, colons between), COTAN_THREADS (cores to use, 1 to 256),\n"
          "COTAN_CC (the C compiler of device cpu; none: kernels are interpreted, the same bits\n"
          "several times slower), COTAN_COMPILE=wait (nothing is interpreted until it is\n"
          "compiled), COTAN_MARCH (the machine they are compiled for, as its -march takes it;\n"
          "else this one), COTAN_BF16_DOT (0: bf16 products without the bf16\n"
          "dot-product instructions; 1: with them), COTAN_EXPLAIN=1 (why each plan was made),\n"
          "COTAN_DUMP=graph,dot,groups,plan,kernels,cuda (what was made of it), COTAN_DUMP_DIR (a\n"
          "folder for the kernels of it, a file each), COTAN_FUSE=0 (a kernel an op: the same\n"
          "bits, slower), COTAN_VERIFY=1 (each pass of the compiler is checked), COTAN_CHECK=ref\n"
          "(every op beside the reference, slowly), nan (the first op that makes NaN), bounds\n"
          "(writes past the end of a buffer), or a list of them: stops at what is wrong, with\n"
          "its line; COTAN_PROFILE=FILE (as cotan profile does); COTAN_PLAN_CACHE (MB of plans "
          "that are\n"
          "kept, else 256); COTAN_ARCHITECTURES (a file of rows that add architectures of\n"
          "language models); COTAN_LAPACK (the library that linear algebra calls, else OpenBLAS);\n"
          "COTAN_KERNELS (files of cotan pack, colons between),\n"
          "COTAN_CACHE_DIR (an absolute path) or XDG_CACHE_HOME (where compiled kernels stay),\n"
          "COTAN_CURL_LIBRARY (by which pull downloads, else libcurl.so.4; cotan help pull has\n"
          "the Hub's own variables), COTAN_HTTP_LIBRARY (by which serve serves, else\n"
          "libmicrohttpd.so.12), COTAN_API_KEY (what serve wants of its clients).\n"
          "Exit status: 0 done, 1 failed, 2 refused (the command line, the memory limit), 130\n"
          "interrupted and saved.\n",
          out);
}

static int main_run_version(int argc, char **argv) {
    (void)argv;
    if (argc > 0) return usage_error("version: it takes no options");
    printf("cotan %s\n", CT_VERSION);
    return EXIT_DONE;
}

static int main_run_help(int argc, char **argv);

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {{"train", run_train},
                {"plan", run_plan},
                {"sample", run_sample},
                {"compile", run_compile},
                {"pack", run_pack},
                {"pull", run_pull},
                {"run", run_run},
                {"chat", run_run},
                {"embed", run_embed},
                {"eval", run_eval},
                {"serve", run_serve},
                {"info", run_info},
                {"tokenize", run_tokenize},
                {"profile", run_profile},
                {"bench", run_bench},
                {"devices", run_devices},
                {"doctor", run_doctor},
                {"explain", run_explain},
                {"help", main_run_help},
                {"version", main_run_version},
                {"--help", main_run_help},
                {"-h", main_run_help},
                {"--version", main_run_version}};
enum { COMMANDS = sizeof commands / sizeof *commands };

int run_command(const char *name, int argc, char **argv) {
    const char *names[COMMANDS + 1] = {0};
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0) return commands[i].run(argc, argv);
        names[i] = commands[i].name;
    }
    const char *near = ct_nearest(name, names);
    if (near) return usage_error("there is no command \"%s\"; is %s meant?", printable(name), near);
    return usage_error("there is no command \"%s\"; cotan help lists them", printable(name));
}

static int main_run_help(int argc, char **argv) {
    static char help[] = "--help";
    if (argc > 1) return usage_error("help: one command is wanted: cotan help train");
    bool about_itself =
        argc == 1 && (strcmp(argv[0], "help") == 0 || strcmp(argv[0], "version") == 0);
    if (argc == 1 && argv[0][0] != '-' && !about_itself)
        return run_command(argv[0], 1, (char *[]){help});
    main_print_usage(stdout);
    return EXIT_DONE;
}

const char *program_name = "cotan";

// Opens closed standard streams. A file that is opened gets the lowest free descriptor: if descriptor 2
// is closed, it would get that one, and error messages would be written into it. Closed streams are
// opened in the wrong direction, so that using them fails as before.
static void main_reserve_standard_fds(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv) {
    main_reserve_standard_fds();
    signal(SIGXFSZ, SIG_IGN); // a file beyond the size limit is an error of the write call
    if (argc > 0 && argv[0][0]) program_name = argv[0];
    if (argc < 2) {
        main_print_usage(stderr);
        return EXIT_USAGE;
    }
    int status = run_command(argv[1], argc - 2, argv + 2);
    // Output that could not be written is a failure, even if the work was done.
    if (!flush_output() && status == EXIT_DONE) {
        fprintf(stderr, "cotan: standard output: %s\n", output_error());
        status = EXIT_FAILED;
    }
    return status;
}
