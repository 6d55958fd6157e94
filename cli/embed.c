// cotan embed: texts as vectors, and which of them are like another.
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
    ct_lm_text *texts; // (n), and behind them the query
    size_t n;
    float *vectors; // (n, width); of a model with classes scores (n, labels)
    const char *query, *out;
    int64_t top, labels; // labels: 0: the model makes vectors
    bool json, classify, overwrite;
    const char *lines; // what the texts are lines of; NULL: they are words of the command line
    ct_embed_options o;
} embedding;

static void progress(int64_t done, int64_t all, void *user) {
    (void)user;
    show_progress("embed", done, all);
}

static int tell_vectors(const embedding *e) {
    const int64_t width = e->model->width;
    for (size_t i = 0; i < e->n; i++) {
        json_t *own = json_stringn_nocheck(e->texts[i].s, e->texts[i].n);
        char *text = own ? json_dumps(own, JSON_ENCODE_ANY) : NULL; // NULL: it is no UTF-8
        json_decref(own);
        printf("{\"index\": %zu, \"text\": %s, \"embedding\": [", i, text ? text : "null");
        free(text);
        for (int64_t k = 0; k < width; k++)
            printf("%s%.9g", k ? ", " : "", (double)e->vectors[i * (size_t)width + (size_t)k]);
        puts("]}");
    }
    return EXIT_DONE;
}

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static int write_vectors(const embedding *e) {
    CT_SCOPE;
    const ct_ints sizes = CT_DIMS((int64_t)e->n, e->model->width);
    ct_tensor all = ct_from(e->vectors, CT_F32, sizes);
    bool ok;
    if (ends_with(e->out, ".npy")) {
        ok = ct_save_npy(e->out, all);
    } else {
        ct_params *set = ct_params_new();
        ct_assign(ct_param(set, "embeddings", CT_F32, sizes), all);
        ok = ct_params_save(set, e->out);
        ct_params_free(set);
    }
    if (!ok) return fail();
    printf("%s: %zu vectors of %lld numbers, from %lld tokens\n", plain(e->out), e->n,
           (long long)e->model->width, (long long)*e->o.tokens);
    return EXIT_DONE;
}

// ----------------------------------------------------------------------------------------------- rank

typedef struct ranked {
    double score;
    size_t at;
} ranked;
static int best_first(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->at < y->at ? -1 : x->at > y->at;
}

// Cosine of the angle between two vectors.
static double similarity(const float *a, const float *b, int64_t n) {
    double both = 0, first = 0, second = 0;
    for (int64_t k = 0; k < n; k++) {
        both += (double)a[k] * (double)b[k];
        first += (double)a[k] * (double)a[k];
        second += (double)b[k] * (double)b[k];
    }
    const double length = sqrt(first) * sqrt(second);
    return length > 0 ? both / length : 0;
}

static int rank(const embedding *e) {
    const size_t width = (size_t)e->model->width;
    ranked *list = malloc((e->n + 1) * sizeof *list);
    if (!list) return refuse("embed: out of memory");
    for (size_t i = 0; i < e->n; i++)
        list[i] = (ranked){e->labels ? (double)e->vectors[i]
                                     : similarity(e->vectors + i * width, e->vectors + e->n * width,
                                                  e->model->width),
                           i};
    qsort(list, e->n, sizeof *list, best_first);
    for (size_t i = 0; i < e->n && (!e->top || i < (size_t)e->top); i++) {
        const ct_lm_text *t = &e->texts[list[i].at];
        if (e->json) {
            json_t *one = json_pack("{s:f, s:I, s:s%}", "score", list[i].score, "index",
                                    (json_int_t)list[i].at, "text", t->s, t->n);
            if (one) json_dumpf(one, stdout, 0);
            json_decref(one);
        } else {
            printf("%7.4f  ", list[i].score);
            put_visible(stdout, t->s, t->n, "         ");
        }
        putchar('\n');
    }
    free(list);
    return EXIT_DONE;
}

// -------------------------------------------------------------------------------------------- classes

static int tell_classes(const embedding *e) {
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
            printf("%7.4f  %-12s  ", (double)scores[best], plain(name));
            put_visible(stdout, t->s, t->n, "                       ");
        }
        json_decref(one);
        putchar('\n');
    }
    return EXIT_DONE;
}

// Scores of texts, or of how well each fits the query.
static int classify(embedding *e) {
    if (e->query && e->labels != 1)
        return refuse(
            "embed: %s tells %lld classes of texts apart; --rank takes a model of one, or "
            "one that makes vectors",
            plain(e->model->path), (long long)e->labels);
    e->vectors = malloc((e->n * (size_t)e->labels + 1) * sizeof *e->vectors);
    if (!e->vectors) return refuse("embed: out of memory");
    for (size_t i = 0; e->query && i < e->n; i++) {
        e->texts[i].second = e->texts[i].s;
        e->texts[i].n_second = e->texts[i].n;
        e->texts[i].s = e->query;
        e->texts[i].n = strlen(e->query);
    }
    if (!ct_lm_classify_with(e->model->lm, e->model->tokenizer, e->texts, e->n, e->vectors, e->o))
        return fail();
    for (size_t i = 0; e->query && i < e->n; i++)
        e->texts[i] = (ct_lm_text){.s = e->texts[i].second, .n = e->texts[i].n_second};
    if (!e->query) ct_lm_probabilities(e->model->lm, e->vectors, e->n);
    return e->query ? rank(e) : tell_classes(e);
}

// ------------------------------------------------------------------------------------------------ all

// Lines of what was read, each of which is a text, empty ones too: who joins vectors to lines counts them.
static bool add_lines(embedding *e, const char *s, size_t n) {
    for (const char *at = s, *all = s + n, *stop; at < all; at = stop + 1) {
        stop = memchr(at, '\n', (size_t)(all - at));
        if (!stop) stop = all;
        size_t length = (size_t)(stop - at);
        if (length && at[length - 1] == '\r') length--;
        if ((e->n & (e->n + 1)) == 0) { // room for the query behind them
            ct_lm_text *more = realloc(e->texts, (2 * e->n + 4) * sizeof *more);
            if (!more) return false;
            e->texts = more;
        }
        e->texts[e->n++] = (ct_lm_text){.s = at, .n = length};
    }
    return true;
}

// A text of no tokens has no vector, and its line is named. True: there is none, or it is no line.
static bool has_no_empty_line(const embedding *e) {
    ct_encoding nothing = {0};
    size_t i = 0;
    while (i < e->n && e->texts[i].n) i++;
    if (!e->lines || i == e->n) return true;
    const bool begins =
        !ct_tokenizer_encode(e->model->tokenizer, "", 0, &nothing, .add_special = true) ||
        nothing.n;
    ct_encoding_free(&nothing);
    if (begins) return true;
    refuse("embed: line %zu of %s is empty, and %s has no token that begins a text: there is "
           "nothing to make a vector of",
           i + 1, plain(e->lines), plain(e->model->path));
    return false;
}

static int embed(embedding *e, int pooling, bool raw) {
    ct_embedding how;
    int64_t tokens = 0;
    e->labels = ct_lm_look(e->model->lm).labels;
    if (e->classify && !e->labels)
        return refuse("embed: %s has no head that tells classes of texts apart",
                      plain(e->model->path));
    if (e->labels && (e->classify || e->query) && (pooling >= 0 || raw))
        return refuse("embed: --%s is for vectors, which %s does not make for that",
                      raw ? "raw" : "pooling", plain(e->model->path));
    if (!(e->labels && e->query) && !has_no_empty_line(e)) return EXIT_REFUSED;
    if (e->labels && (e->classify || e->query)) return classify(e);
    e->labels = 0;
    if (!ct_embedding_read(e->model->path, e->model->lm, &how)) return fail();
    if (pooling >= 0) how.pooling = (ct_pooling)(pooling + CT_POOL_MEAN);
    if (raw) how.normalised = false;
    const size_t n = e->n + (e->query != NULL);
    if (e->query) e->texts[e->n] = (ct_lm_text){.s = e->query, .n = strlen(e->query)};
    e->vectors = malloc((n * (size_t)e->model->width + 1) * sizeof *e->vectors);
    if (!e->vectors) return refuse("embed: out of memory");
    e->o.how = how;
    e->o.tokens = &tokens;
    if (!ct_lm_embed_with(e->model->lm, e->model->tokenizer, e->texts, n, e->vectors, e->o))
        return fail();
    return e->query ? rank(e) : e->out ? write_vectors(e) : tell_vectors(e);
}

// words: MODEL, and the texts behind it, n_words of them.
static int load_and_embed(embedding *e, char **words, size_t n_words, const char *file, int pooling,
                          bool raw) {
    char *input = NULL;
    size_t n = 0;
    e->texts = malloc((n_words + 4) * sizeof *e->texts);
    if (!e->texts) return refuse("embed: out of memory");
    for (size_t i = 1; i < n_words; i++)
        e->texts[e->n++] = (ct_lm_text){.s = words[i], .n = strlen(words[i])};
    int status = EXIT_DONE;
    if (n_words == 1 && !(input = read_file_or_input("embed", file, &n))) status = EXIT_FAILED;
    if (input) e->lines = file ? file : "standard input";
    if (input && !add_lines(e, input, n)) status = refuse("embed: out of memory");
    if (status == EXIT_DONE && !e->n)
        status = refuse("embed: %s has no lines", file ? plain(file) : "standard input");
    if (status == EXIT_DONE) {
        e->model = ct_pretrained_load(words[0]);
        status = e->model ? embed(e, pooling, raw) : fail();
    }
    ct_pretrained_free(e->model);
    free(e->vectors);
    free(e->texts);
    free(input);
    return status;
}

static int check(const embedding *e, const command *c, const char *file) {
    if (c->n_words > 1 && file)
        return refuse("embed: texts are given as words or by --file, not both");
    if (e->query && e->out) return refuse("embed: --out is for vectors, not for --rank");
    if (e->classify && (e->query || e->out))
        return refuse("embed: --classify and --%s are two things", e->query ? "rank" : "out");
    if (!e->query && (e->top || (e->json && !e->classify)))
        return refuse("embed: --%s is for --rank%s", e->top ? "top" : "json",
                      e->top ? "" : " and --classify");
    if (e->out && !ends_with(e->out, ".npy") && !ends_with(e->out, ".safetensors"))
        return refuse("embed: --out is a file .npy or .safetensors, not \"%s\"", plain(e->out));
    if (e->overwrite && !e->out) return refuse("embed: --overwrite needs --out");
    if (e->out && !e->overwrite && access(e->out, F_OK) == 0)
        return refuse("embed: %s is there and would be lost\n  hint: --overwrite replaces it, "
                      "another --out leaves it",
                      plain(e->out));
    return EXIT_DONE;
}

int run_embed(int argc, char **argv) {
    static const char *const poolings[] = {"mean", "cls", "last", "max", "sqrt", "weighted", NULL};
    embedding e = {.o.progress = progress};
    const char *name, *file = NULL;
    int pooling = -1, status;
    bool raw = false;
    machine on_machine;
    opt on[MACHINE_OPTIONS];
    list_machine_options(&on_machine, on);
    opt options[] = {
        {"file", OPT_PATH, "FILE", "texts, one a line (standard input)", .out = &file},
        {"rank", OPT_TEXT, "QUERY", "the texts by how much they are like this one, best first",
         .out = &e.query},
        {"top", OPT_WHOLE, "N", "of --rank: only the first N", 1, 1e15, .out = &e.top},
        {"classify", OPT_FLAG, NULL, "the label of each text and its probability",
         .out = &e.classify},
        {"json", OPT_FLAG, NULL, "of --rank and --classify: a JSON object a line", .out = &e.json},
        {"out", OPT_PATH, "FILE", "writes the vectors there: .npy, or .safetensors", .out = &e.out},
        {"overwrite", OPT_FLAG, NULL, "replace the file of --out", .out = &e.overwrite},
        {"pooling", OPT_CHOICE, "HOW",
         "mean, cls, last, max, sqrt or weighted (what the model's folder says)",
         .choices = poolings, .out = &pooling},
        {"raw", OPT_FLAG, NULL, "vectors as they are, not of length 1", .out = &raw},
        {"truncate", OPT_FLAG, NULL, "leaves out the end of texts that are too long",
         .out = &e.o.truncate},
        {"batch", OPT_WHOLE, "N", "tokens of a pass at most (2048)", 1, 1 << 24, .out = &e.o.batch},
        on[0],
        on[1],
        on[2],
        on[3],
    };
    command c = {
        .name = "embed",
        .usage = "MODEL [TEXT...] [options]",
        .operand = "MODEL",
        .text =
            "Makes a vector of each text: those of texts that mean much the same are close. The\n"
            "texts are words of the command line, or lines of --file or standard input: a vector\n"
            "a line, also of empty ones. MODEL is a folder, a GGUF file, or ORG/NAME that cotan\n"
            "pull brought: an encoder (bert ...) or a decoder. What its folder says of pooling\n"
            "(modules.json of sentence-transformers) holds; else it is the mean of an encoder's\n"
            "tokens and the last token of a decoder, and vectors have length 1. Vectors come as\n"
            "JSON, one a line. With a model that tells classes of texts apart\n"
            "(...ForSequenceClassification) --classify says which, and --rank reads each text\n"
            "together with the query, as rerankers do.\n",
        .examples = "  cotan embed my-encoder \"a text\" \"another one\"\n"
                    "  cotan embed my-encoder --file lines.txt --out vectors.npy\n"
                    "  cotan embed my-encoder --file lines.txt --rank \"what is sought\" --top 5\n"
                    "  cotan embed my-reranker --file lines.txt --rank \"what is sought\" --top 5\n"
                    "  cotan embed my-sentiments --classify \"I like it.\"\n",
        .opts = options,
        .n = sizeof options / sizeof *options,
        .several = true,
    };
    if (!parse(&c, argc, argv, &name, &status)) return status;
    status = check(&e, &c, file);
    if (status == EXIT_DONE && use_machine(&on_machine, c.name, &status))
        status = load_and_embed(&e, argv, c.n_words, file, pooling, raw);
    return status;
}
