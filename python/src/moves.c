// Movements between a tensor and its views: the view of a value, and the value of which a part was written.
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

static ct_ints dims_of(ct_tensor t, int64_t dim[CT_MAX_RANK]) {
    const int rank = ct_rank(t);
    for (int i = 0; i < rank; i++) dim[i] = ct_dim(t, i);
    return (ct_ints){rank, dim};
}

static ct_tensor numbers_along(int rank, int axis, int64_t n,
                               ct_loc here) { // 0 ... n - 1, the other sizes 1
    int64_t dim[CT_MAX_RANK];
    for (int i = 0; i < rank; i++) dim[i] = i == axis ? n : 1;
    return ct_iota_at(CT_I64, (ct_ints){rank, dim}, axis, here);
}

// The diagonals of the last two axes become the last one. The op sums products, which bools have none of.
static ct_tensor diagonal(const move *m, ct_tensor t, ct_loc here) {
    const bool is_bool = ct_dtype_of(t) == CT_BOOL;
    if (is_bool) t = ct_cast_at(t, CT_U8, here);
    t = ct_diagonal_with((ct_diagonal_args){.x = t, .offset = m->list[0][0], .here = here});
    return is_bool ? ct_cast_at(t, CT_BOOL, here) : t;
}

// Windows of `size` places every `step` along an axis, (..., n, ...): a new last axis has them.
static ct_tensor windows(const move *m, ct_tensor t, ct_loc here) {
    const int64_t axis = m->list[0][0], size = m->list[0][1], step = m->list[0][2];
    const int64_t n = (ct_dim(t, (int)axis) - size) / step + 1;
    int64_t order[CT_MAX_RANK];
    const int rank = ct_rank(t);
    ct_tensor at =
        ct_add_at(ct_mul_at(numbers_along(2, 0, n, here), ct_scalar((double)step, CT_I64), here),
                  numbers_along(2, 1, size, here), here);
    t = ct_gather_with((ct_gather_args){.x = t, .indices = at, .axis = axis, .here = here});
    for (int i = 0; i < rank; i++) order[i] = i <= axis ? i : i + 1;
    order[rank] = axis + 1;
    return ct_permute_at(t, (ct_ints){rank + 1, order}, here);
}

static ct_tensor pairs(ct_tensor re, ct_tensor im, ct_loc here) { // (...) twice to (..., 2)
    int64_t dim[CT_MAX_RANK];
    ct_ints dims = dims_of(re, dim);
    dim[dims.n++] = 1;
    const ct_tensor both[2] = {ct_reshape_at(re, dims, here), ct_reshape_at(im, dims, here)};
    return ct_concat_at(both, 2, -1, here);
}
static ct_tensor of_pairs(ct_tensor t, ct_loc here) { // (..., 2) to (...)
    int64_t dim[CT_MAX_RANK];
    ct_tensor parts[2];
    ct_ints dims = dims_of(t, dim);
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

ct_tensor move_forward(const move *m, ct_tensor t, ct_loc here) {
    switch (m->kind) {
    case MOVE_SLICE: return sliced(m, t, here);
    case MOVE_PERMUTE: return ct_permute_at(t, list_of(m, 0), here);
    case MOVE_RESHAPE: return ct_reshape_at(t, list_of(m, 0), here);
    case MOVE_EXPAND: return ct_expand_at(t, list_of(m, 0), here);
    case MOVE_DIAGONAL: return diagonal(m, t, here);
    case MOVE_WINDOWS: return windows(m, t, here);
    case MOVE_REAL: return ct_real_at(t, here);
    case MOVE_IMAG: return ct_imag_at(t, here);
    case MOVE_CONJ: return ct_conj_at(t, here);
    case MOVE_PAIRS: return pairs(ct_real_at(t, here), ct_imag_at(t, here), here);
    case MOVE_OF_PAIRS: return of_pairs(t, here);
    case MOVE_BITS: return ct_bitcast_at(t, (ct_dtype)m->list[0][0], here);
    }
    return CT_NONE;
}

bool same_sizes(ct_tensor a, ct_tensor b) {
    bool same = ct_rank(a) == ct_rank(b);
    for (int i = 0; same && i < ct_rank(a); i++) same = ct_dim(a, i) == ct_dim(b, i);
    return same;
}
ct_tensor with_shape_of(ct_tensor t, ct_tensor of, bool expand, ct_loc here) {
    int64_t dim[CT_MAX_RANK];
    if (same_sizes(t, of)) return t;
    return expand ? ct_expand_at(t, dims_of(of, dim), here)
                  : ct_reshape_at(t, dims_of(of, dim), here);
}
ct_tensor same_value(ct_tensor t, ct_loc here) {
    int64_t dim[CT_MAX_RANK];
    return ct_reshape_at(t, dims_of(t, dim), here);
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

// Each element of the diagonals beside the row, or the column, in which it is.
static ct_tensor put_diagonal(const move *m, ct_tensor whole, ct_tensor part, ct_loc here) {
    const int64_t offset = m->list[0][0];
    const int rank = ct_rank(whole), axis = offset < 0 ? rank - 1 : rank - 2;
    const int64_t n = ct_dim(part, rank - 2);
    int64_t dim[CT_MAX_RANK], low[CT_MAX_RANK] = {0}, high[CT_MAX_RANK] = {0};
    if (!n) return whole;
    ct_tensor rows = numbers_along(rank, rank - 2, ct_dim(whole, rank - 2), here);
    ct_tensor columns = numbers_along(rank, rank - 1, ct_dim(whole, rank - 1), here);
    ct_tensor on =
        ct_equal_at(ct_sub_at(columns, rows, here), ct_scalar((double)offset, CT_I64), here);
    dims_of(part, dim);
    dim[rank - 2] = dim[rank - 1] = 1;
    dim[axis] = n;
    high[axis] = ct_dim(whole, axis) - n;
    ct_tensor line = ct_pad_with((ct_pad_args){.x = ct_reshape_at(part, (ct_ints){rank, dim}, here),
                                               .value = ct_scalar(0, ct_dtype_of(part)),
                                               .low = {rank, low},
                                               .high = {rank, high},
                                               .here = here});
    return ct_select_at(on, line, whole, here);
}

bool moves_repeat(const move *moves, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (moves[i].kind == MOVE_WINDOWS || moves[i].kind == MOVE_EXPAND) return true;
    return false;
}
// `part` in the places of `whole` from which the moves take it. Where a place comes several times before other moves
// leave one of them, the others have what was there: so they are not written back.
ct_tensor moves_put(const move *moves, size_t n, ct_tensor whole, ct_tensor part, ct_loc here) {
    const int64_t size = ct_size(whole), count = ct_size(part);
    int64_t dim[CT_MAX_RANK];
    const ct_ints dims = dims_of(whole, dim), flat = {1, &size}, line = {1, &count};
    ct_tensor at = ct_reshape_at(ct_iota_at(CT_I64, flat, 0, here), dims, here);
    for (size_t i = 0; i < n; i++) at = move_forward(&moves[i], at, here);
    ct_tensor put = ct_scatter_with((ct_scatter_args){.x = ct_reshape_at(whole, flat, here),
                                                      .indices = ct_reshape_at(at, line, here),
                                                      .updates = ct_reshape_at(part, line, here),
                                                      .mode = CT_MODE_DROP,
                                                      .here = here});
    return ct_reshape_at(put, dims, here);
}

// The value before a move whose result becomes `part`.
ct_tensor move_backward(const move *m, ct_tensor before, ct_tensor part, ct_loc here) {
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
    case MOVE_DIAGONAL: return put_diagonal(m, before, part, here);
    case MOVE_REAL: return ct_complex_at(part, ct_imag_at(before, here), here);
    case MOVE_IMAG: return ct_complex_at(ct_real_at(before, here), part, here);
    case MOVE_CONJ: return ct_conj_at(part, here);
    case MOVE_PAIRS: return of_pairs(part, here);
    case MOVE_OF_PAIRS: return pairs(ct_real_at(part, here), ct_imag_at(part, here), here);
    case MOVE_BITS: return ct_bitcast_at(part, ct_dtype_of(before), here);
    case MOVE_WINDOWS: // moves_put
    case MOVE_EXPAND: break;
    }
    return CT_NONE;
}

// ------------------------------------------------------------------------------------------- layouts

void layout_begin(layout *l, ct_tensor t) {
    int64_t dim[CT_MAX_RANK];
    const ct_ints dims = dims_of(t, dim);
    *l = (layout){.rank = (int)dims.n};
    for (int64_t i = dims.n, each = 1; i-- > 0; each *= dim[i] ? dim[i] : 1)
        l->size[i] = dim[i], l->step[i] = each;
}

// Each step must be larger than all that those which are smaller reach.
bool layout_shares(const layout *l) {
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

static void layout_slice(layout *l, const move *m) {
    for (size_t k = 0; k < m->n; k++) {
        const int64_t axis = m->list[0][k], by = m->list[3][k], far = by < 0 ? -by : by;
        const int64_t way = by < 0 ? m->list[1][k] - m->list[2][k] : m->list[2][k] - m->list[1][k];
        l->size[axis] = way > 0 ? (way + far - 1) / far : 0;
        l->step[axis] *= far;
    }
}

// Where no elements are shared other sizes make them no more so; else axes of size 1 alone may come and go.
static void layout_reshape(layout *l, const move *m) {
    const bool shares = layout_shares(l);
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

static void layout_expand(layout *l, const move *m) {
    layout to = {.rank = (int)m->n, .expanded = true, .unknown = l->unknown};
    for (int k = to.rank, a = l->rank; k-- > 0;) {
        a--;
        const bool same = a >= 0 && l->size[a] == m->list[0][k];
        to.size[k] = m->list[0][k];
        to.step[k] = same ? l->step[a] : 0;
    }
    *l = to;
}

void layout_move(layout *l, const move *m) {
    const layout was = *l;
    switch (m->kind) {
    case MOVE_SLICE: layout_slice(l, m); return;
    case MOVE_RESHAPE: layout_reshape(l, m); return;
    case MOVE_EXPAND: layout_expand(l, m); return;
    case MOVE_PERMUTE:
        for (size_t a = 0; a < m->n; a++)
            l->size[a] = was.size[m->list[0][a]], l->step[a] = was.step[m->list[0][a]];
        return;
    case MOVE_DIAGONAL: {
        const int64_t offset = m->list[0][0],
                      rows = l->size[l->rank - 2] + (offset < 0 ? offset : 0),
                      columns = l->size[l->rank - 1] - (offset > 0 ? offset : 0);
        l->rank--;
        l->size[l->rank - 1] = rows < columns ? rows : columns;
        l->step[l->rank - 1] += l->step[l->rank];
        return;
    }
    case MOVE_WINDOWS: {
        const int64_t axis = m->list[0][0];
        l->size[l->rank] = m->list[0][1], l->step[l->rank] = l->step[axis];
        l->size[axis] = (l->size[axis] - m->list[0][1]) / m->list[0][2] + 1;
        l->step[axis] *= m->list[0][2];
        l->rank++;
        return;
    }
    case MOVE_PAIRS:
        for (int a = 0; a < l->rank; a++) l->step[a] *= 2;
        l->size[l->rank] = 2, l->step[l->rank] = 1;
        l->rank++;
        break;
    case MOVE_OF_PAIRS: l->rank--; break;
    default: break;
    }
    l->unknown = layout_shares(&was); // of other elements the places are not followed
}

// ------------------------------------------------------------------------------------------- Python

// Names and how many lists of whole numbers they have.
static const struct {
    const char *name;
    int lists;
} kinds[] = {
    [MOVE_SLICE] = {"slice", 4},
    [MOVE_PERMUTE] = {"permute", 1},
    [MOVE_RESHAPE] = {"reshape", 1},
    [MOVE_EXPAND] = {"expand", 1},
    [MOVE_DIAGONAL] = {"diagonal", 1},
    [MOVE_WINDOWS] = {"windows", 1},
    [MOVE_REAL] = {"real", 0},
    [MOVE_IMAG] = {"imag", 0},
    [MOVE_CONJ] = {"conj", 0},
    [MOVE_PAIRS] = {"view_as_real", 0},
    [MOVE_OF_PAIRS] = {"view_as_complex", 0},
    [MOVE_BITS] = {"bitcast", 0},
};

static bool parse_move(PyObject *o, move *to) {
    int64_t values[4][CT_MAX_RANK];
    const int64_t *const lists[4] = {values[0], values[1], values[2], values[3]};
    PyObject *name = PyTuple_Check(o) && PyTuple_Size(o) ? PyTuple_GetItem(o, 0) : NULL;
    for (int kind = 0; name && kind <= MOVE_BITS; kind++) {
        if (PyUnicode_CompareWithASCIIString(name, kinds[kind].name) != 0) continue;
        size_t n = 0, each;
        for (int i = 0; i < kinds[kind].lists && i + 1 < PyTuple_Size(o); i++) {
            if (!parse_ints(PyTuple_GetItem(o, i + 1), values[i], CT_MAX_RANK, &each,
                            kinds[kind].name))
                return false;
            n = each;
        }
        if (kind == MOVE_BITS) {
            ct_dtype dtype;
            if (PyTuple_Size(o) < 2 || !dtype_parse(PyTuple_GetItem(o, 1), &dtype)) return false;
            values[0][0] = dtype;
            n = 1;
        }
        return move_new(to, kind, lists, n);
    }
    PyErr_Format(PyExc_ValueError, "_view: %R is no movement", o);
    return false;
}

move *moves_parse(PyObject *list, size_t *n) {
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
