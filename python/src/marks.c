// Places in histories where Python says how gradients go on: cotan/_sweep.py is the sweep that comes there.
//
// Values are named by the bits of their handles here, since a Tensor of each would make the next plan
// store it. What they name lives as long as the history does.
#include "core.h"
#include "tensor.h"

#include <stdlib.h>

static bool made; // any mark: then owners come back

void marks_flush(void) {
    void *owners[16];
    size_t n;
    while (made && (n = ct_marks_ended(owners, 16)))
        for (size_t i = 0; i < n; i++) Py_DECREF((PyObject *)owners[i]);
}

typedef struct handles {
    ct_tensor *v;
    size_t n;
} handles;

// Of a tuple of bits, or of Tensors.
static bool handles_of(PyObject *tuple, handles *to) {
    to->n = (size_t)PyTuple_Size(tuple);
    to->v = calloc(to->n + 1, sizeof *to->v);
    if (!to->v) return PyErr_NoMemory();
    for (size_t i = 0; i < to->n; i++) {
        PyObject *o = PyTuple_GetItem(tuple, (Py_ssize_t)i);
        if (tensor_check(o))
            to->v[i] = tensor_handle(o);
        else
            to->v[i].bits = PyLong_AsUnsignedLongLong(o);
        if (PyErr_Occurred()) return false;
    }
    return true;
}

static PyObject *bits_of(const ct_tensor *v, size_t n) {
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (size_t i = 0; tuple && i < n; i++) {
        PyObject *o = PyLong_FromUnsignedLongLong(v[i].bits);
        if (!o || PyTuple_SetItem(tuple, (Py_ssize_t)i, o) < 0) Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *tensors_of(const ct_tensor *v, size_t n, ct_loc here) {
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (size_t i = 0; tuple && i < n; i++) {
        PyObject *o = tensor_new(v[i], here);
        if (!o || PyTuple_SetItem(tuple, (Py_ssize_t)i, o) < 0) Py_CLEAR(tuple);
    }
    return tuple;
}

// ------------------------------------------------------------------------------------------- marks

static bool mark_all(const handles *values, const handles *inputs, PyObject *owner, ct_tensor *out,
                     ct_loc here) {
    made = true;
    ct_mark_at(values->v, values->n, inputs->v, inputs->n, owner, out, here);
    if (ct_failed()) return raise_failure();
    Py_INCREF(owner);
    return true;
}

// _mark(values, inputs, owner): Tensors of these values, which have no history, with that of the inputs.
static PyObject *mark(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *values, *inputs, *owner, *found = NULL;
    const ct_loc here = enter();
    handles v = {0}, in = {0};
    if (!PyArg_ParseTuple(args, "O!O!O:_mark", &PyTuple_Type, &values, &PyTuple_Type, &inputs,
                          &owner))
        return NULL;
    if (handles_of(values, &v) && handles_of(inputs, &in) && mark_all(&v, &in, owner, v.v, here))
        found = tensors_of(v.v, v.n, here);
    free(v.v);
    free(in.v);
    return found;
}

// _mark_here(tensor, owner): the Tensor is marked; its bits. What was made of it before is not.
static PyObject *mark_here(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *o, *owner;
    const ct_loc here = enter();
    if (!PyArg_ParseTuple(args, "O!O:_mark_here", tensor_type, &o, &owner)) return NULL;
    ct_tensor t = tensor_handle(o), out;
    if (!mark_all(&(handles){&t, 1}, &(handles){NULL, 0}, owner, &out, here)) return NULL;
    if (!tensor_rename((tensor_object *)o, out, here)) return NULL;
    return PyLong_FromUnsignedLongLong(tensor_handle(o).bits);
}

// ----------------------------------------------------------------------------------------- sweeping

static PyObject *bits(PyObject *module, PyObject *o) {
    (void)module;
    if (tensor_check(o)) return PyLong_FromUnsignedLongLong(tensor_handle(o).bits);
    PyErr_Format(PyExc_TypeError, "gradients are those of Tensors, not of %R", o);
    return NULL;
}
// _followed(tensor): has something been made of it that has a history?
static PyObject *followed(PyObject *module, PyObject *o) {
    (void)module;
    if (tensor_check(o)) return PyBool_FromLong(ct_is_followed(tensor_handle(o)));
    PyErr_Format(PyExc_TypeError, "gradients are those of Tensors, not of %R", o);
    return NULL;
}
static PyObject *tensor_of(PyObject *module, PyObject *number) {
    (void)module;
    const ct_loc here = enter();
    const ct_tensor t = {PyLong_AsUnsignedLongLong(number)};
    if (PyErr_Occurred()) return NULL;
    return tensor_new(ct_cast_at(t, ct_dtype_of(t), here), here); // a handle has one name
}

// _cut(roots, targets): (owner, at, operands, inside, behind, leaves), as ct_cut has them.
static PyObject *cut(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *roots, *targets, *found = NULL;
    const ct_loc here = enter();
    handles r = {0}, t = {0};
    ct_cut c = {0};
    if (!PyArg_ParseTuple(args, "O!O!:_cut", &PyTuple_Type, &roots, &PyTuple_Type, &targets))
        return NULL;
    if (handles_of(roots, &r) && handles_of(targets, &t)) {
        if (ct_cut_at(r.v, r.n, t.v, t.n, &c, here))
            found = Py_BuildValue("(ONNNNN)", c.owner ? (PyObject *)c.owner : Py_None,
                                  bits_of(c.at, c.n_at), bits_of(c.operands, c.n_operands),
                                  bits_of(c.inside, c.n_inside), bits_of(c.behind, c.n_behind),
                                  bits_of(c.leaves, c.n_leaves));
        else
            raise_failure();
    }
    ct_cut_free(&c);
    free(r.v);
    free(t.v);
    return found;
}

// _segment(roots, cotangents, wrt, create): gradients with respect to wrt, between which and the roots
// there is no mark.
static PyObject *segment(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *roots, *cotangents, *wrt, *found = NULL;
    int create;
    const ct_loc here = enter();
    handles r = {0}, c = {0}, w = {0};
    if (!PyArg_ParseTuple(args, "O!O!O!p:_segment", &PyTuple_Type, &roots, &PyTuple_Type,
                          &cotangents, &PyTuple_Type, &wrt, &create))
        return NULL;
    if (handles_of(roots, &r) && handles_of(cotangents, &c) && handles_of(wrt, &w)) {
        ct_tensor total = CT_NONE;
        for (size_t i = 0; i < r.n; i++) {
            ct_tensor paired = ct_paired_at(r.v[i], c.v[i], here);
            total = i ? ct_add_at(total, paired, here) : paired;
        }
        ct_tensor *grads = calloc(w.n + 1, sizeof *grads);
        if (grads) ct_backward_at(total, w.v, w.n, grads, true, create, here);
        found = !grads        ? PyErr_NoMemory()
                : ct_failed() ? raise_failure()
                              : tensors_of(grads, w.n, here);
        free(grads);
    }
    free(r.v);
    free(c.v);
    free(w.v);
    return found;
}

static PyObject *use_history(PyObject *module, PyObject *roots) {
    (void)module;
    handles r = {0};
    const ct_loc here = enter();
    if (!PyTuple_Check(roots) || !handles_of(roots, &r)) return NULL;
    for (size_t i = 0; i < r.n; i++)
        if (ct_ok(r.v[i])) ct_use_history_at(r.v[i], here);
    free(r.v);
    if (ct_failed()) return raise_failure();
    Py_RETURN_NONE;
}

// _paired(x, cotangent): a number whose gradient with respect to x is the cotangent.
static PyObject *paired(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *x, *cotangent;
    ct_tensor c;
    const ct_loc here = enter();
    if (!PyArg_ParseTuple(args, "O!O:_paired", tensor_type, &x, &cotangent) ||
        !operand(cotangent, &c, here))
        return NULL;
    return tensor_new(ct_paired_at(tensor_value(x, here), c, here), here);
}

// _after(x, others): x, once the others are computed.
static PyObject *after(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *x, *others, *found = NULL;
    handles o = {0};
    const ct_loc here = enter();
    if (!PyArg_ParseTuple(args, "O!O!:_after", tensor_type, &x, &PyTuple_Type, &others))
        return NULL;
    if (handles_of(others, &o))
        found = tensor_new(ct_after_at(tensor_value(x, here), o.v, o.n, here), here);
    free(o.v);
    return found;
}

PyMethodDef mark_functions[] = {
    {"_mark", mark, METH_VARARGS, NULL},
    {"_mark_here", mark_here, METH_VARARGS, NULL},
    {"_bits", bits, METH_O, NULL},
    {"_followed", followed, METH_O, NULL},
    {"_tensor_of", tensor_of, METH_O, NULL},
    {"_cut", cut, METH_VARARGS, NULL},
    {"_segment", segment, METH_VARARGS, NULL},
    {"_use_history", use_history, METH_O, NULL},
    {"_paired", paired, METH_VARARGS, NULL},
    {"_after", after, METH_VARARGS, NULL},
    {0},
};
