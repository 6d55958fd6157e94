// Jinja templates as chat_template files use them, in a box without ways out: a template computes
// text from JSON, and reaches nothing else. Meanings are those of jinja2's
// ImmutableSandboxedEnvironment as transformers sets it up: blocks trim the line end behind them and
// the blanks before them, loops have break and continue, nothing can be changed in place.
#ifndef COTAN_TEXT_JINJA_H
#define COTAN_TEXT_JINJA_H

#include "base/error.h"
#include "base/text.h"

struct json_t;
typedef struct ct_jinja ct_jinja; // a template that was read; nobody writes to it any more

// What a template may take before it is stopped, and the clock that it sees.
typedef struct ct_jinja_limits {
    int64_t steps;         // nodes evaluated, and bytes worked on by the 16
    size_t memory, output; // bytes
    double now;            // seconds since 1970
} ct_jinja_limits;

// Errors are "NAME: line N: what is wrong". NULL: see err.
ct_jinja *ct__jinja_parse(const char *name, const char *text, size_t n, ct_err *err);
void ct__jinja_free(ct_jinja *jinja); // NULL: nothing
// Appends to `out` what the template makes of the variables, the members of an object.
bool ct__jinja_render(const ct_jinja *jinja, const struct json_t *variables,
                      const ct_jinja_limits *limits, ct_text *out, ct_err *err);

#endif
