// cotan.dtype: one object for each element type.
#include "core.h"

#include <string.h>

typedef struct dtype_object_t {
    PyObject_HEAD ct_dtype value;
} dtype_object_t;

static const struct {
    // storage: NumPy's dtype of the same bits, where NumPy does not have this one.
    const char *name, *format, *storage;
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
} dtype_aliases[] = {
    {"float", CT_F32}, {"double", CT_F64}, {"half", CT_F16},   {"long", CT_I64},
    {"int", CT_I32},   {"short", CT_I16},  {"cfloat", CT_C64}, {"cdouble", CT_C128},
};
static PyTypeObject *dtype_type;
static PyObject *dtype_objects[CT_DTYPE_COUNT];

const char *dtype_python_name(ct_dtype dtype) { return dtypes[dtype].name; }
const char *dtype_format(ct_dtype dtype) { return dtypes[dtype].format; }
const char *dtype_storage(ct_dtype dtype) { return dtypes[dtype].storage; }
char dtype_kind(ct_dtype dtype) { return dtypes[dtype].kind; }
int dtype_category(ct_dtype dtype) {
    const char kind = dtypes[dtype].kind;
    return kind == 'b' ? 0 : kind == 'f' ? 2 : kind == 'c' ? 3 : 1;
}

PyObject *dtype_to_object(ct_dtype dtype) { return Py_NewRef(dtype_objects[dtype]); }

ct_dtype dtype_from_name(const char *name) {
    for (int i = 1; i < CT_DTYPE_COUNT; i++)
        if (strcmp(name, dtypes[i].name) == 0) return (ct_dtype)i;
    return CT_DEFAULT;
}

// Returns the dtype of a struct format of one element, such as "f"; in "<f" the sign in front is the byte
// order.
ct_dtype dtype_from_format(const char *format, Py_ssize_t bytes, bool *swapped) {
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

// Returns the dtype of a Python type as PyTorch and NumPy do: bool, int64, float64, complex128.
static ct_dtype py_dtype_from_python_type(PyObject *o) {
    return o == (PyObject *)&PyBool_Type      ? CT_BOOL
           : o == (PyObject *)&PyLong_Type    ? CT_I64
           : o == (PyObject *)&PyFloat_Type   ? CT_F64
           : o == (PyObject *)&PyComplex_Type ? CT_C128
                                              : CT_DEFAULT;
}

static ct_dtype py_dtype_from_string(PyObject *text) {
    Py_ssize_t n;
    const char *name = text && PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &n) : NULL;
    PyErr_Clear();
    return name ? dtype_from_name(name) : CT_DEFAULT;
}

static ct_dtype py_dtype_from_attribute(PyObject *o, const char *attribute) {
    PyObject *text = PyObject_GetAttrString(o, attribute);
    const ct_dtype dtype = py_dtype_from_string(text);
    Py_XDECREF(text);
    PyErr_Clear();
    return dtype;
}

// Returns CT_DEFAULT if the object is no dtype.
static ct_dtype py_dtype_find(PyObject *o) {
    if (Py_TYPE(o) == dtype_type) return ((dtype_object_t *)o)->value;
    if (PyUnicode_Check(o)) return py_dtype_from_string(o);
    if (!PyType_Check(o)) return py_dtype_from_attribute(o, "name"); // a NumPy dtype
    const ct_dtype dtype = py_dtype_from_python_type(o);
    return dtype ? dtype : py_dtype_from_attribute(o, "__name__"); // a NumPy scalar type
}

bool dtype_parse(PyObject *o, ct_dtype *dtype) {
    *dtype = CT_DEFAULT;
    if (o == Py_None) return true;
    *dtype = py_dtype_find(o);
    if (!*dtype) PyErr_Format(PyExc_TypeError, "%R is no dtype that Cotan has", o);
    return *dtype != CT_DEFAULT;
}

PyObject *dtype_to_numpy(ct_dtype dtype) {
    PyObject *numpy = numpy_module();
    if (!numpy) return NULL;
    if (dtypes[dtype].format) return PyObject_CallMethod(numpy, "dtype", "s", dtypes[dtype].name);
    PyObject *ml_dtypes = PyImport_ImportModule("ml_dtypes");
    if (!ml_dtypes)
        return PyErr_Format(
            PyExc_TypeError,
            "NumPy has no %s; the package ml_dtypes, which has it, is not installed",
            dtypes[dtype].name);
    PyObject *type = PyObject_GetAttrString(ml_dtypes, dtypes[dtype].name);
    PyObject *result = type ? PyObject_CallMethod(numpy, "dtype", "O", type) : NULL;
    release(type, ml_dtypes);
    return result;
}

// ---------------------------------------------------------------------------------------- the type

static ct_dtype py_dtype_value(PyObject *self) { return ((dtype_object_t *)self)->value; }

static PyObject *py_dtype_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *options) {
    PyObject *o;
    ct_dtype dtype;
    if (options && PyDict_Size(options))
        return PyErr_Format(PyExc_TypeError, "dtype() takes no keywords");
    if (!PyArg_ParseTuple(args, "O:dtype", &o) || !dtype_parse(o, &dtype)) return NULL;
    return dtype ? dtype_to_object(dtype) : dtype_to_object(CT_F32);
}
static PyObject *py_dtype_repr(PyObject *self) {
    return PyUnicode_FromFormat("cotan.%s", dtypes[py_dtype_value(self)].name);
}
static PyObject *py_dtype_compare(PyObject *self, PyObject *other, int op) {
    const ct_dtype dtype = op == Py_EQ || op == Py_NE ? py_dtype_find(other) : CT_DEFAULT;
    if (!dtype) Py_RETURN_NOTIMPLEMENTED;
    return PyBool_FromLong((dtype == py_dtype_value(self)) == (op == Py_EQ));
}
static Py_hash_t py_dtype_hash(PyObject *self) { return 1000 + py_dtype_value(self); }

static PyObject *py_dtype_get_name(PyObject *self, void *Py_UNUSED(unused)) {
    return PyUnicode_FromString(dtypes[py_dtype_value(self)].name);
}
static PyObject *py_dtype_get_itemsize(PyObject *self, void *Py_UNUSED(unused)) {
    return PyLong_FromSize_t(ct_dtype_size(py_dtype_value(self)));
}
static PyObject *py_dtype_get_bits(PyObject *self, void *Py_UNUSED(unused)) {
    return PyLong_FromLong(ct_dtype_bits(py_dtype_value(self)));
}
static PyObject *py_dtype_get_kind(PyObject *self, void *Py_UNUSED(unused)) {
    return PyUnicode_FromStringAndSize(&dtypes[py_dtype_value(self)].kind, 1);
}
static PyObject *py_dtype_get_is_floating(PyObject *self, void *Py_UNUSED(unused)) {
    return PyBool_FromLong(dtypes[py_dtype_value(self)].kind == 'f');
}
static PyObject *py_dtype_get_is_complex(PyObject *self, void *Py_UNUSED(unused)) {
    return PyBool_FromLong(dtypes[py_dtype_value(self)].kind == 'c');
}
static PyObject *py_dtype_get_is_signed(PyObject *self, void *Py_UNUSED(unused)) {
    return PyBool_FromLong(strchr("ifc", dtypes[py_dtype_value(self)].kind) != NULL);
}
static PyObject *py_dtype_get_numpy(PyObject *self, void *Py_UNUSED(unused)) {
    return dtype_to_numpy(py_dtype_value(self));
}
// Pickled by name: cotan.float32.
static PyObject *py_dtype_reduce(PyObject *self, PyObject *Py_UNUSED(unused)) {
    return py_dtype_get_name(self, NULL);
}

static PyGetSetDef dtype_getters[] = {
    {"name", py_dtype_get_name, NULL, "\"float32\"", NULL},
    {"itemsize", py_dtype_get_itemsize, NULL,
     "Bytes of an element; 0 where one has fewer than 8 bits.", NULL},
    {"bits", py_dtype_get_bits, NULL, "Bits of an element.", NULL},
    {"kind", py_dtype_get_kind, NULL, "b, i, u, f or c: bool, signed, unsigned, float, complex.",
     NULL},
    {"is_floating_point", py_dtype_get_is_floating, NULL, "Is it a float?", NULL},
    {"is_complex", py_dtype_get_is_complex, NULL, "Is it complex?", NULL},
    {"is_signed", py_dtype_get_is_signed, NULL, "Has it negative numbers?", NULL},
    {"dtype", py_dtype_get_numpy, NULL, "NumPy's dtype, by which numpy.dtype(x) works.", NULL},
    {0},
};
static PyMethodDef dtype_methods[] = {
    {"__reduce__", py_dtype_reduce, METH_NOARGS, NULL},
    {0},
};
static PyType_Slot dtype_slots[] = {
    {Py_tp_doc, "dtype(x)\n--\n\nAn element type: of a name, a Python type or one of NumPy's."},
    {Py_tp_new, (void *)py_dtype_new},
    {Py_tp_repr, (void *)py_dtype_repr},
    {Py_tp_richcompare, (void *)py_dtype_compare},
    {Py_tp_hash, (void *)py_dtype_hash},
    {Py_tp_getset, dtype_getters},
    {Py_tp_methods, dtype_methods},
    {0},
};
static PyType_Spec dtype_spec = {
    .name = "cotan.dtype",
    .basicsize = sizeof(dtype_object_t),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = dtype_slots,
};

bool dtype_init(PyObject *module) {
    dtype_type = (PyTypeObject *)PyType_FromSpec(&dtype_spec);
    if (!dtype_type || PyModule_AddObjectRef(module, "dtype", (PyObject *)dtype_type) < 0)
        return false;
    allocfunc allocate = (allocfunc)PyType_GetSlot(dtype_type, Py_tp_alloc);
    for (int i = 1; i < CT_DTYPE_COUNT; i++) {
        if (!(dtype_objects[i] = allocate(dtype_type, 0))) return false;
        ((dtype_object_t *)dtype_objects[i])->value = (ct_dtype)i;
        if (PyModule_AddObjectRef(module, dtypes[i].name, dtype_objects[i]) < 0) return false;
    }
    for (size_t i = 0; i < sizeof dtype_aliases / sizeof *dtype_aliases; i++)
        if (PyModule_AddObjectRef(module, dtype_aliases[i].name,
                                  dtype_objects[dtype_aliases[i].dtype]) < 0)
            return false;
    return true;
}
