// cotan.Tensor: the Python object that holds a tensor of the library.
#include "core.h"

#include "tensor.h"
#include "whole.h"

#include <stdio.h>
#include <stdlib.h>

PyTypeObject *tensor_type;
static allocfunc tensor_allocate;
// Cotan.Size; the class of Tensor.size, an int that can be called.
static PyObject *tensor_size_type, *tensor_count_type;

bool tensor_check(PyObject *o) {
    return Py_TYPE(o) == tensor_type || PyType_IsSubtype(Py_TYPE(o), tensor_type);
}

// ------------------------------------------------------------------------ tensors of other threads

static bool tensor_is_foreign(const tensor_object *self) {
    return thread_has_others && self->owner != thread_get();
}
bool tensor_is_usable_here(PyObject *o) {
    const tensor_object *self = (tensor_object *)o;
    return self->params || !tensor_is_foreign(self);
}

// Runs the assignment that another thread has recorded for a variable, which all threads share.
static bool tensor_run_foreign_assign(tensor_object *self) {
    while (tensor_is_foreign(self) && ct_assigning_ctx(self->handle) == self->owner->ctx) {
        thread *owner = self->owner;
        if (owner->busy || owner->trace_depth) {
            if (!thread_wait(owner, true)) return false;
        } else if (!run_eval_in_thread(owner, NULL, 0, CT_NOWHERE)) {
            return false;
        }
    }
    return true;
}

// Evaluates a value of another thread in that thread's context, once, and shares it.
static bool tensor_evaluate_foreign(tensor_object *self) {
    while (tensor_is_foreign(self) && !self->params && !self->shared.bits) {
        thread *owner = self->owner;
        if (self->traced && owner->trace_depth) {
            raise_message(CT_E_TRACE,
                          "read: the tensor is a traced function's, in another thread\n"
                          "  hint: return it as a result of the function, and read it outside");
            return false;
        }
        if (owner->busy || (owner->trace_depth && !ct_is_evaluated(self->handle))) {
            if (!thread_wait(owner, true)) return false;
            continue;
        }
        if (!ct_is_evaluated(self->handle)) {
            if (!run_eval_in_thread(owner, &self->handle, 1, CT_NOWHERE)) return false;
            continue; // another thread may have written it meanwhile
        }
        self->shared = thread_share(self->handle, CT_NOWHERE);
        if (!self->shared.bits) return false;
    }
    return true;
}

static ct_tensor tensor_foreign_handle(tensor_object *self) {
    Py_INCREF((PyObject *)self); // keeps it alive while other threads run
    ct_tensor t = CT_NONE;
    if (self->params ? tensor_run_foreign_assign(self) : tensor_evaluate_foreign(self))
        t = tensor_is_foreign(self) && !self->params ? self->shared : self->handle;
    Py_DECREF((PyObject *)self);
    return t;
}

static __attribute__((noinline)) ct_tensor tensor_latest_handle(tensor_object *self) {
    if (trace_capture_listeners && trace_is_active() && !self->traced)
        trace_note_capture((PyObject *)self);
    if (self->parent && !view_refresh(self, CT_NOWHERE)) return CT_NONE;
    return tensor_is_foreign(self) ? tensor_foreign_handle(self) : self->handle;
}
// The fast path: most tensors are no views, and have the only thread.
static inline ct_tensor tensor_get_handle(PyObject *o) {
    tensor_object *self = (tensor_object *)o;
    return self->parent || thread_has_others || trace_capture_listeners ? tensor_latest_handle(self)
                                                                        : self->handle;
}
ct_tensor tensor_handle(PyObject *o) { return tensor_get_handle(o); }

static ct_tensor tensor_raise_foreign_history(ct_loc here) {
    char text[1024];
    snprintf(
        text, sizeof text,
        "%s:%u: read: the tensor has a history, which another thread recorded and keeps\n"
        "  hint: detach() gives its value; backward() belongs into the thread that computed it",
        here.file ? here.file : "?", here.line);
    raise_message(CT_E_CONTEXT, text);
    return CT_NONE;
}

ct_tensor tensor_value(PyObject *o, ct_loc here) {
    const ct_tensor t = tensor_get_handle(o);
    if (!grad_enabled()) {
        // In a traced function it is not known yet which values will have a history.
        const char kind = trace_is_active() ? dtype_kind(ct_dtype_of(t)) : 0;
        const bool may_have_history = kind == 'f' || kind == 'c' || ct_is_tracked(t);
        return may_have_history ? ct_stop_gradient_at(t, here) : t;
    }
    const bool tracked = (thread_has_others || ((tensor_object *)o)->params) && ct_is_tracked(t);
    if (((tensor_object *)o)->params && !tracked)
        return ct_stop_gradient_at(t, here); // a constant for now
    return !thread_has_others || tensor_is_usable_here(o) || !tracked
               ? t
               : tensor_raise_foreign_history(here);
}

ct_tensor tensor_peek(PyObject *o) {
    tensor_object *self = (tensor_object *)o;
    if (self->parent && !view_refresh(self, CT_NOWHERE)) return CT_NONE;
    while (tensor_is_foreign(self) && !self->params && !self->shared.bits && self->owner->busy)
        if (!thread_wait(self->owner, false)) return CT_NONE;
    return self->shared.bits && tensor_is_foreign(self) ? self->shared : self->handle;
}

enum { MAX_PENDING_NODES = 20000 }; // the maximum of nodes of a plan

static PyObject *tensor_wrap(PyTypeObject *type, ct_tensor t, ct_loc here) {
    if (!ct_ok(t)) return raise_error();
    t = ct_pin_at(t, here);
    if (!ct_ok(t)) return raise_error();
    allocfunc alloc =
        type == tensor_type ? tensor_allocate : (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    tensor_object *self = (tensor_object *)alloc(type, 0);
    if (!self) {
        ct_unpin(t);
        return NULL;
    }
    self->handle = t;
    self->owner = thread_get();
    self->traced = self->owner->trace_depth;
    return (PyObject *)self;
}
PyObject *tensor_new_without_run(ct_tensor t, ct_loc here) {
    return tensor_wrap(tensor_type, t, here);
}
PyObject *tensor_new_of_type(PyTypeObject *type, ct_tensor t, ct_loc here) {
    return tensor_wrap(type, t, here);
}
PyObject *tensor_new(ct_tensor t, ct_loc here) {
    PyObject *o = tensor_wrap(tensor_type, t, here);
    if (o && ct_rolling_pending() > MAX_PENDING_NODES && !((tensor_object *)o)->traced &&
        !critical_is_inside() && !run_eval(NULL, 0, here))
        Py_CLEAR(o);
    return o;
}

void tensor_release_handle(tensor_object *self) {
    if (self->params) {
        autograd_remove_leaf(self);
        if (!self->params_owner) thread_free_params(self->owner, self->params);
        Py_CLEAR(self->params_owner);
        self->params = NULL;
    } else if (self->handle.bits) {
        if (self->owner == thread_current)
            ct_unpin(self->handle);
        else
            thread_unpin(self->owner, self->handle);
    }
    if (self->shared.bits) thread_unshare(self->shared);
    self->handle = self->shared = CT_NONE;
}

bool tensor_set_handle(tensor_object *self, ct_tensor t, ct_loc here) {
    if (!ct_ok(t)) return raise_error();
    t = ct_pin_at(t, here);
    if (!ct_ok(t)) return raise_error();
    tensor_release_handle(self);
    self->handle = t;
    self->owner = thread_get();
    self->traced = self->owner->trace_depth;
    return true;
}

static void tensor_dealloc(PyObject *o) {
    tensor_object *self = (tensor_object *)o;
    PyTypeObject *type = Py_TYPE(o);
    PyObject_GC_UnTrack(o);
    if (self->weak) PyObject_ClearWeakRefs(o);
    Py_CLEAR(self->dict);
    Py_CLEAR(self->grad);
    view_unlink(self);
    tensor_release_handle(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(o);
    Py_DECREF(type);
    dlpack_flush();
}
static int tensor_traverse(PyObject *o, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(o));
    const tensor_object *self = (tensor_object *)o;
    Py_VISIT(self->dict);
    Py_VISIT(self->grad);
    Py_VISIT((PyObject *)self->detached);
    if (self->holds_parent) Py_VISIT((PyObject *)self->parent);
    return 0;
}
static int tensor_clear(PyObject *o) {
    Py_CLEAR(((tensor_object *)o)->dict);
    Py_CLEAR(((tensor_object *)o)->grad);
    return 0;
}

static bool tensor_args_are_sizes(PyObject *args) {
    const Py_ssize_t n = PyTuple_Size(args);
    Py_ssize_t i = 0;
    while (i < n && PyLong_Check(PyTuple_GetItem(args, i))) i++;
    return n && i == n;
}
static PyObject *tensor_zeros(PyTypeObject *type, PyObject *sizes, ct_loc here) {
    int64_t dim[CT_MAX_RANK];
    size_t rank;
    if (!ints_parse(sizes, dim, CT_MAX_RANK, &rank, "the sizes")) return NULL;
    return tensor_wrap(type, ct_zeros_at(default_float, (ct_ints){(int64_t)rank, dim}, here), here);
}

// Tensor(data) is of the default dtype unless one is given, and Tensor(2, 3) has these sizes, as in PyTorch.
static PyObject *tensor_make(PyTypeObject *type, PyObject *args, PyObject *options) {
    static char *names[] = {"data", "dtype", "requires_grad", NULL};
    PyObject *data, *dtype = Py_None;
    int tracked = 0;
    ct_dtype want;
    ct_tensor t;
    const ct_loc here = api_enter();
    if (!options && tensor_args_are_sizes(args)) return tensor_zeros(type, args, here);
    if (!PyArg_ParseTupleAndKeywords(args, options, "O|Op:Tensor", names, &data, &dtype,
                                     &tracked) ||
        !dtype_parse(dtype, &want) || !tensor_parse(data, want, &t, here))
        return NULL;
    if (!want && !tensor_check(data) && ct_ok(t) && dtype_kind(ct_dtype_of(t)) != 'c')
        t = cast_data_eagerly(t, default_float, here);
    if (tensor_check(data) && ct_ok(t) &&
        t.bits == tensor_handle(data).bits) // a handle has one Tensor
        t = ct_cast_at(t, ct_dtype_of(t), here);
    PyObject *o = tensor_wrap(type, t, here);
    if (o && tracked && !tensor_make_variable(o, true, here)) Py_CLEAR(o);
    return o;
}

// -------------------------------------------------------------------------------------- attributes

static PyObject *tensor_shape_tuple(ct_tensor t) {
    const int rank = ct_rank(t);
    PyObject *sizes = PyTuple_New(rank);
    for (int i = 0; sizes && i < rank; i++)
        if (!tuple_set(sizes, i, PyLong_FromLongLong(ct_dim(t, i)))) Py_CLEAR(sizes);
    return sizes;
}
PyObject *tensor_shape(ct_tensor t) {
    PyObject *sizes = tensor_shape_tuple(t);
    if (!sizes || !tensor_size_type) return sizes;
    PyObject *shape = PyObject_CallFunctionObjArgs(tensor_size_type, sizes, NULL);
    Py_DECREF(sizes);
    return shape;
}

static PyObject *tensor_get_shape(PyObject *self, void *Py_UNUSED(unused)) {
    const ct_tensor t = tensor_peek(self);
    return t.bits ? tensor_shape(t) : NULL;
}
static PyObject *tensor_get_size(PyObject *self, void *Py_UNUSED(unused)) {
    const ct_tensor t = tensor_peek(self);
    if (!t.bits) return NULL;
    PyObject *count = PyLong_FromLongLong(ct_size(t));
    if (!count || !tensor_count_type) return count;
    PyObject *shape = tensor_shape(t);
    PyObject *size =
        shape ? PyObject_CallFunctionObjArgs(tensor_count_type, count, shape, NULL) : NULL;
    release(shape, count);
    return size;
}
static PyObject *tensor_get_ndim(PyObject *self, void *Py_UNUSED(unused)) {
    const ct_tensor t = tensor_peek(self);
    return t.bits ? PyLong_FromLong(ct_rank(t)) : NULL;
}
static PyObject *tensor_get_dtype(PyObject *self, void *Py_UNUSED(unused)) {
    ct_dtype dtype = ct_dtype_of(tensor_peek(self));
    return dtype ? dtype_to_object(dtype) : raise_error();
}
static PyObject *tensor_get_itemsize(PyObject *self, void *Py_UNUSED(unused)) {
    const ct_tensor t = tensor_peek(self);
    return t.bits ? PyLong_FromSize_t(ct_dtype_size(ct_dtype_of(t))) : NULL;
}
static PyObject *tensor_get_nbytes(PyObject *self, void *Py_UNUSED(unused)) {
    const ct_tensor t = tensor_peek(self);
    if (!t.bits) return NULL;
    return PyLong_FromLongLong((ct_size(t) * ct_dtype_bits(ct_dtype_of(t)) + 7) / 8);
}
static PyObject *tensor_get_device(PyObject *Py_UNUSED(self), void *Py_UNUSED(unused)) {
    return PyUnicode_FromString("cpu");
}

// Reverses the order of the last `n` axes.
static PyObject *tensor_reverse_axes(PyObject *self, int n) {
    const ct_loc here = api_enter();
    const ct_tensor t = tensor_peek(self);
    if (!t.bits) return NULL;
    int64_t axes[CT_MAX_RANK];
    const int rank = ct_rank(t);
    if (n > rank)
        return PyErr_Format(PyExc_ValueError, "mT: the tensor has %d axes, it needs 2", rank);
    for (int i = 0; i < rank; i++) axes[i] = i < rank - n ? i : rank - 1 - (i - (rank - n));
    const int64_t *const lists[4] = {axes};
    view_op *ops = malloc(sizeof *ops);
    if (!ops || !view_op_new(ops, VIEW_PERMUTE, lists, (size_t)rank)) {
        free(ops);
        return PyErr_NoMemory();
    }
    return view_new(self, ops, 1, here);
}
static PyObject *tensor_get_T(PyObject *self, void *Py_UNUSED(unused)) {
    const ct_tensor t = tensor_peek(self);
    return t.bits ? tensor_reverse_axes(self, ct_rank(t)) : NULL;
}
static PyObject *tensor_get_mT(PyObject *self, void *Py_UNUSED(unused)) {
    return tensor_reverse_axes(self, 2);
}

static PyObject *tensor_numel(PyObject *self, PyObject *Py_UNUSED(unused)) {
    const ct_tensor t = tensor_peek(self);
    return t.bits ? PyLong_FromLongLong(ct_size(t)) : NULL;
}
static PyObject *tensor_ndim(PyObject *self, PyObject *Py_UNUSED(unused)) {
    return tensor_get_ndim(self, NULL);
}
static PyObject *tensor_element_size(PyObject *self, PyObject *Py_UNUSED(unused)) {
    return tensor_get_itemsize(self, NULL);
}

static PyGetSetDef tensor_getters[] = {
    {"shape", tensor_get_shape, NULL, "The sizes of its axes, as a cotan.Size.", NULL},
    {"size", tensor_get_size, NULL,
     "The number of elements; size() is the shape, size(axis) one of its sizes.", NULL},
    {"ndim", tensor_get_ndim, NULL, "The number of axes.", NULL},
    {"dtype", tensor_get_dtype, NULL, "The element type.", NULL},
    {"itemsize", tensor_get_itemsize, NULL, "Bytes of an element.", NULL},
    {"nbytes", tensor_get_nbytes, NULL, "Bytes of all elements.", NULL},
    {"device", tensor_get_device, NULL, "Where it is: \"cpu\".", NULL},
    {"T", tensor_get_T, NULL, "Its axes in the opposite order.", NULL},
    {"mT", tensor_get_mT, NULL, "Its last two axes exchanged.", NULL},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {0},
};
static PyMemberDef tensor_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(tensor_object, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(tensor_object, weak), READONLY, NULL},
    {0},
};
static PyMethodDef tensor_methods[] = {
    {"numel", tensor_numel, METH_NOARGS, "numel($self)\n--\n\nThe number of elements."},
    {"dim", tensor_ndim, METH_NOARGS, "dim($self)\n--\n\nThe number of axes."},
    {"element_size", tensor_element_size, METH_NOARGS,
     "element_size($self)\n--\n\nBytes of an element."},
    {0},
};

// -------------------------------------------------------------------------------------------- setup

static Py_hash_t tensor_hash(PyObject *self) { return (Py_hash_t)((uintptr_t)self >> 4); }

enum { MAX_SLOTS = 96 };
static PyType_Slot tensor_slots[MAX_SLOTS] = {
    {Py_tp_doc,
     "Tensor(data, dtype=None)\n--\n\n"
     "An n-dimensional array, which is computed when somebody looks at it. Data without a dtype "
     "become float32; Tensor(2, 3) has these sizes."},
    {Py_tp_new, (void *)tensor_make},
    {Py_tp_dealloc, (void *)tensor_dealloc},
    {Py_tp_traverse, (void *)tensor_traverse},
    {Py_tp_clear, (void *)tensor_clear},
    {Py_tp_hash, (void *)tensor_hash},
    {Py_tp_getset, tensor_getters},
    {Py_tp_members, tensor_members},
    {Py_mp_subscript, (void *)index_get},
    {Py_mp_ass_subscript, (void *)index_set},
    {Py_bf_getbuffer, (void *)read_buffer},
    {Py_bf_releasebuffer, (void *)read_release},
};
static PyType_Spec tensor_spec = {
    .name = "cotan.Tensor",
    .basicsize = sizeof(tensor_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = tensor_slots,
};

static bool tensor_add_methods(PyMethodDef *list) {
    for (PyMethodDef *m = list; m->ml_name; m++) {
        PyObject *method = PyDescr_NewMethod(tensor_type, m);
        if (!method || PyObject_SetAttrString((PyObject *)tensor_type, m->ml_name, method) < 0)
            return false;
        Py_DECREF(method);
    }
    return true;
}

static bool tensor_add_getters(PyGetSetDef *list) {
    for (PyGetSetDef *g = list; g->name; g++) {
        PyObject *getter = PyDescr_NewGetSet(tensor_type, g);
        if (!getter || PyObject_SetAttrString((PyObject *)tensor_type, g->name, getter) < 0)
            return false;
        Py_DECREF(getter);
    }
    return true;
}

bool tensor_init(PyObject *module) {
    int n = 0;
    while (tensor_slots[n].slot) n++;
    for (const PyType_Slot *s = operator_slots; s->slot; s++) tensor_slots[n++] = *s;
    tensor_type = (PyTypeObject *)PyType_FromSpec(&tensor_spec);
    if (!tensor_type || PyModule_AddObjectRef(module, "Tensor", (PyObject *)tensor_type) < 0)
        return false;
    tensor_allocate = (allocfunc)PyType_GetSlot(tensor_type, Py_tp_alloc);
    PyObject *priority = PyLong_FromLong(1000); // NumPy's arrays leave operators to Tensors
    const bool ok = priority && PyObject_SetAttrString((PyObject *)tensor_type,
                                                       "__array_priority__", priority) == 0;
    Py_XDECREF(priority);
    PyMethodDef *const methods[] = {tensor_methods,   read_methods,     view_methods,
                                    indexing_methods, autograd_methods, dlpack_methods,
                                    device_methods};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (!tensor_add_methods(methods[i])) return false;
    return ok && tensor_add_getters(autograd_getters) && autograd_init(module);
}

// Sets the classes that are written in Python.
PyObject *tensor_set_classes(PyObject *size, PyObject *count) {
    tensor_size_type = Py_NewRef(size);
    tensor_count_type = Py_NewRef(count);
    Py_RETURN_NONE;
}
