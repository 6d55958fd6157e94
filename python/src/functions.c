// Traces Python functions: a function is recorded once, by itself, and then used by vmap, scan, cond, and so
// on.
#include "core.h"
#include "tensor.h"

#include <stdlib.h>

bool trace_is_active(void) { return thread_get()->trace_depth > 0; }

// List of captured Tensors, while a caller asks for them.
static _Thread_local PyObject *trace_captures;
int trace_capture_listeners;
void trace_note_capture(PyObject *o) {
    if (!trace_captures) return;
    for (Py_ssize_t i = 0; i < PyList_Size(trace_captures); i++)
        if (PyList_GetItem(trace_captures, i) == o) return;
    if (PyList_Append(trace_captures, o) < 0) PyErr_Clear();
}

typedef struct tensor_list {
    ct_tensor *v;
    size_t n;
    ct_loc here;
} tensor_list;

// A converter of PyArg_ParseTuple: a tuple of Tensors, into a tensor_list whose v is to be freed.
static int py_trace_parse_tensors(PyObject *list, void *user) {
    tensor_list *to = user;
    PyObject *tuple = list ? PySequence_Tuple(list) : NULL; // NULL: another argument is wrong
    free(to->v);
    *to = (tensor_list){.here = to->here};
    if (!tuple) return 0;
    to->n = (size_t)PyTuple_Size(tuple);
    to->v = calloc(to->n + 1, sizeof *to->v);
    bool ok = to->v || (PyErr_NoMemory(), false);
    for (size_t i = 0; ok && i < to->n; i++) {
        PyObject *o = PyTuple_GetItem(tuple, (Py_ssize_t)i);
        ok = tensor_check(o);
        if (ok)
            ok = (to->v[i] = tensor_value(o, to->here)).bits;
        else
            PyErr_Format(PyExc_TypeError, "a traced function gives Tensors, not %R", o);
    }
    Py_DECREF(tuple);
    if (ok) return Py_CLEANUP_SUPPORTED;
    free(to->v);
    to->v = NULL;
    return 0;
}
// A converter: a traced function.
static int py_trace_parse_function(PyObject *o, void *to) {
    return (*(ct_function **)to = PyCapsule_GetPointer(o, "cotan.function")) != NULL;
}

static ct_tensor *py_trace_new_results(size_t n) {
    ct_tensor *out = calloc(n + 1, sizeof *out);
    if (!out) PyErr_NoMemory();
    return out;
}

static PyObject *py_trace_wrap_tensors(const ct_tensor *v, size_t n, ct_loc here) {
    if (ct_failed()) return raise_error();
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (size_t i = 0; tuple && i < n; i++)
        if (!tuple_set(tuple, (Py_ssize_t)i, tensor_new_without_run(v[i], here))) Py_CLEAR(tuple);
    return tuple;
}

// Wraps results, unless memory was out, and frees them and the operands.
static PyObject *py_trace_finish(ct_tensor *out, size_t n, tensor_list *operands) {
    PyObject *result = out ? py_trace_wrap_tensors(out, n, operands->here) : NULL;
    free(operands->v);
    free(out);
    return result;
}

static ct_function *py_trace_begin(PyObject *specs, ct_tensor **params, size_t *n, bool lasts,
                                   ct_loc here) {
    *n = (size_t)PyTuple_Size(specs);
    ct_dtype *dtypes = calloc(*n + 1, sizeof *dtypes);
    ct_ints *dims = calloc(*n + 1, sizeof *dims);
    int64_t *sizes = calloc(CT_MAX_RANK * (*n + 1), sizeof *sizes);
    *params = calloc(*n + 1, sizeof **params);
    bool ok = dtypes && dims && sizes && *params;
    if (!ok) PyErr_NoMemory();
    for (size_t i = 0; ok && i < *n; i++) {
        PyObject *spec = PyTuple_GetItem(specs, (Py_ssize_t)i);
        int64_t *to = sizes + CT_MAX_RANK * i;
        size_t rank = 0;
        ok = dtype_parse(PyTuple_GetItem(spec, 0), &dtypes[i]) &&
             ints_parse(PyTuple_GetItem(spec, 1), to, CT_MAX_RANK, &rank, "shape");
        dims[i] = (ct_ints){(int64_t)rank, to};
    }
    ct_function *f = !ok ? NULL
                         : (lasts ? ct_function_begin_persistent_at
                                  : ct_function_begin_at)(dtypes, dims, *n, *params, here);
    if (ok && !f) raise_error();
    free(dtypes);
    free(dims);
    free(sizes);
    return f;
}

static void py_trace_destroy(PyObject *capsule) {
    thread *owner = PyCapsule_GetContext(capsule);
    owner->n_traced_functions--;
}
static void py_trace_destroy_lasting(PyObject *capsule) {
    ct_function_free(PyCapsule_GetPointer(capsule, "cotan.function"));
}

// _trace(function, ((dtype, shape), ...), lasts=False): traces a function of a tuple of Tensors that returns
// a tuple of Tensors; returns the traced function and its number of results.
static PyObject *py_trace_trace(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *function, *specs;
    ct_tensor *params;
    size_t n;
    int lasts = 0;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "OO!|p:_trace", &function, &PyTuple_Type, &specs, &lasts))
        return NULL;
    ct_function *f = py_trace_begin(specs, &params, &n, lasts, here);
    if (!f) {
        free(params);
        return NULL;
    }
    thread *self = thread_get();
    self->trace_depth++;
    PyObject *operands = py_trace_wrap_tensors(params, n, here), *results = NULL;
    if (operands) results = PyObject_CallFunctionObjArgs(function, operands, NULL);
    tensor_list out = {.here = here};
    bool ok = results && py_trace_parse_tensors(results, &out);
    if (--self->trace_depth == 0 && self->n_waiting) thread_notify();
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    const bool ended = ct_function_end_at(f, ok ? out.v : NULL, ok ? out.n : 0, here);
    if (!ok)
        ct_error_clear();
    else if (!ended)
        ok = raise_error();
    if (type) PyErr_Restore(type, value, traceback);
    release(operands, results);
    free(params);
    free(out.v);
    if (!ok) return NULL;
    PyObject *capsule =
        PyCapsule_New(f, "cotan.function", lasts ? py_trace_destroy_lasting : py_trace_destroy);
    if (!capsule || PyCapsule_SetContext(capsule, self) < 0) return NULL;
    if (!lasts) self->n_traced_functions++;
    return Py_BuildValue("(NK)", capsule, (unsigned long long)out.n);
}

// _vmap(function, number of results, operands, in_axes, out_axes, size); an axis of None means that the
// operand is not batched.
static bool py_trace_parse_axes(PyObject *list, int64_t *to, size_t n) {
    for (size_t i = 0; i < n; i++) {
        PyObject *o = PyTuple_GetItem(list, (Py_ssize_t)i);
        if (!o) return false;
        to[i] = CT_NO_AXIS;
        if (o != Py_None && !int_parse(o, &to[i], "axis")) return false;
    }
    return true;
}
static PyObject *py_trace_vmap(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *in_axes, *out_axes;
    ct_function *f;
    unsigned long long n_out;
    long long size;
    tensor_list in = {.here = api_enter()};
    if (!PyArg_ParseTuple(args, "O&KO&O!O!L:_vmap", py_trace_parse_function, &f, &n_out,
                          py_trace_parse_tensors, &in, &PyTuple_Type, &in_axes, &PyTuple_Type,
                          &out_axes, &size))
        return NULL;
    int64_t *axes = calloc(in.n + n_out + 1, sizeof *axes);
    ct_tensor *out = py_trace_new_results(n_out);
    bool ok = out && (axes || (PyErr_NoMemory(), false)) &&
              py_trace_parse_axes(in_axes, axes, in.n) &&
              py_trace_parse_axes(out_axes, axes + in.n, n_out);
    if (ok)
        ct_vmap_with((ct_vmap_args){.f = ct_function_call,
                                    .user = f,
                                    .in = in.v,
                                    .n_in = in.n,
                                    .out = out,
                                    .n_out = n_out,
                                    .in_axes = {(int64_t)in.n, axes},
                                    .out_axes = {(int64_t)n_out, axes + in.n},
                                    .size = size,
                                    .here = in.here});
    free(axes);
    if (!ok) free(out);
    return py_trace_finish(ok ? out : NULL, n_out, &in);
}

// _scan(function, carry, xs, number of ys, length, reverse): returns the last carry, then the ys.
static PyObject *py_trace_scan(PyObject *Py_UNUSED(module), PyObject *args) {
    ct_function *f;
    unsigned long long n_ys;
    long long length;
    int reverse;
    tensor_list carry = {.here = api_enter()}, xs = {.here = carry.here};
    if (!PyArg_ParseTuple(args, "O&O&O&KLp:_scan", py_trace_parse_function, &f,
                          py_trace_parse_tensors, &carry, py_trace_parse_tensors, &xs, &n_ys,
                          &length, &reverse))
        return NULL;
    ct_tensor *out = py_trace_new_results(carry.n + n_ys);
    if (out)
        ct_scan_with((ct_scan_args){.body = ct_function_call,
                                    .user = f,
                                    .carry = carry.v,
                                    .n_carry = carry.n,
                                    .xs = xs.v,
                                    .n_xs = xs.n,
                                    .n_ys = n_ys,
                                    .length = length,
                                    .reverse = reverse,
                                    .here = xs.here},
                     out, out + carry.n);
    free(xs.v);
    return py_trace_finish(out, carry.n + n_ys, &carry);
}

static void py_trace_call_first(const ct_tensor *in, ct_tensor *out, void *pair) {
    ct_function_call(in, out, ((ct_function **)pair)[0]);
}
static void py_trace_call_second(const ct_tensor *in, ct_tensor *out, void *pair) {
    ct_function_call(in, out, ((ct_function **)pair)[1]);
}

// _cond(pred, then, otherwise, operands, number of results), _while(cond, body, carry).
static PyObject *py_trace_cond(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *pred;
    ct_function *pair[2];
    unsigned long long n_out;
    tensor_list in = {.here = api_enter()};
    if (!PyArg_ParseTuple(args, "O!O&O&O&K:_cond", tensor_type, &pred, py_trace_parse_function,
                          &pair[0], py_trace_parse_function, &pair[1], py_trace_parse_tensors, &in,
                          &n_out))
        return NULL;
    ct_tensor *out = py_trace_new_results(n_out);
    if (out)
        ct_cond_with((ct_cond_args){.pred = tensor_value(pred, in.here),
                                    .then = py_trace_call_first,
                                    .otherwise = py_trace_call_second,
                                    .user = pair,
                                    .in = in.v,
                                    .n_in = in.n,
                                    .n_out = n_out,
                                    .here = in.here},
                     out);
    return py_trace_finish(out, n_out, &in);
}
static PyObject *py_trace_while(PyObject *Py_UNUSED(module), PyObject *args) {
    ct_function *pair[2];
    tensor_list carry = {.here = api_enter()};
    if (!PyArg_ParseTuple(args, "O&O&O&:_while", py_trace_parse_function, &pair[0],
                          py_trace_parse_function, &pair[1], py_trace_parse_tensors, &carry))
        return NULL;
    ct_tensor *out = py_trace_new_results(carry.n);
    if (out)
        ct_while_with((ct_while_args){.cond = py_trace_call_first,
                                      .body = py_trace_call_second,
                                      .user = pair,
                                      .carry = carry.v,
                                      .n_carry = carry.n,
                                      .here = carry.here},
                      out);
    return py_trace_finish(out, carry.n, &carry);
}

// _meet(list or None): appends to the list each Tensor from outside that traced functions use from now on.
static PyObject *py_trace_set_captures(PyObject *Py_UNUSED(module), PyObject *list) {
    trace_capture_listeners -= trace_captures != NULL;
    Py_CLEAR(trace_captures);
    if (list != Py_None) {
        trace_captures = Py_NewRef(list);
        trace_capture_listeners++;
    }
    Py_RETURN_NONE;
}

// _stand_in(tensors, others): exchanges the value, the variable and the view of each Tensor with those of its
// other.
static void py_trace_copy_value(tensor_object *to, const tensor_object *from) {
    to->handle = from->handle, to->owner = from->owner, to->params = from->params;
    to->version = from->version, to->params_owner = from->params_owner;
    to->parent = from->parent, to->is_detached = from->is_detached;
    to->holds_parent = from->holds_parent, to->traced = from->traced;
    to->parent_version = from->parent_version, to->view_ops = from->view_ops;
    to->n_view_ops = from->n_view_ops, to->shared = from->shared;
}
static void py_trace_swap_objects(tensor_object *a, tensor_object *b) {
    const tensor_object was = *a;
    py_trace_copy_value(a, b);
    py_trace_copy_value(b, &was);
}
static PyObject *py_trace_swap(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *these, *others;
    if (!PyArg_ParseTuple(args, "O!O!:_stand_in", &PyTuple_Type, &these, &PyTuple_Type, &others))
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_Size(these); i++)
        py_trace_swap_objects((tensor_object *)PyTuple_GetItem(these, i),
                              (tensor_object *)PyTuple_GetItem(others, i));
    Py_RETURN_NONE;
}

// _replay(function, operands, number of results): records again what the function has recorded.
static bool py_trace_has_handle(const ct_tensor *v, size_t n, ct_tensor t) {
    for (size_t i = 0; i < n; i++)
        if (v[i].bits == t.bits) return true;
    return false;
}
static PyObject *py_trace_replay(PyObject *Py_UNUSED(module), PyObject *args) {
    ct_function *f;
    unsigned long long n_out;
    tensor_list in = {.here = api_enter()};
    if (!PyArg_ParseTuple(args, "O&O&K:_replay", py_trace_parse_function, &f,
                          py_trace_parse_tensors, &in, &n_out))
        return NULL;
    ct_tensor *out = py_trace_new_results(n_out);
    if (out) ct_function_call(in.v, out, f);
    for (size_t i = 0; out && i < n_out && !ct_failed(); i++) // a handle has one Tensor
        if (py_trace_has_handle(in.v, in.n, out[i]) || py_trace_has_handle(out, i, out[i]))
            out[i] = ct_cast_at(out[i], ct_dtype_of(out[i]), in.here);
    return py_trace_finish(out, n_out, &in);
}

// _reads(): returns how often this thread has read values.
static PyObject *py_trace_get_reads(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    return PyLong_FromUnsignedLongLong(thread_get()->reads);
}

// _custom(function, rule, operands, number of results, forward): calls the function with the rule as its
// derivative, in forward mode (of operands, results and tangents) or in reverse mode (of operands, results
// and cotangents).
static PyObject *py_trace_custom(PyObject *Py_UNUSED(module), PyObject *args) {
    ct_function *pair[2];
    unsigned long long n_out;
    int forward;
    tensor_list in = {.here = api_enter()};
    if (!PyArg_ParseTuple(args, "O&O&O&Kp:_custom", py_trace_parse_function, &pair[0],
                          py_trace_parse_function, &pair[1], py_trace_parse_tensors, &in, &n_out,
                          &forward))
        return NULL;
    ct_tensor *out = py_trace_new_results(n_out);
    if (out)
        (forward ? ct_custom_jvp_at : ct_custom_vjp_at)(py_trace_call_first, py_trace_call_second,
                                                        pair, in.v, in.n, out, n_out, in.here);
    return py_trace_finish(out, n_out, &in);
}

// _remat(function, operands, number of results): calls the function so that gradients keep its operands
// alone.
static PyObject *py_trace_remat(PyObject *Py_UNUSED(module), PyObject *args) {
    ct_function *f;
    unsigned long long n_out;
    tensor_list in = {.here = api_enter()};
    if (!PyArg_ParseTuple(args, "O&O&K:_remat", py_trace_parse_function, &f, py_trace_parse_tensors,
                          &in, &n_out))
        return NULL;
    ct_tensor *out = py_trace_new_results(n_out);
    if (out)
        ct_remat_with((ct_remat_args){.f = ct_function_call,
                                      .user = f,
                                      .in = in.v,
                                      .n_in = in.n,
                                      .out = out,
                                      .n_out = n_out,
                                      .policy = CT_REMAT_SAVE_NOTHING,
                                      .here = in.here});
    return py_trace_finish(out, n_out, &in);
}

// _associative_scan(function, xs, axis, reverse): returns as many Tensors as xs has.
static PyObject *py_trace_associative_scan(PyObject *Py_UNUSED(module), PyObject *args) {
    ct_function *f;
    long long axis;
    int reverse;
    tensor_list xs = {.here = api_enter()};
    if (!PyArg_ParseTuple(args, "O&O&Lp:_associative_scan", py_trace_parse_function, &f,
                          py_trace_parse_tensors, &xs, &axis, &reverse))
        return NULL;
    ct_tensor *out = py_trace_new_results(xs.n);
    if (out)
        ct_associative_scan_with((ct_associative_scan_args){.f = ct_function_call,
                                                            .user = f,
                                                            .xs = xs.v,
                                                            .n_xs = xs.n,
                                                            .axis = axis,
                                                            .reverse = reverse,
                                                            .here = xs.here},
                                 out);
    return py_trace_finish(out, xs.n, &xs);
}

static PyObject *py_trace_get_active(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    return PyBool_FromLong(trace_is_active());
}

PyMethodDef trace_functions[] = {
    {"_custom", py_trace_custom, METH_VARARGS, NULL},
    {"_meet", py_trace_set_captures, METH_O, NULL},
    {"_stand_in", py_trace_swap, METH_VARARGS, NULL},
    {"_replay", py_trace_replay, METH_VARARGS, NULL},
    {"_reads", py_trace_get_reads, METH_NOARGS, NULL},
    {"_remat", py_trace_remat, METH_VARARGS, NULL},
    {"_associative_scan", py_trace_associative_scan, METH_VARARGS, NULL},
    {"_tracing", py_trace_get_active, METH_NOARGS, NULL},
    {"_trace", py_trace_trace, METH_VARARGS, NULL},
    {"_vmap", py_trace_vmap, METH_VARARGS, NULL},
    {"_scan", py_trace_scan, METH_VARARGS, NULL},
    {"_cond", py_trace_cond, METH_VARARGS, NULL},
    {"_while", py_trace_while, METH_VARARGS, NULL},
    {0},
};
