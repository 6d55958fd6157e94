// cotan run: a published model completes a text, or answers in a conversation.
#define _GNU_SOURCE
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cotan/engine.h>

#include "cli.h"

typedef struct model {
    ct_pretrained *is;
    ct_engine *engine;
    bool is_chat; // prompts are made by its chat template
    ct_lm_sampling sampling;
    int64_t length, context;
    const char *stop; // NULL: none
    const char
        *pending_text; // text that is printed before the generated text; NULL: none, or printed
    size_t pending_n;
    bool terminal, verbose;
    bool is_interactive;    // with a person, who can type /clear
    bool context_is_full;   // the context was full before the last answer was complete
    bool failed;            // the last request failed, and the error was printed
    json_t *answer_pieces;  // the text of an answer, in pieces
    ct_chat_parser *parser; // of an answer; NULL: all generated text is printed
    bool in_reasoning;      // reasoning is being printed
} model;

// ------------------------------------------------------------------------------------------- signals

static volatile sig_atomic_t interrupted;

static void run_on_signal(int signal) {
    (void)signal;
    interrupted = 1;
}

// Ctrl-C ends an answer or, between answers, the conversation.
static void run_install_signal_handler(void) {
    struct sigaction action = {.sa_handler = run_on_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

// ----------------------------------------------------------------------------------------- requests

static void run_print_text(const model *m, const char *text, size_t n) {
    if (m->terminal) // a model's output must not control a terminal
        put_escaped(stdout, text, n, "");
    else
        fwrite(text, 1, n, stdout);
    if (m->answer_pieces && n)
        json_array_append_new(m->answer_pieces, json_stringn_nocheck(text, n));
}

static bool run_terminal_has_dim(void) {
    const char *term = getenv("TERM");
    return term && *term && strcmp(term, "dumb") != 0;
}

static void run_end_reasoning(model *m) {
    if (m->in_reasoning) fputs(run_terminal_has_dim() ? "\x1b[0m\n\n" : "\n\n", stdout);
    m->in_reasoning = false;
}

// Reasoning is only shown on a terminal and is not part of the answer.
static bool run_on_chat_part(const ct_chat_part *part, void *user) {
    model *m = user;
    if (part->kind != CT_CHAT_REASONING) {
        run_end_reasoning(m);
        run_print_text(m, part->text, part->n);
    } else if (m->terminal) {
        if (!m->in_reasoning && run_terminal_has_dim()) fputs("\x1b[2m", stdout);
        m->in_reasoning = true;
        put_escaped(stdout, part->text, part->n, "");
    }
    return true;
}

static bool run_feed_text(model *m, const char *text, size_t n) {
    if (m->parser) return !n || ct_chat_parser_feed(m->parser, text, n, run_on_chat_part, m);
    run_print_text(m, text, n);
    return true;
}

// Turns the progress display off before generated text is printed.
static void run_begin_output(model *m) {
    progress_watch_kernels(false);
    if (m->pending_text) run_print_text(m, m->pending_text, m->pending_n);
    m->pending_text = NULL;
}

static bool run_on_token(const ct_engine_token *token, void *user) {
    run_begin_output(user);
    return run_feed_text(user, token->text, token->text_n) && flush_output() && !interrupted;
}

static void run_on_finish(const ct_engine_result *r, void *user) {
    model *m = user;
    run_begin_output(m);
    const bool ok = (!r->text_n || run_feed_text(m, r->text, r->text_n)) &&
                    (!m->parser || ct_chat_parser_end(m->parser, run_on_chat_part, m));
    run_end_reasoning(m);
    m->failed = !ok || r->finish_reason == CT_ENGINE_FAILED;
    m->context_is_full =
        r->finish_reason == CT_ENGINE_LENGTH && (int64_t)r->generated_tokens < m->length;
    if (m->failed && !ct_failed())
        fprintf(stderr, "cotan: %s\n", r->error ? r->error : "out of memory");
    if (!m->verbose) return;
    const double writing = r->total_seconds - r->ttft_seconds;
    fflush(stdout);
    fprintf(stderr,
            "\n"
            "[%zu prompt tokens, %zu of them cached; first token after %.2f s; %zu generated",
            r->prompt_tokens, r->cached_tokens, r->ttft_seconds, r->generated_tokens);
    if (r->generated_tokens > 1 && writing > 0)
        fprintf(stderr, ", %.1f a second", (double)(r->generated_tokens - 1) / writing);
    if (ct_kernels_isa()) {
        const ct_stats s = ct_get_stats();
        fprintf(stderr, "; kernels for %s: %llu packed, %llu compiled, %llu launches interpreted",
                ct_kernels_isa(), (unsigned long long)s.kernels_packed,
                (unsigned long long)(s.kernels_compiled + s.kernels_loaded),
                (unsigned long long)s.launches_interpreted);
    }
    fputs("]", stderr);
}

// Prints what can be done when the context of a conversation is full.
static void run_print_context_hint(const model *m) {
    fputs("  hint: /clear removes all messages", stderr);
    if (m->context < m->is->context)
        fprintf(stderr, "; --context can be up to %lld tokens", (long long)m->is->context);
    fputc('\n', stderr);
}

// Generates text after `given`, with the tokenizer's special tokens unless a chat template has added
// them.
static bool run_generate(model *m, const char *given, size_t n) {
    ct_encoding e = {0};
    interrupted = 0;
    m->failed = m->context_is_full = false;
    int64_t id = 0;
    if (!ct_tokenizer_encode(m->is->tokenizer, given, n, &e, .add_special = !m->is_chat))
        id = 0; // an error, which the caller reports
    else if (!e.n)
        fputs("cotan: run: the prompt is empty, and the model has no BOS token\n"
              "  hint: --prompt TEXT, or text on standard input\n",
              stderr);
    else if (m->is_interactive && (int64_t)e.n >= m->context) {
        fprintf(stderr,
                "cotan: run: the conversation would have %zu tokens, and the context has a "
                "capacity of %lld\n",
                e.n, (long long)m->context - 1);
        run_print_context_hint(m);
    } else {
        id = ct_engine_add(m->engine, .prompt = e.ids, .n_prompt = e.n, .max_tokens = m->length,
                           .eos_ids = m->is->eos_ids, .n_eos_ids = m->is->n_eos_ids,
                           .stops = &m->stop, .n_stops = m->stop ? 1 : 0, .sampling = m->sampling,
                           .include_special = m->parser != NULL, .on_token = run_on_token,
                           .on_finish = run_on_finish, .user = m);
    }
    ct_encoding_free(&e);
    bool stopped = false;
    if (id) progress_watch_kernels(true);
    while (id && ct_engine_step(m->engine))
        if (interrupted && !stopped) {
            ct_engine_cancel(m->engine, id);
            stopped = true;
        }
    run_begin_output(m);
    if (id || !m->is_interactive) putchar('\n');
    const bool shown = flush_output();
    if (m->is_interactive && m->context_is_full) {
        fprintf(stderr,
                "cotan: run: the answer ends here, for the context of %lld tokens is full\n",
                (long long)m->context);
        run_print_context_hint(m);
    }
    return shown && id && !m->failed && !ct_failed();
}

// ------------------------------------------------------------------------------------- conversations

static json_t *run_make_message(const char *role, const char *content, size_t n) {
    return json_pack("{s:s, s:s%}", "role", role, "content", content, n);
}

// Joins the pieces of the answer to one message.
static json_t *run_join_answer(const model *m) {
    char *said = NULL;
    size_t n = 0;
    FILE *joined = open_memstream(&said, &n);
    for (size_t i = 0; joined && i < json_array_size(m->answer_pieces); i++) {
        const json_t *piece = json_array_get(m->answer_pieces, i);
        fwrite(json_string_value(piece), 1, json_string_length(piece), joined);
    }
    if (joined) fclose(joined);
    json_t *whole = said ? run_make_message("assistant", said, n) : NULL;
    free(said);
    return whole;
}

// Generates the answer to the conversation and adds it.
static bool run_answer(model *m, json_t *messages) {
    size_t length = 0;
    char *all = json_dumps(messages, 0);
    const char *prompt =
        all ? ct_chat_render(m->is->chat, all, .variables = "{\"add_generation_prompt\": true}",
                             .length = &length)
            : NULL;
    free(all);
    if (!prompt) return false;
    if (!(m->parser = ct_chat_parser_new(m->is->chat, .prompt = prompt))) return false;
    m->answer_pieces = json_array();
    const bool ok = run_generate(m, prompt, length);
    ct_chat_parser_free(m->parser);
    m->parser = NULL;
    json_t *said = ok ? run_join_answer(m) : NULL;
    if (said) json_array_append_new(messages, said);
    json_decref(m->answer_pieces);
    m->answer_pieces = NULL;
    return ok;
}

static bool run_ask(model *m, json_t *messages, const char *text, size_t n) {
    json_array_append_new(messages, run_make_message("user", text, n));
    if (run_answer(m, messages)) return true;
    json_array_remove(messages, json_array_size(messages) - 1);
    return false;
}

static void run_set_option(model *m, const char *words) {
    ct_num min_p = {0}, top_k = {0}, length = {0}, seed = {0};
    const struct {
        const char *name;
        double low, high;
        ct_num *to;
    } of[] = {{"temperature", 0, 1000, &m->sampling.temperature},
              {"top-k", 0, 1e9, &top_k},
              {"top-p", 0, 1, &m->sampling.top_p},
              {"min-p", 0, 1, &min_p},
              {"repetition-penalty", 0.01, 100, &m->sampling.repetition_penalty},
              {"max-tokens", 1, 1e9, &length},
              {"seed", 0, 9e15, &seed}};
    const size_t n = sizeof of / sizeof *of;
    char name[32] = "", rest[2];
    double value = 0;
    const bool two = sscanf(words, "%31s %lf %1s", name, &value, rest) == 2;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(of[i].name, name) != 0) continue;
        if (!two || !(value >= of[i].low && value <= of[i].high)) {
            printf("%s is a number from %g to %g\n", name, of[i].low, of[i].high);
            return;
        }
        *of[i].to = CT_F(value);
        if (top_k.given) m->sampling.top_k = (int64_t)value;
        if (min_p.given) m->sampling.min_p = value;
        if (length.given) m->length = (int64_t)value;
        if (seed.given) m->sampling.seed = (uint64_t)value;
        return;
    }
    fputs("/set takes one of", stdout);
    for (size_t i = 0; i < n; i++) printf("%s %s", i ? "," : "", of[i].name);
    fputs(", and its value\n", stdout);
}

static void run_clear_messages(json_t *messages, bool system_too) {
    while (json_array_size(messages)) {
        const size_t last = json_array_size(messages) - 1;
        const char *role =
            json_string_value(json_object_get(json_array_get(messages, last), "role"));
        if (!system_too && role && strcmp(role, "system") == 0) return;
        json_array_remove(messages, last);
    }
}

// Generates the last answer again, with another seed.
static bool run_regenerate(model *m, json_t *messages) {
    const size_t n = json_array_size(messages);
    if (n < 2) return true;
    json_t *was = json_incref(json_array_get(messages, n - 1));
    json_array_remove(messages, n - 1);
    m->sampling.seed++;
    const bool ok = run_answer(m, messages);
    if (!ok) json_array_append(messages, was);
    json_decref(was);
    return ok;
}

static const char *const help =
    "  /clear           removes all messages\n"
    "  /system TEXT     sets the system message and removes all others\n"
    "  /again           regenerates the answer with another seed\n"
    "  /set NAME VALUE  temperature, top-k, top-p, min-p, repetition-penalty, max-tokens, seed\n"
    "  /bye             ends the conversation, as the end of input does\n"
    "  \"\"\"              begins and ends a message of several lines\n"
    "  Ctrl-C           stops an answer\n";

// Runs a line that begins with a slash. False: it failed.
static bool run_slash_command(model *m, json_t *messages, const char *line) {
    if (strcmp(line, "/clear") == 0) {
        run_clear_messages(messages, false);
    } else if (strncmp(line, "/system ", 8) == 0) {
        run_clear_messages(messages, true);
        json_array_append_new(messages, run_make_message("system", line + 8, strlen(line + 8)));
    } else if (strcmp(line, "/again") == 0) {
        return run_regenerate(m, messages);
    } else if (strncmp(line, "/set", 4) == 0 && (!line[4] || line[4] == ' ')) {
        run_set_option(m, line + 4);
    } else {
        if (strcmp(line, "/help") != 0 && strcmp(line, "/?") != 0)
            printf("there is no %s\n", printable(line));
        fputs(help, stdout);
    }
    return true;
}

// Waits for input; false: Ctrl-C was pressed. Signals are blocked between the check of `interrupted` and
// ppoll; otherwise one that arrives in between would not end the wait.
static bool run_wait_for_input(void) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    sigset_t run_ask, before;
    sigemptyset(&run_ask);
    sigaddset(&run_ask, SIGINT);
    sigprocmask(SIG_BLOCK, &run_ask, &before);
    while (!interrupted && ppoll(&input, 1, NULL, &before) < 0) continue;
    sigprocmask(SIG_SETMASK, &before, NULL);
    return !interrupted;
}

// Reads a line of input, or everything up to the next """ if it begins with one. Returns the number of
// bytes; -1: end of input.
static ssize_t run_read_input(char **text, size_t *cap) {
    ssize_t n = getline(text, cap, stdin);
    if (n > 0 && (*text)[n - 1] == '\n') (*text)[--n] = '\0';
    if (n < 3 || strncmp(*text, "\"\"\"", 3) != 0) return n;
    char *all = NULL, *line = NULL;
    size_t all_n = 0, line_cap = 0;
    FILE *to = open_memstream(&all, &all_n);
    if (!to) return -1;
    const char *piece = *text + 3;
    for (const char *close;; piece = line) {
        close = strstr(piece, "\"\"\"");
        fwrite(piece, 1, close ? (size_t)(close - piece) : strlen(piece), to);
        if (piece == *text + 3 && !close) fputc('\n', to);
        if (close || getline(&line, &line_cap, stdin) < 0) break;
    }
    fclose(to);
    free(line);
    free(*text);
    *text = all;
    *cap = all_n + 1;
    return (ssize_t)all_n;
}

static int run_conversation(model *m, const char *system) {
    json_t *messages = json_array();
    char *line = NULL;
    size_t cap = 0;
    int status = EXIT_DONE;
    if (system) json_array_append_new(messages, run_make_message("system", system, strlen(system)));
    if (m->terminal) puts("/help lists the commands.");
    m->is_interactive = true;
    for (;;) {
        interrupted = 0;
        fputs("> ", stdout);
        if (!flush_output()) break;
        const ssize_t n = run_wait_for_input() ? run_read_input(&line, &cap) : -1;
        if (n < 0 || strcmp(line, "/bye") == 0) {
            if (n < 0) putchar('\n');
            if (interrupted) status = EXIT_INTERRUPTED;
            break;
        }
        const bool ok = !n               ? true
                        : line[0] == '/' ? run_slash_command(m, messages, line)
                                         : run_ask(m, messages, line, (size_t)n);
        if (ok || !ct_failed()) continue; // the error was printed; the next input may succeed
        status = report_error();
        if (ct_error_code() != CT_E_ARGUMENT && ct_error_code() != CT_E_DATA) break;
        ct_error_clear();
        status = EXIT_DONE;
    }
    free(line);
    json_decref(messages);
    return status;
}

static int run_single(model *m, const char *prompt, const char *system) {
    char *input = NULL;
    size_t cap = 0;
    ssize_t n = prompt ? (ssize_t)strlen(prompt) : getdelim(&input, &cap, '\0', stdin);
    const char *text = prompt ? prompt : n < 0 ? "" : input;
    if (n < 0) n = 0;
    bool ok;
    if (m->is_chat) {
        json_t *messages = json_array();
        if (system)
            json_array_append_new(messages, run_make_message("system", system, strlen(system)));
        ok = run_ask(m, messages, text, (size_t)n);
        json_decref(messages);
    } else {
        m->pending_text = text;
        m->pending_n = (size_t)n;
        ok = run_generate(m, text, (size_t)n);
    }
    free(input);
    if (interrupted) return EXIT_INTERRUPTED;
    return ok ? EXIT_DONE : ct_failed() ? report_error() : EXIT_FAILED;
}

static bool run_load_model(model *m, const char *name, int64_t context, bool raw,
                           ct_dtype activations) {
    m->is = ct_pretrained_load(name, .activations = activations);
    if (!m->is) return false;
    m->engine = ct_engine_new(m->is->lm, .tokenizer = m->is->tokenizer, .max_sequences = 1,
                              .context = context);
    m->context = context ? context : ct_lm_info(m->is->lm).default_context;
    m->is_chat = m->is->chat && !raw;
    if (m->engine) warn_unsupported_generation(name, m->is->unsupported_generation_keys);
    return m->engine != NULL;
}

// Options on the command line override those of the model's files.
static void run_apply_options(model *m, const ct_lm_sampling *given, ct_num min_p, ct_num seed) {
    m->sampling = m->is->sampling;
    if (given->temperature.given) m->sampling.temperature = given->temperature;
    if (given->top_k) m->sampling.top_k = given->top_k;
    if (given->top_p.given) m->sampling.top_p = given->top_p;
    if (given->repetition_penalty.given) m->sampling.repetition_penalty = given->repetition_penalty;
    if (min_p.given) m->sampling.min_p = min_p.value;
    m->sampling.seed = (uint64_t)seed.value;
}

static const char what_it_does[] =
    "Generates text with a published model: MODEL is its Hugging Face folder, a GGUF file, or\n"
    "ORG/NAME that cotan pull downloaded. With a chat template it answers --prompt, or standard\n"
    "input, and on a terminal it runs a conversation until /bye or the end of input (/help lists\n"
    "the commands); without one, or with --raw, it completes the text. Reasoning is shown on a\n"
    "terminal only. Equal seeds give equal text. Ctrl-C stops an answer.\n";

int run_run(int argc, char **argv) {
    model m = {.terminal = isatty(STDOUT_FILENO) == 1, .length = 512};
    const char *name, *prompt = NULL, *system = NULL;
    ct_lm_sampling given = {0};
    ct_num seed = {0}, min_p = {0};
    bool raw = false;
    int64_t context = 0;
    machine on_machine = {0};
    int activations = 0, status;
    opt options[] = {
        {"prompt", OPT_STRING, "TEXT", "prompt to complete or to answer (standard input)",
         .out = &prompt},
        {"system", OPT_STRING, "TEXT", "system message", .out = &system},
        {"raw", OPT_FLAG, NULL, "completes the prompt as it is, without the chat template",
         .out = &raw},
        {"max-tokens", OPT_INT, "N", "maximum number of generated tokens (512)", 1, 1e9,
         .out = &m.length},
        {"stop", OPT_STRING, "TEXT", "stop string", .out = &m.stop},
        {"temperature", OPT_REAL, "X", "0: greedy; above 1: more random (the model's, or 1)", 0,
         1000, .out = &given.temperature},
        {"top-k", OPT_INT, "N", "samples from the N most likely tokens (the model's, or all)", 1,
         1e9, .out = &given.top_k},
        {"top-p", OPT_REAL, "P",
         "samples from the most likely tokens with total probability P (the model's, or 1)", 0, 1,
         .out = &given.top_p},
        {"min-p", OPT_REAL, "P",
         "samples from tokens at least P times as likely as the most likely one (0)", 0, 1,
         .out = &min_p},
        {"repetition-penalty", OPT_REAL, "X",
         "above 1: tokens that the text has become less likely (the model's, or 1)", 0.01, 100,
         .out = &given.repetition_penalty},
        {"seed", OPT_OPTIONAL_INT, "N", "of the draws (0)", 0, 9e15, .out = &seed},
        {"context", OPT_INT, "N",
         "maximum number of tokens of a conversation (the model's default, at most 8192)", 2, 1e9,
         .out = &context},
        activations_option(&activations),
        {"verbose", OPT_FLAG, NULL, "prints timings after each answer", .out = &m.verbose},
        MACHINE_OPTIONS(on_machine),
    };
    command c = {
        .name = "run",
        .usage = "MODEL [options]",
        .operand = "MODEL",
        .text = what_it_does,
        .examples = "  cotan pull HuggingFaceTB/SmolLM2-135M-Instruct\n"
                    "  cotan run HuggingFaceTB/SmolLM2-135M-Instruct\n"
                    "  cotan run my-model --prompt \"Why is the sky blue?\" --temperature 0\n"
                    "  cotan run my-model --raw <story.txt\n",
        .opts = options,
        .n = sizeof options / sizeof *options,
    };
    if (!options_parse(&c, argc, argv, &name, &status)) return status;
    if (!machine_apply(&on_machine, c.name, &status)) return status;
    if (!run_load_model(&m, name, context, raw, activations_dtype(activations))) {
        status = report_error();
    } else {
        run_install_signal_handler();
        run_apply_options(&m, &given, min_p, seed);
        const bool asked = !prompt && isatty(STDIN_FILENO) == 1;
        if (asked && !m.is_chat)
            fprintf(stderr, "cotan: %s%s: type a prompt, then Ctrl-D\n", name,
                    raw ? "" : " has no chat template");
        status = asked && m.is_chat ? run_conversation(&m, system) : run_single(&m, prompt, system);
    }
    ct_engine_free(m.engine);
    ct_pretrained_free(m.is);
    return status;
}
