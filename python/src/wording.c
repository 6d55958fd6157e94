// Translates the library's messages, which have the names of C functions, macros and dtypes, to Python's
// names.
#include "core.h"

#include <ctype.h>
#include <string.h>

static const struct {
    const char *c, *python;
} wording_phrases[] = {
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
enum {
    N_PHRASES = sizeof wording_phrases / sizeof *wording_phrases,
    MAX_LENGTH = 4096,
    MAX_NAME_LENGTH = 64
};

typedef struct wording_buffer {
    char s[MAX_LENGTH];
    size_t n;
} wording_buffer;
static void wording_append(wording_buffer *to, const char *s, size_t n) {
    if (n > MAX_LENGTH - 1 - to->n) n = MAX_LENGTH - 1 - to->n;
    memcpy(to->s + to->n, s, n);
    to->n += n;
}

static bool wording_is_word_char(char c) { return isalnum((unsigned char)c) || c == '_'; }

// Returns the phrase that begins here and splits no word; -1 if there is none.
static int wording_find_phrase(const char *message, char before) {
    if (wording_is_word_char(before) && wording_is_word_char(*message)) return -1;
    for (int i = 0; i < N_PHRASES; i++) {
        const size_t n = strlen(wording_phrases[i].c);
        if (strncmp(message, wording_phrases[i].c, n) == 0 &&
            !(wording_is_word_char(message[n - 1]) && wording_is_word_char(message[n])))
            return i;
    }
    return -1;
}

// Returns Python's name of "f32", or with `prefix` of "CT_F32"; NULL if it is no dtype.
static const char *wording_find_dtype(const char *word, size_t n, const char *prefix) {
    const size_t skip = strlen(prefix);
    char lower[MAX_NAME_LENGTH];
    if (n <= skip || n >= sizeof lower || strncmp(word, prefix, skip) != 0) return NULL;
    for (size_t i = skip; i <= n; i++)
        lower[i - skip] = i < n ? (char)(skip ? tolower((unsigned char)word[i]) : word[i]) : 0;
    for (int i = 1; i < CT_DTYPE_COUNT; i++)
        if (strcmp(lower, ct_dtype_name((ct_dtype)i)) == 0) return dtype_python_name((ct_dtype)i);
    return NULL;
}

// ct_sum becomes cotan.sum, or cotan.ops.sum if the package has no such name.
static void wording_append_function(wording_buffer *to, const char *name, size_t n) {
    char own[MAX_NAME_LENGTH];
    if (n >= sizeof own) return;
    memcpy(own, name, n);
    own[n] = 0;
    PyObject *package = PyImport_ImportModule("cotan");
    const char *where = package && PyObject_HasAttrString(package, own) ? "cotan." : "cotan.ops.";
    Py_XDECREF(package);
    wording_append(to, where, strlen(where));
    wording_append(to, name, n);
}

static void wording_append_word(wording_buffer *to, const char *word, size_t n, char before,
                                char behind) {
    const char *dtype = wording_find_dtype(word, n, "CT_");
    const bool alone =
        !strchr("/\"'.", before ? before : ' ') && !strchr("\"'.", behind ? behind : ' ');
    if (dtype) {
        wording_append(to, "cotan.", 6);
        wording_append(to, dtype, strlen(dtype));
    } else if (alone && (dtype = wording_find_dtype(word, n, ""))) {
        wording_append(to, dtype, strlen(dtype));
    } else if (n > 3 && strncmp(word, "ct_", 3) == 0) {
        wording_append_function(to, word + 3, n - 3);
    } else {
        wording_append(to, word, n);
    }
}

PyObject *wording_translate(const char *message) {
    wording_buffer to = {.n = 0};
    for (const char *s = message; *s;) {
        const char before = s > message ? s[-1] : 0;
        const int phrase = wording_find_phrase(s, before);
        if (phrase >= 0) {
            wording_append(&to, wording_phrases[phrase].python,
                           strlen(wording_phrases[phrase].python));
            s += strlen(wording_phrases[phrase].c);
            continue;
        }
        size_t n = 0;
        while (wording_is_word_char(s[n])) n++;
        if (n)
            wording_append_word(&to, s, n, before, s[n]);
        else
            wording_append(&to, s, n = 1);
        s += n;
    }
    return PyUnicode_DecodeUTF8(to.s, (Py_ssize_t)to.n, "replace");
}
