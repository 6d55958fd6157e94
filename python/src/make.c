// Makes tensors of Python's data: numbers, nested lists, arrays, buffers.
#include "core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

PyObject *numpy_module(void) {
    static PyObject *numpy;
    if (!numpy) numpy = PyImport_ImportModule("numpy");
    return numpy;
}

bool is_number(PyObject *o) { return PyFloat_Check(o) || PyLong_Check(o) || PyComplex_Check(o); }

// True for NumPy's scalars, some of which are Python numbers, too: they have a dtype of their own. If NumPy
// was not imported, there are none.
static bool make_is_numpy_number(PyObject *o) {
    static PyObject *generic;
    if (PyFloat_CheckExact(o) || PyLong_CheckExact(o) || PyBool_Check(o) || PyList_Check(o))
        return false;
    if (!generic) {
        PyObject *name = PyUnicode_FromString("numpy");
        PyObject *numpy = name ? PyImport_GetModule(name) : NULL;
        generic = numpy ? PyObject_GetAttrString(numpy, "generic") : NULL;
        PyErr_Clear(); // NumPy is being imported
        release(numpy, name);
    }
    return generic && PyObject_IsInstance(o, generic) == 1;
}

// Makes a weak number, which takes the dtype of the other operand.
static bool make_weak_number(PyObject *o, ct_tensor *t) {
    if (PyFloat_Check(o)) {
        *t = ct_f(PyFloat_AsDouble(o));
    } else if (PyBool_Check(o)) {
        *t = ct_scalar(o == Py_True, CT_BOOL);
    } else if (PyLong_Check(o)) {
        int outside;
        const long long value = PyLong_AsLongLongAndOverflow(o, &outside);
        if (!outside) {
            *t = ct_i(value);
        } else {
            const unsigned long long large = PyLong_AsUnsignedLongLong(o);
            if (PyErr_Occurred()) {
                PyErr_Clear();
                return PyErr_Format(PyExc_OverflowError, "%R is no integer of 64 bits", o);
            }
            *t = ct_cast(ct_i((int64_t)large), CT_U64);
        }
    } else {
        *t = ct_c(PyComplex_RealAsDouble(o), PyComplex_ImagAsDouble(o));
    }
    return true;
}

ct_dtype default_float = CT_F32;

static ct_dtype make_number_dtype(PyObject *o) {
    if (PyFloat_Check(o)) return default_float;
    if (PyBool_Check(o)) return CT_BOOL;
    return PyLong_Check(o) ? CT_I64 : default_float == CT_F64 ? CT_C128 : CT_C64;
}

// ---------------------------------------------------------------------------------------- integers

bool int_parse(PyObject *o, int64_t *to, const char *what) {
    PyObject *index = PyNumber_Index(o);
    if (!index) return PyErr_Format(PyExc_TypeError, "%s must be a whole number, not %R", what, o);
    *to = PyLong_AsLongLong(index);
    Py_DECREF(index);
    if (*to == -1 && PyErr_Occurred())
        return PyErr_Format(PyExc_OverflowError, "%s must be an integer of 64 bits, it is %R", what,
                            o);
    return true;
}

bool ints_parse(PyObject *o, int64_t *to, size_t capacity, size_t *n, const char *what) {
    *n = 0;
    if (o == Py_None) return true;
    if (PyLong_Check(o) || PyIndex_Check(o)) {
        *n = 1;
        return int_parse(o, to, what);
    }
    PyObject *list = PyUnicode_Check(o) ? NULL : PySequence_Tuple(o);
    if (!list) return PyErr_Format(PyExc_TypeError, "%s must be whole numbers, not %R", what, o);
    const Py_ssize_t count = PyTuple_Size(list);
    bool ok = (size_t)count <= capacity;
    if (!ok)
        PyErr_Format(PyExc_ValueError, "%s are %zd numbers, at most %zu are possible", what, count,
                     capacity);
    for (Py_ssize_t i = 0; ok && i < count; i++)
        ok = int_parse(PyTuple_GetItem(list, i), &to[i], what);
    Py_DECREF(list);
    *n = ok ? (size_t)count : 0;
    return ok;
}

// ------------------------------------------------------------------------------------ nested lists

typedef struct nested_list {
    int rank;
    int64_t dim[CT_MAX_RANK];
    ct_dtype dtype; // the widest so far; CT_DEFAULT: no element yet
    // Of an array or a NumPy scalar in the lists, while its elements are scanned.
    ct_dtype array_dtype;
    char *next;  // where the next element goes
    ct_dtype as; // the dtype of the elements in memory: bool, i64, u64, f64, c128
    ct_loc here;
} nested_list;

// Returns the rank of a Python number's dtype, of which the highest wins; 0 for other dtypes, which promote
// as operands do.
static int make_dtype_order(ct_dtype dtype) {
    static const ct_dtype order[] = {CT_DEFAULT, CT_BOOL, CT_I64, CT_U64, CT_F32, CT_C64};
    for (int i = 0; i < 6; i++)
        if (order[i] == dtype) return i;
    return 0;
}

static ct_dtype make_promote(ct_dtype a, ct_dtype b, ct_loc here) {
    if (a == b || !a || !b) return a ? a : b;
    if (make_dtype_order(a) && make_dtype_order(b))
        return make_dtype_order(a) > make_dtype_order(b) ? a : b;
    return ct_dtype_of(ct_add_at(ct_cast_at(ct_scalar(0, CT_BOOL), a, here),
                                 ct_cast_at(ct_scalar(0, CT_BOOL), b, here), here));
}

// Returns the dtype of a Tensor, an array or a NumPy scalar in a list. CT_DEFAULT if it has none that is
// known.
static ct_dtype make_element_dtype(PyObject *o) {
    if (tensor_check(o)) return ct_dtype_of(tensor_peek(o));
    PyObject *theirs =
        is_number(o) && !make_is_numpy_number(o) ? NULL : PyObject_GetAttrString(o, "dtype");
    ct_dtype dtype = CT_DEFAULT;
    if (!theirs || !dtype_parse(theirs, &dtype)) PyErr_Clear();
    Py_XDECREF(theirs);
    return dtype;
}

// Returns a list or tuple as it is, the list of an array's elements, or a number itself.
static PyObject *make_to_list(PyObject *o) {
    if (PyList_Check(o) || PyTuple_Check(o) || (is_number(o) && !make_is_numpy_number(o))) {
        return Py_NewRef(o);
    }
    PyObject *list = PyObject_CallMethod(o, "tolist", NULL);
    if (list) return list;
    if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        if (PySequence_Check(o) && !PyUnicode_Check(o)) return PySequence_List(o);
        PyErr_Format(PyExc_TypeError, "a tensor is made of numbers, lists and arrays, not of %R",
                     o);
    }
    return NULL;
}

static void make_raise_ragged(const Py_ssize_t *path, int depth, int64_t has, int64_t needs) {
    char text[256] = "";
    size_t used = 0;
    for (int i = 0; i < depth && used < sizeof text - 32; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "[%zd]", path[i]);
    if (has < 0)
        PyErr_Format(
            PyExc_ValueError,
            "the lists are ragged: element %s is a number, others there have %lld elements", text,
            (long long)needs);
    else if (needs < 0)
        PyErr_Format(PyExc_ValueError,
                     "the lists are ragged: element %s has %lld elements, others there are numbers",
                     text, (long long)has);
    else
        PyErr_Format(PyExc_ValueError,
                     "the lists are ragged: element %s has %lld elements, others there have %lld",
                     text, (long long)has, (long long)needs);
}

static bool make_scan_number(nested_list *of, PyObject *o) {
    if (of->array_dtype) return true;
    ct_dtype dtype = make_number_dtype(o);
    if (dtype == CT_I64) {
        int outside;
        PyLong_AsLongLongAndOverflow(o, &outside);
        if (outside) dtype = CT_U64;
    }
    of->dtype = make_promote(of->dtype, dtype, of->here);
    return of->dtype || raise_error();
}

static bool make_write_number(nested_list *to, PyObject *o) {
    double parts[2];
    int64_t integer;
    switch (to->as) {
    case CT_BOOL: *to->next++ = (char)(PyObject_IsTrue(o) == 1); return true;
    case CT_I64: integer = PyLong_AsLongLong(o); break;
    case CT_U64: integer = (int64_t)PyLong_AsUnsignedLongLong(o); break;
    case CT_F64:
        parts[0] = PyFloat_AsDouble(o);
        memcpy(to->next, parts, sizeof *parts);
        to->next += sizeof *parts;
        return !PyErr_Occurred();
    default:
        parts[0] = PyComplex_RealAsDouble(o), parts[1] = PyComplex_ImagAsDouble(o);
        memcpy(to->next, parts, sizeof parts);
        to->next += sizeof parts;
        return !PyErr_Occurred();
    }
    memcpy(to->next, &integer, sizeof integer);
    to->next += sizeof integer;
    return !PyErr_Occurred();
}

static bool make_walk_elements(PyObject *o, nested_list *n, int depth, bool fill, Py_ssize_t *path);

// Finds the shape and the dtype (fill false), or writes the elements (fill true).
static bool make_walk(PyObject *o, nested_list *n, int depth, bool fill, Py_ssize_t *path) {
    const bool plain =
        PyList_Check(o) || PyTuple_Check(o) || PyFloat_CheckExact(o) || PyLong_CheckExact(o);
    const ct_dtype outer = n->array_dtype,
                   own = plain || fill || outer ? CT_DEFAULT : make_element_dtype(o);
    if (own) {
        n->array_dtype = own;
        n->dtype = make_promote(n->dtype, own, n->here);
        if (!n->dtype) return raise_error();
    }
    const bool ok = make_walk_elements(o, n, depth, fill, path);
    n->array_dtype = outer;
    return ok;
}

static bool make_walk_elements(PyObject *o, nested_list *n, int depth, bool fill,
                               Py_ssize_t *path) {
    PyObject *list = make_to_list(o);
    if (!list) return false;
    bool ok = true;
    if (is_number(list)) {
        if (!fill && n->rank < 0) n->rank = depth;
        ok = depth == n->rank;
        if (!ok) make_raise_ragged(path, depth, -1, n->dim[depth]);
        ok = ok && (fill ? make_write_number(n, list) : make_scan_number(n, list));
        Py_DECREF(list);
        return ok;
    }
    const Py_ssize_t count = PySequence_Size(list);
    if (depth == CT_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "the lists are nested deeper than %d, a tensor's most axes",
                     CT_MAX_RANK);
        ok = false;
    } else if (n->rank >= 0 && depth >= n->rank) {
        make_raise_ragged(path, depth, count, -1);
        ok = false;
    } else if (n->dim[depth] < 0) {
        n->dim[depth] = count;
        if (count == 0) n->rank = depth + 1;
    } else if (n->dim[depth] != count) {
        make_raise_ragged(path, depth, count, n->dim[depth]);
        ok = false;
    }
    for (Py_ssize_t i = 0; ok && i < count; i++) {
        PyObject *element = PySequence_GetItem(list, i);
        path[depth] = i;
        ok = element && make_walk(element, n, depth + 1, fill, path);
        Py_XDECREF(element);
    }
    Py_DECREF(list);
    return ok;
}

enum { MAX_EAGER_ELEMENTS = 1 << 14 };

// Converts f64 to f32, and integers to i64, f32 or f64: the casts that data need as a rule. False for other
// casts.
static bool make_convert(const char *from, ct_dtype is, char *to, ct_dtype want, int64_t n) {
    const char kind = dtype_kind(is);
    const bool is_integer = kind == 'i' || kind == 'u' || kind == 'b';
    const size_t size = ct_dtype_size(is);
    if (is != CT_F64 && (!is_integer || ct_dtype_bits(is) % 8)) return false;
    if (want != CT_F32 && (is == CT_F64 || (want != CT_F64 && want != CT_I64))) return false;
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = 0;
        double real;
        memcpy(&bits, from + (size_t)i * size, size);
        const int64_t number =
            kind == 'i' ? (int64_t)(bits << (64 - 8 * size)) >> (64 - 8 * size) : (int64_t)bits;
        memcpy(&real, &bits, sizeof real);
        if (want == CT_I64)
            memcpy(to + 8 * i, &number, sizeof number);
        else if (want == CT_F64)
            memcpy(to + 8 * i, &(double){kind == 'u' ? (double)bits : (double)number}, 8);
        else
            memcpy(to + 4 * i,
                   &(float){!is_integer   ? (float)real
                            : kind == 'u' ? (float)bits
                                          : (float)number},
                   4);
    }
    return true;
}

// Casts data to another dtype; few elements are cast at once, without a plan.
ct_tensor cast_data_eagerly(ct_tensor t, ct_dtype want, ct_loc here) {
    const char *from = ct_size(t) <= MAX_EAGER_ELEMENTS ? ct_current_data(t) : NULL;
    int64_t dim[CT_MAX_RANK];
    const ct_ints dims = tensor_dims(t, dim);
    char *to = from ? malloc(8 * (size_t)ct_size(t) + 1) : NULL;
    ct_tensor cast = CT_NONE;
    if (to && make_convert(from, ct_dtype_of(t), to, want, ct_size(t)))
        cast = ct_from_at(to, want, dims, here);
    free(to);
    return cast.bits ? cast : ct_cast_at(t, want, here);
}

static bool make_from_lists(PyObject *o, ct_dtype want, ct_tensor *t, ct_loc here) {
    nested_list n = {.rank = -1, .here = here};
    Py_ssize_t path[CT_MAX_RANK + 1];
    int64_t elements = 1;
    for (int i = 0; i < CT_MAX_RANK; i++) n.dim[i] = -1;
    if (!make_walk(o, &n, 0, false, path)) return false;
    if (n.dtype == CT_DEFAULT) n.dtype = default_float;
    const char kind = dtype_kind(n.dtype);
    n.as = kind == 'f'   ? CT_F64
           : kind == 'c' ? CT_C128
           : kind == 'u' ? CT_U64
           : kind == 'i' ? CT_I64
                         : CT_BOOL;
    for (int i = 0; i < n.rank; i++) elements *= n.dim[i];
    const size_t bytes = (size_t)elements * ct_dtype_size(n.as);
    char *data = malloc(bytes + 1);
    if (!data) return PyErr_NoMemory();
    n.next = data;
    const ct_dtype dtype = want ? want : n.dtype;
    const bool ok = make_walk(o, &n, 0, true, path);
    if (ok && n.as == CT_F64 && dtype == CT_F32) { // rounds them without a plan
        float *narrow = (float *)data;
        for (int64_t i = 0; i < elements; i++) {
            double wide;
            memcpy(&wide, data + 8 * i, sizeof wide);
            const float rounded = (float)wide;
            memcpy(&narrow[i], &rounded, sizeof rounded);
        }
        n.as = CT_F32;
    }
    if (ok) *t = ct_from_at(data, n.as, (ct_ints){n.rank, n.dim}, here);
    free(data);
    if (ok && n.as != dtype) *t = cast_data_eagerly(*t, dtype, here);
    return ok;
}

// ----------------------------------------------------------------------------------------- buffers

static void make_swap_bytes(char *data, Py_ssize_t bytes, Py_ssize_t width) {
    for (char *at = data; at < data + bytes; at += width)
        for (Py_ssize_t i = 0; i < width / 2; i++) {
            const char c = at[i];
            at[i] = at[width - 1 - i];
            at[width - 1 - i] = c;
        }
}

bool make_from_view(Py_buffer *view, ct_dtype dtype, bool swapped, ct_tensor *t, ct_loc here) {
    int64_t dim[CT_MAX_RANK];
    for (int i = 0; i < view->ndim; i++)
        dim[i] = view->shape ? view->shape[i] : view->len / view->itemsize;
    const ct_ints dims = {view->ndim, dim};
    if (PyBuffer_IsContiguous(view, 'C') && !swapped) {
        *t = ct_from_at(view->buf, dtype, dims, here);
        return true;
    }
    char *copy = malloc((size_t)view->len + 1);
    if (!copy) return PyErr_NoMemory();
    const bool ok = PyBuffer_ToContiguous(copy, view, view->len, 'C') == 0;
    if (ok && swapped)
        make_swap_bytes(copy, view->len,
                        dtype_kind(dtype) == 'c' ? view->itemsize / 2 : view->itemsize);
    if (ok) *t = ct_from_at(copy, dtype, dims, here);
    free(copy);
    return ok;
}

static bool make_from_typed_view(Py_buffer *view, ct_tensor *t, ct_loc here) {
    bool swapped;
    const ct_dtype dtype = dtype_from_format(view->format, view->itemsize, &swapped);
    if (!dtype) {
        PyObject *theirs = view->obj ? PyObject_GetAttrString(view->obj, "dtype") : NULL;
        PyErr_Clear();
        if (theirs)
            PyErr_Format(PyExc_TypeError, "arrays of dtype %S cannot be made tensors", theirs);
        else
            PyErr_Format(PyExc_TypeError,
                         "elements of format \"%s\" with %zd bytes are of no dtype that Cotan has",
                         view->format ? view->format : "B", view->itemsize);
        Py_XDECREF(theirs);
        return false;
    }
    if (view->ndim > CT_MAX_RANK)
        return PyErr_Format(PyExc_ValueError, "the array has %d axes, a tensor has at most %d",
                            view->ndim, CT_MAX_RANK);
    return make_from_view(view, dtype, swapped, t, here);
}

static bool make_from_buffer(PyObject *o, ct_tensor *t, ct_loc here) {
    Py_buffer view;
    if (PyObject_GetBuffer(o, &view, PyBUF_FULL_RO) < 0) return false;
    const bool ok = make_from_typed_view(&view, t, here);
    PyBuffer_Release(&view);
    return ok;
}

// Makes a tensor of a NumPy array whose dtype comes from another package (ml_dtypes). It has no buffer
// format, so its bits are read.
static bool make_from_foreign_dtype(PyObject *array, ct_tensor *t, ct_loc here) {
    PyObject *numpy_dtype = PyObject_GetAttrString(array, "dtype");
    PyObject *name = numpy_dtype ? PyObject_GetAttrString(numpy_dtype, "name") : NULL;
    PyObject *bytes = name ? PyUnicode_AsUTF8String(name) : NULL;
    const ct_dtype dtype = bytes ? dtype_from_name(PyBytes_AsString(bytes)) : CT_DEFAULT;
    const char *storage = dtype ? dtype_storage(dtype) : NULL;
    if (!PyErr_Occurred() && !storage)
        PyErr_Format(PyExc_TypeError, "arrays of dtype %S cannot be made tensors", numpy_dtype);
    PyObject *bits = storage ? PyObject_CallMethod(array, "view", "s", storage) : NULL;
    const bool ok = bits && make_from_buffer(bits, t, here);
    if (ok) *t = ct_bitcast_at(*t, dtype, here);
    release(bits, bytes, name, numpy_dtype);
    return ok;
}

static bool make_from_array(PyObject *array, ct_tensor *t, ct_loc here) {
    if (make_from_buffer(array, t, here)) return true;
    if (!PyErr_ExceptionMatches(PyExc_ValueError) && !PyErr_ExceptionMatches(PyExc_BufferError))
        return false;
    PyErr_Clear();
    return make_from_foreign_dtype(array, t, here);
}

// Makes a tensor of an object that NumPy can make an array of.
static bool make_through_numpy(PyObject *o, ct_tensor *t, ct_loc here) {
    PyObject *numpy = numpy_module();
    PyObject *array = numpy ? PyObject_CallMethod(numpy, "asarray", "O", o) : NULL;
    const bool ok = array && make_from_array(array, t, here);
    Py_XDECREF(array);
    return ok;
}

static bool make_has_attribute(PyObject *o, const char *attribute) {
    PyObject *result = PyObject_GetAttrString(o, attribute);
    PyErr_Clear();
    Py_XDECREF(result);
    return result != NULL;
}

bool is_operand(PyObject *o) {
    return tensor_check(o) || is_number(o) || make_has_attribute(o, "__array_interface__") ||
           make_has_attribute(o, "__dlpack__");
}

static bool make_copy(PyObject *o, ct_dtype want, ct_tensor *t, ct_loc here) {
    bool ok;
    if (PyList_Check(o) || PyTuple_Check(o)) return make_from_lists(o, want, t, here);
    if (PyUnicode_Check(o))
        return PyErr_Format(PyExc_TypeError,
                            "a tensor is made of numbers, lists and arrays, not of %R", o);
    if (PyObject_CheckBuffer(o))
        ok = make_from_array(o, t, here);
    else if (make_has_attribute(o, "__array_interface__") || make_has_attribute(o, "__array__"))
        ok = make_through_numpy(o, t, here);
    else
        return make_from_lists(o, want, t, here);
    if (ok && want && want != ct_dtype_of(*t)) *t = cast_data_eagerly(*t, want, here);
    return ok;
}

bool operand_parse(PyObject *o, ct_tensor *t, ct_loc here) {
    if (tensor_check(o)) {
        *t = tensor_value(o, here);
        return t->bits;
    }
    if (!make_is_numpy_number(o))
        return is_number(o) ? make_weak_number(o, t) : make_copy(o, CT_DEFAULT, t, here);
    PyObject *number = PyObject_CallMethod(o, "item", NULL); // a Python number, as in PyTorch
    const bool ok = number && (is_number(number) ? make_weak_number(number, t)
                                                 : make_copy(o, CT_DEFAULT, t, here));
    Py_XDECREF(number);
    return ok;
}

// Floats without a dtype of their own are f32; if they are written to an f64 or a complex128, they keep all
// digits.
bool operand_parse_for(PyObject *o, ct_dtype target, ct_tensor *t, ct_loc here) {
    const bool wide = target == CT_F64 || target == CT_C128;
    if (wide && PyFloat_Check(o)) {
        *t = ct_scalar(PyFloat_AsDouble(o), CT_F64);
        return true;
    }
    if (wide && PyComplex_Check(o)) {
        *t = ct_complex_at(ct_scalar(PyComplex_RealAsDouble(o), CT_F64),
                           ct_scalar(PyComplex_ImagAsDouble(o), CT_F64), here);
        return true;
    }
    if (!operand_parse(o, t, here)) return false;
    if (!wide || !(PyList_Check(o) || PyTuple_Check(o))) return true;
    const ct_dtype is = ct_dtype_of(*t);
    if (is != CT_F32 && is != CT_C64) return true;
    return make_from_lists(o, is == CT_F32 ? CT_F64 : CT_C128, t, here);
}

bool tensor_parse(PyObject *o, ct_dtype dtype, ct_tensor *t, ct_loc here) {
    if (tensor_check(o)) {
        *t = tensor_value(o, here);
        if (dtype && t->bits && ct_dtype_of(*t) != dtype) *t = ct_cast_at(*t, dtype, here);
        return t->bits;
    }
    return is_number(o) && !make_is_numpy_number(o) ? make_from_lists(o, dtype, t, here)
                                                    : make_copy(o, dtype, t, here);
}
bool operand_parse_strong(PyObject *o, ct_tensor *t, ct_loc here) {
    return tensor_parse(o, CT_DEFAULT, t, here);
}
