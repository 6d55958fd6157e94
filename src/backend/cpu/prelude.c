// Finds the part of the prelude that kernels use. A compiler takes 30 ms to read all of it, longer
// than most kernels take. The text is parsed once, like C's preprocessor but without evaluating any
// #if: it is cut into pieces (a directive, a declaration, a function, the call of a macro that
// defines functions), and each name that a piece defines under any condition is entered with it. A
// kernel gets all conditions and declarations, and the macros and functions that its names reach.
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
    bool is_optional; // a function or macro, left out if unused
} piece;

// #define NAME(A, B) BODY; a name has several under different conditions.
enum { MAX_PARAMS = 10, MAX_DEPTH = 16 };
typedef struct {
    span name, params[MAX_PARAMS], body;
    int n_params; // -1: no parameter list
    size_t piece;
} macro;

// A definition of a name: a macro, or a piece that defines a function. The name is copied, since ##
// makes names that the text does not have.
typedef struct {
    const char *name;
    uint16_t length, at; // `at` in pieces or macros
    uint16_t next;       // of the same slot, plus 1; 0: none
    bool is_macro;
} entry;

// Today there are about 700 pieces, 200 macros and 1,100 names. If the prelude outgrows the tables
// it is used whole, which a test detects.
enum { PIECES = 1536, MACROS = 512, ENTRIES = 2048, NAMES = 32 << 10, SLOTS = 1024 };
typedef struct {
    piece pieces[PIECES];
    macro macros[MACROS];
    entry entries[ENTRIES];
    char names[NAMES];
    uint16_t slot[SLOTS]; // the latest entry, plus 1
    size_t n_pieces, n_macros, n_entries, n_names;
    bool failed; // a table is full, or there is no memory
} parts;

// ------------------------------------------------------------------------------------------ reading C

static bool prelude_starts_word(char c) { return isalpha((unsigned char)c) || c == '_'; }
static bool prelude_is_in_word(char c) { return isalnum((unsigned char)c) || c == '_'; }
static bool prelude_span_is(span a, const char *word) {
    return a.n == strlen(word) && memcmp(a.s, word, a.n) == 0;
}

// Skips white space, comments and continued lines.
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
    while (p + word.n < end && prelude_is_in_word(p[word.n])) word.n++;
    return word;
}

// Returns the next word from *p on; numbers and their suffixes are no words. A NULL span: there is
// none.
static span prelude_next_word(const char **p, const char *end) {
    while ((*p = prelude_skip_blank(*p, end)) < end) {
        const span word = prelude_word_at(*p, end);
        *p += word.n ? word.n : 1;
        if (word.n && prelude_starts_word(*word.s)) return word;
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

// Splits a list at the commas outside of parentheses.
static int prelude_split(span list, span *to) {
    int n = 0, depth = 0;
    const char *from = list.s, *end = list.s + list.n;
    for (const char *p = from; p <= end && n < MAX_PARAMS; p++) {
        if (p < end) depth += (*p == '(') - (*p == ')');
        if (p < end && (*p != ',' || depth)) continue;
        to[n++] = prelude_trimmed(from, p);
        from = p + 1;
    }
    return n;
}

// ----------------------------------------------------------------------------------------- the tables

static size_t prelude_slot_of(span name) {
    return ct__hash_bytes(name.s, name.n, (ct_hash){0, 0}).lo % SLOTS;
}

static void prelude_enter(parts *t, span name, size_t at, bool is_macro) {
    const size_t slot = prelude_slot_of(name);
    t->failed = t->failed || t->n_entries == ENTRIES || t->n_names + name.n > NAMES;
    if (t->failed) return;
    char *copy = memcpy(t->names + t->n_names, name.s, name.n);
    t->n_names += name.n;
    t->entries[t->n_entries++] =
        (entry){copy, (uint16_t)name.n, (uint16_t)at, t->slot[slot], is_macro};
    t->slot[slot] = (uint16_t)t->n_entries;
}

// Returns the name's next entry after `last`; the first one if `last` is NULL.
static const entry *prelude_look_up(const parts *t, span name, const entry *last) {
    for (size_t at = last ? last->next : t->slot[prelude_slot_of(name)]; at;
         at = t->entries[at - 1].next) {
        const entry *e = &t->entries[at - 1];
        if (e->length == name.n && memcmp(e->name, name.s, name.n) == 0) return e;
    }
    return NULL;
}

// Substitutes arguments for parameters in the body; ## concatenates. False: no memory.
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

// Visits the names of a text: enters those that it defines, or follows those that it uses.
typedef struct {
    parts *t;
    size_t piece; // making: the piece that defines them
    bool making, made;
    bool *needed;   // using: of each piece
    bool *followed; // of each macro: its body was visited
    bool *failed;   // set if an allocation failed
} walk;

static void prelude_walk_text(walk *w, span text, int depth);

static void prelude_walk_macro(walk *w, size_t at, const span *args, int n_args, int depth) {
    const macro m = w->t->macros[at];
    if (w->needed) w->needed[m.piece] = true;
    ct_text text = {0};
    if (m.n_params >= 0 && n_args >= 0) {
        if (!prelude_substitute(&m, args, n_args, &text)) *w->failed = true;
    } else if (n_args >= 0) { // the macro is another name for a macro
        ct__text_bytes(&text, m.body.s, m.body.n);
        ct__text_add(&text, "(");
        if (n_args)
            ct__text_bytes(&text, args[0].s,
                           (size_t)(args[n_args - 1].s + args[n_args - 1].n - args[0].s));
        ct__text_add(&text, ")");
    } else if (w->followed && !w->followed[at]) {
        w->followed[at] = true;
        prelude_walk_text(w, m.body, depth + 1);
    }
    if (text.n) prelude_walk_text(w, (span){text.s, text.n}, depth + 1);
    if (text.failed) *w->failed = true;
    ct__text_free(&text);
}

static void prelude_use_piece(walk *w, size_t at) {
    if (w->needed[at]) return;
    w->needed[at] = true;
    prelude_walk_text(w, w->t->pieces[at].text, 0);
}

static void prelude_walk_word(walk *w, span word, const char *p, const char *end, int depth) {
    span args[MAX_PARAMS];
    int n_args = -1; // no arguments follow
    const entry *e = prelude_look_up(w->t, word, NULL);
    if (e && (p = prelude_skip_blank(p, end)) < end && *p == '(')
        n_args = prelude_split(prelude_in_parentheses(&p, end), args);
    for (; e; e = prelude_look_up(w->t, word, e)) {
        if (e->is_macro)
            prelude_walk_macro(w, e->at, args, n_args, depth);
        else if (w->needed)
            prelude_use_piece(w, e->at);
    }
}

static void prelude_walk_text(walk *w, span text, int depth) {
    const char *p = text.s, *end = p + text.n;
    if (depth > MAX_DEPTH) return;
    for (span word; (word = prelude_next_word(&p, end)).s;) {
        if (!w->making || !(prelude_span_is(word, "FN") || prelude_span_is(word, "SLOW"))) {
            prelude_walk_word(w, word, p, end, depth);
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

static const char *prelude_directive_end(const char *p, const char *end) {
    while (p < end && !(*p == '\n' && p[-1] != '\\')) p++;
    return p;
}

static void prelude_read_define(parts *t, size_t at, const char *p, const char *end) {
    const span word = prelude_next_word(&p, end);
    if (!prelude_span_is(word, "define")) return;
    macro m = {.name = prelude_next_word(&p, end), .n_params = -1, .piece = at};
    if (p < end && *p == '(') m.n_params = prelude_split(prelude_in_parentheses(&p, end), m.params);
    m.body = prelude_trimmed(p, end);
    t->failed = t->failed || t->n_macros == MACROS;
    if (t->failed) return;
    t->macros[t->n_macros++] = m;
    prelude_enter(t, m.name, t->n_macros - 1, true);
    t->pieces[at].is_optional = true;
}

// A function ends with its brace, a macro call with its parenthesis, everything else with a
// semicolon.
static const char *prelude_piece_end(const parts *t, const char *p, const char *end) {
    const span first = prelude_word_at(p, end);
    const bool function = prelude_span_is(first, "FN") || prelude_span_is(first, "SLOW");
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

static void prelude_read_piece(parts *t, const char *p, const char *end) {
    const size_t at = t->n_pieces;
    t->failed = t->failed || at == PIECES;
    if (t->failed) return;
    t->pieces[t->n_pieces++] = (piece){{p, (size_t)(end - p)}, false};
    if (*p == '#') {
        prelude_read_define(t, at, p + 1, end);
        return;
    }
    walk w = {.t = t, .piece = at, .making = true, .failed = &t->failed};
    prelude_walk_text(&w, t->pieces[at].text, 0);
    t->pieces[at].is_optional = w.made;
}

static bool prelude_read(parts *t) {
    const char *p = ct__cpu_prelude, *end = p + strlen(p);
    while (!t->failed && (p = prelude_skip_blank(p, end)) < end) {
        const char *next = *p == '#' ? prelude_directive_end(p, end) : prelude_piece_end(t, p, end);
        prelude_read_piece(t, p, next);
        p = next;
    }
    if (t->failed) memset(t, 0, sizeof *t);
    return t->n_pieces > 0;
}

// Parses the prelude at the first call; NULL: no memory.
static parts *prelude_get_parts(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static parts table;
    pthread_mutex_lock(&lock);
    const bool ok = table.n_pieces || prelude_read(&table);
    pthread_mutex_unlock(&lock);
    return ok ? &table : NULL;
}

void ct__prelude_add(ct_text *out, const char *const *kernels, size_t n) {
    parts *t = prelude_get_parts();
    bool needed[PIECES] = {false}, followed[MACROS] = {false}, failed = false;
    walk w = {.t = t, .needed = needed, .followed = followed, .failed = &failed};
    for (size_t i = 0; t && i < t->n_pieces; i++)
        if (!t->pieces[i].is_optional) prelude_use_piece(&w, i);
    for (size_t i = 0; t && i < n; i++)
        prelude_walk_text(&w, (span){kernels[i], strlen(kernels[i])}, 0);
    if (!t || failed) { // uses all of it
        ct__text_add(out, ct__cpu_prelude);
        return;
    }
    for (size_t i = 0; i < t->n_pieces; i++) {
        if (!needed[i]) continue;
        ct__text_bytes(out, t->pieces[i].text.s, t->pieces[i].text.n);
        ct__text_add(out, "\n");
    }
}
