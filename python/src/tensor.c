// cotan.Tensor: the object that names a tensor of the library.
#include "core.h"

#include "tensor.h"
#include "whole.h"

#include <stdio.h>
#include <stdlib.h>

PyTypeObject *tensor_type;
static allocfunc allocate;
static PyObject *size_type, *count_type; // cotan.Size; an int that can be called

bool tensor_check(PyObject *o) {
    return Py_TYPE(o) == tensor_type || PyType_IsSubtype(Py_TYPE(o), tensor_type);
}

// ------------------------------------------------------------------------- tensors of other threads

static bool is_foreign(const tensor_object *self) {
    return thread_others && self->owner != thread_here();
}
bool tensor_is_own(PyObject *o) {
    const tensor_object *self = (tensor_object *)o;
    return self->set || !is_foreign(self);
}

// A variable is every thread's; an assignment that another one has recorded runs first.
static bool settle(tensor_object *self) {
    while (is_foreign(self) && ct_assigning(self->handle) == self->owner->ctx) {
        thread *owner = self->owner;
        if (owner->busy || owner->tracing) {
            if (!thread_wait(owner, true)) return false;
        } else if (!run_there(owner, NULL, 0, CT_NOWHERE)) {
            return false;
        }
    }
    return true;
}

// What else another thread made is evaluated there, once.
static bool share(tensor_object *self) {
    while (is_foreign(self) && !self->set && !self->shared.bits) {
        thread *owner = self->owner;
        if (self->traced && owner->tracing) {
            raise_text(CT_E_TRACE,
                       "read: the tensor is a traced function's, in another thread\n"
                       "  hint: return it as a result of the function, and read it outside");
            return false;
        }
        if (owner->busy || (owner->tracing && !ct_is_evaluated(self->handle))) {
            if (!thread_wait(owner, true)) return false;
            continue;
        }
        if (!ct_is_evaluated(self->handle)) {
            if (!run_there(owner, &self->handle, 1, CT_NOWHERE)) return false;
            continue; // others may have written it meanwhile
        }
        self->shared = thread_share(self->handle, CT_NOWHERE);
        if (!self->shared.bits) return false;
    }
    return true;
}

static ct_tensor of_another(tensor_object *self) {
    Py_INCREF((PyObject *)self); // while others go on
    ct_tensor t = CT_NONE;
    if (self->set ? settle(self) : share(self))
        t = is_foreign(self) && !self->set ? self->shared : self->handle;
    Py_DECREF((PyObject *)self);
    return t;
}

static __attribute__((noinline)) ct_tensor newest(tensor_object *self) {
    if (functions_asked && functions_tracing() && !self->traced) functions_meet((PyObject *)self);
    if (self->parent && !view_refresh(self, CT_NOWHERE)) return CT_NONE;
    return is_foreign(self) ? of_another(self) : self->handle;
}
static inline ct_tensor handle_of(PyObject *o) { // most are no views, and of the only thread
    tensor_object *self = (tensor_object *)o;
    return self->parent || thread_others || functions_asked ? newest(self) : self->handle;
}
ct_tensor tensor_handle(PyObject *o) { return handle_of(o); }

static ct_tensor no_history(ct_loc here) {
    char text[1024];
    snprintf(
        text, sizeof text,
        "%s:%u: read: the tensor has a history, which another thread recorded and keeps\n"
        "  hint: detach() gives its value; backward() belongs into the thread that computed it",
        here.file ? here.file : "?", here.line);
    raise_text(CT_E_CONTEXT, text);
    return CT_NONE;
}

ct_tensor tensor_value(PyObject *o, ct_loc here) {
    const ct_tensor t = handle_of(o);
    if (!grad_enabled()) {
        // Of a function that is traced it is not known yet what will have a history.
        const char kind = functions_tracing() ? dtype_kind(ct_dtype_of(t)) : 0;
        const bool may = kind == 'f' || kind == 'c' || ct_is_tracked(t);
        return may ? ct_stop_gradient_at(t, here) : t;
    }
    const bool tracked = (thread_others || ((tensor_object *)o)->set) && ct_is_tracked(t);
    if (((tensor_object *)o)->set && !tracked)
        return ct_stop_gradient_at(t, here); // a constant for now
    return !thread_others || tensor_is_own(o) || !tracked ? t : no_history(here);
}

ct_tensor tensor_look(PyObject *o) {
    tensor_object *self = (tensor_object *)o;
    if (self->parent && !view_refresh(self, CT_NOWHERE)) return CT_NONE;
    while (is_foreign(self) && !self->set && !self->shared.bits && self->owner->busy)
        if (!thread_wait(self->owner, false)) return CT_NONE;
    return self->shared.bits && is_foreign(self) ? self->shared : self->handle;
}

enum { MOST_PENDING = 20000 }; // nodes of a plan

static PyObject *wrap(PyTypeObject *type, ct_tensor t, ct_loc here) {
    if (!ct_ok(t)) return raise_failure();
    t = ct_pin_at(t, here);
    if (!ct_ok(t)) return raise_failure();
    allocfunc alloc = type == tensor_type ? allocate : (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    tensor_object *self = (tensor_object *)alloc(type, 0);
    if (!self) {
        ct_unpin(t);
        return NULL;
    }
    self->handle = t;
    self->owner = thread_here();
    self->traced = self->owner->tracing;
    return (PyObject *)self;
}
PyObject *tensor_one_of(ct_tensor t, ct_loc here) { return wrap(tensor_type, t, here); }
PyObject *tensor_of_type(PyTypeObject *type, ct_tensor t, ct_loc here) {
    return wrap(type, t, here);
}
PyObject *tensor_new(ct_tensor t, ct_loc here) {
    PyObject *o = wrap(tensor_type, t, here);
    if (o && ct_rolling_pending() > MOST_PENDING && !((tensor_object *)o)->traced &&
        !whole_inside() && !run_eval(NULL, 0, here))
        Py_CLEAR(o);
    return o;
}

void tensor_unname(tensor_object *self) {
    if (self->set) {
        autograd_forget(self);
        if (!self->holder) thread_free(self->owner, self->set);
        Py_CLEAR(self->holder);
        self->set = NULL;
    } else if (self->handle.bits) {
        if (self->owner == thread_mine)
            ct_unpin(self->handle);
        else
            thread_unpin(self->owner, self->handle);
    }
    if (self->shared.bits) thread_unshare(self->shared);
    self->handle = self->shared = CT_NONE;
}

bool tensor_rename(tensor_object *self, ct_tensor t, ct_loc here) {
    if (!ct_ok(t)) return raise_failure();
    t = ct_pin_at(t, here);
    if (!ct_ok(t)) return raise_failure();
    tensor_unname(self);
    self->handle = t;
    self->owner = thread_here();
    self->traced = self->owner->tracing;
    return true;
}

static void dealloc(PyObject *o) {
    tensor_object *self = (tensor_object *)o;
    PyTypeObject *type = Py_TYPE(o);
    PyObject_GC_UnTrack(o);
    if (self->weak) PyObject_ClearWeakRefs(o);
    Py_CLEAR(self->dict);
    Py_CLEAR(self->grad);
    view_forget(self);
    tensor_unname(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(o);
    Py_DECREF(type);
    dlpack_flush();
}
static int traverse(PyObject *o, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(o));
    const tensor_object *self = (tensor_object *)o;
    Py_VISIT(self->dict);
    Py_VISIT(self->grad);
    Py_VISIT((PyObject *)self->twin);
    if (self->holds) Py_VISIT((PyObject *)self->parent);
    return 0;
}
static int clear(PyObject *o) {
    Py_CLEAR(((tensor_object *)o)->dict);
    Py_CLEAR(((tensor_object *)o)->grad);
    return 0;
}

static bool are_sizes(PyObject *args) {
    const Py_ssize_t n = PyTuple_Size(args);
    Py_ssize_t i = 0;
    while (i < n && PyLong_Check(PyTuple_GetItem(args, i))) i++;
    return n && i == n;
}
static PyObject *zeros(PyTypeObject *type, PyObject *sizes, ct_loc here) {
    int64_t dim[CT_MAX_RANK];
    size_t rank;
    if (!parse_ints(sizes, dim, CT_MAX_RANK, &rank, "the sizes")) return NULL;
    return wrap(type, ct_zeros_at(CT_F32, (ct_ints){(int64_t)rank, dim}, here), here);
}

// Tensor(data) is float32, unless told, and Tensor(2, 3) has these sizes, as in PyTorch.
static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *options) {
    static char *names[] = {"data", "dtype", "requires_grad", NULL};
    PyObject *data, *dtype = Py_None;
    int tracked = 0;
    ct_dtype want;
    ct_tensor t;
    const ct_loc here = enter();
    if (!options && are_sizes(args)) return zeros(type, args, here);
    if (!PyArg_ParseTupleAndKeywords(args, options, "O|Op:Tensor", names, &data, &dtype,
                                     &tracked) ||
        !dtype_parse(dtype, &want) || !make_tensor(data, want, &t, here))
        return NULL;
    if (!want && !tensor_check(data) && ct_ok(t) && dtype_kind(ct_dtype_of(t)) != 'c')
        t = cast_data(t, CT_F32, here);
    if (tensor_check(data) && ct_ok(t) &&
        t.bits == tensor_handle(data).bits) // a handle has one name
        t = ct_cast_at(t, ct_dtype_of(t), here);
    PyObject *o = wrap(type, t, here);
    if (o && tracked && !make_variable(o, true, here)) Py_CLEAR(o);
    return o;
}

// -------------------------------------------------------------------------------------- attributes

static PyObject *dims(ct_tensor t) {
    const int rank = ct_rank(t);
    PyObject *sizes = PyTuple_New(rank);
    for (int i = 0; sizes && i < rank; i++) {
        PyObject *n = PyLong_FromLongLong(ct_dim(t, i));
        if (!n || PyTuple_SetItem(sizes, i, n) < 0) Py_CLEAR(sizes);
    }
    return sizes;
}
PyObject *tensor_shape(ct_tensor t) {
    PyObject *sizes = dims(t);
    if (!sizes || !size_type) return sizes;
    PyObject *shape = PyObject_CallFunctionObjArgs(size_type, sizes, NULL);
    Py_DECREF(sizes);
    return shape;
}

static PyObject *get_shape(PyObject *self, void *unused) {
    (void)unused;
    const ct_tensor t = tensor_look(self);
    return t.bits ? tensor_shape(t) : NULL;
}
static PyObject *get_size(PyObject *self, void *unused) {
    (void)unused;
    const ct_tensor t = tensor_look(self);
    if (!t.bits) return NULL;
    PyObject *count = PyLong_FromLongLong(ct_size(t));
    if (!count || !count_type) return count;
    PyObject *shape = tensor_shape(t);
    PyObject *size = shape ? PyObject_CallFunctionObjArgs(count_type, count, shape, NULL) : NULL;
    Py_XDECREF(shape);
    Py_DECREF(count);
    return size;
}
static PyObject *get_ndim(PyObject *self, void *unused) {
    (void)unused;
    const ct_tensor t = tensor_look(self);
    return t.bits ? PyLong_FromLong(ct_rank(t)) : NULL;
}
static PyObject *get_dtype(PyObject *self, void *unused) {
    (void)unused;
    ct_dtype dtype = ct_dtype_of(tensor_look(self));
    return dtype ? dtype_object(dtype) : raise_failure();
}
static PyObject *get_itemsize(PyObject *self, void *unused) {
    (void)unused;
    const ct_tensor t = tensor_look(self);
    return t.bits ? PyLong_FromSize_t(ct_dtype_size(ct_dtype_of(t))) : NULL;
}
static PyObject *get_nbytes(PyObject *self, void *unused) {
    (void)unused;
    const ct_tensor t = tensor_look(self);
    if (!t.bits) return NULL;
    return PyLong_FromLongLong((ct_size(t) * ct_dtype_bits(ct_dtype_of(t)) + 7) / 8);
}
static PyObject *get_device(PyObject *self, void *unused) {
    (void)self, (void)unused;
    return PyUnicode_FromString("cpu");
}

// The last `n` axes in the opposite order.
static PyObject *reversed_axes(PyObject *self, int n) {
    const ct_loc here = enter();
    const ct_tensor t = tensor_look(self);
    if (!t.bits) return NULL;
    int64_t axes[CT_MAX_RANK];
    const int rank = ct_rank(t);
    if (n > rank) {
        PyErr_Format(PyExc_ValueError, "mT: the tensor has %d axes, it needs 2", rank);
        return NULL;
    }
    for (int i = 0; i < rank; i++) axes[i] = i < rank - n ? i : rank - 1 - (i - (rank - n));
    const int64_t *const lists[4] = {axes};
    move *moves = malloc(sizeof *moves);
    if (!moves || !move_new(moves, MOVE_PERMUTE, lists, (size_t)rank)) {
        free(moves);
        return PyErr_NoMemory();
    }
    return view_new(self, moves, 1, here);
}
static PyObject *get_T(PyObject *self, void *unused) {
    (void)unused;
    const ct_tensor t = tensor_look(self);
    return t.bits ? reversed_axes(self, ct_rank(t)) : NULL;
}
static PyObject *get_mT(PyObject *self, void *unused) {
    (void)unused;
    return reversed_axes(self, 2);
}

static PyObject *numel(PyObject *self, PyObject *unused) {
    (void)unused;
    const ct_tensor t = tensor_look(self);
    return t.bits ? PyLong_FromLongLong(ct_size(t)) : NULL;
}
static PyObject *dim(PyObject *self, PyObject *unused) {
    (void)unused;
    return get_ndim(self, NULL);
}
static PyObject *element_size(PyObject *self, PyObject *unused) {
    (void)unused;
    return get_itemsize(self, NULL);
}

static PyGetSetDef getters[] = {
    {"shape", get_shape, NULL, "The sizes of its axes, as a cotan.Size.", NULL},
    {"size", get_size, NULL,
     "The number of elements; size() is the shape, size(axis) one of its sizes.", NULL},
    {"ndim", get_ndim, NULL, "The number of axes.", NULL},
    {"dtype", get_dtype, NULL, "The element type.", NULL},
    {"itemsize", get_itemsize, NULL, "Bytes of an element.", NULL},
    {"nbytes", get_nbytes, NULL, "Bytes of all elements.", NULL},
    {"device", get_device, NULL, "Where it is: \"cpu\".", NULL},
    {"T", get_T, NULL, "Its axes in the opposite order.", NULL},
    {"mT", get_mT, NULL, "Its last two axes exchanged.", NULL},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {0},
};
static PyMemberDef members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(tensor_object, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(tensor_object, weak), READONLY, NULL},
    {0},
};
static PyMethodDef methods[] = {
    {"numel", numel, METH_NOARGS, "numel($self)\n--\n\nThe number of elements."},
    {"dim", dim, METH_NOARGS, "dim($self)\n--\n\nThe number of axes."},
    {"element_size", element_size, METH_NOARGS, "element_size($self)\n--\n\nBytes of an element."},
    {0},
};

// -------------------------------------------------------------------------------------------- setup

static Py_hash_t hash(PyObject *self) { return (Py_hash_t)((uintptr_t)self >> 4); }

enum { MOST_SLOTS = 96 };
static PyType_Slot slots[MOST_SLOTS] = {
    {Py_tp_doc,
     "Tensor(data, dtype=None)\n--\n\n"
     "An n-dimensional array, which is computed when somebody looks at it. Data without a dtype "
     "become float32; Tensor(2, 3) has these sizes."},
    {Py_tp_new, (void *)make},
    {Py_tp_dealloc, (void *)dealloc},
    {Py_tp_traverse, (void *)traverse},
    {Py_tp_clear, (void *)clear},
    {Py_tp_hash, (void *)hash},
    {Py_tp_getset, getters},
    {Py_tp_members, members},
    {Py_mp_subscript, (void *)index_get},
    {Py_mp_ass_subscript, (void *)index_set},
    {Py_bf_getbuffer, (void *)read_buffer},
    {Py_bf_releasebuffer, (void *)read_release},
};
static PyType_Spec spec = {
    .name = "cotan.Tensor",
    .basicsize = sizeof(tensor_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};

static bool add_methods(PyMethodDef *list) {
    for (PyMethodDef *m = list; m->ml_name; m++) {
        PyObject *method = PyDescr_NewMethod(tensor_type, m);
        if (!method || PyObject_SetAttrString((PyObject *)tensor_type, m->ml_name, method) < 0)
            return false;
        Py_DECREF(method);
    }
    return true;
}

static bool add_getters(PyGetSetDef *list) {
    for (PyGetSetDef *g = list; g->name; g++) {
        PyObject *getter = PyDescr_NewGetSet(tensor_type, g);
        if (!getter || PyObject_SetAttrString((PyObject *)tensor_type, g->name, getter) < 0)
            return false;
        Py_DECREF(getter);
    }
    return true;
}

bool tensor_start(PyObject *module) {
    int n = 0;
    while (slots[n].slot) n++;
    for (const PyType_Slot *s = operator_slots; s->slot; s++) slots[n++] = *s;
    tensor_type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!tensor_type || PyModule_AddObjectRef(module, "Tensor", (PyObject *)tensor_type) < 0)
        return false;
    allocate = (allocfunc)PyType_GetSlot(tensor_type, Py_tp_alloc);
    PyObject *priority = PyLong_FromLong(1000); // NumPy's arrays leave operators to us
    const bool ok = priority && PyObject_SetAttrString((PyObject *)tensor_type,
                                                       "__array_priority__", priority) == 0;
    Py_XDECREF(priority);
    return ok && add_methods(methods) && add_methods(read_methods) && add_methods(view_methods) &&
           add_methods(indexing_methods) && add_methods(autograd_methods) &&
           add_methods(dlpack_methods) && add_methods(place_methods) &&
           add_getters(autograd_getters) && autograd_start(module) &&
           PyModule_AddFunctions(module, view_functions) == 0 &&
           PyModule_AddFunctions(module, operator_functions) == 0 &&
           PyModule_AddFunctions(module, join_functions) == 0 &&
           PyModule_AddFunctions(module, function_methods) == 0 &&
           PyModule_AddFunctions(module, mark_functions) == 0 &&
           PyModule_AddFunctions(module, dlpack_functions) == 0 &&
           PyModule_AddFunctions(module, place_functions) == 0;
}

// The classes that are written in Python.
PyObject *tensor_classes(PyObject *size, PyObject *count) {
    Py_INCREF(size);
    Py_INCREF(count);
    size_type = size;
    count_type = count;
    Py_RETURN_NONE;
}
