// The program `cotan`. It uses only the public headers; what it does stands in the library.
#ifndef COTAN_CLI_CLI_H
#define COTAN_CLI_CLI_H

#include <stdio.h>

#include <cotan/cotan.h>
#include <cotan/lm.h>

// What a process ends with.
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_REFUSED = 2, EXIT_INTERRUPTED = 130 };

// ----------------------------------------------------------------------------------------- options

typedef enum {
    OPT_FLAG,   // bool: true when given
    OPT_WHOLE,  // int64_t
    OPT_COUNT,  // ct_num that holds a whole number: 0 differs from "not given"
    OPT_REAL,   // ct_num
    OPT_TEXT,   // const char *
    OPT_PATH,   // const char *, not empty
    OPT_CHOICE, // int: index into choices
    OPT_BYTES,  // uint64_t: 50MB, 2GiB, 4000000
    OPT_PATHS,  // paths: all words up to the next option
} opt_kind;

typedef struct paths {
    const char *const *v;
    size_t n;
} paths;

typedef struct opt {
    const char *name; // without the dashes
    opt_kind kind;
    const char *value;          // what the help calls the value; NULL for flags
    const char *help;           // one line
    double low, high;           // of numbers; low of bytes too
    const char *const *choices; // NULL-terminated
    void *out;
    const char *given; // the text it was given as
} opt;

typedef struct refusal { // of an option that a command shares, but does not take
    const char *option, *why;
} refusal;

typedef struct command {
    const char *name, *summary;
    const char *usage;    // "[options]" and the like
    const char *text;     // what it does, for --help
    const char *examples; // for --help
    const char *operand;  // what the one word without dashes is called; NULL: none is taken
    bool several;         // such words, which `parse` moves to the front of argv, in their order
    size_t n_words;       // of them, then
    opt *opts;
    size_t n;
    const refusal *refusals; // ended by one of NULL; NULL: none
} command;

// Reads the words behind the command's name. False: `*status` is what the process ends with, and
// what was to be said has been said (--help too).
bool parse(command *c, int argc, char **argv, const char **operand, int *status);
void show_help(const command *c); // to standard output

int refuse(const char *format, ...)
    __attribute__((format(printf, 1, 2))); // a sentence; EXIT_REFUSED
int fail(void);                            // says the context's error; the status that it means
// `text` without control characters, for one line of output. Overwritten by the thread's third next call.
const char *plain(const char *text);
// Writes text for a person to read: control characters but tabs and line ends appear as \x1b, and
// each line but the first begins with `indent`. n bytes of whole characters.
void put_visible(FILE *to, const char *text, size_t n, const char *indent);

// Says which keys of a model's generation_config.json are not followed; NULL: nothing.
void tell_unfollowed(const char *model, const char *keys);
// Hands what was printed to the system. False: that failed, now or before; output_error says why.
bool flush_output(void);
const char *output_error(void);

// All of a file, with a zero byte behind its n bytes, for free(). NULL: it cannot be read, or there is no memory.
char *read_all(FILE *file, size_t *n);
// Of the file at a path, NULL or "-": standard input. NULL: that it cannot be read was said, as a failure of `caller`.
char *read_file_or_input(const char *caller, const char *path, size_t *n);
// "what: 3 of 17", over and over on the same line of standard error, if that is a terminal; done == all ends it.
void show_progress(const char *what, int64_t done, int64_t all);

extern const char *program; // as it was called, for commands that are shown

// ---------------------------------------------------------------------------------------- commands

// What a command that computes is told to run on.
typedef struct machine {
    const char *device; // NULL: the context's own
    int64_t threads;
    uint64_t limit;
    const char *kernels; // files of packed ones, colons between; NULL: none but the environment's
} machine;
enum { MACHINE_OPTIONS = 4 };
void list_machine_options(machine *m, opt options[MACHINE_OPTIONS]);
// `caller` begins what refuses. False: `*status` is what the process ends with.
bool use_machine(const machine *m, const char *caller, int *status);

// What train and plan are told alike.
enum { MOST_TRAIN_OPTIONS = 40 };
typedef struct train_settings {
    ct_lm_train_options train;
    opt options[MOST_TRAIN_OPTIONS];
    paths data;
    int precision;
    ct_num lr, dropout, seed;
    machine machine;
} train_settings;
// Reads the words into the settings, by their options and `own` (NULL: none), and uses the machine
// as they say. False: as parse.
bool read_train_options(command *c, train_settings *s, const opt *own, int argc, char **argv,
                        int *status);

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
// A command by its name.
int run_own(const char *name, int argc, char **argv);

#endif
