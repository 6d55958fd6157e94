// Tensors by name from and to files: safetensors, and NumPy's .npz.
#include "core.h"
#include "tensor.h"

#include <stdlib.h>
#include <string.h>

#include <cotan/io.h>

static const char capsule_name[] = "cotan.file";

typedef struct tensor_file { // one of both
    ct_safetensors *safetensors;
    ct_npz *npz;
} tensor_file;

static void file_close(tensor_file *file) {
    ct_safetensors_close(file->safetensors);
    ct_npz_close(file->npz);
    *file = (tensor_file){0};
}

static void file_let_go(PyObject *capsule) {
    tensor_file *file = PyCapsule_GetPointer(capsule, capsule_name);
    if (file) file_close(file);
    free(file);
}

static const char *file_name_of(const tensor_file *file, size_t i) {
    return file->npz ? ct_npz_name(file->npz, i) : ct_safetensors_name(file->safetensors, i);
}

static PyObject *file_names(const tensor_file *file) {
    PyObject *names = PyList_New(0);
    const char *name;
    for (size_t i = 0; names && (name = file_name_of(file, i)); i++) {
        PyObject *one = PyUnicode_FromString(name);
        if (!one || PyList_Append(names, one) < 0) Py_CLEAR(names);
        Py_XDECREF(one);
    }
    return names;
}

static PyObject *file_metadata(const tensor_file *file) {
    PyObject *metadata = PyDict_New();
    const char *key;
    for (size_t i = 0;
         metadata && (key = ct_safetensors_metadata_key(file->safetensors, i)) != NULL; i++) {
        PyObject *value = PyUnicode_FromString(ct_safetensors_metadata(file->safetensors, key));
        if (!value || PyDict_SetItemString(metadata, key, value) < 0) Py_CLEAR(metadata);
        Py_XDECREF(value);
    }
    return metadata;
}

// _file_open(path, npz): the open file, its names and its metadata.
static PyObject *file_open(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *path, *result = NULL;
    int npz;
    const ct_loc here = enter();
    if (!PyArg_ParseTuple(args, "O&p:_file_open", PyUnicode_FSConverter, &path, &npz)) return NULL;
    tensor_file *file = calloc(1, sizeof *file);
    if (!file) {
        Py_DECREF(path);
        return PyErr_NoMemory();
    }
    if (npz)
        file->npz = ct_npz_open_at(PyBytes_AsString(path), here);
    else
        file->safetensors = ct_safetensors_open_at(PyBytes_AsString(path), here);
    Py_DECREF(path);
    PyObject *capsule = NULL;
    if (file->npz || file->safetensors)
        capsule = PyCapsule_New(file, capsule_name, file_let_go);
    else
        raise_failure();
    if (!capsule) {
        file_close(file);
        free(file);
        return NULL;
    }
    PyObject *names = file_names(file), *metadata = names ? file_metadata(file) : NULL;
    if (metadata) result = PyTuple_Pack(3, capsule, names, metadata);
    Py_XDECREF(names);
    Py_XDECREF(metadata);
    Py_DECREF(capsule);
    return result;
}

// _file_get(file, name): the tensor of that name, which is read now.
static PyObject *file_get(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *capsule;
    const char *name;
    const ct_loc here = enter();
    if (!PyArg_ParseTuple(args, "Os:_file_get", &capsule, &name)) return NULL;
    tensor_file *file = PyCapsule_GetPointer(capsule, capsule_name);
    if (!file) return NULL;
    return tensor_new(file->npz ? ct_npz_get_at(file->npz, name, here)
                                : ct_safetensors_get_at(file->safetensors, name, here),
                      here);
}

// Names and tensors of a list of pairs; texts stay the list's.
static bool file_pairs(PyObject *pairs, ct_named *named, ct_loc here) {
    const Py_ssize_t n = PyList_Size(pairs);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *pair = PyList_GetItem(pairs, i), *tensor;
        if (!PyArg_ParseTuple(pair, "sO!", &named[i].name, tensor_type, &tensor)) return false;
        named[i].tensor = tensor_value(tensor, here);
        if (!named[i].tensor.bits) return false;
    }
    return true;
}

static bool file_texts(PyObject *pairs, ct_metadata *metadata) {
    const Py_ssize_t n = PyList_Size(pairs);
    for (Py_ssize_t i = 0; i < n; i++)
        if (!PyArg_ParseTuple(PyList_GetItem(pairs, i), "ss", &metadata[i].key, &metadata[i].value))
            return false;
    return true;
}

// _file_save(path, [(name, tensor)], [(key, value)], npz); tensors are evaluated.
static PyObject *file_save(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *path, *pairs, *texts;
    int npz;
    const ct_loc here = enter();
    if (!PyArg_ParseTuple(args, "O&OOp:_file_save", PyUnicode_FSConverter, &path, &pairs, &texts,
                          &npz))
        return NULL;
    const size_t n = (size_t)PyList_Size(pairs), n_texts = (size_t)PyList_Size(texts);
    ct_named *named = calloc(n + 1, sizeof *named);
    ct_metadata *metadata = calloc(n_texts + 1, sizeof *metadata);
    bool ok = named && metadata;
    if (!ok) PyErr_NoMemory();
    ok = ok && file_pairs(pairs, named, here) && file_texts(texts, metadata);
    if (ok) {
        const char *to = PyBytes_AsString(path);
        ok = npz ? ct_save_npz_with(to, named, n, (ct_npz_options){.here = here})
                 : ct_save_safetensors_with(to, named, n,
                                            (ct_safetensors_options){.metadata = metadata,
                                                                     .n_metadata = n_texts,
                                                                     .here = here});
        if (!ok) raise_failure();
    }
    free(named);
    free(metadata);
    Py_DECREF(path);
    if (!ok) return NULL;
    Py_RETURN_NONE;
}

PyMethodDef file_functions[] = {
    {"_file_open", file_open, METH_VARARGS, NULL},
    {"_file_get", file_get, METH_VARARGS, NULL},
    {"_file_save", file_save, METH_VARARGS, NULL},
    {0},
};
