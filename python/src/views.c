// Views, and writes in place. A buffer is never written: a write gives the tensor another value, and
// those that share it find out by its version.
#include "core.h"
#include "tensor.h"
#include "whole.h"

#include <stdlib.h>
#include <string.h>

// --------------------------------------------------------------------------------- parents, children

static void child_hold(tensor_object *child) {
    if (child->holds) return;
    child->holds = true;
    Py_INCREF((PyObject *)child->parent);
}

// A parent that nobody names any more is needed only where another child, or what it is a view of itself,
// could see a write: else the first child does not hold it, and from the second one on all do.
static void adopt(tensor_object *parent, tensor_object *child) {
    child->parent = parent;
    child->seen = parent->version;
    tensor_object *other = parent->children;
    child->next = other;
    if (other) other->previous = child;
    parent->children = child;
    if (!other && !parent->parent) return;
    child_hold(child);
    if (other) child_hold(other);
}

// The child has its value for itself from now on.
static void part_from_parent(tensor_object *self) {
    tensor_object *parent = self->parent;
    if (!parent) return;
    if (self->next) self->next->previous = self->previous;
    if (self->previous)
        self->previous->next = self->next;
    else if (parent->children == self)
        parent->children = self->next;
    self->parent = self->next = self->previous = NULL;
    moves_free(self->moves, self->n_moves);
    self->moves = NULL;
    self->n_moves = 0;
    if (!self->holds) return;
    self->holds = false;
    Py_DECREF((PyObject *)parent);
}

static void forget_twin(tensor_object *self) {
    tensor_object *twin = self->twin;
    self->twin = NULL;
    if (!twin) return;
    part_from_parent(twin);
    Py_DECREF((PyObject *)twin);
}

void view_forget(tensor_object *self) {
    forget_twin(self);
    while (self->children) part_from_parent(self->children);
    part_from_parent(self);
}

// After a write: what shares the value and would not keep the tensor alive until it is looked at.
static bool written(tensor_object *self, ct_loc here) {
    self->version++;
    for (tensor_object *child = self->children; child; child = child->next) child_hold(child);
    if (!autograd_written(self)) return false;
    if (!self->twin) return true;
    if (Py_REFCNT((PyObject *)self->twin) > 1) return view_refresh(self->twin, here);
    forget_twin(self); // nobody has anything of it
    return true;
}

enum { MOST_AT_ONCE = 1 << 14 };

// A sample with another axis, say: a few bytes that are there already are there under other sizes, too.
static ct_tensor reshaped(const move *m, ct_tensor t, ct_loc here) {
    const ct_dtype dtype = ct_dtype_of(t);
    const int bits = ct_dtype_bits(dtype);
    const bool few = ct_size(t) * bits / 8 <= MOST_AT_ONCE && bits % 8 == 0 && !functions_tracing();
    const void *data = few ? ct_at_hand(t) : NULL;
    int64_t elements = 1;
    for (size_t i = 0; i < m->n; i++) elements *= m->list[0][i] < 0 ? -1 : m->list[0][i];
    return data && elements == ct_size(t)
               ? ct_from_at(data, dtype, (ct_ints){(int64_t)m->n, m->list[0]}, here)
               : move_forward(m, t, here);
}

PyObject *view_new(PyObject *o, move *moves, size_t n, ct_loc here) {
    ct_tensor t = tensor_value(o, here), first = t;
    if (n == 1 && moves->kind == MOVE_RESHAPE)
        t = reshaped(moves, t, here);
    else
        for (size_t i = 0; i < n; i++) t = move_forward(&moves[i], t, here);
    if (t.bits == first.bits && ct_ok(t)) t = same_value(t, here);
    PyObject *view = tensor_new(t, here);
    if (!view) {
        moves_free(moves, n);
        return NULL;
    }
    tensor_object *self = (tensor_object *)view;
    self->moves = moves;
    self->n_moves = n;
    adopt((tensor_object *)o, self);
    return view;
}

// A view that is a variable is assigned, any other one gets another value.
static bool take_value(tensor_object *self, ct_tensor value, ct_loc here) {
    if (!self->set) return tensor_rename(self, value, here);
    if (!tensor_handle((PyObject *)self).bits) return false;
    self->owner = thread_here();
    ct_assign_at(self->handle, value, here);
    return !ct_failed() || raise_failure();
}

static ct_tensor keep_history(const tensor_object *self, ct_tensor value, bool bare, ct_loc here);

static bool refresh(tensor_object *self, tensor_object *parent, ct_loc here) {
    if (!view_refresh(parent, here)) return false;
    if (parent->version == self->seen) return true;
    PyObject *whole = (PyObject *)parent;
    ct_tensor t =
        self->bare || tensor_is_own(whole) ? tensor_handle(whole) : tensor_value(whole, here);
    if (!t.bits) return false;
    for (size_t i = 0; i < self->n_moves; i++) t = move_forward(&self->moves[i], t, here);
    if (self->bare || self->set) t = ct_stop_gradient_at(t, here);
    if (self->bare) t = keep_history(self, t, true, here); // that it got by writes of its own
    self->seen = parent->version;
    return take_value(self, t, here) && written(self, here);
}

// To have a value of another thread's takes a while, in which others may forget the parent.
bool view_refresh(tensor_object *self, ct_loc here) {
    tensor_object *parent = self->parent;
    if (!parent) return true;
    Py_INCREF((PyObject *)parent);
    const bool ok = refresh(self, parent, here);
    Py_DECREF((PyObject *)parent);
    return ok;
}

// ------------------------------------------------------------------------------ without a history

// A view of all of the parent, whose history is not its own.
static tensor_object *bare_of(tensor_object *parent, PyTypeObject *type, ct_loc here) {
    const ct_tensor t = tensor_handle((PyObject *)parent);
    if (!t.bits) return NULL;
    tensor_object *self = (tensor_object *)tensor_of_type(type, ct_stop_gradient_at(t, here), here);
    if (!self) return NULL;
    self->bare = true;
    return self;
}

static tensor_object *twin_of(tensor_object *self, ct_loc here) { // borrowed
    if (self->twin) return self->twin;
    tensor_object *twin = bare_of(self, tensor_type, here);
    if (!twin || self->twin) { // another thread was here meanwhile
        Py_XDECREF((PyObject *)twin);
        return self->twin;
    }
    twin->parent = self;
    twin->seen = self->version;
    return self->twin = twin;
}

// Collects the moves of a chain of views, beginning after `root`; returns their number.
static size_t copy_moves(const tensor_object *at, const tensor_object *root, move *to, bool *ok) {
    if (at == root) return 0;
    size_t n = copy_moves(at->parent, root, to, ok);
    for (size_t i = 0; i < at->n_moves; i++, n++) {
        const move *m = &at->moves[i];
        const int64_t *const lists[4] = {m->list[0], m->list[1], m->list[2], m->list[3]};
        *ok = *ok && (!to || move_new(&to[n], m->kind, lists, m->n));
    }
    return n;
}

// A variable's are views of itself; of others, of a twin without the history, so that this can go while they stay.
// What is outside of a function that is traced has none: its value would be the function's.
PyObject *view_detached(PyObject *o, PyTypeObject *type, ct_loc here) {
    tensor_object *self = (tensor_object *)o;
    if (!tensor_handle(o).bits) return NULL;
    const tensor_object *first = self;
    while (first->parent && first->parent->twin != first) first = first->parent;
    tensor_object *root = (tensor_object *)(uintptr_t)first;
    if (!root->parent && !root->set && (root->traced || !functions_tracing()))
        root = twin_of(root, here);
    bool ok = root;
    const size_t n = copy_moves(self, first, NULL, &ok);
    move *moves = ok ? calloc(n + 1, sizeof *moves) : NULL;
    if (ok && !moves) PyErr_NoMemory();
    if (!moves) return NULL;
    copy_moves(self, first, moves, &ok);
    tensor_object *view = ok ? bare_of(self, type, here) : NULL;
    if (!view) {
        moves_free(moves, n);
        return NULL;
    }
    view->moves = moves;
    view->n_moves = n;
    adopt(root, view);
    return (PyObject *)view;
}

// ------------------------------------------------------------------------------------------- writes

// The layout of self's elements in those of the tensor of which it is a view, or a view of a view.
static void find_layout(const tensor_object *self, layout *to) {
    if (!self->parent) {
        layout_begin(to, self->handle);
        return;
    }
    find_layout(self->parent, to);
    for (size_t i = 0; i < self->n_moves; i++) layout_move(to, &self->moves[i]);
}

static bool refuse(const char *text) {
    PyErr_SetString(PyExc_RuntimeError, text);
    return false;
}

// What writes to self, or to what some moves make of it, cannot be.
static bool may_write(const tensor_object *self, const move *moves, size_t n) {
    bool bare = false, bits = false;
    const tensor_object *root = self;
    for (const tensor_object *at = self; at; root = at, at = at->parent) {
        if (!bare && at->set && ct_is_tracked(at->handle) && grad_enabled())
            return refuse("a leaf that requires gradients is written in its place, which its "
                          "gradient would not know\n"
                          "  hint: with cotan.no_grad(): around it, or detach() before");
        for (size_t i = 0; i < at->n_moves; i++) bits = bits || at->moves[i].kind == MOVE_BITS;
        bare = bare || at->bare;
    }
    if (bits && !bare && !root->set && ct_is_tracked(root->handle))
        return refuse("the bits of a tensor that has a history are written, which gradients do not "
                      "go through\n  hint: detach() before");
    if (functions_tracing() && !root->traced && !root->set)
        return refuse("a tensor from outside is written inside a traced function\n"
                      "  hint: return the value as a result, and write it outside");
    if (!self->parent && !moves_repeat(moves, n)) return true;
    layout places;
    find_layout(self, &places);
    for (size_t i = 0; i < n; i++) layout_move(&places, &moves[i]);
    if (layout_shares(&places) && places.expanded)
        return refuse("an expanded tensor is written, of which several elements are one\n"
                      "  hint: clone() before");
    if (layout_shares(&places))
        return refuse("windows that overlap are written, of which several elements are one\n"
                      "  hint: clone() before, or write one window at a time");
    return true;
}

static bool write_value(tensor_object *self, ct_tensor value, bool bare, ct_loc here);

// The value with the history of t, which says what t's gradient is, whatever the value is.
static void valued(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = in[1];
}
static void valued_vjp(const ct_tensor *in, ct_tensor *out,
                       void *user) { // t, value; result; its cotangent
    (void)user;
    out[0] = in[3];
    int64_t dim[CT_MAX_RANK];
    const int rank = ct_rank(in[1]);
    for (int i = 0; i < rank; i++) dim[i] = ct_dim(in[1], i);
    out[1] = ct_zeros_at(ct_dtype_of(in[1]), (ct_ints){rank, dim}, CT_NOWHERE);
}

// A view of it, or of what it is a view of, has an element in several places.
static bool repeats(const tensor_object *self) {
    for (; self->parent; self = self->parent)
        if (moves_repeat(self->moves, self->n_moves)) return true;
    return false;
}

// `part` becomes what the moves make of the tensor's value; `bare`: and gradients do not know.
static bool write_part(tensor_object *self, const move *moves, size_t n, ct_tensor part, bool bare,
                       ct_loc here) {
    if (repeats(self)) { // the part's places alone
        const size_t all = self->n_moves + n;
        move *joined = malloc((all + 1) * sizeof *joined);
        if (!joined) return PyErr_NoMemory();
        memcpy(joined, self->moves, self->n_moves * sizeof *joined);
        if (n) memcpy(joined + self->n_moves, moves, n * sizeof *joined);
        tensor_object *parent = self->parent;
        Py_INCREF((PyObject *)parent);
        const bool ok = write_part(parent, joined, all, part, bare || self->bare, here);
        Py_DECREF((PyObject *)parent);
        free(joined);
        return ok;
    }
    ct_tensor *before = malloc((n + 1) * sizeof *before);
    if (!before) return PyErr_NoMemory();
    before[0] = tensor_value((PyObject *)self, here);
    if (bare) {
        part = ct_stop_gradient_at(part, here);
        before[0] = ct_stop_gradient_at(before[0], here);
    }
    for (size_t i = 0; i + 1 < n; i++) before[i + 1] = move_forward(&moves[i], before[i], here);
    ct_tensor whole = part;
    for (size_t i = n; i-- > 0;) {
        size_t first = 0;
        while (first <= i && !moves_repeat(&moves[first], 1)) first++;
        if (first <= i && moves[i].kind < MOVE_REAL) {
            whole = moves_put(&moves[first], i + 1 - first, before[first], whole, here);
            i = first;
        } else {
            whole = move_backward(&moves[i], before[i], whole, here);
        }
    }
    free(before);
    if (whole.bits == part.bits && ct_ok(part)) whole = same_value(part, here);
    return write_value(self, whole, bare, here);
}

// Where histories are not kept a tensor's own stays, as in PyTorch: the value is another one, its gradient is not.
static ct_tensor keep_history(const tensor_object *self, ct_tensor value, bool bare, ct_loc here) {
    if (self->set || !(bare || !grad_enabled()) || !tensor_is_own((PyObject *)(uintptr_t)self) ||
        !ct_is_tracked(self->handle))
        return value;
    const ct_tensor both[2] = {self->handle, ct_stop_gradient_at(value, here)};
    ct_custom_vjp_at(valued, valued_vjp, NULL, both, 2, &value, 1, here);
    return value;
}

static bool write_value(tensor_object *self, ct_tensor value, bool bare, ct_loc here) {
    if (value.bits == self->handle.bits || value.bits == self->shared.bits)
        return true; // nothing was put into it
    if (self->parent) {
        tensor_object *parent = self->parent;
        Py_INCREF((PyObject *)parent);
        const bool ok = write_part(parent, self->moves, self->n_moves, value,
                                   bare || self->bare || self->set, here);
        if (!autograd_has_hooks(parent))
            self->seen = parent->version; // else gradients go by way of the parent
        Py_DECREF((PyObject *)parent);
        if (!ok) return false;
    }
    return take_value(self, keep_history(self, value, bare, here), here) && written(self, here);
}

bool tensor_write_part(PyObject *o, const move *moves, size_t n, ct_tensor part, ct_loc here) {
    tensor_object *self = (tensor_object *)o;
    if (!ct_ok(tensor_handle(o)) || !ct_ok(part)) return raise_failure();
    return may_write(self, moves, n) && write_part(self, moves, n, part, false, here);
}

bool view_is(PyObject *o, PyObject *parent, const move *moves, size_t n) {
    const tensor_object *self = (tensor_object *)o;
    if ((PyObject *)self->parent != parent || self->n_moves != n ||
        self->seen != self->parent->version)
        return false;
    for (size_t i = 0; i < n; i++) {
        const move *a = &self->moves[i], *b = &moves[i];
        const size_t lists = a->kind == MOVE_SLICE ? 4 : 1;
        if (a->kind != b->kind || a->n != b->n ||
            memcmp(a->list[0], b->list[0], lists * a->n * sizeof *a->list[0]) != 0)
            return false;
    }
    return true;
}

static int width(ct_dtype dtype) { // what cannot hold what: bool, integers, floats, complex
    const char kind = dtype_kind(dtype);
    return kind == 'b' ? 0 : kind == 'i' || kind == 'u' ? 1 : kind == 'f' ? 2 : 3;
}

bool tensor_write(PyObject *o, ct_tensor value, ct_loc here) {
    tensor_object *self = (tensor_object *)o;
    ct_tensor is = tensor_value(o, here);
    if (!ct_ok(value) || !ct_ok(is)) return raise_failure();
    if (!may_write(self, NULL, 0)) return false;
    value = place_beside(value, is, here);
    const ct_dtype to = ct_dtype_of(is), from = ct_dtype_of(value);
    if (width(from) > width(to)) {
        PyErr_Format(PyExc_RuntimeError,
                     "a tensor of %s is written in its place, it cannot hold %s", dtype_text(to),
                     dtype_text(from));
        return false;
    }
    value = with_shape_of(value, is, true, here);
    if (from != to) value = ct_cast_at(value, to, here);
    if (!ct_ok(value)) return raise_failure();
    return write_value(self, value, false, here);
}

// ------------------------------------------------------------------------------------------- Python

// _view(x, (("slice", axes, start, stop, step), ("permute", axes), ("reshape", sizes), ("expand", sizes)))
static PyObject *view(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *o, *list;
    size_t n;
    const ct_loc here = enter();
    if (!PyArg_ParseTuple(args, "O!O!:_view", tensor_type, &o, &PyTuple_Type, &list)) return NULL;
    move *moves = moves_parse(list, &n);
    return moves ? view_new(o, moves, n, here) : NULL;
}

// _turn(x, moves): x itself becomes the view of what it was.
static PyObject *turn(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *o, *list;
    size_t n;
    const ct_loc here = enter();
    if (!PyArg_ParseTuple(args, "O!O!:_turn", tensor_type, &o, &PyTuple_Type, &list)) return NULL;
    tensor_object *self = (tensor_object *)o;
    if (self->twin && Py_REFCNT((PyObject *)self->twin) == 1) forget_twin(self);
    if (self->set || self->children || self->twin) {
        PyErr_SetString(PyExc_RuntimeError,
                        self->set
                            ? "the axes of a leaf that requires gradients, or did, cannot be "
                              "changed in its place"
                            : "the axes of a tensor of which there are views cannot be "
                              "changed in its place\n  hint: x = x.unsqueeze(0), and the like");
        return NULL;
    }
    move *moves = moves_parse(list, &n);
    if (!moves) return NULL;
    ct_tensor t = tensor_value(o, here), first = t;
    for (size_t i = 0; i < n; i++) t = move_forward(&moves[i], t, here);
    if (t.bits == first.bits && ct_ok(t)) t = same_value(t, here);
    move *all = realloc(self->moves, (self->n_moves + n + 1) * sizeof *all);
    if (all) self->moves = all;
    if (!all || !tensor_rename(self, t, here)) {
        moves_free(moves, n);
        return all ? NULL : PyErr_NoMemory();
    }
    if (self->parent) {
        memcpy(all + self->n_moves, moves, n * sizeof *moves);
        self->n_moves += n;
        free(moves);
    } else {
        moves_free(moves, n);
    }
    self->version++;
    Py_INCREF(o);
    return o;
}

// _detached(x): x.detach() as an object of x's own class.
static PyObject *detached(PyObject *module, PyObject *o) {
    (void)module;
    if (!tensor_check(o)) return PyErr_Format(PyExc_TypeError, "a Tensor is detached, not %R", o);
    return view_detached(o, Py_TYPE(o), enter());
}

// _snapshot(x): x's value, whatever is written to x later.
static PyObject *snapshot(PyObject *module, PyObject *o) {
    (void)module;
    const ct_loc here = enter();
    if (!tensor_check(o)) return PyErr_Format(PyExc_TypeError, "a Tensor has a value, not %R", o);
    return tensor_new(ct_stop_gradient_at(tensor_handle(o), here), here);
}

// _replace(x, value): x itself has the value, of any dtype and sizes, from now on; it is a leaf as before. Views of it
// keep what they were.
static PyObject *replace(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *o, *value;
    const ct_loc here = enter();
    if (!PyArg_ParseTuple(args, "O!O!:_replace", tensor_type, &o, tensor_type, &value)) return NULL;
    tensor_object *self = (tensor_object *)o;
    if (!tensor_handle(o).bits) return NULL;
    ct_tensor t = tensor_handle(value);
    if (!t.bits) return NULL;
    const tensor_object *given = (tensor_object *)value;
    const bool whole = given->bare && !given->n_moves && given->parent;
    if (whole && (given->parent == self || given->parent == self->twin))
        return Py_NewRef(o); // x.data += 1 has written it by now
    t = ct_stop_gradient_at(t, here);
    const bool is_set = self->set, tracked = is_set && ct_is_tracked(self->handle);
    const bool same = ct_dtype_of(t) == ct_dtype_of(self->handle) && same_sizes(t, self->handle);
    if (self->holder && !same) {
        refuse("data: a model's parameter keeps its dtype and its sizes");
        return NULL;
    }
    for (tensor_object *child; (child = self->children);) {
        if (!view_refresh(child, here)) return NULL;
        if (self->children == child) part_from_parent(child);
    }
    forget_twin(self);
    part_from_parent(self);
    const bool ok = is_set && same ? take_value(self, t, here)
                                   : tensor_rename(self, t, here) &&
                                         (!is_set || make_variable(o, tracked, here));
    if (!ok) return NULL;
    self->version++;
    Py_INCREF(o);
    return o;
}

static PyObject *copy_in_place(PyObject *self, PyObject *value) {
    const ct_loc here = enter();
    ct_tensor t;
    const ct_tensor is = tensor_value(self, here);
    if (!ct_ok(is)) return raise_failure(), NULL;
    if (!operand_for(value, ct_dtype_of(is), &t, here)) return NULL;
    if (tensor_check(value)) t = same_value(t, here); // a handle has one name
    if (!tensor_write(self, t, here)) return NULL;
    Py_INCREF(self);
    return self;
}

// _write(tensors, values): copy_ of all, or, where a signal's handler raises, of none.
static PyObject *write_all(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *to, *values;
    if (!PyArg_ParseTuple(args, "O!O!:_write", &PyList_Type, &to, &PyList_Type, &values))
        return NULL;
    bool ok = true;
    if (thread_others) whole_begin(); // what another thread has pending may be waited for
    for (Py_ssize_t i = 0; ok && i < PyList_Size(to); i++) {
        PyObject *done = copy_in_place(PyList_GetItem(to, i), PyList_GetItem(values, i));
        ok = done;
        Py_XDECREF(done);
    }
    if (thread_others) whole_end();
    if (!ok) return NULL;
    Py_RETURN_NONE;
}

static PyObject *get_version(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(((tensor_object *)self)->version);
}

PyMethodDef view_functions[] = {
    {"_view", view, METH_VARARGS, NULL},
    {"_turn", turn, METH_VARARGS, NULL},
    {"_detached", detached, METH_O, NULL},
    {"_snapshot", snapshot, METH_O, NULL},
    {"_replace", replace, METH_VARARGS, NULL},
    {"_write", write_all, METH_VARARGS, NULL},
    {0},
};
PyMethodDef view_methods[] = {
    {"copy_", copy_in_place, METH_O,
     "copy_($self, value)\n--\n\nWrites the value, broadcast and cast, in its place."},
    {"_version", get_version, METH_NOARGS, NULL},
    {0},
};
