// Views, and writes in place. A buffer is never written: a write gives the tensor another value, and the
// tensors that share it notice by its version.
#include "core.h"
#include "tensor.h"
#include "whole.h"

#include <stdlib.h>
#include <string.h>

// --------------------------------------------------------------------------------- parents, children

static void view_hold_parent(tensor_object *child) {
    if (child->holds_parent) return;
    child->holds_parent = true;
    Py_INCREF((PyObject *)child->parent);
}

// Links a view to its parent. A parent that no one else holds is needed only where another child, or the
// parent's own parent, could see a write: so the first child does not hold it, and from the second one on all
// do.
static void view_link(tensor_object *parent, tensor_object *child) {
    child->parent = parent;
    child->parent_version = parent->version;
    tensor_object *other = parent->children;
    child->next = other;
    if (other) other->previous = child;
    parent->children = child;
    if (!other && !parent->parent) return;
    view_hold_parent(child);
    if (other) view_hold_parent(other);
}

// From now on the child has a value of its own.
static void view_unlink_parent(tensor_object *self) {
    tensor_object *parent = self->parent;
    if (!parent) return;
    if (self->next) self->next->previous = self->previous;
    if (self->previous)
        self->previous->next = self->next;
    else if (parent->children == self)
        parent->children = self->next;
    self->parent = self->next = self->previous = NULL;
    view_ops_free(self->view_ops, self->n_view_ops);
    self->view_ops = NULL;
    self->n_view_ops = 0;
    if (!self->holds_parent) return;
    self->holds_parent = false;
    Py_DECREF((PyObject *)parent);
}

static void view_drop_detached(tensor_object *self) {
    tensor_object *detached = self->detached;
    self->detached = NULL;
    if (!detached) return;
    view_unlink_parent(detached);
    Py_DECREF((PyObject *)detached);
}

void view_unlink(tensor_object *self) {
    view_drop_detached(self);
    while (self->children) view_unlink_parent(self->children);
    view_unlink_parent(self);
}

// After a write: counts the version, and keeps the tensor alive until its views are read.
static bool view_after_write(tensor_object *self, ct_loc here) {
    self->version++;
    for (tensor_object *child = self->children; child; child = child->next) view_hold_parent(child);
    if (!autograd_notify_write(self)) return false;
    if (!self->detached) return true;
    if (Py_REFCNT((PyObject *)self->detached) > 1) return view_refresh(self->detached, here);
    view_drop_detached(self); // no view of it exists
    return true;
}

enum { MAX_EAGER_BYTES = 1 << 14 };

// Reshapes a value of few bytes that is already computed, such as a sample that gets another axis, at once.
static ct_tensor view_reshape_eagerly(const view_op *m, ct_tensor t, ct_loc here) {
    const ct_dtype dtype = ct_dtype_of(t);
    const int bits = ct_dtype_bits(dtype);
    const bool few =
        ct_size(t) * bits / 8 <= MAX_EAGER_BYTES && bits % 8 == 0 && !trace_is_active();
    const void *data = few ? ct_current_data(t) : NULL;
    int64_t elements = 1;
    for (size_t i = 0; i < m->n; i++) elements *= m->list[0][i] < 0 ? -1 : m->list[0][i];
    return data && elements == ct_size(t)
               ? ct_from_at(data, dtype, (ct_ints){(int64_t)m->n, m->list[0]}, here)
               : view_op_apply(m, t, here);
}

PyObject *view_new(PyObject *o, view_op *ops, size_t n, ct_loc here) {
    ct_tensor t = tensor_value(o, here), first = t;
    if (n == 1 && ops->kind == VIEW_RESHAPE)
        t = view_reshape_eagerly(ops, t, here);
    else
        for (size_t i = 0; i < n; i++) t = view_op_apply(&ops[i], t, here);
    if (t.bits == first.bits && ct_ok(t)) t = new_handle_of(t, here);
    PyObject *view = tensor_new(t, here);
    if (!view) {
        view_ops_free(ops, n);
        return NULL;
    }
    tensor_object *self = (tensor_object *)view;
    self->view_ops = ops;
    self->n_view_ops = n;
    view_link((tensor_object *)o, self);
    return view;
}

// Assigns a view that is a variable; gives any other view a new value.
static bool view_set_value(tensor_object *self, ct_tensor value, ct_loc here) {
    if (!self->params) return tensor_set_handle(self, value, here);
    if (!tensor_handle((PyObject *)self).bits) return false;
    self->owner = thread_get();
    ct_assign_at(self->handle, value, here);
    return !ct_failed() || raise_error();
}

static ct_tensor view_keep_history(const tensor_object *self, ct_tensor value, bool is_detached,
                                   ct_loc here);

static bool view_refresh_from(tensor_object *self, tensor_object *parent, ct_loc here) {
    if (!view_refresh(parent, here)) return false;
    if (parent->version == self->parent_version) return true;
    PyObject *base = (PyObject *)parent;
    ct_tensor t = self->is_detached || tensor_is_usable_here(base) ? tensor_handle(base)
                                                                   : tensor_value(base, here);
    if (!t.bits) return false;
    for (size_t i = 0; i < self->n_view_ops; i++) t = view_op_apply(&self->view_ops[i], t, here);
    if (self->is_detached || self->params) t = ct_stop_gradient_at(t, here);
    // The history that it got by writes of its own.
    if (self->is_detached) t = view_keep_history(self, t, true, here);
    self->parent_version = parent->version;
    return view_set_value(self, t, here) && view_after_write(self, here);
}

// Reading a value of another thread takes a while, in which others may free the parent.
bool view_refresh(tensor_object *self, ct_loc here) {
    tensor_object *parent = self->parent;
    if (!parent) return true;
    Py_INCREF((PyObject *)parent);
    const bool ok = view_refresh_from(self, parent, here);
    Py_DECREF((PyObject *)parent);
    return ok;
}

// ------------------------------------------------------------------------------- without a history

// Makes a view of the whole parent, whose history is not the parent's.
static tensor_object *view_new_detached(tensor_object *parent, PyTypeObject *type, ct_loc here) {
    const ct_tensor t = tensor_handle((PyObject *)parent);
    if (!t.bits) return NULL;
    tensor_object *self =
        (tensor_object *)tensor_new_of_type(type, ct_stop_gradient_at(t, here), here);
    if (!self) return NULL;
    self->is_detached = true;
    return self;
}

static tensor_object *view_get_detached(tensor_object *self, ct_loc here) { // borrowed
    if (self->detached) return self->detached;
    tensor_object *detached = view_new_detached(self, tensor_type, here);
    if (!detached || self->detached) { // another thread made it meanwhile
        Py_XDECREF((PyObject *)detached);
        return self->detached;
    }
    detached->parent = self;
    detached->parent_version = self->version;
    return self->detached = detached;
}

// Collects the view ops of a chain of views, beginning after `root`; returns their number.
static size_t view_copy_ops(const tensor_object *at, const tensor_object *root, view_op *to,
                            bool *ok) {
    if (at == root) return 0;
    size_t n = view_copy_ops(at->parent, root, to, ok);
    for (size_t i = 0; i < at->n_view_ops; i++, n++) {
        const view_op *m = &at->view_ops[i];
        const int64_t *const lists[4] = {m->list[0], m->list[1], m->list[2], m->list[3]};
        *ok = *ok && (!to || view_op_new(&to[n], m->kind, lists, m->n));
    }
    return n;
}

// For a variable they are views of the variable itself; for other values, views of `detached`, so that the
// history can be freed while they exist. In a traced function a tensor from outside has no `detached`: its
// value would be the function's.
PyObject *view_detached(PyObject *o, PyTypeObject *type, ct_loc here) {
    tensor_object *self = (tensor_object *)o;
    if (!tensor_handle(o).bits) return NULL;
    const tensor_object *first = self;
    while (first->parent && first->parent->detached != first) first = first->parent;
    tensor_object *root = (tensor_object *)(uintptr_t)first;
    if (!root->parent && !root->params && (root->traced || !trace_is_active()))
        root = view_get_detached(root, here);
    bool ok = root;
    const size_t n = view_copy_ops(self, first, NULL, &ok);
    view_op *ops = ok ? calloc(n + 1, sizeof *ops) : NULL;
    if (ok && !ops) PyErr_NoMemory();
    if (!ops) return NULL;
    view_copy_ops(self, first, ops, &ok);
    tensor_object *view = ok ? view_new_detached(self, type, here) : NULL;
    if (!view) {
        view_ops_free(ops, n);
        return NULL;
    }
    view->view_ops = ops;
    view->n_view_ops = n;
    view_link(root, view);
    return (PyObject *)view;
}

// ------------------------------------------------------------------------------------------- writes

// Finds the layout of self's elements within the base tensor of which it is a view, or a view of a view.
static void view_find_layout(const tensor_object *self, layout *to) {
    if (!self->parent) {
        layout_init(to, self->handle);
        return;
    }
    view_find_layout(self->parent, to);
    for (size_t i = 0; i < self->n_view_ops; i++) layout_apply(to, &self->view_ops[i]);
}

static bool view_refuse(const char *text) { return PyErr_Format(PyExc_RuntimeError, "%s", text); }

// Raises an error for writes to self, or to the view that the ops make of it, that are not possible.
static bool view_check_write(const tensor_object *self, const view_op *ops, size_t n) {
    bool is_detached = false, bits = false;
    const tensor_object *root = self;
    for (const tensor_object *at = self; at; root = at, at = at->parent) {
        if (!is_detached && at->params && ct_is_tracked(at->handle) && grad_enabled())
            return view_refuse("a leaf that requires gradients is written in its place, which its "
                               "gradient would not know\n"
                               "  hint: with cotan.no_grad(): around it, or detach() before");
        for (size_t i = 0; i < at->n_view_ops; i++)
            bits = bits || at->view_ops[i].kind == VIEW_BITCAST;
        is_detached = is_detached || at->is_detached;
    }
    if (bits && !is_detached && !root->params && ct_is_tracked(root->handle))
        return view_refuse(
            "the bits of a tensor that has a history are written, which gradients do not "
            "go through\n  hint: detach() before");
    if (trace_is_active() && !root->traced && !root->params)
        return view_refuse("a tensor from outside is written inside a traced function\n"
                           "  hint: return the value as a result, and write it outside");
    if (!self->parent && !view_ops_can_repeat(ops, n)) return true;
    layout elements;
    view_find_layout(self, &elements);
    for (size_t i = 0; i < n; i++) layout_apply(&elements, &ops[i]);
    if (layout_has_overlap(&elements) && elements.expanded)
        return view_refuse("an expanded tensor is written, of which several elements are one\n"
                           "  hint: clone() before");
    if (layout_has_overlap(&elements))
        return view_refuse("windows that overlap are written, of which several elements are one\n"
                           "  hint: clone() before, or write one window at a time");
    return true;
}

static bool view_write_value(tensor_object *self, ct_tensor value, bool is_detached, ct_loc here);

// Returns the value with the history of t, which determines t's gradient whatever the value is.
static void view_with_history_of(const ct_tensor *in, ct_tensor *out, void *Py_UNUSED(user)) {
    out[0] = in[1];
}
// Inputs: t, value; result; its cotangent.
static void view_with_history_of_vjp(const ct_tensor *in, ct_tensor *out, void *Py_UNUSED(user)) {
    out[0] = in[3];
    int64_t dim[CT_MAX_RANK];
    out[1] = ct_zeros_at(ct_dtype_of(in[1]), tensor_dims(in[1], dim), CT_NOWHERE);
}

// True if self, or a tensor of which it is a view, has an element several times.
static bool view_has_repeats(const tensor_object *self) {
    for (; self->parent; self = self->parent)
        if (view_ops_can_repeat(self->view_ops, self->n_view_ops)) return true;
    return false;
}

// Writes `part` to what the ops make of the tensor's value; is_detached: gradients do not know it.
static bool view_write_part(tensor_object *self, const view_op *ops, size_t n, ct_tensor part,
                            bool is_detached, ct_loc here) {
    if (view_has_repeats(self)) { // write only the elements of the part
        const size_t n_all = self->n_view_ops + n;
        view_op *all_ops = malloc((n_all + 1) * sizeof *all_ops);
        if (!all_ops) return PyErr_NoMemory();
        memcpy(all_ops, self->view_ops, self->n_view_ops * sizeof *all_ops);
        if (n) memcpy(all_ops + self->n_view_ops, ops, n * sizeof *all_ops);
        tensor_object *parent = self->parent;
        Py_INCREF((PyObject *)parent);
        const bool ok =
            view_write_part(parent, all_ops, n_all, part, is_detached || self->is_detached, here);
        Py_DECREF((PyObject *)parent);
        free(all_ops);
        return ok;
    }
    ct_tensor *before = malloc((n + 1) * sizeof *before);
    if (!before) return PyErr_NoMemory();
    before[0] = tensor_value((PyObject *)self, here);
    if (is_detached) {
        part = ct_stop_gradient_at(part, here);
        before[0] = ct_stop_gradient_at(before[0], here);
    }
    for (size_t i = 0; i + 1 < n; i++) before[i + 1] = view_op_apply(&ops[i], before[i], here);
    ct_tensor base = part;
    for (size_t i = n; i-- > 0;) {
        size_t first = 0;
        while (first <= i && !view_ops_can_repeat(&ops[first], 1)) first++;
        if (first <= i && ops[i].kind < VIEW_REAL) {
            base = view_ops_scatter(&ops[first], i + 1 - first, before[first], base, here);
            i = first;
        } else {
            base = view_op_inverse(&ops[i], before[i], base, here);
        }
    }
    free(before);
    if (base.bits == part.bits && ct_ok(part)) base = new_handle_of(part, here);
    return view_write_value(self, base, is_detached, here);
}

// If no history is kept, the tensor keeps its own, as in PyTorch: the value changes, its gradient does not.
static ct_tensor view_keep_history(const tensor_object *self, ct_tensor value, bool is_detached,
                                   ct_loc here) {
    if (self->params || !(is_detached || !grad_enabled()) ||
        !tensor_is_usable_here((PyObject *)(uintptr_t)self) || !ct_is_tracked(self->handle))
        return value;
    const ct_tensor both[2] = {self->handle, ct_stop_gradient_at(value, here)};
    ct_custom_vjp_at(view_with_history_of, view_with_history_of_vjp, NULL, both, 2, &value, 1,
                     here);
    return value;
}

static bool view_write_value(tensor_object *self, ct_tensor value, bool is_detached, ct_loc here) {
    if (value.bits == self->handle.bits || value.bits == self->shared.bits)
        return true; // nothing was written to it
    if (self->parent) {
        tensor_object *parent = self->parent;
        Py_INCREF((PyObject *)parent);
        const bool ok = view_write_part(parent, self->view_ops, self->n_view_ops, value,
                                        is_detached || self->is_detached || self->params, here);
        if (!autograd_has_hooks(parent))
            self->parent_version = parent->version; // otherwise gradients pass through the parent
        Py_DECREF((PyObject *)parent);
        if (!ok) return false;
    }
    return view_set_value(self, view_keep_history(self, value, is_detached, here), here) &&
           view_after_write(self, here);
}

bool tensor_write_view(PyObject *o, const view_op *ops, size_t n, ct_tensor part, ct_loc here) {
    tensor_object *self = (tensor_object *)o;
    if (!ct_ok(tensor_handle(o)) || !ct_ok(part)) return raise_error();
    return view_check_write(self, ops, n) && view_write_part(self, ops, n, part, false, here);
}

bool view_matches(PyObject *o, PyObject *parent, const view_op *ops, size_t n) {
    const tensor_object *self = (tensor_object *)o;
    if ((PyObject *)self->parent != parent || self->n_view_ops != n ||
        self->parent_version != self->parent->version)
        return false;
    for (size_t i = 0; i < n; i++) {
        const view_op *a = &self->view_ops[i], *b = &ops[i];
        const size_t lists = a->kind == VIEW_SLICE ? 4 : 1;
        if (a->kind != b->kind || a->n != b->n ||
            memcmp(a->list[0], b->list[0], lists * a->n * sizeof *a->list[0]) != 0)
            return false;
    }
    return true;
}

bool tensor_write(PyObject *o, ct_tensor value, ct_loc here) {
    tensor_object *self = (tensor_object *)o;
    ct_tensor is = tensor_value(o, here);
    if (!ct_ok(value) || !ct_ok(is)) return raise_error();
    if (!view_check_write(self, NULL, 0)) return false;
    value = move_to_device_of(value, is, here);
    const ct_dtype to = ct_dtype_of(is), from = ct_dtype_of(value);
    if (dtype_category(from) > dtype_category(to))
        return PyErr_Format(PyExc_RuntimeError,
                            "a tensor of %s is written in its place, it cannot hold %s",
                            dtype_python_name(to), dtype_python_name(from));
    value = reshape_or_expand_as(value, is, true, here);
    if (from != to) value = ct_cast_at(value, to, here);
    if (!ct_ok(value)) return raise_error();
    return view_write_value(self, value, false, here);
}

// ------------------------------------------------------------------------------------------- Python

// _view(x, (("slice", axes, start, stop, step), ("permute", axes), ("reshape", sizes), ("expand", sizes))):
// returns a view.
static PyObject *view_view(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *o, *list;
    size_t n;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "O!O!:_view", tensor_type, &o, &PyTuple_Type, &list)) return NULL;
    view_op *ops = view_ops_parse(list, &n);
    return ops ? view_new(o, ops, n, here) : NULL;
}

// _turn(x, ops): x itself becomes the view of what it was.
static PyObject *view_transform_in_place(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *o, *list;
    size_t n;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "O!O!:_turn", tensor_type, &o, &PyTuple_Type, &list)) return NULL;
    tensor_object *self = (tensor_object *)o;
    if (self->detached && Py_REFCNT((PyObject *)self->detached) == 1) view_drop_detached(self);
    if (self->params || self->children || self->detached) {
        PyErr_SetString(PyExc_RuntimeError,
                        self->params
                            ? "the axes of a leaf that requires gradients, or did, cannot be "
                              "changed in its place"
                            : "the axes of a tensor of which there are views cannot be "
                              "changed in its place\n  hint: x = x.unsqueeze(0), and the like");
        return NULL;
    }
    view_op *ops = view_ops_parse(list, &n);
    if (!ops) return NULL;
    ct_tensor t = tensor_value(o, here), first = t;
    for (size_t i = 0; i < n; i++) t = view_op_apply(&ops[i], t, here);
    if (t.bits == first.bits && ct_ok(t)) t = new_handle_of(t, here);
    view_op *all = realloc(self->view_ops, (self->n_view_ops + n + 1) * sizeof *all);
    if (all) self->view_ops = all;
    if (!all || !tensor_set_handle(self, t, here)) {
        view_ops_free(ops, n);
        return all ? NULL : PyErr_NoMemory();
    }
    if (self->parent) {
        memcpy(all + self->n_view_ops, ops, n * sizeof *ops);
        self->n_view_ops += n;
        free(ops);
    } else {
        view_ops_free(ops, n);
    }
    self->version++;
    return Py_NewRef(o);
}

// _detached(x): returns x.detach() as an object of x's own class.
static PyObject *view_detach(PyObject *Py_UNUSED(module), PyObject *o) {
    if (!tensor_check(o)) return PyErr_Format(PyExc_TypeError, "a Tensor is detached, not %R", o);
    return view_detached(o, Py_TYPE(o), api_enter());
}

// _snapshot(x): returns x's value, which later writes to x do not change.
static PyObject *view_snapshot(PyObject *Py_UNUSED(module), PyObject *o) {
    const ct_loc here = api_enter();
    if (!tensor_check(o)) return PyErr_Format(PyExc_TypeError, "a Tensor has a value, not %R", o);
    return tensor_new(ct_stop_gradient_at(tensor_handle(o), here), here);
}

// _replace(x, value): gives x itself another value, of any dtype and shape; it stays a leaf if it is one.
// Views of x keep their values.
static PyObject *view_replace(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *o, *value;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "O!O!:_replace", tensor_type, &o, tensor_type, &value)) return NULL;
    tensor_object *self = (tensor_object *)o;
    if (!tensor_handle(o).bits) return NULL;
    ct_tensor t = tensor_handle(value);
    if (!t.bits) return NULL;
    const tensor_object *given = (tensor_object *)value;
    const bool is_full_alias = given->is_detached && !given->n_view_ops && given->parent;
    if (is_full_alias && (given->parent == self || given->parent == self->detached))
        return Py_NewRef(o); // x.data += 1 has already written it
    t = ct_stop_gradient_at(t, here);
    const bool is_set = self->params, tracked = is_set && ct_is_tracked(self->handle);
    const bool same =
        ct_dtype_of(t) == ct_dtype_of(self->handle) && has_same_shape(t, self->handle);
    if (self->params_owner && !same) {
        view_refuse("data: a model's parameter keeps its dtype and its sizes");
        return NULL;
    }
    for (tensor_object *child; (child = self->children);) {
        if (!view_refresh(child, here)) return NULL;
        if (self->children == child) view_unlink_parent(child);
    }
    view_drop_detached(self);
    view_unlink_parent(self);
    const bool ok = is_set && same ? view_set_value(self, t, here)
                                   : tensor_set_handle(self, t, here) &&
                                         (!is_set || tensor_make_variable(o, tracked, here));
    if (!ok) return NULL;
    self->version++;
    return Py_NewRef(o);
}

static PyObject *view_copy_from(PyObject *self, PyObject *value, ct_loc here) {
    ct_tensor t;
    const ct_tensor is = tensor_value(self, here);
    if (!ct_ok(is)) return raise_error(), NULL;
    if (!operand_parse_for(value, ct_dtype_of(is), &t, here)) return NULL;
    if (tensor_check(value)) t = new_handle_of(t, here); // a handle has one Tensor
    // Unlike in-place arithmetic, a copy also casts to a dtype of a lower category.
    if (ct_ok(t) && ct_dtype_of(t) != ct_dtype_of(is)) t = ct_cast_at(t, ct_dtype_of(is), here);
    if (!tensor_write(self, t, here)) return NULL;
    return Py_NewRef(self);
}

static PyObject *view_copy_(PyObject *self, PyObject *args, PyObject *kwargs) {
    // An optimizer's step calls it several times a parameter; the parser of keywords takes half of a call.
    if (!kwargs && PyTuple_Size(args) == 1)
        return view_copy_from(self, PyTuple_GetItem(args, 0), api_enter());
    char *names[] = {"other", "non_blocking", NULL};
    PyObject *value;
    int non_blocking; // copies are recorded, so that none blocks
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|p:copy_", names, &value, &non_blocking))
        return NULL;
    return view_copy_from(self, value, api_enter());
}

// _write(tensors, values): calls copy_ for all tensors, or for none if a signal handler raises.
static PyObject *view_write_all(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *to, *values;
    if (!PyArg_ParseTuple(args, "O!O!:_write", &PyList_Type, &to, &PyList_Type, &values))
        return NULL;
    bool ok = true;
    const ct_loc here = api_enter();
    if (thread_has_others) critical_begin(); // this may wait for pending work of another thread
    for (Py_ssize_t i = 0; ok && i < PyList_Size(to); i++) {
        PyObject *done = view_copy_from(PyList_GetItem(to, i), PyList_GetItem(values, i), here);
        ok = done;
        Py_XDECREF(done);
    }
    if (thread_has_others) critical_end();
    return none_if(ok);
}

static PyObject *view_get_version(PyObject *self, PyObject *Py_UNUSED(unused)) {
    return PyLong_FromUnsignedLongLong(((tensor_object *)self)->version);
}

PyMethodDef view_functions[] = {
    {"_view", view_view, METH_VARARGS, NULL},
    {"_turn", view_transform_in_place, METH_VARARGS, NULL},
    {"_detached", view_detach, METH_O, NULL},
    {"_snapshot", view_snapshot, METH_O, NULL},
    {"_replace", view_replace, METH_VARARGS, NULL},
    {"_write", view_write_all, METH_VARARGS, NULL},
    {0},
};
PyMethodDef view_methods[] = {
    {"copy_", (PyCFunction)(void (*)(void))view_copy_, METH_VARARGS | METH_KEYWORDS,
     "copy_($self, other, non_blocking=False)\n--\n\nWrites the value, broadcast and cast, in its "
     "place."},
    {"_version", view_get_version, METH_NOARGS, NULL},
    {0},
};
