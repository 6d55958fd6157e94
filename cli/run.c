// cotan run: a published model goes on with a text, or answers in a conversation.
#define _GNU_SOURCE
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cotan/chat.h>
#include <cotan/hub.h>
#include <cotan/lm.h>
#include <cotan/tokenizer.h>

#include "cli.h"

enum { MOST_ENDS = 64, LONGEST_PATH = 4096 };

typedef struct model {
    ct_lm *lm;
    ct_tokenizer *tokenizer;
    ct_chat_template *chat; // NULL: it goes on with texts
    ct_decoder *decoder;
    int32_t ends[MOST_ENDS];
    size_t n_ends;
    ct_lm_sampling sampling;
    int64_t length;
    bool terminal;
    json_t *said; // of an answer: its text, in pieces
} model;

static void show(const model *m, const char *text, size_t n) {
    if (m->terminal) // what a model writes must not steer a terminal
        put_visible(stdout, text, n, "");
    else
        fwrite(text, 1, n, stdout);
    if (m->said && n) json_array_append_new(m->said, json_stringn_nocheck(text, n));
}

static bool hear(int32_t token, double log_probability, void *user) {
    model *m = user;
    size_t n;
    (void)log_probability;
    const char *text = ct_decoder_next(m->decoder, token, &n);
    if (!text) return false;
    show(m, text, n);
    return flush_output();
}

// `given` behind what the file puts in front of a text, or, where a template has done that, as it is.
static bool write_on(model *m, const char *given, size_t n) {
    ct_encoding e = {0};
    bool ok = ct_tokenizer_encode(m->tokenizer, given, n, &e, .add_special = !m->chat) &&
              ct_lm_generate(.lm = m->lm, .prompt = e.ids, .n_prompt = e.n, .most = m->length,
                             .ends = m->ends, .n_ends = m->n_ends, .sampling = m->sampling,
                             .token = hear, .user = m);
    ct_encoding_free(&e);
    size_t left;
    const char *rest = ct_decoder_end(m->decoder, &left);
    if (rest) show(m, rest, left);
    putchar('\n');
    return flush_output() && ok && !ct_failed();
}

static json_t *message(const char *role, const char *content, size_t n) {
    return json_pack("{s:s, s:s%}", "role", role, "content", content, n);
}

// Adds what the user says to the conversation, and the answer behind it.
static bool answer(model *m, json_t *messages, const char *text, size_t n) {
    size_t length = 0;
    json_array_append_new(messages, message("user", text, n));
    char *all = json_dumps(messages, 0);
    if (!all) return false;
    const char *prompt = ct_chat_render(
        m->chat, all, .variables = "{\"add_generation_prompt\": true}", .length = &length);
    free(all);
    m->said = json_array();
    const bool ok = prompt && write_on(m, prompt, length);
    char *said = NULL;
    size_t said_n = 0;
    FILE *joined = open_memstream(&said, &said_n);
    for (size_t i = 0; joined && i < json_array_size(m->said); i++) {
        const json_t *piece = json_array_get(m->said, i);
        fwrite(json_string_value(piece), 1, json_string_length(piece), joined);
    }
    if (joined) fclose(joined);
    if (said) json_array_append_new(messages, message("assistant", said, said_n));
    free(said);
    json_decref(m->said);
    m->said = NULL;
    return ok;
}

static int converse(model *m, const char *system) {
    json_t *messages = json_array();
    char *line = NULL;
    size_t cap = 0;
    int status = EXIT_DONE;
    if (system) json_array_append_new(messages, message("system", system, strlen(system)));
    for (;;) {
        fputs("> ", stdout);
        if (!flush_output()) break;
        ssize_t n = getline(&line, &cap, stdin);
        if (n < 0 || strcmp(line, "/bye\n") == 0) break;
        if (n && line[n - 1] == '\n') n--;
        if (!n) continue;
        if (!answer(m, messages, line, (size_t)n)) {
            status = fail();
            break;
        }
    }
    free(line);
    json_decref(messages);
    return status;
}

static int run_once(model *m, const char *prompt, const char *system) {
    char *input = NULL;
    size_t cap = 0;
    ssize_t n = prompt ? (ssize_t)strlen(prompt) : getdelim(&input, &cap, '\0', stdin);
    const char *text = prompt ? prompt : n < 0 ? "" : input;
    if (n < 0) n = 0;
    bool ok;
    if (m->chat) {
        json_t *messages = json_array();
        if (system) json_array_append_new(messages, message("system", system, strlen(system)));
        ok = answer(m, messages, text, (size_t)n);
        json_decref(messages);
    } else {
        show(m, text, (size_t)n);
        ok = write_on(m, text, (size_t)n);
    }
    free(input);
    return ok ? EXIT_DONE : fail();
}

// A folder that is there, or ORG/NAME in the Hub's cache.
static bool find(const char *name, char path[LONGEST_PATH]) {
    struct stat st;
    if (stat(name, &st)) return ct_hub_find(name, NULL, path, LONGEST_PATH);
    snprintf(path, LONGEST_PATH, "%s", name);
    return true;
}

static bool load(model *m, const char *name, bool raw) {
    char path[LONGEST_PATH];
    int64_t ends[MOST_ENDS];
    if (!find(name, path)) return false;
    m->tokenizer = ct_tokenizer_load(path);
    m->lm = m->tokenizer ? ct_lm_load(path, .trainable = false) : NULL;
    m->decoder = m->lm ? ct_decoder_new(m->tokenizer, true) : NULL;
    if (!m->decoder) return false;
    if (!raw) m->chat = ct_chat_template_load(path);
    if (!m->chat && !raw && ct_error_code() != CT_E_FILE) return false;
    if (!m->chat) ct_error_clear(); // there is no template: it was not made for conversations
    m->n_ends = ct_tokenizer_ends(m->tokenizer, ends, MOST_ENDS);
    if (m->n_ends > MOST_ENDS) m->n_ends = MOST_ENDS;
    for (size_t i = 0; i < m->n_ends; i++) m->ends[i] = (int32_t)ends[i];
    return true;
}

int run_run(int argc, char **argv) {
    model m = {.terminal = isatty(STDOUT_FILENO) == 1, .length = 512};
    const char *name, *prompt = NULL, *system = NULL;
    ct_num seed = {0}, min_p = {0};
    bool raw = false;
    machine on_machine;
    opt on[MACHINE_OPTIONS];
    int status;
    list_machine_options(&on_machine, on);
    opt options[] = {
        {"prompt", OPT_TEXT, "TEXT", "what to go on with, or to answer (standard input)",
         .out = &prompt},
        {"system", OPT_TEXT, "TEXT", "what the model is told before the conversation",
         .out = &system},
        {"raw", OPT_FLAG, NULL, "goes on with the text, without a chat template", .out = &raw},
        {"length", OPT_WHOLE, "N", "tokens to write at most (512)", 1, 1e9, .out = &m.length},
        {"temperature", OPT_REAL, "X", "0: the likeliest token; above 1: wild (1)", 0, 1000,
         .out = &m.sampling.temperature},
        {"top-k", OPT_WHOLE, "N", "draws among the N likeliest tokens (all)", 1, 1e9,
         .out = &m.sampling.top_k},
        {"top-p", OPT_REAL, "P", "draws among the likeliest that have P together (1)", 0, 1,
         .out = &m.sampling.top_p},
        {"min-p", OPT_REAL, "P", "draws among those P times as likely as the likeliest (0)", 0, 1,
         .out = &min_p},
        {"repetition-penalty", OPT_REAL, "X",
         "above 1: tokens that the text has become less likely (1)", 0.01, 100,
         .out = &m.sampling.repetition_penalty},
        {"seed", OPT_COUNT, "N", "of the draws (0)", 0, 9e15, .out = &seed},
        on[0],
        on[1],
        on[2],
    };
    command c = {
        .name = "run",
        .usage = "MODEL [options]",
        .operand = "MODEL",
        .text =
            "Lets a published model write: MODEL is its folder as Hugging Face has it, or "
            "ORG/NAME\n"
            "that cotan pull brought. With a chat template it answers --prompt, or standard "
            "input,\n"
            "and on a terminal holds a conversation, until /bye or the end of input; without one,\n"
            "and with --raw, it goes on with the text. Equal seeds give equal text.\n",
        .examples = "  cotan pull HuggingFaceTB/SmolLM2-135M-Instruct\n"
                    "  cotan run HuggingFaceTB/SmolLM2-135M-Instruct\n"
                    "  cotan run my-model --prompt \"Why is the sky blue?\" --temperature 0\n"
                    "  cotan run my-model --raw <story.txt\n",
        .opts = options,
        .n = sizeof options / sizeof *options,
    };
    if (!parse(&c, argc, argv, &name, &status)) return status;
    m.sampling.seed = (uint64_t)seed.value;
    m.sampling.min_p = min_p.value;
    if (!use_machine(&on_machine, c.name, &status)) return status;
    if (!load(&m, name, raw))
        status = fail();
    else if (!prompt && m.chat && isatty(STDIN_FILENO) == 1)
        status = converse(&m, system);
    else
        status = run_once(&m, prompt, system);
    ct_decoder_free(m.decoder);
    ct_chat_template_free(m.chat);
    ct_tokenizer_free(m.tokenizer);
    ct_lm_free(m.lm);
    return status;
}
