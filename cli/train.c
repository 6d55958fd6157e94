// cotan train: options, the display of progress, and Ctrl-C.
#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

// ------------------------------------------------------------------------------------------ Ctrl-C

static volatile sig_atomic_t stop_requested;

static void train_cmd_on_signal(int signal_number) {
    (void)signal_number;
    stop_requested = 1;
}

static bool train_cmd_should_stop(void *user) {
    (void)user;
    return stop_requested != 0;
}

// The first signal requests a stop; a second one ends the process, as by default. Signals that are
// ignored when the process starts (nohup, a background job of a script) stay ignored.
static void train_cmd_handle_signals(void) {
    static const int asking[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = train_cmd_on_signal,
                               .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof asking / sizeof *asking; i++) {
        struct sigaction before;
        if (sigaction(asking[i], NULL, &before) != 0 || before.sa_handler != SIG_IGN)
            sigaction(asking[i], &action, NULL);
    }
    signal(SIGPIPE, SIG_IGN); // the reader of the progress output may exit; the run continues
}

// ----------------------------------------------------------------------------------- what is shown

enum { LOG_INTERVAL_SECONDS = 10, LOG_LINES_PER_RUN = 10 }; // if standard error is not a terminal

typedef struct display {
    bool terminal;
    bool line_open;    // the terminal has a live line
    bool has_step;     // a step has run
    double last_shown; // time of the last line, and its step
    int64_t last_step;
    char dir[4096];      // directory of a new run
    char best_dir[4096]; // directory of the best weights; "": none
} display;

static void train_cmd_end_line(display *d) {
    if (d->line_open) fputc('\n', stderr);
    d->line_open = false;
}

static void train_cmd_format_eta(char *out, size_t cap, double seconds) {
    if (!isfinite(seconds))
        snprintf(out, cap, "-");
    else if (seconds < 60)
        snprintf(out, cap, "%.0f s", seconds);
    else if (seconds < 3600)
        snprintf(out, cap, "%d min %02d s", (int)seconds / 60, (int)seconds % 60);
    else // of any size: it may exceed every integer type
        snprintf(out, cap, "%.0f h %02.0f min", floor(seconds / 3600),
                 floor(fmod(seconds, 3600) / 60));
}

static void train_cmd_print_step(display *d, const ct_fit_state *p) {
    char line[256], left[32], validation[40] = "";
    bool last = p->step == p->steps - 1;
    // An evaluation is of the weights before the step, except at the last step.
    int64_t done = p->evaluated && !last ? p->step : p->done;
    d->has_step = true;
    double t = seconds_now();
    // A log gets a line every few seconds or every tenth of the steps, whichever comes first.
    int64_t since = p->step - d->last_step;
    bool quiet = t - d->last_shown < LOG_INTERVAL_SECONDS && since * LOG_LINES_PER_RUN < p->steps;
    if (!p->evaluated && (d->terminal ? t - d->last_shown < 0.1 : quiet)) return;
    d->last_shown = t;
    d->last_step = p->step;
    if (p->evaluated) // the loss of another step would be mistaken for this one's
        snprintf(validation, sizeof validation, "  validation %.4f", p->val_loss);
    train_cmd_format_eta(left, sizeof left, last ? 0 : p->seconds_left);
    int n =
        snprintf(line, sizeof line, "step %lld/%lld  loss %.4f%s  %.0f tokens/s  %.0f MB  %s left",
                 (long long)done, (long long)p->steps, p->loss, validation, p->tokens_per_s,
                 (double)p->memory / 1e6, left);
    if (!d->terminal) {
        fprintf(stderr, "%s\n", line);
        return;
    }
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 && n >= size.ws_col)
        line[size.ws_col - 1] = '\0'; // a line that wraps could not be overwritten
    fprintf(stderr, "\r\033[K%s", line);
    d->line_open = true;
    if (p->evaluated) train_cmd_end_line(d); // the line stays
}

static void train_cmd_print_sample(display *d, const ct_lm_event *event) {
    static const char margin[] = "    | ";
    train_cmd_end_line(d);
    fprintf(stderr, "after %lld step%s it writes:\n%s", (long long)event->state.done,
            event->state.done == 1 ? "" : "s", margin);
    put_escaped(stderr, event->text, event->text_n, margin);
    fputc('\n', stderr);
}

// The first step may take half a minute, in which its kernels are compiled.
static void train_cmd_print_start(display *d, const char *text) {
    if (d->line_open) fputs("\r\033[K", stderr);
    print_with_option_names(stderr, text);
    fputc('\n', stderr);
    if (d->terminal) fputs("preparing the first step ...", stderr);
    d->line_open = d->terminal;
}

// A live line on a terminal; elsewhere a line at intervals.
static void train_cmd_print_tokenizing(display *d, const char *text) {
    const double t = seconds_now();
    if (!d->terminal && t - d->last_shown < LOG_INTERVAL_SECONDS) return;
    if (d->terminal || d->last_shown > 0)
        fprintf(stderr, d->terminal ? "\r\033[K%s" : "%s\n", text);
    d->last_shown = t;
    d->line_open = d->terminal;
}

// Between events the line shows the compilation of kernels, unless it shows a step.
static void train_cmd_on_event(const ct_lm_event *event, void *user) {
    display *d = user;
    if (progress_watch_kernels(false)) d->line_open = false;
    switch (event->kind) {
    case CT_LM_MODEL:
    case CT_LM_RESUME: train_cmd_print_start(d, event->text); break;
    case CT_LM_STEP: train_cmd_print_step(d, &event->state); break;
    case CT_LM_SAMPLE: train_cmd_print_sample(d, event); break;
    case CT_LM_TOKENIZING: train_cmd_print_tokenizing(d, event->text); break;
    case CT_LM_OUTPUT_DIR: snprintf(d->dir, sizeof d->dir, "%s", event->text); break;
    case CT_LM_BEST: snprintf(d->best_dir, sizeof d->best_dir, "%s", event->text); break;
    case CT_LM_EARLY_STOP:
    case CT_LM_MEMORY:
    case CT_LM_DONE:
        train_cmd_end_line(d);
        fprintf(stderr, "%s\n", event->text);
        break;
    }
    progress_watch_kernels(!d->line_open || !d->has_step);
}

// ----------------------------------------------------------------------------------------- options

static const char *const precisions[] = {"fp32", "bf16", "fp16", NULL};
static const ct_dtype precision_dtypes[] = {CT_F32, CT_BF16, CT_F16};
enum { MAX_STEPS = 1000000000 };

static size_t train_options_init(train_settings *s) {
    ct_lm_train_options *t = &s->train;
    const opt all[] = {
        {"data", OPT_PATHS, "PATH...", "text: files, folders or 'patterns'", .out = &s->data},
        {"tokenizer", OPT_STRING, "KIND",
         "bytes, chars, bpe:N (trained on the text) or a tokenizer (bytes)", .out = &t->tokenizer},
        {"arch", OPT_STRING, "TYPE", "what to train: gpt2, llama, qwen3, gemma ... (gpt2)",
         .out = &t->arch},
        {"from", OPT_PATH, "MODEL", "model to fine-tune: a folder, or ORG/NAME that was pulled",
         .out = &t->from},
        {"layers", OPT_INT, "N", "layers (chosen for this machine)", 1, 1000, .out = &t->layers},
        {"heads", OPT_INT, "N", "attention heads; they divide the width (chosen)", 1, 1000,
         .out = &t->heads},
        {"kv-heads", OPT_INT, "N", "of --arch: heads of keys and values (as heads)", 1, 1000,
         .out = &t->kv_heads},
        {"intermediate-size", OPT_INT, "N", "of --arch: width of the MLP (by the architecture)", 1,
         1 << 20, .out = &t->intermediate_size},
        {"width", OPT_INT, "N", "numbers a token (chosen)", 1, 65536, .out = &t->width},
        {"context", OPT_INT, "N", "tokens seen at once (chosen)", 1, 1 << 20, .out = &t->context},
        {"batch", OPT_INT, "N", "windows a step (chosen)", 1, 1 << 20, .out = &t->batch},
        {"accumulate", OPT_INT, "N", "batches a step, with the memory of one (1)", 1, 1 << 20,
         .out = &t->accumulate},
        {"steps", OPT_INT, "N", "steps (2000)", 1, MAX_STEPS, .out = &t->steps},
        {"lr", OPT_REAL, "X", "learning rate (0.001; 0.0006 from width 512 on; 5e-5 with --from)",
         1e-12, 100, .out = &s->lr},
        {"min-lr", OPT_REAL, "X", "where its cosine ends (a tenth of it)", 0, 100,
         .out = &t->min_lr},
        {"warmup", OPT_OPTIONAL_INT, "N", "steps in which it rises (a tenth, at most 100)", 0,
         MAX_STEPS, .out = &t->warmup},
        {"beta1", OPT_REAL, "X", "of AdamW (0.9)", 0, 0.999999, .out = &t->beta1},
        {"beta2", OPT_REAL, "X", "of AdamW (0.99)", 0, 0.999999, .out = &t->beta2},
        {"weight-decay", OPT_REAL, "X", "of matrices (0.1)", 0, 100, .out = &t->weight_decay},
        {"clip", OPT_REAL, "X", "largest norm of the gradients; 0: any (1)", 0, 1e9,
         .out = &t->clip},
        {"dropout", OPT_REAL, "X", "part dropped in training (0)", 0, 0.99, .out = &s->dropout},
        {"no-bias", OPT_FLAG, NULL, "linear layers and norms without a bias", .out = &t->no_bias},
        {"precision", OPT_CHOICE, "KIND",
         "of products: fp32, bf16 or fp16; weights stay fp32 (fp32)", .choices = precisions,
         .out = &s->precision},
        {"eval-every", OPT_INT, "N", "steps between evaluations (a tenth)", 1, MAX_STEPS,
         .out = &t->eval_every},
        {"eval-batches", OPT_OPTIONAL_INT, "N", "steps' batches an evaluation; 0: all (50)", 0,
         MAX_STEPS, .out = &t->eval_batches},
        {"patience", OPT_OPTIONAL_INT, "N",
         "evaluations without a better loss that end the run; 0: all steps (0)", 0, MAX_STEPS,
         .out = &t->patience},
        {"min-delta", OPT_REAL, "X", "by how much at least a better loss is lower (0)", 0, 100,
         .out = &t->min_delta},
        {"save-every", OPT_INT, "N", "steps between saves (as evaluations)", 1, MAX_STEPS,
         .out = &t->save_every},
        {"seed", OPT_OPTIONAL_INT, "N", "of weights, windows and dropout (0)", 0, 9e15,
         .out = &s->seed},
        MACHINE_OPTIONS(s->machine),
        {"out", OPT_PATH, "DIR", "folder to write (run, or run-2 ... where that is there)",
         .out = &t->out},
        {"overwrite", OPT_FLAG, NULL, "replace what is in the folder of --out, at the first save",
         .out = &t->overwrite},
        {"resume", OPT_PATH, "DIR", "resume the run in DIR from its latest checkpoint",
         .out = &t->resume},
        {"resume-step", OPT_OPTIONAL_INT, "N",
         "resume from the checkpoint of step N, removing later ones (the latest)", 0, MAX_STEPS,
         .out = &t->resume_step},
    };
    _Static_assert(sizeof all / sizeof *all < MAX_TRAIN_OPTIONS,
                   "MAX_TRAIN_OPTIONS is large enough for all and one more");
    memcpy(s->options, all, sizeof all);
    return sizeof all / sizeof *all;
}

bool train_options_parse(command *c, train_settings *s, const opt *own, int argc, char **argv,
                         int *status) {
    *s = (train_settings){.precision = -1};
    c->opts = s->options;
    c->n = train_options_init(s);
    if (own) s->options[c->n++] = *own;
    if (!options_parse(c, argc, argv, NULL, status)) return false;
    s->train.data = s->data.v;
    s->train.n_data = s->data.n;
    if (s->precision >= 0) s->train.precision = precision_dtypes[s->precision];
    s->train.lr = s->lr.value;
    s->train.dropout = s->dropout.value;
    s->train.seed = (uint64_t)s->seed.value;
    if (s->dropout.given) s->train.given |= CT_LM_GIVEN_DROPOUT;
    if (s->seed.given) s->train.given |= CT_LM_GIVEN_SEED;
    return machine_apply(&s->machine, c->name, status);
}

static const char text[] =
    "Trains a language model on text: a GPT-2, another architecture with --arch, or an existing\n"
    "model with --from. The first 90 % is for training, the rest for validation. Options that are\n"
    "not given are chosen for this machine and reported. Progress goes to standard error; Ctrl-C,\n"
    "SIGTERM and SIGHUP end the step and save. The folder gets model.safetensors and config.json,\n"
    "which Hugging Face's transformers reads, state.safetensors (the optimizer's), metrics.jsonl\n"
    "(a line per step), loss.svg and tokenizer.json, so that cotan run, eval, embed and serve can\n"
    "load it; with --tokenizer bpe:N also the tokenized text, tokens.npy; checkpoints/ keeps the\n"
    "latest two checkpoints. --resume continues after Ctrl-C, a crash or a kill with the run's\n"
    "own options and text, and gives the same bits; more --steps make it longer. With --patience\n"
    "the run ends when the validation loss stops improving, and best/ keeps the weights with the\n"
    "lowest loss. If memory is short, gradients recompute as few blocks of the model as needed: a\n"
    "step takes longer and its bits are the same. A run that still does not fit is refused.\n";

static const char examples[] =
    "  cotan train --data book.txt                         # all sizes chosen\n"
    "  cotan train --data src docs 'notes/*.md' --out run  # folders and patterns\n"
    "  cotan train --data tinyshakespeare.txt --tokenizer chars --layers 4 --heads 4 \\\n"
    "      --width 128 --context 64 --batch 12 --steps 2000 --lr 1e-3 --dropout 0 \\\n"
    "      --no-bias --out shakespeare\n"
    "  cotan sample shakespeare --prompt 'ROMEO:'\n"
    "  cotan train --data book.txt --tokenizer bpe:4096 --arch llama  # words and parts of them\n"
    "  cotan train --data book.txt --from HuggingFaceTB/SmolLM2-135M --context 256\n"
    "  cotan train --resume shakespeare                    # resumes the run\n"
    "  cotan train --resume shakespeare --steps 4000       # with more steps\n"
    "  cotan train --data book.txt --patience 5            # early stopping\n";

// Prints a word, quoted for a shell if needed.
static void train_cmd_print_shell_word(const char *name) {
    static const char safe[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-";
    if (name[strspn(name, safe)] == '\0' && name[0] != '-') {
        fputs(name, stderr);
        return;
    }
    fputs(name[0] == '-' ? "'./" : "'", stderr);
    for (; *name; name++)
        if (*name == '\'')
            fputs("'\\''", stderr);
        else
            fputc(*name, stderr);
    fputc('\'', stderr);
}

// Prints the --device option, if it is not the default, at the end of a suggested command.
static void train_cmd_print_device_option(const machine *m) {
    if (m->device && strcmp(m->device, "cpu") != 0) {
        fputs(" --device ", stderr);
        train_cmd_print_shell_word(m->device);
    }
    fputc('\n', stderr);
}

static int train_cmd_finish(const train_settings *s, const display *d, bool trained) {
    const char *dir = s->train.resume ? s->train.resume : d->dir;
    const char *out = *d->best_dir ? d->best_dir : dir;
    bool interrupted = !trained && ct_error_code() == CT_E_INTERRUPTED;
    if (!trained && !interrupted) {
        int status = report_error();
        return d->has_step ? EXIT_FAILED : status; // a run that has begun is not a usage error
    }
    if (interrupted && !*dir) { // nothing was saved, so that there is no directory
        fprintf(stderr, "%s\n", ct_error_text());
        return EXIT_INTERRUPTED;
    }
    if (interrupted) fprintf(stderr, "%s, and saved\n", ct_error_text());
    train_cmd_print_shell_word(program_name);
    fputs(" sample ", stderr);
    train_cmd_print_shell_word(out);
    // The same device, if it is not the default.
    train_cmd_print_device_option(&s->machine);
    if (interrupted) {
        train_cmd_print_shell_word(program_name);
        fputs(" train --resume ", stderr);
        train_cmd_print_shell_word(dir);
        train_cmd_print_device_option(&s->machine);
    }
    return interrupted ? EXIT_INTERRUPTED : EXIT_DONE;
}

int run_train(int argc, char **argv) {
    train_settings s;
    int status;
    command c = {.name = "train",
                 .usage = "--data PATH... [options] | --resume DIR",
                 .text = text,
                 .examples = examples};
    if (!train_options_parse(&c, &s, NULL, argc, argv, &status)) return status;
    display d = {.terminal = isatty(STDERR_FILENO) == 1};
    s.train.on_event = train_cmd_on_event;
    s.train.should_stop = train_cmd_should_stop;
    s.train.user = &d;
    train_cmd_handle_signals();
    progress_watch_kernels(true);
    bool trained = ct_lm_train(&s.train);
    if (progress_watch_kernels(false)) d.line_open = false;
    train_cmd_end_line(&d);
    return train_cmd_finish(&s, &d, trained);
}
