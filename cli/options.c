// Options by table: what is read, what is refused and what --help shows come from the same entries.
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { MOST_OPTIONS = 64 };

const char *plain(const char *text) {
    static _Thread_local char rooms[3][128];
    static _Thread_local int turn;
    char *out = rooms[turn++ % 3];
    size_t n = 0;
    for (; text[n] && n < sizeof rooms[0] - 4; n++)
        out[n] = (unsigned char)text[n] < 32 || text[n] == 127 ? '?' : text[n];
    strcpy(out + n, text[n] ? "..." : "");
    return out;
}

void put_visible(FILE *to, const char *text, size_t n, const char *indent) {
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i], next = i + 1 < n ? (unsigned char)text[i + 1] : 0;
        if (c == '\n') {
            fprintf(to, "\n%s", indent);
        } else if ((c < 32 && c != '\t') || c == 127) {
            fprintf(to, "\\x%02x", c);
        } else if (c == 0xc2 && next >= 0x80 &&
                   next < 0xa0) { // U+0080 on: they steer terminals, too
            fprintf(to, "\\x%02x", next);
            i++;
        } else {
            fputc(c, to);
        }
    }
}

int refuse(const char *format, ...) {
    va_list args;
    fputs("cotan: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return EXIT_REFUSED;
}

// Without the place in the program's own sources, which begins what the library says of calls there.
static const char *without_place(const char *text) {
    if (strncmp(text, "cli/", 4) != 0) return text;
    const char *colon = text + strcspn(text, ":\n");
    size_t digits = *colon == ':' ? strspn(colon + 1, "0123456789") : 0;
    return digits && strncmp(colon + 1 + digits, ": ", 2) == 0 ? colon + digits + 3 : text;
}

int fail(void) {
    ct_code code = ct_error_code();
    fprintf(stderr, "cotan: %s\n", without_place(ct_error_text()));
    return code == CT_E_USAGE || code == CT_E_LIMIT ? EXIT_REFUSED : EXIT_FAILED;
}

void tell_unfollowed(const char *model, const char *keys) {
    if (keys)
        fprintf(stderr,
                "cotan: %s: what generation_config.json says of %s is not followed, so that texts "
                "may differ from transformers'\n",
                plain(model), keys);
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

static const char *refused(const command *c, const opt *o) {
    for (const refusal *r = c->refusals; r && r->option; r++)
        if (strcmp(r->option, o->name) == 0) return r->why;
    return NULL;
}

void show_help(const command *c) {
    printf("usage: cotan %s%s%s\n\n%s", c->name, *c->usage ? " " : "", c->usage, c->text);
    printf("\nOptions:\n");
    for (size_t i = 0; i < c->n; i++) {
        const opt *o = &c->opts[i];
        if (refused(c, o)) continue;
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", o->name, o->value ? " " : "",
                 o->value ? o->value : "");
        printf("  %-24s %s\n", left, o->help);
        flush_output(); // so that the reason is known where it cannot be written
    }
    printf("  %-24s %s\n", "--help", "this text");
    printf("\nExamples:\n%s", c->examples);
}

// ----------------------------------------------------------------------------------------- reading

static opt *find(command *c, const char *name, size_t n) {
    for (size_t i = 0; i < c->n; i++)
        if (strlen(c->opts[i].name) == n && memcmp(c->opts[i].name, name, n) == 0)
            return &c->opts[i];
    return NULL;
}

static int unknown(const command *c, const char *word) {
    const char *names[MOST_OPTIONS + 2];
    size_t n = 0;
    for (size_t i = 0; i < c->n && n < MOST_OPTIONS; i++)
        if (!refused(c, &c->opts[i])) names[n++] = c->opts[i].name;
    names[n++] = "help";
    names[n] = NULL;
    const char *bare = word + strspn(word, "-");
    const char *near = ct_nearest(bare, names);
    if (near) return refuse("%s: there is no option %s; is --%s meant?", c->name, word, near);
    return refuse("%s: there is no option %s; cotan %s --help lists them", c->name, word, c->name);
}

static int read_number(const command *c, const opt *o, const char *text, double *value) {
    bool whole = o->kind != OPT_REAL;
    char *end;
    errno = 0;
    *value = strtod(text, &end);
    if (end == text || *end || isspace((unsigned char)*text) || !isfinite(*value) ||
        (whole && floor(*value) != *value))
        return refuse("%s: --%s takes a %s, not \"%s\"", c->name, o->name,
                      whole ? "whole number" : "number", plain(text));
    if (*value < o->low || *value > o->high)
        return refuse("%s: --%s must be from %.10g to %.10g, not %s", c->name, o->name, o->low,
                      o->high, plain(text));
    return EXIT_DONE;
}

static int read_choice(const command *c, const opt *o, const char *text) {
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
    return refuse("%s: --%s is %s, not \"%s\"%s%s%s", c->name, o->name, list, plain(text),
                  near ? "; is " : "", near ? near : "", near ? " meant?" : "");
}

// A number and a unit: powers of 1000, or of 1024 with an i.
static int read_bytes(const command *c, const opt *o, const char *text) {
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
            value = -1; // 2Gi is half a unit
        if (*end) value = -1;
    }
    if (!(value >= 1 && value < 1e18))
        return refuse("%s: --%s takes a size such as 500MB or 2GiB, not \"%s\"", c->name, o->name,
                      plain(text));
    if (value < o->low && isdigit((unsigned char)text[strlen(text) - 1]))
        return refuse("%s: --%s %s is in bytes, less than anything takes: is %sMB meant, or %sGB?",
                      c->name, o->name, plain(text), plain(text), plain(text));
    if (value < o->low)
        return refuse("%s: --%s %s is less than anything takes, %.0f MB at least", c->name, o->name,
                      plain(text), o->low / 1e6);
    *(uint64_t *)o->out = (uint64_t)value;
    return EXIT_DONE;
}

static int read_value(const command *c, const opt *o, const char *text) {
    double number;
    int status = EXIT_DONE;
    switch (o->kind) {
    case OPT_FLAG:
    case OPT_PATHS: break;
    case OPT_TEXT:
    case OPT_PATH: *(const char **)o->out = text; break;
    case OPT_CHOICE: status = read_choice(c, o, text); break;
    case OPT_BYTES: status = read_bytes(c, o, text); break;
    case OPT_WHOLE:
        status = read_number(c, o, text, &number);
        if (status == EXIT_DONE) *(int64_t *)o->out = (int64_t)number;
        break;
    case OPT_COUNT:
    case OPT_REAL:
        status = read_number(c, o, text, &number);
        if (status == EXIT_DONE) *(ct_num *)o->out = CT_F(number);
        break;
    }
    return status;
}

static bool is_option(const char *word) { return word[0] == '-' && word[1]; }

// The words from argv[*i] on up to the next option.
static void read_paths(const opt *o, int argc, char **argv, int *i) {
    paths *list = o->out;
    list->v = (const char *const *)argv + *i;
    while (*i < argc && !is_option(argv[*i])) list->n++, ++*i;
}

// One option and its value, argv[*i] on; *i moves behind it.
static int read_option(command *c, int argc, char **argv, int *i) {
    const char *word = argv[(*i)++], *equals = strchr(word, '=');
    size_t n = (equals ? (size_t)(equals - word) : strlen(word)) - 2;
    opt *o = strncmp(word, "--", 2) == 0 ? find(c, word + 2, n) : NULL;
    if (!o) {
        char name[96];
        snprintf(name, sizeof name, "%.*s", equals ? (int)(equals - word) : 90, plain(word));
        return unknown(c, name);
    }
    if (refused(c, o)) return refuse("%s: --%s %s", c->name, o->name, refused(c, o));
    if (o->given)
        return refuse("%s: --%s is given twice, as %s and as %s%s", c->name, o->name,
                      plain(o->given),
                      equals      ? plain(equals + 1)
                      : *i < argc ? plain(argv[*i])
                                  : "nothing",
                      o->kind == OPT_PATHS ? ": one takes several" : "");
    if (o->kind == OPT_FLAG) {
        if (equals) return refuse("%s: --%s takes no value", c->name, o->name);
        o->given = "on";
        *(bool *)o->out = true;
        return EXIT_DONE;
    }
    // Values may begin with one dash: a negative number.
    const char *value = equals ? equals + 1 : *i < argc ? argv[*i] : NULL;
    bool path = o->kind == OPT_PATH || o->kind == OPT_PATHS;
    if (!value || (path && !*value) ||
        (!equals && (strncmp(value, "--", 2) == 0 || (o->kind == OPT_PATHS && is_option(value)))))
        return refuse("%s: --%s needs a value: %s", c->name, o->name, o->value);
    if (o->kind == OPT_PATHS && !equals) {
        o->given = argv[*i];
        read_paths(o, argc, argv, i);
        return EXIT_DONE;
    }
    if (o->kind == OPT_PATHS) {
        // The text behind '=' takes the word's own place, where a list of one path can stand.
        argv[*i - 1] = (char *)(uintptr_t)(equals + 1);
        o->given = equals + 1;
        *(paths *)o->out = (paths){(const char *const *)argv + *i - 1, 1};
        return EXIT_DONE;
    }
    o->given = equals ? equals + 1 : argv[(*i)++];
    return read_value(c, o, o->given);
}

bool parse(command *c, int argc, char **argv, const char **operand, int *status) {
    bool empty = false;
    *status = EXIT_DONE;
    if (operand) *operand = NULL;
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            show_help(c);
            return false;
        }
    for (int i = 0; i < argc && *status == EXIT_DONE;) {
        if (is_option(argv[i])) {
            *status = read_option(c, argc, argv, &i);
        } else if (!operand) {
            *status = refuse("%s: \"%s\" is not an option; options begin with --", c->name,
                             plain(argv[i]));
        } else if (*operand && !c->several) {
            *status = refuse("%s: one %s is wanted, not both \"%s\" and \"%s\"", c->name,
                             c->operand, plain(*operand), plain(argv[i]));
        } else {
            *operand = argv[i++];
            empty |= !**operand;
            if (c->several) argv[c->n_words++] = (char *)(uintptr_t)*operand;
        }
    }
    if (*status == EXIT_DONE && operand && (!*operand || empty))
        *status = refuse("%s: it needs a %s: cotan %s %s", c->name, c->operand, c->name, c->usage);
    return *status == EXIT_DONE;
}
