// cotan tokenize: encodes and decodes text, and trains tokenizers.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <cotan/tokenizer.h>

#include "cli.h"

typedef struct tokenize_options {
    const char *text;
    bool ids, count, decode, special, plain;
} tokenize_options;

static int tokenize_print_tokens(const ct_tokenizer *t, const char *text, size_t n,
                                 const tokenize_options *a) {
    ct_encoding e = {0};
    if (!ct_tokenizer_encode(t, text, n, &e, .add_special = a->special, .split_special = a->plain,
                             .offsets = !a->ids && !a->count)) {
        ct_encoding_free(&e);
        return report_error();
    }
    if (a->count) printf("%zu\n", e.n);
    for (size_t i = 0; i < e.n && a->ids; i++) printf("%s%d", i ? " " : "", (int)e.ids[i]);
    if (a->ids) putchar('\n');
    for (size_t i = 0; i < e.n && !a->ids && !a->count; i++) {
        size_t length;
        const char *piece = ct_tokenizer_piece(t, e.ids[i], &length);
        if (e.special_mask[i])
            printf("%8d  %-13s  ", (int)e.ids[i], "added");
        else
            printf("%8d  %5u to %5u  ", (int)e.ids[i], (unsigned)e.bytes[i].begin,
                   (unsigned)e.bytes[i].end);
        if (piece) put_escaped(stdout, piece, length, "                         ");
        putchar('\n');
    }
    ct_encoding_free(&e);
    return EXIT_DONE;
}

static int tokenize_print_text(const ct_tokenizer *t, const char *text) {
    ct_decoder *d = ct_decoder_new(t, false);
    int status = d ? EXIT_DONE : report_error();
    size_t n;
    while (status == EXIT_DONE) {
        char *end;
        text += strspn(text, " \t\r\n,[]");
        if (!*text) break;
        errno = 0;
        long long id = strtoll(text, &end, 10);
        if (end == text || errno || id < 0 || id >= ct_tokenizer_size(t)) {
            char word[32];
            snprintf(word, sizeof word, "%.24s", text);
            word[strcspn(word, " \t\r\n,")] = '\0';
            status = usage_error("tokenize: \"%s\" is no token: they are numbers from 0 to %lld",
                                 printable(word), (long long)ct_tokenizer_size(t) - 1);
            break;
        }
        text = end;
        const char *said = ct_decoder_next(d, (int32_t)id, &n);
        if (said)
            fwrite(said, 1, n, stdout);
        else
            status = report_error();
    }
    const char *rest = status == EXIT_DONE ? ct_decoder_end(d, &n) : NULL;
    if (rest) fwrite(rest, 1, n, stdout);
    if (status == EXIT_DONE) putchar('\n');
    ct_decoder_free(d);
    return status;
}

static int tokenize_run(const char *path, const tokenize_options *a) {
    char *input = NULL;
    size_t n = a->text ? strlen(a->text) : 0;
    ct_tokenizer *t = ct_tokenizer_load(path);
    if (!t) return report_error();
    if (!a->text && !(input = read_stream(stdin, &n))) {
        ct_tokenizer_free(t);
        fprintf(stderr, "cotan: tokenize: standard input cannot be read\n");
        return EXIT_FAILED;
    }
    const char *text = a->text ? a->text : input;
    int status = a->decode ? tokenize_print_text(t, text) : tokenize_print_tokens(t, text, n, a);
    free(input);
    ct_tokenizer_free(t);
    return status;
}

static void tokenize_on_progress(const ct_bpe_progress *at, void *user) {
    int *last = user, now = at->all ? (int)(at->done * 20 / at->all) : 0;
    if (strcmp(at->stage, "read") && now > *last) {
        printf("%lld of %lld tokens\n", (long long)at->done, (long long)at->all);
        *last = now;
        flush_output();
    }
}

static int tokenize_train(const char *what, const char *one, paths more, const char *out) {
    char *end;
    long long size = strncmp(what, "bpe:", 4) ? 0 : strtoll(what + 4, &end, 10);
    if (size <= 0 || *end)
        return usage_error(
            "tokenize: --train is \"%s\"; it is bpe: and the number of tokens: bpe:8192",
            printable(what));
    if (!out)
        return usage_error(
            "tokenize: --train wants --out DIR, the folder that gets tokenizer.json");
    if (!one && !more.n)
        return usage_error("tokenize: --train wants files of text: cotan tokenize book.txt --train "
                           "bpe:8192 --out DIR");
    const char **files = malloc((more.n + 1) * sizeof *files);
    int last = 0;
    if (!files) return usage_error("tokenize: out of memory");
    size_t n = 0;
    if (one) files[n++] = one;
    for (size_t i = 0; i < more.n; i++) files[n++] = more.v[i];
    bool ok = ct_train_bpe(out, files, n, .vocab_size = size, .progress = tokenize_on_progress,
                           .user = &last);
    free(files);
    if (!ok) return report_error();
    printf("%s/tokenizer.json is written\n", printable(out));
    return EXIT_DONE;
}

int run_tokenize(int argc, char **argv) {
    tokenize_options a = {0};
    const char *what = NULL, *out = NULL, *path = NULL;
    paths data = {0};
    bool add = false;
    int status;
    opt options[] = {
        {"text", OPT_STRING, "TEXT", "what to tokenize (standard input)", .out = &a.text},
        {"ids", OPT_FLAG, NULL, "only the ids, on one line", .out = &a.ids},
        {"count", OPT_FLAG, NULL, "only how many tokens there are", .out = &a.count},
        {"decode", OPT_FLAG, NULL, "the other way: ids become text", .out = &a.decode},
        {"add-special", OPT_FLAG, NULL, "with the tokens that the model puts around a text",
         .out = &add},
        {"split-special", OPT_FLAG, NULL, "special tokens in the text are text", .out = &a.plain},
        {"train", OPT_STRING, "KIND", "trains a tokenizer on files instead: bpe:8192",
         .out = &what},
        {"data", OPT_PATHS, "FILE", "further files to train on", .out = &data},
        {"out", OPT_PATH, "DIR", "the folder that gets what was learned", .out = &out},
    };
    command c = {
        .name = "tokenize",
        .usage = "MODEL|FILE [options]",
        .operand = "MODEL or FILE",
        .text = "Shows the tokens of a text: for each its id, the range of bytes that it covers,\n"
                "and the token as its file writes it. MODEL is a folder with a tokenizer.json, a\n"
                "tokenizer.model or a .tiktoken file, or such a file, or a GGUF file. With\n"
                "--train a tokenizer is trained instead, on text files: a byte-level BPE in the\n"
                "format of Hugging Face's tokenizer.json.\n",
        .examples = "  cotan tokenize model --text \"Hello, world\"\n"
                    "  cotan tokenize model --count <book.txt      # how many tokens is it?\n"
                    "  cotan tokenize model --ids <book.txt | cotan tokenize model --decode\n"
                    "  cotan tokenize book.txt --train bpe:8192 --out words\n",
        .opts = options,
        .n = sizeof options / sizeof *options,
    };
    if (!options_parse(&c, argc, argv, &path, &status)) return status;
    a.special = add;
    if (what) return tokenize_train(what, path, data, out);
    if (out || data.n) return usage_error("tokenize: --out and --data are for --train");
    return tokenize_run(path, &a);
}
