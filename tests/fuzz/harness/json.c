#include <jansson.h>

#include "fuzz/harness/harness.h"
#include "io/jscan.h"
#include "io/json.h"
#include "io/utf8.h"

// A string that was read is written, and read again as the same.
static void strings_survive(ct_jscan js) {
    ct_jstr once, twice;
    ct_text text = {0};
    if (ct__js_kind(&js) != '"' || !ct__js_string(&js, &once)) return;
    ct__json_string(&text, once.s, once.n);
    ct_jscan back = {.start = text.s, .at = text.s, .end = text.s + text.n, .arena = js.arena};
    EXPECT(ct__js_string(&back, &twice) && back.at == back.end);
    EXPECT(once.n == twice.n && memcmp(once.s, twice.s, once.n) == 0);
    ct__text_free(&text);
}

// The scanner and the JSON library agree, but for what the scanner is there for: NUL, integers
// beyond 63 bits, and its own limit of depth.
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    ct_arena arena = {0};
    const char *text = (const char *)bytes;
    ct_jscan js = {.start = text, .at = text, .end = text + n, .arena = &arena};
    json_error_t fault;
    json_t *tree = ct__json_read(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &fault);
    bool utf8 = ct__utf8_bad(bytes, n) == n;
    if (utf8) {
        strings_survive(js);
        bool ok = ct__js_skip(&js, 0) && !ct__js_kind(&js) && js.at == js.end;
        bool deep = js.error && strstr(js.error, "inside each other");
        enum json_error_code code = tree ? json_error_unknown : json_error_code(&fault);
        EXPECT(js.at >= text && js.at <= text + n);
        EXPECT(ok || deep || !tree);
        EXPECT(!ok || tree || code == json_error_null_byte_in_key ||
               code == json_error_numeric_overflow);
    } else {
        EXPECT(!tree);
    }
    json_decref(tree);
    ct__arena_free(&arena);
    return 0;
}
