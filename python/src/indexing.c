// Implements x[key] and x[key] = value, with NumPy's rules.
//
// Integers, slices, None and ... give views. For arrays of indices and masks, view ops bring the axes that
// they index together into one axis, along which a gather reads or a scatter writes.
#include "core.h"
#include "tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ITEMS = 3 * CT_MAX_RANK, MAX_VIEW_OPS = 4 };

// What one part of a key does to the axes `axis` to `axis + span - 1`.
typedef struct index_item {
    enum { ITEM_INT, ITEM_SLICE, ITEM_NEW, ITEM_GAP, ITEM_ARRAY } kind;
    int axis, span;             // span 0: the array has an axis of size 1 of its own
    int64_t start, count, step; // of integers and slices
    int64_t size;               // of arrays: the number of elements of their axes
    ct_tensor at;               // of arrays: the indices
    bool checked;               // the indices were checked: in bounds and not negative
} index_item;

typedef struct index_state {
    ct_tensor x;
    int rank;
    index_item items[MAX_ITEMS];
    int n, n_arrays, axes;         // axes: the number of x's axes that the items have used
    PyObject *kept[2 * MAX_ITEMS]; // arrays that no other Tensor holds
    int n_kept;
    ct_loc here;
    // The result: view ops to a value, then the axis and the indices of a gather from it.
    view_op *view_ops;
    size_t n_view_ops;
    int axis;
    ct_tensor gather_indices; // CT_NONE if there is no gather
} index_state;

typedef struct index_shape {
    int rank;
    int64_t v[CT_MAX_RANK];
} index_shape;
static index_shape index_shape_of(ct_tensor t) {
    index_shape d = {.rank = ct_rank(t)};
    for (int i = 0; i < d.rank; i++) d.v[i] = ct_dim(t, i);
    return d;
}
static ct_ints index_shape_ints(const index_shape *d) { return (ct_ints){d->rank, d->v}; }

typedef struct shape_text {
    char s[24 * CT_MAX_RANK];
} shape_text;
static shape_text index_shape_text(const index_shape *d) { // "(2,3)"
    shape_text text = {"("};
    size_t used = 1;
    for (int i = 0; i < d->rank; i++)
        used += (size_t)snprintf(text.s + used, sizeof text.s - used, i ? ",%lld" : "%lld",
                                 (long long)d->v[i]);
    snprintf(text.s + used, sizeof text.s - used, d->rank == 1 ? ",)" : ")");
    return text;
}

// ---------------------------------------------------------------------------------- parts of a key

static bool index_is_mask(PyObject *o) {
    return tensor_check(o) && ct_dtype_of(tensor_peek(o)) == CT_BOOL;
}

typedef struct key_part {
    PyObject *o;
    enum { PART_ELLIPSIS, PART_NONE, PART_BOOL, PART_SLICE, PART_INT, PART_ARRAY } kind;
    int axes; // the number of axes that it indexes
    int64_t at;
    ct_tensor array;
    bool checked; // its values were known before; else they are data
} key_part;

// Holds an array that only the key refers to: a read may run what is pending and free it.
static bool index_keep_alive(index_state *x, ct_tensor *t) {
    PyObject *name = ct_ok(*t) ? tensor_new(*t, x->here) : raise_error();
    if (!name) return false;
    x->kept[x->n_kept++] = name;
    *t = tensor_handle(name);
    return true;
}

static bool index_raise_invalid(void) {
    return PyErr_Format(
        PyExc_IndexError,
        "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer "
        "or boolean arrays are valid indices");
}

static bool index_parse_array(index_state *x, key_part *p) {
    PyObject *o = p->o;
    p->kind = PART_ARRAY;
    p->axes = 1;
    p->checked = !tensor_check(o);
    if (!p->checked) {
        p->array = tensor_handle(o);
    } else if (PyUnicode_Check(o) || PyBytes_Check(o) ||
               !operand_parse_strong(o, &p->array, x->here)) {
        if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError)) return false;
        PyErr_Clear();
        return index_raise_invalid();
    }
    if (p->checked && !index_keep_alive(x, &p->array)) return false;
    if (ct_dtype_of(p->array) == CT_U8 && (ct_size(p->array) || !p->checked))
        return PyErr_Format(PyExc_IndexError,
                            "an index of uint8: PyTorch takes it as a mask, NumPy as numbers\n"
                            "  hint: a mask is bool (index != 0), numbers are int64");
    const char kind = dtype_kind(ct_dtype_of(p->array));
    if (kind == 'b') p->axes = ct_rank(p->array);
    if (kind == 'b' || kind == 'i' || kind == 'u') return true;
    if (p->checked && ct_size(p->array) == 0) { // an empty list has no dtype of its elements
        const index_shape d = index_shape_of(p->array);
        p->array = ct_zeros_at(CT_I64, index_shape_ints(&d), x->here);
        return index_keep_alive(x, &p->array);
    }
    if (is_number(o) || PyList_Check(o) || PyTuple_Check(o)) return index_raise_invalid();
    return PyErr_Format(PyExc_IndexError,
                        "arrays used as indices must be of integer (or boolean) type");
}

static bool index_parse_part(index_state *x, key_part *p) {
    PyObject *o = p->o;
    p->axes = 0;
    if (o == Py_Ellipsis || o == Py_None || PyBool_Check(o)) {
        p->kind = o == Py_Ellipsis ? PART_ELLIPSIS : o == Py_None ? PART_NONE : PART_BOOL;
        return true;
    }
    p->axes = 1;
    p->kind = PySlice_Check(o) ? PART_SLICE : PART_INT;
    if (p->kind == PART_SLICE) return true;
    PyObject *number =
        !tensor_check(o) && !PyList_Check(o) && PyIndex_Check(o) ? PyNumber_Index(o) : NULL;
    if (number) {
        p->at = PyNumber_AsSsize_t(number, PyExc_IndexError);
        Py_DECREF(number);
        if (p->at != -1 || !PyErr_Occurred()) return true;
        PyErr_Clear();
        return index_raise_invalid();
    }
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError)) return false;
    PyErr_Clear(); // an array of several elements
    return index_parse_array(x, p);
}

static int64_t index_read_element(ct_dtype dtype, const void *data, int64_t i) {
    switch (dtype) {
    case CT_U8: return ((const uint8_t *)data)[i];
    case CT_U16: return ((const uint16_t *)data)[i];
    case CT_U32: return ((const uint32_t *)data)[i];
    case CT_I8: return ((const int8_t *)data)[i];
    case CT_I16: return ((const int16_t *)data)[i];
    case CT_I32: return ((const int32_t *)data)[i];
    default: return ((const int64_t *)data)[i];
    }
}

static bool index_check_bounds(int64_t at, int axis, int64_t size) {
    if (at >= -size && at < size) return true;
    return PyErr_Format(PyExc_IndexError, "index %lld is out of bounds for axis %d with size %lld",
                        (long long)at, axis, (long long)size);
}

// Checks indices whose values are known: they must be in bounds, and become indices from the start.
static bool index_normalize_data(index_state *x, index_item *m) {
    const int64_t n = ct_size(m->at);
    const ct_dtype dtype = ct_dtype_of(m->at);
    const index_shape d = index_shape_of(m->at);
    if (!n) return true;
    const void *data = ct_data_at(m->at, x->here);
    if (!data) return raise_error();
    int64_t *from_start = NULL;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = index_read_element(dtype, data, i);
        if (!index_check_bounds(at, m->axis, m->size)) {
            free(from_start);
            return false;
        }
        if (at < 0 && !from_start) {
            from_start = malloc((size_t)n * sizeof *from_start);
            if (!from_start) return PyErr_NoMemory();
            for (int64_t k = 0; k < i; k++) from_start[k] = index_read_element(dtype, data, k);
        }
        if (from_start) from_start[i] = at < 0 ? at + m->size : at;
    }
    if (!from_start) return true;
    m->at = move_to_device_of(ct_from_at(from_start, CT_I64, index_shape_ints(&d), x->here), x->x,
                              x->here);
    free(from_start);
    return index_keep_alive(x, &m->at);
}

static index_item *index_add_item(index_state *x, int kind) {
    if (x->n == MAX_ITEMS) {
        PyErr_SetString(PyExc_IndexError, "the key has too many parts");
        return NULL;
    }
    x->items[x->n] = (index_item){.kind = kind, .axis = x->axes};
    return &x->items[x->n++];
}

// A mask becomes the indices of its true elements, counted through all its axes.
static bool index_add_mask(index_state *x, ct_tensor mask) {
    const index_shape d = index_shape_of(mask);
    for (int i = 0; i < d.rank; i++) {
        const int64_t size = ct_dim(x->x, x->axes + i);
        if (d.v[i] != size)
            return PyErr_Format(
                PyExc_IndexError,
                "boolean index did not match indexed array along axis %d; size of axis is "
                "%lld but size of corresponding boolean axis is %lld",
                x->axes + i, (long long)size, (long long)d.v[i]);
    }
    index_item *m = index_add_item(x, ITEM_ARRAY);
    if (!m) return false;
    const int64_t size = ct_size(mask);
    const char *data = size ? ct_data_at(mask, x->here) : "";
    if (!data) return raise_error();
    int64_t *indices = malloc(((size_t)size + 1) * sizeof *indices), n = 0;
    if (!indices) return PyErr_NoMemory();
    for (int64_t i = 0; i < size; i++)
        if (data[i]) indices[n++] = i;
    m->span = d.rank;
    m->size = size;
    m->at =
        move_to_device_of(ct_from_at(indices, CT_I64, (ct_ints){1, &n}, x->here), x->x, x->here);
    m->checked = true;
    free(indices);
    x->axes += d.rank;
    x->n_arrays++;
    return index_keep_alive(x, &m->at);
}

static bool index_add_array(index_state *x, const key_part *p) {
    if (ct_dtype_of(p->array) == CT_BOOL) return index_add_mask(x, p->array);
    index_item *m = index_add_item(x, ITEM_ARRAY);
    if (!m) return false;
    m->span = 1;
    m->size = ct_dim(x->x, x->axes++);
    m->at = p->array;
    m->checked = p->checked;
    x->n_arrays++;
    if (p->checked && !index_normalize_data(x, m)) return false;
    const ct_tensor at = move_to_device_of(m->at, x->x, x->here);
    if (at.bits == m->at.bits) return true;
    m->at = at;
    return index_keep_alive(x, &m->at);
}

static bool index_add_bool(index_state *x, bool holds) {
    index_item *m = index_add_item(x, ITEM_ARRAY);
    if (!m) return false;
    m->size = 1;
    m->at = ct_zeros_at(CT_I64, (ct_ints){1, &(int64_t){holds}}, x->here);
    m->checked = true;
    x->n_arrays++;
    return index_keep_alive(x, &m->at);
}

static bool index_add_int(index_state *x, int64_t at) {
    const int64_t size = ct_dim(x->x, x->axes);
    if (!index_check_bounds(at, x->axes, size)) return false;
    index_item *m = index_add_item(x, ITEM_INT);
    if (!m) return false;
    m->start = at < 0 ? at + size : at;
    m->span = 1;
    m->count = m->step = 1;
    x->axes++;
    return true;
}

static bool index_add_slice(index_state *x, PyObject *part) {
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(part, &start, &stop, &step) < 0) return false;
    index_item *m = index_add_item(x, ITEM_SLICE);
    if (!m) return false;
    m->count = PySlice_AdjustIndices((Py_ssize_t)ct_dim(x->x, x->axes), &start, &stop, step);
    m->start = m->count ? start : 0;
    m->step = m->count > 1 ? step : 1;
    m->span = 1;
    x->axes++;
    return true;
}

static bool index_add_full_axes(index_state *x, int count) {
    for (int i = 0; i < count; i++) {
        index_item *m = index_add_item(x, ITEM_SLICE);
        if (!m) return false;
        m->count = ct_dim(x->x, x->axes++);
        m->step = m->span = 1;
    }
    return true;
}

static bool index_add_part(index_state *x, const key_part *p, int n_free_axes) {
    switch (p->kind) {
    case PART_ELLIPSIS: return index_add_item(x, ITEM_GAP) && index_add_full_axes(x, n_free_axes);
    case PART_NONE: return index_add_item(x, ITEM_NEW);
    case PART_BOOL: return index_add_bool(x, p->o == Py_True);
    case PART_SLICE: return index_add_slice(x, p->o);
    case PART_INT: return index_add_int(x, p->at);
    default: return index_add_array(x, p);
    }
}

static bool index_evaluate(PyObject *o, ct_loc here) {
    const ct_tensor t = tensor_handle(o);
    thread_get()->reads++;
    return t.bits && (!tensor_is_usable_here(o) || run_eval(&t, 1, here));
}

static bool index_parse_parts(index_state *x, key_part *parts, Py_ssize_t n) {
    int taken = 0, gaps = 0;
    // Masks are read first: a read frees values that no Tensor holds yet.
    for (Py_ssize_t i = 0; i < n; i++)
        if (index_is_mask(parts[i].o) && !index_evaluate(parts[i].o, x->here)) return false;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (!index_parse_part(x, &parts[i])) return false;
        taken += parts[i].axes;
        gaps += parts[i].kind == PART_ELLIPSIS;
    }
    if (gaps > 1)
        return PyErr_Format(PyExc_IndexError, "an index can only have a single ellipsis ('...')");
    if (taken > x->rank)
        return PyErr_Format(
            PyExc_IndexError,
            "too many indices for array: array is %d-dimensional, but %d were indexed", x->rank,
            taken);
    for (Py_ssize_t i = 0; i < n; i++)
        if (!index_add_part(x, &parts[i], x->rank - taken)) return false;
    return index_add_full_axes(x, x->rank - x->axes);
}

// ---------------------------------------------------------------------------------------- view ops

static bool index_add_view_op(index_state *x, int kind, const int64_t *const lists[4], int n) {
    if (!view_op_new(&x->view_ops[x->n_view_ops], kind, lists, (size_t)n)) return false;
    x->n_view_ops++;
    return true;
}

static bool index_add_slice_op(index_state *x) {
    int64_t axes[CT_MAX_RANK], start[CT_MAX_RANK], stop[CT_MAX_RANK], step[CT_MAX_RANK];
    int n = 0;
    for (int i = 0; i < x->n; i++) {
        const index_item *m = &x->items[i];
        if (m->kind > ITEM_SLICE ||
            (m->start == 0 && m->step == 1 && m->count == ct_dim(x->x, m->axis)))
            continue;
        axes[n] = m->axis, start[n] = m->start, step[n] = m->step;
        stop[n++] = m->count ? m->start + (m->count - 1) * m->step + (m->step < 0 ? -1 : 1) : 0;
    }
    const int64_t *const lists[4] = {axes, start, stop, step};
    return !n || index_add_view_op(x, VIEW_SLICE, lists, n);
}

static bool index_add_reshape_op(index_state *x, const index_shape *before, const index_shape *to) {
    if (before->rank == to->rank && !memcmp(before->v, to->v, (size_t)to->rank * sizeof *to->v))
        return true;
    const int64_t *const lists[4] = {to->v};
    return index_add_view_op(x, VIEW_RESHAPE, lists, to->rank);
}

static bool index_append_dim(index_shape *to, int64_t size) {
    if (to->rank == CT_MAX_RANK)
        return PyErr_Format(PyExc_IndexError,
                            "the index makes more axes than %d, which is the most a tensor has",
                            CT_MAX_RANK);
    to->v[to->rank++] = size;
    return true;
}

// True if integers and arrays are next to each other in the key. Otherwise the arrays' axes come first in the
// result.
static bool index_arrays_are_adjacent(const index_state *x) {
    int state = 0; // 0 before, 1 at, 2 after them
    for (int i = 0; i < x->n; i++) {
        const bool picks = x->items[i].kind == ITEM_INT || x->items[i].kind == ITEM_ARRAY;
        if (picks && state == 2) return false;
        if (picks || state == 1) state = picks ? 1 : 2;
    }
    return true;
}

// Builds the view ops: the arrays' axes become one axis, at the position of the first of them or at the
// front.
static bool index_build_view_ops(index_state *x) {
    index_shape sliced = {0}, unmerged = {0}, merged = {0};
    const bool adjacent = index_arrays_are_adjacent(x);
    int64_t order[CT_MAX_RANK], merged_size = 1;
    int n_order = 0;
    bool in_order = true;
    x->view_ops = malloc(MAX_VIEW_OPS * sizeof *x->view_ops);
    if (!x->view_ops) return PyErr_NoMemory();
    if (!index_add_slice_op(x)) return false;
    for (int i = 0; i < x->n; i++) {
        const index_item *m = &x->items[i];
        for (int k = 0; k < m->span; k++)
            sliced.v[sliced.rank++] = m->kind == ITEM_ARRAY ? ct_dim(x->x, m->axis + k) : m->count;
        if (m->kind == ITEM_INT || m->kind == ITEM_GAP) continue;
        if (m->kind == ITEM_ARRAY) order[n_order++] = unmerged.rank;
        if (m->kind == ITEM_ARRAY) merged_size *= m->size;
        if (!index_append_dim(&unmerged, m->kind == ITEM_ARRAY ? m->size
                                         : m->kind == ITEM_NEW ? 1
                                                               : m->count))
            return false;
    }
    x->axis = adjacent && x->n_arrays ? (int)order[0] : 0;
    if (!x->n_arrays) return index_add_reshape_op(x, &sliced, &unmerged);
    const int n_arrays = n_order;
    if (!adjacent) merged.v[merged.rank++] = merged_size;
    for (int a = 0, k = 0; a < unmerged.rank; a++) {
        if (k < n_arrays && order[k] == a) {
            if (k == 0 && adjacent) merged.v[merged.rank++] = merged_size;
            k++;
            continue;
        }
        merged.v[merged.rank++] = unmerged.v[a];
        order[n_order++] = a;
    }
    if (adjacent) return index_add_reshape_op(x, &sliced, &merged);
    for (int a = 0; a < n_order; a++) in_order = in_order && order[a] == a;
    if (in_order) return index_add_reshape_op(x, &sliced, &merged);
    index_shape permuted = {.rank = unmerged.rank};
    for (int a = 0; a < n_order; a++) permuted.v[a] = unmerged.v[order[a]];
    const int64_t *const lists[4] = {order};
    return index_add_reshape_op(x, &sliced, &unmerged) &&
           index_add_view_op(x, VIEW_PERMUTE, lists, n_order) &&
           index_add_reshape_op(x, &permuted, &merged);
}

// ----------------------------------------------------------------------------------------- indices

// Wraps indices that are data: negative ones count from the end. An index out of bounds reads the nearest
// element, and writes none: `valid` is true where it is in bounds.
static ct_tensor index_wrap_indices(const index_item *m, bool write, ct_tensor *valid,
                                    ct_loc here) {
    ct_tensor at = ct_cast_at(m->at, CT_I64, here), size = ct_scalar((double)m->size, CT_I64);
    ct_tensor zero = ct_scalar(0, CT_I64);
    at = ct_select_at(ct_less_at(at, zero, here), ct_add_at(at, size, here), at, here);
    if (write) {
        ct_tensor here_valid =
            ct_and_at(ct_greater_equal_at(at, zero, here), ct_less_at(at, size, here), here);
        *valid = valid->bits ? ct_and_at(*valid, here_valid, here) : here_valid;
        return at;
    }
    ct_tensor last = ct_scalar((double)(m->size - 1), CT_I64);
    return ct_maximum_at(ct_minimum_at(at, last, here), zero, here);
}

static bool index_arrays_broadcast(const index_state *x) {
    index_shape all = {0};
    char shapes[512] = "";
    size_t used = 0;
    bool fit = true;
    for (int i = 0; i < x->n; i++) {
        if (x->items[i].kind != ITEM_ARRAY) continue;
        const index_shape d = index_shape_of(x->items[i].at);
        // A mask counts as an array for each of its axes.
        for (int k = 0; (k == 0 || k < x->items[i].span) && used < sizeof shapes; k++)
            used += (size_t)snprintf(shapes + used, sizeof shapes - used, "%s ",
                                     index_shape_text(&d).s);
        index_shape sum = {.rank = d.rank > all.rank ? d.rank : all.rank};
        for (int a = 1; a <= sum.rank; a++) {
            const int64_t one = a > d.rank ? 1 : d.v[d.rank - a];
            const int64_t other = a > all.rank ? 1 : all.v[all.rank - a];
            fit = fit && (one == other || one == 1 || other == 1);
            sum.v[sum.rank - a] = one == 1 ? other : one;
        }
        all = sum;
    }
    return fit ||
           PyErr_Format(PyExc_IndexError,
                        "shape mismatch: indexing arrays could not be broadcast together with "
                        "shapes %s",
                        shapes);
}

// Makes the indices along the one axis that the arrays' axes have become.
static bool index_combine_arrays(index_state *x, bool write) {
    int64_t stride = 1;
    ct_tensor valid = CT_NONE;
    if (!index_arrays_broadcast(x)) return false;
    for (int i = x->n; i-- > 0;) { // the last array's index varies fastest
        const index_item *m = &x->items[i];
        if (m->kind != ITEM_ARRAY) continue;
        ct_tensor at = m->checked ? m->at : index_wrap_indices(m, write, &valid, x->here);
        if (x->n_arrays > 1) {
            at = ct_cast_at(at, CT_I64, x->here);
            if (stride != 1) at = ct_mul_at(at, ct_scalar((double)stride, CT_I64), x->here);
        }
        x->gather_indices = x->gather_indices.bits ? ct_add_at(at, x->gather_indices, x->here) : at;
        stride *= m->size;
    }
    if (valid.bits)
        x->gather_indices = ct_select_at(valid, x->gather_indices, ct_scalar(-1, CT_I64), x->here);
    return ct_ok(x->gather_indices) || raise_error();
}

// ------------------------------------------------------------------------------------- get and set

static void index_free(index_state *x) {
    view_ops_free(x->view_ops, x->n_view_ops);
    x->view_ops = NULL;
    x->n_view_ops = 0;
    while (x->n_kept) Py_DECREF(x->kept[--x->n_kept]);
}

static PyObject *index_key_tuple(PyObject *key) { // Returns a new reference.
    return PyTuple_Check(key) ? Py_NewRef(key) : PyTuple_Pack(1, key);
}

static bool index_parse_key(index_state *x, PyObject *self, PyObject *key, bool write) {
    key_part parts[MAX_ITEMS];
    PyObject *tuple = index_key_tuple(key);
    const Py_ssize_t n = tuple ? PyTuple_Size(tuple) : 0;
    x->x = tensor_handle(self);
    x->rank = ct_rank(x->x);
    bool ok = tuple && (ct_ok(x->x) || raise_error());
    if (n > MAX_ITEMS) ok = PyErr_Format(PyExc_IndexError, "the key has too many parts");
    for (Py_ssize_t i = 0; ok && i < n; i++) parts[i].o = PyTuple_GetItem(tuple, i);
    ok = ok && index_parse_parts(x, parts, n) && index_build_view_ops(x) &&
         (!x->n_arrays || index_combine_arrays(x, write));
    Py_XDECREF(tuple);
    if (!ok) index_free(x);
    return ok;
}

static ct_tensor index_apply_view_ops(const index_state *x, ct_tensor t) {
    for (size_t i = 0; i < x->n_view_ops; i++) t = view_op_apply(&x->view_ops[i], t, x->here);
    return t;
}

PyObject *index_get(PyObject *self, PyObject *key) {
    index_state x = {.here = api_enter()};
    if (!index_parse_key(&x, self, key, false)) return NULL;
    if (!x.gather_indices.bits) return view_new(self, x.view_ops, x.n_view_ops, x.here);
    ct_tensor t =
        ct_gather_with((ct_gather_args){.x = index_apply_view_ops(&x, tensor_value(self, x.here)),
                                        .indices = x.gather_indices,
                                        .axis = x.axis,
                                        .here = x.here});
    PyObject *got = tensor_new(t, x.here);
    index_free(&x);
    return got;
}

// Gives the value the sizes and the dtype of its destination; extra leading axes of size 1 are dropped.
static bool index_fit_value(ct_tensor *value, const index_shape *to, ct_dtype dtype, bool picked,
                            ct_loc here) {
    const index_shape d = index_shape_of(*value);
    index_shape from = d;
    while (from.rank > to->rank && from.v[0] == 1)
        memmove(from.v, from.v + 1, (size_t)--from.rank * sizeof *from.v);
    bool fits = from.rank <= to->rank, same = from.rank == to->rank;
    for (int a = 1; fits && a <= from.rank; a++) {
        const int64_t one = from.v[from.rank - a], other = to->v[to->rank - a];
        fits = one == other || one == 1;
        same = same && one == other;
    }
    if (!fits)
        return PyErr_Format(
            PyExc_ValueError,
            picked ? "shape mismatch: value array of shape %s could not be broadcast to "
                     "indexing result of shape %s"
                   : "could not broadcast input array from shape %s into shape %s",
            index_shape_text(&d).s, index_shape_text(to).s);
    if (from.rank != d.rank) *value = ct_reshape_at(*value, index_shape_ints(&from), here);
    *value = ct_cast_at(*value, dtype, here);
    if (!same) *value = ct_expand_at(*value, index_shape_ints(to), here);
    return ct_ok(*value) || raise_error();
}

// Returns the shape that the key selects.
static index_shape index_result_shape(const index_state *x, ct_tensor part) {
    index_shape to = {0};
    const index_shape d = index_shape_of(part), at = index_shape_of(x->gather_indices);
    if (!x->gather_indices.bits) return d;
    for (int a = 0; a < d.rank; a++) {
        if (a != x->axis) to.v[to.rank++] = d.v[a];
        for (int i = 0; a == x->axis && i < at.rank && to.rank < CT_MAX_RANK; i++)
            to.v[to.rank++] = at.v[i];
    }
    return to;
}

static bool index_write_parts(PyObject *self, index_state *x, PyObject *value, bool add) {
    ct_tensor v, is = tensor_value(self, x->here);
    if (!ct_ok(is)) return raise_error();
    if (!operand_parse_for(value, ct_dtype_of(is), &v, x->here)) return false;
    if (!ct_ok(v)) return raise_error();
    v = move_to_device_of(v, is, x->here);
    ct_tensor part = index_apply_view_ops(x, is);
    const index_shape to = index_result_shape(x, part);
    if (!index_fit_value(&v, &to, ct_dtype_of(is), x->gather_indices.bits, x->here)) return false;
    if (x->gather_indices.bits) {
        ct_scatter_args args = {.x = part,
                                .indices = x->gather_indices,
                                .updates = v,
                                .axis = x->axis,
                                .mode = CT_MODE_DROP,
                                .here = x->here};
        ct_scatter_add_args sum = {.x = part,
                                   .indices = x->gather_indices,
                                   .updates = v,
                                   .axis = x->axis,
                                   .mode = CT_MODE_DROP,
                                   .here = x->here};
        v = add ? ct_scatter_add_with(sum) : ct_scatter_with(args);
    }
    return x->n_view_ops ? tensor_write_view(self, x->view_ops, x->n_view_ops, v, x->here)
                         : tensor_write(self, v, x->here);
}

// Writes x[mask] = value where the value is the same for all rows: a select, without reading the mask.
// Returns true with *done false if it does not apply; false with an exception set, or if the caller finds the
// error.
static bool index_write_masked(PyObject *self, PyObject *key, PyObject *value, bool *done,
                               ct_loc here) {
    if (PyTuple_Check(key) && PyTuple_Size(key) == 1) key = PyTuple_GetItem(key, 0);
    if (!index_is_mask(key)) return true;
    ct_tensor x = tensor_value(self, here), mask = tensor_handle(key), v;
    if (!x.bits || !mask.bits) return false;
    const index_shape d = index_shape_of(x), m = index_shape_of(mask);
    bool fits = m.rank <= d.rank;
    for (int a = 0; fits && a < m.rank; a++) fits = m.v[a] == d.v[a];
    if (!fits || !operand_parse_for(value, ct_dtype_of(x), &v, here))
        return !fits; // index_write() reports what is wrong
    const index_shape of = index_shape_of(v);
    const int rest = d.rank - m.rank;
    if (of.rank > rest + 1 || (of.rank == rest + 1 && of.v[0] != 1)) return true;
    index_shape to = {.rank = rest}, all = {.rank = d.rank};
    for (int a = 0; a < d.rank; a++) {
        all.v[a] = a < m.rank ? m.v[a] : 1;
        if (a >= m.rank) to.v[a - m.rank] = d.v[a];
    }
    if (!index_fit_value(&v, &to, ct_dtype_of(x), true, here)) return false;
    *done = true;
    mask = ct_reshape_at(mask, index_shape_ints(&all), here);
    return tensor_write(self, ct_select_at(mask, v, x, here), here);
}

static bool index_write(PyObject *self, PyObject *key, PyObject *value, bool add) {
    index_state x = {.here = api_enter()};
    bool done = false;
    if (!add && !index_write_masked(self, key, value, &done, x.here)) return false;
    if (done) return true;
    if (!index_parse_key(&x, self, key, true)) return false;
    // x[i] += 1 has already written the view of x.
    const bool written = !x.gather_indices.bits && tensor_check(value) &&
                         view_matches(value, self, x.view_ops, x.n_view_ops);
    const bool ok = written || index_write_parts(self, &x, value, add);
    index_free(&x);
    return ok;
}

int index_set(PyObject *self, PyObject *key, PyObject *value) {
    if (!value) {
        PyErr_SetString(PyExc_TypeError, "elements of a tensor cannot be deleted");
        return -1;
    }
    return index_write(self, key, value, false) ? 0 : -1;
}

// --------------------------------------------------------------------------------------- PyTorch's

static PyObject *index_put_(PyObject *self, PyObject *args, PyObject *options) {
    static char *names[] = {"indices", "values", "accumulate", NULL};
    PyObject *indices, *values;
    int add = 0;
    if (!PyArg_ParseTupleAndKeywords(args, options, "OO|p:index_put_", names, &indices, &values,
                                     &add))
        return NULL;
    PyObject *key = PySequence_Tuple(indices), *full_slice = PySlice_New(NULL, NULL, NULL);
    const Py_ssize_t n = key ? PyTuple_Size(key) : 0;
    PyObject *parts = key && full_slice ? PyTuple_New(n) : NULL;
    for (Py_ssize_t i = 0; parts && i < n; i++) { // None is a full axis here
        PyObject *part = PyTuple_GetItem(key, i);
        part = part == Py_None ? full_slice : part;
        Py_INCREF(part);
        PyTuple_SetItem(parts, i, part);
    }
    const bool ok = parts && index_write(self, parts, values, add);
    release(parts, full_slice, key);
    if (!ok) return NULL;
    return Py_NewRef(self);
}

PyMethodDef indexing_methods[] = {
    {"index_put_", (PyCFunction)(void (*)(void))index_put_, METH_VARARGS | METH_KEYWORDS,
     "index_put_($self, indices, values, accumulate=False)\n--\n\nWrites the values, or adds them, "
     "where the indices, one an axis, point: self[indices] = values."},
    {0},
};
