// Checks pickles for cotan.load with the reader of src/io.
#include "core.h"

#include <string.h>

#include "io/pickle.h"

// Returns the size of a storage's record in a dict.
static int64_t py_pickle_record_bytes(void *records, const char *key) {
    PyObject *bytes = PyDict_GetItemString(records, key);
    return bytes ? PyLong_AsLongLong(bytes) : -1;
}

// _check_pickle(data, at, budget, records): checks that the pickle at offset `at` is data, and that
// the dict has the bytes of its storages (None: not known yet). Returns the pickle's end and
// [(key, dtype, elements)] of its storages, or the text of an error.
static PyObject *py_pickle_check(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *records, *storages = NULL, *result = NULL;
    Py_buffer data;
    Py_ssize_t start;
    unsigned long long budget;
    if (!PyArg_ParseTuple(args, "y*nKO:_check_pickle", &data, &start, &budget, &records))
        return NULL;
    ct_pickle pickle = {.label = "", .strict = true, .budget = budget, .user = records};
    if (records != Py_None) pickle.record_bytes = py_pickle_record_bytes;
    ct_pickle_value *value;
    ct_err err = {0};
    size_t at = (size_t)start;
    if (ct__pickle_read(&pickle, data.buf, (size_t)data.len, &at, &value, &err)) {
        storages = PyList_New(0);
        for (const ct_pickle_storage *s = pickle.storages; storages && s; s = s->next) {
            if (!list_append(storages,
                             Py_BuildValue("(ssL)", s->key, s->type->name, (long long)s->elements)))
                Py_CLEAR(storages);
        }
        if (storages) result = Py_BuildValue("(nN)", (Py_ssize_t)at, storages);
    } else if (err.code == CT_E_MEMORY) {
        PyErr_NoMemory();
    } else {
        result = PyUnicode_DecodeUTF8(err.text, (Py_ssize_t)strlen(err.text), "replace");
    }
    ct__arena_free(&pickle.arena);
    PyBuffer_Release(&data);
    return result;
}

PyMethodDef pickle_functions[] = {{"_check_pickle", py_pickle_check, METH_VARARGS, NULL}, {0}};
