// Calls ops from Python: binds Python's arguments to operands and attributes by the op's table entry.
#include "call.h"
#include "tensor.h"

#include <stdio.h>
#include <string.h>

enum { MAX_ARGUMENTS = 32, MAX_NUMBERS = 8 * CT_MAX_RANK, MAX_INLINE_OPERANDS = 16 };

typedef struct binding {
    const op_entry *op;
    ct_loc here;
    char *args;
    int64_t numbers[MAX_NUMBERS]; // memory for lists of numbers
    size_t n_numbers;
    // a list of operands: inline_operands if it is short, else operand_list
    ct_tensor inline_operands[MAX_INLINE_OPERANDS], *operand_list;
    // out=: the Tensor that takes the result; NULL for a new one
    PyObject *out_tensor;
} binding;

static const char *call_parameter_name(const op_entry *op, Py_ssize_t i) {
    return i < op->n_operands ? op->operands[i] : op->attrs[i - op->n_operands].name;
}

// Puts the arguments in the order of the parameters; NULL where one is missing.
static bool call_sort_arguments(binding *b, PyObject *const *args, Py_ssize_t n, PyObject *names,
                                PyObject **sorted) {
    const op_entry *op = b->op;
    const Py_ssize_t all = op->n_operands + op->n_attrs;
    const Py_ssize_t n_positional = op->options ? op->n_operands : all;
    if (n > n_positional)
        return PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments without a name, not %zd",
                            op->name, n_positional, n);
    for (Py_ssize_t i = 0; i < all; i++) sorted[i] = i < n ? args[i] : NULL;
    const Py_ssize_t n_names = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t k = 0; k < n_names; k++) {
        PyObject *name = PyTuple_GetItem(names, k);
        Py_ssize_t i = 0;
        while (i < all && PyUnicode_CompareWithASCIIString(name, call_parameter_name(op, i)) != 0)
            i++;
        if (i == all && op->n_out == 1 && PyUnicode_CompareWithASCIIString(name, "out") == 0) {
            b->out_tensor = args[n + k] == Py_None ? NULL : args[n + k];
            if (b->out_tensor && !tensor_check(b->out_tensor))
                return PyErr_Format(PyExc_TypeError, "out must be a Tensor, not %R", b->out_tensor);
            continue;
        }
        if (i == all || sorted[i])
            return PyErr_Format(PyExc_TypeError,
                                i == all ? "%s() has no argument %R" : "%s() got argument %R twice",
                                op->name, name);
        sorted[i] = args[n + k];
    }
    for (Py_ssize_t i = 0; i < all; i++) {
        const bool needed = i < op->n_operands ? i < op->n_needed : !op->options;
        if (needed && !sorted[i])
            return PyErr_Format(PyExc_TypeError, "%s() needs argument '%s'", op->name,
                                call_parameter_name(op, i));
    }
    return true;
}

// Binds the operands. Python numbers take the dtype of the other operands; if all operands are numbers, they
// become arrays.
static bool call_bind_operands(binding *b, PyObject **sorted) {
    const op_entry *op = b->op;
    ct_tensor *to = (ct_tensor *)(void *)b->args;
    bool numbers_alone = true;
    for (int i = 0; i < op->n_operands; i++)
        if (sorted[i] && sorted[i] != Py_None && !is_number(sorted[i])) numbers_alone = false;
    for (int i = 0; i < op->n_operands; i++) {
        PyObject *o = sorted[i];
        if (o == Py_None && i >= op->n_needed) o = NULL;
        if (o && !(numbers_alone ? operand_parse_strong(o, &to[i], b->here)
                                 : operand_parse(o, &to[i], b->here)))
            return false;
    }
    return true;
}

static bool call_bind_list(binding *b, PyObject *o) {
    PyObject *list = PySequence_Tuple(o);
    if (!list) return false;
    const Py_ssize_t n = PyTuple_Size(list);
    ct_tensor *to = n <= MAX_INLINE_OPERANDS
                        ? b->inline_operands
                        : (b->operand_list = PyMem_Malloc((size_t)n * sizeof *to));
    bool ok = to || (PyErr_NoMemory(), false);
    for (Py_ssize_t i = 0; ok && i < n; i++)
        ok = operand_parse_strong(PyTuple_GetItem(list, i), &to[i], b->here);
    Py_DECREF(list);
    struct {
        const ct_tensor *v;
        int n;
    } args = {to, (int)n};
    memcpy(b->args, &args, sizeof args);
    return ok;
}

static bool call_parse_enum(PyObject *o, const char *const *words, const char *name, int64_t *to) {
    if (!PyUnicode_Check(o)) return int_parse(o, to, name);
    for (int i = 0; words[i]; i++)
        if (PyUnicode_CompareWithASCIIString(o, words[i]) == 0) {
            *to = i;
            return true;
        }
    return PyErr_Format(PyExc_ValueError, "%s must be one of the words of its description, not %R",
                        name, o);
}

static bool call_bind_attr(binding *b, const op_attr *attr, PyObject *o) {
    static const char *const modes[] = {"drop", "clip", "promise_in_bounds", NULL};
    static const char *const layouts[] = {"int8", "int4_32", NULL};
    void *to = b->args + attr->offset;
    ct_num *num = to;
    ct_ints *ints = to;
    size_t n;
    switch (attr->kind) {
    case ATTR_INT: return int_parse(o, to, attr->name);
    case ATTR_MODE: return call_parse_enum(o, modes, attr->name, to);
    case ATTR_LAYOUT: return call_parse_enum(o, layouts, attr->name, to);
    case ATTR_INTS:
        ints->v = b->numbers + b->n_numbers;
        if (!ints_parse(o, b->numbers + b->n_numbers, MAX_NUMBERS - b->n_numbers, &n, attr->name))
            return false;
        ints->n = (int64_t)n;
        b->n_numbers += n;
        return true;
    case ATTR_FLOAT:
    case ATTR_NUM: {
        const double value = PyFloat_AsDouble(o);
        if (PyErr_Occurred()) return false;
        if (attr->kind == ATTR_FLOAT)
            *(double *)to = value;
        else
            *num = CT_F(value);
        return true;
    }
    case ATTR_BOOL: {
        const int value = PyObject_IsTrue(o);
        *(bool *)to = value == 1;
        return value >= 0;
    }
    default: return dtype_parse(o, to);
    }
}

static bool call_bind_arguments(binding *b, PyObject *const *args, Py_ssize_t n, PyObject *names) {
    const op_entry *op = b->op;
    PyObject *sorted[MAX_ARGUMENTS];
    if (!call_sort_arguments(b, args, n, names, sorted)) return false;
    if (op->list ? !call_bind_list(b, sorted[0]) : !call_bind_operands(b, sorted)) return false;
    for (int i = 0; i < op->n_attrs; i++) {
        PyObject *o = sorted[op->n_operands + i];
        if (o && o != Py_None && !call_bind_attr(b, &op->attrs[i], o)) return false;
    }
    return true;
}

static PyObject *call_make_result_tuple(const op_entry *op, const ct_tensor *out, ct_loc here) {
    PyObject *result = PyStructSequence_New(*op->result);
    for (int i = 0; result && i < op->n_out; i++) {
        PyObject *o = tensor_new_without_run(out[i], here);
        if (o)
            PyStructSequence_SetItem(result, i, o);
        else
            Py_CLEAR(result);
    }
    return result;
}

PyObject *call_op(const op_entry *op, PyObject *const *args, Py_ssize_t n, PyObject *names) {
    _Alignas(16) char buffer[OP_MOST_BYTES];
    ct_tensor out[OP_MOST_OUT];
    binding b;
    b.op = op, b.args = buffer, b.n_numbers = 0, b.operand_list = NULL, b.out_tensor = NULL;
    b.here = api_enter();
    memset(buffer, 0, sizeof buffer);
    PyObject *result = NULL;
    if (call_bind_arguments(&b, args, n, names)) {
        op->run(buffer, b.here, out);
        if (op->n_out > 1)
            result = call_make_result_tuple(op, out, b.here);
        else if (!b.out_tensor)
            result = tensor_new(out[0], b.here);
        else if (ct_ok(out[0]) ? tensor_write(b.out_tensor, out[0], b.here) : raise_error() != NULL)
            result = b.out_tensor;
        if (result && b.out_tensor) Py_INCREF(result);
    }
    PyMem_Free(b.operand_list);
    return result;
}

PyObject *call_op_operands(const op_entry *op, PyObject *const *operands, unsigned flags) {
    _Alignas(16) char buffer[OP_MOST_BYTES];
    ct_tensor out[OP_MOST_OUT], *to = (ct_tensor *)(void *)buffer;
    const ct_loc here = api_enter();
    memset(buffer, 0, sizeof buffer);
    bool floats = flags & CALL_FLOATS, bools = flags & CALL_BOOLS, mixed = false;
    ct_dtype first = CT_DEFAULT;
    for (int i = 0; i < op->n_operands; i++) {
        if (operands[i] == Py_None && i >= op->n_needed) continue;
        if (!operand_parse(operands[i], &to[i], here)) return NULL;
        if (i && !floats && !bools && mixed) continue;
        const ct_dtype dtype = ct_dtype_of(to[i]);
        if (i == 0) first = dtype;
        mixed = mixed || dtype != first;
        if (floats) floats = dtype_kind(dtype) != 'f' && dtype_kind(dtype) != 'c';
        bools = bools && dtype == CT_BOOL;
    }
    if (op->n_operands == 2 && mixed) promote_operands(operands[0], operands[1], to, here);
    for (int i = 0; i < op->n_operands && (floats || bools); i++)
        if (ct_ok(to[i])) to[i] = ct_cast_at(to[i], bools ? CT_U8 : default_float, here);
    op->run(buffer, here, out);
    if (bools) out[0] = ct_cast_at(out[0], CT_BOOL, here);
    return op->n_out > 1 ? call_make_result_tuple(op, out, here) : tensor_new(out[0], here);
}

// Makes the named tuple type of an op that has several outputs.
static bool call_make_result_type(const op_entry *op) {
    PyStructSequence_Field fields[OP_MOST_OUT + 1] = {0};
    char name[64];
    snprintf(name, sizeof name, "cotan._core.ops.%s_result", op->name);
    for (int i = 0; i < op->n_out; i++) fields[i].name = op->outputs[i];
    // the type keeps the name
    PyStructSequence_Desc desc = {strdup(name), NULL, fields, op->n_out};
    *op->result = PyStructSequence_NewType(&desc);
    return *op->result != NULL;
}

bool call_init(PyObject *module) {
    PyObject *ops = PyModule_New("cotan._core.ops"), *modules = PyImport_GetModuleDict();
    if (!ops || PyModule_AddFunctions(ops, op_methods) < 0) return false;
    for (size_t i = 0; i < op_count; i++)
        if (op_entries[i]->n_out > 1 && !call_make_result_type(op_entries[i])) return false;
    return PyDict_SetItemString(modules, "cotan._core.ops", ops) == 0 &&
           PyModule_AddObjectRef(module, "ops", ops) == 0;
}
