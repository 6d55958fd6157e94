// Functions of Python that are traced: recorded once, by themselves, and then used by vmap, scan, cond ...
#include "core.h"
#include "tensor.h"

#include <stdlib.h>

bool functions_tracing(void) { return thread_here()->tracing > 0; }

static _Thread_local PyObject *met; // a list of Tensors from outside, while somebody asks for it
int functions_asked;
void functions_meet(PyObject *o) {
    if (!met) return;
    for (Py_ssize_t i = 0; i < PyList_Size(met); i++)
        if (PyList_GetItem(met, i) == o) return;
    if (PyList_Append(met, o) < 0) PyErr_Clear();
}

typedef struct tensors {
    ct_tensor *v;
    size_t n;
} tensors;

static bool tensors_of(PyObject *list, tensors *to, ct_loc here) {
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

static PyObject *objects_of(const ct_tensor *v, size_t n, ct_loc here) {
    if (ct_failed()) return raise_failure();
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (size_t i = 0; tuple && i < n; i++) {
        PyObject *o = tensor_one_of(v[i], here);
        if (!o || PyTuple_SetItem(tuple, (Py_ssize_t)i, o) < 0) Py_CLEAR(tuple);
    }
    return tuple;
}

static ct_function *begin(PyObject *specs, ct_tensor **params, size_t *n, bool lasts, ct_loc here) {
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
             parse_ints(PyTuple_GetItem(spec, 1), to, CT_MAX_RANK, &rank, "shape");
        dims[i] = (ct_ints){(int64_t)rank, to};
    }
    ct_function *f =
        !ok ? NULL
            : (lasts ? ct_lasting_begin_at : ct_function_begin_at)(dtypes, dims, *n, *params, here);
    if (ok && !f) raise_failure();
    free(dtypes);
    free(dims);
    free(sizes);
    return f;
}

static void drop_function(PyObject *capsule) {
    thread *owner = PyCapsule_GetContext(capsule);
    owner->functions--;
}
static void end_lasting(PyObject *capsule) {
    ct_function_free(PyCapsule_GetPointer(capsule, "cotan.function"));
}

// _trace(function, ((dtype, shape), ...), lasts=False): what stands for the function of a tuple of Tensors,
// which gives one, and how many it gives.
static PyObject *trace(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *function, *specs;
    ct_tensor *params;
    size_t n;
    int lasts = 0;
    const ct_loc here = enter();
    if (!PyArg_ParseTuple(args, "OO!|p:_trace", &function, &PyTuple_Type, &specs, &lasts))
        return NULL;
    ct_function *f = begin(specs, &params, &n, lasts, here);
    if (!f) {
        free(params);
        return NULL;
    }
    thread *self = thread_here();
    self->tracing++;
    PyObject *operands = objects_of(params, n, here), *results = NULL;
    if (operands) results = PyObject_CallFunctionObjArgs(function, operands, NULL);
    tensors out = {0};
    bool ok = results && tensors_of(results, &out, here);
    if (--self->tracing == 0 && self->visitors) thread_changed();
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    const bool ended = ct_function_end_at(f, ok ? out.v : NULL, ok ? out.n : 0, here);
    if (!ok)
        ct_error_clear();
    else if (!ended)
        ok = raise_failure();
    if (type) PyErr_Restore(type, value, traceback);
    Py_XDECREF(operands);
    Py_XDECREF(results);
    free(params);
    free(out.v);
    if (!ok) return NULL;
    PyObject *capsule = PyCapsule_New(f, "cotan.function", lasts ? end_lasting : drop_function);
    if (!capsule || PyCapsule_SetContext(capsule, self) < 0) return NULL;
    if (!lasts) self->functions++;
    return Py_BuildValue("(NK)", capsule, (unsigned long long)out.n);
}

static ct_function *function_of(PyObject *o) { return PyCapsule_GetPointer(o, "cotan.function"); }

// _vmap(function, how many results, operands, in_axes, out_axes, size); an axis of None is none.
static bool axes_of(PyObject *list, int64_t *to, size_t n) {
    for (size_t i = 0; i < n; i++) {
        PyObject *o = PyTuple_GetItem(list, (Py_ssize_t)i);
        if (!o) return false;
        to[i] = CT_NO_AXIS;
        if (o != Py_None && !parse_int(o, &to[i], "axis")) return false;
    }
    return true;
}
static PyObject *vmap(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *function, *operands, *in_axes, *out_axes;
    unsigned long long n_out;
    long long size;
    const ct_loc here = enter();
    if (!PyArg_ParseTuple(args, "OKOO!O!L:_vmap", &function, &n_out, &operands, &PyTuple_Type,
                          &in_axes, &PyTuple_Type, &out_axes, &size))
        return NULL;
    ct_function *f = function_of(function);
    tensors in = {0};
    PyObject *found = NULL;
    if (!f || !tensors_of(operands, &in, here)) goto end;
    int64_t *axes = calloc(in.n + n_out + 1, sizeof *axes);
    ct_tensor *out = calloc(n_out + 1, sizeof *out);
    if (!axes || !out) {
        PyErr_NoMemory();
    } else if (axes_of(in_axes, axes, in.n) && axes_of(out_axes, axes + in.n, n_out)) {
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
        found = objects_of(out, n_out, here);
    }
    free(axes);
    free(out);
end:
    free(in.v);
    return found;
}

// _scan(function, carry, xs, how many ys, length, reverse): the last carry, then the ys.
static PyObject *scan(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *function, *carries, *elements;
    unsigned long long n_ys;
    long long length;
    int reverse;
    const ct_loc here = enter();
    if (!PyArg_ParseTuple(args, "OOOKLp:_scan", &function, &carries, &elements, &n_ys, &length,
                          &reverse))
        return NULL;
    ct_function *f = function_of(function);
    tensors carry = {0}, xs = {0};
    PyObject *found = NULL;
    if (f && tensors_of(carries, &carry, here) && tensors_of(elements, &xs, here)) {
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
            found = objects_of(out, carry.n + n_ys, here);
        } else {
            PyErr_NoMemory();
        }
        free(out);
    }
    free(carry.v);
    free(xs.v);
    return found;
}

static void call_first(const ct_tensor *in, ct_tensor *out, void *pair) {
    ct_function_call(in, out, ((ct_function **)pair)[0]);
}
static void call_second(const ct_tensor *in, ct_tensor *out, void *pair) {
    ct_function_call(in, out, ((ct_function **)pair)[1]);
}

// _cond(pred, then, otherwise, operands, how many results), _while(cond, body, carry).
static PyObject *cond(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *pred, *then, *otherwise, *operands;
    unsigned long long n_out;
    const ct_loc here = enter();
    if (!PyArg_ParseTuple(args, "O!OOOK:_cond", tensor_type, &pred, &then, &otherwise, &operands,
                          &n_out))
        return NULL;
    ct_function *pair[2] = {function_of(then), function_of(otherwise)};
    tensors in = {0};
    PyObject *found = NULL;
    ct_tensor *out = calloc(n_out + 1, sizeof *out);
    if (!out) PyErr_NoMemory();
    if (out && pair[0] && pair[1] && tensors_of(operands, &in, here)) {
        ct_cond_with((ct_cond_args){.pred = tensor_value(pred, here),
                                    .then = call_first,
                                    .otherwise = call_second,
                                    .user = pair,
                                    .in = in.v,
                                    .n_in = in.n,
                                    .n_out = n_out,
                                    .here = here},
                     out);
        found = objects_of(out, n_out, here);
    }
    free(in.v);
    free(out);
    return found;
}
static PyObject *while_(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *goes_on, *body, *carries;
    const ct_loc here = enter();
    if (!PyArg_ParseTuple(args, "OOO:_while", &goes_on, &body, &carries)) return NULL;
    ct_function *pair[2] = {function_of(goes_on), function_of(body)};
    tensors carry = {0};
    PyObject *found = NULL;
    if (pair[0] && pair[1] && tensors_of(carries, &carry, here)) {
        ct_tensor *out = calloc(carry.n + 1, sizeof *out);
        if (out) {
            ct_while_with((ct_while_args){.cond = call_first,
                                          .body = call_second,
                                          .user = pair,
                                          .carry = carry.v,
                                          .n_carry = carry.n,
                                          .here = here},
                          out);
            found = objects_of(out, carry.n, here);
        } else {
            PyErr_NoMemory();
        }
        free(out);
    }
    free(carry.v);
    return found;
}

// _meet(list or None): Tensors from outside that traced functions use from now on are appended to it.
static PyObject *meet(PyObject *module, PyObject *list) {
    (void)module;
    functions_asked -= met != NULL;
    Py_CLEAR(met);
    if (list != Py_None) {
        Py_INCREF(list);
        met = list;
        functions_asked++;
    }
    Py_RETURN_NONE;
}

// _stand_in(tensors, others): each exchanges what it is with its other: value, variable, view.
static void exchange(tensor_object *a, tensor_object *b) {
    tensor_object was = *a;
    a->handle = b->handle, a->owner = b->owner, a->set = b->set, a->version = b->version;
    a->holder = b->holder;
    a->parent = b->parent, a->bare = b->bare, a->holds = b->holds, a->traced = b->traced;
    a->seen = b->seen, a->moves = b->moves, a->n_moves = b->n_moves, a->shared = b->shared;
    b->handle = was.handle, b->owner = was.owner, b->set = was.set, b->version = was.version;
    b->holder = was.holder;
    b->parent = was.parent, b->bare = was.bare, b->holds = was.holds, b->traced = was.traced;
    b->seen = was.seen, b->moves = was.moves, b->n_moves = was.n_moves, b->shared = was.shared;
}
static PyObject *stand_in(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *these, *others;
    if (!PyArg_ParseTuple(args, "O!O!:_stand_in", &PyTuple_Type, &these, &PyTuple_Type, &others))
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_Size(these); i++)
        exchange((tensor_object *)PyTuple_GetItem(these, i),
                 (tensor_object *)PyTuple_GetItem(others, i));
    Py_RETURN_NONE;
}

// _replay(function, operands, how many results): what the function records, recorded again.
static bool is_among(const ct_tensor *v, size_t n, ct_tensor t) {
    for (size_t i = 0; i < n; i++)
        if (v[i].bits == t.bits) return true;
    return false;
}
static PyObject *replay(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *function, *operands;
    unsigned long long n_out;
    const ct_loc here = enter();
    if (!PyArg_ParseTuple(args, "OOK:_replay", &function, &operands, &n_out)) return NULL;
    ct_function *f = function_of(function);
    tensors in = {0};
    PyObject *found = NULL;
    ct_tensor *out = calloc(n_out + 1, sizeof *out);
    if (!out) PyErr_NoMemory();
    if (out && f && tensors_of(operands, &in, here)) {
        ct_function_call(in.v, out, f);
        for (size_t i = 0; i < n_out && !ct_failed(); i++) // a handle has one name
            if (is_among(in.v, in.n, out[i]) || is_among(out, i, out[i]))
                out[i] = ct_cast_at(out[i], ct_dtype_of(out[i]), here);
        found = objects_of(out, n_out, here);
    }
    free(in.v);
    free(out);
    return found;
}

// _reads(): how often this thread has asked for values.
static PyObject *reads(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return PyLong_FromUnsignedLongLong(thread_here()->reads);
}

// _custom(function, rule, operands, how many results, forward): with the rule as its derivative, forwards
// (of operands, results and tangents) or in reverse (of operands, results and cotangents).
static PyObject *custom(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *function, *rule, *operands;
    unsigned long long n_out;
    int forward;
    const ct_loc here = enter();
    if (!PyArg_ParseTuple(args, "OOOKp:_custom", &function, &rule, &operands, &n_out, &forward))
        return NULL;
    ct_function *pair[2] = {function_of(function), function_of(rule)};
    tensors in = {0};
    PyObject *found = NULL;
    ct_tensor *out = calloc(n_out + 1, sizeof *out);
    if (!out) PyErr_NoMemory();
    if (out && pair[0] && pair[1] && tensors_of(operands, &in, here)) {
        (forward ? ct_custom_jvp_at : ct_custom_vjp_at)(call_first, call_second, pair, in.v, in.n,
                                                        out, n_out, here);
        found = objects_of(out, n_out, here);
    }
    free(in.v);
    free(out);
    return found;
}

// _remat(function, operands, how many results): gradients keep its operands alone.
static PyObject *remat(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *function, *operands;
    unsigned long long n_out;
    const ct_loc here = enter();
    if (!PyArg_ParseTuple(args, "OOK:_remat", &function, &operands, &n_out)) return NULL;
    ct_function *f = function_of(function);
    tensors in = {0};
    PyObject *found = NULL;
    ct_tensor *out = calloc(n_out + 1, sizeof *out);
    if (!out) PyErr_NoMemory();
    if (out && f && tensors_of(operands, &in, here)) {
        ct_remat_with((ct_remat_args){.f = ct_function_call,
                                      .user = f,
                                      .in = in.v,
                                      .n_in = in.n,
                                      .out = out,
                                      .n_out = n_out,
                                      .policy = CT_REMAT_NOTHING,
                                      .here = here});
        found = objects_of(out, n_out, here);
    }
    free(in.v);
    free(out);
    return found;
}

// _associative_scan(function, xs, axis, reverse): as many as xs.
static PyObject *associative_scan(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *function, *elements;
    long long axis;
    int reverse;
    const ct_loc here = enter();
    if (!PyArg_ParseTuple(args, "OOLp:_associative_scan", &function, &elements, &axis, &reverse))
        return NULL;
    ct_function *f = function_of(function);
    tensors xs = {0};
    PyObject *found = NULL;
    if (f && tensors_of(elements, &xs, here)) {
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
            found = objects_of(out, xs.n, here);
        } else {
            PyErr_NoMemory();
        }
        free(out);
    }
    free(xs.v);
    return found;
}

static PyObject *is_tracing(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return PyBool_FromLong(functions_tracing());
}

PyMethodDef function_methods[] = {
    {"_custom", custom, METH_VARARGS, NULL},
    {"_meet", meet, METH_O, NULL},
    {"_stand_in", stand_in, METH_VARARGS, NULL},
    {"_replay", replay, METH_VARARGS, NULL},
    {"_reads", reads, METH_NOARGS, NULL},
    {"_remat", remat, METH_VARARGS, NULL},
    {"_associative_scan", associative_scan, METH_VARARGS, NULL},
    {"_tracing", is_tracing, METH_NOARGS, NULL},
    {"_trace", trace, METH_VARARGS, NULL},
    {"_vmap", vmap, METH_VARARGS, NULL},
    {"_scan", scan, METH_VARARGS, NULL},
    {"_cond", cond, METH_VARARGS, NULL},
    {"_while", while_, METH_VARARGS, NULL},
    {0},
};
