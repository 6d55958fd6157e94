// The lexer of templates: text to tokens. A block tag takes the line end after it, and the
// whitespace between the start of its line and itself.
#define _GNU_SOURCE // memrchr
#include <ctype.h>
#include <string.h>

#include "text/jinja_ast.h"

typedef struct jinja_lexer {
    ct_jinja_machine *m;
    const char *s;
    size_t n, at;
    ct_jinja_token *tokens;
    size_t count, cap;
    bool line_starts; // the last tag ended with a line end
} jinja_lexer;

static void lex_add_token(jinja_lexer *x, ct_jinja_token_kind kind, uint16_t op, ct_jv value) {
    if (x->count == x->cap) {
        x->cap = x->cap ? 2 * x->cap : 64;
        ct_jinja_token *bigger = ct__jinja_alloc(x->m, x->cap, sizeof *bigger);
        if (x->count) memcpy(bigger, x->tokens, x->count * sizeof *bigger);
        x->tokens = bigger;
    }
    x->tokens[x->count++] =
        (ct_jinja_token){.kind = kind, .line = x->m->line, .op = op, .value = value};
}

static bool lex_at_text(const jinja_lexer *x, size_t at, const char *word) {
    size_t n = strlen(word);
    return at <= x->n && x->n - at >= n && memcmp(x->s + at, word, n) == 0;
}

static void lex_move_to(jinja_lexer *x, size_t at) {
    for (; x->at < at; x->at++) x->m->line += x->s[x->at] == '\n';
}

static bool lex_is_space(const jinja_lexer *x, size_t at, size_t *after) {
    ct_jv_string s = {.s = x->s, .n = x->n};
    if (at >= x->n) return false;
    *after = at;
    return ct__uc_class(ct__jv_next_char(&s, after)) & CT_UC_SPACE;
}

static size_t lex_skip_space(const jinja_lexer *x, size_t at) {
    size_t after;
    while (lex_is_space(x, at, &after)) at = after;
    return at;
}

// Adds the text before a tag at `end` whose opening delimiter is followed by `mark`: "-" strips all
// whitespace, "+" none; without a mark, a tag other than {{ strips that of its own line.
static void lex_add_data(jinja_lexer *x, size_t from, size_t end, char mark, bool print) {
    ct_jv text = ct__jv_borrow_string(x->m, x->s + from, end - from);
    if (mark == '-') {
        text = ct__jv_strip(x->m, text, (ct_jv){0}, false, true);
    } else if (mark != '+' && !print) {
        const char *last = memrchr(text.s->s, '\n', text.s->n);
        size_t line = last ? (size_t)(last - text.s->s) + 1 : 0;
        ct_jv tail = ct__jv_borrow_string(x->m, text.s->s + line, text.s->n - line);
        bool only_space = ct__jv_strip(x->m, tail, (ct_jv){0}, true, true).s->n == 0;
        if (only_space && (line > 0 || x->line_starts))
            text = ct__jv_borrow_string(x->m, text.s->s, line);
    }
    if (text.s->n) lex_add_token(x, JT_DATA, 0, text);
    lex_move_to(x, end);
}

// The offset after the delimiter that ends a tag at `at`; 0: none. `trims`: a line end belongs to
// it.
static size_t lex_tag_end(const jinja_lexer *x, size_t at, const char *delimiter, bool trims) {
    if (lex_at_text(x, at, "-") && lex_at_text(x, at + 1, delimiter))
        return lex_skip_space(x, at + 3);
    if (lex_at_text(x, at, delimiter)) return at + 2 + (trims && lex_at_text(x, at + 2, "\n"));
    if (trims && lex_at_text(x, at, "+") && lex_at_text(x, at + 1, delimiter)) return at + 3;
    return 0;
}

static void lex_end_tag(jinja_lexer *x, size_t at) {
    lex_move_to(x, at);
    x->line_starts = x->at > 0 && x->s[x->at - 1] == '\n';
}

static void lex_skip_comment(jinja_lexer *x) {
    for (size_t at = x->at + 2; at < x->n; at++) {
        size_t end = lex_tag_end(x, at, "#}", true);
        if (!end) continue;
        lex_end_tag(x, end);
        return;
    }
    ct__jinja_fail(x->m, "a comment has no end: #} is missing");
}

// The offset after "{%", its mark and the word; 0: something else is there.
static size_t lex_word_tag(const jinja_lexer *x, size_t at, const char *word) {
    if (!lex_at_text(x, at, "{%")) return 0;
    at += 2;
    if (lex_at_text(x, at, "-") || lex_at_text(x, at, "+")) at++;
    at = lex_skip_space(x, at);
    return lex_at_text(x, at, word) ? lex_skip_space(x, at + strlen(word)) : 0;
}

// True if a raw block begins here; all of it was read then.
static bool lex_raw_block(jinja_lexer *x) {
    size_t at = lex_word_tag(x, x->at, "raw"), end;
    if (!at || !(end = lex_tag_end(x, at, "%}", false))) return false;
    lex_end_tag(x, end);
    size_t from = x->at;
    for (at = from; at < x->n; at++) {
        size_t last = lex_word_tag(x, at, "endraw");
        if (!last || !(end = lex_tag_end(x, last, "%}", true))) continue;
        char mark = x->s[at + 2];
        lex_add_data(x, from, at, mark, false);
        lex_end_tag(x, end);
        return true;
    }
    ct__jinja_fail(x->m, "a raw block has no end: {%% endraw %%} is missing");
}

// ----------------------------------------------------------------------------------------- strings

static uint32_t lex_hex_escape(jinja_lexer *x, size_t *at, size_t end, int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; i++, ++*at) {
        unsigned char c = *at < end ? (unsigned char)x->s[*at] : 0;
        if (!isxdigit(c)) ct__jinja_fail(x->m, "an escape of a string lacks digits");
        value = value * 16 + (uint32_t)(isdigit(c) ? c - '0' : tolower(c) - 'a' + 10);
    }
    if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        ct__jinja_fail(x->m, "an escape of a string is no character");
    return value;
}

static void lex_escape(jinja_lexer *x, ct_jinja_writer *w, size_t *at, size_t end) {
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    char c = x->s[(*at)++];
    const char *found = c ? strchr(from, c) : NULL;
    if (found) {
        ct__jinja_write(w, to + (found - from), 1);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        ct__jinja_write_char(w, lex_hex_escape(x, at, end, c == 'x' ? 2 : c == 'u' ? 4 : 8));
    } else if (c >= '0' && c <= '7') {
        uint32_t value = (uint32_t)(c - '0');
        for (int i = 0; i < 2 && *at < end && x->s[*at] >= '0' && x->s[*at] <= '7'; i++)
            value = value * 8 + (uint32_t)(x->s[(*at)++] - '0');
        ct__jinja_write_char(w, value);
    } else if (c != '\n') { // a line end is dropped with its backslash
        if (c == 'N') ct__jinja_fail(x->m, "escapes by a character's name are not known");
        ct__jinja_write(w, "\\", 1);
        ct__jinja_write(w, &c, 1);
    }
}

static void lex_string(jinja_lexer *x) {
    char quote = x->s[x->at];
    size_t from = x->at + 1, end = from;
    while (end < x->n && x->s[end] != quote) end += x->s[end] == '\\' ? 2 : 1;
    if (end >= x->n) ct__jinja_fail(x->m, "a string has no end: %c is missing", quote);
    ct_jinja_writer w = {.m = x->m};
    for (size_t at = from; at < end;) {
        size_t plain = at;
        while (at < end && x->s[at] != '\\') at++;
        ct__jinja_write(&w, x->s + plain, at - plain);
        if (at < end) lex_escape(x, &w, (at++, &at), end);
    }
    lex_add_token(x, JT_STRING, 0, ct__jinja_writer_string(&w));
    lex_move_to(x, end + 1);
}

// ------------------------------------------------------------------------------- numbers and names

// The offset after digits, with single underscores between them.
static size_t lex_digits_end(const jinja_lexer *x, size_t at) {
    if (at >= x->n || !isdigit((unsigned char)x->s[at])) return at;
    while (at < x->n &&
           (isdigit((unsigned char)x->s[at]) ||
            (x->s[at] == '_' && at + 1 < x->n && isdigit((unsigned char)x->s[at + 1]))))
        at++;
    return at;
}

static void lex_number(jinja_lexer *x) {
    size_t from = x->at, end = lex_digits_end(x, from), at;
    bool real = false, after_dot = from > 0 && x->s[from - 1] == '.'; // as in a.1.2
    if (x->s[from] == '0' && from + 1 < x->n && strchr("xXoObB", x->s[from + 1]) &&
        x->s[from + 1]) {
        for (end = from + 2; end < x->n && (isalnum((unsigned char)x->s[end]) || x->s[end] == '_');)
            end++;
    } else if (!after_dot) {
        if (lex_at_text(x, end, ".") && (at = lex_digits_end(x, end + 1)) > end + 1)
            end = at, real = true;
        if (lex_at_text(x, end, "e") || lex_at_text(x, end, "E")) {
            size_t first = end + 1 + (lex_at_text(x, end + 1, "+") || lex_at_text(x, end + 1, "-"));
            if ((at = lex_digits_end(x, first)) > first) end = at, real = true;
        }
    }
    ct_jv text = ct__jv_borrow_string(x->m, x->s + from, end - from);
    ct_jv value = real ? ct__jv_parse_float(x->m, text) : ct__jv_parse_int(x->m, text, 0);
    if (value.kind == JV_MISSING)
        ct__jinja_fail(x->m, "%s is no number", ct__jinja_printable(x->m, text));
    lex_add_token(x, JT_NUMBER, 0, value);
    lex_move_to(x, end);
}

static bool lex_name(jinja_lexer *x) {
    ct_jv_string s = {.s = x->s, .n = x->n};
    size_t end = x->at;
    while (end < x->n) {
        size_t after = end;
        uint32_t cp = ct__jv_next_char(&s, &after);
        if (cp != '_' && !(ct__uc_class(cp) & CT_UC_WORD)) break;
        end = after;
    }
    if (end == x->at) return false;
    lex_add_token(x, JT_NAME, 0, ct__jv_borrow_string(x->m, x->s + x->at, end - x->at));
    lex_move_to(x, end);
    return true;
}

static void lex_operator(jinja_lexer *x, char *open, size_t *depth) {
    enum { MAX_OPEN = 200 };
    static const char *const twos[] = {"//", "**", "==", "!=", ">=", "<="};
    char c = x->s[x->at];
    for (size_t i = 0; i < sizeof twos / sizeof *twos; i++)
        if (lex_at_text(x, x->at, twos[i])) {
            lex_add_token(x, JT_OPERATOR, (uint16_t)(twos[i][0] * 256 + twos[i][1]), ct__jv_none());
            lex_move_to(x, x->at + 2);
            return;
        }
    if (!c || !strchr("+-/*%~[](){}><=.:|,;", c))
        ct__jinja_fail(
            x->m, "unexpected character %s",
            ct__jinja_printable(
                x->m, ct__jv_substring(x->m, ct__jv_borrow_string(x->m, x->s + x->at, x->n - x->at),
                                       0, 1)));
    if (strchr("[({", c)) {
        if (*depth == MAX_OPEN)
            ct__jinja_fail(x->m, "more than %d brackets inside each other", MAX_OPEN);
        open[(*depth)++] = c == '[' ? ']' : c == '(' ? ')' : '}';
    } else if (strchr("])}", c)) {
        if (!*depth || open[*depth - 1] != c) ct__jinja_fail(x->m, "'%c' closes nothing", c);
        --*depth;
    }
    lex_add_token(x, JT_OPERATOR, (uint16_t)c, ct__jv_none());
    lex_move_to(x, x->at + 1);
}

// The tokens between {% and %}, or {{ and }}.
static void lex_tag_tokens(jinja_lexer *x, bool print) {
    char open[200];
    size_t depth = 0, end;
    for (;;) {
        lex_move_to(x, lex_skip_space(x, x->at));
        if (x->at >= x->n)
            ct__jinja_fail(x->m, "a tag has no end: %s is missing", print ? "}}" : "%}");
        end = depth ? 0 : lex_tag_end(x, x->at, print ? "}}" : "%}", !print);
        if (end) {
            lex_add_token(x, print ? JT_PRINT_END : JT_BLOCK_END, 0, ct__jv_none());
            lex_end_tag(x, end);
            return;
        }
        char c = x->s[x->at];
        if (c == '"' || c == '\'')
            lex_string(x);
        else if (isdigit((unsigned char)c))
            lex_number(x);
        else if (!lex_name(x))
            lex_operator(x, open, &depth);
    }
}

ct_jinja_token *ct__jinja_lex(ct_jinja_machine *m, const char *text, size_t n) {
    // Line ends become \n, and the last one of the template is dropped.
    char *s = ct__jinja_alloc(m, n + 1, 1);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\r' && i + 1 < n && text[i + 1] == '\n') continue;
        s[kept++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (kept && s[kept - 1] == '\n') kept--;
    jinja_lexer x = {.m = m, .s = s, .n = kept, .line_starts = true};
    m->line = 1;
    size_t from = 0;
    for (size_t at = 0; at <= x.n; at++) {
        bool tag = at + 1 < x.n && s[at] == '{' && strchr("{%#", s[at + 1]) && s[at + 1];
        if (!tag && at < x.n) continue;
        if (!tag) {
            lex_add_data(&x, from, x.n, '+', false);
            break;
        }
        bool print = s[at + 1] == '{';
        char mark = at + 2 < x.n ? s[at + 2] : 0;
        lex_add_data(&x, from, at, mark, print);
        if (s[at + 1] == '#') {
            lex_skip_comment(&x);
        } else if (print || !lex_raw_block(&x)) {
            lex_add_token(&x, print ? JT_PRINT_BEGIN : JT_BLOCK_BEGIN, 0, ct__jv_none());
            lex_move_to(&x, at + 2 + (mark == '-' || mark == '+'));
            lex_tag_tokens(&x, print);
        }
        from = x.at;
        at = from - 1;
    }
    lex_add_token(&x, JT_END, 0, ct__jv_none());
    return x.tokens;
}
