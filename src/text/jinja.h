// Jinja templates as chat_template files use them, sandboxed: a template computes text from JSON
// and has no access to anything else. The semantics are those of jinja2's
// ImmutableSandboxedEnvironment as transformers configures it: trim_blocks and lstrip_blocks are
// on, loops have break and continue, and no value can be changed in place.
#ifndef COTAN_TEXT_JINJA_H
#define COTAN_TEXT_JINJA_H

#include "base/error.h"
#include "base/text.h"

struct json_t;
typedef struct ct_jinja ct_jinja; // a parsed template; immutable

// Limits after which a template is stopped, and the time that it sees.
typedef struct ct_jinja_limits {
    int64_t steps;         // nodes evaluated, plus bytes processed / 16
    size_t memory, output; // bytes
    double now;            // seconds since 1970
} ct_jinja_limits;

// Errors are "NAME: line N: what is wrong". NULL: see err.
ct_jinja *ct__jinja_parse(const char *name, const char *text, size_t n, ct_err *err);
void ct__jinja_free(ct_jinja *jinja); // NULL: nothing
// Appends the rendered template to `out`. `variables`: an object, a variable per member.
bool ct__jinja_render(const ct_jinja *jinja, const struct json_t *variables,
                      const ct_jinja_limits *limits, ct_text *out, ct_err *err);

#endif
