// cotan doctor: checks what Cotan needs on this machine; cotan explain: the error codes.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cotan/train.h>

#include "cli.h"
#include "http_client.h"
#include "serve_mhd.h"

static void doctor_print_finding(const ct_finding *f, void *user) {
    static const char *const words[] = {"ok", "slow", "BAD"};
    (void)user;
    printf("%-4s  %-10s  ", words[f->health], f->name);
    put_escaped(stdout, f->found, strlen(f->found), "");
    if (*f->hint) printf("\n                  hint: %s", f->hint);
    putchar('\n');
    flush_output(); // the next check may take a while
}

// Prints the state of a library that one command opens when it starts. `missing`: "what is wrong; what
// to do", or NULL.
static void doctor_print_library(const char *what, const char *library, const char *missing) {
    const size_t n = missing ? strcspn(missing, ";") : 0;
    printf("%-4s  %-10s  ", missing ? "warn" : "ok", what);
    if (missing)
        put_escaped(stdout, missing, n, "");
    else
        printf("%s is there", library);
    if (n && missing[n]) printf("\n                  hint: %s", missing + n + strlen("; "));
    putchar('\n');
}

int run_doctor(int argc, char **argv) {
    command c = {
        .name = "doctor",
        .usage = "",
        .text =
            "Checks the processor, the cores and the memory that this process may use, what the\n"
            "environment asks for, the C compiler and the cache of compiled kernels, runs a small\n"
            "training step on device cpu and on the reference device, and opens what cotan serve\n"
            "and cotan pull alone need (warn: it is missing). Each line reports what was found\n"
            "and, if something is wrong, a hint how to fix it. Exit status 1: Cotan cannot work.\n",
        .examples = "  cotan doctor\n"
                    "  COTAN_CC=none cotan doctor    # as on a machine without a compiler\n",
    };
    int status;
    if (!options_parse(&c, argc, argv, NULL, &status)) return status;
    status = ct_diagnose(doctor_print_finding, NULL) ? EXIT_DONE : EXIT_FAILED;
    doctor_print_library("serve", "libmicrohttpd", mhd_unavailable_reason());
    doctor_print_library("pull", "libcurl", http_unavailable_reason());
    return status;
}

static const struct {
    ct_code code;
    const char *name;
} codes[] = {
#define CT_CODE(number, name, title, hint) {CT_E_##name, #name},
#include <cotan/errors.inc>
#undef CT_CODE
};
enum { CODES = sizeof codes / sizeof *codes };

static bool explain_equals_ignoring_case(const char *a, const char *b) {
    while (*a && toupper((unsigned char)*a) == toupper((unsigned char)*b)) a++, b++;
    return !*a && !*b;
}

// Returns the index of the code that `word` names: 2, SHAPE, shape or CT_E_SHAPE; -1: none.
static int explain_find_code(const char *word) {
    const char *name = strncmp(word, "CT_E_", 5) == 0 ? word + 5 : word;
    char *end;
    long number = strtol(word, &end, 10);
    for (int i = 0; i < CODES; i++)
        if ((end != word && !*end && number == (long)codes[i].code) ||
            explain_equals_ignoring_case(name, codes[i].name))
            return i;
    return -1;
}

static void explain_print_code(int i) {
    printf("%d  CT_E_%s: %s\n    %s\n", (int)codes[i].code, codes[i].name,
           ct_code_title(codes[i].code), ct_code_hint(codes[i].code));
}

int run_explain(int argc, char **argv) {
    command c = {
        .name = "explain",
        .usage = "[CODE]",
        .operand = "CODE",
        .text =
            "Explains an error code and how to fix the error. CODE is a number or a name, as in\n"
            "ct_error_code and docs/errors.md; without one, all codes are listed.\n",
        .examples = "  cotan explain 2\n"
                    "  cotan explain CT_E_OVERWRITTEN\n"
                    "  cotan explain overwritten\n",
    };
    const char *word = NULL, *names[CODES + 1] = {0};
    int status;
    if (argc == 0) {
        for (int i = 0; i < CODES; i++) explain_print_code(i);
        return EXIT_DONE;
    }
    if (!options_parse(&c, argc, argv, &word, &status)) return status;
    int found = explain_find_code(word);
    if (found >= 0) {
        explain_print_code(found);
        return EXIT_DONE;
    }
    for (int i = 0; i < CODES; i++) names[i] = codes[i].name;
    char upper[40];
    size_t n = 0;
    for (; word[n] && n + 1 < sizeof upper; n++) upper[n] = (char)toupper((unsigned char)word[n]);
    upper[n] = 0;
    const char *near = ct_nearest(upper, names);
    if (near)
        return usage_error("explain: there is no code \"%s\"; is %s meant?", printable(word), near);
    return usage_error("explain: there is no code \"%s\"; cotan explain lists them",
                       printable(word));
}
