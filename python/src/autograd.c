// Implements PyTorch's gradients: leaves that require them, histories, backward, and what is recorded without
// a history.
#include "core.h"
#include "tensor.h"
#include "whole.h"

#include <stdlib.h>

// {handle: address}: the Tensors that are variables, and those of ct_track, while they are alive.
static PyObject *autograd_leaves;

// ------------------------------------------------------------------------------------------ leaves

static bool autograd_add_leaf(tensor_object *self) {
    PyObject *key = PyLong_FromUnsignedLongLong(self->handle.bits);
    PyObject *address = PyLong_FromVoidPtr(self);
    const bool ok = key && address && PyDict_SetItem(autograd_leaves, key, address) == 0;
    release(key, address);
    return ok;
}

void autograd_remove_leaf(tensor_object *self) {
    PyObject *type, *value, *trace; // The garbage collector may run while an exception is set.
    PyErr_Fetch(&type, &value, &trace);
    PyObject *key = PyLong_FromUnsignedLongLong(self->handle.bits);
    if (key) PyDict_DelItem(autograd_leaves, key);
    Py_XDECREF(key);
    PyErr_Clear();
    PyErr_Restore(type, value, trace);
}

// borrowed; NULL if no Tensor has this handle any more
static tensor_object *autograd_find_leaf(ct_tensor t) {
    PyObject *key = PyLong_FromUnsignedLongLong(t.bits);
    PyObject *address = key ? PyDict_GetItemWithError(autograd_leaves, key) : NULL;
    Py_XDECREF(key);
    return address ? PyLong_AsVoidPtr(address) : NULL;
}

// Makes the Tensor a variable: plans update it in place, and histories begin at it.
bool tensor_make_variable(PyObject *o, bool tracked, ct_loc here) {
    tensor_object *self = (tensor_object *)o;
    if (self->params) {
        if (ct_is_tracked(self->handle) == tracked) return true;
        // A value that was read from it before keeps the history that it had; a pending assignment has such a
        // read.
        const bool has_pending_read =
            !thread_get()->trace_depth && ct_is_pending_value_read(self->handle);
        if (has_pending_read && !run_eval(NULL, 0, here)) return false;
        ct_track_variable(self->handle, tracked);
        return true;
    }
    ct_tensor value = tensor_value(o, here);
    if (!value.bits) return false;
    int64_t dim[CT_MAX_RANK];
    ct_params *params = ct_params_new();
    ct_tensor variable =
        ct_param_at(params, "tensor", ct_dtype_of(value), tensor_dims(value, dim), here);
    ct_track_variable(variable, tracked);
    ct_assign_at(variable, value, here);
    if (ct_failed()) {
        ct_params_free(params);
        return raise_error();
    }
    tensor_release_handle(self);
    self->handle = variable;
    self->owner = thread_get();
    self->params = params;
    return autograd_add_leaf(self);
}

PyObject *tensor_from_param(ct_tensor variable, ct_params *params, PyObject *params_owner,
                            bool tracked, ct_loc here) {
    PyObject *o = tensor_new_without_run(variable, here);
    if (!o) return NULL;
    tensor_object *self = (tensor_object *)o;
    self->params = params;
    self->params_owner = Py_NewRef(params_owner);
    ct_track_variable(variable, tracked);
    if (!autograd_add_leaf(self)) Py_CLEAR(o);
    return o;
}

static bool py_dtype_has_gradient(ct_dtype dtype) {
    const char kind = dtype_kind(dtype);
    return kind == 'f' || kind == 'c';
}

static PyObject *autograd_requires_grad_(PyObject *o, PyObject *args, PyObject *options) {
    static char *names[] = {"requires_grad", NULL};
    tensor_object *self = (tensor_object *)o;
    int requested = 1;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTupleAndKeywords(args, options, "|p:requires_grad_", names, &requested))
        return NULL;
    const ct_tensor t = tensor_peek(o);
    if (!t.bits) return NULL;
    const bool has_history = !self->params && ct_is_tracked(t);
    if (has_history && !requested)
        return PyErr_Format(PyExc_RuntimeError,
                            "requires_grad_: requires_grad can be turned off for leaves only; "
                            "detach() gives a tensor without a history");
    if (requested && !py_dtype_has_gradient(ct_dtype_of(t)))
        return PyErr_Format(
            PyExc_RuntimeError,
            "requires_grad_: only floats and complex numbers have gradients, the tensor is %s",
            dtype_python_name(ct_dtype_of(t)));
    if (!has_history && (requested || self->params) && !tensor_make_variable(o, requested, here))
        return NULL;
    return Py_NewRef(o);
}

static PyObject *autograd_get_requires_grad(PyObject *o, void *Py_UNUSED(unused)) {
    const ct_tensor t = tensor_peek(o);
    return t.bits ? PyBool_FromLong(ct_is_tracked(t)) : NULL;
}
static int autograd_set_requires_grad(PyObject *o, PyObject *value, void *Py_UNUSED(unused)) {
    const int requested = value ? PyObject_IsTrue(value) : 0;
    if (requested < 0) return -1;
    PyObject *args = Py_BuildValue("(i)", requested),
             *done = args ? autograd_requires_grad_(o, args, NULL) : NULL;
    release(args, done);
    return done ? 0 : -1;
}
static PyObject *autograd_get_version(PyObject *o, void *Py_UNUSED(unused)) {
    return PyLong_FromUnsignedLongLong(((tensor_object *)o)->version);
}
static PyObject *autograd_get_is_leaf(PyObject *o, void *Py_UNUSED(unused)) {
    const tensor_object *self = (tensor_object *)o;
    const ct_tensor t = tensor_peek(o);
    return t.bits ? PyBool_FromLong(self->params || !ct_is_tracked(t)) : NULL;
}

static PyObject *autograd_get_base(PyObject *o, void *Py_UNUSED(unused)) {
    const tensor_object *base = ((tensor_object *)o)->parent;
    while (base && base->parent) base = base->parent;
    if (!base) Py_RETURN_NONE;
    Py_INCREF((PyObject *)base);
    return (PyObject *)base;
}

// Returns the name of the op that computed a value with a history; None if there is no history, or if it
// begins here.
static PyObject *autograd_get_op(PyObject *o, void *Py_UNUSED(unused)) {
    const ct_tensor t = tensor_peek(o);
    const char *name = t.bits && ct_is_tracked(t) ? ct_op_name(t) : NULL;
    if (!t.bits) return NULL;
    if (!name || ((tensor_object *)o)->params) Py_RETURN_NONE;
    return PyUnicode_FromString(name);
}

static PyObject *autograd_get_grad(PyObject *o, void *Py_UNUSED(unused)) {
    PyObject *grad = ((tensor_object *)o)->grad;
    if (!grad) grad = Py_None;
    return Py_NewRef(grad);
}
static int autograd_set_grad(PyObject *o, PyObject *value, void *Py_UNUSED(unused)) {
    tensor_object *self = (tensor_object *)o;
    if (value == Py_None) value = NULL;
    if (value && !tensor_check(value)) {
        PyErr_Format(PyExc_TypeError, "grad must be a Tensor or None, not %R", value);
        return -1;
    }
    if (value) {
        const ct_tensor t = tensor_peek(value), of = tensor_peek(o);
        if (!t.bits || !of.bits) return -1;
        if (!has_same_shape(t, of)) {
            PyObject *is = tensor_shape(t), *wants = tensor_shape(of);
            if (is && wants)
                PyErr_Format(PyExc_RuntimeError, "grad: the gradient is %R, the tensor is %R", is,
                             wants);
            release(is, wants);
            return -1;
        }
        Py_INCREF(value);
    }
    PyObject *before = self->grad;
    self->grad = value;
    Py_XDECREF(before);
    return 0;
}

// _set_grads(tensors, grads): sets .grad of all tensors; grads None clears it.
static PyObject *autograd_set_grads(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *of, *grads;
    if (!PyArg_ParseTuple(args, "O!O:_set_grads", &PyList_Type, &of, &grads)) return NULL;
    for (Py_ssize_t i = 0; i < PyList_Size(of); i++)
        if (autograd_set_grad(PyList_GetItem(of, i),
                              grads == Py_None ? grads : PyList_GetItem(grads, i), NULL) < 0)
            return NULL;
    Py_RETURN_NONE;
}

// ---------------------------------------------------------------------------------------- backward

typedef struct pass {
    ct_tensor loss;
    ct_tensor *wrt, *grads;
    size_t n, capacity;
    bool retain, create;
    ct_loc here;
} pass;

static bool py_backward_reserve(pass *p, size_t n) {
    if (n <= p->capacity) return true;
    free(p->wrt);
    p->capacity = 2 * n;
    p->wrt = malloc(2 * p->capacity * sizeof *p->wrt);
    p->grads = p->wrt ? p->wrt + p->capacity : NULL;
    if (!p->wrt) PyErr_NoMemory();
    return p->wrt;
}

static bool py_backward_find_leaves(pass *p) {
    if (!py_backward_reserve(p, 64)) return false;
    while ((p->n = ct_tracked_leaves_at(p->loss, p->wrt, p->capacity, p->here)) > p->capacity)
        if (!py_backward_reserve(p, p->n)) return false;
    return p->n || raise_error();
}

// Makes the scalar to differentiate: the value, or the sum of its products with `gradient`.
static bool py_backward_make_loss(PyObject *value, PyObject *gradient, ct_tensor *loss,
                                  ct_loc here) {
    ct_tensor t = tensor_value(value, here);
    if (!t.bits) return false;
    *loss = t;
    if (gradient && gradient != Py_None) {
        ct_tensor g;
        if (!operand_parse(gradient, &g, here)) return false;
        g = ct_cast_at(g, ct_dtype_of(t), here);
        // PyTorch's rule is the real part of the products with the conjugates.
        *loss = ct_surrogate_loss_at(t, dtype_kind(ct_dtype_of(t)) == 'c' ? ct_conj_at(g, here) : g,
                                     here);
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
    return ct_ok(*loss) || raise_error();
}

// Adds to .grad in place where it is set, as PyTorch does. If another thread made .grad, getting its value
// may take a while, after which the leaf may have another .grad; then the addition is tried again.
static bool py_grad_accumulate(tensor_object *leaf, PyObject *grad, bool create, ct_loc here) {
    for (;;) {
        PyObject *before = leaf->grad;
        if (!before) {
            Py_INCREF(grad);
            leaf->grad = grad;
            return true;
        }
        Py_INCREF(before);
        const ct_tensor value = tensor_value(before, here);
        const bool unchanged = leaf->grad == before;
        bool ok = value.bits;
        if (ok && unchanged) {
            const ct_tensor sum = ct_add_at(value, tensor_value(grad, here), here);
            PyObject *next = create ? tensor_new_without_run(sum, here) : NULL;
            ok = create ? next != NULL : tensor_write(before, sum, here);
            if (next) {
                leaf->grad = next;
                Py_DECREF(before);
            }
        }
        Py_DECREF(before);
        if (!ok || unchanged) return ok;
    }
}

// Calls the leaf's hooks, which see its gradient before it is added and may replace it.
static PyObject *py_grad_run_hooks(PyObject *leaf, PyObject *grad) {
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

// Adds all gradients, or none if a hook or a signal handler raises: no Python code is called while they are
// added.
static bool py_grad_accumulate_all(const pass *p, PyObject *leaves, PyObject *grads) {
    bool ok = true;
    if (thread_has_others) critical_begin(); // this may wait for pending work of another thread
    for (Py_ssize_t i = 0; ok && i < PyList_Size(grads); i++)
        ok = py_grad_accumulate((tensor_object *)PyList_GetItem(leaves, i),
                                PyList_GetItem(grads, i), p->create, p->here);
    if (thread_has_others) critical_end();
    return ok;
}

// Wraps all gradients in Tensors before the first hook is called: a hook may read, and a read frees values
// that no Tensor holds.
static bool py_backward_store_grads(pass *p) {
    PyObject *grads = PyList_New(0);
    bool ok = grads;
    for (size_t i = 0; ok && i < p->n; i++) {
        // The library's gradient is that along x minus i times that along y; PyTorch's is its conjugate.
        const bool complex = dtype_kind(ct_dtype_of(p->grads[i])) == 'c';
        ok = list_append(
            grads, tensor_new_without_run(complex ? ct_conj_at(p->grads[i], p->here) : p->grads[i],
                                          p->here));
    }
    PyObject *to = PyList_New(0), *result = PyList_New(0);
    ok = ok && to && result;
    for (size_t i = 0; ok && i < p->n; i++) {
        tensor_object *leaf = autograd_find_leaf(p->wrt[i]);
        if (!leaf) continue;
        ok = PyList_Append(to, (PyObject *)leaf) == 0;
        PyObject *grad = ok ? Py_NewRef(PyList_GetItem(grads, (Py_ssize_t)i)) : NULL;
        grad = grad ? py_grad_run_hooks((PyObject *)leaf, grad) : NULL;
        ok = grad && PyList_Append(result, grad) == 0;
        Py_XDECREF(grad);
    }
    ok = ok && py_grad_accumulate_all(p, to, result);
    release(to, result, grads);
    return ok;
}

// Removes leaves whose Tensors are gone: they get no gradient.
static void py_backward_drop_dead_leaves(pass *p) {
    size_t kept = 0;
    for (size_t i = 0; i < p->n; i++)
        if (autograd_find_leaf(p->wrt[i])) p->wrt[kept++] = p->wrt[i];
    p->n = kept;
}

static bool py_backward_run(pass *p) {
    thread *self = thread_get();
    // in a traced function nothing runs, and the history is the function's
    const bool traced = self->trace_depth;
    if (self->backward_pending && !traced && !run_eval(NULL, 0, p->here)) return false;
    p->retain = p->retain || traced;
    ct_backward_at(p->loss, p->wrt, p->n, p->grads, p->retain, p->create, p->here);
    self->backward_pending = self->backward_pending || !traced;
    return !ct_failed() || raise_error();
}

// _begin_backward(): begins a new backward pass; returns True if histories are kept whatever the caller asks
// for.
static PyObject *autograd_begin_backward(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    const ct_loc here = api_enter();
    thread *self = thread_get();
    const bool traced = self->trace_depth;
    if (self->backward_pending && !traced && !run_eval(NULL, 0, here)) return NULL;
    self->backward_pending = self->backward_pending || !traced;
    return PyBool_FromLong(traced);
}

// _give(leaves, grads, create): adds the gradients to .grad of the Tensors that are these leaves.
static PyObject *autograd_give(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *to, *grads;
    int create;
    pass p = {.here = api_enter()};
    if (!PyArg_ParseTuple(args, "O!O!p:_give", &PyTuple_Type, &to, &PyTuple_Type, &grads, &create))
        return NULL;
    p.create = create;
    p.n = (size_t)PyTuple_Size(to);
    bool ok = py_backward_reserve(&p, p.n + 1);
    for (size_t i = 0; ok && i < p.n; i++) {
        p.wrt[i].bits = PyLong_AsUnsignedLongLong(PyTuple_GetItem(to, (Py_ssize_t)i));
        const ct_tensor grad = tensor_handle(PyTuple_GetItem(grads, (Py_ssize_t)i));
        p.grads[i] = ct_cast_at(grad, ct_dtype_of(grad), p.here); // a handle has one Tensor
    }
    ok = ok && py_backward_store_grads(&p);
    free(p.wrt);
    return none_if(ok);
}

// _set_sweeps(backward, grad, written): sets the functions that replace backward() and _grad() where a history
// may have hooks, and the one that is called when a tensor that has hooks is written in place.
static PyObject *sweep_backward, *sweep_grad, *sweep_written;
static PyObject *autograd_set_sweeps(PyObject *Py_UNUSED(module), PyObject *args) {
    if (!PyArg_ParseTuple(args, "OOO:_set_sweeps", &sweep_backward, &sweep_grad, &sweep_written))
        return NULL;
    Py_INCREF(sweep_backward);
    Py_INCREF(sweep_grad);
    Py_INCREF(sweep_written);
    Py_RETURN_NONE;
}

bool autograd_has_hooks(const tensor_object *self) { // true for a computed value that has hooks
    return self->dict && !self->params && PyDict_GetItemString(self->dict, "_hooks");
}
bool autograd_notify_write(tensor_object *self) {
    if (!autograd_has_hooks(self)) return true;
    PyObject *done = PyObject_CallFunctionObjArgs(sweep_written, (PyObject *)self, NULL);
    Py_XDECREF(done);
    return done;
}

static PyObject *autograd_backward(PyObject *self, PyObject *args, PyObject *options) {
    static char *names[] = {"gradient", "retain_graph", "create_graph", "inputs", NULL};
    PyObject *gradient = NULL, *retain = Py_None, *inputs = Py_None;
    int create = 0;
    pass p = {.here = api_enter()};
    if (!PyArg_ParseTupleAndKeywords(args, options, "|OOpO:backward", names, &gradient, &retain,
                                     &create, &inputs))
        return NULL;
    const int retains = retain == Py_None ? create : PyObject_IsTrue(retain);
    thread_get()->reads++;
    if (retains < 0 || !py_backward_make_loss(self, gradient, &p.loss, p.here)) return NULL;
    p.retain = retains;
    p.create = create;
    // The Tensor keeps what is computed for the loss alone alive during this call.
    PyObject *loss = tensor_new(ct_reshape_at(p.loss, CT_SCALAR, p.here), p.here);
    if (loss) p.loss = tensor_handle(loss);
    if (loss && ct_hook_count()) {
        PyObject *done =
            PyObject_CallFunction(sweep_backward, "OOOO", loss, retains ? Py_True : Py_False,
                                  create ? Py_True : Py_False, inputs);
        Py_DECREF(loss);
        return done;
    }
    bool ok = loss && py_backward_find_leaves(&p);
    if (ok) py_backward_drop_dead_leaves(&p);
    if (ok && inputs != Py_None) {
        size_t kept = 0;
        PyObject *list = PySequence_List(inputs);
        ok = list;
        for (size_t i = 0; ok && i < p.n; i++)
            for (Py_ssize_t k = 0; k < PyList_Size(list); k++) {
                PyObject *input = PyList_GetItem(list, k);
                if (!tensor_check(input) || !tensor_is_usable_here(input) ||
                    tensor_handle(input).bits != p.wrt[i].bits)
                    continue;
                p.wrt[kept++] = p.wrt[i];
                break;
            }
        Py_XDECREF(list);
        p.n = kept;
    }
    ok = ok && (!p.n || (py_backward_run(&p) && py_backward_store_grads(&p)));
    free(p.wrt);
    Py_XDECREF(loss);
    return none_if(ok);
}

// True if the history of the loss begins at a leaf other than the inputs of the pass.
static bool py_backward_has_other_leaves(const pass *p) {
    pass all = {.loss = p->loss, .here = p->here};
    bool other = !py_backward_find_leaves(&all);
    for (size_t i = 0; i < all.n && !other; i++) {
        size_t k = 0;
        while (k < p->n && p->wrt[k].bits != all.wrt[i].bits) k++;
        other = k == p->n;
    }
    free(all.wrt);
    return other;
}

// _grad(output, inputs, gradient, retain, create): returns a tuple of gradients, None for inputs that the
// output does not depend on. If create is None, a graph is created where the history has other leaves, too.
static PyObject *autograd_grad(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *output, *inputs, *gradient, *create;
    int retain;
    pass p = {.here = api_enter()};
    if (!PyArg_ParseTuple(args, "OO!OpO:_grad", &output, &PyTuple_Type, &inputs, &gradient, &retain,
                          &create))
        return NULL;
    const size_t n = (size_t)PyTuple_Size(inputs);
    if (!tensor_check(output) || !py_backward_make_loss(output, gradient, &p.loss, p.here) ||
        !py_backward_reserve(&p, n ? n : 1)) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "grad: the output must be a Tensor, not %R", output);
        return NULL;
    }
    p.retain = retain;
    p.create = create == Py_True;
    PyObject *loss = tensor_new(ct_reshape_at(p.loss, CT_SCALAR, p.here), p.here);
    if (loss && ct_hook_count()) {
        PyObject *result = PyObject_CallFunction(sweep_grad, "OOOO", loss, inputs,
                                                 retain ? Py_True : Py_False, create);
        free(p.wrt);
        Py_DECREF(loss);
        return result;
    }
    bool *reached = calloc(n + 1, sizeof *reached);
    PyObject *result = PyTuple_New((Py_ssize_t)n);
    bool ok = loss && reached && result;
    if (ok) p.loss = tensor_handle(loss);
    for (size_t i = 0; ok && i < n; i++) {
        PyObject *input = PyTuple_GetItem(inputs, (Py_ssize_t)i);
        ok = tensor_check(input);
        if (ok) // values that another thread recorded are in no history of this thread
            p.grads[i] = tensor_is_usable_here(input) ? ((tensor_object *)input)->handle : CT_NONE;
        else
            PyErr_Format(PyExc_TypeError, "grad: the inputs must be Tensors, not %R", input);
    }
    if (ok) ct_history_reaches_at(p.loss, p.grads, n, reached, p.here);
    for (size_t i = 0; ok && i < n; i++)
        if (reached[i]) p.wrt[p.n++] = p.grads[i];
    if (ok && p.n && create == Py_None) p.create = py_backward_has_other_leaves(&p);
    ok = ok && !PyErr_Occurred() && (!p.n || py_backward_run(&p));
    for (size_t i = 0, k = 0; ok && i < n; i++) {
        PyObject *grad = reached[i] ? tensor_new_without_run(p.grads[k++], p.here) : Py_None;
        if (grad == Py_None) Py_INCREF(grad);
        ok = grad && PyTuple_SetItem(result, (Py_ssize_t)i, grad) == 0;
    }
    free(p.wrt);
    free(reached);
    Py_XDECREF(loss);
    if (ok) return result;
    Py_XDECREF(result);
    return PyErr_Occurred() ? NULL : PyErr_NoMemory();
}

// --------------------------------------------------------------------------------- without history

static PyObject *autograd_detach(PyObject *self, PyObject *Py_UNUSED(unused)) {
    return view_detached(self, tensor_type, api_enter());
}

static PyObject *autograd_detach_(PyObject *o, PyObject *Py_UNUSED(unused)) {
    tensor_object *self = (tensor_object *)o;
    const ct_loc here = api_enter();
    const ct_tensor t = tensor_handle(o);
    if (!t.bits) return NULL;
    if (self->parent && ct_is_tracked(t))
        return PyErr_Format(PyExc_RuntimeError,
                            "detach_: a view's history is that of what it is a view of\n"
                            "  hint: detach() gives a tensor without it");
    if (self->params
            ? !tensor_make_variable(o, false, here)
            : ct_is_tracked(t) && !tensor_set_handle(self, ct_stop_gradient_at(t, here), here))
        return NULL;
    return Py_NewRef(o);
}

// _leaves(value): returns the handles' bits of the leaves at which its history begins.
static PyObject *autograd_list_leaves(PyObject *Py_UNUSED(module), PyObject *o) {
    if (!tensor_check(o)) return PyErr_Format(PyExc_TypeError, "a Tensor has leaves, not %R", o);
    pass p = {.here = api_enter()};
    p.loss = tensor_handle(o);
    PyObject *result = py_backward_find_leaves(&p) ? PyTuple_New((Py_ssize_t)p.n) : NULL;
    for (size_t i = 0; result && i < p.n; i++)
        if (!tuple_set(result, (Py_ssize_t)i, PyLong_FromUnsignedLongLong(p.wrt[i].bits)))
            Py_CLEAR(result);
    free(p.wrt);
    return result;
}

static PyObject *autograd_set_grad_enabled(PyObject *Py_UNUSED(module), PyObject *requested) {
    const int on = PyObject_IsTrue(requested);
    if (on < 0) return NULL;
    thread *self = thread_get();
    const bool before = !self->no_grad;
    self->no_grad = !on;
    return PyBool_FromLong(before);
}
static PyObject *autograd_is_grad_enabled(PyObject *Py_UNUSED(module),
                                          PyObject *Py_UNUSED(unused)) {
    return PyBool_FromLong(grad_enabled());
}

// _autocast(dtype): sets the autocast dtype (float32 for none) and returns the previous one.
// _autocast_dtype(): returns the current one.
static PyObject *autograd_set_autocast(PyObject *Py_UNUSED(module), PyObject *o) {
    const ct_loc here = api_enter();
    ct_dtype dtype;
    if (!dtype_parse(o, &dtype)) return NULL;
    const ct_dtype before = ct_autocast_set_at(dtype, here);
    return ct_failed() ? raise_error() : dtype_to_object(before);
}
static PyObject *autograd_get_autocast(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    api_enter();
    return dtype_to_object(ct_autocast_dtype());
}

// _track(x): returns x as a new value at which a history begins.
static PyObject *autograd_track(PyObject *Py_UNUSED(module), PyObject *o) {
    const ct_loc here = api_enter();
    if (!tensor_check(o))
        return PyErr_Format(PyExc_TypeError, "what is differentiated must be a Tensor, not %R", o);
    return tensor_new(ct_track_at(tensor_value(o, here), here), here);
}

PyMethodDef autograd_methods[] = {
    {"backward", (PyCFunction)(void (*)(void))autograd_backward, METH_VARARGS | METH_KEYWORDS,
     "backward($self, gradient=None, retain_graph=None, create_graph=False, inputs=None)\n--\n\n"
     "Adds the gradient of this scalar to .grad of every leaf that requires it."},
    {"requires_grad_", (PyCFunction)(void (*)(void))autograd_requires_grad_,
     METH_VARARGS | METH_KEYWORDS,
     "requires_grad_($self, requires_grad=True)\n--\n\nMakes it a leaf whose gradients backward() "
     "gives, or none."},
    {"detach", autograd_detach, METH_NOARGS,
     "detach($self)\n--\n\nThe same value without a history, a view: writes are seen in both."},
    {"detach_", autograd_detach_, METH_NOARGS,
     "detach_($self)\n--\n\nTakes its history away; a leaf requires no gradients any more."},
    {0},
};
PyGetSetDef autograd_getters[] = {
    {"requires_grad", autograd_get_requires_grad, autograd_set_requires_grad,
     "Has it a history, or does one begin at it?", NULL},
    {"is_leaf", autograd_get_is_leaf, NULL, "Is it no result of what has a history?", NULL},
    {"_base", autograd_get_base, NULL, "The tensor of which it is a view; None: it is none.", NULL},
    {"_op", autograd_get_op, NULL, "The op whose history it has; None: none.", NULL},
    {"_version", autograd_get_version, NULL, "The number of in-place writes.", NULL},
    {"grad", autograd_get_grad, autograd_set_grad, "What backward() gave; None before.", NULL},
    {0},
};
static PyMethodDef autograd_functions[] = {
    {"_grad", autograd_grad, METH_VARARGS, NULL},
    {"_track", autograd_track, METH_O, NULL},
    {"_leaves", autograd_list_leaves, METH_O, NULL},
    {"_begin_backward", autograd_begin_backward, METH_NOARGS, NULL},
    {"_give", autograd_give, METH_VARARGS, NULL},
    {"_set_grads", autograd_set_grads, METH_VARARGS, NULL},
    {"_set_sweeps", autograd_set_sweeps, METH_VARARGS, NULL},
    {"_autocast", autograd_set_autocast, METH_O, NULL},
    {"_autocast_dtype", autograd_get_autocast, METH_NOARGS, NULL},
    {"_set_grad_enabled", autograd_set_grad_enabled, METH_O, NULL},
    {"is_grad_enabled", autograd_is_grad_enabled, METH_NOARGS,
     "is_grad_enabled()\n--\n\nAre histories kept in this thread?"},
    {0},
};

bool autograd_init(PyObject *module) {
    autograd_leaves = PyDict_New();
    return autograd_leaves && PyModule_AddFunctions(module, autograd_functions) == 0;
}
