// The part of the prelude that kernels use. A compiler takes 30 ms to read all of it, more than most kernels take. The text
// is read once as C's preprocessor would read it, without a decision at an #if: it is cut into pieces (a directive, a
// declaration, a function, the call of a macro that makes functions), and each name that a piece makes under any condition
// is entered with it. A kernel gets all conditions and declarations, and those macros and functions that its names lead to.
#include "backend/cpu/prelude.h"

#include <ctype.h>
#include <pthread.h>
#include <string.h>

typedef struct {
    const char *s;
    size_t n;
} span;

typedef struct {
    span text;
    bool is_optional; // a function or a macro: left out where it is not used
} piece;

// #define NAME(A, B) BODY; one of several of a name where they stand under conditions.
enum { MOST_PARAMS = 10, MOST_DEPTH = 16 };
typedef struct {
    span name, params[MOST_PARAMS], body;
    int n_params; // -1: it has no parentheses
    size_t piece;
} macro;

// A definition of a name: a macro, or a piece that defines a function. The name is copied, since ## makes names that the text does not have.
typedef struct {
    const char *name;
    uint16_t length, at; // `at` in pieces or macros
    uint16_t next;       // of the same slot, from 1 on; 0: none
    bool is_macro;
} entry;

// Some 700 pieces, 200 macros, 1,100 names today. A prelude that outgrows the table is given whole, which a test would see.
enum { PIECES = 1536, MACROS = 512, ENTRIES = 2048, NAMES = 32 << 10, SLOTS = 1024 };
typedef struct {
    piece pieces[PIECES];
    macro macros[MACROS];
    entry entries[ENTRIES];
    char names[NAMES];
    uint16_t slot[SLOTS]; // the latest entry, from 1 on
    size_t n_pieces, n_macros, n_entries, n_names;
    bool failed; // a table is full, or no memory
} parts;

// ------------------------------------------------------------------------------------------ reading C

static bool starts_word(char c) { return isalpha((unsigned char)c) || c == '_'; }
static bool in_word(char c) { return isalnum((unsigned char)c) || c == '_'; }
static bool span_is(span a, const char *word) {
    return a.n == strlen(word) && memcmp(a.s, word, a.n) == 0;
}

// Past white space, comments and continued lines.
static const char *prelude_skip_blank(const char *p, const char *end) {
    while (p < end) {
        if (isspace((unsigned char)*p) || *p == '\\') {
            p++;
        } else if (end - p > 1 && p[0] == '/' && p[1] == '/') {
            while (p < end && *p != '\n') p++;
        } else if (end - p > 1 && p[0] == '/' && p[1] == '*') {
            for (p += 2; p < end && !(p[-1] == '*' && p[0] == '/'); p++) {
            }
            p += p < end;
        } else {
            break;
        }
    }
    return p;
}

static span prelude_word_at(const char *p, const char *end) {
    span word = {p, 0};
    while (p + word.n < end && in_word(p[word.n])) word.n++;
    return word;
}

// The next word from *p on, past all else; numbers and their suffixes are no words. NULL: there is none.
static span prelude_next_word(const char **p, const char *end) {
    while ((*p = prelude_skip_blank(*p, end)) < end) {
        const span word = prelude_word_at(*p, end);
        *p += word.n ? word.n : 1;
        if (word.n && starts_word(*word.s)) return word;
    }
    return (span){0};
}

// Returns the text between the parenthesis at *p and the one that closes it; moves *p after that one.
static span prelude_in_parentheses(const char **p, const char *end) {
    const char *from = ++*p;
    for (int depth = 1; *p < end; ++*p) {
        depth += (**p == '(') - (**p == ')');
        if (!depth) break;
    }
    const span inside = {from, (size_t)(*p - from)};
    *p += *p < end;
    return inside;
}

static span prelude_trimmed(const char *from, const char *end) {
    from = prelude_skip_blank(from, end);
    while (end > from && isspace((unsigned char)end[-1])) end--;
    return (span){from, (size_t)(end - from)};
}

// What stands between commas outside parentheses.
static int prelude_split(span list, span *to) {
    int n = 0, depth = 0;
    const char *from = list.s, *end = list.s + list.n;
    for (const char *p = from; p <= end && n < MOST_PARAMS; p++) {
        if (p < end) depth += (*p == '(') - (*p == ')');
        if (p < end && (*p != ',' || depth)) continue;
        to[n++] = prelude_trimmed(from, p);
        from = p + 1;
    }
    return n;
}

// ----------------------------------------------------------------------------------------- the tables

static size_t slot_of(span name) {
    return ct__hash_bytes(name.s, name.n, (ct_hash){0, 0}).lo % SLOTS;
}

static void prelude_enter(parts *t, span name, size_t at, bool is_macro) {
    const size_t slot = slot_of(name);
    t->failed = t->failed || t->n_entries == ENTRIES || t->n_names + name.n > NAMES;
    if (t->failed) return;
    char *copy = memcpy(t->names + t->n_names, name.s, name.n);
    t->n_names += name.n;
    t->entries[t->n_entries++] =
        (entry){copy, (uint16_t)name.n, (uint16_t)at, t->slot[slot], is_macro};
    t->slot[slot] = (uint16_t)t->n_entries;
}

// The next entry of the name after `last`; NULL for the first one.
static const entry *prelude_look_up(const parts *t, span name, const entry *last) {
    for (size_t at = last ? last->next : t->slot[slot_of(name)]; at; at = t->entries[at - 1].next) {
        const entry *e = &t->entries[at - 1];
        if (e->length == name.n && memcmp(e->name, name.s, name.n) == 0) return e;
    }
    return NULL;
}

// The body with arguments for parameters, pasted together where there is ##. False: no memory.
static bool prelude_substitute(const macro *m, const span *args, int n_args, ct_text *out) {
    const char *p = m->body.s, *end = p + m->body.n;
    while (p < end) {
        const span word = prelude_word_at(p, end);
        if (!word.n) {
            const bool pastes = end - p > 1 && p[0] == '#' && p[1] == '#';
            if (!pastes) ct__text_bytes(out, p, 1);
            p += pastes ? 2 : 1;
            continue;
        }
        int at = 0;
        while (at < m->n_params &&
               !(m->params[at].n == word.n && memcmp(m->params[at].s, word.s, word.n) == 0))
            at++;
        const span with = at < m->n_params ? at < n_args ? args[at] : (span){"", 0} : word;
        ct__text_bytes(out, with.s, with.n);
        p += word.n;
    }
    return !out->failed;
}

// -------------------------------------------------------------------------------------- walking a text

// What is done with the names of a text: entered where they are made, or followed where they are used.
typedef struct {
    parts *t;
    size_t piece; // making: the piece that makes them
    bool making, made;
    bool *needed; // using: by piece
    bool *raw;    // by macro: its body was followed
    bool *failed; // an allocation
} walk;

static void walk_text(walk *w, span text, int depth);

static void walk_macro(walk *w, size_t at, const span *args, int n_args, int depth) {
    const macro m = w->t->macros[at];
    if (w->needed) w->needed[m.piece] = true;
    ct_text text = {0};
    if (m.n_params >= 0 && n_args >= 0) {
        if (!prelude_substitute(&m, args, n_args, &text)) *w->failed = true;
    } else if (n_args >= 0) { // another name for a macro
        ct__text_bytes(&text, m.body.s, m.body.n);
        ct__text_add(&text, "(");
        if (n_args)
            ct__text_bytes(&text, args[0].s,
                           (size_t)(args[n_args - 1].s + args[n_args - 1].n - args[0].s));
        ct__text_add(&text, ")");
    } else if (w->raw && !w->raw[at]) {
        w->raw[at] = true;
        walk_text(w, m.body, depth + 1);
    }
    if (text.n) walk_text(w, (span){text.s, text.n}, depth + 1);
    if (text.failed) *w->failed = true;
    ct__text_free(&text);
}

static void use_piece(walk *w, size_t at) {
    if (w->needed[at]) return;
    w->needed[at] = true;
    walk_text(w, w->t->pieces[at].text, 0);
}

static void walk_word(walk *w, span word, const char *p, const char *end, int depth) {
    span args[MOST_PARAMS];
    int n_args = -1; // no parentheses follow
    const entry *e = prelude_look_up(w->t, word, NULL);
    if (e && (p = prelude_skip_blank(p, end)) < end && *p == '(')
        n_args = prelude_split(prelude_in_parentheses(&p, end), args);
    for (; e; e = prelude_look_up(w->t, word, e)) {
        if (e->is_macro)
            walk_macro(w, e->at, args, n_args, depth);
        else if (w->needed)
            use_piece(w, e->at);
    }
}

static void walk_text(walk *w, span text, int depth) {
    const char *p = text.s, *end = p + text.n;
    if (depth > MOST_DEPTH) return;
    for (span word; (word = prelude_next_word(&p, end)).s;) {
        if (!w->making || !(span_is(word, "FN") || span_is(word, "SLOW"))) {
            walk_word(w, word, p, end, depth);
            continue;
        }
        span name = {0}; // of the function: the word before the first parenthesis
        while (prelude_skip_blank(p, end) < end && *prelude_skip_blank(p, end) != '(')
            name = prelude_next_word(&p, end);
        if (name.s) prelude_enter(w->t, name, w->piece, false);
        w->made = true;
    }
}

// ----------------------------------------------------------------------------------- reading the prelude

static const char *directive_end(const char *p, const char *end) {
    while (p < end && !(*p == '\n' && p[-1] != '\\')) p++;
    return p;
}

static void read_define(parts *t, size_t at, const char *p, const char *end) {
    const span word = prelude_next_word(&p, end);
    if (!span_is(word, "define")) return;
    macro m = {.name = prelude_next_word(&p, end), .n_params = -1, .piece = at};
    if (p < end && *p == '(') m.n_params = prelude_split(prelude_in_parentheses(&p, end), m.params);
    m.body = prelude_trimmed(p, end);
    t->failed = t->failed || t->n_macros == MACROS;
    if (t->failed) return;
    t->macros[t->n_macros++] = m;
    prelude_enter(t, m.name, t->n_macros - 1, true);
    t->pieces[at].is_optional = true;
}

// A function ends with its brace, the call of a macro with its parenthesis, all else with a semicolon.
static const char *piece_end(const parts *t, const char *p, const char *end) {
    const span first = prelude_word_at(p, end);
    const bool function = span_is(first, "FN") || span_is(first, "SLOW");
    const entry *e = prelude_look_up(t, first, NULL);
    const bool call = !function && e && e->is_macro;
    int depth = 0;
    for (; p < end; p++) {
        const char *next = prelude_skip_blank(p, end);
        if (next > p) {
            p = next - 1;
            continue;
        }
        depth += (*p == '(' || *p == '{') - (*p == ')' || *p == '}');
        if (depth) continue;
        if (*p == ';' || (function && *p == '}')) return p + 1;
        if (call && *p == ')') return p + 1 + (p + 1 < end && p[1] == ';');
    }
    return end;
}

static void read_piece(parts *t, const char *p, const char *end) {
    const size_t at = t->n_pieces;
    t->failed = t->failed || at == PIECES;
    if (t->failed) return;
    t->pieces[t->n_pieces++] = (piece){{p, (size_t)(end - p)}, false};
    if (*p == '#') {
        read_define(t, at, p + 1, end);
        return;
    }
    walk w = {.t = t, .piece = at, .making = true, .failed = &t->failed};
    walk_text(&w, t->pieces[at].text, 0);
    t->pieces[at].is_optional = w.made;
}

static bool read_prelude(parts *t) {
    const char *p = ct__cpu_prelude, *end = p + strlen(p);
    while (!t->failed && (p = prelude_skip_blank(p, end)) < end) {
        const char *next = *p == '#' ? directive_end(p, end) : piece_end(t, p, end);
        read_piece(t, p, next);
        p = next;
    }
    if (t->failed) memset(t, 0, sizeof *t);
    return t->n_pieces > 0;
}

// Read at the first call; NULL: there was no memory for it.
static parts *read_parts(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static parts table;
    pthread_mutex_lock(&lock);
    const bool ok = table.n_pieces || read_prelude(&table);
    pthread_mutex_unlock(&lock);
    return ok ? &table : NULL;
}

void ct__prelude_add(ct_text *out, const char *const *kernels, size_t n) {
    parts *t = read_parts();
    bool needed[PIECES] = {false}, raw[MACROS] = {false}, failed = false;
    walk w = {.t = t, .needed = needed, .raw = raw, .failed = &failed};
    for (size_t i = 0; t && i < t->n_pieces; i++)
        if (!t->pieces[i].is_optional) use_piece(&w, i);
    for (size_t i = 0; t && i < n; i++) walk_text(&w, (span){kernels[i], strlen(kernels[i])}, 0);
    if (!t || failed) { // all of it does as well
        ct__text_add(out, ct__cpu_prelude);
        return;
    }
    for (size_t i = 0; i < t->n_pieces; i++) {
        if (!needed[i]) continue;
        ct__text_bytes(out, t->pieces[i].text.s, t->pieces[i].text.n);
        ct__text_add(out, "\n");
    }
}
