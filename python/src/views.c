// Views, and writes in place. A buffer is never written: a write gives the tensor another value, and
// those that share it find out by its version.
#include "core.h"
#include "tensor.h"

#include <stdlib.h>
#include <string.h>

// ------------------------------------------------------------------------------------------- moves

bool move_new(move *to, int kind, const int64_t *const lists[4], size_t n) {
    int64_t *room = malloc((4 * n + 1) * sizeof *room);
    if (!room) return PyErr_NoMemory();
    *to = (move){.kind = kind, .n = n};
    for (int i = 0; i < 4; i++) {
        to->list[i] = room + (size_t)i * n;
        if (lists[i]) memcpy(to->list[i], lists[i], n * sizeof *room);
    }
    return true;
}
void moves_free(move *moves, size_t n) {
    for (size_t i = 0; i < n; i++) free(moves[i].list[0]);
    free(moves);
}

static ct_ints list_of(const move *m, int i) { return (ct_ints){(int64_t)m->n, m->list[i]}; }

// Axes whose step is negative are cut from the other end, then turned round.
static ct_tensor sliced(const move *m, ct_tensor t, ct_loc here) {
    int64_t start[CT_MAX_RANK], stop[CT_MAX_RANK], step[CT_MAX_RANK], turned[CT_MAX_RANK];
    int64_t n_turned = 0;
    for (size_t i = 0; i < m->n; i++) {
        start[i] = m->list[1][i], stop[i] = m->list[2][i], step[i] = m->list[3][i];
        if (step[i] > 0) continue;
        const int64_t n = (start[i] - stop[i] - step[i] - 1) / -step[i];
        stop[i] = start[i] + 1;
        start[i] += n > 0 ? (n - 1) * step[i] : 1;
        step[i] = -step[i];
        turned[n_turned++] = m->list[0][i];
    }
    const int64_t n = (int64_t)m->n;
    t = ct_slice_with((ct_slice_args){.x = t,
                                      .axes = list_of(m, 0),
                                      .start = {n, start},
                                      .stop = {n, stop},
                                      .step = {n, step},
                                      .here = here});
    return n_turned ? ct_flip_at(t, (ct_ints){n_turned, turned}, here) : t;
}

ct_tensor move_forward(const move *m, ct_tensor t, ct_loc here) {
    switch (m->kind) {
    case MOVE_SLICE: return sliced(m, t, here);
    case MOVE_PERMUTE: return ct_permute_at(t, list_of(m, 0), here);
    case MOVE_RESHAPE: return ct_reshape_at(t, list_of(m, 0), here);
    case MOVE_EXPAND: return ct_expand_at(t, list_of(m, 0), here);
    }
    return CT_NONE;
}

static ct_tensor with_shape_of(ct_tensor t, ct_tensor of, bool expand, ct_loc here) {
    int64_t dim[CT_MAX_RANK];
    const int rank = ct_rank(of);
    bool same = rank == ct_rank(t);
    for (int i = 0; i < rank; i++) {
        dim[i] = ct_dim(of, i);
        same = same && ct_dim(t, i) == dim[i];
    }
    if (same) return t;
    return expand ? ct_expand_at(t, (ct_ints){rank, dim}, here)
                  : ct_reshape_at(t, (ct_ints){rank, dim}, here);
}

static ct_tensor same_value(ct_tensor t, ct_loc here) { // by another handle: one has one name
    int64_t dim[CT_MAX_RANK];
    const int rank = ct_rank(t);
    for (int i = 0; i < rank; i++) dim[i] = ct_dim(t, i);
    return ct_reshape_at(t, (ct_ints){rank, dim}, here);
}

// `part` in the places of `whole` that a slice along one axis takes; each place is asked whether it is one.
static ct_tensor put_axis(ct_tensor whole, ct_tensor part, int axis, int64_t start, int64_t step,
                          ct_loc here) {
    int64_t flat[CT_MAX_RANK];
    const int rank = ct_rank(whole);
    const int64_t n = ct_dim(part, axis), size = ct_dim(whole, axis);
    for (int i = 0; i < rank; i++) flat[i] = i == axis ? size : 1;
    if (!n) return whole;
    if (step < 0) { // the same places from the other end
        part = ct_flip_at(part, (ct_ints){1, &(int64_t){axis}}, here);
        start += (n - 1) * step;
        step = -step;
    }
    ct_tensor place =
        ct_sub_at(ct_iota_at(CT_I64, (ct_ints){rank, flat}, axis, here), ct_i(start), here);
    ct_tensor from = ct_div_at(place, ct_i(step), here);
    ct_tensor inside =
        ct_and_at(ct_greater_equal_at(place, ct_i(0), here), ct_less_at(from, ct_i(n), here), here);
    if (step > 1)
        inside =
            ct_and_at(inside, ct_equal_at(ct_mod_at(place, ct_i(step), here), ct_i(0), here), here);
    // The part with zeros around and between its elements.
    ct_pad_args pad = {.here = here};
    int64_t low[CT_MAX_RANK] = {0}, high[CT_MAX_RANK] = {0}, gaps[CT_MAX_RANK] = {0};
    low[axis] = start;
    gaps[axis] = step - 1;
    high[axis] = size - start - ((n - 1) * step + 1);
    pad.low = (ct_ints){rank, low};
    pad.high = (ct_ints){rank, high};
    pad.interior = (ct_ints){rank, gaps};
    pad.x = part;
    pad.value = ct_scalar(0, ct_dtype_of(part));
    ct_tensor spread = ct_pad_with(pad);
    return ct_select_at(inside, spread, whole, here);
}

// What a slice of several axes replaces is put together axis by axis, innermost part first.
static ct_tensor put_slice(const move *m, size_t from, ct_tensor whole, ct_tensor part,
                           ct_loc here) {
    if (from == m->n) return part;
    const int axis = (int)m->list[0][from];
    move first = {.kind = MOVE_SLICE, .n = 1};
    for (int i = 0; i < 4; i++) first.list[i] = m->list[i] + from;
    ct_tensor inner = put_slice(m, from + 1, move_forward(&first, whole, here), part, here);
    return put_axis(whole, inner, axis, m->list[1][from], m->list[3][from], here);
}
// A window begins where an operand tells: other places make no other plan.
static ct_tensor put_window(const move *m, ct_tensor whole, ct_tensor part, ct_loc here) {
    const int64_t n = (int64_t)m->n;
    ct_tensor starts = n == 1 ? ct_scalar((double)m->list[1][0], CT_I64)
                              : ct_from_at(m->list[1], CT_I64, (ct_ints){1, &n}, here);
    starts = place_beside(starts, whole, here);
    return ct_dynamic_update_with((ct_dynamic_update_args){
        .x = whole, .update = part, .starts = starts, .axes = list_of(m, 0), .here = here});
}
static bool is_window(const move *m) {
    for (size_t i = 0; i < m->n; i++)
        if (m->list[3][i] != 1) return false;
    return true;
}

// The value before a move whose result becomes `part`.
static ct_tensor backward(const move *m, ct_tensor before, ct_tensor part, ct_loc here) {
    switch (m->kind) {
    case MOVE_SLICE:
        return is_window(m) ? put_window(m, before, part, here)
                            : put_slice(m, 0, before, part, here);
    case MOVE_RESHAPE: return with_shape_of(part, before, false, here);
    case MOVE_PERMUTE: {
        int64_t back[CT_MAX_RANK];
        for (size_t i = 0; i < m->n; i++) back[m->list[0][i]] = (int64_t)i;
        return ct_permute_at(part, (ct_ints){(int64_t)m->n, back}, here);
    }
    case MOVE_EXPAND: break;
    }
    return CT_NONE;
}

static bool repeats(const tensor_object *self) {
    for (const tensor_object *at = self; at; at = at->parent)
        for (size_t i = 0; i < at->n_moves; i++)
            if (at->moves[i].kind == MOVE_EXPAND) return true;
    return false;
}

// --------------------------------------------------------------------------------- parents, children

// A parent that nobody names any more is needed only where another child, or what it is a view of itself,
// could see a write: else the first child does not hold it, and from the second one on all do.
static void adopt(tensor_object *parent, tensor_object *child) {
    child->parent = parent;
    child->seen = parent->version;
    if (!parent->child && !parent->holds_children && !parent->parent) {
        parent->child = child;
        return;
    }
    if (parent->child) {
        parent->child->holds = true;
        Py_INCREF((PyObject *)parent);
        parent->child = NULL;
    }
    parent->holds_children = true;
    child->holds = true;
    Py_INCREF((PyObject *)parent);
}

void view_forget(tensor_object *self) {
    if (self->child) {
        self->child->parent = NULL;
        moves_free(self->child->moves, self->child->n_moves);
        self->child->moves = NULL;
        self->child->n_moves = 0;
        self->child = NULL;
    }
    tensor_object *parent = self->parent;
    self->parent = NULL;
    moves_free(self->moves, self->n_moves);
    self->moves = NULL;
    self->n_moves = 0;
    if (!parent) return;
    if (self->holds)
        Py_DECREF((PyObject *)parent);
    else
        parent->child = NULL;
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
    return data && elements == ct_size(t) ? ct_from_at(data, dtype, list_of(m, 0), here)
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

static bool refresh(tensor_object *self, tensor_object *parent, ct_loc here) {
    if (!view_refresh(parent, here)) return false;
    if (parent->version == self->seen) return true;
    PyObject *whole = (PyObject *)parent;
    ct_tensor t =
        self->bare || tensor_is_own(whole) ? tensor_handle(whole) : tensor_value(whole, here);
    if (!t.bits) return false;
    for (size_t i = 0; i < self->n_moves; i++) t = move_forward(&self->moves[i], t, here);
    if (self->bare) t = ct_stop_gradient_at(t, here);
    if (!tensor_rename(self, t, here)) return false;
    self->seen = parent->version;
    self->version++;
    return true;
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

// ------------------------------------------------------------------------------------------- writes

static bool may_write(const tensor_object *self) {
    const tensor_object *root = self;
    bool bare = self->bare;
    for (; root->parent; bare = bare || root->bare) root = root->parent;
    if (!bare && root->set && ct_is_tracked(root->handle) && grad_enabled()) {
        PyErr_SetString(PyExc_RuntimeError,
                        "a leaf that requires gradients is written in its place, which its "
                        "gradient would not know\n"
                        "  hint: with cotan.no_grad(): around it, or detach() before");
        return false;
    }
    if (repeats(self)) {
        PyErr_SetString(PyExc_RuntimeError,
                        "an expanded tensor is written, of which several elements are one\n"
                        "  hint: clone() before");
        return false;
    }
    return true;
}

static bool write_value(tensor_object *self, ct_tensor value, ct_loc here);

// `part` becomes what the moves make of the tensor's value.
static bool write_part(tensor_object *self, const move *moves, size_t n, ct_tensor part,
                       ct_loc here) {
    ct_tensor *before = malloc((n + 1) * sizeof *before);
    if (!before) return PyErr_NoMemory();
    before[0] = tensor_value((PyObject *)self, here);
    for (size_t i = 0; i + 1 < n; i++) before[i + 1] = move_forward(&moves[i], before[i], here);
    ct_tensor whole = part;
    for (size_t i = n; i-- > 0;) whole = backward(&moves[i], before[i], whole, here);
    free(before);
    if (whole.bits == part.bits && ct_ok(part)) whole = same_value(part, here);
    return write_value(self, whole, here);
}

static bool write_value(tensor_object *self, ct_tensor value, ct_loc here) {
    if (value.bits == self->handle.bits || value.bits == self->shared.bits)
        return true; // nothing was put into it
    if (self->parent) {
        tensor_object *parent = self->parent;
        Py_INCREF((PyObject *)parent);
        const bool ok = write_part(parent, self->moves, self->n_moves, value, here);
        self->seen = parent->version;
        Py_DECREF((PyObject *)parent);
        if (!ok) return false;
    } else if (self->set) {
        if (!tensor_handle((PyObject *)self).bits) return false;
        self->owner = thread_here();
        ct_assign_at(self->handle, value, here);
        self->version++;
        return !ct_failed() || raise_failure();
    }
    if (!tensor_rename(self, value, here)) return false;
    self->version++;
    return true;
}

bool tensor_write_part(PyObject *o, const move *moves, size_t n, ct_tensor part, ct_loc here) {
    tensor_object *self = (tensor_object *)o;
    if (!ct_ok(tensor_handle(o)) || !ct_ok(part)) return raise_failure();
    return may_write(self) && write_part(self, moves, n, part, here);
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
    if (!may_write(self)) return false;
    if (functions_tracing() && !self->traced && !self->set) {
        PyErr_SetString(PyExc_RuntimeError,
                        "a tensor from outside is written inside a traced function\n"
                        "  hint: return the value as a result, and write it outside");
        return false;
    }
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
    return write_value(self, value, here);
}

// ------------------------------------------------------------------------------------------- Python

static const char *const kinds[] = {"slice", "permute", "reshape", "expand"};

static bool parse_move(PyObject *o, move *to) {
    int64_t values[4][CT_MAX_RANK];
    const int64_t *const lists[4] = {values[0], values[1], values[2], values[3]};
    PyObject *name = PyTuple_Check(o) && PyTuple_Size(o) > 1 ? PyTuple_GetItem(o, 0) : NULL;
    for (int kind = 0; name && kind < 4; kind++) {
        if (PyUnicode_CompareWithASCIIString(name, kinds[kind]) != 0) continue;
        const int most = kind == MOVE_SLICE ? 4 : 1;
        size_t n = 0, each;
        for (int i = 0; i < most && i + 1 < PyTuple_Size(o); i++) {
            if (!parse_ints(PyTuple_GetItem(o, i + 1), values[i], CT_MAX_RANK, &each, kinds[kind]))
                return false;
            n = each;
        }
        return move_new(to, kind, lists, n);
    }
    PyErr_Format(PyExc_ValueError, "_view: %R is no movement", o);
    return false;
}

static move *parse_moves(PyObject *list, size_t *n) { // malloc's
    *n = (size_t)PyTuple_Size(list);
    move *moves = calloc(*n + 1, sizeof *moves);
    if (!moves) PyErr_NoMemory();
    for (size_t i = 0; moves && i < *n; i++)
        if (!parse_move(PyTuple_GetItem(list, (Py_ssize_t)i), &moves[i])) {
            moves_free(moves, i);
            return NULL;
        }
    return moves;
}

// _view(x, (("slice", axes, start, stop, step), ("permute", axes), ("reshape", sizes), ("expand", sizes)))
static PyObject *view(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *o, *list;
    size_t n;
    const ct_loc here = enter();
    if (!PyArg_ParseTuple(args, "O!O!:_view", tensor_type, &o, &PyTuple_Type, &list)) return NULL;
    move *moves = parse_moves(list, &n);
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
    if (self->set || self->child || self->holds_children) {
        PyErr_SetString(PyExc_RuntimeError,
                        self->set
                            ? "the axes of a leaf that requires gradients, or did, cannot be "
                              "changed in its place"
                            : "the axes of a tensor of which there are views cannot be "
                              "changed in its place\n  hint: x = x.unsqueeze(0), and the like");
        return NULL;
    }
    move *moves = parse_moves(list, &n);
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

// _bare(x): Tensor.data, a view without a history, whose writes no gradient knows of.
static PyObject *bare(PyObject *module, PyObject *o) {
    (void)module;
    const ct_loc here = enter();
    if (!tensor_check(o)) {
        PyErr_Format(PyExc_TypeError, "data is a Tensor's, not %R's", o);
        return NULL;
    }
    ct_tensor t = tensor_handle(o);
    if (!t.bits) return NULL;
    int64_t dim[CT_MAX_RANK];
    const int rank = ct_rank(t);
    for (int i = 0; i < rank; i++) dim[i] = ct_dim(t, i);
    move *moves = calloc(1, sizeof *moves);
    if (!moves || !move_new(moves, MOVE_RESHAPE, (const int64_t *const[4]){dim}, (size_t)rank)) {
        free(moves);
        return PyErr_NoMemory();
    }
    PyObject *view = view_new(o, moves, 1, here);
    tensor_object *self = (tensor_object *)view;
    if (self) self->bare = true;
    if (self && !tensor_rename(self, ct_stop_gradient_at(self->handle, here), here)) Py_CLEAR(view);
    return view;
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

static PyObject *get_version(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(((tensor_object *)self)->version);
}

PyMethodDef view_functions[] = {
    {"_view", view, METH_VARARGS, NULL},
    {"_turn", turn, METH_VARARGS, NULL},
    {"_bare", bare, METH_O, NULL},
    {0},
};
PyMethodDef view_methods[] = {
    {"copy_", copy_in_place, METH_O,
     "copy_($self, value)\n--\n\nWrites the value, broadcast and cast, in its place."},
    {"_version", get_version, METH_NOARGS, NULL},
    {0},
};
