// cotan.dtype: one object an element type.
#include "core.h"

#include <string.h>

typedef struct dtype_object_t {
    PyObject_HEAD ct_dtype value;
} dtype_object_t;

static const struct {
    const char *name, *format,
        *storage; // storage: NumPy's dtype of the same bits, where it has not this one
    char kind;
} dtypes[CT_DTYPE_COUNT] = {
    [CT_BOOL] = {"bool", "?", "bool", 'b'},
    [CT_U8] = {"uint8", "B", "uint8", 'u'},
    [CT_U16] = {"uint16", "H", "uint16", 'u'},
    [CT_U32] = {"uint32", "I", "uint32", 'u'},
    [CT_U64] = {"uint64", "Q", "uint64", 'u'},
    [CT_I8] = {"int8", "b", "int8", 'i'},
    [CT_I16] = {"int16", "h", "int16", 'i'},
    [CT_I32] = {"int32", "i", "int32", 'i'},
    [CT_I64] = {"int64", "q", "int64", 'i'},
    [CT_F16] = {"float16", "e", "float16", 'f'},
    [CT_BF16] = {"bfloat16", NULL, "uint16", 'f'},
    [CT_F32] = {"float32", "f", "float32", 'f'},
    [CT_F64] = {"float64", "d", "float64", 'f'},
    [CT_F8E4M3] = {"float8_e4m3fn", NULL, "uint8", 'f'},
    [CT_F8E5M2] = {"float8_e5m2", NULL, "uint8", 'f'},
    [CT_U4] = {"uint4", NULL, NULL, 'u'},
    [CT_I4] = {"int4", NULL, NULL, 'i'},
    [CT_F4] = {"float4_e2m1fn", NULL, NULL, 'f'},
    [CT_C64] = {"complex64", "Zf", "complex64", 'c'},
    [CT_C128] = {"complex128", "Zd", "complex128", 'c'},
};
static const struct {
    const char *name;
    ct_dtype dtype;
} aliases[] = {
    {"float", CT_F32}, {"double", CT_F64}, {"half", CT_F16},   {"long", CT_I64},
    {"int", CT_I32},   {"short", CT_I16},  {"cfloat", CT_C64}, {"cdouble", CT_C128},
};
static PyTypeObject *dtype_type;
static PyObject *objects[CT_DTYPE_COUNT];

const char *dtype_text(ct_dtype dtype) { return dtypes[dtype].name; }
const char *dtype_format(ct_dtype dtype) { return dtypes[dtype].format; }
const char *dtype_storage(ct_dtype dtype) { return dtypes[dtype].storage; }
char dtype_kind(ct_dtype dtype) { return dtypes[dtype].kind; }

PyObject *dtype_object(ct_dtype dtype) {
    Py_INCREF(objects[dtype]);
    return objects[dtype];
}

ct_dtype dtype_of_name(const char *name) {
    for (int i = 1; i < CT_DTYPE_COUNT; i++)
        if (strcmp(name, dtypes[i].name) == 0) return (ct_dtype)i;
    return CT_DEFAULT;
}

// A struct format of one element: "<f4"'s is "f", with a sign in front for the order of bytes.
ct_dtype dtype_of_format(const char *format, Py_ssize_t bytes, bool *swapped) {
    *swapped = false;
    if (!format) return bytes == 1 ? CT_U8 : CT_DEFAULT;
    if (strchr("@=<>!", *format)) *swapped = (*format == '>' || *format == '!'), format++;
    const bool complex = *format == 'Z';
    format += complex;
    if (!*format || format[1]) return CT_DEFAULT;
    char kind = strchr("bhilqn", *format)   ? 'i'
                : strchr("BHILQN", *format) ? 'u'
                : strchr("efd", *format)    ? (complex ? 'c' : 'f')
                : *format == '?'            ? 'b'
                                            : 0;
    for (int i = 1; i < CT_DTYPE_COUNT; i++)
        if (dtypes[i].format && dtypes[i].kind == kind &&
            (Py_ssize_t)ct_dtype_size((ct_dtype)i) == bytes)
            return (ct_dtype)i;
    return CT_DEFAULT;
}

// Of a Python type: bool, int, float, complex.
static ct_dtype of_type(PyObject *o) {
    return o == (PyObject *)&PyBool_Type      ? CT_BOOL
           : o == (PyObject *)&PyLong_Type    ? CT_I64
           : o == (PyObject *)&PyFloat_Type   ? CT_F32
           : o == (PyObject *)&PyComplex_Type ? CT_C64
                                              : CT_DEFAULT;
}

static ct_dtype of_text(PyObject *text) {
    Py_ssize_t n;
    const char *name = text && PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &n) : NULL;
    PyErr_Clear();
    return name ? dtype_of_name(name) : CT_DEFAULT;
}

static ct_dtype of_attribute(PyObject *o, const char *attribute) {
    PyObject *text = PyObject_GetAttrString(o, attribute);
    const ct_dtype dtype = of_text(text);
    Py_XDECREF(text);
    PyErr_Clear();
    return dtype;
}

// CT_DEFAULT: it is none.
static ct_dtype find(PyObject *o) {
    if (Py_TYPE(o) == dtype_type) return ((dtype_object_t *)o)->value;
    if (PyUnicode_Check(o)) return of_text(o);
    if (!PyType_Check(o)) return of_attribute(o, "name"); // NumPy's
    const ct_dtype dtype = of_type(o);
    return dtype ? dtype : of_attribute(o, "__name__"); // types of NumPy's scalars
}

bool dtype_parse(PyObject *o, ct_dtype *dtype) {
    *dtype = CT_DEFAULT;
    if (o == Py_None) return true;
    *dtype = find(o);
    if (!*dtype) PyErr_Format(PyExc_TypeError, "%R is no dtype that Cotan has", o);
    return *dtype != CT_DEFAULT;
}

PyObject *dtype_numpy(ct_dtype dtype) {
    PyObject *numpy = numpy_module();
    if (!numpy) return NULL;
    if (dtypes[dtype].format) return PyObject_CallMethod(numpy, "dtype", "s", dtypes[dtype].name);
    PyObject *more = PyImport_ImportModule("ml_dtypes");
    if (!more) {
        PyErr_Format(PyExc_TypeError,
                     "NumPy has no %s; the package ml_dtypes, which has it, is not installed",
                     dtypes[dtype].name);
        return NULL;
    }
    PyObject *type = PyObject_GetAttrString(more, dtypes[dtype].name);
    PyObject *found = type ? PyObject_CallMethod(numpy, "dtype", "O", type) : NULL;
    Py_XDECREF(type);
    Py_DECREF(more);
    return found;
}

// ---------------------------------------------------------------------------------------- the type

static ct_dtype value_of(PyObject *self) { return ((dtype_object_t *)self)->value; }

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *options) {
    (void)type;
    PyObject *o;
    ct_dtype dtype;
    if (options && PyDict_Size(options)) {
        PyErr_SetString(PyExc_TypeError, "dtype() takes no keywords");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O:dtype", &o) || !dtype_parse(o, &dtype)) return NULL;
    return dtype ? dtype_object(dtype) : dtype_object(CT_F32);
}
static PyObject *repr(PyObject *self) {
    return PyUnicode_FromFormat("cotan.%s", dtypes[value_of(self)].name);
}
static PyObject *compare(PyObject *self, PyObject *other, int op) {
    const ct_dtype dtype = op == Py_EQ || op == Py_NE ? find(other) : CT_DEFAULT;
    if (!dtype) Py_RETURN_NOTIMPLEMENTED;
    return PyBool_FromLong((dtype == value_of(self)) == (op == Py_EQ));
}
static Py_hash_t hash(PyObject *self) { return 1000 + value_of(self); }

static PyObject *get_name(PyObject *self, void *unused) {
    (void)unused;
    return PyUnicode_FromString(dtypes[value_of(self)].name);
}
static PyObject *get_itemsize(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromSize_t(ct_dtype_size(value_of(self)));
}
static PyObject *get_bits(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromLong(ct_dtype_bits(value_of(self)));
}
static PyObject *get_kind(PyObject *self, void *unused) {
    (void)unused;
    return PyUnicode_FromStringAndSize(&dtypes[value_of(self)].kind, 1);
}
static PyObject *get_is_floating(PyObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(dtypes[value_of(self)].kind == 'f');
}
static PyObject *get_is_complex(PyObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(dtypes[value_of(self)].kind == 'c');
}
static PyObject *get_is_signed(PyObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(strchr("ifc", dtypes[value_of(self)].kind) != NULL);
}
static PyObject *get_numpy(PyObject *self, void *unused) {
    (void)unused;
    return dtype_numpy(value_of(self));
}
// Pickled by name: cotan.float32.
static PyObject *reduce(PyObject *self, PyObject *unused) {
    (void)unused;
    return get_name(self, NULL);
}

static PyGetSetDef getters[] = {
    {"name", get_name, NULL, "\"float32\"", NULL},
    {"itemsize", get_itemsize, NULL, "Bytes of an element; 0 where one has fewer than 8 bits.",
     NULL},
    {"bits", get_bits, NULL, "Bits of an element.", NULL},
    {"kind", get_kind, NULL, "b, i, u, f or c: bool, signed, unsigned, float, complex.", NULL},
    {"is_floating_point", get_is_floating, NULL, "Is it a float?", NULL},
    {"is_complex", get_is_complex, NULL, "Is it complex?", NULL},
    {"is_signed", get_is_signed, NULL, "Has it negative numbers?", NULL},
    {"dtype", get_numpy, NULL, "NumPy's dtype, by which numpy.dtype(x) works.", NULL},
    {0},
};
static PyMethodDef methods[] = {
    {"__reduce__", reduce, METH_NOARGS, NULL},
    {0},
};
static PyType_Slot slots[] = {
    {Py_tp_doc, "dtype(x)\n--\n\nAn element type: of a name, a Python type or one of NumPy's."},
    {Py_tp_new, (void *)make},
    {Py_tp_repr, (void *)repr},
    {Py_tp_richcompare, (void *)compare},
    {Py_tp_hash, (void *)hash},
    {Py_tp_getset, getters},
    {Py_tp_methods, methods},
    {0},
};
static PyType_Spec spec = {
    .name = "cotan.dtype",
    .basicsize = sizeof(dtype_object_t),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

bool dtype_start(PyObject *module) {
    dtype_type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!dtype_type || PyModule_AddObjectRef(module, "dtype", (PyObject *)dtype_type) < 0)
        return false;
    allocfunc allocate = (allocfunc)PyType_GetSlot(dtype_type, Py_tp_alloc);
    for (int i = 1; i < CT_DTYPE_COUNT; i++) {
        if (!(objects[i] = allocate(dtype_type, 0))) return false;
        ((dtype_object_t *)objects[i])->value = (ct_dtype)i;
        if (PyModule_AddObjectRef(module, dtypes[i].name, objects[i]) < 0) return false;
    }
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (PyModule_AddObjectRef(module, aliases[i].name, objects[aliases[i].dtype]) < 0)
            return false;
    return true;
}
