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
} tensor_list;

static bool py_trace_parse_tensors(PyObject *list, tensor_list *to, ct_loc here) {
    PyObject *tuple = PySequence_Tuple(list);
    if (!tuple) return false;
    to->n = (size_t)PyTuple_Size(tuple);
    to->v = calloc(to->n + 1, sizeof *to->v);
    bool ok = to->v || (PyErr_NoMemory(), false);
    for (size_t i = 0; ok && i < to->n; i++) {
        PyObject *o = PyTuple_GetItem(tuple, (Py_ssize_t)i);
        ok = tensor_check(o);
        if (ok)
            ok = (to->v[i] = tensor_value(o, here)).bits;
        else
            PyErr_Format(PyExc_TypeError, "a traced function gives Tensors, not %R", o);
    }
    Py_DECREF(tuple);
    return ok;
}

static PyObject *py_trace_wrap_tensors(const ct_tensor *v, size_t n, ct_loc here) {
    if (ct_failed()) return raise_error();
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (size_t i = 0; tuple && i < n; i++) {
        PyObject *o = tensor_new_without_run(v[i], here);
        if (!o || PyTuple_SetItem(tuple, (Py_ssize_t)i, o) < 0) Py_CLEAR(tuple);
    }
    return tuple;
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
static PyObject *py_trace_trace(PyObject *module, PyObject *args) {
    (void)module;
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
    tensor_list out = {0};
    bool ok = results && py_trace_parse_tensors(results, &out, here);
    if (--self->trace_depth == 0 && self->n_waiting) thread_notify();
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    const bool ended = ct_function_end_at(f, ok ? out.v : NULL, ok ? out.n : 0, here);
    if (!ok)
        ct_error_clear();
    else if (!ended)
        ok = raise_error();
    if (type) PyErr_Restore(type, value, traceback);
    Py_XDECREF(operands);
    Py_XDECREF(results);
    free(params);
    free(out.v);
    if (!ok) return NULL;
    PyObject *capsule =
        PyCapsule_New(f, "cotan.function", lasts ? py_trace_destroy_lasting : py_trace_destroy);
    if (!capsule || PyCapsule_SetContext(capsule, self) < 0) return NULL;
    if (!lasts) self->n_traced_functions++;
    return Py_BuildValue("(NK)", capsule, (unsigned long long)out.n);
}

static ct_function *py_trace_from_capsule(PyObject *o) {
    return PyCapsule_GetPointer(o, "cotan.function");
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
static PyObject *py_trace_vmap(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *function, *operands, *in_axes, *out_axes;
    unsigned long long n_out;
    long long size;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "OKOO!O!L:_vmap", &function, &n_out, &operands, &PyTuple_Type,
                          &in_axes, &PyTuple_Type, &out_axes, &size))
        return NULL;
    ct_function *f = py_trace_from_capsule(function);
    tensor_list in = {0};
    PyObject *result = NULL;
    if (!f || !py_trace_parse_tensors(operands, &in, here)) goto end;
    int64_t *axes = calloc(in.n + n_out + 1, sizeof *axes);
    ct_tensor *out = calloc(n_out + 1, sizeof *out);
    if (!axes || !out) {
        PyErr_NoMemory();
    } else if (py_trace_parse_axes(in_axes, axes, in.n) &&
               py_trace_parse_axes(out_axes, axes + in.n, n_out)) {
        ct_vmap_with((ct_vmap_args){.f = ct_function_call,
                                    .user = f,
                                    .in = in.v,
                                    .n_in = in.n,
                                    .out = out,
                                    .n_out = n_out,
                                    .in_axes = {(int64_t)in.n, axes},
                                    .out_axes = {(int64_t)n_out, axes + in.n},
                                    .size = size,
                                    .here = here});
        result = py_trace_wrap_tensors(out, n_out, here);
    }
    free(axes);
    free(out);
end:
    free(in.v);
    return result;
}

// _scan(function, carry, xs, number of ys, length, reverse): returns the last carry, then the ys.
static PyObject *py_trace_scan(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *function, *carries, *elements;
    unsigned long long n_ys;
    long long length;
    int reverse;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "OOOKLp:_scan", &function, &carries, &elements, &n_ys, &length,
                          &reverse))
        return NULL;
    ct_function *f = py_trace_from_capsule(function);
    tensor_list carry = {0}, xs = {0};
    PyObject *found = NULL;
    if (f && py_trace_parse_tensors(carries, &carry, here) &&
        py_trace_parse_tensors(elements, &xs, here)) {
        ct_tensor *out = calloc(carry.n + n_ys + 1, sizeof *out);
        if (out) {
            ct_scan_with((ct_scan_args){.body = ct_function_call,
                                        .user = f,
                                        .carry = carry.v,
                                        .n_carry = carry.n,
                                        .xs = xs.v,
                                        .n_xs = xs.n,
                                        .n_ys = n_ys,
                                        .length = length,
                                        .reverse = reverse,
                                        .here = here},
                         out, out + carry.n);
            found = py_trace_wrap_tensors(out, carry.n + n_ys, here);
        } else {
            PyErr_NoMemory();
        }
        free(out);
    }
    free(carry.v);
    free(xs.v);
    return found;
}

static void py_trace_call_first(const ct_tensor *in, ct_tensor *out, void *pair) {
    ct_function_call(in, out, ((ct_function **)pair)[0]);
}
static void py_trace_call_second(const ct_tensor *in, ct_tensor *out, void *pair) {
    ct_function_call(in, out, ((ct_function **)pair)[1]);
}

// _cond(pred, then, otherwise, operands, number of results), _while(cond, body, carry).
static PyObject *py_trace_cond(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *pred, *then_branch, *otherwise, *operands;
    unsigned long long n_out;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "O!OOOK:_cond", tensor_type, &pred, &then_branch, &otherwise,
                          &operands, &n_out))
        return NULL;
    ct_function *pair[2] = {py_trace_from_capsule(then_branch), py_trace_from_capsule(otherwise)};
    tensor_list in = {0};
    PyObject *result = NULL;
    ct_tensor *out = calloc(n_out + 1, sizeof *out);
    if (!out) PyErr_NoMemory();
    if (out && pair[0] && pair[1] && py_trace_parse_tensors(operands, &in, here)) {
        ct_cond_with((ct_cond_args){.pred = tensor_value(pred, here),
                                    .then = py_trace_call_first,
                                    .otherwise = py_trace_call_second,
                                    .user = pair,
                                    .in = in.v,
                                    .n_in = in.n,
                                    .n_out = n_out,
                                    .here = here},
                     out);
        result = py_trace_wrap_tensors(out, n_out, here);
    }
    free(in.v);
    free(out);
    return result;
}
static PyObject *py_trace_while(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *condition, *body, *carries;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "OOO:_while", &condition, &body, &carries)) return NULL;
    ct_function *pair[2] = {py_trace_from_capsule(condition), py_trace_from_capsule(body)};
    tensor_list carry = {0};
    PyObject *result = NULL;
    if (pair[0] && pair[1] && py_trace_parse_tensors(carries, &carry, here)) {
        ct_tensor *out = calloc(carry.n + 1, sizeof *out);
        if (out) {
            ct_while_with((ct_while_args){.cond = py_trace_call_first,
                                          .body = py_trace_call_second,
                                          .user = pair,
                                          .carry = carry.v,
                                          .n_carry = carry.n,
                                          .here = here},
                          out);
            result = py_trace_wrap_tensors(out, carry.n, here);
        } else {
            PyErr_NoMemory();
        }
        free(out);
    }
    free(carry.v);
    return result;
}

// _meet(list or None): appends to the list each Tensor from outside that traced functions use from now on.
static PyObject *py_trace_set_captures(PyObject *module, PyObject *list) {
    (void)module;
    trace_capture_listeners -= trace_captures != NULL;
    Py_CLEAR(trace_captures);
    if (list != Py_None) {
        Py_INCREF(list);
        trace_captures = list;
        trace_capture_listeners++;
    }
    Py_RETURN_NONE;
}

// _stand_in(tensors, others): exchanges the value, the variable and the view of each Tensor with those of its
// other.
static void py_trace_swap_objects(tensor_object *a, tensor_object *b) {
    tensor_object was = *a;
    a->handle = b->handle, a->owner = b->owner, a->params = b->params, a->version = b->version;
    a->params_owner = b->params_owner;
    a->parent = b->parent, a->is_detached = b->is_detached, a->holds_parent = b->holds_parent,
    a->traced = b->traced;
    a->parent_version = b->parent_version, a->view_ops = b->view_ops, a->n_view_ops = b->n_view_ops,
    a->shared = b->shared;
    b->handle = was.handle, b->owner = was.owner, b->params = was.params, b->version = was.version;
    b->params_owner = was.params_owner;
    b->parent = was.parent, b->is_detached = was.is_detached, b->holds_parent = was.holds_parent,
    b->traced = was.traced;
    b->parent_version = was.parent_version, b->view_ops = was.view_ops,
    b->n_view_ops = was.n_view_ops, b->shared = was.shared;
}
static PyObject *py_trace_swap(PyObject *module, PyObject *args) {
    (void)module;
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
static PyObject *py_trace_replay(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *function, *operands;
    unsigned long long n_out;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "OOK:_replay", &function, &operands, &n_out)) return NULL;
    ct_function *f = py_trace_from_capsule(function);
    tensor_list in = {0};
    PyObject *result = NULL;
    ct_tensor *out = calloc(n_out + 1, sizeof *out);
    if (!out) PyErr_NoMemory();
    if (out && f && py_trace_parse_tensors(operands, &in, here)) {
        ct_function_call(in.v, out, f);
        for (size_t i = 0; i < n_out && !ct_failed(); i++) // a handle has one Tensor
            if (py_trace_has_handle(in.v, in.n, out[i]) || py_trace_has_handle(out, i, out[i]))
                out[i] = ct_cast_at(out[i], ct_dtype_of(out[i]), here);
        result = py_trace_wrap_tensors(out, n_out, here);
    }
    free(in.v);
    free(out);
    return result;
}

// _reads(): returns how often this thread has read values.
static PyObject *py_trace_get_reads(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return PyLong_FromUnsignedLongLong(thread_get()->reads);
}

// _custom(function, rule, operands, number of results, forward): calls the function with the rule as its
// derivative, in forward mode (of operands, results and tangents) or in reverse mode (of operands, results
// and cotangents).
static PyObject *py_trace_custom(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *function, *rule, *operands;
    unsigned long long n_out;
    int forward;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "OOOKp:_custom", &function, &rule, &operands, &n_out, &forward))
        return NULL;
    ct_function *pair[2] = {py_trace_from_capsule(function), py_trace_from_capsule(rule)};
    tensor_list in = {0};
    PyObject *result = NULL;
    ct_tensor *out = calloc(n_out + 1, sizeof *out);
    if (!out) PyErr_NoMemory();
    if (out && pair[0] && pair[1] && py_trace_parse_tensors(operands, &in, here)) {
        (forward ? ct_custom_jvp_at : ct_custom_vjp_at)(py_trace_call_first, py_trace_call_second,
                                                        pair, in.v, in.n, out, n_out, here);
        result = py_trace_wrap_tensors(out, n_out, here);
    }
    free(in.v);
    free(out);
    return result;
}

// _remat(function, operands, number of results): calls the function so that gradients keep its operands
// alone.
static PyObject *py_trace_remat(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *function, *operands;
    unsigned long long n_out;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "OOK:_remat", &function, &operands, &n_out)) return NULL;
    ct_function *f = py_trace_from_capsule(function);
    tensor_list in = {0};
    PyObject *result = NULL;
    ct_tensor *out = calloc(n_out + 1, sizeof *out);
    if (!out) PyErr_NoMemory();
    if (out && f && py_trace_parse_tensors(operands, &in, here)) {
        ct_remat_with((ct_remat_args){.f = ct_function_call,
                                      .user = f,
                                      .in = in.v,
                                      .n_in = in.n,
                                      .out = out,
                                      .n_out = n_out,
                                      .policy = CT_REMAT_SAVE_NOTHING,
                                      .here = here});
        result = py_trace_wrap_tensors(out, n_out, here);
    }
    free(in.v);
    free(out);
    return result;
}

// _associative_scan(function, xs, axis, reverse): returns as many Tensors as xs has.
static PyObject *py_trace_associative_scan(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *function, *elements;
    long long axis;
    int reverse;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "OOLp:_associative_scan", &function, &elements, &axis, &reverse))
        return NULL;
    ct_function *f = py_trace_from_capsule(function);
    tensor_list xs = {0};
    PyObject *result = NULL;
    if (f && py_trace_parse_tensors(elements, &xs, here)) {
        ct_tensor *out = calloc(xs.n + 1, sizeof *out);
        if (out) {
            ct_associative_scan_with((ct_associative_scan_args){.f = ct_function_call,
                                                                .user = f,
                                                                .xs = xs.v,
                                                                .n_xs = xs.n,
                                                                .axis = axis,
                                                                .reverse = reverse,
                                                                .here = here},
                                     out);
            result = py_trace_wrap_tensors(out, xs.n, here);
        } else {
            PyErr_NoMemory();
        }
        free(out);
    }
    free(xs.v);
    return result;
}

static PyObject *py_trace_get_active(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
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
