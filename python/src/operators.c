// The operators of Python: arithmetic, comparisons, conversions.
#include "core.h"
#include "tensor.h"

static int category(ct_dtype dtype) { // bool, integers, floats, complex numbers
    switch (dtype_kind(dtype)) {
    case 'b': return 0;
    case 'f': return 2;
    case 'c': return 3;
    default: return 1;
    }
}

// PyTorch's rule for operators and methods: a Tensor without axes counts where its category is higher than that of one
// with axes, and then a complex number is as wide as the floats that it meets.
static void meet_one(ct_tensor *alone, ct_tensor other, ct_loc here) {
    const ct_dtype is = ct_dtype_of(*alone), theirs = ct_dtype_of(other);
    if (is == theirs || ct_rank(*alone) || !ct_rank(other) || !ct_ok(*alone) || !ct_ok(other))
        return;
    if (category(is) <= category(theirs))
        *alone = ct_cast_at(*alone, theirs, here);
    else if (category(is) == 3 && category(theirs) == 2)
        *alone = ct_cast_at(*alone, theirs == CT_F64 ? CT_C128 : CT_C64, here);
}
static void meet(PyObject *a, PyObject *b, ct_tensor in[2], ct_loc here) {
    if (!tensor_check(a) || !tensor_check(b)) return;
    meet_one(&in[0], in[1], here);
    meet_one(&in[1], in[0], here);
}

// Both sides of an operator; false without an exception: one of them is not ours.
static bool sides(PyObject *a, PyObject *b, ct_tensor in[2], ct_loc here) {
    if (!is_operand(a) || !is_operand(b) || !operand(a, &in[0], here) || !operand(b, &in[1], here))
        return false;
    meet(a, b, in, here);
    return true;
}

// _met(a, b): both, as an operator takes them.
static PyObject *met(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *o[2];
    const ct_loc here = enter();
    if (!PyArg_ParseTuple(args, "OO:_met", &o[0], &o[1])) return NULL;
    if (!tensor_check(o[0]) || !tensor_check(o[1])) return Py_NewRef(args);
    const ct_tensor was[2] = {tensor_value(o[0], here), tensor_value(o[1], here)};
    ct_tensor in[2] = {was[0], was[1]};
    if (!was[0].bits || !was[1].bits) return NULL;
    meet(o[0], o[1], in, here);
    PyObject *both[2];
    for (int i = 0; i < 2; i++)
        both[i] = in[i].bits == was[i].bits ? Py_NewRef(o[i]) : tensor_new(in[i], here);
    PyObject *found = both[0] && both[1] ? PyTuple_Pack(2, both[0], both[1]) : NULL;
    Py_XDECREF(both[0]);
    Py_XDECREF(both[1]);
    return found;
}
PyMethodDef operator_functions[] = {{"_met", met, METH_VARARGS, NULL}, {0}};
static PyObject *not_ours(void) {
    if (PyErr_Occurred() || (ct_error_code() != CT_OK && !raise_failure())) return NULL;
    Py_RETURN_NOTIMPLEMENTED;
}

typedef ct_tensor (*two_fn)(ct_tensor a, ct_tensor b, ct_loc here);

static PyObject *binary(PyObject *a, PyObject *b, two_fn f) {
    ct_tensor in[2];
    const ct_loc here = enter();
    if (!sides(a, b, in, here)) return not_ours();
    return tensor_new(f(in[0], in[1], here), here);
}
#define BINARY(name, f)                                                                            \
    static PyObject *name(PyObject *a, PyObject *b) { return binary(a, b, f); }
// a += b: a's value is written in its place.
static PyObject *in_place(PyObject *a, PyObject *b, two_fn f) {
    ct_tensor in[2];
    const ct_loc here = enter();
    if (!sides(a, b, in, here)) return not_ours();
    if (!tensor_write(a, f(in[0], in[1], here), here)) return NULL;
    Py_INCREF(a);
    return a;
}
#define BOTH(name, f)                                                                              \
    BINARY(name, f)                                                                                \
    static PyObject *name##_in_place(PyObject *a, PyObject *b) { return in_place(a, b, f); }
BOTH(add, ct_add_at)
BOTH(subtract, ct_sub_at)
BOTH(multiply, ct_mul_at)
BOTH(and_, ct_and_at)
BOTH(or_, ct_or_at)
BOTH(xor_, ct_xor_at)
BOTH(shift_left, ct_shift_left_at)

static ct_tensor with_axis(ct_tensor x, int axis, bool remove, ct_loc here) { // an axis of size 1
    int64_t dim[CT_MAX_RANK + 1];
    const int rank = ct_rank(x) + (remove ? -1 : 1);
    for (int i = 0; i < rank; i++)
        dim[i] = remove ? ct_dim(x, i + (i >= axis)) : i == axis ? 1 : ct_dim(x, i - (i > axis));
    return ct_reshape_at(x, (ct_ints){rank, dim}, here);
}
// A vector is a row on the left, a column on the right.
static ct_tensor product(ct_tensor a, ct_tensor b, ct_loc here) {
    const bool row = ct_rank(a) == 1, column = ct_rank(b) == 1;
    if (row) a = with_axis(a, 0, false, here);
    if (column) b = with_axis(b, 1, false, here);
    ct_tensor y = ct_matmul_at(a, b, here);
    if (column && ct_rank(y)) y = with_axis(y, ct_rank(y) - 1, true, here);
    if (row && ct_rank(y)) y = with_axis(y, ct_rank(y) - (column ? 1 : 2), true, here);
    return y;
}

// Said of vectors as they are given, not as the rows and columns that the product makes of them.
static bool vectors_fit(const ct_tensor in[2]) {
    const int a = ct_rank(in[0]), b = ct_rank(in[1]);
    if ((a != 1 && b != 1) || a < 1 || b < 1) return true;
    if (ct_dim(in[0], a - 1) == ct_dim(in[1], b == 1 ? 0 : b - 2)) return true;
    PyObject *shapes[2] = {0};
    for (int i = 0; i < 2; i++) {
        PyObject *size = tensor_shape(in[i]);
        shapes[i] = size ? PySequence_Tuple(size) : NULL;
        Py_XDECREF(size);
    }
    if (shapes[0] && shapes[1])
        PyErr_Format(PyExc_ValueError, "matmul: inner sizes differ: a is %S %s, b is %S %s",
                     shapes[0], dtype_text(ct_dtype_of(in[0])), shapes[1],
                     dtype_text(ct_dtype_of(in[1])));
    Py_XDECREF(shapes[0]);
    Py_XDECREF(shapes[1]);
    return false;
}
static PyObject *matmul(PyObject *a, PyObject *b) {
    ct_tensor in[2];
    const ct_loc here = enter();
    if (!sides(a, b, in, here)) return not_ours();
    return vectors_fit(in) ? tensor_new(product(in[0], in[1], here), here) : NULL;
}
static PyObject *matmul_in_place(PyObject *a, PyObject *b) { return in_place(a, b, product); }

// Integers are divided as floats.
static bool is_whole(ct_tensor t) {
    const ct_dtype dtype = ct_dtype_of(t);
    return dtype && dtype_kind(dtype) != 'f' && dtype_kind(dtype) != 'c';
}
static ct_tensor quotient(ct_tensor a, ct_tensor b, ct_loc here) {
    if (is_whole(a) && is_whole(b)) {
        a = ct_cast_at(a, CT_F32, here);
        b = ct_cast_at(b, CT_F32, here);
    }
    return ct_div_at(a, b, here);
}
BOTH(divide, quotient)

static bool is_float(ct_tensor a, ct_tensor b) { return !is_whole(a) || !is_whole(b); }

// Of floats the largest whole number that is at most a / b; a / b itself where that is not finite.
static ct_tensor floor_quotient(ct_tensor a, ct_tensor b, ct_loc here) {
    ct_tensor whole = ct_floor_divide_at(a, b, here);
    if (!is_float(a, b)) return whole;
    ct_tensor plain = ct_floor_at(ct_div_at(a, b, here), here);
    return ct_select_at(ct_is_finite_at(plain, here), whole, plain, here);
}
BOTH(modulo, ct_remainder_at)
BOTH(floor_divide, floor_quotient)

// The sign's bit comes in, as in Python and C: negative numbers are shifted as their complements.
static ct_tensor shifted(ct_tensor a, ct_tensor b, ct_loc here) {
    ct_tensor plain = ct_shift_right_at(a, b, here);
    if (!ct_dtype_of(plain) || dtype_kind(ct_dtype_of(plain)) != 'i') return plain;
    ct_tensor other = ct_not_at(ct_shift_right_at(ct_not_at(a, here), b, here), here);
    return ct_select_at(ct_less_at(a, ct_i(0), here), other, plain, here);
}
BOTH(shift_right, shifted)

static PyObject *divmod_(PyObject *a, PyObject *b) {
    PyObject *whole = floor_divide(a, b);
    if (!whole || whole == Py_NotImplemented) return whole;
    PyObject *rest = modulo(a, b);
    PyObject *both = rest ? PyTuple_Pack(2, whole, rest) : NULL;
    Py_XDECREF(rest);
    Py_DECREF(whole);
    return both;
}

static PyObject *power(PyObject *a, PyObject *b, PyObject *modulus) {
    if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
    return binary(a, b, ct_pow_at);
}
static PyObject *power_in_place(PyObject *a, PyObject *b, PyObject *modulus) {
    if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
    return in_place(a, b, ct_pow_at);
}

typedef ct_tensor (*one_fn)(ct_tensor x, ct_loc here);
static PyObject *unary(PyObject *x, one_fn f) {
    const ct_loc here = enter();
    return tensor_new(f(tensor_value(x, here), here), here);
}
static PyObject *negative(PyObject *x) { return unary(x, ct_neg_at); }
static PyObject *absolute(PyObject *x) { return unary(x, ct_abs_at); }
static PyObject *invert(PyObject *x) { return unary(x, ct_not_at); }
static PyObject *positive(PyObject *x) {
    Py_INCREF(x);
    return x;
}

static PyObject *compare(PyObject *a, PyObject *b, int op) {
    static const two_fn functions[] = {
        [Py_LT] = ct_less_at,      [Py_LE] = ct_less_equal_at, [Py_EQ] = ct_equal_at,
        [Py_NE] = ct_not_equal_at, [Py_GT] = ct_greater_at,    [Py_GE] = ct_greater_equal_at,
    };
    return binary(a, b, functions[op]);
}

// ------------------------------------------------------------------------------------- conversions

static int truth(PyObject *x) {
    ct_tensor t = tensor_handle(x);
    if (ct_ok(t) && ct_size(t) != 1) {
        PyErr_Format(PyExc_ValueError,
                     "a tensor of %lld elements is neither true nor false: use any() or all()",
                     (long long)ct_size(t));
        return -1;
    }
    PyObject *value = read_item(t, enter());
    const int result = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    return result;
}
static PyObject *to_float(PyObject *x) {
    PyObject *value = read_item(tensor_handle(x), enter());
    PyObject *result = value ? PyNumber_Float(value) : NULL;
    Py_XDECREF(value);
    return result;
}
static PyObject *to_int(PyObject *x) {
    PyObject *value = read_item(tensor_handle(x), enter());
    PyObject *result = value ? PyNumber_Long(value) : NULL;
    Py_XDECREF(value);
    return result;
}
static PyObject *to_index(PyObject *x) {
    ct_tensor t = tensor_handle(x);
    if (ct_ok(t) && (ct_size(t) != 1 || !is_whole(t))) {
        PyErr_Format(PyExc_TypeError,
                     "only a tensor of one integer is an index, not one of %lld elements of %s",
                     (long long)ct_size(t), dtype_text(ct_dtype_of(t)));
        return NULL;
    }
    return read_item(t, enter());
}
static Py_ssize_t length(PyObject *x) {
    ct_tensor t = tensor_handle(x);
    if (ct_ok(t) && ct_rank(t) > 0) return (Py_ssize_t)ct_dim(t, 0);
    if (ct_ok(t))
        PyErr_SetString(PyExc_TypeError, "a tensor without axes has no len()");
    else
        raise_failure();
    return -1;
}

PyType_Slot operator_slots[] = {
    {Py_nb_add, (void *)add},
    {Py_nb_subtract, (void *)subtract},
    {Py_nb_multiply, (void *)multiply},
    {Py_nb_true_divide, (void *)divide},
    {Py_nb_floor_divide, (void *)floor_divide},
    {Py_nb_remainder, (void *)modulo},
    {Py_nb_divmod, (void *)divmod_},
    {Py_nb_power, (void *)power},
    {Py_nb_matrix_multiply, (void *)matmul},
    {Py_nb_and, (void *)and_},
    {Py_nb_or, (void *)or_},
    {Py_nb_xor, (void *)xor_},
    {Py_nb_lshift, (void *)shift_left},
    {Py_nb_rshift, (void *)shift_right},
    {Py_nb_inplace_add, (void *)add_in_place},
    {Py_nb_inplace_subtract, (void *)subtract_in_place},
    {Py_nb_inplace_multiply, (void *)multiply_in_place},
    {Py_nb_inplace_true_divide, (void *)divide_in_place},
    {Py_nb_inplace_floor_divide, (void *)floor_divide_in_place},
    {Py_nb_inplace_remainder, (void *)modulo_in_place},
    {Py_nb_inplace_power, (void *)power_in_place},
    {Py_nb_inplace_matrix_multiply, (void *)matmul_in_place},
    {Py_nb_inplace_and, (void *)and__in_place},
    {Py_nb_inplace_or, (void *)or__in_place},
    {Py_nb_inplace_xor, (void *)xor__in_place},
    {Py_nb_inplace_lshift, (void *)shift_left_in_place},
    {Py_nb_inplace_rshift, (void *)shift_right_in_place},
    {Py_nb_negative, (void *)negative},
    {Py_nb_positive, (void *)positive},
    {Py_nb_absolute, (void *)absolute},
    {Py_nb_invert, (void *)invert},
    {Py_nb_bool, (void *)truth},
    {Py_nb_float, (void *)to_float},
    {Py_nb_int, (void *)to_int},
    {Py_nb_index, (void *)to_index},
    {Py_mp_length, (void *)length},
    {Py_tp_richcompare, (void *)compare},
    {0},
};
