// Reads and writes files of named tensors: safetensors, and NumPy's .npz.
#include "core.h"
#include "tensor.h"

#include <stdlib.h>
#include <string.h>

#include <cotan/io.h>

static const char capsule_name[] = "cotan.file";

typedef struct tensor_file { // one of both is set
    ct_safetensors *safetensors;
    ct_npz *npz;
} tensor_file;

static void py_file_close(tensor_file *file) {
    ct_safetensors_close(file->safetensors);
    ct_npz_close(file->npz);
    *file = (tensor_file){0};
}

static void py_file_destroy(PyObject *capsule) {
    tensor_file *file = PyCapsule_GetPointer(capsule, capsule_name);
    if (file) py_file_close(file);
    free(file);
}

static const char *py_file_tensor_name(const tensor_file *file, size_t i) {
    return file->npz ? ct_npz_name(file->npz, i) : ct_safetensors_name(file->safetensors, i);
}

static PyObject *py_file_list_names(const tensor_file *file) {
    PyObject *names = PyList_New(0);
    const char *name;
    for (size_t i = 0; names && (name = py_file_tensor_name(file, i)); i++)
        if (!list_append(names, PyUnicode_FromString(name))) Py_CLEAR(names);
    return names;
}

static PyObject *py_file_get_metadata(const tensor_file *file) {
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

// _file_open(path, npz): returns the open file, its names and its metadata.
static PyObject *py_file_open(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *path, *result = NULL;
    int npz;
    const ct_loc here = api_enter();
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
        capsule = PyCapsule_New(file, capsule_name, py_file_destroy);
    else
        raise_error();
    if (!capsule) {
        py_file_close(file);
        free(file);
        return NULL;
    }
    PyObject *names = py_file_list_names(file),
             *metadata = names ? py_file_get_metadata(file) : NULL;
    if (metadata) result = PyTuple_Pack(3, capsule, names, metadata);
    release(names, metadata, capsule);
    return result;
}

// _file_get(file, name): reads the tensor of that name.
static PyObject *py_file_get(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *capsule;
    const char *name;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "Os:_file_get", &capsule, &name)) return NULL;
    tensor_file *file = PyCapsule_GetPointer(capsule, capsule_name);
    if (!file) return NULL;
    return tensor_new(file->npz ? ct_npz_get_at(file->npz, name, here)
                                : ct_safetensors_get_at(file->safetensors, name, here),
                      here);
}

// Parses a list of pairs (name, tensor); the strings stay owned by the list.
static bool py_file_parse_tensors(PyObject *pairs, ct_named_tensor *named, ct_loc here) {
    const Py_ssize_t n = PyList_Size(pairs);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *pair = PyList_GetItem(pairs, i), *tensor;
        if (!PyArg_ParseTuple(pair, "sO!", &named[i].name, tensor_type, &tensor)) return false;
        named[i].tensor = tensor_value(tensor, here);
        if (!named[i].tensor.bits) return false;
    }
    return true;
}

static bool py_file_parse_metadata(PyObject *pairs, ct_metadata *metadata) {
    const Py_ssize_t n = PyList_Size(pairs);
    for (Py_ssize_t i = 0; i < n; i++)
        if (!PyArg_ParseTuple(PyList_GetItem(pairs, i), "ss", &metadata[i].key, &metadata[i].value))
            return false;
    return true;
}

// _file_save(path, [(name, tensor)], [(key, value)], npz): evaluates the tensors and writes them.
static PyObject *py_file_save(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *path, *pairs, *metadata_pairs;
    int npz;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "O&OOp:_file_save", PyUnicode_FSConverter, &path, &pairs,
                          &metadata_pairs, &npz))
        return NULL;
    const size_t n = (size_t)PyList_Size(pairs), n_metadata = (size_t)PyList_Size(metadata_pairs);
    ct_named_tensor *named = calloc(n + 1, sizeof *named);
    ct_metadata *metadata = calloc(n_metadata + 1, sizeof *metadata);
    bool ok = named && metadata;
    if (!ok) PyErr_NoMemory();
    ok = ok && py_file_parse_tensors(pairs, named, here) &&
         py_file_parse_metadata(metadata_pairs, metadata);
    if (ok) {
        const char *to = PyBytes_AsString(path);
        ok = npz ? ct_save_npz_with(to, named, n, (ct_npz_options){.here = here})
                 : ct_save_safetensors_with(to, named, n,
                                            (ct_safetensors_options){.metadata = metadata,
                                                                     .n_metadata = n_metadata,
                                                                     .here = here});
        if (!ok) raise_error();
    }
    free(named);
    free(metadata);
    Py_DECREF(path);
    return none_if(ok);
}

PyMethodDef file_functions[] = {
    {"_file_open", py_file_open, METH_VARARGS, NULL},
    {"_file_get", py_file_get, METH_VARARGS, NULL},
    {"_file_save", py_file_save, METH_VARARGS, NULL},
    {0},
};
