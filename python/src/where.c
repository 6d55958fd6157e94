// The user's Python line of a call.
#include "core.h"
#include "tensor.h"
#include "threads.h"

#include <stdlib.h>
#include <string.h>

// Code objects met lately, each held, so that another one cannot stand at its address.
enum { CACHE = 1024 };
static struct seen {
    PyObject *code;
    const char *file; // NULL: the package's own
} cache[CACHE];
// Lines met lately: the interpreter finds a line by reading all those of the function before it.
static struct met {
    PyObject *code;
    long at; // the instruction
    uint32_t line;
} lines[CACHE];
static PyObject *folder;              // of the package
static PyObject *files;               // name -> address of a copy that lives as long as the process
static PyObject *name_back, *name_at; // "f_back", "f_lasti"

bool where_start(PyObject *package) {
    Py_INCREF(package);
    Py_XDECREF(folder);
    folder = package;
    if (!files) files = PyDict_New();
    if (!name_back) name_back = PyUnicode_InternFromString("f_back");
    if (!name_at) name_at = PyUnicode_InternFromString("f_lasti");
    return files && name_back && name_at;
}

static const char *interned(PyObject *name) {
    PyObject *have = PyDict_GetItemWithError(files, name);
    if (have) return PyLong_AsVoidPtr(have);
    PyObject *bytes = PyUnicode_EncodeFSDefault(name);
    char *copy = bytes ? strdup(PyBytes_AsString(bytes)) : NULL;
    PyObject *address = copy ? PyLong_FromVoidPtr(copy) : NULL;
    if (!address || PyDict_SetItem(files, name, address) < 0) {
        free(copy);
        copy = NULL;
    }
    Py_XDECREF(address);
    Py_XDECREF(bytes);
    return copy;
}

// The file of a code object, NULL of the package's.
static const char *look_up(struct seen *entry, PyObject *code) {
    const char *file = "?";
    PyObject *name = PyObject_GetAttrString(code, "co_filename");
    if (name) {
        Py_ssize_t inside = PyUnicode_Tailmatch(name, folder, 0, PY_SSIZE_T_MAX, -1);
        file = inside == 1 ? NULL : interned(name);
        Py_DECREF(name);
    }
    PyErr_Clear();
    Py_INCREF(code);
    Py_XDECREF(entry->code);
    *entry = (struct seen){code, file};
    return file;
}

static uint32_t line_in(PyObject *frame, PyObject *code) {
    PyObject *number = PyObject_GetAttr(frame, name_at);
    const long at = number ? PyLong_AsLong(number) : -1;
    Py_XDECREF(number);
    struct met *entry = &lines[(((uintptr_t)code >> 5) + (uintptr_t)at / 2) % CACHE];
    if (entry->code == code && entry->at == at) return entry->line;
    Py_INCREF(code);
    Py_XDECREF(entry->code);
    *entry = (struct met){code, at, (uint32_t)PyFrame_GetLineNumber((PyFrameObject *)frame)};
    return entry->line;
}

static ct_loc line_of(PyObject *frame) {
    ct_loc here = {0};
    Py_INCREF(frame);
    while (frame) {
        PyObject *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
        struct seen *entry = &cache[((uintptr_t)code >> 5) % CACHE];
        const char *file = entry->code == code ? entry->file : look_up(entry, code);
        if (file) here = (ct_loc){file, line_in(frame, code)};
        Py_DECREF(code);
        if (file) break;
        PyObject *back = PyObject_GetAttr(frame, name_back);
        Py_DECREF(frame);
        frame = back;
        if (back == Py_None) {
            Py_DECREF(back);
            frame = NULL;
        }
    }
    Py_XDECREF(frame);
    return here;
}

ct_loc enter(void) {
    thread *self = thread_here();
    if (self->visited || self->n_left) thread_call(self);
    dlpack_flush();
    marks_flush();
    PyObject *frame = folder ? (PyObject *)PyEval_GetFrame() : NULL;
    return frame ? line_of(frame) : CT_NOWHERE;
}
