// The program `cotan`. It uses only the public headers; the work is done by the library.
#ifndef COTAN_CLI_CLI_H
#define COTAN_CLI_CLI_H

#include <stdio.h>

#include <cotan/cotan.h>
#include <cotan/lm.h>
#include <cotan/profile.h>

// Exit statuses of the process.
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

// ----------------------------------------------------------------------------------------- options

typedef enum {
    OPT_FLAG,         // bool: true when given
    OPT_INT,          // int64_t
    OPT_OPTIONAL_INT, // ct_num with an integer value: 0 differs from "not given"
    OPT_REAL,         // ct_num
    OPT_STRING,       // const char *
    OPT_PATH,         // const char *, not empty
    OPT_CHOICE,       // int: index into choices
    OPT_BYTES,        // uint64_t: 50MB, 2GiB, 4000000
    OPT_PATHS,        // paths: all words up to the next option
} opt_kind;

typedef struct paths {
    const char *const *v;
    size_t n;
} paths;

typedef struct opt {
    const char *name; // without the dashes
    opt_kind kind;
    const char *value;          // name of the value in the help text; NULL for flags
    const char *help;           // one line
    double low, high;           // range of numbers; low also for bytes
    const char *const *choices; // NULL-terminated
    void *out;
    const char *given_text; // its value on the command line; NULL: not given
} opt;

typedef struct excluded_option { // a shared option that this command does not take
    const char *option, *reason;
} excluded_option;

typedef struct command {
    const char *name, *summary;
    const char *usage;    // "[options]" and the like
    const char *text;     // what it does, for --help
    const char *examples; // for --help
    const char *operand;  // name of the operand, the word without dashes; NULL: it takes none
    // Takes several operands, which options_parse moves to the front of argv, in their order.
    bool many_operands;
    size_t n_operands; // their number, after options_parse
    opt *opts;
    size_t n;
    const excluded_option *excluded; // terminated by an entry with NULL; NULL: none
} command;

// Parses the words after the command's name. False: `*status` is the exit status, and the error or the
// text of --help has been printed.
bool options_parse(command *c, int argc, char **argv, const char **operand, int *status);
void options_print_help(const command *c); // to standard output

extern const char *message_name; // the program's name in messages and help: "cotan"

int usage_error(const char *format, ...)
    __attribute__((format(printf, 1, 2))); // prints a sentence; returns EXIT_USAGE
int report_error(void); // prints the context's error; returns the exit status for it
// Prints text of the library, with options of the command line instead of members of option structs.
void print_with_option_names(FILE *to, const char *text);
// Returns `text` with control characters replaced, for one line of output. The result is overwritten by
// the thread's third next call.
const char *printable(const char *text);
// Writes text for a person to read: control characters except tabs and newlines appear as \x1b, and each
// line but the first begins with `indent`. n: bytes, which are whole characters.
void put_escaped(FILE *to, const char *text, size_t n, const char *indent);

// Warns that keys of a model's generation_config.json are not supported; NULL: nothing.
void warn_unsupported_generation(const char *model, const char *keys);
// Flushes standard output. False: a write failed, now or before; output_error returns the reason.
bool flush_output(void);
const char *output_error(void);

// Reads the whole file into memory that the caller frees, with a zero byte after its n bytes. NULL: it
// cannot be read, or out of memory.
char *read_stream(FILE *file, size_t *n);
// The same for the file at a path; NULL or "-" is standard input. NULL: it cannot be read; the error was
// printed in the name of `caller`.
char *read_file_or_stdin(const char *caller, const char *path, size_t *n);
double seconds_now(void); // of a monotonic clock
// Prints "what: 3 of 17", repeatedly on the same line of standard error if that is a terminal. done ==
// all removes the line.
void progress_show(const char *what, int64_t done, int64_t all);
// Turns the display of kernel compilation on or off: "compiling kernels: 37 of 120", counted from this
// call, by a thread of its own. On a terminal it is a live line, elsewhere a line every ten seconds.
// While it is on, call progress_clear_line, which removes the live line, before any other output.
// Returns true if the live line has been drawn since it was turned on, over what was on the terminal's
// line before.
bool progress_watch_kernels(bool on);
void progress_clear_line(void);

extern const char *program_name; // as the program was called, for commands that are printed

// ---------------------------------------------------------------------------------------- commands

// The options of a command that say where it computes.
typedef struct machine {
    const char *device; // NULL: the context's default
    int64_t threads;
    uint64_t memory_limit;
    // Files of packed kernels, separated by colons; NULL: only those of the environment.
    const char *kernels;
} machine;
// The entries of these options in a command's table. No process of the program is smaller than the least
// memory: less means a forgotten unit.
// clang-format off
#define MACHINE_OPTIONS(m)                                                                         \
    {"threads", OPT_INT, "N", "threads (COTAN_THREADS, else the cores allowed)", 1, 256,           \
     .out = &(m).threads},                                                                         \
    {"device", OPT_STRING, "NAME",                                                                 \
     "cpu, opencl, or ref, which is slow and simple (cpu); see cotan devices", .out = &(m).device}, \
    {"memory-limit", OPT_BYTES, "SIZE", "most memory: 500MB, 2GiB (what this machine has left)",   \
     1e6, .out = &(m).memory_limit},                                                               \
    {"kernels", OPT_PATH, "FILES",                                                                 \
     "of cotan pack, colons between: instead of a compiler (COTAN_KERNELS)", .out = &(m).kernels}
// clang-format on
// Applies the options. `caller` is the prefix of error messages. False: `*status` is the exit status.
bool machine_apply(const machine *m, const char *caller, int *status);

// Returns the threads that COTAN_THREADS asks for, else the number of cores that the process may use.
int limits_default_threads(void);
// Measures the limits of the machine. False: it cannot; the error was printed.
bool limits_measure(ct_machine_limits *l, int threads);
void limits_print_json(const ct_machine_limits *l); // "limits": {...}

// The options that train and plan share.
enum { MAX_TRAIN_OPTIONS = 40 };
typedef struct train_settings {
    ct_lm_train_options train;
    opt options[MAX_TRAIN_OPTIONS];
    paths data;
    int precision;
    ct_num lr, dropout, seed;
    machine machine;
} train_settings;
// Parses the words into the settings, with the shared options and `own` (NULL: none), and applies the
// machine options. False: as options_parse.
bool train_options_parse(command *c, train_settings *s, const opt *own, int argc, char **argv,
                         int *status);

// Returns the cosine similarity of two vectors of n.
double cosine_similarity(const float *a, const float *b, int64_t n);

// The option --activations of commands that load a published model, and the dtype for its choice.
opt activations_option(int *choice);
ct_dtype activations_dtype(int choice);

int run_train(int argc, char **argv);
int run_plan(int argc, char **argv);
int run_sample(int argc, char **argv);
int run_compile(int argc, char **argv);
int run_pack(int argc, char **argv);
int run_info(int argc, char **argv);
int run_tokenize(int argc, char **argv);
int run_pull(int argc, char **argv);
int run_run(int argc, char **argv);
int run_embed(int argc, char **argv);
int run_eval(int argc, char **argv);
int run_serve(int argc, char **argv);
int run_bench(int argc, char **argv);
int run_devices(int argc, char **argv);
int run_doctor(int argc, char **argv);
int run_explain(int argc, char **argv);
int run_profile(int argc, char **argv);
// Runs a command by its name.
int run_command(const char *name, int argc, char **argv);

#endif
