// cotan eval: perplexity and multiple-choice accuracy of a published model.
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include <cotan/engine.h>
#include <cotan/eval.h>

#include "cli.h"

typedef struct evaluation {
    ct_pretrained *model;
    paths texts, tasks;
    ct_eval_options options;
    bool json;
    const char *current_file; // the file that is being evaluated
    json_t *out;
} evaluation;

static void eval_on_progress(int64_t done, int64_t all, void *user) {
    progress_show(((const evaluation *)user)->current_file, done, all);
}

static json_t *eval_json_number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

// ---------------------------------------------------------------------------------------- perplexity

static void eval_print_perplexity(evaluation *e, const char *name, const ct_perplexity *p) {
    const double l = -p->log_likelihood, tokens = exp(l / (double)p->tokens),
                 words = exp(l / (double)p->words), bytes = exp(l / (double)p->bytes),
                 bits = l / (double)p->bytes / log(2);
    if (e->json) {
        json_t *one = json_object();
        json_object_set_new(one, "file", json_string(name));
        json_object_set_new(one, "log_likelihood", eval_json_number(p->log_likelihood));
        json_object_set_new(one, "tokens", json_integer(p->tokens));
        json_object_set_new(one, "words", json_integer(p->words));
        json_object_set_new(one, "bytes", json_integer(p->bytes));
        json_object_set_new(one, "token_perplexity", eval_json_number(tokens));
        json_object_set_new(one, "word_perplexity", eval_json_number(words));
        json_object_set_new(one, "byte_perplexity", eval_json_number(bytes));
        json_object_set_new(one, "bits_per_byte", eval_json_number(bits));
        json_array_append_new(json_object_get(e->out, "perplexity"), one);
    } else {
        printf("%-24s %10lld %10lld %11.4f %11.4g %11.4f %10.4f\n", printable(name),
               (long long)p->tokens, (long long)p->bytes, tokens, words, bytes, bits);
    }
}

static int eval_run_perplexity(evaluation *e) {
    ct_perplexity all = {0};
    if (!e->json)
        printf("%-24s %10s %10s %11s %11s %11s %10s\n", "perplexity of", "tokens", "bytes",
               "per token", "per word", "per byte", "bits/byte");
    for (size_t i = 0; i < e->texts.n; i++) {
        size_t n;
        ct_perplexity one = {0};
        e->current_file = e->texts.v[i];
        char *text = read_file_or_stdin("eval", e->current_file, &n);
        if (!text) return EXIT_FAILED;
        if (!n) {
            free(text);
            return usage_error("eval: %s is empty", printable(e->current_file));
        }
        progress_watch_kernels(true);
        const bool ok =
            ct_eval_perplexity_with(e->model->lm, e->model->tokenizer, text, n, &one, e->options);
        progress_watch_kernels(false);
        free(text);
        if (!ok) return report_error();
        eval_print_perplexity(e, e->current_file, &one);
        if (!flush_output()) return EXIT_FAILED;
        all.log_likelihood += one.log_likelihood;
        all.tokens += one.tokens, all.words += one.words, all.bytes += one.bytes;
    }
    if (e->texts.n > 1) eval_print_perplexity(e, "all", &all);
    return EXIT_DONE;
}

// ------------------------------------------------------------------------------------------- choices

static void eval_print_accuracy(double value, double error) {
    if (isfinite(error))
        printf(" %8.4f +- %.4f", value, error);
    else
        printf(" %8.4f %9s", value, "");
}

static void eval_print_choices(evaluation *e, const char *name,
                               const ct_multiple_choice_result *c) {
    if (e->json) {
        json_t *one = json_object();
        json_object_set_new(one, "file", json_string(name));
        json_object_set_new(one, "questions", json_integer(c->questions));
        json_object_set_new(one, "acc", eval_json_number(c->acc));
        json_object_set_new(one, "acc_stderr", eval_json_number(c->acc_stderr));
        json_object_set_new(one, "acc_norm", eval_json_number(c->acc_norm));
        json_object_set_new(one, "acc_norm_stderr", eval_json_number(c->acc_norm_stderr));
        json_object_set_new(one, "acc_bytes", eval_json_number(c->acc_bytes));
        json_object_set_new(one, "acc_bytes_stderr", eval_json_number(c->acc_bytes_stderr));
        json_array_append_new(json_object_get(e->out, "tasks"), one);
        return;
    }
    printf("%-24s %10lld", printable(name), (long long)c->questions);
    eval_print_accuracy(c->acc, c->acc_stderr);
    eval_print_accuracy(c->acc_norm, c->acc_norm_stderr);
    eval_print_accuracy(c->acc_bytes, c->acc_bytes_stderr);
    putchar('\n');
}

static int eval_run_tasks(evaluation *e) {
    if (!e->json)
        printf("%s%-24s %10s %18s %18s %18s\n", e->texts.n ? "\n" : "", "choices of", "questions",
               "acc", "acc_norm", "acc_bytes");
    for (size_t i = 0; i < e->tasks.n; i++) {
        ct_multiple_choice_result c;
        e->current_file = e->tasks.v[i];
        progress_watch_kernels(true);
        if (!ct_eval_multiple_choice_with(e->model->lm, e->model->tokenizer, e->current_file, &c,
                                          e->options))
            return report_error();
        progress_watch_kernels(false);
        eval_print_choices(e, e->current_file, &c);
        if (!flush_output()) return EXIT_FAILED;
    }
    return EXIT_DONE;
}

// ----------------------------------------------------------------------------------------------- all

static int eval_run(evaluation *e) {
    const int64_t own = e->model->context ? e->model->context : 2048;
    const int64_t context = e->options.context ? e->options.context : own;
    e->out = json_pack("{s:s, s:s, s:I, s:I, s:[], s:[]}", "model", e->model->path, "type",
                       e->model->type, "context", (json_int_t)context, "stride",
                       (json_int_t)(e->options.stride ? e->options.stride : context), "perplexity",
                       "tasks");
    int status = e->texts.n ? eval_run_perplexity(e) : EXIT_DONE;
    if (status == EXIT_DONE && e->tasks.n) status = eval_run_tasks(e);
    if (status == EXIT_DONE && e->json) {
        json_dumpf(e->out, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(e->out);
    return status;
}

int run_eval(int argc, char **argv) {
    evaluation e = {0};
    e.options = (ct_eval_options){.progress = eval_on_progress, .user = &e};
    const char *name;
    machine on_machine = {0};
    int activations = 0, status;
    opt options[] = {
        {"perplexity", OPT_PATHS, "FILE...", "how well it expects these texts (-: standard input)",
         .out = &e.texts},
        {"task", OPT_PATHS, "FILE...", "how many questions with choices it answers well",
         .out = &e.tasks},
        {"context", OPT_INT, "N", "tokens that it sees at once (the model's)", 2, 1e9,
         .out = &e.options.context},
        {"stride", OPT_INT, "N", "of perplexity: tokens that a window predicts (the context)", 1,
         1e9, .out = &e.options.stride},
        {"limit", OPT_INT, "N", "only the first N questions of each file", 1, 1e15,
         .out = &e.options.limit},
        {"batch-tokens", OPT_INT, "N", "tokens of a pass at most (2048)", 1, 1 << 24,
         .out = &e.options.batch_tokens},
        activations_option(&activations),
        {"json", OPT_FLAG, NULL, "the numbers as JSON, with all their digits", .out = &e.json},
        MACHINE_OPTIONS(on_machine),
    };
    command c = {
        .name = "eval",
        .usage = "MODEL --perplexity FILE... | --task FILE... [options]",
        .operand = "MODEL",
        .text =
            "Evaluates a published model (a folder, a GGUF file, or ORG/NAME that cotan pull\n"
            "downloaded), as lm-evaluation-harness does.\n"
            "\n"
            "--perplexity: the perplexity per word, byte and token; lower is better, and those\n"
            "per word and byte compare models with different tokenizers. A text longer than the\n"
            "context is split into windows; each token is predicted once, and with a smaller\n"
            "--stride it has more context.\n"
            "\n"
            "--task: each line of the file is a question as JSON, such as\n"
            "  {\"query\": \"The sky is\", \"choices\": [\"blue\", \"made of wood\"], \"gold\": "
            "0}\n"
            "acc is the fraction of questions whose right choice is the most likely continuation,\n"
            "acc_norm by log-likelihood per character, acc_bytes per byte.\n",
        .examples = "  cotan eval my-model --perplexity book.txt\n"
                    "  cotan eval my-model --perplexity *.txt --context 1024 --stride 256\n"
                    "  cotan eval my-model --task questions.jsonl --limit 100\n"
                    "  cotan eval my-model --task questions.jsonl --json >result.json\n",
        .opts = options,
        .n = sizeof options / sizeof *options,
    };
    if (!options_parse(&c, argc, argv, &name, &status)) return status;
    if (!e.texts.n && !e.tasks.n)
        return usage_error("eval: it needs --perplexity FILE or --task FILE; cotan eval --help");
    if (e.options.limit && !e.tasks.n) return usage_error("eval: --limit is for --task");
    if (e.options.stride && !e.texts.n) return usage_error("eval: --stride is for --perplexity");
    if (!machine_apply(&on_machine, c.name, &status)) return status;
    e.model = ct_pretrained_load(name, .activations = activations_dtype(activations));
    status = e.model ? eval_run(&e) : report_error();
    ct_pretrained_free(e.model);
    return status;
}
