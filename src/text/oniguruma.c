// Translates regular expressions from Oniguruma's dialect, that of tokenizer.json, to PCRE2's.
#include <stdio.h>
#include <string.h>

#include "text/text.h"

enum { MAX_DEPTH = 64, MAX_NESTED_CLASSES = 8, MAX_STACKED = 16 };
#define NO_ATOM SIZE_MAX

typedef struct dialect {
    const char *label, *p;
    size_t n, i;
    bool is_oniguruma; // else tiktoken's dialect, which differs from PCRE2's in classes only
    ct_text *out;
    ct_err *err;
    size_t atom;  // offset in `out` of what a quantifier would repeat
    int repeated; // quantifiers of the atom so far
    size_t open[MAX_DEPTH];
    int closers[MAX_DEPTH + 1], depth; // closers: of groups that options have opened
    bool extended[MAX_DEPTH + 1]; // (?x) is on in the group: whitespace and comments are ignored
} dialect;

static bool dialect_refuse(dialect *d, size_t at, const char *what) {
    return ct__err(d->err, CT_E_UNSUPPORTED, CT_NOWHERE, d->label,
                   "the pattern has %s, at byte %zu of %zu", what, at, d->n);
}

// ----------------------------------------------------------------------------------------- classes

static const char space_class[] = "\\p{Z}\\t-\\r\\x85",
                  word_class[] = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}", hex_class[] = "0-9a-fA-F";

// The contents of an escaped class; `complement`: the class is all other characters. NULL: the same
// as in PCRE2.
static const char *dialect_escaped_class(char c, bool *complement) {
    *complement = c == 'S' || c == 'W' || c == 'H';
    switch (c) {
    case 's':
    case 'S': return space_class; // PCRE2's includes U+180E
    case 'w':
    case 'W': return word_class; // PCRE2's includes all numbers
    case 'h':
    case 'H': return hex_class; // PCRE2's is horizontal whitespace
    case 'v': return "\\x0b";   // PCRE2's is any vertical whitespace
    default: return NULL;
    }
}

static const struct posix_class {
    const char *name, *contents;
} dialect_posix_classes[] = {{"alpha", "\\p{Alphabetic}"}, {"alnum", "\\p{Alphabetic}\\p{Nd}"},
                             {"upper", "\\p{Uppercase}"},  {"lower", "\\p{Lowercase}"},
                             {"word", word_class},         {"space", space_class},
                             {"blank", "\\p{Zs}\\t"},      {"digit", "\\p{Nd}"},
                             {"punct", "\\p{P}\\p{S}"},    {"xdigit", hex_class}};

// Translates [:alpha:] at p[i] == '[' and returns its length; 0: not a POSIX class.
static size_t dialect_posix(const dialect *d, ct_text *items, ct_text *nested) {
    const char *begin = d->p + d->i + 2, *end = NULL;
    const size_t left = d->n - d->i;
    if (left < 5 || d->p[d->i + 1] != ':') return 0;
    for (size_t k = 0; k + 1 < left - 2 && k < 20 && !end; k++)
        if (begin[k] == ':' && begin[k + 1] == ']') end = begin + k;
    if (!end) return 0;
    const bool complement = *begin == '^';
    const char *name = begin + complement;
    for (size_t k = 0; k < sizeof dialect_posix_classes / sizeof *dialect_posix_classes; k++) {
        const struct posix_class *c = &dialect_posix_classes[k];
        if (strlen(c->name) != (size_t)(end - name) || memcmp(c->name, name, (size_t)(end - name)))
            continue;
        if (complement)
            ct__textf(nested, "|[^%s]", c->contents);
        else
            ct__text_add(items, c->contents);
        return (size_t)(end + 2 - (d->p + d->i));
    }
    ct__text_bytes(items, d->p + d->i, (size_t)(end + 2 - (d->p + d->i)));
    return (size_t)(end + 2 - (d->p + d->i));
}

// Translates \u0041 to \x{41}. 0: not four digits.
static size_t dialect_code(const dialect *d, ct_text *out) {
    size_t digits = 0;
    while (digits < 4 && d->i + 2 + digits < d->n &&
           strchr("0123456789abcdefABCDEF", d->p[d->i + 2 + digits]))
        digits++;
    if (digits == 4) ct__textf(out, "\\x{%.4s}", d->p + d->i + 2);
    return digits == 4 ? 6 : 0;
}

static void dialect_class_escape(dialect *d, ct_text *items, ct_text *nested) {
    const char c = d->p[d->i + 1];
    bool complement;
    const char *known = dialect_escaped_class(c, &complement);
    const size_t code = c == 'u' ? dialect_code(d, items) : 0;
    if (code) {
        d->i += code;
        return;
    }
    if (known && complement && c == 'S')
        ct__text_add(items, "\\S"); // [\s\S] is common
    else if (known && complement)
        ct__textf(nested, "|[^%s]", known);
    else if (known)
        ct__text_add(items, known);
    else if (d->is_oniguruma && strchr("ABCEFGIJKLMNOQRTXYZgijkmoqyz", c))
        ct__text_bytes(items, &c, 1); // a literal letter
    else
        ct__text_bytes(items, d->p + d->i, 2);
    d->i += 2;
}

static bool dialect_class(dialect *d, ct_text *out, int level);

// Translates one operand of &&: adjacent items, up to '&&' or ']'.
static bool dialect_class_operand(dialect *d, ct_text *items, ct_text *nested, bool first,
                                  int level) {
    if (first && d->i < d->n && d->p[d->i] == ']') {
        ct__text_add(items, "\\]");
        d->i++;
    }
    while (d->i < d->n && d->p[d->i] != ']') {
        const char c = d->p[d->i];
        size_t used;
        if (c == '&' && d->i + 1 < d->n && d->p[d->i + 1] == '&') return true;
        if (c == '\\' && d->i + 1 < d->n) {
            dialect_class_escape(d, items, nested);
        } else if (c == '[' && (used = dialect_posix(d, items, nested)) != 0) {
            d->i += used;
        } else if (c == '[') {
            ct__text_add(nested, "|");
            if (!dialect_class(d, nested, level + 1)) return false;
        } else {
            if (c == '^' && !items->n) ct__text_add(items, "\\");
            ct__text_bytes(items, &c, 1);
            d->i++;
        }
    }
    return true;
}

static void dialect_add_operand(ct_text *out, const ct_text *items, const ct_text *nested) {
    if (!items->n && !nested->n)
        ct__text_add(out, "(?!)"); // an empty operand matches nothing
    else if (!nested->n)
        ct__textf(out, "[%s]", items->s);
    else if (!items->n)
        ct__textf(out, "(?:%s)", nested->s + 1);
    else
        ct__textf(out, "(?:[%s]%s)", items->s, nested->s);
}

// Translates the class at p[i] == '[' to an expression that matches one of its characters. Nested
// classes become alternatives; intersections (&&) become lookaheads.
static bool dialect_class(dialect *d, ct_text *out, int level) {
    const size_t begin = d->i++;
    const bool negated = d->i < d->n && d->p[d->i] == '^';
    ct_text all = {0}, items = {0}, nested = {0};
    bool ok = level < MAX_NESTED_CLASSES, ended = false, simple = false;
    if (negated) d->i++;
    for (int operands = 0; ok && !ended; operands++) {
        items.n = nested.n = 0;
        ok = dialect_class_operand(d, &items, &nested, operands == 0, level) && d->i < d->n;
        if (!ok) break;
        ended = d->p[d->i] == ']';
        d->i += ended ? 1 : 2;
        simple = ended && !operands && !nested.n;
        if (simple) break;
        ct__text_add(&all, operands || !ended ? "(?=" : "");
        dialect_add_operand(&all, &items, &nested);
        ct__text_add(&all, operands || !ended ? ")" : "");
        if (ended && operands) ct__text_add(&all, "(?s:.)");
    }
    if (ok && simple)
        ct__textf(out, "[%s%s]", negated ? "^" : "", items.s ? items.s : "");
    else if (ok)
        ct__textf(out, negated ? "(?:(?!%s)(?s:.))" : "(?:%s)", all.s ? all.s : "");
    out->failed |= all.failed | items.failed | nested.failed;
    ct__text_free(&all);
    ct__text_free(&items);
    ct__text_free(&nested);
    if (ok || d->err->code) return ok;
    return dialect_refuse(d, begin,
                          level < MAX_NESTED_CLASSES ? "a class that does not end"
                                                     : "more than 8 classes in each other");
}

// ----------------------------------------------------------------------------------------- escapes

// The length of \p{...}, \x41, \k<name>, \101 or \cA: a quantifier repeats the whole escape.
static size_t dialect_escape_length(const dialect *d) {
    const char *p = d->p + d->i, c = p[1];
    const size_t left = d->n - d->i;
    size_t n = 2;
    const char *end = NULL;
    if (left > 2 && strchr("pPxokg", c) && p[2] == '{') end = memchr(p, '}', left);
    if (left > 2 && strchr("kg", c) && p[2] == '<') end = memchr(p, '>', left);
    if (left > 3 && strchr("kg", c) && p[2] == '\'') end = memchr(p + 3, '\'', left - 3);
    if (end) return (size_t)(end - p) + 1;
    const char *digits = c == 'x' ? "0123456789abcdefABCDEF" : "0123456789";
    if (c == 'x' || (c >= '0' && c <= '9'))
        while (n < left && n < 4 && strchr(digits, p[n])) n++;
    return c == 'c' && left > 2 ? 3 : n;
}

static void dialect_escape(dialect *d) {
    const char c = d->p[d->i + 1];
    bool complement;
    const char *known = dialect_escaped_class(c, &complement);
    const size_t code = c == 'u' ? dialect_code(d, d->out) : 0;
    if (code) {
        d->i += code;
        return;
    }
    // Outside of a class, \w also matches the six superscript digits and fractions of Latin-1.
    const bool latin = d->is_oniguruma && (c == 'w' || c == 'W');
    if (known) {
        ct__textf(d->out, "[%s%s%s]", complement ? "^" : "", known,
                  latin ? "\\xb2\\xb3\\xb9\\xbc-\\xbe" : "");
    } else if (d->is_oniguruma && c == 'O') {
        ct__text_add(d->out, "(?s:.)");
    } else if (d->is_oniguruma && (c == 'Q' || c == 'E')) {
        ct__text_bytes(d->out, &c, 1); // not a quotation
    } else {
        const size_t n = dialect_escape_length(d);
        ct__text_bytes(d->out, d->p + d->i, n);
        d->i += n;
        return;
    }
    d->i += 2;
}

// ------------------------------------------------------------------------------------------ groups

// Translates the options after "(?", as far as they are Oniguruma's. Its m is PCRE2's s, and "(?i)"
// opens a group of its own that holds all alternatives up to the end of the enclosing group.
static bool dialect_options(dialect *d) {
    const size_t begin = d->i;
    bool extended = d->extended[d->depth], on = true;
    char options[16] = "", what[64];
    size_t n = 0, at = begin + 2;
    for (; at < d->n && n < sizeof options - 1 && strchr("imx-", d->p[at]); at++) {
        options[n++] = d->p[at] == 'm' ? 's' : d->p[at];
        on = on && d->p[at] != '-';
        if (d->p[at] == 'x') extended = on;
    }
    if (!n || at >= d->n || (d->p[at] != ')' && d->p[at] != ':')) {
        char shown[8] = {at < d->n && (d->p[at] & 0x80) == 0 && d->p[at] > ' ' ? d->p[at] : '.'};
        snprintf(what, sizeof what, "a group \"(?%.*s%s\" that is not followed", (int)n,
                 d->p + begin + 2, shown);
        return dialect_refuse(d, begin, what);
    }
    if (d->p[at] == ':') {
        if (d->depth == MAX_DEPTH)
            return dialect_refuse(d, begin, "more than 64 groups in each other");
        d->open[d->depth++] = d->out->n;
        d->closers[d->depth] = 0;
    } else if (d->closers[d->depth]++ == MAX_STACKED) {
        return dialect_refuse(d, begin, "more than 16 options one after the other");
    }
    d->extended[d->depth] = extended;
    ct__textf(d->out, "(?%s:", options);
    d->i = at + 1;
    d->atom = NO_ATOM;
    return true;
}

static bool dialect_open(dialect *d) {
    const bool special = d->i + 2 < d->n && d->p[d->i + 1] == '?';
    const char kind = special ? d->p[d->i + 2] : '\0';
    if (d->is_oniguruma && d->i + 1 < d->n && d->p[d->i + 1] == '*')
        return dialect_refuse(d, d->i, "a group \"(*\" that is not followed");
    if (special && kind == '#') { // a comment
        const char *end = memchr(d->p + d->i, ')', d->n - d->i);
        d->i = end ? (size_t)(end - d->p) + 1 : d->n;
        return end || dialect_refuse(d, d->i, "a comment that does not end");
    }
    if (d->is_oniguruma && special && !strchr(":=!><'(", kind)) return dialect_options(d);
    if (d->depth == MAX_DEPTH) return dialect_refuse(d, d->i, "more than 64 groups in each other");
    d->open[d->depth++] = d->out->n;
    d->closers[d->depth] = 0;
    d->extended[d->depth] = d->extended[d->depth - 1];
    ct__text_add(d->out, special ? "(?" : "(");
    d->i += special ? 2 : 1;
    if (special && strchr(":=!><'", kind)) ct__text_bytes(d->out, d->p + d->i++, 1);
    d->atom = NO_ATOM;
    return true;
}

static void dialect_close(dialect *d) {
    for (int k = 0; k < d->closers[d->depth]; k++) ct__text_add(d->out, ")");
    d->closers[d->depth] = 0;
    d->atom = d->depth ? d->open[--d->depth] : NO_ATOM;
    ct__text_add(d->out, ")");
    d->i++;
    d->repeated = 0;
}

// ------------------------------------------------------------------------------------- quantifiers

// Returns the length of {n}, {n,}, {n,m} or {,m} at p[i] == '{'; 0: a literal brace.
static size_t dialect_interval_length(const dialect *d, bool *exact, bool *from_none) {
    size_t at = d->i + 1, digits = 0, after = 0;
    while (at < d->n && d->p[at] >= '0' && d->p[at] <= '9') at++, digits++;
    *exact = at < d->n && d->p[at] == '}';
    if (!*exact) {
        if (at >= d->n || d->p[at] != ',') return 0;
        for (at++; at < d->n && d->p[at] >= '0' && d->p[at] <= '9'; at++) after++;
    }
    *from_none = !digits;
    return at < d->n && d->p[at] == '}' && digits + after ? at + 1 - d->i : 0;
}

// Wraps the repeated atom in a group for the next quantifier: PCRE2 allows no second one.
static bool dialect_group_atom(dialect *d) {
    static const char begin[] = "(?:";
    if (d->repeated > MAX_STACKED)
        return dialect_refuse(d, d->i, "more than 16 quantifiers one after the other");
    ct__text_add(d->out, "   ");
    if (!d->out->failed) {
        char *at = d->out->s + d->atom;
        memmove(at + 3, at, d->out->n - 3 - d->atom);
        memcpy(at, begin, 3);
    }
    ct__text_add(d->out, ")");
    return true;
}

// Translates *, +, ? or an interval, with its lazy or possessive suffix. An interval is never
// possessive, and {n}? means n times or not at all.
static bool dialect_quantifier(dialect *d) {
    bool exact = false, from_none = false;
    const bool interval = d->p[d->i] == '{';
    const size_t length = interval ? dialect_interval_length(d, &exact, &from_none) : 1;
    if (!length || d->atom == NO_ATOM) {
        d->atom = d->out->n;
        d->repeated = 0;
        ct__text_bytes(d->out, d->p + d->i++, 1);
        return true;
    }
    if (d->repeated++ && !dialect_group_atom(d)) return false;
    ct__text_add(d->out, from_none ? "{0" : "");
    ct__text_bytes(d->out, d->p + d->i + from_none, length - from_none);
    d->i += length;
    const char next = d->i < d->n ? d->p[d->i] : '\0';
    if ((next == '?' && !exact) || (next == '+' && !interval)) {
        ct__text_bytes(d->out, &next, 1);
        d->i++;
    }
    return true;
}

// ---------------------------------------------------------------------------------------- patterns

static bool dialect_next(dialect *d) {
    const char c = d->p[d->i];
    const size_t begin = d->out->n;
    if (d->extended[d->depth] && (c == '#' || strchr(" \t\n\r\f\v", c))) {
        const char *end = c == '#' ? memchr(d->p + d->i, '\n', d->n - d->i) : d->p + d->i;
        d->i = end ? (size_t)(end - d->p) + 1 : d->n;
        return true;
    }
    if (c == '(') return dialect_open(d);
    if (d->is_oniguruma && strchr("*+?{", c)) return dialect_quantifier(d);
    if (c == ')') {
        dialect_close(d);
        return true;
    }
    d->repeated = 0;
    d->atom = c == '|' ? NO_ATOM : begin;
    if (c == '[') return dialect_class(d, d->out, 0);
    if (c == '\\' && d->i + 1 < d->n) {
        dialect_escape(d);
        return true;
    }
    do ct__text_bytes(d->out, d->p + d->i++, 1);
    while (d->i < d->n && (d->p[d->i] & 0xc0) == 0x80);
    return true;
}

bool ct__oniguruma_to_pcre2(const char *label, const char *p, size_t n, bool is_oniguruma,
                            ct_text *out, ct_err *err) {
    if (memchr(p, '\0', n))
        return ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, label, "the pattern has a zero byte");
    dialect d = {.label = label,
                 .p = p,
                 .n = n,
                 .is_oniguruma = is_oniguruma,
                 .out = out,
                 .err = err,
                 .atom = NO_ATOM};
    while (d.i < n)
        if (!dialect_next(&d)) return false;
    for (int k = 0; k < d.closers[d.depth]; k++) ct__text_add(out, ")");
    return true;
}
