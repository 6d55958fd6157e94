// Gradient hooks: points in histories at which Python computes how gradients continue. cotan/_sweep.py runs
// the backward passes that stop there.
//
// Values are given by the bits of their handles here, since a Tensor of each would make the next plan store
// it. A handle is valid as long as the history is.
#include "core.h"
#include "tensor.h"

#include <stdlib.h>

static bool hooks_exist; // true once a hook was made: then owners are released

void hooks_flush(void) {
    void *owners[16];
    size_t n;
    while (hooks_exist && (n = ct_ended_hooks(owners, 16)))
        for (size_t i = 0; i < n; i++) Py_DECREF((PyObject *)owners[i]);
}

typedef struct handle_list {
    ct_tensor *v;
    size_t n;
} handle_list;

// A converter of PyArg_ParseTuple: a tuple of bits or of Tensors, into a handle_list whose v is to be freed.
static int hooks_parse_handles(PyObject *tuple, void *user) {
    handle_list *to = user;
    if (tuple && !PyTuple_Check(tuple))
        return PyErr_Format(PyExc_TypeError, "handles are a tuple, not %R", tuple) != NULL;
    to->n = tuple ? (size_t)PyTuple_Size(tuple) : 0;
    if (tuple && !(to->v = calloc(to->n + 1, sizeof *to->v))) return PyErr_NoMemory() != NULL;
    for (size_t i = 0; i < to->n && !PyErr_Occurred(); i++) {
        PyObject *o = PyTuple_GetItem(tuple, (Py_ssize_t)i);
        if (tensor_check(o))
            to->v[i] = tensor_handle(o);
        else
            to->v[i].bits = PyLong_AsUnsignedLongLong(o);
    }
    if (tuple && !PyErr_Occurred()) return Py_CLEANUP_SUPPORTED;
    free(to->v); // this argument or another one is wrong
    return 0;
}

static PyObject *hooks_handles_to_tuple(const ct_tensor *v, size_t n) {
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (size_t i = 0; tuple && i < n; i++)
        if (!tuple_set(tuple, (Py_ssize_t)i, PyLong_FromUnsignedLongLong(v[i].bits)))
            Py_CLEAR(tuple);
    return tuple;
}

static PyObject *hooks_wrap_tensors(const ct_tensor *v, size_t n, ct_loc here) {
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (size_t i = 0; tuple && i < n; i++)
        if (!tuple_set(tuple, (Py_ssize_t)i, tensor_new(v[i], here))) Py_CLEAR(tuple);
    return tuple;
}

// ------------------------------------------------------------------------------------------- hooks

static bool hooks_attach(const handle_list *values, const handle_list *inputs, PyObject *owner,
                         ct_tensor *out, ct_loc here) {
    hooks_exist = true;
    ct_record_hook_at(values->v, values->n, inputs->v, inputs->n, owner, out, here);
    if (ct_failed()) return raise_error();
    Py_INCREF(owner);
    return true;
}

// _hook(values, inputs, owner): returns Tensors of these values, which have no history, with a hook as their
// history that depends on the inputs.
static PyObject *hooks_record(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *owner, *result = NULL;
    const ct_loc here = api_enter();
    handle_list v = {0}, in = {0};
    if (!PyArg_ParseTuple(args, "O&O&O:_hook", hooks_parse_handles, &v, hooks_parse_handles, &in,
                          &owner))
        return NULL;
    if (hooks_attach(&v, &in, owner, v.v, here)) result = hooks_wrap_tensors(v.v, v.n, here);
    free(v.v);
    free(in.v);
    return result;
}

// _hook_here(tensor, owner): attaches a hook to the Tensor and returns its bits. What was computed from it
// before does not pass through the hook.
static PyObject *hooks_record_in_place(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *o, *owner;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "O!O:_hook_here", tensor_type, &o, &owner)) return NULL;
    ct_tensor t = tensor_handle(o), out;
    if (!hooks_attach(&(handle_list){&t, 1}, &(handle_list){NULL, 0}, owner, &out, here))
        return NULL;
    if (!tensor_set_handle((tensor_object *)o, out, here)) return NULL;
    return PyLong_FromUnsignedLongLong(tensor_handle(o).bits);
}

// --------------------------------------------------------------------------------- backward passes

static PyObject *hooks_get_bits(PyObject *Py_UNUSED(module), PyObject *o) {
    if (tensor_check(o)) return PyLong_FromUnsignedLongLong(tensor_handle(o).bits);
    return PyErr_Format(PyExc_TypeError, "gradients are those of Tensors, not of %R", o);
}
// _followed(tensor): returns True if something that has a history was computed from it.
static PyObject *hooks_is_followed(PyObject *Py_UNUSED(module), PyObject *o) {
    if (tensor_check(o)) return PyBool_FromLong(ct_has_tracked_dependents(tensor_handle(o)));
    return PyErr_Format(PyExc_TypeError, "gradients are those of Tensors, not of %R", o);
}
static PyObject *hooks_tensor_from_bits(PyObject *Py_UNUSED(module), PyObject *number) {
    const ct_loc here = api_enter();
    const ct_tensor t = {PyLong_AsUnsignedLongLong(number)};
    if (PyErr_Occurred()) return NULL;
    return tensor_new(ct_cast_at(t, ct_dtype_of(t), here), here); // a handle has one Tensor
}

// _cut(roots, targets): returns (owner, boundary, operands, inside_roots, frontier, leaves), the fields of
// ct_history_cut.
static PyObject *hooks_cut(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *result = NULL;
    const ct_loc here = api_enter();
    handle_list r = {0}, t = {0};
    ct_history_cut c = {0};
    if (!PyArg_ParseTuple(args, "O&O&:_cut", hooks_parse_handles, &r, hooks_parse_handles, &t))
        return NULL;
    if (ct_history_cut_at(r.v, r.n, t.v, t.n, &c, here))
        result = Py_BuildValue("(ONNNNN)", c.owner ? (PyObject *)c.owner : Py_None,
                               hooks_handles_to_tuple(c.boundary, c.n_boundary),
                               hooks_handles_to_tuple(c.operands, c.n_operands),
                               hooks_handles_to_tuple(c.inside_roots, c.n_inside_roots),
                               hooks_handles_to_tuple(c.frontier, c.n_frontier),
                               hooks_handles_to_tuple(c.leaves, c.n_leaves));
    else
        raise_error();
    ct_history_cut_free(&c);
    free(r.v);
    free(t.v);
    return result;
}

// _segment(roots, cotangents, wrt, create): returns the gradients with respect to wrt; there is no hook
// between wrt and the roots.
static PyObject *hooks_segment(PyObject *Py_UNUSED(module), PyObject *args) {
    int create;
    const ct_loc here = api_enter();
    handle_list r = {0}, c = {0}, w = {0};
    if (!PyArg_ParseTuple(args, "O&O&O&p:_segment", hooks_parse_handles, &r, hooks_parse_handles,
                          &c, hooks_parse_handles, &w, &create))
        return NULL;
    ct_tensor total = CT_NONE;
    for (size_t i = 0; i < r.n; i++) {
        ct_tensor paired = ct_surrogate_loss_at(r.v[i], c.v[i], here);
        total = i ? ct_add_at(total, paired, here) : paired;
    }
    ct_tensor *grads = calloc(w.n + 1, sizeof *grads);
    if (grads) ct_backward_at(total, w.v, w.n, grads, true, create, here);
    PyObject *result = !grads        ? PyErr_NoMemory()
                       : ct_failed() ? raise_error()
                                     : hooks_wrap_tensors(grads, w.n, here);
    free(grads);
    free(r.v);
    free(c.v);
    free(w.v);
    return result;
}

static PyObject *hooks_use_history(PyObject *Py_UNUSED(module), PyObject *roots) {
    handle_list r = {0};
    const ct_loc here = api_enter();
    if (!hooks_parse_handles(roots, &r)) return NULL;
    for (size_t i = 0; i < r.n; i++)
        if (ct_ok(r.v[i])) ct_consume_history_at(r.v[i], here);
    free(r.v);
    return none_if(!ct_failed() || raise_error());
}

// _paired(x, cotangent): returns a scalar whose gradient with respect to x is the cotangent.
static PyObject *hooks_paired(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *x, *cotangent;
    ct_tensor c;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "O!O:_paired", tensor_type, &x, &cotangent) ||
        !operand_parse(cotangent, &c, here))
        return NULL;
    return tensor_new(ct_surrogate_loss_at(tensor_value(x, here), c, here), here);
}

// _after(x, others): returns x, which is computed after the others.
static PyObject *hooks_after(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *x;
    handle_list o = {0};
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "O!O&:_after", tensor_type, &x, hooks_parse_handles, &o))
        return NULL;
    PyObject *result =
        tensor_new(ct_control_dependency_at(tensor_value(x, here), o.v, o.n, here), here);
    free(o.v);
    return result;
}

PyMethodDef hook_functions[] = {
    {"_hook", hooks_record, METH_VARARGS, NULL},
    {"_hook_here", hooks_record_in_place, METH_VARARGS, NULL},
    {"_bits", hooks_get_bits, METH_O, NULL},
    {"_followed", hooks_is_followed, METH_O, NULL},
    {"_tensor_of", hooks_tensor_from_bits, METH_O, NULL},
    {"_cut", hooks_cut, METH_VARARGS, NULL},
    {"_segment", hooks_segment, METH_VARARGS, NULL},
    {"_use_history", hooks_use_history, METH_O, NULL},
    {"_paired", hooks_paired, METH_VARARGS, NULL},
    {"_after", hooks_after, METH_VARARGS, NULL},
    {0},
};
