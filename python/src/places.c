// Tensors on other devices, and where one lies.
#include <string.h>

#include "tensor.h"

const char *place_name(PyObject *name) {
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    if (!text && !PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "a device is a string, not %R", name);
    return text;
}

ct_tensor place_beside(ct_tensor t, ct_tensor other, ct_loc here) {
    const char *is = ct_device_of(t), *there = ct_device_of(other);
    return is && there && strcmp(is, there) != 0 ? ct_to_at(t, there, here) : t;
}

static PyObject *to(PyObject *self, PyObject *name) {
    const ct_loc here = enter();
    const char *text = place_name(name);
    const ct_tensor t = text ? tensor_value(self, here) : CT_NONE;
    if (!t.bits) return NULL;
    const ct_tensor there = ct_to_at(t, text, here);
    if (there.bits != t.bits || !ct_ok(t)) return tensor_new(there, here);
    Py_INCREF(self);
    return self;
}

static PyObject *stays(PyObject *self, PyObject *unused) {
    (void)unused;
    const ct_loc here = enter();
    const ct_tensor t = tensor_value(self, here);
    if (!t.bits) return NULL;
    const ct_tensor stays = ct_here_at(t, here);
    if (stays.bits != t.bits || !ct_ok(t)) return tensor_new(stays, here);
    Py_INCREF(self);
    return self;
}

static PyObject *place(PyObject *self, PyObject *unused) {
    (void)unused;
    enter();
    const ct_tensor t = tensor_look(self);
    if (!t.bits) return NULL;
    const char *name = ct_device_of(t);
    return name ? PyUnicode_FromString(name) : raise_failure();
}

// The tensor itself, whose name stays its own.
static PyObject *move_to(PyObject *o, PyObject *name) {
    tensor_object *self = (tensor_object *)o;
    const ct_loc here = enter();
    const char *text = place_name(name);
    if (!text || !tensor_handle(o).bits) return NULL;
    if (self->set) {
        if (!run_eval(NULL, 0, here)) return NULL;
        ct_move_at(self->handle, text, here);
        if (ct_failed()) return raise_failure();
    } else if (!tensor_rename(self, ct_to_at(self->handle, text, here), here)) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *own_device(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    const ct_loc here = enter();
    (void)here;
    const char *name = ct_device_of(ct_f(0));
    return name ? PyUnicode_FromString(name) : raise_failure();
}

PyMethodDef place_methods[] = {
    {"_to", to, METH_O, NULL},
    {"_stays", stays, METH_NOARGS, NULL},
    {"_place", place, METH_NOARGS, NULL},
    {"_move", move_to, METH_O, NULL},
    {0},
};
PyMethodDef place_functions[] = {
    {"_own_device", own_device, METH_NOARGS, NULL},
    {0},
};
