// Copies tensors between devices, and returns the device of a tensor.
#include <string.h>

#include "tensor.h"

const char *device_parse_name(PyObject *name) {
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    if (!text && !PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "a device is a string, not %R", name);
    return text;
}

ct_tensor move_to_device_of(ct_tensor t, ct_tensor other, ct_loc here) {
    const char *is = ct_device_of(t), *there = ct_device_of(other);
    return is && there && strcmp(is, there) != 0 ? ct_to_at(t, there, here) : t;
}

static PyObject *py_device_to(PyObject *self, PyObject *name) {
    const ct_loc here = api_enter();
    const char *text = device_parse_name(name);
    const ct_tensor t = text ? tensor_value(self, here) : CT_NONE;
    if (!t.bits) return NULL;
    const ct_tensor moved = ct_to_at(t, text, here);
    if (moved.bits != t.bits || !ct_ok(t)) return tensor_new(moved, here);
    return Py_NewRef(self);
}

static PyObject *py_device_to_host(PyObject *self, PyObject *Py_UNUSED(unused)) {
    const ct_loc here = api_enter();
    const ct_tensor t = tensor_value(self, here);
    if (!t.bits) return NULL;
    const ct_tensor py_device_to_host = ct_commit_device_at(t, here);
    if (py_device_to_host.bits != t.bits || !ct_ok(t)) return tensor_new(py_device_to_host, here);
    return Py_NewRef(self);
}

static PyObject *py_device_get(PyObject *self, PyObject *Py_UNUSED(unused)) {
    api_enter();
    const ct_tensor t = tensor_peek(self);
    if (!t.bits) return NULL;
    const char *name = ct_device_of(t);
    return name ? PyUnicode_FromString(name) : raise_error();
}

// _move(name): moves the tensor itself to the device.
static PyObject *py_device_move_(PyObject *o, PyObject *name) {
    tensor_object *self = (tensor_object *)o;
    const ct_loc here = api_enter();
    const char *text = device_parse_name(name);
    if (!text || !tensor_handle(o).bits) return NULL;
    if (self->params) {
        if (!run_eval(NULL, 0, here)) return NULL;
        ct_move_at(self->handle, text, here);
        if (ct_failed()) return raise_error();
    } else if (!tensor_set_handle(self, ct_to_at(self->handle, text, here), here)) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *py_device_get_default(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    api_enter();
    const char *name = ct_device_of(ct_f(0));
    return name ? PyUnicode_FromString(name) : raise_error();
}

PyMethodDef device_methods[] = {
    {"_to", py_device_to, METH_O, NULL},
    {"_stays", py_device_to_host, METH_NOARGS, NULL},
    {"_device_name", py_device_get, METH_NOARGS, NULL},
    {"_move", py_device_move_, METH_O, NULL},
    {0},
};
PyMethodDef device_functions[] = {
    {"_own_device", py_device_get_default, METH_NOARGS, NULL},
    {0},
};
