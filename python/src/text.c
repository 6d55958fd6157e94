// Tokenizers and chat templates.
#include "lm.h"

#include <stdlib.h>
#include <string.h>

#include <cotan/chat.h>

static const char tokenizer_capsule_name[] = "cotan.tokenizer", chat_capsule_name[] = "cotan.chat";

// ------------------------------------------------------------------------------------------ tokens

bool tokens_parse(PyObject *o, int32_t **tokens, size_t *n, const char *what) {
    PyObject *list = PySequence_Tuple(o);
    if (!list) return false;
    *n = (size_t)PyTuple_Size(list);
    *tokens = PyMem_Malloc((*n + 1) * sizeof **tokens);
    bool ok = *tokens || (PyErr_NoMemory(), false);
    for (size_t i = 0; ok && i < *n; i++) {
        int64_t value = 0;
        ok = int_parse(PyTuple_GetItem(list, (Py_ssize_t)i), &value, what);
        if (ok && (value < INT32_MIN || value > INT32_MAX)) {
            PyErr_Format(PyExc_ValueError, "%s: %lld is no token", what, (long long)value);
            ok = false;
        }
        (*tokens)[i] = (int32_t)value;
    }
    Py_DECREF(list);
    if (!ok) PyMem_Free(*tokens);
    return ok;
}

PyObject *tokens_to_list(const int32_t *tokens, size_t n) {
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        PyObject *number = PyLong_FromLong(tokens[i]);
        if (!number || PyList_SetItem(list, (Py_ssize_t)i, number) < 0) Py_CLEAR(list);
    }
    return list;
}

// --------------------------------------------------------------------------------------- tokenizers

ct_tokenizer *tokenizer_from_capsule(PyObject *capsule) {
    return PyCapsule_GetPointer(capsule, tokenizer_capsule_name);
}
int tokenizer_parse(PyObject *capsule, void *to) {
    return (*(ct_tokenizer **)to = tokenizer_from_capsule(capsule)) != NULL;
}
static void py_tokenizer_destroy(PyObject *capsule) {
    ct_tokenizer_free(tokenizer_from_capsule(capsule));
}

typedef struct tokenizer_call {
    const char *path, *text;
    size_t n;
    ct_tokenizer *tokenizer;
    ct_encoding encoding;
    ct_encode_options o;
} tokenizer_call;
static void py_tokenizer_run_load(void *user) {
    tokenizer_call *t = user;
    t->tokenizer = ct_tokenizer_load_at(t->path, t->o.here);
}
static void py_tokenizer_run_encode(void *user) {
    tokenizer_call *t = user;
    if (!ct_tokenizer_encode_with(t->tokenizer, t->text, t->n, &t->encoding, t->o)) return;
}

// _tokenizer_load(path)
static PyObject *py_tokenizer_load(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *path;
    tokenizer_call t = {.o.here = api_enter()};
    if (!PyArg_ParseTuple(args, "O&:_tokenizer_load", PyUnicode_FSConverter, &path)) return NULL;
    t.path = PyBytes_AsString(path);
    const bool ok = run_without_gil(py_tokenizer_run_load, &t);
    Py_DECREF(path);
    PyObject *capsule =
        ok ? PyCapsule_New(t.tokenizer, tokenizer_capsule_name, py_tokenizer_destroy) : NULL;
    if (ok && !capsule) ct_tokenizer_free(t.tokenizer);
    return capsule;
}

// _tokenizer_about(tokenizer): returns the size, (bos, eos, unk, pad), the EOS tokens, the special tokens.
static PyObject *py_tokenizer_about(PyObject *Py_UNUSED(module), PyObject *o) {
    const ct_tokenizer *t = tokenizer_from_capsule(o);
    if (!t) return NULL;
    int64_t id[CT_TOKEN_ROLES], eos_ids[64];
    for (int i = 0; i < CT_TOKEN_ROLES; i++) id[i] = ct_tokenizer_special(t, (ct_token_role)i);
    const size_t n = ct_tokenizer_eos_ids(t, eos_ids, 64);
    PyObject *list = PyList_New(0), *specials = PyList_New(0);
    bool ok = list && specials;
    for (size_t i = 0; ok && i < n && i < 64; i++) {
        ok = list_append(list, PyLong_FromLongLong(eos_ids[i]));
    }
    for (int64_t i = 0; ok && i < ct_tokenizer_size(t); i++) {
        if (!ct_tokenizer_is_special(t, i)) continue;
        ok = list_append(specials, PyLong_FromLongLong(i));
    }
    if (ok)
        return Py_BuildValue("(L(LLLL)NN)", (long long)ct_tokenizer_size(t), (long long)id[CT_BOS],
                             (long long)id[CT_EOS], (long long)id[CT_UNK], (long long)id[CT_PAD],
                             list, specials);
    release(list, specials);
    return NULL;
}

// _tokenizer_encode(tokenizer, text, add_special, plain, offsets): returns the ids, and their spans in the
// text, or None.
static PyObject *py_tokenizer_encode(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *result = NULL;
    Py_ssize_t n;
    int special, plain, offsets;
    tokenizer_call t = {.o.here = api_enter()};
    if (!PyArg_ParseTuple(args, "O&s#ppp:_tokenizer_encode", tokenizer_parse, &t.tokenizer, &t.text,
                          &n, &special, &plain, &offsets))
        return NULL;
    t.n = (size_t)n;
    t.o.add_special = special, t.o.split_special = plain, t.o.offsets = offsets;
    const ct_encoding *e = &t.encoding;
    if (run_without_gil(py_tokenizer_run_encode, &t)) {
        PyObject *ids = tokens_to_list(e->ids, e->n);
        PyObject *spans = offsets ? PyList_New(0) : Py_NewRef(Py_None);
        bool ok = ids && spans;
        for (size_t i = 0; ok && offsets && i < e->n; i++) {
            ok = list_append(spans, Py_BuildValue("(II)", e->chars[i].begin, e->chars[i].end));
        }
        result = ok ? Py_BuildValue("(OO)", ids, spans) : NULL;
        release(ids, spans);
    }
    ct_encoding_free(&t.encoding);
    return result;
}

// _tokenizer_decode(tokenizer, ids, skip_special)
static PyObject *py_tokenizer_decode(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *ids;
    ct_tokenizer *t;
    int skip;
    int32_t *v;
    size_t n, length;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "O&Op:_tokenizer_decode", tokenizer_parse, &t, &ids, &skip) ||
        !tokens_parse(ids, &v, &n, "ids"))
        return NULL;
    ct_decoder *d = ct_decoder_new_at(t, skip, here);
    const char *text = d ? ct_decoder_all(d, v, n, &length) : NULL;
    PyObject *result =
        text ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace") : raise_error();
    ct_decoder_free(d);
    PyMem_Free(v);
    return result;
}

// _tokenizer_piece(tokenizer, id): returns the token's text as in the file, or None. _tokenizer_id(tokenizer,
// piece): returns its id, or -1.
static PyObject *py_tokenizer_piece(PyObject *Py_UNUSED(module), PyObject *args) {
    ct_tokenizer *t;
    long long id;
    size_t n;
    if (!PyArg_ParseTuple(args, "O&L:_tokenizer_piece", tokenizer_parse, &t, &id)) return NULL;
    const char *text = ct_tokenizer_piece(t, id, &n);
    return text ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)n, "replace") : Py_NewRef(Py_None);
}
static PyObject *py_tokenizer_id(PyObject *Py_UNUSED(module), PyObject *args) {
    ct_tokenizer *t;
    const char *text;
    Py_ssize_t n;
    if (!PyArg_ParseTuple(args, "O&s#:_tokenizer_id", tokenizer_parse, &t, &text, &n)) return NULL;
    return PyLong_FromLongLong(ct_tokenizer_id(t, text, (size_t)n));
}

// ---------------------------------------------------------------------------------- chat templates

static void py_chat_destroy(PyObject *capsule) {
    ct_chat_template_free(PyCapsule_GetPointer(capsule, chat_capsule_name));
}
static PyObject *py_chat_to_capsule(ct_chat_template *chat) {
    if (!chat) return raise_error();
    PyObject *capsule = PyCapsule_New(chat, chat_capsule_name, py_chat_destroy);
    if (!capsule) ct_chat_template_free(chat);
    return capsule;
}

// _chat_load(path), _chat_new(text)
static PyObject *py_chat_load(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *path;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "O&:_chat_load", PyUnicode_FSConverter, &path)) return NULL;
    PyObject *capsule = py_chat_to_capsule(ct_chat_template_load_at(PyBytes_AsString(path), here));
    Py_DECREF(path);
    return capsule;
}
static PyObject *py_chat_new(PyObject *Py_UNUSED(module), PyObject *args) {
    const char *text;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "s:_chat_new", &text)) return NULL;
    return py_chat_to_capsule(ct_chat_template_new_at(text, here));
}

// _chat_render(chat, messages, tools, variables, name): renders a chat; messages, tools and variables are
// JSON, or None.
static PyObject *py_chat_render(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *o;
    const char *messages;
    size_t n = 0;
    ct_chat_options options = {.length = &n, .here = api_enter()};
    if (!PyArg_ParseTuple(args, "Oszzz:_chat_render", &o, &messages, &options.tools,
                          &options.variables, &options.name))
        return NULL;
    ct_chat_template *chat = PyCapsule_GetPointer(o, chat_capsule_name);
    if (!chat) return NULL;
    const char *text = ct_chat_render_with(chat, messages, options);
    return text ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)n, "replace") : raise_error();
}

PyMethodDef tokenizer_methods[] = {
    {"_tokenizer_load", py_tokenizer_load, METH_VARARGS, NULL},
    {"_tokenizer_about", py_tokenizer_about, METH_O, NULL},
    {"_tokenizer_encode", py_tokenizer_encode, METH_VARARGS, NULL},
    {"_tokenizer_decode", py_tokenizer_decode, METH_VARARGS, NULL},
    {"_tokenizer_piece", py_tokenizer_piece, METH_VARARGS, NULL},
    {"_tokenizer_id", py_tokenizer_id, METH_VARARGS, NULL},
    {"_chat_load", py_chat_load, METH_VARARGS, NULL},
    {"_chat_new", py_chat_new, METH_VARARGS, NULL},
    {"_chat_render", py_chat_render, METH_VARARGS, NULL},
    {0},
};
