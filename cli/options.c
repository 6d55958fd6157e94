// Command line options by table: parsing, error messages and --help use the same entries.
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { MAX_OPTIONS = 64 };

const char *message_name = "cotan";

const char *printable(const char *text) {
    static _Thread_local char buffers[3][128];
    static _Thread_local int turn;
    char *out = buffers[turn++ % 3];
    size_t n = 0;
    for (; text[n] && n < sizeof buffers[0] - 4; n++)
        out[n] = (unsigned char)text[n] < 32 || text[n] == 127 ? '?' : text[n];
    strcpy(out + n, text[n] ? "..." : "");
    return out;
}

void put_escaped(FILE *to, const char *text, size_t n, const char *indent) {
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i], next = i + 1 < n ? (unsigned char)text[i + 1] : 0;
        if (c == '\n') {
            fprintf(to, "\n%s", indent);
        } else if ((c < 32 && c != '\t') || c == 127) {
            fprintf(to, "\\x%02x", c);
        } else if (c == 0xc2 && next >= 0x80 &&
                   next < 0xa0) { // U+0080 to U+009F: they control terminals, too
            fprintf(to, "\\x%02x", next);
            i++;
        } else {
            fputc(c, to);
        }
    }
}

int usage_error(const char *format, ...) {
    va_list args;
    fprintf(stderr, "%s: ", message_name);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return EXIT_USAGE;
}

// Removes the location in the program's own sources from the front of an error of the library.
static const char *options_strip_source_line(const char *text) {
    if (strncmp(text, "cli/", 4) != 0 && strncmp(text, "bench/", 6) != 0) return text;
    const char *colon = text + strcspn(text, ":\n");
    size_t digits = *colon == ':' ? strspn(colon + 1, "0123456789") : 0;
    return digits && strncmp(colon + 1 + digits, ": ", 2) == 0 ? colon + digits + 3 : text;
}

// Members of the library's option structs that its messages name, and that are the program's options of the same
// name, --eval-batches for .eval_batches.
static const char options_members[] =
    " accumulate arch batch beta1 beta2 clip context data dropout eval_batches eval_every from "
    "heads intermediate_size kv_heads layers lr min_delta min_lr no_bias out overwrite "
    "patience precision resume resume_step save_every seed steps tokenizer warmup "
    "weight_decay width ";
// Phrases of which a user of the program writes another.
static const struct {
    const char *field, *option;
} option_phrases[] = {
    {"train with .resume", "cotan train --resume"},
    {"and .resume_step", "--resume-step"},
    {".embed", "--embed-weights"},
};

static bool options_ends_word(char c) { return !c || strchr(" ,;\n", c); }

// Writes the option for the phrase or member that `text` begins with, and returns its length; 0 if there is none.
// A file's name such as ".data:" or ".data/x" is none.
static size_t options_print_option(FILE *to, const char *text) {
    for (size_t i = 0; i < sizeof option_phrases / sizeof *option_phrases; i++) {
        const size_t n = strlen(option_phrases[i].field);
        if (strncmp(text, option_phrases[i].field, n) != 0 || !options_ends_word(text[n])) continue;
        fputs(option_phrases[i].option, to);
        return n;
    }
    char word[40];
    const size_t n = *text == '.' ? strspn(text + 1, "abcdefghijklmnopqrstuvwxyz_0123456789") : 0;
    snprintf(word, sizeof word, " %.*s ", (int)n, text + 1);
    if (!n || n > 30 || !options_ends_word(text[1 + n]) || !strstr(options_members, word)) return 0;
    fputs("--", to);
    for (size_t i = 1; i <= n; i++) fputc(text[i] == '_' ? '-' : text[i], to);
    return 1 + n;
}

void print_with_option_names(FILE *to, const char *text) {
    bool word_begins = true;
    while (*text) {
        const size_t n = word_begins ? options_print_option(to, text) : 0;
        word_begins = *text == ' ' || *text == '\n';
        if (!n) fputc(*text, to);
        text += n ? n : 1;
    }
}

int report_error(void) {
    ct_code code = ct_error_code();
    progress_watch_kernels(false);
    fprintf(stderr, "%s: ", message_name);
    print_with_option_names(stderr, options_strip_source_line(ct_error_text()));
    fputc('\n', stderr);
    return code == CT_E_USAGE || code == CT_E_LIMIT ? EXIT_USAGE : EXIT_FAILED;
}

void warn_unsupported_generation(const char *model, const char *keys) {
    if (!keys) return;
    progress_clear_line();
    fprintf(stderr,
            "cotan: %s: warning: generation_config.json has keys that are not supported: %s; "
            "output may differ from that of transformers\n",
            printable(model), keys);
}

static int output_errno;

bool flush_output(void) {
    if (fflush(stdout) != 0 && !output_errno) output_errno = errno;
    return !output_errno && !ferror(stdout);
}

const char *output_error(void) {
    return output_errno ? strerror(output_errno) : "not all could be written";
}

// ------------------------------------------------------------------------------------------- help

static const char *options_exclusion_reason(const command *c, const opt *o) {
    for (const excluded_option *r = c->excluded; r && r->option; r++)
        if (strcmp(r->option, o->name) == 0) return r->reason;
    return NULL;
}

void options_print_help(const command *c) {
    printf("usage: %s%s%s%s%s\n\n%s", message_name, *c->name ? " " : "", c->name,
           *c->usage ? " " : "", c->usage, c->text);
    printf("\nOptions:\n");
    for (size_t i = 0; i < c->n; i++) {
        const opt *o = &c->opts[i];
        if (options_exclusion_reason(c, o)) continue;
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", o->name, o->value ? " " : "",
                 o->value ? o->value : "");
        printf("  %-24s %s\n", left, o->help);
        flush_output(); // so that errno is known if the write fails
    }
    printf("  %-24s %s\n", "--help", "this text");
    printf("\nExamples:\n%s", c->examples);
}

// ----------------------------------------------------------------------------------------- reading

static opt *options_find(command *c, const char *name, size_t n) {
    for (size_t i = 0; i < c->n; i++)
        if (strlen(c->opts[i].name) == n && memcmp(c->opts[i].name, name, n) == 0)
            return &c->opts[i];
    return NULL;
}

static int options_unknown_error(const command *c, const char *word) {
    const char *names[MAX_OPTIONS + 2];
    size_t n = 0;
    for (size_t i = 0; i < c->n && n < MAX_OPTIONS; i++)
        if (!options_exclusion_reason(c, &c->opts[i])) names[n++] = c->opts[i].name;
    names[n++] = "help";
    names[n] = NULL;
    const char *bare = word + strspn(word, "-");
    const char *near = ct_nearest(bare, names);
    if (near) return usage_error("%s: there is no option %s; is --%s meant?", c->name, word, near);
    return usage_error("%s: there is no option %s; %s %s --help lists them", c->name, word,
                       message_name, c->name);
}

static int options_parse_number(const command *c, const opt *o, const char *text, double *value) {
    bool whole = o->kind != OPT_REAL;
    char *end;
    errno = 0;
    *value = strtod(text, &end);
    if (end == text || *end || isspace((unsigned char)*text) || !isfinite(*value) ||
        (whole && floor(*value) != *value))
        return usage_error("%s: --%s takes a %s, not \"%s\"", c->name, o->name,
                           whole ? "whole number" : "number", printable(text));
    if (*value < o->low || *value > o->high)
        return usage_error("%s: --%s must be from %.10g to %.10g, not %s", c->name, o->name, o->low,
                           o->high, printable(text));
    return EXIT_DONE;
}

static int options_parse_choice(const command *c, const opt *o, const char *text) {
    char list[128] = "";
    for (int i = 0; o->choices[i]; i++) {
        if (strcmp(text, o->choices[i]) == 0) {
            *(int *)o->out = i;
            return EXIT_DONE;
        }
        if (i) strncat(list, o->choices[i + 1] ? ", " : " or ", sizeof list - strlen(list) - 1);
        strncat(list, o->choices[i], sizeof list - strlen(list) - 1);
    }
    const char *near = ct_nearest(text, o->choices);
    return usage_error("%s: --%s is %s, not \"%s\"%s%s%s", c->name, o->name, list, printable(text),
                       near ? "; is " : "", near ? near : "", near ? " meant?" : "");
}

// Parses a number and a unit: powers of 1000, or of 1024 with an i.
static int options_parse_bytes(const command *c, const opt *o, const char *text) {
    static const char prefixes[] = "kmgt";
    char *end;
    double value = isdigit((unsigned char)*text) ? strtod(text, &end) : -1;
    if (value >= 0) {
        const char *prefix = *end ? strchr(prefixes, tolower((unsigned char)*end)) : NULL;
        double base = 1000;
        if (prefix && tolower((unsigned char)end[1]) == 'i') base = 1024;
        if (prefix) {
            value *= pow(base, (double)(prefix - prefixes + 1));
            end += base == 1024 ? 2 : 1;
        }
        if (tolower((unsigned char)*end) == 'b')
            end++;
        else if (base == 1024)
            value = -1; // "2Gi" lacks its B
        if (*end) value = -1;
    }
    if (!(value >= 1 && value < 1e18))
        return usage_error("%s: --%s takes a size such as 500MB or 2GiB, not \"%s\"", c->name,
                           o->name, printable(text));
    if (value < o->low && isdigit((unsigned char)text[strlen(text) - 1]))
        return usage_error(
            "%s: --%s %s is in bytes, less than anything takes: is %sMB meant, or %sGB?", c->name,
            o->name, printable(text), printable(text), printable(text));
    if (value < o->low)
        return usage_error("%s: --%s %s is less than anything takes, %.0f MB at least", c->name,
                           o->name, printable(text), o->low / 1e6);
    *(uint64_t *)o->out = (uint64_t)value;
    return EXIT_DONE;
}

static int options_parse_value(const command *c, const opt *o, const char *text) {
    double number;
    int status = EXIT_DONE;
    switch (o->kind) {
    case OPT_FLAG:
    case OPT_PATHS: break;
    case OPT_STRING:
    case OPT_PATH: *(const char **)o->out = text; break;
    case OPT_CHOICE: status = options_parse_choice(c, o, text); break;
    case OPT_BYTES: status = options_parse_bytes(c, o, text); break;
    case OPT_INT:
        status = options_parse_number(c, o, text, &number);
        if (status == EXIT_DONE) *(int64_t *)o->out = (int64_t)number;
        break;
    case OPT_OPTIONAL_INT:
    case OPT_REAL:
        status = options_parse_number(c, o, text, &number);
        if (status == EXIT_DONE) *(ct_num *)o->out = CT_F(number);
        break;
    }
    return status;
}

static bool options_is_option_word(const char *word) { return word[0] == '-' && word[1]; }

// Takes the words from argv[*i] up to the next option.
static void options_parse_paths(const opt *o, int argc, char **argv, int *i) {
    paths *list = o->out;
    list->v = (const char *const *)argv + *i;
    while (*i < argc && !options_is_option_word(argv[*i])) list->n++, ++*i;
}

// Parses one option and its value from argv[*i] on; advances *i past them.
static int options_parse_one(command *c, int argc, char **argv, int *i) {
    const char *word = argv[(*i)++], *equals = strchr(word, '=');
    size_t n = (equals ? (size_t)(equals - word) : strlen(word)) - 2;
    opt *o = strncmp(word, "--", 2) == 0 ? options_find(c, word + 2, n) : NULL;
    if (!o) {
        char name[96];
        snprintf(name, sizeof name, "%.*s", equals ? (int)(equals - word) : 90, printable(word));
        return options_unknown_error(c, name);
    }
    if (options_exclusion_reason(c, o))
        return usage_error("%s: --%s %s", c->name, o->name, options_exclusion_reason(c, o));
    if (o->given_text)
        return usage_error("%s: --%s is given twice, as %s and as %s%s", c->name, o->name,
                           printable(o->given_text),
                           equals      ? printable(equals + 1)
                           : *i < argc ? printable(argv[*i])
                                       : "nothing",
                           o->kind == OPT_PATHS ? ": one takes several" : "");
    if (o->kind == OPT_FLAG) {
        if (equals) return usage_error("%s: --%s takes no value", c->name, o->name);
        o->given_text = "on";
        *(bool *)o->out = true;
        return EXIT_DONE;
    }
    // A value may begin with one dash: a negative number.
    const char *value = equals ? equals + 1 : *i < argc ? argv[*i] : NULL;
    bool path = o->kind == OPT_PATH || o->kind == OPT_PATHS;
    if (!value || (path && !*value) ||
        (!equals &&
         (strncmp(value, "--", 2) == 0 || (o->kind == OPT_PATHS && options_is_option_word(value)))))
        return usage_error("%s: --%s needs a value: %s", c->name, o->name, o->value);
    if (o->kind == OPT_PATHS && !equals) {
        o->given_text = argv[*i];
        options_parse_paths(o, argc, argv, i);
        return EXIT_DONE;
    }
    if (o->kind == OPT_PATHS) {
        // Stores the text after '=' in the word's own element of argv, which serves as a list of one
        // path.
        argv[*i - 1] = (char *)(uintptr_t)(equals + 1);
        o->given_text = equals + 1;
        *(paths *)o->out = (paths){(const char *const *)argv + *i - 1, 1};
        return EXIT_DONE;
    }
    o->given_text = equals ? equals + 1 : argv[(*i)++];
    return options_parse_value(c, o, o->given_text);
}

bool options_parse(command *c, int argc, char **argv, const char **operand, int *status) {
    bool empty = false;
    *status = EXIT_DONE;
    if (operand) *operand = NULL;
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            options_print_help(c);
            return false;
        }
    for (int i = 0; i < argc && *status == EXIT_DONE;) {
        if (options_is_option_word(argv[i])) {
            *status = options_parse_one(c, argc, argv, &i);
        } else if (!operand) {
            *status = usage_error("%s: \"%s\" is not an option; options begin with --", c->name,
                                  printable(argv[i]));
        } else if (*operand && !c->many_operands) {
            *status = usage_error("%s: one %s is wanted, not both \"%s\" and \"%s\"", c->name,
                                  c->operand, printable(*operand), printable(argv[i]));
        } else {
            *operand = argv[i++];
            empty |= !**operand;
            if (c->many_operands) argv[c->n_operands++] = (char *)(uintptr_t)*operand;
        }
    }
    if (*status == EXIT_DONE && operand && (!*operand || empty))
        *status = usage_error("%s: it needs a %s: %s %s %s", c->name, c->operand, message_name,
                              c->name, c->usage);
    return *status == EXIT_DONE;
}
