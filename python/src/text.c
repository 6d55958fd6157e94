// Tokenizers and chat templates.
#include "lm.h"

#include <stdlib.h>
#include <string.h>

#include <cotan/chat.h>

static const char tokenizer_name[] = "cotan.tokenizer", chat_name[] = "cotan.chat";

// ------------------------------------------------------------------------------------------ tokens

bool parse_tokens(PyObject *o, int32_t **tokens, size_t *n, const char *what) {
    PyObject *list = PySequence_Tuple(o);
    if (!list) return false;
    *n = (size_t)PyTuple_Size(list);
    *tokens = PyMem_Malloc((*n + 1) * sizeof **tokens);
    bool ok = *tokens || (PyErr_NoMemory(), false);
    for (size_t i = 0; ok && i < *n; i++) {
        int64_t value = 0;
        ok = parse_int(PyTuple_GetItem(list, (Py_ssize_t)i), &value, what);
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

PyObject *tokens_list(const int32_t *tokens, size_t n) {
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        PyObject *number = PyLong_FromLong(tokens[i]);
        if (!number || PyList_SetItem(list, (Py_ssize_t)i, number) < 0) Py_CLEAR(list);
    }
    return list;
}

// --------------------------------------------------------------------------------------- tokenizers

ct_tokenizer *tokenizer_of(PyObject *capsule) {
    return PyCapsule_GetPointer(capsule, tokenizer_name);
}
static void free_tokenizer(PyObject *capsule) { ct_tokenizer_free(tokenizer_of(capsule)); }

typedef struct tokenizing {
    const char *path, *text;
    size_t n;
    ct_tokenizer *tokenizer;
    ct_encoding encoding;
    ct_encode_options o;
} tokenizing;
static void load_tokenizer(void *user) {
    tokenizing *t = user;
    t->tokenizer = ct_tokenizer_load_at(t->path, t->o.here);
}
static void encode_text(void *user) {
    tokenizing *t = user;
    if (!ct_tokenizer_encode_with(t->tokenizer, t->text, t->n, &t->encoding, t->o)) return;
}

// _tokenizer_load(path)
static PyObject *load(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *path;
    tokenizing t = {.o.here = enter()};
    if (!PyArg_ParseTuple(args, "O&:_tokenizer_load", PyUnicode_FSConverter, &path)) return NULL;
    t.path = PyBytes_AsString(path);
    const bool ok = run_free(load_tokenizer, &t);
    Py_DECREF(path);
    PyObject *capsule = ok ? PyCapsule_New(t.tokenizer, tokenizer_name, free_tokenizer) : NULL;
    if (ok && !capsule) ct_tokenizer_free(t.tokenizer);
    return capsule;
}

// _tokenizer_about(tokenizer): size, (bos, eos, unk, pad), ends, special tokens
static PyObject *about(PyObject *module, PyObject *o) {
    (void)module;
    const ct_tokenizer *t = tokenizer_of(o);
    if (!t) return NULL;
    int64_t id[CT_TOKEN_ROLES], ends[64];
    for (int i = 0; i < CT_TOKEN_ROLES; i++) id[i] = ct_tokenizer_special(t, (ct_token_role)i);
    const size_t n = ct_tokenizer_ends(t, ends, 64);
    PyObject *list = PyList_New(0), *specials = PyList_New(0);
    bool ok = list && specials;
    for (size_t i = 0; ok && i < n && i < 64; i++) {
        PyObject *number = PyLong_FromLongLong(ends[i]);
        ok = number && PyList_Append(list, number) == 0;
        Py_XDECREF(number);
    }
    for (int64_t i = 0; ok && i < ct_tokenizer_size(t); i++) {
        if (!ct_tokenizer_is_special(t, i)) continue;
        PyObject *number = PyLong_FromLongLong(i);
        ok = number && PyList_Append(specials, number) == 0;
        Py_XDECREF(number);
    }
    if (ok)
        return Py_BuildValue("(L(LLLL)NN)", (long long)ct_tokenizer_size(t), (long long)id[CT_BOS],
                             (long long)id[CT_EOS], (long long)id[CT_UNK], (long long)id[CT_PAD],
                             list, specials);
    Py_XDECREF(list);
    Py_XDECREF(specials);
    return NULL;
}

// _tokenizer_encode(tokenizer, text, add_special, plain, offsets): ids, and where each comes from, or None
static PyObject *encode(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *o, *result = NULL;
    Py_ssize_t n;
    int special, plain, offsets;
    tokenizing t = {.o.here = enter()};
    if (!PyArg_ParseTuple(args, "Os#ppp:_tokenizer_encode", &o, &t.text, &n, &special, &plain,
                          &offsets) ||
        !(t.tokenizer = tokenizer_of(o)))
        return NULL;
    t.n = (size_t)n;
    t.o.add_special = special, t.o.plain = plain, t.o.offsets = offsets;
    const ct_encoding *e = &t.encoding;
    if (run_free(encode_text, &t)) {
        PyObject *ids = tokens_list(e->ids, e->n);
        PyObject *places = offsets ? PyList_New(0) : Py_NewRef(Py_None);
        bool ok = ids && places;
        for (size_t i = 0; ok && offsets && i < e->n; i++) {
            PyObject *span = Py_BuildValue("(II)", e->chars[i].begin, e->chars[i].end);
            ok = span && PyList_Append(places, span) == 0;
            Py_XDECREF(span);
        }
        result = ok ? Py_BuildValue("(OO)", ids, places) : NULL;
        Py_XDECREF(ids);
        Py_XDECREF(places);
    }
    ct_encoding_free(&t.encoding);
    return result;
}

// _tokenizer_decode(tokenizer, ids, skip_special)
static PyObject *decode(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *o, *ids;
    int skip;
    int32_t *v;
    size_t n, length;
    const ct_loc here = enter();
    if (!PyArg_ParseTuple(args, "OOp:_tokenizer_decode", &o, &ids, &skip)) return NULL;
    const ct_tokenizer *t = tokenizer_of(o);
    if (!t || !parse_tokens(ids, &v, &n, "ids")) return NULL;
    ct_decoder *d = ct_decoder_new_at(t, skip, here);
    const char *text = d ? ct_decoder_all(d, v, n, &length) : NULL;
    PyObject *result =
        text ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace") : raise_failure();
    ct_decoder_free(d);
    PyMem_Free(v);
    return result;
}

// _tokenizer_piece(tokenizer, id): bytes as the file has them, or None; _tokenizer_id(tokenizer, piece): -1: there is none
static PyObject *piece(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *o;
    long long id;
    size_t n;
    if (!PyArg_ParseTuple(args, "OL:_tokenizer_piece", &o, &id)) return NULL;
    const ct_tokenizer *t = tokenizer_of(o);
    if (!t) return NULL;
    const char *text = ct_tokenizer_piece(t, id, &n);
    return text ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)n, "replace") : Py_NewRef(Py_None);
}
static PyObject *id_of(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *o;
    const char *text;
    Py_ssize_t n;
    if (!PyArg_ParseTuple(args, "Os#:_tokenizer_id", &o, &text, &n)) return NULL;
    const ct_tokenizer *t = tokenizer_of(o);
    return t ? PyLong_FromLongLong(ct_tokenizer_id(t, text, (size_t)n)) : NULL;
}

// ---------------------------------------------------------------------------------- chat templates

static void free_chat(PyObject *capsule) {
    ct_chat_template_free(PyCapsule_GetPointer(capsule, chat_name));
}
static PyObject *new_chat(ct_chat_template *chat) {
    if (!chat) return raise_failure();
    PyObject *capsule = PyCapsule_New(chat, chat_name, free_chat);
    if (!capsule) ct_chat_template_free(chat);
    return capsule;
}

// _chat_load(path), _chat_new(text)
static PyObject *chat_load(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *path;
    const ct_loc here = enter();
    if (!PyArg_ParseTuple(args, "O&:_chat_load", PyUnicode_FSConverter, &path)) return NULL;
    PyObject *capsule = new_chat(ct_chat_template_load_at(PyBytes_AsString(path), here));
    Py_DECREF(path);
    return capsule;
}
static PyObject *chat_new(PyObject *module, PyObject *args) {
    (void)module;
    const char *text;
    const ct_loc here = enter();
    if (!PyArg_ParseTuple(args, "s:_chat_new", &text)) return NULL;
    return new_chat(ct_chat_template_new_at(text, here));
}

// _chat_render(chat, messages, tools, variables, name): messages and so on as JSON, or None
static PyObject *render(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *o;
    const char *messages;
    size_t n = 0;
    ct_chat_options options = {.length = &n, .here = enter()};
    if (!PyArg_ParseTuple(args, "Oszzz:_chat_render", &o, &messages, &options.tools,
                          &options.variables, &options.name))
        return NULL;
    ct_chat_template *chat = PyCapsule_GetPointer(o, chat_name);
    if (!chat) return NULL;
    const char *text = ct_chat_render_with(chat, messages, options);
    return text ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)n, "replace") : raise_failure();
}

PyMethodDef text_methods[] = {
    {"_tokenizer_load", load, METH_VARARGS, NULL},
    {"_tokenizer_about", about, METH_O, NULL},
    {"_tokenizer_encode", encode, METH_VARARGS, NULL},
    {"_tokenizer_decode", decode, METH_VARARGS, NULL},
    {"_tokenizer_piece", piece, METH_VARARGS, NULL},
    {"_tokenizer_id", id_of, METH_VARARGS, NULL},
    {"_chat_load", chat_load, METH_VARARGS, NULL},
    {"_chat_new", chat_new, METH_VARARGS, NULL},
    {"_chat_render", render, METH_VARARGS, NULL},
    {0},
};
