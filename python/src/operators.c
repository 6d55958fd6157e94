// Python's operators on Tensors: arithmetic, comparisons, conversions.
#include "core.h"
#include "tensor.h"

// Promotes a 0-d Tensor by PyTorch's rule for operators and methods: its dtype counts only where its category
// is higher than that of an operand with axes; a complex number then is as wide as the floats of the other
// operand.
static void py_op_promote_scalar(ct_tensor *scalar, ct_tensor other, ct_loc here) {
    const ct_dtype is = ct_dtype_of(*scalar), theirs = ct_dtype_of(other);
    if (is == theirs || ct_rank(*scalar) || !ct_rank(other) || !ct_ok(*scalar) || !ct_ok(other))
        return;
    if (dtype_category(is) <= dtype_category(theirs))
        *scalar = ct_cast_at(*scalar, theirs, here);
    else if (dtype_category(is) == 3 && dtype_category(theirs) == 2)
        *scalar = ct_cast_at(*scalar, theirs == CT_F64 ? CT_C128 : CT_C64, here);
}
// Integers that meet a Python float or complex number become floats of the default dtype; the library's own rule
// knows f32 only.
static void py_op_promote_integers(ct_tensor *integers, ct_tensor number, ct_loc here) {
    if (ct_ok(*integers) && dtype_category(ct_dtype_of(*integers)) < 2 &&
        dtype_category(ct_dtype_of(number)) >= 2)
        *integers = ct_cast_at(*integers, default_float, here);
}
// Booleans that meet an integer number become int64, PyTorch's and NumPy's dtype of it; the library's is i32.
static void py_op_promote_bools(ct_tensor *bools, ct_tensor number, ct_loc here) {
    if (ct_ok(*bools) && ct_dtype_of(*bools) == CT_BOOL && !ct_rank(number) &&
        dtype_category(ct_dtype_of(number)) == 1)
        *bools = ct_cast_at(*bools, CT_I64, here);
}
void promote_operands(PyObject *a, PyObject *b, ct_tensor in[2], ct_loc here) {
    const bool are[2] = {tensor_check(a), tensor_check(b)};
    if (are[0] != are[1]) py_op_promote_bools(&in[are[1]], in[are[0]], here);
    if (default_float != CT_F32 && are[0] != are[1])
        py_op_promote_integers(&in[are[1]], in[are[0]], here);
    if (!are[0] || !are[1]) return;
    py_op_promote_scalar(&in[0], in[1], here);
    py_op_promote_scalar(&in[1], in[0], here);
}

// Parses both operands of an operator. Returns false without an exception if one of them is not supported.
static bool py_op_parse_operands(PyObject *a, PyObject *b, ct_tensor in[2], ct_loc here) {
    if (!is_operand(a) || !is_operand(b) || !operand_parse(a, &in[0], here) ||
        !operand_parse(b, &in[1], here))
        return false;
    promote_operands(a, b, in, here);
    return true;
}

// _met(a, b): returns both operands as an operator promotes them.
static PyObject *py_op_promoted(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *o[2];
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "OO:_met", &o[0], &o[1])) return NULL;
    if (!tensor_check(o[0]) || !tensor_check(o[1])) return Py_NewRef(args);
    const ct_tensor was[2] = {tensor_value(o[0], here), tensor_value(o[1], here)};
    ct_tensor in[2] = {was[0], was[1]};
    if (!was[0].bits || !was[1].bits) return NULL;
    promote_operands(o[0], o[1], in, here);
    PyObject *both[2];
    for (int i = 0; i < 2; i++)
        both[i] = in[i].bits == was[i].bits ? Py_NewRef(o[i]) : tensor_new(in[i], here);
    PyObject *result = both[0] && both[1] ? PyTuple_Pack(2, both[0], both[1]) : NULL;
    release(both[0], both[1]);
    return result;
}
PyMethodDef operator_functions[] = {{"_met", py_op_promoted, METH_VARARGS, NULL}, {0}};
static PyObject *py_op_not_implemented(void) {
    if (PyErr_Occurred() || (ct_error_code() != CT_OK && !raise_error())) return NULL;
    Py_RETURN_NOTIMPLEMENTED;
}

typedef ct_tensor (*binary_fn)(ct_tensor a, ct_tensor b, ct_loc here);

static PyObject *py_op_binary(PyObject *a, PyObject *b, binary_fn f) {
    ct_tensor in[2];
    const ct_loc here = api_enter();
    if (!py_op_parse_operands(a, b, in, here)) return py_op_not_implemented();
    return tensor_new(f(in[0], in[1], here), here);
}
#define BINARY(name, f)                                                                            \
    static PyObject *name(PyObject *a, PyObject *b) { return py_op_binary(a, b, f); }
// a += b: writes a's value in its place.
static PyObject *py_op_in_place(PyObject *a, PyObject *b, binary_fn f) {
    ct_tensor in[2];
    const ct_loc here = api_enter();
    if (!py_op_parse_operands(a, b, in, here)) return py_op_not_implemented();
    if (!tensor_write(a, f(in[0], in[1], here), here)) return NULL;
    return Py_NewRef(a);
}
#define BINARY_AND_IN_PLACE(name, f)                                                               \
    BINARY(name, f)                                                                                \
    static PyObject *name##_in_place(PyObject *a, PyObject *b) { return py_op_in_place(a, b, f); }
// The sum of booleans is their or, the product their and, as in PyTorch and NumPy.
static bool py_op_is_bool_pair(ct_tensor a, ct_tensor b) {
    return ct_dtype_of(a) == CT_BOOL && ct_dtype_of(b) == CT_BOOL;
}
static ct_tensor py_op_add_value(ct_tensor a, ct_tensor b, ct_loc here) {
    return (py_op_is_bool_pair(a, b) ? ct_or_at : ct_add_at)(a, b, here);
}
static ct_tensor py_op_multiply_value(ct_tensor a, ct_tensor b, ct_loc here) {
    return (py_op_is_bool_pair(a, b) ? ct_and_at : ct_mul_at)(a, b, here);
}
BINARY_AND_IN_PLACE(py_op_add, py_op_add_value)
BINARY_AND_IN_PLACE(py_op_subtract, ct_sub_at)
BINARY_AND_IN_PLACE(py_op_multiply, py_op_multiply_value)
BINARY_AND_IN_PLACE(py_op_and, ct_and_at)
BINARY_AND_IN_PLACE(py_op_or, ct_or_at)
BINARY_AND_IN_PLACE(py_op_xor, ct_xor_at)
BINARY_AND_IN_PLACE(py_op_shift_left, ct_shift_left_at)

// Adds or removes an axis of size 1.
static ct_tensor py_op_change_axis(ct_tensor x, int axis, bool remove, ct_loc here) {
    int64_t dim[CT_MAX_RANK + 1];
    const int rank = ct_rank(x) + (remove ? -1 : 1);
    for (int i = 0; i < rank; i++)
        dim[i] = remove ? ct_dim(x, i + (i >= axis)) : i == axis ? 1 : ct_dim(x, i - (i > axis));
    return ct_reshape_at(x, (ct_ints){rank, dim}, here);
}
// A vector is a row on the left, a column on the right.
static ct_tensor py_op_matmul_value(ct_tensor a, ct_tensor b, ct_loc here) {
    const bool row = ct_rank(a) == 1, column = ct_rank(b) == 1;
    if (row) a = py_op_change_axis(a, 0, false, here);
    if (column) b = py_op_change_axis(b, 1, false, here);
    ct_tensor y = ct_matmul_at(a, b, here);
    if (column && ct_rank(y)) y = py_op_change_axis(y, ct_rank(y) - 1, true, here);
    if (row && ct_rank(y)) y = py_op_change_axis(y, ct_rank(y) - (column ? 1 : 2), true, here);
    return y;
}

// Reports the shapes of vectors as they are given, not as the rows and columns that the product makes of
// them.
static bool py_op_check_vectors(const ct_tensor in[2]) {
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
                     shapes[0], dtype_python_name(ct_dtype_of(in[0])), shapes[1],
                     dtype_python_name(ct_dtype_of(in[1])));
    release(shapes[0], shapes[1]);
    return false;
}
static PyObject *py_op_matmul(PyObject *a, PyObject *b) {
    ct_tensor in[2];
    const ct_loc here = api_enter();
    if (!py_op_parse_operands(a, b, in, here)) return py_op_not_implemented();
    return py_op_check_vectors(in) ? tensor_new(py_op_matmul_value(in[0], in[1], here), here)
                                   : NULL;
}
static bool py_op_is_square(ct_tensor x) {
    const int rank = ct_rank(x);
    return rank > 1 && ct_dim(x, rank - 1) == ct_dim(x, rank - 2);
}
// A product of another shape is not written in a's place: `a @= b` then names it, as in PyTorch.
static PyObject *py_op_matmul_in_place(PyObject *a, PyObject *b) {
    ct_tensor in[2];
    const ct_loc here = api_enter();
    if (!py_op_parse_operands(a, b, in, here)) return py_op_not_implemented();
    if (!py_op_is_square(in[1])) return py_op_matmul(a, b);
    return py_op_in_place(a, b, py_op_matmul_value);
}

// Integers are divided as floats.
static bool py_op_is_integer(ct_tensor t) {
    const ct_dtype dtype = ct_dtype_of(t);
    return dtype && dtype_kind(dtype) != 'f' && dtype_kind(dtype) != 'c';
}
static ct_tensor py_op_true_divide_value(ct_tensor a, ct_tensor b, ct_loc here) {
    if (py_op_is_integer(a) && py_op_is_integer(b)) {
        a = ct_cast_at(a, default_float, here);
        b = ct_cast_at(b, default_float, here);
    }
    return ct_div_at(a, b, here);
}
BINARY_AND_IN_PLACE(py_op_divide, py_op_true_divide_value)

static bool py_op_is_float_pair(ct_tensor a, ct_tensor b) {
    return !py_op_is_integer(a) || !py_op_is_integer(b);
}

// Returns for floats the largest integer that is at most a / b, and a / b itself where that is not finite.
static ct_tensor py_op_floor_divide_value(ct_tensor a, ct_tensor b, ct_loc here) {
    ct_tensor floored = ct_floor_divide_at(a, b, here);
    if (!py_op_is_float_pair(a, b)) return floored;
    ct_tensor quotient = ct_floor_at(ct_div_at(a, b, here), here);
    return ct_select_at(ct_is_finite_at(quotient, here), floored, quotient, here);
}
BINARY_AND_IN_PLACE(py_op_modulo, ct_remainder_at)
BINARY_AND_IN_PLACE(py_op_floor_divide, py_op_floor_divide_value)

// Shifts in the sign's bit, as Python and C do: negative numbers are shifted as their complements.
static ct_tensor py_op_shift_right_value(ct_tensor a, ct_tensor b, ct_loc here) {
    ct_tensor logical = ct_shift_right_at(a, b, here);
    if (!ct_dtype_of(logical) || dtype_kind(ct_dtype_of(logical)) != 'i') return logical;
    ct_tensor complement = ct_not_at(ct_shift_right_at(ct_not_at(a, here), b, here), here);
    return ct_select_at(ct_less_at(a, ct_i(0), here), complement, logical, here);
}
BINARY_AND_IN_PLACE(py_op_shift_right, py_op_shift_right_value)

static PyObject *py_op_divmod(PyObject *a, PyObject *b) {
    PyObject *floored = py_op_floor_divide(a, b);
    if (!floored || floored == Py_NotImplemented) return floored;
    PyObject *rest = py_op_modulo(a, b);
    PyObject *both = rest ? PyTuple_Pack(2, floored, rest) : NULL;
    release(rest, floored);
    return both;
}

// Integers to a negative Python integer are an error as in PyTorch and NumPy, since no integer holds the result.
static bool py_op_check_exponent(PyObject *base, PyObject *exponent) {
    if (!tensor_check(base) || !PyLong_Check(exponent)) return true;
    int overflow;
    const long long value = PyLong_AsLongLongAndOverflow(exponent, &overflow);
    if ((overflow ? overflow : value) >= 0) return true;
    const ct_tensor x = tensor_value(base, api_enter());
    if (!ct_ok(x) || dtype_category(ct_dtype_of(x)) >= 2) return true;
    return PyErr_Format(PyExc_RuntimeError, "Integers to negative integer powers are not allowed.");
}
static PyObject *py_op_power(PyObject *a, PyObject *b, PyObject *modulus) {
    if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
    if (!py_op_check_exponent(a, b)) return NULL;
    return py_op_binary(a, b, ct_pow_at);
}
static PyObject *py_op_power_in_place(PyObject *a, PyObject *b, PyObject *modulus) {
    if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
    if (!py_op_check_exponent(a, b)) return NULL;
    return py_op_in_place(a, b, ct_pow_at);
}

typedef ct_tensor (*unary_fn)(ct_tensor x, ct_loc here);
static PyObject *py_op_unary(PyObject *x, unary_fn f) {
    const ct_loc here = api_enter();
    return tensor_new(f(tensor_value(x, here), here), here);
}
static PyObject *py_op_negative(PyObject *x) { return py_op_unary(x, ct_neg_at); }
static PyObject *py_op_absolute(PyObject *x) { return py_op_unary(x, ct_abs_at); }
static PyObject *py_op_invert(PyObject *x) { return py_op_unary(x, ct_not_at); }
static PyObject *py_op_positive(PyObject *x) { return Py_NewRef(x); }

static PyObject *py_op_compare(PyObject *a, PyObject *b, int op) {
    static const binary_fn functions[] = {
        [Py_LT] = ct_less_at,      [Py_LE] = ct_less_equal_at, [Py_EQ] = ct_equal_at,
        [Py_NE] = ct_not_equal_at, [Py_GT] = ct_greater_at,    [Py_GE] = ct_greater_equal_at,
    };
    return py_op_binary(a, b, functions[op]);
}

// ------------------------------------------------------------------------------------- conversions

static int py_op_bool(PyObject *x) {
    ct_tensor t = tensor_handle(x);
    if (ct_ok(t) && ct_size(t) != 1) {
        PyErr_Format(PyExc_ValueError,
                     "a tensor of %lld elements is neither true nor false: use any() or all()",
                     (long long)ct_size(t));
        return -1;
    }
    PyObject *value = read_item(t, api_enter());
    const int result = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    return result;
}
static PyObject *py_op_convert(PyObject *x, PyObject *(*to)(PyObject *)) {
    PyObject *value = read_item(tensor_handle(x), api_enter());
    PyObject *result = value ? to(value) : NULL;
    Py_XDECREF(value);
    return result;
}
static PyObject *py_op_float(PyObject *x) { return py_op_convert(x, PyNumber_Float); }
static PyObject *py_op_int(PyObject *x) { return py_op_convert(x, PyNumber_Long); }
static PyObject *py_op_index(PyObject *x) {
    ct_tensor t = tensor_handle(x);
    if (ct_ok(t) && (ct_size(t) != 1 || !py_op_is_integer(t)))
        return PyErr_Format(
            PyExc_TypeError,
            "only a tensor of one integer is an index, not one of %lld elements of %s",
            (long long)ct_size(t), dtype_python_name(ct_dtype_of(t)));
    return read_item(t, api_enter());
}
static Py_ssize_t py_op_len(PyObject *x) {
    ct_tensor t = tensor_handle(x);
    if (ct_ok(t) && ct_rank(t) > 0) return (Py_ssize_t)ct_dim(t, 0);
    if (ct_ok(t))
        PyErr_SetString(PyExc_TypeError, "a tensor without axes has no len()");
    else
        raise_error();
    return -1;
}

PyType_Slot operator_slots[] = {
    {Py_nb_add, (void *)py_op_add},
    {Py_nb_subtract, (void *)py_op_subtract},
    {Py_nb_multiply, (void *)py_op_multiply},
    {Py_nb_true_divide, (void *)py_op_divide},
    {Py_nb_floor_divide, (void *)py_op_floor_divide},
    {Py_nb_remainder, (void *)py_op_modulo},
    {Py_nb_divmod, (void *)py_op_divmod},
    {Py_nb_power, (void *)py_op_power},
    {Py_nb_matrix_multiply, (void *)py_op_matmul},
    {Py_nb_and, (void *)py_op_and},
    {Py_nb_or, (void *)py_op_or},
    {Py_nb_xor, (void *)py_op_xor},
    {Py_nb_lshift, (void *)py_op_shift_left},
    {Py_nb_rshift, (void *)py_op_shift_right},
    {Py_nb_inplace_add, (void *)py_op_add_in_place},
    {Py_nb_inplace_subtract, (void *)py_op_subtract_in_place},
    {Py_nb_inplace_multiply, (void *)py_op_multiply_in_place},
    {Py_nb_inplace_true_divide, (void *)py_op_divide_in_place},
    {Py_nb_inplace_floor_divide, (void *)py_op_floor_divide_in_place},
    {Py_nb_inplace_remainder, (void *)py_op_modulo_in_place},
    {Py_nb_inplace_power, (void *)py_op_power_in_place},
    {Py_nb_inplace_matrix_multiply, (void *)py_op_matmul_in_place},
    {Py_nb_inplace_and, (void *)py_op_and_in_place},
    {Py_nb_inplace_or, (void *)py_op_or_in_place},
    {Py_nb_inplace_xor, (void *)py_op_xor_in_place},
    {Py_nb_inplace_lshift, (void *)py_op_shift_left_in_place},
    {Py_nb_inplace_rshift, (void *)py_op_shift_right_in_place},
    {Py_nb_negative, (void *)py_op_negative},
    {Py_nb_positive, (void *)py_op_positive},
    {Py_nb_absolute, (void *)py_op_absolute},
    {Py_nb_invert, (void *)py_op_invert},
    {Py_nb_bool, (void *)py_op_bool},
    {Py_nb_float, (void *)py_op_float},
    {Py_nb_int, (void *)py_op_int},
    {Py_nb_index, (void *)py_op_index},
    {Py_mp_length, (void *)py_op_len},
    {Py_tp_richcompare, (void *)py_op_compare},
    {0},
};
