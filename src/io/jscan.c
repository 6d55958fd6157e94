#include "io/jscan.h"

#include <float.h>
#include <string.h>

#include "io/utf8.h"

bool ct__js_fail(ct_jscan *js, const char *error) {
    if (!js->error) js->error = error;
    return false;
}

static void js_skip_space(ct_jscan *js) {
    while (js->at < js->end &&
           (*js->at == ' ' || *js->at == '\t' || *js->at == '\n' || *js->at == '\r'))
        js->at++;
}

static bool js_is_digit(const ct_jscan *js) {
    return js->at < js->end && *js->at >= '0' && *js->at <= '9';
}

char ct__js_kind(ct_jscan *js) {
    js_skip_space(js);
    if (js->at == js->end) return 0;
    char c = *js->at;
    if (c == '{' || c == '[' || c == '"' || c == 'n') return c;
    if (c == 't' || c == 'f') return 't';
    return c == '-' || (c >= '0' && c <= '9') ? '0' : 0;
}

const char *ct__js_kind_name(char kind) {
    switch (kind) {
    case '{': return "an object";
    case '[': return "an array";
    case '"': return "a string";
    case '0': return "a number";
    case 't': return "true or false";
    case 'n': return "null";
    default: return "no value";
    }
}

bool ct__js_take(ct_jscan *js, char c) {
    js_skip_space(js);
    if (js->at == js->end || *js->at != c) return false;
    js->at++;
    return true;
}

static bool js_read_hex4(ct_jscan *js, uint32_t *value) {
    *value = 0;
    for (int i = 0; i < 4; i++, js->at++) {
        char c = js->at < js->end ? *js->at : '\0';
        uint32_t digit;
        if (c >= '0' && c <= '9')
            digit = (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (uint32_t)(c - 'a' + 10);
        else if (c >= 'A' && c <= 'F')
            digit = (uint32_t)(c - 'A' + 10);
        else
            return ct__js_fail(js, "an escape \\u needs four hexadecimal digits");
        *value = *value << 4 | digit;
    }
    return true;
}

// Reads one code point after "\u": two escapes if the first is half of a surrogate pair.
static bool js_read_unicode(ct_jscan *js, uint32_t *cp) {
    uint32_t low;
    if (!js_read_hex4(js, cp)) return false;
    if (*cp >= 0xdc00 && *cp <= 0xdfff) return ct__js_fail(js, "half of a surrogate pair");
    if (*cp < 0xd800 || *cp > 0xdbff) return true;
    if (js->end - js->at < 2 || js->at[0] != '\\' || js->at[1] != 'u')
        return ct__js_fail(js, "half of a surrogate pair");
    js->at += 2;
    if (!js_read_hex4(js, &low)) return false;
    if (low < 0xdc00 || low > 0xdfff) return ct__js_fail(js, "half of a surrogate pair");
    *cp = 0x10000 + ((*cp - 0xd800) << 10) + (low - 0xdc00);
    return true;
}

static bool js_read_escape(ct_jscan *js, char **out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (js->at == js->end) return ct__js_fail(js, "a string has no end");
    char c = *js->at;
    const char *found = c ? strchr(from, c) : NULL;
    if (found) {
        js->at++;
        *(*out)++ = to[found - from];
        return true;
    }
    uint32_t cp;
    if (c != 'u') return ct__js_fail(js, "an unknown escape");
    js->at++;
    if (!js_read_unicode(js, &cp)) return false;
    *out += ct__utf8_put(cp, *out);
    return true;
}

// Returns the closing quote of the string whose text begins at `at`; NULL if there is none.
static const char *js_find_string_end(const ct_jscan *js) {
    for (const char *p = js->at; p < js->end; p++) {
        if (*p == '"') return p;
        if (*p == '\\') p++;
    }
    return NULL;
}

bool ct__js_string(ct_jscan *js, ct_jstr *out) {
    if (!ct__js_take(js, '"')) return ct__js_fail(js, "a string in quotes was expected");
    const char *close = js_find_string_end(js);
    if (!close) return ct__js_fail(js, "a string has no end");
    char *s = ct__arena(js->arena, (size_t)(close - js->at) + 1); // escapes shrink
    if (!s) {
        js->is_out_of_memory = true;
        return ct__js_fail(js, "out of memory");
    }
    out->s = s;
    while (js->at < close) {
        unsigned char c = (unsigned char)*js->at;
        if (c < 0x20) return ct__js_fail(js, "a control character inside a string");
        if (c == '\\') {
            js->at++;
            if (!js_read_escape(js, &s)) return false;
        } else {
            *s++ = *js->at++;
        }
    }
    *s = '\0';
    out->n = (size_t)(s - out->s);
    js->at = close + 1;
    return true;
}

// True if a number with this mantissa and decimal exponent is within a double's range. The range of
// a long double is much larger, so repeated multiplication is enough; its rounding errors do not
// matter.
static bool js_is_in_range(long double mantissa, long long exponent) {
    if (mantissa == 0) return true;
    for (; exponent > 0 && mantissa <= (long double)DBL_MAX; exponent--) mantissa *= 10;
    return mantissa <= (long double)DBL_MAX;
}

// Reads digits into the mantissa; once that is full, they only change the exponent.
static void js_read_digits(ct_jscan *js, long double *mantissa, long long *exponent,
                           bool fraction) {
    for (; js_is_digit(js); js->at++) {
        if (*mantissa < 1e40L) {
            *mantissa = *mantissa * 10 + (*js->at - '0');
            *exponent -= fraction;
        } else {
            *exponent += !fraction;
        }
    }
}

static bool js_read_exponent(ct_jscan *js, long long *exponent) {
    bool minus = false;
    long long e = 0;
    if (js->at < js->end && (*js->at == '+' || *js->at == '-')) minus = *js->at++ == '-';
    if (!js_is_digit(js)) return ct__js_fail(js, "a digit was expected in the exponent");
    for (; js_is_digit(js); js->at++)
        if (e < 1000000000000) e = e * 10 + (*js->at - '0');
    *exponent += minus ? -e : e;
    return true;
}

bool ct__js_number(ct_jscan *js, uint64_t *value, bool *is_u64) {
    long double mantissa = 0;
    long long exponent = 0;
    js_skip_space(js);
    *value = 0;
    *is_u64 = true;
    if (js->at < js->end && *js->at == '-') js->at++, *is_u64 = false;
    if (!js_is_digit(js)) return ct__js_fail(js, "a digit was expected");
    const char *first = js->at;
    js_read_digits(js, &mantissa, &exponent, false);
    if (*first == '0' && js->at - first > 1) {
        js->at = first;
        return ct__js_fail(js, "a number begins with a superfluous 0");
    }
    for (const char *p = first; p < js->at && *is_u64; p++)
        *is_u64 = !__builtin_mul_overflow(*value, (uint64_t)10, value) &&
                  !__builtin_add_overflow(*value, (uint64_t)(*p - '0'), value);
    if (js->at < js->end && *js->at == '.') {
        js->at++;
        *is_u64 = false;
        if (!js_is_digit(js)) return ct__js_fail(js, "a digit was expected after the point");
        js_read_digits(js, &mantissa, &exponent, true);
    }
    if (js->at < js->end && (*js->at == 'e' || *js->at == 'E')) {
        js->at++;
        *is_u64 = false;
        if (!js_read_exponent(js, &exponent)) return false;
    }
    return js_is_in_range(mantissa, exponent) ||
           ct__js_fail(js, "a number beyond the range of a double");
}

bool ct__js_member(ct_jscan *js, char close, bool *first) {
    if (ct__js_take(js, close)) return false;
    if (!*first && !ct__js_take(js, ','))
        return ct__js_fail(js,
                           close == '}' ? "',' or '}' was expected" : "',' or ']' was expected");
    *first = false;
    return true;
}

static bool js_read_word(ct_jscan *js, const char *text) {
    size_t n = strlen(text);
    if ((size_t)(js->end - js->at) < n || memcmp(js->at, text, n) != 0)
        return ct__js_fail(js, "a value was expected");
    js->at += n;
    return true;
}

// Recursion is bounded by CT_JS_DEPTH.
bool ct__js_skip(ct_jscan *js, int depth) {
    char kind = ct__js_kind(js), close = kind == '{' ? '}' : ']';
    ct_jstr s;
    uint64_t value;
    bool is_u64, first = true;
    switch (kind) {
    case '"': return ct__js_string(js, &s);
    case '0': return ct__js_number(js, &value, &is_u64);
    case 't': return js_read_word(js, *js->at == 't' ? "true" : "false");
    case 'n': return js_read_word(js, "null");
    case 0: return ct__js_fail(js, "a value was expected");
    default: break;
    }
    if (depth >= CT_JS_DEPTH)
        return ct__js_fail(js, "too many arrays and objects inside each other");
    js->at++;
    while (ct__js_member(js, close, &first)) {
        if (kind == '{') {
            if (!ct__js_string(js, &s)) return false;
            if (!ct__js_take(js, ':')) return ct__js_fail(js, "':' was expected");
        }
        if (!ct__js_skip(js, depth + 1)) return false;
    }
    return !js->error;
}
