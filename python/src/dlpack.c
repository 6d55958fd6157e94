// Shares memory with other libraries by DLPack, in both directions.
#include "dlpack.h"
#include "core.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const char unversioned_name[] = "dltensor", versioned_name[] = "dltensor_versioned";

static const struct {
    uint8_t code, bits;
    const char *kind;
} dlpack_codes[CT_DTYPE_COUNT] = {
    [CT_BOOL] = {DLPACK_BOOL, 8, "bool"},
    [CT_U8] = {DLPACK_UINT, 8, "uint"},
    [CT_U16] = {DLPACK_UINT, 16, "uint"},
    [CT_U32] = {DLPACK_UINT, 32, "uint"},
    [CT_U64] = {DLPACK_UINT, 64, "uint"},
    [CT_I8] = {DLPACK_INT, 8, "int"},
    [CT_I16] = {DLPACK_INT, 16, "int"},
    [CT_I32] = {DLPACK_INT, 32, "int"},
    [CT_I64] = {DLPACK_INT, 64, "int"},
    [CT_F16] = {DLPACK_FLOAT, 16, "float"},
    [CT_BF16] = {DLPACK_BFLOAT, 16, "bfloat"},
    [CT_F32] = {DLPACK_FLOAT, 32, "float"},
    [CT_F64] = {DLPACK_FLOAT, 64, "float"},
    [CT_F8E4M3] = {DLPACK_F8E4M3FN, 8, "float8_e4m3fn"},
    [CT_F8E5M2] = {DLPACK_F8E5M2, 8, "float8_e5m2"},
    [CT_C64] = {DLPACK_COMPLEX, 64, "complex"},
    [CT_C128] = {DLPACK_COMPLEX, 128, "complex"},
};

bool check_device_is_cpu(PyObject *device) {
    if (device == Py_None ||
        (PyUnicode_Check(device) && PyUnicode_CompareWithASCIIString(device, "cpu") == 0))
        return true;
    return PyErr_Format(PyExc_ValueError, "device %R: arrays are exchanged on \"cpu\" alone",
                        device);
}

// ------------------------------------------------------------------------------------------ export

typedef struct dlpack_export {
    union {
        dlpack_unversioned unversioned;
        dlpack_versioned versioned;
    } as; // must be the first member
    ct_borrowed *borrowed;
    void *copy;                     // the memory, if it is not the borrowed one
    int64_t sizes[2 * CT_MAX_RANK]; // sizes, then strides
} dlpack_export;

// Called from any thread, with or without the GIL.
static void dlpack_export_free(dlpack_export *export) {
    ct_borrow_end(export->borrowed);
    free(export->copy);
    free(export);
}
static void dlpack_delete_unversioned(dlpack_unversioned *self) {
    dlpack_export_free((dlpack_export *)self);
}
static void dlpack_delete_versioned(dlpack_versioned *self) {
    dlpack_export_free((dlpack_export *)self);
}

// frees the array if no consumer has taken it: the capsule has its first name then
static void dlpack_destroy_capsule(PyObject *capsule) {
    void *export = NULL;
    if (PyCapsule_IsValid(capsule, unversioned_name))
        export = PyCapsule_GetPointer(capsule, unversioned_name);
    else if (PyCapsule_IsValid(capsule, versioned_name))
        export = PyCapsule_GetPointer(capsule, versioned_name);
    if (export) dlpack_export_free(export);
}

static bool dlpack_fill_array(dlpack_export *export, dlpack_array *array, ct_tensor t, bool copy,
                              ct_loc here) {
    const ct_dtype dtype = ct_dtype_of(t);
    const int rank = ct_rank(t);
    const size_t bytes = (size_t)ct_size(t) * ct_dtype_size(dtype);
    array->rank = rank;
    array->sizes = export->sizes;
    array->strides = export->sizes + CT_MAX_RANK;
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        array->sizes[i] = ct_dim(t, i);
        array->strides[i] = stride;
        stride *= array->sizes[i];
    }
    const void *data = run_borrow(t, &export->borrowed, here);
    if (!data) return false;
    if (copy) {
        export->copy = aligned_alloc(64, (bytes + 64) & ~(size_t)63);
        if (export->copy) memcpy(export->copy, data, bytes);
        ct_borrow_end(export->borrowed);
        export->borrowed = NULL;
        data = export->copy;
        if (!data) return PyErr_NoMemory();
    }
    array->data = (void *)(uintptr_t)data;
    array->device.type = DLPACK_CPU;
    array->dtype.code = dlpack_codes[dtype].code;
    array->dtype.bits = dlpack_codes[dtype].bits;
    array->dtype.lanes = 1;
    return true;
}

static PyObject *dlpack_export_tensor(ct_tensor t, bool versioned, uint32_t minor, bool copy,
                                      ct_loc here) {
    dlpack_export *export = calloc(1, sizeof *export);
    if (!export) return PyErr_NoMemory();
    dlpack_array *array = versioned ? &export->as.versioned.array : &export->as.unversioned.array;
    if (!dlpack_fill_array(export, array, t, copy, here)) {
        free(export);
        return NULL;
    }
    if (versioned) {
        export->as.versioned.version.major = DLPACK_MAJOR;
        export->as.versioned.version.minor = minor < DLPACK_MINOR ? minor : DLPACK_MINOR;
        export->as.versioned.flags = copy ? DLPACK_IS_COPIED : DLPACK_READ_ONLY;
        export->as.versioned.end = dlpack_delete_versioned;
    } else {
        export->as.unversioned.end = dlpack_delete_unversioned;
    }
    PyObject *capsule = PyCapsule_New(export, versioned ? versioned_name : unversioned_name,
                                      dlpack_destroy_capsule);
    if (!capsule) dlpack_export_free(export);
    return capsule;
}

// Parses two integers; None leaves `to` unchanged.
static bool dlpack_parse_pair(PyObject *o, int64_t to[2], const char *what) {
    size_t n = 0;
    if (o == Py_None) return true;
    if (!ints_parse(o, to, 2, &n, what)) return false;
    if (n != 2) PyErr_Format(PyExc_ValueError, "%s must be two numbers, not %R", what, o);
    return n == 2;
}

static PyObject *dlpack_method(PyObject *self, PyObject *args, PyObject *options) {
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *max_version = Py_None, *device = Py_None, *copy = Py_None;
    int64_t version[2] = {0, 0}, where[2] = {DLPACK_CPU, 0};
    const ct_loc here = api_enter();
    if (!PyArg_ParseTupleAndKeywords(args, options, "|$OOOO:__dlpack__", names, &stream,
                                     &max_version, &device, &copy) ||
        !dlpack_parse_pair(max_version, version, "max_version") ||
        !dlpack_parse_pair(device, where, "dl_device"))
        return NULL;
    ct_tensor t = tensor_handle(self);
    const ct_dtype dtype = ct_dtype_of(t);
    if (!dtype) return raise_error();
    if (stream != Py_None)
        PyErr_Format(PyExc_BufferError, "__dlpack__: the CPU has no streams, stream is %R", stream);
    else if (where[0] != DLPACK_CPU || where[1])
        PyErr_Format(PyExc_BufferError,
                     "__dlpack__: the tensor is on device (1, 0), the CPU, and goes to no other; "
                     "dl_device is %R",
                     device);
    else if (!dlpack_codes[dtype].bits)
        PyErr_Format(PyExc_BufferError, "__dlpack__: elements of %s have fewer than 8 bits",
                     dtype_python_name(dtype));
    else
        return dlpack_export_tensor(t, version[0] >= 1,
                                    version[0] > 1 ? DLPACK_MINOR : (uint32_t)version[1],
                                    copy == Py_True, here);
    return NULL;
}

static PyObject *dlpack_device_method(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused)) {
    return Py_BuildValue("(ii)", DLPACK_CPU, 0);
}

PyMethodDef dlpack_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))dlpack_method, METH_VARARGS | METH_KEYWORDS,
     "__dlpack__($self, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
     "A DLPack capsule that shares the memory, which must not be written; copy=True gives a copy."},
    {"__dlpack_device__", dlpack_device_method, METH_NOARGS,
     "__dlpack_device__($self)\n--\n\n(1, 0): the CPU."},
    {0},
};

// ------------------------------------------------------------------------------------------ import

// Memory that is adopted from another library. Its deleter may need the GIL, which the thread that drops the
// last use may not hold: so it is queued for the next call that holds the GIL.
typedef struct dlpack_imported {
    struct dlpack_imported *next;
    dlpack_unversioned *unversioned; // or the next field
    dlpack_versioned *versioned;
    // calling: while it is being adopted; copied: it was released during that
    bool calling, copied;
} dlpack_imported;
static dlpack_imported *_Atomic dlpack_released;

static void dlpack_release(void *user) {
    dlpack_imported *from = user;
    if (from->calling) {
        from->copied = true;
        return;
    }
    from->next = atomic_load(&dlpack_released);
    while (!atomic_compare_exchange_weak(&dlpack_released, &from->next, from)) {
    }
}
// the deleter may call Python while an exception is set
static void dlpack_import_free(dlpack_imported *from) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (from->unversioned && from->unversioned->end) from->unversioned->end(from->unversioned);
    if (from->versioned && from->versioned->end) from->versioned->end(from->versioned);
    PyErr_Restore(type, value, trace);
}
void dlpack_flush(void) {
    if (!atomic_load_explicit(&dlpack_released, memory_order_relaxed)) return;
    for (dlpack_imported *at = atomic_exchange(&dlpack_released, NULL), *next; at; at = next) {
        next = at->next;
        dlpack_import_free(at);
        free(at);
    }
}

// Takes the array out of the capsule.
static bool dlpack_take_capsule(PyObject *capsule, dlpack_imported *from) {
    const char *name = PyCapsule_GetName(capsule);
    if (!name) name = "";
    if (strcmp(name, unversioned_name) == 0) {
        from->unversioned = PyCapsule_GetPointer(capsule, name);
        return from->unversioned && PyCapsule_SetName(capsule, "used_dltensor") == 0;
    }
    if (strcmp(name, versioned_name) == 0) {
        from->versioned = PyCapsule_GetPointer(capsule, name);
        return from->versioned && PyCapsule_SetName(capsule, "used_dltensor_versioned") == 0;
    }
    if (strncmp(name, "used_dltensor", 13) == 0)
        return PyErr_Format(PyExc_ValueError,
                            "the DLPack capsule was used before; each is good for one use");
    return PyErr_Format(PyExc_ValueError, "a capsule named \"%s\" is none of DLPack's", name);
}

static ct_dtype dlpack_array_dtype(const dlpack_array *a) {
    for (int i = 1; i < CT_DTYPE_COUNT; i++)
        if (dlpack_codes[i].bits && dlpack_codes[i].bits == a->dtype.bits &&
            dlpack_codes[i].code == a->dtype.code)
            return (ct_dtype)i;
    return CT_DEFAULT;
}

static bool dlpack_raise_dtype(const dlpack_array *a) {
    const char *kind = NULL;
    for (int i = 1; i < CT_DTYPE_COUNT; i++)
        if (dlpack_codes[i].bits && dlpack_codes[i].code == a->dtype.code)
            kind = dlpack_codes[i].kind;
    if (kind)
        return PyErr_Format(PyExc_BufferError,
                            "DLPack: elements are %s of %d bits, which Cotan has not", kind,
                            a->dtype.bits);
    return PyErr_Format(PyExc_BufferError,
                        "DLPack: elements are of type code %d with %d bits, which Cotan has not",
                        a->dtype.code, a->dtype.bits);
}

static bool dlpack_is_supported(const dlpack_array *a) {
    if (a->device.type != DLPACK_CPU)
        return PyErr_Format(
            PyExc_BufferError,
            "DLPack: the array is on a device of type %d, only type 1, the CPU, is read\n"
            "  hint: copy it to the CPU first",
            a->device.type);
    if (a->dtype.lanes != 1)
        return PyErr_Format(PyExc_BufferError, "DLPack: elements of %d lanes, only 1 can be read",
                            a->dtype.lanes);
    if (!dlpack_array_dtype(a)) return dlpack_raise_dtype(a);
    if (a->rank < 0 || a->rank > CT_MAX_RANK)
        return PyErr_Format(PyExc_BufferError,
                            "DLPack: the array has %d axes, a tensor has at most %d", a->rank,
                            CT_MAX_RANK);
    for (int i = 0; i < a->rank; i++)
        if (a->sizes[i] < 0)
            return PyErr_Format(PyExc_BufferError, "DLPack: axis %d has %lld elements", i,
                                (long long)a->sizes[i]);
    return true;
}

static bool dlpack_is_row_major(const dlpack_array *a) {
    int64_t stride = 1;
    for (int i = 0; i < a->rank; i++)
        if (!a->sizes[i] || !a->strides) return true;
    for (int i = a->rank - 1; i >= 0; i--) {
        if (a->sizes[i] != 1 && a->strides[i] != stride) return false;
        stride *= a->sizes[i];
    }
    return true;
}

static char *dlpack_pack(const dlpack_array *a, int axis, const char *from, size_t each, char *to) {
    if (axis == a->rank) {
        memcpy(to, from, each);
        return to + each;
    }
    for (int64_t i = 0; i < a->sizes[axis]; i++)
        to = dlpack_pack(a, axis + 1, from + i * a->strides[axis] * (int64_t)each, each, to);
    return to;
}

// Makes a tensor of the array; takes ownership of `from`.
static bool dlpack_adopt(dlpack_imported *from, PyObject *copy, ct_tensor *t, ct_loc here) {
    const dlpack_array *a = from->unversioned ? &from->unversioned->array : &from->versioned->array;
    const ct_dtype dtype = dlpack_array_dtype(a);
    const size_t each = ct_dtype_size(dtype);
    const char *data = a->data ? (const char *)a->data + a->byte_offset : NULL;
    const ct_ints dims = {a->rank, a->sizes};
    const bool row_major = dlpack_is_row_major(a);
    bool ok = true;
    from->copied = true;
    if (row_major && copy != Py_True && (uintptr_t)data % each == 0) {
        from->copied = false;
        from->calling = true;
        *t = ct_adopt_at(data, dtype, dims, dlpack_release, from, here);
        from->calling = false;
    } else if (copy != Py_False) {
        int64_t count = 1;
        for (int i = 0; i < a->rank; i++) count *= a->sizes[i];
        char *packed = row_major ? NULL : malloc((size_t)count * each + 1);
        ok = row_major || packed;
        if (!ok) PyErr_NoMemory();
        if (packed) dlpack_pack(a, 0, data, each, packed);
        if (ok) *t = ct_from_at(row_major ? data : packed, dtype, dims, here);
        free(packed);
    }
    bool has_bytes = true;
    for (int i = 0; i < a->rank; i++) has_bytes = has_bytes && a->sizes[i];
    if (ok && from->copied && copy == Py_False && has_bytes) {
        PyErr_SetString(
            PyExc_BufferError,
            !row_major ? "copy=False: the array is not contiguous, and a tensor is\n"
                         "  hint: copy=None copies where that is needed"
            : (uintptr_t)data % each
                ? "copy=False: the array's memory is not aligned for its elements\n"
                  "  hint: copy=None copies where that is needed"
                : "copy=False: the device cannot read the array's memory, it needs a copy");
        ok = false;
    } else if (ok && from->copied && copy == Py_False && !ct_ok(*t)) {
        *t = ct_from_at(NULL, dtype, dims, here); // an array without elements needs no memory
    }
    if (from->copied) {
        dlpack_import_free(from);
        free(from);
    }
    return ok && (ct_ok(*t) || raise_error());
}

static bool dlpack_import_capsule(PyObject *capsule, PyObject *copy, ct_tensor *t, ct_loc here) {
    dlpack_imported *from = calloc(1, sizeof *from);
    *t = CT_NONE;
    if (!from) return PyErr_NoMemory();
    if (!dlpack_take_capsule(capsule, from)) {
        free(from);
        return false;
    }
    bool ok = true;
    if (from->versioned && from->versioned->version.major != DLPACK_MAJOR) {
        PyErr_Format(PyExc_BufferError, "DLPack: the array is of version %u.%u, 1.x can be read",
                     from->versioned->version.major, from->versioned->version.minor);
        ok = false;
    }
    if (ok && dlpack_is_supported(from->unversioned ? &from->unversioned->array
                                                    : &from->versioned->array))
        return dlpack_adopt(from, copy, t, here);
    dlpack_import_free(from);
    free(from);
    return false;
}

// Calls x.__dlpack__(), with the newer arguments if it accepts them.
static PyObject *dlpack_call_method(PyObject *x, PyObject *copy) {
    PyObject *method = PyObject_GetAttrString(x, "__dlpack__");
    PyObject *none = PyTuple_New(0);
    PyObject *options = Py_BuildValue("{s(ii)}", "max_version", DLPACK_MAJOR, DLPACK_MINOR);
    PyObject *capsule = NULL;
    if (method && none && options &&
        (copy != Py_False || PyDict_SetItemString(options, "copy", Py_False) == 0))
        capsule = PyObject_Call(method, none, options);
    if (!capsule && method && none && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        capsule = PyObject_Call(method, none, NULL);
    }
    release(options, none, method);
    return capsule;
}

static bool dlpack_is_on_cpu(PyObject *x) {
    PyObject *device = PyObject_CallMethod(x, "__dlpack_device__", NULL);
    if (!device) {
        const bool has_none = PyErr_ExceptionMatches(PyExc_AttributeError);
        if (has_none) PyErr_Clear();
        return has_none; // then the capsule's array has the device
    }
    int64_t where[2] = {DLPACK_CPU, 0};
    const bool ok = dlpack_parse_pair(device, where, "__dlpack_device__()");
    Py_DECREF(device);
    const dlpack_array probe = {.device = {.type = (int32_t)where[0]}, .dtype = {DLPACK_INT, 8, 1}};
    return ok && dlpack_is_supported(&probe);
}

bool dlpack_import(PyObject *x, PyObject *copy, ct_tensor *t, ct_loc here) {
    if (PyCapsule_CheckExact(x)) return dlpack_import_capsule(x, copy, t, here);
    if (!PyObject_HasAttrString(x, "__dlpack__"))
        return PyErr_Format(
            PyExc_TypeError,
            "from_dlpack() takes an array that has __dlpack__, or a capsule, not %R", x);
    PyObject *capsule = dlpack_is_on_cpu(x) ? dlpack_call_method(x, copy) : NULL;
    bool ok = capsule && PyCapsule_CheckExact(capsule);
    if (capsule && !ok)
        PyErr_Format(PyExc_TypeError, "__dlpack__() gave %R, it must give a capsule", capsule);
    ok = ok && dlpack_import_capsule(capsule, copy, t, here);
    Py_XDECREF(capsule);
    return ok;
}

static PyObject *dlpack_from_dlpack(PyObject *Py_UNUSED(module), PyObject *args,
                                    PyObject *options) {
    static char *names[] = {"", "device", "copy", NULL};
    PyObject *x, *device = Py_None, *copy = Py_None;
    ct_tensor t;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTupleAndKeywords(args, options, "O|$OO:from_dlpack", names, &x, &device,
                                     &copy) ||
        !check_device_is_cpu(device) || !dlpack_import(x, copy, &t, here))
        return NULL;
    return tensor_new(t, here);
}

static PyObject *dlpack_from_numpy(PyObject *Py_UNUSED(module), PyObject *array) {
    ct_tensor t;
    const ct_loc here = api_enter();
    PyObject *numpy = numpy_module();
    PyObject *type = numpy ? PyObject_GetAttrString(numpy, "ndarray") : NULL;
    const int is = type ? PyObject_IsInstance(array, type) : -1;
    Py_XDECREF(type);
    if (is < 0) return NULL;
    if (!is)
        return PyErr_Format(PyExc_TypeError, "from_numpy() takes a NumPy array, not %R", array);
    return operand_parse_strong(array, &t, here) ? tensor_new(t, here) : NULL;
}

// ----------------------------------------------------------------------------------------- asarray

// Makes a tensor that shares the object's memory, or raises ValueError.
static bool dlpack_share(PyObject *o, ct_dtype want, ct_tensor *t, ct_loc here) {
    PyObject *array = NULL;
    if (tensor_check(o)) {
        *t = tensor_value(o, here);
        if (!t->bits) return false;
    } else {
        if (is_number(o) || PyList_Check(o) || PyTuple_Check(o))
            return PyErr_Format(PyExc_ValueError,
                                "copy=False: %R has no memory that a tensor could share", o);
        if (!PyObject_HasAttrString(o, "__dlpack__") && PyObject_CheckBuffer(o)) {
            PyObject *memory = PyMemoryView_FromObject(o);
            PyObject *numpy = memory ? numpy_module() : NULL;
            array = numpy ? PyObject_CallMethod(numpy, "asarray", "O", memory) : NULL;
            Py_XDECREF(memory);
            if (!array) return false;
        }
        const bool ok = dlpack_import(array ? array : o, Py_False, t, here);
        Py_XDECREF(array);
        if (!ok && PyErr_ExceptionMatches(PyExc_BufferError)) {
            PyObject *type, *value, *trace;
            PyErr_Fetch(&type, &value, &trace);
            PyErr_Format(PyExc_ValueError, "%S", value);
            release(type, value, trace);
        }
        if (!ok) return false;
    }
    if (!want || want == ct_dtype_of(*t)) return true;
    return PyErr_Format(PyExc_ValueError, "copy=False: the array is %s, and %s takes a copy",
                        dtype_python_name(ct_dtype_of(*t)), dtype_python_name(want));
}

static PyObject *dlpack_asarray(PyObject *Py_UNUSED(module), PyObject *args, PyObject *options) {
    static char *names[] = {"obj", "dtype", "device", "copy", NULL};
    PyObject *o, *dtype = Py_None, *device = Py_None, *copy = Py_None;
    ct_dtype want;
    ct_tensor t;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTupleAndKeywords(args, options, "O|O$OO:asarray", names, &o, &dtype, &device,
                                     &copy) ||
        !dtype_parse(dtype, &want))
        return NULL;
    const char *device_name = device == Py_None ? NULL : device_parse_name(device);
    if ((device != Py_None && !device_name) ||
        !(copy == Py_False ? dlpack_share(o, want, &t, here) : tensor_parse(o, want, &t, here)))
        return NULL;
    const ct_tensor result = t;
    if (device_name) t = ct_to_at(t, device_name, here);
    if (copy == Py_False && result.bits != t.bits)
        return PyErr_Format(PyExc_ValueError,
                            "copy=False: the array is on another device, and %s needs a copy",
                            device_name);
    if (tensor_check(o) && tensor_handle(o).bits == t.bits) {
        if (copy != Py_True) {
            return Py_NewRef(o);
        }
        t = ct_cast_at(t, ct_dtype_of(t), here); // a new handle; the memory is never written
    }
    return tensor_new(t, here);
}

PyMethodDef dlpack_functions[] = {
    {"asarray", (PyCFunction)(void (*)(void))dlpack_asarray, METH_VARARGS | METH_KEYWORDS,
     "asarray(obj, dtype=None, *, device=None, copy=None)\n--\n\n"
     "A tensor of a number, nested lists, an array or a buffer, copied; a tensor as it is. "
     "copy=False\n"
     "shares the array's memory or raises ValueError: what is pending then sees later writes."},
    {"from_dlpack", (PyCFunction)(void (*)(void))dlpack_from_dlpack, METH_VARARGS | METH_KEYWORDS,
     "from_dlpack(x, /, *, device=None, copy=None)\n--\n\n"
     "A tensor that shares the memory of an array with __dlpack__; copied if it is not\n"
     "contiguous. What is computed later sees later writes to the array."},
    {"from_numpy", dlpack_from_numpy, METH_O,
     "from_numpy(array)\n--\n\nA tensor of a copy of the array; from_dlpack shares it."},
    {0},
};
