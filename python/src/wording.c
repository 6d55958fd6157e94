// What the library says, in Python's names: it speaks of C's functions, macros and dtypes.
#include "core.h"

#include <ctype.h>
#include <string.h>

static const struct {
    const char *c, *python;
} phrases[] = {
    // ops that have another name in Python
    {": select: ", ": where: "},
    {": and: ", ": bitwise_and: "},
    {": or: ", ": bitwise_or: "},
    {": xor: ", ": bitwise_xor: "},
    {": not: ", ": bitwise_not: "},
    {": lu_solve: ", ": solve: "},
    {": shift_left: ", ": bitwise_left_shift: "},
    {": shift_right: ", ": bitwise_right_shift: "},
    {": data: a value is read", ": a value is read"},
    {": borrow: a value is read", ": a value is read"},
    // functions and macros
    {"ct_cast", "cotan.astype"},
    {"ct_to ", "to() "},
    {"ct_move", "Module.to()"},
    {"ct_data", "numpy()"},
    {"ct_profile_end", "profile.stop()"},
    {"ct_item", "item()"},
    {"ct_keep it", "evaluate it with cotan.eval()"},
    {"ct_assign", "copy_()"},
    {"ct_from", "cotan.asarray"},
    {"ct_fori", "cotan.fori_loop"},
    {"ct_select", "cotan.where"},
    {"ct_grad", "cotan.grad"},
    {"ct_f(", "("},
    {"ct_i(", "("},
    {"CT_AXES(", "("},
    {"CT_DIMS(", "("},
    {"CT_INTS(", "("},
    {"CT_SCALAR", "()"},
    {"CT_NO_AXIS", "None"},
    {"CT_NONE", "None"},
    {"CT_END", "None"},
    {"; an attribute is part of the plan, but for sizes in it that CT_DYN marks",
     "; an attribute is part of the plan"},
};
enum { PHRASES = sizeof phrases / sizeof *phrases, MOST = 4096, LONGEST_NAME = 64 };

typedef struct text {
    char s[MOST];
    size_t n;
} text;
static void add(text *to, const char *s, size_t n) {
    if (n > MOST - 1 - to->n) n = MOST - 1 - to->n;
    memcpy(to->s + to->n, s, n);
    to->n += n;
}

static bool in_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

// The phrase that begins here, and parts no word; -1: none.
static int phrase_at(const char *said, char before) {
    if (in_word(before) && in_word(*said)) return -1;
    for (int i = 0; i < PHRASES; i++) {
        const size_t n = strlen(phrases[i].c);
        if (strncmp(said, phrases[i].c, n) == 0 && !(in_word(said[n - 1]) && in_word(said[n])))
            return i;
    }
    return -1;
}

// "f32", or with `prefix` "CT_F32": Python's name, or NULL.
static const char *dtype_named(const char *word, size_t n, const char *prefix) {
    const size_t skip = strlen(prefix);
    char lower[LONGEST_NAME];
    if (n <= skip || n >= sizeof lower || strncmp(word, prefix, skip) != 0) return NULL;
    for (size_t i = skip; i <= n; i++)
        lower[i - skip] = i < n ? (char)(skip ? tolower((unsigned char)word[i]) : word[i]) : 0;
    for (int i = 1; i < CT_DTYPE_COUNT; i++)
        if (strcmp(lower, ct_dtype_name((ct_dtype)i)) == 0) return dtype_text((ct_dtype)i);
    return NULL;
}

// ct_sum is cotan.sum, or an op alone.
static void add_function(text *to, const char *name, size_t n) {
    char own[LONGEST_NAME];
    if (n >= sizeof own) return;
    memcpy(own, name, n);
    own[n] = 0;
    PyObject *package = PyImport_ImportModule("cotan");
    const char *where = package && PyObject_HasAttrString(package, own) ? "cotan." : "cotan.ops.";
    Py_XDECREF(package);
    add(to, where, strlen(where));
    add(to, name, n);
}

static void add_word(text *to, const char *word, size_t n, char before, char behind) {
    const char *dtype = dtype_named(word, n, "CT_");
    const bool alone =
        !strchr("/\"'.", before ? before : ' ') && !strchr("\"'.", behind ? behind : ' ');
    if (dtype) {
        add(to, "cotan.", 6);
        add(to, dtype, strlen(dtype));
    } else if (alone && (dtype = dtype_named(word, n, ""))) {
        add(to, dtype, strlen(dtype));
    } else if (n > 3 && strncmp(word, "ct_", 3) == 0) {
        add_function(to, word + 3, n - 3);
    } else {
        add(to, word, n);
    }
}

PyObject *in_python(const char *said) {
    text to = {.n = 0};
    for (const char *s = said; *s;) {
        const char before = s > said ? s[-1] : 0;
        const int phrase = phrase_at(s, before);
        if (phrase >= 0) {
            add(&to, phrases[phrase].python, strlen(phrases[phrase].python));
            s += strlen(phrases[phrase].c);
            continue;
        }
        size_t n = 0;
        while (in_word(s[n])) n++;
        if (n)
            add_word(&to, s, n, before, s[n]);
        else
            add(&to, s, n = 1);
        s += n;
    }
    return PyUnicode_DecodeUTF8(to.s, (Py_ssize_t)to.n, "replace");
}
