#include <jansson.h>

#include "fuzz/harness/harness.h"
#include "io/json.h"
#include "io/utf8.h"
#include "text/jinja.h"

enum { STEPS = 100000, MEMORY = 16 << 20, OUTPUT = 1 << 16 };

// A template and, behind a zero byte, the JSON of what it sees. Whatever they are, it ends within
// its limits, writes text, and writes the same twice.
static void render(const ct_jinja *jinja, const json_t *variables) {
    static const ct_jinja_limits limits = {.steps = STEPS, .memory = MEMORY, .output = OUTPUT};
    ct_text once = {0}, twice = {0};
    ct_err err = {0}, again = {0};
    bool ok = ct__jinja_render(jinja, variables, &limits, &once, &err);
    EXPECT(ct__jinja_render(jinja, variables, &limits, &twice, &again) == ok);
    EXPECT(ok == (err.code == CT_OK) && err.code == again.code);
    EXPECT(ok || harness_said(err.text, "t", "line "));
    EXPECT(!ok || (once.n == twice.n && memcmp(once.s, twice.s, once.n) == 0));
    EXPECT(once.n <= OUTPUT && ct__utf8_bad(once.s ? once.s : "", once.n) == once.n);
    ct__text_free(&once);
    ct__text_free(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    const char *text = (const char *)bytes, *zero = n ? memchr(text, '\0', n) : NULL;
    size_t template_n = zero ? (size_t)(zero - text) : n;
    json_error_t fault;
    ct_err err = {0};
    ct_jinja *jinja = ct__jinja_parse("t", text, template_n, &err);
    EXPECT(jinja ? err.code == CT_OK : harness_said(err.text, "t", ""));
    json_t *variables =
        zero ? ct__json_read(zero + 1, n - template_n - 1, JSON_ALLOW_NUL, &fault) : NULL;
    if (!json_is_object(variables)) {
        json_decref(variables);
        variables = json_object();
    }
    if (jinja) render(jinja, variables);
    json_decref(variables);
    ct__jinja_free(jinja);
    return 0;
}
