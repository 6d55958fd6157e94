// View ops: the ops between a tensor and its views. They compute the view of a value, and the value that
// results from a write to a view.
#include "core.h"
#include "tensor.h"

#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------------------------------- view ops

bool view_op_new(view_op *to, int kind, const int64_t *const lists[4], size_t n) {
    int64_t *buffer = malloc((4 * n + 1) * sizeof *buffer);
    if (!buffer) return PyErr_NoMemory();
    *to = (view_op){.kind = kind, .n = n};
    for (int i = 0; i < 4; i++) {
        to->list[i] = buffer + (size_t)i * n;
        if (lists[i]) memcpy(to->list[i], lists[i], n * sizeof *buffer);
    }
    return true;
}
void view_ops_free(view_op *ops, size_t n) {
    for (size_t i = 0; i < n; i++) free(ops[i].list[0]);
    free(ops);
}

static ct_ints view_op_ints(const view_op *m, int i) {
    return (ct_ints){(int64_t)m->n, m->list[i]};
}

// Slices axes with a negative step from the other end, then flips them.
static ct_tensor view_op_slice(const view_op *m, ct_tensor t, ct_loc here) {
    int64_t start[CT_MAX_RANK], stop[CT_MAX_RANK], step[CT_MAX_RANK], flipped[CT_MAX_RANK];
    int64_t n_flipped = 0;
    for (size_t i = 0; i < m->n; i++) {
        start[i] = m->list[1][i], stop[i] = m->list[2][i], step[i] = m->list[3][i];
        if (step[i] > 0) continue;
        const int64_t n = (start[i] - stop[i] - step[i] - 1) / -step[i];
        stop[i] = start[i] + 1;
        start[i] += n > 0 ? (n - 1) * step[i] : 1;
        step[i] = -step[i];
        flipped[n_flipped++] = m->list[0][i];
    }
    const int64_t n = (int64_t)m->n;
    t = ct_slice_with((ct_slice_args){.x = t,
                                      .axes = view_op_ints(m, 0),
                                      .start = {n, start},
                                      .stop = {n, stop},
                                      .step = {n, step},
                                      .here = here});
    return n_flipped ? ct_flip_at(t, (ct_ints){n_flipped, flipped}, here) : t;
}

ct_ints tensor_dims(ct_tensor t, int64_t dim[CT_MAX_RANK]) {
    const int rank = ct_rank(t);
    for (int i = 0; i < rank; i++) dim[i] = ct_dim(t, i);
    return (ct_ints){rank, dim};
}

// 0 ... n - 1 along the axis; the other sizes are 1.
static ct_tensor view_op_iota(int rank, int axis, int64_t n, ct_loc here) {
    int64_t dim[CT_MAX_RANK];
    for (int i = 0; i < rank; i++) dim[i] = i == axis ? n : 1;
    return ct_iota_at(CT_I64, (ct_ints){rank, dim}, axis, here);
}

// The diagonals of the last two axes become the last axis. The op sums products, which bools do not have.
static ct_tensor view_op_diagonal(const view_op *m, ct_tensor t, ct_loc here) {
    const bool is_bool = ct_dtype_of(t) == CT_BOOL;
    if (is_bool) t = ct_cast_at(t, CT_U8, here);
    t = ct_diagonal_with((ct_diagonal_args){.x = t, .offset = m->list[0][0], .here = here});
    return is_bool ? ct_cast_at(t, CT_BOOL, here) : t;
}

// Takes windows of `size` elements at every `step` along an axis, (..., n, ...); they become a new last axis.
static ct_tensor view_op_unfold(const view_op *m, ct_tensor t, ct_loc here) {
    const int64_t axis = m->list[0][0], size = m->list[0][1], step = m->list[0][2];
    const int64_t n = (ct_dim(t, (int)axis) - size) / step + 1;
    int64_t order[CT_MAX_RANK];
    const int rank = ct_rank(t);
    ct_tensor at =
        ct_add_at(ct_mul_at(view_op_iota(2, 0, n, here), ct_scalar((double)step, CT_I64), here),
                  view_op_iota(2, 1, size, here), here);
    t = ct_gather_with((ct_gather_args){.x = t, .indices = at, .axis = axis, .here = here});
    for (int i = 0; i < rank; i++) order[i] = i <= axis ? i : i + 1;
    order[rank] = axis + 1;
    return ct_permute_at(t, (ct_ints){rank + 1, order}, here);
}

// Two of (...) to (..., 2)
static ct_tensor view_complex_to_pairs(ct_tensor re, ct_tensor im, ct_loc here) {
    int64_t dim[CT_MAX_RANK];
    ct_ints dims = tensor_dims(re, dim);
    dim[dims.n++] = 1;
    const ct_tensor both[2] = {ct_reshape_at(re, dims, here), ct_reshape_at(im, dims, here)};
    return ct_concat_at(both, 2, -1, here);
}
static ct_tensor view_pairs_to_complex(ct_tensor t, ct_loc here) { // (..., 2) to (...)
    int64_t dim[CT_MAX_RANK];
    ct_tensor parts[2];
    ct_ints dims = tensor_dims(t, dim);
    const int64_t last = --dims.n;
    for (int64_t i = 0; i < 2; i++)
        parts[i] = ct_reshape_at(ct_slice_with((ct_slice_args){.x = t,
                                                               .axes = {1, &last},
                                                               .start = {1, &i},
                                                               .stop = {1, &(int64_t){i + 1}},
                                                               .here = here}),
                                 dims, here);
    return ct_complex_at(parts[0], parts[1], here);
}

ct_tensor view_op_apply(const view_op *m, ct_tensor t, ct_loc here) {
    switch (m->kind) {
    case VIEW_SLICE: return view_op_slice(m, t, here);
    case VIEW_PERMUTE: return ct_permute_at(t, view_op_ints(m, 0), here);
    case VIEW_RESHAPE: return ct_reshape_at(t, view_op_ints(m, 0), here);
    case VIEW_EXPAND: return ct_expand_at(t, view_op_ints(m, 0), here);
    case VIEW_DIAGONAL: return view_op_diagonal(m, t, here);
    case VIEW_UNFOLD: return view_op_unfold(m, t, here);
    case VIEW_REAL: return ct_real_at(t, here);
    case VIEW_IMAG: return ct_imag_at(t, here);
    case VIEW_CONJ: return ct_conj_at(t, here);
    case VIEW_COMPLEX_AS_REAL:
        return view_complex_to_pairs(ct_real_at(t, here), ct_imag_at(t, here), here);
    case VIEW_REAL_AS_COMPLEX: return view_pairs_to_complex(t, here);
    case VIEW_BITCAST: return ct_bitcast_at(t, (ct_dtype)m->list[0][0], here);
    }
    return CT_NONE;
}

bool has_same_shape(ct_tensor a, ct_tensor b) {
    bool same = ct_rank(a) == ct_rank(b);
    for (int i = 0; same && i < ct_rank(a); i++) same = ct_dim(a, i) == ct_dim(b, i);
    return same;
}
ct_tensor reshape_or_expand_as(ct_tensor t, ct_tensor of, bool expand, ct_loc here) {
    int64_t dim[CT_MAX_RANK];
    if (has_same_shape(t, of)) return t;
    return expand ? ct_expand_at(t, tensor_dims(of, dim), here)
                  : ct_reshape_at(t, tensor_dims(of, dim), here);
}
ct_tensor new_handle_of(ct_tensor t, ct_loc here) {
    int64_t dim[CT_MAX_RANK];
    return ct_reshape_at(t, tensor_dims(t, dim), here);
}

// Writes `part` to the elements of `base` that a slice along one axis takes, by a select with a mask of these
// elements.
static ct_tensor view_slice_put_axis(ct_tensor base, ct_tensor part, int axis, int64_t start,
                                     int64_t step, ct_loc here) {
    int64_t axis_shape[CT_MAX_RANK];
    const int rank = ct_rank(base);
    const int64_t n = ct_dim(part, axis), size = ct_dim(base, axis);
    for (int i = 0; i < rank; i++) axis_shape[i] = i == axis ? size : 1;
    if (!n) return base;
    if (step < 0) { // the same elements from the other end
        part = ct_flip_at(part, (ct_ints){1, &(int64_t){axis}}, here);
        start += (n - 1) * step;
        step = -step;
    }
    ct_tensor offset =
        ct_sub_at(ct_iota_at(CT_I64, (ct_ints){rank, axis_shape}, axis, here), ct_i(start), here);
    ct_tensor from = ct_div_at(offset, ct_i(step), here);
    ct_tensor inside = ct_and_at(ct_greater_equal_at(offset, ct_i(0), here),
                                 ct_less_at(from, ct_i(n), here), here);
    if (step > 1)
        inside = ct_and_at(inside, ct_equal_at(ct_mod_at(offset, ct_i(step), here), ct_i(0), here),
                           here);
    // Pads the part with zeros around and between its elements.
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
    return ct_select_at(inside, spread, base, here);
}

// Writes a slice of several axes, axis by axis, the innermost part first.
static ct_tensor view_op_put_slice(const view_op *m, size_t from, ct_tensor base, ct_tensor part,
                                   ct_loc here) {
    if (from == m->n) return part;
    const int axis = (int)m->list[0][from];
    view_op first = {.kind = VIEW_SLICE, .n = 1};
    for (int i = 0; i < 4; i++) first.list[i] = m->list[i] + from;
    ct_tensor inner = view_op_put_slice(m, from + 1, view_op_apply(&first, base, here), part, here);
    return view_slice_put_axis(base, inner, axis, m->list[1][from], m->list[3][from], here);
}
// Writes a slice without steps by a dynamic update: its start is an operand, so that another start is the
// same plan.
static ct_tensor view_op_put_contiguous(const view_op *m, ct_tensor base, ct_tensor part,
                                        ct_loc here) {
    const int64_t n = (int64_t)m->n;
    ct_tensor starts = n == 1 ? ct_scalar((double)m->list[1][0], CT_I64)
                              : ct_from_at(m->list[1], CT_I64, (ct_ints){1, &n}, here);
    starts = move_to_device_of(starts, base, here);
    return ct_dynamic_update_with((ct_dynamic_update_args){
        .x = base, .update = part, .starts = starts, .axes = view_op_ints(m, 0), .here = here});
}
static bool view_op_has_unit_steps(const view_op *m) {
    for (size_t i = 0; i < m->n; i++)
        if (m->list[3][i] != 1) return false;
    return true;
}

// Writes diagonals: each of their elements is broadcast along its row or its column, then selected.
static ct_tensor view_op_put_diagonal(const view_op *m, ct_tensor base, ct_tensor part,
                                      ct_loc here) {
    const int64_t offset = m->list[0][0];
    const int rank = ct_rank(base), axis = offset < 0 ? rank - 1 : rank - 2;
    const int64_t n = ct_dim(part, rank - 2);
    int64_t dim[CT_MAX_RANK], low[CT_MAX_RANK] = {0}, high[CT_MAX_RANK] = {0};
    if (!n) return base;
    ct_tensor rows = view_op_iota(rank, rank - 2, ct_dim(base, rank - 2), here);
    ct_tensor columns = view_op_iota(rank, rank - 1, ct_dim(base, rank - 1), here);
    ct_tensor on =
        ct_equal_at(ct_sub_at(columns, rows, here), ct_scalar((double)offset, CT_I64), here);
    tensor_dims(part, dim);
    dim[rank - 2] = dim[rank - 1] = 1;
    dim[axis] = n;
    high[axis] = ct_dim(base, axis) - n;
    ct_tensor line = ct_pad_with((ct_pad_args){.x = ct_reshape_at(part, (ct_ints){rank, dim}, here),
                                               .value = ct_scalar(0, ct_dtype_of(part)),
                                               .low = {rank, low},
                                               .high = {rank, high},
                                               .here = here});
    return ct_select_at(on, line, base, here);
}

bool view_ops_can_repeat(const view_op *ops, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (ops[i].kind == VIEW_UNFOLD || ops[i].kind == VIEW_EXPAND) return true;
    return false;
}
// Writes `part` to the elements of `base` from which the view ops take it, by a scatter. An op may take an
// element several times, and a later op keep one of these; the others have the old value, so inverting op by
// op would write that back.
ct_tensor view_ops_scatter(const view_op *ops, size_t n, ct_tensor base, ct_tensor part,
                           ct_loc here) {
    const int64_t size = ct_size(base), count = ct_size(part);
    int64_t dim[CT_MAX_RANK];
    const ct_ints dims = tensor_dims(base, dim), flat = {1, &size}, line = {1, &count};
    ct_tensor indices = ct_reshape_at(ct_iota_at(CT_I64, flat, 0, here), dims, here);
    for (size_t i = 0; i < n; i++) indices = view_op_apply(&ops[i], indices, here);
    ct_tensor written =
        ct_scatter_with((ct_scatter_args){.x = ct_reshape_at(base, flat, here),
                                          .indices = ct_reshape_at(indices, line, here),
                                          .updates = ct_reshape_at(part, line, here),
                                          .mode = CT_MODE_DROP,
                                          .here = here});
    return ct_reshape_at(written, dims, here);
}

// Returns the value before a view op whose result becomes `part`.
ct_tensor view_op_inverse(const view_op *m, ct_tensor before, ct_tensor part, ct_loc here) {
    switch (m->kind) {
    case VIEW_SLICE:
        return view_op_has_unit_steps(m) ? view_op_put_contiguous(m, before, part, here)
                                         : view_op_put_slice(m, 0, before, part, here);
    case VIEW_RESHAPE: return reshape_or_expand_as(part, before, false, here);
    case VIEW_PERMUTE: {
        int64_t back[CT_MAX_RANK];
        for (size_t i = 0; i < m->n; i++) back[m->list[0][i]] = (int64_t)i;
        return ct_permute_at(part, (ct_ints){(int64_t)m->n, back}, here);
    }
    case VIEW_DIAGONAL: return view_op_put_diagonal(m, before, part, here);
    case VIEW_REAL: return ct_complex_at(part, ct_imag_at(before, here), here);
    case VIEW_IMAG: return ct_complex_at(ct_real_at(before, here), part, here);
    case VIEW_CONJ: return ct_conj_at(part, here);
    case VIEW_COMPLEX_AS_REAL: return view_pairs_to_complex(part, here);
    case VIEW_REAL_AS_COMPLEX:
        return view_complex_to_pairs(ct_real_at(part, here), ct_imag_at(part, here), here);
    case VIEW_BITCAST: return ct_bitcast_at(part, ct_dtype_of(before), here);
    case VIEW_UNFOLD: // view_ops_scatter() writes these
    case VIEW_EXPAND: break;
    }
    return CT_NONE;
}

// ----------------------------------------------------------------------------------------- layouts

void layout_init(layout *l, ct_tensor t) {
    int64_t dim[CT_MAX_RANK];
    const ct_ints dims = tensor_dims(t, dim);
    *l = (layout){.rank = (int)dims.n};
    for (int64_t i = dims.n, each = 1; i-- > 0; each *= dim[i] ? dim[i] : 1)
        l->size[i] = dim[i], l->step[i] = each;
}

// There is no overlap if each step is larger than the reach of all smaller steps together.
bool layout_has_overlap(const layout *l) {
    if (l->unknown) return true;
    for (int a = 0; a < l->rank; a++) {
        int64_t reach = 0;
        if (l->size[a] < 2) continue;
        for (int b = 0; b < l->rank; b++)
            if (b != a && l->size[b] > 1 && l->step[b] <= l->step[a])
                reach += (l->size[b] - 1) * l->step[b];
        if (l->step[a] <= reach) return true;
    }
    return false;
}

static void view_layout_slice(layout *l, const view_op *m) {
    for (size_t k = 0; k < m->n; k++) {
        const int64_t axis = m->list[0][k], by = m->list[3][k], far = by < 0 ? -by : by;
        const int64_t way = by < 0 ? m->list[1][k] - m->list[2][k] : m->list[2][k] - m->list[1][k];
        l->size[axis] = way > 0 ? (way + far - 1) / far : 0;
        l->step[axis] *= far;
    }
}

// Without overlap a reshape makes none. With overlap, only axes of size 1 may be added or removed.
static void view_layout_reshape(layout *l, const view_op *m) {
    const bool shares = layout_has_overlap(l);
    int64_t step[CT_MAX_RANK], all = 1, named = 1;
    int at = 0, k = 0;
    for (int a = 0; a < l->rank; a++) all *= l->size[a];
    for (size_t i = 0; i < m->n; i++) named *= m->list[0][i] < 0 ? 1 : m->list[0][i];
    layout to = {.rank = (int)m->n, .expanded = l->expanded, .unknown = l->unknown};
    for (int i = 0; i < to.rank; i++)
        to.size[i] = m->list[0][i] < 0 ? all / (named ? named : 1) : m->list[0][i];
    for (int i = 0; shares && i < to.rank; i++) {
        while (at < l->rank && l->size[at] == 1) at++;
        if (to.size[i] == 1) continue;
        if (at == l->rank || l->size[at] != to.size[i]) to.unknown = true;
        step[i] = at < l->rank ? l->step[at++] : 1;
    }
    int64_t each = 1;
    for (k = to.rank; k-- > 0; each *= to.size[k] ? to.size[k] : 1)
        to.step[k] = shares && to.size[k] != 1 ? step[k] : each;
    *l = to;
}

static void view_layout_expand(layout *l, const view_op *m) {
    layout to = {.rank = (int)m->n, .expanded = true, .unknown = l->unknown};
    for (int k = to.rank, a = l->rank; k-- > 0;) {
        a--;
        const bool same = a >= 0 && l->size[a] == m->list[0][k];
        to.size[k] = m->list[0][k];
        to.step[k] = same ? l->step[a] : 0;
    }
    *l = to;
}

void layout_apply(layout *l, const view_op *m) {
    const layout was = *l;
    switch (m->kind) {
    case VIEW_SLICE: view_layout_slice(l, m); return;
    case VIEW_RESHAPE: view_layout_reshape(l, m); return;
    case VIEW_EXPAND: view_layout_expand(l, m); return;
    case VIEW_PERMUTE:
        for (size_t a = 0; a < m->n; a++)
            l->size[a] = was.size[m->list[0][a]], l->step[a] = was.step[m->list[0][a]];
        return;
    case VIEW_DIAGONAL: {
        const int64_t offset = m->list[0][0],
                      rows = l->size[l->rank - 2] + (offset < 0 ? offset : 0),
                      columns = l->size[l->rank - 1] - (offset > 0 ? offset : 0);
        l->rank--;
        l->size[l->rank - 1] = rows < columns ? rows : columns;
        l->step[l->rank - 1] += l->step[l->rank];
        return;
    }
    case VIEW_UNFOLD: {
        const int64_t axis = m->list[0][0];
        l->size[l->rank] = m->list[0][1], l->step[l->rank] = l->step[axis];
        l->size[axis] = (l->size[axis] - m->list[0][1]) / m->list[0][2] + 1;
        l->step[axis] *= m->list[0][2];
        l->rank++;
        return;
    }
    case VIEW_COMPLEX_AS_REAL:
        for (int a = 0; a < l->rank; a++) l->step[a] *= 2;
        l->size[l->rank] = 2, l->step[l->rank] = 1;
        l->rank++;
        break;
    case VIEW_REAL_AS_COMPLEX: l->rank--; break;
    default: break;
    }
    l->unknown = layout_has_overlap(&was); // elements of another dtype are not followed
}

// ------------------------------------------------------------------------------------------ Python

// The names of the view ops, and how many lists of integers they have.
static const struct {
    const char *name;
    int lists;
} view_op_kinds[] = {
    [VIEW_SLICE] = {"slice", 4},
    [VIEW_PERMUTE] = {"permute", 1},
    [VIEW_RESHAPE] = {"reshape", 1},
    [VIEW_EXPAND] = {"expand", 1},
    [VIEW_DIAGONAL] = {"diagonal", 1},
    [VIEW_UNFOLD] = {"windows", 1},
    [VIEW_REAL] = {"real", 0},
    [VIEW_IMAG] = {"imag", 0},
    [VIEW_CONJ] = {"conj", 0},
    [VIEW_COMPLEX_AS_REAL] = {"view_as_real", 0},
    [VIEW_REAL_AS_COMPLEX] = {"view_as_complex", 0},
    [VIEW_BITCAST] = {"bitcast", 0},
};

static bool view_op_parse(PyObject *o, view_op *to) {
    int64_t values[4][CT_MAX_RANK];
    const int64_t *const lists[4] = {values[0], values[1], values[2], values[3]};
    PyObject *name = PyTuple_Check(o) && PyTuple_Size(o) ? PyTuple_GetItem(o, 0) : NULL;
    for (int kind = 0; name && kind <= VIEW_BITCAST; kind++) {
        if (PyUnicode_CompareWithASCIIString(name, view_op_kinds[kind].name) != 0) continue;
        size_t n = 0, each;
        for (int i = 0; i < view_op_kinds[kind].lists && i + 1 < PyTuple_Size(o); i++) {
            if (!ints_parse(PyTuple_GetItem(o, i + 1), values[i], CT_MAX_RANK, &each,
                            view_op_kinds[kind].name))
                return false;
            n = each;
        }
        if (kind == VIEW_BITCAST) {
            ct_dtype dtype;
            if (PyTuple_Size(o) < 2 || !dtype_parse(PyTuple_GetItem(o, 1), &dtype)) return false;
            values[0][0] = dtype;
            n = 1;
        }
        return view_op_new(to, kind, lists, n);
    }
    return PyErr_Format(PyExc_ValueError, "_view: %R is no movement", o);
}

view_op *view_ops_parse(PyObject *list, size_t *n) {
    *n = (size_t)PyTuple_Size(list);
    view_op *ops = calloc(*n + 1, sizeof *ops);
    if (!ops) PyErr_NoMemory();
    for (size_t i = 0; ops && i < *n; i++)
        if (!view_op_parse(PyTuple_GetItem(list, (Py_ssize_t)i), &ops[i])) {
            view_ops_free(ops, i);
            return NULL;
        }
    return ops;
}
