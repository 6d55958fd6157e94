// PyTorch's gradients: leaves that require them, histories, backward, and what is recorded without one.
#include "core.h"
#include "tensor.h"
#include "whole.h"

#include <stdlib.h>

static PyObject *
    leaves; // {handle: address}: Tensors that are variables, and those of ct_track, while they live

// ------------------------------------------------------------------------------------------ leaves

static bool note_leaf(tensor_object *self) {
    PyObject *key = PyLong_FromUnsignedLongLong(self->handle.bits);
    PyObject *address = PyLong_FromVoidPtr(self);
    const bool ok = key && address && PyDict_SetItem(leaves, key, address) == 0;
    Py_XDECREF(key);
    Py_XDECREF(address);
    return ok;
}

void autograd_forget(tensor_object *self) {
    PyObject *type, *value, *trace; // a collection may come in the middle of an exception
    PyErr_Fetch(&type, &value, &trace);
    PyObject *key = PyLong_FromUnsignedLongLong(self->handle.bits);
    if (key) PyDict_DelItem(leaves, key);
    Py_XDECREF(key);
    PyErr_Clear();
    PyErr_Restore(type, value, trace);
}

static tensor_object *leaf_of(ct_tensor t) { // borrowed; NULL: nobody has it any more
    PyObject *key = PyLong_FromUnsignedLongLong(t.bits);
    PyObject *address = key ? PyDict_GetItemWithError(leaves, key) : NULL;
    Py_XDECREF(key);
    return address ? PyLong_AsVoidPtr(address) : NULL;
}

// The Tensor becomes a variable: what plans update in place, and at which histories begin.
bool make_variable(PyObject *o, bool tracked, ct_loc here) {
    tensor_object *self = (tensor_object *)o;
    if (self->set) {
        if (ct_is_tracked(self->handle) == tracked) return true;
        // What was read of it before has the history that it had; an assignment that is pending has one read.
        const bool ahead = !thread_here()->tracing && ct_is_read_ahead(self->handle);
        if (ahead && !run_eval(NULL, 0, here)) return false;
        ct_track_variable(self->handle, tracked);
        return true;
    }
    ct_tensor value = tensor_value(o, here);
    if (!value.bits) return false;
    int64_t dim[CT_MAX_RANK];
    const int rank = ct_rank(value);
    for (int i = 0; i < rank; i++) dim[i] = ct_dim(value, i);
    ct_params *set = ct_params_new();
    ct_tensor variable = ct_param_at(set, "tensor", ct_dtype_of(value), (ct_ints){rank, dim}, here);
    ct_track_variable(variable, tracked);
    ct_assign_at(variable, value, here);
    if (ct_failed()) {
        ct_params_free(set);
        return raise_failure();
    }
    tensor_unname(self);
    self->handle = variable;
    self->owner = thread_here();
    self->set = set;
    return note_leaf(self);
}

PyObject *variable_of(ct_tensor variable, ct_params *set, PyObject *holder, bool tracked,
                      ct_loc here) {
    PyObject *o = tensor_one_of(variable, here);
    if (!o) return NULL;
    tensor_object *self = (tensor_object *)o;
    self->set = set;
    self->holder = Py_NewRef(holder);
    ct_track_variable(variable, tracked);
    if (!note_leaf(self)) Py_CLEAR(o);
    return o;
}

static bool has_slope(ct_dtype dtype) {
    const char kind = dtype_kind(dtype);
    return kind == 'f' || kind == 'c';
}

static PyObject *requires_grad(PyObject *o, PyObject *args, PyObject *options) {
    static char *names[] = {"requires_grad", NULL};
    tensor_object *self = (tensor_object *)o;
    int wanted = 1;
    const ct_loc here = enter();
    if (!PyArg_ParseTupleAndKeywords(args, options, "|p:requires_grad_", names, &wanted))
        return NULL;
    const ct_tensor t = tensor_look(o);
    if (!t.bits) return NULL;
    const bool has_history = !self->set && ct_is_tracked(t);
    if (has_history && !wanted) {
        PyErr_SetString(PyExc_RuntimeError,
                        "requires_grad_: only a leaf can be told not to require gradients; "
                        "detach() gives a tensor without a history");
        return NULL;
    }
    if (wanted && !has_slope(ct_dtype_of(t))) {
        PyErr_Format(
            PyExc_RuntimeError,
            "requires_grad_: only floats and complex numbers have gradients, the tensor is %s",
            dtype_text(ct_dtype_of(t)));
        return NULL;
    }
    if (!has_history && (wanted || self->set) && !make_variable(o, wanted, here)) return NULL;
    Py_INCREF(o);
    return o;
}

static PyObject *get_requires_grad(PyObject *o, void *unused) {
    (void)unused;
    const ct_tensor t = tensor_look(o);
    return t.bits ? PyBool_FromLong(ct_is_tracked(t)) : NULL;
}
static int set_requires_grad(PyObject *o, PyObject *value, void *unused) {
    (void)unused;
    const int wanted = value ? PyObject_IsTrue(value) : 0;
    if (wanted < 0) return -1;
    PyObject *args = Py_BuildValue("(i)", wanted),
             *done = args ? requires_grad(o, args, NULL) : NULL;
    Py_XDECREF(args);
    Py_XDECREF(done);
    return done ? 0 : -1;
}
static PyObject *get_version(PyObject *o, void *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(((tensor_object *)o)->version);
}
static PyObject *get_is_leaf(PyObject *o, void *unused) {
    (void)unused;
    const tensor_object *self = (tensor_object *)o;
    const ct_tensor t = tensor_look(o);
    return t.bits ? PyBool_FromLong(self->set || !ct_is_tracked(t)) : NULL;
}

static PyObject *get_base(PyObject *o, void *unused) {
    (void)unused;
    const tensor_object *base = ((tensor_object *)o)->parent;
    while (base && base->parent) base = base->parent;
    if (!base) Py_RETURN_NONE;
    Py_INCREF((PyObject *)base);
    return (PyObject *)base;
}

// The name of the op that computed a value with a history; None: it has none, or begins there.
static PyObject *get_op(PyObject *o, void *unused) {
    (void)unused;
    const ct_tensor t = tensor_look(o);
    const char *name = t.bits && ct_is_tracked(t) ? ct_op_name(t) : NULL;
    if (!t.bits) return NULL;
    if (!name || ((tensor_object *)o)->set) Py_RETURN_NONE;
    return PyUnicode_FromString(name);
}

static PyObject *get_grad(PyObject *o, void *unused) {
    (void)unused;
    PyObject *grad = ((tensor_object *)o)->grad;
    if (!grad) grad = Py_None;
    Py_INCREF(grad);
    return grad;
}
static int set_grad(PyObject *o, PyObject *value, void *unused) {
    (void)unused;
    tensor_object *self = (tensor_object *)o;
    if (value == Py_None) value = NULL;
    if (value && !tensor_check(value)) {
        PyErr_Format(PyExc_TypeError, "grad must be a Tensor or None, not %R", value);
        return -1;
    }
    if (value) {
        const ct_tensor t = tensor_look(value), of = tensor_look(o);
        if (!t.bits || !of.bits) return -1;
        bool same = ct_rank(t) == ct_rank(of);
        for (int i = 0; same && i < ct_rank(t); i++) same = ct_dim(t, i) == ct_dim(of, i);
        if (!same) {
            PyObject *is = tensor_shape(t), *wants = tensor_shape(of);
            if (is && wants)
                PyErr_Format(PyExc_RuntimeError, "grad: the gradient is %R, the tensor is %R", is,
                             wants);
            Py_XDECREF(is);
            Py_XDECREF(wants);
            return -1;
        }
        Py_INCREF(value);
    }
    PyObject *before = self->grad;
    self->grad = value;
    Py_XDECREF(before);
    return 0;
}

// _set_grads(tensors, grads): .grad of all; grads None: there is none any more.
static PyObject *set_grads(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *of, *grads;
    if (!PyArg_ParseTuple(args, "O!O:_set_grads", &PyList_Type, &of, &grads)) return NULL;
    for (Py_ssize_t i = 0; i < PyList_Size(of); i++)
        if (set_grad(PyList_GetItem(of, i), grads == Py_None ? grads : PyList_GetItem(grads, i),
                     NULL) < 0)
            return NULL;
    Py_RETURN_NONE;
}

// ---------------------------------------------------------------------------------------- backward

typedef struct pass {
    ct_tensor loss;
    ct_tensor *wrt, *grads;
    size_t n, room;
    bool retain, create;
    ct_loc here;
} pass;

static bool make_room(pass *p, size_t n) {
    if (n <= p->room) return true;
    free(p->wrt);
    p->room = 2 * n;
    p->wrt = malloc(2 * p->room * sizeof *p->wrt);
    p->grads = p->wrt ? p->wrt + p->room : NULL;
    if (!p->wrt) PyErr_NoMemory();
    return p->wrt;
}

static bool find_leaves(pass *p) {
    if (!make_room(p, 64)) return false;
    while ((p->n = ct_tracked_leaves_at(p->loss, p->wrt, p->room, p->here)) > p->room)
        if (!make_room(p, p->n)) return false;
    return p->n || raise_failure();
}

// The number whose gradients are wanted: the value, or the sum of its products with `gradient`.
static bool loss_of(PyObject *value, PyObject *gradient, ct_tensor *loss, ct_loc here) {
    ct_tensor t = tensor_value(value, here);
    if (!t.bits) return false;
    *loss = t;
    if (gradient && gradient != Py_None) {
        ct_tensor g;
        if (!operand(gradient, &g, here)) return false;
        g = ct_cast_at(g, ct_dtype_of(t), here);
        // PyTorch's rule: the real part of the products with the conjugates.
        *loss = ct_paired_at(t, dtype_kind(ct_dtype_of(t)) == 'c' ? ct_conj_at(g, here) : g, here);
    } else if (ct_size(t) != 1) {
        PyObject *shape = tensor_shape(t);
        if (shape)
            PyErr_Format(PyExc_RuntimeError,
                         "backward: the loss must be one number, it is %R\n  hint: mean() or sum() "
                         "makes it one; or give backward(gradient) of its shape",
                         shape);
        Py_XDECREF(shape);
        return false;
    }
    if (ct_rank(*loss)) *loss = ct_reshape_at(*loss, CT_SCALAR, here);
    return ct_ok(*loss) || raise_failure();
}

// One that is there is added to, in its place, as PyTorch does. Where another thread made it, to have its value
// may take a while, after which the leaf may have another one.
static bool accumulate(tensor_object *leaf, PyObject *grad, bool create, ct_loc here) {
    for (;;) {
        PyObject *before = leaf->grad;
        if (!before) {
            Py_INCREF(grad);
            leaf->grad = grad;
            return true;
        }
        Py_INCREF(before);
        const ct_tensor value = tensor_value(before, here);
        const bool stands = leaf->grad == before;
        bool ok = value.bits;
        if (ok && stands) {
            const ct_tensor sum = ct_add_at(value, tensor_value(grad, here), here);
            PyObject *next = create ? tensor_one_of(sum, here) : NULL;
            ok = create ? next != NULL : tensor_write(before, sum, here);
            if (next) {
                leaf->grad = next;
                Py_DECREF(before);
            }
        }
        Py_DECREF(before);
        if (!ok || stands) return ok;
    }
}

// Functions that see a leaf's gradient before it is added, and may give another.
static PyObject *hooked(PyObject *leaf, PyObject *grad) {
    PyObject *dict = ((tensor_object *)leaf)->dict;
    PyObject *hooks = dict ? PyDict_GetItemString(dict, "_backward_hooks") : NULL;
    if (!hooks || !PyDict_Check(hooks)) return grad;
    PyObject *list = PyDict_Values(hooks);
    for (Py_ssize_t i = 0; list && grad && i < PyList_Size(list); i++) {
        PyObject *next = PyObject_CallFunctionObjArgs(PyList_GetItem(list, i), grad, NULL);
        if (next == Py_None) {
            Py_DECREF(next);
            continue;
        }
        Py_DECREF(grad);
        grad = next;
    }
    Py_XDECREF(list);
    return grad;
}

// All gradients are added, or, where a hook raises, or a signal's handler, none. Nothing of Python is called while they are.
static bool accumulate_all(const pass *p, PyObject *leaves_of, PyObject *grads) {
    bool ok = true;
    if (thread_others) whole_begin(); // what another thread has pending may be waited for
    for (Py_ssize_t i = 0; ok && i < PyList_Size(grads); i++)
        ok = accumulate((tensor_object *)PyList_GetItem(leaves_of, i), PyList_GetItem(grads, i),
                        p->create, p->here);
    if (thread_others) whole_end();
    return ok;
}

// All have names before the first hook is called, which may read: a read gives back what has none.
static bool give(pass *p) {
    PyObject *grads = PyList_New(0);
    bool ok = grads;
    for (size_t i = 0; ok && i < p->n; i++) {
        // The library's slope is along x less i times that along y; PyTorch's is the conjugate.
        const bool complex = dtype_kind(ct_dtype_of(p->grads[i])) == 'c';
        PyObject *grad =
            tensor_one_of(complex ? ct_conj_at(p->grads[i], p->here) : p->grads[i], p->here);
        ok = grad && PyList_Append(grads, grad) == 0;
        Py_XDECREF(grad);
    }
    PyObject *to = PyList_New(0), *found = PyList_New(0);
    ok = ok && to && found;
    for (size_t i = 0; ok && i < p->n; i++) {
        tensor_object *leaf = leaf_of(p->wrt[i]);
        if (!leaf) continue;
        ok = PyList_Append(to, (PyObject *)leaf) == 0;
        PyObject *grad = ok ? Py_NewRef(PyList_GetItem(grads, (Py_ssize_t)i)) : NULL;
        grad = grad ? hooked((PyObject *)leaf, grad) : NULL;
        ok = grad && PyList_Append(found, grad) == 0;
        Py_XDECREF(grad);
    }
    ok = ok && accumulate_all(p, to, found);
    Py_XDECREF(to);
    Py_XDECREF(found);
    Py_XDECREF(grads);
    return ok;
}

// Leaves that nobody names any more get no gradient.
static void forget_unnamed(pass *p) {
    size_t kept = 0;
    for (size_t i = 0; i < p->n; i++)
        if (leaf_of(p->wrt[i])) p->wrt[kept++] = p->wrt[i];
    p->n = kept;
}

static bool run_backward(pass *p) {
    thread *self = thread_here();
    const bool traced = self->tracing; // there nothing runs, and the history is the function's
    if (self->backward_waits && !traced && !run_eval(NULL, 0, p->here)) return false;
    p->retain = p->retain || traced;
    ct_backward_at(p->loss, p->wrt, p->n, p->grads, p->retain, p->create, p->here);
    self->backward_waits = self->backward_waits || !traced;
    return !ct_failed() || raise_failure();
}

// _begin_backward(): a new pass of gradients; are histories kept whatever the caller says?
static PyObject *begin_backward(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    const ct_loc here = enter();
    thread *self = thread_here();
    const bool traced = self->tracing;
    if (self->backward_waits && !traced && !run_eval(NULL, 0, here)) return NULL;
    self->backward_waits = self->backward_waits || !traced;
    return PyBool_FromLong(traced);
}

// _give(leaves, grads, create): adds to .grad of the Tensors that are these leaves.
static PyObject *give_all(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *to, *grads;
    int create;
    pass p = {.here = enter()};
    if (!PyArg_ParseTuple(args, "O!O!p:_give", &PyTuple_Type, &to, &PyTuple_Type, &grads, &create))
        return NULL;
    p.create = create;
    p.n = (size_t)PyTuple_Size(to);
    bool ok = make_room(&p, p.n + 1);
    for (size_t i = 0; ok && i < p.n; i++) {
        p.wrt[i].bits = PyLong_AsUnsignedLongLong(PyTuple_GetItem(to, (Py_ssize_t)i));
        const ct_tensor grad = tensor_handle(PyTuple_GetItem(grads, (Py_ssize_t)i));
        p.grads[i] = ct_cast_at(grad, ct_dtype_of(grad), p.here); // a handle has one name
    }
    ok = ok && give(&p);
    free(p.wrt);
    if (!ok) return NULL;
    Py_RETURN_NONE;
}

// _on_marks(backward, grad, written): what is called instead of the two below where a history may have marks, and where
// a tensor that has hooks is written in its place.
static PyObject *sweep_backward, *sweep_grad, *sweep_written;
static PyObject *on_marks(PyObject *module, PyObject *args) {
    (void)module;
    if (!PyArg_ParseTuple(args, "OOO:_on_marks", &sweep_backward, &sweep_grad, &sweep_written))
        return NULL;
    Py_INCREF(sweep_backward);
    Py_INCREF(sweep_grad);
    Py_INCREF(sweep_written);
    Py_RETURN_NONE;
}

bool autograd_has_hooks(const tensor_object *self) { // of a value that is computed
    return self->dict && !self->set && PyDict_GetItemString(self->dict, "_hooks");
}
bool autograd_written(tensor_object *self) {
    if (!autograd_has_hooks(self)) return true;
    PyObject *done = PyObject_CallFunctionObjArgs(sweep_written, (PyObject *)self, NULL);
    Py_XDECREF(done);
    return done;
}

static PyObject *backward(PyObject *self, PyObject *args, PyObject *options) {
    static char *names[] = {"gradient", "retain_graph", "create_graph", "inputs", NULL};
    PyObject *gradient = NULL, *retain = Py_None, *inputs = Py_None;
    int create = 0;
    pass p = {.here = enter()};
    if (!PyArg_ParseTupleAndKeywords(args, options, "|OOpO:backward", names, &gradient, &retain,
                                     &create, &inputs))
        return NULL;
    const int keeps = retain == Py_None ? create : PyObject_IsTrue(retain);
    thread_here()->reads++;
    if (keeps < 0 || !loss_of(self, gradient, &p.loss, p.here)) return NULL;
    p.retain = keeps;
    p.create = create;
    // What is computed for the loss alone lives as long as this call.
    PyObject *loss = tensor_new(ct_reshape_at(p.loss, CT_SCALAR, p.here), p.here);
    if (loss) p.loss = tensor_handle(loss);
    if (loss && ct_marks()) {
        PyObject *done =
            PyObject_CallFunction(sweep_backward, "OOOO", loss, keeps ? Py_True : Py_False,
                                  create ? Py_True : Py_False, inputs);
        Py_DECREF(loss);
        return done;
    }
    bool ok = loss && find_leaves(&p);
    if (ok) forget_unnamed(&p);
    if (ok && inputs != Py_None) {
        size_t kept = 0;
        PyObject *list = PySequence_List(inputs);
        ok = list;
        for (size_t i = 0; ok && i < p.n; i++)
            for (Py_ssize_t k = 0; k < PyList_Size(list); k++) {
                PyObject *input = PyList_GetItem(list, k);
                if (!tensor_check(input) || !tensor_is_own(input) ||
                    tensor_handle(input).bits != p.wrt[i].bits)
                    continue;
                p.wrt[kept++] = p.wrt[i];
                break;
            }
        Py_XDECREF(list);
        p.n = kept;
    }
    ok = ok && (!p.n || (run_backward(&p) && give(&p)));
    free(p.wrt);
    Py_XDECREF(loss);
    if (!ok) return NULL;
    Py_RETURN_NONE;
}

// Does a history behind the loss begin anywhere else than at what is asked about?
static bool begins_elsewhere(const pass *p) {
    pass all = {.loss = p->loss, .here = p->here};
    bool other = !find_leaves(&all);
    for (size_t i = 0; i < all.n && !other; i++) {
        size_t k = 0;
        while (k < p->n && p->wrt[k].bits != all.wrt[i].bits) k++;
        other = k == p->n;
    }
    free(all.wrt);
    return other;
}

// _grad(output, inputs, gradient, retain, create): a tuple, None for inputs that it does not depend on.
// create None: where the history begins elsewhere, too.
static PyObject *grad_of(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *output, *inputs, *gradient, *create;
    int retain;
    pass p = {.here = enter()};
    if (!PyArg_ParseTuple(args, "OO!OpO:_grad", &output, &PyTuple_Type, &inputs, &gradient, &retain,
                          &create))
        return NULL;
    const size_t n = (size_t)PyTuple_Size(inputs);
    if (!tensor_check(output) || !loss_of(output, gradient, &p.loss, p.here) ||
        !make_room(&p, n ? n : 1)) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "grad: the output must be a Tensor, not %R", output);
        return NULL;
    }
    p.retain = retain;
    p.create = create == Py_True;
    PyObject *loss = tensor_new(ct_reshape_at(p.loss, CT_SCALAR, p.here), p.here);
    if (loss && ct_marks()) {
        PyObject *found = PyObject_CallFunction(sweep_grad, "OOOO", loss, inputs,
                                                retain ? Py_True : Py_False, create);
        free(p.wrt);
        Py_DECREF(loss);
        return found;
    }
    bool *reached = calloc(n + 1, sizeof *reached);
    PyObject *found = PyTuple_New((Py_ssize_t)n);
    bool ok = loss && reached && found;
    if (ok) p.loss = tensor_handle(loss);
    for (size_t i = 0; ok && i < n; i++) {
        PyObject *input = PyTuple_GetItem(inputs, (Py_ssize_t)i);
        ok = tensor_check(input);
        if (ok) // what another thread recorded is behind nothing here
            p.grads[i] = tensor_is_own(input) ? ((tensor_object *)input)->handle : CT_NONE;
        else
            PyErr_Format(PyExc_TypeError, "grad: the inputs must be Tensors, not %R", input);
    }
    if (ok) ct_reached_at(p.loss, p.grads, n, reached, p.here);
    for (size_t i = 0; ok && i < n; i++)
        if (reached[i]) p.wrt[p.n++] = p.grads[i];
    if (ok && p.n && create == Py_None) p.create = begins_elsewhere(&p);
    ok = ok && !PyErr_Occurred() && (!p.n || run_backward(&p));
    for (size_t i = 0, k = 0; ok && i < n; i++) {
        PyObject *grad = reached[i] ? tensor_one_of(p.grads[k++], p.here) : Py_None;
        if (grad == Py_None) Py_INCREF(grad);
        ok = grad && PyTuple_SetItem(found, (Py_ssize_t)i, grad) == 0;
    }
    free(p.wrt);
    free(reached);
    Py_XDECREF(loss);
    if (ok) return found;
    Py_XDECREF(found);
    return PyErr_Occurred() ? NULL : PyErr_NoMemory();
}

// ------------------------------------------------------------------------------------ without history

static PyObject *detach(PyObject *self, PyObject *unused) {
    (void)unused;
    return view_detached(self, tensor_type, enter());
}

static PyObject *detach_in_place(PyObject *o, PyObject *unused) {
    (void)unused;
    tensor_object *self = (tensor_object *)o;
    const ct_loc here = enter();
    const ct_tensor t = tensor_handle(o);
    if (!t.bits) return NULL;
    if (self->parent && ct_is_tracked(t)) {
        PyErr_SetString(PyExc_RuntimeError,
                        "detach_: a view's history is that of what it is a view of\n"
                        "  hint: detach() gives a tensor without it");
        return NULL;
    }
    if (self->set ? !make_variable(o, false, here)
                  : ct_is_tracked(t) && !tensor_rename(self, ct_stop_gradient_at(t, here), here))
        return NULL;
    Py_INCREF(o);
    return o;
}

// _leaves(value): the bits of where its history begins.
static PyObject *leaves_of(PyObject *module, PyObject *o) {
    (void)module;
    if (!tensor_check(o)) return PyErr_Format(PyExc_TypeError, "a Tensor has leaves, not %R", o);
    pass p = {.here = enter()};
    p.loss = tensor_handle(o);
    PyObject *found = find_leaves(&p) ? PyTuple_New((Py_ssize_t)p.n) : NULL;
    for (size_t i = 0; found && i < p.n; i++) {
        PyObject *number = PyLong_FromUnsignedLongLong(p.wrt[i].bits);
        if (!number || PyTuple_SetItem(found, (Py_ssize_t)i, number) < 0) Py_CLEAR(found);
    }
    free(p.wrt);
    return found;
}

static PyObject *set_grad_enabled(PyObject *module, PyObject *wanted) {
    (void)module;
    const int on = PyObject_IsTrue(wanted);
    if (on < 0) return NULL;
    thread *self = thread_here();
    const bool before = !self->no_grad;
    self->no_grad = !on;
    return PyBool_FromLong(before);
}
static PyObject *is_grad_enabled(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return PyBool_FromLong(grad_enabled());
}

// _autocast(dtype): from here on, float32 for none; what there was before. _autocast_dtype(): what there is.
static PyObject *autocast(PyObject *module, PyObject *o) {
    (void)module;
    const ct_loc here = enter();
    ct_dtype dtype;
    if (!dtype_parse(o, &dtype)) return NULL;
    const ct_dtype before = ct_autocast_set_at(dtype, here);
    return ct_failed() ? raise_failure() : dtype_object(before);
}
static PyObject *autocast_dtype(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    enter();
    return dtype_object(ct_autocast_dtype());
}

// _track(x): x as a value of its own at which a history begins.
static PyObject *track(PyObject *module, PyObject *o) {
    (void)module;
    const ct_loc here = enter();
    if (!tensor_check(o)) {
        PyErr_Format(PyExc_TypeError, "what is differentiated must be a Tensor, not %R", o);
        return NULL;
    }
    return tensor_new(ct_track_at(tensor_value(o, here), here), here);
}

PyMethodDef autograd_methods[] = {
    {"backward", (PyCFunction)(void (*)(void))backward, METH_VARARGS | METH_KEYWORDS,
     "backward($self, gradient=None, retain_graph=None, create_graph=False, inputs=None)\n--\n\n"
     "Adds to .grad of every leaf behind this number that requires it the number's slope along "
     "it."},
    {"requires_grad_", (PyCFunction)(void (*)(void))requires_grad, METH_VARARGS | METH_KEYWORDS,
     "requires_grad_($self, requires_grad=True)\n--\n\nMakes it a leaf whose gradients backward() "
     "gives, or none."},
    {"detach", detach, METH_NOARGS,
     "detach($self)\n--\n\nThe same value without a history, a view: writes are seen in both."},
    {"detach_", detach_in_place, METH_NOARGS,
     "detach_($self)\n--\n\nTakes its history away; a leaf requires no gradients any more."},
    {0},
};
PyGetSetDef autograd_getters[] = {
    {"requires_grad", get_requires_grad, set_requires_grad,
     "Has it a history, or does one begin at it?", NULL},
    {"is_leaf", get_is_leaf, NULL, "Is it no result of what has a history?", NULL},
    {"_base", get_base, NULL, "The tensor of which it is a view; None: it is none.", NULL},
    {"_op", get_op, NULL, "The op whose history it has; None: none.", NULL},
    {"_version", get_version, NULL, "How often it was written in its place.", NULL},
    {"grad", get_grad, set_grad, "What backward() gave; None before.", NULL},
    {0},
};
static PyMethodDef functions[] = {
    {"_grad", grad_of, METH_VARARGS, NULL},
    {"_track", track, METH_O, NULL},
    {"_leaves", leaves_of, METH_O, NULL},
    {"_begin_backward", begin_backward, METH_NOARGS, NULL},
    {"_give", give_all, METH_VARARGS, NULL},
    {"_set_grads", set_grads, METH_VARARGS, NULL},
    {"_on_marks", on_marks, METH_VARARGS, NULL},
    {"_autocast", autocast, METH_O, NULL},
    {"_autocast_dtype", autocast_dtype, METH_NOARGS, NULL},
    {"_set_grad_enabled", set_grad_enabled, METH_O, NULL},
    {"is_grad_enabled", is_grad_enabled, METH_NOARGS,
     "is_grad_enabled()\n--\n\nAre histories kept in this thread?"},
    {0},
};

bool autograd_start(PyObject *module) {
    leaves = PyDict_New();
    return leaves && PyModule_AddFunctions(module, functions) == 0;
}
