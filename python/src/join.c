// Concatenates small values that are already computed by copying them at once. The samples of a batch come
// from anywhere, some twice, and each pattern would make a plan of its own.
#include "core.h"
#include "tensor.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_JOIN_BYTES = 1 << 20 };

typedef struct join_state {
    PyObject *parts; // a list of Tensors
    ct_tensor *t;    // (n) their values
    int axis, rank;
    bool stacked;              // along a new axis
    ct_dtype dtype;            // of all parts
    int64_t dim[CT_MAX_RANK];  // of the result
    int64_t rows;              // the product of the sizes of the axes before `axis`
    size_t bytes, bytes_a_row; // of the result, and of an element along `axis` in one row
    ct_loc here;
} join_state;

// True if the parts can be copied. False if not, or with an exception set.
static bool join_can_copy(join_state *j) {
    const Py_ssize_t n = PyList_Size(j->parts);
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *o = PyList_GetItem(j->parts, k);
        if (!tensor_check(o)) return false;
        const ct_tensor t = j->t[k] = tensor_value(o, j->here);
        if (!ct_current_data(t)) return false;
        if (!k) {
            j->rank = ct_rank(t);
            j->dtype = ct_dtype_of(t);
            if (j->axis < 0) j->axis += j->rank + j->stacked;
            if (j->axis < 0 || j->axis >= j->rank + j->stacked || j->rank == CT_MAX_RANK)
                return false;
            for (int i = 0; i < j->rank; i++) j->dim[i] = ct_dim(t, i);
            if (!j->stacked) j->dim[j->axis] = 0;
        }
        if (ct_rank(t) != j->rank || ct_dtype_of(t) != j->dtype) return false;
        for (int i = 0; i < j->rank; i++) {
            if (!j->stacked && i == j->axis)
                j->dim[i] += ct_dim(t, i);
            else if (ct_dim(t, i) != j->dim[i])
                return false;
        }
    }
    if (j->stacked) {
        memmove(j->dim + j->axis + 1, j->dim + j->axis,
                (size_t)(j->rank - j->axis) * sizeof *j->dim);
        j->dim[j->axis] = n;
        j->rank++;
    }
    const int bits = ct_dtype_bits(j->dtype);
    size_t elements = 1;
    j->rows = 1;
    j->bytes_a_row = (size_t)bits / 8;
    for (int i = 0; i < j->rank; i++) {
        elements *= (size_t)j->dim[i];
        if (elements > MAX_JOIN_BYTES) return false;
        if (i < j->axis) j->rows *= j->dim[i];
        if (i > j->axis) j->bytes_a_row *= (size_t)j->dim[i];
    }
    j->bytes = elements * (size_t)bits / 8;
    return n && bits % 8 == 0 && j->bytes <= MAX_JOIN_BYTES;
}

// _join(list of tensors, axis, stacked): returns None if it does not apply.
static PyObject *join_join(PyObject *Py_UNUSED(module), PyObject *args) {
    join_state j = {.here = api_enter()};
    int stacked;
    if (!PyArg_ParseTuple(args, "O!ip:_join", &PyList_Type, &j.parts, &j.axis, &stacked))
        return NULL;
    j.stacked = stacked;
    const Py_ssize_t n = PyList_Size(j.parts);
    char *all = NULL;
    j.t = malloc(((size_t)n + 1) * sizeof *j.t);
    if (!j.t) return PyErr_NoMemory();
    const bool can_copy = !trace_is_active() && join_can_copy(&j);
    if (can_copy && !(all = malloc(j.bytes + 1))) PyErr_NoMemory();
    char *to = all;
    for (int64_t row = 0; all && row < j.rows; row++)
        for (Py_ssize_t k = 0; k < n; k++) {
            const size_t bytes = (j.stacked ? 1 : (size_t)ct_dim(j.t[k], j.axis)) * j.bytes_a_row;
            memcpy(to, (const char *)ct_current_data(j.t[k]) + (size_t)row * bytes, bytes);
            to += bytes;
        }
    free(j.t);
    if (!all) {
        if (PyErr_Occurred()) return NULL;
        Py_RETURN_NONE;
    }
    const ct_tensor t = ct_from_at(all, j.dtype, (ct_ints){j.rank, j.dim}, j.here);
    free(all);
    return tensor_new(t, j.here);
}

PyMethodDef join_functions[] = {
    {"_join", join_join, METH_VARARGS, NULL},
    {0},
};
