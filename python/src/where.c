// Finds the line of the user's Python code that made a call.
#include "core.h"
#include "tensor.h"
#include "threads.h"

#include <stdlib.h>
#include <string.h>

// Recently seen code objects, each with a reference, so that no other one can have its address.
enum { CACHE_SIZE = 1024 };
static struct file_entry {
    PyObject *code;
    const char *file; // NULL for the package's own files
} where_files[CACHE_SIZE];
// Recently found lines: the interpreter finds a line by decoding the whole function before it.
static struct line_entry {
    PyObject *code;
    long instruction; // index of the instruction
    uint32_t line;
} where_lines[CACHE_SIZE];
static PyObject *where_package; // the package's folder
static PyObject *where_names;   // name -> address of a copy that lives as long as the process
static PyObject *where_f_back, *where_f_lasti; // "f_back", "f_lasti"

bool where_init(PyObject *package) {
    Py_INCREF(package);
    Py_XDECREF(where_package);
    where_package = package;
    if (!where_names) where_names = PyDict_New();
    if (!where_f_back) where_f_back = PyUnicode_InternFromString("f_back");
    if (!where_f_lasti) where_f_lasti = PyUnicode_InternFromString("f_lasti");
    return where_names && where_f_back && where_f_lasti;
}

static const char *where_intern(PyObject *name) {
    PyObject *have = PyDict_GetItemWithError(where_names, name);
    if (have) return PyLong_AsVoidPtr(have);
    PyObject *bytes = PyUnicode_EncodeFSDefault(name);
    char *copy = bytes ? strdup(PyBytes_AsString(bytes)) : NULL;
    PyObject *address = copy ? PyLong_FromVoidPtr(copy) : NULL;
    if (!address || PyDict_SetItem(where_names, name, address) < 0) {
        free(copy);
        copy = NULL;
    }
    release(address, bytes);
    return copy;
}

// Returns the file of a code object; NULL for the package's files.
static const char *where_find_file(struct file_entry *entry, PyObject *code) {
    const char *file = "?";
    PyObject *name = PyObject_GetAttrString(code, "co_filename");
    if (name) {
        Py_ssize_t inside = PyUnicode_Tailmatch(name, where_package, 0, PY_SSIZE_T_MAX, -1);
        file = inside == 1 ? NULL : where_intern(name);
        Py_DECREF(name);
    }
    PyErr_Clear();
    Py_INCREF(code);
    Py_XDECREF(entry->code);
    *entry = (struct file_entry){code, file};
    return file;
}

static uint32_t where_find_line(PyObject *frame, PyObject *code) {
    PyObject *number = PyObject_GetAttr(frame, where_f_lasti);
    const long at = number ? PyLong_AsLong(number) : -1;
    Py_XDECREF(number);
    struct line_entry *entry =
        &where_lines[(((uintptr_t)code >> 5) + (uintptr_t)at / 2) % CACHE_SIZE];
    if (entry->code == code && entry->instruction == at) return entry->line;
    Py_INCREF(code);
    Py_XDECREF(entry->code);
    *entry = (struct line_entry){code, at, (uint32_t)PyFrame_GetLineNumber((PyFrameObject *)frame)};
    return entry->line;
}

static ct_loc where_find_caller(PyObject *frame) {
    ct_loc here = {0};
    Py_INCREF(frame);
    while (frame) {
        PyObject *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
        struct file_entry *entry = &where_files[((uintptr_t)code >> 5) % CACHE_SIZE];
        const char *file = entry->code == code ? entry->file : where_find_file(entry, code);
        if (file) here = (ct_loc){file, where_find_line(frame, code)};
        Py_DECREF(code);
        if (file) break;
        PyObject *back = PyObject_GetAttr(frame, where_f_back);
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

ct_loc api_enter(void) {
    thread *self = thread_get();
    if (self->ran_for_others || self->n_deferred_unpins) thread_run_deferred(self);
    dlpack_flush();
    hooks_flush();
    PyObject *frame = where_package ? (PyObject *)PyEval_GetFrame() : NULL;
    return frame ? where_find_caller(frame) : CT_NOWHERE;
}
