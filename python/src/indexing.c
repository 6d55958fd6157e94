// x[key] and x[key] = value, with NumPy's rules.
//
// Whole numbers, slices, None and ... give views. Arrays of indices and masks bring their axes together
// by moves, to one axis that is gathered from or scattered to.
#include "core.h"
#include "tensor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ITEMS = 3 * CT_MAX_RANK, MOST_MOVES = 4 };

// What one part of a key does to the axes `axis` to `axis + span - 1`.
typedef struct item {
    enum { ITEM_INT, ITEM_SLICE, ITEM_NEW, ITEM_GAP, ITEM_ARRAY } kind;
    int axis, span;             // an array of no axis has one of size 1 of its own
    int64_t start, count, step; // of whole numbers and slices
    int64_t size;               // of arrays: elements of their axes
    ct_tensor at;               // of arrays: places along them
    bool checked;               // they lie inside, from the start on
} item;

typedef struct indexing {
    ct_tensor x;
    int rank;
    item items[MOST_ITEMS];
    int n, n_arrays, axes;           // axes: those of x that items have taken
    PyObject *names[2 * MOST_ITEMS]; // of arrays that nobody else names
    int n_names;
    ct_loc here;
    // What they come to: moves to a value, and there the axis and the places of a gather.
    move *moves;
    size_t n_moves;
    int axis;
    ct_tensor places; // CT_NONE: the value itself is meant
} indexing;

static bool fail(PyObject *type, const char *format, ...) {
    va_list args;
    va_start(args, format);
    PyErr_FormatV(type, format, args);
    va_end(args);
    return false;
}

typedef struct dims {
    int rank;
    int64_t v[CT_MAX_RANK];
} dims;
static dims dims_of(ct_tensor t) {
    dims d = {.rank = ct_rank(t)};
    for (int i = 0; i < d.rank; i++) d.v[i] = ct_dim(t, i);
    return d;
}
static ct_ints ints_of(const dims *d) { return (ct_ints){d->rank, d->v}; }

typedef struct shape_text {
    char s[24 * CT_MAX_RANK];
} shape_text;
static shape_text text_of(const dims *d) { // "(2,3)"
    shape_text text = {"("};
    size_t used = 1;
    for (int i = 0; i < d->rank; i++)
        used += (size_t)snprintf(text.s + used, sizeof text.s - used, i ? ",%lld" : "%lld",
                                 (long long)d->v[i]);
    snprintf(text.s + used, sizeof text.s - used, d->rank == 1 ? ",)" : ")");
    return text;
}

// ------------------------------------------------------------------------------------ parts of a key

static bool is_mask(PyObject *o) {
    return tensor_check(o) && ct_dtype_of(tensor_look(o)) == CT_BOOL;
}

typedef struct key_part {
    PyObject *o;
    enum { PART_ELLIPSIS, PART_NONE, PART_BOOL, PART_SLICE, PART_INT, PART_ARRAY } kind;
    int axes; // that it takes
    int64_t at;
    ct_tensor array;
    bool checked; // its values were there before; else they are data
} key_part;

// An array that only the key names must outlive the reads of others: a read may run what is pending.
static bool keep(indexing *x, ct_tensor *t) {
    PyObject *name = ct_ok(*t) ? tensor_new(*t, x->here) : raise_failure();
    if (!name) return false;
    x->names[x->n_names++] = name;
    *t = tensor_handle(name);
    return true;
}

static bool not_valid(void) {
    return fail(PyExc_IndexError,
                "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer "
                "or boolean arrays are valid indices");
}

static bool parse_array(indexing *x, key_part *p) {
    PyObject *o = p->o;
    p->kind = PART_ARRAY;
    p->axes = 1;
    p->checked = !tensor_check(o);
    if (!p->checked) {
        p->array = tensor_handle(o);
    } else if (PyUnicode_Check(o) || PyBytes_Check(o) || !make_strong(o, &p->array, x->here)) {
        if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError)) return false;
        PyErr_Clear();
        return not_valid();
    }
    if (p->checked && !keep(x, &p->array)) return false;
    if (ct_dtype_of(p->array) == CT_U8 && (ct_size(p->array) || !p->checked))
        return fail(PyExc_IndexError,
                    "an index of uint8: PyTorch takes it as a mask, NumPy as numbers\n"
                    "  hint: a mask is bool (index != 0), numbers are int64");
    const char kind = dtype_kind(ct_dtype_of(p->array));
    if (kind == 'b') p->axes = ct_rank(p->array);
    if (kind == 'b' || kind == 'i' || kind == 'u') return true;
    if (p->checked && ct_size(p->array) == 0) { // an empty list, which says nothing of its elements
        const dims d = dims_of(p->array);
        p->array = ct_zeros_at(CT_I64, ints_of(&d), x->here);
        return keep(x, &p->array);
    }
    if (is_number(o) || PyList_Check(o) || PyTuple_Check(o)) return not_valid();
    return fail(PyExc_IndexError, "arrays used as indices must be of integer (or boolean) type");
}

static bool parse_part(indexing *x, key_part *p) {
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
        return not_valid();
    }
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError)) return false;
    PyErr_Clear(); // an array of several
    return parse_array(x, p);
}

static int64_t element(ct_dtype dtype, const void *data, int64_t i) {
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

static bool inside(int64_t at, int axis, int64_t size) {
    if (at >= -size && at < size) return true;
    return fail(PyExc_IndexError, "index %lld is out of bounds for axis %d with size %lld",
                (long long)at, axis, (long long)size);
}

// Places that are known: all inside, and counted from the start.
static bool check_places(indexing *x, item *m) {
    const int64_t n = ct_size(m->at);
    const ct_dtype dtype = ct_dtype_of(m->at);
    const dims d = dims_of(m->at);
    if (!n) return true;
    const void *data = ct_data_at(m->at, x->here);
    if (!data) return raise_failure();
    int64_t *from_start = NULL;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = element(dtype, data, i);
        if (!inside(at, m->axis, m->size)) {
            free(from_start);
            return false;
        }
        if (at < 0 && !from_start) {
            from_start = malloc((size_t)n * sizeof *from_start);
            if (!from_start) return PyErr_NoMemory();
            for (int64_t k = 0; k < i; k++) from_start[k] = element(dtype, data, k);
        }
        if (from_start) from_start[i] = at < 0 ? at + m->size : at;
    }
    if (!from_start) return true;
    m->at = place_beside(ct_from_at(from_start, CT_I64, ints_of(&d), x->here), x->x, x->here);
    free(from_start);
    return keep(x, &m->at);
}

static item *add_item(indexing *x, int kind) {
    if (x->n == MOST_ITEMS) {
        PyErr_SetString(PyExc_IndexError, "the key has too many parts");
        return NULL;
    }
    x->items[x->n] = (item){.kind = kind, .axis = x->axes};
    return &x->items[x->n++];
}

// A mask stands for the places at which it holds, counted through all its axes.
static bool add_mask(indexing *x, ct_tensor mask) {
    const dims d = dims_of(mask);
    for (int i = 0; i < d.rank; i++) {
        const int64_t size = ct_dim(x->x, x->axes + i);
        if (d.v[i] != size)
            return fail(PyExc_IndexError,
                        "boolean index did not match indexed array along axis %d; size of axis is "
                        "%lld but size of corresponding boolean axis is %lld",
                        x->axes + i, (long long)size, (long long)d.v[i]);
    }
    item *m = add_item(x, ITEM_ARRAY);
    if (!m) return false;
    const int64_t size = ct_size(mask);
    const char *data = size ? ct_data_at(mask, x->here) : "";
    if (!data) return raise_failure();
    int64_t *places = malloc(((size_t)size + 1) * sizeof *places), n = 0;
    if (!places) return PyErr_NoMemory();
    for (int64_t i = 0; i < size; i++)
        if (data[i]) places[n++] = i;
    m->span = d.rank;
    m->size = size;
    m->at = place_beside(ct_from_at(places, CT_I64, (ct_ints){1, &n}, x->here), x->x, x->here);
    m->checked = true;
    free(places);
    x->axes += d.rank;
    x->n_arrays++;
    return keep(x, &m->at);
}

static bool add_array(indexing *x, const key_part *p) {
    if (ct_dtype_of(p->array) == CT_BOOL) return add_mask(x, p->array);
    item *m = add_item(x, ITEM_ARRAY);
    if (!m) return false;
    m->span = 1;
    m->size = ct_dim(x->x, x->axes++);
    m->at = p->array;
    m->checked = p->checked;
    x->n_arrays++;
    if (p->checked && !check_places(x, m)) return false;
    const ct_tensor at = place_beside(m->at, x->x, x->here);
    if (at.bits == m->at.bits) return true;
    m->at = at;
    return keep(x, &m->at);
}

static bool add_bool(indexing *x, bool holds) {
    item *m = add_item(x, ITEM_ARRAY);
    if (!m) return false;
    m->size = 1;
    m->at = ct_zeros_at(CT_I64, (ct_ints){1, &(int64_t){holds}}, x->here);
    m->checked = true;
    x->n_arrays++;
    return keep(x, &m->at);
}

static bool add_int(indexing *x, int64_t at) {
    const int64_t size = ct_dim(x->x, x->axes);
    if (!inside(at, x->axes, size)) return false;
    item *m = add_item(x, ITEM_INT);
    if (!m) return false;
    m->start = at < 0 ? at + size : at;
    m->span = 1;
    m->count = m->step = 1;
    x->axes++;
    return true;
}

static bool add_slice(indexing *x, PyObject *part) {
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(part, &start, &stop, &step) < 0) return false;
    item *m = add_item(x, ITEM_SLICE);
    if (!m) return false;
    m->count = PySlice_AdjustIndices((Py_ssize_t)ct_dim(x->x, x->axes), &start, &stop, step);
    m->start = m->count ? start : 0;
    m->step = m->count > 1 ? step : 1;
    m->span = 1;
    x->axes++;
    return true;
}

static bool add_whole(indexing *x, int count) {
    for (int i = 0; i < count; i++) {
        item *m = add_item(x, ITEM_SLICE);
        if (!m) return false;
        m->count = ct_dim(x->x, x->axes++);
        m->step = m->span = 1;
    }
    return true;
}

static bool add_part(indexing *x, const key_part *p, int whole) {
    switch (p->kind) {
    case PART_ELLIPSIS: return add_item(x, ITEM_GAP) && add_whole(x, whole);
    case PART_NONE: return add_item(x, ITEM_NEW);
    case PART_BOOL: return add_bool(x, p->o == Py_True);
    case PART_SLICE: return add_slice(x, p->o);
    case PART_INT: return add_int(x, p->at);
    default: return add_array(x, p);
    }
}

static bool evaluated(PyObject *o, ct_loc here) {
    const ct_tensor t = tensor_handle(o);
    thread_here()->reads++;
    return t.bits && (!tensor_is_own(o) || run_eval(&t, 1, here));
}

static bool parse_parts(indexing *x, key_part *parts, Py_ssize_t n) {
    int taken = 0, gaps = 0;
    // Masks are read before anything else: a read gives back what nobody has named yet.
    for (Py_ssize_t i = 0; i < n; i++)
        if (is_mask(parts[i].o) && !evaluated(parts[i].o, x->here)) return false;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (!parse_part(x, &parts[i])) return false;
        taken += parts[i].axes;
        gaps += parts[i].kind == PART_ELLIPSIS;
    }
    if (gaps > 1) return fail(PyExc_IndexError, "an index can only have a single ellipsis ('...')");
    if (taken > x->rank)
        return fail(PyExc_IndexError,
                    "too many indices for array: array is %d-dimensional, but %d were indexed",
                    x->rank, taken);
    for (Py_ssize_t i = 0; i < n; i++)
        if (!add_part(x, &parts[i], x->rank - taken)) return false;
    return add_whole(x, x->rank - x->axes);
}

// ------------------------------------------------------------------------------------------- moves

static bool add_move(indexing *x, int kind, const int64_t *const lists[4], int n) {
    if (!move_new(&x->moves[x->n_moves], kind, lists, (size_t)n)) return false;
    x->n_moves++;
    return true;
}

static bool add_cut(indexing *x) {
    int64_t axes[CT_MAX_RANK], start[CT_MAX_RANK], stop[CT_MAX_RANK], step[CT_MAX_RANK];
    int n = 0;
    for (int i = 0; i < x->n; i++) {
        const item *m = &x->items[i];
        if (m->kind > ITEM_SLICE ||
            (m->start == 0 && m->step == 1 && m->count == ct_dim(x->x, m->axis)))
            continue;
        axes[n] = m->axis, start[n] = m->start, step[n] = m->step;
        stop[n++] = m->count ? m->start + (m->count - 1) * m->step + (m->step < 0 ? -1 : 1) : 0;
    }
    const int64_t *const lists[4] = {axes, start, stop, step};
    return !n || add_move(x, MOVE_SLICE, lists, n);
}

static bool add_reshape(indexing *x, const dims *before, const dims *to) {
    if (before->rank == to->rank && !memcmp(before->v, to->v, (size_t)to->rank * sizeof *to->v))
        return true;
    const int64_t *const lists[4] = {to->v};
    return add_move(x, MOVE_RESHAPE, lists, to->rank);
}

static bool add_dim(dims *to, int64_t size) {
    if (to->rank == CT_MAX_RANK)
        return fail(PyExc_IndexError,
                    "the index makes more axes than %d, which is the most a tensor has",
                    CT_MAX_RANK);
    to->v[to->rank++] = size;
    return true;
}

// Do whole numbers and arrays stand side by side? Else the axes of the arrays come first.
static bool side_by_side(const indexing *x) {
    int state = 0; // before, at, behind them
    for (int i = 0; i < x->n; i++) {
        const bool picks = x->items[i].kind == ITEM_INT || x->items[i].kind == ITEM_ARRAY;
        if (picks && state == 2) return false;
        if (picks || state == 1) state = picks ? 1 : 2;
    }
    return true;
}

// Arrays' axes become one, at the place of the first of them or at the front.
static bool add_moves(indexing *x) {
    dims cut = {0}, apart = {0}, joined = {0};
    const bool stay = side_by_side(x);
    int64_t order[CT_MAX_RANK], together = 1;
    int n_order = 0;
    bool in_order = true;
    x->moves = malloc(MOST_MOVES * sizeof *x->moves);
    if (!x->moves) return PyErr_NoMemory();
    if (!add_cut(x)) return false;
    for (int i = 0; i < x->n; i++) {
        const item *m = &x->items[i];
        for (int k = 0; k < m->span; k++)
            cut.v[cut.rank++] = m->kind == ITEM_ARRAY ? ct_dim(x->x, m->axis + k) : m->count;
        if (m->kind == ITEM_INT || m->kind == ITEM_GAP) continue;
        if (m->kind == ITEM_ARRAY) order[n_order++] = apart.rank;
        if (m->kind == ITEM_ARRAY) together *= m->size;
        if (!add_dim(&apart, m->kind == ITEM_ARRAY ? m->size : m->kind == ITEM_NEW ? 1 : m->count))
            return false;
    }
    x->axis = stay && x->n_arrays ? (int)order[0] : 0;
    if (!x->n_arrays) return add_reshape(x, &cut, &apart);
    const int n_arrays = n_order;
    if (!stay) joined.v[joined.rank++] = together;
    for (int a = 0, k = 0; a < apart.rank; a++) {
        if (k < n_arrays && order[k] == a) {
            if (k == 0 && stay) joined.v[joined.rank++] = together;
            k++;
            continue;
        }
        joined.v[joined.rank++] = apart.v[a];
        order[n_order++] = a;
    }
    if (stay) return add_reshape(x, &cut, &joined);
    for (int a = 0; a < n_order; a++) in_order = in_order && order[a] == a;
    if (in_order) return add_reshape(x, &cut, &joined);
    dims turned = {.rank = apart.rank};
    for (int a = 0; a < n_order; a++) turned.v[a] = apart.v[order[a]];
    const int64_t *const lists[4] = {order};
    return add_reshape(x, &cut, &apart) && add_move(x, MOVE_PERMUTE, lists, n_order) &&
           add_reshape(x, &turned, &joined);
}

// ------------------------------------------------------------------------------------------ places

// Places that are data: negative ones count from the end. Outside the nearest one is read, and nothing
// written: `valid` says where.
static ct_tensor data_places(const item *m, bool write, ct_tensor *valid, ct_loc here) {
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

static bool places_fit(const indexing *x) {
    dims all = {0};
    char shapes[512] = "";
    size_t used = 0;
    bool fit = true;
    for (int i = 0; i < x->n; i++) {
        if (x->items[i].kind != ITEM_ARRAY) continue;
        const dims d = dims_of(x->items[i].at);
        // A mask counts as an array for each of its axes.
        for (int k = 0; (k == 0 || k < x->items[i].span) && used < sizeof shapes; k++)
            used += (size_t)snprintf(shapes + used, sizeof shapes - used, "%s ", text_of(&d).s);
        dims sum = {.rank = d.rank > all.rank ? d.rank : all.rank};
        for (int a = 1; a <= sum.rank; a++) {
            const int64_t one = a > d.rank ? 1 : d.v[d.rank - a];
            const int64_t other = a > all.rank ? 1 : all.v[all.rank - a];
            fit = fit && (one == other || one == 1 || other == 1);
            sum.v[sum.rank - a] = one == 1 ? other : one;
        }
        all = sum;
    }
    return fit || fail(PyExc_IndexError,
                       "shape mismatch: indexing arrays could not be broadcast together with "
                       "shapes %s",
                       shapes);
}

// Places along the one axis that the arrays' axes have become.
static bool find_places(indexing *x, bool write) {
    int64_t stride = 1;
    ct_tensor valid = CT_NONE;
    if (!places_fit(x)) return false;
    for (int i = x->n; i-- > 0;) { // the last one runs fastest
        const item *m = &x->items[i];
        if (m->kind != ITEM_ARRAY) continue;
        ct_tensor at = m->checked ? m->at : data_places(m, write, &valid, x->here);
        if (x->n_arrays > 1) {
            at = ct_cast_at(at, CT_I64, x->here);
            if (stride != 1) at = ct_mul_at(at, ct_scalar((double)stride, CT_I64), x->here);
        }
        x->places = x->places.bits ? ct_add_at(at, x->places, x->here) : at;
        stride *= m->size;
    }
    if (valid.bits) x->places = ct_select_at(valid, x->places, ct_scalar(-1, CT_I64), x->here);
    return ct_ok(x->places) || raise_failure();
}

// ---------------------------------------------------------------------------------------- get and set

static void indexing_end(indexing *x) {
    moves_free(x->moves, x->n_moves);
    x->moves = NULL;
    x->n_moves = 0;
    while (x->n_names) Py_DECREF(x->names[--x->n_names]);
}

static PyObject *key_tuple(PyObject *key) { // a new reference
    if (PyTuple_Check(key)) {
        Py_INCREF(key);
        return key;
    }
    return PyTuple_Pack(1, key);
}

static bool parse_key(indexing *x, PyObject *self, PyObject *key, bool write) {
    key_part parts[MOST_ITEMS];
    PyObject *tuple = key_tuple(key);
    const Py_ssize_t n = tuple ? PyTuple_Size(tuple) : 0;
    x->x = tensor_handle(self);
    x->rank = ct_rank(x->x);
    bool ok = tuple && (ct_ok(x->x) || raise_failure());
    if (n > MOST_ITEMS) ok = fail(PyExc_IndexError, "the key has too many parts");
    for (Py_ssize_t i = 0; ok && i < n; i++) parts[i].o = PyTuple_GetItem(tuple, i);
    ok = ok && parse_parts(x, parts, n) && add_moves(x) && (!x->n_arrays || find_places(x, write));
    Py_XDECREF(tuple);
    if (!ok) indexing_end(x);
    return ok;
}

static ct_tensor moved(const indexing *x, ct_tensor t) {
    for (size_t i = 0; i < x->n_moves; i++) t = move_forward(&x->moves[i], t, x->here);
    return t;
}

PyObject *index_get(PyObject *self, PyObject *key) {
    indexing x = {.here = enter()};
    if (!parse_key(&x, self, key, false)) return NULL;
    if (!x.places.bits) return view_new(self, x.moves, x.n_moves, x.here);
    ct_tensor t = ct_gather_with((ct_gather_args){.x = moved(&x, tensor_value(self, x.here)),
                                                  .indices = x.places,
                                                  .axis = x.axis,
                                                  .here = x.here});
    PyObject *got = tensor_new(t, x.here);
    indexing_end(&x);
    return got;
}

// The value in the sizes and the dtype of where it goes: leading axes of one element mean nothing.
static bool fit_value(ct_tensor *value, const dims *to, ct_dtype dtype, bool picked, ct_loc here) {
    const dims d = dims_of(*value);
    dims from = d;
    while (from.rank > to->rank && from.v[0] == 1)
        memmove(from.v, from.v + 1, (size_t)--from.rank * sizeof *from.v);
    bool fits = from.rank <= to->rank, same = from.rank == to->rank;
    for (int a = 1; fits && a <= from.rank; a++) {
        const int64_t one = from.v[from.rank - a], other = to->v[to->rank - a];
        fits = one == other || one == 1;
        same = same && one == other;
    }
    if (!fits)
        return fail(PyExc_ValueError,
                    picked ? "shape mismatch: value array of shape %s could not be broadcast to "
                             "indexing result of shape %s"
                           : "could not broadcast input array from shape %s into shape %s",
                    text_of(&d).s, text_of(to).s);
    if (from.rank != d.rank) *value = ct_reshape_at(*value, ints_of(&from), here);
    *value = ct_cast_at(*value, dtype, here);
    if (!same) *value = ct_expand_at(*value, ints_of(to), here);
    return ct_ok(*value) || raise_failure();
}

// The sizes of what the key picks.
static dims picked_dims(const indexing *x, ct_tensor part) {
    dims to = {0};
    const dims d = dims_of(part), at = dims_of(x->places);
    if (!x->places.bits) return d;
    for (int a = 0; a < d.rank; a++) {
        if (a != x->axis) to.v[to.rank++] = d.v[a];
        for (int i = 0; a == x->axis && i < at.rank && to.rank < CT_MAX_RANK; i++)
            to.v[to.rank++] = at.v[i];
    }
    return to;
}

static bool set_parts(PyObject *self, indexing *x, PyObject *value, bool add) {
    ct_tensor v, is = tensor_value(self, x->here);
    if (!ct_ok(is)) return raise_failure();
    if (!operand_for(value, ct_dtype_of(is), &v, x->here)) return false;
    if (!ct_ok(v)) return raise_failure();
    v = place_beside(v, is, x->here);
    ct_tensor part = moved(x, is);
    const dims to = picked_dims(x, part);
    if (!fit_value(&v, &to, ct_dtype_of(is), x->places.bits, x->here)) return false;
    if (x->places.bits) {
        ct_scatter_args args = {.x = part,
                                .indices = x->places,
                                .updates = v,
                                .axis = x->axis,
                                .mode = CT_MODE_DROP,
                                .here = x->here};
        ct_scatter_add_args sum = {.x = part,
                                   .indices = x->places,
                                   .updates = v,
                                   .axis = x->axis,
                                   .mode = CT_MODE_DROP,
                                   .here = x->here};
        v = add ? ct_scatter_add_with(sum) : ct_scatter_with(args);
    }
    return x->n_moves ? tensor_write_part(self, x->moves, x->n_moves, v, x->here)
                      : tensor_write(self, v, x->here);
}

// x[mask] = value, the same for all rows that the mask picks: nobody asks which. False: not so, or an
// exception.
static bool set_masked(PyObject *self, PyObject *key, PyObject *value, bool *done, ct_loc here) {
    if (PyTuple_Check(key) && PyTuple_Size(key) == 1) key = PyTuple_GetItem(key, 0);
    if (!is_mask(key)) return true;
    ct_tensor x = tensor_value(self, here), mask = tensor_handle(key), v;
    if (!x.bits || !mask.bits) return false;
    const dims d = dims_of(x), m = dims_of(mask);
    bool fits = m.rank <= d.rank;
    for (int a = 0; fits && a < m.rank; a++) fits = m.v[a] == d.v[a];
    if (!fits || !operand_for(value, ct_dtype_of(x), &v, here))
        return !fits; // what is wrong is told later
    const dims of = dims_of(v);
    const int rest = d.rank - m.rank;
    if (of.rank > rest + 1 || (of.rank == rest + 1 && of.v[0] != 1)) return true;
    dims to = {.rank = rest}, all = {.rank = d.rank};
    for (int a = 0; a < d.rank; a++) {
        all.v[a] = a < m.rank ? m.v[a] : 1;
        if (a >= m.rank) to.v[a - m.rank] = d.v[a];
    }
    if (!fit_value(&v, &to, ct_dtype_of(x), true, here)) return false;
    *done = true;
    mask = ct_reshape_at(mask, ints_of(&all), here);
    return tensor_write(self, ct_select_at(mask, v, x, here), here);
}

static bool set(PyObject *self, PyObject *key, PyObject *value, bool add) {
    indexing x = {.here = enter()};
    bool done = false;
    if (!add && !set_masked(self, key, value, &done, x.here)) return false;
    if (done) return true;
    if (!parse_key(&x, self, key, true)) return false;
    // x[i] += 1 has written the view of x by now.
    const bool written =
        !x.places.bits && tensor_check(value) && view_is(value, self, x.moves, x.n_moves);
    const bool ok = written || set_parts(self, &x, value, add);
    indexing_end(&x);
    return ok;
}

int index_set(PyObject *self, PyObject *key, PyObject *value) {
    if (!value) {
        PyErr_SetString(PyExc_TypeError, "elements of a tensor cannot be deleted");
        return -1;
    }
    return set(self, key, value, false) ? 0 : -1;
}

// ----------------------------------------------------------------------------------------- PyTorch's

static PyObject *index_put(PyObject *self, PyObject *args, PyObject *options) {
    static char *names[] = {"indices", "values", "accumulate", NULL};
    PyObject *indices, *values;
    int add = 0;
    if (!PyArg_ParseTupleAndKeywords(args, options, "OO|p:index_put_", names, &indices, &values,
                                     &add))
        return NULL;
    PyObject *key = PySequence_Tuple(indices), *whole = PySlice_New(NULL, NULL, NULL);
    const Py_ssize_t n = key ? PyTuple_Size(key) : 0;
    PyObject *parts = key && whole ? PyTuple_New(n) : NULL;
    for (Py_ssize_t i = 0; parts && i < n; i++) { // there None is a whole axis
        PyObject *part = PyTuple_GetItem(key, i);
        part = part == Py_None ? whole : part;
        Py_INCREF(part);
        PyTuple_SetItem(parts, i, part);
    }
    const bool ok = parts && set(self, parts, values, add);
    Py_XDECREF(parts);
    Py_XDECREF(whole);
    Py_XDECREF(key);
    if (!ok) return NULL;
    Py_INCREF(self);
    return self;
}

PyMethodDef indexing_methods[] = {
    {"index_put_", (PyCFunction)(void (*)(void))index_put, METH_VARARGS | METH_KEYWORDS,
     "index_put_($self, indices, values, accumulate=False)\n--\n\nWrites the values, or adds them, "
     "where the indices, one an axis, point: self[indices] = values."},
    {0},
};
