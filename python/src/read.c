// Reads values into Python: numbers, lists, NumPy arrays, buffers.
#include "core.h"

#include <string.h>

// Returns the dtype in which elements are read: dtypes that C has no type for are read as wider ones that
// hold their numbers.
static ct_dtype py_read_dtype(ct_dtype dtype) {
    switch (dtype) {
    case CT_F16:
    case CT_BF16:
    case CT_F8E4M3:
    case CT_F8E5M2:
    case CT_F4: return CT_F32;
    case CT_U4: return CT_U8;
    case CT_I4: return CT_I8;
    default: return dtype;
    }
}

#define READ_LOAD(type, from) ((type){*(const type *)(from)})
static PyObject *py_read_number(ct_dtype dtype, const char *at) {
    switch (dtype) {
    case CT_BOOL: return PyBool_FromLong(*at);
    case CT_U8: return PyLong_FromUnsignedLong(READ_LOAD(uint8_t, at));
    case CT_U16: return PyLong_FromUnsignedLong(READ_LOAD(uint16_t, at));
    case CT_U32: return PyLong_FromUnsignedLong(READ_LOAD(uint32_t, at));
    case CT_U64: return PyLong_FromUnsignedLongLong(READ_LOAD(uint64_t, at));
    case CT_I8: return PyLong_FromLong(READ_LOAD(int8_t, at));
    case CT_I16: return PyLong_FromLong(READ_LOAD(int16_t, at));
    case CT_I32: return PyLong_FromLong(READ_LOAD(int32_t, at));
    case CT_I64: return PyLong_FromLongLong(READ_LOAD(int64_t, at));
    case CT_F32: return PyFloat_FromDouble((double)READ_LOAD(float, at));
    case CT_F64: return PyFloat_FromDouble(READ_LOAD(double, at));
    case CT_C64:
        return PyComplex_FromDoubles((double)READ_LOAD(float, at),
                                     (double)READ_LOAD(float, at + 4));
    default: return PyComplex_FromDoubles(READ_LOAD(double, at), READ_LOAD(double, at + 8));
    }
}

// Borrows the elements as C types, until ct_borrow_end.
static const char *py_read_borrow(ct_tensor t, ct_dtype *dtype, ct_borrowed **borrowed,
                                  ct_loc here) {
    *dtype = py_read_dtype(ct_dtype_of(t));
    if (*dtype == ct_dtype_of(t)) return run_borrow(t, borrowed, here);
    const ct_tensor read = ct_pin_at(ct_cast_at(t, *dtype, here), here);
    const char *data = run_borrow(read, borrowed, here);
    ct_unpin(read);
    return data;
}

PyObject *read_item(ct_tensor t, ct_loc here) {
    ct_dtype dtype;
    if (!ct_ok(t)) return raise_error();
    if (ct_size(t) != 1)
        return PyErr_Format(PyExc_ValueError,
                            "a tensor of %lld elements is no number: it must have one",
                            (long long)ct_size(t));
    ct_borrowed *borrowed;
    const char *data = py_read_borrow(t, &dtype, &borrowed, here);
    if (!data) return NULL;
    PyObject *result = py_read_number(dtype, data);
    ct_borrow_end(borrowed);
    return result;
}

static PyObject *py_read_list(const ct_ints *sizes, int axis, ct_dtype dtype, const char **at) {
    if (axis == sizes->n) {
        PyObject *o = py_read_number(dtype, *at);
        *at += ct_dtype_size(dtype);
        return o;
    }
    const Py_ssize_t n = (Py_ssize_t)sizes->v[axis];
    PyObject *result = PyList_New(n);
    for (Py_ssize_t i = 0; result && i < n; i++) {
        PyObject *o = py_read_list(sizes, axis + 1, dtype, at);
        if (!o || PyList_SetItem(result, i, o) < 0) Py_CLEAR(result);
    }
    return result;
}

PyObject *read_tolist(PyObject *self, PyObject *Py_UNUSED(unused)) {
    ct_tensor t = tensor_handle(self);
    ct_dtype dtype;
    if (!ct_ok(t)) return raise_error();
    int64_t dim[CT_MAX_RANK];
    const ct_ints sizes = tensor_dims(t, dim);
    ct_borrowed *borrowed;
    const char *data = py_read_borrow(t, &dtype, &borrowed, api_enter());
    if (!data) return NULL;
    PyObject *result = py_read_list(&sizes, 0, dtype, &data);
    ct_borrow_end(borrowed);
    return result;
}

// -------------------------------------------------------------------------------------- buffers

// What a buffer view needs: the borrowed memory, since the tensor may be written meanwhile and then has
// other memory.
typedef struct read_export {
    ct_borrowed *borrowed;
    Py_ssize_t sizes[2 * CT_MAX_RANK]; // sizes, then strides
} read_export;
int read_buffer(PyObject *self, Py_buffer *view, int flags) {
    ct_tensor t = tensor_handle(self);
    const ct_dtype dtype = ct_dtype_of(t);
    const char *format = dtype ? dtype_format(dtype) : NULL;
    view->obj = NULL;
    if (flags & PyBUF_WRITABLE) {
        PyErr_SetString(PyExc_BufferError, "a tensor's memory is read-only to others");
        return -1;
    }
    // As for writes to files.
    const bool plain_bytes = dtype && dtype_storage(dtype) && !(flags & PyBUF_FORMAT);
    if (!format && !plain_bytes) {
        PyErr_Format(PyExc_BufferError, "the buffer protocol has no format for %s",
                     dtype ? dtype_python_name(dtype) : "it");
        return -1;
    }
    const int rank = ct_rank(t);
    const Py_ssize_t bytes = (Py_ssize_t)ct_dtype_size(dtype);
    read_export *export = PyMem_Malloc(sizeof *export);
    if (!export) {
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t *sizes = export->sizes, stride = bytes;
    for (int i = rank - 1; i >= 0; i--) {
        sizes[i] = (Py_ssize_t)ct_dim(t, i);
        sizes[CT_MAX_RANK + i] = stride;
        stride *= sizes[i];
    }
    const void *data = run_borrow(t, &export->borrowed, api_enter());
    if (!data) {
        PyMem_Free(export);
        return -1;
    }
    *view = (Py_buffer){
        .buf = (void *)(uintptr_t)data,
        .obj = self,
        .len = stride,
        .itemsize = bytes,
        .readonly = 1,
        .ndim = rank,
        .format = flags & PyBUF_FORMAT ? (char *)(uintptr_t)format : NULL,
        .shape = flags & PyBUF_ND ? sizes : NULL,
        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? sizes + CT_MAX_RANK : NULL,
        .internal = export,
    };
    Py_INCREF(self);
    return 0;
}
void read_release(PyObject *Py_UNUSED(self), Py_buffer *view) {
    read_export *export = view->internal;
    ct_borrow_end(export->borrowed);
    PyMem_Free(export);
}

// Returns an array that shares the memory, read-only.
PyObject *read_numpy(PyObject *self, ct_loc here) {
    ct_tensor t = tensor_handle(self);
    const ct_dtype dtype = ct_dtype_of(t);
    PyObject *numpy = dtype ? numpy_module() : raise_error();
    if (!numpy) return NULL;
    if (dtype_format(dtype)) {
        PyObject *memory = PyMemoryView_FromObject(self);
        return memory ? PyObject_CallMethod(numpy, "asarray", "N", memory) : NULL;
    }
    PyObject *requested = dtype_to_numpy(dtype);
    if (!requested) return NULL;
    const char *storage = dtype_storage(dtype);
    PyObject *result = NULL;
    ct_tensor other = storage ? ct_bitcast_at(t, dtype_from_name(storage), here)
                              : ct_cast_at(t, py_read_dtype(dtype), here);
    PyObject *bits = tensor_new(other, here);
    PyObject *array = bits ? read_numpy(bits, here) : NULL;
    if (array) result = PyObject_CallMethod(array, storage ? "view" : "astype", "O", requested);
    release(array, bits, requested);
    return result;
}

static PyObject *py_read_numpy_method(PyObject *self, PyObject *args, PyObject *options) {
    static char *names[] = {"force", NULL};
    int force = false; // force=True would detach and copy to the CPU, which is always done
    if (!PyArg_ParseTupleAndKeywords(args, options, "|$p:numpy", names, &force)) return NULL;
    return read_numpy(self, api_enter());
}

static PyObject *py_read_array_method(PyObject *self, PyObject *args, PyObject *options) {
    static char *names[] = {"dtype", "copy", NULL};
    PyObject *dtype = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, options, "|OO:__array__", names, &dtype, &copy))
        return NULL;
    PyObject *result = read_numpy(self, api_enter());
    if (!result) return NULL;
    PyObject *current = PyObject_GetAttrString(result, "dtype");
    const int same = !current           ? -1
                     : dtype == Py_None ? 1
                                        : PyObject_RichCompareBool(current, dtype, Py_EQ);
    Py_XDECREF(current);
    PyObject *other = NULL;
    if (same == 1 && copy != Py_True) return result;
    if (same == 0 && copy == Py_False)
        PyErr_SetString(PyExc_ValueError,
                        "another dtype needs a copy, and copy=False asks for none");
    else if (same >= 0)
        other =
            PyObject_CallMethod(result, "astype", "O",
                                same ? (dtype = PyObject_GetAttrString(result, "dtype")) : dtype);
    if (same == 1) Py_XDECREF(dtype);
    Py_DECREF(result);
    return other;
}

static PyObject *py_read_item_method(PyObject *self, PyObject *Py_UNUSED(unused)) {
    return read_item(tensor_handle(self), api_enter());
}

PyMethodDef read_methods[] = {
    {"item", py_read_item_method, METH_NOARGS,
     "item($self)\n--\n\nIts only element, as a Python number."},
    {"tolist", read_tolist, METH_NOARGS, "tolist($self)\n--\n\nIts elements, as nested lists."},
    {"numpy", (PyCFunction)(void (*)(void))py_read_numpy_method, METH_VARARGS | METH_KEYWORDS,
     "numpy($self, *, force=False)\n--\n\nA read-only NumPy array that shares the memory."},
    {"__array__", (PyCFunction)(void (*)(void))py_read_array_method, METH_VARARGS | METH_KEYWORDS,
     NULL},
    {0},
};
