// cotan embed: vectors of texts, their ranking by a query, and classification.
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cotan/embed.h>
#include <cotan/engine.h>
#include <cotan/io.h>
#include <cotan/nn.h>

#include "cli.h"

typedef struct embedding {
    ct_pretrained *model;
    ct_lm_text *texts; // (n), followed by the query
    size_t n;
    float *vectors; // (n, width); for a classifier scores (n, labels)
    const char *query, *out;
    int64_t top, labels; // labels 0: the model computes vectors
    bool json, classify, overwrite;
    const char
        *source; // source of the texts, one per line; NULL: they are words of the command line
    ct_dtype activations;
    ct_embed_options options;
} embedding;

static void embed_on_progress(int64_t done, int64_t all, void *user) {
    (void)user;
    progress_show("embed", done, all);
}

static int embed_print_vectors(const embedding *e) {
    const int64_t width = e->model->width;
    for (size_t i = 0; i < e->n; i++) {
        json_t *own = json_stringn_nocheck(e->texts[i].s, e->texts[i].n);
        char *text = own ? json_dumps(own, JSON_ENCODE_ANY) : NULL; // NULL: not UTF-8
        json_decref(own);
        printf("{\"index\": %zu, \"text\": %s, \"embedding\": [", i, text ? text : "null");
        free(text);
        for (int64_t k = 0; k < width; k++)
            printf("%s%.9g", k ? ", " : "", (double)e->vectors[i * (size_t)width + (size_t)k]);
        puts("]}");
    }
    return EXIT_DONE;
}

static bool embed_ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static int embed_write_vectors(const embedding *e) {
    CT_SCOPE;
    const ct_ints sizes = CT_DIMS((int64_t)e->n, e->model->width);
    ct_tensor all = ct_from(e->vectors, CT_F32, sizes);
    bool ok;
    if (embed_ends_with(e->out, ".npy")) {
        ok = ct_save_npy(e->out, all);
    } else {
        ct_params *set = ct_params_new();
        ct_assign(ct_param(set, "embeddings", CT_F32, sizes), all);
        ok = ct_params_save(set, e->out);
        ct_params_free(set);
    }
    if (!ok) return report_error();
    printf("%s: %zu vectors of %lld numbers, from %lld tokens\n", printable(e->out), e->n,
           (long long)e->model->width, (long long)*e->options.n_tokens);
    return EXIT_DONE;
}

// ----------------------------------------------------------------------------------------------- rank

typedef struct ranked {
    double score;
    size_t index;
} ranked;
static int embed_compare_scores(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->index < y->index ? -1 : x->index > y->index;
}

double cosine_similarity(const float *a, const float *b, int64_t n) {
    double both = 0, first = 0, second = 0;
    for (int64_t k = 0; k < n; k++) {
        both += (double)a[k] * (double)b[k];
        first += (double)a[k] * (double)a[k];
        second += (double)b[k] * (double)b[k];
    }
    const double length = sqrt(first) * sqrt(second);
    return length > 0 ? both / length : 0;
}

static int embed_rank(const embedding *e) {
    const size_t width = (size_t)e->model->width;
    ranked *list = malloc((e->n + 1) * sizeof *list);
    if (!list) return usage_error("embed: out of memory");
    for (size_t i = 0; i < e->n; i++)
        list[i] =
            (ranked){e->labels ? (double)e->vectors[i]
                               : cosine_similarity(e->vectors + i * width,
                                                   e->vectors + e->n * width, e->model->width),
                     i};
    qsort(list, e->n, sizeof *list, embed_compare_scores);
    for (size_t i = 0; i < e->n && (!e->top || i < (size_t)e->top); i++) {
        const ct_lm_text *t = &e->texts[list[i].index];
        if (e->json) {
            json_t *one = json_pack("{s:f, s:I, s:s%}", "score", list[i].score, "index",
                                    (json_int_t)list[i].index, "text", t->s, t->n);
            if (one) json_dumpf(one, stdout, 0);
            json_decref(one);
        } else {
            printf("%7.4f  ", list[i].score);
            put_escaped(stdout, t->s, t->n, "         ");
        }
        putchar('\n');
    }
    free(list);
    return EXIT_DONE;
}

// -------------------------------------------------------------------------------------------- classes

static int embed_print_labels(const embedding *e) {
    char name[256];
    for (size_t i = 0; i < e->n; i++) {
        const ct_lm_text *t = &e->texts[i];
        const float *scores = e->vectors + i * (size_t)e->labels;
        json_t *one = json_object();
        int64_t best = 0;
        for (int64_t k = 0; k < e->labels; k++) {
            ct_lm_label(e->model->lm, k, name, sizeof name);
            json_object_set_new(one, name, json_real((double)scores[k]));
            if (scores[k] > scores[best]) best = k;
        }
        if (e->json) {
            json_t *line = json_pack("{s:I, s:s%, s:O}", "index", (json_int_t)i, "text", t->s, t->n,
                                     "scores", one);
            if (line) json_dumpf(line, stdout, 0);
            json_decref(line);
        } else {
            ct_lm_label(e->model->lm, best, name, sizeof name);
            printf("%7.4f  %-12s  ", (double)scores[best], printable(name));
            put_escaped(stdout, t->s, t->n, "                       ");
        }
        json_decref(one);
        putchar('\n');
    }
    return EXIT_DONE;
}

// Computes scores of texts, or of how well each text matches the query.
static int embed_classify(embedding *e) {
    if (e->query && e->labels != 1)
        return usage_error("embed: %s has %lld classes; --rank needs a model with one label, or an "
                           "embedding model",
                           printable(e->model->path), (long long)e->labels);
    e->vectors = malloc((e->n * (size_t)e->labels + 1) * sizeof *e->vectors);
    if (!e->vectors) return usage_error("embed: out of memory");
    for (size_t i = 0; e->query && i < e->n; i++) {
        e->texts[i].text_pair = e->texts[i].s;
        e->texts[i].n_text_pair = e->texts[i].n;
        e->texts[i].s = e->query;
        e->texts[i].n = strlen(e->query);
    }
    progress_watch_kernels(true);
    if (!ct_lm_classify_with(e->model->lm, e->model->tokenizer, e->texts, e->n, e->vectors,
                             e->options))
        return report_error();
    progress_watch_kernels(false);
    for (size_t i = 0; e->query && i < e->n; i++)
        e->texts[i] = (ct_lm_text){.s = e->texts[i].text_pair, .n = e->texts[i].n_text_pair};
    if (!e->query) ct_lm_class_probabilities(e->model->lm, e->vectors, e->n);
    return e->query ? embed_rank(e) : embed_print_labels(e);
}

// ------------------------------------------------------------------------------------------------ all

// Adds each line as a text, also empty lines, so that vectors can be matched to lines by number.
static bool embed_add_lines(embedding *e, const char *s, size_t n) {
    for (const char *at = s, *all = s + n, *stop; at < all; at = stop + 1) {
        stop = memchr(at, '\n', (size_t)(all - at));
        if (!stop) stop = all;
        size_t length = (size_t)(stop - at);
        if (length && at[length - 1] == '\r') length--;
        if ((e->n & (e->n + 1)) == 0) { // leaves space for the query after them
            ct_lm_text *more = realloc(e->texts, (2 * e->n + 4) * sizeof *more);
            if (!more) return false;
            e->texts = more;
        }
        e->texts[e->n++] = (ct_lm_text){.s = at, .n = length};
    }
    return true;
}

// Reports a line that has no tokens, and thus no vector. Returns true if there is none, or if the texts
// are not lines.
static bool embed_check_empty_lines(const embedding *e) {
    ct_encoding nothing = {0};
    size_t i = 0;
    while (i < e->n && e->texts[i].n) i++;
    if (!e->source || i == e->n) return true;
    const bool begins =
        !ct_tokenizer_encode(e->model->tokenizer, "", 0, &nothing, .add_special = true) ||
        nothing.n;
    ct_encoding_free(&nothing);
    if (begins) return true;
    usage_error("embed: line %zu of %s is empty, and %s has no token that begins a text: there is "
                "nothing to make a vector of",
                i + 1, printable(e->source), printable(e->model->path));
    return false;
}

static int embed_run(embedding *e, int pooling, bool raw) {
    ct_pooling_config how;
    int64_t tokens = 0;
    e->labels = ct_lm_info(e->model->lm).labels;
    if (e->classify && !e->labels)
        return usage_error("embed: %s has no classification head", printable(e->model->path));
    if (e->labels && (e->classify || e->query) && (pooling >= 0 || raw))
        return usage_error("embed: --%s is for vectors, which %s does not make for that",
                           raw ? "no-normalize" : "pooling", printable(e->model->path));
    if (!(e->labels && e->query) && !embed_check_empty_lines(e)) return EXIT_USAGE;
    if (e->labels && (e->classify || e->query)) return embed_classify(e);
    e->labels = 0;
    if (!ct_pooling_config_read(e->model->path, e->model->lm, &how)) return report_error();
    if (pooling >= 0) how.pooling = (ct_pooling)(pooling + CT_POOL_MEAN);
    if (raw) how.normalised = false;
    const size_t n = e->n + (e->query != NULL);
    if (e->query) e->texts[e->n] = (ct_lm_text){.s = e->query, .n = strlen(e->query)};
    e->vectors = malloc((n * (size_t)e->model->width + 1) * sizeof *e->vectors);
    if (!e->vectors) return usage_error("embed: out of memory");
    e->options.pooling = how;
    e->options.n_tokens = &tokens;
    progress_watch_kernels(true);
    if (!ct_lm_embed_with(e->model->lm, e->model->tokenizer, e->texts, n, e->vectors, e->options))
        return report_error();
    progress_watch_kernels(false);
    return e->query ? embed_rank(e) : e->out ? embed_write_vectors(e) : embed_print_vectors(e);
}

// words: MODEL and n_words - 1 texts after it.
static int embed_load_and_run(embedding *e, char **words, size_t n_words, const char *file,
                              int pooling, bool raw) {
    char *input = NULL;
    size_t n = 0;
    e->texts = malloc((n_words + 4) * sizeof *e->texts);
    if (!e->texts) return usage_error("embed: out of memory");
    for (size_t i = 1; i < n_words; i++)
        e->texts[e->n++] = (ct_lm_text){.s = words[i], .n = strlen(words[i])};
    int status = EXIT_DONE;
    if (n_words == 1 && !(input = read_file_or_stdin("embed", file, &n))) status = EXIT_FAILED;
    if (input) e->source = file ? file : "standard input";
    if (input && !embed_add_lines(e, input, n)) status = usage_error("embed: out of memory");
    if (status == EXIT_DONE && !e->n)
        status = usage_error("embed: %s has no lines", file ? printable(file) : "standard input");
    if (status == EXIT_DONE) {
        e->model = ct_pretrained_load(words[0], .activations = e->activations);
        status = e->model ? embed_run(e, pooling, raw) : report_error();
    }
    ct_pretrained_free(e->model);
    free(e->vectors);
    free(e->texts);
    free(input);
    return status;
}

static int embed_check_options(const embedding *e, const command *c, const char *file) {
    if (c->n_operands > 1 && file)
        return usage_error("embed: texts are given as words or by --file, not both");
    if (e->query && e->out) return usage_error("embed: --out is for vectors, not for --rank");
    if (e->classify && (e->query || e->out))
        return usage_error("embed: --classify and --%s are two things", e->query ? "rank" : "out");
    if (!e->query && (e->top || (e->json && !e->classify)))
        return usage_error("embed: --%s is for --rank%s", e->top ? "top" : "json",
                           e->top ? "" : " and --classify");
    if (e->out && !embed_ends_with(e->out, ".npy") && !embed_ends_with(e->out, ".safetensors"))
        return usage_error("embed: --out is a file .npy or .safetensors, not \"%s\"",
                           printable(e->out));
    if (e->overwrite && !e->out) return usage_error("embed: --overwrite needs --out");
    if (e->out && !e->overwrite && access(e->out, F_OK) == 0)
        return usage_error("embed: %s is there and would be lost\n  hint: --overwrite replaces it, "
                           "another --out keeps it",
                           printable(e->out));
    return EXIT_DONE;
}

int run_embed(int argc, char **argv) {
    static const char *const poolings[] = {"mean", "cls", "last", "max", "sqrt", "weighted", NULL};
    embedding e = {.options.progress = embed_on_progress};
    const char *name, *file = NULL;
    int pooling = -1, activations = 0, status;
    bool raw = false;
    machine on_machine = {0};
    opt options[] = {
        {"file", OPT_PATH, "FILE", "texts, one a line (standard input)", .out = &file},
        {"rank", OPT_STRING, "QUERY", "the texts by how much they are like this one, best first",
         .out = &e.query},
        {"top", OPT_INT, "N", "of --rank: only the first N", 1, 1e15, .out = &e.top},
        {"classify", OPT_FLAG, NULL, "the label of each text and its probability",
         .out = &e.classify},
        {"json", OPT_FLAG, NULL, "of --rank and --classify: a JSON object a line", .out = &e.json},
        {"out", OPT_PATH, "FILE", "writes the vectors there: .npy, or .safetensors", .out = &e.out},
        {"overwrite", OPT_FLAG, NULL, "replace the file of --out", .out = &e.overwrite},
        {"pooling", OPT_CHOICE, "HOW", "mean, cls, last, max, sqrt or weighted (the model's own)",
         .choices = poolings, .out = &pooling},
        {"no-normalize", OPT_FLAG, NULL, "vectors as they are, not of length 1", .out = &raw},
        {"truncate", OPT_FLAG, NULL, "leaves out the end of texts that are too long",
         .out = &e.options.truncate},
        {"batch-tokens", OPT_INT, "N", "tokens of a pass at most (2048)", 1, 1 << 24,
         .out = &e.options.batch_tokens},
        activations_option(&activations),
        MACHINE_OPTIONS(on_machine),
    };
    command c = {
        .name = "embed",
        .usage = "MODEL [TEXT...] [options]",
        .operand = "MODEL",
        .text =
            "Computes an embedding of each text: those of similar meaning are close. The texts\n"
            "are arguments, or lines of --file or standard input: one vector per line, also of\n"
            "empty ones. MODEL is a folder, a GGUF file, or ORG/NAME that cotan pull downloaded:\n"
            "an encoder (bert ...) or a decoder. Pooling is that of the folder (modules.json of\n"
            "sentence-transformers), or else the mean of an encoder's tokens and the last token\n"
            "of a decoder, and vectors have length 1. Vectors are printed as JSON, one per line.\n"
            "With a classification model (...ForSequenceClassification) --classify prints the\n"
            "label, and --rank encodes each text together with the query, as rerankers do.\n",
        .examples = "  cotan embed my-encoder \"a text\" \"another one\"\n"
                    "  cotan embed my-encoder --file lines.txt --out vectors.npy\n"
                    "  cotan embed my-encoder --file lines.txt --rank \"what is sought\" --top 5\n"
                    "  cotan embed my-reranker --file lines.txt --rank \"what is sought\" --top 5\n"
                    "  cotan embed my-sentiments --classify \"I like it.\"\n",
        .opts = options,
        .n = sizeof options / sizeof *options,
        .many_operands = true,
    };
    if (!options_parse(&c, argc, argv, &name, &status)) return status;
    e.activations = activations_dtype(activations);
    status = embed_check_options(&e, &c, file);
    if (status == EXIT_DONE && machine_apply(&on_machine, c.name, &status))
        status = embed_load_and_run(&e, argv, c.n_operands, file, pooling, raw);
    return status;
}
