// Defines the module cotan._core.
#include "core.h"
#include "lm.h"
#include "signature.h"
#include "tensor.h"
#include "threads.h"
#include "whole.h"

#include <string.h>

#include <cotan/memory.h>

// _start(folder, size, count): sets the package's folder, and the classes that are written in Python.
static PyObject *module_start(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *folder, *size, *count;
    if (!PyArg_ParseTuple(args, "UOO:_start", &folder, &size, &count) || !where_init(folder))
        return NULL;
    return tensor_set_classes(size, count);
}

static PyObject *module_full(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *shape, *value, *dtype = Py_None;
    int64_t dim[CT_MAX_RANK];
    size_t rank;
    ct_dtype want;
    ct_tensor t;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "OO|O:full", &shape, &value, &dtype) ||
        !dtype_parse(dtype, &want) || !ints_parse(shape, dim, CT_MAX_RANK, &rank, "shape") ||
        !tensor_parse(value, want, &t, here))
        return NULL;
    return tensor_new(ct_full_at(t, (ct_ints){(int64_t)rank, dim}, here), here);
}

static PyObject *module_einsum(PyObject *Py_UNUSED(self), PyObject *args) {
    enum { MAX_OPERANDS = 32 };
    ct_tensor in[MAX_OPERANDS];
    const ct_loc here = api_enter();
    const Py_ssize_t n = PyTuple_Size(args) - 1;
    PyObject *first = n >= 0 ? PyTuple_GetItem(args, 0) : NULL;
    const char *expression =
        first && PyUnicode_Check(first) ? PyUnicode_AsUTF8AndSize(first, NULL) : NULL;
    if (!expression || n > MAX_OPERANDS) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "einsum() takes an expression and at most %d tensors",
                         MAX_OPERANDS);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        if (!operand_parse_strong(PyTuple_GetItem(args, i + 1), &in[i], here)) return NULL;
    ct_tensor t = ct_einsum_at(expression, in, (size_t)n, here);
    for (Py_ssize_t i = 0; i < n; i++)
        if (t.bits == in[i].bits) t = ct_cast_at(t, ct_dtype_of(t), here); // a new handle
    return tensor_new(t, here);
}

// _of_bytes(buffer, dtype, shape, strides=None, swapped=False): makes a tensor of these bits. The
// strides are in elements, the default is row-major.
static PyObject *module_tensor_from_bytes(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *buffer, *dtype_name, *shape, *strides = Py_None, *result = NULL;
    const ct_loc here = api_enter();
    ct_dtype dtype;
    int64_t dim[CT_MAX_RANK], step[CT_MAX_RANK], elements = 1, end = 1, reach;
    size_t rank, n_strides;
    int swapped = 0;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "OOO|Op:_of_bytes", &buffer, &dtype_name, &shape, &strides,
                          &swapped) ||
        !dtype_parse(dtype_name, &dtype) ||
        !ints_parse(shape, dim, CT_MAX_RANK, &rank, "the sizes") ||
        !ints_parse(strides, step, CT_MAX_RANK, &n_strides, "the strides") ||
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const int64_t width = (int64_t)ct_dtype_size(dtype);
    bool fits = strides == Py_None || n_strides == rank;
    for (size_t i = rank; fits && i-- > 0;) {
        if (strides == Py_None) step[i] = elements;
        fits = dim[i] >= 0 && step[i] >= 0 &&
               !__builtin_mul_overflow(elements, dim[i], &elements) &&
               !__builtin_mul_overflow(dim[i] - 1, step[i], &reach) &&
               !__builtin_add_overflow(end, reach, &end);
        step[i] *= width;
    }
    if (!fits || elements > INT64_MAX / width ||
        (strides == Py_None ? elements * width != view.len : elements && end > view.len / width)) {
        PyErr_Format(PyExc_ValueError, "%zd bytes are no tensor of shape %S", view.len, shape);
    } else {
        Py_buffer whole = {.buf = view.buf,
                           .len = elements * width,
                           .itemsize = width,
                           .readonly = 1,
                           .ndim = (int)rank,
                           .shape = dim,
                           .strides = step};
        ct_tensor t;
        if (make_from_view(&whole, dtype, swapped, &t, here)) result = tensor_new(t, here);
    }
    PyBuffer_Release(&view);
    return result;
}

// eval(*tensors): computes them, and every value that a Tensor holds, in one plan.
static PyObject *module_eval(PyObject *Py_UNUSED(self), PyObject *args) {
    const ct_loc here = api_enter();
    const Py_ssize_t n = PyTuple_Size(args);
    ct_tensor *t = PyMem_Malloc(((size_t)n + 1) * sizeof *t);
    if (!t) return PyErr_NoMemory();
    bool ok = true;
    size_t n_own = 0;
    for (Py_ssize_t i = 0; ok && i < n; i++) {
        PyObject *o = PyTuple_GetItem(args, i);
        if (!(ok = tensor_check(o)))
            PyErr_Format(PyExc_TypeError, "eval() takes tensors, not %R", o);
        else if (tensor_is_usable_here(o))
            t[n_own++] = tensor_handle(o);
        else
            ok = tensor_handle(o).bits; // tensor_handle() evaluates those of other threads
    }
    thread_get()->reads++;
    ok = ok && run_eval(t, n_own, here);
    PyMem_Free(t);
    return none_if(ok);
}

static PyObject *module_random_key(PyObject *Py_UNUSED(self), PyObject *seed) {
    int64_t value;
    const ct_loc here = api_enter();
    return int_parse(seed, &value, "seed") ? tensor_new(ct_random_key_at(value, here), here) : NULL;
}

static PyObject *module_random_key_folded(PyObject *Py_UNUSED(self), PyObject *args) {
    long long seed;
    unsigned long long number;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "LK:_random_key_folded", &seed, &number)) return NULL;
    return tensor_new(ct_random_key_folded_at(seed, number, here), here);
}

// _set_default_float(dtype): sets the dtype of Python's floats.
static PyObject *module_set_default_float(PyObject *Py_UNUSED(self), PyObject *o) {
    ct_dtype dtype;
    if (!dtype_parse(o, &dtype)) return NULL;
    if (!dtype || dtype_kind(dtype) != 'f')
        return PyErr_Format(PyExc_TypeError, "the default dtype must be a float, not %R", o);
    default_float = dtype;
    Py_RETURN_NONE;
}

static PyObject *module_stats(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused)) {
    api_enter();
    const ct_stats s = ct_get_stats();
    return Py_BuildValue("{sKsKsKsKsKsKsKsKsKsKsKsKsKsK}", "plans_made", s.plans_made, "plans_run",
                         s.plans_run, "kernels_compiled", s.kernels_compiled, "kernels_loaded",
                         s.kernels_loaded, "kernels_packed", s.kernels_packed, "kernels_pending",
                         s.kernels_pending, "launches", s.launches, "launches_interpreted",
                         s.launches_interpreted, "arena_bytes", s.arena_bytes, "live_bytes",
                         s.live_bytes, "memory", s.memory, "peak_memory", s.peak_memory, "nodes",
                         s.nodes, "plan_bytes", s.plan_bytes);
}

// Returns a list of (bytes, count, op, name, type, (file, line), (file, line) or None where that is
// unknown), and the sums.
static PyObject *module_location(ct_loc here) {
    return here.file ? Py_BuildValue("(sI)", here.file, here.line) : Py_NewRef(Py_None);
}
static PyObject *module_memory_snapshot(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused)) {
    api_enter();
    ct_memory_snapshot *s = ct_memory_snapshot_take();
    PyObject *rows = s ? PyList_New(0) : raise_error();
    for (size_t i = 0; rows && i < s->n_rows; i++) {
        const ct_memory_row *r = &s->rows[i];
        if (!list_append(rows,
                         Py_BuildValue("(KKsssNN)", r->bytes, r->count, r->op, r->name, r->type,
                                       module_location(r->here), module_location(r->used_at))))
            Py_CLEAR(rows);
    }
    PyObject *all =
        rows ? Py_BuildValue("(NKKK)", rows, s->arenas, s->constants, s->workspaces) : NULL;
    ct_memory_snapshot_free(s);
    return all;
}
static PyObject *module_set_device(PyObject *Py_UNUSED(self), PyObject *name) {
    api_enter();
    const char *text = device_parse_name(name);
    if (!text) return NULL;
    if (!ct_set_device(text)) return raise_error();
    thread_get()->has_own_settings = true;
    Py_RETURN_NONE;
}
static PyObject *module_set_threads(PyObject *Py_UNUSED(self), PyObject *n) {
    int64_t value;
    api_enter();
    if (!int_parse(n, &value, "n")) return NULL;
    ct_set_threads((int)value);
    return none_if(!ct_failed() || raise_error());
}
// Returns the line that a call here would record. For tests.
static PyObject *module_caller_line(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused)) {
    const ct_loc here = api_enter();
    return Py_BuildValue("(sk)", here.file, (unsigned long)here.line);
}

static PyMethodDef module_methods[] = {
    {"_start", module_start, METH_VARARGS, NULL},
    {"_line", module_caller_line, METH_NOARGS, NULL},
    {"_of_bytes", module_tensor_from_bytes, METH_VARARGS, NULL},
    {"full", module_full, METH_VARARGS,
     "full(shape, value, dtype=None)\n--\n\nElements that are all `value`, a number or a scalar."},
    {"einsum", module_einsum, METH_VARARGS,
     "einsum(expression, *operands)\n--\n\nSums of products in Einstein notation, as in NumPy."},
    {"eval", module_eval, METH_VARARGS,
     "eval(*tensors)\n--\n\nComputes them, and all that has a name, in one plan."},
    {"random_key", module_random_key, METH_O,
     "random_key(seed)\n--\n\nA key for random numbers; the same seed gives JAX's."},
    {"_random_key_folded", module_random_key_folded, METH_VARARGS, NULL},
    {"_set_default_float", module_set_default_float, METH_O, NULL},
    {"stats", module_stats, METH_NOARGS, "stats()\n--\n\nCounters of the process, as a dict."},
    {"_memory_snapshot", module_memory_snapshot, METH_NOARGS, NULL},
    {"set_device", module_set_device, METH_O,
     "set_device(name)\n--\n\n\"cpu\", \"ref\", and others of docs/debugging.md."},
    {"set_num_threads", module_set_threads, METH_O,
     "set_num_threads(n)\n--\n\nThreads from the next plan on; 0: all cores."},
    {0},
};
static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "cotan._core",
    .m_size = -1,
    .m_methods = module_methods,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) {
    PyMethodDef *const functions[] = {
        view_functions,    operator_functions, join_functions,      trace_functions,
        hook_functions,    dlpack_functions,   device_functions,    library_methods,
        profile_methods,   file_functions,     pickle_functions,    lm_methods,
        tokenizer_methods, engine_methods,     signature_functions,
    };
    PyObject *module = PyModule_Create(&module_definition);
    bool ok = module && errors_init(module) && dtype_init(module) && tensor_init(module) &&
              call_init(module) && critical_init(module) &&
              PyModule_AddStringConstant(module, "__version__", CT_VERSION) == 0;
    for (size_t i = 0; ok && i < sizeof functions / sizeof *functions; i++)
        ok = PyModule_AddFunctions(module, functions[i]) == 0;
    if (!ok) Py_CLEAR(module);
    return module;
}
