// Tensors of what Python has: numbers, nested lists, arrays, buffers.
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

// NumPy's numbers, of which some are Python's, too: they have a dtype of their own. Who has none has not imported NumPy.
static bool is_numpy_number(PyObject *o) {
    static PyObject *generic;
    if (PyFloat_CheckExact(o) || PyLong_CheckExact(o) || PyBool_Check(o) || PyList_Check(o))
        return false;
    if (!generic) {
        PyObject *name = PyUnicode_FromString("numpy");
        PyObject *numpy = name ? PyImport_GetModule(name) : NULL;
        generic = numpy ? PyObject_GetAttrString(numpy, "generic") : NULL;
        PyErr_Clear(); // it is being imported
        Py_XDECREF(numpy);
        Py_XDECREF(name);
    }
    return generic && PyObject_IsInstance(o, generic) == 1;
}

// A number that takes the dtype of what it meets.
static bool weak_number(PyObject *o, ct_tensor *t) {
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
                PyErr_Format(PyExc_OverflowError, "%R is no integer of 64 bits", o);
                return false;
            }
            *t = ct_cast(ct_i((int64_t)large), CT_U64);
        }
    } else {
        *t = ct_c(PyComplex_RealAsDouble(o), PyComplex_ImagAsDouble(o));
    }
    return true;
}

static ct_dtype number_dtype(PyObject *o) {
    if (PyFloat_Check(o)) return CT_F32;
    if (PyBool_Check(o)) return CT_BOOL;
    return PyLong_Check(o) ? CT_I64 : CT_C64;
}

// -------------------------------------------------------------------------------- whole numbers

bool parse_int(PyObject *o, int64_t *to, const char *what) {
    PyObject *index = PyNumber_Index(o);
    if (!index) {
        PyErr_Format(PyExc_TypeError, "%s must be a whole number, not %R", what, o);
        return false;
    }
    *to = PyLong_AsLongLong(index);
    Py_DECREF(index);
    if (*to == -1 && PyErr_Occurred()) {
        PyErr_Format(PyExc_OverflowError, "%s must be an integer of 64 bits, it is %R", what, o);
        return false;
    }
    return true;
}

bool parse_ints(PyObject *o, int64_t *to, size_t room, size_t *n, const char *what) {
    *n = 0;
    if (o == Py_None) return true;
    if (PyLong_Check(o) || PyIndex_Check(o)) {
        *n = 1;
        return parse_int(o, to, what);
    }
    PyObject *list = PyUnicode_Check(o) ? NULL : PySequence_Tuple(o);
    if (!list) {
        PyErr_Format(PyExc_TypeError, "%s must be whole numbers, not %R", what, o);
        return false;
    }
    const Py_ssize_t count = PyTuple_Size(list);
    bool ok = (size_t)count <= room;
    if (!ok)
        PyErr_Format(PyExc_ValueError, "%s are %zd numbers, at most %zu are possible", what, count,
                     room);
    for (Py_ssize_t i = 0; ok && i < count; i++)
        ok = parse_int(PyTuple_GetItem(list, i), &to[i], what);
    Py_DECREF(list);
    *n = ok ? (size_t)count : 0;
    return ok;
}

// -------------------------------------------------------------------------------- nested lists

typedef struct nest {
    int rank;
    int64_t dim[CT_MAX_RANK];
    ct_dtype dtype; // the widest so far; CT_DEFAULT: no element yet
    ct_dtype given; // of an array or a NumPy number in the lists, while its elements are noted
    char *next;     // where the next element goes
    ct_dtype as;    // what is written there: bool, i64, u64, f64, c128
    ct_loc here;
} nest;

// Of Python's numbers the last in this order; of others what operands of both meet in.
static int order_of(ct_dtype dtype) {
    static const ct_dtype order[] = {CT_DEFAULT, CT_BOOL, CT_I64, CT_U64, CT_F32, CT_C64};
    for (int i = 0; i < 6; i++)
        if (order[i] == dtype) return i;
    return 0;
}

static ct_dtype wider(ct_dtype a, ct_dtype b, ct_loc here) {
    if (a == b || !a || !b) return a ? a : b;
    if (order_of(a) && order_of(b)) return order_of(a) > order_of(b) ? a : b;
    return ct_dtype_of(ct_add_at(ct_cast_at(ct_scalar(0, CT_BOOL), a, here),
                                 ct_cast_at(ct_scalar(0, CT_BOOL), b, here), here));
}

// Of what has one in a list: a Tensor, an array, NumPy's number. CT_DEFAULT: it has none that is known.
static ct_dtype dtype_within(PyObject *o) {
    if (tensor_check(o)) return ct_dtype_of(tensor_look(o));
    PyObject *theirs =
        is_number(o) && !is_numpy_number(o) ? NULL : PyObject_GetAttrString(o, "dtype");
    ct_dtype dtype = CT_DEFAULT;
    if (!theirs || !dtype_parse(theirs, &dtype)) PyErr_Clear();
    Py_XDECREF(theirs);
    return dtype;
}

// A list or tuple, or the same elements of something array-like, or NULL: a number.
static PyObject *list_of(PyObject *o) {
    if (PyList_Check(o) || PyTuple_Check(o) || (is_number(o) && !is_numpy_number(o))) {
        Py_INCREF(o);
        return o;
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

static void say_ragged(const Py_ssize_t *path, int depth, int64_t has, int64_t needs) {
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

static bool note_number(nest *of, PyObject *o) {
    if (of->given) return true;
    ct_dtype dtype = number_dtype(o);
    if (dtype == CT_I64) {
        int outside;
        PyLong_AsLongLongAndOverflow(o, &outside);
        if (outside) dtype = CT_U64;
    }
    of->dtype = wider(of->dtype, dtype, of->here);
    return of->dtype || raise_failure();
}

static bool write_number(nest *to, PyObject *o) {
    double parts[2];
    int64_t whole;
    switch (to->as) {
    case CT_BOOL: *to->next++ = (char)(PyObject_IsTrue(o) == 1); return true;
    case CT_I64: whole = PyLong_AsLongLong(o); break;
    case CT_U64: whole = (int64_t)PyLong_AsUnsignedLongLong(o); break;
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
    memcpy(to->next, &whole, sizeof whole);
    to->next += sizeof whole;
    return !PyErr_Occurred();
}

static bool walk_inside(PyObject *o, nest *n, int depth, bool fill, Py_ssize_t *path);

// Its sizes and dtype (fill false), then its elements.
static bool walk(PyObject *o, nest *n, int depth, bool fill, Py_ssize_t *path) {
    const bool plain =
        PyList_Check(o) || PyTuple_Check(o) || PyFloat_CheckExact(o) || PyLong_CheckExact(o);
    const ct_dtype outer = n->given, own = plain || fill || outer ? CT_DEFAULT : dtype_within(o);
    if (own) {
        n->given = own;
        n->dtype = wider(n->dtype, own, n->here);
        if (!n->dtype) return raise_failure();
    }
    const bool ok = walk_inside(o, n, depth, fill, path);
    n->given = outer;
    return ok;
}

static bool walk_inside(PyObject *o, nest *n, int depth, bool fill, Py_ssize_t *path) {
    PyObject *list = list_of(o);
    if (!list) return false;
    bool ok = true;
    if (is_number(list)) {
        if (!fill && n->rank < 0) n->rank = depth;
        ok = depth == n->rank;
        if (!ok) say_ragged(path, depth, -1, n->dim[depth]);
        ok = ok && (fill ? write_number(n, list) : note_number(n, list));
        Py_DECREF(list);
        return ok;
    }
    const Py_ssize_t count = PySequence_Size(list);
    if (depth == CT_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "the lists are nested deeper than %d, a tensor's most axes",
                     CT_MAX_RANK);
        ok = false;
    } else if (n->rank >= 0 && depth >= n->rank) {
        say_ragged(path, depth, count, -1);
        ok = false;
    } else if (n->dim[depth] < 0) {
        n->dim[depth] = count;
        if (count == 0) n->rank = depth + 1;
    } else if (n->dim[depth] != count) {
        say_ragged(path, depth, count, n->dim[depth]);
        ok = false;
    }
    for (Py_ssize_t i = 0; ok && i < count; i++) {
        PyObject *element = PySequence_GetItem(list, i);
        path[depth] = i;
        ok = element && walk(element, n, depth + 1, fill, path);
        Py_XDECREF(element);
    }
    Py_DECREF(list);
    return ok;
}

enum { MOST_AT_ONCE = 1 << 14 };

// f64 as f32, integers as i64, f32 or f64: what data become as a rule. False: it is another cast.
static bool converted(const char *from, ct_dtype is, char *to, ct_dtype want, int64_t n) {
    const char kind = dtype_kind(is);
    const bool whole = kind == 'i' || kind == 'u' || kind == 'b';
    const size_t size = ct_dtype_size(is);
    if (is != CT_F64 && (!whole || ct_dtype_bits(is) % 8)) return false;
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
                   &(float){!whole        ? (float)real
                            : kind == 'u' ? (float)bits
                                          : (float)number},
                   4);
    }
    return true;
}

// The data in another dtype; few elements at once, without a plan.
ct_tensor cast_data(ct_tensor t, ct_dtype want, ct_loc here) {
    const char *from = ct_size(t) <= MOST_AT_ONCE ? ct_at_hand(t) : NULL;
    int64_t dim[CT_MAX_RANK];
    const int rank = ct_rank(t);
    for (int i = 0; i < rank; i++) dim[i] = ct_dim(t, i);
    char *to = from ? malloc(8 * (size_t)ct_size(t) + 1) : NULL;
    ct_tensor cast = CT_NONE;
    if (to && converted(from, ct_dtype_of(t), to, want, ct_size(t)))
        cast = ct_from_at(to, want, (ct_ints){rank, dim}, here);
    free(to);
    return cast.bits ? cast : ct_cast_at(t, want, here);
}

static bool of_lists(PyObject *o, ct_dtype want, ct_tensor *t, ct_loc here) {
    nest n = {.rank = -1, .here = here};
    Py_ssize_t path[CT_MAX_RANK + 1];
    int64_t elements = 1;
    for (int i = 0; i < CT_MAX_RANK; i++) n.dim[i] = -1;
    if (!walk(o, &n, 0, false, path)) return false;
    if (n.dtype == CT_DEFAULT) n.dtype = CT_F32;
    const char kind = dtype_kind(n.dtype);
    n.as = kind == 'f'   ? CT_F64
           : kind == 'c' ? CT_C128
           : kind == 'u' ? CT_U64
           : kind == 'i' ? CT_I64
                         : CT_BOOL;
    for (int i = 0; i < n.rank; i++) elements *= n.dim[i];
    const size_t bytes = (size_t)elements * ct_dtype_size(n.as);
    char *data = malloc(bytes + 1);
    if (!data) {
        PyErr_NoMemory();
        return false;
    }
    n.next = data;
    const ct_dtype dtype = want ? want : n.dtype;
    const bool ok = walk(o, &n, 0, true, path);
    if (ok && n.as == CT_F64 && dtype == CT_F32) { // no plan to round them
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
    if (ok && n.as != dtype) *t = cast_data(*t, dtype, here);
    return ok;
}

// -------------------------------------------------------------------------------------- buffers

static void swap_bytes(char *data, Py_ssize_t bytes, Py_ssize_t width) {
    for (char *at = data; at < data + bytes; at += width)
        for (Py_ssize_t i = 0; i < width / 2; i++) {
            const char c = at[i];
            at[i] = at[width - 1 - i];
            at[width - 1 - i] = c;
        }
}

static bool of_view(Py_buffer *view, ct_tensor *t, ct_loc here) {
    bool swapped;
    const ct_dtype dtype = dtype_of_format(view->format, view->itemsize, &swapped);
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
    if (view->ndim > CT_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "the array has %d axes, a tensor has at most %d", view->ndim,
                     CT_MAX_RANK);
        return false;
    }
    int64_t dim[CT_MAX_RANK];
    for (int i = 0; i < view->ndim; i++)
        dim[i] = view->shape ? view->shape[i] : view->len / view->itemsize;
    const ct_ints dims = {view->ndim, dim};
    if (PyBuffer_IsContiguous(view, 'C') && !swapped) {
        *t = ct_from_at(view->buf, dtype, dims, here);
        return true;
    }
    char *copy = malloc((size_t)view->len + 1);
    if (!copy) {
        PyErr_NoMemory();
        return false;
    }
    const bool ok = PyBuffer_ToContiguous(copy, view, view->len, 'C') == 0;
    if (ok && swapped)
        swap_bytes(copy, view->len, dtype_kind(dtype) == 'c' ? view->itemsize / 2 : view->itemsize);
    if (ok) *t = ct_from_at(copy, dtype, dims, here);
    free(copy);
    return ok;
}

static bool of_buffer(PyObject *o, ct_tensor *t, ct_loc here) {
    Py_buffer view;
    if (PyObject_GetBuffer(o, &view, PyBUF_FULL_RO) < 0) return false;
    const bool ok = of_view(&view, t, here);
    PyBuffer_Release(&view);
    return ok;
}

// NumPy's arrays of dtypes that it has from elsewhere (ml_dtypes) tell no format: their bits do.
static bool of_foreign_dtype(PyObject *array, ct_tensor *t, ct_loc here) {
    PyObject *numpy_dtype = PyObject_GetAttrString(array, "dtype");
    PyObject *name = numpy_dtype ? PyObject_GetAttrString(numpy_dtype, "name") : NULL;
    PyObject *bytes = name ? PyUnicode_AsUTF8String(name) : NULL;
    const ct_dtype dtype = bytes ? dtype_of_name(PyBytes_AsString(bytes)) : CT_DEFAULT;
    const char *storage = dtype ? dtype_storage(dtype) : NULL;
    if (!PyErr_Occurred() && !storage)
        PyErr_Format(PyExc_TypeError, "arrays of dtype %S cannot be made tensors", numpy_dtype);
    PyObject *bits = storage ? PyObject_CallMethod(array, "view", "s", storage) : NULL;
    const bool ok = bits && of_buffer(bits, t, here);
    if (ok) *t = ct_bitcast_at(*t, dtype, here);
    Py_XDECREF(bits);
    Py_XDECREF(bytes);
    Py_XDECREF(name);
    Py_XDECREF(numpy_dtype);
    return ok;
}

static bool of_array(PyObject *array, ct_tensor *t, ct_loc here) {
    if (of_buffer(array, t, here)) return true;
    if (!PyErr_ExceptionMatches(PyExc_ValueError) && !PyErr_ExceptionMatches(PyExc_BufferError))
        return false;
    PyErr_Clear();
    return of_foreign_dtype(array, t, here);
}

// An object that NumPy can make an array of.
static bool through_numpy(PyObject *o, ct_tensor *t, ct_loc here) {
    PyObject *numpy = numpy_module();
    PyObject *array = numpy ? PyObject_CallMethod(numpy, "asarray", "O", o) : NULL;
    const bool ok = array && of_array(array, t, here);
    Py_XDECREF(array);
    return ok;
}

static bool has(PyObject *o, const char *attribute) {
    PyObject *found = PyObject_GetAttrString(o, attribute);
    PyErr_Clear();
    Py_XDECREF(found);
    return found != NULL;
}

bool is_operand(PyObject *o) {
    return tensor_check(o) || is_number(o) || has(o, "__array_interface__") || has(o, "__dlpack__");
}

static bool copied(PyObject *o, ct_dtype want, ct_tensor *t, ct_loc here) {
    bool ok;
    if (PyList_Check(o) || PyTuple_Check(o)) return of_lists(o, want, t, here);
    if (PyUnicode_Check(o)) {
        PyErr_Format(PyExc_TypeError, "a tensor is made of numbers, lists and arrays, not of %R",
                     o);
        return false;
    }
    if (PyObject_CheckBuffer(o))
        ok = of_array(o, t, here);
    else if (has(o, "__array_interface__") || has(o, "__array__"))
        ok = through_numpy(o, t, here);
    else
        return of_lists(o, want, t, here);
    if (ok && want && want != ct_dtype_of(*t)) *t = cast_data(*t, want, here);
    return ok;
}

bool operand(PyObject *o, ct_tensor *t, ct_loc here) {
    if (tensor_check(o)) {
        *t = tensor_value(o, here);
        return t->bits;
    }
    if (!is_numpy_number(o))
        return is_number(o) ? weak_number(o, t) : copied(o, CT_DEFAULT, t, here);
    PyObject *number = PyObject_CallMethod(o, "item", NULL); // a number of Python's, as in PyTorch
    const bool ok =
        number && (is_number(number) ? weak_number(number, t) : copied(o, CT_DEFAULT, t, here));
    Py_XDECREF(number);
    return ok;
}

// Floats without a dtype of their own are f32; where an f64 or a complex128 is written, all their digits are.
bool operand_for(PyObject *o, ct_dtype target, ct_tensor *t, ct_loc here) {
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
    if (!operand(o, t, here)) return false;
    if (!wide || !(PyList_Check(o) || PyTuple_Check(o))) return true;
    const ct_dtype is = ct_dtype_of(*t);
    if (is != CT_F32 && is != CT_C64) return true;
    return of_lists(o, is == CT_F32 ? CT_F64 : CT_C128, t, here);
}

bool make_tensor(PyObject *o, ct_dtype dtype, ct_tensor *t, ct_loc here) {
    if (tensor_check(o)) {
        *t = tensor_value(o, here);
        if (dtype && t->bits && ct_dtype_of(*t) != dtype) *t = ct_cast_at(*t, dtype, here);
        return t->bits;
    }
    return is_number(o) && !is_numpy_number(o) ? of_lists(o, dtype, t, here)
                                               : copied(o, dtype, t, here);
}
bool make_strong(PyObject *o, ct_tensor *t, ct_loc here) {
    return make_tensor(o, CT_DEFAULT, t, here);
}
