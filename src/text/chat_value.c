#include "text/chat_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fp_env.h"

static const char gemma_quote[] = "<|\"|>";

void ct__value_begin(ct_value_reader *r, ct_value_style style) {
    r->style = style;
    r->state = CT_VALUE_BEGINS;
    r->depth = r->n = r->comma = 0;
    r->key = r->inside = false;
}

size_t ct__value_pending(const ct_value_reader *r) { return r->n + r->comma; }

static size_t value_reader_fail(ct_value_reader *r) {
    r->state = CT_VALUE_FAILED;
    return 0;
}

static size_t value_reader_end(ct_value_reader *r, size_t used) {
    r->state = r->key ? CT_VALUE_COLON : r->depth ? CT_VALUE_AFTER : CT_VALUE_DONE;
    r->key = false;
    return used;
}

// Writes the pending comma, since a value or a key follows it.
static void value_write_comma(ct_value_reader *r, ct_text *out) {
    if (r->comma) ct__text_add(out, ", ");
    r->comma = 0;
}

// ----------------------------------------------------------------------------------------- strings

static void value_write_control(char c, ct_text *out) {
    static const char from[] = "\b\f\n\r\t", to[] = "bfnrt";
    const char *found = c ? strchr(from, c) : NULL;
    if (found)
        ct__textf(out, "\\%c", to[found - from]);
    else
        ct__textf(out, "\\u%04x", (unsigned)(unsigned char)c);
}

static size_t value_begin_token(ct_value_reader *r, ct_value_state state, char c, size_t used) {
    r->token[0] = c;
    r->n = used;
    r->state = state;
    return used;
}

static size_t value_read_string(ct_value_reader *r, const char *s, size_t n, ct_text *out) {
    const bool gemma = r->style == CT_VALUE_GEMMA;
    size_t i = 0;
    while (i < n && (gemma || s[i] != r->quote) && s[i] != '"' && s[i] != '\\' &&
           (unsigned char)s[i] >= ' ' && !(gemma && s[i] == '<'))
        i++;
    if (i) {
        ct__text_bytes(out, s, i);
        return i;
    }
    if (!gemma && *s == r->quote) {
        ct__text_add(out, "\"");
        return value_reader_end(r, 1);
    }
    if (gemma && *s == '<') return value_begin_token(r, CT_VALUE_QUOTE, '<', 1);
    if (!gemma && *s == '\\') return value_begin_token(r, CT_VALUE_ESCAPE, '\\', 1);
    if (!*s && r->key) return value_reader_fail(r); // JSON libraries reject NUL in a key
    if (*s == '"' || *s == '\\') {
        ct__text_add(out, *s == '"' ? "\\\"" : "\\\\");
    } else {
        value_write_control(*s,
                            out); // models write line ends and other control characters unescaped
    }
    return 1;
}

static bool value_is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static unsigned value_code_unit(const char *digits) {
    char copy[5] = {0};
    memcpy(copy, digits, 4);
    return (unsigned)strtoul(copy, NULL, 16);
}

static size_t value_end_escape(ct_value_reader *r, ct_text *out, const char *text, size_t n,
                               size_t used) {
    ct__text_bytes(out, text, n);
    r->n = 0;
    r->state = CT_VALUE_STRING;
    return used;
}

// \uD83D\uDE00: a surrogate pair is one character; a lone surrogate becomes U+FFFD.
static size_t value_read_unicode(ct_value_reader *r, char c, ct_text *out) {
    static const char replacement[] = "\\ufffd";
    const size_t at = r->n % 6; // in this half of a pair
    const bool fits = at == 0 ? c == '\\' : at == 1 ? c == 'u' : value_is_hex(c);
    if (!fits) {
        if (r->n < 6 || at > 1) return value_reader_fail(r);
        value_end_escape(r, out, replacement, 6, 0);
        if (at == 0) return 0;
        // The byte that was read begins another escape.
        value_begin_token(r, CT_VALUE_ESCAPE, '\\', 1);
        return 0;
    }
    r->token[r->n++] = c;
    if (r->n == 6) {
        const unsigned u = value_code_unit(r->token + 2);
        if (!u && r->key) {
            r->n--; // this byte is not consumed
            return value_reader_fail(r);
        }
        if (u >= 0xdc00 && u <= 0xdfff) return value_end_escape(r, out, replacement, 6, 1);
        return u >= 0xd800 && u <= 0xdbff ? 1 : value_end_escape(r, out, r->token, 6, 1);
    }
    if (r->n < 12) return 1;
    const unsigned low = value_code_unit(r->token + 8);
    if (low >= 0xdc00 && low <= 0xdfff) return value_end_escape(r, out, r->token, 12, 1);
    char second[6];
    memcpy(second, r->token + 6, 6);
    if (low < 0xd800 || low > 0xdbff) {
        ct__text_add(out, replacement);
        return value_end_escape(r, out, second, 6, 1);
    }
    ct__text_add(out, replacement);
    memcpy(r->token, second, 6);
    r->n = 6;
    return 1;
}

static size_t value_read_escape(ct_value_reader *r, char c, ct_text *out) {
    char text[8];
    if (r->n > 1 && r->token[1] == 'x') { // Python's \xe9
        if (!value_is_hex(c)) return value_reader_fail(r);
        r->token[r->n++] = c;
        if (r->n < 4) return 1;
        snprintf(text, sizeof text, "\\u00%.2s", r->token + 2);
        return value_end_escape(r, out, text, 6, 1);
    }
    if (r->n > 1) return value_read_unicode(r, c, out);
    if (c == 'u' || (c == 'x' && r->style == CT_VALUE_PYTHON)) {
        r->token[r->n++] = c;
        return 1;
    }
    if (c && strchr("\"\\/bfnrt", c)) {
        const char plain[2] = {'\\', c};
        return value_end_escape(r, out, plain, 2, 1);
    }
    if (c == '\'') return value_end_escape(r, out, "'", 1, 1);
    if (r->style != CT_VALUE_PYTHON) return value_reader_fail(r);
    if (c == '\n') return value_end_escape(r, out, "", 0, 1);
    if ((unsigned char)c < ' ' || (c >= '0' && c <= '7') || c == 'U' || c == 'N')
        return value_reader_fail(r);
    const char both[2] = {'\\', '\\'}; // no escape of Python: the backslash is literal
    return value_end_escape(r, out, both, 2, 0);
}

// <|"|>, or text that starts like it.
static size_t value_read_quote(ct_value_reader *r, char c, ct_text *out) {
    if (c != gemma_quote[r->n]) {
        if (!r->inside) return value_reader_fail(r);
        for (size_t i = 0; i < r->n; i++) {
            if (gemma_quote[i] == '"') ct__text_add(out, "\\");
            ct__text_bytes(out, gemma_quote + i, 1);
        }
        r->n = 0;
        r->state = CT_VALUE_STRING;
        return 0;
    }
    if (++r->n < sizeof gemma_quote - 1) return 1;
    r->n = 0;
    r->inside = !r->inside;
    if (r->inside) value_write_comma(r, out);
    ct__text_add(out, "\"");
    r->state = CT_VALUE_STRING;
    return r->inside ? 1 : value_reader_end(r, 1);
}

static size_t value_read_bare_key(ct_value_reader *r, char c, ct_text *out) {
    if (c == ':' && r->n) {
        value_write_comma(r, out);
        ct__textf(out, "\"%.*s\"", (int)r->n, r->token);
        r->n = 0;
        r->key = true;
        return value_reader_end(r, 0);
    }
    if ((unsigned char)c <= ' ' || strchr("\"\\,{}[]<>", c) || r->n + 1 == sizeof r->token)
        return value_reader_fail(r);
    r->token[r->n++] = c;
    return 1;
}

// ------------------------------------------------------------------------------------------- words

// A JSON number within the range of a double.
static bool value_is_number(const char *s) {
    const char *at = s + (*s == '-');
    const size_t integer_digits = strspn(at, "0123456789");
    if (!integer_digits || (integer_digits > 1 && *at == '0')) return false;
    at += integer_digits;
    if (*at == '.') {
        const size_t digits = strspn(at + 1, "0123456789");
        if (!digits) return false;
        at += 1 + digits;
    }
    if (*at == 'e' || *at == 'E') {
        at += 1 + (at[1] == '+' || at[1] == '-');
        const size_t digits = strspn(at, "0123456789");
        if (!digits) return false;
        at += digits;
    }
    if (*at) return false;
    CT_DEFAULT_ENV;
    return isfinite(strtod(s, NULL));
}

static bool value_is_word_byte(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '+' || c == '.';
}

static size_t value_read_word(ct_value_reader *r, char c, ct_text *out) {
    static const char *const words[][2] = {
        {"true", "true"}, {"false", "false"}, {"null", "null"},
        {"True", "true"}, {"False", "false"}, {"None", "null"},
    };
    if (value_is_word_byte(c)) {
        if (r->n + 1 == sizeof r->token) return value_reader_fail(r);
        r->token[r->n++] = c;
        return 1;
    }
    const char *word = NULL;
    r->token[r->n] = '\0';
    for (int i = 0; i < (r->style == CT_VALUE_PYTHON ? 6 : 3); i++)
        if (strcmp(r->token, words[i][0]) == 0) word = words[i][1];
    if (!word && value_is_number(r->token)) word = r->token;
    if (!word) return value_reader_fail(r);
    ct__text_add(out, word);
    r->n = 0;
    return value_reader_end(r, 0);
}

// --------------------------------------------------------------------------------------- structure

static size_t value_close_bracket(ct_value_reader *r, char c, ct_text *out) {
    const char open = c == '}' ? '{' : c == ']' ? '[' : '\0';
    if (!r->depth || r->open[r->depth - 1] != open) return value_reader_fail(r);
    r->depth--;
    r->comma = 0;
    ct__text_bytes(out, &c, 1);
    return value_reader_end(r, 1);
}

static size_t value_begin_string(ct_value_reader *r, char c, bool key, ct_text *out) {
    if (r->style == CT_VALUE_GEMMA) {
        r->key = key;
        if (c == '<') return value_begin_token(r, CT_VALUE_QUOTE, c, 1);
        return key ? value_begin_token(r, CT_VALUE_BARE, c, 0) : value_reader_fail(r);
    }
    if (c != '"' && !(c == '\'' && r->style == CT_VALUE_PYTHON)) return value_reader_fail(r);
    value_write_comma(r, out);
    ct__text_add(out, "\"");
    r->quote = c;
    r->key = key;
    r->state = CT_VALUE_STRING;
    return 1;
}

static size_t value_begin_value(ct_value_reader *r, char c, ct_text *out) {
    if (c == '"' || c == '\'' || c == '<') return value_begin_string(r, c, false, out);
    if (c == '{' || c == '[') {
        if (r->depth == sizeof r->open) return value_reader_fail(r);
        value_write_comma(r, out);
        ct__text_bytes(out, &c, 1);
        r->open[r->depth++] = c;
        r->state = c == '{' ? CT_VALUE_KEYS : CT_VALUE_FIRST;
        return 1;
    }
    if (!value_is_word_byte(c)) return value_reader_fail(r);
    value_write_comma(r, out);
    r->state = CT_VALUE_WORD;
    return 0;
}

static size_t value_after_value(ct_value_reader *r, char c, ct_text *out) {
    if (c != ',') return value_close_bracket(r, c, out);
    if (r->style != CT_VALUE_JSON)
        r->comma = 1;
    else
        ct__text_add(out, ",");
    r->state = r->open[r->depth - 1] == '{' ? CT_VALUE_KEY : CT_VALUE_BEGINS;
    return 1;
}

static size_t value_read_structure(ct_value_reader *r, char c, ct_text *out) {
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') {
        if (r->style == CT_VALUE_JSON) ct__text_bytes(out, &c, 1);
        if (r->comma) r->comma++;
        return 1;
    }
    switch (r->state) {
    case CT_VALUE_FIRST:
        return c == ']' ? value_close_bracket(r, c, out) : value_begin_value(r, c, out);
    case CT_VALUE_KEYS:
        return c == '}' ? value_close_bracket(r, c, out) : value_begin_string(r, c, true, out);
    case CT_VALUE_KEY:
        return r->comma && c == '}' ? value_close_bracket(r, c, out)
                                    : value_begin_string(r, c, true, out);
    case CT_VALUE_COLON:
        if (c != ':') return value_reader_fail(r);
        ct__text_add(out, r->style == CT_VALUE_JSON ? ":" : ": ");
        r->state = CT_VALUE_BEGINS;
        return 1;
    case CT_VALUE_AFTER: return value_after_value(r, c, out);
    default: // CT_VALUE_BEGINS
        return r->comma && c == ']' ? value_close_bracket(r, c, out) : value_begin_value(r, c, out);
    }
}

size_t ct__value_read(ct_value_reader *r, const char *s, size_t n, ct_text *out) {
    size_t i = 0;
    while (i < n && r->state < CT_VALUE_DONE) switch (r->state) {
        case CT_VALUE_STRING: i += value_read_string(r, s + i, n - i, out); break;
        case CT_VALUE_ESCAPE: i += value_read_escape(r, s[i], out); break;
        case CT_VALUE_WORD: i += value_read_word(r, s[i], out); break;
        case CT_VALUE_QUOTE: i += value_read_quote(r, s[i], out); break;
        case CT_VALUE_BARE: i += value_read_bare_key(r, s[i], out); break;
        default: i += value_read_structure(r, s[i], out);
        }
    return i;
}
